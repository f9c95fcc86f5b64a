# expect.sh - sourced by scripts of tests that have a folder $work: their checks, one line each, counted in passed and failed.
passed=0 failed=0

# expect NAME COMMAND...: the end of what the command prints is shown when it fails; status 1 then.
expect() {
    local name=$1
    shift
    if "$@" >"$work/log" 2>&1; then
        echo "ok - $name"
        passed=$((passed + 1))
    else
        echo "FAIL - $name"
        tail -40 "$work/log" | sed 's/^/       /'
        failed=$((failed + 1))
        return 1
    fi
}
