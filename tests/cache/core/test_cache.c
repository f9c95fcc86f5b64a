/* A cache from its first entry on: what answers, what does not, and what comes back after a restart. */
#include "tests/cache/support_cache.h"
#include "tests/temp_folder.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

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

static void answers_what_was_put(void **state)
{
    struct world w;
    float v[DIM], near[DIM], far[DIM];
    char value[256];
    world_open(&w, *state, DIM);
    world_category(&w, "k", "SIM 0.9");
    vector_make(v, DIM, 1);
    vector_near(near, v, DIM, 0.95, 2);
    vector_near(far, v, DIM, 0.8, 3);
    assert_int_equal(ask_simple(&w, "how are you", v, NULL), QUIRE_CACHE_MISS);
    put_simple(&w, "how are you", v, "fine");
    assert_int_equal(ask_simple(&w, "how are you", NULL, value), QUIRE_CACHE_EXACT);
    assert_string_equal(value, "fine");
    assert_int_equal(ask_simple(&w, "how do you do", near, value), QUIRE_CACHE_HIT);
    assert_string_equal(value, "fine");
    assert_int_equal(ask_simple(&w, "what time is it", far, NULL), QUIRE_CACHE_MISS);
    world_check(&w);
    for (int checkpoint = 0; checkpoint < 2; checkpoint++) {
        world_reopen(&w, checkpoint);
        assert_int_equal(ask_simple(&w, "how are you", NULL, value), QUIRE_CACHE_EXACT);
        assert_string_equal(value, "fine");
        assert_int_equal(ask_simple(&w, "how do you do", near, value), QUIRE_CACHE_HIT);
        world_check(&w);
    }
    world_close(&w);
}

static void groups_grow_and_stay_found(void **state)
{
    enum { N = 3000 };
    static float vectors[N][DIM];
    struct world w;
    char value[256], text[32];
    world_open(&w, *state, DIM);
    world_category(&w, "k", "SIM 0.95");
    for (unsigned i = 0; i < N; i++) {
        vector_make(vectors[i], DIM, i);
        snprintf(text, sizeof text, "%u", i);
        put_simple(&w, NULL, vectors[i], text);
        if (i % 500 == 0)
            world_work(&w);
    }
    for (int round = 0; round < 3; round++) {
        unsigned found = 0;
        world_check(&w);
        for (unsigned i = 0; i < N; i++) {
            snprintf(text, sizeof text, "%u", i);
            found += ask_simple(&w, NULL, vectors[i], value) == QUIRE_CACHE_HIT && strcmp(value, text) == 0;
        }
        assert_in_range(found, N * 99 / 100, N);
        world_reopen(&w, round == 0);
    }
    world_work(&w);
    world_check(&w);
    world_close(&w);
}

/* The answer that renews a stale entry takes its place, also where the question had other words. */
static void a_renewal_replaces_what_was_stale(void **state)
{
    struct world w;
    float v[DIM], near[DIM];
    struct asked asked;
    struct quire_error err = {0};
    struct quire_cache_put_result result;
    world_open(&w, *state, DIM);
    world_category(&w, "k", "SIM 0.9 TTL 1000 JITTER 0 STALE 5000");
    vector_make(v, DIM, 1);
    vector_near(near, v, DIM, 0.95, 2);
    uint64_t old = put_simple(&w, "how are you", v, "fine");
    w.now_ms += 2000;
    struct quire_cache_query query = {.category = text_of("k"), .text = text_of("how do you do"), .vector = near};
    assert_int_equal(ask(&w, &query, &asked, &err), 0);
    assert_int_equal(asked.answer.status, QUIRE_CACHE_STALE);
    assert_true(asked.answer.id == old && asked.answer.lease[0]);
    struct quire_cache_entry entry = {
        .text = text_of("how do you do"), .vector = near, .lease = text_of(asked.answer.lease)};
    assert_int_equal(put(&w, &entry, "well", &result, &err), 0);
    asked_end(&asked);
    assert_int_equal(result.outcome, QUIRE_CACHE_REPLACED);
    assert_int_equal(cache_info(w.cache, old, &(struct cache_entry_info){0}, &err), QUIRE_ENOTFOUND);
    assert_int_equal(cache_info(w.cache, result.id, &(struct cache_entry_info){0}, &err), 0);
    world_check(&w);
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(answers_what_was_put, setup, teardown),
        cmocka_unit_test_setup_teardown(groups_grow_and_stay_found, setup, teardown),
        cmocka_unit_test_setup_teardown(a_renewal_replaces_what_was_stale, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
