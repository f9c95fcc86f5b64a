"""first_answer.py PORT KEY QUERIES TRUTH BEGIN_NS - seconds from BEGIN_NS (Unix time) to the first right answer.

Asks the first ten queries until nine tenths of their hits are among the ten exact neighbours. Elements are named by row
numbers.
"""
import struct
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from resp_client import Error, Stream, request

port, key, queries, truth, begin = sys.argv[1:]
QUERIES, K = 10, 10
with open(queries, "rb") as file:
    _, dim = struct.unpack("<2I", file.read(8))
    numbers = "<%d%s" % (dim, "f" if queries.endswith(".fbin") else "B")
    vectors = [struct.unpack(numbers, file.read(struct.calcsize(numbers))) for _ in range(QUERIES)]
with open(truth, "rb") as file:
    _, k = struct.unpack("<2I", file.read(8))
    right = [set(struct.unpack("<%dI" % K, file.read(4 * k)[: 4 * K])) for _ in range(QUERIES)]
stream = Stream(int(port))
questions = [request("VSIM", key, "FP32", struct.pack("<%df" % dim, *vector), "COUNT", K) for vector in vectors]
for _ in range(3000):
    answers = stream.ask(questions)
    found = [len(right[i] & {int(h) for h in hits}) for i, hits in enumerate(answers) if not isinstance(hits, Error)]
    if sum(found) >= 0.9 * QUERIES * K:
        print("%.3f" % (time.time() - int(begin) / 1e9))
        sys.exit(0)
    time.sleep(0.01)
sys.exit("no right answer: %r" % answers[0])
