/*
 * cache_restore.c - a folder's records become caches.
 *
 * Nothing on the disk is trusted beyond its checksum: every number is looked at before it is used, and what does not
 * fit is QUIRE_ECORRUPT with its place. Rows are filled as records come; when all have been read, cache_restore_end
 * mends the graph, drops what has expired or has lost its document, and joins the rest to groups, orders and hashes,
 * the oldest first, so that orders of eviction begin as the entries came.
 */
#include "cache/core/cache_frame.h"
#include "cache/core/sealed.h"
#include "io/array.h"
#include "io/error.h"
#include <assert.h>
#include <stdlib.h>

/* ---- damage ------------------------------------------------------------------------------------------------------ */

static int corrupt(const struct cache_reader *r, const char *what, uint64_t lsn, struct quire_error *err)
{
    return error_set(err, QUIRE_ECORRUPT, "the record of %s at LSN %llu is damaged%s", what, (unsigned long long)lsn,
                     r->bad ? ": it ends too early" : "");
}

/* ---- a cache and its small parts --------------------------------------------------------------------------------- */

static int take_cache(struct caches *caches, uint64_t uid, struct cache_reader *r, uint64_t lsn, bool image,
                      struct quire_error *err)
{
    struct cache_config config = {0};
    struct cache *cache;
    uint64_t secret[2] = {cache_read_u64(r), 0};
    secret[1] = cache_read_u64(r);
    uint64_t epoch = cache_read_u64(r);
    config.dim = cache_read_u32(r);
    config.type = (enum quire_type)cache_read_u8(r);
    config.require_scope = cache_read_u8(r);
    config.memory_bytes = cache_read_u64(r);
    config.disk_bytes = cache_read_u64(r);
    config.name = cache_read_piece(r, CACHE_NAME_BYTES);
    config.encoder = cache_read_piece(r, CACHE_NAME_BYTES);
    config.n_scope_keys = cache_read_u32(r);
    for (uint32_t i = 0; i < config.n_scope_keys && i < CACHE_SCOPE_KEYS_MAX; i++)
        config.scope_keys[i] = cache_read_piece(r, CATEGORY_SCOPE_KEY_BYTES);
    uint64_t seed = r->left && !r->bad ? cache_read_u64(r) : uid;
    if (r->bad || r->left || config.n_scope_keys > CACHE_SCOPE_KEYS_MAX)
        return corrupt(r, "a cache", lsn, err);
    if (caches_by_uid(caches, uid))
        return 0; /* the checkpoint has it */
    int rc = cache_create(caches, uid, &config, seed, secret, &cache, err);
    if (rc < 0)
        return rc;
    cache->epoch = epoch;
    cache->image_lsn = image ? lsn : 0;
    rc = caches_insert(caches, cache, err);
    if (rc < 0)
        cache_unref(cache);
    return rc;
}

static int take_category(struct cache *cache, struct cache_reader *r, uint64_t lsn, struct quire_error *err)
{
    struct category_settings settings;
    uint32_t number = cache_read_u32(r);
    struct quire_bytes name = cache_read_piece(r, 128), text = cache_read_piece(r, CATEGORY_TEXT_BYTES);
    if (r->bad || r->left || number > cache->n_categories || number >= CACHE_CATEGORIES_MAX || name.n_bytes == 0)
        return corrupt(r, "a category", lsn, err);
    category_defaults(&settings);
    int rc = category_parse(&settings, text, err);
    return rc < 0 ? rc : cache_category_put(cache, name, &settings, number, err);
}

static int take_group(struct cache *cache, struct cache_reader *r, uint64_t lsn, struct quire_error *err)
{
    struct group_key key;
    struct quire_pair pair;
    uint32_t number = cache_read_u32(r), category = cache_read_u32(r), at = 0;
    struct hash128 compat = {cache_read_u64(r), 0};
    compat.high = cache_read_u64(r);
    struct quire_bytes scope = cache_read_piece(r, sizeof key.scope);
    while (!r->bad && group_scope_pair(scope.data, (uint32_t)scope.n_bytes, &at, &pair))
        ;
    if (r->bad || r->left || category >= cache->n_categories || at != scope.n_bytes || number >= INT32_MAX)
        return corrupt(r, "a scope", lsn, err);
    memcpy(key.scope, scope.data, scope.n_bytes);
    key.n_scope = (uint32_t)scope.n_bytes;
    group_key_finish(&key, category, compat);
    struct group *there = number < cache->n_groups ? cache->groups[number] : NULL;
    if (there)
        group_release(cache, there); /* its number was given to another one */
    struct group *group = group_make(cache, &key, number);
    if (!group)
        return error_set(err, QUIRE_ENOMEM, "no memory for a scope");
    group->logged = true;
    return 0;
}

int cache_read_invalidation(uint32_t dim, struct cache_reader *r, struct invalidation *out)
{
    *out = (struct invalidation){.epoch = cache_read_u64(r)};
    out->by = (enum quire_cache_by)cache_read_u8(r);
    out->category = cache_read_u32(r);
    out->n = cache_read_u32(r);
    for (uint32_t k = 0; k < INVALIDATION_HASHES; k++)
        out->hashes[k] = cache_read_u64(r);
    out->similarity = (double)cache_read_f32(r);
    bool has_vector = cache_read_u8(r);
    if (r->bad || (has_vector && r->left < sizeof(float) * dim) || out->epoch == 0 || out->epoch > INT64_MAX)
        return QUIRE_ECORRUPT;
    if (has_vector && !(out->vector = malloc(sizeof(float) * dim)))
        return QUIRE_ENOMEM;
    for (uint32_t k = 0; k < dim && has_vector; k++)
        out->vector[k] = cache_read_f32(r);
    return 0;
}

static int take_epoch(struct cache *cache, struct cache_reader *r, uint64_t lsn, struct quire_error *err)
{
    struct invalidation i;
    int rc = cache_read_invalidation(cache->config.dim, r, &i);
    if (rc == QUIRE_ENOMEM)
        return error_set(err, rc, "no memory for an invalidation");
    if (rc < 0 || r->left) {
        free(i.vector);
        return corrupt(r, "an invalidation", lsn, err);
    }
    cache_invalidation_push(cache, &i);
    return 0;
}

static int take_curve(struct cache *cache, struct cache_reader *r, uint64_t lsn, struct quire_error *err)
{
    uint32_t number = cache_read_u32(r);
    struct quire_bytes curve = cache_read_piece(r, RISK_BYTES);
    if (r->bad || r->left || number >= cache->n_categories)
        return corrupt(r, "a curve", lsn, err);
    return risk_load(cache_category_at(cache, number)->curve, curve.data, (uint32_t)curve.n_bytes, false, err);
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static uint64_t row_lsn(const struct cache *cache, uint32_t row)
{
    uint32_t chunk = row / IMAGE_ROWS;
    return chunk < cache->n_row_lsns ? cache->row_lsns[chunk] : 0;
}

static int set_row_lsn(struct cache *cache, uint32_t chunk, uint64_t lsn)
{
    uint32_t before = cache->n_row_lsns;
    if (!array_reserve(&cache->row_lsns, &cache->n_row_lsns, chunk + (size_t)1))
        return QUIRE_ENOMEM;
    memset(cache->row_lsns + before, 0, sizeof *cache->row_lsns * (cache->n_row_lsns - before));
    cache->row_lsns[chunk] = lsn;
    return 0;
}

/* An entry into its row, which holds none. */
static int take_entry(struct cache *cache, uint32_t row, struct cache_reader *r)
{
    struct cache_entry *e = cache_entry_at(cache, row);
    struct blob_head head;
    assert(row < cache->n_rows);
    memset(e, 0, sizeof *e);
    uint64_t word = cache_read_u64(r);
    e->exact = cache_read_u32(r);
    e->exact_high = cache_read_u8(r);
    uint32_t group = cache_read_u32(r);
    e->segment = cache_read_u32(r);
    uint32_t unit = cache_read_u32(r);
    uint64_t created = cache_read_u64(r);
    e->links.hits = (uint8_t)cache_read_u32(r);
    struct quire_bytes blob = cache_read_piece(r, BLOB_CELLS * BLOB_CELL);
    e->created_low = (uint32_t)created;
    e->created_high = (uint8_t)(created >> 32);
    e->links.level = EVICT_UNLISTED;
    if (r->bad || created > EXPIRE_NEVER || !(word & ENTRY_LIVE) || group >= GROUPS_MAX || unit >= UNITS_MAX)
        return QUIRE_ECORRUPT;
    e->group = group & (GROUPS_MAX - 1);
    e->unit = unit & (UNITS_MAX - 1);
    if (blob.n_bytes) {
        if (blob.n_bytes < sizeof head)
            return QUIRE_ECORRUPT;
        memcpy(&head, blob.data, sizeof head);
        if (blob_bytes(&head) != blob.n_bytes || head.n_features > GUARD_BYTES || head.n_tags > CACHE_TAGS_MAX)
            return QUIRE_ECORRUPT;
        if (!(e->blob = blob_take(&cache->blobs, (uint32_t)blob.n_bytes)))
            return QUIRE_ENOMEM;
        memcpy(stable_array_at(&cache->blobs.cells, e->blob), blob.data, blob.n_bytes);
    }
    atomic_store(&e->word, word & ~(ENTRY_LISTED | ENTRY_TAKEN));
    return 0;
}

/* Its row is free again. */
static void forget_row(struct cache *cache, uint32_t row)
{
    struct cache_entry *e = cache_entry_at(cache, row);
    if (!(cache_entry_word(cache, row) & ENTRY_LIVE))
        return;
    blob_give(&cache->blobs, e->blob);
    e->blob = 0;
    atomic_store(&e->word, 0);
}

/* Where its vector is: told (r), or in the row of the graph of the same number (r NULL). */
static int take_place(struct cache *cache, uint32_t row, struct cache_reader *r)
{
    struct place place = {0, 0};
    if (r) {
        place.segment = cache_read_u32(r);
        uint32_t at = cache_read_u32(r);
        place.row = place.segment ? at : at ^ row;
        if (r->bad || at >= INT32_MAX)
            return QUIRE_ECORRUPT;
    }
    return cache_entry_set_place(cache, row, place);
}

static int take_rows(struct cache *cache, struct cache_reader *r, uint64_t lsn, struct quire_error *err)
{
    uint32_t first = cache_read_u32(r), n = cache_read_u32(r);
    struct quire_bytes image = cache_read_piece(r, UINT32_MAX);
    if (r->bad || n == 0 || n > IMAGE_ROWS || first % IMAGE_ROWS || first > INT32_MAX - IMAGE_ROWS)
        return corrupt(r, "rows", lsn, err);
    int rc = graph_image_load(cache->graph, first, n, image.data, image.n_bytes, err);
    if (rc < 0)
        return rc;
    if (cache_entries_reserve(cache, first + n) < 0 || set_row_lsn(cache, first / IMAGE_ROWS, lsn) < 0)
        return error_set(err, QUIRE_ENOMEM, "no memory for %u entries", first + n);
    for (uint32_t row = first; row < first + n && rc == 0; row++) {
        uint8_t kind = cache_read_u8(r);
        if (kind > 2)
            return corrupt(r, "rows", lsn, err);
        rc = kind ? take_entry(cache, row, r) : 0;
        if (rc == 0 && kind)
            rc = take_place(cache, row, kind == 2 ? r : NULL);
    }
    if (rc == QUIRE_ENOMEM)
        return error_set(err, rc, "no memory for %u entries", first + n);
    return rc < 0 || r->bad || r->left ? corrupt(r, "rows", lsn, err) : 0;
}

/* The checkpoint may know the entry and not the row of the graph, or the other way round. */
static int take_put(struct cache *cache, struct cache_reader *r, uint64_t lsn, struct quire_error *err)
{
    uint32_t row = cache_read_u32(r);
    int rc = 0;
    if (row >= INT32_MAX)
        return corrupt(r, "an entry", lsn, err);
    bool is_new = lsn > row_lsn(cache, row);
    if (cache_entries_reserve(cache, row + 1) < 0)
        return error_set(err, QUIRE_ENOMEM, "no memory for %u entries", row + 1);
    if (is_new) {
        forget_row(cache, row);
        rc = take_entry(cache, row, r);
    } else { /* goes over an entry that is known */
        cache_read(r, 8 + 4 + 1 + 4 + 4);
        cache_read(r, 4 + 8);
        cache_read_u32(r);
        cache_read_piece(r, BLOB_CELLS * BLOB_CELL);
    }
    float f = cache_read_f32(r), norm2 = cache_read_f32(r);
    struct quire_bytes code = cache_read_piece(r, cache->space.code_dim);
    uint32_t graph_row = r->left && !r->bad ? cache_read_u32(r) : row;
    if (rc == QUIRE_ENOMEM)
        return error_set(err, rc, "no memory for an entry");
    if (rc < 0 || r->bad || r->left || code.n_bytes != cache->space.code_dim || graph_row >= INT32_MAX)
        return corrupt(r, "an entry", lsn, err);
    if (is_new)
        rc = cache_entry_set_place(cache, row, (struct place){0, graph_row ^ row});
    if (rc == 0 && lsn > row_lsn(cache, graph_row)) {
        /* The vector of an entry into its row of the graph, in whose place may be another one's. */
        rc = graph_place(cache->graph, graph_row, code.data, f, norm2);
        if (rc == QUIRE_EEXISTS) {
            graph_unplace(cache->graph, graph_row);
            rc = graph_place(cache->graph, graph_row, code.data, f, norm2);
        }
    }
    return rc < 0 ? error_set(err, rc, "no memory for %u entries", row + 1) : 0;
}

/* Entries have gone to a segment, which is noted, with the folder still closed: a later record may empty it. */
static int take_sealed(struct cache *cache, struct cache_reader *r, uint64_t lsn, struct quire_error *err)
{
    uint32_t number = cache_read_u32(r), group = cache_read_u32(r);
    if (r->bad || r->left % 8 || number == 0 || number == UINT32_MAX || group >= GROUPS_MAX)
        return corrupt(r, "a seal", lsn, err);
    struct sealed *sealed = sealed_find(cache, number);
    if (sealed && sealed->group != group)
        return corrupt(r, "a seal", lsn, err);
    if (!sealed && (sealed_create(number, group, &sealed) < 0 || sealed_insert(cache, sealed) < 0))
        return error_set(err, QUIRE_ENOMEM, "no memory for a segment");
    while (r->left) {
        uint32_t row = cache_read_u32(r), segment_row = cache_read_u32(r);
        if (row >= cache->n_rows)
            return corrupt(r, "a seal", lsn, err);
        if (lsn > row_lsn(cache, row) && cache_entry_set_place(cache, row, (struct place){number, segment_row}) < 0)
            return error_set(err, QUIRE_ENOMEM, "no memory for a segment");
    }
    return 0;
}

static int take_gone(struct cache *cache, struct cache_reader *r, uint64_t lsn, struct quire_error *err)
{
    if (r->left % 4)
        return corrupt(r, "removals", lsn, err);
    while (r->left) {
        uint32_t row = cache_read_u32(r);
        if (row >= cache->n_rows)
            return corrupt(r, "removals", lsn, err);
        if (lsn > row_lsn(cache, row))
            forget_row(cache, row);
    }
    return 0;
}

static int take_change(struct cache *cache, struct cache_reader *r, uint64_t lsn, struct quire_error *err)
{
    uint32_t row = cache_read_u32(r);
    uint64_t word = cache_read_u64(r);
    float veto = cache_read_f32(r);
    if (r->bad || r->left || row >= cache->n_rows)
        return corrupt(r, "a change", lsn, err);
    struct cache_entry *e = cache_entry_at(cache, row);
    uint64_t old = cache_entry_word(cache, row), kept = ~(EXPIRE_NEVER | ENTRY_PINNED);
    if (lsn <= row_lsn(cache, row) || !(old & ENTRY_LIVE))
        return 0;
    atomic_store(&e->word, (old & kept) | (word & ~kept));
    if (veto > blob_head(&cache->blobs, e->blob)->veto && cache_entry_set_veto(cache, row, veto) < 0)
        return error_set(err, QUIRE_ENOMEM, "no memory for an entry's own threshold");
    return 0;
}

static int take_moved(struct cache *cache, struct cache_reader *r, uint64_t lsn, struct quire_error *err)
{
    uint32_t row = cache_read_u32(r), segment = cache_read_u32(r), unit = cache_read_u32(r);
    if (r->bad || r->left || row >= cache->n_rows || unit >= UNITS_MAX)
        return corrupt(r, "a move", lsn, err);
    if (lsn > row_lsn(cache, row)) {
        cache_entry_at(cache, row)->segment = segment;
        cache_entry_at(cache, row)->unit = unit & (UNITS_MAX - 1);
    }
    return 0;
}

/* So much of segments of documents was on the device: by this damage is told from what a crash left. */
static int take_durable(struct cache *cache, struct cache_reader *r, uint64_t lsn, struct quire_error *err)
{
    if (r->left % 12)
        return corrupt(r, "synced documents", lsn, err);
    while (r->left) {
        struct document_extent extent = {.segment = cache_read_u32(r)};
        extent.bytes = cache_read_u64(r);
        uint32_t at = cache->n_extents;
        while (at > 0 && cache->extents[at - 1].segment >= extent.segment) /* most often it is the last one */
            at--;
        bool there = at < cache->n_extents && cache->extents[at].segment == extent.segment;
        if (there) {
            if (extent.bytes > cache->extents[at].bytes)
                cache->extents[at].bytes = extent.bytes;
            continue;
        }
        if (!array_reserve(&cache->extents, &cache->extents_capacity, cache->n_extents + (size_t)1))
            return error_set(err, QUIRE_ENOMEM, "no memory for the segments of a cache");
        memmove(cache->extents + at + 1, cache->extents + at, sizeof extent * (cache->n_extents - at));
        cache->extents[at] = extent;
        cache->n_extents++;
    }
    return 0;
}

/* ---- records ----------------------------------------------------------------------------------------------------- */

static int take_of_cache(struct cache *cache, uint8_t kind, uint64_t lsn, bool image, struct cache_reader *r,
                         struct quire_error *err)
{
    bool known = !image && lsn <= cache->image_lsn;
    switch ((enum cache_log_kind)kind) {
    case CACHE_LOG_CATEGORY:
        return known ? 0 : take_category(cache, r, lsn, err);
    case CACHE_LOG_CATEGORY_DROP: {
        uint32_t number = cache_read_u32(r);
        if (r->bad || number >= cache->n_categories)
            return corrupt(r, "a removed category", lsn, err);
        if (!known)
            cache_category_drop(cache, number);
        return 0;
    }
    case CACHE_LOG_GROUP:
        return known ? 0 : take_group(cache, r, lsn, err);
    case CACHE_LOG_EPOCH:
        return known ? 0 : take_epoch(cache, r, lsn, err);
    case CACHE_LOG_CURVE:
        return known ? 0 : take_curve(cache, r, lsn, err);
    case CACHE_LOG_PUT:
        return take_put(cache, r, lsn, err);
    case CACHE_LOG_GONE:
        return take_gone(cache, r, lsn, err);
    case CACHE_LOG_CHANGE:
        return take_change(cache, r, lsn, err);
    case CACHE_LOG_MOVED:
        return take_moved(cache, r, lsn, err);
    case CACHE_LOG_ROWS:
        return take_rows(cache, r, lsn, err);
    case CACHE_LOG_SEALED:
        return take_sealed(cache, r, lsn, err);
    case CACHE_LOG_DURABLE:
        return take_durable(cache, r, lsn, err);
    case CACHE_LOG_CACHE:
    case CACHE_LOG_DROP:
        break;
    }
    return error_set(err, QUIRE_EVERSION, "a record of kind %u at LSN %llu: written by a later version?", kind,
                     (unsigned long long)lsn);
}

static int take_record(struct caches *caches, uint8_t kind, uint64_t lsn, bool image, const uint8_t *bytes, uint32_t n,
                       struct quire_error *err)
{
    struct cache_reader r = {bytes, n, false};
    uint64_t uid = cache_read_u64(&r);
    if (r.bad)
        return corrupt(&r, "a cache", lsn, err);
    if (kind == CACHE_LOG_CACHE)
        return take_cache(caches, uid, &r, lsn, image, err);
    struct cache *cache = caches_by_uid(caches, uid);
    if (!cache)
        return 0; /* dropped by a record that the checkpoint knows */
    if (kind == CACHE_LOG_DROP) {
        caches_take(caches, cache);
        return 0;
    }
    return take_of_cache(cache, kind, lsn, image, &r, err);
}

int caches_restore(void *context, uint8_t kind, uint64_t lsn, const uint8_t *bytes, uint32_t n, struct quire_error *err)
{
    return take_record(context, kind, lsn, true, bytes, n, err);
}

int caches_replay(void *context, uint8_t kind, uint64_t lsn, const uint8_t *bytes, uint32_t n, struct quire_error *err)
{
    return take_record(context, kind, lsn, false, bytes, n, err);
}

/* ---- the end of it ----------------------------------------------------------------------------------------------- */

static struct group *group_of(const struct cache *cache, uint32_t row)
{
    uint32_t number = cache_entry_at(cache, row)->group;
    return number < cache->n_groups ? cache->groups[number] : NULL;
}

/* Until it is joined a flag says that an entry's vector is there. */
static struct graph_root *root_of(void *context, uint32_t graph_row)
{
    struct cache *cache = context;
    uint32_t row = sealed_graph_entry(cache, cache->apart, graph_row);
    bool lives = row < cache->n_rows && (cache_entry_word(cache, row) & ENTRY_LIVE) &&
                 sealed_has_graph_row(cache, row, graph_row);
    struct group *group = lives ? group_of(cache, row) : NULL;
    if (group)
        atomic_fetch_or(&cache_entry_at(cache, row)->word, ENTRY_TAKEN);
    return group ? &group->root : NULL;
}

/* And another one that its row is not linked. */
static void mark_unlinked(void *context, uint32_t graph_row)
{
    struct cache *cache = context;
    atomic_fetch_or(&cache_entry_at(cache, sealed_graph_entry(cache, cache->apart, graph_row))->word, ENTRY_LISTED);
}

/* Whether an entry would be served, or joined at least: it has neither expired nor lost its category or scope. */
bool cache_entry_is_wanted(const struct cache *cache, uint32_t row, uint64_t now)
{
    uint64_t word = cache_entry_word(cache, row), expire = word & EXPIRE_NEVER;
    const struct group *group = word & ENTRY_LIVE ? group_of(cache, row) : NULL;
    const struct category *cat = group ? cache_category_at(cache, group->category) : NULL;
    return cat && !cat->dropped && (expire == EXPIRE_NEVER || expire + category_kept_ms(&cat->settings) > now);
}

/* Nothing has been changed yet. */
static int check_documents(const struct cache *cache, uint64_t now, struct quire_error *err)
{
    struct quire_error first = {0};
    uint32_t n = 0;
    for (uint32_t row = 0; row < cache->n_rows && !cache->of->options.read_only; row++) {
        struct document_at at = cache_entry_document(cache_entry_at(cache, row));
        if (cache_entry_is_wanted(cache, row, now) && document_log_lacks(cache->documents, &at, n ? NULL : &first))
            n++;
    }
    return n ? error_set(err, first.code, "%.240s, and %u entries need it", first.message, n) : 0;
}

static int join_row(struct cache *cache, uint32_t row, uint64_t now, struct quire_error *err)
{
    struct cache_entry *e = cache_entry_at(cache, row);
    struct group *group = group_of(cache, row);
    if (!group) { /* mending has dropped its row */
        forget_row(cache, row);
        return 0;
    }
    struct category *cat = cache_category_at(cache, group->category);
    struct document_at at = cache_entry_document(e);
    uint64_t word = cache_entry_word(cache, row), expire = word & EXPIRE_NEVER;
    bool over = expire != EXPIRE_NEVER && expire + category_kept_ms(&cat->settings) <= now;
    struct place place = sealed_place_of(cache, row);
    struct sealed *sealed = place.segment ? sealed_find(cache, place.segment) : NULL;
    bool has_vector = place.segment ? sealed && place.row < sealed->n_rows && bitmap_has(sealed->dead, place.row)
                                    : (word & ENTRY_TAKEN) != 0;
    if (over || cat->dropped || !has_vector || !document_log_adopt(cache->documents, &at)) {
        cat->counters.expired += over;
        if (!over && !cat->dropped) {
            uint64_t lsn; /* for good: its place may be given to another document */
            cat->counters.lost++;
            cache_log_gone(cache, &row, 1, &lsn, NULL); /* where it cannot be logged it is found lost again */
        }
        /* A row that does not live joins the list of dead rows without having been joined to anything else. */
        forget_row(cache, row);
        assert(cache_entry_word(cache, row) == 0 && e->blob == 0);
        atomic_store(&e->word, ENTRY_TAKEN);
        e->chain = cache->dead_rows;
        cache->dead_rows = row + 1;
        cache->n_dead_rows++;
        group->pending++;
        return 0;
    }
    bool linked = !(atomic_fetch_and(&e->word, ~(ENTRY_LISTED | ENTRY_TAKEN)) & ENTRY_LISTED);
    if (!linked && group_reserve(cache, group) < 0)
        return error_set(err, QUIRE_ENOMEM, "no memory for the entries of a scope");
    cache_entry_join(cache, row, group, linked);
    if (sealed)
        sealed_revive(cache, row, sealed, place.row);
    return 0;
}

int cache_restore_end(struct cache *cache, struct quire_error *err)
{
    struct graph_mending mending = {.root_of = root_of, .unlinked = mark_unlinked, .context = cache};
    uint64_t *rows = NULL, now = cache_now(cache);
    uint32_t n = 0;
    int rc = sealed_restore_end(cache, err);
    if (rc == 0)
        rc = check_documents(cache, now, err);
    if (rc < 0)
        return rc;
    rc = graph_mend(cache->graph, &mending);
    if (rc == 0 && !(rows = malloc(sizeof *rows * (cache->n_rows ? cache->n_rows : 1))))
        rc = QUIRE_ENOMEM;
    if (rc < 0)
        return error_set(err, rc, "no memory to open a cache of %u entries", cache->n_rows);
    assert(rows);
    graph_place_end(cache->graph);
    /* those that live, by the seconds they came at: created << 24 and the row below would not fit into 64 bits */
    for (uint32_t row = 0; row < cache->n_rows; row++)
        if (cache_entry_word(cache, row) & ENTRY_LIVE)
            rows[n++] = cache_entry_created(cache_entry_at(cache, row)) / 1000 << 32 | row;
    if (n)
        qsort(rows, n, sizeof *rows, cache_compare_numbers);
    for (uint32_t i = 0; i < n && rc == 0; i++)
        rc = join_row(cache, (uint32_t)rows[i], now, err);
    free(rows);
    for (uint32_t i = 0; i < cache->n_groups; i++)
        if (cache->groups[i])
            group_release(cache, cache->groups[i]);
    free(cache->row_lsns);
    cache->row_lsns = NULL;
    cache->n_row_lsns = 0;
    cache->opened_epoch = cache->epoch;
    cache->opened_ms = now + BASE_MS;
    return rc;
}
