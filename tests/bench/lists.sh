#!/usr/bin/env bash
# lists.sh [OPTION...] DATA_FOLDER - inverted lists beside the page graph at equal memory, as Markdown.
#
# DATA_FOLDER holds text.fbin and sift.u8bin with their .query.* and .gt.bin; clustered vectors are generated. Builds an
# index of each kind and width that the table needs, one after the other, and searches both under each budget in turn:
# one query at a time, then two lanes. "process" is the kernel's count (VmRSS) less the queries in it. Then the recall of
# lists by effort, up to all of them.
#
#   --build DIR     where quire is (build/release)
#   --indexes DIR   keep the indexes there, and use those that are there already (a temporary folder)
#   --recall R      recall asked for (0.95)
#   --passes N      passes over the queries of one line (3)
set -euo pipefail
here=$(dirname "${BASH_SOURCE[0]}")
# shellcheck source=tests/bench/lib.sh
source "$here/lib.sh"
begin_full_sets 3 "${BASH_SOURCE[0]}" "$@"

# set_of SET - sets base, queries, truth, metric
set_of() {
    local folder=$data ending=fbin
    metric=l2
    case $1 in
    text) metric=cosine ;;
    sift) ending=u8bin ;;
    gen) folder=$indexes ;;
    esac
    base=$folder/$1.$ending queries=$folder/$1.query.$ending truth=$folder/$1.gt.bin
}

# index NAME SET OPTION... - builds it where it is not there, and prints how that went
index() {
    local name=$1
    set_of "$2"
    shift 2
    [[ -d $indexes/$name ]] && return
    "$quire" build --base "$base" --out "$indexes/$name" --metric "$metric" "$@" --json >"$work/build.json"
    awk -v name="$name" -v s="$(field seconds "$work/build.json")" -v disk="$(field index_bytes "$work/build.json")" \
        -v raw="$(field raw_bytes "$work/build.json")" -v lists="$(field lists "$work/build.json")" \
        -v peak="$(field peak_resident_bytes "$work/build.json")" 'BEGIN {
            printf "| %s | %.1f | %.2f | %.2f | %s |\n", name, s, disk / raw, peak / raw, lists ? lists : "-" }'
}

# row SET INDEX LABEL OPTION... - one line of the table
row() {
    local set=$1 name=$2 label=$3 one=$work/one.json two=$work/two.json
    set_of "$set"
    shift 3
    local search=("$quire" search --index "$indexes/$name" --queries "$queries" --truth "$truth" --k 10
        --repeat "$passes" --no-cache --json "$@")
    "${search[@]}" --inflight 1 >"$one"
    "${search[@]}" --lanes 2 >"$two"
    awk -v label="$label" -v bits="$(field code_bits "$one")" -v recall="$(field recall_at_k "$one")" \
        -v reads="$(field reads_per_query "$one")" -v rounds="$(field rounds_per_query "$one")" \
        -v bytes="$(field bytes_per_query "$one")" -v rss="$(field resident_bytes "$one")" \
        -v queries="$(field query_bytes "$one")" -v raw="$(field raw_bytes "$one")" -v effort="$(field effort "$one")" \
        -v cpu="$(field cpu_us_per_query "$one")" -v p50="$(field p50 "$one")" -v p99="$(field p99 "$one")" \
        -v p999="$(field p999 "$one")" -v qps="$(field qps "$two")" 'BEGIN {
            printf "| %s | %s | %d | %.4f | %.1f | %.0f | %.2f | %.1f %% | %.0f | %.2f / %.2f / %.2f | %.0f |\n", label,
                bits ? bits : "-", effort, recall, reads, bytes / 1024, rounds, 100 * (rss - queries) / raw, cpu,
                p50 / 1000, p99 / 1000, p999 / 1000, qps }'
}

head_of_rows() {
    echo
    echo "| | resident bits | effort | recall@10 | reads | KiB | rounds | process, of raw | CPU, us | one at a time, ms: p50 / p99 / p99.9 | QPS, 2 lanes |"
    echo "|---|---|---|---|---|---|---|---|---|---|---|"
}

[[ -f $indexes/gen.fbin ]] || "$quire" gen --rows 200000 --dim 128 --clusters 1000 --intrinsic 32 --out "$indexes/gen"
echo "| index | build, s | disk, of raw | peak memory, of raw | lists |"
echo "|---|---|---|---|---|"
index gen-spann gen --index spann
index text-spann text --index spann
index text-spann-2bit text --index spann --memory 15%
index text-spann-f32 text --index spann --slot f32
index sift-spann sift --index spann
index text-pagegraph text --index pagegraph
index text-pagegraph-small text --index pagegraph --memory 3%
index sift-pagegraph sift --index pagegraph
index sift-pagegraph-small sift --index pagegraph --memory 7%

head_of_rows
for effort in 2 4 8 16; do
    row gen gen-spann "gen, heads" --memory 10% --effort "$effort"
done
for memory in 20% 15%; do
    row text "text-spann$([[ $memory == 15% ]] && echo -2bit)" "text, $memory: lists" --memory "$memory" --recall "$recall"
    row text text-pagegraph "text, $memory: page graph" --memory "$memory" --recall "$recall"
done
row text text-spann "text, 8%: lists" --memory 8% --recall "$recall"
row text text-pagegraph "text, 8%: page graph" --memory 8% --recall "$recall"
row text text-spann "text, 3%: lists" --memory 3% --recall "$recall"
row text text-pagegraph-small "text, 3%: page graph" --memory 3% --recall "$recall"
for memory in 65% 25%; do
    row sift sift-spann "sift, $memory: lists" --memory "$memory" --recall "$recall"
    row sift sift-pagegraph "sift, $memory: page graph" --memory "$memory" --recall "$recall"
done
row sift sift-spann "sift, 7%: lists" --memory 7% --recall "$recall"
row sift sift-pagegraph-small "sift, 7%: page graph" --memory 7% --recall "$recall"

head_of_rows
for effort in 1 4 16 64 256 1024 4096; do
    row text text-spann-f32 "text, floats in blocks, heads" --memory 8% --effort "$effort" --limit 200
    row sift sift-spann "sift, heads" --memory 7% --effort "$effort" --limit 200
done
