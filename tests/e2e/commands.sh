#!/usr/bin/env bash
# commands.sh BUILD_DIR [--slow] [PAGE...] - the commands that README.md and docs/ show are run (commands.py), in a network
# of their own, so that ports are those of the pages and nobody else's.
set -u
build=$(cd "${1:?usage: commands.sh BUILD_DIR [--slow] [PAGE...]}" && pwd) || exit 2
shift
here=$(cd "$(dirname "$0")" && pwd)
if ! unshare --map-root-user --net --pid --fork --mount-proc true 2>/dev/null; then
    echo "skip - commands of the pages: this machine allows no network of one's own (unshare --net)"
    exit 0
fi
/usr/bin/python3 "$here/commands_itself.py" || exit 1
exec unshare --map-root-user --net --pid --fork --mount-proc --kill-child bash -c \
    'ip link set lo up && exec /usr/bin/python3 "$0" "$@"' "$here/commands.py" "$build" "$@"
