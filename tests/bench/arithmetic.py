"""arithmetic.py [--rows N] [--dim D] [--queries N] BUILD... - VSIM under filters with arithmetic over two fields, on a sealed set.

Makes N vectors with attributes {"r": .., "c": ..}, two integers below 5,000 at random, and an index of them. Then a
server of each build (a folder with quire-server; the first one's quire makes the index) loads it with VLOAD, and each
filter is asked for 10 hits with another constant every time, so that no selection is found again. In milliseconds: the
first, p50 and p95 of the others, the server's processor time for each of them (which other programs on the machine hardly
move), and p50 of one and the same filter. The builds take turns. Prints Markdown.
"""
import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from resp_client import Error, Stream, request

FILTERS = [
    ("`.r + .c > X`, 0.01 %", lambda i: ".r + .c > %.4f" % (9928 + i / 1000)),
    ("`.r + .c > X`, 1 %", lambda i: ".r + .c > %.4f" % (9290 + i / 1000)),
    ("`.r + .c > X`, 50 %", lambda i: ".r + .c > %.4f" % (5000 + i / 1000)),
    ("`.r > .c + X`, 32 %", lambda i: ".r > .c + %.4f" % (1000 + i / 1000)),
    ("`.r * .c % 1000 == X`", lambda i: ".r * .c %% 1000 == %d" % i),
    ("`.r ** 2 + .c ** 2 < X`, 3 %", lambda i: ".r ** 2 + .c ** 2 < %d" % (1000000 + i)),
    ("`(.r - .c) / (.r + 1) > X and .c > 100`", lambda i: "(.r - .c) / (.r + 1) > %.6f and .c > 100" % (0.9 + i / 1e6)),
]


def make_index(build, folder, rows, dim):
    quire = str(Path(build).resolve() / "quire")
    subprocess.run([quire, "gen", "--rows", str(rows), "--dim", str(dim), "--clusters", "1000", "--intrinsic", "12",
                    "--seed", "1", "--out", "base"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    draw = random.Random(1)
    with open(folder / "attributes", "w") as out:
        for _ in range(rows):
            out.write('{"r":%d,"c":%d}\n' % (draw.randrange(5000), draw.randrange(5000)))
    subprocess.run([quire, "build", "--base", "base.fbin", "--out", "index", "--metric", "cosine", "--attrs",
                    "attributes", "--threads", "2"], cwd=folder, check=True, stdout=subprocess.DEVNULL)


class Server:
    def __init__(self, build, folder, number):
        port = 17300 + number
        self.process = subprocess.Popen([str(Path(build) / "quire-server"), "--port", str(port), "--dir",
                                         str(folder / ("data%d" % number)), "--import-dir", str(folder)],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(600):
            try:
                self.stream = Stream(port)
                break
            except OSError:
                time.sleep(0.05)
        (answer,) = self.stream.ask([request("VLOAD", "set", "index")])
        if isinstance(answer, Error):
            sys.exit("VLOAD: %r" % answer)

    def search_ms(self, vector, text):
        begin = time.perf_counter()
        (answer,) = self.stream.ask([request("VSIM", "set", "FP32", vector, "COUNT", 10, "FILTER", text)])
        if isinstance(answer, Error):
            sys.exit("VSIM: %r" % answer)
        return (time.perf_counter() - begin) * 1000

    def processor_ms(self):
        fields = Path("/proc/%d/stat" % self.process.pid).read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")

    def end(self):
        self.process.terminate()
        self.process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1000000)
    parser.add_argument("--dim", type=int, default=32)
    parser.add_argument("--queries", type=int, default=101)
    parser.add_argument("--folder", help="keep the index there, and use the one that is there already")
    parser.add_argument("builds", nargs="+")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(options.folder or temporary)
        if not (folder / "index").exists():
            make_index(options.builds[0], folder, options.rows, options.dim)
        queries = (folder / "base.query.fbin").read_bytes()[8:]
        size = 4 * options.dim
        vectors = [queries[i:i + size] for i in range(0, len(queries) - size + 1, size)]
        servers = [Server(build, folder, i) for i, build in enumerate(options.builds)]
        print("| filter | " + " | ".join("%s: first, p50, p95, processor, again" % b for b in options.builds) + " |")
        print("|---|" + "---:|" * len(servers))
        for name, text in FILTERS:
            times = [[] for _ in servers]
            work = [0.0] * len(servers)
            for i in range(options.queries):
                for j, server in enumerate(servers):
                    before = server.processor_ms()
                    times[j].append(server.search_ms(vectors[i % len(vectors)], text(i)))
                    work[j] += server.processor_ms() - before if i else 0
            cells = []
            for server, found, worked in zip(servers, times, work):
                again = [server.search_ms(vectors[i % len(vectors)], text(0)) for i in range(21)]
                cells.append("%.1f, %.2f, %.2f, %.2f, %.2f" % (
                    found[0], statistics.median(found[1:]), sorted(found[1:])[-len(found) // 20],
                    worked / len(found[1:]), statistics.median(again)))
            print("| %s | %s |" % (name, " | ".join(cells)), flush=True)
        for server in servers:
            server.end()


main()
