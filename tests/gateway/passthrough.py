#!/usr/bin/env python3
"""passthrough.py BUILD_DIR - with the cache off a gateway changes nothing but what HTTP makes it change.

Bytes as the upstream gets them and as the client gets them, compared with what was sent; streams event by event; what
happens when one side fails, is slow or leaves; several upstreams; reloads and stops. One line per check.
"""
import hashlib
import json
import os
import pathlib
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from raw_http import OK, Checks, Client, Gateway, Upstream, ask, field, fields_of, get, status, until  # noqa: E402

checks = Checks()
check, equal = checks.check, checks.equal
build = pathlib.Path(sys.argv[1])
HOP = {b"connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade", b"proxy-connection",
       b"x-named", b"host", b"content-length", b"expect"}


def without_hop(head):
    return [f for f in fields_of(head) if f[0].lower() not in HOP]


def error_of(body):
    try:
        return json.loads(body)["error"]
    except (ValueError, KeyError, TypeError):
        return {}


def requests_arrive_as_sent(up, gateway):
    extra = (b"Zebra:  two  blanks \r\nauthorization: Bearer sk-secret\r\nX-Empty:\r\nX-Bytes: \xff\xfe\r\n"
             b"zebra: again\r\nAccept-Encoding: gzip, br\r\nKeep-Alive: 5\r\nTE: trailers\r\nProxy-Connection: x\r\n"
             b"Connection: keep-alive, X-Named\r\nX-Named: y\r\nUser-Agent: me/1\r\n")
    for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
        for target in ("/v1/x", "/a%20b/../c;d?e=f&g=%00#".rstrip("#"), "//double/./dot?", "/q?http://x/?y=z"):
            body = b"" if method in ("GET", "OPTIONS") else b"\x00\xffbody\r\n\r\n" * 3
            framing = b"Content-Length: %d\r\n" % len(body) if body else b""
            head = b"%s %s HTTP/1.1\r\nHost: gateway\r\n" % (method.encode(), target.encode()) + extra + framing + b"\r\n"
            up.requests.clear()
            ask(gateway.port, head + body)
            got_head, got_body = up.requests[0]
            equal("%s %s: request line" % (method, target), got_head.split(b"\r\n")[0], head.split(b"\r\n")[0])
            equal("%s %s: fields" % (method, target), [(k, v.strip()) for k, v in without_hop(got_head)],
                  [(k, v.strip()) for k, v in without_hop(head)])
            equal("%s %s: body" % (method, target), got_body, body)
            equal("%s %s: Host" % (method, target), field(got_head, b"Host"), b"127.0.0.1:%d" % up.port)
    up.requests.clear()
    ask(gateway.port, b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
    equal("a POST without a body says so", field(up.requests[0][0], b"Content-Length"), b"0")
    check("nothing is added to what the client sent", {k.lower() for k, _ in fields_of(up.requests[0][0])} <=
          {b"host", b"content-length"}, up.requests[0][0])


def answers_arrive_as_sent(up, gateway):
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-A: 1\r\n\r\n"
    gzip_bomb = bytes.fromhex("1f8b0800000000000003") + b"\x00" * 100000
    cases = {
        "/length": (b"HTTP/1.1 200 OK\r\nx-a:  b \r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nX-Bytes: \xff\r\n"
                    b"Content-Length: 5\r\nDate: yesterday\r\nConnection: X-Hop\r\nX-Hop: y\r\n\r\na\x00\xff\r\n", 200, b"a\x00\xff\r\n"),
        "/chunks": (chunked + b"3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nX-Trailer: z\r\n\r\n", 200, b"abcde"),
        "/close": (b"HTTP/1.1 200 OK\r\nX-A: 1\r\nConnection: close\r\n\r\nuntil the end", 200, b"until the end"),
        "/none": (b"HTTP/1.1 204 No Content\r\nX-A: 1\r\n\r\n", 204, b""),
        "/early": (b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 1\r\n\r\nx", 201, b"x"),
        "/gzip": (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(gzip_bomb) + gzip_bomb,
                  200, gzip_bomb),
        "/429": (b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 7\r\nretry-after-ms: 6500\r\nx-should-retry: false\r\n"
                 b"Content-Length: 2\r\n\r\n{}", 429, b"{}"),
        "/500": (b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n", 500, b""),
        "/301": (b"HTTP/1.1 301 Moved\r\nLocation: http://elsewhere/\r\nContent-Length: 0\r\n\r\n", 301, b""),
        "/401": (b"HTTP/1.1 401 No\r\nWWW-Authenticate: Basic\r\nContent-Length: 0\r\n\r\n", 401, b""),
    }
    hop = {b"connection", b"x-hop", b"transfer-encoding", b"content-length", b"date"}
    for path, (answer, code, body) in cases.items():
        up.answers[path] = (lambda a: lambda sock, head, _: sock.sendall(a) or None)(answer) if path == "/close" else answer
        head, got, whole = get(gateway.port, path)
        equal(path + ": status", status(head), code)
        equal(path + ": body", (got, whole), (body, True))
        wanted = [(k, v.strip()) for k, v in fields_of(answer.split(b"\r\n\r\n")[1 if path == "/early" else 0] + b"\r\n\r\n")
                  if k.lower() not in hop]
        equal(path + ": fields", [(k, v.strip()) for k, v in fields_of(head) if k.lower() not in hop], wanted)
    equal("an upstream's Date is kept", field(get(gateway.port, "/length")[0], b"Date"), b"yesterday")
    up.answers["/head"] = b"HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n"
    head, _, _ = ask(gateway.port, b"HEAD /head HTTP/1.1\r\nHost: a\r\n\r\n", head_only=True)
    equal("HEAD has the length of what it does not send", field(head, b"Content-Length"), b"1234")


def bodies_of_any_size(up, gateway):
    def echo(sock, head, body):
        digest = hashlib.sha256(body).hexdigest().encode()
        return b"HTTP/1.1 200 OK\r\nContent-Length: 64\r\n\r\n" + digest
    up.answers["/echo"] = echo
    for size in (1, 65535, 65536, 65537, 300000, 20 << 20):
        body = os.urandom(size)
        digest = hashlib.sha256(body).hexdigest().encode()
        _, got, _ = ask(gateway.port, b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % size + body)
        equal("a body of %d bytes by length" % size, got, digest)
        chunks = b"".join(b"%x\r\n%s\r\n" % (len(body[i:i + 70000]), body[i:i + 70000]) for i in range(0, size, 70000))
        _, got, _ = ask(gateway.port, b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n")
        equal("a body of %d bytes in chunks" % size, got, digest)
        up.answers["/big"] = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + body
        equal("an answer of %d bytes" % size, hashlib.sha256(get(gateway.port, "/big")[1]).hexdigest().encode(), digest)
    client = Client(gateway.port)
    client.send(b"POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n")
    equal("Expect: 100-continue is answered", client.sock.recv(100), b"HTTP/1.1 100 Continue\r\n\r\n")
    equal("and the body goes on", client.send(b"abc").answer()[1], hashlib.sha256(b"abc").hexdigest().encode())


def streams_come_as_they_are_sent(up, gateway):
    seen = threading.Semaphore(0)
    lost = []

    def stream(sock, head, body):
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for i in range(50):
            event = b'data: {"i": %d}\n\n' % i
            sock.sendall(b"%x\r\n%s\r\n" % (len(event), event))
            if not seen.acquire(timeout=30):
                lost.append(i)
                break
        return b"0\r\n\r\n"
    up.answers["/stream"] = stream
    client = Client(gateway.port).send(b"POST /stream HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}")
    from raw_http import read_body, read_head
    head, rest = read_head(client.sock)
    events = []
    body, _, whole = read_body(client.sock, head, rest, on_bytes=lambda b: (events.append(b), seen.release()))
    check("each event arrives before the next is sent", not lost and whole, (lost, whole))
    equal("the borders of events stay", events[:50], [b'data: {"i": %d}\n\n' % i for i in range(50)])


def connections_are_used_again(up, gateway):
    before = up.connections
    client = Client(gateway.port)
    for _ in range(20):
        client.send(b"GET /x HTTP/1.1\r\nHost: a\r\n\r\n").answer()
    check("one connection of ours is one of theirs", up.connections - before <= 1, up.connections - before)
    pipelined = Client(gateway.port)
    for i in range(5):
        up.answers["/p%d" % i] = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n%d" % i
    pipelined.send(b"".join(b"GET /p%d HTTP/1.1\r\nHost: a\r\n\r\n" % i for i in range(5)))
    equal("pipelined requests are answered in order", [pipelined.answer()[1] for _ in range(5)],
          [b"%d" % i for i in range(5)])

    def once(sock, head, body):
        sock.sendall(OK)
        return None  # closes although it said nothing of it
    up.answers["/once"] = once
    results = [status(get(gateway.port, "/once")[0]) for _ in range(20)]
    equal("a connection that the upstream closed is not used", results, [200] * 20)


def until_closed(sock):
    sock.settimeout(60)
    try:
        sock.recv(1)
    except OSError:
        pass


def failures(up, gateway):
    def in_stream(tail):
        def answer(sock, head, body):
            sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
                         b"9\r\ndata: 1\n\n\r\n")
            return tail(sock)
        return answer
    up.answers["/cut-stream"] = in_stream(lambda sock: None)
    head, body, whole = get(gateway.port, "/cut-stream")
    check("a stream that breaks ends in an error event, and is not ended as whole",
          body.startswith(b"data: 1\n\ndata: {\"error\":") and b"[DONE]" not in body and not whole, (body, whole))
    check("the event is JSON in OpenAI's shape", error_of(body.split(b"data: ")[2]).get("type") == "api_connection_error", body)
    up.answers["/cut-length"] = lambda sock, head, body: sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")
    head, body, whole = get(gateway.port, "/cut-length")
    equal("an answer that breaks off stays broken", (status(head), body, whole), (200, b"abc", False))
    for name, bytes_ in (("garbage", b"garbage\r\n\r\n"), ("nothing", b""), ("a field without a colon", b"HTTP/1.1 200 OK\r\nabc\r\n\r\n"),
                         ("a folded field", b"HTTP/1.1 200 OK\r\nA: b\r\n c\r\nContent-Length: 0\r\n\r\n"),
                         ("half a head", b"HTTP/1.1 200 OK\r\nContent-Le"),
                         ("an endless head", b"HTTP/1.1 200 OK\r\n" + b"".join(b"A%d: b\r\n" % i for i in range(300)) + b"\r\n")):
        up.answers["/bad"] = (lambda b: lambda sock, head, body: sock.sendall(b) or None)(bytes_)
        head, body, _ = get(gateway.port, "/bad")
        equal("%s of an upstream: 502" % name, (status(head), error_of(body).get("type")), (502, "api_connection_error"))
    equal("and the gateway goes on", status(get(gateway.port, "/x")[0]), 200)


def waits(up, patient, hasty):
    """Upstreams that say nothing: hasty waits for 500 ms."""
    up.answers["/silent-stream"] = lambda sock, head, body: sock.sendall(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"9\r\ndata: 1\n\n\r\n") or until_closed(sock)
    head, body, whole = get(hasty.port, "/silent-stream")
    check("a stream that falls silent ends in an error event", error_of(body.split(b"data: ")[-1]).get("type") == "timeout" and not whole, (body, whole))
    up.answers["/no-head"] = lambda sock, head, body: until_closed(sock)
    head, body, _ = get(hasty.port, "/no-head")
    equal("no head in time: 504", (status(head), error_of(body).get("type"), error_of(body).get("code")), (504, "timeout", "upstream_timeout"))
    head, body, _ = ask(patient.port, b"GET /no-head HTTP/1.1\r\nHost: a\r\nX-Stainless-Timeout: 0.2\r\n\r\n")
    equal("X-Stainless-Timeout, where it is shorter", status(head), 504)


def who_leaves(up, gateway):
    gone = threading.Event()

    def stream(sock, head, body):
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            try:
                sock.sendall(b"3\r\n:x\n\r\n")
            except OSError:
                gone.set()
                return None
            time.sleep(0.01)
    up.answers["/endless"] = stream
    client = Client(gateway.port).send(b"GET /endless HTTP/1.1\r\nHost: a\r\n\r\n")
    client.sock.recv(100)
    client.close()
    check("a client that leaves ends its stream upstream", gone.wait(30))
    heard = threading.Event()

    def wait(sock, head, body):
        sock.settimeout(30)
        if sock.recv(1) == b"":
            heard.set()
    up.answers["/wait"] = wait
    client = Client(gateway.port).send(b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n")
    until(lambda: any(b"/wait" in h for h, _ in up.requests))
    client.close()
    check("also before the answer has begun", heard.wait(30))


def back_pressure(up, gateway):
    sent = [0]

    def flood(sock, head, body):
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (200 << 20))
        piece = b"x" * 65536
        for _ in range((200 << 20) // len(piece)):
            sock.sendall(piece)
            sent[0] += len(piece)
        return b""
    up.answers["/flood"] = flood
    before = gateway.status_kib()
    client = Client(gateway.port).send(b"GET /flood HTTP/1.1\r\nHost: a\r\n\r\n")
    until(lambda: sent[0] > 100000)
    last = -1
    while sent[0] != last:
        last = sent[0]
        time.sleep(0.3)
    check("a client that does not read stops the upstream", sent[0] < 64 << 20, sent[0])
    check("and takes no memory", gateway.status_kib() - before < 1024, gateway.status_kib() - before)
    cpu = gateway.cpu_seconds()
    time.sleep(0.5)
    check("nor time", gateway.cpu_seconds() - cpu < 0.1, gateway.cpu_seconds() - cpu)
    head, body, whole = client.answer()
    equal("and gets all of it when it reads again", (len(body), whole), (200 << 20, True))
    slow = threading.Event()

    def slow_reader(sock, head, rest):
        slow.wait(20)
        left = 30 << 20
        left -= len(rest)
        while left > 0:
            left -= len(sock.recv(1 << 20))
        return OK
    up.answers["/slow"] = slow_reader
    up.read_bodies = False
    before = gateway.status_kib()
    client = Client(gateway.port, 2)
    client.send(b"POST /slow HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % (30 << 20))
    done = [0]
    try:
        while done[0] < 30 << 20:
            done[0] += client.sock.send(b"y" * 65536)
    except TimeoutError:
        pass
    check("an upstream that does not read stops the client", done[0] < 25 << 20, done[0])
    check("and takes no memory of ours", gateway.status_kib() - before < 2048, gateway.status_kib() - before)
    client.sock.settimeout(20)
    slow.set()
    while done[0] < 30 << 20:
        done[0] += client.sock.send(b"y" * min(65536, (30 << 20) - done[0]))
    equal("and goes on when it reads again", client.answer()[1], b"ok")
    up.read_bodies = True


def several_upstreams():
    a, b, dead = Upstream(), Upstream(), socket.socket()
    dead.bind(("127.0.0.1", 0))  # bound and not listening: refused
    dead_url = "http://127.0.0.1:%d" % dead.getsockname()[1]
    gateway = Gateway(build, [{"name": "dead", "url": dead_url, "weight": 100}, {"name": "a", "url": a.url, "weight": 3},
                              {"name": "b", "url": b.url}], health_fails=2, health_pause="10m")
    codes = [status(get(gateway.port, "/x")[0]) for _ in range(40)]
    equal("one that is down costs no request", codes, [200] * 40)
    health = json.loads(get(gateway.port, "/health")[1])["upstreams"]
    check("it is asked last for a while", [u["healthy"] for u in health] == [False, True, True] and health[0]["calls"] <= 4, health)
    check("the others share by weight", 29 <= len(a.requests) <= 31, (len(a.requests), len(b.requests)))
    gateway.stop()
    b.requests.clear()
    gateway = Gateway(build, [{"name": "dead", "url": dead_url, "weight": 1000}, {"name": "b", "url": b.url}], health_fails=1000)
    for size in (10, 60000, 1 << 20):
        body = os.urandom(size)
        ask(gateway.port, b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % size + body)
        check("a body of %d bytes survives the change of upstream" % size, b.requests[-1][1] == body)
    gateway.stop()
    gateway = Gateway(build, [{"name": "dead", "url": dead_url}])
    head, body, _ = get(gateway.port, "/x")
    equal("none that can be reached: 502", (status(head), error_of(body).get("type"), error_of(body).get("code")),
          (502, "api_connection_error", "upstream_unreachable"))
    gateway.stop()
    a.answers["/ready"] = b"HTTP/1.1 503 Loading\r\nContent-Length: 0\r\n\r\n"
    gateway = Gateway(build, [{"name": "a", "url": a.url, "health": "/ready"}, {"name": "b", "url": b.url}], health_interval="50ms")
    healthy = lambda: [u["healthy"] for u in json.loads(get(gateway.port, "/health")[1])["upstreams"]]
    check("a health path that answers 503 makes an upstream wait", until(lambda: healthy() == [False, True]), healthy())
    a.answers["/ready"] = OK
    check("and 200 lets it serve again", until(lambda: healthy() == [True, True]), healthy())
    gateway.stop()
    gateway = Gateway(build, [{"name": "small", "url": a.url, "models": ["llama*", "org/tiny"]}, {"name": "rest", "url": b.url}])
    a.requests.clear()
    b.requests.clear()
    for model in ("llama-3", "org/tiny", "org/tiny-2", "gpt-4o"):
        body = json.dumps({"model": model, "messages": []}).encode()
        ask(gateway.port, b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n" % len(body) + body)
    names = lambda upstream: [json.loads(body)["model"] for _, body in upstream.requests]
    equal("a model's name chooses its upstream", (names(a), names(b)), (["llama-3", "org/tiny"], ["org/tiny-2", "gpt-4o"]))
    gateway.stop()
    gateway = Gateway(build, [{"name": "v1", "url": a.url + "/base/v1", "key": "sk-upstream"}])
    a.requests.clear()
    ask(gateway.port, b"GET /v1/x HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer mine\r\n\r\n")
    ask(gateway.port, b"GET /y HTTP/1.1\r\nHost: a\r\nx-api-key: mine\r\n\r\n")
    equal("/v1 of both URLs is sent once", [h.split(b" ")[1] for h, _ in a.requests], [b"/base/v1/x", b"/base/v1/y"])
    equal("an upstream's own key takes the place of the client's",
          [(field(h, b"Authorization"), field(h, b"x-api-key")) for h, _ in a.requests],
          [(b"Bearer sk-upstream", None), (None, b"sk-upstream")])
    check("which nobody sees in the logs", "sk-upstream" not in gateway.log() and "mine" not in str(gateway.access()))
    gateway.stop()
    for up in (a, b):
        up.close()


def operation(up):
    gateway = Gateway(build, [{"name": "up", "url": up.url}], stop_timeout="1s")
    gateway.config.write_text("{")
    gateway.reload("stay as they were")
    equal("after a settings file that is broken the old ones hold", status(get(gateway.port, "/x")[0]), 200)
    gateway.configure(body_max=2048, key_body_max=1024, listen=["127.0.0.1:1"])
    gateway.reload("settings read again")
    equal("after a reload the new ones", status(ask(gateway.port, b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5000\r\n\r\n")[0]), 413)
    check("what needs a restart is named", "only after a restart: listen" in gateway.log(), gateway.log())
    line = gateway.access()[0]
    check("the access log says what was asked", (line["method"], line["path"], line["status"]) == ("GET", "/x", 200), line)
    metrics = get(gateway.port, "/metrics")[1].decode()
    check("metrics are Prometheus' text", all(line.startswith("#") or float(line.rsplit(" ", 1)[1]) >= 0
                                              for line in metrics.splitlines()), metrics)
    go_on = threading.Event()

    def stream(sock, head, body):
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n")
        go_on.wait(60)
        return b"9\r\ndata: 2\n\n\r\n0\r\n\r\n"
    up.answers["/s"] = stream
    client = Client(gateway.port).send(b"GET /s HTTP/1.1\r\nHost: a\r\n\r\n")
    idle = Client(gateway.port)
    client.begun()
    until(lambda: json.loads(get(gateway.port, "/health")[1])["connections"] == 3)
    gateway.process.send_signal(signal.SIGTERM)
    check("a stop closes connections without a request", idle.is_closed())
    try:
        Client(gateway.port).close()
        refused = False
    except ConnectionError:
        refused = True
    check("and takes no new ones", refused)
    go_on.set()
    head, body, whole = client.answer()
    equal("a stream may end", (body, whole), (b"data: 1\n\ndata: 2\n\n", True))
    equal("the gateway ends with 0", gateway.stop(), 0)
    up.requests.clear()
    go_on.clear()
    gateway = Gateway(build, [{"name": "up", "url": up.url}], stop_timeout="200ms")
    client = Client(gateway.port).send(b"GET /s HTTP/1.1\r\nHost: a\r\n\r\n")
    client.begun()
    begin = time.monotonic()
    equal("a stop with a stream that does not end", gateway.stop(), 0)
    check("takes stop-timeout", 0.15 < time.monotonic() - begin < 30, time.monotonic() - begin)
    head, body, whole = client.answer()
    check("the stream ends in an error event", error_of(body.split(b"data: ")[-1]).get("type") == "server_error" and not whole, (body, whole))
    gateway = Gateway(build, [{"name": "up", "url": up.url}], stop_timeout="1h")
    client = Client(gateway.port).send(b"GET /s HTTP/1.1\r\nHost: a\r\n\r\n")
    client.begun()
    gateway.process.send_signal(signal.SIGTERM)
    time.sleep(0.2)
    check("a stop waits", gateway.process.poll() is None)
    equal("a second signal does not", gateway.stop(60), 0)
    go_on.set()
    first = Gateway(build, [{"name": "up", "url": up.url}], reuse_port=True)
    second = Gateway(build, [{"name": "up", "url": up.url}], reuse_port=True, listen=["127.0.0.1:%d" % first.port])
    equal("reuse-port: two gateways on one port", [status(get(first.port, "/x")[0]) for _ in range(40)], [200] * 40)
    check("and both are asked", first.access() and second.access())
    first.stop()
    second.stop()
    sockets = tempfile.mkdtemp(prefix="quire-gateway.")
    gateway = Gateway(build, [{"name": "up", "url": up.url}], listen=["unix:%s/s" % sockets, "127.0.0.1:0"], metrics_listen="127.0.0.1:0")
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(sockets + "/s")
    sock.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
    check("a unix socket; with metrics-listen /health is the upstream's", sock.recv(1000).endswith(b"ok"))
    sock.close()
    gateway.stop()
    check("its file is gone after a stop", not os.path.exists(sockets + "/s"))
    os.rmdir(sockets)


def systemd(up):
    folder = tempfile.mkdtemp(prefix="quire-gateway.")
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.bind(folder + "/notify")
    manager.settimeout(30)
    os.environ.update(NOTIFY_SOCKET=folder + "/notify", WATCHDOG_USEC="400000")
    try:
        gateway = Gateway(build, [{"name": "up", "url": up.url}])
    finally:
        del os.environ["NOTIFY_SOCKET"], os.environ["WATCHDOG_USEC"]
    equal("systemd hears that it is ready", manager.recv(100), b"READY=1")
    equal("and that it lives", [manager.recv(100) for _ in range(3)], [b"WATCHDOG=1"] * 3)
    gateway.process.send_signal(signal.SIGTERM)
    said = b""
    while said in (b"", b"WATCHDOG=1"):
        said = manager.recv(100)
    equal("and that it stops", said, b"STOPPING=1")
    equal("with 0", gateway.process.wait(60), 0)
    manager.close()
    os.unlink(folder + "/notify")
    os.rmdir(folder)


def tls(up):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="quire-gateway."))

    def certificate(name):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                        "-subj", "/CN=" + name, "-keyout", str(folder / "key"), "-out", str(folder / "cert")],
                       check=True, capture_output=True)
    certificate("first")
    gateway = Gateway(build, [{"name": "up", "url": up.url}], tls_cert_file=str(folder / "cert"), tls_key_file=str(folder / "key"))
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE

    def connect():
        return context.wrap_socket(socket.create_connection(("127.0.0.1", gateway.port), timeout=10))

    def name_of(sock):
        text = subprocess.run(["openssl", "x509", "-inform", "DER", "-noout", "-subject"], input=sock.getpeercert(True), capture_output=True)
        return text.stdout.decode().strip()
    first = connect()
    client = Client.__new__(Client)
    client.sock, client.rest = first, b""
    up.answers["/big"] = b"HTTP/1.1 200 OK\r\nContent-Length: 3000000\r\n\r\n" + b"z" * 3000000
    for _ in range(3):
        head, body, whole = client.send(b"GET /big HTTP/1.1\r\nHost: a\r\n\r\n").answer()
        equal("an answer of 3 MB over TLS", (len(body), whole), (3000000, True))
    certificate("second")
    gateway.reload("settings read again")
    second = connect()
    equal("a reload takes the new certificate", (name_of(first), name_of(second)), ("subject=CN = first", "subject=CN = second"))
    (folder / "cert").write_text("nonsense")
    gateway.reload("stay as they were")
    equal("a broken one is refused, the old one stays", name_of(connect()), "subject=CN = second")
    plain = Client(gateway.port).send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    check("who speaks no TLS is closed", until(plain.is_closed))
    gateway.stop()
    for name in ("cert", "key"):
        (folder / name).unlink()
    folder.rmdir()


def command_line():
    def run(*words):
        done = subprocess.run([str(build / "quire-gateway"), *words], capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout, done.stderr
    code, out, _ = run("--help")
    check("--help shows every part and examples", code == 0 and all(w in out for w in (
        "usage:", "examples:", "body-max", "a time with its unit", "upstreams", "OPENAI_BASE_URL")), out[:300])
    equal("--version", (run("--version")[0], run("--version")[1].startswith("quire-gateway ")), (0, True))
    equal("settings that can be taken", run("--upstream", "http://127.0.0.1:1", "--check-settings")[0], 0)
    code, out, _ = run("--upstream=http://127.0.0.1:1", "--set", "turns=7", "--embed-key", "secret", "--print-settings")
    shown = json.loads(out)
    equal("--print-settings", (code, shown["turns"], shown["embed-key"], shown["upstreams"][0]["url"]), (0, 7, "***", "http://127.0.0.1:1"))
    for words, said in (((), "--upstream http://127.0.0.1:8000"), (("--nonsense", "1"), "nonsense: no such setting"),
                        (("here",), "here: not an option"), (("--turns",), "a value is missing"),
                        (("--set", "x"), "not name=value"), (("--settings", "/does/not/exist"), "/does/not/exist"),
                        (("--upstream", "http://127.0.0.1:1", "--idle-timeout", "30"), "a time with its unit")):
        code, _, err = run(*words)
        check("refused: " + " ".join(words), code == 2 and said in err, (code, err))
    code, _, err = run("--upstream", "http://127.0.0.1:1", "--listen", "127.0.0.1:99999")
    check("an address that is none ends the start with 1", code == 1 and "99999" in err, (code, err))


def tls_upstream():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="quire-gateway."))
    for name in ("right", "wrong"):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                        "-subj", "/CN=" + name, "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(folder / (name + ".key")),
                        "-out", str(folder / (name + ".cert"))], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "right.cert", folder / "right.key")
    up = Upstream(context=context)
    url = "https://127.0.0.1:%d" % up.port
    gateway = Gateway(build, [{"name": "up", "url": url, "ca-file": str(folder / "right.cert")}])
    up.answers["/big"] = b"HTTP/1.1 200 OK\r\nContent-Length: 3000000\r\n\r\n" + b"z" * 3000000
    head, body, whole = get(gateway.port, "/big")
    equal("an upstream over TLS", (status(head), len(body), whole), (200, 3000000, True))
    gateway.stop()
    for name, authority in (("of another authority", {"ca-file": str(folder / "wrong.cert")}), ("that nobody vouches for", {})):
        up.requests.clear()
        gateway = Gateway(build, [{"name": "up", "url": url, **authority}])
        head, body, _ = ask(gateway.port, b"GET /x HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer sk\r\n\r\n")
        equal("an upstream %s: 502, and it hears nothing" % name, (status(head), error_of(body).get("type"), len(up.requests)),
              (502, "api_connection_error", 0))
        gateway.stop()
    up.close()
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


def main():
    command_line()
    tls_upstream()
    up = Upstream()
    gateway = Gateway(build, [{"name": "up", "url": up.url}], health_fails=1000)
    hasty = Gateway(build, [{"name": "up", "url": up.url}], answer_timeout="500ms", silence_timeout="500ms", health_fails=1000)
    requests_arrive_as_sent(up, gateway)
    answers_arrive_as_sent(up, gateway)
    bodies_of_any_size(up, gateway)
    streams_come_as_they_are_sent(up, gateway)
    connections_are_used_again(up, gateway)
    failures(up, gateway)
    waits(up, gateway, hasty)
    hasty.stop()
    who_leaves(up, gateway)
    equal("nothing is left open", until(lambda: json.loads(get(gateway.port, "/health")[1])["requests"] == 1), True)
    gateway.stop()
    gateway = Gateway(build, [{"name": "up", "url": up.url}])
    back_pressure(up, gateway)
    gateway.stop()
    several_upstreams()
    operation(up)
    tls(up)
    systemd(up)
    return 1 if checks.failed else 0


sys.exit(main())
