#!/usr/bin/env bash
# queue.sh [OPTION...] NAME BASE QUERIES TRUTH METRIC - the share of the device's rate that two lanes of searches reach.
#
# Builds an index under $TMPDIR or /tmp (removed afterwards), then alternates `quire search` and `quire probe` in the
# same folder with reads of the index's own block size. A round's share is queries/s x reads per query over the most
# the probe finds at any depth; the median of the shares counts, because a shared device changes from minute to
# minute.
#
#   --build DIR     where quire is (build/release)
#   --rounds N      rounds of search and probe (5)
#   --block SIZE    of the index: auto, 4K, 8K or 16K (auto)
#   --lanes N       lanes of the search and of the probe (2)
#   --passes N      passes over the queries in a search (20)
#   --memory SIZE   budget of the search (all codes)
#   --quick         2 rounds of 3 passes, a short probe: does it work, not what is the figure
set -euo pipefail
here=$(dirname "${BASH_SOURCE[0]}")
# shellcheck source=tests/bench/lib.sh
source "$here/lib.sh"

build=$here/../../build/release rounds=5 lanes=2 passes=20 block_size=auto budget=() probe=()
given=()
while (($# > 0)); do
    case $1 in
    [!-]*) given+=("$1"); shift; continue ;;
    --help) usage_of "${BASH_SOURCE[0]}"; exit 0 ;;
    --quick) rounds=2 passes=3 probe=(--time 100 --size 256M); shift; continue ;;
    esac
    (($# >= 2)) || fail "$1 needs a value"
    case $1 in
    --build) build=$2 ;;
    --rounds) rounds=$2 ;;
    --lanes) lanes=$2 ;;
    --block) block_size=$2 ;;
    --passes) passes=$2 ;;
    --memory) budget=(--memory "$2") ;;
    *) fail "$1: unknown; --help says what there is" ;;
    esac
    shift 2
done
take_data_set "$build" "${given[@]}"

"$quire" build --base "$base" --out "$work/index" --metric "$metric" --index pagegraph \
    --block "$block_size" --json >"$work/build.json"
block=$(field block_bytes "$work/build.json")
printf '## %s: reads of %s bytes, %s lanes x 32 in flight\n\n' "$name" "$block" "$lanes"
printf '| round | recall@10 | queries/s | reads per query | reads/s of the search | reads/s of the device | share |\n'
printf '|---|---|---|---|---|---|---|\n'
shares=()
for ((round = 1; round <= rounds; round++)); do
    "$quire" search --index "$work/index" --queries "$queries" --truth "$truth" --k 10 --lanes "$lanes" --inflight 32 \
        --repeat "$passes" "${budget[@]}" --json >"$work/search.json"
    device=$(device_rate "$work" "$block" "$lanes" "${probe[@]}")
    recall=$(field recall_at_k "$work/search.json") qps=$(field qps "$work/search.json")
    reads=$(field reads_per_query "$work/search.json")
    share=$(awk "BEGIN { print 100 * $qps * $reads / $device }")
    shares+=("$share")
    awk -v round="$round" -v recall="$recall" -v qps="$qps" -v reads="$reads" -v device="$device" -v share="$share" \
        'BEGIN { printf "| %d | %.4f | %.0f | %.2f | %.0f | %.0f | %.0f %% |\n", round, recall, qps, reads, qps * reads,
                 device, share }'
done
printf '\nmedian share of the device: %.0f %%\n' "$(median "${shares[@]}")"
