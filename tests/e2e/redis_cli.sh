#!/usr/bin/env bash
# redis_cli.sh - the server through redis-cli and redis-benchmark. Started by run.sh, with an index loaded as "words".
set -u
here=$(cd "$(dirname "$0")" && pwd)
. "$here/lib.sh"
cli() { redis-cli -p "$QUIRE_PORT" "$@"; }
piped() { printf "$1" | redis-cli -p "$QUIRE_PORT" "${@:2}"; }
raw() { # REQUEST BYTES: the reply as bytes, over a bare socket
    exec 9<>"/dev/tcp/127.0.0.1/$QUIRE_PORT" || return 1
    printf "$1" >&9
    timeout 5 cat <&9
    exec 9>&-
}

matches "PING" '^PONG$' cli PING
matches "PING with a message" '^"hello"$' cli --no-raw PING hello
matches "inline requests, quotes included" $'^\\+PONG\r\n\\$3\r\na b\r\n\\+OK\r' raw 'PING\r\nECHO "a b"\r\nQUIT\r\n'
matches "requests on standard input" $'^PONG\nhi$' piped 'PING\nECHO hi\n'
matches "--no-raw shows types" '^\(integer\) 4000$' cli --no-raw VCARD words
matches "VDIM" '^64$' cli VDIM words
matches "VSIM finds the element itself first" $'^apple-0\n' cli VSIM words ELE apple-0 COUNT 3
matches "VSIM COUNT" '^3$' bash -c "redis-cli -p $QUIRE_PORT VSIM words ELE apple-0 COUNT 3 | wc -l"
matches "VSIM WITHSCORES in RESP2 is a flat array" '^1\) "apple-0"[[:space:]]+2\) "1"[[:space:]]+3\) ' \
    cli --no-raw VSIM words ELE apple-0 WITHSCORES COUNT 2
matches "VSIM WITHSCORES in RESP3 is a map of doubles" '^1# "apple-0" => \(double\) 1[[:space:]]+2# ' \
    cli -3 --no-raw VSIM words ELE apple-0 WITHSCORES COUNT 2
matches "VSIM EXPLAIN" 'plan' cli VSIM words ELE apple-0 EXPLAIN
matches "VSIM on a key that is not there is empty" '^\(empty array\)$' cli --no-raw VSIM nothing ELE a
matches "VISMEMBER in RESP2" '^\(integer\) 1$' cli --no-raw VISMEMBER words apple-0
matches "VISMEMBER in RESP3" '^\(false\)$' cli -3 --no-raw VISMEMBER words nobody
matches "VEMB has a number per dimension" '^64$' bash -c "redis-cli -p $QUIRE_PORT VEMB words apple-0 | wc -l"
matches "VEMB of a missing element is nil" '^\(nil\)$' cli --no-raw VEMB words nobody
matches "VLINKS WITHSCORES" '^[a-z]+-[0-9]+'$'\n''[01]' cli VLINKS words apple-0 WITHSCORES
matches "VRANDMEMBER" '^[a-z]+-[0-9]+$' cli VRANDMEMBER words
matches "VRANDMEMBER without repetition" '^500$' \
    bash -c "redis-cli -p $QUIRE_PORT VRANDMEMBER words 500 | sort -u | wc -l"
matches "VINFO" 'vector-dim' cli -3 VINFO words
matches "TYPE" '^vectorset$' cli TYPE words
matches "EXISTS" '^1$' cli EXISTS words nothing
matches "VLOAD does not leave import-dir" '^(ERR|\(error\))' cli VLOAD stolen ../names
matches "VLOAD of the same index again replaces its elements" $'^OK\n4000$' piped 'VLOAD words words\nVCARD words\n'
matches "VLOAD of a key of another type is refused" $'^OK\nBUSYKEY .*\n1$' piped 'SET s x\nVLOAD s words\nDEL s\n'
matches "VLOAD of another key, DEL" $'^OK\n2\n1\n1$' piped 'VLOAD more words\nDBSIZE\nDEL more\nDBSIZE\n'
matches "an unknown command is an error" '^ERR unknown command' cli NOSUCHCOMMAND
matches "a wrong number of arguments is an error" "^ERR wrong number of arguments for 'vcard' command" cli VCARD
fails "redis-cli -e tells errors by its status" 1 'dimension mismatch' \
    redis-cli -e -p "$QUIRE_PORT" VSIM words VALUES 2 1 2
matches "COMMAND COUNT" '^[0-9]+$' cli COMMAND COUNT
matches "COMMAND DOCS" 'nearest' cli COMMAND DOCS vsim
matches "COMMAND INFO" 'readonly' cli COMMAND INFO vsim
matches "CONFIG GET" $'^databases\n1$' cli CONFIG GET databases
matches "CLIENT HELP" 'SETNAME|setname' cli CLIENT HELP
matches "INFO has its sections" '# Server.*redis_version:[0-9].*# Keyspace.*db0:keys=1' cli INFO
matches "INFO commandstats" 'cmdstat_vsim:calls=[0-9]+' cli INFO commandstats
matches "INFO lines end in CR LF" $'tcp_port:[0-9]+\r\n' cli INFO server
matches "DBSIZE" '^1$' cli DBSIZE

matches "redis-cli --bigkeys knows the number of vector sets alone" '1 vectorsets with 0 \?' cli --bigkeys
matches "redis-cli --memkeys knows their memory" '1 vectorsets with [1-9][0-9]* bytes' cli --memkeys

matches "redis-cli --pipe, inline requests" 'errors: 0, replies: 3' piped 'PING\r\nECHO hi\r\nPING\r\n' --pipe
awk 'BEGIN { for (i = 0; i < 20000; i++) printf "*2\r\n$4\r\nECHO\r\n$5\r\n%05d\r\n", i }' >"$QUIRE_WORK/pipe.in"
matches "redis-cli --pipe, 20000 requests" 'errors: 0, replies: 20000' \
    bash -c "redis-cli -p $QUIRE_PORT --pipe <'$QUIRE_WORK/pipe.in'"
matches "redis-cli -r repeats" $'^PONG\nPONG\nPONG$' cli -r 3 PING
matches "redis-cli --latency samples" '^[0-9]+ ' timeout 10 redis-cli -p "$QUIRE_PORT" --raw --latency -i 1

python3 "$here/redis_cli_terminal.py" || failures=$((failures + 1))

benchmark() { # NAME ARGUMENTS...: figures come, and neither warnings nor errors
    local name=$1 seen status
    shift
    seen=$(timeout 120 redis-benchmark -p "$QUIRE_PORT" -q "$@" 2>&1 </dev/null)
    status=$?
    if [ $status -eq 0 ] && [[ $seen == *"requests per second"* ]] &&
        ! grep -qiE 'warning|error|unknown' <<<"$seen"; then
        ok "$name: $(tr '\r' '\n' <<<"$seen" | grep 'requests per second' | tail -n 1)"
    else
        fail "$name" "status $status: $seen"
    fi
}
benchmark "redis-benchmark -t ping" -t ping -n 20000 -c 20
benchmark "redis-benchmark -P 16 --threads 2" -t ping_mbulk -n 50000 -c 20 -P 16 --threads 2
benchmark "redis-benchmark of VSIM" -n 3000 -c 20 VSIM words ELE apple-0 COUNT 10
benchmark "redis-benchmark -3 of VSIM WITHSCORES" -3 -n 3000 -c 20 -P 4 VSIM words ELE apple-0 WITHSCORES
[ $failures -eq 0 ]
