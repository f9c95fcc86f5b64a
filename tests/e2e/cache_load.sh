#!/usr/bin/env bash
# cache_load.sh - bench_cache_load against a server: every experiment, small. What it counts has to add up, and what
# must never happen (another tenant's answer, a second call of the model in a crowd) did not.
#
# Started by run.sh; rates and latencies are for larger runs, docs/performance.md has them.
set -u
. "$(dirname "$0")/lib.sh"
program=$QUIRE_BUILD/bench_cache_load
load=("$program" --port "$QUIRE_PORT" --dim 32)

# judged NAME EXPRESSION ARGUMENTS...: runs it with --json; the Python expression over the object j must hold
judged() {
    local name=$1 expression=$2
    shift 2
    if ! timeout 100 "${load[@]}" "$@" --json >"$QUIRE_WORK/load.json" 2>"$QUIRE_WORK/load.err" </dev/null; then
        fail "$name: it runs" "$(cat "$QUIRE_WORK/load.err")"
    elif seen=$(/usr/bin/python3 -c 'import json, sys; j = json.load(open(sys.argv[1]))
sys.exit(0 if eval("(" + sys.argv[2] + ")") else json.dumps(j)[:900])' "$QUIRE_WORK/load.json" "$expression" 2>&1); then
        ok "$name"
    else
        fail "$name" "$seen"
    fi
}

run=(--rate 800 --seconds 4 --questions 400 --connections 16 --settings "SIM 0.85" --svg "$QUIRE_WORK/load.svg")
kinds='j["hit"] + j["exact"] + j["stale"] + j["miss"] + j["negative"] + j["bypass"] + j["audit"]'
judged "a run adds up" "j['requests'] > 1000 and $kinds == j['requests'] and j['hit_rate'] > 0.2 and
    j['outdated'] > 0 and j['model_calls'] >= j['miss'] and
    sum(c['requests'] for c in j['categories']) == j['requests']" "${run[@]}" --change 1
judged "no answer crosses tenants" 'j["cross_tenant"] == 0 and j["hit"] > 0' --rate 1000 --seconds 3 --questions 50 \
    --tenants 50 --settings "SIM 0.5" --noise 1
judged "overlap makes wrong answers, which are counted" 'j["wrong"] > 0 and j["wrong_upper"] > j["wrong_share"] > 0' \
    --rate 500 --seconds 3 --questions 200 --tenants 1 --overlap 0.95 --noise 0.3 --settings "SIM 0.6"
judged "audits get labels, feedback is given" 'j["audit"] > 0 and j["labels"] > 0 and j["feedback"] > 0' \
    --rate 500 --seconds 3 --questions 100 --settings "SIM 0.8 AUDIT 0.5" --feedback 0.5 --label-noise 0.05
judged "who waits is served" 'j["hit"] + j["exact"] > 0 and j["requests"] > 0' --rate 300 --seconds 3 --wait 2000 \
    --connections 400 --settings "SIM 0.85" --questions 50
matches "the figure is XML" '^svg$' /usr/bin/python3 -c 'import sys, xml.etree.ElementTree as t
print(t.parse(sys.argv[1]).getroot().tag.split("}")[1])' "$QUIRE_WORK/load.svg"

cat >"$QUIRE_WORK/mix.json" <<END
{"categories": [{"name": "one", "weight": 3, "questions": 50, "zipf": 1.2, "noise": 0.1, "settings": "SIM 0.9"},
                {"name": "two", "questions": 20, "change_per_second": 5, "settings": "MODE exact"}]}
END
judged "a mix of one's own" '[c["category"] for c in j["categories"]] == ["one", "two"] and
    j["categories"][0]["requests"] > 2 * j["categories"][1]["requests"] and j["categories"][1]["hit"] == 0' \
    --rate 500 --seconds 2 --mix "$QUIRE_WORK/mix.json"
judged "a crowd asks the model once, once more where its leader is lost" \
    'len(j["crowds"]) == 3 and all(c["holds"] for c in j["crowds"])' --experiment flash-crowd --clients 300
judged "a full cache evicts an entry for each that comes" '[m["calls"] for m in j["measured"]] ==
    ["fill"] + [kind for kind in ("misses", "hits", "inserts") for _ in "12"] and
    all(m["as_wanted"] > 0.95 * m["n"] > 0 for m in j["measured"]) and all(m["evicted"] >= m["n"] for m in j["measured"][5:]) and j["bytes_per_entry"] > 0' \
    --experiment bench --entries 5000 --seconds 0.2 --pid "$QUIRE_PID"
judged "load-adaptation compares two runs of the same requests" 'j["plain"]["requests"] == j["adaptive"]["requests"] and
    abs(j["burst_traffic_less"] - 1 + j["burst_model_calls_adaptive"] / j["burst_model_calls_plain"]) < 1e-6' \
    --experiment load-adaptation --rate 300 --burst 4 --seconds 4 --questions 200

fails "nothing listens there" 1 '127.0.0.1:1: Connection refused' "$program" --port 1
fails "a setting that is none" 1 'SC.CAT.SET answers' "${load[@]}" --settings "SIMILARITY 0.9"
fails "a cache that is there is not touched" 1 'SC.CREATE answers' bash -c "
    redis-cli -p $QUIRE_PORT SC.CREATE mine DIM 4 && $program --port $QUIRE_PORT --cache mine"
matches "caches are dropped at the end" '^mine$' bash -c "redis-cli -p $QUIRE_PORT SC.LIST | grep -v recipe:"
redis-cli -p "$QUIRE_PORT" SC.DROP mine >/dev/null

matches "--help has examples" '  bench_cache_load --port' "$program" --help
fails "an experiment that is none" 2 'it must be run\|load-adaptation\|' "$program" --experiment sing
fails "load-adaptation without a burst" 2 'needs a burst' "$program" --experiment load-adaptation --burst 1
fails "a figure of a crowd" 2 'only run and load-adaptation' "$program" --experiment flash-crowd --svg "$QUIRE_WORK/x.svg"
mix() { # NAME PATTERN JSON: a mix that is refused
    echo "$3" >"$QUIRE_WORK/mix.json"
    fails "$1" 1 "$2" "$program" --mix "$QUIRE_WORK/mix.json"
}
mix "a mix with a wrong weight" 'mix.json: category a: weight 0 must be above 0' '{"categories": [{"name": "a", "weight": 0}]}'
mix "a mix of nothing" 'must be an array of 1 to 16' '{"categories": []}'
mix "a mix that is no JSON" 'mix.json, line 1:' '{"categories": [}'
matches "no figure is left" '^$' find "$QUIRE_WORK" -name x.svg
exit $((failures > 0))
