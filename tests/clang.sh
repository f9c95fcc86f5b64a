#!/usr/bin/env bash
# clang.sh - builds everything with clang, whose warnings differ from gcc's.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cmake -S . -B build/clang -G Ninja -DCMAKE_C_COMPILER=clang >/dev/null
cmake --build build/clang
