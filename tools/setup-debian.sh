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
    libjansson-dev                               # JSON documents, JSON of the command line
    libroaring-dev                               # bitmaps of rows
    libstemmer-dev                               # stems of words in documents
    libssl-dev                                   # the server's passwords and TLS
    libmimalloc-dev                              # the server's allocator
    libevent-dev libcurl4-openssl-dev            # the gateway's loop, TLS and sockets; its way to the models
    libhiredis-dev                               # its way to the server; also a client of tests, and of bench_cache_load
    node-llhttp                                  # the parser of HTTP/1.1, as C files (libllhttp-dev from Debian 13 on)
    zlib1g-dev libzstd-dev                       # pages of Parquet files, for `quire convert`; zlib: compressed bodies
    libopenblas0-pthread                         # the lexical embedder's SVD (loaded when first used)
    redis-tools                                  # redis-cli, redis-benchmark: to talk to the server
    wordnet-base                                 # the sample's text
    curl python3                                 # an application and a stand-in for its model, to try the gateway with
    ca-certificates
)
test_packages=(
    g++                                          # the library's header from C++
    libcmocka-dev                                # unit tests
    openssl                                      # end-to-end tests over TLS
    python3-numpy python3-redis                  # end-to-end tests with redis-py
    libhdf5-103-1 python3-h5py                   # HDF5 files, which `quire convert` loads the library for; to compare with
    python3-pytest python3-build python3-wheel python3-setuptools python3-venv python3-pip python3-dev mypy   # bindings/python
    python3-faiss python3-hnswlib                # whose indexes `quire convert` reads
    python3-matplotlib                           # figures of bindings/benchmarks
    python3-httpx python3-aiohttp python3-requests        # clients of the gateway
    clang clang-format                           # second compiler, layout of the sources
    opencl-c-headers ocl-icd-libopencl1 pocl-opencl-icd   # the plug-in for GPUs, and a device that is the processor
    prometheus-redis-exporter                    # what operators point at the server
    chromium-headless-shell                      # the gateway's console is tested in it
    redis-server                                 # the engine of the module; also to compare with. It is not started
    man-db groff-base zsh                        # manual pages and completion
    git procps
)
full_packages=(
    clang-tidy
    gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user   # NEON kernels
    python3-sphinx python3-myst-parser furo      # the documents as a site (tools/site)
    debootstrap dpkg-dev lintian iproute2        # Debian packages, in roots of their own
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
log=$(mktemp)
# a package of a server must not start it
policy=/usr/sbin/policy-rc.d
made_policy=
leave() {
    rm -f "$log"
    if [[ $made_policy ]]; then "${as_root[@]}" rm -f "$policy"; fi
}
trap leave EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
if [[ " ${missing[*]} " =~ \ (redis-server|prometheus-redis-exporter)\  && ! -e $policy ]]; then
    made_policy=1
    printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
    "${as_root[@]}" chmod 755 "$policy"
fi

# Runs apt-get with its output in the log; meanwhile a line at least every 5 seconds says how far it has come.
apt() {
    local fetched=0 unpacked=0 set_up=0 total=$1 begin=$SECONDS said=$SECONDS line status=0
    shift
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive LC_ALL=C apt-get -q "$@" 2>&1 | {
        while :; do
            if IFS= read -r -t 1 line; then
                printf '%s\n' "$line" >>"$log"
                case $line in
                Get:* | Hit:*) fetched=$((fetched + 1)) ;;
                Unpacking\ *) unpacked=$((unpacked + 1)) ;;
                Setting\ up\ *) set_up=$((set_up + 1)) ;;
                esac
            elif (($? <= 128)); then
                break # the end; above 128 the second is over
            fi
            if ((SECONDS - said >= 5)); then
                said=$SECONDS
                if ((total)); then
                    echo "  $fetched of $total fetched, $unpacked unpacked, $set_up set up, $((SECONDS - begin)) s"
                else
                    echo "  $fetched lists, $((SECONDS - begin)) s"
                fi
            fi
        done
    } || status=$?
    if ((status != 0)); then
        tail -20 "$log" >&2
        fail "apt-get $1 failed, see above"
    fi
}

echo "missing: ${missing[*]}"
echo "package lists are brought up to date"
apt 0 update
# what it would do: how many packages, how much to download, how much space
plan=$("${as_root[@]}" env LC_ALL=C apt-get install --assume-no --no-install-recommends "${missing[@]}" 2>&1 || true)
grep -E '^[0-9]+ upgraded|^Need to get|^After this operation' <<<"$plan" | sed 's/^/  /' || true
count=$(sed -n 's/^[0-9]* upgraded, \([0-9]*\) newly installed.*/\1/p' <<<"$plan")
apt "${count:-${#missing[@]}}" install -y --no-install-recommends "${missing[@]}"
