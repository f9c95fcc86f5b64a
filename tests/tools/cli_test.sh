#!/usr/bin/env bash
# cli_test.sh BUILD_DIR - the program `quire` from end to end, on small generated data.
#
# Every verb runs for real; results are read from --json, mistakes are judged by exit code and sentence, and after each
# failure nothing may be left behind. One line per check; the exit code is 0 when all passed.
set -u

build=$(cd "${1:?usage: cli_test.sh BUILD_DIR}" && pwd) || exit 2
source_dir=$(cd "$(dirname "$0")/../.." && pwd)
quire=$build/quire
[ -x "$quire" ] || { echo "there is no $quire: build it first"; exit 2; }
work=$(mktemp -d "${TMPDIR:-/tmp}/quire-cli.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
passed=0 failed=0 skipped=0

say() { # ok NAME: counts and prints one check
    if [ "$1" = 0 ]; then
        passed=$((passed + 1))
        echo "ok - $2"
    else
        failed=$((failed + 1))
        echo "FAIL - $2"
        sed 's/^/       | /' out err 2>/dev/null | head -12
    fi
}

check() { # NAME COMMAND...: passes when the command does
    local name=$1
    shift
    "$@" >/dev/null 2>&1
    say $? "$name"
}

# expect NAME CODE PATTERN ARGUMENTS...: runs quire; its exit code must be CODE, and standard output or error match PATTERN.
expect() {
    local name=$1 code=$2 pattern=$3 got
    shift 3
    "$quire" "$@" >out 2>err </dev/null
    got=$?
    [ "$got" = "$code" ] && grep -q -- "$pattern" out err
    say $? "$name (exit code $got)"
}

# One Python for all: it is asked by three texts, each with a zero byte behind, and answers with a line of one number.
coproc judge { exec /usr/bin/python3 -c '
import json, sys, traceback
def take():
    text = b""
    while not text.endswith(b"\0"):
        byte = sys.stdin.buffer.read(1)
        if not byte:
            sys.exit()
        text += byte
    return text[:-1].decode()
while True:
    verb, path, what, code = take(), take(), take(), 1
    try:
        if verb == "json":
            with open(path) as file:
                code = not eval("(" + what + ")", {"json": json, "j": json.load(file)})
        else:
            with open(path, "r+b") as file:
                file.seek(int(what)); byte = file.read(1)[0]
                file.seek(int(what)); file.write(bytes([byte ^ 0xff]))
            code = 0
    except Exception:
        with open("err", "a") as file:
            traceback.print_exc(file=file)
    print(int(code), flush=True)'; }

ask() { # VERB FILE TEXT: what the Python says of it
    local answer=''
    printf '%s\0%s\0%s\0' "$@" >&"${judge[1]}" && read -r answer <&"${judge[0]}" && [ "$answer" = 0 ]
}

# json NAME FILE EXPRESSION: the Python expression over the object j holds.
json() {
    ask json "$2" "$3" 2>>err
    say $? "$1"
}

absent() { # NAME PATH...: none of these is there
    local name=$1 path
    shift
    for path in "$@"; do
        [ -e "$path" ] && { say 1 "$name: $path"; return; }
    done
    say 0 "$name"
}

flip() { # FILE OFFSET: inverts one byte
    ask flip "$1" "$2"
}

# ---- help -----------------------------------------------------------------------------------------------------------
expect "no verb is wrong use" 2 "usage: quire VERB"
expect "an unknown verb is named" 2 'no verb "sing"' sing
expect "--version" 0 "^quire [0-9]*\.[0-9]*\.[0-9]*$" --version
expect "--help lists the verbs" 0 "^  verify " --help
for verb in gen gen-attrs truth build search inspect verify repair convert import export plan probe bench-kernels "embed fit" "embed apply" cache-eval top; do
    # shellcheck disable=SC2086
    expect "$verb --help has examples" 0 "^  .*quire $verb" $verb --help
done
expect "embed without its verb" 2 "quire embed fit" embed

# ---- cache-eval -----------------------------------------------------------------------------------------------------
# 2 categories of 4 answers and one of nothing; vectors of an answer are near each other (.98), others far (.5 at most)
/usr/bin/python3 - <<'PYTHON'
import math, random, struct
random.seed(1)
dim, rows = 16, []
for i in range(1200):
    kind, answer = i % 3, i // 3 % 4
    v = [0.0] * dim
    if kind == 2:  # nothing: every row a direction of its own
        v = [random.gauss(0, 1) for _ in range(dim)]
    else:
        v[kind * 4 + answer] = 1.0
        v[8 + kind] = 0.5
        v = [x + random.gauss(0, 0.03) for x in v]
    length = math.sqrt(sum(x * x for x in v))
    rows.append((("left", "right", "none")[kind], f"answer{answer}", f"row {i}", [x / length for x in v]))
rows.append(rows[0])  # the very same request again
with open("set.tsv", "w") as tsv, open("set.fbin", "wb") as fbin:
    fbin.write(struct.pack("<II", len(rows), dim))
    for category, answer, text, v in rows:
        tsv.write(f"{category}\t{answer}\t{text}\n")
        fbin.write(struct.pack(f"<{dim}f", *v))
PYTHON
ceval=(cache-eval set.tsv set.fbin --nothing none --json)
mkdir caches
export TMPDIR=$work/caches
expect "cache-eval: nothing is near enough" 0 '"runs"' "${ceval[@]}" --policy static=1.01 --seeds 1 --delta 0.02
json "only the same request is served" out 'j["rows"] == 1201 and len(j["runs"]) == 1 and
    j["runs"][0]["served"] == j["runs"][0]["exact"] == round(1 / 1201, 4) and j["runs"][0]["wrong"] == 0 and
    j["memory"][0]["entries"] == 1200'
expect "cache-eval: everything is near enough" 0 '"runs"' "${ceval[@]}" --policy static=0.000001 --seeds 1 --delta 0.5
json "all is served but the first of each category, and what is of nothing is wrong" out '
    all(c["requests"] == (401 if c["category"] == "left" else 400) for c in j["categories"]) and
    all(c["hit_rate"] == round(1 - 1 / c["requests"], 4) and c["precision"] > 0.97 and
        c["precision_low"] < c["precision"] <= c["precision_high"] for c in j["categories"]
        if c["category"] != "none") and
    [c["precision"] for c in j["categories"] if c["category"] == "none"] == [0] and j["runs"][0]["wrong"] > 0.25'
expect "cache-eval: best threshold in hindsight" 0 '"runs"' "${ceval[@]}" --policy static --seeds 1,2 --delta 0.01
json "the real cache serves what hindsight says" out 'len(j["runs"]) == 2 and
    all(abs(r["served"] - h["static"]) < 0.01 and r["wrong"] <= 0.015 and h["static"] > 0.6
        for r, h in zip(j["runs"], j["hindsight"]))'
expect "cache-eval: the whole table" 0 '"runs"' "${ceval[@]}" --seeds 1-2 --delta 0.02,0.1 --order random,bursty \
    --svg eval.svg
json "RISK and RISK with curves, each seed" out '[(r["order"], r["delta"], r["policy"], r["seed"]) for r in j["runs"]] ==
    [(o, d, p, s) for o in ("random", "bursty") for d in (0.02, 0.1) for p in ("risk", "imported") for s in (1, 2)] and
    len(j["means"]) == 8 and len(j["hindsight"]) == 8 and len(j["hindsight_means"]) == 4'
json "the budget is kept, from labels for some" out 'all(r["wrong"] <= r["delta"] and 0 < r["labelled"] < 0.35
    for r in j["runs"])'
json "curves serve more than nothing does" out 'all(a["served"] > b["served"] for a, b in
    zip([m for m in j["means"] if m["policy"] == "imported"], [m for m in j["means"] if m["policy"] == "risk"]))'
json "latencies of all requests" out 'sum(l["n"] for l in j["latency"]) == 2 * 16 * 1201 and
    all(0 < l["p50_us"] <= l["p99_us"] for l in j["latency"])'
check "the figure is XML with a line for each policy, budget and hindsight" /usr/bin/python3 -c '
import xml.etree.ElementTree as x
lines = [e for e in x.parse("eval.svg").iter() if e.tag.endswith("polyline")]
assert len(lines) == 2 * (2 * 4 + 1) and all(len(l.get("points").split()) in (2, 40) for l in lines)'
cp out first
expect "the same seed again" 0 '"runs"' "${ceval[@]}" --seeds 1-2 --delta 0.02,0.1 --order random,bursty
json "gives the same" out 'j["hindsight"] == json.load(open("first"))["hindsight"] and
    j["runs"] == json.load(open("first"))["runs"]'
expect "cache-eval with wrong labels" 0 '"runs"' "${ceval[@]}" --policy risk --seeds 1 --delta 0.1 --noise 0.5
json "half of all labels say wrong: no more is served than twice the budget" out '0 < j["runs"][0]["served"] < 0.2'
expect "cache-eval with guards" 0 '"runs"' "${ceval[@]}" --policy static=0.9 --seeds 1 --delta 0.1 --guards number
json "rows of other numbers are kept back" out 'j["runs"][0]["guarded"] > 500 and j["runs"][0]["served"] < 0.01'
expect "cache-eval puts misses only" 0 '"runs"' "${ceval[@]}" --policy static=0.9 --seeds 1 --delta 0.1 --insert misses
json "so there is an entry for each" out 'j["memory"][0]["entries"] == round(1201 * (1 - j["runs"][0]["served"])) and
    j["runs"][0]["served"] > 0.6'
expect "a policy that is none" 2 "--policy static=-1" cache-eval set.tsv set.fbin --policy static=-1
expect "a budget that is none" 2 "--delta 0.01,2" cache-eval set.tsv set.fbin --delta 0.01,2
expect "seeds that are none" 2 "--seeds 5-1" cache-eval set.tsv set.fbin --seeds 5-1
expect "an order that is none" 2 "--order up" cache-eval set.tsv set.fbin --order up
expect "curves without a use" 2 "--import-seed goes" cache-eval set.tsv set.fbin --policy risk --import-seed 3
expect "a column that is not there" 1 "line 1 has no column 9" cache-eval set.tsv set.fbin --text-column 9
expect "a guard that is none" 1 "quire cache-eval: " cache-eval set.tsv set.fbin --guards sing --seeds 1
expect "a figure that is there" 1 "there already" cache-eval set.tsv set.fbin --svg eval.svg
set -m # children of a shell without job control ignore SIGINT
"$quire" "${ceval[@]}" --seeds 1-60 >out 2>err &
pid=$!
for _ in $(seq 200); do
    compgen -G 'caches/*' >/dev/null && break
    sleep 0.02
done
kill -INT $pid
wait $pid
check "an interrupted cache-eval ends with 130" test $? = 130
set +m
check "no cache is left behind" rmdir caches
unset TMPDIR

# ---- gen and truth --------------------------------------------------------------------------------------------------
small="--rows 2000 --dim 32 --clusters 20 --intrinsic 8 --queries 200 --k 20"
# shellcheck disable=SC2086
expect "gen" 0 '"rows": 2000' gen $small --seed 3 --out a --json
json "gen reports what it made" out \
    'j["dim"] == 32 and j["clusters"] == 20 and j["queries"] == 200 and j["k"] == 20 and j["seconds"] > 0'
check "gen wrote rows" test "$(stat -c %s a.fbin)" = $((8 + 2000 * 32 * 4))
check "gen wrote queries" test "$(stat -c %s a.query.fbin)" = $((8 + 200 * 32 * 4))
# shellcheck disable=SC2086
expect "gen refuses names that are there" 1 "a.fbin is there already" gen $small --out a
# shellcheck disable=SC2086
"$quire" gen $small --seed 3 --threads 1 --out same >/dev/null && "$quire" gen $small --seed 4 --out other >/dev/null
check "the same seed gives the same rows" cmp a.fbin same.fbin
check "the same seed gives the same queries" cmp a.query.fbin same.query.fbin
check "another seed gives other rows" test "$(cmp -s a.fbin other.fbin; echo $?)" = 1
expect "gen with k above rows" 2 "more than --rows" gen --rows 10 --k 11 --out x
expect "gen with more true dimensions than dimensions" 1 "quire gen: " gen --rows 100 --dim 4 --intrinsic 8 --k 1 \
    --out x
expect "gen without --out" 2 "--out must be given" gen --rows 10
expect "truth" 0 "^queries *200" truth --base a.fbin --queries a.query.fbin --k 20 --out a.truth.bin
check "truth agrees with gen" cmp a.gt.bin a.truth.bin
expect "truth as ivecs" 0 "^k *20" truth --base a.fbin --queries a.query.fbin --k 20 --out a.truth.ivecs
expect "truth without a device" 0 "^device *processor" truth --base a.fbin --queries a.query.fbin --k 20 --out off.bin \
    --gpu off
check "it has the same answer" cmp a.gt.bin off.bin
expect "work that is too small for auto" 0 "^device_note *auto: .* too few" truth --base a.fbin --queries a.query.fbin \
    --k 20 --out auto.bin --gpu auto
expect "truth on a device that is not there" 0 "^device *processor" truth --base a.fbin --queries a.query.fbin --k 20 \
    --out none.bin --gpu 'no such device'
check "it has the same answer, too" cmp a.gt.bin none.bin
check "a line says so" grep -q "no such device: the processor does the work: " err
# the first device there is, in tests pocl on the processor
device=$("$quire" probe --gpu off --json |
    /usr/bin/python3 -c 'import json, sys; print(json.load(sys.stdin).get("devices", [{"name": "none"}])[0]["name"])')
expect "a probe without a device" 0 "^device *processor" probe --gpu off
expect "a probe of any device" 0 '"device' probe --gpu "$device" --json
json "it says what auto would do" out '"uses" not in j or all(u["auto"].startswith(("device", "processor")) and
    u["device_seconds"] > 0 and u["processor_seconds"] > 0 for u in j["uses"])'
expect "a probe of a device that is not there" 0 "^device_note" probe --gpu 'no such device'
expect "truth with k above rows" 1 "has 2000 rows only" truth --base a.fbin --queries a.query.fbin --k 2001 --out x.bin
expect "truth in a folder that is not there" 1 "quire truth: " truth --base a.fbin --queries a.query.fbin --k 5 --out \
    no/x.bin
absent "failed gen and truth left nothing" x.fbin x.query.fbin x.gt.bin x.bin

# ---- build ----------------------------------------------------------------------------------------------------------
seq -f 'key:%g' 0 1999 >keys
awk 'BEGIN { for (i = 0; i < 2000; i++) print i % 3 ? "{\"n\": " i "}" : "" }' >attrs
expect "build" 0 '"rows": 2000' build --base a.fbin --out a.index --json
json "build reports" out 'j["slot"] == "q8" and j["raw_bytes"] == 256000 and j["index_bytes"] > 0 and j["blocks"] > 0 and
    j["seconds"] > 0 and j["calibration_points"] > 0 and j["metric"] == "l2"'
json "few rows are not probed for" out 'j["block_bytes"] == 8192 and "100000 rows" in j["block_choice"] and
    "block_rates" not in j'
check "build is silent without a terminal" test ! -s err
json "it says what did the work" out 'j["device"] == "processor" and "too few" in j["device_note"]'
# kind NAME KIND REASON OPTION...: what auto, the default, comes to
kind() {
    local name=$1 wanted=$2 reason=$3
    shift 3
    rm -rf kind.index
    expect "auto: $name" 0 "\"kind\": \"$wanted\"" build --base a.fbin --out kind.index "$@" --json
    check "auto: $name: why" bash -c '"$0" inspect kind.index | grep -q "^kind_reason *$1"' "$quire" "$reason"
}
kind "no budget" pagegraph "auto: no memory of searches was named"
kind "a budget with room for codes" spann "auto: the codes of all rows fit" --memory 32M
kind "a budget without room for codes of 4 bits" pagegraph "auto: 4-bit codes of lists do not fit" --memory 40K
kind "a budget without room for any codes" spann "auto: no codes fit" --memory 10K
kind "an option of page graphs" pagegraph "asked for" --memory 32M --degree 16
kind "an option of lists" spann "asked for" --replicas 2
rm -rf kind.index
expect "build with a block of its own" 0 '"block_bytes": 16384' build --base a.fbin --out big.index --block 16K --json
json "it says whose choice that was" out '"asked" in j["block_choice"]'
"$quire" gen --rows 60 --dim 2000 --queries 0 --clusters 2 --out broad >out 2>err
expect "a block too small for a vector grows" 0 '"block_bytes": 8192' build --base broad.fbin --slot f32 --block 4K \
    --out broad.index --json
json "and the report says so" out '"hold no vector" in j["block_choice"]'
check "and a note does" grep -q "not one vector fits into the 4096" err
expect "build shows progress when asked" 0 "^rows *2000" build --base a.fbin --out b.index --keys keys --attrs attrs \
    --memory 8M --bits 2 --progress always --seed 1
check "the bar has phases and rates" grep -q "graph .*100%.*/s" err
expect "build refuses a folder that is there" 1 "a.index is there already" build --base a.fbin --out a.index
expect "build without a base" 1 "no.fbin: No such file" build --base no.fbin --out x
expect "build with a base that is misspelt" 1 "cannot open nope: No such file" build --base nope --out x
mkdir indexes
expect "build with a folder for a base" 1 "indexes is a folder, not a file of vectors" build --base indexes --out x
expect "build with lines of text for a base" 1 "files of their own" build --base keys --out x
expect "build without a name" 2 "--out '': it must be something, not empty" build --base a.fbin --out ''
expect "probe of a file" 1 "keys is not a folder" probe keys
expect "build with an unknown metric" 2 "it must be l2|cosine|ip" build --base a.fbin --out x --metric hamming
expect "build with an odd block" 2 "multiple of 4096" build --base a.fbin --out x --block 5000
expect "build with a wrong size" 2 "--memory lots: it must be a size" build --base a.fbin --out x --memory lots
expect "build with an option that is not there" 2 "no option --bass" build --bass a.fbin --out x
expect "build with a value forgotten" 2 "--base needs a value" build --base --out x
expect "build with an argument too many" 2 "one argument too many" build --base a.fbin --out x y
head -n 1999 keys >keys.few
{ cat keys; echo more; } >keys.many
sed '7s/.*//' keys >keys.empty
sed '7s/.*/key:3/' keys >keys.twice
sed '8s/.*/{"n": /' attrs >attrs.bad
sed '8s/.*/[1, 2]/' attrs >attrs.array
expect "fewer keys than rows" 1 "has 1999 lines, but a.fbin has 2000 rows" build --base a.fbin --out x --keys keys.few
expect "more keys than rows" 1 "has 2001 lines, but a.fbin has 2000 rows" build --base a.fbin --out x --keys keys.many
expect "an empty key" 1 "keys.empty line 7: a key of 0 bytes" build --base a.fbin --out x --keys keys.empty
expect "a key twice" 1 'same key "key:3"' build --base a.fbin --out x --keys keys.twice
expect "attributes that are no JSON" 1 "attrs.bad line 8 is not a JSON object" build --base a.fbin --out x --attrs \
    attrs.bad
expect "attributes that are no object" 1 "attrs.array line 8 is not a JSON object" build --base a.fbin --out x \
    --attrs attrs.array
expect "no attributes file" 1 "no.jsonl: No such file" build --base a.fbin --out x --attrs no.jsonl
: >empty.fbin
head -c 10000 a.fbin >short.fbin
expect "an empty base" 1 "empty.fbin" build --base empty.fbin --out x
expect "a truncated base" 1 "short.fbin" build --base short.fbin --out x
expect "a base of unknown format" 1 "quire build: " build --base keys --out x
expect "failures speak JSON too" 1 '"error": "QUIRE_EEXISTS"' build --base a.fbin --out a.index --json
json "and say what is wrong" out '"a.index" in j["message"]'
absent "failed builds left nothing" x x.building*

# a device that says that it is a graphics card (tests/opencl/fake_opencl.h), and just enough work to be asked about
if [ -e "$build/libfake_opencl.so" ] && [ "$device" != none ]; then
    "$quire" gen --rows 4000 --dim 4096 --clusters 20 --intrinsic 12 --queries 1 --out wide >/dev/null
    export QUIRE_OPENCL_LIBRARY=$build/libfake_opencl.so FAKE_OPENCL_CARD=1
    expect "a build asks auto about each step" 0 \
        "^device_note *auto, seconds .*: bisection [^;]*; neighbours [^;]*; calibration [^;]* (.*)$" \
        build --base wide.fbin --out wide.index --block 32K --gpu auto
    unset QUIRE_OPENCL_LIBRARY FAKE_OPENCL_CARD
    rm -rf wide.index wide.*
fi

# ---- inverted lists -------------------------------------------------------------------------------------------------
expect "build of inverted lists" 0 '"kind": "spann"' build --base a.fbin --out l.index --index spann --list-rows 16 --bits 2 \
    --keys keys --attrs attrs --json
json "with as many as rows of a list allow" out '60 < j["lists"] < 500 and j["list_entries"] > 2000 and
    j["code_bits"] == 2 and j["calibration_points"] > 0'
expect "search in them" 0 '"recall_at_k"' search --index l.index --queries a.query.fbin --truth a.gt.bin --k 10 --json
json "finds what it is asked for, with codes in memory in one round" out 'j["recall_at_k"] >= 0.92 and
    j["rounds_per_query"] < 1.2 and j["code_bits"] == 2'
least=$("$quire" search --index l.index --queries a.query.fbin --memory 1K 2>&1 | sed -n 's/.*below the \([0-9]*\) that.*/\1/p')
expect "with heads in memory only" 0 '"code_bits": 0' search --index l.index --queries a.query.fbin --truth a.gt.bin \
    --memory "${least:-none}" --json
json "in two rounds" out 'j["recall_at_k"] >= 0.92 and 1.9 < j["rounds_per_query"] < 2.5'
expect "all lists" 0 '"effort": 100000' search --index l.index --queries a.query.fbin --truth a.gt.bin --effort 100000 --json
json "give all there is, but for what slots of 8 bits mistake" out 'j["recall_at_k"] >= 0.995'
expect "inspect names the kind" 0 '"kind": "spann"' inspect l.index --json
expect "lists of 8 bits" 1 "codes in inverted lists have 1, 2 or 4" build --base a.fbin --out x --index spann --bits 8
expect "half a replica" 1 "0.5 replicas: it must be 1 to 8" build --base a.fbin --out x --index spann --replicas 0.5
expect "nine replicas" 2 "--replicas 9: it must be" build --base a.fbin --out x --index spann --replicas 9
expect "a kind that is not there" 2 "index ivf: it must be" build --base a.fbin --out x --index ivf
absent "refused builds of lists left nothing" x

# ---- search ---------------------------------------------------------------------------------------------------------
queries="--queries a.query.fbin"
# shellcheck disable=SC2086
{
    expect "search" 0 '"qps"' search --index a.index $queries --truth a.gt.bin --k 10 --json
    json "search reports everything" out 'all(x in j for x in "recall_at_k qps latency_us reads_per_query bytes_per_query "
        "rounds_per_query cpu_us_per_query resident_bytes query_bytes index_resident_bytes memory_budget_bytes index_bytes "
        "raw_bytes engine cpu rows dim k queries lanes inflight effort".split())'
    json "latencies are in order" out 'all(x in j["latency_us"] for x in ("mean", "p50", "p99", "p999")) and
        0 < j["latency_us"]["p50"] <= j["latency_us"]["p99"] <= j["latency_us"]["p999"]'
    json "numbers agree with each other" out 'j["rows"] == 2000 and j["dim"] == 32 and j["k"] == 10 and j["queries"] == 200
        and j["reads_per_query"] >= 1 and j["bytes_per_query"] >= 4096 * j["reads_per_query"] and j["qps"] > 0'
    json "memory is the process and stays small" out 'j["index_resident_bytes"] < j["resident_bytes"] < 64 << 20'
    json "recall reaches what was asked by default" out 'j["recall_at_k"] >= 0.9'
    expect "search without truth" 0 '"recall_at_k": null' search --index a.index $queries --json
    expect "search as text" 0 "^latency_us.p99 " search --index a.index $queries
    expect "exact search" 0 '"exact": true' search --index a.index $queries --truth a.gt.bin --exact --json
    json "exact search is as good as the stored precision" out 'j["recall_at_k"] >= 0.97'
    expect "exact search without a device" 0 '"device": "processor"' search --index a.index $queries --exact --attrs \
        --limit 50 --gpu off --json
    cp out off.json
    expect "exact search with any device" 0 '"queries_named"' search --index a.index $queries --exact --attrs --limit 50 \
        --gpu "$device" --repeat 2 --json
    json "a device changes no hit and no distance" out 'j["hits"] == json.load(open("off.json"))["hits"]'
    json "a device that did the work named rows" out '(j["device"] == "processor") == (j["queries_named"] == 0)'
    expect "exact searches that are too few for auto" 0 "^device_note *auto: .* too few" search --index a.index $queries \
        --exact
    expect "a device for searches that are not exact" 2 "with --exact alone" search --index a.index $queries --gpu x
    expect "a device where reads are bounded" 0 "reads-max bounds" search --index a.index $queries --exact --limit 3 \
        --reads-max 2 --gpu x
    expect "truth by ids only" 0 '"recall_by": "ids"' search --index a.index $queries --truth a.truth.ivecs --json
    expect "more effort" 0 '"effort": 500' search --index a.index $queries --truth a.gt.bin --effort 500 --json
    json "more effort, more recall" out 'j["recall_at_k"] >= 0.95'
    expect "lanes and repeats" 0 '"lanes": 2' search --index a.index $queries --lanes 2 --inflight 8 --repeat 3 \
        --limit 50 --json
    json "queries of all passes count" out 'j["queries"] == 150 and j["inflight"] == 8'
    expect "threads engine" 0 '"name": "threads"' search --index a.index $queries --truth a.gt.bin --engine threads \
        --json
    json "threads engine finds the same" out 'j["recall_at_k"] >= 0.9'
    expect "a budget in per cent of raw" 0 '"memory_budget_bytes": 1280000' search --index a.index $queries --memory \
        500% --json
    expect "the budget of the build" 0 '"memory_budget_bytes": 8388608,' search --index b.index $queries --json
    expect "a budget with a suffix" 0 '"memory_budget_bytes": 6815744,' search --index b.index $queries --memory 6.5M \
        --json
    "$quire" truth --base a.fbin $queries --k 1000 --out a.deep.bin >/dev/null
    expect "estimates for answers" 0 '"estimated_per_query"' search --index a.index $queries --truth a.gt.bin --distance estimate \
        --json
    json "estimates are as right as asked for, and read less" out 'j["recall_at_k"] >= 0.9 and
        0 < j["estimated_per_query"] <= 10 and j["code_bits"] > 0'
    expect "a distance that is none" 2 "--distance" search --index a.index $queries --distance guess
    expect "queries that arrive by themselves" 0 '"rate_wanted": 2000' search --index a.index $queries --truth a.gt.bin --rate 2000 \
        --lanes 2 --repeat 3 --json
    json "all of them are answered, no faster than they come" out 'j["recall_at_k"] >= 0.9 and
        j["queries"] == 600 and j["qps"] < 3000 and j["latency_us"]["p50"] <= j["latency_us"]["p999"] and
        j["latency_us"]["p999"] <= j["latency_us"]["max"] and 1700 < j["rate_offered"] < 2300'
    json "where the time of all and of the slowest goes" out 'j["slowest"][0]["share"] == 1 and
        0.01 <= j["slowest"][1]["share"] <= 1 and
        j["slowest"][1]["latency_us"] >= j["slowest"][0]["latency_us"] and all(abs(r["latency_us"] - r["line_us"] -
        r["cpu_us"] - r["waits_us"]) < 0.01 for r in j["slowest"])'
    expect "a rate that nothing keeps" 0 "the rate was not kept" search --index a.index $queries --truth a.gt.bin --rate 3000000 \
        --repeat 60 --inflight 4
    expect "how it went" 0 '"rate_kept": false' search --index a.index $queries --truth a.gt.bin --rate 3000000 --repeat 60 \
        --inflight 4 --json
    json "all of them are answered anyhow, and latency counts from when they came" out 'j["queries"] == 12000 and
        j["recall_at_k"] >= 0.9 and j["line_at_end"] > 5000 and j["latency_us"]["max"] > 0.4e6 * j["seconds"] and
        j["line_us"]["max"] <= j["latency_us"]["max"]'
    expect "some seconds of arrivals" 0 '"rate_kept"' search --index a.index $queries --rate 500 --seconds 0.2 --json
    json "as many as arrive" out '60 < j["queries"] < 140 and j["seconds"] < 30'
    expect "seconds of a closed loop" 2 "goes with --rate" search --index a.index $queries --seconds 1
    expect "seconds and passes" 2 "one of --seconds and --repeat" search --index a.index $queries --rate 10 --seconds 1 --repeat 2
    expect "too short for any" 1 "1 to 4294967296 can be asked" search --index a.index $queries --rate 0.001 --seconds 0.001
    expect "more than one chunk of queries" 0 '"k": 1000' search --index a.index $queries --truth a.deep.bin --k 1000 \
        --inflight 4 --json
    json "recall over chunks" out 'j["queries"] == 200 and j["recall_at_k"] >= 0.9'
    expect "a cap on reads" 0 '"queries_cut_short"' search --index a.index $queries --reads-max 1 --effort 500 --k \
        100 --json
    json "queries that were cut short are counted" out 'j["queries_cut_short"] > 0 and j["reads_per_query"] <= 1'
    expect "k above rows" 0 '"k": 5000' search --index a.index $queries --k 5000 --limit 3 --json
    expect "a budget that is too small" 1 "quire search: " search --index a.index $queries --memory 1K
    expect "k of 0" 2 "--k 0: it must be a whole number from 1 to 100000" search --index a.index $queries --k 0
    expect "k above its limit" 2 "--k 1000001" search --index a.index $queries --k 1000001
    expect "recall above 1" 2 "--recall 1.5: it must be a number above 0" search --index a.index $queries --recall 1.5
    expect "recall and effort" 2 "give one of" search --index a.index $queries --recall 0.9 --effort 10
    expect "k above the truth's" 1 "has the 20 nearest" search --index a.index $queries --truth a.gt.bin --k 21
    expect "truth of other queries" 1 "it belongs to other queries" search --index a.index --queries a.fbin --truth \
        a.gt.bin
    expect "a damaged truth" 1 "quire search: " search --index a.index $queries --truth short.fbin
    expect "no such index" 1 "No such file" search --index no.index $queries
}
expect "no such queries" 1 "no.fbin: No such file" search --index a.index --queries no.fbin
expect "ids are no queries" 1 "holds ids, not vectors" search --index a.index --queries a.truth.ivecs
expect "gen in a folder that is not there" 1 "quire gen: " gen --rows 50 --dim 16 --clusters 2 --queries 0 --out no/x
"$quire" gen --rows 50 --dim 16 --clusters 2 --queries 0 --out narrow >/dev/null
expect "queries of another dimension" 1 "narrow.fbin has dimension 16, a.index has 32" search --index a.index \
    --queries narrow.fbin
check "gen without queries makes one file" test ! -e narrow.query.fbin
"$quire" search --index a.index --queries a.query.fbin >/dev/full 2>err
check "standard output that is full is an error" test $? = 1 -a -s err

# ---- filters and tenants --------------------------------------------------------------------------------------------
expect "gen-attrs" 0 "^labels  *by position" gen-attrs --base a.fbin --tenants 40 --shared 10 --out near
expect "gen-attrs at random" 0 '"labels": "at random"' gen-attrs --base a.fbin --by random --tenants 40 --out random --json
expect "gen-attrs without a base" 0 "^rows  *2000" gen-attrs --rows 2000 --tenants 40 --out random2
check "is the same" cmp random.attrs.jsonl random2.attrs.jsonl
expect "gen-attrs over what is there" 1 "is there already" gen-attrs --rows 10 --out random
expect "more tenants than rows" 1 "11 tenants of 10 rows" gen-attrs --rows 10 --tenants 11 --out x
absent "failed gen-attrs left nothing" x.attrs.jsonl x.tenants.txt random.attrs.jsonl.part
columns="--attr time:timestamp:indexed --attr kind:string:indexed"
# shellcheck disable=SC2086
for kind in pagegraph spann; do
    "$quire" build --base a.fbin --out "f.$kind" --index $kind --attrs near.attrs.jsonl --tenants near.tenants.txt \
        $columns >/dev/null 2>err
    check "build with attributes, columns and tenants: $kind" test -d "f.$kind"
    number=0
    for filter in '.p5 == 1' '.p001 == 1' '.a20 == 1 and .b20 == 1' '.kind in ["k1", "k2"] or .p1 == 1' 'not (.p30 == 1)' \
        '.time >= "2025-03-01" and .time < "2025-04-01"' '.a20 + .b20 == 2' 'key in ["3", "77"]' '.p5 == 2' '"red" in .tags'; do
        number=$((number + 1))
        [ -f "f.$number.gt.bin" ] || "$quire" truth --base a.fbin --queries a.query.fbin --k 20 --out "f.$number.gt.bin" \
            --filter "$filter" --attrs near.attrs.jsonl $columns >/dev/null 2>err
        expect "search $kind under $filter" 0 '"plan"' search --index "f.$kind" --queries a.query.fbin --truth \
            "f.$number.gt.bin" --filter "$filter" --json
        json "min(k, matches) are found, nearly all right" out 'j["queries_too_few"] == j["queries_too_many"] == 0 and
            (j["recall_at_k"] is None and j["matches"] == 0 or j["recall_at_k"] >= 0.9)'
    done
    for tenant in t1 t9 t40; do
        [ -f "f.$tenant.gt.bin" ] || "$quire" truth --base a.fbin --queries a.query.fbin --k 20 --out "f.$tenant.gt.bin" \
            --tenant $tenant --tenants near.tenants.txt >/dev/null 2>err
        expect "search $kind for $tenant" 0 '"plan"' search --index "f.$kind" --queries a.query.fbin --truth \
            "f.$tenant.gt.bin" --tenant $tenant --json
        json "whose rows are found" out 'j["queries_too_few"] == j["queries_too_many"] == 0 and j["recall_at_k"] >= 0.9'
    done
    expect "search $kind for two tenants under a filter" 0 '"hits"' search --index "f.$kind" --queries a.query.fbin \
        --limit 3 --filter '.p30 == 1' --tenant t1 --tenant t2 --attrs --explain --json
    json "shows plans, and hits with their attributes" out 'len(j["explain"]) == 3 and
        all(e["answer"] in ("exact", "complete") and e["hits"] <= 10 for e in j["explain"]) and
        len(j["hits"]) == sum(e["hits"] for e in j["explain"]) > 0 and
        all(json.loads(h["attributes"])["p30"] == 1 and str(h["id"]) == h["key"] and
            set(open("near.tenants.txt").read().split("\n")[h["id"]].split()) & {"t1", "t2"} for h in j["hits"])'
    expect "the table of them" 0 "^ *query  *plan" search --index "f.$kind" --queries a.query.fbin --limit 2 --tenant t3 --explain
    expect "a tenant that has nothing" 0 '"plan": "empty"' search --index "f.$kind" --queries a.query.fbin --tenant no --json
done
json "finds nothing" out 'j["matches"] == 0 and j["reads_per_query"] == 0'
expect "a filter that does not parse" 1 "quire search: " search --index f.spann --queries a.query.fbin --filter '.p5 =='
expect "truth by a filter without attributes" 1 "needs --attrs" truth --base a.fbin --queries a.query.fbin --out x \
    --filter '.p5 == 1'
expect "truth of a tenant without tenants" 1 "needs --tenants" truth --base a.fbin --queries a.query.fbin --out x --tenant t1
expect "a column without a type" 1 "it must be NAME:TYPE" build --base a.fbin --out x --attrs near.attrs.jsonl --attr time
sed '5s/.*/a  b/' near.tenants.txt >tenants.bad
expect "tenants with two spaces between" 1 "tenants.bad line 5" build --base a.fbin --out x --tenants tenants.bad
head -n 3 near.tenants.txt >tenants.few
expect "fewer tenants than rows" 1 "tenants.few has 3 lines" build --base a.fbin --out x --tenants tenants.few
absent "failures left nothing" x x.building*

# ---- inspect and verify ---------------------------------------------------------------------------------------------
expect "inspect" 0 '"calibration"' inspect b.index --json
json "inspect reports" out 'j["rows"] == 2000 and j["user_keys"] and j["attributes"] and j["code_bits"] == 2 and
    len(j["files"]) == 6 and j["memory"]["resident_bytes"] == sum(j["memory"][x + "_bytes"] for x in
    ("codes", "factors", "centres", "naming", "columns")) and j["memory"]["planned_bytes"] == sum(j["memory"][x + "_bytes"] for x in
    ("resident", "cache", "reserve")) and all(0 < p["recall"] <= 1 for p in j["calibration"])'
expect "inspect as text" 0 "^ *distance  *k  *effort  *recall  *reads" inspect a.index
expect "inspect without a device" 0 '"device": "processor"' inspect a.index --gpu off --json
expect "inspect says what auto would do" 0 '"device' inspect a.index --gpu "$device" --json
json "with a device it has uses" out '"uses" not in j or (len(j["uses"]) == 6 and j["device_rows_bytes"] > 0 and
    all(u["auto"].startswith(("device", "processor")) and u["device_seconds"] > 0 for u in j["uses"]))'
expect "inspect of no index" 1 "No such file" inspect .
expect "inspect without an index" 2 "DIR must be given" inspect
expect "verify" 0 '"findings": 0' verify b.index --json
json "verify looked at everything" out 'j["rows"] == 2000 and j["keys"] == 2000 and j["files"] == 6 and j["edges"] > 0 and
    j["rows_reachable"] == 2000 and 0 < j["rows_by_edges"] <= 2000'
expect "verify of no index" 1 "No such file" verify .
for file in meta blocks codes keys attrs columns; do
    cp -r b.index damaged
    flip damaged/$file $(($(stat -c %s damaged/$file) / 2 / 4096 * 4096 + 100))
    expect "a flipped byte in $file is found" 3 "^findings *[1-9]" verify damaged
    check "and has a sentence" grep -q "damage\|finding" out
    rm -rf damaged
    cp -r b.index damaged
    truncate -s -4096 damaged/$file
    expect "a truncated $file is found" 3 "^findings *[1-9]" verify damaged
    rm damaged/$file
    if [ $file = meta ]; then
        expect "without meta it is no index" 1 "No such file" verify damaged
    else
        expect "a missing $file is found" 3 "^findings *[1-9]" verify damaged
    fi
    rm -rf damaged
done

# ---- data folders: verify and repair --------------------------------------------------------------------------------
requests() { # lines to the server, whose replies go to "replies"
    exec 3<>"/dev/tcp/127.0.0.1/$(cat port)" && { cat; echo QUIT; } >&3 && timeout 20 cat <&3 >replies
    exec 3>&-
}

stop_server() { # waits until it has closed the folder
    kill "$server" && wait "$server" 2>/dev/null
}

"$build/quire-server" --port 0 --port-file port --dir data --logfile server.log >/dev/null 2>&1 &
server=$!
for _ in $(seq 200); do [ -s port ] && break; sleep 0.05; done
{
    echo "SET k 1"
    for i in $(seq 400); do echo "VADD v VALUES 4 $((i % 7)) $((i % 11)) $i 3 e$i"; done
    echo "VSEAL v"
    for i in $(seq 401 450); do echo "VADD v VALUES 4 $((i % 7)) $((i % 11)) $i 3 e$i"; done
    echo "SAVE"
} | requests
check "the server made a data folder and a snapshot" test "$(grep -c '^:1' replies)" = 450 -a -d data/snapshots
expect "verify of an open folder is refused" 1 "data is open in process $server" verify data
expect "and so is repair" 1 "data is open in process $server" repair data --to data.saved
expect "verify of a snapshot" 0 '"findings": 0' verify data/snapshots/* --json
json "verify looked at everything" out 'j["collections"] == 1 and j["elements"] == 450 and j["segments"] == 1 and
    j["rows"] == 400 and j["records"] > 450'
stop_server
expect "verify of a data folder" 0 "^elements *450" verify data
expect "repair of a sound folder" 0 '"findings": 0' repair data --to data.saved --json
json "repair saves everything" out 'j["elements"] == 450 and j["saved_to"] == "data.saved"'
expect "what it saved is sound" 0 "^elements *450" verify data.saved
expect "repair replaces nothing" 1 "data.saved" repair data --to data.saved
expect "repair needs a name" 2 "to must be given" repair data
expect "repair of an index" 1 "b.index is no data folder" repair b.index --to nowhere.saved
expect "repair of no folder" 1 "nowhere is no data folder" repair nowhere --to nowhere.saved
absent "and leaves nothing" nowhere.saved nowhere.saved.building
rm -rf data.saved
for file in "$(cd data && ls log-* | head -1)" "$(cd data && ls -d segments/*/blocks)"; do
    cp -r data damaged
    flip "damaged/$file" $(($(stat -c %s "damaged/$file") / 2))
    expect "a flipped byte in ${file##*/} is found" 3 '"findings": [1-9]' verify damaged --json
    expect "repair saves the rest" 3 '"findings": [1-9]' repair damaged --to damaged.saved --json
    json "and says what is lost" out 'j["damage"][0]["finding"] and 0 < j["elements"] <= 450'
    expect "what it saved is sound" 0 "^findings *0" verify damaged.saved
    rm -rf damaged damaged.saved
done
rm -rf data

# ---- data folders with semantic caches ------------------------------------------------------------------------------
rm -f port
"$build/quire-server" --port 0 --port-file port --dir data --logfile server.log >/dev/null 2>&1 &
server=$!
for _ in $(seq 200); do [ -s port ] && break; sleep 0.05; done
{
    echo "SC.CREATE c DIM 4"
    echo "SC.CAT.SET c k MODE exact"
    for i in $(seq 100 150); do echo "SC.PUT c CAT k HASH 000000000000000000000000000$((10000 + i)) VALUE answer$i"; done
    echo "SAVE"
} | requests
check "the server has a cache and a snapshot" test "$(grep -c '^stored' replies)" = 51 -a -d data/snapshots
expect "verify of a snapshot proves caches" 0 '"findings": 0' verify data/snapshots/* --json
json "with entries and documents" out 'j["caches"] == 1 and j["entries"] == 51 and j["documents"] == 51'
stop_server
expect "verify proves caches" 0 "^documents *51" verify data
segment=$(cd data && ls documents/*/*.docs | head -1)
cp -r data damaged
flip "damaged/$segment" $((4096 + 20 * 256 + 130))
expect "a damaged document is found" 3 "1 of its 51 entries" verify damaged
expect "repair saves the others" 3 '"entries_damaged": 1' repair damaged --to damaged.saved --json
rm -f port
"$build/quire-server" --port 0 --port-file port --dir damaged.saved --logfile server.log >/dev/null 2>&1 &
server=$!
for _ in $(seq 200); do [ -s port ] && break; sleep 0.05; done
for i in $(seq 100 150); do echo "SC.GET c CAT k HASH 000000000000000000000000000$((10000 + i)) NOLEASE"; done | requests
check "and they answer" test "$(grep -c '^answer1[0-9][0-9]' replies)" = 50
stop_server
expect "what it saved is sound" 0 "^entries *50" verify damaged.saved
rm -rf damaged damaged.saved
log=$(cd data && ls log-* | head -1)
cp -r data damaged
flip "damaged/$log" $(($(stat -c %s "damaged/$log") / 2))
expect "a record of a cache that is damaged is found" 3 '"findings": [1-9]' verify damaged --json
expect "repair says what may be back" 3 '"caches": 1' repair damaged --to damaged.saved --json
check "in a note" grep -q "SC.INVALIDATE CACHE ALL" err
expect "and the rest is sound" 0 "^findings *0" verify damaged.saved
rm -rf data damaged damaged.saved

# ---- convert --------------------------------------------------------------------------------------------------------
expect "convert to npy" 0 '"rows": 2000' convert a.fbin a.npy --json
expect "convert to fvecs" 0 "^type *f32" convert a.npy a.fvecs
expect "convert back" 0 "^rows *2000" convert a.fvecs back.fbin
check "nothing was lost" cmp a.fbin back.fbin
expect "convert a part" 0 "^rows *7" convert a.fbin part.fbin --limit 7
check "the part is that long" test "$(stat -c %s part.fbin)" = $((8 + 7 * 32 * 4))
# shellcheck disable=SC2094
"$quire" convert - - --from fvecs --to fvecs <a.fvecs 2>err | cmp - a.fvecs >/dev/null 2>&1
say $? "convert through pipes"
# shellcheck disable=SC2002 # a pipe, which a redirected file is not
cat a.fvecs | "$quire" convert - x.fbin --from fvecs >out 2>err
check "a pipe that does not say its rows" grep -q "does not say how many rows" err
expect "convert to half precision" 0 "^type *f16" convert a.fbin half.npy --type f16
expect "convert to bfloat16" 0 "^type *bf16" convert a.fbin a.bf16bin
check "two bytes an element" test "$(stat -c %s a.bf16bin)" = $((8 + 2000 * 32 * 2))
expect "bfloat16 to floats" 0 "^type *f32" convert a.bf16bin wide.fbin
expect "and back without loss" 0 "^type *bf16" convert wide.fbin again.bf16bin
check "bf16 survives" cmp a.bf16bin again.bf16bin
expect "NumPy has no bf16" 1 "NumPy has no bf16" convert a.bf16bin x.npy
expect "truth of bfloat16" 0 '"rows": 2000' truth --base a.bf16bin --queries a.query.fbin --k 10 --out bf16.gt.bin --json
expect "build from bfloat16" 0 '"type": "bf16"' build --base a.bf16bin --slot bf16 --out bf16.index --json
json "slots hold it as it is" out 'j["slot"] == "bf16" and j["raw_bytes"] == 2000 * 32 * 2'
expect "search it, with bfloat16 queries" 0 "^queries *50" search --index bf16.index --queries a.bf16bin --limit 50
expect "search it against its truth" 0 "recall_at_k" search --index bf16.index --queries a.query.fbin --truth bf16.gt.bin \
    --exact --json
json "exact search of bf16 finds all" out 'j["recall_at_k"] == 1'
expect "it verifies" 0 "^findings *0" verify bf16.index
expect "gen of bfloat16" 0 '"type": "bf16"' gen --rows 300 --dim 16 --queries 5 --k 3 --type bf16 --out g --json
check "gen wrote base, queries and truth" test -s g.bf16bin -a -s g.query.fbin -a -s g.gt.bin
expect "fractions do not fit u8" 1 "u8 holds whole numbers" convert a.fbin x.u8bin
/usr/bin/python3 -c '
import struct, sys
sys.stdout.buffer.write(struct.pack("<II", 40, 32) + bytes(i * 7 % 256 for i in range(40 * 32)))' >bytes.u8bin
expect "bytes to floats" 0 "^type *f32" convert bytes.u8bin bytes.fbin
expect "whole floats to bytes" 0 "^type *u8" convert bytes.fbin bytes.bvecs
expect "and back" 0 "^type *u8" convert bytes.bvecs bytes2.u8bin
check "bytes survive" cmp bytes.u8bin bytes2.u8bin
expect "bytes search an index of floats" 0 '"queries": 40' search --index a.index --queries bytes.u8bin --json
expect "convert refuses a name that is there" 1 "there already" convert a.fbin a.npy
expect "convert to an unknown format" 1 "x.txt: give --to" convert a.fbin x.txt
expect "convert of a truncated file" 1 "short.fbin" convert short.fbin x.fbin
expect "convert with one argument" 2 "IN OUT must be given" convert a.fbin
absent "failed conversions left nothing" x.fbin x.u8bin x.txt
check "nor temporary files" test -z "$(find . -name 'x.*' -print)"

# ---- probe ----------------------------------------------------------------------------------------------------------
mkdir probed
expect "probe" 0 '"points"' probe probed --size 2M --time 5 --lanes 2 --json
json "probe measured every pair" out 'len(j["points"]) == 24 and all(p["reads_per_second"] > 0 for p in j["points"]) and
    [k["block_bytes"] for k in j["knees"]] == [4096, 8192, 16384, 65536]'
check "probe removed its file" rmdir probed
expect "probe of no folder" 1 "quire probe: " probe no/folder
expect "probe with a tiny file" 2 "--size 4K" probe . --size 4K

# ---- bench-kernels --------------------------------------------------------------------------------------------------
expect "bench-kernels" 0 '"kernels"' bench-kernels --dim 48 --seconds 0.2 --size 8M --json
json "every kernel is there in every variant" out '{r["kernel"] for r in j["kernels"]} == set("f32_l2 f32_dot f16_l2 f16_dot "
    "u8_l2 u8_dot i8_l2 i8_dot f32_u8_dot f32_i8_dot f32_u8_l2 f32_i8_l2 code_dot_1 code_dot_2 code_dot_4 code_dot_8 "
    "group_dot_1 group_dot_2 group_dot_4 f32_l2_many f16_from_f32 f32_from_f16 hadamard".split()) and
    len(j["kernels"]) == 23 * len({r["variant"] for r in j["kernels"]}) and
    "scalar" in {r["variant"] for r in j["kernels"]}'
json "times are above 0, and rates follow from them" out 'j["bandwidth_gb_s"] > 0 and j["set_bytes"] == 8 << 20 and
    all(r[s + "_ns"] > 0 and abs(r["bytes"] / r[s + "_ns"] / r[s + "_gb_s"] - 1) < 0.01 and
        abs(r[s + "_gb_s"] / j["bandwidth_gb_s"] / r[s + "_share"] - 1) < 0.01
        for r in j["kernels"] for s in ("cached", "scattered") if s == "cached" or r["kernel"] != "hadamard")'
json "dimensions are what kernels take" out 'all(r["dim"] == (64 if r["kernel"][:8] in ("code_dot", "group_do", "hadamard") else 48)
    for r in j["kernels"])'
expect "bench-kernels of one kernel as text" 0 "^ *u8_l2 *scalar *768 " bench-kernels --kernel u8_l2 --seconds 0.05 \
    --size 8M --progress always
check "it says how far it is" grep -q "kernels .*100%" err
expect "bench-kernels of no kernel" 2 "--kernel u9: it must be one of .*hadamard" bench-kernels --kernel u9

# ---- embed ----------------------------------------------------------------------------------------------------------
sample=$source_dir/datasets/sample.tsv
if "$quire" embed fit --text "$sample" --column 2 --dim 32 --out words.model --json >out 2>err; then
    json "embed fit" out 'j["dim"] == 32 and j["features"] > 0 and j["lines"] > 0 and j["model_bytes"] > 0'
    expect "embed fit refuses a name that is there" 1 "there already" embed fit --text "$sample" --out words.model
    expect "embed apply" 0 '"rows"' embed apply --model words.model --text "$sample" --column 2 --key-column 1 \
        --out text.fbin --keys-out text.keys --json
    json "every line has a vector" out 'j["rows"] > 0 and j["dim"] == 32'
    check "as many keys as rows" test "$(stat -c %s text.fbin)" = $((8 + $(wc -l <text.keys) * 32 * 4))
    check "keys are the first column" cmp -s <(head -n 1 text.keys) <(head -n 1 "$sample" | cut -f 1)
    expect "text and keys become an index" 0 "^user_keys\|^rows" build --base text.fbin --keys text.keys --metric \
        cosine \
        --out text.index
    words=$(head -n 1 "$sample" | cut -f 2)
    expect "embed apply --query" 0 "^-*[0-9]" embed apply --model words.model --query "$words"
    check "it prints dim numbers" test "$(wc -w <out)" = 32
    expect "embed apply --query --json" 0 '"vector"' embed apply --model words.model --query "$words" --json
    json "a unit vector" out 'abs(sum(x * x for x in j["vector"]) - 1) < 1e-3'
    "$quire" embed apply --model words.model --query "$words" --raw >out 2>err
    check "raw bytes" test "$(stat -c %s out)" = 128
    expect "a text without known words" 1 "quire embed apply: " embed apply --model words.model --query "qqqzzz"
    expect "no model" 1 "no.model" embed apply --model no.model --query a
    expect "text and query" 2 "give either" embed apply --model words.model --query a --text "$sample" --out x.fbin
    expect "a column that is not there" 1 "quire embed apply: " embed apply --model words.model --text "$sample" \
        --column 9 \
        --out x.fbin
    printf 'a\t%s\n\t%s\n' "$words" "$words" >nokey.tsv
    expect "an empty key" 1 "nokey.tsv line 2 has an empty key" embed apply --model words.model --text nokey.tsv \
        --column 2 \
        --key-column 1 --out x.fbin --keys-out x.keys
    check "failed embedding left nothing" test -z "$(find . -name 'x.*' -print)"
else
    skipped=$((skipped + 1))
    echo "skip - embed: $(cat err)"
fi

# ---- interruption and full disks ------------------------------------------------------------------------------------
"$quire" gen --rows 3000 --dim 64 --queries 0 --out long >/dev/null
set -m # children of a shell without job control ignore SIGINT
"$quire" build --base long.fbin --out long.index --threads 1 >out 2>err &
pid=$!
for _ in $(seq 200); do
    compgen -G 'long.index.building*' >/dev/null && break
    sleep 0.02
done
check "a build works in a folder of another name" compgen -G 'long.index.building*'
kill -INT $pid
wait $pid
check "an interrupted build ends with 130" test $? = 130
set +m
check "and says so" grep -q "quire build: " err
check "and leaves nothing" test -z "$(find . -name 'long.index*' -print)"
expect "an index built afterwards is whole" 0 "^rows *3000" build --base long.fbin --out long.index
expect "fewer queries calibrate" 0 "^calibration_points *[1-9]" build --base long.fbin --out brief.index \
    --calibration-queries 50
expect "too few are refused with the limits" 1 "40 queries of the calibration: it must be 50 to 800" \
    build --base long.fbin --out none.index --calibration-queries 40

# ---- little memory, and going on ------------------------------------------------------------------------------------
expect "too little memory is refused with a figure" 1 "a build memory of 1048576 bytes is below the [0-9]" \
    build --base long.fbin --out small.index --build-memory 1M
absent "and nothing is left" small.index small.index.building*
"$quire" build --base long.fbin --out small.index --build-memory 1M >out 2>err
least=$(grep -o 'below the [0-9]*' err | grep -o '[0-9]*$')
expect "the figure is enough" 0 '"rows": 3000' build --base long.fbin --out small.index --json \
    --build-memory $((least + 2 * 1048576))
if ! nm "$quire" | grep -q __asan_init && ! nm "$quire" | grep -q __tsan_init; then
    json "the process keeps to it" out 'j["peak_resident_bytes"] <= '$((least + 3 * 1048576))
fi
expect "and the index is whole" 0 "^findings *0" verify small.index
check "a pipe and little memory do not go together" bash -c \
    "mkfifo pipe.fbin && (cat long.fbin >pipe.fbin & '$quire' build --base pipe.fbin --out x --build-memory 64M 2>&1) |
     grep -q 'is a pipe'"
check "a pipe alone does" bash -c "(cat long.fbin >pipe.fbin & '$quire' build --base pipe.fbin --out pipe.index) >out"
check "with all its rows" grep -q "^rows *3000" out

"$quire" build --base long.fbin --out going.index --resume --progress always >out 2>err &
pid=$!
for _ in $(seq 400); do
    [ -e going.index.building-resume/work.state ] && break
    sleep 0.02
done
kill -KILL $pid
wait $pid 2>/dev/null
check "a killed build keeps its folder" test -e going.index.building-resume/work.state
expect "other options are refused" 1 "with other options" build --base long.fbin --out going.index --resume --degree 20
cp long.fbin other.fbin
printf 'x' | dd of=other.fbin bs=1 seek=5000 conv=notrunc status=none
expect "another input is refused" 1 "the input has changed" build --base other.fbin --out going.index --resume
expect "the same command goes on" 0 "^rows *3000" build --base long.fbin --out going.index --resume --progress always
check "from where it was" bash -c "! grep -q partition err"
absent "and clears its folder" going.index.building*
expect "to a whole index" 0 "^findings *0" verify going.index

# ---- plan -----------------------------------------------------------------------------------------------------------
mkdir planned
expect "plan needs dimensions or a sample" 2 "--dim or --sample must be given" plan --rows 1M
expect "plan of rows that no index holds" 2 "--rows 1000G: it must be a whole number from 1025 to 178000000" plan --rows 1000G --dim 8
expect "plan of a folder that is not there" 2 "--probe nothing: it must be a folder" plan --rows 1M --dim 8 --probe nothing
expect "plan with odd trials" 2 "it must be a multiple of 1024" plan --rows 1M --dim 8 --trial-rows 1500
expect "plan of as many rows as are tried" 1 "built and measured faster than planned" plan --rows 1.5K --dim 8 --trial-rows 2048
expect "plan of a sample of other dimensions" 1 "--dim 8: the vectors of long.fbin have" plan --rows 1M --dim 8 --sample long.fbin
expect "plan of a small sample" 1 "a sample needs at least 1280" plan --rows 1M --sample a.query.fbin
expect "plan" 0 '"ways"' plan --rows 1.5M --sample long.fbin --probe planned --trial-rows 2048 --qps 10 --json
json "it names rows, ways and what was tried" out 'j["rows"] == 1500000 and len(j["ways"]) == 7 and j["sample_rows"] == 2048
    and len(j["trials"]) == 14'
json "each way has its cost" out 'all(w["reads"] > 0 and w["cpu_us"] > 0 and w["disk_gb"] > 0 and w["memory_mb"] > 0
    for w in j["ways"])'
json "wider codes take more memory and fewer reads" out 'j["ways"][0]["memory_mb"] > j["ways"][2]["memory_mb"] and
    j["ways"][0]["reads"] <= j["ways"][2]["reads"]'
json "one is recommended, with the command and why" out 'j["recommended"] in [w["way"] for w in j["ways"]] and
    j["command"].startswith("quire build --index ") and j["why"] and j["processors_wanted"] > 0'
check "and nothing is left" test -z "$(ls -A planned)"
expect "a plan for kinds" 0 '"ways"' plan --rows 1M --dim 16 --type u8 --index spann --probe planned --trial-rows 2048 \
    --attr-bytes 100 --indexed 2 --grants 1 --json
json "has their ways alone" out '[w["way"].split(",")[0] for w in j["ways"]] == 3 * ["lists"] and j["type"] == "u8"'
json "made-up vectors are said to be made up" out '"made up" in j["sample"]'
json "attributes and grants take their room" out 'all(w["disk_gb"] > 0.116 and w["memory_mb"] > 17 for w in j["ways"])'
expect "a plan that fits nowhere" 0 "^recommended *none" plan --rows 1M --dim 16 --index spann --probe planned --trial-rows 2048 \
    --memory 1K
check "says what the least is" grep -q "the least takes [0-9]" out

# ---- no room ---------------------------------------------------------------------------------------------------------
(ulimit -f 50 && "$quire" build --base a.fbin --out full.index >out 2>err)
check "a build without room fails" test $? = 1
check "with a sentence" grep -q "quire build: .*full.index" err
(ulimit -f 300 && "$quire" build --base long.fbin --out full.index --build-memory $((least + 2 * 1048576)) >out 2>err)
check "nor one whose work files have no room" test $? = 1
check "with a sentence, too" grep -q "quire build: .*full.index.*work" err
check "and leaves nothing behind" test -z "$(find . -name 'full.index*' -print)"
(ulimit -f 50 && "$quire" gen --rows 2000 --dim 32 --out full >out 2>err)
check "gen without room fails" test $? = 1
check "and leaves no files" test -z "$(find . -name 'full*' -print)"
(ulimit -f 50 && "$quire" convert a.fbin full.npy >out 2>err)
check "convert without room fails" test $? = 1
check "and leaves no file" test -z "$(find . -name 'full*' -print)"

echo "$passed passed, $failed failed$([ $skipped = 0 ] || echo ", $skipped skipped")"
[ "$failed" = 0 ]
