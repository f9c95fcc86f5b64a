#!/usr/bin/env bash
# run.sh BUILD_DIR [SECONDS] - attack.py against that server, 20 seconds. Its --help says what is attacked and checked.
#
# PING is held to 20 ms only where SECONDS are given, on a machine with nothing else to do; memory always. Under a
# sanitizer neither is: the attack then looks for what the sanitizer reports.
set -u
build=$(cd "${1:?usage: run.sh BUILD_DIR [SECONDS]}" && pwd) || exit 2
limits=()
[ $# -ge 2 ] || limits=(--ping-ms 5000)
[ -z "${QUIRE_SANITIZE_FLAGS:-}" ] || limits=(--ping-ms 20000 --memory-mib 4096)
exec /usr/bin/python3 "$(dirname "$0")/attack.py" --build-dir "$build" --seconds "${2:-20}" "${limits[@]}"
