/* bytes.h - little-endian numbers in byte arrays, whatever the machine's own order and alignment rules. */
#ifndef QUIRE_IO_BYTES_H
#define QUIRE_IO_BYTES_H

#include <stdint.h>
#include <string.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define BYTES_SWAP16(x) __builtin_bswap16(x)
#define BYTES_SWAP32(x) __builtin_bswap32(x)
#define BYTES_SWAP64(x) __builtin_bswap64(x)
#else
#define BYTES_SWAP16(x) (x)
#define BYTES_SWAP32(x) (x)
#define BYTES_SWAP64(x) (x)
#endif

static inline uint16_t bytes_load_u16(const uint8_t *p)
{
    uint16_t x;
    memcpy(&x, p, sizeof x);
    return BYTES_SWAP16(x);
}

static inline uint32_t bytes_load_u32(const uint8_t *p)
{
    uint32_t x;
    memcpy(&x, p, sizeof x);
    return BYTES_SWAP32(x);
}

static inline uint64_t bytes_load_u64(const uint8_t *p)
{
    uint64_t x;
    memcpy(&x, p, sizeof x);
    return BYTES_SWAP64(x);
}

static inline float bytes_load_f32(const uint8_t *p)
{
    uint32_t bits = bytes_load_u32(p);
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline void bytes_store_u16(uint8_t *p, uint16_t x)
{
    x = BYTES_SWAP16(x);
    memcpy(p, &x, sizeof x);
}

static inline void bytes_store_u32(uint8_t *p, uint32_t x)
{
    x = BYTES_SWAP32(x);
    memcpy(p, &x, sizeof x);
}

static inline void bytes_store_u64(uint8_t *p, uint64_t x)
{
    x = BYTES_SWAP64(x);
    memcpy(p, &x, sizeof x);
}

static inline void bytes_store_f32(uint8_t *p, float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bytes_store_u32(p, bits);
}

#endif
