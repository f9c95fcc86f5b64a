#!/usr/bin/env python3
"""kill_loop.py - kills quire-server with SIGKILL under writes, again and again, and compares what it recovers.

Every cycle: the server is started on the folder that the last one left (sometimes killed while it recovers, and started
again), several connections write through pipelines, and after a random time the server is killed. A shadow knows what
was sent and what was acknowledged. After the restart all data is read back and compared:

  * What one connection alone writes (its own elements of common sets, sets and strings of its own) must be as it was
    after some number of its commands, and that number covers all it had acknowledged: nothing acknowledged is lost,
    nothing comes back, no later command survives an earlier one, and of a transaction all or nothing is there.
  * What several connections write (`shared`) must be the value of a command that no acknowledged one followed for
    sure, that is: none that was sent after the reply to it came.
  * Elements are listed (VRANGE), counted (VCARD), searched (VSIM) and looked up one by one; all must agree, and keys
    that nobody made must not exist. VCHECK has no findings.
  * Replies to the writes are compared as well: new, replaced, was not there.

With appendfsync everysec (every eighth cycle of --appendfsync mixed) "acknowledged" means: more than a second before
the kill. Vectors come back rounded as their set rounds, and are told apart from all others of the pool they come from.

Settings of the server change from cycle to cycle, with memtables of 64 kB up, so that seals, merges and checkpoints go
on all the time; the common sets' segments are page graphs or inverted lists. Everything random comes from --seed, but for the threads and the clock.
"""
import argparse
import collections
import contextlib
import json
import math
import os
import random
import re
import selectors
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from resp_client import Error, Stream, request

POOL = 200  # different vectors of a dimension
SECOND = 1.0
# What says that nothing was written: the server is too far behind with merges; one ended within a transaction
REFUSED = ("write more slowly", "this write was not made")
KEEP = object()  # the attributes stay as they are
# Sets that all connections write to: name, dimension, words that the VADD making it carries, elements per connection
COMMON = (("churn", 24, (), 70), ("plain", 96, ("NOQUANT",), 25), ("deep", 12, (), 240))
KINDS = ("pagegraph", "spann")  # what a common set's segments are
SHARED_ELEMENTS = 40
SMALL_SETS, SMALL_ELEMENTS, SMALL_DIM = 12, 8, 6  # per connection; deleted as a whole now and then
STRINGS = 100
HASHES, FIELDS = 5, 20
DOCUMENTS = 20  # per connection


class Wrong(Exception):
    """The server did what it must not do."""


# ---- vectors -------------------------------------------------------------------------------------------------------


class Pool:
    """Vectors of a dimension, pairwise far enough apart that a rounded one is known again."""

    def __init__(self, dim):
        self.dim, self.unit, self.seen = dim, [], {}
        generator = random.Random(dim)
        while len(self.unit) < POOL:
            v = [generator.gauss(0, 1) for _ in range(dim)]
            norm = math.sqrt(sum(x * x for x in v))
            v = [x / norm for x in v]
            if all(max(abs(a - b) for a, b in zip(v, other)) > 0.1 for other in self.unit):
                self.unit.append(v)
        self.packed = [struct.pack("<%df" % dim, *v) for v in self.unit]

    def is_it(self, i, data):
        """Whether the bytes are vector i, rounded."""
        known = self.seen.get((i, data))
        if known is None:
            if len(data) != 4 * self.dim:
                return False
            got = struct.unpack("<%df" % self.dim, data)
            known = max(abs(a - b) for a, b in zip(got, self.unit[i])) < 0.03
            if len(self.seen) < 500000:
                self.seen[(i, data)] = known
        return known


def floats_of(raw):
    """The numbers of a VEMB RAW as bytes of floats: those of a unit vector."""
    if raw[0] not in (b"int8", "int8"):
        return raw[1]
    step = float(raw[3]) / 127
    return struct.pack("<%df" % len(raw[1]), *(x * step for x in struct.unpack("<%db" % len(raw[1]), raw[1])))


# ---- the shadow ----------------------------------------------------------------------------------------------------
#
# An item is ("s", key), of a string or a JSON document, (hash, field) or (set, element). A value is None (it is not
# there), the bytes of a string, a document's text or a field, or (vector, attributes) with attributes b"" where there are none.


def is_element(item):
    return item[0] != "s" and not item[0].startswith("hash:")


def is_refusal(reply):
    return isinstance(reply, Error) and any(words in reply for words in REFUSED)


class Command:
    """effect(state): what it changes, as (item, value), and its reply, given what is there before."""
    __slots__ = ("words", "effect", "changes", "reply", "acknowledged", "shared", "request", "queued", "skipped")

    def __init__(self, words, effect, shared=None):
        self.words, self.effect, self.shared, self.request = words, effect, shared, request(*words)
        self.changes, self.reply, self.acknowledged = [], None, None  # changes: (item, value before, value)
        self.queued, self.skipped = 0, set()  # of a transaction: replies before EXEC's; parts that were refused


def transaction(parts):
    """Parts (item, command that changes it), between MULTI and EXEC: their changes come at once."""
    def together(state):
        changes, replies, seen = [], [], {}
        for i, (item, part) in enumerate(parts):
            old = seen[item] if item in seen else state.get(item)
            more, reply = ([], None) if i in command.skipped else part.effect({} if old is None else {item: old})
            seen.update(more)
            changes += more
            replies.append(reply)
        return changes, replies
    command = Command(("MULTI",), together)
    command.words = tuple(part.words for _, part in parts)
    command.request += b"".join(part.request for _, part in parts) + request("EXEC")
    command.queued = 1 + len(parts)
    return command


def removal(item):
    return lambda state: ([(item, None)], 1) if item in state else ([], 0)


class Shared:
    """Elements that several connections overwrite: for each the writes that its value may come from."""

    def __init__(self):
        self.clock, self.writes = 0, collections.defaultdict(list)  # item: [sent, acknowledged or None, value, time]

    def tick(self):
        self.clock += 1
        return self.clock

    def send(self, item, value):
        entry = [self.tick(), None, value, None]
        self.writes[item].append(entry)
        return entry

    def refuse(self, entry):
        for entries in self.writes.values():
            entries[:] = [e for e in entries if e is not entry]

    def acknowledge(self, entry):
        entry[1], entry[3] = self.tick(), time.monotonic()

    def possible(self, item, before):
        """The values that may be there; what was acknowledged after the time `before` may be lost."""
        entries = self.writes.get(item, [])
        last = max((e[0] for e in entries if e[1] is not None and (before is None or e[3] <= before)), default=0)
        values = [e[2] for e in entries if e[1] is None or e[1] > last]
        return values if last else values + [None]

    def settle(self, item, value):
        self.writes[item] = [[self.tick(), self.tick(), value, 0.0]]


class Writer:
    """A connection that writes, and the shadow of what it alone writes to."""

    def __init__(self, number, world):
        self.number, self.world, self.random = number, world, random.Random(world.random.random())
        self.state = {}  # after all that was sent; items that are not there are not in it
        self.members = collections.defaultdict(set)  # small set: its elements
        self.window = collections.deque()  # commands whose effect may be missing after a kill, in their order
        self.waiting = collections.deque()
        self.stream, self.depth, self.sent, self.acknowledged, self.refused = None, 1, 0, 0, 0

    # -- what it sends --

    def next_command(self):
        dice = self.random.random()
        if dice < 0.04:
            return transaction([self.next_change() for _ in range(self.random.randint(1, 5))])
        if dice < 0.70:
            return self.next_change()[1]
        if dice < 0.85:
            name = "small:%d:%d" % (self.number, self.random.randrange(SMALL_SETS))
            kind = self.random.random()
            if kind < 0.08:
                return self.delete_set(name)
            if kind < 0.16:
                return self.rename_set(name, "small:%d:%d" % (self.number, self.random.randrange(SMALL_SETS)))
            item = (name, b"e%d" % self.random.randrange(SMALL_ELEMENTS))
            return self.change_element(item, SMALL_DIM, ())
        if dice < 0.93:
            item = ("s", b"string:%d:%d" % (self.number, self.random.randrange(STRINGS)))
            return self.change_string(item)
        return self.change_shared(("shared", b"x%d" % self.random.randrange(SHARED_ELEMENTS)))

    def next_change(self):
        """Of one item: the item and the command."""
        if self.random.random() < 0.06:
            item = ("hash:%d:%d" % (self.number, self.random.randrange(HASHES)), b"f%d" % self.random.randrange(FIELDS))
            return item, self.change_field(item)
        if self.random.random() < 0.06:
            item = ("s", b"json:%d:%d" % (self.number, self.random.randrange(DOCUMENTS)))
            return item, self.change_document(item)
        name, dim, words, count = self.random.choice(COMMON)
        item = (name, b"w%d:%d" % (self.number, self.random.randrange(count)))
        return item, self.change_element(item, dim, words)

    def vector(self, dim):
        return self.random.randrange(POOL), self.world.pools[dim]

    def new_attributes(self):
        return b'{"n":%d}' % self.random.randrange(1 << 30)

    def change_element(self, item, dim, words):
        dice = self.random.random()
        name, element = item
        if dice < 0.66:
            i, pool = self.vector(dim)
            attributes = self.new_attributes() if self.random.random() < 0.3 else KEEP
            extra = words if attributes is KEEP else (*words, "SETATTR", attributes)

            def add(state):
                old = state.get(item)
                kept = (old[1] if old else b"") if attributes is KEEP else attributes
                return [(item, (i, kept))], 0 if old else 1
            return Command(("VADD", name, "FP32", pool.packed[i], element, *extra), add)
        if dice < 0.86:
            return Command(("VREM", name, element), removal(item))
        text = b"" if self.random.random() < 0.2 else self.new_attributes()
        return Command(("VSETATTR", name, element, text),
                       lambda state: ([(item, (state[item][0], text))], 1) if item in state else ([], 0))

    def delete_set(self, name):
        def delete(state):
            changes = [((name, element), None) for element in sorted(self.members[name])]
            return changes, 1 if changes else 0
        return Command((self.random.choice(("DEL", "UNLINK")), name), delete)

    def rename_set(self, old, new):
        def rename(state):
            if not self.members[old]:
                return [], "ERR no such key"
            if old == new:
                return [], "OK"
            changes = [((new, e), None) for e in sorted(self.members[new] - self.members[old])]
            for e in sorted(self.members[old]):
                changes += [((new, e), state[(old, e)]), ((old, e), None)]
            return changes, "OK"
        return Command(("RENAME", old, new), rename)

    def change_field(self, item):
        if self.random.random() < 0.7:
            value = b"%d" % self.random.randrange(1 << 40)
            return Command(("HSET", *item, value), lambda state: ([(item, value)], 0 if item in state else 1))
        return Command(("HDEL", *item), removal(item))

    def change_document(self, item):
        """Documents are {"n":number,"v":[numbers]}: made, one number changed, one added, removed."""
        key, dice = item[1], self.random.random()

        def change(edit, absent):
            def effect(state):
                if item not in state:
                    return [], absent
                document = json.loads(state[item])
                reply = edit(document)
                return [(item, json.dumps(document, separators=(",", ":")).encode())], reply
            return effect

        def increment(document):
            document["n"] += 1
            return b"[%d]" % document["n"]

        def append(document):
            document["v"].append(0.5)
            return [len(document["v"])]
        if dice < 0.4:
            value = b'{"n":%d,"v":[%s]}' % (self.random.randrange(1 << 40), b",".join(
                [b"1.25"] * self.random.choice((1, 3, 1500))))
            return Command(("JSON.SET", key, "$", value), lambda state: ([(item, value)], "OK"))
        absent = "ERR could not perform this operation on a key that doesn't exist"
        if dice < 0.6:
            return Command(("JSON.NUMINCRBY", key, "$.n", "1"), change(increment, absent))
        if dice < 0.8:
            return Command(("JSON.ARRAPPEND", key, "$.v", "0.5"), change(append, absent))
        return Command(("JSON.DEL", key), removal(item))

    def change_string(self, item):
        if self.random.random() < 0.75:
            value = b"%d" % self.random.randrange(1 << 40) * self.random.choice((1, 1, 1, 100))
            return Command(("SET", item[1], value), lambda state: ([(item, value)], "OK"))
        return Command(("DEL", item[1]), removal(item))

    def change_shared(self, item):
        if self.random.random() < 0.7:
            i, pool = self.vector(24)
            attributes = self.new_attributes()
            return Command(("VADD", item[0], "FP32", pool.packed[i], item[1], "SETATTR", attributes),
                           lambda state: ([], None), (item, (i, attributes)))
        return Command(("VREM", *item), lambda state: ([], None), (item, None))

    def perform(self, command):
        """The shadow after the command."""
        changes, command.reply = command.effect(self.state)
        command.changes = [(item, self.state.get(item), value) for item, value in changes]
        self.apply(changes)

    def refuse(self, command):
        """Takes a command back that the server refused for the load it is under, and all that were sent after it."""
        for later in reversed(self.waiting):
            self.apply([(item, old) for item, old, _ in later.changes])
        self.apply([(item, old) for item, old, _ in command.changes])
        if command.skipped:
            self.perform(command)
        else:
            command.changes = []
        if command.shared:
            self.world.shared.refuse(command.shared)
            command.shared = None
        for later in self.waiting:
            self.perform(later)
        self.refused += 1

    def apply(self, changes):
        for item, value in changes:
            if value is None:
                self.state.pop(item, None)
                self.members[item[0]].discard(item[1])
            else:
                self.state[item] = value
                if item[0].startswith("small"):
                    self.members[item[0]].add(item[1])

    # -- sockets --

    def connect(self, port):
        self.stream = Stream(port)
        self.stream.socket.setblocking(False)
        self.depth = self.random.choice((1, 8, 32, 128))

    def fill(self):
        """Sends until `depth` commands wait for their replies."""
        while len(self.waiting) < self.depth and len(self.stream.unsent) < 1 << 16:
            command = self.next_command()
            self.perform(command)
            if command.shared:
                command.shared = self.world.shared.send(*command.shared)
            self.waiting.append(command)
            self.window.append(command)
            self.stream.unsent += command.request
            self.sent += 1
        with contextlib.suppress(BlockingIOError):
            n = self.stream.socket.send(self.stream.unsent)
            del self.stream.unsent[:n]

    def receive(self):
        data = self.stream.socket.recv(1 << 18)
        if not data:
            raise Wrong("the server closed a connection")
        for reply in self.stream.feed(data):
            self.take(reply)

    def take(self, reply):
        command = self.waiting[0]
        if command.queued:
            command.queued -= 1
            if reply not in ("OK", "QUEUED"):
                raise Wrong("connection %d: in MULTI with %r: reply %r" % (self.number, command.words, reply))
            return
        self.waiting.popleft()
        if isinstance(reply, list):  # of EXEC
            command.skipped = {i for i, r in enumerate(reply) if is_refusal(r)}
            reply = [None if i in command.skipped else r for i, r in enumerate(reply)]
        if command.skipped or is_refusal(reply):
            self.refuse(command)
            reply = command.reply if not command.skipped else reply
        if (isinstance(reply, Error) and reply != command.reply) or (
                command.reply is not None and reply != command.reply):
            raise Wrong("connection %d: %r: reply %r, should be %r" % (
                self.number, command.words, reply, command.reply))
        command.acknowledged = time.monotonic()
        if command.shared:
            self.world.shared.acknowledge(command.shared)
        self.acknowledged += 1
        self.forget(self.world.loses_after())

    def forget(self, before):
        """Drops from the window what must be there whatever happens now."""
        while self.window and self.window[0].acknowledged is not None and (
                before is None or self.window[0].acknowledged <= before):
            self.window.popleft()

    # -- comparison --

    def compare(self, found, before):
        """found: item: value of all that the server has. Finds the number of commands of the window that it shows."""
        self.forget(before)
        window = list(self.window)
        history = {}
        for i, command in enumerate(window):
            for item, old, value in command.changes:
                history.setdefault(item, [(0, old)]).append((i + 1, value))
        possible = (1 << (len(window) + 1)) - 1
        for item, steps in history.items():
            fits = 0
            for at, (first, value) in enumerate(steps):
                end = steps[at + 1][0] if at + 1 < len(steps) else len(window) + 1
                if self.world.agrees(item, value, found.get(item)):
                    fits |= (1 << end) - (1 << first)
            if not fits:
                raise Wrong("connection %d: %r is %r; it may be one of %r (%d commands not surely there)" %
                            (self.number, item, found.get(item), [v for _, v in steps], len(window)))
            if not fits & possible:
                raise Wrong("connection %d: no number of its last %d commands explains what is there, at %r: %r of %r" %
                            (self.number, len(window), item, found.get(item), steps))
            possible &= fits
        for item, value in self.state.items():
            if item not in history and not self.world.agrees(item, value, found.get(item)):
                raise Wrong("connection %d: %r is %r, should be %r" % (self.number, item, found.get(item), value))
        self.settle(found, history, window, possible)

    def settle(self, found, history, window, possible):
        """What was found is what the next cycle begins with."""
        applied = (possible & -possible).bit_length() - 1
        self.world.lost_unacknowledged += len(window) - applied
        lost = [c for c in window[applied:] if c.acknowledged is not None]
        self.world.lost_acknowledged += len(lost)
        if lost:
            self.world.oldest_lost = max(self.world.oldest_lost, self.world.killed_at - lost[0].acknowledged)
        for item, steps in history.items():
            value = [v for first, v in steps if first <= applied][-1]
            self.apply([(item, value if found.get(item) is not None else None)])
        self.window.clear()
        self.waiting.clear()


# ---- the server ----------------------------------------------------------------------------------------------------


class Server:
    def __init__(self, options, folder, settings):
        self.port_file = folder / "port"
        self.log_path = folder / "log"
        self.port_file.unlink(missing_ok=True)
        self.begin = time.monotonic()
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(
                [str(options.build_dir / "quire-server"), "--port", "0", "--port-file", str(self.port_file), "--dir",
                 str(folder / "data"), *settings], stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def log(self):
        return self.log_path.read_text(errors="replace")

    def wait_ready(self):
        while not (self.port_file.exists() and self.port_file.stat().st_size):
            if self.process.poll() is not None:
                raise Wrong("the server does not start: " + self.log()[-2000:])
            if time.monotonic() - self.begin > 120:
                raise Wrong("the server is not ready after two minutes")
            time.sleep(0.002)
        self.ready_seconds = time.monotonic() - self.begin
        return int(self.port_file.read_text())

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        if self.process.wait(60) != 0:
            raise Wrong("SIGTERM ends it with %d: %s" % (self.process.returncode, self.log()[-2000:]))


# ---- the loop ------------------------------------------------------------------------------------------------------


class World:
    def __init__(self, options, folder):
        self.options, self.folder, self.random = options, folder, random.Random(options.seed)
        self.pools = {dim: Pool(dim) for dim in {dim for _, dim, _, _ in COMMON} | {SMALL_DIM, 24}}
        self.shared = Shared()
        self.writers = [Writer(i, self) for i in range(options.connections)]
        self.kinds = {name: options.index or self.random.choice(KINDS) for name, _, _, _ in COMMON}
        self.everysec, self.server, self.killed_at = False, None, 0.0
        self.lost_unacknowledged = self.lost_acknowledged = self.checks = self.kills_in_recovery = self.stops = 0
        self.oldest_lost, self.recovery, self.ready, self.elements, self.searches = 0.0, [], [], 0, 0
        self.segments, self.replayed = [], []

    def loses_after(self):
        """What was acknowledged before this time is never lost; None: whatever was acknowledged."""
        return time.monotonic() - SECOND if self.everysec else None

    def dim_of(self, name):
        return next((dim for common, dim, _, _ in COMMON if common == name), 24 if name == "shared" else SMALL_DIM)

    def agrees(self, item, value, found):
        if value is None or found is None:
            return value is found
        if not is_element(item):
            return value == found
        return value[1] == found[1] and self.pools[self.dim_of(item[0])].is_it(value[0], found[0])

    def settings(self):
        """Different ones each time: they must not matter to what is on the disk."""
        pick = self.random.choice
        return ["--appendfsync", "everysec" if self.everysec else "always", "--memtable-memory",
                pick(("64kb", "64kb", "256kb", "1mb")), "--segments-max", pick(("2", "4", "12")), "--checkpoint-log",
                pick(("1mb", "1mb", "4mb")), "--build-memory", pick(("64mb", "256mb")), "--build-threads",
                pick(("1", "2")), "--engine", pick(("auto", "auto", "threads")), "--lanes", pick(("1", "2", "3"))]

    # -- load --

    def create_sets(self, port):
        """The common sets that are not there: in the beginning, or since their last element was removed."""
        stream = Stream(port)
        for name, dim, words, _ in COMMON:
            slot = "f32" if "NOQUANT" in words else "q8"
            (reply,) = stream.ask([request("VCREATE", name, "DIM", dim, "SLOT", slot, "INDEX", self.kinds[name])])
            if isinstance(reply, Error) and not reply.startswith("BUSYKEY"):
                raise Wrong("VCREATE %s: %s" % (name, reply))
        stream.socket.close()

    def load(self, port, seconds):
        """Writes until the time is over."""
        selector = selectors.DefaultSelector()
        maintenance = Stream(port)
        maintenance.socket.setblocking(False)
        for writer in self.writers:
            writer.connect(port)
            selector.register(writer.stream.socket, selectors.EVENT_READ, writer)
            writer.fill()
        selector.register(maintenance.socket, selectors.EVENT_READ, None)
        end = time.monotonic() + seconds
        while (now := time.monotonic()) < end:
            for key, _ in selector.select(min(0.01, end - now)):
                if key.data is None:
                    self.take_maintenance(maintenance)
                else:
                    key.data.receive()
            for writer in self.writers:
                writer.fill()
            if self.random.random() < 0.002:
                command = self.random.choice(("VSEAL", "VCOMPACT", "VCHECK"))
                maintenance.socket.send(request(command, self.random.choice(COMMON)[0]))
        selector.close()
        return maintenance

    def take_maintenance(self, stream):
        for reply in stream.feed(stream.socket.recv(1 << 16)):
            if isinstance(reply, Error) and "does not exist" not in reply:
                raise Wrong("VSEAL, VCOMPACT or VCHECK: " + reply)
            if isinstance(reply, list) and reply[1] != 0:
                raise Wrong("VCHECK while writes run: %r" % reply)

    # -- comparison --

    def read_all(self, stream):
        """All that the server has, as item: value."""
        (keys,) = stream.ask([request("KEYS", "*")])
        found = {}
        strings = [k for k in keys if k.startswith(b"string:")]
        for key, value in zip(strings, stream.ask([request("GET", k) for k in strings])):
            found[("s", key)] = value
        documents = [k for k in keys if k.startswith(b"json:")]
        for key, value in zip(documents, stream.ask([request("JSON.GET", k) for k in documents])):
            found[("s", key)] = value
        hashes = [k for k in keys if k.startswith(b"hash:")]
        for key, pairs in zip(hashes, stream.ask([request("HGETALL", k) for k in hashes])):
            found.update({((key.decode(), field)): value for field, value in zip(pairs[::2], pairs[1::2])})
        sets = [k.decode() for k in keys if not k.startswith((b"string:", b"hash:", b"json:"))]
        for name in sets:
            self.read_set(stream, name, found)
        return found, sets

    def read_set(self, stream, name, found):
        elements, count = stream.ask([request("VRANGE", name, "-", "+"), request("VCARD", name)])
        may_be_empty = name in self.kinds
        if isinstance(elements, Error) or len(elements) != count or len(set(elements)) != count or (
                count == 0 and not may_be_empty):
            raise Wrong("%s: VRANGE lists %r, VCARD says %r" % (name, elements, count))
        # those that should not be there are looked up as well: a list may leave out what a look-up finds
        asked = set(elements) | {e for w in self.writers for n, e in w.state if n == name}
        asked |= {item[1] for item in self.shared.writes if item[0] == name}
        asked |= {item[1] for w in self.writers for c in w.window for item, _, _ in c.changes if item[0] == name}
        asked = sorted(asked)
        answers = stream.ask([r for e in asked
                              for r in (request("VEMB", name, e, "RAW"), request("VGETATTR", name, e))])
        for element, raw, attributes in zip(asked, answers[::2], answers[1::2]):
            if isinstance(raw, Error) or isinstance(attributes, Error) or (element in elements) != (raw is not None):
                raise Wrong("%s %r: listed %s, VEMB %r, VGETATTR %r" % (
                    name, element, element in elements, raw, attributes))
            if raw is not None:
                found[(name, element)] = (floats_of(raw), attributes or b"")
        self.elements += count

    def compare(self, port):
        stream = Stream(port)
        before = self.killed_at - SECOND if self.everysec else None
        found, sets = self.read_all(stream)
        for writer in self.writers:
            writer.compare(found, before)
        for item in set(self.shared.writes) | {i for i in found if i[0] == "shared"}:
            values = self.shared.possible(item, before)
            match = [v for v in values if self.agrees(item, v, found.get(item))]
            if not match:
                raise Wrong("%r is %r; it may be one of %r" % (item, found.get(item), values))
            self.shared.settle(item, match[0])
        known = {item for writer in self.writers for item in writer.state} | set(self.shared.writes)
        strangers = [item for item in found if item not in known]
        if strangers:
            raise Wrong("nobody wrote %r" % strangers[:5])
        self.search(stream, sets)
        if self.random.random() < 0.35:
            self.check(stream, sets)
        stream.socket.close()

    def search(self, stream, sets):
        """Searches find the element whose vector they ask for, and nothing that is gone."""
        wanted = []
        for writer in self.writers:
            items = [i for i in writer.state if is_element(i)]
            wanted += self.random.sample(items, min(5, len(items)))
        requests = [request("VSIM", name, "ELE", element, "COUNT", 50, "EF", 300) for name, element in wanted]
        alive = {name: set() for name in sets}
        for name, element in {i for w in self.writers for i in w.state if is_element(i)} | {
                i for i in self.shared.writes if self.shared.possible(i, None) != [None]}:
            alive[name].add(element)
        for (name, element), hits in zip(wanted, stream.ask(requests)):
            if isinstance(hits, Error) or not set(hits) <= alive[name] or len(set(hits)) != len(hits):
                raise Wrong("VSIM %s ELE %r: %r" % (name, element, hits))
            if len(hits) != min(50, len(alive[name])):
                raise Wrong("VSIM %s ELE %r: %d hits of %d elements" % (name, element, len(hits), len(alive[name])))
        self.searches += len(wanted)

    def check(self, stream, sets):
        for name, reply in zip(sets, stream.ask([request("VCHECK", name) for name in sets])):
            if isinstance(reply, Error) or reply[1] != 0:
                raise Wrong("VCHECK %s: %r" % (name, reply))
        self.checks += len(sets)

    # -- a cycle --

    def start(self):
        settings = self.settings()
        while self.random.random() < 0.15:
            self.server = Server(self.options, self.folder, settings)
            time.sleep(self.random.uniform(0, 0.08))
            self.server.kill()
            self.kills_in_recovery += 1
        self.server = Server(self.options, self.folder, settings)
        port = self.server.wait_ready()
        self.ready.append(self.server.ready_seconds)
        seen = re.search(r"(\d+) segments; replayed (\d+) records .* in ([0-9.]+) s", self.server.log())
        if not seen:
            raise Wrong("the log does not say what was recovered: " + self.server.log())
        self.segments.append(int(seen.group(1)))
        self.replayed.append(int(seen.group(2)))
        self.recovery.append(float(seen.group(3)))
        return port

    def cycle(self, number):
        port = self.start()
        self.compare(port)
        mode = self.options.appendfsync
        everysec = mode == "everysec" or (mode == "mixed" and number % 8 == 7)
        if everysec != self.everysec:
            self.server.stop()
            self.everysec = everysec
            port = self.start()
        self.create_sets(port)
        low, high = (1200, 2200) if everysec else (50, 800)
        maintenance = self.load(port, self.random.uniform(low, high) / 1000)
        clean = self.random.random() < 0.1
        if clean or self.random.random() < 0.15:
            self.finish_replies()
        if clean:
            self.server.stop()
            self.stops += 1
        else:
            self.server.kill()
        self.killed_at = time.monotonic()
        if self.server.process.returncode not in (-signal.SIGKILL, 0):
            raise Wrong("the server died: %d: %s" % (self.server.process.returncode, self.server.log()[-2000:]))
        maintenance.socket.close()
        for writer in self.writers:
            writer.stream.socket.close()
        if self.options.snapshots:
            shutil.rmtree(self.folder / "killed", ignore_errors=True)
            shutil.copytree(self.folder / "data", self.folder / "killed")

    def finish_replies(self):
        for writer in self.writers:
            writer.stream.socket.settimeout(60)
            writer.stream.socket.sendall(writer.stream.unsent)
            while writer.waiting:
                writer.receive()

    def summary(self, cycles, begin):
        def of(values):
            values = sorted(values)
            return {"median": values[len(values) // 2], "most": values[-1]} if values else None
        return {"cycles": cycles, "seed": self.options.seed, "seconds": round(time.monotonic() - begin, 1),
                "connections": len(self.writers), "sent": sum(w.sent for w in self.writers),
                "acknowledged": sum(w.acknowledged for w in self.writers), "elements_compared": self.elements,
                "refused": sum(w.refused for w in self.writers), "searches": self.searches,
                "sets_checked": self.checks, "clean_stops": self.stops,
                "kills_in_recovery": self.kills_in_recovery,
                "everysec_acknowledged_lost": self.lost_acknowledged,
                "everysec_oldest_lost_seconds": round(self.oldest_lost, 3),
                "segments_at_start": of(self.segments), "replayed_records": of(self.replayed),
                "recovery_seconds": of(self.recovery), "ready_seconds": of(self.ready)}


def run(options, folder):
    world, begin, cycles = World(options, folder), time.monotonic(), 0
    try:
        while cycles < options.cycles or (options.seconds and time.monotonic() - begin < options.seconds):
            world.cycle(cycles)
            cycles += 1
            if options.verbose:
                print("cycle %d: ready in %.3f s, %d segments, %d records replayed; %d writes acknowledged in all" % (
                    cycles, world.ready[-1], world.segments[-1], world.replayed[-1],
                    sum(w.acknowledged for w in world.writers)), flush=True)
            if options.seconds and options.cycles == 0 and time.monotonic() - begin > options.seconds:
                break
        port = world.start()
        world.compare(port)
        world.server.stop()
    except (Wrong, OSError) as e:
        if world.server and world.server.process.poll() is None:
            time.sleep(0.2)
        print("FAIL - kill loop, cycle %d, seed %d: %s" % (cycles, options.seed, str(e)[:3000]))
        print("    | settings and log: %s" % " ".join(map(str, world.server.process.args[1:])) if world.server else "")
        print("\n".join("    | " + line for line in (world.server.log()[-1500:] if world.server else "").splitlines()))
        return world.summary(cycles, begin), False
    finally:
        if world.server and world.server.process.poll() is None:
            world.server.kill()
    summary = world.summary(cycles, begin)
    print("ok - kill loop: %d kills and restarts, %d writes acknowledged, all there; %d elements compared" % (
        cycles, summary["acknowledged"], summary["elements_compared"]))
    return summary, True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build-dir", type=Path, default=ROOT / "build/release", help="where quire-server is")
    parser.add_argument("--cycles", type=int, default=25)
    parser.add_argument("--seconds", type=float, default=0, help="go on for so long, whatever --cycles says")
    parser.add_argument("--seed", type=int, default=None, help="of everything random (by the clock)")
    parser.add_argument("--connections", type=int, default=5)
    parser.add_argument("--appendfsync", choices=["always", "everysec", "mixed"], default="mixed")
    parser.add_argument("--index", choices=KINDS, help="of the common sets (each by chance)")
    parser.add_argument("--json", type=Path, help="file for the summary (standard output)")
    parser.add_argument("--keep", action="store_true", help="keep the folder when something is wrong")
    parser.add_argument("--snapshots", action="store_true", help="copy the folder after each kill (with --keep)")
    parser.add_argument("--verbose", action="store_true", help="a line per cycle")
    options = parser.parse_args()
    options.seed = options.seed if options.seed is not None else time.time_ns() % 1000000
    print("seed %d" % options.seed, flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = Path(tempfile.mkdtemp(prefix="quire-crash."))
    right = False
    try:
        summary, right = run(options, folder)
        text = json.dumps(summary)
        if options.json:
            options.json.write_text(text + "\n")
        else:
            print(text)
    finally:
        if options.keep and not right:
            print("    | kept: %s" % folder)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
