#!/usr/bin/env bash
# reference.sh BUILD_DIR - docs/reference is what the programs say of themselves, and what the pages say of settings agrees.
set -u
build=$(cd "${1:?usage: reference.sh BUILD_DIR}" && pwd) || exit 2
exec /usr/bin/python3 "$(dirname "$0")/../../docs/reference/generate.py" "$build" --check
