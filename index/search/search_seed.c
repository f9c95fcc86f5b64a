/*
 * search_seed.c - where a search in a page graph begins: the blocks whose centres are nearest, and their rows.
 *
 * The tree over the centres of all blocks (entry.h) leads to the `effort` nearest blocks, or cells of rows that were
 * blocks before those of small tenants were put side by side (cells.h). Their rows are scored by their navigation
 * codes, which lie next to each other in memory, and become candidates. Where a budget leaves no space for codes, a
 * block stands for its rows: how many of them are near follows from its centre's distance and their spread around it.
 */
#include "index/search/task.h"
#include "io/array.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TREE_BEAM_MIN   8u
#define PREFETCH_BLOCKS 2u

/* The tree by which the search enters: of cells of near rows, which usually are the blocks. */
static const struct entry_tree *entry_of(const struct task *t)
{
    const struct segment *g = t->segment;
    return g->cells ? &g->cells->entry : &g->entry;
}

/* Scores s->ids[0..n), nodes of a level, and adds them to f->nearest[0..have); returns how many there are then. */
static uint32_t score_nodes(struct task *t, const struct entry_level *level, uint32_t n, uint32_t have)
{
    struct scratch *s = &t->searcher->scratch;
    struct search_scratch *f = &t->searcher->found;
    score_centres(t, level, s->ids, n, s->estimates);
    for (uint32_t i = 0; i < n; i++)
        f->nearest[have++] = (struct candidate){s->ids[i], s->estimates[i], 0, 1};
    t->search.stats.codes_scored += n;
    return have;
}

/* Whether the search may answer with a row below a node of a level of the tree. */
static bool leads_to_rows(const struct task *t, uint32_t level, uint32_t node)
{
    const struct search *q = &t->search;
    uint64_t width = 1, n_blocks = t->segment->params.n_blocks;
    if (!q->filter.selection || !q->filter.selected_seeds)
        return true;
    for (uint32_t i = 0; i < level; i++)
        width *= ENTRY_FANOUT;
    uint64_t first = node * width, n = first + width < n_blocks ? width : n_blocks - first;
    return search_selects_entry(q->filter.selection, (uint32_t)first, (uint32_t)n);
}

/* Replaces f->nearest[0..n), nodes of the level above, by their children; returns how many. */
static uint32_t descend(struct task *t, uint32_t l, uint32_t n)
{
    struct scratch *s = &t->searcher->scratch;
    struct search_scratch *f = &t->searcher->found;
    const struct entry_level *level = &entry_of(t)->levels[l];
    uint32_t pending = 0, have = 0;
    for (uint32_t i = 0; i < n; i++)
        f->beam[i] = f->nearest[i].row;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t first = f->beam[i] * ENTRY_FANOUT;
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

uint32_t search_narrow(struct search_scratch *f, uint32_t n, uint32_t want)
{
    search_select_best(f->nearest, n, want);
    return n < want ? n : want;
}

int search_reserve_nearest(struct search_scratch *f, uint64_t n)
{
    if (!array_reserve_kept(&f->nearest, &f->nearest_capacity, n, SCRATCH_KEPT) ||
        !array_reserve_kept(&f->beam, &f->beam_capacity, n, SCRATCH_KEPT))
        return QUIRE_ENOMEM;
    return 0;
}

/* The `want` blocks (or cells) whose near ends are nearest, of f->nearest[0..n), in no order; returns how many. A row
 * is on average as far as |q - c|^2 + rms^2, and those of a wide block spread wider: of two blocks whose centres are
 * equally far that one has the nearer rows. Half a spread nearer was the best of what was tried. */
static uint32_t narrow_by_near_ends(struct task *t, uint32_t n, uint32_t want)
{
    struct search_scratch *f = &t->searcher->found;
    const float *factors = entry_of(t)->levels[0].factors;
    if (n <= want)
        return n;
    for (uint32_t i = 0; i < n; i++) {
        struct candidate *c = &f->nearest[i];
        float rms = factors[ENTRY_FACTORS * (size_t)c->row + 2];
        c->sigma = c->distance; /* kept meanwhile */
        c->distance += rms * (rms - sqrtf(c->distance));
    }
    want = search_narrow(f, n, want);
    for (uint32_t i = 0; i < want; i++)
        f->nearest[i].distance = f->nearest[i].sigma;
    return want;
}

/* Goes down the tree with a beam of nodes. */
int search_find_blocks(struct task *t)
{
    const struct search *q = &t->search;
    struct scratch *s = &t->searcher->scratch;
    struct search_scratch *f = &t->searcher->found;
    const struct entry_tree *tree = entry_of(t);
    uint32_t n_blocks = t->segment->params.n_blocks, want = q->effort < n_blocks ? q->effort : n_blocks;
    /* the nearest blocks have fewer parents, more found none (measured); of a selection each may have but one */
    uint32_t beam = (q->filter.selection ? want : want / 3) + TREE_BEAM_MIN, l = tree->n_levels - 1, n = 0;
    assert(want > 0 && tree->levels[l].n <= ENTRY_TOP_MAX);
    if (search_reserve_nearest(f, (uint64_t)beam * ENTRY_FANOUT + ENTRY_TOP_MAX) < 0)
        return QUIRE_ENOMEM;
    for (uint32_t i = 0; i < tree->levels[l].n; i++)
        if (leads_to_rows(t, l, i))
            s->ids[n++] = i;
    n = score_nodes(t, &tree->levels[l], n, 0);
    while (l > 0) {
        n = search_narrow(f, n, beam);
        n = descend(t, --l, n);
    }
    return (int)narrow_by_near_ends(t, n, want);
}

/* As search_seed_rows, of cells, whose rows are anywhere. */
static float seed_cells(struct task *t, uint32_t begin, uint32_t end, float limit)
{
    struct scratch *s = &t->searcher->scratch;
    struct search_scratch *f = &t->searcher->found;
    struct search *q = &t->search;
    const struct cells *cells = t->segment->cells;
    uint32_t n = 0;
    for (uint32_t i = begin; i < end; i++) {
        uint32_t cell = f->nearest[i].row, rows = format_block_rows(&t->segment->params, cell);
        if (bitmap_has(q->probed, cell))
            continue;
        bitmap_add(q->probed, cell);
        if (n + rows > STEP_ROWS) {
            score_rows(t, n);
            search_add_candidates(t, n, &limit);
            n = 0;
        }
        memcpy(s->ids + n, cells->rows + (size_t)cell * cells->capacity, sizeof *s->ids * rows);
        for (uint32_t r = n; r < n + rows; r++)
            score_prefetch_row(t->segment, s->ids[r]);
        n += rows;
    }
    score_rows(t, n);
    search_add_candidates(t, n, &limit);
    return q->n_candidates > q->candidates_max ? search_keep_best(q) : limit;
}

float search_seed_rows(struct task *t, uint32_t begin, uint32_t end, float limit)
{
    struct search_scratch *f = &t->searcher->found;
    struct search *q = &t->search;
    uint32_t n = 0;
    if (t->segment->cells)
        return seed_cells(t, begin, end, limit);
    for (uint32_t i = begin; i < end; i++) {
        if (i + PREFETCH_BLOCKS < end)
            score_prefetch_block(t->segment, f->nearest[i + PREFETCH_BLOCKS].row);
        if (bitmap_has(q->probed, f->nearest[i].row))
            continue;
        bitmap_add(q->probed, f->nearest[i].row);
        if (n + t->segment->params.slots_per_block > STEP_ROWS) {
            search_add_candidates(t, n, &limit);
            n = 0;
        }
        n = score_block_rows(t, f->nearest[i].row, f->nearest[i].distance, n);
    }
    search_add_candidates(t, n, &limit);
    return q->n_candidates > q->candidates_max ? search_keep_best(q) : limit;
}

/* Where no code is resident a block stands for its rows: their distances spread around that of the centre. */
int search_seed_blocks(struct task *t, uint32_t n_blocks)
{
    struct search *q = &t->search;
    struct search_scratch *f = &t->searcher->found;
    const struct segment *g = t->segment;
    const struct segment_params *p = &g->params;
    if (!array_reserve_kept(&q->priors, &q->priors_capacity, n_blocks, PRIORS_KEPT) ||
        search_reserve_gains(f, (uint64_t)q->candidates_capacity + n_blocks) < 0)
        return QUIRE_ENOMEM;
    assert(!g->nav_codes && n_blocks <= q->priors_capacity);
    q->n_priors = n_blocks;
    for (uint32_t i = 0; i < n_blocks; i++) {
        struct candidate c = f->nearest[i];
        float rms = segment_block_rms(g, c.row);
        c.weight = (float)format_block_rows(p, c.row);
        if (q->filter.selection)
            c.weight = (float)search_selects(q->filter.selection, c.row * p->slots_per_block, (uint32_t)c.weight);
        c.sigma = 2 * sqrtf(c.distance) * rms * p->spread;
        c.distance += rms * rms;
        c.row *= p->slots_per_block; /* its first row */
        q->priors[i] = c;
    }
    return 0;
}

int search_look_farther(struct task *t)
{
    int n = search_find_blocks(t);
    if (n < 0 || !t->segment->nav_codes)
        return n < 0 ? n : search_seed_blocks(t, (uint32_t)n);
    search_seed_rows(t, 0, (uint32_t)n, INFINITY);
    return 0;
}
