#!/usr/bin/env bash
# exporter.sh - prometheus-redis-exporter reads the server as it reads a Redis: no error in its log or its figures.
# Started by run.sh; skipped where the exporter is not installed (Debian: prometheus-redis-exporter).
set -u
here=$(cd "$(dirname "$0")" && pwd)
. "$here/lib.sh"
exporter=$(command -v prometheus-redis-exporter || command -v redis_exporter)
if [ -z "$exporter" ]; then
    echo "skip - prometheus-redis-exporter: not installed (tools/setup-debian.sh test installs it)"
    exit 0
fi

free_port() {
    /usr/bin/python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}
get() { # PORT PATH
    /usr/bin/python3 -c 'import sys, urllib.request as u
print(u.urlopen("http://127.0.0.1:%s%s" % tuple(sys.argv[1:]), timeout=20).read().decode(), end="")' "$1" "$2"
}

metrics_port=$(free_port) exporter_port=$(free_port)
server_start exporter --import-dir "$QUIRE_WORK/indexes" --metrics-port "$metrics_port" --slowlog-log-slower-than 0 \
    --latency-monitor-threshold 1 --enable-debug-command local || exit 1
for request in "VLOAD words words" "VSIM words ELE apple-0" "NOSUCH" "DEBUG SLEEP 0.01"; do
    redis-cli -p "$server_port" $request >/dev/null 2>&1
done
"$exporter" -redis.addr "redis://127.0.0.1:$server_port" -web.listen-address "127.0.0.1:$exporter_port" \
    -export-client-list -include-system-metrics >"$QUIRE_WORK/exporter.out" 2>&1 </dev/null &
exporter_pid=$!
trap 'kill "$exporter_pid" 2>/dev/null; end_servers' EXIT
wait_until 20 get "$exporter_port" /health || fail "the exporter starts" "$(cat "$QUIRE_WORK/exporter.out")"
get "$exporter_port" /metrics >"$QUIRE_WORK/exporter.first"
get "$exporter_port" /metrics >"$QUIRE_WORK/exporter.metrics"

has() { # NAME PATTERN: a line of the exporter's figures matches
    if grep -qE "$2" "$QUIRE_WORK/exporter.metrics"; then ok "exporter: $1"; else
        fail "exporter: $1" "nothing in its figures matches $2"
    fi
}
has "the server is up" '^redis_up 1$'
has "the last scrape had no error" '^redis_exporter_last_scrape_error\{err=""\} 0$'
has "clients" '^redis_connected_clients [1-9]'
has "the list of clients" '^redis_connected_clients_details.cmd="client.list"'
has "commands by name" '^redis_commands_total\{cmd="vsim"\} 1$'
has "percentiles of commands" '^redis_latency_percentiles_usec\{cmd="vsim",quantile="99"\} [1-9]'
has "errors by code" '^redis_errors_total\{err="ERR"\} [1-9]'
has "memory" '^redis_memory_used_bytes [1-9]'
has "keys" '^redis_db_keys\{db="db0"\} 1$'
has "settings" '^redis_config_maxclients [1-9]'
has "slow commands" '^redis_slowlog_length [1-9]'
has "events of latency" '^redis_latency_spike_duration_seconds.event_name="command". [0-9.]*[1-9]'
has "version" '^redis_instance_info\{.*redis_version="8\.'
if grep -iE 'level=(warn|error)' "$QUIRE_WORK/exporter.out" >"$QUIRE_WORK/exporter.bad"; then
    fail "exporter: its log has no errors" "$(cat "$QUIRE_WORK/exporter.bad")"
else
    ok "exporter: its log has no errors"
fi

get "$metrics_port" /metrics >"$QUIRE_WORK/own.metrics"
matches "own metrics: searches" 'quire_search_latency_seconds_count 1' cat "$QUIRE_WORK/own.metrics"
matches "own health" '^ok$' get "$metrics_port" /health
kill "$exporter_pid"
wait "$exporter_pid" 2>/dev/null
server_stop "$server_pid" && ok "the scraped server stops with status 0" || fail "the scraped server stops with status 0"
[ $failures -eq 0 ]
