/* cache_follow.h - what effects and images change alike in a cache that follows: categories, curves, invalidations. */
#ifndef QUIRE_CACHE_CACHE_FOLLOW_H
#define QUIRE_CACHE_CACHE_FOLLOW_H

#include "cache/core/cache_frame.h"

/* QUIRE_ECORRUPT, with a sentence: "%s that came for a cache is damaged". */
int cache_follow_damaged(const char *what, struct quire_error *err);

/* As CATEGORY has it; name lies in what is read. QUIRE_ECORRUPT and what category_parse says. */
int cache_follow_read_category(struct cache_reader *r, uint32_t *number, struct quire_bytes *name,
                               struct category_settings *settings, struct quire_error *err);

/* These log what they change: QUIRE_ECORRUPT where it does not fit what is here, and what the log says. (lock) */
int cache_follow_category(struct cache *cache, uint32_t number, struct quire_bytes name,
                          const struct category_settings *settings, uint64_t *lsn, struct quire_error *err);
int cache_follow_category_drop(struct cache *cache, uint32_t number, uint64_t *lsn, struct quire_error *err);
int cache_follow_curve(struct cache *cache, uint32_t number, struct quire_bytes curve, struct quire_error *err);
int cache_follow_epoch(struct cache *cache, struct cache_reader *r, uint64_t *lsn, struct quire_error *err);

/* Entries that no list has confirmed go; where that cannot be logged they come back with a restart. (lock) */
void cache_follow_drop_unknown(struct cache *cache);

#endif
