"""as_semantic_router.py - the command lines of vLLM's semantic-router, and its reading of the replies.

Its Redis cache uses go-redis with Protocol 2; its Valkey cache, memory and vector store use valkey-glide, which speaks
RESP3 and accepts arrays only: the server knows it by its LIB-NAME.
"""
import uuid

from as_redisvl import escape
from wire import Client, Error, blob, check, cosine, document_rows, embed, fails, hset, script, text

QUESTIONS = {"what is the capital of france": "Paris", "how high is the eiffel tower": "330 m",
             "who painted the mona lisa": "Leonardo"}


def redis_cache():
    client, name = Client(library="go-redis(,go1.24)"), "semantic_cache_idx"
    fails("FT.INFO of no index", client.call("FT.INFO", name), "unknown index name|no such index")
    check("FT.CREATE", client.call(
        "FT.CREATE", name, "ON", "HASH", "PREFIX", 1, "doc:", "SCHEMA", "request_id", "TEXT", "model", "TAG", "query",
        "TEXT", "request_body",
        "TEXT", "NOINDEX", "response_body", "TEXT", "NOINDEX", "embedding", "VECTOR", "HNSW", 10, "TYPE", "FLOAT32",
        "DIM", 32,
        "DISTANCE_METRIC", "COSINE", "M", 16, "EF_CONSTRUCTION", 64, "timestamp", "NUMERIC") == "OK")
    ids = {}
    for i, (question, answer) in enumerate(QUESTIONS.items()):
        ids[question] = str(uuid.UUID(int=i * 7919 + 0x9a8b7c6d5e4f40008a9b000000000000))
        client.call(*hset("doc:" + ids[question], {
            "request_id": ids[question], "model": "qwen3-8b", "query": question, "request_body": "{}",
            "response_body": answer,
            "embedding": blob(embed(question)), "timestamp": 1700000000 + i}))
        client.call("EXPIRE", "doc:" + ids[question], 3600)

    def nearest(question, model, k=1):
        return document_rows(client.call(
            "FT.SEARCH", name, "(@model:{%s})=>[KNN %d @embedding $vec AS vector_distance]" % (escape(model), k),
            "RETURN", 2,
            "vector_distance", "response_body", "PARAMS", 2, "vec", blob(embed(question)), "DIALECT", 2))
    total, rows = nearest("what was the capital of france", "qwen3-8b")
    check("FindSimilar: row 0 is the nearest, without SORTBY", total == 1 and rows[0][1]["response_body"] == "Paris",
          rows)
    _, rows = nearest("the capital of france", "qwen3-8b", 3)
    distances = [float(f["vector_distance"]) for _, f in rows]
    check("the nearest come first", distances == sorted(distances) and len(rows) == 3, rows)
    check("every value of a row is a string", all(isinstance(v, str) for _, f in rows for v in f.values()), rows)
    check("another model has no answers", nearest("what is the capital of france", "other")[0] == 0)
    question = "who painted the mona lisa"
    total, rows = document_rows(client.call("FT.SEARCH", name, '@request_id:"%s"' % ids[question], "RETURN", 3,
                                            "model", "query",
                                            "response_body", "LIMIT", 0, 1, "DIALECT", 2))
    check("UpdateWithResponse: a phrase finds a uuid in a TEXT field", total == 1
          and rows[0][0] == "doc:" + ids[question], rows)
    info = client.call("FT.INFO", name)
    check("num_docs", info[info.index(b"num_docs") + 1] == 3, info)
    errors = info[info.index(b"Index Errors") + 1]
    check("go-redis reads six elements of Index Errors", isinstance(errors, list) and len(errors) >= 6, errors)
    fails("a query in a field that is not indexed",
          client.call("FT.SEARCH", name, "@response_body:paris", "DIALECT", 2), ".")
    check("drop: FT.DROPINDEX DD", client.call("FT.DROPINDEX", name, "DD") == "OK" and client.call("DBSIZE") == 0)


def array_rows(reply):
    """[total, key, [field, value ...] ...], all of arrays."""
    if not isinstance(reply, list):
        raise ValueError("Response couldn't be converted: %r" % (reply,))
    return document_rows(reply)


def valkey_cache():
    client, name = Client(3, "GlideGo"), "vsr_idx"
    modules = client.call("MODULE", "LIST")
    check("MODULE LIST: maps with name and ver of at least 66048", any(
        isinstance(m, dict) and text(m[b"name"] if b"name" in m else m["name"]) == "search"
        and (m[b"ver"] if b"ver" in m else m["ver"]) >= 66048 for m in modules), modules)
    check("FT.CREATE", client.call(
        "FT.CREATE", name, "ON", "HASH", "PREFIX", 1, "vsr:", "SCHEMA", "request_id", "TAG", "model", "TAG", "query",
        "TEXT", "embedding",
        "VECTOR", "HNSW", 10, "TYPE", "FLOAT32", "DIM", 32, "DISTANCE_METRIC", "COSINE", "M", 16, "EF_CONSTRUCTION",
        64, "timestamp",
        "NUMERIC") == "OK")
    for i, (question, answer) in enumerate(QUESTIONS.items()):
        client.call(*hset("vsr:%d" % i, {"request_id": "id-%d" % i, "model": "m1", "query": question,
                                         "response_body": answer,
                                         "embedding": blob(embed(question)), "timestamp": i}))
    total, rows = array_rows(client.call(
        "FT.SEARCH", name, "(@model:{m1})=>[KNN 2 @embedding $vec AS vector_distance]", "RETURN", 2, "vector_distance",
        "response_body",
        "DIALECT", 2, "PARAMS", 2, "vec", blob(embed("how high is the tower"))))
    check("an array, and DIALECT before PARAMS", total == 2 and rows[0][1]["response_body"] == "330 m", rows)
    total, rows = array_rows(client.call("FT.SEARCH", name, "@request_id:{%s}" % escape("id-1"), "RETURN", 3, "model",
                                         "query", "response_body",
                                         "LIMIT", 0, 1, "DIALECT", 2))
    check("by its id", total == 1 and rows[0][0] == "vsr:1", rows)
    info = client.call("FT.INFO", name)
    check("FT.INFO is an array", isinstance(info, list), type(info))
    names = [text(x) for x in info[::2]]
    check("num_docs is an integer", info[2 * names.index("num_docs") + 1] == 3, info)
    check("FT._LIST", [text(n) for n in client.call("FT._LIST")] == [name])
    check("FT.AGGREGATE is an array", isinstance(client.call("FT.AGGREGATE", name, "*", "GROUPBY", 1, "@model",
                                                             "REDUCE", "COUNT", 0), list))
    check("FT.DROPINDEX, then SCAN and DEL", client.call("FT.DROPINDEX", name) == "OK" and client.call("DBSIZE") == 3)
    _, keys = client.call("SCAN", 0, "MATCH", "vsr:*", "COUNT", 1000)
    check("what SCAN found is deleted", client.call("DEL", *keys) == 3)


def memory():
    client, name = Client(3, "GlideGo"), "mem_idx"
    client.call("FT.CREATE", name, "ON", "HASH", "PREFIX", 1, "mem:", "SCHEMA", "id", "TAG", "user_id", "TAG",
                "memory_type", "TAG", "content",
                "TEXT", "created_at", "NUMERIC", "embedding", "VECTOR", "HNSW", 6, "TYPE", "FLOAT32", "DIM", 32,
                "DISTANCE_METRIC", "COSINE")
    for i, content in enumerate(QUESTIONS):
        client.call(*hset("mem:%d" % i, {"id": "m%d" % i, "user_id": "u-1", "memory_type": "semantic",
                                         "content": content,
                                         "created_at": 100 + i, "embedding": blob(embed(content))}))
    total, rows = array_rows(client.call("FT.SEARCH", name, "@user_id:{u\\-1}", "RETURN", 1, "id", "SORTBY",
                                         "created_at", "DESC", "LIMIT", 0, 2,
                                         "DIALECT", 2))
    check("the newest memories of a user", total == 3 and [f["id"] for _, f in rows] == ["m2", "m1"], rows)
    asked = embed("the mona lisa was painted by")
    total, rows = array_rows(client.call(
        "FT.SEARCH", name, "(@user_id:{u\\-1} @memory_type:{semantic})=>[KNN 3 @embedding $vec AS vector_distance]",
        "RETURN", 2, "id",
        "vector_distance", "DIALECT", 2, "PARAMS", 2, "vec", blob(asked)))
    order = sorted(range(3), key=lambda i: cosine(asked, embed(list(QUESTIONS)[i])))
    check("the nearest memories", [f["id"] for _, f in rows] == ["m%d" % i for i in order], rows)
    reply = client.call("FT.SEARCH", name, "@user_id:{u\\-1}", "NOCONTENT", "LIMIT", 0, 100)
    check("NOCONTENT", isinstance(reply, list) and reply[0] == 3
          and sorted(map(text, reply[1:])) == ["mem:0", "mem:1", "mem:2"], reply)
    check("no error", not isinstance(reply, Error))


if __name__ == "__main__":
    script(redis_cache, valkey_cache, memory)
