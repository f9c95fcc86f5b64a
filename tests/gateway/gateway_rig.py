"""gateway_rig.py - what the Python tests of the gateway share: a quire-server, the stand-in model, gateways; checks."""
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
failed = 0


def check(name, right, seen=""):
    global failed
    print(("ok - " if right else "FAIL - ") + name, flush=True)
    if not right:
        failed += 1
        print("    | " + repr(seen)[:900], flush=True)


def end():
    sys.exit(failed > 0)


def until(right, seconds=20):
    """Waits until right() is true; its last value."""
    last = time.monotonic() + seconds
    while not (value := right()) and time.monotonic() < last:
        time.sleep(0.01)
    return value


class Rig:
    """A server, a model, a gateway, and their end."""

    def __init__(self, build, folder, *settings):
        self.build, self.folder, self.running = build, folder, []
        self.server = self.begin("server", [os.path.join(build, "quire-server"), "--port", "0", "--unixsocket",
                                            folder + "/quire.sock", "--dir", folder + "/data"], folder + "/quire.sock")
        self.begin("model", ["/usr/bin/python3", HERE + "/../e2e/stand_in_model.py"], folder + "/model.out")
        self.model = "http://127.0.0.1:" + open(folder + "/model.out").read().split()[0]
        self.port = self.gateway("gateway", *settings)

    def gateway(self, name, *settings):
        """One more, with words of its command line; its port. Times that no test is about are generous, since a machine may
        stop for a while: a cache that is asked too shortly is `down`, and an answer without its vector not kept."""
        sign = "%s/%s.port" % (self.folder, name)
        patient = ["--server-timeout", "30s", "--embed-timeout", "30s", "--wait-near", "30s"]
        words = patient + [word.replace("MODEL", self.model) for word in settings]
        self.begin(name, [os.path.join(self.build, "quire-gateway"), "--upstream", self.model, "--listen", "127.0.0.1:0",
                          "--port-file", sign, "--server", "unix:" + self.folder + "/quire.sock", *words], sign)
        port = int(open(sign).read())
        if not until(lambda: self.is_ready(port, "--embed-url" in words), 60):
            self.end()
            sys.exit("%s: its cache is not ready" % name)
        return port

    def is_ready(self, port, vectors):
        """The cache is opened behind the start: until then requests go on without it."""
        with urllib.request.urlopen("http://127.0.0.1:%d/health" % port) as reply:
            cache = json.load(reply)["cache"]
        return cache["ready"] and (cache["vectors"] or not vectors)

    def begin(self, name, command, sign):
        out = open("%s/%s.out" % (self.folder, name), "wb")
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
        self.running.append(process)
        until = time.monotonic() + 60
        while not (os.path.exists(sign) and (sign.endswith(".sock") or os.path.getsize(sign))):
            if process.poll() is not None or time.monotonic() > until:
                self.end()
                sys.exit("%s does not start: %s" % (name, open(out.name).read()[-2000:]))
            time.sleep(0.05)
        return process

    def end(self):
        for process in reversed(self.running):
            process.send_signal(signal.SIGTERM)
        for process in self.running:
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()

    def get(self, path):
        with urllib.request.urlopen(self.model + path) as reply:
            return json.load(reply)

    def calls(self, text):
        return self.get("/calls").get(text, 0)

    def post(self, path, value):
        body = json.dumps(value).encode()
        urllib.request.urlopen(urllib.request.Request(self.model + path, body)).close()
