#!/usr/bin/env bash
# beside_redis.sh BUILD_DIR [--json] - requests per second of PING, SET and GET: quire-server beside redis-server on
# this machine, in turn, with the same flags of redis-benchmark.
#
# These measure what every command pays: sockets, parsing, the reply, and with SET and GET a key among 100,000. Rounds
# alternate between the servers, so that a machine that slows down slows both. The servers keep their defaults but for
# the disk: neither writes any, or with LOGGED=1 both log what is written and sync it every second. Redis serves from
# one thread and quire-server from one per processor, which competes with the benchmark's own; a second row, with one
# lane, is the comparison thread by thread. Environment: ROUNDS (5), CLIENTS (50), REQUESTS (100000 per round; ten times
# as many with pipelines), LOGGED.
set -u
usage="usage: beside_redis.sh BUILD_DIR [--json]"
QUIRE_BUILD=$(cd "${1:?$usage}" && pwd) || exit 2
json=false
case ${2:-} in
"") ;;
--json) json=true ;;
*) echo "$usage" >&2; exit 2 ;;
esac
QUIRE_WORK=$(mktemp -d "${TMPDIR:-/tmp}/quire-bench.XXXXXX") || exit 2
. "$(dirname "$0")/../e2e/lib.sh"
trap 'end_servers; rm -rf "$QUIRE_WORK"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
rounds=${ROUNDS:-5} clients=${CLIENTS:-50} requests=${REQUESTS:-100000}
commands=(ping_mbulk set get) # as redis-benchmark calls them
if [ -n "${LOGGED:-}" ]; then
    quire_settings=(--dir "$QUIRE_WORK/quire" --appendfsync everysec)
    quire1_settings=(--dir "$QUIRE_WORK/quire1" --appendfsync everysec)
    redis_settings=(--appendonly yes --appendfsync everysec)
else
    quire_settings=(--dir "") quire1_settings=(--dir "")
    redis_settings=(--appendonly no)
fi

# redis-server takes no port 0: tries random ports until it holds one
redis_start() {
    local tries
    for tries in 1 2 3 4 5 6 7 8; do
        server_port=$((20000 + RANDOM % 10000))
        redis-server --port "$server_port" --bind 127.0.0.1 --save '' --dir "$QUIRE_WORK" "${redis_settings[@]}" \
            >"$QUIRE_WORK/redis.log" 2>&1 </dev/null &
        server_pid=$!
        if wait_until 5 grep -q "Ready to accept" "$QUIRE_WORK/redis.log" && ! gone "$server_pid"; then
            server_pids+=("$server_pid")
            return 0
        fi
        kill "$server_pid" 2>/dev/null
        wait "$server_pid" 2>/dev/null
    done
    cat "$QUIRE_WORK/redis.log" >&2
    return 1
}

measure() { # PORT DEPTH COMMAND: requests per second
    local n=$((requests * ($2 > 1 ? 10 : 1)))
    redis-benchmark -p "$1" -t "$3" -r 100000 -c "$clients" -P "$2" -n "$n" --csv | awk -F'"' 'NR > 1 { print $4 }'
}

median() { sort -n | awk '{ v[NR] = $1 } END { printf "%.0f\n", (v[int((NR + 1) / 2)] + v[int((NR + 2) / 2)]) / 2 }'; }

declare -A ports
server_start quire "${quire_settings[@]}" || exit 1
ports[quire]=$server_port
server_start quire1 --lanes 1 "${quire1_settings[@]}" || exit 1
ports[quire1]=$server_port
redis_start || exit 1
ports[redis]=$server_port
names=(quire quire1 redis)
for depth in 1 16; do
    for command in "${commands[@]}"; do
        for ((round = 1; round <= rounds; round++)); do
            for name in "${names[@]}"; do
                figure=$(measure "${ports[$name]}" "$depth" "$command")
                [ -n "$figure" ] || { echo "redis-benchmark gave no figure for $name" >&2; exit 1; }
                echo "$figure" >>"$QUIRE_WORK/$name.$command.$depth"
                $json || echo "$command, depth $depth, round $round: $name $figure requests/s" >&2
            done
        done
    done
done

list() { paste -sd, "$QUIRE_WORK/$1"; }
of() { median <"$QUIRE_WORK/$1"; }
ratio() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.2f", a / b }'; }
redis_version=$(redis-server --version | sed 's/.*v=\([0-9.]*\).*/\1/')

# each_row FORMAT: calls it with command, depth, lanes, Quire's median, Redis' and the files of both
each_row() {
    local command depth name
    for command in "${commands[@]}"; do
        for depth in 1 16; do
            for name in quire quire1; do
                "$1" "$command" "$depth" "$([ $name = quire ] && echo auto || echo 1)" "$(of "$name.$command.$depth")" \
                    "$(of "redis.$command.$depth")" "$name.$command.$depth" "redis.$command.$depth"
            done
        done
    done
}

comma=
json_row() {
    printf '%s{"command":"%s","pipeline":%d,"lanes":"%s","quire_median":%s,"redis_median":%s,"ratio":%s,' \
        "$comma" "$1" "$2" "$3" "$4" "$5" "$(ratio "$4" "$5")"
    printf '"quire":[%s],"redis":[%s]}' "$(list "$6")" "$(list "$7")"
    comma=,
}

text_row() { printf '%-11s %-9d %-8s %14.0f %14.0f %7s\n' "$1" "$2" "$3" "$4" "$5" "$(ratio "$4" "$5")"; }

if $json; then
    printf '{"clients":%d,"rounds":%d,"processors":%d,"logged":%s,"redis_version":"%s","results":[' "$clients" \
        "$rounds" "$(nproc)" "$([ -n "${LOGGED:-}" ] && echo true || echo false)" "$redis_version"
    each_row json_row
    printf ']}\n'
else
    printf '\n%d connections, median of %d rounds, redis-server %s%s\n' "$clients" "$rounds" "$redis_version" \
        "${LOGGED:+, both with a log synced every second}"
    printf '%-11s %-9s %-8s %14s %14s %7s\n' command pipeline lanes quire/s redis/s ratio
    each_row text_row
fi
