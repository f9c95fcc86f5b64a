"""as_haystack.py - the command lines of Haystack's ValkeyDocumentStore (valkey-glide: RESP3, arrays only; JSON
documents).

FT.CREATE has no PREFIX, and the vector's path no "$.".
"""
import json

from as_semantic_router import array_rows
from wire import Client, approximately, blob, check, cosine, embed, fails, script, text

INDEX = "haystack_document"
DOCUMENTS = {"d1": ("the cat sleeps on the sofa", {"category": "pets", "score": 1}),
             "d2": ("the dog barks at the moon", {"category": "pets", "score": 5}),
             "d3": ("rockets fly to the moon", {"category": "space-news", "score": 9}), "d4": ("no meta data", {})}


def document_store():
    client = Client(3, "GlidePySync")
    fails("FT.INFO of no index", client.call("FT.INFO", INDEX), "not found|no such index|unknown index")
    check("FT.CREATE", client.call(
        "FT.CREATE", INDEX, "ON", "JSON", "SCHEMA", "$.id", "AS", "id", "TAG", "vector", "VECTOR", "HNSW", 6, "DIM",
        32, "TYPE", "FLOAT32",
        "DISTANCE_METRIC", "COSINE", "$.meta_category", "AS", "meta_category", "TAG", "$.meta_score", "AS",
        "meta_score", "NUMERIC") == "OK")
    for key, (content, meta) in DOCUMENTS.items():
        document = {"id": key, "payload": {"id": key, "content": content}, "vector": embed(content),
                    **{"meta_" + name: value for name, value in meta.items()}}
        check("JSON.SET " + key, client.call("JSON.SET", "%s:%s" % (INDEX, key), "$", json.dumps(document)) == "OK")
    info = client.call("FT.INFO", INDEX)
    check("count_documents: num_docs", isinstance(info, list)
          and info[2 * [text(n) for n in info[::2]].index("num_docs") + 1] == 4, info)
    asked = embed("moon rockets")

    def search(filters, k=4):
        return array_rows(client.call(
            "FT.SEARCH", INDEX, "%s=>[KNN %d @vector $query_vector]" % (filters, k), "RETURN", 12, "$.id", "AS", "id",
            "$.payload", "AS", "payload", "__vector_score", "AS", "score", "$.vector", "AS", "vector", "PARAMS", 2,
            "query_vector", blob(asked), "LIMIT", 0, k))
    total, rows = search("*")
    order = sorted(DOCUMENTS, key=lambda k: cosine(asked, embed(DOCUMENTS[k][0])))
    check("retrieval by embedding", total == 4 and [k for k, _ in rows] == ["%s:%s" % (INDEX, k) for k in order]
          and json.loads(rows[0][1]["payload"])["content"] == DOCUMENTS[order[0]][0], rows)
    check("the score by the name that was given, the vector as JSON", approximately(
        rows[0][1]["score"], cosine(asked, json.loads(rows[0][1]["vector"]))), rows[0])
    for filters, right in (
            ("@meta_category:{pets}", {"d1", "d2"}), ("@meta_category:{space\\-news}", {"d3"}),
            ("-@meta_category:{pets}", {"d3", "d4"}),
            ("(@meta_category:{pets} | @meta_category:{space\\-news})", {"d1", "d2", "d3"}),
            ("-@meta_category:{pets | other}", {"d3", "d4"}),
            ("@meta_score:[(1 +inf]", {"d2", "d3"}), ("@meta_score:[-inf 5]", {"d1", "d2"}),
            ("-@meta_score:[-inf +inf]", {"d4"}),
            ("@meta_score:[-inf +inf]", {"d1", "d2", "d3"}), ("-(@meta_score:[1 1] | @meta_score:[9 9])", {"d2", "d4"}),
            ("(@meta_category:{pets} @meta_score:[5 +inf])", {"d2"}),
            ("-(@meta_category:{pets} @meta_score:[5 5])", {"d1", "d3", "d4"})):
        _, rows = search(filters)
        check("filter %s" % filters, {k.split(":")[1] for k, _ in rows} == right, rows)
    total, rows = array_rows(client.call("FT.SEARCH", INDEX, "*", "RETURN", 1, "$.payload", "LIMIT", 0, 100, "DIALECT",
                                         2))
    check("filter_documents", total == 4 and len(rows) == 4, rows)
    check("delete_documents", client.call("DEL", INDEX + ":d1", INDEX + ":d2") == 2 and search("*")[0] == 2)
    check("delete_all_documents", client.call("FT.DROPINDEX", INDEX) == "OK" and client.call("DBSIZE") == 2)


if __name__ == "__main__":
    script(document_store)
