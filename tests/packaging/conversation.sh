#!/usr/bin/env bash
# conversation.sh ROOT SOURCES - the conversation of ./quickstart with the installed programs of ROOT, and nothing of a build:
# the script, the maker of its sample and the stand-in for a model are copied there. Started by packages.sh in a network, with
# mounts and processes of its own.
set -uo pipefail
root=$1 sources=$2
# shellcheck source=/dev/null
. "$(dirname "${BASH_SOURCE[0]}")/inside.sh"

said=$root/tmp/conversation
for file in quickstart datasets/make_sample.sh tests/e2e/stand_in_{model,answers}.py; do
    install -D "$sources/$file" "$root/tmp/quickstart/$file"
done
install -d -m777 "$root/tmp/quickstart/out"
chroot --userspec=nobody:nogroup "$root" env -i PATH=/usr/bin:/bin LC_ALL=C.UTF-8 \
    /tmp/quickstart/quickstart --build /usr/bin --rows 2000 --out /tmp/quickstart/out >"$said" 2>&1
check "quickstart: it comes to its end" '^0$' sh -c "echo $?; tail -20 '$said'"
after() { # LINE LINES: what stands below a line of it, the last such line
    grep -A"$2" -F -- "$1" "$said" | tail -n "$2"
}
check "quickstart: an index of text, searched" '^recall@10 +(1|0\.9)' cat "$said"
check "quickstart: it becomes a set" '^VCARD glosses +-> 2000$' cat "$said"
check "quickstart: a question in words" '^  0\.[0-9]+  .*#[nvar]#.*: .*' after '? a river that flows into the sea' 3
check "quickstart: a live set, as it was then" 'travel: .*buy a ticket' after '? a journey by train' 1
check "quickstart: and as it is now" 'travel: .*stay at home' after '? reading a book' 1
check "quickstart: the cache, the same words" '-> exact .*12 euros' grep -F '? the price of a ticket for the train ' "$said"
check "quickstart: other words" '-> hit \(0\.[0-9]+\): a ticket is 12 euros' grep -F '? price of the train ticket ' "$said"
check "quickstart: another number" '-> miss \(number' grep -F '? price of two train tickets ' "$said"
check "quickstart: the gateway, the same words" 'X-Quire-Cache: exact' after '? the price of a ticket for the train' 1
check "quickstart: other words" 'X-Quire-Cache: hit .*similarity 0\.' after '? price of the train ticket' 1
check "quickstart: another number" 'X-Quire-Cache: miss \(a guard kept back' after '? price of two train tickets' 1
check "quickstart: the server stops gracefully" '^server stopped cleanly' cat "$said"
rm -r "$root/tmp/quickstart" "$said"
exit "$failed"
