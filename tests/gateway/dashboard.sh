#!/usr/bin/env bash
# dashboard.sh BUILD_DIR - docs/grafana/quire.json beside the metrics of a quire-server and its gateways (dashboard.py).
set -u
build=$(cd "${1:?usage: dashboard.sh BUILD_DIR}" && pwd) || exit 2
export PYTHONDONTWRITEBYTECODE=1
exec /usr/bin/python3 "$(dirname "$0")/dashboard.py" "$build"
