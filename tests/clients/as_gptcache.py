"""as_gptcache.py - the command lines of GPTCache's Redis vector store (redis-py), and its reading of the replies."""
from as_redisvl import query
from wire import Client, blob, check, cosine, document_rows, embed, fails, script

SENTENCES = ["how do I reset my password", "where is my parcel", "how do I close my account"]


def vector_base():
    client = Client(library="redis-py")
    fails("FT.INFO of no index: then it makes one", client.call("FT.INFO", "gptcache"), "unknown index name")
    check("FT.CREATE", client.call("FT.CREATE", "gptcache", "ON", "HASH", "PREFIX", 1, "doc:", "SCHEMA", "tag", "TAG",
                                   "SEPARATOR", ",", "vector",
                                   "VECTOR", "FLAT", 6, "TYPE", "FLOAT32", "DIM", 32, "DISTANCE_METRIC",
                                   "COSINE") == "OK")
    done = client.transaction(*(("HSET", "doc:%d" % i, "vector", blob(embed(s)), "id", i) for i,
                                s in enumerate(SENTENCES)))
    check("mul_add: MULTI, HSET, EXEC", done == [2, 2, 2], done)
    asked = embed("how do I reset a password")
    order = sorted(range(3), key=lambda i: cosine(asked, embed(SENTENCES[i])))
    for word in ("as", "AS", "As"):
        total, rows = document_rows(client.call("FT.SEARCH", "gptcache", *query(
            "*=>[KNN 2 @vector $query_vector %s score]" % word, fields=["id", "score"], sort=("score", True),
            limit=(0, 2),
            params={"query_vector": blob(asked)})))
        check("search (%s)" % word, total == 2 and [int(f["id"]) for _, f in rows] == order[:2] and all(
            abs(float(f["score"]) - cosine(asked, embed(SENTENCES[int(f["id"])]))) < 1e-5 for _, f in rows), rows)
    _, rows = document_rows(client.call("FT.SEARCH", "gptcache", *query(
        "*=>[KNN 1 @vector $query_vector as score]", fields=["id", "score"], sort=("score", True), limit=(0, 1),
        params={"query_vector": blob(embed(SENTENCES[1]))})))
    check("the same question is at distance 0", rows[0][1]["id"] == "1" and abs(float(rows[0][1]["score"])) < 1e-6,
          rows)
    check("delete", client.call("DEL", "doc:0", "doc:1") == 2)
    total, _ = document_rows(client.call("FT.SEARCH", "gptcache", *query("*", no_content=True)), content=False)
    check("what was deleted is not found", total == 1)


if __name__ == "__main__":
    script(vector_base)
