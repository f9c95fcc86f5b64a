"""as_llamaindex.py - the command lines of LlamaIndex's RedisVectorStore (on redisvl), and its reading of the replies."""
import json

from as_redisvl import LIBRARY, SearchIndex, escape, flat_vector, query, tag_field, text_field
from wire import Client, blob, check, cosine, embed, script

NODES = {"n1": ("d1", "the cat sleeps on the sofa", {"lang": "en", "page": 1}),
         "n2": ("d1", "the dog barks at the moon", {"lang": "en", "page": 2}),
         "n3": ("d2", "rockets fly to the moon", {"lang": "de", "page": 1})}


def vector_store():
    client = Client(library=LIBRARY)
    index = SearchIndex(client, "llama_index", "llama_index/vector", [
        *tag_field("id"), *tag_field("doc_id"), *text_field("text"), *flat_vector("vector", 32), *tag_field("lang"),
        "page", "NUMERIC"])
    check("the index", index.create(overwrite=False) == "OK" and index.exists())
    index.load({key: {"id": key, "doc_id": doc, "text": t, "vector": blob(embed(t)), **meta,
                      "_node_content": json.dumps({"text": t})}
                for key, (doc, t, meta) in NODES.items()})
    asked = embed("a dog and the moon")
    order = sorted(NODES, key=lambda k: cosine(asked, embed(NODES[k][1])))
    rows = index.vector_query("vector", asked, 3, fields=["id", "doc_id", "text", "_node_content", "vector"])
    check("query", [f["id"] for _, f in rows] == order
          and json.loads(rows[0][1]["_node_content"])["text"] == NODES[order[0]][1], rows)
    check("similarities are 1 - vector_distance", all(
        abs(1 - float(f["vector_distance"]) - (1 - cosine(asked, embed(f["text"])))) < 1e-5 for _, f in rows), rows)
    check("the vector comes back", all(f["vector"] == blob(embed(f["text"])) for _, f in rows))
    rows = index.vector_query("vector", asked, 3, "(@lang:{en} @page:[2 2])", ["id"])
    check("metadata filters", [f["id"] for _, f in rows] == ["n2"], rows)
    rows = index.vector_query("vector", asked, 3, "(@id:{n1|n3})", ["id"])
    check("the old kind of filters", {f["id"] for _, f in rows} == {"n1", "n3"}, rows)
    check("persist", client.call("SAVE") == "OK" or client.call("BGSAVE") is not None)
    wanted = "@doc_id:{%s}" % escape("d1")
    total = index.count(wanted)
    _, rows = index.search(*query(wanted, fields=["id"], limit=(0, total)))
    check("delete: CountQuery, FilterQuery, DEL in a pipeline", total == 2
          and sum(client.pipeline(*(("DEL", k) for k, _ in rows))) == 2
          and index.count("*") == 1)
    check("delete_index", client.call("FT.DROPINDEX", "llama_index", "DD") == "OK" and client.call("DBSIZE") == 0)


if __name__ == "__main__":
    script(vector_store)
