#!/usr/bin/env bash
# recipe.sh - the client code of docs/recipe-llm.md, in Python and in JavaScript, before a stand-in model server.
#
# Started by run.sh: QUIRE_PORT is the server, NODE_PATH has node-redis. Starts the stand-in and both proxies.
set -u
here=$(cd "$(dirname "$0")" && pwd)
. "$here/lib.sh"
trap end_servers EXIT
recipe=$here/../../docs/recipe
export QUIRE_PORT

# started NAME COMMAND...: runs it in the background; the line that it prints is its port
started() {
    local name=$1
    shift
    rm -f "$QUIRE_WORK/$name.port"
    "$@" >"$QUIRE_WORK/$name.port" 2>"$QUIRE_WORK/$name.log" </dev/null &
    server_pids+=("$!")
    if ! wait_until 20 test -s "$QUIRE_WORK/$name.port"; then
        fail "$name starts" "$(cat "$QUIRE_WORK/$name.log")"
        exit 1
    fi
    ok "$name starts"
    port=$(head -n 1 "$QUIRE_WORK/$name.port")
}

# without a model or without a server: one line that says which, and no traceback
nobody=http://127.0.0.1:9
one_line() { # NAME PATTERN COMMAND...
    local name=$1 pattern=$2 seen status
    shift 2
    seen=$(timeout 20 "$@" 2>&1 </dev/null)
    status=$?
    if [ $status -eq 1 ] && [ "$(wc -l <<<"$seen")" -eq 1 ] && [[ $seen =~ $pattern ]]; then
        ok "$name"
    else
        fail "$name" "status $status: $seen"
    fi
}
one_line "proxy.py without a model" "^proxy.py: no vector from $nobody" /usr/bin/python3 "$recipe/proxy.py" \
    --upstream $nobody --quire "127.0.0.1:$QUIRE_PORT" --listen 0
one_line "proxy.js without a model" "^proxy.js: no vector from $nobody" node "$recipe/proxy.js" \
    --upstream $nobody --quire "127.0.0.1:$QUIRE_PORT" --listen 0

started model /usr/bin/python3 "$here/stand_in_model.py"
export MODEL=http://127.0.0.1:$port
common=(--upstream "$MODEL" --quire "127.0.0.1:$QUIRE_PORT" --encoder stand-in@1 --listen 0)
started proxy.py /usr/bin/python3 "$recipe/proxy.py" "${common[@]}" --cache recipe:proxy-py
proxies=proxy.py=http://127.0.0.1:$port
started proxy.js node "$recipe/proxy.js" "${common[@]}" --cache recipe:proxy-js
export PROXIES="$proxies proxy.js=http://127.0.0.1:$port"

/usr/bin/python3 "$here/recipe.py" || failures=$((failures + 1))
node "$here/node/recipe.js" || failures=$((failures + 1))
exit $((failures > 0))
