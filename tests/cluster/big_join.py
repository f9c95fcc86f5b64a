"""big_join.py ENGINE MIB SEED - a replica that joins a primary with MIB of vectors in 12 segments while it takes 2,000
writes a second: how long it takes, how long each main thread stands still, what is buffered, what the RDB has. By hand.

Rows have 768 floats. A process for each node sends PING every 2 ms and counts how long answers take: before the join,
for what this machine does to a process anyway, and during it.
"""
import multiprocessing
import random
import re
import socket
import struct
import sys
import time

import redis
from nodes import Checks, Folder, Node, eventually

engine, mib, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
DIM, SEGMENTS, WRITES_S, KEY = 768, 12, 2000, "v"
STALL_MS, BUFFER_MIB, MIB_S, JOIN_S, RDB_MIB = 50, 64, 200, 5, 1
ROWS = mib * (1 << 20) // (4 * DIM) // SEGMENTS
checks = Checks()
print("seed %d" % seed)
SETTINGS = {"save": "", "appendonly": "no", "repl_diskless_sync": "no", "quire_memtable_memory": "1gb"}


def blobs(n, seed_of_rows):
    """Vectors in some clusters, from one long row of random floats."""
    rng = random.Random(seed_of_rows)
    noise = [rng.gauss(0, 0.4) for _ in range(8 * DIM)]
    centres = [[random.Random(i).gauss(0, 1) for _ in range(DIM)] for i in range(64)]
    for _ in range(n):
        centre, at = rng.choice(centres), rng.randrange(7 * DIM)
        yield struct.pack("<%df" % DIM, *map(float.__add__, centre, noise[at:at + DIM]))


def fill(client, first, n):
    vectors = blobs(n, first)
    for begin in range(first, first + n, 500):
        p = client.pipeline(transaction=False)
        for i in range(begin, min(begin + 500, first + n)):
            p.execute_command("VADD", KEY, "FP32", next(vectors), "e%d" % i, "NOQUANT")
        p.execute()


def ping(port, stop, out):
    """PING every 2 ms; milliseconds that answers took, sorted."""
    took = []
    with socket.create_connection(("127.0.0.1", port)) as s:
        while not stop.is_set():
            begin = time.perf_counter()
            s.sendall(b"PING\r\n")
            s.recv(64)
            took.append((time.perf_counter() - begin) * 1000)
            time.sleep(0.002)
    out.put(sorted(took))


def write(port, stop, out):
    """WRITES_S rows a second, a fifth of them in place of others."""
    client, vectors, n, begin = redis.Redis(port=port), blobs(1 << 30, 7), 0, time.time()
    while not stop.is_set():
        p = client.pipeline(transaction=False)
        for _ in range(20):
            name = "w%d" % n if n % 5 else "e%d" % (n * 37 % (ROWS * SEGMENTS))
            p.execute_command("VADD", KEY, "FP32", next(vectors), name, "NOQUANT")
            n += 1
        p.execute()
        time.sleep(max(0, begin + n / WRITES_S - time.time()))
    out.put(n / (time.time() - begin))


class Beside:
    """Processes of their own; what they have seen when they are stopped."""

    def __init__(self, *works):
        self.stop, self.outs = multiprocessing.Event(), [multiprocessing.Queue() for _ in works]
        self.processes = [multiprocessing.Process(target=work, args=(port, self.stop, out), daemon=True)
                          for (work, port), out in zip(works, self.outs)]
        for process in self.processes:
            process.start()

    def end(self):
        self.stop.set()
        return [out.get(timeout=60) for out in self.outs]


def said(took):
    return "p50 %.2f, p99 %.2f, longest %.1f ms of %d" % (took[len(took) // 2], took[len(took) * 99 // 100], took[-1], len(took))


def buffered(client):
    return max([int(c["omem"]) for c in client.client_list() if "S" in c["flags"]] + [0])


def is_whole(node):
    reply = node.do("QUIRE.REPLICATION")
    state = dict(zip(reply[::2], reply[1::2]))
    return state[b"may_be_elected"] == b"yes" and not state[b"sets"]


with Folder() as folder:
    primary = Node(folder, "primary", engine, **SETTINGS)
    c, begin = primary.client(), time.time()
    for i in range(SEGMENTS):
        fill(c, i * ROWS, ROWS)
        c.execute_command("VSEAL", KEY)
        print("%d of %d segments, %d rows each, %.0f s" % (i + 1, SEGMENTS, ROWS, time.time() - begin), flush=True)
    replica = Node(folder, "replica", engine, **SETTINGS)
    beside = Beside((ping, primary.port), (ping, replica.port), (write, primary.port))
    time.sleep(5)
    quiet_primary, quiet_replica, rate = beside.end()
    print("before: primary %s; replica %s; %.0f writes a second" % (said(quiet_primary), said(quiet_replica), rate))
    beside = Beside((ping, primary.port), (ping, replica.port), (write, primary.port))
    time.sleep(1)
    memtable, most, begin, up = primary.info("memtable_bytes"), 0, time.time(), None
    replica.client().replicaof("127.0.0.1", primary.port)
    time.sleep(0.2)
    while time.time() < begin + 300:
        most = max(most, buffered(c))
        if up is None and replica.client().info("replication")["master_link_status"] == "up":
            up = time.time() - begin
        if up is not None and is_whole(replica):
            break
        time.sleep(0.05)
    whole = time.time() - begin
    memtable = max(memtable, primary.info("memtable_bytes"))
    of_primary, of_replica, rate = beside.end()
    print("join: primary %s; replica %s; %.0f writes a second" % (said(of_primary), said(of_replica), rate))
    sizes = re.findall(r"receiving (\d+) bytes from master", replica.log())
    fetched = replica.info("bytes_fetched")
    checks.that("the link is up after %.1f s, the replica whole after %.1f s (bar %d MiB/s + %d s)" %
                (up or -1, whole, MIB_S, JOIN_S), up is not None and whole <= mib / MIB_S + JOIN_S)
    checks.that("main threads stand still for %.1f and %.1f ms at most (bar %d)" %
                (of_primary[-1], of_replica[-1], STALL_MS), max(of_primary[-1], of_replica[-1]) <= STALL_MS)
    checks.that("%.1f MiB are buffered for it (bar %d)" % (most / (1 << 20), BUFFER_MIB), most <= BUFFER_MIB << 20)
    checks.that("the RDB has %s MiB, memtables %.1f (bar: %d more); %.1f MiB of segments are fetched" %
                (", ".join("%.1f" % (int(n) / (1 << 20)) for n in sizes), memtable / (1 << 20), RDB_MIB,
                 fetched / (1 << 20)), sizes and int(sizes[-1]) <= memtable + (RDB_MIB << 20))
    checks.that("equal", eventually(lambda: c.execute_command("QUIRE.DIGEST", KEY) ==
                                    replica.do("QUIRE.DIGEST", KEY), 60))
checks.end()
