"""requests_client.py - requests (Debian's python3-requests): sessions, lines of a stream, errors, retries of urllib3."""
import json

import requests
from requests.adapters import HTTPAdapter
from urllib3.util.retry import Retry

from client_checks import BASE, ask, calls, check, end, question

session = requests.Session()
session.headers["Authorization"] = "Bearer key-of-requests"
session.mount("http://", HTTPAdapter(max_retries=Retry(total=2, status_forcelist=[503], allowed_methods=None,
                                                       backoff_factor=0.01, respect_retry_after_header=False)))


def post(body, **more):
    return session.post(BASE + "/chat/completions", json=body, timeout=60, **more)


text = question("how are you")
reply = post(ask(text))
check("chat", reply.json()["choices"][0]["message"]["content"].endswith(text), reply.text)
text = question("a stream by lines")
lines = [line for line in post(ask(text, stream=True), stream=True).iter_lines() if line]
check("a stream by lines", lines[-1] == b"data: [DONE]" and
      json.loads(lines[-2][6:])["choices"][0]["finish_reason"] == "stop", lines[-3:])
text = question("fails twice")
reply = post({**ask(text), "model": "stand-in:status=503,fails=2"})
check("retries are the client's", reply.status_code == 200 and calls(text) == 3, (reply.status_code, calls(text)))
text = question("fail with 500")
check("an error, both times", [post(ask(text)).status_code for _ in "12"] == [500, 500] and calls(text) == 2, calls(text))
broken = post({**ask(question("breaks off")), "model": "stand-in:close=40"}, stream=True)
try:
    seen = broken.content
    check("a body that breaks off is seen to", len(seen) < int(broken.headers["Content-Length"]), seen)
except (requests.exceptions.ChunkedEncodingError, requests.exceptions.ConnectionError) as e:
    check("a body that breaks off is seen to", True, e)
check("no JSON is passed on", session.post(BASE + "/chat/completions", data=b"{nonsense", timeout=60).status_code == 400)
reply = session.delete(BASE + "/files/f-1", timeout=60)
check("other methods", reply.json() == {"id": "f-1", "deleted": True}, reply.text)
end()
