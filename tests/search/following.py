"""following.py - an index follows its keys: whatever command changes, makes or removes one, and however it ends, a
search that begins after the reply sees it. After 3,000 random changes every search agrees with a model in Python; so
it does when the server was stopped and started again.
"""
import json
import os
import random
import shutil
import tempfile
import time
from pathlib import Path

import common  # noqa: F401
import wire
from server_process import Server
from wire import Client, blob, check, hset, script

TAGS = ("red", "green", "blue", "new")


def found(client, query, index="i"):
    reply = client.call("FT.SEARCH", index, query, "NOCONTENT", "LIMIT", 0, 10000, "DIALECT", 2)
    return sorted(k.decode() for k in reply[1:]) if isinstance(reply, list) else str(reply)


def make(client):
    client.call("FT.CREATE", "i", "PREFIX", 1, "d:", "SCHEMA", "g", "TAG", "n", "NUMERIC", "t", "TEXT", "v", "VECTOR",
                "FLAT", 6, "TYPE", "FLOAT32", "DIM",
                2, "DISTANCE_METRIC", "L2")
    client.call("FT.CREATE", "j", "ON", "JSON", "PREFIX", 1, "d:", "SCHEMA", "$.g", "AS", "g", "TAG", "$.n", "AS", "n",
                "NUMERIC")


def commands_of_hashes():
    client = Client()
    make(client)
    def state(name, right, query="@g:{red}"):
        seen = found(client, query)
        check(name, seen == right, seen)
    client.call("HSET", "d:1", "g", "red", "n", 1)
    state("HSET", ["d:1"])
    client.call("HSETNX", "d:2", "g", "red")
    state("HSETNX", ["d:1", "d:2"])
    client.call("HMSET", "d:3", "g", "red")
    state("HMSET", ["d:1", "d:2", "d:3"])
    client.call("HINCRBY", "d:1", "n", 4)
    state("HINCRBY", ["d:1"], "@n:[5 5]")
    client.call("HINCRBYFLOAT", "d:1", "n", "0.5")
    state("HINCRBYFLOAT", ["d:1"], "@n:[5.5 5.5]")
    client.call("HDEL", "d:2", "g")
    state("HDEL of the last field removes the key", ["d:1", "d:3"])
    client.call("HSET", "other:1", "g", "red")
    state("keys of another prefix are left alone", ["d:1", "d:3"])
    client.call("RENAME", "other:1", "d:4")
    state("RENAME into the prefix", ["d:1", "d:3", "d:4"])
    client.call("RENAME", "d:4", "d:5")
    state("RENAME within it", ["d:1", "d:3", "d:5"])
    client.call("RENAME", "d:5", "other:1")
    state("RENAME out of it", ["d:1", "d:3"])
    client.call("RENAMENX", "other:1", "d:6")
    state("RENAMENX", ["d:1", "d:3", "d:6"])
    client.call("COPY", "d:6", "d:7")
    state("COPY", ["d:1", "d:3", "d:6", "d:7"])
    client.call("HSET", "d:8", "g", "green")
    client.call("COPY", "d:8", "d:7", "REPLACE")
    state("COPY REPLACE", ["d:1", "d:3", "d:6"])
    client.call("SET", "d:6", "a string now")
    state("SET over it", ["d:1", "d:3"])
    dump = client.call("DUMP", "d:3")
    client.call("DEL", "d:3")
    state("DEL", ["d:1"])
    reply = client.call("RESTORE", "d:9", 0, dump)
    state("RESTORE", ["d:1", "d:9"] if reply == "OK" else ["d:1"])
    client.call("UNLINK", "d:9")
    client.transaction(("HSET", "d:10", "g", "red"), ("HSET", "d:11", "g", "red"), ("DEL", "d:1"))
    state("MULTI, EXEC", ["d:10", "d:11"])
    client.ask([wire.request("MULTI"), wire.request("HSET", "d:12", "g", "red"), wire.request("DISCARD")])
    state("DISCARD", ["d:10", "d:11"])
    client.call("PEXPIRE", "d:10", 1)
    end = time.monotonic() + 10  # an engine with quire.so removes it some time later
    while found(client, "@g:{red}") != ["d:11"] and time.monotonic() < end:
        time.sleep(0.001)
    state("what has expired", ["d:11"])
    client.call("EXPIRE", "d:11", 100)
    client.call("PERSIST", "d:11")
    state("PERSIST", ["d:11"])
    client.call("EXPIREAT", "d:11", 1)
    state("EXPIREAT in the past", [])
    client.call("HSET", "d:13", "g", "red")
    client.call("FLUSHALL")
    check("FLUSHALL drops the index, too", "nknown" in found(client, "*") or "o such index" in found(client, "*"),
          found(client, "*"))


def keys_that_expire():
    """Nothing but the search looks at the keys, and it begins some milliseconds behind their end."""
    client = Client()
    make(client)
    def expire():
        for n in range(20):
            client.pipeline(hset("d:%d" % n, {"g": "red", "v": blob([n, 0])}),
                            ("JSON.SET", "d:%d" % (20 + n), "$", '{"g":"red"}'))
        client.pipeline(*(("PEXPIRE", "d:%d" % n, 1) for n in range(40) if n % 20 > 1))
        time.sleep(0.01)

    def ends(name, left, *words):
        expire()
        reply = client.call(*words)
        check("keys whose time is over: " + name, reply == left, str(reply)[:200])
    ends("NOCONTENT", [2, b"d:0", b"d:1"], "FT.SEARCH", "i", "@g:{red}", "NOCONTENT")
    ends("in an index over JSON", [2, b"d:20", b"d:21"], "FT.SEARCH", "j", "*", "NOCONTENT")
    ends("the total alone", [2], "FT.SEARCH", "i", "*", "LIMIT", 0, 0)
    ends("FT.AGGREGATE", [1, [b"g", b"red", b"n", b"2"]], "FT.AGGREGATE", "i", "*", "GROUPBY", 1, "@g", "REDUCE",
         "COUNT", 0, "AS", "n")
    ends("the nearest that are left", [2, b"d:1", b"d:0"], "FT.SEARCH", "i", "*=>[KNN 2 @v $q]", "NOCONTENT", "PARAMS",
         2, "q", blob([9, 0]), "DIALECT", 2)
    expire()
    reply = client.transaction(("HSET", "d:50", "g", "blue"), ("FT.SEARCH", "i", "@g:{red}", "NOCONTENT"))
    check("within MULTI", reply == [1, [2, b"d:0", b"d:1"]], reply)


def commands_of_documents():
    client = Client()
    make(client)
    def state(name, right, query="@g:{red}"):
        seen = found(client, query, "j")
        check(name, seen == right, seen)
    client.call("JSON.SET", "d:1", "$", '{"g":"red","n":1}')
    state("JSON.SET", ["d:1"])
    client.call("JSON.MSET", "d:2", "$", '{"g":"red"}', "d:3", "$", '{"g":["green","red"]}')
    state("JSON.MSET, and a path that is an array", ["d:1", "d:2", "d:3"])
    client.call("JSON.NUMINCRBY", "d:1", "$.n", 4)
    state("JSON.NUMINCRBY", ["d:1"], "@n:[5 5]")
    client.call("JSON.MERGE", "d:2", "$", '{"g":"green"}')
    state("JSON.MERGE", ["d:1"], "@g:{red} @n:[-inf inf]")
    client.call("JSON.DEL", "d:1", "$.g")
    state("JSON.DEL of a path", [], "@g:{red} @n:[-inf inf]")
    client.call("JSON.STRAPPEND", "d:2", "$.g", '"ish"')
    state("JSON.STRAPPEND", ["d:2"], "@g:{greenish}")
    client.call("JSON.CLEAR", "d:1", "$.n")
    state("JSON.CLEAR", ["d:1"], "@n:[0 0]")
    client.call("HSET", "d:5", "g", "red")
    check("a hash is not in an index over JSON, nor a document in one over hashes",
          "d:5" not in found(client, "*", "j") and found(client, "*", "i") == ["d:5"])
    client.call("JSON.DEL", "d:1")
    client.call("DEL", "d:2", "d:3")
    state("JSON.DEL, DEL", [], "*")


class Model:
    """What the keys hold: key -> (tag, number, vector)."""

    def __init__(self):
        self.random, self.keys = random.Random(20), {}

    def step(self):
        pick, key = self.random, "d:%d" % self.random.randrange(300)
        dice = pick.random()
        if dice < 0.6:
            tag, number, vector = pick.choice(TAGS), pick.randrange(100), [pick.randrange(100), pick.randrange(100)]
            self.keys[key] = (tag, number, vector)
            return hset(key, {"g": tag, "n": number, "t": "word%d common" % number, "v": blob(vector)})
        if dice < 0.85:
            self.keys.pop(key, None)
            return pick.choice(("DEL", "UNLINK")), key
        if key in self.keys:
            other = "d:%d" % pick.randrange(300)
            value = self.keys.pop(key)
            self.keys[other] = value
            return "RENAME", key, other
        return "EXISTS", key

    def compare(self, client, name):
        wrong = []
        for tag in TAGS:
            for low, high in ((0, 100), (20, 40)):
                right = sorted(k for k, v in self.keys.items() if v[0] == tag and low <= v[1] <= high)
                seen = found(client, "@g:{%s} @n:[%d %d]" % (tag, low, high))
                wrong += [(tag, low, high, len(right), len(seen))] if seen != right else []
        for number in (3, 50, 77):
            seen = found(client, "@t:word%d" % number)
            wrong += [(number, seen)] if seen != sorted(k for k, v in self.keys.items() if v[1] == number) else []
        seen = found(client, "-@g:{red}")
        wrong += [("-red", len(seen))] if seen != sorted(k for k, v in self.keys.items() if v[0] != "red") else []
        for asked in ([50, 50], [0, 99]):
            reply = client.call("FT.SEARCH", "i", "(@g:{red | green})=>[KNN 10 @v $q AS d]", "PARAMS", 2, "q",
                                blob(asked), "RETURN", 1, "d", "DIALECT", 2)
            right = sorted((a - asked[0]) ** 2 + (b - asked[1]) ** 2 for tag, _, (a, b) in self.keys.values()
                           if tag in ("red", "green"))[:10]
            distances = [float(fields[1]) for fields in reply[2::2]] if isinstance(reply, list) else reply
            wrong += [(asked, distances, right)] if distances != right else []
            for key, fields in zip(reply[1::2], reply[2::2]) if isinstance(reply, list) else ():
                vector = self.keys.get(key.decode(), (0, 0, [-1, -1]))[2]
                if float(fields[1]) != (vector[0] - asked[0]) ** 2 + (vector[1] - asked[1]) ** 2:
                    wrong.append((key, vector, fields))
        check(name, not wrong, wrong[:3])


def random_changes():
    client, model = Client(), Model()
    make(client)
    for i in range(3000):
        reply = client.call(*model.step())
        if isinstance(reply, wire.Error):
            check("change %d" % i, False, reply)
        if i % 1000 == 999:
            model.compare(client, "after %d changes" % (i + 1))
    client.call("FT.DROPINDEX", "i")
    make(client)
    end = time.monotonic() + 20
    while client.call("FT.SEARCH", "i", "*", "LIMIT", 0, 0) != [len(model.keys)] and time.monotonic() < end:
        time.sleep(0.01)
    model.compare(client, "an index made anew over what is there")


def made_anew_under_writes():
    """As redisvl's create(overwrite=True) and load: while the index is filled from the keys, the same are written."""
    client, count = Client(), 200
    words = ("FT.CREATE", "i", "PREFIX", 1, "d:", "SCHEMA", "g", "TAG", "v", "VECTOR", "HNSW", 6, "TYPE", "FLOAT32", "DIM", 2,
             "DISTANCE_METRIC", "L2")
    documents = [hset("d:%d" % i, {"g": "t%d" % (i % 4), "v": blob([i, i % 7])}) for i in range(count)]
    client.pipeline(*documents)
    wrong = []
    for turn in range(200):
        client.call("FT.DROPINDEX", "i")
        client.call(*words)
        part = documents[turn % count:] + documents[:turn % count]
        client.pipeline(*part)
        reply = client.call("FT.SEARCH", "i", "*=>[KNN %d @v $q]" % count, "PARAMS", 2, "q", blob([0, 0]), "NOCONTENT", "LIMIT",
                            0, count, "DIALECT", 2)
        total = client.call("FT.SEARCH", "i", "*", "LIMIT", 0, 0)
        if reply[0] != count or total != [count]:
            missing = {"d:%d" % i for i in range(count)} - {k.decode() for k in reply[1:]}
            wrong.append((turn, total, reply[0], sorted(missing)[:3]))
    check("each document and its vector are found when its write is answered", not wrong, (len(wrong), wrong[:3]))


def over_a_restart():
    folder = Path(tempfile.mkdtemp(prefix="following.", dir=os.environ.get("QUIRE_WORK")))
    server = Server(Path(os.environ["QUIRE_BUILD"]), folder)
    usual, wire.PORT = wire.PORT, server.port
    try:
        client, model = Client(), Model()
        make(client)
        client.call("FT.ALIASADD", "also", "i")
        for _ in range(1500):
            client.call(*model.step())
        client.call("JSON.SET", "d:doc", "$", json.dumps({"g": "red", "n": 5}))
        for how in ("SIGTERM", "SIGKILL"):
            if how == "SIGTERM":
                server.stop()
            else:
                time.sleep(1.2)  # everysec: what is older than a second is on the disk
                server.kill()
            server.start()
            wire.PORT = server.port
            client = Client()
            model.compare(client, "after %s and a start" % how)
            check("the indexes are there", sorted(client.call("FT._LIST")) == [b"i", b"j"]
                  and client.call("FT.SEARCH", "also", "*", "LIMIT", 0, 0) == [len(model.keys)],
                  client.call("FT._LIST"))
            check("JSON documents as well", found(client, "@g:{red} @n:[5 5]", "j") == ["d:doc"])
            for _ in range(200):
                client.call(*model.step())
            model.compare(client, "and with further changes")
        server.stop()
    finally:
        wire.PORT = usual
        if server.process.poll() is None:
            server.kill()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    script(commands_of_hashes, keys_that_expire, commands_of_documents, random_changes, made_anew_under_writes, over_a_restart)
