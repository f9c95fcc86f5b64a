#!/usr/bin/env bash
# run.sh BUILD_DIR [CYCLES] - kill_loop.py with that server, 14 cycles, cache_kill_loop.py and document_kill_loop.py, 6,
# and dump_kill.py, 4; fewer where a sanitizer makes them slow. CYCLES: of each.
#
# ./check --full has 300 of each. Their --help says what is compared; seeds are printed, and --seed repeats what is
# random.
set -u
build=$(cd "${1:?usage: run.sh BUILD_DIR [CYCLES]}" && pwd) || exit 2
cycles=${2:-14}
[ $# -ge 2 ] || [ -z "${QUIRE_SANITIZE_FLAGS:-}" ] || cycles=8
cache_cycles=${2:-6}
[ $# -ge 2 ] || [ -z "${QUIRE_SANITIZE_FLAGS:-}" ] || cache_cycles=5
dump_cycles=${2:-4}
[ $# -ge 2 ] || [ -z "${QUIRE_SANITIZE_FLAGS:-}" ] || dump_cycles=3
failed=0
here=$(dirname "$0")
/usr/bin/python3 "$here/kill_loop.py" --build-dir "$build" --cycles "$cycles" || failed=1
/usr/bin/python3 "$here/cache_kill_loop.py" --build-dir "$build" --cycles "$cache_cycles" || failed=1
/usr/bin/python3 "$here/document_kill_loop.py" --build-dir "$build" --cycles "$cache_cycles" || failed=1
/usr/bin/python3 "$here/dump_kill.py" --build-dir "$build" --cycles "$dump_cycles" || failed=1
exit "$failed"
