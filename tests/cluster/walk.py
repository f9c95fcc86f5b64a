"""walk.py ENGINE STEPS SEED - a primary and a replica, and STEPS times what happens to them, by chance: writes of all kinds
on both sides of kills, stops, cut links, full syncs, seals, saves and changes of roles. After each both must be equal."""
import random
import sys
import threading
import time

import redis
from nodes import Checks, Folder, Node, eventually, vector

engine, n_steps, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
checks = Checks()
rng = random.Random(seed)
print("seed %d" % seed)
KEYS, EQUAL_S = ["a", "b", "c", "d"], 40
GOES_ON = ("TRYAGAIN", "being copied", "read only", "READONLY", "LOADING", "about to give", "no such key", "UNBLOCKED",
           "Target key name", "hands over", "does not exist", "are the same",
           "failed to copy")


def digests(node):
    try:
        c = node.client()
        return {key: c.execute_command("QUIRE.DIGEST", key) for key in sorted(c.keys())}
    except redis.exceptions.RedisError as e:
        return "%s: %s" % (node.name, e)


def is_whole(node):
    """Who is not does not lead those sets: the engine's elections ask for it, REPLICAOF NO ONE does not. A node that has
    just lost the lead hears of what it lacks a moment later."""
    reply = node.do("QUIRE.REPLICATION")
    state = {reply[i]: reply[i + 1] for i in range(0, len(reply), 2)}
    return state[b"may_be_elected"] == b"yes" and not state[b"sets"] and \
        node.client().info("replication")["master_link_status"] == "up"


def differences(one, other):
    if not isinstance(one, dict) or not isinstance(other, dict):
        return one, other
    return [(key, one.get(key), other.get(key)) for key in sorted({*one, *other}) if one.get(key) != other.get(key)]


def write(node, seed, stop, problems):
    own, c = random.Random(seed), node.client()
    while not stop.is_set():
        key, i, dice = own.choice(KEYS), own.randrange(1500), own.random()
        try:
            if dice < 0.55:
                c.execute_command("VADD", key, "VALUES", 8, *vector(i + own.randrange(9) * 5000), "e%d" % i)
            elif dice < 0.80:
                c.execute_command("VREM", key, "e%d" % i)
            elif dice < 0.93:
                c.execute_command("VSETATTR", key, "e%d" % i, '{"n":%d}' % own.randrange(100))
            elif dice < 0.96:
                p = c.pipeline(transaction=True)
                for k in range(5):
                    p.execute_command("VADD", key, "VALUES", 8, *vector(i + k), "m%d" % (i + k))
                p.execute_command("VREM", key, "e%d" % i)
                p.execute()
            elif dice < 0.99:
                c.execute_command(own.choice(["VSEAL", "VSEAL", "VCOMPACT"]), key)
            elif dice < 0.994:
                c.copy(key, own.choice(KEYS), replace=True)
            elif dice < 0.997:
                c.rename(key, own.choice(KEYS))
            elif dice < 0.998:
                c.delete(key)
            else:
                c.bgsave()
        except redis.exceptions.ConnectionError:
            return
        except redis.exceptions.ResponseError as e:
            if not any(word in str(e) for word in GOES_ON) and "Background save" not in str(e) and \
                    "child process" not in str(e):
                problems.append(str(e))


def start_again(node, stops):
    node.stop() if stops else node.kill()
    node.start()


def step(primary, replica):
    """Returns the two, in the roles that they have then, and what it was."""
    what = rng.choice(["nothing", "nothing", "kill replica", "stop replica", "kill primary", "stop primary", "cut link",
                       "switch", "switch", "turn back"])
    if what.endswith("replica"):
        start_again(replica, what.startswith("stop"))
    elif what.endswith("primary"):
        start_again(primary, what.startswith("stop"))
    elif what == "cut link":
        primary.client().execute_command("CLIENT", "KILL", "TYPE", "replica")
    elif what in ("switch", "turn back"):
        for _ in range(2 if what == "turn back" else 1):
            eventually(lambda: is_whole(replica) and not time.sleep(0.6) and is_whole(replica), EQUAL_S)
            replica.do("REPLICAOF", "NO", "ONE")
            time.sleep(rng.random() * 0.3)
            primary.do("REPLICAOF", "127.0.0.1", replica.port)
            replica.settings.pop("replicaof", None)
            primary.settings["replicaof"] = "127.0.0.1 %d" % replica.port
            primary, replica = replica, primary
    return primary, replica, what


with Folder() as folder:
    settings = {"save": rng.choice(["", "3600 1"]), "appendonly": rng.choice(["yes", "no"]),
                "repl_diskless_sync_delay": 0, "quire_memtable_memory": rng.choice(["64kb", "256kb"])}
    primary = Node(folder, "one", engine, **settings)
    replica = Node(folder, "two", engine, replicaof="127.0.0.1 %d" % primary.port, **settings)
    counts, problems, differ = {}, [], []
    for n in range(n_steps):
        stop = threading.Event()
        threads = [threading.Thread(target=write, args=(node, rng.random(), stop, problems))
                   for node in (primary, primary, replica)]
        for thread in threads:
            thread.start()
        time.sleep(rng.random() * 0.8)
        primary, replica, what = step(primary, replica)
        counts[what] = counts.get(what, 0) + 1
        time.sleep(rng.random() * 0.4)
        stop.set()
        for thread in threads:
            thread.join()
        if not eventually(lambda: isinstance(seen := digests(primary), dict) and seen == digests(replica), EQUAL_S):
            differ.append((n, what, differences(digests(primary), digests(replica)), primary.name))
            break
    checks.same("%d steps (%s), %s: both are equal after each" % (
        n_steps, ", ".join("%s %d" % item for item in sorted(counts.items())), settings), differ, [])
    checks.same("and no write failed but where it may", problems[:3], [])
    if checks.failed:
        for node in (primary, replica):
            print("---- " + node.name + "\n" + node.log(60))
checks.end()
