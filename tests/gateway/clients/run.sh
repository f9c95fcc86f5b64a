#!/usr/bin/env bash
# run.sh BUILD_DIR [PART...] - quire-gateway as the clients of OpenAI's and Anthropic's interfaces use it, unmodified.
#
# Each suite runs against the stand-in model itself (direct), against a gateway with its cache off, and against one with a
# cache, where it asks twice: what works here and not there is the gateway's. npm: openai, ai with @ai-sdk/openai and
# openai-compatible, @langchain/openai, @anthropic-ai/sdk (node/package-lock.json; skipped without the registry); Debian:
# httpx, aiohttp, requests, curl. Beside them: the tables of docs/gateway.md (settings), answers to other words and what is
# in trouble (near), complaints of users of other gateways (complaints), many at once (crowds). PART: one of these names, or
# a target: direct off cache. One line per check; exit status 0 when nothing failed.
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
. "$here/../../e2e/lib.sh"
. "$here/../../e2e/parts.sh"
leave() {
    [ -z "$part_pid" ] || kill "$part_pid" 2>/dev/null
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
    if ! wait_until 30 test -s "$file"; then
        fail "$name starts" "$(cat "$work/$name.log")"
        exit 1
    fi
    port=$(head -n 1 "$file")
}

parts=("$@") only=()
for target in direct off cache; do
    for i in "${!parts[@]}"; do
        [ "${parts[$i]}" = $target ] && { only+=($target); unset "parts[$i]"; }
    done
done
parts=("${parts[@]}")
[ ${#only[@]} -gt 0 ] || only=(direct off cache)

server_start main --unixsocket "$work/quire.sock" --port "$(/usr/bin/python3 -c '
import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')" || exit 1
main_pid=$server_pid
begun model "$work/model.out" /usr/bin/python3 "$here/../../e2e/stand_in_model.py"
export MODEL_URL=http://127.0.0.1:$port
declare -A address=([direct]=$MODEL_URL)
gateway() { # NAME SETTINGS...
    local name=$1
    shift
    begun "gateway-$name" "$work/$name.port" "$build/quire-gateway" --upstream "$MODEL_URL" --listen 127.0.0.1:0 \
        --port-file "$work/$name.port" "$@"
    address[$name]=http://127.0.0.1:$port
}
gateway off --set cache-on=false
gateway cache --server "unix:$work/quire.sock" --set cache=clients
gateway near --server "unix:$work/quire.sock" --set cache=near --embed-url "$MODEL_URL/v1" --embed-model encoder \
    --similarity 0.8 --embed-timeout 300ms

wanted settings && part settings /usr/bin/python3 "$here/../settings_table.py" "$build"
for target in "${only[@]}"; do
    export TARGET=$target BASE_URL=${address[$target]}/v1
    for name in openai ai langchain anthropic; do
        wanted $name && with_node "$name, $target" node "$here/node/${name}_client.js"
    done
    for name in httpx aiohttp requests; do
        wanted $name && part "$name, $target" /usr/bin/python3 "$here/${name}_client.py"
    done
    wanted curl && part "curl, $target" bash "$here/curl_client.sh"
done
wanted complaints && part complaints /usr/bin/python3 "$here/../complaints.py" "$build"
wanted crowds && part crowds /usr/bin/python3 "$here/../crowds.py" "$build"
if wanted near; then
    export TARGET=near BASE_URL=${address[near]}/v1 SERVER_PID=$main_pid SERVER_SOCKET=$work/quire.sock
    part near /usr/bin/python3 "$here/near_client.py"
fi
end_parts "$main_pid"
