"""first_answer.py PORT KEY QUERIES TRUTH BEGIN_NS - seconds from BEGIN_NS (Unix time) to the first right answer.

Asks the first query until nine of its ten hits are among the ten exact neighbours. Elements are named by row numbers.
"""
import struct
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from resp_client import Error, Stream, request

port, key, queries, truth, begin = sys.argv[1:]
with open(queries, "rb") as file:
    _, dim = struct.unpack("<2I", file.read(8))
    if queries.endswith(".fbin"):
        vector = file.read(4 * dim)
    else:
        vector = struct.pack("<%df" % dim, *file.read(dim))
with open(truth, "rb") as file:
    _, k = struct.unpack("<2I", file.read(8))
    right = set(struct.unpack("<10I", file.read(4 * k)[:40]))
stream = Stream(int(port))
for _ in range(3000):
    (hits,) = stream.ask([request("VSIM", key, "FP32", vector, "COUNT", 10)])
    if not isinstance(hits, Error) and len(right & {int(h) for h in hits}) >= 9:
        print("%.3f" % (time.time() - int(begin) / 1e9))
        sys.exit(0)
    time.sleep(0.01)
sys.exit("no right answer: %r" % hits)
