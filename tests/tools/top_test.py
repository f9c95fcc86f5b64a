#!/usr/bin/env python3
"""top_test.py BUILD_DIR - `quire top`: its figures beside INFO's, its keys and signals on a terminal, a server that goes.

Nothing is decided by a time that has passed: each step waits until the screen, a line or a status says that it is done,
for a minute at most.
"""
import json
import os
import pathlib
import random
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading

sys.path[:0] = [os.path.dirname(os.path.dirname(os.path.abspath(__file__))), os.path.dirname(os.path.abspath(__file__))]
from resp_client import Error, Stream, request
from server_process import Server
from terminal import Terminal

build = pathlib.Path(sys.argv[1]).resolve()
quire = str(build / "quire")
passed = failed = 0
ROWS, DIM = 400, 8
HOSTILE = b"e\x1b[31mvil\r\n,name=x\xff"


def check(name, right, seen=""):
    global passed, failed
    passed, failed = passed + bool(right), failed + (not right)
    print(("ok - " if right else "FAIL - ") + name, flush=True)
    if not right:
        print("    | " + str(seen)[-1500:].replace("\n", "\n    | "), flush=True)


def top(*arguments, environment=None, seconds=120):
    return subprocess.run([quire, "top", *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=seconds, env={"PATH": os.environ["PATH"], "TERM": "xterm", **(environment or {})})


def vector(seed):
    r = random.Random(seed)
    return struct.pack("<%df" % DIM, *(r.gauss(0, 1) for _ in range(DIM)))


def fill(c):
    """A set with tenants, and a cache; some of each kind of request."""
    assert c.call("VCREATE", "docs", "DIM", DIM, "METRIC", "cosine", "TENANTS") == "OK"
    for i in range(ROWS):
        tenant = b"acme" if i % 2 else HOSTILE
        assert c.call("VADD", "docs", "FP32", vector(i), "e%d" % i, "TENANT", tenant) == 1
    assert c.call("SC.CREATE", "faq", "DIM", DIM) == "OK"
    assert c.call("SC.CAT.SET", "faq", "c", "SIM", "0.95", "TTL", 3600000) == "OK"
    for i in range(20):
        reply = c.call("SC.PUT", "faq", "CAT", "c", "HASH", "h%d" % i, "VEC", vector(i), "TEXT", "q%d" % i, "VALUE", "a")
        assert not isinstance(reply, Error), reply
    search(c, 50)


def search(c, n):
    for i in range(n):
        for tenant in (b"acme", HOSTILE):
            reply = c.call("VSIM", "docs", "FP32", vector(i + 1000), "COUNT", 3, "TENANT", tenant)
            assert len(reply) == 3, reply
        c.call("SC.GET", "faq", "CAT", "c", "HASH", "h%d" % (i % 25), "VEC", vector(i % 25), "TEXT", "q")
    assert isinstance(c.call("VSIM", "docs", "ELE", "nobody"), Error)


def info(c):
    """Numbers of INFO by name, and rows: {"tenant0": {...}}."""
    numbers, rows = {}, {}
    for line in c.call("INFO", "everything").decode().splitlines():
        name, _, value = line.partition(":")
        if "=" in value:
            rows[name] = dict(part.partition("=")[::2] for part in value.split(","))
        else:
            numbers[name] = value
    return numbers, rows


def quiet_info(c, ask):
    """INFO before and after ask(), and what it gave, where nobody else asks."""
    before = info(c)
    return before, ask(), info(c)


# ---- figures --------------------------------------------------------------------------------------------------------

def lies_between(value, before, after):
    """Also where a level has risen or fallen."""
    low, high = sorted((float(before), float(after)))
    return low - 1e-6 <= value <= high + 1e-6


def test_figures(c, port):
    before, run, after = quiet_info(c, lambda: top("--port", port, "--json", "--once", "--interval", 0.2))
    check("one line of JSON", run.returncode == 0 and run.stdout.count("\n") == 1, run)
    line = json.loads(run.stdout)
    names = set(line["info"]) - {"keys", "used_memory", "used_memory_rss", "mem_clients_normal"}  # these move by themselves
    wrong = {n: (line["info"][n], before[0].get(n), after[0].get(n)) for n in names
             if n not in before[0] or not lies_between(line["info"][n], before[0][n], after[0][n])
             and n not in ("connected_clients", "total_net_output_bytes")}
    check("each of %d figures is INFO's" % len(names), len(names) > 55 and not wrong, wrong)
    same = [n for n in names if before[0][n] == after[0][n]]
    wrong = [(n, line["info"][n], before[0][n]) for n in same if line["info"][n] != json.loads(before[0][n])]
    check("most of them to the digit", len(same) > 45 and set(n for n, *_ in wrong) <= {"connected_clients"}, (len(same), wrong))
    check("keys and version", line["info"]["keys"] == 1 and line["quire_version"] == before[0]["quire_version"] and
          line["run_id"] == before[0]["run_id"], line["info"])
    percentiles = before[1]["search_latency_us"]
    check("percentiles of searches", {n: str(int(v)) for n, v in line["search_latency_us"].items()} == percentiles,
          line["search_latency_us"])
    for kind, prefix in (("tenant_rows", "tenant"), ("cache_rows", "cache")):
        rows = {r.get("name", r.get("user")): r for n, r in before[1].items() if n.startswith(prefix) and n[len(prefix):].isdigit()}
        seen = {r["name"]: r for r in line[kind]}
        later = {r.get("name", r.get("user")): r for r in after[1].values()}
        wrong = [(n, f, seen[n].get(f), rows[n][f]) for n in rows for f in seen.get(n, {})
                 if f in rows[n] and f != "name" and not lies_between(seen[n][f], rows[n][f], later[n][f])]
        check("%s: names and %d figures" % (kind, sum(len(r) for r in seen.values())), rows and set(rows) == set(seen) and
              not wrong, (sorted(rows), sorted(seen), wrong))
    calls = {r["name"]: r for r in line["command_rows"]}
    wanted = before[1]["cmdstat_vsim"]
    check("commands", calls["vsim"]["calls"] == int(wanted["calls"]) and
          calls["vsim"]["failed_calls"] == int(wanted["failed_calls"]) == 1, calls["vsim"])
    check("without traffic rates are 0", line["per_second"]["searches"] == 0 and line["no_rates"] is None and
          line["per_second"]["total_commands_processed"] > 0 and line["seconds"] > 0, line["per_second"])

    run = top("--port", port, "--once", "--interval", 0.2)
    total = before[0]["searches"]
    check("a frame of text", run.returncode == 0 and "\x1b" not in run.stdout and "searches" in run.stdout, run)
    check("with all tables", all(w in run.stdout for w in ("tenants 3, by rate", "caches 1, by rate", "commands ")), run.stdout)
    row = next((r for r in run.stdout.splitlines() if r.startswith("acme")), "")
    acme = next(r for r in before[1].values() if r.get("name") == "acme")
    check("whose totals are INFO's", row.split()[-1] == acme["queries"] and int(total) == 2 * int(acme["queries"]), (row, total))
    check("and no line above 100 columns", max(map(len, run.stdout.splitlines())) <= 100, run.stdout)


def test_rates(c, port):
    """What the lines say per second, times their seconds, is what the counters say."""
    stop = threading.Event()

    def load():
        other = Stream(port)
        while not stop.is_set():
            search(other, 5)
    thread = threading.Thread(target=load)
    thread.start()
    run = top("--port", port, "--json", "--interval", 0.3, "--count", 4)
    stop.set()
    thread.join()
    lines = [json.loads(line) for line in run.stdout.splitlines()]
    check("--count gives so many lines", run.returncode == 0 and len(lines) == 4, run)
    wrong = []
    for earlier, later in zip(lines, lines[1:]):
        for name, rate in later["per_second"].items():
            change = later["info"][name] - earlier["info"][name]
            if abs(rate * later["seconds"] - change) > 1e-6 * max(1, change):
                wrong.append((name, rate, later["seconds"], change))
    check("rates times seconds are the differences", not wrong and len(lines[1]["per_second"]) > 20, wrong)
    busy = lines[-1]
    check("searches and their reads", busy["per_second"]["searches"] > 0 and busy["reads_per_search"] is not None, busy["per_second"])
    check("lookups by kind make the whole", abs(sum(v for v in busy["lookup_shares"].values()) - 1) < 1e-6 and
          busy["lookup_shares"]["exact"] > 0, busy["lookup_shares"])
    shares = {r["name"]: r["share"] for r in busy["tenant_rows"]}
    named = [s for name, s in shares.items() if name != "default"]
    check("shares of tenants make the whole", len(shares) == 3 and abs(sum(shares.values()) - 1) < 1e-6 and
          all(0.1 < s < 0.9 for s in named), shares)

    runner = subprocess.Popen([quire, "top", "--port", str(port), "--json", "--interval", "0.2"], stdout=subprocess.PIPE,
                              stdin=subprocess.DEVNULL, text=True)
    found = [json.loads(runner.stdout.readline())["no_rates"]]
    c.call("CONFIG", "RESETSTAT")
    while "reset" not in found and len(found) < 500:
        found.append(json.loads(runner.stdout.readline())["no_rates"])
    found.append(json.loads(runner.stdout.readline())["no_rates"])
    runner.send_signal(signal.SIGTERM)
    rest, status = runner.stdout.read(), runner.wait(60)
    found += [json.loads(line)["no_rates"] for line in rest.splitlines()]
    check("CONFIG RESETSTAT: one interval without rates", found.count("reset") == 1 and found[-1] is None, found)
    check("SIGTERM ends it with 143", status == 143, status)


def test_sealing(c, port):
    """A seal under way is seen: tried again with more rows where it was too short for that."""
    for rows in (2000, 8000, 32000):
        key = "s%d" % rows
        for first in range(0, rows, 500):
            for reply in c.ask([request("VADD", key, "FP32", vector(i), "e%d" % i)
                                for i in range(first, first + 500)]):
                assert reply == 1, reply
        watcher, seen, over = Stream(port), set(), threading.Event()
        done = threading.Thread(target=lambda: (c.call("VSEAL", key), over.set()))
        done.start()
        while not over.is_set():
            seen.add(info(watcher)[0]["sealing"])
        done.join()
        if "1" in seen:
            break
    check("INFO says that a seal is under way", seen == {"0", "1"} or seen == {"1"}, seen)
    check("and that it is over", info(c)[0]["sealing"] == "0" and int(info(c)[0]["seals"]) > 0, info(c)[0]["sealing"])


# ---- the terminal ---------------------------------------------------------------------------------------------------

def live(port, *arguments, **settings):
    return Terminal([quire, "top", "--port", str(port), "--interval", "0.1", *arguments], **settings)


def whole_screen(t):
    """A frame of this size is there: the line of the keys is the last."""
    lines = t.lines()
    return lines[-1].startswith("q quit"[:t.columns]) and lines[0].startswith("quire top"[:t.columns])


def rows_by_name(t):
    """Names in the table that is sorted by them."""
    lines = t.lines()
    heads = [i for i, line in enumerate(lines) if line.startswith("name*")]
    return [line.split()[0] for line in lines[heads[0] + 1:-1] if line.strip()] if heads else []


def test_keys(c, port):
    for words in ("PING", "ECHO a", "SET k 1", "GET k", "INCR k", "TTL k", "TYPE k", "DEL k", "EXISTS k", "DBSIZE", "TIME", "ROLE",
                  "HSET h a 1", "HGET h a", "HLEN h", "DEL h", "VCARD docs", "VDIM docs", "SC.LIST"):
        c.call(*words.split())
    search(c, 1)
    t = live(port)
    check("the view appears", t.shows("quire top", "searches", "tenants 3, by rate", "q quit"), t.text())
    check("on a screen of its own, without a cursor", t.other_screen and not t.cursor, t.raw[:100])
    check("the tenants are there", "acme" in t.text() and "e%1B[31m" in t.text(), t.text())
    for keys, wanted in (("c", "caches 1, by rate"), ("m", "commands "), ("\t", "tenants 3, by rate"), ("s", "by total"),
                         ("s", "by time"), ("s", "by share"), ("s", "by name"), ("r", "by name, reversed"), ("r", "by name\n"),
                         ("s", "by rate"), ("+", "every 0.2 s"), ("-", "every 0.1 s"), ("p", "paused"),
                         ("h", "quire top: keys"), ("?", "paused")):
        t.type(keys)
        check("key %r shows %r" % (keys, wanted), t.shows(wanted), t.text())
    t.type("p")
    check("it goes on", t.until(lambda t: "paused" not in t.text()), t.text())
    t.type("m" + 4 * "s")
    check("by name", t.until(lambda t: len(rows_by_name(t)) > 3 and rows_by_name(t) == sorted(rows_by_name(t))), t.text())
    first, second = rows_by_name(t)[:2]
    t.type("\x1b[B\x1b[B\x1b[A")
    check("rows scroll by one", t.until(lambda t: rows_by_name(t)[:1] == [second]), (second, t.text()))
    t.type("\x1b[6~" * 30)
    check("to the last", t.until(lambda t: rows_by_name(t)[-1:] == ["vsim"]), t.text())
    t.type("\x1b[5~" * 40)
    check("and back to the first", t.until(lambda t: rows_by_name(t)[:1] == [first]), (first, t.text()))
    for rows, columns in ((15, 40), (10, 20), (3, 10), (1, 5), (50, 160), (24, 80)):
        t.size(rows, columns)
        t.frames(4)  # what was under way for the old size is over
        t.strange.clear()
        t.type("\x0c")
        good = t.frames(2) and t.until(whole_screen if rows > 1 else lambda t: t.lines()[0] == "quire")
        check("%d x %d" % (columns, rows), good and not t.strange, (t.strange, t.text()))
    t.type("q")
    check("q ends it with 0", t.end() == 0, t.status)
    check("and the terminal is as it was", t.restored(), t.raw[-60:])
    check("it had colours", t.styles > 0, t.raw[-300:])
    t.close()
    t = live(port, environment={"NO_COLOR": "1"})
    shown = t.shows("acme")
    t.type("h")
    t.shows("quire top: keys")
    check("NO_COLOR: the same without any", shown and t.styles == 0 and not t.strange, (t.styles, t.strange))
    t.type("hq")
    check("and ends well", t.end() == 0 and t.restored(), t.status)
    t.close()


def test_signals(port):
    for name, end, status in (("^C", lambda t: t.type("\x03"), 130), ("^\\", lambda t: t.type("\x1c"), 131),
                              ("SIGTERM", lambda t: os.kill(t.pid, signal.SIGTERM), 143),
                              ("SIGHUP", lambda t: os.kill(t.pid, signal.SIGHUP), 129),
                              ("SIGSEGV", lambda t: os.kill(t.pid, signal.SIGSEGV), -signal.SIGSEGV),
                              ("SIGABRT", lambda t: os.kill(t.pid, signal.SIGABRT), -signal.SIGABRT)):
        t = live(port)
        shown = t.shows("q quit")
        end(t)
        t.end()
        sanitized = status < 0 and t.status is not None and t.status != 0 and b"Sanitizer" in t.raw
        check("%s ends it with %d, the terminal as it was" % (name, status), shown and t.restored() and
              (t.status == status or sanitized), (t.status, t.raw[-200:]))
        t.close()
    t = live(port)
    t.shows("q quit")
    t.type("\x1a")
    check("^Z stops it and gives the terminal back", t.stopped() and t.restored(), t.raw[-60:])
    t.size(30, 90)
    os.kill(t.pid, signal.SIGCONT)
    check("and it comes back", t.until(lambda t: t.other_screen and whole_screen(t)), t.text())
    t.type("q")
    check("and ends well", t.end() == 0 and t.restored(), t.status)
    t.close()


def test_without_terminal(port):
    run = top("--port", port, "--interval", 0.1, "--count", 2)
    check("a pipe gets plain frames", run.returncode == 0 and run.stdout.count("quire top  ") == 2 and
          "\x1b" not in run.stdout, run)
    t = Terminal([quire, "top", "--port", str(port), "--interval", "0.1", "--count", "2"], environment={"TERM": "dumb"})
    t.end()
    check("so does a dumb terminal", t.status == 0 and b"\x1b" not in t.raw and t.raw.count(b"quire top  ") == 2, t.raw[-500:])
    t.close()
    t = Terminal([quire, "top", "--port", str(port), "--interval", "0.1", "--once"])
    t.end()
    check("and --once on any", t.status == 0 and b"\x1b" not in t.raw and t.raw.count(b"quire top  ") == 1, t.raw[-500:])
    t.close()
    with open("/dev/full", "w") as full:
        run = subprocess.run([quire, "top", "--port", str(port), "--once", "--interval", "0.1"], stdin=subprocess.DEVNULL,
                             stdout=full, stderr=subprocess.PIPE, text=True, timeout=120)
    check("a full disk is an error", run.returncode == 1 and "standard output: No space left" in run.stderr, run)


# ---- the server goes ------------------------------------------------------------------------------------------------

def test_restart(server, folder):
    port = server.port
    t = live(port)
    t.shows("q quit", "acme")
    runner = subprocess.Popen([quire, "top", "--port", str(port), "--json", "--interval", "0.1"], stdout=subprocess.PIPE,
                              stdin=subprocess.DEVNULL, text=True)
    first = json.loads(runner.stdout.readline())
    os.kill(server.process.pid, signal.SIGSTOP)
    check("a server that hangs: it says how long", t.until(lambda t: re.search("waiting +for an answer: 0:0[2-9]", t.text())),
          t.text())
    os.kill(server.process.pid, signal.SIGCONT)
    check("and goes on", t.until(lambda t: "for an answer" not in t.text()), t.text())
    server.kill()
    check("a server that is killed: it says so", t.shows("no server", "connecting again", "the figures are its last"), t.text())
    check("with the last figures", "acme" in t.text(), t.text())
    t.type("s")
    check("and keys work", t.shows("by total"), t.text())
    again = Server(build, folder, "--port", str(port))
    check("started again: it goes on", t.until(lambda t: "no server" not in t.text() and "up 0:" in t.text()), t.text())
    check("with rates", t.until(lambda t: "note " not in t.text()), t.text())
    t.type("q")
    check("and ends well", t.end() == 0 and t.restored() and not t.strange, (t.status, t.strange))
    t.close()
    lines = []
    while not lines or not (lines[-1]["connected"] and lines[-1]["run_id"] != first["run_id"] and lines[-1]["no_rates"] is None):
        lines.append(json.loads(runner.stdout.readline()))
    runner.send_signal(signal.SIGINT)
    runner.stdout.read()
    check("^C ends the lines with 130", runner.wait(60) == 130, runner.returncode)
    gone = [line for line in lines if not line["connected"]]
    check("lines while it is gone say why", gone and all(line["problem"] and "info" not in line for line in gone), gone[:1])
    new = next(line for line in lines if line["connected"] and line["run_id"] != first["run_id"])
    check("the first of the new one has no rates", new["no_rates"] == "restart" and new["seconds"] is None and
          all(v is None for v in new["per_second"].values()), new["per_second"])
    bad = [line for line in lines if line["connected"] for v in line["per_second"].values() if v is not None and v < 0]
    check("no rate is below 0", not bad, bad)
    return again


# ---- addresses, rights, mistakes ------------------------------------------------------------------------------------

def fails(name, status, text, *arguments, environment=None):
    run = top(*arguments, environment=environment)
    check(name, run.returncode == status and text in run.stderr and "\x1b" not in run.stdout, run)


def test_addresses(c, server, folder):
    port = server.port
    run = top("--unix", folder / "sock", "--once", "--interval", 0.1)
    check("a Unix socket", run.returncode == 0 and str(folder / "sock") in run.stdout, run)
    run = top("--host", "localhost", "--port", port, "--once", "--interval", 0.1)
    check("a name", run.returncode == 0 and "localhost:%d" % port in run.stdout, run)
    c.call("ACL", "SETUSER", "ops", "on", ">secret", "+info", "+client|setname")
    c.call("ACL", "SETUSER", "poor", "on", ">secret", "+ping")
    (folder / "password").write_text("secret\nnot this\n")
    (folder / "empty").write_text("\n")
    (folder / "long").write_text("x" * 600)
    base = ("--port", port, "--once", "--interval", 0.1)
    run = top(*base, "--user", "ops", "--password-file", folder / "password")
    check("a user with a password of a file", run.returncode == 0, run)
    run = top(*base, "--user", "ops", environment={"QUIRE_PASSWORD": "secret"})
    check("or of the environment", run.returncode == 0, run)
    fails("a wrong password", 1, "WRONGPASS", *base, "--user", "ops", environment={"QUIRE_PASSWORD": "no"})
    fails("no right to INFO", 1, "+info", *base, "--user", "poor", environment={"QUIRE_PASSWORD": "secret"})
    fails("a user without a password", 2, "--password-file", *base, "--user", "ops")
    fails("an empty password", 1, "is empty", *base, "--password-file", folder / "empty")
    fails("one that is none", 1, "512 bytes", *base, "--password-file", folder / "long")
    fails("a file that is not there", 1, "No such file", *base, "--password-file", folder / "none")
    c.call("CONFIG", "SET", "requirepass", "all")
    fails("a password is needed", 1, "QUIRE_PASSWORD", *base)
    run = top(*base, environment={"QUIRE_PASSWORD": "all"})
    check("the default user's", run.returncode == 0, run)
    c.call("CONFIG", "SET", "requirepass", "")
    fails("nobody there", 1, "Connection refused", "--port", 1, "--once")
    fails("no such host", 1, "there is no host", "--host", "no-such-host.invalid", "--once")
    fails("no such socket", 1, "No such file", "--unix", folder / "nothing", "--once")
    fails("a path that is too long", 1, "107 bytes", "--unix", "/x" * 60, "--once")
    fails("an interval of nothing", 2, "from 0.1 to 3600", "--interval", 0.05)
    fails("an interval of a day", 2, "--interval 86400", "--interval", 86400)
    fails("--once and --count", 2, "--once is one frame", "--once", "--count", 3)
    fails("a sort that is none", 2, "rate|total", "--sort", "size")
    run = top("--port", 1, "--json", "--once")
    check("with --json an error is an object", run.returncode == 1 and json.loads(run.stdout)["error"] == "QUIRE_ENET", run)
    run = top("--help")
    check("--help", run.returncode == 0 and "QUIRE_PASSWORD" in run.stdout and "quire top --port 7000 --once" in run.stdout, run)


def test_strangers(folder):
    """What answers on a wrong port, or answers nonsense."""
    def serve(answer, ask):
        listener = socket.create_server(("127.0.0.1", 0))

        def run():
            client = listener.accept()[0]
            asked = b""
            while b"INFO" not in asked:
                asked += client.recv(65536)
            client.sendall(answer)
            client.close()
        thread = threading.Thread(target=run)
        thread.start()
        ask(listener.getsockname()[1])
        thread.join()
        listener.close()
    ok = b"+OK\r\n"
    for name, answer, text in (("HTTP", b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak RESP"),
                               ("an end", b"", "closed the connection"),
                               ("a refusal", b"-ERR max number of clients reached\r\n", "max number of clients"),
                               ("a Redis", ok + b"$20\r\nredis_version:7.0.0\r\r\n", "no quire_version"),
                               ("a flood", ok + b"$999999999\r\n", "does not speak RESP"),
                               ("TLS", b"\x15\x03\x03\x00\x02\x02\x46", "Unix socket"),
                               ("an escape", ok + b"-\x1b[2J\r\n", "?[2J")):
        serve(answer, lambda port: fails("instead of a server: " + name, 1, text, "--port", port, "--once"))


def main():
    with tempfile.TemporaryDirectory(prefix="quire-top-", dir=os.environ.get("TMPDIR")) as name:
        folder = pathlib.Path(name)
        with socket.create_server(("127.0.0.1", 0)) as free:  # with a Unix socket, port 0 would mean none
            port = free.getsockname()[1]
        silent = socket.create_server(("127.0.0.1", 0))
        waits = subprocess.Popen([quire, "top", "--port", str(silent.getsockname()[1])], stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        server = Server(build, folder, "--port", str(port), "--unixsocket", str(folder / "sock"), "--enable-debug-command", "local")
        try:
            c = Stream(server.port)
            fill(c)
            test_figures(c, server.port)
            test_rates(c, server.port)
            test_sealing(c, server.port)
            test_keys(c, server.port)
            test_signals(server.port)
            test_without_terminal(server.port)
            test_addresses(c, server, folder)
            test_strangers(folder)
            server = test_restart(server, folder)
            said = waits.communicate(timeout=120)[1]
            check("instead of a server: silence", waits.returncode == 1 and "no answer within 10 seconds" in said, said)
        finally:
            waits.kill()
            waits.wait()
            if server.process.poll() is None:
                server.stop()
    print("%d passed, %d failed" % (passed, failed))
    sys.exit(failed > 0)


main()
