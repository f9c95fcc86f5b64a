"""as_bifrost.py - the command lines of Bifrost's Redis vector store (go-redis 9 with RESP3: maps), and its reading of
the replies. "All" is LIMIT 0 2147483647 and KNN 2147483647. Its tests for null (@f:*) are no query in
RediSearch.
"""
from wire import Client, approximately, blob, check, cosine, embed, fails, hset, map_rows, script, text

NAMESPACE, EVERYTHING = "BifrostSemanticCachePlugin", 2147483647
CHUNKS = {"c:1": ("what is the capital of france", "openai", 10), "c2": ("how high is the eiffel tower", "openai", 20),
          "c3": ("who painted the mona lisa", "anthropic", 30)}


def store():
    client = Client(3, "go-redis(,go1.24)")
    fails("FT.INFO of no index", client.call("FT.INFO", NAMESPACE), "unknown index name")
    check("CreateNamespace", client.call(
        "FT.CREATE", NAMESPACE, "ON", "HASH", "PREFIX", 1, NAMESPACE + ":", "SCHEMA", "embedding", "VECTOR", "HNSW", 6,
        "TYPE", "FLOAT32", "DIM", 32,
        "DISTANCE_METRIC", "COSINE", "provider", "TAG", "params_hash", "TAG", "expires_at", "NUMERIC") == "OK")
    for key, (question, provider, expires) in CHUNKS.items():
        client.call(*hset("%s:%s" % (NAMESPACE, key),
                          {"embedding": blob(embed(question)), "provider": provider, "params_hash": "a-b:c",
                           "question": question,
                                                       "expires_at": expires}))
    chunk = client.call("HGETALL", NAMESPACE + ":c:1")
    check("GetChunk: HGETALL is a map", isinstance(chunk, dict) and chunk[b"provider"] == b"openai", chunk)
    asked = embed("the eiffel tower is how high")

    def nearest(filters, limit, *fields):
        total, rows = map_rows(client.call(
            "FT.SEARCH", NAMESPACE, "%s=>[KNN %d @embedding $vec AS score]" % (filters, limit), "PARAMS", 2, "vec",
            blob(asked), "SORTBY", "score",
            "RETURN", 1 + len(fields), "score", *fields, "LIMIT", 0, limit, "DIALECT", 2))
        return [(":".join(key.split(":")[1:]), fields) for key, fields in rows]
    order = sorted(CHUNKS, key=lambda k: cosine(asked, embed(CHUNKS[k][0])))
    rows = nearest("*", 2, "question")
    check("GetNearest: results[].id, extra_attributes", [k for k, _ in rows] == order[:2] and all(
        approximately(f["score"], cosine(asked, embed(f["question"]))) for _, f in rows), rows)
    check("the score is text that is a number", all(isinstance(f["score"], str) for _, f in rows), rows)
    check("all of them", [k for k, _ in nearest("*", EVERYTHING)] == order)
    check("filters", [k for k, _ in nearest("(@provider:{anthropic} @params_hash:{a\\-b\\:c})", 5)] == ["c3"])

    def everything(query_text, *words):
        reply = client.call("FT.SEARCH", NAMESPACE, query_text, *words, "DIALECT", 2)
        return reply if isinstance(reply, str) else [key for key, _ in map_rows(reply)[1]]
    check("GetAll", len(everything("*", "LIMIT", 0, EVERYTHING)) == 3, everything("*", "LIMIT", 0, EVERYTHING))
    check("pages", len(everything("*", "LIMIT", 0, 2)) == 2 and len(everything("*", "LIMIT", 2, 2)) == 1)
    for filters, right in (("-@provider:{openai}", 1), ("@expires_at:[(10 +inf]", 2), ("@expires_at:[-inf (20]", 1),
                           ("(@provider:{openai} | @provider:{anthropic})", 3),
                           ("@provider:{openai} @expires_at:[20 20]", 1), ("@provider:*", 3), ("-@provider:*", 0),
                           ("(-@expires_at:* @provider:{openai})", 0), ("@embedding:*", 3)):
        check("filter %s" % filters, len(everything(filters, "LIMIT", 0, 10)) == right, everything(filters))
    whole = client.call("FT.SEARCH", NAMESPACE, "@provider:{anthropic}")
    check("the map has what go-redis and others look for", {text(name) for name in whole} >= {
        "attributes", "total_results", "format", "results", "warning"}, whole)
    check("DeleteNamespace", client.call("FT.DROPINDEX", NAMESPACE, "DD") == "OK" and client.call("DBSIZE") == 0)


if __name__ == "__main__":
    script(store)
