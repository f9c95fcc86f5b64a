/* support_cache.c - see support_cache.h; vectors are drawn so that any two are nearly orthogonal. */
#include "tests/cache/support_cache.h"
#include "cache/core/cache_priv.h"
#include "index/search/search.h"
#include "io/random.h"
#include "tests/support/fault.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <cmocka.h>

static uint64_t world_clock(void *context)
{
    struct world *world = context;
    return atomic_load(&world->now_ms) - atomic_load(&world->set_back_ms);
}

static uint64_t world_steady(void *context)
{
    struct world *world = context;
    return atomic_load(&world->now_ms);
}

/* On an error what was made goes again. */
static int open_folder(struct world *world, struct quire_error *err)
{
    const struct world_options *options = &world->options;
    struct caches_options caches = {.fs = options->fs,
                                    .folder = world->folder,
                                    .clock_ms = options->thread ? NULL : world_clock,
                                    .steady_ms = options->thread ? NULL : world_steady,
                                    .clock_context = world,
                                    .seed = options->thread ? 0 : 7,
                                    .seal_rows = options->seal_rows,
                                    .seal_always = options->seal_rows > 0,
                                    .told = options->told,
                                    .told_context = options->told_context,
                                    .no_thread = !options->thread};
    int rc = caches_create(&caches, &world->caches, err);
    if (rc < 0)
        return rc;
    struct store_host host = {
        .restore = caches_restore, .replay = caches_replay, .save = caches_save, .context = world->caches};
    struct store_options store = {.fs = options->fs, .no_maintenance = true, .sync = options->sync};
    rc = store_open(world->folder, &store, &host, &world->store, &world->report, err);
    if (rc == 0) {
        rc = caches_begin(world->caches, store_journal(world->store), err);
        if (rc < 0) {
            caches_end(world->caches);
            store_close(world->store, NULL);
        }
    }
    if (rc < 0)
        caches_destroy(world->caches);
    return rc;
}

static void open_rest(struct world *world)
{
    struct quire_error err = {0};
    struct engine_config config = {.kind = QUIRE_ENGINE_THREADS, .threads = 1};
    assert_int_equal(cache_scratch_create(&world->scratch, &err), 0);
    assert_int_equal(world->options.fs ? engine_fault_create(&config, 5, &world->engine, &err)
                                       : engine_create(&config, &world->engine, &err),
                     0);
    assert_int_equal(searcher_create(world->engine, &(struct searcher_config){.tasks_max = 8}, &world->searcher, &err),
                     0);
    world->cache = caches_find(world->caches, text_of("c"));
}

static void init(struct world *world, const char *folder, uint32_t dim, uint64_t now_ms,
                 const struct world_options *options)
{
    memset(world, 0, sizeof *world);
    snprintf(world->folder, sizeof world->folder, "%s", folder);
    world->now_ms = now_ms;
    world->dim = dim;
    world->options = *options;
}

int world_try_open(struct world *world, const char *folder, uint32_t dim, uint64_t now_ms,
                   const struct world_options *options, struct quire_error *err)
{
    init(world, folder, dim, now_ms, options);
    int rc = open_folder(world, err);
    if (rc == 0)
        open_rest(world);
    return rc;
}

void world_make(struct world *world, const char *folder, const struct cache_config *config,
                const struct world_options *options)
{
    struct quire_error err = {0};
    struct cache_config made = *config;
    uint64_t lsn;
    init(world, folder, made.dim, BASE_MS + 1000000, options);
    if (made.name.n_bytes == 0)
        made.name = text_of("c");
    if (open_folder(world, &err) < 0 || caches_add(world->caches, &made, &lsn, &err) < 0)
        fail_msg("%s", err.message);
    open_rest(world);
    assert_non_null(world->cache);
}

void world_open_with(struct world *world, const char *folder, const struct cache_config *config)
{
    world_make(world, folder, config, &(struct world_options){.sync = JOURNAL_NO});
}

void world_open(struct world *world, const char *folder, uint32_t dim)
{
    world_open_with(world, folder, &(struct cache_config){.dim = dim});
}

static int end(struct world *world, struct quire_error *err)
{
    searcher_destroy(world->searcher);
    engine_destroy(world->engine);
    cache_scratch_destroy(world->scratch);
    if (world->cache)
        cache_unref(world->cache);
    caches_end(world->caches);
    int rc = store_close(world->store, err);
    caches_destroy(world->caches);
    return rc;
}

void world_abandon(struct world *world)
{
    end(world, NULL);
}

void world_close(struct world *world)
{
    struct quire_error err = {0};
    if (end(world, &err) < 0)
        fail_msg("%s", err.message);
}

void world_open_again(struct world *world)
{
    struct quire_error err = {0};
    if (open_folder(world, &err) < 0)
        fail_msg("%s", err.message);
    open_rest(world);
    assert_non_null(world->cache);
}

void world_reopen(struct world *world, bool checkpoint)
{
    struct quire_error err = {0};
    if (checkpoint && store_checkpoint(world->store, &err) < 0)
        fail_msg("%s", err.message);
    world_close(world);
    world_open_again(world);
}

void world_work(struct world *world)
{
    for (unsigned i = 0; i < 100; i++)
        caches_work(world->caches);
}

void world_category(struct world *world, const char *name, const char *words)
{
    struct quire_bytes list[64];
    struct quire_error err = {0};
    uint32_t n = 0;
    uint64_t lsn = 0;
    for (const char *at = words; *at; at += strspn(at, " ")) {
        size_t bytes = strcspn(at, " ");
        list[n++] = (struct quire_bytes){at, bytes};
        at += bytes;
    }
    if (cache_set_category(world->cache, text_of(name), list, n, &lsn, &err) < 0)
        fail_msg("%s: %s", words, err.message);
}

void vector_make(float *out, uint32_t dim, uint64_t seed)
{
    struct random random;
    double norm = 0;
    random_init(&random, seed * 7919 + 1);
    for (uint32_t i = 0; i < dim; i++) {
        double sum = -2;
        for (unsigned k = 0; k < 4; k++)
            sum += (double)(random_next(&random) >> 11) * 0x1p-53;
        out[i] = (float)sum;
        norm += sum * sum;
    }
    for (uint32_t i = 0; i < dim; i++)
        out[i] /= (float)sqrt(norm);
}

void vector_near(float *out, const float *vector, uint32_t dim, double cosine, uint64_t seed)
{
    float *other = malloc(sizeof *other * dim);
    double dot = 0, norm = 0;
    vector_make(other, dim, seed + 1000003);
    for (uint32_t i = 0; i < dim; i++)
        dot += (double)other[i] * (double)vector[i];
    for (uint32_t i = 0; i < dim; i++) {
        other[i] -= (float)dot * vector[i];
        norm += (double)other[i] * (double)other[i];
    }
    double sine = sqrt(1 - cosine * cosine) / sqrt(norm);
    for (uint32_t i = 0; i < dim; i++)
        out[i] = (float)(cosine * (double)vector[i] + sine * (double)other[i]);
    free(other);
}

static void read_done(struct io_op *op, int result, unsigned flags)
{
    (void)flags;
    *(int *)op->owner = result;
}

/* 0: answered; 1: it went: look again. */
static int read_document(struct world *world, struct cache_decision *decision, struct asked *out)
{
    struct quire_error err = {0};
    struct document_log *log = cache_documents(world->cache);
    int result = INT32_MIN, rc = document_read_begin(log, &decision->at, &out->read, &err);
    if (rc == 0) {
        out->read.op.done = read_done;
        out->read.op.owner = &result;
        engine_queue(world->engine, &out->read.op);
        while (result == INT32_MIN)
            engine_poll(world->engine, 1, 10000);
        rc = document_read_bytes(&out->read, result, &err);
    }
    const uint8_t *bytes = rc >= 0 ? out->read.bytes : NULL;
    out->chunks = calloc(cache_chunks(bytes, decision->at.bytes) + 1u, sizeof *out->chunks);
    return (int)cache_finish(world->cache, decision, bytes, decision->at.bytes, out->chunks);
}

static void search_done(void *owner)
{
    *(bool *)owner = true;
}

int search_and_decide(struct world *world, const struct quire_cache_query *query, struct lease_waiter *waiter,
                      struct cache_decision *decision, struct quire_error *err)
{
    int rc = cache_get(world->cache, world->scratch, query, waiter, decision, err);
    for (bool done = false; rc == CACHE_WANTS_SEARCH; done = false) {
        world->n_searches++;
        cache_search_start(decision->search, world->searcher, search_done, &done);
        while (!done)
            engine_poll(world->engine, 1, 10000);
        rc = cache_get_found(world->cache, world->scratch, query, waiter, decision, err);
    }
    return rc;
}

int ask(struct world *world, const struct quire_cache_query *query, struct asked *out, struct quire_error *err)
{
    struct cache_decision decision;
    for (unsigned i = 0;; i++) {
        memset(out, 0, sizeof *out);
        int rc = search_and_decide(world, query, NULL, &decision, err);
        if (rc < 0)
            return rc;
        bool again = decision.wants_document && read_document(world, &decision, out);
        out->answer = decision.answer;
        size_t n = out->answer.value.n_bytes < 255 ? out->answer.value.n_bytes : 255;
        if (n)
            memcpy(out->value, out->answer.value.data, n);
        if (!again)
            return 0;
        asked_end(out);
        assert_in_range(i, 0, 3);
    }
}

void asked_end(struct asked *asked)
{
    if (asked->read.log)
        document_read_end(&asked->read);
    free(asked->chunks);
    memset(asked, 0, sizeof *asked);
}

enum quire_cache_status ask_simple(struct world *world, const char *text, const float *vector, char *value)
{
    struct asked asked;
    struct quire_error err = {0};
    struct quire_cache_query query = {.category = text_of("k"), .text = text_of(text ? text : ""), .vector = vector};
    if (ask(world, &query, &asked, &err) < 0)
        fail_msg("%s", err.message);
    enum quire_cache_status status = asked.answer.status;
    if (value)
        memcpy(value, asked.value, sizeof asked.value);
    asked_end(&asked);
    return status;
}

int put(struct world *world, struct quire_cache_entry *entry, const char *value, struct quire_cache_put_result *result,
        struct quire_error *err)
{
    struct quire_bytes chunk = text_of(value);
    if (entry->category.n_bytes == 0)
        entry->category = text_of("k");
    if (entry->n_chunks == 0) {
        entry->chunks = &chunk;
        entry->n_chunks = 1;
    }
    return cache_put(world->cache, world->scratch, entry, result, err);
}

uint64_t put_simple(struct world *world, const char *text, const float *vector, const char *value)
{
    struct quire_cache_entry entry = {.text = text_of(text ? text : ""), .vector = vector};
    struct quire_cache_put_result result;
    struct quire_error err = {0};
    if (put(world, &entry, value, &result, &err) < 0)
        fail_msg("%s", err.message);
    assert_true(result.outcome == QUIRE_CACHE_STORED || result.outcome == QUIRE_CACHE_REPLACED);
    return result.id;
}

void lease_of(struct world *world, const char *text, const float *vector, char token[QUIRE_CACHE_TOKEN_BYTES])
{
    struct asked asked;
    struct quire_error err = {0};
    struct quire_cache_query query = {.category = text_of("k"), .text = text_of(text ? text : ""), .vector = vector};
    if (ask(world, &query, &asked, &err) < 0)
        fail_msg("%s", err.message);
    memcpy(token, asked.answer.lease, QUIRE_CACHE_TOKEN_BYTES);
    asked_end(&asked);
    assert_true(token[0]);
}

uint64_t invalidate(struct world *world, const struct quire_cache_selector *selector, bool dry_run)
{
    struct quire_error err = {0};
    uint64_t n = 0, lsn;
    if (cache_invalidate(world->cache, world->scratch, selector, dry_run, &n, &lsn, &err) < 0)
        fail_msg("%s", err.message);
    return n;
}

struct quire_cache_stats stats_of(struct world *world, const char *category)
{
    struct quire_cache_stats stats;
    struct quire_error err = {0};
    if (cache_get_stats(world->cache, text_of(category), &stats, &err) < 0)
        fail_msg("%s", err.message);
    return stats;
}

void world_check(struct world *world)
{
    struct quire_error reason = {0};
    if (cache_check(world->cache, &reason) < 0)
        fail_msg("%s", reason.message);
}
