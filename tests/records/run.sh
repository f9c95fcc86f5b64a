#!/usr/bin/env bash
# run.sh BUILD_DIR [PART...] - files of others: out of them, into them, and round trips that lose nothing.
#
# Each part is records_PART.py, which prints "ok - NAME", "FAIL - NAME" or "skip - NAME: reason" per check.
set -u
build=$(cd "${1:?usage: run.sh BUILD_DIR [PART...]}" && pwd) || exit 2
shift
here=$(cd "$(dirname "$0")" && pwd)
parts=("$@")
if ((${#parts[@]} == 0)); then
    for script in "$here"/records_*.py; do
        name=$(basename "$script" .py)
        parts+=("${name#records_}")
    done
fi
# their threads would wait for each other in busy loops, and there is little to compute
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1
failed=0
for name in "${parts[@]}"; do
    echo "--- $name"
    /usr/bin/python3 "$here/records_$name.py" "$build" || failed=1
done
exit "$failed"
