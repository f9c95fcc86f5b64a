/*
 * graph_search.c - measuring, and the beam search on one layer that both queries and insertions use.
 *
 * A step takes the nearest row of the frontier, reads its links, and measures those not seen before in one call of the
 * kernel, which prefetches their codes; the numbers are prefetched here while the links are looked up. The search ends
 * when the nearest row of the frontier is farther than the worst of the `beam` best.
 *
 * With a filter only accepted rows count among the best, and all are walked through: the frontier is then cut where
 * the beam is full. A filter that accepts next to nothing would walk through everything, so a search measures at most
 * EFFORT_BASE + EFFORT * beam * links rows; who filters that hard has few rows, and measures them all (graph_score).
 *
 * Copies of one row are at the same distance, to the last bit. A beam full of them sees nothing else, so no more of
 * them count than the caller wants (a query: as many as it asks for).
 *
 * Seen rows are kept in a table of a size that follows the beam, not the graph: 32 KiB are cleared for a beam of 100,
 * and lie in the first-level cache. It grows where a filter makes a search long; the rows are also listed in order, so
 * that growing is clearing and filling again.
 */
#include "index/graph/graph_priv.h"
#include "index/kernels/kernels.h"
#include "index/vector/codes.h"
#include "io/array.h"
#include "io/error.h"
#include "io/heap.h"
#include "io/memory.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define LEVELS_BYTES (QUIRE_DIM_MAX + 64) /* one more dimension under inner product, and padding */
#define EFFORT_BASE  8192u
#define EFFORT       8u  /* rows measured at most: this times beam * links of a row, and the base */
#define SEEN_PER_ROW 64u /* first size of the table of seen rows, per row of the beam */
#define WIDTH        2u  /* rows expanded at a time */

/* ---- scratch ---- */

int graph_scratch_create(struct graph_scratch **out, struct quire_error *err)
{
    struct graph_scratch *scratch = calloc(1, sizeof *scratch);
    int8_t *levels = memory_aligned(64, 3 * (size_t)LEVELS_BYTES);
    if (!scratch || !levels) {
        free(scratch);
        memory_free(levels);
        return error_set(err, QUIRE_ENOMEM, "no memory for a search of the graph");
    }
    scratch->query.levels = levels;
    scratch->row.levels = levels + LEVELS_BYTES;
    scratch->other.levels = levels + 2 * (size_t)LEVELS_BYTES;
    *out = scratch;
    return 0;
}

void graph_scratch_destroy(struct graph_scratch *scratch)
{
    if (!scratch)
        return;
    memory_free(scratch->query.levels);
    array_free_all(scratch->visited.slots, scratch->visited.order, scratch->best, scratch->frontier, scratch);
}

/* Rows that a search with this beam measures at most. */
static uint32_t effort_of(const struct graph *graph, uint32_t beam)
{
    uint64_t effort = EFFORT_BASE + EFFORT * (uint64_t)beam * graph->capacity;
    uint32_t rows = atomic_load_explicit(&graph->n_rows, memory_order_relaxed);
    return effort < rows ? (uint32_t)effort : rows;
}

/* Where rows at this distance are counted. */
static uint32_t tie_of(uint64_t key)
{
    return ((uint32_t)(key >> 32) * 0x9e3779b1u) >> (32 - TIE_BITS);
}

static uint32_t power_of_two(uint64_t least)
{
    uint32_t power = 1024;
    while (power < least)
        power *= 2;
    return power;
}

int graph_scratch_reserve(struct graph_scratch *scratch, const struct graph *graph, uint32_t beam)
{
    beam = beam > graph->descent ? beam : graph->descent;
    uint64_t need = (uint64_t)effort_of(graph, beam) + BATCH_MAX + beam;
    if (need <= scratch->capacity)
        return 0;
    if (need > UINT32_MAX / 4)
        return QUIRE_ENOMEM;
    uint32_t capacity = power_of_two(need);
    uint32_t *slots = malloc(2 * (size_t)capacity * sizeof *slots);
    uint32_t *order = malloc(capacity * sizeof *order);
    uint64_t *best = malloc(capacity * sizeof *best);
    uint64_t *frontier = malloc(capacity * sizeof *frontier);
    if (!slots || !order || !best || !frontier) {
        array_free_all(slots, order, best, frontier);
        return QUIRE_ENOMEM;
    }
    array_free_all(scratch->visited.slots, scratch->visited.order, scratch->best, scratch->frontier);
    scratch->visited = (struct visited){.slots = slots, .order = order};
    scratch->best = best;
    scratch->frontier = frontier;
    scratch->capacity = capacity;
    assert(scratch->capacity >= need);
    return 0;
}

void graph_scratch_settle(const struct graph *graph, struct graph_scratch *scratch)
{
    atomic_uint_fast64_t *total = (atomic_uint_fast64_t *)(uintptr_t)&graph->distances;
    atomic_fetch_add_explicit(total, scratch->n_distances, memory_order_relaxed);
    scratch->n_distances = 0;
}

/* ---- rows that were seen ---- */

static void visited_clear(struct visited *visited, uint32_t size)
{
    memset(visited->slots, 0, size * sizeof *visited->slots);
    visited->mask = size - 1;
}

/* Puts a row in; 1 if it was not seen before. Which it is cannot be predicted, so nothing branches on it. */
static inline uint32_t visited_add(struct visited *visited, uint32_t row)
{
    uint32_t at = row * 0x9e3779b1u, *slots = visited->slots;
    at = (at ^ at >> 15) & visited->mask;
    while (slots[at] != 0 && slots[at] != row + 1)
        at = (at + 1) & visited->mask;
    uint32_t fresh = slots[at] == 0;
    slots[at] = row + 1;
    visited->order[visited->n] = row;
    visited->n += fresh;
    return fresh;
}

/* ---- heaps ---- */

static inline bool is_worse(const near_t *a, const near_t *b)
{
    return *a > *b;
}

static inline bool is_nearer(const near_t *a, const near_t *b)
{
    return *a < *b;
}

HEAP_DEFINE(best, near_t, is_worse, HEAP_PLACE_UNKNOWN)
HEAP_DEFINE(frontier, near_t, is_nearer, HEAP_PLACE_UNKNOWN)

/* ---- measuring ---- */

void graph_measure_row(const struct graph *graph, struct measure *measure, uint32_t row)
{
    const uint8_t *restrict code = graph_row_code(graph, row);
    int8_t *restrict levels = measure->levels;
    const struct graph_row_numbers *numbers = graph_row_numbers(graph, row);
    for (uint32_t i = 0; i < graph->code_dim; i++)
        levels[i] = (int8_t)(code[i] ^ 0x80);
    /* rows.c has the formula. */
    float sum = (float)(numbers->level_sum - 128 * (int32_t)graph->code_dim);
    measure->base = numbers->norm2;
    measure->scale = 2 * numbers->f;
    measure->offset = measure->scale * (-127.5f * sum - 63.75f * (float)graph->code_dim);
    measure->by_sum = numbers->f;
}

/* The products of n rows with the measure's levels: one call of the kernel per region that has any of them. */
static void dots_of(const struct graph *graph, const struct measure *measure, const uint32_t *rows, uint32_t n,
                    int32_t *dots)
{
    const struct stable_array *codes = &graph->codes;
    uint32_t bits = 0;
    for (uint32_t i = 0; i < n; i++)
        bits |= rows[i];
    unsigned last = stable_array_region(codes, bits);
    if (last == 0) {
        kernels()->code_dot[3](measure->levels, (const uint8_t *)codes->base[0], codes->stride, rows, n,
                               graph->code_dim, dots);
        return;
    }
    for (unsigned region = 0; region <= last; region++) {
        uint32_t here[BATCH_MAX], place[BATCH_MAX], m = 0;
        int32_t part[BATCH_MAX];
        for (uint32_t i = 0; i < n; i++)
            if (stable_array_region(codes, rows[i]) == region) {
                here[m] = rows[i];
                place[m++] = i;
            }
        if (m)
            kernels()->code_dot[3](measure->levels, (const uint8_t *)codes->base[region], codes->stride, here, m,
                                   graph->code_dim, part);
        for (uint32_t i = 0; i < m; i++)
            dots[place[i]] = part[i];
    }
}

void graph_measure_rows(const struct graph *graph, struct graph_scratch *scratch, const struct measure *measure,
                        const uint32_t *rows, uint32_t n, float *out)
{
    assert(n <= BATCH_MAX);
    dots_of(graph, measure, rows, n, scratch->dots);
    for (uint32_t i = 0; i < n; i++) {
        const struct graph_row_numbers *numbers = graph_row_numbers(graph, rows[i]);
        float dot =
            measure->scale * (float)scratch->dots[i] + measure->offset + measure->by_sum * (float)numbers->level_sum;
        float distance = measure->base + numbers->norm2 - numbers->f * dot;
        out[i] = distance > 0 ? distance : 0;
    }
    scratch->n_distances += n;
}

int graph_query(const struct graph *graph, struct graph_scratch *scratch, const float *rotated)
{
    struct measure *measure = &scratch->query;
    struct code_query query = {.levels = measure->levels};
    code_query_set(&query, rotated, graph->code_dim);
    measure->base = query.norm2;
    measure->scale = 2 * query.step;
    measure->offset = -measure->scale * code_half(8) * (float)query.level_sum;
    measure->by_sum = 0;
    return graph_scratch_reserve(scratch, graph, graph->beam);
}

void graph_score(const struct graph *graph, struct graph_scratch *scratch, const uint32_t *rows, uint32_t n, float *out)
{
    for (uint32_t i = 0; i < n; i += BATCH_MAX)
        graph_measure_rows(graph, scratch, &scratch->query, rows + i, n - i < BATCH_MAX ? n - i : BATCH_MAX, out + i);
    graph_scratch_settle(graph, scratch);
}

/* ---- the beam search ---- */

/* Puts the links of a row that were not seen before behind n rows of the batch, their numbers on the way; returns how
 * many it has then. */
static uint32_t gather(const struct graph *graph, struct graph_scratch *scratch, uint32_t row, unsigned layer,
                       uint32_t n)
{
    uint32_t links[LINKS_MAX], n_links = graph_links_read(graph, row, layer, links);
    struct visited *visited = &scratch->visited;
    if (visited->n + LINKS_MAX > visited->mask / 2 + 1) { /* places for LINKS_MAX more in half of the table */
        uint32_t seen = visited->n;
        visited_clear(visited, 2 * (visited->mask + 1));
        for (visited->n = 0; visited->n < seen;)
            visited_add(visited, visited->order[visited->n]);
    }
    for (uint32_t i = 0; i < n_links; i++) {
        uint32_t link = links[i] & ~LINK_TREE;
        __builtin_prefetch(graph_row_numbers(graph, link));
        scratch->batch[n] = link;
        n += visited_add(visited, link);
    }
    return n;
}

/* Whether a row is worth a step: near enough, and not one more of many copies. */
static bool promising(struct graph_scratch *scratch, const struct graph_layer_search *search, uint64_t key)
{
    if (scratch->n_best == search->beam && key >> 32 >= scratch->best[0] >> 32)
        return false;
    struct tie *tie = &scratch->ties[tie_of(key)];
    if (tie->bits != key >> 32)
        *tie = (struct tie){.bits = (uint32_t)(key >> 32)};
    return tie->n < search->copies;
}

/* Counts a promising row among the best if it is accepted. */
static void offer(struct graph_scratch *scratch, const struct graph_layer_search *search, uint64_t key)
{
    if (search->accept && !search->accept(search->context, near_row(key)))
        return;
    scratch->ties[tie_of(key)].n++;
    if (scratch->n_best == search->beam)
        best_replace(scratch->best, scratch->n_best, key);
    else
        best_push(scratch->best, scratch->n_best++, key);
}

/* Whether the nearest row of the frontier may have neighbours that belong to the best. */
static bool goes_on(const struct graph_scratch *scratch, const struct graph_layer_search *search)
{
    return scratch->n_frontier && (scratch->n_best < search->beam || scratch->frontier[0] <= scratch->best[0]);
}

/* On upper layers: where the links are. */
static void fetch_links(const struct graph *graph, uint32_t row, unsigned layer)
{
    const char *links = stable_array_at(&graph->links, row);
    if (layer == 0)
        __builtin_prefetch(links);
    __builtin_prefetch(links + graph->links.stride - 1);
}

/* Takes the nearest WIDTH rows of the frontier and measures their links. */
static void expand(const struct graph *graph, struct graph_scratch *scratch, const struct graph_layer_search *search)
{
    uint32_t n = 0;
    for (unsigned i = 0; i < WIDTH && goes_on(scratch, search); i++) {
        uint32_t row = near_row(scratch->frontier[0]), left = --scratch->n_frontier;
        frontier_replace(scratch->frontier, left, scratch->frontier[left]);
        n = gather(graph, scratch, row, search->layer, n);
    }
    for (unsigned i = 0; i < WIDTH && i < scratch->n_frontier; i++) /* likely the next ones */
        fetch_links(graph, near_row(scratch->frontier[i]), search->layer);
    graph_measure_rows(graph, scratch, search->measure, scratch->batch, n, scratch->distances);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t key = near_of(scratch->distances[i], scratch->batch[i]);
        if (promising(scratch, search, key)) {
            frontier_push(scratch->frontier, scratch->n_frontier++, key);
            if (scratch->frontier[0] == key)
                fetch_links(graph, scratch->batch[i], search->layer);
            offer(scratch, search, key);
        }
    }
}

void graph_search_layer(const struct graph *graph, struct graph_scratch *scratch,
                        const struct graph_layer_search *search)
{
    uint32_t effort = effort_of(graph, search->beam), seeds = scratch->n_best;
    uint32_t most = scratch->capacity - BATCH_MAX - search->beam,
             size = power_of_two((uint64_t)search->beam * SEEN_PER_ROW);
    assert(search->beam > 0 && search->beam + BATCH_MAX < scratch->capacity && search->layer < LAYERS_MAX);
    effort = effort < most ? effort : most;
    visited_clear(&scratch->visited, size < 2 * scratch->capacity ? size : 2 * scratch->capacity);
    scratch->visited.n = 0;
    memset(scratch->ties, 0, sizeof scratch->ties);
    memcpy(scratch->frontier, scratch->best, seeds * sizeof *scratch->frontier); /* sorted: a heap */
    scratch->n_frontier = seeds;
    scratch->n_best = 0;
    for (uint32_t i = 0; i < seeds; i++) {
        visited_add(&scratch->visited, near_row(scratch->frontier[i]));
        if (promising(scratch, search, scratch->frontier[i]))
            offer(scratch, search, scratch->frontier[i]);
    }
    while (goes_on(scratch, search) && scratch->visited.n < effort)
        expand(graph, scratch, search);
    assert(scratch->n_best <= search->beam && scratch->n_frontier <= scratch->capacity);
    best_sort(scratch->best, scratch->n_best);
}

bool graph_enter(const struct graph *graph, const struct graph_root *root, struct graph_scratch *scratch,
                 const struct measure *measure, unsigned layer, unsigned *top)
{
    uint64_t entry = atomic_load_explicit(&root->entry, memory_order_acquire);
    uint32_t row = graph_entry_row(entry);
    *top = graph_entry_layers(entry);
    if (row == ROW_NONE)
        return false;
    float distance;
    graph_measure_rows(graph, scratch, measure, &row, 1, &distance);
    scratch->best[0] = near_of(distance, row);
    scratch->n_best = 1;
    for (unsigned at = *top; at > layer; at--)
        graph_search_layer(
            graph, scratch,
            &(struct graph_layer_search){.measure = measure, .layer = at, .beam = graph->descent, .copies = 1});
    return true;
}

uint32_t graph_search(const struct graph *graph, const struct graph_root *root, struct graph_scratch *scratch,
                      uint32_t beam, bool (*accept)(void *context, uint32_t row), void *context, struct graph_hit *hits,
                      uint32_t capacity)
{
    unsigned top;
    beam = beam > capacity ? beam : capacity;
    if (graph_scratch_reserve(scratch, graph, beam) < 0)
        beam = scratch->capacity / 8; /* what there is memory for: graph_query has reserved some */
    if (beam == 0 || !graph_enter(graph, root, scratch, &scratch->query, 0, &top))
        return 0;
    graph_search_layer(
        graph, scratch,
        &(struct graph_layer_search){
            .measure = &scratch->query, .beam = beam, .copies = capacity, .accept = accept, .context = context});
    uint32_t n = scratch->n_best < capacity ? scratch->n_best : capacity;
    for (uint32_t i = 0; i < n; i++)
        hits[i] = (struct graph_hit){near_row(scratch->best[i]), near_distance(scratch->best[i])};
    graph_scratch_settle(graph, scratch);
    return n;
}
