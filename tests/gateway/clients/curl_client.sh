#!/usr/bin/env bash
# curl_client.sh - curl as people use it: -N, Expect, chunked uploads, HTTP/1.0, HEAD, heads that must be refused.
#
# BASE_URL, MODEL_URL and TARGET as in node/client_checks.js.
set -u
: "${BASE_URL:?}" "${MODEL_URL:?}" "${TARGET:?}"
failures=0
check() { # NAME SEEN PATTERN
    if [[ $2 =~ $3 ]]; then
        echo "ok - curl, $TARGET: $1"
    else
        failures=$((failures + 1))
        echo "FAIL - curl, $TARGET: $1"
        head -n 8 <<<"$2" | cut -c1-300 | sed 's/^/    | /'
    fi
}
ask() { # TEXT [MORE]: the body of a question
    printf '{"model":"stand-in","messages":[{"role":"user","content":"%s (curl, %s)"}]%s}' "$1" "$TARGET" "${2:-}"
}
post() { # BODY OPTIONS...
    local body=$1
    shift
    timeout 60 curl -sS -H 'Content-Type: application/json' -H 'Authorization: Bearer key-of-curl' -d "$body" \
        "$@" "$BASE_URL/chat/completions" 2>&1
}

check "chat" "$(post "$(ask hello)" -i)" 'HTTP/1.1 200.*answer 1 to: hello'
check "a stream with -N" "$(post "$(ask 'tell me' ',"stream":true')" -N)" 'data: \{.*data: \[DONE\]'
check "Expect: 100-continue" "$(post "$(ask expect)" -v -H 'Expect: 100-continue' --expect100-timeout 20)" \
    'HTTP/1.1 100 .*HTTP/1.1 200 .*answer 1 to: expect'
long=$(printf 'x%.0s' $(seq 1 3000))
check "a large body" "$(ask "$long" | timeout 60 curl -sS -H 'Content-Type: application/json' --data-binary @- \
    "$BASE_URL/chat/completions")" 'answer 1 to: xxxx'
check "a chunked upload" "$(ask chunked | timeout 60 curl -sS -H 'Content-Type: application/json' \
    -H 'Transfer-Encoding: chunked' --data-binary @- "$BASE_URL/chat/completions")" 'answer 1 to: chunked'
check "a compressed answer" "$(timeout 60 curl -sS --compressed -H 'Content-Type: application/json' \
    -d "$(ask zipped | sed 's/"stand-in"/"stand-in:gzip"/')" "$BASE_URL/chat/completions")" 'answer 1 to: zipped'
check "models" "$(timeout 60 curl -sS "$BASE_URL/models")" '"id": "stand-in"'
check "an error of the model" "$(post "$(ask 'fail with 429')" -i)" 'HTTP/1.1 429.*as asked'
check "retry-after is passed on" "$(timeout 60 curl -sSi -H 'X-Stand-In: status=429,retry-after-ms=1500' \
    -H 'Content-Type: application/json' -d "$(ask 'wait a little')" "$BASE_URL/chat/completions")" \
    '[Rr]etry-[Aa]fter-[Mm]s: 1500.*[Rr]etry-[Aa]fter: 2'
check "two requests on one connection" "$(timeout 60 curl -sS -v "$BASE_URL/models" "$BASE_URL/models" 2>&1)" 'Re-using existing connection'
if [ "$TARGET" != direct ]; then
    check "HTTP/1.0" "$(post "$(ask 'an old one')" --http1.0 -i)" '200.*answer 1 to: an old one'
    check "a name with a blank before its colon" "$(printf 'POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length : 2\r\n\r\n{}' |
        timeout 60 curl -sS --output - "telnet://${BASE_URL#http://}" 2>&1 | head -c 300; true)" '(HTTP/1.1 400|^$)'
fi
if [ "$TARGET" = cache ]; then
    post "$(ask 'asked twice')" >/dev/null
    for _ in $(seq 200); do # it is put after it was given; asked so, the model is not
        post "$(ask 'asked twice')" -i -H 'Cache-Control: only-if-cached' | grep -q '^X-Quire-Cache: exact' && break
        sleep 0.1
    done
    second=$(post "$(ask 'asked twice')" -i)
    check "the second is exact" "$second" 'X-Quire-Cache: exact'
    check "with its age and a reason" "$second" 'X-Quire-Reason: '
    check "and its id" "$second" 'X-Quire-Id: [0-9a-f]{16}'
    check "in another layout, too" "$(post "$(ask 'asked twice' | sed 's/,"messages"/ , "n":1, "messages"/')" -i)" 'X-Quire-Cache: exact'
    check "no-cache asks the model" "$(post "$(ask 'asked twice')" -i -H 'Cache-Control: no-cache')" 'answer 2 to'
    check "another key is another tenant" "$(timeout 60 curl -sSi -H 'Content-Type: application/json' \
        -H 'Authorization: Bearer another' -d "$(ask 'asked twice')" "$BASE_URL/chat/completions")" 'X-Quire-Cache: miss'
    check "only-if-cached" "$(post "$(ask 'never asked')" -i -H 'Cache-Control: only-if-cached')" 'HTTP/1.1 504'
fi
exit $((failures > 0))
