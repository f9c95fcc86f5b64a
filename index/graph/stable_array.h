/*
 * stable_array.h - an array in memory that grows and never moves, so that readers need no lock while it does.
 */
#ifndef QUIRE_INDEX_STABLE_ARRAY_H
#define QUIRE_INDEX_STABLE_ARRAY_H

#include "quire.h"
#include <stddef.h>

#define STABLE_ARRAY_REGIONS 32u

struct stable_array {
    size_t stride;     /* bytes of an item */
    unsigned shift;    /* region 0 has 2^shift items; each later one as many as all before it */
    uint32_t capacity; /* items that can be used */
    /* Of each region: the address that item 0 would have if the region's items went down to it; 0: none yet. */
    uintptr_t base[STABLE_ARRAY_REGIONS];
};

/* Regions of 2^shift items and more; nothing is reserved yet. */
void stable_array_init(struct stable_array *array, size_t stride, unsigned shift);
void stable_array_fini(struct stable_array *array);
/* The shift at which region 0 takes about `bytes` of address space. */
unsigned stable_array_shift(size_t stride, size_t bytes);
/* Makes items 0 .. n-1 usable, new ones zero. One thread at a time; readers of older items need not stop.
 * QUIRE_ENOMEM. n <= 2^31. */
int stable_array_reserve(struct stable_array *array, uint32_t n);

static inline unsigned stable_array_region(const struct stable_array *array, uint32_t i)
{
    uint32_t high = i >> array->shift;
    return high ? 32u - (unsigned)__builtin_clz(high) : 0;
}

/* Item i, which is below the capacity. */
static inline void *stable_array_at(const struct stable_array *array, uint32_t i)
{
    return (void *)(array->base[stable_array_region(array, i)] + i * array->stride);
}

#endif
