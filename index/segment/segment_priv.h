/*
 * segment_priv.h - an open segment as its own room has it: what others see of it, who holds it, what it owns.
 */
#ifndef QUIRE_INDEX_SEGMENT_PRIV_H
#define QUIRE_INDEX_SEGMENT_PRIV_H

#include "index/segment/segment_view.h"
#include <pthread.h>

struct selection;

struct segment_whole {
    struct segment view; /* first: a pointer to it is one to the whole */
    atomic_uint references;
    /* bytes of the memory_map of nav_codes, nav_factors, centres.codes and centres.factors */
    size_t nav_codes_mapped, nav_factors_mapped, centre_codes_mapped, centre_factors_mapped;
    struct {
        pthread_mutex_t mutex;
        struct selection *first; /* references */
        uint64_t bytes, clock;
        uint32_t n;
    } selections; /* made before, for who asks for the same */
};

static inline struct segment_whole *segment_whole(struct segment *segment)
{
    return (struct segment_whole *)(void *)segment;
}

#endif
