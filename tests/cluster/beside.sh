# shellcheck shell=bash
# beside.sh - sourced by replicas.sh and run.sh: runs at_once of their scripts at a time, two where nothing else is said, as
# they mostly wait. What a script has said is printed when it ends.
: "${here:?this folder}"
at_once=${at_once:-2} n_beside=0
work=$(mktemp -d "${TMPDIR:-/tmp}/quire-cluster-run.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
trap 'wait; exit 130' INT # each script ends its nodes
trap 'exit 143' TERM

beside() { # COMMAND...: when fewer than at_once run
    while [ "$(jobs -pr | wc -l)" -ge "$at_once" ]; do wait -n; done
    n_beside=$((n_beside + 1))
    {
        "$@" >"$work/$n_beside" 2>&1 || touch "$work/failed"
        flock "$work/lock" cat "$work/$n_beside" || touch "$work/failed"
    } &
}

script() { # NAME ARGUMENT...: a Python script of this folder
    local name=$1 status
    shift
    echo "# $name $*"
    env --default-signal=INT /usr/bin/python3 "$here/$name" "$@" # in the background it would not hear of Ctrl-C
    status=$?
    [ $status -eq 0 ] || echo "$name ends with status $status"
    return $status
}

all_are_right() { # when all have ended
    wait
    [ ! -e "$work/failed" ]
}
