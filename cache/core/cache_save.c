/*
 * cache_save.c - caches into a checkpoint, on a maintenance thread, while requests go on.
 *
 * What is small is collected under the lock in one piece, as of one LSN. Rows follow in pieces, each under the lock for
 * some tens of microseconds. Neither is written under the lock.
 */
#include "cache/core/cache_log.h"
#include "cache/core/sealed.h"
#include "io/array.h"
#include "io/error.h"
#include "io/lock.h"
#include <assert.h>
#include <stdlib.h>

struct saved {
    uint8_t kind;
    struct cache_record record;
};

struct saving {
    struct saved *items; /* owned, as their records are */
    uint32_t n, capacity;
    uint64_t lsn;
    bool failed;
};

static struct cache_record *next(struct saving *s, uint8_t kind)
{
    if (s->n == s->capacity) {
        uint32_t capacity = s->capacity ? 2 * s->capacity : 64;
        struct saved *items = calloc(capacity, sizeof *items);
        if (!items) {
            s->failed = true;
            return NULL;
        }
        for (uint32_t i = 0; i < s->n; i++) { /* a record may point into itself */
            items[i] = s->items[i];
            if (s->items[i].record.bytes == s->items[i].record.first)
                items[i].record.bytes = items[i].record.first;
        }
        free(s->items);
        s->items = items;
        s->capacity = capacity;
    }
    s->items[s->n].kind = kind;
    return &s->items[s->n++].record;
}

static int save_rows(struct cache *cache, struct checkpoint *checkpoint, struct quire_error *err)
{
    int rc = 0;
    uint8_t *image = NULL;
    size_t image_capacity = 0;
    for (uint32_t first = 0; rc == 0; first += IMAGE_ROWS) {
        struct cache_record r;
        size_t wanted = graph_image_bytes(cache->graph, first, IMAGE_ROWS); /* on how many layers rows are differs */
        if (!array_reserve(&image, &image_capacity, wanted)) {
            rc = error_set(err, QUIRE_ENOMEM, "no memory to save a cache");
            break;
        }
        unsigned slot = epoch_enter(cache->of->epochs);
        pthread_mutex_lock(&cache->lock);
        uint32_t end = cache->n_rows; /* no row of the graph that an entry has is above it */
        uint32_t n = end <= first ? 0 : end - first < IMAGE_ROWS ? end - first : IMAGE_ROWS;
        uint64_t lsn = journal_last_lsn(cache->of->journal);
        if (n) {
            /* u64 cache, u32 first row, u32 rows; u32 bytes of the graph's image, image; each row: u8 1 and the entry,
             * or u8 2, the entry and its place, or u8 0. (lock; inside an epoch) */
            assert(lock_is_held(&cache->lock) && n > 0 && n <= IMAGE_ROWS && first % IMAGE_ROWS == 0);
            size_t n_image = graph_image_save(cache->graph, first, n, image);
            cache_record_begin(&r, cache);
            cache_record_u32(&r, first);
            cache_record_u32(&r, n);
            cache_record_bytes(&r, image, n_image);
            for (uint32_t row = first; row < first + n; row++) {
                const struct cache_entry *e = cache_entry_at(cache, row);
                uint64_t word = cache_entry_word(cache, row);
                cache_record_u8(&r, !(word & ENTRY_LIVE) ? 0 : cache->apart ? 2 : 1);
                if (!(word & ENTRY_LIVE))
                    continue;
                const struct blob_head *head = blob_head(&cache->blobs, e->blob);
                cache_record_entry(&r, e, word, (const uint8_t *)head, e->blob ? blob_bytes(head) : 0);
                if (cache->apart) {
                    cache_record_u32(&r, sealed_place_of(cache, row).segment);
                    cache_record_u32(&r, sealed_holds(cache, row) ? sealed_place_of(cache, row).row
                                                                  : sealed_graph_row(cache, row));
                }
            }
        }
        pthread_mutex_unlock(&cache->lock);
        epoch_exit(cache->of->epochs, slot);
        if (n == 0)
            break;
        rc = r.failed ? error_set(err, QUIRE_ENOMEM, "no memory to save a cache")
                      : journal_checkpoint_put(checkpoint, CACHE_LOG_ROWS, lsn, r.bytes, (uint32_t)r.n, err);
        cache_record_end(&r);
    }
    free(image);
    return rc;
}

static int save_one(struct cache *cache, struct checkpoint *checkpoint, struct quire_error *err)
{
    struct saving s = {0};
    pthread_mutex_lock(&cache->lock);
    struct cache_record *r;
    uint32_t n_extents = cache->n_extents;
    assert(lock_is_held(&cache->lock));
    s.lsn = journal_last_lsn(cache->of->journal);
    if ((r = next(&s, CACHE_LOG_CACHE)))
        cache_record_cache(r, cache);
    for (uint32_t i = 0; i < cache->n_categories && !s.failed; i++) {
        const struct category *cat = cache->categories[i];
        if ((r = next(&s, CACHE_LOG_CATEGORY)))
            cache_record_category(r, cache, i, cat->name, &cat->settings);
        if ((r = next(&s, CACHE_LOG_CURVE)))
            cache_record_curve(r, cache, i);
        if (cat->dropped && (r = next(&s, CACHE_LOG_CATEGORY_DROP))) {
            cache_record_begin(r, cache);
            cache_record_u32(r, i);
        }
    }
    for (uint32_t i = 0; i < INVALIDATIONS_MAX && !s.failed; i++)
        if (cache->invalidations[i].epoch && (r = next(&s, CACHE_LOG_EPOCH)))
            cache_record_epoch(r, cache, &cache->invalidations[i]);
    for (uint32_t i = 0; i < cache->n_groups && !s.failed; i++)
        if (cache->groups[i] && cache->groups[i]->logged && (r = next(&s, CACHE_LOG_GROUP)))
            cache_record_group(r, cache, cache->groups[i]);
    for (uint32_t i = 0; i < cache->n_sealed && !s.failed; i++)
        if ((r = next(&s, CACHE_LOG_SEALED)))
            cache_record_sealed(r, cache, cache->sealed[i], NULL, 0);
    /* of one that is unavailable, what was restored */
    struct document_extent *extents = cache->documents ? document_log_extents(cache->documents, &n_extents) : NULL;
    s.failed = s.failed || (cache->documents && !extents);
    if (!s.failed && (r = next(&s, CACHE_LOG_DURABLE)))
        cache_record_durable(r, cache, extents ? extents : cache->extents, n_extents);
    free(extents);
    pthread_mutex_unlock(&cache->lock);
    int rc = s.failed ? error_set(err, QUIRE_ENOMEM, "no memory to save a cache") : 0;
    for (uint32_t i = 0; i < s.n; i++) {
        struct saved *item = &s.items[i];
        if (rc == 0)
            rc = item->record.failed ? error_set(err, QUIRE_ENOMEM, "no memory to save a cache")
                                     : journal_checkpoint_put(checkpoint, item->kind, s.lsn, item->record.bytes,
                                                              (uint32_t)item->record.n, err);
        cache_record_end(&item->record);
    }
    free(s.items);
    return rc == 0 ? save_rows(cache, checkpoint, err) : rc;
}

int caches_save(void *context, struct checkpoint *checkpoint, struct quire_error *err)
{
    struct caches *caches = context;
    uint32_t n;
    int rc = 0;
    struct cache **all = caches_list(caches, true, &n);
    if (!all)
        return error_set(err, QUIRE_ENOMEM, "no memory to save caches");
    for (uint32_t i = 0; i < n; i++) {
        if (rc == 0 && !atomic_load(&all[i]->closed))
            rc = save_one(all[i], checkpoint, err);
        cache_unref(all[i]);
    }
    free(all);
    return rc;
}
