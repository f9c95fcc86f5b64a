"""refusals.py - errors: the texts that clients look for, what is wrong with a query and where, what Quire has not by
its name, and hostile input. After each the server answers as before.
"""
import common  # noqa: F401
from wire import Client, Error, blob, check, fails, hset, script, wait_filled


def make(client):
    client.call("FT.CREATE", "i", "PREFIX", 1, "d:", "SCHEMA", "t", "TEXT", "g", "TAG", "n", "NUMERIC", "p", "GEO",
                "hidden", "TEXT", "NOINDEX", "v",
                "VECTOR", "FLAT", 6, "TYPE", "FLOAT32", "DIM", 3, "DISTANCE_METRIC", "COSINE")
    for k in range(3):
        client.call(*hset("d:%d" % k, {"t": "word %d" % k, "g": "g%d" % k, "n": k, "p": "1,1", "v": blob([k, 1, 0])}))


def texts_that_clients_match():
    client = Client()
    make(client)
    for words in (("FT.INFO", "none"), ("FT.SEARCH", "none", "*"), ("FT.AGGREGATE", "none", "*"),
                  ("FT.TAGVALS", "none", "g"), ("FT.EXPLAIN", "none", "*"), ("FT.ALTER", "none", "SCHEMA", "ADD", "x", "TAG"),
                  ("FT.CURSOR", "READ", "none", 1)):
        reply = client.call(*words)
        check("%s of no index" % words[0], isinstance(reply, Error) and any(m in reply.lower() for m in (
            "unknown index name", "no such index", "search_index_not_found", "index not found")) and "none" in reply,
            reply)
    for words in (("FT.DROPINDEX", "none"), ("FT.DROPINDEX", "none", "DD"), ("FT.DROP", "none")):
        reply = client.call(*words)
        check("%s of no index: the whole text, which Redis OM compares" % " ".join(words), isinstance(reply, Error)
              and reply == "Unknown index name", reply)
    fails("FT.INFO: SEARCH_INDEX_NOT_FOUND first", client.call("FT.INFO", "none"),
          "^SEARCH_INDEX_NOT_FOUND Unknown index name")
    fails("FT.CREATE of what is there", client.call("FT.CREATE", "i", "SCHEMA", "a", "TAG"), "Index already exists")
    check("no error says unknown command but for unknown commands",
          all("unknown command" not in str(client.call(*w)).lower() for w in (
        ("FT.INFO", "none"), ("FT.SEARCH", "i", "@"), ("FT.CREATE", "i", "SCHEMA", "a", "TAG"))))
    vector = "*=>[KNN 2 @v $q]"
    fails("a parameter that is not given", client.call("FT.SEARCH", "i", vector, "DIALECT", 2), "no such parameter.*q")
    fails("a vector of another size", client.call("FT.SEARCH", "i", vector, "PARAMS", 2, "q", b"12345678", "DIALECT",
                                                  2),
          r"query vector blob size \(8\) does not match index's expected size \(12\)")
    check("parameters that nothing uses are fine", client.call("FT.SEARCH", "i", "*", "PARAMS", 2, "x", "y", "DIALECT",
                                                               2, "LIMIT", 0, 0) == [3])
    fails("a step of FT.AGGREGATE over a property that is nowhere",
          client.call("FT.AGGREGATE", "i", "*", "APPLY", "@nothing + 1", "AS", "x"),
          "Property `nothing` not loaded nor in pipeline")
    fails("a cursor that is gone", client.call("FT.CURSOR", "READ", "i", 12345), "cursor not found")


def what_is_wrong_and_where():
    client = Client()
    make(client)
    for query in ("@g:{", "@g:{}", "(word", "word)", "@n:[1", "@n:[a b]", "@n:[1 2 3 4 5]", "@nothing:{x}", "@t:[1 2]",
                  "@n:{x}", "@p:[1 1 1]", "@p:[1 1 1 parsec]",
                  "*=>[KNN @v $q]", "*=>[KNN -1 @v $q]", "*=>[KNN 1 @t $q]", "*=>[KNN 1 @v]", "*=>[NEAREST 1 @v $q]",
                  "@v:[VECTOR_RANGE $q]",
                  "@v:[VECTOR_RANGE -1 $q]", "@v:{x}", "%%%%word%%%%", "ismissing(@g)", "ismissing(@nothing)", "@t:=>",
                  "word=>{$weight}", "word=>{$nonsense: 1}",
                  "-", "|", "@:x", "=>[KNN 1 @v $q]"):
        reply = client.call("FT.SEARCH", "i", query, "PARAMS", 2, "q", blob([1, 0, 0]), "DIALECT", 2)
        check("%s is an error with a reason" % query, isinstance(reply, Error) and len(reply) > 12, reply)
    fails("a syntax error says where", client.call("FT.SEARCH", "i", "word @g:{a} )", "DIALECT", 2),
          r"syntax error at offset \d+")
    fails("a field that is not indexed", client.call("FT.SEARCH", "i", "@hidden:x", "DIALECT", 2), "hidden")
    names_of_distances(client)
    for words, pattern in (
            (("SORTBY",), "SORTBY"), (("LIMIT", 0), "LIMIT"), (("LIMIT", -1, 5), "LIMIT"),
            (("LIMIT", 0, "x"), "LIMIT"), (("LIMIT", 2000000, 10), "LIMIT"),
            (("RETURN", "x"), "RETURN"), (("RETURN", 3, "a"), "RETURN"), (("PARAMS", 3, "a", "b", "c"), "PARAMS|even"),
            (("DIALECT", 9), "DIALECT"),
            (("DIALECT", 0), "DIALECT"), (("INKEYS", "x"), "INKEYS"), (("TIMEOUT", "x"), "TIMEOUT"),
            (("NONSENSE",), "NONSENSE"), (("NOCONTENT", "extra"), "extra"),
            (("INFIELDS", 1, "nothing"), "nothing|."), (("SORTBY", "nothing"), "nothing")):
        fails("FT.SEARCH i * %s" % " ".join(map(str, words)), client.call("FT.SEARCH", "i", "*", *words), pattern)
    for words, pattern in (
            (("GROUPBY",), "GROUPBY"), (("GROUPBY", 1, "g"), "@|GROUPBY"),
            (("GROUPBY", 1, "@g", "REDUCE", "NONSENSE", 0), "NONSENSE"),
            (("GROUPBY", 1, "@g", "REDUCE", "SUM", 0), "SUM"), (("APPLY", "1 +", "AS", "x"), "."),
            (("APPLY", "nonsense(1)", "AS", "x"), "nonsense"),
            (("APPLY", "'open", "AS", "x"), "."), (("FILTER",), "FILTER"),
            (("FILTER", "(@n"), "."), (("SORTBY", 1), "SORTBY"), (("SORTBY", 2, "@n", "UP"), "UP|ASC"),
            (("LOAD",), "LOAD"), (("LOAD", 5, "@n"), "LOAD"), (("NONSENSE",), "NONSENSE"),
            (("WITHCURSOR", "COUNT", "x"), "COUNT")):
        fails("FT.AGGREGATE i * %s" % " ".join(map(str, words)), client.call("FT.AGGREGATE", "i", "*", *words), pattern)
    check("the server goes on", client.call("FT.SEARCH", "i", "*", "LIMIT", 0, 0) == [3])


def names_of_distances(client):
    for query, pattern in (
            ("*=>[KNN 1 @v $q AS t]", "^ERR Property `t` already exists in schema"),
            ("*=>[KNN 1 @v $q]=>{$yield_distance_as: n}", "^ERR Property `n` already exists in schema"),
            ("@v:[VECTOR_RANGE 1 $q]=>{$yield_distance_as: g}", "^ERR Property `g` already exists in schema"),
            ("@v:[VECTOR_RANGE 0.1 $q]=>{$yield_distance_as: d} | @v:[VECTOR_RANGE 1 $q]=>{$yield_distance_as: d}",
             "^ERR Property `d` specified more than once"),
            ("(@v:[VECTOR_RANGE 1 $q]=>{$yield_distance_as: d})=>[KNN 1 @v $q AS d]",
             "^ERR Property `d` specified more than once")):
        for command in ("FT.SEARCH", "FT.AGGREGATE"):
            fails("%s %s: a name that is taken" % (command, query),
                  client.call(command, "i", query, "PARAMS", 2, "q", blob([1, 0, 0]), "DIALECT", 2), pattern)
    two = "(@v:[VECTOR_RANGE 2 $q]=>{$yield_distance_as: d})=>[KNN 1 @v $q AS e]"
    reply = client.call("FT.SEARCH", "i", two, "PARAMS", 2, "q", blob([1, 0, 0]), "DIALECT", 2, "RETURN", 2, "d", "e")
    check("two distances of two names", isinstance(reply, list) and reply[0] == 1 and reply[2][::2] == [b"d", b"e"],
          reply)


def places():
    """Behind RediSearch's sentence stands the position of what is wrong, counted as FT.AGGREGATE counts it."""
    client = Client()
    make(client)
    nan = blob([1, float("nan"), 0])
    for words, message in (
            (("NONSENSE",), "Unknown argument `NONSENSE` at position 3 for <main>"),
            (("NOCONTENT", "LIMIT", 0), "LIMIT requires two arguments (position 4)"),
            (("LIMIT", 0, "x"), "LIMIT needs two numeric arguments ('x' at position 5)"),
            (("LIMIT", 3, 0), "The `offset` of the LIMIT must be 0 when `num` is 0 (position 4)"),
            (("LIMIT", 2000000, 10), "OFFSET exceeds maximum of 1000000 (LIMIT at position 3)"),
            (("SORTBY",), "Bad arguments for SORTBY: Expected an argument, but none provided (position 4)"),
            (("SORTBY", "@"), "Bad SORTBY arguments: a field is missing (position 4)"),
            (("SORTBY", "@nothing"), "Property `nothing` not loaded nor in schema (position 4)"),
            (("SORTBY", "v"), "SORTBY `v`: a VECTOR field has no order (position 4)"),
            (("RETURN", 2, "a", "AS"), "RETURN path AS name - must be accompanied with NAME (position 6)"),
            (("RETURN", 3, "a"), "Bad arguments for RETURN: Expected an argument, but none provided (position 6)"),
            (("PARAMS", 3, "a", "b", "c"), "Parameters must be specified in PARAM VALUE pairs (PARAMS at position 3)"),
            (("PARAMS", 0), "Parameters must be specified in PARAM VALUE pairs (PARAMS at position 3)"),
            (("PARAMS", 4, "a", "b", "a", "d"), "Duplicate parameter `a` (position 7)"),
            (("SLOP", "x"), "Bad arguments for SLOP: 'x' is not a whole number from -1 to 1000000000 (position 4)"),
            (("SCORER", "NONE"), "No such scorer NONE (position 4)"),
            (("DIALECT", 9), "DIALECT requires a non negative integer >=1 and <= 4 ('9' at position 4)"),
            (("INFIELDS", 2, "t", "g"), "INFIELDS: `g` is no TEXT field of the index (position 6)"),
            (("FILTER", "t", 1, 2), "FILTER: `t` is no indexed NUMERIC field (position 4)"),
            (("FILTER", "n", 1, "x"), "Bad numeric range: FILTER takes two numbers, not 'x' (position 6, field `n`)"),
            (("GEOFILTER", "n", 1, 1, 1, "km"), "GEOFILTER: `n` is no indexed GEO field (position 4)"),
            (("GEOFILTER", "p", 1, 1, 1, "x"),
             "GEOFILTER takes longitude, latitude, radius, and m, km, mi or ft (position 4, field `p`)"),
            (("HIGHLIGHT",), "FT.SEARCH: HIGHLIGHT is not supported by Quire (position 3)"),
            (("FORMAT", "EXPAND"), "FORMAT: only STRING is supported by Quire (position 4)")):
        reply = client.call("FT.SEARCH", "i", "*", *words)
        check("FT.SEARCH i * %s names the place" % " ".join(map(str, words)),
              isinstance(reply, Error) and reply == "ERR " + message, reply)
    for query in ("*=>[KNN 1 @v $q]", "@v:[VECTOR_RANGE 1 $q]"):
        fails("a vector of NaN: which parameter, and where", client.call("FT.SEARCH", "i", query, "PARAMS", 2, "q", nan),
              r"^SEARCH_SYNTAX Error parsing vector similarity query: .*NaN.*\(Parameter `q` at offset \d+\)$")
    fails("FT.AGGREGATE: a scorer", client.call("FT.AGGREGATE", "i", "*", "ADDSCORES", "SCORER", "NONE"),
          r"No such scorer NONE \(position 5\)$")
    json = ("FT.CREATE", "x", "ON", "JSON")
    for words, message in (
            (("FT.SEARCH", "i", "*", "LANGUAGE", "klingon"), r"^SEARCH_SYNTAX No such language: klingon \(position 4\)"),
            (("FT.AGGREGATE", "i", "*", "LOAD", 1, "t", "LANGUAGE", "klingon"),
             r"^SEARCH_SYNTAX No such language: klingon \(position 7\)"),
            (("FT.CREATE", "x", "LANGUAGE", "klingon", "SCHEMA", "a", "TEXT"),
             r"^ERR Invalid language: `klingon` .*position 3\)$"),
            (json + ("SCHEMA", "$.a", "AS", "a", "TAG", "$.[", "AS", "b", "TAG"),
             r"^ERR Invalid JSONPath '\$\.\[' in attribute 'b': .* \(position 9\)$"),
            (json + ("LANGUAGE_FIELD", "$.[", "SCHEMA", "$.a", "AS", "a", "TAG"),
             r"^ERR Invalid JSONPath '\$\.\[' in option 'LANGUAGE_FIELD': .* \(position 5\)$"),
            (json + ("SCORE_FIELD", "$.[", "SCHEMA", "$.a", "AS", "a", "TAG"),
             r"^ERR Invalid JSONPath '\$\.\[' in option 'SCORE_FIELD': .* \(position 5\)$"),
            (("FT.AGGREGATE", "i", "*", "PARAMS", 4, "a", "b", "a", "d"), r"Duplicate parameter `a` \(position 7\)$"),
            (("FT.AGGREGATE", "i", "*", "LOAD", 1, "t", "APPLY", "1", "AS", "x", "APPLY", "@t + 1", "AS", "y"),
             r"Error converting string: 'word 0' is not a number \(APPLY at position 10\)$"),
            (("FT.AGGREGATE", "i", "*", "FILTER", "1 < 'x'"),
             r"Error converting string: 'x' is not a number \(FILTER at position 3\)$"),
            (("FT.ALTER", "i", "SCHEMA", "a", "TEXT"), r"\(position 3\)$"),
            (("FT.ALTER", "i", "SKIPINITIALSCAN", "ADD", "a", "TEXT"), r"\(position 3\)$"),
            (("FT.DROPINDEX", "i", "KEEPDOCS"), r"'KEEPDOCS' \(position 2\)$"),
            (("FT.TAGVALS", "i", "nothing"), r"^ERR No such field: `nothing` \(position 2\)$"),
            (("FT.TAGVALS", "i", "t"), r"^ERR Not a tag field: `t` \(position 2\)$"),
            (("FT.CURSOR", "READ", "i", "x"), r"^ERR Bad cursor ID \('x' at position 3\)$"),
            (("FT.CURSOR", "WRITE", "i", 1), r"\('WRITE' at position 1\)$"),
            (("FT.CURSOR", "READ", "i", 1, "COUNT", 0), r"\('0' at position 5\)$"),
            (("FT.CURSOR", "READ", "i", 1, "COUNT"), r"\('COUNT' at position 4\)$"),
            (("FT.CURSOR", "DEL", "i", 1, "COUNT", 1), r"\('COUNT' at position 4\)$"),
            (("FT.ALIASADD", "", "i"), r"\(position 1\)$")):
        fails("%s names the place" % " ".join(map(str, words)), client.call(*words), message)
    fails("FT.CREATE: the field and the position", client.call("FT.CREATE", "x", "SCHEMA", "a", "TEXT", "b", "TEXT",
          "WEIGHT", "xx"), r"expected type: 'xx' \(position 8, field `b`\)$")
    fails("FT.ALTER: the same", client.call("FT.ALTER", "i", "SCHEMA", "ADD", "b", "TEXT", "WEIGHT", "xx"),
          r"expected type: 'xx' \(position 7, field `b`\)$")
    fails("FT.ALTER: the same behind SKIPINITIALSCAN", client.call("FT.ALTER", "i", "SKIPINITIALSCAN", "SCHEMA", "ADD",
          "b", "TEXT", "WEIGHT", "xx"), r"expected type: 'xx' \(position 8, field `b`\)$")


def options_that_come_twice():
    """As RediSearch has it: SORTBY and PARAMS once; of the others the last one holds; all FILTERs do."""
    client = Client()
    make(client)
    for words, message in (
            (("SORTBY", "n", "SORTBY", "t"), "Multiple SORTBY steps are not allowed (position 5)"),
            (("PARAMS", 2, "a", 1, "LIMIT", 0, 1, "PARAMS", 2, "b", 2),
             "Multiple PARAMS are not allowed. Parameters can be defined only once (position 10)")):
        reply = client.call("FT.SEARCH", "i", "*", *words)
        check("FT.SEARCH i * %s is refused" % " ".join(map(str, words)), isinstance(reply, Error)
              and reply == "ERR " + message, reply)
    for words, right in (
            (("LIMIT", 0, 1, "LIMIT", 1, 2, "NOCONTENT", "SORTBY", "n"), [3, b"d:1", b"d:2"]),
            (("RETURN", 1, "t", "RETURN", 1, "n", "LIMIT", 0, 1, "SORTBY", "n"), [3, b"d:0", [b"n", b"0"]]),
            (("INKEYS", 1, "d:0", "INKEYS", 1, "d:1", "NOCONTENT"), [1, b"d:1"]),
            (("SCORER", "TFIDF", "SCORER", "DOCSCORE", "SLOP", 1, "SLOP", 2, "INKEYS", 1, "d:1", "NOCONTENT"),
             [1, b"d:1"]),
            (("FILTER", "n", 0, 1, "FILTER", "n", 1, 2, "NOCONTENT"), [1, b"d:1"])):
        reply = client.call("FT.SEARCH", "i", "*", *words)
        check("FT.SEARCH i * %s" % " ".join(map(str, words)), reply == right, reply)
    fails("FT.EXPLAIN refuses what FT.SEARCH refuses: a field of INFIELDS",
          client.call("FT.EXPLAIN", "i", "word", "INFIELDS", 1, "nothing"),
          r"INFIELDS: `nothing` is no TEXT field of the index \(position 5\)$")
    reply = client.call("FT.EXPLAIN", "i", "word", "INFIELDS", 1, "t", "VERBATIM")
    check("FT.EXPLAIN shows the fields of INFIELDS", reply.startswith(b"@t:word"), reply)


def what_quire_has_not():
    client = Client()
    make(client)
    for words, name in (
            (("HIGHLIGHT",), "HIGHLIGHT"), (("SUMMARIZE",), "SUMMARIZE"),
            (("WITHSCORES", "EXPLAINSCORE"), "EXPLAINSCORE"), (("PAYLOAD", "x"), "PAYLOAD")):
        fails("FT.SEARCH %s is refused by name" % " ".join(words), client.call("FT.SEARCH", "i", "word", *words), name)
    for words in (("FT.SUGADD", "k", "x", 1), ("FT.SUGGET", "k", "x"), ("FT.SUGDEL", "k", "x"), ("FT.SUGLEN", "k"),
                  ("FT.SYNUPDATE", "i", "g", "x"),
                  ("FT.SYNDUMP", "i"), ("FT.DICTADD", "d", "x"), ("FT.DICTDEL", "d", "x"), ("FT.DICTDUMP", "d"),
                  ("FT.SPELLCHECK", "i", "word"),
                  ("FT.PROFILE", "i", "SEARCH", "QUERY", "*"), ("FT.CONFIG", "SET", "TIMEOUT", 1),
                  ("FT.HYBRID", "i", "SEARCH", "word", "VSIM", "@v", "$q", "PARAMS", 2, "q",
                                                                                          blob([1, 0, 0]))):
        reply = client.call(*words)
        check("%s is there, or refused by its name" % words[0], not isinstance(reply, Error)
              or words[0].lower() in reply.lower(), reply)
    check("FT.CONFIG GET says what holds here", client.call("FT.CONFIG", "GET", "*") == [
        [name, value] for name, value in (
            (b"MINPREFIX", b"2"), (b"MAXEXPANSIONS", b"-1"), (b"MAXPREFIXEXPANSIONS", b"-1"), (b"TIMEOUT", b"0"),
            (b"DEFAULT_DIALECT", b"2"), (b"MAXSEARCHRESULTS", b"1000000"), (b"ON_TIMEOUT", b"fail"),
            (b"MAXAGGREGATERESULTS", b"1000000"), (b"MAXDOCTABLESIZE", b"4294967295"),
            (b"CURSOR_MAX_IDLE", b"300000"))], client.call("FT.CONFIG", "GET", "*"))
    for words in (("VERBATIM",), ("NOSTOPWORDS",), ("INORDER",), ("SLOP", 3), ("LANGUAGE", "english"),
                  ("EXPANDER", "x"), ("SCORER", "BM25STD"), ("SCORER", "TFIDF"),
                  ("TIMEOUT", 1000), ("DIALECT", 1), ("DIALECT", 2), ("DIALECT", 3), ("DIALECT", 4),
                  ("FORMAT", "STRING"), ("WITHCOUNT",), ("WITHOUTCOUNT",),
                  ("ALLSHARDS",), ("SOMESHARDS",), ("CONSISTENT",), ("INCONSISTENT",), ("verbatim", "nostopwords")):
        reply = client.call("FT.SEARCH", "i", "word", "NOCONTENT", *words)
        check("FT.SEARCH %s is accepted" % " ".join(map(str, words)), isinstance(reply, list) and reply[0] == 3, reply)


def hostile():
    client = Client()
    make(client)
    for name, query in (
            ("1,000 parentheses", "(" * 1000 + "word" + ")" * 1000), ("100,000 parentheses", "(" * 100000),
            ("1,000 negations", "-" * 1000 + "word"),
            ("1 MiB", "word " * 200000), ("65 KiB of words with OR", " | ".join("w%d" % i for i in range(9000))),
            ("a NUL", b"wo\0rd"), ("bytes that are no UTF-8", b"\xff\xfe\xc0"),
            ("a tag of 60,000 bytes", "@g:{%s}" % ("x" * 60000)), ("wildcards", "w'%s'" % ("*a" * 5000)),
            ("a regular bomb", "*%s*" % ("a*" * 3000)),
            ("an empty query", ""), ("blanks", "   "), ("escapes to the end", "\\" * 1001)):
        reply = client.call("FT.SEARCH", "i", query, "NOCONTENT", "DIALECT", 2)
        check("%s: an answer or a reason" % name, isinstance(reply, list) or isinstance(reply, Error)
              and len(reply) < 2000, str(reply)[:200])
    fails("1,000 levels are refused", client.call("FT.SEARCH", "i", "(" * 1000 + "word" + ")" * 1000), ".")
    fails("a query above 64 KiB is refused", client.call("FT.SEARCH", "i", "word " * 20000),
          "65536|64 KiB|too long|bytes")
    for expression in ("(" * 10000 + "1" + ")" * 10000, "-" * 10000 + "1", "1" + "+1" * 30000, "@n" * 1000,
                       "!" * 50000, "'" * 9999, "format('" + "%s" * 5000 + "')"):
        reply = client.call("FT.AGGREGATE", "i", "*", "LOAD", 1, "@n", "APPLY", expression, "AS", "x")
        check("an expression of %d bytes: an answer or a reason" % len(expression), isinstance(reply, (list, Error))
              and len(str(reply)) < 20000, str(reply)[:200])
    reply = client.call("FT.AGGREGATE", "i", "*", *(["APPLY", "1", "AS", "x"] * 5000))
    check("10,000 steps: an answer or a reason", isinstance(reply, (list, Error)), str(reply)[:100])
    check("KNN of everything", client.call("FT.SEARCH", "i", "*=>[KNN 2147483647 @v $q]", "PARAMS", 2, "q",
                                           blob([1, 0, 0]), "NOCONTENT", "LIMIT", 0, 2147483647,
                                           "DIALECT", 2)[0] == 3)
    check("the server goes on", client.call("PING") == "PONG"
          and client.call("FT.SEARCH", "i", "*", "LIMIT", 0, 0) == [3])


def documents_that_cannot_be_indexed():
    client = Client()
    make(client)
    wait_filled(client, "i")
    for field, value in (("v", b"123"), ("n", "no number"), ("p", "nowhere"), ("p", "500,500")):
        key = "d:bad"
        client.call("DEL", key)
        check("HSET of %s %r succeeds" % (field, value), client.call("HSET", key, "g", "bad", field, value) == 2)
        check("and the whole document is out of the index",
              client.call("FT.SEARCH", "i", "@g:{bad}", "NOCONTENT", "DIALECT", 2) == [0])
    info = client.call("FT.INFO", "i")
    check("each is counted", info[info.index(b"hash_indexing_failures") + 1] == 4,
          info[info.index(b"hash_indexing_failures") + 1])
    check("a document that was in leaves when it turns bad", client.call("HSET", "d:1", "n", "x") == 0 and client.call(
        "FT.SEARCH", "i", "@g:{g1}", "NOCONTENT", "DIALECT", 2) == [0] and client.call("HSET", "d:1", "n", 1) == 0
        and client.call(
        "FT.SEARCH", "i", "@g:{g1}", "NOCONTENT", "DIALECT", 2) == [1, b"d:1"])

    client.call("FT.CREATE", "several", "ON", "JSON", "PREFIX", 1, "j:", "SCHEMA", "$.vs[*]", "AS", "v", "VECTOR", "FLAT",
                6, "TYPE", "FLOAT32", "DIM", 2, "DISTANCE_METRIC", "L2")
    wait_filled(client, "several")  # or a document may be looked at twice, and counted so
    client.call("JSON.SET", "j:1", "$", '{"vs":[[1,2]]}')
    client.call("JSON.SET", "j:2", "$", '{"vs":[[1,2],[3,4]]}')
    check("a document with one vector is in, one with several is not", client.call(
        "FT.SEARCH", "several", "*=>[KNN 9 @v $q]", "PARAMS", 2, "q", blob([1, 2]), "NOCONTENT") == [1, b"j:1"])
    info = client.call("FT.INFO", "several")
    errors = info[info.index(b"Index Errors") + 1]
    check("which is counted, with the reason", errors[1] == 1 and b"several vectors of one document" in errors[3], errors)


def searches_that_take_longer_than_they_may():
    client = Client()
    client.call("FT.CREATE", "big", "PREFIX", 1, "b:", "SCHEMA", "t", "TAG", "n", "NUMERIC")
    for first in range(0, 40000, 4000):
        client.pipeline(*(("HSET", "b:%d" % i, "t", "tag %d" % (i * 7919 % 40000), "n", i, "x", "y" * 100)
                          for i in range(first, first + 4000)))
    for words in (("SORTBY", "t"), ("LIMIT", 0, 40000), ("SORTBY", "t", "LIMIT", 0, 40000, "RETURN", 1, "x"),
                  ("SORTBY", "n", "LIMIT", 0, 40000, "NOCONTENT")):
        name = "FT.SEARCH big * " + " ".join(map(str, words))
        fails(name + " TIMEOUT 1", client.call("FT.SEARCH", "big", "*", *words, "TIMEOUT", 1),
              "timeout limit was reached")
        for timeout in (0, 100000):
            reply = client.call("FT.SEARCH", "big", "*", *words, "TIMEOUT", timeout)
            check("with TIMEOUT %d it answers" % timeout, isinstance(reply, list) and reply[0] == 40000,
                  str(reply)[:100])
    fails("within MULTI", client.transaction(("FT.SEARCH", "big", "*", "SORTBY", "t", "TIMEOUT", 1))[0],
          "timeout limit was reached")
    fails("FT.AGGREGATE TIMEOUT 1",
          client.call("FT.AGGREGATE", "big", "*", "GROUPBY", 1, "@t", "REDUCE", "COUNT", 0, "AS", "c", "TIMEOUT", 1),
          "timeout limit was reached")


if __name__ == "__main__":
    script(texts_that_clients_match, what_is_wrong_and_where, places, options_that_come_twice, what_quire_has_not, hostile,
           documents_that_cannot_be_indexed, searches_that_take_longer_than_they_may)
