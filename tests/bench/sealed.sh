#!/usr/bin/env bash
# sealed.sh [--entries N] [--similarity THOUSANDTHS] [--folder DIR] [BUILD_DIR...] - look-ups of a semantic cache whose
# vectors lie on the disk: misses, near hits and hits of what is there, with 1 and 2 threads, and recall.
#
# Fills a cache of N entries (1,000,000) of 256 dimensions in as many clusters per entry as a million has 4,000, of which
# all but the last 65,536 (of fewer, a fifteenth) are sealed, once for each build (build/release), and asks. Lines of
# JSON of bench_cache. With --folder what was filled stays there, and is used again. The filling takes some minutes.
set -euo pipefail
here=$(dirname "${BASH_SOURCE[0]}")
# shellcheck source=tests/bench/lib.sh
source "$here/lib.sh"
entries=1000000 similarity=900 folder=
while (($#)); do
    case $1 in
        --help) usage_of "${BASH_SOURCE[0]}"; exit 0 ;;
        --entries) entries=$2; shift 2 ;;
        --similarity) similarity=$2; shift 2 ;;
        --folder) folder=$2; shift 2 ;;
        *) break ;;
    esac
done
(($#)) || set -- "$here/../../build/release"
work=$(mktemp -d "${TMPDIR:-/tmp}/quire-bench.XXXXXX")
trap 'rm -rf "$work"' EXIT
seal=$((entries / 15 < 65536 ? entries / 15 : 65536))
clusters=$((entries / 250 > 0 ? entries / 250 : 1))

for build in "$@"; do
    for threads in 2 1; do
        at=${folder:-$work}/$(basename "$(dirname "$(realpath "$build")")")
        echo "{\"build\":\"$build\",\"threads\":$threads}"
        "$build/bench_cache" "$at" --rows "$entries" --dim 256 --clusters "$clusters" --value 2048 --queries 10000 \
            --inserts 0 --seal "$seal" --truth 300 --memory $((entries * 1000)) --similarity "$similarity" \
            --threads "$threads" | grep -E '"(sealed|miss|searched|searches|recall|near|hit)"'
    done
done
