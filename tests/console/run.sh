#!/usr/bin/env bash
# run.sh BUILD_DIR - the gateway's console in Debian's Chromium (page.mjs, states.mjs). Skipped, with a line that says so, where there is
# no Chromium, no node or no npm registry to have puppeteer-core from.
#
# One line per check; exit status 0 when nothing failed.
set -u

build=$(cd "${1:?usage: run.sh BUILD_DIR}" && pwd) || exit 2
here=$(cd "$(dirname "$0")" && pwd)
for program in quire-server quire-gateway; do
    [ -x "$build/$program" ] || { echo "there is no $build/$program: build it first"; exit 2; }
done
work=$(mktemp -d "${TMPDIR:-/tmp}/quire-console.XXXXXX") || exit 2
export QUIRE_BUILD=$build QUIRE_WORK=$work PYTHONDONTWRITEBYTECODE=1
node_folder=$here/node
node_installed=console-node
part_seconds=500
. "$here/../e2e/lib.sh"
. "$here/../e2e/parts.sh"
leave() {
    [ -z "$part_pid" ] || kill "$part_pid" 2>/dev/null
    rm -rf "$work"
}
trap leave EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

chromium=
for path in "${CHROMIUM:-}" /usr/bin/chromium-headless-shell /usr/bin/chromium; do
    if [ -n "$path" ] && [ -x "$path" ]; then
        chromium=$path
        break
    fi
done
if [ -z "$chromium" ]; then
    skip_part "the console in a browser" "there is no Chromium (apt-get install chromium-headless-shell, or CHROMIUM=PATH)"
elif ! command -v node >/dev/null || ! command -v npm >/dev/null; then
    skip_part "the console in a browser" "there is no node or no npm"
else
    export CHROMIUM=$chromium
    with_node "the console in a browser" node "$here/page.mjs" "$build" "$work"
    with_node "states of the console's views" node "$here/states.mjs" "$build" "$work"
fi
[ "$skipped" -eq 0 ] || echo "$skipped skipped"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
