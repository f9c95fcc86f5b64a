#!/usr/bin/env bash
# lint.sh [BUILD_DIR] - rules that a machine can check: layout by clang-format, sizes, no leftovers, rooms by the includes
# of the sources; with a build also rooms by the symbols of its objects, and names of functions (tests/rooms.py).
set -uo pipefail
build=${1:+$(realpath "$1")}
cd "$(dirname "${BASH_SOURCE[0]}")/.."
failed=0

complain() {
    echo "FAIL - $1"
    [[ $# -lt 2 ]] || sed 's/^/       /' <<<"$2" | head -20
    failed=1
}

mapfile -t sources < <(git ls-files --cached --others --exclude-standard '*.c' '*.h' | while read -r f; do [[ -f $f ]] && echo "$f"; done)
((${#sources[@]} > 50)) || complain "only ${#sources[@]} sources found"

wrong=$(printf '%s\n' "${sources[@]}" | xargs -P "$(nproc)" -n 100 clang-format --dry-run 2>&1 | grep -oE '^[^:]+:[0-9]+' | sort -u -t: -k1,1 || true)
[[ -z $wrong ]] || complain "clang-format would change (clang-format -i FILE)" "$wrong"

found=$(grep -nE '\b(TODO|FIXME|XXX|HACK)\b' "${sources[@]}" || true)
[[ -z $found ]] || complain "left over" "$found"

found=$(grep -nE '[[:blank:]]+$' "${sources[@]}" README.md CHANGELOG.md docs/*.md || true)
[[ -z $found ]] || complain "blanks at line ends" "$found"

found=$(awk 'length($0) > 120 { print FILENAME ":" FNR ": " length($0) " columns" }' "${sources[@]}")
[[ -z $found ]] || complain "lines above 120 columns" "$found"

# what CRoaring 0.2 does with a failed allocation is to abort: sets are made by index/column/row_set.h alone
changes='add|add_many|add_bulk|add_checked|add_range|add_range_closed|remove|remove_many|remove_checked|remove_range'
changes+='|of|of_ptr|from_range|copy|overwrite|and|or|xor|andnot|flip|lazy_or|run_optimize|shrink_to_fit|deserialize'
found=$(printf '%s\n' "${sources[@]}" | grep -E '^(io|index|cache|server|tools|datasets)/' |
    xargs grep -nE "roaring_bitmap_($changes)(_inplace|_closed)?\(" || true)
[[ -z $found ]] || complain "a set of rows that CRoaring makes or changes: use row_view_roaring" "$found"

# every .c opens with what it is for
for f in "${sources[@]}"; do
    read -r first <"$f"
    [[ $first == "/*"* ]] || complain "$f does not begin with a comment"
done

# arrows between rooms point down (tests/rooms.txt): includes, and with a build calls; names lead home
found=$(python3 tests/rooms.py includes 2>&1)
[[ -z $found ]] || complain "rooms.txt and the includes of the sources differ" "$found"
if [[ $build ]]; then
    found=$(python3 tests/rooms.py symbols "$build" 2>&1)
    [[ -z $found ]] || complain "a room calls what it may not use" "$found"
    found=$(python3 tests/rooms.py names "$build" 2>&1)
    [[ -z $found ]] || complain "a function does not begin with the name of its module" "$found"
fi

# sizes: files, and folders
mapfile -t c_files < <(printf '%s\n' "${sources[@]}" | grep '\.c$')
found=$(wc -l "${c_files[@]}" | awk '$1 > 1000 && $2 != "total" { print $2 ": " $1 " lines" }')
[[ -z $found ]] || complain "a .c above 1,000 lines: part it" "$found"
found=$(printf '%s\n' "${c_files[@]}" | sed 's|/[^/]*$||' | sort | uniq -c | awk '$1 > 25 { print $2 ": " $1 " files" }')
[[ -z $found ]] || complain "a folder with more than 25 .c files: give it rooms" "$found"

# every room of the product says what it is for
found=$(printf '%s\n' "${c_files[@]}" | grep -vE '^(tests|docs)/' | sed 's|/[^/]*$||' | sort -u |
    while read -r folder; do [[ -f $folder/README.md ]] || echo "$folder"; done)
[[ -z $found ]] || complain "a room without a README.md" "$found"
found=$(python3 tests/rooms.py readmes)
[[ -z $found ]] || complain "a source that its room's README.md does not name" "$found"

# assertions: at least 8 in a thousand lines of io, index and cache
read -r asserted lines < <(printf '%s\n' "${sources[@]}" | grep -E '^(io|index|cache)/' | xargs cat |
    awk '{ asserted += gsub(/(^|[^a-z_])assert\(/, "") } END { print asserted + 0, NR }')
((asserted * 1000 >= lines * 8)) || complain "$asserted assertions in $lines lines of io, index and cache; at least 8 in 1,000"

# file names are unique, but for the READMEs
found=$(git ls-files --cached --others --exclude-standard '*.c' '*.h' | sed 's|.*/||' | sort | uniq -d)
[[ -z $found ]] || complain "two files of one name" "$found"

# packages: README.md names those that setup-debian.sh installs, and no others
found=$(diff <(sed -n '/^| package | for |/,/^$/s/^| \([^|]*\) |.*/\1/p' README.md | tail -n +2 | tr ',' '\n' | tr -d ' ' | sort -u) \
    <({ sed -n '/_packages=($/,/^)/p' tools/setup-debian.sh | sed 's/#.*//; /[()]/d'
        grep -o '|| wanted+=([a-z]*)' tools/setup-debian.sh | sed 's/.*(//; s/)//'; } | tr -s ' ' '\n' | grep . | sort -u))
[[ -z $found ]] || complain "README.md (<) and tools/setup-debian.sh (>) name other packages" "$found"

# every link of the documents leads somewhere, anchors included
found=$(python3 tests/links.py)
[[ -z $found ]] || complain "links that lead nowhere" "$found"

((failed == 0)) && echo "ok - ${#sources[@]} sources"
exit "$failed"
