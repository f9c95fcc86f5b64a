"""as_redis_om.py - the command lines of Redis OM for Node.js (redis-om 0.4 on node-redis 4), for Python (1.0, redis-py)
and for .NET (StackExchange.Redis), and their reading of the replies.

Those of .NET change documents by Lua scripts, which Quire has not: see docs/clients.md.
"""
import json

from wire import Client, Error, approximately, blob, check, cosine, document_rows, embed, fails, flat, script, text

ALBUMS = {"1": {"artist": "Mushroomhead", "title": "The Righteous & The Butterfly", "year": 2014,
    "outOfPublication": False,
                "genres": ["metal", "rock & roll"], "location": "-81.7,41.5", "since": 1388534400.5},
          "2": {"artist": "Eluveitie", "title": "Slania", "year": 2008, "outOfPublication": True,
                "genres": ["folk metal"], "location": "8.5,47.4", "since": 1199145600},
          "3": {"artist": "Björk", "title": "Debut", "year": 1993, "outOfPublication": False, "genres": ["pop"]}}
JSON_SCHEMA = ["$.artist", "AS", "artist", "TAG", "SEPARATOR", "|", "$.title", "AS", "title", "TEXT", "SORTABLE",
    "$.year",
               "AS", "year", "NUMERIC", "SORTABLE", "$.outOfPublication", "AS", "outOfPublication", "TAG",
               "$.genres[*]",
               "AS", "genres", "TAG", "SEPARATOR", "|", "$.location", "AS", "location", "GEO", "$.since", "AS", "since",
               "NUMERIC"]


# ---- Redis OM for Node.js --------------------------------------------------------------------------------------------


def node_create_index(client, *words):
    """Repository.createIndex: drops what may be there first, and goes on only after an error that it knows."""
    check("the hash of the schema", client.call("GET", "album:index:hash") is None)
    client.call("UNLINK", "album:index:hash")
    gone = client.call("FT.DROPINDEX", "album:index")
    check("FT.DROPINDEX of no index: the whole error is one that it knows", isinstance(gone, Error)
          and gone in ("Unknown Index name", "Unknown index name"), gone)
    check("FT.CREATE", client.call("FT.CREATE", "album:index", *words) == "OK"
          and client.call("SET", "album:index:hash", "x") == "OK")


def node_json():
    client = Client()
    node_create_index(client, "ON", "JSON", "PREFIX", 1, "album:", "SCHEMA", *JSON_SCHEMA)
    for key, album in ALBUMS.items():
        check("save", client.call("JSON.SET", "album:" + key, "$", json.dumps(album)) == "OK")
    whole = json.loads(client.call("JSON.GET", "album:1", "$"))[0]
    check("fetch", whole == ALBUMS["1"], whole)
    for query, right in (
            ("*", {"1", "2", "3"}), ("(@artist:{Mushroomhead})", {"1"}), ("(-@artist:{Mushroomhead})", {"2", "3"}),
            ("(@genres:{rock\\ \\&\\ roll})", {"1"}), ("(@genres:{folk\\ metal|pop})", {"2", "3"}),
            ("(@outOfPublication:{true})", {"2"}), ("(@year:[2008 2008])", {"2"}), ("(@year:[(2008 +inf])", {"1"}),
            ("(@year:[-inf (2008])", {"3"}), ("(-@year:[1990 1999])", {"1", "2"}),
            ("(@since:[1388534400.5 +inf])", {"1"}),
            ("(@title:'butterfly')", {"1"}), ('(@title:"the butterfly")', {"1"}),
            ("(@title:%slanja%)", {"2"}),
            ("(@location:[8.5 47 100 km])", {"2"}), ("(@artist:{Björk})", {"3"}),
            ("( ( (@year:[2000 +inf]) (-@outOfPublication:{true}) ) | (@artist:{Björk}) )", {"1", "3"})):
        total, rows = document_rows(client.call("FT.SEARCH", "album:index", query, "LIMIT", 0, 10, "RETURN", 1, "$"))
        check("return.all: %s" % query, total == len(right) and {k.split(":")[1] for k, _ in rows} == right
              and all(json.loads(f["$"]) == ALBUMS[k.split(":")[1]] for k, f in rows), rows)
    check("return.count", client.call("FT.SEARCH", "album:index", "*", "LIMIT", 0, 0) == [3])
    keys = client.call("FT.SEARCH", "album:index", "*", "SORTBY", "year", "DESC", "LIMIT", 0, 10, "RETURN", 0)
    check("return.allKeys, sorted", keys == [3, b"album:1", b"album:2", b"album:3"], keys)
    syntax = client.call("FT.SEARCH", "album:index", "(@artist:{", "LIMIT", 0, 10)
    check("a syntax error", isinstance(syntax, Error) and "Syntax error" in syntax, syntax)
    check("remove", client.call("UNLINK", "album:1", "album:2") == 2)
    check("expire", client.call("EXPIRE", "album:3", 100) == 1)
    check("dropIndex", client.call("FT.DROPINDEX", "album:index") == "OK")


def node_hash():
    client = Client()
    node_create_index(client, "ON", "HASH", "PREFIX", 1, "album:", "STOPWORDS", 0, "SCHEMA", "artist", "AS", "artist",
        "TAG",
                      "SEPARATOR", "|", "SORTABLE", "title", "AS", "title", "TEXT", "NOSTEM", "out", "AS",
                      "outOfPublication", "TAG", "genres", "AS", "genres", "TAG", "SEPARATOR", "|", "year", "AS",
                      "year",
                      "NUMERIC")
    for key, album in ALBUMS.items():
        fields = {"artist": album["artist"], "title": album["title"], "out": int(album["outOfPublication"]),
                  "genres": "|".join(album["genres"]), "year": album["year"]}
        done = client.transaction(("UNLINK", "album:" + key), ("HSET", "album:" + key, *flat(fields)))
        check("save: MULTI, UNLINK, HSET, EXEC", done == [0, 5], done)
    for query, right in (("(@outOfPublication:{1})", {"2"}), ("(@genres:{rock\\ \\&\\ roll})", {"1"}),
                         ('(@title:"the righteous")', {"1"})):
        _, rows = document_rows(client.call("FT.SEARCH", "album:index", query, "SORTBY", "artist", "LIMIT", 0, 10))
        check("return.all: %s" % query, {k.split(":")[1] for k, _ in rows} == right, rows)


# ---- Redis OM for Python ---------------------------------------------------------------------------------------------


def python_json():
    client, index, prefix = Client(), ":__main__.Member:index", ":__main__.Member:"
    commands = client.call("COMMAND", "INFO", "json.set", "ft.search")
    check("has_redis_json, has_redisearch", isinstance(commands, list) and None not in commands, commands)
    fails("Migrator: FT.INFO of no index", client.call("FT.INFO", index), ".")
    check("FT.CREATE", client.call(*(
        "FT.CREATE %s ON JSON PREFIX 1 %s SCHEMA $.pk AS pk TAG SEPARATOR | $.name AS name TAG SEPARATOR | $.name AS "
        "name_fts TEXT $.age AS age NUMERIC SORTABLE $.active AS active TAG $.address.city AS address_city TAG SEPARATOR "
        "| $.orders[*].price AS orders_price NUMERIC $.place AS place GEO $.v AS v VECTOR FLAT 6 TYPE FLOAT32 DIM 32 "
        "DISTANCE_METRIC COSINE" % (index, prefix)).split(" ")) == "OK")
    people = {"01": {"name": "Andrew Brookins", "age": 38, "active": True, "address": {"city": "Portland"},
        "place": "-122.7,45.5",
                     "orders": [{"price": 5.5}, {"price": 70}], "v": embed("tea and cake")},
              "02": {"name": "Kim Brookins", "age": 34, "active": False, "address": {"city": "San Antonio"},
              "place": "-98.5,29.4",
                     "orders": [{"price": 9}], "v": embed("rockets and moons")}}
    for key, person in people.items():
        client.call("JSON.SET", prefix + key, ".", json.dumps({"pk": key, **person}))

    def find(query, *words):
        return document_rows(client.call("FT.SEARCH", index, query, "LIMIT", 0, 1000, *words))

    for query, right in (
            ("*", ["01", "02"]), ("@pk:{01}", ["01"]), ("@name:{Andrew\\ Brookins}", ["01"]),
            ("-(@name:{Andrew\\ Brookins})", ["02"]),
            ("(@name:{Andrew\\ Brookins|Kim\\ Brookins})", ["01", "02"]), ("(@name:{And*})", ["01"]),
            ("(@name:{*kins})", ["01", "02"]),
            ("(@name:{*m\\ Br*})", ["02"]), ("@name_fts:\"brookins\"", ["01", "02"]), ("@name_fts:%andrev%", ["01"]),
            ("-(@name_fts:\"kim\")", ["01"]), ("@age:[38 38]", ["01"]), ("-(@age:[38 38])", ["02"]),
            ("@age:[(34 +inf]", ["01"]),
            ("@age:[-inf 34]", ["02"]), ("(@age:[34 34])|(@age:[38 38])", ["01", "02"]),
            ("-((@age:[34 34]) | (@age:[39 39]))", ["01"]),
            ("@active:{True}", ["01"]), ("@active:{False}", ["02"]),
            ("(@address_city:{San\\ Antonio}) (@age:[-inf (40])", ["02"]),
            ("((@address_city:{Portland}) | (@active:{False})) (@orders_price:[70 70])", ["01"]),
            ("@place:[-122.0 45.0 100 mi]", ["01"])):
        total, rows = find(query, "SORTBY", "age", "desc")
        check("find(%s)" % query, total == len(right) and sorted(k[len(prefix):] for k, _ in rows) == right
              and all(json.loads(f["$"])["pk"] == k[len(prefix):] for k, f in rows), rows)
    _, rows = find("*", "SORTBY", "age", "asc", "RETURN", 2, "name", "age")
    check("values, in order", [f for _, f in rows] == [{"name": p["name"], "age": str(p["age"])}
                                                       for p in (people["02"], people["01"])], rows)
    asked = embed("cake")
    _, rows = find("(@age:[0 100])=>[KNN $K @v $knn_ref_vector AS _v_score]", "SORTBY", "_v_score", "asc", "PARAMS",
        "4", "K", 1,
                   "knn_ref_vector", blob(asked), "DIALECT", "2")
    check("KNNExpression", len(rows) == 1 and json.loads(rows[0][1]["$"])["pk"] == "01" and approximately(
        rows[0][1]["_v_score"], cosine(asked, embed("tea and cake"))), rows)
    total = client.call("FT.SEARCH", index, "*", "LIMIT", 0, 0, "NOCONTENT")
    check("count", total == [2], total)
    check("delete", client.call("DEL", prefix + "01") == 1 and find("*")[0] == 1)


# ---- Redis OM for .NET -----------------------------------------------------------------------------------------------


def dotnet():
    client = Client()
    check("FT.CREATE", client.call(
        "FT.CREATE", "customer-idx", "ON", "Json", "PREFIX", 1, "Customer:", "SCHEMA", "$.Name", "AS", "Name", "TAG",
        "SEPARATOR",
        "|", "INDEXMISSING", "INDEXEMPTY", "$.Bio", "AS", "Bio", "TEXT", "$.Age", "AS", "Age", "NUMERIC", "SORTABLE",
        "$.Home",
        "AS", "Home", "GEO", "$.Nick[*]", "AS", "Nick", "TAG", "SEPARATOR", "|") == "OK")
    fails("FT.CREATE again", client.call("FT.CREATE", "customer-idx", "ON", "Json", "SCHEMA", "$.a", "TAG"),
        "Index already exists")
    for key, customer in (("1", {"Name": "Bob-Marley", "Bio": "the big dog", "Age": 36, "Nick": ["Tuff"],
        "Home": "-77,18"}),
                          ("2", {"Bio": "a cat", "Age": 50, "Nick": []})):
        check("Insert: JSON.SET key .", client.call("JSON.SET", "Customer:" + key, ".", json.dumps(customer)) == "OK")
    for query, right in (
            ("(@Name:{Bob\\-Marley})", ["1"]), ("(ismissing(@Name))", ["2"]), ("-(ismissing(@Name))", ["1"]),
            ("(@Age:[(36 inf])", ["2"]),
            ("(@Age:[-inf 36])", ["1"]), ('(@Bio:"dog")', ["1"]), ("((@Age:[10 60]) (@Bio:cat))", ["2"]),
            ("(@Nick:{Tuff})", ["1"]),
            ("((@Age:[36 36]) | (@Age:[50 50]))", ["1", "2"]), ("(@Name:{*Mar*})", ["1"]), ("-(@Bio:%dug%)", ["2"])):
        total, rows = document_rows(client.call("FT.SEARCH", "customer-idx", query, "LIMIT", 0, 100, "SORTBY", "Age",
            "ASC"))
        check("Where: %s" % query, total == len(right) and [k[-1] for k, _ in rows] == right
              and all(json.loads(f["$"])["Age"] for _, f in rows), rows)
    _, rows = document_rows(client.call("FT.SEARCH", "customer-idx", "*", "LIMIT", 0, 100, "GEOFILTER", "Home", -77,
        18, 10, "km"))
    check("GeoFilter", [k for k, _ in rows] == ["Customer:1"], rows)
    reply = client.call("FT.AGGREGATE", "customer-idx", "*", "LOAD", 2, "Name", "Age", "APPLY", "@Age + 1", "AS",
        "Next", "GROUPBY", 1,
                        "@Name", "REDUCE", "SUM", 1, "@Next", "AS", "Next_SUM", "REDUCE", "COUNT", 0, "AS", "COUNT",
                        "SORTBY", 2,
                        "@Next_SUM", "DESC", "LIMIT", 0, 10)
    check("RedisAggregationSet", reply[1:] == [[b"Name", None, b"Next_SUM", b"51", b"COUNT", b"1"],
                                               [b"Name", b"Bob-Marley", b"Next_SUM", b"37", b"COUNT", b"1"]], reply)
    page, cursor = client.call("FT.AGGREGATE", "customer-idx", "*", "WITHCURSOR", "COUNT", "1")
    check("with a cursor", len(page) == 2 and cursor != 0 and client.call("FT.CURSOR", "DEL", "customer-idx",
        cursor) == "OK", page)
    fails("Update: a script, refused by name", client.call("EVAL", "return redis.call('UNLINK',KEYS[1])", 1, "x"),
        "scripts are not here")


def dotnet_semantic_cache():
    client = Client()
    check("FT.CREATE", client.call("FT.CREATE", "cache", "Prefix", 1, "cache", "SCHEMA", "embedding", "VECTOR",
        "FLAT", 6, "DIM", 32,
                                   "TYPE", "FLOAT32", "DISTANCE_METRIC", "COSINE") == "OK")
    client.hset("cache:1", embedding=blob(embed("who wrote faust")), response="Goethe", prompt="who wrote faust")
    for asked, right in (("who wrote faust", 1), ("where is my parcel", 0)):
        total, rows = document_rows(client.call(
            "FT.SEARCH", "cache", "@embedding:[VECTOR_RANGE $0 $1]=>{$YIELD_DISTANCE_AS: semantic_score}", "PARAMS",
            4, "0", "0.15",
            "1", blob(embed(asked)), "DIALECT", 2, "LIMIT", 0, 10, "SORTBY", "semantic_score", "ASC"))
        check("GetSimilar: %s" % asked, total == right and all(
            f["response"] == "Goethe" and float(f["semantic_score"]) < 0.15 for _, f in rows), rows)
    check("text of a reply", text(client.call("HGET", "cache:1", "response")) == "Goethe")


if __name__ == "__main__":
    script(node_json, node_hash, python_json, dotnet, dotnet_semantic_cache)
