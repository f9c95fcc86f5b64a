/*
 * cache_copy.c - what followers ask for: all of a cache but its entries, lists of entries, and entries by their ids.
 *
 * Everything is as of a number of the history. An entry is copied with its vector as it lies in the graph; one that was
 * sealed is read from its segment and coded anew, which gives nearly the same code. Its answer is read from the log of
 * documents. What is moved meanwhile is looked for again.
 */
#include "cache/core/cache_frame.h"
#include "cache/core/sealed.h"
#include "index/vector/codes.h"
#include "io/engine.h"
#include "io/error.h"
#include "io/lock.h"
#include <stdlib.h>

enum { LIST_ROWS = 16384, LOOKS = 3 };

static int no_memory(struct quire_error *err)
{
    return error_set(err, QUIRE_ENOMEM, "no memory to copy a cache");
}

/* Whether this node has all that it would give. (lock) */
static int check(const struct cache *cache, struct quire_error *err)
{
    if (cache->copying || cache->history == 0)
        return error_set(err, QUIRE_EBUSY, "this node is copying the cache itself: try again");
    return atomic_load(&cache->closed) ? error_set(err, QUIRE_ECLOSED, "the cache was dropped or closed") : 0;
}

/* ---- image ------------------------------------------------------------------------------------------------------- */

/* (lock) */
static void put_category(struct cache_record *r, const struct cache *cache, uint32_t number)
{
    const struct category *cat = cache_category_at(cache, number);
    char text[CATEGORY_TEXT_BYTES];
    uint8_t curve[RISK_BYTES];
    uint32_t n = category_print(&cat->settings, text);
    cache_record_u32(r, number);
    cache_record_bytes(r, cat->name.data, cat->name.n_bytes);
    cache_record_bytes(r, text, n);
    cache_record_u8(r, cat->dropped);
    cache_record_bytes(r, curve, cat->dropped ? 0 : risk_save(cat->curve, curve));
}

/* (lock) */
static void put_image(struct cache_record *r, const struct cache *cache)
{
    const struct cache_config *c = &cache->config;
    uint32_t n = 0;
    assert(lock_is_held(&cache->lock));
    cache_frame_begin(r, cache, FRAME_IMAGE);
    cache_record_u8(r, (uint8_t)c->type);
    cache_record_u8(r, c->require_scope);
    cache_record_u32(r, c->dim);
    cache_record_u64(r, c->memory_bytes);
    cache_record_u64(r, c->disk_bytes);
    cache_record_bytes(r, c->encoder.data, c->encoder.n_bytes);
    cache_record_u32(r, c->n_scope_keys);
    for (uint32_t i = 0; i < c->n_scope_keys; i++)
        cache_record_bytes(r, c->scope_keys[i].data, c->scope_keys[i].n_bytes);
    cache_record_u64(r, cache->space.seed);
    cache_record_u64(r, cache->secret[0]);
    cache_record_u64(r, cache->secret[1]);
    cache_record_u64(r, cache->before_history);
    cache_record_u64(r, cache->before_seq);
    cache_record_u64(r, cache->quota.used.entries);
    cache_record_u64(r, cache->epoch);
    cache_record_u32(r, cache->n_categories);
    for (uint32_t i = 0; i < cache->n_categories; i++)
        put_category(r, cache, i);
    for (uint32_t i = 0; i < INVALIDATIONS_MAX; i++)
        n += cache->invalidations[i].epoch != 0;
    cache_record_u32(r, n);
    for (uint32_t i = 0; i < INVALIDATIONS_MAX; i++)
        if (cache->invalidations[i].epoch)
            cache_record_invalidation(r, cache, &cache->invalidations[i]);
}

int cache_copy_image(struct cache *cache, uint8_t **bytes, size_t *n, struct quire_error *err)
{
    struct cache_record r;
    uint32_t n_bytes = 0;
    pthread_mutex_lock(&cache->lock);
    int rc = check(cache, err);
    if (rc == 0)
        put_image(&r, cache);
    pthread_mutex_unlock(&cache->lock);
    if (rc < 0)
        return rc;
    *bytes = cache_frame_end(&r, 0, &n_bytes);
    *n = n_bytes;
    return *bytes ? 0 : no_memory(err);
}

/* ---- lists ------------------------------------------------------------------------------------------------------- */

int cache_copy_list(struct cache *cache, uint32_t first, uint8_t **bytes, size_t *n, struct quire_error *err)
{
    struct cache_record r;
    uint32_t n_bytes = 0, n_entries = 0, end = first;
    pthread_mutex_lock(&cache->lock);
    int rc = check(cache, err);
    for (; rc == 0 && end < cache->n_rows && end - first < LIST_ROWS && n_entries < CACHE_LIST_ENTRIES; end++)
        n_entries += (cache_entry_word(cache, end) & ENTRY_LIVE) != 0;
    if (rc == 0) {
        cache_frame_begin(&r, cache, FRAME_LIST);
        cache_record_u32(&r, first);
        cache_record_u32(&r, end < cache->n_rows ? end : UINT32_MAX);
    }
    for (uint32_t row = first; rc == 0 && row < end; row++) {
        const struct cache_entry *e = cache_entry_at(cache, row);
        uint64_t word = cache_entry_word(cache, row);
        if (!(word & ENTRY_LIVE))
            continue;
        cache_record_u64(&r, cache_entry_id(e, row));
        cache_record_u64(&r, cache_entry_print(cache, row));
        cache_record_u64(&r, word & FRAME_WORD_BITS);
        cache_record_f32(&r, blob_head(&cache->blobs, e->blob)->veto);
    }
    pthread_mutex_unlock(&cache->lock);
    if (rc < 0)
        return rc;
    *bytes = cache_frame_end(&r, 0, &n_bytes);
    *n = n_bytes;
    return *bytes ? 0 : no_memory(err);
}

/* ---- entries ----------------------------------------------------------------------------------------------------- */

struct copied {
    struct cache *cache;
    struct engine *engine;
    struct cache_frame_entry entry;
    struct document_at at;
    struct sealed *sealed; /* a reference; NULL: its vector is in memory, or it has none */
    uint32_t sealed_row;
    float *floats; /* code_dim, twice; owned */
    uint8_t code[QUIRE_DIM_MAX + 64];
};

/* What memory says of it. False: it is gone. */
static bool look(struct copied *c, uint64_t id)
{
    struct cache *cache = c->cache;
    unsigned slot = epoch_enter(cache->of->epochs);
    uint32_t graph_at = 0;
    bool in_graph = false;
    pthread_mutex_lock(&cache->lock);
    uint32_t row = cache_entry_find(cache, id);
    if (row != UINT32_MAX) {
        const struct cache_entry *e = cache_entry_at(cache, row);
        struct place place = sealed_place_of(cache, row);
        struct sealed *sealed = place.segment ? sealed_find(cache, place.segment) : NULL;
        c->entry = (struct cache_frame_entry){.id = id,
                                              .word = cache_entry_word(cache, row),
                                              .veto = blob_head(&cache->blobs, e->blob)->veto,
                                              .hits = e->links.hits,
                                              .category = cache->groups[e->group]->category};
        c->at = cache_entry_document(e);
        c->sealed = sealed && sealed->segment ? sealed_ref(sealed) : NULL;
        c->sealed_row = place.row;
        graph_at = sealed_graph_row(cache, row);
        in_graph = place.segment == 0 && (c->entry.word & ENTRY_VECTOR);
    }
    pthread_mutex_unlock(&cache->lock);
    if (in_graph) { /* the row keeps its code as long as this epoch lasts */
        const uint8_t *code;
        graph_row(cache->graph, graph_at, &code, &c->entry.f, &c->entry.norm2);
        memcpy(c->code, code, cache->space.code_dim);
        c->entry.code = (struct quire_bytes){c->code, cache->space.code_dim};
    }
    epoch_exit(cache->of->epochs, slot);
    return row != UINT32_MAX;
}

static int take_vector(void *context, const struct scanned_row *row)
{
    struct copied *c = context;
    const struct space *space = &c->cache->space;
    float *unit = c->floats, *rotated = c->floats + space->code_dim;
    if (row->key_bytes != sizeof c->entry.id || memcmp(row->key, &c->entry.id, sizeof c->entry.id) != 0 ||
        space_unit(row->vector, space->dim, unit) == 0)
        return 0;
    space_row(space, unit, rotated);
    c->entry.f = code_encode(rotated, space->code_dim, 8, c->code, NULL, NULL);
    c->entry.norm2 = 1;
    c->entry.code = (struct quire_bytes){c->code, space->code_dim};
    return 0;
}

static void on_damage(void *context, const char *sentence)
{
    (void)context;
    (void)sentence; /* searches of the segment complain of it */
}

/* Its answer, into the record. QUIRE_ENOTFOUND: it was moved, or went. */
static int put_document(struct copied *c, struct cache_record *r)
{
    struct document_read read;
    int rc = document_read_begin(c->cache->documents, &c->at, &read, NULL);
    if (rc < 0)
        return rc;
    if (rc == DOCUMENT_ON_DISK)
        rc = document_read_bytes(&read, engine_run(c->engine, &read.op), NULL);
    if (rc >= 0) {
        cache_frame_put_entry(r, &c->entry);
        cache_record_bytes(r, read.bytes, c->at.bytes);
    }
    document_read_end(&read);
    return rc < 0 ? rc : 0;
}

/* One that cannot be read is left out: it is lost here as well. */
static void put_entry(struct copied *c, uint64_t id, struct cache_record *r)
{
    int rc = QUIRE_ENOTFOUND;
    for (unsigned i = 0; i < LOOKS && rc == QUIRE_ENOTFOUND && look(c, id); i++) {
        if (c->sealed)
            segment_scan_rows(c->sealed->segment, &c->sealed_row, 1, take_vector, on_damage, c, NULL);
        sealed_unref(c->sealed);
        c->sealed = NULL;
        if (!(c->entry.word & ENTRY_VECTOR) || c->entry.code.n_bytes > 0)
            rc = put_document(c, r);
    }
}

int cache_copy_entries(struct cache *cache, struct engine *engine, const uint64_t *ids, uint32_t n_ids, uint8_t **bytes,
                       size_t *n, uint32_t *done, struct quire_error *err)
{
    struct copied *c = calloc(1, sizeof *c);
    float *floats = malloc(2 * sizeof *floats * cache->space.code_dim);
    struct cache_record r;
    uint32_t n_bytes = 0, i = 0;
    int rc = c && floats ? 0 : no_memory(err);
    if (rc == 0) {
        c->cache = cache;
        c->engine = engine;
        c->floats = floats;
        pthread_mutex_lock(&cache->lock);
        rc = check(cache, err);
        if (rc == 0)
            cache_frame_begin(&r, cache, FRAME_ENTRIES);
        pthread_mutex_unlock(&cache->lock);
    }
    if (rc == 0) {
        for (; i < n_ids && r.n < CACHE_ENTRIES_BYTES && !r.failed; i++)
            put_entry(c, ids[i], &r);
        *bytes = cache_frame_end(&r, 0, &n_bytes);
        *n = n_bytes;
        *done = i;
        rc = *bytes ? 0 : no_memory(err);
    }
    free(floats);
    free(c);
    return rc;
}
