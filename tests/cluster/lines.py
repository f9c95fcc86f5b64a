"""lines.py - commands that are sent to two servers, and whether they answer the same: vector sets, caches, indexes, JSON
documents. Ids and leases, which are drawn at random, are compared by where they were seen first; milliseconds by being
there. For the scripts of this folder."""
import pathlib
import re
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from resp_client import Error, Set  # noqa: E402

EAST, NORTH, NEARLY = (struct.pack("<4f", *v) for v in ((1, 0, 0, 0), (0, 1, 0, 0), (.95, .05, 0, 0)))
TIMES = re.compile(rb"(_ms|_mb|-us|age|time|ttl|uptime|bytes|latency|memory|us|seconds|uid|log|generation)", re.I)
TOLERANCE = 5e-3
# FIRST, LAST are ids of entries that SC.PUT has answered; LEASE is that of the last SC.GET
SETS = """
VADD v FP32 @E e SETATTR {"a":1}
VADD v FP32 @N n
VADD v VALUES 4 0 0 1 0 u
VADD v FP32 @N n CAS
VADD v VALUES 3 0 0 1 u
VADD v FP32 @E
VADD v VALUES 4 x 0 0 0 e
VSIM v FP32 @Y
VSIM v FP32 @Y WITHSCORES
VSIM v FP32 @Y WITHSCORES WITHATTRIBS
VSIM v ELE n COUNT 2
VSIM v ELE nobody
VSIM v FP32 @E FILTER .a==1
VSIM v FP32 @E FILTER .a=
VSIM v FP32 @Y WITHVECTORS COUNT 1
VSIM nothing FP32 @E
VMSIM v 2 FP32 @E ELE n COUNT 2 WITHSCORES
VEMB v e
VEMB v e RAW
VEMB v nobody
VGETATTR v e
VGETATTR v n
VSETATTR v n {"a":2}
VSETATTR v nobody {}
VSETATTR v n {broken
VISMEMBER v e
VISMEMBER v nobody
VLINKS v e
VLINKS v e WITHSCORES
VLINKS v nobody
VCARD v
VCARD nothing
VDIM v
VDIM nothing
VINFO v
VINFO nothing
VRANGE v - +
VRANGE v [a (n 5
VRANDMEMBER nothing
VRANDMEMBER v 10
VCOUNT v FILTER .a>0
VDELWHERE v FILTER .a==2 DRYRUN
VSEAL v
VSIM v FP32 @Y WITHSCORES WITHATTRIBS
VEMB v u
VGETATTR v n
VADD v FP32 @N n
VSETATTR v u {"b":1}
VREM v e
VREM v e
VCOMPACT v
VCHECK v
VCOUNT v
VCREATE t DIM 4 TENANTS TYPE f16
VCREATE t DIM 4
VADD t FP32 @E a TENANT acme
VADD t FP32 @E b
VGRANT t a bolt
VGETGRANTS t a
VGETGRANTS t nobody
VTENANTS t
VTENANTS t acme
VREVOKE t a acme
VDROPTENANT t bolt
VSIM t FP32 @E TENANT acme
VLOAD x nothing
VREM v n
VREM v u
VCARD v
VSIM v
VNONSENSE v
"""
CACHES = """
SC.CREATE faq DIM 4
SC.CREATE faq DIM 4
SC.CREATE bad DIM 0
SC.CREATE scoped DIM 4 TYPE i8 SCOPE tenant REQUIRESCOPE ENCODER e5@2
SC.LIST
SC.INFO faq
SC.CAT.SET faq q SIM 0.9 JITTER 0
SC.CAT.SET faq q SIM 9
SC.CAT.GET faq q
SC.CAT.LIST faq
SC.GET faq CAT q VEC @E HASH h NOLEASE
SC.GET faq CAT q HASH h
SC.PUT faq CAT q LEASE LEASE VEC @E HASH h TEXT what-is-east VALUE answer TAG t1 TOKENS 10 20 COST 0.5
SC.GET faq CAT q HASH h
SC.GET faq CAT q VEC @Y EXPLAIN
SC.GET faq CAT q VEC @N NOLEASE
SC.GET faq CAT q VEC @N PROBE
SC.GET faq CAT q
SC.GET faq
SC.PUT faq CAT q VEC @N HASH i VALUE other PIN
SC.PUT faq CAT q VEC @N HASH i VALUE other NX
SC.PUT faq CAT q VALUE nothing
SC.TOP faq q 5
SC.SCAN faq 0
SC.STATS faq
SC.STATS faq CAT q
SC.HIST faq q
SC.TUNE faq q
SC.TOUCH faq FIRST
SC.TOUCH faq 0000000000000000
SC.TOUCH faq 12
SC.PIN faq FIRST
SC.UNPIN faq FIRST
SC.FEEDBACK faq FIRST GOOD SIM 0.95
SC.LOAD faq model 0.5
SC.NEG faq CAT q HASH j TEXT unknown
SC.GET faq CAT q HASH j
SC.AUDIT HELP
SC.AUDIT POP faq
SC.AUDIT PUT faq 1 GOOD
SC.INVALIDATE faq TAG t1 DRYRUN
SC.INVALIDATE faq TAG t1
SC.INVALIDATE faq
SC.DEL faq LAST
SC.GET faq CAT q HASH i NOLEASE
SC.FAIL faq nolease
SC.RENEW faq nolease
SC.CAT.DEL faq q
SC.EXPORT nothing
SC.DROP faq
SC.DROP faq
SC.INFO faq
SC.GET faq CAT q HASH h
"""
SEARCHES = """
FLUSHALL
FT.CREATE i PREFIX 1 d: SCHEMA t TEXT SORTABLE g TAG SEPARATOR ; n NUMERIC SORTABLE p GEO v VECTOR FLAT 6 TYPE FLOAT32 DIM 4 DISTANCE_METRIC L2
FT.CREATE i SCHEMA t TEXT
FT.CREATE bad SCHEMA t NONSENSE
FT.CREATE c ON HASH PREFIX 2 d: e: SCHEMA v VECTOR HNSW 6 TYPE FLOAT32 DIM 4 DISTANCE_METRIC COSINE g TAG
FT._LIST
HSET d:1 t hello-moon g red;new n 1 p 13.4,52.5 v @E extra more
HSET d:2 t hello g blue n 2 p 2.3,48.9 v @N
HSET d:3 t moon g red n 30 v @Y
HSET d:4 g red n x
HSET e:1 g red v @N
FT.SEARCH i *
FT.SEARCH i hello
FT.SEARCH i @g:{red}
FT.SEARCH i @g:{red} NOCONTENT
FT.SEARCH i @n:[1,2] SORTBY n DESC
FT.SEARCH i @n:[-inf,+inf] SORTBY t ASC WITHSORTKEYS RETURN 2 t n
FT.SEARCH i hel* WITHSCORES
FT.SEARCH i -@g:{red} LIMIT 0 1
FT.SEARCH i * LIMIT 1 2 RETURN 3 t AS title
FT.SEARCH i @p:[13.4,52.5,10,km] RETURN 1 g
FT.SEARCH i *=>[KNN_2_@v_$q_AS_d] PARAMS 2 q @E DIALECT 2
FT.SEARCH i (@g:{red})=>[KNN_5_@v_$q] PARAMS 2 q @Y DIALECT 2 SORTBY __v_score RETURN 2 g __v_score
FT.SEARCH i @v:[VECTOR_RANGE_0.5_$q] PARAMS 2 q @E DIALECT 2 NOCONTENT
FT.SEARCH c *=>[KNN_5_@v_$q_AS_d] PARAMS 2 q @N DIALECT 2 RETURN 1 d
FT.SEARCH i @nothing:{x}
FT.SEARCH i (broken
FT.SEARCH none *
FT.AGGREGATE i * GROUPBY 1 @g REDUCE COUNT 0 AS n SORTBY 2 @g ASC
FT.AGGREGATE i * LOAD 2 @n @extra APPLY @n*2 AS m SORTBY 2 @n DESC
FT.AGGREGATE i * LOAD * SORTBY 2 @n ASC
FT.AGGREGATE i @n:[0,10] LOAD 1 @n WITHCURSOR COUNT 1
FT.CURSOR READ i CURSOR
FT.CURSOR DEL i CURSOR
FT.CURSOR READ i 1
FT.EXPLAIN i hello|@g:{red}
FT.EXPLAINCLI i hello
FT.TAGVALS i g
FT.TAGVALS i t
FT.ALIASADD a i
FT.ALIASADD a i
FT.ALIASUPDATE a c
FT.SEARCH a * NOCONTENT
FT.ALIASDEL a
FT.ALIASDEL a
FT.INFO i
FT.ALTER i SCHEMA ADD extra TAG
FT.ALTER i SCHEMA
HSET d:1 extra more
FT.SEARCH i @extra:{more} NOCONTENT
FT.INFO none
FT.CONFIG GET TIMEOUT
FT.CONFIG SET TIMEOUT 1
FT.SUGADD s a 1
FT.SYNDUMP i
HDEL d:1 g
FT.SEARCH i @g:{new} NOCONTENT
DEL d:2
FT.SEARCH i hello NOCONTENT
FT.DROPINDEX i DDD
FT.DROPINDEX c
EXISTS d:1 d:3 d:4 e:1
FT.DROPINDEX i DD
EXISTS d:1 d:3 d:4 e:1
FT.DROPINDEX i
"""
DOCUMENTS = """
FT.CREATE j ON JSON PREFIX 1 j: SCHEMA $.g AS g TAG $.n AS n NUMERIC $.v AS v VECTOR FLAT 6 TYPE FLOAT32 DIM 4 DISTANCE_METRIC L2
JSON.SET j:1 $ {"g":"red","n":1,"v":[1,0,0,0],"l":[1,2.5,"x",null,true],"o":{"a":{"b":[1]}}}
JSON.SET j:2 . {"g":["blue","red"],"n":2.5}
JSON.SET j:3 $.x 1
JSON.SET j:1 $ 1 NX
JSON.SET j:9 $ 1 XX
JSON.SET j:1 $ {broken
HSET h f v
JSON.SET h $ 1
JSON.GET h
JSON.GET j:1
JSON.GET j:1 $
JSON.GET j:1 $..b .n
JSON.GET j:1 INDENT - NEWLINE / SPACE _ $.o
JSON.GET nobody
JSON.MGET j:1 nobody j:2 h $.n
JSON.MSET j:3 $ {"g":"green"} j:4 $ [1,2,3] j:3 $.n 9
JSON.MSET j:5 $ 1 h $ 2
EXISTS j:5
JSON.TYPE j:1 $.*
JSON.OBJKEYS j:1
JSON.OBJLEN j:1 $..o
JSON.ARRLEN j:1 $.l
JSON.ARRAPPEND j:1 $.l 7 "y"
JSON.ARRINDEX j:1 $.l 7
JSON.ARRINSERT j:1 $.l 0 0
JSON.ARRPOP j:1 $.l
JSON.ARRTRIM j:1 $.l 1 2
JSON.NUMINCRBY j:1 $.n 4
JSON.NUMMULTBY j:1 .n 2
JSON.STRAPPEND j:1 $.g "ish"
JSON.STRLEN j:1 $.g
JSON.TOGGLE j:1 $.l
JSON.MERGE j:2 $ {"n":null,"m":1}
JSON.RESP j:1
JSON.CLEAR j:4
JSON.DEBUG MEMORY j:2
JSON.DEL j:1 $.l
JSON.GET j:1
FT.SEARCH j @g:{redish}
FT.SEARCH j @n:[9,10]
FT.SEARCH j *=>[KNN_1_@v_$q] PARAMS 2 q @E DIALECT 2
FT.AGGREGATE j * LOAD 3 $.n AS m SORTBY 2 @m ASC
JSON.DEL j:1
JSON.FORGET j:2 .
EXISTS j:1 j:2
TYPE j:3
FT.SEARCH j * NOCONTENT
FLUSHALL
FT._LIST
"""


def number(value):
    """What a number is, as such or as a text; None: it is none."""
    try:
        return None if isinstance(value, bool) or value is None or isinstance(value, list) else float(value)
    except ValueError:
        return None


def same(a, b):
    """Similarities that come from codes differ with the rotation that each cache draws."""
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    x, y = number(a), number(b)
    if type(a) is type(b) and x is not None and y is not None and not isinstance(a, int):
        return abs(x - y) < TOLERANCE or (x != x and y != y)
    return type(a) is type(b) and a == b


class Side:
    """One of the two, with what it drew."""

    def __init__(self, connection):
        """connection: what has call(*words), as resp_client.Stream has it."""
        self.connection = connection
        self.ids, self.put, self.lease, self.cursor = {}, [], b"none", b"0"

    def words(self, line):
        names = {"@E": EAST, "@N": NORTH, "@Y": NEARLY, "FIRST": (self.put or [b"-"])[0],
                 "LAST": (self.put or [b"-"])[-1], "CURSOR": self.cursor}
        words = [word.replace("_", " ") if "=>" in word or "_RANGE_" in word else word for word in line.split(" ")]
        words = [names.get(word, word) for word in words]
        if "LEASE" in words[3:-1]:
            words[words.index("LEASE", 3) + 1] = self.lease
        return words

    def ask(self, line):
        words = self.words(line)
        reply = self.connection.call(*words)
        fields = reply if isinstance(reply, dict) else \
            dict(zip(reply[::2], reply[1::2])) if isinstance(reply, list) and reply and reply[0] in (b"status", b"outcome") \
            else {}
        if line.startswith("SC.PUT") and fields.get(b"id"):
            self.put.append(fields[b"id"])
        self.lease = fields.get(b"lease") or self.lease
        if "WITHCURSOR" in words and isinstance(reply, list):
            self.cursor, reply[1] = reply[1], "cursor"
        elif line.startswith("FT.CURSOR READ") and isinstance(reply, list):
            reply[1] = "cursor" if reply[1] else 0
        return self.plain(reply)

    def plain(self, value, name=b""):
        """The reply with what differs from run to run replaced."""
        if isinstance(value, dict):
            return {key: self.plain(item, key) for key, item in value.items()}
        if isinstance(value, (list, Set)):
            out, before = [], name
            for item in value:
                out.append(self.plain(item, before))
                before = item if isinstance(item, bytes) else b""
            return sorted(out, key=repr) if isinstance(value, Set) else out
        if TIMES.search(name) and number(value) is not None:
            return "number"
        if isinstance(value, bytes) and re.fullmatch(rb"[0-9a-f]{16,40}|[0-9a-f-]{33,}", value):
            return "id %d" % self.ids.setdefault(value, len(self.ids))
        if isinstance(value, Error):
            return "error " + re.sub(r"/\S+", "PATH", value)
        return value
