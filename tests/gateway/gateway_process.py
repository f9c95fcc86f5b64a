"""gateway_process.py - a quire-server, a stand-in model and quire-gateways for tests, on free loopback ports, ended by
their process ids; and requests to them as little as tests need."""
import http.client
import json
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests/e2e")]
from server_process import Server  # noqa: E402

__all__ = ["Answer", "Gateway", "Server", "StandIn", "ask", "chat", "until"]


def until(right, seconds=20):
    """Waits until right() is true; its last value."""
    last = time.monotonic() + seconds
    while not (value := right()) and time.monotonic() < last:
        time.sleep(0.01)
    return value


class StandIn:
    """tests/e2e/stand_in_model.py."""

    def __init__(self):
        self.process = None
        self.start(0)

    def start(self, port):
        self.process = subprocess.Popen([sys.executable, str(ROOT / "tests/e2e/stand_in_model.py"), "--port", str(port)],
                                        stdout=subprocess.PIPE)
        self.port = int(self.process.stdout.readline())
        self.url = "http://127.0.0.1:%d" % self.port

    def kill(self):
        self.process.kill()
        self.process.wait()

    def get(self, path):
        return ask(self.port, path, method="GET").json()

    def control(self, **what):
        return ask(self.port, "/control", what)

    def reset(self):
        return ask(self.port, "/reset", {})

    def open(self, text):
        """What waits at its gate for this text goes on."""
        return ask(self.port, "/gate", {"text": text})

    def asked(self, text):
        return self.get("/calls").get(text, 0)


class Gateway:
    def __init__(self, build, folder, upstream, quire, **settings):
        """quire: "host:port" or "unix:/path". Times that no test is about are generous, since a machine may stop for a
        while."""
        self.folder = folder
        folder.mkdir(exist_ok=True)
        port_file, config = folder / "port", folder / "gateway.json"
        port_file.unlink(missing_ok=True)
        everything = {"listen": ["127.0.0.1:0"], "port-file": str(port_file), "server": quire,
                      "access-log": str(folder / "access.log"),
                      "upstreams": [{"name": "model", "url": upstream}],
                      "server-timeout": "30s", "embed-timeout": "30s", "wait-near": "30s"}
        everything.update({name.replace("_", "-"): value for name, value in settings.items()})
        config.write_text(json.dumps(everything))
        self.log_path = folder / "log"
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen([str(build / "quire-gateway"), "--settings", str(config)],
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        begin = time.monotonic()
        while not (port_file.exists() and port_file.read_text().strip()):
            if self.process.poll() is not None or time.monotonic() - begin > 60:
                raise SystemExit("the gateway does not start: " + self.log_path.read_text()[-2000:])
            time.sleep(0.005)
        self.port = int(port_file.read_text())

    def ready(self, vectors=False, seconds=60):
        """Waits until the cache is there."""
        begin = time.monotonic()
        while time.monotonic() - begin < seconds:
            cache = self.health()["cache"]
            if cache["ready"] and (cache.get("vectors") or not vectors):
                return self
            time.sleep(0.02)
        raise SystemExit("the cache is not ready: %s" % self.health())

    def health(self):
        return ask(self.port, "/health", method="GET").json()

    def memory(self):
        """Resident bytes."""
        for line in open("/proc/%d/status" % self.process.pid):
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        return 0

    def log(self):
        return self.log_path.read_text(errors="replace")[-3000:]

    def stop(self):
        """SIGTERM; whether it ended with status 0."""
        self.process.terminate()
        try:
            return self.process.wait(60) == 0
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return False


class Answer:
    def __init__(self, status, headers, body, broken=False):
        self.status, self.headers, self.body, self.broken = status, headers, body, broken

    def header(self, name):
        return self.headers.get(name)

    @property
    def cache(self):
        return self.headers.get("X-Quire-Cache")

    @property
    def reason(self):
        return self.headers.get("X-Quire-Reason") or ""

    def json(self):
        return json.loads(self.body)

    def events(self):
        """The data of its events; the last is the text [DONE] where it ended well."""
        found = [event.partition(b"data: ")[2] for event in self.body.replace(b"\r\n", b"\n").split(b"\n\n")
                 if event.startswith(b"data: ")]
        return [event.decode() if event == b"[DONE]" else json.loads(event) for event in found]

    def text(self):
        """What the first choice says."""
        if (self.headers.get("Content-Type") or "").startswith("text/event-stream"):
            return "".join(choice["delta"].get("content") or "" for event in self.events() if isinstance(event, dict)
                           for choice in event.get("choices", [])[:1])
        return self.json()["choices"][0]["message"]["content"]


def ask(port, path, body=None, method="POST", key=None, timeout=60, headers=(), connection=None):
    connection = connection or http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    fields = {"Content-Type": "application/json", **dict(headers)}
    if key:
        fields["Authorization"] = "Bearer " + key
    data = json.dumps(body) if isinstance(body, (dict, list)) else body  # an iterator of bytes goes in chunks
    connection.request(method, path, data, fields)
    reply = connection.getresponse()
    try:
        return Answer(reply.status, reply.headers, reply.read())
    except (http.client.IncompleteRead, ConnectionError) as e:
        return Answer(reply.status, reply.headers, getattr(e, "partial", b""), True)


def chat(port, text, model="stand-in", stream=False, key="sk-one", headers=(), connection=None, timeout=60, **more):
    """One question to /v1/chat/completions. text: of the user, or a list of messages."""
    messages = text if isinstance(text, list) else [{"role": "user", "content": text}]
    body = {"model": model, "messages": messages, **more}
    if stream:
        body["stream"] = True
    return ask(port, "/v1/chat/completions", body, key=key, headers=headers, connection=connection, timeout=timeout)
