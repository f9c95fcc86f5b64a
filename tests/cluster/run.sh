#!/usr/bin/env bash
# run.sh BUILD_DIR [FORKS] [KILLS] - quire.so in every engine that is here: keys.py, same.py, ft.py, forks.py, kills.py, and the
# transcripts of docs/wire.md (wire.sh). Prints "ok - ..." or "FAIL - ..." per check.
set -u
here=$(cd "$(dirname "$0")" && pwd)
export QUIRE_BUILD=$(cd "$1" && pwd)
forks=${2:-30} kills=${3:-4} failed=0
if ! command -v redis-server >/dev/null; then
    echo "skipped: there is no redis-server (apt-get install redis-server)"
    exit 0
fi
if [ -n "${QUIRE_SANITIZE_FLAGS:-}" ]; then
    echo "skipped: a sanitizer must be in the engine, which is not built here"
    exit 0
fi
for engine in redis-server valkey-server; do
    if ! command -v $engine >/dev/null; then
        echo "skipped: there is no $engine"
        continue
    fi
    echo "---- $engine: $($engine --version)"
    /usr/bin/python3 "$here/keys.py" $engine || failed=1
    /usr/bin/python3 "$here/same.py" $engine || failed=1
    /usr/bin/python3 "$here/ft.py" $engine "$kills" "${QUIRE_SEED:-$RANDOM}" || failed=1
    /usr/bin/python3 "$here/forks.py" $engine "$forks" || failed=1
    /usr/bin/python3 "$here/kills.py" $engine "$kills" "${QUIRE_SEED:-$RANDOM}" || failed=1
    bash "$here/wire.sh" $engine || failed=1
done
exit $failed
