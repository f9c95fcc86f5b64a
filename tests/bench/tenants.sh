#!/usr/bin/env bash
# tenants.sh [OPTION...] DATA_FOLDER - tenants of all sizes in one index, beside the two other ways, as Markdown.
#
# DATA_FOLDER holds text.fbin and sift.u8bin with their .query.* and .gt.bin. Grants the rows of SIFT to 10,000 tenants
# (of text to 1,000) whose sizes go by a power law, at random and by position of the vectors, builds an index of each kind,
# and asks tenants of every size (bench_tenants.c has the columns). INDEXES/tenants-*.jsonl has the tables as JSON.
#
#   --build DIR     where quire is (build/release)
#   --indexes DIR   keep indexes and tenants there, and use those that are there already (a temporary folder)
#   --recall R      not used
#   --passes N      not used
#
# Environment: SETS="sift text", KINDS="pagegraph spann", LABELS="random position", PER_CLASS=30 tenants of each size,
# QUERIES=20 of each, BUILT=3 indexes of a tenant's own of each size.
set -euo pipefail
here=$(dirname "${BASH_SOURCE[0]}")
# shellcheck source=tests/bench/lib.sh
source "$here/lib.sh"
begin_full_sets 1 "${BASH_SOURCE[0]}" "$@"
read -ra sets <<<"${SETS:-sift text}"
read -ra kinds <<<"${KINDS:-pagegraph spann}"
read -ra labels <<<"${LABELS:-random position}"

for set in "${sets[@]}"; do
    base=$data/$set.fbin queries=$data/$set.query.fbin metric=cosine tenants=1000
    [[ $set == text ]] || base=$data/sift.u8bin queries=$data/sift.query.u8bin metric=l2 tenants=10000
    for label in "${labels[@]}"; do
        prefix=$indexes/$set-$label-t
        [[ -f $prefix.tenants.txt ]] || "$quire" gen-attrs --base "$base" --by "$label" --tenants "$tenants" \
            --shared 5 --out "$prefix" >/dev/null
        for kind in "${kinds[@]}"; do
            [[ -d $prefix-$kind ]] || "$quire" build --base "$base" --out "$prefix-$kind" --metric "$metric" \
                --index "$kind" --tenants "$prefix.tenants.txt" >/dev/null
            printf '\n%s, tenants %s, %s\n\n' "$set" "$([[ $label == random ]] && echo "at random" || echo "by position")" \
                "$kind"
            "$build/bench_tenants" "$base" "$queries" "$metric" "$prefix.tenants.txt" "$prefix-$kind" \
                "${PER_CLASS:-30}" "${QUERIES:-20}" "${BUILT:-3}" "$indexes/tenants-$set-$label-$kind.jsonl"
        done
    done
done
