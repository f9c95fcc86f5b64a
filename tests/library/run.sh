#!/usr/bin/env bash
# run.sh BUILD - installs the library to a temporary prefix and uses it as a stranger would: pkg-config, shared and
# static, C and C++; checks which symbols it shows.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=$(cd "${1:?usage: run.sh BUILD}" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# shellcheck source=/dev/null
. "$here/../expect.sh"

expect "cmake --install" cmake --install "$build" --prefix "$work/prefix"
pc=$(find "$work/prefix" -name quire.pc)
lib=$(dirname "$(find "$work/prefix" -name libquire.a)")
export PKG_CONFIG_PATH=${pc%/*} LD_LIBRARY_PATH=$lib
flags=(-std=c11 -D_DEFAULT_SOURCE -Wall -Wextra -Wconversion -Werror)
read -ra sanitize <<<"${QUIRE_SANITIZE_FLAGS:-}"

cc_shared() { gcc "${flags[@]}" "${sanitize[@]}" "$here/$1.c" -o "$work/$1-shared" $(pkg-config --cflags --libs quire) -lm; }
cc_static() {
    gcc "${flags[@]}" "${sanitize[@]}" "$here/$1.c" -o "$work/$1-static" $(pkg-config --cflags quire) "$lib/libquire.a" \
        $(pkg-config --libs --static quire | tr ' ' '\n' | grep -vE '^-lquire$|^-L'"$work")
}
cxx() { g++ -std=c++17 -Wall -Wextra -Werror "${sanitize[@]}" "$here/from_cpp.cc" -o "$work/cpp" $(pkg-config --cflags --libs quire); }
# -prefix/lib is where quire.pc says the library lies; this checks it does
only_quire_symbols() {
    ! nm -D --defined-only "$lib/libquire.so" | awk '{ print $3 }' | grep -vE '^(quire_[a-z_0-9]+|_init|_fini|__asan.*|__odr_asan.*|__ubsan.*|__tsan.*)$'
}
only_its_own_libraries() { ! ldd "$work/example_cache-shared" | grep -E 'jansson|ssl|crypto|mimalloc|not found'; }
version_agrees() { [[ $(pkg-config --modversion quire) == $(sed -n 's/^#define QUIRE_VERSION_STRING "\(.*\)"/\1/p' "$here/../../include/quire.h") ]]; }

for name in example example_live example_cache; do
    expect "$name compiles against the shared library" cc_shared "$name"
    expect "$name runs" "$work/$name-shared" "$work/$name-folder-shared"
    expect "$name compiles against the static library" cc_static "$name"
    expect "static $name runs" "$work/$name-static" "$work/$name-folder-static"
done
expect "an existing folder is refused" bash -c "! '$work/example-shared' '$work/example-folder-shared'"
expect "the header from C++" cxx
expect "C++ program runs" "$work/cpp"
expect "the shared library shows quire_ symbols only" only_quire_symbols
expect "a program needs none of the server's libraries" only_its_own_libraries
expect "pkg-config and header name one version" version_agrees
# ---- the programs that README.md and docs/library.md show: they compile with warnings as errors, run, and print ------
mkdir "$work/read" "$work/shown"
"$build/quire" gen --rows 2000 --dim 128 --clusters 30 --intrinsic 24 --seed 1 --out "$work/read/demo" >"$work/log" 2>&1 &&
    "$build/quire" build --base "$work/read/demo.fbin" --out "$work/read/demo-index" --metric l2 >>"$work/log" 2>&1
compile() { gcc "${flags[@]}" -g "${sanitize[@]}" "$@" $(pkg-config --cflags --libs quire) -lm; }
run_shown() { (cd "$work/read" && "./$1" >"$work/printed") && [[ -s $work/printed ]]; }
for document in README.md docs/library.md; do
    shown=$(/usr/bin/python3 "$here/documents.py" "$here/../../$document" "$work/shown")
    for name in $shown; do
        if [[ $name == fragment-* ]]; then
            expect "$document: $name compiles" compile -Wno-unused -c "$work/shown/$name.c" -o "$work/shown/$name.o"
            continue
        fi
        expect "$document: $name compiles" compile "$work/shown/$name.c" -o "$work/read/$name"
        expect "$document: $name runs and prints" run_shown "$name"
        [[ $name != colours ]] || expect "it prints what the page says" grep -qx 'red at 0.024' "$work/printed"
        [[ $name != nearest ]] || expect "ten rows" test "$(grep -c '^row ' "$work/printed")" = 10
    done
    rm -f "$work/shown"/*
done
"$build/quire" gen --rows 1000 --dim 3 --clusters 10 --intrinsic 3 --queries 0 --out "$work/read/other" >/dev/null 2>&1 && rm -r "$work/read/demo-index" &&
    "$build/quire" build --base "$work/read/other.fbin" --out "$work/read/demo-index" >/dev/null 2>&1
expect "an index of other dimensions is refused, not read beyond the array" bash -c \
    "cd '$work/read' && ! ./nearest 2>said && grep -q 'the query has 128 dimensions, what is searched has 3' said"

# ---- what an install holds besides ----------------------------------------------------------------------------------
doc=$work/prefix/share/doc/quire
expect "licence, changes and settings are installed" ls "$doc/LICENSE" "$doc/CHANGELOG.md" "$doc/README.md" "$doc/tools/quire.conf"
unit=$work/prefix/lib/systemd/system/quire-server.service
expect "the unit starts the installed program" grep -q "^ExecStart=$work/prefix/bin/quire-server " "$unit"
if command -v systemd-analyze >/dev/null; then
    expect "systemd-analyze has nothing to say about it" bash -c \
        "MANPATH='$work/prefix/share/man:' systemd-analyze verify '$unit' >'$work/said' 2>&1; ! grep -F quire '$work/said'"
else
    echo "skip - systemd-analyze verify: there is no systemd-analyze"
fi
gateway_unit=$work/prefix/lib/systemd/system/quire-gateway.service
expect "the gateway's unit starts the installed program" grep -q "^ExecStart=$work/prefix/bin/quire-gateway " "$gateway_unit"
if command -v systemd-analyze >/dev/null; then
    expect "systemd-analyze has nothing to say about the gateway's" bash -c \
        "MANPATH='$work/prefix/share/man:' systemd-analyze verify '$gateway_unit' >'$work/said' 2>&1; ! grep -F quire-gateway '$work/said'"
fi
# as the unit runs it: settings that its group may read, and a user that has nothing else
if [[ $(id -u) == 0 ]] && command -v setpriv >/dev/null; then
    install -d -m 0700 -o 65534 -g 65534 "$work/state"
    install -m 0640 -g 65534 "$doc/tools/quire.conf" "$work/quire.conf"
    chmod 755 "$work" "$work/prefix"
    started=$(sed -n "s|^ExecStart=||p" "$unit" | sed "s|/etc/quire/quire.conf|$work/quire.conf|")
    (cd "$work/state" && exec setpriv --reuid=65534 --regid=65534 --clear-groups $started --port 0 --port-file "$work/state/port") >"$work/log" 2>&1 &
    server=$!
    for _ in $(seq 200); do [[ -s $work/state/port ]] && break; sleep 0.05; done
    expect "the command of the unit starts as another user" test -s "$work/state/port"
    kill $server 2>/dev/null
    wait $server 2>/dev/null
fi
echo "$passed passed, $failed failed"
((failed == 0))
