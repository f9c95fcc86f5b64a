/*
 * graph.h - the mutable graph: rows in memory that come and go, and the nearest among them.
 *
 * Rows are 8-bit codes in the working space (codes.h, rows.h; every metric is squared L2 there). The graph is a
 * hierarchical navigable small world (Malkov and Yashunin, 2016) with links both ways, so that a row can be taken out
 * in place: its neighbours are linked to each other and its number is used again.
 *
 * Rows are linked below a root. Rows of different roots share the tables, the numbers and the memory of a graph, but
 * are never linked with each other, so that a search cannot leave its root: a hundred thousand small sets that are
 * searched apart cost no more than one large one. A graph of one set has one root.
 *
 * Threads: any number may search, add, link and remove at once. Searches take no lock; writers lock single rows.
 * Whoever calls is inside an epoch of config.epochs (epoch_enter), in all calls but create, destroy, stats and check,
 * and as long as it uses row numbers that it was given: a removed row's number and memory are not used again before.
 */
#ifndef QUIRE_INDEX_GRAPH_H
#define QUIRE_INDEX_GRAPH_H

#include "io/epoch.h"
#include <stdatomic.h>

struct graph;
struct graph_scratch;

struct graph_config {
    uint32_t code_dim; /* multiple of 32 */
    /* Memory is in `lowest`: each row has it. Whether a search ends among the right rows is in the upper layers: with
     * fewer links below and more above (12, degree 16, thinning 3, descent 32) it finds more in fewer bytes
     * where rows lie in thousands of clusters. */
    unsigned degree;   /* links of a row on the upper layers; 2..64, 0: 16 */
    unsigned lowest;   /* links of a row on the lowest layer; 4..128, 0: 2 * degree */
    unsigned thinning; /* a row is on one layer more with probability 2^-thinning; 1..8, 0: about 1 / degree */
    unsigned descent;  /* beam on the layers on the way down; 0: 16 */
    unsigned beam;     /* of an insertion; 0: 100 */
    unsigned fill;     /* links that a new row gets on the lowest layer, up to `lowest`; 0: half of it */
    /* A candidate for a link is passed over if one that is taken is nearer to it than the row is, squared and times
     * this; 0: 1.2. More keeps more of the near ones. With 12 to 16 links on the lowest layer rows find more with 1,
     * and with fill at `lowest`. */
    float slack;
    uint64_t seed;         /* of the rows' levels */
    struct epochs *epochs; /* outlives the graph */
};

int graph_create(const struct graph_config *config, struct graph **out, struct quire_error *err);
void graph_destroy(struct graph *graph); /* no other call under way; NULL is fine */

/* One per thread: visited rows, heaps, levels of the query. Grows to the graph's size. */
int graph_scratch_create(struct graph_scratch **out, struct quire_error *err);
void graph_scratch_destroy(struct graph_scratch *scratch); /* NULL is fine */

/* A set of rows that are linked among each other only. It lies in the caller's memory and outlives every call that it
 * is given to; once no row is linked in it, nothing refers to it. All zero is empty. Which root a row belongs to is the
 * caller's to know: the same one from graph_link to graph_remove. */
struct graph_root {
    _Atomic uint64_t entry;  /* where searches begin; 0: no row is linked */
    _Atomic uint32_t linked; /* rows */
};
void graph_root_init(struct graph_root *root);

/* Takes a copy of a code (levels 0..255, code_dim bytes; row ~ f * (level - 127.5); norm2: true squared length). The
 * row can be scored at once and is found by searches after graph_link. QUIRE_ENOMEM, QUIRE_ELIMIT (2^31 rows). */
int graph_add(struct graph *graph, const uint8_t *code, float f, float norm2, uint32_t *row);
/* Finds its neighbours among the root's rows and links it. Cost: about `beam` * degree distances. QUIRE_ENOMEM leaves
 * it unlinked. 0 without effect if it is linked or was removed meanwhile. */
int graph_link(struct graph *graph, struct graph_root *root, struct graph_scratch *scratch, uint32_t row);
/* Takes a row out, linked (below this root) or not: its neighbours are linked among each other; its number becomes free
 * when all readers of this epoch have left. Searches that began before may still answer it. */
void graph_remove(struct graph *graph, struct graph_root *root, struct graph_scratch *scratch, uint32_t row);

/* Takes back a row that was added and that nobody else knows yet. */
void graph_discard(struct graph *graph, uint32_t row);

/* ---- restoring: one thread, no readers; from the first of these calls until graph_place_end no others but
 * graph_row ---- */

/* Like graph_add at a given number, which is free; numbers below that are not placed stay free. QUIRE_EEXISTS: there is
 * a row. QUIRE_EINVALID: removed rows wait for readers. QUIRE_ENOMEM, QUIRE_ELIMIT. */
int graph_place(struct graph *graph, uint32_t row, const uint8_t *code, float f, float norm2);
/* Takes a placed row back; its number can be placed again at once. QUIRE_ENOTFOUND: there is none. */
int graph_unplace(struct graph *graph, uint32_t row);
/* Puts rows first .. first + n - 1 back from an image, which a graph of the same code_dim, degree, lowest, thinning
 * and seed saved. Their links are worth nothing before graph_mend, which has to follow. The image is trusted in
 * nothing: QUIRE_ECORRUPT names the row. QUIRE_EEXISTS: there is such a row. QUIRE_EINVALID, QUIRE_ENOMEM, QUIRE_ELIMIT
 * as graph_place. After an error some of the rows are there. */
int graph_image_load(struct graph *graph, uint32_t first, uint32_t n, const void *image, size_t bytes,
                     struct quire_error *err);
struct graph_mending {
    /* The root of a row, which has to be empty when mending begins; NULL: nobody knows this row, and it is dropped.
     * Called once for each row, in ascending order. */
    struct graph_root *(*root_of)(void *context, uint32_t row);
    /* Told of each row that is there but not linked, in ascending order: to be linked by graph_link, after
     * graph_place_end. May be NULL. */
    void (*unlinked)(void *context, uint32_t row);
    void *context;
    /* What was done: rows that nobody knows; rows that are not linked; links that were taken out, and added. */
    uint32_t n_dropped, n_unlinked;
    uint64_t links_dropped, links_added;
};
/* Makes the links of loaded and placed rows valid (graph_check), whatever the images held: saved while writers went on,
 * they do not agree with each other. A link that its other end has not is added there, or taken out where a row is
 * full; a link to no row, to an unlinked one or to another root's is taken out. Each root gets its entry. Rows that
 * nothing leads to are unlinked. QUIRE_ENOMEM: can be repeated with empty roots. Cost: a fraction of a microsecond per
 * row, and 12 bytes of memory for as long as it takes. */
int graph_mend(struct graph *graph, struct graph_mending *mending);
/* Frees all numbers that hold no row; graph_add takes the lowest first. Cost: a look at every number. */
void graph_place_end(struct graph *graph);

/* ---- images: rows with their links, so that they need not be linked again after a restart ---- */

/* Row numbers in use or free: all are below this. */
uint32_t graph_row_end(const struct graph *graph);
/* Bytes that an image of rows first .. first + n - 1 takes at most. */
size_t graph_image_bytes(const struct graph *graph, uint32_t first, uint32_t n);
/* Copies rows first .. first + n - 1, free ones included, into out, while others write and search; returns the bytes.
 * Each row is whole, but rows that are saved one after the other need not agree about their links. Inside an epoch, so
 * n is best some thousands. */
size_t graph_image_save(const struct graph *graph, uint32_t first, uint32_t n, uint8_t *out);

/* A row as it was added; pointers valid inside the epoch. */
void graph_row(const struct graph *graph, uint32_t row, const uint8_t **code, float *f, float *norm2);

struct graph_hit {
    uint32_t row;
    float distance; /* squared, in the working space */
};

/* Sets the query of this scratch: rotated, code_dim floats. graph_search and graph_score use it. */
int graph_query(const struct graph *graph, struct graph_scratch *scratch, const float *rotated);
/* The rows of a root nearest to the query for which accept(context, row) is true (NULL: all), nearest first, at
 * most `capacity` of them, into hits; returns how many. `beam`: accepted rows that are kept while searching, at least
 * capacity is used. Rows that are not accepted are walked through. Effort is bounded whatever the filter: at most 8192
 * + 8 * beam * lowest rows are measured, so a filter that few rows pass is better served by graph_score on these.
 * Of rows with the very same code at most `capacity` are kept. Only a beam wider than any before, or a graph that has
 * grown, allocates; without memory the beam is what there is memory for. */
uint32_t graph_search(const struct graph *graph, const struct graph_root *root, struct graph_scratch *scratch,
                      uint32_t beam, bool (*accept)(void *context, uint32_t row), void *context, struct graph_hit *hits,
                      uint32_t capacity);
/* Squared distances from the query to n rows, linked or not. */
void graph_score(const struct graph *graph, struct graph_scratch *scratch, const uint32_t *rows, uint32_t n,
                 float *out);
/* The rows that a row is linked with on the lowest layer; returns how many (<= capacity). */
uint32_t graph_links(const struct graph *graph, uint32_t row, uint32_t *rows, uint32_t capacity);

struct graph_stats {
    uint32_t rows, linked, removed, free; /* linked: below all roots; removed: waiting for readers */
    uint64_t bytes, distances;
};
void graph_get_stats(const struct graph *graph, struct graph_stats *out);
/* Checks the structure while nothing else runs: links both ways, within range, none to free rows, none from one root's
 * rows to another's, every linked row reachable from the entry of one root. roots: all that have linked rows, in any
 * order; others may be among them. *reason: what is wrong. */
int graph_check(const struct graph *graph, const struct graph_root *const *roots, uint32_t n_roots,
                struct quire_error *reason);

#endif
