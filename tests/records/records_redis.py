"""records_redis.py BUILD_DIR - out of a running server and into one: sets, indexes over hashes and documents, plain
hashes; between two servers, and through files."""
import json
import os
import pathlib
import socket
import subprocess
import sys
import time

import numpy as np

from checks import build, check, end, module, refused, run, skip, work

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from server_process import Server  # noqa: E402

redis = module("redis", "python3-redis", "import and export")
if not redis:
    end()


def start(name):
    folder = pathlib.Path(work, name)
    folder.mkdir()
    return Server(pathlib.Path(build), folder)


def move(*arguments):
    status, out, err = run(*arguments, "--json")
    if not check("quire " + " ".join(arguments), status == 0, err):
        return {"rows": -1, "moved": []}
    return json.loads(out)


def client(server):
    return redis.Redis(port=server.port)


one, two = start("one"), start("two")
servers = [one, two]
try:
    a, b = client(one), client(two)
    from_, to = f"redis://127.0.0.1:{one.port}", f"redis://127.0.0.1:{two.port}/0"
    random = np.random.default_rng(11)
    vectors = (random.standard_normal((600, 12)) * 3).astype("f4")
    names = [b"e%d \xe9\n" % i if i % 50 == 0 else b"e%d" % i for i in range(600)]
    pipe = a.pipeline(transaction=False)
    for i, v in enumerate(vectors):
        extra = ["SETATTR", json.dumps({"i": i, "t": "é\n"})] if i % 2 else []
        pipe.execute_command("VADD", "plain", "FP32", v.tobytes(), names[i], "NOQUANT", *extra)
    pipe.execute_command("VCREATE", "far", "DIM", 12, "METRIC", "l2", "SLOT", "f32", "TENANTS")
    for i, v in enumerate(vectors):
        tenants = ["TENANT", "acme"] if i % 2 else ["TENANT", "acme", "TENANT", "zed"]
        pipe.execute_command("VADD", "far", "FP32", v.tobytes(), b"f%d" % i, "SETATTR", '{"i":%d}' % i, *tenants)
    pipe.execute_command("VADD", "small q/.", "FP32", vectors[0].tobytes(), "x", "Q8")
    pipe.execute()
    a.execute_command("VSEAL", "far")

    def embedded(server, key, name):
        return np.array([float(x) for x in server.execute_command("VEMB", key, name)]).astype("f4")

    # from server to server: names, numbers, attributes, metrics
    report = move("import", from_, to, "--set", "plain", "--set", "small q/.")
    check("server to server: rows", report["rows"] == 601, report)
    check("server to server: names", b.execute_command("VRANGE", "plain", "-", "+") ==
          a.execute_command("VRANGE", "plain", "-", "+"))
    check("server to server: vectors", all(np.array_equal(embedded(a, "plain", n), embedded(b, "plain", n)) for n in names))
    check("server to server: attributes", all(a.execute_command("VGETATTR", "plain", n) ==
                                              b.execute_command("VGETATTR", "plain", n) for n in names))
    info = b.execute_command("VINFO", "small q/.")
    check("server to server: quantised as before", dict(zip(info[::2], info[1::2]))[b"quant-type"] == b"int8", info)
    move("import", from_, to, "--set", "plain")
    check("an import that is run again changes nothing", b.execute_command("VCARD", "plain") == 600)
    move("import", from_, to, "--set", "far", "--as", "near")
    info = b.execute_command("VINFO", "near")
    check("the metric is kept", dict(zip(info[::2], info[1::2]))[b"metric"] == b"l2", info)
    check("tenants are kept", b.execute_command("VTENANTS", "near") == a.execute_command("VTENANTS", "far"),
          b.execute_command("VTENANTS", "near"))
    check("l2 vectors are kept bit for bit",
          all(np.array_equal(embedded(b, "near", "f%d" % i), vectors[i]) for i in range(0, 600, 7)))

    # to files and back
    if module("h5py", "python3-h5py", "export into a folder"):
        report = move("export", from_, "out/", "--format", "hdf5")
        check("a folder has a file for each set", report["rows"] == 1201 and
              sorted(os.listdir("out")) == ["far.hdf5", "plain.hdf5", "small%20q%2F..hdf5"], report)
    status, out, err = run("export", from_, "far.jsonl", "--set", "far")
    rows = {row["id"]: row for row in map(json.loads, open("far.jsonl"))}
    check("export: vectors, attributes, tenants of all elements",
          len(rows) == 600 and all(np.array_equal(np.array(rows["f%d" % i]["vector"], "f4"), vectors[i]) and
                                   rows["f%d" % i]["attributes"] == {"i": i} and
                                   sorted(rows["f%d" % i]["tenants"]) == (["acme"] if i % 2 else ["acme", "zed"])
                                   for i in range(600)), err)
    check("export: JSON Lines cannot hold the metric, and that is said", "--metric l2" in err, err)
    move("import", "far.jsonl", to, "--as", "again", "--metric", "l2")
    check("from a file: as it was", b.execute_command("VTENANTS", "again") == a.execute_command("VTENANTS", "far") and
          all(np.array_equal(embedded(b, "again", "f%d" % i), vectors[i]) for i in range(0, 600, 13)))


    def metric_of(key):
        info = b.execute_command("VINFO", key)
        return dict(zip(info[::2], info[1::2]))[b"metric"]

    # files that say their metric give it to the set, and of others it is said which one a new set gets
    for extension in ("parquet", "hdf5"):
        if extension == "hdf5" and not module("h5py", "python3-h5py", "HDF5"):
            continue
        move("export", from_, "metric." + extension, "--set", "far")
        status, out, err = run("import", "metric." + extension, to, "--as", extension)
        check(f"{extension}: the metric is kept without --metric", status == 0 and metric_of(extension) == b"l2" and
              "does not say its metric" not in err, err)
    unsaid = "far.jsonl does not say its metric: the set unsaid gets cosine; --metric"
    status, out, err = run("import", "far.jsonl", to, "--as", "unsaid")
    check("jsonl: which metric a new set gets is said", status == 0 and unsaid in err and metric_of("unsaid") == b"cosine",
          err)
    status, out, err = run("import", "far.jsonl", to, "--as", "unsaid")
    check("jsonl: nothing is said of a set that is there", status == 0 and "does not say its metric" not in err, err)
    status, out, err = run("import", "far.jsonl", to, "--as", "said", "--metric", "ip")
    check("jsonl: --metric says it", status == 0 and "does not say its metric" not in err and metric_of("said") == b"ip",
          err)
    status, out, err = run("export", from_, "-", "--set", "far", "--limit", "3")
    check("export to standard output", status == 0 and len(out.splitlines()) == 3, err)
    status, out, err = run("export", from_, "far.fbin", "--set", "far", "--keys", "far.keys", "--attrs", "far.attrs",
                           "--tenants", "far.tenants")
    check("export to vectors and lines", status == 0 and len(open("far.keys").readlines()) == 600, err)
    refused("export: a name that no text file holds", "not UTF-8", "export", from_, "plain.jsonl", "--set", "plain")

    # what quire build made of an export is loaded as a set
    status, out, err = run("build", "--base", "far.fbin", "--out", "far.index", "--metric", "l2", "--slot", "f32",
                           "--keys", "far.keys", "--attrs", "far.attrs", "--tenants", "far.tenants")
    check("quire build takes an export", status == 0, err)
    status, out, err = run("export", "far.index", "index.jsonl")
    rows2 = {row["id"]: row for row in map(json.loads, open("index.jsonl"))}
    check("an index folder is exported", {k: (v["vector"], v["attributes"]) for k, v in rows.items()} ==
          {k: (v["vector"], v["attributes"]) for k, v in rows2.items()}, err)

    # indexes of FT.CREATE over hashes and JSON, and plain hashes
    a.execute_command("FT.CREATE", "idx", "ON", "HASH", "PREFIX", 1, "doc:", "SCHEMA", "t", "TEXT", "n", "NUMERIC",
                      "vec", "VECTOR", "FLAT", 6, "TYPE", "FLOAT32", "DIM", 12, "DISTANCE_METRIC", "L2")
    a.execute_command("FT.CREATE", "jdx", "ON", "JSON", "PREFIX", 1, "j:", "SCHEMA", "$.t", "AS", "t", "TEXT",
                      "$.vec", "AS", "v", "VECTOR", "HNSW", 6, "TYPE", "FLOAT32", "DIM", 3, "DISTANCE_METRIC", "COSINE")
    for i in range(300):
        a.hset(f"doc:{i}", mapping={"t": f"text é {i}", "n": i + 0.5 if i % 2 else i, "vec": vectors[i].tobytes()})
    a.hset("doc:none", mapping={"t": "no vector"})
    for i in range(20):
        a.execute_command("JSON.SET", f"j:{i}", "$", json.dumps({"t": "x", "vec": [i, 0.5, -1], "deep": {"a": [1, None]}}))
    report = move("import", from_, "docs.jsonl", "--index", "idx")
    rows = {row["id"]: row for row in map(json.loads, open("docs.jsonl"))}
    check("an index over hashes: vectors and fields, numbers as numbers",
          len(rows) == 300 and all(np.array_equal(np.array(rows[f"doc:{i}"]["vector"], "f4"), vectors[i]) and
                                   rows[f"doc:{i}"]["attributes"] == {"t": f"text é {i}", "n": i + 0.5 if i % 2 else i}
                                   for i in range(300)))
    report = move("import", from_, to, "--index", "jdx", "--as", "jdocs")
    check("an index over JSON", b.execute_command("VCARD", "jdocs") == 20 and
          json.loads(b.execute_command("VGETATTR", "jdocs", "j:3")) == {"t": "x", "deep": {"a": [1, None]}} and
          embedded(b, "jdocs", "j:3").tolist() == [3, 0.5, -1])
    move("import", from_, "plain_hashes.jsonl", "--prefix", "doc:", "--vector-field", "vec")
    rows = [json.loads(line) for line in open("plain_hashes.jsonl")]
    check("hashes without an index", len(rows) == 300 and rows[0]["attributes"]["n"] == "0")

    # refusals
    refused("refused: no server", "cannot connect to 127.0.0.1:1", "import", "redis://127.0.0.1:1", "x.jsonl")
    refused("refused: no such set", "has no vector set nope", "export", from_, "x.jsonl", "--set", "nope")
    refused("refused: several sets into one file", "choose with --set", "export", from_, "x.jsonl")
    refused("refused: a port that is none", "the port is", "export", "redis://127.0.0.1:x", "x.jsonl")
    refused("refused: another dimension", "dimension mismatch", "import", "far.jsonl", to, "--as", "jdocs")
    refused("refused: no such index", "FT.INFO", "import", from_, "x.jsonl", "--index", "nope")
    refused("refused: a field that is not there", "no hash of this prefix", "import", from_, "x.jsonl", "--prefix", "doc:",
            "--vector-field", "nope")
    refused("refused: a data folder", "is a data folder", "export", os.path.join(work, "one", "data"), "x.jsonl")
    refused("refused: a file that is there", "is there already", "export", from_, "far.jsonl", "--set", "far")
    check("failures left nothing", not [x for x in os.listdir(".") if x.startswith("x.") or ".partial-" in x])

    # a password
    a.config_set("requirepass", "s:e@cret")
    refused("refused: without the password", "NOAUTH", "export", from_, "y.jsonl", "--set", "far")
    status, out, err = run("export", f"redis://:s%3Ae%40cret@127.0.0.1:{one.port}", "y.jsonl", "--set", "far")
    check("a password in the URL", status == 0, err)
    status, out, err = run("export", from_, "y2.jsonl", "--set", "far", env={"REDISCLI_AUTH": "s:e@cret"})
    check("a password in the environment", status == 0, err)
finally:
    for server in servers:
        server.stop()

# hashes of a real Redis
redis_server = "/usr/bin/redis-server"
if not os.path.exists(redis_server):
    skip("hashes of a Redis", "there is no redis-server; ./check --full installs it")
    end()
with socket.socket() as s:
    s.bind(("127.0.0.1", 0))
    port = s.getsockname()[1]
process = subprocess.Popen([redis_server, "--port", str(port), "--save", "", "--bind", "127.0.0.1"], stdout=subprocess.DEVNULL)
try:
    r = redis.Redis(port=port)
    for _ in range(200):
        try:
            r.ping()
            break
        except redis.ConnectionError:
            time.sleep(0.05)
    for i in range(2000):
        r.hset(f"h[1]:{i}", mapping={"v": vectors[i % 600].tobytes(), "t": str(i)})
    r.hset("h1:x", "v", "other")
    report = move("import", f"redis://127.0.0.1:{port}", "redis.hdf5" if module("h5py", "python3-h5py", "HDF5") else
                  "redis.jsonl", "--prefix", "h[1]:", "--vector-field", "v")
    check("hashes of a Redis", report["rows"] == 2000, report)
finally:
    process.terminate()
    process.wait()
end()
