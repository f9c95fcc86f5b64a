"""beside.py [--rounds N] [--lanes N] [--only WORD] BUILD... - how long one request holds a lane.

A process sends PING after PING to a server of each build (a folder with quire-server), while another connection sends one
request: a transaction of very many commands, or a command with very many keys, fields or bytes. Prints the time of the
request and of the longest PING beside it, in milliseconds: medians over the rounds, the best in brackets. The builds take
turns, each with a server of its own for every round. --only: requests with this word in their names.
"""
import argparse
import multiprocessing
import random
import statistics
import struct
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from resp_client import Error, Stream, request
from server_process import Server

KEYS = 100000
SETTINGS = ["--client-query-buffer-limit", "1gb", "--maxmemory-clients", "4gb", "--transaction-commands-limit", "1000000"]


def vadds(count, dim):
    draw = random.Random(1)
    return [request("VADD", "set%d" % dim, "FP32", struct.pack("<%df" % dim, *[draw.uniform(-1, 1) for _ in range(dim)]),
                    "e%d" % i) for i in range(count)]


def pairs(prefix, count):
    return [word for i in range(count) for word in ("%s%d" % (prefix, i), "value%d" % i)]


def names(prefix):
    return ["%s%d" % (prefix, i) for i in range(KEYS)]


# name -> (what is queued before EXEC, or nothing; the request)
EXEC = request("EXEC")
CASES = {
    "EXEC of 16,384 VADD, 4 dimensions": lambda: (vadds(16384, 4), EXEC),
    "EXEC of 16,384 VADD, 768 dimensions": lambda: (vadds(16384, 768), EXEC),
    "EXEC of 65,536 VADD, 4 dimensions": lambda: (vadds(65536, 4), EXEC),
    "EXEC of 65,536 SET": lambda: ([request("SET", "k%d" % i, "v") for i in range(65536)], EXEC),
    "MSET, new keys": lambda: ([], request("MSET", *pairs("m", KEYS))),
    "MSET, old keys": lambda: ([], request("MSET", *pairs("m", KEYS))),
    "MGET": lambda: ([], request("MGET", *names("m"))),
    "EXISTS": lambda: ([], request("EXISTS", *names("m"))),
    "DEL": lambda: ([], request("DEL", *names("m"))),
    "HSET, new fields": lambda: ([], request("HSET", "h", *pairs("f", KEYS))),
    "HMGET": lambda: ([], request("HMGET", "h", *names("f"))),
    "HDEL": lambda: ([], request("HDEL", "h", *names("f"))),
    "SET of 16 MiB": lambda: ([], request("SET", "large", b"x" * (16 << 20))),
    "MSET of 64 values of a MiB": lambda: ([], request("MSET", *[w for i in range(64)
                                                                for w in ("b%d" % i, b"x" * (1 << 20))])),
}


def ping(port, stop, answer):
    stream, longest = Stream(port), 0
    while not stop.is_set():
        began = time.perf_counter()
        stream.call("PING")
        longest = max(longest, time.perf_counter() - began)
    answer.put(longest)


def measure(port, queued, last):
    """Milliseconds of the request, and of the longest PING."""
    stream, stop, answer = Stream(port), multiprocessing.Event(), multiprocessing.Queue()
    for begin in range(0, len(queued), 1000):
        part = ([request("MULTI")] if begin == 0 else []) + queued[begin:begin + 1000]
        refused = [reply for reply in stream.ask(part) if isinstance(reply, Error)]
        if refused:
            sys.exit("not queued: %s" % refused[0])
    process = multiprocessing.Process(target=ping, args=(port, stop, answer))
    process.start()
    time.sleep(0.2)
    began = time.perf_counter()
    (reply,) = stream.ask([last])
    took = time.perf_counter() - began
    if isinstance(reply, Error):
        sys.exit("%r" % reply)
    time.sleep(0.05)
    stop.set()
    longest = answer.get()
    process.join()
    return took * 1e3, longest * 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--lanes", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("builds", nargs="+", type=Path, metavar="BUILD")
    args = parser.parse_args()
    figures = {}
    for _ in range(args.rounds):
        for build in args.builds:
            with tempfile.TemporaryDirectory() as folder:
                server = Server(build, Path(folder), "--lanes", str(args.lanes), *SETTINGS)
                try:
                    for name, make in CASES.items():
                        if args.only in name:
                            figures.setdefault((name, build), []).append(measure(server.port, *make()))
                finally:
                    server.kill()
    print("| request | build | takes, ms | longest `PING`, ms |\n|---|---|---|---|")
    for (name, build), values in figures.items():
        took, longest = zip(*values)
        print("| %s | %s | %.0f (%.0f) | %.0f (%.0f) |" % (name, build, statistics.median(took), min(took),
                                                          statistics.median(longest), min(longest)))


if __name__ == "__main__":
    main()
