#!/usr/bin/env bash
# run.sh BUILD_DIR - the adapters of bindings/benchmarks (adapters.py).
exec /usr/bin/python3 "$(dirname "$0")/adapters.py" "${1:?usage: run.sh BUILD_DIR}"
