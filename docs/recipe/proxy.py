"""proxy.py - an OpenAI-compatible endpoint with a semantic cache before the model's.

    proxy.py --upstream http://127.0.0.1:8000 --quire 127.0.0.1:6379 --cache answers --listen 8080

Makes the cache with two categories if it is not there: `chat`, whose threshold follows from an error budget, and
`exact`. A request names its category in the header X-Cache-Category; its tenant is the hash of its Authorization. The
reply says in X-Cache what the cache did. Encoder: the upstream's /v1/embeddings.
"""
import argparse
import hashlib
import http.client
import json
import sys
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import redis
from quire_cache import QuireCache


class Upstream:
    def __init__(self, url, encoder, authorization=None):
        self.url, self.encoder, self.authorization = url, encoder, authorization

    def open(self, path, body):
        headers = {"Content-Type": "application/json"}
        if self.authorization:
            headers["Authorization"] = self.authorization
        return urllib.request.urlopen(urllib.request.Request(self.url + path, json.dumps(body).encode(), headers))

    def embed(self, text):
        with self.open("/v1/embeddings", {"model": self.encoder, "input": text}) as reply:
            return json.load(reply)["data"][0]["embedding"]

    def complete(self, request):
        with self.open("/v1/chat/completions", request) as reply:
            return reply.read()

    def stream(self, request):
        """The events, each as it came, with the empty line that ends it."""
        event = b""
        with self.open("/v1/chat/completions", request) as reply:
            for line in reply:
                event += line
                if not line.strip():
                    yield event
                    event = b""
        if event:
            yield event


class Proxy(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    began = False  # of this request a status line was sent

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        upstream = Upstream(self.server.upstream, self.server.encoder, self.headers.get("Authorization"))
        tenant = hashlib.sha256((self.headers.get("Authorization") or "").encode()).hexdigest()[:16]
        cache = QuireCache(self.server.client, self.server.cache, upstream.embed, self.server.encoder)
        category = self.headers.get("X-Cache-Category", "chat")
        self.began = False
        try:
            if request.get("stream"):
                self.send_stream(cache.ask_stream(request, upstream.stream, category, {"tenant": tenant}))
            else:
                self.send_body(cache.ask(request, upstream.complete, category, {"tenant": tenant}))
        except urllib.error.HTTPError as e:  # the model's error is the user's, and nobody else's
            self.reply(e.code, e.read(), "error", e.headers.get("Content-Type", "application/json"))
        except (OSError, http.client.HTTPException, redis.RedisError) as e:
            if self.began:  # half an answer, or nobody to read it: the client is to see that it broke off
                self.close_connection = True
                return
            self.reply(502, json.dumps({"error": {"message": str(e)}}).encode(), "error", "application/json")

    def reply(self, code, body, status, kind):
        self.began = True
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Cache", status)
        self.end_headers()
        self.wfile.write(body)

    def send_body(self, answer):
        self.reply(200, answer.value, answer.status, "application/json")

    def send_stream(self, answer):
        chunks = answer.chunks
        first = next(chunks, b"")  # an error of the model comes before the status line is sent
        self.began = True
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("X-Cache", answer.status)
        self.end_headers()
        while first:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(first), first))
            first = next(chunks, b"")
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_):
        pass


def make_cache(client, name, dim, encoder):
    if name.encode() in client.execute_command("SC.LIST"):
        return
    client.execute_command("SC.CREATE", name, "DIM", dim, "ENCODER", encoder, "SCOPE", "tenant", "REQUIRESCOPE")
    client.execute_command("SC.CAT.SET", name, "chat", "RISK", "0.02", "TTL", 3600000, "STALE", 600000)
    client.execute_command("SC.CAT.SET", name, "exact", "MODE", "exact", "TTL", 86400000)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--upstream", required=True, help="the model's address, without /v1")
    parser.add_argument("--quire", default="127.0.0.1:6379", help="host:port of the server (127.0.0.1:6379)")
    parser.add_argument("--cache", default="answers", help="name of the cache (answers)")
    parser.add_argument("--encoder", default="encoder@1", help="model of /v1/embeddings (encoder@1)")
    parser.add_argument("--listen", type=int, default=8080, help="port (8080); 0: any, which is printed")
    options = parser.parse_args()
    host, _, port = options.quire.rpartition(":")
    try:
        server = ThreadingHTTPServer(("127.0.0.1", options.listen), Proxy)
    except OSError as e:
        sys.exit("proxy.py: cannot listen on port %d: %s" % (options.listen, e))
    server.client = redis.Redis(host, int(port))
    server.cache, server.upstream, server.encoder = options.cache, options.upstream, options.encoder
    try:
        dim = len(Upstream(options.upstream, options.encoder).embed("how long is a vector"))
    except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError) as e:
        sys.exit("proxy.py: no vector from %s/v1/embeddings: %s" % (options.upstream, e))
    try:
        make_cache(server.client, options.cache, dim, options.encoder)
    except redis.RedisError as e:
        sys.exit("proxy.py: no cache at %s: %s" % (options.quire, e))
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
