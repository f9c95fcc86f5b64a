#!/usr/bin/env bash
# slow_sync.sh BUILD_DIR [CYCLES] - slow_sync_kill.py with that server: 5 cycles, with a bound that holds on a busy
# machine, too (a process that waits for a processor is late by that); with CYCLES the bound of 10 ms. Not under
# sanitizers, which want to be in front of the server themselves.
set -u
build=$(cd "${1:?usage: slow_sync.sh BUILD_DIR [CYCLES]}" && pwd) || exit 2
if [ -n "${QUIRE_SANITIZE_FLAGS:-}" ]; then
    echo "ok - left out under a sanitizer"
    exit 0
fi
if [ $# -ge 2 ]; then
    exec /usr/bin/python3 "$(dirname "$0")/slow_sync_kill.py" --build-dir "$build" --cycles "$2"
fi
exec /usr/bin/python3 "$(dirname "$0")/slow_sync_kill.py" --build-dir "$build" --cycles 5 --within-ms 250
