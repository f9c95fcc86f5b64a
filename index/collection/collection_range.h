/* collection_range.h - the elements of a collection whose keys lie between two bounds, in the order of their bytes. */
#ifndef QUIRE_INDEX_COLLECTION_RANGE_H
#define QUIRE_INDEX_COLLECTION_RANGE_H

#include "index/collection/collection.h"

struct range_bound {
    bool least, greatest; /* before, behind all keys */
    bool open;            /* the key itself is not in the range */
    const uint8_t *bytes;
    uint32_t n_bytes;
};

struct range_key {
    uint8_t *bytes; /* owned by the range */
    uint32_t n_bytes;
};

struct collection_range {
    struct range_bound first, last;
    uint64_t count;                   /* at most so many */
    uint64_t bytes_max;               /* of memory for the keys; beyond it QUIRE_ELIMIT, without a message; 0: any */
    const struct tenant_scope *scope; /* only keys of elements that it lets be seen; NULL: all */
    /* out: in order; ended by collection_range_fini */
    struct range_key *keys;
    size_t n, capacity;
    uint64_t bytes; /* of memory for the keys */
    /* inside */
    struct collection_snapshot *snapshot; /* owned; NULL: not begun */
    struct tenant_scope *resolved;        /* owned */
};

/* Takes the moment that is answered, and the keys that are in memory: what is written afterwards does not show, even if
 * it becomes one write with what was before (a batch of the journal). Takes as long as memtables have rows. On failure
 * nothing is left. */
int collection_range_begin(struct collection *collection, struct collection_range *range, struct quire_error *err);
/* Reads every block of the collection as it was at that moment, or is, where it was not begun. Blocks: not for lanes.
 * Memory: the keys that are answered. */
int collection_range_read(struct collection *collection, struct collection_range *range, struct quire_error *err);
void collection_range_fini(struct collection_range *range);

#endif
