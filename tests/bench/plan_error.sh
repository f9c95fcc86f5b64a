#!/usr/bin/env bash
# plan_error.sh DATA_FOLDER [BUILD_DIR] - how far `quire plan` is off: what it says of data sets, tried on a part of their rows,
# beside what indexes of all rows then are. The tables of docs/sizing.md.
#
# text-20k and sift-50k of the folder, and a made-up set of 131,072 rows. An hour on two busy cores; SETS="text-20k sift-50k"
# makes it shorter, SETS=gen-524288 makes up a set of so many rows.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/bench/lib.sh
source "$here/lib.sh"
[[ ${1-} != --help ]] || { usage_of "${BASH_SOURCE[0]}"; exit 0; }
(($# == 1 || $# == 2)) || { usage_of "${BASH_SOURCE[0]}" >&2; exit 2; }
data=$1 build=${2:-$here/../../build/release}
need_quire "$build"
work=$(mktemp -d "${TMPDIR:-/tmp}/quire-bench.XXXXXX")
trap 'rm -rf "$work"' EXIT

# error_of NAME BASE QUERIES TRUTH METRIC TRIAL-ROWS
error_of() {
    need_files "$2" "$3" "$4"
    /usr/bin/python3 "$here/plan_error.py" "$1" "$2" "$3" "$4" "$5" --trial-rows "$6" --build-dir "$build"
}

echo '| data | rows | tried on | way | recall | reads | cpu us | resident MB | disk MB | queries/s |'
echo '|---|---|---|---|---|---|---|---|---|---|'
for set in ${SETS:-text-20k sift-50k gen-131072}; do
    case $set in
    text-20k) error_of "$set" "$data/$set.fbin" "$data/$set.query.fbin" "$data/$set.gt.bin" cosine 8192 ;;
    sift-50k) error_of "$set" "$data/$set.u8bin" "$data/$set.query.u8bin" "$data/$set.gt.bin" l2 16384 ;;
    gen-*)
        "$quire" gen --rows "${set#gen-}" --dim 96 --clusters 800 --intrinsic 24 --seed 5 --queries 500 --out "$work/gen" >"$work/gen.txt"
        error_of "$set" "$work/gen.fbin" "$work/gen.query.fbin" "$work/gen.gt.bin" l2 32768
        rm "$work"/gen.*
        ;;
    *) fail "$set: no such set" ;;
    esac
done
