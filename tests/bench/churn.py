#!/usr/bin/env python3
"""churn.py - deletes and inserts again 30 % of a vector set, for minutes: recall, disk and memory all the while.

The rows of BASE are inserted, and the least EF of a ladder whose recall@10 is 0.95 on the settled set becomes the
effort. Then 30 % of the elements, chosen at random, are removed and added again, over and over. Every --every seconds:
recall at that effort and at 1.1 times of it against brute force over what is there at that moment, bytes of the data
folder, resident memory as the kernel has it. At the end the same, when merges have settled.

Live data are the elements' vectors as 32-bit floats; the ratio to vectors as the set stores them (8-bit codes, unless
--noquant) stands beside it. The memory budget is that of sealed segments and memtables (maxmemory) and of one seal or
merge (build-memory), and 48 MB for the program.

Prints a line per sample on standard error, JSON on standard output or to --out, and a verdict per bar; the exit status
is 1 when one is missed.
"""
import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from resp_client import Error, Stream, request

LADDER = tuple(round(10 * 1.08 ** i) for i in range(60))
PROGRAM_BYTES = 48 << 20
CHUNK = 500  # commands between two looks at the clock


def size_of(text):
    units = {"kb": 10, "mb": 20, "gb": 30}
    return int(text[:-2]) << units[text[-2:]]


def read_vectors(path, rows):
    n, dim = np.fromfile(path, "<u4", 2)
    vectors = np.memmap(path, "<f4", "r", 8, (int(n), int(dim)))[:rows]
    return np.array(vectors) / np.linalg.norm(vectors, axis=1, keepdims=True)


class Set:
    """The set and what it should hold."""

    def __init__(self, options, port):
        self.options = options
        self.base = read_vectors(options.base, options.rows)
        self.queries = read_vectors(options.queries, options.queries_most)
        self.similarity = self.queries @ self.base.T
        self.stream = Stream(port)
        self.words = ("NOQUANT",) if options.noquant else ()
        self.alive = np.zeros(len(self.base), bool)
        self.writes = self.refused = 0

    def ask(self, *words):
        (reply,) = self.stream.ask([request(*words)])
        if isinstance(reply, Error):
            raise RuntimeError("%s: %s" % (words[0], reply))
        return reply

    def write(self, ids, add):
        """Those that the server refuses, for it is behind, are written again."""
        ids = list(map(int, ids))
        while ids:
            if add:
                requests = [request("VADD", "set", "FP32", self.base[i].tobytes(), i, *self.words) for i in ids]
            else:
                requests = [request("VREM", "set", i) for i in ids]
            replies = self.stream.ask(requests)
            again = [i for i, reply in zip(ids, replies) if isinstance(reply, Error)]
            if again:
                texts = {r for r in replies if isinstance(r, Error)}
                if any("write more slowly" not in t and not t.startswith("OOM") for t in texts):
                    raise RuntimeError("; ".join(texts))
                time.sleep(0.05)
            self.writes += len(ids) - len(again)
            self.refused += len(again)
            self.alive[[i for i, reply in zip(ids, replies) if not isinstance(reply, Error)]] = add
            ids = again

    def recall(self, effort):
        """effort 0: the server's choice."""
        seen = np.where(self.alive, self.similarity, -2)
        tenth = np.partition(seen, -10, axis=1)[:, -10]
        words = ("EF", effort) if effort else ()
        requests = [request("VSIM", "set", "FP32", q.tobytes(), "COUNT", 10, *words) for q in self.queries]
        right = 0
        for i, hits in enumerate(self.stream.ask(requests)):
            if isinstance(hits, Error) or not all(self.alive[int(h)] for h in hits):
                raise RuntimeError("VSIM: %r" % hits)
            right += sum(bool(seen[i, int(h)] >= tenth[i] - 1e-6) for h in hits)
        return right / 10 / len(self.queries)

    def info(self):
        fields = self.ask("VINFO", "set")
        return {k.decode() if isinstance(k, bytes) else k: v for k, v in zip(fields[::2], fields[1::2])}

    def settle(self, seconds):
        """Until nothing has changed for three seconds and no memtable waits for its seal, and at most so long."""
        end, last, since = time.monotonic() + seconds, None, time.monotonic()
        while time.monotonic() < end:
            info = self.info()
            now = [info[k] for k in ("segments", "merges", "memory-rows", "disk-bytes")]
            if now != last:
                last, since = now, time.monotonic()
            elif time.monotonic() - since > 3 and info["memory-bytes"] <= size_of(self.options.memtable_memory):
                return True
            time.sleep(0.1)
        return False


def folder_bytes(folder):
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(place, name)).st_blocks * 512
            except FileNotFoundError:
                pass  # a merge has just removed it
    return total


def memory(pid):
    with open("/proc/%d/status" % pid, encoding="ascii") as file:
        lines = dict(line.split(":", 1) for line in file)
    return {name: int(lines[name].split()[0]) * 1024 for name in ("VmRSS", "VmHWM", "RssAnon")}


def sample(options, vectors, process, data, begin, label=""):
    live, dim = int(vectors.alive.sum()), vectors.base.shape[1]
    disk, info = folder_bytes(data), vectors.info()
    out = {"seconds": round(time.monotonic() - begin, 1), "label": label, "live": live, "writes": vectors.writes,
           "refused": vectors.refused, "recall": round(vectors.recall(options.effort), 4),
           "recall_at_1.1": round(vectors.recall(round(options.effort * 1.1)), 4),
           "recall_without_ef": round(vectors.recall(0), 4), "disk_bytes": disk,
           "disk_to_raw": round(disk / (live * dim * 4), 3),
           "disk_to_stored": round(disk / (live * dim * (4 if options.noquant else 1)), 3), **memory(process.pid),
           "segments": info["segments"], "dead_rows": info["dead-rows"], "memory_rows": info["memory-rows"],
           "merges": info["merges"]}
    print("%(seconds)6.1f s %(label)-8s live %(live)d recall %(recall).4f, without EF %(recall_without_ef).4f "
          "disk/raw %(disk_to_raw).2f "
          "RSS %(rss).0f MB segments %(segments)d dead %(dead_rows)d in memory %(memory_rows)d writes %(writes)d" %
          {**out, "rss": out["VmRSS"] / 1e6}, file=sys.stderr, flush=True)
    return out


def churn(options, vectors, process, data):
    chooser, n = random.Random(options.seed), len(vectors.base)
    for first in range(0, n, CHUNK):
        vectors.write(range(first, min(first + CHUNK, n)), True)
    vectors.settle(120)
    options.effort = next((e for e in LADDER if vectors.recall(e) >= 0.95), LADDER[-1])
    begin = time.monotonic()
    samples, rounds = [sample(options, vectors, process, data, begin, "start")], 0
    next_sample, end = begin + options.every, begin + options.minutes * 60
    while time.monotonic() < end:
        chosen = chooser.sample(range(n), round(n * options.share))
        for add in (False, True):
            for first in range(0, len(chosen), CHUNK):
                vectors.write(chosen[first:first + CHUNK], add)
                if time.monotonic() > next_sample:
                    samples.append(sample(options, vectors, process, data, begin))
                    next_sample += options.every
        rounds += 1
    settled = vectors.settle(180)
    samples.append(sample(options, vectors, process, data, begin, "settled" if settled else "busy"))
    return samples, rounds


def verdicts(options, samples):
    last = samples[-1]
    worst = min(s["recall_at_1.1"] for s in samples)
    budget = size_of(options.maxmemory) + size_of(options.build_memory) + PROGRAM_BYTES
    most = max(s["VmRSS"] for s in samples)
    return [("recall at 1.1 times the effort never below 0.95: %.4f" % worst, worst >= 0.95),
            ("disk at most 2.5 times the live vectors (f32) once merges settled: %.2f" % last["disk_to_raw"],
             last["disk_to_raw"] <= 2.5 and last["label"] == "settled"),
            ("resident memory within %.0f MB: %.0f MB" % (budget / 1e6, most / 1e6), most <= budget)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", type=Path, metavar="BASE", help="vectors, .fbin (cosine)")
    parser.add_argument("queries", type=Path, metavar="QUERIES", help="queries, .fbin")
    parser.add_argument("--build-dir", type=Path, default=ROOT / "build/release")
    parser.add_argument("--rows", type=int, default=None, help="of BASE (all)")
    parser.add_argument("--queries-most", type=int, default=500)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--every", type=float, default=30, help="seconds between samples")
    parser.add_argument("--share", type=float, default=0.3, help="of the set that is removed at a time")
    parser.add_argument("--noquant", action="store_true", help="a set of 32-bit floats")
    parser.add_argument("--memtable-memory", default="16mb")
    parser.add_argument("--maxmemory", default="256mb")
    parser.add_argument("--build-memory", default="128mb")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="quire-churn."))
    process = None
    try:
        settings = ["--memtable-memory", options.memtable_memory, "--maxmemory", options.maxmemory, "--build-memory",
                    options.build_memory, "--checkpoint-log", "32mb"]
        with open(folder / "log", "wb") as log:
            process = subprocess.Popen([str(options.build_dir / "quire-server"), "--port", "0", "--port-file",
                                        str(folder / "port"), "--dir", str(folder / "data"), *settings],
                                       stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        while not (folder / "port").exists():
            if process.poll() is not None:
                raise RuntimeError((folder / "log").read_text())
            time.sleep(0.01)
        vectors = Set(options, int((folder / "port").read_text()))
        samples, rounds = churn(options, vectors, process, folder / "data")
    except (RuntimeError, OSError) as e:
        print("churn.py: %s" % e, file=sys.stderr)
        print((folder / "log").read_text(errors="replace")[-2000:], file=sys.stderr)
        return 2
    finally:
        if process and process.poll() is None:
            process.terminate()
            process.wait(60)
        shutil.rmtree(folder, ignore_errors=True)
    judged = verdicts(options, samples)
    text = json.dumps({"rows": len(vectors.base), "effort": options.effort, "rounds": rounds, "settings": settings,
                       "samples": samples, "verdicts": [{"what": w, "right": bool(r)} for w, r in judged]}, indent=1)
    if options.out:
        options.out.write_text(text + "\n")
    else:
        print(text)
    for what, right in judged:
        print(("ok - " if right else "FAIL - ") + what, file=sys.stderr)
    return 0 if all(right for _, right in judged) else 1


if __name__ == "__main__":
    sys.exit(main())
