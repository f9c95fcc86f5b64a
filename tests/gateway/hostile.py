#!/usr/bin/env python3
"""hostile.py BUILD_DIR [SECONDS] - clients that break HTTP, or use it to hurt: what reaches the upstream, what is answered,
and that the gateway stays up, small and quick for everybody else; then the same with the cache on, and bodies for its
routes. SECONDS (10): how long random bytes are sent, three times.

What the parser refuses, case by case, is in tests/gateway/http/test_http_parse.c; here is what needs a whole gateway.
"""
import json
import os
import pathlib
import random
import shutil
import socket
import sys
import tempfile
import time
from collections import Counter

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
from raw_http import Checks, Client, Gateway, Upstream, ask, field, get, status, until  # noqa: E402
from server_process import Server  # noqa: E402

checks = Checks()
check, equal = checks.check, checks.equal
build = pathlib.Path(sys.argv[1])
seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 10
HOST = b"Host: a\r\n"
SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"

# what two readers take for two different sets of requests: a front that takes the one reading would let the other pass
PAIRS = {
    "length and chunked": b"POST /x HTTP/1.1\r\n" + HOST + b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" % (5 + len(SMUGGLED)) + SMUGGLED,
    "chunked and length": b"POST /x HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n%x\r\n" % len(SMUGGLED) + SMUGGLED + b"\r\n0\r\n\r\n",
    "two lengths": b"POST /x HTTP/1.1\r\n" + HOST + b"Content-Length: 0\r\nContent-Length: %d\r\n\r\n" % len(SMUGGLED) + SMUGGLED,
    "lengths in a list": b"POST /x HTTP/1.1\r\n" + HOST + b"Content-Length: 0, %d\r\n\r\n" % len(SMUGGLED) + SMUGGLED,
    "signed length": b"POST /x HTTP/1.1\r\n" + HOST + b"Content-Length: +0\r\n\r\n" + SMUGGLED,
    "blank before the colon": b"POST /x HTTP/1.1\r\n" + HOST + b"Content-Length : %d\r\n\r\n" % len(SMUGGLED) + SMUGGLED,
    "chunked in a folded field": b"POST /x HTTP/1.1\r\n" + HOST + b"X: y\r\n Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "xchunked": b"POST /x HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: xchunked\r\n\r\n" + SMUGGLED,
    "chunked with a vertical tab": b"POST /x HTTP/1.1\r\n" + HOST + b"Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "chunked twice": b"POST /x HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "LF in the head": b"POST /x HTTP/1.1\r\n" + HOST + b"X: y\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "CR in a value": b"POST /x HTTP/1.1\r\n" + HOST + b"X: y\rTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "NUL in a value": b"POST /x HTTP/1.1\r\n" + HOST + b"Content-Length: 0\0%d\r\n\r\n" % len(SMUGGLED) + SMUGGLED,
    "chunk size 0x": b"POST /x HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n0x%x\r\n" % len(SMUGGLED) + SMUGGLED + b"\r\n0\r\n\r\n",
    "chunk size of 65 bits": b"POST /x HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n10000000000000000\r\n" + SMUGGLED,
    "LF in a chunk extension": b"POST /x HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n2;\nxx\r\n%x\r\n0\r\n\r\n" % len(SMUGGLED) + SMUGGLED,
    "chunk without CRLF": b"POST /x HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n1\r\naXX0\r\n\r\n" + SMUGGLED,
    "chunked in HTTP/1.0": b"POST /x HTTP/1.0\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "two Hosts": b"GET /x HTTP/1.1\r\n" + HOST + b"Host: b\r\n\r\n" + SMUGGLED,
    "a blank in the target": b"GET /x HTTP/1.1\r\nGET: /y HTTP/1.1\r\nA B: c\r\n" + HOST + b"\r\n" + SMUGGLED,
}


def smuggling(up, gateway):
    for name, data in PAIRS.items():
        up.requests.clear()
        client = Client(gateway.port, 5).send(data)
        head, _, _ = client.answer()
        check(name + " is refused", status(head) in (400, 501), head)
        check(name + ": the connection is closed behind it", client.is_closed())
        client.close()
        equal(name + ": nothing reaches the upstream", [h.split(b"\r\n")[0] for h, _ in up.requests if b"smuggled" in h], [])
    # the fields that frame a message are made anew: a client's Connection cannot take them away
    up.requests.clear()
    ask(gateway.port, b"POST /x HTTP/1.1\r\n" + HOST + b"Connection: Content-Length, Host\r\nContent-Length: 3\r\n\r\nabc")
    equal("Connection cannot remove Content-Length", up.requests[0][1], b"abc")
    up.requests.clear()
    ask(gateway.port, b"GET /x HTTP/1.1\r\n" + HOST + b"Content-Length: %d\r\n\r\n" % len(SMUGGLED) + SMUGGLED)
    equal("a GET's body is its body", [(h.split(b" ")[1], b) for h, b in up.requests], [(b"/x", SMUGGLED)])


def sizes(gateway):
    def refused(name, data, code):
        client = Client(gateway.port, 5)
        try:
            client.send(data)
        except OSError:
            pass
        equal(name, status(client.answer()[0]), code)
        client.close()
    refused("a target of a megabyte: 431", b"GET /" + b"a" * (1 << 20), 431)
    refused("a field of a megabyte: 431", b"GET / HTTP/1.1\r\n" + HOST + b"X: " + b"a" * (1 << 20), 431)
    refused("10,000 fields: 431", b"GET / HTTP/1.1\r\n" + HOST + b"A: b\r\n" * 10000, 431)
    refused("a body announced with 1 TB: 413", b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 1099511627776\r\n\r\n", 413)
    refused("endless empty lines: refused", b"\r\n" * 100000, 431)
    refused("a chunk extension without end: 400", b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n1;" + b"a" * 200000, 400)
    refused("trailers without end: 400", b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n" + b"A: b\r\n" * 50000, 400)


def endless_body(up, gateway):
    """Chunks beyond body-max: stopped there, and the upstream does not take what came for whole."""
    client = Client(gateway.port, 10)
    client.send(b"POST /big HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n")
    sent, piece = 0, b"10000\r\n" + b"x" * 65536 + b"\r\n"
    try:
        while sent < 100 << 20:
            client.sock.sendall(piece)
            sent += 65536
    except OSError:
        pass
    check("an endless body is stopped at body-max", sent < 20 << 20, sent)
    check("and breaks off for the upstream", until(lambda: up.broken), up.broken)
    client.close()


def slow_ones(up, gateway):
    """300 clients (a fifth under a sanitizer) that send a byte now and then, or read none, while others are served."""
    crowd = [Client(gateway.port) for _ in range(60 if os.environ.get("QUIRE_SANITIZE_FLAGS") else 300)]
    up.answers["/flood"] = b"HTTP/1.1 200 OK\r\nContent-Length: 50000000\r\n\r\n" + b"x" * 50000000
    for i, client in enumerate(crowd):
        client.send((b"GET / HTTP/1.1\r\nHost", b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 100\r\n\r\nab", b"GET /flood HTTP/1.1\r\n" + HOST + b"\r\n")[i % 3])
    before = gateway.status_kib()
    worst = 0
    for _ in range(100):
        begin = time.monotonic()
        equal_code = status(get(gateway.port, "/x")[0])
        worst = max(worst, time.monotonic() - begin)
        if equal_code != 200:
            check("others are served beside slow clients", False, equal_code)
            return
    check("others are served beside slow clients", worst < 15, worst)
    check("who take little memory", gateway.status_kib() - before < len(crowd) * 64, gateway.status_kib() - before)
    codes = []
    for client in crowd[:2]:
        codes.append(status(client.answer()[0]))
    equal("a head and a body that do not come: 408", codes, [408, 408])
    check("a reader that does not read is closed", until(lambda: json.loads(get(gateway.port, "/health")[1])["connections"] < 50, 60),
          get(gateway.port, "/health")[1])
    for client in crowd:
        client.close()


def random_bytes(gateway):
    """Requests with bytes changed, sent in pieces of any size; seeds are fixed, what a run sends depends on its time only."""
    random_ = random.Random(21)
    seeds = [b"GET /x?y HTTP/1.1\r\n" + HOST + b"A: b\r\n\r\n", b"POST /x HTTP/1.1\r\n" + HOST + b"Content-Length: 5\r\n\r\nabcde",
             b"POST /x HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x\r\nde\r\n0\r\nT: u\r\n\r\n",
             b"HEAD / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"] + list(PAIRS.values())
    odd = [b"\r", b"\n", b"\0", b" ", b"\t", b":", b"\xff", b"0", b"-", b"\r\n", b"chunked", b"Content-Length: 1\r\n", b"HTTP/1.1"]
    end, n = time.monotonic() + seconds, 0
    before = gateway.status_kib()
    while time.monotonic() < end:
        data = bytearray(b"".join(random_.choice(seeds) for _ in range(random_.randint(1, 3))))
        for _ in range(random_.randint(0, 6)):
            at = random_.randrange(len(data))
            what = random_.randrange(3)
            if what == 0:
                data[at] = random_.randrange(256)
            elif what == 1:
                data[at:at] = random_.choice(odd)
            else:
                del data[at:at + random_.randint(1, 8)]
            data = data or bytearray(b"x")
        client = Client(gateway.port, 5)
        try:
            at = 0
            while at < len(data):
                step = random_.choice((1, 3, 17, 1000))
                client.sock.send(data[at:at + step])
                at += step
            if random_.random() < 0.5:
                client.sock.shutdown(socket.SHUT_WR)
                while client.sock.recv(65536):
                    pass
        except OSError:
            pass
        client.close()
        n += 1
    check("%d broken conversations: the gateway is up" % n, gateway.process.poll() is None and status(get(gateway.port, "/x")[0]) == 200, gateway.log()[-1000:])
    check("and no larger", gateway.status_kib() - before < 8192, gateway.status_kib() - before)
    check("and has forgotten them", until(lambda: json.loads(get(gateway.port, "/health")[1])["connections"] == 1))


def hostile_bodies():
    """Requests to the routes of the cache, without end: bodies that are whole, and with bytes changed, cut or put in."""
    random_ = random.Random(22)
    said = [{"role": "system", "content": "be kind"}, {"role": "user", "content": "na\u00efve \U0001f999 \"x\""}]
    bodies = {
        "/v1/chat/completions": {"model": "m", "messages": said, "temperature": 0.5, "stream": True, "cache": {"ttl": 5},
                                 "tools": [{"type": "function", "function": {"name": "f", "parameters": {"a": [1, 2]}}}]},
        "/v1/completions": {"model": "m", "prompt": "once upon", "max_tokens": 5, "n": 1},
        "/v1/embeddings": {"model": "m", "input": ["a", "b", "c"], "encoding_format": "float"},
        "/v1/responses": {"model": "m", "input": [{"role": "user", "content": [{"type": "input_text", "text": "x"}]}], "store": False},
        "/v1/messages": {"model": "m", "max_tokens": 9, "messages": said[1:], "system": "be kind"}}
    odd = [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\0", b"\\u0000", b"\\ud800", b'"', b"[", b"{", b"]" * 9, b"[" * 99, b"1e999", b"-",
           b"null", b',"model":"n"', b'"stream":1,']
    fields = [b"", b"X-Quire-Tags: a, PIN\r\n", b"X-Quire-Control: max-age=5, ttl=9\r\n", b"X-Quire-Key: \xc3(\r\n",
              b"X-Quire-Namespace: \xff\r\n", b"Cache-Control: no-cache, =,\r\n", b"X-Quire-Explain: yes\r\n", b"X-Quire-Category: \x80\r\n"]
    while True:
        path = random_.choice(list(bodies))
        data = bytearray(json.dumps(bodies[path], ensure_ascii=random_.random() < 0.5).encode())
        for _ in range(random_.randint(0, 3)):
            at = random_.randrange(len(data))
            what = random_.randrange(4)
            if what == 0:
                data[at] = random_.randrange(256)
            elif what == 1:
                data[at:at] = random_.choice(odd)
            elif what == 2:
                del data[at:at + random_.randint(1, 8)]
            else:
                data = data[:at + 1]
            data = data or bytearray(b"x")
        yield (b"POST %s HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nAuthorization: Bearer k%d\r\n%sContent-Length: %d\r\n\r\n"
               % (path.encode(), random_.randrange(3), random_.choice(fields), len(data)) + data)


def odd_answer(random_):
    """What an upstream says: right, changed, or nonsense."""
    right = [(b"application/json", b'{"id":"a","object":"chat.completion","created":1,"choices":[{"index":0,"message":{"role":"assistant",'
              b'"content":"yes"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1}}'),
             (b"application/json", b'{"data":[{"index":0,"embedding":[1,2]},{"index":1,"embedding":[3]},{"index":2,"embedding":[4]}]}'),
             (b"text/event-stream", b'data: {"id":"a","created":1,"choices":[{"index":0,"delta":{"content":"yes"}}]}\n\n'
              b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n')]
    kind, data = random_.choice(right)
    data = bytearray(data)
    for _ in range(random_.choice((0, 0, 0, 1, 4))):
        data[random_.randrange(len(data))] = random_.randrange(256)
    return b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n" % (kind, len(data)) + data


def with_the_cache(up):
    """The same clients before a gateway with its cache, and bodies that its readers see."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="quire-hostile."))
    server = Server(build, folder)
    gateway = Gateway(build, [{"name": "up", "url": up.url}], cache_on=True, server="127.0.0.1:%d" % server.port, keep_tools=True)
    check("the cache is there", until(lambda: json.loads(get(gateway.port, "/health")[1])["cache"]["ready"], 60))
    random_bytes(gateway)
    random_, requests = random.Random(23), hostile_bodies()
    for path in ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses", "/v1/messages"):
        up.answers[path] = lambda *_: odd_answer(random_)
    end, seen, codes, odd = time.monotonic() + seconds, Counter(), Counter(), []
    client = Client(gateway.port, 30)
    while time.monotonic() < end:
        request = next(requests)
        try:
            head, body, whole = client.send(request).answer()
        except OSError as e:
            head, body, whole = b"", str(e).encode(), False
        word = field(head, b"X-Quire-Cache")
        seen[word] += 1
        codes[status(head)] += 1
        if status(head) not in (200, 400, 502) or not whole or (word == b"down"):
            odd.append((request, head, body[-200:]))
        if not whole or (field(head, b"Connection") or b"").lower() == b"close":
            client.close()
            client = Client(gateway.port, 30)
    client.close()
    check("%d bodies for the cache: each is answered whole (%s)" % (sum(seen.values()), dict(codes)), not odd, odd[:2])
    check("and they come to every end (%s)" % dict(seen), {b"miss", b"exact", b"bypass"} <= set(seen), seen)
    check("the server is up", server.process.poll() is None, server.log())
    equal("the gateway stops as it should", gateway.stop(), 0)
    server.stop()
    shutil.rmtree(folder)


def crowd(up):
    gateway = Gateway(build, [{"name": "up", "url": up.url}], connections_max=50)
    clients = [Client(gateway.port) for _ in range(60)]
    codes = []
    for client in clients:
        try:
            codes.append(status(client.send(b"GET /x HTTP/1.1\r\n" + HOST + b"\r\n").answer()[0]))
        except OSError:
            codes.append(0)
    check("clients beyond connections-max get 503, the others are served", codes[:50] == [200] * 50 and set(codes[50:]) <= {503, 0}
          and 503 in codes, codes)
    for client in clients:
        client.close()
    check("and their places are free again", until(lambda: status(get(gateway.port, "/x")[0]) == 200))
    gateway.stop()


def main():
    up = Upstream()
    gateway = Gateway(build, [{"name": "up", "url": up.url}], head_timeout="2s", body_timeout="2s", write_timeout="2s", body_max="8mb")
    smuggling(up, gateway)
    sizes(gateway)
    endless_body(up, gateway)
    slow_ones(up, gateway)
    random_bytes(gateway)
    equal("it stops as it should", gateway.stop(), 0)
    crowd(up)
    with_the_cache(up)
    return 1 if checks.failed else 0


sys.exit(main())
