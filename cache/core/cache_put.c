/*
 * cache_put.c - an answer becomes an entry.
 *
 *   prepare   vector, code, features, tags, hashes; a row of the graph, which nobody finds yet
 *   admit     (lock) category, lease, what was invalidated meanwhile, what is there already; the group is held
 *   link      into the group's graph where it has one; the document is appended to its log
 *   publish   (lock) space is made: entries over their share die; it is logged, and lives
 *   after     leases end, who waits is woken; as many dead rows as were made are taken out of the graph
 *
 * What the two stretches under the lock have found is looked at again in the second where it may have changed: the
 * epoch, and the entry of the same hash. Whatever fails before the entry is logged leaves nothing of it behind. But
 * what it replaces, and what made room for it, is gone then: each was removed and logged by itself, as an eviction is.
 */
#include "cache/core/sealed.h"
#include "index/vector/codes.h"
#include "io/clock.h"
#include "io/error.h"
#include "io/lock.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>

enum { CREATED_AHEAD_MAX = 1000 }; /* ms; what is farther ahead is a clock that was set back */

struct put {
    struct cache *cache;
    struct cache_scratch *scratch;
    const struct quire_cache_entry *entry;
    struct quire_cache_put_result *result;
    struct hash128 exact, compat;
    struct blob_head head;
    uint64_t tags[CACHE_TAGS_MAX];
    uint8_t blob[sizeof(struct blob_head) + CACHE_TAGS_MAX * sizeof(uint64_t) + GUARD_BYTES];
    uint32_t n_blob;
    float f, norm2;
    uint32_t row, graph_row, number;
    bool has_graph_row, has_row, linked, has_document, replaces;
    struct category *category;
    struct group *group; /* pending counts it */
    enum lease_state lease;
    uint64_t lease_epoch, lease_ms, now, created, expire;
    struct document_at at;
    uint8_t *document; /* encoded; owned, until it is told */
};

/* ---- preparing --------------------------------------------------------------------------------------------------- */

/* Vector, code, and a row. */
static int prepare(struct put *p, struct quire_error *err)
{
    struct cache *cache = p->cache;
    struct cache_scratch *scratch = p->scratch;
    uint32_t code_dim = cache->space.code_dim;
    if (p->entry->n_tags > CACHE_TAGS_MAX)
        return error_set(err, QUIRE_ERANGE, "%u tags; an entry may have at most %u", p->entry->n_tags, CACHE_TAGS_MAX);
    if (p->entry->text.n_bytes > CACHE_TEXT_BYTES_MAX)
        return error_set(err, QUIRE_ERANGE, "a text of %zu bytes; it may have at most %u: give the last user text only",
                         p->entry->text.n_bytes, CACHE_TEXT_BYTES_MAX);
    if (p->entry->n_chunks == 0)
        return error_set(err, QUIRE_EINVALID, "an entry needs a value: VALUE, or CHUNKS of at least one");
    if (!isfinite(p->entry->cost) || p->entry->cost < 0)
        return error_set(err, QUIRE_ERANGE, "a cost of %g USD; it must be 0 or more", p->entry->cost);
    if (!p->entry->vector && p->entry->hash.n_bytes == 0 && p->entry->text.n_bytes == 0)
        return error_set(err, QUIRE_EINVALID, "neither a vector nor a hash nor a text: nothing could ever find it");
    int rc = cache_check_encoder(cache, p->entry->encoder, err);
    if (rc == 0)
        rc = cache_scratch_fit(scratch, cache, err);
    if (rc == 0 && p->entry->vector)
        rc = cache_vector(cache, scratch, p->entry->vector, err);
    if (rc < 0)
        return rc;
    float *rotated = scratch->floats + scratch->floats_capacity;
    if (!p->entry->vector)
        memset(rotated, 0, sizeof *rotated * code_dim);
    p->f = code_encode(rotated, code_dim, 8, scratch->code, NULL, NULL);
    p->norm2 = p->entry->vector ? 1 : 0;
    p->exact = cache_hash_of(p->entry->hash.n_bytes ? p->entry->hash : p->entry->text);
    p->compat = cache_hash_of(p->entry->compat);
    const struct quire_cache_entry *entry = p->entry;
    uint32_t n = entry->text.n_bytes ? guard_features(p->cache->of->guards, entry->text, scratch->features) : 0;
    p->head = (struct blob_head){.n_features = (uint16_t)n,
                                 .n_tags = (uint8_t)entry->n_tags,
                                 .model = entry->model.n_bytes ? (uint32_t)cache_tag_hash(entry->model) | 1 : 0,
                                 .cost = (float)entry->cost};
    if (n != 0 || entry->n_tags != 0 || p->head.model != 0 || entry->cost > 0) {
        for (uint32_t i = 0; i < entry->n_tags; i++)
            p->tags[i] = cache_tag_hash(entry->tags[i]);
        memcpy(p->blob, &p->head, sizeof p->head);
        memcpy(p->blob + sizeof p->head, p->tags, sizeof *p->tags * entry->n_tags);
        memcpy(p->blob + sizeof p->head + sizeof *p->tags * entry->n_tags, scratch->features, n);
        p->n_blob = blob_bytes(&p->head);
    }
    rc = graph_add(cache->graph, scratch->code, p->f, p->norm2, &p->graph_row);
    if (rc < 0)
        return error_set(err, rc, "no memory for another entry of %u dimensions", cache->config.dim);
    p->has_graph_row = true;
    return 0;
}

/* ---- admitting --------------------------------------------------------------------------------------------------- */

/* The living entry of the same hash; UINT32_MAX: none. (lock) */
static uint32_t same_hash(const struct put *p)
{
    const struct group *group = group_find(p->cache, &p->scratch->key);
    return group && p->exact.high ? cache_entry_find_exact(p->cache, group, p->exact) : UINT32_MAX;
}

/* What a lease that is over, or was overtaken, means for its answer. (lock) */
static bool is_outdated(const struct put *p)
{
    const struct quire_cache_entry *entry = p->entry;
    if (p->lease == LEASE_UNKNOWN)
        return false; /* none was given */
    struct put_facts facts = {.category = p->number,
                              .key = &p->scratch->key,
                              .exact = p->exact,
                              .tags = p->tags,
                              .n_tags = entry->n_tags,
                              .model = p->head.model,
                              .vector = entry->vector ? p->scratch->floats : NULL};
    if (cache_invalidated_since(p->cache, p->lease_epoch, &facts))
        return true;
    uint32_t row = p->lease == LEASE_DEAD ? same_hash(p) : UINT32_MAX;
    return row != UINT32_MAX && cache_entry_created(cache_entry_at(p->cache, row)) + BASE_MS >= p->lease_ms;
}

/* Whether it may be stored at all; sets the outcome where not. (lock) */
static bool may_store(struct put *p)
{
    struct cache *cache = p->cache;
    struct category *cat = p->category;
    enum quire_cache_put_outcome *outcome = &p->result->outcome;
    uint32_t row = same_hash(p);
    uint64_t seen = p->scratch->key.hash ^ (p->exact.high ? p->exact.low : 0);
    if (cat->settings.mode == CATEGORY_OFF) {
        *outcome = QUIRE_CACHE_OFF;
    } else if (cat->dropped || is_outdated(p)) { /* dropped: since it was looked up */
        *outcome = QUIRE_CACHE_OUTDATED;
        cat->counters.outdated++;
    } else if (p->entry->if_new && row != UINT32_MAX && (cache_entry_word(cache, row) & EXPIRE_NEVER) > p->now) {
        *outcome = QUIRE_CACHE_EXISTS;
        p->result->id = cache_entry_id(cache_entry_at(cache, row), row);
    } else if (cat->settings.admit == ADMIT_SECOND && !p->entry->pin && p->exact.high && row == UINT32_MAX &&
               !sketch_seen(&cache->sketch, seen)) {
        sketch_add(&cache->sketch, seen);
        *outcome = QUIRE_CACHE_NOT_ADMITTED;
        cat->counters.not_admitted++;
    } else {
        return true;
    }
    return false;
}

/* The end of its TTL, with jitter and load in it. (lock) */
static uint64_t draw_expiry(struct put *p)
{
    struct cache *cache = p->cache;
    const struct category_settings *s = &p->category->settings;
    if (p->entry->pin)
        return EXPIRE_NEVER;
    double lam = load_lam(&cache->load, p->entry->model, p->now);
    uint64_t ttl = load_ttl(s, p->entry->ttl_ms ? p->entry->ttl_ms : s->ttl_ms, lam);
    if (s->ttl_max_ms && ttl > s->ttl_max_ms)
        ttl = s->ttl_max_ms;
    double less = cache_draw(cache) * s->jitter_pct / 100;
    ttl -= (uint64_t)((double)ttl * less);
    return ttl < EXPIRE_NEVER && p->now + ttl < EXPIRE_NEVER ? p->now + ttl : EXPIRE_NEVER - 1;
}

enum { REFUSED, ADMITTED };

/* REFUSED: it is not stored, the result says why; ADMITTED; or an error. (lock) */
static int admit(struct put *p, struct quire_error *err)
{
    struct cache *cache = p->cache;
    struct group_key *key = &p->scratch->key;
    assert(lock_is_held(&cache->lock) && p->has_graph_row && !p->has_row && !p->group);
    int rc = cache_may_change(cache, err);
    if (rc == 0)
        rc = cache_category_number(cache, p->entry->category, &p->number, err);
    if (rc < 0)
        return rc;
    p->category = cache_category_at(cache, p->number);
    p->category->counters.puts++;
    if (!p->entry->vector && p->category->settings.mode != CATEGORY_EXACT)
        return error_set(err, QUIRE_EINVALID, "VEC is missing: only categories of MODE exact take entries without");
    rc = group_key_make(cache, &p->category->settings, p->entry->scope, p->entry->n_scope, key, err);
    if (rc < 0)
        return rc;
    group_key_finish(key, p->number, p->compat);
    p->now = cache_now(cache);
    if (!may_store(p))
        return REFUSED;
    if (cache_entry_take(cache, p->graph_row, &p->row) < 0)
        return error_set(err, QUIRE_ENOMEM, "no memory for another entry");
    p->has_row = true;
    p->group = group_find(cache, key);
    if (!p->group)
        p->group = group_make(cache, key, UINT32_MAX);
    if (!p->group)
        return error_set(err, QUIRE_ENOMEM, "no memory for another scope");
    p->group->pending++;
    p->linked = p->entry->vector && (cache_group_linked(p->group) > 0 || p->group->linking);
    /* A number comes with a later created time than it had before, however often it is given out within a millisecond:
     * so the id is one that nobody can have. */
    const struct cache_entry *e = cache_entry_at(p->cache, p->row);
    uint32_t ahead = e->created_low - (uint32_t)p->now;
    p->created = p->now + (ahead < CREATED_AHEAD_MAX ? ahead + 1 : 0);
    p->expire = draw_expiry(p);
    return ADMITTED;
}

/* ---- publishing -------------------------------------------------------------------------------------------------- */

/* Gives up entries until there is space. False: nobody can give any. (lock) */
static int make_capacity(struct put *p, bool *fits, struct quire_error *err)
{
    struct cache *cache = p->cache;
    for (;;) {
        enum quota_cause cause;
        cache_refresh_quota(cache);
        uint32_t victim =
            quota_victim(&cache->quota, cache->quotas, cache->n_categories, p->number, p->at.bytes, &cause, fits);
        if (victim == QUOTA_NONE)
            return 0;
        struct category *cat = cache_category_at(cache, victim);
        uint32_t row = evict_victim(&cat->order);
        if (row == EVICT_NONE) {
            cache->quotas[victim].empty_handed = true;
            continue;
        }
        assert(cache->groups[cache_entry_at(cache, row)->group]->category == victim);
        int rc = cache_log_gone(cache, &row, 1, &p->result->lsn, err);
        if (rc < 0)
            return rc;
        cat->counters.evicted_own += cause == QUOTA_OWN;
        cat->counters.evicted_cache += cause == QUOTA_CACHE;
        evict_taken(&cat->order, row);
        cache_entry_die(cache, row);
        p->result->evicted++;
    }
}

static int remove_row(struct put *p, uint32_t row, struct quire_error *err)
{
    int rc = cache_log_gone(p->cache, &row, 1, &p->result->lsn, err);
    if (rc < 0)
        return rc;
    cache_category_at(p->cache, p->cache->groups[cache_entry_at(p->cache, row)->group]->category)->counters.replaced++;
    p->replaces = true;
    cache_entry_die(p->cache, row);
    return 0;
}

/* Everything that can fail, then the log, then the entry. (lock) */
static int publish(struct put *p, struct quire_error *err)
{
    struct cache *cache = p->cache;
    struct cache_entry entry;
    uint32_t blob = 0;
    assert(lock_is_held(&cache->lock) && p->has_row && p->has_graph_row && p->has_document && p->group->pending > 0);
    assert(cache_entry_word(cache, p->row) == ENTRY_TAKEN);
    if (!p->linked && p->entry->vector && group_reserve(cache, p->group) < 0)
        return error_set(err, QUIRE_ENOMEM, "no memory for another entry of its scope");
    if (p->n_blob && !(blob = blob_take(&cache->blobs, p->n_blob)))
        return error_set(err, QUIRE_ENOMEM, "no memory for tags and features");
    if (blob)
        memcpy(stable_array_at(&cache->blobs.cells, blob), p->blob, p->n_blob);
    uint64_t word = p->expire | (p->entry->vector ? ENTRY_VECTOR : 0) | (p->exact.high ? ENTRY_EXACT : 0) |
                    (p->entry->text.n_bytes ? ENTRY_TEXT : 0) | (p->entry->pin ? ENTRY_PINNED : 0);
    cache_entry_init(&entry, word, p->exact, p->group, p->created, &p->at);
    int rc = cache_log_put(cache,
                           &(struct logged_put){.row = p->row,
                                                .graph_row = p->graph_row,
                                                .entry = &entry,
                                                .group = p->group,
                                                .code = p->scratch->code,
                                                .f = p->f,
                                                .norm2 = p->norm2,
                                                .blob = p->blob,
                                                .n_blob = p->n_blob,
                                                .exact = p->exact,
                                                .document = &p->document,
                                                .document_bytes = p->at.bytes},
                           &p->result->lsn, err);
    if (rc < 0) {
        blob_give(&cache->blobs, blob);
        return rc;
    }
    entry.blob = blob;
    cache_entry_live(cache, p->row, &entry);
    cache_entry_join(cache, p->row, p->group, p->linked);
    p->result->outcome = p->replaces ? QUIRE_CACHE_REPLACED : QUIRE_CACHE_STORED;
    p->result->id = cache_entry_id(&entry, p->row);
    p->result->expire_ms = p->expire == EXPIRE_NEVER ? UINT64_MAX : p->expire + BASE_MS;
    p->category->counters.stored++;
    negatives_remove(&cache->negatives, p->group->key, p->exact);
    cache->arrivals[p->group->key & 255]++;
    p->has_row = p->has_graph_row = p->has_document = false; /* the entry's now */
    return 0;
}

/* (lock) */
static int try_publish(struct put *p, struct quire_error *err)
{
    struct cache *cache = p->cache;
    bool fits = false;
    int rc = cache_may_change(cache, err);
    if (rc < 0 || !may_store(p))
        return rc;
    /* What this answer replaces goes first, so that nothing else is given up for its space: the entry of the same hash,
     * and the stale one that its lease is to renew, which may have been put in other words. Also where the new one
     * does not fit then: the old one is not the answer any more. */
    uint32_t old = same_hash(p);
    rc = old == UINT32_MAX ? 0 : remove_row(p, old, err);
    uint64_t renewed = p->lease == LEASE_VALID ? lease_refreshes(cache->leases, p->entry->lease) : 0;
    old = renewed ? cache_entry_find(cache, renewed) : UINT32_MAX;
    if (rc == 0 && old != UINT32_MAX && (cache_entry_word(cache, old) & EXPIRE_NEVER) <= p->now)
        rc = remove_row(p, old, err);
    if (rc == 0)
        rc = make_capacity(p, &fits, err);
    if (rc < 0)
        return rc;
    if (fits)
        return publish(p, err);
    p->category->counters.no_room++;
    p->result->outcome = QUIRE_CACHE_NO_ROOM;
    return 0;
}

static int put(struct put *p, struct quire_error *err)
{
    struct cache *cache = p->cache;
    int rc = prepare(p, err);
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&cache->lock);
    rc = admit(p, err);
    pthread_mutex_unlock(&cache->lock);
    if (rc != ADMITTED)
        return rc;
    if (p->linked && graph_link(cache->graph, &p->group->root, p->scratch->graph, p->graph_row) < 0)
        return error_set(err, QUIRE_ENOMEM, "no memory to link another entry");
    const struct quire_cache_entry *entry = p->entry;
    struct quire_pair pairs[CACHE_SCOPE_KEYS_MAX];
    uint32_t n_pairs = 0, at = 0;
    while (n_pairs < CACHE_SCOPE_KEYS_MAX &&
           group_scope_pair(p->scratch->key.scope, p->scratch->key.n_scope, &at, &pairs[n_pairs]))
        n_pairs++;
    struct document document = {.id = (p->created & UINT32_MAX) << ID_SHIFT | p->row,
                                .created_ms = p->created + BASE_MS,
                                .expire_ms = p->expire == EXPIRE_NEVER ? UINT64_MAX : p->expire + BASE_MS,
                                .exact = p->exact,
                                .compat = p->compat,
                                .category = p->category->name,
                                .text = entry->text,
                                .model = entry->model,
                                .scope = pairs,
                                .n_scope = n_pairs,
                                .tags = entry->tags,
                                .n_tags = entry->n_tags,
                                .chunks = entry->chunks,
                                .n_chunks = entry->n_chunks,
                                .tokens_in = entry->tokens_in,
                                .tokens_out = entry->tokens_out,
                                .llm_ms = entry->llm_ms,
                                .cost = (float)entry->cost};
    size_t n = document_bytes(&document);
    if (n == 0 || n / DOCUMENT_UNIT > UINT16_MAX)
        return error_set(err, QUIRE_ELIMIT, "an answer with what belongs to it may have at most %u bytes",
                         DOCUMENT_BYTES_MAX - DOCUMENT_UNIT);
    p->document = malloc(n);
    if (!p->document)
        return error_set(err, QUIRE_ENOMEM, "no memory for an answer of %zu bytes", n);
    document_encode(&document, p->document);
    rc = document_log_append(p->cache->documents, p->document, (uint32_t)n, document.expire_ms, &p->at, err);
    p->has_document = rc == 0;
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&cache->lock);
    rc = try_publish(p, err);
    pthread_mutex_unlock(&cache->lock);
    return rc;
}

static int look_at_lease(struct put *p, struct quire_error *err)
{
    struct quire_bytes token = p->entry->lease;
    p->lease = LEASE_UNKNOWN;
    if (token.n_bytes == 0)
        return 0;
    p->lease = lease_look(p->cache->leases, token, cache_steady_ms(p->cache), &p->lease_epoch, &p->lease_ms);
    /* A crash may have taken the last epochs with it: a lease from before knows none beyond those that are left. */
    if (p->lease == LEASE_DEAD && p->lease_ms < p->cache->opened_ms && p->lease_epoch > p->cache->opened_epoch)
        p->lease_epoch = p->cache->opened_epoch;
    return p->lease != LEASE_UNKNOWN ? 0
                                     : error_set(err, QUIRE_EINVALID,
                                                 "this lease was not given by this cache; leave LEASE out to store "
                                                 "without one");
}

int cache_put(struct cache *cache, struct cache_scratch *scratch, const struct quire_cache_entry *entry,
              struct quire_cache_put_result *result, struct quire_error *err)
{
    uint64_t begun = clock_us();
    struct put p = {.cache = cache, .scratch = scratch, .entry = entry, .result = result};
    memset(result, 0, sizeof *result);
    if (atomic_load_explicit(&cache->closed, memory_order_acquire))
        return error_set(err, QUIRE_ECLOSED, "the cache was dropped or closed");
    int rc = look_at_lease(&p, err);
    if (rc < 0)
        return rc;
    unsigned slot = epoch_enter(cache->of->epochs);
    rc = put(&p, err);
    free(p.document);
    if (p.has_document)
        document_log_drop(cache->documents, &p.at);
    if (p.has_row) { /* first: the graph may give its row to someone else at once */
        pthread_mutex_lock(&cache->lock);
        cache_entry_give(cache, p.row);
        pthread_mutex_unlock(&cache->lock);
    }
    if (p.has_graph_row && p.linked)
        graph_remove(cache->graph, &p.group->root, scratch->graph, p.graph_row);
    else if (p.has_graph_row)
        graph_discard(cache->graph, p.graph_row);
    if (p.group) {
        pthread_mutex_lock(&cache->lock);
        assert(p.group->pending > 0);
        p.group->pending--;
        group_release(cache, p.group);
        pthread_mutex_unlock(&cache->lock);
    }
    epoch_exit(cache->of->epochs, slot);
    if (p.lease == LEASE_VALID && rc == 0)
        result->woken = lease_done(cache->leases, entry->lease);
    if (rc == 0 && p.exact.high && result->outcome <= QUIRE_CACHE_EXISTS)
        result->woken += lease_done_exact(cache->leases, scratch->key.hash, p.exact);
    cache_reclaim(cache, scratch, 1 + result->evicted);
    if (p.category) {
        pthread_mutex_lock(&cache->lock);
        histogram_add(&p.category->put_us, clock_us() - begun);
        pthread_mutex_unlock(&cache->lock);
    }
    return rc;
}

/* ---- answers that are none --------------------------------------------------------------------------------------- */

int cache_negative(struct cache *cache, const struct quire_cache_query *query, uint64_t ttl_ms,
                   struct quire_bytes lease, struct quire_error *err)
{
    struct group_key key;
    uint32_t number;
    struct hash128 exact = cache_hash_of(query->hash.n_bytes ? query->hash : query->text);
    if (!exact.high)
        return error_set(err, QUIRE_EINVALID, "a negative entry needs HASH or TEXT: that is how it is found");
    pthread_mutex_lock(&cache->lock);
    int rc = cache_category_number(cache, query->category, &number, err);
    if (rc == 0)
        rc =
            group_key_make(cache, &cache_category_at(cache, number)->settings, query->scope, query->n_scope, &key, err);
    if (rc == 0) {
        group_key_finish(&key, number, cache_hash_of(query->compat));
        ttl_ms = ttl_ms ? ttl_ms : 60000;
        negatives_add(&cache->negatives, key.hash, exact,
                      cache_now(cache) + (ttl_ms < EXPIRE_NEVER ? ttl_ms : EXPIRE_NEVER));
    }
    pthread_mutex_unlock(&cache->lock);
    if (rc == 0 && lease.n_bytes)
        lease_done(cache->leases, lease);
    if (rc == 0)
        lease_done_exact(cache->leases, key.hash, exact);
    return rc;
}

int cache_fail(struct cache *cache, struct quire_bytes lease, struct quire_error *err)
{
    bool led;
    enum lease_state state = lease_fail(cache->leases, lease, cache_steady_ms(cache), &led);
    return state == LEASE_VALID
               ? 0
               : error_set(err, QUIRE_ENOTFOUND, "%s", state == LEASE_DEAD ? "the lease is over" : "no such lease");
}

int cache_renew(struct cache *cache, struct quire_bytes lease, uint64_t ms, uint64_t *left_ms, struct quire_error *err)
{
    enum lease_state state = lease_renew(cache->leases, lease, cache_steady_ms(cache), ms, left_ms);
    if (state == LEASE_VALID)
        return 0;
    return error_set(err, QUIRE_ENOTFOUND, "%s",
                     state == LEASE_DEAD ? "the lease is over (answered, failed, or past its deadline): ask for the "
                                           "question again, and get another or the answer"
                                         : "no such lease: give the token that a lookup of this cache has returned");
}
