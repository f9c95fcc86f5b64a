"""redis_py.py - the server through redis-py as Debian ships it (RESP2), compared with brute force in plain Python.

Started by run.sh: QUIRE_PORT is a server with the rows of QUIRE_WORK/base.fbin loaded under "words", named by the lines
of QUIRE_WORK/names.
"""
import array
import json
import operator
import os
import struct
import sys
import threading

import redis

PORT, WORK, KEY, K = int(os.environ["QUIRE_PORT"]), os.environ["QUIRE_WORK"], "words", 10
failed = 0


def check(name, right, seen=""):
    global failed
    print(("ok - " if right else "FAIL - ") + name, flush=True)
    if not right:
        failed += 1
        print("    | " + repr(seen)[:600], flush=True)


def fails(name, function, text):
    try:
        check(name, False, function())
    except redis.ResponseError as e:
        check(name, text in str(e), str(e))


def read_fbin(path):
    with open(path, "rb") as file:
        rows, dim = struct.unpack("<II", file.read(8))
        numbers = array.array("f", file.read(rows * dim * 4))
    return [numbers[i * dim:(i + 1) * dim] for i in range(rows)]


def unit(v):
    norm = sum(map(operator.mul, v, v)) ** 0.5
    return [x / norm for x in v]


base = [unit(v) for v in read_fbin(os.path.join(WORK, "base.fbin"))]
queries = read_fbin(os.path.join(WORK, "base.query.fbin"))
with open(os.path.join(WORK, "names"), encoding="utf-8") as names_file:
    names = names_file.read().split("\n")[:len(base)]
row_of = {name: row for row, name in enumerate(names)}


def score(query, name):
    """As Redis: 1 for the same direction, 0 for the opposite."""
    return (1 + sum(map(operator.mul, query, base[row_of[name]]))) / 2


def brute_force(query):
    return sorted(names, key=lambda name: -score(query, name))[:K]


truth = [brute_force(unit(q)) for q in queries]


def pairs_of(flat):
    return [(flat[i], float(flat[i + 1])) for i in range(0, len(flat), 2)]


def judge(label, replies):
    """Recall against brute force, and each score against its definition."""
    found = sum(len({name for name, _ in reply} & set(t)) for reply, t in zip(replies, truth))
    recall = found / (K * len(truth))
    worst = max(abs(s - score(unit(q), name)) for q, reply in zip(queries, replies) for name, s in reply)
    check("%s: recall %.3f is at least 0.9" % (label, recall), recall >= 0.9)
    check("%s: scores are within 0.01 (%.2g)" % (label, worst), worst < 0.01)
    check("%s: nearest first" % label, all(r == sorted(r, key=lambda p: -p[1]) for r in replies))
    return recall


r = redis.Redis(port=PORT, decode_responses=True)
b = redis.Redis(port=PORT)

# one connection
check("ping", r.ping() is True)
check("echo of any bytes", b.echo(bytes(range(256))) == bytes(range(256)))
check("client_setname, client_getname", r.client_setname("e2e") is True and r.client_getname() == "e2e")
check("client_id", isinstance(r.client_id(), int))
config = r.config_get("*")
check("config_get is a dictionary", config.get("port") == str(PORT) and config.get("databases") == "1", config)
info = r.info()
check("info parses", info["tcp_port"] == PORT and info["role"] == "master" and info["db0"]["keys"] == 1, info)
check("info('commandstats') parses", r.info("commandstats")["cmdstat_ping"]["calls"] >= 1, r.info("commandstats"))
check("dbsize, exists, type", r.dbsize() == 1 and r.exists(KEY, "no") == 1 and r.type(KEY) == "vectorset")
check("command_count, command_list", r.command_count() == len(r.execute_command("COMMAND LIST")), r.command_count())
check("command() parses", r.command()["vsim"]["arity"] == -4, r.command().get("vsim"))

# elements
check("VCARD, VDIM", (r.execute_command("VCARD", KEY), r.execute_command("VDIM", KEY)) == (4000, 64))
vector = [float(x) for x in r.execute_command("VEMB", KEY, names[7])]
cosine = sum(map(operator.mul, unit(vector), base[7]))
check("VEMB is the row, up to quantization", len(vector) == 64 and cosine > 0.999, cosine)
raw = b.execute_command("VEMB", KEY, names[7], "RAW")
check("VEMB RAW is binary", raw[0] == b"int8" and abs(float(raw[2]) - 1) < 1e-6 and max(
    abs(x - y * float(raw[3]) / 127) for x, y in zip(vector, struct.unpack("<64b", raw[1]))) < 0.005, raw)
check("VISMEMBER", [r.execute_command("VISMEMBER", KEY, n) for n in (names[7], "nobody")] == [1, 0])
links = r.execute_command("VLINKS", KEY, names[7])
check("VLINKS names elements", len(links) == 1 and links[0] and all(n in row_of for n in links[0]), links)
some = r.execute_command("VRANDMEMBER", KEY, 100)
check("VRANDMEMBER without repetition", len(set(some)) == 100 and all(n in row_of for n in some), some)

# sets that are written
SET = "e2e:set"
with r.pipeline(transaction=False) as p:
    for i in range(500):
        p.execute_command("VADD", SET, "VALUES", 64, *base[i], names[i], "SETATTR", '{"row":%d}' % i)
    check("500 VADD in a pipeline", p.execute() == [1] * 500)
check("VADD of an element that is there", b.execute_command("VADD", SET, "FP32", queries[0].tobytes(), names[0]) == 0)
check("VCARD, VDIM of what was added", (r.execute_command("VCARD", SET), r.execute_command("VDIM", SET)) == (500, 64))
hits = r.execute_command("VSIM", SET, "FP32", queries[0].tobytes(), "WITHSCORES", "WITHATTRIBS", "COUNT", 3)
check("VSIM WITHSCORES WITHATTRIBS finds it", len(hits) == 9 and hits[0] == names[0] and float(hits[1]) > 0.999
      and hits[2] == '{"row":0}', hits)
check("VSETATTR, VGETATTR", r.execute_command("VSETATTR", SET, names[1], '{"x":"\u00df"}') == 1
      and r.execute_command("VGETATTR", SET, names[1]) == '{"x":"\u00df"}')
check("VSEAL, and the same is found", r.execute_command("VSEAL", SET) in (True, "OK")
      and r.execute_command("VSIM", SET, "FP32", queries[0].tobytes(), "COUNT", 3) == hits[0::3])
check("VRANGE is in order", r.execute_command("VRANGE", SET, "-", "+") == sorted(names[:500]))
check("VREM", [r.execute_command("VREM", SET, names[i]) for i in (1, 1)] == [1, 0])
check("VISMEMBER of what was removed", r.execute_command("VISMEMBER", SET, names[1]) == 0)
fails("VADD of another dimension", lambda: r.execute_command("VADD", SET, "VALUES", 2, 1, 2, "x"),
      "Vector dimension mismatch - got 2 but set has 64")
fails("VADD to a string", lambda: r.set("e2e:t", "x") and r.execute_command("VADD", "e2e:t", "VALUES", 2, 1, 2, "x"),
      "wrong kind of value")
check("expire, rename, delete of a set", r.expire(SET, 1000) and r.rename(SET, SET + "2")
      and 990 < r.ttl(SET + "2") <= 1000 and r.type(SET + "2") == "vectorset" and r.delete(SET + "2", "e2e:t") == 2)

# filters and tenants, compared with plain Python
FILTERED = "e2e:filtered"
TENANTS = ("red", "green", "blue")
attributes = [{"row": i, "kind": "even" if i % 2 == 0 else "odd", "tags": ["t%d" % (i % 7), "all"]} for i in range(600)]
check("VCREATE with attributes", r.execute_command("VCREATE", FILTERED, "DIM", 64, "TENANTS", "ATTR", "row", "integer",
                                                   "INDEXED") in (True, "OK"))
with r.pipeline(transaction=False) as p:
    for i, a in enumerate(attributes):
        p.execute_command("VADD", FILTERED, "VALUES", 64, *base[i], names[i], "SETATTR", json.dumps(a),
                          "TENANT", TENANTS[i % 3])
    check("600 VADD with SETATTR and TENANT", p.execute() == [1] * 600)
FILTERS = [(".row < 50", lambda a: a["row"] < 50), (".kind == 'odd' and .row >= 500",
                                                    lambda a: a["kind"] == "odd" and a["row"] >= 500),
           ('"t3" in .tags || .row in [1, 2, 3]', lambda a: "t3" in a["tags"] or a["row"] in (1, 2, 3)),
           ("not (.row > 10)", lambda a: a["row"] <= 10), (".nothing == 1", lambda a: False)]


def filtered(expression, *options):
    return r.execute_command("VSIM", FILTERED, "FP32", queries[3].tobytes(), "FILTER", expression, *options)


for state in ("in memory", "sealed"):
    for text, matches in FILTERS:
        right = {names[i] for i, a in enumerate(attributes) if matches(a)}
        check("FILTER %s, %s" % (text, state), set(filtered(text, "COUNT", 600)) == right
              and len(filtered(text)) == min(10, len(right)), filtered(text, "COUNT", 600))
        check("VCOUNT and VDELWHERE DRYRUN agree", r.execute_command("VCOUNT", FILTERED, "FILTER", text) == len(right)
              and r.execute_command("VDELWHERE", FILTERED, "FILTER", text, "DRYRUN") == len(right))
    reds = {names[i] for i in range(0, 600, 3)}
    check("TENANT, " + state, set(filtered(".row >= 0", "COUNT", 600, "TENANT", "red")) == reds)
    check("VTENANTS, " + state, r.execute_command("VTENANTS", FILTERED) == ["blue", 200, "green", 200, "red", 200])
    r.execute_command("VSEAL", FILTERED)
check("ACL SETUSER with a tenant", r.acl_setuser("e2e-red", enabled=True, nopass=True, keys=["e2e:*"],
                                                 commands=["+@all"]) is True
      and r.execute_command("ACL", "SETUSER", "e2e-red", "tenant:red") in (True, "OK"))
with redis.Redis(port=PORT, username="e2e-red", password="x", decode_responses=True) as red:
    seen = red.execute_command("VSIM", FILTERED, "FP32", queries[3].tobytes(), "COUNT", 600)
    check("a user who is bound sees its own", set(seen) == reds, len(seen))
    check("and nothing else", red.execute_command("VCARD", FILTERED) == 200
          and red.execute_command("VEMB", FILTERED, names[1]) is None
          and red.execute_command("VISMEMBER", FILTERED, names[1]) == 0
          and set(red.execute_command("VRANGE", FILTERED, "-", "+")) == reds)
    fails("nor whose the others are", lambda: red.execute_command("VGETGRANTS", FILTERED, names[0]), "bound to tenants")
    fails("nor may it ask for others", lambda: red.execute_command("VSIM", FILTERED, "ELE", names[0], "TENANT", "blue"),
          "bound to other tenants")
    check("VGRANT lets it see more", r.execute_command("VGRANT", FILTERED, names[1], "red") == 1
          and red.execute_command("VISMEMBER", FILTERED, names[1]) == 1
          and r.execute_command("VGETGRANTS", FILTERED, names[1]) == ["green", "red"]
          and r.execute_command("VREVOKE", FILTERED, names[1], "red") == 1)
check("VDELWHERE", r.execute_command("VDELWHERE", FILTERED, "FILTER", ".row < 300") == 300
      and r.execute_command("VCARD", FILTERED) == 300)
check("VDROPTENANT", r.execute_command("VDROPTENANT", FILTERED, "red") == 100
      and r.execute_command("VTENANTS", FILTERED) == ["blue", 100, "green", 100])
check("what was made for it goes", r.acl_deluser("e2e-red") == 1 and r.delete(FILTERED) == 1)

# errors are exceptions, and the connection lives on
fails("wrong dimension", lambda: r.execute_command("VSIM", KEY, "VALUES", 2, 1, 2), "dimension mismatch")
fails("FP32 that is no row of numbers", lambda: b.execute_command("VSIM", KEY, "FP32", b"abc"), "FP32")
fails("syntax", lambda: r.execute_command("VSIM", KEY, "ELE", names[0], "COUNT"), "syntax error")
fails("unknown element", lambda: r.execute_command("VSIM", KEY, "ELE", "nobody"), "element not found")
fails("unknown command", lambda: r.execute_command("NOSUCHCOMMAND", "a"), "unknown command")
check("set, get", r.set("e2e:s", "b", ex=100) is True and r.get("e2e:s") == "b" and 90 < r.ttl("e2e:s") <= 100)
check("set nx", r.set("e2e:s", "c", nx=True) is None and r.set("e2e:s", "c", get=True) == "b")
check("incr", r.incr("e2e:n", 5) == 5 and r.decr("e2e:n") == 4)
check("hset, hgetall", r.hset("e2e:h", mapping={"a": "1", "b": "2"}) == 2 and r.hgetall("e2e:h") == {"a": "1", "b": "2"})
check("hscan_iter", dict(r.hscan_iter("e2e:h")) == {"a": "1", "b": "2"})
check("scan_iter", sorted(r.scan_iter("e2e:*")) == ["e2e:h", "e2e:n", "e2e:s"])
fails("wrong type", lambda: r.get("e2e:h"), "wrong kind of value")
check("delete", r.delete("e2e:s", "e2e:n", "e2e:h") == 3)
fails("a wrong filter", lambda: r.execute_command("VSIM", KEY, "ELE", names[0], "FILTER", ".a=="),
      "syntax error in FILTER expression")
check("the connection lives on after errors", r.ping() is True)

# searches
def search(client, query, *options):
    return pairs_of(client.execute_command("VSIM", KEY, "FP32", query.tobytes(), "WITHSCORES", "COUNT", K, *options))


judge("FP32", [search(r, q) for q in queries])
judge("VALUES", [pairs_of(r.execute_command("VSIM", KEY, "VALUES", len(q), *q, "WITHSCORES", "COUNT", K))
                 for q in queries])
exact = judge("TRUTH", [search(r, q, "TRUTH") for q in queries])
check("TRUTH finds nearly all (rows are stored quantized)", exact >= 0.98, exact)
close = [p for p in search(r, queries[0], "EPSILON", "0.1") if p[1] < 0.9]
check("EPSILON leaves out what is further", close == [], close)
self_first = [r.execute_command("VSIM", KEY, "ELE", names[i], "COUNT", 1) == [names[i]] for i in range(0, 4000, 40)]
check("ELE finds itself", all(self_first), self_first)

# pipelines
with r.pipeline(transaction=False) as p:
    for q in queries:
        p.execute_command("VSIM", KEY, "FP32", q.tobytes(), "WITHSCORES", "COUNT", K)
        p.echo("between")
    replies = p.execute()
check("a pipeline answers in order", replies[1::2] == ["between"] * len(queries), replies[1::2])
judge("pipeline", [pairs_of(x) for x in replies[0::2]])
with r.pipeline(transaction=False) as p:
    p.ping().execute_command("VSIM", KEY, "VALUES", 1, 1).execute_command("VCARD", KEY)
    replies = p.execute(raise_on_error=False)
check("an error in a pipeline stays in its place",
      replies[0] is True and isinstance(replies[1], redis.ResponseError) and replies[2] == 4000, replies)
with r.pipeline(transaction=False) as p:
    for i in range(5000):
        p.echo(str(i))
    check("5000 requests in one pipeline", p.execute() == [str(i) for i in range(5000)])

# what operators use
old = r.config_get("slowlog-log-slower-than")["slowlog-log-slower-than"]
check("config_set", r.config_set("slowlog-log-slower-than", 0) is True)
search(r, queries[0])
entries = [e for e in r.slowlog_get(10) if e["command"].startswith(b"VSIM words")]
check("slowlog_get", entries and entries[0]["duration"] > 0, entries)
r.config_set("slowlog-log-slower-than", -1) # on a busy machine any command may be slow
check("slowlog_len, slowlog_reset", r.slowlog_len() > 0 and r.slowlog_reset() and r.slowlog_len() == 0)
r.config_set("slowlog-log-slower-than", old)
with redis.Redis(port=PORT, client_name="victim", decode_responses=True) as victim:
    victim.ping()
    found = [c for c in r.client_list() if c["name"] == "victim"]
    check("client_list", len(found) == 1 and found[0]["cmd"] == "ping", found)
    check("client_info", victim.client_info()["id"] == victim.client_id())
    check("client_kill_filter", r.client_kill_filter(_id=found[0]["id"]) == 1)
check("client_pause, client_unpause", r.client_pause(1) and r.client_unpause())
with r.monitor() as m:
    r.echo("watched")
    seen = m.next_command()
    check("monitor", seen["command"] == "ECHO watched" and seen["client_type"] == "tcp", seen)
check("latency_histogram, memory_stats, time", r.execute_command("LATENCY", "HISTOGRAM", "vsim")[0] == "vsim"
      and r.memory_stats()["keys.count"] == 1 and r.time()[0] > 0)
check("memory_usage", r.memory_usage(KEY) > 0 and r.memory_usage("nothing") is None)
check("info: errorstats", str(r.info("errorstats")["errorstat_ERR"]).startswith("count="), r.info("errorstats"))
check("role", r.role()[0] == "master", r.role())

# many at once
expected = [[name for name, _ in search(r, q)] for q in queries]
wrong = []


def work(seed):
    try:
        with redis.Redis(port=PORT, decode_responses=True) as own:
            for i in range(100):
                n = (seed * 37 + i) % len(queries)
                reply = search(own, queries[n])
                if [name for name, _ in reply] != expected[n] or own.echo(str(i)) != str(i):
                    wrong.append((seed, n, reply))
    except redis.RedisError as e:
        wrong.append((seed, e))


threads = [threading.Thread(target=work, args=(seed,)) for seed in range(20)]
for t in threads:
    t.start()
for t in threads:
    t.join()
check("20 threads get what one gets", wrong == [], wrong[:2])
sys.exit(failed > 0)
