"""flow.py BUILD_DIR [NAME ...] - quire-gateway before a stand-in model, with a real quire-server: what comes from where, who
shares what, and what happens when a part fails. Prints "ok - ..." or "FAIL - ..." per check; NAMEs choose some.
"""
import base64
import collections
import concurrent.futures
import gzip
import hashlib
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from gateway_process import Gateway, Server, StandIn, ask, chat, until  # noqa: E402

CHECKS, failed = [], []


def check(function):
    CHECKS.append(function)
    return function


def expect(what, wrong=""):
    if not what:
        raise AssertionError(wrong or "not so")


def equal(got, wanted):
    expect(got == wanted, "%r, not %r" % (got, wanted))


class World:
    """One server and one model for all checks; gateways by their settings."""

    def __init__(self, build):
        self.build, self.folder = build, pathlib.Path(tempfile.mkdtemp(prefix="quire-flow-"))
        (self.folder / "server").mkdir()
        self.server = Server(build, self.folder / "server")
        self.model = StandIn()
        self.gateways, self.number = [], 0

    def gateway(self, ready=True, quire=None, upstream=None, **settings):
        self.number += 1
        settings.setdefault("cache", "c%d" % self.number)
        gateway = Gateway(self.build, self.folder / ("g%d" % self.number), upstream or self.model.url,
                          quire or "127.0.0.1:%d" % self.server.port, **settings)
        self.gateways.append(gateway)
        return gateway.ready("embed_url" in settings) if ready else gateway

    def near(self, **settings):
        """With vectors, and a fixed similarity."""
        return self.gateway(embed_url=self.model.url + "/v1", embed_model="encoder", similarity=0.8, **settings)

    def redis(self, *words):
        from resp_client import Stream
        return Stream(self.server.port).call(*words)

    def calls(self):
        """How often the model was asked for an answer."""
        return sum(self.model.get("/calls").values())

    def end_gateways(self):
        ended = [gateway.stop() for gateway in self.gateways]
        logs = "".join(gateway.log() for gateway in self.gateways)
        self.gateways = []
        expect(all(ended), "a gateway did not end well: " + logs[-1500:])

    def end(self):
        self.model.kill()
        self.server.stop()
        shutil.rmtree(self.folder)


def accepted(gateway, key="sk-one"):
    """Makes the credential one that the upstream has accepted."""
    equal(chat(gateway.port, "be so kind as to accept me %s" % key, key=key).status, 200)


def wait_kept(gateway, text, headers=(), **more):
    """Until the answer can be had from the cache: it is put after it was given. Asking so never asks the model."""
    fields = {**dict(headers), "Cache-Control": "only-if-cached"}
    expect(until(lambda: chat(gateway.port, text, headers=fields, **more).cache == "exact"), "not kept: %s" % text)


def keep(gateway, text, **more):
    """Asks, and waits until the answer is kept."""
    first = chat(gateway.port, text, **more)
    wait_kept(gateway, text, **more)
    return first


def running(gateway):
    """Requests under way, without the one that asks this."""
    return gateway.health()["requests"] - 1


def without_ids(answer):
    return re.sub(rb'("id": ?"[^"]*"|"created": ?\d+)', b"", answer.body)


# ---- hits ------------------------------------------------------------------------------------------------------------

@check
def the_same_request_is_answered_from_the_cache(w):
    g = w.gateway()
    accepted(g)
    for stream in (False, True):
        first, second = (chat(g.port, "why is the sky blue", stream=stream) for _ in range(2))
        equal((first.cache, second.cache), ("miss", "exact"))
        equal(without_ids(first), without_ids(second))
        equal(second.headers["Cache-Control"], "private, no-store")
        equal(second.headers["Vary"], "Authorization")
        expect(int(second.headers["Age"]) >= 0 and re.fullmatch("[0-9a-f]{16}", second.headers["X-Quire-Id"]))
        expect(first.headers["X-Request-Id"] and second.headers["X-Request-Id"] != first.headers["X-Request-Id"])
        expect("cache;dur=" in second.headers["Server-Timing"])
        ids = [json.loads(re.search(rb'\{.*', a.body)[0].split(b"\n")[0])["id"] for a in (first, second)]
        expect(ids[0] != ids[1] and len(ids[0]) == len(ids[1]), "ids %s" % ids)


@check
def another_spelling_of_the_same_request_is_the_same(w):
    g = w.gateway()
    accepted(g)
    one = '{"model": "stand-in", "temperature": 1.0, "messages": [{"role": "user", "content": "caf\\u00e9"}], "user": "a"}'
    two = '{"messages":[{"content":"café","role":"user"}],"temperature":1e0,"model":"stand-in","n":1,"metadata":{"x":1}}'
    equal(ask(g.port, "/v1/chat/completions", one, key="sk-one").cache, "miss")
    equal(ask(g.port, "/v1/chat/completions", two.encode(), key="sk-one").cache, "exact")


@check
def near_questions_hit_with_vectors_and_a_fixed_similarity(w):
    g = w.near()
    accepted(g)
    equal(keep(g, "what is the capital of france").cache, "miss")
    a = chat(g.port, "tell me what the capital of france is please")
    equal(a.cache, "hit")
    expect(0.8 <= float(a.header("X-Quire-Similarity")) <= 1 and a.header("X-Quire-Threshold"))
    b = chat(g.port, "how do whales sleep")
    equal(b.cache, "miss")
    expect(b.header("X-Quire-Threshold"), "no threshold on a miss: %s" % b.headers)
    equal(chat(g.port, "how do whales sleep", headers={"X-Quire-Control": "exact"}).cache, "miss")  # its own category


@check
def questions_with_tools_are_near_where_a_category_allows_it(w):
    def tool(name):
        return [{"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}]
    near, other = "what is the capital of france", "tell me what the capital of france is please"
    g = w.near(near_tools=["*"], keep_tools=True)
    accepted(g)
    equal(keep(g, near, tools=tool("f")).cache, "miss")
    equal(chat(g.port, other, tools=tool("f")).cache, "hit")
    equal(chat(g.port, other, tools=tool("g")).cache, "miss")
    equal(chat(g.port, other).cache, "miss")
    for _ in range(2):  # an answer that calls a tool is none to other words, nor kept where there are any
        equal(chat(g.port, "call the tool for the harbour", tools=tool("f")).cache, "miss")
    equal(chat(g.port, "please call the tool for the harbour", tools=tool("f")).cache, "miss")
    g = w.near(near_tools=["another"])
    accepted(g)
    equal(keep(g, near, tools=tool("f")).cache, "miss")
    a = chat(g.port, other, tools=tool("f"))
    equal(a.cache, "miss")
    equal(chat(g.port, near, tools=tool("f")).cache, "exact")


@check
def an_empty_group_is_not_embedded_before_the_model_is_asked(w):
    g = w.near()
    accepted(g)
    talk = [{"role": "system", "content": "a group of its own"}, {"role": "user", "content": "who are you"}]
    w.model.control(words={"/v1/embeddings": "gate"})
    begin = time.monotonic()
    equal(chat(g.port, talk).cache, "miss")
    expect(time.monotonic() - begin < 25, "the answer waited for the encoder")  # which waits at its gate for 30 s
    w.model.control(words={})
    w.model.open("who are you")
    wait_kept(g, talk)


@check
def nearness_is_off_by_default_and_says_so(w):
    g = w.gateway()
    accepted(g)
    a = chat(g.port, "what is the capital of spain")
    equal((a.cache, a.header("X-Quire-Category")), ("miss", "exact"))
    expect("nearness is off" in a.reason and "similarity" in a.reason, "the header says: " + a.reason)
    g2 = w.gateway(embed_url=w.model.url + "/v1", embed_model="encoder", risk=0.02)  # learns nothing without a judge
    accepted(g2)
    a = chat(g2.port, "what is the capital of spain")
    equal(a.header("X-Quire-Category"), "exact")
    expect("judge" in a.reason, "the header says: " + a.reason)


@check
def texts_beyond_embed_text_max_are_exact_only(w):
    g = w.near(embed_text_max=100)
    accepted(g)
    near = chat(g.port, "y" * 100)
    equal((near.cache, near.header("X-Quire-Category")), ("miss", "default"))
    for _ in range(2):
        w.model.reset()
        long = chat(g.port, "y" * 101)
        expect(long.header("X-Quire-Category") == "exact" and (long.cache == "exact" or "embed-text-max" in long.reason),
               long.headers)
        equal(w.model.asked("embed: " + "y" * 101), 0)
        wait_kept(g, "y" * 101)


@check
def settings_of_a_category_that_is_there_are_not_in_force_and_it_is_said(w):
    def said(g):
        return g.health()["cache"]["settings_not_in_force"]
    kept, other = "what is the capital of france", "tell me what the capital of france is please"
    g = w.near(cache="sims", secret_file=str(secret(w)))
    accepted(g)
    keep(g, kept)
    equal((chat(g.port, other).cache, said(g)), ("hit", []))
    g = w.near(cache="sims", secret_file=str(secret(w)), ttl="1h")  # SIM is as it was
    equal(len(said(g)), 2)
    for name, sentence in zip(("exact", "default"), said(g)):
        remedy = "SC.CAT.SET sims %s TTL 3600000 changes it" % name
        expect("'%s' has TTL 86400000, and the settings say TTL 3600000" % name in sentence and remedy in sentence, sentence)
        expect("warning " + sentence in g.log(), g.log())
    vectors = {"embed_url": w.model.url + "/v1", "embed_model": "encoder", "secret_file": str(secret(w))}
    for settings, has, wants in (({"similarity": 0.97}, "SIM 0.8", "SIM 0.97"), ({"risk": 0.02, "judge": "equal"}, "SIM 0.8", "RISK 0.02"),
                                 ({"category_settings": "MODE semantic SIM 0.8"}, "MODE both", "MODE semantic")):
        g = w.gateway(cache="sims", **vectors, **settings)
        equal([has in s and wants in s for s in said(g)], [True])
    equal(w.redis("SC.CAT.SET", "sims", "default", "SIM", "0.97"), "OK")
    equal(said(w.gateway(cache="sims", similarity=0.97, **vectors)), [])
    # and none that switches near answers on
    g = w.gateway(cache="sims", **vectors)
    accepted(g)
    equal(w.redis("SC.CAT.SET", "sims", "default", "SIM", "0.8"), "OK")
    a = chat(g.port, other)
    equal((a.cache, a.header("X-Quire-Category")), ("miss", "exact"))
    expect("nearness is off" in a.reason, a.reason)


@check
def settings_of_categories_go_before_those_of_their_own_names(w):
    def shown(category):
        reply = w.redis("SC.CAT.GET", "own", category)
        return {reply[i].decode(): reply[i + 1].decode() for i in range(0, len(reply), 2)}
    g = w.gateway(cache="own", embed_url=w.model.url + "/v1", embed_model="encoder", judge="equal", similarity=0.9,
                  category_settings="RISK 0.01 TTL 7200000", exact_settings="TTL 3600000 ENTRIES 100000")
    equal(g.health()["cache"]["settings_not_in_force"], [])
    equal([shown("default").get(n) for n in ("risk", "ttl", "sim")], ["0.01", "7200000", None])
    equal([shown("exact").get(n) for n in ("mode", "ttl", "entries")], ["exact", "3600000", "100000"])
    w.gateway(cache="alone", category_settings="SIM 0.9")  # they alone switch near answers on
    expect(b"default" in w.redis("SC.CAT.LIST", "alone"), w.redis("SC.CAT.LIST", "alone"))


@check
def what_a_reload_does_not_change_is_named(w):
    g = w.gateway()
    path = g.folder / "gateway.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "server": "127.0.0.1:1", "cache": "another", "similarity": 0.9,
                                "ttl": "1h", "embed-url": w.model.url, "secret-file": str(secret(w)), "share": "all"}))
    g.process.send_signal(signal.SIGHUP)
    expect(until(lambda: "settings read again" in g.log()), g.log())
    expect("only after a restart: server, cache, ttl, similarity, embed-url, secret-file\n" in g.log(), g.log())


@check
def with_a_risk_and_any_judge_near_questions_are_looked_for(w):
    for judge in ("equal", "vector", "hand"):
        g = w.gateway(embed_url=w.model.url + "/v1", embed_model="encoder", risk=0.1, judge=judge, cache="by-" + judge)
        accepted(g)
        for i in range(60):
            a = chat(g.port, "tell me what the %s is called" % ("x" * (i + 1)))
            equal((judge, a.cache, a.header("X-Quire-Category")), (judge, "miss", "default"))
            if w.redis("SC.AUDIT", "POP", "by-" + judge):  # drawn for somebody to look at
                break
        else:
            expect(False, "%s: nothing was drawn" % judge)
        expect("judge" not in a.reason and a.header("X-Quire-Threshold"), a.headers)


@check
def what_makes_every_context_new_is_in_the_log(w):
    g = w.gateway()
    for i in range(200):
        chat(g.port, [{"role": "system", "content": "You are kind. It is 10:00:%02d.%d" % (i % 60, i)},
                      {"role": "user", "content": "hello"}])
    equal(g.log().count("different contexts: the system text changes at byte"), 1)
    expect("kind" not in g.log() and len(g.health()["cache"]["diagnoses"]) == 1, g.log())


@check
def why_nothing_near_was_looked_for_is_said(w):
    g = w.near()
    accepted(g)
    for more, word in (({"seed": 1}, "seed"), ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
                       ({"logprobs": True}, "logprobs"), ({"response_format": {"type": "json_object"}}, "response_format")):
        for _ in range(2):  # also where another has the lease of the first
            a = chat(g.port, "say why %s" % word, headers={"Cache-Control": "max-age=1000"}, **more)
            expect(a.cache == "exact" or word in a.reason, "%s: %s" % (word, a.reason))
        equal(keep(g, "why %s" % word, **more).header("X-Quire-Category"), "exact")
    a = chat(g.port, "say why", headers={"X-Quire-Control": "exact"})
    expect("exact" in a.reason, a.reason)


@check
def embeddings_are_looked_up_text_by_text(w):
    g = w.gateway()
    accepted(g)

    def embed(*texts, **more):
        return ask(g.port, "/v1/embeddings", {"model": "encoder", "input": list(texts), **more}, key="sk-one")

    def wait_embedded(*texts):
        expect(until(lambda: ask(g.port, "/v1/embeddings", {"model": "encoder", "input": list(texts)}, key="sk-one",
                                 headers={"Cache-Control": "only-if-cached"}).cache == "exact"), "not kept: %s" % (texts,))
    one = embed("a cat", "a dog")
    wait_embedded("a cat", "a dog")
    two = embed("a dog", "a cow", "a cat")
    equal((one.cache, two.cache), ("miss", "miss"))
    by_text = {i: row["embedding"] for i, row in enumerate(two.json()["data"])}
    rows = [row["embedding"] for row in one.json()["data"]]
    equal((by_text[2], by_text[0]), (rows[0], rows[1]))
    wait_embedded("a cow")
    before = w.model.get("/state")["paths"]
    three = embed("a cow", "a cat")
    equal(three.cache, "exact")
    equal([row["embedding"] for row in three.json()["data"]], [by_text[1], by_text[2]])
    equal(w.model.get("/state")["paths"], before)
    equal(embed("a cow", encoding_format="base64").cache, "miss")

    def cached(**more):
        return embed_with({"Cache-Control": "only-if-cached"}, **more)

    def embed_with(headers, text="a hen", **more):
        return ask(g.port, "/v1/embeddings", {"model": "encoder", "input": text, **more}, key="sk-one", headers=headers)
    none = cached()
    equal((none.status, none.cache), (504, "miss"))
    for headers in ({"Cache-Control": "no-cache"}, {"Cache-Control": "max-age=0"}):
        w.model.reset()
        fresh = embed_with(headers)
        equal((fresh.cache, "no-cache" in fresh.reason, w.model.asked("embed: a hen")), ("miss", True, 1))
        expect(until(lambda: cached().cache == "exact"), "asked anew with %s, and not kept" % headers)
    equal(embed_with({}, "a pig", cache={"ttl": 0}).cache, "miss")
    equal((embed_with({}, "a pig").cache, cached(cache_salt="s").cache), ("miss", "miss"))


@check
def embeddings_have_tags_ids_and_an_age(w):
    g = w.gateway(exact_settings="STALE 600000 JITTER 0", admin_key="adm")
    accepted(g)

    def embed(text, **headers):
        return ask(g.port, "/v1/embeddings", {"model": "encoder", "input": text}, key="sk-one",
                   headers={name.replace("_", "-"): value for name, value in headers.items()})

    def kept(text):
        expect(until(lambda: embed(text, Cache_Control="only-if-cached").cache == "exact"), "not kept: %s" % text)
        return embed(text)
    embed("a tagged one", X_Quire_Tags="doc:9, PIN")  # a tag, and no option
    hit = kept("a tagged one")
    expect(int(hit.header("Age")) >= 0 and re.fullmatch("[0-9a-f]{16}", hit.header("X-Quire-Id") or ""), hit.headers)
    for tag in ("doc:9", "PIN"):
        equal(ask(g.port, "/quire/invalidate", {"tags": [tag]}, key="adm").json()["entries"], 1)
    equal(ask(g.port, "/quire/entries/" + hit.header("X-Quire-Id"), method="DELETE", key="adm").json()["removed"], 1)
    equal(embed("a tagged one", Cache_Control="only-if-cached").status, 504)
    keep(g, "tagged as well", headers={"X-Quire-Tags": "doc:9, PIN"})
    equal(ask(g.port, "/quire/invalidate", {"tags": ["PIN"]}, key="adm").json()["entries"], 1)
    several = ask(g.port, "/v1/embeddings", {"model": "encoder", "input": ["one", "two"]}, key="sk-one")
    equal((several.header("Age"), several.header("X-Quire-Id")), (None, None))
    old = w.gateway(exact_settings="STALE 600000 JITTER 0", ttl="1s")
    accepted(old)
    ask(old.port, "/v1/embeddings", {"model": "encoder", "input": "gets old"}, key="sk-one")
    time.sleep(1.3)  # it is old now, however long this takes
    seen = until(lambda: [a for a in [ask(old.port, "/v1/embeddings", {"model": "encoder", "input": "gets old"}, key="sk-one",
                                          headers={"Cache-Control": "only-if-cached"})] if a.status == 200])
    equal((seen[0].cache, int(seen[0].header("Age")) >= 1), ("stale", True))


@check
def users_of_one_key_are_kept_apart_where_that_is_set(w):
    g = w.gateway(user_scope="user")
    accepted(g)
    for path, body in (("/v1/chat/completions", {"messages": [{"role": "user", "content": "who am I"}]}),
                       ("/v1/embeddings", {"input": "who am I"})):
        def say(user, **headers):
            return ask(g.port, path, {"model": "stand-in", "user": user, **body}, key="sk-one",
                       headers={name.replace("_", "-"): value for name, value in headers.items()}).cache
        equal((path, say("anna")), (path, "miss"))
        expect(until(lambda: say("anna", Cache_Control="only-if-cached") == "exact"), "not kept")
        equal((path, say("bert"), say("anna")), (path, "miss", "exact"))


@check
def many_embeddings_are_looked_up_as_well(w):
    g = w.gateway()
    accepted(g)

    def embed(first, n, **more):
        return ask(g.port, "/v1/embeddings", {"model": "encoder", "input": ["text %d" % i for i in range(first, first + n)]},
                   key="sk-one", **more)
    equal(embed(0, 300).cache, "miss")
    expect(until(lambda: embed(0, 300, headers={"Cache-Control": "only-if-cached"}).cache == "exact"), "not kept")
    w.model.reset()
    joined = embed(150, 300)
    equal((joined.cache, len(joined.json()["data"])), ("miss", 300))
    equal((w.model.asked("embed: text 299"), w.model.asked("embed: text 300")), (0, 1))
    equal([row["index"] for row in joined.json()["data"]], list(range(300)))
    many = embed(0, 2049)
    equal((many.cache, len(many.json()["data"])), ("bypass", 2049))
    large = ask(g.port, "/v1/embeddings", {"model": "encoder:dim=4096", "input": ["a %d" % i for i in range(1000)]}, key="sk-one",
                timeout=300)  # of the stand-in's numbers, which takes its time on a busy machine
    expect(len(large.body) > 64 << 20, "%d bytes are not enough for this" % len(large.body))
    equal(len(large.json()["data"]), 1000)


@check
def bodies_with_very_many_values_are_passed_on_unread(w):
    g = w.gateway()
    accepted(g)
    for path, few, many in (("/v1/embeddings", [7] * 190000, [7] * 200000),
                            ("/v1/completions", [15339] * 150000, [[1]] * 40000)):
        name = "input" if path.endswith("embeddings") else "prompt"
        for value, wanted in ((few, ["miss", "exact"]), (many, ["bypass", "bypass"])):
            body = json.dumps({"model": "stand-in:say=yes", name: value}, separators=(",", ":"))
            expect(len(body) < 1 << 20)
            seen = [ask(g.port, path, body, key="sk-one")]
            if wanted[1] == "exact":
                fields = {"Cache-Control": "only-if-cached"}
                expect(until(lambda: ask(g.port, path, body, key="sk-one", headers=fields).cache == "exact"), "not kept")
            seen.append(ask(g.port, path, body, key="sk-one"))
            equal((path, [a.cache for a in seen]), (path, wanted))
            expect(wanted[1] == "exact" or "more than" in seen[0].reason, seen[0].reason)


@check
def responses_and_messages_are_exact(w):
    g = w.gateway()
    accepted(g)
    body = {"model": "stand-in", "input": "say something", "store": False}
    for stream in (False, True):
        body["stream"] = stream
        equal([ask(g.port, "/v1/responses", body, key="sk-one").cache for _ in range(2)], ["miss", "exact"])
    del body["store"]
    a = ask(g.port, "/v1/responses", body, key="sk-one")
    equal(a.cache, "bypass")
    body = {"model": "stand-in", "max_tokens": 100, "messages": [{"role": "user", "content": "say something"}]}
    for stream in (False, True):
        body["stream"] = stream
        equal([ask(g.port, "/v1/messages", body, key="sk-one").cache for _ in range(2)], ["miss", "exact"])


@check
def the_list_of_models_is_kept_per_credential(w):
    g = w.gateway()
    equal([ask(g.port, "/v1/models", method="GET", key=key).cache for key in ("sk-one", "sk-one", "sk-two")],
          ["miss", "exact", "miss"])
    equal(ask(g.port, "/v1/models", method="GET", key="wrong").status, 401)
    w.model.control(words={"/v1/models": "gzip"})
    for _ in range(2):  # compressed, though nobody asked for it: passed on as it is, and never as if it were not
        a = ask(g.port, "/v1/models", method="GET", key="sk-gzip")
        equal((a.cache, a.header("Content-Encoding"), a.body[:2]), ("miss", "gzip", b"\x1f\x8b"))


# ---- what is not kept ------------------------------------------------------------------------------------------------

@check
def truncated_failed_and_half_answers_are_not_kept(w):
    g = w.gateway()
    accepted(g)
    for words in ("length", "tool_calls", "no-done", "error-in-stream", "error-in-stream=done", "empty", "no-finish",
                  "broken-json", "html", "close=3", "status=500", "status=429", "error-first", "gzip"):
        for stream in (False, True):
            if (stream and words in ("broken-json", "html")) or (not stream and words.split("=")[0] in (
                    "no-done", "error-in-stream", "error-first")):
                continue
            text = "an odd ending: %s %s" % (words, stream)
            for _ in range(2):
                try:
                    a = chat(g.port, text, model="stand-in:" + words, stream=stream)
                except (http.client.HTTPException, ConnectionError):
                    continue
                expect(a.cache in ("miss", "bypass"), "%s (stream %s) was kept: %s %s" % (words, stream, a.cache, a.reason))


TEXTS = {  # a request with a text of the user's on each route, and in each place
    "chat": ("/v1/chat/completions", lambda t: {"messages": [{"role": "user", "content": t}]}),
    "a stream": ("/v1/chat/completions", lambda t: {"messages": [{"role": "user", "content": t}], "stream": True}),
    "parts": ("/v1/chat/completions", lambda t: {"messages": [{"role": "user", "content": [
        {"type": "text", "text": t}, {"type": "image_url", "image_url": {"url": "http://x/y.png"}}]}]}),
    "history": ("/v1/chat/completions", lambda t: {"messages": [
        {"role": "user", "content": t}, {"role": "assistant", "content": "ok"}, {"role": "user", "content": "go on"}]}),
    "long": ("/v1/chat/completions", lambda t: {"messages": [{"role": "user", "content": "x" * 70000 + t}]}),
    "completions": ("/v1/completions", lambda t: {"prompt": t}),
    "prompts": ("/v1/completions", lambda t: {"prompt": [t]}),
    "responses": ("/v1/responses", lambda t: {"input": t, "store": False}),
    "items": ("/v1/responses", lambda t: {"input": [{"role": "user", "content": [{"type": "input_text", "text": t}]}],
                                          "store": False}),
    "messages": ("/v1/messages", lambda t: {"max_tokens": 9, "messages": [{"role": "user", "content": t}]}),
    "embeddings": ("/v1/embeddings", lambda t: {"input": t})}


@check
def what_never_names_is_not_kept(w):
    g = w.gateway(never=["*my \"password\" is*", "answer ? to: tell \"nobody\" of*"])
    accepted(g)

    def post(name, text, model, stream=False, **headers):
        path, body = TEXTS[name]
        body = {"model": model, **body(text), **({"stream": True} if stream else {})}
        return ask(g.port, path, body, key="sk-one", headers={n.replace("_", "-"): v for n, v in headers.items()})

    def is_kept(*asked):
        return post(*asked, Cache_Control="only-if-cached").status == 200
    # questions, whose answers say something else
    pairs = [[(name, text, "stand-in:say=fine") for text in ('alas my "password" is xyz', 'alas my "bicycle" is xyz')]
             for name in TEXTS]
    # answers: whole and as a stream, a word at a time
    pairs += [[(name, text, "stand-in", stream) for text in ('tell "nobody" of it', 'tell "everybody" of it')]
              for name in ("chat", "completions", "responses", "messages") for stream in (False, True)]
    for never, other in pairs:
        equal((never, post(*never).status, post(*other).status), (never, 200, 200))
    for never, other in pairs:
        expect(until(lambda: is_kept(*other)), "not kept: %s" % (other,))
    keep(g, "the last that is put")
    equal([never for never, _ in pairs if is_kept(*never)], [])
    some = ask(g.port, "/v1/embeddings", {"model": "encoder", "input": ['my "password" is abc', "a cat"]}, key="sk-one")
    equal(some.cache, "miss")
    fields = {"Cache-Control": "only-if-cached"}
    one = lambda text: ask(g.port, "/v1/embeddings", {"model": "encoder", "input": text}, key="sk-one", headers=fields)  # noqa: E731
    expect(until(lambda: one("a cat").cache == "exact") and one('my "password" is abc').status == 504, "each by itself")


def lines_of(g, n):
    """The n lines of the access log, once they are there. One that is being written may be there in part."""
    read = lambda: (g.folder / "access.log").read_text().split("\n")[:-1]  # noqa: E731
    expect(until(lambda: len(read()) >= n), "%d lines in the access log, not %d" % (len(read()), n))
    return [json.loads(line) for line in read()]


@check
def why_an_answer_is_kept_back_is_counted_and_logged(w):
    g = w.gateway(answer_max="4kb")
    accepted(g)
    wanted, n = collections.Counter(), 1
    for words, reason, ways in (
            ("length", "cut", (False, True)), ("tool_calls", "tool_call", (False, True)), ("empty", "empty", (False, True)),
            ("content_filter", "filtered", (False, True)), ("no-finish", "unfinished", (False, True)),
            ("no-done", "unfinished", (True,)), ("error-in-stream=done", "error", (True,)), ("html", "type", (False,)),
            ("gzip", "type", (False, True)), ("broken-json", "malformed", (False,)), ("choices=2", "malformed", (False,)),
            ("big=9000", "too_large", (False, True)), ("big=90000", "too_large", (False,)), ("", None, (False, True))):
        for stream in ways:
            chat(g.port, "why not: %s %s" % (words, stream), model="stand-in:" + words, stream=stream)
            n += 1
            equal((words, stream, lines_of(g, n)[-1].get("kept_back")), (words, stream, reason))
            wanted[reason] += 1
    ask(g.port, "/v1/embeddings", {"model": "encoder:html", "input": "no vectors"}, key="sk-one")
    equal(lines_of(g, n + 1)[-1].get("kept_back"), "malformed")
    wanted["malformed"] += 1
    del wanted[None]
    page = ask(g.port, "/metrics", method="GET").body.decode()
    found = re.findall(r'^quire_gateway_kept_total\{outcome="(?:kept_back|negative)",reason="(\w+)"\} (\d+)', page, re.M)
    equal({name: int(count) for name, count in found}, dict(wanted))


@check
def long_questions_are_cut_in_the_access_log(w):
    g = w.gateway(log_texts=True)
    accepted(g)
    short, long = "a \"short\" one", "x" + "\u00e9\n\"" * 20000
    for text in (short, long):
        chat(g.port, text)
    line = lines_of(g, 3)
    equal((line[1]["question"], line[1].get("question_cut")), (short, None))
    shown = line[2]["question"]
    expect(long.startswith(shown) and 8188 < len(shown.encode()) <= 8192, "%d bytes" % len(shown.encode()))
    equal(line[2].get("question_cut"), True)


@check
def calls_of_tools_are_kept_where_that_is_set(w):
    g = w.gateway(keep_tools=True)
    accepted(g)
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
    for stream in (False, True):
        text = "call the tool %s" % stream
        first = keep(g, text, tools=[tool], stream=stream)
        second = chat(g.port, text, tools=[tool], stream=stream)
        equal((second.cache, without_ids(second)), ("exact", without_ids(first)))
        equal(chat(g.port, text + " please", tools=[tool], stream=stream).cache, "miss")


@check
def a_refused_question_is_negative_for_a_while(w):
    g = w.gateway()
    accepted(g)
    equal([chat(g.port, "refuse this please").cache for _ in range(2)], ["miss", "negative"])
    equal([chat(g.port, "refuse this please", stream=True).cache for _ in range(2)], ["miss", "negative"])


@check
def a_200_stream_that_begins_with_an_error_gets_its_status(w):
    g = w.gateway()
    accepted(g)
    a = chat(g.port, "begin badly", model="stand-in:error-first", stream=True)
    expect(a.status >= 400, "status %d" % a.status)
    expect("error" in a.json())


@check
def errors_of_the_upstream_are_its_own(w):
    g = w.gateway()
    accepted(g)
    for words in ("status=429,retry-after-ms=123", "status=500", "status=404"):
        direct, through = (chat(port, "fail", model="stand-in:" + words) for port in (w.model.port, g.port))
        equal((through.status, through.body, through.header("retry-after-ms")),
              (direct.status, direct.body, direct.header("retry-after-ms")))


@check
def a_stream_that_breaks_off_ends_with_an_error(w):
    g = w.gateway()
    accepted(g)
    a = chat(g.port, "tell me all of it", model="stand-in:close=3,events=10", stream=True)
    expect(b'"error"' in a.body and b"[DONE]" not in a.body, "it ends with %r" % a.body[-200:])


# ---- the complaints of other caches' users ---------------------------------------------------------------------------

@check
def different_system_prompts_history_tools_and_parameters_are_different_questions(w):
    g = w.near()
    accepted(g)
    user = {"role": "user", "content": "what may I do"}
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
    variants = [
        ([{"role": "system", "content": "you are strict"}, user], {}),
        ([{"role": "system", "content": "you are kind"}, user], {}),
        ([{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}, user], {}),
        ([{"role": "user", "content": "hello"}, {"role": "assistant", "content": "go away"}, user], {}),
        ([user], {}), ([user], {"max_tokens": 5}), ([user], {"seed": 1}), ([user], {"seed": 2}),
        ([user], {"reasoning_effort": "low"}), ([user], {"reasoning_effort": "high"}), ([user], {"top_k": 3}),
        ([user], {"chat_template_kwargs": {"enable_thinking": False}}), ([user], {"tools": [tool]}),
        ([user], {"tools": [tool], "tool_choice": "none"}), ([user], {"temperature": 0}), ([user], {"model": "other"}),
        ([user], {"a_field_that_nobody_knows": 1}), ([user], {"stop": ["x"]})]
    for messages, more in variants:
        a = chat(g.port, messages, **more)
        equal((a.cache, str(more)), ("miss", str(more)))


@check
def the_query_and_versions_of_the_interface_are_part_of_the_question(w):
    g = w.gateway()
    accepted(g)
    body = json.dumps({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "which version"}]})

    def say(path, headers):
        return ask(g.port, path, body, key="sk-one", headers=headers).cache

    for path in ("/v1/messages", "/v1/chat/completions"):
        for target, headers in ((path, {}), (path + "?api-version=1", {}), (path + "?api-version=2", {}),
                                (path, {"anthropic-version": "2023-06-01"}), (path, {"anthropic-beta": "x"}),
                                (path, {"OpenAI-Beta": "x"})):
            equal((target, headers, say(target, headers)), (target, headers, "miss"))
            until(lambda: say(target, {**headers, "Cache-Control": "only-if-cached"}) == "exact")
            equal((target, headers, say(target, headers)), (target, headers, "exact"))


@check
def a_conversation_does_not_hit_by_accident(w):
    g = w.near(turns=2)
    accepted(g)

    def turns(*texts):
        messages = []
        for text in texts:
            messages += [{"role": "user", "content": text}, {"role": "assistant", "content": "ok"}]
        return messages[:-1]
    for last in ("and what is the capital of italy", "please tell me what the capital of italy is"):
        a = chat(g.port, turns("one", "two", last))
        equal((a.cache, a.header("X-Quire-Category")), ("miss", "exact"))
        expect("setting turns" in a.reason, a.reason)


@check
def tenants_do_not_share(w):
    g = w.gateway()
    for key in ("sk-a", "sk-b"):
        accepted(g, key)
    equal([chat(g.port, "a secret of mine", key=key).cache for key in ("sk-a", "sk-a", "sk-b", "sk-b")],
          ["miss", "exact", "miss", "exact"])
    equal(chat(g.port, "a secret of mine", key="sk-a", headers={"OpenAI-Project": "p"}).cache, "miss")
    equal(chat(g.port, "a secret of mine", key="sk-a", headers={"X-Quire-Namespace": "v2"}).cache, "miss")
    equal(chat(g.port, "a secret of mine", key="sk-a", cache_salt="s").cache, "miss")


@check
def a_revoked_key_reads_nothing(w):
    g = w.gateway(auth_ttl="1s", share="all")
    # the second within a second of the first, or of one of those that are asked again
    expect(until(lambda: chat(g.port, "shared by all", key="sk-a").cache == "exact"))
    a = chat(g.port, "shared by all", key="wrong")
    equal((a.status, a.cache), (401, "miss"))
    equal(chat(g.port, "shared by all", key="wrong").status, 401)
    w.model.control(revoked=["sk-a"])
    try:
        time.sleep(1.1)
        equal(chat(g.port, "shared by all", key="sk-a").status, 401)
    finally:
        w.model.control(revoked=[])


@check
def what_everybody_may_read_accepts_no_key(w):
    other = StandIn()  # to which no key is a wrong one
    open_paths = (("/calls", "GET", None), ("/v1/models", "GET", None), ("/v1/files/7", "DELETE", None))
    answer = ("/v1/chat/completions", "POST", {"model": "small", "messages": [{"role": "user", "content": "who are you"}]})
    w.model.control(words={"/v1/models": "open"})
    try:
        for upstreams, requests in (
                ([{"name": "closed", "url": w.model.url}], open_paths),
                ([{"name": "closed", "url": w.model.url, "models": ["stand-in*"]}, {"name": "open", "url": other.url}],
                 [*open_paths, answer])):
            g = w.gateway(share="all", upstreams=upstreams)
            keep(g, "kept from who may no longer", key="sk-a")
            w.model.control(revoked=["sk-a"])
            equal(chat(g.port, "a new question", key="sk-a").status, 401)
            for path, method, body in requests:
                equal((path, ask(g.port, path, body, method=method, key="sk-a").status), (path, 200))
                a = chat(g.port, "kept from who may no longer", key="sk-a")
                equal((path, a.status, a.cache), (path, 401, "miss"))
            w.model.control(revoked=[])
    finally:
        other.kill()


@check
def who_shows_no_key_shares_with_nobody_who_does(w):
    for share in ("key", "all"):
        g = w.gateway(share=share)
        accepted(g, "sk-a")
        accepted(g, None)
        for first, second in (("sk-a", None), (None, "sk-a")):
            text = "first asked by %s" % first
            keep(g, text, key=first)
            equal((share, second, chat(g.port, text, key=second).cache), (share, second, "miss"))


@check
def an_unknown_credential_is_proved_where_that_is_set(w):
    g = w.gateway(prove=True, share="all")
    equal(keep(g, "who has the key", key="sk-a").cache, "miss")
    w.model.reset()
    answers = at_once(20, lambda _: chat(g.port, "who has the key", key="sk-b"))
    equal({a.cache for a in answers}, {"exact"})
    paths = w.model.get("/state")["paths"]
    expect(1 <= paths.get("/v1/models", 0) <= 20 and "/v1/chat/completions" not in paths, str(paths))
    a = chat(g.port, "who has the key", key="wrong")
    equal((a.status, a.cache), (401, "miss"))
    w.model.reset()
    equal(ask(g.port, "/v1/embeddings", {"model": "e", "input": "x"}, key="sk-c", headers={"X-Quire-Tags": "a"}).status, 200)
    equal(w.model.get("/state")["paths"], {"/v1/models": 1, "/v1/embeddings": 1})
    gone = w.gateway(prove=True, share="all", upstream="http://127.0.0.1:1")
    equal(chat(gone.port, "nobody is there").status, 502)


@check
def models_have_the_names_that_the_settings_give_them(w):
    g = w.gateway(model_alias=["fast=stand-in", "small=encoder", "other=stand-in-2"])
    accepted(g)
    equal(keep(g, "by its own name").json()["model"], "stand-in")
    for more in ({"model": "fast"}, {"model": "fast", "cache": {"ttl": 60}}):
        a = chat(g.port, "by its own name", **more)
        equal((a.cache, a.json()["model"]), ("exact", "stand-in"))
    equal(chat(g.port, "by its own name", model="other").json()["model"], "stand-in-2")
    for headers, body in (({"X-Quire-Control": "off"}, {}), ({}, {"temperature": 1.7}), ({}, {"stream": True})):
        chat(g.port, "under another", model="fast", headers=headers, **body)
    ask(g.port, "/v1/embeddings", {"model": "small", "input": "x"}, key="sk-one")
    off = w.gateway(cache_on=False, ready=False, model_alias=["fast=stand-in"])
    a, b = (chat(off.port, "without a cache", model=model) for model in ("fast", "stand-in"))
    equal((a.status, b.status, b.cache), (200, 200, None))
    sent = {json.loads(base64.b64decode(r["body"]))["model"] for r in w.model.get("/requests") if r.get("body")}
    expect(not sent & {"fast", "small", "other"}, str(sent))


@check
def bodies_that_are_not_read_go_to_the_upstream_of_their_model(w):
    path, asked = "/v1/chat/completions", collections.Counter()

    def upstreams(*rest):
        return [{"name": "small", "url": w.model.url, "models": ["llama*"]}, *rest]

    def post(g, body, path=path, **headers):
        """The answer, and who gave it: by the access log, which has a line for each."""
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = ask(g.port, path, body, key="sk-one", headers=fields)
        asked[g] += 1
        lines = lines_of(g, asked[g])
        equal(len(lines), asked[g])
        return answer, lines[-1].get("upstream")

    def sent():
        return base64.b64decode([r for r in w.model.get("/requests") if r["path"] == path][-1]["body"])

    rest = {"name": "rest", "url": w.model.url}
    g = w.gateway(upstreams=upstreams(rest), key_body_max="4kb", model_alias=["fast=llama-\u00e9", "tiny=stand-in"], prove=True)
    messages = [{"role": "user", "content": "what is large " + "x" * 120000}]
    for model, upstream, name in (("llama-3", "small", None), ("stand-in", "rest", None), ("fast", "small", "llama-\u00e9"),
                                  ("tiny", "rest", "stand-in")):
        for body in ({"model": model, "messages": messages}, {"messages": messages, "model": model, "seed": 1}):
            for stream in (False, True):
                text = json.dumps(body).encode()
                a, by = post(g, iter([text[:9], text[9:70000], text[70000:]]) if stream else text)
                equal((a.status, a.cache, a.json()["model"], by), (200, "bypass", name or model, upstream))
                equal(json.loads(sent()), {**body, "model": name or model})
                expect(name or sent() == text, "the body is not the client's")
    many = {"pad": [[]] * 70000, "messages": messages, "model": "fast"}  # small enough, but of too many values
    g2 = w.gateway(upstreams=upstreams(rest), model_alias=["fast=llama-3"])
    a, by = post(g2, many)
    equal((a.cache, by, json.loads(sent())), ("bypass", "small", {**many, "model": "llama-3"}))

    for model, upstream in (("llama-3", "small"), ("stand-in", "rest")):
        packed = gzip.compress(json.dumps({"messages": messages, "model": model}).encode())
        for encoding in ("gzip", "x-gzip"):
            equal((post(g, packed, Content_Encoding=encoding)[1], sent() == packed), (upstream, True))
    equal(post(g, b"no gzip", Content_Encoding="gzip")[1], "rest")
    equal(post(g, gzip.compress(bytes(100 << 20)), Content_Encoding="gzip")[1], "rest")  # no object, by its first byte
    for status, encoding, packed, sentence in (
            (415, "gzip", gzip.compress(b'{"model": "fast"}'), "ask for that name"),
            (415, "br", b"x", "with gzip, or without"),
            (413, "gzip", gzip.compress(b'{"messages": "' + b" " * (5 << 20) + b'", "model": "llama-3"}'), "send it first")):
        a, by = post(g, packed, Content_Encoding=encoding)
        expect(a.status == status and by is None and sentence in a.json()["error"]["message"], "%d %s" % (a.status, a.body))
    equal([post(g, {"query": "q", "model": model}, "/v1/rerank")[1] for model in ("llama-3", "other")], ["small", "rest"])

    off = w.gateway(ready=False, cache_on=False, key_body_max="4kb", upstreams=upstreams())
    a, by = post(off, {"messages": messages, "model": "other"})
    expect(a.status == 404 and "no upstream takes the model other" in a.json()["error"]["message"], a.body)
    a, by = post(off, {"messages": messages, "model": "llama-3"})
    equal((a.status, by), (200, "small"))
    plain = w.gateway(key_body_max="4kb")
    packed = gzip.compress(b"{}")
    for encoding in ("br", "gzip"):  # where no model is named, nothing is looked at
        post(plain, packed, Content_Encoding=encoding)
        equal(sent(), packed)


@check
def keys_of_a_file_are_tenants_with_limits(w):
    def entry(key, **more):
        return {"sha256": hashlib.sha256(key.encode()).hexdigest(), **more}
    path = w.folder / "keys.json"
    path.write_text(json.dumps({"keys": [entry("sk-a1", tenant="a"), entry("sk-a2", tenant="a"),
                                         entry("sk-b", tenant="b", upstream_key="sk-up", admin=True),
                                         entry("sk-slow", tenant="slow", rate=0.01),
                                         entry("sk-few", tenant="few", categories=["exact"])]}))
    w.model.reset()
    g = w.gateway(keys=str(path), share="tenant")
    equal([chat(g.port, "who shares", key=key).cache for key in ("sk-a1", "sk-a2", "sk-b")], ["miss", "exact", "miss"])
    a = chat(g.port, "who shares", key="sk-x")
    equal((a.status, a.json()["error"]["code"]), (401, "invalid_api_key"))
    equal(ask(g.port, "/v1/files", method="GET", key="sk-x").status, 401)
    answers = [chat(g.port, "as often as I may", key="sk-slow") for _ in range(3)]
    expect([a.status for a in answers].count(429) >= 1, "%s" % [a.status for a in answers])
    refused = next(a for a in answers if a.status == 429)
    expect(int(refused.header("Retry-After")) >= 1 and refused.json()["error"]["type"] == "rate_limit_error")
    sent = w.model.get("/requests")
    expect(not any("sk-b" in json.dumps(r) for r in sent), "a key of ours went upstream")


@check
def the_key_of_a_tenant_goes_on_in_the_clients_own_field(w):
    path = w.folder / "upstream-keys.json"
    path.write_text(json.dumps({"keys": [{"sha256": hashlib.sha256(b"sk-mine").hexdigest(), "tenant": "a",
                                          "upstream_key": "sk-theirs"}]}))
    small = {"model": "stand-in", "max_tokens": 9, "messages": [{"role": "user", "content": "whose key"}]}
    large = {**small, "messages": [{"role": "user", "content": "whose key " + "x" * 8000}]}
    for more in ({}, {"upstreams": [{"name": "model", "url": w.model.url, "key": "sk-of-the-settings"}]}):
        g = w.gateway(keys=str(path), key_body_max="4kb", **more)
        for field, value, wanted in (("x-api-key", "sk-mine", "sk-theirs"), ("api-key", "sk-mine", "sk-theirs"),
                                     ("Authorization", "Bearer sk-mine", "Bearer sk-theirs")):
            for target, method, body in (("/v1/messages", "POST", small), ("/v1/messages", "POST", large),
                                         ("/v1/messages/count_tokens", "POST", small), ("/v1/models", "GET", None),
                                         ("/v1/chat/completions", "POST", small), ("/v1/embeddings", "POST", {"input": "x"})):
                w.model.reset()
                headers = {field: value, "Cache-Control": "no-cache"}
                equal(ask(g.port, target, body, method=method, headers=headers).status, 200)
                sent = {name.lower(): text for name, text in w.model.get("/requests")[-1]["headers"]}
                seen = {name: sent[name] for name in ("authorization", "api-key", "x-api-key") if name in sent}
                equal((target, seen), (target, {field.lower(): wanted}))


@check
def never_hits_and_the_reason_is_said(w):
    g = w.near()
    accepted(g)
    for more, word in (({"temperature": 1.5}, "temperature"), ({"web_search_options": {}}, "upstream runs"),
                       ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"), ({"n": 2}, "n > 1")):
        a = chat(g.port, "say why", **more)
        if a.cache == "bypass":
            expect(word in a.reason, a.reason)
    a = chat(g.port, "say why", headers={"X-Quire-Control": "off"})
    equal(a.cache, "bypass")
    a = ask(g.port, "/v1/chat/completions", '{"model": "stand-in", "model": "x", "messages": []}', key="sk-one")
    equal(a.cache, "bypass")
    expect("a name for the second time" in a.reason, a.reason)


@check
def usage_chunks_are_for_those_who_asked(w):
    g = w.gateway()
    accepted(g)
    asked = {"stream_options": {"include_usage": True}}
    plain = chat(g.port, "count your tokens", stream=True)
    with_usage = chat(g.port, "count your tokens", stream=True, **asked)
    again = chat(g.port, "count your tokens", stream=True)
    equal((plain.cache, with_usage.cache, again.cache), ("miss", "exact", "exact"))
    expect(all(e == "[DONE]" or e["choices"] for e in plain.events()), "a chunk without choices")
    expect(all(e == "[DONE]" or e["choices"] for e in again.events()), "a chunk without choices")
    expect(any(e != "[DONE]" and e["choices"] == [] and e["usage"] for e in with_usage.events()), "no usage")


@check
def one_wrong_answer_can_be_cleared(w):
    g = w.near(admin_key="adm")
    accepted(g)
    keep(g, "what is the capital of peru")
    near = chat(g.port, "the capital of peru please")
    equal(near.cache, "hit")
    body = {"id": near.header("X-Quire-Id"), "good": False, "similarity": float(near.header("X-Quire-Similarity"))}
    equal(ask(g.port, "/quire/feedback", body, key="sk-one").status, 200)
    equal(chat(g.port, "the capital of peru please").cache, "miss")
    exact = chat(g.port, "what is the capital of peru")
    equal(exact.cache, "exact")
    path = "/quire/entries/" + exact.header("X-Quire-Id")
    equal(ask(g.port, path, method="DELETE", key="sk-one").status, 403)
    equal(ask(g.port, path, method="DELETE", key="adm").json()["removed"], 1)
    expect(chat(g.port, "what is the capital of peru").cache != "exact")


@check
def the_answer_of_a_miss_can_be_named_and_cleared(w):
    g = w.gateway(admin_key="adm")
    accepted(g)
    for stream in (False, True):
        first = keep(g, "what is new %s" % stream, stream=stream)
        id = first.header("X-Quire-Id")
        expect(re.fullmatch("[0-9a-f]{16}", id or ""), "no id on a miss: %s" % first.headers)
        equal(ask(g.port, "/quire/feedback", {"id": id, "good": False}, key="sk-one").status, 200)
        equal(chat(g.port, "what is new %s" % stream, stream=stream).cache, "miss")
        again = keep(g, "what is newer %s" % stream, stream=stream)
        equal(ask(g.port, "/quire/entries/" + again.header("X-Quire-Id"), method="DELETE", key="adm").json()["removed"], 1)
        other = keep(g, "what is newest %s" % stream, stream=stream)
        body = {"ids": [other.header("X-Quire-Id")], "dry_run": False}
        equal(ask(g.port, "/quire/invalidate", body, key="adm").json()["entries"], 1)
        cut = chat(g.port, "be cut %s" % stream, stream=stream)
        told = lambda: ask(g.port, "/quire/feedback", {"id": cut.header("X-Quire-Id"), "good": False}, key="sk-one")  # noqa: E731
        expect(until(lambda: told().status == 404), "%d: what was cut was not kept" % told().status)
    refused = chat(g.port, "fail with 500")
    expect(refused.header("X-Quire-Id") is None and chat(g.port, "x", temperature=1.5).header("X-Quire-Id") is None)


@check
def invalidation_is_dry_first_and_by_one_selector(w):
    g = w.gateway(admin_key="adm")
    accepted(g)
    keep(g, "of document 17", headers={"X-Quire-Tags": "doc:17, doc:18"})
    equal(ask(g.port, "/quire/invalidate", {}, key="adm").status, 400)
    equal(ask(g.port, "/quire/invalidate", {"tags": "doc:17", "all": True}, key="adm").status, 400)
    equal(ask(g.port, "/quire/invalidate", {"tags": ["doc:17"]}, key="adm").json(), {"entries": 1, "dry_run": True})
    equal(chat(g.port, "of document 17", headers={"X-Quire-Tags": "doc:17, doc:18"}).cache, "exact")
    equal(ask(g.port, "/quire/invalidate", {"tags": ["doc:17"], "dry_run": False}, key="adm").json()["entries"], 1)
    equal(chat(g.port, "of document 17").cache, "miss")


def basic(user, password):
    return {"Authorization": "Basic " + base64.b64encode(("%s:%s" % (user, password)).encode()).decode()}


@check
def users_of_the_server_remove_what_its_acl_lets_them(w):
    g = w.gateway(cache="acl")
    accepted(g)
    id = keep(g, "who may remove this").header("X-Quire-Id")
    path, everything = "/quire/entries/" + id, {"all": True, "dry_run": False}
    w.redis("ACL", "SETUSER", "keeper", "on", ">k:eep", "~acl", "+@read", "+sc.del", "+sc.invalidate", "+sc.feedback")
    w.redis("ACL", "SETUSER", "reader", "on", ">read", "~*", "+@read")
    w.redis("ACL", "SETUSER", "elsewhere", "on", ">else", "~other", "+@all")

    def delete(headers, port=g.port):
        return ask(port, path, method="DELETE", headers=headers)

    for headers, status, sentence in (
            (basic("keeper", "wrong"), 401, "does not take user 'keeper'"), (basic("nobody", "x"), 401, "user 'nobody'"),
            (basic("reader", "read"), 403, "no permissions to run the 'sc.del' command"),
            (basic("elsewhere", "else"), 403, "No permissions to access a key"),
            (basic("default", "anything"), 401, "needs no password"), (basic("default", ""), 401, "needs no password"),
            ({"Authorization": "Basic !!!"}, 403, "a user of the server who may"),
            ({"Authorization": "Bearer read"}, 403, "a user of the server who may"), ({}, 403, "a user of the server who may")):
        answer = delete(headers)
        expect(answer.status == status and sentence in answer.json()["error"]["message"], "%s: %d %s" % (
            headers, answer.status, answer.body))
    equal(ask(g.port, "/quire/invalidate", everything, headers=basic("reader", "read")).status, 403)
    equal(ask(g.port, "/quire/feedback", {"id": id, "good": True}, headers=basic("reader", "read")).status, 403)
    equal(chat(g.port, "who may remove this").cache, "exact")
    equal(ask(g.port, "/quire/feedback", {"id": id, "good": True}, headers=basic("keeper", "k:eep")).status, 200)
    equal(ask(g.port, "/quire/invalidate", {"all": True}, headers=basic("keeper", "k:eep")).json(),
          {"entries": 2, "dry_run": True})
    equal(delete({"Authorization": "Bearer keeper:k:eep"}).json()["removed"], 1)
    equal(chat(g.port, "who may remove this").cache, "miss")
    equal([delete(basic("user%d" % i, "x")).status for i in range(40)], [401] * 40)
    equal(ask(g.port, "/quire/invalidate", everything, headers=basic("keeper", "k:eep")).status, 200)
    w.redis("ACL", "SETUSER", "keeper", "-sc.del")
    equal(delete(basic("keeper", "k:eep")).status, 403)
    w.redis("ACL", "DELUSER", "keeper")
    expect(until(lambda: delete(basic("keeper", "k:eep")).status == 401), "a user who was removed")

    keys = w.folder / "acl-keys.json"
    keys.write_text(json.dumps({"keys": [{"sha256": hashlib.sha256(b"key:with colon").hexdigest(), "tenant": "acme"}]}))
    g = w.gateway(cache="acl", keys=str(keys))
    equal(delete({"Authorization": "Bearer key:with colon"}, g.port).status, 403)
    equal(delete(basic("nobody", "x"), g.port).status, 401)
    equal(delete(basic("elsewhere", "else"), g.port).status, 403)
    equal(ask(g.port, "/v1/chat/completions", {"model": "m", "messages": []}, headers=basic("elsewhere", "else")).status, 401)
    for user in ("reader", "elsewhere"):
        w.redis("ACL", "DELUSER", user)


# ---- controls --------------------------------------------------------------------------------------------------------

@check
def controls_of_a_request(w):
    g = w.gateway()
    accepted(g)

    def say(text="controls", **headers):
        return chat(g.port, text, headers={name.replace("_", "-"): value for name, value in headers.items()})
    equal([say().cache, say().cache], ["miss", "exact"])
    a = say(Cache_Control="no-cache")
    equal((a.cache, "no-cache" in a.reason), ("miss", True))
    expect("answer 2" in a.text())
    expect(until(lambda: "answer 2" in say().text()))
    equal(say(Cache_Control="no-store").cache, "bypass")
    a = say(Cache_Control="max-age=0")  # as browsers send it when a page is loaded again
    equal((a.cache, "max-age=0" in a.reason), ("miss", True))
    expect("answer 4" in a.text(), a.text())
    expect(until(lambda: "answer 4" in say().text()), "not kept")
    equal(say(Cache_Control="max-age=0, only-if-cached").status, 504)
    time.sleep(1.1)  # it is older than that now, however long this takes
    equal(say(Cache_Control="max-age=1").cache, "miss")
    a = say("never asked", Cache_Control="only-if-cached")
    equal((a.status, a.json()["error"]["code"]), (504, "not_cached"))
    equal(say(X_Quire_Control="of").status, 400)
    a = say(X_Quire_Category="nix")
    equal((a.status, "exact" in a.json()["error"]["message"]), (400, True))
    equal([say("one", X_Quire_Key="k").cache, say("two", X_Quire_Key="k").cache], ["miss", "exact"])
    equal(say("short", X_Quire_Control="ttl=1").cache, "miss")
    time.sleep(1.2)  # its time is over, however long this takes
    equal(say("short").cache, "miss")


@check
def litellms_object_is_read_and_taken_out(w):
    g = w.gateway()
    accepted(g)
    equal([chat(g.port, "the object", cache={"namespace": "x"}).cache for _ in range(2)], ["miss", "exact"])
    equal(chat(g.port, "the object", cache={"no-store": True}).cache, "bypass")
    sent = [json.loads(base64.b64decode(r["body"])) for r in w.model.get("/requests") if r.get("body")]
    expect(sent and not any("cache" in body for body in sent), "cache went upstream")
    for seconds in (0, 0.0001):
        equal(chat(g.port, "the object", cache={"namespace": "x", "s-maxage": seconds}).cache, "miss")
        for _ in range(2):
            equal(chat(g.port, "not kept %s" % seconds, cache={"ttl": seconds}).cache, "miss")
    a = chat(g.port, "the object", cache={"namespace": "x\0y"})  # which is not "x"
    equal((a.status, a.json()["error"]["code"]), (400, "bad_control"))


@check
def words_that_the_settings_do_not_allow_do_nothing(w):
    g = w.gateway(controls=["exact"])
    accepted(g)
    keep_it = chat(g.port, "as often as you like")
    equal(keep_it.cache, "miss")
    expect(until(lambda: chat(g.port, "as often as you like").cache == "exact"))
    for words in ("no-cache", "no-store", "max-age=0", "only-if-cached"):
        equal((words, chat(g.port, "as often as you like", headers={"Cache-Control": words}).cache), (words, "exact"))
    equal(chat(g.port, "never asked", headers={"Cache-Control": "only-if-cached"}).status, 200)
    for cache in ({"no-cache": True}, {"no-store": True}, {"ttl": 5}, {"s-maxage": 5}):
        a = chat(g.port, "as often as you like", cache=cache)
        equal((a.status, "controls" in a.json()["error"]["message"]), (400, True))
    equal(chat(g.port, "as often as you like", cache={"no-cache": False, "namespace": "n"}).status, 200)
    equal(chat(g.port, "as often as you like", headers={"X-Quire-Control": "off"}).status, 400)


# ---- together --------------------------------------------------------------------------------------------------------

def at_once(n, work):
    with concurrent.futures.ThreadPoolExecutor(n) as pool:
        return [future.result() for future in [pool.submit(work, i) for i in range(n)]]


@check
def a_thousand_equal_requests_are_one_call(w):
    g = w.gateway()
    accepted(g)
    for stream in (False, True):
        w.model.reset()
        text = "slowly all at once %s" % stream
        answers = at_once(int(os.environ.get("EQUAL", "1000")), lambda _: chat(g.port, text, stream=stream, timeout=60))
        equal(w.model.get("/calls").get(text), 1)
        equal(len({without_ids(a) for a in answers}), 1)
        expect(all(a.status == 200 and not a.broken for a in answers))
        expect(all(a.cache in ("miss", "exact") for a in answers), str({a.cache for a in answers}))


def read_stream(port, text, model, leave_after=None, key="sk-one", until_seen=None, then=None):
    """The events of a stream; leaves after some of them, or calls then(text) once until_seen has come. None: an error before
    the head."""
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    c.request("POST", "/v1/chat/completions", json.dumps({"model": model, "stream": True, "messages": [
        {"role": "user", "content": text}]}), {"Content-Type": "application/json", "Authorization": "Bearer " + key})
    if leave_after == 0:
        c.close()
        return None
    reply = c.getresponse()
    data = b""
    while leave_after is None or data.count(b"\n\n") < leave_after:
        try:
            part = reply.read1(65536)
        except (http.client.HTTPException, ConnectionError):
            break
        if not part:
            break
        data += part
        if until_seen and until_seen in data:
            then(text)
            until_seen = None
    if leave_after is not None:
        c.sock.shutdown(socket.SHUT_RDWR)
    c.close()
    return data


@check
def who_joins_reads_the_stream_while_it_runs(w):
    g = w.gateway()
    accepted(g)
    model, text = "stand-in:gate", "a slow story"
    first = threading.Thread(target=read_stream, args=(g.port, text, model))
    first.start()
    until(lambda: w.model.asked(text))
    c = http.client.HTTPConnection("127.0.0.1", g.port, timeout=60)
    c.request("POST", "/v1/chat/completions", json.dumps({"model": model, "stream": True, "messages": [
        {"role": "user", "content": text}]}), {"Content-Type": "application/json", "Authorization": "Bearer sk-one"})
    begin = time.monotonic()
    reply = c.getresponse()
    part = reply.read1(65536)
    expect(part and time.monotonic() - begin < 25, "nothing came while the model waits at its gate (30 s)")
    w.model.open(text)
    rest = reply.read()
    first.join()
    expect((part + rest).rstrip().endswith(b"[DONE]"))
    equal(w.model.asked(text), 1)
    metrics = ask(g.port, "/metrics", method="GET").body.decode()
    expect("\nquire_gateway_joined_total 1\n" in metrics and "quire_gateway_cache_seconds_count{" in metrics, metrics)


def second_reads_on(w, one, two, key, text, headers=()):
    """Two ask the same in streams, `one` by sk-one, `two` by `key`: the head and what the second gets while the model waits
    at its gate; None where nothing comes for a second. Both have ended then."""
    model, seen = "stand-in:gate", []
    first = threading.Thread(target=lambda: seen.append(chat(one.port, text, model=model, stream=True, headers=headers)))
    first.start()
    expect(until(lambda: w.model.asked(text)), "the first has not come to the model")
    c = http.client.HTTPConnection("127.0.0.1", two.port, timeout=60)
    c.request("POST", "/v1/chat/completions", json.dumps({"model": model, "stream": True, "messages": [
        {"role": "user", "content": text}]}), {**dict(headers), "Content-Type": "application/json", "Authorization": "Bearer " + key})
    c.sock.settimeout(1)
    try:
        reply = c.getresponse()
        part = reply.read1(65536)
    except TimeoutError:
        reply, part = None, b""
    calls = w.model.asked(text)
    w.model.open(text)
    first.join()
    expect(seen[0].body.rstrip().endswith(b"[DONE]"), seen[0].body[-200:])
    if reply:
        c.sock.settimeout(60)
        expect((part + reply.read()).rstrip().endswith(b"[DONE]"), "the second has no end")
    c.close()
    return reply.headers if reply and part else None, calls, seen[0]


@check
def keys_that_share_join_each_others_answers(w):
    g = w.gateway(share="all")
    for key in ("sk-one", "sk-two"):
        accepted(g, key)
    fields, calls, first = second_reads_on(w, g, g, "sk-two", "a story for both")
    expect(fields and calls == 1 and "joined" in fields["X-Quire-Reason"], (str(fields), calls))
    expect(fields["X-Request-Id"] != first.header("X-Request-Id"), "it got the other's fields: %s" % fields)
    # by the rule of a hit: the upstream has not accepted this one yet
    fields, calls, _ = second_reads_on(w, g, g, "sk-three", "a story for two")
    expect(calls == 2 and "joined" not in fields["X-Quire-Reason"], (str(fields), calls))
    apart = w.gateway()
    for key in ("sk-one", "sk-two"):
        accepted(apart, key)
    equal(second_reads_on(w, apart, apart, "sk-two", "a story of my own")[1], 2)


@check
def who_joined_another_key_is_not_given_its_failure(w):
    g = w.gateway(share="all")
    for key in ("sk-one", "sk-two", "sk-three"):
        accepted(g, key)
    for words, status in (("gate,drop,fails=1", 502), ("late=3000,status=500,fails=1", 500)):
        text, model, answers = "not your failure: %s" % words, "stand-in:" + words, {}

        def say(key):
            answers[key] = chat(g.port, text, model=model, key=key)
        threads = [threading.Thread(target=say, args=(key,)) for key in ("sk-one", "sk-two", "sk-three")]
        threads[0].start()
        expect(until(lambda: running(g) == 1), "the first is not there")
        for thread in threads[1:]:
            thread.start()
        expect(until(lambda: running(g) == 3), "they are not all there")
        w.model.open(text)
        for thread in threads:
            thread.join()
        equal((words, [answers[key].status for key in ("sk-one", "sk-two", "sk-three")], w.model.asked(text)),
              (words, [status, 200, 200], 2))


@check
def equal_controls_join(w):
    g = w.gateway(wait_near="50ms")
    accepted(g)
    for headers in ({"Cache-Control": "max-age=3600"}, {"X-Quire-Control": "sim=0.95"}, {"X-Quire-Explain": "yes"}):
        fields, calls, _ = second_reads_on(w, g, g, "sk-one", "asked with %s" % headers, headers)
        expect(fields and calls == 1 and "joined" in fields["X-Quire-Reason"], "%s: %s, %d" % (headers, fields, calls))


@check
def a_stream_waits_for_the_same_question_of_another_gateway(w):
    one, two = (w.gateway(cache="waits", secret_file=str(secret(w)), wait_near="50ms") for _ in range(2))
    for g in (one, two):
        accepted(g)
    fields, calls, _ = second_reads_on(w, one, two, "sk-one", "a story of two houses")
    equal((fields, calls), (None, 1))


def slow_reader(g, text, model, buffer=4096):
    """A socket with a small buffer that has asked for a stream."""
    body = json.dumps({"model": model, "stream": True, "messages": [{"role": "user", "content": text}]}).encode()
    slow = socket.socket()
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    slow.connect(("127.0.0.1", g.port))
    slow.settimeout(60)
    slow.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nAuthorization: Bearer sk-one"
                 b"\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    return slow


@check
def a_slow_reader_alone_gets_everything(w):
    g = w.gateway()
    accepted(g)
    slow, data = slow_reader(g, "a long story", "stand-in:events=800,big=10000,pace=0", 32768), bytearray()
    while not data.endswith(b"\r\n0\r\n\r\n"):
        part = slow.recv(50000)
        expect(part, "it ends after %d bytes: %r" % (len(data), bytes(data[-200:])))
        data += part
        time.sleep(0.01)
    expect(len(data) > 8000000 and b"[DONE]" in data[-100:], "%d bytes" % len(data))
    slow.close()


@check
def a_slow_reader_does_not_hold_up_the_others(w):
    g = w.gateway()
    accepted(g)
    model, text = "stand-in:gate,events=300,big=100000,pace=0", "a very long story"
    slow = slow_reader(g, text, model)
    expect(until(lambda: w.model.asked(text)), "it has not come to the model")
    answers, begin = [], time.monotonic()
    reader = threading.Thread(target=lambda: answers.append(chat(g.port, text, model=model, stream=True)))
    reader.start()
    expect(until(lambda: running(g) == 2), "the second is not there")
    w.model.open(text)
    reader.join()
    expect(len(answers[0].body) > 20 << 20 and answers[0].body.rstrip().endswith(b"[DONE]"), "%d bytes" % len(answers[0].body))
    expect(time.monotonic() - begin < 40, "who reads waited for who does not")  # write-timeout is a minute
    data = b""
    while part := slow.recv(1 << 20):
        data += part
    expect(b'"error"' in data[-1000:] and b"[DONE]" not in data, data[-300:])
    equal(w.model.asked(text), 1)
    expect(any("more slowly" in line.get("reason", "") for line in lines_of(g, 3)), "nothing in the access log")


@check
def a_silent_model_and_one_that_does_not_count(w):
    g = w.gateway(keep_alive="1s")
    accepted(g)
    silent = chat(g.port, "be silent for a while", model="stand-in:silence=2500", stream=True)
    wait_kept(g, "be silent for a while", model="stand-in:silence=2500", stream=True)
    again = chat(g.port, "be silent for a while", model="stand-in:silence=2500", stream=True)
    expect(b": quire" in silent.body and b": quire" not in again.body, silent.body)
    equal((again.cache, again.text()), ("exact", silent.text()))
    hasty = w.gateway(silence_timeout="1s")
    accepted(hasty)
    for _ in range(2):
        a = chat(hasty.port, "be silent for too long", model="stand-in:silence=20000", stream=True)
        expect(a.cache == "miss" and b'"error"' in a.body and b"[DONE]" not in a.body, a.body)
    for more in ({}, {"stream_options": {"include_usage": True}}):
        first = keep(g, "uncounted %s" % more, model="stand-in:usage=never", stream=True, **more)
        second = chat(g.port, "uncounted %s" % more, model="stand-in:usage=never", stream=True, **more)
        equal((second.cache, second.text(), second.header("X-Quire-Tokens-Saved")), ("exact", first.text(), None))
        expect(not any("usage" in e for e in first.events() + second.events() if e != "[DONE]"), second.body)


@check
def keys_that_never_repeat_are_told_in_health(w):
    g = w.gateway()
    accepted(g)
    connection = http.client.HTTPConnection("127.0.0.1", g.port, timeout=60)
    for i in range(100):
        system = {"role": "system", "content": "You are kind. It is 10:%02d:%02d." % (i // 60, i % 60)}
        equal(chat(g.port, [system, {"role": "user", "content": "hello"}], connection=connection).cache, "miss")
    told = g.health()["cache"]["diagnoses"]
    equal([d["about"] for d in told], ["contexts"])
    expect("byte 27" in told[0]["sentence"], told)


@check
def bodies_of_requests_that_wait_are_bounded(w):
    g = w.gateway(body_max="1mb", bodies_max="1mb", key_body_max="1mb")
    accepted(g)
    texts, answers = ["%d %s" % (i, "x" * 400000) for i in range(3)], []
    waiting = [threading.Thread(target=lambda text=text: answers.append(chat(g.port, text, model="stand-in:gate")))
               for text in texts[:2]]
    for thread in waiting:
        thread.start()
    expect(until(lambda: all(w.model.asked(text) for text in texts[:2])), "two bodies are at the model")
    crowded = chat(g.port, texts[2])
    equal(crowded.status, 503)
    expect(b"bodies-max" in crowded.body, crowded.body)
    for text in texts[:2]:
        w.model.open(text)
    for thread in waiting:
        thread.join()
    equal([a.status for a in answers], [200, 200])
    equal(chat(g.port, texts[2]).status, 200)


@check
def the_leader_leaves_at_each_event(w):
    g = w.gateway()
    accepted(g)
    model = "stand-in:events=8,pace=12"
    for turn, after in enumerate((0, 0, 0, 0, 0, *range(10))):  # 0: while the cache is asked, whose lease comes too late
        text, began = "the leader leaves after %d, turn %d" % (after, turn), time.monotonic()
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(read_stream(g.port, text, model))) for _ in range(3)]
        leader = threading.Thread(target=read_stream, args=(g.port, text, model, after))
        leader.start()
        until(lambda: w.model.asked(text) or not leader.is_alive())
        for thread in threads:
            thread.start()
        for thread in [leader, *threads]:
            thread.join()
        expect(all(a and a.rstrip().endswith(b"[DONE]") for a in answers), "after %d: %s" % (after, answers))
        a = chat(g.port, text, model=model, stream=True)
        equal(a.body.rstrip()[-6:], b"[DONE]")
        expect(time.monotonic() - began < 15, "a lease that nobody has was waited for (turn %d)" % turn)


@check
def a_leader_that_fails_before_a_byte_is_followed_by_another(w):
    g = w.gateway()
    accepted(g)
    for stream in (False, True):
        for fails, calls, whole in ((1, 2, 4), (2, 3, 3), (9, 3, 0)):
            text, model = "led by %d, %s" % (fails + 1, stream), "stand-in:gate,drop,fails=%d" % fails
            answers = []
            threads = [threading.Thread(target=lambda: answers.append(chat(g.port, text, model=model, stream=stream)))
                       for _ in range(5)]
            for thread in threads:
                thread.start()
            expect(until(lambda: running(g) == 5), "they are not all there")
            w.model.open(text)
            for thread in threads:
                thread.join()
            equal((fails, w.model.asked(text)), (fails, calls))
            equal((fails, sorted(a.status for a in answers)), (fails, [200] * whole + [502] * (5 - whole)))
            expect(all(text in a.text() for a in answers if a.status == 200))
            if whole:
                wait_kept(g, text, model=model, stream=stream)
            else:
                equal(chat(g.port, text, model="stand-in", stream=stream).cache, "miss")


@check
def a_client_that_leaves_alone_ends_the_upstreams_work(w):
    g = w.gateway()
    accepted(g)
    model, before = "stand-in:gate", w.model.get("/state")["gone"]
    read_stream(g.port, "nobody is left", model, 3)
    expect(until(lambda: w.model.get("/state")["gone"] > before), "still running: %s" % w.model.get("/state"))
    w.model.open("nobody is left")
    equal(chat(g.port, "nobody is left", model=model, stream=True).cache, "miss")


@check
def with_finish_an_answer_is_kept_that_nobody_waits_for(w):
    g = w.gateway(finish=True)
    accepted(g)
    read_stream(g.port, "finish this", "stand-in:gate", 3)
    expect(until(lambda: running(g) == 0), "the client has left, and its request is still there")
    w.model.open("finish this")
    wait_kept(g, "finish this", model="stand-in:gate", stream=True)
    equal(w.model.asked("finish this"), 1)


@check
def a_silent_stream_is_kept_alive_by_comments_that_are_not_kept(w):
    g = w.gateway(keep_alive="1s")
    accepted(g)
    answers = []
    reader = threading.Thread(target=lambda: answers.append(read_stream(g.port, "be silent", "stand-in:gate",
                                                                        until_seen=b": quire", then=w.model.open)))
    reader.start()
    reader.join()
    first, second = answers[0], chat(g.port, "be silent", model="stand-in:gate", stream=True)
    equal(second.cache, "exact")
    expect(b": quire" in first and first.rstrip().endswith(b"[DONE]") and b": quire" not in second.body, repr(first))
    expect("to: be silent" in second.text())


@check
def who_comes_after_the_join_buffer_goes_alone(w):
    g = w.gateway(join_buffer="4kb", wait_near="50ms", exact_settings="LEASE 1000")  # for so long it waits for the first
    accepted(g)
    model, text, answers = "stand-in:events=60,gate=50", "a long story", []

    def read(**more):
        thread = threading.Thread(target=lambda: answers.append(read_stream(g.port, text, model, **more)))
        thread.start()
        return thread
    seen = threading.Event()
    first = read(until_seen=b"45 ", then=lambda _: seen.set())
    expect(seen.wait(60), "its events have not come")
    second = read()
    expect(until(lambda: w.model.asked(text) == 2), "the second has joined what is no longer there")
    w.model.open(text)
    first.join()
    second.join()
    equal([a.rstrip()[-6:] for a in answers], [b"[DONE]"] * 2)


@check
def the_model_is_killed_in_the_middle(w):
    model = StandIn()
    g = w.gateway(upstream=model.url)
    accepted(g)
    answers = []
    text, name = "killed in the middle", "stand-in:gate"
    threads = [threading.Thread(target=lambda: answers.append(read_stream(g.port, text, name))) for _ in range(5)]
    for thread in threads:
        thread.start()
    until(lambda: model.get("/state")["streams"] == 1 and running(g) == 5)
    model.kill()
    for thread in threads:
        thread.join()
    expect(all(a and b'"error"' in a and b"[DONE]" not in a for a in answers), str(answers)[-300:])
    a = chat(g.port, text, model=name, stream=True)
    equal(a.status, 502)
    model.start(model.port)
    model.open(text)
    equal(chat(g.port, text, model=name, stream=True).cache, "miss")  # nothing partial was kept
    model.kill()


@check
def leases_are_renewed_while_the_model_answers(w):
    g = w.gateway(exact_settings="LEASE 3000")
    accepted(g)
    leader = threading.Thread(target=read_stream, args=(g.port, "longer than a lease", "stand-in:gate"))
    leader.start()
    until(lambda: w.model.asked("longer than a lease"))
    time.sleep(4)  # longer than the lease, however long this takes
    w.model.open("longer than a lease")
    leader.join()
    equal(chat(g.port, "longer than a lease", model="stand-in:gate", stream=True).cache, "exact")


@check
def two_gateways_share_one_answer(w):
    one, two = (w.gateway(cache="shared", secret_file=str(secret(w))) for _ in range(2))
    for g in (one, two):
        accepted(g)
    w.model.reset()
    text = "slowly asked of two"
    answers = at_once(20, lambda i: chat((one, two)[i % 2].port, text))
    equal(w.model.get("/calls").get(text), 1)
    equal(len({a.text() for a in answers}), 1)


def secret(w):
    path = w.folder / "secret"
    path.write_text("0123456789abcdef0123456789abcdef")
    return path


# ---- parts that fail -------------------------------------------------------------------------------------------------

@check
def a_cache_that_is_gone_fails_nothing(w):
    folder = w.folder / "other-server"
    folder.mkdir()
    server = Server(w.build, folder)
    g = w.gateway(quire="127.0.0.1:%d" % server.port)
    accepted(g)
    equal([chat(g.port, "before").cache for _ in range(2)], ["miss", "exact"])
    server.kill()
    for i in range(8):
        begin = time.monotonic()
        a = chat(g.port, "before", stream=i % 2 == 1)
        equal((a.status, a.cache), (200, "down"))
        expect(time.monotonic() - begin < 10 and a.reason, "slow without a cache")
    expect(g.log().count("without the cache") >= 1, g.log())
    g3 = w.gateway(ready=False, exact_settings="NO SUCH")
    until(lambda: "NO" in g3.health()["cache"]["why"])
    equal(chat(g3.port, "settings that are refused").cache, "down")
    expect("without the cache" in g3.log() and "NO" in g3.health()["cache"]["why"], g3.log())
    g2 = w.gateway(ready=False, quire="127.0.0.1:1")
    a = chat(g2.port, "from the start")
    equal((a.status, a.cache), (200, "down"))
    expect(not g2.health()["cache"]["ready"] and g2.health()["cache"]["why"])


@check
def the_server_by_tls_with_a_password_and_by_a_unix_socket(w):
    folder = w.folder / "secure"
    folder.mkdir()
    cert, key, path = folder / "cert.pem", folder / "key.pem", folder / "s"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                    "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", str(key),
                    "-out", str(cert)], check=True, capture_output=True)
    free = socket.create_server(("127.0.0.1", 0))
    port = free.getsockname()[1]
    free.close()
    # Names are looked up on a thread that glibc makes for getaddrinfo_a without pthread_create. The thread sanitizer does not
    # hear of it, and a program of ten lines crashes there as the gateway does; so an address stands for the name.
    host = "127.0.0.1" if "thread" in os.environ.get("QUIRE_SANITIZE_FLAGS", "") else "localhost"
    server = Server(w.build, folder, "--tls-port", str(port), "--tls-cert-file", str(cert), "--tls-key-file", str(key),
                    "--tls-auth-clients", "no", "--requirepass", "very secret", "--unixsocket", str(path))
    try:
        for quire in ("tls://%s:%d" % (host, port), "unix:%s" % path):
            g = w.gateway(quire=quire, server_password="very secret", server_ca_file=str(cert))
            accepted(g)
            equal([chat(g.port, "in secret").cache for _ in range(2)], ["miss", "exact"])
        for quire, settings, word in (("tls://%s:%d" % (host, port), {"server_password": "very secret"}, "TLS"),
                                      ("unix:%s" % path, {"server_password": "wrong"}, "refuses")):
            g = w.gateway(ready=False, quire=quire, **settings)
            until(lambda: word in g.health()["server"]["last_failure"])
            equal(chat(g.port, "in secret").cache, "down")
            expect(word in g.health()["server"]["last_failure"], str(g.health()["server"]))
    finally:
        server.stop()


@check
def a_reload_takes_new_keys_and_keeps_the_old_ones_where_it_fails(w):
    def write(*keys):
        path.write_text(json.dumps({"keys": [{"sha256": hashlib.sha256(k.encode()).hexdigest(), "tenant": k} for k in keys]}))
    path = w.folder / "reloaded.json"
    write("sk-one")
    g = w.gateway(keys=str(path))
    equal([chat(g.port, "x", key=key).status for key in ("sk-one", "sk-two")], [200, 401])
    write("sk-two")
    g.process.send_signal(signal.SIGHUP)
    until(lambda: chat(g.port, "x", key="sk-two").status == 200)
    equal([chat(g.port, "x", key=key).status for key in ("sk-one", "sk-two")], [401, 200])
    path.write_text("{")
    g.process.send_signal(signal.SIGHUP)
    expect(until(lambda: "key file" in g.log()), g.log())
    equal([chat(g.port, "x", key=key).status for key in ("sk-one", "sk-two")], [401, 200])


@check
def a_cache_that_hangs_costs_its_deadline_and_no_more(w):
    listener = socket.create_server(("127.0.0.1", 0))
    g = w.gateway(ready=False, quire="127.0.0.1:%d" % listener.getsockname()[1], server_timeout="100ms")
    begin = time.monotonic()
    equal([chat(g.port, "hangs").status for _ in range(10)], [200] * 10)
    expect(time.monotonic() - begin < 20)
    listener.close()


@check
def an_encoder_that_is_slow_gone_or_wrong_fails_nothing(w):
    encoder = StandIn()
    g = w.gateway(embed_url=encoder.url + "/v1", embed_model="e", embed_timeout="200ms", similarity=0.8)
    accepted(g)
    exact = lambda: until(lambda: chat(g.port, "an encoder").cache == "exact")  # noqa: E731
    expect(exact(), "not kept")
    for words in ("late=25000", "dim=7", "status=500", "html"):
        encoder.control(words={"/v1/embeddings": words})
        begin = time.monotonic()
        a = chat(g.port, "a question with %s" % words)
        equal((a.status, a.cache), (200, "miss"))
        expect("vector" in a.reason and time.monotonic() - begin < 20, "%s: %s" % (words, a.reason))
        expect(exact(), "exact answers do not go on")
    encoder.kill()
    for i in range(10):
        equal(chat(g.port, "gone %d" % i).status, 200)
    expect(exact(), "exact answers do not go on")


@check
def an_old_answer_where_the_model_fails_if_the_category_says_so(w):
    model = StandIn()
    g = w.gateway(upstream=model.url, exact_settings="STALEERROR 60000 JITTER 0", ttl="1s")
    accepted(g)
    expect(until(lambda: chat(g.port, "an old answer").cache == "exact"), "not kept")
    time.sleep(1.3)  # it is old now, however long this takes
    model.control(words={"/v1/chat/completions": "status=503"})
    a = chat(g.port, "an old answer")
    equal((a.status, a.cache), (200, "stale"))
    expect("503" in a.reason, a.reason)
    equal(chat(g.port, "no old answer").status, 503)
    model.kill()
    a = chat(g.port, "an old answer")
    equal((a.status, a.cache), (200, "stale"))
    equal(chat(g.port, "no old answer").status, 502)


@check
def stale_answers_are_renewed_behind_the_client(w):
    g = w.gateway(exact_settings="STALE 60000 JITTER 0", ttl="1s")
    accepted(g)
    expect(until(lambda: chat(g.port, "it gets old").cache == "exact"), "not kept")
    time.sleep(1.3)  # it is old now, however long this takes
    old = chat(g.port, "it gets old")
    equal(old.cache, "stale")
    found = []

    def renewed():
        found.append(chat(g.port, "it gets old"))
        return found[-1].cache == "exact"
    expect(until(renewed) and found[-1].text() != old.text(), found[-1].text())


def ask_label(g, seconds):
    """What its judge has said, "" where nothing comes in that time."""
    found = until(lambda: re.findall(rb'quire_gateway_judged_total\{label="(\w+)"\} [1-9]', ask(
        g.port, "/metrics", method="GET").body), seconds)
    return found[0].decode() if found else ""


def audited(w, seconds=20, **settings):
    """The gateway, after one near question whose answer was audited; the audit's label, "" where none comes in that time."""
    g = w.near(category_settings="AUDIT 1", **settings)
    accepted(g)
    keep(g, "what is the capital of chile")
    equal(chat(g.port, "the capital of chile please").cache, "audit")
    return g, ask_label(g, seconds)


@check
def audits_are_labelled_by_equal_words(w):
    equal(audited(w, judge="equal")[1], "bad")  # the stand-in counts its answers
    equal(audited(w, 1, judge="none")[1], "")


@check
def misses_that_are_sampled_are_labelled(w):
    for settings, wanted in (({"judge": "equal"}, "bad"), ({"judge": "vector"}, "good"),
                             ({"judge": "model", "judge_model": "stand-in:say=yes"}, "good")):
        g = w.gateway(embed_url=w.model.url + "/v1", embed_model="encoder", similarity=0.999, category_settings="AUDIT 1",
                      **settings)
        accepted(g)
        keep(g, "what is the capital of peru")
        equal(chat(g.port, "the capital of peru please").cache, "miss")
        label = ask_label(g, 20)
        equal((settings["judge"], label), (settings["judge"], wanted))


@check
def the_judge_is_asked_for_a_share_of_near_look_ups(w):
    for share, least, most in ((1, 120, 130), (0, 90, 101)):
        g = w.gateway(embed_url=w.model.url + "/v1", embed_model="encoder", similarity=0.999, category_settings="AUDIT 1",
                      judge="model", judge_model="stand-in:say=no", judge_rate=1000, judge_share=share)
        accepted(g)
        keep(g, "what is the capital of norway")
        for i in range(130):
            equal(chat(g.port, "the capital of norway please, say it %s times" % ("a" * (i + 1))).cache, "miss")

        def asked():
            return g.health()["judge"]["calls"]
        expect(until(lambda: asked() >= least) and asked() <= most, "share %s: %s questions" % (share, asked()))


@check
def audits_are_labelled_by_vectors(w):
    equal(audited(w, judge="vector")[1], "good")


@check
def audits_are_labelled_by_a_model(w):
    equal(audited(w, judge="model", judge_model="stand-in:say=Yes")[1], "good")
    asked = [r for r in w.model.get("/requests") if b"say=Yes" in base64.b64decode(r["body"])][-1]
    body = json.loads(base64.b64decode(asked["body"]))
    text = body["messages"][0]["content"]
    equal((body["max_tokens"], body["temperature"]), (1, 0))
    for part in ("the capital of chile please", "to: what is the capital of chile", "to: the capital of chile please"):
        expect(part in text, "the judge is not shown %r: %s" % (part, text))
    expect("sk-one" in json.dumps(asked), "the judge is not asked by the client's credential")
    equal(audited(w, judge="model", judge_model="stand-in:say=no")[1], "bad")
    equal(audited(w, 1, judge="model", judge_model="stand-in:say=perhaps")[1], "")
    equal(audited(w, 1, judge="model", judge_model="stand-in:status=500")[1], "")


@check
def what_the_judges_model_takes_is_counted(w):
    def metric(g, name):
        found = re.search(rb"^quire_gateway_judge_%s (\d+)" % re.escape(name).encode(), ask(
            g.port, "/metrics", method="GET").body, re.M)
        return int(found[1]) if found else None

    g, label = audited(w, judge="model", judge_model="stand-in:say=Yes", ui="read")
    equal(label, "good")
    asked = [r for r in w.model.get("/requests") if b"say=Yes" in base64.b64decode(r["body"])][-1]
    usage = ask(int(w.model.url.rsplit(":", 1)[1]), "/v1/chat/completions", base64.b64decode(asked["body"]),
                key="sk-one").json()["usage"]  # the same question has the same count
    spent = usage["prompt_tokens"] + usage["completion_tokens"]
    expect(usage["prompt_tokens"] > 30 and usage["completion_tokens"] >= 1, usage)
    equal(metric(g, 'calls_total{label="good",tokens="known"}'), 1)
    equal(metric(g, 'tokens_total{kind="prompt"}'), usage["prompt_tokens"])
    equal(metric(g, 'tokens_total{kind="completion"}'), usage["completion_tokens"])
    equal(metric(g, "seconds_count"), 1)
    equal(chat(g.port, "what is the capital of chile").cache, "exact")
    health = g.health()
    expect(health["tokens_saved"] > 0 and health["judge"]["ms"] >= 0, health)
    equal({n: health["judge"][n] for n in ("setting", "calls", "uncounted", "prompt_tokens", "completion_tokens")}, {
        "setting": "model", "calls": 1, "uncounted": 0, "prompt_tokens": usage["prompt_tokens"],
        "completion_tokens": usage["completion_tokens"]})
    equal(health["tokens_saved_net"], health["tokens_saved"] - spent)
    lines = [json.loads(line) for line in (g.folder / "access.log").read_text().splitlines()]
    line = [line for line in lines if line.get("route") == "judge"]
    equal([(x["label"], x["status"], x["model"], x["upstream"], x["category"], x["prompt_tokens"], x["completion_tokens"])
           for x in line], [("good", 200, "stand-in:say=Yes", "model", "default", usage["prompt_tokens"],
                             usage["completion_tokens"])])
    expect(line[0]["tenant"] == [x for x in lines if x.get("cache") == "audit"][0]["tenant"] and line[0]["ms"] > 0, line)
    expect("capital" not in json.dumps(line), "a text in the log")
    seen = lambda: ask(g.port, "/ui/api/history", method="GET").json()  # noqa: E731
    sums = lambda: [sum(p[h["fields"].index(n)] for p in h["points"]) for h in [seen()] for n in (  # noqa: E731
        "judge_calls", "judge_tokens")]
    expect(until(lambda: sums() == [1, spent]), "history: %s" % sums())
    equal(ask(g.port, "/ui/api/overview", method="GET").json()["gateway"]["judge"]["prompt_tokens"], usage["prompt_tokens"])
    for words, label in (("status=500", "failed"), ("say=perhaps", "none")):
        g, _ = audited(w, 0, judge="model", judge_model="stand-in:" + words)
        known = "known" if label == "none" else "unknown"
        expect(until(lambda: metric(g, 'calls_total{label="%s",tokens="%s"}' % (label, known)) == 1), words)
        equal(g.health()["judge"]["uncounted"], int(label == "failed"))


@check
def with_a_risk_and_a_judge_near_questions_hit_in_time(w):
    """All that is near is right, by the judge: some labels of misses show it, and near questions hit."""
    g = w.gateway(cache="learns", embed_url=w.model.url + "/v1", embed_model="encoder", risk=0.1, judge="model",
                  judge_rate=1000, judge_share=1, judge_model="stand-in:say=yes")
    accepted(g)
    seen, one = collections.Counter(), http.client.HTTPConnection("127.0.0.1", g.port, timeout=60)

    def stats():
        return dict(zip(*[iter(w.redis("SC.STATS", "learns", "CAT", "default"))] * 2))
    for i in range(300):
        word = "%s%s" % ("abcdefghijklmnopqrst"[i % 20] * 3, "uvwxyz"[i // 20 % 6] * (1 + i // 120))
        for question in ("please tell me what the %s of the %s is called", "tell me what the %s of the %s is called"):
            answer = chat(g.port, question % (word, word), connection=one)
            seen[answer.cache] += 1
            if answer.cache == "hit" and seen["hit"] == 1:
                labels = stats()[b"labels"]
                expect(labels >= 3, "served before there were labels: %s, %s" % (labels, dict(seen)))
        if seen["hit"] >= 5:
            break
    expect(seen["hit"] >= 5, "never served by nearness: %s, %s" % (dict(seen), stats()))


def main():
    build, names = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:]
    w = World(build)
    try:
        for function in CHECKS:
            name = function.__name__.replace("_", " ")
            if names and not any(part in function.__name__ for part in names):
                continue
            w.model.control(words={}, revoked=[])
            try:
                function(w)
                w.end_gateways()
                print("ok - " + name, flush=True)
            except (Exception, SystemExit) as e:  # whatever it was, the others are to run
                failed.append(name)
                place = traceback.extract_tb(e.__traceback__)
                line = next((f for f in reversed(place) if f.filename == __file__ and f.name == function.__name__), place[-1])
                print("FAIL - %s (line %d): %s: %s" % (name, line.lineno, type(e).__name__, e), flush=True)
                try:
                    w.end_gateways()
                except AssertionError as end:
                    print("       %s" % end)
    finally:
        for gateway in w.gateways:
            gateway.process.kill()
        w.end()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
