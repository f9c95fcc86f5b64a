"""recipe.py - docs/recipe/quire_cache.py and proxy.py against a server and a stand-in model, as recipe.sh starts them.

QUIRE_PORT is the server, MODEL the stand-in's address, PROXIES the addresses of proxies, as name=address.
"""
import json
import os
import sys
import threading
import time
import urllib.error
import urllib.request

import redis

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "docs", "recipe"))
from proxy import Upstream  # noqa: E402
from quire_cache import QuireCache, fields, question_of  # noqa: E402

PORT, MODEL = int(os.environ["QUIRE_PORT"]), os.environ["MODEL"]
CACHE, ENCODER = "recipe:py", "stand-in@1"
failed = 0


def check(name, right, seen=""):
    global failed
    print(("ok - " if right else "FAIL - ") + name, flush=True)
    if not right:
        failed += 1
        print("    | " + repr(seen)[:600], flush=True)


client = redis.Redis(port=PORT)
upstream = Upstream(MODEL, ENCODER)


def do(*command):
    return client.execute_command(*command)


def calls(text):
    with urllib.request.urlopen(MODEL + "/calls") as reply:
        return json.load(reply).get(text, 0)


def request(text, **more):
    return {"model": "m1", "messages": [{"role": "system", "content": "be kind"}, {"role": "user", "content": text}],
            **more}


def labels_of(name):
    return int(fields(do("SC.STATS", CACHE, "CAT", name))["labels"])


def category(name, *settings):
    do("SC.CAT.SET", CACHE, name, *settings)


do("SC.CREATE", CACHE, "DIM", 64, "ENCODER", ENCODER, "SCOPE", "tenant")
category("near", "SIM", 0.8)
category("audited", "SIM", 0.8, "AUDIT", 1)
category("sampled", "SIM", 0.999, "AUDIT", 1)
category("short", "SIM", 0.8, "TTL", 300, "STALE", 60000, "JITTER", 0)
category("hasty", "SIM", 0.8, "LEASE", 400)
cache = QuireCache(client, CACHE, upstream.embed, ENCODER, wait_ms=5000, same=lambda cached, fresh: cached == fresh)


def ask(text, kind="near", scope=None, tags=(), **more):
    return cache.ask(request(text, **more), upstream.complete, kind, scope, tags)


def stream(text, kind="near"):
    answer = cache.ask_stream(request(text, stream=True), upstream.stream, kind)
    return answer.status, list(answer.chunks)


# ---- keys ----
one = question_of(request("hello", temperature=0.5, user="anna", metadata={"a": 1}))
check("who asks is no part of the key", one == question_of(request("hello", temperature=0.5, user="bert")))
check("a parameter is part of both keys", one.hash != question_of(request("hello", temperature=1)).hash and
      one.compat != question_of(request("hello", temperature=1)).compat)
check("the last text is no part of compat", one.compat == question_of(request("bye", temperature=0.5)).compat and
      one.hash != question_of(request("bye", temperature=0.5)).hash)
picture = {"model": "m1", "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}]}
check("a picture has no text", question_of(picture).text is None)
for field, value in (("top_k", 5), ("chat_template_kwargs", {"enable_thinking": False}), ("grammar", "x"),
                     ("documents", ["a"]), ("functions", [{"name": "f"}]), ("no_such_field", 1), ("cache_salt", "s")):
    other = question_of(request("hello", temperature=0.5, **{field: value}))
    check("%s is part of both keys" % field, other.hash != one.hash and other.compat != one.compat)
for field, value in (("stream", False), ("n", 1), ("seed", None), ("stream_options", {"include_usage": True})):
    check("%s: %s says nothing" % (field, value), question_of(request("hello", temperature=0.5, **{field: value})) == one)
check("both names of the most tokens", question_of(request("a", max_tokens=5)) ==
      question_of(request("a", max_completion_tokens=5)))
parts = [{"type": "text", "text": "hel"}, {"type": "text", "text": "lo"}]
check("text parts are a text", question_of(request(parts)).text == "hello" and
      question_of(request(parts)).compat == question_of(request("hello")).compat)
marked = request("hello", temperature=0.5)
marked["messages"] = [{**m, "id": str(i)} for i, m in enumerate(marked["messages"])]
check("ids of messages are no part of the key", question_of(marked) == one)

# ---- asking ----
Q = "how can i reset my password"
first, second = ask(Q), ask(Q)
check("the first is a miss", first.status == "miss", first)
check("the second is served without the model", second.status == "exact" and second.value == first.value and
      calls(Q) == 1, second)
near = ask("please reset the password")
check("other words are served too", near.status == "hit" and near.value == first.value and
      calls("please reset the password") == 0, near.reply)
check("the reply says of what", near.reply["text"] == Q and float(near.reply["similarity"]) >= 0.8, near.reply)
check("another question is not", ask("when does the library open").status == "miss")
bare = {**request(Q), "messages": [{"role": "user", "content": Q}]}
check("another system prompt is another question", cache.ask(bare, upstream.complete, "near").status == "miss")
usage = cache.get(cache.keys(request(Q), "near"))
check("tokens are kept", (int(usage["tokens_in"]), int(usage["tokens_out"])) == (len(Q.split()), 7), usage)

# ---- streams ----
S = "explain the tides of the sea"
status, chunks = stream(S)
again, replayed = stream(S)
check("a stream is a miss first", status == "miss" and chunks[-1] == b"data: [DONE]\n\n" and len(chunks) > 5, chunks)
check("it is replayed with the same borders", again == "exact" and replayed == chunks and calls(S) == 1, replayed)
check("without stream it is another question", ask(S).status == "miss")
B = "break off the story of the whale"
check("half a stream goes to its user", len(stream(B)[1]) == 2)
check("and is not kept", stream(B)[0] == "miss" and calls(B) == 2, calls(B))
gone = cache.ask_stream(request("a long story of rivers", stream=True), upstream.stream, "near").chunks
next(gone)
gone.close()
check("nor is what a user did not wait for", stream("a long story of rivers")[0] == "miss")

# ---- odd endings ----
def odd(words, whole=False, **more):
    body = {**request("how does the tide turn (%s)" % words, **({} if whole else {"stream": True}), **more),
            "model": "m:" + words}
    if whole:
        return cache.ask(body, upstream.complete, "near")
    answer = cache.ask_stream(body, upstream.stream, "near")
    answer.value = b"".join(answer.chunks)
    return answer


for words in ("length", "tool_calls", "error-first", "error-in-stream", "error-in-stream=done", "no-finish", "no-done",
              "empty", "choices=2,length", "refusal,tool_calls"):
    seen = [odd(words), odd(words)]
    check("a stream with %s is not kept" % words, [a.status for a in seen] == ["miss", "miss"] and
          all(b"data:" in a.value for a in seen), [(a.status, a.value[-300:]) for a in seen])
for words in ("length", "tool_calls", "no-finish", "empty", "html", "broken-json", "refusal"):
    seen = [odd(words, whole=True), odd(words, whole=True)]
    check("a body with %s is not kept" % words, [a.status for a in seen] == ["miss", "miss"] and
          all(a.value for a in seen), seen)
odd("content_filter")
check("a refused stream is negative", odd("content_filter").status == "negative")
for words in ("crlf", "split", "comments", "choices=2", "reasoning"):
    seen = [odd(words), odd(words)]
    check("a stream with %s is kept as it came" % words, seen[1].status == "exact" and seen[0].value == seen[1].value,
          [(a.status, a.value[-300:]) for a in seen])
plain, counted = odd("pace=1"), odd("pace=1", stream_options={"include_usage": True})
check("tokens are shown to who asks for them", counted.status == "exact" and b'"completion_tokens"' in counted.value,
      counted.value)
check("and to nobody else", b'"choices": []' not in plain.value and b'"choices": []' not in odd("pace=1").value and
      b"[DONE]" in odd("pace=1").value)
check("and are kept", int(odd("pace=1").reply["tokens_out"]) == 7)

# ---- answers that are none ----
for code in (500, 429):
    text = "fail with %d at the bakery" % code
    for attempt in (1, 2):
        try:
            check("%d is raised" % code, False, ask(text))
        except urllib.error.HTTPError as e:
            check("%d is raised, time %d, not replayed" % (code, attempt), e.code == code and calls(text) == attempt)
check("a cut answer is given", json.loads(ask("be cut in the middle of autumn").value)["choices"])
check("and not kept", ask("be cut in the middle of autumn").status == "miss")
ask("refuse this poem of darkness")
check("a refused one is negative", ask("refuse this poem of darkness").status == "negative")

# ---- many at once ----
def crowd(text, n, kind, call):
    out = [None] * n

    def one(i):
        try:
            out[i] = cache.ask(request(text), call, kind).status
        except Exception as e:  # pylint: disable=broad-except
            out[i] = type(e).__name__
    threads = [threading.Thread(target=one, args=(i,)) for i in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(out)


C = "slowly count the stars of heaven"
seen = crowd(C, 20, "near", upstream.complete)
check("of twenty who ask at once one asks the model", calls(C) == 1 and seen.count("miss") == 1, (calls(C), seen))
F, turns = "slowly weigh the moon tonight", []


def fails_first(body):
    turns.append(1)
    if len(turns) == 1:
        time.sleep(0.3)
        raise RuntimeError("the model is gone")
    return upstream.complete(body)


seen = crowd(F, 10, "near", fails_first)
check("a leader that fails hands over to one who waits", seen.count("RuntimeError") == 1 and
      seen.count("miss") == 1 and len(turns) == 2, (seen, len(turns)))
dead = cache.get(cache.keys(request("slowly name the winds"), "hasty"))
begun = time.monotonic()
heir = ask("slowly name the winds", "hasty")
check("one that dies is followed at its deadline", dead["status"] == "miss" and dead["lease"] and
      heir.status == "miss" and heir.reply["lease"] and 0.2 < time.monotonic() - begun < 4, (dead, heir.reply))

# ---- tenants ----
T = "which invoices are open in march"
a, b = ask(T, scope={"tenant": "a"}), ask(T, scope={"tenant": "b"})
check("a tenant's answer is its own", (a.status, b.status) == ("miss", "miss") and a.value != b.value and
      ask(T, scope={"tenant": "a"}).value == a.value, (a.status, b.status))

# ---- audits ----
ask("repair the roof of the old barn", "audited")
labels = labels_of("audited")
audit = ask("please repair the roof of the old barn", "audited")
check("an audit asks the model", audit.status == "audit" and calls("please repair the roof of the old barn") == 1 and
      b"please" in audit.value, audit)
check("and labels the pair", labels_of("audited") == labels + 1, labels)
try:
    do("SC.AUDIT", "PUT", CACHE, audit.reply["audit"], "GOOD")
    check("a pair is labelled once", False)
except redis.ResponseError as e:
    check("a pair is labelled once", True, str(e))

ask("paint the gate of the old mill", "sampled")
labels = labels_of("sampled")
sampled = ask("paint the tall gate of the old mill", "sampled")  # estimates err by .002: not near the threshold
check("a miss that is sampled is labelled", sampled.status == "miss" and labels_of("sampled") == labels + 1,
      sampled.reply)

# ---- out of date ----
old = ask("what is the weather at the harbour", "short")
time.sleep(0.4)
stale = ask("what is the weather at the harbour", "short")
check("what is stale is served at once", stale.status == "stale" and stale.value == old.value, stale.reply)
deadline = time.monotonic() + 5
while calls("what is the weather at the harbour") < 2 and time.monotonic() < deadline:
    time.sleep(0.02)
time.sleep(0.1)
fresh = ask("what is the weather at the harbour", "short")
check("and renewed behind it", calls("what is the weather at the harbour") >= 2 and fresh.value != old.value,
      fresh.reply)
ask("who won the regatta", tags=["sport"])
gone = do("SC.INVALIDATE", CACHE, "TAG", "sport")
check("a tag invalidates", gone == 1 and ask("who won the regatta").status == "miss", gone)

# ---- what is wrong is said ----
try:
    QuireCache(client, CACHE, upstream.embed, "other@2").ask(request(Q), upstream.complete, "near")
    check("another encoder is an error", False)
except redis.ResponseError as e:
    check("another encoder is an error", "other@2" in str(e) or "ncoder" in str(e), str(e))
down = QuireCache(redis.Redis(port=1), CACHE, upstream.embed, ENCODER)
answer = down.ask(request("is anybody there at all"), upstream.complete, "near")
check("without a cache the model answers", answer.status == "down" and b"answer 1" in answer.value, answer)



def no_vector(_):
    raise OSError("the encoder is gone")


answer = QuireCache(client, CACHE, no_vector).ask(request("is any vector there"), upstream.complete, "near")
check("nor without an encoder", answer.status == "down" and b"answer 1" in answer.value, answer)


def judged_meanwhile(body):
    for pair in do("SC.AUDIT", "POP", CACHE, "COUNT", 100):
        do("SC.AUDIT", "PUT", CACHE, fields(pair)["audit"], "GOOD")
    return upstream.complete(body)


answer = cache.ask(request("repair the roof of the old barn please"), judged_meanwhile, "audited")
check("an audit that was labelled meanwhile loses no answer", answer.status == "audit" and answer.value, answer)

# ---- the proxies ----
def post(address, body, **headers):
    wanted = urllib.request.Request(address + "/v1/chat/completions", json.dumps(body).encode(),
                                    {"Content-Type": "application/json", **headers})
    try:
        with urllib.request.urlopen(wanted, timeout=20) as reply:
            return reply.status, reply.headers["X-Cache"], reply.read()
    except urllib.error.HTTPError as e:
        return e.code, e.headers["X-Cache"], e.read()


for name, _, address in (proxy.partition("=") for proxy in os.environ["PROXIES"].split()):
    P = "which trains go to %s on sunday" % name
    first, second = post(address, request(P)), post(address, request(P))
    check(name + ": miss, then exact", (first[:2], second[:2]) == ((200, "miss"), (200, "exact")) and
          first[2] == second[2] and calls(P) == 1, (first, second))
    S = "tell of the lighthouse of %s" % name
    first, second = post(address, request(S, stream=True)), post(address, request(S, stream=True))
    check(name + ": streams are replayed", second[1] == "exact" and first[2] == second[2] and
          first[2].endswith(b"data: [DONE]\n\n") and calls(S) == 1, (first, second))
    key = post(address, request(P), Authorization="Bearer another")
    check(name + ": another key is another tenant", key[1] == "miss" and calls(P) == 2, key)
    error = post(address, request("fail with 429 in %s" % name))
    check(name + ": errors pass through", error[0] == 429 and b"as asked" in error[2], error)
    check(name + ": and are not kept", post(address, request("fail with 429 in %s" % name))[0] == 429 and
          calls("fail with 429 in %s" % name) == 2)
    exact = [post(address, request("the exact way to %s" % name), **{"X-Cache-Category": "exact"})[1] for _ in "12"]
    check(name + ": a category by header", exact == ["miss", "exact"], exact)
    wrong = post(address, request(P), **{"X-Cache-Category": "nonsense"})
    check(name + ": an unknown category is an error", wrong[0] == 502 and b"nonsense" in wrong[2], wrong)

sys.exit(failed > 0)
