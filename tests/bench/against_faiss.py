#!/usr/bin/python3
"""Quire from disk beside Debian's faiss and hnswlib in RAM: same data, same machine, same run, two threads each; Markdown
tables.

Every contender is a process that holds its own index only; faiss reads a file that another process trained. All
settings take their turn in every round. RAM is what the kernel counts for the whole process (VmRSS) after searching:
for faiss and hnswlib with the Python interpreter and its libraries, whose share before the index was read stands beside
it. Both get all queries of a pass in one call, which is what they are fastest at. Building counts reading the vectors, training
and writing the index.

A contender is FACTORY:SETTING;SETTING, a faiss factory string and search parameters, as in --faiss
'HNSW32:efSearch=64;efSearch=128'; one that begins with hnswlib is that library with so many links, 'hnswlib16:ef=64;ef=128'.
Without --faiss: HNSW of 32 links over f32, IVF-PQ of half a byte per dimension
(about what Quire's 4-bit codes take), and IVF-PQ of a quarter with 80 candidates refined by 8-bit vectors, in RAM
too.
"""
import importlib.util
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from measure import Failed, Quire, arguments, finish_arguments, machine, medians, read_truth, read_vectors, real_list, \
    recall_at_k, run, temp_folder, write_out

CHILD = Path(__file__).with_name("faiss_contender.py")
RECALLS = [0.8, 0.9, 0.93, 0.95, 0.96, 0.97, 0.98, 0.99]
BUDGETS = ["all", "15%"]
K = 10
MARK = 0.95


def default_contenders(rows, dim, quick):
    """HNSW and IVF-PQ as faiss's own guidelines have them: 4 sqrt(rows) lists, a power of two."""
    lists = 2 ** round(math.log2(4 * math.sqrt(rows)))
    widths, probes = ([32, 128], [8, 32]) if quick else ([16, 32, 48, 64, 96, 128, 256, 512], [4, 8, 16, 32, 64, 128])
    return [("HNSW32", [f"efSearch={w}" for w in widths]),
            (f"IVF{lists},PQ{dim // 2}np", [f"nprobe={p}" for p in probes]),
            (f"IVF{lists},PQ{dim // 4}np,Refine(SQ8)", [f"nprobe={p},k_factor_rf=8" for p in probes])]


def contender(text):
    factory, colon, settings = text.partition(":")
    if not colon or not settings:
        raise Failed(f"--faiss {text}: FACTORY:SETTING;SETTING is needed")
    return factory, settings.split(";")


def parse():
    parser = arguments(__doc__, "the Markdown file (standard output)")
    parser.add_argument("--faiss", action="append", default=[], metavar="FACTORY:SETTINGS",
                        help="a contender instead of the usual three; may be repeated")
    parser.add_argument("--ef-construction", type=int, default=200, help="of HNSW while building (200)")
    parser.add_argument("--train-rows", type=int, help="rows that faiss trains with at most (262144; quick: 16384)")
    parser.add_argument("--recalls", type=real_list, help=f"Quire's recall targets ({','.join(map(str, RECALLS))})")
    parser.add_argument("--budgets", type=lambda text: text.split(","),
                        help=f"Quire's memory budgets ({','.join(BUDGETS)})".replace("%", "%%"))
    parser.add_argument("--threads", type=int, default=2,
                        help="threads of faiss, lanes of Quire, threads of builds (2)")
    options = finish_arguments(parser.parse_args())
    options.recalls = options.recalls or ([0.9, 0.95] if options.quick else RECALLS)
    options.budgets = options.budgets or BUDGETS
    options.train_rows = options.train_rows or (16384 if options.quick else 1 << 18)
    if importlib.util.find_spec("faiss") is None:
        raise Failed("faiss is missing: apt-get install -y python3-faiss")
    return options


class LibraryContender:
    """A child process with one index; measure() is one setting's turn."""

    def __init__(self, options, folder, n, factory, settings):
        self.name = factory if factory.startswith("hnswlib") else f"faiss {factory}"
        self.settings, self.truth = settings, read_truth(options.truth)
        self.ids, index = folder / f"ids{n}.npy", folder / f"faiss{n}"
        common = ["--threads", str(options.threads), "--factory", factory]
        # idle OpenMP threads must not spin beside those of BLAS: on two cores training took ten times as long; with two
        # threads of BLAS as well, its many small products wait for each other
        quiet = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE"}
        print(f"{options.name}: building {factory}", file=sys.stderr)
        done = subprocess.run([sys.executable, CHILD, "build", index, options.base, options.metric,
                               "--ef-construction", str(options.ef_construction), "--train-rows",
                               str(options.train_rows), *common],
                              env={**quiet, "OPENBLAS_NUM_THREADS": "1"}, stdout=subprocess.PIPE, text=True,
                              check=False)
        if done.returncode != 0:
            raise Failed(f"{self.name} was not built")
        self.built = json.loads(done.stdout)["seconds"]
        self.disk = index.stat().st_size
        self.child = subprocess.Popen([sys.executable, CHILD, "serve", index, options.queries, options.metric, *common],
                                      env=quiet, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.about = self.answer()

    def answer(self):
        line = self.child.stdout.readline()
        if not line:
            raise Failed(f"{self.name}: its process ended")
        return json.loads(line)

    def measure(self, setting, seconds):
        order = {"parameters": setting, "k": K, "seconds": seconds, "ids": str(self.ids)}
        self.child.stdin.write(json.dumps(order) + "\n")
        self.child.stdin.flush()
        report = self.answer()
        return {"recall": recall_at_k(np.load(self.ids), self.truth, K), "reads": 0.0, **report,
                "resident_without_index_bytes": self.about["resident_without_index_bytes"]}

    def close(self):
        self.child.stdin.close()
        self.child.wait()
        self.child.stdout.close()


class QuireContender:
    """`quire search` within one budget; a process per turn."""

    def __init__(self, quire, options, index, built, budget):
        self.quire, self.options, self.index = quire, options, index
        self.name = "Quire" if budget == "all" else f"Quire, --memory {budget}"
        self.settings = [f"--recall {recall}" for recall in options.recalls]
        self.built, self.disk = built["seconds"], built["index_bytes"]
        self.memory = () if budget == "all" else ("--memory", budget)

    def measure(self, setting, seconds):
        report = self.quire.search(self.options, self.index, seconds, "--lanes", self.options.threads, "--inflight", 32,
                                   *self.memory, *setting.split())
        return {"recall": report["recall_at_k"], "reads": report["reads_per_query"], "qps": report["qps"],
                "cpu_us_per_query": report["cpu_us_per_query"], "resident_bytes": report["resident_bytes"],
                "resident_without_index_bytes": None}

    def close(self):
        pass


def contenders_of(quire, options, folder, found, refused):
    """Appends to `found` as they come to be, so that those there are can be closed whatever happens."""
    rows, dim = read_vectors(options.base).shape
    index, built = quire.build(options, folder, options.threads)
    for budget in options.budgets:
        one = QuireContender(quire, options, index, built, budget)
        try:
            one.measure(one.settings[0], 0)
            found.append(one)
        except Failed as failed:
            refused.append(f"{one.name} is left out: {str(failed).replace(str(index), 'the index')}.")
            print(refused[-1], file=sys.stderr)
    if not found:
        raise Failed("none of --budgets can be searched")
    chosen = [contender(text) for text in options.faiss] or default_contenders(rows, dim, options.quick)
    for n, (factory, settings) in enumerate(chosen):
        found.append(LibraryContender(options, folder, n, factory, settings))
    return built


def measure(options, contenders):
    """{contender: [(setting, medians)]} after all rounds."""
    rounds = {}
    for n in range(options.rounds):
        for one in contenders:
            for setting in one.settings:
                report = one.measure(setting, options.seconds)
                rounds.setdefault((one, setting), []).append(report)
                print(f"{options.name}, round {n + 1}, {one.name}, {setting}: recall {report['recall']:.4f},"
                      f" {report['qps']:.0f} qps", file=sys.stderr)
    return {one: [(setting, medians(rounds[one, setting])) for setting in one.settings] for one in contenders}


COLUMNS = ["index", "setting", "recall@10", "queries/s", "cpu us per query", "RAM MB", "of which without an index",
           "reads", "build s", "on disk MB"]
HEADER = f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}"


def row(one, setting, m):
    empty = m["resident_without_index_bytes"]
    before = "" if empty is None else f"{empty / 1e6:.0f}"
    return (f"| {one.name} | `{setting}` | {m['recall']:.4f} | {m['qps']:,.0f} | {m['cpu_us_per_query']:,.0f} |"
            f" {m['resident_bytes'] / 1e6:,.1f} | {before} | {m['reads']:.2f} | {one.built:,.1f} |"
            f" {one.disk / 1e6:,.0f} |")


def tables(options, built, about, results, refused):
    raw = built["raw_bytes"]
    libraries = [one for one in results if isinstance(one, LibraryContender)]
    yield f"## {options.name}: {built['rows']:,} x {built['dim']} {built['type']}, {built['metric']}," \
          f" raw {raw / 1e6:.1f} MB\n"
    yield (f"{about['processors']} processors ({about['processor']}), Linux {about['kernel']}, {about['quire']};"
           f" {options.threads} threads or lanes; medians of {options.rounds} rounds"
           + (", a quick run: too short for its times to be relied on" if options.quick else "") + ".")
    if libraries:
        yield f"\n{', '.join(dict.fromkeys(one.about['about'] for one in libraries))}; efConstruction {options.ef_construction}," \
              f" training with at most {options.train_rows:,} rows and BLAS on one thread, everything else on all."
    yield f"\nThe first setting of each ladder whose recall reaches {MARK} (a setting that was run, nothing is" \
          " interpolated):\n"
    yield HEADER
    missed = list(refused)
    for one, ladder in results.items():
        reached = [(setting, m) for setting, m in ladder if m["recall"] >= MARK]
        if reached:
            yield row(one, *reached[0])
        else:
            missed.append(f"{one.name} reaches {max(m['recall'] for _, m in ladder):.4f} at most.")
    yield from (["", *missed] if missed else [])
    yield "\nAll settings:\n"
    yield HEADER
    for one, ladder in results.items():
        for setting, m in ladder:
            yield row(one, setting, m)


def main():
    options = parse()
    quire = Quire(options.build_dir)
    contenders, refused = [], []
    with temp_folder() as folder:
        try:
            built = contenders_of(quire, options, folder, contenders, refused)
            results = measure(options, contenders)
        finally:
            for one in contenders:
                one.close()
    text = "\n".join(tables(options, built, machine(quire), results, refused)) + "\n"
    write_out(options, text)
    return 0


if __name__ == "__main__":
    run(main)
