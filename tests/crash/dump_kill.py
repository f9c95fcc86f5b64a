#!/usr/bin/env python3
"""dump_kill.py - moves a vector set between two servers, and kills the one that takes it with SIGKILL meanwhile.

The first server has a set, part of it sealed, whose elements change in each cycle. It is dumped; the second one, which
has an older version of the set, is told to RESTORE it with REPLACE (every other cycle: under a new key), and to COPY
it. After a random time it is killed and started again. Then each key must hold what it held before, or all of the new
set, by its digest and number of elements; what was acknowledged must be the new one; and no set may be left that no
key names.
"""
import argparse
import contextlib
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from resp_client import Error, Stream, request

DIM = 16


class Wrong(Exception):
    """A half set, a lost one, or one too many."""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        folder.mkdir()
        self.start()

    def start(self):
        self.port = free_port()
        self.log = open(self.folder / "log", "ab")
        self.process = subprocess.Popen(
            [self.options.build_dir.resolve() / "quire-server", "--port", str(self.port), "--dir",
             str(self.folder / "data"), "--appendfsync", "always", "--memtable-memory", "1mb", "--proto-max-bulk-len",
             "512mb", "--maxmemory-clients", "1gb"], stdout=self.log, stderr=self.log)
        deadline = time.monotonic() + 60
        while True:
            try:
                self.stream = Stream(self.port)
                if self.ask("PING") == "PONG":
                    return
            except OSError:
                pass
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise Wrong("the server does not start: see %s" % self.log.name)
            time.sleep(0.02)

    def ask(self, *words):
        return self.stream.ask([request(*words)])[0]

    def must(self, *words):
        reply = self.ask(*words)
        if isinstance(reply, Error):
            raise Wrong("%s: %s" % (words[0], reply))
        return reply

    def state(self, key):
        return self.must("DEBUG", "DIGEST-VALUE", key)[0], self.must("VCARD", key)

    def kill(self):
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.log.close()


def change(source, rng, cycle, rows):
    """New versions of some elements, so that each cycle's set is another."""
    requests = []
    for i in range(rows if cycle == 0 else rows // 10):
        vector = [rng.gauss(0, 1) for _ in range(DIM)]
        requests.append(request("VADD", "k", "VALUES", DIM, *("%.5f" % x for x in vector), "e%d" % rng.randrange(2 * rows),
                                "SETATTR", '{"cycle":%d,"i":%d}' % (cycle, i)))
    for reply in source.stream.ask(requests):
        if isinstance(reply, Error):
            raise Wrong(reply)
    if cycle % 3 == 0:
        source.must("VSEAL", "k")


def run(options, rng):
    with tempfile.TemporaryDirectory(prefix="quire-dump-") as name:
        folder = Path(name)
        source, target = Server(options, folder / "source"), Server(options, folder / "target")
        kept = interrupted = 0
        try:
            for cycle in range(options.cycles):
                change(source, rng, cycle, options.rows)
                payload, new = source.must("DUMP", "k"), source.state("k")
                to = "k" if cycle % 2 else "other"
                words = [("RESTORE", to, 0, payload, "REPLACE"), ("COPY", to, "copy", "REPLACE")]
                before = {key: target.state(key) for key in (to, "copy")}
                done = []
                began = time.monotonic()
                target.stream.socket.sendall(b"".join(request(*w) for w in words))
                target.stream.socket.settimeout(0.01)
                limit = rng.random() * options.longest
                while time.monotonic() - began < limit and len(done) < 2:
                    with contextlib.suppress(TimeoutError):
                        done += target.stream.feed(target.stream.socket.recv(1 << 16))
                for reply in done:
                    if isinstance(reply, Error):
                        raise Wrong(reply)
                target.kill()
                target.start()
                for i, key in enumerate((to, "copy")):
                    now = target.state(key)
                    if now != new and (i < len(done) or now != before[key]):
                        raise Wrong("cycle %d: %s is %s, was %s, should become %s" % (cycle, key, now, before[key], new))
                    interrupted += now != new
                    kept += now == new
                target.must("DEBUG", "RELOAD")
                sets = int(re.search(rb"collections:(\d+)", target.must("INFO", "quire")).group(1))
                keys = sum(target.must("EXISTS", key) for key in ("k", "other", "copy"))
                if sets != keys:
                    raise Wrong("cycle %d: %d sets for %d keys" % (cycle, sets, keys))
            print("ok - %d cycles: %d keys got the new set, %d kept what they had" % (options.cycles, kept, interrupted))
        except Wrong:
            if options.keep:
                shutil.copytree(folder, options.keep, dirs_exist_ok=True)
            raise
        finally:
            source.kill()
            if target.process.poll() is None:
                target.kill()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build-dir", type=Path, required=True)
    parser.add_argument("--cycles", type=int, default=10)
    parser.add_argument("--rows", type=int, default=6000)
    parser.add_argument("--longest", type=float, default=0.8, help="seconds until the kill, at most")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--keep", type=Path, help="where the folders go when something is wrong")
    options = parser.parse_args()
    print("# dump_kill.py --seed %d" % options.seed, flush=True)
    try:
        run(options, random.Random(options.seed))
    except Wrong as e:
        print("FAIL - %s" % e)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
