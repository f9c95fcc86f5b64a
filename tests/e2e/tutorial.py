"""tutorial.py - the examples of the vector set tutorial of Redis (redis.io, develop/data-types/vector-sets and filtered
search), typed in their order: the replies are those printed there. Where elements have equal scores their order is not
looked at, and numbers may differ in the last digits of a float. Started by run.sh with the server's port in QUIRE_PORT.
"""
import os
import shlex
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from resp_client import Stream, request

failed = 0
stream = Stream(int(os.environ["QUIRE_PORT"]))


def ask(command):
    return stream.ask([request(*shlex.split(command))])[0]


def plain(reply):
    if isinstance(reply, list):
        return [plain(x) for x in reply]
    return reply.decode() if isinstance(reply, bytes) else reply


def is_number(text):
    try:
        float(text)
    except (TypeError, ValueError):
        return False
    return True


def is_same(got, wanted):
    if isinstance(wanted, list):
        return isinstance(got, list) and len(got) == len(wanted) and all(map(is_same, got, wanted))
    if isinstance(wanted, str) and is_number(wanted) and is_number(got):
        return abs(float(got) - float(wanted)) < 1e-6
    return got == wanted


def check(command, wanted, alike=None):
    """wanted: the reply. alike: what is done to both before they are compared."""
    global failed
    got = plain(ask(command))
    right = is_same(alike(got) if alike else got, alike(wanted) if alike else wanted)
    print(("ok - " if right else "FAIL - ") + command, flush=True)
    if not right:
        failed += 1
        print("    | %r, not %r" % (got, wanted), flush=True)


def by_score(reply):
    """Names with scores, those of equal scores by name."""
    pairs = list(zip(reply[::2], reply[1::2]))
    return [x for pair in sorted(pairs, key=lambda p: (-round(float(p[1]), 6), p[0])) for x in pair]


POINTS = (("pt:A", "1.0 1.0"), ("pt:B", "-1.0 -1.0"), ("pt:C", "-1.0 1.0"), ("pt:D", "1.0 -1.0"), ("pt:E", "1.0 0"))
ask("DEL points quantSetQ8 quantSetNoQ quantSetBin setNotReduced setReduced movies")

for name, at in POINTS:
    check("VADD points VALUES 2 %s %s" % (at, name), 1)
check("TYPE points", "vectorset")
check("VCARD points", 5)
check("VDIM points", 2)
for name, at in (("pt:A", ["0.9999999403953552"] * 2), ("pt:B", ["-0.9999999403953552"] * 2),
                 ("pt:C", ["-0.9999999403953552", "0.9999999403953552"]),
                 ("pt:D", ["0.9999999403953552", "-0.9999999403953552"]), ("pt:E", ["1", "0"])):
    check("VEMB points " + name, at)

check("""VSETATTR points pt:A '{"name":"Point A","description":"First point added"}'""", 1)
check("VGETATTR points pt:A", '{"name":"Point A","description":"First point added"}')
check("VSETATTR points pt:A ''", 1)
check("VGETATTR points pt:A", None)

check("VADD points VALUES 2 0 0 pt:F", 1)
check("VCARD points", 6)
check("VREM points pt:F", 1)
check("VCARD points", 5)

check("VSIM points VALUES 2 0.9 0.1", ["pt:E", "pt:A", "pt:D", "pt:C", "pt:B"])
check("VSIM points ELE pt:A WITHSCORES",
      ["pt:A", "0.9999999403953552", "pt:E", "0.8535534143447876", "pt:C", "0.5", "pt:D", "0.5", "pt:B", "0"], by_score)
check("VSIM points ELE pt:A WITHSCORES COUNT 2", ["pt:A", "0.9999999403953552", "pt:E", "0.8535534143447876"])

for name, attributes in (("pt:A", '{"size":"large","price": 18.99}'), ("pt:B", '{"size":"large","price": 35.99}'),
                         ("pt:C", '{"size":"large","price": 25.99}'), ("pt:D", '{"size":"small","price": 21.00}'),
                         ("pt:E", '{"size":"small","price": 17.75}')):
    check("VSETATTR points %s %s" % (name, shlex.quote(attributes)), 1)
check("""VSIM points ELE pt:A FILTER '.size == "large"'""", ["pt:A", "pt:C", "pt:B"])
check("""VSIM points ELE pt:A FILTER '.size == "large" && .price > 20.00'""", ["pt:C", "pt:B"])

for kind, numbers in (("Q8", ["1.2643694877624512", "1.958230972290039"]),
                      ("NOQUANT", ["1.262184977531433", "1.958230972290039"]), ("BIN", ["1", "1"])):
    check("VADD quantSet%s VALUES 2 1.262185 1.958231 quantElement %s" % (kind, kind), 1)
    check("VEMB quantSet%s quantElement" % kind, numbers)

numbers = " ".join("%.6f" % (((i * 7919) % 1000) / 1000 + 0.001) for i in range(300))
check("VADD setNotReduced VALUES 300 %s element" % numbers, 1)
check("VDIM setNotReduced", 300)
check("VADD setReduced REDUCE 100 VALUES 300 %s element" % numbers, 1)
check("VDIM setReduced", 100)

# filtered search: the forms of expressions that its page shows
for i, (name, attributes) in enumerate((
        ("alien", '{"title":"Alien","year":1979,"rating":8.5,"genre":"horror","director":"Scott"}'),
        ("jaws", '{"title":"Jaws","year":1975,"rating":8.1,"genre":"thriller","director":"Spielberg"}'),
        ("et", '{"title":"E.T.","year":1982,"rating":7.9,"genre":"family","director":"Spielberg"}'),
        ("inception", '{"title":"Inception","year":2010,"rating":8.8,"genre":"action","director":"Nolan",'
                      '"is_classic":false}'),
        ("matrix", '{"title":"The Matrix","year":1999,"rating":8.7,"genre":"action","director":"Wachowski",'
                   '"is_classic":true}'))):
    check("VADD movies VALUES 3 1 %g 0 %s SETATTR %s" % (i / 10, name, shlex.quote(attributes)), 1)
for expression, names in ((".year >= 1980 and .rating > 7", ["et", "inception", "matrix"]),
                          ('.genre == "action" && .rating > 8.0', ["inception", "matrix"]),
                          ('.director in ["Spielberg", "Nolan"]', ["jaws", "et", "inception"]),
                          ("(.year - 2000) ** 2 < 100 and .rating / 2 > 4", ["matrix"]),
                          (".year % 2 == 1", ["alien", "jaws", "matrix"]),
                          ('"The" in .title', ["matrix"]), ("not .is_classic", ["inception"]),
                          (".is_classic", ["matrix"]), (".missing > 1", [])):
    check("VSIM movies VALUES 3 1 0 0 FILTER %s" % shlex.quote(expression), names)
check("VSIM movies VALUES 3 1 0 0 COUNT 2 FILTER '.year > 0' FILTER-EF 500", ["alien", "jaws"])

check("VISMEMBER points pt:A", 1)
check("VISMEMBER points pt:X", 0)
check("VRANGE points - + 3", ["pt:A", "pt:B", "pt:C"])
check("VRANGE points (pt:C + 3", ["pt:D", "pt:E"])
check("VRANGE points [pt:B [pt:C -1", ["pt:B", "pt:C"])
check("VLINKS points pt:X", None)
check("VRANDMEMBER nothing", None)
check("VRANDMEMBER nothing 3", [])
ask("DEL points quantSetQ8 quantSetNOQUANT quantSetBIN setNotReduced setReduced movies")
sys.exit(1 if failed else 0)
