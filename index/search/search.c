/*
 * search.c - nearest neighbours: seed from block centres, read the blocks that are worth most, follow their edges.
 *
 *   seed   The tree over the centres of all blocks (entry.h) leads to the `effort` nearest blocks (or cells of rows
 *          that were blocks before those of small tenants were put side by side: cells.h). Their rows are
 *          scored by their navigation codes, which lie next to each other in memory. The best become candidates: (row,
 *          estimate, sigma). Where a budget leaves no room for codes, a block stands for its rows: how many of them are
 *          near follows from its centre's distance and their spread around it.
 *   round  tau is the k-th best exact distance, or while there are fewer than k the k-th best estimate. A candidate is
 *          nearer than tau with probability Phi((tau - estimate) / sigma); the gain of a block is the sum over its
 *          candidates: how many of the k nearest one expects to gain by one read. The blocks of largest gain are read
 *          in one submission, at most BEAM_MAX; each block's slots are scored exactly as soon as it comes; the edges
 *          of those that are near and lead to blocks not yet seen are scored by code and join the candidates.
 *   stop   when no block's gain reaches theta, which falls as effort rises: theta = theta_effort / effort. A block
 *          cannot gain more rows than it has slots, so below FEW_SLOTS theta is less in proportion.
 *
 * So one knob, effort, widens the seed and lowers the stop; calibration (calibrate.c) maps recall to it. Probability
 * instead of a fixed beam lets an easy query end after few reads and a hard one go on, and prefers a block with several
 * fair candidates to one with a single good one.
 *
 * Memory per query is bounded: candidates beyond candidates_max keep the best estimates; rows scored through edges are
 * remembered in a small lossy filter (a row forgotten is scored twice and counts twice for its block).
 *
 * Where the segment has inverted lists, search_lists.c seeds and there are no edges to follow: all blocks that are
 * worth it are read in one round.
 *
 * Exact search reads every block in order and answers with slot precision.
 */
#include "index/search/search_priv.h"
#include "io/bitmap.h"
#include "io/clock.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define THETA_MIN        0.001f
#define THETA_MAX        4.0f
#define FEW_SLOTS        16u
#define EFFORT_MIN       4u
#define CANDIDATES_BASE  192u
#define CANDIDATES_PER_K 6u
#define CANDIDATES_LISTS POSTING_COPIES_MAX /* per k: k rows stay even if each is there as often as it may be */
#define Z_DROP           4.0f               /* candidates this many sigmas beyond tau are dropped */
#define DEFAULT_RECALL   0.95f
#define LIMIT_SAMPLE     64u
#define PREFETCH_BLOCKS  2u
#define EARLY_PART       5u /* of the seeds go before the first round */
#define EARLY_MIN        8u
#define FLUSH_TASKS      2u /* with more on a lane the device has enough to do */
#define SCAN_STEP        16u
#define TREE_BEAM_MIN    8u

/* Theta times effort, by the width of the codes. Seeds of narrow codes cost fewer bytes of memory each, so that more of
 * them and fewer reads are the better bargain. */
static const float theta_effort[NAV_WIDTHS] = {110, 80, 60, 60};

/* ---- memory ------------------------------------------------------------------------------------------------------ */

int search_grow(void *array, size_t bytes)
{
    void **at = array;
    void *bigger = realloc(*at, bytes ? bytes : 1);
    if (!bigger)
        return QUIRE_ENOMEM;
    *at = bigger;
    return 0;
}

/* Room for n hits and for what is copied out of blocks for them. */
static int reserve_hits(struct task *t, uint32_t n, size_t copies)
{
    if (n > t->hits_capacity) {
        if (search_grow(&t->hits, sizeof *t->hits * n) < 0)
            return QUIRE_ENOMEM;
        t->hits_capacity = n;
    }
    if (copies > t->copies_capacity) {
        if (search_grow(&t->copies, copies) < 0)
            return QUIRE_ENOMEM;
        t->copies_capacity = copies;
    }
    return 0;
}

static int reserve_results(struct task *t)
{
    const struct segment_params *p = &t->segment->params;
    uint32_t k = t->k;
    t->copy_bytes = (t->search->want_keys ? BLOCK_KEY_INLINE_MAX + 16 : 0) +
                    (t->search->want_vectors ? (p->slot_bytes + p->factor_bytes + 7) / 8 * 8 : 0);
    if (k > t->k_capacity) {
        if (search_grow(&t->results, sizeof *t->results * k) < 0)
            return QUIRE_ENOMEM;
        t->k_capacity = k;
    }
    size_t copies = (size_t)t->copy_bytes * k,
           vectors = t->search->want_vectors ? sizeof(float) * p->dim * (size_t)k : 0;
    if (reserve_hits(t, k, copies) < 0)
        return QUIRE_ENOMEM;
    if (vectors > t->vectors_capacity) {
        if (search_grow(&t->vectors, vectors) < 0)
            return QUIRE_ENOMEM;
        t->vectors_capacity = vectors;
    }
    return 0;
}

/* Room for the gains of `blocks` blocks. */
static int reserve_gains(struct searcher *s, uint64_t blocks)
{
    uint64_t places = 64;
    while (places < 2 * blocks)
        places *= 2;
    if (places > UINT32_MAX)
        return QUIRE_ENOMEM;
    if (s->gains && places - 1 <= s->gains_mask)
        return 0;
    if (search_grow(&s->gains, sizeof *s->gains * places) < 0)
        return QUIRE_ENOMEM;
    memset(s->gains, 0, sizeof *s->gains * places);
    s->gains_mask = (uint32_t)(places - 1);
    s->gains_stamp = 0;
    return 0;
}

int search_reserve_candidates(struct task *t, uint32_t more)
{
    struct searcher *s = t->searcher;
    bool replicas = t->segment->lists && !t->segment->lists->codes;
    t->candidates_max = CANDIDATES_BASE + (replicas ? CANDIDATES_LISTS : CANDIDATES_PER_K) * t->k + more;
    uint32_t room = 2 * t->candidates_max;
    if (room > t->candidates_capacity) {
        if (search_grow(&t->candidates, sizeof *t->candidates * room) < 0)
            return QUIRE_ENOMEM;
        t->candidates_capacity = room;
    }
    if (reserve_gains(s, room) < 0)
        return QUIRE_ENOMEM;
    uint32_t slots = t->segment->params.slots_per_block;
    if (slots > s->slots_capacity) {
        if (search_grow(&s->slot_distances, sizeof *s->slot_distances * slots) < 0)
            return QUIRE_ENOMEM;
        s->slots_capacity = slots;
    }
    return 0;
}

int search_reserve_links(struct task *t, uint32_t n)
{
    t->k = n;
    if (search_reserve_candidates(t, 0) < 0)
        return QUIRE_ENOMEM;
    size_t copies = (size_t)n * (BLOCK_KEY_INLINE_MAX + 16);
    return reserve_hits(t, n, copies);
}

/* ---- results: a max-heap of the k nearest ------------------------------------------------------------------------ */

static bool is_farther(const struct result *a, const struct result *b)
{
    return a->distance > b->distance || (a->distance == b->distance && a->id > b->id);
}

static void sift_down(struct result *heap, uint32_t n, uint32_t at)
{
    struct result moved = heap[at];
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= n)
            break;
        if (child + 1 < n && is_farther(&heap[child + 1], &heap[child]))
            child++;
        if (!is_farther(&heap[child], &moved))
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moved;
}

static void sift_up(struct result *heap, uint32_t at)
{
    struct result moved = heap[at];
    while (at > 0 && is_farther(&moved, &heap[(at - 1) / 2])) {
        heap[at] = heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap[at] = moved;
}

/* Copies what the answer needs of a slot, since its block's buffer is used again. */
static int copy_slot(struct task *t, const struct block_view *view, uint32_t slot, uint32_t place)
{
    const struct segment_params *p = &t->segment->params;
    uint8_t *to = t->copies + (size_t)place * t->copy_bytes;
    if (t->search->want_keys) {
        struct block_key key = {.bytes = NULL};
        int rc = view->keys ? block_key(view, slot, &key) : 0;
        if (rc < 0)
            return rc;
        store_u32(to, key.length);
        to[4] = key.bytes != NULL;
        store_u64(to + 8, key.external_at);
        if (key.bytes)
            memcpy(to + 16, key.bytes, key.length);
        to += BLOCK_KEY_INLINE_MAX + 16;
    }
    if (t->search->want_vectors) {
        memcpy(to, view->slots + (size_t)slot * p->slot_bytes, p->slot_bytes);
        if (p->factor_bytes)
            memcpy(to + p->slot_bytes, view->factors + (size_t)slot * p->factor_bytes, p->factor_bytes);
    }
    return 0;
}

static int offer(struct task *t, const struct block_view *view, uint32_t slot, float distance)
{
    struct result new = {distance, view->first_row + slot, load_u32(view->ids + 4 * slot), t->n_results};
    bool full = t->n_results == t->k;
    if (full && !is_farther(&t->results[0], &new))
        return 0;
    if (task_row_is_out(t, new.row))
        return 0;
    if (full)
        new.place = t->results[0].place;
    if (t->copy_bytes && copy_slot(t, view, slot, new.place) < 0)
        return QUIRE_ECORRUPT;
    if (full) {
        t->results[0] = new;
        sift_down(t->results, t->k, 0);
    } else {
        t->results[t->n_results] = new;
        sift_up(t->results, t->n_results++);
    }
    return 0;
}

static int by_distance(const void *a, const void *b)
{
    return is_farther(a, b) ? 1 : is_farther(b, a) ? -1 : 0;
}

/* ---- candidates -------------------------------------------------------------------------------------------------- */

static bool has_smaller_estimate(const struct candidate *a, const struct candidate *b)
{
    return a->distance < b->distance || (a->distance == b->distance && a->row < b->row);
}

/* Afterwards c[keep - 1] is not special, all before are the best. */
void search_select_best(struct candidate *c, uint32_t n, uint32_t keep)
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

static void sort_floats(float *x, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++) {
        float moved = x[i];
        uint32_t j = i;
        for (; j > 0 && x[j - 1] > moved; j--)
            x[j] = x[j - 1];
        x[j] = moved;
    }
}

/* A value that `want` of n probably lie below, and not many more, from a sample of them; want < n / 4. */
static float sample_limit(float sample[LIMIT_SAMPLE], uint32_t n, uint32_t want)
{
    sort_floats(sample, LIMIT_SAMPLE);
    float share = (float)want / (float)n * LIMIT_SAMPLE;
    return sample[(uint32_t)(share + 2 * sqrtf(share)) + 1];
}

/* Rows scored last whose estimate is below the limit. Dead ones do not count: they would push out living ones that no
 * later look brings back. */
static uint32_t count_below(const struct task *t, uint32_t n, float limit)
{
    const struct searcher *s = t->searcher;
    uint32_t below = 0;
    if (!t->dead && !t->selection)
        for (uint32_t i = 0; i < n; i++)
            below += s->estimates[i] < limit;
    else
        for (uint32_t i = 0; i < n; i++)
            below += s->estimates[i] < limit && !task_candidate_is_out(t, s->ids[i]);
    return below;
}

/* A value that at least `want` of the n rows scored last lie below, and not many more, or INFINITY: found from a
 * sample, then counted. Comparing with it costs a cycle a value, where selecting among all of them costs a mispredicted
 * branch for every other. */
static float rough_limit(const struct task *t, uint32_t n, uint32_t want)
{
    const float *d = t->searcher->estimates;
    float sample[LIMIT_SAMPLE];
    if (n < 4 * LIMIT_SAMPLE || want >= n / 4)
        return INFINITY;
    for (uint32_t i = 0; i < LIMIT_SAMPLE; i++)
        sample[i] = d[(uint64_t)i * n / LIMIT_SAMPLE];
    float limit = sample_limit(sample, n, want);
    return count_below(t, n, limit) >= want ? limit : INFINITY;
}

void search_trim_candidates(struct task *t)
{
    if (t->n_candidates <= t->candidates_max)
        return;
    search_select_best(t->candidates, t->n_candidates, t->candidates_max);
    t->n_candidates = t->candidates_max;
}

/* Halves the candidates to the best ones; returns the largest estimate among them. */
static float keep_best(struct task *t)
{
    search_trim_candidates(t);
    float largest = 0;
    for (uint32_t j = 0; j < t->n_candidates; j++)
        largest = fmaxf(largest, t->candidates[j].distance);
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

static void take_below(struct task *t, uint32_t begin, uint32_t end, float sigma, float *limit)
{
    struct searcher *s = t->searcher;
    for (uint32_t i = begin; i < end; i++) {
        float d = s->estimates[i];
        if (!(d < *limit) || task_candidate_is_out(t, s->ids[i]))
            continue;
        t->candidates[t->n_candidates++] = (struct candidate){s->ids[i], d, sigma, 1};
        if (t->n_candidates == 2 * t->candidates_max)
            *limit = keep_best(t);
    }
}

/* Adds the rows scored last to the candidates; `limit` is the estimate above which none matters. */
void search_add_candidates(struct task *t, uint32_t n, float *limit)
{
    struct searcher *s = t->searcher;
    uint32_t i = 0;
    if (n == 0)
        return;
    if (t->n_candidates == 0)
        *limit = fminf(*limit, rough_limit(t, n, t->candidates_max));
    for (uint32_t r = 0; r < s->n_runs; r++) {
        const uint32_t end = s->runs[r].end;
        while (i < end) {
            uint32_t stop = end - i < SCAN_STEP ? end : i + SCAN_STEP;
            if (any_below(s->estimates + i, stop - i, *limit))
                take_below(t, i, stop, s->runs[r].sigma, limit);
            i = stop;
        }
    }
    t->stats.codes_scored += n;
}

/* The mean distance of the rows of the nearest block that is known by its centre only: a start, where there is no
 * better one. */
static float nearest_prior(const struct task *t)
{
    float nearest = INFINITY;
    for (uint32_t i = 0; i < t->n_priors; i++)
        if (!bitmap_has(t->read, t->priors[i].row / t->segment->params.slots_per_block))
            nearest = fminf(nearest, t->priors[i].distance);
    return nearest;
}

/* The distance a row must beat to be among the k nearest. */
static float current_tau(struct task *t)
{
    if (t->n_results == t->k)
        return t->results[0].distance;
    uint32_t missing = t->k - t->n_results, open = 0;
    for (uint32_t i = 0; i < t->n_candidates; i++)
        if (!bitmap_has(t->read, t->candidates[i].row / t->segment->params.slots_per_block))
            t->candidates[open++] = t->candidates[i];
    t->n_candidates = open;
    if (t->n_candidates <= missing)
        return nearest_prior(t);
    /* the exact ones count as nearer than all estimates that are still open */
    search_select_best(t->candidates, t->n_candidates, missing);
    float tau = 0;
    for (uint32_t i = 0; i < missing; i++)
        tau = fmaxf(tau, t->candidates[i].distance);
    for (uint32_t i = 0; i < t->n_results; i++)
        tau = fmaxf(tau, t->results[i].distance);
    return tau;
}

/* ---- seed -------------------------------------------------------------------------------------------------------- */

/* The tree by which the search enters: of cells of near rows, which usually are the blocks. */
static const struct entry_tree *entry_of(const struct task *t)
{
    const struct segment *g = t->segment;
    return g->cells ? &g->cells->entry : &g->entry;
}

/* Scores s->ids[0..n), nodes of a level, and adds them to s->nearest[0..have); returns how many there are then. */
static uint32_t score_nodes(struct task *t, const struct entry_level *level, uint32_t n, uint32_t have)
{
    struct searcher *s = t->searcher;
    task_score_centres(t, level, s->ids, n, s->estimates);
    for (uint32_t i = 0; i < n; i++)
        s->nearest[have++] = (struct candidate){s->ids[i], s->estimates[i], 0, 1};
    t->stats.codes_scored += n;
    return have;
}

/* Whether the search may answer with a row below a node of a level of the tree. */
static bool leads_to_rows(const struct task *t, uint32_t level, uint32_t node)
{
    uint64_t width = 1, n_blocks = t->segment->params.n_blocks;
    if (!t->selection || !t->selected_seeds)
        return true;
    for (uint32_t i = 0; i < level; i++)
        width *= ENTRY_FANOUT;
    uint64_t first = node * width, n = first + width < n_blocks ? width : n_blocks - first;
    return search_selects_entry(t->selection, (uint32_t)first, (uint32_t)n);
}

/* Replaces s->nearest[0..n), nodes of the level above, by their children; returns how many. */
static uint32_t descend(struct task *t, uint32_t l, uint32_t n)
{
    struct searcher *s = t->searcher;
    const struct entry_level *level = &entry_of(t)->levels[l];
    uint32_t pending = 0, have = 0;
    for (uint32_t i = 0; i < n; i++)
        s->beam[i] = s->nearest[i].row;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t first = s->beam[i] * ENTRY_FANOUT;
        for (uint32_t c = first; c < first + ENTRY_FANOUT && c < level->n; c++)
            if (leads_to_rows(t, l, c))
                s->ids[pending++] = c;
        if (pending > STEP_ROWS - ENTRY_FANOUT) {
            have = score_nodes(t, level, pending, have);
            pending = 0;
        }
    }
    return score_nodes(t, level, pending, have);
}

/* Keeps the `want` nearest of s->nearest[0..n), in no order; returns how many. Where most are far they go by a sampled
 * limit first, which spares a selection's mispredicted branches. */
uint32_t search_narrow(struct searcher *s, uint32_t n, uint32_t want)
{
    float sample[LIMIT_SAMPLE];
    if (want >= n)
        return n;
    if (n >= 4 * LIMIT_SAMPLE && want < n / 4) {
        for (uint32_t i = 0; i < LIMIT_SAMPLE; i++)
            sample[i] = s->nearest[(uint64_t)i * n / LIMIT_SAMPLE].distance;
        float limit = sample_limit(sample, n, want);
        uint32_t kept = 0;
        for (uint32_t i = 0; i < n; i++)
            kept += s->nearest[i].distance < limit;
        if (kept >= want) {
            kept = 0;
            for (uint32_t i = 0; i < n; i++) {
                s->nearest[kept] = s->nearest[i];
                kept += s->nearest[kept].distance < limit;
            }
            n = kept;
        }
    }
    search_select_best(s->nearest, n, want);
    return want;
}

int search_reserve_nearest(struct searcher *s, uint64_t n)
{
    if (n <= s->nearest_capacity)
        return 0;
    if (n > UINT32_MAX)
        return QUIRE_ENOMEM;
    if (search_grow(&s->nearest, sizeof *s->nearest * n) < 0 || search_grow(&s->beam, sizeof *s->beam * n) < 0)
        return QUIRE_ENOMEM;
    s->nearest_capacity = (uint32_t)n;
    return 0;
}

/* Goes down the tree with a beam of nodes: the `want` blocks nearest by centre, or nearly so, into s->nearest; returns
 * how many. */
static uint32_t nearest_blocks(struct task *t, uint32_t want, uint32_t beam)
{
    struct searcher *s = t->searcher;
    const struct entry_tree *tree = entry_of(t);
    uint32_t l = tree->n_levels - 1, n = 0;
    for (uint32_t i = 0; i < tree->levels[l].n; i++)
        if (leads_to_rows(t, l, i))
            s->ids[n++] = i;
    n = score_nodes(t, &tree->levels[l], n, 0);
    while (l > 0) {
        n = search_narrow(s, n, beam);
        n = descend(t, --l, n);
    }
    return search_narrow(s, n, want);
}

/* As seed_rows, of cells, whose rows are anywhere. */
static float seed_groups(struct task *t, uint32_t begin, uint32_t end, float limit)
{
    struct searcher *s = t->searcher;
    const struct cells *cells = t->segment->cells;
    uint32_t n = 0;
    for (uint32_t i = begin; i < end; i++) {
        uint32_t cell = s->nearest[i].row, rows = params_block_rows(&t->segment->params, cell);
        if (bitmap_has(t->probed, cell))
            continue;
        bitmap_add(t->probed, cell);
        if (n + rows > STEP_ROWS) {
            task_score_rows(t, n);
            search_add_candidates(t, n, &limit);
            n = 0;
        }
        memcpy(s->ids + n, cells->rows + (size_t)cell * cells->capacity, sizeof *s->ids * rows);
        for (uint32_t r = n; r < n + rows; r++)
            task_prefetch_row(t, s->ids[r]);
        n += rows;
    }
    task_score_rows(t, n);
    search_add_candidates(t, n, &limit);
    return t->n_candidates > t->candidates_max ? keep_best(t) : limit;
}

/* Scores all rows of the blocks s->nearest[begin..end) by their resident codes. `limit` is an estimate above which none
 * matters; returns that limit, lowered by what was found. */
static float seed_rows(struct task *t, uint32_t begin, uint32_t end, float limit)
{
    struct searcher *s = t->searcher;
    uint32_t n = 0;
    if (t->segment->cells)
        return seed_groups(t, begin, end, limit);
    for (uint32_t i = begin; i < end; i++) {
        if (i + PREFETCH_BLOCKS < end)
            task_prefetch_block_rows(t, s->nearest[i + PREFETCH_BLOCKS].row);
        if (bitmap_has(t->probed, s->nearest[i].row))
            continue;
        bitmap_add(t->probed, s->nearest[i].row);
        if (n + t->segment->params.slots_per_block > STEP_ROWS) {
            search_add_candidates(t, n, &limit);
            n = 0;
        }
        n = task_score_block_rows(t, s->nearest[i].row, s->nearest[i].distance, n);
    }
    search_add_candidates(t, n, &limit);
    return t->n_candidates > t->candidates_max ? keep_best(t) : limit;
}

/* Where no code is resident a block stands for its rows: their distances spread around that of the centre. */
static int seed_blocks(struct task *t, uint32_t n_blocks)
{
    struct searcher *s = t->searcher;
    const struct segment *g = t->segment;
    const struct segment_params *p = &g->params;
    if (n_blocks > t->priors_capacity) {
        if (search_grow(&t->priors, sizeof *t->priors * n_blocks) < 0)
            return QUIRE_ENOMEM;
        t->priors_capacity = n_blocks;
    }
    if (reserve_gains(s, (uint64_t)t->candidates_capacity + n_blocks) < 0)
        return QUIRE_ENOMEM;
    t->n_priors = n_blocks;
    for (uint32_t i = 0; i < n_blocks; i++) {
        struct candidate c = s->nearest[i];
        float rms = segment_block_rms(g, c.row);
        c.weight = (float)params_block_rows(p, c.row);
        if (t->selection)
            c.weight = (float)search_selects(t->selection, c.row * p->slots_per_block, (uint32_t)c.weight);
        c.sigma = 2 * sqrtf(c.distance) * rms * p->spread;
        c.distance += rms * rms;
        c.row *= p->slots_per_block; /* its first row */
        t->priors[i] = c;
    }
    return 0;
}

/* The blocks that the tree leads to, at most `effort`, in s->nearest; returns how many, or QUIRE_ENOMEM. */
static int find_blocks(struct task *t)
{
    uint32_t n_blocks = t->segment->params.n_blocks, want = t->effort < n_blocks ? t->effort : n_blocks;
    /* the nearest blocks have fewer parents, more found none (measured); of a selection each may have but one */
    uint32_t beam = (t->selection ? want : want / 3) + TREE_BEAM_MIN;
    if (search_reserve_nearest(t->searcher, (uint64_t)beam * ENTRY_FANOUT + ENTRY_TOP_MAX) < 0)
        return QUIRE_ENOMEM;
    return (int)nearest_blocks(t, want, beam);
}

/* ---- rounds ------------------------------------------------------------------------------------------------------ */

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

static void add_gain(struct searcher *s, uint32_t block, float gain)
{
    uint32_t at = block * 2654435761u >> 7 & s->gains_mask;
    while (s->gains[at].stamp == s->gains_stamp && s->gains[at].block != block)
        at = (at + 1) & s->gains_mask;
    if (s->gains[at].stamp != s->gains_stamp) {
        s->gains[at].stamp = s->gains_stamp;
        s->gains[at].block = block;
        s->gains[at].gain = 0;
    }
    s->gains[at].gain += gain;
}

static float gain_of(const struct searcher *s, uint32_t block)
{
    uint32_t at = block * 2654435761u >> 7 & s->gains_mask;
    while (s->gains[at].stamp == s->gains_stamp && s->gains[at].block != block)
        at = (at + 1) & s->gains_mask;
    return s->gains[at].stamp == s->gains_stamp ? s->gains[at].gain : 0;
}

/* Adds the gains of c[0..n) to their blocks and to *sum; forgets candidates of read blocks and, with `drop`, hopeless
 * ones. Returns how many stay. */
static uint32_t add_gains(struct task *t, struct candidate *c, uint32_t n, float tau, bool drop, double *sum)
{
    struct searcher *s = t->searcher;
    uint32_t per_block = t->segment->params.slots_per_block, kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t block = c[i].row / per_block;
        if (bitmap_has(t->read, block))
            continue;
        float z = isinf(tau) ? 4 : (tau - c[i].distance) / (c[i].sigma + 1e-30f);
        if (z < -Z_DROP && drop)
            continue;
        if (z > -Z_DROP) {
            float gain = c[i].weight * normal_cdf(z);
            add_gain(s, block, gain);
            *sum += (double)gain;
        }
        c[kept++] = c[i];
    }
    return kept;
}

void search_new_stamp(struct searcher *s)
{
    if (++s->gains_stamp == 0) {
        memset(s->gains, 0, sizeof *s->gains * ((size_t)s->gains_mask + 1));
        s->gains_stamp = 1;
    }
}

double search_compute_gains(struct task *t)
{
    bool full = t->n_results == t->k;
    float tau = current_tau(t);
    double sum = 0;
    search_new_stamp(t->searcher);
    t->n_candidates = add_gains(t, t->candidates, t->n_candidates, tau, full, &sum);
    t->n_priors = add_gains(t, t->priors, t->n_priors, tau, full, &sum);
    return sum;
}

/* Blocks by falling gain. */
struct chosen {
    uint32_t n, most;
    uint32_t *blocks;
    float gains[RERANK_MAX];
};

static void choose_among(struct task *t, const struct candidate *c, uint32_t n, float least, struct chosen *out)
{
    uint32_t per_block = t->segment->params.slots_per_block;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t block = c[i].row / per_block, at;
        float gain = gain_of(t->searcher, block);
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

uint32_t search_best_blocks(struct task *t, uint32_t most, float least, uint32_t *blocks, float gains[RERANK_MAX])
{
    struct chosen chosen = {.most = most, .blocks = blocks};
    choose_among(t, t->candidates, t->n_candidates, least, &chosen);
    choose_among(t, t->priors, t->n_priors, least, &chosen);
    memcpy(gains, chosen.gains, sizeof *gains * chosen.n);
    return chosen.n;
}

/* The blocks of largest gain, at most `most`, best first, into blocks; returns how many reach theta. */
static uint32_t choose_blocks(struct task *t, uint32_t most, uint32_t *blocks)
{
    float gains[RERANK_MAX];
    /* while there are fewer than k answers something is read, even where theta asks for more than any block promises */
    float least = t->n_results < t->k ? 0 : t->theta;
    uint32_t n = search_best_blocks(t, most, least, blocks, gains);
    if (t->n_results < t->k)
        while (n > 1 && gains[n - 1] < t->theta)
            n--;
    return n;
}

static int on_block(struct task *t, const struct block_view *view);
static void on_blocks(struct task *t);

void search_read_blocks(struct task *t, const uint32_t *blocks, uint32_t n)
{
    t->stats.rounds++;
    for (uint32_t i = 0; i < n; i++)
        bitmap_add(t->read, blocks[i]);
    task_read_blocks(t, blocks, n, on_block, on_blocks);
}

int search_look_farther(struct task *t)
{
    int n = find_blocks(t);
    if (n < 0 || !t->segment->nav_codes)
        return n < 0 ? n : seed_blocks(t, (uint32_t)n);
    seed_rows(t, 0, (uint32_t)n, INFINITY);
    return 0;
}

uint32_t search_nearest_unread(const struct task *t, uint32_t *block)
{
    uint32_t per_block = t->segment->params.slots_per_block, found = 0;
    float nearest = INFINITY;
    for (uint32_t i = 0; i < t->n_priors; i++) {
        const struct candidate *c = &t->priors[i];
        if (c->distance < nearest && !bitmap_has(t->read, c->row / per_block)) {
            nearest = c->distance;
            *block = c->row / per_block;
            found = 1;
        }
    }
    return found;
}

uint32_t search_reads_left(const struct task *t, uint32_t most)
{
    uint32_t limit = t->search->options.reads_max, seen = search_blocks_seen(t), left = limit > seen ? limit - seen : 0;
    return limit && left < most ? left : most;
}

static void next_round(struct task *t)
{
    uint32_t blocks[BEAM_MAX], n = 0, most = search_reads_left(t, BEAM_MAX);
    for (;;) {
        search_compute_gains(t);
        n = choose_blocks(t, most ? most : 1, blocks);
        if (n == 0 && t->n_results < t->k)
            n = search_nearest_unread(t, blocks);
        if (n > 0 || most == 0 || t->n_results == t->k || t->effort >= t->effort_end)
            break;
        /* all that is known was read and gave fewer than k: look farther */
        t->effort = t->effort < t->effort_end / 2 ? 2 * t->effort : t->effort_end;
        if (search_look_farther(t) < 0) {
            task_finish(t, QUIRE_ENOMEM);
            return;
        }
    }
    if (most == 0) {
        t->stats.complete = n == 0 && t->n_results == t->k;
        n = 0;
    }
    if (n > 0)
        search_read_blocks(t, blocks, n);
    else
        search_deliver(t);
}

/* One round, and another only where the first could not take all that were worth it; with a selection as many as it
 * takes. */
void search_rerank(struct task *t)
{
    if (t->selection) {
        search_filtered_round(t);
        return;
    }
    uint32_t blocks[RERANK_MAX], most = search_reads_left(t, task_blocks_max(t));
    bool more = t->reranks == 0 || t->n_results < t->k || t->rerank_full;
    search_compute_gains(t);
    uint32_t n = more ? choose_blocks(t, most ? most : 1, blocks) : 0;
    bool farther = t->n_results < t->k && t->effort < t->effort_end;
    if (most == 0 && (n > 0 || farther))
        t->stats.complete = false;
    if (n > 0 && most > 0) {
        t->reranks++;
        t->rerank_full = n == most;
        search_read_blocks(t, blocks, n);
    } else if (farther && most > 0) {
        /* all that is known was read and gave fewer than k: look farther */
        t->effort = t->effort < t->effort_end / 2 ? 2 * t->effort : t->effort_end;
        search_lists(t);
    } else
        search_deliver(t);
}

static void next_exact_round(struct task *t)
{
    uint32_t blocks[BEAM_MAX], n = 0, limit = t->search->options.reads_max;
    while (n < BEAM_MAX && t->next_block < t->segment->params.n_blocks && (!limit || search_blocks_seen(t) + n < limit))
        blocks[n++] = t->next_block++;
    if (n > 0) {
        search_read_blocks(t, blocks, n);
        return;
    }
    t->stats.exact = t->stats.complete = t->next_block == t->segment->params.n_blocks;
    search_deliver(t);
}

int search_score_block(struct task *t, const struct block_view *view)
{
    float *distances = t->searcher->slot_distances;
    task_score_slots(t, view, distances);
    t->stats.rows_scored += view->n_slots;
    for (uint32_t i = 0; i < view->n_slots; i++)
        if (offer(t, view, i, distances[i]) < 0)
            return QUIRE_ECORRUPT;
    return 0;
}

int search_reserve_edges(struct task *t, uint32_t n)
{
    struct searcher *s = t->searcher;
    if (n <= s->edges_capacity)
        return 0;
    if (search_grow(&s->edges, sizeof *s->edges * n) < 0)
        return QUIRE_ENOMEM;
    s->edges_capacity = n;
    return 0;
}

/* Scores the edges of one list that lead where the query has not been. */
static int follow_list(struct task *t, const struct block_view *view, uint32_t list, uint32_t *n, float *limit)
{
    struct searcher *s = t->searcher;
    const struct segment_params *p = &t->segment->params;
    const struct cells *cells = t->segment->cells;
    uint32_t block_end = 0, first;
    bool skip = false;
    int edges = block_edges(view, list, s->edges, &first);
    for (int i = 0; i < edges; i++) {
        uint32_t row = s->edges[i];
        if (row >= block_end) {
            if (row >= p->rows)
                return QUIRE_ECORRUPT;
            uint32_t block = row / p->slots_per_block;
            block_end = (block + 1) * p->slots_per_block;
            skip = (!cells && bitmap_has(t->probed, block)) || bitmap_has(t->read, block);
        }
        uint32_t *recent = &t->recent[row * 2654435761u >> 22 & (RECENT_ROWS - 1)];
        if (skip || *recent == row || (cells && bitmap_has(t->probed, cells->of[row])))
            continue;
        *recent = row;
        s->picks[*n] = first + (uint32_t)i;
        s->ids[(*n)++] = row;
        if (*n == STEP_ROWS) {
            task_score_edges(t, view, *n);
            search_add_candidates(t, *n, limit);
            *n = 0;
        }
    }
    return edges < 0 ? edges : 0;
}

/* The squared distance up to which a slot's edges are worth following: that of the k-th nearest and more where codes
 * are coarse and the seeds have missed more, or that of the nearest slot while there are fewer than k. */
static float reach_of(const struct task *t, const float *distances, uint32_t n)
{
    if (!t->segment->nav_codes)
        return INFINITY; /* edges are all there is to go by */
    if (t->n_results == t->k)
        return t->results[0].distance * (1 + t->segment->params.error[t->segment->width] / 2);
    float nearest = INFINITY;
    for (uint32_t i = 0; i < n; i++)
        nearest = fminf(nearest, distances[i]);
    return nearest;
}

/* Follows the edge lists of the slots that turned out near. */
static int follow_edges(struct task *t, const struct block_view *view)
{
    const float *distances = t->searcher->slot_distances;
    float tau = t->n_results == t->k ? t->results[0].distance : INFINITY;
    /* an estimate may exceed tau by its error; sigma is about the same for all rows near the query */
    float limit = tau + Z_DROP * (t->n_candidates ? t->candidates[0].sigma : 0);
    float reach = reach_of(t, distances, view->n_slots);
    uint32_t n = 0;
    int rc = search_reserve_edges(t, view->n_edges);
    for (uint32_t l = 0; l < view->n_lists && rc == 0; l++) {
        uint32_t i = l * view->list_slots, end = i + view->list_slots;
        while (i < end && i < view->n_slots && distances[i] > reach)
            i++;
        if (i < end && i < view->n_slots)
            rc = follow_list(t, view, l, &n, &limit);
    }
    if (rc == 0 && n > 0) {
        task_score_edges(t, view, n);
        search_add_candidates(t, n, &limit);
    }
    return rc;
}

static int on_block(struct task *t, const struct block_view *view)
{
    int rc = search_score_block(t, view);
    if (rc == 0 && !t->search->options.exact && !t->scanning && view->n_lists > 0)
        rc = follow_edges(t, view);
    if (rc == QUIRE_ECORRUPT)
        task_fail(t, rc, "a block of %s is damaged: its keys or edges do not decode",
                  section_file_io(t->segment->blocks)->path);
    return rc;
}

static void on_blocks(struct task *t)
{
    if (t->code < 0)
        task_finish(t, t->code);
    else if (t->selection)
        search_filtered_round(t);
    else if (t->search->options.exact)
        next_exact_round(t);
    else if (t->segment->lists)
        search_rerank(t);
    else
        next_round(t);
}

/* ---- answer ------------------------------------------------------------------------------------------------------ */

static void fetch_long_keys(struct task *t);

static void on_long_key(struct task *t)
{
    const uint8_t *copy = t->copies + (size_t)t->results[t->next_key].place * t->copy_bytes, *key;
    uint32_t length = load_u32(copy);
    if (task_take_key(t, load_u64(copy + 8), length, &key) < 0) {
        task_finish(t, t->code);
        return;
    }
    uint8_t *kept = malloc(length);
    if (!kept) {
        task_finish(t, QUIRE_ENOMEM);
        return;
    }
    memcpy(kept, key, length);
    t->hits[t->next_key].key = kept;
    t->next_key++;
    fetch_long_keys(t);
}

/* Reads the keys that do not stand in the blocks, one after the other, then ends the task. */
static void fetch_long_keys(struct task *t)
{
    for (; t->next_key < t->n_results; t->next_key++) {
        const uint8_t *copy = t->copies + (size_t)t->results[t->next_key].place * t->copy_bytes;
        if (copy[4])
            continue;
        t->stats.rounds++;
        if (task_read_key(t, load_u64(copy + 8), load_u32(copy), on_long_key) < 0)
            task_finish(t, t->code);
        return;
    }
    task_finish(t, 0);
}

static void fill_hit(struct task *t, uint32_t i)
{
    const struct segment *s = t->segment;
    const struct segment_params *p = &s->params;
    const struct result *r = &t->results[i];
    struct search_hit *hit = &t->hits[i];
    const uint8_t *copy = t->copy_bytes ? t->copies + (size_t)r->place * t->copy_bytes : NULL;
    *hit = (struct search_hit){
        .id = r->id, .row = r->row, .distance = space_distance(&s->space, r->distance, t->query_norm2)};
    if (t->search->want_keys) {
        hit->key_bytes = load_u32(copy);
        hit->key = copy[4] ? copy + 16 : NULL;
        copy += BLOCK_KEY_INLINE_MAX + 16;
    }
    if (t->search->want_vectors) {
        float *vector = t->vectors + (size_t)i * p->dim;
        segment_slot_vector(s, r->row / p->slots_per_block, copy, copy + p->slot_bytes, t->centre, vector);
        hit->vector = vector;
    }
}

uint32_t search_number_key(uint32_t id, uint8_t *out)
{
    uint8_t digits[10];
    uint32_t n = 0;
    do
        digits[n++] = (uint8_t)('0' + id % 10);
    while (id /= 10);
    for (uint32_t i = 0; i < n; i++)
        out[i] = digits[n - 1 - i];
    return n;
}

/* Keys that are row numbers are written where a key's bytes would be. */
static void write_number_keys(struct task *t)
{
    for (uint32_t i = 0; i < t->n_results; i++) {
        uint8_t *copy = t->copies + (size_t)t->results[i].place * t->copy_bytes;
        store_u32(copy, search_number_key(t->results[i].id, copy + 16));
        copy[4] = 1;
    }
}

void search_deliver(struct task *t)
{
    qsort(t->results, t->n_results, sizeof *t->results, by_distance);
    if (t->search->want_keys && !t->segment->params.user_keys)
        write_number_keys(t);
    for (uint32_t i = 0; i < t->n_results; i++)
        fill_hit(t, i);
    t->next_key = 0;
    if (t->search->want_keys)
        fetch_long_keys(t);
    else
        task_finish(t, 0);
}

/* Seeds and first round. The nearest part of the seeds knows the first blocks to read almost as well as all of them:
 * those are asked for first, and the rest is scored while they come. */
void search_begin_walk(struct task *t)
{
    struct searcher *s = t->searcher;
    int n = find_blocks(t);
    if (n > 0 && t->selection) {
        enum seeds seeds = search_judge_seeds(t, search_selected_seeds(t, (uint32_t)n));
        if (seeds == SEEDS_DONE)
            return;
        n = seeds == SEEDS_AGAIN ? find_blocks(t) : n;
    }
    if (n > 0 && !t->segment->nav_codes)
        n = seed_blocks(t, (uint32_t)n) < 0 ? QUIRE_ENOMEM : n;
    if (n < 0) {
        task_finish(t, QUIRE_ENOMEM);
        return;
    }
    if (!t->segment->nav_codes) {
        if (t->selection)
            search_filtered_round(t);
        else
            next_round(t);
        return;
    }
    uint32_t all = (uint32_t)n, early = all / EARLY_PART + EARLY_MIN;
    /* with a selection it must be known first whether enough of it is near */
    early = early < all && !t->selection ? early : all;
    search_select_best(s->nearest, all, early);
    float limit = seed_rows(t, 0, early, INFINITY);
    if (t->selection) {
        search_filtered_round(t);
        return;
    }
    uint64_t generation = t->generation;
    next_round(t);
    if (t->generation != generation || early == all)
        return; /* it has ended, and may serve another request by now */
    if (s->n_running <= FLUSH_TASKS)
        engine_flush(s->engine);
    seed_rows(t, early, all, limit);
}

uint32_t search_effort(const struct task *t, uint32_t k)
{
    const struct quire_search_options *o = &t->search->options;
    uint32_t effort = o->recall > 0 ? segment_effort(t->segment, o->recall, k)
                      : o->effort   ? o->effort
                                    : segment_effort(t->segment, DEFAULT_RECALL, k);
    uint32_t least = t->segment->lists ? 1 : EFFORT_MIN;
    return effort < least ? least : effort;
}

void search_set_theta(struct task *t)
{
    uint32_t slots = t->segment->params.slots_per_block;
    t->theta = fminf(fmaxf(theta_effort[t->segment->width] / (float)t->effort, THETA_MIN), THETA_MAX);
    if (slots < FEW_SLOTS)
        t->theta *= (float)slots / FEW_SLOTS;
    t->stats.effort = t->effort;
}

void search_begin(struct task *t)
{
    const struct quire_search_options *o = &t->search->options;
    const struct segment_params *p = &t->segment->params;
    memset(&t->stats, 0, sizeof t->stats);
    t->n_results = t->n_candidates = t->n_priors = t->next_block = t->next_key = 0;
    t->k = o->k < p->rows ? o->k : (uint32_t)p->rows;
    t->dead = t->search->dead ? t->search->dead : t->segment->dead;
    t->selection = t->search->selection;
    if (t->selection && t->selection->n == p->rows)
        t->selection = NULL; /* of all rows */
    t->scanning = t->limited = t->known_selected = t->selected_seeds = false;
    t->stats.complete = true;
    if (task_reserve(t, t->segment) < 0 || reserve_results(t) < 0 || search_reserve_candidates(t, 0) < 0) {
        task_fail(t, QUIRE_ENOMEM, "no memory for a search with k %u", o->k);
        task_finish(t, QUIRE_ENOMEM);
        return;
    }
    uint32_t blocks = p->n_blocks, places = blocks > p->n_lists ? blocks : p->n_lists;
    memset(t->probed, 0, ((size_t)places + 7) / 8);
    memset(t->read, 0, ((size_t)blocks + 7) / 8);
    memset(t->recent, 0xff, sizeof *t->recent * RECENT_ROWS);
    task_set_query(t, t->search->query);
    if (t->selection) {
        search_filtered_begin(t);
        return;
    }
    t->stats.matches = p->rows;
    if (o->exact) {
        t->stats.plan = QUIRE_PLAN_EXACT;
        next_exact_round(t);
        return;
    }
    t->effort = search_effort(t, t->k);
    t->effort_end = t->segment->lists ? t->segment->lists->n : p->n_blocks;
    if (t->segment->lists) {
        search_lists_begin(t);
        search_lists(t);
        return;
    }
    search_set_theta(t);
    search_begin_walk(t);
}

void search_end(struct task *t, int code)
{
    struct search_request *request = t->search;
    uint64_t now = clock_ns();
    t->stats.cpu_ns = t->cpu_ns + (now - t->step_ns);
    t->stats.latency_ns = now - request->started_ns;
    request->code = code;
    request->error = t->error;
    request->hits = code == 0 ? t->hits : NULL;
    request->n_hits = code == 0 ? t->n_results : 0;
    request->stats = t->stats;
    uint32_t n_keys = t->search->want_keys ? t->next_key : 0;
    request->done(request);
    /* keys read from the heap are the task's to free */
    for (uint32_t i = 0; i < n_keys; i++) {
        const uint8_t *copy = t->copies + (size_t)t->results[i].place * t->copy_bytes;
        if (!copy[4])
            free((void *)t->hits[i].key);
    }
}
