"""Nothing that Python code does wrong, or at the wrong moment, ends the interpreter: each is an exception, or works.

What might end it runs in a process of its own, whose exit status is looked at."""
import copy
import gc
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

import quire


def program(code, *arguments, ends=0, seconds=120):
    """Runs code with the imports below; returns what it prints."""
    done = subprocess.run([sys.executable, "-X", "dev", "-W", "ignore", "-c",
                           "import gc, os, signal, sys, threading, time\nimport numpy as np\nimport quire\n"
                           + textwrap.dedent(code), *arguments],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=seconds)
    assert done.returncode == ends, "ended with %d: %s" % (done.returncode, done.stderr.decode())
    return done.stdout.decode()


def test_closed_handles_refuse_everything(index_path, folder):
    vector = np.ones(32, np.float32)
    index = quire.Index(index_path)
    index.close()
    index.close()
    collection = quire.Collection(os.path.join(folder, "c"), create=True, dim=32)
    snapshot = collection.snapshot()
    collection.close()
    cache = quire.Cache(os.path.join(folder, "k"), create=True, dim=32)
    cache.close()
    assert index.closed and collection.closed and snapshot.closed and cache.closed
    for call in (lambda: index.search(vector), lambda: index.search_batch(vector[None]), lambda: index.vector(0),
                 lambda: index.key(0), lambda: index.lookup("a"), lambda: index.attributes(0), index.calibration,
                 index.__enter__,
                 lambda: collection.put("a", vector), lambda: collection.put_many(["a"], vector[None]),
                 lambda: collection.get("a"), lambda: collection.remove("a"), lambda: collection.search(vector),
                 lambda: collection.search_batch(vector[None]), lambda: len(collection), lambda: list(collection),
                 lambda: "a" in collection, collection.snapshot, collection.checkpoint, lambda: collection.info,
                 lambda: collection.backup(os.path.join(folder, "b")), lambda: snapshot.search(vector),
                 lambda: cache.get("a", text="x"), lambda: cache.put("a", "x"), cache.stats,
                 lambda: cache.set_category("a"), lambda: cache.invalidate(everything=True), cache.audit_pop, lambda: cache.audit_get(1),
                 cache.export_curves):
        with pytest.raises(quire.Closed) as e:
            call()
        assert "is closed" in str(e.value) and isinstance(e.value, ValueError)
    assert "closed" in repr(index) and "closed" in repr(collection) and "closed" in repr(cache)
    assert index.info.rows == 3000  # what it was is still known


def test_wrong_dimensions(index, folder):
    for wrong in (np.ones(31), np.ones(33), np.ones(0), np.ones((1, 32)), np.float32(1), [], [[1.0] * 32]):
        with pytest.raises(quire.WrongDimension):
            index.search(wrong)
    for wrong in (np.ones(32), np.ones((2, 31)), np.ones((2, 0)), np.ones((0, 0)), np.ones((1, 1, 32)),
                  [[1.0] * 32, [1.0]]):
        with pytest.raises((quire.WrongDimension, quire.WrongType)):
            index.search_batch(wrong)
    assert index.search_batch(np.ones((0, 32))).ids.shape == (0, 10)
    with pytest.raises(quire.WrongDimension, match="the query has 31 dimensions, what is searched has 32"):
        index.search(np.ones(31))
    with quire.Collection(os.path.join(folder, "c"), create=True, dim=32) as c:
        for wrong in (np.ones(31), np.ones(33), np.ones((1, 32)), []):
            with pytest.raises(quire.WrongDimension):
                c.put("a", wrong)
            with pytest.raises(quire.WrongDimension):
                c.search(wrong)
        with pytest.raises(quire.WrongDimension):
            c.put_many(["a"], np.ones((1, 33)))
        assert len(c) == 0
    with quire.Cache(os.path.join(folder, "k"), create=True, dim=32) as k:
        k.set_category("a")
        for call in (k.get, lambda c, **n: k.put(c, "x", **n)):
            with pytest.raises(quire.WrongDimension):
                call("a", text="x", vector=np.ones(31))
    with pytest.raises(quire.Invalid, match="dim"):
        quire.Cache(os.path.join(folder, "k"), dim=0)
    with pytest.raises(quire.WrongDimension):
        quire.Cache(os.path.join(folder, "k"), dim=64)


def test_wrong_numbers_and_types(index, data):
    _, queries = data
    for bad in (np.nan, np.inf, -np.inf):
        query = queries[0].copy()
        query[5] = bad
        with pytest.raises(quire.NotFinite):
            index.search(query)
        many = queries.copy()
        many[7, 5] = bad
        with pytest.raises(quire.NotFinite):
            index.search_batch(many)
    with pytest.raises(quire.NotFinite):
        index.search(np.full(32, 1e300))  # no float32
    for wrong in (np.ones(32, complex), np.array(["1"] * 32), np.array([object()] * 32), [None] * 32, "query",
                  np.ones(32, bool), np.zeros(32, "M8[s]"), None, {"a": 1}, b"x" * 128):
        with pytest.raises((quire.WrongType, quire.WrongDimension)):
            index.search(wrong)
    for wrong in ({"k": 0}, {"k": -1}, {"k": 2**40}, {"k": 1.5}, {"recall": 2.0}, {"recall": 0.0},
                  {"recall": float("nan")}, {"effort": -1}, {"effort": 2**32}, {"farthest": float("nan")},
                  {"reads_max": "x"}, {"filter_effort": -5}):
        with pytest.raises(quire.Error):
            index.search(queries[0], **wrong)
        with pytest.raises(quire.Error):
            index.search_batch(queries, **wrong)
    with pytest.raises(TypeError):
        index.search(queries[0], k="ten")
    with pytest.raises(TypeError):
        index.search(queries[0], tenants=7)
    with pytest.raises(quire.Error):
        index.search(queries[0], tenants=[7])
    with pytest.raises((TypeError, AttributeError)):
        index.search(queries[0], filter=7)
    assert len(index.search(queries[0])) == 10


def test_zero_vectors(folder):
    with quire.Cache(os.path.join(folder, "k"), create=True, dim=8) as cache:
        cache.set_category("a")
        with pytest.raises(quire.ZeroVector):
            cache.get("a", text="x", vector=np.zeros(8))


def test_handles_are_not_copied_or_pickled(index):
    for way in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="neither copied nor pickled"):
            way(index)


def test_a_constructor_that_failed_leaves_nothing_behind():
    program("""
        for make in (lambda: quire.Index("/nowhere"), lambda: quire.Collection("/nowhere"),
                     lambda: quire.Cache("/nowhere", dim=3)):
            try:
                make()
            except quire.NoFile:
                pass
        empty = quire.Index.__new__(quire.Index)
        for call in (lambda: empty.search([1.0]), lambda: empty.close(), lambda: repr(empty)):
            try:
                call()
            except (quire.Closed, AttributeError):
                pass
        gc.collect()""")


def test_closing_while_others_search(index_path):
    printed = program("""
        path, queries = sys.argv[1], np.random.default_rng(1).standard_normal((200, 32)).astype(np.float32)
        closed = 0
        def work(index):
            global closed
            while True:
                try:
                    index.search_batch(queries[:20], 10, lanes=2)
                    index.search(queries[0], 10, stats=True)
                    index.vector(3)
                except quire.Closed:
                    closed += 1
                    return
        for round in range(8):
            index = quire.Index(path)
            threads = [threading.Thread(target=work, args=(index,)) for _ in range(6)]
            for t in threads: t.start()
            time.sleep(0.02)
            closers = [threading.Thread(target=index.close) for _ in range(2)]
            for t in closers: t.start()
            for t in closers + threads: t.join()
            index.close()
        print(closed)""", index_path)
    assert int(printed) == 48


def test_close_waits_for_calls_under_way(index_path, data):
    """When close() has returned, nothing of the index is in use: no descriptor of its folder is open."""
    _, queries = data
    index = quire.Index(index_path)
    many = np.repeat(queries, 100, axis=0)
    results = []
    thread = threading.Thread(target=lambda: results.append(index.search_batch(many, 10, exact=True)))
    thread.start()
    while not results and not _open_in(index_path):
        time.sleep(0.001)
    time.sleep(0.02)
    index.close()
    assert not _open_in(index_path)
    thread.join()
    assert not results or results[0].ids.shape == (5000, 10)


def _open_in(path):
    links = []
    for name in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink("/proc/self/fd/" + name))
        except OSError:
            pass
    return [link for link in links if link.startswith(path)]


def test_garbage_collection_during_a_batch(index_path):
    """Nobody but the call itself holds index, queries and answer."""
    program("""
        def batch():
            queries = np.random.default_rng(2).standard_normal((3000, 32)).astype(np.float32)
            hits = quire.Index(sys.argv[1]).search_batch(queries, 10, lanes=2)
            return hits.ids
        results = []
        threads = [threading.Thread(target=lambda: results.append(batch())) for _ in range(3)]
        for t in threads: t.start()
        while any(t.is_alive() for t in threads):
            gc.collect()
            junk = [np.zeros(1000) for _ in range(100)]
        assert len(results) == 3 and all((r == results[0]).all() for r in results)
        cycle = quire.Index(sys.argv[1]), []
        cycle[1].append(cycle)
        del cycle
        gc.collect()""", index_path)


def test_answers_outlive_handles(index_path, folder, data):
    _, queries = data
    index = quire.Index(index_path)
    hits = index.search_batch(queries, 10)
    ids = hits.ids
    index.close()
    del hits, index
    gc.collect()
    assert ids.shape == (50, 10) and ids.max() < 3000
    with quire.Collection(os.path.join(folder, "c"), create=True, dim=4) as c:
        c.put("a", [1, 2, 3, 4], {"x": 1})
        matches = c.search([1, 2, 3, 4], vectors=True)
    assert matches[0].attributes == {"x": 1} and matches[0].vector.shape == (4,)


def test_an_unclosed_handle_is_closed_and_said(folder, index_path):
    with pytest.warns(ResourceWarning, match="was not closed"):
        quire.Index(index_path)
        gc.collect()
    path = os.path.join(folder, "c")
    with pytest.warns(ResourceWarning, match="was not closed"):
        c = quire.Collection(path, create=True, dim=4)
        del c
        gc.collect()
    quire.Collection(path).close()  # not busy


def test_an_exception_that_is_kept_does_not_keep_the_handle(index_path):
    index = quire.Index(index_path)
    kept = []
    for call in (lambda: index.search(np.ones(3)), lambda: index.lookup("x"), lambda: index.attributes(9999),
                 lambda: index.search_batch(np.full((2, 32), np.nan))):
        try:
            call()
        except quire.Error as e:
            kept.append(e)
    assert len(kept) == 4
    done = threading.Event()
    thread = threading.Thread(target=lambda: (index.close(), done.set()), daemon=True)
    thread.start()
    assert done.wait(20) and not _open_in(index_path)


def test_fork(index_path, folder):
    """In a child handles of the parent are closed, and leave the parent undisturbed; also with threads inside."""
    program("""
        index, c = quire.Index(sys.argv[1]), quire.Collection(sys.argv[2] + "/c", create=True, dim=32)
        cache = quire.Cache(sys.argv[2] + "/k", create=True, dim=32)
        cache.set_category("a")
        query = np.ones(32, np.float32)
        c.put("x", query)
        snapshot = c.snapshot()
        stop = False
        def work():
            while not stop:
                index.search_batch(np.ones((50, 32), np.float32), 5)
                c.search(query)
        threads = [threading.Thread(target=work) for _ in range(2)]
        for t in threads: t.start()
        for round in range(3):
            child = os.fork()
            if child == 0:
                bad = 0
                for call in (lambda: index.search(query), lambda: index.vector(0), lambda: c.put("y", query),
                             lambda: c.search(query), lambda: snapshot.search(query), lambda: c.get("x"),
                             lambda: len(c), lambda: list(c), lambda: cache.get("a", text="x"),
                             lambda: cache.put("a", "v", text="x", vector=query), c.snapshot, c.checkpoint):
                    try:
                        call()
                        bad += 1
                    except quire.Closed:
                        pass
                for handle in (snapshot, index, c, cache):
                    handle.close()
                own = quire.Index(sys.argv[1])  # its own may be opened
                bad += len(own.search(query)) != 10
                own.close()
                gc.collect()
                os._exit(bad)
            _, status = os.waitpid(child, 0)
            assert status == 0, status
        stop = True
        for t in threads: t.join()
        assert len(index.search(query)) == 10 and len(c) == 1 and cache.stats().entries == 0
        c.put("y", query)
        for handle in (snapshot, index, c, cache):
            handle.close()
        assert len(quire.Collection(sys.argv[2] + "/c")) == 2""", index_path, folder)


def test_fork_of_multiprocessing(index_path):
    printed = program("""
        import multiprocessing
        index = quire.Index(sys.argv[1])
        def work(n):
            try:
                index.search(np.ones(32))
                return "answered"
            except quire.Closed as e:
                return str(e)
        with multiprocessing.get_context("fork").Pool(2) as pool:
            print(*set(pool.map(work, range(4))))
        index.close()""", index_path)
    assert "process" in printed


def test_signal_handler_that_closes(index_path, folder):
    """It interrupts a call of the same thread on the same handle: the handle is closed when that call ends."""
    program("""
        index = quire.Index(sys.argv[1])
        def handler(*_):
            index.close()
        signal.signal(signal.SIGALRM, handler)
        many = np.random.default_rng(1).standard_normal((1000, 32)).astype(np.float32)
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        try:
            while True:
                index.search_batch(many, 10)
        except quire.Closed:
            pass
        links = [os.readlink("/proc/self/fd/" + n) for n in os.listdir("/proc/self/fd")
                 if os.path.exists("/proc/self/fd/" + n)]
        assert not [l for l in links if l.startswith(sys.argv[1])]""", index_path)


def test_interrupts(index_path, folder):
    """Ctrl-C in a build ends it and leaves nothing behind; in searches and long waits it is seen, too."""
    program("""
        def at(seconds):
            timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
            timer.start()
        folder = sys.argv[2]
        rows = np.random.default_rng(1).standard_normal((60000, 64)).astype(np.float32)
        at(1)
        try:
            quire.Index.build(folder + "/i", rows)
            sys.exit("the build went on")
        except KeyboardInterrupt:
            assert os.listdir(folder) == [], os.listdir(folder)
        index = quire.Index(sys.argv[1])
        at(0.05)
        try:
            while True:
                index.search(np.ones(32, np.float32))
        except KeyboardInterrupt:
            index.close()
        cache = quire.Cache(folder + "/k", create=True, dim=4)
        cache.set_category("a", sim=0.9)
        lease = cache.get("a", text="x", vector=[1, 0, 0, 0]).lease
        begun = time.monotonic()
        at(0.2)
        try:
            cache.get("a", text="x", vector=[1, 0, 0, 0], wait_ms=60000)
            sys.exit("it did not wait")
        except KeyboardInterrupt:
            assert time.monotonic() - begun < 30
        cache.fail(lease)
        time.sleep(0.3)  # the call that nobody waits for any more has given its lease back
        assert cache.get("a", text="x", vector=[1, 0, 0, 0]).lease
        cache.close()""", index_path, folder)


def test_callbacks_that_raise(folder):
    printed = program("""
        lines = []
        sys.unraisablehook = lambda u: lines.append(u.exc_value)
        def log(warning, line):
            raise ValueError("in the log")
        c = quire.Collection(sys.argv[1] + "/c", create=True, dim=4, log=log)
        c.put("a", [1, 2, 3, 4])
        c.seal()
        c.close()
        print(len(lines) > 0 and all(isinstance(e, ValueError) for e in lines))""", folder)
    assert printed.strip() == "True"


def test_exit_with_everything_open(folder, index_path):
    """Threads of the library that call back, and calls of daemon threads, do not stop the interpreter's end."""
    program("""
        index = quire.Index(sys.argv[2])
        c = quire.Collection(sys.argv[1] + "/c", create=True, dim=4, log=lambda w, line: None, memtable_bytes=1 << 20)
        s = c.snapshot()
        cache = quire.Cache(sys.argv[1] + "/k", create=True, dim=4, log=lambda w, line: None)
        cache.set_category("a")
        def work(one):
            while True:
                one()
        for one in (lambda: index.search(np.ones(32)), lambda: c.put("a", [1, 2, 3, 4]),
                    lambda: cache.get("a", text="x", vector=[1, 0, 0, 1], wait_ms=10**6)):
            threading.Thread(target=work, args=(one,), daemon=True).start()
        time.sleep(0.3)""", folder, index_path)
    with quire.Collection(os.path.join(folder, "c")) as c:
        assert len(c) == 1


def test_many_threads_on_everything(folder, index_path, data):
    """Searches, writes, iteration and snapshots at once; every answer is whole."""
    _, queries = data
    index = quire.Index(index_path)
    expected = index.search_batch(queries, 10).ids
    c = quire.Collection(os.path.join(folder, "c"), create=True, dim=32, durability="no", memtable_bytes=1 << 20)
    failures = []

    def searches():
        for i in range(100):
            if not np.array_equal(index.search(queries[i % 50], 10).ids, expected[i % 50]):
                failures.append("index %d" % i)

    def writes(name):
        for i in range(150):
            c.put("%s-%d" % (name, i), queries[i % 50], {"i": i})
            if i % 3 == 0:
                c.remove("%s-%d" % (name, i))

    def reads():
        for i in range(40):
            for match in c.search(queries[i % 50], 5, vectors=True):
                if np.abs(match.vector - queries[match.attributes["i"] % 50]).max() > 0.2:
                    failures.append(match)
            with c.snapshot() as s:
                if len(s.search(queries[0], 1000)) > len(s):
                    failures.append("snapshot")
            list(c.items())

    threads = [threading.Thread(target=f, args=a) for f, a in
               [(searches, ()), (searches, ()), (writes, ("a",)), (writes, ("b",)), (reads, ())]]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert failures == [] and len(c) == 200
    assert sorted(c) == sorted("%s-%d" % (n, i) for n in "ab" for i in range(150) if i % 3)
    c.close()
    index.close()


def test_searches_leave_python_running(index_path, data):
    """The lock of the interpreter is released: another thread counts while a long batch runs."""
    _, queries = data
    many = np.repeat(queries, 20, axis=0)
    with quire.Index(index_path) as index:
        running, counted = threading.Event(), 0
        thread = threading.Thread(target=lambda: (running.set(), index.search_batch(many, 10, exact=True)))
        thread.start()
        running.wait()
        while thread.is_alive():
            counted += 1
            time.sleep(0.0005)
        thread.join()
        assert counted > 10
