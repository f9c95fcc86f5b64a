"""Cache: what answers and what does not, leases and waits, labels, invalidation, new openings."""
import os
import threading
import time

import numpy as np
import pytest

import quire


def vector(*places):
    v = np.zeros(16, np.float32)
    for place, value in enumerate(places):
        v[place] = value
    return v


@pytest.fixture
def cache(folder):
    with quire.Cache(os.path.join(folder, "k"), create=True, dim=16, encoder="e@1", scope_keys=["tenant"]) as opened:
        opened.set_category("faq", sim=0.9, ttl=3600000)
        yield opened


ACME = {"tenant": "acme"}


def test_miss_put_exact_hit(cache):
    asked = cache.get("faq", text="how do I log in", vector=vector(1), scope=ACME)
    assert asked.status == "miss" and asked.lease and asked.value is None and not asked.served and asked.reason
    assert asked.similarity is None and asked.text is None
    put = cache.put("faq", ["by your ", "name"], lease=asked.lease, text="how do I log in", vector=vector(1), scope=ACME,
                    tags=["login"], model="m", tokens_in=3, tokens_out=5, llm_ms=700, cost=0.25)
    assert put.outcome == "stored" and put.id > 0 and put.expire_ms > time.time() * 1000
    again = cache.get("faq", text="how do I log in", vector=vector(1), scope=ACME)
    assert again.status == "exact" and again.served and again.text == "by your name"
    assert again.chunks == (b"by your ", b"name") and again.question == "how do I log in" and again.model == "m"
    assert (again.tokens_in, again.tokens_out, again.llm_ms, again.cost) == (3, 5, 700, 0.25)
    near = cache.get("faq", text="how can I log in", vector=vector(1, 0.2), scope=ACME, explain=True)
    assert near.status == "hit" and near.id == put.id and abs(near.similarity - 1 / np.sqrt(1.04)) < 1e-2
    assert near.candidates[0].id == put.id and near.candidates[0].verdict == "served"
    far = cache.get("faq", text="where is my parcel", vector=vector(0, 1), scope=ACME, lease=False)
    assert far.status == "miss" and far.lease is None
    other = cache.get("faq", text="how do I log in", vector=vector(1), scope={"tenant": "other"}, lease=False)
    assert other.status == "miss"
    strict = cache.get("faq", text="how can I log in", vector=vector(1, 0.2), scope=ACME, similarity=0.999, lease=False)
    assert strict.status == "miss"
    stats = cache.stats("faq")
    assert stats.entries == 1 and stats.exact == 1 and stats.hits == 1 and stats.tokens_saved == 16
    assert cache.stats().requests == stats.requests == 6


def test_errors_are_sentences(cache, folder):
    for error, call in (
            (quire.NotFound, lambda: cache.get("nowhere", text="x")),
            (quire.Invalid, lambda: cache.get("faq", text="x", vector=vector(1), encoder="e@2")),
            (quire.NotFinite, lambda: cache.get("faq", text="x", vector=np.full(16, np.nan))),
            (quire.ZeroVector, lambda: cache.get("faq", text="x", vector=vector())),
            (quire.Invalid, lambda: cache.get("faq", text="x", scope={"user": "u"})),
            (quire.NotFound, lambda: cache.fail("no-such-lease")),
            (quire.NotFound, lambda: cache.renew("no-such-lease")),
            (quire.NotFound, lambda: cache.feedback(99, True)),
            (quire.NotFound, lambda: cache.remove(99)),
            (quire.NotFound, lambda: cache.audit_put(99, True)),
            (quire.Error, lambda: cache.set_category("faq", risk=7)),
            (quire.Error, lambda: cache.set_category("faq", unknown=7)),
            (quire.Error, lambda: cache.put("faq", [], text="x", vector=vector(1))),
            (quire.Invalid, lambda: cache.invalidate()),
            (quire.Invalid, lambda: cache.invalidate(ids=[1], everything=True)),
            (quire.FormatError, lambda: cache.import_curves(b"no curves")),
            (quire.Busy, lambda: quire.Cache(os.path.join(folder, "k"), dim=16)),
            (quire.NoFile, lambda: quire.Cache(os.path.join(folder, "nowhere"), dim=16))):
        with pytest.raises(error) as e:
            call()
        assert len(str(e.value)) > 8
    assert cache.audit_pop() is None


def test_one_computes_and_the_others_wait(cache):
    leader = cache.get("faq", text="q", vector=vector(1), scope=ACME)
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(
        cache.get("faq", text="q", vector=vector(1), scope=ACME, wait_ms=60000))) for _ in range(4)]
    for t in threads:
        t.start()
    while cache.stats().waited < 4:
        time.sleep(0.005)
    assert cache.renew(leader.lease) > 0
    assert cache.put("faq", "the answer", lease=leader.lease, text="q", vector=vector(1), scope=ACME).woken == 4
    for t in threads:
        t.join()
    assert [a.text for a in answers] == ["the answer"] * 4


def test_closing_ends_waits(cache):
    cache.get("faq", text="q", vector=vector(1), scope=ACME)
    answers = []
    thread = threading.Thread(target=lambda: answers.append(
        cache.get("faq", text="q", vector=vector(1), scope=ACME, wait_ms=600000)))
    thread.start()
    while cache.stats().waited < 1:
        time.sleep(0.005)
    cache.close()
    thread.join(30)
    assert len(answers) == 1 and answers[0].status == "miss" and answers[0].lease is None


def test_failures_and_negatives(cache):
    first = cache.get("faq", text="q", vector=vector(1), scope=ACME)
    cache.fail(first.lease)
    second = cache.get("faq", text="q", vector=vector(1), scope=ACME)
    assert second.lease and second.lease != first.lease
    cache.negative("faq", text="q", vector=vector(1), scope=ACME, lease=second.lease)
    assert cache.get("faq", text="q", vector=vector(1), scope=ACME).status == "negative"


def test_invalidation_and_upkeep(cache):
    ids = [cache.put("faq", "a%d" % i, text="q%d" % i, vector=np.eye(16)[i], scope=ACME,
                     tags=["even" if i % 2 == 0 else "odd"], model="m%d" % (i % 3)).id for i in range(12)]
    assert cache.invalidate(tags=["even"], dry_run=True) == 6 and cache.stats().entries == 12
    assert cache.invalidate(tags=["even"]) == 6 and cache.stats().entries == 6
    assert cache.invalidate(ids=[ids[1], ids[0]]) == 1
    assert cache.invalidate(near=(np.eye(16)[3], 0.99)) == 1
    assert cache.invalidate(model="m2") == 2  # 5 and 11
    assert cache.invalidate(older_than_ms=3600000) == 0
    cache.pin(ids[7])
    cache.touch(ids[7])
    assert cache.stats().pinned == 1
    cache.feedback(ids[7], False, 0.95)
    cache.remove(ids[7])
    assert cache.invalidate(scope=("tenant", "acme")) == 1 and cache.stats().entries == 0
    assert cache.invalidate(category="faq") == 0 and cache.invalidate(everything=True) == 0
    cache.load("m1", 0.5)
    curves = cache.export_curves()
    assert isinstance(curves, bytes) and cache.import_curves(curves) >= 0
    tune = cache.tune("faq")
    assert tune.labels >= 0 and all(0 <= p.similarity <= 1 for p in tune.points)
    cache.drop_category("faq")
    with pytest.raises(quire.NotFound):
        cache.get("faq", text="x")


def test_audits(folder):
    with quire.Cache(os.path.join(folder, "k"), create=True, dim=16, seed=1) as cache:
        cache.set_category("faq", sim=0.9, audit=1)
        cache.put("faq", "the answer", text="the question", vector=vector(1))
        asked = cache.get("faq", text="a question", vector=vector(1, 0.01))
        assert asked.status == "audit" and asked.audit and asked.value == b"the answer" and not asked.served
        assert cache.audit_get(asked.audit).entry_value == b"the answer" and cache.audit_get(asked.audit + 1) is None
        pair = cache.audit_pop()
        assert (pair.number, pair.category, pair.text, pair.entry_text, pair.entry_value) == (
            asked.audit, "faq", "a question", "the question", b"the answer")
        cache.audit_put(pair.number, True)
        assert cache.stats("faq").labels == 1


def test_a_new_opening(folder):
    path = os.path.join(folder, "k")
    with quire.Cache(path, create=True, dim=16, encoder="e@1", durability="always") as cache:
        cache.set_category("faq", mode="exact")
        cache.put("faq", b"\x00\xff", text="q")
    with quire.Cache(path, dim=16) as cache:
        assert cache.get("faq", text="q").value == b"\x00\xff"
    with pytest.raises(quire.Invalid, match="encoder"):
        quire.Cache(path, dim=16, encoder="e@2")
    with pytest.raises(quire.WrongType):
        quire.Cache(path, dim=16, type="f16")
