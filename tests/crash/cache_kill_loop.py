#!/usr/bin/env python3
"""cache_kill_loop.py - kills quire-server with SIGKILL while clients write to a semantic cache, again and again.

Every connection has scopes, tags and a category of its own, so that the order of its requests is that of their effects.
Through pipelines it puts answers (some with a TTL of some 100 ms), asks for them by hash and by vector, invalidates by
tag, scope, id and category, changes settings and removes its category. A shadow knows, of each question, the answers
that may be there. After a kill and restart each question is asked:

  * whatever answers is an answer that was put to this question in this scope, not removed by anything acknowledged,
    not expired, and not older than one that was acknowledged;
  * what does not answer then never comes back; what does answer does so after the next kill as well, unless it was
    removed or its life is over: it must be on the disk by then;
  * a lease granted before an invalidation that was acknowledged is outdated after the restart; one that nothing was
    invalidated for brings its answer in;
  * `quire verify` has no findings, neither of what the kill left nor of snapshots taken meanwhile.

While the server lives, the newest answer is the only one. Everything random comes from --seed, but for the clock.
"""
import argparse
import collections
import contextlib
import json
import math
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from kill_loop import ROOT, Server, Wrong
from resp_client import Error, Stream, request

DIM, QUESTIONS, TENANTS, TAGS = 24, 30, 2, 5
SHORT_MS = 400
CATEGORIES = 900  # of a cache, removed ones included; 1024 are allowed
REFUSED = ("OOM", "BUSY", "the disk is behind", "write more slowly")


def as_dict(reply):
    if isinstance(reply, Error) or not isinstance(reply, list):
        raise Wrong("reply %r where a map should be" % (reply,))
    return {k.decode() if isinstance(k, bytes) else k: v for k, v in zip(reply[::2], reply[1::2])}


def text_of(value):
    return value.decode() if isinstance(value, bytes) else value


class Answer:
    """Something that was put to a question."""
    __slots__ = ("value", "tag", "short", "category", "end", "lives", "acknowledged", "id", "settled")

    def __init__(self, value, tag, short, category):
        self.value, self.tag, self.short, self.category = value, tag, short, category
        self.end = math.inf  # it has expired at this time for sure (monotonic), and
        self.lives = time.monotonic() + SHORT_MS / 1000 if short else math.inf  # not before: a request takes its time
        self.acknowledged = self.settled = False  # settled: it answered after a restart
        self.id = None


class Command:
    __slots__ = ("kind", "words", "question", "answer", "removed", "possible", "sent")

    def __init__(self, kind, words, question=None, answer=None, removed=(), possible=()):
        self.kind, self.words, self.question, self.answer = kind, words, question, answer
        self.removed, self.possible, self.sent = removed, possible, 0.0
        for _, answer in removed:  # a kill before the reply leaves open whether it is gone
            answer.settled = False


class Client:
    """A connection, and what its questions may be answered with: the last of a list is the newest."""

    def __init__(self, number, world):
        self.number, self.world, self.random = number, world, random.Random(world.random.random())
        self.answers = collections.defaultdict(list)  # (tenant, question): answers that may be there
        self.asked = collections.defaultdict(list)  # reads that have no reply yet
        self.waiting = collections.deque()
        self.stream, self.depth, self.count = None, 1, 0
        self.own, self.deleted = "own%d" % number, 0

    def vector(self, question):
        return self.world.vectors[(self.number * 7 + question) % len(self.world.vectors)]

    def scope(self, tenant):
        return ("SCOPE", "tenant", "t%d.%d" % (self.number, tenant))

    def hash(self, question):
        return "%032x" % (question + 1)

    # -- what it sends --

    def next_command(self):
        dice, pick = self.random.random(), self.random
        key = (pick.randrange(TENANTS), pick.randrange(QUESTIONS))
        if dice < 0.45:
            return self.put(key)
        if dice < 0.80:
            return self.get(key)
        if dice < 0.86:
            tag = self.tag(pick.randrange(TAGS))
            return self.removal(("SC.INVALIDATE", "c", "TAG", tag), lambda key, a: a.tag == tag)
        if dice < 0.93:
            return self.remove_id(key)
        if dice < 0.95:
            tenant = pick.randrange(TENANTS)
            return self.removal(("SC.INVALIDATE", "c", *self.scope(tenant)), lambda key, a: key[0] == tenant)
        if dice < 0.97:
            return self.removal(("SC.INVALIDATE", "c", "CAT", self.own), lambda key, a: a.category == self.own)
        if dice < 0.98 and self.deleted < CATEGORIES // self.world.options.connections:
            self.deleted += 1
            return self.removal(("SC.CAT.DEL", "c", self.own), lambda key, a: a.category == self.own)
        return Command("other", ("SC.CAT.SET", "c", self.own, *self.settings()))

    def tag(self, number):
        return "tag%d.%d" % (self.number, number)

    def settings(self):
        return ("SIM", "0.9", "JITTER", "0", "TTL", self.random.choice(("3600000", "600000", "100000000")),
                "EVICT", self.random.choice(("lru", "lfu", "cost")))

    def put(self, key):
        self.count += 1
        category = self.own if key[1] % 3 == 0 else "common"
        value = "%d/%d/%d/%d " % (self.number, *key, self.count) + "x" * self.random.choice((0, 0, 100, 3000))
        answer = Answer(value, self.tag(self.random.randrange(TAGS)), self.random.random() < 0.15, category)
        words = ["SC.PUT", "c", "CAT", category, *self.scope(key[0]), "HASH", self.hash(key[1]), "VEC",
                 self.vector(key[1]), "VALUE", value, "TAG", answer.tag]
        if answer.short:
            words += ["TTL", SHORT_MS]
        self.answers[key].append(answer)
        for command in self.asked[key]:  # a read waits for its document while this comes in between
            command.possible.append(answer)
        return Command("put", words, key, answer)

    def get(self, key):
        category = self.own if key[1] % 3 == 0 else "common"
        by = ("HASH", self.hash(key[1])) if self.random.random() < 0.5 else ("VEC", self.vector(key[1]))
        words = ("SC.GET", "c", "CAT", category, *self.scope(key[0]), *by, "NOLEASE")
        command = Command("get", words, key, possible=self.answers[key][-1:])
        self.asked[key].append(command)
        return command

    def removal(self, words, of):
        """What it removes counts as gone from its reply on; from now on it may be."""
        removed = [(key, a) for key, answers in self.answers.items() for a in answers if of(key, a)]
        return Command("removal", words, removed=removed)

    def remove_id(self, key):
        known = [a for a in self.answers[key] if a.id and a.acknowledged]
        if not known:
            return self.get(key)
        return Command("removal", ("SC.DEL", "c", known[-1].id), removed=[(key, known[-1])])

    # -- what comes back --

    def take(self, command, reply):
        if isinstance(reply, Error):
            if any(words in reply for words in REFUSED):
                self.world.refused += 1
                if command.kind == "put":
                    self.drop(command.question, command.answer)
                return
            unknown = "no category" in reply and self.own in reply
            if not unknown:
                raise Wrong("%r: %s" % (command.words, reply))
            if command.kind == "put":
                self.drop(command.question, command.answer)
            return
        if command.kind == "put":
            self.take_put(command, as_dict(reply))
        elif command.kind == "get":
            self.asked[command.question].remove(command)
            self.check_get(command.question, as_dict(reply), command.sent, command.possible)
        for key, answer in command.removed:
            self.drop(key, answer)
            self.world.removed += 1

    def take_put(self, command, reply):
        answer, outcome = command.answer, text_of(reply["outcome"])
        if outcome not in ("stored", "replaced"):
            raise Wrong("%r: outcome %s" % (command.words[:4], outcome))
        answer.acknowledged, answer.id = True, text_of(reply["id"])
        if reply["ttl_ms"] >= 0:
            answer.end = time.monotonic() + reply["ttl_ms"] / 1000
            answer.lives = command.sent + reply["ttl_ms"] / 1000
        answers = self.answers[command.question]
        if answer in answers:
            del answers[:answers.index(answer)]  # what it replaced never comes back
        self.world.puts += 1

    def check_get(self, key, reply, sent, possible):
        status = text_of(reply["status"])
        if status == "miss":
            return None
        if status not in ("hit", "exact"):
            raise Wrong("connection %d, question %r: status %s" % (self.number, key, status))
        value = text_of(reply["value"])
        match = [a for a in possible if a.value == value]
        if not match:
            raise Wrong("connection %d, question %r: answers %.60s; it may be one of %r" % (
                self.number, key, value, [a.value[:40] for a in possible]))
        if match[0].end < sent:
            raise Wrong("connection %d, question %r: answers %.60s, %.3f s after its end" % (
                self.number, key, value, sent - match[0].end))
        self.world.hits += 1
        return match[0]

    def drop(self, key, answer):
        with contextlib.suppress(ValueError):
            self.answers[key].remove(answer)

    # -- sockets --

    def connect(self, port):
        self.stream, self.depth = Stream(port), self.random.choice((1, 4, 16))
        self.waiting.clear()

    def step(self):
        """Sends some and reads some."""
        batch = b""
        while len(self.waiting) < self.depth:
            command = self.next_command()
            command.sent = time.monotonic()
            self.waiting.append(command)
            batch += request(*command.words)
        self.stream.socket.sendall(batch)
        self.read_one()

    def read_one(self):
        data = self.stream.socket.recv(1 << 18)
        if not data:
            raise Wrong("the server closed a connection")
        for reply in self.stream.feed(data):
            self.take(self.waiting.popleft(), reply)

    def finish(self):
        while self.waiting:
            self.read_one()

    # -- after a restart --

    def compare(self, port):
        stream = Stream(port)
        self.asked.clear()
        stream.ask([request("SC.CAT.SET", "c", self.own, *self.settings())])
        keys = [(t, q) for t in range(TENANTS) for q in range(QUESTIONS)]
        self.random.shuffle(keys)
        commands = [self.get(key) for key in keys]
        sent = time.monotonic()
        for command, reply in zip(commands, stream.ask([request(*c.words) for c in commands])):
            key, answers = command.question, self.answers[command.question]
            answer = self.check_get(key, as_dict(reply), sent, answers)
            settled = next((a for a in answers if a.settled), None)
            if settled and settled is answers[-1] and not answer and settled.lives > time.monotonic():
                again = [stream.ask([request(*c.words)])[0] for c in (command, *(self.get(key) for _ in range(4)))]
                raise Wrong("connection %d, question %r: %.60s answered after the last restart, nothing removed it, "
                            "and it has %.3f s to live; %r: %r; asked again: %r" % (
                                self.number, key, settled.value, settled.lives - time.monotonic(), command.words,
                                reply, again))
            self.answers[key] = [answer] if answer else []
            if answer:
                answer.settled = answer.acknowledged = True
                self.world.survived += 1
        stream.socket.close()


class World:
    def __init__(self, options, folder):
        self.options, self.folder, self.random = options, folder, random.Random(options.seed)
        self.vectors, self.server = [], None
        generator = random.Random(1)
        while len(self.vectors) < QUESTIONS + 7 * options.connections:
            v = [generator.gauss(0, 1) for _ in range(DIM)]
            norm = math.sqrt(sum(x * x for x in v))
            self.vectors.append([x / norm for x in v])
            if any(sum(a * b for a, b in zip(self.vectors[-1], other)) > 0.8 for other in self.vectors[:-1]):
                self.vectors.pop()
        self.vectors = [struct.pack("<%df" % DIM, *v) for v in self.vectors]
        self.clients = [Client(i, self) for i in range(options.connections)]
        self.puts = self.hits = self.removed = self.survived = self.refused = 0
        self.verified = self.leases = self.snapshots = self.kills_in_recovery = 0
        self.lease = None  # of the cycle before: tokens and what must become of them

    def settings(self):
        pick = self.random.choice
        return ["--appendfsync", "always", "--checkpoint-log", pick(("1mb", "1mb", "4mb")), "--engine",
                pick(("auto", "auto", "threads")), "--lanes", pick(("1", "2", "3"))]

    def start(self):
        settings = self.settings()
        while self.random.random() < 0.15:
            self.server = Server(self.options, self.folder, settings)
            time.sleep(self.random.uniform(0, 0.08))
            self.server.kill()
            self.kills_in_recovery += 1
        self.server = Server(self.options, self.folder, settings)
        return self.server.wait_ready()

    def make(self, port):
        stream = Stream(port)
        replies = stream.ask([
            request("SC.CREATE", "c", "DIM", DIM, "ENCODER", "enc@1", "SCOPE", "tenant"),
            *(request("SC.CAT.SET", "c", name, "SIM", "0.9", "JITTER", "0", "TTL", "3600000")
              for name in ["common", "leases"] + [c.own for c in self.clients])])
        if any(isinstance(r, Error) for r in replies):
            raise Wrong("%r" % replies)
        stream.socket.close()

    def load(self, port, seconds):
        for client in self.clients:
            client.connect(port)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.random.choice(self.clients).step()

    # -- leases --

    def lease_request(self, tag, *words):
        return request(*words[:2], "CAT", "leases", "SCOPE", "tenant", "lease", "HASH", "%032x" % tag, *words[2:])

    def draw_leases(self, port, number):
        """Two leases; for the first its answer's tag is invalidated."""
        stream, tokens = Stream(port), []
        for i in (2 * number + 1, 2 * number + 2):
            reply = as_dict(stream.ask([self.lease_request(i, "SC.GET", "c")])[0])
            if text_of(reply["status"]) != "miss" or not reply["lease"]:
                raise Wrong("no lease for a question that nobody asked: %r" % reply)
            tokens.append((i, text_of(reply["lease"])))
        if stream.ask([request("SC.INVALIDATE", "c", "TAG", "lease%d" % tokens[0][0])])[0] != 0:
            raise Wrong("an invalidation of nothing removes something")
        stream.socket.close()
        self.lease = tokens

    def redeem_leases(self, port):
        if not self.lease:
            return
        stream = Stream(port)
        for (i, token), wanted in zip(self.lease, ("outdated", "stored")):
            reply = as_dict(stream.ask([self.lease_request(
                i, "SC.PUT", "c", "LEASE", token, "VEC", self.vectors[i % len(self.vectors)], "VALUE", "late", "TAG",
                "lease%d" % i)])[0])
            if text_of(reply["outcome"]) != wanted:
                raise Wrong("a lease from before the restart: %s, should be %s" % (reply["outcome"], wanted))
            self.leases += 1
        stream.socket.close()
        self.lease = None

    # -- proofs --

    def verify(self, folder):
        ended = subprocess.run([str(self.options.build_dir / "quire"), "verify", str(folder), "--json"],
                               capture_output=True, text=True, check=False)
        report = json.loads(ended.stdout) if ended.stdout else {}
        if ended.returncode != 0 or report.get("findings") != 0 or report.get("caches") != 1:
            raise Wrong("verify of %s: %s %s" % (folder, ended.stdout[:1500], ended.stderr[:500]))
        self.verified += 1

    def snapshot(self, port):
        stream = Stream(port)
        reply = stream.ask([request("BGSAVE")])[0]
        if isinstance(reply, Error):
            raise Wrong("BGSAVE: " + reply)
        stream.socket.close()
        self.snapshots += 1

    def verify_snapshots(self):
        folder = self.folder / "data" / "snapshots"
        for path in sorted(folder.iterdir()) if folder.exists() else []:
            if path.name != "new":
                self.verify(path)
        shutil.rmtree(folder, ignore_errors=True)

    # -- a cycle --

    def compare(self, port):
        for client in self.clients:
            client.compare(port)
        self.redeem_leases(port)

    def cycle(self, number):
        port = self.start()
        if number == 0:
            self.make(port)
        else:
            self.compare(port)
        self.load(port, self.random.uniform(0.05, 0.6))
        if self.random.random() < 0.3:
            self.snapshot(port)
            self.load_on(self.random.uniform(0.05, 0.3))
        if self.random.random() < 0.5:
            for client in self.clients:
                client.finish()
            self.draw_leases(port, number)
        self.server.kill()
        for client in self.clients:
            client.stream.socket.close()
        if self.random.random() < 0.4:
            self.verify(self.folder / "data")
        self.verify_snapshots()

    def load_on(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.random.choice(self.clients).step()

    def summary(self, cycles, begin):
        return {"cycles": cycles, "seed": self.options.seed, "seconds": round(time.monotonic() - begin, 1),
                "puts_acknowledged": self.puts, "hits": self.hits, "removed": self.removed,
                "answers_after_restarts": self.survived, "refused": self.refused, "leases": self.leases,
                "folders_verified": self.verified, "snapshots": self.snapshots,
                "kills_in_recovery": self.kills_in_recovery}


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
        world.verify(folder / "data")
        if world.survived == 0 or world.hits == 0 or world.removed == 0:
            raise Wrong("nothing was compared: %r" % world.summary(cycles, begin))
    except (Wrong, OSError) as e:
        if world.server and world.server.process.poll() is None:
            time.sleep(0.2)
        print("FAIL - cache kill loop, cycle %d, seed %d: %s" % (cycles, options.seed, str(e)[:3000]))
        print("\n".join("    | " + line for line in (world.server.log()[-1500:] if world.server else "").splitlines()))
        return world.summary(cycles, begin), False
    finally:
        if world.server and world.server.process.poll() is None:
            world.server.kill()
    summary = world.summary(cycles, begin)
    print("ok - cache kill loop: %d kills and restarts, %d answers put, %d removed and gone, %d answers after restarts" %
          (cycles, world.puts, world.removed, world.survived))
    return summary, True


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
