/*
 * test_cache_threads.c - caches under threads: eight that put, ask, invalidate, change entries and categories in a
 * cache so small that every put evicts, while its own thread links and lets expire and checkpoints are written; the
 * same while vectors leave the memory all the time; and a crowd that asks one new question at once.
 *
 * Each value says its group and vector, so that every answer is looked at; afterwards all structures agree, as they are
 * and as they come back from the disk.
 */
#include "cache/core/cache_priv.h"
#include "index/search/search.h"
#include "io/random.h"
#include "tests/cache/support_cache.h"
#include "tests/sanitized.h"
#include "tests/support/fault.h"
#include "tests/temp_folder.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { DIM = 256, THREADS = 8, VECTORS = 4000, SCOPES = 3, OPS = SANITIZED ? 1500 : 8000, CROWD = 1000 };

static int setup(void **state)
{
    *state = support_folder_make();
    return 0;
}

static int teardown(void **state)
{
    support_folder_remove(*state);
    return 0;
}

/* ---- eight threads ----------------------------------------------------------------------------------------------- */

struct shared {
    struct world w;
    float vectors[VECTORS][DIM];
    unsigned n_ops, n_searches; /* of each thread at least; of the disk, wanted */
    atomic_bool stop;
    atomic_uint wrong, served, stored, evicted, unexplained, failures, searches;
};

struct worker {
    struct shared *shared;
    unsigned number;
};

static void fail_once(struct shared *s, const char *what, const struct quire_error *err)
{
    if (atomic_fetch_add(&s->failures, 1) == 0)
        fprintf(stderr, "%s: %s\n", what, err->message);
}

static void put_one(struct worker *worker, struct cache_scratch *scratch, struct random *random)
{
    struct shared *s = worker->shared;
    unsigned vector = (unsigned)random_below(random, VECTORS), scope = (unsigned)random_below(random, SCOPES);
    char tenant[16], value[64], text[32];
    struct quire_error err = {0};
    struct quire_cache_put_result result;
    snprintf(tenant, sizeof tenant, "t%u", scope);
    snprintf(text, sizeof text, "%u", vector);
    snprintf(value, sizeof value, "%u %u", scope, vector);
    struct quire_pair pair = {text_of("tenant"), text_of(tenant)};
    struct quire_bytes chunk = text_of(value);
    struct quire_cache_entry entry = {.category = text_of(vector % 5 ? "k" : "j"),
                                      .scope = &pair,
                                      .n_scope = 1,
                                      .text = text_of(text),
                                      .vector = s->vectors[vector],
                                      .chunks = &chunk,
                                      .n_chunks = 1,
                                      .ttl_ms = vector % 29 ? 0 : 1 + random_below(random, 20)};
    int rc = cache_put(s->w.cache, scratch, &entry, &result, &err);
    if (rc < 0 && rc != QUIRE_ENOTFOUND) /* "j" comes and goes */
        fail_once(s, "put", &err);
    if (rc == 0) {
        atomic_fetch_add(&s->stored, result.outcome <= QUIRE_CACHE_REPLACED);
        atomic_fetch_add(&s->evicted, result.evicted);
    }
}

static void read_done(struct io_op *op, int result, unsigned flags)
{
    (void)flags;
    *(int *)op->owner = result;
}

static void finish(struct shared *s, struct engine *engine, struct cache_decision *decision, unsigned scope,
                   unsigned vector)
{
    struct document_read read = {0};
    struct quire_bytes chunk = {0};
    struct quire_error err;
    int result = INT32_MIN, rc = document_read_begin(cache_documents(s->w.cache), &decision->at, &read, &err);
    if (rc == 0) {
        read.op.done = read_done;
        read.op.owner = &result;
        engine_queue(engine, &read.op);
        while (result == INT32_MIN)
            engine_poll(engine, 1, 10000);
        rc = document_read_bytes(&read, result, &err);
    }
    if (cache_finish(s->w.cache, decision, rc >= 0 ? read.bytes : NULL, decision->at.bytes, &chunk) == 0) {
        char value[64] = "", right[64];
        snprintf(right, sizeof right, "%u %u", scope, vector);
        memcpy(value, decision->answer.value.data,
               decision->answer.value.n_bytes < 63 ? decision->answer.value.n_bytes : 63);
        atomic_fetch_add(&s->served, 1);
        if (strcmp(value, right) != 0 && atomic_fetch_add(&s->wrong, 1) == 0)
            fprintf(stderr, "'%s' instead of '%s'\n", value, right);
    }
    if (rc >= 0 || read.log)
        document_read_end(&read);
}

static void search_done(void *owner)
{
    *(bool *)owner = true;
}

static int get(struct shared *s, struct cache_scratch *scratch, struct engine *engine, struct searcher *searcher,
               const struct quire_cache_query *query, struct cache_decision *decision, struct quire_error *err)
{
    int rc = cache_get(s->w.cache, scratch, query, NULL, decision, err);
    for (bool done = false; rc == CACHE_WANTS_SEARCH; done = false) {
        atomic_fetch_add(&s->searches, 1);
        cache_search_start(decision->search, searcher, search_done, &done);
        while (!done)
            engine_poll(engine, 1, 10000);
        rc = cache_get_found(s->w.cache, scratch, query, NULL, decision, err);
    }
    searcher_drop_retired(searcher);
    return rc;
}

static void ask_one(struct worker *worker, struct cache_scratch *scratch, struct engine *engine,
                    struct searcher *searcher, struct random *random)
{
    struct shared *s = worker->shared;
    unsigned vector = (unsigned)random_below(random, VECTORS), scope = (unsigned)random_below(random, SCOPES);
    char tenant[16], text[32];
    struct quire_error err = {0};
    struct cache_decision decision;
    snprintf(tenant, sizeof tenant, "t%u", scope);
    snprintf(text, sizeof text, "%u", vector);
    struct quire_pair pair = {text_of("tenant"), text_of(tenant)};
    struct quire_cache_query query = {.category = text_of(vector % 5 ? "k" : "j"),
                                      .scope = &pair,
                                      .n_scope = 1,
                                      .vector = s->vectors[vector],
                                      .no_lease = true};
    if (random_below(random, 2))
        query.text = text_of(text);
    int rc = get(s, scratch, engine, searcher, &query, &decision, &err);
    if (rc < 0 && rc != QUIRE_ENOTFOUND)
        fail_once(s, "get", &err);
    if (rc != 0)
        return;
    atomic_fetch_add(&s->unexplained, decision.answer.reason == NULL);
    if (decision.wants_document)
        finish(s, engine, &decision, scope, vector);
}

static void disturb(struct worker *worker, struct cache_scratch *scratch, struct random *random)
{
    struct cache *cache = worker->shared->w.cache;
    struct quire_bytes names[2] = {text_of("tenant"), text_of("t1")};
    struct cache_entry_info some[8];
    struct quire_error err;
    uint64_t n, lsn, next;
    const struct quire_cache_selector scope = {.by = QUIRE_CACHE_BY_SCOPE, .names = names, .n = 2},
                                      near = {.by = QUIRE_CACHE_BY_NEAR,
                                              .vector = worker->shared->vectors[random_below(random, VECTORS)],
                                              .similarity = 0.9};
    int found = cache_scan(cache, (struct quire_bytes){NULL, 0}, random_below(random, 500), some, 8, &next, &err);
    switch (random_below(random, 400)) {
    case 0:
        cache_invalidate(cache, scratch, &scope, false, &n, &lsn, &err);
        break;
    case 1:
        cache_drop_category(cache, text_of("j"), &lsn, &err);
        world_category(&worker->shared->w, "j", "SIM 0.9 STALE 5");
        break;
    case 2:
        cache_invalidate(cache, scratch, &near, false, &n, &lsn, &err);
        break;
    default:
        for (int i = 0; i < found; i++)
            switch (random_below(random, 5)) {
            case 0:
                cache_touch(cache, some[i].id, 5, &lsn, &err);
                break;
            case 1:
                if (some[i].pinned || random_below(random, 16) == 0)
                    cache_pin(cache, some[i].id, !some[i].pinned, &lsn, &err);
                break;
            case 2:
                cache_feedback(cache, some[i].id, false, 0.95, &lsn, &err);
                break;
            case 3:
                cache_remove(cache, some[i].id, &lsn, &err);
                break;
            }
    }
}

/* Whether there is an i-th step: where vectors are sealed as long as segments are built, so that some are searched. */
static bool goes_on(struct shared *s, unsigned i)
{
    return i < s->n_ops || (i < 50 * s->n_ops && atomic_load(&s->searches) < s->n_searches);
}

static void *work(void *context)
{
    struct worker *worker = context;
    struct random random;
    struct cache_scratch *scratch;
    struct engine *engine;
    struct searcher *searcher;
    struct engine_config config = {.kind = QUIRE_ENGINE_THREADS, .threads = 1};
    struct quire_error err = {0};
    random_init(&random, 100 + worker->number);
    if (cache_scratch_create(&scratch, &err) < 0 || engine_create(&config, &engine, &err) < 0 ||
        searcher_create(engine, &(struct searcher_config){.tasks_max = 8}, &searcher, &err) < 0) {
        fail_once(worker->shared, "thread", &err);
        return NULL;
    }
    for (unsigned i = 0; goes_on(worker->shared, i); i++) {
        unsigned what = (unsigned)random_below(&random, 100);
        if (what < 50)
            put_one(worker, scratch, &random);
        else if (what < 96)
            ask_one(worker, scratch, engine, searcher, &random);
        else
            disturb(worker, scratch, &random);
    }
    searcher_destroy(searcher);
    engine_destroy(engine);
    cache_scratch_destroy(scratch);
    return NULL;
}

static void *write_checkpoints(void *context)
{
    struct shared *s = context;
    struct quire_error err = {0};
    while (!atomic_load(&s->stop)) {
        if (store_checkpoint(s->w.store, &err) < 0)
            fail_once(s, "checkpoint", &err);
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    }
    return NULL;
}

static void threads_agree(const char *folder, uint32_t seal_rows, unsigned n_ops)
{
    struct shared *s = calloc(1, sizeof *s);
    struct worker workers[THREADS];
    pthread_t threads[THREADS + 1];
    s->n_ops = n_ops;
    s->n_searches = seal_rows ? n_ops / 2 : 0;
    for (unsigned i = 0; i < VECTORS; i++)
        vector_make(s->vectors[i], DIM, i);
    world_make(&s->w, folder, &(struct cache_config){.dim = DIM, .memory_bytes = 1 << 20},
               &(struct world_options){.sync = JOURNAL_NO, .thread = true, .seal_rows = seal_rows});
    world_category(&s->w, "k", "SIM 0.9");
    world_category(&s->w, "j", "SIM 0.9 STALE 5");
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){s, i};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    assert_int_equal(pthread_create(&threads[THREADS], NULL, write_checkpoints, s), 0);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    atomic_store(&s->stop, true);
    pthread_join(threads[THREADS], NULL);
    assert_int_equal(atomic_load(&s->failures), 0);
    assert_int_equal(atomic_load(&s->wrong), 0);
    assert_int_equal(atomic_load(&s->unexplained), 0);
    assert_true(atomic_load(&s->served) > n_ops / 10 && atomic_load(&s->stored) > n_ops);
    assert_true(seal_rows == 0 ? atomic_load(&s->searches) == 0 : atomic_load(&s->searches) >= s->n_searches);
    struct quire_cache_stats stats = stats_of(&s->w, "");
    if (!SANITIZED && seal_rows == 0 && atomic_load(&s->evicted) < n_ops)
        fail_msg(
            "%u puts evicted %u; expired %llu, removed %llu, invalidated %llu, replaced %llu; %llu entries are left",
            atomic_load(&s->stored), atomic_load(&s->evicted), (unsigned long long)stats.expired,
            (unsigned long long)stats.removed, (unsigned long long)stats.invalidated,
            (unsigned long long)stats.replaced, (unsigned long long)stats.entries);
    for (unsigned i = 0; i < s->w.cache->n_categories; i++)
        if (s->w.cache->categories[i]->dropped)
            assert_int_equal(s->w.cache->quotas[i].used.entries, 0);
    s->w.options.thread = false; /* the check is of what stands still */
    s->w.now_ms = s->w.cache->of->options.clock_ms(s->w.cache->of->options.clock_context);
    for (int round = 0; round < 2; round++) {
        world_reopen(&s->w, round);
        world_check(&s->w);
        world_work(&s->w);
        world_check(&s->w);
    }
    world_close(&s->w);
    free(s);
}

static void eight_threads_agree(void **state)
{
    threads_agree(*state, 0, OPS);
}

static void eight_threads_agree_while_vectors_are_sealed(void **state)
{
    threads_agree(*state, 100, OPS / 5);
}

/* ---- a flash crowd ----------------------------------------------------------------------------------------------- */

struct waiting {
    struct lease_waiter waiter;
    struct cache_decision decision;
    struct crowd *crowd;
    enum lease_wake how;
    bool waits, woken;
};

struct crowd {
    struct world w;
    float v[DIM], near[CROWD][DIM];
    struct waiting waiting[CROWD];
    struct quire_cache_query queries[CROWD];
    char texts[CROWD][32];
    unsigned leases;
};

static void wake(struct lease_waiter *waiter, enum lease_wake how)
{
    struct waiting *waiting = waiter->owner;
    waiting->how = how;
    waiting->woken = true;
}

/* All ask; the token of the one that shall answer. */
static void ask_all(struct crowd *c, bool exact, char token[QUIRE_CACHE_TOKEN_BYTES])
{
    struct quire_error err = {0};
    for (unsigned i = 0; i < CROWD; i++) {
        struct waiting *waiting = &c->waiting[i];
        *waiting = (struct waiting){.crowd = c};
        waiting->waiter.wake = wake;
        waiting->waiter.owner = waiting;
        snprintf(c->texts[i], sizeof c->texts[i], exact ? "the question" : "wording number %u", exact ? 0 : i);
        vector_near(c->near[i], c->v, DIM, 0.97, i);
        c->queries[i] = (struct quire_cache_query){.category = text_of("k"),
                                                   .text = text_of(c->texts[i]),
                                                   .vector = i && !exact ? c->near[i] : c->v,
                                                   .wait_ms = 60000};
        int rc = cache_get(c->w.cache, c->w.scratch, &c->queries[i], &waiting->waiter, &waiting->decision, &err);
        assert_true(rc == 0 || rc == 1);
        waiting->waits = rc == 1;
        if (rc == 0 && waiting->decision.answer.lease[0]) {
            c->leases++;
            memcpy(token, waiting->decision.answer.lease, QUIRE_CACHE_TOKEN_BYTES);
        }
        assert_int_equal(waiting->waits, i > 0);
    }
}

/* Those who were woken go on: how many were served; a token that one of them was given goes to `token`. */
static unsigned go_on(struct crowd *c, char token[QUIRE_CACHE_TOKEN_BYTES])
{
    struct quire_error err = {0};
    unsigned served = 0;
    for (unsigned i = 0; i < CROWD; i++) {
        struct waiting *waiting = &c->waiting[i];
        if (!waiting->woken)
            continue;
        waiting->woken = waiting->waits = false;
        assert_int_equal(cache_woken(c->w.cache, c->w.scratch, &c->queries[i], &waiting->waiter, waiting->how,
                                     &waiting->decision, &err),
                         0);
        const struct quire_cache_answer *answer = &waiting->decision.answer;
        if (answer->lease[0]) {
            c->leases++;
            memcpy(token, answer->lease, QUIRE_CACHE_TOKEN_BYTES);
        }
        served += answer->status == QUIRE_CACHE_EXACT || answer->status == QUIRE_CACHE_HIT;
    }
    return served;
}

static void answer_it(struct crowd *c, unsigned who, const char *token)
{
    struct quire_cache_put_result result;
    struct quire_error err = {0};
    struct quire_cache_entry entry = {
        .text = c->queries[who].text, .vector = c->queries[who].vector, .lease = text_of(token)};
    assert_int_equal(put(&c->w, &entry, "the answer", &result, &err), 0);
    assert_int_equal(result.outcome, QUIRE_CACHE_STORED);
}

static void a_crowd_calls_the_model_once(void **state)
{
    struct crowd *c = calloc(1, sizeof *c);
    char token[QUIRE_CACHE_TOKEN_BYTES] = "";
    world_open(&c->w, *state, DIM);
    world_category(&c->w, "k", "SIM 0.9 LEASE 10000 GUARD none");
    for (unsigned kind = 0; kind < 4; kind++) {
        bool exact = kind % 2, dies = kind / 2;
        unsigned leader = 0;
        c->leases = 0;
        vector_make(c->v, DIM, kind);
        ask_all(c, exact, token);
        assert_int_equal(c->leases, 1);
        if (dies) { /* nobody hears of the leader again */
            c->w.now_ms += 10001;
            world_work(&c->w);
            assert_int_equal(go_on(c, token), 0);
            assert_int_equal(c->leases, 2);
            leader = 1; /* the one that has waited longest */
        }
        answer_it(c, leader, token);
        assert_int_equal(go_on(c, token), CROWD - 1 - (dies ? 1 : 0));
        assert_int_equal(c->leases, dies ? 2 : 1);
        for (unsigned i = 0; i < CROWD; i++)
            assert_false(c->waiting[i].waits && i > 1);
        const struct quire_cache_selector all = {.by = QUIRE_CACHE_BY_ALL};
        invalidate(&c->w, &all, false);
    }
    world_check(&c->w);
    world_close(&c->w);
    free(c);
}

/* The same from a thousand threads' worth of calls at once: eight threads ask, one lease is given. */
struct asker {
    struct crowd *crowd;
    unsigned first;
    atomic_uint *leases;
};

static void *ask_at_once(void *context)
{
    struct asker *asker = context;
    struct crowd *c = asker->crowd;
    struct cache_scratch *scratch;
    struct quire_error err = {0};
    if (cache_scratch_create(&scratch, &err) < 0)
        return NULL;
    for (unsigned i = asker->first; i < CROWD; i += THREADS) {
        struct waiting *waiting = &c->waiting[i];
        waiting->waiter.wake = wake;
        waiting->waiter.owner = waiting;
        c->queries[i] = (struct quire_cache_query){
            .category = text_of("k"), .text = text_of("the question"), .vector = c->v, .wait_ms = 60000};
        int rc = cache_get(c->w.cache, scratch, &c->queries[i], &waiting->waiter, &waiting->decision, &err);
        waiting->waits = rc == 1;
        if (rc == 0 && waiting->decision.answer.lease[0])
            atomic_fetch_add(asker->leases, 1);
    }
    cache_scratch_destroy(scratch);
    return NULL;
}

static void threads_get_one_lease(void **state)
{
    struct crowd *c = calloc(1, sizeof *c);
    struct asker askers[THREADS];
    pthread_t threads[THREADS];
    atomic_uint leases = 0;
    unsigned leader = 0;
    char token[QUIRE_CACHE_TOKEN_BYTES] = "";
    world_open(&c->w, *state, DIM);
    world_category(&c->w, "k", "SIM 0.9 GUARD none");
    vector_make(c->v, DIM, 1);
    for (unsigned i = 0; i < THREADS; i++) {
        askers[i] = (struct asker){c, i, &leases};
        assert_int_equal(pthread_create(&threads[i], NULL, ask_at_once, &askers[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&leases), 1);
    while (c->waiting[leader].waits)
        leader++;
    answer_it(c, leader, c->waiting[leader].decision.answer.lease);
    assert_int_equal(go_on(c, token), CROWD - 1);
    world_close(&c->w);
    free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(eight_threads_agree, setup, teardown),
        cmocka_unit_test_setup_teardown(eight_threads_agree_while_vectors_are_sealed, setup, teardown),
        cmocka_unit_test_setup_teardown(a_crowd_calls_the_model_once, setup, teardown),
        cmocka_unit_test_setup_teardown(threads_get_one_lease, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
