"""replicas.py ENGINE [PART...] - a primary with replicas: equal digests after all that writes, full syncs with segments beside the
stream, restarts of each, a change of roles, segments that are damaged on their way, a version that is not known, TLS.
Without a part (PARTS) all of them."""
import os
import pathlib
import random
import shutil
import socket
import subprocess
import sys
import threading
import time

import redis
from nodes import BUILD, Checks, Folder, Node, add, eventually, free_port, vector
from proxy import (EndAfterCopy, Exchange, Proxy, cut_pieces, flip_pieces, newer_images, newer_keys, newer_writes,
                   other_ids)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from resp_client import request  # noqa: E402

engine = sys.argv[1]
checks = Checks()
EQUAL_S = 30
REPORTED, REPORTS = 60, 20  # sets that reports list; reports in one go


def digest(node, key, db=0):
    try:
        return node.client(db=db).execute_command("QUIRE.DIGEST", key)
    except redis.exceptions.RedisError as e:
        return str(e)


def failure_of(call):
    try:
        return call()
    except redis.exceptions.RedisError as e:
        return str(e)


def state(node):
    reply = node.do("QUIRE.REPLICATION")
    return {reply[i].decode(): reply[i + 1] for i in range(0, len(reply), 2)}


def is_whole(node):
    s = state(node)
    return s["may_be_elected"] == b"yes" and not s["sets"] and s["primary_link"] == b"up"


def same(what, primary, replica, *keys):
    equal = eventually(lambda: all(digest(primary, key) == digest(replica, key) for key in keys), EQUAL_S)
    checks.that(what, equal, [(key, digest(primary, key), digest(replica, key)) for key in keys] if not equal else "")


def fill(client, key, first, last):
    with client.pipeline(transaction=False) as p:
        for i in range(first, last):
            add(p, key, i)
        p.execute()


def pair(folder, name, **more):
    settings = {"save": "", "appendonly": "yes", "repl_diskless_sync_delay": 0, "quire_memtable_memory": "256kb"}
    settings.update(more)
    primary = Node(folder, name + "-primary", engine, **settings)
    replica = Node(folder, name + "-replica", engine, replicaof="127.0.0.1 %d" % primary.port, **settings)
    checks.that(name + ": the replica is attached", eventually(lambda: primary.info("replicas") == 1, 30))
    return primary, replica


def test_writes(primary, replica):
    c = primary.client()
    fill(c, "v", 0, 300)
    checks.same("WAIT counts writes of sets", c.wait(1, 2000), 1)
    checks.same("what was counted is there", digest(replica, "v"), digest(primary, "v"))
    c.execute_command("VSEAL", "v")
    for i in range(0, 60, 2):
        c.execute_command("VREM", "v", "e%d" % i)
    for i in range(1, 60, 2):
        c.execute_command("VSETATTR", "v", "e%d" % i, '{"n":%d}' % i)
    fill(c, "v", 250, 400)
    same("replacements, removals, attributes of sealed elements", primary, replica, "v")
    c.execute_command("VSEAL", "v")
    c.execute_command("VCOMPACT", "v")
    fill(c, "v", 390, 500)
    c.execute_command("VDELWHERE", "v", "FILTER", ".n < 20")
    same("seals, merges, VDELWHERE", primary, replica, "v")
    checks.that("segments come to the replica", eventually(lambda: state(replica)["segments_fetched"] > 0))
    near = c.execute_command("VSIM", "v", "VALUES", 8, *vector(333), "COUNT", 5)
    checks.same("a search answers the same", replica.do("VSIM", "v", "VALUES", 8, *vector(333), "COUNT", 5), near)
    c.execute_command("VCREATE", "t", "DIM", 8, "TENANTS")
    for i in range(40):
        c.execute_command("VADD", "t", "VALUES", 8, *vector(i), "e%d" % i, "TENANT", "acme" if i % 2 else "bolt")
    c.execute_command("VGRANT", "t", "e1", "bolt")
    c.execute_command("VGRANT", "t", "e3", "bolt")
    c.execute_command("VSEAL", "t")
    c.execute_command("VREVOKE", "t", "e3", "acme")
    same("tenants", primary, replica, "t")
    c.execute_command("VDROPTENANT", "t", "bolt")
    same("a tenant that is dropped", primary, replica, "t")
    checks.same("VTENANTS", replica.do("VTENANTS", "t"), c.execute_command("VTENANTS", "t"))


def test_load(folder, primary, replica):
    """An index that was built elsewhere is a segment that is nowhere else: the replica is not whole before it has it."""
    quire = os.path.join(BUILD, "quire")
    here = folder.path + "/imports"
    subprocess.run([quire, "gen", "--rows", "2000", "--dim", "8", "--clusters", "20", "--intrinsic", "4", "--queries", "0",
                    "--metric", "cosine", "--out", "base"], cwd=here, check=True, capture_output=True)
    with open(here + "/keys", "w") as f:
        f.writelines("item:%d\n" % i for i in range(2000))
    subprocess.run([quire, "build", "--base", "base.fbin", "--keys", "keys", "--metric", "cosine", "--out", "items"],
                   cwd=here, check=True, capture_output=True)
    c = primary.client()
    c.execute_command("VLOAD", "items", "items")
    same("VLOAD makes a set", primary, replica, "items")
    fill(c, "more", 0, 50)
    c.execute_command("VADD", "more", "VALUES", 8, *vector(1), "item:7")
    c.execute_command("VLOAD", "more", "items")
    c.execute_command("VREM", "more", "item:8")
    same("VLOAD into a set, over a name that it has", primary, replica, "more")
    checks.same("with all elements", replica.do("VCARD", "more"), c.execute_command("VCARD", "more"))


def test_keys(primary, replica):
    c, r = primary.client(), replica.client()
    before = digest(primary, "v")
    c.rename("v", "w")
    checks.that("RENAME", eventually(lambda: digest(replica, "w") == before and not r.exists("v")))
    c.copy("w", "v")
    fill(c, "v", 900, 910)
    same("COPY, and writes to the copy", primary, replica, "v", "w")
    checks.that("they are two", digest(replica, "v") != digest(replica, "w"))
    p = c.pipeline(transaction=True)
    for i in range(20):
        add(p, "m", i)
    p.execute_command("VREM", "m", "e3")
    p.execute_command("VREM", "v", "e333")
    p.execute()
    c.eval("redis.call('VADD', KEYS[1], 'VALUES', 2, 1, 0, 'a'); redis.call('VREM', KEYS[2], 'e5')", 2, "lua", "m")
    same("MULTI and Lua", primary, replica, "m", "v", "lua")
    c.pexpire("lua", 50)
    checks.that("EXPIRE", eventually(lambda: not r.exists("lua")))
    add(c, "gone", 1)
    c.execute_command("VREM", "gone", "e1")
    checks.that("the VREM of the last element takes the key", eventually(lambda: not r.exists("gone")))
    dump = c.dump("m")
    c.delete("m")
    c.restore("back", 0, dump)
    add(c, "back", 70)
    same("RESTORE of what was deleted", primary, replica, "back")
    c.move("back", 5)
    c.execute_command("SWAPDB", 5, 6)
    checks.that("MOVE and SWAPDB", eventually(lambda: digest(replica, "back", 6) == digest(primary, "back", 6)))
    c.set("text", "1")
    checks.error("a replica is not written to", "read only replica", lambda: add(r, "v", 1))
    for words in (("QUIRE._W", "v", "0" * 32, "x"), ("QUIRE._IMAGE", "v", "0" * 32, "x")):
        checks.error("%s is not for clients" % words[0], "stream from a primary", lambda: c.execute_command(*words))
    node_count = r.execute_command("VSIM", "v", "VALUES", 8, *vector(3), "COUNT", 1000)
    checks.that("no element twice", len(node_count) == len(set(node_count)), len(node_count))


def test_restarts(primary, replica):
    replica.kill()
    fill(primary.client(), "v", 1000, 1040)
    replica.start()
    same("a replica that was killed", primary, replica, "v", "w")
    replica.stop()
    fill(primary.client(), "v", 1040, 1060)
    replica.start()
    same("a replica that was stopped", primary, replica, "v", "w")
    fetched = state(replica)["bytes_fetched"]
    primary.kill()
    primary.start()
    fill(primary.client(), "v", 1060, 1080)
    same("a primary that was killed", primary, replica, "v", "w")
    primary.stop()
    primary.start()
    fill(primary.client(), "v", 1080, 1090)
    same("a primary that was stopped", primary, replica, "v", "w")
    checks.same("nothing is fetched twice", state(replica)["bytes_fetched"], fetched)
    primary.client().config_set("client-output-buffer-limit", "replica 1gb 1gb 60")
    primary.client().execute_command("CLIENT", "KILL", "TYPE", "replica")
    fill(primary.client(), "v", 1090, 1110)
    same("a link that was cut", primary, replica, "v", "w")


def test_roles(primary, replica):
    """The replica takes the lead; the old primary, which wrote on, comes back as its replica."""
    rng = random.Random(1)
    with primary.client().pipeline(transaction=False) as p:
        for i in range(4000):  # with long attributes: large is what has many bytes, rows are dear to seal
            p.execute_command("VADD", "big", "VALUES", 8, *vector(i), "e%d" % i, "SETATTR",
                              '{"t":"%s"}' % rng.randbytes(500).hex())
        p.execute()
    primary.do("VSEAL", "big")
    same("a large set", primary, replica, "big", "v")
    # without the segment it would seal the rows itself when it leads, and the other would have to fetch that
    eventually(lambda: is_whole(replica) and replica.info("segments") == primary.info("segments"), 30)
    replica.do("REPLICAOF", "NO", "ONE")
    fill(replica.client(), "v", 2000, 2010)
    for i in range(3000, 3005):
        add(primary.client(), "v", i)
    primary.do("VREM", "v", "e1006")
    primary.do("REPLICAOF", "127.0.0.1", replica.port)
    same("the old primary has what the new one has", replica, primary, "v", "big", "w")
    lost = primary.do("QUIRE.LOST", "v")
    checks.same("QUIRE.LOST names what it had alone", (lost[0], sorted(lost[1:])),
                (5, sorted(b"e%d" % i for i in range(3000, 3005))))
    checks.same("and nothing where nothing is lost", primary.do("QUIRE.LOST", "big")[0], 0)
    checks.that("the new primary seals and merges", replica.do("VSEAL", "v") is not None)
    fill(replica.client(), "v", 2010, 2050)
    replica.do("VCOMPACT", "v")
    same("and its replica follows", replica, primary, "v")
    eventually(lambda: is_whole(primary), 30)
    primary.kill()
    primary.settings["replicaof"] = "127.0.0.1 %d" % replica.port
    primary.start()
    same("also when it starts as one", replica, primary, "v", "big")
    bytes_all = replica.info("disk_bytes")
    checks.that("it fetches 5 %% of the data at most (%d of %d bytes)" % (state(primary)["bytes_fetched"], bytes_all),
                state(primary)["bytes_fetched"] <= bytes_all // 20)


def test_roles_in_a_seal(folder):
    """A primary is made a replica while it seals: what it has built is not taken, or rows would be there twice. The seal
    takes longer than it is given; who waits for it is told of the change."""
    primary, replica = pair(folder, "seal", quire_memtable_memory="64mb", quire_build_threads=1)
    sealed = []
    for turn in range(4):
        fill(primary.client(), "v", 0, 2500)
        eventually(lambda: is_whole(replica), 30)
        same("before turn %d" % turn, primary, replica, "v")
        thread = threading.Thread(target=lambda c: sealed.append(failure_of(lambda: c.execute_command("VSEAL", "v"))),
                                  args=(primary.client(),))
        thread.start()
        time.sleep(0.02 + 0.05 * turn)
        replica.do("REPLICAOF", "NO", "ONE")
        primary.do("REPLICAOF", "127.0.0.1", replica.port)
        thread.join()
        primary, replica = replica, primary
        fill(primary.client(), "v", 0, 200)
        for i in range(200, 400):
            primary.do("VREM", "v", "e%d" % i)
        same("turn %d: equal after it" % turn, primary, replica, "v")
        names = replica.do("VSIM", "v", "VALUES", 8, *vector(3), "COUNT", 1000)
        checks.same("turn %d: no element twice" % turn, len(names), len(set(names)))
    checks.that("it was in a seal", any("instance state changed" in str(reply) for reply in sealed), sealed)
    primary.kill()
    replica.kill()


def test_sync(folder):
    """A full sync of segments takes long: the replica says so, and is not to be elected."""
    primary, replica = pair(folder, "sync", quire_ship_rate=200000)
    replica.stop()
    c = primary.client()
    for first in range(0, 8000, 2000):
        fill(c, "v", first, first + 2000)
        c.execute_command("VSEAL", "v")
    fill(c, "v", 8000, 8100)
    for path in ("quire", "appendonlydir"):
        subprocess.run(["rm", "-rf", os.path.join(replica.path, path)], check=True)
    replica.settings["cluster_replica_no_failover"] = "no"
    replica.start()
    checks.that("the link is up while segments come", eventually(
        lambda: replica.client().info("replication")["master_link_status"] == "up" and not is_whole(replica), 10))
    seen = str(digest(replica, "v"))
    checks.that("commands answer TRYAGAIN", "being copied" in seen and " of " in seen, seen)
    checks.same("it is not to be elected", replica.client().config_get("cluster-replica-no-failover"),
                {"cluster-replica-no-failover": "yes"})
    add(c, "v", 9000)
    c.execute_command("VREM", "v", "e17")
    c.execute_command("VREM", "v", "e8050")
    replica.client().config_set("quire.ship-rate", 0)
    same("what was written meanwhile is there in the end", primary, replica, "v")
    checks.that("then it is whole", eventually(lambda: is_whole(replica), 20), state(replica))
    checks.same("and can be elected again", (replica.client().config_get("cluster-replica-no-failover"),
                                             replica.client().config_get("replica-priority")),
                ({"cluster-replica-no-failover": "no"}, {"replica-priority": "100"}))
    third = Node(folder, "sync-third", engine, save="", replicaof="127.0.0.1 %d" % replica.port,
                 repl_diskless_sync_delay=0)
    same("a replica of a replica", primary, third, "v")
    add(c, "v", 9001)
    c.execute_command("VSEAL", "v")
    add(c, "v", 9002)
    same("follows, too", primary, third, "v")
    for node in (primary, replica, third):
        node.kill()


def test_rows_in_memory(folder):
    """A full sync with many rows in memory, which the thread that fetches puts there; what is written meanwhile is done
    after that."""
    primary, replica = pair(folder, "memory", quire_memtable_memory="64mb")
    replica.stop()
    c, stop = primary.client(), threading.Event()
    for first in range(0, 20000, 1000):
        fill(c, "v", first, first + 1000)

    def write():
        own, i = primary.client(), 0
        while not stop.is_set():
            fill(own, "v", 30000 + i, 30020 + i)
            own.execute_command("VREM", "v", "e%d" % i)
            i += 20

    thread = threading.Thread(target=write)
    thread.start()
    shutil.rmtree(replica.path + "/quire")
    shutil.rmtree(replica.path + "/appendonlydir", ignore_errors=True)
    replica.start()
    whole = eventually(lambda: is_whole(replica), EQUAL_S)
    stop.set()
    thread.join()
    checks.that("a full sync with 20,000 rows in memory, beside writes", whole, state(replica))
    same("and all that was written meanwhile", primary, replica, "v")
    checks.that("it was made of what the RDB had", state(replica)["sets_copied"] == 1 and
                "is copied anew" not in replica.log(), state(replica), replica.log(20))
    primary.kill()
    replica.kill()


def reports(wire):
    """Of REPORTS answers to QUIRE.REPLICATION, how many sets each lists. They are asked for at once and looked at as text,
    which is cheap: the more there are, the better are they caught while the list changes."""
    wire.sendall(request("QUIRE.REPLICATION") * REPORTS + request("PING"))
    data = b""
    while not data.endswith(b"+PONG\r\n"):
        some = wire.recv(1 << 20)
        if not some:
            raise OSError("the connection has ended")
        data += some
    lines, at, listed = data.split(b"\r\n"), 0, []
    for _ in range(REPORTS):
        if not lines[at].startswith(b"*"):
            raise ValueError("a report begins with %r" % lines[at])
        at = lines.index(b"sets", at) + 1
        listed.append(int(lines[at][1:]))
        at += 1 + 2 * listed[-1]  # a length and a text for each
    if lines[at:] != [b"+PONG", b""]:
        raise ValueError("behind the reports is %r" % lines[at:][:5])
    return listed


def test_report(folder):
    """QUIRE.REPLICATION while sets become whole: what it lists must not change between its length and its lines."""
    primary, replica = pair(folder, "report")
    replica.stop()
    c = primary.client()
    for i in range(REPORTED):
        fill(c, "v%d" % i, 0, 12)
        c.execute_command("VSEAL", "v%d" % i)
    replica.start()
    n, most, until = 0, 0, time.time() + 60
    with socket.create_connection(("127.0.0.1", replica.port), 5) as wire:
        try:
            while time.time() < until:
                listed = reports(wire)
                n, most = n + REPORTS, max(most, *listed)
                if n > 100 and not listed[-1] and replica.info("segments") == REPORTED:
                    break
                time.sleep(0.004)
            seen = None if most else "nothing was copied meanwhile"
        except (OSError, ValueError) as e:
            seen = str(e)
    checks.same("%d reports while up to %d sets were copied, each whole" % (n, most), seen, None)
    primary.kill()
    replica.kill()


def test_under_load(folder):
    """Full syncs beside writers and searches, again and again."""
    primary, replica = pair(folder, "load", quire_memtable_memory="128kb")
    stop, problems = threading.Event(), []

    def write(seed):
        c, rng = primary.client(), random.Random(seed)
        while not stop.is_set():
            i = rng.randrange(3000)
            try:
                if rng.random() < 0.2:
                    c.execute_command("VREM", "v", "e%d" % i)
                else:
                    add(c, "v", i)
            except redis.exceptions.RedisError as e:
                problems.append("write: %s" % e)
                return

    def search(seed):
        rng = random.Random(seed)
        while not stop.is_set():
            try:
                replica.do("VSIM", "v", "VALUES", 8, *vector(rng.randrange(3000)), "COUNT", 5)
            except (redis.exceptions.ConnectionError, redis.exceptions.BusyLoadingError):
                time.sleep(0.02)
            except redis.exceptions.ResponseError as e:
                if "being copied" not in str(e) and "about to give" not in str(e):
                    problems.append("search: %s" % e)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(3)] + [threading.Thread(target=search, args=(9,))]
    for thread in threads:
        thread.start()
    for _ in range(3):
        time.sleep(0.7)
        replica.kill()
        replica.start()
        eventually(lambda: is_whole(replica), 20)
    primary.client().bgsave()
    time.sleep(0.5)
    stop.set()
    for thread in threads:
        thread.join()
    checks.same("full syncs under load: no write and no search goes wrong", problems[:3], [])
    same("and the copy is equal (%d seals, %d merges)" % (primary.info("seals"), primary.info("merges")), primary,
         replica, "v")
    primary.kill()
    replica.kill()


def test_damage(folder):
    primary, replica = pair(folder, "damage")
    proxy = Proxy(primary.port)
    replica.stop()
    replica.settings["replicaof"] = "127.0.0.1 %d" % proxy.port
    replica.start()
    c = primary.client()
    fill(c, "v", 0, 500)
    same("through a wire", primary, replica, "v")
    proxy.harm = flip_pieces
    c.execute_command("VSEAL", "v")
    checks.that("a damaged segment is asked for again", eventually(lambda: replica.info("segments_damaged") >= 3, 20))
    checks.that("and reported after 3 times", eventually(lambda: "came damaged 3 times" in replica.log(), 10))
    checks.same("it is never taken", replica.info("segments"), 0)
    c.execute_command("VREM", "v", "e7")
    same("the copy is whole without it", primary, replica, "v")
    proxy.harm = None
    checks.that("when the wire is sound it is taken", eventually(lambda: replica.info("segments") == 1, 30))
    proxy.harm = cut_pieces
    fill(c, "v", 500, 900)
    c.execute_command("VSEAL", "v")
    checks.that("a connection ends within a piece", eventually(lambda: proxy.harmed > 5, 10))
    checks.same("a truncated segment is not taken", replica.info("segments"), 1)
    proxy.harm = None
    checks.that("it is fetched again", eventually(lambda: replica.info("segments") == primary.info("segments"), 30))
    exchange = proxy.harm = Exchange()
    fill(c, "other", 0, 300)
    c.execute_command("VSEAL", "other")
    checks.that("a second set", eventually(lambda: replica.info("segments") == primary.info("segments"), 30))
    exchange.now = True
    damaged, segments = replica.info("segments_damaged"), replica.info("segments")
    fill(c, "other", 300, 900)
    c.execute_command("VSEAL", "other")
    checks.that("another segment than was asked for is noticed",
                eventually(lambda: replica.info("segments_damaged") > damaged, 20))
    checks.same("and not taken", replica.info("segments"), segments)
    same("the copy is whole without it, once more", primary, replica, "v", "other")
    proxy.harm = None
    checks.that("the right one is taken in the end",
                eventually(lambda: replica.info("segments") == primary.info("segments"), 30))
    same("and all is right", primary, replica, "v", "other")
    proxy.harm = newer_writes
    add(c, "v", 5000)
    checks.that("a write of an unknown version stops the copy", eventually(lambda: replica.info("sets_stopped") == 1, 10))
    proxy.harm = None
    add(c, "v", 5001)
    add(c, "other", 5001)
    checks.that("which says so", "not followed any more" in str(digest(replica, "v")), digest(replica, "v"))
    same("others go on", primary, replica, "other")
    checks.same("and the node is not to be elected", state(replica)["may_be_elected"], b"no")
    replica.stop()
    replica.start()
    same("after an upgrade it goes on", primary, replica, "v", "other")
    proxy.close()
    for node in (primary, replica):
        node.kill()


def test_names(folder):
    """The id under a key is the same on both: a COPY brings its data along, or a replica that takes the lead right after it
    would have a key without any; and a replica whose ids have come apart is told what the key is."""
    primary, replica = pair(folder, "names", quire_memtable_memory="64mb")
    proxy, c = Proxy(primary.port), primary.client()
    replica.do("REPLICAOF", "127.0.0.1", proxy.port)
    fill(c, "v", 0, 200)
    c.execute_command("VSEAL", "v")
    fill(c, "v", 200, 250)
    same("names: through a wire", primary, replica, "v")
    eventually(lambda: is_whole(replica), 20)
    proxy.harm = EndAfterCopy(proxy)
    c.copy("v", "copied")
    wanted = digest(primary, "copied")
    checks.that("COPY comes", eventually(lambda: proxy.harm.over and replica.client().exists("copied")))
    replica.do("REPLICAOF", "NO", "ONE")
    checks.that("with its data", eventually(lambda: digest(replica, "copied") == wanted, 5), digest(replica, "copied"), wanted)
    proxy.harm = None
    replica.do("REPLICAOF", "127.0.0.1", proxy.port)
    same("names: it follows again", primary, replica, "v", "copied")
    c.copy("copied", "v", replace=True)
    c.copy("v", "second", destination_db=3)
    same("copies of a copy", primary, replica, "v")
    checks.that("in another database", eventually(lambda: digest(replica, "second", 3) == digest(primary, "second", 3)))
    eventually(lambda: is_whole(replica), 20)
    proxy.harm = other_ids
    fill(c, "parted", 0, 60)
    c.execute_command("VCREATE", "orphan", "DIM", 8)
    other = primary.client(db=4)
    fill(other, "parted", 100, 130)
    checks.that("a key whose id came otherwise is not there", eventually(
        lambda: "being copied" in str(digest(replica, "parted")), 10), digest(replica, "parted"))
    checks.that("nor one of another name", eventually(lambda: replica.client().exists("0rphan") == 1, 10))
    proxy.harm = None
    same("the replica asks what the key is, and has it", primary, replica, "parted")
    checks.that("so in another database", eventually(
        lambda: digest(replica, "parted", 4) == digest(primary, "parted", 4), EQUAL_S), digest(replica, "parted", 4))
    checks.that("what the primary has not goes", eventually(lambda: not replica.client().exists("0rphan"), EQUAL_S))
    checks.that("and it says so", "What the key is on the primary is asked for" in replica.log())
    fill(c, "parted", 60, 90)
    same("it follows the key then", primary, replica, "parted")
    checks.that("the node can be elected again", eventually(lambda: is_whole(replica), 20), state(replica))
    proxy.harm = other_ids
    fill(c, "late", 0, 20)
    checks.that("once more", eventually(lambda: "being copied" in str(digest(replica, "late")), 10))
    replica.do("REPLICAOF", "NO", "ONE")
    seen = str(failure_of(lambda: replica.do("VCARD", "late")))
    checks.that("who leads without the data of a key says so, and nobody is told to wait",
                "is not in quire.dir" in seen and "TRYAGAIN" not in seen, seen)
    replica.do("DEL", "late")
    proxy.close()
    primary.kill()
    replica.kill()


def test_versions(folder):
    """A primary that is newer: what its replica does not know is refused with a sentence, and all is there with the newer
    module. A replica that is newer asks for what its primary does not know."""
    primary, replica = pair(folder, "versions", quire_memtable_memory="64mb", rdbcompression="no", rdbchecksum="no")
    proxy, c = Proxy(primary.port), primary.client()
    fill(c, "v", 0, 200)
    c.execute_command("VSEAL", "v")
    fill(c, "w", 0, 50)
    c.set("text", "1")
    replica.stop()

    def begin_anew(harm, wait=True):
        replica.kill()
        for path in ("quire", "appendonlydir", "dump.rdb"):
            subprocess.run(["rm", "-rf", os.path.join(replica.path, path)], check=True)
        proxy.harm = harm
        replica.settings["replicaof"] = "127.0.0.1 %d" % proxy.port
        replica.start(wait)

    begin_anew(newer_images)
    refused = ("not followed any more", "version 9")
    for key in ("v", "w"):
        checks.that("images of a newer version are refused: " + key, eventually(
            lambda: all(word in str(digest(replica, key)) for word in refused), 20), digest(replica, key))
    checks.same("other keys are there", (replica.client().get("text"), state(replica)["may_be_elected"]), (b"1", b"no"))
    c.copy("w", "x")
    checks.that("so is one in the stream", eventually(
        lambda: all(word in str(digest(replica, "x")) for word in refused), 20), digest(replica, "x"))
    add(c, "v", 300)
    replica.kill()
    proxy.harm = None
    replica.start()
    same("with the newer module all is copied", primary, replica, "v", "w", "x")
    begin_anew(newer_keys, False)
    # the engine ends where a module does not read a value of an RDB that came
    checks.that("an RDB of a newer version ends the replica", eventually(lambda: replica.process.poll() is not None, 20))
    checks.that("which says why", "saved by another version of the module (manifest 3, this one reads 2)" in replica.log(),
                replica.log(9))
    begin_anew(None)
    same("with the newer module that is read", primary, replica, "v", "w", "x")
    for words, why in ((("QUIRE._COPY", "0" * 32, "0", "v", "new"), "wrong number of arguments"),
                       (("QUIRE._READ", "0" * 32, "0" * 32, "meta", "0", "1", "zstd"), "wrong number of arguments"),
                       (("QUIRE._BLOCKS", "0" * 32), "unknown command")):
        checks.error("a question of a newer replica's is refused", why, lambda: c.execute_command(*words))
    proxy.close()
    primary.kill()
    replica.kill()


def test_tls(folder):
    files = folder.path + "/tls"
    os.makedirs(files)
    made = subprocess.run(
        "openssl req -x509 -newkey rsa:2048 -nodes -keyout key -out cert -days 2 -subj /CN=quire -batch", shell=True,
        cwd=files, capture_output=True)
    if made.returncode != 0:
        print("skipped: there is no openssl to make certificates")
        return
    tls = {"tls_cert_file": files + "/cert", "tls_key_file": files + "/key", "tls_ca_cert_file": files + "/cert",
           "tls_replication": "yes", "requirepass": "secret", "masterauth": "secret"}
    with_port = []
    for name in ("tls-primary", "tls-replica"):
        node = Node(folder, name, engine, start=False, save="", repl_diskless_sync_delay=0, **tls)
        with_port.append(node)
    primary, replica = with_port
    primary.settings["tls_port"] = free_port()
    replica.settings["replicaof"] = "127.0.0.1 %d" % primary.settings["tls_port"]
    for node in with_port:
        node.start()
    c = primary.client()
    fill(c, "v", 0, 300)
    c.execute_command("VSEAL", "v")
    same("TLS and a password", primary, replica, "v")
    checks.that("segments, too", eventually(lambda: replica.info("segments") == 1, 20), state(replica))
    for node in with_port:
        node.kill()


def settings_of(node, key):
    """What SC.CREATE and SC.CAT.SET have said; or why it is not told."""
    try:
        c = node.client()
        info = c.execute_command("SC.INFO", key)
        info = dict(zip(info[::2], info[1::2]))
        return ([(k, v) for k, v in sorted(info.items()) if k in (b"dim", b"type", b"encoder", b"memory", b"disk", b"scope", b"require_scope")],
                [(name, c.execute_command("SC.CAT.GET", key, name)) for name in c.execute_command("SC.CAT.LIST", key)])
    except redis.exceptions.RedisError as e:
        return str(e)


def answer_of(node, key, *scope):
    try:
        reply = node.do("SC.GET", key, "CAT", "q", *scope, "HASH", "h")
    except redis.exceptions.RedisError as e:
        return str(e)
    return dict(zip(reply[::2], reply[1::2])).get(b"value")


def test_caches(folder):
    """Settings of caches through a full sync, the stream, changes of the lead and restarts; of entries caches.py knows
    more."""
    settings = {"save": "", "appendonly": "yes", "repl_diskless_sync_delay": 0}
    vector_of = b"\0\0\x80\x3f" + b"\0" * 12
    primary = Node(folder, "caches-primary", engine, **settings)
    c = primary.client()
    c.execute_command("SC.CREATE", "synced", "DIM", 4)
    c.execute_command("SC.CAT.SET", "synced", "q", "SIM", "0.9", "GUARD", "number", "date", "TTL", "3600000")
    c.execute_command("SC.PUT", "synced", "CAT", "q", "VEC", vector_of, "HASH", "h", "VALUE", "old")
    replica = Node(folder, "caches-replica", engine, replicaof="127.0.0.1 %d" % primary.port, **settings)
    checks.that("caches: the replica is attached", eventually(lambda: primary.info("replicas") == 1, 60))
    c.execute_command("SC.CREATE", "streamed", "DIM", 4, "SCOPE", "tenant")
    for words in (("q", "RISK", "0.01", "TTLMAX", "200000000"), ("gone", "MODE", "exact"), ("*", "SIM", "0.8")):
        c.execute_command("SC.CAT.SET", "streamed", *words)
    c.execute_command("SC.CAT.SET", "streamed", "q", "STALE", "1000")
    c.execute_command("SC.CAT.DEL", "streamed", "gone")
    c.execute_command("SC.PUT", "streamed", "CAT", "q", "SCOPE", "tenant", "a", "VEC", vector_of, "HASH", "h", "VALUE", "x")
    add(c, "v", 1)
    same("caches: the stream has come", primary, replica, "v")
    checks.that("entries that were there before", eventually(lambda: answer_of(replica, "synced") == b"old"))
    wanted = {key: settings_of(primary, key) for key in ("synced", "streamed")}
    checks.that("the primary tells settings", all(not isinstance(w, str) and w[1] for w in wanted.values()), wanted)
    replica.do("REPLICAOF", "NO", "ONE")
    for key, scope in (("synced", ()), ("streamed", ("SCOPE", "tenant", "a"))):
        checks.same("the new primary has the settings of " + key, settings_of(replica, key), wanted[key])
        checks.that("and entries of it", answer_of(replica, key, *scope) in (b"old", b"x"), answer_of(replica, key, *scope))
    replica.do("SC.PUT", "synced", "CAT", "q", "VEC", vector_of, "HASH", "h", "VALUE", "new")
    checks.same("it serves what is put into it", answer_of(replica, "synced"), b"new")
    replica.do("SC.INVALIDATE", "synced", "ALL")
    primary.do("REPLICAOF", "127.0.0.1", replica.port)
    add(replica.client(), "v", 2)
    same("caches: the old primary follows", replica, primary, "v")
    primary.do("REPLICAOF", "NO", "ONE")
    checks.same("nothing that was invalidated comes back", answer_of(primary, "synced"), None)
    checks.same("the settings are there", settings_of(primary, "streamed"), wanted["streamed"])
    primary.kill()
    primary.start()
    checks.same("and after a restart", settings_of(primary, "streamed"), wanted["streamed"])
    primary.kill()
    replica.kill()


def test_pair(folder):
    os.makedirs(folder.path + "/imports")
    primary, replica = pair(folder, "pair", quire_memtable_memory="64mb", quire_import_dir=folder.path + "/imports")
    test_writes(primary, replica)
    test_load(folder, primary, replica)
    test_keys(primary, replica)
    test_restarts(primary, replica)
    test_roles(primary, replica)
    replica.client().flushall()
    checks.that("FLUSHALL", eventually(lambda: not primary.client().keys()), primary.client().keys())
    add(replica.client(), "v", 1)
    same("and a new set", replica, primary, "v")
    primary.kill()
    replica.kill()


PARTS = {"pair": test_pair, "seal": test_roles_in_a_seal, "sync": test_sync, "damage": test_damage, "names": test_names,
         "versions": test_versions, "memory": test_rows_in_memory, "report": test_report, "load": test_under_load,
         "tls": test_tls, "caches": test_caches}
with Folder() as folder:
    for part in sys.argv[2:] or PARTS:
        PARTS[part](folder)
checks.end()
