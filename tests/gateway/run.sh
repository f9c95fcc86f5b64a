#!/usr/bin/env bash
# run.sh BUILD_DIR [SECONDS] - quire-gateway with its cache off: nothing changes on the way (passthrough.py), and clients
# that break HTTP or use it to hurt, with the cache off and on (hostile.py, SECONDS of random bytes). One line per check;
# exit status 0 when nothing failed.
set -u
build=$(cd "${1:?usage: run.sh BUILD_DIR [SECONDS]}" && pwd) || exit 2
here=$(cd "$(dirname "$0")" && pwd)
export PYTHONDONTWRITEBYTECODE=1
failed=0
python3 "$here/passthrough.py" "$build" || failed=1
python3 "$here/hostile.py" "$build" "${2:-10}" || failed=1
exit "$failed"
