"""rate.py BUILD_DIR [ENGINE] [ROWS] [DIM] [REQUESTS] - VSIM, VADD, SC.GET and FT.SEARCH per second of quire.so in an engine, and of quire-server, in
turns on the same data; and PING of the engine beside full load. A measurement, no test: nothing is asserted.

Loads with redis-benchmark (16 connections, ROUNDS rounds each, alternately). Prints each round, and the ratios of the
medians. docs/cluster.md quotes them.
"""
import csv
import io
import os
import pathlib
import random
import statistics
import struct
import subprocess
import sys

os.environ["QUIRE_BUILD"] = os.path.abspath(sys.argv[1])
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from nodes import BUILD, Folder, Node  # noqa: E402
from resp_client import Stream, request  # noqa: E402
from server_process import Server  # noqa: E402

engine = sys.argv[2] if len(sys.argv) > 2 else "redis-server"
rows = int(sys.argv[3]) if len(sys.argv) > 3 else 20000
dim = int(sys.argv[4]) if len(sys.argv) > 4 else 64
REQUESTS = int(sys.argv[5]) if len(sys.argv) > 5 else 20000
ROUNDS = 5


def fill(port):
    rng, stream = random.Random(1), Stream(port, 600)
    for first in range(0, rows, 500):
        stream.ask([request("VADD", "v", "VALUES", dim, *("%.4f" % rng.gauss(0, 1) for _ in range(dim)), "e%012d" % i)
                    for i in range(first, min(first + 500, rows))])
    stream.call("VSEAL", "v")
    stream.call("SC.CREATE", "c", "DIM", 4)
    stream.call("SC.CAT.SET", "c", "q", "SIM", "0.9")
    for i in range(1000):
        stream.call("SC.PUT", "c", "CAT", "q", "HASH", "h%012d" % i, "VEC",
                    struct.pack("<4f", *(rng.gauss(0, 1) for _ in range(4))), "VALUE", "answer")
    stream.call("FT.CREATE", "i", "PREFIX", 1, "d:", "SCHEMA", "g", "TAG", "v", "VECTOR", "HNSW", 6, "TYPE", "FLOAT32",
                "DIM", dim, "DISTANCE_METRIC", "COSINE")
    for first in range(0, rows, 500):
        stream.ask([request("HSET", "d:%012d" % i, "g", "g%d" % (i % 1000), "v",
                            struct.pack("<%df" % dim, *(rng.gauss(0, 1) for _ in range(dim))))
                    for i in range(first, min(first + 500, rows))])
    stream.socket.close()


def cpu_us(pid):
    """Processor time that the process has used: a figure that other load on the machine changes little."""
    with open("/proc/%d/stat" % pid) as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) * 1e6 / os.sysconf("SC_CLK_TCK")


def bench(port, clients, *words, requests=REQUESTS, r=None):
    """Requests per second, p50 and p99 in ms."""
    done = subprocess.run(["redis-benchmark", "-p", str(port), "-c", str(clients), "-n", str(requests), "-r",
                           str(r or rows), "--csv", *words], capture_output=True, text=True, errors="replace", check=True)
    line = list(csv.DictReader(io.StringIO(done.stdout)))[-1]
    return float(line["rps"]), float(line["p50_latency_ms"]), float(line["p99_latency_ms"])


vector = ["VALUES", str(dim), *("%.3f" % random.Random(2).gauss(0, 1) for _ in range(dim))]
# floats without a byte of 0, which a word of redis-benchmark cannot hold
blob = b"".join(struct.pack("<f", x) for x in (random.Random(3).gauss(0, 1) for _ in range(100 * dim))
                if 0 not in struct.pack("<f", x))[:4 * dim]
LOADS = [("VSIM, 16 clients", 16, REQUESTS, ["VSIM", "v", "ELE", "e__rand_int__", "COUNT", "10"]),
         ("VSIM, 1 client", 1, REQUESTS // 5, ["VSIM", "v", "ELE", "e__rand_int__", "COUNT", "10"]),
         ("VADD, 16 clients", 16, REQUESTS, ["VADD", "w", *vector, "e__rand_int__"]),
         ("SC.GET by hash, 16 clients", 16, REQUESTS, ["SC.GET", "c", "CAT", "q", "HASH", "h__rand_int__", "NOLEASE"]),
         ("FT.SEARCH of a tag, 16 clients", 16, REQUESTS, ["FT.SEARCH", "i", "@g:{g77}", "RETURN", "1", "g"]),
         ("FT.SEARCH KNN 10, 16 clients", 16, REQUESTS,
          ["FT.SEARCH", "i", "*=>[KNN 10 @v $q]", "PARAMS", "2", "q", blob, "RETURN", "1", "g", "DIALECT", "2"]),
         ("HSET, indexed, 16 clients", 16, REQUESTS, ["HSET", "d:__rand_int__", "g", "g5", "v", blob]),
         ("PING, 16 clients", 16, REQUESTS, ["PING"])]

with Folder() as folder:
    here = pathlib.Path(folder.path) / "server"
    here.mkdir()
    server = Server(pathlib.Path(BUILD), here)
    node = Node(folder, "node", engine, save="", appendonly="no")
    try:
        for port in (server.port, node.port):
            fill(port)
        for name, clients, requests, words in LOADS:
            seen = {"quire-server": [], engine: []}
            for _ in range(ROUNDS):
                for who, port, pid in (("quire-server", server.port, server.process.pid),
                                       (engine, node.port, node.process.pid)):
                    before = cpu_us(pid)
                    result = bench(port, clients, *words, requests=requests, r=1000 if "SC" in name else None)
                    seen[who].append((*result, (cpu_us(pid) - before) / requests))
            medians = {who: [statistics.median(column) for column in zip(*rounds)] for who, rounds in seen.items()}
            for who, (rps, p50, p99, cpu) in medians.items():
                print("%-28s %-14s %9.0f /s   p50 %.3f ms   p99 %.3f ms   %.0f us of processor each   (%s)"
                      % (name, who, rps, p50, p99, cpu, " ".join("%.0f" % r[0] for r in seen[who])), flush=True)
            a, b = medians[engine], medians["quire-server"]
            print("%-28s ratio %.2f   p50 %+.0f us   processor %+.0f us"
                  % (name, a[0] / b[0], (a[1] - b[1]) * 1000, a[3] - b[3]), flush=True)
        load = subprocess.Popen(["redis-benchmark", "-p", str(node.port), "-c", "16", "-n", "1000000", "-r", str(rows),
                                 "-q", *LOADS[0][3]], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        print("PING beside 16 clients of VSIM: p50 %.3f ms, p99 %.3f ms" % bench(node.port, 1, "PING", requests=2000)[1:])
        load.kill()
        load.wait()
        node.client().save()
        node.kill()
        node.start()
        print("a start: " + [line for line in node.log().splitlines() if "indexes of documents" in line][-1].split("<quire> ")[1])
    finally:
        server.kill()
