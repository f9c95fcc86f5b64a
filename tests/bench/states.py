"""states.py BUILD BASE QUERIES [--metric cosine|l2|ip] [--rows N] [--ask N] - one set while its rows are in memory, half sealed, all sealed.

Starts the server of a build, adds the rows of BASE (.fbin or .u8bin), and asks the queries one at a time for 10, by
default (RECALL 0.95): recall@10 against brute force on the file's own numbers, p50 and p99 in milliseconds, and the
server's processor time of a search, which other programs on the machine hardly move. A hit is right that is as near as
the tenth. Then half of the rows are added after a VSEAL instead of before, and then VSEAL again. Prints Markdown.
"""
import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from resp_client import Error, Stream, request

K = 10
BATCH = 256


def load(path):
    kind = np.float32 if path.endswith(".fbin") else np.uint8
    rows, dim = np.fromfile(path, dtype=np.uint32, count=2)
    return np.fromfile(path, dtype=kind, offset=8).reshape(rows, dim)


def distances(base, query, metric):
    if metric == "l2":
        return ((base - query) ** 2).sum(1)
    return -(base @ query)


class Server:
    def __init__(self, build, folder):
        port = folder / "port"
        self.process = subprocess.Popen(
            [str(Path(build) / "quire-server"), "--port", "0", "--port-file", str(port), "--dir", str(folder / "data"),
             "--appendfsync", "everysec"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not (port.exists() and port.read_text().strip()):
            if self.process.poll() is not None:
                sys.exit("the server does not start")
            time.sleep(0.01)
        self.stream = Stream(int(port.read_text()))
        self.stream.socket.settimeout(None)  # a VSEAL takes as long as it takes

    def ask(self, *words):
        (answer,) = self.stream.ask([request(*words)])
        if isinstance(answer, Error):
            sys.exit("%s: %s" % (words[0], answer))
        return answer

    def add(self, key, base, first, end):
        for at in range(first, end, BATCH):
            batch = [request("VADD", key, "FP32", base[i].tobytes(), i) for i in range(at, min(at + BATCH, end))]
            for answer in self.stream.ask(batch):
                if isinstance(answer, Error):
                    sys.exit("VADD: %s" % answer)

    def processor_ms(self):
        fields = Path("/proc/%d/stat" % self.process.pid).read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")


def measure(server, key, base, queries, metric):
    found, times = 0, []
    for query in queries[:20]:
        server.ask("VSIM", key, "FP32", query.tobytes(), "COUNT", K)
    begun = server.processor_ms()
    answers = []
    for query in queries:
        begin = time.perf_counter()
        answers.append(server.ask("VSIM", key, "FP32", query.tobytes(), "COUNT", K))
        times.append((time.perf_counter() - begin) * 1000)
    worked = (server.processor_ms() - begun) / len(queries)
    for query, hits in zip(queries, answers):
        all_distances = distances(base, query, metric)
        tenth = np.partition(all_distances, K - 1)[K - 1]
        found += sum(all_distances[int(hit)] <= tenth + 1e-6 * abs(tenth) for hit in hits)
    times.sort()
    return found / K / len(queries), statistics.median(times), times[-len(times) // 100], worked


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("base")
    parser.add_argument("queries")
    parser.add_argument("--metric", default="cosine", choices=["cosine", "l2", "ip"])
    parser.add_argument("--rows", type=int, default=0)
    parser.add_argument("--ask", type=int, default=500)
    options = parser.parse_args()
    base, queries = load(options.base).astype(np.float32), load(options.queries).astype(np.float32)[:options.ask]
    base = base[:options.rows] if options.rows else base
    if options.metric == "cosine":
        base /= np.linalg.norm(base, axis=1, keepdims=True) + 1e-30
    print("| state | recall@10 | p50 | p99 | processor |")
    print("|---|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as temporary:
        server = Server(options.build, Path(temporary))

        def show(state, key):
            print("| %s | %.3f | %.2f | %.2f | %.2f |" % (state, *measure(server, key, base, queries, options.metric)),
                  flush=True)

        try:
            for key in ("whole", "half"):
                server.ask("VCREATE", key, "DIM", base.shape[1], "METRIC", options.metric.upper())
            server.add("whole", base, 0, len(base))
            show("in memory", "whole")
            server.ask("VSEAL", "whole")
            show("all sealed", "whole")
            server.add("half", base, 0, len(base) // 2)
            server.ask("VSEAL", "half")
            server.add("half", base, len(base) // 2, len(base))
            show("half sealed", "half")
        finally:
            server.process.terminate()
            server.process.wait()


main()
