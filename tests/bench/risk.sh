#!/usr/bin/env bash
# risk.sh DATA_FOLDER [BUILD_DIR] - does RISK keep its budget? A row for every stream, order, seed, budget, with and
# without guards: wrong answers per request of the whole stream and of its second half, what is served, and its share
# of what the best single threshold in hindsight serves; then a row with the worst of the seeds. Markdown on standard
# output.
#
# Streams: clinc150 (clinc150.tsv and .fbin in DATA_FOLDER), glosses (made here from Debian's wordnet-base), and what
# else stands in DATA_FOLDER/risk as NAME.tsv with the columns of clinc150.tsv: risk_pairs.py makes such files of public
# sets. Vectors that are missing are made by `quire embed`, from the texts of the stream. Environment: SEEDS (5), GUARDS
# ("none all"), STREAMS (all). Some ten minutes on one quiet core.
set -euo pipefail
here=$(dirname "${BASH_SOURCE[0]}")
# shellcheck source=tests/bench/lib.sh
source "$here/lib.sh"
if [[ ${1:-} == --help ]]; then usage_of "${BASH_SOURCE[0]}"; exit 0; fi
(($# >= 1)) || { usage_of "${BASH_SOURCE[0]}" >&2; exit 2; }
data=$1 build=${2:-$here/../../build/release}
need_quire "$build"
need_files "$data/clinc150.tsv" "$data/clinc150.fbin" "$build/bench_risk"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$data/clinc150.tsv" "$data/clinc150.fbin" "$work/"
if [[ -r /usr/share/wordnet/data.noun ]]; then
    /usr/bin/python3 "$here/risk_glosses.py" "$work/glosses.tsv"
else
    echo "glosses are left out: apt-get install wordnet-base" >&2
fi
for file in "$data"/risk/*.tsv; do
    if [[ -r $file ]]; then cp "$file" "$work/"; fi
done
echo "| stream | order | guards | budget | seed | wrong, whole | wrong, second half | bound | served | of hindsight |" \
    "served, second half | of hindsight | labelled |"
echo "|---|---|---|---|---|---|---|---|---|---|---|---|---|"
for file in "$work"/*.tsv; do
    name=$(basename "$file" .tsv)
    if [[ " ${STREAMS:-$name} " != *" $name "* ]]; then continue; fi
    if [[ ! -r $work/$name.fbin ]]; then
        "$quire" embed fit --text "$file" --column 4 --out "$work/$name.model" --progress never >/dev/null
        "$quire" embed apply --model "$work/$name.model" --text "$file" --column 4 --out "$work/$name.fbin" \
            --progress never >/dev/null
    fi
    for guards in ${GUARDS:-none all}; do
        "$build/bench_risk" bounds "$file" "$work/$name.fbin" 1 "${SEEDS:-5}" "$guards" "$name"
    done
done
