/*
 * bench_cache_load.c - `bench_cache_load`: what a semantic cache does for a model, and to it, against a running server.
 *
 * Without --experiment it is one run: requests at bursty moments, in categories of unequal popularity, in other words
 * each time; a model with a queue behind; answers that change. What is right is known by construction, so wrong, stale
 * and other tenants' answers are counted, not estimated. cache_load.h names the parts.
 *
 * load-adaptation is two runs of the same requests in two caches: without and with LOADMAX. In the burst the model has
 * more to do than it can; what the second cache takes off it, at which price in wrong answers, is the result. Caches
 * learn their thresholds in the first third of the run.
 */
#include "io/error.h"
#include "tests/bench/cache_load/cache_load.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum experiment { EXPERIMENT_RUN, EXPERIMENT_ADAPTATION, EXPERIMENT_CROWD, EXPERIMENT_BENCH };
static const struct cli_choice experiments[] = {{"run", EXPERIMENT_RUN},
                                                {"load-adaptation", EXPERIMENT_ADAPTATION},
                                                {"flash-crowd", EXPERIMENT_CROWD},
                                                {"bench", EXPERIMENT_BENCH},
                                                {0}};

#define TRAFFIC_CUT_BAR 0.09 /* what less of an overloaded model's traffic is asked for */

static int plain_run(const struct load_options *options, struct cli *cli, struct quire_error *err)
{
    static const char *const title[] = {"bench_cache_load"};
    struct load_result *result = malloc(sizeof *result);
    if (!result)
        return error_set(err, QUIRE_ENOMEM, "no memory for counts");
    int rc = load_run(options, options->cache, "", cli, result, err);
    if (rc == 0)
        report_run(cli, NULL, result);
    if (rc == 0 && options->svg)
        rc = figure_write(options->svg, (const struct load_result *const[]){result}, title, 1, err);
    free(result);
    return rc;
}

/* ---- load-adaptation --------------------------------------------------------------------------------------------- */

static void report_cut(const struct load_options *options, struct cli *cli, const struct load_result *plain,
                       const struct load_result *adaptive)
{
    double calls = (double)plain->burst.calls, less = calls > 0 ? 1 - (double)adaptive->burst.calls / calls : 0;
    uint64_t wrong = adaptive->burst.wrong, requests = adaptive->burst.requests;
    double per_request = requests ? (double)wrong / (double)requests : 0;
    cli_put_text(cli, NULL, "experiment", "load-adaptation");
    cli_put_real(cli, NULL, "risk_max", options->risk_max);
    cli_put_count(cli, NULL, "burst_model_calls_plain", plain->burst.calls);
    cli_put_count(cli, NULL, "burst_model_calls_adaptive", adaptive->burst.calls);
    cli_put_real(cli, NULL, "burst_traffic_less", less);
    cli_put_real(cli, NULL, "burst_wrong_share", per_request);
    cli_put_real(cli, NULL, "burst_wrong_upper", report_wilson_upper(wrong, requests));
    cli_put_bool(cli, NULL, "holds", less >= TRAFFIC_CUT_BAR && per_request <= options->risk_max);
}

int load_adaptation(const struct load_options *options, struct cli *cli, struct quire_error *err)
{
    static const char *const titles[] = {"without LOADMAX", "with LOADMAX"};
    char names[2][LOAD_NAME_MAX + 16], extra[64];
    struct load_result *results = calloc(2, sizeof *results);
    if (!results)
        return error_set(err, QUIRE_ENOMEM, "no memory for counts");
    snprintf(names[0], sizeof names[0], "%s-plain", options->cache);
    snprintf(names[1], sizeof names[1], "%s-adaptive", options->cache);
    snprintf(extra, sizeof extra, "LOADMAX %g %g", options->risk_max, options->ttl_factor);
    int rc = load_run(options, names[0], "", cli, &results[0], err);
    if (rc == 0)
        rc = load_run(options, names[1], extra, cli, &results[1], err);
    if (rc == 0) {
        json_t *both[] = {json_object(), json_object()};
        report_cut(options, cli, &results[0], &results[1]);
        for (int i = 0; i < 2; i++)
            report_run(cli, both[i], &results[i]);
        cli_put(cli, NULL, "plain", both[0]);
        cli_put(cli, NULL, "adaptive", both[1]);
    }
    if (rc == 0 && options->svg)
        rc = figure_write(options->svg, (const struct load_result *const[]){&results[0], &results[1]}, titles, 2, err);
    free(results);
    return rc;
}

/* ---- the program ------------------------------------------------------------------------------------------------- */

static int check_options(struct cli *cli, const struct load_options *o, enum experiment experiment)
{
    if (strlen(o->cache) >= LOAD_NAME_MAX)
        return cli_mistake(cli, "--cache: a name has at most %u bytes", LOAD_NAME_MAX - 1);
    if (strlen(o->settings) >= LOAD_SETTINGS_MAX / 2)
        return cli_mistake(cli, "--settings: at most %u bytes", LOAD_SETTINGS_MAX / 2 - 1);
    if (experiment == EXPERIMENT_ADAPTATION && o->burst <= 1)
        return cli_mistake(cli, "--burst %g: load-adaptation needs a burst above 1", o->burst);
    if (o->svg && (experiment == EXPERIMENT_CROWD || experiment == EXPERIMENT_BENCH))
        return cli_mistake(cli, "--svg: only run and load-adaptation go over time");
    return 0;
}

static const char summary[] =
    "Drives a running server's semantic cache as a service would: bursty arrivals, repeated and paraphrased "
    "questions,\n"
    "answers that change, tenants, and a model behind whose queue fills. What is right is known by construction. A\n"
    "password is taken from REDISCLI_AUTH. Experiments: load-adaptation (the same requests without and with LOADMAX),\n"
    "flash-crowd (one new question from all clients at once), bench (a large cache: rates, latencies, memory).";
static const char examples[] =
    "  bench_cache_load --port 6390 --rate 2000 --burst 3 --seconds 60 --svg run.svg\n"
    "  bench_cache_load --port 6390 --tenants 20 --settings \"RISK 0.01 GUARD all\" --feedback 0.05 --json\n"
    "  bench_cache_load --port 6390 --experiment load-adaptation --seconds 90 --svg load.svg\n"
    "  bench_cache_load --port 6390 --experiment flash-crowd --clients 1000\n"
    "  bench_cache_load --port 6390 --experiment bench --entries 1000000 --dim 256 --pid $(pidof quire-server)\n";

int main(int argc, char **argv)
{
    struct cli cli;
    struct quire_error err = {0};
    cli_catch_signals();
    int experiment = EXPERIMENT_RUN, code;
    struct load_options o = {.host = "127.0.0.1",
                             .port = 6379,
                             .cache = "load",
                             .settings = "RISK 0.02",
                             .dim = 256,
                             .seed = 1,
                             .connections = 32,
                             .tenants = 4,
                             .value_bytes = 2048,
                             .rate = 1000,
                             .shape = 0.5,
                             .burst = 3,
                             .seconds = 30,
                             .zipf = 1,
                             .noise = 0.5,
                             .overlap = 0.9,
                             .repeat = 0.3,
                             .change_per_second = 0.02,
                             .questions = 5000,
                             .variants = 1000,
                             .servers = 28,
                             .load_every_ms = 200,
                             .model_ms = 20,
                             .sigma = 0.5,
                             .risk_max = 0.06,
                             .ttl_factor = 2,
                             .clients = 1000,
                             .entries = 100000,
                             .depth = 16};
    const struct cli_option options[] = {
        CLI_OPTION("experiment", CLI_CHOICE, &experiment, NULL, "what is done", .choices = experiments),
        CLI_OPTION("host", CLI_TEXT, &o.host, "NAME", "of the server"),
        CLI_OPTION("port", CLI_COUNT, &o.port, "N", "of the server", CLI_RANGE(1, 65535)),
        CLI_OPTION("cache", CLI_TEXT, &o.cache, "NAME", "made for this, dropped afterwards"),
        CLI_OPTION("keep", CLI_FLAG, &o.keep, NULL, "do not drop it"),
        CLI_OPTION("dim", CLI_COUNT, &o.dim, "N", "of vectors", CLI_RANGE(8, LOAD_DIM_MAX)),
        CLI_OPTION("seed", CLI_COUNT, &o.seed, "N", "the same seed, the same requests", CLI_RANGE(0, 0)),
        CLI_OPTION("connections", CLI_COUNT, &o.connections, "N", "to the server", CLI_RANGE(1, 10000)),
        CLI_OPTION("seconds", CLI_REAL, &o.seconds, "S", "of a run; of each measurement of bench", CLI_RANGE(0, 86400)),
        CLI_OPTION("rate", CLI_REAL, &o.rate, "R", "requests per second outside of the burst", CLI_RANGE(0, 1000000)),
        CLI_OPTION("burst", CLI_REAL, &o.burst, "F", "rate in the middle third of the run, times this; 1: none",
                   CLI_RANGE(0, 1000)),
        CLI_OPTION("shape", CLI_REAL, &o.shape, "K", "of gamma distributed gaps; 1: Poisson, less: clusters",
                   CLI_RANGE(0, 1000)),
        CLI_OPTION("mix", CLI_TEXT, &o.mix, "FILE",
                   "JSON {\"categories\": [{name, weight, questions, zipf, noise, change_per_second, settings}]}"),
        CLI_OPTION("settings", CLI_TEXT, &o.settings, "WORDS", "of SC.CAT.SET for categories that name none"),
        CLI_OPTION("questions", CLI_COUNT, &o.questions, "N", "of the largest category", CLI_RANGE(10, 1000000)),
        CLI_OPTION("zipf", CLI_REAL, &o.zipf, "S", "exponent of popularity", CLI_RANGE(0, 10)),
        CLI_OPTION("repeat", CLI_REAL, &o.repeat, "P", "share of requests in the very same words", CLI_RANGE(0, 1)),
        CLI_OPTION("variants", CLI_COUNT, &o.variants, "N", "other words that a question has", CLI_RANGE(1, 1000000)),
        CLI_OPTION("noise", CLI_REAL, &o.noise, "X", "of other words: cosine 1/sqrt(1+X^2)", CLI_RANGE(0, 10)),
        CLI_OPTION("overlap", CLI_REAL, &o.overlap, "C", "cosine of neighbouring questions", CLI_RANGE(0, 1)),
        CLI_OPTION("change", CLI_REAL, &o.change_per_second, "R", "changes per second of an answer of the news",
                   CLI_RANGE(0, 1000)),
        CLI_OPTION("tenants", CLI_COUNT, &o.tenants, "N", "scopes; 1: none", CLI_RANGE(1, 1000000)),
        CLI_OPTION("value", CLI_SIZE, &o.value_bytes, "SIZE", "bytes of an answer (2048)", CLI_RANGE(64, 16u << 20)),
        CLI_OPTION("wait", CLI_COUNT, &o.wait_ms, "MS", "for a question under way; 0: asks the model as well",
                   CLI_RANGE(0, 600000)),
        CLI_OPTION("model-servers", CLI_COUNT, &o.servers, "N", "requests that the model works at",
                   CLI_RANGE(1, 100000)),
        CLI_OPTION("model-ms", CLI_REAL, &o.model_ms, "MS", "mean of its service time", CLI_RANGE(0, 600000)),
        CLI_OPTION("model-sigma", CLI_REAL, &o.sigma, "X", "deviation of the service time's logarithm",
                   CLI_RANGE(0, 5)),
        CLI_OPTION("load-every", CLI_COUNT, &o.load_every_ms, "MS", "between two SC.LOAD", CLI_RANGE(1, 60000)),
        CLI_OPTION("feedback", CLI_REAL, &o.feedback, "P", "share of served answers that users judge", CLI_RANGE(0, 1)),
        CLI_OPTION("label-noise", CLI_REAL, &o.label_noise, "P", "share of labels that are wrong", CLI_RANGE(0, 1)),
        CLI_OPTION("risk-max", CLI_REAL, &o.risk_max, "D", "load-adaptation: budget under full load", CLI_RANGE(0, 1)),
        CLI_OPTION("ttl-factor", CLI_REAL, &o.ttl_factor, "B", "load-adaptation: longer life under full load",
                   CLI_RANGE(0, 100)),
        CLI_OPTION("clients", CLI_COUNT, &o.clients, "N", "flash-crowd: connections", CLI_RANGE(3, 20000)),
        CLI_OPTION("entries", CLI_COUNT, &o.entries, "N", "bench: of the full cache", CLI_RANGE(1000, 100000000)),
        CLI_OPTION("depth", CLI_COUNT, &o.depth, "N", "bench: calls under way per connection", CLI_RANGE(1, 4096)),
        CLI_OPTION("pid", CLI_COUNT, &o.pid, "PID", "bench: the server's process, for its memory", CLI_RANGE(0, 0)),
        CLI_OPTION("svg", CLI_TEXT, &o.svg, "FILE", "a figure of the run over time"),
    };
    const struct cli_verb verb = {
        "bench_cache_load", summary, "", 0, options, sizeof options / sizeof *options, examples};
    if (!cli_parse(&cli, &verb, argc - 1, argv + 1, &code))
        return code;
    code = check_options(&cli, &o, (enum experiment)experiment);
    if (code != 0)
        return code;
    int rc = o.svg ? cli_refuse_existing(o.svg, &err) : 0;
    if (rc == 0) {
        static int (*const run[])(const struct load_options *, struct cli *,
                                  struct quire_error *) = {plain_run, load_adaptation, load_flash_crowd, load_bench};
        rc = run[experiment](&o, &cli, &err);
    }
    return cli_end(&cli, rc, &err);
}
