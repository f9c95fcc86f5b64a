/* Edges of lookups: who waits while a category or a cache goes, clocks that go back, candidates that are seen twice. */
#include "cache/core/cache_priv.h"
#include "tests/cache/support_cache.h"
#include "tests/temp_folder.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define DIM 64

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

struct waiting {
    struct lease_waiter waiter;
    struct cache_decision decision;
    bool woken;
    enum lease_wake how;
};

static void on_wake(struct lease_waiter *waiter, enum lease_wake how)
{
    struct waiting *w = waiter->owner;
    w->woken = true;
    w->how = how;
}

static void count_wake(struct lease_waiter *waiter, enum lease_wake how)
{
    bool *woken = waiter->owner;
    (void)how;
    assert_false(*woken);
    *woken = true;
}

/* Asks and has to wait. */
static void wait_for(struct world *w, const struct quire_cache_query *query, struct waiting *out)
{
    struct quire_error err = {0};
    memset(out, 0, sizeof *out);
    out->waiter.wake = on_wake;
    out->waiter.owner = out;
    assert_int_equal(cache_get(w->cache, w->scratch, query, &out->waiter, &out->decision, &err), 1);
    assert_false(out->woken);
}

static char *lead(struct world *w, const struct quire_cache_query *query, struct cache_decision *decision)
{
    struct quire_error err = {0};
    assert_int_equal(cache_get(w->cache, w->scratch, query, NULL, decision, &err), 0);
    assert_int_equal(decision->answer.status, QUIRE_CACHE_MISS);
    assert_true(decision->answer.lease[0]);
    return decision->answer.lease;
}

static void who_waits_is_woken_when_the_cache_is_dropped(void **state)
{
    struct world w;
    struct waiting waiting;
    struct cache_decision leader;
    struct quire_error err = {0};
    float v[DIM];
    uint64_t lsn;
    world_open(&w, *state, DIM);
    world_category(&w, "k", "SIM 0.9");
    vector_make(v, DIM, 1);
    struct quire_cache_query q = {.category = text_of("k"), .text = text_of("a"), .vector = v, .wait_ms = 1000000};
    lead(&w, &q, &leader);
    wait_for(&w, &q, &waiting);
    assert_int_equal(caches_drop(w.caches, text_of("c"), &lsn, &err), 0);
    assert_true(waiting.woken);
    assert_int_equal(waiting.how, LEASE_CLOSED);
    world_close(&w);
}

/* Whoever is given the lease and fails to look again must not keep the others waiting for its deadline. */
static void a_lease_goes_on_when_its_new_leader_cannot_look(void **state)
{
    struct world w;
    struct waiting first, second;
    struct cache_decision leader;
    struct quire_error err = {0};
    float v[DIM];
    uint64_t lsn;
    world_open(&w, *state, DIM);
    world_category(&w, "k", "SIM 0.9");
    vector_make(v, DIM, 1);
    struct quire_cache_query q = {.category = text_of("k"), .text = text_of("a"), .vector = v, .wait_ms = 1000000};
    char *token = lead(&w, &q, &leader);
    wait_for(&w, &q, &first);
    wait_for(&w, &q, &second);
    assert_int_equal(cache_drop_category(w.cache, text_of("k"), &lsn, &err), 0);
    assert_int_equal(cache_fail(w.cache, text_of(token), &err), 0);
    assert_true(first.woken);
    assert_int_equal(first.how, LEASE_LEAD);
    assert_false(second.woken);
    assert_int_equal(cache_woken(w.cache, w.scratch, &q, &first.waiter, first.how, &first.decision, &err),
                     QUIRE_ENOTFOUND);
    assert_true(second.woken);
    assert_int_equal(second.how, LEASE_LEAD);
    world_close(&w);
}

/* Who may wait no more is told so, and does not wait. */
static void waiters_are_limited(void **state)
{
    enum { WAITERS_MAX = 65536 }; /* as docs/cache.md says */
    struct world w;
    struct cache_decision leader, last;
    struct quire_error err = {0};
    float v[DIM];
    world_open(&w, *state, DIM);
    world_category(&w, "k", "SIM 0.9");
    vector_make(v, DIM, 1);
    struct quire_cache_query q = {.category = text_of("k"), .text = text_of("a"), .vector = v, .wait_ms = 1000000};
    char *token = lead(&w, &q, &leader);
    struct lease_waiter *waiters = calloc(WAITERS_MAX + 1, sizeof *waiters);
    bool *woken = calloc(WAITERS_MAX + 1, sizeof *woken);
    assert_true(waiters && woken);
    for (unsigned i = 0; i <= WAITERS_MAX; i++) {
        waiters[i].wake = count_wake;
        waiters[i].owner = &woken[i];
        int outcome = cache_get(w.cache, w.scratch, &q, &waiters[i], &last, &err);
        assert_int_equal(outcome, i < WAITERS_MAX ? CACHE_WAITS : CACHE_DECIDED);
    }
    assert_int_equal(last.answer.status, QUIRE_CACHE_MISS);
    assert_string_equal(last.answer.reason,
                        "this cache has as many leases or waiters as it may: no lease, and no wait");
    assert_true(last.answer.lease[0] == 0);
    /* one leads now, the others go on waiting; the place that is free is taken */
    assert_int_equal(cache_fail(w.cache, text_of(token), &err), 0);
    assert_true(woken[0] && !woken[1]);
    assert_int_equal(cache_get(w.cache, w.scratch, &q, &waiters[WAITERS_MAX], &last, &err), CACHE_WAITS);
    world_close(&w);
    for (unsigned i = 0; i <= WAITERS_MAX; i++)
        assert_true(woken[i]);
    free(waiters);
    free(woken);
}

static void a_clock_that_goes_back_makes_nothing_old(void **state)
{
    struct world w;
    struct asked asked;
    struct quire_error err = {0};
    float v[DIM];
    world_open(&w, *state, DIM);
    world_category(&w, "k", "SIM 0.9");
    vector_make(v, DIM, 1);
    put_simple(&w, "a", v, "1");
    w.set_back_ms += 1000;
    struct quire_cache_query q = {.category = text_of("k"), .text = text_of("a"), .vector = v, .max_age_ms = 5000};
    assert_int_equal(ask(&w, &q, &asked, &err), 0);
    assert_int_equal(asked.answer.status, QUIRE_CACHE_EXACT);
    assert_int_equal(asked.answer.age_ms, 0);
    asked_end(&asked);
    w.set_back_ms -= 10000;
    assert_int_equal(ask(&w, &q, &asked, &err), 0);
    assert_int_equal(asked.answer.status, QUIRE_CACHE_MISS);
    asked_end(&asked);
    world_close(&w);
}

/* A leader that says nothing is taken for dead after the lease of its category, whatever is done to the time of day. */
static void leases_end_when_the_time_of_day_is_set_back(void **state)
{
    struct world w;
    struct waiting waiting;
    struct asked asked;
    struct cache_decision leader;
    struct quire_error err = {0};
    float v[DIM];
    world_open(&w, *state, DIM);
    world_category(&w, "k", "SIM 0.9 LEASE 3000");
    vector_make(v, DIM, 1);
    struct quire_cache_query q = {.category = text_of("k"), .text = text_of("a"), .vector = v, .wait_ms = 10000};
    lead(&w, &q, &leader);
    w.set_back_ms = 25 * 3600 * 1000;
    w.now_ms += 1000;
    wait_for(&w, &q, &waiting);
    w.now_ms += 2001;
    world_work(&w);
    assert_true(waiting.woken);
    assert_int_equal(waiting.how, LEASE_LEAD);
    assert_int_equal(cache_woken(w.cache, w.scratch, &q, &waiting.waiter, waiting.how, &waiting.decision, &err),
                     CACHE_DECIDED);
    assert_in_range(waiting.decision.answer.lease_ms, 2000, 3000);
    /* and one that nobody waits for */
    w.set_back_ms = 0;
    w.now_ms += 3001;
    q.wait_ms = 0;
    assert_int_equal(ask(&w, &q, &asked, &err), 0);
    assert_true(asked.answer.lease[0]);
    asked_end(&asked);
    world_close(&w);
}

static void a_candidate_is_counted_once(void **state)
{
    enum { N = 20 }; /* more than the first search looks at */
    struct world w;
    struct quire_cache_stats stats;
    struct quire_error err = {0};
    float v[DIM], near[DIM];
    char text[64];
    world_open(&w, *state, DIM);
    world_category(&w, "k", "SIM 0.9");
    vector_make(v, DIM, 1);
    for (unsigned i = 0; i < N; i++) {
        vector_near(near, v, DIM, 0.97, i + 2);
        snprintf(text, sizeof text, "what is %u plus 500", i + 10);
        put_simple(&w, text, near, "x");
    }
    assert_int_equal(ask_simple(&w, "what is 99 plus 500", v, NULL), QUIRE_CACHE_MISS);
    assert_int_equal(cache_get_stats(w.cache, text_of("k"), &stats, &err), 0);
    assert_int_equal(stats.guarded, N);
    world_close(&w);
}

static enum quire_cache_status ask_tenant(struct world *w, const char *tenant, const char *text, const float *vector)
{
    struct asked asked;
    struct quire_error err = {0};
    struct quire_pair scope = {text_of("tenant"), text_of(tenant)};
    struct quire_cache_query q = {
        .category = text_of("k"), .text = text_of(text), .vector = vector, .scope = &scope, .n_scope = 1};
    assert_int_equal(ask(w, &q, &asked, &err), 0);
    enum quire_cache_status status = asked.answer.status;
    asked_end(&asked);
    return status;
}

static void put_tenant(struct world *w, const char *tenant, const char *text, const float *vector)
{
    struct quire_cache_put_result result;
    struct quire_error err = {0};
    struct quire_pair scope = {text_of("tenant"), text_of(tenant)};
    struct quire_cache_entry entry = {.text = text_of(text), .vector = vector, .scope = &scope, .n_scope = 1};
    assert_int_equal(put(w, &entry, text, &result, &err), 0);
    assert_int_equal(result.outcome, QUIRE_CACHE_STORED);
}

/* Entries that expired are not logged as gone, and their group's number is given to another scope. A longer STALE must
 * not bring them back there. */
static void a_number_of_a_group_is_not_its_scope(void **state)
{
    struct world w;
    float v[3][DIM];
    world_open(&w, *state, DIM);
    world_category(&w, "k", "SIM 0.9 TTL 1000 JITTER 0");
    for (unsigned i = 0; i < 3; i++)
        vector_make(v[i], DIM, i);
    put_tenant(&w, "acme", "first", v[0]);
    put_tenant(&w, "acme", "second", v[1]);
    w.now_ms += 2000;
    world_work(&w);
    put_tenant(&w, "emca", "third", v[2]);
    world_category(&w, "k", "STALE 1000000");
    for (int checkpoint = 0; checkpoint < 2; checkpoint++) {
        world_reopen(&w, checkpoint);
        world_check(&w);
        assert_int_equal(ask_tenant(&w, "emca", "first", v[0]), QUIRE_CACHE_MISS);
        assert_int_equal(ask_tenant(&w, "emca", "second", v[1]), QUIRE_CACHE_MISS);
        assert_int_equal(ask_tenant(&w, "emca", "third", v[2]), QUIRE_CACHE_EXACT);
    }
    world_close(&w);
}

/* Memory that is wrong about whose answer it is does not give it away: the document says it, too. */
static void a_document_of_another_scope_answers_nothing(void **state)
{
    struct world w;
    struct cache_decision decision;
    struct document_read read;
    struct quire_bytes chunks[4];
    struct quire_error err = {0};
    struct quire_cache_stats stats;
    struct quire_pair scope = {text_of("tenant"), text_of("acme")};
    float v[DIM];
    world_open(&w, *state, DIM);
    world_category(&w, "k", "SIM 0.9");
    vector_make(v, DIM, 1);
    put_tenant(&w, "acme", "a", v);
    struct quire_cache_query q = {
        .category = text_of("k"), .text = text_of("a"), .vector = v, .scope = &scope, .n_scope = 1};
    for (int damaged = 0; damaged < 2; damaged++) {
        assert_int_equal(cache_get(w.cache, w.scratch, &q, NULL, &decision, &err), 0);
        assert_true(decision.wants_document);
        assert_int_equal(document_read_begin(cache_documents(w.cache), &decision.at, &read, &err), 1);
        struct scope *known = w.cache->groups[0]->scope;
        known->bytes[known->n_bytes - 1] ^= (uint8_t)damaged;
        assert_int_equal(cache_finish(w.cache, &decision, read.bytes, decision.at.bytes, chunks), damaged);
        document_read_end(&read);
    }
    assert_int_equal(cache_get_stats(w.cache, text_of("k"), &stats, &err), 0);
    assert_int_equal(stats.entries, 0);
    assert_int_equal(stats.lost, 1);
    world_close(&w);
}

/* An entry whose document is lost is found, and does not answer: the lookup that follows is the same request. */
static void a_lookup_that_is_made_again_counts_once(void **state)
{
    static const enum quire_cache_status found[] = {QUIRE_CACHE_EXACT, QUIRE_CACHE_HIT, QUIRE_CACHE_MISS};
    struct world w;
    struct cache_decision decision;
    struct quire_error err = {0};
    struct quire_cache_stats stats;
    struct cache_scope_stats scopes[4];
    struct cache_histogram histogram;
    struct quire_pair scope = {text_of("tenant"), text_of("acme")};
    uint64_t hits = 0, misses = 0;
    float v[DIM], far[DIM];
    world_open(&w, *state, DIM);
    world_category(&w, "k", "SIM 0.9");
    vector_make(v, DIM, 1);
    vector_make(far, DIM, 2);
    put_tenant(&w, "acme", "a", v);
    put_tenant(&w, "acme", "b", v);
    put_tenant(&w, "acme", "c", far); /* so that the scope stays */
    struct quire_cache_query q = {
        .category = text_of("k"), .text = text_of("a"), .vector = v, .scope = &scope, .n_scope = 1};
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(cache_get(w.cache, w.scratch, &q, NULL, &decision, &err), CACHE_DECIDED);
        assert_int_equal(decision.answer.status, found[i]);
        assert_int_equal(decision.wants_document, i < 2);
        if (decision.wants_document)
            assert_int_equal(cache_finish(w.cache, &decision, NULL, 0, NULL), CACHE_ENTRY_GONE);
    }
    assert_int_equal(cache_get_stats(w.cache, text_of("k"), &stats, &err), 0);
    assert_true(stats.requests == 1 && stats.misses == 1 && stats.exact == 0 && stats.hits == 0);
    assert_int_equal(cache_top_scopes(w.cache, scopes, 4), 1);
    assert_true(scopes[0].requests == 1 && scopes[0].hits == 0);
    assert_int_equal(cache_get_histogram(w.cache, text_of("k"), &histogram, &err), 0);
    for (unsigned i = 0; i < CACHE_HISTOGRAM_BINS; i++) {
        hits += histogram.hits[i];
        misses += histogram.misses[i];
    }
    assert_true(hits == 0 && misses <= 1);
    world_check(&w);
    world_close(&w);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(who_waits_is_woken_when_the_cache_is_dropped),
        TEST(waiters_are_limited),
        TEST(a_lease_goes_on_when_its_new_leader_cannot_look),
        TEST(a_clock_that_goes_back_makes_nothing_old),
        TEST(leases_end_when_the_time_of_day_is_set_back),
        TEST(a_candidate_is_counted_once),
        TEST(a_number_of_a_group_is_not_its_scope),
        TEST(a_document_of_another_scope_answers_nothing),
        TEST(a_lookup_that_is_made_again_counts_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
