#!/usr/bin/env bash
# search.sh NAME BASE QUERIES TRUTH METRIC [BUILD_DIR] - builds an index of a data set and measures it: recall, reads, rounds,
# memory, processor time, latency, throughput. queue.sh sets the throughput beside what the device gives.
#
# The index is made in $TMPDIR or /tmp, on the file system that is to be measured, and removed afterwards.
# Not part of the tests: figures depend on the machine. docs/performance.md has its output.
set -euo pipefail
here=$(dirname "${BASH_SOURCE[0]}")
# shellcheck source=tests/bench/lib.sh
source "$here/lib.sh"
if [[ ${1:-} == --help ]]; then usage_of "${BASH_SOURCE[0]}"; exit 0; fi
take_data_set "${6:-$here/../../build/release}" "${@:1:5}"

"$quire" build --base "$base" --out "$work/index" --metric "$metric" --json >"$work/build.json"
printf '%s: built in %.1f s, %.1f MB on disk (raw %.1f MB)\n' "$name" "$(field seconds "$work/build.json")" \
    "$(awk "BEGIN { print $(field index_bytes "$work/build.json") / 1e6 }")" \
    "$(awk "BEGIN { print $(field raw_bytes "$work/build.json") / 1e6 }")"

printf '%-22s %5s %7s %6s %7s %9s %9s %8s %8s %8s %8s %9s\n' setting bits recall reads rounds 'RSS MB' '% of raw' 'cpu us' \
    'p50 ms' 'p99 ms' 'p999 ms' qps
# measure LABEL OPTION...
measure() {
    local label=$1 out=$work/search.json
    shift
    if ! "$quire" search --index "$work/index" --queries "$queries" --truth "$truth" --k 10 --json "$@" >"$out" 2>&1; then
        printf '%-22s refused: the narrowest codes need more\n' "$label"
        return
    fi
    awk -v label="$label" -v bits="$(field code_bits "$out")" -v recall="$(field recall_at_k "$out")" \
        -v reads="$(field reads_per_query "$out")" -v rounds="$(field rounds_per_query "$out")" \
        -v rss="$(field resident_bytes "$out")" -v raw="$(field raw_bytes "$out")" -v cpu="$(field cpu_us_per_query "$out")" \
        -v p50="$(field p50 "$out")" -v p99="$(field p99 "$out")" -v p999="$(field p999 "$out")" -v qps="$(field qps "$out")" \
        'BEGIN { printf "%-22s %5d %7.4f %6.2f %7.2f %9.1f %9.1f %8.0f %8.2f %8.2f %8.2f %9.0f\n", label, bits, recall, reads,
                 rounds, rss / 1e6, 100 * rss / raw, cpu, p50 / 1e3, p99 / 1e3, p999 / 1e3, qps }'
}
measure "all codes, 1 query" --lanes 1 --inflight 1 --repeat 4
measure "15 % of raw, 1 lane" --memory 15% --lanes 1 --inflight 32
measure "15 % of raw, 2 lanes" --memory 15% --lanes 2 --inflight 32
measure "all codes, 2 lanes" --lanes 2 --inflight 32 --repeat 20
measure "1 query, estimates" --lanes 1 --inflight 1 --repeat 4 --distance estimate
measure "2 lanes, estimates" --lanes 2 --inflight 32 --repeat 20 --distance estimate
