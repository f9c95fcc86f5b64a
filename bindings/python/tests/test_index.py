"""Index: what it finds beside brute force in numpy, for every type and layout; keys, attributes, files, damage."""
import os

import numpy as np
import pytest

import quire
from conftest import clustered, distances, recall, truth


@pytest.mark.parametrize("metric", ["l2", "cosine", "ip"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "uint8"])
def test_recall_beside_brute_force(folder, metric, dtype):
    rows, queries = clustered(2500, 24, 7)
    if dtype in ("int8", "uint8"):
        low = rows.min()
        scale = (lambda a: (a - low) / (rows.max() - low) * 200) if dtype == "uint8" else (lambda a: a * 25)
        limits = np.iinfo(dtype)
        rows, queries = (np.clip(np.round(scale(a)), limits.min, limits.max) for a in (rows, queries))
    rows = rows.astype(dtype)
    with quire.Index.build(os.path.join(folder, "i"), rows, metric=metric) as index:
        assert (len(index), index.dim, index.info.metric) == (2500, 24, metric)
        hits = index.search_batch(queries.astype(dtype), 10, recall=0.98)
        true = truth(rows, queries.astype(dtype).astype(np.float32), metric, 10)
        assert hits.ids.shape == (50, 10) and recall(hits.ids, true) > 0.93
        if dtype in ("int8", "uint8"):  # stored as they are
            exact = index.search_batch(queries.astype(dtype), 10, exact=True)
            assert recall(exact.ids, true) > 0.995
            expected = np.take_along_axis(distances(rows, queries.astype(dtype), metric), exact.ids, axis=1)
            assert np.allclose(exact.distances, expected, rtol=1e-4, atol=1e-4)


def test_bfloat16(folder):
    rows, queries = clustered(1500, 16, 3)
    bits = (rows.view(np.uint32) >> 16).astype(np.uint16)
    stored = (bits.astype(np.uint32) << 16).view(np.float32)
    with quire.Index.build(os.path.join(folder, "i"), bits, type="bf16", slot="bf16") as index:
        assert index.info.type == "bf16"
        assert np.array_equal(index.vector(index.lookup("7")), stored[7])
        assert recall(index.search_batch(queries, 10, exact=True).ids, truth(stored, queries, "l2", 10)) > 0.999
    with pytest.raises(quire.WrongType, match="uint16"):
        quire.Index.build(os.path.join(folder, "j"), bits)


def test_one_and_many_say_the_same(index, data):
    _, queries = data
    batch = index.search_batch(queries, 10, effort=80, lanes=2, inflight=8, stats=True)
    for i, query in enumerate(queries):
        one = index.search(query, 10, effort=80, stats=True)
        ids, near = one
        assert np.array_equal(ids, batch.ids[i]) and np.array_equal(near, batch.distances[i])
        assert one.stats.effort == batch.stats[i].effort == 80 and one.stats.complete and one.stats.plan == "walk"
        assert len(one) == 10 and one.ids.dtype == np.int64 and one.distances.dtype == np.float32
        assert np.all(np.diff(near) >= 0)


def test_queries_of_any_layout(index, data):
    rows, queries = data
    expected = index.search(queries[3], 5).ids
    wide = np.zeros((50, 64), np.float32)
    wide[:, ::2] = queries
    unaligned = np.frombuffer(b"\0" + queries[3].tobytes(), np.uint8)[1:].view(np.float32)
    assert not unaligned.flags.aligned
    readonly = queries[3].copy()
    readonly.flags.writeable = False
    for query in (queries[3].tolist(), queries[3].astype(np.float64), wide[3, ::2], queries[3].astype(">f4"),
                  np.asfortranarray(queries)[3], readonly, unaligned, tuple(queries[3])):
        assert np.array_equal(index.search(query, 5).ids, expected)
    for many in (wide[:, ::2], np.asfortranarray(queries), queries.astype(np.float64), queries.tolist()):
        assert np.array_equal(index.search_batch(many, 5).ids[3], expected)
    assert np.array_equal(index.search_batch(queries[::-1], 5).ids[-4], expected)


def test_answers_of_every_size(index, data):
    rows, queries = data
    for k in (1, 2, 7, 8, 9, 64, 65, 170, 171, 500, len(rows), len(rows) + 5):
        one, batch = index.search(queries[1], k, exact=True), index.search_batch(queries[1:2], k, exact=True)
        assert len(one) == min(k, len(rows)) and np.array_equal(one.array, batch.array[0])
        one.distances[0] = -1  # it is the caller's
        assert one.distances[0] == -1
    alternating = [index.search(queries[i % 2], 1 + i % 3).ids[0] for i in range(12)]
    assert alternating == [index.search(queries[i % 2], 1).ids[0] for i in range(12)]
    none = index.search(queries[1], 5, tenants=[])
    assert len(none) == 0 and len(none.ids) == 0
    tenants = []
    assert len(index.search(queries[1], 5, tenants=tenants)) == 0
    with pytest.raises(quire.WrongDimension):
        index.search(queries[1][:-1], 5)
    assert len(index.search(queries[1], 5)) == 5


def test_a_contiguous_query_is_not_copied(index, data):
    from quire import _arrays
    _, queries = data
    assert _arrays.query(queries[0]) is not None and np.shares_memory(_arrays.query(queries[0]), queries)
    assert _arrays.queries(queries) is queries
    rows = _arrays.rows(queries, "rows", "f32", 32, 2)
    assert rows is queries


def test_filters_and_tenants(index, data):
    rows, queries = data
    n = np.arange(len(rows))
    for filter, allowed in ((".n < 3", (n % 10 < 3) & (n % 100 != 0)),
                            ('.kind == "odd" and .n in [1, 7]', np.isin(n % 10, (1, 7)))):
        hits = index.search_batch(queries, 10, filter=filter, recall=0.99)
        assert allowed[hits.ids].all() and recall(hits.ids, truth(rows, queries, "l2", 10, allowed)) > 0.9
    for tenants, allowed in (("acme", n % 3 == 0), (["b"], n % 3 == 1), (("acme", "c"), n % 3 != 2)):
        hits = index.search_batch(queries, 10, tenants=tenants, recall=0.99)
        assert allowed[hits.ids].all() and recall(hits.ids, truth(rows, queries, "l2", 10, allowed)) > 0.9
    assert len(index.search(queries[0], 10, tenants=[])) == 0
    assert len(index.search(queries[0], 10, tenants="nobody")) == 0
    few = index.search_batch(queries[:2], 10, filter='key in ["row-5", "row-8"]')
    assert few.counts.tolist() == [2, 2] and set(few.ids[0, :2]) == {5, 8}
    assert (few.ids[:, 2:] == -1).all() and np.isinf(few.distances[:, 2:]).all()
    assert len(index.search(queries[0], 10, filter='key == "row-5"')) == 1
    with pytest.raises(quire.ParseError) as e:
        index.search(queries[0], filter=".n >")
    assert e.value.name == "QUIRE_EPARSE"


def test_keys_vectors_attributes(index, data):
    rows, queries = data
    hits = index.search(rows[11], 3)
    assert index.keys(hits)[0] == "row-11" and index.lookup("row-11") == hits.rows[0] and hits.ids[0] == 11
    assert index.lookup(b"row-11") == hits.rows[0]
    assert index.keys(index.search_batch(rows[11:13], 1)) == [["row-11"], ["row-12"]]
    assert np.abs(index.vector(hits.rows[0]) - rows[11]).max() < 0.1
    assert index.attributes(hits.rows[0]) == {"n": 1, "kind": "odd"}
    assert index.attributes(index.lookup("row-200")) is None
    with pytest.raises(quire.NotFound):
        index.lookup("row-nowhere")
    for wrong in (3000, 2**32, -1, "x"):
        with pytest.raises(quire.Error):
            index.attributes(wrong)
        with pytest.raises(quire.Error):
            index.key(wrong)


def test_long_attributes_and_odd_keys(folder):
    rows, _ = clustered(200, 8, 5)
    keys = [b"\xff\xfe%d" % i for i in range(200)]
    attributes = [{"text": "x" * 50000, "i": i} for i in range(200)]
    with quire.Index.build(os.path.join(folder, "i"), rows, keys=keys, attributes=attributes) as index:
        row = index.lookup(keys[17])
        assert index.attributes(row) == attributes[17]
        key = index.key(row)
        assert isinstance(key, str) and key.encode("utf-8", "surrogateescape") == keys[17] and index.lookup(key) == row


def test_estimates_limits_and_reads(index, data):
    _, queries = data
    exact = index.search(queries[0], 10)
    assert (exact.deviations == 0).all()
    estimated = index.search(queries[0], 10, estimate=True, stats=True)
    assert estimated.stats.estimated == (estimated.deviations > 0).sum()
    near = index.search(queries[0], 10, farthest=float(exact.distances[2]) * 1.0001)
    assert set(exact.ids[:2]) <= set(near.ids)
    cut = index.search(queries[0], 10, effort=200, reads_max=1, stats=True)
    assert not cut.stats.complete
    everything = index.search(queries[0], 10**6, exact=True)
    assert len(everything) == 3000 and len(set(everything.ids)) == 3000


def test_kinds_and_settings(folder):
    rows, queries = clustered(4000, 16, 9)
    with quire.Index.build(os.path.join(folder, "s"), rows, index="spann", seed=3, threads=2, list_rows=64) as index:
        assert index.info.index == "spann" and index.info.lists > 0
        assert recall(index.search_batch(queries, 10, recall=0.95).ids, truth(rows, queries, "l2", 10)) > 0.9
    with quire.Index(os.path.join(folder, "s"), memory_bytes=64 << 10, cache=False, engine="threads",
                     reads_max=8) as index:
        assert index.info.memory_bytes == 64 << 10 and index.info.cache_bytes == 0
        assert len(index.search(queries[0], 5)) == 5
    for wrong in ({"metric": "hamming"}, {"index": "tree"}, {"slot": "f8"}, {"columns": {"n": "integr"}},
                  {"columns": {"n": "integer whatever"}}):
        with pytest.raises(quire.Invalid) as e:
            quire.Index.build(os.path.join(folder, "w"), rows, **wrong)
        assert "one of" in str(e.value) or "unindexed" in str(e.value)
    with pytest.raises(quire.Invalid, match="engine"):
        quire.Index(os.path.join(folder, "s"), engine="steam")


def test_the_same_index_from_every_layout(folder):
    """Row-major in place, other layouts and files: each row in the same place, with the same stored vector."""
    rows, queries = clustered(950, 16, 2)  # so few are not calibrated, nine times
    wide = np.zeros((950, 32), np.float32)
    wide[:, ::2] = rows
    np.save(os.path.join(folder, "rows.npy"), rows)
    with open(os.path.join(folder, "rows.fbin"), "wb") as f:
        f.write(np.array(rows.shape, "<u4").tobytes() + rows.tobytes())

    class Sliced:  # like a data set of h5py
        shape, dtype = rows.shape, rows.dtype

        def __getitem__(self, part):
            return rows[part]

    made = None
    for i, vectors in enumerate((rows, wide[:, ::2], np.asfortranarray(rows), Sliced(), rows.astype(">f4").astype("<f4"),
                                 os.path.join(folder, "rows.npy"), os.path.join(folder, "rows.fbin"), rows.tolist(),
                                 rows[::-1][::-1])):
        path = os.path.join(folder, "i%d" % i)
        with quire.Index.build(path, vectors, seed=5) as index:
            hits = index.search_batch(queries, 950, exact=True)
            everything = [a.tobytes() for a in (hits.ids, hits.rows, hits.distances)] + [
                index.vector(row).tobytes() for row in range(0, 950, 7)]
        made = made or everything
        assert everything == made, i


def test_refused_vectors(folder):
    rows, _ = clustered(300, 8, 2)
    path = os.path.join(folder, "i")
    with pytest.raises(quire.WrongType, match="astype"):
        quire.Index.build(path, rows.astype(np.float64))
    with pytest.raises(quire.WrongType):
        quire.Index.build(path, rows, type="u8")
    with pytest.raises(quire.WrongType):
        quire.Index.build(path, np.array([["a", "b"]]))
    with pytest.raises(quire.WrongDimension):
        quire.Index.build(path, rows[0])
    broken = rows.copy()
    broken[123, 4] = np.nan
    for layout in (broken, np.asfortranarray(broken)):
        with pytest.raises(quire.NotFinite, match="123"):
            quire.Index.build(path, layout)
    with pytest.raises(quire.Error):
        quire.Index.build(path, np.empty((0, 8), np.float32))
    with pytest.raises(quire.Error):
        quire.Index.build(path, np.empty((8, 0), np.float32))
    for wrong in ({"keys": ["a"]}, {"attributes": [None]}, {"tenants": ["a"] * 299}, {"tenants": ["a b"] * 300},
                  {"attributes": [{"x": float("nan")}] * 300}, {"attributes": [{"x": object()}] * 300}):
        with pytest.raises(quire.Invalid):
            quire.Index.build(path, rows, **wrong)
    with pytest.raises(quire.WrongType):
        quire.Index.build(path, rows, keys=[1] * 300)
    with pytest.raises(quire.WrongType):
        quire.Index.build(path, rows, attributes=[7] * 300)

    class Lies:
        shape, dtype = rows.shape, rows.dtype

        def __getitem__(self, part):
            return rows[:1]

    with pytest.raises(quire.WrongDimension, match="shape"):
        quire.Index.build(path, Lies())

    class Fails:
        shape, dtype = rows.shape, rows.dtype

        def __getitem__(self, part):
            raise OSError("the tape is torn")

    with pytest.raises(OSError, match="the tape is torn"):
        quire.Index.build(path, Fails())
    assert os.listdir(folder) == []
    quire.Index.build(path, rows).close()
    with pytest.raises(FileExistsError) as e:
        quire.Index.build(path, rows)
    assert isinstance(e.value, quire.Exists) and path in str(e.value)


def test_files_that_are_wrong(folder):
    rows, _ = clustered(50, 8, 2)
    name = os.path.join(folder, "short.fbin")
    with open(name, "wb") as f:
        f.write(np.array(rows.shape, "<u4").tobytes() + rows.tobytes()[:-1])
    with pytest.raises(quire.Corrupt, match="50 rows of 8"):
        quire.read_vectors(name)
    open(os.path.join(folder, "x.fbin"), "wb").close()
    with pytest.raises(quire.Corrupt):
        quire.read_vectors(os.path.join(folder, "x.fbin"))
    with pytest.raises(quire.Invalid, match="npy"):
        quire.read_vectors("x.csv")
    with pytest.raises(FileNotFoundError):
        quire.read_vectors(os.path.join(folder, "nowhere.fbin"))
    with pytest.raises(quire.NoFile):
        quire.Index(os.path.join(folder, "nowhere"))
    with pytest.raises(quire.Invalid):
        quire.Index("a\0b")


def test_progress_and_stopping(folder):
    rows, _ = clustered(20000, 32, 4)
    told = []

    def stop(phase, done, total):
        told.append((phase, done, total))
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        quire.Index.build(os.path.join(folder, "i"), rows, progress=stop)
    assert len(told) == 1 and isinstance(told[0][0], str) and os.listdir(folder) == []
    told.clear()
    with quire.Index.build(os.path.join(folder, "i"), rows[:3000], progress=lambda *a: told.append(a)) as index:
        assert len(index) == 3000 and told and all(done <= total or total == 0 for _, done, total in told)


def test_verify(folder, index_path):
    report = quire.Index.verify(index_path)
    assert report.findings == 0 and report.rows == 3000 and report.sentences == ()
    rows, _ = clustered(500, 8, 2)
    path = os.path.join(folder, "i")
    quire.Index.build(path, rows).close()
    largest = max((os.path.join(path, f) for f in os.listdir(path)), key=os.path.getsize)
    with open(largest, "r+b") as f:
        f.seek(os.path.getsize(largest) // 2)
        byte = f.read(1)
        f.seek(-1, 1)
        f.write(bytes([byte[0] ^ 0x55]))
    try:
        report = quire.Index.verify(path)
        assert report.findings > 0 and len(report.sentences) == report.findings
    except quire.FormatError as e:
        assert path in str(e)
    with pytest.raises(quire.Error):
        quire.Index.verify(os.path.join(folder, "nowhere"))


def test_calibration(folder):
    rows, _ = clustered(1500, 16, 8)
    with quire.Index.build(os.path.join(folder, "i"), rows) as index:
        points = index.calibration()
        assert points and {"k", "effort", "recall", "reads", "distance"} == set(points[0])
        assert all(0 <= p["recall"] <= 1 for p in points)
