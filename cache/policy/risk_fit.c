/*
 * risk_fit.c - from counts to the bound: a category's curve, as one that is like the others but shifted and tilted.
 *
 * Two thousand requests give a category some two hundred labels and ten wrong ones above its threshold: too few to
 * draw a curve from, enough to tell where it lies beside the curve of the others. So the log-odds of being wrong at
 * similarity s are taken as L(s) + shift + tilt (s - 0.8) / 0.2: L is the non-increasing fit (pool adjacent violators)
 * of all other categories' labels, leaning on the straight line in log-odds that fits them and a few made-up ones
 * best: the made-up ones are dark, so that little is served where nobody has looked. Shift and tilt lie on a grid;
 * beliefs about them begin as a mixture of a wide bell and of what is believed of the other categories (a category
 * like `nothing fits` has a place there, far from the rest), and are multiplied by the likelihood of the category's
 * own labels. What the grid cannot follow is made up for by the ratio of observed to expected wrong labels in pieces,
 * counted from the top, of at least fifteen labels and at most 0.1 of similarity. A ratio has a gamma distribution
 * around 1 before anything was seen, worth two wrong labels, or up to ten where the labels of others make the
 * expectation: without that, thresholds would follow the luck of few labels (the lowest of many noisy estimates is too
 * low). Its relative variance is 1 over the wrong labels and those. And since old labels make a fit lag behind, the
 * pool compares recent labels with what the fits of their time foretold: where more were wrong, all expectations of
 * all its curves rise by the ratio to the power of 1.5, for the comparison looks back too.
 *
 * At a threshold, every belief gives a number of wrong answers among the requests seen. M is their mean per request; V
 * its variance: over the beliefs, over the ratios of pieces, and the noise of the answers themselves in half of the
 * stream so far (a Poisson number, whose variance is its mean).
 *
 * The budget is kept for the whole cache, whose wrong answers are the sum over categories of requests x share, with
 * the standard deviation D = sqrt(sum of requests^2 V). Of Z_POOL D, a category takes the part requests^2 V / D^2; so
 * its bound is M + Z_POOL sqrt(V) (requests sqrt(V) / D). One category alone has the whole z, eleven alike 0.3 of it
 * each, since their errors average out. Half of its own deviation is added at least, more in the beginning, when a
 * threshold is chosen because its few labels happened to be right. After a start, categories that have not been fitted
 * yet are missing in D, so the others take more of z than they need: the safe side.
 *
 * Labels are bought where they tell most: with probability in proportion to sqrt(p (1 - p)) (Neyman, 1934), less for
 * hits, which cost an answer served, and less below the thresholds that may soon be chosen. Their rate falls with the
 * requests of the category, quickly at first and then slowly, and it is never below what the cache as a whole needs
 * after its number of requests: a single category has no others to learn from.
 */
#include "cache/policy/risk_priv.h"
#include <math.h>
#include <string.h>

#define GROUP_BINS   5u
#define GROUPS       ((RISK_BINS + GROUP_BINS - 1) / GROUP_BINS)
#define PIECE_GROUPS 8u

#define FADE_REQUESTS  2000.0  /* similarities of requests are remembered so long */
#define FADE_LABELS    2500.0  /* requests after which a label counts 1/e: these, and all there were, */
#define FADE_MOST      10000.0 /* but never more than so many */
#define Z_LATE         0.5     /* of a category's own deviation at least */
#define Z_EARLY        0.2     /* more of it, in the beginning */
#define Z_REQUESTS     100.0
#define Z_POOL         1.5    /* of the whole cache's */
#define MADE_UP        10.0   /* labels between 0.5 and 1 */
#define LINE_MIDDLE    0.4    /* share of them that is wrong at 0.8 */
#define LINE_TILT      (-0.6) /* of their log-odds, per 0.2 of similarity */
#define LINE_LABELS    200.0
#define SHIFT_LEAST    (-3.0)
#define SHIFT_STEP     0.25
#define SHIFT_SPREAD   1.5
#define TILT_LEAST     (-6.0)
#define TILT_STEP      0.8
#define TILT_SPREAD    1.0
#define START_WEIGHT   2.0 /* of the wide bell, in categories */
#define BELIEF_LABELS  20.0
#define BELIEF_LEAST   1e-6f
#define PIECE_PRIOR    2.0  /* expected wrong labels by which a piece's ratio leans on 1 at least, */
#define PIECE_MORE     8.0  /* and so many more where others make the expectation, */
#define PIECE_OTHERS   50.0 /* half of them at so many wrong labels of theirs */
#define PIECE_LABELS   15.0 /* labels of a piece at least, unless it is PIECE_GROUPS wide */
#define LABEL_EARLY    0.45
#define LABEL_EARLIER  400.0 /* requests of a category */
#define LABEL_SLOW     0.035
#define LABEL_SLOWER   4000.0
#define LABEL_POOL     0.12
#define LABEL_POOLED   4000.0 /* requests of the cache */
#define LABEL_LEAST    0.004
#define LABEL_IMPORTED 0.3 /* requests of an imported curve that count as requests for the rate of labels */
#define LABEL_MOST     0.5
#define LATE_START     8.0
#define LATE_POWER     1.5
#define HIT_FACTOR     0.85
#define HIT_LEAST      0.01
#define RELEVANT       1.5 /* times the budget: thresholds beyond that are looked at less */

struct fit {
    unsigned low_bin, low; /* lowest bin and group that may be served */
    double labels[GROUPS], wrong[GROUPS], seen[GROUPS], bad[GROUPS];
    double log_odds[GROUPS], tilt[GROUPS];               /* L(s), (s - 0.8) / 0.2 */
    double expected[GROUPS];                             /* mean of p(wrong) over the beliefs */
    double ratio[GROUPS];                                /* observed / expected, shrunk */
    double prior;                                        /* of ratios, in expected wrong labels */
    double doubt[GROUPS];                                /* relative variance of the ratio of the group's piece */
    bool piece[GROUPS];                                  /* the lowest group of a piece */
    double late;                                         /* what the pool has seen of drift, >= 1 */
    double mean[GROUPS], square[GROUPS], called[GROUPS]; /* moments of wrong answers from the top down */
};

static double shift_at(unsigned belief)
{
    unsigned step = belief / RISK_TILTS;
    return SHIFT_LEAST + SHIFT_STEP * step;
}

static double tilt_at(unsigned belief)
{
    return TILT_LEAST + TILT_STEP * (belief % RISK_TILTS);
}

static double logit(double p)
{
    return log(p / (1 - p));
}

static double look_up(const float *table, double x)
{
    double at = (x + 16) * (RISK_TABLE / 32.0);
    at = at < 0 ? 0 : at > RISK_TABLE ? RISK_TABLE : at;
    unsigned i = (unsigned)at;
    return (double)table[i] + (at - i) * (double)(table[i + 1] - table[i]);
}

void risk_pool_start(struct risk_pool *pool)
{
    double sum = 0;
    for (unsigned i = 0; i < RISK_TABLE + 2; i++) {
        double x = i * 32.0 / RISK_TABLE - 16;
        pool->softplus[i] = (float)log1p(exp(x));
        pool->logistic[i] = (float)(1 / (1 + exp(-x)));
    }
    for (unsigned i = 0; i < RISK_BELIEFS; i++) {
        double shift = shift_at(i) / SHIFT_SPREAD, tilt = tilt_at(i) / TILT_SPREAD;
        /* the constant: tails for categories that are unlike everything */
        sum += pool->start_belief[i] = exp(-0.5 * (shift * shift + tilt * tilt)) + 0.002;
    }
    for (unsigned i = 0; i < RISK_BELIEFS; i++)
        pool->start_belief[i] /= sum;
}

void risk_pool_add(struct risk_pool *pool, const struct risk_state *state, double sign)
{
    for (unsigned bin = 0; bin < RISK_BINS; bin++) {
        pool->labels[bin] += sign * (double)state->labels[bin];
        pool->wrong[bin] += sign * (double)state->wrong[bin];
    }
    for (unsigned i = 0; i < RISK_BELIEFS; i++)
        pool->belief[i] += sign * (double)state->belief_weight * (double)state->belief[i];
    pool->weight += sign * (double)state->belief_weight;
    pool->requests += sign * (double)state->stats.requests;
}

static void fade(struct risk_state *state)
{
    float requests = (float)exp(state->since / -FADE_REQUESTS),
          labels = (float)exp(state->since / -fmin(FADE_MOST, FADE_LABELS + (double)state->stats.requests));
    state->window *= requests;
    for (unsigned bin = 0; bin < RISK_BINS; bin++) {
        state->seen[bin] *= requests;
        state->bad[bin] *= requests;
        state->labels[bin] *= labels;
        state->wrong[bin] *= labels;
    }
    state->since = 0;
}

static double center_of(unsigned bin)
{
    return ((bin + 0.5) * (double)RISK_BIN_WIDTH - 0.8) / 0.2;
}

/* The straight line in log-odds that fits the labels of the pool and the made-up ones best (Newton's method on the
 * logistic likelihood; five steps from the made-up line). */
static void fit_line(const struct risk_pool *pool, unsigned low_bin, double line[2])
{
    const double made_up = MADE_UP / (0.5 / (double)RISK_BIN_WIDTH);
    line[0] = logit(LINE_MIDDLE);
    line[1] = LINE_TILT;
    for (unsigned step = 0; step < 8; step++) {
        double g0 = 0, g1 = 0, h00 = 1e-9, h01 = 0, h11 = 1e-9;
        for (unsigned bin = low_bin; bin < RISK_BINS; bin++) {
            double x = center_of(bin), labels = fmax(0, pool->labels[bin]), wrong = fmax(0, pool->wrong[bin]);
            double p = 1 / (1 + exp(-(line[0] + line[1] * x)));
            wrong += made_up / (1 + exp(-(logit(LINE_MIDDLE) + LINE_TILT * x)));
            labels += made_up;
            g0 += wrong - labels * p;
            g1 += (wrong - labels * p) * x;
            h00 += labels * p * (1 - p);
            h01 += labels * p * (1 - p) * x;
            h11 += labels * p * (1 - p) * x * x;
        }
        double det = h00 * h11 - h01 * h01;
        double d0 = (h11 * g0 - h01 * g1) / det, d1 = (h00 * g1 - h01 * g0) / det,
               scale = fmax(1, fmax(fabs(d0), fabs(d1)));
        line[0] += d0 / scale;
        line[1] += d1 / scale;
    }
}

/* p(wrong) by bin from the labels of the other categories; never rises with similarity. The curve itself must have
 * left the pool. */
static void fit_others(const struct risk_pool *pool, unsigned low_bin, double rate[RISK_BINS])
{
    double line[2], block_rate[RISK_BINS], block_weight[RISK_BINS];
    unsigned length[RISK_BINS], n = 0;
    const double made_up = LINE_LABELS / (0.5 / (double)RISK_BIN_WIDTH);
    fit_line(pool, low_bin, line);
    for (unsigned bin = low_bin; bin < RISK_BINS; bin++) {
        double guess = 1 / (1 + exp(-(line[0] + fmin(0, line[1]) * center_of(bin))));
        block_weight[n] = fmax(0, pool->labels[bin]) + made_up;
        block_rate[n] = (fmax(0, pool->wrong[bin]) + guess * made_up) / block_weight[n];
        length[n++] = 1;
        for (; n > 1 && block_rate[n - 1] > block_rate[n - 2]; n--) {
            double both = block_weight[n - 1] + block_weight[n - 2];
            block_rate[n - 2] =
                (block_rate[n - 1] * block_weight[n - 1] + block_rate[n - 2] * block_weight[n - 2]) / both;
            block_weight[n - 2] = both;
            length[n - 2] += length[n - 1];
        }
    }
    for (unsigned block = 0, bin = low_bin; block < n; block++)
        for (unsigned i = 0; i < length[block]; i++)
            rate[bin++] = block_rate[block];
}

static void group(struct fit *fit, const struct risk_state *state, const double rate[RISK_BINS])
{
    for (unsigned g = fit->low; g < GROUPS; g++) {
        double sum = 0, weight = 0;
        for (unsigned bin = g * GROUP_BINS; bin < (g + 1) * GROUP_BINS && bin < RISK_BINS; bin++) {
            if (bin < fit->low_bin)
                continue;
            fit->labels[g] += (double)state->labels[bin];
            fit->wrong[g] += (double)state->wrong[bin];
            fit->seen[g] += (double)state->seen[bin];
            fit->bad[g] += (double)state->bad[bin];
            double counts = (double)state->seen[bin] + 1e-3;
            sum += counts * rate[bin];
            weight += counts;
        }
        fit->log_odds[g] = logit(fmin(0.999, fmax(1e-5, sum / weight)));
        fit->tilt[g] = ((g + 0.5) * GROUP_BINS * (double)RISK_BIN_WIDTH - 0.8) / 0.2;
    }
}

/* Prior of the pool times likelihood of the own labels. The curve itself must have left the pool. */
static void believe(const struct fit *fit, const struct risk_pool *pool, struct risk_state *state)
{
    double log_belief[RISK_BELIEFS], best = -INFINITY, sum = 0, labels = 0;
    for (unsigned i = 0; i < RISK_BELIEFS; i++) {
        double shift = shift_at(i), tilt = tilt_at(i);
        double prior =
            (START_WEIGHT * pool->start_belief[i] + fmax(0, pool->belief[i])) / (START_WEIGHT + fmax(0, pool->weight));
        log_belief[i] = log(prior);
        for (unsigned g = fit->low; g < GROUPS; g++)
            if (fit->labels[g] > 0) {
                double x = fit->log_odds[g] + shift + tilt * fit->tilt[g];
                log_belief[i] += fit->wrong[g] * x - fit->labels[g] * look_up(pool->softplus, x);
            }
        best = fmax(best, log_belief[i]);
    }
    for (unsigned i = 0; i < RISK_BELIEFS; i++)
        sum += exp(log_belief[i] - best);
    for (unsigned i = 0; i < RISK_BELIEFS; i++)
        state->belief[i] = (float)(exp(log_belief[i] - best) / sum);
    for (unsigned g = fit->low; g < GROUPS; g++)
        labels += fit->labels[g];
    state->belief_weight = (float)(labels / (labels + BELIEF_LABELS));
}

static void expect(struct fit *fit, const struct risk_pool *pool, const struct risk_state *state)
{
    fit->late = pow(fmax(1, (pool->observed + LATE_START) / (pool->expected + LATE_START)), LATE_POWER);
    for (unsigned i = 0; i < RISK_BELIEFS; i++)
        if (state->belief[i] > BELIEF_LEAST)
            for (unsigned g = fit->low; g < GROUPS; g++)
                fit->expected[g] += (double)state->belief[i] *
                                    look_up(pool->logistic, fit->log_odds[g] + shift_at(i) + tilt_at(i) * fit->tilt[g]);
    for (unsigned top = GROUPS; top > fit->low;) {
        double expected = fit->prior, observed = fit->prior, labels = 0;
        unsigned end = top;
        while (end > fit->low && top - end < PIECE_GROUPS && labels < PIECE_LABELS) {
            end--;
            labels += fit->labels[end];
            expected += fit->labels[end] * fit->expected[end];
            observed += fit->wrong[end];
        }
        fit->piece[end] = true;
        for (; top > end; top--) {
            fit->ratio[top - 1] = fit->late * observed / expected;
            fit->doubt[top - 1] = 1 / observed;
        }
    }
}

/* First and second moment of the wrong answers that a threshold at each group's lower border lets through. */
static void add_up(struct fit *fit, const struct risk_pool *pool, const struct risk_state *state)
{
    for (unsigned i = 0; i < RISK_BELIEFS; i++) {
        double belief = (double)state->belief[i], wrong = 0;
        if (state->belief[i] <= BELIEF_LEAST)
            continue;
        for (unsigned g = GROUPS; g-- > fit->low;) {
            wrong += fit->seen[g] * fit->ratio[g] *
                     look_up(pool->logistic, fit->log_odds[g] + shift_at(i) + tilt_at(i) * fit->tilt[g]);
            fit->mean[g] += belief * wrong;
            fit->square[g] += belief * wrong * wrong;
        }
    }
    for (unsigned g = GROUPS; g-- > fit->low;)
        fit->called[g] = fit->bad[g] + (g + 1 < GROUPS ? fit->called[g + 1] : 0);
}

/* Bins of a group share its wrong answers in proportion to their requests. */
static void draw_bound(struct risk_curve *curve, const struct fit *fit)
{
    struct risk_state *state = &curve->state;
    double requests = (double)(state->stats.requests) + (double)state->experience;
    double window = fmax(1, (double)state->window), highest = 0;
    double z = Z_LATE + Z_EARLY / sqrt(1 + requests / Z_REQUESTS);
    double pieces = 0, in_piece = 0; /* variance of the pieces above, wrong answers in this one */
    for (unsigned g = GROUPS; g-- > fit->low;) {
        bool top = g + 1 == GROUPS;
        double mean = top ? 0 : fit->mean[g + 1], variance = top ? 0 : fit->square[g + 1] - mean * mean;
        double called = top ? 0 : fit->called[g + 1], part = 0;
        double more = fit->mean[g] - mean, wider = fit->square[g] - fit->mean[g] * fit->mean[g] - variance;
        unsigned bin = (g + 1) * GROUP_BINS < RISK_BINS ? (g + 1) * GROUP_BINS : RISK_BINS;
        while (bin-- > g * GROUP_BINS && bin >= fit->low_bin) {
            part += fit->seen[g] > 0 ? (double)state->seen[bin] / fit->seen[g] : 0;
            double wrong = fmax(mean + part * more, called + part * fit->bad[g]) / window;
            double piece = in_piece + part * more;
            double spread =
                (fmax(0, variance + part * wider) + pieces + piece * piece * fit->doubt[g]) / window / window +
                2 * wrong / fmax(requests, 1);
            double own = requests * requests * spread;
            double share = own > 0 ? sqrt(own / (own + fmax(0, curve->pool->spread))) : 0;
            highest = fmax(highest, wrong + fmax(z, Z_POOL * share) * sqrt(spread));
            state->estimate[bin] = (float)wrong;
            state->bound[bin] = (float)fmin(1, highest);
            curve->spreads[bin] = (float)own;
        }
        in_piece += more;
        if (fit->piece[g]) {
            pieces += in_piece * in_piece * fit->doubt[g];
            in_piece = 0;
        }
    }
    for (unsigned bin = 0; bin < fit->low_bin; bin++)
        state->estimate[bin] = state->bound[bin] = 1;
}

/* What share of the requests of each bin is to be labelled until the next fit. */
static void choose_labels(const struct fit *fit, const struct risk_settings *settings, double tau,
                          const struct risk_pool *pool, struct risk_state *state)
{
    double value[RISK_BINS] = {0}, need = 0;
    double requests = (double)state->stats.requests + LABEL_IMPORTED * (double)state->experience;
    for (unsigned bin = fit->low_bin; bin < RISK_BINS; bin++) {
        unsigned g = bin / GROUP_BINS;
        double p = fmin(1, fit->expected[g] * fit->ratio[g]);
        double beyond = RELEVANT * settings->delta / fmax((double)state->estimate[bin], 1e-9);
        bool hit = bin * (double)RISK_BIN_WIDTH >= tau - 1e-9;
        state->rate[bin] = (float)(p / fit->late);
        value[bin] = sqrt(p * (1 - p) + 1e-3) * (hit ? HIT_FACTOR : beyond < 1 ? beyond * beyond : 1);
        need += value[bin] * (double)state->seen[bin];
    }
    double early = LABEL_EARLIER / (requests + LABEL_EARLIER);
    double own = LABEL_LEAST + LABEL_SLOW / (1 + requests / LABEL_SLOWER) + LABEL_EARLY * early * early;
    double rate = fmin(LABEL_MOST, fmax(own, LABEL_POOL / (1 + fmax(0, pool->requests) / LABEL_POOLED)));
    double scale = need > 0 ? rate * (double)state->window / need : 1;
    double hits = scale;
    if (settings->audit > 0 && tau <= 1) {
        double all_hits = 0, sum = 0;
        for (unsigned bin = risk_bin(tau); bin < RISK_BINS; bin++) {
            all_hits += (double)state->seen[bin];
            sum += (double)state->seen[bin] * value[bin];
        }
        hits = sum > 0 ? settings->audit * all_hits / sum : 0;
    }
    for (unsigned bin = 0; bin < RISK_BINS; bin++) {
        bool hit = bin * (double)RISK_BIN_WIDTH >= tau - 1e-9;
        double share = bin < fit->low_bin ? 0 : value[bin] * (hit ? hits : scale);
        if (hit && !(settings->audit > 0))
            share = fmax(share, HIT_LEAST);
        state->probability[bin] = (float)fmin(LABEL_MOST, share);
    }
}

void risk_fit(struct risk_curve *curve, const struct risk_settings *settings)
{
    struct risk_state *state = &curve->state;
    struct fit fit = {.low_bin = risk_bin(settings->floor)};
    double others[RISK_BINS];
    fit.low = fit.low_bin / GROUP_BINS;
    risk_pool_add(curve->pool, state, -1);
    curve->pool->spread -= curve->spread;
    fade(state);
    fit_others(curve->pool, fit.low_bin, others);
    double of_others = 0;
    for (unsigned bin = fit.low_bin; bin < RISK_BINS; bin++)
        of_others += fmax(0, curve->pool->wrong[bin]);
    fit.prior = PIECE_PRIOR + PIECE_MORE * of_others / (of_others + PIECE_OTHERS);
    group(&fit, state, others);
    believe(&fit, curve->pool, state);
    risk_pool_add(curve->pool, state, 1);
    expect(&fit, curve->pool, state);
    add_up(&fit, curve->pool, state);
    draw_bound(curve, &fit);
    curve->tau_delta = -1;
    double tau = risk_threshold(curve, settings);
    curve->spread = tau <= 1 ? (double)curve->spreads[risk_bin(tau)] : 0;
    curve->pool->spread += curve->spread;
    choose_labels(&fit, settings, tau, curve->pool, state);
}
