#!/usr/bin/env bash
# top_test.sh BUILD_DIR - `quire top` with a real server, on a terminal and without one (top_test.py).
exec /usr/bin/python3 "$(dirname "$0")/top_test.py" "${1:?usage: top_test.sh BUILD_DIR}"
