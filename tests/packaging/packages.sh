#!/usr/bin/env bash
# packages.sh [WORK] - builds the Debian packages of this tree and of an earlier commit in a fresh root, by the lines of
# packaging/container/Containerfile; installs, uses, upgrades and purges them in others. Part of ./check --full.
#
# Needs root, debootstrap, lintian and the network (Debian's mirror, the one of this machine's apt). Ten minutes with a full
# CCACHE_DIR, half an hour without, on two cores that are busy; a gigabyte of temporary files. WORK: a folder that is kept, with
# the packages in WORK/old and WORK/new, which are not built again when they are there. Where CCACHE_DIR is set, compilers go
# through ccache. QUIRE_BARE_ROOT names a folder that debootstrap has made, to take a copy of it. QUIRE_EARLIER names the commit
# that is upgraded from (HEAD~50), one whose files this tree reads; without its history this tree stands for it.
#
# The packages are used in a network of their own, so that the services may have the ports of their settings.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
top=$(cd "$here/../.." && pwd)
container=$top/packaging/container

for need in debootstrap unshare lintian dpkg-parsechangelog ip curl; do
    if (($(id -u) != 0)) || ! command -v "$need" >/dev/null; then
        echo "skip - packages: needs root, and debootstrap, unshare, lintian, dpkg-dev, iproute2, curl ($need)"
        exit 0
    fi
done

work=${1:-$(mktemp -d)}
mkdir -p "$work" && work=$(cd "$work" && pwd) && chmod 755 "$work" || exit 1
base=$work/base build=$work/build root=$work/root
umount_all() { findmnt -rno TARGET | grep "^$work/" | sort -r | xargs -r -n1 umount -l 2>/dev/null; }
leave() {
    umount_all
    if [[ $# == 1 ]]; then rm -rf "$base" "$build" "$root"; else rm -rf "$work"; fi
}
# shellcheck disable=SC2064
trap "leave ${1:+kept}" EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

say() { echo "== $* ($SECONDS s)"; }
# shellcheck source=/dev/null
. "$here/../expect.sh"
finish() {
    echo "$passed passed, $failed failed"
    exit $((failed > 0))
}
# In a root, with processes and mounts of their own, which are gone when the command ends. $IN has more to mount.
in_root() { # ROOT COMMAND...
    local where=$1
    shift
    # shellcheck disable=SC2016
    unshare --mount --pid --fork --kill-child bash -c '
        mount --make-rprivate / && mount -t proc proc "$1/proc" || exit 1
        if [[ ${CCACHE_DIR:-} && -d $1/ccache ]]; then mount --bind "$CCACHE_DIR" "$1/ccache" || exit 1; fi
        where=$1; shift; exec chroot "$where" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
            DEBIAN_FRONTEND=noninteractive $EXTRA "$@"' bash "$where" "$@"
}
export EXTRA=''
# A script that uses what is installed in $root, in a network of its own; its lines of checks count.
in_network() { # NAME SCRIPT ARGUMENT...
    local name=$1 script=$2 status
    shift 2
    unshare --net --mount --pid --fork --kill-child bash "$script" "$root" "$top" "$@" >"$work/used.log" 2>&1
    status=$?
    grep -E '^(ok|FAIL) - ' "$work/used.log"
    passed=$((passed + $(grep -c '^ok - ' "$work/used.log"))) failed=$((failed + $(grep -c '^FAIL - ' "$work/used.log")))
    if ((status != 0)); then tail -60 "$work/used.log" | sed 's/^/       /'; fi
    expect "$name came to its end" test "$status" = 0
}
fresh() { # FROM TO
    rm -rf "$2" && cp -a "$1" "$2"
}
# The RUN lines of a stage of the Containerfile, one a line: continuation lines joined.
run_lines() { # STAGE
    sed -e '/^#/d' -e ':more; /\\$/ { N; s/\\\n[[:space:]]*//; b more }' "$container/Containerfile" |
        awk -v stage="$1" '/^FROM / { here = $NF == stage } here && /^RUN / { sub(/^RUN /, ""); print }'
}

# ---- a bare Debian ---------------------------------------------------------------------------------------------------------
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
mirror=$(apt-get indextargets --format '$(SITE) $(RELEASE)' 'Created-By: Packages' | awk -v suite="$suite" '$2 == suite { print $1; exit }')
say "debootstrap $suite from $mirror"
if [[ ${QUIRE_BARE_ROOT:-} ]]; then
    expect "a bare Debian: a copy of $QUIRE_BARE_ROOT" cp -a "$QUIRE_BARE_ROOT" "$base" || finish
else
    expect "a bare Debian $suite" debootstrap --variant=minbase "$suite" "$base" "$mirror" || finish
fi
cp /etc/resolv.conf "$base/etc/resolv.conf"
printf '#!/bin/sh\nexit 101\n' >"$base/usr/sbin/policy-rc.d" && chmod 755 "$base/usr/sbin/policy-rc.d"
# nothing comes or stays that nobody asked for: binutils would, which python3 suggests
printf 'APT::%s "false";\n' Install-Recommends AutoRemove::SuggestsImportant >"$base/etc/apt/apt.conf.d/90recommends"

# ---- built by the Containerfile's first stage: this tree as the next version, and an earlier commit -----------------------
mapfile -t lines < <(run_lines packages)
expect "the Containerfile says how packages are built" test "${#lines[@]}" -ge 3 || finish
this_tree() {
    (cd "$top" && git ls-files -z --cached --others --exclude-standard | while IFS= read -rd '' file; do
        [[ -e $file ]] && printf '%s\0' "$file"
    done | tar -c --null -T - -f -)
}
earlier=$(git -C "$top" rev-parse -q --verify "${QUIRE_EARLIER:-HEAD~50}^{commit}")
earlier_tree() { if [[ $earlier ]]; then git -C "$top" archive "$earlier"; else this_tree; fi; }
next_version() {
    printf 'quire (%s+next1) unstable; urgency=medium\n\n  * The next build.\n\n -- %s  %s\n\n' \
        "$(dpkg-parsechangelog -S Version)" "$(dpkg-parsechangelog -S Maintainer)" "$(date -R)" | cat - debian/changelog >changelog.new
    mv changelog.new debian/changelog
}
# A tree from standard input, built where the lines of the Containerfile want it.
build_packages() { # TO
    local line source=$build/src/quire
    rm -rf "$build/src" && mkdir -p "$source" "$work/$1" && tar -x --no-same-owner -C "$source" -f - || return 1
    if [[ $1 == new ]]; then (cd "$source" && next_version) || return 1; fi
    for line in "${lines[@]}"; do
        expect "$1: RUN $line" in_root "$build" sh -c "cd /src/quire && $line" || return 1
    done
    mv "$build"/src/*.deb "$build"/src/*.changes "$build"/src/*.buildinfo "$work/$1/"
}
if ! compgen -G "$work/new/*.deb" >/dev/null; then
    say "packages are built"
    fresh "$base" "$build" && mkdir "$build/ccache"
    if [[ ${CCACHE_DIR:-} ]]; then
        in_root "$build" sh -c 'apt-get update && apt-get install -y ccache' >"$work/log" 2>&1
        EXTRA='CCACHE_DIR=/ccache CCACHE_BASEDIR=/src/quire CMAKE_C_COMPILER_LAUNCHER=ccache'
    fi
    build_packages new < <(this_tree) || finish
    say "${earlier:+commit $earlier is built, to upgrade from it}"
    [[ $earlier ]] || echo "skip - an upgrade from an earlier commit: its history is not there; this tree stands for it"
    build_packages old < <(earlier_tree) || finish
    EXTRA=''
    rm -rf "$build"
fi
mapfile -t names < <(sed -n 's/^Package: //p' "$top/debian/control")
for name in "${names[@]}"; do
    expect "$name is built, in two versions" ls "$work"/{old,new}/"$name"_*.deb
done
if ((failed)); then finish; fi
expect "lintian: no error, no warning" lintian --allow-root --fail-on error,warning "$work"/new/*.changes

# ---- installed by the Containerfile's second stage ----------------------------------------------------------------------
say "installed as a container has them"
fresh "$base" "$root"
mkdir "$root/packages" && cp "$work"/new/*.deb "$root/packages/"
mapfile -t lines < <(run_lines quire)
expect "the Containerfile says how they are installed" test "${#lines[@]}" -ge 1
for line in "${lines[@]}"; do
    expect "RUN $line" in_root "$root" sh -c "$line"
done
expect "the image's programs run" in_root "$root" sh -c 'quire --version && quire-server --version && quire-gateway --version'
expect "no secret is in the image" test ! -e "$root/etc/quire/gateway.secret"
expect "and no systemd" test ! -e "$root/lib/systemd/systemd"
in_network compose "$here/compose.sh"
if command -v docker >/dev/null && docker compose version >/dev/null 2>&1; then
    touch "$work/gateway.secret"
    expect "compose.yaml can be read" docker compose -f "$container/compose.yaml" config -q
else
    echo "skip - docker compose config: there is no docker compose"
fi

# ---- installed with apt from a folder, in a bare Debian -----------------------------------------------------------------
say "installed with apt"
fresh "$base" "$root"
mkdir "$root/packages" && cp "$work"/old/*.deb "$root/packages/"
expect "what a user has besides: redis-cli, curl, man, and what quickstart asks for" in_root "$root" sh -c \
    'apt-get update && apt-get install -y redis-tools curl ca-certificates man-db systemd-standalone-sysusers python3 wordnet-base libopenblas0-pthread'
# what is there but for logs, caches, the package manager's own, and the folder of redis-tools that redis-server's purge takes
files() {
    (cd "$root" && find . -xdev \( -path ./proc -o -path ./packages -o -path ./var/cache -o -path ./var/lib/apt -o -path ./var/lib/dpkg -o \
        -path ./var/log -o -path ./tmp -o -name '__pycache__' -o -name 'passwd-' -o -name 'group-' -o -name 'shadow-' -o -name 'gshadow-' -o \
        -path ./var/lib/systemd/deb-systemd-helper-enabled -o -path ./etc/.pwd.lock -o \
        -path ./etc/redis \) -prune -o -print | sort)
}
files >"$work/before"
cp "$root/etc/passwd" "$work/passwd"
expect "apt installs them from a folder" in_root "$root" sh -c 'apt-get install -y /packages/*.deb'
owner() { in_root "$root" stat -c '%a %U %G' "$1"; }
owners() { # WHEN
    expect "$1: settings of the server: its group reads them, others do not" test "$(owner /etc/quire/quire.conf)" = "640 root quire"
    expect "$1: settings of the gateway, too" test "$(owner /etc/quire/gateway.json)" = "640 root quire-gateway"
    expect "$1: the gateway's secret, too" test "$(owner /etc/quire/gateway.secret)" = "640 root quire-gateway"
    expect "$1: the server's data are its own" test "$(owner /var/lib/quire)" = "750 quire quire"
}
owners "installed"

# ---- used: in a network of its own, by the units' command lines, as the units' users ---------------------------------------
echo 'import-dir /var/lib/quire/import' >>"$root/etc/quire/quire.conf" # a change that an upgrade must keep
say "used"
in_network "the session (first)" "$here/session.sh" first

# ---- upgraded -------------------------------------------------------------------------------------------------------------
say "upgraded"
rm "$root"/packages/* && cp "$work"/new/*.deb "$root/packages/"
secret=$(cat "$root/etc/quire/gateway.secret")
# dpkg would ask about the changed settings if the new version has others: the answer is "keep mine"
expect "apt upgrades them" in_root "$root" sh -c 'apt-get install -y -o Dpkg::Options::=--force-confold /packages/*.deb'
expect "to the new version" in_root "$root" sh -c "dpkg-query -W -f '\${Version}\n' quire-server | grep -q next1"
expect "changed settings are kept" grep -q '^import-dir /var/lib/quire/import$' "$root/etc/quire/quire.conf"
expect "the secret is kept" test "$secret" = "$(cat "$root/etc/quire/gateway.secret")"
owners "upgraded"
for page in quire quire-build quire-embed-fit quire-server quire-gateway quire.conf quire-gateway.json; do
    expect "man $page" in_root "$root" sh -c "man $page | grep -q ."
done
# shellcheck disable=SC2016
expect "man of every verb" in_root "$root" sh -c '
    verbs=$(quire --help | sed -nE "s/^  ([a-z][a-z-]*) .*/\1/p" | sed "s/^embed$/embed-fit embed-apply/")
    test "$(echo $verbs | wc -w)" -ge 15 || exit 1
    for verb in $verbs; do man "quire-$verb" | grep -q . || exit 1; done'
expect "pages, completion, units are there" in_root "$root" ls /usr/share/doc/quire/README.md /usr/share/doc/quire/docs/operations.md \
    /usr/share/bash-completion/completions/quire /usr/share/zsh/vendor-completions/_quire /lib/systemd/system/quire-server.service \
    /lib/systemd/system/quire-gateway.service /etc/logrotate.d/quire-server /usr/lib/tmpfiles.d/quire-server.conf
for name in "${names[@]}"; do expect "$name has its copyright" test -s "$root/usr/share/doc/$name/copyright"; done
expect "a program is compiled with libquire-dev" in_root "$root" sh -c 'apt-get install -y gcc libc6-dev pkg-config'
cp "$top/tests/library/example.c" "$root/root/example.c"
expect "and runs with the packaged library" in_root "$root" sh -c \
    'cd /root && cc -D_DEFAULT_SOURCE example.c -o example $(pkg-config --cflags --libs quire) -lm && ldd example | grep -q libquire.so.1 && ./example /root/example-index && rm -r example*'
in_network "the session (upgraded)" "$here/session.sh" upgraded
in_network "quickstart" "$here/conversation.sh"

# ---- removed ----------------------------------------------------------------------------------------------------------------
say "removed and purged"
all="${names[*]}"
expect "apt removes them" in_root "$root" sh -c "apt-get remove -y $all"
expect "settings and data stay" ls "$root/etc/quire/quire.conf" "$root/var/lib/quire/quire-data"
touch "$root/var/lib/quire/keep-on-purge"
expect "a purge" in_root "$root" sh -c "dpkg --purge $all && apt-get autoremove -y --purge"
expect "the compiler goes again" in_root "$root" apt-get purge -y --autoremove gcc libc6-dev pkg-config
expect "data that one asked to keep are kept" ls "$root/var/lib/quire/quire-data"
expect "with their user" test "$(owner /var/lib/quire/quire-data)" = "750 quire quire"
expect "everything else is gone" bash -c "! ls -d '$root/etc/quire' '$root/var/lib/quire-gateway' 2>/dev/null | grep ."
expect "installed again, they are there" in_root "$root" sh -c 'apt-get install -y /packages/*.deb'
owners "installed again"
in_network "the session (again)" "$here/session.sh" again
expect "the module's data stay, in the engine's folder" ls "$root/var/lib/redis/quire"
rm -r "$root/var/lib/redis/quire"
rm "$root/var/lib/quire/keep-on-purge"
expect "a purge of what is installed" in_root "$root" sh -c "apt-get purge -y $all && apt-get autoremove -y --purge"
files >"$work/after"
expect "nothing is left" diff "$work/before" "$work/after"
expect "no user either" diff "$work/passwd" "$root/etc/passwd"
finish
