#!/usr/bin/env bash
# budgets.sh [OPTION...] DATA_FOLDER - recall, reads and memory of the full text and SIFT sets, budget by budget, as Markdown.
#
# DATA_FOLDER holds text.fbin and sift.u8bin with their .query.* and .gt.bin. Builds one index for each block size and
# kind that the table needs, searches each under its budgets with two lanes and no cache, and once with one query at a
# time. "resident" is what the index holds, "process" the kernel's count (VmRSS) less the queries in it.
#
#   --build DIR     where quire is (build/release)
#   --indexes DIR   keep the indexes there, and use those that are there already (a temporary folder)
#   --recall R      recall asked for (0.95)
#   --passes N      passes over the queries (4)
set -euo pipefail
here=$(dirname "${BASH_SOURCE[0]}")
# shellcheck source=tests/bench/lib.sh
source "$here/lib.sh"
begin_full_sets 4 "${BASH_SOURCE[0]}" "$@"

# index NAME SET OPTION... - builds it where it is not there
index() {
    local name=$1 set=$2 base=$data/text.fbin metric=cosine
    shift 2
    if [[ $set == sift ]]; then base=$data/sift.u8bin metric=l2; fi
    [[ -d $indexes/$name ]] ||
        "$quire" build --base "$base" --out "$indexes/$name" --metric "$metric" --index pagegraph "$@" \
            --json >"$work/build.json"
}

# row SET INDEX LABEL OPTION... - one line of the table
row() {
    local set=$1 name=$2 label=$3 out=$work/search.json ending=fbin
    shift 3
    if [[ $set == sift ]]; then ending=u8bin; fi
    "$quire" search --index "$indexes/$name" --queries "$data/$set.query.$ending" --truth "$data/$set.gt.bin" --k 10 \
        --recall "$recall" --repeat "$passes" --no-cache --json "$@" >"$out"
    awk -v set="$set" -v label="$label" -v block="${name##*-}" -v bits="$(field code_bits "$out")" \
        -v recall="$(field recall_at_k "$out")" -v reads="$(field reads_per_query "$out")" \
        -v rounds="$(field rounds_per_query "$out")" -v held="$(field index_resident_bytes "$out")" \
        -v rss="$(field resident_bytes "$out")" -v queries="$(field query_bytes "$out")" \
        -v raw="$(field raw_bytes "$out")" -v cpu="$(field cpu_us_per_query "$out")" -v p50="$(field p50 "$out")" \
        -v p99="$(field p99 "$out")" -v p999="$(field p999 "$out")" -v qps="$(field qps "$out")" 'BEGIN {
            printf "| %s | %s | %s | %s | %.4f | %.2f | %.2f | %.1f %% | %.1f %% | %.0f | %.2f / %.2f / %.2f | %.0f |\n",
                set, label, block, bits ? bits : "in blocks", recall, reads, rounds, 100 * held / raw,
                100 * (rss - queries) / raw, cpu, p50 / 1e3, p99 / 1e3, p999 / 1e3, qps }'
}

index text-8K text --block 8K
index text-16K text --block 16K
index text-edges-16K text --block 16K --memory 2%
index sift-8K sift --block 8K
index sift-edges-16K sift --block 16K --memory 3%
echo '| data | setting | block | code bits | recall@10 | reads | rounds | resident | process | cpu us | p50 / p99 / p99.9 ms | queries/s |'
echo '|---|---|---|---|---|---|---|---|---|---|---|---|'
row sift sift-8K '60 %, 2 lanes x 32' --memory 60% --lanes 2
row sift sift-8K '35 %, 2 lanes x 32' --memory 35% --lanes 2
row sift sift-8K '20 %, 2 lanes x 32' --memory 20% --lanes 2
row sift sift-edges-16K '3 %, 2 lanes x 32' --memory 3% --lanes 2
row sift sift-8K 'all codes, one at a time' --inflight 1
row text text-8K 'all codes, 2 lanes x 32' --lanes 2
row text text-8K '15 %, 2 lanes x 32' --memory 15% --lanes 2
row text text-16K '15 %, 2 lanes x 32' --memory 15% --lanes 2
row text text-16K '8 %, 2 lanes x 8' --memory 8% --lanes 2 --inflight 8
row text text-edges-16K '2 %, 2 lanes x 32' --memory 2% --lanes 2
row text text-8K 'all codes, one at a time' --inflight 1
