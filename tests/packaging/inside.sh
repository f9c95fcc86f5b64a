# inside.sh - sourced by the scripts that use installed packages in a root ($root), in a network, with mounts and processes of
# their own (packages.sh starts them so). Their checks, one line each; the last is `exit "$failed"`.
failed=0
mount --make-rprivate / && mount -t proc proc "$root/proc" && ip link set lo up || exit 1

inside() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 "$@"; }
check() { # NAME PATTERN COMMAND...: what it prints has the pattern
    local name=$1 pattern=$2 printed
    shift 2
    printed=$("$@" 2>&1)
    if grep -qE -- "$pattern" <<<"$printed"; then
        echo "ok - $name"
    else
        echo "FAIL - $name"
        printf '%s\n' "wanted: $pattern" "got: $printed"
        failed=1
    fi
}
wait_for() { # COMMAND...
    local i
    for ((i = 0; i < 600; i++)); do
        "$@" >/dev/null 2>&1 && return
        sleep 0.1
    done
    echo "FAIL - waited for a minute: $*"
    failed=1
}
stopped() { # NAME PROCESS: told to stop, it ends with 0
    kill -TERM "$2"
    wait "$2"
    check "$1 stops gracefully" '^0$' echo $?
}
