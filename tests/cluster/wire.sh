#!/usr/bin/env bash
# wire.sh ENGINE - the transcripts of docs/wire.md that are of vector sets and caches, against quire.so in an engine: the
# same replies as quire-server's, which tests/e2e/pages.sh compares with the same page. Started by run.sh.
set -u
here=$(cd "$(dirname "$0")" && pwd)
engine=$1
work=$(mktemp -d)
pid=
trap '[ -z "$pid" ] || { kill -9 "$pid"; wait "$pid"; } 2>/dev/null; rm -rf "$work"' EXIT
cd "$work" || exit 1
PATH=$QUIRE_BUILD:$PATH
# the data of the page, by the commands that it gives
awk '/^    / || (n && /^$/) { n++; text = text substr($0, 5) "\n"; if (index($0, "quire gen --rows 2000")) found = 1; next }
     { if (found) exit; n = 0; text = "" } END { if (found) printf "%s", text }' "$here/../../docs/wire.md" |
    grep -v '^quire-server' >make.sh
bash -e make.sh >make.log 2>&1 || { echo "FAIL - the data of wire.md: $(cat make.log)"; exit 1; }
port=$(/usr/bin/python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
printf '%s\n' "port $port" "bind 127.0.0.1" "dir $work" 'save ""' "loadmodule $QUIRE_BUILD/quire.so" \
    "quire.import-dir $work/indexes" >conf
"$engine" conf >log 2>&1 &
pid=$!
for _ in $(seq 200); do
    [ "$(redis-cli -p "$port" PING 2>&1)" = PONG ] && break
    sleep 0.05
done
QUIRE_HOST=module QUIRE_PORT=$port /usr/bin/python3 "$here/../e2e/pages.py" "$here/../../docs/wire.md"
