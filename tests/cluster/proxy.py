"""proxy.py - a wire between a replica and its primary that damages what goes over it, for the scripts of this folder.

    proxy = Proxy(primary.port)         # proxy.port is what the replica is told
    proxy.harm = flip_pieces            # harm(bytes, from_primary, connection) -> bytes, or None: the connection ends
"""
import re
import socket
import threading


class Connection:
    def __init__(self):
        self.asks_pieces = False  # it is the one that fetches segments


class Proxy:
    def __init__(self, target):
        self.target, self.harm, self.harmed = target, None, 0
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
            for source, sink, from_primary in ((client, server, False), (server, client, True)):
                threading.Thread(target=self.pump, args=(source, sink, from_primary, connection), daemon=True).start()

    def pump(self, source, sink, from_primary, connection):
        try:
            while True:
                data = source.recv(65536)
                if not from_primary and b"QUIRE._READ" in data:
                    connection.asks_pieces = True
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


def newer_writes(data, from_primary, connection):
    """Writes of sets say that they are of a version that is not known yet."""
    at = data.find(b"QEFF") if from_primary else -1
    return data[:at + 4] + b"\x09" + data[at + 5:] if at >= 0 else data
