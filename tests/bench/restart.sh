#!/usr/bin/env bash
# restart.sh BASE QUERIES TRUTH METRIC [BUILD_DIR] - how long after its start a server answers a search of a large
# collection correctly: with an empty log, and with a tail of PUTS (50000) writes in it after kill -9. Lines of JSON.
#
# The set is an index built offline and taken over by VLOAD; BASE of a million rows takes a minute or two to build. The
# first correct answer is that of the first ten queries of QUERIES: nine tenths of TRUTH's ten, asked again and again from
# the start on. Caches of the operating system are warm. Environment: PUTS, ROUNDS (3), INDEX (a built index of BASE: not
# built again).
set -euo pipefail
here=$(dirname "${BASH_SOURCE[0]}")
# shellcheck source=tests/bench/lib.sh
source "$here/lib.sh"
# shellcheck source=tests/bench/server.sh
source "$here/server.sh"
if [[ ${1:-} == --help ]]; then usage_of "${BASH_SOURCE[0]}"; exit 0; fi
(($# >= 4)) || { usage_of "${BASH_SOURCE[0]}" >&2; exit 2; }
base=$1 queries=$2 truth=$3 metric=$4
need_server "${5:-$here/../../build/release}"
need_quire "${5:-$here/../../build/release}"
need_files "$base" "$queries" "$truth"
work=$(mktemp -d "${TMPDIR:-/tmp}/quire-bench.XXXXXX")
trap 'server_stop; rm -rf "$work"' EXIT
puts=${PUTS:-50000} rounds=${ROUNDS:-3}

index=${INDEX:-$work/indexes/base}
if [[ -z ${INDEX:-} ]]; then
    mkdir "$work/indexes"
    "$quire" build --base "$base" --out "$index" --metric "$metric" --json >"$work/build.json"
fi

# once LABEL - starts the server again and asks until the answer is right
once() {
    local begin
    begin=$(date +%s%N)
    server_start "$work/server" --import-dir "$(dirname "$index")" --appendfsync everysec --checkpoint-log 4gb
    /usr/bin/python3 "$here/first_answer.py" "$server_port" base "$queries" "$truth" "$begin" >"$work/answer"
    echo "{\"case\": \"$1\", \"accepts_seconds\": $server_ready, \"correct_seconds\": $(cat "$work/answer"), \
\"log\": \"$(sed -n 's/.*\* data folder [^:]*: //p' "$work/server/log")\"}"
}

server_start "$work/server" --import-dir "$(dirname "$index")" --appendfsync everysec --checkpoint-log 4gb
redis-cli -p "$server_port" VLOAD base "$(basename "$index")" >"$work/loaded"
[[ $(cat "$work/loaded") == OK ]] || fail "VLOAD: $(cat "$work/loaded")"
server_stop
for ((round = 0; round < rounds; round++)); do
    once "no tail"
    server_stop
done

once "no tail" >/dev/null
"$bench_live" --port "$server_port" --key tail --base "$base" --queries "$queries" --metric cosine --rows "$puts" \
    --connections 2 --searchers 0 --moments 0 >"$work/puts"
for ((round = 0; round < rounds; round++)); do
    kill -9 "$server_pid" && { wait "$server_pid" 2>/dev/null || true; }
    once "tail of $puts writes"
done
