#!/usr/bin/env python3
"""documents.py - an index (FT.CREATE) over 200,000 hashes: HSET per second, KNN under filters (recall and reads),
restarts.

A hash has five fields (two TAG, two NUMERIC, one TEXT) and a vector of 256 x f32. 4 connections, each a process of
its own, write them with 16 requests on the way. Then KNN 10 is asked under a tag that 5 % of the documents have,
under 50 %, under a tag and a number, and without a filter; recall is counted against all distances computed here (a
document as near as the tenth is right). Reads are the growth of `search_reads` in INFO. Questions are held-out
vectors.

Vectors: --base and --queries (.fbin; text.fbin of real text, say); where there are fewer rows than --rows, the others
are rows of it with noise. Without --base `quire gen` makes clusters.

The bars: 4,000 HSET per second, recall 0.95 at 24 reads under a tag, 3 s for a restart.
"""
import argparse
import json
import multiprocessing
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
from server_process import Server

K, PIPELINE = 10, 16
WORDS = "apple brook cedar delta ember fjord grove heath islet jetty".split()
FILTERS = {"a tag, 5 %": ("@topic:{topic7}", lambda f: f["topic"] == 7),
           "a tag, 50 %": ("@lang:{lang0}", lambda f: f["lang"] == 0),
           "a tag and a number, 1 %": ("(@topic:{topic7} @year:[2000 2009])",
                                       lambda f: (f["topic"] == 7) & (f["year"] < 2010)),
           "no filter": ("*", lambda f: np.ones(len(f["topic"]), bool))}
BARS = {"hset_per_second": 4000, "recall": 0.95, "reads": 24, "restart_seconds": 3}


def read_fbin(path):
    with open(path, "rb") as file:
        rows, dim = np.fromfile(file, "<u4", 2)
        return np.fromfile(file, "<f4", int(rows) * int(dim)).reshape(rows, dim)


def vectors(options, folder):
    """The documents' and the questions'."""
    if options.base:
        base, queries = read_fbin(options.base), read_fbin(options.queries)
        generator = np.random.default_rng(1)
        if len(base) < options.rows:
            more = base[generator.integers(0, len(base), options.rows - len(base))]
            more = more + generator.normal(0, 0.3 / np.sqrt(base.shape[1]), more.shape).astype("<f4")
            base = np.concatenate([base, more])
        base = base[:options.rows]
    else:
        subprocess.run([options.build_dir / "quire", "gen", "--rows", str(options.rows), "--dim", str(options.dim),
                        "--clusters", "500",
                        "--intrinsic", "24", "--queries", str(options.queries_asked), "--k", "10", "--metric",
                        "cosine", "--out", folder / "base",
                        "--progress", "never"], check=True, stdout=subprocess.DEVNULL)
        base, queries = read_fbin(folder / "base.fbin"), read_fbin(folder / "base.query.fbin")
    return tuple((a / np.linalg.norm(a, axis=1, keepdims=True)).astype("<f4")
                 for a in (base, queries[:options.queries_asked]))


def fields(rows):
    generator = np.random.default_rng(2)
    return {"topic": generator.integers(0, 20, rows), "lang": generator.integers(0, 2, rows),
            "year": generator.integers(2000, 2050, rows),
            "price": generator.integers(1, 1000, rows), "word": generator.integers(0, len(WORDS), (rows, 5))}


def document(base, f, i):
    return request("HSET", "doc:%d" % i, "topic", "topic%d" % f["topic"][i], "lang", "lang%d" % f["lang"][i], "year",
                   int(f["year"][i]), "price",
                   int(f["price"][i]), "title", " ".join(WORDS[w] for w in f["word"][i]), "v", base[i].tobytes())


def write(port, base, f, first, end, result):
    """Writes documents [first, end) with PIPELINE requests on the way; puts its seconds into result."""
    requests = [document(base, f, i) for i in range(first, end)]
    stream, sent, answered = Stream(port, 600), 0, 0
    begin = time.monotonic()
    while answered < len(requests):
        upto = min(answered + PIPELINE, len(requests))
        if upto > sent:
            stream.socket.sendall(b"".join(requests[sent:upto]))
            sent = upto
        for reply in stream.feed(stream.socket.recv(1 << 16)):
            if isinstance(reply, Error):
                result.put(reply)
                return
            answered += 1
    result.put(time.monotonic() - begin)


def fill(port, base, f, connections):
    result, step = multiprocessing.Queue(), (len(base) + connections - 1) // connections
    workers = [multiprocessing.Process(target=write, args=(port, base, f, at, min(at + step, len(base)), result))
               for at in range(0, len(base), step)]
    for worker in workers:
        worker.start()
    seconds = [result.get() for _ in workers]
    for worker in workers:
        worker.join()
    if any(isinstance(s, str) for s in seconds):
        sys.exit("HSET: %s" % next(s for s in seconds if isinstance(s, str)))
    return max(seconds)


def info(stream, section):
    return dict(line.split(":", 1) for line in stream.call("INFO", section).decode().splitlines() if ":" in line)


def search_counters(stream):
    everything = info(stream, "everything")
    return int(everything["searches"]), int(everything["search_reads"])


def truth(base, queries, passes):
    """For each question the distance of the tenth, and all distances."""
    rows = np.flatnonzero(passes)
    near = np.empty((len(queries), min(K, len(rows))), "<f4")
    for at in range(0, len(queries), 50):
        d = 1 - queries[at:at + 50] @ base[rows].T
        near[at:at + 50] = np.sort(np.partition(d, min(K, len(rows)) - 1, axis=1)[:, :K], axis=1)
    return near


def ask(stream, base, queries, f, name):
    text, holds = FILTERS[name]
    near, before, right, seconds = truth(base, queries, holds(f)), search_counters(stream), 0, []
    for q, distances in zip(queries, near):
        begin = time.monotonic()
        reply = stream.call("FT.SEARCH", "docs", "%s=>[KNN %d @v $q AS d]" % (text, K), "PARAMS", 2, "q", q.tobytes(),
                            "SORTBY", "d", "RETURN", 1, "d",
                            "DIALECT", 2)
        seconds.append(time.monotonic() - begin)
        if isinstance(reply, Error):
            sys.exit("FT.SEARCH: %s" % reply)
        found = [int(key[4:]) for key in reply[1::2]]
        assert holds({n: v[found] for n, v in f.items()}).all(), "a document that does not pass"
        right += sum(1 - float(base[i] @ q) <= distances[-1] + 1e-6 for i in found)
    after, seconds = search_counters(stream), sorted(seconds)
    return {"filter": name, "matches": int(holds(f).sum()), "recall": round(right / near.size, 4),
            "searches_counted": after[0] - before[0],
            "reads": round((after[1] - before[1]) / len(queries), 2),
            "ms_median": round(1000 * seconds[len(seconds) // 2], 2),
            "ms_p99": round(1000 * seconds[len(seconds) * 99 // 100], 2)}


def settle(stream):
    """Waits until seals and merges have come to an end: their counters stand still for three seconds."""
    last, since, end = None, time.monotonic(), time.monotonic() + 600
    while time.monotonic() < min(since + 3, end):
        everything = info(stream, "everything")
        seen = tuple(everything[name] for name in ("seals", "merges", "rows_merged", "disk_bytes"))
        if seen != last:
            last, since = seen, time.monotonic()
        time.sleep(0.2)


def restart(server, base, queries, how):
    """Seconds from the start of the process to the first right answer: the nearest, and all are counted."""
    if how == "kill -9":
        server.kill()
    else:
        server.stop()
    begin = time.monotonic()
    server.start()
    stream = Stream(server.port, 600)
    accepts = time.monotonic() - begin
    want = int(np.argmax(base @ queries[0]))
    while True:
        count = stream.call("FT.SEARCH", "docs", "*", "LIMIT", 0, 0)
        reply = stream.call("FT.SEARCH", "docs", "*=>[KNN 1 @v $q]", "PARAMS", 2, "q", base[want].tobytes(),
                            "NOCONTENT", "DIALECT", 2)
        if count == [len(base)] and reply == [1, b"doc:%d" % want]:
            break
        if time.monotonic() - begin > 300:
            sys.exit("no right answer within five minutes: %r %r" % (count, reply))
        time.sleep(0.005)
    return stream, {"case": how, "accepts_seconds": round(accepts, 3),
                    "right_seconds": round(time.monotonic() - begin, 3)}


def measure(options, folder):
    base, queries = vectors(options, folder)
    f = fields(len(base))
    server = Server(options.build_dir, folder, "--appendfsync", "everysec", *options.setting)
    try:
        stream = Stream(server.port, 600)
        reply = stream.call("FT.CREATE", "docs", "ON", "HASH", "PREFIX", 1, "doc:", "SCHEMA", "topic", "TAG", "lang",
                            "TAG", "year", "NUMERIC", "SORTABLE",
                            "price", "NUMERIC", "title", "TEXT", "v", "VECTOR", options.algorithm, 6, "TYPE",
                            "FLOAT32", "DIM", base.shape[1],
                            "DISTANCE_METRIC", "COSINE")
        if reply != "OK":
            sys.exit("FT.CREATE: %s" % reply)
        seconds = fill(server.port, base, f, options.connections)
        count = stream.call("FT.SEARCH", "docs", "*", "LIMIT", 0, 0)
        shown = stream.call("FT.INFO", "docs")
        errors = shown[shown.index(b"Index Errors") + 1]
        settle(stream)
        memory = int(info(stream, "memory")["used_memory_rss"])
        result = {"rows": len(base), "dim": int(base.shape[1]), "data": str(options.base or "quire gen"),
                  "connections": options.connections,
                  "hset_per_second": round(len(base) / seconds), "found": count[0] if isinstance(count, list)
                  else str(count),
                  "indexing_failures": errors[1], "last_indexing_error": errors[3].decode(errors="replace"),
                  "resident_bytes": memory, "raw_vector_bytes": base.nbytes}
        print("%d documents: %d HSET/s on %d connections; %.0f MB resident, vectors alone %.0f MB" % (
            len(base), result["hset_per_second"], options.connections, memory / 1e6, base.nbytes / 1e6), flush=True)
        if count != [len(base)]:
            print("only %s of them are found; %d indexing failures, the last: %s" % (
                result["found"], result["indexing_failures"], result["last_indexing_error"]), flush=True)
        result["knn"] = [ask(stream, base, queries, f, name) for name in FILTERS]
        print("%-26s %10s %8s %8s %10s %8s" % ("KNN 10 under", "matches", "recall", "reads", "ms median", "ms p99"))
        for row in result["knn"]:
            print("%-26s %10d %8.3f %8.1f %10.2f %8.2f" % (row["filter"], row["matches"], row["recall"], row["reads"],
                                                           row["ms_median"], row["ms_p99"]))
        result["restarts"] = []
        for how in ("SIGTERM", "kill -9"):
            stream, row = restart(server, base, queries, how)
            result["restarts"].append(row)
            print("restart after %s: right after %.2f s" % (how, row["right_seconds"]), flush=True)
        result["knn_after_restart"] = ask(stream, base, queries, f, "a tag, 5 %")
        server.stop()
        return result
    finally:
        if server.process.poll() is None:
            server.kill()


def verdict(result):
    tag = result["knn"][0]
    missed = [] if result["found"] == result["rows"] else ["%s of %d documents found" % (result["found"], result["rows"])]
    for name, value, least in (("HSET/s", result["hset_per_second"], BARS["hset_per_second"]),
                               ("recall under a tag", tag["recall"], BARS["recall"])):
        missed += ["%s %s, at least %s" % (name, value, least)] if value < least else []
    for name, value, most in (("reads under a tag", tag["reads"], BARS["reads"]),
                              *(("restart after %s, s" % r["case"], r["right_seconds"], BARS["restart_seconds"])
                                for r in result["restarts"])):
        missed += ["%s %s, at most %s" % (name, value, most)] if value > most else []
    return missed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build-dir", type=Path, default=ROOT / "build/release", help="where the programs are")
    parser.add_argument("--rows", type=int, default=200000)
    parser.add_argument("--dim", type=int, default=256, help="of what `quire gen` makes")
    parser.add_argument("--base", type=Path, help="vectors of the documents (.fbin)")
    parser.add_argument("--queries", type=Path, help="held-out vectors (.fbin), with --base")
    parser.add_argument("--queries-asked", type=int, default=200)
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--algorithm", default="HNSW", help="of the schema")
    parser.add_argument("--setting", action="append", default=[], help="of the server, as --setting=--maxmemory=1gb")
    parser.add_argument("--quick", action="store_true", help="10,000 documents: shows that it works")
    parser.add_argument("--json", type=Path, help="file for the numbers (standard output)")
    options = parser.parse_args()
    if bool(options.base) != bool(options.queries):
        parser.error("--base and --queries belong together")
    if options.quick:
        options.rows, options.queries_asked = 10000, 50
    folder = Path(tempfile.mkdtemp(prefix="quire-bench."))
    try:
        result = measure(options, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    missed = verdict(result)
    result["bars_missed"] = missed
    print("bars: %s" % ("; ".join(missed) if missed else "all reached"))
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    else:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
