/*
 * selection.h - the rows of a segment that a search may answer with: what a filter and a scope leave of it.
 *
 * Made once per segment, filter and scope from the segment's columns, and kept for the next query that asks for the
 * same (a small cache per segment, by expression and tenants): a segment does not change, so it stays right. Tombstones
 * are not in it: the dead are left out when they are met.
 *
 * Few rows are a sorted list, many a bitmap; either way the blocks that hold some are known.
 * Immutable once made; reference-counted; thread-safe.
 */
#ifndef QUIRE_INDEX_SELECTION_H
#define QUIRE_INDEX_SELECTION_H

#include "index/column/columns.h"
#include "io/bitmap.h"
#include <stdatomic.h>

struct segment;

#define RUN_BYTES_MAX (1u << 20)  /* of blocks that are read at once */
#define RUN_GAP_BYTES (40u << 10) /* between blocks, cheaper to read than to leave out */

/* Blocks that follow one another and are read at once. */
struct block_run {
    uint32_t first, n;
};

struct selection {
    atomic_uint references;
    uint64_t n;                  /* rows, dead ones included */
    uint64_t n_rows;             /* of the segment */
    bool residual;               /* a superset: the filter must be asked about each row's attributes, too */
    uint32_t *rows;              /* ascending; NULL: bits */
    uint8_t *bits;               /* a bitmap of n_rows (io/bitmap.h); NULL: rows */
    uint8_t *blocks;             /* a bitmap of the blocks that hold a row */
    uint8_t *cells;              /* the same of cells, where the segment has them (cells.h); otherwise NULL */
    uint32_t n_blocks;           /* in it */
    uint32_t n_runs, run_blocks; /* reads that bring them all, neighbours in one; blocks in those */
    struct selection *places;    /* where inverted lists have guests (lists.h): the same by lists_place */
    uint64_t all_bytes;          /* of memory */
    /* in the segment's cache */
    struct selection *next;
    uint64_t hash, used;
    uint32_t name_bytes;
    char *name;
};

/* Rows that `scope` (NULL: all) and `filter` (NULL: all) leave; filter and scope may not both be NULL. keys: see
 * columns_select; a selection with keys is not kept. A segment without columns has no row with attributes or grants. */
int selection_of(struct segment *segment, struct filter *filter, const struct tenant_scope *scope,
                 const roaring_bitmap_t *keys, struct selection **out, struct quire_error *err);
/* From rows: for tests and for lists of rows that are known. The set stays the caller's. */
int selection_create(const struct segment *segment, const roaring_bitmap_t *rows, bool residual,
                     struct selection **out);
/* From n row numbers, ascending, each once. */
int selection_create_rows(const struct segment *segment, const uint32_t *rows, uint64_t n, bool residual,
                          struct selection **out);
/* From a bit for each row of the segment, which stay the caller's. */
int selection_create_bits(const struct segment *segment, const uint64_t *bits, struct selection **out);
/* What is left of one without n rows, ascending, each once; residual as that one. */
int selection_without(const struct segment *segment, const struct selection *selection, const uint32_t *rows,
                      uint64_t n, struct selection **out);
void selection_unref(struct selection *selection); /* NULL is fine */
/* Place of the first row >= `row`, in a selection with a list. */
uint64_t selection_first(const struct selection *selection, uint32_t row);
/* Walks its rows >= first, ascending. */
struct selection_walk {
    const struct selection *selection;
    uint64_t at; /* in the list, or row */
};
struct selection_walk selection_walk(const struct selection *selection, uint32_t first);
bool selection_next(struct selection_walk *walk, uint32_t *row); /* false: no more */
bool selection_has(const struct selection *selection, uint32_t row);
/* The read that brings the next block which holds a row, from block `from` on, and those near behind it: blocks with
 * little between them are one run. False: there is none. */
bool selection_next_run(const struct selection *selection, const struct segment *segment, uint32_t from,
                        struct block_run *run);
/* Rows of it that live, given the tombstones of the segment (NULL: none). Cost: n, or a bit per row of the segment. */
uint64_t selection_living(const struct selection *selection, const uint8_t *dead);

/* For segment_open and its end. */
void selections_fini(struct segment *segment);

#endif
