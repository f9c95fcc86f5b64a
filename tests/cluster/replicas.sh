#!/usr/bin/env bash
# replicas.sh BUILD_DIR [KILLS] [--full] - quire.so in engines that are primaries and replicas: replicas.py, caches.py,
# walk.py, forged.py, joins.py, and failover.py with so many kills of primaries (50 by hand). --full: more of the two
# before it, and partition.py, which makes networks as root.
set -u
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/cluster/engines.sh
source "$here/engines.sh" "$1"
at_once=3
# shellcheck source=tests/cluster/beside.sh
source "$here/beside.sh"
kills=${2:-4} full=${3:-} forged=60 joins=4
[ "$full" != --full ] || forged=4000 joins=40

demo() {
    if timeout 120 "$here/../../tools/cluster-demo" "$QUIRE_BUILD" >/dev/null; then
        echo "ok - tools/cluster-demo"
    else
        echo "FAIL - tools/cluster-demo"
        return 1
    fi
}

beside demo
for engine in "${engines[@]}"; do
    echo "---- $engine: $($engine --version)"
    beside script replicas.py "$engine" pair seal
    beside script failover.py "$engine" "$kills" "${QUIRE_SEED:-$RANDOM}"
    beside script replicas.py "$engine" sync damage names versions memory
    beside script replicas.py "$engine" report load tls caches
    beside script caches.py "$engine" "${QUIRE_SEED:-$RANDOM}"
    beside script walk.py "$engine" 12 "${QUIRE_SEED:-$RANDOM}"
    beside script forged.py "$engine" "$forged" "${QUIRE_SEED:-$RANDOM}"
    beside script joins.py "$engine" "$joins" "${QUIRE_SEED:-$RANDOM}"
    wait
    [ "$full" != --full ] || beside script partition.py "$engine" 5 "${QUIRE_SEED:-$RANDOM}"
done
all_are_right
