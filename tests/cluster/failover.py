"""failover.py ENGINE N SEED - a cluster of three primaries with a replica each: N times kill -9 of a primary under writes,
of which those that WAIT has confirmed must be on the new one; CLUSTER FAILOVER under writes loses nothing that was
answered; replicas, then primaries are restarted with the module of another file, as in an upgrade; a replica that is not
whole is not elected."""
import os
import random
import shutil
import subprocess
import sys
import threading
import time

import redis
from nodes import Checks, Folder, Node, add, eventually

engine, n_kills, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
KEY, WRITERS, NODE_TIMEOUT_MS = "v{a}", 3, 2000
ROLE_S = NODE_TIMEOUT_MS / 1000 + 10
ENDS = ("MOVED", "UNBLOCKED", "CLUSTERDOWN", "READONLY", "read only", "hands over")  # its lead; of the write nothing is known
checks = Checks()
rng = random.Random(seed)
print("seed %d" % seed)


def state(node):
    reply = node.do("QUIRE.REPLICATION")
    return {reply[i].decode(): reply[i + 1] for i in range(0, len(reply), 2)}


def is_primary(node):
    """For the cluster, not only by itself."""
    try:
        text = node.do("CLUSTER", "NODES")
        text = text.decode() if isinstance(text, bytes) else "\n".join("%s" % v["flags"] for v in text.values())
        return "myself,master" in text
    except redis.exceptions.RedisError:
        return False


def is_whole(node):
    try:
        s = state(node)
        return s["role"] == b"replica" and s["may_be_elected"] == b"yes" and not s["sets"] and \
            node.client().info("replication")["master_link_status"] == "up"
    except redis.exceptions.RedisError:
        return False


def digest(node, key=KEY):
    """READONLY first: a replica of a cluster answers for its primary's slots only then."""
    c = node.client(single_connection_client=True)
    try:
        c.execute_command("READONLY")
        return c.execute_command("QUIRE.DIGEST", key)
    except redis.exceptions.RedisError as e:
        return str(e)
    finally:
        c.close()


class Writers:
    """Each adds and removes elements of its own; knows of each whether it was confirmed, and since when."""

    def __init__(self, node, wait):
        self.node, self.wait, self.stop = node, wait, threading.Event()
        self.elements = [{} for _ in range(WRITERS)]  # name -> (is there, confirmed)
        self.answers = self.confirmed = 0

    def start(self, node):
        self.node, self.stop = node, threading.Event()
        self.threads = [threading.Thread(target=self.run, args=(n,)) for n in range(WRITERS)]
        for thread in self.threads:
            thread.start()

    def end(self):
        self.stop.set()
        for thread in self.threads:
            thread.join()

    def run(self, who):
        own, mine = random.Random(seed + who + self.answers), self.elements[who]
        c = self.node.client()
        while not self.stop.is_set():
            i = own.randrange(600)
            name, gone = "w%d-%d" % (who, i), own.random() < 0.25
            p = c.pipeline(transaction=False)
            if gone:
                p.execute_command("VREM", KEY, name)
            else:
                add(p, KEY, i + 1000 * own.randrange(50), name)
            if self.wait:
                p.execute_command("WAIT", 1, 100)
            mine[name] = (mine.get(name, (False, False))[0], False)
            try:
                reply = p.execute(raise_on_error=False)
            except redis.exceptions.RedisError:
                return
            if isinstance(reply[0], Exception):
                if any(words in str(reply[0]) for words in ENDS):
                    return
                raise reply[0]
            sure = not self.wait or reply[1] == 1
            mine[name] = (not gone, sure)
            self.answers += 1
            self.confirmed += sure

    def lost(self, node):
        """Confirmed writes that the node has not; what is not sure is looked up, for the next round."""
        lost, checked, c = [], 0, node.client()
        for mine in self.elements:
            names = list(mine)
            p = c.pipeline(transaction=False)
            for name in names:
                p.execute_command("VISMEMBER", KEY, name)
            for name, have in zip(names, p.execute()):
                there, sure = mine[name]
                checked += sure
                if sure and bool(have) != there:
                    lost.append((name, there))
                mine[name] = (bool(have), sure)
        return lost, checked


elected_at = [time.time()]  # when a primary was, the last time


def make_cluster(folder):
    nodes = [Node(folder, "node%d" % n, engine, cluster_enabled="yes", cluster_node_timeout=NODE_TIMEOUT_MS,
                  cluster_require_full_coverage="no", save="", appendonly="yes", repl_diskless_sync_delay=0,
                  repl_backlog_size="16mb", quire_memtable_memory="128kb") for n in range(6)]
    made = subprocess.run(["redis-cli", "--cluster", "create", *("127.0.0.1:%d" % node.port for node in nodes),
                           "--cluster-replicas", "1", "--cluster-yes"], capture_output=True, text=True)
    if made.returncode != 0:
        raise RuntimeError(made.stdout + made.stderr)
    eventually(lambda: all(node.do("CLUSTER", "INFO") and "cluster_state:ok" in str(node.do("CLUSTER", "INFO"))
                           for node in nodes) or all(node.client().cluster("info")["cluster_state"] == "ok"
                                                     for node in nodes), 30)
    return nodes


def find_shard(nodes):
    """The primary of KEY's slot, and its replica."""
    for node in nodes:
        if not is_primary(node):
            continue
        try:
            node.client().exists(KEY)
        except redis.exceptions.ResponseError:
            continue
        replicas = [other for other in nodes if other.process.poll() is None and not is_primary(other) and
                    other.client().info("replication").get("master_port") == node.port]
        if replicas:
            return node, replicas[0]
    return None


def wait_for(what, condition, seconds):
    began = time.time()
    done = eventually(condition, seconds)
    if not done:
        checks.that(what, False)
    return time.time() - began


def kill_once(nodes, writers, n):
    primary, replica = find_shard(nodes)
    wait_for("round %d: the replica is whole before it" % n, lambda: is_whole(replica), 30)
    writers.start(primary)
    how = ("idle", "in a seal", "in a merge", "in a save")[n % 4]
    time.sleep(0.5 + rng.random() * 0.7)
    beside = {"in a seal": ("VSEAL", KEY), "in a merge": ("VCOMPACT", KEY), "in a save": ("BGSAVE",)}.get(how)
    if beside:
        thread = threading.Thread(target=lambda: ignore(lambda: primary.do(*beside)))
        thread.start()
        time.sleep(rng.random() * 0.03)
    primary.kill()
    writers.end()
    if beside:
        thread.join()
    gap = wait_for("round %d: the replica is elected" % n, lambda: is_primary(replica), ROLE_S)
    elected_at[0] = time.time()
    eventually(lambda: ignore(lambda: add(replica.client(), KEY, 1, "after")) is not None, 10)
    lost, checked = writers.lost(replica)
    primary.start()
    wait_for("round %d: the old primary is a whole replica" % n, lambda: is_whole(primary), 30)
    equal = eventually(lambda: digest(primary) == digest(replica), 20)
    if not equal:
        print("FAIL - round %d, %s: %s %s" % (n, how, digest(primary), digest(replica)))
    return lost, checked, gap, equal


def ignore(call):
    try:
        return call()
    except redis.exceptions.RedisError:
        return None


def test_kills(nodes):
    writers, all_lost, all_checked, gaps, equal = Writers(None, True), [], 0, [], 0
    for n in range(n_kills):
        lost, checked, gap, same = kill_once(nodes, writers, n)
        all_lost += lost
        all_checked += checked
        gaps.append(gap)
        equal += same
    checks.same("%d kills of a primary: no write that WAIT has confirmed is lost (%d confirmed, %d looked at; a new primary "
                "after %.1f s at most)" % (n_kills, writers.confirmed, all_checked, max(gaps)), all_lost[:3], [])
    checks.same("and the old primary, a replica then, is equal each time", equal, n_kills)


def let_votes_be_old():
    """Votes of an election that is not this old are counted again (redis 7.0.15): the winner would have an old epoch."""
    time.sleep(max(elected_at[0] + NODE_TIMEOUT_MS / 1000 * 4 + 1 - time.time(), 0))


def test_planned(nodes):
    primary, replica = find_shard(nodes)
    eventually(lambda: is_whole(replica), 30)
    writers, lost = Writers(None, False), []
    for _ in range(2):
        let_votes_be_old()
        writers.start(primary)
        time.sleep(0.5)
        replica.do("CLUSTER", "FAILOVER")
        eventually(lambda: is_primary(replica) and not is_primary(primary), ROLE_S)
        elected_at[0] = time.time()
        writers.end()
        lost += writers.lost(replica)[0]
        add(replica.client(), KEY, 7, "turn")
        same = eventually(lambda: digest(primary) == digest(replica), 20)
        checks.that("CLUSTER FAILOVER: both are equal", same, digest(primary), digest(replica))
        eventually(lambda: is_whole(primary), 20)
        primary, replica = replica, primary
    checks.same("nothing that was answered is lost in planned failovers (%d answers)" % writers.answers, lost[:3], [])


def test_upgrade(folder, nodes):
    """The order of docs/cluster.md, under writes: the replica restarts with the new module, takes the lead, and the old
    primary restarts with it. Nothing that WAIT has confirmed is lost, and both are equal after each."""
    newer = os.path.join(folder.path, "newer.so")
    shutil.copy(nodes[0].module_file, newer)
    primary, replica = find_shard(nodes)
    eventually(lambda: is_whole(replica), 30)
    writers, lost, checked = Writers(None, True), [], 0
    writers.start(primary)
    replica.module_file = newer
    replica.stop()
    replica.start()
    checks.that("upgrade: the replica is whole with the new module", eventually(lambda: is_whole(replica), 30), state(replica))
    writers.end()
    let_votes_be_old()
    writers.start(primary)
    time.sleep(0.5)
    replica.do("CLUSTER", "FAILOVER")
    checks.that("upgrade: it takes the lead", eventually(lambda: is_primary(replica) and not is_primary(primary), ROLE_S))
    writers.end()
    n_lost, n = writers.lost(replica)
    lost, checked = lost + n_lost, checked + n
    writers.start(replica)
    primary.module_file = newer
    primary.stop()
    primary.start()
    checks.that("upgrade: the old primary is a whole replica with it", eventually(lambda: is_whole(primary), 30))
    writers.end()
    n_lost, n = writers.lost(replica)
    lost, checked = lost + n_lost, checked + n
    same = eventually(lambda: digest(primary) == digest(replica), 20)
    checks.that("upgrade: both are equal", same, digest(primary), digest(replica))
    loaded = [str(node.do("MODULE", "LIST")) for node in (primary, replica)]
    checks.that("upgrade: both have the new module", all("newer.so" in text for text in loaded) or
                all("newer.so" in node.log() for node in (primary, replica)), loaded)
    checks.same("upgrade: nothing that WAIT has confirmed is lost (%d confirmed, %d looked at)" % (writers.confirmed, checked),
                lost[:3], [])


def test_incomplete(nodes):
    """Its data is on its way when the primary dies: it is not elected, and is whole when that is back."""
    primary, replica = find_shard(nodes)
    with primary.client().pipeline(transaction=False) as p:
        for i in range(6000):
            add(p, KEY, i, "bulk%d" % i)
        p.execute()
    primary.do("VSEAL", KEY)
    replica.kill()
    for path in ("quire", "appendonlydir"):
        subprocess.run(["rm", "-rf", os.path.join(replica.path, path)], check=True)
    replica.settings["quire_ship_rate"] = 100000
    replica.start()
    eventually(lambda: b"being copied" in b" ".join(state(replica)["sets"]) and
               replica.client().info("replication")["master_link_status"] == "up", 20)
    checks.that("segments are on their way", b"being copied" in b" ".join(state(replica)["sets"]), state(replica))
    wanted = digest(primary)
    primary.kill()
    time.sleep(NODE_TIMEOUT_MS / 1000 * 3)
    checks.that("a replica that is not whole is not elected", not is_primary(replica))
    primary.start()
    replica.client().config_set("quire.ship-rate", 0)
    checks.that("when its primary is back it becomes whole", eventually(lambda: is_whole(replica), 40), state(replica))
    eventually(lambda: digest(primary) == digest(replica) == wanted, 10)
    checks.same("and equal", (digest(primary), digest(replica)), (wanted, wanted))
    primary.kill()
    checks.that("then it is elected", eventually(lambda: is_primary(replica), ROLE_S))
    checks.same("with all elements", digest(replica), wanted)


with Folder() as folder:
    nodes = make_cluster(folder)
    test_kills(nodes)
    test_planned(nodes)
    test_upgrade(folder, nodes)
    test_incomplete(nodes)
checks.end()
