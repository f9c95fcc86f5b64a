"""as_litellm.py - the command lines of LiteLLM's two semantic caches, and their reading of the replies.

redis-semantic is redisvl's SemanticCache with a TAG for the caller's key; valkey-semantic talks to the server through
redis-py by itself: FT.CREATE first, and "already exists" is fine.
"""
import hashlib
import json

from as_redisvl import LIBRARY, SemanticCache, escape, query
from wire import Client, Error, blob, check, document_rows, embed, fails, script, text

SCOPE = "litellm:team-7 user=anna@example.com/v1"


def redis_semantic():
    client = Client(library=LIBRARY)
    cache = SemanticCache(client, "litellm_semantic_cache_index", threshold=0.2, ttl=60, filters=["litellm_cache_key"])
    mine = "@litellm_cache_key:{%s}" % escape(SCOPE)
    fields = [*SemanticCache.FIELDS, "litellm_cache_key"]
    check("redis-semantic: a miss", cache.check("what is 2 + 2", mine) == [])
    answer = json.dumps({"choices": [{"message": {"content": "4"}}]})
    key = cache.store("what is 2 + 2", answer, litellm_cache_key=SCOPE)
    hit = cache.check("what is 2 + 2", mine, fields=fields)
    check("a hit has the key of its caller", len(hit) == 1 and hit[0]["litellm_cache_key"] == SCOPE
          and hit[0]["response"] == answer, hit)
    check("another caller has none", cache.check("what is 2 + 2",
                                                 "@litellm_cache_key:{%s}" % escape(SCOPE + "x")) == [])
    check("its time to live", 50 < client.call("TTL", key) <= 60)
    try:
        SemanticCache(client, "litellm_semantic_cache_index")
        check("an index of another schema is noticed", False)
    except ValueError:
        check("an index of another schema is noticed", True)
    isolated = SemanticCache(client, "litellm_semantic_cache_index_isolated", filters=["litellm_cache_key"])
    check("and another one made beside it", isolated.created == "OK" and isolated.check("what is 2 + 2") == [])


class ValkeySemanticCache:
    def __init__(self, client, name, threshold):
        self.client, self.name, self.threshold, self.replies = client, name, threshold, []

    def ensure_index(self):
        reply = self.client.call("FT.CREATE", self.name, "ON", "HASH", "PREFIX", 1, self.name + ":", "SCHEMA",
                                 "litellm_cache_key", "TAG",
                                 "SEPARATOR", ",", "embedding", "VECTOR", "HNSW", 6, "TYPE", "FLOAT32", "DIM", 32,
                                 "DISTANCE_METRIC",
                                 "COSINE")
        self.replies.append(reply)
        if isinstance(reply, Error):
            if "already exists" not in reply.lower():
                raise ValueError(reply)
            info = self.client.call("FT.INFO", self.name)
            if isinstance(info, Error):
                raise ValueError(info)

    def put(self, scope, number, prompt, response, ttl=None):
        self.ensure_index()
        tag = hashlib.sha256(scope.encode()).hexdigest()
        key = "%s:%s:%d" % (self.name, tag, number)
        self.client.hset(key, litellm_cache_key=tag, prompt=prompt, response=response, embedding=blob(embed(prompt)))
        if ttl:
            self.client.call("EXPIRE", key, ttl)
        return key

    def get(self, scope, prompt):
        self.ensure_index()
        tag = hashlib.sha256(scope.encode()).hexdigest()
        _, rows = document_rows(self.client.call("FT.SEARCH", self.name, *query(
            "(@litellm_cache_key:{%s})=>[KNN 1 @embedding $vec AS vector_distance]" % tag,
            fields=["response", "vector_distance"],
            params={"vec": blob(embed(prompt))})))
        if not rows:
            return None
        similarity = 1 - float(rows[0][1]["vector_distance"])
        return rows[0][1]["response"] if similarity >= self.threshold else None


def valkey_semantic():
    client = Client(library="redis-py")
    cache = ValkeySemanticCache(client, "litellm_valkey", 0.8)
    check("valkey-semantic: a miss", cache.get(SCOPE, "what is the time") is None)
    cache.put(SCOPE, 1, "what is the time", "noon", ttl=100)
    check("a hit", cache.get(SCOPE, "what is the time") == "noon")
    check("a similar question", cache.get(SCOPE, "what is now the time") == "noon")
    check("another one", cache.get(SCOPE, "bake bread") is None)
    check("another caller", cache.get("other", "what is the time") is None)
    check("the index was there after the first FT.CREATE", cache.replies[0] == "OK"
          and all(isinstance(r, Error) for r in cache.replies[1:]))
    fails("and the error says so", cache.replies[1], "already exists")
    info = client.call("FT.INFO", "litellm_valkey")
    check("FT.INFO: num_docs", info[[text(x) if isinstance(x, bytes) else x for x in info].index("num_docs") + 1] == 1)


if __name__ == "__main__":
    script(redis_semantic, valkey_semantic)
