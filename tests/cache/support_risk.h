/*
 * support_risk.h - streams of requests played against curves: what test_risk.c checks and bench_risk.c measures.
 */
#ifndef QUIRE_TESTS_SUPPORT_RISK_H
#define QUIRE_TESTS_SUPPORT_RISK_H

#include "cache/policy/risk.h"
#include "datasets/stream.h"
#include "io/random.h"

#define PLAY_CATEGORIES_MAX 64u

/* Counts of requests; [0] and [1]: first and second half of the stream. */
struct play_outcome {
    double requests[2], served[2], wrong[2], audits[2], labels;
    double category_requests[PLAY_CATEGORIES_MAX], category_wrong[PLAY_CATEGORIES_MAX];
    uint32_t faults; /* answers served below the threshold, weights below 1: none in a correct rule */
};

/* 0..1 */
double play_uniform(struct random *random);
/* Floor 0.5, no ceiling, labels as the rule wants them. */
struct risk_settings play_settings(double delta);
/* Plays n requests against curves[category]; every label is flipped with probability `noise`. */
struct play_outcome play_stream(struct risk_curve *const *curves, const struct stream_request *requests, uint32_t n,
                                double delta, double noise, uint64_t seed);
/* As stream_nearest, for a cache whose guards are those of `mask`: the nearest earlier row that they let through. */
int play_nearest(const struct stream_data *data, const uint32_t *const *orders, uint32_t n_orders, unsigned mask,
                 struct stream_request *const *requests);
/* The largest share of the requests that one threshold serves with at most delta * n wrong, found by hindsight. */
double play_best_static(const struct stream_request *requests, uint32_t n, double delta);
/* A stream with random curves of right and wrong: some with a floor, one category in twelve where nothing is right. */
void play_make_stream(struct random *random, uint32_t categories, uint32_t n, struct stream_request *out);

#endif
