#!/usr/bin/env python3
"""python.py - the Python bindings beside the C library on one index: recall and queries per second of a batch, and what a
search costs more when it is one by one.

usage: tests/bench/python.py [--build build/release] [--base FILE.fbin --queries FILE.query.fbin] [--rounds 15]
                             [--n 1000] [--k 10] [--lanes 1] [--pure]

Both search through one open index in one process, in turn: a batch of C (library_rates.c), a batch of Python, 50 single
searches of C, the same of Python, and so on. (Two processes differ by up to a third in what a search takes, by where
their memory happens to lie.) Without --base 20,000 rows of 256 dimensions are made up. Prints JSON; "missed" names the
bars that were not held, by the clock: recall as in C, .95 of its queries/s in a batch, 10 us more a search one by one.
--pure: with the package as it is where no C compiler was at hand.

Exit status: 0 if all bars were held, 1 if one was missed.

Example
  /usr/bin/python3 tests/bench/python.py --base ../shared/data/text-20k.fbin --queries ../shared/data/text-20k.query.fbin
"""
import argparse
import contextlib
import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

import numpy as np

BATCH_OF_C, SINGLE_US_MORE = .95, 10  # the bars
PIECE = 50  # queries that are searched one by one before the other's turn
HERE = os.path.dirname(os.path.abspath(__file__))


def recall_of(ids, true):
    return float(np.mean([len(set(a) & set(b)) / len(b) for a, b in zip(ids.tolist(), true.tolist())]))


def ratio(pairs):
    return round(float(np.median(pairs[:, 0] / pairs[:, 1])), 3)


def more(pairs):
    """us a search, over all pieces."""
    each = (pairs[:, 1] - pairs[:, 0]) / PIECE / 1000
    return {"median": round(float(np.median(each)), 1), "mean": round(float(each.mean()), 1)}


def missed(figures):
    """The bars that these figures do not hold, in words."""
    of_c, more_us = figures["batch_queries_s_of_c"]["time"], figures["single_us_more_in_python"]["time"]["median"]
    out = []
    if figures["recall_python"] != figures["recall_c"]:
        out.append("recall %s, in C %s" % (figures["recall_python"], figures["recall_c"]))
    if of_c < BATCH_OF_C:
        out.append("batch: %s of C's queries/s, the bar is %s" % (of_c, BATCH_OF_C))
    if more_us > SINGLE_US_MORE:
        out.append("one by one: %s us more than in C, the bar is %s" % (more_us, SINGLE_US_MORE))
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(HERE, "..", "..", "build", "release"))
    parser.add_argument("--base")
    parser.add_argument("--queries")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--n", type=int, default=1000)
    parser.add_argument("--k", type=int, default=10)
    parser.add_argument("--lanes", type=int, default=1)
    parser.add_argument("--pure", action="store_true", help="the package as it is where no compiler was at hand")
    a = parser.parse_args()
    if a.n < 1 or a.n % PIECE:
        parser.error("--n %d: a multiple of %d, which are searched one by one before the other's turn" % (a.n, PIECE))
    build = os.path.abspath(a.build)
    os.environ["QUIRE_LIBRARY"] = os.path.join(build, "libquire.so.1")
    with tempfile.TemporaryDirectory() as folder:
        sys.path.insert(0, installed(folder, a.pure))
        import quire
        if a.base:
            rows, queries = quire.read_vectors(a.base), quire.read_vectors(a.queries)
        else:
            random = np.random.default_rng(1)
            centres = random.standard_normal((300, 256))
            made = (centres[random.integers(0, 300, 20500)] + 0.5 * random.standard_normal((20500, 256)))
            rows, queries = made[:20000].astype(np.float32), made[20000:].astype(np.float32)
        queries = np.ascontiguousarray(np.resize(queries, (a.n, queries.shape[1])), np.float32)
        index = quire.Index.build(os.path.join(folder, "index"), rows)
        base = np.asarray(rows, np.float32)
        d = (base ** 2).sum(1)[None, :] - 2 * queries @ base.T
        true = np.argpartition(d, a.k, axis=1)[:, :a.k]
        del d
        c = InC(folder, build, index, queries, a.k, a.lanes)

        def python(what, some=slice(None)):
            begun, cpu = time.perf_counter_ns(), time.process_time_ns()
            if what == "batch":
                index.search_batch(queries, a.k, lanes=a.lanes)
            else:
                for query in queries[some]:
                    index.search(query, a.k)
            return time.perf_counter_ns() - begun, time.process_time_ns() - cpu

        rounds = {"batch": [], "single": []}
        for what in rounds:
            c.ask(what), python(what)  # warm
        for i in range(a.rounds):
            rounds["batch"].append((c.ask("batch"), python("batch")) if i % 2 == 0 else
                                   (python("batch"), c.ask("batch"))[::-1])
            for j in range(0, a.n, PIECE):  # taking turns often: the disk's pace changes within seconds
                some = slice(j, j + PIECE)
                rounds["single"].append((c.ask("single", some), python("single", some)) if (i + j // PIECE) % 2 == 0 else
                                        (python("single", some), c.ask("single", some))[::-1])
        own = []  # ns of a round of single searches outside of the library
        for i in range(a.rounds):
            with c.clock():
                took = python("single")
            own.append(took[0] - c.ns)
        ids = index.search_batch(queries, a.k, lanes=a.lanes).ids
        # rounds (or pieces) x (c, python) x (by the clock, of the processor)
        batch, single = (np.array(rounds[what], float) for what in ("batch", "single"))
        figures = {
            "compiled": quire.compiled, "rows": len(rows), "dim": int(queries.shape[1]), "queries": a.n, "k": a.k,
            "lanes": a.lanes, "rounds": a.rounds,
            "recall_c": round(recall_of(c.hits["id"], true), 4), "recall_python": round(recall_of(ids, true), 4),
            "batch_queries_s_of_c": {"time": ratio(batch[:, :, 0]), "processor": ratio(batch[:, :, 1])},
            "single_us_c": {"time": round(float(np.median(single[:, 0, 0])) / PIECE / 1000, 1),
                            "processor": round(float(np.median(single[:, 0, 1])) / PIECE / 1000, 1)},
            "binding_us": {"between_searches": round(float(np.median(own)) / a.n / 1000, 1),
                           "again_and_again": round(binding_us(c, index, queries[0], a.k, 0), 1),
                           "after_1_mib_of_others": round(binding_us(c, index, queries[0], a.k, 1), 1),
                           "after_4_mib_of_others": round(binding_us(c, index, queries[0], a.k, 4), 1),
                           "and_with_its_arrays": round(binding_us(c, index, queries[0], a.k, 4, True), 1)},
            "single_us_more_in_python": {"time": more(single[:, :, 0]), "processor": more(single[:, :, 1])}}
        index.close()
    figures["missed"] = missed(figures)
    print(json.dumps(figures, indent=1))
    return 1 if figures["missed"] else 0


def installed(folder, pure):
    """A copy of the package with what a wheel has compiled."""
    copy = os.path.join(folder, "python")
    shutil.copytree(os.path.join(HERE, "..", "..", "bindings", "python"), copy,
                    ignore=shutil.ignore_patterns("build", "*.egg-info", "tests", "__pycache__"))
    if not pure:
        subprocess.run([sys.executable, "-W", "ignore", "setup.py", "-q", "build_ext", "--inplace"], cwd=copy, check=True,
                       stdout=sys.stderr)
    return copy


@contextlib.contextmanager
def in_place_of_search(function):
    """A function of C in the place of quire_search, within a `with` statement."""
    from quire import _abi, _search

    def put(address):
        if _search.compiled:
            _search._fast.bind(ctypes.cast(address, ctypes.c_void_p).value, ctypes.sizeof(_abi.quire_hit),
                               ctypes.sizeof(_abi.quire_error))
        else:
            _search._quire_search = address

    real = _search.lib.quire_search
    function.restype, function.argtypes = real.restype, real.argtypes
    put(function)
    try:
        yield
    finally:
        put(real)


class InC:
    """The searches of library_rates.c through the index that Python has open."""

    def __init__(self, folder, build, index, queries, k, lanes):
        from quire._search import HIT
        path = os.path.join(folder, "library_rates.so")
        subprocess.run(["gcc", "-O2", "-std=c11", "-D_DEFAULT_SOURCE", "-fPIC", "-shared", "-I",
                        os.path.join(HERE, "..", "..", "include"), os.path.join(HERE, "library_rates.c"), "-o", path, "-L",
                        build, "-lquire", "-Wl,-rpath," + build], check=True)
        self.library = ctypes.CDLL(path)
        self.timed_ns = ctypes.c_ulonglong.in_dll(self.library, "timed_ns")
        self.index, self.queries, self.lanes = index, queries, lanes
        self.hits, self.counts = np.zeros((len(queries), k), HIT), np.zeros(len(queries), np.uint32)

    def ask(self, what, some=slice(None)):
        """The queries of a slice; ns by the clock and of the processor."""
        from quire import _abi
        err, pointer = _abi.quire_error(), ctypes.c_void_p
        queries, hits, counts = self.queries[some], self.hits[some], self.counts[some]
        given = [pointer(self.index._owner.pointer), pointer(queries.ctypes.data), *map(ctypes.c_size_t, queries.shape),
                 ctypes.c_size_t(hits.shape[1])]
        given += [ctypes.c_uint(self.lanes)] if what == "batch" else []
        call = self.library.rates_batch if what == "batch" else self.library.rates_single
        begun, cpu = time.perf_counter_ns(), time.process_time_ns()
        rc = call(*given, pointer(hits.ctypes.data), pointer(counts.ctypes.data), ctypes.byref(err))
        took = time.perf_counter_ns() - begun, time.process_time_ns() - cpu
        if rc:
            sys.exit(err.message.decode())
        return took

    @contextlib.contextmanager
    def clock(self):
        """ns: what the library took in quire_search of Python's searches meanwhile."""
        self.timed_ns.value = 0
        with in_place_of_search(self.library.timed_search):
            yield
        self.ns = self.timed_ns.value


def binding_us(c, index, query, k, mib, look=False):
    """What one search costs in Python, with a function in the library's place that finds k at once: the median of 1,000.
    mib: so much other memory is read before each, as a search of the library reads its codes; the interpreter's own
    instructions and data have left the caches then. look: the arrays of ids and distances are made, too."""
    others, took = np.ones(mib << 20, np.uint8), []
    with in_place_of_search(c.library.search_at_once):
        for _ in range(1000):
            others.sum()
            begun = time.perf_counter_ns()
            if look:
                ids, distances = index.search(query, k)
            else:
                index.search(query, k)
            took.append(time.perf_counter_ns() - begun)
    return float(np.median(took)) / 1000


if __name__ == "__main__":
    sys.exit(main())
