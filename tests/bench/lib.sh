# lib.sh - what the scripts beside it share; sourced, not run.
# shellcheck shell=bash

# usage_of SCRIPT - the comment at its head, which is its help
usage_of() { sed -n '2,/^[^#]/{/^#/s/^# \{0,1\}//p}' "$1"; }

fail() {
    echo "$(basename "$0"): $*" >&2
    exit 1
}

# need_files FILE... - ends the script where one is missing
need_files() {
    local file
    for file in "$@"; do
        [[ -f $file ]] || fail "$file: no such file; docs/performance.md says what the data sets are"
    done
}

# need_quire BUILD_DIR - sets $quire
need_quire() {
    quire=$1/quire
    [[ -x $quire ]] || fail "$quire: not there; cmake --preset release && cmake --build --preset release"
}

# field NAME FILE - the first number of that name in a JSON file of quire
field() { sed -n "s/^ *\"$1\": \(-\{0,1\}[0-9.e+]*\),*$/\1/p" "$2" | head -1; }

# median NUMBER...
median() {
    printf '%s\n' "$@" | sort -g | awk '{ v[NR] = $1 } END { print (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2 }'
}

# device_rate FOLDER BLOCK_BYTES LANES [PROBE-OPTION...] - the most reads/s of that block size, over all depths
device_rate() {
    local folder=$1 block=$2 lanes=$3 rate
    shift 3
    rate=$("$quire" probe "$folder" --lanes "$lanes" "$@" | awk -v block="$block" '
        $1 == block && $3 > best { best = $3 } END { print best + 0 }') || return 1
    [[ $rate != 0 ]] || fail "quire probe measures no blocks of $block bytes; build with --block 4K, 8K, 16K or 64K"
    echo "$rate"
}

# take_data_set BUILD_DIR NAME BASE QUERIES TRUTH METRIC - sets $name to $metric, $quire, and $work, a folder that goes
# with the script
take_data_set() {
    (($# == 6)) || { usage_of "$0" >&2; exit 2; }
    # shellcheck disable=SC2034  # the script that sources this uses them
    name=$2 base=$3 queries=$4 truth=$5 metric=$6
    need_quire "$1"
    need_files "$base" "$queries" "$truth"
    work=$(mktemp -d "${TMPDIR:-/tmp}/quire-bench.XXXXXX")
    trap 'rm -rf "$work"' EXIT
}

# begin_full_sets PASSES SCRIPT ARGUMENT... - what the scripts on the full text and SIFT sets are given: sets $build,
# $indexes, $recall, $passes, $data and $quire, and makes $work, which goes at the end
# shellcheck disable=SC2034 # for the script that calls it
begin_full_sets() {
    local script=$2
    build=$(dirname "$script")/../../build/release indexes='' recall=0.95 passes=$1
    shift 2
    while (($#)); do
        case $1 in
        --help) usage_of "$script"; exit 0 ;;
        --build) build=$2; shift 2 ;;
        --indexes) indexes=$2; shift 2 ;;
        --recall) recall=$2; shift 2 ;;
        --passes) passes=$2; shift 2 ;;
        -*) fail "$1: no such option" ;;
        *) break ;;
        esac
    done
    (($# == 1)) || { usage_of "$script" >&2; exit 2; }
    data=$1
    need_quire "$build"
    need_files "$data"/{text.fbin,text.query.fbin,text.gt.bin,sift.u8bin,sift.query.u8bin,sift.gt.bin}
    work=$(mktemp -d "${TMPDIR:-/tmp}/quire-bench.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    indexes=${indexes:-$work}
    mkdir -p "$indexes"
}
