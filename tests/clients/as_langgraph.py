"""as_langgraph.py - the command lines of langgraph-checkpoint-redis: RedisStore, and what RedisSaver writes and
searches (redisvl, JSON documents), and their reading of the replies.

RedisSaver keeps the keys of writes in sorted sets, which Quire has not: see docs/clients.md.
"""
import json

from as_redisvl import LIBRARY, SearchIndex, escape, query
from wire import Client, blob, check, cosine, embed, fails, script


def fields(tags=(), numbers=(), texts=()):
    words = []
    for name in tags:
        words += ["$." + name, "AS", name, "TAG", "SEPARATOR", ","]
    for name in numbers:
        words += ["$." + name, "AS", name, "NUMERIC"]
    for name in texts:
        words += ["$." + name, "AS", name, "TEXT", "WEIGHT", 1]
    return words


def saver():
    client = Client(library=LIBRARY)
    index = SearchIndex(client, "checkpoint", "checkpoint:", fields(
        ("thread_id", "run_id", "checkpoint_ns", "checkpoint_id", "parent_checkpoint_id", "source", "has_writes"),
        ("checkpoint_ts", "step")), "JSON")
    check("setup", index.create() == "OK")
    for step in range(3):
        client.call("JSON.SET", "checkpoint:t1:__empty__:c%d" % step, "$", json.dumps({
            "thread_id": "t1", "checkpoint_ns": "__empty__", "checkpoint_id": "c%d" % step,
                "checkpoint_ts": 1700000000000.0 + step,
            "parent_checkpoint_id": "c%d" % (step - 1) if step else "", "source": "loop", "step": step,
            "has_writes": False,
            "checkpoint": {"v": 1, "channel_values": {"n": step}}, "metadata": {"source": "loop", "step": step}}))
    check("put_writes: JSON.MERGE", client.call("JSON.MERGE", "checkpoint:t1:__empty__:c1", "$",
        '{"has_writes":true}') == "OK")
    mine = "(@thread_id:{t1} @checkpoint_ns:{__empty__})"
    shown = ["thread_id", "checkpoint_id", "parent_checkpoint_id", "$.checkpoint", "$.metadata", "has_writes"]
    _, rows = index.search(*query(mine, fields=shown, sort=("checkpoint_id", False), limit=(0, 10000)))
    check("list: newest first, checkpoints as JSON", [f["checkpoint_id"] for _, f in rows] == ["c2", "c1", "c0"]
          and [json.loads(f["$.checkpoint"])["channel_values"]["n"] for _, f in rows] == [2, 1, 0]
          and [f["has_writes"] for _, f in rows] == ["0", "1", "0"], rows)
    for filters, right in (("(%s @step:[1 1])" % mine, ["c1"]), ("(%s @checkpoint_ts:[-inf (1700000000001.0])" % mine,
        ["c0"]),
                           ("(%s @source:{loop})" % mine, ["c2", "c1", "c0"]),
                           ("(%s @checkpoint_id:{c1})" % mine, ["c1"])):
        _, rows = index.search(*query(filters, fields=["checkpoint_id"], sort=("checkpoint_id", False),
            limit=(0, 10000)))
        check("list, %s" % filters, [f["checkpoint_id"] for _, f in rows] == right, rows)
    check("get_tuple", json.loads(client.call("JSON.GET", "checkpoint:t1:__empty__:c2", "$.checkpoint"))[0]["v"] == 1)
    fails("put_writes: its key registry is a sorted set", client.call("ZADD", "write_keys_zset:t1", 0, "k"),
        "unknown command")


def store():
    client = Client(library=LIBRARY)
    index = SearchIndex(client, "store", "store:", fields(("key",), ("created_at", "updated_at", "ttl_minutes",
        "expires_at"),
                                                          ("prefix",)), "JSON")
    vectors = SearchIndex(client, "store_vectors", "store_vectors:", [
        *fields(("key", "field_name"), ("created_at", "updated_at"), ("prefix",)), "$.embedding", "AS", "embedding",
        "VECTOR", "FLAT", 6,
        "TYPE", "FLOAT32", "DIM", 32, "DISTANCE_METRIC", "COSINE"], "JSON")
    check("setup", index.create() == "OK" and vectors.create() == "OK")
    documents = {"1": (("users", "anna-1"), "tea", "likes tea"), "2": (("users", "ben"), "sea", "lives at the sea"),
                 "3": (("docs",), "tea", "tea is a drink")}
    for key, (namespace, name, said) in documents.items():
        prefix = escape(".".join(namespace))
        client.call("JSON.SET", "store:" + key, "$", json.dumps({"prefix": prefix, "key": name,
            "value": {"text": said}, "created_at": 1,
                                                                "updated_at": 2, "ttl_minutes": None,
                                                                "expires_at": None}))
        client.call("JSON.SET", "store_vectors:" + key, "$", json.dumps({"prefix": prefix, "key": name,
            "field_name": "text",
                                                                        "embedding": embed(said), "created_at": 1.5,
                                                                        "updated_at": 1.5}))

    def search(words):
        return {k.split(":")[1] for k, _ in index.search(words, "DIALECT", 2)[1]}
    for words, right in (('(@prefix:("users\\.anna\\-1") @key:{tea})', {"1"}),
        ("(@prefix:users\\.ben @key:{sea})", {"2"}),
                         ("@prefix:users*", {"1", "2"}), ("@prefix:*ben", {"2"}), ("*", {"1", "2", "3"})):
        check("get, search, list_namespaces: %s" % words, search(words) == right, search(words))
    _, rows = index.search(*query("@prefix:users*", fields=["prefix"], limit=(0, 100)))
    check("list_namespaces: the prefix as it was written", {f["prefix"] for _, f in rows} == {"users\\.anna\\-1",
        "users\\.ben"}, rows)
    asked = embed("tea")
    rows = vectors.vector_query("embedding", asked, 5, filters="@prefix:users*", fields=["prefix", "key"])
    order = sorted(("1", "2"), key=lambda k: cosine(asked, embed(documents[k][2])))
    check("search by a query", [k.split(":")[1] for k, _ in rows] == order, rows)
    check("an empty hash of the same query", blob(asked) == blob(embed("tea")))


if __name__ == "__main__":
    script(saver, store)
