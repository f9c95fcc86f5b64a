/*
 * library_cache.c - quire.h's semantic cache: a data folder with one cache in it, questions and answers.
 *
 * A question is decided in memory; what it waits for, it waits for on a condition variable of its own, which the cache
 * signals (lease.h). The time is kept here as well, since the cache's thread looks at deadlines only now and then. A
 * document is read on a lane of the pool and copied together with its chunks into one piece of memory, the answer's,
 * so that nothing of an answer belongs to the cache.
 *
 * A document that turns out to be lost, or an entry that went while it was read, is looked up again: that is a miss,
 * or the next best entry.
 *
 * Closing. Calls are counted. Closing refuses new ones, wakes those that wait, which end with a miss, and takes
 * everything down when the last one has left. What makes no sense to wait for (a document being read, a write being
 * synced) takes milliseconds.
 *
 * A folder whose journal holds records of others than the store and caches is refused: they would be missing in the
 * next checkpoint.
 */
#include "cache/api/library_cache.h"
#include "cache/document/document_log.h"
#include "cache/guard/text.h"
#include "cache/lease/lease.h"
#include "index/api/library.h"
#include "index/store/store.h"
#include "io/clock.h"
#include "io/error.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CACHE_NAME    "cache"
#define LOOKS_MAX     8u                   /* of one question whose answers go while they are read */
#define WAIT_MS_LIMIT (1000u * 86400 * 30) /* keeps deadlines within what a clock can say */

/* ---- calls ------------------------------------------------------------------------------------------------------- */

int library_cache_begin(struct quire_cache *c, struct quire_error *err)
{
    if (!c)
        return error_set(err, QUIRE_EINVALID, "cache must be given");
    int here = search_lane_pool_check(&c->lanes, err);
    if (here < 0)
        return here;
    pthread_mutex_lock(&c->mutex);
    bool closing = c->closing;
    c->calls += !closing;
    pthread_mutex_unlock(&c->mutex);
    return closing ? error_set(err, QUIRE_ECLOSED, "the cache is being closed") : 0;
}

int library_cache_end(struct quire_cache *c, int rc)
{
    pthread_mutex_lock(&c->mutex);
    assert(c->calls > 0);
    if (--c->calls == 0)
        pthread_cond_broadcast(&c->idle);
    pthread_mutex_unlock(&c->mutex);
    return rc;
}

int library_cache_written(struct quire_cache *c, int rc, const uint64_t *lsn, struct quire_error *err)
{
    int waited = rc >= 0 && *lsn ? journal_wait(store_journal(c->store), *lsn, err) : 0;
    return library_cache_end(c, waited < 0 ? waited : rc);
}

int library_cache_scratch_take(struct quire_cache *c, struct idle_scratch **out, struct quire_error *err)
{
    pthread_mutex_lock(&c->mutex);
    struct idle_scratch *found = c->free;
    if (found)
        c->free = found->next;
    pthread_mutex_unlock(&c->mutex);
    if (!found) {
        found = calloc(1, sizeof *found);
        int rc = found ? cache_scratch_create(&found->scratch, err)
                       : error_set(err, QUIRE_ENOMEM, "no memory to look into the cache");
        if (rc < 0) {
            free(found);
            return rc;
        }
    }
    *out = found;
    return 0;
}

void library_cache_scratch_put(struct quire_cache *c, struct idle_scratch *scratch)
{
    if (!scratch)
        return;
    pthread_mutex_lock(&c->mutex);
    scratch->next = c->free;
    c->free = scratch;
    pthread_mutex_unlock(&c->mutex);
}

int library_cache_read(struct quire_cache *c, const struct document_at *at, struct document_read *read,
                       struct quire_error *err)
{
    struct search_lane *lane;
    int rc = document_read_begin(cache_documents(c->cache), at, read, err);
    if (rc < 0)
        return rc == QUIRE_ENOMEM ? rc : LIBRARY_CACHE_NOT_THERE;
    if (rc == DOCUMENT_IN_MEMORY)
        return LIBRARY_CACHE_READ;
    rc = search_lane_pool_take(&c->lanes, 1, &lane, err);
    if (rc == 0) {
        int result = engine_run(lane->engine, &read->op);
        search_lane_pool_put(&c->lanes, lane);
        rc = document_read_bytes(read, result, err) < 0 ? LIBRARY_CACHE_NOT_THERE : LIBRARY_CACHE_READ;
    }
    if (rc != LIBRARY_CACHE_READ)
        document_read_end(read);
    return rc;
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

void quire_cache_options_init(struct quire_cache_options *options)
{
    memset(options, 0, sizeof *options);
    options->struct_bytes = sizeof *options;
}

static void pass_log(void *context, bool warning, const char *line)
{
    struct quire_cache *c = context;
    if (c->log)
        c->log(c->context, warning, line);
}

static int check_kind(uint8_t kind, struct quire_error *err)
{
    return kind >= CACHE_KINDS ? 0
                               : error_set(err, QUIRE_EUNSUPPORTED,
                                           "the folder is a server's and holds keys (record of kind %u), which this "
                                           "library does not keep: open it with quire-server, or choose another folder",
                                           kind);
}

static int restore(void *context, uint8_t kind, uint64_t lsn, const uint8_t *bytes, uint32_t n, struct quire_error *err)
{
    struct quire_cache *c = context;
    int rc = check_kind(kind, err);
    return rc < 0 ? rc : caches_restore(c->caches, kind, lsn, bytes, n, err);
}

static int replay(void *context, uint8_t kind, uint64_t lsn, const uint8_t *bytes, uint32_t n, struct quire_error *err)
{
    struct quire_cache *c = context;
    int rc = check_kind(kind, err);
    return rc < 0 ? rc : caches_replay(c->caches, kind, lsn, bytes, n, err);
}

static int save(void *context, struct checkpoint *checkpoint, struct quire_error *err)
{
    struct quire_cache *c = context;
    return caches_save(c->caches, checkpoint, err);
}

/* Without create nothing is made, in a folder that holds other things least of all. */
static int check_there(const struct quire_cache_options *o, const char *path, struct quire_error *err)
{
    char *documents;
    if (o->create)
        return 0;
    if (access(path, F_OK) != 0)
        return error_set(err, QUIRE_ENOFILE, "%s is not there: open it with create to make a cache", path);
    if (asprintf(&documents, "%s/documents", path) < 0)
        return error_set(err, QUIRE_ENOMEM, "no memory to open %s", path);
    bool there = access(documents, F_OK) == 0;
    free(documents);
    return there ? 0 : error_set(err, QUIRE_ENOFILE, "%s holds no cache: open it with create to make one", path);
}

static bool same_scope_keys(const struct cache_config *have, const struct quire_cache_options *o)
{
    if (have->n_scope_keys != o->n_scope_keys || have->require_scope != o->require_scope)
        return false;
    for (uint32_t i = 0; i < o->n_scope_keys; i++)
        if (!text_equal(have->scope_keys[i], o->scope_keys[i]))
            return false;
    return true;
}

static int compare_limit(const char *name, uint64_t have, uint64_t asked, const char *path, struct quire_error *err)
{
    return asked == 0 || asked == have
               ? 0
               : error_set(err, QUIRE_EINVALID, "%s was made with %s %llu, not %llu: give 0 to take it as it is", path,
                           name, (unsigned long long)have, (unsigned long long)asked);
}

/* What options say of a cache that is there must be so: nothing that was asked for is left out silently. */
static int compare_config(const struct cache_config *have, const struct quire_cache_options *o, const char *path,
                          struct quire_error *err)
{
    struct quire_bytes own = have->encoder;
    if (o->dim && have->dim != o->dim)
        return error_set(err, QUIRE_EDIM, "%s has dimension %u, not %u", path, have->dim, o->dim);
    if (o->dim && have->type != o->type)
        return error_set(err, QUIRE_ETYPE, "%s takes vectors of %s, not %s", path, quire_type_name(have->type),
                         quire_type_name(o->type));
    if (o->encoder && !text_equal(text_of(o->encoder), own))
        return error_set(err, QUIRE_EINVALID, "%s holds vectors of encoder '%.*s', not '%s': make another cache for it",
                         path, (int)own.n_bytes, (const char *)own.data, o->encoder);
    if (o->n_scope_keys && !same_scope_keys(have, o))
        return error_set(err, QUIRE_EINVALID, "%s was made with other scope keys, or require_scope was another", path);
    int rc = compare_limit("memory_bytes", have->memory_bytes, o->memory_bytes, path, err);
    return rc < 0 ? rc : compare_limit("disk_bytes", have->disk_bytes, o->disk_bytes, path, err);
}

/* The one cache of the folder, found or made. */
static int take_cache(struct quire_cache *c, const struct quire_cache_options *o, const char *path,
                      struct quire_error *err)
{
    uint64_t lsn = 0;
    c->cache = caches_find(c->caches, text_of(CACHE_NAME));
    int available = c->cache ? cache_available(c->cache, err) : 0;
    if (available < 0) {
        cache_unref(c->cache);
        c->cache = NULL;
        return available;
    }
    if (c->cache)
        return compare_config(cache_get_config(c->cache), o, path, err);
    if (!o->create)
        return error_set(err, QUIRE_ENOFILE, "%s holds no cache: open it with create to make one", path);
    struct cache_config config = {.name = text_of(CACHE_NAME),
                                  .dim = o->dim,
                                  .type = o->type,
                                  .encoder = text_of(o->encoder ? o->encoder : ""),
                                  .memory_bytes = o->memory_bytes,
                                  .disk_bytes = o->disk_bytes,
                                  .n_scope_keys = o->n_scope_keys,
                                  .require_scope = o->require_scope};
    if (o->n_scope_keys)
        memcpy(config.scope_keys, o->scope_keys, sizeof *o->scope_keys * o->n_scope_keys);
    int rc = caches_add(c->caches, &config, &lsn, err);
    if (rc < 0)
        return rc;
    c->cache = caches_find(c->caches, config.name);
    return journal_wait(store_journal(c->store), lsn, err);
}

/* An empty handle. */
static int make_handle(const struct quire_cache_options *o, struct quire_cache **out, struct quire_error *err)
{
    struct quire_cache *c = calloc(1, sizeof *c);
    if (!c)
        return error_set(err, QUIRE_ENOMEM, "no memory for a cache");
    int rc = search_lane_pool_init(&c->lanes, o->engine, 0, err);
    if (rc < 0) {
        free(c);
        return rc;
    }
    pthread_mutex_init(&c->mutex, NULL);
    pthread_cond_init(&c->idle, NULL);
    c->log = o->log;
    c->context = o->context;
    *out = c;
    return 0;
}

int quire_cache_open(const char *path, const struct quire_cache_options *options, struct quire_cache **out,
                     struct quire_error *err)
{
    struct quire_cache_options defaults;
    struct quire_cache *c = NULL;
    quire_cache_options_init(&defaults);
    const struct quire_cache_options *o = options ? options : &defaults;
    if (!path || !out)
        return error_set(err, QUIRE_EINVALID, "path and out must be given");
    int rc = library_struct_validate(o->struct_bytes, sizeof *o, "quire_cache_options", err);
    if (rc == 0 && (unsigned)o->durability > QUIRE_DURABLE_NO)
        rc = error_set(err, QUIRE_EINVALID, "unknown durability %d", (int)o->durability);
    if (rc == 0 && o->n_scope_keys > CACHE_SCOPE_KEYS_MAX)
        rc = error_set(err, QUIRE_ERANGE, "%u scope keys; at most %u may be", o->n_scope_keys, CACHE_SCOPE_KEYS_MAX);
    if (rc == 0 && o->n_scope_keys && !o->scope_keys)
        rc = error_set(err, QUIRE_EINVALID, "n_scope_keys is %u, scope_keys is NULL", o->n_scope_keys);
    if (rc == 0)
        rc = make_handle(o, &c, err);
    if (rc < 0)
        return rc;
    assert(c);
    struct caches_options caches = {.folder = path,
                                    .guard_folder = o->guard_folder,
                                    .seed = o->seed,
                                    .log = pass_log,
                                    .log_context = c,
                                    .seal_rows = o->seal_rows};
    struct store_options store = {.sync = o->durability == QUIRE_DURABLE_ALWAYS ? JOURNAL_ALWAYS
                                          : o->durability == QUIRE_DURABLE_NO   ? JOURNAL_NO
                                                                                : JOURNAL_EVERYSEC,
                                  .no_maintenance = true};
    struct store_host host = {.restore = restore, .replay = replay, .save = save, .log = pass_log, .context = c};
    struct store_report report;
    rc = check_there(o, path, err);
    if (rc == 0)
        rc = caches_create(&caches, &c->caches, err);
    if (rc == 0)
        rc = store_open(path, &store, &host, &c->store, &report, err);
    if (rc == 0)
        rc = caches_begin(c->caches, store_journal(c->store), err);
    if (rc == 0)
        rc = store_begin_maintenance(c->store, err);
    if (rc == 0)
        rc = take_cache(c, o, path, err);
    if (rc < 0)
        quire_cache_close(c, NULL);
    else
        *out = c;
    return rc;
}

int quire_cache_stop(struct quire_cache *c, struct quire_error *err)
{
    if (!c)
        return 0;
    int here = search_lane_pool_check(&c->lanes, err);
    if (here < 0)
        return here;
    pthread_mutex_lock(&c->mutex);
    bool stopped = c->closing;
    c->closing = true;
    pthread_mutex_unlock(&c->mutex);
    if (c->caches && !stopped)
        caches_end(c->caches);
    return 0;
}

int quire_cache_close(struct quire_cache *c, struct quire_error *err)
{
    if (!c)
        return 0;
    int here = quire_cache_stop(c, err); /* refuses new calls; those that are under way are waited for */
    if (here < 0)
        return here;
    pthread_mutex_lock(&c->mutex);
    while (c->calls)
        pthread_cond_wait(&c->idle, &c->mutex);
    pthread_mutex_unlock(&c->mutex);
    assert(c->calls == 0 && c->closing);
    int rc = c->cache ? document_log_sync(cache_documents(c->cache), err) : 0;
    if (c->cache)
        cache_unref(c->cache);
    int closed = c->store ? store_close(c->store, rc < 0 ? NULL : err) : 0;
    caches_destroy(c->caches);
    while (c->free) {
        struct idle_scratch *next = c->free->next;
        cache_scratch_destroy(c->free->scratch);
        free(c->free);
        c->free = next;
    }
    search_lane_pool_fini(&c->lanes);
    pthread_cond_destroy(&c->idle);
    pthread_mutex_destroy(&c->mutex);
    free(c);
    return rc < 0 ? rc : closed;
}

/* ---- waiting for another one's answer ---------------------------------------------------------------------------- */

struct sleeper {
    struct lease_waiter waiter;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool woken;
    enum lease_wake how;
};

static void on_wake(struct lease_waiter *waiter, enum lease_wake how)
{
    struct sleeper *s = waiter->owner;
    pthread_mutex_lock(&s->mutex);
    s->woken = true;
    s->how = how;
    pthread_cond_signal(&s->changed); /* under the mutex: the sleeper and what it stands on may be gone afterwards */
    pthread_mutex_unlock(&s->mutex);
}

static enum lease_wake sleep_until_woken(struct quire_cache *c, struct sleeper *s, uint64_t wait_ms)
{
    uint64_t until_ns = clock_ns() + wait_ms * 1000000;
    struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000), .tv_nsec = (long)(until_ns % 1000000000)};
    int rc = 0;
    pthread_mutex_lock(&s->mutex);
    while (!s->woken && rc == 0)
        rc = pthread_cond_timedwait(&s->changed, &s->mutex, &until);
    if (!s->woken) {
        pthread_mutex_unlock(&s->mutex);
        bool left = cache_cancel(c->cache, &s->waiter);
        pthread_mutex_lock(&s->mutex);
        if (left) {
            s->woken = true;
            s->how = LEASE_TIMEOUT;
        }
        while (!s->woken) /* it is being woken at this moment */
            pthread_cond_wait(&s->changed, &s->mutex);
    }
    enum lease_wake how = s->how;
    pthread_mutex_unlock(&s->mutex);
    return how;
}

/* What came of a wait. The cache may be closing: then it is a miss, of which the answer knows what was found before. */
static int decide_woken(struct quire_cache *c, const struct quire_cache_query *query, struct sleeper *s,
                        enum lease_wake how, struct cache_decision *d, struct quire_error *err)
{
    struct idle_scratch *scratch = NULL;
    struct quire_error reason = {0};
    int rc = how == LEASE_CLOSED ? QUIRE_ECLOSED : library_cache_scratch_take(c, &scratch, &reason);
    if (rc == 0)
        rc = cache_woken(c->cache, scratch->scratch, query, &s->waiter, how, d, &reason);
    library_cache_scratch_put(c, scratch);
    if (rc == QUIRE_ECLOSED) {
        d->answer.reason = "the cache was closed while this caller waited";
        d->answer.waited_ms = (clock_us() - d->begun_us) / 1000;
        return 0;
    }
    if (rc < 0 && how == LEASE_LEAD) /* the lease is given on; another caller's end of it is none of this one's */
        cache_fail(c->cache, text_of(s->waiter.token), NULL);
    if (rc < 0 && err)
        *err = reason;
    return rc;
}

/* ---- questions --------------------------------------------------------------------------------------------------- */

static void search_done(void *owner)
{
    *(bool *)owner = true;
}

/* Runs the search of the disk that a decision wants. */
static int search_now(struct quire_cache *c, struct cache_decision *d, struct quire_error *err)
{
    struct search_lane *lane;
    bool done = false;
    int rc = search_lane_pool_take(&c->lanes, 1, &lane, err);
    if (rc < 0) {
        cache_search_free(d->search);
        return rc;
    }
    cache_search_start(d->search, lane->searcher, search_done, &done);
    search_lane_run(lane, &done);
    search_lane_pool_put(&c->lanes, lane);
    return 0;
}

static int decide(struct quire_cache *c, const struct quire_cache_query *query, struct cache_decision *d,
                  struct quire_error *err)
{
    struct idle_scratch *scratch;
    struct sleeper sleeper = {.waiter = {.wake = on_wake, .owner = &sleeper}};
    pthread_condattr_t monotonic;
    int rc = library_cache_scratch_take(c, &scratch, err);
    if (rc < 0)
        return rc;
    pthread_mutex_init(&sleeper.mutex, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&sleeper.changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    rc = cache_get(c->cache, scratch->scratch, query, &sleeper.waiter, d, err);
    while (rc == CACHE_WANTS_SEARCH) {
        rc = search_now(c, d, err);
        if (rc == 0)
            rc = cache_get_found(c->cache, scratch->scratch, query, &sleeper.waiter, d, err);
    }
    library_cache_scratch_put(c, scratch);
    if (rc == CACHE_WAITS)
        rc = decide_woken(c, query, &sleeper, sleep_until_woken(c, &sleeper, query->wait_ms), d, err);
    pthread_cond_destroy(&sleeper.changed);
    pthread_mutex_destroy(&sleeper.mutex);
    return rc;
}

/* The document of a decision, as the answer's own memory. An enum cache_finished, or an error. */
static int fetch(struct quire_cache *c, struct cache_decision *d, struct quire_error *err)
{
    struct document_read read;
    int rc = library_cache_read(c, &d->at, &read, err);
    bool is_read = rc == LIBRARY_CACHE_READ;
    uint32_t n_chunks = is_read ? cache_chunks(read.bytes, d->at.bytes) : 0;
    size_t before = sizeof(struct quire_bytes) * n_chunks;
    uint8_t *memory = is_read ? malloc(before + d->at.bytes) : NULL;
    if (is_read && !memory)
        rc = error_set(err, QUIRE_ENOMEM, "no memory for an answer of %u bytes", d->at.bytes);
    if (memory)
        memcpy(memory + before, read.bytes, d->at.bytes);
    if (is_read)
        document_read_end(&read);
    if (rc >= 0)
        rc = (int)cache_finish(c->cache, d, memory ? memory + before : NULL, d->at.bytes,
                               (struct quire_bytes *)(void *)memory);
    else if (d->answer.lease[0])
        cache_fail(c->cache, text_of(d->answer.lease), NULL);
    if (rc == CACHE_ANSWERED)
        d->answer.memory = memory;
    else
        free(memory);
    return rc;
}

static int answer_question(struct quire_cache *c, const struct quire_cache_query *query, struct cache_decision *d,
                           struct quire_error *err)
{
    struct quire_cache_query again = *query;
    uint64_t waited_ms = 0;
    if (again.wait_ms > WAIT_MS_LIMIT)
        again.wait_ms = WAIT_MS_LIMIT;
    for (unsigned looks = 0; looks < LOOKS_MAX; looks++) {
        memset(d, 0, sizeof *d);
        int rc = decide(c, &again, d, err);
        if (rc < 0)
            return rc;
        uint64_t waited_now = d->answer.waited_ms;
        waited_ms += waited_now;
        d->answer.waited_ms = waited_ms;
        rc = d->wants_document ? fetch(c, d, err) : CACHE_ANSWERED;
        if (rc != CACHE_ENTRY_GONE)
            return rc;
        again.wait_ms = again.wait_ms > waited_now ? again.wait_ms - waited_now : 0;
    }
    d->answer = (struct quire_cache_answer){.status = QUIRE_CACHE_MISS,
                                            .similarity = -1,
                                            .threshold = d->answer.threshold,
                                            .waited_ms = waited_ms,
                                            .reason = "every entry that could answer went while it was read"};
    return 0;
}

static int check_pieces(const void *pieces, uint32_t n, const char *name, struct quire_error *err)
{
    return n == 0 || pieces ? 0 : error_set(err, QUIRE_EINVALID, "n_%s is %u, %s is NULL", name, n, name);
}

int quire_cache_get(struct quire_cache *c, const struct quire_cache_query *query, struct quire_cache_answer *answer,
                    struct quire_error *err)
{
    struct cache_decision decision;
    if (!query || !answer)
        return error_set(err, QUIRE_EINVALID, "query and answer must be given");
    int rc = check_pieces(query->scope, query->n_scope, "scope", err);
    if (rc == 0)
        rc = check_pieces(query->need, query->n_need, "need", err);
    if (rc == 0)
        rc = library_cache_begin(c, err);
    if (rc < 0)
        return rc;
    rc = library_cache_end(c, answer_question(c, query, &decision, err));
    if (rc == 0)
        *answer = decision.answer;
    return rc;
}

void quire_cache_answer_free(struct quire_cache_answer *answer)
{
    if (!answer)
        return;
    free(answer->memory);
    memset(answer, 0, sizeof *answer);
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

int quire_cache_put(struct quire_cache *c, const struct quire_cache_entry *entry, struct quire_cache_put_result *result,
                    struct quire_error *err)
{
    struct quire_cache_put_result made = {0};
    struct idle_scratch *scratch = NULL;
    if (!entry || !result)
        return error_set(err, QUIRE_EINVALID, "entry and result must be given");
    int rc = check_pieces(entry->scope, entry->n_scope, "scope", err);
    if (rc == 0)
        rc = check_pieces(entry->chunks, entry->n_chunks, "chunks", err);
    if (rc == 0)
        rc = check_pieces(entry->tags, entry->n_tags, "tags", err);
    if (rc == 0)
        rc = library_cache_begin(c, err);
    if (rc < 0)
        return rc;
    rc = library_cache_scratch_take(c, &scratch, err);
    if (rc == 0)
        rc = cache_put(c->cache, scratch->scratch, entry, &made, err);
    library_cache_scratch_put(c, scratch);
    rc = library_cache_written(c, rc, &made.lsn, err);
    if (rc == 0)
        *result = made;
    return rc;
}

int quire_cache_negative(struct quire_cache *c, const struct quire_cache_query *query, uint64_t ttl_ms,
                         struct quire_bytes lease, struct quire_error *err)
{
    if (!query)
        return error_set(err, QUIRE_EINVALID, "query must be given");
    int rc = check_pieces(query->scope, query->n_scope, "scope", err);
    if (rc == 0)
        rc = library_cache_begin(c, err);
    return rc < 0 ? rc : library_cache_end(c, cache_negative(c->cache, query, ttl_ms, lease, err));
}

int quire_cache_fail(struct quire_cache *c, struct quire_bytes lease, struct quire_error *err)
{
    int rc = library_cache_begin(c, err);
    return rc < 0 ? rc : library_cache_end(c, cache_fail(c->cache, lease, err));
}

int quire_cache_renew(struct quire_cache *c, struct quire_bytes lease, uint64_t ms, uint64_t *left_ms,
                      struct quire_error *err)
{
    uint64_t left;
    int rc = library_cache_begin(c, err);
    if (rc < 0)
        return rc;
    rc = library_cache_end(c, cache_renew(c->cache, lease, ms, &left, err));
    if (rc == 0 && left_ms)
        *left_ms = left;
    return rc;
}
