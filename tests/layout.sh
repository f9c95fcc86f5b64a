#!/usr/bin/env bash
# layout.sh arrows|names BUILD_DIR - one check of tests/rooms.py as a test: which rooms call which (arrows), and whether
# external functions begin with the name of their module (names).
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
case ${1:-} in
arrows) check=symbols name="no room includes or calls one that it may not use (tests/rooms.txt)" ;;
names) check=names name="external functions begin with the name of their module" ;;
*) echo "usage: layout.sh arrows|names BUILD_DIR" >&2; exit 2 ;;
esac
build=${2:?usage: layout.sh arrows|names BUILD_DIR}
wrong=$(python3 tests/rooms.py "$check" "$build" 2>&1)
status=$?
if [[ $check == symbols ]]; then
    wrong+=$(python3 tests/rooms.py includes 2>&1) || status=1
fi
if ((status == 0)); then
    echo "ok - $name"
else
    echo "FAIL - $name"
    sed 's/^/    | /' <<<"$wrong" | head -40
fi
exit "$status"
