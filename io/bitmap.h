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

#endif
