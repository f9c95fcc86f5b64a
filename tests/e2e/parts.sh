# shellcheck shell=bash disable=SC2034
# parts.sh - how run.sh here and tests/clients/run.sh run their parts, and where the npm packages come from.
#
# A part is a program that prints a line per check (lib.sh). Expects $work, $build and lib.sh; keeps the counts passed,
# failed and skipped. The npm packages of tests/e2e/node/package-lock.json are installed into BUILD_DIR/e2e-node, never
# into the source tree; where the registry is out of reach, what needs them is skipped with a sentence.
# Who has packages of its own sets node_folder and node_installed (a folder below BUILD_DIR) before, who needs more time
# part_seconds.
node_folder=${node_folder:-$(cd "$(dirname "${BASH_SOURCE[0]}")/node" && pwd)}
node_installed=${node_installed:-e2e-node}
part_seconds=${part_seconds:-300} # a part's limit
passed=0 failed=0 skipped=0
part_pid=

# part NAME COMMAND...: runs it, counts its lines; a part that ends badly without a FAIL line counts as a failure.
part() {
    local name=$1 status tee_pid
    shift
    echo "# $name"
    rm -f "$work/lines"
    mkfifo "$work/lines"
    tee "$work/part.out" <"$work/lines" &
    tee_pid=$!
    timeout -k 5 "$part_seconds" "$@" >"$work/lines" 2>"$work/part.err" </dev/null &
    part_pid=$!
    wait "$part_pid"
    status=$?
    part_pid=
    wait "$tee_pid"
    passed=$((passed + $(grep -c '^ok - ' "$work/part.out")))
    failed=$((failed + $(grep -c '^FAIL - ' "$work/part.out")))
    skipped=$((skipped + $(grep -c '^skip - ' "$work/part.out")))
    if [ $status -ne 0 ] && ! grep -q '^FAIL - ' "$work/part.out"; then
        failed=$((failed + 1))
        fail "$name ends with status $status" "$(tail -n 15 "$work/part.err")"
    elif [ -s "$work/part.err" ] && [ $status -ne 0 ]; then
        head -n 15 "$work/part.err" | sed 's/^/    | /'
    fi
}

skip_part() { # NAME REASON
    skipped=$((skipped + 1))
    echo "skip - $1: $2"
}

# Two scripts that use the same folder may run at a time: the second waits for the first, and finds all there.
node_packages() {
    local modules=$build/$node_installed
    mkdir -p "$modules"
    (
        flock 9
        cmp -s "$node_folder/package-lock.json" "$modules/installed.json" && exit
        cp "$node_folder/package.json" "$node_folder/package-lock.json" "$modules/" &&
            (cd "$modules" && npm ci --no-audit --no-fund) >"$work/npm.out" 2>&1 &&
            cp "$node_folder/package-lock.json" "$modules/installed.json"
    ) 9>"$modules/lock" || return 1
    export NODE_PATH=$modules/node_modules
}

# with_node NAME COMMAND...: a part that needs the npm packages
with_node() {
    local unreachable='ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH|EHOSTUNREACH|SOCKET_TIMEOUT'
    if node_packages; then
        part "$@"
    elif grep -qE "$unreachable" "$work/npm.out"; then
        skip_part "$1" "the npm registry, where its client library comes from, is out of reach"
    else
        failed=$((failed + 1))
        fail "$1: npm ci installs the client libraries" "$(tail -n 15 "$work/npm.out")"
    fi
}

wanted() { [ ${#parts[@]} -eq 0 ] || [[ " ${parts[*]} " == *" $1 "* ]]; }

# end_parts PID: ends the server that all parts used, prints the counts; status 0 where nothing failed.
end_parts() {
    echo "# the server that all parts used"
    if server_stop "$1" 2>/dev/null; then
        passed=$((passed + 1))
        ok "it ends with status 0"
    else
        failed=$((failed + 1))
        fail "it ends with status 0" "$(tail -n 15 "$work/main.log")"
    fi
    [ "$skipped" -eq 0 ] || echo "$skipped skipped"
    echo "$passed passed, $failed failed"
    [ "$failed" -eq 0 ]
}
