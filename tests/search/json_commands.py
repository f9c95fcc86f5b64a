"""json_commands.py - JSON.*: what RedisJSON answers, by `$` paths (an array, an element for each match) and by old
ones (one value).

Written from RedisJSON's documentation; as_langchain_redis.py, as_spring_ai.py and the npm clients use the same
commands through their own readers.
"""
import json
import os
import random
import struct

import common  # noqa: F401
from wire import Client, Error, check, fails, script

packed_dumps = "QUIRE_ENGINE" in os.environ  # of quire.so in an engine
DOCUMENT = {"a": 1, "f": 1.5, "s": "text", "t": True, "n": None, "o": {"x": 1, "y": [1, 2]},
            "l": [1, "two", {"a": 3}, [4]], "e": []}


class Asked(Client):
    """eq(right, words...) checks a reply; its JSON is compared as JSON."""

    def eq(self, right, *words):
        seen = self.call(*words)
        shown = " ".join(w if isinstance(w, str) else str(w) for w in words)
        check(shown if len(shown) < 90 else shown[:90] + "...", same(seen, right), (seen, right))

    def json(self, right, *words):
        seen = self.call(*words)
        try:
            value = json.loads(seen)
        except (TypeError, ValueError):
            value = ("no JSON", seen)
        check(" ".join(map(str, words)), value == right, (seen, right))


def same(seen, right):
    if isinstance(seen, bytes) and isinstance(right, str):
        return seen == right.encode()
    if isinstance(seen, list) and isinstance(right, list):
        return len(seen) == len(right) and all(map(same, seen, right))
    return seen == right and isinstance(seen, Error) == isinstance(right, Error)


def reading_and_writing():
    c = Asked()
    c.eq("OK", "JSON.SET", "d", "$", json.dumps(DOCUMENT))
    c.json(DOCUMENT, "JSON.GET", "d")
    c.json(DOCUMENT, "JSON.GET", "d", ".")
    c.json([DOCUMENT], "JSON.GET", "d", "$")
    c.eq('[1]', "JSON.GET", "d", "$.a")
    c.eq('1', "JSON.GET", "d", ".a")
    c.eq('1', "JSON.GET", "d", "a")
    c.eq('"text"', "JSON.GET", "d", "s")
    c.json([1, 3], "JSON.GET", "d", "$..a")
    c.eq("[]", "JSON.GET", "d", "$.none")
    fails("JSON.GET of an old path that is not there", c.call("JSON.GET", "d", ".none"), "none|does not exist")
    c.eq(None, "JSON.GET", "none", "$")
    c.json({"$.a": [1], "$.s": ["text"]}, "JSON.GET", "d", "$.a", "$.s")
    c.json({".a": 1, ".s": "text"}, "JSON.GET", "d", ".a", ".s")
    c.json([4], "JSON.GET", "d", "$.l[3][0]")
    c.json([[4]], "JSON.GET", "d", "$.l[-1]")
    c.json([1, "two"], "JSON.GET", "d", "$.l[0:2]")
    c.json([1, [1, 2]], "JSON.GET", "d", "$.o.*")
    c.json([1, 1.5], "JSON.GET", "d", "$['a','f']")
    c.json([{"a": 3}], "JSON.GET", "d", "$.l[?(@.a==3)]")
    c.json([2], "JSON.GET", "d", "$.o.y[?(@>1)]")
    check("JSON.GET with INDENT, NEWLINE, SPACE", c.call("JSON.GET", "d", "INDENT", "  ", "NEWLINE", "\n", "SPACE",
                                                         " ", "$.o") ==
          b'[\n  {\n    "x": 1,\n    "y": [\n      1,\n      2\n    ]\n  }\n]',
          c.call("JSON.GET", "d", "INDENT", "  ", "NEWLINE", "\n", "SPACE", " ", "$.o"))
    c.eq("OK", "JSON.SET", "d", "$.o.z", '"new"')
    c.json(["new"], "JSON.GET", "d", "$.o.z")
    c.eq(None, "JSON.SET", "d", "$.no.where", "1")
    c.eq(None, "JSON.SET", "d", "$.a", "2", "NX")
    c.eq(None, "JSON.SET", "d", "$.none", "2", "XX")
    c.eq("OK", "JSON.SET", "d", "$..a", "7")
    c.json([7, 7], "JSON.GET", "d", "$..a")
    fails("JSON.SET of a new key not at its root", c.call("JSON.SET", "new", "$.a", "1"), "root|new objects")
    fails("JSON.SET of what is no JSON", c.call("JSON.SET", "d", "$", "{"), ".")
    fails("JSON.SET of what is no JSON", c.call("JSON.SET", "d", "$", "{'a': 1}"), ".")
    c.eq("OK", "SET", "text", "x")
    fails("JSON.GET of a string", c.call("JSON.GET", "text"), "wrong")
    fails("HGET of a document", c.call("HGET", "d", "a"), "WRONGTYPE")
    c.eq("ReJSON-RL", "TYPE", "d")
    deep = "[" * 129 + "]" * 129
    reply = c.call("JSON.SET", "deep", "$", deep)
    check("129 levels: an answer or a reason", reply == "OK" or isinstance(reply, Error), reply)
    fails("1,000,000 levels are refused", c.call("JSON.SET", "deep", "$", "[" * 1000000), ".")
    c.eq("OK", "JSON.SET", "u", "$", '{"k":"\\u00e9\\ud83d\\ude00","z":1e3,"big":12345678901234567890,"i":-0}')
    check("numbers and text come back as they were meant", json.loads(c.call("JSON.GET", "u"))["k"] == "é😀"
          and json.loads(c.call("JSON.GET", "u"))["z"] == 1000)


def removing():
    c = Asked()
    c.eq("OK", "JSON.SET", "d", "$", json.dumps(DOCUMENT))
    c.eq(2, "JSON.DEL", "d", "$..a")
    c.eq(0, "JSON.DEL", "d", "$..a")
    c.eq(1, "JSON.FORGET", "d", ".s")
    c.eq(1, "JSON.DEL", "d", "$.l[0]")
    c.json([["two", {}, [4]]], "JSON.GET", "d", "$.l")
    c.eq(1, "JSON.DEL", "d", "$")
    c.eq(0, "EXISTS", "d")
    c.eq(0, "JSON.DEL", "d")
    c.eq("OK", "JSON.SET", "d", "$", '{"n":5,"l":[1,2],"o":{"a":1},"s":"x","t":true}')
    c.eq(3, "JSON.CLEAR", "d", "$.*")
    c.json({"n": 0, "l": [], "o": {}, "s": "x", "t": True}, "JSON.GET", "d")
    c.eq(1, "JSON.CLEAR", "d")
    c.eq("{}", "JSON.GET", "d")


def several_keys():
    c = Asked()
    c.eq("OK", "JSON.MSET", "a", "$", '{"x":1}', "b", "$", '{"x":2}')
    c.eq(["[1]", None, "[2]"], "JSON.MGET", "a", "none", "b", "$.x")
    c.eq("OK", "JSON.SET", "plain", "$", "1")
    c.eq(None, "JSON.MSET", "b", "$.x", "3", "plain", "$.a.b", "1", "new", "$", "4")
    c.eq(["1", '{"x":2}', None], "JSON.MGET", "plain", "b", "new", ".")
    c.eq(["1", None, "2"], "JSON.MGET", "a", "none", "b", ".x")
    c.eq(["{\"x\":1}"], "JSON.MGET", "a", ".")
    c.eq("OK", "JSON.MERGE", "a", "$", '{"y":{"z":1},"x":null}')
    c.json({"y": {"z": 1}}, "JSON.GET", "a")
    c.eq("OK", "JSON.MERGE", "a", "$.y", '{"w":[1]}')
    c.json({"y": {"z": 1, "w": [1]}}, "JSON.GET", "a")
    c.eq("OK", "JSON.MERGE", "fresh", "$", '{"q":1}')
    c.json({"q": 1}, "JSON.GET", "fresh")


def parts():
    c = Asked()
    c.eq("OK", "JSON.SET", "d", "$", json.dumps(DOCUMENT))
    c.eq(["integer"], "JSON.TYPE", "d", "$.a")
    c.eq(["number"], "JSON.TYPE", "d", "$.f")
    c.eq(["string", "boolean", "null", "object", "array"], "JSON.TYPE", "d", "$['s','t','n','o','l']")
    c.eq("object", "JSON.TYPE", "d")
    c.eq([], "JSON.TYPE", "d", "$.none")
    c.eq(None, "JSON.TYPE", "none", "$")
    c.eq("[3]", "JSON.NUMINCRBY", "d", "$.a", 2)
    c.eq("4", "JSON.NUMINCRBY", "d", ".a", 1)
    c.eq("[null]", "JSON.NUMINCRBY", "d", "$.s", 1)
    c.eq("[4.5]", "JSON.NUMINCRBY", "d", "$.a", "0.5")
    c.eq([7], "JSON.STRAPPEND", "d", "$.s", '"ual"')
    c.eq([7], "JSON.STRLEN", "d", "$.s")
    c.eq(7, "JSON.STRLEN", "d", ".s")
    c.eq([None], "JSON.STRLEN", "d", "$.a")
    c.eq(None, "JSON.STRLEN", "none", ".s")
    c.eq([1], "JSON.ARRAPPEND", "d", "$.e", "1")
    c.eq([3], "JSON.ARRAPPEND", "d", "$.e", "2", '"x"')
    c.eq([None], "JSON.ARRAPPEND", "d", "$.a", "1")
    c.eq([3], "JSON.ARRLEN", "d", "$.e")
    c.eq([1], "JSON.ARRINDEX", "d", "$.e", "2")
    c.eq([-1], "JSON.ARRINDEX", "d", "$.e", '"2"')
    c.eq([-1], "JSON.ARRINDEX", "d", "$.e", "1", 1)
    c.eq([2], "JSON.ARRINDEX", "d", "$.e", '"x"', 1, 0)
    c.eq([5], "JSON.ARRINSERT", "d", "$.e", 1, "8", "9")
    c.json([[1, 8, 9, 2, "x"]], "JSON.GET", "d", "$.e")
    c.eq([6], "JSON.ARRINSERT", "d", "$.e", -1, "7")
    c.eq(['"x"'], "JSON.ARRPOP", "d", "$.e")
    c.eq(["1"], "JSON.ARRPOP", "d", "$.e", 0)
    c.eq("7", "JSON.ARRPOP", "d", ".e", -1)
    c.eq([2], "JSON.ARRTRIM", "d", "$.e", 1, 9)
    c.json([[9, 2]], "JSON.GET", "d", "$.e")
    c.eq([0], "JSON.ARRTRIM", "d", "$.e", 5, 9)
    c.eq([None], "JSON.ARRPOP", "d", "$.e")
    c.eq([["x", "y"]], "JSON.OBJKEYS", "d", "$.o")
    c.eq(["x", "y"], "JSON.OBJKEYS", "d", ".o")
    c.eq([2], "JSON.OBJLEN", "d", "$.o")
    c.eq([None], "JSON.OBJLEN", "d", "$.a")
    c.eq(None, "JSON.OBJLEN", "none")
    c.eq([0], "JSON.TOGGLE", "d", "$.t")
    c.eq([1], "JSON.TOGGLE", "d", "$.t")
    c.eq("false", "JSON.TOGGLE", "d", ".t")
    c.eq([None], "JSON.TOGGLE", "d", "$.a")
    c.eq([["[", 1, "two", ["{", "a", 3], ["[", 4]]], "JSON.RESP", "d", "$.l")


def in_resp3():
    c = Asked(3)
    c.eq("OK", "JSON.SET", "d", "$", json.dumps(DOCUMENT))
    c.eq('[1]', "JSON.GET", "d", "$.a")
    c.eq([["integer"]], "JSON.TYPE", "d", "$.a")
    check("JSON.NUMINCRBY is numbers", c.call("JSON.NUMINCRBY", "d", "$.a", 2) == [3],
          c.call("JSON.NUMINCRBY", "d", "$.a", 0))
    c.eq([None], "JSON.NUMINCRBY", "d", "$.s", 2)


def as_keys():
    """Documents are keys like others."""
    c = Asked()
    c.eq("OK", "JSON.SET", "d", "$", '{"a":1}')
    c.eq(1, "COPY", "d", "e")
    c.eq("OK", "RENAME", "e", "f")
    c.json({"a": 1}, "JSON.GET", "f")
    c.eq(1, "EXPIRE", "f", 100)
    check("TTL", c.call("TTL", "f") > 90)
    c.eq("OK", "JSON.SET", "f", "$.a", "2")
    check("a part that changes keeps the time to live", c.call("TTL", "f") > 90)
    c.eq("OK", "SET", "f", "text")
    c.eq("string", "TYPE", "f")
    dump = c.call("DUMP", "d")
    check("DUMP and RESTORE", isinstance(dump, bytes) and c.call("RESTORE", "g", 0, dump) == "OK"
          and c.call("JSON.GET", "g") == b'{"a":1}'
          or isinstance(dump, Error), dump)
    check("SCAN TYPE", sorted(c.call("SCAN", 0, "TYPE", "ReJSON-RL", "COUNT", 1000)[1])[:1] == [b"d"])
    check("MULTI", c.transaction(("JSON.SET", "m", "$", "1"), ("JSON.NUMINCRBY", "m", "$", 1),
                                 ("JSON.GET", "m")) == ["OK", b"[2]", b"2"])
    check("MEMORY USAGE", c.call("MEMORY", "USAGE", "d") > 0)
    check("UNLINK", c.call("UNLINK", "d", "m") == 2)


def vectors():
    """Lists of numbers are kept packed: whatever they are, the text is what it would be, in the document, in an index
    and through DUMP, and an index takes the same vector of it."""
    c = Asked()
    generator = random.Random(20)
    single = lambda x: struct.unpack("<f", struct.pack("<f", x))[0]
    some = {
        "floats": lambda: single(generator.uniform(-1, 1)),
        "doubles": lambda: generator.uniform(-1, 1),
        "six decimals": lambda: round(generator.uniform(-1, 1), 6),
        "short floats": lambda: float("%.7g" % single(generator.uniform(-1, 1))),
        "integers": lambda: generator.randint(-100, 100),
        "floats and 0": lambda: generator.choice([0, single(generator.uniform(-1, 1))]),
        "whole numbers of both kinds": lambda: generator.choice([0, 1.0, 2.5]),
    }
    c.call("FT.CREATE", "packed", "ON", "JSON", "PREFIX", 1, "packed:", "SCHEMA", "$.v", "AS", "v", "VECTOR", "FLAT", 6,
           "TYPE", "FLOAT32", "DIM", 32, "DISTANCE_METRIC", "L2", "$.g", "AS", "g", "TAG")
    for number, (what, give) in enumerate(some.items()):
        vector = [give() for _ in range(32)]
        vector[0] = vector[0] or 0.75
        text = json.dumps({"g": "tag%d" % number, "v": vector}, separators=(",", ":")).encode()
        key = "packed:%d" % number
        c.eq("OK", "JSON.SET", key, "$", text)
        check(what + ": JSON.GET", same_numbers(c.call("JSON.GET", key), text), (c.call("JSON.GET", key), text))
        whole = c.call("JSON.GET", key)
        check(what + ": a list of parts is the whole",
              json.loads(c.call("JSON.GET", key, "$.v[*]")) == vector == json.loads(c.call("JSON.GET", key, "$.v"))[0])
        check(what + ": FT.SEARCH", c.call("FT.SEARCH", "packed", "@g:{tag%d}" % number)[2] == [b"$", whole])
        check(what + ": FT.SEARCH RETURN", c.call("FT.SEARCH", "packed", "@g:{tag%d}" % number, "RETURN", 2, "$", "$.v")[2]
              == [b"$", whole, b"$.v", c.call("JSON.GET", key, ".v")])
        check(what + ": FT.AGGREGATE LOAD *", c.call("FT.AGGREGATE", "packed", "@g:{tag%d}" % number, "LOAD", "*")[1]
              == [b"$", whole])
        nearest = c.call("FT.SEARCH", "packed", "*=>[KNN 1 @v $b AS d]", "PARAMS", 2, "b",
                         struct.pack("<32f", *vector), "RETURN", 1, "d", "DIALECT", 2)
        check(what + ": its vector is found at distance 0", nearest[1:] == [key.encode(), [b"d", b"0"]], nearest)
        dump = c.call("DUMP", key)
        check(what + ": DUMP has the text", (whole in dump or packed_dumps)
              and c.call("RESTORE", "again", 0, dump, "REPLACE") == "OK"
              and c.call("JSON.GET", "again") == whole)
        changed = [vector[0] + 1] + vector[1:31] + ["end"]
        c.call("JSON.NUMINCRBY", key, "$.v[0]", 1)
        c.eq("OK", "JSON.SET", key, "$.v[31]", '"end"')
        check(what + ": changed", json.loads(c.call("JSON.GET", key, ".v")) == changed)
        check(what + ": what is no vector any more is not found",
              c.call("FT.SEARCH", "packed", "@g:{tag%d}" % number)[0] == 0)
    c.call("FT.DROPINDEX", "packed", "DD")


def same_numbers(seen, sent):
    """The numbers of both, with their types (1 is not 1.0), and nothing else differs."""
    return repr(json.loads(seen)) == repr(json.loads(sent))


if __name__ == "__main__":
    script(reading_and_writing, removing, several_keys, parts, in_resp3, as_keys, vectors)
