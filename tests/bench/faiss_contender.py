#!/usr/bin/python3
"""One faiss index in a process of its own, started by against_faiss.py; not for use by hand.

build: trains and fills an index from a file of vectors and writes it. serve: holds nothing but that index and the
queries, and answers each line of standard input (a JSON object with faiss's search parameters) by a line with time
and memory, the ids of the neighbours in a file. Two modes, because memory that training took must not count for
searching.
"""
import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np

try:
    import faiss
except ModuleNotFoundError:
    sys.exit("faiss is missing: apt-get install -y python3-faiss")

from measure import read_vectors


def resident_bytes():
    """VmRSS of this process."""
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS:"))


def as_floats(path, metric):
    """All rows as faiss takes them: f32, of length 1 where the metric is the cosine."""
    rows = np.array(read_vectors(path), np.float32, order="C")
    if metric == "cosine":
        rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.float32(1e-30))
    return rows


def build(options):
    start = time.monotonic()
    rows = as_floats(options.vectors, options.metric)
    kind = faiss.METRIC_L2 if options.metric == "l2" else faiss.METRIC_INNER_PRODUCT
    index = faiss.index_factory(rows.shape[1], options.factory, kind)
    if options.factory.startswith("HNSW"):
        faiss.ParameterSpace().set_index_parameter(index, "efConstruction", options.ef_construction)
    index.train(rows[::-(-len(rows) // options.train_rows)])
    index.add(rows)
    faiss.write_index(index, options.index)
    print(json.dumps({"seconds": time.monotonic() - start}))


def serve(options):
    queries = as_floats(options.vectors, options.metric)
    empty = resident_bytes()
    index = faiss.read_index(options.index)
    print(json.dumps({"resident_without_index_bytes": empty, "faiss": faiss.__version__,
                      "compiled": faiss.get_compile_options().strip()}), flush=True)
    for line in sys.stdin:
        wanted = json.loads(line)
        faiss.ParameterSpace().set_index_parameters(index, wanted["parameters"])
        _, ids = index.search(queries, wanted["k"])
        np.save(wanted["ids"], ids)
        passes, wall, cpu = 0, time.monotonic(), time.process_time()
        while passes == 0 or time.monotonic() - wall < wanted["seconds"]:
            index.search(queries, wanted["k"])
            passes += 1
        wall, cpu = time.monotonic() - wall, time.process_time() - cpu
        n = passes * len(queries)
        print(json.dumps({"qps": n / wall, "cpu_us_per_query": 1e6 * cpu / n, "resident_bytes": resident_bytes()}),
              flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=["build", "serve"])
    parser.add_argument("index", help="the index's file: written by build, read by serve")
    parser.add_argument("vectors", type=Path, help="rows to index, or queries")
    parser.add_argument("metric", choices=["l2", "cosine", "ip"])
    parser.add_argument("--factory", help="what build makes, as faiss.index_factory takes it")
    parser.add_argument("--ef-construction", type=int, default=200)
    parser.add_argument("--train-rows", type=int, default=1 << 18)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    faiss.omp_set_num_threads(options.threads)
    (build if options.mode == "build" else serve)(options)


if __name__ == "__main__":
    main()
