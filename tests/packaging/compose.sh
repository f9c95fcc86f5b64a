#!/usr/bin/env bash
# compose.sh ROOT SOURCES - what packaging/container/compose.yaml runs, in ROOT, where the image's packages are installed: each
# service by its command, user, folder and settings of that file, then the file's own request, twice. Started by packages.sh
# in a network, with mounts and processes of its own, which end with it.
#
# One root and one network stand for the three containers: `server` is 127.0.0.1 in it. The stand-in for a model runs on the
# outside's Python, curl on the outside, too.
set -uo pipefail
root=$1 sources=$2
container=$sources/packaging/container
# shellcheck source=/dev/null
. "$(dirname "${BASH_SOURCE[0]}")/inside.sh"

of() { # SERVICE KEY: a line of it in compose.yaml
    awk -v service="$1:" -v key="$2:" '/^  [a-z]/ { here = $1 == service } here && $1 == key { sub(/^ *[a-z_]+: */, ""); print }' \
        "$container/compose.yaml"
}
image() { sed -n "s/^$1 //p" "$container/Containerfile" | tail -1; }
run() { # USER FOLDER COMMAND: takes the place of the (sub)shell, so that a signal to it is one to the program
    exec chroot --userspec="$1:$1" "$root" env -i PATH=/usr/bin:/bin sh -c "cd $2 && exec $3"
}

echo '127.0.0.1 localhost server' >"$root/etc/hosts"
for name in quire.conf gateway.json; do install -m644 "$container/$name" "$root/etc/quire/$name"; done
install -d "$root/run/secrets" && openssl rand -hex 32 >"$root/run/secrets/gateway-secret" && chmod 644 "$root/run/secrets/gateway-secret"
check "compose: settings of the gateway can be taken" 'can be taken' run "$(of gateway user)" / "$(of gateway command) --check-settings"

read -ra model_arguments < <(of model command | sed 's/^python3 //')
/usr/bin/python3 "${model_arguments[@]/#\/stand-in/$sources/tests/e2e}" &
model=$!
run "$(image USER)" "$(image WORKDIR)" "$(of server command)" &
server=$!
run "$(of gateway user)" "$(of gateway working_dir)" "$(of gateway command)" &
gateway=$!
wait_for curl -sf http://127.0.0.1:8000/v1/models
wait_for curl -sf http://127.0.0.1:8080/health

# the request in the words of the file's first lines
request=$(sed -n -e '/^#  *curl /,/[^\\]$/ s/^# *//p' "$container/compose.yaml")
check "compose.yaml says how to ask" 'v1/chat/completions' echo "$request"
first=$(bash -c "$request")
check "compose: the first time the model is asked" '^[Xx]-[Qq]uire-[Cc]ache: miss' echo "$first"
check "compose: and answers" 'answer 1 to: what is a quire' echo "$first"
check "compose: the second time the answer is of the cache" '^[Xx]-[Qq]uire-[Cc]ache: exact' bash -c "$request"
stopped "compose: the gateway" "$gateway"
stopped "compose: the server" "$server"
kill "$model"
check "compose: the server's data are where its volume is" '.' ls "$root/var/lib/quire/quire-data"
exit "$failed"
