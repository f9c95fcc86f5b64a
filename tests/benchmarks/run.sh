#!/usr/bin/env bash
# run.sh BUILD_DIR - the adapters of bindings/benchmarks (adapters.py).
if [ -n "${QUIRE_SANITIZE_FLAGS:-}" ]; then
    echo "ok - left out under a sanitizer: it must be first in a process, and Python is"
    exit 0
fi
exec /usr/bin/python3 "$(dirname "$0")/adapters.py" "${1:?usage: run.sh BUILD_DIR}"
