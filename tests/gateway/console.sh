#!/usr/bin/env bash
# console.sh BUILD_DIR - the API behind the page at /ui, with a quire-server, without and with upstreams (console.py).
set -u
build=$(cd "${1:?usage: console.sh BUILD_DIR}" && pwd) || exit 2
export PYTHONDONTWRITEBYTECODE=1
exec python3 "$(dirname "$0")/console.py" "$build"
