"""records_hdf5.py BUILD_DIR - HDF5: round trips, beside h5py both ways, and what is refused."""
import os

import numpy as np

from checks import (check, convert, end, module, read_fbin, refused, round_trip, run, sample, sample_parts, same,
                    write_fbin)

refused("hdf5: without the library it says which package has it", "libhdf5-103-1", "convert", "x.hdf5", "y.fbin",
        env={"QUIRE_HDF5": "/nonexistent.so"})
h5py = module("h5py", "python3-h5py", "HDF5 (it brings the library too)")
if not h5py:
    end()

round_trip("hdf5", "--metric", "l2")
keys, attributes, tenants = sample_parts(3000)
with h5py.File("there.hdf5") as file:
    check("h5py reads the same floats", (file["train"][:].view("u4") == sample().view("u4")).all())
    for name, lines in (("keys", keys), ("attributes", attributes), ("tenants", tenants)):
        check(f"h5py reads the same {name}", [x.decode() for x in file[name][:]] == lines)
    check("h5py reads the attributes of the file",
          (file.attrs["distance"], file.attrs["type"], file.attrs["dimension"]) == ("euclidean", "dense", 24))

# queries and neighbours, as ann-benchmarks has them
for metric, name in (("l2", "euclidean"), ("cosine", "angular")):
    run("gen", "--rows", 3000, "--dim", 16, "--clusters", 9, "--queries", 50, "--k", 20, "--metric", metric, "--out", name)
    convert(name + ".fbin", name + ".hdf5", "--queries", name + ".query.fbin", "--truth", name + ".gt.bin", "--metric", metric)
    with h5py.File(name + ".hdf5") as file:
        train, test = file["train"][:].astype("f8"), file["test"][:].astype("f8")
        if metric == "l2":
            far = np.sqrt(((test[:, None] - train[None]) ** 2).sum(axis=2))
        else:
            unit = lambda x: x / np.linalg.norm(x, axis=1, keepdims=True)
            far = 1 - unit(test) @ unit(train).T
        order = np.argsort(far, axis=1, kind="stable")[:, :20]
        check(f"{name}: distances are NumPy's", np.allclose(file["distances"][:], np.take_along_axis(far, order, 1), atol=1e-5))
        check(f"{name}: neighbours are NumPy's", (file["neighbors"][:] == order).mean() > 0.999)
        check(f"{name}: distance is named", file.attrs["distance"] == name)
    report = convert(name + ".hdf5", name + "2.fbin", "--queries", name + "2.query.fbin", "--truth", name + "2.gt.bin")
    check(f"{name}: the metric is told", report["metric"] == metric and report["queries"] == 50, report)
    for what in ("fbin", "query.fbin", "gt.bin"):
        same(f"{name}: {what} there and back", f"{name}.{what}", f"{name}2.{what}")

# ground truth of another metric, or of other rows: unit vectors have the same neighbours under both
unit_rows, unit_queries = (read_fbin(f"angular.{x}") for x in ("fbin", "query.fbin"))
write_fbin("unit.fbin", unit_rows / np.linalg.norm(unit_rows, axis=1, keepdims=True))
write_fbin("unit.query.fbin", unit_queries / np.linalg.norm(unit_queries, axis=1, keepdims=True))
write_fbin("short.fbin", unit_queries[:3])
run("truth", "--base", "unit.fbin", "--queries", "unit.query.fbin", "--metric", "l2", "--k", "20", "--out", "unit.gt.bin")
unit = ("convert", "unit.fbin", "unit.hdf5", "--queries", "unit.query.fbin", "--truth", "unit.gt.bin", "--metric")
for metric in ("cosine", "ip"):
    refused(f"refused: truth of another metric than {metric}", f"under the metric {metric}: the truth is of another", *unit, metric)
refused("refused: truth of other rows", "or of other vectors", "convert", "angular.fbin", "x.hdf5", "--queries",
        "angular.query.fbin", "--truth", "unit.gt.bin", "--metric", "l2")
refused("refused: truth of other queries", "is of 50 queries, and short.fbin has 3", "convert", "unit.fbin", "x.hdf5",
        "--queries", "short.fbin", "--truth", "unit.gt.bin", "--metric", "l2")
check("and nothing is left", not [x for x in os.listdir(".") if x.startswith(("x.", "unit.hdf5"))])
status, out, err = run(*unit, "l2")
check("truth of this metric", status == 0, err)

# bytes: a harness that subtracts them as they are counts wrongly
with open("bytes.u8bin", "wb") as file:
    np.array([8, 8], dtype="<u4").tofile(file)
    np.arange(64, dtype="u1").tofile(file)
bytes_ = ("convert", "bytes.u8bin", "bytes.hdf5", "--queries", "bytes.u8bin", "--metric", "l2")
status, out, err = run(*bytes_)
check("bytes with queries: what a harness makes of them is said", status == 0 and "write --type f32" in err, err)
os.remove("bytes.hdf5")
status, out, err = run(*bytes_, "--type", "f32")
with h5py.File("bytes.hdf5") as file:
    check("as floats they are floats", status == 0 and "--type" not in err and file["train"].dtype == "f4", err)

# files of h5py: types, chunks, compression, whole ids, fixed texts
random = np.random.default_rng(5)
floats = random.standard_normal((500, 12))
with h5py.File("other.hdf5", "w") as file:
    file.create_dataset("train", data=floats.astype("f4"), chunks=(64, 12), compression="gzip")
    file.create_dataset("test", data=floats[:7].astype("f4"))
    file.create_dataset("double", data=floats)
    file.create_dataset("half", data=floats.astype("f2"))
    file.create_dataset("big_endian", data=floats.astype(">f4"))
    file.create_dataset("i8", data=random.integers(-128, 128, (500, 12)).astype("i1"))
    file.create_dataset("i32", data=random.integers(-9, 9, (500, 12)).astype("i4"))
    file.create_dataset("flat", data=np.arange(5, dtype="f4"))
    file.create_dataset("ids", data=np.arange(500) * 10 - 7)
    file.create_dataset("names", data=np.array([b"n%d" % i for i in range(500)], dtype="S8"))
    bad = floats.astype("f4")
    bad[3, 4] = np.nan
    file.create_dataset("nan", data=bad)
    file.attrs["distance"] = np.bytes_("angular")
report = convert("other.hdf5", "other.fbin", "--keys", "other.keys")
check("chunks and compression are read", (read_fbin("other.fbin") == floats.astype("f4")).all())
check("ids that are numbers", open("other.keys").read().split() == [str(i * 10 - 7) for i in range(500)])
check("a fixed text as the distance", report["metric"] == "cosine", report)
for name in ("double", "half", "big_endian", "i8"):
    convert("other.hdf5", name + ".fbin", "--vector-field", name)
    with h5py.File("other.hdf5") as file:
        check(f"{name} is read", (read_fbin(name + ".fbin") == file[name][:].astype("f4")).all())
convert("other.hdf5", "test.fbin", "--vector-field", "test")
check("keys of train are not those of test", (read_fbin("test.fbin") == floats[:7].astype("f4")).all())
convert("other.hdf5", "named.fbin", "--key-field", "names", "--keys", "named.keys")
check("fixed texts", open("named.keys").read().split() == [f"n{i}" for i in range(500)])
np.save("half.npy", floats.astype("f2"))
convert("half.npy", "half2.hdf5")
with h5py.File("half2.hdf5") as file:
    check("f16 is NumPy's float16", file["train"].dtype == np.float16 and (file["train"][:] == floats.astype("f2")).all())
write_fbin("a.fbin", floats)
status, _, err = run("convert", "-", "piped.hdf5", "--from", "fvecs", stdin=b"".join(
    np.uint32(12).tobytes() + row.astype("f4").tobytes() for row in floats))
with h5py.File("piped.hdf5") as file:
    check("a pipe of unknown length becomes a file", (file["train"][:] == floats.astype("f4")).all())

for name, sentence, field in (("whole numbers of 4 bytes", "whole numbers of 4 bytes", "i32"),
                              ("one axis", "has 1 axes", "flat"), ("no such dataset", "has no dataset", "nope"),
                              ("NaN", "row 3 of other.hdf5 holds NaN", "nan")):
    refused("refused: " + name, sentence, "convert", "other.hdf5", "x.fbin", "--vector-field", field)
with h5py.File("sparse.hdf5", "w") as file:
    file.create_dataset("train", data=np.arange(9))
    file.attrs["type"] = "sparse"
refused("refused: sparse files", "rows are sets", "convert", "sparse.hdf5", "x.fbin")
whole = open("there.hdf5", "rb").read()
open("cut.hdf5", "wb").write(whole[:len(whole) // 2])
refused("refused: half a file", "not a whole HDF5 file", "convert", "cut.hdf5", "x.fbin")
open("no.hdf5", "wb").write(b"no HDF5")
refused("refused: something else", "not a whole HDF5 file", "convert", "no.hdf5", "x.fbin")
refused("refused: keys that do not belong", "names has 500 rows", "convert", "other.hdf5", "x.fbin", "--vector-field", "test",
        "--key-field", "names")
refused("refused: truth without a metric", "--metric must say", "convert", "euclidean.fbin", "x.hdf5", "--truth", "euclidean.gt.bin")
refused("refused: queries of another dimension", "has 12 dimensions", "convert", "euclidean.fbin", "x.hdf5", "--queries", "a.fbin")
refused("refused: queries without HDF5", "must be .hdf5", "convert", "a.fbin", "x.jsonl", "--queries", "a.fbin", status=2)
check("failures left nothing", not [x for x in os.listdir(".") if x.startswith("x.") or ".partial-" in x], os.listdir("."))
end()
