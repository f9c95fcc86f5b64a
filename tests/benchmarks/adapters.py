"""adapters.py BUILD_DIR - the adapters of bindings/benchmarks: under stand-ins of the harnesses' base classes, and, where
ANN_BENCHMARKS names a checkout of ann-benchmarks, under its own runner, then plot.py over the results; where
BIG_ANN_BENCHMARKS names one of big-ann-benchmarks, under that one's runner and plot.py.

QUIRE_BINDINGS and QUIRE_LIBRARY name another package and library than those of this tree."""
import atexit
import os
import pathlib
import re
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
    """A data set as that harness has it: its file's name says in the middle what it is."""
    dtype, nb = "float32", 4000

    def short_name(self):
        return "base"

    def get_dataset_fn(self):
        return str(work / "base.fbin.crop_nb_4000")


def mapped(path, dtype, maxn):
    rows, dim = np.fromfile(path, "<u4", 2)
    return np.memmap(path, dtype, "r", 8, (min(rows, maxn), dim))


shutil.copy(work / "base.fbin", Data().get_dataset_fn())
for name in ("benchmark", "benchmark.algorithms"):
    package(name)
package("benchmark.dataset_io", xbin_mmap=mapped)
package("benchmark.algorithms.base", BaseANN=BaseANN)
package("benchmark.datasets", DATASETS={"base": Data})
os.chdir(work)
Quire = load("quire_ann", here / "big-ann-benchmarks/quire/quire_ann.py").Quire
algorithm = Quire("angular", {"slot": "f32"})
check("big-ann-benchmarks: no index yet", algorithm.load_index("base") is False)
for _ in range(2):  # the second time as --rebuild does
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

def harness(variable, adapter, place):
    """A copy of the checkout that the environment's variable names, with our adapter in it; None without one."""
    checkout = os.environ.get(variable)
    if not checkout:
        print(f"skip - the runner of {adapter}: {variable} names no checkout of it")
        return None
    copy = work / adapter
    shutil.copytree(checkout, copy, symlinks=True)
    shutil.copytree(here / adapter / "quire", copy / place / "quire")
    return copy


def run_until_done(copy, results, *arguments):
    """run.py with these arguments, until it leaves files of results: what it ended with, and the files. Its worker may find
    the queue empty before that is filled, and ends with 0 and nothing done, hence five times at most."""
    for _ in range(5):
        done = subprocess.run(["/usr/bin/python3", "run.py", *arguments], cwd=copy, capture_output=True, text=True,
                              env={**os.environ, "PYTHONPATH": bindings})
        files = list((copy / "results" / results).glob("*.hdf5"))
        if files or done.returncode:
            break
    return done, files


def ann_benchmarks(copy):
    (copy / "data").mkdir(exist_ok=True)
    shutil.copy(pathlib.Path(os.environ.get("ANN_DATA", work / "base.hdf5")), copy / "data/local.hdf5")
    with open(copy / "ann_benchmarks/datasets.py", "a", encoding="utf-8") as file:
        file.write('\nDATASETS["local"] = None  # its file is there\n')
    # of Debian: python3-docker, which the runner imports without need, python3-colors, -psutil, -yaml
    for name in ("quire", "quire-f32"):
        done, files = run_until_done(copy, f"local/10/{name}", "--local", "--dataset", "local", "--algorithm", name, "--runs", "2")
        check(f"ann-benchmarks' run.py completes {name}", done.returncode == 0 and len(files) == 8, (files, done.stderr[-1500:]))
    figure = os.environ.get("ANN_FIGURE", str(work / "figure.svg"))
    done = subprocess.run(["/usr/bin/python3", here / "plot.py", copy / "results/local/10", copy / "data/local.hdf5", figure],
                          capture_output=True, text=True)
    print(done.stdout, end="")
    check("plot.py draws its results", done.returncode == 0 and os.path.getsize(figure) > 1000, done.stderr[-800:])
    done = subprocess.run(["/usr/bin/python3", "plot.py", "--dataset", "local", "--output", work / "theirs.png"], cwd=copy,
                          capture_output=True, text=True)
    check("and so does the harness's own plot.py", done.returncode == 0 and os.path.getsize(work / "theirs.png") > 1000,
          done.stderr[-800:])


LOCAL_DATA = """

class Local(DatasetCompetitionFormat):  # its files are there
    def __init__(self):
        self.nb, self.d, self.nq, self.dtype = {nb}, {d}, {nq}, "{dtype}"
        self.ds_fn, self.qs_fn, self.gt_fn = "base.crop_nb_{nb}", "queries", "truth"
        self.private_qs_url = self.private_gt_url = None
        self.basedir = os.path.join(BASEDIR, "local")

    def prepare(self, skip_data=False):
        pass

    def distance(self):
        return "euclidean"

    def search_type(self):
        return "knn"

    def default_count(self):
        return 10


DATASETS["local"] = Local
"""


def big_ann_benchmarks(copy):
    """random-xs, which the harness makes itself, and sift-50k as a data set in its format. Of Debian: python3-sklearn,
    -docker, -colors, -psutil, -yaml, -h5py, -matplotlib."""
    least = {"random-xs": .98}
    if sift.exists():
        least["local"] = .9
        folder = copy / "data/local"
        folder.mkdir(parents=True)
        nb, d = np.fromfile(sift, "<u4", 2)
        for path, name in ((sift, f"base.crop_nb_{nb}"), (sift.with_suffix(".query.u8bin"), "queries"),
                           (sift.with_suffix(".gt.bin"), "truth")):
            shutil.copy(path, folder / name)
        nq = np.fromfile(folder / "queries", "<u4", 1)[0]
        with open(copy / "benchmark/datasets.py", "a", encoding="utf-8") as file:
            file.write(LOCAL_DATA.format(nb=nb, d=d, nq=nq, dtype="uint8"))
    for name, again in [*((name, []) for name in least), ("random-xs", ["--rebuild", "--force"])]:
        results = f"neurips23/ood/{name}/10/quire"
        shutil.rmtree(copy / "results" / results, ignore_errors=True)
        done, files = run_until_done(copy, results, "--neurips23track", "ood", "--algorithm", "quire", "--dataset", name,
                                     "--nodocker", "--runs", "2", *again)
        check(" ".join([f"big-ann-benchmarks' run.py completes {name}", *again]), done.returncode == 0 and len(files) == 3,
              (files, done.stdout[-1500:], done.stderr[-1500:]))
    for name, recall_wanted in least.items():
        picture = work / f"big-{name}.png"
        done = subprocess.run(["/usr/bin/python3", "plot.py", "--dataset", name, "--neurips23track", "ood", "--output", picture],
                              cwd=copy, capture_output=True, text=True)
        seen = re.findall(r"^ *\d+: +(.*\S) +([\d.]+) +([\d.]+)$", done.stdout, re.M)  # name, recall, queries/s
        for point in sorted(seen, key=lambda point: float(point[1])):
            print("%-10s %-30s recall %s %6.0f queries/s" % (name, point[0], point[1], float(point[2])))
        check(f"and its plot.py draws {name}, with the recall that there is", done.returncode == 0 and picture.exists() and
              len(seen) == 3 and max(float(recall) for _, recall, _ in seen) > recall_wanted, (seen, done.stderr[-1500:]))


for variable, adapter, place, use in (
        ("ANN_BENCHMARKS", "ann-benchmarks", "ann_benchmarks/algorithms", ann_benchmarks),
        ("BIG_ANN_BENCHMARKS", "big-ann-benchmarks", "neurips23/ood", big_ann_benchmarks)):
    copy = harness(variable, adapter, place)
    if copy:
        use(copy)
sys.exit(failed > 0)
