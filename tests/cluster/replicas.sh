#!/usr/bin/env bash
# replicas.sh BUILD_DIR [KILLS] [--full] - quire.so in engines that are primaries and replicas: replicas.py, walk.py, and
# failover.py with so many kills of primaries (50 by hand). --full: also partition.py, which makes networks as root.
set -u
here=$(cd "$(dirname "$0")" && pwd)
export QUIRE_BUILD=$(cd "$1" && pwd)
kills=${2:-4} full=${3:-} failed=0
if ! command -v redis-server >/dev/null; then
    echo "skipped: there is no redis-server (apt-get install redis-server)"
    exit 0
fi
if [ -n "${QUIRE_SANITIZE_FLAGS:-}" ]; then
    echo "skipped: a sanitizer must be in the engine, which is not built here"
    exit 0
fi
if timeout 120 "$here/../../tools/cluster-demo" "$1" >/dev/null; then
    echo "ok - tools/cluster-demo"
else
    echo "FAIL - tools/cluster-demo"
    failed=1
fi
for engine in redis-server valkey-server; do
    if ! command -v $engine >/dev/null; then
        echo "skipped: there is no $engine"
        continue
    fi
    echo "---- $engine: $($engine --version)"
    /usr/bin/python3 "$here/replicas.py" $engine || failed=1
    /usr/bin/python3 "$here/walk.py" $engine 12 "${QUIRE_SEED:-$RANDOM}" || failed=1
    /usr/bin/python3 "$here/failover.py" $engine "$kills" "${QUIRE_SEED:-$RANDOM}" || failed=1
    [ "$full" != --full ] || /usr/bin/python3 "$here/partition.py" $engine 5 "${QUIRE_SEED:-$RANDOM}" || failed=1
done
exit $failed
