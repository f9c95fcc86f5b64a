#!/usr/bin/env bash
# site.sh BUILD_DIR - the documents become a site without a warning, whose pages need nothing from elsewhere and can be searched.
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
    echo "skip - the site: no Sphinx, MyST or furo (tools/setup-debian.sh full)"
    exit 0
fi
check "the site is made without a warning" "$here/../../tools/site" --out "$work/site" --strict
check "it begins at index.html" grep -q 'docs/index.html' "$work/site/index.html"
check "the search has its index beside the pages" grep -q '^Search.setIndex' "$work/site/searchindex.js"
from_elsewhere() { ! grep -rhoE '<(script|link|img)[^>]+(src|href)="(https?:)?//[^"]+"' "$work/site" --include='*.html' | grep .; }
check "no page loads anything from elsewhere" from_elsewhere
check "a page of the source is there" test -s "$work/site/io/README.html"

# the search, as a reader has it: from the disk, in a browser
chromium=
for path in "${CHROMIUM:-}" /usr/bin/chromium-headless-shell /usr/bin/chromium; do
    if [[ -x $path ]]; then
        chromium=$path
        break
    fi
done
if [[ ! $chromium ]]; then
    echo "skip - a search in the site: there is no Chromium (apt-get install chromium-headless-shell, or CHROMIUM=PATH)"
    exit $failed
fi
results_of() { # WORDS: the links that the page of the search shows, a line each
    timeout 120 "$chromium" --headless --no-sandbox --disable-gpu --user-data-dir="$work/browser" --virtual-time-budget=30000 \
        --dump-dom "file://$work/site/search.html?q=$1" 2>/dev/null | grep -oE '<ul class="search">.*</ul>' |
        grep -oE '<li><a href="[^"#]+' | sed 's/.*"//' | sort -u
}
results_of 'keep-on-purge' >"$work/found"
check "a search finds the page that has the word" grep -qx 'docs/install.html' "$work/found"
found_pages_are_there() { (cd "$work/site" && xargs ls <"$work/found"); }
check "and its results lead to pages" found_pages_are_there
results_of 'zxqvzxqv' >"$work/found"
check "what no page has is not found" test ! -s "$work/found"
exit $failed
