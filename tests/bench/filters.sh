#!/usr/bin/env bash
# filters.sh [OPTION...] DATA_FOLDER - searches under filters of every selectivity, both kinds of index, as Markdown.
#
# DATA_FOLDER holds text.fbin and sift.u8bin with their .query.* and .gt.bin. Makes attributes (quire gen-attrs), once at
# random and once by position of the vectors, builds an index of each kind with them, and asks under each condition one
# query at a time at the default recall: plan, matches, recall@10 against exact answers among the rows that match, reads
# and how many times those without a filter, the most reads of one query, latency, and how many queries got another
# number of hits than min(10, matches), which must be none. Each line goes to INDEXES/filters.jsonl, too.
#
#   --build DIR     where quire is (build/release)
#   --indexes DIR   keep indexes, attributes and exact answers there, and use those that are there already (a temporary
#                   folder)
#   --recall R      recall asked for (0.95)
#   --passes N      passes over the queries of one line (1)
#
# Environment: SETS="text sift", KINDS="pagegraph spann", LABELS="random position", LIMIT=1000 queries, ROWS=0: the first
# so many rows of the sets only (then no .gt.bin is needed), DISTANCE=exact|estimate.
set -euo pipefail
here=$(dirname "${BASH_SOURCE[0]}")
# shellcheck source=tests/bench/lib.sh
source "$here/lib.sh"
begin_full_sets 1 "${BASH_SOURCE[0]}" "$@"
read -ra sets <<<"${SETS:-text sift}"
read -ra kinds <<<"${KINDS:-pagegraph spann}"
read -ra labels <<<"${LABELS:-random position}"
limit=${LIMIT:-1000} rows=${ROWS:-0} distance=${DISTANCE:-exact}
lines=$indexes/filters.jsonl
: >"$lines"

# condition, and what the table calls it; an empty one is the search without a filter
conditions=(
    "no filter|"
    "0.01 %|.p001 == 1"
    "0.05 %|.p005 == 1"
    "0.1 %|.p01 == 1"
    "0.5 %|.p05 == 1"
    "1 %|.p1 == 1"
    "5 %|.p5 == 1"
    "10 %|.p10 == 1"
    "30 %|.p30 == 1"
    "100 %|.p30 >= 0"
    "20 % AND 20 %|.a20 == 1 and .b20 == 1"
    "OR of ten|.kind == \"k0\" or .kind == \"k1\" or .kind == \"k2\" or .kind == \"k3\" or .kind == \"k4\" or .kind == \"k5\" or .kind == \"k6\" or .kind == \"k7\" or .kind == \"k8\" or .kind == \"k9\""
    "NOT of 1 %|not (.p1 == 1)"
    "a month of time|.time >= 1738368000 and .time < 1740787200"
    "two fields in one test|.a20 + .b20 == 2"
)

# take_set SET - sets base, queries and metric; with ROWS of the first rows, written once
take_set() {
    local ending=fbin
    metric=l2
    case $1 in
    text) metric=cosine ;;
    sift) ending=u8bin ;;
    esac
    base=$data/$1.$ending queries=$data/$1.query.$ending
    ((rows == 0)) && return
    local cut=$indexes/$1-$rows.$ending
    [[ -f $cut ]] || /usr/bin/python3 - "$base" "$cut" "$rows" <<'PYTHON'
import os, struct, sys
with open(sys.argv[1], "rb") as f, open(sys.argv[2], "wb") as out:
    rows, dim = struct.unpack("<II", f.read(8))
    size, n = (os.path.getsize(sys.argv[1]) - 8) // rows, min(rows, int(sys.argv[3]))
    out.write(struct.pack("<II", n, dim) + f.read(n * size))
PYTHON
    base=$cut
}

# text_field NAME FILE - the first text of that name in a JSON file of quire
text_field() { sed -n "s/^ *\"$1\": \"\(.*\)\",*$/\1/p" "$2" | head -1; }

# row SET LABELS KIND NAME EXPRESSION INDEX ATTRS NUMBER
row() {
    local set=$1 label=$2 kind=$3 name=$4 filter=$5 index=$6 attrs=$7 number=$8
    local truth=$indexes/$set-$rows-$label-$limit-$number.gt.bin out=$work/row.json where=() only=()
    if [[ -n $filter ]]; then
        where=(--filter "$filter" --attrs "$attrs" --attr time:timestamp:indexed)
        only=(--filter "$filter")
    fi
    [[ -f $truth ]] || "$quire" truth --base "$base" --queries "$queries" --metric "$metric" --k 20 --limit "$limit" \
        "${where[@]}" --out "$truth" >/dev/null
    "$quire" search --index "$index" --queries "$queries" --truth "$truth" --k 10 --limit "$limit" --repeat "$passes" \
        --recall "$recall" --no-cache --inflight 1 --distance "$distance" --json "${only[@]}" >"$out"
    [[ -n $filter ]] || unfiltered=$(field reads_per_query "$out")
    awk -v set="$set" -v label="$label" -v kind="$kind" -v name="$name" -v plan="$(text_field plan "$out")" \
        -v matches="$(field matches "$out")" -v recall="$(field recall_at_k "$out")" \
        -v reads="$(field reads_per_query "$out")" -v without="$unfiltered" -v most="$(field reads_most "$out")" \
        -v p50="$(field p50 "$out")" -v p99="$(field p99 "$out")" -v cpu="$(field cpu_us_per_query "$out")" \
        -v exact="$(field queries_exact "$out")" -v switched="$(field queries_switched "$out")" \
        -v queries="$(field queries "$out")" -v few="$(field queries_too_few "$out")" \
        -v many="$(field queries_too_many "$out")" -v rows="$(field rows "$out")" -v lines="$lines" 'BEGIN {
            if (plan == "") { plan = "walk"; matches = rows; most = "-" }
            wrong = few + many
            printf "| %s | %s | %s | %s | %s | %d | %.4f | %.1f | %.2f | %s | %.2f / %.2f | %.0f | %.0f %% | %d |\n", set,
                label, kind, name, plan, matches, recall, reads, reads / without, most, p50 / 1000, p99 / 1000, cpu,
                100 * exact / queries, wrong
            printf "{\"set\": \"%s\", \"labels\": \"%s\", \"kind\": \"%s\", \"condition\": \"%s\", \"plan\": \"%s\", " \
                "\"matches\": %d, \"rows\": %d, \"recall\": %.5f, \"reads\": %.3f, \"of_unfiltered\": %.4f, " \
                "\"reads_most\": %d, \"p50_ms\": %.4f, \"p99_ms\": %.4f, \"cpu_us\": %.1f, \"exact\": %d, " \
                "\"switched\": %d, \"queries\": %d, \"wrong_number\": %d}\n", set, label, kind, name, plan, matches,
                rows, recall, reads, reads / without, most, p50 / 1000, p99 / 1000, cpu, exact, switched, queries,
                wrong >>lines }'
}

echo "| set | labels | kind | condition | plan | matches | recall@10 | reads | of unfiltered | most | ms: p50 / p99 | CPU, us | exact | not min(10, matches) |"
echo "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|"
for set in "${sets[@]}"; do
    take_set "$set"
    for label in "${labels[@]}"; do
        attrs=$indexes/$set-$rows-$label.attrs.jsonl
        [[ -f $attrs ]] || "$quire" gen-attrs --base "$base" --by "$label" --out "${attrs%.attrs.jsonl}" >/dev/null
        for kind in "${kinds[@]}"; do
            index=$indexes/$set-$rows-$label-$kind
            [[ -d $index ]] || "$quire" build --base "$base" --out "$index" --metric "$metric" --index "$kind" \
                --attrs "$attrs" --attr time:timestamp:indexed >/dev/null
            number=0 unfiltered=1
            for condition in "${conditions[@]}"; do
                row "$set" "$label" "$kind" "${condition%%|*}" "${condition#*|}" "$index" "$attrs" "$number"
                number=$((number + 1))
            done
        done
    done
done
awk '{ n++; if (match($0, /"wrong_number": [0-9]+/)) bad += substr($0, RSTART + 16, RLENGTH - 16) > 0
       if (match($0, /"recall": [0-9.]+/)) low += substr($0, RSTART + 10, RLENGTH - 10) < 0.95 }
     END { printf "\n%d lines, %d with recall below 0.95, %d with another number of hits than min(10, matches)\n", n, low, bad }' "$lines"
