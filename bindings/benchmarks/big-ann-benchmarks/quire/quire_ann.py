"""Quire for big-ann-benchmarks: goes to neurips23/ood/quire/ (or another track's folder) of that harness, with config.yaml
and Dockerfile. The index is built out of the data set's file, a part of which is in memory at a time."""
import os
import shutil

import numpy as np
import quire

from benchmark.algorithms.base import BaseANN
from benchmark.dataset_io import xbin_mmap
from benchmark.datasets import DATASETS


class Quire(BaseANN):
    def __init__(self, metric, build):
        names = {"euclidean": "l2", "angular": "cosine", "ip": "ip"}
        if metric not in names:
            raise ValueError("metric %s: quire has %s" % (metric, " and ".join(sorted(names))))
        self._metric, self._build = names[metric], dict(build)
        self._index, self._arguments = None, {}
        self.name = "quire"

    def track(self):
        return "ood"

    def _path(self, dataset):
        options = "_".join("%s-%s" % item for item in sorted(self._build.items())) or "default"
        return os.path.join("data", "indices", self.track(), "quire", DATASETS[dataset]().short_name(), options)

    def fit(self, dataset):
        path = self._path(dataset)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        shutil.rmtree(path, ignore_errors=True)  # of --rebuild
        data = DATASETS[dataset]()
        # mapped: names of the harness's files do not end as quire.read_vectors wants them ("base.1B.fbin.crop_nb_10000000")
        rows = xbin_mmap(data.get_dataset_fn(), dtype=data.dtype, maxn=data.nb)
        self._index = quire.Index.build(path, rows, metric=self._metric, **self._build)

    def load_index(self, dataset):
        path = self._path(dataset)
        if not os.path.isdir(path):
            return False
        self._index = quire.Index(path)
        return True

    def index_files_to_store(self, dataset):
        raise NotImplementedError("the index is a folder: copy %s" % self._path(dataset))

    def set_query_arguments(self, query_args):
        self._arguments = dict(query_args)
        self.name = "quire(%s, %s)" % (self._build, self._arguments)

    def query(self, X, k):
        arguments = {"lanes": os.cpu_count() or 1, **self._arguments}
        self.res = self._index.search_batch(np.ascontiguousarray(X), k, **arguments).ids

    def range_query(self, X, radius):
        raise NotImplementedError("searches within a radius are not in this adapter")

    def done(self):
        if self._index is not None:
            self._index.close()
