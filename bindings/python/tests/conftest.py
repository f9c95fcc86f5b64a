"""What the tests share: made-up vectors that have neighbours, brute force in numpy, folders that are gone afterwards."""
import os
import shutil
import tempfile

import numpy as np
import pytest

import quire


@pytest.fixture
def folder():
    path = tempfile.mkdtemp(prefix="quire-python.")
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session")
def session_folder():
    path = tempfile.mkdtemp(prefix="quire-python.")
    yield path
    shutil.rmtree(path, ignore_errors=True)


def clustered(n, dim, seed, clusters=40, spread=0.25):
    """n rows around `clusters` centres, and 50 queries of the same kind."""
    random = np.random.default_rng(seed)
    centres = random.standard_normal((clusters, dim))
    of = random.integers(0, clusters, n + 50)
    rows = (centres[of] + spread * random.standard_normal((n + 50, dim))).astype(np.float32)
    return np.ascontiguousarray(rows[:n]), np.ascontiguousarray(rows[n:])


def distances(rows, queries, metric):
    """All distances, n queries x rows, in double."""
    rows, queries = rows.astype(np.float64), queries.astype(np.float64)
    if metric == "l2":
        return ((queries ** 2).sum(1)[:, None] - 2 * queries @ rows.T + (rows ** 2).sum(1)[None, :])
    if metric == "cosine":
        rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        queries = queries / np.linalg.norm(queries, axis=1, keepdims=True)
        return 1 - queries @ rows.T
    return -(queries @ rows.T)


def truth(rows, queries, metric, k, allowed=None):
    """Ids of the true neighbours: n x k."""
    d = distances(rows, queries, metric)
    if allowed is not None:
        d[:, ~allowed] = np.inf
    return np.argsort(d, axis=1, kind="stable")[:, :k]


def recall(ids, true):
    return np.mean([len(set(a.tolist()) & set(b.tolist())) / len(b) for a, b in zip(ids, true)])


@pytest.fixture(scope="session")
def data():
    return clustered(3000, 32, 1)


@pytest.fixture(scope="session")
def index_path(session_folder, data):
    """An index of data's rows, with keys, attributes and tenants."""
    rows, _ = data
    path = os.path.join(session_folder, "index")
    quire.Index.build(
        path, rows, keys=["row-%d" % i for i in range(len(rows))],
        attributes=[{"n": i % 10, "kind": "odd" if i % 2 else "even"} if i % 100 else None for i in range(len(rows))],
        tenants=["acme" if i % 3 == 0 else ("b", "c") if i % 3 == 1 else None for i in range(len(rows))]).close()
    return path


@pytest.fixture
def index(index_path):
    with quire.Index(index_path) as opened:
        yield opened
