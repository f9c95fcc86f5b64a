/* cache_log.h - records of caches, as the files that write and read them share them. */
#ifndef QUIRE_CACHE_CACHE_LOG_H
#define QUIRE_CACHE_CACHE_LOG_H

#include "cache/core/cache_priv.h"

/* Bytes of a record that grow; memory that ran out shows in `failed`. */
struct cache_record {
    uint8_t *bytes;
    size_t n, capacity;
    bool failed;
    uint8_t first[1024];
};
void cache_record_empty(struct cache_record *r);
void cache_record_begin(struct cache_record *r, const struct cache *cache); /* with the number of its cache */
void cache_record_u8(struct cache_record *r, uint8_t x);
void cache_record_u32(struct cache_record *r, uint32_t x);
void cache_record_u64(struct cache_record *r, uint64_t x);
void cache_record_f32(struct cache_record *r, float x);
void cache_record_bytes(struct cache_record *r, const void *bytes, size_t n);
void cache_record_end(struct cache_record *r);

/* Each begins the record. */
void cache_record_cache(struct cache_record *r, const struct cache *cache);
void cache_record_category(struct cache_record *r, const struct cache *cache, uint32_t number, struct quire_bytes name,
                           const struct category_settings *settings);
void cache_record_group(struct cache_record *r, const struct cache *cache, const struct group *group);
void cache_record_epoch(struct cache_record *r, const struct cache *cache, const struct invalidation *i);
void cache_record_curve(struct cache_record *r, const struct cache *cache, uint32_t number);
/* n of `sealings` (0: there is such a segment). */
void cache_record_sealed(struct cache_record *r, const struct cache *cache, const struct sealed *sealed,
                         const struct sealing *sealings, uint32_t n);
void cache_record_durable(struct cache_record *r, const struct cache *cache, const struct document_extent *extents,
                          uint32_t n);
/* These add to a record. */
void cache_record_invalidation(struct cache_record *r, const struct cache *cache, const struct invalidation *i);
void cache_record_entry(struct cache_record *r, const struct cache_entry *e, uint64_t word, const uint8_t *blob,
                        uint32_t n_blob);

#endif
