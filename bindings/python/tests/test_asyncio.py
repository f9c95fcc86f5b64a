"""Under asyncio: the same answers, many at once, cancelled ones, and closing with searches under way."""
import asyncio
import gc
import os
import threading

import numpy as np
import pytest

import quire
from quire import aio


def test_the_same_answers(index, data):
    _, queries = data

    async def main():
        many = await asyncio.gather(*(index.search_async(q, 10, stats=i % 2 == 0) for i, q in enumerate(queries)))
        more = [await index.search_async(q, 5, filter=".n < 3", tenants="acme") for q in queries[:5]]
        return many, more

    many, more = asyncio.run(main())
    for i, (query, hits) in enumerate(zip(queries, many)):
        expected = index.search(query, 10)
        assert np.array_equal(hits.ids, expected.ids) and np.array_equal(hits.distances, expected.distances)
        assert (hits.stats is not None and hits.stats.complete) if i % 2 == 0 else hits.stats is None
    for query, hits in zip(queries, more):
        assert np.array_equal(hits.ids, index.search(query, 5, filter=".n < 3", tenants="acme").ids)


def test_errors(index):
    async def main():
        for error, query, named in ((quire.WrongDimension, np.ones(31), {}), (quire.NotFinite, np.full(32, np.nan), {}),
                                    (quire.ParseError, np.ones(32), {"filter": "(("})):
            with pytest.raises(error):
                await index.search_async(query, **named)

    asyncio.run(main())


def test_the_query_may_be_written_over(index, data):
    _, queries = data

    async def main():
        query = queries[0].copy()
        task = asyncio.ensure_future(index.search_async(query, 10))
        await asyncio.sleep(0)
        query[:] = 1e9
        return await task

    assert np.array_equal(asyncio.run(main()).ids, index.search(queries[0], 10).ids)


def test_cancelled_searches(index, data):
    _, queries = data

    async def main():
        tasks = [asyncio.ensure_future(index.search_async(q, 10)) for q in queries]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(d, (asyncio.CancelledError, quire.Hits)) for d in done)
        return done[1::2]

    for query, hits in zip(queries[1::2], asyncio.run(main())):
        assert np.array_equal(hits.ids, index.search(query, 10).ids)


@pytest.mark.parametrize("where", ["inside", "after", "thread"])
def test_closing_with_searches_under_way(index_path, data, where):
    _, queries = data
    index = quire.Index(index_path)

    async def main():
        tasks = [asyncio.ensure_future(index.search_async(q, 10)) for q in queries]
        await asyncio.sleep(0)
        if where == "inside":
            index.close()
        elif where == "thread":
            await asyncio.get_running_loop().run_in_executor(None, index.close)
        else:
            return
        done = await asyncio.gather(*tasks)
        assert all(len(hits) == 10 for hits in done)
        with pytest.raises(quire.Closed):
            await index.search_async(queries[0])

    asyncio.run(main())
    closer = threading.Thread(target=index.close, daemon=True)
    closer.start()
    closer.join(20)
    assert not closer.is_alive() and index.closed


def test_many_event_loops(index, data):
    """One after the other, and in several threads at once."""
    _, queries = data
    expected = [index.search(q, 5).ids for q in queries]
    failures = []

    async def main():
        for _ in range(3):
            for hits, ids in zip(await asyncio.gather(*(index.search_async(q, 5) for q in queries)), expected):
                if not np.array_equal(hits.ids, ids):
                    failures.append(hits)

    threads = [threading.Thread(target=lambda: [asyncio.run(main()) for _ in range(2)]) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert failures == []
    gc.collect()
    assert len(aio.searchers()) <= 2  # those of loops that are gone went with them


def test_collections_and_caches(folder):
    async def main():
        with quire.Collection(os.path.join(folder, "c"), create=True, dim=4) as c:
            await asyncio.gather(*(c.put_async("k%d" % i, [i, 1, 0, 0], {"i": i}) for i in range(50)))
            found = await c.search_async([7, 1, 0, 0], 1, filter=".i < 20")
            assert len(c) == 50 and found.keys == ["k7"]
        with quire.Cache(os.path.join(folder, "k"), create=True, dim=4) as cache:
            cache.set_category("a", sim=0.9)
            asked = []

            async def answer(i):  # 100 at once, of whom one computes
                got = await cache.get_async("a", text="q", vector=[1, 0, 0, 0], wait_ms=60000)
                if not got.served:
                    asked.append(i)
                    await asyncio.sleep(0.05)
                    await cache.put_async("a", "the answer", lease=got.lease, text="q", vector=[1, 0, 0, 0])
                    return "the answer"
                return got.text

            assert await asyncio.gather(*(answer(i) for i in range(100))) == ["the answer"] * 100
            assert len(asked) == 1
            leader = await cache.get_async("a", text="r", vector=[0, 1, 0, 0])
            before = cache.stats().waited
            waiter = asyncio.ensure_future(cache.get_async("a", text="r", vector=[0, 1, 0, 0], wait_ms=60000))
            while cache.stats().waited == before:
                await asyncio.sleep(0.01)
            waiter.cancel()  # nobody wants its lease, which goes on to the next
            cache.fail(leader.lease)
            for _ in range(500):
                again = await cache.get_async("a", text="r", vector=[0, 1, 0, 0])
                if again.lease:
                    break
                await asyncio.sleep(0.01)
            assert again.lease

    asyncio.run(asyncio.wait_for(main(), 100))
