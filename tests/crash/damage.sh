#!/usr/bin/env bash
# damage.sh BUILD_DIR [DAMAGES] - damage.py with that server: 32 damages in a folder of six sets, fewer where a sanitizer
# makes it slow; or so many in a folder of ten.
set -u
build=$(cd "${1:?usage: damage.sh BUILD_DIR [DAMAGES]}" && pwd) || exit 2
damages=${2:-32} sets=6
[ $# -lt 2 ] || sets=10
[ $# -ge 2 ] || [ -z "${QUIRE_SANITIZE_FLAGS:-}" ] || damages=14
exec /usr/bin/python3 "$(dirname "$0")/damage.py" --build-dir "$build" --damages "$damages" --sets $sets
