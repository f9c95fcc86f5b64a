/*
 * risk.h - the threshold of a category from an error budget: what share of requests may get a wrong answer.
 *
 * Requests and labelled pairs (similarity, right or wrong) are counted in bins of similarity; from them an upper bound
 * on the wrong answers that each threshold would let through, and the lowest threshold whose bound is within the
 * budget. Old labels and requests fade, so that the curve follows drift. Categories of one cache lend each other
 * strength while they have few labels of their own. docs/thresholds.md has the derivation and the measurements.
 *
 * Plain state without locks or clock: the caller's. A curve is a function of what was put in.
 */
#ifndef QUIRE_CACHE_RISK_H
#define QUIRE_CACHE_RISK_H

#include "quire.h"

#define RISK_BIN_WIDTH 0.0025f
#define RISK_BINS      401u  /* 0 .. 1 */
#define RISK_NOTHING   1.01f /* a threshold that no similarity reaches */

enum risk_source {
    RISK_AUDIT,   /* a would-be hit that was answered by the model instead */
    RISK_MISS,    /* a sampled miss: what the best candidate would have been */
    RISK_FEEDBACK /* SC.FEEDBACK, of an answer that was served */
};

struct risk_pool;  /* of a cache: what its categories share */
struct risk_curve; /* of a category */

int risk_pool_create(struct risk_pool **out);
void risk_pool_destroy(struct risk_pool *pool); /* after its curves; NULL is fine */
int risk_curve_create(struct risk_pool *pool, struct risk_curve **out);
void risk_curve_destroy(struct risk_curve *curve); /* NULL is fine */

struct risk_settings {
    double delta;       /* wrong answers among all requests */
    double audit;       /* share of would-be hits that are audited in the steady state; 0: chosen by the rule */
    double floor, ceil; /* the threshold stays between them, once there is one (before: RISK_NOTHING). A ceil below 1
                           is the user's word for what lies above it: it is served, whatever the bound says */
};

/* A request was made; `best` is the similarity of its best candidate (after guards), negative: none. What to do with
 * it, given a uniform random number 0..1: */
enum risk_verdict {
    RISK_SERVE,      /* best reaches the threshold */
    RISK_AUDIT_HIT,  /* it does, but it is to be labelled: the model answers (weight is *weight) */
    RISK_WITHHOLD,   /* it does not */
    RISK_SAMPLE_MISS /* it does not, and the pair is to be labelled: the model answers anyway */
};
enum risk_verdict risk_request(struct risk_curve *curve, const struct risk_settings *settings, double best,
                               double random, double *weight);
/* A label: the pair was right or wrong. weight: as risk_request gave it; 1 for feedback. Of feedback only what was
 * wrong moves the curve, as a lower bound: it is no fair sample. */
void risk_label(struct risk_curve *curve, enum risk_source source, double similarity, double weight, bool right);
/* The threshold in force for `settings` (delta may be relaxed by load: the same curve, another budget). Cheap. */
double risk_threshold(struct risk_curve *curve, const struct risk_settings *settings);

struct risk_point {
    float similarity; /* lower border of the bin */
    double served;    /* share of requests that this threshold would serve */
    double wrong;     /* estimated share of requests that it would serve wrongly */
    double bound;     /* the upper bound that the rule compares with delta */
};
/* Points of the curve from 1.0 down to the floor, one per bin that holds anything; returns how many (<= capacity). */
uint32_t risk_points(const struct risk_curve *curve, const struct risk_settings *settings, struct risk_point *points,
                     uint32_t capacity);
struct risk_stats {
    uint64_t requests, labels, wrong_labels, audits, miss_samples, feedback;
    double window;       /* requests that count at present, decayed */
    double wrong_served; /* estimate of the wrong answers served so far, from the weights of audits alone */
};
void risk_get_stats(const struct risk_curve *curve, struct risk_stats *out);

/* The curve as bytes, for the journal and SC.EXPORT, little-endian with a version. save: returns the bytes it takes
 * (<= RISK_BYTES). load: QUIRE_EFORMAT, QUIRE_EVERSION. imported: as experience from elsewhere, a prior that the
 * category's own labels outweigh; otherwise as the very same state. */
#define RISK_BYTES 16384u
uint32_t risk_save(const struct risk_curve *curve, uint8_t out[RISK_BYTES]);
int risk_load(struct risk_curve *curve, const uint8_t *bytes, uint32_t n, bool imported, struct quire_error *err);

#endif
