"""raw_http.py - bare HTTP for tests: an upstream that records the bytes that it gets and answers bytes written by hand, a
client that sends bytes as they are, and a quire-gateway between them, ended by its process id."""
import json
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import threading
import time


class Failed(Exception):
    pass


class Checks:
    def __init__(self):
        self.failed = 0

    def check(self, name, right, detail=""):
        if right:
            print("ok - " + name, flush=True)
        else:
            self.failed += 1
            print("FAIL - %s: %s" % (name, str(detail)[:2000]), flush=True)

    def equal(self, name, got, wanted):
        self.check(name, got == wanted, "got %r\n       wanted %r" % (got, wanted))


def until(what, seconds=30):
    """Waits until what() is true; its last value."""
    end = time.monotonic() + seconds
    while not (value := what()) and time.monotonic() < end:
        time.sleep(0.005)
    return value


def read_head(sock, data=b""):
    """(head with its empty line, what came behind it); (b"", ...) where the other side closed before."""
    while b"\r\n\r\n" not in data:
        more = sock.recv(65536)
        if not more:
            return b"", data
        data += more
    head, _, rest = data.partition(b"\r\n\r\n")
    return head + b"\r\n\r\n", rest


def fields_of(head):
    return [tuple(line.split(b":", 1)) for line in head.split(b"\r\n")[1:] if line]


def field(head, name):
    for key, value in fields_of(head):
        if key.lower() == name.lower():
            return value.strip()
    return None


def read_body(sock, head, rest, to_end=False, on_bytes=None):
    """(decoded body, rest, whole): by Content-Length, chunks, or (to_end) until the other side closes."""
    body = bytearray()

    def take(data):
        body.extend(data)
        if on_bytes:
            on_bytes(bytes(data))

    def more():
        data = sock.recv(65536)
        return data

    if (field(head, b"Transfer-Encoding") or b"").lower() == b"chunked":
        while True:
            while b"\r\n" not in rest:
                data = more()
                if not data:
                    return bytes(body), rest, False
                rest += data
            line, _, rest = rest.partition(b"\r\n")
            size = int(line.split(b";")[0], 16)
            while len(rest) < size + 2:
                data = more()
                if not data:
                    take(rest[:size])
                    return bytes(body), b"", False
                rest += data
            take(rest[:size])
            rest = rest[size + 2:]
            if size == 0:
                return bytes(body), rest, True
    length = field(head, b"Content-Length")
    if length is not None:
        left = int(length)
        while True:
            take(rest[:left])
            left -= len(rest[:left])
            rest = rest[int(length):] if left == 0 else b""
            if left == 0:
                return bytes(body), rest, True
            rest = more()
            if not rest:
                return bytes(body), b"", False
    if to_end:
        while True:
            take(rest)
            rest = more()
            if not rest:
                return bytes(body), b"", True
    return b"", rest, True


class Upstream:
    """Answers by what its owner put for a path: bytes, or a function (sock, head, body) that may return bytes. Whether
    the connection is kept is up to the answer: bytes that end in Close() close it."""

    def __init__(self, port=0, context=None):
        """context: an ssl.SSLContext of a server."""
        self.context = context
        self.requests, self.answers, self.connections, self.open, self.broken = [], {}, 0, 0, 0
        self.read_bodies = True
        self.listener = socket.create_server(("127.0.0.1", port))
        self.port = self.listener.getsockname()[1]
        self.url = "http://127.0.0.1:%d" % self.port
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.connections += 1
            threading.Thread(target=self.serve, args=(sock,), daemon=True).start()

    def serve(self, sock):
        rest = b""
        self.open += 1
        try:
            if self.context:
                sock = self.context.wrap_socket(sock, server_side=True)
            while True:
                head, rest = read_head(sock, rest)
                if not head:
                    return
                path = head.split(b" ")[1].split(b"?")[0].decode("latin1")
                body = None
                if self.read_bodies:
                    body, rest, whole = read_body(sock, head, rest)
                    if not whole:
                        self.broken += 1
                        return
                self.requests.append((head, body))
                answer = self.answers.get(path, OK)
                if callable(answer):
                    answer = answer(sock, head, body if self.read_bodies else rest)
                if answer is None:
                    return
                sock.sendall(answer)
        except OSError:
            pass
        finally:
            self.open -= 1
            sock.close()

    def close(self):
        self.listener.close()


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Type: text/plain\r\n\r\nok"


class Client:
    def __init__(self, port, timeout=60):
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.rest = b""

    def send(self, data):
        self.sock.sendall(data)
        return self

    def begun(self):
        """Waits for the first byte of an answer."""
        self.sock.recv(1, socket.MSG_PEEK)

    def answer(self, head_only=False, to_end=True):
        """(head, body, whole)."""
        while True:
            head, self.rest = read_head(self.sock, self.rest)
            if not head.startswith(b"HTTP/1.1 100"):
                break
        if not head or head_only or head.split(b" ")[1] in (b"204", b"304"):
            return head, b"", True
        body, self.rest, whole = read_body(self.sock, head, self.rest, to_end)
        return head, body, whole

    def is_closed(self):
        try:
            return self.sock.recv(1) == b""
        except ConnectionError:
            return True
        except TimeoutError:
            return False

    def close(self):
        self.sock.close()


def status(head):
    return int(head.split(b" ")[1]) if head else 0


def ask(port, data, **how):
    client = Client(port)
    try:
        return client.send(data).answer(**how)
    finally:
        client.close()


def get(port, path):
    return ask(port, b"GET %s HTTP/1.1\r\nHost: a\r\n\r\n" % path.encode())


class Gateway:
    def __init__(self, build, upstreams, **settings):
        self.folder = tempfile.TemporaryDirectory(prefix="quire-gateway.")
        folder = pathlib.Path(self.folder.name)
        self.port_file, self.config, self.log_path = folder / "port", folder / "gateway.json", folder / "log"
        self.access_path = folder / "access.log"
        self.everything = {"listen": ["127.0.0.1:0"], "port-file": str(self.port_file), "cache-on": False,
                           "access-log": str(self.access_path), "upstreams": upstreams}
        self.configure(**settings)
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen([str(build / "quire-gateway"), "--settings", str(self.config)],
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        if not until(lambda: self.port_file.exists() or self.process.poll() is not None, 60) or self.process.poll():
            raise Failed("the gateway does not start: " + self.log())
        self.port = int(self.port_file.read_text())

    def configure(self, **settings):
        self.everything.update({name.replace("_", "-"): value for name, value in settings.items()})
        self.config.write_text(json.dumps(self.everything))

    def reload(self, word="settings"):
        before = self.log().count(word)
        self.process.send_signal(signal.SIGHUP)
        if not until(lambda: self.log().count(word) > before):
            raise Failed("no word of the reload: " + self.log())

    def log(self):
        return self.log_path.read_text(errors="replace")

    def access(self):
        return [json.loads(line) for line in self.access_path.read_text().splitlines()]

    def status_kib(self, name="VmRSS"):
        """0 in builds with sanitizers, which keep what was freed."""
        if os.environ.get("QUIRE_SANITIZE_FLAGS"):
            return 0
        for line in open("/proc/%d/status" % self.process.pid):
            if line.startswith(name + ":"):
                return int(line.split()[1])
        return 0

    def cpu_seconds(self):
        parts = open("/proc/%d/stat" % self.process.pid).read().rsplit(")", 1)[1].split()
        return (int(parts[11]) + int(parts[12])) / 100

    def stop(self, wait=60):
        """Its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(wait)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise Failed("the gateway does not end: " + self.log()) from None
        self.folder.cleanup()
        return self.process.returncode
