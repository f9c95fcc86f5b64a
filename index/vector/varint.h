/* varint.h - LEB128 numbers of at most 35 bits: 7 bits per byte, lowest first, the top bit set on all but the last. */
#ifndef QUIRE_INDEX_VARINT_H
#define QUIRE_INDEX_VARINT_H

#include <stddef.h>
#include <stdint.h>

#define VARINT_BYTES_MAX 5u

/* The number at p; returns the place behind it, NULL where it does not end before `end` or is longer than allowed. */
static inline const uint8_t *varint_get(const uint8_t *p, const uint8_t *end, uint64_t *out)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 7 * VARINT_BYTES_MAX; shift += 7) {
        if (p == end)
            return NULL;
        value |= (uint64_t)(*p & 127u) << shift;
        if (*p++ < 128) {
            *out = value;
            return p;
        }
    }
    return NULL;
}

/* Returns the bytes written, at most VARINT_BYTES_MAX of a number below 2^35. */
static inline uint32_t varint_put(uint64_t value, uint8_t *out)
{
    uint32_t n = 0;
    for (; value >= 128; value >>= 7)
        out[n++] = (uint8_t)(value | 128);
    out[n++] = (uint8_t)value;
    return n;
}

#endif
