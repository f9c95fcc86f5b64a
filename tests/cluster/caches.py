"""caches.py ENGINE SEED - semantic caches on a primary and its replica: puts, replacements, removals, invalidations,
times to live, pins, verdicts, categories; full syncs with entries that are on the disk; a replica that is killed while
it copies; kill -9 of a primary under writes, of which those that WAIT has confirmed are on the new one; and the old one
as a replica."""
import random
import struct
import sys
import threading
import time

import redis
from nodes import Checks, Folder, Node, add, eventually

engine, seed = sys.argv[1], int(sys.argv[2])
DIM, ENTRIES = 16, 8000
checks = Checks()
rng = random.Random(seed)
print("seed %d" % seed)
# the cache that is to be sealed has so little memory that the older half of its vectors goes to the disk
SETTINGS = {"save": "", "appendonly": "no", "repl_diskless_sync_delay": 0, "quire_cache_seal_rows": 2000}


def vector(i):
    r = random.Random(i)
    return struct.pack("<%df" % DIM, *[r.gauss(0, 1) for _ in range(DIM)])


def fields(reply):
    return dict(zip(reply[::2], reply[1::2]))


def put(c, key, i, value, *more):
    return c.execute_command("SC.PUT", key, "CAT", "q", *more, "VEC", vector(i), "HASH", "h%d" % i,
                             "TEXT", "question %d" % i, "VALUE", value)


def get(c, key, *words):
    return fields(c.execute_command("SC.GET", key, "CAT", "q", *words)).get(b"value")


def by_hash(node, key, i, *scope):
    return get(node.client(), key, *scope, "HASH", "h%d" % i)


def near(node, key, i, *scope):
    return get(node.client(), key, *scope, "VEC", vector(i), "NOLEASE")


def info(node, key="c"):
    return fields(node.do("SC.INFO", key))


def entries(node, key="c"):
    """What each entry is, by its id: a node that does not answer gives a sentence."""
    found, cursor, c = {}, 0, node.client()
    try:
        while True:
            cursor, some = c.execute_command("SC.SCAN", key, cursor, "COUNT", 1000)
            for e in map(fields, some):
                found[e[b"id"]] = (e[b"bytes"], e[b"pinned"], e[b"text"], e[b"category"])
            if int(cursor) == 0:
                return found
    except redis.exceptions.RedisError as e:
        return str(e)


def same(what, a, b, key="c", seconds=20):
    """By their digests, which cost little, and then by all entries."""
    left = right = None

    def equal():
        nonlocal left, right
        if digest(a, key) != digest(b, key):
            return False
        left, right = entries(a, key), entries(b, key)
        return isinstance(left, dict) and left == right

    equal = eventually(equal, seconds)
    if not equal:
        left, right = entries(a, key), entries(b, key)
    return checks.that(what, equal, left if isinstance(left, str) else len(left),
                       right if isinstance(right, str) else len(right), digest(a, key), digest(b, key))


def digest(node, key):
    try:
        return node.do("QUIRE.DIGEST", key)
    except redis.exceptions.RedisError as e:
        return str(e)


def make(c, key, memory=64 << 20, *more):
    c.execute_command("SC.CREATE", key, "DIM", DIM, "MEMORY", memory, *more)
    c.execute_command("SC.CAT.SET", key, "q", "SIM", "0.9", "JITTER", "0", "TTL", "3600000", "AUDIT", "0")


def attached(primary, replica):
    return eventually(lambda: primary.info("replicas") == 1 and
                      replica.client().info("replication").get("master_link_status") == "up", 30)


def state(node):
    return fields(node.do("QUIRE.REPLICATION"))


def test_writes(primary, replica):
    c = primary.client()
    make(c, "c", 64 << 20, "SCOPE", "tenant")
    a = ("SCOPE", "tenant", "acme")
    ids = [fields(put(c, "c", i, "first", *a))[b"id"] for i in range(200)]
    checks.same("WAIT counts puts", c.wait(1, 5000), 1)
    checks.same("what was counted is there by its hash", by_hash(replica, "c", 7, *a), b"first")
    checks.same("and by nearness", near(replica, "c", 8, *a), b"first")
    checks.same("another scope has nothing of it", by_hash(replica, "c", 7, "SCOPE", "tenant", "other"), None)
    for i in range(50):
        put(c, "c", i, "second", *a)
    c.execute_command("SC.DEL", "c", *ids[60:80])
    c.execute_command("SC.PIN", "c", ids[100])
    c.execute_command("SC.FEEDBACK", "c", ids[101], "BAD")
    put(c, "c", 300, "tagged", *a, "TAG", "page")
    c.execute_command("SC.CAT.SET", "c", "other", "MODE", "exact")
    c.execute_command("SC.PUT", "c", "CAT", "other", *a, "HASH", "plain", "VALUE", "plain")
    same("replacements, removals, pins, categories", primary, replica)
    checks.same("what replaced is served", by_hash(replica, "c", 7, *a), b"second")
    checks.same("what was removed is not", by_hash(replica, "c", 70, *a), None)
    checks.same("what was said to be bad is not", by_hash(replica, "c", 101, *a), None)
    begun = time.time()
    put(c, "c", 301, "short", *a, "TTL", "1500")
    c.wait(1, 1000)
    seen = by_hash(replica, "c", 301, *a)
    checks.that("a short one is, within its time", seen == b"short" or time.time() - begun > 1.5, seen)
    time.sleep(1.6)
    checks.same("and not any longer", by_hash(replica, "c", 301, *a), None)
    same("and goes when it goes on its primary", primary, replica)
    checks.same("one by one", by_hash(replica, "c", 300, *a), b"tagged")
    c.execute_command("SC.INVALIDATE", "c", "TAG", "page")
    c.execute_command("SC.TOUCH", "c", ids[110], "TTL", "500")
    c.execute_command("SC.CAT.DEL", "c", "other")
    same("invalidations, and what a removed category had", primary, replica)
    checks.same("gone", by_hash(replica, "c", 300, *a), None)
    checks.error("a replica is not written to", "read only replica", lambda: put(replica.client(), "c", 1, "x", *a))
    reply = fields(replica.do("SC.GET", "c", "CAT", "q", *a, "HASH", "never"))
    checks.that("nor gives leases", not reply.get(b"lease"), reply)
    for words in (("SC.CAT.LIST", "c"), ("SC.CAT.GET", "c", "q")):
        checks.same("%s is the same" % words[0], replica.do(*words), primary.do(*words))


def test_sync(folder, primary):
    """Entries of before, of which many are on the disk, come to a new replica; also to one that was killed meanwhile.
    """
    c = primary.client()
    make(c, "big", 1600 << 10)
    for first in range(0, ENTRIES, 2000):
        with c.pipeline(transaction=False) as p:
            for i in range(first, first + 2000):
                put(p, "big", i, "answer %d" % i)
            p.execute()
        time.sleep(0.2)
    checks.that("many are on the disk", eventually(lambda: info(primary, "big")[b"sealed_entries"] > 2000, 240),
                info(primary, "big"))
    replica = Node(folder, "second", engine, replicaof="127.0.0.1 %d" % primary.port, quire_ship_rate=800000,
                   **SETTINGS)
    checks.that("a replica copies", eventually(lambda: state(replica)[b"entries_fetched"] > 1000, 30), state(replica))
    checks.that("it says so meanwhile", "is being copied" in str(entries(replica, "big")), entries(replica, "big"))
    put(c, "big", 3, "changed meanwhile")
    replica.kill()
    replica.settings["quire_ship_rate"] = 0
    replica.start()
    put(c, "big", 4, "changed again")
    same("killed in the middle, and as its primary in the end", primary, replica, "big", 240)
    checks.that("what it had did not travel again",
                0 < state(replica)[b"entries_fetched"] < info(primary, "big")[b"entries"], state(replica))
    checks.same("by hash", by_hash(replica, "big", 3), b"changed meanwhile")
    there = [i for i in range(0, ENTRIES, 197) if near(primary, "big", i)]
    answers = [[near(node, "big", i) for i in there] for node in (primary, replica)]
    checks.that("sealed ones are near what they were near to", answers[0] == answers[1] and len(there) > 10, answers)
    replica.stop()
    for i in range(ENTRIES, ENTRIES + 50):
        put(c, "big", i, "while it was away")
    c.execute_command("SC.INVALIDATE", "big", "SCOPE", "tenant", "nobody")
    replica.start()
    same("and after a restart", primary, replica, "big", 30)
    replica.kill()
    c.execute_command("SC.DROP", "big")


class Writer(threading.Thread):
    """Puts and removes; knows of each question what it has and whether that was confirmed."""

    def __init__(self, node, who):
        super().__init__()
        self.node, self.who, self.known, self.confirmed = node, who, {}, 0

    def run(self):
        c, r = self.node.client(), random.Random(seed + self.who)
        ids = {}
        try:
            while True:
                i = 1000 * self.who + r.randrange(150)
                if i in ids and r.random() < 0.3:
                    command, value = ["SC.DEL", "w", ids[i]], None
                else:
                    value = b"%d of %d" % (r.randrange(1 << 30), i)
                    command = ["SC.PUT", "w", "CAT", "q", "VEC", vector(i), "HASH", "h%d" % i, "VALUE", value]
                self.known[i] = (None, False)  # of an answer that does not come nothing is known
                with c.pipeline(transaction=False) as p:
                    p.execute_command(*command)
                    p.execute_command("WAIT", 1, 100)
                    reply, n = p.execute()
                if value is not None:
                    ids[i] = fields(reply)[b"id"]
                else:
                    del ids[i]
                self.known[i] = (value, n >= 1)
                self.confirmed += n >= 1
        except redis.exceptions.RedisError:
            pass


def test_failover(primary, replica):
    make(primary.client(), "w")
    same("a cache of writers", primary, replica, "w")
    writers = [Writer(primary, n) for n in range(3)]
    for writer in writers:
        writer.start()
    time.sleep(rng.uniform(0.8, 1.5))
    primary.kill()
    for writer in writers:
        writer.join()
    replica.do("REPLICAOF", "NO", "ONE")
    wrong = []
    for writer in writers:
        for i, (value, confirmed) in writer.known.items():
            if confirmed and by_hash(replica, "w", i) != value:
                wrong.append((i, value, by_hash(replica, "w", i)))
    checks.that("%d confirmed writes are on the new primary" % sum(w.confirmed for w in writers), not wrong, wrong[:5])
    c = replica.client()
    some = [i for w in writers for i, (value, confirmed) in w.known.items() if confirmed and value]
    checks.same("near ones, too", near(replica, "w", some[0]), by_hash(replica, "w", some[0]))
    n = info(replica, "w")[b"entries"]
    put(c, "w", 5000, "of the new one")
    c.execute_command("SC.INVALIDATE", "w", "ID", fields(put(c, "w", some[1], "goes"))[b"id"])
    checks.that("it is written to", abs(info(replica, "w")[b"entries"] - n) <= 1, n, info(replica, "w"))
    primary.start()
    primary.do("REPLICAOF", "127.0.0.1", replica.port)
    checks.that("the old one follows", attached(replica, primary))
    same("and has what the new one has", replica, primary, "w", 30)
    checks.same("nothing that was invalidated", by_hash(primary, "w", some[1]), None)
    checks.same("a new one", by_hash(primary, "w", 5000), b"of the new one")
    # after a planned change only what was written since travels
    fetched = state(replica)[b"entries_fetched"]
    before = state(primary)[b"entries_fetched"]
    replica.client().execute_command("FAILOVER", "TIMEOUT", 5000)
    checks.that("FAILOVER", eventually(lambda: primary.client().info("replication")["role"] == "master", 20))
    put(primary.client(), "w", 5001, "of the old one again")
    same("and back", primary, replica, "w")
    checks.that("without a copy of the rest",
                state(replica)[b"entries_fetched"] <= fetched + 1 and state(primary)[b"entries_fetched"] == before,
                fetched, before, state(replica), state(primary))


with Folder() as folder:
    primary = Node(folder, "primary", engine, **SETTINGS)
    test_sync(folder, primary)
    replica = Node(folder, "replica", engine, replicaof="127.0.0.1 %d" % primary.port, **SETTINGS)
    checks.that("the replica is attached", attached(primary, replica))
    test_writes(primary, replica)
    test_failover(primary, replica)
checks.end()
