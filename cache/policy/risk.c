/*
 * risk.c - requests and labels of a category: what to do with each, and what is counted.
 *
 * A request costs a comparison of its bin with the threshold and of the caller's random number with the bin's
 * probability of being labelled. Both come from the last fit (risk_fit.c); a new one is made after 50 requests, later
 * after every 64th part of the requests so far, since by then a few more labels change little: the cost of fits per
 * request falls as the stream goes on, and drift is still seen within 500 requests.
 *
 * Whether a request is labelled depends on its similarity alone, never on the answer, so labels of a bin are a fair
 * sample of the bin and need no weights in the fit; the bin's share of all requests is counted exactly. The weights
 * (1 / probability) serve the second, model-free account: wrong_served, the wrong answers that were served by
 * Horvitz and Thompson's estimate (1952). FEEDBACK is no fair sample: people speak when something is wrong. What they
 * called wrong is a lower bound on the wrong answers at that similarity, and what they called right is only counted.
 */
#include "cache/policy/risk_priv.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define REBUILD_PART 64u

int risk_pool_create(struct risk_pool **out)
{
    struct risk_pool *pool = calloc(1, sizeof *pool);
    if (!pool)
        return QUIRE_ENOMEM;
    risk_pool_start(pool);
    *out = pool;
    return 0;
}

void risk_pool_destroy(struct risk_pool *pool)
{
    free(pool);
}

int risk_curve_create(struct risk_pool *pool, struct risk_curve **out)
{
    struct risk_curve *curve = calloc(1, sizeof *curve);
    if (!curve)
        return QUIRE_ENOMEM;
    curve->pool = pool;
    curve->tau_delta = -1;
    for (unsigned bin = 0; bin < RISK_BINS; bin++) {
        curve->state.bound[bin] = 1;
        curve->state.probability[bin] = bin >= RISK_BINS / 2 ? 0.5f : 0;
    }
    *out = curve;
    return 0;
}

void risk_curve_destroy(struct risk_curve *curve)
{
    if (!curve)
        return;
    risk_pool_add(curve->pool, &curve->state, -1);
    curve->pool->spread -= curve->spread;
    free(curve);
}

double risk_threshold(struct risk_curve *curve, const struct risk_settings *settings)
{
    if (curve->tau_delta == settings->delta && curve->tau_floor == settings->floor && curve->tau_ceil == settings->ceil)
        return curve->tau;
    unsigned bin = RISK_BINS, lowest = risk_bin(settings->floor);
    while (bin > lowest && (double)curve->state.bound[bin - 1] <= settings->delta)
        bin--;
    if (bin == RISK_BINS)
        curve->tau = (double)RISK_NOTHING;
    else
        curve->tau = fmin(fmax(bin * (double)RISK_BIN_WIDTH, settings->floor), settings->ceil);
    curve->tau_delta = settings->delta;
    curve->tau_floor = settings->floor;
    curve->tau_ceil = settings->ceil;
    return curve->tau;
}

enum risk_verdict risk_request(struct risk_curve *curve, const struct risk_settings *settings, double best,
                               double random, double *weight)
{
    struct risk_state *state = &curve->state;
    uint64_t part = state->stats.requests / REBUILD_PART;
    if (state->since >= (part < RISK_REBUILD_MIN   ? RISK_REBUILD_MIN
                         : part < RISK_REBUILD_MAX ? part
                                                   : RISK_REBUILD_MAX))
        risk_fit(curve, settings);
    state->since++;
    state->stats.requests++;
    curve->pool->requests++;
    state->window++;
    *weight = 1;
    if (best < 0)
        return RISK_WITHHOLD;
    unsigned bin = risk_bin(best);
    state->seen[bin]++;
    bool hit = best >= risk_threshold(curve, settings);
    double probability = (double)state->probability[bin];
    assert(probability >= 0 && probability <= 1);
    if (random >= probability)
        return hit ? RISK_SERVE : RISK_WITHHOLD;
    *weight = 1 / probability;
    if (hit)
        state->stats.audits++;
    else
        state->stats.miss_samples++;
    return hit ? RISK_AUDIT_HIT : RISK_SAMPLE_MISS;
}

void risk_label(struct risk_curve *curve, enum risk_source source, double similarity, double weight, bool right)
{
    struct risk_state *state = &curve->state;
    unsigned bin = risk_bin(similarity);
    assert(bin < RISK_BINS);
    if (source == RISK_FEEDBACK) {
        state->stats.feedback++;
        if (!right)
            state->bad[bin]++;
        return;
    }
    if (bin + RISK_LATE_BINS >= risk_bin(curve->tau) && curve->tau <= 1) {
        /* it was foretold by the last fit: the pool keeps account of how well */
        const double keep = 1 - 1 / RISK_LATE_LABELS;
        curve->pool->expected = keep * curve->pool->expected + (double)state->rate[bin];
        curve->pool->observed = keep * curve->pool->observed + (right ? 0 : 1);
    }
    state->stats.labels++;
    state->labels[bin]++;
    curve->pool->labels[bin]++;
    if (right)
        return;
    state->stats.wrong_labels++;
    state->wrong[bin]++;
    curve->pool->wrong[bin]++;
    if (source == RISK_AUDIT) /* this one was not served; those it stands for were */
        state->stats.wrong_served += weight - 1;
}

uint32_t risk_points(const struct risk_curve *curve, const struct risk_settings *settings, struct risk_point *points,
                     uint32_t capacity)
{
    const struct risk_state *state = &curve->state;
    double served = 0, window = fmax(1, (double)state->window);
    uint32_t n = 0;
    for (unsigned bin = RISK_BINS; bin-- > risk_bin(settings->floor) && n < capacity;) {
        served += (double)state->seen[bin];
        if (state->seen[bin] > 0 || state->labels[bin] > 0)
            points[n++] = (struct risk_point){.similarity = (float)bin * RISK_BIN_WIDTH,
                                              .served = served / window,
                                              .wrong = (double)state->estimate[bin],
                                              .bound = (double)state->bound[bin]};
    }
    return n;
}

void risk_get_stats(const struct risk_curve *curve, struct risk_stats *out)
{
    *out = curve->state.stats;
    out->window = (double)curve->state.window;
}
