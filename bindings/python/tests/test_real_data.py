"""Recall on the real sets of QUIRE_DATA, beside their ground truth; made-up ones are in test_index.py."""
import os

import numpy as np
import pytest

import quire
from conftest import recall

DATA = os.environ.get("QUIRE_DATA", "")


@pytest.mark.parametrize("name, ending", [("text-20k", ".fbin"), ("sift-50k", ".u8bin")])
def test_recall(folder, name, ending):
    base = os.path.join(DATA, name)
    if not os.path.exists(base + ending):
        pytest.skip("QUIRE_DATA has no %s" % name)
    rows, queries = quire.read_vectors(base + ending), quire.read_vectors(base + ".query" + ending)
    with open(base + ".gt.bin", "rb") as f:
        n, k = np.frombuffer(f.read(8), "<u4")
        true = np.frombuffer(f.read(int(n) * int(k) * 4), "<u4").reshape(n, k)
    with quire.Index.build(os.path.join(folder, "i"), rows, threads=2) as index:
        assert index.info.rows == len(rows)
        found = index.search_batch(queries, 10, recall=0.95, lanes=2)
    assert recall(found.ids, true[:, :10].astype(np.int64)) >= 0.94
