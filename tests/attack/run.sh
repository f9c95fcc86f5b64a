#!/usr/bin/env bash
# run.sh BUILD_DIR [SECONDS] - attack.py against that server, 20 seconds. Its --help says what is attacked and checked.
#
# The bars of attack.py, 64 MiB and 20 ms, hold where SECONDS are given, on a machine with nothing else to do. The short
# run looks for a server that dies, hangs or grows without end, whatever else the machine does: 128 MiB and 2 s.
set -u
build=$(cd "${1:?usage: run.sh BUILD_DIR [SECONDS]}" && pwd) || exit 2
limits=()
[ $# -ge 2 ] || limits=(--ping-ms 2000 --memory-mib 128)
[ -z "${QUIRE_SANITIZE_FLAGS:-}" ] || limits=(--ping-ms 20000 --memory-mib 4096)
exec /usr/bin/python3 "$(dirname "$0")/attack.py" --build-dir "$build" --seconds "${2:-20}" "${limits[@]}"
