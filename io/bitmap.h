/* bitmap.h - sets of numbers as bits in a byte array, the low bit of each byte first. */
#ifndef QUIRE_IO_BITMAP_H
#define QUIRE_IO_BITMAP_H

#include <stdbool.h>
#include <stdint.h>

static inline bool bitmap_has(const uint8_t *bitmap, uint32_t i)
{
    return bitmap[i / 8] >> (i % 8) & 1;
}

static inline void bitmap_add(uint8_t *bitmap, uint32_t i)
{
    bitmap[i / 8] = (uint8_t)(bitmap[i / 8] | 1u << (i % 8));
}

/* The same of a bitmap to which others add bits meanwhile. */
static inline bool bitmap_has_shared(const uint8_t *bitmap, uint32_t i)
{
    return __atomic_load_n(&bitmap[i / 8], __ATOMIC_RELAXED) >> (i % 8) & 1;
}

/* Adds a bit that others may read meanwhile; whether it was there. */
static inline bool bitmap_add_shared(uint8_t *bitmap, uint32_t i)
{
    uint8_t bit = (uint8_t)(1u << (i % 8));
    return __atomic_fetch_or(&bitmap[i / 8], bit, __ATOMIC_RELAXED) & bit;
}

/* Takes a bit away that others may read meanwhile. */
static inline void bitmap_remove_shared(uint8_t *bitmap, uint32_t i)
{
    __atomic_fetch_and(&bitmap[i / 8], (uint8_t) ~(1u << (i % 8)), __ATOMIC_RELAXED);
}

#endif
