"""Collection: beside a dictionary, through seals, merges and new openings; filters, tenants, snapshots, backups."""
import os
import threading

import numpy as np
import pytest

import quire
from conftest import clustered, recall, truth


def test_beside_a_dictionary(folder):
    random = np.random.default_rng(5)
    path, model = os.path.join(folder, "c"), {}
    c = quire.Collection(path, create=True, dim=8, metric="l2", slot="f32", durability="no")
    for step in range(1500):
        key = "k%d" % random.integers(0, 200)
        what = random.integers(0, 10)
        if what < 6:
            vector = random.standard_normal(8).astype(np.float32)
            attributes = {"n": int(random.integers(0, 5))} if random.integers(0, 2) else None
            was_new = c.put(key, vector, attributes)
            assert was_new == (key not in model)
            kept = attributes if attributes is not None else model.get(key, (None, None))[1]
            model[key] = (vector, kept)
        elif what < 8:
            assert c.remove(key) == (model.pop(key, None) is not None)
        elif what == 8 and key in model:
            c.set_attributes(key, {"n": 7, "s": "é"})
            model[key] = (model[key][0], {"n": 7, "s": "é"})
        elif what == 9 and step % 97 == 0:
            c.seal()
        if step % 500 == 499:
            c.close()
            c = quire.Collection(path)
            assert c.dim == 8 and c.info.metric == "l2"
    assert len(c) == len(model) and set(c) == set(model)
    for e in c.items():
        vector, attributes = model[e.key]
        assert np.array_equal(e.vector, vector) and e.attributes == attributes
    keys = sorted(model)
    rows = np.stack([model[k][0] for k in keys])
    query = random.standard_normal(8).astype(np.float32)
    found = c.search(query, len(keys), vectors=True, exact=True)
    order = truth(rows, query[None], "l2", len(keys))[0]
    assert found.keys == [keys[i] for i in order]
    for match in found:
        assert match.attributes == model[match.key][1] and np.array_equal(match.vector, model[match.key][0])
    sevens = {k for k in model if (model[k][1] or {}).get("n") == 7}
    assert c.count(filter=".n == 7") == len(sevens) and set(c.keys(filter=".n == 7")) == sevens
    assert c.remove_where(filter=".n == 7", dry_run=True) == len(sevens) and len(c) == len(model)
    assert c.remove_where(filter=".n == 7") == len(sevens) and set(c) == set(model) - sevens
    c.compact()
    assert set(c) == set(model) - sevens and c.info.segments == 1
    c.close()


def test_get_set_delete(folder):
    with quire.Collection(os.path.join(folder, "c"), create=True, dim=3, metric="cosine") as c:
        assert c.put("red", [1, 0, 0], {"warm": True}) and not c.put("red", [1, 0, 0])
        assert c["red"].attributes == {"warm": True} and c.get("blue") is None and "red" in c and "blue" not in c
        with pytest.raises(KeyError) as e:
            c["blue"]
        assert str(e.value) == "there is no element 'blue'" and isinstance(e.value, quire.NotFound)
        with pytest.raises(quire.NotFound):
            c.set_attributes("blue", {})
        c.set_attributes("red", None)
        assert c["red"].attributes is None
        big = {"text": "y" * 100000}
        c.put(b"\xff\x00", [0, 1, 0], big)
        found = c[b"\xff\x00"]
        assert found.attributes == big and found.key.encode("utf-8", "surrogateescape") == b"\xff\x00"
        assert c[found.key].attributes == big and found.key in list(c)
        del c[found.key]
        with pytest.raises(KeyError):
            del c[found.key]
        assert c.remove("nobody") is False
        c.put("blue", [0, 0, 1], '{"json":"text"}')
        assert c["blue"].attributes == {"json": "text"}
        for wrong in ("", "x" * 65536):
            with pytest.raises(quire.OutOfRange):
                c.put(wrong, [1, 0, 0])
        for wrong in (7, None, ["a"]):
            with pytest.raises(quire.WrongType):
                c.put(wrong, [1, 0, 0])
        with pytest.raises(quire.Error):
            c.put("bad", [1, 0, 0], "{not json")
        with pytest.raises(quire.NotFinite):
            c.put("bad", [1, 0, float("nan")])
        assert c.search([0.9, 0.2, 0], 1)[0].key == "red"
        assert c.search([0.9, 0.2, 0], 1, attributes=False)[0].attributes is None
        assert c.search([0.9, 0.2, 0], 5, stats=True).stats.plan == "memory"
        assert c.search([1, 0, 0]).distances.dtype == np.float32


@pytest.mark.parametrize("type, dtype", [("f16", np.float16), ("i8", np.int8), ("u8", np.uint8), ("bf16", None)])
def test_types(folder, type, dtype):
    random = np.random.default_rng(1)
    rows = random.integers(0, 100, (50, 8))
    with quire.Collection(os.path.join(folder, "c"), create=True, dim=8, type=type,
                          slot=type) as c:
        if dtype is not None:
            c.put_many([str(i) for i in range(50)], rows.astype(dtype))
        else:
            c.put_many([str(i) for i in range(50)], rows.astype(np.float32))
        assert all(np.array_equal(c[str(i)].vector, rows[i]) for i in range(50))
        c.put("list", rows[3].tolist())
        assert np.array_equal(c["list"].vector, rows[3])
        if type in ("i8", "u8"):
            with pytest.raises(quire.WrongType, match="round"):
                c.put("x", rows[0] + 0.5)
            with pytest.raises(quire.OutOfRange):
                c.put("x", rows[0] + 1000)
        else:
            with pytest.raises(quire.NotFinite):
                c.put("x", np.full(8, 1e39))
            with pytest.raises(quire.NotFinite):
                c.put("x", np.full(8, np.nan))
        assert c.info.type == type


def test_put_many(folder):
    rows, queries = clustered(800, 16, 3)
    keys = ["k%d" % i for i in range(800)]
    with quire.Collection(os.path.join(folder, "c"), create=True, dim=16, durability="always") as c:
        assert c.put_many(keys, rows, [{"i": i} for i in range(800)], threads=4) == 800
        assert c.put_many(keys[:10], np.asfortranarray(rows)[:10]) == 0 and len(c) == 800
        found = c.search_batch(queries, 10, threads=3, recall=0.99)
        ids = np.array([[int(k[1:]) for k in m.keys] for m in found])
        assert recall(ids, truth(rows, queries, "l2", 10)) > 0.95
        assert [m.keys for m in found] == [c.search(q, 10, recall=0.99).keys for q in queries]
        broken = rows[:20].copy()
        broken[13, 2] = np.nan
        with pytest.raises(quire.NotFinite) as e:
            c.put_many(["n%d" % i for i in range(20)], broken)
        assert e.value.row == 13 and "n12" in c and "n13" not in c
        for wrong in ((["a"], rows[:2]), (["a", "b"], rows[:2], [None])):
            with pytest.raises(quire.Invalid, match="one per vector"):
                c.put_many(*wrong)
        assert c.put_many([], rows[:0]) == 0
        with pytest.raises(quire.Invalid):
            c.search_batch(queries, threads=-1)
        with pytest.raises(quire.ParseError):
            c.search_batch(queries, threads=2, filter="((")


def test_tenants(folder):
    rows, _ = clustered(60, 8, 3)
    with quire.Collection(os.path.join(folder, "c"), create=True, dim=8, tenants=True,
                          columns={"year": "integer", "note": "string unindexed"}) as c:
        with pytest.raises(quire.Invalid):
            c.put("x", rows[0])
        for i in range(60):
            c.put("k%d" % i, rows[i], {"year": 2000 + i % 5}, tenants="acme" if i % 2 else ["b", "shared"])
        assert {m.key for m in c.search(rows[0], 60, tenants="acme")} == {"k%d" % i for i in range(60) if i % 2}
        assert len(c.search(rows[0], 60, tenants=[])) == 0 and len(c.search(rows[0], 60)) == 60
        assert len(c.search(rows[0], 60, tenants="acme", filter=".year == 2001")) == 6
        assert c.count(tenants="b") == 30 and c.count(tenants=["acme", "shared"]) == 60 and c.count(tenants=[]) == 0
        with pytest.raises(quire.PermissionDenied) as e:
            c.put("k1", rows[0], tenants="b")
        assert isinstance(e.value, PermissionError)
        assert c.grant("k1", "b") == 1 and c.grant("k1", ["b"]) == 0 and c.count(tenants="b") == 31
        assert c.revoke("k1", "b") == 1
        with pytest.raises(quire.NotFound):
            c.grant("nobody", "b")
        assert c.drop_tenant("acme") == 30 and c.count(tenants="acme") == 0
        assert set(c.keys(tenants="shared")) == {"k%d" % i for i in range(0, 60, 2)}
        assert c.remove_where(tenants="shared", filter=".year == 2000") == 6
        with pytest.raises(quire.Invalid):
            c.remove_where()
    with pytest.raises(quire.Invalid, match="columns"):
        quire.Collection(os.path.join(folder, "c"), columns={"year": "float"})


def test_snapshots_and_backups(folder):
    rows, _ = clustered(300, 8, 4)
    c = quire.Collection(os.path.join(folder, "c"), create=True, dim=8)
    c.put_many(["k%d" % i for i in range(200)], rows[:200])
    snapshot = c.snapshot()
    c.put_many(["k%d" % i for i in range(100, 300)], rows[100:300])
    c.remove("k0")
    assert len(snapshot) == 200 and len(c) == 299
    assert {m.key for m in snapshot.search(rows[0], 500)} == {"k%d" % i for i in range(200)}
    assert snapshot.search(rows[0], 1)[0].key == "k0" and c.search(rows[0], 1)[0].key != "k0"
    copy = os.path.join(folder, "copy")
    c.backup(copy)
    with pytest.raises(quire.Exists):
        c.backup(copy)
    c.put("later", rows[0])
    with quire.Collection(copy) as other:
        assert len(other) == 299 and "later" not in other
    c.checkpoint()
    c.close()  # with the snapshot open
    assert snapshot.closed
    with quire.Collection(os.path.join(folder, "c")) as again:
        assert len(again) == 300 and again.info.replayed_records == 0


def test_folders(folder, index_path):
    path = os.path.join(folder, "c")
    with pytest.raises(quire.NoFile, match="create"):
        quire.Collection(path)
    with pytest.raises(quire.Error):
        quire.Collection(path, create=True)  # of how many dimensions?
    with quire.Collection(path, create=True, dim=8):
        with pytest.raises(quire.Busy):
            quire.Collection(path)
    with pytest.raises(quire.WrongDimension):
        quire.Collection(path, dim=9)
    with pytest.raises(quire.WrongType):
        quire.Collection(path, dim=8, metric="cosine")
    with pytest.raises(quire.Invalid, match="durability"):
        quire.Collection(path, durability="maybe")
    with quire.Cache(os.path.join(folder, "k"), create=True, dim=8):
        pass
    with pytest.raises(quire.Error):
        quire.Collection(os.path.join(folder, "k"))


def test_iteration_is_of_one_moment(folder):
    with quire.Collection(os.path.join(folder, "c"), create=True, dim=4) as c:
        c.put_many(["k%d" % i for i in range(100)], np.ones((100, 4)))
        seen = []
        for key in c:
            seen.append(key)
            c.remove(key)
            c.put("new-" + key, [1, 2, 3, 4])
        assert sorted(seen) == sorted("k%d" % i for i in range(100)) and len(c) == 100
        elements = c.items()
        c.remove("new-k5")
        assert {e.key for e in elements} == {"new-k%d" % i for i in range(100) if i != 5}
        with pytest.raises(quire.ParseError):
            c.keys(filter=".a >")
        assert list(c.keys(filter=".nothing == 1")) == []


def test_log(folder):
    lines = []
    c = quire.Collection(os.path.join(folder, "c"), create=True, dim=4, log=lambda warning, line: lines.append(line))
    c.put_many(["k%d" % i for i in range(100)], np.random.default_rng(1).standard_normal((100, 4)))
    c.seal()
    c.close()
    assert lines and all(isinstance(line, str) for line in lines)


def test_search_of_a_snapshot_while_the_collection_closes(folder):
    """Closing waits for it; afterwards both refuse."""
    rows, queries = clustered(3000, 32, 4)
    for _ in range(5):
        c = quire.Collection(os.path.join(folder, "c"), create=True, dim=32, durability="no")
        if not len(c):
            c.put_many([str(i) for i in range(3000)], rows)
        snapshot, refused = c.snapshot(), []

        def work():
            try:
                while True:
                    snapshot.search(queries[0], 50, exact=True)
            except quire.Closed:
                refused.append(True)

        threads = [threading.Thread(target=work) for _ in range(3)]
        for t in threads:
            t.start()
        c.close()
        for t in threads:
            t.join()
        assert refused == [True] * 3
