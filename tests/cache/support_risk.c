/*
 * support_risk.c - streams of requests played against curves, and the best that hindsight finds.
 *
 * Used by test_risk.c, which asserts a few seeds, and by tests/bench/bench_risk.c, which prints the tables of
 * docs/thresholds.md: both measure the same thing in the same way. Nothing here asserts; what a correct rule never
 * does is counted in `faults`.
 */
#include "tests/cache/support_risk.h"
#include "cache/guard/guard.h"
#include "index/kernels/kernels.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

double play_uniform(struct random *random)
{
    return (double)(random_next(random) >> 11) * 0x1p-53;
}

struct risk_settings play_settings(double delta)
{
    return (struct risk_settings){.delta = delta, .floor = 0.5, .ceil = 1};
}

struct play_outcome play_stream(struct risk_curve *const *curves, const struct stream_request *requests, uint32_t n,
                                double delta, double noise, uint64_t seed)
{
    struct play_outcome outcome = {0};
    struct risk_settings settings = play_settings(delta);
    struct random random;
    random_init(&random, random_mix(seed));
    for (uint32_t i = 0; i < n; i++) {
        const struct stream_request *request = &requests[i];
        struct risk_curve *curve = curves[request->category];
        unsigned half = i >= n / 2;
        double weight, similarity = (double)request->similarity;
        enum risk_verdict verdict = risk_request(curve, &settings, similarity, play_uniform(&random), &weight);
        outcome.requests[half]++;
        outcome.category_requests[request->category]++;
        if (verdict == RISK_SERVE) {
            outcome.faults += similarity < risk_threshold(curve, &settings) ? 1u : 0u;
            outcome.served[half]++;
            outcome.wrong[half] += !request->right;
            outcome.category_wrong[request->category] += !request->right;
        } else if (verdict != RISK_WITHHOLD) {
            bool flipped = noise > 0 && play_uniform(&random) < noise;
            outcome.faults += weight >= 1 ? 0u : 1u;
            outcome.labels++;
            outcome.audits[half] += verdict == RISK_AUDIT_HIT;
            risk_label(curve, verdict == RISK_AUDIT_HIT ? RISK_AUDIT : RISK_MISS, similarity, weight,
                       request->right != flipped);
        }
    }
    return outcome;
}

double play_best_static(const struct stream_request *requests, uint32_t n, double delta)
{
    enum { STEPS = 4000u };
    static uint32_t wrong[STEPS + 1], all[STEPS + 1];
    double bad = 0, served = 0, best = 0;
    memset(wrong, 0, sizeof wrong);
    memset(all, 0, sizeof all);
    for (uint32_t i = 0; i < n; i++)
        if (requests[i].similarity >= 0) {
            unsigned step = (unsigned)fminf(requests[i].similarity * STEPS, STEPS);
            all[step]++;
            wrong[step] += requests[i].right ? 0u : 1u;
        }
    for (int step = STEPS; step >= 0; step--) {
        bad += wrong[step];
        served += all[step];
        if (bad <= delta * n)
            best = fmax(best, served);
    }
    return best / n;
}

/* ---- guards ---- */

struct guarded {
    const struct stream_data *data;
    unsigned mask;
    uint8_t (*features)[GUARD_BYTES]; /* of each row, and how many bytes */
    uint32_t *bytes, *members;
    uint32_t *places; /* places[o * rows + row]: where the row stands in order o */
    float *products;
    uint8_t *verdicts; /* of the guards on a row and each member, once one of the orders has asked: 1 yes, 2 no */
};

static int guarded_init(struct guarded *g, const uint32_t *const *orders, uint32_t n_orders)
{
    struct guard_tables *tables = NULL;
    const size_t rows = g->data->rows;
    g->features = calloc(rows, sizeof *g->features);
    g->bytes = calloc(rows, sizeof *g->bytes);
    g->places = calloc(rows * n_orders, sizeof *g->places);
    g->members = calloc(rows, sizeof *g->members);
    g->products = calloc(rows, sizeof *g->products);
    g->verdicts = calloc(rows, sizeof *g->verdicts);
    if (!g->features || !g->bytes || !g->places || !g->members || !g->products || !g->verdicts ||
        guard_tables_load(NULL, &tables, NULL) < 0)
        return QUIRE_ENOMEM;
    for (size_t i = 0; i < rows; i++)
        g->bytes[i] =
            guard_features(tables, (struct quire_bytes){g->data->texts[i], strlen(g->data->texts[i])}, g->features[i]);
    guard_tables_free(tables);
    for (size_t o = 0; o < n_orders; o++)
        for (uint32_t i = 0; i < rows; i++)
            g->places[o * rows + orders[o][i]] = i;
    return 0;
}

static void guarded_free(struct guarded *g)
{
    free(g->features);
    free(g->bytes);
    free(g->places);
    free(g->members);
    free(g->products);
    free(g->verdicts);
}

static bool guarded_agree(const struct guarded *g, uint32_t row, uint32_t member)
{
    uint32_t other = g->members[member];
    enum guard_kind kind;
    if (!g->verdicts[member])
        g->verdicts[member] =
            guard_agree(g->features[row], g->bytes[row], g->features[other], g->bytes[other], g->mask, &kind, NULL) ? 1
                                                                                                                    : 2;
    return g->verdicts[member] == 1;
}

/* The same rule as stream_nearest's, over those members that came earlier and that the guards let through. */
static void guarded_find(const struct guarded *g, const uint32_t *place, uint32_t row, uint32_t count,
                         struct stream_request *requests)
{
    const struct stream_data *data = g->data;
    struct stream_request request = {.category = data->category[row], .similarity = -1};
    uint32_t best = row;
    for (uint32_t i = 0; i < count; i++)
        if (g->products[i] > request.similarity && place[g->members[i]] < place[row] && guarded_agree(g, row, i)) {
            request.similarity = g->products[i];
            best = g->members[i];
        }
    request.similarity = fminf(request.similarity, 1);
    request.right = best != row && data->answer[row] != STREAM_NO_ANSWER && data->answer[best] == data->answer[row];
    requests[place[row]] = request;
}

int play_nearest(const struct stream_data *data, const uint32_t *const *orders, uint32_t n_orders, unsigned mask,
                 struct stream_request *const *requests)
{
    struct guarded g = {.data = data, .mask = mask};
    const float *floats = data->vectors.data;
    const size_t dim = data->vectors.dim;
    int rc = mask ? guarded_init(&g, orders, n_orders) : stream_nearest(data, orders, n_orders, requests, NULL);
    for (uint32_t category = 0; rc == 0 && mask && category < data->n_categories; category++) {
        uint32_t count = 0;
        for (uint32_t row = 0; row < data->rows; row++)
            if (data->category[row] == category)
                g.members[count++] = row;
        for (uint32_t k = 0; k < count; k++) {
            uint32_t row = g.members[k];
            memset(g.verdicts, 0, count);
            for (uint32_t i = 0; i < count; i++)
                g.products[i] = kernels()->f32_dot(floats + row * dim, floats + g.members[i] * dim, dim);
            for (size_t o = 0; o < n_orders; o++)
                guarded_find(&g, g.places + o * data->rows, row, count, requests[o]);
        }
    }
    guarded_free(&g);
    return rc;
}

void play_make_stream(struct random *random, uint32_t categories, uint32_t n, struct stream_request *out)
{
    double middle[PLAY_CATEGORIES_MAX], slope[PLAY_CATEGORIES_MAX], least[PLAY_CATEGORIES_MAX],
        mean[PLAY_CATEGORIES_MAX];
    for (uint32_t c = 0; c < categories; c++) {
        middle[c] = 0.45 + 0.45 * play_uniform(random);
        slope[c] = 8 + 60 * play_uniform(random) * play_uniform(random);
        least[c] = play_uniform(random) < 0.08  ? 1
                   : play_uniform(random) < 0.5 ? 0
                                                : 0.06 * play_uniform(random) * play_uniform(random);
        mean[c] = 0.6 + 0.3 * play_uniform(random);
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t c = (uint32_t)random_below(random, categories);
        double similarity = mean[c] + (play_uniform(random) + play_uniform(random) + play_uniform(random) - 1.5) * 0.7;
        similarity = fmin(1, fmax(0, similarity > 1 ? 1.7 - 0.7 * similarity : similarity));
        double wrong = least[c] + (1 - least[c]) / (1 + exp(slope[c] * (similarity - middle[c])));
        out[i] = (struct stream_request){c, (float)similarity, play_uniform(random) >= wrong};
    }
}
