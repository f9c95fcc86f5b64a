#!/usr/bin/env bash
# run.sh BUILD - recall and reads on real text, on generated vectors, and on data sets that are given.
#
# Text: 20,000 glosses of WordNet through the lexical embedder (datasets/make_sample.sh). QUIRE_DATA may name a folder with
# NAME.{u8bin,fbin}, NAME.query.{u8bin,fbin}, NAME.gt.bin of sift-50k and text-20k. Counts do not depend on the machine's
# speed, so they are tested; times are not.
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=$(cd "${1:?usage: run.sh BUILD}" && pwd)
quire=$build/quire
work=$(mktemp -d "${TMPDIR:-/tmp}/quire-recall.XXXXXX")
trap 'rm -rf "$work"' EXIT
passed=0 failed=0
# a sanitizer makes a build twenty times slower; what it looks for shows in few rows
text_rows=20000 generated_rows=15000 narrow_budget=1500000 part_rows=5000
if [[ -n ${QUIRE_SANITIZE_FLAGS:-} ]]; then text_rows=3000 generated_rows=4000 narrow_budget=220000 part_rows=2000; fi

field() { sed -n "s/^ *\"$1\": \(-\{0,1\}[0-9.e+]*\),*$/\1/p" "$work/search.json" | head -1; }

# expect NAME RECALL_MIN READS_MAX [SEARCH-OPTION...] with $index, $queries, $truth set
expect() {
    local name=$1 recall_min=$2 reads_max=$3 recall reads
    shift 3
    if ! "$quire" search --index "$index" --queries "$queries" --truth "$truth" --k 10 --json "$@" >"$work/search.json" 2>"$work/err"; then
        echo "FAIL - $name: $(cat "$work/err")"
        failed=$((failed + 1))
        return
    fi
    recall=$(field recall_at_k) reads=$(field reads_per_query)
    if awk "BEGIN { exit !($recall >= $recall_min && $reads <= $reads_max) }"; then
        echo "ok - $name: recall $recall (at least $recall_min) at $reads reads (at most $reads_max)"
        passed=$((passed + 1))
    else
        echo "FAIL - $name: recall $recall (at least $recall_min) at $reads reads (at most $reads_max)"
        failed=$((failed + 1))
    fi
}

QUIRE=$quire "$root/datasets/make_sample.sh" "$work/text" "$text_rows" >/dev/null 2>"$work/err" || { cat "$work/err"; exit 1; }
index=$work/text.index queries=$work/text/sample.query.fbin truth=$work/text.gt.bin
"$quire" build --base "$work/text/sample.fbin" --keys "$work/text/sample.keys" --metric cosine --out "$index" >/dev/null &&
    "$quire" truth --base "$work/text/sample.fbin" --queries "$queries" --k 10 --metric cosine --out "$truth" >/dev/null || exit 1
# the recall is a promise about other queries than these 300, so a point is left for their noise
expect "text of $text_rows rows, 4-bit codes" 0.94 10
expect "text of $text_rows rows, 1-bit codes" 0.92 16 --memory "$narrow_budget"
expect "text of $text_rows rows, recall 0.99" 0.98 20 --recall 0.99
expect "text of $text_rows rows, exact" 0.98 1000 --exact

"$quire" gen --rows "$generated_rows" --dim 96 --clusters 200 --intrinsic 16 --seed 7 --queries 300 --out "$work/gen" >/dev/null || exit 1
for metric in l2 ip; do
    index=$work/gen.$metric queries=$work/gen.query.fbin truth=$work/gen.$metric.gt.bin
    "$quire" build --base "$work/gen.fbin" --metric "$metric" --out "$index" >/dev/null &&
        "$quire" truth --base "$work/gen.fbin" --queries "$queries" --k 10 --metric "$metric" --out "$truth" >/dev/null || exit 1
    expect "clusters of $generated_rows rows, $metric" 0.93 20
done

# part FILE ELEMENT_BYTES - the first part_rows rows of a vector file: u32 rows, u32 dimension, then the rows
part() {
    local rows dim
    read -r rows dim < <(od -An -tu4 -N8 "$1")
    ((rows >= part_rows)) || { echo "$1 has $rows rows, fewer than $part_rows" >&2; exit 1; }
    printf "\\x$(printf %02x $((part_rows & 255)))\\x$(printf %02x $((part_rows >> 8)))\\0\\0"
    tail -c +5 "$1" | head -c $((4 + part_rows * dim * $2))
}

# whole sets in their own metric, with the truth that came with them; parts of them in the other two, under a sanitizer
# in all three
if [[ -n ${QUIRE_DATA:-} ]]; then
    for set in "sift-50k u8bin 1 l2 0.95 12" "text-20k fbin 4 cosine 0.93 9"; do
        read -r name format bytes own recall reads <<<"$set"
        index=$work/$name queries=$QUIRE_DATA/$name.query.$format truth=$QUIRE_DATA/$name.gt.bin
        if [[ -z ${QUIRE_SANITIZE_FLAGS:-} ]]; then
            "$quire" build --base "$QUIRE_DATA/$name.$format" --metric "$own" --out "$index" >/dev/null || exit 1
            expect "$name, $own" "$recall" "$reads"
        fi
        part "$QUIRE_DATA/$name.$format" "$bytes" >"$work/$name.$format"
        for metric in l2 cosine ip; do
            [[ $metric != "$own" || -n ${QUIRE_SANITIZE_FLAGS:-} ]] || continue
            index=$work/$name.$metric truth=$work/$name.$metric.gt.bin
            "$quire" build --base "$work/$name.$format" --metric "$metric" --out "$index" >/dev/null &&
                "$quire" truth --base "$work/$name.$format" --queries "$queries" --k 10 --metric "$metric" --out "$truth" >/dev/null || exit 1
            expect "$name, $part_rows rows, $metric" 0.93 "$reads"
        done
    done
else
    echo "skipped - sift-50k and text-20k: QUIRE_DATA does not name their folder"
fi
echo "$passed passed, $failed failed"
((failed == 0))
