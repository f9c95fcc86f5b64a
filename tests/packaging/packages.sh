#!/usr/bin/env bash
# packages.sh [WORK] - builds the Debian packages in a fresh root, by the lines of packaging/container/Containerfile;
# installs, uses, upgrades and purges them in another. Part of ./check --full.
#
# Needs root, debootstrap, lintian and the network (Debian's mirror, the one of this machine's apt). Five minutes with a full
# CCACHE_DIR, fifteen without, on two cores that are busy; a gigabyte of temporary files. WORK: a folder that is kept, with the packages in WORK/old and WORK/new, which
# are not built again when they are there. Where CCACHE_DIR is set, compilers go through ccache. QUIRE_BARE_ROOT names a folder
# that debootstrap has made, to take a copy of it.
#
# The packages are used in a network of their own, so that the services may have the ports of their settings.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
top=$(cd "$here/../.." && pwd)
container=$top/packaging/container

for need in debootstrap unshare lintian dpkg-parsechangelog ip; do
    if (($(id -u) != 0)) || ! command -v "$need" >/dev/null; then
        echo "skip - packages: needs root, and debootstrap, unshare, lintian, dpkg-dev, iproute2 ($need)"
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
echo 'APT::Install-Recommends "false";' >"$base/etc/apt/apt.conf.d/90recommends"

# ---- built by the Containerfile's first stage; and once more, as the next version -----------------------------------------
mapfile -t lines < <(run_lines packages)
expect "the Containerfile says how packages are built" test "${#lines[@]}" -ge 3 || finish
if ! compgen -G "$work/new/*.deb" >/dev/null; then
    say "packages are built"
    fresh "$base" "$build"
    mkdir -p "$build/src/quire" "$build/ccache" "$work/old" "$work/new"
    (cd "$top" && git ls-files -z --cached --others --exclude-standard | while IFS= read -rd '' file; do
        [[ -e $file ]] && printf '%s\0' "$file"
    done | tar -c --null -T - -f -) | tar -x --no-same-owner -C "$build/src/quire" -f -
    if [[ ${CCACHE_DIR:-} ]]; then
        in_root "$build" sh -c 'apt-get update && apt-get install -y ccache' >"$work/log" 2>&1
        EXTRA='CCACHE_DIR=/ccache CCACHE_BASEDIR=/src/quire CMAKE_C_COMPILER_LAUNCHER=ccache'
    fi
    for line in "${lines[@]}"; do
        expect "RUN $line" in_root "$build" sh -c "cd /src/quire && $line" || finish
    done
    mv "$build"/src/*.deb "$build"/src/*.changes "$build"/src/*.buildinfo "$work/old/"
    (
        cd "$build/src/quire" || exit 1
        printf 'quire (%s+next1) unstable; urgency=medium\n\n  * The next build.\n\n -- %s  %s\n\n' \
            "$(dpkg-parsechangelog -S Version)" "$(dpkg-parsechangelog -S Maintainer)" "$(date -R)" | cat - debian/changelog >changelog.new
        mv changelog.new debian/changelog
        rm debian/files # what the first build made, which dpkg-genchanges would look for again
    )
    expect "the next version is built" in_root "$build" sh -c 'cd /src/quire && dpkg-buildpackage -b -us -uc -nc' || finish
    mv "$build"/src/*.deb "$build"/src/*.changes "$build"/src/*.buildinfo "$work/new/"
    EXTRA=''
    rm -rf "$build"
fi
mapfile -t names < <(sed -n 's/^Package: //p' "$top/debian/control")
for name in "${names[@]}"; do
    expect "$name is built, in two versions" ls "$work"/{old,new}/"$name"_*.deb
done
if ((failed)); then finish; fi
expect "lintian: no error, no warning" lintian --allow-root --fail-on error,warning "$work"/old/*.changes

# ---- installed by the Containerfile's second stage ----------------------------------------------------------------------
say "installed as a container has them"
fresh "$base" "$root"
mkdir "$root/packages" && cp "$work"/old/*.deb "$root/packages/"
mapfile -t lines < <(run_lines quire)
expect "the Containerfile says how they are installed" test "${#lines[@]}" -ge 1
for line in "${lines[@]}"; do
    expect "RUN $line" in_root "$root" sh -c "$line"
done
expect "the image's programs run" in_root "$root" sh -c 'quire --version && quire-server --version && quire-gateway --version'
expect "no secret is in the image" test ! -e "$root/etc/quire/gateway.secret"
expect "and no systemd" test ! -e "$root/lib/systemd/systemd"
for name in quire.conf gateway.json; do cp "$container/$name" "$root/etc/quire/$name"; done
mkdir -p "$root/run/secrets" && openssl rand -hex 32 >"$root/run/secrets/gateway-secret"
expect "compose's settings of the gateway can be taken" in_root "$root" quire-gateway --check-settings --settings /etc/quire/gateway.json
expect "compose.yaml runs the image's commands" grep -qE 'command: quire-server /etc/quire/quire.conf$' "$container/compose.yaml"
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
expect "what a user has besides: redis-cli, curl, man" in_root "$root" sh -c \
    'apt-get update && apt-get install -y redis-tools curl ca-certificates man-db systemd-standalone-sysusers'
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
expect "settings of the server: its group reads them, others do not" test "$(owner /etc/quire/quire.conf)" = "640 root quire"
expect "settings of the gateway, too" test "$(owner /etc/quire/gateway.json)" = "640 root quire-gateway"
expect "the gateway's secret, too" test "$(owner /etc/quire/gateway.secret)" = "640 root quire-gateway"
expect "the server's data are its own" test "$(owner /var/lib/quire)" = "750 quire quire"
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
expect "the compiler goes again" in_root "$root" apt-get purge -y --autoremove gcc libc6-dev pkg-config

# ---- used: in a network of its own, by the units' command lines, as the units' users ---------------------------------------
echo 'import-dir /var/lib/quire/import' >>"$root/etc/quire/quire.conf" # a change that an upgrade must keep
session() { # PHASE
    # shellcheck disable=SC2016
    unshare --net --mount --pid --fork --kill-child bash "$here/session.sh" "$root" "$top" "$1" >"$work/session.log" 2>&1
    status=$?
    grep -E '^(ok|FAIL) - ' "$work/session.log"
    passed=$((passed + $(grep -c '^ok - ' "$work/session.log"))) failed=$((failed + $(grep -c '^FAIL - ' "$work/session.log")))
    if ((status != 0)); then tail -30 "$work/session.log" | sed 's/^/       /'; fi
    expect "the session ($1) came to its end" test "$status" = 0
}
say "used"
session first

# ---- upgraded -------------------------------------------------------------------------------------------------------------
say "upgraded"
rm "$root"/packages/* && cp "$work"/new/*.deb "$root/packages/"
secret=$(cat "$root/etc/quire/gateway.secret")
expect "apt upgrades them" in_root "$root" sh -c 'apt-get install -y /packages/*.deb'
expect "to the new version" in_root "$root" sh -c "dpkg-query -W -f '\${Version}\n' quire-server | grep -q next1"
expect "changed settings are kept" grep -q '^import-dir /var/lib/quire/import$' "$root/etc/quire/quire.conf"
expect "with their owner and mode" test "$(owner /etc/quire/quire.conf)" = "640 root quire"
expect "the secret is kept" test "$secret" = "$(cat "$root/etc/quire/gateway.secret")"
session upgraded

# ---- removed ----------------------------------------------------------------------------------------------------------------
say "removed and purged"
all="${names[*]}"
expect "apt removes them" in_root "$root" sh -c "apt-get remove -y $all"
expect "settings and data stay" ls "$root/etc/quire/quire.conf" "$root/var/lib/quire/quire-data"
touch "$root/var/lib/quire/keep-on-purge"
expect "a purge" in_root "$root" sh -c "dpkg --purge $all && apt-get autoremove -y --purge"
expect "data that one asked to keep are kept" ls "$root/var/lib/quire/quire-data"
expect "with their user" test "$(owner /var/lib/quire/quire-data)" = "750 quire quire"
expect "everything else is gone" bash -c "! ls -d '$root/etc/quire' '$root/var/lib/quire-gateway' 2>/dev/null | grep ."
expect "installed again, they are there" in_root "$root" sh -c 'apt-get install -y /packages/*.deb'
session again
expect "the module's data stay, in the engine's folder" ls "$root/var/lib/redis/quire"
rm -r "$root/var/lib/redis/quire"
rm "$root/var/lib/quire/keep-on-purge"
expect "a purge of what is installed" in_root "$root" sh -c "apt-get purge -y $all && apt-get autoremove -y --purge"
files >"$work/after"
expect "nothing is left" diff "$work/before" "$work/after"
expect "no user either" diff "$work/passwd" "$root/etc/passwd"
finish
