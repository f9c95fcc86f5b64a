"""as_langchain4j.py - the command lines of LangChain4j's RedisEmbeddingStore (jedis, RESP2) and of Quarkus' store of
that name (Vert.x, RESP3), and their reading of the replies.
"""
import json

from wire import Client, approximately, blob, check, cosine, document_rows, embed, map_rows, script, text

SEGMENTS = {"a": ("the cat sleeps on the sofa", {"kind": "pets", "year": 2001, "note": "a quiet cat"}),
            "b": ("the dog barks at the moon", {"kind": "pets", "year": 2010, "note": "a loud dog"}),
            "c": ("rockets fly to the moon", {"kind": "space", "year": 1.5e3, "note": "loud"})}


def make(client, *fields):
    check("ftList", [text(name) for name in client.call("FT._LIST")] == [])
    check("FT.CREATE", client.call(
        "FT.CREATE", "embedding-index", "ON", "JSON", "PREFIX", 1, "embedding:", "SCHEMA", "$.text", "AS", "text",
        "TEXT", "WEIGHT", "1.0", "$.vector", "AS", "vector", "VECTOR", "HNSW", 6, "DIM", 32,
        "DISTANCE_METRIC", "COSINE", "TYPE", "FLOAT32", *fields) == "OK")
    documents = {key: {"vector": embed(said), "text": said, **metadata} for key, (said, metadata) in SEGMENTS.items()}
    done = client.pipeline(*(("JSON.SET", "embedding:" + key, "$", json.dumps(document))
                             for key, document in documents.items()))
    check("addAll: a pipeline of JSON.SET", done == ["OK"] * 3, done)
    check("the index is there", [text(name) for name in client.call("FT._LIST")] == ["embedding-index"])


def in_order(rows, asked, right):
    """Nearest first, with the score that the store computes, the vector and the text out of the document."""
    found = [key.split(":")[1] for key, _ in rows]
    documents = [json.loads(fields["$"]) for _, fields in rows]
    return found == sorted(right, key=lambda k: cosine(asked, embed(SEGMENTS[k][0]))) and all(
        approximately((2 - float(fields["vector_score"])) / 2, 1 - cosine(asked, document["vector"]) / 2)
        and document["text"] == SEGMENTS[key][0] for key, (_, fields), document in zip(found, rows, documents))


def langchain4j():
    client, asked = Client(library="jedis"), embed("the moon")
    make(client, "$.kind", "AS", "kind", "TAG", "$.year", "AS", "year", "NUMERIC", "$.note", "AS", "note", "TEXT")
    for filters, right in (
            ("(*)", "abc"), ("@kind:{pets}", "ab"), ("(-@kind:{pets})", "c"), ("@kind:{space | other}", "c"),
            ("(-@kind:{space | pets})", ""), ("@year:[2001]", "a"), ("(-@year:[2001])", "bc"),
            ("@year:[(2001 inf]", "b"),
            ("@year:[2001 inf]", "ab"), ("@year:[-inf (1.5E3]", ""), ("@year:[-inf 1500.0]", "c"),
            ('@note:"quiet cat"', "a"),
            ('(-@note:"quiet cat")', "bc"), ('@note:("loud dog" | "quiet cat")', "ab"),
            ("(@kind:{pets} @year:[(2001 inf])", "b"),
            ("(@kind:{space} | @year:[2001])", "ac"), ("(-(@kind:{space} | @year:[2001]))", "b")):
        total, rows = document_rows(client.call(
            "FT.SEARCH", "embedding-index", "%s=>[ KNN 5 @vector $BLOB AS vector_score ]" % filters, "SORTBY",
            "vector_score",
            "ASC", "LIMIT", 0, 5, "PARAMS", 2, "BLOB", blob(asked), "DIALECT", 2))
        check("search, %s" % filters, total == len(right) and in_order(rows, asked, right), rows)
    _, rows = document_rows(client.call("FT.SEARCH", "embedding-index", "@kind:{space}", "DIALECT", 2))
    check("removeAll(filter)", client.call("DEL", *(key for key, _ in rows)) == 1)
    _, keys = client.call("SCAN", "0", "MATCH", "embedding:*")
    check("removeAll()", client.call("DEL", *keys) == 2 and client.call("FT.SEARCH", "embedding-index", "*", "LIMIT",
        0, 0) == [0])


def quarkus():
    client, asked = Client(3, "vertx"), embed("the moon rockets")
    make(client, "$.year", "AS", "year", "NUMERIC")
    for filters, right in (("*", "abc"), ("(@year:[2001 2001])", "a"), ("(-@year:[2001 2001])", "bc"),
                           ("(@year:[1500 inf] @year:[-inf (2010])", "ac")):
        total, rows = map_rows(client.call("FT.SEARCH", "embedding-index",
            "%s=>[ KNN 5 @vector $BLOB AS vector_score ]" % filters,
                                           "SORTBY", "vector_score", "ASC", "PARAMS", 2, "BLOB", blob(asked),
                                           "DIALECT", 2))
        check("search, %s" % filters, total == len(right) and in_order(rows, asked, right), rows)


if __name__ == "__main__":
    script(langchain4j, quarkus)
