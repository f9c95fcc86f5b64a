#!/usr/bin/env bash
# session.sh ROOT SOURCES first|upgraded|again - uses the installed packages of ROOT as people do. Started by packages.sh
# in a network, with mounts and processes of its own, which end with it.
#
# There is no systemd here: the services are started by the command lines of their units, as the units' users, in the
# units' folders. The stand-in for a model runs on the outside's Python.
set -uo pipefail
root=$1 sources=$2 phase=$3
# shellcheck source=/dev/null
. "$(dirname "${BASH_SOURCE[0]}")/inside.sh"

unit() { sed -n "s/^$2=//p" "$root/lib/systemd/system/$1.service"; }
# As the unit says: user, group, folder, command. Its settings are where the package put them.
service() { # UNIT
    local before
    before=$(unit "$1" ExecStartPre)
    if [[ $before ]]; then
        check "$1: ExecStartPre" 'can be taken' chroot --userspec="$(unit "$1" User):$(unit "$1" Group)" "$root" sh -c "$before"
    fi
    chroot --userspec="$(unit "$1" User):$(unit "$1" Group)" "$root" \
        env -i PATH=/usr/bin:/bin sh -c "umask $(unit "$1" UMask) && cd $(unit "$1" WorkingDirectory) && exec $(unit "$1" ExecStart)" &
}
cli() { inside redis-cli "$@"; }

/usr/bin/python3 "$sources/tests/e2e/stand_in_model.py" --port 8000 &
model=$!
service quire-server
server=$!
wait_for cli PING
service quire-gateway
gateway=$!
wait_for inside curl -sf http://127.0.0.1:8080/health
check "the server runs as its user" "^quire$" inside sh -c "stat -c %U /proc/$server"
check "it drives the disk by io_uring, or says why not" 'engine:(uring|threads)' cli INFO quire
ask() {
    inside curl -si http://127.0.0.1:8080/v1/chat/completions -H 'Content-Type: application/json' -H 'Authorization: Bearer somebody' \
        -d "{\"model\": \"stand-in\", \"messages\": [{\"role\": \"user\", \"content\": \"$1\"}]}"
}
if [[ $phase == first ]]; then
    check "VADD red" '^1$' cli VADD colours VALUES 3 1 0 0 red SETATTR '{"warm":true}'
    check "VADD blue" '^1$' cli VADD colours VALUES 3 0 0 1 blue
    check "SC.CREATE" '^OK$' cli SC.CREATE faq DIM 256 SCOPE tenant
    check "SC.CAT.SET" '^OK$' cli SC.CAT.SET faq codes MODE exact
    check "SC.PUT" '.' cli SC.PUT faq CAT codes SCOPE tenant acme TEXT 'error 17' VALUE 'the disk is full'
    check "a question is passed to the model" '^[Xx]-[Qq]uire-[Cc]ache: miss' ask 'what is a quire?'
    check "an index is built with quire" '"recall_at_k": (1|0\.9)' inside sh -c 'mkdir -p /var/lib/quire/import && cd /var/lib/quire/import &&
        quire gen --rows 2000 --dim 32 --clusters 20 --intrinsic 8 --seed 1 --out demo && quire build --base demo.fbin --out demo-index --metric l2 &&
        quire search --index demo-index --queries demo.query.fbin --truth demo.gt.bin --json && chown -R quire:quire .'
    check "and becomes a set" '2000|OK' cli VLOAD demo demo-index
fi
check "VSIM finds the nearest first" '^red ' sh -c "chroot '$root' redis-cli VSIM colours VALUES 3 0.9 0.2 0 WITHSCORES | tr '\n' ' '"
check "with a filter" '^red$' cli VSIM colours VALUES 3 0 0 1 FILTER .warm
check "SC.GET answers what was put" 'the disk is full' cli SC.GET faq CAT codes SCOPE tenant acme TEXT 'error 17'
check "the set from the index is there" '^2000$' cli VCARD demo
# after a start the model has to accept a credential once before answers from the cache are given for it
check "a credential is accepted" '^HTTP/1.1 200' ask "hello, $phase"
if [[ $phase == again ]]; then
    check "a new secret, after a purge: what others' credentials asked is not found" '^[Xx]-[Qq]uire-[Cc]ache: miss' ask 'what is a quire?'
else
    check "the same question again is answered from the cache" '^[Xx]-[Qq]uire-[Cc]ache: exact' ask 'what is a quire?'
fi

# the module: in Debian's redis-server, by the lines of docs/cluster.md
sed -n 's/^    \(loadmodule .*\|quire\.dir .*\)/\1/p' "$sources/docs/cluster.md" >"$root/tmp/module.conf"
check "docs/cluster.md says how the module is loaded" '^2$' sh -c "wc -l <'$root/tmp/module.conf'"
printf '%s\n' 'port 7777' 'dir /var/lib/redis' 'save ""' >>"$root/tmp/module.conf"
chroot --userspec=redis:redis "$root" env -i PATH=/usr/bin:/bin redis-server /tmp/module.conf >"$root/tmp/module.log" 2>&1 &
engine=$!
wait_for cli -p 7777 PING
check "it is loaded" 'name=quire,' cli -p 7777 INFO modules
check "by the redis-server of the distribution" 'redis_version:7' cli -p 7777 INFO server
if [[ $phase == first ]]; then
    check "module: VADD red" '^1$' cli -p 7777 VADD colours VALUES 3 1 0 0 red SETATTR '{"warm":true}'
    check "module: VADD blue" '^1$' cli -p 7777 VADD colours VALUES 3 0 0 1 blue
    check "module: SC.CREATE" '^OK$' cli -p 7777 SC.CREATE faq DIM 256
    check "module: SC.CAT.SET" '^OK$' cli -p 7777 SC.CAT.SET faq codes MODE exact
    check "module: SC.PUT" '.' cli -p 7777 SC.PUT faq CAT codes TEXT 'error 17' VALUE 'the disk is full'
fi
check "module: VSIM finds the nearest first" '^red blue ' sh -c "chroot '$root' redis-cli -p 7777 VSIM colours VALUES 3 0.9 0.2 0 | tr '\n' ' '"
check "module: with a filter" '^red$' cli -p 7777 VSIM colours VALUES 3 0 0 1 FILTER .warm
check "module: SC.GET answers what was put" 'the disk is full' cli -p 7777 SC.GET faq CAT codes TEXT 'error 17'
cli -p 7777 SHUTDOWN NOSAVE >/dev/null 2>&1
wait "$engine"
ended=$?
check "redis-server stops gracefully" '^0$' sh -c "echo $ended; tail -5 '$root/tmp/module.log'"

stopped "the gateway" "$gateway"
stopped "the server" "$server"
kill "$model"
check "quire verifies the data folder" '.' inside sh -c 'quire verify /var/lib/quire/quire-data && echo sound'
exit "$failed"
