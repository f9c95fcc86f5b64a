"""checks.py - what the scripts of this folder share: a folder of their own, `quire`, checks, and files of vectors.

NumPy is Debian's; where a module is missing, a check is skipped with a line."""
import atexit
import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile

import numpy as np

build = os.path.abspath(sys.argv[1])
work = tempfile.mkdtemp(prefix="quire-records.")
atexit.register(shutil.rmtree, work, ignore_errors=True)
os.chdir(work)
failed = 0


def check(name, right, why=""):
    global failed
    if right:
        print("ok -", name)
    else:
        failed += 1
        print("FAIL -", name, "" if why == "" else f"\n       | {why}")
    return bool(right)


def skip(name, reason):
    print(f"skip - {name}: {reason}")


def end():
    sys.exit(1 if failed else 0)


def module(name, package, what):
    """A module of Debian's Python, or None and a line that says so."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        skip(what, f"{error}; the Debian package is {package}")
        return None


def run(*arguments, stdin=None, env=None):
    """`quire` with arguments: exit status, standard output, standard error."""
    done = subprocess.run([os.path.join(build, "quire"), *map(str, arguments)], input=stdin, capture_output=True,
                          env={**os.environ, **(env or {})})
    return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")


def convert(*arguments, **more):
    """The report of a `quire convert` that must work."""
    status, out, err = run("convert", *arguments, "--json", **more)
    if status != 0:
        raise SystemExit(f"FAIL - quire convert {' '.join(map(str, arguments))}: {err}")
    return json.loads(out)


def refused(name, sentence, *arguments, status=1, **more):
    """`quire` must end with this status and a message that has the sentence."""
    found, out, err = run(*arguments, **more)
    check(name, found == status and sentence in err, f"exit status {found}: {err}")


def same(name, one, other):
    with open(one, "rb") as a, open(other, "rb") as b:
        check(name, a.read() == b.read(), f"{one} and {other} differ")


def write_fbin(path, rows):
    with open(path, "wb") as file:
        np.array(rows.shape, dtype="<u4").tofile(file)
        rows.astype("<f4").tofile(file)


def read_fbin(path):
    with open(path, "rb") as file:
        n, dim = np.fromfile(file, "<u4", 2)
        return np.fromfile(file, "<f4").reshape(n, dim)


def write_lines(path, lines):
    with open(path, "w", newline="") as file:
        file.writelines(line + "\n" for line in lines)


def sample(rows=3000, dim=24, seed=7):
    """Floats of all sizes, whose short texts are not all alike: subnormal, huge, negative zero."""
    random = np.random.default_rng(seed)
    x = (random.standard_normal((rows, dim)) * 10.0 ** random.integers(-30, 30, (rows, 1))).astype("f4")
    x[0, :6] = [0.0, -0.0, 1e-45, 3.4028235e38, 0.1, 16777217.0]
    return x


def sample_parts(rows):
    """Keys, attributes and tenants with what breaks careless readers."""
    keys = [f'key {i} "quoted" \\ \t é 漢 \U0001f600' for i in range(rows)]
    attributes = ["" if i % 3 == 0 else '{"i": %d, "f": %d.50, "t": "a\\nb\\u00e9 é", "list": [1, {"x": null}], "b": true}'
                  % (i, i) for i in range(rows)]
    tenants = ["" if i % 4 else "acme" if i % 8 else "acme zed:1" for i in range(rows)]
    return keys, attributes, tenants


def write_sample(name, rows=3000, dim=24):
    """name.fbin, name.keys, name.attrs, name.tenants."""
    write_fbin(name + ".fbin", sample(rows, dim))
    for what, lines in zip(("keys", "attrs", "tenants"), sample_parts(rows)):
        write_lines(f"{name}.{what}", lines)


def sides(name):
    return ["--keys", name + ".keys", "--attrs", name + ".attrs", "--tenants", name + ".tenants"]


def round_trip(extension, *options, keeps_metric=True):
    """sample.fbin and its lines into a file of this format and back: every byte is as it was, and the metric is known."""
    write_sample("sample")
    there = convert("sample.fbin", "there." + extension, *sides("sample"), *options, "--metric", "l2")
    back = convert("there." + extension, "back.fbin", *sides("back"))
    check(f"{extension}: the metric " + ("is known when it is read" if keeps_metric else "has no place in it"),
          back.get("metric") == ("l2" if keeps_metric else None), back)
    check(f"{extension}: elements are floats there and back", there["type"] == back["type"] == "f32", (there, back))
    check(f"{extension}: as many rows, keys, attributes, tenants there and back",
          [there[x] for x in ("rows", "keys", "attributes", "tenants")] == [3000, 3000, 2000, 750] and
          all(there[x] == back[x] for x in ("rows", "dim", "keys", "attributes", "tenants")), (there, back))
    for what in ("fbin", "keys", "attrs", "tenants"):
        same(f"{extension}: {what} there and back", "sample." + what, "back." + what)
