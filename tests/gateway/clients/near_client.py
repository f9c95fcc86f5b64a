"""near_client.py - httpx before a gateway with vectors: other words, guards, contexts, a slow, broken and absent encoder, a
cache that hangs and comes back, a model that fails where an old answer is left.

Both gateways have similarity 0.8. That of BASE_URL waits long for its encoder and its cache, that of HASTY_URL 300 ms and
250 ms: it is there for the troubles. SERVER_PID is their quire-server's, SERVER_SOCKET its Unix socket.
"""
import os
import signal
import time

import httpx
import redis

from client_checks import BASE, ask, check, end, said, tell, until

client = httpx.Client(headers={"Authorization": "Bearer key-of-near"}, timeout=60)
server = redis.Redis(unix_socket_path=os.environ["SERVER_SOCKET"])
PID, HASTY = int(os.environ["SERVER_PID"]), os.environ["HASTY_URL"]
NEVER = 25  # seconds that an encoder or a cache in trouble takes; who answers before has not waited for it


def post(text, system=None, model="stand-in", base=BASE, **more):
    body = {**ask(text, **more), "model": model}
    if system:
        body["messages"].insert(0, {"role": "system", "content": system})
    begun = time.monotonic()
    reply = client.post(base + "/chat/completions", json=body)
    reply.seconds, reply.cache = time.monotonic() - begun, reply.headers.get("x-quire-cache")
    return reply


def kept(text, **more):
    """Asks until the answer comes from the cache: it is put after it was given."""
    return until(lambda: post(text, **more).cache == "exact")


def hasty(text):
    return post(text, base=HASTY)


def control(words):
    tell("/control", {"words": {"/v1/embeddings": words}})


# ---- other words ----
Q = "how can the broken window of the kitchen be repaired"
post(Q)
check("kept", kept(Q))
near = post("please tell me how the broken kitchen window can be repaired")
check("other words are served", near.cache == "hit" and near.json()["choices"][0]["message"]["content"].endswith(Q),
      (near.headers, near.text))
check("and say how near", 0.8 <= float(near.headers["x-quire-similarity"]) < 1 and
      near.headers["x-quire-id"], near.headers)
check("another question is not", post("which museums are open on a rainy monday").cache == "miss")
post("a ticket for 2 adults to the coast")
check("kept, too", kept("a ticket for 2 adults to the coast"))
other = post("a ticket for 3 adults to the coast")
check("another number is another question", other.cache == "miss" and "x-quire-guard" in other.headers, other.headers)
check("so is another system prompt", post(Q, system="answer in french").cache == "miss")
check("and other parameters", post(Q, top_k=3).cache == "miss")
check("with tools only the same request counts", post(Q, tools=[{"type": "function", "function": {"name": "f"}}]).cache ==
      "miss")
stream = post(Q, stream=True)
check("a stream is another request", stream.cache == "miss" and said(stream.content))
check("kept as one", kept(Q, stream=True))
near = post("tell me how the broken kitchen window can be repaired", stream=True)
check("and served for other words", near.cache == "hit" and said(near.content).strip().endswith(Q) and
      near.content.endswith(b"data: [DONE]\n\n"), near.content[-300:])
check("exact, if that is asked for", client.post(
    BASE + "/chat/completions", json=ask("how might the broken window of the kitchen be repaired"),
    headers={"X-Quire-Control": "exact"}).headers["x-quire-cache"] == "miss")

# ---- an encoder in trouble ----
check("kept where little time is given, too", until(lambda: hasty(Q).cache == "exact"))
for name, words in (("slow", "late=%d" % (NEVER * 1000)), ("refusing", "status=503"), ("of another dimension", "dim=32"),
                    ("breaking off", "close=100"), ("talking nonsense", "html")):
    control(words)
    text = "a question that no encoder has seen: %s" % name
    first = hasty(text)
    check("an encoder that is %s fails nothing" % name, first.status_code == 200 and first.seconds < NEVER - 5,
          (first.status_code, first.seconds, first.headers))
    check("and exact answers go on (%s)" % name, until(lambda: hasty(Q).cache == "exact"))
control("")
check("it comes back", until(lambda: hasty("please say how the broken window of the kitchen can be repaired %d"
                                           % time.monotonic_ns()).status_code == 200 and
                             hasty("do tell me how the broken kitchen window can be repaired").cache in ("hit", "exact"), 60))

# ---- a cache in trouble ----
os.kill(PID, signal.SIGSTOP)
try:
    stuck = [hasty("a question while the cache hangs, number %d" % i) for i in range(5)]
    check("a cache that hangs fails nothing", all(r.status_code == 200 for r in stuck), [r.status_code for r in stuck])
    check("and is not waited for", max(r.seconds for r in stuck) < 10, [r.seconds for r in stuck])
    check("which the header says", stuck[-1].cache == "down", stuck[-1].headers)
finally:
    os.kill(PID, signal.SIGCONT)
check("it comes back, too", until(lambda: hasty(Q).cache == "exact", 60))

# ---- a model in trouble ----
names = [n.decode() for n in server.execute_command("SC.LIST")]
for name in names:
    if b"aged" not in server.execute_command("SC.CAT.LIST", name):
        server.execute_command("SC.CAT.SET", name, "aged", "MODE", "exact", "TTL", 2000, "JITTER", 0, "STALEERROR", 600000)
aged = {"X-Quire-Category": "aged"}


def old(status):
    """The same request, which the model answers at first and then fails."""
    words = {} if status is None else {"X-Stand-In": "status=%d" % status}
    return client.post(BASE + "/chat/completions", json=ask("what was the weather like in the harbour"),
                       headers={**aged, **words})


# the gateway learns of the category within ten seconds; what is asked again before it is old comes from the cache
ready = until(lambda: old(None).headers.get("x-quire-cache") == "exact", 60)
time.sleep(2.2)  # it is old now, however long this takes
for status in (500, 503, 429):
    reply = old(status)
    check("where the model answers %d an old answer is given" % status, ready and reply.status_code == 200 and
          reply.headers["x-quire-cache"] == "stale" and "answer" in reply.text, (reply.status_code, reply.headers, reply.text))
reply = old(400)
check("but not where the request is wrong", reply.status_code == 400, (reply.status_code, reply.text))
end()
