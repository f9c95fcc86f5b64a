"""records_resume.py BUILD_DIR - an import from server to server that stopped goes on: what is there already is neither
read nor written again, whoever ended it."""
import json
import pathlib
import sys
import time
from os.path import abspath, dirname, join
from subprocess import DEVNULL, PIPE, Popen

import numpy as np

from checks import build, check, end, module, refused, run, work

sys.path.insert(0, join(dirname(abspath(__file__)), ".."))
from server_process import Server  # noqa: E402

redis = module("redis", "python3-redis", "imports that go on")
if not redis:
    end()

ROWS, DIM = 6000, 96


def start(name):
    folder = pathlib.Path(work, name)
    folder.mkdir()
    return Server(pathlib.Path(build), folder)


def calls(server, command):
    return server.info("commandstats").get("cmdstat_" + command, {"calls": 0})["calls"]


def moved(*arguments):
    status, out, err = run("import", *arguments, "--json")
    if not check("quire import " + " ".join(arguments), status == 0, err):
        return {"rows": -1, "already_there": -1}
    return json.loads(out)["moved"][0]


def url(server):
    return f"redis://127.0.0.1:{server.port}"


def begun(enough, *arguments):
    """An import under way that has brought `enough` elements into the set "big" of two."""
    process = Popen([join(build, "quire"), "import", *arguments], stdout=DEVNULL, stderr=PIPE, text=True)
    while process.poll() is None and b.execute_command("VCARD", "big") < enough:
        time.sleep(0.001)
    return process


one, two = start("one"), start("two")
servers = [one, two]
try:
    a, b = (redis.Redis(port=server.port) for server in servers)
    vectors = (np.random.default_rng(5).standard_normal((ROWS, DIM)) * 3).astype("f4")
    names = ["e%05d" % i for i in range(ROWS)]
    pipe = a.pipeline(transaction=False)
    for name, v in zip(names, vectors):
        pipe.execute_command("VADD", "big", "FP32", v.tobytes(), name, "NOQUANT", "SETATTR", '{"n":"%s"}' % name)
    pipe.execute_command("VCREATE", "far", "DIM", DIM, "METRIC", "l2", "TENANTS")
    for i in range(300):
        pipe.execute_command("VADD", "far", "FP32", vectors[i].tobytes(), names[i], "TENANT", "acme")
        pipe.hset("doc:%d" % i, mapping={"v": vectors[i].tobytes(), "t": "text %d" % i})
    pipe.execute()

    # stopped by --limit: what is missing comes, and only that is asked for
    check("a beginning", moved(url(one), url(two), "--set", "big", "--limit", "1500")["rows"] == 1500)
    b.execute_command("VREM", "big", names[700])
    b.execute_command("VSETATTR", "big", names[3], '{"mine":1}')
    asked, added = calls(a, "vemb"), calls(b, "vadd")
    report = moved(url(one), url(two), "--set", "big", "--resume")
    check("it goes on", report["rows"] == ROWS - 1499 and report["already_there"] == 1499, report)
    check("vectors that are there are not read", calls(a, "vemb") - asked == ROWS - 1499, calls(a, "vemb") - asked)
    check("nor written", calls(b, "vadd") - added == ROWS - 1499, calls(b, "vadd") - added)
    check("all names", b.execute_command("VRANGE", "big", "-", "+") == a.execute_command("VRANGE", "big", "-", "+"))
    check("one in the middle that was gone is back", b.execute_command("VGETATTR", "big", names[700]) ==
          b'{"n":"%s"}' % names[700].encode())
    check("what is there is left as it is", b.execute_command("VGETATTR", "big", names[3]) == b'{"mine":1}')
    report = moved(url(one), url(two), "--set", "big", "--resume")
    check("nothing is left to do", report["rows"] == 0 and report["already_there"] == ROWS, report)
    moved(url(one), url(two), "--set", "big")
    check("without --resume elements are replaced", b.execute_command("VGETATTR", "big", names[3]) == b'{"n":"e00003"}')

    # another metric, with tenants
    moved(url(one), url(two), "--set", "far", "--limit", "100")
    report = moved(url(one), url(two), "--set", "far", "--resume")
    check("a set with metric and tenants", report["rows"] == 200 and report["tenants"] == 200 and
          b.execute_command("VTENANTS", "far") == a.execute_command("VTENANTS", "far") == [b"acme", 300], report)

    info = b.execute_command("VINFO", "far")
    check("kept as at the source", dict(zip(info[::2], info[1::2]))[b"quant-type"] == b"int8", info)
    for word in ("none", "bin", "q8"):
        as_ = ("--set", "far", "--as", "far-" + word, "--quantization", word)
        moved(url(one), url(two), *as_, "--limit", "100")
        check("another quantization, " + word, moved(url(one), url(two), *as_, "--resume")["rows"] == 200)

    # hashes
    hashes = (url(one), url(two), "--prefix", "doc:", "--vector-field", "v", "--as", "docs")
    moved(*hashes, "--limit", "100")
    asked = calls(a, "hgetall")
    report = moved(*hashes, "--resume")
    check("hashes", report["rows"] == 200 and report["already_there"] == 100 and calls(a, "hgetall") - asked == 200 and
          b.execute_command("VCARD", "docs") == 300, report)

    # killed
    b.delete("big")
    process = begun(500, url(one), url(two), "--set", "big")
    process.kill()
    process.communicate()
    had = b.execute_command("VCARD", "big")
    report = moved(url(one), url(two), "--set", "big", "--resume")
    check("an import that was killed goes on", 500 <= had < ROWS and report["already_there"] >= had and
          report["rows"] + report["already_there"] == ROWS and b.execute_command("VCARD", "big") == ROWS, (had, report))

    # the server that it writes into is killed and comes back
    b.delete("big")
    process = begun(500, url(one), url(two), "--set", "big")
    two.kill()
    err = process.communicate()[1]
    check("a server that ends is an error", process.returncode == 1 and f"the connection to 127.0.0.1:{two.port} ended" in err,
          (process.returncode, err))
    check("which says how to go on", "rows are in big: the same command with --resume goes on after them" in err, err)
    two.start()
    b = redis.Redis(port=two.port)
    had = b.execute_command("VCARD", "big")
    report = moved(url(one), url(two), "--set", "big", "--resume")
    check("and the import goes on", had < ROWS and report["already_there"] == had and
          b.execute_command("VRANGE", "big", "-", "+") == a.execute_command("VRANGE", "big", "-", "+"), (had, report))

    refused("refused: --resume into a file", "--resume goes on from server to server", "import", url(one), "x.jsonl", "--set",
            "big", "--resume", status=2)
finally:
    for server in servers:
        server.stop()
end()
