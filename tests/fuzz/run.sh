#!/usr/bin/env bash
# run.sh [SECONDS [TARGET...]] - runs every fuzzer (or those named, such as query) for SECONDS (30), starting from its
# corpus, as many at a time as there are processors. Needs clang.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export seconds=${1:-30}
[ $# -eq 0 ] || shift
cmake --preset fuzz >/dev/null
cmake --build --preset fuzz

fuzz() { # NAME
    local name=$1 found=build/fuzz/findings/$1
    mkdir -p "$found/corpus"
    if "build/fuzz/$name" -max_total_time="$seconds" -rss_limit_mb=2048 -timeout=20 -artifact_prefix="$found/" \
        "$found/corpus" "tests/fuzz/corpus/${name#fuzz_}" >"$found/log" 2>&1; then
        echo "ok - $name: $(grep -oE 'Done [0-9]+ runs' "$found/log")"
    else
        echo "FAIL - $name, see $found: $(tail -n 20 "$found/log")"
        return 1
    fi
}
export -f fuzz

names=("${@/#/fuzz_}")
[ $# -gt 0 ] || for source in tests/fuzz/fuzz_*.c; do names+=("$(basename "$source" .c)"); done
printf '%s\n' "${names[@]}" | xargs -P "$(nproc)" -I{} bash -c 'fuzz "$1"' fuzz {}
