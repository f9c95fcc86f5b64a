#!/usr/bin/env bash
# growth.sh [OPTION...] NAME BASE QUERIES TRUTH METRIC - what four times the rows cost a query, in reads and processor time.
#
# Builds an index of all rows and one of the first quarter (with exact truth of its own) under $TMPDIR or /tmp,
# removed afterwards, and searches them in turn at the default recall of 0.95. Medians over the rounds; the ratios
# stand beside the bars: reads at most +25 %, processor time at most +35 %. Recall is printed because ratios at
# unequal recall say little.
#
#   --build DIR     where quire is (build/release)
#   --small N       rows of the small index (a quarter)
#   --large N       first so many rows for the large one, with truth computed anew (all, with TRUTH)
#   --rounds N      searches of each index (7)
#   --block SIZE    of the index: auto, 4K, 8K or 16K (auto)
#   --lanes N       lanes (2)
#   --passes N      passes over the queries in a search (10)
#   --quick         3 rounds of 2 passes: does it work, not what is the figure
set -euo pipefail
here=$(dirname "${BASH_SOURCE[0]}")
# shellcheck source=tests/bench/lib.sh
source "$here/lib.sh"

reads_bar=25 cpu_bar=35
build=$here/../../build/release small='' large='' rounds=7 lanes=2 passes=10 block_size=auto
given=()
while (($# > 0)); do
    case $1 in
    [!-]*) given+=("$1"); shift; continue ;;
    --help) usage_of "${BASH_SOURCE[0]}"; exit 0 ;;
    --quick) rounds=3 passes=2; shift; continue ;;
    esac
    (($# >= 2)) || fail "$1 needs a value"
    case $1 in
    --build) build=$2 ;;
    --small) small=$2 ;;
    --large) large=$2 ;;
    --rounds) rounds=$2 ;;
    --lanes) lanes=$2 ;;
    --block) block_size=$2 ;;
    --passes) passes=$2 ;;
    *) fail "$1: unknown; --help says what there is" ;;
    esac
    shift 2
done
take_data_set "$build" "${given[@]}"

# cut_rows SIZE ROWS - the first ROWS rows and their truth, as $work/SIZE.*
cut_rows() {
    "$quire" convert --limit "$2" "$base" "$work/$1.${base##*.}" >"$work/convert.txt"
    "$quire" truth --base "$work/$1.${base##*.}" --queries "$queries" --metric "$metric" --out "$work/$1.gt.bin" \
        >"$work/truth.txt"
}

declare -A vectors truths rows reads_of cpu_of
vectors[large]=$base truths[large]=$truth
if [[ -n $large ]]; then
    cut_rows large "$large"
    vectors[large]=$work/large.${base##*.} truths[large]=$work/large.gt.bin
fi
"$quire" build --base "${vectors[large]}" --out "$work/large.index" --metric "$metric" --index pagegraph \
    --block "$block_size" --json >"$work/large.json"
rows[large]=$(field rows "$work/large.json")
rows[small]=${small:-$((rows[large] / 4))}
cut_rows small "${rows[small]}"
vectors[small]=$work/small.${base##*.} truths[small]=$work/small.gt.bin
"$quire" build --base "${vectors[small]}" --out "$work/small.index" --metric "$metric" --index pagegraph \
    --block "$block_size" --json >"$work/small.json"

printf '## %s: %s to %s rows, default recall, %s lanes x 32 in flight\n\n' \
    "$name" "${rows[small]}" "${rows[large]}" "$lanes"
printf '| round | rows | recall@10 | reads per query | cpu us per query | queries/s |\n|---|---|---|---|---|---|\n'
for ((round = 1; round <= rounds; round++)); do
    for size in small large; do
        "$quire" search --index "$work/$size.index" --queries "$queries" --truth "${truths[$size]}" --k 10 \
            --lanes "$lanes" --inflight 32 --repeat "$passes" --json >"$work/search.json"
        reads=$(field reads_per_query "$work/search.json") cpu=$(field cpu_us_per_query "$work/search.json")
        reads_of[$size]+=" $reads" cpu_of[$size]+=" $cpu"
        awk -v round="$round" -v rows="${rows[$size]}" -v recall="$(field recall_at_k "$work/search.json")" \
            -v reads="$reads" -v cpu="$cpu" -v qps="$(field qps "$work/search.json")" \
            'BEGIN { printf "| %d | %d | %.4f | %.2f | %.0f | %.0f |\n", round, rows, recall, reads, cpu, qps }'
    done
done

# compare WHAT SMALL LARGE BAR
compare() {
    awk -v what="$1" -v small="$2" -v large="$3" -v bar="$4" 'BEGIN { rise = 100 * (large / small - 1)
        printf "| %s | %.2f | %.2f | %+.1f %% | %+d %% | %s |\n", what, small, large, rise, bar,
            rise <= bar ? "met" : "missed" }'
}
printf '\n| medians | %s rows | %s rows | rise | bar | |\n|---|---|---|---|---|---|\n' "${rows[small]}" "${rows[large]}"
# shellcheck disable=SC2086 # lists of numbers
{
    compare "reads per query" "$(median ${reads_of[small]})" "$(median ${reads_of[large]})" "$reads_bar"
    compare "cpu us per query" "$(median ${cpu_of[small]})" "$(median ${cpu_of[large]})" "$cpu_bar"
}
