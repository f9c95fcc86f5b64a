#!/usr/bin/env bash
# signals.sh - how the server starts, refuses to start, and stops. Started by run.sh; all servers here are its own.
set -u
here=$(cd "$(dirname "$0")" && pwd)
. "$here/lib.sh"
load_pid=
trap '[ -z "$load_pid" ] || kill "$load_pid" 2>/dev/null; end_servers' EXIT
trap 'exit 143' TERM
index=$QUIRE_WORK/indexes/words
pidfile=$QUIRE_WORK/server.pid

# stopped NAME PID: the process ends within its 10 seconds, with status 0
stopped() {
    local status
    if ! wait_until 12 gone "$2"; then
        fail "$1" "still running"
        return
    fi
    wait "$2"
    status=$?
    [ $status -eq 0 ] && ok "$1" || fail "$1" "status $status"
}

absent() { # NAME FILE...
    local name=$1 file left=
    shift
    for file in "$@"; do
        [ ! -e "$file" ] || left="$left $file"
    done
    [ -z "$left" ] && ok "$name" || fail "$name" "still there:$left"
}

said() { # NAME PATTERN FILE
    grep -qE "$2" "$3" && ok "$1" || fail "$1" "$(cat "$3")"
}

searches() { redis-cli -p "$server_port" INFO quire | tr -d '\r' | sed -n 's/^searches://p'; }
busy() { [ "$(searches)" -gt 500 ]; }

# ---- SIGTERM and SIGINT under load
for signal in TERM INT; do
    server_start "load-$signal" --load words "$index" --pidfile "$pidfile" --loglevel debug || continue
    [ "$(cat "$pidfile")" = "$server_pid" ] && ok "pidfile holds the process id" || fail "pidfile" "$(cat "$pidfile")"
    matches "--load gives the index at once" '^4000$' redis-cli -p "$server_port" VCARD words
    redis-benchmark -p "$server_port" -c 30 -n 100000000 -P 4 -q VSIM words ELE apple-0 >"$QUIRE_WORK/load.out" 2>&1 &
    load_pid=$!
    wait_until 10 busy || fail "the load runs" "$(cat "$QUIRE_WORK/load.out")"
    kill -"$signal" "$server_pid"
    stopped "SIG$signal under load stops with status 0" "$server_pid"
    kill "$load_pid" 2>/dev/null
    wait "$load_pid" 2>/dev/null
    load_pid=
    absent "SIG$signal removes pidfile and port file" "$pidfile" "$QUIRE_WORK/load-$signal.port"
    said "SIG$signal is in the log" "received signal" "$QUIRE_WORK/load-$signal.log"
done

# ---- replies under way when the signal comes: every request that was read is answered whole
server_start drain --load words "$index" || exit 1
python3 - "$server_port" "$server_pid" <<'END'
import os, signal, socket, sys, time
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
s.sendall(b"VSIM words ELE apple-0 COUNT 100\r\n" * 200)
time.sleep(0.005)
os.kill(int(sys.argv[2]), signal.SIGTERM)
s.settimeout(15)
data = b""
try:
    while True:
        more = s.recv(65536)
        if not more:
            break
        data += more
    at = replies = 0
    while at < len(data):
        assert data[at:at + 6] == b"*100\r\n", data[at:at + 40]
        at += 6
        for _ in range(100):
            end = data.index(b"\r\n", at)
            at = end + 4 + int(data[at + 1:end])
        assert at <= len(data), "a torn reply"
        replies += 1
    print("ok - a stop tears no reply (%d of 200 answered)" % replies)
except (OSError, AssertionError, ValueError) as e:
    print("FAIL - a stop tears no reply\n    | %r" % e)
    sys.exit(1)
END
[ $? -eq 0 ] || failures=$((failures + 1))
stopped "SIGTERM with a pipeline under way stops with status 0" "$server_pid"

# ---- SHUTDOWN
for form in SHUTDOWN "SHUTDOWN NOSAVE"; do
    server_start shutdown --pidfile "$pidfile" --logfile "$QUIRE_WORK/shutdown.logfile" || continue
    redis-cli -p "$server_port" $form >/dev/null 2>&1
    stopped "$form stops with status 0" "$server_pid"
    absent "$form removes pidfile and port file" "$pidfile" "$QUIRE_WORK/shutdown.port"
done
said "logfile: start and stop are there" "accepts connections on port" "$QUIRE_WORK/shutdown.logfile"
said "logfile: it is added to" "SHUTDOWN" <(tail -n 4 "$QUIRE_WORK/shutdown.logfile")
[ "$(grep -c 'accepts connections' "$QUIRE_WORK/shutdown.logfile")" = 2 ] && ok "logfile: two runs, two starts" ||
    fail "logfile: two runs, two starts" "$(cat "$QUIRE_WORK/shutdown.logfile")"
[ ! -s "$QUIRE_WORK/shutdown.log" ] && ok "logfile: nothing on standard error" ||
    fail "logfile: nothing on standard error" "$(cat "$QUIRE_WORK/shutdown.log")"

# ---- what does not start
plain=("$server_binary" --dir "$QUIRE_WORK/plain.data")
server_start first || exit 1
fails "a port in use: status 1 and a sentence" 1 "port $server_port is in use.*--port" \
    "${plain[@]}" --port "$server_port" --pidfile "$pidfile"
absent "a server that could not start leaves no pidfile" "$pidfile"
matches "the first server did not notice" '^PONG$' redis-cli -p "$server_port" PING
server_stop "$server_pid"
fails "--bind 0.0.0.0 without password is refused" 2 'beyond loopback.*requirepass' \
    "${plain[@]}" --port 0 --bind 0.0.0.0
fails "an address that is none" 2 "not an IPv4 or IPv6 address" "${plain[@]}" --port 0 --bind localhost.invalid
fails "an index that is not there" 1 "nowhere" "${plain[@]}" --port 0 --load words "$QUIRE_WORK/nowhere"
fails "a logfile that cannot be opened" 1 "nowhere" "${plain[@]}" --port 0 --logfile "$QUIRE_WORK/nowhere/log"
fails "a pidfile that cannot be written" 1 "nowhere" "${plain[@]}" --port 0 --pidfile "$QUIRE_WORK/nowhere/pid"

# ---- wrong settings: status 2 and the name
fails "an unknown setting" 2 "no-such-setting" "$server_binary" --no-such-setting 1
fails "a port out of range" 2 "port.*65535" "$server_binary" --port 65536
fails "a number that is none" 2 "maxclients" "$server_binary" --maxclients many
fails "a yes-or-no that is neither" 2 "protected-mode" "$server_binary" --protected-mode maybe
fails "a choice that is none" 2 "engine" "$server_binary" --engine steam
fails "a size with a strange unit" 2 "proto-max-bulk-len" "$server_binary" --proto-max-bulk-len 1parsec
fails "a setting without value" 2 "needs a value" "$server_binary" --port
fails "a word that is no option" 2 "option" "${plain[@]}" --port 0 -- stray
mkdir "$QUIRE_WORK/elsewhere"
refused() { # NAME PATTERN SETTING...: status 2, and nothing is made
    local name=$1 pattern=$2
    shift 2
    (cd "$QUIRE_WORK/elsewhere" && fails "$name" 2 "$pattern" "$server_binary" --port 0 "$@"; exit $failures) ||
        failures=$((failures + 1))
    [ -z "$(ls -A "$QUIRE_WORK/elsewhere")" ] || fail "$name: nothing was made" "$(ls "$QUIRE_WORK/elsewhere")"
}
refused "an unknown setting without a value" "unknown setting 'foo'" --foo
refused "an address that is a name" "'localhost' is not an" --bind localhost
refused "an address beyond loopback without a password" "no password" --bind 0.0.0.0
refused "TLS without a certificate" "tls-cert-file" --tls-port 16379
refused "an index to load without its path" "not a key and a path" --load docs
refused "a data folder that is a file" "is a file, not a folder" --dir "$QUIRE_WORK/lines"
refused "users that are none" "" --user "anna +@nosuchcategory"
printf '# ours\n\nport 0\nlanes several\n' >"$QUIRE_WORK/bad.conf"
fails "a mistake in a file: its place" 2 'bad.conf.*4' "$server_binary" "$QUIRE_WORK/bad.conf"
fails "a file that is not there" 2 'nowhere' "$server_binary" "$QUIRE_WORK/nowhere.conf"
matches "--version" '^quire-server [0-9]+\.[0-9]+' "$server_binary" --version
matches "--help names every setting" 'import-dir.*shutdown-timeout' "$server_binary" --help

# ---- a configuration file, and options that win over it
printf 'maxclients 77\ntimeout 5\nlanes 1\n' >"$QUIRE_WORK/good.conf"
port_file=$QUIRE_WORK/file.port
"$server_binary" "$QUIRE_WORK/good.conf" --dir "$QUIRE_WORK/plain.data" --port 0 --port-file "$port_file" --timeout 6 \
    >"$QUIRE_WORK/file.log" 2>&1 &
server_pid=$!
server_pids+=("$server_pid")
if wait_until 10 test -s "$port_file"; then
    matches "settings of the file and of the command line" $'^maxclients\n77\ntimeout\n6\nlanes\n1$' \
        bash -c "for s in maxclients timeout lanes; do redis-cli -p $(cat "$port_file") CONFIG GET \$s; done"
    server_stop "$server_pid"
else
    fail "settings of a file" "$(cat "$QUIRE_WORK/file.log")"
fi

# ---- a redis.conf as Debian installs it: it starts, and one line of the log names what means nothing here
redis_conf=/etc/redis/redis.conf
if [ ! -r $redis_conf ]; then # what stands in that of Redis 7.0
    redis_conf=$QUIRE_WORK/redis.conf
    printf '%s\n' 'bind 127.0.0.1 -::1' 'daemonize yes' 'databases 16' 'always-show-logo no' 'appendonly no' 'hz 10' \
        'proc-title-template "{title} {listen-addr} {server-mode}"' 'client-output-buffer-limit normal 0 0 0' \
        'client-output-buffer-limit replica 256mb 64mb 60' 'oom-score-adj-values 0 200 800' 'dynamic-hz yes' >"$redis_conf"
fi
rm -f "$port_file"
"$server_binary" "$redis_conf" --dir "$QUIRE_WORK/plain.data" --port 0 --port-file "$port_file" --pidfile "" --logfile "" \
    >"$QUIRE_WORK/redis.log" 2>&1 &
server_pid=$!
server_pids+=("$server_pid")
if wait_until 10 test -s "$port_file"; then
    matches "a redis.conf: what is ignored is named" 'ignored, as these .*: daemonize, databases 16, .*appendonly no,.*dynamic-hz' \
        cat "$QUIRE_WORK/redis.log"
    matches "tools may say what is so" '^OK$' redis-cli -p "$(cat "$port_file")" CONFIG SET save ""
    matches "and not what is not" 'immutable' redis-cli -p "$(cat "$port_file")" CONFIG SET save "900 1"
    server_stop "$server_pid"
else
    fail "a redis.conf is taken" "$(cat "$QUIRE_WORK/redis.log")"
fi

# ---- without io_uring the log says so
QUIRE_ENGINE=threads server_start plain_engine || exit 1
matches "a warning where io_uring is not used" '# io_uring is not used: ' cat "$QUIRE_WORK/plain_engine.log"
server_stop "$server_pid"

# ---- a password
server_start password --bind 0.0.0.0 --requirepass "open sesame" || exit 1
matches "without the password" 'NOAUTH' redis-cli -p "$server_port" PING
matches "with a wrong password" 'WRONGPASS' redis-cli -p "$server_port" AUTH wrong
matches "with the password" '^PONG$' redis-cli -p "$server_port" --no-auth-warning -a "open sesame" PING
matches "with the password, RESP3" '^PONG$' redis-cli -3 -p "$server_port" --no-auth-warning -a "open sesame" PING
matches "SHUTDOWN without the password" 'NOAUTH' redis-cli -p "$server_port" SHUTDOWN
matches "and the server lives" '^PONG$' redis-cli -p "$server_port" --no-auth-warning -a "open sesame" PING
server_stop "$server_pid" && ok "SIGTERM to an idle server stops with status 0" || fail "SIGTERM to an idle server"

# ---- the service manager
notified() { # NAME SOCKET: the server tells of its start, of being alive, and of its stop
    /usr/bin/python3 - "$1" "$2" "$server_binary" <<'END'
import os, signal, socket, subprocess, sys
name, path, binary = sys.argv[1:]
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind("\0" + path[1:] if path[0] == "@" else path)
s.settimeout(10)
env = dict(os.environ, NOTIFY_SOCKET=path, WATCHDOG_USEC="800000")
env.pop("WATCHDOG_PID", None)
p = subprocess.Popen([binary, "--port", "0", "--logfile", os.devnull], env=env)
try:
    ready, alive = s.recv(4096).decode(), s.recv(4096).decode()
    p.send_signal(signal.SIGTERM)
    stopping = s.recv(4096).decode()
    while "WATCHDOG" in stopping:
        stopping = s.recv(4096).decode()
    status = p.wait(20)
    right = ("READY=1\n" in ready and "MAINPID=%d\n" % p.pid in ready and "STATUS=" in ready and alive == "WATCHDOG=1"
             and stopping.startswith("STOPPING=1\n") and status == 0)
    print(("ok - " if right else "FAIL - ") + name)
    if not right:
        print("    |", repr((ready, alive, stopping, status)))
except OSError as e:
    right = False
    print("FAIL - %s\n    | %r" % (name, e))
finally:
    p.kill()
sys.exit(not right)
END
    [ $? -eq 0 ] || failures=$((failures + 1))
}
notified "sd_notify over a path" "$QUIRE_WORK/notify"
notified "sd_notify over an abstract name" "@quire-notify-$$"
if command -v systemd-analyze >/dev/null; then
    sed "s|^ExecStart=[^ ]*|ExecStart=$server_binary|; s|@QUIRE_DOCDIR@|/usr/share/doc/quire|" "$here/../../tools/quire-server.service.in" \
        >"$QUIRE_WORK/quire-server.service"
    matches "systemd finds nothing wrong with the unit" '^$' env MANPATH="$(dirname "$server_binary")/manual/man:" systemd-analyze verify "$QUIRE_WORK/quire-server.service"
else
    echo "skip - the unit: there is no systemd-analyze"
fi

# ---- CONFIG REWRITE on the file of the start
printf '# kept\nport 0\nmaxclients 77\n' >"$QUIRE_WORK/rewrite.conf"
port_file=$QUIRE_WORK/rewrite.port
"$server_binary" "$QUIRE_WORK/rewrite.conf" --port-file "$port_file" >"$QUIRE_WORK/rewrite.log" 2>&1 </dev/null &
server_pid=$!
server_pids+=("$server_pid")
if wait_until 10 test -s "$port_file"; then
    matches "CONFIG SET" '^OK$' redis-cli -p "$(cat "$port_file")" CONFIG SET maxclients 78 timeout 9
    matches "CONFIG REWRITE" '^OK$' redis-cli -p "$(cat "$port_file")" CONFIG REWRITE
    server_stop "$server_pid"
    matches "CONFIG REWRITE: what was there stays, what is new is added" \
        $'^# kept\nport 0\nmaxclients 78\n# Generated by CONFIG REWRITE\n.*timeout 9' cat "$QUIRE_WORK/rewrite.conf"
else
    fail "a server with a file" "$(cat "$QUIRE_WORK/rewrite.log")"
fi
[ $failures -eq 0 ]
