/*
 * cache_remove.c - entries that go: eviction, expiry, invalidation, and why what was invalidated does not come back.
 *
 * An entry dies under the lock and joins the dead rows, a chain through the entries themselves, so that dying needs no
 * memory. Its row is taken out of the graph later, by who put something or by the thread.
 *
 * An invalidation raises the epoch, which is logged, and remembers what it selected. A lease carries the epoch at which
 * it was granted; an answer that comes with it is dropped if something invalidated since then would have hit it. Of
 * invalidations the last INVALIDATIONS_MAX are remembered: an older lease brings nothing back at all.
 */
#include "cache/core/sealed.h"
#include "cache/guard/text.h"
#include "io/error.h"
#include "io/lock.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    SCAN_BATCH = 2048,  /* rows that are looked at under the lock at a time */
    EXPIRE_BATCH = 1024 /* that go in one record */
};

/* ---- joining and dying ------------------------------------------------------------------------------------------- */

void cache_entry_join(struct cache *cache, uint32_t row, struct group *group, bool linked)
{
    struct cache_entry *e = cache_entry_at(cache, row);
    struct category *cat = cache_category_at(cache, group->category);
    uint64_t word = cache_entry_word(cache, row);
    assert((word & ENTRY_LIVE) && !(word & (ENTRY_LISTED | ENTRY_TAKEN)));
    assert(e->links.level == EVICT_UNLISTED && e->group == group->number);
    if (word & ENTRY_EXACT)
        cache_entry_link_exact(cache, row);
    if (!linked && (word & ENTRY_VECTOR))
        group_list(cache, group, row);
    group->n++;
    group->scope->entries++;
    cache->quota.used.entries++;
    cache->quota.used.bytes += cache_entry_document(e).bytes;
    cache->quotas[group->category].used.entries++;
    cache->quotas[group->category].used.bytes += cache_entry_document(e).bytes;
    if (word & ENTRY_PINNED) {
        cat->pinned++;
    } else {
        evict_add(&cat->order, row, cache_entry_saved(cache, e));
        cache->quotas[group->category].empty_handed = false;
    }
}

void cache_entry_die(struct cache *cache, uint32_t row)
{
    struct cache_entry *e = cache_entry_at(cache, row);
    struct group *group = cache->groups[e->group];
    struct category *cat = cache_category_at(cache, group->category);
    struct document_at at = cache_entry_document(e);
    uint64_t word = cache_entry_word(cache, row);
    assert((word & ENTRY_LIVE) && group && group->n > 0 && group->scope->entries > 0);
    assert(cache->quota.used.entries > 0 && cache->quota.used.bytes >= at.bytes);
    assert(cache->quotas[group->category].used.entries > 0 && cache->quotas[group->category].used.bytes >= at.bytes);
    assert(((word & ENTRY_PINNED) != 0) == (e->links.level == EVICT_UNLISTED));
    if (word & ENTRY_EXACT)
        cache_entry_unlink_exact(cache, row);
    group_unlist(cache, group, row);
    evict_remove(&cat->order, row);
    cat->pinned -= (word & ENTRY_PINNED) != 0;
    group->n--;
    group->scope->entries--;
    cache->quota.used.entries--;
    cache->quota.used.bytes -= at.bytes;
    cache->quotas[group->category].used.entries--;
    cache->quotas[group->category].used.bytes -= at.bytes;
    sealed_kill(cache, row);
    blob_give(&cache->blobs, e->blob);
    e->blob = 0;
    if (at.segment && cache->documents)
        document_log_drop(cache->documents, &at);
    atomic_store_explicit(&e->word, ENTRY_TAKEN, memory_order_release);
    e->chain = cache->dead_rows;
    cache->dead_rows = row + 1;
    cache->n_dead_rows++;
    group->pending++; /* until it is reclaimed */
}

uint32_t cache_reclaim(struct cache *cache, struct cache_scratch *scratch, uint32_t most)
{
    uint32_t n = 0;
    for (; n < most; n++) {
        unsigned slot = epoch_enter(cache->of->epochs);
        pthread_mutex_lock(&cache->lock);
        uint32_t row = cache->dead_rows - 1, graph_row = 0;
        bool sealed = false;
        struct group *group = NULL;
        if (cache->dead_rows) {
            sealed = sealed_holds(cache, row);
            graph_row = sealed_graph_row(cache, row);
            group = cache->groups[cache_entry_at(cache, row)->group];
            cache->dead_rows = cache_entry_at(cache, row)->chain;
            assert(cache->n_dead_rows > 0 && group && group->pending > 0);
            assert(cache_entry_word(cache, row) == ENTRY_TAKEN);
            cache->n_dead_rows--;
        }
        pthread_mutex_unlock(&cache->lock);
        if (group) {
            if (!sealed)
                graph_remove(cache->graph, &group->root, scratch->graph, graph_row);
            pthread_mutex_lock(&cache->lock);
            cache_entry_give(cache, row);
            group->pending--;
            group_release(cache, group);
            pthread_mutex_unlock(&cache->lock);
        }
        epoch_exit(cache->of->epochs, slot);
        if (!group)
            break;
    }
    return n;
}

/* ---- expiry ------------------------------------------------------------------------------------------------------ */

static bool has_expired(const struct cache *cache, uint32_t row, uint64_t now)
{
    uint64_t word = cache_entry_word(cache, row), expire = word & EXPIRE_NEVER;
    if (!(word & ENTRY_LIVE) || expire == EXPIRE_NEVER || expire > now)
        return false;
    const struct group *group = cache->groups[cache_entry_at(cache, row)->group];
    return expire + category_kept_ms(&cache_category_at(cache, group->category)->settings) <= now;
}

/* It is logged although an entry's own record says when it ends: what was removed must stay so after a restart where
 * the clock was set back or STALE was raised, since it may have been invalidated in the meantime, and its group's
 * number given to another scope. What cannot be logged now is tried again; it does not answer anyway. */
uint32_t cache_expire(struct cache *cache, uint32_t rows)
{
    uint32_t gone[EXPIRE_BATCH], n = 0;
    uint64_t lsn;
    pthread_mutex_lock(&cache->lock);
    uint64_t now = cache_now(cache);
    /* of a follower its leader says when one goes */
    for (uint32_t i = 0; i < rows && i < cache->n_rows && n < EXPIRE_BATCH && !cache->follows; i++) {
        if (cache->sweep >= cache->n_rows)
            cache->sweep = 0;
        uint32_t row = cache->sweep++;
        if (has_expired(cache, row, now))
            gone[n++] = row;
    }
    if (n && cache_log_gone(cache, gone, n, &lsn, NULL) < 0)
        n = 0;
    for (uint32_t i = 0; i < n; i++) {
        cache_category_at(cache, cache->groups[cache_entry_at(cache, gone[i])->group]->category)->counters.expired++;
        cache_entry_die(cache, gone[i]);
    }
    pthread_mutex_unlock(&cache->lock);
    return n;
}

int cache_log_dead_rows(struct cache *cache, struct quire_error *err)
{
    uint32_t gone[EXPIRE_BATCH], n = 0;
    uint64_t lsn;
    int rc = 0;
    for (uint32_t at = cache->dead_rows; at && rc == 0; at = cache_entry_at(cache, at - 1)->chain) {
        gone[n++] = at - 1;
        if (n < EXPIRE_BATCH)
            continue;
        rc = cache_log_gone(cache, gone, n, &lsn, err);
        n = 0;
    }
    return rc == 0 && n ? cache_log_gone(cache, gone, n, &lsn, err) : rc;
}

/* ---- what an invalidation selects -------------------------------------------------------------------------------- */

struct selection {
    struct cache *cache;
    struct cache_scratch *scratch;
    const struct quire_cache_selector *selector;
    struct invalidation made; /* what is remembered of it */
    uint64_t created_before;  /* BY_BEFORE: ms since BASE_MS */
    struct quire_pair pair;   /* BY_SCOPE */
    bool everything;          /* BY_ALL, BY_ENCODER of this cache's */
    bool single;              /* SC.DEL: counted as removed */
};

static uint64_t pair_hash(const struct quire_pair *pair)
{
    return random_mix(cache_tag_hash(pair->key)) ^ cache_tag_hash(pair->value);
}

static bool scope_has(const struct scope *scope, const struct quire_pair *wanted)
{
    struct quire_pair pair;
    for (uint32_t at = 0; group_scope_pair(scope->bytes, scope->n_bytes, &at, &pair);)
        if (text_equal(pair.key, wanted->key) && text_equal(pair.value, wanted->value))
            return true;
    return false;
}

/* Of all tags that are named, not only of those that are remembered. */
static bool has_named_tag(const struct selection *s, const struct blob_head *head)
{
    for (uint32_t i = 0; i < s->selector->n && head->n_tags; i++) {
        uint64_t hash = cache_tag_hash(s->selector->names[i]);
        for (uint32_t t = 0; t < head->n_tags; t++)
            if (memcmp(&blob_tags(head)[t], &hash, sizeof hash) == 0)
                return true;
    }
    return false;
}

/* (lock; inside an epoch) */
static bool is_selected(const struct selection *s, uint32_t row)
{
    const struct cache *cache = s->cache;
    const struct cache_entry *e = cache_entry_at(cache, row);
    if (!(cache_entry_word(cache, row) & ENTRY_LIVE))
        return false;
    const struct group *group = cache->groups[e->group];
    const struct blob_head *head = blob_head(&cache->blobs, e->blob);
    uint32_t graph_row;
    float distance;
    switch (s->selector->by) {
    case QUIRE_CACHE_BY_TAG:
        return has_named_tag(s, head);
    case QUIRE_CACHE_BY_CATEGORY:
        return group->category == s->made.category;
    case QUIRE_CACHE_BY_SCOPE:
        return scope_has(group->scope, &s->pair);
    case QUIRE_CACHE_BY_MODEL:
        return head->model && head->model == (uint32_t)s->made.hashes[0];
    case QUIRE_CACHE_BY_BEFORE:
        return cache_entry_created(e) < s->created_before;
    case QUIRE_CACHE_BY_NEAR:
        if (!(cache_entry_word(cache, row) & ENTRY_VECTOR) || sealed_holds(cache, row)) /* sealed_near finds it */
            return false;
        graph_row = sealed_graph_row(cache, row);
        graph_score(cache->graph, s->scratch->graph, &graph_row, 1, &distance);
        return (double)cache_similarity_of(distance) >= s->selector->similarity;
    case QUIRE_CACHE_BY_ID:
        return false; /* looked up, not searched for */
    case QUIRE_CACHE_BY_ENCODER:
    case QUIRE_CACHE_BY_ALL:
        break;
    }
    return s->everything;
}

static int set_near(struct selection *s, struct quire_error *err)
{
    struct cache *cache = s->cache;
    if (!(s->selector->similarity > 0 && s->selector->similarity <= 1))
        return error_set(err, QUIRE_ERANGE, "similarity %g; it must be above 0 and at most 1 (a cosine)",
                         s->selector->similarity);
    int rc = cache_scratch_fit(s->scratch, cache, err);
    if (rc == 0)
        rc = cache_vector(cache, s->scratch, s->selector->vector, err);
    if (rc < 0)
        return rc;
    s->made.vector = malloc(sizeof(float) * cache->config.dim);
    if (!s->made.vector ||
        graph_query(cache->graph, s->scratch->graph, s->scratch->floats + s->scratch->floats_capacity) < 0)
        return error_set(err, QUIRE_ENOMEM, "no memory for a vector");
    memcpy(s->made.vector, s->scratch->floats, sizeof(float) * cache->config.dim);
    s->made.similarity = s->selector->similarity;
    return 0;
}

/* What is remembered of a selector. */
static int selection_set(struct selection *s, struct quire_error *err)
{
    const struct quire_cache_selector *selector = s->selector;
    uint64_t now = cache_now(s->cache);
    uint32_t least = selector->by == QUIRE_CACHE_BY_SCOPE ? 2 : 1;
    if (selector->by < QUIRE_CACHE_BY_ID || selector->by > QUIRE_CACHE_BY_ALL)
        return error_set(err, QUIRE_EINVALID, "an invalidation needs a selector; ALL is the word for everything");
    if (selector->by == QUIRE_CACHE_BY_ID && (selector->n == 0 || !selector->ids))
        return error_set(err, QUIRE_EINVALID, "no id is given: nothing is invalidated");
    if (selector->by == QUIRE_CACHE_BY_NEAR && !selector->vector)
        return error_set(err, QUIRE_EINVALID, "no vector is given: nothing is invalidated");
    if (selector->by == QUIRE_CACHE_BY_BEFORE && selector->age_ms == 0)
        return error_set(err, QUIRE_EINVALID, "an age of 0 selects everything; ALL is the word for it");
    bool named = selector->by != QUIRE_CACHE_BY_ID && selector->by != QUIRE_CACHE_BY_NEAR &&
                 selector->by != QUIRE_CACHE_BY_BEFORE && selector->by != QUIRE_CACHE_BY_ALL;
    if (named && (selector->n < least || !selector->names))
        return error_set(err, QUIRE_EINVALID, "%u names are given, %u are needed: nothing is invalidated", selector->n,
                         least);
    for (uint32_t i = 0; named && i < selector->n; i++)
        if (selector->names[i].n_bytes == 0)
            return error_set(err, QUIRE_EINVALID, "an empty name selects nothing; ALL is the word for everything");
    int rc = 0;
    s->made.by = selector->by;
    switch (selector->by) {
    case QUIRE_CACHE_BY_TAG:
        s->made.n = selector->n;
        for (uint32_t i = 0; i < selector->n && i < INVALIDATION_HASHES; i++)
            s->made.hashes[i] = cache_tag_hash(selector->names[i]);
        break;
    case QUIRE_CACHE_BY_CATEGORY:
        /* By its own name: a misspelt one must not empty "*". */
        pthread_mutex_lock(&s->cache->lock);
        rc = cache_category_find(s->cache, s->selector->names[0], &s->made.category, err);
        pthread_mutex_unlock(&s->cache->lock);
        return rc;
    case QUIRE_CACHE_BY_SCOPE:
        s->pair = (struct quire_pair){selector->names[0], selector->names[1]};
        s->made.n = 1;
        s->made.hashes[0] = pair_hash(&s->pair);
        break;
    case QUIRE_CACHE_BY_MODEL:
        s->made.n = 1;
        s->made.hashes[0] = (uint32_t)cache_tag_hash(selector->names[0]) | 1;
        break;
    case QUIRE_CACHE_BY_ENCODER:
        s->everything = text_equal(s->cache->config.encoder, selector->names[0]);
        break;
    case QUIRE_CACHE_BY_NEAR:
        return set_near(s, err);
    case QUIRE_CACHE_BY_BEFORE:
        s->created_before = now > selector->age_ms ? now - selector->age_ms : 0;
        break;
    case QUIRE_CACHE_BY_ALL:
        s->everything = true;
        break;
    case QUIRE_CACHE_BY_ID:
        break;
    }
    return 0;
}

/* ---- whether an answer was invalidated --------------------------------------------------------------------------- */

static double cosine(const float *a, const float *b, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

static bool hits_scope(const struct invalidation *i, const struct group_key *key)
{
    struct quire_pair pair;
    for (uint32_t at = 0; group_scope_pair(key->scope, key->n_scope, &at, &pair);)
        if (pair_hash(&pair) == i->hashes[0])
            return true;
    return false;
}

static bool would_hit(const struct cache *cache, const struct invalidation *i, const struct put_facts *facts)
{
    uint64_t question = facts->key->hash ^ facts->exact.low; /* without a hash: its group's */
    if (i->n > INVALIDATION_HASHES)
        return true;
    switch (i->by) {
    case QUIRE_CACHE_BY_ID:
        for (uint32_t k = 0; k < i->n; k++)
            if (i->hashes[k] == (question & ((UINT64_C(1) << 40) - 1)))
                return true;
        return false;
    case QUIRE_CACHE_BY_TAG:
        for (uint32_t k = 0; k < i->n; k++)
            for (uint32_t t = 0; t < facts->n_tags; t++)
                if (i->hashes[k] == facts->tags[t])
                    return true;
        return false;
    case QUIRE_CACHE_BY_CATEGORY:
        return i->category == facts->category;
    case QUIRE_CACHE_BY_SCOPE:
        return hits_scope(i, facts->key);
    case QUIRE_CACHE_BY_MODEL:
        return facts->model && facts->model == (uint32_t)i->hashes[0];
    case QUIRE_CACHE_BY_NEAR:
        return facts->vector && i->vector && cosine(facts->vector, i->vector, cache->config.dim) >= i->similarity;
    case QUIRE_CACHE_BY_BEFORE:
    case QUIRE_CACHE_BY_ENCODER:
    case QUIRE_CACHE_BY_ALL:
        break;
    }
    return true;
}

bool cache_invalidated_since(const struct cache *cache, uint64_t epoch, const struct put_facts *facts)
{
    assert(lock_is_held(&cache->lock));
    if (epoch >= cache->epoch)
        return false;
    if (epoch + INVALIDATIONS_MAX < cache->epoch)
        return true;
    for (uint64_t e = epoch + 1; e <= cache->epoch; e++) {
        const struct invalidation *i = &cache->invalidations[e % INVALIDATIONS_MAX];
        if (i->epoch != e || would_hit(cache, i, facts)) /* one that is not known: as if it hit */
            return true;
    }
    return false;
}

void cache_invalidation_push(struct cache *cache, const struct invalidation *invalidation)
{
    struct invalidation *place = &cache->invalidations[invalidation->epoch % INVALIDATIONS_MAX];
    assert(invalidation->epoch > 0);
    free(place->vector);
    *place = *invalidation;
    if (invalidation->epoch > cache->epoch)
        cache->epoch = invalidation->epoch;
}

/* ---- invalidating ------------------------------------------------------------------------------------------------ */

/* Logs that these were invalidated, and makes it so. (lock) */
static int remove_rows(struct cache *cache, const uint32_t *rows, uint32_t n, uint64_t *lsn, struct quire_error *err)
{
    assert(n > 0 && n <= SCAN_BATCH && lock_is_held(&cache->lock));
    int rc = cache_may_change(cache, err);
    if (rc == 0)
        rc = cache_log_gone(cache, rows, n, lsn, err);
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        cache_category_at(cache, cache->groups[cache_entry_at(cache, rows[i])->group]->category)
            ->counters.invalidated++;
        cache_entry_die(cache, rows[i]);
    }
    return rc;
}

/* Looks at all rows, a batch at a time; those selected die unless it is a dry run. (takes the lock) */
static int scan_all(const struct selection *s, bool dry_run, uint64_t *n, uint64_t *lsn, struct quire_error *err)
{
    struct cache *cache = s->cache;
    int rc = 0;
    bool end = false;
    for (uint32_t first = 0; rc == 0 && !end; first += SCAN_BATCH) {
        uint32_t rows[SCAN_BATCH], n_rows = 0;
        unsigned slot = epoch_enter(cache->of->epochs);
        pthread_mutex_lock(&cache->lock);
        assert(first <= cache->n_rows);
        uint32_t last = cache->n_rows - first < SCAN_BATCH ? cache->n_rows : first + SCAN_BATCH;
        for (uint32_t row = first; row < last; row++)
            if (is_selected(s, row))
                rows[n_rows++] = row;
        end = last == cache->n_rows;
        rc = n_rows && !dry_run ? remove_rows(cache, rows, n_rows, lsn, err) : 0;
        pthread_mutex_unlock(&cache->lock);
        epoch_exit(cache->of->epochs, slot);
        *n += rc == 0 ? n_rows : 0;
    }
    return rc;
}

/* Vectors in memory, then those on the disk, whose segments are read without the lock and give ids; none goes from one
 * to the other meanwhile. */
static int scan_near(const struct selection *s, bool dry_run, uint64_t *n, uint64_t *lsn, struct quire_error *err)
{
    struct cache *cache = s->cache;
    uint64_t *ids = NULL;
    size_t n_ids = 0;
    pthread_mutex_lock(&cache->lock);
    cache->near_scans++;
    pthread_mutex_unlock(&cache->lock);
    int rc = scan_all(s, dry_run, n, lsn, err);
    if (rc == 0)
        rc = sealed_near(cache, s->scratch->floats, s->selector->similarity, &ids, &n_ids, err);
    for (size_t first = 0; rc == 0 && first < n_ids; first += SCAN_BATCH) {
        size_t some = n_ids - first < SCAN_BATCH ? n_ids - first : SCAN_BATCH;
        uint32_t rows[SCAN_BATCH], n_rows = 0; /* those of them that still live */
        pthread_mutex_lock(&cache->lock);
        for (size_t i = 0; i < some; i++) {
            uint32_t row = cache_entry_find(cache, ids[first + i]);
            if (row != UINT32_MAX)
                rows[n_rows++] = row;
        }
        rc = n_rows && !dry_run ? remove_rows(cache, rows, n_rows, lsn, err) : 0;
        pthread_mutex_unlock(&cache->lock);
        *n += rc == 0 ? n_rows : 0;
    }
    free(ids);
    pthread_mutex_lock(&cache->lock);
    assert(cache->near_scans > 0);
    cache->near_scans--;
    pthread_mutex_unlock(&cache->lock);
    return rc;
}

int cache_empty_category(struct cache *cache, uint32_t number, uint64_t *lsn, struct quire_error *err)
{
    uint64_t n = 0;
    const struct quire_cache_selector selector = {.by = QUIRE_CACHE_BY_CATEGORY};
    const struct selection s = {.cache = cache, .selector = &selector, .made.category = number};
    return scan_all(&s, false, &n, lsn, err);
}

/* The epoch rises before anything goes: what was computed before is outdated from now on. */
static int raise_epoch(struct selection *s, uint64_t *lsn, struct quire_error *err)
{
    struct cache *cache = s->cache;
    pthread_mutex_lock(&cache->lock);
    if (s->selector->by == QUIRE_CACHE_BY_ID) {
        /* What is remembered of entries that are about to go: their group and forty bits of their hash; of one without
         * a hash, its group, for all answers without. */
        for (uint32_t i = 0; i < s->selector->n; i++) {
            uint32_t row = cache_entry_find(cache, s->selector->ids[i]);
            const struct cache_entry *e = row == UINT32_MAX ? NULL : cache_entry_at(cache, row);
            if (!e)
                continue;
            uint64_t question = cache->groups[e->group]->key ^ (e->exact | (uint64_t)e->exact_high << 32);
            if (s->made.n < INVALIDATION_HASHES)
                s->made.hashes[s->made.n] = question & ((UINT64_C(1) << 40) - 1);
            s->made.n++;
        }
    }
    bool selects_nothing = (s->selector->by == QUIRE_CACHE_BY_ID && s->made.n == 0) ||
                           (s->selector->by == QUIRE_CACHE_BY_ENCODER && !s->everything);
    if (selects_nothing) { /* and outdates nothing: only so many epochs are remembered */
        pthread_mutex_unlock(&cache->lock);
        return 0;
    }
    s->made.epoch = cache->epoch + 1;
    int rc = cache_may_change(cache, err);
    if (rc == 0)
        rc = cache_log_epoch(cache, &s->made, lsn, err);
    if (rc == 0) {
        cache_invalidation_push(cache, &s->made);
        assert(cache->epoch == s->made.epoch);
        s->made.vector = NULL; /* the table's now */
        if (s->everything)
            negatives_clear(&cache->negatives);
    }
    pthread_mutex_unlock(&cache->lock);
    return rc;
}

static int invalidate(struct selection *s, bool dry_run, uint64_t *n, uint64_t *lsn, struct quire_error *err)
{
    struct cache *cache = s->cache;
    uint64_t count = 0;
    if (atomic_load_explicit(&cache->closed, memory_order_acquire))
        return error_set(err, QUIRE_ECLOSED, "the cache was dropped or closed");
    int rc = selection_set(s, err);
    if (rc == 0 && !dry_run)
        rc = raise_epoch(s, lsn, err);
    if (rc == 0 && s->selector->by == QUIRE_CACHE_BY_ID) {
        pthread_mutex_lock(&cache->lock);
        for (uint32_t i = 0; i < s->selector->n && rc == 0; i++) {
            uint32_t row = cache_entry_find(cache, s->selector->ids[i]);
            count += row != UINT32_MAX;
            if (row == UINT32_MAX || dry_run)
                continue;
            rc = cache_may_change(cache, err);
            if (rc == 0)
                rc = cache_log_gone(cache, &row, 1, lsn, err);
            if (rc < 0)
                break;
            struct cache_counters *counters =
                &cache_category_at(cache, cache->groups[cache_entry_at(cache, row)->group]->category)->counters;
            counters->removed += s->single;
            counters->invalidated += !s->single;
            cache_entry_die(cache, row);
        }
        pthread_mutex_unlock(&cache->lock);
    } else if (rc == 0 && s->selector->by == QUIRE_CACHE_BY_NEAR) {
        rc = scan_near(s, dry_run, &count, lsn, err);
    } else if (rc == 0) {
        rc = scan_all(s, dry_run, &count, lsn, err);
    }
    free(s->made.vector);
    if (rc == 0)
        *n = count;
    return rc;
}

int cache_invalidate(struct cache *cache, struct cache_scratch *scratch, const struct quire_cache_selector *selector,
                     bool dry_run, uint64_t *n, uint64_t *lsn, struct quire_error *err)
{
    struct selection s = {.cache = cache, .scratch = scratch, .selector = selector};
    return invalidate(&s, dry_run, n, lsn, err);
}

/* ---- single entries ---------------------------------------------------------------------------------------------- */

int cache_remove(struct cache *cache, uint64_t id, uint64_t *lsn, struct quire_error *err)
{
    uint64_t n = 0;
    const struct quire_cache_selector selector = {.by = QUIRE_CACHE_BY_ID, .ids = &id, .n = 1};
    struct selection s = {.cache = cache, .selector = &selector, .single = true};
    int rc = invalidate(&s, false, &n, lsn, err);
    return rc < 0 || n ? rc : error_set(err, QUIRE_ENOTFOUND, "no entry %016llx", (unsigned long long)id);
}

static int not_found(uint64_t id, struct quire_error *err)
{
    return error_set(err, QUIRE_ENOTFOUND, "no entry %016llx: it was never there, or has gone", (unsigned long long)id);
}

/* As cache_entry_find, but what is over, STALE and all, is not there: nobody calls it back by its id. (lock) */
static uint32_t find_in_time(const struct cache *cache, uint64_t id)
{
    uint32_t row = cache_entry_find(cache, id);
    return row != UINT32_MAX && has_expired(cache, row, cache_now(cache)) ? UINT32_MAX : row;
}

int cache_touch(struct cache *cache, uint64_t id, uint64_t ttl_ms, uint64_t *lsn, struct quire_error *err)
{
    pthread_mutex_lock(&cache->lock);
    uint32_t row = find_in_time(cache, id);
    int rc = row == UINT32_MAX ? not_found(id, err) : 0;
    if (rc == 0) {
        struct cache_entry *e = cache_entry_at(cache, row);
        struct category *cat = cache_category_at(cache, cache->groups[e->group]->category);
        uint64_t now = cache_now(cache), word = cache_entry_word(cache, row);
        uint64_t end = cache_entry_created(e) + cat->settings.ttl_max_ms,
                 until = now + (ttl_ms < EXPIRE_NEVER ? ttl_ms : EXPIRE_NEVER);
        until = cat->settings.ttl_max_ms && until > end ? end : until;
        if (ttl_ms && !(word & ENTRY_PINNED)) {
            until = until < EXPIRE_NEVER ? until : EXPIRE_NEVER - 1;
            rc = cache_log_change(cache, row, (word & ~EXPIRE_NEVER) | until, blob_head(&cache->blobs, e->blob)->veto,
                                  lsn, err);
            if (rc == 0)
                cache_entry_set_expire(e, until);
        }
        if (rc == 0)
            evict_used(&cat->order, row, cache_entry_saved(cache, e));
    }
    pthread_mutex_unlock(&cache->lock);
    return rc;
}

void cache_entry_set_word(struct cache *cache, uint32_t row, uint64_t word)
{
    struct cache_entry *e = cache_entry_at(cache, row);
    uint32_t number = cache->groups[e->group]->category;
    struct category *cat = cache_category_at(cache, number);
    bool was = (cache_entry_word(cache, row) & ENTRY_PINNED) != 0, is = (word & ENTRY_PINNED) != 0;
    assert(lock_is_held(&cache->lock) && (word & ENTRY_LIVE) && (!was || cat->pinned > 0));
    atomic_store_explicit(&e->word, word, memory_order_release);
    if (was == is)
        return;
    if (is)
        evict_remove(&cat->order, row);
    else
        evict_add(&cat->order, row, cache_entry_saved(cache, e));
    cat->pinned += is ? 1 : UINT64_MAX;
    cache->quotas[number].empty_handed = false;
}

/* An entry that is unpinned gets the TTL that its category gives, from now on. */
int cache_pin(struct cache *cache, uint64_t id, bool pinned, uint64_t *lsn, struct quire_error *err)
{
    pthread_mutex_lock(&cache->lock);
    uint32_t row = find_in_time(cache, id);
    int rc = row == UINT32_MAX ? not_found(id, err) : 0;
    uint64_t word = rc == 0 ? cache_entry_word(cache, row) : 0;
    if (rc == 0 && pinned != ((word & ENTRY_PINNED) != 0)) {
        struct cache_entry *e = cache_entry_at(cache, row);
        const struct category *cat = cache_category_at(cache, cache->groups[e->group]->category);
        uint64_t expire = pinned ? EXPIRE_NEVER : cache_now(cache) + cat->settings.ttl_ms;
        uint64_t next = (word & ~(EXPIRE_NEVER | ENTRY_PINNED)) | (pinned ? ENTRY_PINNED : 0) |
                        (expire < EXPIRE_NEVER || pinned ? expire : EXPIRE_NEVER - 1);
        rc = cache_log_change(cache, row, next, blob_head(&cache->blobs, e->blob)->veto, lsn, err);
        if (rc == 0)
            cache_entry_set_word(cache, row, next);
    }
    pthread_mutex_unlock(&cache->lock);
    return rc;
}
