"""stand_in_model.py - prints its port, then is a model server for tests: /v1/chat/completions, /v1/completions,
/v1/embeddings, /v1/responses, /v1/messages, /v1/models, with event streams, tools and structured output. An answer repeats
the question and counts how often it was asked.

    /usr/bin/python3 tests/e2e/stand_in_model.py [--port 8000]

Odd behaviour is asked for by words behind a colon in the model's name ("stand-in:length,pace=20"), in the header
X-Stand-In, or for a path by POST /control {"words": {"/v1/embeddings": "late=2000"}}; later ones win:

    length tool_calls content_filter    how it ends; no-finish: [DONE] without one; no-done: without [DONE]
    usage=always|never                  the chunk of usage, whatever was asked
    reasoning refusal empty choices=2   what is in it; say=WORD: that and nothing else
    error-first error-in-stream         an error in a stream of status 200 (error-in-stream=done: and goes on to [DONE])
    crlf cr comments split              ends of lines; comments between events; bytes by twos, across characters and events
    events=N pace=MS                    a stream of N pieces, each after MS milliseconds
    late=MS silence=MS                  before the head; after the third event
    gate, gate=N                        an answer that is no stream, or what follows a stream's third (Nth) event, waits until
                                        POST /gate {"text": ...} names its text (half a minute at most)
    status=N retry-after-ms=N           an error; fails=N: only the first N times
    gzip                                compressed, whether that was asked for or not
    close=N                             the connection breaks after N events, or N bytes of a body
    drop                                bytes that are no HTTP, and the end of the connection; fails=N: only the first N times
    html broken-json big=BYTES echo-key what a body holds, or each of a stream's N events; echo-key: the credential that came
    dim=N                               of vectors
    open                                the list of models is for everybody, whatever the credential

The last text steers, too: "fail with 429" answers that status, "break off" ends a stream after two events, "be cut" ends with
length, "refuse this" with content_filter, "slowly" takes half a second; "call the tool" calls the first one. A credential
that begins with "wrong", or was revoked by POST /control {"revoked": [...]}, gets 401.

GET /calls: how often each text was answered; /state: counts by path, of streams that run, of clients that left; /requests:
the last ones, as they came (bodies in base64). POST /reset forgets all of it.
"""
import argparse
import base64
import gzip
import json
import re
import select
import struct
import threading
import time
from collections import Counter, deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from stand_in_answers import ERROR, SHAPES, Answer, embed, of_schema, tag, vector_json

calls, revisions, failures, paths, state = Counter(), Counter(), Counter(), Counter(), Counter()
requests, control, lock = deque(maxlen=64), {"words": {}, "revoked": []}, threading.Lock()
GATE_SECONDS, open_gates = 30, set()


def words_of(text):
    out = {}
    for word in re.split(r"[,\s]+", text or ""):
        name, _, value = word.partition("=")
        if name:
            out[name] = value
    return out


def text_of(content):
    """A text, or the text parts of one; what has other parts stands for itself."""
    if isinstance(content, list) and all(isinstance(p, dict) and "text" in p for p in content):
        return "".join(p["text"] for p in content)
    return content if isinstance(content, str) else json.dumps(content)


def question_of(request):
    last = request.get("messages") or request.get("input") or request.get("prompt") or ""
    if isinstance(last, list) and last and isinstance(last[-1], dict):
        return text_of(last[-1].get("content", last[-1].get("output"))), last[-1]
    return text_of(last), {"role": "user"}


def tool_of(request, text, last, steer):
    """The call that an answer is, (name, arguments); None: it is a text."""
    tools = request.get("tools")
    answered = last.get("role") == "tool" or last.get("type") == "function_call_output" or "tool_result" in text
    if not tools or answered or not ("tool_calls" in steer or "call the tool" in text):
        return ("look_up", {"text": "x"}) if "tool_calls" in steer and not answered else None
    tool = tools[0].get("function", tools[0])
    return tool["name"], of_schema(tool.get("parameters") or tool.get("input_schema") or {})


def schema_of(request):
    wanted = request.get("response_format") or (request.get("text") or {}).get("format") or {}
    if wanted.get("type") == "json_object":
        return {"properties": {"answer": {"type": "string"}}}
    return (wanted.get("json_schema") or wanted).get("schema") if wanted.get("type") == "json_schema" else None


class Model(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    # ---- what comes and goes ----

    def body(self):
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            out = b""
            while True:
                n = int(self.rfile.readline().split(b";")[0], 16)
                out += self.rfile.read(n)
                self.rfile.readline()
                if n == 0:
                    return out
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def reply(self, code, value, headers=(), kind="application/json"):
        body = value if isinstance(value, bytes) else json.dumps(value, ensure_ascii=False).encode()
        if "gzip" in self.steer:
            body = gzip.compress(body)
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Request-Id", tag("req_"))
        if "gzip" in self.steer:
            self.send_header("Content-Encoding", "gzip")
        for name, text in headers:
            self.send_header(name, text)
        self.end_headers()
        if self.steer.get("close"):
            self.wfile.write(body[:int(self.steer["close"])])
            self.close_connection = True
            return
        self.wfile.write(body)

    def error(self, code, message=None, kind=None):
        headers = []
        if "retry-after-ms" in self.steer:
            ms = int(self.steer["retry-after-ms"])
            headers = [("retry-after-ms", str(ms)), ("retry-after", str(-(-ms // 1000)))]
        error = {**ERROR, "message": message or "as asked", **({"type": kind} if kind else {})}
        body = {"error": error}
        if self.path.startswith("/v1/messages"):
            kinds = {401: "authentication_error", 429: "rate_limit_error", 400: "invalid_request_error"}
            body = {"type": "error", "error": {"type": kinds.get(code, "api_error"), "message": error["message"]}}
        self.reply(code, body, headers)

    def credential(self):
        value = self.headers.get("Authorization") or self.headers.get("x-api-key") or self.headers.get("api-key") or ""
        return value.removeprefix("Bearer ")

    def refused(self):
        key = self.credential()
        if not key.startswith("wrong") and key not in control["revoked"]:
            return False
        self.error(401, "Incorrect API key provided", "invalid_request_error")
        return True

    # ---- requests ----

    def do_GET(self):
        path = self.path.partition("?")[0]
        self.steer = words_of(control["words"].get(path))
        with lock:
            seen = {"/calls": dict(calls), "/requests": list(requests),
                    "/state": {"paths": dict(paths), **{n: state[n] for n in ("streams", "gone", "served")}}}.get(path)
            if seen is None:
                paths[path] += 1
                requests.append({"path": self.path, "headers": self.headers.items(), "body": "", "at": time.time()})
        if seen is not None:
            self.reply(200, seen)
        elif path.rstrip("/") in ("/v1/models", "/models"):
            model = {"id": "stand-in", "object": "model", "created": 1700000000, "owned_by": "tests"}
            if "open" in self.steer or not self.refused():
                self.reply(200, {"object": "list", "data": [model]})
        else:
            self.error(404, "no such path: " + path)

    def do_DELETE(self):
        self.steer = {}
        self.body()
        self.reply(200, {"id": self.path.rsplit("/", 1)[-1], "deleted": True})

    def do_POST(self):
        self.steer = {}
        raw, path = self.body(), self.path.partition("?")[0]
        if path in ("/reset", "/control", "/gate"):
            with lock:
                if path == "/control":
                    control.update(json.loads(raw))
                elif path == "/gate":
                    open_gates.add(json.loads(raw)["text"])
                else:
                    open_gates.clear()
                    for counter in (calls, failures, paths, requests):
                        counter.clear()
                    state["gone"] = state["served"] = 0
            self.reply(200, {})
            return
        with lock:
            paths[path] += 1
            requests.append({"path": self.path, "headers": self.headers.items(),
                             "body": base64.b64encode(raw).decode(), "at": time.time()})
        try:
            request = json.loads(raw or b"{}")
        except ValueError:
            self.error(400, "the body is no JSON", "invalid_request_error")
            return
        model = str(request.get("model") or "")
        self.steer = {**words_of(model.partition(":")[2]), **words_of(control["words"].get(path)),
                      **words_of(self.headers.get("X-Stand-In"))}
        if "late" in self.steer:
            time.sleep(int(self.steer["late"]) / 1000)
        if self.refused():
            return
        shape = SHAPES.get("/" + path.removeprefix("/v1/").lstrip("/"))
        if path.endswith("/embeddings"):
            self.embeddings(request)
        elif shape:
            self.complete(request, shape)
        else:
            self.reply(200, {"path": self.path, "echo": request})

    def fails(self, key, status=None):
        """Whether this request is one that fails: its status, or 0."""
        status = int(self.steer.get("status", 0)) if status is None else status
        with lock:
            failures[key] += 1
            return status if "fails" not in self.steer or failures[key] <= int(self.steer["fails"]) else 0

    def embeddings(self, request):
        items = request.get("input", "")
        items = [items] if isinstance(items, str) or (items and isinstance(items[0], int)) else items
        status = self.fails(json.dumps(items))
        if status:
            self.error(status)
            return
        if "gate" in self.steer and isinstance(items[0], str):
            self.pass_gate(items[0])
        dim = int(self.steer.get("dim", request.get("dimensions") or 64))
        out, tokens = [], 0
        for i, item in enumerate(items):
            text = item if isinstance(item, str) else " ".join(map(str, item))
            tokens += len(text.split())
            with lock:
                calls["embed: " + text] += 1
            vector = embed(text, dim)
            if request.get("encoding_format") == "base64":
                value = json.dumps(base64.b64encode(struct.pack("<%df" % dim, *vector)).decode())
            else:
                value = vector_json(vector)
            out.append('{"object": "embedding", "index": %d, "embedding": %s}' % (i, value))
        if "html" in self.steer:
            self.reply(200, b"<html><body>busy</body></html>", kind="text/html")
            return
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        self.reply(200, ('{"object": "list", "data": [%s], "model": %s, "usage": %s}' % (
            ", ".join(out), json.dumps(request.get("model", "stand-in"), ensure_ascii=False), json.dumps(usage))).encode())

    def complete(self, request, shape):
        text, last = question_of(request)
        wanted = re.search(r"fail with (\d+)", text)
        for said, word in (("be cut", "length"), ("refuse this", "content_filter")):
            if said in text:
                self.steer[word] = ""
        if "break off" in text and request.get("stream"):
            self.steer["close"] = "2"
        status = int(wanted[1]) if wanted else self.fails(text)
        with lock:
            calls[text] += 1
            revisions[text] += 1
            number = revisions[text]
        if "slowly" in text:
            time.sleep(0.5)
        if status:
            self.error(status)
            return
        if "drop" in self.steer and self.fails("drop " + text, 1):
            if "gate" in self.steer:
                self.pass_gate(text)
            self.wfile.write(b"no HTTP\r\n\r\n")
            self.close_connection = True
            return
        schema = schema_of(request)
        said = json.dumps(of_schema(schema)) if schema else "answer %d to: %s" % (number, text)
        said = self.steer.get("say", said)
        if "split" in self.steer:
            said += " naïve café 日本語 🦙🦙 Ω"
        said += "x" * int(self.steer.get("big", 0))
        if "echo-key" in self.steer:
            said += " for " + self.credential()
        answer = Answer(request, self.steer, said, text, tool_of(request, text, last, self.steer))
        if "gate" in self.steer and not request.get("stream"):
            try:
                self.pass_gate(text)
            except ConnectionResetError:
                with lock:
                    state["gone"] += 1
                self.close_connection = True
                return
        if request.get("stream"):
            self.stream(shape.events(answer), text)
        elif "html" in self.steer:
            self.reply(200, b"<html><body>busy</body></html>", kind="text/html")
        elif "broken-json" in self.steer:
            self.reply(200, json.dumps(shape.body(answer)).encode()[:-20])
        else:
            self.reply(200, shape.body(answer))
        with lock:
            state["served"] += 1

    # ---- streams ----

    def stream(self, events, text):
        with lock:
            state["streams"] += 1
        try:
            self.send_events(events, text)
        except OSError:
            with lock:
                state["gone"] += 1
            self.close_connection = True
        finally:
            with lock:
                state["streams"] -= 1

    def head_of_stream(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Cache-Control", "no-cache")
        self.send_header("X-Request-Id", tag("req_"))
        if "gzip" in self.steer:
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def wait(self, seconds):
        """Sleeps, unless the client leaves meanwhile."""
        if select.select([self.connection], [], [], seconds)[0] and not self.connection.recv(1, 2):  # MSG_PEEK
            raise ConnectionResetError("the client has left")

    def pass_gate(self, text):
        end = time.monotonic() + GATE_SECONDS
        while text not in open_gates and time.monotonic() < end:
            self.wait(0.005)

    def chunk(self, part):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))

    def send_events(self, events, text):
        end = b"\r\n" if "crlf" in self.steer else b"\r" if "cr" in self.steer else b"\n"
        pace, most = int(self.steer.get("pace", 2)) / 1000, self.steer.get("close")
        gate = int(self.steer["gate"] or 3) if "gate" in self.steer else None
        self.head_of_stream()
        compressed = b""
        for i, event in enumerate(events):
            if i == gate:
                self.pass_gate(text)
            if most is not None and i == int(most):
                self.close_connection = True  # without the last chunk: the client sees that it broke off
                return
            part = event.replace(b"\n", end) + end + end
            if "comments" in self.steer:
                part = b": keep-alive" + end + end + part
            if "gzip" in self.steer:
                compressed += part
            elif "split" in self.steer:
                for at in range(0, len(part), 2):
                    self.chunk(part[at:at + 2])
            else:
                self.chunk(part)
            self.wait(int(self.steer["silence"]) / 1000 if i == 2 and "silence" in self.steer else pace)
        if compressed:
            self.chunk(gzip.compress(compressed))
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads, request_queue_size = True, 1024

    def handle_error(self, *_):
        pass  # a client that left


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=0, help="0: any free one, which is printed")
    server = Server(("127.0.0.1", parser.parse_args().port), Model)
    print(server.server_address[1], flush=True)
    server.serve_forever()
