"""aiohttp_client.py - aiohttp (Debian's python3-aiohttp): many streams at once, equal questions at once, an early end."""
import asyncio
import json

import aiohttp

from client_checks import BASE, CACHED, TARGET, ask, calls, check, end, get, question, said

KEY = {"Authorization": "Bearer key-of-aiohttp"}


async def stream(session, text, model="stand-in"):
    async with session.post(BASE + "/chat/completions", json={**ask(text, stream=True), "model": model}) as reply:
        return reply.status, await reply.read()


async def main():
    async with aiohttp.ClientSession(headers=KEY, connector=aiohttp.TCPConnector(limit=0)) as session:
        texts = [question("stream %d of many" % i) for i in range(100)]
        seen = await asyncio.gather(*(stream(session, text) for text in texts))
        check("a hundred streams at once", all(status == 200 and said(raw).strip().endswith(text)
                                               for text, (status, raw) in zip(texts, seen)))
        for name, model, most in (("streams", "stand-in:pace=20", 1), ("bodies", "stand-in:late=300", 1)):
            text = question("the same %s at once" % name)
            if name == "streams":
                seen = await asyncio.gather(*(stream(session, text, model) for _ in range(50)))
                right = all(status == 200 and said(raw).strip().endswith(text) for status, raw in seen)
            else:
                async def whole():
                    async with session.post(BASE + "/chat/completions", json={**ask(text), "model": model}) as reply:
                        return (await reply.json())["choices"][0]["message"]["content"]
                seen = await asyncio.gather(*(whole() for _ in range(50)))
                right = all(answer.endswith(text) for answer in seen)
            check("fifty equal %s are all whole" % name, right, seen[:2])
            if CACHED:
                check("and cost one call of the model", calls(text) == most, calls(text))
        before = get("/state")["gone"]
        async with session.post(BASE + "/chat/completions", json={**ask(question("left early"), stream=True),
                                                                  "model": "stand-in:events=2000,pace=10"}) as reply:
            await reply.content.readany()
        for _ in range(1000):
            if get("/state")["gone"] > before:
                break
            await asyncio.sleep(0.02)  # and not until(): the loop has to close the connection
        check("one that leaves is left", get("/state")["gone"] > before, get("/state"))
        async with session.post(BASE + "/chat/completions", json=ask(question("fail with 429"))) as reply:
            check("an error is the model's", reply.status == 429 and (await reply.json())["error"]["message"] == "as asked")
        async with session.get(BASE + "/models") as reply:
            check("models", (await reply.json())["data"][0]["id"] == "stand-in")
        async with session.post(BASE + "/some/other/route?x=1", data=json.dumps({"a": 1})) as reply:
            check("another route is passed on", (await reply.json())["echo"] == {"a": 1} or TARGET == "", reply.status)


asyncio.run(main())
end()
