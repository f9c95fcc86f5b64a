# server.sh - what the scripts that measure a server share: one is started on a free port, and ended by its process id.
# shellcheck shell=bash

# need_server BUILD_DIR - sets $server_binary and $bench_live
need_server() {
    server_binary=$1/quire-server
    # shellcheck disable=SC2034  # the scripts that source this use it
    bench_live=$1/bench_live
    [[ -x $server_binary && -x $bench_live ]] ||
        fail "$1: no quire-server or bench_live there; cmake --preset release && cmake --build --preset release"
}

# server_start FOLDER SETTINGS... - sets $server_pid, $server_port and $server_ready, seconds until it took connections
server_start() {
    local folder=$1 begin
    shift
    mkdir -p "$folder"
    rm -f "$folder/port"
    begin=$(date +%s%N)
    "$server_binary" --port 0 --port-file "$folder/port" --dir "$folder/data" "$@" >"$folder/log" 2>&1 </dev/null &
    server_pid=$!
    until [[ -s $folder/port ]]; do
        kill -0 "$server_pid" 2>/dev/null || fail "the server does not start: $(tail -5 "$folder/log")"
        sleep 0.002
    done
    # shellcheck disable=SC2034
    server_ready=$(awk "BEGIN { printf \"%.3f\", ($(date +%s%N) - $begin) / 1e9 }")
    # shellcheck disable=SC2034
    server_port=$(cat "$folder/port")
}

server_stop() {
    [[ -n ${server_pid:-} ]] || return 0
    kill "$server_pid" 2>/dev/null || true
    wait "$server_pid" || true
    server_pid=
}
