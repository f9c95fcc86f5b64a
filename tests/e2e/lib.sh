# shellcheck shell=bash disable=SC2034
# lib.sh - what the shell parts of the end-to-end tests share: checks, and servers that never outlive the test.
#
# A check is one line, "ok - NAME", "FAIL - NAME" (followed by what was seen) or "skip - NAME: reason". Servers are
# known by their process ids and ended by them, whatever ends the script.
: "${QUIRE_BUILD:?folder with quire-server}" "${QUIRE_WORK:?folder for temporary files}"
server_binary=$QUIRE_BUILD/quire-server
server_pids=()
failures=0

ok() { echo "ok - $1"; }

fail() { # NAME [TEXT SEEN]
    failures=$((failures + 1))
    echo "FAIL - $1"
    [ -z "${2:-}" ] || head -n 15 <<<"$2" | sed 's/^/    | /'
}

# matches NAME PATTERN COMMAND...: the command exits 0 and the whole of its output matches the extended expression.
matches() {
    local name=$1 pattern=$2 seen status
    shift 2
    seen=$("$@" 2>&1 </dev/null)
    status=$?
    if [ $status -eq 0 ] && [[ $seen =~ $pattern ]]; then ok "$name"; else fail "$name" "status $status: $seen"; fi
}

# fails NAME STATUS PATTERN COMMAND...: the command exits with the status and says what the expression asks for.
fails() {
    local name=$1 wanted=$2 pattern=$3 seen status
    shift 3
    seen=$(timeout 20 "$@" 2>&1 </dev/null)
    status=$?
    if [ $status -eq "$wanted" ] && [[ $seen =~ $pattern ]]; then
        ok "$name"
    else
        fail "$name" "status $status: $seen"
    fi
}

# wait_until SECONDS COMMAND...
wait_until() {
    local tries=$(($1 * 20))
    shift
    until "$@" >/dev/null 2>&1; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || return 1
        sleep 0.05
    done
}

# server_start NAME SETTINGS...: sets server_pid and server_port; the log is $QUIRE_WORK/NAME.log, the data folder, if
# the settings name no other, $QUIRE_WORK/NAME.data
server_start() {
    local name=$1 port_file=$QUIRE_WORK/$1.port
    shift
    rm -f "$port_file"
    "$server_binary" --port 0 --port-file "$port_file" --dir "$QUIRE_WORK/$name.data" "$@" \
        >"$QUIRE_WORK/$name.log" 2>&1 </dev/null &
    server_pid=$!
    server_pids+=("$server_pid")
    if ! wait_until 30 test -s "$port_file"; then
        fail "server $name starts" "$(cat "$QUIRE_WORK/$name.log")"
        return 1
    fi
    server_port=$(cat "$port_file")
}

# gone PID: the process has ended (a zombie has, too)
gone() { [ ! -e "/proc/$1" ] || grep -q '^State:[[:space:]]*Z' "/proc/$1/status"; }

# server_stop PID: SIGTERM, and SIGKILL where that does not help; returns the exit status
server_stop() {
    kill -TERM "$1" 2>/dev/null
    wait_until 15 gone "$1" || kill -KILL "$1" 2>/dev/null
    wait "$1"
}

end_servers() {
    local pid
    for pid in "${server_pids[@]}"; do
        gone "$pid" || server_stop "$pid" 2>/dev/null
    done
}
