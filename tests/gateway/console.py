"""console.py BUILD_DIR - the API behind the page at /ui (docs/console-api.md): each endpoint with data and without, the
same figures as by RESP, rights, and clients that mean harm. One line per check; exit status 0 when nothing failed."""
import base64
import gzip
import hashlib
import http.client
import json
import pathlib
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from urllib.parse import quote_from_bytes, urlencode

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from gateway_process import Gateway, Server, StandIn, ask, chat, until  # noqa: E402
from gateway_rig import check, end  # noqa: E402

BUILD = pathlib.Path(sys.argv[1])
EVIL = b"<img src=x onerror=alert(1)>"


class Resp:
    """RESP2, as little as is needed."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), 60)
        self.file = self.socket.makefile("rb")

    def __call__(self, *words):
        words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        self.socket.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words))
        return self.read()

    def read(self):
        line = self.file.readline()[:-2]
        kind, rest = line[:1], line[1:]
        if kind == b"-":
            raise RuntimeError(rest.decode())
        if kind == b"$":
            return None if rest == b"-1" else self.file.read(int(rest) + 2)[:-2].decode("utf-8", "replace")
        if kind == b"*":
            return [self.read() for _ in range(int(rest))]
        return int(rest) if kind == b":" else rest.decode()

    def map(self, *words):
        flat = self(*words)
        return dict(zip(flat[::2], flat[1::2]))


def get(gateway, name, key=None, headers=(), host=None, **query):
    path = "/ui/api/" + name + ("?" + urlencode(query) if query else "")
    return call(gateway, "GET", path, None, key, headers, host)


def post(gateway, name, body, key=None, headers=(), host=None):
    return call(gateway, "POST", "/ui/api/" + name, body, key,
                {"Content-Type": "application/json", **dict(headers)}, host)


def call(gateway, method, path, body=None, key=None, headers=(), host=None):
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=60)
    fields = dict(headers)
    fields["Host"] = host or "127.0.0.1:%d" % gateway.port
    if key:
        fields["Authorization"] = key
    connection.request(method, path, body if body is None or isinstance(body, bytes) else json.dumps(body), fields)
    reply = connection.getresponse()
    reply.body = reply.read()
    connection.close()
    try:
        reply.value = json.loads(reply.body)
    except ValueError:
        reply.value = None
    return reply


def error(reply):
    return (reply.status, ((reply.value or {}).get("error") or {}).get("code"))


def basic(user, password):
    return "Basic " + base64.b64encode(("%s:%s" % (user, password)).encode()).decode()


def vector(*numbers):
    return struct.pack("<%df" % len(numbers), *numbers)


def seed(redis):
    redis("SC.CREATE", "llm", "DIM", 4)
    redis("SC.CAT.SET", "llm", "faq", "SIM", "0.9")
    redis("SC.CAT.SET", "llm", "risky", "RISK", "0.05", "AUDIT", "1")
    for i in range(20):
        redis("SC.PUT", "llm", "CAT", "faq", "SCOPE", "tenant", "t%d" % (i % 3), "VEC", vector(1, i * .1, .2, .1), "TEXT",
              EVIL + b" %d" % i, "VALUE", "answer %d" % i, "TOKENS", 10, 20, "COST", "0.5")
    redis("SC.PUT", "llm", "CAT", "risky", "VEC", vector(1, 0, 0, 0), "TEXT", b"bad \xff\xfe bytes", "VALUE", "x" * 70000)
    redis("SC.GET", "llm", "CAT", "faq", "SCOPE", "tenant", "t1", "VEC", vector(1, .1, .2, .1), "TEXT", EVIL + b" 1")
    for i in range(8):
        redis("SC.GET", "llm", "CAT", "risky", "VEC", vector(1, .01 * i, 0, 0), "TEXT", "risky %d" % i, "NOLEASE")
    for i in range(300):
        redis("VADD", "s", "VALUES", 4, 1, i, i * i % 7, 3, "e%d" % i, "SETATTR", '{"a":%d}' % i)
    redis("VGRANT", "s", "e0", "acme", "bolt")
    redis("VGRANT", "s", "e2", "bolt", EVIL)
    redis("VGRANT", "s", "e3", *["t%02d" % i for i in range(20)])
    redis("VADD", b"set \xff " + EVIL, "VALUES", 2, 1, 2, b"element \xfe")
    redis("SET", "plain", "1")


def empty(gateway):
    """A server without anything in it."""
    for name in ["me", "overview", "history", "caches", "requests", "tenants", "sets", "server"]:
        reply = get(gateway, name)
        check("empty: %s answers 200" % name, reply.status == 200 and reply.value is not None, (reply.status, reply.body))
    check("empty: no caches, sets, requests", get(gateway, "caches").value == {"caches": []} and
          get(gateway, "sets").value["sets"] == [] and get(gateway, "requests").value["requests"] == [])
    for name, query in [("categories", {"cache": "llm"}), ("category", {"cache": "llm", "category": "faq"}),
                        ("entries", {"cache": "llm"}), ("set", {"set": "s"}), ("map", {"set": "s"})]:
        reply = get(gateway, name, **query)
        check("empty: %s is not found" % name, error(reply) == (404, "not_found"), reply.body)


def steady_figures(gateway, redis):
    """SC.STATS and the page's figures of one moment: memory moves while what came before is still being worked off."""
    for _ in range(100):
        stats = redis.map("SC.STATS", "llm")
        seen = get(gateway, "categories", cache="llm").value
        if redis.map("SC.STATS", "llm")["memory_bytes"] == stats["memory_bytes"]:
            break
        time.sleep(0.05)
    return stats, seen


def same_figures(gateway, redis):
    """What RESP says."""
    stats, seen = steady_figures(gateway, redis)
    for name in ["entries", "requests", "hits", "misses", "guarded", "tokens_saved", "memory_bytes"]:
        check("categories: the cache's %s is RESP's" % name, seen["cache"][name] == stats[name], (seen["cache"], stats))
    check("categories: cost saved is RESP's", abs(seen["cache"]["cost_saved"] - float(stats["cost_saved"])) < 1e-9)
    check("categories: names", sorted(c["name"] for c in seen["categories"]) == sorted(redis("SC.CAT.LIST", "llm")), seen)
    for category in seen["categories"]:
        name = category["name"]
        check("category %s: settings are RESP's" % name,
              category["settings"] == redis.map("SC.CAT.GET", "llm", name), category["settings"])
        tune = redis.map("SC.TUNE", "llm", name)
        check("category %s: threshold is RESP's" % name,
              abs(category["tune"]["threshold"] - float(tune["threshold"])) < 1e-9 and "points" not in category["tune"] and
              "bound" in category["tune"], category["tune"])
    one = get(gateway, "category", cache="llm", category="faq", risk="0.1", top=3).value
    check("category: histogram is RESP's", [[float(x) for x in row] for row in one["hist"]] ==
          [[float(x) for x in row] for row in redis("SC.HIST", "llm", "faq")], one["hist"])
    curve = redis.map("SC.TUNE", "llm", "faq", "RISK", "0.1")
    check("category: the curve of another risk is RESP's", abs(one["risk"]["delta"] - 0.1) < 1e-6 and
          len(one["risk"]["points"]) == len(curve["points"]), one["risk"])
    check("category: three top entries", len(one["top"]) == 3 and one["top"][0]["hits"] == 1 and
          "value" not in one["top"][0], one["top"])
    top = get(gateway, "category", cache="llm", category="risky", top=1, values="yes").value
    check("category: with answers, cut", top["top"][0]["value"] == "x" * 65536 and top["truncated"] is True, len(str(top)))
    check("categories: names of all", seen["names"] == redis("SC.CAT.LIST", "llm"), seen["names"])
    info = redis.map("VINFO", "s")
    view = get(gateway, "set", set="s").value
    check("set: VINFO is RESP's", all(view["info"][k] == v for k, v in info.items() if isinstance(v, int)), view["info"])
    check("set: segments are RESP's", view["segments"] == redis("VSEGMENTS", "s"), view["segments"])
    names = ["s", "no such set", "plain"]
    known = post(gateway, "sets", {"names": names}).value
    check("sets: by name, without a scan", [s["name"] for s in known["sets"]] == names and known["sets"][0]["info"]["size"] ==
          info["size"] and known["sets"][1]["info"] is None and known["sets"][2]["info"]["error"] and
          known["quire"]["collections"] >= 1, known)
    for wrong in ["s", [1], {"s": 1}, ["x"] * 2049]:
        check("sets: %.20s is no list of names" % wrong, error(post(gateway, "sets", {"names": wrong})) == (400, "bad_request"))
    check("set: a sample and its memory", len(view["sample"]) == 10 and view["memory"] > 0, view)
    text = redis("INFO", "quire")
    overview = get(gateway, "overview").value
    for name in ["searches", "segments", "collections", "merges"]:
        check("overview: %s is RESP's" % name, str(overview["server"]["quire"][name]) ==
              re.search("^%s:(.*)$" % name, text, re.M).group(1).strip(), overview["server"]["quire"])
    check("overview: the cache's line is an object", overview["server"]["cache"]["cache0"]["name"] == "llm",
          overview["server"]["cache"])
    tenants = get(gateway, "tenants", cache="llm").value
    check("tenants: scopes are RESP's", [[s["scope"], s["entries"], s["requests"]] for s in tenants["scopes"]] ==
          [[s[1], s[3], s[5]] for s in stats["scopes"]] and len(tenants["scopes"]) == 4, (tenants, stats["scopes"]))
    server = get(gateway, "server").value
    values = redis.map("CONFIG", "GET", "*")
    check("server: settings are RESP's", {s["name"]: s["value"] for s in server["settings"]} == values, server["settings"])
    differs = {s["name"]: s["default"] for s in server["settings"] if s["differs"]}
    check("server: says which settings differ", "port" in differs and differs["port"] == "6379" and
          "maxclients" not in differs and "appendfsync" not in differs, differs)
    check("server: clients, slow log, latency", any(c["cmd"] == "client|list" for c in server["clients"]) and
          isinstance(server["slowlog"], list) and isinstance(server["latency"], list) and server["histogram"], server)
    check("server: the log's tail is RESP's", server["log"] and server["log"] == redis("LOGTAIL", "200")[:len(server["log"])],
          server["log"])


def walk(gateway):
    """All entries by the cursor; the sample of a map."""
    cursor, seen = "0", []
    for _ in range(100):
        page = get(gateway, "entries", cache="llm", cursor=cursor, count=7).value
        seen += page["entries"]
        cursor = page["cursor"]
        if cursor == "0":
            break
    check("entries: each once", len(seen) == 21 and len({e["id"] for e in seen}) == 21, len(seen))
    texts = [e["text"] for e in seen]
    check("entries: markup stays text", EVIL.decode() + " 0" in texts, texts)
    own = get(gateway, "entries", cache="llm", category="risky", values="yes").value
    check("entries: of one category, with answers, cut", own["cursor"] == "0" and [e["category"] for e in own["entries"]] ==
          ["risky"] and own["entries"][0]["value"] == "x" * 65536 and "value" not in page["entries"][0], str(own)[:300])
    check("entries: no such category", error(get(gateway, "entries", cache="llm", category="nope")) == (404, "not_found"))
    check("entries: bytes that are no UTF-8 are U+FFFD", "bad \ufffd\ufffd bytes" in texts, texts)
    sample = get(gateway, "map", set="s", count=50).value
    numbers = base64.b64decode(sample["vectors"])
    check("map: 50 elements of 4 dimensions", len(sample["elements"]) == 50 and len(sample["scale"]) == 50 and
          len(numbers) == 200 and sample["dimensions"] == 4 and sample["size"] == 300, sample)
    first = sample["elements"][0]["element"]
    row = [x * sample["scale"][0] for x in struct.unpack("4b", numbers[:4])]
    n = int(first[1:])
    check("map: the vector within its step", all(abs(a - b) <= 0.03 * max(1, n, 6) for a, b in
                                                 zip(row, [1, n, n * n % 7, 3])), (first, row))
    check("map: attributes", json.loads(sample["elements"][0]["attributes"]) == {"a": n}, sample["elements"][0])
    everything = get(gateway, "map", set="s").value
    check("map: all of a small set", len({e["element"] for e in everything["elements"]}) == 300)
    whose = {e["element"]: e["tenants"] for e in everything["elements"]}
    check("map: whose elements are", whose["e0"] == ["acme", "bolt"] and whose["e1"] == [] and
          whose["e2"] == [EVIL.decode(), "bolt"] and "tenants" not in everything, [whose["e%d" % i] for i in range(3)])
    check("map: at most 16 tenants of an element", whose["e3"] == ["t%02d" % i for i in range(16)] and
          everything["truncated"] is True, whose["e3"])
    sample = get(gateway, "map", cache="llm", category="faq").value
    numbers = base64.b64decode(sample["vectors"])
    check("map: of a category", len(sample["elements"]) == 20 and len(numbers) == 80 and len(sample["scale"]) == 20 and
          sample["dimensions"] == 4 and {e["scope"] for e in sample["elements"]} == {"tenant=t0", "tenant=t1", "tenant=t2"}
          and all(e["category"] == "faq" and "vector" not in e for e in sample["elements"]), sample)
    worst = 0
    for i, element in enumerate(sample["elements"]):
        n = int(element["text"].split()[-1])
        right = [1, n * .1, .2, .1]
        length = sum(x * x for x in right) ** .5
        row = [x * sample["scale"][i] for x in struct.unpack("4b", numbers[4 * i:4 * i + 4])]
        worst = max([worst] + [abs(a - b / length) for a, b in zip(row, right)])
    check("map: a category's vectors are those that were put", worst < .02, worst)
    check("map: of a whole cache", {e["category"] for e in get(gateway, "map", cache="llm", count=2000).value["elements"]} ==
          {"faq", "risky"} and len(get(gateway, "map", cache="llm", count=5).value["elements"]) == 5)
    check("map: no such cache or category", error(get(gateway, "map", cache="nope")) == (404, "not_found") and
          error(get(gateway, "map", cache="llm", category="nope")) == (404, "not_found"))
    for query in [{}, {"set": "s", "cache": "llm"}, {"set": "s", "category": "faq"}, {"category": "faq"}]:
        check("map: %s is a bad request" % query, error(get(gateway, "map", **query)) == (400, "bad_request"))


def documents(gateway):
    """Below /ui/docs/ the pages of docs/ as they are."""
    folder = pathlib.Path(__file__).resolve().parents[2] / "docs"
    wrong = []
    for page in sorted(folder.glob("*.md")):
        plain = call(gateway, "GET", "/ui/docs/" + page.name)
        packed = call(gateway, "GET", "/ui/docs/" + page.name, headers={"Accept-Encoding": "gzip"})
        if not (plain.status == packed.status == 200 and plain.body == page.read_bytes() == gzip.decompress(packed.body) and
                packed.getheader("Content-Encoding") == "gzip" and plain.getheader("Content-Encoding") is None and
                plain.getheader("Content-Type") == "text/markdown; charset=utf-8"):
            wrong.append((page.name, plain.status, packed.status))
    check("documents: each page of docs/, plain and compressed", not wrong, wrong)
    for name in ["nope.md", "cache", "cache.md/", "../README.md", "decisions/risk.md", "%63ache.md", "x" * 2000]:
        reply = call(gateway, "GET", "/ui/docs/" + name)
        check("documents: %.20s is none" % name, error(reply) == (404, "not_found"), reply.body)
    check("documents: are not changed", error(call(gateway, "POST", "/ui/docs/cache.md", {})) == (405, "method"))
    check("documents: for the gateway's own hosts", error(call(gateway, "GET", "/ui/docs/cache.md", host="evil.example")) ==
          (403, "host"))


def play(gateway, redis):
    reply = post(gateway, "playground/cache", {"cache": "llm", "category": "faq", "scope": {"tenant": "t1"}, "text": "x 1",
                                               "vector": [1, .1, .2, .1]}).value
    check("playground: a hit with its candidates", reply["reply"]["status"] in ("hit", "miss") and
          reply["reply"]["candidates"] and reply["vector"] == "given" and reply["reply"]["lease"] is None, reply)
    check("playground: the vector is not repeated where nobody asks for it", "query" not in reply, reply)
    asked = {"cache": "llm", "category": "faq", "text": "x", "query": True}
    reply = post(gateway, "playground/cache", {**asked, "vector": [1, .5, -.25, 0]}).value
    check("playground: the vector of a question to a cache", reply["query"] == [1, .5, -.25, 0], reply)
    check("playground: and null where there is none", post(gateway, "playground/cache", asked).value["query"] is None)
    reply = post(gateway, "playground/set", {"set": "s", "vector": [1, 2, 3, 4], "query": True}).value
    check("playground: the vector of a search", reply["query"] == [1, 2, 3, 4], reply)
    reply = post(gateway, "playground/set", {"set": "s", "element": "e3", "query": True}).value
    check("playground: the vector of an element, within the set's step", len(reply["query"]) == 4 and reply["results"] and
          all(abs(a - b) < 0.03 for a, b in zip(reply["query"], [1, 3, 2, 3])), reply)
    reply = post(gateway, "playground/cache", {"cache": "llm", "category": "faq", "text": "x"}).value
    check("playground: says that there is no encoder", reply["vector"] == "none" and "encoder" in reply["why"], reply)
    reply = post(gateway, "playground/set", {"set": "s", "element": "e1", "count": 3}).value
    names = redis("VSIM", "s", "ELE", "e1", "COUNT", 3)
    check("playground: VSIM's neighbours", [r["element"] for r in reply["results"]] == names, (reply, names))
    check("playground: scores, attributes, EXPLAIN", reply["results"][0]["score"] == 1 and
          json.loads(reply["results"][0]["attributes"]) == {"a": 1} and reply["explain"]["plan"] == "memory" and
          reply["explain"]["switched"] is False, reply)
    reply = post(gateway, "playground/set", {"set": "s", "vector": [1, 2, 3, 4], "filter": ".a > 100", "recall": 0.9,
                                             "attributes": False}).value
    check("playground: a vector and a filter", len(reply["results"]) == 10 and
          all(int(r["element"][1:]) > 100 and r["attributes"] is None for r in reply["results"]), reply)
    for body in [{"set": "s"}, {"set": "s", "element": "e1", "vector": [1]}, {"set": "s", "vector": []},
                 {"set": "s", "vector": ["a"]}, {"set": "s", "element": "e1", "count": 0},
                 {"set": "s", "element": "e1", "tenants": "t"}, {"element": "e1"}]:
        check("playground: %s is a bad request" % body, error(post(gateway, "playground/set", body)) ==
              (400, "bad_request"))
    check("playground: the server's sentence", error(post(gateway, "playground/set", {"set": "s", "vector": [1]})) ==
          (409, "server"))


def crowd(gateway, redis):
    """More at once than are served, and answers that would be too large."""
    numbers = [str(i % 7) for i in range(1500)]
    for i in range(1600):
        redis("VADD", "wide", "VALUES", 1500, *numbers[i % 3:], *numbers[:i % 3], "w%d" % i)
    sample = get(gateway, "map", set="wide").value
    check("map: of a wide set as many as fit, and says so", sample["truncated"] is True and
          len(sample["elements"]) == (2 << 20) // 1500 and len(base64.b64decode(sample["vectors"])) ==
          len(sample["elements"]) * 1500, len(sample["elements"]))
    sockets = [socket.create_connection(("127.0.0.1", gateway.port), 60) for _ in range(80)]
    for one in sockets:
        one.sendall(b"GET /ui/api/map?set=wide HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    statuses = []
    for i, one in enumerate(sockets):
        if i % 4 == 3:
            one.close()  # leaves at once
            continue
        statuses.append(one.makefile("rb").read(12)[-3:].decode())
        one.close()
    check("a crowd is served or told that it is busy", set(statuses) == {"200", "503"} and "200" in statuses,
          statuses)
    check("after the crowd", until(lambda: get(gateway, "me").status == 200, 30))
    redis("DEL", "wide")
    for kind in ["NOQUANT", "BIN"]:
        redis("VADD", kind, "VALUES", 10, *range(-4, 6), "one", kind)
        view = get(gateway, "map", set=kind).value
        row = [x * view["scale"][0] for x in struct.unpack("10b", base64.b64decode(view["vectors"]))]
        wanted = range(-4, 6) if kind == "NOQUANT" else [(1 if i > 0 else -1) * (85 / 10) ** .5 for i in range(-4, 6)]
        check("map: of %s" % kind, all(abs(a - b) < 0.1 or (b and kind == "BIN" and abs(abs(a) - abs(b)) < 0.01)
                                       for a, b in zip(row, wanted)), row)


def change(gateway, redis):
    entry = get(gateway, "entries", cache="llm", count=1).value["entries"][0]["id"]
    for action, right in [("pin", 1), ("unpin", 1), ("bad", "OK"), ("good", "OK"), ("delete", 1)]:
        reply = post(gateway, "entry", {"cache": "llm", "id": entry, "action": action})
        check("entry: " + action, reply.value == {"ok": True, "reply": right}, reply.body)
    check("entry: gone is not found", error(post(gateway, "entry", {"cache": "llm", "id": entry, "action": "pin"})) ==
          (404, "not_found"))
    reply = post(gateway, "category", {"cache": "llm", "category": "faq",
                                       "settings": {"SIM": 0.91, "TTL": 1000000, "GUARD": ["number", "negation"],
                                                    "SLIDING": False}})
    now = redis.map("SC.CAT.GET", "llm", "faq")
    check("category: settings", reply.value == {"ok": True} and now["sim"] == "0.91" and now["ttl"] == "1000000", (reply.body, now))
    reply = post(gateway, "category", {"cache": "llm", "category": "faq", "settings": {"SIM": 2}})
    check("category: the server's sentence about a wrong value", reply.status == 409 and "SIM" in
          reply.value["error"]["message"], reply.body)
    check("category: settings that are none", error(post(gateway, "category", {
        "cache": "llm", "category": "faq", "settings": {"SIM": {}}})) == (400, "bad_request"))
    pairs = post(gateway, "audit/pop", {"cache": "llm", "count": 3})
    check("labels: pop answers pairs", pairs.status == 200 and isinstance(pairs.value["pairs"], list), pairs.body)
    for pair in pairs.value["pairs"]:
        reply = post(gateway, "audit/put", {"cache": "llm", "audit": pair["audit"], "verdict": "good"})
        check("labels: put", reply.value == {"ok": True}, reply.body)
    check("labels: an audit that is none", post(gateway, "audit/put", {"cache": "llm", "audit": 999999,
                                                                       "verdict": "bad"}).status in (404, 409))
    check("set: check finds nothing wrong", post(gateway, "set/check", {"set": "s"}).value == {"findings": 0, "first": []})


def history(gateway, redis):
    def known():
        points = get(gateway, "history").value
        return points if len(points["points"]) > 2 and points["points"][-1][-1] is not None else None
    seen = until(known, 60)
    check("history: points come", seen is not None)
    fields = seen["fields"]
    check("history: each point has every field", all(len(p) == len(fields) for p in seen["points"]))
    last = dict(zip(fields, seen["points"][-1]))
    check("history: gauges are RESP's", last["cache_entries"] == redis.map("SC.STATS", "llm")["entries"], last)
    before = sum(p[fields.index("searches")] or 0 for p in seen["points"])
    for _ in range(5):
        redis("VSIM", "s", "ELE", "e1")
    check("history: searches are counted once", until(lambda: sum(p[fields.index("searches")] or 0 for p in get(
        gateway, "history").value["points"]) == before + 5, 30))
    newest = get(gateway, "history").value["points"][-1][0]
    check("history: since", all(p[0] > newest for p in get(gateway, "history", since=newest).value["points"]))
    check("history: minutes", get(gateway, "history", resolution="1m").value["resolution_ms"] == 60000)
    check("history: no such resolution", error(get(gateway, "history", resolution="1h")) == (400, "bad_request"))


def hostile(gateway):
    port = gateway.port
    for host in ["evil.example", "evil.example:%d" % port, "127.0.0.1.evil.example", "", "localhost.evil", "127.0.0.256",
                 "0x7f.1"]:
        check("Host %r is refused" % host, error(get(gateway, "me", host=host or " ")) == (403, "host") or not host)
    for host in ["localhost:%d" % port, "[::1]:%d" % port, "127.9.9.9", "console.test:%d" % port]:
        check("Host %r is let in" % host, get(gateway, "me", host=host).status == 200)
    check("a page of another origin is refused", error(get(gateway, "me", headers={"Origin": "http://evil.example"})) ==
          (403, "origin") and error(get(gateway, "me", headers={"Origin": "null"})) == (403, "origin"))
    check("its own origin is let in", get(gateway, "me", headers={"Origin": "http://127.0.0.1:%d" % port}).status == 200)
    check("the page's Host is checked as well", call(gateway, "GET", "/ui", host="evil.example").status == 403)
    body = {"cache": "llm", "id": "0", "action": "delete"}
    for kind in ["text/plain", "application/x-www-form-urlencoded", "application/jsonp", "multipart/form-data"]:
        check("a POST of %s is refused" % kind, error(post(gateway, "entry", body, headers={"Content-Type": kind})) ==
              (415, "content_type"))
    check("GET changes nothing", error(get(gateway, "entry")) == (405, "method"))
    for method, path, allow in [("GET", "/ui/api/entry", "POST"), ("POST", "/ui/api/me", "GET"), ("POST", "/ui", "GET, HEAD"),
                                ("PUT", "/ui/api/category", "GET, POST"), ("PUT", "/ui/api/sets", "GET, POST")]:
        check("%s %s: Allow is what there is" % (method, path), call(gateway, method, path).headers["Allow"] == allow,
              call(gateway, method, path).headers["Allow"])
    check("other methods", error(call(gateway, "PUT", "/ui/api/entry", body)) == (405, "method") and
          error(call(gateway, "DELETE", "/ui/api/me")) == (405, "method") and
          call(gateway, "OPTIONS", "/ui/api/me").status == 405)
    check("unknown endpoints", error(get(gateway, "nothing")) == (404, "not_found"))
    check("a large body", error(post(gateway, "entry", b'{"cache": "' + b"x" * (300 << 10) + b'"}')) == (413, "too_large"))
    for wrong in [b"", b"[]", b"{", b'{"cache": "a", "cache": "b"}', b'{"cache": "\xff"}', b'{"cache": "a\\u0000b"}',
                  json.dumps({str(i): i for i in range(50)}).encode(), b"[" * 5000]:
        check("body %r is a bad request" % wrong[:40], error(post(gateway, "entry", wrong)) == (400, "bad_request"))
    for query in ["cache", "cache=a&cache=b", "cache=%00", "cache=%f", "=", "&&", "x=1", "count=9999&cache=llm",
                  "count=-1&cache=llm", "count=1e3&cache=llm"]:
        reply = call(gateway, "GET", "/ui/api/entries?" + query)
        check("query %r is a bad request" % query, error(reply) == (400, "bad_request"), reply.body)
    odd = b"set \xff " + EVIL
    reply = call(gateway, "GET", "/ui/api/set?set=" + quote_from_bytes(odd))
    check("a set with a name of any bytes", reply.status == 200 and reply.value["info"]["size"] == 1 and
          reply.value["sample"] == ["element \ufffd"], reply.body)
    reply = get(gateway, "sets").value
    check("its name as a text", "set \ufffd " + EVIL.decode() in [s["name"] for s in reply["sets"]] and
          "plain" not in [s["name"] for s in reply["sets"]], reply)
    reply = get(gateway, "category", cache=EVIL, category="<script>")
    check("names in errors stay text", reply.status == 404 and reply.headers["Content-Type"] == "application/json",
          reply.body)
    check("a name with a line end", get(gateway, "set", set="a\r\nSHUTDOWN\r\n").status == 404)
    for name, value in [("X-Content-Type-Options", "nosniff"), ("Referrer-Policy", "no-referrer"),
                        ("Cache-Control", "no-store")]:
        check("%s: %s" % (name, value), get(gateway, "me").headers[name] == value)
    socket_ = socket.create_connection(("127.0.0.1", port))
    for _ in range(200):  # leaves while its answers are made
        socket_.sendall(b"GET /ui/api/server HTTP/1.1\r\nHost: localhost\r\n\r\n")
    socket_.close()
    check("clients that leave do no harm", until(lambda: get(gateway, "me").status == 200, 30))


def page(gateway):
    reply = call(gateway, "GET", "/ui")
    text, policy = reply.body, reply.headers["Content-Security-Policy"]
    check("the page", reply.status == 200 and reply.headers["Content-Type"] == "text/html; charset=utf-8" and
          len(text) <= 200 << 10, (reply.status, len(text)))
    for part in [b"script", b"style"]:
        for inner in re.findall(b"<%s>(.*?)</%s>" % (part, part), text, re.S):
            digest = base64.b64encode(hashlib.sha256(inner).digest()).decode()
            check("the policy names this %s" % part.decode(), "'sha256-%s'" % digest in policy, policy)
    check("the policy is strict", policy.startswith("default-src 'none'") and "connect-src 'self'" in policy and
          "frame-ancestors 'none'" in policy and "unsafe" not in policy, policy)
    check("no other origin in what it loads", not re.search(rb'(?:src|href)="(?:https?:)?//', text))
    again = call(gateway, "GET", "/ui", headers={"If-None-Match": reply.headers["ETag"]})
    check("304 by its ETag", again.status == 304 and again.body == b"")
    packed = call(gateway, "GET", "/ui/", headers={"Accept-Encoding": "gzip, br"})
    check("compressed", packed.headers["Content-Encoding"] == "gzip" and gzip.decompress(packed.body) == text and
          packed.headers["ETag"] != reply.headers["ETag"])
    check("HEAD", call(gateway, "HEAD", "/ui").status == 200)


def rights(folder, server, redis):
    redis("ACL", "SETUSER", "looker", "on", ">look-secret", "~*", "+@read", "+info", "+acl|whoami", "+sc.get")
    redis("ACL", "SETUSER", "admin", "on", ">admin:secret", "~*", "+@all")
    gateway = Gateway(BUILD, folder / "rights", "http://127.0.0.1:1", "127.0.0.1:%d" % server.port, upstreams=[],
                      console=True, ui="yes")
    looker, admin = basic("looker", "look-secret"), basic("admin", "admin:secret")
    check("rights: who asks without a name is the default user", get(gateway, "me").value["user"] == "default")
    check("rights: Basic", get(gateway, "me", looker).value["user"] == "looker")
    mine, his = get(gateway, "me", admin).value, get(gateway, "me", looker).value
    changes = ["delete", "feedback", "labels", "pin", "settings"]
    check("rights: me says what an admin may change", mine["write"] is True and mine["may"] == dict.fromkeys(changes, True), mine)
    check("rights: me says that a reader may change nothing", his["write"] is False and his["may"] == dict.fromkeys(
        changes, False), his)
    redis("ACL", "SETUSER", "keyed", "on", ">k", "~other*", "+@all")
    his = get(gateway, "me", basic("keyed", "k")).value
    check("rights: a key that is refused says nothing of other caches", his["write"] is True and
          his["may"]["pin"] is True, his)
    blind = Gateway(BUILD, folder / "blind", "http://127.0.0.1:1", "127.0.0.1:%d" % server.port, upstreams=[],
                    console=True, ui="yes", server_user="looker", server_password="look-secret")
    his = get(blind, "me", looker).value
    check("rights: where the gateway's own user may not ask, it is not known", his["write"] is True and his["may"] ==
          dict.fromkeys(changes), his)
    check("rights: blind ends", blind.stop())
    check("rights: Bearer", get(gateway, "me", "Bearer looker:look-secret").value["user"] == "looker")
    for wrong in [basic("looker", "no"), basic("nobody", "x"), "Bearer wrong", "Bearer looker:", "Basic !!!", "Digest x",
                  basic("looker", "x" * 2000), "Basic " + base64.b64encode(b"looker").decode()]:
        for name in ["me", "overview", "entries"]:
            reply = get(gateway, name, wrong, **({"cache": "llm"} if name == "entries" else {}))
            check("rights: %s with %.20s... is 401" % (name, wrong), error(reply) == (401, "unauthorized") or
                  (wrong == "Bearer wrong" and reply.status == 200), reply.body)
    check("rights: many wrong passwords keep nobody out", all(error(get(gateway, "me", basic("u%d" % i, "x"))) == (
        401, "unauthorized") for i in range(40)) and get(gateway, "me").status == 200)
    check("rights: a wrong password changes nothing", error(post(gateway, "entry", {
        "cache": "llm", "id": "0" * 16, "action": "delete"}, basic("admin", "x"))) == (401, "unauthorized"))
    check("rights: what the ACL refuses", error(post(gateway, "category", {
        "cache": "llm", "category": "faq", "settings": {"SIM": "0.5"}}, looker)) == (403, "forbidden") and
          redis.map("SC.CAT.GET", "llm", "faq")["sim"] != "0.5")
    server_view = get(gateway, "server", looker)
    check("rights: parts that are refused say so, the others are there", server_view.status == 200 and
          server_view.value["settings"]["error"]["code"] == "forbidden" and "gateway_settings" not in server_view.value and
          server_view.value["info"]["quire"], server_view.body)
    redis("ACL", "SETUSER", "mapper", "on", ">m", "~*", "+@read", "-@admin", "+info")
    redis("ACL", "SETUSER", "bound", "on", ">b", "~*", "+@all", "tenant:bolt")
    redis("ACL", "LOG", "RESET")
    sample = get(gateway, "map", basic("mapper", "m"), set="s").value
    check("rights: tenants of elements are for administrators", sample["tenants"]["error"]["code"] == "forbidden" and
          len(sample["elements"]) == 300 and all(e["tenants"] is None for e in sample["elements"]), sample["tenants"])
    check("rights: who is refused them is refused once", sum(entry[1] for entry in redis("ACL", "LOG", 100)) == 1,
          redis("ACL", "LOG", 100))
    sample = get(gateway, "map", basic("bound", "b"), set="s").value
    check("rights: a user who is bound sees its own elements and no tenants", {e["element"] for e in sample["elements"]} ==
          {"e0", "e2"} and sample["tenants"]["error"]["code"] == "forbidden" and
          all(e["tenants"] is None for e in sample["elements"]), sample)
    check("rights: an admin sees all", isinstance(get(gateway, "server", admin).value["settings"], list))
    for proxy in ["X-Forwarded-For", "Forwarded", "Via"]:
        check("rights: through a proxy (%s) a password is needed" % proxy,
              error(get(gateway, "me", headers={proxy: "for=1.2.3.4"})) == (401, "unauthorized"))
        check("rights: and one that any would do for is none (%s)" % proxy, all(error(get(gateway, "me", credential, headers={
            proxy: "for=1.2.3.4"})) == (401, "unauthorized") for credential in [basic("default", "x"), "Bearer x"]) and
              get(gateway, "me", basic("default", "x")).status == 200 and
              get(gateway, "me", looker, headers={proxy: "for=1.2.3.4"}).status == 200)
    redis("ACL", "SETUSER", "narrow", "on", ">n", "~*", "-@all", "+vsim")
    check("rights: overview needs INFO", error(get(gateway, "overview", basic("narrow", "n"))) == (403, "forbidden") and
          error(get(gateway, "history", basic("narrow", "n"))) == (403, "forbidden") and
          error(get(gateway, "requests", basic("narrow", "n"))) == (403, "forbidden"))
    check("rights: me answers by the name that was given", get(gateway, "me", basic("narrow", "n")).value["user"] ==
          "narrow")
    redis("ACL", "DELUSER", "narrow")
    check("rights: a user who was removed", until(lambda: error(get(gateway, "me", basic("narrow", "n"))) ==
                                                  (401, "unauthorized"), 30))
    redis("CONFIG", "SET", "requirepass", "top-secret")
    redis("CLIENT", "KILL", "USER", "default", "SKIPME", "yes")
    check("rights: with a password for all, nobody comes in without", until(lambda: error(get(
        gateway, "sets")) == (401, "unauthorized"), 30))
    check("rights: Bearer of the default user's password", get(gateway, "sets", "Bearer top-secret").status == 200)
    check("rights: and not with another", error(get(gateway, "sets", "Bearer wrong")) == (401, "unauthorized"),
          get(gateway, "sets", "Bearer wrong").body)
    shown = {s["name"]: s["value"] for s in get(gateway, "server", "Bearer top-secret").value["settings"]}
    check("rights: no password is shown", shown["requirepass"] == "***", shown["requirepass"])
    redis("AUTH", "top-secret")
    redis("CONFIG", "SET", "requirepass", "")
    check("rights: ends", gateway.stop())
    gateway = Gateway(BUILD, folder / "read", "http://127.0.0.1:1", "127.0.0.1:%d" % server.port, upstreams=[],
                      console=True, ui="read")
    check("ui read: looks", get(gateway, "me").value["write"] is False and
          not any(get(gateway, "me").value["may"].values()) and get(gateway, "sets").status == 200 and
          post(gateway, "playground/set", {"set": "s", "element": "e1"}).status == 200)
    for name in ["category", "entry", "audit/pop", "audit/put"]:
        check("ui read: %s is refused" % name, error(post(gateway, name, {})) == (403, "read_only"))
    check("ui read: ends", gateway.stop())


def gone(folder):
    """The server goes, and comes back."""
    (folder / "gone").mkdir()
    server = Server(BUILD, folder / "gone")
    port = server.port
    gateway = Gateway(BUILD, folder / "gone-gateway", "http://127.0.0.1:1", "127.0.0.1:%d" % port, upstreams=[],
                      console=True, ui="yes")
    check("gone: there", get(gateway, "overview").status == 200)
    server.process.kill()
    server.process.wait()
    reply = get(gateway, "overview")
    check("gone: 503 with a sentence", error(reply) == (503, "server_down") and reply.value["error"]["message"], reply.body)
    check("gone: the page is there all the same", call(gateway, "GET", "/ui").status == 200)
    server.settings = ("--port", str(port))
    server.start()
    check("gone: recovers", until(lambda: get(gateway, "overview").status == 200, 60))
    check("gone: history has a gap", until(lambda: any(p[-1] is None for p in get(gateway, "history").value["points"]), 30))
    server.process.terminate()
    server.process.wait()
    check("gone: stops", gateway.stop())


def with_upstream(folder, server):
    """The gateway proper: its requests are seen; its own paths stay its own."""
    model = StandIn()
    quiet = Gateway(BUILD, folder / "quiet", model.url, "127.0.0.1:%d" % server.port).ready()
    check("ui no: /ui is the upstream's", ask(quiet.port, "/ui/api/me", method="GET").status != 200 or
          b"loopback" not in ask(quiet.port, "/ui/api/me", method="GET").body)
    quiet.stop()
    gateway = Gateway(BUILD, folder / "full", model.url, "127.0.0.1:%d" % server.port, ui="yes", cache="full",
                      log_texts=True).ready()
    text = "what is <b>this</b>"
    for _ in range(3):
        chat(gateway.port, text)
    seen = until(lambda: (lambda r: r if len([x for x in r if x["route"] == "chat"]) == 3 else None)(
        get(gateway, "requests").value["requests"]), 30)
    check("requests: three of chat, newest first", seen and [r["number"] for r in seen] == sorted(
        [r["number"] for r in seen], reverse=True), seen)
    one = seen[0]
    check("requests: what they were", one["path"] == "/v1/chat/completions" and one["method"] == "POST" and
          one["status"] == 200 and one["cache"] == "exact" and one["model"] == "stand-in" and one["ms"] > 0 and
          one["question"] == text and one["reason"], one)
    began_ms = get(gateway, "requests").value["began_ms"]
    check("requests: when the gateway began", 0 < began_ms <= one["time_ms"] and
          get(gateway, "requests").value["began_ms"] == began_ms, began_ms)
    check("requests: since", get(gateway, "requests", since=one["number"]).value["requests"] == [])
    check("requests: limit", len(get(gateway, "requests", limit=1).value["requests"]) == 1)
    redis = Resp(server.port)
    redis("ACL", "SETUSER", "plain", "on", ">p", "~*", "-@all", "+info")
    masked = get(gateway, "requests", basic("plain", "p"))
    check("requests: texts only for who may read the cache", masked.status == 200 and
          all(r["question"] is None for r in masked.value["requests"]), masked.body)

    def counted():
        view = get(gateway, "history").value
        names = view["fields"]
        total = {n: sum(p[names.index(n)] or 0 for p in view["points"]) for n in ["requests", "exact", "miss"]}
        return total if total["requests"] == 3 else None
    total = until(counted, 30)
    check("history: the gateway's requests", total == {"requests": 3, "exact": 2, "miss": 1}, total)
    me = get(gateway, "me").value
    check("me: of a gateway", me["gateway"] and me["texts"] and me["cache"] == "full", me)
    overview = get(gateway, "overview").value["gateway"]
    check("overview: the gateway's state", overview["cache"]["ready"] and overview["upstreams"], overview)
    check("with an upstream: ends", gateway.stop())
    model.kill()


def arguments(server):
    def run(*words):
        return subprocess.run([str(BUILD / "quire-gateway"), *words], capture_output=True, text=True, timeout=60)
    check("no upstream and no console is refused", run("--check-settings").returncode == 2)
    check("--console needs no upstream", run("--console", "--check-settings").returncode == 0)
    check("--open without a page is refused", run("--upstream", "http://x", "--open").returncode == 2)
    check("console without ui is refused", run("--set", "console=true", "--check-settings").returncode == 2)
    process = subprocess.Popen([str(BUILD / "quire-gateway"), "--console", "--open", "--listen", "127.0.0.1:0", "--server",
                                "127.0.0.1:%d" % server.port], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    url = process.stdout.readline().strip()
    port = int(re.fullmatch(r"http://127\.0\.0\.1:(\d+)/ui", url).group(1))
    check("--open prints where the page is", ask(port, "/ui", method="GET").status == 200, url)
    check("nothing else is served", ask(port, "/v1/models", method="GET").status == 404 and
          ask(port, "/health", method="GET").status == 200 and ask(port, "/metrics", method="GET").status == 200)
    process.send_signal(signal.SIGHUP)
    check("SIGHUP", until(lambda: ask(port, "/ui", method="GET").status == 200))
    process.terminate()
    check("ends", process.wait(60) == 0)


def main():
    with tempfile.TemporaryDirectory(prefix="quire-console-") as name:
        folder = pathlib.Path(name)
        (folder / "server").mkdir()
        server = Server(BUILD, folder / "server")
        redis = Resp(server.port)
        gateway = Gateway(BUILD, folder / "console", "http://127.0.0.1:1", "127.0.0.1:%d" % server.port, upstreams=[],
                          console=True, ui="yes", ui_hosts=["console.test"])
        empty(gateway)
        seed(redis)
        same_figures(gateway, redis)
        walk(gateway)
        documents(gateway)
        play(gateway, redis)
        history(gateway, redis)
        page(gateway)
        hostile(gateway)
        crowd(gateway, redis)
        change(gateway, redis)
        check("console: ends", gateway.stop())
        rights(folder, server, redis)
        with_upstream(folder, server)
        arguments(server)
        server.process.terminate()
        server.process.wait()
        gone(folder)
    end()


if __name__ == "__main__":
    main()
