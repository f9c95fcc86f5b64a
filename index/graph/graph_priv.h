/*
 * graph_priv.h - what the files of the mutable graph share: its rows, their locks and links, measuring, searching.
 *
 * A row's state word says what it is, how many links it has on the lowest layer, and whether a writer holds it. Links
 * are atomic words that only a writer who holds the row changes; readers copy the count and then the words, and may
 * see a mixture of old and new ones: each of them is a row that was linked a moment ago.
 */
#ifndef QUIRE_INDEX_GRAPH_PRIV_H
#define QUIRE_INDEX_GRAPH_PRIV_H

#include "index/graph/graph.h"
#include "index/graph/stable_array.h"
#include "index/vector/near.h"
#include <pthread.h>
#include <stdatomic.h>

#define DEGREE_MAX 64u
#define LINKS_MAX  (2 * DEGREE_MAX)
#define BATCH_MAX  (2 * LINKS_MAX) /* rows measured at once */
#define LAYERS_MAX 8u
#define ROW_NONE   0x7fffffffu

/* In a link: it belongs to the tree that holds the graph together (graph_link.c) and is never pruned. */
#define LINK_TREE 0x80000000u

/* States of a row; below them the count of its links. Of a row that is gone, the rest is the next of its list. */
#define STATE_GONE   0x80000000u
#define STATE_LOCKED 0x40000000u
#define STATE_DYING  0x20000000u /* being removed: gets no more links */
#define STATE_LINKED 0x10000000u /* reachable */
#define STATE_COUNT  0x000000ffu

struct graph_row_numbers {
    float f, norm2;
    int32_t level_sum;
    _Atomic uint32_t state;
};

struct graph {
    uint32_t code_dim;
    unsigned degree, capacity; /* links: of upper layers, of the lowest */
    unsigned fill;             /* links of a new row on the lowest layer */
    float slack;               /* of the selection of links */
    unsigned beam, descent;    /* of insertions; on the way down */
    unsigned layer_bits;       /* a row is on one layer more with probability 2^-layer_bits */
    uint64_t seed;
    struct epochs *epochs;

    struct stable_array codes, numbers, links;
    struct stable_array upper;   /* blocks of a count and `degree` links, one per row and upper layer */
    atomic_uint_fast64_t linked; /* rows, below all roots */
    atomic_uint_fast64_t distances;

    pthread_mutex_t removing; /* one removal at a time; then `matrix` */
    float *matrix;            /* of as many rows as a list has links, each to each */

    pthread_mutex_t mutex; /* what follows, and changes of roots' entries */
    atomic_uint n_rows;    /* numbers in use, free ones included; read by searches */
    uint32_t n_upper;
    uint32_t free_first, n_free;
    uint32_t gone_first, n_gone; /* removed since `item` was deferred */
    uint32_t deferred_first, n_deferred;
    bool placing;   /* rows are restored: numbers without one are in no list */
    bool loaded;    /* and have links that are not mended */
    bool deferred;  /* `item` waits */
    bool destroyed; /* and frees the graph when it runs */
    struct epoch_item item;
};

/* distance = base + norm2 - f * (scale * dot + offset + by_sum * level_sum) */
struct measure {
    int8_t *levels;
    float base, scale, offset, by_sum;
};

/* Rows that a search has seen: a table of row + 1 with linear probing, and the same rows in order. */
struct visited {
    uint32_t *slots, *order;
    uint32_t mask, n;
};

#define TIE_BITS 8u

/* How many rows of a beam are at one distance. */
struct tie {
    uint32_t bits, n;
};

struct graph_scratch {
    struct graph_root *root;          /* of the row that is linked or removed */
    struct measure query, row, other; /* of graph_query; of the row at work; of a row that it is compared with */
    uint32_t capacity;                /* rows in each of these arrays; twice as many in visited.slots */
    struct visited visited;
    /* Both heaps hold ordered keys: bits of the distance << 32 | row. */
    uint64_t *best, *frontier; /* worst on top; nearest on top */
    uint32_t n_best, n_frontier;
    struct tie ties[1u << TIE_BITS];
    uint64_t n_distances;
    uint32_t batch[BATCH_MAX];
    int32_t dots[BATCH_MAX];
    float distances[BATCH_MAX];
};

/* ---- rows ---- */

static inline const uint8_t *graph_row_code(const struct graph *graph, uint32_t row)
{
    return stable_array_at(&graph->codes, row);
}

static inline struct graph_row_numbers *graph_row_numbers(const struct graph *graph, uint32_t row)
{
    return stable_array_at(&graph->numbers, row);
}

static inline uint32_t graph_row_state(const struct graph *graph, uint32_t row)
{
    return atomic_load_explicit(&graph_row_numbers(graph, row)->state, memory_order_acquire);
}

/* Upper layers of a row number: always the same, so that a number that is used again keeps its blocks. */
unsigned graph_row_layers(const struct graph *graph, uint32_t row);

/* False if the row is gone. Held for as long as it takes to change a few links. */
bool graph_row_lock(const struct graph *graph, uint32_t row);
void graph_row_unlock(const struct graph *graph, uint32_t row);

/* Where the links of a row on a layer are, and how many it can have. */
struct graph_link_list {
    _Atomic uint32_t *links, *count; /* count: on the lowest layer the state */
    uint32_t capacity;
};
struct graph_link_list graph_link_list(const struct graph *graph, uint32_t row, unsigned layer);

static inline uint32_t graph_link_count(const struct graph_link_list *list)
{
    uint32_t count = atomic_load_explicit(list->count, memory_order_acquire);
    return count & STATE_GONE ? 0 : count & STATE_COUNT;
}

/* Where `row` is among n links; n if it is not. The rest: under the row's lock. */
uint32_t graph_link_find(const struct graph_link_list *list, uint32_t n, uint32_t row);
void graph_link_set_count(const struct graph_link_list *list, uint32_t n);
void graph_link_append(const struct graph_link_list *list, uint32_t n, uint32_t link);
void graph_link_take(const struct graph_link_list *list, uint32_t n, uint32_t at);

/* Copies a row's links with their flags; returns how many. */
uint32_t graph_links_read(const struct graph *graph, uint32_t row, unsigned layer, uint32_t *links);

/* Restoring: makes a number that holds no row ready to be filled; then it becomes a row without links. */
int graph_row_prepare(struct graph *graph, uint32_t row);
void graph_row_fill(struct graph *graph, uint32_t row, const uint8_t *code, float f, float norm2);

/* Ends a removed row, whose lock the caller holds unless nobody else knows it: its number is free when all readers of
 * now have left. */
void graph_row_gone(struct graph *graph, uint32_t row);
/* Hands the rows that are gone to the epochs. Holds no lock when it does. */
void graph_gone_defer(struct graph *graph);

/* Rows that are kept together by their numbers' first bits; for tests of more than one region. */
int graph_create_sized(const struct graph_config *config, unsigned region_shift, struct graph **out,
                       struct quire_error *err);

/* ---- roots: 0, or a row that all others are reached from, and on how many layers above the lowest it is ---- */

#define ENTRY_SET (UINT64_C(1) << 63)

static inline uint64_t graph_entry_of(uint32_t row, unsigned layers)
{
    return ENTRY_SET | (uint64_t)layers << 32 | row;
}

static inline uint32_t graph_entry_row(uint64_t entry)
{
    return entry ? (uint32_t)entry : ROW_NONE;
}

static inline unsigned graph_entry_layers(uint64_t entry)
{
    return (unsigned)(entry >> 32 & 0xff);
}

/* ---- measuring and searching (graph_search.c); what was found is ordered as near_t (near.h) ---- */

void graph_measure_row(const struct graph *graph, struct measure *measure, uint32_t row);
/* Distances to n <= BATCH_MAX rows. */
void graph_measure_rows(const struct graph *graph, struct graph_scratch *scratch, const struct measure *measure,
                        const uint32_t *rows, uint32_t n, float *out);

/* Memory for searches with this beam. QUIRE_ENOMEM. */
int graph_scratch_reserve(struct graph_scratch *scratch, const struct graph *graph, uint32_t beam);

struct graph_layer_search {
    const struct measure *measure;
    unsigned layer;
    uint32_t beam;
    uint32_t copies; /* rows at exactly the same distance that count */
    bool (*accept)(void *context, uint32_t row);
    void *context;
};
/* From the rows of scratch->best to the nearest ones, which lie in scratch->best afterwards, nearest first. */
void graph_search_layer(const struct graph *graph, struct graph_scratch *scratch,
                        const struct graph_layer_search *search);
/* Sets scratch->best to the entry and goes down to `layer`; false if the root is empty. *top: the entry's layers. */
bool graph_enter(const struct graph *graph, const struct graph_root *root, struct graph_scratch *scratch,
                 const struct measure *measure, unsigned layer, unsigned *top);
/* Adds what a scratch has counted to the graph's count. */
void graph_scratch_settle(const struct graph *graph, struct graph_scratch *scratch);

#endif
