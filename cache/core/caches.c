/*
 * caches.c - the caches of a data folder: made, found, dropped, and the thread that works behind them.
 *
 * The thread takes dead rows out of graphs, links rows of groups that have grown, removes what has expired, ends leases
 * and waits whose time is over, and logs curves. It holds no lock for long and does a little of each in turn, so that
 * none of it waits for the others. Another one seals (seal.c), which takes seconds at a time.
 */
#include "cache/core/sealed.h"
#include "io/array.h"
#include "io/clock.h"
#include "io/error.h"
#include "io/lock.h"
#include "io/memory.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

enum {
    /* Bytes of an entry against recall: few links below, where rows are near each other, and many on the upper layers,
     * where a search decides in which neighbourhood it ends and where links cost a tenth (docs/performance.md). */
    GRAPH_LOWEST = 12,
    GRAPH_DEGREE = 16,
    GRAPH_THINNING = 3, /* one row in eight is on the layer above */
    GRAPH_DESCENT = 32,
    GRAPH_BEAM = 64, /* of an insertion */
    REGION_ROWS_BYTES = 1 << 30,
    NEGATIVE_BUCKETS = 1024, /* 8,192 questions, 196 KB */
    SKETCH_KEYS = 65536,
    EXPIRE_ROWS = 20000, /* looked at for expiry in one round */
    LINKS_A_ROUND = 200,
    RECLAIMS_A_ROUND = 200,
    TICK_BUSY_MS = 2,
    TICK_MS = 20,
    SEAL_TICK_MS = 200,
    CURVES_EVERY_MS = 5000,
    REASON_BYTES = 240 /* of what is wrong with a cache: the remedy follows it in one sentence */
};

static uint64_t wall_clock(void *context)
{
    (void)context;
    return clock_wall_ms();
}

static uint64_t steady_clock(void *context)
{
    (void)context;
    return clock_us() / 1000;
}

static uint64_t random_seed(void)
{
    uint64_t seed;
    if (getrandom(&seed, sizeof seed, 0) != (ssize_t)sizeof seed)
        seed = (uint64_t)time(NULL); /* tokens are easier to guess then */
    return seed;
}

void caches_say(struct caches *caches, bool warning, const char *line)
{
    if (caches->options.log)
        caches->options.log(caches->options.log_context, warning, line);
}

/* ---- one cache --------------------------------------------------------------------------------------------------- */

static int check_config(const struct cache_config *c, struct quire_error *err)
{
    if (c->name.n_bytes == 0 || c->name.n_bytes > CACHE_NAME_BYTES)
        return error_set(err, QUIRE_ERANGE, "the name of a cache has 1 to %u bytes; this one has %zu", CACHE_NAME_BYTES,
                         c->name.n_bytes);
    if (c->dim == 0 || c->dim > QUIRE_DIM_MAX)
        return error_set(err, QUIRE_ERANGE, "dimension %u; choose 1 to %u", c->dim, QUIRE_DIM_MAX);
    if (c->type != QUIRE_TYPE_F32 && c->type != QUIRE_TYPE_F16 && c->type != QUIRE_TYPE_I8)
        return error_set(err, QUIRE_EINVALID, "type %d; choose f32, f16 or i8", (int)c->type);
    if (c->encoder.n_bytes > CACHE_NAME_BYTES)
        return error_set(err, QUIRE_ERANGE, "an encoder's name of %zu bytes; it may have at most %u",
                         c->encoder.n_bytes, CACHE_NAME_BYTES);
    if (c->n_scope_keys > CACHE_SCOPE_KEYS_MAX)
        return error_set(err, QUIRE_ERANGE, "%u scope keys; at most %u may be", c->n_scope_keys, CACHE_SCOPE_KEYS_MAX);
    for (uint32_t i = 0; i < c->n_scope_keys; i++)
        if (c->scope_keys[i].n_bytes == 0 || c->scope_keys[i].n_bytes > CATEGORY_SCOPE_KEY_BYTES)
            return error_set(err, QUIRE_ERANGE, "a scope key of %zu bytes; it has 1 to %u", c->scope_keys[i].n_bytes,
                             CATEGORY_SCOPE_KEY_BYTES);
    if (c->require_scope && c->n_scope_keys == 0)
        return error_set(err, QUIRE_EINVALID, "REQUIRESCOPE needs the keys: SCOPE key ...");
    uint64_t least = 1u << 20;
    if ((c->memory_bytes && c->memory_bytes < least) || (c->disk_bytes && c->disk_bytes < least))
        return error_set(err, QUIRE_ERANGE,
                         "memory of %llu and disk of %llu bytes; at least 1 MiB each, or 0 for the "
                         "defaults",
                         (unsigned long long)c->memory_bytes, (unsigned long long)c->disk_bytes);
    return 0;
}

static struct quire_bytes copy_piece(uint8_t **at, struct quire_bytes piece)
{
    struct quire_bytes copy = {*at, piece.n_bytes};
    if (piece.n_bytes)
        memcpy(*at, piece.data, piece.n_bytes);
    *at += piece.n_bytes;
    return copy;
}

static int copy_config(struct cache *cache, const struct cache_config *from)
{
    size_t n = from->name.n_bytes + from->encoder.n_bytes + 1;
    for (uint32_t i = 0; i < from->n_scope_keys; i++)
        n += from->scope_keys[i].n_bytes;
    uint8_t *at = cache->config_bytes = malloc(n);
    if (!at)
        return QUIRE_ENOMEM;
    cache->config = *from;
    cache->config.name = copy_piece(&at, from->name);
    cache->config.encoder = copy_piece(&at, from->encoder);
    for (uint32_t i = 0; i < from->n_scope_keys; i++)
        cache->config.scope_keys[i] = copy_piece(&at, from->scope_keys[i]);
    if (!from->memory_bytes)
        cache->config.memory_bytes = CACHE_MEMORY_DEFAULT;
    if (!from->disk_bytes)
        cache->config.disk_bytes = CACHE_DISK_DEFAULT;
    return 0;
}

static int make_tables(struct cache *cache, struct quire_error *err)
{
    struct graph_config graph = {.code_dim = cache->space.code_dim,
                                 .degree = GRAPH_DEGREE,
                                 .lowest = GRAPH_LOWEST,
                                 .thinning = GRAPH_THINNING,
                                 .descent = GRAPH_DESCENT,
                                 .beam = GRAPH_BEAM,
                                 .fill = GRAPH_LOWEST,
                                 .slack = 1,
                                 .seed = cache->uid,
                                 .epochs = cache->of->epochs};
    int rc = graph_create(&graph, &cache->graph, err);
    if (rc < 0)
        return rc;
    stable_array_init(&cache->entries, sizeof(struct cache_entry),
                      stable_array_shift(sizeof(struct cache_entry), REGION_ROWS_BYTES));
    stable_array_init(&cache->places, sizeof(struct place),
                      stable_array_shift(sizeof(struct place), REGION_ROWS_BYTES));
    stable_array_init(&cache->graph_entries, sizeof(uint32_t), stable_array_shift(sizeof(uint32_t), REGION_ROWS_BYTES));
    blobs_init(&cache->blobs);
    /* a row takes its code, numbers, links with those of upper layers, entry, share of the buckets */
    unsigned upper = (GRAPH_DEGREE + 1) * 4 / ((1u << GRAPH_THINNING) - 1);
    cache->entry_bytes = cache->space.code_dim + 16 + GRAPH_LOWEST * 4 + upper + sizeof(struct cache_entry) + 4;
    cache->n_buckets = 1024;
    while (cache->n_buckets < cache->config.memory_bytes / cache->entry_bytes / 2 && cache->n_buckets < 1u << 30)
        cache->n_buckets *= 2;
    cache->buckets = memory_map(sizeof *cache->buckets * cache->n_buckets, 0);
    cache->n_group_buckets = cache->n_scope_buckets = 64;
    cache->group_buckets = calloc(cache->n_group_buckets, sizeof *cache->group_buckets);
    cache->scope_buckets = calloc(cache->n_scope_buckets, sizeof *cache->scope_buckets);
    cache->audits = calloc(AUDITS_MAX, sizeof *cache->audits);
    if (!cache->buckets || !cache->group_buckets || !cache->scope_buckets || !cache->audits ||
        negatives_init(&cache->negatives, NEGATIVE_BUCKETS) < 0 || sketch_init(&cache->sketch, SKETCH_KEYS) < 0 ||
        risk_pool_create(&cache->pool) < 0)
        return error_set(err, QUIRE_ENOMEM, "no memory for a cache");
    struct lease_options leases = {
        .dim = cache->config.dim, .secret = {cache->secret[0], cache->secret[1]}, .seed = random_next(&cache->random)};
    return lease_table_create(&leases, &cache->leases, err);
}

static void free_cache(struct cache *cache)
{
    lease_table_destroy(cache->leases);
    if (cache->documents)
        document_log_close(cache->documents, NULL);
    graph_destroy(cache->graph);
    sealed_free(cache, cache->dropped);
    stable_array_fini(&cache->entries);
    blobs_fini(&cache->blobs);
    if (cache->buckets)
        memory_unmap(cache->buckets, sizeof *cache->buckets * cache->n_buckets);
    groups_free(cache);
    cache_categories_free(cache);
    risk_pool_destroy(cache->pool);
    negatives_fini(&cache->negatives);
    sketch_fini(&cache->sketch);
    cache_audits_free(cache);
    for (uint32_t i = 0; i < INVALIDATIONS_MAX; i++)
        free(cache->invalidations[i].vector);
    free(cache->row_lsns);
    free(cache->extents);
    free(cache->unavailable);
    cache_copying_free(cache);
    space_fini(&cache->space);
    free(cache->config_bytes);
    pthread_mutex_destroy(&cache->lock);
    free(cache);
}

int cache_create(struct caches *caches, uint64_t uid, const struct cache_config *config, uint64_t seed,
                 const uint64_t secret[2], struct cache **out, struct quire_error *err)
{
    int rc = check_config(config, err);
    if (rc < 0)
        return rc;
    struct cache *cache = calloc(1, sizeof *cache);
    if (!cache)
        return error_set(err, QUIRE_ENOMEM, "no memory for a cache");
    atomic_init(&cache->references, 1);
    pthread_mutex_init(&cache->lock, NULL);
    cache->of = caches;
    cache->uid = uid;
    cache->fallback = QUOTA_NONE;
    cache->next_sealed = 1;
    cache->secret[0] = secret[0] ? secret[0] : 1;
    cache->secret[1] = secret[1];
    cache->next_audit = cache_now(cache) << 12; /* no number of before a restart is given out again */
    random_init(&cache->random, random_next(&caches->random));
    if (copy_config(cache, config) < 0 ||
        space_init(&cache->space, QUIRE_METRIC_COSINE, config->type, config->dim, seed) < 0)
        rc = error_set(err, QUIRE_ENOMEM, "no memory for a cache");
    if (rc == 0)
        rc = make_tables(cache, err);
    if (rc < 0) {
        free_cache(cache);
        return rc;
    }
    cache_refresh_quota(cache);
    *out = cache;
    return 0;
}

struct cache *cache_ref(struct cache *cache)
{
    atomic_fetch_add(&cache->references, 1);
    return cache;
}

static void documents_path(const char *folder, uint64_t uid, char *path, size_t capacity)
{
    snprintf(path, capacity, "%s/documents/%016llx", folder, (unsigned long long)uid);
}

void cache_unref(struct cache *cache)
{
    uint32_t before = atomic_fetch_sub(&cache->references, 1);
    assert(before > 0);
    if (before != 1)
        return;
    struct caches *caches = cache->of;
    bool dropped = cache->dropped;
    uint64_t uid = cache->uid;
    free_cache(cache);
    if (!dropped)
        return;
    char path[4096];
    struct quire_error err;
    documents_path(caches->folder, uid, path, sizeof path);
    if (fs_remove_folder(caches->options.fs, path, &err) < 0)
        caches_say(caches, true, err.message);
}

int cache_available(const struct cache *cache, struct quire_error *err)
{
    if (!cache->unavailable)
        return 0;
    if (err)
        *err = *cache->unavailable;
    return cache->unavailable->code;
}

const struct cache_config *cache_get_config(const struct cache *cache)
{
    return &cache->config;
}

/* ---- documents --------------------------------------------------------------------------------------------------- */

/* (lock) The row of the entry whose document lies there; UINT32_MAX: none. */
static uint32_t row_with_document(const struct cache *cache, uint64_t id, const struct document_at *at)
{
    uint32_t row = cache_entry_find(cache, id);
    const struct cache_entry *e = row != UINT32_MAX ? cache_entry_at(cache, row) : NULL;
    return e && e->segment == at->segment && e->unit == at->unit ? row : UINT32_MAX;
}

static bool document_lives(void *context, uint64_t id, const struct document_at *at)
{
    struct cache *cache = context;
    pthread_mutex_lock(&cache->lock);
    bool lives = row_with_document(cache, id, at) != UINT32_MAX;
    pthread_mutex_unlock(&cache->lock);
    return lives;
}

static bool document_moved(void *context, uint64_t id, const struct document_at *from, const struct document_at *to)
{
    struct cache *cache = context;
    bool moved = false;
    pthread_mutex_lock(&cache->lock);
    uint32_t row = row_with_document(cache, id, from);
    /* of a closed cache nothing is logged any more: the journal may be gone */
    if (row != UINT32_MAX && !atomic_load(&cache->closed)) {
        moved = cache_log_moved(cache, row, to, NULL) == 0;
        if (moved)
            cache_entry_set_document(cache_entry_at(cache, row), to);
    }
    pthread_mutex_unlock(&cache->lock);
    return moved;
}

/* The log of documents tells what it has synced. */
static bool document_synced(void *context, const struct document_extent *extents, uint32_t n)
{
    struct cache *cache = context;
    pthread_mutex_lock(&cache->lock);
    bool kept = !atomic_load(&cache->closed) && cache_log_durable(cache, extents, n, NULL) == 0;
    pthread_mutex_unlock(&cache->lock);
    return kept;
}

int cache_open_documents(struct cache *cache, struct quire_error *err)
{
    struct caches *caches = cache->of;
    char path[4096];
    documents_path(caches->folder, cache->uid, path, sizeof path);
    uint64_t buffer = cache_buffer_bytes(cache);
    if (buffer < DOCUMENT_BYTES_MAX) /* what does not fit into it is refused for ever */
        buffer = DOCUMENT_BYTES_MAX;
    struct document_log_options options = {.fs = caches->options.fs,
                                           .folder = path,
                                           .buffer_bytes = buffer,
                                           .hot_bytes = cache_hot_bytes(cache),
                                           .clock_ms = caches->options.clock_ms,
                                           .clock_context = caches->options.clock_context,
                                           .moved = document_moved,
                                           .lives = document_lives,
                                           .host = cache,
                                           .synced = document_synced,
                                           .synced_context = cache,
                                           .extents = cache->extents,
                                           .n_extents = cache->n_extents,
                                           .log = caches->options.log,
                                           .log_context = caches->options.log_context,
                                           .no_thread = caches->options.no_thread,
                                           .read_only = caches->options.read_only};
    return document_log_open(&options, &cache->documents, err);
}

/* ---- the list ---------------------------------------------------------------------------------------------------- */

/* Where a name is, or would be. (lock) */
static uint32_t place_of(const struct caches *caches, struct quire_bytes name, bool *there)
{
    uint32_t at = 0;
    while (at < caches->n && cache_compare_bytes(caches->all[at]->config.name, name) < 0)
        at++;
    *there = at < caches->n && cache_compare_bytes(caches->all[at]->config.name, name) == 0;
    return at;
}

int caches_insert(struct caches *caches, struct cache *cache, struct quire_error *err)
{
    bool there;
    if (!array_reserve(&caches->all, &caches->capacity, caches->n + (size_t)1))
        return error_set(err, QUIRE_ENOMEM, "no memory for a cache");
    uint32_t at = place_of(caches, cache->config.name, &there);
    assert(!caches_by_uid(caches, cache->uid));
    memmove(caches->all + at + 1, caches->all + at, sizeof *caches->all * (caches->n - at));
    caches->all[at] = cache;
    caches->n++;
    return 0;
}

void caches_take(struct caches *caches, struct cache *cache)
{
    uint32_t at = 0;
    while (at < caches->n && caches->all[at] != cache)
        at++;
    assert(at < caches->n && !cache->dropped);
    memmove(caches->all + at, caches->all + at + 1, sizeof *caches->all * (caches->n - at - 1));
    caches->n--;
    atomic_store(&cache->closed, true);
    cache->dropped = true;
    cache_unref(cache);
}

struct cache *caches_by_uid(struct caches *caches, uint64_t uid)
{
    for (uint32_t i = 0; i < caches->n; i++)
        if (caches->all[i]->uid == uid)
            return caches->all[i];
    return NULL;
}

struct cache *caches_find(struct caches *caches, struct quire_bytes name)
{
    bool there;
    pthread_mutex_lock(&caches->lock);
    uint32_t at = place_of(caches, name, &there);
    struct cache *cache = there ? cache_ref(caches->all[at]) : NULL;
    pthread_mutex_unlock(&caches->lock);
    return cache;
}

struct cache **caches_list(struct caches *caches, bool all, uint32_t *n)
{
    pthread_mutex_lock(&caches->lock);
    struct cache **list = malloc(sizeof *list * (caches->n + 1));
    *n = 0;
    for (uint32_t i = 0; list && i < caches->n; i++)
        if (all || cache_available(caches->all[i], NULL) == 0)
            list[(*n)++] = cache_ref(caches->all[i]);
    pthread_mutex_unlock(&caches->lock);
    return list;
}

uint32_t caches_count_unavailable(struct caches *caches)
{
    uint32_t n = 0;
    pthread_mutex_lock(&caches->lock);
    for (uint32_t i = 0; i < caches->n; i++)
        n += cache_available(caches->all[i], NULL) < 0;
    pthread_mutex_unlock(&caches->lock);
    return n;
}

void caches_each(struct caches *caches, void (*visit)(void *context, struct cache *cache), void *context)
{
    uint32_t n;
    struct cache **all = caches_list(caches, true, &n);
    for (uint32_t i = 0; i < n; i++) {
        visit(context, all[i]);
        cache_unref(all[i]);
    }
    free(all);
}

/* The cache is made whole before its name is known; it is logged under the list's lock, so that a checkpoint that takes
 * the list has it or is followed by its record. */
int caches_add(struct caches *caches, const struct cache_config *config, uint64_t *lsn, struct quire_error *err)
{
    return caches_add_with(caches, config, 0, (const uint64_t[2]){random_seed() | 1, random_seed()}, NULL, lsn, err);
}

static int refuse_name(struct quire_bytes name, struct quire_error *err)
{
    return error_set(err, QUIRE_EEXISTS, "a cache '%.*s' is there already", (int)name.n_bytes, (const char *)name.data);
}

/* Out of the table and, by the journal, for good. (lock) */
static int take_out(struct caches *caches, struct cache *cache, uint64_t *lsn, struct quire_error *err)
{
    int rc = cache_log_drop(cache, lsn, err);
    if (rc == 0)
        caches_take(caches, cache);
    return rc;
}

int caches_add_with(struct caches *caches, const struct cache_config *config, uint64_t seed, const uint64_t secret[2],
                    struct cache *old, uint64_t *lsn, struct quire_error *err)
{
    struct cache *cache;
    bool there;
    pthread_mutex_lock(&caches->lock);
    uint32_t at = place_of(caches, config->name, &there);
    bool taken = there && caches->all[at] != old;
    uint64_t uid = random_next(&caches->random) | 1;
    pthread_mutex_unlock(&caches->lock);
    int rc = taken ? refuse_name(config->name, err)
                   : cache_create(caches, uid, config, seed ? seed : uid, secret, &cache, err);
    if (rc < 0)
        return rc;
    rc = cache_open_documents(cache, err);
    if (rc == 0)
        rc = document_log_begin(cache->documents, err);
    pthread_mutex_lock(&caches->lock);
    at = place_of(caches, config->name, &there);
    bool replaces = old && there && caches->all[at] == old;
    if (rc == 0 && there)
        rc = replaces ? take_out(caches, old, lsn, err) : refuse_name(config->name, err);
    replaces = replaces && rc == 0;
    if (rc == 0)
        rc = cache_log_cache(cache, lsn, err);
    bool inserted = rc == 0 && (rc = caches_insert(caches, cache, err)) == 0;
    pthread_cond_broadcast(&caches->wake);
    pthread_mutex_unlock(&caches->lock);
    if (replaces)
        lease_table_close(old->leases); /* nothing else would end their wait */
    if (!inserted) {
        cache->dropped = true;
        cache_unref(cache);
    }
    return rc;
}

int caches_drop(struct caches *caches, struct quire_bytes name, uint64_t *lsn, struct quire_error *err)
{
    bool there;
    pthread_mutex_lock(&caches->lock);
    uint32_t at = place_of(caches, name, &there);
    struct cache *cache = there ? cache_ref(caches->all[at]) : NULL;
    int rc = cache ? take_out(caches, cache, lsn, err)
                   : error_set(err, QUIRE_ENOTFOUND, "no cache '%.*s'; SC.LIST names them", (int)name.n_bytes,
                               (const char *)name.data);
    pthread_mutex_unlock(&caches->lock);
    /* those who wait hold references: nothing else would end their wait */
    if (rc == 0)
        lease_table_close(cache->leases);
    if (cache)
        cache_unref(cache);
    return rc;
}

/* ---- background work --------------------------------------------------------------------------------------------- */

static void log_curves(struct cache *cache, bool all)
{
    pthread_mutex_lock(&cache->lock);
    uint64_t now = cache_now(cache);
    if (all || now - cache->curves_logged_ms >= CURVES_EVERY_MS) {
        cache->curves_logged_ms = now;
        for (uint32_t i = 0; i < cache->n_categories; i++) {
            struct risk_stats stats;
            struct category *cat = cache->categories[i];
            risk_get_stats(cat->curve, &stats);
            uint64_t labels = stats.labels + stats.feedback;
            if (cat->dropped || labels == cat->labels_logged || cache->follows)
                continue;
            if (cache_log_curve(cache, i, NULL) == 0) /* a journal that takes nothing now is asked again */
                cat->labels_logged = labels;
        }
    }
    pthread_mutex_unlock(&cache->lock);
}

uint64_t caches_work(struct caches *caches)
{
    uint32_t n;
    uint64_t due = TICK_MS;
    struct cache **all = caches_list(caches, false, &n);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t lease_due = lease_tick(all[i]->leases, cache_steady_ms(all[i]));
        uint32_t reclaimed = cache_reclaim(all[i], caches->scratch, RECLAIMS_A_ROUND);
        uint32_t linked = groups_link(all[i], caches->scratch, LINKS_A_ROUND);
        uint32_t expired = cache_expire(all[i], EXPIRE_ROWS / 20);
        log_curves(all[i], false);
        if (lease_due < due)
            due = lease_due ? lease_due : 1;
        if (reclaimed == RECLAIMS_A_ROUND || linked == LINKS_A_ROUND || expired > EXPIRE_ROWS / 40)
            due = 0; /* there is more to do at once */
        if (caches->options.no_thread) {
            document_log_work(all[i]->documents, NULL);
            seal_work(all[i], caches->seal_scratch);
        }
        cache_unref(all[i]);
    }
    free(all);
    return due;
}

static struct timespec moment_in(uint64_t ms)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_nsec += (long)ms * 1000000;
    at.tv_sec += at.tv_nsec / 1000000000;
    at.tv_nsec %= 1000000000;
    return at;
}

static void *run_sealer(void *context)
{
    struct caches *caches = context;
    while (!atomic_load(&caches->stopping)) {
        uint32_t n;
        bool more = false; /* one of them may need more than one seal or merge */
        struct cache **all = caches_list(caches, false, &n);
        for (uint32_t i = 0; i < n; i++) {
            more |= seal_work(all[i], caches->seal_scratch);
            cache_unref(all[i]);
        }
        free(all);
        struct timespec until = moment_in(SEAL_TICK_MS);
        pthread_mutex_lock(&caches->lock);
        if (caches->n == 0 && !caches->stopping)
            pthread_cond_wait(&caches->wake, &caches->lock);
        else if (!more && !caches->stopping)
            pthread_cond_timedwait(&caches->wake, &caches->lock, &until);
        pthread_mutex_unlock(&caches->lock);
    }
    return NULL;
}

static void *run(void *context)
{
    struct caches *caches = context;
    pthread_mutex_lock(&caches->lock);
    while (!caches->stopping) {
        pthread_mutex_unlock(&caches->lock);
        uint64_t due = caches_work(caches);
        struct timespec until = moment_in(due < TICK_BUSY_MS && due ? TICK_BUSY_MS : due);
        pthread_mutex_lock(&caches->lock);
        if (caches->n == 0 && !caches->stopping)
            pthread_cond_wait(&caches->wake, &caches->lock);
        else if (due && !caches->stopping)
            pthread_cond_timedwait(&caches->wake, &caches->lock, &until);
    }
    pthread_mutex_unlock(&caches->lock);
    return NULL;
}

/* ---- create and destroy ------------------------------------------------------------------------------------------ */

int caches_create(const struct caches_options *options, struct caches **out, struct quire_error *err)
{
    struct caches *caches = calloc(1, sizeof *caches);
    pthread_condattr_t monotonic;
    int rc = caches ? guard_tables_load(options->guard_folder, &caches->guards, err)
                    : error_set(err, QUIRE_ENOMEM, "no memory for caches");
    if (rc < 0) {
        free(caches);
        return rc;
    }
    pthread_mutex_init(&caches->lock, NULL);
    pthread_mutex_init(&caches->removal, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&caches->wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    caches->options = *options;
    caches->options.fs = options->fs ? options->fs : fs_real();
    caches->options.clock_ms = options->clock_ms ? options->clock_ms : wall_clock;
    if (!options->steady_ms)
        caches->options.steady_ms = options->clock_ms ? options->clock_ms : steady_clock;
    caches->folder = strdup(options->folder);
    random_init(&caches->random, options->seed ? options->seed : random_seed());
    rc = caches->folder ? epochs_create(&caches->epochs) : QUIRE_ENOMEM;
    if (rc == 0)
        rc = cache_scratch_create(&caches->scratch, err);
    if (rc == 0)
        rc = cache_scratch_create(&caches->seal_scratch, err);
    if (rc < 0) {
        caches_destroy(caches);
        return error_set(err, rc, "no memory for caches");
    }
    *out = caches;
    return 0;
}

/* Folders of documents that no cache has: it was dropped, or was never logged. */
struct orphans {
    struct caches *caches;
    char name[17];
    bool found;
};

static int find_orphan(void *context, const char *name)
{
    struct orphans *o = context;
    char *end;
    uint64_t uid = strtoull(name, &end, 16);
    if (strlen(name) != 16 || *end || caches_by_uid(o->caches, uid))
        return 0;
    memcpy(o->name, name, sizeof o->name);
    o->found = true;
    return 1;
}

/* Folders of segments that no cache names: of a seal that was not finished, or emptied ones. Names first: what is
 * removed while a folder is read may be seen twice or never. */
struct leftovers {
    struct caches *caches;
    char **names;
    size_t n, capacity;
};

static int find_leftover(void *context, const char *name)
{
    struct leftovers *l = context;
    uint64_t uid = 0;
    uint32_t number = sealed_parse_name(name, &uid);
    struct cache *cache = number ? caches_by_uid(l->caches, uid) : NULL;
    if (cache && (cache->unavailable || sealed_find(cache, number)))
        return 0;
    if (!array_reserve(&l->names, &l->capacity, l->n + 1))
        return QUIRE_ENOMEM;
    l->names[l->n] = strdup(name);
    return l->names[l->n] ? (int)(l->n++, 0) : QUIRE_ENOMEM;
}

static int make_folder(const struct caches *caches, const char *name, struct quire_error *err)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", caches->folder, name);
    int rc = caches->options.fs->ops->mkdir(caches->options.fs, path);
    return rc == QUIRE_EEXISTS || rc >= 0 ? 0 : error_set(err, rc, "cannot make the folder %s", path);
}

/* What is wrong with a cache's files makes that cache unavailable: what the records say of it stays in the next
 * checkpoint, its files stay where they are. What is wrong with this process ends the opening. */
static int begin_cache(struct cache *cache, struct quire_error *err)
{
    struct quire_error why = {0};
    int rc = cache_open_documents(cache, &why);
    if (rc == 0)
        rc = cache_restore_end(cache, &why);
    if (rc == 0) { /* the log of documents knows them now */
        free(cache->extents);
        cache->extents = NULL;
        cache->n_extents = cache->extents_capacity = 0;
        return 0;
    }
    document_log_close(cache->documents, NULL);
    cache->documents = NULL;
    cache->unavailable = cache_error_is_own(rc) ? NULL : malloc(sizeof *cache->unavailable);
    if (!cache->unavailable)
        return error_set(err, cache_error_is_own(rc) ? rc : QUIRE_ENOMEM, "%s", why.message);
    *cache->unavailable = why;
    error_set(cache->unavailable, rc, "%.*s: %s", REASON_BYTES, why.message, store_remedy(rc));
    char line[1024];
    snprintf(line, sizeof line, "cache '%.*s' is unavailable: %s", (int)cache->config.name.n_bytes,
             (const char *)cache->config.name.data, cache->unavailable->message);
    caches_say(cache->of, true, line);
    return 0;
}

int caches_begin(struct caches *caches, struct journal *journal, struct quire_error *err)
{
    int rc = make_folder(caches, "documents", err);
    if (rc == 0)
        rc = make_folder(caches, SEALED_NAME, err);
    if (rc == 0) {
        char orphan[4096];
        for (struct orphans o = {.caches = caches, .found = true}; rc == 0 && o.found;) {
            snprintf(orphan, sizeof orphan, "%s/documents", caches->folder);
            o.found = false;
            caches->options.fs->ops->list(caches->options.fs, orphan, find_orphan, &o);
            if (!o.found)
                break;
            documents_path(caches->folder, strtoull(o.name, NULL, 16), orphan, sizeof orphan);
            rc = fs_remove_folder(caches->options.fs, orphan, err);
        }
    }
    assert(!caches->begun);
    caches->journal = journal; /* entries without documents are removed for good */
    for (uint32_t i = 0; i < caches->n && rc == 0; i++)
        rc = begin_cache(caches->all[i], err);
    if (rc == 0) {
        struct io_fs *fs = caches->options.fs;
        struct leftovers l = {.caches = caches};
        char path[4096];
        snprintf(path, sizeof path, "%s/" SEALED_NAME, caches->folder);
        rc = fs->ops->list(fs, path, find_leftover, &l);
        if (rc < 0)
            error_set(err, rc, "cannot list %s: %s", path, quire_error_text(rc));
        for (size_t i = 0; i < l.n; i++) {
            snprintf(path, sizeof path, "%s/" SEALED_NAME "/%s", caches->folder, l.names[i]);
            if (rc == 0)
                rc = fs_remove_folder(fs, path, err);
            free(l.names[i]);
        }
        free(l.names);
    }
    for (uint32_t i = 0; i < caches->n && rc == 0; i++)
        rc = caches->all[i]->unavailable ? 0 : cache_log_dead_rows(caches->all[i], err);
    for (uint32_t i = 0; i < caches->n && rc == 0; i++)
        rc = caches->all[i]->unavailable ? 0 : document_log_begin(caches->all[i]->documents, err);
    if (rc < 0)
        return rc;
    caches->begun = true;
    if (caches->options.no_thread)
        return 0;
    caches->thread_started = pthread_create(&caches->thread, NULL, run, caches) == 0;
    caches->sealer_started = pthread_create(&caches->sealer, NULL, run_sealer, caches) == 0;
    return caches->thread_started && caches->sealer_started
               ? 0
               : error_set(err, QUIRE_ENOMEM, "no thread for what caches do in the background");
}

void caches_end(struct caches *caches)
{
    uint32_t n;
    pthread_mutex_lock(&caches->lock);
    caches->stopping = true;
    pthread_cond_broadcast(&caches->wake);
    pthread_mutex_unlock(&caches->lock);
    if (caches->thread_started)
        pthread_join(caches->thread, NULL);
    if (caches->sealer_started)
        pthread_join(caches->sealer, NULL);
    caches->thread_started = caches->sealer_started = false;
    struct cache **all = caches_list(caches, true, &n);
    for (uint32_t i = 0; i < n; i++) {
        if (caches->begun && !atomic_load(&all[i]->closed) && cache_available(all[i], NULL) == 0) {
            log_curves(all[i], true);
            document_log_sync(all[i]->documents, NULL); /* what that puts on the device is logged, too */
        }
        pthread_mutex_lock(&all[i]->lock); /* whoever logs a move is done, or sees it */
        atomic_store(&all[i]->closed, true);
        pthread_mutex_unlock(&all[i]->lock);
        lease_table_close(all[i]->leases);
        cache_unref(all[i]);
    }
    free(all);
}

void caches_destroy(struct caches *caches)
{
    if (!caches)
        return;
    for (uint32_t i = 0; i < caches->n; i++)
        cache_unref(caches->all[i]);
    free(caches->all);
    epochs_destroy(caches->epochs);
    cache_scratch_destroy(caches->scratch);
    cache_scratch_destroy(caches->seal_scratch);
    guard_tables_free(caches->guards);
    pthread_mutex_destroy(&caches->lock);
    pthread_mutex_destroy(&caches->removal);
    pthread_cond_destroy(&caches->wake);
    free(caches->folder);
    free(caches);
}

/* One that is dropped meanwhile keeps its files as long as it is referred to. */
void caches_pin_files(struct caches *caches)
{
    pthread_mutex_lock(&caches->removal);
    assert(!caches->pinned);
    caches->pinned = caches_list(caches, true, &caches->n_pinned);
    for (uint32_t i = 0; i < caches->n_pinned; i++)
        if (caches->pinned[i]->documents)
            document_log_pin(caches->pinned[i]->documents);
}

void caches_unpin_files(struct caches *caches)
{
    for (uint32_t i = 0; i < caches->n_pinned; i++) {
        if (caches->pinned[i]->documents)
            document_log_unpin(caches->pinned[i]->documents);
        cache_unref(caches->pinned[i]);
    }
    free(caches->pinned);
    caches->pinned = NULL;
    caches->n_pinned = 0;
    pthread_mutex_unlock(&caches->removal);
}

static int is_there(void *context, const char *name)
{
    (void)context, (void)name;
    return 0;
}

/* What is missing of a cache that is unavailable is missing in the copy as well. */
static int link_folder(const struct cache *cache, const char *from, const char *to, struct quire_error *err)
{
    struct io_fs *fs = cache->of->options.fs;
    if (cache->unavailable && fs->ops->list(fs, from, is_there, NULL) == QUIRE_ENOFILE)
        return 0;
    return store_link_folder(fs, from, to, false, err);
}

/* All segments of a cache, those that a record of a moment ago has emptied, too. */
static int link_sealed(struct cache *cache, const char *to, struct quire_error *err)
{
    struct caches *caches = cache->of;
    int rc = 0;
    pthread_mutex_lock(&cache->lock);
    uint32_t n = 0;
    for (const struct sealed *sealed = cache->retired; sealed; sealed = sealed->next)
        n++;
    uint32_t *numbers = malloc(sizeof *numbers * (cache->n_sealed + (size_t)n + 1));
    n = 0;
    for (uint32_t i = 0; numbers && i < cache->n_sealed; i++)
        numbers[n++] = cache->sealed[i]->number;
    for (const struct sealed *sealed = cache->retired; numbers && sealed; sealed = sealed->next)
        numbers[n++] = sealed->number;
    pthread_mutex_unlock(&cache->lock);
    rc = numbers ? 0 : error_set(err, QUIRE_ENOMEM, "no memory to list the segments of a cache");
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        char *from = sealed_path(caches->folder, cache->uid, numbers[i]);
        char *linked = sealed_path(to, cache->uid, numbers[i]);
        rc = from && linked ? link_folder(cache, from, linked, err)
                            : error_set(err, QUIRE_ENOMEM, "no memory for the name of a segment");
        free(from);
        free(linked);
    }
    free(numbers);
    return rc;
}

/* What was linked into a folder of a snapshot is there after a cut of power. */
static int sync_folder(const struct caches *caches, const char *to, const char *name, struct quire_error *err)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", to, name);
    int rc = caches->options.fs->ops->sync_dir(caches->options.fs, path);
    return rc < 0 ? error_set(err, rc, "cannot sync folder %s: %s", path, quire_error_text(rc)) : 0;
}

static int link_cache(struct cache *cache, const char *to, struct quire_error *err)
{
    char path[4096], from[4096];
    documents_path(to, cache->uid, path, sizeof path);
    documents_path(cache->of->folder, cache->uid, from, sizeof from);
    int rc = cache->documents ? document_log_link(cache->documents, path, err) : link_folder(cache, from, path, err);
    return rc == 0 ? link_sealed(cache, to, err) : rc;
}

static bool is_pinned(const struct caches *caches, const struct cache *cache)
{
    for (uint32_t i = 0; i < caches->n_pinned; i++)
        if (caches->pinned[i] == cache)
            return true;
    return false;
}

int caches_link_documents(struct caches *caches, const char *to, struct quire_error *err)
{
    uint32_t n;
    char path[4096];
    struct cache **all = caches_list(caches, true, &n);
    if (!all)
        return error_set(err, QUIRE_ENOMEM, "no memory to list the caches");
    snprintf(path, sizeof path, "%s/documents", to);
    int rc = caches->options.fs->ops->mkdir(caches->options.fs, path);
    rc = rc < 0 ? error_set(err, rc, "cannot make the folder %s", path) : 0;
    snprintf(path, sizeof path, "%s/" SEALED_NAME, to);
    if (rc == 0 && caches->options.fs->ops->mkdir(caches->options.fs, path) < 0)
        rc = error_set(err, QUIRE_EIO, "cannot make the folder %s", path);
    for (uint32_t i = 0; i < caches->n_pinned && rc == 0; i++) /* the snapshot may know one that was dropped since */
        rc = link_cache(caches->pinned[i], to, err);
    for (uint32_t i = 0; i < n; i++) {
        if (rc == 0 && !is_pinned(caches, all[i]))
            rc = link_cache(all[i], to, err);
        cache_unref(all[i]);
    }
    free(all);
    if (rc == 0)
        rc = sync_folder(caches, to, "documents", err);
    return rc == 0 ? sync_folder(caches, to, SEALED_NAME, err) : rc;
}

/* ---- scratch ----------------------------------------------------------------------------------------------------- */

int cache_scratch_create(struct cache_scratch **out, struct quire_error *err)
{
    struct cache_scratch *scratch = calloc(1, sizeof *scratch);
    if (!scratch)
        return error_set(err, QUIRE_ENOMEM, "no memory to look into caches");
    int rc = graph_scratch_create(&scratch->graph, err);
    if (rc < 0) {
        free(scratch);
        return rc;
    }
    *out = scratch;
    return 0;
}

void cache_scratch_destroy(struct cache_scratch *scratch)
{
    if (!scratch)
        return;
    graph_scratch_destroy(scratch->graph);
    free(scratch->floats);
    free(scratch->rows);
    free(scratch);
}
