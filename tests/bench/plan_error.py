#!/usr/bin/env python3
"""plan_error.py NAME BASE QUERIES TRUTH METRIC - what `quire plan` says of a data set beside what is then measured.

The plan gets the base as its sample and tries indexes of --trial-rows of its rows, fewer than there are. Then indexes of
all rows are built in each way and searched with the memory that the plan names. Reads, codes, bytes and recall do not
depend on what else the machine does; processor time does a little, queries/s much: look at the ratios. Markdown: a row
for each way, "plan / measured", and how many times the measured queries/s the plan has. Started by plan_error.sh for
several sets.
"""
import resource
import statistics

from measure import Quire, arguments, finish_arguments, read_vectors, run, temp_folder, write_out

BUILDS = {"page graph": ("--index", "pagegraph"), "edges": ("--index", "pagegraph", "--edge-codes", "yes"),
          "lists 4": ("--index", "spann", "--bits", "4"), "lists 2": ("--index", "spann", "--bits", "2")}
# way -> (build, code bits that searches must have, whether all memory may be used)
WAYS = {"page graph, 4-bit codes": ("page graph", 4, True), "page graph, 2-bit codes": ("page graph", 2, False),
        "page graph, 1-bit codes": ("page graph", 1, False), "page graph, codes in blocks": ("edges", 0, False),
        "lists, 4-bit codes": ("lists 4", 4, True), "lists, 2-bit codes": ("lists 2", 2, True),
        "lists, heads alone": ("lists 4", 0, False)}


def processor_seconds():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def build(quire, options, folder, name):
    index = folder / name.replace(" ", "-")
    begun = processor_seconds()
    block = () if "spann" in BUILDS[name] else ("--block", "8K" if options.block == "auto" else options.block)
    report = quire.json("build", "--base", options.base, "--metric", options.metric, "--out", index, *block,
                        *BUILDS[name])
    return index, {"cpu_s": processor_seconds() - begun, "peak": report["peak_resident_bytes"]}


def pair(planned, measured, form="%.1f"):
    return (form + " / " + form) % (planned, measured)


def main():
    parser = arguments(__doc__, "Markdown goes here instead of to standard output")
    parser.add_argument("--trial-rows", type=int, default=32768, help="of the larger sample (32768)")
    options = finish_arguments(parser.parse_args())
    quire = Quire(options.build_dir)
    rows = len(read_vectors(options.base))
    lines, builds, rates = [], {}, []
    with temp_folder() as folder:
        plan = quire.json("plan", "--rows", rows, "--sample", options.base, "--metric", options.metric, "--probe",
                          folder, "--trial-rows", options.trial_rows,
                          *(() if options.block == "auto" else ("--block", options.block)))
        for way in plan["ways"]:
            name, bits, whole = WAYS[way["way"]]
            if name not in builds:
                builds[name] = (*build(quire, options, folder, name), way)
            memory = () if whole else ("--memory", int(way["memory_mb"] * 1e6))
            report = quire.search(options, builds[name][0], options.seconds, "--lanes", plan["processors"],
                                  "--inflight", 32, "--no-cache", *memory)
            info = quire.json("inspect", builds[name][0], *memory)
            if info["code_bits"] != bits:
                raise SystemExit(f"{way['way']}: searches with {way['memory_mb']} MB have {info['code_bits']} bits")
            lines.append("| %s | %d | %d | %s | %.3f | %s | %s | %s | %s | %s |" % (
                options.name, rows, plan["sample_rows"], way["way"], report["recall_at_k"],
                pair(way["reads"], report["reads_per_query"]), pair(way["cpu_us"], report["cpu_us_per_query"], "%.0f"),
                pair(way["resident_mb"], report["index_resident_bytes"] / 1e6),
                pair(way["disk_gb"] * 1e3, report["index_bytes"] / 1e6), pair(way["qps"], report["qps"], "%.0f")))
            rates.append(way["qps"] / report["qps"])
    text = "\n".join(lines) + "\n\n"
    text += "| %s | %d | %.2f | %.2f to %.2f |\n\n" % (options.name, rows, statistics.median(rates), min(rates), max(rates))
    for name, (_, seen, way) in builds.items():
        text += "| %s | %d | %s | %s | %s |\n" % (
            options.name, rows, name, pair(way["build_cpu_s"], seen["cpu_s"]),
            pair(way["build_memory_bytes"] / 1e6, seen["peak"] / 1e6, "%.0f"))
    write_out(options, text)
    return 0


if __name__ == "__main__":
    run(main)
