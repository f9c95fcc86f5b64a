#!/usr/bin/env bash
# run.sh BUILD_DIR [PART...] - FT.* and JSON.* on the wire: what a real RediSearch answered (answers), the shapes of
# replies (shapes), options of FT.CREATE (definitions), errors and refusals (refusals), JSON.* (json_commands), keys that
# change under an index (following), all of it at once (together), users who may not see all (walls), vectors of hashes that
# only their index has (once).
#
# Parts empty the server when they begin; answers and once have their own. One line per check; exit status 0 when nothing failed.
set -u

build=$(cd "${1:?usage: run.sh BUILD_DIR [PART...]}" && pwd) || exit 2
shift
here=$(cd "$(dirname "$0")" && pwd)
[ -x "$build/quire-server" ] || { echo "there is no $build/quire-server: build it first"; exit 2; }
work=$(mktemp -d "${TMPDIR:-/tmp}/quire-search.XXXXXX") || exit 2
export QUIRE_BUILD=$build QUIRE_WORK=$work PYTHONDONTWRITEBYTECODE=1
. "$here/../e2e/lib.sh"
. "$here/../e2e/parts.sh"
leave() {
    [ -z "$part_pid" ] || kill "$part_pid" 2>/dev/null
    end_servers
    rm -rf "$work"
}
trap leave EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

parts=("$@")
server_start main || exit 1
export QUIRE_PORT=$server_port QUIRE_PID=$server_pid

for name in shapes definitions refusals json_commands following together walls once; do
    wanted "$name" && part "$name" /usr/bin/python3 "$here/$name.py"
done
wanted answers && part answers /usr/bin/python3 "$here/answers.py" --build-dir "$build"

end_parts "$server_pid"
