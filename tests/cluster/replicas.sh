#!/usr/bin/env bash
# replicas.sh BUILD_DIR [KILLS] [--full] - quire.so in engines that are primaries and replicas: replicas.py, caches.py,
# walk.py, forged.py, joins.py, and failover.py with so many kills of primaries (50 by hand). --full: more of the two
# before it, and partition.py, which makes networks as root.
set -u
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/cluster/engines.sh
source "$here/engines.sh" "$1"
kills=${2:-4} full=${3:-} failed=0 forged=60 joins=4
[ "$full" != --full ] || forged=4000 joins=40
if timeout 120 "$here/../../tools/cluster-demo" "$1" >/dev/null; then
    echo "ok - tools/cluster-demo"
else
    echo "FAIL - tools/cluster-demo"
    failed=1
fi
for engine in "${engines[@]}"; do
    echo "---- $engine: $($engine --version)"
    /usr/bin/python3 "$here/replicas.py" $engine || failed=1
    /usr/bin/python3 "$here/caches.py" $engine "${QUIRE_SEED:-$RANDOM}" || failed=1
    /usr/bin/python3 "$here/walk.py" $engine 12 "${QUIRE_SEED:-$RANDOM}" || failed=1
    /usr/bin/python3 "$here/forged.py" $engine $forged "${QUIRE_SEED:-$RANDOM}" || failed=1
    /usr/bin/python3 "$here/joins.py" $engine $joins "${QUIRE_SEED:-$RANDOM}" || failed=1
    /usr/bin/python3 "$here/failover.py" $engine "$kills" "${QUIRE_SEED:-$RANDOM}" || failed=1
    [ "$full" != --full ] || /usr/bin/python3 "$here/partition.py" $engine 5 "${QUIRE_SEED:-$RANDOM}" || failed=1
done
exit $failed
