#!/usr/bin/env bash
# insert.sh BASE QUERIES [BUILD_DIR] - inserts a file of vectors through RESP with pipelining while four clients search:
# inserts/s, recall@10 of the moving set at five moments, latency of searches meanwhile and afterwards. Lines of JSON.
#
# `appendfsync everysec`; one connection and four; the default memtable-memory, with which all stays in memory for long,
# and 16mb, with which seals and merges go on meanwhile. Environment: ROWS (all), QUIET (10, seconds of searches
# without inserts), SETTLE (20, seconds between), SETTINGS (more of the server's).
set -euo pipefail
here=$(dirname "${BASH_SOURCE[0]}")
# shellcheck source=tests/bench/lib.sh
source "$here/lib.sh"
# shellcheck source=tests/bench/server.sh
source "$here/server.sh"
if [[ ${1:-} == --help ]]; then usage_of "${BASH_SOURCE[0]}"; exit 0; fi
(($# >= 2)) || { usage_of "${BASH_SOURCE[0]}" >&2; exit 2; }
base=$1 queries=$2
need_server "${3:-$here/../../build/release}"
need_files "$base" "$queries"
work=$(mktemp -d "${TMPDIR:-/tmp}/quire-bench.XXXXXX")
trap 'server_stop; rm -rf "$work"' EXIT

for memtable in default 16mb; do
    for connections in 1 4; do
        settings=(--appendfsync everysec)
        [[ $memtable == default ]] || settings+=(--memtable-memory "$memtable")
        # shellcheck disable=SC2206  # words are what is wanted
        settings+=(${SETTINGS:-})
        server_start "$work/server" "${settings[@]}"
        figures=$("$bench_live" --port "$server_port" --key live --base "$base" --queries "$queries" \
            --connections "$connections" ${ROWS:+--rows "$ROWS"} --quiet "${QUIET:-10}" --settle "${SETTLE:-20}")
        seals=$(grep -c ' sealed: ' "$work/server/log" || true) merges=$(grep -c ' merged: ' "$work/server/log" || true)
        echo "{\"memtable_memory\": \"$memtable\", \"seals\": $seals, \"merges\": $merges, ${figures#\{}"
        server_stop
        rm -rf "$work/server"
    done
done
