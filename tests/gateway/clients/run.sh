#!/usr/bin/env bash
# run.sh BUILD_DIR [PART...] - quire-gateway as the clients of OpenAI's and Anthropic's interfaces use it, unmodified.
#
# Each suite runs against the stand-in model itself (direct), against a gateway with its cache off, and against one with a
# cache, where it asks twice: what works here and not there is the gateway's. npm: openai, ai with @ai-sdk/openai and
# openai-compatible, @langchain/openai, @anthropic-ai/sdk (node/package-lock.json; skipped without the registry); Debian:
# httpx, aiohttp, requests, curl. Beside them: the tables of docs/gateway.md (settings), answers to other words and what is
# in trouble (near), complaints of users of other gateways (complaints), many at once (crowds). PART: one of these names, or
# a target: direct off cache.
#
# Targets, and the rest, run beside each other (a lane each, with a stand-in model of its own); what they print comes lane by
# lane. One line per check; exit status 0 when nothing failed.
set -u

build=$(cd "${1:?usage: run.sh BUILD_DIR [PART...]}" && pwd) || exit 2
shift
here=$(cd "$(dirname "$0")" && pwd)
for program in quire-server quire-gateway; do
    [ -x "$build/$program" ] || { echo "there is no $build/$program: build it first"; exit 2; }
done
work=$(mktemp -d "${TMPDIR:-/tmp}/quire-gateway-clients.XXXXXX") || exit 2
export QUIRE_BUILD=$build QUIRE_WORK=$work PYTHONDONTWRITEBYTECODE=1
node_folder=$here/node
node_installed=gateway-node
part_seconds=800
. "$here/../../e2e/lib.sh"
. "$here/../../e2e/parts.sh"
lane_pids=()
leave() {
    [ ${#lane_pids[@]} -eq 0 ] || kill "${lane_pids[@]}" 2>/dev/null
    end_servers
    rm -rf "$work"
}
trap leave EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# begun NAME PORT_FILE COMMAND...: in the background until its port is known: sets port
begun() {
    local name=$1 file=$2
    shift 2
    "$@" >"$work/$name.out" 2>"$work/$name.log" </dev/null &
    server_pids+=("$!")
    if ! wait_until 60 test -s "$file"; then
        fail "$name starts" "$(cat "$work/$name.log")"
        exit 1
    fi
    port=$(head -n 1 "$file")
}

model() { # NAME: sets model_url
    begun "model-$1" "$work/model-$1.out" /usr/bin/python3 "$here/../../e2e/stand_in_model.py"
    model_url=http://127.0.0.1:$port
}

# The cache is opened behind the start; until then requests go on without it.
is_ready() { # PATTERN
    curl -sS --max-time 10 "http://127.0.0.1:$port/health" | grep -q "$1"
}

gateway() { # NAME READY SETTINGS...: before the model of model_url, until /health matches READY: sets port
    local name=$1 ready=$2
    shift 2
    begun "gateway-$name" "$work/gateway-$name.port" "$build/quire-gateway" --upstream "$model_url" --listen 127.0.0.1:0 \
        --port-file "$work/gateway-$name.port" "$@"
    wait_until 60 is_ready "$ready" && return 0
    fail "gateway $name is ready" "$(curl -sS --max-time 10 "http://127.0.0.1:$port/health" 2>&1)"
    exit 1
}

# A machine may stop for a while: where no test is about times, they are generous.
patient=(--server-timeout 30s --embed-timeout 30s --wait-near 30s)

target() { # NAME: all suites of clients against it
    export TARGET=$1 MODEL_URL=$model_url BASE_URL=http://127.0.0.1:$port/v1
    local name
    for name in openai ai langchain anthropic; do
        wanted $name && with_node "$name, $1" node "$here/node/${name}_client.js"
    done
    for name in httpx aiohttp requests; do
        wanted $name && part "$name, $1" /usr/bin/python3 "$here/${name}_client.py"
    done
    wanted curl && part "curl, $1" bash "$here/curl_client.sh"
    return 0
}

direct() {
    model direct
    target direct
}

off() {
    model off
    gateway off '"status":"ok"' --set cache-on=false
    target off
}

cache() {
    server_start cache --unixsocket "$work/cache.sock" || return 1
    model cache
    gateway cache '"ready":true' --server "unix:$work/cache.sock" --set cache=clients "${patient[@]}"
    target cache
}

near() {
    local words=(--server "unix:$work/near.sock" --embed-model encoder --similarity 0.8)
    wanted near || return 0
    server_start near --unixsocket "$work/near.sock" || return 1
    model near
    words+=(--embed-url "$model_url/v1")
    gateway near '"vectors":true' "${words[@]}" --set cache=near "${patient[@]}"
    export TARGET=near MODEL_URL=$model_url BASE_URL=http://127.0.0.1:$port/v1
    gateway hasty '"vectors":true' "${words[@]}" --set cache=hasty --embed-timeout 300ms
    export HASTY_URL=http://127.0.0.1:$port/v1 SERVER_PID=$server_pid SERVER_SOCKET=$work/near.sock
    part near /usr/bin/python3 "$here/near_client.py"
}

alone() {
    wanted settings && part settings /usr/bin/python3 "$here/../settings_table.py" "$build"
    wanted complaints && part complaints /usr/bin/python3 "$here/../complaints.py" "$build"
    wanted crowds && part crowds /usr/bin/python3 "$here/../crowds.py" "$build"
    return 0
}

# end_programs LANE: each server and gateway still runs, and ends as it should.
end_programs() {
    local pid name
    for pid in "${server_pids[@]}"; do
        name=$(cat "/proc/$pid/comm" 2>/dev/null)
        case $name in
        quire-*)
            if server_stop "$pid" 2>/dev/null; then
                passed=$((passed + 1))
                ok "$name of $1 ends with status 0"
                continue
            fi
            ;;
        python3) continue ;;
        esac
        failed=$((failed + 1))
        fail "process $pid ($name) of $1 ends with status 0" "$(tail -n 15 "$work"/*.log)"
    done
}

# lane NAME: the function of that name in a process of its own, with a folder of its own; its servers are ended with it.
lane() {
    (
        work=$work/$1 server_pids=() passed=0 failed=0 skipped=0
        QUIRE_WORK=$work
        mkdir "$work" || exit 1
        [ ! -e "$work/../npm.out" ] || cp "$work/../npm.out" "$work"
        finish() {
            [ -z "$part_pid" ] || kill "$part_pid" 2>/dev/null
            end_servers
        }
        trap finish EXIT
        trap 'exit 143' TERM
        "$1" || failed=$((failed + 1))
        end_programs "$1"
        echo "$passed $failed $skipped" >"$work/counts"
    ) >"$work/$1.lines" 2>&1 </dev/null &
    lane_pids+=("$!")
}

parts=("$@") only=()
for target in direct off cache; do
    for i in "${!parts[@]}"; do
        [ "${parts[$i]}" = $target ] && { only+=($target); unset "parts[$i]"; }
    done
done
parts=("${parts[@]}")
if [ ${#only[@]} -gt 0 ]; then
    lanes=("${only[@]}")
else
    lanes=(direct off cache near alone)
fi
node_packages # once, before the lanes: the parts that need them are skipped, or fail, where that failed
node_status=$?
node_packages() { return "$node_status"; }
for name in "${lanes[@]}"; do
    lane "$name"
done
for i in "${!lanes[@]}"; do
    name=${lanes[$i]}
    wait "${lane_pids[$i]}"
    cat "$work/$name.lines"
    if read -r lane_passed lane_failed lane_skipped <"$work/$name/counts"; then
        passed=$((passed + lane_passed)) failed=$((failed + lane_failed)) skipped=$((skipped + lane_skipped))
    else
        failed=$((failed + 1))
        fail "lane $name ends" ""
    fi
done
[ "$skipped" -eq 0 ] || echo "$skipped skipped"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
