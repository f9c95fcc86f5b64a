/*
 * row_set.h - sets of rows of a segment: as they are stored, as working sets of bits, as Roaring bitmaps for callers.
 *
 * Nothing is written by CRoaring, here or elsewhere: version 0.2 of it aborts where an allocation fails, whatever adds
 * to a set, takes away or converts (tests/lint.sh looks for such calls). So sets are coded and combined here, and a
 * roaring_bitmap_t is only made in the end, by its reader of stored ones, which returns NULL then, after a line of its
 * own on stderr.
 */
#ifndef QUIRE_INDEX_ROW_SET_H
#define QUIRE_INDEX_ROW_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct roaring_bitmap_s roaring_bitmap_t; /* roaring/roaring.h takes .4 s to compile */

/* Rows in order, not stored yet: numbers, or bits (then rows is NULL). */
struct row_view {
    const uint32_t *rows;
    const uint64_t *bits;
    uint64_t n;   /* rows, or words of bits */
    bool no_runs; /* row_view_roaring's own */
};
/* *out is owned by the caller; QUIRE_ENOMEM. */
int row_view_roaring(const struct row_view *view, roaring_bitmap_t **out);

/* A stored set. */
enum set_form { SET_RUN = 0, SET_GAPS = 1, SET_ROARING = 2 };
struct row_set {
    enum set_form form;
    uint32_t n, first; /* first: of a run */
    const uint8_t *at, *end;
};
/* Sorts row numbers and leaves each once; returns how many. */
uint64_t row_set_order(uint32_t *rows, uint64_t n);
/* The functions below take sets that row_set_is_valid (columns_priv.h) has checked, as columns_open does of all. */
void row_set_rows(const struct row_set *set, uint32_t *rows); /* room for set->n */
bool row_set_has(const struct row_set *set, uint32_t row);

/* What a working set is a part of: all rows 0 .. n - 1, or these n. A working set has a bit for each, by its place. */
struct universe {
    const uint32_t *rows; /* ascending; NULL: all */
    uint64_t n;
};
static inline size_t row_set_words(const struct universe *u)
{
    return (size_t)(u->n + 63) / 64;
}
/* Adds those of the set that are in the universe. */
void row_set_add(const struct row_set *set, const struct universe *universe, uint64_t *bits);

#endif
