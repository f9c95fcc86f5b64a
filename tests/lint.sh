#!/usr/bin/env bash
# lint.sh - rules that a machine can check: layout by clang-format, names, sizes, no leftovers, no path of one machine.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
failed=0

complain() {
    echo "FAIL - $1"
    [[ $# -lt 2 ]] || sed 's/^/       /' <<<"$2" | head -20
    failed=1
}

mapfile -t sources < <(git ls-files --cached --others --exclude-standard '*.c' '*.h' | while read -r f; do [[ -f $f ]] && echo "$f"; done)
((${#sources[@]} > 50)) || complain "only ${#sources[@]} sources found"

wrong=$(clang-format --dry-run "${sources[@]}" 2>&1 | grep -oE '^[^:]+:[0-9]+' | sort -u -t: -k1,1 || true)
[[ -z $wrong ]] || complain "clang-format would change (clang-format -i FILE)" "$wrong"

found=$(grep -nE '\b(TODO|FIXME|XXX|HACK)\b' "${sources[@]}" || true)
[[ -z $found ]] || complain "left over" "$found"

found=$(grep -nE '[[:blank:]]+$' "${sources[@]}" README.md CHANGELOG.md docs/*.md || true)
[[ -z $found ]] || complain "blanks at line ends" "$found"

found=$(awk 'length($0) > 120 { print FILENAME ":" FNR ": " length($0) " columns" }' "${sources[@]}")
[[ -z $found ]] || complain "lines above 120 columns" "$found"

# every .c opens with what it is for
for f in "${sources[@]}"; do
    read -r first <"$f"
    [[ $first == "/*"* ]] || complain "$f does not begin with a comment"
done

# arrows point down: io <- index <- cache <- server
found=$(grep -rnE --include='*.[ch]' '#include "(index|cache|server|datasets)/' io
    grep -rnE --include='*.[ch]' '#include "(cache|server|datasets)/' index
    grep -rnE --include='*.[ch]' '#include "(server|datasets)/' cache
    grep -rnE --include='*.[ch]' '#include "(io|index|cache|server|datasets)/' include
    grep -rnE --include='*.[ch]' '#include "datasets/' server)
[[ -z $found ]] || complain "a layer includes one above it" "$found"

# file names are unique, but for the READMEs
found=$(git ls-files --cached --others --exclude-standard '*.c' '*.h' | xargs -n1 basename | sort | uniq -d)
[[ -z $found ]] || complain "two files of one name" "$found"

# every link of the documents leads somewhere
while IFS=: read -r file link; do
    target=${link#*](}
    target=${target%)}
    target=${target%%#*}
    [[ -z $target || $target == http* || -e $(dirname "$file")/$target ]] || complain "$file: link to $target"
done < <(git ls-files --cached --others --exclude-standard '*.md' | xargs grep -oE '\]\([^)]+\)' /dev/null)

((failed == 0)) && echo "ok - ${#sources[@]} sources"
exit "$failed"
