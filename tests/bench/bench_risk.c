/*
 * bench_risk.c - the tables of docs/thresholds.md: what the threshold from an error budget serves, and at what error.
 *
 *   bench_risk stream TSV FBIN ORDER FIRST SEEDS [NOISE]   ORDER random, bursty, drifting; seeds FIRST .. (<= 40);
 *                                                          NOISE: share of labels that are flipped. Budgets of
 *                                                          1, 2, 5 %, from a cold start and with the curves that
 *                                                          the next seed of the list (the last: the first) exported
 *   bench_risk each TSV FBIN ORDER FIRST SEEDS [NOISE]     the same, a line per seed
 *   bench_risk hindsight TSV FBIN FIRST SEEDS              second halves, random order: what thresholds per category
 *                                                          found by hindsight serve, over the best static one's share
 *   bench_risk bounds TSV FBIN FIRST SEEDS [GUARDS [NAME]] all orders and budgets from a cold start, a line per run:
 *                                                          is the bound kept on the whole stream and on its second
 *                                                          half, and what is served beside the best static
 *                                                          threshold in hindsight; GUARDS none (default), all or one
 *   bench_risk known RUNS                                  random curves whose truth is known: 18 shapes and budgets
 *
 * TSV and FBIN: clinc150.tsv and .fbin, or any set with its columns (category second, answer third, text fourth;
 * category `oos`: nothing is right). "wrong" is in units of the budget; "broken": streams that are above it as a whole
 * or in their second half. It checks nothing; test_risk asserts seeds 1-5.
 */
#include "cache/guard/guard.h"
#include "tests/cache/support_risk.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEEDS_MAX 40u

static const double deltas[] = {0.01, 0.02, 0.05};

struct streams {
    uint32_t n, rows, categories, first;
    struct stream_request *requests[SEEDS_MAX];
    bool each;
    double noise;
    unsigned guards;
};

static void fail(const char *message)
{
    fprintf(stderr, "%s\n", message);
    exit(1);
}

static void *room(size_t n, size_t size)
{
    void *p = calloc(n, size);
    if (!p)
        fail("no memory");
    return p;
}

static void load(char **files, enum stream_order order, struct streams *out)
{
    static const struct stream_columns columns = {.category = 2, .answer = 3, .text = 4, .nothing = "oos"};
    struct stream_data data;
    struct quire_error err;
    uint32_t *orders[SEEDS_MAX];
    if (stream_load(files[0], files[1], &columns, &data, &err) < 0)
        fail(err.message);
    if (out->n == 0 || out->n > SEEDS_MAX || data.n_categories > PLAY_CATEGORIES_MAX)
        fail("1 to 40 seeds, and at most 64 categories");
    out->rows = data.rows;
    out->categories = data.n_categories;
    for (uint32_t i = 0; i < out->n; i++) {
        orders[i] = room(data.rows, sizeof *orders[i]);
        out->requests[i] = room(data.rows, sizeof *out->requests[i]);
        if (stream_order(&data, order, out->first + i, orders[i]) < 0)
            fail("no memory");
    }
    if (play_nearest(&data, (const uint32_t *const *)orders, out->n, out->guards, out->requests) < 0)
        fail("no memory");
    for (uint32_t i = 0; i < out->n; i++)
        free(orders[i]);
    stream_free(&data);
}

struct exported {
    uint8_t bytes[PLAY_CATEGORIES_MAX][RISK_BYTES];
    uint32_t size[PLAY_CATEGORIES_MAX];
};

/* One stream with curves of its own, which begin with `from` (NULL: cold) and are left in `to` (NULL: nowhere). */
static struct play_outcome play(const struct stream_request *requests, uint32_t n, uint32_t categories, double delta,
                                double noise, uint64_t seed, const struct exported *from, struct exported *to)
{
    struct risk_pool *pool;
    struct risk_curve *curves[PLAY_CATEGORIES_MAX];
    if (risk_pool_create(&pool) < 0)
        fail("no memory");
    for (uint32_t i = 0; i < categories; i++)
        if (risk_curve_create(pool, &curves[i]) < 0 ||
            (from && risk_load(curves[i], from->bytes[i], from->size[i], true, NULL) < 0))
            fail("no memory, or a curve that cannot be read back");
    struct play_outcome outcome = play_stream(curves, requests, n, delta, noise, seed);
    if (outcome.faults)
        fail("the rule served below its own threshold, or gave a weight below 1");
    for (uint32_t i = 0; i < categories; i++) {
        if (to)
            to->size[i] = risk_save(curves[i], to->bytes[i]);
        risk_curve_destroy(curves[i]);
    }
    risk_pool_destroy(pool);
    return outcome;
}

struct account {
    double runs, ratio, least_ratio, less, whole, whole_most, half, half_most, broken, served, best, labels,
        labels_most, audits, category_most;
};

static void count(struct account *a, const struct play_outcome *o, const struct stream_request *second, uint32_t n,
                  uint32_t categories, double delta)
{
    double best = play_best_static(second, (uint32_t)o->requests[1], delta), served = o->served[1] / o->requests[1];
    double ratio = best > 0 ? served / best : 1, labels = o->labels / n;
    double whole = (o->wrong[0] + o->wrong[1]) / n / delta, half = o->wrong[1] / o->requests[1] / delta;
    a->least_ratio = a->runs > 0 ? fmin(a->least_ratio, ratio) : ratio;
    a->runs++;
    a->ratio += ratio;
    a->less += ratio < 1;
    a->whole += whole;
    a->whole_most = fmax(a->whole_most, whole);
    a->half += half;
    a->half_most = fmax(a->half_most, half);
    a->broken += whole > 1 || half > 1;
    a->served += served;
    a->best += best;
    a->labels += labels;
    a->labels_most = fmax(a->labels_most, labels);
    a->audits += o->audits[1] / o->requests[1];
    for (uint32_t i = 0; i < categories; i++)
        if (o->category_requests[i] > 0)
            a->category_most = fmax(a->category_most, o->category_wrong[i] / o->category_requests[i] / delta);
}

static void print(const char *name, double delta, const struct account *a)
{
    double n = a->runs;
    printf("%s %.0f %%: served %.3f, best static %.3f, ratio %.3f (least %.3f, below 1 in %.0f of %.0f); "
           "wrong, whole %.2f (most %.2f), second half %.2f (most %.2f), broken %.0f; "
           "labelled %.3f (most %.3f), audits in the second half %.3f; worst category %.1f\n",
           name, delta * 100, a->served / n, a->best / n, a->ratio / n, a->least_ratio, a->less, n, a->whole / n,
           a->whole_most, a->half / n, a->half_most, a->broken, a->labels / n, a->labels_most, a->audits / n,
           a->category_most);
}

static void measure(const struct streams *s, double delta)
{
    struct exported *exported = room(s->n, sizeof *exported);
    for (unsigned imported = 0; imported < 2; imported++) {
        const char *name = imported ? "imported" : "cold";
        struct account all = {0};
        for (uint32_t i = 0; i < s->n; i++) {
            const struct exported *from = imported ? &exported[(i + 1) % s->n] : NULL;
            struct play_outcome outcome = play(s->requests[i], s->rows, s->categories, delta, s->noise, s->first + i,
                                               from, imported ? NULL : &exported[i]);
            struct account one = {0}, *accounts[] = {&one, &all};
            for (unsigned k = 0; k < 2; k++)
                count(accounts[k], &outcome, s->requests[i] + s->rows / 2, s->rows, s->categories, delta);
            if (s->each) {
                printf("seed %u, ", s->first + i);
                print(name, delta, &one);
            }
        }
        print(name, delta, &all);
    }
    free(exported);
}

/* The same for one category of a stream: what a threshold chosen by hindsight serves, in requests. */
static double hindsight_of(const struct stream_request *requests, uint32_t n, uint32_t category, double delta)
{
    struct stream_request *own = room(n, sizeof *own);
    uint32_t rows = 0;
    for (uint32_t i = 0; i < n; i++)
        if (requests[i].category == category)
            own[rows++] = requests[i];
    double served = rows > 0 ? play_best_static(own, rows, delta) * rows : 0;
    free(own);
    return served;
}

static void hindsight(const struct streams *s)
{
    for (size_t d = 0; d < sizeof deltas / sizeof *deltas; d++)
        for (unsigned tenths = 10; tenths >= 7; tenths--) {
            double ratio = 0, least = INFINITY;
            for (uint32_t i = 0; i < s->n; i++) {
                const struct stream_request *second = s->requests[i] + s->rows / 2;
                uint32_t n = s->rows - s->rows / 2;
                double served = 0;
                for (uint32_t c = 0; c < s->categories; c++)
                    served += hindsight_of(second, n, c, deltas[d] * tenths / 10) / n;
                served /= play_best_static(second, n, deltas[d]);
                ratio += served / s->n;
                least = fmin(least, served);
            }
            printf("%.0f %%, %u tenths of it: ratio %.3f (least %.3f)\n", deltas[d] * 100, tenths, ratio, least);
        }
}

static void known(uint32_t runs)
{
    static const struct {
        uint32_t categories, each;
    } shapes[] = {{1, 300}, {1, 2000}, {1, 10000}, {10, 300}, {10, 2000}, {50, 300}};
    for (size_t shape = 0; shape < sizeof shapes / sizeof *shapes; shape++) {
        uint32_t categories = shapes[shape].categories, n = categories * shapes[shape].each;
        struct stream_request *requests = room(n, sizeof *requests);
        struct account accounts[sizeof deltas / sizeof *deltas] = {0};
        double whole[sizeof deltas / sizeof *deltas] = {0};
        for (uint32_t run = 0; run < runs; run++) {
            struct random random;
            random_init(&random, random_mix(shape * 1000 + run));
            play_make_stream(&random, categories, n, requests);
            for (size_t d = 0; d < sizeof deltas / sizeof *deltas; d++) {
                struct play_outcome o = play(requests, n, categories, deltas[d], 0, run, NULL, NULL);
                count(&accounts[d], &o, requests + n / 2, n, categories, deltas[d]);
                whole[d] += o.wrong[0] + o.wrong[1] > deltas[d] * n;
            }
        }
        for (size_t d = 0; d < sizeof deltas / sizeof *deltas; d++) {
            printf("%u x %u, whole stream broken in %.0f, ", categories, shapes[shape].each, whole[d]);
            print("cold", deltas[d], &accounts[d]);
        }
        free(requests);
    }
}

static unsigned guards_of(const char *name)
{
    unsigned mask = strcmp(name, "all") == 0 ? GUARD_ALL : guard_find((struct quire_bytes){name, strlen(name)});
    if (mask == 0 && strcmp(name, "none") != 0)
        fail("guards are none, all, number, negation, literal, date or language");
    return mask;
}

/* The rows of one order and budget: every run, then what is worst among them. */
static void measure_bounds(const struct streams *s, double delta, const char *name, const char *order,
                           const char *guards)
{
    double least = INFINITY, worst[2] = {0}, sum[5] = {0};
    uint32_t broken = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        const uint32_t n = s->rows, half = n - n / 2;
        struct play_outcome o = play(s->requests[i], n, s->categories, delta, 0, s->first + i, NULL, NULL);
        double whole = (o.wrong[0] + o.wrong[1]) / n, second = o.wrong[1] / half, all = o.served[0] + o.served[1];
        double best = play_best_static(s->requests[i], n, delta), served = all / n;
        double best_half = play_best_static(s->requests[i] + n / 2, half, delta), served_half = o.served[1] / half;
        double ratio = best_half > 0 ? served_half / best_half : 1;
        bool kept = whole <= delta && second <= delta;
        if (s->each)
            printf("| %s | %s | %s | %.0f %% | %u | %.2f %% | %.2f %% | %s | %.3f | %.2f | %.3f | %.2f | %.1f %% |\n",
                   name, order, guards, 100 * delta, s->first + i, 100 * whole, 100 * second,
                   kept ? "kept" : "**broken**", served, best > 0 ? served / best : 1, served_half, ratio,
                   100 * o.labels / n);
        broken += !kept;
        worst[0] = fmax(worst[0], whole / delta);
        worst[1] = fmax(worst[1], second / delta);
        least = fmin(least, ratio);
        const double add[] = {whole, second, served, served_half, ratio};
        for (unsigned k = 0; k < 5; k++)
            sum[k] += add[k] / s->n;
    }
    printf(
        "| %s | %s | %s | %.0f %% | all %u | %.2f %% | %.2f %% | %u broken; worst %.2f, %.2f | %.3f | | %.3f | %.2f, "
        "least %.2f | |\n",
        name, order, guards, 100 * delta, s->n, 100 * sum[0], 100 * sum[1], broken, worst[0], worst[1], sum[2], sum[3],
        sum[4], least);
    fflush(stdout);
}

static enum stream_order order_of(const char *name)
{
    static const char *const names[] = {"random", "bursty", "drifting"};
    for (unsigned i = 0; i < 3; i++)
        if (strcmp(name, names[i]) == 0)
            return (enum stream_order)i;
    fail("an order is random, bursty or drifting");
    return STREAM_RANDOM;
}

static void bounds(char **files, uint32_t first, uint32_t seeds, const char *guards, const char *name)
{
    static const char *const orders[] = {"random", "bursty", "drifting"};
    for (unsigned order = 0; order < 3; order++) {
        struct streams s = {.n = seeds, .first = first, .each = true, .guards = guards_of(guards)};
        load(files, order_of(orders[order]), &s);
        for (size_t d = 0; d < sizeof deltas / sizeof *deltas; d++)
            measure_bounds(&s, deltas[d], name, orders[order], guards);
        for (uint32_t i = 0; i < s.n; i++)
            free(s.requests[i]);
    }
}

int main(int argc, char **argv)
{
    struct streams s = {0};
    const char *mode = argc > 1 ? argv[1] : "";
    s.each = strcmp(mode, "each") == 0;
    if (argc == 3 && strcmp(mode, "known") == 0) {
        known((uint32_t)strtoul(argv[2], NULL, 10));
    } else if (argc >= 6 && argc <= 8 && strcmp(mode, "bounds") == 0) {
        bounds(argv + 2, (uint32_t)strtoul(argv[4], NULL, 10), (uint32_t)strtoul(argv[5], NULL, 10),
               argc > 6 ? argv[6] : "none", argc > 7 ? argv[7] : argv[2]);
    } else if (argc == 6 && strcmp(mode, "hindsight") == 0) {
        s.first = (uint32_t)strtoul(argv[4], NULL, 10);
        s.n = (uint32_t)strtoul(argv[5], NULL, 10);
        load(argv + 2, STREAM_RANDOM, &s);
        hindsight(&s);
    } else if ((argc == 7 || argc == 8) && (s.each || strcmp(mode, "stream") == 0)) {
        s.first = (uint32_t)strtoul(argv[5], NULL, 10);
        s.n = (uint32_t)strtoul(argv[6], NULL, 10);
        s.noise = argc == 8 ? strtod(argv[7], NULL) : 0;
        load(argv + 2, order_of(argv[4]), &s);
        for (size_t d = 0; d < sizeof deltas / sizeof *deltas; d++)
            measure(&s, deltas[d]);
    } else {
        fail("bench_risk stream|each TSV FBIN ORDER FIRST SEEDS [NOISE] | hindsight TSV FBIN FIRST SEEDS | bounds TSV "
             "FBIN "
             "FIRST SEEDS [GUARDS [NAME]] | known RUNS");
    }
    for (uint32_t i = 0; i < s.n; i++)
        free(s.requests[i]);
    return 0;
}
