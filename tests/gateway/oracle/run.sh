#!/usr/bin/env bash
# run.sh BUILD_DIR [SECONDS [SEED]] - compares gateway/text with Node's JSON.parse and with plain references in
# JavaScript (oracle.js) on random texts, bodies and streams, for 60 seconds.
set -u
build=$(cd "${1:?usage: run.sh BUILD_DIR [SECONDS [SEED]]}" && pwd) || exit 2
here=$(cd "$(dirname "$0")" && pwd)
[ -x "$build/gateway_oracle" ] || { echo "there is no $build/gateway_oracle: build it first"; exit 2; }
command -v node >/dev/null || { echo "FAIL - there is no node: tools/setup-debian.sh test installs it"; exit 1; }
exec node "$here/oracle.js" "$build/gateway_oracle" "${2:-60}" "${3:-1}"
