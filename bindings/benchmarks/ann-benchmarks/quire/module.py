"""Quire for ann-benchmarks: goes to ann_benchmarks/algorithms/quire/ of that harness, with config.yml and Dockerfile."""
import os
import shutil
import tempfile

import numpy
import quire

from ..base.module import BaseANN


class Quire(BaseANN):
    """An index on the disk. build: keyword arguments of quire.Index.build, such as {"slot": "f32"}. The folder of the
    index lies in QUIRE_BENCH_DIR, or where temporary files do; memory that its cache takes counts as the harness counts."""

    def __init__(self, metric, build):
        names = {"euclidean": "l2", "angular": "cosine"}
        if metric not in names:
            raise ValueError("metric %s: quire has %s" % (metric, " and ".join(sorted(names))))
        self._metric, self._build = names[metric], dict(build)
        self._folder, self._index, self._effort = None, None, None
        self.name = "quire(%s)" % self._build

    def fit(self, X):
        self._folder = tempfile.mkdtemp(prefix="quire-ann.", dir=os.environ.get("QUIRE_BENCH_DIR"))
        rows = numpy.ascontiguousarray(X, dtype=numpy.float32)
        self._index = quire.Index.build(os.path.join(self._folder, "index"), rows, metric=self._metric, **self._build)

    def set_query_arguments(self, effort):
        self._effort = int(effort)
        self.name = "quire(%s, effort %d)" % (self._build, self._effort)

    def query(self, q, n):
        q = numpy.ascontiguousarray(q, dtype=numpy.float32)
        return self._index.search(q, n, effort=self._effort).ids.tolist()

    def batch_query(self, X, n):
        rows = numpy.ascontiguousarray(X, dtype=numpy.float32)
        hits = self._index.search_batch(rows, n, lanes=os.cpu_count() or 1, effort=self._effort)
        self.res = hits.ids

    def done(self):
        if self._index is not None:
            self._index.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
