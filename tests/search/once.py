"""once.py - the vector of a hash is held once, by its index, and every command reads it back bit for bit: while it is in
a memtable, when it was sealed, over restarts, with one index over it, two, and none again.

The memtables are small, so that seals never end. A model in Python holds what every key should.
"""
import os
import random
import shutil
import struct
import tempfile
import threading
import time
from pathlib import Path

import common  # noqa: F401
import wire
from server_process import Server
from wire import Client, check, request, wait_filled

DIM = 64
TYPES = {"FLOAT32": 4, "FLOAT16": 2, "BFLOAT16": 2, "FLOAT64": 8, "INT8": 1, "UINT8": 1}


def vector(pick, kind):
    """Bytes that a field of this type takes: any but those with an exponent of ones."""
    if kind == "FLOAT64":
        return struct.pack("<%dd" % DIM, *[pick.uniform(-1, 1) for _ in range(DIM)])
    if kind == "FLOAT32":
        special = [0.0, -0.0, 1e-40, -1e-38, 3.5, 1 / 3]
        return struct.pack("<%df" % DIM, *[pick.choice(special) if pick.random() < .2 else pick.uniform(-1, 1)
                                           for _ in range(DIM)])
    if kind in ("FLOAT16", "BFLOAT16"):
        mask = 0x7c00 if kind == "FLOAT16" else 0x7f80
        words = [pick.randrange(1 << 16) for _ in range(DIM)]
        limit = 0x3fff  # small, so that sums of squares stay finite
        return struct.pack("<%dH" % DIM, *[w & 0x8000 | (w & limit if w & mask != mask else 0x11) for w in words])
    return bytes(pick.randrange(256) for _ in range(DIM))


def create(client, name, kind="FLOAT32", metric="L2", prefix="d:", more=()):
    return client.call("FT.CREATE", name, "PREFIX", 1, prefix, "SCHEMA", "g", "TAG", "n", "NUMERIC", "v", "VECTOR",
                       "HNSW", 6, "TYPE", kind, "DIM", DIM, "DISTANCE_METRIC", metric, *more)


def info(client, field):
    text = client.call("INFO", "everything")
    for line in (text.decode() if isinstance(text, bytes) else str(text)).splitlines():
        if line.startswith(field + ":"):
            return line.split(":", 1)[1]
    return None


class Model:
    def __init__(self, seed, kind):
        self.pick, self.kind, self.keys = random.Random(seed), kind, {}

    def document(self):
        pick = self.pick
        fields = {b"g": pick.choice((b"red", b"green")), b"n": b"%d" % pick.randrange(100), b"v": vector(pick, self.kind)}
        if pick.random() < .3:
            fields[b"other"] = bytes(pick.randrange(256) for _ in range(pick.randrange(200)))
        return fields

    def key(self):
        return b"d:%d" % self.pick.randrange(200)

    def present(self):
        return self.pick.choice(sorted(self.keys)) if self.keys else b"d:0"

    def change(self, client):
        """A random change, and the same in the model."""
        pick, dice = self.pick, self.pick.random()
        if dice < .45 or not self.keys:
            key, fields = self.key(), self.document()
            self.keys.setdefault(key, {}).update(fields)
            return client.call("HSET", key, *[x for pair in fields.items() for x in pair])
        key = self.present()
        have = self.keys[key]
        if dice < .55:
            value = pick.choice((b"7", b"no number", b"12"))
            have[b"n"] = value
            return client.call("HSET", key, "n", value)
        if dice < .6:
            value = pick.choice((vector(pick, self.kind), b"of another length", b"x" * 300))
            have[b"v"] = value
            return client.call("HSET", key, "v", value)
        if dice < .65:
            field = pick.choice(sorted(have))
            del have[field]
            if not have:
                del self.keys[key]
            return client.call("HDEL", key, field)
        if dice < .72:
            del self.keys[key]
            return client.call("DEL", key)
        other = pick.choice((self.key(), b"else:%d" % pick.randrange(20)))
        if dice < .8:
            if other != key:
                self.keys[other] = self.keys.pop(key)
            return client.call("RENAME", key, other)
        if dice < .88:
            if other != key:
                self.keys[other] = dict(have)
                return client.call("COPY", key, other, "REPLACE")
            return None
        if dice < .92:
            dump = client.call("DUMP", key)
            self.keys[other] = dict(have)
            return client.call("RESTORE", other, 0, dump, "REPLACE")
        if dice < .96:
            client.ask([request("MULTI"), request("HGET", key, "v")] +
                       ([request("RENAME", key, other), request("HGET", other, "v")] if other != key else []))
            replies = client.call("EXEC")
            right = have.get(b"v")
            if replies[0] != right or replies[-1] != right:
                check("EXEC reads a vector, and after a RENAME in it", False, (key, other, replies, right))
            if other != key:
                self.keys[other] = self.keys.pop(key)
            return None
        have[b"n"] = b"5"
        return client.transaction(("HSET", key, "n", "5"), ("HSTRLEN", key, "v"), ("HGETALL", key))

    def read(self, client):
        """One read; None or what was wrong."""
        pick, key = self.pick, self.present()
        have = self.keys.get(key, {})
        dice = pick.randrange(8)
        if dice == 0:
            seen, right = client.call("HGET", key, "v"), have.get(b"v")
        elif dice == 1:
            seen = client.call("HMGET", key, "v", "n", "absent")
            right = [have.get(b"v"), have.get(b"n"), None]
        elif dice == 2:
            flat = client.call("HGETALL", key)
            seen, right = dict(zip(flat[::2], flat[1::2])), have
        elif dice == 3:
            seen, right = sorted(client.call("HVALS", key)), sorted(have.values())
        elif dice == 4:
            seen, right = client.call("HSTRLEN", key, "v"), len(have.get(b"v", b""))
        elif dice == 5:
            flat = client.call("HSCAN", key, 0, "COUNT", 1000)[1]
            seen, right = dict(zip(flat[::2], flat[1::2])), have
        elif dice == 6:
            flat = client.call("HRANDFIELD", key, 100, "WITHVALUES")
            seen, right = dict(zip(flat[::2], flat[1::2])), have
        else:
            seen, right = client.call("HEXISTS", key, "v"), int(b"v" in have)
        return None if seen == right else (dice, key, seen, right)

    def compare(self, client, name, indexed=True):
        wrong = []
        for key, have in self.keys.items():
            flat = client.call("HGETALL", key)
            if not isinstance(flat, list) or dict(zip(flat[::2], flat[1::2])) != have:
                wrong.append((key, flat, have))
        check(name, not wrong and client.call("DBSIZE") == len(self.keys), (len(wrong), wrong[:1]))
        if not indexed:
            return

        def fits(have):
            try:
                int(have.get(b"n", b"0"))
            except ValueError:
                return False
            return b"v" not in have or len(have[b"v"]) == DIM * TYPES[self.kind]
        right = {k: v for k, v in self.keys.items() if k.startswith(b"d:") and fits(v)}
        reply = client.call("FT.SEARCH", "i", "*", "LIMIT", 0, 1000)
        seen = {k: dict(zip(f[::2], f[1::2])) for k, f in zip(reply[1::2], reply[2::2])}
        check(name + ": FT.SEARCH", seen == right and reply[0] == len(right),
              (reply[0], len(right), [k for k in right if seen.get(k) != right[k]][:3], [k for k in seen if k not in right]))
        reply = client.call("FT.SEARCH", "i", "@g:{red}", "RETURN", 2, "v", "g", "LIMIT", 0, 1000)
        seen = {k: dict(zip(f[::2], f[1::2])) for k, f in zip(reply[1::2], reply[2::2])}
        red = {k: {f: v[f] for f in (b"v", b"g") if f in v} for k, v in right.items() if v.get(b"g") == b"red"}
        check(name + ": FT.SEARCH RETURN", seen == red, (len(seen), len(red)))
        for words, fields in ((("LOAD", "*"), None), (("LOAD", 2, "@v", "@__key"), (b"v", ))):
            reply = client.call("FT.AGGREGATE", "i", "@g:{red}", *words, *(("SORTBY", 2, "@n", "ASC", "MAX", 1000) if fields else ()))
            seen = sorted(row[row.index(b"v") + 1] for row in reply[1:] if b"v" in row) if isinstance(reply, list) else reply
            check(name + ": FT.AGGREGATE " + " ".join(map(str, words)),
                  seen == sorted(v[b"v"] for v in red.values() if b"v" in v), (reply if not isinstance(reply, list) else
                                                                                len(reply)))
        with_vector = [v for v in right.values() if b"v" in v]
        query = vector(self.pick, self.kind)
        reply = client.call("FT.SEARCH", "i", "*=>[KNN 300 @v $q]", "PARAMS", 2, "q", query, "NOCONTENT", "LIMIT", 0, 1000,
                            "DIALECT", 2)
        check(name + ": KNN finds all that are in, and no others",
              isinstance(reply, list) and sorted(reply[1:]) == sorted(k for k, v in right.items() if b"v" in v),
              (reply if not isinstance(reply, list) else len(reply) - 1, len(with_vector)))


class Place:
    """A server of its own, with the smallest memtables."""

    def __init__(self, *settings):
        self.folder = Path(tempfile.mkdtemp(prefix="once.", dir=os.environ.get("QUIRE_WORK")))
        self.server = Server(Path(os.environ["QUIRE_BUILD"]), self.folder, "--memtable-memory", "64kb", "--lanes", "2",
                             "--enable-debug-command", "yes", *settings)
        self.usual = wire.PORT

    def __enter__(self):
        wire.PORT = self.server.port
        return self

    def __exit__(self, *_):
        wire.PORT = self.usual
        if self.server.process.poll() is None:
            self.server.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def again(self, how):
        if how == "SIGTERM":
            self.server.stop()
        else:
            self.server.kill()
        self.server.start()
        wire.PORT = self.server.port
        return Client()


def changes(kind, metric):
    with Place("--appendfsync", "always") as place:
        client, model = Client(), Model(7, kind)
        create(client, "i", kind, metric)
        wrong = []
        for i in range(1500):
            reply = model.change(client)
            if isinstance(reply, wire.Error):
                wrong.append((i, reply))
            if i % 3 == 0:
                bad = model.read(client)
                wrong += [bad] if bad else []
        check("%s %s: 1,500 changes, and reads between them" % (kind, metric), not wrong, (len(wrong), wrong[:2]))
        model.compare(client, "%s %s: each value, bit for bit" % (kind, metric))
        digest = client.call("DEBUG", "DIGEST")
        for how in ("SIGTERM", "SIGKILL"):
            client = place.again(how)
            model.compare(client, "%s %s: after %s and a start" % (kind, metric, how))
            seen = client.call("DEBUG", "DIGEST")
            check("%s %s: the digest is the same" % (kind, metric), seen == digest, (digest, seen))
        check("a second index over the same field", create(client, "second", kind, metric) == "OK")
        wait_filled(client, "second")
        for _ in range(300):
            model.change(client)
        model.compare(client, "%s %s: two indexes" % (kind, metric))
        reply = client.call("FT.DROPINDEX", "second")
        check("one of them is dropped", reply == "OK", reply)
        model.compare(client, "%s %s: one index again" % (kind, metric))
        reply = client.call("FT.DROPINDEX", "i")
        check("the other, too", reply == "OK", reply)
        model.compare(client, "%s %s: no index" % (kind, metric), indexed=False)
        client = place.again("SIGKILL")
        model.compare(client, "%s %s: no index, after SIGKILL" % (kind, metric), indexed=False)
        create(client, "i", kind, metric)
        wait_filled(client, "i")
        model.compare(client, "%s %s: an index made anew" % (kind, metric))
        client = place.again("SIGTERM")
        model.compare(client, "%s %s: and read from the disk" % (kind, metric))
        client.call("FT.DROPINDEX", "i", "DD")
        model.keys = {k: v for k, v in model.keys.items() if not k.startswith(b"d:")}
        left = client.call("KEYS", "d:*")
        check("DROPINDEX DD leaves only documents that were not in the index",
              all(not Model.fits_any(kind, client, k) for k in left), left[:5])


def fits_any(kind, client, key):
    n, v = client.call("HMGET", key, "n", "v")
    return (n is None or n.isdigit()) and (v is None or len(v) == DIM * TYPES[kind])


Model.fits_any = staticmethod(fits_any)


def memory():
    with Place() as place:
        client, pick, count = Client(), random.Random(3), 2000
        create(client, "i")
        client.call("HSET", "plain", "g", "red", "n", 1, "v", vector(pick, "FLOAT32"))
        vectors = [vector(pick, "FLOAT32") for _ in range(count)]
        for i in range(count):
            client.call("HSET", "d:%d" % i, "g", "red", "n", i, "v", vectors[i])
        plain, once = client.call("MEMORY", "USAGE", "plain"), client.call("MEMORY", "USAGE", "d:1")
        check("a vector of %d bytes is not in its hash: MEMORY USAGE %d, %d without an index" % (4 * DIM, once, plain),
              once <= plain - 4 * DIM, (once, plain))
        before = client.call("MEMORY", "USAGE", "d:1")
        client.call("HGET", "d:1", "v")
        end = time.monotonic() + 20
        while client.call("MEMORY", "USAGE", "d:1") != before and time.monotonic() < end:
            time.sleep(0.01)
        check("a copy that was read goes again", client.call("MEMORY", "USAGE", "d:1") == before)
        client.call("WATCH", "d:1")
        Client().call("HGET", "d:1", "v")
        reply = client.transaction(("HSTRLEN", "d:1", "v"))
        check("reading is no change to WATCH", reply == [4 * DIM], reply)
        end = time.monotonic() + 60
        while info(client, "segments") == "0" and time.monotonic() < end:  # a slow build has not sealed any yet
            time.sleep(0.1)
        client = place.again("SIGTERM")
        wrong = sum(client.call("HGET", "d:%d" % i, "v") != vectors[i] for i in range(count))
        reads = int(info(client, "search_reads"))
        check("%d vectors were sealed, and are read from there, one read each" % reads,
              wrong == 0 and count / 2 < reads <= count, (wrong, reads))


def side_by_side():
    """Readers and writers of the same documents: each vector that is read is one that was written to that key."""
    with Place() as place:
        client, count = Client(), 40
        create(client, "i")
        tag = lambda key, turn: struct.pack("<%df" % DIM, key, turn, *([key + turn / 1024] * (DIM - 2)))
        for i in range(count):
            client.call("HSET", "d:%d" % i, "g", "red", "n", i, "v", tag(i, 0))
        stop, wrong = threading.Event(), []

        def right(key, blob):
            values = struct.unpack("<%df" % DIM, blob)
            return blob == tag(key, values[1])

        def write(seed):
            mine, pick, turn = Client(), random.Random(seed), 0
            while not stop.is_set():
                turn += 1
                key = pick.randrange(count)
                mine.call("HSET", "d:%d" % key, "v", tag(key, turn % 1000))

        def read(seed):
            mine, pick = Client(), random.Random(seed)
            while not stop.is_set():
                key = pick.randrange(count)
                dice = pick.randrange(4)
                if dice == 0:
                    blob = mine.call("HGET", "d:%d" % key, "v")
                elif dice == 1:
                    flat = mine.call("HGETALL", "d:%d" % key)
                    blob = flat[flat.index(b"v") + 1] if isinstance(flat, list) else flat
                elif dice == 2:
                    mine.ask([request("MULTI"), request("HGET", "d:%d" % key, "v")])
                    reply = mine.call("EXEC")
                    blob = reply[0] if isinstance(reply, list) else reply
                else:
                    reply = mine.call("FT.SEARCH", "i", "@n:[%d %d]" % (key, key))
                    fields = reply[2] if isinstance(reply, list) and len(reply) > 2 else None
                    if fields is None:
                        continue  # it changed while it was looked for
                    blob = fields[fields.index(b"v") + 1]
                if not isinstance(blob, bytes) or len(blob) != 4 * DIM or not right(key, blob):
                    wrong.append((dice, key, blob))

        threads = [threading.Thread(target=f, args=(s, )) for s, f in enumerate([write, write, read, read, read, read])]
        for thread in threads:
            thread.start()
        time.sleep(4)
        stop.set()
        for thread in threads:
            thread.join()
        check("four readers and two writers", not wrong, (len(wrong), wrong[:2]))
        place.again("SIGTERM")


def all_types():
    for kind, metric in (("FLOAT32", "COSINE"), ("FLOAT16", "L2"), ("FLOAT32", "L2"), ("FLOAT64", "L2"), ("BFLOAT16", "IP"),
                         ("INT8", "COSINE"), ("UINT8", "L2")):
        changes(kind, metric)


if __name__ == "__main__":
    for part in (memory, all_types, side_by_side):
        try:
            part()
        except Exception as e:
            check("%s runs to its end" % part.__name__, False, "%s: %s, line %d" % (type(e).__name__, e, wire.line_of(e)))
    wire.end()
