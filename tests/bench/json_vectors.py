#!/usr/bin/env python3
"""json_vectors.py - JSON documents with a vector each: resident memory, JSON.SET and JSON.GET per second, bytes that
MEMORY USAGE says, by what the numbers of the vector are.

    tests/bench/json_vectors.py --build-dir build/release [--build-dir OTHER] [--rows 50000] [--dim 256] [--index]

Numbers: floats as Python prints them (the double that a float is), as Rust, Go and Java print them (the fewest digits
that tell it from other floats), rounded to six decimals, doubles. With several --build-dir each is measured in turn.
"""
import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from resp_client import Stream, request
from server_process import Server

AT_ONCE, READS = 64, 5000
NUMBERS = {
    "floats": lambda v: v.astype("<f4").astype("<f8").tolist(),
    "short floats": lambda v: [float(str(x)) for x in v.astype("<f4")],
    "six decimals": lambda v: v.astype("<f8").round(6).tolist(),
    "doubles": lambda v: v.astype("<f8").tolist(),
}


def texts(options, rows):
    generator = np.random.default_rng(1)
    for i in range(rows):
        v = generator.normal(0, 1, options.dim)
        yield json.dumps({"title": "document %d" % i, "v": NUMBERS[options.numbers](v / np.linalg.norm(v))})


def in_groups(stream, requests):
    """Sends them, some at a time; the seconds, without those in which they were made."""
    seconds, group = 0, []
    for one in [*requests, None]:
        if one is not None:
            group.append(one)
        if len(group) == AT_ONCE or (one is None and group):
            begin, n = time.monotonic(), 0
            stream.socket.sendall(b"".join(group))
            while n < len(group):
                n += len(stream.feed(stream.socket.recv(1 << 16)))
            seconds, group = seconds + time.monotonic() - begin, []
    return seconds


def resident(stream):
    lines = stream.call("INFO", "memory").decode().splitlines()
    return int(dict(line.split(":", 1) for line in lines if ":" in line)["used_memory_rss"])


def measure(options, build_dir, folder):
    server = Server(build_dir, folder, "--appendfsync", "no")
    try:
        stream = Stream(server.port, 600)
        if options.index:
            stream.call("FT.CREATE", "i", "ON", "JSON", "PREFIX", 1, "doc:", "SCHEMA", "$.v", "AS", "v", "VECTOR", "HNSW", 6,
                        "TYPE", "FLOAT32", "DIM", options.dim, "DISTANCE_METRIC", "COSINE")
        before = resident(stream)
        sets = (request("JSON.SET", "doc:%d" % i, "$", text) for i, text in enumerate(texts(options, options.rows)))
        seconds = in_groups(stream, sets)
        each = (resident(stream) - before) / options.rows
        gets = in_groups(stream, [request("JSON.GET", "doc:%d" % (i % options.rows)) for i in range(READS)])
        parts = in_groups(stream, [request("JSON.GET", "doc:%d" % (i % options.rows), "$.title") for i in range(READS)])
        row = {"build_dir": str(build_dir), "rows": options.rows, "dim": options.dim, "numbers": options.numbers,
               "index": options.index, "resident_bytes_each": round(each),
               "memory_usage": stream.call("MEMORY", "USAGE", "doc:1"), "text_bytes": len(stream.call("JSON.GET", "doc:1")),
               "sets_per_second": round(options.rows / seconds), "gets_per_second": round(READS / gets),
               "gets_of_a_part_per_second": round(READS / parts)}
        server.stop()
        return row
    finally:
        if server.process.poll() is None:
            server.kill()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build-dir", type=Path, action="append", help="where the programs are")
    parser.add_argument("--rows", type=int, default=50000)
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--numbers", choices=NUMBERS, default="floats")
    parser.add_argument("--index", action="store_true", help="with an index of the vectors")
    options = parser.parse_args()
    for build_dir in options.build_dir or [ROOT / "build/release"]:
        folder = Path(tempfile.mkdtemp(prefix="quire-bench."))
        try:
            print(json.dumps(measure(options, build_dir, folder)), flush=True)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
