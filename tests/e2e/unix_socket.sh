#!/usr/bin/env bash
# unix_socket.sh - the settings unixsocket and unixsocketperm, by redis-cli -s: who may connect, how such clients are shown,
# what is done with a file that is there already, and what is left of it.
#
# Started by run.sh; has servers of its own.
set -u
. "$(dirname "$0")/lib.sh"
trap end_servers EXIT
socket=$QUIRE_WORK/quire.sock

# Starts one on the socket alone and waits for it: sets unix_pid.
unix_start() { # NAME SETTINGS...
    local name=$1
    shift
    "$server_binary" --port 0 --unixsocket "$socket" --dir "$QUIRE_WORK/$name.data" "$@" >"$QUIRE_WORK/$name.log" 2>&1 \
        </dev/null &
    unix_pid=$!
    server_pids+=("$unix_pid")
    wait_until 30 grep -q 'accepts connections' "$QUIRE_WORK/$name.log" && return 0
    fail "server $name starts" "$(cat "$QUIRE_WORK/$name.log")"
    return 1
}
cli() { timeout 20 redis-cli -s "$socket" "$@"; }

unix_start unix --unixsocketperm 700 || exit 1
matches "the file has the permission" '^700 socket$' stat -c '%a %F' "$socket"
matches "redis-cli -s" '^PONG$' cli PING
matches "a write and a read" '^OK$' cli SET k v
matches "CLIENT INFO shows path and flag" "addr=$socket:0 laddr=$socket:0 .*flags=U" cli CLIENT INFO
matches "CLIENT LIST, too" "addr=$socket:0 .*flags=U .*cmd=client\|list" cli CLIENT LIST
matches "CLIENT KILL by the address" "^1$" cli CLIENT KILL ADDR "$socket:0" SKIPME no
matches "there is no TCP port" 'tcp_port:0' cli INFO server
matches "DEBUG is local" '^OK$' cli DEBUG SLEEP 0
matches "the path is a setting" "$socket" cli CONFIG GET unixsocket
monitored=$(timeout 2 redis-cli -s "$socket" MONITOR & sleep 0.7; cli GET k >/dev/null; wait)
if [[ $monitored == *"[0 unix:$socket:0] \"GET\" \"k\""* ]]; then ok "MONITOR names it"; else fail "MONITOR names it" "$monitored"; fi
fails "a second server on it" 1 "unixsocket $socket is in use: stop what listens there" \
    "$server_binary" --port 0 --unixsocket "$socket" --dir "$QUIRE_WORK/second.data"
matches "which leaves it alone" '^PONG$' cli PING
matches "500 answers, pipelined" '^500$' bash -c "for i in \$(seq 500); do echo PING; done | timeout 20 redis-cli -s '$socket' | grep -c PONG"

kill -KILL "$unix_pid" && wait "$unix_pid" 2>/dev/null
wait_until 15 gone "$unix_pid"
matches "a killed server leaves it" '^socket$' stat -c %F "$socket"
unix_start again --requirepass secret || exit 1
ok "which is replaced"
matches "passwords count there, too" 'NOAUTH' cli PING
matches "with the password" '^PONG$' cli --no-auth-warning -a secret PING
server_stop "$unix_pid"
if [ -e "$socket" ]; then fail "the file goes at the stop" "$(ls -l "$socket")"; else ok "the file goes at the stop"; fi

unix_start moved || exit 1
mv "$socket" "$socket.old" && touch "$socket"
server_stop "$unix_pid"
if [ -f "$socket" ]; then ok "what is another's by then stays"; else fail "what is another's by then stays"; fi
fails "a file that is no socket" 2 "unixsocket: $socket is there and is no socket: remove it" \
    "$server_binary" --port 0 --unixsocket "$socket" --dir "$QUIRE_WORK/second.data"
rm -f "$socket"
fails "a path that is too long" 2 'at most 107 are possible' \
    "$server_binary" --port 0 --unixsocket "/tmp/$(printf 'x%.0s' $(seq 110))" --dir "$QUIRE_WORK/second.data"
fails "a permission that is none" 2 "unixsocketperm is '799': give octal digits" \
    "$server_binary" --port 0 --unixsocket "$socket" --unixsocketperm 799 --dir "$QUIRE_WORK/second.data"
fails "a folder that is not there" 2 'listen on unixsocket' \
    "$server_binary" --port 0 --unixsocket "$QUIRE_WORK/none/quire.sock" --dir "$QUIRE_WORK/second.data"

# Beside TCP, and open to all beyond loopback by ACL: protected mode lets it pass.
port=$(/usr/bin/python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
server_start both --unixsocket "$socket" --port "$port" --bind "127.0.0.1" || exit 1
matches "beside TCP" '^PONG$' cli PING
matches "the other way" '^PONG$' timeout 20 redis-cli -p "$port" PING
exit $((failures > 0))
