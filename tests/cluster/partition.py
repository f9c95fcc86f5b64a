"""partition.py ENGINE N SEED - a cluster of six, each node in a network namespace of its own: N times the primary of a key is
cut off from the others, with a writer on its side. Of writes that WAIT has confirmed none may be lost; of the others only
those of the time between the cut and its end, and QUIRE.LOST names them. Needs root.

    partition.py --write HOST PORT SECONDS     the writer: prints "name time confirmed" for each write that was answered
"""
import os
import random
import subprocess
import sys
import time

import redis

KEY, NODE_TIMEOUT_MS, LATE_S, NET = "v{a}", 2000, 1.0, "10.77.%d" % (os.getpid() % 250)


def write(host, port, seconds):
    from nodes import vector
    until, n = time.time() + seconds, 0
    connection = redis.Connection(host=host, port=port, socket_timeout=5)
    connection.connect()
    while time.time() < until:
        name, waits = "p%d-%d" % (os.getpid(), n), n % 2
        n += 1
        commands = [("VADD", KEY, "VALUES", 8, *vector(n), name)] + [("WAIT", 1, 100)] * waits
        try:
            connection.send_packed_command(connection.pack_commands(commands))
            replies, answered_s = [read_reply(connection)], time.time()  # of the write; that of WAIT comes later
            if waits:
                replies.append(read_reply(connection))
        except redis.exceptions.RedisError:
            break
        if isinstance(replies[0], Exception):
            if "MOVED" in str(replies[0]) or "read only" in str(replies[0]):
                break
            time.sleep(0.05)
            continue
        print(name, answered_s, int(bool(waits and replies[1] == 1)), flush=True)


def read_reply(connection):
    try:
        return connection.read_response()
    except redis.exceptions.ResponseError as e:
        return e


if sys.argv[1] == "--write":
    write(sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
    sys.exit(0)

from nodes import Checks, Folder, Node, add, eventually  # noqa: E402

engine, n_cuts, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
checks, rng = Checks(), random.Random(seed)
BRIDGE, SPACE = "qb%d" % (os.getpid() % 100000), "q%d-" % (os.getpid() % 100000)


def run(*words, check=True):
    return subprocess.run(words, check=check, capture_output=True, text=True)


class Networks:
    """A bridge on this machine, and six namespaces with a wire to it: 10.77.X.1 to .6; this machine is .100."""

    def __enter__(self):
        run("ip", "link", "add", BRIDGE, "type", "bridge")
        run("ip", "addr", "add", NET + ".100/24", "dev", BRIDGE)
        run("ip", "link", "set", BRIDGE, "up")
        for i in range(6):
            run("ip", "netns", "add", SPACE + str(i))
            run("ip", "link", "add", SPACE + "w%d" % i, "type", "veth", "peer", "name", "eth0", "netns", SPACE + str(i))
            run("ip", "link", "set", SPACE + "w%d" % i, "master", BRIDGE, "up")
            inside = ("ip", "netns", "exec", SPACE + str(i))
            run(*inside, "ip", "addr", "add", "%s.%d/24" % (NET, i + 1), "dev", "eth0")
            run(*inside, "ip", "link", "set", "eth0", "up")
            run(*inside, "ip", "link", "set", "lo", "up")
        return self

    def __exit__(self, *failure):
        for i in range(6):
            run("ip", "netns", "del", SPACE + str(i), check=False)
        run("ip", "link", "del", BRIDGE, check=False)

    def cut(self, i, down):
        run("ip", "link", "set", SPACE + "w%d" % i, "down" if down else "up")


def role(node):
    try:
        return str(node.client(socket_timeout=2).execute_command("ROLE")[0], "ascii")
    except redis.exceptions.RedisError:
        return "none"


def digest(node):
    c = node.client(single_connection_client=True, socket_timeout=10)
    try:
        c.execute_command("READONLY")
        return c.execute_command("QUIRE.DIGEST", KEY)
    except redis.exceptions.RedisError as e:
        return str(e)


def is_whole(node):
    try:
        reply = node.client(socket_timeout=5).execute_command("QUIRE.REPLICATION")
        state = {reply[i]: reply[i + 1] for i in range(0, len(reply), 2)}
        return state[b"role"] == b"replica" and state[b"may_be_elected"] == b"yes" and not state[b"sets"] and \
            node.client().info("replication")["master_link_status"] == "up"
    except redis.exceptions.RedisError:
        return False


def shard(nodes):
    for i, node in enumerate(nodes):
        try:
            node.client().exists(KEY)
        except redis.exceptions.ResponseError:
            continue
        if role(node) == "master":
            port = [n for n, other in enumerate(nodes) if role(other) == "slave" and
                    other.client().info("replication")["master_host"] == node.host]
            if port:
                return i, port[0]
    return None


def cut_once(networks, nodes, folder, n):
    primary, replica = shard(nodes)
    eventually(lambda: is_whole(nodes[replica]), 30)
    answers = os.path.join(folder.path, "answers%d" % n)
    with open(answers, "w") as out:
        writer = subprocess.Popen(["ip", "netns", "exec", SPACE + str(primary), sys.executable, __file__, "--write",
                                   nodes[primary].host, str(nodes[primary].port), "8"], stdout=out)
    time.sleep(1 + rng.random())
    networks.cut(primary, True)
    cut_s = time.time()
    elected = eventually(lambda: role(nodes[replica]) == "master", 15)
    gap = time.time() - cut_s
    writer.wait()
    with open(answers) as f:
        answered = [line.split() for line in f]
    networks.cut(primary, False)
    back = eventually(lambda: is_whole(nodes[primary]), 40)
    equal = eventually(lambda: digest(nodes[primary]) == digest(nodes[replica]), 20)
    c = nodes[replica].client()
    with c.pipeline(transaction=False) as p:
        for name, _, _ in answered:
            p.execute_command("VISMEMBER", KEY, name)
        have = p.execute()
    lost = [(name, float(at), sure == "1") for (name, at, sure), there in zip(answered, have) if not there]
    c = nodes[primary].client(single_connection_client=True)
    c.execute_command("READONLY")
    told = c.execute_command("QUIRE.LOST", KEY)
    named = {name.decode() for name in told[1:]} if told else set()
    checks.that("cut %d: the replica leads after %.1f s; %d writes answered, %d confirmed, %d lost, of which QUIRE.LOST names %d"
                % (n, gap, len(answered), sum(sure == "1" for _, _, sure in answered), len(lost),
                   len([1 for name, _, _ in lost if name in named])), elected and back and equal, back, equal,
                digest(nodes[primary]), digest(nodes[replica]))
    return lost, named, cut_s, len(lost)


def test_cuts(networks, nodes, folder):
    sure, early, unnamed, n_lost, latest = [], [], [], 0, 0
    for n in range(n_cuts):
        lost, named, cut_s, n_here = cut_once(networks, nodes, folder, n)
        n_lost += n_here
        latest = max([latest] + [at - cut_s for _, at, _ in lost])
        sure += [name for name, _, confirmed in lost if confirmed]
        early += [(name, at - cut_s) for name, at, _ in lost
                  if at < cut_s - 0.5 or at > cut_s + NODE_TIMEOUT_MS / 1000 + LATE_S]
        unnamed += [name for name, _, _ in lost if name not in named][:3]
        time.sleep(NODE_TIMEOUT_MS / 1000 * 4)
    checks.that("a primary that is cut off goes on for a while, which is lost (%d writes)" % n_lost, n_lost > 0)
    checks.same("no write that WAIT has confirmed is lost", sure[:3], [])
    checks.same("those that are lost were answered between the cut and the node timeout + %.1f s, the last %.2f s after the cut"
                % (LATE_S, latest), early[:3], [])
    checks.same("QUIRE.LOST names them", unnamed[:3], [])


if os.geteuid() != 0 or run("ip", "netns", "list", check=False).returncode != 0:
    print("skipped: networks of their own need root, and ip")
    sys.exit(0)
with Networks() as networks, Folder() as folder:
    nodes = [Node(folder, "node%d" % i, engine, host="%s.%d" % (NET, i + 1),
                  prefix=("ip", "netns", "exec", SPACE + str(i)), cluster_enabled="yes", protected_mode="no",
                  cluster_node_timeout=NODE_TIMEOUT_MS, cluster_require_full_coverage="no", save="", appendonly="yes",
                  repl_diskless_sync_delay=0, repl_timeout=5, repl_ping_replica_period=1,
                  quire_memtable_memory="128kb") for i in range(6)]
    made = subprocess.run(["redis-cli", "--cluster", "create", *("%s:%d" % (node.host, node.port) for node in nodes),
                           "--cluster-replicas", "1", "--cluster-yes"], capture_output=True, text=True)
    if made.returncode != 0:
        raise RuntimeError(made.stdout + made.stderr)
    eventually(lambda: all(node.client().cluster("info")["cluster_state"] == "ok" for node in nodes), 30)
    eventually(lambda: shard(nodes), 20)
    add(nodes[shard(nodes)[0]].client(), KEY, 0)
    test_cuts(networks, nodes, folder)
checks.end()
