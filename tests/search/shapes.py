"""shapes.py - the shapes of replies, element by element: FT.INFO, FT.SEARCH and FT.AGGREGATE in RESP2, in RESP3, and
in RESP3 for clients that accept arrays only (valkey-glide, known by its LIB-NAME).
"""
import common  # noqa: F401
from wire import Client, Error, Set, approximately, blob, check, hset, script, text

INFO = ["index_name", "index_options", "index_definition", "attributes", "num_docs", "max_doc_id", "num_terms",
        "num_records", "inverted_sz_mb",
        "vector_index_sz_mb", "total_inverted_index_blocks", "offset_vectors_sz_mb", "doc_table_size_mb",
        "sortable_values_size_mb",
        "key_table_size_mb", "tag_overhead_sz_mb", "text_overhead_sz_mb", "total_index_memory_sz_mb",
        "geoshapes_sz_mb", "records_per_doc_avg",
        "bytes_per_record_avg", "offsets_per_term_avg", "offset_bits_per_record_avg", "hash_indexing_failures",
        "total_indexing_time", "indexing",
        "percent_indexed", "number_of_uses", "cleaning", "gc_stats", "cursor_stats", "dialect_stats", "Index Errors",
        "field statistics"]
INTEGERS = ["num_docs", "max_doc_id", "num_terms", "num_records", "total_inverted_index_blocks",
            "hash_indexing_failures", "indexing",
            "number_of_uses", "cleaning"]
NUMBERS = [n for n in INFO if n.endswith(("_mb", "_avg"))] + ["total_indexing_time", "percent_indexed"]


def make(client):
    client.call("FT.CREATE", "i", "ON", "HASH", "PREFIX", 2, "p:", "q:", "SCHEMA", "t", "AS", "title", "TEXT",
                "NOSTEM", "SORTABLE", "g", "TAG",
                "SEPARATOR", ";", "CASESENSITIVE", "n", "NUMERIC", "SORTABLE", "v", "VECTOR", "HNSW", 10, "TYPE",
                "FLOAT32", "DIM", 2,
                "DISTANCE_METRIC", "L2", "M", 20, "EF_RUNTIME", 33)
    for i in range(4):
        client.call(*hset("p:%d" % i, {"t": "Word number%d" % i, "g": "A;b", "n": 10 - i, "v": blob([i, 0]),
                                       "extra": "x"}))


def plain(value):
    """Strings as str, whatever kind they came as."""
    if isinstance(value, dict):
        return {plain(k): plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [plain(v) for v in value]
    return text(value)


def info_in_resp2():
    client = Client()
    make(client)
    reply = client.call("FT.INFO", "i")
    names = [text(n) for n in reply[::2]]
    check("RESP2: the order of FT.INFO", names == INFO, names)
    values = dict(zip(names, reply[1::2]))
    for name in INTEGERS:
        check("RESP2: %s is an integer" % name, isinstance(values.get(name), int), values.get(name))
    for name in NUMBERS:
        check("RESP2: %s is text that is a number" % name, isinstance(values.get(name), bytes)
              and float(values[name]) >= 0, values.get(name))
    check("RESP2: node-redis 4 reads elements 45 and 47, and an element of each",
          all(reply[i] is not None for i in (45, 47)), reply[44:48])
    check("index_definition", plain(values["index_definition"]) == ["key_type", "HASH", "prefixes", ["p:", "q:"],
        "default_score", "1", "indexes_all",
                                                                   "false"], values["index_definition"])
    check("attributes", plain(values["attributes"]) == [
        ["identifier", "t", "attribute", "title", "type", "TEXT", "WEIGHT", "1", "SORTABLE", "NOSTEM"],
        ["identifier", "g", "attribute", "g", "type", "TAG", "SEPARATOR", ";", "CASESENSITIVE"],
        ["identifier", "n", "attribute", "n", "type", "NUMERIC", "SORTABLE", "UNF"],
        ["identifier", "v", "attribute", "v", "type", "VECTOR", "algorithm", "HNSW", "data_type", "FLOAT32", "dim", 2,
         "distance_metric", "L2", "M", 20,
         "ef_construction", 200, "ef_runtime", 33]], plain(values["attributes"]))
    check("counts", values["num_docs"] == 4 and values["hash_indexing_failures"] == 0 and values["indexing"] == 0
          and float(values["percent_indexed"]) == 1, values)
    check("Index Errors", plain(values["Index Errors"])[:6] == ["indexing failures", 0, "last indexing error", "N/A",
                                                                "last indexing error key", "N/A"],
          values["Index Errors"])
    cursors = plain(values["cursor_stats"])
    check("cursor_stats", cursors[::2] == ["global_idle", "global_total", "index_capacity", "index_total"], cursors)
    client.call("HSET", "p:bad", "n", "no number")
    values = dict(zip(names, client.call("FT.INFO", "i")[1::2]))
    errors = plain(values["Index Errors"])
    check("a document that is not indexed is counted, and named", values["hash_indexing_failures"] == 1
          and values["num_docs"] == 4 and errors[1] == 1
          and errors[5] == "p:bad" and "no number" in errors[3], errors)
    client.call("FT.CREATE", "w", "STOPWORDS", 1, "foo", "SCHEMA", "a", "TEXT")
    with_words = plain(client.call("FT.INFO", "w"))
    check("stopwords_list where STOPWORDS was given", with_words[with_words.index("stopwords_list") + 1] == ["foo"],
          with_words)


def info_in_resp3():
    client = Client(3)
    make(client)
    reply = client.call("FT.INFO", "i")
    check("RESP3: a map", isinstance(reply, dict), type(reply))
    values = plain(reply)
    check("RESP3: the same names", [n for n in values] == INFO, list(values))
    check("RESP3: index_definition is a map", values["index_definition"] == {"key_type": "HASH",
        "prefixes": ["p:", "q:"], "default_score": 1.0,
                                                                            "indexes_all": "false"},
                                                                            values["index_definition"])
    check("RESP3: attributes are maps with flags", values["attributes"][1]["attribute"] == "g"
          and "CASESENSITIVE" in values["attributes"][1]["flags"]
          and values["attributes"][3]["dim"] == 2, values["attributes"])
    for name in INTEGERS:
        check("RESP3: %s is an integer" % name, type(values[name]) is int, values[name])
    for name in NUMBERS:
        check("RESP3: %s is a double" % name, isinstance(values[name], float), values[name])
    check("RESP3: nested maps", isinstance(values["cursor_stats"], dict) and isinstance(values["Index Errors"], dict)
          and values["Index Errors"]["indexing failures"] == 0, values["Index Errors"])


def search_in_resp2():
    client = Client()
    make(client)
    def search(*words):
        return plain(client.call("FT.SEARCH", "i", *words))
    full = client.call("FT.SEARCH", "i", "@n:[10 10]")
    check("RESP2: [total, key, [name, value ...]]", full[0] == 1 and full[1] == b"p:0"
          and dict(zip(full[2][::2], full[2][1::2])) == {
        b"t": b"Word number0", b"g": b"A;b", b"n": b"10", b"v": blob([0, 0]), b"extra": b"x"}, full)
    check("NOCONTENT", search("@n:[9 10]", "NOCONTENT", "SORTBY", "n") == [2, "p:1", "p:0"])
    check("RETURN 0 is NOCONTENT", search("@n:[9 10]", "RETURN", 0, "SORTBY", "n") == [2, "p:1", "p:0"])
    check("RETURN of fields, renamed, and of one that is not there",
          search("@n:[10 10]", "RETURN", 5, "n", "g", "AS", "tags", "nothing") == [
        1, "p:0", ["n", "10", "tags", "A;b"]], search("@n:[10 10]", "RETURN", 5, "n", "g", "AS", "tags", "nothing"))
    check("RETURN of one name twice: the first holds", search("@n:[10 10]", "RETURN", 8, "n", "n", "g", "AS", "x", "n", "AS",
                                                                "x") == [1, "p:0", ["n", "10", "x", "A;b"]],
          search("@n:[10 10]", "RETURN", 8, "n", "n", "g", "AS", "x", "n", "AS", "x"))
    scored = search("number1", "WITHSCORES", "RETURN", 1, "n")
    check("WITHSCORES: text that is a number", len(scored) == 4 and isinstance(scored[2], str)
          and float(scored[2]) > 0 and scored[3] == ["n", "9"], scored)
    check("WITHSORTKEYS of a number", search("*", "SORTBY", "n", "ASC", "WITHSORTKEYS", "NOCONTENT", "LIMIT", 0,
                                             2) == [4, "p:3", "#7", "p:2", "#8"],
          search("*", "SORTBY", "n", "ASC", "WITHSORTKEYS", "NOCONTENT", "LIMIT", 0, 2))
    check("WITHSORTKEYS of text", search("*", "SORTBY", "title", "DESC", "WITHSORTKEYS", "NOCONTENT", "LIMIT", 0,
                                         1) == [4, "p:3", "$word number3"],
          search("*", "SORTBY", "title", "DESC", "WITHSORTKEYS", "NOCONTENT", "LIMIT", 0, 1))
    check("WITHPAYLOADS: nil, or refused", search("@n:[10 10]", "WITHPAYLOADS", "NOCONTENT") in ([1, "p:0", None],)
          or isinstance(
        search("@n:[10 10]", "WITHPAYLOADS", "NOCONTENT"), Error), search("@n:[10 10]", "WITHPAYLOADS", "NOCONTENT"))
    check("LIMIT 0 0 counts", search("*", "LIMIT", 0, 0) == [4])
    check("LIMIT beyond the end", search("*", "LIMIT", 10, 5) == [4])
    knn = ("*=>[KNN 3 @v $q AS d]", "PARAMS", 2, "q", blob([0.9, 0]), "DIALECT", 2)
    near = search(*knn, "RETURN", 1, "d")
    check("KNN: by distance without SORTBY, the total is the smaller of K and matches", near[0] == 3
          and near[1::2] == ["p:1", "p:0", "p:2"]
          and all(r[0] == "d" and isinstance(r[1], str) for r in near[2::2]), near)
    check("distances: the squared length, twelve digits",
          [r[1] for r in near[2::2]] == ["0.0100000007078", "0.809999942780", "1.21000003815"] or all(
        approximately(a[1], b) for a, b in zip(near[2::2], (0.01, 0.81, 1.21))), near)
    check("the same total on every page", search(*knn, "NOCONTENT", "LIMIT", 2, 10)[0] == 3
          and search(*knn, "LIMIT", 0, 0) == [3]
          and search(*knn, "NOCONTENT", "LIMIT", 2, 10)[1:] == ["p:2"])
    check("without RETURN the distance comes with all fields",
          dict(zip(*[iter(client.call("FT.SEARCH", "i", *knn)[2])] * 2)).keys() == {
        b"d", b"t", b"g", b"n", b"v", b"extra"})
    check("its name without AS", search("*=>[KNN 1 @v $q]", *knn[1:], "RETURN", 1, "__v_score")[2][0] == "__v_score")
    check("SORTBY of a field: K first, then sorted",
          search(*knn, "NOCONTENT", "SORTBY", "n", "ASC") == [3, "p:2", "p:1", "p:0"])
    yielded = search("*=>[KNN 1 @v $q]=>{$yield_distance_as: far}", *knn[1:], "RETURN", 1, "far")
    check("yield_distance_as behind KNN", isinstance(yielded, list) and yielded[2][0] == "far", yielded)
    check("documents without the field of SORTBY are last", client.call("HSET", "p:none", "g", "A") == 1
          and search("*", "SORTBY", "n", "DESC", "NOCONTENT")
          == [5, "p:0", "p:1", "p:2", "p:3", "p:none"], search("*", "SORTBY", "n", "DESC", "NOCONTENT"))
    for i in range(60):
        client.call("HSET", "q:%02d" % i, "n", (i * 37) % 60, "g", "many")
    check("SORTBY of more than fits the first heap",
          [text(k) for k in search("@g:{many}", "NOCONTENT", "SORTBY", "n", "LIMIT", 0, 60)[1:]] == sorted(
        ("q:%02d" % i for i in range(60)), key=lambda k: int(k[2:]) * 37 % 60))


def search_in_resp3():
    client = Client(3)
    make(client)
    reply = plain(client.call("FT.SEARCH", "i", "number1", "WITHSCORES", "RETURN", 1, "n"))
    check("RESP3: the map", isinstance(reply, dict)
          and set(reply) >= {"attributes", "warning", "total_results", "format", "results"}, reply)
    check("RESP3: attributes, warning, format, total_results", reply["attributes"] == [] and reply["warning"] == []
          and reply["format"] == "STRING"
          and reply["total_results"] == 1, reply)
    row = reply["results"][0]
    check("RESP3: a row", row["id"] == "p:1" and isinstance(row["score"], float)
          and row["extra_attributes"] == {"n": "9"} and row["values"] == [], row)
    row = plain(client.call("FT.SEARCH", "i", "number1", "NOCONTENT"))["results"][0]
    check("RESP3: without content", "extra_attributes" not in row and row["id"] == "p:1", row)
    row = plain(client.call("FT.SEARCH", "i", "number1", "SORTBY", "n", "WITHSORTKEYS", "RETURN", 1, "n"))["results"][0]
    check("RESP3: sortkey", row["sortkey"] == "#9", row)
    near = plain(client.call("FT.SEARCH", "i", "*=>[KNN 1 @v $q AS d]", "PARAMS", 2, "q", blob([0, 0]), "RETURN", 1,
                             "d", "DIALECT", 2))
    check("RESP3: a distance is a string", near["results"][0]["extra_attributes"] == {"d": "0"}, near)


def aggregate_shapes():
    two, three = Client(), Client(3)
    make(two)
    words = ("FT.AGGREGATE", "i", "*", "LOAD", 1, "@n", "SORTBY", 2, "@n", "ASC", "LIMIT", 0, 2)
    reply = plain(two.call(*words))
    check("RESP2: [number, [name, value ...] ...]", isinstance(reply[0], int)
          and reply[1:] == [["n", "7"], ["n", "8"]], reply)
    reply = plain(two.call(*words, "WITHCURSOR", "COUNT", 1))
    check("RESP2: WITHCURSOR: [that, cursor]", len(reply) == 2 and reply[0][1:] == [["n", "7"]]
          and isinstance(reply[1], int), reply)
    if reply[1]:
        more = plain(two.call("FT.CURSOR", "READ", "i", reply[1], "COUNT", 1))
        check("RESP2: FT.CURSOR READ", more[0][1:] == [["n", "8"]], more)
    reply = plain(three.call(*words))
    check("RESP3: the map of FT.SEARCH, rows without id", reply["format"] == "STRING"
          and [r["extra_attributes"] for r in reply["results"]] == [
        {"n": "7"}, {"n": "8"}] and isinstance(reply["total_results"], int), reply)
    reply = plain(three.call(*words, "WITHCURSOR", "COUNT", 10))
    check("RESP3: WITHCURSOR: [map, cursor]", isinstance(reply, list) and isinstance(reply[0], dict) and reply[1] == 0,
          reply)
    for steps, right in ((("SORTBY", 0), 4), (("SORTBY", 0, "MAX", 2), 2), (("LIMIT", 1, 2, "SORTBY", 0), 2),
                         (("SORTBY", 0, "SORTBY", 1, "@n", "MAX", 3), 3)):
        reply = two.call("FT.AGGREGATE", "i", "*", *steps)
        check("FT.AGGREGATE %s" % " ".join(map(str, steps)), isinstance(reply, list) and len(reply) == 1 + right, reply)
    grouped = plain(two.call("FT.AGGREGATE", "i", "*", "GROUPBY", 0, "REDUCE", "TOLIST", 1, "@n", "AS", "all",
                             "REDUCE", "COUNT", 0, "AS", "c"))
    check("RESP2: a list within a row", grouped[1][0] == "all" and sorted(grouped[1][1]) == ["10", "7", "8", "9"]
          and grouped[1][2:] == ["c", "4"], grouped)


def others():
    two, three = Client(), Client(3)
    make(two)
    check("FT._LIST", plain(two.call("FT._LIST")) == ["i"] and isinstance(three.call("FT._LIST"), Set),
          three.call("FT._LIST"))
    check("FT.TAGVALS", sorted(plain(two.call("FT.TAGVALS", "i", "g"))) == ["A", "b"]
          and isinstance(three.call("FT.TAGVALS", "i", "g"), Set),
          two.call("FT.TAGVALS", "i", "g"))
    check("FT.EXPLAIN is text, FT.EXPLAINCLI lines", isinstance(two.call("FT.EXPLAIN", "i", "@g:{b}"), bytes)
          and isinstance(
        two.call("FT.EXPLAINCLI", "i", "@g:{b}"), list))
    check("indexes are no keys", two.call("DBSIZE") == 4 and two.call("EXISTS", "i") == 0
          and two.call("KEYS", "i") == [])
    check("the type of a JSON document", two.call("JSON.SET", "j", "$", "1") == "OK"
          and two.call("TYPE", "j") == "ReJSON-RL", two.call("TYPE", "j"))


def arrays_for_glide():
    make(Client())
    for library in ("GlideGo", "GlidePy", "GlidePySync", "GlideJS", "GlideJava"):
        client = Client(3, library)
        reply = client.call("FT.SEARCH", "i", "@n:[9 9]", "RETURN", 1, "n")
        check(library + ": FT.SEARCH is an array", isinstance(reply, list) and plain(reply) == [1, "p:1", ["n", "9"]],
              reply)
        check(library + ": FT.INFO is an array", isinstance(client.call("FT.INFO", "i"), list))
        check(library + ": FT.AGGREGATE is an array",
              isinstance(client.call("FT.AGGREGATE", "i", "*", "LOAD", 1, "n"), list))
    client = Client(3, "redis-py")
    check("others get maps", isinstance(client.call("FT.SEARCH", "i", "*"), dict))
    client.call("CLIENT", "SETINFO", "LIB-NAME", "GlidePy")
    check("the name counts from when it is told", isinstance(client.call("FT.SEARCH", "i", "*"), list))
    client = Client(2, "GlidePy")
    check("RESP2 is RESP2", isinstance(client.call("FT.SEARCH", "i", "*"), list))


def no_neighbours():
    client = Client()
    make(client)
    for query in ("*=>[KNN 0 @v $q AS d]", "*=>[KNN $K @v $q AS d]", "@n:[0 10]=>[KNN 0 @v $q AS d]",
                  "(@v:[VECTOR_RANGE 1 $q]=>{$yield_distance_as: r})=>[KNN 0 @v $q]"):
        params = ("PARAMS", 4, "K", 0, "q", blob([1, 0]), "DIALECT", 2)
        for options in ((), ("NOCONTENT",), ("SORTBY", "n", "WITHSCORES"), ("LIMIT", 0, 0)):
            reply = client.call("FT.SEARCH", "i", query, *params, *options)
            check("%s %s finds nothing" % (query, " ".join(options[:1])), reply == [0], reply)
        reply = client.call("FT.AGGREGATE", "i", query, *params)
        check("FT.AGGREGATE %s gives no row" % query, isinstance(reply, list) and len(reply) == 1, reply)
    reply = Client(3).call("FT.SEARCH", "i", "*=>[KNN 0 @v $q]", "PARAMS", 2, "q", blob([1, 0]))
    check("KNN 0 in RESP3", isinstance(reply, dict) and plain(reply)["total_results"] == 0
          and plain(reply)["results"] == [], reply)


if __name__ == "__main__":
    script(info_in_resp2, info_in_resp3, search_in_resp2, search_in_resp3, aggregate_shapes, others, arrays_for_glide,
           no_neighbours)
