/* bytes.h - little-endian numbers in byte arrays, whatever the machine's own order and alignment rules; bytes as
 * hexadecimal digits. */
#ifndef QUIRE_IO_BYTES_H
#define QUIRE_IO_BYTES_H

#include <stdbool.h>
#include <stddef.h>
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

/* 2 n lower-case digits and a byte 0. */
static inline void bytes_to_hex(const uint8_t *bytes, size_t n, char *out)
{
    for (size_t i = 0; i < n; i++) {
        out[2 * i] = "0123456789abcdef"[bytes[i] >> 4];
        out[2 * i + 1] = "0123456789abcdef"[bytes[i] & 15];
    }
    out[2 * n] = 0;
}

static inline int bytes_hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Reads 2 n digits as bytes_to_hex writes them. False: another character is among them. */
static inline bool bytes_from_hex(const char *digits, size_t n, uint8_t *out)
{
    for (size_t i = 0; i < n; i++) {
        int high = bytes_hex_digit(digits[2 * i]), low = high < 0 ? -1 : bytes_hex_digit(digits[2 * i + 1]);
        if (low < 0)
            return false;
        out[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

#endif
