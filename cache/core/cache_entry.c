/*
 * cache_entry.c - entries of a cache: one array, and buckets of those that have an exact hash.
 *
 * In memory an entry has 40 bits of its exact hash, which with its group are taken for the whole: its document holds
 * all 128 and is read before it answers, so a likeness is found out there (cache_finish). Buckets are chains through
 * the entries. How many there are is fixed by the cache's memory, so that they never move: their pages are used as
 * entries come.
 */
#include "cache/core/sealed.h"
#include <time.h>

uint64_t cache_now(const struct cache *cache)
{
    const struct caches_options *options = &cache->of->options;
    uint64_t ms = options->clock_ms(options->clock_context);
    return ms > BASE_MS ? ms - BASE_MS : 0;
}

int entries_reserve(struct cache *cache, uint32_t n)
{
    if (n <= cache->n_rows)
        return 0;
    int rc = row_table_reserve(&cache->entries, n);
    if (rc == 0 && cache->apart)
        rc = row_table_reserve(&cache->places, n);
    if (rc == 0 && cache->apart)
        rc = row_table_reserve(&cache->graph_entries, n);
    if (rc == 0)
        cache->n_rows = n;
    return rc;
}

/* ---- what an entry says ---- */

struct document_at entry_document(const struct cache_entry *e)
{
    uint64_t word = atomic_load_explicit(&e->word, memory_order_relaxed);
    return (struct document_at){e->segment, e->unit, (uint32_t)(word >> PAGES_SHIFT) * DOCUMENT_UNIT};
}

/* A document is a multiple of this, so that its length takes 16 bits. */
void entry_set_document(struct cache_entry *e, const struct document_at *at)
{
    uint64_t pages = at->bytes / DOCUMENT_UNIT;
    uint64_t word = atomic_load_explicit(&e->word, memory_order_relaxed);
    e->segment = at->segment;
    e->unit = at->unit & (UNITS_MAX - 1);
    word = (word & ((UINT64_C(1) << PAGES_SHIFT) - 1)) | pages << PAGES_SHIFT;
    atomic_store_explicit(&e->word, word, memory_order_release);
}

void entry_set_expire(struct cache_entry *e, uint64_t expire)
{
    uint64_t word = atomic_load_explicit(&e->word, memory_order_relaxed);
    atomic_store_explicit(&e->word, (word & ~EXPIRE_NEVER) | expire, memory_order_release);
}

uint64_t entry_cost_bytes(const struct cache_entry *e)
{
    return entry_document(e).bytes;
}

double entry_saved(const struct cache *cache, const struct cache_entry *e)
{
    uint64_t bytes = entry_cost_bytes(e);
    return bytes ? (double)blob_head(&cache->blobs, e->blob)->cost / (double)bytes : 0;
}

uint32_t entry_find(const struct cache *cache, uint64_t id)
{
    uint32_t row = (uint32_t)id;
    if (row >= cache->n_rows)
        return UINT32_MAX;
    const struct cache_entry *e = entry_at(cache, row);
    return (entry_word(cache, row) & ENTRY_LIVE) && entry_id(e, row) == id ? row : UINT32_MAX;
}

/* ---- exact hashes ---- */

static uint32_t *bucket_of(const struct cache *cache, uint32_t exact, uint32_t group)
{
    return &cache->buckets[random_mix((uint64_t)exact << 32 | group) & (cache->n_buckets - 1)];
}

uint32_t entry_find_exact(const struct cache *cache, const struct group *group, struct hash128 exact)
{
    uint32_t bits = (uint32_t)exact.low;
    uint8_t high = (uint8_t)(exact.low >> 32);
    for (uint32_t at = *bucket_of(cache, bits, group->number); at; at = entry_at(cache, at - 1)->chain) {
        const struct cache_entry *e = entry_at(cache, at - 1);
        if (e->exact == bits && e->exact_high == high && e->group == group->number)
            return at - 1;
    }
    return UINT32_MAX;
}

void entry_link_exact(struct cache *cache, uint32_t row)
{
    struct cache_entry *e = entry_at(cache, row);
    uint32_t *bucket = bucket_of(cache, e->exact, e->group);
    e->chain = *bucket;
    *bucket = row + 1;
}

void entry_unlink_exact(struct cache *cache, uint32_t row)
{
    struct cache_entry *e = entry_at(cache, row);
    uint32_t *at = bucket_of(cache, e->exact, e->group);
    while (*at != row + 1)
        at = &entry_at(cache, *at - 1)->chain;
    *at = e->chain;
    e->chain = 0;
}
