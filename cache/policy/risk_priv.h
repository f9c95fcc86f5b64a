/*
 * risk_priv.h - what the parts of risk share: a curve's state, the pool's sums, the fit.
 *
 * risk.c asks and counts, risk_fit.c draws the bound from the counts, risk_bytes.c saves and loads. Everything of
 * `struct risk_state` is saved; what is not in there is derived from it.
 */
#ifndef QUIRE_CACHE_RISK_PRIV_H
#define QUIRE_CACHE_RISK_PRIV_H

#include "cache/policy/risk.h"

/* A category is believed to differ from the others by a shift and a tilt of its log-odds; beliefs lie on this grid. */
#define RISK_SHIFTS      41u
#define RISK_TILTS       11u
#define RISK_BELIEFS     (RISK_SHIFTS * RISK_TILTS)
#define RISK_TABLE       1024u /* steps of the tables of the logistic function, over -16 .. 16 */
#define RISK_REBUILD_MIN 50u   /* requests between two fits, in the beginning */
#define RISK_REBUILD_MAX 500u  /* and later at most */

/* Sums of floats that only ever grow by 1 or shrink by a factor: exact enough, half the bytes, saved as they are. */
struct risk_state {
    float seen[RISK_BINS];                       /* requests by the similarity of their best candidate */
    float labels[RISK_BINS];                     /* audits and sampled misses */
    float wrong[RISK_BINS];                      /* of them */
    float bad[RISK_BINS];                        /* answers that were served and called wrong by FEEDBACK */
    float estimate[RISK_BINS], bound[RISK_BINS]; /* wrong answers per request, at a threshold of the bin's lower border;
                                                    the bound never falls from a bin to the one below */
    float probability[RISK_BINS];                /* of being labelled */
    float rate[RISK_BINS];                       /* expected share of wrong ones among labels of the bin */
    float belief[RISK_BELIEFS];                  /* posterior, sums to 1; all zero before the first fit */
    float belief_weight;                         /* how much it counts among the beliefs of the pool */
    float window;                                /* requests, faded like seen */
    float experience;                            /* requests that an imported curve stands for */
    uint32_t since;                              /* requests since the last fit */
    struct risk_stats stats;
};

struct risk_pool {
    double labels[RISK_BINS], wrong[RISK_BINS]; /* of all curves */
    double belief[RISK_BELIEFS], weight;        /* sum of belief_weight * belief, and of belief_weight */
    double requests, spread;                    /* of all curves: requests, sum of their spreads */
    double expected, observed;                  /* wrong labels lately, by the fits of their time and in truth */
    double start_belief[RISK_BELIEFS];          /* of a category when no other is known */
    float softplus[RISK_TABLE + 2], logistic[RISK_TABLE + 2];
};

struct risk_curve {
    struct risk_pool *pool;
    struct risk_state state;
    float spreads[RISK_BINS]; /* variance of the wrong answers among all its requests, at each threshold */
    double spread;            /* at the one in force at the last fit: its part of the pool's */
    double tau, tau_delta, tau_floor, tau_ceil; /* the last answer of risk_threshold; tau_delta negative: none */
};

/* Labels by which a pool sees that its fits lag behind; see risk_fit.c. */
#define RISK_LATE_LABELS 300.0
#define RISK_LATE_BINS   40u

static inline unsigned risk_bin(double similarity)
{
    double bin = similarity / (double)RISK_BIN_WIDTH + 1e-4; /* a border belongs to the bin above it */
    return bin <= 0 ? 0 : bin >= RISK_BINS - 1 ? RISK_BINS - 1 : (unsigned)bin;
}

void risk_pool_start(struct risk_pool *pool);
/* What the curve holds leaves or enters the sums of its pool. */
void risk_pool_add(struct risk_pool *pool, const struct risk_state *state, double sign);
/* Fades old counts and draws bound, estimate and probability anew. */
void risk_fit(struct risk_curve *curve, const struct risk_settings *settings);

#endif
