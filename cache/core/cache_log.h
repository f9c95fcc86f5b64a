/* cache_log.h - records of caches, as the files that write and read them share them. */
#ifndef QUIRE_CACHE_CACHE_LOG_H
#define QUIRE_CACHE_CACHE_LOG_H

#include "cache/core/cache_priv.h"

/* Bytes of a record that grow; memory that ran out shows in `failed`. */
struct record {
    uint8_t *bytes;
    size_t n, room;
    bool failed;
    uint8_t first[1024];
};
void record_begin(struct record *r, const struct cache *cache);
uint8_t *record_take(struct record *r, size_t n); /* room for n more, NULL: no memory */
void record_u8(struct record *r, uint8_t x);
void record_u32(struct record *r, uint32_t x);
void record_u64(struct record *r, uint64_t x);
void record_f32(struct record *r, float x);
void record_piece(struct record *r, const void *bytes, size_t n);
void record_end(struct record *r);

/* Each begins the record. */
void record_cache(struct record *r, const struct cache *cache);
void record_category(struct record *r, const struct cache *cache, uint32_t number, struct quire_bytes name,
                     const struct category_settings *settings);
void record_group(struct record *r, const struct cache *cache, const struct group *group);
void record_epoch(struct record *r, const struct cache *cache, const struct invalidation *i);
void record_curve(struct record *r, const struct cache *cache, uint32_t number);
/* n of `sealings` (0: there is such a segment). */
void record_sealed(struct record *r, const struct cache *cache, const struct sealed *sealed,
                   const struct sealing *sealings, uint32_t n);
/* This one adds to a record. */
void record_entry(struct record *r, const struct cache_entry *e, uint64_t word, const uint8_t *blob, uint32_t n_blob);

#endif
