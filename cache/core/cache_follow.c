/*
 * cache_follow.c - a cache that follows: effects, lists and entries of its leader become what is here, and it becomes
 * one that leads (cache_replica.h).
 *
 * Nothing that comes is trusted beyond its checksum: numbers are looked at before they are used, and what does not fit
 * is QUIRE_ECORRUPT. What is done is logged as the leader has logged it, so a restart has it.
 *
 * A number of an entry is used again here when its leader has given it to another entry. The entry of before is gone
 * then, but its row may wait for being taken out of the graph: whoever needs the number does that.
 *
 * New entries are listed in their groups and linked by the thread, as after a restart: what comes is not held up by it.
 */
#include "cache/core/cache_follow.h"
#include "cache/core/sealed.h"
#include "cache/document/document.h"
#include "cache/guard/text.h"
#include "index/vector/codes.h"
#include "io/array.h"
#include "io/bytes.h"
#include "io/error.h"
#include "io/lock.h"
#include <math.h>
#include <stdlib.h>
#include <time.h>

enum {
    GONE_AT_ONCE = 1024, /* in one record */
    LIST_AT_ONCE = 256,  /* numbers that are compared under the lock at a time */
    RECLAIM_AT_ONCE = 64,
    WAIT_NS = 50000, /* for who takes a row out of the graph */
    SPARE_NUMBERS = 65536,
    CHANGES_MAX = 1 << 20,
    NAME_BYTES_MAX = 128
};

int cache_follow_damaged(const char *what, struct quire_error *err)
{
    return error_set(err, QUIRE_ECORRUPT, "%s that came for a cache is damaged", what);
}

static int another_image(const char *why, struct quire_error *err)
{
    return error_set(err, QUIRE_ESTALE, "%s", why);
}

/* Numbers of entries are below it: a leader's memory has room for no more. */
static uint32_t numbers_end(const struct cache *cache)
{
    uint64_t n = cache->config.memory_bytes / sizeof(struct cache_entry) + SPARE_NUMBERS;
    return n < INT32_MAX ? (uint32_t)n : INT32_MAX;
}

static int check_open(const struct cache *cache, struct quire_error *err)
{
    if (atomic_load(&cache->closed))
        return error_set(err, QUIRE_ECLOSED, "the cache was dropped or closed");
    return cache->follows ? 0 : error_set(err, QUIRE_ECLOSED, "this node leads the cache");
}

/* ---- what is known while entries are on their way ---------------------------------------------------------------- */

void cache_copying_free(struct cache *cache)
{
    if (!cache->copying)
        return;
    free(cache->copying->known);
    free(cache->copying->changes);
    free(cache->copying);
    cache->copying = NULL;
}

static bool is_known(const struct cache *cache, uint32_t row)
{
    return row < cache->copying->n_known && bitmap_has(cache->copying->known, row);
}

/* What is at this number is what its leader has, or will be by effects alone. (lock) */
static void set_known(struct cache *cache, uint32_t row)
{
    struct cache_copying *copying = cache->copying;
    if (!copying || copying->lost)
        return;
    if (row >= copying->n_known) {
        uint32_t n = row / 2 * 3 + 1024;
        uint8_t *bigger = realloc(copying->known, n / 8 + 1);
        copying->lost = !bigger;
        if (!bigger)
            return;
        memset(bigger + copying->n_known / 8, 0, n / 8 + 1 - copying->n_known / 8);
        copying->known = bigger;
        copying->n_known = n / 8 * 8;
    }
    bitmap_add(copying->known, row);
}

/* Those die and are logged. (lock) */
static int remove_rows(struct cache *cache, const uint32_t *rows, uint32_t n, uint64_t *lsn, struct quire_error *err)
{
    int rc = n ? cache_log_gone(cache, rows, n, lsn, err) : 0;
    for (uint32_t i = 0; i < n && rc == 0; i++)
        if (cache_entry_word(cache, rows[i]) & ENTRY_LIVE) /* one that is named twice goes once */
            cache_entry_die(cache, rows[i]);
    return rc;
}

/* Entries that no list has confirmed go; where that cannot be logged they come back with a restart. (lock) */
void cache_follow_drop_unknown(struct cache *cache)
{
    uint32_t gone[GONE_AT_ONCE], n = 0;
    uint64_t lsn;
    for (uint32_t row = 0; row < cache->n_rows; row++) {
        if ((cache_entry_word(cache, row) & ENTRY_LIVE) && !is_known(cache, row))
            gone[n++] = row;
        if (n == GONE_AT_ONCE || (n > 0 && row + 1 == cache->n_rows)) {
            remove_rows(cache, gone, n, &lsn, NULL);
            n = 0;
        }
    }
}

/* ---- changes of an entry ----------------------------------------------------------------------------------------- */

/* (lock) */
static int change(struct cache *cache, uint32_t row, uint64_t word, float veto, uint64_t *lsn, struct quire_error *err)
{
    uint64_t told = EXPIRE_NEVER | ENTRY_PINNED, old = cache_entry_word(cache, row),
             next = (old & ~told) | (word & told);
    float old_veto = blob_head(&cache->blobs, cache_entry_at(cache, row)->blob)->veto;
    if (next == old && veto <= old_veto)
        return 0;
    int rc = cache_log_change(cache, row, next, veto, lsn, err);
    if (rc < 0)
        return rc;
    cache_entry_set_word(cache, row, next);
    if (veto > old_veto && cache_entry_set_veto(cache, row, veto) < 0)
        return error_set(err, QUIRE_ENOMEM, "no memory for an entry's own threshold");
    return 0;
}

/* (lock) */
static void note_change(struct cache *cache, const struct cache_change *change)
{
    struct cache_copying *copying = cache->copying;
    if (!copying || copying->lost)
        return;
    copying->lost = copying->n_changes == CHANGES_MAX ||
                    !array_reserve(&copying->changes, &copying->changes_capacity, copying->n_changes + 1);
    if (!copying->lost)
        copying->changes[copying->n_changes++] = *change;
}

/* Whole, if all has come. (lock) */
static int settle(struct cache *cache, struct quire_error *err)
{
    struct cache_copying *copying = cache->copying;
    uint64_t lsn;
    int rc = 0;
    if (!copying || (!copying->lost && (!copying->ended || cache->seq < copying->until)))
        return 0;
    if (copying->lost)
        return another_image("there was no memory to remember what changed while it was copied", err);
    for (size_t i = 0; i < copying->n_changes && rc == 0; i++) { /* lists may have been older */
        const struct cache_change *c = &copying->changes[i];
        uint32_t row = cache_entry_find(cache, c->id);
        rc = row == UINT32_MAX ? 0 : change(cache, row, c->word, c->veto, &lsn, err);
    }
    if (rc == 0)
        cache_copying_free(cache);
    return rc;
}

/* ---- an entry ---------------------------------------------------------------------------------------------------- */

struct arrival {
    struct cache *cache;
    struct cache_scratch *scratch;
    struct cache_frame_entry told;
    struct document document;
    struct blob_head head;
    uint8_t blob[sizeof(struct blob_head) + CACHE_TAGS_MAX * sizeof(uint64_t) + GUARD_BYTES];
    uint32_t n_blob, row, graph_row;
    uint64_t created;
    bool listed; /* asked for by a list: what effects have settled since goes before */
    bool placed;
    struct document_at at;
    uint64_t *lsn;
};

static bool read_entry(struct cache_reader *r, struct cache_frame_entry *out)
{
    *out = (struct cache_frame_entry){.id = cache_read_u64(r)};
    out->word = cache_read_u64(r) & FRAME_WORD_BITS;
    out->veto = cache_read_f32(r);
    out->hits = cache_read_u32(r);
    out->category = cache_read_u32(r);
    out->f = cache_read_f32(r);
    out->norm2 = cache_read_f32(r);
    out->code = cache_read_piece(r, QUIRE_DIM_MAX + 64);
    return !r->bad;
}

/* Whether what is told fits together: id, document, flags, vector. */
static int check_arrival(struct arrival *a, struct quire_error *err)
{
    const struct cache_frame_entry *told = &a->told;
    struct document *d = &a->document;
    size_t n;
    uint64_t word = told->word;
    if (document_decode(told->document.data, told->document.n_bytes, d, &n, NULL) < 0 || n != told->document.n_bytes ||
        n / DOCUMENT_UNIT > UINT16_MAX || d->id != told->id || d->created_ms < BASE_MS)
        return cache_follow_damaged("an answer", err);
    a->row = (uint32_t)told->id;
    a->created = d->created_ms - BASE_MS;
    bool has_code = told->code.n_bytes == a->cache->space.code_dim && isfinite(told->f) && isfinite(told->norm2);
    if (a->row >= numbers_end(a->cache) || a->created > EXPIRE_NEVER ||
        (uint32_t)a->created != (uint32_t)(told->id >> ID_SHIFT) || d->n_scope > CACHE_SCOPE_KEYS_MAX ||
        d->n_tags > CACHE_TAGS_MAX || d->text.n_bytes > CACHE_TEXT_BYTES_MAX || d->n_chunks == 0 ||
        !(told->veto >= 0) || !(d->cost >= 0) || (word & ENTRY_VECTOR ? !has_code : told->code.n_bytes != 0) ||
        ((word & ENTRY_EXACT) && !d->exact.high))
        return cache_follow_damaged("an entry", err);
    return 0;
}

/* Code, features and tags: what the entry has in memory of its document. */
static int prepare(struct arrival *a, struct quire_error *err)
{
    const struct document *d = &a->document;
    struct cache_scratch *scratch = a->scratch;
    uint32_t code_dim = a->cache->space.code_dim;
    int rc = cache_scratch_fit(scratch, a->cache, err);
    if (rc < 0)
        return rc;
    if (a->told.word & ENTRY_VECTOR) {
        memcpy(scratch->code, a->told.code.data, code_dim);
    } else {
        memset(scratch->floats, 0, sizeof *scratch->floats * code_dim);
        a->told.f = code_encode(scratch->floats, code_dim, 8, scratch->code, NULL, NULL);
        a->told.norm2 = 0;
    }
    uint32_t n = d->text.n_bytes ? guard_features(a->cache->of->guards, d->text, scratch->features) : 0;
    a->head = (struct blob_head){.n_features = (uint16_t)n,
                                 .n_tags = (uint8_t)d->n_tags,
                                 .model = d->model.n_bytes ? (uint32_t)cache_tag_hash(d->model) | 1 : 0,
                                 .veto = a->told.veto,
                                 .cost = d->cost};
    if (n == 0 && d->n_tags == 0 && a->head.model == 0 && !(d->cost > 0) && !(a->told.veto > 0))
        return 0;
    uint8_t *at = a->blob + sizeof a->head;
    memcpy(a->blob, &a->head, sizeof a->head);
    for (uint32_t i = 0; i < d->n_tags; i++, at += sizeof(uint64_t)) {
        uint64_t tag = cache_tag_hash(document_tag(d, i));
        memcpy(at, &tag, sizeof tag);
    }
    memcpy(at, scratch->features, n);
    a->n_blob = blob_bytes(&a->head);
    return 0;
}

/* Into the log of documents; where its buffer is full the disk is waited for. */
static int append_document(struct arrival *a, struct quire_error *err)
{
    struct document_log *log = a->cache->documents;
    uint64_t expire = a->told.word & EXPIRE_NEVER;
    uint64_t expire_ms = expire == EXPIRE_NEVER ? UINT64_MAX : expire + BASE_MS;
    const struct quire_bytes *d = &a->told.document;
    int rc = document_log_append(log, d->data, (uint32_t)d->n_bytes, expire_ms, &a->at, err);
    if (rc != QUIRE_EBUSY)
        return rc;
    rc = a->cache->of->options.no_thread ? document_log_work(log, err) : document_log_sync(log, err);
    return rc < 0 ? rc : document_log_append(log, d->data, (uint32_t)d->n_bytes, expire_ms, &a->at, err);
}

/* The entry's number, for nobody else. 1: it is not wanted any more. (lock, which it may leave and take again) */
static int free_number(struct arrival *a, struct quire_error *err)
{
    struct cache *cache = a->cache;
    for (;;) {
        int rc = check_open(cache, err);
        if (rc < 0)
            return rc;
        if (a->listed && (!cache->copying || is_known(cache, a->row)))
            return 1;
        uint64_t word = a->row < cache->n_rows ? cache_entry_word(cache, a->row) : 0;
        if (word == 0)
            return 0;
        if (word & ENTRY_LIVE) {
            rc = remove_rows(cache, &a->row, 1, a->lsn, err);
            if (rc < 0)
                return rc;
        }
        pthread_mutex_unlock(&cache->lock);
        if (cache_reclaim(cache, a->scratch, RECLAIM_AT_ONCE) == 0)
            nanosleep(&(struct timespec){.tv_nsec = WAIT_NS}, NULL);
        pthread_mutex_lock(&cache->lock);
    }
}

/* The group of its scope, held. 1: its category is not here. (lock) */
static int hold_group(struct arrival *a, struct group **out, struct quire_error *err)
{
    static const struct category_settings none; /* what the category requires today is not what it required then */
    struct cache *cache = a->cache;
    struct group_key *key = &a->scratch->key;
    struct quire_pair scope[CACHE_SCOPE_KEYS_MAX];
    uint32_t number = a->told.category;
    if (number >= cache->n_categories || cache_category_at(cache, number)->dropped)
        return a->listed ? 1 : cache_follow_damaged("an entry of a category that is not there,", err);
    for (uint32_t i = 0; i < a->document.n_scope; i++)
        scope[i] = document_scope(&a->document, i);
    if (group_key_make(cache, &none, scope, a->document.n_scope, key, NULL) < 0)
        return cache_follow_damaged("the scope of an entry", err);
    group_key_finish(key, number, a->document.compat);
    struct group *group = group_find(cache, key);
    if (!group)
        group = group_make(cache, key, UINT32_MAX);
    if (!group)
        return error_set(err, QUIRE_ENOMEM, "no memory for another scope");
    group->pending++;
    *out = group;
    return 0;
}

/* (lock) */
static int publish(struct arrival *a, struct group *group, struct quire_error *err)
{
    struct cache *cache = a->cache;
    struct cache_entry entry;
    uint32_t blob = 0;
    struct hash128 exact = a->told.word & ENTRY_EXACT ? a->document.exact : (struct hash128){0, 0};
    if ((a->told.word & ENTRY_VECTOR) && group_reserve(cache, group) < 0)
        return error_set(err, QUIRE_ENOMEM, "no memory for another entry of its scope");
    if (a->n_blob && !(blob = blob_take(&cache->blobs, a->n_blob)))
        return error_set(err, QUIRE_ENOMEM, "no memory for tags and features");
    if (blob)
        memcpy(stable_array_at(&cache->blobs.cells, blob), a->blob, a->n_blob);
    cache_entry_init(&entry, a->told.word, exact, group, a->created, &a->at);
    entry.links.hits = (uint8_t)(a->told.hits < UINT8_MAX ? a->told.hits : UINT8_MAX);
    int rc = cache_log_put(cache,
                           &(struct logged_put){.row = a->row,
                                                .graph_row = a->graph_row,
                                                .entry = &entry,
                                                .group = group,
                                                .code = a->scratch->code,
                                                .f = a->told.f,
                                                .norm2 = a->told.norm2,
                                                .blob = a->blob,
                                                .n_blob = a->n_blob,
                                                .exact = exact},
                           a->lsn, err);
    if (rc < 0) {
        blob_give(&cache->blobs, blob);
        return rc;
    }
    entry.blob = blob;
    cache_entry_live(cache, a->row, &entry);
    cache_entry_join(cache, a->row, group, false);
    negatives_remove(&cache->negatives, group->key, exact);
    cache->arrivals[group->key & 255]++;
    set_known(cache, a->row);
    a->placed = true;
    return 0;
}

/* (lock, which it may leave and take again) */
static int place(struct arrival *a, struct quire_error *err)
{
    struct cache *cache = a->cache;
    struct group *group = NULL;
    int rc = free_number(a, err);
    if (rc == 0)
        rc = hold_group(a, &group, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    if (cache_entry_take_number(cache, a->graph_row, a->row) < 0) {
        rc = error_set(err, QUIRE_ENOMEM, "no memory for another entry");
    } else {
        rc = publish(a, group, err);
        if (rc < 0)
            cache_entry_give(cache, a->row);
    }
    group->pending--;
    group_release(cache, group);
    return rc;
}

static int arrive(struct arrival *a, struct quire_error *err)
{
    struct cache *cache = a->cache;
    int rc = check_arrival(a, err);
    if (rc == 0)
        rc = prepare(a, err);
    if (rc == 0)
        rc = append_document(a, err);
    if (rc < 0)
        return rc;
    unsigned slot = epoch_enter(cache->of->epochs);
    rc = graph_add(cache->graph, a->scratch->code, a->told.f, a->told.norm2, &a->graph_row);
    if (rc < 0) {
        error_set(err, rc, "no memory for another entry of %u dimensions", cache->config.dim);
    } else {
        pthread_mutex_lock(&cache->lock);
        rc = place(a, err);
        pthread_mutex_unlock(&cache->lock);
        if (!a->placed)
            graph_discard(cache->graph, a->graph_row);
    }
    if (!a->placed)
        document_log_drop(cache->documents, &a->at);
    epoch_exit(cache->of->epochs, slot);
    return rc;
}

/* ---- effects ----------------------------------------------------------------------------------------------------- */

static int take_put(struct cache *cache, struct cache_scratch *scratch, struct cache_frame *frame, uint64_t *lsn,
                    struct quire_error *err)
{
    struct arrival a = {.cache = cache, .scratch = scratch, .lsn = lsn};
    if (!read_entry(&frame->body, &a.told) || frame->body.left)
        return cache_follow_damaged("an entry", err);
    a.told.document = frame->document;
    return arrive(&a, err);
}

/* Who lives where that entry was. While a cache is copied it may be another one, of before: it went as well, since the
 * number was given again. (lock) */
static uint32_t row_that_goes(const struct cache *cache, uint64_t id)
{
    uint32_t row = (uint32_t)id;
    if (!cache->copying)
        return cache_entry_find(cache, id);
    return row < cache->n_rows && (cache_entry_word(cache, row) & ENTRY_LIVE) ? row : UINT32_MAX;
}

static int take_gone(struct cache *cache, struct cache_reader *r, uint64_t *lsn, struct quire_error *err)
{
    uint32_t rows[GONE_AT_ONCE];
    int rc = r->left % 8 ? cache_follow_damaged("a removal", err) : 0;
    while (rc == 0 && r->left) {
        uint32_t n = 0;
        pthread_mutex_lock(&cache->lock);
        for (uint32_t i = 0; i < GONE_AT_ONCE && r->left && rc == 0; i++) {
            uint64_t id = cache_read_u64(r);
            uint32_t row = row_that_goes(cache, id);
            if ((uint32_t)id >= numbers_end(cache))
                rc = cache_follow_damaged("a removal", err);
            else
                set_known(cache, (uint32_t)id);
            if (rc == 0 && row != UINT32_MAX)
                rows[n++] = row;
        }
        if (rc == 0)
            rc = remove_rows(cache, rows, n, lsn, err);
        pthread_mutex_unlock(&cache->lock);
    }
    return rc;
}

/* (lock) */
static int take_change(struct cache *cache, struct cache_reader *r, uint64_t *lsn, struct quire_error *err)
{
    struct cache_change told = {.id = cache_read_u64(r)};
    told.word = cache_read_u64(r);
    told.veto = cache_read_f32(r);
    if (r->bad || r->left || !(told.veto >= 0))
        return cache_follow_damaged("a change", err);
    note_change(cache, &told);
    uint32_t row = cache_entry_find(cache, told.id);
    return row == UINT32_MAX ? 0 : change(cache, row, told.word, told.veto, lsn, err);
}

/* What is remembered of an invalidation. (lock) */
int cache_follow_epoch(struct cache *cache, struct cache_reader *r, uint64_t *lsn, struct quire_error *err)
{
    struct invalidation i;
    int rc = cache_read_invalidation(cache->config.dim, r, &i);
    if (rc < 0)
        return rc == QUIRE_ENOMEM ? error_set(err, rc, "no memory for an invalidation")
                                  : cache_follow_damaged("an invalidation", err);
    rc = cache_log_epoch(cache, &i, lsn, err);
    if (rc < 0) {
        free(i.vector);
        return rc;
    }
    if (i.by == QUIRE_CACHE_BY_ALL)
        negatives_clear(&cache->negatives);
    cache_invalidation_push(cache, &i);
    return 0;
}

/* (lock) */
int cache_follow_curve(struct cache *cache, uint32_t number, struct quire_bytes curve, struct quire_error *err)
{
    if (number >= cache->n_categories)
        return cache_follow_damaged("a curve", err);
    int rc = risk_load(cache_category_at(cache, number)->curve, curve.data, (uint32_t)curve.n_bytes, false, err);
    return rc < 0 ? rc : cache_log_curve(cache, number, err);
}

int cache_follow_read_category(struct cache_reader *r, uint32_t *number, struct quire_bytes *name,
                               struct category_settings *settings, struct quire_error *err)
{
    *number = cache_read_u32(r);
    *name = cache_read_piece(r, NAME_BYTES_MAX);
    struct quire_bytes text = cache_read_piece(r, CATEGORY_TEXT_BYTES);
    category_defaults(settings);
    if (r->bad || name->n_bytes == 0 || *number >= CACHE_CATEGORIES_MAX)
        return cache_follow_damaged("a category", err);
    return category_parse(settings, text, err);
}

/* (lock) */
int cache_follow_category(struct cache *cache, uint32_t number, struct quire_bytes name,
                          const struct category_settings *settings, uint64_t *lsn, struct quire_error *err)
{
    const struct category *own = number < cache->n_categories ? cache_category_at(cache, number) : NULL;
    if (number > cache->n_categories || (own && (own->dropped || !text_equal(own->name, name))))
        return cache_follow_damaged("a category", err);
    int rc = cache_log_category(cache, number, name, settings, lsn, err);
    return rc == 0 ? cache_category_put(cache, name, settings, number, err) : rc;
}

/* (lock) */
int cache_follow_category_drop(struct cache *cache, uint32_t number, uint64_t *lsn, struct quire_error *err)
{
    if (number >= cache->n_categories)
        return cache_follow_damaged("a removed category", err);
    if (cache_category_at(cache, number)->dropped)
        return 0;
    int rc = cache_log_category_drop(cache, number, lsn, err);
    if (rc == 0)
        cache_category_drop(cache, number);
    return rc;
}

/* All but PUT and GONE, which leave the lock now and then. (lock) */
static int take_small(struct cache *cache, struct cache_frame *frame, uint64_t *lsn, struct quire_error *err)
{
    struct cache_reader *r = &frame->body;
    struct category_settings settings;
    struct quire_bytes name;
    uint32_t number;
    int rc;
    switch (frame->kind) {
    case FRAME_CHANGE:
        return take_change(cache, r, lsn, err);
    case FRAME_EPOCH:
        rc = cache_follow_epoch(cache, r, lsn, err);
        break;
    case FRAME_CURVE:
        number = cache_read_u32(r);
        rc = cache_follow_curve(cache, number, cache_read_piece(r, RISK_BYTES), err);
        break;
    case FRAME_CATEGORY:
        rc = cache_follow_read_category(r, &number, &name, &settings, err);
        if (rc == 0)
            rc = cache_follow_category(cache, number, name, &settings, lsn, err);
        break;
    case FRAME_CATEGORY_DROP:
        rc = cache_follow_category_drop(cache, cache_read_u32(r), lsn, err);
        break;
    case FRAME_IMAGE:
    case FRAME_PUT:
    case FRAME_GONE:
    case FRAME_LIST:
    case FRAME_ENTRIES:
    default:
        return cache_follow_damaged("a frame of another kind", err);
    }
    return rc == 0 && (r->bad || r->left) ? cache_follow_damaged("an effect", err) : rc;
}

/* 1: it is the next; 0: it was done. (lock) */
static int is_next(const struct cache *cache, const struct cache_frame *frame, struct quire_error *err)
{
    int rc = check_open(cache, err);
    if (rc < 0)
        return rc;
    if (frame->history != cache->history)
        return another_image(cache->history ? "its leader has begun another history" : "it has no history yet", err);
    if (frame->seq > cache->seq + 1)
        return error_set(err, QUIRE_ESTALE, "effect %llu came after %llu: some are missing",
                         (unsigned long long)frame->seq, (unsigned long long)cache->seq);
    return frame->seq == cache->seq + 1;
}

int cache_take_effect(struct cache *cache, struct cache_scratch *scratch, const uint8_t *bytes, size_t n, uint64_t *lsn,
                      struct quire_error *err)
{
    struct cache_frame frame;
    *lsn = 0;
    int rc = cache_frame_read(bytes, n, &frame, err);
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&cache->lock);
    rc = is_next(cache, &frame, err);
    bool next = rc == 1;
    if (next)
        rc = frame.kind == FRAME_PUT || frame.kind == FRAME_GONE ? 0 : take_small(cache, &frame, lsn, err);
    pthread_mutex_unlock(&cache->lock);
    if (next && frame.kind == FRAME_PUT)
        rc = take_put(cache, scratch, &frame, lsn, err);
    else if (next && frame.kind == FRAME_GONE)
        rc = take_gone(cache, &frame.body, lsn, err);
    if (rc < 0 || !next)
        return rc;
    pthread_mutex_lock(&cache->lock);
    cache->seq = frame.seq;
    rc = settle(cache, err);
    pthread_mutex_unlock(&cache->lock);
    return rc;
}

/* ---- lists and entries ------------------------------------------------------------------------------------------- */

/* Whether a frame is of the history that is copied. (lock) */
static int check_copying(const struct cache *cache, const struct cache_frame *frame, struct quire_error *err)
{
    int rc = check_open(cache, err);
    if (rc < 0)
        return rc;
    return cache->copying && cache->history == frame->history
               ? 0
               : another_image("what came of its entries is of another history than the cache here", err);
}

struct listed {
    uint64_t id, print, word;
    float veto;
};

static struct listed read_listed(struct cache_reader *r)
{
    struct listed l = {.id = cache_read_u64(r)};
    l.print = cache_read_u64(r);
    l.word = cache_read_u64(r);
    l.veto = cache_read_f32(r);
    return l;
}

enum { LISTED_BYTES = 28 };

/* Numbers ascend and lie within the list. */
static bool list_is_sound(const struct cache *cache, struct cache_reader r, uint32_t first, uint32_t next)
{
    uint64_t least = first;
    if (r.left % LISTED_BYTES || r.left / LISTED_BYTES > CACHE_LIST_ENTRIES || next <= first ||
        (next != UINT32_MAX && next > numbers_end(cache)))
        return false;
    while (r.left) {
        struct listed l = read_listed(&r);
        if ((uint32_t)l.id < least || (uint32_t)l.id >= next || (uint32_t)l.id >= numbers_end(cache) || !(l.veto >= 0))
            return false;
        least = (uint64_t)(uint32_t)l.id + 1;
    }
    return true;
}

/* Numbers first .. end - 1 of this node against the list, which is left at the first one behind. (lock) */
static int compare(struct cache *cache, uint32_t first, uint32_t end, struct cache_reader *r, uint64_t *lacking,
                   uint32_t *n_lacking, struct quire_error *err)
{
    uint32_t gone[LIST_AT_ONCE], n_gone = 0;
    uint64_t lsn;
    int rc = 0;
    assert(end - first <= LIST_AT_ONCE);
    for (uint32_t row = first; row < end && rc == 0; row++) {
        bool is_listed = r->left >= LISTED_BYTES && bytes_load_u32(r->at) == row;
        struct listed l = {0};
        if (is_listed)
            l = read_listed(r);
        if (is_known(cache, row))
            continue;
        bool lives = row < cache->n_rows && (cache_entry_word(cache, row) & ENTRY_LIVE);
        bool same = lives && is_listed && cache_entry_id(cache_entry_at(cache, row), row) == l.id &&
                    cache_entry_print(cache, row) == l.print;
        if (same) {
            rc = change(cache, row, l.word, l.veto, &lsn, err);
            set_known(cache, row);
        } else if (lives) {
            gone[n_gone++] = row;
        }
        if (is_listed && !same)
            lacking[(*n_lacking)++] = l.id;
    }
    return rc == 0 ? remove_rows(cache, gone, n_gone, &lsn, err) : rc;
}

int cache_take_list(struct cache *cache, const uint8_t *bytes, size_t n, uint64_t *lacking, uint32_t *n_lacking,
                    uint32_t *next, struct quire_error *err)
{
    struct cache_frame frame;
    struct cache_reader *r = &frame.body;
    *n_lacking = 0;
    int rc = cache_frame_read(bytes, n, &frame, err);
    if (rc < 0)
        return rc;
    uint32_t first = cache_read_u32(r);
    *next = cache_read_u32(r);
    if (frame.kind != FRAME_LIST || r->bad || !list_is_sound(cache, *r, first, *next))
        return cache_follow_damaged("a list of entries", err);
    for (bool more = true; rc == 0 && more; first += LIST_AT_ONCE) {
        pthread_mutex_lock(&cache->lock);
        rc = check_copying(cache, &frame, err);
        if (rc == 0) {
            /* of the last list all that is here and all that is listed */
            uint32_t last = *next != UINT32_MAX ? *next : numbers_end(cache);
            uint32_t end = last - first < LIST_AT_ONCE || last < first ? last : first + LIST_AT_ONCE;
            rc = compare(cache, first, end > first ? end : first, r, lacking, n_lacking, err);
            more = end < last && (r->left > 0 || *next != UINT32_MAX || end < cache->n_rows);
            if (cache->copying->until < frame.seq)
                cache->copying->until = frame.seq;
        }
        pthread_mutex_unlock(&cache->lock);
    }
    return rc;
}

int cache_take_entries(struct cache *cache, struct cache_scratch *scratch, const uint8_t *bytes, size_t n,
                       uint32_t *taken, struct quire_error *err)
{
    struct cache_frame frame;
    struct cache_reader *r = &frame.body;
    uint64_t lsn;
    *taken = 0;
    int rc = cache_frame_read(bytes, n, &frame, err);
    if (rc == 0 && frame.kind != FRAME_ENTRIES)
        rc = cache_follow_damaged("a list of entries", err);
    while (rc == 0 && r->left) {
        struct arrival a = {.cache = cache, .scratch = scratch, .listed = true, .lsn = &lsn};
        if (!read_entry(r, &a.told))
            return cache_follow_damaged("an entry", err);
        a.told.document = cache_read_piece(r, DOCUMENT_BYTES_MAX);
        if (r->bad)
            return cache_follow_damaged("an entry", err);
        pthread_mutex_lock(&cache->lock);
        rc = check_copying(cache, &frame, err);
        pthread_mutex_unlock(&cache->lock);
        if (rc == 0)
            rc = arrive(&a, err);
        *taken += a.placed;
    }
    return rc;
}

int cache_take_end(struct cache *cache, struct quire_error *err)
{
    pthread_mutex_lock(&cache->lock);
    int rc = check_open(cache, err);
    if (rc == 0 && cache->copying) {
        cache->copying->ended = true;
        rc = settle(cache, err);
    }
    pthread_mutex_unlock(&cache->lock);
    return rc;
}

/* ---- roles ------------------------------------------------------------------------------------------------------- */

int cache_follow(struct cache *cache, struct quire_error *err)
{
    pthread_mutex_lock(&cache->lock);
    int rc = cache->follows ? 0 : cache_entries_part(cache);
    if (rc == 0 && !cache->follows) {
        cache->follows = true;
        cache->tells = false;
        cache_entries_follow(cache);
    }
    pthread_mutex_unlock(&cache->lock);
    return rc < 0 ? error_set(err, rc, "no memory for the numbers of a cache's entries") : 0;
}

void cache_lead(struct cache *cache, bool tells)
{
    pthread_mutex_lock(&cache->lock);
    if (cache->follows) {
        if (cache->copying) { /* what was not confirmed may have been removed where the lead was */
            cache_follow_drop_unknown(cache);
            cache->history = 0;
        }
        cache_copying_free(cache);
        cache_entries_lead(cache);
        cache->follows = false;
        /* a lease of before knows no invalidation beyond those that have come here */
        cache->opened_epoch = cache->epoch;
        cache->opened_ms = cache_now(cache) + BASE_MS;
    }
    if (tells && !cache->tells && cache->of->options.told)
        cache_begin_history(cache);
    pthread_mutex_unlock(&cache->lock);
}
