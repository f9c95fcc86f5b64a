/*
 * risk_bytes.c - a curve as bytes: for the journal as it is, for other caches as experience.
 *
 *      0 u32 "RISK"   4 u32 version, 2   8 u64 XXH3-64 of all that follows
 *     16 u64 requests, labels, wrong labels, audits, miss samples, feedback
 *     64 f64 wrong_served   72 u32 requests since the last fit   76 f32 belief weight, window, experience
 *     88 f32 seen, labels, wrong, bad, estimate, bound, probability, rate: RISK_BINS each; beliefs: RISK_BELIEFS
 *
 * Valid if and only if the length, the checksum and the ranges are right: counts finite and not negative, no more
 * wrong labels in a bin than labels, probabilities 0..1, beliefs that sum to 1 or are all zero. Bytes come from
 * journals and from people (SC.IMPORT), so nothing in them is believed unseen.
 *
 * Version 1 has the same bytes, but its beliefs lie on a grid of smaller tilts: they are left out, and the next request
 * draws the curve anew from the counts, which are as good as ever. So an older folder opens as it is.
 *
 * An imported curve counts half, and its requests as 500 at most: it is a start that is outvoted within the first
 * thousand requests, and it makes the category look as if it had seen that many, so that fewer labels are bought.
 */
#include "cache/policy/risk_priv.h"
#include "io/bytes.h"
#include "io/error.h"
#include <assert.h>
#include <math.h>
#include <xxhash.h>

#define MAGIC           0x4b534952u
#define VERSION         2u
#define VERSION_TILTS   1u /* another grid of beliefs */
#define ARRAYS          8u
#define FLOATS          (ARRAYS * RISK_BINS + RISK_BELIEFS)
#define BYTES           (88u + 4u * FLOATS)
#define HASHED_AT       16u
#define IMPORT_LABELS   1.0f
#define IMPORT_WINDOW   500.0f
#define IMPORT_REQUESTS 1000.0f

_Static_assert(BYTES <= RISK_BYTES, "a curve does not fit its bytes");

static const float *array_of(const struct risk_state *state, unsigned array)
{
    const float *arrays[ARRAYS] = {state->seen,     state->labels, state->wrong,       state->bad,
                                   state->estimate, state->bound,  state->probability, state->rate};
    return arrays[array];
}

uint32_t risk_save(const struct risk_curve *curve, uint8_t out[RISK_BYTES])
{
    const struct risk_state *state = &curve->state;
    const struct risk_stats *stats = &state->stats;
    const uint64_t counts[] = {stats->requests, stats->labels,       stats->wrong_labels,
                               stats->audits,   stats->miss_samples, stats->feedback};
    uint64_t wrong_served;
    memcpy(&wrong_served, &stats->wrong_served, sizeof wrong_served);
    for (unsigned i = 0; i < 6; i++)
        bytes_store_u64(out + 16 + 8 * i, counts[i]);
    bytes_store_u64(out + 64, wrong_served);
    bytes_store_u32(out + 72, state->since);
    bytes_store_f32(out + 76, state->belief_weight);
    bytes_store_f32(out + 80, state->window);
    bytes_store_f32(out + 84, state->experience);
    uint8_t *at = out + 88;
    for (unsigned array = 0; array < ARRAYS; array++)
        for (unsigned bin = 0; bin < RISK_BINS; bin++, at += 4)
            bytes_store_f32(at, array_of(state, array)[bin]);
    for (unsigned i = 0; i < RISK_BELIEFS; i++, at += 4)
        bytes_store_f32(at, state->belief[i]);
    assert(at == out + BYTES);
    bytes_store_u32(out, MAGIC);
    bytes_store_u32(out + 4, VERSION);
    bytes_store_u64(out + 8, XXH3_64bits(out + HASHED_AT, BYTES - HASHED_AT));
    return BYTES;
}

static bool is_count(double x)
{
    return x >= 0 && x <= 0x1p53; /* false for NaN */
}

static const char *fault_of(const struct risk_state *state)
{
    double sum = 0;
    if (!is_count(state->window) || !is_count(state->experience) || !(state->belief_weight >= 0) ||
        !(state->belief_weight <= 1) || !is_count(state->stats.wrong_served))
        return "its totals";
    for (unsigned bin = 0; bin < RISK_BINS; bin++) {
        for (unsigned array = 0; array < ARRAYS; array++)
            if (!is_count(array_of(state, array)[bin]))
                return "a count";
        if (state->wrong[bin] > state->labels[bin] * 1.001f)
            return "more wrong labels than labels";
        if (state->probability[bin] > 1 || state->rate[bin] > 1 || state->bound[bin] > 1)
            return "a probability above 1";
        if (bin > 0 && state->bound[bin] > state->bound[bin - 1])
            return "a bound that falls";
    }
    for (unsigned i = 0; i < RISK_BELIEFS; i++) {
        if (!(state->belief[i] >= 0))
            return "a belief";
        sum += (double)state->belief[i];
    }
    return sum == 0 || fabs(sum - 1) < 1e-3 ? NULL : "beliefs that do not sum to 1";
}

int risk_load(struct risk_curve *curve, const uint8_t *bytes, uint32_t n, bool imported, struct quire_error *err)
{
    struct risk_state state = {0};
    if (n < 8 || bytes_load_u32(bytes) != MAGIC)
        return error_set(err, QUIRE_EFORMAT, "not a curve: %u bytes that do not begin with RISK", n);
    uint32_t version = bytes_load_u32(bytes + 4);
    if (version != VERSION && version != VERSION_TILTS)
        return error_set(err, QUIRE_EVERSION, "a curve of version %u, this build reads %u and %u: export it again",
                         version, VERSION_TILTS, VERSION);
    if (n != BYTES)
        return error_set(err, QUIRE_EFORMAT, "a curve has %u bytes, these are %u", BYTES, n);
    if (bytes_load_u64(bytes + 8) != XXH3_64bits(bytes + HASHED_AT, BYTES - HASHED_AT))
        return error_set(err, QUIRE_EFORMAT, "the curve's checksum is wrong: the bytes were changed on their way");
    struct risk_stats *stats = &state.stats;
    uint64_t *counts[] = {&stats->requests, &stats->labels,       &stats->wrong_labels,
                          &stats->audits,   &stats->miss_samples, &stats->feedback};
    uint64_t wrong_served = bytes_load_u64(bytes + 64);
    for (unsigned i = 0; i < 6; i++)
        *counts[i] = bytes_load_u64(bytes + 16 + 8 * i);
    memcpy(&stats->wrong_served, &wrong_served, sizeof wrong_served);
    state.since = bytes_load_u32(bytes + 72);
    state.belief_weight = bytes_load_f32(bytes + 76);
    state.window = bytes_load_f32(bytes + 80);
    state.experience = bytes_load_f32(bytes + 84);
    const uint8_t *at = bytes + 88;
    float *arrays[ARRAYS] = {state.seen,     state.labels, state.wrong,       state.bad,
                             state.estimate, state.bound,  state.probability, state.rate};
    for (unsigned array = 0; array < ARRAYS; array++)
        for (unsigned bin = 0; bin < RISK_BINS; bin++, at += 4)
            arrays[array][bin] = bytes_load_f32(at);
    for (unsigned i = 0; i < RISK_BELIEFS; i++, at += 4)
        state.belief[i] = bytes_load_f32(at);
    const char *fault = fault_of(&state);
    if (fault)
        return error_set(err, QUIRE_EFORMAT, "the curve holds %s that cannot be", fault);
    if (version == VERSION_TILTS) {
        memset(state.belief, 0, sizeof state.belief);
        state.belief_weight = 0;
        state.since = RISK_REBUILD_MAX;
    }
    if (imported) {
        /* As experience: counts are lowered, nothing of this category has happened yet, and a fit is due. */
        float scale = state.window > IMPORT_WINDOW ? IMPORT_WINDOW / state.window : 1;
        float requests = (float)state.stats.requests + state.experience;
        for (unsigned bin = 0; bin < RISK_BINS; bin++) {
            state.seen[bin] *= scale;
            state.labels[bin] *= IMPORT_LABELS;
            state.wrong[bin] *= IMPORT_LABELS;
            state.bad[bin] = 0;
        }
        state.window *= scale;
        state.experience = requests < IMPORT_REQUESTS ? requests : IMPORT_REQUESTS;
        state.stats = (struct risk_stats){0};
        state.since = RISK_REBUILD_MIN;
    }
    risk_pool_add(curve->pool, &curve->state, -1);
    curve->state = state;
    curve->tau_delta = -1;
    risk_pool_add(curve->pool, &curve->state, 1);
    return 0;
}
