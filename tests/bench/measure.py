"""measure.py - what curves.py and against_faiss.py share: data sets, `quire` as a child process, medians over rounds.

A figure is the median of rounds that go through all settings in turn, so that a slow minute of a shared machine falls
on all of them and on none alone. How long a run of `quire search` takes is set by passes over the queries, found by
one pass.
"""
import argparse
import contextlib
import json
import math
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import numpy as np
except ModuleNotFoundError:
    sys.exit("numpy is missing: apt-get install -y python3-numpy")

ROOT = Path(__file__).resolve().parents[2]
ELEMENTS = {".fbin": np.dtype("<f4"), ".u8bin": np.dtype("u1"), ".i8bin": np.dtype("i1")}


class Failed(Exception):
    """What stops a script, in words for its user."""


def number_list(text):
    return [int(part) for part in text.split(",")]


def real_list(text):
    return [float(part) for part in text.split(",")]


def arguments(description, out_help):
    """The parser with what every script of this kind takes: the data set, the build, rounds, a quick run."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", metavar="NAME", help="what the data set is called in the output")
    parser.add_argument("base", metavar="BASE", type=Path, help="vectors: .fbin, .u8bin or .i8bin")
    parser.add_argument("queries", metavar="QUERIES", type=Path, help="queries of the same format")
    parser.add_argument("truth", metavar="TRUTH", type=Path, 
                        help="exact neighbours with distances (quire truth), 10 or more")
    parser.add_argument("metric", metavar="METRIC", choices=["l2", "cosine", "ip"], help="l2, cosine or ip")
    parser.add_argument("--out", type=Path, help=out_help)
    parser.add_argument("--build-dir", type=Path, default=ROOT / "build/release", help="where quire is (build/release)")
    parser.add_argument("--rounds", type=int, help="rounds over all settings, of which medians are taken (3; quick: 1)")
    parser.add_argument("--block", default="auto", help="block size of Quire's index: auto, 4K, 8K or 16K (auto)")
    parser.add_argument("--seconds", type=float, help="least time of one throughput run (1; quick: 0.2)")
    parser.add_argument("--quick", action="store_true", 
                        help="few settings, short runs: does it work, not what is the figure")
    return parser


def finish_arguments(options):
    """Fills in what --quick decides and refuses what is not there."""
    options.rounds = options.rounds or (1 if options.quick else 3)
    options.seconds = options.seconds or (0.2 if options.quick else 1.0)
    for path in (options.base, options.queries, options.truth):
        if not path.is_file():
            raise Failed(f"{path}: no such file; docs/performance.md says what the data sets are")
    for path in (options.base, options.queries):
        if path.suffix not in ELEMENTS:
            raise Failed(f"{path}: .fbin, .u8bin or .i8bin is needed; quire convert makes one")
    if options.out and not options.out.resolve().parent.is_dir():
        raise Failed(f"{options.out}: its folder does not exist")
    return options


def write_out(options, text):
    """To --out, or to standard output without it."""
    if options.out:
        options.out.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)


@contextlib.contextmanager
def temp_folder():
    """A folder under $TMPDIR or /tmp, on the file system that is measured; gone afterwards."""
    path = Path(tempfile.mkdtemp(prefix="quire-bench."))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def read_vectors(path):
    """The rows of a .fbin, .u8bin or .i8bin file, mapped, not read."""
    rows, dim = (int(x) for x in np.fromfile(path, "<u4", 2))
    return np.memmap(path, ELEMENTS[path.suffix], "r", 8, (rows, dim))


def read_truth(path):
    """ids and distances of a .bin truth, each queries x k."""
    n, k = (int(x) for x in np.fromfile(path, "<u4", 2))
    if os.path.getsize(path) != 8 + 8 * n * k:
        raise Failed(f"{path}: not ids and distances of {n} queries x {k}; quire truth --out NAME.bin makes them")
    return np.fromfile(path, "<u4", n * k, offset=8).reshape(n, k), \
        np.fromfile(path, "<f4", n * k, offset=8 + 4 * n * k).reshape(n, k)


def recall_at_k(found, truth, k):
    """Share of the k nearest among `found` (queries x k ids); a row as near as the k-th counts, as in quire search."""
    ids, distances = truth
    hits = 0
    for row, row_ids, row_distances in zip(found, ids, distances):
        hits += len(set(row[:k].tolist()) & set(row_ids[row_distances <= row_distances[k - 1]].tolist()))
    return hits / (len(found) * k)


def machine(quire):
    """What the figures depend on, for the record that stands beside them."""
    model = "unknown"
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    version = subprocess.run([quire.program, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    return {"processors": len(os.sched_getaffinity(0)), "processor": model, 
            "kernel": ".".join(platform.release().split(".")[:2]), "quire": version}


class Quire:
    """`quire` of a build folder; every call is a process of its own."""

    def __init__(self, build_dir):
        self.program = build_dir.resolve() / "quire"
        if not os.access(self.program, os.X_OK):
            raise Failed(f"{self.program}: not there; cmake --preset release && cmake --build --preset release")

    def json(self, *arguments_of_verb):
        """What a verb prints with --json; Failed with its own words where it fails."""
        done = subprocess.run([self.program, *map(str, arguments_of_verb), "--json"], capture_output=True, text=True,
                              check=False)
        if done.returncode != 0:
            raise Failed(done.stderr.strip() or f"quire {arguments_of_verb[0]}: exit status {done.returncode}")
        return json.loads(done.stdout)

    def build(self, options, folder, threads):
        """Builds the index of the data set that `options` names; its folder and what the build reported."""
        index = folder / "index"
        print(f"{options.name}: building", file=sys.stderr)
        report = self.json("build", "--base", options.base, "--metric", options.metric, "--out", index,
                           "--threads", threads, "--index", "pagegraph", "--block", options.block)
        return index, {key: report[key] for key in ("rows", "dim", "type", "metric", "seconds", "peak_resident_bytes",
                                                    "raw_bytes", "slot", "block_bytes", "index_bytes")}

    def search(self, options, index, seconds, *settings):
        """One search over all queries, repeated until it lasts about `seconds`."""
        verb = ("search", "--index", index, "--queries", options.queries, "--truth", options.truth, "--k", 10,
                *settings)
        report = self.json(*verb)
        if report["seconds"] >= seconds:
            return report
        return self.json(*verb, "--repeat", math.ceil(seconds / max(report["seconds"], 1e-3)))


def medians(reports):
    """Of equal-shaped flat dicts: the median of every number, the first of everything else."""
    out = dict(reports[0])
    for key, value in reports[0].items():
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            out[key] = statistics.median(report[key] for report in reports)
    return out


def run(main):
    """Ends the process with main's status, or with one sentence where something is missing."""
    try:
        sys.exit(main())
    except Failed as failed:
        sys.exit(f"{Path(sys.argv[0]).name}: {failed}")
    except KeyboardInterrupt:
        sys.exit(130)
