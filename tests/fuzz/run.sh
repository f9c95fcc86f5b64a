#!/usr/bin/env bash
# run.sh [SECONDS] - runs every fuzzer for SECONDS (30), starting from its corpus. Needs clang.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
seconds=${1:-30}
cmake --preset fuzz >/dev/null
targets=(tests/fuzz/fuzz_*.c)
targets=("${targets[@]##*/}")
cmake --build --preset fuzz --target "${targets[@]%.c}"
failed=0
for source in tests/fuzz/fuzz_*.c; do
    name=$(basename "$source" .c)
    found=build/fuzz/findings/$name
    mkdir -p "$found/corpus"
    if "build/fuzz/$name" -max_total_time="$seconds" -rss_limit_mb=2048 -timeout=20 -artifact_prefix="$found/" \
        "$found/corpus" "tests/fuzz/corpus/${name#fuzz_}" >"$found/log" 2>&1; then
        echo "ok - $name: $(grep -oE 'Done [0-9]+ runs' "$found/log")"
    else
        echo "FAIL - $name, see $found"
        tail -20 "$found/log"
        failed=1
    fi
done
exit "$failed"
