"""dashboard.py BUILD_DIR [--keep SECONDS] - docs/grafana/quire.json is whole, and asks for nothing that is not exported.

Looks at the JSON first: ids, units, places, the data source. Then a quire-server and gateways get a request of every kind,
and each metric, label and label's value that the dashboard's expressions name is looked for in what /metrics then has. With
--keep they stay for that long, and their addresses are printed: to look at the dashboard in a Grafana.
"""
import json
import pathlib
import re
import socket
import struct
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from gateway_process import ROOT, Gateway, Server, StandIn, ask, chat, until  # noqa: E402
from resp_client import Stream  # noqa: E402

DASHBOARD = ROOT / "docs/grafana/quire.json"
ALERTS, ALERTS_PAGE = ROOT / "docs/grafana/alerts.yml", ROOT / "docs/alerts.md"
OF_PROMETHEUS = {"instance", "job"}  # labels that the scraper adds
WORDS = {"by", "without", "on", "ignoring", "group_left", "group_right", "and", "or", "unless", "bool", "offset"}
DIM = 8
passed = failed = 0


def check(name, wrong):
    """wrong: what is not as it should be; empty: nothing."""
    global passed, failed
    passed, failed = passed + (not wrong), failed + bool(wrong)
    print(("FAIL - " if wrong else "ok - ") + name, flush=True)
    for what in list(wrong)[:20] if isinstance(wrong, (list, set, dict)) else [wrong] * bool(wrong):
        print("    | " + str(what)[:300], flush=True)


# ---- the JSON -------------------------------------------------------------------------------------------------------

def panels_of(dashboard):
    for panel in dashboard["panels"]:
        yield panel
        yield from panel.get("panels", [])


def expressions(dashboard):
    """(where, expression, legend) of panels and variables."""
    for panel in panels_of(dashboard):
        for target in panel.get("targets", []):
            yield "panel %d %r" % (panel["id"], panel["title"]), target["expr"], target["legendFormat"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield "variable %r" % variable["name"], variable["query"]["query"], ""


def overlap(one, other):
    a, b = one["gridPos"], other["gridPos"]
    return a["x"] < b["x"] + b["w"] and b["x"] < a["x"] + a["w"] and a["y"] < b["y"] + b["h"] and b["y"] < a["y"] + a["h"]


def look_at_json(dashboard):
    panels = list(panels_of(dashboard))
    drawn = [p for p in panels if p["type"] != "row"]
    ids = [p["id"] for p in panels]
    check("ids of %d panels are unique" % len(panels), {i for i in ids if ids.count(i) > 1} or len(drawn) < 40)
    check("each has a unit, a description and a query", [p["title"] for p in drawn if not (
        p["fieldConfig"]["defaults"].get("unit") and p["description"] and p["targets"])])
    check("none lies on another or beyond the width", [(p["title"], q["title"]) for i, p in enumerate(panels) for q in panels[i + 1:]
                                                       if overlap(p, q)] + [p["title"] for p in panels if
                                                                            p["gridPos"]["x"] + p["gridPos"]["w"] > 24])
    section, titles = "", []
    for p in panels:
        section = p["title"] if p["type"] == "row" else section
        titles.append((section, p["title"]))
    check("titles are unique in their section", {t for t in titles if titles.count(t) > 1 or not t[1]})
    sections = " ".join(s for s, t in titles if s == t).lower()
    check("there are all sections", [w for w in ("overview", "cache", "searches", "tenants", "memory", "journal", "gateway") if
                                     w not in sections])
    variables = {v["name"]: v["type"] for v in dashboard["templating"]["list"]}
    check("the data source is a variable", variables.get("datasource") != "datasource")
    sources = [holder["datasource"] for p in drawn for holder in [p, *p["targets"]]] + \
              [v["datasource"] for v in dashboard["templating"]["list"] if v["type"] == "query"]
    check("and everything asks it", [s for s in sources if s != {"type": "prometheus", "uid": "${datasource}"}])
    used = {name for _, text, _ in expressions(dashboard) for name in re.findall(r"\$\{?(\w+)", text)}
    check("variables exist, and are used", (used - variables.keys() - {"__rate_interval"}) | (variables.keys() - used - {"datasource"}))
    check("no id of a Grafana is in it", [k for k in ("id", "__inputs", "__requires") if dashboard.get(k)])


# ---- expressions ----------------------------------------------------------------------------------------------------

def parse(expression):
    """(selectors, labels that are grouped by): selectors are (metric, [(label, operator, value)]).

    A name is a function where "(" follows, a keyword, or a metric; label_values(...) of a variable is a function, too, whose
    last argument is a label.
    """
    selectors, grouped = [], []
    text = expression
    match = re.fullmatch(r"label_values\((.*), (\w+)\)", text)
    if match:
        text, grouped = match[1], [match[2]]
    for names in re.findall(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)", text):
        grouped += [name.strip() for name in names.split(",") if name.strip()]
    text = re.sub(r"\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)", " ", text)
    for match in re.finditer(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(\s*\(|\{[^}]*\})?|\[[^]]*\]|\"[^\"]*\"", text):
        name, rest = match[1], match[2] or ""
        if not name or rest.strip() == "(" or name in WORDS:
            continue
        found = re.findall(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"', rest)
        if rest and re.sub(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"', "", rest).strip("{}, "):
            raise SystemExit("cannot read the selector %s%s" % (name, rest))
        selectors.append((name, found))
    return selectors, grouped


def read_metrics(text):
    """Metric -> list of its series' labels."""
    found = {}
    for line in text.splitlines():
        match = re.match(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? \S+$", line)
        if match:
            found.setdefault(match[1], []).append(dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', match[2] or "")))
    return found


def wrong_of_selector(name, matchers, metrics):
    if name not in metrics:
        return ["there is no metric %s" % name]
    labels, wrong = set().union(*metrics[name]) | OF_PROMETHEUS, []
    for label, operator, value in matchers:
        if label not in labels:
            wrong.append("%s has no label %s" % (name, label))
        elif operator in ("=", "=~") and "$" not in value:
            values = {series.get(label) for series in metrics[name]}
            wrong += ["%s has no %s=%s" % (name, label, v) for v in value.split("|") if v not in values]
    return wrong


def look_at_expressions(dashboard, metrics):
    wrong, named = [], set()
    for where, expression, legend in expressions(dashboard):
        selectors, grouped = parse(expression)
        if not selectors or expression.count("(") != expression.count(")") or expression.count("{") != expression.count("}"):
            wrong.append("%s: %s cannot be read" % (where, expression))
        labels = set(OF_PROMETHEUS)
        for name, matchers in selectors:
            named.add(name)
            wrong += ["%s: %s" % (where, what) for what in wrong_of_selector(name, matchers, metrics)]
            labels |= set().union(*metrics.get(name, [{}]))
        wrong += ["%s: nothing there has a label %s" % (where, label) for label in grouped if label not in labels]
        outer = re.search(r"\bby\b", expression)
        shown = re.findall(r"\{\{\s*(\w+)\s*\}\}", legend)
        wrong += ["%s: its legend names %s, which its series do not have" % (where, label) for label in shown
                  if label not in labels or (outer and label not in grouped)]
    # quire_setting alone has the label `name`: matched one to one with anything else it gives nothing at all
    wrong += ["%s: quire_setting is matched by all labels" % where for where, expression, _ in expressions(dashboard)
              if re.search(r"[-+*/<>] *\(*quire_setting", expression) and "ignoring (name)" not in expression]
    check("%d metrics of %d expressions are exported, with their labels" % (len(named), len(list(expressions(dashboard)))),
          wrong or len(named) < 80)
    return named


def look_at_alerts(metrics):
    """The rules of alerts.yml: whole, exported, explained."""
    text, wrong = ALERTS.read_text(), []
    names, rules = re.findall(r"^ +- alert: (\w+)$", text, re.M), re.findall(r"^ +expr: (.+)$", text, re.M)
    for name, expression in zip(names, rules):
        for metric, matchers in parse(expression)[0]:
            if metric != "up":  # Prometheus' own
                wrong += ["%s: %s" % (name, what) for what in wrong_of_selector(metric, matchers, metrics)]
    wrong += ["%d names, %d expressions" % (len(names), len(rules))] * (len(names) != len(rules) or not names)
    explained = re.findall(r"^\| `(\w+)` \|", ALERTS_PAGE.read_text(), re.M)
    wrong += ["alerts.md has %s, alerts.yml %s" % (explained, names)] * (explained != names)
    check("the %d alerts name what is exported, and alerts.md explains each" % len(names), wrong)


def test_the_test(metrics):
    """What is not exported is found, or the check above proves nothing."""
    def wrong(expression):
        return [w for s in parse(expression)[0] for w in wrong_of_selector(*s, metrics)]
    check("a metric that is none is found", not wrong('sum(rate(quire_nothing_total{instance=~"$server"}[5m]))'))
    check("a label that is none", not wrong('sum by (x) (rate(quire_searches_total{shard="1"}[5m]))'))
    check("a value that is none", not wrong('quire_cache_requests_total{outcome=~"hit|luck"}'))
    check("what is there is not", wrong('time() - max(process_start_time_seconds{instance=~"$server"}) > 0 or '
                                        'quire_setting{name="maxmemory"}'))


# ---- requests of every kind -----------------------------------------------------------------------------------------

def vector(seed):
    return struct.pack("<%df" % DIM, *((seed * (i + 3) % 17) - 8.5 for i in range(DIM)))


def work_server(port):
    c = Stream(port)
    for words in (("VCREATE", "docs", "DIM", DIM, "METRIC", "cosine", "TENANTS"),
                  *(("VADD", "docs", "FP32", vector(i), "e%d" % i, "TENANT", "acme") for i in range(20)),
                  ("VSIM", "docs", "FP32", vector(3), "TENANT", "acme"), ("VSIM", "docs", "FP32", vector(3)),
                  ("SET", "k", "v"), ("GET", "k"), ("GET", "none"), ("NOSUCH",),
                  ("SC.CREATE", "faq", "DIM", DIM), ("SC.CAT.SET", "faq", "c", "SIM", "0.95", "TTL", 3600000),
                  ("SC.GET", "faq", "CAT", "c", "HASH", "h", "VEC", vector(1), "TEXT", "q"),
                  ("SC.PUT", "faq", "CAT", "c", "HASH", "h", "VEC", vector(1), "TEXT", "q", "VALUE", "a"),
                  ("SC.GET", "faq", "CAT", "c", "HASH", "h", "VEC", vector(1), "TEXT", "q")):
        c.call(*words)


class World:
    def __init__(self, build, folder):
        self.build, self.folder, self.n = build, folder, 0
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.metrics_port = free.getsockname()[1]
        (folder / "server").mkdir()
        self.server = Server(build, folder / "server", "--metrics-port", str(self.metrics_port))
        self.model, self.gateways = StandIn(), []
        (folder / "secret").write_text("0123456789abcdef" * 4)
        (folder / "secret").chmod(0o600)

    def gateway(self, near=False, **settings):
        self.n += 1
        if near:
            settings.update(embed_url=self.model.url + "/v1", embed_model="encoder", similarity=0.8)
        settings.setdefault("cache", "g%d" % self.n)
        gateway = Gateway(self.build, self.folder / ("g%d" % self.n), self.model.url, "127.0.0.1:%d" % self.server.port, **settings)
        self.gateways.append(gateway)
        gateway.ready(near)
        # a credential is one whose answers may be shared once the model has taken it
        assert chat(gateway.port, "take me, gateway %d" % self.n).status == 200
        return gateway

    def metrics(self):
        """Of the server, and of all gateways together."""
        text = "".join(ask(port, "/metrics", method="GET").body.decode() for port in
                       [self.metrics_port, *(g.port for g in self.gateways)])
        return read_metrics(text)

    def has(self, name):
        return until(lambda: name in self.metrics(), 60)

    def end(self):
        for gateway in self.gateways:
            gateway.stop()
        self.model.kill()
        self.server.stop()


def expect(what, name):
    if not what:
        raise SystemExit("%s: it did not come to that" % name)


def work_gateways(w):
    plain = w.gateway(exact_settings="STALE 600000 JITTER 0", ttl="1s")
    seen = set()

    def exact_and_stale():
        seen.add(chat(plain.port, "what is asked again").cache)
        return {"miss", "exact", "stale"} <= seen
    expect(until(exact_and_stale, 60), "miss, exact and stale")
    chat(plain.port, "be cut here")
    with socket.create_connection(("127.0.0.1", plain.port)) as s:
        s.sendall(b"no http at all\r\n\r\n")
        s.recv(1000)

    near = w.gateway(near=True)
    expect(until(lambda: chat(near.port, "what is the capital of peru").cache == "exact", 60), "kept")
    expect(chat(near.port, "the capital of peru please").cache == "hit", "hit")
    audited = w.gateway(near=True, category_settings="AUDIT 1", judge="vector")
    expect(until(lambda: chat(audited.port, "what is the capital of chile").cache == "exact", 60), "kept")
    expect(chat(audited.port, "the capital of chile please").cache == "audit", "audit")
    expect(w.has("quire_gateway_judged_total"), "judged")
    asked = w.gateway(near=True, category_settings="AUDIT 1", judge="model", judge_model="stand-in:say=yes")
    expect(until(lambda: chat(asked.port, "what is the capital of chile").cache == "exact", 60), "kept")
    expect(chat(asked.port, "the capital of chile please").cache == "audit", "audit")
    expect(w.has("quire_gateway_judge_tokens_total"), "judged by a model")

    one, two = (w.gateway(cache="shared", secret_file=str(w.folder / "secret")) for _ in range(2))
    text, threads = "a slow question", []
    for gateway in (one, one, two):
        threads.append(threading.Thread(target=chat, args=(gateway.port, text, "stand-in:gate")))
        threads[-1].start()
        expect(until(lambda: w.model.asked(text), 60), "asked")
    waited = until(lambda: "quire_gateway_waited_total" in w.metrics() and one.health()["requests"] >= 3, 25)
    w.model.open(text)
    for thread in threads:
        thread.join()
    expect(waited and w.has("quire_gateway_joined_total"), "joined and waited")

    with socket.create_connection(("127.0.0.1", plain.port)) as s:
        body = json.dumps({"model": "stand-in:gate", "messages": [{"role": "user", "content": "left alone"}]})
        s.sendall(("POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nAuthorization: Bearer sk-one"
                   "\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)).encode())
        expect(until(lambda: w.model.asked("left alone"), 60), "asked")
    expect(w.has("quire_gateway_clients_gone_total"), "a client that left")
    w.model.open("left alone")


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    dashboard = json.loads(DASHBOARD.read_text())
    look_at_json(dashboard)
    with tempfile.TemporaryDirectory(prefix="quire-dashboard-") as name:
        world = World(build, pathlib.Path(name))
        try:
            work_server(world.server.port)
            work_gateways(world)
            metrics = world.metrics()
            test_the_test(metrics)
            named = look_at_expressions(dashboard, metrics)
            look_at_alerts(metrics)
            shown = sorted(m for m in metrics if m.startswith("quire") and m not in named and not re.search("_(bucket|sum|count)$", m))
            print("exported and not shown: " + ", ".join(shown))
            if "--keep" in sys.argv:
                print("scrape 127.0.0.1:%d (server), %s (gateways)" % (
                    world.metrics_port, ", ".join("127.0.0.1:%d" % g.port for g in world.gateways)), flush=True)
                time.sleep(float(sys.argv[sys.argv.index("--keep") + 1]))
        finally:
            world.end()
    print("%d passed, %d failed" % (passed, failed))
    sys.exit(failed > 0)


main()
