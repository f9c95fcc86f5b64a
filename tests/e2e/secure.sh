#!/usr/bin/env bash
# secure.sh - users and TLS as people set them up: certificates by the openssl command as in docs/operations.md, users in
# a file, then redis-cli, redis-py and hiredis as a user who may only search.
#
# Started by run.sh; has a server of its own, which speaks TLS only. hiredis comes from Debian without its TLS part, so
# hiredis_tls.c carries its bytes by OpenSSL; its plain connection is tested on a second server.
set -u
. "$(dirname "$0")/lib.sh"
trap end_servers EXIT
here=$(cd "$(dirname "$0")" && pwd)
tls=$QUIRE_WORK/tls
mkdir -p "$tls"

make_certificates() {
    cd "$tls" || return 1
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj "/CN=test authority" \
        -keyout ca.key -out ca.crt || return 1
    for name in server client; do
        openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj "/CN=$name" \
            -addext "subjectAltName=DNS:localhost,IP:127.0.0.1" -keyout $name.key -out $name.csr &&
            openssl x509 -req -in $name.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -copy_extensions copy \
                -out $name.crt || return 1
    done
}
made=$(make_certificates 2>&1) || { fail "openssl makes certificates" "$made"; exit 1; }
digest=$(printf %s search-word | sha256sum | cut -d' ' -f1)
cat >"$tls/users.acl" <<END
user default off
user admin on >admin-word ~* &* +@all
user search on #$digest %R~words* +@read +@connection +acl|whoami -@dangerous
END

# A port that is free: with tls-port 0 would mean none.
free_port() {
    /usr/bin/python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}
settings=(--tls-cert-file "$tls/server.crt" --tls-key-file "$tls/server.key" --tls-ca-cert-file "$tls/ca.crt"
    --load words "$QUIRE_WORK/indexes/words" --aclfile "$tls/users.acl")
server_start secure --dir "$tls/data" --port 0 --tls-port "$(free_port)" "${settings[@]}" || exit 1
secure_pid=$server_pid
cli=(timeout 20 redis-cli --no-auth-warning -p "$server_port" --tls --cacert "$tls/ca.crt")
mine=(--cert "$tls/client.crt" --key "$tls/client.key")

matches "redis-cli: a user over TLS" '^search$' "${cli[@]}" "${mine[@]}" --user search --pass search-word ACL WHOAMI
matches "redis-cli: a search over TLS" 'apple-0' \
    "${cli[@]}" "${mine[@]}" --user search --pass search-word VSIM words ELE apple-0 COUNT 3
matches "redis-cli: what the user may not" "NOPERM User search has no permissions to run the 'del' command" \
    "${cli[@]}" "${mine[@]}" --user search --pass search-word DEL words
matches "redis-cli: a key the user may not read" 'NOPERM No permissions to access a key' \
    "${cli[@]}" "${mine[@]}" --user search --pass search-word VCARD other
matches "redis-cli: a wrong password" 'WRONGPASS' "${cli[@]}" "${mine[@]}" --user search --pass wrong PING
matches "redis-cli: nobody" 'NOAUTH' "${cli[@]}" "${mine[@]}" PING
fails "redis-cli: without a certificate" 1 'Error|closed|refused' "${cli[@]}" --user search --pass search-word PING
fails "redis-cli: without TLS" 1 'Error|closed' timeout 20 redis-cli -p "$server_port" PING
matches "redis-benchmark over TLS" 'requests per second' timeout 60 redis-benchmark -p "$server_port" --tls \
    --cacert "$tls/ca.crt" "${mine[@]}" --user admin -a admin-word -t ping_mbulk -n 20000 -P 8 -q

export QUIRE_PORT=$server_port QUIRE_TLS=$tls
if /usr/bin/python3 "$here/secure.py"; then :; else failures=$((failures + 1)); fi

# ---- hiredis ----
read -ra flags <<<"$(pkg-config --cflags --libs hiredis openssl 2>&1)"
read -ra sanitize <<<"${QUIRE_SANITIZE_FLAGS:-}"
built=$(cc -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -g "${sanitize[@]}" -o "$tls/hiredis_tls" "$here/hiredis_tls.c" \
    "${flags[@]}" 2>&1)
if [ -x "$tls/hiredis_tls" ]; then
    "$tls/hiredis_tls" tls "$server_port" "$tls" || failures=$((failures + 1))
    server_start users --dir "$tls/other-data" --user default off --user search on "#$digest" '%R~words*' +@read +@connection \
        --load words "$QUIRE_WORK/indexes/words" &&
        { "$tls/hiredis_tls" plain "$server_port" "$tls" || failures=$((failures + 1)); }
else
    fail "a program with hiredis and OpenSSL is built" "$built"
fi

if server_stop "$secure_pid" 2>/dev/null; then
    ok "the server that speaks TLS ends with status 0"
else
    fail "the server that speaks TLS ends with status 0" "$(tail -n 15 "$QUIRE_WORK/secure.log")"
fi
[ "$failures" -eq 0 ]
