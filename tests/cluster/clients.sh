#!/usr/bin/env bash
# clients.sh BUILD_DIR [PART...] - clients that know clusters, on one of three nodes with quire.so (clients.py): redis-cli -c,
# Debian's redis-py, and ioredis and node-redis (npm, by tests/e2e/node/package-lock.json; skipped without the registry).
set -u
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/cluster/engines.sh
source "$here/engines.sh" "$1"
shift
build=$QUIRE_BUILD
work=$(mktemp -d "${TMPDIR:-/tmp}/quire-cluster-clients.XXXXXX") || exit 2
export QUIRE_WORK=$work PYTHONDONTWRITEBYTECODE=1
. "$here/../e2e/lib.sh"
. "$here/../e2e/parts.sh"
leave() {
    [ -z "$part_pid" ] || kill "$part_pid" 2>/dev/null
    rm -rf "$work"
}
trap leave EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
parts=("$@")
for engine in "${engines[@]}"; do
    wanted keys && part "$engine: redis-cli, redis-py" /usr/bin/python3 "$here/clients.py" "$engine" keys redis_cli redis_py
    wanted node && with_node "$engine: ioredis, node-redis" \
        /usr/bin/python3 "$here/clients.py" "$engine" ioredis node_redis
done
[ "$skipped" -eq 0 ] || echo "$skipped skipped"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
