/*
 * negative.h - questions known to have no answer that may be kept, for a while.
 *
 * A table of fixed size, in memory only: eight places per bucket, of which a newcomer takes that which expires
 * first (free ones have). No locks: the caller's.
 */
#ifndef QUIRE_CACHE_NEGATIVE_H
#define QUIRE_CACHE_NEGATIVE_H

#include "cache/document/document.h"

struct negatives {
    struct negative *places; /* owned */
    uint32_t n_buckets;
};

int negatives_init(struct negatives *negatives, uint32_t n_buckets); /* a power of two; QUIRE_ENOMEM */
void negatives_fini(struct negatives *negatives);
void negatives_add(struct negatives *negatives, uint64_t group, struct hash128 exact, uint64_t until_ms);
/* When it ends; 0: it is not there. */
uint64_t negatives_find(const struct negatives *negatives, uint64_t group, struct hash128 exact, uint64_t now_ms);
/* An answer came after all. */
void negatives_remove(struct negatives *negatives, uint64_t group, struct hash128 exact);
void negatives_clear(struct negatives *negatives);

#endif
