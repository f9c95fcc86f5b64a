#!/usr/bin/env bash
# scale.sh [OPTION...] - from one million rows to ten: what is built, verified, searched, started again and merged.
#
# Makes ROWS rows with `quire gen`, builds an index of them and one of the first SMALL with a bound on memory, reads
# every byte of both, searches them in turn at the default recall of 0.95, starts a server with the large one until it
# answers right (after a stop, and after kill -9 with a log behind), and merges rows that came later into it while
# searches go on. Lines of JSON, then a table with the bars. Everything lies under $TMPDIR or /tmp (ten million rows:
# some 15 GB) and is removed afterwards.
#
#   --build DIR          where quire is (build/release)
#   --rows N             rows of the large index (10000000)
#   --small N            rows of the small one (1000000)
#   --dim N              dimensions (96)
#   --clusters N         clusters of the data (10000)
#   --intrinsic N        their true dimensions (32)
#   --build-memory SIZE  of the builds (1G)
#   --later N            rows that come later, and are merged in (100000)
#   --rounds N           searches of each index (5)
#   --passes N           passes over the 1,000 queries in a search (5)
#   --work FOLDER        use this folder, keep it, and do not make again what is there
set -euo pipefail
here=$(dirname "${BASH_SOURCE[0]}")
# shellcheck source=tests/bench/lib.sh
source "$here/lib.sh"
# shellcheck source=tests/bench/server.sh
source "$here/server.sh"

build=$here/../../build/release rows=10000000 small=1000000 dim=96 clusters=10000 intrinsic=32 build_memory=1G
later=100000 rounds=5 passes=5 work=''
while (($# > 0)); do
    [[ $1 != --help ]] || { usage_of "${BASH_SOURCE[0]}"; exit 0; }
    (($# >= 2)) || fail "$1 needs a value"
    case $1 in
    --build) build=$2 ;;
    --rows) rows=$2 ;;
    --small) small=$2 ;;
    --dim) dim=$2 ;;
    --clusters) clusters=$2 ;;
    --intrinsic) intrinsic=$2 ;;
    --build-memory) build_memory=$2 ;;
    --later) later=$2 ;;
    --rounds) rounds=$2 ;;
    --passes) passes=$2 ;;
    --work) work=$2 ;;
    *) fail "$1: unknown; --help says what there is" ;;
    esac
    shift 2
done
need_quire "$build"
need_server "$build"
remove=''
if [[ -z $work ]]; then
    work=$(mktemp -d "${TMPDIR:-/tmp}/quire-bench.XXXXXX")
    remove=$work
fi
mkdir -p "$work"
trap 'server_stop; [[ -z $remove ]] || rm -rf "$remove"' EXIT

if [[ ! -f $work/large.gt.bin ]]; then
    "$quire" gen --rows "$rows" --dim "$dim" --clusters "$clusters" --intrinsic "$intrinsic" --out "$work/large" >&2
fi
if [[ ! -f $work/small.gt.bin ]]; then
    "$quire" convert --limit "$small" "$work/large.fbin" "$work/small.fbin" >&2
    "$quire" truth --base "$work/small.fbin" --queries "$work/large.query.fbin" --metric l2 --out "$work/small.gt.bin" >&2
fi

declare -A seconds
for size in small large; do
    if [[ ! -d $work/$size.index ]]; then
        begin=$SECONDS
        "$quire" build --base "$work/$size.fbin" --out "$work/$size.index" --metric l2 --build-memory "$build_memory" \
            --json >"$work/$size.build.json"
        seconds[$size]=$((SECONDS - begin))
        begin=$SECONDS
        "$quire" verify "$work/$size.index" --json >"$work/$size.verify.json" || fail "$size: verify found damage"
        echo "{\"step\": \"build\", \"index\": \"$size\", \"seconds\": ${seconds[$size]}, \"peak_bytes\":" \
            "$(field peak_resident_bytes "$work/$size.build.json"), \"verify_seconds\": $((SECONDS - begin))}"
    fi
done

declare -A reads_of cpu_of
for ((round = 1; round <= rounds; round++)); do
    for size in small large; do
        "$quire" search --index "$work/$size.index" --queries "$work/large.query.fbin" --truth "$work/$size.gt.bin" --k 10 \
            --lanes 2 --inflight 32 --repeat "$passes" --json >"$work/search.json"
        reads=$(field reads_per_query "$work/search.json") cpu=$(field cpu_us_per_query "$work/search.json")
        reads_of[$size]+=" $reads" cpu_of[$size]+=" $cpu"
        echo "{\"step\": \"search\", \"index\": \"$size\", \"recall\": $(field recall_at_k "$work/search.json")," \
            "\"reads\": $reads, \"cpu_us\": $cpu, \"qps\": $(field qps "$work/search.json")}"
    done
done

# A server that has the large index as a set of its own.
INDEX=$work/large.index ROUNDS=3 "$here/restart.sh" "$work/large.fbin" "$work/large.query.fbin" "$work/large.gt.bin" l2 \
    "$build" | tee "$work/restart.jsonl"

# Rows that come later: sealed, then merged with the ten million, searches going on.
server_start "$work/server" --import-dir "$work" --appendfsync everysec
redis-cli -p "$server_port" VLOAD large large.index >"$work/loaded"
[[ $(cat "$work/loaded") == OK ]] || fail "VLOAD: $(cat "$work/loaded")"
"$bench_live" --port "$server_port" --key large --base "$work/large.fbin" --queries "$work/large.query.fbin" \
    --rows "$later" --connections 2 --searchers 0 --moments 0 >"$work/later.json"
redis-cli -p "$server_port" VSEAL large >"$work/sealed"
begin=$SECONDS
redis-cli -p "$server_port" VCOMPACT large >"$work/merged"
echo "{\"step\": \"merge\", \"rows\": $rows, \"later\": $later, \"seconds\": $((SECONDS - begin))," \
    "\"reply\": \"$(cat "$work/merged")\", \"peak_kib\": $(awk '/VmHWM/ { print $2 }' "/proc/$server_pid/status")}"
server_stop
rm -rf "$work/server"

# compare WHAT SMALL LARGE
compare() {
    awk -v what="$1" -v small="$2" -v large="$3" 'BEGIN { rise = 100 * (large / small - 1)
        printf "| %s | %.2f | %.2f | %+.1f %% | +25 %% | %s |\n", what, small, large, rise, rise <= 25 ? "met" : "missed" }'
}
printf '\n| medians | %s rows | %s rows | rise | bar | |\n|---|---|---|---|---|---|\n' "$small" "$rows"
# shellcheck disable=SC2086 # lists of numbers
{
    compare "reads per query" "$(median ${reads_of[small]})" "$(median ${reads_of[large]})"
    compare "cpu us per query" "$(median ${cpu_of[small]})" "$(median ${cpu_of[large]})"
}
