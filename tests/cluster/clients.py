"""clients.py ENGINE PART... - a cluster of three nodes with quire.so through the clients that know clusters: each command of
docs/wire.md that is of vector sets or JSON documents, and those of lines.py, gets the reply that quire-server gives. Parts:
redis_cli, redis_py, ioredis, node_redis (clients.sh has fetched the packages of the last two), and keys: where the keys of every command are, as COMMAND GETKEYS has it, commands without a key, and replicas that are read.

An index has the documents of its node (docs/cluster.md), so FT.* is left out; the keys of commands with several are of one
slot ({j}...), as they are for commands of the engine."""
import base64
import json
import logging
import os
import pathlib
import re
import shlex
import subprocess
import sys
import time

import redis
from lines import CACHES, DOCUMENTS, SEARCHES, SETS, Side, same
from nodes import BUILD, Checks, Folder, Node, eventually, vector

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
sys.path.insert(0, str(HERE.parent / "e2e"))
os.environ.setdefault("QUIRE_HOST", "cluster")
import pages  # noqa: E402
from resp_client import Error, Stream  # noqa: E402
from server_process import Server  # noqa: E402

engine, parts = sys.argv[1], sys.argv[2:]
checks = Checks()
logging.disable(logging.ERROR)  # redis-py logs each error reply
PAGE = HERE.parent.parent / "docs" / "wire.md"
WITHOUT_KEY = ("SC.LIST", "SC.AUDIT HELP", "COMMAND")
OF_ANY_NODE = ("SC.LIST", "FT._LIST", "FT.CONFIG GET TIMEOUT", "QUIRE.REPLICATION", "QUIRE.DOCTOR", "SC.AUDIT HELP")


def page_lines():
    return PAGE.read_text().split("\n")


def make_data(folder):
    """The indexes that the page's transcripts load, by the commands that it gives."""
    for _, _, block in pages.indented(page_lines()):
        if any("quire gen --rows 2000" in line for line in block):
            script = "\n".join(line for line in block if not line.startswith("quire-server"))
            subprocess.run(["bash", "-e"], input=script, text=True, cwd=folder, check=True, capture_output=True,
                           env={**os.environ, "PATH": BUILD + ":" + os.environ["PATH"]})
            return folder + "/indexes"
    raise RuntimeError("wire.md does not say how the data of its transcripts are made")


def transcripts():
    """The words of each command of the page that a module has."""
    for heading, _, block in pages.blocks(page_lines()):
        commands = [command for command, _ in pages.exchanges(block)]
        if heading not in pages.AS_USER and commands[0] != "MULTI":
            yield from (shlex.split(command) for command in commands if pages.is_of_module(command))


def lines():
    """Those of lines.py, with keys that commands have in common in one slot."""
    yield from (SETS.strip() + CACHES.rstrip()).splitlines()
    for line in DOCUMENTS.strip().splitlines():
        if not line.startswith(("FT.", "FLUSHALL")):
            yield re.sub(r"\b(?=(j:\d|nobody|h)\b)", "{j}", line)


def make_cluster(folder, imports):
    nodes = [Node(folder, "node%d" % n, engine, cluster_enabled="yes", cluster_node_timeout=5000, save="",
                  repl_diskless_sync_delay=0, quire_import_dir=imports) for n in range(4)]
    names = ["127.0.0.1:%d" % node.port for node in nodes[:3]]
    made = subprocess.run(["redis-cli", "--cluster", "create", *names, "--cluster-yes"], capture_output=True, text=True)
    if made.returncode != 0:
        raise RuntimeError(made.stdout + made.stderr)
    nodes[3].do("CLUSTER", "MEET", "127.0.0.1", nodes[0].port)
    eventually(lambda: all(info["cluster_state"] == "ok" and info["cluster_known_nodes"] == "4"
                           for info in (node.client().cluster("info") for node in nodes)), 30)
    return nodes


# ---- clients: what has call(*words) --------------------------------------------------------------------------------------

def plain(value):
    """A reply without the difference of simple texts and others, which clients hide."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, Exception):
        return Error(str(value))
    return value.encode() if isinstance(value, str) and not isinstance(value, Error) else value


class OneServer:
    def __init__(self, port):
        self.stream = Stream(port)

    def call(self, *words):
        return plain(self.stream.call(*words))

    def close(self):
        self.stream.socket.close()


def starts_with(words, lines):
    text = " ".join(word if isinstance(word, str) else "-" for word in words)
    return any(text == line or text.startswith(line + " ") for line in lines)


class RedisPy:
    def __init__(self, nodes):
        self.client = redis.RedisCluster(host="127.0.0.1", port=nodes[0].port)

    def call(self, *words):
        more = {"target_nodes": redis.RedisCluster.RANDOM} if starts_with(words, WITHOUT_KEY) else {}
        try:
            reply = self.client.execute_command(*words, **more)
        except redis.exceptions.RedisError as e:
            return Error(str(e))
        return plain(reply)

    def close(self):
        self.client.close()


class NodeClient:
    """One of cluster_client.js."""

    def __init__(self, name, nodes):
        self.process = subprocess.Popen(["node", str(HERE / "cluster_client.js"), name] +
                                        [str(node.port) for node in nodes], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def call(self, *words, readonly=False):
        key = "" if starts_with(words, WITHOUT_KEY) or len(words) < 2 else str(words[1])
        if words[0] == "MULTI":
            key = str(words[2])
        elif str(words[0]).startswith(("SC.AUDIT", "JSON.DEBUG")):
            key = str(words[2]) if len(words) > 2 else ""
        words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        line = json.dumps([key, readonly] + [base64.b64encode(word).decode() for word in words])
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()
        return self.reply(json.loads(self.process.stdout.readline() or '{"e": "the client has ended"}'))

    def reply(self, value):
        if isinstance(value, list):
            return [self.reply(item) for item in value]
        if isinstance(value, dict):
            return base64.b64decode(value["b"]) if "b" in value else Error(value["e"])
        return value

    def close(self):
        self.process.stdin.close()
        self.process.wait(30)


def without_code(value):
    """Errors as their sentence: redis-py takes ERR away."""
    if isinstance(value, list):
        return [without_code(item) for item in value]
    return value.replace("error ERR ", "error ") if isinstance(value, str) else value


# ---- parts ---------------------------------------------------------------------------------------------------------------

def empty(nodes):
    for node in nodes[:3]:
        node.client().flushall()


def replay(name, server, nodes, connection):
    """All commands to both; what each node did is counted."""
    one, other = Side(OneServer(server.port)), Side(connection)
    one.connection.call("FLUSHALL")
    for cache in one.connection.call("SC.LIST"):
        one.connection.call("SC.DROP", cache)
    empty(nodes)
    before = [calls_of(node) for node in nodes[:3]]
    wrong, n = [], 0
    for line in [*transcripts(), *lines()]:
        seen = []
        for side in (one, other):
            if isinstance(line, str):
                seen.append(without_code(side.ask(line)))
            else:
                seen.append(without_code(side.plain(side.connection.call(*line))))
        words = line.split(" ") if isinstance(line, str) else line
        if words[0] == "VRANDMEMBER":
            seen = [len(x) if isinstance(x, list) else x for x in seen]
        elif words[0] == "SC.LIST":  # those of one node
            seen = [[], [x for x in seen[1] if x not in seen[0]]]
        elif words[0] == "VSEGMENTS":  # the number of the first, and the rest
            seen = [[x[0][:1], x[0][2:]] if isinstance(x, list) and x else x for x in seen]
        elif words[0] == "VNONSENSE":  # who says it, and how, differs
            seen = [True, str(seen[1]).startswith("error ")]
        n += 1
        if not same(*seen):
            wrong.append((words, seen))
    one.connection.close()
    checks.same("%s: %d commands get the replies of quire-server" % (name, n), wrong[:5], [])
    there = [calls_of(node) - calls for node, calls in zip(nodes, before)]
    checks.that("%s: each node has answered some of them" % name, all(x > 0 for x in there), there)


def calls_of(node):
    return sum(int(value["calls"]) for name, value in node.client().info("commandstats").items()
               if re.match(r"cmdstat_(V|v|SC|sc|JSON|json)", name))


def transaction(name, connection):
    reply = connection.call("MULTI", "SET", "{t}version", "3", "VADD", "{t}docs", "VALUES", "3", "1", "2", "3", "a")
    checks.same("%s: a transaction of one slot" % name, reply, [b"OK", 1])


def run_redis_cli(server, nodes):
    empty(nodes)
    done = subprocess.run([sys.executable, str(HERE.parent / "e2e" / "pages.py"), str(PAGE)],
                          env={**os.environ, "QUIRE_HOST": "cluster", "QUIRE_PORT": str(nodes[0].port)})
    checks.failed += done.returncode != 0
    script = "GET {t}version\nMULTI\nSET {t}version 3\nVADD {t}docs VALUES 3 1 2 3 a\nEXEC\n"
    seen = subprocess.run(["redis-cli", "-c", "-p", str(nodes[0].port)], input=script, capture_output=True, text=True)
    checks.that("redis-cli -c: a transaction of one slot", seen.stdout.split()[-4:] == ["QUEUED", "QUEUED", "OK", "1"],
                seen.stdout)


def run_client(name, server, nodes):
    connection = RedisPy(nodes) if name == "redis_py" else NodeClient(name, nodes)
    replay(name, server, nodes, connection)
    if name != "redis_py":  # of which Debian's has no transactions in a cluster
        transaction(name, connection)
    connection.close()


def keys_of(stream, words):
    reply = stream.call("COMMAND", "GETKEYS", *words)
    return "no keys" if isinstance(reply, Error) else reply


def test_keys(server, nodes):
    """The keys of each command, by name and by the lines that are sent."""
    one, other = Stream(server.port), Stream(nodes[0].port)
    side, wrong, n = Side(one), [], 0
    for line in [*transcripts(), *(side.words(line) for line in (SETS + CACHES + SEARCHES + DOCUMENTS).splitlines() if line)]:
        if line[0] not in ("VNONSENSE", "FLUSHALL"):
            n += 1
            seen = keys_of(one, line), keys_of(other, line)
            if seen[0] != seen[1]:
                wrong.append((line, seen))
    checks.same("COMMAND GETKEYS of %d commands is that of quire-server" % n, wrong[:5], [])
    mine, theirs = ({row[0]: row for row in flat(stream.call("COMMAND"))} for stream in (one, other))
    ours = [name for name in mine if re.match(rb"(v|sc\.|ft\.|json\.)", name) and name in theirs]
    checks.that("COMMAND has them all", len(ours) > 90 and
                not [name for name in mine if re.match(rb"(v[a-z]|sc\.|ft\.|json\.)", name) and name not in theirs],
                len(ours), [name for name in mine if re.match(rb"(v[a-z]|sc\.|ft\.|json\.)", name) and name not in theirs])
    differ = [(name, mine[name][1:6], theirs[name][1:6]) for name in ours
              if [mine[name][i] for i in (1, 3, 4, 5)] != [theirs[name][i] for i in (1, 3, 4, 5)]]
    checks.same("arity, first key, last key and step of %d commands are quire-server's" % len(ours), differ[:5], [])
    for line in OF_ANY_NODE:
        answers = [Stream(node.port).call(*line.split()) for node in nodes[:3]]
        checks.that("%s: any node answers" % line, not any(isinstance(a, Error) for a in answers), answers)


def flat(rows):
    """Rows of commands, and of their sub-commands."""
    for row in rows:
        yield row
        if len(row) > 9 and isinstance(row[9], list):
            yield from flat(row[9])


READS = (("VCARD", "v"), ("VDIM", "v"), ("VSIM", "v", "ELE", "e3", "COUNT", 5, "WITHSCORES"), ("VEMB", "v", "e1"),
         ("VGETATTR", "v", "e2"), ("VISMEMBER", "v", "e9"), ("VRANGE", "v", "-", "+", 5), ("VMSIM", "v", 1, "ELE", "e4"),
         ("VLINKS", "v", "e1"), ("VCOUNT", "v", "FILTER", ".n > 5"), ("JSON.GET", "{v}j", "$"), ("QUIRE.DIGEST", "v"))


def test_replicas(nodes):
    """A replica answers reads after READONLY, and sends others on before; a client that asks replicas gets there."""
    client = redis.RedisCluster(host="127.0.0.1", port=nodes[0].port)
    for i in range(20):
        client.execute_command("VADD", "v", "VALUES", 8, *vector(i), "e%d" % i, "SETATTR", '{"n":%d}' % i)
    client.execute_command("JSON.SET", "{v}j", "$", '{"a":[1,2]}')
    leader = next(node for node in nodes[:3] if not isinstance(Stream(node.port).call("VCARD", "v"), Error))
    replica = nodes[3]
    replica.do("CLUSTER", "REPLICATE", leader.do("CLUSTER", "MYID").decode())
    read = Stream(replica.port)
    checks.that("a replica sends who reads on", eventually(lambda: "MOVED" in str(read.call("VCARD", "v")), 20))
    read.call("READONLY")
    leads = Stream(leader.port)
    eventually(lambda: read.call("QUIRE.DIGEST", "v") == leads.call("QUIRE.DIGEST", "v"), 20)
    for words in READS:
        eventually(lambda: read.call(*words) == leads.call(*words), 5)
        checks.same("READONLY: %s as the primary answers" % words[0], read.call(*words), leads.call(*words))
    checks.that("a write is sent on", "MOVED" in str(read.call("VREM", "v", "e1")), read.call("VREM", "v", "e1"))


def test_node_redis_reads(nodes):
    """createCluster with useReplicas sends what is read-only to primaries and replicas."""
    replica = nodes[3]
    eventually(lambda: all(str(replica.port) in str(node.do("CLUSTER", "SLOTS")) for node in nodes), 20)
    client = NodeClient("node_redis", nodes)
    before = calls_of(replica)
    seen = {client.call("VCARD", "v", readonly=True) for _ in range(40)}
    checks.that("node_redis: useReplicas reads of replicas", calls_of(replica) > before and seen == {20}, before, seen)
    client.close()


with Folder() as folder:
    imports = make_data(folder.path)
    (pathlib.Path(folder.path) / "server").mkdir()
    server = Server(pathlib.Path(BUILD), pathlib.Path(folder.path) / "server", "--import-dir", imports)
    try:
        nodes = make_cluster(folder, imports)
        for part in parts:
            begin = time.time()
            if part == "keys":
                test_keys(server, nodes)
            elif part == "redis_cli":
                run_redis_cli(server, nodes)
            else:
                run_client(part, server, nodes)
            print("# %s: %.1f s" % (part, time.time() - begin))
        empty(nodes)
        test_replicas(nodes)
        if "node_redis" in parts:
            test_node_redis_reads(nodes)
    finally:
        server.kill()
checks.end()
