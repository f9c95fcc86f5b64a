#!/usr/bin/env python3
"""damage.py - damages one file of a data folder at a time, and looks whether the rest of it serves.

A folder with ten vector sets (both kinds of index, with and without attributes and tenants, two segments and some
elements in memory each) and three caches (one with sealed vectors) is made once. Then, for each damage: a copy of the
folder, in which one file has a bit flipped, a page of zeros or of garbage, was cut, or is missing; all kinds of files
in turn. Each time

  * the server starts, and nine sets and the other caches answer all that they answered before;
  * the one whose file it is answers that, or says that it is damaged (a cache may miss, it never answers wrongly);
  * SIGTERM ends it; `quire verify` of the folder finds every damage to an index, `quire repair` saves what it can,
    and `quire verify` of the result has no findings.

Of logs and checkpoints, which belong to everybody, the server may also refuse to start with a sentence that names the
file. Everything random comes from --seed.
"""
import argparse
import collections
import functools
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from kill_loop import Server, Wrong
from resp_client import Error, Stream, request

DIM, SETS, CACHES = 16, 10, 3
ATTRIBUTES, TENANTS = (1, 2, 4, 7, 8), (4, 5, 9)  # the sets that have them; sets of odd numbers are inverted lists
SEALED_DIM, SEALED_ENTRIES = 384, 2600  # of cache c0, which has 1 MiB of memory: more than fit into it
SAMPLE = 25                             # of a set's elements and a cache's entries that are asked for
SETTINGS = ["--appendfsync", "no", "--memtable-memory", "64kb", "--cache-seal-rows", "256", "--checkpoint-log", "1mb"]
SHARED = ("log", "checkpoint")


def vector(number, dim=DIM):
    r = random.Random(number)
    return struct.pack("<%df" % dim, *(r.gauss(0, 1) for _ in range(dim)))


@functools.lru_cache(None)
def elements(s):
    """(name, vector, attributes) of set s, in the order in which they are added."""
    return [("e%d" % i, vector(s * 100000 + i), '{"n":%d,"parity":"%s"}' % (i, "odd" if i % 2 else "even"))
            for i in range(370)]


@functools.lru_cache(None)
def entries(c):
    """(hash, value) of the entries of cache c."""
    n = 60 if c else SEALED_ENTRIES
    return [("%032x" % (c * 1000000 + i + 1), "answer %d of %d" % (i, c)) for i in range(n)]


def check_ok(replies):
    for reply in replies:
        if isinstance(reply, Error):
            raise Wrong("while the folder is made: " + reply)


def make(options, folder):
    server = Server(options, folder, SETTINGS)
    stream = Stream(server.wait_ready())
    for s in range(options.sets):
        name = "s%d" % s
        words = ["VCREATE", name, "DIM", DIM, "INDEX", "spann" if s % 2 else "pagegraph"]
        words += ["TENANTS"] if s in TENANTS else []
        check_ok(stream.ask([request(*words)]))
        added = [request("VADD", name, "FP32", v, e, *(("SETATTR", a) if s in ATTRIBUTES else ()),
                         *(("TENANT", "t%d" % (len(e) % 3)) if s in TENANTS else ())) for e, v, a in elements(s)]
        for first, end in ((0, 250), (250, 350), (350, 370)):
            check_ok(stream.ask(added[first:end]))
            if end < 370:
                check_ok(stream.ask([request("VSEAL", name)]))
    for c in range(CACHES):
        name = "c%d" % c
        dim = DIM if c else SEALED_DIM
        check_ok(stream.ask([request("SC.CREATE", name, "DIM", dim, *(() if c else ("MEMORY", 1 << 20))),
                             request("SC.CAT.SET", name, "k", "SIM", "0.95", "JITTER", "0", "TTL", "36000000")]))
        put = [request("SC.PUT", name, "CAT", "k", "HASH", h, "VEC", vector(-1 - c * 1000000 - i, dim), "VALUE", value)
               for i, (h, value) in enumerate(entries(c))]
        end = time.monotonic() + 120
        while put:  # where memory is full it waits for a seal
            replies = stream.ask(put[:100])
            put = [p for p, reply in zip(put, replies) if isinstance(reply, Error)] + put[100:]
            if any(isinstance(reply, Error) for reply in replies):
                time.sleep(0.05)
            if time.monotonic() > end:
                raise Wrong("cache %s takes no more: %s" % (name, [r for r in replies if isinstance(r, Error)][:1]))
    end = time.monotonic() + 60
    while not (is_sealed(stream) and list((folder / "data").glob("checkpoint-*"))):
        if time.monotonic() > end:
            raise Wrong("nothing sealed in cache c0, or no checkpoint: " + server.log()[-1000:])
        time.sleep(0.1)
    server.stop()


def is_sealed(stream):
    info = stream.ask([request("INFO", "cache")])[0].decode()
    return any(line.startswith("cache_sealed_entries:") and int(line.split(":")[1]) for line in info.split())


# ---- asking --------------------------------------------------------------------------------------------------------

@functools.lru_cache(None)
def questions(s):
    """Requests about set s, each of which the elements alone decide."""
    name, all_elements = "s%d" % s, elements(s)
    asked = [request("VCARD", name), request("VINFO", name)]
    for e, v, _ in all_elements[::len(all_elements) // SAMPLE]:
        asked += [request("VSIM", name, "FP32", v, "COUNT", 3, "TRUTH"), request("VGETATTR", name, e),
                  request("VISMEMBER", name, e)]
    return asked + [request("VSIM", name, "FP32", all_elements[5][1], "COUNT", 5, "FILTER", '.parity == "odd"')]


def ask_set(stream, s):
    replies = stream.ask(questions(s))
    replies[1] = replies[1] if isinstance(replies[1], Error) else None  # counters differ
    return replies


def ask_cache(stream, c):
    """The value of each of some entries; None: a miss."""
    all_entries = entries(c)
    some = all_entries[::max(1, len(all_entries) // SAMPLE)]
    answers = []
    for (_, right), reply in zip(some, stream.ask(
            [request("SC.GET", "c%d" % c, "CAT", "k", "HASH", h, "NOLEASE") for h, _ in some])):
        if isinstance(reply, Error):
            answers.append(reply)
            continue
        found = {k: v for k, v in zip(reply[::2], reply[1::2])}
        value = found.get(b"value")
        if value is not None and value.decode() != right:
            raise Wrong("cache c%d answers %r instead of %r" % (c, value, right))
        answers.append(value)
    return answers


def is_damage(reply):
    words = ("DAMAGED", "damaged", "checksum", "cannot be read", "is not the file", "input/output error", "wrong")
    return isinstance(reply, Error) and any(word in reply for word in words)


def look(options, folder, kind, expected, seen):
    """Starts the server on folder/data. What is out, as a set of names; None: it does not start."""
    server = Server(options, folder, SETTINGS)
    try:
        stream = Stream(server.wait_ready())
    except Wrong:
        log = server.log()
        if kind not in SHARED or server.process.returncode != 1 or not any(word in log for word in SHARED):
            raise
        return None
    out = set()
    for s in range(options.sets):
        replies = ask_set(stream, s)
        for got, right in zip(replies, expected["s%d" % s]):
            if got != right:
                if kind in SHARED:
                    out.add("s%d" % s)
                elif is_damage(got):
                    out.add("s%d" % s)
                else:
                    raise Wrong("set s%d answers %r instead of %r" % (s, got, right))
        if any(isinstance(r, Error) and r.startswith("DAMAGED") for r in replies):
            seen["sets unavailable"] += 1
            if not all(isinstance(r, Error) and "'s%d'" % s in r for r in replies):
                raise Wrong("set s%d is unavailable and answers: %r" % (s, replies))
            if stream.ask([request("EXISTS", "s%d" % s), request("TYPE", "s%d" % s)]) != [1, "vectorset"]:
                raise Wrong("set s%d is unavailable and has no type" % s)
    for c in range(CACHES):
        answers = ask_cache(stream, c)
        for answer, right in zip(answers, expected["c%d" % c]):
            if answer != right:
                if isinstance(answer, Error) and kind not in SHARED and not is_damage(answer):
                    raise Wrong("cache c%d answers %r" % (c, answer))
                out.add("c%d" % c)
        if kind not in SHARED and any(isinstance(r, Error) for r in answers):
            seen["caches unavailable"] += 1
            if not all(isinstance(r, Error) and r.startswith("DAMAGED") and "'c%d'" % c in r for r in answers):
                raise Wrong("cache c%d is unavailable and answers: %r" % (c, answers))
    info = stream.ask([request("INFO", "damage")])[0].decode()
    named = sum(int(line.split(":")[1]) for line in info.split()
                if line.startswith(("unavailable_sets:", "unavailable_caches:")))
    if named > 1 or (named and not out):
        raise Wrong("INFO damage says %r, and %r are out" % (info, out))
    if named:  # it can be removed, and made anew
        name = next(iter(out))
        again = ("VADD", name, "VALUES", 2, 1, 0, "e") if name[0] == "s" else ("SC.CREATE", name, "DIM", 4)
        replies = stream.ask([request("DEL" if name[0] == "s" else "SC.DROP", name), request(*again)])
        end = time.monotonic() + 20  # what a removed key had goes in the background
        while True:
            info = stream.ask([request("INFO", "damage")])[0].decode()
            if ":1" not in info or time.monotonic() > end:
                break
            time.sleep(0.02)
        if replies not in ([1, 1], [1, "OK"]) or "unavailable_sets:0" not in info or \
                "unavailable_caches:0" not in info:
            raise Wrong("%s is unavailable, and cannot be removed: %r, %r" % (name, replies, info))
    server.stop()
    return out


# ---- damaging ------------------------------------------------------------------------------------------------------

def copy(base, to):
    """What servers write to is copied, the rest linked: they never change it."""
    to.mkdir(parents=True, exist_ok=True)
    for path in base.rglob("*"):
        there = to / path.relative_to(base)
        if path.is_dir():
            there.mkdir(parents=True, exist_ok=True)
        elif path.parent == base:
            shutil.copy(path, there)
        else:
            os.link(path, there)


def kind_of(path, base):
    parts = path.relative_to(base).parts
    if parts[0] in ("segments", "sealed"):
        return "%s/%s" % (parts[0], parts[-1])
    return "documents" if parts[0] == "documents" else parts[0].split("-")[0]


def damage(r, path, how):
    """Damages a file. False: it is as it was."""
    data = path.read_bytes()
    path.unlink()
    if how == "missing":
        return True
    changed = bytearray(data)
    page = r.randrange(max(1, (len(data) + 4095) // 4096)) * 4096
    if how == "flip":
        changed[r.randrange(len(data))] ^= 1 << r.randrange(8)
    elif how == "zeros":
        changed[page:page + 4096] = bytes(len(changed[page:page + 4096]))
    elif how == "garbage":
        changed[page:page + 4096] = r.randbytes(len(changed[page:page + 4096]))
    elif how == "cut":
        del changed[r.choice([0, page, r.randrange(len(data))]):]
    path.write_bytes(changed)
    return bytes(changed) != data


def run(options, *words):
    done = subprocess.run([str(options.build_dir / "quire"), *map(str, words)], capture_output=True, text=True)
    if done.returncode not in (0, 3):
        raise Wrong("quire %s ends with %d: %s" % (" ".join(map(str, words)), done.returncode, done.stderr[-1500:]))
    return done


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build-dir", type=Path, default=Path("build/release"))
    parser.add_argument("--damages", type=int, default=40)
    parser.add_argument("--sets", type=int, default=SETS, help="the first six have every combination of the ten")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", action="store_true", help="leave the folder where something was wrong")
    options = parser.parse_args()
    options.build_dir = options.build_dir.resolve()
    top = Path(tempfile.mkdtemp(prefix="quire-damage-"))
    seen, by_kind, failed, done = collections.Counter(), collections.Counter(), 0, 0
    begin = time.monotonic()
    (top / "base").mkdir()
    make(options, top / "base")
    base = top / "base" / "data"
    (top / "sound").mkdir()
    copy(base, top / "sound" / "data")
    server = Server(options, top / "sound", SETTINGS)
    stream = Stream(server.wait_ready())
    expected = {"s%d" % s: ask_set(stream, s) for s in range(options.sets)}
    expected.update({"c%d" % c: ask_cache(stream, c) for c in range(CACHES)})
    server.stop()
    if any(isinstance(r, Error) for replies in expected.values() for r in replies):
        raise Wrong("the sound folder: %r" % expected)
    if run(options, "verify", base).returncode != 0:
        raise Wrong("the sound folder has findings: " + run(options, "verify", base).stdout)
    files = collections.defaultdict(list)
    for path in sorted(base.rglob("*")):
        if path.is_file() and path.name != "LOCK" and path.stat().st_size:
            files[kind_of(path, base)].append(path)
    print("%d files of %d kinds, made in %.1f s; seed %d" %
          (sum(map(len, files.values())), len(files), time.monotonic() - begin, options.seed), flush=True)
    hows = ("flip", "zeros", "cut", "missing", "garbage", "flip")
    kinds = sorted(files)
    number = 0
    while done < options.damages:
        r = random.Random(options.seed * 1000003 + number)
        kind, how = kinds[number % len(kinds)], hows[number // len(kinds) % len(hows)]
        number += 1
        path = r.choice(files[kind])
        work = top / ("work%d" % number)
        (work / "data").mkdir(parents=True)
        copy(base, work / "data")
        victim = work / "data" / path.relative_to(base)
        if not damage(r, victim, how):
            shutil.rmtree(work)
            continue
        done += 1
        by_kind[kind] += 1
        copy(work / "data", work / "again")  # before a server has seen it
        what = "%s of %s" % (how, path.relative_to(base))
        try:
            verified = run(options, "verify", work / "again")
            if verified.returncode == 0:
                seen["not found by verify"] += 1
                seen["not found by verify: " + kind] += 1
                if kind not in SHARED and kind != "documents":
                    raise Wrong("verify finds nothing")
            run(options, "repair", work / "again", "--to", work / "saved")
            after = run(options, "verify", work / "saved")
            if after.returncode != 0:
                raise Wrong("what was saved has findings: " + after.stdout[-1500:])
            out = look(options, work, kind, expected, seen)
            if out is None:
                seen["refused to start: " + kind] += 1
            elif kind not in SHARED and len(out) > 1:
                raise Wrong("more than one is out: %r" % out)
            else:
                seen["something out" if out else "nothing out"] += 1
        except Wrong as wrong:
            failed += 1
            print("FAIL - %s (damage %d): %s" % (what, number, wrong), flush=True)
            if options.keep:
                print("       it is in %s" % work)
                continue
        shutil.rmtree(work)
    print("kinds: " + json.dumps(by_kind, sort_keys=True))
    print("seen: " + json.dumps(seen, sort_keys=True))
    print("%s - %d damages, %d wrong, %.0f s" % ("FAIL" if failed else "ok", done, failed, time.monotonic() - begin))
    if not (failed and options.keep):
        shutil.rmtree(top)
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
