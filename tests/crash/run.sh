#!/usr/bin/env bash
# run.sh BUILD_DIR [CYCLES] - kill_loop.py with that server: 25 cycles, fewer where a sanitizer makes them slow.
#
# kill_loop.py --help says what is compared; its seed is printed, and --seed repeats what is random.
set -u
build=$(cd "${1:?usage: run.sh BUILD_DIR [CYCLES]}" && pwd) || exit 2
cycles=${2:-25}
[ $# -ge 2 ] || [ -z "${QUIRE_SANITIZE_FLAGS:-}" ] || cycles=8
exec /usr/bin/python3 "$(dirname "$0")/kill_loop.py" --build-dir "$build" --cycles "$cycles"
