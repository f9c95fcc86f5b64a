"""redis_py_search.py - FT.* and JSON.* through redis-py as Debian ships it (RESP2): its own methods and parsers."""
import os
import sys
import time
from pathlib import Path

import redis
from redis.commands.json.path import Path as JsonPath
from redis.commands.search import aggregation, reducers
from redis.commands.search.field import GeoField, NumericField, TagField, TextField, VectorField
from redis.commands.search.indexDefinition import IndexDefinition, IndexType
from redis.commands.search.query import NumericFilter, Query

sys.path.insert(0, str(Path(__file__).resolve().parent))
from wire import approximately, blob, check, cosine, script

FILMS = {"heat": ("Heat and the running detective", "crime", 1995, [1.0, 0, 0]),
         "alien": ("Alien", "horror", 1979, [0, 1.0, 0]),
         "jaws": ("Jaws", "horror", 1975, [0, 0.6, 0.8]),
         "solaris": ("Solaris runs", "science fiction", 1972, [0.8, 0.6, 0])}


def connect():
    return redis.Redis(port=int(os.environ["QUIRE_PORT"]))


def fails(name, function, pattern):
    try:
        check(name, False, function())
    except redis.ResponseError as e:
        check(name, pattern in str(e).lower(), str(e))


def films(r):
    ft = r.ft("films")
    made = ft.create_index(
        [TextField("title", weight=2.0, sortable=True), TagField("genre"), NumericField("year", sortable=True),
         GeoField("place"),
         VectorField("vector", "HNSW", {"TYPE": "FLOAT32", "DIM": 3, "DISTANCE_METRIC": "COSINE"})],
        definition=IndexDefinition(prefix=["film:"], index_type=IndexType.HASH))
    with r.pipeline(transaction=False) as p:
        for key, (title, genre, year, vector) in FILMS.items():
            p.hset("film:" + key, mapping={"title": title, "genre": genre, "year": year, "place": "13.4,52.5",
                                           "vector": blob(vector)})
        p.execute()
    return ft, made


def indexes():
    r = connect()
    ft, made = films(r)
    check("create_index", made in (b"OK", "OK", True), made)
    info = ft.info()
    check("info", int(info["num_docs"]) == 4 and info["index_name"] in ("films", b"films")
          and int(info["hash_indexing_failures"]) == 0, info)
    check("info: attributes", len(info["attributes"]) == 5, info["attributes"])
    fails("create_index again", lambda: ft.create_index([TextField("a")]), "index already exists")
    fails("info of no index", lambda: r.ft("none").info(), "unknown index name")
    check("alter_schema_add", ft.alter_schema_add(TagField("maker")) in (b"OK", "OK", True))
    r.hset("film:heat", "maker", "mann")
    check("the new field", ft.search(Query("@maker:{mann}").dialect(2)).total == 1)
    check("aliasadd, aliasupdate, aliasdel", ft.aliasadd("movies") and r.ft("movies").search("*").total == 4
          and ft.aliasupdate("movies")
          and ft.aliasdel("movies"))
    fails("an alias that is gone", lambda: r.ft("movies").search("*"), "unknown index name")
    check("tagvals", sorted(ft.tagvals("genre")) == [b"crime", b"horror", b"science fiction"], ft.tagvals("genre"))
    check("explain", len(ft.explain(Query("@genre:{horror}").dialect(2))) > 0)
    check("config_get", isinstance(ft.config_get("TIMEOUT"), dict))
    # this version says FT.DROP index KEEPDOCS, and FT.DROP index "" for all
    check("dropindex", ft.dropindex() in (b"OK", "OK", True) and r.dbsize() == 4)
    films(r)
    check("dropindex(delete_documents=True)", ft.dropindex(delete_documents=True) in (b"OK", "OK", True)
          and r.dbsize() == 0)


def searches():
    r = connect()
    ft, _ = films(r)
    result = ft.search(Query("*").paging(0, 2).sort_by("year"))
    check("total, paging, sort_by", result.total == 4 and [d.id for d in result.docs] == ["film:solaris", "film:jaws"],
          result)
    check("documents have fields", result.docs[0].title == "Solaris runs" and result.docs[0].year == "1972",
          result.docs[0])
    check("return_fields", set(vars(ft.search(Query("@genre:{crime}").return_fields("title").dialect(2)).docs[0])) == {"id", "payload", "title"})
    check("return_field as", ft.search(Query("@genre:{crime}").return_field("title",
        as_field="name").dialect(2)).docs[0].name.startswith("Heat"))
    check("no_content", [d.id for d in ft.search(Query("@genre:{horror}").no_content().sort_by("year",
        asc=False).dialect(2)).docs] == [
        "film:alien", "film:jaws"])
    scored = ft.search(Query("run").with_scores().dialect(2))
    check("with_scores, stems", scored.total == 2 and all(d.score > 0 for d in scored.docs), scored)
    check("verbatim", ft.search(Query("run").verbatim().dialect(2)).total == 0)
    check("limit_fields", ft.search(Query("horror").limit_fields("title").dialect(2)).total == 0)
    check("limit_ids", ft.search(Query("*").limit_ids("film:heat", "film:none").dialect(2)).total == 1)
    check("add_filter", ft.search(Query("*").add_filter(NumericFilter("year", 1975,
        NumericFilter.INF)).dialect(2)).total == 3)
    check("add_filter, open", ft.search(Query("*").add_filter(NumericFilter("year", 1975, 1995, minExclusive=True,
        maxExclusive=True))).total == 1)
    check("in_order, slop", ft.search(Query("heat detective").slop(5).in_order().dialect(2)).total == 1
          and ft.search(Query("detective heat").slop(5).in_order().dialect(2)).total == 0)
    asked = [0.1, 0.9, 0.1]
    result = ft.search(Query("(@genre:{horror})=>[KNN 2 @vector $v AS score]").sort_by("score").return_fields("score").dialect(2),
                       query_params={"v": blob(asked)})
    check("KNN", [d.id for d in result.docs] == ["film:alien", "film:jaws"] and all(
        approximately(d.score, cosine(asked, FILMS[d.id[5:]][3])) for d in result.docs), result)
    result = ft.search(Query("@vector:[VECTOR_RANGE $r $v]=>{$YIELD_DISTANCE_AS: d}").sort_by("d").return_fields("d").dialect(2),
                       query_params={"r": 0.3, "v": blob([0, 1.0, 0])})
    check("VECTOR_RANGE", [d.id for d in result.docs] == ["film:alien"], result)
    fails("a query that does not parse", lambda: ft.search(Query("@genre:{").dialect(2)), "")
    fails("a field that is not there", lambda: ft.search(Query("@nothing:[1 2]").dialect(2)), "")


def aggregations():
    r = connect()
    ft, _ = films(r)
    request = aggregation.AggregateRequest("*").group_by("@genre", reducers.count().alias("n"),
                                                         reducers.max("@year").alias("last"),
                                                         reducers.tolist("@title").alias("titles")).sort_by(
        aggregation.Desc("@n"), aggregation.Asc("@genre"))
    rows = [dict(zip(row[::2], row[1::2])) for row in ft.aggregate(request).rows]
    check("group_by, sort_by", [row[b"genre"] for row in rows] == [b"horror", b"crime", b"science fiction"]
          and rows[0][b"n"] == b"2"
          and rows[0][b"last"] == b"1979" and sorted(rows[0][b"titles"]) == [b"alien", b"jaws"], rows)
    request = aggregation.AggregateRequest("@year:[1970 1980]").load("@title",
        "@year").apply(age="2000 - @year").filter("@age > 21").sort_by(
        aggregation.Asc("@age"), max=2).limit(0, 1)
    rows = ft.aggregate(request).rows
    check("load, apply, filter, limit", len(rows) == 1 and dict(zip(rows[0][::2], rows[0][1::2]))[b"age"] == b"25",
          rows)
    request = aggregation.AggregateRequest("*").load("@year").cursor(count=3)
    result, seen = ft.aggregate(request), []
    while True:
        seen += result.rows
        if not result.cursor or result.cursor.cid == 0:
            break
        result = ft.aggregate(result.cursor)
    check("cursor", len(seen) == 4, seen)


def documents():
    r = connect()
    ft = r.ft("songs")
    ft.create_index([TextField("$.name", as_name="name"), NumericField("$.length", as_name="length"),
                     TagField("$.tags[*]", as_name="tags"),
                     VectorField("$.emb", "FLAT", {"TYPE": "FLOAT32", "DIM": 2, "DISTANCE_METRIC": "L2"},
                                 as_name="emb")],
                    definition=IndexDefinition(prefix=["song:"], index_type=IndexType.JSON))
    j = r.json()
    check("json().set", j.set("song:1", JsonPath.root_path(),
                              {"name": "blue train", "length": 643, "tags": ["jazz", "sax"], "emb": [1, 1]}))
    j.set("song:2", "$", {"name": "so what", "length": 562, "tags": ["jazz"], "emb": [4, 5]})
    result = ft.search(Query("@tags:{jazz} @length:[600 700]").dialect(2))
    check("JSON documents are found", result.total == 1 and '"blue train"' in result.docs[0].json, result)
    result = ft.search(Query("*=>[KNN 2 @emb $v AS d]").sort_by("d").return_fields("name", "d").dialect(2),
                       query_params={"v": blob([1, 2])})
    check("KNN over JSON", [(d.name, d.d) for d in result.docs] == [("blue train", "1"), ("so what", "18")], result)
    check("json().get", j.get("song:1", "$.tags") == [["jazz", "sax"]] and j.get("song:1")["length"] == 643)
    check("numincrby, arrappend, arrlen", j.numincrby("song:1", "$.length", 7) == [650]
          and j.arrappend("song:1", "$.tags", "x") == [3]
          and j.arrlen("song:1", "$.tags") == [3])
    check("strappend, strlen, type, objkeys", j.strappend("song:1", "!", "$.name") == [11]
          and j.strlen("song:1", "$.name") == [11]
          and j.type("song:1", "$.name") in (["string"], [b"string"]) and len(j.objkeys("song:1", "$")[0]) == 4)
    check("the index follows", ft.search(Query("@length:[650 650]").dialect(2)).total == 1)
    check("mget", j.mget(["song:1", "song:2", "song:3"], "$.length") == [[650], [562], None])
    check("toggle, clear", j.set("song:2", "$.live", True) and j.toggle("song:2", "$.live") in ([0], [False])
          and j.clear("song:2", "$.tags") == 1)
    check("delete", j.delete("song:2") == 1 and ft.search("*").total == 1 and j.get("song:2") is None)


def follow():
    r = connect()
    r.hset("film:old", mapping={"genre": "old"})
    ft, _ = films(r)
    end = time.monotonic() + 20
    while ft.search(Query("@genre:{old}").dialect(2)).total != 1 and time.monotonic() < end:
        time.sleep(0.01)
    check("a hash that was there before the index", ft.search(Query("@genre:{old}").dialect(2)).total == 1)
    r.hset("film:bad", mapping={"genre": "bad", "year": "no number"})
    check("a document that cannot be indexed is stored, counted, and not found", r.exists("film:bad") == 1
          and ft.search(Query("@genre:{bad}").dialect(2)).total == 0 and int(ft.info()["hash_indexing_failures"]) == 1)
    r.hset("film:bad", "year", 1)
    check("until it is mended", ft.search(Query("@genre:{bad}").dialect(2)).total == 1)
    r.flushall()
    fails("FLUSHALL drops indexes", lambda: ft.info(), "unknown index name")


if __name__ == "__main__":
    script(indexes, searches, aggregations, documents, follow)
