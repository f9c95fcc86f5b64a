/*
 * stable_array.c - regions of address space, made usable piece by piece.
 *
 * An array that is reallocated moves under its readers; one of many small chunks scatters the rows of a batch, and a
 * kernel takes one base address per call. So the array is one region of address space, about a gigabyte, of which
 * what is needed is committed; address space that is not committed costs nothing. An array that outgrows it gets a
 * second region of the same size, then one as large as both, and so on: the region of an item is the position of the
 * highest bit of its number, and 22 regions hold 2^31 items.
 *
 * Pieces grow with the array (an eighth of it). From HUGE_FROM on they end at huge pages, which are asked for then: a
 * small array does not pay 2 MiB for its last page.
 */
#include "index/graph/stable_array.h"
#include "io/memory.h"
#include <assert.h>
#include <string.h>

#define PIECE_ITEMS 1024u
#define HUGE_BYTES  ((size_t)2 << 20)
#define HUGE_FROM   ((size_t)8 << 20) /* bytes of an array */

void stable_array_init(struct stable_array *array, size_t stride, unsigned shift)
{
    assert(stride > 0 && shift < 32);
    memset(array, 0, sizeof *array);
    array->stride = stride;
    array->shift = shift;
}

unsigned stable_array_shift(size_t stride, size_t bytes)
{
    unsigned shift = 10;
    while (shift < 31 && (stride << (shift + 1)) <= bytes)
        shift++;
    return shift;
}

static uint32_t region_first(const struct stable_array *array, unsigned region)
{
    return region ? UINT32_C(1) << (array->shift + region - 1) : 0;
}

static uint32_t region_items(const struct stable_array *array, unsigned region)
{
    return region ? region_first(array, region) : UINT32_C(1) << array->shift;
}

void stable_array_fini(struct stable_array *array)
{
    for (unsigned region = 0; region < STABLE_ARRAY_REGIONS && array->base[region]; region++) {
        uintptr_t start = array->base[region] + region_first(array, region) * array->stride;
        memory_unmap((void *)start, region_items(array, region) * array->stride);
    }
    memset(array, 0, sizeof *array);
}

/* Commits the next piece of the region in which the array ends. */
static int grow(struct stable_array *array)
{
    unsigned region = stable_array_region(array, array->capacity);
    uint32_t first = region_first(array, region), end = first + region_items(array, region);
    assert(region < STABLE_ARRAY_REGIONS && array->capacity < end);
    if (!array->base[region]) {
        assert(array->capacity == first);
        void *start = memory_reserve((end - first) * array->stride);
        if (!start)
            return QUIRE_ENOMEM;
        array->base[region] = (uintptr_t)start - first * array->stride;
    }
    size_t done = (array->capacity - first) * array->stride, all = (end - first) * array->stride;
    size_t more = array->capacity / 8 > PIECE_ITEMS ? array->capacity / 8 : PIECE_ITEMS,
           to = done + more * array->stride;
    bool huge = to >= HUGE_FROM;
    if (huge)
        to = (to + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES;
    to = to < all ? to : all;
    uintptr_t start = array->base[region] + first * array->stride;
    int rc = memory_commit((void *)start, done, to, huge);
    if (rc == 0)
        array->capacity = first + (uint32_t)(to / array->stride);
    return rc;
}

int stable_array_reserve(struct stable_array *array, uint32_t n)
{
    int rc = 0;
    assert(n <= UINT32_C(1) << 31);
    while (rc == 0 && array->capacity < n)
        rc = grow(array);
    return rc;
}
