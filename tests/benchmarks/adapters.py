"""adapters.py BUILD_DIR - the adapters of bindings/benchmarks: under stand-ins of the harnesses' base classes, and, where
ANN_BENCHMARKS names a checkout of ann-benchmarks, under its own runner; then plot.py over the results.

QUIRE_BINDINGS and QUIRE_LIBRARY name another package and library than those of this tree."""
import atexit
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import types

import numpy as np

root = pathlib.Path(__file__).resolve().parents[2]
build = pathlib.Path(sys.argv[1]).resolve()
bindings = os.environ.get("QUIRE_BINDINGS", str(root / "bindings" / "python"))
os.environ.setdefault("QUIRE_LIBRARY", str(build / "libquire.so.1"))
sys.path.insert(0, bindings)
failed = 0


def check(name, right, why=""):
    global failed
    failed += not right
    print(("ok - " if right else "FAIL - ") + name + ("" if right else f"\n       | {why}"))


try:
    import h5py
    import quire  # noqa: F401
except ImportError as error:
    print(f"skip - adapters of benchmarks: {error}")
    sys.exit(0)

work = pathlib.Path(tempfile.mkdtemp(prefix="quire-adapters."))
atexit.register(shutil.rmtree, work, ignore_errors=True)
os.environ["QUIRE_BENCH_DIR"] = str(work)
subprocess.run([build / "quire", "gen", "--rows", "4000", "--dim", "24", "--clusters", "1", "--intrinsic", "24", "--queries", "60", "--k", "10",
                "--metric", "cosine", "--seed", "3", "--out", work / "base"], check=True, stdout=subprocess.DEVNULL)
subprocess.run([build / "quire", "convert", work / "base.fbin", work / "base.hdf5", "--queries", work / "base.query.fbin",
                "--truth", work / "base.gt.bin", "--metric", "cosine"], check=True, stdout=subprocess.DEVNULL)
with h5py.File(work / "base.hdf5") as file:
    train, test, truth, far = (np.array(file[n]) for n in ("train", "test", "neighbors", "distances"))


def recall(found):
    return np.mean([len(set(map(int, f)) & set(t[:10].tolist())) / 10 for f, t in zip(found, truth)])


def package(name, **members):
    module = types.ModuleType(name)
    module.__path__ = []
    module.__dict__.update(members)
    sys.modules[name] = module


class BaseANN:
    """What both harnesses call of theirs."""

    def done(self):
        pass

    def get_results(self):
        return self.res

    get_batch_results = get_results

    def __str__(self):
        return self.name


def load(name, path):
    import importlib.util
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


here = root / "bindings" / "benchmarks"
for name in ("a", "a.quire", "a.base"):
    package(name)
package("a.base.module", BaseANN=BaseANN)
algorithm = load("a.quire.module", here / "ann-benchmarks/quire/module.py").Quire("angular", {"slot": "f32"})
algorithm.fit(train)
algorithm.set_query_arguments(200)
check("ann-benchmarks: query by query", recall([algorithm.query(q, 10) for q in test]) > 0.95)
algorithm.batch_query(test, 10)
check("ann-benchmarks: batches", recall(algorithm.get_batch_results()) > 0.95)
algorithm.set_query_arguments(1)
check("ann-benchmarks: the name says the effort", str(algorithm).endswith("effort 1)"), str(algorithm))
algorithm.done()
check("ann-benchmarks: nothing is left", not list(work.glob("quire-ann.*")))


class Data:
    def short_name(self):
        return "base"

    def get_dataset_fn(self):
        return str(work / "base.fbin")


for name in ("benchmark", "benchmark.algorithms"):
    package(name)
package("benchmark.algorithms.base", BaseANN=BaseANN)
package("benchmark.datasets", DATASETS={"base": Data})
os.chdir(work)
Quire = load("quire_ann", here / "big-ann-benchmarks/quire/quire_ann.py").Quire
algorithm = Quire("angular", {"slot": "f32"})
check("big-ann-benchmarks: no index yet", algorithm.load_index("base") is False)
algorithm.fit("base")
algorithm.done()
algorithm = Quire("angular", {"slot": "f32"})
check("big-ann-benchmarks: the index is found again", algorithm.load_index("base") is True)
algorithm.set_query_arguments({"effort": 200})
algorithm.query(test, 10)
check("big-ann-benchmarks: answers", algorithm.get_results().shape == (60, 10) and recall(algorithm.get_results()) > 0.95)
algorithm.done()

# plot.py: recall within the harness's tolerance of the k-th distance, and which points none beats in both
far = np.sort(far[:, :10], axis=1)
found = {0.8: (far.copy(), 0.002), 1.0: (far + 5e-4, 0.005), 0.6: (far.copy(), 0.004)}
for wanted, (distances, seconds) in found.items():
    distances[:, : round(10 * (1 - wanted))] = far[:, 9:10] + 0.01
    folder = work / "results" / "made-up"
    folder.mkdir(parents=True, exist_ok=True)
    with h5py.File(folder / f"{wanted}.hdf5", "w") as file:
        file["distances"] = distances
        file["neighbors"] = np.where(distances == far, truth[:, :10], -1)  # other rows, as near as these
        file.attrs.update({"algo": "made-up", "name": f"made-up-{wanted}", "count": 10, "best_search_time": seconds})
try:
    import matplotlib  # noqa: F401
    done = subprocess.run(["/usr/bin/python3", here / "plot.py", work / "results", work / "base.hdf5", work / "points.svg"],
                          capture_output=True, text=True)
    points = [line.split() for line in done.stdout.splitlines()]
    check("plot.py: the best points, with the harness's recall", points == [
        f"made-up-{name} recall {name}000, of the rows {rows} {rate} queries/s{best}".split() for name, rows, rate, best in (
            ("0.6", "0.6000", 250, ""), ("0.8", "0.8000", 500, " best"), ("1.0", "0.0000", 200, " best"))],
        done.stdout + done.stderr)
    check("plot.py: a figure", (work / "points.svg").read_text().count("made-up") >= 1)
except ImportError as error:
    print(f"skip - plot.py: {error}; the Debian package is python3-matplotlib")

# sift-50k is so large that effort decides what is found
sift = pathlib.Path(os.environ.get("QUIRE_DATA", ""), "sift-50k.u8bin")
if sift.exists():
    rows, test = quire.read_vectors(str(sift)), quire.read_vectors(str(sift.with_suffix(".query.u8bin")))
    words = np.fromfile(sift.with_suffix(".gt.bin"), "<u4")
    truth = words[2:2 + words[0] * words[1]].reshape(words[:2])
    algorithm = sys.modules["a.quire.module"].Quire("euclidean", {"slot": "f32"})
    algorithm.fit(rows)
    for batch in (False, True):
        seen = []
        for effort in (5, 80, 640):
            algorithm.set_query_arguments(effort)
            if batch:
                algorithm.batch_query(test, 10)
            seen.append(recall(algorithm.get_batch_results() if batch else [algorithm.query(q, 10) for q in test]))
        check("ann-benchmarks: effort reaches the search, " + ("batches" if batch else "query by query"),
              seen[0] + 0.01 < seen[1] and seen[1] + 0.01 < seen[2] and seen[2] > 0.99, seen)
    algorithm.done()
else:
    print("skip - effort and recall of sift-50k: QUIRE_DATA has it not")

harness = os.environ.get("ANN_BENCHMARKS")
if not harness:
    print("skip - the runner of ann-benchmarks: ANN_BENCHMARKS names no checkout of it")
    sys.exit(failed > 0)
copy = work / "harness"
shutil.copytree(harness, copy, symlinks=True)
shutil.copytree(here / "ann-benchmarks/quire", copy / "ann_benchmarks/algorithms/quire")
(copy / "data").mkdir(exist_ok=True)
data = pathlib.Path(os.environ.get("ANN_DATA", work / "base.hdf5"))
shutil.copy(data, copy / "data/local.hdf5")
with open(copy / "ann_benchmarks/datasets.py", "a", encoding="utf-8") as file:
    file.write('\nDATASETS["local"] = None  # its file is there\n')
# of Debian: python3-docker, which the runner imports without need, python3-colors, -psutil, -yaml
for name in ("quire", "quire-f32"):
    results = []
    for _ in range(5):  # its worker may find the queue empty before that is filled, and ends with 0 and nothing done
        done = subprocess.run(["/usr/bin/python3", "run.py", "--local", "--dataset", "local", "--algorithm", name, "--runs", "2"],
                              cwd=copy, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": bindings})
        results = list((copy / "results/local/10" / name).glob("*.hdf5"))
        if results or done.returncode:
            break
    check(f"ann-benchmarks' run.py completes {name}", done.returncode == 0 and len(results) == 8, (results, done.stderr[-1500:]))
figure = os.environ.get("ANN_FIGURE", str(work / "figure.svg"))
done = subprocess.run(["/usr/bin/python3", here / "plot.py", copy / "results/local/10", copy / "data/local.hdf5", figure],
                      capture_output=True, text=True)
print(done.stdout, end="")
check("plot.py draws its results", done.returncode == 0 and os.path.getsize(figure) > 1000, done.stderr[-800:])
done = subprocess.run(["/usr/bin/python3", "plot.py", "--dataset", "local", "--output", work / "theirs.png"], cwd=copy,
                      capture_output=True, text=True)
check("and so does the harness's own plot.py", done.returncode == 0 and os.path.getsize(work / "theirs.png") > 1000,
      done.stderr[-800:])
sys.exit(failed > 0)
