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

harness = os.environ.get("ANN_BENCHMARKS")
if not harness:
    print("skip - the runner of ann-benchmarks: ANN_BENCHMARKS names no checkout of it")
    sys.exit(failed > 0)
copy = work / "harness"
shutil.copytree(harness, copy, symlinks=True)
shutil.copytree(here / "ann-benchmarks/quire", copy / "ann_benchmarks/algorithms/quire")
(copy / "data").mkdir(exist_ok=True)
data = os.environ.get("ANN_DATA", str(work / "base.hdf5"))
shutil.copy(data, copy / "data/local.hdf5")
# its runner imports docker and colors, which a local run never calls
for name in ("docker", "colors"):
    try:
        __import__(name)
    except ImportError:
        (copy / f"{name}.py").write_text("models = None\n" if name == "colors" else
                                         "class models:\n    class containers:\n        class Container: pass\n")
efforts = (5, 10, 20, 40, 80, 160, 320)
run = """
import sys, json
from ann_benchmarks import datasets, runner
from ann_benchmarks.definitions import Definition
import h5py
def local(name):
    file = h5py.File("data/local.hdf5")
    return file, int(file.attrs["dimension"])
runner.get_dataset = local
for build in ({}, {"slot": "f32"}):
    metric = h5py.File("data/local.hdf5").attrs["distance"]
    runner.run(Definition(algorithm="quire-" + build.get("slot", "auto"), docker_tag=None, disabled=False,
                          module="ann_benchmarks.algorithms.quire", constructor="Quire", arguments=[metric, build],
                          query_argument_groups=[[e] for e in json.loads(sys.argv[1])]), "local", 10, 2, False)
"""
done = subprocess.run(["/usr/bin/python3", "-c", run, str(list(efforts))], cwd=copy, capture_output=True, text=True,
                      env={**os.environ, "PYTHONPATH": bindings})
check("ann-benchmarks' runner completes", done.returncode == 0, done.stderr[-1500:])
figure = os.environ.get("ANN_FIGURE", str(work / "figure.svg"))
done = subprocess.run([here / "plot.py", copy / "results/local/10", copy / "data/local.hdf5", figure], capture_output=True,
                      text=True)
print(done.stdout, end="")
check("plot.py draws its results", done.returncode == 0 and os.path.getsize(figure) > 1000, done.stderr[-800:])
sys.exit(failed > 0)
