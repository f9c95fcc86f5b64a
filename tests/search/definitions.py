"""definitions.py - FT.CREATE, FT.ALTER, FT.ALIAS* and FT.DROPINDEX: every option is taken as it was given and read
back by FT.INFO, or refused by name; over a restart nothing is lost.
"""
import json
import time

import common  # noqa: F401
from wire import Client, Error, blob, check, fails, hset, script, text


def plain(value):
    return [plain(v) for v in value] if isinstance(value, list) else text(value)


def attributes(client, index):
    info = client.call("FT.INFO", index)
    return plain(info[info.index(b"attributes") + 1])


def made(client, *words):
    """Creates an index "i" of these words, returns its attributes without identifier, attribute, and drops it."""
    reply = client.call("FT.CREATE", "i", *words)
    if isinstance(reply, Error):
        return reply
    shown = [a[4:] for a in attributes(client, "i")]
    client.call("FT.DROPINDEX", "i")
    return shown


def fields():
    client = Client()
    for words, right in (
            (("t", "TEXT"), ["type", "TEXT", "WEIGHT", "1"]),
            (("t", "TEXT", "WEIGHT", "2.5"), ["type", "TEXT", "WEIGHT", "2.5"]),
            (("t", "text", "nostem", "sortable"), ["type", "TEXT", "WEIGHT", "1", "SORTABLE", "NOSTEM"]),
            (("t", "TEXT", "SORTABLE", "UNF"), ["type", "TEXT", "WEIGHT", "1", "SORTABLE", "UNF"]),
            (("t", "TEXT", "NOINDEX", "SORTABLE"), ["type", "TEXT", "WEIGHT", "1", "SORTABLE", "NOINDEX"]),
            (("t", "TEXT", "INDEXEMPTY", "INDEXMISSING"),
             ["type", "TEXT", "WEIGHT", "1", "INDEXEMPTY", "INDEXMISSING"]),
            (("t", "TAG"), ["type", "TAG", "SEPARATOR", ","]),
            (("t", "TAG", "SEPARATOR", "|", "CASESENSITIVE"), ["type", "TAG", "SEPARATOR", "|", "CASESENSITIVE"]),
            (("t", "TAG", "SORTABLE"), ["type", "TAG", "SEPARATOR", ",", "SORTABLE"]),
            (("t", "TAG", "INDEXEMPTY", "INDEXMISSING"),
             ["type", "TAG", "SEPARATOR", ",", "INDEXEMPTY", "INDEXMISSING"]),
            (("t", "NUMERIC"), ["type", "NUMERIC"]),
            (("t", "NUMERIC", "SORTABLE"), ["type", "NUMERIC", "SORTABLE", "UNF"]),
            (("t", "NUMERIC", "SORTABLE", "NOINDEX"), ["type", "NUMERIC", "SORTABLE", "UNF", "NOINDEX"]),
            (("t", "NUMERIC", "INDEXMISSING"), ["type", "NUMERIC", "INDEXMISSING"]),
            (("t", "GEO"), ["type", "GEO"]),
            (("t", "GEO", "SORTABLE"), ["type", "GEO", "SORTABLE"])):
        seen = made(client, "SCHEMA", *words)
        flags = ("SORTABLE", "UNF", "NOSTEM", "NOINDEX", "INDEXEMPTY", "INDEXMISSING", "CASESENSITIVE")
        shown = seen[0] if isinstance(seen, list) else seen
        check("FT.INFO of %s" % " ".join(words), isinstance(shown, list)
              and [w for w in shown if w not in flags] == [w for w in right if w not in flags]
              and {w for w in shown if w in flags} >= {w for w in right if w in flags} and shown.count("SORTABLE") < 2,
              (seen, right))
    for words in (("t", "TEXT", "WITHSUFFIXTRIE"), ("t", "TAG", "WITHSUFFIXTRIE")):
        seen = made(client, "SCHEMA", *words)
        check("%s is taken, and not shown: redisvl would stumble over it" % " ".join(words), isinstance(seen, list)
              and "WITHSUFFIXTRIE" not in seen[0], seen)
    seen = made(client, "SCHEMA", "t", "TEXT", "PHONETIC", "dm:en")
    check("PHONETIC is taken, or refused by name", isinstance(seen, list) or "PHONETIC" in seen, seen)


def what_documents_say_of_themselves():
    client = Client()
    document = {"lang": "french", "sc": 0.1, "t": "les chevaux"}
    for kind, prefix in (("HASH", ""), ("JSON", "$.")):
        client.call("FLUSHALL")
        made_it = client.call("FT.CREATE", "i", "ON", kind, "LANGUAGE_FIELD", prefix + "lang", "SCORE_FIELD",
                              prefix + "sc", "SCHEMA", prefix + "t", "AS", "t", "TEXT")
        check("ON %s: LANGUAGE_FIELD and SCORE_FIELD are taken" % kind, made_it == "OK", made_it)

        def put(key, values, kind=kind):
            client.call(*(hset(key, values) if kind == "HASH" else ("JSON.SET", key, "$", json.dumps(values))))

        def found(language):
            return client.call("FT.SEARCH", "i", "cheval", "LANGUAGE", language, "NOCONTENT")

        put("own", document)
        check("ON %s: words are stemmed in the document's language" % kind, found("french") == [1, b"own"],
              found("french"))
        put("own", {**document, "lang": "english"})
        check("ON %s: and in another one after a change" % kind, found("french") == [0], found("french"))
        put("own", {**document, "lang": "klingon"})
        check("ON %s: an unknown language leaves the document out" % kind, client.call("FT.SEARCH", "i", "*") == [0])
        for score, right in ((0.1, 0.1), (1, 1), (0, 0), (7, 1), (-1, 1), ("none", 1)):
            put("own", {**document, "sc": score})
            seen = client.call("FT.SEARCH", "i", "les", "LANGUAGE", "french", "SCORER", "DOCSCORE", "WITHSCORES",
                               "NOCONTENT")
            check("ON %s: a score of %r" % (kind, score), seen[0] == 1 and abs(float(seen[2]) - right) < 1e-6, seen)
    put("own", {"t": "les chevaux", "lang": None, "sc": {"a": 1}})
    check("ON JSON: values of other types say nothing", client.call("FT.SEARCH", "i", "les", "NOCONTENT")
          == [1, b"own"])
    fails("ON JSON: a SCORE_FIELD that is no path", client.call("FT.CREATE", "j", "ON", "JSON", "SCORE_FIELD", "$.[",
                                                                "SCHEMA", "$.t", "TEXT"), "SCORE_FIELD")
    client.call("FLUSHALL")


def vectors():
    client = Client()
    for kind in ("FLOAT32", "FLOAT64", "FLOAT16", "BFLOAT16", "INT8", "UINT8"):
        for metric in ("L2", "IP", "COSINE"):
            seen = made(client, "SCHEMA", "v", "VECTOR", "FLAT", 6, "TYPE", kind, "DIM", 4, "DISTANCE_METRIC", metric)
            check("FLAT %s %s" % (kind, metric), isinstance(seen, list) and seen[0][:10] == [
                "type", "VECTOR", "algorithm", "FLAT", "data_type", kind, "dim", 4, "distance_metric", metric], seen)
    seen = made(client, "SCHEMA", "v", "VECTOR", "HNSW", 14, "TYPE", "FLOAT32", "DIM", 4, "DISTANCE_METRIC", "L2", "M",
                40, "EF_CONSTRUCTION", 250,
                "EF_RUNTIME", 20, "EPSILON", "0.8")
    check("HNSW with all its words", isinstance(seen, list)
          and seen[0][10:16] == ["M", 40, "ef_construction", 250, "ef_runtime", 20], seen)
    seen = made(client, "SCHEMA", "v", "vector", "hnsw", 6, "dim", 4, "type", "float32", "distance_metric", "cosine")
    check("words in small letters, in another order", isinstance(seen, list)
          and seen[0][2:10] == ["algorithm", "HNSW", "data_type", "FLOAT32", "dim", 4,
                                                                                                 "distance_metric",
                                                                                                 "COSINE"], seen)
    seen = made(client, "SCHEMA", "v", "VECTOR", "FLAT", 10, "TYPE", "FLOAT32", "DIM", 4, "DISTANCE_METRIC", "L2",
                "INITIAL_CAP", 100, "BLOCK_SIZE", 20)
    check("INITIAL_CAP, BLOCK_SIZE", isinstance(seen, list), seen)
    seen = made(client, "SCHEMA", "v", "VECTOR", "SVS-VAMANA", 12, "TYPE", "FLOAT32", "DIM", 4, "DISTANCE_METRIC",
                "L2", "GRAPH_MAX_DEGREE", 40,
                "CONSTRUCTION_WINDOW_SIZE", 250, "SEARCH_WINDOW_SIZE", 20)
    check("SVS-VAMANA is a hint, and reads back", isinstance(seen, list) and seen[0][3] == "SVS-VAMANA", seen)
    seen = made(client, "SCHEMA", "v", "VECTOR", "FLAT", 6, "TYPE", "FLOAT32", "DIM", 4, "DISTANCE_METRIC", "L2",
                "INDEXMISSING")
    check("a bare INDEXMISSING behind a vector (node-redis)", isinstance(seen, list), seen)
    for words, pattern in (
            (("FLAT", 4, "TYPE", "FLOAT32", "DIM", 4), "distance_metric"),
            (("FLAT", 4, "TYPE", "FLOAT32", "DISTANCE_METRIC", "L2"), "dim"),
            (("FLAT", 4, "DIM", 4, "DISTANCE_METRIC", "L2"), "type"),
            (("FLAT", 6, "TYPE", "FLOAT32", "DIM", 0, "DISTANCE_METRIC", "L2"), "dim"),
            (("FLAT", 6, "TYPE", "FLOAT32", "DIM", "x", "DISTANCE_METRIC", "L2"), "dim"),
            (("FLAT", 6, "TYPE", "FLOAT31", "DIM", 4, "DISTANCE_METRIC", "L2"),
                                                                                          "FLOAT31|type"),
            (("FLAT", 6, "TYPE", "FLOAT32", "DIM", 4, "DISTANCE_METRIC", "L3"), "L3|distance_metric"),
            (("TREE", 6, "TYPE", "FLOAT32", "DIM", 4, "DISTANCE_METRIC", "L2"), "TREE|algorithm"),
            (("FLAT", 5, "TYPE", "FLOAT32", "DIM", 4, "DISTANCE_METRIC"), "."),
            (("FLAT", 6, "TYPE", "FLOAT32", "DIM", 100000000, "DISTANCE_METRIC", "L2"), "dim")):
        fails("VECTOR %s" % " ".join(map(str, words)), client.call("FT.CREATE", "x", "SCHEMA", "v", "VECTOR", *words),
              pattern)


def options():
    client = Client()
    client.call("HSET", "doc:1", "t", "hello")
    for words in (("ON", "HASH"), ("ON", "HASH", "PREFIX", 2, "a:", "b:"), ("LANGUAGE", "german"),
                  ("LANGUAGE_FIELD", "lang"), ("SCORE", "0.5"),
                  ("SCORE_FIELD", "rank"), ("MAXTEXTFIELDS",), ("NOOFFSETS",), ("NOHL",), ("NOFIELDS",), ("NOFREQS",),
                  ("SKIPINITIALSCAN",),
                  ("STOPWORDS", 0), ("STOPWORDS", 2, "a", "b"), ("on", "hash", "prefix", 1, "a:")):
        seen = made(client, *words, "SCHEMA", "t", "TEXT")
        check("FT.CREATE i %s" % " ".join(map(str, words)), isinstance(seen, list), seen)
    client.call("FT.CREATE", "all", "SCHEMA", "t", "TEXT")
    for _ in range(1000):
        reply = client.call("FT.SEARCH", "all", "hello", "NOCONTENT")
        if reply[0] == 1:
            break
    check("without PREFIX every hash is followed, also those that were there", reply == [1, b"doc:1"], reply)
    client.call("FT.CREATE", "skip", "SKIPINITIALSCAN", "SCHEMA", "t", "TEXT")
    check("SKIPINITIALSCAN", client.call("FT.SEARCH", "skip", "hello", "NOCONTENT") == [0]
          and client.call("HSET", "doc:2", "t", "hello") == 1
          and client.call("FT.SEARCH", "skip", "hello", "NOCONTENT") == [1, b"doc:2"])
    client.call("FT.CREATE", "de", "PREFIX", 1, "de:", "LANGUAGE", "german", "SCHEMA", "t", "TEXT")
    client.call("HSET", "de:1", "t", "die Häuser")
    check("LANGUAGE: stems of German", client.call("FT.SEARCH", "de", "Haus",
                                                   "NOCONTENT")[0] == client.call("FT.SEARCH", "de", "Hauses",
                                                       "NOCONTENT")[0]
          and client.call("FT.SEARCH", "de", "häuser", "NOCONTENT")[0] == 1)
    for words, pattern in (
            (("SCHEMA",), "."), ((), "."), (("PREFIX", 0, "SCHEMA", "t", "TEXT"), "."),
            (("PREFIX", "x", "SCHEMA", "t", "TEXT"), "PREFIX"),
            (("ON", "SET", "SCHEMA", "t", "TEXT"), "SET"), (("NONSENSE", "SCHEMA", "t", "TEXT"), "NONSENSE"),
            (("SCHEMA", "t", "NONSENSE"), "NONSENSE|type"),
            (("SCHEMA", "t", "TEXT", "t", "TAG"), "duplicate|twice"),
            (("SCHEMA", "t", "TAG", "SEPARATOR", ",,"), "separator"),
            (("SCHEMA", "t", "TEXT", "WEIGHT", "x"), "weight"),
            (("LANGUAGE", "klingon", "SCHEMA", "t", "TEXT"), "klingon|language"),
            (("FILTER", "@t=='x'", "SCHEMA", "t", "TEXT"), "FILTER"),
            (("TEMPORARY", 10, "SCHEMA", "t", "TEXT"), "TEMPORARY"),
            (("SCHEMA", "g", "GEOSHAPE"), "GEOSHAPE"), (("SCHEMA", "t", "NUMERIC", "WEIGHT", 1), "WEIGHT")):
        fails("FT.CREATE i %s is refused" % " ".join(map(str, words)), client.call("FT.CREATE", "i", *words), pattern)
    check("what was refused left no index", sorted(plain(client.call("FT._LIST"))) == ["all", "de", "skip"],
          client.call("FT._LIST"))
    fails("too many fields", client.call("FT.CREATE", "i", "SCHEMA",
                                         *(w for n in range(5000) for w in ("f%d" % n, "TAG"))), "1024|fields")
    check("two fields of one attribute", client.call("FT.CREATE", "two", "PREFIX", 1, "two:", "SCHEMA", "a", "AS",
                                                     "exact", "TAG", "a", "AS", "words", "TEXT")
          == "OK" and client.call("HSET", "two:1", "a", "red house") == 1
          and client.call("FT.SEARCH", "two", "@exact:{red house} @words:house",
                                                                                        "NOCONTENT", "DIALECT",
                                                                                        2) == [1, b"two:1"])


def life():
    client = Client()
    words = ("SCHEMA", "t", "TAG", "v", "VECTOR", "FLAT", 6, "TYPE", "FLOAT32", "DIM", 2, "DISTANCE_METRIC", "L2")
    client.call("FT.CREATE", "a", "PREFIX", 1, "d:", *words)
    client.call("FT.CREATE", "b", "PREFIX", 1, "d:", *words)
    for i in range(3):
        client.call(*hset("d:%d" % i, {"t": "x", "v": blob([i, i])}))
    check("a key in two indexes", [client.call("FT.SEARCH", n, "@t:{x}", "NOCONTENT", "DIALECT", 2)[0]
                                   for n in "ab"] == [3, 3])
    check("FT.ALIASADD", client.call("FT.ALIASADD", "now", "a") == "OK"
          and client.call("FT.SEARCH", "now", "*", "LIMIT", 0, 0) == [3])
    fails("FT.ALIASADD of an alias", client.call("FT.ALIASADD", "now", "b"), "alias already exists")
    fails("FT.ALIASADD of no index", client.call("FT.ALIASADD", "other", "none"), "unknown index name|no such index")
    check("FT.ALIASUPDATE", client.call("FT.ALIASUPDATE", "now", "b") == "OK"
          and client.call("FT.DROPINDEX", "a") == "OK"
          and client.call("FT.SEARCH", "now", "*", "LIMIT", 0, 0) == [3])
    info = client.call("FT.INFO", "now")
    check("FT.INFO of an alias names the index", text(info[1]) == "b", info[:2])
    check("FT.ALIASDEL", client.call("FT.ALIASDEL", "now") == "OK"
          and isinstance(client.call("FT.SEARCH", "now", "*"), Error))
    fails("FT.ALIASDEL again", client.call("FT.ALIASDEL", "now"), "alias")
    check("FT.ALTER", client.call("FT.ALTER", "b", "SCHEMA", "ADD", "n", "NUMERIC", "m", "AS", "more", "TAG") == "OK"
          and [x[3] for x in attributes(client, "b")] == ["t", "v", "n", "more"])
    client.call("HSET", "d:1", "n", 5)
    check("the new field", client.call("FT.SEARCH", "b", "@n:[5 5]", "NOCONTENT", "DIALECT", 2) == [1, b"d:1"])
    fails("FT.ALTER of a field that is there", client.call("FT.ALTER", "b", "SCHEMA", "ADD", "t", "TAG"),
          "duplicate|exists|twice")
    fails("FT.ALTER of no index", client.call("FT.ALTER", "none", "SCHEMA", "ADD", "t", "TAG"),
          "unknown index name|no such index")
    client.call("FT.ALIASADD", "gone", "b")
    check("FT.DROPINDEX without DD keeps the keys, and ends aliases", client.call("FT.DROPINDEX", "b") == "OK"
          and client.call("DBSIZE") == 3
          and isinstance(client.call("FT.INFO", "gone"), Error))
    fails("FT.DROPINDEX of no index", client.call("FT.DROPINDEX", "b"), "unknown index name|no such index")
    client.call("FT.CREATE", "a", "PREFIX", 1, "d:", *words)
    client.call("HSET", "e:1", "t", "x")
    until = time.monotonic() + 20  # what was there before comes in behind FT.CREATE's reply; DD deletes what is in
    while client.call("FT.SEARCH", "a", "*", "LIMIT", 0, 0) != [3] and time.monotonic() < until:
        time.sleep(0.01)
    check("FT.DROPINDEX DD", client.call("FT.DROPINDEX", "a", "DD") == "OK" and client.call("KEYS", "*") == [b"e:1"])
    client.call("FT.CREATE", "a", *words)
    check("FLUSHALL and FLUSHDB drop indexes", client.call("FLUSHDB") == "OK" and client.call("FT._LIST") == []
          and client.call("FT.CREATE", "a", *words) == "OK"
          and client.call("FLUSHALL") == "OK" and client.call("FT._LIST") == [])


if __name__ == "__main__":
    script(fields, what_documents_say_of_themselves, vectors, options, life)
