/*
 * graph.h - the mutable graph: rows in memory that come and go, and the nearest among them.
 *
 * Rows are 8-bit codes in the working space (codes.h, rows.h; every metric is squared L2 there). The graph is a
 * hierarchical navigable small world (Malkov and Yashunin, 2016) with links both ways, so that a row can be taken out
 * in place: its neighbours are linked to each other and its number is used again.
 *
 * Threads: any number may search, add, link and remove at once. Searches take no lock; writers lock single rows.
 * Whoever calls is inside an epoch of config.epochs (epoch_enter), in all calls but create, destroy, stats and check,
 * and as long as it uses row numbers that it was given: a removed row's number and memory are not used again before.
 */
#ifndef QUIRE_INDEX_GRAPH_H
#define QUIRE_INDEX_GRAPH_H

#include "io/epoch.h"

struct graph;
struct graph_scratch;

struct graph_config {
    uint32_t code_dim;     /* multiple of 32 */
    unsigned degree;       /* links of a row on the upper layers, twice as many on the lowest; 2..64, 0: 16 */
    unsigned beam;         /* of an insertion; 0: 100 */
    uint64_t seed;         /* of the rows' levels */
    struct epochs *epochs; /* outlives the graph */
};

int graph_create(const struct graph_config *config, struct graph **out, struct quire_error *err);
void graph_destroy(struct graph *graph); /* no other call under way; NULL is fine */

/* One per thread: visited rows, heaps, levels of the query. Grows to the graph's size. */
int graph_scratch_create(struct graph_scratch **out, struct quire_error *err);
void graph_scratch_destroy(struct graph_scratch *scratch); /* NULL is fine */

/* Takes a copy of a code (levels 0..255, code_dim bytes; row ~ f * (level - 127.5); norm2: true squared length). The
 * row can be scored at once and is found by searches after graph_link. QUIRE_ENOMEM, QUIRE_ELIMIT (2^31 rows). */
int graph_add(struct graph *graph, const uint8_t *code, float f, float norm2, uint32_t *row);
/* Finds its neighbours and links it. Cost: about `beam` * degree distances. QUIRE_ENOMEM leaves it unlinked.
 * 0 without effect if it is linked or was removed meanwhile. */
int graph_link(struct graph *graph, struct graph_scratch *scratch, uint32_t row);
/* Takes a row out, linked or not: its neighbours are linked among each other; its number becomes free when all
 * readers of this epoch have left. Searches that began before may still answer it. */
void graph_remove(struct graph *graph, struct graph_scratch *scratch, uint32_t row);

/* Takes back a row that was added and that nobody else knows yet. */
void graph_discard(struct graph *graph, uint32_t row);

/* A row as it was added; pointers valid inside the epoch. */
void graph_row(const struct graph *graph, uint32_t row, const uint8_t **code, float *f, float *norm2);

struct graph_hit {
    uint32_t row;
    float distance; /* squared, in the working space */
};

/* Sets the query of this scratch: rotated, code_dim floats. graph_search and graph_score use it. */
int graph_query(const struct graph *graph, struct graph_scratch *scratch, const float *rotated);
/* The rows nearest to the query for which accept(context, row) is true (NULL: all), nearest first, at most `room` of
 * them, into hits; returns how many. `beam`: accepted rows that are kept while searching, at least room is used. Rows
 * that are not accepted are walked through. Effort is bounded whatever the filter: at most 8192 + 16 * beam * degree
 * rows are measured, so a filter that few rows pass is better served by graph_score on these. Of rows with the very
 * same code at most `room` are kept. Only a beam wider than any before, or a graph that has grown, allocates; without
 * memory the beam is what there is room for. */
uint32_t graph_search(const struct graph *graph, struct graph_scratch *scratch, uint32_t beam,
                      bool (*accept)(void *context, uint32_t row), void *context, struct graph_hit *hits,
                      uint32_t room);
/* Squared distances from the query to n rows, linked or not. */
void graph_score(const struct graph *graph, struct graph_scratch *scratch, const uint32_t *rows, uint32_t n,
                 float *out);
/* The rows that a row is linked with on the lowest layer; returns how many (<= room). */
uint32_t graph_links(const struct graph *graph, uint32_t row, uint32_t *rows, uint32_t room);

struct graph_stats {
    uint32_t rows, linked, removed, free; /* removed: waiting for readers */
    uint64_t bytes, distances;
};
void graph_get_stats(const struct graph *graph, struct graph_stats *out);
/* Proves the structure while nothing else runs: links both ways, within range, none to free rows, every linked row
 * reachable from the entry. *reason: what is wrong. */
int graph_check(const struct graph *graph, struct quire_error *reason);

#endif
