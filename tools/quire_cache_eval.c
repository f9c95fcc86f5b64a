/*
 * quire_cache_eval.c - `quire cache-eval`: how many requests of a labelled stream a cache serves, and how many wrongly.
 *
 * For each order, budget, policy and seed a stream of all rows goes through an empty cache of its own
 * (eval_run.c), and beside it stands what hindsight would have served. Without --policy these are RISK from
 * nothing and RISK with the curves that another seed's run has exported, which needs that run: it is made first, with a
 * seed more where the list has no other one. eval.h names the parts.
 */
#include "io/error.h"
#include "tools/eval.h"
#include "tools/quire_verbs.h"
#include <stdlib.h>
#include <string.h>

/* ---- lists ------------------------------------------------------------------------------------------------------- */

/* "0.01,0.02": above 0, below 1. */
static bool parse_deltas(const char *text, struct eval_options *o)
{
    char *end;
    for (o->n_deltas = 0; o->n_deltas < EVAL_DELTAS_MAX; text = end + 1) {
        double delta = strtod(text, &end);
        if (end == text || !(delta > 0 && delta < 1))
            return false;
        o->deltas[o->n_deltas++] = delta;
        if (*end != ',')
            return *end == 0;
    }
    return false;
}

static bool add_seeds(struct eval_options *o, uint64_t first, uint64_t last)
{
    for (uint64_t seed = first; seed <= last; seed++) {
        if (o->n_seeds == EVAL_SEEDS_MAX)
            return false;
        o->seeds[o->n_seeds++] = seed;
    }
    return first > 0 && first <= last && last < UINT32_MAX;
}

/* "1-5" or "1,4,7-9". */
static bool parse_seeds(const char *text, struct eval_options *o)
{
    char *end;
    for (o->n_seeds = 0;; text = end + 1) {
        uint64_t first = strtoull(text, &end, 10), last = first;
        if (end == text)
            return false;
        if (*end == '-')
            last = strtoull(end + 1, &end, 10);
        if (!add_seeds(o, first, last))
            return false;
        if (*end != ',')
            return *end == 0;
    }
}

static bool parse_orders(const char *text, struct eval_options *o)
{
    for (o->n_orders = 0; o->n_orders < EVAL_ORDERS; text++) {
        size_t length = strcspn(text, ",");
        enum stream_order order = STREAM_RANDOM;
        while (order < EVAL_ORDERS &&
               (strlen(eval_order_names[order]) != length || strncmp(text, eval_order_names[order], length) != 0))
            order++;
        if (order == EVAL_ORDERS)
            return false;
        o->orders[o->n_orders++] = order;
        text += length;
        if (!*text)
            return true;
    }
    return false;
}

static bool parse_policy(const char *text, struct eval_options *o)
{
    char *end;
    o->policies[EVAL_RISK] = !text || strcmp(text, "risk") == 0 || strcmp(text, "imported") == 0;
    o->policies[EVAL_IMPORTED] = !text || strcmp(text, "imported") == 0;
    o->policies[EVAL_PER_CATEGORY] = text && strcmp(text, "per-category") == 0;
    o->policies[EVAL_STATIC] = text && strncmp(text, "static", 6) == 0;
    if (!o->policies[EVAL_STATIC])
        return o->policies[EVAL_RISK] || o->policies[EVAL_PER_CATEGORY];
    if (!text[6])
        return true;
    o->threshold = strtod(text + 7, &end);
    return text[6] == '=' && end > text + 7 && !*end && o->threshold > 0;
}

/* ---- streams ----------------------------------------------------------------------------------------------------- */

/* One order. Seeds are those of the list, and perhaps one more whose run only gives its curves. */
struct streams {
    uint64_t seeds[EVAL_SEEDS_MAX + 1];
    uint32_t n; /* of seeds */
    uint32_t *orders[EVAL_SEEDS_MAX + 1];
    struct stream_request *requests[EVAL_SEEDS_MAX + 1];
};

static uint32_t find_seed(const struct streams *s, uint64_t seed)
{
    uint32_t i = 0;
    while (i < s->n && s->seeds[i] != seed)
        i++;
    return i;
}

static void choose_seeds(const struct eval_options *o, struct streams *s)
{
    memset(s, 0, sizeof *s);
    s->n = o->n_seeds;
    memcpy(s->seeds, o->seeds, sizeof o->seeds);
    if (!o->policies[EVAL_IMPORTED])
        return;
    if (o->import_seed && find_seed(s, o->import_seed) == s->n)
        s->seeds[s->n++] = o->import_seed;
    else if (s->n == 1)
        s->seeds[s->n++] = s->seeds[0] + 1;
}

/* Whose curves a run imports: another one's. */
static uint32_t source_of(const struct eval_options *o, const struct streams *s, uint32_t run)
{
    uint32_t source = o->import_seed ? find_seed(s, o->import_seed) : run;
    return source == run ? (run + 1) % s->n : source;
}

static void free_streams(struct streams *s)
{
    for (uint32_t i = 0; i < s->n; i++) {
        free(s->orders[i]);
        free(s->requests[i]);
    }
}

static int make_streams(struct cli *cli, const struct stream_data *data, enum stream_order order, struct streams *s,
                        struct quire_error *err)
{
    struct progress progress = {cli_progress, cli, "hindsight"};
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < s->n; i++) {
        s->orders[i] = calloc(data->rows, sizeof *s->orders[i]);
        s->requests[i] = calloc(data->rows, sizeof *s->requests[i]);
        rc = s->orders[i] && s->requests[i] ? stream_order(data, order, s->seeds[i], s->orders[i]) : QUIRE_ENOMEM;
    }
    if (rc == 0)
        rc = stream_nearest(data, (const uint32_t *const *)s->orders, s->n, s->requests, &progress);
    if (rc == QUIRE_ECANCELLED)
        return cli_cancelled(err);
    return rc < 0 ? error_set(err, rc, "no memory for %u streams of %u rows", s->n, data->rows) : 0;
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

struct evaluation {
    struct eval_options options;
    struct stream_data data;
    struct streams streams;
    struct eval_hindsight hindsight[EVAL_SEEDS_MAX + 1];
    struct eval_result cold[EVAL_SEEDS_MAX + 1], others[EVAL_SEEDS_MAX + 1];
    struct eval_timings timings;
    struct eval_figure figure;
    uint64_t done, total; /* requests */
    struct cli *cli;
    struct quire_error *err;
};

static uint32_t runs_of(const struct evaluation *e, enum eval_policy policy)
{
    return policy == EVAL_RISK ? e->streams.n : e->options.n_seeds;
}

static int run_one(struct evaluation *e, enum eval_policy policy, double delta, uint32_t i, struct eval_result *out)
{
    const struct eval_options *o = &e->options;
    const struct eval_hindsight *h = &e->hindsight[i];
    struct eval_run run = {.options = o,
                           .data = &e->data,
                           .order = e->streams.orders[i],
                           .policy = policy,
                           .delta = delta,
                           .thresholds = policy == EVAL_PER_CATEGORY ? h->own : h->one,
                           .seed = e->streams.seeds[i],
                           .cli = e->cli,
                           .done = e->done,
                           .total = e->total,
                           .timings = &e->timings};
    if (policy == EVAL_IMPORTED) {
        const struct eval_result *source = &e->cold[source_of(o, &e->streams, i)];
        run.curves = source->curves;
        run.curves_bytes = source->curves_bytes;
    }
    int rc = eval_run(&run, out, e->err);
    e->done += e->data.rows;
    return rc;
}

/* A policy at a budget: all seeds. */
static int run_policy(struct evaluation *e, enum eval_policy policy, uint32_t order, uint32_t delta)
{
    const struct eval_options *o = &e->options;
    struct eval_result *results = policy == EVAL_RISK ? e->cold : e->others;
    const struct eval_group group = {.options = o,
                                     .data = &e->data,
                                     .order = o->orders[order],
                                     .policy = policy,
                                     .delta = o->deltas[delta],
                                     .hindsight = e->hindsight,
                                     .results = results};
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < runs_of(e, policy); i++)
        rc = run_one(e, policy, o->deltas[delta], i, &results[i]);
    if (rc == 0) {
        eval_report_group(e->cli, &group);
        if (order == 0)
            eval_report_categories(e->cli, &group);
        if (order == 0)
            eval_figure_add_group(&e->figure, &group, delta);
    }
    for (uint32_t i = 0; policy != EVAL_RISK && i < runs_of(e, policy); i++)
        eval_result_free(&results[i]);
    return rc;
}

static void set_threshold(struct evaluation *e, uint32_t i)
{
    for (uint32_t c = 0; e->options.threshold > 0 && c < e->data.n_categories; c++)
        e->hindsight[i].one[c] = e->options.threshold;
}

static int find_hindsight(struct evaluation *e, uint32_t order, uint32_t delta)
{
    const struct eval_options *o = &e->options;
    const struct eval_group group = {
        .options = o, .order = o->orders[order], .delta = o->deltas[delta], .hindsight = e->hindsight};
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < e->streams.n; i++) {
        struct eval_hindsight *h = &e->hindsight[i];
        rc = eval_hindsight_make(&e->data, e->streams.requests[i], o->deltas[delta], h, e->err);
        if (rc < 0 || i >= o->n_seeds)
            continue;
        const double *of[2] = {h->one, h->own};
        static const char *const names[2] = {"static, hindsight", "per category, hindsight"};
        for (unsigned k = 0; k < 2 && order == 0; k++)
            eval_figure_add_thresholds(&e->figure, names[k], delta, e->streams.requests[i], e->data.rows, of[k]);
        set_threshold(e, i);
    }
    if (rc == 0)
        eval_report_hindsight(e->cli, &group);
    return rc;
}

static int evaluate_order(struct evaluation *e, uint32_t order)
{
    const struct eval_options *o = &e->options;
    choose_seeds(o, &e->streams);
    int rc = make_streams(e->cli, &e->data, o->orders[order], &e->streams, e->err);
    for (uint32_t d = 0; rc == 0 && d < o->n_deltas; d++) {
        rc = find_hindsight(e, order, d);
        for (enum eval_policy policy = 0; rc == 0 && policy < EVAL_POLICIES; policy++)
            if (o->policies[policy])
                rc = run_policy(e, policy, order, d);
        for (uint32_t i = 0; i < e->streams.n; i++) {
            eval_hindsight_free(&e->hindsight[i]);
            eval_result_free(&e->cold[i]);
        }
    }
    free_streams(&e->streams);
    return rc;
}

static int evaluate(struct evaluation *e)
{
    const struct eval_options *o = &e->options;
    uint64_t runs = 0;
    int rc = 0;
    choose_seeds(o, &e->streams);
    for (enum eval_policy policy = 0; policy < EVAL_POLICIES; policy++)
        runs += o->policies[policy] ? runs_of(e, policy) : 0;
    e->total = runs * o->n_orders * o->n_deltas * e->data.rows;
    e->figure.rows = e->data.rows;
    for (unsigned i = 0; i < EVAL_TIMINGS; i++)
        report_timing_init(&e->timings.of[i]);
    cli_put_count(e->cli, NULL, "rows", e->data.rows);
    cli_put_count(e->cli, NULL, "dim", e->data.vectors.dim);
    cli_put_count(e->cli, NULL, "categories_in_all", e->data.n_categories);
    cli_put_count(e->cli, NULL, "answers", e->data.n_answers);
    cli_put_text(e->cli, NULL, "guards", o->guards);
    cli_put_text(e->cli, NULL, "inserted", o->only_misses ? "misses" : "all");
    cli_put_real(e->cli, NULL, "noise", o->noise);
    for (uint32_t order = 0; rc == 0 && order < o->n_orders; order++)
        rc = evaluate_order(e, order);
    if (rc == 0)
        eval_report_timings(e->cli, &e->timings);
    return rc;
}

/* ---- the verb ---------------------------------------------------------------------------------------------------- */

static const char summary[] =
    "Streams a labelled text set into an empty cache and counts what it serves, and what of it is wrong.\n\n"
    "DATA.tsv has a row per line with a category, an answer and a text; DATA.fbin their vectors. Each row is a "
    "request:\n"
    "right is an entry of the same category and answer. Every row is put afterwards. Beside the cache stand the best\n"
    "single threshold and the best one of each category that keep the budget in hindsight (of each half: \"second\" "
    "is\n"
    "the best of the second half). Without --policy the cache has RISK, from nothing and with imported curves.\n\n"
    "Guards are off by default: an intent of CLINC150 is the same whatever number, name or date is in the text "
    "(\"remind\n"
    "me at 5\", \"remind me at 7\"), so guards rightly keep back 27 % of its pairs of one intent.";

static const char examples[] =
    "  quire cache-eval data/clinc150.tsv data/clinc150.fbin --category-column 2 --answer-column 3 --text-column 4 \\\n"
    "      --nothing oos\n"
    "  quire cache-eval set.tsv set.fbin --policy static=0.9 --seeds 1 --json\n"
    "  quire cache-eval set.tsv set.fbin --policy risk --delta 0.02 --order drifting --noise 0.02 --svg figure.svg\n"
    "  quire cache-eval set.tsv set.fbin --policy imported --import-seed 9 --guards all\n";

static int check(struct cli *cli, struct eval_options *o, const char *deltas, const char *seeds, const char *orders,
                 const char *policy)
{
    if (!parse_deltas(deltas, o))
        return cli_mistake(cli, "--delta %s: it must be up to %u shares above 0 and below 1, as 0.01,0.02", deltas,
                           EVAL_DELTAS_MAX);
    if (!parse_seeds(seeds, o))
        return cli_mistake(cli, "--seeds %s: it must be up to %u numbers from 1, as 1-5 or 1,3", seeds, EVAL_SEEDS_MAX);
    if (!parse_orders(orders, o))
        return cli_mistake(cli, "--order %s: it must be some of random,bursty,drifting", orders);
    if (!parse_policy(policy, o))
        return cli_mistake(
            cli, "--policy %s: it must be static, static=S with S above 0, per-category, risk or imported", policy);
    if (o->import_seed && !o->policies[EVAL_IMPORTED])
        return cli_mistake(cli, "--import-seed goes with --policy imported, or without --policy");
    return 0;
}

static int load_and_evaluate(struct cli *cli, const struct eval_options *options, const struct stream_columns *columns)
{
    struct quire_error err;
    struct evaluation *e = calloc(1, sizeof *e);
    int rc = e ? 0 : error_set(&err, QUIRE_ENOMEM, "no memory for counts");
    if (rc == 0 && options->svg)
        rc = cli_refuse_existing(options->svg, &err);
    if (rc == 0) {
        e->options = *options;
        e->cli = cli;
        e->err = &err;
        cli_may_end(true);
        rc = stream_load(cli->arguments[0], cli->arguments[1], columns, &e->data, &err);
        cli_may_end(false);
    }
    if (rc == 0) {
        rc = evaluate(e);
        if (rc == 0 && options->svg)
            rc = eval_figure_draw(&e->figure, options, &err);
        stream_free(&e->data);
    }
    free(e);
    return cli_end(cli, rc, &err);
}

enum insert { INSERT_ALL, INSERT_MISSES };
static const struct cli_choice inserts[] = {{"all", INSERT_ALL}, {"misses", INSERT_MISSES}, {0}};

int quire_cache_eval_verb(int argc, char **argv)
{
    struct cli cli;
    int code, insert = INSERT_ALL;
    struct eval_options o = {.guards = "none"};
    uint64_t category = 1, answer = 2, text = 3;
    const char *nothing = NULL, *deltas = "0.01,0.02,0.05", *seeds = "1-5", *orders = "random", *policy = NULL;
    const struct cli_option options[] = {
        CLI_OPTION("category-column", CLI_COUNT, &category, "N", "of DATA.tsv, from 1", CLI_RANGE(1, 1000)),
        CLI_OPTION("answer-column", CLI_COUNT, &answer, "N", "rows of one category and answer may answer each other",
                   CLI_RANGE(1, 1000)),
        CLI_OPTION("text-column", CLI_COUNT, &text, "N", "the question in words", CLI_RANGE(1, 1000)),
        CLI_OPTION("nothing", CLI_TEXT, &nothing, "NAME", "a category whose rows are right for no other row"),
        CLI_OPTION("policy", CLI_TEXT, &policy, "P",
                   "static=S; static, per-category: best in hindsight; risk; imported: risk and with curves"),
        CLI_OPTION("delta", CLI_TEXT, &deltas, "D,...", "budgets: wrong answers per request"),
        CLI_OPTION("order", CLI_TEXT, &orders, "NAME,...", "random, bursty, drifting; the figure has the first one"),
        CLI_OPTION("seeds", CLI_TEXT, &seeds, "N-M", "streams: the same seed, the same order and draws"),
        CLI_OPTION("import-seed", CLI_COUNT, &o.import_seed, "N", "whose curves are imported; 0: the next seed's",
                   CLI_RANGE(0, UINT32_MAX - 1)),
        CLI_OPTION("guards", CLI_TEXT, &o.guards, "NAMES",
                   "none, all, or some of number,negation,literal,date,language"),
        CLI_OPTION("noise", CLI_REAL, &o.noise, "P", "share of labels that are wrong", CLI_RANGE(0, 1)),
        CLI_OPTION("insert", CLI_CHOICE, &insert, NULL, "rows that are put; all is what hindsight knows",
                   .choices = inserts),
        CLI_OPTION("svg", CLI_TEXT, &o.svg, "FILE", "a figure: served and wrong along the stream"),
    };
    const struct cli_verb verb = {
        "quire cache-eval", summary, "DATA.tsv DATA.fbin", 2, options, sizeof options / sizeof *options, examples};
    if (!cli_parse(&cli, &verb, argc, argv, &code))
        return code;
    code = check(&cli, &o, deltas, seeds, orders, policy);
    if (code != 0)
        return code;
    o.only_misses = insert == INSERT_MISSES;
    return load_and_evaluate(&cli, &o,
                             &(struct stream_columns){(unsigned)category, (unsigned)answer, (unsigned)text, nothing});
}
