#!/bin/sh
# check_neon.sh [folder] - the NEON kernels against plain arithmetic, on a machine without them.
#
# Compiles the kernels and plain_main.c for 64-bit Arm into the folder (a temporary one if none is named), for ARMv8.0
# and again with the dot product instructions, and runs both under qemu. Then asks for the choice under several values
# of QUIRE_CPU. Prints one line, "N checks, M failed"; what failed is named on stderr. Exit status 0 if all is well,
# 1 if a check failed, 2 if a tool is missing or the sources do not compile.
#
# CC names another cross compiler (CC="clang --target=aarch64-linux-gnu"), EMULATOR another emulator; EMULATOR=env runs
# the programs directly, on an Arm machine.
# shellcheck disable=SC2086 # CC and EMULATOR may hold options
set -u
unset QUIRE_CPU
root=$(cd "$(dirname "$0")/../.." && pwd) || exit 2
cc=${CC:-aarch64-linux-gnu-gcc}
emulator=${EMULATOR:-qemu-aarch64}
for tool in ${cc%% *} ${emulator%% *}; do
    if ! command -v "$tool" >/dev/null; then
        echo "check_neon.sh: $tool not found; install gcc-aarch64-linux-gnu and qemu-user, or set CC and EMULATOR" >&2
        exit 2
    fi
done
if [ $# -ge 1 ]; then
    out=$1
    mkdir -p "$out" || exit 2
else
    out=$(mktemp -d) || exit 2
    trap 'rm -rf "$out"' EXIT
fi

checks=0
failed=0

# build NAME FLAGS... - makes $out/NAME
build() {
    name=$1
    shift
    (cd "$root" && $cc -std=c11 -D_GNU_SOURCE -DQUIRE_KERNELS_NEON=1 -I. -O3 -fno-math-errno -fno-trapping-math \
        -Wall -Wextra -Wshadow -Wconversion -Wundef -Werror -static "$@" index/kernels/kernels.c \
        index/kernels/kernels_scalar.c index/kernels/kernels_neon.c tests/kernels/support_compare.c \
        tests/kernels/plain_main.c -o "$out/$name" -lm -lpthread) >&2 || exit 2
}

# compare NAME - adds up the line that the program prints; one that ends without it counts as a failed check
compare() {
    line=$($emulator "$out/$1")
    case $line in
    *" checks, "*" failed")
        rest=${line#* checks, }
        checks=$((checks + ${line%% checks,*}))
        failed=$((failed + ${rest% failed}))
        ;;
    *)
        echo "$1 ended without a result" >&2
        checks=$((checks + 1))
        failed=$((failed + 1))
        ;;
    esac
}

# choice NAME REASON COMMAND... - what the program must report when run by COMMAND
choice() {
    want="$1
$2"
    shift 2
    checks=$((checks + 1))
    got=$("$@" $emulator "$out/armv8.0" --report)
    if [ "$got" != "$want" ]; then
        failed=$((failed + 1))
        echo "the choice: $* reports: $got" >&2
    fi
}

build armv8.0 -march=armv8-a
build dotprod -march=armv8.2-a+dotprod
compare armv8.0
compare dotprod
found="part of the architecture"
choice neon "neon ($found)" env
choice neon "neon (QUIRE_CPU)" env QUIRE_CPU=neon
choice scalar "scalar (QUIRE_CPU)" env QUIRE_CPU=scalar
choice neon "neon ($found; QUIRE_CPU=avx2 names no variant of this build)" env QUIRE_CPU=avx2
echo "$checks checks, $failed failed"
[ "$failed" -eq 0 ]
