/*
 * sketch.h - which keys were seen lately, in little memory: for ADMIT second.
 *
 * Two Bloom filters that take turns: a key counts as seen if one of them holds it; when the newer one has taken
 * `capacity` keys the older is emptied. So a key is remembered for at least `capacity` others, and forgotten after two
 * times that.
 */
#ifndef QUIRE_CACHE_SKETCH_H
#define QUIRE_CACHE_SKETCH_H

#include "quire.h"

struct sketch {
    uint64_t *bits[2];    /* owned */
    uint64_t mask;        /* bits - 1 */
    uint32_t capacity, n; /* keys of the newer one */
    unsigned newer;
};

/* capacity: keys remembered at least; about 3 bytes each. QUIRE_ENOMEM. */
int sketch_init(struct sketch *sketch, uint32_t capacity);
void sketch_fini(struct sketch *sketch);
bool sketch_seen(const struct sketch *sketch, uint64_t hash);
void sketch_add(struct sketch *sketch, uint64_t hash);

#endif
