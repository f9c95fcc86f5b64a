#!/usr/bin/python3
"""plot.py RESULTS TRUTH.hdf5 OUT.svg - recall against queries per second, of results of ann-benchmarks.

RESULTS: the folder results/DATASET/K of that harness, a folder per algorithm. TRUTH: the data set's file. The curve of an
algorithm is its best points, those than which none has more recall and more queries per second; they are drawn. Prints
every point with its arguments, the best ones marked "best". "of the rows": how many of the k rows of the truth were found;
recall is the harness's, which counts other rows that are as near, or nearly.
Needs python3-h5py and python3-matplotlib."""
import pathlib
import sys

import h5py
import matplotlib

matplotlib.use("svg")
matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "quire"})  # letters, and the same bytes for the same points
import matplotlib.pyplot as plt  # noqa: E402
import numpy as np  # noqa: E402

EPSILON = 1e-3  # of the harness: a neighbour as far as the k-th, or nearly, counts


def points(folder, near, far):
    """(algorithm, recall, queries per second, name with arguments, recall by rows) of every file of results."""
    for path in sorted(pathlib.Path(folder).rglob("*.hdf5")):
        with h5py.File(path) as file:
            k = int(file.attrs["count"])
            limit = far[:, k - 1:k] + EPSILON
            recall = (file["distances"][:, :k] <= limit).sum(axis=1).mean() / k
            rows = np.mean([np.isin(t[:k], f[:k]).mean() for f, t in zip(file["neighbors"][:], near)])
            yield (str(file.attrs["algo"]), float(recall), 1 / float(file.attrs["best_search_time"]),
                   str(file.attrs["name"]), float(rows))


def best(rows):
    """Those than which none has more of both, by recall."""
    out, most = [], 0.0
    for point in sorted(rows, reverse=True):
        if point[1] > most:
            out.append(point)
            most = point[1]
    return out[::-1]


def main(folder, truth, out):
    with h5py.File(truth) as file:
        near, far = np.array(file["neighbors"]), np.array(file["distances"])
    by_name = {}
    for algorithm, *point in points(folder, near, far):
        by_name.setdefault(algorithm, []).append(tuple(point))
    if not by_name:
        sys.exit("plot.py: %s has no results (*.hdf5)" % folder)
    figure, axes = plt.subplots(figsize=(7, 4.5))
    for algorithm, rows in sorted(by_name.items()):
        curve = best(rows)
        axes.plot(*list(zip(*curve))[:2], marker="o", label=algorithm)
        for point in sorted(rows):
            print("%-34s recall %.4f, of the rows %.4f %6.0f queries/s%s" % (
                point[2], point[0], point[3], point[1], " best" if point in curve else ""))
    axes.set_xlabel("recall")
    axes.set_ylabel("queries per second")
    axes.set_yscale("log")
    axes.grid(True, which="both", alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(out, metadata={"Date": None})


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
