/*
 * test_complaints.c - what users of other caches complain of, one test for each: wrong or opposite answers, answers of
 * other tenants, distances taken for similarities, wrong answers that live for ever, errors replayed as answers,
 * streams that are not kept, an index rebuilt at every insert, caches that silently never hit, deletions without a
 * condition.
 */
#include "cache/core/cache_priv.h"
#include "tests/cache/support_cache.h"
#include "tests/temp_folder.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define DIM 32

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

static void begin(struct world *w, void **state, const char *words, float v[DIM])
{
    world_open(w, *state, DIM);
    world_category(w, "k", words);
    vector_make(v, DIM, 1);
}

static void opposite_answers(void **state)
{
    static const char *const pairs[][2] = {{"turn on dark mode", "turn off dark mode"},
                                           {"sort ascending", "sort descending"},
                                           {"convert 5 km to miles", "convert 7 km to miles"},
                                           {"do I need a visa", "do I not need a visa"},
                                           {"show `alpha.c`", "show `beta.c`"}};
    struct world w;
    struct quire_error err = {0};
    uint64_t guarded[GUARD_KINDS];
    float v[DIM], near[DIM];
    begin(&w, state, "SIM 0.8", v);
    for (unsigned i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        vector_make(v, DIM, 10 + i);
        vector_near(near, v, DIM, 0.99, i);
        put_simple(&w, pairs[i][0], v, pairs[i][0]);
        assert_int_equal(ask_simple(&w, pairs[i][1], near, NULL), QUIRE_CACHE_MISS);
        assert_int_equal(ask_simple(&w, pairs[i][0], near, NULL), QUIRE_CACHE_EXACT);
    }
    assert_int_equal(stats_of(&w, "k").guarded, sizeof pairs / sizeof *pairs);
    for (unsigned all = 0; all < 2; all++) { /* which guard it was */
        assert_int_equal(cache_get_guarded(w.cache, text_of(all ? "" : "k"), guarded, &err), 0);
        assert_int_equal(guarded[GUARD_NEGATION], 3);
        assert_int_equal(guarded[GUARD_NUMBER], 1);
        assert_int_equal(guarded[GUARD_LITERAL], 1);
        assert_int_equal(guarded[GUARD_DATE] + guarded[GUARD_LANGUAGE], 0);
    }
    assert_int_equal(cache_get_guarded(w.cache, text_of("nope"), guarded, &err), QUIRE_ENOTFOUND);
    world_close(&w);
}

static void answers_of_other_tenants(void **state)
{
    struct world w;
    float v[DIM];
    struct asked asked;
    struct quire_error err = {0};
    struct quire_cache_put_result result;
    struct quire_pair scope = {text_of("tenant"), text_of("a")};
    begin(&w, state, "SIM 0.1 FLOOR 0", v);
    struct quire_cache_entry entry = {.text = text_of("balance"), .vector = v, .scope = &scope, .n_scope = 1};
    assert_int_equal(put(&w, &entry, "a has 7", &result, &err), 0);
    struct quire_cache_query query = {
        .category = text_of("k"), .text = text_of("balance"), .vector = v, .scope = &scope, .n_scope = 1};
    scope.value = text_of("b");
    for (int i = 0; i < 2; i++, query.n_scope = 0) { /* another tenant, and none */
        assert_int_equal(ask(&w, &query, &asked, &err), 0);
        assert_int_equal(asked.answer.status, QUIRE_CACHE_MISS);
        assert_true(asked.answer.similarity < 0); /* it was not even measured */
        asked_end(&asked);
    }
    world_close(&w);
}

/* The same vector is 1, a right angle and an opposite are 0; threshold, answer and selectors mean the same. */
static void similarity_is_no_distance(void **state)
{
    struct world w;
    float v[DIM], other[DIM];
    struct asked asked;
    struct quire_error err = {0};
    uint64_t n, lsn;
    begin(&w, state, "SIM 0.9", v);
    put_simple(&w, NULL, v, "a");
    const double cosines[] = {1, 0.97, 0.7, 0.3};
    for (unsigned i = 0; i < 4; i++) {
        vector_near(other, v, DIM, cosines[i], i);
        for (unsigned k = 0; k < DIM; k++)
            other[k] *= 1 + (float)i; /* length says nothing */
        struct quire_cache_query query = {.category = text_of("k"), .vector = other, .no_lease = true};
        assert_int_equal(ask(&w, &query, &asked, &err), 0);
        assert_int_equal(asked.answer.status, i < 2 ? QUIRE_CACHE_HIT : QUIRE_CACHE_MISS);
        assert_true(asked.answer.similarity > cosines[i] - 0.02 && asked.answer.similarity < cosines[i] + 0.02);
        assert_true(asked.answer.threshold > 0.899 && asked.answer.threshold < 0.901);
        asked_end(&asked);
    }
    for (unsigned k = 0; k < DIM; k++)
        other[k] = -v[k];
    struct quire_cache_query query = {.category = text_of("k"), .vector = other, .no_lease = true};
    assert_int_equal(ask(&w, &query, &asked, &err), 0);
    assert_int_equal(asked.answer.status, QUIRE_CACHE_MISS);
    assert_true(asked.answer.similarity < 0.02 && asked.answer.similarity >= 0);
    asked_end(&asked);
    query.similarity = 1.5; /* a distance */
    assert_int_equal(ask(&w, &query, &asked, &err), QUIRE_ERANGE);
    struct quire_cache_selector selector = {.by = QUIRE_CACHE_BY_NEAR, .vector = v, .similarity = 0};
    assert_int_equal(cache_invalidate(w.cache, w.scratch, &selector, true, &n, &lsn, &err), QUIRE_ERANGE);
    selector.similarity = 0.99;
    assert_int_equal(invalidate(&w, &selector, true), 1);
    selector.vector = other;
    assert_int_equal(invalidate(&w, &selector, true), 0);
    world_close(&w);
}

static void hits_keep_no_answer_alive(void **state)
{
    struct world w;
    float v[DIM];
    begin(&w, state, "SIM 0.9 TTL 1000 JITTER 0", v);
    put_simple(&w, "q", v, "wrong");
    for (unsigned i = 0; i < 1000 / 50 - 1; i++) {
        w.now_ms += 50;
        assert_int_equal(ask_simple(&w, i % 2 ? "q" : NULL, v, NULL), i % 2 ? QUIRE_CACHE_EXACT : QUIRE_CACHE_HIT);
    }
    w.now_ms += 50;
    assert_int_equal(ask_simple(&w, "q", v, NULL), QUIRE_CACHE_MISS);
    world_close(&w);
}

/* There is no way to store an error: a leader that fails says so, and nothing is there afterwards. */
static void errors_are_no_answers(void **state)
{
    struct world w;
    float v[DIM];
    char token[QUIRE_CACHE_TOKEN_BYTES];
    struct quire_error err = {0};
    struct quire_cache_put_result result;
    begin(&w, state, "SIM 0.9", v);
    lease_of(&w, "q", v, token);
    assert_int_equal(cache_fail(w.cache, text_of(token), &err), 0);
    assert_int_equal(ask_simple(&w, "q", v, NULL), QUIRE_CACHE_MISS);
    assert_int_equal(cache_fail(w.cache, text_of(token), &err), QUIRE_ENOTFOUND);
    assert_int_equal(stats_of(&w, "k").entries, 0);
    struct quire_cache_query query = {.category = text_of("k"), .text = text_of("refused"), .vector = v};
    assert_int_equal(cache_negative(w.cache, &query, 5000, (struct quire_bytes){NULL, 0}, &err), 0);
    assert_int_equal(ask_simple(&w, "refused", v, NULL), QUIRE_CACHE_NEGATIVE);
    assert_int_equal(stats_of(&w, "k").entries, 0);
    /* nor one without a value */
    struct quire_cache_entry entry = {.category = text_of("k"), .text = text_of("q"), .vector = v};
    assert_int_equal(cache_put(w.cache, w.scratch, &entry, &result, &err), QUIRE_EINVALID);
    world_close(&w);
}

static void streams_are_kept(void **state)
{
    static const char *const pieces[] = {"The ", "", "answer", " is", " 42.\n", "\n"};
    enum { N = sizeof pieces / sizeof *pieces };
    struct world w;
    float v[DIM];
    struct quire_bytes chunks[N];
    struct quire_cache_put_result result;
    struct quire_error err = {0};
    begin(&w, state, "SIM 0.9", v);
    for (unsigned i = 0; i < N; i++)
        chunks[i] = text_of(pieces[i]);
    struct quire_cache_entry entry = {
        .category = text_of("k"), .text = text_of("q"), .vector = v, .chunks = chunks, .n_chunks = N};
    assert_int_equal(cache_put(w.cache, w.scratch, &entry, &result, &err), 0);
    for (int round = 0; round < 3; round++) {
        struct asked asked;
        struct quire_cache_query query = {.category = text_of("k"), .vector = v};
        assert_int_equal(ask(&w, &query, &asked, &err), 0);
        assert_int_equal(asked.answer.status, QUIRE_CACHE_HIT);
        assert_int_equal(asked.answer.n_chunks, N);
        for (unsigned i = 0; i < N; i++)
            assert_true(text_equal(asked.answer.chunks[i], chunks[i]));
        assert_string_equal(asked.value, "The answer is 42.\n\n");
        asked_end(&asked);
        world_reopen(&w, round);
    }
    world_close(&w);
}

/* Distances measured per insert, once full and before: the same, within what chance does. */
static void no_rebuild_when_full(void **state)
{
    enum { FULL = 3000, MORE = 1500 };
    struct world w;
    float v[DIM];
    struct graph_stats before, filled, after;
    begin(&w, state, "SIM 0.9 ENTRIES 3000", v);
    for (unsigned i = 0; i < FULL + MORE; i++) {
        if (i == FULL - MORE)
            graph_get_stats(w.cache->graph, &before);
        if (i == FULL)
            graph_get_stats(w.cache->graph, &filled);
        vector_make(v, DIM, i);
        struct quire_cache_entry entry = {.vector = v};
        struct quire_cache_put_result result;
        struct quire_error err = {0};
        assert_int_equal(put(&w, &entry, "a", &result, &err), 0);
        assert_int_equal(result.evicted, i >= FULL);
        if (i % 500 == 0)
            world_work(&w);
    }
    graph_get_stats(w.cache->graph, &after);
    double filling = (double)(filled.distances - before.distances) / MORE;
    double full = (double)(after.distances - filled.distances) / MORE;
    assert_true(filling > 50 && filling < FULL);
    if (full > 3 * filling) /* an insert and a removal, whose neighbours are linked to each other */
        fail_msg("%.0f distances per insert once full, %.0f before", full, filling);
    assert_in_range(after.rows, FULL, FULL + 64); /* rows are used again */
    assert_int_equal(stats_of(&w, "k").entries, FULL);
    world_work(&w);
    world_check(&w);
    world_close(&w);
}

static void no_hits_are_not_silent(void **state)
{
    struct world w;
    float v[DIM];
    struct asked asked;
    struct quire_error err = {0};
    struct quire_cache_put_result result;
    world_open_with(&w, *state, &(struct cache_config){.dim = DIM, .encoder = text_of("enc@1")});
    world_category(&w, "k", "SIM 0.9");
    vector_make(v, DIM, 1);
    /* another encoder is an error, for questions and answers */
    struct quire_cache_query query = {.category = text_of("k"), .vector = v, .encoder = text_of("enc@2")};
    struct quire_cache_entry entry = {.vector = v, .encoder = text_of("enc@2")};
    assert_int_equal(ask(&w, &query, &asked, &err), QUIRE_EINVALID);
    assert_int_equal(put(&w, &entry, "a", &result, &err), QUIRE_EINVALID);
    assert_non_null(strstr(err.message, "enc@1"));
    query.encoder = entry.encoder = text_of("enc@1");
    assert_int_equal(put(&w, &entry, "a", &result, &err), 0);
    assert_int_equal(ask(&w, &query, &asked, &err), 0);
    assert_int_equal(asked.answer.status, QUIRE_CACHE_HIT);
    asked_end(&asked);
    /* an encoder that changed without telling: hits that used to be are none any more, and the breaker says so */
    unsigned bypassed = 0;
    for (unsigned i = 0; i < 3000; i++) {
        float asks[DIM];
        vector_make(asks, DIM, i < 1200 && i % 2 ? 1 : 1000 + i);
        struct quire_cache_query next = {.category = text_of("k"), .vector = asks, .no_lease = true};
        assert_int_equal(ask(&w, &next, &asked, &err), 0);
        bypassed += asked.answer.status == QUIRE_CACHE_BYPASS;
        if (i < 1200)
            assert_int_equal(bypassed, 0);
        if (asked.answer.status == QUIRE_CACHE_BYPASS)
            assert_non_null(strstr(asked.answer.reason, "breaker"));
        asked_end(&asked);
    }
    assert_true(bypassed > 1000);
    /* and it lets through again what may have been mended */
    w.now_ms += 11000;
    for (unsigned i = 0; i < 1000; i++)
        ask_simple(&w, NULL, v, NULL);
    assert_int_equal(ask_simple(&w, NULL, v, NULL), QUIRE_CACHE_HIT);
    world_close(&w);
}

static void no_condition_is_no_deletion(void **state)
{
    struct world w;
    float v[DIM];
    uint64_t n, lsn, zero = 0;
    struct quire_error err = {0};
    struct quire_bytes empty[2] = {{"", 0}, {"", 0}};
    begin(&w, state, "SIM 0.9", v);
    world_category(&w, "*", "SIM 0.9");
    put_simple(&w, "q", v, "a");
    for (int by = 0; by <= QUIRE_CACHE_BY_ALL + 1; by++) {
        if (by == QUIRE_CACHE_BY_ALL)
            continue;
        struct quire_cache_selector selector = {.by = (enum quire_cache_by)by};
        for (int dry = 0; dry < 2; dry++) {
            err.message[0] = 0;
            selector.n = 0;
            assert_true(cache_invalidate(w.cache, w.scratch, &selector, dry, &n, &lsn, &err) < 0);
            assert_true(err.message[0]);
            selector.n = by == QUIRE_CACHE_BY_SCOPE ? 2 : by == QUIRE_CACHE_BY_ID ? 0 : 1;
            selector.names = empty;
            selector.ids = &zero;
            assert_true(cache_invalidate(w.cache, w.scratch, &selector, dry, &n, &lsn, &err) < 0);
        }
    }
    assert_int_equal(cache_remove(w.cache, 0, &lsn, &err), QUIRE_ENOTFOUND);
    assert_int_equal(stats_of(&w, "k").entries, 1);
    assert_int_equal(ask_simple(&w, "q", v, NULL), QUIRE_CACHE_EXACT);
    struct quire_cache_selector all = {.by = QUIRE_CACHE_BY_ALL};
    assert_int_equal(invalidate(&w, &all, true), 1);
    assert_int_equal(invalidate(&w, &all, false), 1);
    assert_int_equal(stats_of(&w, "k").entries, 0);
    world_close(&w);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(opposite_answers),          TEST(answers_of_other_tenants), TEST(similarity_is_no_distance),
        TEST(hits_keep_no_answer_alive), TEST(errors_are_no_answers),    TEST(streams_are_kept),
        TEST(no_rebuild_when_full),      TEST(no_hits_are_not_silent),   TEST(no_condition_is_no_deletion),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
