"""records_indexes.py BUILD_DIR - vectors out of indexes of faiss and hnswlib, written by Debian's own faiss and hnswlib."""
import os

import numpy as np

from checks import check, convert, end, module, read_fbin, refused, run

random = np.random.default_rng(4)
x = random.standard_normal((2000, 16)).astype("f4")

faiss = module("faiss", "python3-faiss", "indexes of faiss")
if faiss:
    for name, index, metric in (("flat_l2", faiss.IndexFlatL2(16), "l2"), ("flat_ip", faiss.IndexFlatIP(16), "ip")):
        index.add(x)
        faiss.write_index(index, name + ".faiss")
        report = convert(name + ".faiss", name + ".fbin")
        check(f"faiss {name}: vectors and metric", (read_fbin(name + ".fbin") == x).all() and report["metric"] == metric, report)
    ids = random.permutation(10 ** 6)[:2000].astype("i8") - 1000

    def by_id(name, wanted):
        keys = np.array([int(k) for k in open(name + ".keys")])
        found = read_fbin(name + ".fbin")
        order = np.argsort(keys)
        back = np.argsort(wanted)
        check(f"faiss {name}: ids and their vectors", (keys[order] == wanted[back]).all() and (found[order] == x[back]).all())

    index = faiss.IndexIDMap(faiss.IndexFlatL2(16))
    index.add_with_ids(x, ids)
    faiss.write_index(index, "map.index")
    convert("map.index", "map.fbin", "--keys", "map.keys")
    by_id("map", ids)
    quantizer = faiss.IndexFlatL2(16)
    ivf = faiss.IndexIVFFlat(quantizer, 16, 30)
    ivf.train(x)
    ivf.add_with_ids(x, ids)
    faiss.write_index(ivf, "ivf.faiss")
    convert("ivf.faiss", "ivf.fbin", "--keys", "ivf.keys")
    by_id("ivf", ids)
    sparse = faiss.index_factory(16, "IVF900,Flat")
    sparse.train(np.concatenate([x + i for i in range(20)]).astype("f4"))
    sparse.add(x[:40])
    sparse.make_direct_map(True)
    faiss.write_index(sparse, "sparse.faiss")
    convert("sparse.faiss", "sparse.fbin", "--keys", "sparse.keys")
    order = np.argsort([int(k) for k in open("sparse.keys")])
    check("faiss: lists that are mostly empty, with a direct map", (read_fbin("sparse.fbin")[order] == x[:40]).all())
    for name, kind in (("PQ4", "IxPq"), ("HNSW8", "IHNf"), ("SQ8", "IxSQ")):
        index = faiss.index_factory(16, name)
        if name == "PQ4":
            index.do_polysemous_training = False  # half a minute for an order of centroids that nobody asks for
        index.train(x)
        index.add(x)
        faiss.write_index(index, name + ".faiss")
        refused(f"refused: {name}, by its letters", f"kind {kind}", "convert", name + ".faiss", "x.fbin")
    whole = open("ivf.faiss", "rb").read()
    for at in (2, 20, 60, 3000, len(whole) - 5):
        open("cut.faiss", "wb").write(whole[:at])
        status, _, err = run("convert", "cut.faiss", "x.fbin")
        check(f"refused: cut off after {at} bytes", status == 1 and "cut.faiss" in err, err)

hnswlib = module("hnswlib", "python3-hnswlib", "indexes of hnswlib")
if hnswlib:
    for space in ("l2", "cosine"):
        index = hnswlib.Index(space=space, dim=16)
        index.init_index(max_elements=3000, M=8, ef_construction=50)
        index.add_items(x, np.arange(2000) * 7)
        index.mark_deleted(21)
        index.save_index(space + ".hnswlib")
        convert(space + ".hnswlib", space + ".fbin", "--keys", space + ".keys")
        keys = np.array([int(k) for k in open(space + ".keys")])
        found = read_fbin(space + ".fbin")
        stored = np.array(index.get_items([int(k) for k in keys]), "f4")
        check(f"hnswlib {space}: labels and their vectors, without what is deleted",
              sorted(keys) == [i * 7 for i in range(2000) if i != 3] and (found == stored).all())
    status, _, err = run("convert", "l2.hnswlib", "l2.jsonl", "--limit", 5)
    check("hnswlib: --limit", status == 0 and len(open("l2.jsonl").readlines()) == 5, err)
    whole = open("l2.hnswlib", "rb").read()
    for at in (40, 200, 50000):
        open("cut.hnswlib", "wb").write(whole[:at])
        status, _, err = run("convert", "cut.hnswlib", "x.fbin")
        check(f"refused: hnswlib, cut off after {at} bytes", status == 1 and "cut.hnswlib" in err, err)
    open("zero.hnswlib", "wb").write(b"\0" * 500)
    refused("refused: zeros", "is no index of hnswlib", "convert", "zero.hnswlib", "x.fbin")
check("failures left nothing", not [n for n in os.listdir(".") if n.startswith("x.") or ".partial-" in n], os.listdir("."))
end()
