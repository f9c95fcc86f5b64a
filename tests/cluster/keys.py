"""keys.py ENGINE - keys of vector sets and caches are keys of the engine: DEL, RENAME, COPY, EXPIRE, FLUSHALL, MULTI, Lua,
databases, permissions, wrong types; and restarts: from an RDB, from an AOF, after kill -9, from neither."""
import ctypes
import os
import pathlib
import platform
import socket
import struct
import sys
import time

import redis

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from nodes import Checks, Folder, Node, add, eventually, leave, vector  # noqa: E402
from resp_client import request  # noqa: E402

engine = sys.argv[1]
checks = Checks()


def fill(client, key, n, first=0):
    for i in range(first, first + n):
        add(client, key, i)


def failure_of(call):
    try:
        return call()
    except redis.exceptions.ResponseError as e:
        return str(e)


def near(client, key, i, k=3):
    return client.execute_command("VSIM", key, "VALUES", 8, *vector(i), "COUNT", k)


def digest(node, key, **more):
    return node.client(**more).execute_command("QUIRE.DIGEST", key)


def test_keys(node):
    c = node.client()
    checks.same("the first VADD makes the key", add(c, "v", 1), 1)
    checks.same("TYPE names the module's type", c.type("v"), b"quire-col")
    checks.same("EXISTS", c.exists("v"), 1)
    fill(c, "v", 40)
    checks.same("VCARD", c.execute_command("VCARD", "v"), 40)
    checks.same("VSIM finds the element itself", near(c, "v", 7, 1), [b"e7"])
    c.execute_command("VSEAL", "v")
    checks.same("and when it lies on the disk", near(c, "v", 7, 1), [b"e7"])
    checks.same("VREM of a sealed element", c.execute_command("VREM", "v", "e7"), 1)
    checks.same("is final", c.execute_command("VREM", "v", "e7"), 0)
    checks.same("a replaced element", add(c, "v", 8, "e9"), 0)
    c.set("s", "text")
    checks.error("VADD to a string", "WRONGTYPE", lambda: add(c, "s", 1))
    checks.error("GET of a set", "WRONGTYPE", lambda: c.get("v"))
    checks.error("SC.GET of a set", "WRONGTYPE", lambda: c.execute_command("SC.GET", "v", "CAT", "q", "HASH", "h"))
    before = digest(node, "v")
    c.rename("v", "w")
    checks.same("RENAME", (c.exists("v"), digest(node, "w")), (0, before))
    checks.same("COPY", c.copy("w", "x"), 1)
    checks.same("a copy is equal", digest(node, "x"), before)
    add(c, "x", 100)
    checks.that("and on its own", digest(node, "x") != digest(node, "w") == before)
    c.set("small", 1)
    checks.same("SET replaces a set", (c.set("x", "1"), c.get("x")), (True, b"1"))
    for i in range(3):
        add(c, "gone", i)
    for i in range(3):
        c.execute_command("VREM", "gone", "e%d" % i)
    checks.same("the VREM of the last element takes the key", c.exists("gone"), 0)
    add(c, "again", 1)
    c.execute_command("VSEAL", "again")
    c.execute_command("VREM", "again", "e1")
    checks.same("also where it is sealed", c.exists("again"), 0)
    checks.same("and the key can be made again", add(c, "again", 2), 1)
    add(c, "timed", 1)
    c.pexpire("timed", 50)
    time.sleep(0.2)
    checks.same("EXPIRE", (c.exists("timed"), near(c, "timed", 1)), (0, []))
    checks.same("DEL", (c.delete("w"), c.exists("w")), (1, 0))
    checks.same("a key that was deleted is empty", add(c, "w", 1), 1)
    checks.same("UNLINK", c.unlink("w"), 1)
    kept = node.info("deleted_kept")
    checks.error("a VADD that fails", "", lambda: c.execute_command("VADD", "none", "VALUES", 2, "x", 1, "e"))
    checks.same("leaves nothing", (c.exists("none"), node.info("deleted_kept")), (0, kept))
    checks.same("an unknown set has no hits", near(c, "none", 1), [])
    checks.that("MEMORY USAGE counts what is in memory", c.memory_usage("again") > 100)
    dump = c.dump("again")
    checks.error("a dump of a key that is there is refused", "", lambda: c.restore("other", 0, dump))
    c.delete("again")
    c.restore("other", 0, dump)
    checks.same("RESTORE of what was deleted", near(c, "other", 2, 1), [b"e2"])
    before = digest(node, "other")
    c.execute_command("DEBUG", "RELOAD")
    checks.same("DEBUG RELOAD", digest(node, "other"), before)
    checks.same("QUIRE.DIGEST of nothing", digest(node, "nothing"), None)
    checks.error("a manifest from a client", "engine's own files",
                 lambda: c.execute_command("QUIRE._MANIFEST", "k", "set", "0" * 32, 0))


def test_databases(node):
    c, d = node.client(db=0), node.client(db=3)
    c.flushall()
    add(c, "k", 1)
    add(d, "k", 2)
    checks.same("databases are apart", (near(c, "k", 1), near(d, "k", 1)), ([b"e1"], [b"e2"]))
    c.move("k", 5)
    checks.same("MOVE", (c.exists("k"), near(node.client(db=5), "k", 1)), (0, [b"e1"]))
    c.execute_command("SWAPDB", 3, 0)
    checks.same("SWAPDB", near(c, "k", 1), [b"e2"])
    c.flushdb()
    checks.same("FLUSHDB", (c.exists("k"), near(node.client(db=5), "k", 1)), (0, [b"e1"]))
    c.execute_command("FLUSHALL", "ASYNC")
    checks.same("FLUSHALL ASYNC", node.client(db=5).exists("k"), 0)


def test_transactions(node):
    c = node.client()
    fill(c, "m", 30)
    c.execute_command("VSEAL", "m")
    p = c.pipeline(transaction=True)
    p.execute_command("VADD", "m", "VALUES", 8, *vector(3), "e3")
    p.execute_command("VREM", "m", "e4")
    p.execute_command("VSIM", "m", "VALUES", 8, *vector(3), "COUNT", 1)
    p.execute_command("VCARD", "m")
    p.set("beside", "1")
    checks.same("MULTI: writes to sealed elements, and a search", p.execute(), [0, 1, [b"e3"], 29, True])
    p = c.pipeline(transaction=True)
    p.execute_command("VSEAL", "m")
    p.execute_command("VCARD", "m")
    checks.that("MULTI: what takes long is refused, the rest is run", "takes long" in str(p.execute(False)[0]))
    script = "return {redis.call('VADD', KEYS[1], 'VALUES', 2, 1, 0, 'a'), redis.call('VSIM', KEYS[1], 'ELE', 'a')}"
    checks.same("Lua", c.eval(script, 1, "lua"), [1, [b"a"]])
    watcher = node.client().pipeline()
    watcher.watch("m")
    add(c, "m", 3)
    watcher.multi()
    watcher.set("beside", "2")
    try:
        watcher.execute()
        checks.that("WATCH sees a VADD", False)
    except redis.exceptions.WatchError:
        checks.that("WATCH sees a VADD", True)


def send_and_go(node, *words):
    with socket.create_connection(("127.0.0.1", node.port)) as s:
        s.sendall(request(*words))


def test_clients_that_go(node):
    c = node.client()
    make_cache(c, "waited")
    c.execute_command("SC.GET", "waited", "CAT", "q", "HASH", "asked")
    for _ in range(20):
        send_and_go(node, "SC.GET", "waited", "CAT", "q", "HASH", "asked", "WAIT", 300000)
        send_and_go(node, "VSIM", "m", "VALUES", 8, *vector(3), "COUNT", 30)
    checks.that("who waits for an answer and goes is forgotten",
                eventually(lambda: node.info("commands_under_way") == 0), node.info("commands_under_way"))
    for i in range(10):
        key = "left%d" % i
        add(c, key, 1)
        c.execute_command("VSEAL", key)
        send_and_go(node, "VREM", key, "e1")
    checks.that("a write whose client has gone is made whole: its key goes",
                eventually(lambda: not c.keys("left*")), c.keys("left*"))
    c.delete("waited")


def test_clients_that_go_from_a_queue(folder):
    node = Node(folder, "queue", engine, save="", quire_lanes=1, quire_searches_in_flight=1)
    c = node.client()
    fill(c, "k", 2000)
    c.execute_command("VSEAL", "k")
    questions = b"".join(request("VSIM", "k", "ELE", "e%d" % (7 * i), "COUNT", 10) for i in range(50))
    checks.that("searches that wait while their clients go end", leave(node, questions))
    node.kill()


def test_permissions(node):
    c = node.client()
    add(c, "p", 1)
    add(c, "q", 1)
    c.execute_command("ACL", "SETUSER", "anna", "on", "nopass", "~p", "+vsim", "+vadd", "+sc.list")
    anna = node.client(username="anna", password="x")
    checks.same("a user reads its keys", near(anna, "p", 1), [b"e1"])
    for call in (lambda: near(anna, "q", 1), lambda: add(anna, "q", 2)):
        try:
            call()
            checks.that("and no other", False)
        except redis.exceptions.ResponseError as e:
            checks.that("and no other", "permission" in str(e).lower(), str(e))
    docs = c.execute_command("COMMAND", "INFO", "VSIM", "VADD")
    checks.that("COMMAND INFO has flags and keys", b"readonly" in str(docs).encode() and "write" in str(docs), docs)
    c.execute_command("SC.CREATE", "p:c", "DIM", 4)
    c.execute_command("SC.CREATE", "q:c", "DIM", 4)
    checks.same("SC.LIST", sorted(c.execute_command("SC.LIST")), [b"p:c", b"q:c"])
    c.execute_command("ACL", "SETUSER", "anna", "~p:*")
    checks.same("SC.LIST shows what the user may read", anna.execute_command("SC.LIST"), [b"p:c"])
    checks.same("DEL of a cache", (c.delete("q:c"), c.execute_command("SC.LIST")), (1, [b"p:c"]))
    checks.same("SC.DROP takes the key", (c.execute_command("SC.DROP", "p:c"), c.exists("p:c")), (1, 0))
    checks.error("a cache that is not there", "no such cache 'p:c'",
                 lambda: c.execute_command("SC.GET", "p:c", "CAT", "q", "HASH", "h"))


def make_cache(c, name):
    c.execute_command("SC.CREATE", name, "DIM", 4)
    c.execute_command("SC.CAT.SET", name, "q", "SIM", "0.9", "JITTER", "0")
    c.execute_command("SC.PUT", name, "CAT", "q", "VEC", b"\0\0\x80\x3f" + b"\0" * 12, "HASH", "h", "VALUE", "answer")


def cached(c, name):
    reply = c.execute_command("SC.GET", name, "CAT", "q", "HASH", "h")
    return dict(zip(reply[::2], reply[1::2])).get(b"value")


def test_restarts(folder):
    """Whatever the engine saves, what was answered is there again."""
    for name, settings in (("rdb", {"save": "3600 1", "appendonly": "no"}), ("aof", {"save": "", "appendonly": "yes"}),
                           ("none", {"save": "", "appendonly": "no"})):
        node = Node(folder, "restart-" + name, engine, quire_appendfsync="always", **settings)
        c = node.client()
        fill(c, "a", 30)
        make_cache(c, "cache")
        c.set("text", "1")
        c.copy("a", "b")
        add(c, "b", 99)
        c.rename("b", "c")
        add(c, "deleted", 1)
        c.delete("deleted")
        c.execute_command("VSEAL", "a")
        add(c, "a", 31)
        keys, a, b = sorted(c.keys()), digest(node, "a"), digest(node, "c")
        if name != "none":
            node.stop()
            node.start()
            checks.same(name + ": the same keys after a restart", sorted(node.client().keys()), keys)
        else:
            time.sleep(2)  # answers of caches are synced every second, whatever appendfsync says (docs/cache.md)
        checks.same(name + ": the same set", digest(node, "a"), a)
        node.kill()
        node.start()
        c = node.client()
        wanted = keys if name != "none" else [key for key in keys if key != b"text"]
        checks.same(name + ": the same keys after kill -9", sorted(c.keys()), wanted)
        checks.same(name + ": the same sets after kill -9", (digest(node, "a"), digest(node, "c")), (a, b))
        checks.same(name + ": the same cache", cached(c, "cache"), b"answer")
        add(c, "late", 5)
        c.rename("a", "moved")
        c.copy("c", "c2")
        node.kill()
        node.start()
        c = node.client()
        checks.same(name + ": what was made after the last save", near(c, "late", 5, 1), [b"e5"])
        have = sorted(c.keys())
        if name == "rdb":  # as with any key of the engine: the RDB has the old name
            checks.that("rdb: a rename after the last save is undone, nothing is lost",
                        digest(node, "a") == a and digest(node, "c2") == b, have)
        else:
            checks.that(name + ": a rename is kept", digest(node, "moved") == a and b"a" not in have, have)
            checks.same(name + ": a copy is kept", digest(node, "c2"), b)
        c.flushall()
        node.kill()
        node.start()
        checks.same(name + ": what was flushed stays so", node.client().keys(), [])
        node.kill()


def test_removal(folder):
    """Files of deleted keys go when no save on the disk names them."""
    node = Node(folder, "removal", engine, save="3600 100000")
    c = node.client()
    for k in range(3):
        fill(c, "k%d" % k, 20)
        c.execute_command("VSEAL", "k%d" % k)
    c.save()
    c.delete("k0")
    time.sleep(1.5)
    checks.same("deleted data stays before a save", (node.info("deleted_kept"), node.info("deleted_removed")), (1, 0))
    node.kill()
    node.start()
    c = node.client()
    checks.same("and comes back with an older RDB", near(c, "k0", 1, 1), [b"e1"])
    c.delete("k0")
    c.bgsave()
    checks.that("it goes after BGSAVE", eventually(lambda: node.info("deleted_kept") == 0, 15),
                node.info("deleted_kept"))
    c.flushall()
    c.save()
    checks.that("and after SAVE", eventually(lambda: node.info("segments") == 0, 15), node.client().info("quire"))
    node.stop()
    aof = Node(folder, "removal-aof", engine, save="", appendonly="yes")
    c = aof.client()
    fill(c, "k", 20)
    c.delete("k")
    checks.that("with an AOF it goes when the deletion is synced",
                eventually(lambda: aof.info("deleted_removed") == 1, 15), aof.client().info("quire"))
    aof.stop()


def test_refusals(folder):
    node = Node(folder, "evicts", engine, start=False, maxmemory="100mb", maxmemory_policy="allkeys-lru")
    node.start(wait=False)
    node.process.wait(20)
    checks.that("allkeys-* is refused", "maxmemory-policy must be" in node.log(), node.log(5))
    node = Node(folder, "prefix", engine, quire_prefix="Q.", repl_diskless_sync_delay=0)
    c = node.client()
    checks.same("quire.prefix", c.execute_command("Q.VADD", "k", "VALUES", 2, 1, 0, "a"), 1)
    checks.error("without it there is no such command", "unknown command",
                 lambda: c.execute_command("VADD", "k", "VALUES", 2, 1, 0, "a"))
    checks.same("CONFIG GET", c.config_get("quire.prefix"), {"quire.prefix": "Q."})
    checks.same("CONFIG SET of what may change", c.config_set("quire.appendfsync", "always"), True)
    checks.error("CONFIG SET of a wrong value", "appendfsync", lambda: c.config_set("quire.appendfsync", "often"))
    replica = Node(folder, "replica", engine, replicaof="127.0.0.1 %d" % node.port, quire_prefix="Q.")
    checks.that("the replica is attached", eventually(lambda: node.info("replicas") == 1, 30), replica.log(10))
    checks.same("writes to sets, with a replica", c.execute_command("Q.VADD", "k", "VALUES", 2, 1, 0, "b"), 1)
    checks.same("and to caches", c.execute_command("Q.SC.CREATE", "cache", "DIM", 4), b"OK")
    checks.that("a replica has both", eventually(lambda: isinstance(failure_of(
        lambda: replica.client().execute_command("Q.SC.INFO", "cache")), list)), replica.log(10))
    checks.error("a replica is not written to", "read only replica",
                 lambda: replica.client().execute_command("Q.VADD", "k", "VALUES", 2, 1, 0, "c"))
    replica.kill()
    checks.that("without a replica all is as before", eventually(lambda: node.info("replicas") == 0, 30))


def forbid_resources():
    """As Debian's unit does: the kernel ends a process that changes priorities, schedulers or affinities."""
    allow, kill, number = 0x7fff0000, 0x80000000, 0x20
    calls = [141, 142, 144, 203, 237, 238, 251, 256, 279, 314]  # of x86-64, in systemd's @resources
    program = [struct.pack("HBBI", number, 0, 0, 0)]
    for i, call in enumerate(calls):
        program.append(struct.pack("HBBI", 0x15, len(calls) - i, 0, call))
    program += [struct.pack("HBBI", 6, 0, 0, allow), struct.pack("HBBI", 6, 0, 0, kill)]
    code = ctypes.create_string_buffer(b"".join(program))
    head = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(38, 1, 0, 0, 0) != 0 or libc.prctl(22, 2, head, 0, 0) != 0:
        os._exit(99)


def test_filter(folder):
    if platform.machine() != "x86_64":
        print("skipped: the numbers of system calls are those of x86-64")
        return
    node = Node(folder, "filter", engine, start=False, quire_memtable_memory="64kb")
    node.start(before=forbid_resources)
    c = node.client()
    fill(c, "k", 500)
    c.execute_command("VSEAL", "k")
    fill(c, "k", 100)
    c.execute_command("VCOMPACT", "k")
    c.bgsave()
    checks.same("under Debian's filter of system calls", near(c, "k", 7, 1), [b"e7"])
    try:
        node.stop()
        checks.that("and to its end", True)
    except RuntimeError as e:
        checks.that("and to its end", False, str(e))


def test_backup(folder):
    node = Node(folder, "backup", engine)
    c = node.client()
    fill(c, "k", 25)
    make_cache(c, "cache")
    c.set("text", "kept")
    wanted = digest(node, "k")
    to = folder.path + "/copy"
    checks.same("QUIRE.BACKUP", c.execute_command("QUIRE.BACKUP", to), b"OK")
    checks.error("a folder that is there", "make", lambda: c.execute_command("QUIRE.BACKUP", to))
    checks.error("a relative path", "absolute", lambda: c.execute_command("QUIRE.BACKUP", "copy"))
    add(c, "k", 26)
    copy = Node(folder, "copy", engine)
    checks.same("a backup is a folder to start from", digest(copy, "k"), wanted)
    elsewhere = Node(folder, "elsewhere", engine)
    dump = c.dump("k")
    try:
        elsewhere.client().restore("k", 0, dump)
        checks.that("a dump is refused where its data is not", False)
    except redis.exceptions.ResponseError:
        checks.same("a dump is refused where its data is not", elsewhere.client().exists("k"), 0)
    checks.same("with all keys of the engine", (copy.client().get("text"), cached(copy.client(), "cache")),
                (b"kept", b"answer"))


with Folder() as folder:
    first = Node(folder, "first", engine)
    test_keys(first)
    test_databases(first)
    test_transactions(first)
    test_clients_that_go(first)
    test_permissions(first)
    first.stop()
    test_clients_that_go_from_a_queue(folder)
    test_restarts(folder)
    test_removal(folder)
    test_refusals(folder)
    test_backup(folder)
    test_filter(folder)
checks.end()
