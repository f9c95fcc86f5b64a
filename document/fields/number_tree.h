/*
 * number_tree.h - the numbers of a field: which documents have one in a range, and which number a document has.
 *
 * Each document's number lies in a page by its id; the ids lie in sorted blocks in the order of their numbers
 * (sorted.h): about 14 bytes a document. A range takes the ids of whole blocks and compares numbers in the two blocks
 * at its ends only. A document with several numbers has a slot for each, in sorted blocks of their own.
 *
 * An id is put in once; it stays until number_purge is told that it is dead.
 */
#ifndef QUIRE_DOCUMENT_NUMBER_TREE_H
#define QUIRE_DOCUMENT_NUMBER_TREE_H

#include "document/fields/doc_pages.h"
#include "document/fields/sorted.h"

struct number_range {
    double low, high;
    bool low_open, high_open;
};
static inline bool number_in_range(double number, const struct number_range *range)
{
    return (range->low_open ? number > range->low : number >= range->low) &&
           (range->high_open ? number < range->high : number <= range->high);
}

/* One of several numbers of a document. */
struct number_slot {
    double number;
    uint32_t id, next; /* next: of the document's, or of the free ones; NUMBER_NO_SLOT: none */
};
#define NUMBER_NO_SLOT UINT32_MAX
#define NUMBER_PROBE   UINT32_MAX /* no id and no slot: the number that is looked for */

struct number_order {
    const struct doc_pages *pages;   /* items are ids */
    const struct number_slot *slots; /* not NULL: items are slots */
    double probe;
    bool probe_behind; /* behind all equal ones, not before them */
};
bool number_is_before(const void *order, uint32_t a, uint32_t b);
SORTED_DEFINE(number_sorted, uint32_t, number_is_before)

/* Zeroed before first use, but for pages.item_bytes (number_init). */
struct number_tree {
    struct doc_pages pages; /* of uint64_t: a number, or the first of several (number_tree.c); 0: none */
    struct number_sorted singles, several;
    struct number_slot *slots; /* owned */
    uint32_t n_slots, slots_capacity, first_free;
};

void number_init(struct number_tree *tree);
void number_fini(struct number_tree *tree);
uint64_t number_bytes(const struct number_tree *tree);
uint64_t number_count(const struct number_tree *tree); /* numbers */
/* n > 0 numbers, none of them NaN, of an id that has none yet. False without memory: nothing has changed. */
bool number_add(struct number_tree *tree, uint32_t id, const double *numbers, uint32_t n);
/* Forgets the numbers of an id, at the cost of finding each. */
void number_remove(struct number_tree *tree, uint32_t id);

/* How many numbers are in the range; cost: of one addition per block. */
uint64_t number_range_count(const struct number_tree *tree, const struct number_range *range);
/* The ids with a number in the range. False without memory. */
bool number_range_gather(const struct number_tree *tree, const struct number_range *range, struct doc_gather *gather);
/* Whether the document has a number in the range. */
bool number_range_has(const struct number_tree *tree, const struct number_range *range, uint32_t id);
/* The document's number, of several the first; false: it has none. */
bool number_of(const struct number_tree *tree, uint32_t id, double *number);
/* The document's i-th number, in the order they were put in; false behind the last. */
bool number_at(const struct number_tree *tree, uint32_t id, uint32_t i, double *number);

/* Takes out ids that are below `end` and not in `kept`, among some hundred numbers from *at on (0 first), which goes
 * on; true: there are no more. Pages are freed when all sorted blocks have been gone through. */
bool number_purge(struct number_tree *tree, const struct doc_set *kept, uint32_t end, uint64_t *at);

#endif
