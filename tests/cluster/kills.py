"""kills.py ENGINE N SEED - N times kill -9 under writes. Under `always` nothing that was answered is lost; under
`everysec` only what was answered in the last LATE_S seconds, since kernel buffers outlive the process."""
import random
import sys
import threading
import time

import redis
from nodes import Checks, Folder, Node, add

engine, n_kills, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
LATE_S, WRITERS = 0.1, 3
checks = Checks()
rng = random.Random(seed)
print("seed %d" % seed)


def write(node, who, acked, stop):
    """Adds and removes elements of its own until the node is gone: name -> (there, when answered)."""
    c, own = node.client(), random.Random(who + 1000 * len(acked))
    try:
        while not stop.is_set():
            i = own.randrange(400)
            name = "w%d-%d" % (who, i)
            acked[name] = (acked.get(name, (False, 0))[0], None)  # asked, not answered
            if own.random() < 0.3:
                c.execute_command("VREM", "k", name)
                acked[name] = (False, time.time())
            else:
                add(c, "k", i, name)
                acked[name] = (True, time.time())
    except redis.exceptions.RedisError:
        pass


def run(folder, mode, persistence):
    node = Node(folder, "kill-%s-%s" % (mode, "aof" if persistence["appendonly"] == "yes" else "rdb"), engine,
                quire_appendfsync=mode, quire_memtable_memory="128kb", **persistence)
    add(node.client(), "k", 0, "first")
    if persistence["appendonly"] == "no":
        node.client().save()
    acked = [{} for _ in range(WRITERS)]
    lost, checked = [], 0
    for _ in range(n_kills):
        stop = threading.Event()
        threads = [threading.Thread(target=write, args=(node, who, acked[who], stop)) for who in range(WRITERS)]
        for thread in threads:
            thread.start()
        time.sleep(0.2 + rng.random() * 0.6)
        killed = time.time()
        node.kill()
        for thread in threads:
            thread.join()
        node.start()
        c = node.client()
        for writer in acked:
            names = list(writer)
            with c.pipeline(transaction=False) as p:
                for name in names:
                    p.execute_command("VISMEMBER", "k", name)
                haves = p.execute()
            for name, have in zip(names, map(bool, haves)):
                there, when = writer[name]
                sure = when is not None and (mode == "always" or when < killed - LATE_S)
                checked += sure
                if sure and have != there:
                    lost.append((name, there, killed - when))
                writer[name] = (have, 0)
    checks.same("%s, %s: nothing is lost in %d kills (%d answers)"
                % (mode, "AOF" if persistence["appendonly"] == "yes" else "RDB", n_kills, checked), lost[:3], [])
    node.kill()


with Folder() as folder:
    for mode in ("always", "everysec"):
        run(folder, mode, {"appendonly": "yes", "save": ""})
    run(folder, "always", {"appendonly": "no", "save": "3600 1"})
checks.end()
