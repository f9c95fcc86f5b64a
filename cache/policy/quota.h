/*
 * quota.h - who gives up an entry when a cache, or a category, is full.
 *
 * Bytes and entries are limited for the cache as a whole and, by its settings, for a category. A category has a
 * guaranteed share (MINSHARE) of both; above it, it borrows what is free. When the cache is full, space comes from a
 * category that is over its guaranteed share of what is short: of those the one with the lowest priority, and among
 * equals the one that is over it the most. The category that asks may itself be the one: it counts with the new entry,
 * and gives up its own where nobody else can. A category that is over its own quota gives up its own. Nobody at or
 * under their guaranteed share loses anything to others; who is over it by less than an entry may fall below it by the
 * rest of that entry.
 *
 * No locks: the caller's.
 */
#ifndef QUIRE_CACHE_QUOTA_H
#define QUIRE_CACHE_QUOTA_H

#include "quire.h"

struct quota_use {
    uint64_t bytes, entries;
};
struct quota_category {
    struct quota_use used, max; /* max: 0: no limit of its own */
    double min_share;           /* 0..1 of the cache's limits */
    unsigned priority;
    bool empty_handed; /* has nothing that can be given up (all pinned); one without entries need not say so */
};
struct quota {
    struct quota_use used, max; /* of the cache; max 0: no limit */
};

#define QUOTA_NONE UINT32_MAX
enum quota_cause { QUOTA_OWN, QUOTA_CACHE };
/* Whether an entry of `bytes` fits into category `asks` without giving up anything: QUOTA_NONE, and *fits true;
 * otherwise the index of the category that is to give up one entry (ask again afterwards) and why; QUOTA_NONE and *fits
 * false: nobody can, the entry is refused; then nothing was given up for it if it is larger than a quota or the cache.
 * Ends after at most as many rounds as there are entries: whoever has nothing left is not asked. O(n). */
uint32_t quota_victim(const struct quota *quota, const struct quota_category *categories, uint32_t n, uint32_t asks,
                      uint64_t bytes, enum quota_cause *cause, bool *fits);
/* Whether guaranteed shares add up to at most 1. QUIRE_ERANGE with the sum. */
int quota_check_shares(const struct quota_category *categories, uint32_t n, struct quire_error *err);

#endif
