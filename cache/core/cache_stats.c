/* cache_stats.c - what a cache tells about itself: counters, curves, entries, scopes, and curves to take elsewhere. */
#include "cache/core/sealed.h"
#include "io/bytes.h"
#include "io/error.h"
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { LOOK_BATCH = 4096 }; /* entries looked at under the lock at a time */

/* ---- counters ---------------------------------------------------------------------------------------------------- */

static void add_counters(struct quire_cache_stats *out, const struct category *cat)
{
#define X(name) out->name += cat->counters.name;
    CACHE_COUNTERS(X)
#undef X
    out->cost_saved += cat->counters.cost_saved;
    out->cost_audits += cat->counters.cost_audits;
    out->pinned += cat->pinned;
}

static void set_latencies(struct quire_cache_stats *out, const struct histogram *get, const struct histogram *put)
{
    out->get_p50_us = histogram_percentile(get, 0.5);
    out->get_p99_us = histogram_percentile(get, 0.99);
    out->get_p999_us = histogram_percentile(get, 0.999);
    out->put_p50_us = histogram_percentile(put, 0.5);
    out->put_p99_us = histogram_percentile(put, 0.99);
    out->put_p999_us = histogram_percentile(put, 0.999);
}

/* Of the buckets' pages, which are used as entries come: at most one for each. */
static uint64_t bucket_bytes(const struct cache *cache)
{
    uint64_t all = cache->n_buckets * sizeof *cache->buckets, touched = (uint64_t)cache->n_rows * 4096;
    return touched < all ? touched : all;
}

static void cache_stats(struct cache *cache, struct quire_cache_stats *out)
{
    _Atomic uint64_t get_counts[GET_BUCKETS] = {0}, put_counts[GET_BUCKETS] = {0};
    struct histogram get, put;
    struct document_log_stats documents = {0};
    histogram_init(&get, get_counts, GET_SUB_BITS, GET_BITS);
    histogram_init(&put, put_counts, GET_SUB_BITS, GET_BITS);
    for (uint32_t i = 0; i < cache->n_categories; i++) {
        add_counters(out, cache->categories[i]);
        histogram_merge(&get, &cache->categories[i]->get_us);
        histogram_merge(&put, &cache->categories[i]->put_us);
    }
    struct graph_stats graph;
    graph_get_stats(cache->graph, &graph);
    if (cache->documents) /* otherwise it is unavailable */
        document_log_get_stats(cache->documents, &documents);
    out->entries = cache->quota.used.entries;
    out->document_bytes = cache->quota.used.bytes;
    out->disk_bytes = documents.bytes;
    out->memory_bytes = graph.bytes + cache->n_rows * sizeof(struct cache_entry) + cache->blobs.bytes +
                        cache->group_bytes + bucket_bytes(cache) + documents.hot_bytes + documents.buffered_bytes +
                        cache->sealed_memory_bytes +
                        (cache->apart ? cache->n_rows * (sizeof(struct place) + sizeof(uint32_t)) : 0);
    out->sealed_entries = cache->sealed_entries;
    out->sealed_segments = cache->n_sealed;
    out->sealed_disk_bytes = cache->sealed_disk_bytes;
    out->sealed_memory_bytes = cache->sealed_memory_bytes;
    out->lam = load_lam(&cache->load, (struct quire_bytes){NULL, 0}, cache_now(cache));
    out->threshold = NAN;
    set_latencies(out, &get, &put);
}

int cache_get_stats(struct cache *cache, struct quire_bytes category, struct quire_cache_stats *out,
                    struct quire_error *err)
{
    uint32_t number = 0;
    memset(out, 0, sizeof *out);
    pthread_mutex_lock(&cache->lock);
    int rc = category.n_bytes ? cache_category_find(cache, category, &number, err) : 0;
    if (rc == 0 && category.n_bytes) {
        struct category *cat = cache_category_at(cache, number);
        add_counters(out, cat);
        out->entries = cache->quotas[number].used.entries;
        out->document_bytes = cache->quotas[number].used.bytes;
        out->memory_bytes = out->entries * cache->entry_bytes;
        out->disk_bytes = out->document_bytes;
        out->lam = load_lam(&cache->load, (struct quire_bytes){NULL, 0}, cache_now(cache));
        out->threshold = cache_threshold_of(cache, number, out->lam);
        set_latencies(out, &cat->get_us, &cat->put_us);
    } else if (rc == 0) {
        cache_stats(cache, out);
    }
    pthread_mutex_unlock(&cache->lock);
    return rc;
}

int cache_get_guarded(struct cache *cache, struct quire_bytes category, uint64_t out[GUARD_KINDS],
                      struct quire_error *err)
{
    uint32_t number = 0;
    pthread_mutex_lock(&cache->lock);
    int rc = category.n_bytes ? cache_category_find(cache, category, &number, err) : 0;
    uint32_t end = category.n_bytes ? number + 1 : cache->n_categories;
    memset(out, 0, GUARD_KINDS * sizeof *out);
    for (uint32_t i = number; rc == 0 && i < end; i++)
        for (unsigned kind = 0; kind < GUARD_KINDS; kind++)
            out[kind] += cache->categories[i]->counters.guarded_by[kind];
    pthread_mutex_unlock(&cache->lock);
    return rc;
}

int cache_tune(struct cache *cache, struct quire_bytes category, double delta, struct quire_cache_tune *out,
               struct quire_error *err)
{
    static const uint32_t capacity = sizeof out->points / sizeof *out->points;
    struct risk_point points[sizeof out->points / sizeof *out->points];
    struct risk_stats stats;
    uint32_t number = 0;
    memset(out, 0, sizeof *out);
    pthread_mutex_lock(&cache->lock);
    int rc = cache_category_find(cache, category, &number, err);
    if (rc == 0) {
        const struct category *cat = cache_category_at(cache, number);
        const struct category_settings *s = &cat->settings;
        double lam = load_lam(&cache->load, (struct quire_bytes){NULL, 0}, cache_now(cache));
        struct risk_settings risk = {delta >= 0 ? delta : load_risk(s, lam), s->audit, s->floor, s->ceil};
        risk_get_stats(cat->curve, &stats);
        out->delta = risk.delta;
        out->threshold = delta >= 0 ? risk_threshold(cat->curve, &risk) : cache_threshold_of(cache, number, lam);
        out->requests = stats.requests;
        out->labels = stats.labels;
        out->n = risk_points(cat->curve, &risk, points, capacity);
    }
    pthread_mutex_unlock(&cache->lock);
    for (uint32_t i = 0; i < out->n; i++)
        out->points[i] = (struct quire_cache_point){(double)points[i].similarity, points[i].served, points[i].wrong,
                                                    points[i].bound};
    return rc;
}

int cache_get_histogram(struct cache *cache, struct quire_bytes category, struct cache_histogram *out,
                        struct quire_error *err)
{
    uint32_t number = 0;
    pthread_mutex_lock(&cache->lock);
    int rc = cache_category_find(cache, category, &number, err);
    if (rc == 0)
        *out = cache_category_at(cache, number)->histogram;
    pthread_mutex_unlock(&cache->lock);
    return rc;
}

/* ---- entries ----------------------------------------------------------------------------------------------------- */

void cache_entry_describe(const struct cache *cache, uint32_t row, struct cache_entry_info *out)
{
    const struct cache_entry *e = cache_entry_at(cache, row);
    uint64_t word = cache_entry_word(cache, row), expire = word & EXPIRE_NEVER;
    *out = (struct cache_entry_info){.id = cache_entry_id(e, row),
                                     .created_ms = cache_entry_created(e) + BASE_MS,
                                     .expire_ms = expire == EXPIRE_NEVER ? UINT64_MAX : expire + BASE_MS,
                                     .hits = (uint32_t)evict_hits(&e->links),
                                     .at = cache_entry_document(e),
                                     .veto = (double)blob_head(&cache->blobs, e->blob)->veto,
                                     .pinned = (word & ENTRY_PINNED) != 0,
                                     .category = cache_category_at(cache, cache->groups[e->group]->category)->name};
    out->document_bytes = out->at.bytes;
}

int cache_info(struct cache *cache, uint64_t id, struct cache_entry_info *out, struct quire_error *err)
{
    pthread_mutex_lock(&cache->lock);
    uint32_t row = cache_entry_find(cache, id);
    if (row != UINT32_MAX)
        cache_entry_describe(cache, row, out);
    pthread_mutex_unlock(&cache->lock);
    return row != UINT32_MAX ? 0 : error_set(err, QUIRE_ENOTFOUND, "no entry %016llx", (unsigned long long)id);
}

int cache_top(struct cache *cache, struct quire_bytes category, struct cache_entry_info *out, uint32_t n,
              struct quire_error *err)
{
    uint32_t number = 0, kept = 0;
    pthread_mutex_lock(&cache->lock);
    int rc = cache_category_find(cache, category, &number, err);
    for (uint32_t row = 0; rc == 0 && n && row < cache->n_rows; row++) {
        struct cache_entry_info info;
        if ((cache_entry_word(cache, row) & ENTRY_LIVE) &&
            cache->groups[cache_entry_at(cache, row)->group]->category == number) {
            cache_entry_describe(cache, row, &info);
            assert(kept <= n && n > 0);
            if (kept != n || info.hits > out[n - 1].hits) {
                uint32_t at = kept < n ? kept++ : n - 1;
                for (; at > 0 && out[at - 1].hits < info.hits; at--)
                    out[at] = out[at - 1];
                out[at] = info;
            }
        }
        if (row % LOOK_BATCH == LOOK_BATCH - 1) { /* others get a turn */
            pthread_mutex_unlock(&cache->lock);
            pthread_mutex_lock(&cache->lock);
        }
    }
    pthread_mutex_unlock(&cache->lock);
    return rc < 0 ? rc : (int)kept;
}

int cache_scan(struct cache *cache, struct quire_bytes category, uint64_t cursor, struct cache_entry_info *out,
               uint32_t capacity, uint64_t *next, struct quire_error *err)
{
    uint32_t n = 0, number = 0;
    if (capacity == 0 || capacity > LOOK_BATCH)
        return error_set(err, QUIRE_ERANGE, "COUNT %u; choose 1 to %u", capacity, LOOK_BATCH);
    pthread_mutex_lock(&cache->lock);
    int rc = category.data ? cache_category_find(cache, category, &number, err) : 0;
    uint64_t row = cursor, looked = 0;
    for (; rc == 0 && row < cache->n_rows && n < capacity && looked < LOOK_BATCH; row++, looked++)
        if ((cache_entry_word(cache, (uint32_t)row) & ENTRY_LIVE) &&
            (!category.data || cache->groups[cache_entry_at(cache, (uint32_t)row)->group]->category == number))
            cache_entry_describe(cache, (uint32_t)row, &out[n++]);
    *next = row < cache->n_rows ? row : 0;
    pthread_mutex_unlock(&cache->lock);
    return rc < 0 ? rc : (int)n;
}

/* ---- scopes ------------------------------------------------------------------------------------------------------ */

uint32_t cache_top_scopes(struct cache *cache, struct cache_scope_stats *out, uint32_t capacity)
{
    uint32_t n = 0;
    pthread_mutex_lock(&cache->lock);
    for (uint32_t i = 0; i < cache->n_scope_buckets && capacity; i++)
        for (const struct scope *scope = cache->scope_buckets[i]; scope; scope = scope->next) {
            if (n == capacity && scope->entries <= out[n - 1].entries)
                continue;
            uint32_t at = n < capacity ? n++ : capacity - 1;
            for (; at > 0 && out[at - 1].entries < scope->entries; at--)
                out[at] = out[at - 1];
            group_scope_text(scope, out[at].text, sizeof out[at].text);
            out[at].entries = scope->entries;
            out[at].requests = scope->requests;
            out[at].hits = scope->hits;
        }
    pthread_mutex_unlock(&cache->lock);
    return n;
}

/* ---- curves to take elsewhere ------------------------------------------------------------------------------------ */

/* "QCCURVE1", u32 curves; of each u16 bytes of name, u32 bytes of curve, name, curve (risk.h). */
static const char curve_magic[8] = "QCCURVE1";

int cache_export(struct cache *cache, void **bytes, size_t *n, struct quire_error *err)
{
    uint32_t count = 0;
    pthread_mutex_lock(&cache->lock);
    size_t capacity = sizeof curve_magic + 4;
    for (uint32_t i = 0; i < cache->n_categories; i++)
        capacity += cache->categories[i]->dropped ? 0 : 6 + cache->categories[i]->name.n_bytes + RISK_BYTES;
    uint8_t *out = malloc(capacity), *at = out ? out + sizeof curve_magic + 4 : NULL;
    for (uint32_t i = 0; i < cache->n_categories && out; i++) {
        const struct category *cat = cache->categories[i];
        if (cat->dropped)
            continue;
        uint8_t *curve = at + 6 + cat->name.n_bytes;
        bytes_store_u16(at, (uint16_t)cat->name.n_bytes);
        memcpy(at + 6, cat->name.data, cat->name.n_bytes);
        uint32_t taken = risk_save(cat->curve, curve);
        bytes_store_u32(at + 2, taken);
        at = curve + taken;
        count++;
    }
    pthread_mutex_unlock(&cache->lock);
    if (!out)
        return error_set(err, QUIRE_ENOMEM, "no memory for %zu bytes of curves", capacity);
    memcpy(out, curve_magic, sizeof curve_magic);
    bytes_store_u32(out + sizeof curve_magic, count);
    *bytes = out;
    *n = (size_t)(at - out);
    return 0;
}

/* One curve at *at; returns how many were taken (0: this cache has no such category). (lock) */
static int import_one(struct cache *cache, const uint8_t *bytes, size_t n, size_t *at, bool apply,
                      struct quire_error *err)
{
    uint32_t number = 0;
    if (n - *at < 6)
        return error_set(err, QUIRE_ETRUNCATED, "the curves end after %zu bytes in the middle of one", n);
    uint16_t n_name = bytes_load_u16(bytes + *at);
    uint32_t n_curve = bytes_load_u32(bytes + *at + 2);
    if (n - *at - 6 < (size_t)n_name + n_curve)
        return error_set(err, QUIRE_ETRUNCATED, "the curves end after %zu bytes in the middle of one", n);
    struct quire_bytes name = {bytes + *at + 6, n_name};
    const uint8_t *curve = bytes + *at + 6 + n_name;
    *at += 6u + n_name + n_curve;
    if (cache_category_find(cache, name, &number, NULL) < 0)
        return 0;
    int rc = 0;
    if (apply)
        rc = risk_load(cache_category_at(cache, number)->curve, curve, n_curve, true, err);
    if (apply && rc == 0)
        rc = cache_log_curve(cache, number, err);
    return rc < 0 ? rc : 1;
}

int cache_import(struct cache *cache, const void *bytes, size_t n, struct quire_error *err)
{
    int rc = 0, taken = 0;
    if (n < sizeof curve_magic + 4 || memcmp(bytes, curve_magic, sizeof curve_magic) != 0)
        return error_set(err, QUIRE_EFORMAT, "these %zu bytes are no curves: SC.EXPORT makes them", n);
    uint32_t count = bytes_load_u32((const uint8_t *)bytes + sizeof curve_magic);
    pthread_mutex_lock(&cache->lock);
    for (int apply = 0; apply < 2 && rc >= 0; apply++) { /* all lengths first */
        size_t at = sizeof curve_magic + 4;
        taken = 0;
        for (uint32_t i = 0; i < count && rc >= 0; i++) {
            rc = import_one(cache, bytes, n, &at, apply, err);
            taken += rc > 0;
        }
    }
    pthread_mutex_unlock(&cache->lock);
    return rc < 0 ? rc : taken;
}
