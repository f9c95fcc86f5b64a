#!/usr/bin/env bash
# site.sh BUILD_DIR - the documents become a site without a warning, whose pages need nothing from elsewhere.
set -u
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/quire-site.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
failed=0
check() { # NAME COMMAND...
    local name=$1
    shift
    if "$@" >"$work/log" 2>&1; then echo "ok - $name"; else
        echo "FAIL - $name"
        head -20 "$work/log" | sed 's/^/    | /'
        failed=1
    fi
}
if ! /usr/bin/python3 -c 'import sphinx, myst_parser, furo' 2>/dev/null; then
    echo "skip - the site: no Sphinx, MyST or furo (tools/setup-debian.sh test)"
    exit 0
fi
check "the site is made without a warning" "$here/../../tools/site" --out "$work/site" --strict
check "it begins at index.html" grep -q 'docs/index.html' "$work/site/index.html"
check "the search has its index beside the pages" grep -q '^Search.setIndex' "$work/site/searchindex.js"
from_elsewhere() { ! grep -rhoE '<(script|link|img)[^>]+(src|href)="(https?:)?//[^"]+"' "$work/site" --include='*.html' | grep .; }
check "no page loads anything from elsewhere" from_elsewhere
check "a page of the source is there" test -s "$work/site/io/README.html"
exit $failed
