#!/usr/bin/env bash
# pages.sh - what docs/wire.md and docs/operations.md show is run as it stands there. Started by run.sh.
#
# The data of wire.md's transcripts are made by the commands that the page gives; pages.py replays the transcripts. Of
# operations.md: a script that waits for the server, the two files of users, TLS, and the sentences of a snapshot.
set -u
here=$(cd "$(dirname "$0")" && pwd)
docs=$here/../../docs
. "$here/lib.sh"
trap end_servers EXIT
PATH=$QUIRE_BUILD:$PATH

# block PAGE PATTERN: the indented block that holds a line with the pattern, without its indentation
block() {
    awk -v pattern="$2" '
        /^    / || (n && /^$/) { n++; text = text substr($0, 5) "\n"; if (index($0, pattern)) found = 1; next }
        { if (found) exit; n = 0; text = "" }
        END { if (found) printf "%s", text }' "$docs/$1"
}

mkdir -p "$QUIRE_WORK/pages"
cd "$QUIRE_WORK/pages" || exit 1

# ---- wire.md
block wire.md "quire gen --rows 2000" | grep -v '^quire-server' >make.sh
matches "wire.md: the data of the transcripts are made as it says" '' bash -e make.sh
server_start pages --import-dir indexes || exit 1
QUIRE_PORT=$server_port /usr/bin/python3 "$here/pages.py" "$docs/wire.md" || failures=$((failures + 1))
# its lock for redis-py, and the library's own
block wire.md "import os, redis" | sed "s/port=7000/port=$server_port/" >lock.py
lock() { # what the program does when its work is LINE
    sed "s/pass  # the work.*/$1/" lock.py >lock_run.py
    /usr/bin/python3 lock_run.py && redis-cli -p "$server_port" GET lock:report
}
matches "wire.md: the lock is held while it works" '^30$' \
    lock 'print(round(client.pttl("lock:report") \/ 1000))'
matches "wire.md: and released" '^$' redis-cli -p "$server_port" GET lock:report
matches "wire.md: another's lock is not" '^another$' lock 'client.set("lock:report", "another")'
matches "wire.md: redis-py's own lock is extended and released" '^True 40 False$' /usr/bin/python3 -c "
import redis
lock = redis.Redis(port=$server_port).lock('own', timeout=30)
assert lock.acquire()
lock.extend(10)
ttl = round(lock.redis.pttl('own') / 1000)
lock.release()
print(True, ttl, bool(lock.redis.exists('own')))"
server_stop "$server_pid"

# ---- operations.md: a script that needs to know when the server is ready
block operations.md "until [ -s port ]" | sed 's/--dir data/--dir ready.data/' >ready.sh
matches "operations.md: a script waits for the server" 'PONG' bash -c '. ./ready.sh; kill $!; wait'

# ---- operations.md: users, and TLS
block operations.md "user search on #" | sed 's/^    //' >users.page
cp users.page users.acl
server_start users --aclfile users.acl || exit 1
matches "operations.md: the hash of a user is of the password that the page names" '^PONG$' \
    redis-cli -p "$server_port" --no-auth-warning --user search --pass password PING
server_stop "$server_pid"
block operations.md "openssl req -x509" >tls.sh
sed '/^quire-server/,$d' tls.sh >files.sh
matches "operations.md: certificates and users are made as it says" '' bash -e files.sh
tls_port=$((20000 + RANDOM % 10000))
sed -n '/^quire-server/,/aclfile/p' tls.sh |
    sed "s/^quire-server/exec & --dir tls.data --port-file tls.port/; s/--tls-port 6379/--tls-port $tls_port/" >server.sh
bash server.sh >tls.log 2>&1 &
server_pids+=("$!")
wait_until 20 test -s tls.port || fail "operations.md: the server with TLS starts" "$(cat tls.log)"
sed -n "/^redis-cli --tls/s/^redis-cli/& -p $tls_port --no-auth-warning/p" tls.sh >client.sh
matches "operations.md: the client of the TLS example is let in" '^PONG$' bash client.sh

# ---- operations.md: a snapshot is verified and served
server_start snapshots || exit 1
redis-cli -p "$server_port" VADD colours VALUES 3 1 0 0 red >/dev/null
matches "operations.md: BGSAVE" 'Background saving started' redis-cli -p "$server_port" BGSAVE
wait_until 20 bash -c "ls -d '$QUIRE_WORK'/snapshots.data/snapshots/[0-9]*-[0-9]*"
snapshot=$(echo "$QUIRE_WORK"/snapshots.data/snapshots/[0-9]*)
matches "operations.md: the name of a snapshot" '/[0-9]{8}T[0-9]{6}Z-[0-9]+$' echo "$snapshot"
matches "operations.md: quire verify of a snapshot" 'findings +0' quire verify "$snapshot"
[ $failures -eq 0 ]
