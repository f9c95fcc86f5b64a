/*
 * cache_log.c - caches in the journal: what is logged of a change, and how a folder's records become caches again.
 *
 * A record begins with the number of its cache (u64); numbers are little-endian (docs/format.md has every byte).
 *
 * A checkpoint holds of each cache, as of one LSN: itself, its categories, groups, invalidations and curves; then its
 * rows, IMAGE_ROWS at a time, each time as of another LSN: entries, codes and links as they are in the graph, so that a
 * restart links nothing. Writers go on meanwhile: links that do not agree are mended when all has been read
 * (graph_mend). A record of the log is left out where the checkpoint knows it already.
 *
 * While a folder is read, entries only lie in their rows; they are joined to groups, orders and hashes at the end
 * (cache_restore.c), since a group may be logged behind a row that the checkpoint shows in it.
 *
 * Not logged: uses of entries, expiry, negative entries, leases, audits, counters, statistics. Curves are logged every
 * few seconds.
 */
#include "cache/core/cache_log.h"
#include "cache/core/sealed.h"
#include "io/bytes.h"
#include "io/error.h"
#include <assert.h>
#include <stdlib.h>

/* ---- writing ----------------------------------------------------------------------------------------------------- */

void cache_record_empty(struct cache_record *r)
{
    *r = (struct cache_record){.bytes = r->first, .capacity = sizeof r->first};
}

void cache_record_begin(struct cache_record *r, const struct cache *cache)
{
    cache_record_empty(r);
    cache_record_u64(r, cache->uid);
}

/* Room for n more, NULL: no memory. */
static uint8_t *take(struct cache_record *r, size_t n)
{
    if (r->n + n > r->capacity && !r->failed) {
        size_t capacity = 2 * r->capacity > r->n + n ? 2 * r->capacity : r->n + n;
        uint8_t *bigger = r->bytes == r->first ? malloc(capacity) : realloc(r->bytes, capacity);
        if (bigger && r->bytes == r->first)
            memcpy(bigger, r->first, r->n);
        r->failed = !bigger;
        r->bytes = bigger ? bigger : r->bytes;
        r->capacity = bigger ? capacity : r->capacity;
    }
    if (r->failed)
        return NULL;
    r->n += n;
    return r->bytes + r->n - n;
}

#define PUT(name, type, bytes, store)                                                                                  \
    void cache_record_##name(struct cache_record *r, type x)                                                           \
    {                                                                                                                  \
        uint8_t *at = take(r, bytes);                                                                                  \
        if (at)                                                                                                        \
            store;                                                                                                     \
    }
PUT(u8, uint8_t, 1, *at = x)
PUT(u32, uint32_t, 4, bytes_store_u32(at, x))
PUT(u64, uint64_t, 8, bytes_store_u64(at, x))
PUT(f32, float, 4, bytes_store_f32(at, x))
#undef PUT

/* u32 bytes, and the bytes. */
void cache_record_bytes(struct cache_record *r, const void *bytes, size_t n)
{
    cache_record_u32(r, (uint32_t)n);
    uint8_t *at = take(r, n);
    if (at && n)
        memcpy(at, bytes, n);
}

void cache_record_end(struct cache_record *r)
{
    if (r->bytes != r->first)
        free(r->bytes);
}

/* Appends records (one or two) as a frame, unless nothing is logged yet. */
static int append(struct cache *cache, const uint8_t *kinds, struct cache_record *records, unsigned n, uint64_t *lsn,
                  struct quire_error *err)
{
    struct journal_record frame[2];
    int rc = 0;
    assert(n >= 1 && n <= 2);
    for (unsigned i = 0; i < n; i++) {
        frame[i] = (struct journal_record){kinds[i], records[i].bytes, (uint32_t)records[i].n};
        if (records[i].failed)
            rc = error_set(err, QUIRE_ENOMEM, "no memory to log a change");
    }
    if (rc == 0 && cache->of->journal)
        rc = journal_append(cache->of->journal, frame, n, lsn, err);
    for (unsigned i = 0; i < n; i++)
        cache_record_end(&records[i]);
    return rc;
}

static int append_one(struct cache *cache, uint8_t kind, struct cache_record *record, uint64_t *lsn,
                      struct quire_error *err)
{
    return append(cache, &kind, record, 1, lsn, err);
}

/* ---- records ----------------------------------------------------------------------------------------------------- */

void cache_record_cache(struct cache_record *r, const struct cache *cache)
{
    const struct cache_config *c = &cache->config;
    cache_record_begin(r, cache);
    cache_record_u64(r, cache->secret[0]);
    cache_record_u64(r, cache->secret[1]);
    cache_record_u64(r, cache->epoch);
    cache_record_u32(r, c->dim);
    cache_record_u8(r, (uint8_t)c->type);
    cache_record_u8(r, c->require_scope);
    cache_record_u64(r, c->memory_bytes);
    cache_record_u64(r, c->disk_bytes);
    cache_record_bytes(r, c->name.data, c->name.n_bytes);
    cache_record_bytes(r, c->encoder.data, c->encoder.n_bytes);
    cache_record_u32(r, c->n_scope_keys);
    for (uint32_t i = 0; i < c->n_scope_keys; i++)
        cache_record_bytes(r, c->scope_keys[i].data, c->scope_keys[i].n_bytes);
    if (cache->space.seed != cache->uid)
        cache_record_u64(r, cache->space.seed);
}

void cache_record_category(struct cache_record *r, const struct cache *cache, uint32_t number, struct quire_bytes name,
                           const struct category_settings *settings)
{
    char text[CATEGORY_TEXT_BYTES];
    uint32_t n = category_print(settings, text);
    cache_record_begin(r, cache);
    cache_record_u32(r, number);
    cache_record_bytes(r, name.data, name.n_bytes);
    cache_record_bytes(r, text, n);
}

void cache_record_group(struct cache_record *r, const struct cache *cache, const struct group *group)
{
    cache_record_begin(r, cache);
    cache_record_u32(r, group->number);
    cache_record_u32(r, group->category);
    cache_record_u64(r, group->compat.low);
    cache_record_u64(r, group->compat.high);
    cache_record_bytes(r, group->scope->bytes, group->scope->n_bytes);
}

void cache_record_epoch(struct cache_record *r, const struct cache *cache, const struct invalidation *i)
{
    cache_record_begin(r, cache);
    cache_record_invalidation(r, cache, i);
}

void cache_record_invalidation(struct cache_record *r, const struct cache *cache, const struct invalidation *i)
{
    cache_record_u64(r, i->epoch);
    cache_record_u8(r, (uint8_t)i->by);
    cache_record_u32(r, i->category);
    cache_record_u32(r, i->n);
    for (uint32_t k = 0; k < INVALIDATION_HASHES; k++)
        cache_record_u64(r, i->hashes[k]);
    cache_record_f32(r, (float)i->similarity);
    cache_record_u8(r, i->vector != NULL);
    for (uint32_t k = 0; k < cache->config.dim && i->vector; k++)
        cache_record_f32(r, i->vector[k]);
}

void cache_record_curve(struct cache_record *r, const struct cache *cache, uint32_t number)
{
    uint8_t curve[RISK_BYTES];
    uint32_t n = risk_save(cache->categories[number]->curve, curve);
    cache_record_begin(r, cache);
    cache_record_u32(r, number);
    cache_record_bytes(r, curve, n);
}

/* What an entry is, but for its row. */
void cache_record_entry(struct cache_record *r, const struct cache_entry *e, uint64_t word, const uint8_t *blob,
                        uint32_t n_blob)
{
    cache_record_u64(r, word);
    cache_record_u32(r, e->exact);
    cache_record_u8(r, e->exact_high);
    cache_record_u32(r, e->group);
    cache_record_u32(r, e->segment);
    cache_record_u32(r, e->unit);
    cache_record_u64(r, cache_entry_created(e));
    cache_record_u32(r, e->links.hits);
    cache_record_bytes(r, blob, n_blob);
}

/* ---- changes ----------------------------------------------------------------------------------------------------- */

int cache_log_cache(struct cache *cache, uint64_t *lsn, struct quire_error *err)
{
    struct cache_record r;
    cache_record_cache(&r, cache);
    return append_one(cache, CACHE_LOG_CACHE, &r, lsn, err);
}

int cache_log_drop(struct cache *cache, uint64_t *lsn, struct quire_error *err)
{
    struct cache_record r;
    cache_record_begin(&r, cache);
    return append_one(cache, CACHE_LOG_DROP, &r, lsn, err);
}

int cache_log_category(struct cache *cache, uint32_t number, struct quire_bytes name,
                       const struct category_settings *settings, uint64_t *lsn, struct quire_error *err)
{
    struct cache_record r;
    cache_record_category(&r, cache, number, name, settings);
    int rc = append_one(cache, CACHE_LOG_CATEGORY, &r, lsn, err);
    if (rc == 0)
        cache_tell_category(cache, number, name, settings);
    return rc;
}

int cache_log_category_drop(struct cache *cache, uint32_t number, uint64_t *lsn, struct quire_error *err)
{
    struct cache_record r;
    cache_record_begin(&r, cache);
    cache_record_u32(&r, number);
    int rc = append_one(cache, CACHE_LOG_CATEGORY_DROP, &r, lsn, err);
    if (rc == 0)
        cache_tell_category_drop(cache, number);
    return rc;
}

int cache_log_put(struct cache *cache, const struct logged_put *put, uint64_t *lsn, struct quire_error *err)
{
    struct cache_record records[2];
    const uint8_t kinds[2] = {CACHE_LOG_GROUP, CACHE_LOG_PUT};
    unsigned first = put->group->logged;
    assert(put->entry->group == put->group->number);
    if (!cache->of->journal)
        return 0;
    if (!first)
        cache_record_group(&records[0], cache, put->group);
    cache_record_begin(&records[1], cache);
    cache_record_u32(&records[1], put->row);
    cache_record_entry(&records[1], put->entry, atomic_load(&put->entry->word) | ENTRY_LIVE, put->blob, put->n_blob);
    cache_record_f32(&records[1], put->f);
    cache_record_f32(&records[1], put->norm2);
    cache_record_bytes(&records[1], put->code, cache->space.code_dim);
    if (put->graph_row != put->row)
        cache_record_u32(&records[1], put->graph_row);
    int rc = append(cache, kinds + first, records + first, 2 - first, lsn, err);
    if (rc == 0) {
        put->group->logged = true;
        cache_tell_put(cache, put);
    }
    return rc;
}

void cache_record_sealed(struct cache_record *r, const struct cache *cache, const struct sealed *sealed,
                         const struct sealing *sealings, uint32_t n)
{
    cache_record_begin(r, cache);
    cache_record_u32(r, sealed->number);
    cache_record_u32(r, sealed->group);
    for (uint32_t i = 0; i < n; i++) {
        cache_record_u32(r, (uint32_t)sealings[i].id);
        cache_record_u32(r, sealings[i].segment_row);
    }
}

int cache_log_sealed(struct cache *cache, const struct sealed *sealed, const struct sealing *sealings, uint32_t n,
                     struct quire_error *err)
{
    struct cache_record r;
    uint64_t lsn;
    cache_record_sealed(&r, cache, sealed, sealings, n);
    return append_one(cache, CACHE_LOG_SEALED, &r, &lsn, err);
}

int cache_log_gone(struct cache *cache, const uint32_t *rows, uint32_t n, uint64_t *lsn, struct quire_error *err)
{
    struct cache_record r;
    cache_record_begin(&r, cache);
    for (uint32_t i = 0; i < n; i++)
        cache_record_u32(&r, rows[i]);
    int rc = append_one(cache, CACHE_LOG_GONE, &r, lsn, err);
    if (rc == 0)
        cache_tell_gone(cache, rows, n);
    return rc;
}

int cache_log_change(struct cache *cache, uint32_t row, uint64_t word, float veto, uint64_t *lsn,
                     struct quire_error *err)
{
    struct cache_record r;
    cache_record_begin(&r, cache);
    cache_record_u32(&r, row);
    cache_record_u64(&r, word);
    cache_record_f32(&r, veto);
    int rc = append_one(cache, CACHE_LOG_CHANGE, &r, lsn, err);
    if (rc == 0)
        cache_tell_change(cache, row, word, veto);
    return rc;
}

int cache_log_moved(struct cache *cache, uint32_t row, const struct document_at *at, struct quire_error *err)
{
    struct cache_record r;
    uint64_t lsn;
    cache_record_begin(&r, cache);
    cache_record_u32(&r, row);
    cache_record_u32(&r, at->segment);
    cache_record_u32(&r, at->unit);
    return append_one(cache, CACHE_LOG_MOVED, &r, &lsn, err);
}

int cache_log_epoch(struct cache *cache, const struct invalidation *invalidation, uint64_t *lsn,
                    struct quire_error *err)
{
    struct cache_record r;
    cache_record_epoch(&r, cache, invalidation);
    int rc = append_one(cache, CACHE_LOG_EPOCH, &r, lsn, err);
    if (rc == 0)
        cache_tell_epoch(cache, invalidation);
    return rc;
}

int cache_log_curve(struct cache *cache, uint32_t number, struct quire_error *err)
{
    struct cache_record r;
    uint64_t lsn;
    cache_record_curve(&r, cache, number);
    int rc = append_one(cache, CACHE_LOG_CURVE, &r, &lsn, err);
    if (rc == 0)
        cache_tell_curve(cache, number);
    return rc;
}

void cache_record_durable(struct cache_record *r, const struct cache *cache, const struct document_extent *extents,
                          uint32_t n)
{
    cache_record_begin(r, cache);
    for (uint32_t i = 0; i < n; i++) {
        cache_record_u32(r, extents[i].segment);
        cache_record_u64(r, extents[i].bytes);
    }
}

int cache_log_durable(struct cache *cache, const struct document_extent *extents, uint32_t n, struct quire_error *err)
{
    struct cache_record r;
    uint64_t lsn;
    cache_record_durable(&r, cache, extents, n);
    return append_one(cache, CACHE_LOG_DURABLE, &r, &lsn, err);
}
