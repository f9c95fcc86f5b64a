#!/usr/bin/python3
"""One index of faiss or hnswlib in a process of its own, started by against_faiss.py; not for use by hand.

build: trains and fills an index from a file of vectors and writes it. serve: holds nothing but that index and the
queries, and answers each line of standard input (a JSON object with search parameters) by a line with time and memory,
the ids of the neighbours in a file. Two modes, because memory that training took must not count for searching. The
factory is faiss's, or hnswlib16 for hnswlib with M = 16. Each library is loaded only for its own index.
"""
import argparse
import importlib
import json
import sys
import time
from pathlib import Path

import numpy as np

from measure import read_vectors


def library(name):
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        sys.exit(f"{name} is missing: apt-get install -y python3-{name}")


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


class Faiss:
    def __init__(self, options):
        self.faiss = library("faiss")
        self.faiss.omp_set_num_threads(options.threads)

    def build(self, options, rows):
        kind = self.faiss.METRIC_L2 if options.metric == "l2" else self.faiss.METRIC_INNER_PRODUCT
        index = self.faiss.index_factory(rows.shape[1], options.factory, kind)
        if options.factory.startswith("HNSW"):
            self.faiss.ParameterSpace().set_index_parameter(index, "efConstruction", options.ef_construction)
        index.train(rows[::-(-len(rows) // options.train_rows)])
        index.add(rows)
        self.faiss.write_index(index, options.index)

    def load(self, options, _dim):
        self.index = self.faiss.read_index(options.index)
        return f"faiss {self.faiss.__version__} of Debian (compiled: {self.faiss.get_compile_options().strip()})"

    def set(self, parameters):
        self.faiss.ParameterSpace().set_index_parameters(self.index, parameters)

    def search(self, queries, k):
        return self.index.search(queries, k)[1]


class Hnswlib:
    def __init__(self, options):
        self.hnswlib, self.threads = library("hnswlib"), options.threads

    def new(self, options, dim):
        return self.hnswlib.Index(space="l2" if options.metric == "l2" else "ip", dim=dim)

    def build(self, options, rows):
        index = self.new(options, rows.shape[1])
        index.init_index(max_elements=len(rows), M=int(options.factory[len("hnswlib"):]),
                         ef_construction=options.ef_construction)
        index.add_items(rows, num_threads=self.threads)
        index.save_index(options.index)

    def load(self, options, dim):
        self.index = self.new(options, dim)
        self.index.load_index(options.index)
        return "hnswlib of Debian"

    def set(self, parameters):
        self.index.set_ef(int(parameters.removeprefix("ef=")))

    def search(self, queries, k):
        return self.index.knn_query(queries, k=k, num_threads=self.threads)[0]


def build(contender, options):
    start = time.monotonic()
    contender.build(options, as_floats(options.vectors, options.metric))
    print(json.dumps({"seconds": time.monotonic() - start}))


def serve(contender, options):
    queries = as_floats(options.vectors, options.metric)
    empty = resident_bytes()
    about = contender.load(options, queries.shape[1])
    print(json.dumps({"resident_without_index_bytes": empty, "about": about}), flush=True)
    for line in sys.stdin:
        wanted = json.loads(line)
        contender.set(wanted["parameters"])
        np.save(wanted["ids"], contender.search(queries, wanted["k"]).astype(np.int64))
        passes, wall, cpu = 0, time.monotonic(), time.process_time()
        while passes == 0 or time.monotonic() - wall < wanted["seconds"]:
            contender.search(queries, wanted["k"])
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
    parser.add_argument("--factory", required=True, help="what it is, as faiss.index_factory takes it, or hnswlib and M")
    parser.add_argument("--ef-construction", type=int, default=200)
    parser.add_argument("--train-rows", type=int, default=1 << 18)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    contender = (Hnswlib if options.factory.startswith("hnswlib") else Faiss)(options)
    (build if options.mode == "build" else serve)(contender, options)


if __name__ == "__main__":
    main()
