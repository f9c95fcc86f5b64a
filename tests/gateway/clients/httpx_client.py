"""httpx_client.py - httpx (Debian's python3-httpx): connections that are used again, raw event streams, chunked bodies, a
reader that is slow, and the bytes themselves."""
import base64
import json
import re
import time

import httpx

from client_checks import BASE, CACHED, MODEL, TARGET, ask, calls, check, end, get, is_kept, question, said, tell, until

KEY = {"Authorization": "Bearer key-of-httpx"}
client = httpx.Client(headers=KEY, timeout=60)


def stream(text, model="stand-in", waits=0):
    """waits: how often it stops for a moment between two reads."""
    parts = []  # joined at the end: to add them up would copy all of eight megabytes at each read
    with client.stream("POST", BASE + "/chat/completions", json={**ask(text, stream=True), "model": model}) as reply:
        for part in reply.iter_raw():
            parts.append(part)
            if waits > 0:
                time.sleep(0.001)
                waits -= 1
        return reply, b"".join(parts)


# ---- connections ----
sockets = set()
for i in range(20):
    reply = client.post(BASE + "/chat/completions", json=ask(question("again %d" % i)))
    sockets.add(reply.extensions["network_stream"].get_extra_info("client_addr"))
check("one connection for twenty requests", reply.status_code == 200 and len(sockets) == 1, sockets)

# ---- bytes ----
text = question("naïve café 日本語 🦙")
body = json.dumps(ask(text, temperature=0.70, x_unknown={"b": [1, 2.50, None]}), ensure_ascii=False, indent=3).encode()
reply = client.post(BASE + "/chat/completions?api-version=2024-06-01&x=%20y", content=body,
                    headers={"Content-Type": "application/json", "OpenAI-Organization": "org", "X-Own": "a, b"})
check("a body in an odd layout", reply.json()["choices"][0]["message"]["content"].endswith(text), reply.text)
seen = [r for r in get("/requests") if "api-version" in r["path"]][-1]
fields = {name.lower(): value for name, value in seen["headers"]}
check("it reaches the model byte for byte", base64.b64decode(seen["body"]) == body, base64.b64decode(seen["body"]))
check("with its query and its own fields", seen["path"].endswith("?api-version=2024-06-01&x=%20y") and
      fields["x-own"] == "a, b" and fields["openai-organization"] == "org" and
      fields["authorization"] == KEY["Authorization"], seen)


def pieces():
    for at in range(0, len(body), 7):
        yield body[at:at + 7]


chunked = question("in chunks")
body = json.dumps(ask(chunked)).encode()
reply = client.post(BASE + "/chat/completions", content=pieces(), headers={"Content-Type": "application/json"})
check("a chunked body", reply.json()["choices"][0]["message"]["content"].endswith(chunked), reply.text)
check("answers have what the model said of them", reply.headers["content-type"].startswith("application/json") and
      reply.headers.get("x-request-id"), reply.headers)

# ---- streams ----
reply, raw = stream(question("a stream"))
check("a stream", reply.headers["content-type"].startswith("text/event-stream") and raw.endswith(b"data: [DONE]\n\n") and
      said(raw).strip().endswith(question("a stream")), raw)
if TARGET == "off":
    def plain(raw):
        """Without what differs from answer to answer."""
        for differs in (rb"chatcmpl-[0-9a-f]{24}", rb'"created": [0-9]+', rb'"content": "[0-9]+ "'):
            raw = re.sub(differs, b"", raw)
        return raw

    for odd in ("crlf", "cr", "comments", "split", "usage=always", "error-in-stream", "no-done", "choices=2"):
        _, through = stream(question("odd"), "stand-in:" + odd)
        with client.stream("POST", MODEL + "/v1/chat/completions",
                           json={**ask(question("odd"), stream=True), "model": "stand-in:" + odd}) as reply:
            direct = b"".join(reply.iter_raw())
        check("with %s byte for byte" % odd, plain(through) == plain(direct), (through[-300:], direct[-300:]))
raw, held = b"", question("at its pace")
with client.stream("POST", BASE + "/chat/completions", json={**ask(held, stream=True), "model": "stand-in:gate"}) as reply:
    parts = reply.iter_raw()
    while raw.count(b"\n\n") < 3:  # the model says no more until it is told to
        raw += next(parts)
    tell("/gate", {"text": held})
    raw += b"".join(parts)
check("events come as the model says them", said(raw).strip().endswith(held) and raw.endswith(b"data: [DONE]\n\n"), raw)
big = "stand-in:events=400,big=20000,pace=0"
reply, raw = stream(question("a slow reader"), big, waits=500)
check("a reader that is slow gets all of it", said(raw).endswith("x399 ") and raw.endswith(b"data: [DONE]\n\n"), raw[-200:])
before = get("/state")["gone"]
with client.stream("POST", BASE + "/chat/completions",
                   json={**ask(question("left"), stream=True), "model": "stand-in:events=2000,pace=10"}) as reply:
    next(reply.iter_raw())
check("one that leaves is left", until(lambda: get("/state")["gone"] > before), get("/state"))
zipped = client.post(BASE + "/chat/completions", json={**ask(question("zipped")), "model": "stand-in:gzip"},
                     headers={"Accept-Encoding": "gzip"})
check("a compressed answer", zipped.json()["choices"][0]["message"]["content"].endswith(question("zipped")), zipped.headers)
if CACHED:
    for name, more in (("whole", {}), ("stream", {"stream": True})):
        text = question("twice " + name)
        seen = []
        for _ in range(2):
            seen.append(client.post(BASE + "/chat/completions", json=ask(text, **more)))
            is_kept(client, ask(text, **more))
        states = [r.headers.get("x-quire-cache") for r in seen]
        check("%s: miss, then exact" % name, states == ["miss", "exact"] and calls(text) == 1, states)
        check("%s: nothing in between may keep it" % name, "no-store" in seen[1].headers.get("cache-control", "") and
              "set-cookie" not in seen[1].headers and len(seen[0].content) == len(seen[1].content), seen[1].headers)
end()
