"""together.py - writers, searchers, and those who make, alter and drop indexes, all at once: no reply is malformed, no
document that a search returns is one that nobody wrote, and when all have ended the index agrees with the keys.
"""
import random
import threading
import time

import common  # noqa: F401
from wire import Client, Error, blob, check, hset, script, text

SECONDS, WRITERS, SEARCHERS = 4, 3, 3
SCHEMA = ("SCHEMA", "g", "TAG", "n", "NUMERIC", "SORTABLE", "t", "TEXT", "v", "VECTOR", "HNSW", 6, "TYPE", "FLOAT32", "DIM",
          4, "DISTANCE_METRIC", "L2")
# What a search may be told while indexes come and go
EXPECTED = ("unknown index name", "no such index", "index was dropped", "cursor not found", "already exists",
            "write more slowly")


class Worker(threading.Thread):
    def __init__(self, number, end, seen):
        super().__init__()
        self.random, self.end, self.seen, self.client, self.count = random.Random(number), end, seen, Client(), 0

    def run(self):
        try:
            while time.monotonic() < self.end:
                self.step()
                self.count += 1
        except Exception as e:  # told at the end
            self.seen.append("%s: %s" % (type(e).__name__, e))

    def expect(self, reply):
        if isinstance(reply, Error) and not any(words in reply.lower() for words in EXPECTED):
            self.seen.append(str(reply))
        return not isinstance(reply, Error)


class Writer(Worker):
    def step(self):
        pick = self.random
        key, dice = "k:%d" % pick.randrange(500), pick.random()
        if dice < 0.6:
            words = hset(key, {"g": "tag%d" % pick.randrange(5), "n": pick.randrange(100), "t": "word%d" % pick.randrange(9),
                               "v": blob([pick.random() for _ in range(4)])})
        elif dice < 0.8:
            words = ("DEL", key)
        elif dice < 0.9:
            words = ("HDEL", key, "g", "n")
        else:
            words = ("JSON.SET", "j:%d" % pick.randrange(50), "$", '{"g":"tag1","n":%d}' % pick.randrange(100))
        self.expect(self.client.call(*words))


class Searcher(Worker):
    def step(self):
        pick = self.random
        index, dice = pick.choice(("steady", "steady", "passing", "alias")), pick.random()
        q = blob([pick.random() for _ in range(4)])
        if dice < 0.3:
            reply = self.client.call("FT.SEARCH", index, "(@g:{tag%d})=>[KNN 5 @v $q AS d]" % pick.randrange(5), "PARAMS", 2,
                                     "q", q, "RETURN", 2, "g", "d", "DIALECT", 2)
            if self.expect(reply) and not all(text(k).startswith("k:") for k in reply[1::2]):
                self.seen.append(repr(reply))
        elif dice < 0.6:
            self.expect(self.client.call("FT.SEARCH", index, "@n:[10 50] @t:word1", "SORTBY", "n", "LIMIT", 0, 20))
        elif dice < 0.8:
            self.expect(self.client.call("FT.AGGREGATE", index, "*", "GROUPBY", 1, "@g", "REDUCE", "AVG", 1, "@n"))
        elif dice < 0.9:
            reply = self.client.call("FT.AGGREGATE", index, "*", "LOAD", 1, "@n", "WITHCURSOR", "COUNT", 50)
            while self.expect(reply) and reply[1] and pick.random() < 0.7:
                reply = self.client.call("FT.CURSOR", "READ", index, reply[1])
            if not isinstance(reply, Error) and reply[1]:
                self.expect(self.client.call("FT.CURSOR", "DEL", index, reply[1]))
        else:
            self.expect(self.client.call("FT.INFO", index))


class Maker(Worker):
    def step(self):
        pick = self.random.random()
        if pick < 0.35:
            self.expect(self.client.call("FT.CREATE", "passing", "PREFIX", 1, "k:", *SCHEMA))
        elif pick < 0.7:
            self.expect(self.client.call("FT.DROPINDEX", "passing"))
        elif pick < 0.8:
            self.expect(self.client.call("FT.ALIASUPDATE", "alias", self.random.choice(("passing", "steady"))))
        elif pick < 0.9:
            self.expect(self.client.call("FT.TAGVALS", "steady", "g"))
        else:
            time.sleep(0.01)


def everything_at_once():
    client, seen, end = Client(), [], time.monotonic() + SECONDS
    client.call("FT.CREATE", "steady", "PREFIX", 1, "k:", *SCHEMA)
    client.call("FT.CREATE", "json", "ON", "JSON", "PREFIX", 1, "j:", "SCHEMA", "$.g", "AS", "g", "TAG", "$.n", "AS", "n",
                "NUMERIC")
    client.call("FT.ALIASADD", "alias", "steady")
    workers = [*(Writer(i, end, seen) for i in range(WRITERS)), *(Searcher(10 + i, end, seen) for i in range(SEARCHERS)),
               Maker(20, end, seen)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    check("every reply is one that may be", not seen, seen[:3])
    check("all have worked", all(worker.count > 20 for worker in workers), [worker.count for worker in workers])
    keys = sorted(text(k) for k in client.call("KEYS", "k:*"))
    documents = {k: dict(zip(map(text, h[::2]), h[1::2])) for k, h in zip(keys, client.pipeline(*(("HGETALL", k) for k in keys)))}
    client.call("FT.CREATE", "passing", "PREFIX", 1, "k:", *SCHEMA)
    for index in ("steady", "passing"):
        limit = time.monotonic() + 20
        while client.call("FT.SEARCH", index, "*", "LIMIT", 0, 0) != [len(keys)] and time.monotonic() < limit:
            time.sleep(0.01)
        wrong = []
        for tag in range(5):
            reply = client.call("FT.SEARCH", index, "@g:{tag%d}" % tag, "NOCONTENT", "LIMIT", 0, 10000, "DIALECT", 2)
            right = sorted(k for k, d in documents.items() if d.get("g") == b"tag%d" % tag)
            wrong += [(tag, len(reply), len(right))] if sorted(map(text, reply[1:])) != right else []
        check("%s: its %d documents are those that are there" % (index, len(keys)), not wrong
              and client.call("FT.SEARCH", index, "*", "LIMIT", 0, 0) == [len(keys)], wrong)
    check("the server goes on", client.call("PING") == "PONG")


if __name__ == "__main__":
    script(everything_at_once)
