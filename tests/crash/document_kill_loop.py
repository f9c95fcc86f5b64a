#!/usr/bin/env python3
"""document_kill_loop.py - kills quire-server with SIGKILL while clients write documents that indexes (FT.*) follow.

Every connection has hashes and JSON documents of its own, and writes them through pipelines: whole, in parts, in
transactions; it renames, copies, restores and removes them, and gives them a time to live. One more connection makes and
drops an index over documents that are there, and moves an alias. Vectors are too long to stay in their hashes: they are held by the index alone, come back when an
index is dropped that was the only one over them (keys s:...), and are read from there by RENAME. After a kill and restart:

  * each connection's documents are as they were after some number of its commands, which covers all it had
    acknowledged: nothing acknowledged is lost, nothing removed or expired comes back, of a transaction all or nothing is
    there;
  * every index is there that was acknowledged and not dropped since, and the alias names what it named last;
  * every search agrees with the documents that are there: tags, numbers and words find each that has them and no
    other, also in the index that was being filled when the server was killed; KNN finds as many as there are, nearly
    all of the nearest, and each at its distance as it is computed here from what HGETALL gives.

Vectors come back bit for bit. Everything random comes from --seed, but for the clock.
"""
import argparse
import collections
import json
import random
import re
import shutil
import struct
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from kill_loop import ROOT, Server, Wrong
from resp_client import Error, Stream, request

DIM, DOCUMENTS, TAGS, NUMBERS, EXPIRES_MS = 64, 400, 6, 50, 100
REFUSED = ("write more slowly", "this write was not made")
ABSENT = ("no such key", "root")  # what was to be changed had been refused
RECALL = 0.95  # of KNN, over all that are asked
FIELDS = ("SCHEMA", "g", "TAG", "n", "NUMERIC", "t", "TEXT", "v", "VECTOR", "HNSW", 6, "TYPE", "FLOAT32", "DIM", DIM,
          "DISTANCE_METRIC", "L2")
PATHS = ("SCHEMA", "$.g", "AS", "g", "TAG", "$.n", "AS", "n", "NUMERIC", "$.t", "AS", "t", "TEXT", "$.v", "AS", "v",
         "VECTOR", "FLAT", 6, "TYPE", "FLOAT32", "DIM", DIM, "DISTANCE_METRIC", "L2")


# A document is a dictionary: g (tag), n (number), t (words), v (list of DIM whole numbers, exact in a float32); a field
# that is not there is not in it.


def as_hash(document):
    words = []
    for name, value in document.items():
        words += [name, struct.pack("<%df" % DIM, *value) if name == "v" else value]
    return words


def from_hash(pairs):
    document = {}
    for name, value in zip(pairs[::2], pairs[1::2]):
        name = name.decode()
        document[name] = [int(x) for x in struct.unpack("<%df" % DIM, value)] if name == "v" else (
            int(value) if name == "n" else value.decode())
    return document


class Part:
    """One command: its words, and effect(document) for each of its keys: what becomes of it, None for nothing."""
    __slots__ = ("words", "effect", "refused")

    def __init__(self, words, effect):
        self.words, self.effect, self.refused = words, effect, False

    def apply(self, state):
        for key, document in [] if self.refused else self.effect(state):
            if document is None:
                state.pop(key, None)
            else:
                state[key] = document


class Command:
    """A part, or several in a transaction (together)."""
    __slots__ = ("parts", "together", "request", "replies", "acknowledged")

    def __init__(self, parts, together=False):
        self.parts, self.together, self.acknowledged = parts, together, False
        self.request = b"".join(request(*part.words) for part in parts)
        self.replies = len(parts)
        if together:
            self.request = request("MULTI") + self.request + request("EXEC")
            self.replies += 2

    def apply(self, state):
        for part in self.parts:
            part.apply(state)


class Client:
    def __init__(self, number, world):
        self.number, self.world, self.random = number, world, random.Random(world.random.random())
        self.settled, self.state = {}, {}  # after the last restart; after all that was sent
        self.window, self.waiting = [], collections.deque()
        self.stream, self.depth, self.expiring = None, 1, 0

    def key(self, kind=None):
        return "%s:%d:%d" % (kind or self.random.choice("hhjs"), self.number, self.random.randrange(DOCUMENTS))

    def document(self):
        pick = self.random
        document = {"g": "tag%d" % pick.randrange(TAGS), "n": pick.randrange(NUMBERS),
                    "t": "word%d and more" % pick.randrange(9),
                    "v": [pick.randrange(256) for _ in range(DIM)]}
        if pick.random() < 0.2:
            del document[pick.choice("gntv")]
        return document

    # -- what it sends --

    def part(self):
        """Of one command. self.state is brought up to date."""
        pick, key = self.random, self.key()
        dice, kind = pick.random(), key[0]
        name = pick.choice("gntv")
        if dice < 0.5 or (key not in self.state and dice < 0.75):
            new = self.document()
            words = ("JSON.SET", key, "$", json.dumps(new)) if kind == "j" else ("HSET", key, *as_hash(new))
            part = Part(words, lambda state: [(key, new if kind == "j" else {**state.get(key, {}), **new})])
        elif dice < 0.65:
            value = self.document().get(name, 0 if name == "n" else None)
            if value is None:
                part = Part(("EXISTS", key), lambda state: [])
            elif kind == "j":
                part = Part(("JSON.SET", key, "$." + name, json.dumps(value)),
                            lambda state: [(key, {**state[key], name: value})] if key in state else [])
            else:
                part = Part(("HSET", key, *as_hash({name: value})),
                            lambda state: [(key, {**state.get(key, {}), name: value})])
        elif dice < 0.73:  # what is empty then is gone, in JSON as well
            part = Part(("JSON.DEL", key, "$." + name) if kind == "j" else ("HDEL", key, name), lambda state: [
                (key, {k: v for k, v in state.get(key, {}).items() if k != name} or None)])
        elif dice < 0.80:
            other = self.key(kind)
            part = Part(("RENAME", key, other), lambda state: [(other, state[key]), (key, None)]
                        if key in state and other != key else [])
        elif dice < 0.84:
            other = self.key(kind)
            part = Part(("COPY", key, other, "REPLACE") if other != key else ("EXISTS", key), lambda state: [
                (other, state[key])] if key in state else [])
        elif dice < 0.88:
            new, payload = pick.choice(self.world.payloads[kind == "j"])
            part = Part(("RESTORE", key, 0, payload, "REPLACE"), lambda state: [(key, new)])
        elif dice < 0.90:  # longer than the test
            part = Part(pick.choice((("EXPIRE", key, 100000), ("PEXPIRE", key, 10 ** 8), ("PERSIST", key))),
                        lambda state: [])
        else:
            part = Part((pick.choice(("DEL", "UNLINK", "JSON.DEL") if kind == "j" else ("DEL", "UNLINK")), key),
                        lambda state: [(key, None)])
        part.apply(self.state)
        return part

    def one_that_expires(self):
        """A document under a key that nothing else uses: it is gone when EXPIRES_MS have passed."""
        self.expiring += 1
        kind, new = self.random.choice("hhjs"), self.document()
        key = "%s:%d:e%d" % (kind, self.number, self.expiring)
        parts = [Part(("JSON.SET", key, "$", json.dumps(new)) if kind == "j" else ("HSET", key, *as_hash(new)),
                      lambda state: [(key, new)]),
                 Part(("PEXPIRE", key, self.random.randrange(1, EXPIRES_MS)), lambda state: [(key, None)])]
        for part in parts:
            part.apply(self.state)
        return parts

    def next_commands(self):
        """What is not in a transaction may be cut between any two parts."""
        if self.random.random() < 0.04:
            parts = self.one_that_expires()
            return [Command(parts, True)] if self.random.random() < 0.5 else [Command([part]) for part in parts]
        if self.random.random() < 0.06:
            return [Command([self.part() for _ in range(self.random.randint(2, 5))], True)]
        return [Command([self.part()])]

    # -- sockets --

    def connect(self, port):
        self.stream, self.depth = Stream(port), self.random.choice((1, 8, 32))

    def step(self):
        batch = b""
        while len(self.waiting) < self.depth:
            for command in self.next_commands():
                self.window.append(command)
                self.waiting.append([command, command.replies])
                batch += command.request
        self.stream.socket.sendall(batch)
        data = self.stream.socket.recv(1 << 18)
        if not data:
            raise Wrong("the server closed a connection")
        for reply in self.stream.feed(data):
            self.take(reply)

    def take(self, reply):
        waiting = self.waiting[0]
        command, left = waiting
        parts = command.parts
        if command.together:  # OK, QUEUED ..., and the reply of EXEC
            if left > 1 and reply not in ("OK", "QUEUED"):
                raise Wrong("connection %d: in MULTI: %r" % (self.number, reply))
            replies = [] if left > 1 else reply if isinstance(reply, list) else [reply] * len(parts)
        else:
            replies = [reply]
        for part, one in zip(parts, replies):
            if isinstance(one, Error):
                self.take_error(part, one)
        waiting[1] -= 1
        if waiting[1] == 0:
            self.waiting.popleft()
            command.acknowledged = True
            self.world.acknowledged += 1

    def take_error(self, part, error):
        """The load refuses a write, which then has not been made; and what it would have made is not there."""
        if any(words in error for words in REFUSED):
            part.refused = True
            self.world.refused += 1
            self.state = dict(self.settled)
            for command in self.window:
                command.apply(self.state)
        elif not any(words in error for words in ABSENT):
            raise Wrong("connection %d: %r: %s" % (self.number, part.words[:3], error))

    # -- after a restart --

    def compare(self, found):
        """found: key: document, of this connection. The number of commands of the window that explains it is settled."""
        at_least = sum(c.acknowledged for c in self.window)
        state, differences = dict(self.settled), None
        for applied in range(len(self.window) + 1):
            if applied >= at_least:
                if state == found:
                    break
                differences = differences or [(k, found.get(k), state.get(k))
                                              for k in sorted(state.keys() | found.keys())
                                              if found.get(k) != state.get(k)]
            if applied < len(self.window):
                self.window[applied].apply(state)
        else:
            raise Wrong("connection %d: no number of its commands (%d, %d acknowledged) explains its documents; after the "
                        "acknowledged ones: (key, found, expected) %r" % (self.number, len(self.window), at_least,
                            differences[:3]))
        self.settled, self.state = state, dict(state)
        self.window, self.waiting = [], collections.deque()


class World:
    def __init__(self, options, folder):
        self.options, self.folder, self.random = options, folder, random.Random(options.seed)
        self.clients = [Client(i, self) for i in range(options.connections)]
        self.server, self.maintenance = None, None
        # the index that comes and goes, and where the alias leads: what may be after the last reply
        self.extra, self.alias = {False}, {"ih"}
        self.acknowledged = self.searches = self.compared = self.kills_in_recovery = self.fills = self.segments = 0
        self.refused = self.wanted_near = self.found_near = 0
        self.payloads = ([], [])  # of hashes, of JSON: (document, what DUMP gave of it)

    def settings(self):
        pick = self.random.choice
        return ["--appendfsync", "always", "--memtable-memory", pick(("64kb", "256kb", "1mb")), "--segments-max",
                pick(("2", "4", "12")),
                "--checkpoint-log", pick(("1mb", "1mb", "4mb")), "--engine", pick(("auto", "auto", "threads")),
                "--lanes", pick(("1", "2", "3"))]

    def start(self):
        settings = self.settings()
        while self.random.random() < 0.15:
            self.server = Server(self.options, self.folder, settings)
            time.sleep(self.random.uniform(0, 0.08))
            self.server.kill()
            self.kills_in_recovery += 1
        self.server = Server(self.options, self.folder, settings)
        port = self.server.wait_ready()
        seen = re.search(r"(\d+) segments; replayed (\d+) records", self.server.log())
        if not seen:
            raise Wrong("the log does not say what was recovered: " + self.server.log())
        self.segments = max(self.segments, int(seen.group(1)))
        return port

    def make(self, port):
        stream = Stream(port)
        for words in (("FT.CREATE", "ih", "ON", "HASH", "PREFIX", 1, "h:", *FIELDS),
                      ("FT.CREATE", "ij", "ON", "JSON", "PREFIX", 1, "j:", *PATHS),
                      ("FT.ALIASADD", "now", "ih")):
            reply = stream.call(*words)
            if reply != "OK":
                raise Wrong("%s: %s" % (words[:2], reply))
        for n in range(16):
            document, is_json = self.clients[0].document(), n % 2
            stream.call(*(("JSON.SET", "x", "$", json.dumps(document)) if is_json
                          else ("HSET", "x", *as_hash(document))))
            self.payloads[is_json].append((document, stream.call("DUMP", "x")))
            stream.call("DEL", "x")
        stream.socket.close()

    # -- load --

    def maintain(self):
        """Makes or drops the index `extra`, or moves the alias."""
        if self.random.random() < 0.6:
            there = next(iter(self.extra))
            words = ("FT.DROPINDEX", "extra") if there else ("FT.CREATE", "extra", "ON", "HASH", "PREFIX", 2, "h:",
                                                             "s:", *FIELDS)
            self.extra = {there, not there}
            reply = self.maintenance.call(*words)
            self.extra = {not there}
            self.fills += not there
        else:
            target = self.random.choice(("ih", "ij"))
            self.alias = self.alias | {target}
            reply = self.maintenance.call("FT.ALIASUPDATE", "now", target)
            self.alias = {target}
        if reply != "OK":
            raise Wrong("index commands: %s" % (reply,))

    def load(self, port, seconds):
        self.maintenance = Stream(port)
        for client in self.clients:
            client.connect(port)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.random.choice(self.clients).step()
            if self.random.random() < 0.02:
                self.maintain()
        # a command of indexes whose reply nobody waits for
        if self.random.random() < 0.4:
            there = next(iter(self.extra))
            self.extra = {there, not there}
            self.maintenance.socket.sendall(request(*(("FT.DROPINDEX", "extra") if there else
                                                      ("FT.CREATE", "extra", "ON", "HASH", "PREFIX", 2, "h:",
                                                       "s:", *FIELDS))))
            time.sleep(self.random.uniform(0, 0.02))

    # -- comparison --

    def read_all(self, stream):
        keys = sorted(stream.call("KEYS", "*"))
        found = {}
        for key, reply in zip(keys, stream.ask([request("JSON.GET" if k.startswith(b"j:") else "HGETALL", k)
                                                for k in keys])):
            if reply is None or isinstance(reply, Error):
                raise Wrong("%r is listed, but reads as %r" % (key, reply))
            found[key.decode()] = json.loads(reply) if key.startswith(b"j:") else from_hash(reply)
        self.compared += len(found)
        return found

    def compare(self, port):
        time.sleep(EXPIRES_MS / 1000)
        stream = Stream(port)
        found = self.read_all(stream)
        for client in self.clients:
            client.compare({k: d for k, d in found.items() if k.split(":")[1] == str(client.number)})
        indexes = sorted(n.decode() for n in stream.call("FT._LIST"))
        has_extra = "extra" in indexes
        if [n for n in indexes if n != "extra"] != ["ih", "ij"] or has_extra not in self.extra:
            raise Wrong("FT._LIST is %r; extra may be there: %r" % (indexes, self.extra))
        self.extra = {has_extra}
        named = stream.call("FT.INFO", "now")
        if isinstance(named, Error) or named[1].decode() not in self.alias:
            raise Wrong("the alias leads to %r; it may be %r" % (named, self.alias))
        self.alias = {named[1].decode()}
        for index in indexes:
            kinds = {"ij": ("j:", ), "ih": ("h:", )}.get(index, ("h:", "s:"))
            self.search(stream, index, {k: d for k, d in found.items() if k.startswith(kinds)})
        stream.socket.close()

    def search(self, stream, index, documents):
        end = time.monotonic() + 30  # an index may still be filled from the keys
        while (reply := stream.call("FT.SEARCH", index, "*", "LIMIT", 0,
                                    0)) != [len(documents)] and time.monotonic() < end:
            time.sleep(0.01)
        if reply != [len(documents)]:
            raise Wrong("%s: %r documents, there are %d" % (index, reply, len(documents)))
        wanted = [("@g:{tag%d}" % i, lambda d, i=i: d.get("g") == "tag%d" % i) for i in range(TAGS)]
        wanted += [("@n:[%d %d]" % (a, a + 9), lambda d, a=a: a <= d.get("n", -1) <= a + 9)
                   for a in range(0, NUMBERS, 10)]
        wanted += [("@t:word%d" % i, lambda d, i=i: d.get("t", "").startswith("word%d " % i)) for i in range(9)]
        wanted += [("-@g:{tag0}", lambda d: d.get("g") != "tag0")]
        replies = stream.ask([request("FT.SEARCH", index, q, "NOCONTENT", "LIMIT", 0, 100000, "DIALECT", 2) for q,
                              _ in wanted])
        for (query, holds), reply in zip(wanted, replies):
            right = {k for k, d in documents.items() if holds(d)}
            seen = {k.decode() for k in reply[1:]} if isinstance(reply, list) else reply
            if seen != right:
                raise Wrong("%s: %s finds %s; too many %r, missing %r" % (index, query, len(seen),
                    sorted(set(seen) - right)[:3],
                                                                         sorted(right - set(seen))[:3]))
        for _ in range(3):
            self.nearest(stream, index, documents)
        self.searches += len(wanted) + 3

    def nearest(self, stream, index, documents):
        asked, tag = [self.random.randrange(256) for _ in range(DIM)], "tag%d" % self.random.randrange(TAGS)
        far = {k: sum((a - b) ** 2 for a, b in zip(asked, d["v"])) for k, d in documents.items() if "v" in d
               and d.get("g") == tag}
        reply = stream.call("FT.SEARCH", index, "(@g:{%s})=>[KNN 5 @v $q AS d]" % tag, "PARAMS", 2, "q",
                            struct.pack("<%df" % DIM, *asked),
                            "RETURN", 1, "d", "LIMIT", 0, 5, "DIALECT", 2)
        if isinstance(reply, Error):
            raise Wrong("%s: KNN: %s" % (index, reply))
        hits = [(key.decode(), float(fields[1])) for key, fields in zip(reply[1::2], reply[2::2])]
        right = sorted(far.values())[:5]
        if len(hits) != len(right) or hits != sorted(hits, key=lambda hit: hit[1]) or any(far.get(k) != d for k,
            d in hits):
            raise Wrong("%s: KNN in %s: %r, the nearest are at %r" % (index, tag, hits, right))
        self.wanted_near += len(right)
        self.found_near += sum(d <= right[-1] for _, d in hits)

    # -- a cycle --

    def cycle(self, number):
        port = self.start()
        if number == 0:
            self.make(port)
        else:
            self.compare(port)
        self.load(port, self.random.uniform(0.05, 1.5))
        self.server.kill()
        for client in self.clients:
            client.stream.socket.close()
        self.maintenance.socket.close()

    def summary(self, cycles, begin):
        return {"cycles": cycles, "seed": self.options.seed, "seconds": round(time.monotonic() - begin, 1),
                "acknowledged": self.acknowledged,
                "documents_compared": self.compared, "searches": self.searches, "indexes_filled": self.fills,
                "kills_in_recovery": self.kills_in_recovery, "most_segments": self.segments, "refused": self.refused,
                "recall": round(self.found_near / max(self.wanted_near, 1), 4)}


def run(options, folder):
    world, begin, cycles = World(options, folder), time.monotonic(), 0
    try:
        while cycles < options.cycles:
            world.cycle(cycles)
            cycles += 1
            if options.verbose:
                print("cycle %d: %s" % (cycles, world.summary(cycles, begin)), flush=True)
        port = world.start()
        world.compare(port)
        world.server.stop()
        if not world.acknowledged or not world.searches:
            raise Wrong("nothing was compared: %r" % world.summary(cycles, begin))
        if world.found_near < RECALL * world.wanted_near:
            raise Wrong("KNN found %d of %d" % (world.found_near, world.wanted_near))
    except (Wrong, OSError) as e:
        if world.server and world.server.process.poll() is None:
            time.sleep(0.2)
        print("FAIL - document kill loop, cycle %d, seed %d: %s" % (cycles, options.seed, str(e)[:3000]))
        print("\n".join("    | " + line for line in (world.server.log()[-1500:] if world.server else "").splitlines()))
        return world.summary(cycles, begin), False
    finally:
        if world.server and world.server.process.poll() is None:
            world.server.kill()
    print("ok - document kill loop: %d kills and restarts, %d commands acknowledged, %d documents and %d searches compared" % (
        cycles, world.acknowledged, world.compared, world.searches))
    return world.summary(cycles, begin), True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build-dir", type=Path, default=ROOT / "build/release", help="where the programs are")
    parser.add_argument("--cycles", type=int, default=10)
    parser.add_argument("--seed", type=int, default=None, help="of everything random (by the clock)")
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--keep", action="store_true", help="keep the folder when something is wrong")
    parser.add_argument("--verbose", action="store_true", help="a line per cycle")
    options = parser.parse_args()
    options.seed = options.seed if options.seed is not None else time.time_ns() % 1000000
    print("seed %d" % options.seed, flush=True)
    folder, right = Path(tempfile.mkdtemp(prefix="quire-crash.")), False
    try:
        summary, right = run(options, folder)
        print(json.dumps(summary))
    finally:
        if options.keep and not right:
            print("    | kept: %s" % folder)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
