#!/usr/bin/env bash
# blocks.sh [OPTION...] NAME BASE QUERIES TRUTH METRIC [BUDGET...] - whether `--block auto` takes the best block size.
#
# For each budget (percentages of the raw vectors, or "all"; all, 35, 15 and 8 where none is given) builds an index with
# blocks of 4, 8 and 16 KiB and one with `--block auto`, and searches the three in turn, two lanes with 32 queries in
# flight each. Medians over the rounds; beside them what auto expected of each size. "of the best" is the rate of the
# size that auto took over the best rate.
#
#   --build DIR     where quire is (build/release)
#   --rounds N      rounds of searches (5)
#   --passes N      passes over the queries in a search (4)
#   --keep DIR      where indexes are kept and taken from; without: under $TMPDIR or /tmp, removed afterwards
#   --quick         1 round of 1 pass: does it work, not what is the figure
set -euo pipefail
here=$(dirname "${BASH_SOURCE[0]}")
# shellcheck source=tests/bench/lib.sh
source "$here/lib.sh"

build=$here/../../build/release rounds=5 passes=4 keep=''
given=()
while (($# > 0)); do
    case $1 in
    [!-]*) given+=("$1"); shift; continue ;;
    --help) usage_of "${BASH_SOURCE[0]}"; exit 0 ;;
    --quick) rounds=1 passes=1; shift; continue ;;
    esac
    (($# >= 2)) || fail "$1 needs a value"
    case $1 in
    --build) build=$2 ;;
    --rounds) rounds=$2 ;;
    --passes) passes=$2 ;;
    --keep) keep=$2 ;;
    *) fail "$1: unknown; --help says what there is" ;;
    esac
    shift 2
done
budgets=("${given[@]:5}")
((${#budgets[@]} > 0)) || budgets=(all 35 15 8)
take_data_set "$build" "${given[@]:0:5}"
keep=${keep:-$work}
mkdir -p "$keep"

# expected SIZE FIELD - what auto expected of a size
expected() {
    /usr/bin/python3 - "$work/auto.json" "$1" "$2" <<'END'
import json, sys
rows = json.load(open(sys.argv[1])).get("block_rates", [])
print(next((r[sys.argv[3]] for r in rows if r["block_bytes"] == int(sys.argv[2])), 0))
END
}

# build_one PATH SIZE JSON OPTION... - an index, unless it is there
build_one() {
    local path=$1 size=$2 json=$3
    shift 3
    [[ -d $path && -f $path.json ]] ||
        "$quire" build --base "$base" --out "$path" --metric "$metric" --index pagegraph \
            --block "$size" "$@" --json >"$path.json"
    cp "$path.json" "$json"
}

printf '## %s: queries/s by block size, measured and expected\n\n' "$name"
printf '| budget | auto | 4K: bits, reads, queries/s (expected) | 8K | 16K | of the best |\n|---|---|---|---|---|---|\n'
for budget in "${budgets[@]}"; do
    limit=()
    [[ $budget == all ]] || limit=(--memory "$budget%")
    for size in 4 8 16; do
        build_one "$keep/$name.$budget.$size" "${size}K" "$work/built.json" "${limit[@]}"
    done
    rm -rf "$work/chosen" "$work/chosen.json"
    build_one "$work/chosen" auto "$work/auto.json" "${limit[@]}"
    for ((round = 0; round < rounds; round++)); do
        for size in 4 8 16; do
            "$quire" search --index "$keep/$name.$budget.$size" --queries "$queries" --truth "$truth" --lanes 2 --inflight 32 \
                --repeat "$passes" "${limit[@]}" --no-cache --json >"$work/one.json"
            for value in code_bits reads_per_query qps; do
                field "$value" "$work/one.json"
            done | paste -sd' ' >>"$work/$budget.$size"
        done
    done
    chosen=$(($(field block_bytes "$work/auto.json") / 1024)) best=0 row=''
    for size in 4 8 16; do
        # shellcheck disable=SC2046 # one word for each line
        rate=$(median $(awk '{ print $3 }' "$work/$budget.$size"))
        row+=$(awk -v rate="$rate" -v qps="$(expected $((size * 1024)) qps)" \
            'NR == 1 { printf " %d, %.1f, %.0f (%.0f) |", $1, $2, rate, qps }' "$work/$budget.$size")
        best=$(awk "BEGIN { print ($rate > $best ? $rate : $best) }")
        [[ $size != "$chosen" ]] || taken=$rate
    done
    printf '| %s | %sK |%s %.2f |\n' "$budget" "$chosen" "$row" "$(awk "BEGIN { print ${taken:-0} / $best }")"
done
