#!/usr/bin/env bash
# quick.sh BUILD - what packages hold besides programs, checked on an install into a folder: manual pages and completion
# know every verb, option and setting (as --help and the sources' tables say them, which are read here by other means),
# debian/ agrees with the build, licences and the binary interface are as written down.
#
#     tests/packaging/quick.sh build/release
#     tests/packaging/quick.sh build/release --record-abi      after a change that raised QUIRE_SOVERSION, or before
#                                                              the first release of that number
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
top=$(cd "$here/../.." && pwd)
build=$(cd "${1:?usage: quick.sh BUILD [--record-abi]}" && pwd)
if [[ ${2:-} == --record-abi ]]; then
    exec /usr/bin/python3 "$here/layout.py" "$top/include/quire.h" >"$top/packaging/abi.txt"
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# shellcheck source=/dev/null
. "$here/../expect.sh"
nothing() { ! grep .; } # nothing is printed

expect "cmake --install into a folder" env DESTDIR="$work/root" cmake --install "$build" --prefix /usr
share=$work/root/usr/share
if [[ ! -d $share/man ]]; then
    echo "skip - manual pages and completion: this build left them out (no python3)"
    exit $((failed > 0))
fi

# ---- what there is, from --help as people see it and from the sources -----------------------------------------------
verbs() { "$build/quire" --help | sed -nE 's/^  ([a-z][a-z-]*) .*/\1/p'; }
pages() { for verb in $(verbs); do if [[ $verb == embed ]]; then printf 'embed fit\nembed apply\n'; else echo "$verb"; fi; done; }
# shellcheck disable=SC2086
options_of() { "$build/quire" $1 --help | sed -nE 's/^  (--[a-z-]+).*/\1/p'; }
server_settings() { sed -nE 's/^(STRING|LIST|NUMBER|INTEGER|BYTES|SHARE|OUTPUT|BOOL|CHOICE)\([a-z_0-9]+, "([a-z-]+)".*/\2/p' "$top/server/process/config.def"; }
gateway_settings() { sed -nE 's/^SETTING_[A-Z]+\([a-z_0-9]+, "([a-z-]+)".*/\1/p' "$top/gateway/settings/settings.def"; }
mapfile -t all_pages < <(pages)
expect "there are verbs, options and settings to look for" test "${#all_pages[@]}" -ge 15 -a "$(options_of search | wc -l)" -ge 25 \
    -a "$(server_settings | wc -l)" -ge 60 -a "$(gateway_settings | wc -l)" -ge 80

# ---- manual pages -----------------------------------------------------------------------------------------------------
# words NAMES... are set in bold in the page, as roff has them
missing_in() { # PAGE, names from standard input
    local name
    while read -r name; do grep -qF -- "\\fB${name//-/\\-}\\fR" "$1" || echo "$1: $name"; done
}
every_verb_has_a_page() { for page in "${all_pages[@]}"; do [[ -s $share/man/man1/quire-${page// /-}.1 ]] || echo "$page"; done | nothing; }
every_option_is_there() { for page in "${all_pages[@]}"; do options_of "$page" | missing_in "$share/man/man1/quire-${page// /-}.1"; done | nothing; }
expect "a manual page for every verb" every_verb_has_a_page
expect "and for every program and file of settings" ls "$share"/man/man1/quire{,-server,-gateway}.1 "$share"/man/man5/quire{.conf,-gateway.json}.5
expect "every option of every verb is in its page" every_option_is_there
expect "every verb is in quire(1)" bash -c "$(declare -f missing_in nothing verbs); build='$build'; verbs | grep -v '^embed$' | missing_in '$share/man/man1/quire.1' | nothing"
server_settings >"$work/server"
gateway_settings >"$work/gateway"
expect "every setting of the server is in quire.conf(5)" bash -c "$(declare -f missing_in nothing); missing_in '$share/man/man5/quire.conf.5' <'$work/server' | nothing"
expect "and as an option in quire-server(1)" bash -c "$(declare -f missing_in nothing); sed 's/^/--/' '$work/server' | missing_in '$share/man/man1/quire-server.1' | nothing"
expect "every setting of the gateway is in quire-gateway.json(5)" bash -c "$(declare -f missing_in nothing); missing_in '$share/man/man5/quire-gateway.json.5' <'$work/gateway' | nothing"
if command -v man >/dev/null && command -v groff >/dev/null; then
    no_warnings() { for page in "$share"/man/man?/*; do LC_ALL=C.UTF-8 man --warnings -E UTF-8 -l -Tutf8 -Z "$page" 2>&1 >/dev/null; done | nothing; }
    expect "groff has nothing to say about the pages" no_warnings
    expect "a page reads as --help does" bash -c "MANWIDTH=200 man -l '$share/man/man1/quire-search.1' | grep -qF -- '--recall R'"
else
    echo "skip - groff's warnings: there is no man with groff (man-db, groff-base)"
fi

# ---- completion -------------------------------------------------------------------------------------------------------
# what bash would offer for a line whose last word is the last argument
offered() { # PROGRAM WORDS...
    bash -c 'source "$1"; shift; compopt() { :; }; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); "_${1//-/_}"; printf "%s\n" "${COMPREPLY[@]}"' \
        bash "$share/bash-completion/completions/$1" "$@" | sed 's/ $//' | sort -u
}
bash_knows_options() {
    local page
    for page in "${all_pages[@]}"; do
        # shellcheck disable=SC2086
        diff <(options_of "$page" | sort -u) <(offered quire $page --) || echo "$page"
    done
}
same() { diff <(sort -u "$1") <(sort -u "$2"); }
expect "bash: every verb" bash -c "diff <(printf '%s\n' $(verbs | tr '\n' ' ') | sort) <(printf '%s\n' $(offered quire "" | grep -v '^--' | tr '\n' ' '))"
bash_knows_options >"$work/differences" 2>&1
expect "bash: every option of every verb, and no other" nothing <"$work/differences"
offered quire-server -- | sed 's/^--//' | grep -vxE 'help|version' >"$work/offered"
expect "bash: every setting of the server" same "$work/server" "$work/offered"
offered quire-gateway -- | sed 's/^--//' | grep -vxE 'help|version|settings|upstream|set|open|check-settings|print-settings' >"$work/offered"
expect "bash: every setting of the gateway" same "$work/gateway" "$work/offered"
expect "bash: words that an option takes" test "$(offered quire build --metric '' | tr '\n' ' ')" = "cosine ip l2 "
expect "bash: words that a setting takes" test "$(offered quire-server --appendfsync '' | tr '\n' ' ')" = "always everysec no "
: >"$work/file.fbin"
expect "bash: files where an option takes one" test "$(offered quire build --base "$work/file")" = "$work/file.fbin"
if command -v zsh >/dev/null; then
    # zsh's own functions are stood in for: they print what they are given
    zsh_offered() { # WORDS...
        zsh -fc '_arguments() { print -l -- "$@" }; _describe() { print -l -- "${(@P)2}" }; _files() { :; }
                 file=$1; shift; words=("$@"); CURRENT=$#; source $file' zsh "$share/zsh/site-functions/_$1" "$@" |
            sed -nE "s/^\*?(--[a-z-]+).*/\1/p; s/^([a-z][a-z-]*):.*/\1/p" | sort -u
    }
    zsh_knows_options() {
        local page
        for page in "${all_pages[@]}"; do
            # shellcheck disable=SC2086
            diff <(options_of "$page" | sort -u) <(zsh_offered quire $page --) || echo "$page"
        done
    }
    zsh_knows_options >"$work/differences" 2>&1
    expect "zsh: every option of every verb, and no other" nothing <"$work/differences"
    expect "zsh: every verb" bash -c "diff <(printf '%s\n' $(verbs | tr '\n' ' ') | sort) <(printf '%s\n' $(zsh_offered quire "" | grep -v '^--' | tr '\n' ' '))"
    zsh_offered quire-server -- | sed 's/^--//' | grep -vxE 'help|version' >"$work/offered"
    expect "zsh: every setting of the server" same "$work/server" "$work/offered"
else
    echo "skip - zsh's completion: there is no zsh"
fi

# ---- debian/ and the build ----------------------------------------------------------------------------------------------
soname=$(readelf -d "$build/libquire.so" | sed -nE 's/.*SONAME.*\[libquire\.so\.([0-9]+)\].*/\1/p')
expect "the package of the library is named after its SONAME" grep -qx "Package: libquire$soname" "$top/debian/control"
expect "its files in debian/ too" ls "$top/debian/libquire$soname.install" "$top/debian/libquire$soname.symbols"
version=$("$build/quire" --version | sed 's/^quire //')
expect "debian/changelog has the programs' version" grep -qE "^quire \(${version//./\\.}[+~)]" <(head -1 "$top/debian/changelog")
# every installed file is in a package: as dh_missing has it, but at once
unclaimed() {
    (cd "$work/root" && find . ! -type d | sed 's|^\./||') | while read -r file; do
        file=${file/#usr\/lib\/systemd/lib\/systemd}
        file=${file/zsh\/site-functions/zsh\/vendor-completions}
        case $file in usr/lib/libquire.* | usr/lib/pkgconfig/* | usr/lib/quire/libquire-*) file=usr/lib/ARCH/${file#usr/lib/} ;; esac
        while read -r pattern; do
            # shellcheck disable=SC2053
            [[ $file == $pattern || $file == $pattern/* ]] && continue 2
        done < <(cat "$top"/debian/*.install)
        echo "$file"
    done | nothing
}
expect "every file of an install is in a package" unclaimed
symbols() { sed -nE 's/^ (quire_[a-z_0-9]+)@.*/\1/p' "$top/debian/libquire$soname.symbols" | sort; }
gone() { comm -13 <(nm -D --defined-only "$build/libquire.so" | awk '{ print $3 }' | sort) <(symbols) | nothing; }
expect "no function has left the library (else raise QUIRE_SOVERSION, docs/decisions/soname.md)" gone
if [[ $(uname -m) == x86_64 ]]; then
    # a struct that carries its size may grow; what the library fills may not
    layouts() {
        join <(sed 's/^struct //' "$top/packaging/abi.txt" | sort) \
            <(/usr/bin/python3 "$here/layout.py" "$top/include/quire.h" | sed 's/^struct //' | sort) -a 1 |
            awk '{ grows = $2 ~ /\+$/ && $3 ~ /\+$/ } $2 != $3 && !(grows && $3 + 0 >= $2 + 0) { print "struct " $1 ": " $2 " -> " $3 }' | nothing
    }
    expect "structs have the sizes of packaging/abi.txt (else raise QUIRE_SOVERSION and run quick.sh BUILD --record-abi; before the first release --record-abi alone)" layouts
fi

# ---- licences, users, settings --------------------------------------------------------------------------------------------
unnamed() {
    for program in quire quire-server quire-gateway libquire.so; do
        readelf -d "$build/$program" | sed -nE 's/.*NEEDED.*\[(.*)\].*/\1/p'
    done | sort -u | grep -vE '^(ld-linux.*|lib[a-z]*san\.so.*|libgcc_s\.so\.1)$' | while read -r library; do
        grep -qF "$library" "$top/docs/licences.md" || echo "$library"
    done | nothing
}
# a sanitizer's objects name libraries that they do not need
[ -n "${QUIRE_SANITIZE_FLAGS:-}" ] || expect "docs/licences.md names every library that is linked" unnamed
links_of() { # links of an installed page that lead nowhere
    local link
    grep -oE '\]\([a-zA-Z0-9_./-]+' "$1" | sed 's/^](//' | sort -u | while read -r link; do
        [[ $link == http* || -e ${1%/*}/$link ]] || echo "${1#"$work/root"}: $link"
    done
}
dangling() { find "$share/doc/quire" -name '*.md' | while read -r page; do links_of "$page"; done | nothing; }
expect "every link of the installed pages leads to an installed file" dangling
unit_user() { sed -n 's/^User=//p' "$work/root/usr/lib/systemd/system/quire-$1.service"; }
for name in server gateway; do
    expect "the $name's user is made by sysusers.d and owns what tmpfiles.d makes" bash -c \
        "grep -qE '^u $(unit_user $name) ' '$work/root/usr/lib/sysusers.d/quire-$name.conf' &&
         grep -qE '^d /var/lib/$(unit_user $name) 0750 $(unit_user $name) $(unit_user $name) ' '$work/root/usr/lib/tmpfiles.d/quire-$name.conf'"
    if command -v systemd-analyze >/dev/null; then
        expect "the $name's unit leaves little open (systemd-analyze security: below 2.0)" systemd-analyze security --offline=yes \
            --threshold=20 "$work/root/usr/lib/systemd/system/quire-$name.service"
    fi
done
expect "the packages' settings of the gateway can be taken" bash -c \
    "sed 's|/etc/quire/gateway.secret|$work/secret|' '$top/debian/gateway.json' >'$work/gateway.json' && '$build/quire-gateway' --check-settings --settings '$work/gateway.json'"
echo "$passed passed, $failed failed"
((failed == 0))
