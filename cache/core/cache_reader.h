/* cache_reader.h - numbers and pieces of a record: nothing is read beyond its end, and whoever reads asks once, at the
 * end, whether all was there. What is missing reads as zero. */
#ifndef QUIRE_CACHE_CACHE_READER_H
#define QUIRE_CACHE_CACHE_READER_H

#include "io/bytes.h"
#include "quire.h"

struct cache_reader {
    const uint8_t *at;
    size_t left;
    bool bad; /* it ended too early */
};

/* n bytes; where there are fewer zeros of up to 16, or NULL. */
static inline const uint8_t *cache_read(struct cache_reader *r, size_t n)
{
    static const uint8_t zeros[16];
    if (r->left < n) {
        r->bad = true;
        return n <= sizeof zeros ? zeros : NULL;
    }
    r->at += n;
    r->left -= n;
    return r->at - n;
}

static inline uint8_t cache_read_u8(struct cache_reader *r)
{
    return *cache_read(r, 1);
}

static inline uint32_t cache_read_u32(struct cache_reader *r)
{
    return bytes_load_u32(cache_read(r, 4));
}

static inline uint64_t cache_read_u64(struct cache_reader *r)
{
    return bytes_load_u64(cache_read(r, 8));
}

static inline float cache_read_f32(struct cache_reader *r)
{
    return bytes_load_f32(cache_read(r, 4));
}

/* u32 bytes, at most `most`, and the bytes. */
static inline struct quire_bytes cache_read_piece(struct cache_reader *r, size_t most)
{
    uint32_t n = cache_read_u32(r);
    if (n > most || n > r->left) {
        r->bad = true;
        return (struct quire_bytes){NULL, 0};
    }
    return (struct quire_bytes){cache_read(r, n), n};
}

#endif
