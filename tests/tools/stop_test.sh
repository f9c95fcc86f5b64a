#!/usr/bin/env bash
# stop_test.sh BUILD_DIR - Ctrl-C in every verb and phase of `quire` (stop_test.py).
exec /usr/bin/python3 "$(dirname "$0")/stop_test.py" "${1:?usage: stop_test.sh BUILD_DIR}"
