"""wire.py - what the scripts here share: checks, a connection that says who it is, vectors, and replies read as
clients do.

Started by run.sh: QUIRE_PORT is a server that the script may empty.
"""
import contextlib
import math
import os
import re
import struct
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from resp_client import Error, Set, Stream, request

__all__ = ["Client", "Error", "Set", "approximately", "blob", "check", "cosine", "document_rows", "embed", "end",
           "fails",
           "flat", "map_rows", "script", "text"]
PORT = int(os.environ.get("QUIRE_PORT", "0"))
DIM = 32
failed = 0


def check(name, right, seen=""):
    global failed
    print(("ok - " if right else "FAIL - ") + name, flush=True)
    if not right:
        failed += 1
        print("    | " + repr(seen)[:800], flush=True)
    return right


def fails(name, reply, pattern):
    """The reply is an error whose text has the pattern, in any case."""
    check(name, isinstance(reply, Error) and re.search(pattern, reply, re.IGNORECASE) is not None, reply)


def script(*parts):
    """Runs the parts, each with a server that is empty; what raises is a failed check, and the next part is run. Those that
    QUIRE_SKIP_PARTS names are left out: where quire.so is asked, in an engine that has not what they are about."""
    for part in parts:
        if part.__name__ in os.environ.get("QUIRE_SKIP_PARTS", "").split():
            print("skipped: " + part.__name__.replace("_", " "), flush=True)
            continue
        with contextlib.closing(Client()) as client:
            client.call("FLUSHALL")
        try:
            part()
        except Exception as e:  # a reply of another shape than the client expects ends up here
            check("%s runs to its end" % part.__name__.replace("_", " "), False,
                  "%s: %s, line %d" % (type(e).__name__, e, line_of(e)))
    end()


def line_of(e):
    trace = e.__traceback__
    while trace.tb_next:
        trace = trace.tb_next
    return trace.tb_lineno


def end():
    sys.exit(failed > 0)


class Client(Stream):
    """A connection in RESP 2 or 3, as the library of that name opens it."""

    def __init__(self, resp=2, library=None):
        super().__init__(PORT)
        self.resp = resp
        if resp == 3:
            self.hello = self.call("HELLO", 3)
        if library:
            self.call("CLIENT", "SETINFO", "LIB-NAME", library)

    def close(self):
        self.socket.close()

    def pipeline(self, *commands):
        return self.ask([request(*words) for words in commands])

    def transaction(self, *commands):
        """The replies within that of EXEC."""
        replies = self.ask([request("MULTI"), *(request(*words) for words in commands), request("EXEC")])
        return replies[-1]

    def hset(self, key, **fields):
        return self.call(*hset(key, fields))


def wait_filled(client, name):
    """Until the index has looked at all keys that were there before it: over RESP2."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        info = client.call("FT.INFO", name)
        pairs = dict(zip(info[::2], info[1::2]))
        if float(pairs[b"percent_indexed"]) >= 1 and int(pairs[b"indexing"]) == 0:
            return
        time.sleep(0.01)


def hset(key, fields):
    return ("HSET", key, *flat(fields))


def flat(mapping):
    """name value name value ..."""
    return [word for pair in mapping.items() for word in pair]


def text(value):
    return value.decode() if isinstance(value, bytes) else value


# ---- vectors -------------------------------------------------------------------------------------------------------


def blob(vector, kind="f"):
    """Little-endian; kind: f for FLOAT32, d for FLOAT64."""
    return struct.pack("<%d%s" % (len(vector), kind), *vector)


def embed(sentence, dim=DIM):
    """A stand-in for a model: words counted into dim numbers, so that the same words are near each other."""
    vector = [0.01] * dim
    for word in re.findall("[a-z]+", sentence.lower()):
        place = 7
        for letter in word:
            place = (place * 31 + ord(letter)) & 0xffffffff
        vector[place % dim] += 1
    norm = math.sqrt(sum(x * x for x in vector))
    return [x / norm for x in vector]


def cosine(a, b):
    """The distance."""
    def dot(x, y):
        return sum(p * q for p, q in zip(x, y))
    return 1 - dot(a, b) / math.sqrt(dot(a, a) * dot(b, b))


def approximately(a, b):
    return abs(float(a) - float(b)) < 1e-5


# ---- replies -------------------------------------------------------------------------------------------------------


def pairs(items):
    return {text(items[i]): items[i + 1] for i in range(0, len(items), 2)}


def document_rows(reply, scores=False, content=True):
    """FT.SEARCH in RESP2, as redis-py, jedis and go-redis read it: the total, and (key, fields[, score]) of each row."""
    if isinstance(reply, Error):
        raise ValueError("an error: " + reply)
    rows, at = [], 1
    while at < len(reply):
        key, at = text(reply[at]), at + 1
        score = None
        if scores:
            score, at = float(reply[at]), at + 1
        fields = {}
        if content:
            fields, at = {name: plain(value) for name, value in pairs(reply[at]).items()}, at + 1
        rows.append((key, fields, score) if scores else (key, fields))
    return reply[0], rows


def plain(value):
    """As str where it is UTF-8; vectors stay bytes."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    with contextlib.suppress(UnicodeDecodeError):
        return text(value)
    return value


def map_rows(reply):
    """FT.SEARCH and FT.AGGREGATE in RESP3's map, as redis-py 8, node-redis 6, go-redis 9 and Bifrost read it."""
    if isinstance(reply, Error):
        raise ValueError("an error: " + reply)
    by_name = {text(name): value for name, value in reply.items()}
    rows = []
    for result in by_name["results"]:
        row = {text(name): value for name, value in result.items()}
        fields = {text(name): plain(value) for name, value in row["extra_attributes"].items()}
        rows.append((text(row.get("id")), fields))
    return by_name["total_results"], rows
