#!/usr/bin/python3
"""attack.py --build-dir BUILD [--seconds N] [--only NAME,...] - an attack on a server of its own, at its default limits.

Two attackers with 24 connections each: one who has no password, and one whose user is bound to a tenant, with the
rules that docs/operations.md recommends. They do at the same time all that once took the server's memory or a lane's
time: floods before AUTH, half requests, readers of a few bytes, replies behind one that waits, MGET of large values,
VMSIM with large attributes, patterns of many stars, SCAN of everything, HGETALL, values that never end, requests by the
hundred that are refused, connections that are reset. Meanwhile other clients send PING.

Printed as JSON, and checked: the most memory of the process above what it held before (--memory-mib, 64), what is left
of that ten seconds after the attackers are gone (--left-mib, 24), and the 99th percentile of PING (--ping-ms, 20).
Exits 1 where one is exceeded, or the server is gone.

The values that are asked for are written before memory is looked at: what attackers may write is data, and bounded by
maxmemory.
"""
import argparse
import json
import multiprocessing
import os
import random
import select
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time

CONNECTIONS = 24
BIG = 4 << 20


def request(*words):
    parts = [w if isinstance(w, bytes) else str(w).encode() for w in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(p), p) for p in parts)


def connect(port):
    s = socket.create_connection(("127.0.0.1", port), timeout=20)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return s


def ask(s, *words):
    """For replies of one line."""
    s.sendall(request(*words))
    got = b""
    while not got.endswith(b"\r\n"):
        more = s.recv(65536)
        if not more:
            raise EOFError("closed after %r" % (words[0],))
        got += more
    return got


class Server:
    def __init__(self, build):
        self.folder = tempfile.mkdtemp(prefix="quire-attack-")
        port_file = os.path.join(self.folder, "port")
        self.log = open(os.path.join(self.folder, "log"), "wb")
        self.process = subprocess.Popen(
            [os.path.join(build, "quire-server"), "--port", "0", "--port-file", port_file,
             "--dir", os.path.join(self.folder, "data"), "--requirepass", "secret"],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        until = time.time() + 30
        while not (os.path.exists(port_file) and open(port_file).read().strip()):
            if time.time() > until or self.process.poll() is not None:
                raise SystemExit("the server does not start")
            time.sleep(0.05)
        self.port = int(open(port_file).read())

    def resident(self):
        with open("/proc/%d/status" % self.process.pid) as status:
            for line in status:
                if line.startswith("RssAnon:"):
                    return int(line.split()[1]) * 1024
        return 0

    def end(self):
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()

    def remove(self):
        shutil.rmtree(self.folder, ignore_errors=True)


def prepare(port):
    """What the tenant may use: large values, a set, a cache, a hash with a long field."""
    s = connect(port)
    ask(s, "AUTH", "secret")
    ask(s, "ACL", "SETUSER", "acme", "on", ">pw", "~h:*", "+@read", "+@write", "+@connection", "-@dangerous",
        "tenant:acme")
    ask(s, "SET", "h:big", b"v" * BIG)
    ask(s, "VCREATE", "h:set", "DIM", "4", "METRIC", "l2", "TENANTS")
    for i in range(40):
        ask(s, "VADD", "h:set", "VALUES", 4, i, 1, 2, 3, "e%d" % i, "SETATTR", b"a" * 200000, "TENANT", "acme")
    ask(s, "SC.CREATE", "h:cache", "DIM", 4)
    ask(s, "HSET", "h:long", b"a" * (192 << 10), "v")
    for first in range(0, 20000, 500):
        ask(s, "HSET", "h:hash", *[w for i in range(first, first + 500) for w in ("field%d" % i, i)])
        ask(s, "MSET", *[w for i in range(first, first + 500) for w in ("h:key%d" % i, i)])
    s.close()


# Each attack: its name, what is sent first, and then again and again; how it reads: "all", "none", or "few" bytes now
# and then; whether the connection is reset every second or so.
def stranger_attacks():
    inline = b"x\r\n" * 20000
    return [
        ("flood", b"", inline, "none", False),
        ("flood-few", b"", inline, "few", False),
        ("flood-all", b"", inline, "all", True),
        ("half", b"", b"*10\r\n" + b"$16000\r\n" + b"y" * 65536, "none", False),
        ("passwords", b"", request("AUTH", "w" * 10000) * 20, "all", False),
        ("web", b"", b"POST / HTTP/1.1\r\nHost: h\r\n\r\n" + b"SET h:big 1\r\n" * 100, "all", True),
    ]


def tenant_attacks():
    login = request("AUTH", "acme", "pw")
    wait = request("SC.GET", "h:cache", "CAT", "k", "TEXT", "hello", "VEC", struct.pack("<4f", 1, 0, 0, 0), "WAIT",
                   "600000")
    query = struct.pack("<4f", 1, 2, 3, 4)
    vmsim = request("VMSIM", "h:set", 100, *[w for _ in range(100) for w in ("FP32", query)], "COUNT", 40,
                    "WITHATTRIBS")
    return [
        ("behind-a-wait", login + wait, request("GET", "h:big") * 255, "none", True),
        ("mget", login, request("MGET", *["h:big"] * 100), "all", False),
        ("mget-many", login, request("MGET", *["h:big"] * 5000), "none", False),
        ("vmsim", login, vmsim, "all", False),
        ("vmsim-few", login, vmsim, "few", False),
        ("stars", login, request("HSCAN", "h:long", 0, "MATCH", b"*" + b"a" * 1000 + b"b"), "all", False),
        ("marks", login, request("HSCAN", "h:long", 0, "MATCH", b"*a?" * 300 + b"b"), "all", False),
        ("long-pattern", login, request("HSCAN", "h:long", 0, "MATCH", b"*" + b"a" * 65536 + b"b"), "all", False),
        ("hash", login, request("HGETALL", "h:hash") * 100, "all", False),
        ("hash-few", login, request("HGETALL", "h:hash") * 100, "few", False),
        ("scan", login, request("SCAN", 0, "COUNT", 100000, "MATCH", b"*k*e*y*1*2*3*") * 50, "all", False),
        ("endless", login + b"*3\r\n$3\r\nSET\r\n$6\r\nh:none\r\n$500000000\r\n", b"z" * 65536, "none", False),
        ("get-few", login, request("GET", "h:big") * 50, "few", False),
        ("waits", login, wait * 250, "none", True),
        ("range", login, request("VRANGE", "h:set", "-", "+") * 100, "all", False),
    ]


class Attacker:
    def __init__(self, port, attack, chance):
        self.port, self.attack, self.chance = port, attack, chance
        self.socket = None
        self.closed = 0
        self.open()

    def open(self):
        _, first, again, self.reads, resets = self.attack
        try:
            self.socket = connect(self.port)
        except OSError:
            self.socket = None
            return
        self.socket.setblocking(False)
        self.left = memoryview(first if first else again)
        self.again = again
        self.until = time.time() + 0.5 + self.chance.random() if resets else None

    def close(self, hard):
        if self.socket:
            if hard:
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.socket.close()
        self.socket = None

    def act(self, readable, writable, now):
        try:
            if readable and self.reads == "all":
                if not self.socket.recv(1 << 18):
                    raise OSError("closed")
            elif readable and self.reads == "few" and self.chance.random() < 0.01:
                if not self.socket.recv(64):
                    raise OSError("closed")
            if writable:
                self.left = self.left[self.socket.send(self.left[:65536]):]
                if not self.left:
                    self.left = memoryview(self.again)
        except BlockingIOError:
            pass
        except OSError:
            self.closed += 1
            self.close(False)
        if self.socket and self.until and now > self.until:
            self.close(self.chance.random() < 0.5)


def attack(port, attacks, seed, seconds, results):
    if not attacks:
        results.put(0)
        return
    chance = random.Random(seed)
    attackers = [Attacker(port, attacks[i % len(attacks)], chance) for i in range(CONNECTIONS)]
    end = time.time() + seconds
    while time.time() < end:
        for a in attackers:
            if not a.socket:
                a.open()
        there = {a.socket.fileno(): a for a in attackers if a.socket}
        poller = select.poll()
        for fd in there:
            poller.register(fd, select.POLLIN | select.POLLOUT)
        ready = poller.poll(100)
        now = time.time()
        for fd, events in ready:
            there[fd].act(events & ~select.POLLOUT, events & select.POLLOUT, now)
        time.sleep(0.001)
    results.put(sum(a.closed for a in attackers))
    for a in attackers:
        a.close(True)


def ping(port, seconds, results):
    """Eight clients, so that both lanes have some; each waits for its reply."""
    clients = [connect(port) for _ in range(8)]
    times = []
    for s in clients:
        ask(s, "AUTH", "secret")
    end = time.time() + seconds
    while time.time() < end:
        for s in clients:
            began = time.perf_counter()
            ask(s, "PING")
            times.append(time.perf_counter() - began)
        time.sleep(0.002)
    results.put(times)


def percentile(times, share):
    times = sorted(times)
    return times[min(len(times) - 1, int(share * len(times)))] * 1000


def run(job, *arguments):
    results = multiprocessing.Queue()
    process = multiprocessing.Process(target=job, args=(*arguments, results), daemon=True)
    process.start()
    return process, results


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build-dir", required=True)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--memory-mib", type=float, default=64)
    parser.add_argument("--left-mib", type=float, default=24)
    parser.add_argument("--ping-ms", type=float, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", metavar="NAME,...", help="attacks of these names alone")
    parser.add_argument("--keep", action="store_true", help="keep the folder with the server's log")
    options = parser.parse_args()
    only = [name for name in options.only.split(",") if name]
    names = [a[0] for a in stranger_attacks() + tenant_attacks()]
    for name in only:
        if name not in names:
            parser.error("no attack is called %s: there are %s" % (name, ", ".join(names)))
    chosen = [[a for a in attacks if not only or a[0] in only] for attacks in (stranger_attacks(), tenant_attacks())]
    server = Server(options.build_dir)
    try:
        prepare(server.port)
        process, results = run(ping, server.port, 3)
        quiet_ping = results.get()
        process.join()
        time.sleep(1)
        quiet = peak = server.resident()
        jobs = [run(ping, server.port, options.seconds),
                run(attack, server.port, chosen[0], options.seed, options.seconds),
                run(attack, server.port, chosen[1], options.seed + 1, options.seconds)]
        end = time.time() + options.seconds
        while time.time() < end and server.process.poll() is None:
            peak = max(peak, server.resident())
            time.sleep(0.01)
        alive = server.process.poll() is None
        times, closed = [], []
        if alive:
            times = jobs[0][1].get(timeout=60)
            closed = [results.get(timeout=60) for _, results in jobs[1:]]
            time.sleep(10)
        left = server.resident()
        report = {
            "seconds": options.seconds,
            "alive": alive,
            "quiet_mib": round(quiet / 2**20, 1),
            "above_quiet_mib": round((peak - quiet) / 2**20, 1),
            "left_mib": round((left - quiet) / 2**20, 1),
            "pings": len(times),
            "quiet_ping_p99_ms": round(percentile(quiet_ping, 0.99), 2),
            "ping_p50_ms": round(percentile(times, 0.5), 2) if times else None,
            "ping_p99_ms": round(percentile(times, 0.99), 2) if times else None,
            "ping_max_ms": round(percentile(times, 1), 2) if times else None,
            "connections_closed": closed,
        }
    finally:
        server.end()
        if options.keep:
            print("kept " + server.folder, file=sys.stderr)
        else:
            server.remove()
    print(json.dumps(report, indent=1))
    failed = []
    if not alive:
        failed.append("the server lives")
    if alive and report["above_quiet_mib"] > options.memory_mib:
        failed.append("memory")
    if alive and report["left_mib"] > options.left_mib:
        failed.append("memory that is left")
    if alive and report["ping_p99_ms"] > options.ping_ms:
        failed.append("ping")
    for what in ("memory", "memory that is left", "ping", "the server lives"):
        print(("FAIL - " if what in failed else "ok - ") + "attack: " + what)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
