#!/usr/bin/env python3
"""python.py - the Python bindings beside the C library on one index: recall and queries per second of a batch, and what a
search costs more when it is one by one.

usage: tests/bench/python.py [--build build/release] [--base FILE.fbin --queries FILE.query.fbin] [--rounds 15]
                             [--n 1000] [--k 10] [--lanes 1]

Both have the index open in processes of their own, which take turns within one run: batch of C, batch of Python, single
of C, single of Python, and so on. Without --base 20,000 rows of 256 dimensions are made up. Prints JSON; "missed" names
the bars that were not held, by the clock: recall as in C, .95 of its queries/s in a batch, 10 us more a search one by one.

Exit status: 0 if all bars were held, 1 if one was missed.

Example
  /usr/bin/python3 tests/bench/python.py --base ../shared/data/text-20k.fbin --queries ../shared/data/text-20k.query.fbin
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

import numpy as np

BATCH_OF_C, SINGLE_US_MORE = .95, 10  # the bars
HERE = os.path.dirname(os.path.abspath(__file__))


def recall_of(ids, true):
    return float(np.mean([len(set(a) & set(b)) / len(b) for a, b in zip(ids.tolist(), true.tolist())]))


def ratio(pairs):
    return round(float(np.median(pairs[:, 0] / pairs[:, 1])), 3)


def more(pairs, n):
    """us a search: the median of the rounds, and between the fastest ones."""
    return {"median": round(float(np.median(pairs[:, 1] - pairs[:, 0])) / n / 1000, 1),
            "of_fastest_rounds": round(float(pairs[:, 1].min() - pairs[:, 0].min()) / n / 1000, 1)}


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
    a = parser.parse_args()
    build = os.path.abspath(a.build)
    os.environ["QUIRE_LIBRARY"] = os.path.join(build, "libquire.so.1")
    sys.path.insert(0, os.path.join(HERE, "..", "..", "bindings", "python"))
    import quire

    with tempfile.TemporaryDirectory() as folder:
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
        queries.tofile(os.path.join(folder, "queries"))
        program = os.path.join(folder, "library_rates")
        subprocess.run(["gcc", "-O2", "-std=c11", "-D_DEFAULT_SOURCE", "-I", os.path.join(HERE, "..", "..", "include"),
                        os.path.join(HERE, "library_rates.c"), "-o", program, "-L", build, "-lquire",
                        "-Wl,-rpath," + build], check=True)
        c = subprocess.Popen([program, os.path.join(folder, "index"), os.path.join(folder, "queries"), str(a.n), str(a.k),
                              str(a.lanes)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

        def ask(what):
            c.stdin.write(what + "\n")
            c.stdin.flush()
            return tuple(int(n) for n in c.stdout.readline().split())

        def python(what):
            begun, cpu = time.perf_counter_ns(), time.process_time_ns()
            if what == "batch":
                index.search_batch(queries, a.k, lanes=a.lanes)
            else:
                for query in queries:
                    index.search(query, a.k)
            return time.perf_counter_ns() - begun, time.process_time_ns() - cpu

        rounds = {"batch": [], "single": []}
        for what in rounds:
            ask(what), python(what)  # warm
        for i in range(a.rounds):
            for what in rounds:
                pair = (ask(what), python(what)) if i % 2 == 0 else (python(what), ask(what))[::-1]
                rounds[what].append(pair)
        ask("ids " + os.path.join(folder, "ids"))
        c_ids = np.fromfile(os.path.join(folder, "ids"), np.uint64).reshape(a.n, a.k).astype(np.int64)
        c.stdin.close()
        c.wait()
        ids = index.search_batch(queries, a.k, lanes=a.lanes).ids
        # rounds x (c, python) x (by the clock, of the processor)
        batch, single = (np.array(rounds[what], float) for what in ("batch", "single"))
        figures = {
            "rows": len(rows), "dim": int(queries.shape[1]), "queries": a.n, "k": a.k, "lanes": a.lanes, "rounds": a.rounds,
            "recall_c": round(recall_of(c_ids, true), 4), "recall_python": round(recall_of(ids, true), 4),
            "batch_queries_s_of_c": {"time": ratio(batch[:, :, 0]), "processor": ratio(batch[:, :, 1])},
            "single_us_c": {"time": round(float(np.median(single[:, 0, 0])) / a.n / 1000, 1),
                            "processor": round(float(np.median(single[:, 0, 1])) / a.n / 1000, 1)},
            "binding_us": {"again_and_again": round(binding_us(index, queries[0], a.k, 0), 1),
                           "after_1_mib_of_others": round(binding_us(index, queries[0], a.k, 1), 1),
                           "after_4_mib_of_others": round(binding_us(index, queries[0], a.k, 4), 1)},
            "single_us_more_in_python": {"time": more(single[:, :, 0], a.n), "processor": more(single[:, :, 1], a.n)}}
        index.close()
    figures["missed"] = missed(figures)
    print(json.dumps(figures, indent=1))
    return 1 if figures["missed"] else 0


def binding_us(index, query, k, mib):
    """What one search costs in Python, with a function in the library's place that finds k at once: the median of 1,000.
    mib: so much other memory is read before each, as a search of the library reads its codes; the interpreter's own
    instructions and data have left the caches then."""
    from quire import index as module
    library, others = module._search, np.ones(mib << 20, np.uint8)

    def found(*arguments):
        arguments[4]._obj.value = k
        return 0

    module._search = found
    took = []
    try:
        for _ in range(1000):
            others.sum()
            begun = time.perf_counter_ns()
            index.search(query, k)
            took.append(time.perf_counter_ns() - begun)
        return float(np.median(took)) / 1000
    finally:
        module._search = library


if __name__ == "__main__":
    sys.exit(main())
