#!/usr/bin/env python3
"""crowds.py BUILD_DIR [--requests N] - many clients of one gateway at once, with a real quire-server and the stand-in model.

    equal     1,000 equal requests at once, whole and as streams: one call of the model, all whole
    leader    the model's connection breaks after each event of a stream that others have joined, and the client that began it
              leaves: everybody gets a whole answer or an error, nothing partial is kept
    tenants   N requests (20,000; the full run is 100,000) of two tenants with the same texts: no answer crosses, also not when
              both ask at the same moment

Clients are sockets of this program, so that a thousand of them cost little. One line per check; exit status 0: all right.
"""
import argparse
import asyncio
import json
import random
import tempfile
import time

from gateway_rig import Rig, check, end, until


# ---- clients ----
class Answer:
    """What came: status, fields, body; whole: it ended as HTTP says it must."""

    def __init__(self):
        self.status, self.fields, self.body, self.whole = 0, {}, b"", False

    @property
    def text(self):
        """What the model said, of a whole answer or a stream; None: it is none, or not all of one."""
        try:
            if not self.fields.get("content-type", "").startswith("text/event-stream"):
                return json.loads(self.body)["choices"][0]["message"]["content"]
            events = [line[6:] for line in self.body.split(b"\n") if line.startswith(b"data: ")]
            if not events or events[-1] != b"[DONE]":
                return None
            values = [json.loads(event) for event in events[:-1]]
            if any("error" in value for value in values):
                return None
            return "".join(c["delta"].get("content") or "" for value in values for c in value["choices"])
        except (ValueError, KeyError, TypeError, IndexError):
            return None

    @property
    def is_error(self):
        return self.status >= 400 or not self.whole or b'"error"' in self.body


async def read_answer(reader, leave_after=None):
    answer = Answer()
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        lines = head.decode("latin1").split("\r\n")
        answer.status = int(lines[0].split()[1])
        answer.fields = {n.lower(): v.strip() for n, _, v in (line.partition(":") for line in lines[1:] if line)}
        if answer.fields.get("transfer-encoding") == "chunked":
            while True:
                size = int((await reader.readline()).strip() or b"x", 16)
                answer.body += (await reader.readexactly(size + 2))[:-2]
                if size == 0:
                    answer.whole = True
                    return answer
                if leave_after is not None and answer.body.count(b"data: ") >= leave_after:
                    return answer
        answer.body = await reader.readexactly(int(answer.fields["content-length"]))
        answer.whole = True
    except (asyncio.IncompleteReadError, ConnectionError, ValueError, KeyError):
        pass
    return answer


def request(body, key):
    body = json.dumps(body).encode()
    return (b"POST /v1/chat/completions HTTP/1.1\r\nHost: gateway\r\nContent-Type: application/json\r\n"
            b"Authorization: Bearer %s\r\nContent-Length: %d\r\n\r\n" % (key.encode(), len(body))) + body


def ask(text, stream=False, model="stand-in"):
    body = {"model": model, "messages": [{"role": "user", "content": text}]}
    return {**body, "stream": True} if stream else body


class Client:
    def __init__(self, port, key):
        self.port, self.key, self.reader, self.writer = port, key, None, None

    async def open(self):
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        return self

    async def ask(self, body, leave_after=None):
        self.writer.write(request(body, self.key))
        await self.writer.drain()
        return await read_answer(self.reader, leave_after)

    def close(self):
        self.writer.close()


# ---- equal ----
async def equal(rig, n):
    clients = await asyncio.gather(*(Client(rig.port, "key-of-crowd").open() for _ in range(n)))
    first = await clients[0].ask(ask("let me in"))  # the upstream has to accept the key
    check("the key is accepted", first.status == 200, first.body)
    for name, stream, model in (("whole", False, "stand-in:late=700"), ("streams", True, "stand-in:pace=40")):
        text = "what do a thousand ask at once (%s)" % name
        begun = time.monotonic()
        seen = await asyncio.gather(*(c.ask(ask(text, stream, model)) for c in clients))
        right = [a for a in seen if a.status == 200 and a.whole and (a.text or "").strip() == "answer 1 to: " + text]
        check("%d equal requests at once are all whole (%s, %.1f s)" % (n, name, time.monotonic() - begun), len(right) == n,
              [(a.status, a.whole, a.body[-200:]) for a in seen if a not in right][:2])
        check("and cost one call of the model (%s)" % name, rig.calls(text) == 1, rig.calls(text))
    for client in clients:
        client.close()


# ---- leader ----
async def leader(rig):
    """Who began a stream is cut off at each of its events: by the model, or by leaving."""
    events = 12  # of a stream of ten pieces: the role's, the pieces', the end's, and [DONE]
    odd, kept, asked = [], [], 0
    for at in range(events + 2):
        for way in ("the model breaks off", "the client leaves", "the model sends an error"):
            text = "%s at event %d" % (way, at)
            model = {"the model breaks off": "stand-in:events=10,pace=15,close=%d" % at,
                     "the client leaves": "stand-in:events=10,pace=15",
                     "the model sends an error": "stand-in:events=%d,pace=15,error-in-stream" % at}[way]
            clients = [await Client(rig.port, "key-of-crowd").open() for _ in range(5)]
            body = ask(text, True, model)
            leaves = at if way == "the client leaves" else None
            first = asyncio.create_task(clients[0].ask(body, leaves))
            while not first.done() and rig.calls(text) == 0:  # until it leads
                await asyncio.sleep(0.005)
            others = [asyncio.create_task(c.ask(body)) for c in clients[1:]]
            if leaves is not None:
                await first
                clients[0].close()
            answers = await asyncio.wait_for(asyncio.gather(*others), 120)
            if leaves is None:
                answers.append(await first)
                clients[0].close()
            asked += len(answers)
            odd += [(text, a.status, a.whole, a.body[-200:]) for a in answers if a.text is None and not a.is_error]
            for client in clients[1:]:
                client.close()
            again = await Client(rig.port, "key-of-crowd").open()
            answer = await again.ask(body)
            if answer.fields.get("x-quire-cache") in ("exact", "hit", "stale") and answer.text is None:
                kept.append((text, answer.fields, answer.body[-300:]))
            again.close()
    check("a leader that is cut off at each event: %d others have a whole answer or an error" % asked, not odd, odd[:3])
    check("and nothing partial is kept", not kept, kept[:2])
    await asyncio.sleep(0)  # for the last connections to be closed
    check("the model is left alone afterwards", until(lambda: rig.get("/state")["streams"] == 0), rig.get("/state"))


# ---- tenants ----
async def tenants(rig, n):
    """The stand-in says in each answer how often a text was asked, so tenants are told apart by a text of their own: the
    system prompt is the same, the answer holds the key that the model saw."""
    keys, crossed, wrong, served, done = ("key-of-acme", "key-of-bolt"), [], [], {}, 0
    texts = ["which of %d shared questions is this" % i for i in range(200)]
    random.seed(7)

    async def one(key, share):
        nonlocal done
        client = await Client(rig.port, key).open()
        for _ in range(share):
            text, stream = random.choice(texts), random.random() < 0.2
            answer = await client.ask(ask(text, stream, "stand-in:pace=0,echo-key"))
            said = answer.text
            done += 1
            if answer.status != 200 or not said:
                wrong.append((answer.status, answer.body[:200]))
                client.close()
                await client.open()
                continue
            status = answer.fields.get("x-quire-cache")
            served[status] = served.get(status, 0) + 1
            if key not in said or keys[key == keys[0]] in said or text not in said:
                crossed.append((key, text, said, answer.fields))
        client.close()

    begun = time.monotonic()
    width = 32
    await asyncio.gather(*(one(keys[i % 2], n // width) for i in range(width)))
    seconds = time.monotonic() - begun
    check("%d requests of two tenants with the same texts: none fails (%.0f a second)" % (done, done / seconds), not wrong,
          wrong[:3])
    check("no answer crosses", not crossed, crossed[:2])
    hits = served.get("exact", 0)
    check("and most come from the cache (%s)" % ", ".join("%s %d" % item for item in sorted(served.items())),
          hits > done / 2, served)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--requests", type=int, default=20000, help="of two tenants (20000)")
    parser.add_argument("--clients", type=int, default=1000, help="that ask the same at once (1000)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="quire-crowds.") as folder:
        rig = Rig(options.build, folder)
        try:
            asyncio.run(equal(rig, options.clients))
            asyncio.run(leader(rig))
            asyncio.run(tenants(rig, options.requests))
            check("the gateway is still the same one", all(p.poll() is None for p in rig.running))
        finally:
            rig.end()
    end()


main()
