#!/usr/bin/env bash
# cache_eval.sh DATA_FOLDER [OUT_FOLDER] [BUILD_DIR] - CLINC150 through a real cache: the tables of docs/performance.md
# ("Thresholds on CLINC150") as Markdown on standard output, cache-clinc150.json and cache-clinc150.svg in OUT_FOLDER.
#
# DATA_FOLDER holds clinc150.tsv (part, domain, intent, text) and clinc150.fbin. Five seeds, budgets of 1, 2 and 5 %,
# three orders, from nothing and with the next seed's curves: 90 streams, some ten minutes. Environment: SEEDS (1-5),
# DELTAS (0.01,0.02,0.05), ORDERS (random,bursty,drifting; the figure has the first).
set -euo pipefail
here=$(dirname "${BASH_SOURCE[0]}")
# shellcheck source=tests/bench/lib.sh
source "$here/lib.sh"
if [[ ${1:-} == --help ]]; then usage_of "${BASH_SOURCE[0]}"; exit 0; fi
(($# >= 1)) || { usage_of "${BASH_SOURCE[0]}" >&2; exit 2; }
data=$1 out=${2:-.}
need_quire "${3:-$here/../../build/release}"
need_files "$data/clinc150.tsv" "$data/clinc150.fbin"
mkdir -p "$out"
rm -f "$out/cache-clinc150.svg"
"$quire" cache-eval "$data/clinc150.tsv" "$data/clinc150.fbin" --category-column 2 --answer-column 3 --text-column 4 \
    --nothing oos --seeds "${SEEDS:-1-5}" --delta "${DELTAS:-0.01,0.02,0.05}" \
    --order "${ORDERS:-random,bursty,drifting}" --svg "$out/cache-clinc150.svg" --json >"$out/cache-clinc150.json"
/usr/bin/python3 - "$out/cache-clinc150.json" <<'PYTHON'
import json
import sys

report = json.load(open(sys.argv[1]))
hindsight = {(h["order"], h["delta"]): h for h in report["hindsight_means"]}
START = {"risk": "cold", "imported": "imported"}
DELTA = sorted(h["delta"] for h in report["hindsight_means"])[len(report["hindsight_means"]) // 2]  # of categories


def share(value):
    return f"{value:.3f}".lstrip("0") if 0 <= value < 1 else f"{value:.3f}"


def percent(value):
    return f"{100 * value:.2f} %"


def table(head, rows):
    print("| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|")
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print()


table(["order", "delta", "static", "per category", "RISK", "served", "wrong: mean, worst", "second half: static",
       "per category", "RISK served", "wrong, worst", "ratio to static: mean, least", "labelled, most"],
      [[m["order"], f"{100 * m['delta']:g} %", share(h["static"]), share(h["per_category"]), START[m["policy"]],
        share(m["served"]), f"{percent(m['wrong'])}, {percent(m['wrong_most'])}", share(h["static_second"]),
        share(h["per_category_second"]), share(m["served_second"]), percent(m["wrong_second_most"]),
        f"{m['ratio_second']:.2f}, {m['ratio_least']:.2f}", percent(m["labelled_most"])]
       for m in report["means"] for h in [hindsight[m["order"], m["delta"]]]])
table(["order", "delta", "RISK", "seed", "served", "wrong", "second half: served", "wrong", "ratio", "labelled"],
      [[r["order"], f"{100 * r['delta']:g} %", START[r["policy"]], str(r["seed"]), share(r["served"]),
        percent(r["wrong"]), share(r["served_second"]), percent(r["wrong_second"]), f"{r['ratio_second']:.2f}",
        percent(r["labelled"])]
       for r in report["runs"] if r["order"] == report["runs"][0]["order"]])
table(["category", "served", "precision (95 %)", "wrong / request", "worst seed", "labelled", "threshold"],
      [[c["category"], share(c["hit_rate"]),
        "-" if c["precision"] is None else f"{c['precision']:.3f} ({c['precision_low']:.3f}-{c['precision_high']:.3f})",
        percent(c["wrong"]), percent(c["wrong_most"]), percent(c["labelled"]), f"{c['threshold']:.3f}"]
       for c in report["categories"] if c["policy"] == "risk" and c["delta"] == DELTA])
table(["", "n", "p50", "p99", "p99.9 us"],
      [[row["of"], str(row["n"])] + [f"{row[p]:.0f}" for p in ("p50_us", "p99_us", "p999_us")]
       for row in report["latency"]])
m = report["memory"][0]
print(f"{m['entries']} entries: {m['memory_bytes']} bytes of memory ({m['memory_bytes_per_entry']:.0f} each), "
      f"{m['disk_bytes']} on disk.")
PYTHON
