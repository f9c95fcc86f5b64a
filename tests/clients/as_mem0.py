"""as_mem0.py - the command lines of Mem0's vector stores: Redis in Python (redisvl), Valkey in Python (redis-py), Redis
in TypeScript (node-redis), and their reading of the replies.
"""
import json

from as_redisvl import LIBRARY, SearchIndex, escape, flat_vector, query, tag_field, text_field
from wire import Client, approximately, blob, check, cosine, document_rows, embed, fails, script, text

MEMORIES = {"m1": ("likes tea with cake", {"user_id": "anna-1", "agent_id": "a"}),
    "m2": ("lives at the sea", {"user_id": "anna-1"}),
            "m3": ("likes coffee", {"user_id": "ben-x"})}


def fields_of(key):
    memory, owners = MEMORIES[key]
    return {"memory_id": key, "hash": "h" + key, "memory": memory, "created_at": 1700000000 + int(key[1]),
        "embedding": blob(embed(memory)),
            "metadata": json.dumps({"of": key}), **owners}


def python_redis():
    client = Client(library=LIBRARY)
    numbers = [word for name in ("created_at", "updated_at") for word in (name, "NUMERIC")]
    tags = [word for name in ("memory_id", "hash", "agent_id", "run_id", "user_id") for word in tag_field(name)]
    index = SearchIndex(client, "mem0", "mem0:mem0", [*tags, *text_field("memory"), *text_field("metadata"), *numbers,
                                                      *flat_vector("embedding", 32)])
    check("create, with overwrite", index.create(overwrite=True) == "OK" and index.create(overwrite=True) == "OK")
    index.load({key: fields_of(key) for key in MEMORIES})
    asked, mine = embed("tea"), "@user_id:{%s}" % escape("anna-1")
    rows = index.vector_query("embedding", asked, 5, filters=mine, fields=["memory_id", "memory", "metadata",
        "created_at"])
    order = sorted(("m1", "m2"), key=lambda k: cosine(asked, embed(MEMORIES[k][0])))
    check("search, of one user", [f["memory_id"] for _, f in rows] == order
        and int(rows[0][1]["created_at"]) > 1700000000
          and json.loads(rows[0][1]["metadata"])["of"] == order[0], rows)
    _, rows = index.search(*query("(@memory:(likes | tea) @user_id:{%s})" % escape("ben-x"), scorer="BM25STD",
        scores=True,
                                  fields=["memory_id"]), scores=True)
    check("keyword_search", [f["memory_id"] for _, f, _ in rows] == ["m3"], rows)
    _, rows = index.search(*query("*", fields=["memory_id"], sort=("created_at", False)))
    check("list", [f["memory_id"] for _, f in rows] == ["m3", "m2", "m1"], rows)
    check("delete", client.call("DEL", "mem0:mem0:m1") == 1 and index.count("*") == 2)
    names = client.call("FT._LIST")
    check("list_cols", [text(name) for name in names] == ["mem0"], names)


def python_valkey():
    client = Client(library="redis-py")
    check("FT._LIST: the module is there", client.call("FT._LIST") == [])
    fails("FT.INFO of no index", client.call("FT.INFO", "mem0"), ".")
    check("FT.CREATE", client.call(*(
        "FT.CREATE mem0 ON HASH PREFIX 1 mem0:mem0 SCHEMA memory_id TAG hash TAG agent_id TAG run_id TAG user_id TAG "
        "memory TEXT metadata TAG created_at NUMERIC updated_at NUMERIC embedding VECTOR HNSW 12 TYPE FLOAT32 DIM 32 "
        "DISTANCE_METRIC COSINE M 16 EF_CONSTRUCTION 200 EF_RUNTIME 10").split(" ")) == "OK")
    for key in MEMORIES:
        client.hset("mem0:mem0:" + key, **fields_of(key))
    for filters, right in (("*", {"m1", "m2", "m3"}), ("@user_id:{ben\\-x} ", {"m3"}),
        ("@user_id:{anna\\-1} @agent_id:{a} ", {"m1"})):
        total, rows = document_rows(client.call(
            "FT.SEARCH", "mem0", filters + "=>[KNN 5 @embedding $vec_param EF_RUNTIME 50 AS vector_score]", "DIALECT",
            2, "LIMIT", 0, 10,
            "PARAMS", 2, "vec_param", blob(embed("likes tea"))))
        check("search, %s" % filters, total == len(right) and {f["memory_id"] for _, f in rows} == right and all(
            approximately(f["vector_score"], cosine(embed("likes tea"), embed(f["memory"]))) for _, f in rows), rows)
    check("delete_col", client.call("FT.DROPINDEX", "mem0") == "OK")
    fails("delete_col of none", client.call("FT.DROPINDEX", "mem0"), "^Unknown index name$")


def typescript_redis():
    client = Client(3, "node-redis")
    modules = client.call("MODULE", "LIST")
    check("MODULE LIST names search", any(b"search" in module.values() for module in modules), modules)
    fails("dropIndex of none is passed over", client.call("FT.DROPINDEX", "mem0"), "Unknown index name")
    check("FT.CREATE", client.call(*(
        "FT.CREATE mem0 ON HASH PREFIX 1 mem0:mem0: STOPWORDS 0 SCHEMA memory_id TAG SEPARATOR | hash TAG SEPARATOR | "
        "agent_id TAG SEPARATOR | run_id TAG SEPARATOR | user_id TAG SEPARATOR | memory TEXT WEIGHT 1 metadata TEXT WEIGHT "
        "1 created_at NUMERIC SORTABLE updated_at NUMERIC SORTABLE embedding VECTOR FLAT 8 TYPE FLOAT32 DIM 32 "
        "DISTANCE_METRIC COSINE INITIAL_CAP 1000").split(" ")) == "OK")
    for key in MEMORIES:
        client.hset("mem0:mem0:" + key, **fields_of(key))
    reply = client.call("FT.SEARCH", "mem0", "@user_id:{anna\\-1} =>[KNN 5 @embedding $vec AS __vector_score]",
        "RETURN", 3, "memory_id",
                        "metadata", "__vector_score", "SORTBY", "__vector_score", "LIMIT", 0, 5, "PARAMS", 2, "vec",
                        blob(embed("tea")),
                        "DIALECT", 2)
    rows = [row[b"extra_attributes"] for row in reply[b"results"]]
    check("search", reply[b"total_results"] == 2 and [row[b"memory_id"] for row in rows] == [b"m1", b"m2"]
          and json.loads(rows[0][b"metadata"])["of"] == "m1" and float(rows[0][b"__vector_score"]) < 1, reply)
    reply = client.call("FT.SEARCH", "mem0", "*", "SORTBY", "created_at", "LIMIT", 0, 100)
    check("list", [row[b"id"] for row in reply[b"results"]] == [b"mem0:mem0:m1", b"mem0:mem0:m2", b"mem0:mem0:m3"],
        reply)


if __name__ == "__main__":
    script(python_redis, python_valkey, typescript_redis)
