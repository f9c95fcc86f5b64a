#!/usr/bin/env bash
# tidy.sh - clang-tidy over the sources, with the checks of .clang-tidy.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cmake -S . -B build/clang -G Ninja -DCMAKE_C_COMPILER=clang >/dev/null || exit 1
git ls-files 'io/*.c' 'index/*.c' 'cache/*.c' 'server/*.c' 'document/*.c' 'gateway/*.c' 'module/*.c' 'datasets/*.c' 'tools/*.c' | grep -v kernels_ |
    xargs -P "$(nproc)" -n 1 clang-tidy -p build/clang --quiet --warnings-as-errors='*' 2>/dev/null
