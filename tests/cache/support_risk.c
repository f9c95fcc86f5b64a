/*
 * support_risk.c - streams of requests played against curves, and the best that hindsight finds.
 *
 * Used by test_risk.c, which asserts a few seeds, and by tests/bench/bench_risk.c, which prints the tables of
 * docs/thresholds.md: both measure the same thing in the same way. Nothing here asserts; what a correct rule never
 * does is counted in `faults`.
 */
#include "tests/cache/support_risk.h"
#include <math.h>
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
