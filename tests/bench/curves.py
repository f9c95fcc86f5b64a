#!/usr/bin/python3
"""Recall against reads and throughput: one index, a ladder of efforts and recall targets for each memory budget.

Each setting is searched with one query at a time (latency) and with two lanes of 32 (throughput, memory, processor
time), in rounds over all settings; medians stand in the JSON file that figures.py draws from. A budget below the
narrowest codes is recorded as refused, with what quire said. The index is made under $TMPDIR or /tmp, on the file
system that is measured, and removed afterwards.
"""
import json
import sys

from measure import Failed, Quire, arguments, finish_arguments, machine, medians, number_list, real_list, run, \
    temp_folder, write_out

EFFORTS = [16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536]
RECALLS = [0.8, 0.9, 0.95, 0.97, 0.98, 0.99]
BUDGETS = ["all", "30%", "15%"]


def parse():
    parser = arguments(__doc__, "the JSON file (standard output)")
    parser.add_argument("--efforts", type=number_list, help=f"ladder of widths ({','.join(map(str, EFFORTS))})")
    parser.add_argument("--recalls", type=real_list, help=f"ladder of recall targets ({','.join(map(str, RECALLS))})")
    parser.add_argument("--budgets", type=lambda text: text.split(","),
                        help=f"budgets as quire search takes them, or all ({','.join(BUDGETS)})".replace("%", "%%"))
    options = finish_arguments(parser.parse_args())
    options.efforts = options.efforts or ([64, 256, 1024] if options.quick else EFFORTS)
    options.recalls = options.recalls or ([0.9, 0.95] if options.quick else RECALLS)
    options.budgets = options.budgets or BUDGETS
    return options


def point(quire, options, index, settings):
    """One setting, measured once both ways."""
    alone = quire.search(options, index, options.seconds, "--lanes", 1, "--inflight", 1, *settings)
    full = quire.search(options, index, options.seconds, "--lanes", 2, "--inflight", 32, *settings)
    return {"recall_at_k": full["recall_at_k"], "reads_per_query": full["reads_per_query"],
            "rounds_per_query": full["rounds_per_query"], "cpu_us_per_query": full["cpu_us_per_query"],
            "qps": full["qps"], "p50_us": alone["latency_us"]["p50"], "p99_us": alone["latency_us"]["p99"],
            "p999_us": alone["latency_us"]["p999"], "resident_bytes": full["resident_bytes"],
            "resident_of_raw": full["resident_of_raw"], "resident_bytes_one_lane": alone["resident_bytes"],
            "code_bits": full["code_bits"], "effort": full["effort"]}


def fits(quire, options, index, budget):
    """Whether the index opens within a budget; else quire's sentence about it."""
    try:
        quire.json("search", "--index", index, "--queries", options.queries, "--limit", 1, *budget)
        return None
    except Failed as failed:
        return str(failed).replace(str(index), "the index")


def measure(quire, options, index):
    """Points of all budgets in ladder order, and the budgets that were refused."""
    ladder = [("effort", e) for e in options.efforts] + [("recall", r) for r in options.recalls]
    settings, refused, rounds = [], [], {}
    for name in options.budgets:
        budget = () if name == "all" else ("--memory", name)
        words = fits(quire, options, index, budget)
        if words:
            refused.append({"budget": name, "said": words})
            print(f"{options.name}, {name}: {words}", file=sys.stderr)
        else:
            settings += [(name, budget, by, value) for by, value in ladder]
    for n in range(options.rounds):
        for name, budget, by, value in settings:
            one = point(quire, options, index, (*budget, f"--{by}", value))
            rounds.setdefault((name, by, value), []).append(one)
            print(f"{options.name}, round {n + 1}, {name}, {by} {value}: recall {one['recall_at_k']:.4f},"
                  f" {one['reads_per_query']:.2f} reads, {one['qps']:.0f} qps", file=sys.stderr)
    return [{"budget": name, "by": by, "value": value, **medians(rounds[name, by, value])}
            for name, _, by, value in settings], refused


def main():
    options = parse()
    quire = Quire(options.build_dir)
    with temp_folder() as folder:
        index, built = quire.build(options, folder, 0)
        points, refused = measure(quire, options, index)
    result = {"name": options.name, "k": 10, "rounds": options.rounds, "quick": options.quick,
              "machine": machine(quire), "throughput": "2 lanes x 32 in flight", "latency": "one query at a time",
              "build": built, "refused": refused, "points": points}
    text = json.dumps(result, indent=1) + "\n"
    write_out(options, text)
    return 0


if __name__ == "__main__":
    run(main)
