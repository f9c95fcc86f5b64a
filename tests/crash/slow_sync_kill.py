#!/usr/bin/env python3
"""slow_sync_kill.py - kills quire-server under appendfsync everysec while each sync takes long, again and again.

Every cycle: the server is started on the folder that the last one left (every tenth begins with an empty one, so that
starts stay short), with a library in front of it that makes fdatasync and fsync slow (slow_sync.c). Two connections
write, one strings and one vectors, each waiting for every reply; every third cycle a third one asks for a checkpoint, so
that a log is begun meanwhile. After a random time the server is killed with SIGKILL. At the next start all that was
acknowledged must be there but for what was acknowledged in the last milliseconds before the kill (--within-ms), and what
is missing must be the last ones of its connection. A line per cycle says how it went; after --give-up cycles that lost
more than that the rest is left out.
"""
import argparse
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from resp_client import Error, Stream, request


CYCLES_PER_FOLDER = 10


class Wrong(Exception):
    """Something was lost that must not be."""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def call(stream, *words):
    stream.socket.sendall(request(*words))
    while True:
        data = stream.socket.recv(1 << 16)
        if not data:
            raise ConnectionError("closed")
        for reply in stream.feed(data):
            return reply


class Server:
    def __init__(self, options, folder):
        self.flag = folder / "slow"
        self.flag.unlink(missing_ok=True)
        self.port = free_port()
        build = options.build_dir.resolve()
        environment = dict(os.environ, LD_PRELOAD=str(build / "libslow_sync.so"), SLOW_SYNC_FLAG=str(self.flag),
                           SLOW_SYNC_MS=str(options.sync_ms))
        self.log = open(folder / "log", "ab")
        self.process = subprocess.Popen(
            [build / "quire-server", "--port", str(self.port), "--dir", str(folder / "data"), "--appendfsync",
             "everysec"], env=environment, stdout=self.log, stderr=self.log)
        deadline = time.monotonic() + 600  # it replays what all cycles wrote, on a machine that may be busy
        while True:
            try:
                self.control = Stream(self.port)
                if call(self.control, "PING") == "PONG":
                    return
            except OSError:
                pass
            if self.process.poll() is not None or time.monotonic() > deadline:
                end = Path(self.log.name).read_text(errors="replace").splitlines()[-5:]
                raise Wrong("the server does not start:\n" + "\n".join(end))
            time.sleep(0.02)

    def kill(self):
        at = time.monotonic()
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.log.close()
        return at


class Writer(threading.Thread):
    """Writes n = first, first + 1, ... and notes when each was acknowledged."""

    def __init__(self, port, first, command, answers):
        super().__init__(daemon=True)
        self.stream, self.first, self.command, self.answers = Stream(port), first, command, answers
        self.acknowledged, self.refused = [], None

    def run(self):
        try:
            while True:
                reply = call(self.stream, *self.command(self.first + len(self.acknowledged)))
                if reply not in self.answers:
                    self.refused = reply
                    return
                self.acknowledged.append(time.monotonic())
        except OSError:
            pass


def vector(n):
    return struct.pack("<4f", 1 + n % 7, n % 11, n % 13, 1)


KINDS = {
    "strings": (lambda n: ("SET", "k%d" % n, n), ("OK",), lambda n: ("EXISTS", "k%d" % n)),
    "vectors": (lambda n: ("VADD", "set", "FP32", vector(n), "e%d" % n), (1,), lambda n: ("VISMEMBER", "set", "e%d" % n)),
}


def check(server, writers, killed_at, options):
    """How many were lost, and how long before the kill the oldest of them was acknowledged (s)."""
    lost, oldest = 0, 0.0
    for name, writer in writers.items():
        missing, n = [], len(writer.acknowledged)
        for begin in range(0, n, 500):
            asked = range(begin, min(begin + 500, n))
            replies = server.control.ask([request(*KINDS[name][2](writer.first + i)) for i in asked])
            missing += [i for i, reply in zip(asked, replies) if reply != 1]
        if missing and missing != list(range(missing[0], len(writer.acknowledged))):
            raise Wrong("%s: %d is missing and a later one is there" % (name, writer.first + missing[0]))
        if missing:
            age = killed_at - writer.acknowledged[missing[0]]
            oldest = max(oldest, age)
            if age * 1000 > options.within_ms:
                print("slow_sync_kill: %s: %d of %d acknowledged writes are lost, the oldest from %.1f ms before the "
                      "kill" % (name, len(missing), len(writer.acknowledged), age * 1000), flush=True)
        lost += len(missing)
    return lost, oldest


def say(number, options, began, n, lost, oldest, late):
    print("slow_sync_kill: cycle %d of %d, %.0f s: %d writes acknowledged, %d lost%s; %d cycles lost what was older than "
          "%g ms" % (number + 1, options.cycles, time.monotonic() - began, n, lost,
                     ", the oldest from %.1f ms before the kill" % (oldest * 1000) if lost else "", late,
                     options.within_ms), flush=True)


def cycle(server, number, chance, first, options):
    server.flag.touch()
    writers = {}
    for name, (command, answers, _) in KINDS.items():
        writers[name] = Writer(server.port, first, command, answers)
        writers[name].start()
    time.sleep(chance.uniform(0.1, 0.5))
    if number % 3 == 0:
        server.control.socket.sendall(request("BGREWRITEAOF"))
    time.sleep(chance.uniform(0, options.seconds))
    killed_at = server.kill()
    for writer in writers.values():
        writer.join()
        if writer.refused is not None:
            raise Wrong("a write was refused: %s" % writer.refused)
    return writers, killed_at


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build-dir", type=Path, required=True)
    parser.add_argument("--cycles", type=int, default=200)
    parser.add_argument("--sync-ms", type=int, default=2000, help="what each sync takes longer")
    parser.add_argument("--within-ms", type=float, default=10, help="what may be lost: acknowledged so long before")
    parser.add_argument("--seconds", type=float, default=2.0, help="of writes per cycle, at most")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--give-up", type=int, default=20, help="end early once so many cycles lost more")
    options = parser.parse_args()
    began = time.monotonic()
    chance = random.Random(options.seed)
    folder = Path(tempfile.mkdtemp(prefix="quire-slow-sync-"))
    first = written = lost = late = done = 0
    worst = 0.0
    server = None
    try:
        for number in range(options.cycles):
            if number % CYCLES_PER_FOLDER == 0:
                if server:
                    server.kill()
                shutil.rmtree(folder / "data", ignore_errors=True)
                server = Server(options, folder)
            writers, killed_at = cycle(server, number, chance, first, options)
            server = Server(options, folder)
            n, oldest = check(server, writers, killed_at, options)
            acknowledged = sum(len(w.acknowledged) for w in writers.values())
            written += acknowledged
            lost += n
            worst = max(worst, oldest)
            late += oldest * 1000 > options.within_ms
            first += 1 + max(len(w.acknowledged) for w in writers.values())
            done = number + 1
            say(number, options, began, acknowledged, n, oldest, late)
            if late >= options.give_up:
                break
    except Wrong as wrong:
        print("slow_sync_kill: cycle %d, seed %d: %s" % (number, options.seed, wrong))
        return 1
    finally:
        if server and server.process.poll() is None:
            server.kill()
        shutil.rmtree(folder, ignore_errors=True)
    print("slow_sync_kill: %d cycles, syncs slowed by %d ms: %d writes acknowledged, %d lost, the oldest acknowledged "
          "%.1f ms before the kill; %d cycles lost what was older than %g ms" % (
              done, options.sync_ms, written, lost, worst * 1000, late, options.within_ms))
    return 1 if late else 0


sys.exit(main())
