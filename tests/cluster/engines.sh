# shellcheck shell=bash
# engines.sh BUILD_DIR - sourced by the scripts of this folder: the engines that are here (engines), and the build whose
# quire.so they load. Ends the script where there is no redis-server, or under a sanitizer.
QUIRE_BUILD=$(cd "$1" && pwd) || exit 2
export QUIRE_BUILD
if ! command -v redis-server >/dev/null; then
    echo "skipped: there is no redis-server (apt-get install redis-server)"
    exit 0
fi
if [ -n "${QUIRE_SANITIZE_FLAGS:-}" ]; then
    echo "skipped: a sanitizer must be in the engine, which is not built here"
    exit 0
fi
engines=()
for engine in redis-server valkey-server; do
    if command -v $engine >/dev/null; then
        engines+=("$engine")
    else
        echo "skipped: there is no $engine"
    fi
done
