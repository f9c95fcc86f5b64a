/*
 * row_table.h - an array in memory that grows and never moves, so that readers need no lock while it does.
 */
#ifndef QUIRE_INDEX_ROW_TABLE_H
#define QUIRE_INDEX_ROW_TABLE_H

#include "quire.h"
#include <stddef.h>

#define ROW_TABLE_REGIONS 32u

struct row_table {
    size_t stride;  /* bytes of an item */
    unsigned shift; /* region 0 has 2^shift items; each later one as many as all before it */
    uint32_t room;  /* items that can be used */
    /* Of each region: the address that item 0 would have if the region's items went down to it; 0: none yet. */
    uintptr_t base[ROW_TABLE_REGIONS];
};

/* Regions of 2^shift items and more; nothing is reserved yet. */
void row_table_init(struct row_table *table, size_t stride, unsigned shift);
void row_table_fini(struct row_table *table);
/* The shift at which region 0 takes about `bytes` of address space. */
unsigned row_table_shift(size_t stride, size_t bytes);
/* Makes items 0 .. n-1 usable, new ones zero. One thread at a time; readers of older items need not stop.
 * QUIRE_ENOMEM. n <= 2^31. */
int row_table_reserve(struct row_table *table, uint32_t n);

static inline unsigned row_table_region(const struct row_table *table, uint32_t i)
{
    uint32_t high = i >> table->shift;
    return high ? 32u - (unsigned)__builtin_clz(high) : 0;
}

/* Item i, which is below `room`. */
static inline void *row_table_at(const struct row_table *table, uint32_t i)
{
    return (void *)(table->base[row_table_region(table, i)] + i * table->stride);
}

#endif
