"""proxy.py - a wire between a replica and its primary that damages what goes over it, for the scripts of this folder.

    proxy = Proxy(primary.port)         # proxy.port is what the replica is told
    proxy.harm = flip_pieces            # harm(bytes, from_primary, connection) -> bytes, or None: the connection ends
    proxy.inject(bytes)                 # behind what the engine's own link has brought so far
"""
import re
import socket
import threading


class Connection:
    def __init__(self):
        self.asks_pieces = False  # it is the one that fetches segments
        self.asks = False  # it is beside the engine's link
        self.client = None  # of the replica


class Proxy:
    def __init__(self, target):
        self.target, self.harm, self.harmed, self.link = target, None, 0, None
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                client.close()
                continue
            connection = Connection()
            connection.client = client
            for source, sink, from_primary in ((client, server, False), (server, client, True)):
                threading.Thread(target=self.pump, args=(source, sink, from_primary, connection), daemon=True).start()

    def pump(self, source, sink, from_primary, connection):
        try:
            while True:
                data = source.recv(65536)
                if not from_primary and b"QUIRE._READ" in data:
                    connection.asks_pieces = True
                if not from_primary and b"QUIRE._" in data:
                    connection.asks = True
                if not from_primary and b"PSYNC" in data:
                    self.link = connection
                if data and self.harm:
                    changed = self.harm(data, from_primary, connection)
                    self.harmed += changed != data
                    data = changed
                if not data:
                    break
                sink.sendall(data)
        except OSError:
            pass
        for s in (source, sink):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def inject(self, data):
        """While the engine's link is quiet, or it would come into the middle of something. False: the link is down."""
        try:
            self.link.client.sendall(data)
            return True
        except OSError:
            return False

    def close(self):
        self.listener.close()


def flip_pieces(data, from_primary, connection):
    """A bit of every piece that is long enough to hold more than its length."""
    if not from_primary or not connection.asks_pieces or len(data) < 2000:
        return data
    at = len(data) // 2
    return data[:at] + bytes([data[at] ^ 4]) + data[at + 1:]


def cut_pieces(data, from_primary, connection):
    """The connection ends within a piece."""
    if not from_primary or not connection.asks_pieces or len(data) < 2000:
        return data
    return None


class Exchange:
    """Remembers the first segment that is asked for; asks for it in the place of others when `now` is set."""
    WORDS = re.compile(rb"(QUIRE\._(?:READ|FILES)\r\n\$32\r\n[0-9a-f]{32}\r\n\$32\r\n)([0-9a-f]{32})")

    def __init__(self):
        self.first, self.now = None, False

    def __call__(self, data, from_primary, connection):
        if from_primary:
            return data
        found = self.WORDS.search(data)
        if found and not self.first:
            self.first = found.group(2)
        return self.WORDS.sub(lambda m: m.group(1) + self.first, data) if found and self.now else data


class EndAfterCopy:
    """The engine's link ends behind a COPY, or behind the transaction that it is in."""

    def __init__(self, proxy):
        self.proxy, self.heard, self.over = proxy, b"", False

    def __call__(self, data, from_primary, connection):
        if self.over:
            return None
        if from_primary and connection is self.proxy.link:
            self.heard += data
            self.over = b"COPY" in self.heard and (b"MULTI" not in self.heard or b"EXEC" in self.heard)
        return data


def other_ids(data, from_primary, connection):
    """Keys that are made get another id than their primary has given them, and one of them another name."""
    data = data.replace(b"\r\norphan\r\n", b"\r\n0rphan\r\n")
    return re.sub(rb"(_MANIFEST\r\n.*?\$32\r\n)[0-9a-f]{8}", rb"\g<1>01234567", data, flags=re.S) if from_primary else data


def newer_writes(data, from_primary, connection):
    """Writes of sets say that they are of a version that is not known yet."""
    at = data.find(b"QEFF") if from_primary else -1
    return data[:at + 4] + b"\x09" + data[at + 5:] if at >= 0 else data


def newer_images(data, from_primary, connection):
    """Sets as a whole say so: in the RDB of a full synchronisation, in the stream, and beside it."""
    return data.replace(b"QMAN\x01", b"QMAN\x09") if from_primary else data


def newer_keys(data, from_primary, connection):
    """Keys in an RDB are of the next version of their manifest: 54 bits of the type's name, 10 of the version."""
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    number = 0
    for letter in "quire-col":
        number = number << 6 | letters.index(letter)
    own, newer = (b"\x81" + (number << 10 | version).to_bytes(8, "big") for version in (2, 3))
    return data.replace(own, newer) if from_primary else data
