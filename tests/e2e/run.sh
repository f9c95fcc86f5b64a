#!/usr/bin/env bash
# run.sh BUILD_DIR [PART...] - the server from end to end, as its users meet it: through the clients they have.
#
# Makes data and an index, starts quire-server on a free loopback port and runs every part against it (or those named:
# redis_cli tutorial redis_py node_redis ioredis hiredis limits exporter signals secure unix_socket cache_load recipe pages). One
# line per check; at the end "N passed, M failed"; the exit status is 0 when nothing failed (parts.sh).
set -u

build=$(cd "${1:?usage: run.sh BUILD_DIR [PART...]}" && pwd) || exit 2
shift
here=$(cd "$(dirname "$0")" && pwd)
for program in quire quire-server; do
    [ -x "$build/$program" ] || { echo "there is no $build/$program: build it first"; exit 2; }
done
work=$(mktemp -d "${TMPDIR:-/tmp}/quire-e2e.XXXXXX") || exit 2
export QUIRE_BUILD=$build QUIRE_WORK=$work
. "$here/lib.sh"
. "$here/parts.sh"
leave() {
    [ -z "$part_pid" ] || kill "$part_pid" 2>/dev/null
    end_servers
    rm -rf "$work"
}
trap leave EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# The names of the rows, as people name things; row i is line i of the file.
make_names() { # ROWS
    awk -v rows="$1" 'BEGIN {
        split("apple brook cedar delta ember fjord grove heath islet jetty", nouns, " ")
        for (i = 0; i < rows; i++)
            printf "%s-%d\n", nouns[i % 10 + 1], i
    }'
}

prepare() {
    mkdir "$work/indexes" &&
        "$build/quire" gen --rows 4000 --dim 64 --clusters 40 --queries 100 --k 10 --metric cosine --out "$work/base" &&
        make_names 4000 >"$work/names" &&
        "$build/quire" build --base "$work/base.fbin" --keys "$work/names" --metric cosine --out "$work/indexes/words"
}

cache_load_part() {
    if [ -x "$build/bench_cache_load" ]; then
        part cache_load bash "$here/cache_load.sh"
    else
        skip_part cache_load "bench_cache_load is built only where there is hiredis"
    fi
}

hiredis_part() {
    local flags
    read -ra flags <<<"$(pkg-config --cflags --libs hiredis 2>&1)"
    if cc -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -g -o "$work/hiredis_sets" "$here/hiredis_sets.c" "${flags[@]}" \
        >"$work/cc.out" 2>&1; then
        part hiredis "$work/hiredis_sets" "$QUIRE_PORT"
    else
        failed=$((failed + 1))
        fail "a program with hiredis is built" "$(cat "$work/cc.out")"
    fi
}

parts=("$@")
prepare >"$work/prepare.out" 2>&1 || { echo "no data to test with:"; cat "$work/prepare.out"; exit 1; }
server_start main --import-dir "$work/indexes" || exit 1
export QUIRE_PORT=$server_port QUIRE_PID=$server_pid
loaded=$(redis-cli -p "$QUIRE_PORT" VLOAD words words)
[ "$loaded" = OK ] || { echo "VLOAD answers: $loaded"; exit 1; }

wanted redis_cli && part redis_cli bash "$here/redis_cli.sh"
wanted tutorial && part tutorial /usr/bin/python3 "$here/tutorial.py"
wanted redis_py && part redis_py /usr/bin/python3 "$here/redis_py.py"
wanted node_redis && with_node node_redis node "$here/node/node_redis.js"
wanted ioredis && with_node ioredis node "$here/node/ioredis.js"
wanted hiredis && hiredis_part
wanted limits && part limits /usr/bin/python3 "$here/limits.py"
wanted exporter && part exporter bash "$here/exporter.sh"
wanted signals && part signals bash "$here/signals.sh"
wanted secure && part secure bash "$here/secure.sh"
wanted unix_socket && part unix_socket bash "$here/unix_socket.sh"
wanted cache_load && cache_load_part
wanted recipe && with_node recipe bash "$here/recipe.sh"
wanted pages && part pages bash "$here/pages.sh"

end_parts "$server_pid"
