"""nodes.py - engines with quire.so on free loopback ports, for the scripts of this folder.

    with Folder() as folder:
        node = Node(folder, "a", engine="redis-server", appendonly="yes")
        node.client().execute_command("VADD", ...)
        node.kill(); node.start()

Engines are found in PATH: redis-server, and valkey-server where there is one. Each node is ended by its process id.
"""
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

import redis

BUILD = os.path.abspath(os.environ["QUIRE_BUILD"])
MODULE = os.path.join(BUILD, "quire.so")
START_S = 60
ANSWER_S = 300  # an answer that never comes is a failure


def engines():
    return [name for name in ("redis-server", "valkey-server") if shutil.which(name)]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def free_ports_of_cluster():
    """One for clients, of which the one that lies 10000 above is free, too: nodes of a cluster talk there."""
    while True:
        port = random.randrange(12000, 22000)  # and below those that connections get
        try:
            with socket.socket() as a, socket.socket() as b:
                a.bind(("127.0.0.1", port))
                b.bind(("127.0.0.1", port + 10000))
                return port
        except OSError:
            pass


class Folder:
    """A temporary folder; the nodes in it are killed before it is removed."""

    def __enter__(self):
        self.path = tempfile.mkdtemp(prefix="quire-cluster-")
        self.nodes = []
        return self

    def __exit__(self, *failure):
        for node in self.nodes:
            if failure[0]:
                sys.stderr.write("---- the log of node %s\n%s\n" % (node.name, node.log(400)))
            node.kill()
        shutil.rmtree(self.path, ignore_errors=True)


class Node:
    def __init__(self, folder, name, engine="redis-server", module=True, start=True, host="127.0.0.1", prefix=(),
                 **settings):
        """prefix: words before the engine's command, such as those that put it into a network of its own."""
        self.host, self.prefix = host, list(prefix)
        self.folder, self.name, self.engine, self.process = folder, name, engine, None
        self.path = os.path.join(folder.path, name)
        self.port = free_ports_of_cluster() if settings.get("cluster_enabled") == "yes" else free_port()
        self.module, self.module_file = module, MODULE
        self.settings = settings
        os.makedirs(self.path, exist_ok=True)
        folder.nodes.append(self)
        if start:
            self.start()

    def lines(self):
        yield "port %d" % self.port
        yield "bind " + self.host
        yield "dir " + self.path
        yield "logfile " + os.path.join(self.path, "log")
        yield "enable-debug-command local"
        yield "crash-memcheck-enabled no"
        if self.module:
            yield "loadmodule " + self.module_file
        # lines that Python cannot name as arguments: quire_appendfsync is quire.appendfsync, save_points "save"
        for key, value in self.settings.items():
            key = ("quire." + key[6:] if key.startswith("quire_") else key).replace("_", "-")
            yield "%s %s" % (key, value if value != "" else '""')

    def start(self, wait=True, before=None):
        conf = os.path.join(self.path, "conf")
        with open(conf, "w") as f:
            f.write("\n".join(self.lines()) + "\n")
        self.process = subprocess.Popen(self.prefix + [self.engine, conf], stdout=subprocess.DEVNULL,
                                        stderr=open(os.path.join(self.path, "stderr"), "a"), cwd=self.path,
                                        preexec_fn=before)
        if wait:
            self.wait()

    def wait(self):
        until = time.time() + START_S
        while True:
            if self.process.poll() is not None:
                raise RuntimeError("node %s ended" % self.name)
            try:
                info = self.client().info("persistence")
                if not info.get("loading"):
                    break
            except (redis.exceptions.ConnectionError, redis.exceptions.BusyLoadingError):
                pass
            if time.time() > until:
                raise RuntimeError("node %s does not start: %s" % (self.name, self.log(20)))
            time.sleep(0.02)
        if self.module:  # keys and store agree a moment after loading
            time.sleep(0.15)

    def client(self, **more):
        return redis.Redis(host=self.host, port=self.port, **{"password": self.settings.get("requirepass"),
                                                              "socket_timeout": ANSWER_S, **more})

    def do(self, *words):
        return self.client().execute_command(*words)

    def log(self, n=1000000):
        try:
            with open(os.path.join(self.path, "log"), errors="replace") as f:
                return "".join(f.readlines()[-n:])
        except OSError:
            return ""

    def kill(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()

    def stop(self):
        """SHUTDOWN, as the settings have it; again where the engine takes it back, since it writes its first AOF."""
        until = time.time() + START_S
        while self.process.poll() is None and time.time() < until:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(2)
            except subprocess.TimeoutExpired:
                pass
        if self.process.poll() != 0:
            raise RuntimeError("node %s ended with %d: %s" % (self.name, self.process.returncode, self.log(20)))

    def info(self, field, section="quire"):
        info = self.client().info(section)
        return info.get(field, info.get("quire_" + field))


class Checks:
    """Counts, and prints "ok - ..." or "FAIL - ..."."""

    def __init__(self):
        self.failed = 0

    def that(self, what, right, *seen):
        print(("ok - " if right else "FAIL - ") + what + ("" if right else ": %r" % (seen,)), flush=True)
        self.failed += not right
        return right

    def same(self, what, seen, wanted):
        return self.that(what, seen == wanted, seen, wanted)

    def error(self, what, pattern, call):
        try:
            seen = call()
        except redis.exceptions.ResponseError as e:
            return self.that(what, pattern in str(e), str(e))
        return self.that(what, False, seen)

    def end(self):
        sys.exit(self.failed > 0)


def vector(i, dim=8):
    """Numbers that differ from those of any other i."""
    return [((i * 2654435761 + j * 40503) % 1009) / 1009.0 + (0.01 if j == i % dim else 0) for j in range(dim)]


def add(client, key, i, name=None, **more):
    v = vector(i)
    return client.execute_command("VADD", key, "VALUES", len(v), *v, name or "e%d" % i)


def make_cache(client, key):
    client.execute_command("SC.CREATE", key, "DIM", 8)
    client.execute_command("SC.CAT.SET", key, "q", "SIM", "0.9", "AUDIT", "0")


def put(client, key, i):
    """An answer, in a semantic cache."""
    return client.execute_command("SC.PUT", key, "CAT", "q", "VEC", struct.pack("<8f", *vector(i)), "HASH", "h%d" % i,
                                  "TEXT", "question %d" % i, "VALUE", "answer %d" % i)


def leave(node, requests, turns=20, clients=32):
    """Clients that go while their requests (of resp_client, one behind the other) wait. Whether the engine goes on."""
    for _ in range(turns):
        sockets = [socket.create_connection(("127.0.0.1", node.port)) for _ in range(clients)]
        for s in sockets:
            s.sendall(requests)
        time.sleep(0.02)
        for s in sockets:
            s.close()
        time.sleep(0.02)
    return node.process.poll() is None


def eventually(what, seconds=10):
    until = time.time() + seconds
    while not what():
        if time.time() > until:
            return False
        time.sleep(0.05)
    return True
