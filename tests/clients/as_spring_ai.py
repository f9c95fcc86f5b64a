"""as_spring_ai.py - the command lines of Spring AI's RedisVectorStore and semantic cache (jedis, RESP2; JSON
documents), and its reading of the replies. It sends no SORTBY and takes the rows as they come; tags are not escaped.
"""
import json

from wire import Client, approximately, blob, check, cosine, document_rows, embed, script, text

DOCUMENTS = {"1": ("the cat sleeps on the sofa", {"country": "UK", "year": 2020, "note": "calm"}),
             "2": ("the dog barks at the moon", {"country": "NL", "year": 2021, "note": "loud night"}),
             "3": ("rockets fly to the moon", {"country": "UK", "year": 2023, "note": "loud"})}


def make(client, algorithm=("HNSW", 10, "M", 16, "EF_CONSTRUCTION", 200)):
    """M and others stand behind TYPE, DIM and DISTANCE_METRIC."""
    reply = client.call(
        "FT.CREATE", "spring-ai-index", "ON", "JSON", "PREFIX", 1, "embedding:", "SCHEMA", "$.content", "AS",
        "content", "TEXT", "WEIGHT", "1.0",
        "$.embedding", "AS", "embedding", "VECTOR", *algorithm[:2], "DIM", 32, "DISTANCE_METRIC", "COSINE", "TYPE",
        "FLOAT32", *algorithm[2:],
        "$.country", "AS", "country", "TAG", "$.year", "AS", "year", "NUMERIC", "$.note", "AS", "note", "TEXT")
    replies = client.pipeline(*(("JSON.SET", "embedding:" + key, "$",
                                 json.dumps({"content": t, "embedding": embed(t), **meta}))
                                for key, (t, meta) in DOCUMENTS.items()))
    return reply, replies


def vector_store():
    client = Client(library="jedis(7.0.0)")
    check("FT._LIST has no index of that name", b"spring-ai-index" not in client.call("FT._LIST"))
    made, written = make(client)
    check("FT.CREATE ON JSON", made == "OK", made)
    check("every JSON.SET answers OK", written == ["OK"] * 3, written)
    check("FT._LIST has it", b"spring-ai-index" in client.call("FT._LIST"))
    asked = embed("moon rockets")

    def search(filters, k=3):
        return document_rows(client.call(
            "FT.SEARCH", "spring-ai-index", "%s=>[KNN %d @embedding $BLOB AS vector_score]" % (filters, k), "PARAMS",
            2, "BLOB", blob(asked), "RETURN", 6,
            "country", "year", "note", "embedding", "content", "vector_score", "LIMIT", 0, k, "DIALECT", 2))
    total, rows = search("*")
    order = sorted(DOCUMENTS, key=lambda k: cosine(asked, embed(DOCUMENTS[k][0])))
    check("similaritySearch: the nearest come first without SORTBY", total == 3
          and [k for k, _ in rows] == ["embedding:" + k for k in order], rows)
    first = rows[0][1]
    check("the fields of a row: text unquoted, numbers as they were, the vector as JSON",
          first["content"] == DOCUMENTS[order[0]][0] and
          first["country"] == DOCUMENTS[order[0]][1]["country"] and first["year"] == str(DOCUMENTS[order[0]][1]["year"])
          and len(json.loads(first["embedding"])) == 32, first)
    check("similarity is (2 - vector_score) / 2", approximately((2 - float(first["vector_score"])) / 2, (2 - cosine(
        asked, embed(first["content"]))) / 2), first)
    for filters, right in (("(@country:{UK})", "13"), ("(@country:{UK | NL})", "123"), ("(-@country:{UK})", "2"),
                           ("(@year:[(2020 inf])", "23"),
                           ("(@year:[-inf 2021])", "12"), ("(@country:{UK} @year:[2023 2023])", "3"),
                           ("(@country:{NL} | @year:[2020 2020])", "12"),
                           ("(@note:(loud night))", "2"),
                           ("((@country:{UK} @year:[-inf (2023]) | @note:(night))", "12")):
        _, rows = search(filters)
        check("filter %s" % filters, sorted(k[-1] for k, _ in rows) == list(right), rows)
    total, rows = document_rows(client.call("FT.SEARCH", "spring-ai-index", "@country:{UK}"))
    check("delete by filter: whole documents", total == 2 and json.loads(rows[0][1]["$"])["country"] == "UK", rows)
    check("JSON.DEL answers 1", [client.call("JSON.DEL", k) for k, _ in rows] == [1, 1])
    total, _ = document_rows(client.call("FT.SEARCH", "spring-ai-index", "*", "NOCONTENT", "LIMIT", 0, 100),
                             content=False)
    check("they are gone", total == 1)


def ranges_and_words():
    client = Client(library="jedis(7.0.0)")
    make(client, ("FLAT", 6))
    asked = embed("the moon")
    near = {"embedding:" + k for k, (t, _) in DOCUMENTS.items() if cosine(asked, embed(t)) <= 0.7}
    total, rows = document_rows(client.call(
        "FT.SEARCH", "spring-ai-index", "@embedding:[VECTOR_RANGE $radius $BLOB]=>{$YIELD_DISTANCE_AS: vector_score}",
        "PARAMS", 4, "radius", "0.7",
        "BLOB", blob(asked), "RETURN", 2, "content", "vector_score", "LIMIT", 0, 10, "DIALECT", 2))
    check("searchByRange", total == len(near) and {k for k, _ in rows} == near
          and all("vector_score" in f for _, f in rows), rows)
    total, rows = document_rows(client.call("FT.SEARCH", "spring-ai-index", "@content:(moon)", "WITHSCORES", "SCORER",
                                            "BM25", "RETURN", 1, "content",
                                            "LIMIT", 0, 10, "DIALECT", 2), scores=True)
    check("searchByText, with scores", total == 2 and all(score > 0 for _, _, score in rows), rows)


def semantic_cache():
    client = Client(library="jedis(7.0.0)")
    check("the index", client.call(
        "FT.CREATE", "semantic-cache-index", "ON", "JSON", "PREFIX", 1, "semantic-cache:", "SCHEMA", "$.content", "AS",
        "content", "TEXT", "WEIGHT", "1.0",
        "$.embedding", "AS", "embedding", "VECTOR", "HNSW", 6, "DIM", 32, "DISTANCE_METRIC", "COSINE", "TYPE",
        "FLOAT32", "$.response", "AS", "response",
        "TEXT", "$.response_text", "AS", "response_text", "TEXT", "$.context_hash", "AS", "context_hash",
        "TAG") == "OK")
    answer = {"content": "what is spring", "embedding": embed("what is spring"),
              "response": "{\"text\": \"a season\"}", "response_text": "a season",
              "context_hash": "abc123"}
    check("set", client.call("JSON.SET", "semantic-cache:1", "$", json.dumps(answer)) == "OK"
          and client.call("EXPIRE", "semantic-cache:1", 100) == 1)
    _, rows = document_rows(client.call(
        "FT.SEARCH", "semantic-cache-index", "(@context_hash:{abc123})=>[KNN 1 @embedding $BLOB AS vector_score]",
        "PARAMS", 2, "BLOB",
        blob(embed("what is spring")), "RETURN", 4, "response", "response_text", "content", "vector_score", "LIMIT", 0,
        1, "DIALECT", 2))
    check("get", rows[0][1]["response_text"] == "a season"
          and json.loads(rows[0][1]["response"])["text"] == "a season" and abs(
        float(rows[0][1]["vector_score"])) < 1e-6, rows)
    check("clear", text(client.call("FT.DROPINDEX", "semantic-cache-index", "DD")) == "OK"
          and client.call("EXISTS", "semantic-cache:1") == 0)


if __name__ == "__main__":
    script(vector_store, ranges_and_words, semantic_cache)
