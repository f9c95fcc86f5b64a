"""client_checks.py - what the Python suites of real clients share: where they ask, checks, how often the model was asked.

BASE_URL (with /v1), MODEL_URL (the stand-in) and TARGET (direct, off, cache) as in node/client_checks.js.
"""
import json
import os
import sys
import time
import urllib.request

BASE, MODEL, TARGET = os.environ["BASE_URL"], os.environ["MODEL_URL"], os.environ["TARGET"]
SUITE = os.path.basename(sys.argv[0]).removesuffix("_client.py")
CACHED = TARGET == "cache"
failed = 0


def check(name, right, seen=None):
    global failed
    print("%s - %s, %s: %s" % ("ok" if right else "FAIL", SUITE, TARGET, name), flush=True)
    if not right:
        failed += 1
        print("    | " + repr(seen)[:900], flush=True)


def get(path):
    with urllib.request.urlopen(MODEL + path) as reply:
        return json.load(reply)


def calls(text):
    return get("/calls").get(text, 0)


def question(text):
    """That no other suite or target asks."""
    return "%s (%s, %s)" % (text, SUITE, TARGET)


def ask(text, **more):
    return {"model": "stand-in", "messages": [{"role": "user", "content": text}], **more}


def events(raw):
    """What a plain reader of event streams makes of bytes: the data of each event."""
    lines = raw.decode().replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return [line[5:].strip() for line in lines if line.startswith("data:")]


def said(raw):
    return "".join(choice["delta"].get("content") or "" for text in events(raw) if text != "[DONE]"
                   for choice in json.loads(text).get("choices", []))


def tell(path, value):
    """The stand-in: /control, /gate."""
    urllib.request.urlopen(urllib.request.Request(MODEL + path, json.dumps(value).encode())).close()


def until(right, seconds=20):
    """Waits until right() is true; its last value."""
    last = time.monotonic() + seconds
    while not (value := right()) and time.monotonic() < last:
        time.sleep(0.02)
    return value


def is_kept(client, body, headers=()):
    """Waits until the answer can be had from the cache: it is put after it was given. Asking so never asks the model."""
    fields = {**dict(headers), "Cache-Control": "only-if-cached"}
    return until(lambda: client.post(BASE + "/chat/completions", json=body, headers=fields).headers.get("x-quire-cache") == "exact")


def end():
    sys.exit(failed > 0)
