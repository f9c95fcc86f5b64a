"""limits.py - what the server does at its limits, seen through bare sockets: many clients, slow ones, broken ones.

Started by run.sh. Each part has a server of its own, whose process id this program knows and ends.
"""
import contextlib
import os
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

BUILD, WORK = os.environ["QUIRE_BUILD"], os.environ["QUIRE_WORK"]
IDLE, IDLE_BYTES_MAX = 10000, 4096
ACTIVE, ACTIVE_SECONDS = 2000, float(os.environ.get("ACTIVE_SECONDS", "3"))  # of the idle ones
failed = 0


def check(name, right, seen=""):
    global failed
    print(("ok - " if right else "FAIL - ") + name, flush=True)
    if not right:
        failed += 1
        print("    | " + repr(seen)[:600], flush=True)


class Server:
    def __init__(self, *settings):
        self.port_file = os.path.join(WORK, "limits.port")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.port_file)
        self.log = open(os.path.join(WORK, "limits.log"), "wb+")
        self.process = subprocess.Popen(
            [os.path.join(BUILD, "quire-server"), "--port", "0", "--port-file", self.port_file,
             "--dir", tempfile.mkdtemp(prefix="limits-", dir=WORK), "--load", "words", os.path.join(WORK, "indexes", "words"), *settings], stderr=self.log)
        end = time.monotonic() + 30
        while not os.path.exists(self.port_file):
            if time.monotonic() > end or self.process.poll() is not None:
                self.process.kill()
                raise RuntimeError("the server does not start: " + self.text())
            time.sleep(0.02)
        with open(self.port_file, encoding="ascii") as file:
            self.port = int(file.read())

    def text(self):
        self.log.seek(0)
        return self.log.read().decode(errors="replace")

    def connect(self, receive_buffer=0, source=None):
        s = socket.socket()
        if receive_buffer:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        if source:
            s.bind((source, 0))
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        s.settimeout(20)
        s.connect(("127.0.0.1", self.port))
        return s

    def memory(self, field="VmRSS"):
        with open("/proc/%d/status" % self.process.pid, encoding="ascii") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith(field + ":"))

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        if exception[0] is None:
            check("the server ends with status 0", status == 0, (status, self.text()[-500:]))
        self.log.close()


def receive(s, n):
    data = b""
    while len(data) < n:
        more = s.recv(n - len(data))
        if not more:
            break
        data += more
    return data


def receive_all(s):
    """Everything until the other side closes; the exception's name where it resets."""
    data = b""
    try:
        while True:
            more = s.recv(65536)
            if not more:
                return data
            data += more
    except ConnectionResetError:
        return data + b"<reset>"
    except socket.timeout:
        return data + b"<timeout>"


def ask(server, request):
    with server.connect() as s:
        s.sendall(request)
        s.shutdown(socket.SHUT_WR)
        return receive_all(s)


def figure(server, name):
    text = ask(server, b"INFO\r\n").decode()
    return int(text.split("\r\n" + name + ":")[1].split("\r\n")[0])


def lives(server):
    return ask(server, b"PING\r\n") == b"+PONG\r\n"


def within(seconds, condition):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def raise_files(wanted):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        return hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return None


class Pinger(threading.Thread):
    """A client that keeps asking, and remembers how long it waited at most."""

    def __init__(self, server):
        super().__init__()
        self.socket = server.connect()
        self.over = threading.Event()
        self.count, self.worst, self.error = 0, 0.0, None

    def run(self):
        try:
            while not self.over.is_set():
                start = time.monotonic()
                self.socket.sendall(b"VSIM words ELE apple-0 COUNT 1\r\n")
                reply = receive(self.socket, 17)
                if reply != b"*1\r\n$7\r\napple-0\r\n":
                    raise ValueError(reply)
                self.worst = max(self.worst, time.monotonic() - start)
                self.count += 1
                time.sleep(0.001)
        except (OSError, ValueError) as e:
            self.error = e

    def end(self, label):
        self.over.set()
        self.join()
        self.socket.close()
        name = "%s: another client was answered %d times, at worst after %.0f ms"
        answered = self.error is None and self.count > 0 and self.worst < 5
        check(name % (label, self.count, self.worst * 1e3), answered, self.error)


def is_sanitized(server):
    """A sanitizer shadows memory, and keeps what was freed."""
    with open("/proc/%d/maps" % server.process.pid, encoding="ascii") as file:
        return any("san.so" in line for line in file)


def check_idle_bytes(server, before, label):
    each = (server.memory() - before) / IDLE
    if is_sanitized(server):
        print("skip - %s: %.0f bytes of server memory each, but a sanitizer shadows them" % (label, each))
    else:
        check("%s: %.0f bytes of server memory each, below %d" % (label, each, IDLE_BYTES_MAX), each < IDLE_BYTES_MAX)


def active_connections(sockets, seconds):
    """Each asks without a pause, one request at a time, of four kinds. Returns the times of replies and what was
    wrong."""
    vector = struct.pack("<64f", *range(64))
    kinds = [(b"PING\r\n", b"+PONG\r\n"), (b"SET active:%d value\r\n", b"+OK\r\n"),
             (b"*4\r\n$4\r\nVSIM\r\n$5\r\nwords\r\n$4\r\nFP32\r\n$256\r\n" + vector + b"\r\n", None),
             (b"VSIM words ELE apple-0 COUNT 1\r\n", b"*1\r\n$7\r\napple-0\r\n")]
    sockets[0].sendall(kinds[2][0])
    kinds[2] = (kinds[2][0], receive_reply(sockets[0], 11))
    poll, waiting, times, wrong = select.epoll(), {}, [], []

    def send(i, kind):
        request, wanted = kinds[kind]
        waiting[sockets[i].fileno()] = [i, kind, wanted, b"", time.monotonic()]
        sockets[i].sendall(request % i if b"%d" in request else request)
    for i, s in enumerate(sockets):
        poll.register(s.fileno(), select.EPOLLIN)
        send(i, i % 4)
    end = time.monotonic() + seconds
    while waiting and time.monotonic() < end + 20:
        for fileno, _ in poll.poll(1):
            entry = waiting[fileno]
            i, kind, wanted, _, start = entry
            entry[3] += sockets[i].recv(65536)
            if len(entry[3]) < len(wanted) and wanted.startswith(entry[3]) and entry[3]:
                continue
            now = time.monotonic()
            times.append(now - start)
            del waiting[fileno]
            if entry[3] != wanted:
                wrong.append((kind, entry[3]))
            elif now < end:
                send(i, (kind + 1) % 4)
    poll.close()
    return sorted(times), wrong + [("no answer", n) for n in [len(waiting)] if n]


def receive_reply(s, lines_and_bulks):
    """A reply of 1 + 2 (n - 1) lines: an array of n - 1 short strings."""
    data = b""
    while data.count(b"\r\n") < 2 * lines_and_bulks - 1:
        data += s.recv(65536)
    return data


def asked(server, command):
    with server.connect() as s:
        s.sendall(command + b"QUIT\r\n")
        return receive_all(s)


def check_active(server, sockets):
    asked(server, b"*3\r\n$3\r\nSET\r\n$3\r\nbig\r\n$65536\r\n" + b"x" * 65536 + b"\r\n")
    lazy = [server.connect(receive_buffer=4096, source="127.0.0.%d" % (2 + i)) for i in range(8)]
    for s in lazy:
        # one request, no work, and a reply that is longer than what the kernel takes for a socket
        s.sendall(b"MGET" + b" big" * 128 + b"\r\n")
    times, wrong = active_connections(sockets, ACTIVE_SECONDS)
    n = len(times)
    check("%d of %d connections active: %d requests/s without an error, p50 %.1f ms, p99 %.1f ms" % (
        len(sockets), IDLE, n / ACTIVE_SECONDS, times[n // 2] * 1e3, times[n * 99 // 100] * 1e3),
        not wrong and n >= 2 * len(sockets), wrong[:3])
    cut = within(60, lambda: figure(server, "client_output_buffer_limit_disconnections") == len(lazy))
    check("%d readers that do not read meanwhile: closed" % len(lazy), cut,
          figure(server, "client_output_buffer_limit_disconnections"))
    for s in lazy:
        s.close()


def test_idle_connections():
    wanted = IDLE + 1000
    hard = raise_files(wanted)
    if hard is not None:
        print("skip - %d idle connections: the hard limit of open files is %d, %d are needed" % (IDLE, hard, wanted))
        return
    with Server("--maxclients", str(IDLE + 100), "--client-output-buffer-limit", "1mb") as server:
        with contextlib.ExitStack() as stack:
            for _ in range(64):
                stack.enter_context(server.connect())
            lives(server)
            pinger = Pinger(server)
            pinger.start()
            time.sleep(0.5)
            before = server.memory()
            sockets = []
            for i in range(IDLE):
                # several addresses of the loopback network: each has its own ephemeral ports
                sockets.append(stack.enter_context(server.connect(source="127.0.0.%d" % (2 + i % 8))))
            within(60, lambda: figure(server, "connected_clients") >= IDLE)
            check_idle_bytes(server, before, "%d idle connections" % IDLE)
            for s in sockets:
                s.sendall(b"PING\r\n")
            answers = sum(receive(s, 7) == b"+PONG\r\n" for s in sockets)
            check("%d connections: each is answered" % IDLE, answers == IDLE, answers)
            # a line for each is more than the limit of this server
            asked(server, b"CONFIG SET client-output-buffer-limit 64mb\r\n")
            listed = asked(server, b"CLIENT LIST\r\n").count(b" laddr=127.0.0.1:")
            asked(server, b"CONFIG SET client-output-buffer-limit 1mb\r\n")
            check("%d connections: CLIENT LIST has them all" % IDLE, listed >= IDLE, listed)
            time.sleep(0.5)
            check_idle_bytes(server, before, "%d connections idle again" % IDLE)
            check_active(server, sockets[:ACTIVE])
            pinger.end("%d connections" % IDLE)
        forgotten = within(60, lambda: figure(server, "connected_clients") == 1)
        check("%d connections closed at once: the server lives and forgets them" % IDLE, forgotten)


def test_maxclients():
    with Server("--maxclients", "10") as server:
        clients = [server.connect() for _ in range(10)]
        for s in clients:
            s.sendall(b"PING\r\n")
            receive(s, 7)
        with server.connect() as more:
            reply = receive_all(more)
            check("maxclients: one more is told and closed", reply == b"-ERR max number of clients reached\r\n", reply)
        clients.pop().close()
        time.sleep(0.5)
        check("maxclients: a place that becomes free is given again", lives(server))
        for s in clients:
            s.close()


def test_reader_that_does_not():
    with Server("--client-output-buffer-limit", "1mb") as server:
        pinger = Pinger(server)
        pinger.start()
        lazy = server.connect(receive_buffer=4096)
        lazy.settimeout(10)
        request = b"*2\r\n$4\r\nECHO\r\n$65536\r\n" + b"x" * 65536 + b"\r\n"
        sent, closed = 0, False
        try:
            while sent < 1000 * len(request):
                lazy.sendall(request)
                sent += len(request)
        except (ConnectionResetError, BrokenPipeError):
            closed = True
        except socket.timeout:
            pass
        check("a client that never reads is closed (after %.1f MB)" % (sent / 1e6), closed, sent)
        lazy.close()
        # requests are few and their replies many: here it is not the sender who is held up
        greedy = server.connect(receive_buffer=4096)
        greedy.sendall(b"VRANDMEMBER words -100000\r\n")
        closed = within(60, lambda: figure(server, "client_output_buffer_limit_disconnections") == 2)
        check("a large reply that nobody reads: closed", closed)
        greedy.close()
        pinger.end("clients that do not read")
        check("the log says why", "client-output-buffer-limit" in server.text(), server.text())
        given_back = "the memory is given back (%.0f MB)" % (server.memory() / 1e6)
        if is_sanitized(server):
            print("skip - %s, but a sanitizer keeps what was freed" % given_back)
        else:
            check(given_back, server.memory() < 64e6, server.memory())


def test_requests_ahead():
    with Server("--client-query-buffer-limit", "1mb", "--proto-max-bulk-len", "4mb") as server:
        with server.connect() as s:
            closed = False
            try:
                s.sendall(b"*2\r\n$4\r\nECHO\r\n$4000000\r\n" + b"x" * 3000000)
                closed = s.recv(1) == b""
            except ConnectionError:
                closed = True
            check("client-query-buffer-limit: closed", closed)
        check("client-query-buffer-limit: counted", figure(server, "client_query_buffer_limit_disconnections") == 1)
        check("client-query-buffer-limit: the server lives", lives(server))


# What is sent, and how the reply must begin; afterwards the server closes.
BROKEN = {
    "a huge count": (b"*1000000000\r\n", b"-ERR Protocol error: invalid multibulk length\r\n"),
    "a count beyond 64 bits": (b"*99999999999999999999999\r\n", b"-ERR Protocol error: invalid multibulk length\r\n"),
    "a count that is none": (b"*abc\r\n", b"-ERR Protocol error: invalid multibulk length\r\n"),
    "a count without end": (b"*" + b"1" * 100000, b"-ERR Protocol error: too big mbulk count string\r\n"),
    "a negative length": (b"*1\r\n$-5\r\n", b"-ERR Protocol error: invalid bulk length\r\n"),
    "a huge length": (b"*1\r\n$99999999999\r\n", b"-ERR Protocol error: invalid bulk length\r\n"),
    "a length that is none": (b"*1\r\n$x\r\n", b"-ERR Protocol error: invalid bulk length\r\n"),
    "a length without end": (b"*1\r\n$" + b"1" * 100000, b"-ERR Protocol error: too big bulk count string\r\n"),
    "no length": (b"*1\r\n:5\r\n", b"-ERR Protocol error: expected '$', got ':'\r\n"),
    "an inline line without end": (b"a" * 100000, b"-ERR Protocol error: too big inline request\r\n"),
    "unbalanced quotes": (b'ECHO "abc\r\n', b"-ERR Protocol error: unbalanced quotes in request\r\n"),
}


def test_malformed():
    with Server() as server:
        bystander = server.connect()
        for name, (request, wanted) in BROKEN.items():
            with server.connect() as s:
                s.sendall(b"PING\r\n" + request)
                reply = receive_all(s)
            check("malformed: %s" % name, reply == b"+PONG\r\n" + wanted, reply)
        check("malformed: counted", figure(server, "protocol_error_disconnections") == len(BROKEN))
        for name, request in (("*0", b"*0\r\n"), ("*-1", b"*-1\r\n"), ("an empty line", b"\r\n\r\n\n")):
            reply = ask(server, request + b"PING\r\n")
            check("%s is no request" % name, reply == b"+PONG\r\n", reply)
        reply = ask(server, b"*1\r\n$0\r\n\r\nPING\r\n")
        check("an empty name is an unknown command", reply.startswith(b"-ERR unknown command") and
              reply.endswith(b"+PONG\r\n"), reply)
        seed = 1
        for _ in range(200):
            noise = bytearray()
            for _ in range(300):
                seed = (seed * 6364136223846793005 + 1442695040888963407) % 2 ** 64
                noise.append(seed >> 56)
            with server.connect() as s, contextlib.suppress(ConnectionError):
                s.sendall((b"*3\r\n$4\r\n" if seed & 1 << 40 else b"") + noise + b"\r\n")
                s.shutdown(socket.SHUT_WR)
                if b"<timeout>" in receive_all(s):
                    check("garbage ends", False, bytes(noise))
        bystander.sendall(b"PING\r\n")
        check("garbage: other clients live", receive(bystander, 7) == b"+PONG\r\n" and lives(server))
        bystander.close()


def test_slow_and_half_closed():
    with Server() as server:
        vector = struct.pack("<64f", *range(64))
        request = b"*4\r\n$4\r\nVSIM\r\n$5\r\nwords\r\n$4\r\nFP32\r\n$256\r\n" + vector + b"\r\n"
        at_once = ask(server, request)
        check("the request at once", at_once.startswith(b"*10\r\n"), at_once)
        with server.connect() as s:
            for i in range(len(request)):
                s.sendall(request[i:i + 1])
                time.sleep(0.0005)
            check("byte by byte: the same reply", receive(s, len(at_once)) == at_once)
            for i in range(1, len(request) - 1, 7):
                s.sendall(request[:i])
                time.sleep(0.002)
                s.sendall(request[i:])
                if receive(s, len(at_once)) != at_once:
                    check("in two pieces", False, i)
            check("in two pieces, cut anywhere: the same replies", True)
            for c in b"PING\r\n":
                s.sendall(bytes([c]))
                time.sleep(0.002)
            check("byte by byte, inline", receive(s, 7) == b"+PONG\r\n")
            big = os.urandom(8 << 20)
            echo = b"*2\r\n$4\r\nECHO\r\n$%d\r\n" % len(big) + big + b"\r\n"
            threading.Thread(target=s.sendall, args=(echo,)).start()
            reply = receive(s, len(big) + 12)
            check("an argument of 8 MB", reply == b"$%d\r\n" % len(big) + big + b"\r\n", len(reply))
        reply = ask(server, request * 300)
        check("half-close: all 300 searches are answered", reply == at_once * 300, (len(reply), len(at_once) * 300))
        reply = ask(server, b"PING\r\n*2\r\n$4\r\nECHO\r\n$10\r\nabc")
        check("half-close within a request: what was whole is answered", reply == b"+PONG\r\n", reply)
        with server.connect() as s:
            s.sendall(b"PING\r\nQUIT\r\nPING\r\n")
            reply = receive_all(s)
            check("nothing is answered behind QUIT", reply == b"+PONG\r\n+OK\r\n", reply)
        for _ in range(100):
            with server.connect() as s:
                s.sendall(request * 20)
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        check("100 clients that reset with searches under way: the server lives", lives(server))
        check("and forgets them", within(60, lambda: figure(server, "connected_clients") == 1))


def test_work_that_nobody_waits_for():
    """VRANDMEMBER of a million takes seconds; it must not go on for a client that left, nor hold up a stop."""
    with Server("--shutdown-timeout", "1") as server:
        request = b"VRANDMEMBER words -1000000\r\n" * 20
        with server.connect() as s:
            s.sendall(request)
            time.sleep(0.3)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        forgotten = within(60, lambda: figure(server, "connected_clients") == 1)
        check("a client that left is forgotten with its work", forgotten)
        with server.connect() as s:
            s.sendall(request)
            time.sleep(0.3)
            server.process.send_signal(signal.SIGTERM)
            check("shutdown-timeout ends a stop that waits for long work",
                  within(5, lambda: server.process.poll() is not None))


def test_timeout():
    with Server("--timeout", "1") as server:
        with server.connect() as idle:
            start = time.monotonic()
            idle.settimeout(10)
            check("timeout: an idle client is closed", receive_all(idle) == b"" and time.monotonic() - start > 0.9,
                  time.monotonic() - start)


def main():
    for test in (test_malformed, test_slow_and_half_closed, test_maxclients, test_timeout, test_requests_ahead,
                 test_reader_that_does_not, test_work_that_nobody_waits_for, test_idle_connections):
        try:
            test()
        except (OSError, RuntimeError, ValueError, IndexError) as e:
            check("%s runs to its end" % test.__name__, False, e)
    return failed > 0


# a stop from outside ends the servers as well: SystemExit passes through every `with`
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
sys.exit(main())
