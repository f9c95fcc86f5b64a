#!/usr/bin/env bash
# run.sh BUILD_DIR [PART...] - FT.* and JSON.* as the clients of RediSearch use them.
#
# Starts quire-server on a free loopback port and runs every part against it (or those named). Real clients: redis_py
# (Debian's), redis4, redis6, ioredis_search, langchain (npm, by tests/e2e/node/package-lock.json; skipped without the registry). Clients
# that cannot be installed here: as_*.py send the command lines that the client sends, and read the replies as it does.
# Parts empty the server when they begin. One line per check; exit status 0 when nothing failed.
set -u

build=$(cd "${1:?usage: run.sh BUILD_DIR [PART...]}" && pwd) || exit 2
shift
here=$(cd "$(dirname "$0")" && pwd)
[ -x "$build/quire-server" ] || { echo "there is no $build/quire-server: build it first"; exit 2; }
work=$(mktemp -d "${TMPDIR:-/tmp}/quire-clients.XXXXXX") || exit 2
export QUIRE_BUILD=$build QUIRE_WORK=$work PYTHONDONTWRITEBYTECODE=1
. "$here/../e2e/lib.sh"
. "$here/../e2e/parts.sh"
leave() {
    [ -z "$part_pid" ] || kill "$part_pid" 2>/dev/null
    end_servers
    rm -rf "$work"
}
trap leave EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

parts=("$@")
server_start main || exit 1
export QUIRE_PORT=$server_port QUIRE_PID=$server_pid

wanted redis_py && part redis_py /usr/bin/python3 "$here/redis_py_search.py"
for script in "$here"/as_*.py; do
    name=$(basename "$script" .py)
    wanted "$name" && part "$name" /usr/bin/python3 "$script"
done
for name in redis4 ioredis_search; do
    wanted "$name" && with_node "$name" node "$here/node/$name.js"
done
wanted examples && part examples /usr/bin/python3 "$here/examples.py" python
node_major=$(node --version | sed 's/^v\([0-9]*\).*/\1/')
for name in redis6 langchain; do
    wanted "$name" || continue
    if [ "$node_major" -ge 20 ]; then
        with_node "$name" node "$here/node/$name.js"
    else
        skip_part "$name" "its client library needs node 20 or later, and this is $(node --version)"
    fi
done
if wanted examples && [ "$node_major" -ge 20 ]; then
    with_node examples /usr/bin/python3 "$here/examples.py" javascript
fi

end_parts "$server_pid"
