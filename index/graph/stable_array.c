/*
 * stable_array.c - regions of address space, made usable piece by piece.
 *
 * A table that is reallocated moves under its readers; one of many small chunks scatters the rows of a batch, and a
 * kernel takes one base address per call. So the table is one region of address space, about a gigabyte, of which
 * what is needed is committed; address space that is not committed costs nothing. A table that outgrows it gets a
 * second region of the same size, then one as large as both, and so on: the region of an item is the position of the
 * highest bit of its number, and 22 regions hold 2^31 items.
 *
 * Pieces grow with the table (an eighth of it). From HUGE_FROM on they end at huge pages, which are asked for then: a
 * small table does not pay 2 MiB for its last page.
 */
#include "index/graph/stable_array.h"
#include "io/memory.h"
#include <string.h>

#define PIECE_ITEMS 1024u
#define HUGE_BYTES  ((size_t)2 << 20)
#define HUGE_FROM   ((size_t)8 << 20) /* bytes of a table */

void stable_array_init(struct stable_array *table, size_t stride, unsigned shift)
{
    memset(table, 0, sizeof *table);
    table->stride = stride;
    table->shift = shift;
}

unsigned stable_array_shift(size_t stride, size_t bytes)
{
    unsigned shift = 10;
    while (shift < 31 && (stride << (shift + 1)) <= bytes)
        shift++;
    return shift;
}

static uint32_t region_first(const struct stable_array *table, unsigned region)
{
    return region ? UINT32_C(1) << (table->shift + region - 1) : 0;
}

static uint32_t region_items(const struct stable_array *table, unsigned region)
{
    return region ? region_first(table, region) : UINT32_C(1) << table->shift;
}

void stable_array_fini(struct stable_array *table)
{
    for (unsigned region = 0; region < STABLE_ARRAY_REGIONS && table->base[region]; region++) {
        uintptr_t start = table->base[region] + region_first(table, region) * table->stride;
        memory_unmap((void *)start, region_items(table, region) * table->stride);
    }
    memset(table, 0, sizeof *table);
}

/* Commits the next piece of the region in which the table ends. */
static int grow(struct stable_array *table)
{
    unsigned region = stable_array_region(table, table->room);
    uint32_t first = region_first(table, region), end = first + region_items(table, region);
    if (!table->base[region]) {
        void *start = memory_reserve((end - first) * table->stride);
        if (!start)
            return QUIRE_ENOMEM;
        table->base[region] = (uintptr_t)start - first * table->stride;
    }
    size_t done = (table->room - first) * table->stride, all = (end - first) * table->stride;
    size_t more = table->room / 8 > PIECE_ITEMS ? table->room / 8 : PIECE_ITEMS, to = done + more * table->stride;
    bool huge = to >= HUGE_FROM;
    if (huge)
        to = (to + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES;
    to = to < all ? to : all;
    uintptr_t start = table->base[region] + first * table->stride;
    int rc = memory_commit((void *)start, done, to, huge);
    if (rc == 0)
        table->room = first + (uint32_t)(to / table->stride);
    return rc;
}

int stable_array_reserve(struct stable_array *table, uint32_t n)
{
    int rc = 0;
    while (rc == 0 && table->room < n)
        rc = grow(table);
    return rc;
}
