#!/usr/bin/env bash
# run.sh BUILD - installs the library to a temporary prefix and uses it as a stranger would: pkg-config, shared and
# static, C and C++; checks which symbols it shows.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=$(cd "${1:?usage: run.sh BUILD}" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0

expect() {
    local name=$1
    shift
    if "$@" >"$work/log" 2>&1; then
        echo "ok - $name"
        passed=$((passed + 1))
    else
        echo "FAIL - $name"
        sed 's/^/       /' "$work/log" | head -20
        failed=$((failed + 1))
    fi
}

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
echo "$passed passed, $failed failed"
((failed == 0))
