/*
 * cells.h - of a page graph whose small tenants lie side by side: which rows are near each other, if not by block.
 *
 * Elsewhere a block is a cell of near rows, and a search enters by the centres of blocks. Where rows of a tenant share
 * blocks whatever they are near to (build_place.c), that would lead nowhere. So the cells that the build has found for
 * its edges are kept, as many as there are blocks and of as many rows: their centres with a tree over them, and which
 * row is in which. A search of everything enters by them, where codes of rows are resident; what it then knows of a row
 * is its code, and what it reads is the row's block.
 *
 * Immutable once opened; shared by lanes.
 */
#ifndef QUIRE_INDEX_CELLS_H
#define QUIRE_INDEX_CELLS_H

#include "index/format/format.h"
#include "index/segment/entry.h"
#include "io/sections.h"

struct cells {
    uint32_t n, capacity;
    struct entry_level centres; /* owned */
    struct entry_tree entry;    /* over them */
    uint32_t *of;               /* per row its cell; owned */
    uint32_t *rows;             /* of cell g: rows[g * capacity] .., ascending; all have as many but the last; owned */
    uint64_t bytes;             /* in memory */
};

/* What they take in memory; 0 where blocks are cells. */
uint64_t cells_bytes_of(const struct segment_params *params);
/* Writes the sections. codes, factors: as those of centres of blocks; of: per row. */
int cells_write(struct section_writer *writer, const struct segment_params *params, const uint8_t *codes,
                const float *factors, const uint32_t *of, struct quire_error *err);
/* Loads and checks: each cell has its number of rows, all numbers are finite. *out stays as it is where there are
 * none. */
int cells_open(const struct segment_params *params, struct section_file *codes, struct cells **out,
               struct quire_error *err);
void cells_close(struct cells *cells); /* NULL is fine */

#endif
