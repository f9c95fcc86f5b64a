#!/usr/bin/env python3
"""complaints.py BUILD_DIR - what users of other gateways with a semantic cache complain of, each by name: it must not happen
here, though answers to other words are served (similarity 0.75) wherever they may be.
"""
import json
import re
import sys
import tempfile
import time

import httpx

from gateway_rig import Rig, check, end, until

ADMIN = "the-admin-key"
Q = "how long does a parcel travel from the harbour to the mountain village"
NEAR = "please tell me how long a parcel travels from the harbour to the mountain village"
USER = {"role": "user", "content": Q}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
client = httpx.Client(timeout=60)
rig = None


def post(body, key="key-of-anna", path="/v1/chat/completions", port=None, **headers):
    fields = {**({"Authorization": "Bearer " + key} if key else {}), **{name.replace("_", "-"): value for name, value in headers.items()}}
    return client.post("http://127.0.0.1:%d%s" % (port or rig.port, path), json=body, headers=fields)


def ask(text=Q, model="stand-in", before=(), **more):
    return {"model": model, "messages": [*before, {"role": "user", "content": text}], **more}


def cache(reply):
    return reply.headers.get("x-quire-cache")


def is_kept(body, **how):
    """Waits until the answer can be had from the cache: it is put after it was given. Asking so never asks the model."""
    return until(lambda: cache(post(body, **{**how, "Cache_Control": "only-if-cached"})) == "exact")


def twice(body, kept=True, **how):
    """The second after the first is kept; or at once, where it is not to be kept."""
    first = post(body, **how)
    if kept:
        is_kept(body, **how)
    return first, post(body, **how)


def different_questions_get_one_answer():
    post(ask())
    check("an answer is kept", is_kept(ask()))
    check("the same question in other words is served", cache(post(ask(NEAR))) == "hit", post(ask(NEAR)).headers)
    for name, body in (
            ("another system prompt", ask(NEAR, before=[{"role": "system", "content": "answer in french"}])),
            ("another history", ask(NEAR, before=[{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}])),
            ("tools", ask(NEAR, tools=[TOOL])), ("a tool_choice", ask(NEAR, tools=[TOOL], tool_choice="none")),
            ("a response_format", ask(NEAR, response_format={"type": "json_object"})),
            ("another model", ask(NEAR, model="stand-in-2")), ("a picture", {**ask(), "messages": [{"role": "user", "content": [
                {"type": "text", "text": NEAR}, {"type": "image_url", "image_url": {"url": "http://x/y.png"}}]}]}),
            ("a negation", ask(NEAR.replace("travels", "does not travel"))),
            ("a number", ask(NEAR.replace("a parcel", "7 parcels")))):
        reply = post(body)
        check("  not with %s" % name, cache(reply) in ("miss", "bypass"), reply.headers)


def parameters_are_missing_in_the_key():
    for name, value in (("reasoning_effort", "high"), ("max_tokens", 5), ("seed", 3), ("top_k", 2), ("stop", ["x"]),
                        ("chat_template_kwargs", {"enable_thinking": False}), ("logit_bias", {"1": 2}), ("temperature", 0.3),
                        ("grammar", "root ::= x"), ("x_nobody_knows", 1), ("cache_salt", "s")):
        reply = post(ask(**{name: value}))
        check("  %s" % name, cache(reply) in ("miss", "bypass"), reply.headers)


def the_key_is_not_stable():
    body = ask("is the order of names of any importance", temperature=0.5)
    post(body)
    is_kept(body)
    url = "http://127.0.0.1:%d/v1/chat/completions" % rig.port
    for name, text in (("order and white space", json.dumps(dict(reversed(body.items())), indent=4)),
                       ("escapes", json.dumps(body).replace('"model"', '"\\u006dodel"')),
                       ("spelling of numbers", json.dumps(body).replace("0.5", "5e-1")),
                       ("null and defaults", json.dumps({**body, "n": 1, "stream": False, "seed": None, "user": "u"}))):
        reply = client.post(url, content=text.encode(), headers={"Authorization": "Bearer key-of-anna"})
        check("  %s" % name, cache(reply) == "exact", reply.headers)
    text = json.dumps(body)[:-1] + ', "temperature": 0.5}'
    reply = client.post(url, content=text.encode(), headers={"Authorization": "Bearer key-of-anna"})
    check("  a name given twice has no key", cache(reply) == "bypass", reply.headers)


def another_tenants_answer():
    for name, how in (("another key", {"key": "key-of-bert"}), ("another organisation", {"OpenAI_Organization": "org-2"}),
                      ("another project", {"OpenAI_Project": "p-2"}), ("no key", {"key": ""}),
                      ("a namespace", {"X_Quire_Namespace": "v2"})):
        reply = post(ask(), **how)
        check("  %s" % name, cache(reply) not in ("exact", "hit", "stale"), reply.headers)
    post(ask(), key="key-to-go")
    is_kept(ask(), key="key-to-go")
    check("  a key that was revoked reads on until the upstream has said so", cache(post(ask(), key="key-to-go")) == "exact")
    rig.post("/control", {"revoked": ["key-to-go"]})
    seen = post(ask("something new"), key="key-to-go").status_code
    after = post(ask(), key="key-to-go")
    check("  and not afterwards", seen == 401 and after.status_code == 401, (seen, after.status_code, after.text))
    rig.post("/control", {"revoked": []})


def streams_are_not_kept_or_break_on_a_hit():
    for odd in ("", "crlf", "comments", "reasoning", "split"):
        body = ask("a stream with %s to be kept" % (odd or "nothing odd"), model="stand-in:" + odd, stream=True)
        first, second = twice(body)
        data = [[line for line in reply.text.replace("\r\n", "\n").split("\n") if line.startswith("data:")]
                for reply in (first, second)]
        alike = len(data[0]) == len(data[1]) and all(a.split('"choices"')[-1] == b.split('"choices"')[-1]
                                                     for a, b in zip(*data))
        check("  %s" % (odd or "plain"), cache(second) == "exact" and alike and data[1][-1] == "data: [DONE]" and
              second.headers["content-type"].startswith("text/event-stream"), (second.headers, second.text[-300:]))
    plain, counted = twice(ask("a stream without tokens", stream=True)), ask("a stream without tokens", stream=True)
    counted["stream_options"] = {"include_usage": True}
    check("  the chunk of usage is for who asked", '"choices": []' not in plain[1].text and
          '"usage"' in post(counted).text.split("data: ")[-2])


def half_failed_or_cut_answers_are_kept():
    for odd in ("length", "no-finish", "no-done", "empty", "error-first", "error-in-stream", "error-in-stream=done", "close=4",
                "choices=2,length", "tool_calls"):
        body = ask("a stream that ends by %s" % odd, model="stand-in:" + odd, stream=True)
        seen = []
        for _ in "12":
            try:
                seen.append(cache(post(body)))
            except httpx.HTTPError as e:
                seen.append(type(e).__name__)
        check("  a stream: %s" % odd, "exact" not in seen and "hit" not in seen, seen)
    for odd in ("length", "no-finish", "empty", "html", "broken-json", "refusal", "status=500", "status=429", "choices=2"):
        seen = [cache(reply) for reply in twice(ask("an answer that ends by %s" % odd, model="stand-in:" + odd), False)]
        check("  whole: %s" % odd, "exact" not in seen, seen)
    refused = ask("refuse this, and this", model="stand-in")
    post(refused)
    check("  a refusal is remembered as one, without its text", until(lambda: cache(post(refused)) == "negative"))


def errors_come_in_streams_of_status_200():
    reply = post(ask("the first event is an error", model="stand-in:error-first", stream=True))
    check("  the user sees the error", "asked to fail" in reply.text and "[DONE]" not in reply.text, reply.text)


def tool_results_are_lost_and_calls_replayed():
    first, second = twice(ask("call the tool for the harbour", tools=[TOOL]), False)
    ids = [r.json()["choices"][0]["message"]["tool_calls"][0]["id"] for r in (first, second)]
    check("  a call is made each time", cache(second) == "miss" and ids[0] != ids[1], second.headers)
    call = first.json()["choices"][0]["message"]

    def turn(id, result):
        calls = [{**call["tool_calls"][0], "id": id}]
        return {"model": "stand-in", "tools": [TOOL], "messages": [
            {"role": "user", "content": "the weather?"}, {**call, "tool_calls": calls},
            {"role": "tool", "tool_call_id": id, "content": result}]}
    twice(turn("call_1", "it rains in the harbour"))
    check("  the same result under another id is the same", cache(post(turn("call_2", "it rains in the harbour"))) == "exact")
    check("  another result is not", cache(post(turn("call_1", "it is dry in the harbour"))) == "miss")


def nobody_can_say_why():
    for name, body, how, word in (
            ("a temperature", ask(temperature=1.9), {}, "temperature"), ("a long talk", ask(before=[USER] * 9), {}, "turns|messages"),
            ("a control", ask(), {"X_Quire_Control": "off"}, "off|asked"), ("tools", ask(tools=[TOOL]), {}, "tools")):
        reply = post(body, **how)
        reason = reply.headers.get("x-quire-reason", "")
        check("  %s: %s" % (name, reason), re.search(word, reason), reply.headers)
    check("  it can be switched off", cache(post(ask(), X_Quire_Control="off")) == "bypass")
    check("  a unit is not guessed: max-age is in seconds", cache(post(ask(), Cache_Control="max-age=3600")) == "exact")
    time.sleep(1.1)  # the answer is older than that now, however long this takes
    check("  and counts", cache(post(ask(), Cache_Control="max-age=1")) == "miss")
    wrong = post(ask(), X_Quire_Category="no-such-thing")
    check("  an unknown category is an error with the list", wrong.status_code == 400 and "exact" in wrong.text, wrong.text)


def one_wrong_answer_cannot_be_cleared():
    text = "what is the name of the lighthouse keeper"
    twice(ask(text))
    found = post(ask(text))
    id = found.headers["x-quire-id"]
    told = post({"id": id, "good": False}, path="/quire/feedback")
    check("  a user's word", told.status_code == 200 and cache(post(ask(text))) == "miss", told.text)
    twice(ask(text + "s dog"))
    id = post(ask(text + "s dog")).headers["x-quire-id"]
    url = "http://127.0.0.1:%d/quire/entries/%s" % (rig.port, id)
    check("  a stranger may not", client.delete(url, headers={"Authorization": "Bearer key-of-anna"}).status_code == 403)
    gone = client.delete(url, headers={"Authorization": "Bearer " + ADMIN})
    check("  an operator may", gone.status_code == 200 and cache(post(ask(text + "s dog"))) == "miss", gone.text)
    tagged = ask("what does the timetable say today")
    twice(tagged, X_Quire_Tags="doc:17, doc:18")
    dry = post({"tags": ["doc:17"]}, key=ADMIN, path="/quire/invalidate")
    check("  a tag, counted first", dry.json() == {"entries": 1, "dry_run": True} and cache(post(tagged)) == "exact", dry.text)
    done = post({"tags": ["doc:17"], "dry_run": False}, key=ADMIN, path="/quire/invalidate")
    check("  and then removed", done.json()["entries"] == 1 and cache(post(tagged)) == "miss", done.text)
    check("  nothing is no selector", post({}, key=ADMIN, path="/quire/invalidate").status_code == 400)


def texts_longer_than_the_encoder_fail_silently():
    long = "the parcel travels " * 700
    first, second = twice(ask(long))
    check("  exact only, and the reason says so", cache(second) == "exact" and cache(first) == "miss" and
          "embed-text-max" in first.headers["x-quire-reason"], (first.headers, second.headers))
    other = post(ask(long + "on"))
    check("  nothing is cut to fit", cache(other) == "miss" and not rig.calls("embed: " + long + "on"), other.headers)


def long_conversations_hit_by_accident():
    talk = [{"role": role, "content": "turn %d of a long talk" % i} for i in range(6) for role in ("user", "assistant")]
    twice(ask(Q, before=talk))
    check("  other words in the same talk", cache(post(ask(NEAR, before=talk))) == "miss")
    check("  the same request", cache(post(ask(Q, before=talk))) == "exact")


def a_time_in_the_system_prompt_makes_every_request_new():
    port = rig.gateway("masked", "--cache", "masked", "--set", 'mask=["iso-time","date","uuid"]')
    seen = []
    for stamp in ("2026-11-23T10:00:00Z", "2026-11-23T10:00:01Z"):
        system = [{"role": "system", "content": "it is %s; session 0c5b9d7e-6a61-4d43-9a2f-5d2c1b7f3e%02d" % (stamp, len(seen))}]
        seen.append(cache(post(ask(before=system), port=port)))
        is_kept(ask(before=system), port=port)
    check("  masked, it is the same", seen == ["miss", "exact"], seen)
    check("  unmasked, it is another", cache(post(ask(before=[{"role": "system", "content": "it is 10:00"}]))) == "miss")


def main():
    global rig
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory(prefix="quire-complaints.") as folder:
        rig = Rig(sys.argv[1], folder, "--cache", "complaints", "--embed-url", "MODEL/v1", "--embed-model", "encoder",
                  "--similarity", "0.75", "--admin-key", ADMIN)
        try:
            for test in (different_questions_get_one_answer, parameters_are_missing_in_the_key, the_key_is_not_stable,
                         another_tenants_answer, streams_are_not_kept_or_break_on_a_hit, half_failed_or_cut_answers_are_kept,
                         errors_come_in_streams_of_status_200, tool_results_are_lost_and_calls_replayed, nobody_can_say_why,
                         one_wrong_answer_cannot_be_cleared, texts_longer_than_the_encoder_fail_silently,
                         long_conversations_hit_by_accident, a_time_in_the_system_prompt_makes_every_request_new):
                print("# " + test.__name__.replace("_", " "), flush=True)
                test()
            check("the gateway is still the same one", all(p.poll() is None for p in rig.running))
        finally:
            rig.end()
    end()


main()
