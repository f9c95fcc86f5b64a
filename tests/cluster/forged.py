"""forged.py ENGINE N SEED - what goes between nodes, forged. N arguments of each QUIRE._* command from clients, to a primary and
to a replica; N writes, images and manifests in the stream to a replica; answers to what a replica asks, N of them damaged.
Nothing crashes or hangs, what is refused has a sentence, and afterwards the two are equal again."""
import pathlib
import random
import re
import socket
import struct
import sys
import time

from nodes import Checks, Folder, Node, add, eventually, make_cache, put, vector
from proxy import Proxy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from resp_client import Error, Replies, Stream, request  # noqa: E402

engine, n_forged, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
checks = Checks()
rng = random.Random(seed)
print("seed %d" % seed)
EQUAL_S, PING_S, MEMORY_MAX = 40, 5, 1 << 30
SETTINGS = {"save": "", "appendonly": "yes", "repl_diskless_sync_delay": 0, "quire_memtable_memory": "64kb",
            "repl_ping_replica_period": 3600, "repl_timeout": 20}
NUMBERS = [b"0", b"1", b"-1", b"4194304", b"4194305", b"9223372036854775807", b"9223372036854775808", b"18446744073709551615",
           b"99999999999999999999999", b"1e9", b"0x10", b" 7", b"", b"-0", b"4095"]
FILES = [b"meta", b"blocks", b"codes", b"keys", b"attributes", b"columns", b"postings", b"../meta", b"/etc/passwd", b"me\0ta",
         b"a" * 15, b"a" * 16, b"", b"." * 300, b"..", b"LOCK"]
SENTENCE = re.compile(r"[A-Z]+ \S+ \S+")


def digests(node):
    try:
        c = node.client()
        return {key: c.execute_command("QUIRE.DIGEST", key) for key in sorted(c.keys())}
    except Exception as e:  # whatever it is, they are not equal
        return "%s: %s" % (node.name, e)


def equal(one, other):
    return eventually(lambda: isinstance(seen := digests(one), dict) and seen == digests(other), EQUAL_S)


def memory(node):
    with open("/proc/%d/statm" % node.process.pid) as f:
        return int(f.read().split()[1]) * 4096


def lives(*nodes):
    """Each answers, and soon; what is wrong otherwise."""
    for node in nodes:
        if node.process.poll() is not None:
            return "%s has ended: %s" % (node.name, node.log(30))
        try:
            begin = time.time()
            if Stream(node.port, PING_S).call("PING") != "PONG" or time.time() - begin > PING_S:
                return "%s is slow" % node.name
        except OSError as e:
            return "%s does not answer: %s" % (node.name, e)
        if memory(node) > MEMORY_MAX:
            return "%s has %d MiB" % (node.name, memory(node) >> 20)
    return None


def random_bytes(most):
    return rng.randbytes(rng.randrange(most))


def mutated(data):
    """Cut, longer, with other bytes, or twice."""
    data = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        dice = rng.randrange(6)
        if dice == 0:
            del data[rng.randrange(len(data) + 1):]
        elif dice == 1:
            data += random_bytes(40)
        elif dice == 2 and data:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        elif dice == 3 and len(data) > 8:
            at = rng.randrange(len(data) - 8)
            data[at:at + 4] = struct.pack("<I", rng.choice([0, 1, 0xFFFFFFFF, 0x7FFFFFFF, rng.getrandbits(32)]))
        elif dice == 4 and len(data) > 8:
            at, n = rng.randrange(len(data) - 8), rng.randrange(1, 64)
            del data[at:at + n]
        elif dice == 5:
            data += data[:rng.randrange(len(data) + 1)]
    return bytes(data)


# ---- from clients --------------------------------------------------------------------------------------------------------

class Known:
    """What is true of the pair, for forgeries to be near: ids of sets, segments, a cache and its entries, and commands of the
    stream."""

    def __init__(self):
        self.ids, self.segments, self.frames, self.cache, self.entries = [], [], [], b"", []

    def word(self):
        dice = rng.random()
        if dice < 0.30 and self.ids:
            return rng.choice(self.ids)
        if dice < 0.50 and self.segments:
            return rng.choice(self.segments)
        if dice < 0.60:
            return rng.choice(NUMBERS)
        if dice < 0.70:
            return rng.choice(FILES)
        if dice < 0.80:
            return b"%032x" % rng.getrandbits(128)
        if dice < 0.90 and self.frames:
            return mutated(rng.choice(self.frames)[-1])
        return rng.choice([b"set", b"cache", b"v", b"w", b"x" * 70000, b"\0" * 32, b"G" * 32, random_bytes(200)])

    def right(self, name):
        """Arguments that would be taken, one of which may be exchanged."""
        first = rng.choice(self.ids)
        if name in ("_W", "_IMAGE"):
            return [b"v", first, rng.choice(self.frames)[-1] if self.frames else b""]
        if name == "_MANIFEST":
            return [b"v", rng.choice([b"set", b"cache"]), first, rng.choice(NUMBERS)]
        if name == "_HAVE":
            return [b"%016x" % rng.getrandbits(3), first, rng.choice(NUMBERS)]
        if name == "_LIST":
            return [self.cache, rng.choice(NUMBERS)]
        if name == "_ENTRIES":
            return [self.cache, b"".join(rng.choice(self.entries) for _ in range(rng.randrange(1, 40)))]
        words = [first, rng.choice(self.segments), rng.choice(FILES), rng.choice(NUMBERS), rng.choice(NUMBERS)]
        return words[:{"_COPY": 1, "_FILES": 2, "_READ": 5}[name]]

    def forge(self, name):
        words = self.right(name)
        if rng.random() < 0.7:
            at = rng.randrange(len(words))
            words[at] = rng.choice([self.word(), mutated(words[at])])
        if rng.random() < 0.2:
            words = [self.word() for _ in range(rng.randrange(9))]
        if rng.random() < 0.05:
            rng.shuffle(words)
        return words


COMMANDS = ("_W", "_IMAGE", "_MANIFEST", "_COPY", "_FILES", "_READ", "_HAVE", "_LIST", "_ENTRIES")


def from_clients(known, nodes):
    for node in nodes:
        stream, wrong, taken, cut = Stream(node.port), [], 0, 0
        for name in COMMANDS:
            for i in range(n_forged):
                words = known.forge(name)
                if i % 50 == 7:  # in a transaction and a script, where nobody may be made to wait
                    reply = stream.ask([request("MULTI"), request("QUIRE." + name, *words), request("EXEC")])[-1]
                    reply = reply[0] if isinstance(reply, list) and not isinstance(reply, Error) and reply else reply
                elif i % 50 == 8:
                    reply = stream.call("EVAL", "return redis.call(unpack(ARGV))", 0, "QUIRE." + name, *words)
                elif i % 50 == 9:  # who does not wait for the answer
                    with socket.create_connection(("127.0.0.1", node.port)) as s:
                        s.sendall(request("QUIRE." + name, *words) * 3)
                    cut += 1
                    continue
                else:
                    reply = stream.call("QUIRE." + name, *words)
                refused = isinstance(reply, Error)
                taken += not refused
                if refused and not SENTENCE.match(reply):
                    wrong.append((name, words, reply))
                if not refused and name in ("_W", "_IMAGE", "_MANIFEST"):
                    wrong.append((name, words, reply))
        checks.same("%s: %d commands, of which %d are answered and the others refused with a sentence; %d that nobody waits "
                    "for" % (node.name, len(COMMANDS) * n_forged, taken, cut), wrong[:3], [])
        checks.same("%s: it lives" % node.name, lives(*nodes), None)


# ---- in the stream -------------------------------------------------------------------------------------------------------

class Recorder:
    """Keeps what the engine's link brings from now on, and what is answered to a replica."""

    def __init__(self, proxy):
        self.proxy, self.stream, self.effects = proxy, Replies(), []

    def __call__(self, data, from_primary, connection):
        if from_primary and connection is self.proxy.link:
            self.effects += [words for words in self.stream.feed(data) if words[0].startswith(b"QUIRE._")]
        return data


def pair(folder):
    primary = Node(folder, "primary", engine, **SETTINGS)
    proxy = Proxy(primary.port)
    replica = Node(folder, "replica", engine, replicaof="127.0.0.1 %d" % proxy.port, **SETTINGS)
    checks.that("the replica is attached", eventually(lambda: primary.info("replicas") == 1, 30))
    return primary, replica, proxy


def write_all(c):
    """All kinds of effects."""
    for key in ("v", "w"):
        for i in range(300):
            add(c, key, i)
        c.execute_command("VSEAL", key)
        for i in range(0, 60, 3):
            c.execute_command("VREM", key, "e%d" % i)
            c.execute_command("VSETATTR", key, "e%d" % (i + 1), '{"n":1}')
            add(c, key, i + 2 + 5000, "e%d" % (i + 2))
        c.execute_command("VSEAL", key)
        c.execute_command("VCOMPACT", key)
    c.execute_command("VCREATE", "t", "DIM", 8, "TENANTS")
    for i in range(20):
        c.execute_command("VADD", "t", "VALUES", 8, *vector(i), "e%d" % i, "TENANT", "acme" if i % 2 else "bolt")
    c.execute_command("VDROPTENANT", "t", "bolt")
    c.copy("w", "x")
    c.execute_command("SC.CREATE", "faq", "DIM", 4, "SCOPE", "tenant")
    c.execute_command("SC.CAT.SET", "faq", "q", "SIM", "0.9", "GUARD", "number", "date")
    c.delete("faq")
    make_cache(c, "c")
    for i in range(200):
        put(c, "c", i)
    _, some = c.execute_command("SC.SCAN", "c", 0, "COUNT", 40)
    for entry in some:
        c.execute_command("SC.DEL" if rng.random() < 0.5 else "SC.PIN", "c", entry[entry.index(b"id") + 1])
    c.execute_command("SC.INVALIDATE", "c", "NEAR", struct.pack("<8f", *vector(41)), "0.999")


def learn(primary, replica, proxy):
    known, recorder = Known(), Recorder(proxy)
    link = proxy.link
    eventually(lambda: primary.client().info("replication")["slave0"]["state"] == "online" and not time.sleep(0.5), 10)
    asked = set()

    def listen(data, from_primary, connection):
        if not from_primary:
            for found in re.finditer(rb"QUIRE\._(?:READ|FILES)\r\n\$32\r\n([0-9a-f]{32})\r\n\$32\r\n([0-9a-f]{32})", data):
                asked.add(found.groups())
        return recorder(data, from_primary, connection)

    proxy.harm = listen
    write_all(primary.client())
    checks.that("before: equal", equal(primary, replica), digests(primary), digests(replica))
    eventually(lambda: replica.info("segments") == primary.info("segments"), 20)
    time.sleep(0.5)
    proxy.harm = None
    assert link is proxy.link, "the link was broken meanwhile"
    known.frames = [words for words in recorder.effects if words[0] in (b"QUIRE._W", b"QUIRE._IMAGE", b"QUIRE._MANIFEST")]
    known.ids = sorted({words[2] if words[0] != b"QUIRE._MANIFEST" else words[3] for words in known.frames})
    known.segments = sorted({segment for _, segment in asked})
    known.cache = next(words[2] for words in known.frames if words[1] == b"c")
    known.entries = [struct.pack("<Q", int(entry[entry.index(b"id") + 1], 16))
                     for entry in primary.client().execute_command("SC.SCAN", "c", 0, "COUNT", 1000)[1]]
    checks.that("the stream has writes, images and manifests", len({words[0] for words in known.frames}) == 3 and
                len(known.frames) > 500 and known.segments, len(known.frames), known.segments)
    return known


def in_stream(known, primary, replica, proxy):
    """Frames that were cut, changed, or come in another order; nobody answers to them."""
    for turn in range(4):
        frames = []
        for _ in range(n_forged // 4):
            words = list(rng.choice(known.frames))
            dice = rng.random()
            if dice < 0.5:
                words[-1] = mutated(words[-1])
            elif dice < 0.6:
                at = rng.randrange(1, len(words))
                words[at] = known.word()
            elif dice < 0.7:
                words = [words[0]] + [known.word() for _ in range(rng.randrange(7))]
            elif dice < 0.75:
                words[0] = rng.choice([b"QUIRE._W", b"QUIRE._IMAGE"])
            frames.append(request(*words))
        for frame in frames:
            if not proxy.inject(frame):
                break
        seen = eventually(lambda: not lives(replica), 30)
        checks.that("turn %d: the replica takes or refuses %d frames" % (turn, len(frames)), seen, lives(replica))
        before = proxy.link
        primary.client().execute_command("CLIENT", "KILL", "TYPE", "replica")
        # what it has counted is more than its primary has sent: it is synchronised in full
        eventually(lambda: proxy.link is not before and
                   replica.client().info("replication")["master_link_status"] == "up", 30)
        checks.that("turn %d: equal after the next synchronisation" % turn, equal(primary, replica), digests(primary),
                    digests(replica))
        add(primary.client(), "v", 9000 + turn)
        checks.that("turn %d: and it follows" % turn, equal(primary, replica), digests(primary), digests(replica))


# ---- in answers ----------------------------------------------------------------------------------------------------------

class Liar:
    """Damages answers on the connection beside the engine's link, one in three."""
    ANSWERS = [b"$-1\r\n", b"*0\r\n", b"*-1\r\n", b"*32\r\n", b"*2000000000\r\n", b"*3\r\n", b":7\r\n", b"+OK\r\n",
               b"$1073741825\r\n", b"$9223372036854775807\r\n", b"$-5\r\n", b"-NOSEGMENT no\r\n", b"-ERR " + b"x" * 5000 + b"\r\n",
               b"-\r\n", b"?\r\n", b"\r\n", b"*2\r\n$4\r\nmeta\r\n:9223372036854775807\r\n",
               b"*4\r\n$4\r\nmeta\r\n:1\r\n$4\r\nmeta\r\n:1\r\n", b"*2\r\n$7\r\n../meta\r\n:5\r\n", b"*2\r\n-NOSEGMENT x\r\n:5\r\n",
               b"*2\r\n$40\r\n" + b"m" * 40 + b"\r\n:5\r\n"]

    ASKED = {b"_READ", b"_LIST", b"_ENTRIES"}  # all are to be, so that answers of each kind are damaged now and then

    def __init__(self):
        self.lies, self.asked, self.questions = 0, set(), 0

    def __call__(self, data, from_primary, connection):
        if not from_primary:
            self.questions += connection.asks
            self.asked |= {name for name in self.ASKED if b"QUIRE." + name in data}
        if not from_primary or not connection.asks or rng.random() < 0.66:
            return data
        self.lies += 1
        return rng.choice([None, rng.choice(self.ANSWERS), mutated(data), rng.choice(self.ANSWERS) + data, data + data])


def in_answers(primary, replica, proxy):
    liar, c, n = Liar(), primary.client(), 0
    proxy.harm = liar
    until = time.time() + 60
    while (liar.lies < n_forged // 10 or liar.asked != liar.ASKED) and time.time() < until:
        key, questions = "k%d" % rng.randrange(12), liar.questions
        with c.pipeline(transaction=False) as p:
            for _ in range(30):
                n += 1
                add(p, key, 20000 + n, "e%d" % (n % 400))
            p.execute_command("VSEAL", key)
            p.execute()
        if rng.random() < 0.3:  # all of it is asked for, and entries that were put while it was away
            proxy.inject(request("PING"))  # it has counted more than its primary has sent: a full synchronisation
            proxy.link.client.close() if rng.random() < 0.5 else c.execute_command("CLIENT", "KILL", "TYPE", "replica")
            for i in range(40):
                put(c, "c", 1000 + rng.randrange(3000))
        eventually(lambda: liar.questions > questions, 0.5)  # a lie may keep it waiting for some seconds
        if lives(replica):
            break
    checks.same("%d answers are lies: the replica lives" % liar.lies, lives(primary, replica), None)
    checks.same("it has asked for pieces, lists and entries", liar.asked, liar.ASKED)
    segments = replica.info("segments_damaged")
    proxy.harm = None
    checks.that("and is equal when they are true again (%s segments came damaged)" % segments, equal(primary, replica),
                digests(primary), digests(replica))
    eventually(lambda: replica.info("segments") == primary.info("segments"), 30)
    checks.same("with all segments", replica.info("segments"), primary.info("segments"))


with Folder() as folder:
    primary, replica, proxy = pair(folder)
    known = learn(primary, replica, proxy)
    from_clients(known, [primary, replica])
    checks.that("after forged commands: equal", equal(primary, replica), digests(primary), digests(replica))
    in_stream(known, primary, replica, proxy)
    in_answers(primary, replica, proxy)
    replica.kill()
    replica.start()
    checks.that("after a restart: equal", equal(primary, replica), digests(primary), digests(replica))
    proxy.close()
checks.end()
