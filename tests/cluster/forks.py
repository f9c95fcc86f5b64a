"""forks.py ENGINE N - N children (BGSAVE and BGREWRITEAOF in turn) beside writers, searches, seals and merges.

Each child must end well within CHILD_S seconds; no search may fail or miss an element that is not written to; then the
process is killed, and what is loaded must be what was there, by digest.
"""
import random
import sys
import threading
import time

import redis
from nodes import Checks, Folder, Node, add, vector

engine, n_forks = sys.argv[1], int(sys.argv[2])
CHILD_S, WRITERS, SEARCHERS, FIXED, MOVING = 60, 4, 2, 300, 3000
checks = Checks()
stop = threading.Event()
counts = {"writes": 0, "searches": 0}
problems = []


def writer(node, seed):
    c, rng, key = node.client(), random.Random(seed), "s%d" % (seed % 2)
    while not stop.is_set():
        i = FIXED + rng.randrange(MOVING)
        try:
            if rng.random() < 0.15:
                c.execute_command("VREM", key, "e%d" % i)
            else:
                add(c, key, i)
            counts["writes"] += 1
            if rng.random() < 0.002:
                c.execute_command("VSEAL", key)
        except redis.exceptions.RedisError as e:
            problems.append("write: %s" % e)
            return


def searcher(node, seed):
    c, rng, key = node.client(), random.Random(seed), "s%d" % (seed % 2)
    while not stop.is_set():
        i = rng.randrange(FIXED)
        try:
            hits = c.execute_command("VSIM", key, "VALUES", 8, *vector(i), "COUNT", 1, "WITHSCORES")
            counts["searches"] += 1
            if not hits or float(hits[1]) < 0.9999:
                problems.append("search: e%d, but %r" % (i, hits))
        except redis.exceptions.RedisError as e:
            problems.append("search: %s" % e)
            return


def wait_child(c):
    """False: it hangs, or has failed."""
    until = time.time() + CHILD_S
    while time.time() < until:
        info = c.info("persistence")
        if not info["rdb_bgsave_in_progress"] and not info["aof_rewrite_in_progress"]:
            return info["rdb_last_bgsave_status"] == "ok" and info["aof_last_bgrewrite_status"] == "ok"
        time.sleep(0.01)
    return False


with Folder() as folder:
    node = Node(folder, "forks", engine, appendonly="yes", save="", quire_memtable_memory="256kb")
    c = node.client()
    for key in ("s0", "s1"):
        for i in range(FIXED):
            add(c, key, i)
        c.execute_command("VSEAL", key)
    wait_child(c)
    threads = [threading.Thread(target=writer, args=(node, n)) for n in range(WRITERS)]
    threads += [threading.Thread(target=searcher, args=(node, n)) for n in range(SEARCHERS)]
    for thread in threads:
        thread.start()
    good = 0
    for n in range(n_forks):
        try:
            c.execute_command("BGSAVE" if n % 2 else "BGREWRITEAOF")
        except redis.exceptions.ResponseError as e:
            problems.append("fork %d: %s" % (n, e))
            break
        good += wait_child(c)
    stop.set()
    for thread in threads:
        thread.join()
    checks.same("%d children ended well" % n_forks, good, n_forks)
    checks.same("no write and no search went wrong (%d writes, %d searches, %d seals, %d merges)"
                % (counts["writes"], counts["searches"], node.info("seals"), node.info("merges")), problems[:3], [])
    c.config_set("quire.appendfsync", "always")
    add(c, "s0", 1)
    wanted = [c.execute_command("QUIRE.DIGEST", key) for key in ("s0", "s1")]
    for how in ("AOF", "RDB"):
        if how == "RDB":
            c.save()
            node.settings["appendonly"] = "no"
        node.kill()
        node.start()
        c = node.client()
        checks.same("what is loaded from the %s is what was there" % how,
                    [c.execute_command("QUIRE.DIGEST", key) for key in ("s0", "s1")], wanted)
checks.end()
