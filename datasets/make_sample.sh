#!/usr/bin/env bash
# make_sample.sh - the quickstart's sample: glosses of WordNet 3.0 as text, and their vectors.
#
# Takes ROWS synsets, and 300 more as queries, from Debian's wordnet-base package, fits the lexical embedder on the rows
# and embeds both. The choice is a function of SEED alone (a linear congruential generator in awk, since rand() differs
# between awks), so that every machine has the same text. Files in OUTDIR:
#   sample.tsv    key<TAB>text, one row each      sample.query.tsv   the same for the held-out queries
#   sample.txt    the texts                       sample.query.txt
#   sample.keys   the keys                        sample.query.keys
#   sample.fbin   the vectors                     sample.query.fbin
#   sample.embed  the embedder's model
# Line i of each of the first three belongs to row i of the vectors. WordNet's licence asks that its notice goes with
# copies of the text: /usr/share/doc/wordnet-base/copyright.
set -euo pipefail

usage() {
    cat <<'USAGE'
usage: make_sample.sh OUTDIR [ROWS]       ROWS: 100 to 117000, default 20000

Environment: QUIRE    the quire program       (default: build/release/quire beside this script's folder)
             WORDNET  folder with data.noun   (default: /usr/share/wordnet, of Debian's wordnet-base)
             QUERIES  held-out texts          (default: 300)
             DIM      dimensions              (default: 256, fewer for a small sample)
             SEED     of the choice           (default: 1)
Example: datasets/make_sample.sh /tmp/sample 20000
USAGE
}

fail() {
    echo "make_sample.sh: $*" >&2
    exit 1
}

# whole_number VALUE LEAST MOST
whole_number() {
    [[ $1 =~ ^(0|[1-9][0-9]{0,8})$ ]] || return 1
    (($1 >= $2 && $1 <= $3))
}

# Synsets of one data file as key<TAB>text. Format: man 5wn wndb. "02084071 05 n 03 dog 0 domestic_dog 0 ... | gloss"
synsets() { # synsets FILE LETTER
    LC_ALL=C awk -v letter="$2" '
        /^  / { next } # the licence
        {
            bar = index($0, " | ")
            if (bar == 0) next
            gloss = substr($0, bar + 3)
            gsub(/[ \t]+/, " ", gloss); sub(/ $/, "", gloss); sub(/^ /, "", gloss)
            n = 16 * (index("0123456789abcdef", substr($4, 1, 1)) - 1) + index("0123456789abcdef", substr($4, 2, 1)) - 1
            words = ""
            for (i = 0; i < n; i++) {
                word = $(5 + 2 * i)
                sub(/\((a|p|ip)\)$/, "", word) # where an adjective may stand
                if (i == 0) key = word "#" letter "#" $1
                gsub(/_/, " ", word)
                words = words (i ? ", " : "") word
            }
            print key "\t" words ": " gloss
        }' "$1"
}

# COUNT lines of standard input, chosen and shuffled: the first QUERIES to one file, the rest to another.
choose() { # choose ROWS QUERIES SEED BASE_FILE QUERY_FILE
    LC_ALL=C awk -v rows="$1" -v queries="$2" -v seed="$3" -v base="$4" -v query="$5" '
        { line[n++] = $0 }
        function draw(below) { # Lehmer generator: 48271 * state stays below 2^53
            state = (state * 48271) % 2147483647
            return int(state / 2147483647 * below)
        }
        END {
            if (n < rows + queries) {
                print "make_sample.sh: WordNet has " n " glosses and " rows " + " queries " were asked for" > "/dev/stderr"
                exit 1
            }
            state = seed % 2147483646 + 1
            for (i = 0; i < 20; i++) draw(2)
            for (i = 0; i < rows + queries; i++) { # Fisher and Yates, as far as needed
                j = i + draw(n - i)
                pick = line[j]; line[j] = line[i]; line[i] = pick
                print pick > (i < queries ? query : base)
            }
        }'
}

# Rows of a .tsv that got a vector: all of them, but for a text with nothing in it that the model knows.
keep_keys() { # keep_keys NAME
    awk -F'\t' 'NR == FNR { kept[$1]; next } $1 in kept' "$1.keys" "$1.tsv" >"$1.tsv.partial"
    mv "$1.tsv.partial" "$1.tsv"
    cut -f2 "$1.tsv" >"$1.txt"
}

main() {
    [[ ${1:-} == --help || ${1:-} == -h ]] && { usage; exit 0; }
    [[ $# -ge 1 && $# -le 2 ]] || { usage >&2; exit 2; }
    local out=$1 rows=${2:-20000} queries=${QUERIES:-300} seed=${SEED:-1} here quire wordnet dim
    here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
    quire=${QUIRE:-$here/../build/release/quire}
    wordnet=${WORDNET:-/usr/share/wordnet}
    whole_number "$rows" 100 117000 || fail "ROWS is '$rows'; give 100 to 117000"
    whole_number "$queries" 1 10000 || fail "QUERIES is '$queries'; give 1 to 10000"
    whole_number "$seed" 0 999999999 || fail "SEED is '$seed'; give 0 to 999999999"
    dim=${DIM:-$((rows / 4 < 256 ? rows / 4 : 256))}
    [[ -x $quire ]] || fail "there is no program $quire; build it (cmake --preset release && cmake --build --preset release) or set QUIRE"
    local part
    for part in noun verb adj adv; do
        [[ -r $wordnet/data.$part ]] || fail "$wordnet/data.$part is missing; apt-get install wordnet-base, or set WORDNET"
    done

    mkdir -p "$out"
    {
        synsets "$wordnet/data.noun" n
        synsets "$wordnet/data.verb" v
        synsets "$wordnet/data.adj" a
        synsets "$wordnet/data.adv" r
    } | choose "$rows" "$queries" "$seed" "$out/sample.tsv" "$out/sample.query.tsv"
    "$quire" embed fit --text "$out/sample.tsv" --column 2 --out "$out/sample.embed" --dim "$dim" --seed "$seed"
    local name
    for name in sample sample.query; do
        "$quire" embed apply --model "$out/sample.embed" --text "$out/$name.tsv" --column 2 --skip-empty \
            --out "$out/$name.fbin" --keys-out "$out/$name.keys"
        keep_keys "$out/$name"
    done
    echo "made $out/sample.fbin: $(wc -l <"$out/sample.keys") rows and $(wc -l <"$out/sample.query.keys") queries of $dim dimensions" >&2
}

main "$@"
