"""resp_client.py - the Redis protocol (RESP2), as little of it as tests and measurements need, and fast.

A client library hides when bytes go out and come in; here that is what the test is about.
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
    if kind in b"+,":
        return line.decode(), end
    if kind == b"-":
        return Error(line.decode(errors="replace")), end
    raise OSError("a reply that is none: %r" % bytes(data[at:at + 80]))


class Stream:
    """A connection: requests go out when the socket takes them, replies are parsed as they come."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
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
                data = self.socket.recv(1 << 20)
                if not data:
                    raise OSError("the server closed the connection on a read")
                self.received += data
                answers += self.replies()
        return answers
