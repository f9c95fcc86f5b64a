/*
 * search_candidates.c - rows that may be near, and what reading their blocks would gain.
 *
 * Candidates are rows by estimate; of those beyond candidates_max the best stay, so memory per query is bounded. Most
 * rows that are scored are too far, and comparing with a limit is far cheaper than selecting among all: so a limit is
 * guessed from a sample before the first ones are taken, and lowered when the candidates are full.
 *
 * tau is the k-th nearest distance of all rows that are known, be it measured or estimated. A candidate is nearer with
 * probability p = Phi((tau - estimate) / sigma). The gain of a block is the sum of p over its candidates: how many of
 * the k nearest one expects to gain by reading it. Where estimates will do for an answer, a candidate with p near 1
 * needs no reading any more than one with p near 0: a read changes the set of the k nearest only as far as there is
 * doubt on which side of tau a row lies, and the gain is the sum of min(p, 1 - p). Where rows are asked for up to a
 * limit only, that stands for tau if it is nearer: what lies some sigmas beyond it is worth no read.
 */
#include "index/search/task.h"
#include "io/array.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CANDIDATES_BASE  192u
#define CANDIDATES_PER_K 6u
#define CANDIDATES_LISTS POSTING_COPIES_MAX /* per k: k rows stay even if each is there as often as it may be */
#define SCAN_STEP        16u
#define SELECT_BINS      128u
#define SELECT_MANY      1024u

/* ---- memory ------------------------------------------------------------------------------------------------------ */

int search_reserve_gains(struct search_scratch *f, uint64_t blocks)
{
    uint64_t places = 64;
    while (places < 2 * blocks)
        places *= 2;
    if (places > UINT32_MAX)
        return QUIRE_ENOMEM;
    if (f->gains && places - 1 <= f->gains_mask)
        return 0;
    void *zeroed = calloc(places, sizeof *f->gains);
    if (!zeroed)
        return QUIRE_ENOMEM;
    free(f->gains);
    f->gains = zeroed;
    f->gains_mask = (uint32_t)(places - 1);
    f->gains_stamp = 0;
    return 0;
}

int search_reserve_candidates(struct task *t, uint32_t more)
{
    struct search *q = &t->search;
    bool replicas = t->segment->lists && !t->segment->lists->codes;
    q->candidates_max = CANDIDATES_BASE + (replicas ? CANDIDATES_LISTS : CANDIDATES_PER_K) * q->k + more;
    uint32_t most = 2 * q->candidates_max;
    if (!array_reserve_kept(&q->candidates, &q->candidates_capacity, most, CANDIDATES_KEPT) ||
        !array_reserve_kept(&t->searcher->found.known, &t->searcher->found.known_capacity, 2 * (size_t)q->k,
                            2 * K_KEPT) ||
        search_reserve_gains(&t->searcher->found, most) < 0)
        return QUIRE_ENOMEM;
    return 0;
}

/* ---- candidates -------------------------------------------------------------------------------------------------- */

static bool has_smaller_estimate(const struct candidate *a, const struct candidate *b)
{
    return a->distance < b->distance || (a->distance == b->distance && a->row < b->row);
}

/* Quickselect. */
static void select_few(struct candidate *c, uint32_t n, uint32_t keep)
{
    uint32_t begin = 0, end = n;
    while (end - begin > 1 && keep > begin && keep < end) {
        struct candidate pivot = c[begin + (end - begin) / 2];
        uint32_t i = begin, j = end - 1;
        for (;;) {
            while (has_smaller_estimate(&c[i], &pivot))
                i++;
            while (has_smaller_estimate(&pivot, &c[j]))
                j--;
            if (i >= j)
                break;
            struct candidate swap = c[i];
            c[i++] = c[j];
            c[j--] = swap;
        }
        uint32_t split = i == j ? i : j + 1;
        split = split == begin ? begin + 1 : split == end ? end - 1 : split;
        if (keep < split)
            end = split;
        else
            begin = split;
    }
}

/* Moves what lies below `limit` to the front, without a branch per candidate: most guesses at one would be wrong.
 * Returns how many there are. */
static uint32_t move_below(struct candidate *c, uint32_t n, float limit)
{
    uint32_t below = 0;
    static_assert(sizeof *c == 2 * sizeof(uint64_t), "a candidate is moved as two words");
    for (uint32_t i = 0; i < n; i++) {
        float distance = c[i].distance;
        uint64_t moved[2], other[2]; /* whole words: a store in parts would hold up the load that follows */
        memcpy(moved, &c[i], sizeof moved);
        memcpy(other, &c[below], sizeof other);
        memcpy(&c[i], other, sizeof other);
        memcpy(&c[below], moved, sizeof moved);
        below += distance < limit;
    }
    return below;
}

/* By a histogram of the distances: of the one bin that the border runs through some are selected, all of those below
 * are in. */
static void select_by_bins(struct candidate *c, uint32_t n, uint32_t keep)
{
    uint32_t counts[SELECT_BINS] = {0}, bin = 0, below = 0;
    if (keep == 0 || keep >= n)
        return;
    float least = c[0].distance, most = least;
    for (uint32_t i = 1; i < n; i++) {
        least = c[i].distance < least ? c[i].distance : least;
        most = c[i].distance > most ? c[i].distance : most;
    }
    float scale = (float)(SELECT_BINS - 1) / (most - least);
    if (n < 2 * SELECT_BINS || !isfinite(scale) || !(scale > 0)) {
        select_few(c, n, keep);
        return;
    }
    for (uint32_t i = 0; i < n; i++)
        counts[(uint32_t)((c[i].distance - least) * scale)]++;
    while (below + counts[bin] < keep)
        below += counts[bin++];
    /* what a bin holds is known by the limits that move by, which may be rounded otherwise: quickselect mends it */
    uint32_t begin = move_below(c, n, least + (float)bin / scale);
    uint32_t end = begin + move_below(c + begin, n - begin, least + (float)(bin + 1) / scale);
    if (begin > keep || end < keep) {
        begin = 0;
        end = n;
    }
    select_few(c + begin, end - begin, keep - begin);
}

float search_sample_limit(float sample[LIMIT_SAMPLE], uint32_t n, uint32_t want)
{
    assert(want < n / 4);
    for (uint32_t i = 1; i < LIMIT_SAMPLE; i++) {
        float moved = sample[i];
        uint32_t j = i;
        for (; j > 0 && sample[j - 1] > moved; j--)
            sample[j] = sample[j - 1];
        sample[j] = moved;
    }
    float share = (float)want / (float)n * LIMIT_SAMPLE;
    return sample[(uint32_t)(share + 2 * sqrtf(share)) + 1];
}

/* Where few of many are kept, most are told to be too far by a limit that is guessed from a sample: one pass over all
 * instead of four. Whatever the guess, what is on its wrong side is selected from. */
void search_select_best(struct candidate *c, uint32_t n, uint32_t keep)
{
    float sample[LIMIT_SAMPLE];
    if (n >= SELECT_MANY && keep > 0 && keep < n / 4) {
        for (uint32_t i = 0; i < LIMIT_SAMPLE; i++)
            sample[i] = c[(uint64_t)i * n / LIMIT_SAMPLE].distance;
        uint32_t below = move_below(c, n, search_sample_limit(sample, n, keep));
        if (below >= keep) {
            n = below;
        } else {
            c += below;
            n -= below;
            keep -= below;
        }
    }
    select_by_bins(c, n, keep);
}

/* Rows scored last whose estimate is below the limit. Dead ones do not count: they would push out living ones that no
 * later look brings back. */
static uint32_t count_below(const struct task *t, uint32_t n, float limit)
{
    const struct scratch *s = &t->searcher->scratch;
    uint32_t below = 0;
    if (!t->search.dead && !t->search.filter.selection)
        for (uint32_t i = 0; i < n; i++)
            below += s->estimates[i] < limit;
    else
        for (uint32_t i = 0; i < n; i++)
            below += s->estimates[i] < limit && !search_candidate_is_out(&t->search, s->ids[i]);
    return below;
}

/* A value that at least `want` of the n rows scored last lie below, and not many more, or INFINITY: found from a
 * sample, then counted. Comparing with it costs a cycle a value, where selecting among all of them costs a mispredicted
 * branch for every other. */
static float rough_limit(const struct task *t, uint32_t n, uint32_t want)
{
    const float *d = t->searcher->scratch.estimates;
    float sample[LIMIT_SAMPLE];
    if (n < 4 * LIMIT_SAMPLE || want >= n / 4)
        return INFINITY;
    for (uint32_t i = 0; i < LIMIT_SAMPLE; i++)
        sample[i] = d[(uint64_t)i * n / LIMIT_SAMPLE];
    float limit = search_sample_limit(sample, n, want);
    return count_below(t, n, limit) >= want ? limit : INFINITY;
}

void search_trim_candidates(struct search *q)
{
    if (q->n_candidates <= q->candidates_max)
        return;
    search_select_best(q->candidates, q->n_candidates, q->candidates_max);
    q->n_candidates = q->candidates_max;
}

float search_keep_best(struct search *q)
{
    float largest = 0;
    search_trim_candidates(q);
    for (uint32_t j = 0; j < q->n_candidates; j++)
        largest = fmaxf(largest, q->candidates[j].distance);
    return largest;
}

/* Most rows are too far: comparing a few at once without branches skips them. */
static bool any_below(const float *d, uint32_t n, float limit)
{
    unsigned below = 0;
    if (n == SCAN_STEP)
        for (uint32_t i = 0; i < SCAN_STEP; i++)
            below |= d[i] < limit;
    else
        for (uint32_t i = 0; i < n; i++)
            below |= d[i] < limit;
    return below;
}

/* Those of begin..end, of the runs from *run on, that are below the limit. */
static void take_below(struct task *t, uint32_t begin, uint32_t end, uint32_t *run, float *limit)
{
    struct scratch *s = &t->searcher->scratch;
    struct search *q = &t->search;
    for (uint32_t i = begin; i < end; i++) {
        float d = s->estimates[i];
        if (!(d < *limit) || search_candidate_is_out(q, s->ids[i]))
            continue;
        while (s->runs[*run].end <= i)
            ++*run;
        q->candidates[q->n_candidates++] = (struct candidate){s->ids[i], d, s->runs[*run].sigma, 1};
        if (q->n_candidates == 2 * q->candidates_max)
            *limit = search_keep_best(q);
    }
}

void search_add_candidates(struct task *t, uint32_t n, float *limit)
{
    struct scratch *s = &t->searcher->scratch;
    struct search *q = &t->search;
    uint32_t run = 0;
    if (n == 0)
        return;
    assert(s->n_runs > 0 && s->runs[s->n_runs - 1].end == n);
    if (q->n_candidates == 0)
        *limit = fminf(*limit, rough_limit(t, n, q->candidates_max));
    for (uint32_t i = 0; i < n; i += SCAN_STEP) {
        uint32_t m = n - i < SCAN_STEP ? n - i : SCAN_STEP;
        if (any_below(s->estimates + i, m, *limit))
            take_below(t, i, i + m, &run, limit);
    }
    q->stats.codes_scored += n;
}

/* ---- gains ------------------------------------------------------------------------------------------------------- */

/* Phi(z) of the standard normal distribution, by a table over [-4, 4]. */
static float normal_cdf(float z)
{
    static const float table[33] = {
        0.00003f, 0.00009f, 0.00023f, 0.00058f, 0.00135f, 0.00298f, 0.00621f, 0.01222f, 0.02275f, 0.04006f, 0.06681f,
        0.10565f, 0.15866f, 0.22663f, 0.30854f, 0.40129f, 0.50000f, 0.59871f, 0.69146f, 0.77337f, 0.84134f, 0.89435f,
        0.93319f, 0.95994f, 0.97725f, 0.98778f, 0.99379f, 0.99702f, 0.99865f, 0.99942f, 0.99977f, 0.99991f, 0.99997f};
    if (z <= -4)
        return 0;
    if (z >= 4)
        return 1;
    float at = (z + 4) * 4;
    int i = at < 31 ? (int)at : 31;
    return table[i] + (at - (float)i) * (table[i + 1] - table[i]);
}

/* Whether a row's block was read. */
static bool is_read(const struct task *t, uint32_t row)
{
    return bitmap_has(t->search.read, row / t->segment->params.slots_per_block);
}

/* Where a block stands in the table of gains, or the free place for it. */
static uint32_t gain_place(const struct search_scratch *f, uint32_t block)
{
    uint32_t at = block * 2654435761u >> 7 & f->gains_mask;
    while (f->gains[at].stamp == f->gains_stamp && f->gains[at].block != block)
        at = (at + 1) & f->gains_mask;
    return at;
}

static void add_gain(struct search_scratch *f, uint32_t block, float gain)
{
    uint32_t at = gain_place(f, block);
    if (f->gains[at].stamp != f->gains_stamp) {
        f->gains[at].stamp = f->gains_stamp;
        f->gains[at].block = block;
        f->gains[at].gain = 0;
    }
    f->gains[at].gain += gain;
}

static float gain_of(const struct search_scratch *f, uint32_t block)
{
    uint32_t at = gain_place(f, block);
    return f->gains[at].stamp == f->gains_stamp ? f->gains[at].gain : 0;
}

/* Adds the gains of c[0..n) to their blocks and to *sum; forgets candidates of read blocks and, with `drop`, hopeless
 * ones. Returns how many stay. */
static uint32_t add_gains(struct task *t, struct candidate *c, uint32_t n, bool drop, double *sum)
{
    struct search_scratch *f = &t->searcher->found;
    const float tau = t->search.tau, border = search_border(&t->search);
    uint32_t per_block = t->segment->params.slots_per_block, kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t block = c[i].row / per_block;
        if (bitmap_has(t->search.read, block))
            continue;
        float z = isinf(tau) ? 4 : (tau - c[i].distance) / (c[i].sigma + 1e-30f);
        if (z < -Z_DROP && drop)
            continue;
        z = border < tau ? (border - c[i].distance) / (c[i].sigma + 1e-30f) : z;
        if (z > -Z_DROP) {
            float p = normal_cdf(z), gain = c[i].weight * (t->search.estimates ? fminf(p, 1 - p) : p);
            add_gain(f, block, gain);
            *sum += (double)gain;
        }
        c[kept++] = c[i];
    }
    return kept;
}

/* All places of the table of gains are free again. */
static void clear_gains(struct search_scratch *f)
{
    if (++f->gains_stamp == 0) {
        memset(f->gains, 0, sizeof *f->gains * ((size_t)f->gains_mask + 1));
        f->gains_stamp = 1;
    }
}

/* The nearest of the blocks known by their centres only that were not read, or NULL. */
static const struct candidate *nearest_prior(const struct task *t)
{
    const struct search *q = &t->search;
    const struct candidate *nearest = NULL;
    float least = INFINITY;
    for (uint32_t i = 0; i < q->n_priors; i++)
        if (q->priors[i].distance < least && !is_read(t, q->priors[i].row)) {
            nearest = &q->priors[i];
            least = nearest->distance;
        }
    return nearest;
}

uint32_t search_nearest_unread(const struct task *t, uint32_t *block)
{
    const struct candidate *nearest = nearest_prior(t);
    if (nearest)
        *block = nearest->row / t->segment->params.slots_per_block;
    return nearest != NULL;
}

/* Leaves those of d[0..n) that share a bin of a histogram with the k-th smallest; returns how many, and the rank of
 * that one among them. */
static uint32_t keep_bin_of(float *d, uint32_t n, uint32_t *k)
{
    uint32_t counts[SELECT_BINS] = {0}, bin = 0, kept = 0;
    float least = d[0], most = least;
    for (uint32_t i = 1; i < n; i++) {
        least = d[i] < least ? d[i] : least;
        most = d[i] > most ? d[i] : most;
    }
    float scale = (float)(SELECT_BINS - 1) / (most - least);
    if (n < 2 * SELECT_BINS || !isfinite(scale) || !(scale > 0))
        return n;
    for (uint32_t i = 0; i < n; i++)
        counts[(uint32_t)((d[i] - least) * scale)]++;
    while (counts[bin] < *k)
        *k -= counts[bin++];
    for (uint32_t i = 0; i < n; i++) {
        float value = d[i];
        d[kept] = value;
        kept += (uint32_t)((value - least) * scale) == bin;
    }
    return kept;
}

/* The k-th smallest of d[0..n), 1 <= k <= n, whose order and other values are lost. */
static float kth_smallest(float *d, uint32_t n, uint32_t k)
{
    assert(k > 0 && k <= n);
    uint32_t begin = 0, end = keep_bin_of(d, n, &k);
    while (end - begin > 1) {
        float pivot = d[begin + (end - begin) / 2];
        uint32_t below = begin, above = end;
        for (uint32_t i = begin; i < above;) {
            float value = d[i];
            if (value < pivot) {
                d[i++] = d[below];
                d[below++] = value;
            } else if (value > pivot) {
                d[i] = d[--above];
                d[above] = value;
            } else
                i++;
        }
        if (k <= below)
            end = below;
        else if (k > above)
            begin = above;
        else
            return pivot;
    }
    return d[begin];
}

/* Of all known rows, the candidates' nearest moved to the front. While they are fewer than k: the mean distance of the
 * rows of the nearest block that is known by its centre only, or infinity. */
static float tau_of(struct task *t)
{
    struct search *q = &t->search;
    float *known = t->searcher->found.known;
    uint32_t near = q->n_candidates < q->k ? q->n_candidates : q->k, n = 0;
    assert(q->n_results <= q->k);
    if (near + q->n_results < q->k) {
        const struct candidate *prior = nearest_prior(t);
        return prior ? prior->distance : INFINITY;
    }
    if (q->n_candidates > near)
        search_select_best(q->candidates, q->n_candidates, near);
    for (uint32_t i = 0; i < near; i++)
        known[n++] = q->candidates[i].distance;
    for (uint32_t i = 0; i < q->n_results; i++)
        known[n++] = q->results[i].distance;
    return kth_smallest(known, n, q->k);
}

/* Candidates of blocks that were read are known exactly by now. */
static void forget_read(struct task *t)
{
    struct search *q = &t->search;
    uint32_t open = 0;
    for (uint32_t i = 0; i < q->n_candidates; i++)
        if (!is_read(t, q->candidates[i].row))
            q->candidates[open++] = q->candidates[i];
    q->n_candidates = open;
}

double search_compute_gains(struct task *t)
{
    struct search *q = &t->search;
    double sum = 0;
    forget_read(t);
    if (q->repeats && q->estimates) /* where all is measured a row that counts twice does no harm */
        search_drop_copies(t);
    q->tau = tau_of(t);
    clear_gains(&t->searcher->found);
    bool drop = q->n_results + q->n_candidates >= q->k;
    q->n_candidates = add_gains(t, q->candidates, q->n_candidates, drop, &sum);
    q->n_priors = add_gains(t, q->priors, q->n_priors, drop, &sum);
    return sum;
}

/* Whether an estimate of the row can be answered: its name is in memory, where names are asked for. */
static bool has_name(const struct task *t, uint32_t row)
{
    uint32_t bytes;
    return !t->segment->names || !t->search.request->want_keys || names_get(t->segment->names, row, &bytes);
}

uint32_t search_unread_answers(const struct task *t, uint32_t most, uint32_t *blocks)
{
    const struct search *q = &t->search;
    uint32_t n = 0;
    for (uint32_t i = 0; i < q->n_candidates && n < most; i++) {
        uint32_t block = q->candidates[i].row / t->segment->params.slots_per_block;
        bool known =
            q->candidates[i].distance > search_border(q) || (q->estimates && has_name(t, q->candidates[i].row));
        for (uint32_t j = 0; j < n && !known; j++)
            known = blocks[j] == block;
        if (!known)
            blocks[n++] = block;
    }
    return n;
}

void search_drop_copies(struct task *t)
{
    struct search *q = &t->search;
    struct search_scratch *f = &t->searcher->found;
    uint32_t kept = 0;
    q->repeats = false;
    clear_gains(f);
    for (uint32_t i = 0; i < q->n_candidates; i++) {
        const struct candidate c = q->candidates[i];
        uint32_t at = c.row * 2654435761u >> 7 & f->gains_mask;
        while (f->gains[at].stamp == f->gains_stamp && q->candidates[f->gains[at].block].row != c.row)
            at = (at + 1) & f->gains_mask;
        if (f->gains[at].stamp != f->gains_stamp) {
            f->gains[at].stamp = f->gains_stamp;
            f->gains[at].block = kept;
            q->candidates[kept++] = c;
        } else if (c.sigma < q->candidates[f->gains[at].block].sigma)
            q->candidates[f->gains[at].block] = c;
    }
    q->n_candidates = kept;
}

/* Blocks by falling gain. */
struct chosen {
    uint32_t n, most;
    uint32_t *blocks;
    float gains[READS_MAX];
};

static void choose_among(const struct task *t, const struct candidate *c, uint32_t n, float least, struct chosen *out)
{
    uint32_t per_block = t->segment->params.slots_per_block;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t block = c[i].row / per_block, at;
        float gain = gain_of(&t->searcher->found, block);
        if (gain < least || gain <= 0 || (out->n == out->most && gain <= out->gains[out->n - 1]))
            continue;
        bool known = false;
        for (uint32_t j = 0; j < out->n && !known; j++)
            known = out->blocks[j] == block;
        if (known)
            continue;
        for (at = out->n < out->most ? out->n++ : out->n - 1; at > 0 && out->gains[at - 1] < gain; at--) {
            out->gains[at] = out->gains[at - 1];
            out->blocks[at] = out->blocks[at - 1];
        }
        out->gains[at] = gain;
        out->blocks[at] = block;
    }
}

uint32_t search_best_blocks(const struct task *t, uint32_t most, float least, uint32_t *blocks, float gains[READS_MAX])
{
    const struct search *q = &t->search;
    assert(most > 0 && most <= READS_MAX);
    struct chosen chosen = {.most = most, .blocks = blocks};
    choose_among(t, q->candidates, q->n_candidates, least, &chosen);
    choose_among(t, q->priors, q->n_priors, least, &chosen);
    memcpy(gains, chosen.gains, sizeof *gains * chosen.n);
    return chosen.n;
}
