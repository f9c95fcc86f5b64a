#!/usr/bin/env bash
# open_loop.sh [OPTION...] NAME BASE QUERIES TRUTH METRIC - latency of queries that arrive by themselves.
#
# Builds an index under $TMPDIR or /tmp (removed afterwards). The closed loop's peak is the median rate of two lanes
# with 32 queries in flight each, of the first build; then each round runs the closed loop and an open loop at a share
# of that peak with every build in turn. Medians over the rounds: what a device shared with others does for a moment
# does not decide; the lowest p99 and p99.9 stand beside them.
#
#   --builds LIST     folders with quire, separated by commas (build/release); the first one builds the index
#   --rounds N        rounds (9)
#   --seconds S       of an open loop (1)
#   --share PERCENT   of the closed loop's peak that arrives in the open loop (70)
#   --block SIZE      of the index (8K)
#   --passes N        passes over the queries in a closed loop (10)
#   --index DIR       an index of these vectors that is there, instead of a new one
#   --search OPTIONS  for all searches, as one argument: '--distance estimate'
#   --quick           2 short rounds: does it work, not what is the figure
set -euo pipefail
here=$(dirname "${BASH_SOURCE[0]}")
# shellcheck source=tests/bench/lib.sh
source "$here/lib.sh"

builds=$here/../../build/release rounds=9 seconds=1 share=70 block_size=8K passes=10 index='' options=()
given=()
while (($# > 0)); do
    case $1 in
    [!-]*) given+=("$1"); shift; continue ;;
    --help) usage_of "${BASH_SOURCE[0]}"; exit 0 ;;
    --quick) rounds=2 seconds=0.2 passes=2; shift; continue ;;
    esac
    (($# >= 2)) || fail "$1 needs a value"
    case $1 in
    --builds) builds=$2 ;;
    --rounds) rounds=$2 ;;
    --seconds) seconds=$2 ;;
    --share) share=$2 ;;
    --block) block_size=$2 ;;
    --passes) passes=$2 ;;
    --index) index=$2 ;;
    --search) read -ra options <<<"$2" ;;
    *) fail "$1: unknown; --help says what there is" ;;
    esac
    shift 2
done
IFS=, read -ra folders <<<"$builds"
take_data_set "${folders[0]}" "${given[@]}"
for folder in "${folders[@]}"; do need_quire "$folder"; done
need_quire "${folders[0]}"

if [[ -z $index ]]; then
    index=$work/index
    "$quire" build --base "$base" --out "$index" --metric "$metric" --index pagegraph \
        --block "$block_size" --json >"$work/build.json"
fi

# ask FOLDER FILE OPTION... - one search, its JSON appended to FILE, whose rows are of one kind
ask() {
    local program=$1/quire file=$2
    shift 2
    "$program" search --index "$index" --queries "$queries" --truth "$truth" --k 10 --lanes 2 --inflight 32 "${options[@]}" \
        "$@" --json >"$work/one.json"
    {
        for value in recall_at_k qps reads_per_query cpu_us_per_query p50 p99 p999 max; do
            printf '%s ' "$(field "$value" "$work/one.json")"
        done
        echo
    } >>"$file"
}

# row TEXT FILE - medians of the columns, and the least p99 and p99.9
row() {
    local columns=() i
    for i in 1 2 3 4 5 6 7 8; do
        # shellcheck disable=SC2046 # one word for each line
        columns+=("$(median $(awk -v i=$i '{ print $i }' "$2"))")
    done
    columns+=("$(awk '{ print $6 }' "$2" | sort -g | head -1)" "$(awk '{ print $7 }' "$2" | sort -g | head -1)")
    awk -v text="$1" -v all="${columns[*]}" 'BEGIN { split(all, c, " ")
        printf "| %s | %.4f | %.2f | %.0f | %.0f | %.2f | %.2f | %.2f | %.2f | %.2f | %.2f |\n", text, c[1], c[3], c[4], c[2],
               c[5] / 1e3, c[6] / 1e3, c[7] / 1e3, c[8] / 1e3, c[9] / 1e3, c[10] / 1e3 }'
}

for ((i = 0; i < 3; i++)); do
    ask "${folders[0]}" "$work/peak" --repeat "$passes"
done
# shellcheck disable=SC2046
peak=$(median $(awk '{ print $2 }' "$work/peak"))
rate=$(awk "BEGIN { printf \"%.0f\", $peak * $share / 100 }")
for ((round = 1; round <= rounds; round++)); do
    for ((i = 0; i < ${#folders[@]}; i++)); do
        ask "${folders[i]}" "$work/closed.$i" --repeat "$passes"
        ask "${folders[i]}" "$work/open.$i" --rate "$rate" --seconds "$seconds"
    done
done
printf '## %s: 2 lanes, %s rounds; peak %.0f queries/s\n\n' "$name" "$rounds" "$peak"
printf '| loop | recall@10 | reads | CPU, us | queries/s | p50, ms | p99 | p99.9 | most | least p99 | least p99.9 |\n'
printf '|---|---|---|---|---|---|---|---|---|---|---|\n'
for ((i = 0; i < ${#folders[@]}; i++)); do
    row "closed, 2 x 32, ${folders[i]}" "$work/closed.$i"
    row "open, $rate/s, ${folders[i]}" "$work/open.$i"
done
