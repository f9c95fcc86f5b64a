#!/usr/bin/env bash
# bench_ping.sh BUILD_DIR [--json] - requests per second of PING: quire-server beside redis-server on this machine.
#
# PING measures what every command pays: sockets, parsing, the reply. Rounds alternate between the servers, so that a
# machine that slows down slows both. The servers keep their defaults; redis-server runs without snapshots. Redis serves
# from one thread and quire-server from one per processor, which competes with the benchmark's own; a second row per
# depth, with one lane, is the comparison thread by thread. Environment: ROUNDS (5), CLIENTS (50), REQUESTS (100000 per
# round; ten times as many with pipelines).
set -u
usage="usage: bench_ping.sh BUILD_DIR [--json]"
QUIRE_BUILD=$(cd "${1:?$usage}" && pwd) || exit 2
json=false
case ${2:-} in
"") ;;
--json) json=true ;;
*) echo "$usage" >&2; exit 2 ;;
esac
QUIRE_WORK=$(mktemp -d "${TMPDIR:-/tmp}/quire-bench.XXXXXX") || exit 2
. "$(dirname "$0")/lib.sh"
trap 'end_servers; rm -rf "$QUIRE_WORK"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
rounds=${ROUNDS:-5} clients=${CLIENTS:-50} requests=${REQUESTS:-100000}

# redis-server takes no port 0: tries random ports until it holds one
redis_start() {
    local tries
    for tries in 1 2 3 4 5 6 7 8; do
        server_port=$((20000 + RANDOM % 10000))
        redis-server --port "$server_port" --bind 127.0.0.1 --save '' --appendonly no --dir "$QUIRE_WORK" \
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

measure() { # PORT DEPTH: requests per second
    local n=$((requests * ($2 > 1 ? 10 : 1)))
    redis-benchmark -p "$1" -t ping_mbulk -c "$clients" -P "$2" -n "$n" --csv | awk -F'"' 'NR > 1 { print $4 }'
}

median() { sort -n | awk '{ v[NR] = $1 } END { printf "%.0f\n", (v[int((NR + 1) / 2)] + v[int((NR + 2) / 2)]) / 2 }'; }

declare -A ports
server_start quire || exit 1
ports[quire]=$server_port
server_start quire1 --lanes 1 || exit 1
ports[quire1]=$server_port
redis_start || exit 1
ports[redis]=$server_port
names=(quire quire1 redis)
for depth in 1 16; do
    for ((round = 1; round <= rounds; round++)); do
        for name in "${names[@]}"; do
            figure=$(measure "${ports[$name]}" "$depth")
            [ -n "$figure" ] || { echo "redis-benchmark gave no figure for $name" >&2; exit 1; }
            echo "$figure" >>"$QUIRE_WORK/$name.$depth"
            $json || echo "depth $depth, round $round: $name $figure requests/s" >&2
        done
    done
done

list() { paste -sd, "$QUIRE_WORK/$1"; }
of() { median <"$QUIRE_WORK/$1"; }
ratio() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.2f", a / b }'; }
redis_version=$(redis-server --version | sed 's/.*v=\([0-9.]*\).*/\1/')
if $json; then
    printf '{"command":"PING_MBULK","clients":%d,"rounds":%d,"processors":%d,"redis_version":"%s","results":[' \
        "$clients" "$rounds" "$(nproc)" "$redis_version"
    comma=
    for depth in 1 16; do
        redis=$(of "redis.$depth")
        for name in quire quire1; do
            printf '%s{"pipeline":%d,"lanes":"%s","quire_median":%s,"redis_median":%s,"ratio":%s,' \
                "$comma" "$depth" "$([ $name = quire ] && echo auto || echo 1)" "$(of "$name.$depth")" \
                "$redis" "$(ratio "$(of "$name.$depth")" "$redis")"
            printf '"quire":[%s],"redis":[%s]}' "$(list "$name.$depth")" "$(list "redis.$depth")"
            comma=,
        done
    done
    printf ']}\n'
else
    printf '\nPING_MBULK, %d connections, median of %d rounds, redis-server %s\n' "$clients" "$rounds" "$redis_version"
    printf '%-9s %-8s %14s %14s %7s\n' pipeline lanes quire/s redis/s ratio
    for depth in 1 16; do
        redis=$(of "redis.$depth")
        for name in quire quire1; do
            printf '%-9d %-8s %14.0f %14.0f %7s\n' "$depth" "$([ $name = quire ] && echo auto || echo 1)" \
                "$(of "$name.$depth")" "$redis" "$(ratio "$(of "$name.$depth")" "$redis")"
        done
    done
fi
