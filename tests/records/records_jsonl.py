"""records_jsonl.py BUILD_DIR - JSON Lines: round trips, other stores' names, and what is refused."""
import json

import numpy as np

from checks import check, convert, end, read_fbin, refused, round_trip, run, sample, sample_parts, same, write_lines

round_trip("jsonl", keeps_metric=False)
status, _, err = run("convert", "there.jsonl", "metric.jsonl", "--metric", "ip")
check("jsonl: a metric that it cannot hold is said", status == 0 and "metric.jsonl cannot hold the metric" in err and
      "--metric ip" in err, err)
status, _, err = run("convert", "there.jsonl", "cosine.jsonl", "--metric", "cosine")
check("jsonl: not said is cosine, which an import takes by itself", status == 0 and "metric" not in err, err)

# what was written, read by another reader of JSON
keys, attributes, tenants = sample_parts(3000)
vectors = sample()
with open("there.jsonl") as file:
    rows = [json.loads(line) for line in file]
check("jsonl: Python reads the same keys", [row["id"] for row in rows] == keys)
check("jsonl: the same floats, bit by bit",
      (np.array([row["vector"] for row in rows]).astype("f4").view("u4") == vectors.view("u4")).all())
check("jsonl: the same attributes",
      [row.get("attributes") for row in rows] == [json.loads(a) if a else None for a in attributes])
check("jsonl: the same tenants", [" ".join(row.get("tenants", [])) for row in rows] == tenants)

# through pipes, and types of whole numbers
status, out, _ = run("convert", "-", "-", "--from", "jsonl", "--to", "jsonl", stdin=open("there.jsonl", "rb").read())
check("jsonl: through a pipe", status == 0 and out == open("there.jsonl").read())
bytes_ = np.random.default_rng(3).integers(0, 256, (50, 9)).astype("u1")
np.save("bytes.npy", bytes_)
convert("bytes.npy", "bytes.jsonl")
check("jsonl: bytes are whole numbers", json.loads(open("bytes.jsonl").readline())["vector"] == bytes_[0].tolist())
convert("bytes.jsonl", "bytes.u8bin")
convert("bytes.u8bin", "bytes2.npy")
same("jsonl: bytes there and back", "bytes.npy", "bytes2.npy")

# as other stores export it: ids that are numbers, attributes without a field of their own, both
write_lines("points.jsonl", [
    '{"id": 17, "vector": [1, 2], "payload": {"city": "Berlin"}}',
    '',
    ' {"payload": null , "vector":[ 3.5,-4e-1 ],"id":"x"} ',
    '{"id": "y", "vector": [5, 6], "payload": {"a": 1}, "shard": "s1"}',
    '{"id": "z", "vector": [7, 8], "colour": "red", "n": [1, 2]}',
    '{"vector": [9, 10], "payload": {}, "q": "a\\"}]"}',
])
convert("points.jsonl", "points.fbin", "--attrs", "points.attrs")
check("points: vectors", read_fbin("points.fbin").tolist() == [[1, 2], [3.5, np.float32(-0.4)], [5, 6], [7, 8], [9, 10]])
check("points: attributes, and what has no place of its own joins them",
      [json.loads(a) if a else None for a in open("points.attrs").read().split("\n")[:-1]] ==
      [{"city": "Berlin"}, None, {"a": 1, "shard": "s1"}, {"colour": "red", "n": [1, 2]}, {"q": 'a"}]'}])
status, out, err = run("convert", "points.jsonl", "points2.fbin")
check("points: what a file of vectors cannot hold is said", status == 0 and "4 rows have keys" in err and
      "4 rows have attributes" in err, err)
refused("points: a row without a key, where each line is one", "row 4 has no key", "convert", "points.jsonl",
        "points3.fbin", "--keys", "points.keys")
write_lines("named.jsonl", ['{"name": "a", "emb": [1], "info": {"x": 1}, "who": "t1 t2"}'])
convert("named.jsonl", "named.fbin", "--vector-field", "emb", "--key-field", "name", "--attrs-field", "info",
        "--tenants-field", "who", "--keys", "named.keys", "--attrs", "named.attrs", "--tenants", "named.tenants")
check("names that are given", [open("named." + x).read() for x in ("keys", "attrs", "tenants")] ==
      ["a\n", '{"x": 1}\n', "t1 t2\n"])
convert("points.jsonl", "first.fvecs", "--limit", 2)
check("--limit", len(open("first.fvecs", "rb").read()) == 2 * 12)

# refusals name the line
for name, lines, sentence in [
    ("no vector", ['{"id": 1}'], 'line 1 has no field "vector"'),
    ("another dimension", ['{"vector": [1, 2]}', '{"vector": [1]}'], "line 2 has a vector of 1 dimensions; expected 2"),
    ("more dimensions", ['{"vector": [1, 2]}', '{"vector": [1, 2, 3]}'], "line 2 has a vector of more than 2"),
    ("not an object", ['[1]'], "line 1: a row is a JSON object"),
    ("cut off", ['{"vector": [1]}', '{"vector": [1], "a": {'], "line 2: it is not JSON"),
    ("text behind", ['{"vector": [1]} x'], "line 1: it is not JSON"),
    ("attributes twice", ['{"vector": [1], "x": 1, "x": 2}'], "row 0 are not a JSON object: duplicate"),
    ("bad attributes", ['{"vector": [1], "attributes": {"x": nope}}'], "row 0 are not a JSON object"),
    ("numbers as texts", ['{"vector": ["1"]}'], "not an array of numbers"),
    ("infinity", ['{"vector": [1e99]}'], "row 0 of bad.jsonl holds NaN or infinity in dimension 0"),
    ("NaN", ['{"vector": [NaN]}'], "not an array of numbers"),
    ("hexadecimal", ['{"vector": [0x10]}'], "not an array of numbers"),
    ("named vectors", ['{"vector": {"a": [1]}}'], "not an array of numbers (one unnamed"),
    ("an empty vector", ['{"vector": []}'], "the vector has no dimensions"),
    ("an id that is a list", ['{"vector": [1], "id": [1]}'], "neither a string nor a whole number"),
    ("an empty id", ['{"vector": [1], "id": ""}'], "the key of row 0 has 0 bytes"),
    ("tenants that are numbers", ['{"vector": [1], "tenants": [1]}'], "the tenants are not a list of names"),
    ("nothing", [""], "bad.jsonl has no row"),
]:
    write_lines("bad.jsonl", lines)
    refused("refused: " + name, sentence, "convert", "bad.jsonl", "bad.fvecs", "--attrs", "bad.attrs")
refused("refused: lines beside neither", "neither IN nor OUT", "convert", "points.jsonl", "x.jsonl", "--keys", "k", status=2)
refused("refused: lines beside both", "stay as they are", "convert", "points.fbin", "x.npy", "--keys", "k", status=2)
write_lines("few.keys", ["a"])
refused("refused: too few lines", "few.keys has fewer lines", "convert", "points.fbin", "x.jsonl", "--keys", "few.keys")
write_lines("many.keys", list("abcdef"))
refused("refused: too many lines", "many.keys has more lines", "convert", "points.fbin", "x.jsonl", "--keys", "many.keys")
open("latin.keys", "wb").write(b"\xe9\nb\nc\nd\ne\n")
refused("refused: a key that is not UTF-8", "not UTF-8", "convert", "points.fbin", "x.jsonl", "--keys", "latin.keys")
import os
check("failures left nothing", not [x for x in os.listdir(".") if x.startswith(("x.", "bad.fvecs", "bad.attrs")) or
                                    ".partial-" in x], os.listdir("."))
end()
