"""as_redisvl.py - the command lines of redisvl 0.26 (redis-py, RESP2), and its reading of the replies.

SearchIndex, VectorQuery, VectorRangeQuery, FilterQuery, CountQuery, TextQuery, the aggregating queries, SemanticCache,
SemanticMessageHistory, SemanticRouter. Other clients are built on it: as_langchain_redis.py, as_litellm.py,
as_llamaindex.py use the classes below. redis-py puts the words of FT.SEARCH into a fixed order: see query().
"""
import hashlib
import re
import time

from wire import (Client, Error, approximately, blob, check, cosine, document_rows, embed, fails, flat, plain, script,
                  text)

LIBRARY = "redis-py(redisvl_v0.26.0)"
MISSING = ("unknown index name", "no such index", "search_index_not_found", "index not found")


# ---- the client ----------------------------------------------------------------------------------------------------


def escape(value, wildcards=False):
    """What it does with values of tags before they go into a query."""
    return re.sub(r"[,.<>{}\[\]\\\"':;!@#$%^&()\-+=~/ ]" if wildcards else r"[,.<>{}\[\]\\\"':;!@#$%^&*()\-+=~/ ?]",
                  lambda m: "\\" + m.group(0), value)


def query(text_of_query, *, no_content=False, scorer=None, scores=False, fields=(), sort=None, limit=(0, 10),
          params=None):
    """The words behind FT.SEARCH index, in the order of redis-py."""
    words = [text_of_query]
    words += ["NOCONTENT"] if no_content else []
    words += ["SCORER", scorer] if scorer else []
    words += ["WITHSCORES"] if scores else []
    words += ["RETURN", len(fields), *fields] if fields else []
    words += ["SORTBY", sort[0], "ASC" if sort[1] else "DESC"] if sort else []
    words += ["DIALECT", 2, "LIMIT", *limit]
    words += ["PARAMS", 2 * len(params), *flat(params)] if params else []
    return words


def schema_of(info):
    """FT.INFO as a schema: what it compares with its own. Vector fields and others are read by position."""
    values = {text(info[i]): info[i + 1] for i in range(0, len(info), 2)}
    definition = [text(x) if not isinstance(x, list) else [text(y) for y in x] for x in values["index_definition"]]
    storage, prefixes = definition[1].lower(), definition[3]
    index = {"name": text(values["index_name"]), "storage_type": storage,
             "prefix": prefixes[0] if len(prefixes) == 1 else prefixes}
    if "stopwords_list" in values:
        index["stopwords"] = [text(word) for word in values["stopwords_list"]]
    return {"index": index, "fields": [field_of([text(x) for x in words], storage) for words in values["attributes"]]}


def field_of(words, storage):
    field = {"name": words[1] if storage == "hash" else words[3], "type": words[5].lower()}
    if storage == "json":
        field["path"] = words[1]
    attributes = {}
    if field["type"] == "vector":
        given = {str(words[i]).lower(): words[i + 1] for i in range(6, len(words) - 1, 2)}
        attributes = {"dims": int(given["dim"]), "distance_metric": given["distance_metric"].lower(),
                      "algorithm": given["algorithm"].lower(), "datatype": given["data_type"].lower()}
        attributes.update({name: int(given[name]) for name in ("m", "ef_construction") if name in given})
    else:
        words = list(words)
        for flag in ("UNF", "NOSTEM", "CASESENSITIVE", "SORTABLE", "INDEXMISSING", "INDEXEMPTY", "NOINDEX"):
            if flag in words:
                words.remove(flag)
                attributes[flag.lower()] = True
        for i in range(6, len(words), 2):
            attributes[words[i].lower()] = words[i + 1]  # IndexError where a flag it does not know stands
    field["attrs"] = attributes
    return field


class SearchIndex:
    """name, prefix; fields: the words of SCHEMA."""

    def __init__(self, client, name, prefix, fields, storage="HASH", options=()):
        self.client, self.name, self.prefix, self.storage = client, name, prefix, storage
        self.fields, self.options = fields, options

    def exists(self):
        reply = self.client.call("FT.INFO", self.name)
        if isinstance(reply, Error):
            if any(words in reply.lower() for words in MISSING):
                return False
            raise ValueError("an error that redisvl raises: " + reply)
        return True

    def create(self, overwrite=False):
        if self.exists():
            if not overwrite:
                return None
            self.client.call("FT.DROPINDEX", self.name)
        return self.client.call("FT.CREATE", self.name, "ON", self.storage, "PREFIX", 1, self.prefix, *self.options,
                                "SCHEMA", *self.fields)

    def key(self, key_id):
        return "%s:%s" % (self.prefix, key_id)

    def load(self, documents, ttl=None):
        """A pipeline without MULTI; the ids are the names of the documents."""
        commands = []
        for key_id, fields in documents.items():
            commands.append(("HSET", self.key(key_id), *flat(fields)))
            if ttl:
                commands.append(("EXPIRE", self.key(key_id), ttl))
        return self.client.pipeline(*commands)

    def search(self, *words, scores=False, content=True):
        return document_rows(self.client.call("FT.SEARCH", self.name, *words), scores, content)

    def vector_query(self, field, vector, k, filters="*", fields=(), extra=""):
        total, rows = self.search(*query(
            "%s=>[KNN %d @%s $vector%s AS vector_distance]" % (filters, k, field, extra),
            params={"vector": blob(vector)},
            fields=[*fields, "vector_distance"], sort=("vector_distance", True), limit=(0, k)))
        return [row for row in rows if "vector_distance" in row[1]]

    def range_query(self, field, vector, radius, k, filters="*", fields=()):
        words = "@%s:[VECTOR_RANGE $distance_threshold $vector]=>{$YIELD_DISTANCE_AS: vector_distance}" % field
        if filters != "*":
            words = "(%s %s)" % (words, filters)
        _, rows = self.search(*query(words, fields=[*fields, "vector_distance"], sort=("vector_distance", True),
                                     limit=(0, k),
                                     params={"vector": blob(vector), "distance_threshold": radius}))
        return rows

    def count(self, filters):
        return self.search(*query(filters, no_content=True, limit=(0, 0)), content=False)[0]

    def schema(self):
        return schema_of(self.client.call("FT.INFO", self.name))


def text_field(name):
    return [name, "TEXT", "WEIGHT", 1]


def tag_field(name):
    return [name, "TAG", "SEPARATOR", ","]


def flat_vector(name, dim):
    return [name, "VECTOR", "FLAT", 6, "TYPE", "FLOAT32", "DIM", dim, "DISTANCE_METRIC", "COSINE"]


class SemanticCache:
    """filters: names of TAG fields that entries are told apart by."""

    FIELDS = ("entry_id", "prompt", "response", "inserted_at", "updated_at", "metadata")

    def __init__(self, client, name="llmcache", threshold=0.1, ttl=None, filters=(), dim=32):
        self.threshold, self.ttl, self.dim = threshold, ttl, dim
        self.index = SearchIndex(client, name, name, [
            *text_field("prompt"), *text_field("response"), "inserted_at", "NUMERIC", "updated_at", "NUMERIC",
            *flat_vector("prompt_vector", dim), *(word for f in filters for word in tag_field(f))])
        self.wanted = {"index": {"name": name, "prefix": name, "storage_type": "hash"}, "fields": [
            {"name": "prompt", "type": "text", "attrs": {"weight": "1"}},
            {"name": "response", "type": "text", "attrs": {"weight": "1"}},
            {"name": "inserted_at", "type": "numeric", "attrs": {}},
            {"name": "updated_at", "type": "numeric", "attrs": {}},
            {"name": "prompt_vector", "type": "vector", "attrs": {
                "dims": dim, "distance_metric": "cosine", "algorithm": "flat", "datatype": "float32"}},
            *({"name": f, "type": "tag", "attrs": {"separator": ","}} for f in filters)]}
        if self.index.exists():
            if self.index.schema() != self.wanted:
                raise ValueError("the schema of the index that is there differs: %r" % self.index.schema())
        else:
            self.created = self.index.create()

    def store(self, prompt, response, metadata=None, **filters):
        entry = hashlib.sha256((prompt + repr(filters)).encode()).hexdigest()
        fields = {"entry_id": entry, "prompt": prompt, "response": response,
                  "prompt_vector": blob(embed(prompt, self.dim)),
                  "inserted_at": time.time(), "updated_at": time.time(), **filters}
        if metadata:
            fields["metadata"] = metadata
        self.index.load({entry: fields}, self.ttl)
        return self.index.key(entry)

    def check(self, prompt, filters="*", threshold=None, k=1, fields=None):
        """Every hit's time to live begins again."""
        rows = self.index.range_query("prompt_vector", embed(prompt, self.dim),
                                      self.threshold if threshold is None else threshold, k, filters, fields
                                      or self.FIELDS)
        if self.ttl:
            self.index.client.pipeline(*(("EXPIRE", key, self.ttl) for key, _ in rows))
        return [fields for _, fields in rows]


# ---- what must come of it ------------------------------------------------------------------------------------------

USERS = {
    "john": {"user": "john", "age": 18, "job": "engineer", "credit": "high", "office": "-122.42,37.77",
             "bio": "he likes cats"},
    "mary": {"user": "mary", "age": 14, "job": "doctor", "credit": "low", "office": "-122.42,37.77",
             "bio": "she likes dogs"},
    "nancy": {"user": "nancy", "age": 94, "job": "doctor", "credit": "high", "office": "-122.42,37.77",
              "bio": "no pets"},
    "tyler": {"user": "tyler", "age": 100, "job": "engineer", "credit": "high", "office": "-110.03,32.22",
              "bio": "cats, dogs"},
    "tim": {"user": "tim", "age": 12, "job": "dermatologist", "credit": "medium-high", "office": "-110.03,32.22",
            "bio": "x"},
}
VECTORS = {"john": [0.1, 0.1, 0.5], "mary": [0.1, 0.1, 0.5], "nancy": [0.7, 0.1, 0.5], "tyler": [0.1, 0.4, 0.5],
           "tim": [0.4, 0.4, 0.5]}


def connecting():
    client = Client()
    reply = client.call("CLIENT", "SETINFO", "LIB-NAME", LIBRARY)
    check("CLIENT SETINFO LIB-NAME", reply == "OK", reply)
    modules = [dict(zip(map(text, m[::2]), map(text, m[1::2]))) for m in client.call("MODULE", "LIST")]
    check("MODULE LIST has search, as redisvl 0.4 to 0.8 demand", any(
        m["name"] in ("search", "searchlight") and m["ver"] >= 20600 for m in modules), modules)
    check("INFO modules has search", b"name=search,ver=" in client.call("INFO", "modules"),
          client.call("INFO", "modules"))
    check("FT._LIST of nothing", client.call("FT._LIST") == [])


def users(client, algorithm=("FLAT", 6)):
    index = SearchIndex(client, "users", "user", [
        "user", "TAG", "SEPARATOR", ",", "age", "NUMERIC", "SORTABLE", *tag_field("job"), "credit", "TAG", "SEPARATOR",
        ",",
        "SORTABLE", "office", "GEO", *text_field("bio"), "vector", "VECTOR", *algorithm, "TYPE", "FLOAT32", "DIM", 3,
        "DISTANCE_METRIC", "COSINE"])
    index.create(overwrite=True)
    index.load({name: {**fields, "vector": blob(VECTORS[name])} for name, fields in USERS.items()})
    return index


def search_index():
    client = Client(library=LIBRARY)
    index = SearchIndex(client, "users", "user", [*tag_field("user")])
    check("exists() of no index", index.exists() is False)
    fails("the error says which", client.call("FT.INFO", "users"), "unknown index name.*users")
    check("create", index.create() == "OK")
    fails("create again", client.call("FT.CREATE", "users", "SCHEMA", "a", "TAG"), "index already exists")
    check("exists()", index.exists() is True and [text(n) for n in client.call("FT._LIST")] == ["users"])
    index = users(client)
    check("create(overwrite=True) and load", index.count("*") == 5)
    check("keys are hashes", text(client.call("TYPE", "user:john")) == "hash" and client.call("DBSIZE") == 5)
    check("fetch", plain(client.call("HGET", "user:john", "job")) == "engineer")
    index.create(overwrite=True)
    wait(lambda: index.count("*") == 5, "an index made over the documents that are there")
    info = client.call("FT.INFO", "users")
    check("num_docs is an integer", info[info.index(b"num_docs") + 1] == 5, info)
    check("the schema comes back", index.schema() == {
        "index": {"name": "users", "prefix": "user", "storage_type": "hash"},
        "fields": [{"name": "user", "type": "tag", "attrs": {"separator": ","}},
                   {"name": "age", "type": "numeric", "attrs": {"sortable": True, "unf": True}},
                   {"name": "job", "type": "tag", "attrs": {"separator": ","}},
                   {"name": "credit", "type": "tag", "attrs": {"separator": ",", "sortable": True}},
                   {"name": "office", "type": "geo", "attrs": {}},
                   {"name": "bio", "type": "text", "attrs": {"weight": "1"}},
                   {"name": "vector", "type": "vector", "attrs": {
                       "dims": 3, "distance_metric": "cosine", "algorithm": "flat", "datatype": "float32"}}]},
                       index.schema())
    check("drop_keys", client.call("DEL", "user:john") == 1 and client.call("UNLINK", "user:mary", "user:tim") == 2
          and index.count("*") == 2)
    check("delete(drop=True)", client.call("FT.DROPINDEX", "users", "DD") == "OK" and client.call("DBSIZE") == 0)
    check("listall", client.call("FT._LIST") == [])


def wait(condition, name):
    """For what may take a while: an index that is filled from keys that are there."""
    end = time.monotonic() + 20
    while not (right := condition()) and time.monotonic() < end:
        time.sleep(0.005)
    check(name, right)


def nearest(vector, names=None):
    return sorted(names or USERS, key=lambda name: cosine(vector, VECTORS[name]))


def vector_query():
    client, asked = Client(library=LIBRARY), [0.1, 0.15, 0.5]
    for algorithm in (("FLAT", 6), ("HNSW", 14, "M", 16, "EF_CONSTRUCTION", 200, "EF_RUNTIME", 10, "EPSILON", "0.01")):
        index, kind = users(client, algorithm), algorithm[0]
        rows = index.vector_query("vector", asked, 3, fields=["user", "age", "job"])
        check(kind + ": VectorQuery", len(rows) == 3 and all(
            approximately(fields["vector_distance"], cosine(asked, VECTORS[fields["user"]])) for _, fields in rows)
            and [float(f["vector_distance"]) for _, f in rows] == sorted(float(f["vector_distance"]) for _, f in rows),
            rows)
        check(kind + ": the order", {f["user"] for _, f in rows} == set(nearest(asked)[:3]), rows)
        for words in (" HYBRID_POLICY BATCHES BATCH_SIZE 4", " HYBRID_POLICY ADHOC_BF", " EF_RUNTIME 20"):
            rows = index.vector_query("vector", asked, 5, "@credit:{high}", ["user"], words)
            check(kind + ": filter," + words, {f["user"] for _, f in rows} == {"john", "nancy", "tyler"}, rows)
        total, rows = index.search(*query("*=>[KNN 2 @vector $vector AS vector_distance]",
                                          params={"vector": blob(asked)},
                                          fields=["user", "vector_distance"], sort=("age", False), limit=(0, 2)))
        check(kind + ": sorted by a field", total == 2 and len(rows) == 2
              and int(USERS[rows[0][1]["user"]]["age"]) >= int(
            USERS[rows[1][1]["user"]]["age"]), rows)
    params = {"vector": blob(asked), "EF": 50}
    _, rows = index.search(*query("*=>[KNN 3 @vector $vector EF_RUNTIME $EF AS vector_distance]", params=params,
                                  fields=["vector_distance"], sort=("vector_distance", True), limit=(0, 3)))
    check("EF_RUNTIME as a parameter", len(rows) == 3, rows)
    fails("a vector of another size", client.call("FT.SEARCH", "users", *query(
        "*=>[KNN 3 @vector $vector]", params={"vector": b"12345678"})), r"blob size \(8\).*expected size \(12\)")


def vector_range_query():
    client, asked = Client(library=LIBRARY), [0.1, 0.1, 0.5]
    index = users(client)
    near = {name for name in USERS if cosine(asked, VECTORS[name]) <= 0.2}
    rows = index.range_query("vector", asked, 0.2, 10, fields=["user"])
    check("VectorRangeQuery", {f["user"] for _, f in rows} == near and float(rows[0][1]["vector_distance"]) < 1e-6,
          rows)
    rows = index.range_query("vector", asked, 0.2, 10, "@credit:{low}", ["user"])
    check("with a filter", [f["user"] for _, f in rows] == ["mary"], rows)
    rows = index.range_query("vector", asked, 0, 10, fields=["user"])
    check("a threshold of 0 finds what is the same", {f["user"] for _, f in rows} == {"john", "mary"}, rows)
    words = ("(@vector:[VECTOR_RANGE $distance_threshold $vector]=>{$YIELD_DISTANCE_AS: vector_distance; $EPSILON: 0.5} "
             "@age:[0 50])")
    _, rows = index.search(*query(words, fields=["user", "vector_distance"], sort=("vector_distance", True), params={
        "vector": blob(asked), "distance_threshold": 0.2, "HYBRID_POLICY": "BATCHES", "BATCH_SIZE": 5}))
    check("EPSILON, and parameters that nothing uses", {f["user"] for _, f in rows} == {
        n for n in near if USERS[n]["age"] <= 50}, rows)


def filter_query():
    index = users(Client(library=LIBRARY))
    def find(expression):
        return {key.split(":")[1] for key, _ in index.search(*query(expression, fields=["user"], limit=(0, 100)))[1]}
    for name, expression, right in (
            ("Tag ==", "@credit:{%s}" % escape("medium-high"), {"tim"}), ("Tag == list", "@job:{doctor|dermatologist}",
             {"mary", "nancy", "tim"}), ("Tag !=", "(-@credit:{high})", {"mary", "tim"}),
            ("Tag %", "@job:{%s}" % escape("do*", True), {"mary", "nancy"}),
            ("Tag % infix", "@job:{%s}" % escape("*nginee*", True), {"john", "tyler"}),
            ("Num ==", "@age:[18 18]", {"john"}), ("Num !=", "(-@age:[18 18])", set(USERS) - {"john"}),
            ("Num >", "@age:[(18 +inf]", {"nancy", "tyler"}), ("Num <=", "@age:[-inf 14]", {"mary", "tim"}),
            ("Geo ==", "@office:[-122.4194 37.7749 1 km]", {"john", "mary", "nancy"}),
            ("Geo !=", "(-@office:[-122.4194 37.7749 10 mi])", {"tyler", "tim"}),
            ("Text ==", '@bio:("likes cats")', {"john"}), ("Text !=", '(-@bio:"likes cats")', set(USERS) - {"john"}),
            ("Text %", "@bio:(cat*|pets)", {"john", "nancy", "tyler"}),
            ("Text % fuzzy", "@bio:(%dags%)", {"mary", "tyler"}),
            ("and", "(@credit:{high} @age:[18 +inf])", {"john", "nancy", "tyler"}),
            ("or", "(@credit:{low} | @age:[94 94])", {"mary", "nancy"}),
            ("and of or", "((@credit:{low} | @age:[94 94]) @job:{doctor})", {"mary", "nancy"}), ("*", "*", set(USERS))):
        seen = find(expression)
        check("FilterQuery %s: %s" % (name, expression), seen == right, seen)
        check("CountQuery agrees", index.count(expression) == len(right))
    _, rows = index.search(*query("*", fields=["user", "age"], sort=("age", True), limit=(0, 3)))
    check("sort_by", [f["user"] for _, f in rows] == ["tim", "mary", "john"], rows)
    _, rows = index.search(*query("@user:{john}", fields=["id"]))
    check("RETURN of a field that is nowhere", rows == [("user:john", {})], rows)
    total, rows = index.search(*query("*", sort=("age", False), limit=(3, 2)))
    check("paging", total == 5 and [f["user"] for _, f in rows] == ["mary", "tim"], rows)
    check("all fields come without RETURN", set(rows[0][1]) == {*USERS["mary"], "vector"}, rows)


def missing():
    client = Client(library=LIBRARY)
    index = SearchIndex(client, "m", "m", [
        "brand", "TAG", "SEPARATOR", ",", "INDEXMISSING", "INDEXEMPTY", "title", "TEXT", "WEIGHT", 1, "INDEXMISSING",
        "price",
        "NUMERIC", "INDEXMISSING", "v", "VECTOR", "FLAT", 8, "TYPE", "FLOAT32", "DIM", 2, "DISTANCE_METRIC", "COSINE",
        "INDEXMISSING", "True"])
    check("INDEXMISSING within the words of a vector", index.create() == "OK")
    index.load({"1": {"brand": "nike", "price": 1}, "2": {"title": "x", "price": 2}, "3": {"brand": ""}})
    def find(expression):
        return {key for key, _ in index.search(*query(expression, fields=["id"]))[1]}
    check("is_missing()", find("ismissing(@brand)") == {"m:2"} and find("ismissing(@title)") == {"m:1", "m:3"}
          and find("ismissing(@price)") == {"m:3"}, find("ismissing(@brand)"))
    check("an empty tag", find('@brand:{""}') == {"m:3"}, find('@brand:{""}'))
    check("the schema is read", [f["name"] for f in index.schema()["fields"]] == ["brand", "title", "price", "v"])


def text_query():
    client = Client(library=LIBRARY)
    index = users(client)
    total, rows = index.search(*query("@bio:(cats | dogs) AND @credit:{high}", scorer="BM25STD", scores=True,
                                      fields=["user", "bio"]), scores=True)
    check("TextQuery: the word AND is dropped, scores are there", {f["user"] for _, f, _ in rows} == {"john", "tyler"}
          and all(
        score > 0 for _, _, score in rows), rows)
    check("the better match first", rows[0][2] >= rows[1][2] and rows[0][1]["user"] == "tyler", rows)
    _, rows = index.search(*query("(@bio:(cats=>{$weight: 5.0}) | @user:{mary})", scorer="BM25STD", scores=True),
                           scores=True)
    check("weights", {key for key, _, _ in rows} == {"user:john", "user:tyler", "user:mary"}, rows)
    reply = client.call("FT.AGGREGATE", "users", "(~@bio:(cats | dogs) AND @credit:{high})=>[KNN 2 @vector $vector AS "
                        "vector_distance]", "SCORER", "BM25STD", "ADDSCORES", "LOAD", 2, "@user", "__key", "DIALECT",
                        2, "APPLY",
                        "(2 - @vector_distance)/2", "AS", "vector_similarity", "APPLY", "@__score", "AS", "text_score",
                        "APPLY", "0.3*@text_score + 0.7*@vector_similarity", "AS", "hybrid_score", "SORTBY", 2,
                        "@hybrid_score", "DESC", "MAX", 2, "PARAMS", 2, "vector", blob([0.1, 0.1, 0.5]))
    rows = [dict(zip(map(text, r[::2]), map(text, r[1::2]))) for r in reply[1:]] if isinstance(reply, list) else reply
    check("AggregateHybridQuery", isinstance(rows, list) and len(rows) == 2 and {r["user"] for r in rows} == {
        "john", "tyler"} and float(rows[0]["hybrid_score"]) >= float(rows[1]["hybrid_score"]) and all(
        approximately(r["hybrid_score"], 0.3 * float(r["text_score"]) + 0.7 * float(r["vector_similarity"]))
        for r in rows), rows)


def multi_vector_query():
    client = Client(library=LIBRARY)
    index = SearchIndex(client, "mv", "mv", [*tag_field("kind"), *flat_vector("a", 2), *flat_vector("b", 2)])
    index.create()
    index.load({"1": {"kind": "x", "a": blob([1, 0]), "b": blob([1, 0])},
                "2": {"kind": "x", "a": blob([1, 0]), "b": blob([0, 1])},
                "3": {"kind": "y", "a": blob([0, 1]), "b": blob([0, 1])}})
    reply = client.call(
        "FT.AGGREGATE", "mv", "@a:[VECTOR_RANGE 2.0 $vector_0]=>{$YIELD_DISTANCE_AS: distance_0} AND "
        "@b:[VECTOR_RANGE 2.0 $vector_1]=>{$YIELD_DISTANCE_AS: distance_1} AND @kind:{x}", "LOAD", 1, "__key",
        "DIALECT", 2,
        "APPLY", "(2 - @distance_0)/2", "AS", "score_0", "APPLY", "(2 - @distance_1)/2", "AS", "score_1", "APPLY",
        "@score_0 * 0.5 + @score_1 * 0.5", "AS", "combined", "SORTBY", 2, "@combined", "DESC", "MAX", 10, "PARAMS", 4,
        "vector_0", blob([1, 0]), "vector_1", blob([1, 0]))
    rows = [dict(zip(map(text, r[::2]), map(text, r[1::2]))) for r in reply[1:]] if isinstance(reply, list) else reply
    check("MultiVectorQuery", isinstance(rows, list) and [(r["__key"], float(r["combined"])) for r in rows] == [
        ("mv:1", 1.0), ("mv:2", 0.75)], rows)


def bulk():
    client = Client(library=LIBRARY)
    index = SearchIndex(client, "bulk", "bulk", ["n", "NUMERIC", *tag_field("t")])
    index.create()
    index.load({str(i): {"n": i, "t": "even" if i % 2 == 0 else "odd"} for i in range(1200)})
    keys, reply = [], client.call("FT.AGGREGATE", "bulk", "@t:{even}", "SCORER", "TFIDF", "WITHCURSOR", "COUNT", 500,
                                  "MAXIDLE", 300000,
                                  "LOAD", 1, "__key")
    while True:
        rows, cursor = reply
        keys += [text(row[1]) for row in rows[1:]]
        if not cursor:
            break
        reply = client.call("FT.CURSOR", "READ", "bulk", cursor)
    check("all keys, page by page with a cursor", sorted(keys) == sorted("bulk:%d" % i for i in range(0, 1200, 2)),
          len(keys))
    reply = client.call("FT.AGGREGATE", "bulk", "*", "WITHCURSOR", "COUNT", 10, "LOAD", 1, "__key")
    if reply[1]:
        check("FT.CURSOR DEL", client.call("FT.CURSOR", "DEL", "bulk", reply[1]) == "OK")
    removed = 0
    while True:
        _, rows = index.search(*query("@t:{odd}", no_content=True, limit=(0, 500)), content=False)
        if not rows:
            break
        removed += client.call("UNLINK", *(key for key, _ in rows))
    check("drop_by_filter", removed == 600 and index.count("*") == 600, removed)


def semantic_cache():
    client = Client(library=LIBRARY)
    cache = SemanticCache(client, ttl=1000)
    check("SemanticCache: the index", cache.created == "OK")
    check("a miss", cache.check("what is the capital of France?") == [])
    key = cache.store("what is the capital of France?", "Paris", '{"source": "atlas"}')
    hit = cache.check("what is the capital of France?")
    check("the same question", len(hit) == 1 and hit[0]["response"] == "Paris"
          and abs(float(hit[0]["vector_distance"])) < 1e-6
          and hit[0]["metadata"] == '{"source": "atlas"}', hit)
    hit = cache.check("what is really the capital of France", threshold=0.3)
    check("a similar one", len(hit) == 1 and 0 < float(hit[0]["vector_distance"]) <= 0.3, hit)
    check("another one", cache.check("how do I bake bread", threshold=0.3) == [])
    check("a threshold of 0", len(cache.check("what is the capital of France?", threshold=0)) == 1)
    client.call("EXPIRE", key, 5)
    cache.check("what is the capital of France?")
    check("a hit's life begins again", client.call("TTL", key) > 900)
    client.call("HSET", key, "response", "Paris!", "updated_at", time.time())
    check("update", cache.check("what is the capital of France?")[0]["response"] == "Paris!")
    check("the same schema again", SemanticCache(client, ttl=1000) is not None)
    try:
        SemanticCache(client, filters=["user"])
        check("another schema is noticed", False)
    except ValueError as e:
        check("another schema is noticed", "differs" in str(e), str(e))
    client.call("DEL", key)
    check("drop", cache.check("what is the capital of France?") == [])
    cache.store("gone soon", "x")
    client.call("PEXPIRE", cache.index.key(hashlib.sha256(("gone soon" + "{}").encode()).hexdigest()), 1)
    wait(lambda: cache.index.count("*") == 0, "what has expired is not counted")
    told = SemanticCache(client, "told", filters=["user", "lang"])
    told.store("hello", "hi anna", user="anna", lang="en")
    told.store("hello", "hi bert", user="bert", lang="en")
    check("filters", [h["response"] for h in told.check("hello", "@user:{bert}", k=5)] == ["hi bert"]
          and len(told.check("hello", k=5)) == 2 and told.check("hello", "(@user:{anna} @lang:{de})") == [])


def message_history():
    client, name = Client(library=LIBRARY), "chat"
    index = SearchIndex(client, name, name, [
        *tag_field("role"), *text_field("content"), *tag_field("tool_call_id"), "timestamp", "NUMERIC",
        *tag_field("session_tag"),
        *text_field("metadata"), *flat_vector("vector_field", 32)])
    check("SemanticMessageHistory: the index", index.exists() is False and index.create() == "OK")
    session = "01JCM-session:1"
    said = [("user", "where is my parcel"), ("llm", "it is on its way"), ("user", "and how is the weather"),
            ("llm", "sunny")]
    for i, (role, content) in enumerate(said):
        index.load({"%s:%d" % (session, i): {
            "entry_id": "%s:%d" % (session, i), "role": role, "content": content, "session_tag": session,
            "timestamp": 1700000000.25 + i,
            "vector_field": blob(embed(content))}})
    index.load({"other:1": {"entry_id": "other:1", "role": "user", "content": "where is my parcel",
                            "session_tag": "other", "timestamp": 1,
                            "vector_field": blob(embed("where is my parcel"))}})
    mine = "@session_tag:{%s}" % escape(session)
    fields = ["entry_id", "session_tag", "role", "content", "timestamp", "tool_call_id", "metadata"]
    _, rows = index.search(*query(mine, fields=fields, sort=("timestamp", False), limit=(0, 2)))
    check("get_recent", [f["content"] for _, f in rows[::-1]] == ["and how is the weather", "sunny"], rows)
    check("fields that a message lacks are left out",
          set(rows[0][1]) == {"entry_id", "session_tag", "role", "content", "timestamp"}, rows)
    _, rows = index.search(*query("(%s (@role:{user} | @role:{system}))" % mine, fields=fields,
                                  sort=("timestamp", True)))
    check("of some roles", [f["content"] for _, f in rows] == [c for r, c in said if r == "user"], rows)
    asked = embed("where is the parcel")
    near = sorted((cosine(asked, embed(c)), c) for _, c in said if cosine(asked, embed(c)) <= 0.4)
    rows = index.range_query("vector_field", asked, 0.4, 5, mine, fields)
    check("get_relevant", [f["content"] for _, f in rows] == [c for _, c in near]
          and rows[0][1]["session_tag"] == session, rows)
    check("count", index.count(mine) == 4 and index.count("@session_tag:{other}") == 1)
    check("the schema comes back", [f["type"] for f in index.schema()["fields"]] == [
        "tag", "text", "tag", "numeric", "tag", "text", "vector"], index.schema())
    check("drop of the last", client.call("DEL", index.key(session + ":3")) == 1 and index.count(mine) == 3)
    check("delete", client.call("FT.DROPINDEX", name, "DD") == "OK" and client.call("DBSIZE") == 0)


def semantic_router():
    client, name = Client(library=LIBRARY), "router"
    routes = {"greeting": (0.5, ["hello there", "good morning to you"]),
              "farewell": (0.3, ["good bye now", "see you later"])}
    index = SearchIndex(client, name, name, [*tag_field("reference_id"), *tag_field("route_name"),
                                             *text_field("reference"),
                                             *flat_vector("vector", 32)])
    check("SemanticRouter: the index", index.create() == "OK")
    config = '{"name": "router", "routes": ["greeting", "farewell"]}'
    check("its settings as JSON", client.call("JSON.SET", name + ":route_config", ".", config) == "OK"
          and client.call("JSON.GET", name + ":route_config", ".") == config.replace(": ", ":").replace(", ",
              ",").encode(),
          client.call("JSON.GET", name + ":route_config", "."))
    check("they are no document of the index, which is over hashes", index.count("*") == 0)
    for route, (_, references) in routes.items():
        for reference in references:
            reference_id = hashlib.sha256(reference.encode()).hexdigest()
            index.load({"%s:%s" % (route, reference_id): {"reference_id": reference_id, "route_name": route,
                                                          "reference": reference,
                                                          "vector": blob(embed(reference))}})

    def classify(sentence, reducer="AVG", k=1):
        each = " || ".join("(@route_name == '%s' && @distance < %s)" % (r, t) for r, (t, _) in routes.items())
        reply = client.call(
            "FT.AGGREGATE", name, "@vector:[VECTOR_RANGE $distance_threshold $vector]=>{$YIELD_DISTANCE_AS: vector_distance}",
            "SCORER", "TFIDF", "DIALECT", 2, "GROUPBY", 1, "@route_name", "REDUCE", reducer, 1, "vector_distance",
            "AS", "distance",
            "SORTBY", 1, "@distance", "MAX", k, "FILTER", each, "PARAMS", 4, "vector", blob(embed(sentence)),
            "distance_threshold",
            max(t for t, _ in routes.values()))
        if isinstance(reply, Error):
            raise ValueError(reply)
        return [dict(zip(map(text, r[::2]), map(text, r[1::2]))) for r in reply[1:]]
    seen = classify("hello there", "MIN")
    check("the route, by the nearest of its references", len(seen) == 1 and seen[0]["route_name"] == "greeting"
          and float(
        seen[0]["distance"]) < 1e-6, seen)
    seen = classify("see you later")
    check("by their mean", [s["route_name"] for s in seen] == ["farewell"], seen)
    check("none", classify("stock prices") == [])
    distances = {r: [d for d in (cosine(embed("good morning"), embed(x)) for x in refs) if d <= 0.5] for r,
                 (_, refs) in routes.items()}
    right = {r: sum(d) for r, d in distances.items() if d and sum(d) < routes[r][0]}
    seen = classify("good morning", "SUM", 10)
    check("several, by their sum", {s["route_name"] for s in seen} == set(right) and all(
        approximately(s["distance"], right[s["route_name"]]) for s in seen), (seen, right))
    wanted = hashlib.sha256(b"hello there").hexdigest()
    replies = client.pipeline(("FT.SEARCH", name, *query("@reference_id:{%s}" % wanted, fields=["reference"])),
                              ("FT.SEARCH", name, *query("@reference_id:{%s}" % ("0" * 64), fields=["reference"])))
    check("references by their ids", [document_rows(r)[0] for r in replies] == [1, 0], replies)
    check("an index made of a schema read back", index.schema()["fields"][1]["attrs"] == {"separator": ","})


def stopwords():
    client = Client(library=LIBRARY)
    index = SearchIndex(client, "s", "s", text_field("t"), options=("STOPWORDS", 0))
    index.create()
    index.load({"1": {"t": "the sea"}})
    check("STOPWORDS 0: every word counts, and FT.INFO says so", index.count("@t:the") == 1
          and index.schema()["index"].get(
        "stopwords") == [], index.schema())
    index = SearchIndex(client, "s2", "s", text_field("t"), options=("STOPWORDS", 2, "sea", "lake"))
    index.create()
    check("words of one's own", sorted(index.schema()["index"].get("stopwords", [])) == ["lake", "sea"], index.schema())


if __name__ == "__main__":
    script(connecting, search_index, vector_query, vector_range_query, filter_query, missing, text_query,
           multi_vector_query, bulk,
           semantic_cache, message_history, semantic_router, stopwords)
