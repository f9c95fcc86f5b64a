"""records_parquet.py BUILD_DIR - Parquet: round trips; read by hyparquet, written by parquet-wasm (Rust's parquet) and
hyparquet-writer; damaged files."""
import fcntl
import json
import os
import shutil
import subprocess

import numpy as np

from checks import (build, check, convert, end, read_fbin, refused, round_trip, run, sample, sample_parts, same, skip,
                    write_fbin, write_lines)

here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "node")

for compression in ("none", "gzip", "zstd"):
    round_trip("parquet", "--compression", compression)
    shutil.move("there.parquet", compression + ".parquet")
    for name in ("back.fbin", "back.keys", "back.attrs", "back.tenants"):
        os.remove(name)
# several groups of rows (each has 64 MiB) and pages: a group of short rows would take long, so long texts fill them
big = np.arange(18000 * 4, dtype="f4").reshape(18000, 4)
write_fbin("big.fbin", big)
write_lines("big.attrs", ['{"t": "%s"}' % (str(i) * 1000)[:4000] for i in range(18000)])
convert("big.fbin", "big.parquet", "--attrs", "big.attrs", "--compression", "zstd")
convert("big.parquet", "big2.fbin", "--attrs", "big2.attrs")
same("parquet: groups of rows: vectors", "big.fbin", "big2.fbin")
same("parquet: groups of rows: attributes", "big.attrs", "big2.attrs")
open("latin.keys", "wb").write(b"".join(b"\xe9%d\n" % i for i in range(18000)))
convert("big.fbin", "latin.parquet", "--keys", "latin.keys")
convert("latin.parquet", "latin2.fbin", "--keys", "latin2.keys")
same("parquet: keys that are not UTF-8", "latin.keys", "latin2.keys")

for metric in ("cosine", "ip"):
    convert("sample.fbin", metric + ".parquet", "--metric", metric)
    check(f"parquet: the metric {metric} is kept", convert(metric + ".parquet", metric + ".fbin")["metric"] == metric)
convert("sample.fbin", "unknown.parquet")
check("parquet: no metric is none", "metric" not in convert("unknown.parquet", "unknown.fbin"))
other = bytearray(open("ip.parquet", "rb").read())
assert other.count(b"\x02ip") == 1
open("other.parquet", "wb").write(other.replace(b"\x02ip", b"\x02ix"))
check("parquet: a metric of another name is none", "metric" not in convert("other.parquet", "other.fbin"))

# damage: each is refused with a sentence, or read; nothing worse
whole = open("zstd.parquet", "rb").read()
random = np.random.default_rng(2)
worst = 0
for i in range(60):
    data = bytearray(whole)
    if i % 3 == 0:
        data = data[:int(random.integers(0, len(data)))]
    else:
        at = int(random.integers(len(data) - 700, len(data))) if i % 3 == 1 else int(random.integers(0, len(data)))
        data[at] ^= int(random.integers(1, 256))
    open("damaged.parquet", "wb").write(data)
    if os.path.exists("d.fvecs"):
        os.remove("d.fvecs")
    status, _, err = run("convert", "damaged.parquet", "d.fvecs")
    worst = max(worst, status if status in (0, 1) and (status == 0 or err) else 99)
check("parquet: 60 damaged files end with a sentence or are read", worst <= 1, worst)
open("no.parquet", "wb").write(b"no Parquet at all")
refused("refused: something else", "does not end as a Parquet file", "convert", "no.parquet", "x.fbin")
open("short.parquet", "wb").write(b"PAR1")
refused("refused: four bytes", "no Parquet file is so short", "convert", "short.parquet", "x.fbin")
refused("refused: a pipe", "Parquet begins at its end", "convert", "-", "x.fvecs", "--from", "parquet")
refused("refused: no such column", 'no column "nope"', "convert", "zstd.parquet", "x.fbin", "--vector-field", "nope")
refused("refused: a key that is no vector", "must be a list of floats", "convert", "zstd.parquet", "x.fbin",
        "--vector-field", "id", "--key-field", "other")

# other programs
modules = os.path.join(build, "records_npm")
os.makedirs(modules, exist_ok=True)
with open(os.path.join(modules, "lock"), "w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    mark = os.path.join(modules, "installed.json")
    wanted = open(os.path.join(here, "package-lock.json")).read()
    if not os.path.exists(mark) or open(mark).read() != wanted:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(os.path.join(here, name), modules)
        try:
            done = subprocess.run(["npm", "ci", "--no-audit", "--no-fund"], cwd=modules, capture_output=True, text=True)
        except FileNotFoundError:
            skip("parquet beside other programs", "there is no npm")
            end()
        if done.returncode != 0:
            unreachable = any(x in done.stderr for x in ("ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ECONNRESET", "ETIMEDOUT",
                                                         "ENETUNREACH", "EHOSTUNREACH"))
            if unreachable:
                skip("parquet beside other programs", "the npm registry is out of reach")
            else:
                check("npm ci installs hyparquet and parquet-wasm", False, done.stderr[-800:])
            end()
        open(mark, "w").write(wanted)
script = shutil.copy(os.path.join(here, "parquet.mjs"), modules)


def node(*arguments):
    done = subprocess.run(["node", script, *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit("FAIL - node parquet.mjs " + " ".join(arguments) + ": " + done.stderr[-800:])
    return done.stdout


keys, attributes, tenants = sample_parts(3000)
for compression in ("none", "gzip", "zstd"):
    rows = [json.loads(line) for line in node("read", compression + ".parquet").split("\n") if line]
    check(f"hyparquet reads what is written, compression {compression}",
          [r["id"] for r in rows] == keys and [r["tenants"] or "" for r in rows] == tenants and
          [r["attributes"] for r in rows] == [json.loads(a) if a else None for a in attributes] and
          (np.array([r["vector"] for r in rows]).astype("f4") == sample()).all(), rows[:1])

for name, expected in (("none", [{"key": "quire.metric", "value": "l2"}]), ("unknown", [])):
    check(f"hyparquet finds the metric of {name}.parquet", json.loads(node("pairs", name + ".parquet")) == expected,
          node("pairs", name + ".parquet"))
os.makedirs("others", exist_ok=True)
said = node("write", "others")
n, dim = 5000, 6
vectors = (np.arange(n)[:, None] + np.arange(dim)[None] / 8).astype("f4")
expected = []
for i in range(n):
    row = {} if i % 7 == 0 else {"word": f"w{i % 5}"}
    if i % 3:
        row["n"] = i - 2000
    row.update({"big": i * 1000000007, "x": i / 3, "yes": i % 2 == 0})
    if i % 11:
        row["tags"] = [f"t{t}" for t in range(i % 4)]
    expected.append(row)
for name in ("plain", "dictionary", "snappy", "gzip", "zstd", "groups", "v2", "v2_dictionary"):
    path = f"others/{name}.parquet"
    if not os.path.exists(path):
        check(f"parquet-wasm writes {name}", False, said)
        continue
    status, out, err = run("convert", path, name + "2.fbin", "--keys", name + "2.keys", "--attrs", name + "2.attrs")
    if name == "v2_dictionary" and status != 0:
        check(f"parquet-wasm, {name}: refused by name, where it falls back to others", "is encoded as" in err, err)
        continue
    if not check(f"parquet-wasm, {name}: is read", status == 0, err):
        continue
    check(f"parquet-wasm, {name}: vectors", (read_fbin(name + "2.fbin") == vectors).all())
    check(f"parquet-wasm, {name}: keys", open(name + "2.keys").read().split("\n")[:-1] == [f"row {i} é" for i in range(n)])
    found = [json.loads(line) for line in open(name + "2.attrs")]
    check(f"parquet-wasm, {name}: other columns are attributes", found == expected,
          [(a, b) for a, b in zip(found, expected) if a != b][:2])
if os.path.exists("others/brotli.parquet"):
    refused("refused: brotli, by name", "compressed with BROTLI", "convert", "others/brotli.parquet", "x.fbin")
if os.path.exists("others/delta.parquet"):
    refused("refused: delta encodings, by name", "is encoded as DELTA_BYTE_ARRAY", "convert", "others/delta.parquet", "x.fbin")
convert("others/hyparquet.parquet", "h.fbin", "--keys", "h.keys", "--attrs", "h.attrs")
check("hyparquet-writer: vectors of fixed bytes, keys of numbers",
      (read_fbin("h.fbin") == vectors[:300]).all() and open("h.keys").read().split() == [str(i * 3) for i in range(300)] and
      json.loads(open("h.attrs").readline()) == {"word": "w0"})
check("failures left nothing", not [x for x in os.listdir(".") if x.startswith("x.") or ".partial-" in x], os.listdir("."))
end()
