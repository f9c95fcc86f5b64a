/*
 * array.h - arrays that grow: items, a capacity, and one place where both change; sorted numbers; binary search.
 *
 *     struct hit *hits; uint32_t n_hits, hits_capacity;
 *     if (!array_reserve(&hits, &hits_capacity, n_hits + 1))
 *         return QUIRE_ENOMEM;
 *     hits[n_hits++] = hit;
 *
 * The capacity doubles, so n appends copy 2n items at most. Not for arrays that other threads read meanwhile.
 *
 * An array that is given back when it has more than `kept` items must not get so many by doubling what fewer asked for:
 * array_reserve_kept.
 */
#ifndef QUIRE_IO_ARRAY_H
#define QUIRE_IO_ARRAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Space for `need` items where *items (a T **) has *capacity. False without memory, or where the capacity's type or the
 * address space ends before: items and capacity are what they were. */
#define array_reserve(items, capacity, need) array_reserve_kept((items), (capacity), (need), SIZE_MAX)

/* The same; the capacity doubles up to `kept` only, and is `need` where that is more. */
#define array_reserve_kept(items, capacity, need, kept)                                                                \
    _Generic((capacity), uint32_t *                                                                                    \
             : array_reserve_u32, size_t *                                                                             \
             : array_reserve_size)((items), (capacity), (need), (kept), sizeof **(items))

/* What they call. `items` is the address of a pointer to items of item_bytes. */
bool array_reserve_u32(void *items, uint32_t *capacity, size_t need, size_t kept, size_t item_bytes);
bool array_reserve_size(void *items, size_t *capacity, size_t need, size_t kept, size_t item_bytes);

/* Ascending. */
void array_sort_u32(uint32_t *items, size_t n);
void array_sort_u64(uint64_t *items, size_t n);
/* Whether x is among items that array_sort_... has sorted. */
bool array_has_u32(const uint32_t *items, size_t n, uint32_t x);
bool array_has_u64(const uint64_t *items, size_t n, uint64_t x);

/* at (a uint32_t, uint64_t or size_t): the first place from `begin` on of which is_before, an expression of `at`, is
 * false; `end` where there is none. Whatever is before comes first. */
#define array_find_first(at, begin, end, is_before)                                                                    \
    do {                                                                                                               \
        __typeof__(at) array_low = (begin), array_high = (end);                                                        \
        while (array_low < array_high) {                                                                               \
            (at) = array_low + (array_high - array_low) / 2;                                                           \
            if (is_before)                                                                                             \
                array_low = (at) + 1;                                                                                  \
            else                                                                                                       \
                array_high = (at);                                                                                     \
        }                                                                                                              \
        (at) = array_low;                                                                                              \
    } while (0)

/* free() of each of these pointers: arrays that go together. */
#define array_free_all(...) array_free_each((void *[]){__VA_ARGS__}, sizeof((void *[]){__VA_ARGS__}) / sizeof(void *))

/* What array_free_all calls. */
void array_free_each(void *const *pointers, size_t n);

#endif
