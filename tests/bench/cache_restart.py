#!/usr/bin/env python3
"""cache_restart.py - how long after its start a server gives a right answer out of a large semantic cache: after
SHUTDOWN, and after kill -9 with a tail of puts in the log. Lines of JSON; the bar is 2 s at 1,000,000 entries.

Vectors are windows of one run of random numbers: any two are nearly orthogonal. The cache is filled through pipelines,
checkpoints are written as in operation (--checkpoint-log). The first right answer is one by hash, with its value, asked
for again and again from the start of the process on; near_seconds: the first by nearness. Such vectors are the hardest
for a graph, which may not find each: so by nearness another entry is drawn each time, and near_asked says how many were.
Caches of the operating system are warm.
"""
import argparse
import json
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from resp_client import Error, Stream, request

BATCH = 500


class Server:
    def __init__(self, options, folder):
        self.port_file, self.begin = folder / "port", time.monotonic()
        self.port_file.unlink(missing_ok=True)
        self.log_path = folder / "log"
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(
                [str(options.build_dir / "quire-server"), "--port", "0", "--port-file", str(self.port_file), "--dir",
                 str(folder / "data"), "--appendfsync", "everysec", "--checkpoint-log", options.checkpoint_log],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        while not (self.port_file.exists() and self.port_file.stat().st_size):
            if self.process.poll() is not None:
                sys.exit("the server does not start: " + self.log_path.read_text()[-1000:])
            time.sleep(0.002)
        self.accepts = time.monotonic() - self.begin
        self.stream = Stream(int(self.port_file.read_text()))

    def recovered(self):
        return next((line.split(": ", 1)[1] for line in self.log_path.read_text().splitlines()
                     if "data folder" in line), "")

    def shutdown(self):
        self.stream.socket.sendall(request("SHUTDOWN"))
        self.process.wait()

    def kill(self):
        self.process.kill()
        self.process.wait()


class Vectors:
    def __init__(self, entries, dim):
        generator = random.Random(1)
        self.dim = dim
        self.bytes = b"".join(struct.pack("<f", generator.gauss(0, 1)) for _ in range(entries + dim))

    def at(self, i):
        return self.bytes[4 * i:4 * (i + self.dim)]


def hash_of(i):
    return "%032x" % ((i + 1) * 0x9e3779b97f4a7c15f39cc0605cedc835 % (1 << 128))


def value_of(i):
    return b"answer %d " % i + b"." * (200 + i % 400)


def put_all(stream, vectors, first, end):
    for at in range(first, end, BATCH):
        replies = stream.ask([request("SC.PUT", "c", "CAT", "k", "HASH", hash_of(i), "VEC", vectors.at(i), "VALUE", value_of(i))
                              for i in range(at, min(at + BATCH, end))])
        if any(isinstance(r, Error) for r in replies):
            sys.exit("SC.PUT: %s" % next(r for r in replies if isinstance(r, Error)))


def entries_of(stream):
    reply = stream.ask([request("SC.INFO", "c")])[0]
    return dict(zip(reply[::2], reply[1::2]))[b"entries"]


def answer_seconds(server, draw, words):
    """From the start of the process to the first right answer; how many were asked for."""
    for n in range(1, 3000):
        i = draw()
        reply = server.stream.ask([request("SC.GET", "c", "CAT", "k", *words(i), "NOLEASE")])[0]
        if not isinstance(reply, Error) and dict(zip(reply[::2], reply[1::2])).get(b"value") == value_of(i):
            return round(time.monotonic() - server.begin, 3), n
        time.sleep(0.005)
    sys.exit("no right answer: %r" % (reply,))


def measure(options, folder):
    vectors, generator = Vectors(options.entries + options.tail, options.dim), random.Random(options.seed)
    server = Server(options, folder)
    made = server.stream.ask([
        request("SC.CREATE", "c", "DIM", options.dim, "MEMORY", options.memory, "DISK", 64 << 30),
        request("SC.CAT.SET", "c", "k", "SIM", "0.9", "TTL", 30 * 86400000)])
    if any(isinstance(r, Error) for r in made):
        sys.exit("%r" % made)
    begin = time.monotonic()
    put_all(server.stream, vectors, 0, options.entries)
    print(json.dumps({"case": "fill", "entries": entries_of(server.stream), "dim": options.dim,
                      "seconds": round(time.monotonic() - begin, 1)}), flush=True)
    for case in ["after SHUTDOWN"] * options.rounds + ["after kill -9"] * options.rounds:
        if case == "after SHUTDOWN":
            server.shutdown()
        else:
            put_all(server.stream, vectors, options.entries, options.entries + options.tail)
            time.sleep(2)  # what is answered must have been written
            server.kill()
        server = Server(options, folder)
        wanted = generator.randrange(options.entries)
        exact, _ = answer_seconds(server, lambda: wanted, lambda i: ("HASH", hash_of(i)))
        near, asked = answer_seconds(server, lambda: generator.randrange(options.entries),
                                     lambda i: ("VEC", vectors.at(i)))
        print(json.dumps({"case": case, "entries": entries_of(server.stream), "accepts_seconds": round(server.accepts, 3),
                          "correct_seconds": exact, "near_seconds": near, "near_asked": asked,
                          "log": server.recovered()}), flush=True)
    server.shutdown()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build-dir", type=Path, default=ROOT / "build/release", help="where quire-server is")
    parser.add_argument("--entries", type=int, default=1000000)
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--tail", type=int, default=20000, help="puts before each kill, all of the same questions")
    parser.add_argument("--rounds", type=int, default=3, help="restarts of each kind")
    parser.add_argument("--memory", type=int, default=4 << 30, help="bytes of the cache")
    parser.add_argument("--checkpoint-log", default="256mb", help="the server's setting")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="quire-bench."))
    try:
        measure(options, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
