"""joins.py ENGINE N SEED - a replica that is killed (kill -9) while it copies and follows: at N places of the protocol, counted
in what its primary has sent (so an answer, a piece of a segment, a part of the RDB or of the stream), spread over a whole
join; half of them once more while it goes on. It goes on or begins anew, and both are equal in the end. Then a byte of each
file of a segment (of one of them below 40 kills) is changed on the primary's disk: such a segment is never adopted, also not
after a restart, and is when the byte is as it was."""
import glob
import os
import random
import shutil
import sys
import threading
import time

import redis
from nodes import Checks, Folder, Node, add, eventually, make_cache, put
from proxy import Proxy

engine, n_kills, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
checks = Checks()
rng = random.Random(seed)
print("seed %d" % seed)
KEYS, EQUAL_S, SEGMENTS, ROWS, ANSWERS, MANY = ("v", "w", "t"), 60, 5, 700, 2000, 40
SETTINGS = {"save": "", "appendonly": "no", "repl_diskless_sync_delay": 0, "quire_memtable_memory": "64mb",
            "repl_backlog_size": "64mb"}


def digests(node):
    try:
        c = node.client(socket_timeout=EQUAL_S)  # an answer that never comes is a failure
        return {key: c.execute_command("QUIRE.DIGEST", key) for key in sorted(c.keys())}
    except redis.exceptions.RedisError as e:
        return "%s: %s" % (node.name, e)


def is_whole(node):
    try:
        reply = node.do("QUIRE.REPLICATION")
        state = dict(zip(reply[::2], reply[1::2]))
        return state[b"may_be_elected"] == b"yes" and not state[b"sets"] and \
            node.client().info("replication")["master_link_status"] == "up"
    except redis.exceptions.RedisError:
        return False


def equal(one, other):
    return eventually(lambda: isinstance(seen := digests(one), dict) and seen == digests(other), EQUAL_S)


def fill(c, key, first, last):
    with c.pipeline(transaction=False) as p:
        for i in range(first, last):
            if key == "t":
                p.execute_command("VADD", "t", "VALUES", 2, i, 1, "e%d" % i, "TENANT", "acme" if i % 3 else "bolt")
            else:
                add(p, key, i)
        p.execute()


class Counter:
    """Counts what comes from the primary; at the place `kill_at` the replica is killed, before that is passed on."""

    def __init__(self, replica):
        self.replica, self.n, self.kill_at, self.lock, self.where = replica, 0, None, threading.Lock(), ""

    def __call__(self, data, from_primary, connection):
        if not from_primary:
            return data
        with self.lock:
            self.n += 1
            if self.n == self.kill_at:
                self.where = "segment" if connection.asks_pieces else "answer" if connection.asks else "link"
                self.replica.kill()
                return None
        return data


def write_on(c, turn):
    """What the stream and further segments have while it joins."""
    for key in ("v", "w"):
        fill(c, key, 10000 + turn * 40, 10040 + turn * 40)
        c.execute_command("VREM", key, "e%d" % rng.randrange(ROWS))
        c.execute_command("VSETATTR", key, "e%d" % (10001 + turn * 40), '{"n":%d}' % turn)
    c.execute_command("VSEAL", "v")
    for i in range(20):
        put(c, "c", rng.randrange(2 * ANSWERS))
    if turn % 5 == 4:
        c.execute_command("VCOMPACT", "v")


def forget(replica, all_of_it=True):
    """Its data; with the engine's file it begins with a full synchronisation, beside that it goes on in the stream."""
    shutil.rmtree(os.path.join(replica.path, "quire"), ignore_errors=True)
    if all_of_it and os.path.exists(os.path.join(replica.path, "dump.rdb")):
        os.remove(os.path.join(replica.path, "dump.rdb"))


def join(primary, replica, counter, turn, kill_at):
    """A start of the replica beside writes; ends when it is whole, or has been killed. Whether it was."""
    counter.n, counter.kill_at = 0, kill_at
    replica.start(wait=False)
    thread = threading.Thread(target=write_on, args=(primary.client(socket_timeout=EQUAL_S), turn))
    thread.start()
    until = time.time() + EQUAL_S
    while replica.process.poll() is None and time.time() < until and not (thread.is_alive() is False and is_whole(replica)
                                                                          and digests(primary) == digests(replica)):
        time.sleep(0.05)
    thread.join()
    return replica.process.poll() is not None


def folders(replica):
    """Of segments: nothing stays of fetches that were broken off, and of sets that were copied anew."""
    return len(os.listdir(os.path.join(replica.path, "quire", "segments")))


def test_kills(primary, replica, proxy):
    counter = proxy.harm = Counter(replica)
    join(primary, replica, counter, 0, None)
    whole = counter.n
    checks.that("a join is %d pieces from the primary" % whole, whole > 30 and equal(primary, replica), whole)
    replica.kill()
    where, missed, unequal, again = {}, 0, [], 0
    for n in range(n_kills):
        if n % 4 != 3:  # else it goes on with what it had, which is little: it follows, and fetches what is new
            forget(replica, n % 4 != 2)
        place = 1 + n * whole // n_kills if n % 4 != 3 else 1 + rng.randrange(12)
        killed = join(primary, replica, counter, n + 1, place)
        where[counter.where if killed else "over"] = where.get(counter.where if killed else "over", 0) + 1
        missed += not killed
        replica.kill()
        if n % 2:  # once more, on its way to go on
            again += join(primary, replica, counter, n + 1, 1 + rng.randrange(max(whole // 2, 2)))
            replica.kill()
        counter.kill_at = None
        replica.start()
        if not equal(primary, replica) or not eventually(lambda: is_whole(replica), 20):
            unequal.append((n, place, digests(primary), digests(replica), replica.log(15)))
            break
        eventually(lambda: replica.info("segments") == primary.info("segments"), 20)
        if not eventually(lambda: folders(replica) == replica.info("segments"), 30):
            unequal.append((n, place, "%d folders of segments, %d segments" % (folders(replica), replica.info("segments"))))
        replica.kill()
    checks.same("%d kills while it joins (%s), %d more while it went on: it is equal in the end each time" % (
        n_kills - missed, ", ".join("%s %d" % item for item in sorted(where.items())), again), unequal, [])
    checks.that("nearly all were before it was whole", missed <= n_kills // 4, missed)
    proxy.harm = None
    replica.start()
    checks.that("equal", equal(primary, replica))


def flip(path, at):
    with open(path, "r+b") as f:
        f.seek(at)
        byte = f.read(1)
        f.seek(at)
        f.write(bytes([byte[0] ^ (1 << rng.randrange(8))]))


def test_disk(primary, replica):
    """A byte of a file that the primary has, and sends."""
    c = primary.client()
    replica.kill()
    fill(c, "x", 0, 400)
    for i in range(0, 400, 2):
        c.execute_command("VSETATTR", "x", "e%d" % i, '{"n":%d}' % i)
    before = set(glob.glob(primary.path + "/quire/segments/*"))
    c.execute_command("VSEAL", "x")
    folder = (set(glob.glob(primary.path + "/quire/segments/*")) - before).pop()
    files = sorted(name for name in os.listdir(folder) if os.path.getsize(os.path.join(folder, name)) > 0)
    checks.that("a segment has files", len(files) >= 4, files)
    for name in files if n_kills >= MANY else [rng.choice(files)]:
        path = os.path.join(folder, name)
        with open(path, "rb") as f:
            right = f.read()
        at = rng.randrange(len(right))
        flip(path, at)
        forget(replica)
        replica.start()
        damaged = eventually(lambda: replica.info("segments_damaged") >= 2, 30)
        seen = failure_of(replica, "x")
        checks.that("%s, byte %d of %d: it is noticed, and not taken" % (name, at, len(right)),
                    damaged and "being copied" in seen, replica.info("segments_damaged"), seen)
        checks.that("%s: other sets are whole" % name, eventually(
            lambda: all(digest(replica, key) == digest(primary, key) for key in KEYS), 30))
        replica.kill()
        replica.start()
        checks.that("%s: nor after a restart" % name, "being copied" in failure_of(replica, "x"), failure_of(replica, "x"))
        with open(path, "r+b") as f:
            f.write(right)
        checks.that("%s: it is taken when it is right" % name, equal(primary, replica), digests(primary), digests(replica))
        replica.kill()


def digest(node, key):
    try:
        return node.do("QUIRE.DIGEST", key)
    except redis.exceptions.RedisError as e:
        return str(e)


def failure_of(node, key):
    return str(digest(node, key))


with Folder() as folder:
    primary = Node(folder, "primary", engine, **SETTINGS)
    proxy = Proxy(primary.port)
    c = primary.client()
    c.execute_command("VCREATE", "t", "DIM", 2, "TENANTS")
    for key in KEYS:
        for i in range(SEGMENTS if key == "v" else 2):
            fill(c, key, i * ROWS, (i + 1) * ROWS)
            c.execute_command("VSEAL", key)
    fill(c, "w", 50000, 50200)
    make_cache(c, "c")
    with c.pipeline(transaction=False) as p:
        for i in range(ANSWERS):
            put(p, "c", i)
        p.execute()
    replica = Node(folder, "replica", engine, start=False, replicaof="127.0.0.1 %d" % proxy.port, **SETTINGS)
    test_kills(primary, replica, proxy)
    test_disk(primary, replica)
    proxy.close()
checks.end()
