"""resp_client.py - the Redis protocol (RESP2 and RESP3), as little of it as tests and measurements need, and fast.

A client library hides when bytes go out and come in, and of which type a reply is; here that is what the test is
about. Bulk strings come as bytes, simple ones as str; a RESP3 map as a dict, its keys as they come; a set as a Set.
"""
import contextlib
import socket


def request(*words):
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        data = word if isinstance(word, bytes) else str(word).encode()
        parts.append(b"$%d\r\n%s\r\n" % (len(data), data))
    return b"".join(parts)


class Error(str):
    """An error reply."""


class Set(list):
    """A RESP3 set, in the order it came."""


class Push(list):
    """A RESP3 push message."""


def parse(data, at):
    """The reply at data[at:] and where it ends; IndexError where it is not whole."""
    end = data.find(b"\r\n", at)
    if end < 0:
        raise IndexError
    kind, line = data[at:at + 1], data[at + 1:end]
    end += 2
    if kind == b"$":
        size = int(line)
        if size < 0:
            return None, end
        if len(data) < end + size + 2:
            raise IndexError
        return bytes(data[end:end + size]), end + size + 2
    if kind == b"*":
        items = []
        for _ in range(max(int(line), 0)):
            item, end = parse(data, end)
            items.append(item)
        return items if int(line) >= 0 else None, end
    if kind == b":":
        return int(line), end
    if kind == b"+":
        return line.decode(), end
    if kind == b"-":
        return Error(line.decode(errors="replace")), end
    return parse_resp3(kind, line, data, at, end)


def parse_resp3(kind, line, data, at, end):
    """The types that only RESP3 has; end is where the line has ended."""
    if kind == b",":
        return float(line), end
    if kind == b"#":
        return line == b"t", end
    if kind == b"_":
        return None, end
    if kind == b"(":
        return int(line), end
    if kind in b"~>%":
        items = []
        for _ in range(int(line) * (2 if kind == b"%" else 1)):
            item, end = parse(data, end)
            items.append(item)
        if kind == b"%":
            return dict(zip(items[::2], items[1::2])), end
        return (Set if kind == b"~" else Push)(items), end
    if kind == b"=":
        size = int(line)
        if len(data) < end + size + 2:
            raise IndexError
        return bytes(data[end + 4:end + size]), end + size + 2
    raise OSError("a reply that is none: %r" % bytes(data[at:at + 80]))


class Stream:
    """A connection: requests go out when the socket takes them, replies are parsed as they come."""

    def __init__(self, port, seconds=60):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=seconds)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.received, self.unsent = bytearray(), bytearray()

    def replies(self):
        """Those that are whole."""
        found, at = [], 0
        with contextlib.suppress(IndexError):
            while at < len(self.received):
                reply, at = parse(self.received, at)
                found.append(reply)
        del self.received[:at]
        return found

    def ask(self, requests):
        """The replies to all of them, in parts of a few hundred."""
        answers = []
        for first in range(0, len(requests), 300):
            part = requests[first:first + 300]
            self.socket.sendall(b"".join(part))
            wanted = len(answers) + len(part)
            while len(answers) < wanted:
                data = self.socket.recv(1 << 16)
                if not data:
                    raise OSError("the server closed the connection on a read")
                self.received += data
                answers += self.replies()
        return answers

    def call(self, *words):
        """The reply to one request."""
        return self.ask([request(*words)])[0]
