#!/usr/bin/env bash
# scripts_test.sh BUILD_DIR - quickstart, check and tools/setup-debian.sh: wrong use, what they say, what they leave.
#
# apt-get, cmake and ctest are stand-ins in PATH that note what was asked of them; quickstart runs for real, on the
# programs of BUILD_DIR and a small sample, beside a server that an earlier run has left.
set -u
build=$(cd "${1:?usage: scripts_test.sh BUILD_DIR}" && pwd) || exit 2
source_dir=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/quire-scripts.XXXXXX") || exit 2
server_pids=()
leave() {
    local pid
    for pid in "${server_pids[@]}"; do kill "$pid" 2>/dev/null; done
    rm -rf "$work"
}
trap leave EXIT
passed=0 failed=0

check() { # NAME COMMAND...
    local name=$1
    shift
    if "$@" >/dev/null 2>&1; then
        passed=$((passed + 1))
        echo "ok - $name"
    else
        failed=$((failed + 1))
        echo "FAIL - $name"
        tail -n 12 "$work/out" 2>/dev/null | sed 's/^/       | /'
    fi
}

# exits NAME CODE PATTERN COMMAND...: the command's exit code, and what its output must hold
exits() {
    local name=$1 code=$2 pattern=$3 got
    shift 3
    "$@" >"$work/out" 2>&1 </dev/null
    got=$?
    check "$name (exit code $got)" eval '[[ $got == "$code" ]] && grep -qE -- "$pattern" "$work/out"'
}

stand_in() { # NAME: the script on standard input, first in PATH
    mkdir -p "$work/bin"
    { echo '#!/usr/bin/env bash'; echo "echo \"$1 \$*\" >>'$work/asked'"; cat; } >"$work/bin/$1"
    chmod +x "$work/bin/$1"
}

with_stand_ins() { PATH=$work/bin:$PATH "$@"; }

# ---- setup-debian.sh: says what it will fetch, then how far it is ---------------------------------------------------
stand_in dpkg-query <<<'exit 1'
stand_in sudo <<<'exec "$@"'
stand_in apt-get <<'STAND_IN'
case $* in
*update*) echo "Hit:1 http://example/debian bookworm InRelease" ;;
*--assume-no*)
    printf '%s\n' "0 upgraded, 3 newly installed, 0 to remove and 1 not upgraded." "Need to get 108 MB of archives." \
        "After this operation, 380 MB of additional disk space will be used." "Abort."
    exit 1 ;;
*install*)
    for i in 1 2 3; do echo "Get:$i http://example p$i"; done
    sleep 6.5 # a package that takes long says nothing
    for i in 1 2 3; do echo "Unpacking p$i (1) ..."; done
    [[ ! ${APT_FAILS:-} ]] || { echo "E: no space"; exit 100; } ;;
esac
STAND_IN
exits "setup-debian.sh installs" 0 "Need to get 108 MB" with_stand_ins "$source_dir/tools/setup-debian.sh" run
check "and says how much it takes" grep -q "3 newly installed" "$work/out"
check "and on the disk" grep -q "380 MB of additional" "$work/out"
check "while apt says nothing it tells how far it is" grep -q "3 of 3 fetched, 0 unpacked" "$work/out"
exits "setup-debian.sh tells what apt-get said when it fails" 1 "E: no space" \
    with_stand_ins env APT_FAILS=1 "$source_dir/tools/setup-debian.sh" run
exits "setup-debian.sh without an argument" 1 "usage: " with_stand_ins "$source_dir/tools/setup-debian.sh"

# ---- quickstart: a mistake changes nothing --------------------------------------------------------------------------
mkdir -p "$work/quickstart/data-1"
echo 20000 >"$work/quickstart/rows"
: >"$work/quickstart/sample.tsv"
rm -f "$work/asked"
for mistake in "--rows abc" "--rows" "--rows 999" "--rows 117001" "--rows --keep" "--colour" "--build $work --keep"; do
    # shellcheck disable=SC2086
    exits "quickstart $mistake" 2 "quickstart: " with_stand_ins "$source_dir/quickstart" --out "$work/quickstart" $mistake
done
check "none of them asked for a package or a build" test ! -e "$work/asked"
check "or removed anything" test -e "$work/quickstart/sample.tsv" -a -d "$work/quickstart/data-1"
exits "quickstart --help" 0 "^usage: " with_stand_ins "$source_dir/quickstart" --help

# ---- quickstart beside a server that it has left --------------------------------------------------------------------
if [[ -f /usr/share/wordnet/data.noun ]] && command -v redis-cli >/dev/null; then
    rm -rf "$work/quickstart"
    quickstart=("$source_dir/quickstart" --build "$build" --out "$work/quickstart")
    exits "quickstart --keep" 0 "^The server goes on at 127.0.0.1:" "${quickstart[@]}" --keep --rows 1000
    port=$(sed -n 's/^The server goes on at 127.0.0.1:\([0-9]*\) .*/\1/p' "$work/out")
    pid=$(sed -n 's/.*(process \([0-9]*\), .*/\1/p' "$work/out")
    data=$(sed -n 's/.*, data \([^,]*\), log .*/\1/p' "$work/out")
    page=$(sed -n 's/^Look at it (process [0-9]*): //p' "$work/out")
    page_pid=$(sed -n 's/^Look at it (process \([0-9]*\)):.*/\1/p' "$work/out")
    server_pids+=("${pid:-0}" "${page_pid:-0}")
    check "its page is there" test "$(curl -s -o /dev/null -w '%{http_code}' "$page")" = 200
    check "and shows its sets" grep -q glosses <(curl -s "${page}/api/sets")
    check "it answers" test "$(redis-cli -p "$port" VCARD glosses)" = 1000
    check "its questions say what kind of model answers" grep -q "lexical model" "$work/out"
    exits "another quickstart with other rows" 0 "^server stopped cleanly" "${quickstart[@]}" --rows 1100
    check "the first server's data is there" test -d "$data/segments"
    check "it takes elements" test "$(redis-cli -p "$port" VADD fresh VALUES 3 1 0 0 a)" = 1
    check "and writes them to the disk" test "$(redis-cli -p "$port" SAVE)" = OK
    check "and seals them" test "$(redis-cli -p "$port" VSEAL fresh)" = OK
    check "what the second has made is gone" test "$(find "$work/quickstart" -name 'data-*' | wc -l)" = 1
    kill "$page_pid" 2>/dev/null
    redis-cli -p "$port" SHUTDOWN >/dev/null 2>&1
    while [[ $pid ]] && kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
    exits "the first server's folder is sound afterwards" 0 "^findings *0" "$build/quire" verify "$data"
else
    echo "skip - quickstart: it needs wordnet-base and redis-cli"
fi

# ---- check: what it leaves when it is ended -------------------------------------------------------------------------
mkdir -p "$work/tree/tools" "$work/tree/build/release/Testing/Temporary"
cp "$source_dir/check" "$work/tree/check"
printf '#!/bin/sh\n' >"$work/tree/tools/setup-debian.sh"
chmod +x "$work/tree/tools/setup-debian.sh"
stand_in cmake <<'STAND_IN'
echo "[1/861] Building C object x"
STAND_IN
stand_in ctest <<STAND_IN
echo "  1/131 Test   #1: io/test_hash ......   Passed    0.1 sec"
mkdir "\$TMPDIR/quire-test-1" # as tests have them
setsid sleep 30 & # a server of a test, in a session of its own
echo "\$!" >"$work/orphan"
sleep 30
STAND_IN
exits "site with an unknown argument" 2 "unknown argument 'quick'" "$source_dir/tools/site" quick
exits "site --help" 0 "^usage: tools/site" "$source_dir/tools/site" --help
exits "check with an unknown argument" 2 "unknown argument 'quick'" with_stand_ins "$work/tree/check" quick
mkdir "$work/tmp"
for ending in "TERM 143" "INT 130"; do
    rm -f "$work/orphan"
    set -m # children of a shell without job control ignore SIGINT
    env "TMPDIR=$work/tmp" "PATH=$work/bin:$PATH" "$work/tree/check" >"$work/out" 2>&1 </dev/null &
    pid=$!
    set +m
    for _ in $(seq 200); do
        [[ -s $work/orphan ]] && break
        sleep 0.05
    done
    kill "-${ending% *}" "$pid"
    wait "$pid"
    code=$?
    check "check ends with ${ending#* } after SIG${ending% *}" test "$code" = "${ending#* }"
    check "results are there as they come" grep -q "io/test_hash" "$work/out"
    check "so is how far the build is" grep -q "\[1/861\]" "$work/out"
    orphan=$(<"$work/orphan")
    check "processes of its tests have ended" \
        bash -c "[[ ! -e /proc/$orphan ]] || grep -q '^State:.*Z' /proc/$orphan/status"
    check "their temporary folders are gone" test -z "$(ls -A "$work/tmp")"
done

echo "$passed passed, $failed failed"
((failed == 0))
