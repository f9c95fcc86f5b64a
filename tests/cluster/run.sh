#!/usr/bin/env bash
# run.sh BUILD_DIR [FORKS] [KILLS] - quire.so in every engine that is here: keys.py, same.py, ft.py, forks.py, kills.py, and the
# transcripts of docs/wire.md (wire.sh). Prints "ok - ..." or "FAIL - ..." per check.
set -u
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/cluster/engines.sh
source "$here/engines.sh" "$1"
# shellcheck source=tests/cluster/beside.sh
source "$here/beside.sh"
forks=${2:-30} kills=${3:-4}
for engine in "${engines[@]}"; do
    echo "---- $engine: $($engine --version)"
    seed=${QUIRE_SEED:-$RANDOM}
    beside script ft.py "$engine" "$kills" "$seed" scripts keys_of_the_engine back_fills clients_that_go
    beside script keys.py "$engine"
    beside script ft.py "$engine" "$kills" "$seed" restarts kills other_ways replicas
    beside script same.py "$engine"
    beside script kills.py "$engine" "$kills" "${QUIRE_SEED:-$RANDOM}"
    beside bash "$here/wire.sh" "$engine"
    beside script forks.py "$engine" "$forks"
done
all_are_right
