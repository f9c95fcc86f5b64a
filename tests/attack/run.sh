#!/usr/bin/env bash
# run.sh BUILD_DIR [SECONDS] - attack.py against that server, 20 seconds. Its --help says what is attacked and checked.
#
# The bars of attack.py, 64 MiB and 20 ms, hold where SECONDS are given, on a machine with nothing else to do. The short
# run looks for a server that dies, hangs or grows without end, whatever else the machine does: 128 MiB and 2 s; and, in
# an attack that makes both lanes hold much in turn, that one has given its memory back when the other takes as much.
set -u
build=$(cd "${1:?usage: run.sh BUILD_DIR [SECONDS]}" && pwd) || exit 2
limits=()
[ $# -ge 2 ] || limits=(--ping-ms 2000 --memory-mib 128)
[ -z "${QUIRE_SANITIZE_FLAGS:-}" ] || limits=(--ping-ms 20000 --memory-mib 4096 --left-mib 4096)
attack() {
    /usr/bin/python3 "$(dirname "$0")/attack.py" --build-dir "$build" "$@"
}
attack --seconds "${2:-20}" "${limits[@]}" || exit 1
[ $# -lt 2 ] || exit 0
[ -n "${QUIRE_SANITIZE_FLAGS:-}" ] || limits=(--ping-ms 2000 --memory-mib 80)
attack --seconds 10 --only vmsim,vmsim-few "${limits[@]}"
