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
    const struct tenant_scope *scope; /* only keys of elements that it lets be seen; NULL: all */
    /* out: in order; ended by collection_range_fini */
    struct range_key *keys;
    size_t n, capacity;
};

/* Reads every block of the collection, as it is when the call begins. Blocks: not for lanes. Memory: the keys that are
 * answered. */
int collection_range_read(struct collection *collection, struct collection_range *range, struct quire_error *err);
void collection_range_fini(struct collection_range *range);

#endif
