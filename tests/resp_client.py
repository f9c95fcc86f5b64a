"""resp_client.py - the Redis protocol (RESP2 and RESP3), as little of it as tests and measurements need, and fast.

A client library hides when bytes go out and come in, and of which type a reply is; here that is what the test is
about. Bulk strings come as bytes, simple ones as str; a RESP3 map as a dict, its keys as they come; a set as a Set.
"""
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


class Replies:
    """Bytes in, as they come; the replies that are whole out. What has come of a reply is read once, however many parts
    the reply comes in."""

    def __init__(self):
        self.data, self.at = bytearray(), 0
        self.open = []  # the lists within which the next value is: (kind, how many values it has, those that have come)

    def feed(self, more):
        """The replies that end with these bytes."""
        self.data += more
        found = []
        while (value := self.next_value()) is not NOT_YET:
            while self.open:
                kind, wanted, items = self.open[-1]
                items.append(value)
                if len(items) < wanted:
                    break
                self.open.pop()
                value = aggregate(kind, items)
            else:
                found.append(value)
        del self.data[:self.at]
        self.at = 0
        return found

    def next_value(self):
        """The next value that is no list, or a list of nothing; lists that begin before it are opened. NOT_YET where its
        bytes have not come."""
        data = self.data
        while (end := data.find(b"\r\n", self.at)) >= 0:
            kind, line = data[self.at:self.at + 1], data[self.at + 1:end]
            end += 2
            if kind in b"$=" and (size := int(line)) >= 0:
                if len(data) < end + size + 2:
                    return NOT_YET
                self.at = end + size + 2
                return bytes(data[end + (4 if kind == b"=" else 0):end + size])
            self.at = end
            if kind not in b"*~>%" or (wanted := int(line) * (2 if kind == b"%" else 1)) < 0:
                return scalar(kind, line)
            if wanted == 0:
                return aggregate(kind, [])
            self.open.append((kind, wanted, []))
        return NOT_YET


NOT_YET = object()


def aggregate(kind, items):
    if kind == b"*":
        return items
    if kind == b"%":
        return dict(zip(items[::2], items[1::2]))
    return (Set if kind == b"~" else Push)(items)


def scalar(kind, line):
    """What a line is the whole of; a length below 0 stands for nothing."""
    if kind in b":(":
        return int(line)
    if kind == b"+":
        return line.decode()
    if kind == b"-":
        return Error(line.decode(errors="replace"))
    if kind in b"_$=*~>%":
        return None
    if kind == b",":
        return float(line)
    if kind == b"#":
        return line == b"t"
    raise OSError("a reply that is none: %r" % bytes(kind + line[:80]))


class Stream:
    """A connection: requests go out when the socket takes them, replies are parsed as they come."""

    def __init__(self, port, seconds=60):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=seconds)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.unsent, self.feed = bytearray(), Replies().feed

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
                answers += self.feed(data)
        return answers

    def call(self, *words):
        """The reply to one request."""
        return self.ask([request(*words)])[0]
