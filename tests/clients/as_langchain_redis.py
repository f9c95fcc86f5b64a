"""as_langchain_redis.py - the command lines of langchain-redis (Python, on redisvl): RedisVectorStore,
RedisSemanticCache, RedisCache and RedisChatMessageHistory, and its reading of the replies.
"""
import hashlib
import json

from as_redisvl import LIBRARY, SearchIndex, SemanticCache, escape, flat_vector, query, schema_of, tag_field, text_field
from wire import Client, blob, check, cosine, embed, flat, plain, script, text

TEXTS = {"a": "the cat sleeps on the sofa", "b": "the dog barks at the moon", "c": "rockets fly to the moon"}


def connecting():
    client = Client()
    check("CLIENT SETINFO LIB-NAME", client.call("CLIENT", "SETINFO", "LIB-NAME",
                                                 "redis-py(langchain-redis_v0.2.4)") == "OK")
    check("ECHO, where that fails", client.call("ECHO", "langchain-redis") == b"langchain-redis")


def vector_store():
    client, name = Client(library=LIBRARY), "docs"
    index = SearchIndex(client, name, name, [*tag_field("id"), *text_field("text"), *flat_vector("embedding", 32)])
    check("RedisVectorStore: the index", index.create() == "OK")
    index.load({key: {"text": t, "embedding": blob(embed(t)), "kind": "note"} for key, t in TEXTS.items()}, ttl=500)
    asked = embed("moon rockets")
    order = sorted(TEXTS, key=lambda k: cosine(asked, embed(TEXTS[k])))
    rows = index.vector_query("embedding", asked, 2, fields=["text"])
    check("similarity_search_with_score", [key for key, _ in rows] == ["docs:" + k for k in order[:2]], rows)
    fields = [dict(zip(map(text, h[::2]), map(plain, h[1::2])))
              for h in client.pipeline(*(("HGETALL", key) for key, _ in rows))]
    check("then HGETALL: text and what else was stored", [f["text"] for f in fields] == [TEXTS[k] for k in order[:2]]
          and fields[0]["kind"] == "note" and client.call("HGET", rows[0][0],
                                                          "embedding") == blob(embed(fields[0]["text"])), fields)
    rows = index.range_query("embedding", asked, 0.6, 10, fields=["text"])
    check("with a distance_threshold", {k for k, _ in rows} == {
        "docs:" + k for k, t in TEXTS.items() if cosine(asked, embed(t)) <= 0.6}, rows)
    check("delete", client.call("DEL", "docs:a", "docs:b") == 2 and index.count("*") == 1)


def vector_store_in_json():
    client, name = Client(library=LIBRARY), "jdocs"
    index = SearchIndex(client, name, name, [
        "$.id", "AS", "id", "TAG", "SEPARATOR", ",", "$.text", "AS", "text", "TEXT", "WEIGHT", 1, "$.embedding", "AS",
        "embedding",
        "VECTOR", "FLAT", 6, "TYPE", "FLOAT32", "DIM", 32, "DISTANCE_METRIC", "COSINE", "$.year", "AS", "year",
        "NUMERIC"], "JSON")
    check("RedisVectorStore in JSON: the index", index.create() == "OK")
    client.pipeline(*(("JSON.SET", index.key(k), "$",
                       json.dumps({"id": k, "text": t, "embedding": embed(t), "year": 2000 + len(t)}))
                      for k, t in TEXTS.items()))
    rows = index.vector_query("embedding", embed(TEXTS["c"]), 1, fields=["text"])
    check("the nearest", rows[0][0] == "jdocs:c" and rows[0][1]["text"] == TEXTS["c"] and abs(
        float(rows[0][1]["vector_distance"])) < 1e-6, rows)
    whole = json.loads(client.call("JSON.GET", rows[0][0], "."))
    check("then JSON.GET key .", whole["text"] == TEXTS["c"] and len(whole["embedding"]) == 32, whole)
    several = client.call("JSON.MGET", "jdocs:a", "jdocs:none", "jdocs:b", ".")
    check("JSON.MGET", [json.loads(d)["id"] if d else None for d in several] == ["a", None, "b"], several)
    schema = index.schema()
    check("the schema comes back, with paths", [(f["name"], f["path"], f["type"]) for f in schema["fields"]] == [
        ("id", "$.id", "tag"), ("text", "$.text", "text"), ("embedding", "$.embedding", "vector"),
        ("year", "$.year", "numeric")],
        schema)


def semantic_cache():
    client = Client(library=LIBRARY)
    cache = SemanticCache(client, "llmcache", threshold=0.2, filters=["llm_string"])
    model = hashlib.md5(b"gpt").hexdigest()
    check("RedisSemanticCache: a miss", cache.check("who wrote faust", "@llm_string:{%s}" % model) == [])
    cache.store("who wrote faust", json.dumps([{"text": "Goethe"}]), llm_string=model)
    seen = cache.check("who wrote faust", "@llm_string:{%s}" % model)
    check("a hit", json.loads(seen[0]["response"])[0]["text"] == "Goethe", seen)
    check("of this model only", cache.check("who wrote faust",
                                            "@llm_string:{%s}" % hashlib.md5(b"other").hexdigest()) == [])


def cache():
    client = Client(library=LIBRARY)
    key = "redis:%s:%s" % (hashlib.md5(b"prompt").hexdigest(), hashlib.md5(b"model").hexdigest())
    check("RedisCache: a miss", client.call("JSON.GET", key) is None)
    check("JSON.SET", client.call("JSON.SET", key, "$", json.dumps([{"generation": "text"}])) == "OK")
    client.call("EXPIRE", key, 100)
    check("a hit", json.loads(client.call("JSON.GET", key))[0]["generation"] == "text" and client.call("TTL", key) > 90)
    found, cursor = [], b"0"
    while True:
        cursor, keys = client.call("SCAN", cursor, "MATCH", "redis:*", "COUNT", 100)
        found += keys
        if cursor == b"0":
            break
    check("clear: SCAN and DEL", found == [key.encode()] and client.call("DEL", *found) == 1, found)


def chat_history():
    client, name, session = Client(library=LIBRARY), "idx:chat_history", "user-1"
    index = SearchIndex(client, name, "chat:", [
        "$.session_id", "AS", "session_id", "TAG", "SEPARATOR", ",", "$.data.content", "AS", "content", "TEXT",
        "WEIGHT", 1,
        "$.type", "AS", "type", "TAG", "SEPARATOR", ",", "$.timestamp", "AS", "timestamp", "NUMERIC"], "JSON")
    check("RedisChatMessageHistory: the index", index.create() == "OK")
    info = client.call("FT.INFO", name)
    definition = [text(x) if not isinstance(x, list) else [text(y) for y in x]
                  for x in info[info.index(b"index_definition") + 1]]
    check("index_definition is a list with prefixes", definition[definition.index("prefixes") + 1] == ["chat:"],
          definition)
    said = [("human", "Hello there"), ("ai", "Hello! How can I help?"), ("human", "Tell me of the sea")]
    for i, (kind, content) in enumerate(said):
        client.call("JSON.SET", "chat:%s:%d" % (session, i), "$", json.dumps({
            "type": kind, "message_id": str(i), "session_id": session, "timestamp": 1700000000.123456 + i,
            "data": {"content": content, "additional_kwargs": {}, "type": kind}}))
    client.call("JSON.SET", "chat:other:0", "$", json.dumps({"type": "human", "session_id": "other", "timestamp": 1,
                                                             "data": {"content": "sea"}}))
    mine = "@session_id:{%s}" % escape(session)
    _, rows = index.search(*query(mine, fields=["type", "$.data"], sort=("timestamp", True), limit=(0, 10000)))
    check("messages, in their order, each with its data as JSON",
          [(f["type"], json.loads(f["$.data"])["content"]) for _, f in rows] == said, rows)
    check("len: CountQuery", index.count(mine) == 3)
    _, rows = index.search(*query("@content:(sea) AND %s" % mine, scorer="BM25STD", scores=True,
                                  fields=["type", "$.data"]), scores=True)
    check("search_messages: TextQuery", [json.loads(f["$.data"])["content"] for _, f,
                                         _ in rows] == ["Tell me of the sea"], rows)
    _, rows = index.search(*query(mine, fields=["id"], limit=(0, 10000)))
    check("clear", client.call("DEL", *(key for key, _ in rows)) == 3 and index.count(mine) == 0
          and index.count("*") == 1)
    check("delete: the index and all of it", client.call("FT.DROPINDEX", name, "DD") == "OK"
          and client.call("DBSIZE") == 0)


def json_documents_without_fields():
    client, name = Client(library=LIBRARY), "whole"
    index = SearchIndex(client, name, name, ["$.n", "AS", "n", "NUMERIC"], "JSON")
    index.create()
    client.call(*("JSON.SET", "whole:1", "$", '{"n":1,"t":"x"}'))
    _, rows = index.search(*query("@n:[1 1]"))
    check("without RETURN the whole document is under $", json.loads(rows[0][1]["$"]) == {"n": 1, "t": "x"}, rows)
    check("FT.INFO says JSON", schema_of(client.call("FT.INFO", name))["index"]["storage_type"] == "json"
          and flat({}) == [])


if __name__ == "__main__":
    script(connecting, vector_store, vector_store_in_json, semantic_cache, cache, chat_history,
           json_documents_without_fields)
