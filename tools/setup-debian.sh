#!/usr/bin/env bash
# setup-debian.sh - installs what Quire needs from Debian 12, and only what is missing.
#
# usage: tools/setup-debian.sh run|test|full
#   run    to build, run and try it          test   also what the tests need
#   full   also cross compiler and emulator for the NEON kernels, sanitizer runs with clang
#
# Needs root or sudo, and apt-get. No service is started: redis-tools has clients only.
set -euo pipefail

run_packages=(
    gcc libc6-dev cmake ninja-build pkg-config   # the build
    liburing-dev                                 # io_uring
    libxxhash-dev                                # checksums and hashes
    libjansson-dev                               # JSON of the command line
    libroaring-dev                               # bitmaps of rows
    libssl-dev                                   # the server's passwords and TLS
    libmimalloc-dev                              # the server's allocator
    libopenblas0-pthread                         # the lexical embedder's SVD (loaded when first used)
    redis-tools                                  # redis-cli, redis-benchmark: to talk to the server
    wordnet-base                                 # the sample's text
    ca-certificates
)
test_packages=(
    g++                                          # the library's header from C++
    libcmocka-dev                                # unit tests
    libhiredis-dev                               # a client of the end-to-end tests, and of bench_cache_load
    openssl                                      # end-to-end tests over TLS
    python3 python3-numpy python3-redis          # end-to-end tests with redis-py
    clang clang-format                           # second compiler, layout of the sources
    prometheus-redis-exporter                    # what operators point at the server
    git procps
)
full_packages=(
    clang-tidy
    gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user   # NEON kernels
    redis-server                                 # to compare with
)

fail() {
    echo "setup-debian.sh: $*" >&2
    exit 1
}

wanted=("${run_packages[@]}")
case "${1:-}" in
run) ;;
test | full)
    wanted+=("${test_packages[@]}")
    # node may be installed from elsewhere than Debian, whose npm would then conflict
    command -v node >/dev/null || wanted+=(nodejs)
    command -v npm >/dev/null || wanted+=(npm)
    if [[ $1 == full ]]; then wanted+=("${full_packages[@]}"); fi
    ;;
*) fail "usage: tools/setup-debian.sh run|test|full" ;;
esac

missing=()
for package in "${wanted[@]}"; do
    status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [[ $status == installed ]] || missing+=("$package")
done
if ((${#missing[@]} == 0)); then
    exit 0
fi

command -v apt-get >/dev/null || fail "needs apt-get; install by hand: ${missing[*]}"
as_root=()
if (($(id -u) != 0)); then
    command -v sudo >/dev/null || fail "needs root or sudo to install: ${missing[*]}"
    as_root=(sudo)
fi
# a package of a server must not start it
policy=/usr/sbin/policy-rc.d
made_policy=
if [[ " ${missing[*]} " =~ \ (redis-server|prometheus-redis-exporter)\  && ! -e $policy ]]; then
    printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
    "${as_root[@]}" chmod 755 "$policy"
    made_policy=1
fi
restore() {
    if [[ $made_policy ]]; then "${as_root[@]}" rm -f "$policy"; fi
}
trap restore EXIT
echo "installing: ${missing[*]}"
log=$(mktemp)
if ! { "${as_root[@]}" apt-get update -q &&
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
    tail -20 "$log" >&2
    rm -f "$log"
    fail "apt-get failed, see above"
fi
rm -f "$log"
