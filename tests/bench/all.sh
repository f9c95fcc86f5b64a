#!/usr/bin/env bash
# all.sh [OPTION...] DATA_FOLDER - every measurement of docs/performance.md that is about searching, one after another.
#
# DATA_FOLDER holds NAME.fbin or NAME.u8bin, NAME.query.* of the same format and NAME.gt.bin of every data set.
# Outputs: NAME.search.txt, NAME.json and recall-NAME.svg, NAME.faiss.md, NAME.queue.md, NAME.growth.md. A script that
# fails does not stop the others; the exit status then is 1. Nothing else should run on the machine meanwhile.
#
#   --out DIR       folder of the outputs (bench-output)
#   --sets LIST     data sets as NAME:METRIC (text:cosine,sift:l2)
#   --build DIR     where quire is (build/release)
#   --only LIST     of search,curves,faiss,queue,growth (all)
#   --quick         each script's quick run (search has none: it is short)
set -uo pipefail
here=$(dirname "${BASH_SOURCE[0]}")
# shellcheck source=tests/bench/lib.sh
source "$here/lib.sh"

out=bench-output sets=text:cosine,sift:l2 build=$here/../../build/release only=search,curves,faiss,queue,growth quick=()
given=()
while (($# > 0)); do
    case $1 in
    [!-]*) given+=("$1"); shift; continue ;;
    --help) usage_of "${BASH_SOURCE[0]}"; exit 0 ;;
    --quick) quick=(--quick); shift; continue ;;
    esac
    (($# >= 2)) || fail "$1 needs a value"
    case $1 in
    --out) out=$2 ;;
    --sets) sets=$2 ;;
    --build) build=$2 ;;
    --only) only=$2 ;;
    *) fail "$1: unknown; --help says what there is" ;;
    esac
    shift 2
done
set -- "${given[@]}"
(($# == 1)) || { usage_of "${BASH_SOURCE[0]}" >&2; exit 2; }
data=$1
[[ -d $data ]] || fail "$data: no such folder"
need_quire "$build"
mkdir -p "$out" || exit 1
failed=0

# step KIND SET OUTPUT COMMAND... - one measurement into a file that is there only when whole
step() {
    local kind=$1 set=$2 output=$out/$3 start=$SECONDS
    shift 3
    [[ ,$only, == *",$kind,"* ]] || return 0
    echo "$set: $kind"
    if "$@" >"$output.part" 2>"$output.log"; then
        mv "$output.part" "$output"
        echo "$set: $kind: $output after $((SECONDS - start)) s"
    else
        rm -f "$output.part"
        echo "$set: $kind failed: $(tail -1 "$output.log")"
        failed=1
    fi
}

# all data first, so that a missing file does not show after an hour
declare -A formats
IFS=, read -ra each <<<"$sets"
for entry in "${each[@]}"; do
    name=${entry%%:*}
    [[ $entry == *:* ]] || fail "--sets $entry: NAME:METRIC is needed"
    for candidate in fbin u8bin i8bin; do
        [[ ! -f $data/$name.$candidate ]] || formats[$name]=$candidate
    done
    [[ -n ${formats[$name]:-} ]] || fail "$data/$name.fbin, .u8bin or .i8bin: no such file"
    need_files "$data/$name.query.${formats[$name]}" "$data/$name.gt.bin"
done

for entry in "${each[@]}"; do
    name=${entry%%:*} metric=${entry#*:}
    format=${formats[$name]}
    set=("$name" "$data/$name.$format" "$data/$name.query.$format" "$data/$name.gt.bin" "$metric")
    step search "$name" "$name.search.txt" "$here/search.sh" "${set[@]}" "$build"
    step curves "$name" "$name.json" "$here/curves.py" "${set[@]}" --build-dir "$build" "${quick[@]}"
    [[ ! -f $out/$name.json ]] || "$here/figures.py" "$out/$name.json" || failed=1
    step faiss "$name" "$name.faiss.md" "$here/against_faiss.py" "${set[@]}" --build-dir "$build" "${quick[@]}"
    step queue "$name" "$name.queue.md" "$here/queue.sh" --build "$build" "${quick[@]}" "${set[@]}"
    step growth "$name" "$name.growth.md" "$here/growth.sh" --build "$build" "${quick[@]}" "${set[@]}"
done
exit "$failed"
