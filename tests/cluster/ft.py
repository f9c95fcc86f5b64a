"""ft.py ENGINE [KILLS] [SEED] [PART...] - FT.* and JSON.* of quire.so in an engine: what tests/search asks of quire-server, asked of the
engine; then what is the engine's about them: databases, transactions, scripts, permissions, RENAME and the like, restarts
from an AOF, an RDB, both and neither, kill -9, a store that is older than the keys, replicas, an RDB that is moved."""
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import threading
import time

import redis

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from nodes import BUILD, Checks, Folder, Node, eventually, leave  # noqa: E402
from resp_client import request  # noqa: E402

engine = sys.argv[1]
n_kills = int(sys.argv[2]) if len(sys.argv) > 2 else 4
seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
checks = Checks()
DIM = 16
SCHEMA = ("SCHEMA", "g", "TAG", "n", "NUMERIC", "v", "VECTOR", "FLAT", 6, "TYPE", "FLOAT32", "DIM", DIM, "DISTANCE_METRIC",
          "L2")
SEARCH = pathlib.Path(__file__).resolve().parent.parent / "search"
# following: engines remove keys whose time is over when they come to them;
# shapes: CLIENT SETINFO came with Redis 7.2; walls: users of engines are bound to no tenants, and Redis 7.0 has no
# categories for commands of modules
SCRIPTS = {"shapes": "arrays_for_glide", "definitions": "", "refusals": "", "json_commands": "",
           "following": "over_a_restart keys_that_expire", "together": "", "walls": "bound_to_a_tenant without_the_command"}


def blob(vector):
    return struct.pack("<%df" % len(vector), *vector)


def vector_of(i, version):
    pick = random.Random("%d %d" % (i, version))
    return [pick.random() for _ in range(DIM)]


def found(client, query, *more, index="i"):
    reply = client.execute_command("FT.SEARCH", index, query, "NOCONTENT", "LIMIT", 0, 100000, *more, "DIALECT", 2)
    return sorted(reply[1:])


def nearest(client, vector, k=1, index="i"):
    """The keys and distances of the documents nearest to a vector."""
    reply = client.execute_command("FT.SEARCH", index, "*=>[KNN %d @v $q AS d]" % k, "PARAMS", 2, "q", blob(vector), "RETURN",
                                   1, "d", "DIALECT", 2)
    return [(key, float(fields[1])) for key, fields in zip(reply[1::2], reply[2::2])]


def create(client, index="i", prefix="d:"):
    return client.execute_command("FT.CREATE", index, "PREFIX", 1, prefix, *SCHEMA)


def write(client, numbers, version):
    pipeline = client.pipeline(transaction=False)
    for i in numbers:
        pipeline.hset("d:%d" % i, mapping={"g": "g%d" % ((i + version) % 5), "n": i * 1000 + version,
                                           "v": blob(vector_of(i, version))})
    pipeline.execute()


def agrees(client, what, index="i", sample=150):
    """Whether the index has what the hashes are, and nothing else."""
    keys = sorted(client.keys("d:*"))
    pipeline = client.pipeline(transaction=False)
    for key in keys:
        pipeline.hgetall(key)
    hashes = {key: value for key, value in zip(keys, pipeline.execute()) if value}
    wrong = []
    if found(client, "*", index=index) != keys:
        wrong.append(("all", len(found(client, "*", index=index)), len(keys)))
    for tag in sorted({h[b"g"] for h in hashes.values()} | {b"g0", b"g1"}):
        right = [key for key in keys if hashes[key][b"g"] == tag]
        seen = found(client, "@g:{%s}" % tag.decode(), index=index)
        wrong += [(tag, len(seen), len(right))] if seen != right else []
    for key in random.Random(seed).sample(keys, min(sample, len(keys))):
        h = hashes[key]
        number = h[b"n"].decode()
        if found(client, "@n:[%s %s]" % (number, number), index=index) != [key]:
            wrong.append((key, number))
        seen = nearest(client, struct.unpack("<%df" % DIM, h[b"v"]), index=index)
        if seen != [(key, 0.0)]:
            wrong.append((key, seen))
    return checks.that("%s (%d documents)" % (what, len(keys)), not wrong, len(wrong), wrong[:4])


def scripts(folder):
    node = Node(folder, "scripts", engine, appendonly="yes")
    for name, skip in SCRIPTS.items():
        work = os.path.join(folder.path, "work-" + name)
        os.mkdir(work)
        more = dict(os.environ, QUIRE_PORT=str(node.port), QUIRE_PID=str(node.process.pid), QUIRE_WORK=work,
                    QUIRE_ENGINE=engine, QUIRE_SKIP_PARTS=skip, PYTHONDONTWRITEBYTECODE="1")
        done = subprocess.run(["/usr/bin/python3", str(SEARCH / (name + ".py"))], env=more, capture_output=True, text=True)
        lines = done.stdout.splitlines()
        n = sum(line.startswith("ok") for line in lines)
        bad = [line for line in lines if line.startswith(("FAIL", "    |"))]
        checks.that("tests/search/%s.py: %d checks" % (name, n), n > 0 and done.returncode == 0, bad[:6], done.stderr[-500:])
    node.kill()
    words = ["/usr/bin/python3", str(SEARCH / "answers.py"), "--build-dir", BUILD, "--engine", engine]
    done = subprocess.run(words, capture_output=True, text=True)
    last = [line for line in done.stdout.splitlines() if line.startswith(("ok", "FAIL", "skip"))]
    checks.that("tests/search/answers.py: " + "; ".join(last), done.returncode == 0 and last, done.stdout[-1500:], done.stderr)


def keys_of_the_engine(folder):
    node = Node(folder, "keys", engine, appendonly="yes")
    c, other = node.client(), node.client(db=1)
    create(c)
    c.hset("d:1", "g", "red")
    other.hset("d:2", "g", "red")
    checks.same("documents are those of database 0", found(c, "@g:{red}"), [b"d:1"])
    checks.same("asked from another database, too", found(other, "@g:{red}"), [b"d:1"])
    checks.error("FT.CREATE in another database", "Cannot create index on db != 0", lambda: create(other, "x"))
    other.move("d:2", 0)
    checks.same("MOVE into it", found(c, "@g:{red}"), [b"d:1", b"d:2"])
    c.move("d:2", 1)
    checks.same("MOVE out of it", found(c, "@g:{red}"), [b"d:1"])
    c.copy("d:1", "d:9", 2)
    checks.same("COPY into another", found(c, "@g:{red}"), [b"d:1"])
    c.swapdb(0, 1)
    checks.same("SWAPDB", found(c, "@g:{red}"), [b"d:2"])
    c.swapdb(1, 0)
    checks.same("and back", found(c, "@g:{red}"), [b"d:1"])
    other.flushdb()
    checks.same("FLUSHDB of another", (found(c, "*"), c.execute_command("FT._LIST")), ([b"d:1"], [b"i"]))
    c.set("s", "x")
    c.rename("s", "d:1")
    checks.same("RENAME of a string over a document", found(c, "*"), [])
    c.sadd("set", "a", "b")
    c.hset("d:3", "g", "red")
    c.sunionstore("d:3", "set")
    checks.same("SUNIONSTORE over one", found(c, "*"), [])
    pipeline = c.pipeline()
    pipeline.hset("d:4", "g", "red").execute_command("FT.SEARCH", "i", "@g:{red}", "NOCONTENT")
    pipeline.delete("d:4").execute_command("FT.SEARCH", "i", "@g:{red}", "NOCONTENT")
    checks.same("in MULTI a write is found by what follows", pipeline.execute(), [1, [1, b"d:4"], 1, [0]])
    seen = c.eval("redis.call('HSET', 'd:5', 'g', 'lua'); return redis.call('FT.SEARCH', 'i', '@g:{lua}', 'NOCONTENT')", 0)
    checks.same("in Lua as well", seen, [1, b"d:5"])
    pipeline = c.pipeline()
    pipeline.execute_command("FT.CREATE", "m", "PREFIX", 1, "m:", "SCHEMA", "g", "TAG").hset("m:1", "g", "x")
    pipeline.execute_command("FT.SEARCH", "m", "*", "NOCONTENT").execute_command("FT.DROPINDEX", "m", "DD").exists("m:1")
    checks.same("FT.CREATE and FT.DROPINDEX DD in MULTI", pipeline.execute(), [b"OK", 1, [1, b"m:1"], b"OK", 0])
    long = "d:" + "x" * 65534
    c.hset(long, "g", "red")
    c.hset("d:7", "g", "red")
    checks.same("a key that is longer than documents may have is in no index", found(c, "@g:{red}"), [b"d:7"])
    c.delete(long)
    c.execute_command("DEBUG", "SET-ACTIVE-EXPIRE", 0)
    c.hset("d:8", mapping={"g": "red", "v": blob(vector_of(8, 0))})
    c.pexpire("d:8", 1)
    time.sleep(0.02)
    checks.same("what is over is not shown, if it was not removed yet",
                [key for key, _ in nearest(c, vector_of(8, 0), 5)], [])
    checks.same("and has gone then", found(c, "*"), [b"d:5", b"d:7"])
    c.execute_command("DEBUG", "SET-ACTIVE-EXPIRE", 1)
    c.hset("d:7", "g", "blue")
    dump = c.dump("d:7")
    c.delete("d:7")
    c.restore("d:7", 0, dump)
    checks.same("DUMP and RESTORE", found(c, "@g:{blue}"), [b"d:7"])
    c.execute_command("JSON.SET", "d:7x", "$", '{"g":"j"}')
    c.execute_command("FT.CREATE", "j", "ON", "JSON", "PREFIX", 1, "d:", "SCHEMA", "$.g", "AS", "g", "TAG")
    eventually(lambda: found(c, "*", index="j") == [b"d:7x"])
    c.rename("d:7x", "d:7")
    checks.same("a JSON document over a hash", (found(c, "@g:{blue}"), found(c, "@g:{j}", index="j")), ([], [b"d:7"]))
    c.copy("d:5", "d:7", replace=True)
    checks.same("and a hash over that", (found(c, "@g:{lua}"), found(c, "*", index="j")), ([b"d:5", b"d:7"], []))
    c.execute_command("DEBUG", "RELOAD")
    checks.same("DEBUG RELOAD", (sorted(c.execute_command("FT._LIST")), found(c, "@g:{lua}")),
                ([b"i", b"j"], [b"d:5", b"d:7"]))
    c.execute_command("FT.ALIASADD", "also", "i")
    c.flushall()
    checks.same("FLUSHALL drops indexes", c.execute_command("FT._LIST"), [])
    checks.error("and their names", "Unknown index name", lambda: found(c, "*", index="also"))
    c.execute_command("JSON.SET", "doc", "$", '{"a":1}')
    c.expire("doc", 100)
    c.execute_command("JSON.NUMINCRBY", "doc", "$.a", 1)
    checks.that("a change of a JSON document leaves its expiry", 0 < c.ttl("doc") <= 100, c.ttl("doc"))
    listener = c.pubsub()
    c.config_set("notify-keyspace-events", "KEA")
    listener.psubscribe("__keyevent@0__:*")
    listener.get_message(timeout=5)
    c.execute_command("JSON.SET", "doc", "$.b", 2)
    seen = listener.get_message(timeout=5)
    checks.same("its events are published", seen and (seen["channel"], seen["data"]), (b"__keyevent@0__:json.set", b"doc"))
    pipeline = c.pipeline()
    pipeline.watch("doc")
    node.client().execute_command("JSON.SET", "doc", "$.b", 3)
    pipeline.multi()
    pipeline.get("doc")
    try:
        pipeline.execute()
        checks.that("WATCH sees a change of it", False)
    except redis.exceptions.WatchError:
        checks.that("WATCH sees a change of it", True)
    c.execute_command("ACL", "SETUSER", "anna", "on", ">x", "+@all", "~mine:*")
    anna = node.client(username="anna", password="x")
    checks.error("JSON.MSET of another's key", "permissions to access",
                 lambda: anna.execute_command("JSON.MSET", "mine:1", "$", 1, "doc", "$", 1))
    checks.error("JSON.MGET of it", "permissions to access", lambda: anna.execute_command("JSON.MGET", "mine:1", "doc", "$"))
    checks.same("and of its own", anna.execute_command("JSON.MSET", "mine:1", "$", 1, "mine:2", "$", 1), b"OK")
    node.kill()


def back_fills(folder):
    node = Node(folder, "fill", engine, save="", appendonly="no")
    c = node.client()
    for first in range(0, 20000, 2000):
        write(c, range(first, first + 2000), 0)
    create(c)
    write(c, range(500), 1)  # meanwhile
    c.delete(*("d:%d" % i for i in range(19000, 20000)))
    checks.that("a back-fill ends", eventually(
        lambda: dict(zip(*[iter(c.execute_command("FT.INFO", "i"))] * 2))[b"indexing"] == 0, 60))
    agrees(c, "after a back-fill under writes")
    c.execute_command("FT.ALTER", "i", "SCHEMA", "ADD", "more", "TAG")
    c.hset("d:5", "more", "yes")
    checks.same("a field that FT.ALTER added", found(c, "@more:{yes}"), [b"d:5"])
    c.execute_command("CONFIG", "SET", "quire.maxmemory", "1mb")
    eventually(lambda: False, 1.2)  # the store looks some times a second
    write(c, range(30000, 30200), 0)
    short = len(found(c, "*"))
    checks.that("what the store cannot take is in no index", short < 19200, short)
    checks.same("and INFO says so", node.info("documents_owed"), 1)
    c.execute_command("CONFIG", "SET", "quire.maxmemory", "0")
    checks.that("until it can", eventually(lambda: len(found(c, "*")) == 19200, 30), len(found(c, "*")))
    agrees(c, "then all are there")
    node.kill()


def clients_that_go(folder):
    node = Node(folder, "gone", engine, save="", quire_lanes=1, quire_searches_in_flight=1)
    c = node.client()
    create(c)
    write(c, range(3000), 0)
    questions = b"".join(request("FT.SEARCH", "i", "*=>[KNN 10 @v $q]", "PARAMS", 2, "q", blob(vector_of(i, 0)), "DIALECT", 2)
                         + request("FT.AGGREGATE", "i", "*", "LOAD", 1, "@n", "GROUPBY", 1, "@g") for i in range(20))
    checks.that("searches that wait while their clients go end", leave(node, questions))
    checks.that("and nothing is left of them", eventually(lambda: node.info("commands_under_way") == 0))
    agrees(node.client(), "the index is what it was", sample=20)
    backup = os.path.join(folder.path, "backup")
    checks.same("QUIRE.BACKUP", node.do("QUIRE.BACKUP", backup), b"OK")
    eventually(lambda: os.path.exists(os.path.join(backup, "dump.rdb")))
    node.kill()
    copy = Node(folder, "backup", engine, save="", appendonly="no")
    agrees(copy.client(), "a backup has the index and its documents", sample=40)
    copy.kill()


def restarts(folder):
    for name, settings in (("AOF", {"appendonly": "yes", "save": ""}), ("RDB", {"appendonly": "no", "save": "3600 1"})):
        node = Node(folder, "restart-" + name, engine, quire_memtable_memory="128kb", **settings)
        c = node.client()
        create(c)
        c.execute_command("FT.ALIASADD", "also", "i")
        write(c, range(3000), 0)
        c.execute_command("JSON.SET", "doc", "$", '{"a":[1.5,2,3,4,5,6,7,8,9]}')
        if name == "RDB":
            c.save()
        write(c, range(1000, 2000), 1)
        c.delete(*("d:%d" % i for i in range(100)))
        write(c, range(3000, 3200), 0)
        agrees(c, name + ": before")
        node.stop()
        node.start()
        c = node.client()
        agrees(c, name + ": after SIGTERM and a start")
        checks.same(name + ": the alias and the JSON document are there",
                    (len(found(c, "*", index="also")), c.execute_command("JSON.GET", "doc")),
                    (3100, b'{"a":[1.5,2,3,4,5,6,7,8,9]}'))
        write(c, range(2000, 2500), 2)
        c.delete(*("d:%d" % i for i in range(100, 200)))
        time.sleep(1.2 if name == "AOF" else 0)
        node.kill()
        node.start()
        c = node.client()
        agrees(c, name + ": after kill -9 and a start")
        checks.same(name + ": it has what the engine has", c.exists("d:150"), int(name == "RDB"))
        older_store(node, name)
        node.kill()


def older_store(node, name):
    """The store of some time ago beside the keys of now: rows that are other documents', old vectors, and none."""
    quire, aside = os.path.join(node.path, "quire"), os.path.join(node.path, "aside")
    node.stop()
    shutil.copytree(quire, aside)
    node.start()
    c = node.client()
    write(c, range(500, 1500), 7)
    c.delete(*("d:%d" % i for i in range(2500, 2700)))
    write(c, range(5000, 5300), 7)
    node.stop()
    shutil.rmtree(quire)
    os.rename(aside, quire)
    node.start()
    agrees(node.client(), name + ": with a store that is older than the keys", sample=400)
    node.stop()
    node.start()
    agrees(node.client(), name + ": and once more")


def kills(folder):
    rng = random.Random(seed)
    print("seed %d" % seed)
    for name, settings in (("always", {"appendonly": "yes", "appendfsync": "always", "quire_appendfsync": "no"}),
                           ("everysec", {"appendonly": "yes", "save": ""}), ("RDB", {"appendonly": "no", "save": "1 100"})):
        node = Node(folder, "kill-" + name, engine, quire_memtable_memory="128kb", **settings)
        c = node.client()
        create(c)
        for turn in range(n_kills):
            rounds = []
            writer = threading.Thread(target=write_until_killed, args=(node.client(), turn, rounds))
            writer.start()
            if not eventually(lambda: rounds, 20):
                checks.that("%s: it writes before kill %d" % (name, turn), False)
            if name == "RDB":
                try:
                    node.client().bgsave()  # of what is there after the kill
                except redis.exceptions.ResponseError:
                    pass  # one is under way
            time.sleep(0.05 + 0.6 * rng.random())
            node.kill()
            writer.join()
            node.start()
            agrees(node.client(), "%s: kill -9 under writes, %d" % (name, turn), sample=40)
        node.kill()


def write_until_killed(c, turn, rounds):
    rng, version = random.Random(turn), 10 * turn
    try:
        while True:
            version += 1
            first = rng.randrange(3000)
            write(c, range(first, first + 100), version)
            c.delete(*("d:%d" % rng.randrange(3000) for _ in range(20)))
            rounds.append(version)
    except redis.exceptions.RedisError:
        pass


def other_ways(folder):
    """With a prefix of commands; an AOF of commands; MIGRATE."""
    node = Node(folder, "prefix", engine, appendonly="yes", aof_use_rdb_preamble="no", quire_prefix="Q.")
    c = node.client()
    text = b'{"g":"red","l":[1.5,2,3,4,5,6,7,8,9],"s":"\\"\xc3\xa9"}'
    c.execute_command("Q.JSON.SET", "doc", "$", text)
    c.execute_command("Q.FT.CREATE", "j", "ON", "JSON", "SCHEMA", "$.g", "AS", "g", "TAG")
    c.execute_command("Q.FT.CREATE", "i", "PREFIX", 1, "d:", "SCHEMA", "g", "TAG")
    c.hset("d:1", "g", "red")

    def looks():
        return (c.execute_command("Q.JSON.GET", "doc"), c.execute_command("Q.FT.SEARCH", "i", "@g:{red}", "NOCONTENT"))
    checks.same("with quire.prefix", looks(), (text, [1, b"d:1"]))
    c.bgrewriteaof()
    eventually(lambda: c.info("persistence")["aof_rewrite_in_progress"] == 0 == c.info("persistence")["aof_rewrite_scheduled"])
    files = os.path.join(node.path, "appendonlydir")
    written = b"".join(open(os.path.join(files, name), "rb").read() for name in os.listdir(files))
    checks.that("a rewritten AOF has documents as commands, and no definitions", b"Q.JSON.SET" in written
                and b"FT.CREATE" not in written.upper())
    node.kill()
    node.start()
    c = node.client()
    checks.same("it is read", looks(), (text, [1, b"d:1"]))
    checks.that("and indexed", eventually(lambda: c.execute_command("Q.FT.SEARCH", "j", "@g:{red}", "NOCONTENT") == [1, b"doc"]))
    other = Node(folder, "target", engine)
    checks.same("MIGRATE", c.execute_command("MIGRATE", "127.0.0.1", other.port, "doc", 0, 5000), b"OK")
    checks.same("of a JSON document", (other.do("JSON.GET", "doc"), c.exists("doc"),
                                       c.execute_command("Q.FT.SEARCH", "j", "*", "NOCONTENT")), (text, 0, [0]))
    other.kill()
    node.kill()


def replicas(folder):
    node = Node(folder, "primary", engine, save="", repl_diskless_sync_delay=0)
    replica = Node(folder, "replica", engine, save="")
    c, r = node.client(), replica.client()
    create(c)
    write(c, range(500), 0)
    c.execute_command("JSON.SET", "j:1", "$", '{"a":1}')
    replica.do("REPLICAOF", "127.0.0.1", node.port)
    checks.that("a replica syncs", eventually(lambda: r.info("replication")["master_link_status"] == "up"))
    agrees(r, "a replica has the indexes of its primary, and documents")
    write(c, range(400, 700), 1)
    c.execute_command("FT.CREATE", "j", "ON", "JSON", "PREFIX", 1, "j:", "SCHEMA", "$.a", "AS", "a", "NUMERIC")
    c.execute_command("JSON.NUMINCRBY", "j:1", "$.a", 6)
    c.delete("d:0", "d:1")
    checks.same("WAIT", c.wait(1, 5000), 1)
    agrees(r, "what is written on the primary is found on the replica")
    checks.that("JSON documents, too", eventually(lambda: found(r, "@a:[7 7]", index="j") == [b"j:1"]),
                r.execute_command("JSON.GET", "j:1"))
    checks.error("a replica makes no indexes itself", "read only replica", lambda: create(r, "own"))
    c.execute_command("FT.DROPINDEX", "i", "DD")
    c.wait(1, 5000)
    checks.same("FT.DROPINDEX DD", (r.execute_command("FT._LIST"), r.keys("d:*")), ([b"j"], []))
    node.kill()
    replica.do("REPLICAOF", "NO", "ONE")
    create(r)
    write(r, range(50), 3)
    agrees(r, "after the replica was promoted")
    r.save()
    moved = Node(folder, "moved", engine, start=False)
    shutil.copy(os.path.join(replica.path, "dump.rdb"), os.path.join(moved.path, "dump.rdb"))
    moved.start()
    agrees(moved.client(), "an RDB elsewhere has the indexes")
    moved.do("FT.DROPINDEX", "i")
    time.sleep(0.1)  # everysec: what is older than some milliseconds outlives the process
    moved.kill()
    moved.start()
    checks.same("an index that was dropped after the RDB was saved stays dropped", moved.do("FT._LIST"), [b"j"])
    moved.kill()
    replica.kill()


PARTS = {part.__name__: part for part in (scripts, keys_of_the_engine, back_fills, clients_that_go, restarts, kills,
                                          other_ways, replicas)}
with Folder() as folder:
    for name in sys.argv[4:] or PARTS:
        PARTS[name](folder)
checks.end()
