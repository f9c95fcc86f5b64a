#!/usr/bin/env bash
# run.sh BUILD_DIR [FORKS] [KILLS] - quire.so in every engine that is here: keys.py, same.py, ft.py, forks.py, kills.py, and the
# transcripts of docs/wire.md (wire.sh). Prints "ok - ..." or "FAIL - ..." per check.
set -u
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/cluster/engines.sh
source "$here/engines.sh" "$1"
forks=${2:-30} kills=${3:-4} failed=0
for engine in "${engines[@]}"; do
    echo "---- $engine: $($engine --version)"
    /usr/bin/python3 "$here/keys.py" $engine || failed=1
    /usr/bin/python3 "$here/same.py" $engine || failed=1
    /usr/bin/python3 "$here/ft.py" $engine "$kills" "${QUIRE_SEED:-$RANDOM}" || failed=1
    /usr/bin/python3 "$here/forks.py" $engine "$forks" || failed=1
    /usr/bin/python3 "$here/kills.py" $engine "$kills" "${QUIRE_SEED:-$RANDOM}" || failed=1
    bash "$here/wire.sh" $engine || failed=1
done
exit $failed
