"""stand_in_model.py - prints its port, then is a model server for tests: OpenAI's /v1/chat/completions with streams, and
/v1/embeddings. An answer repeats the question and counts how often it was asked.

The last text of a request steers it: "fail with 429" answers that status, "break off" ends a stream early, "be cut"
ends with finish_reason length, "refuse this" with content_filter, "slowly" takes half a second. GET /calls tells how
often each text was answered; POST /reset forgets that.

An embedding is the sum of a direction per word, by hash, so texts that share words are near each other; frequent words
count little, as with a real encoder.
"""
import hashlib
import json
import math
import re
import struct
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

DIM = 64
FREQUENT = set("a an and are be can could do does for from how i in is it me my of on or please tell that the this to "
               "we what where which who why will with would you your".split())
calls, revisions, lock = Counter(), Counter(), threading.Lock()


def direction(word):
    blocks = (hashlib.sha512(b"%d %s" % (i, word.encode())).digest() for i in range(DIM // 16))
    return [x / 2**31 for block in blocks for x in struct.unpack("<16i", block)]


def embed(text):
    out = [1e-3] * DIM
    for word in re.findall(r"\w+", text.lower()):
        weight = 0.15 if word in FREQUENT else 1
        out = [x + weight * y for x, y in zip(out, direction(word))]
    norm = math.sqrt(sum(x * x for x in out))
    return [x / norm for x in out]


class Model(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def body(self):
        return json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")

    def reply(self, code, value):
        data = json.dumps(value).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        with lock:
            self.reply(200, dict(calls))

    def do_POST(self):
        request = self.body()
        if self.path == "/reset":
            with lock:
                calls.clear()
            self.reply(200, {})
        elif self.path == "/v1/embeddings":
            self.reply(200, {"data": [{"embedding": embed(request["input"])}]})
        else:
            self.complete(request)

    def complete(self, request):
        last = request["messages"][-1]["content"]
        text = last if isinstance(last, str) else json.dumps(last)
        with lock:
            calls[text] += 1
            revisions[text] += 1
            number = revisions[text]
        if "slowly" in text:
            time.sleep(0.5)
        wanted = re.search(r"fail with (\d+)", text)
        if wanted:
            self.reply(int(wanted[1]), {"error": {"message": "as asked"}})
        elif request.get("stream"):
            self.stream("answer %d to: %s" % (number, text), "break off" in text)
        else:
            end = "length" if "be cut" in text else "content_filter" if "refuse this" in text else "stop"
            message = {"role": "assistant", "content": "answer %d to: %s" % (number, text)}
            self.reply(200, {"choices": [{"index": 0, "message": message, "finish_reason": end}],
                             "usage": {"prompt_tokens": len(text.split()), "completion_tokens": 7}})

    def stream(self, answer, breaks_off):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        for word in answer.split(" ")[:2 if breaks_off else None]:
            delta = {"choices": [{"index": 0, "delta": {"content": word + " "}, "finish_reason": None}]}
            self.wfile.write(b"data: %s\n\n" % json.dumps(delta).encode())
            self.wfile.flush()
            time.sleep(0.002)
        if not breaks_off:
            self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    print(server.server_address[1], flush=True)
    server.serve_forever()
