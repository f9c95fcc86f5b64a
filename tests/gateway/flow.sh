#!/usr/bin/env bash
# flow.sh BUILD_DIR - quire-gateway with its cache, before a stand-in model and a quire-server (flow.py).
set -u
build=$(cd "${1:?usage: flow.sh BUILD_DIR}" && pwd) || exit 2
export PYTHONDONTWRITEBYTECODE=1
exec python3 "$(dirname "$0")/flow.py" "$build"
