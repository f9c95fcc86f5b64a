/*
 * array.c - arrays that grow, and their end; sorted numbers.
 *
 * The pointer is read and written by memcpy: a T ** is not a void **, and the compiler may rely on that.
 */
#include "io/array.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { ITEMS_FIRST = 8 };

/* The pointer at `items`, reallocated; *capacity items of it are there afterwards. */
static bool grow(void *items, size_t *capacity, size_t capacity_max, size_t need, size_t kept, size_t item_bytes)
{
    assert(item_bytes > 0);
    if (need <= *capacity)
        return true;
    if (capacity_max > SIZE_MAX / item_bytes)
        capacity_max = SIZE_MAX / item_bytes;
    if (need > capacity_max)
        return false;
    size_t wanted = *capacity > capacity_max / 2 ? capacity_max : 2 * *capacity;
    if (wanted < ITEMS_FIRST && ITEMS_FIRST <= capacity_max)
        wanted = ITEMS_FIRST;
    if (wanted > kept)
        wanted = kept;
    if (wanted < need)
        wanted = need;
    void *old, *bigger;
    memcpy(&old, items, sizeof old);
    bigger = realloc(old, wanted * item_bytes);
    if (!bigger)
        return false;
    memcpy(items, &bigger, sizeof bigger);
    assert(wanted >= need && wanted <= capacity_max);
    *capacity = wanted;
    return true;
}

bool array_reserve_u32(void *items, uint32_t *capacity, size_t need, size_t kept, size_t item_bytes)
{
    size_t wide = *capacity;
    if (!grow(items, &wide, UINT32_MAX, need, kept, item_bytes))
        return false;
    *capacity = (uint32_t)wide;
    return true;
}

bool array_reserve_size(void *items, size_t *capacity, size_t need, size_t kept, size_t item_bytes)
{
    return grow(items, capacity, SIZE_MAX, need, kept, item_bytes);
}

static int compare_u32(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static int compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

void array_sort_u32(uint32_t *items, size_t n)
{
    if (n > 1)
        qsort(items, n, sizeof *items, compare_u32);
}

void array_sort_u64(uint64_t *items, size_t n)
{
    if (n > 1)
        qsort(items, n, sizeof *items, compare_u64);
}

bool array_has_u32(const uint32_t *items, size_t n, uint32_t x)
{
    return n > 0 && bsearch(&x, items, n, sizeof x, compare_u32);
}

bool array_has_u64(const uint64_t *items, size_t n, uint64_t x)
{
    return n > 0 && bsearch(&x, items, n, sizeof x, compare_u64);
}

void array_free_each(void *const *pointers, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(pointers[i]);
}
