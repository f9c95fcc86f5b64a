/*
 * sealed_rescue.h - what a damaged segment of sealed vectors still holds, for `quire repair`.
 */
#ifndef QUIRE_CACHE_SEALED_RESCUE_H
#define QUIRE_CACHE_SEALED_RESCUE_H

#include "cache/core/sealed.h"

struct rescued_entry {
    uint64_t id;
    uint32_t from; /* its row in the damaged segment */
    bool saved;
    uint32_t at; /* saved: which of the vectors is its own */
};

struct sealed_rescue {
    struct cache *cache;
    uint32_t number, group;        /* of the damaged segment */
    struct rescued_entry *entries; /* whose vectors are said to be in it; the caller's */
    uint32_t n, capacity;
};

/* Makes a segment of the vectors in whole blocks, in the folder of sealed ones below `to`, under the cache's next
 * number, and logs to the journal of `to` that those entries are in it. Says of each entry whether it was saved; that
 * none could be is no error. Blocks, and keeps the vectors in memory. QUIRE_ENOMEM, and those of writing. */
int sealed_rescue(struct sealed_rescue *rescue, const char *to, struct journal *journal, struct quire_error *err);

#endif
