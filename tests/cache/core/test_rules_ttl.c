/*
 * test_rules_ttl.c - rules of docs/cache.md about time: hits and TTL, jitter, sliding, stale answers and who renews
 * them, ages that a caller asks for, touching and pinning. The clock stands still unless a test moves it.
 */
#include "tests/cache/support_rules.h"

/* ---- time -------------------------------------------------------------------------------------------------------- */

static void a_hit_extends_no_ttl(void **state)
{
    struct world w;
    float v[DIM];
    world_open(&w, *state, DIM);
    world_category(&w, "k", "SIM 0.9 TTL 1000 JITTER 0");
    vector_make(v, DIM, 1);
    put_simple(&w, "q", v, "a");
    for (int i = 0; i < 9; i++) {
        w.now_ms += 111;
        assert_int_equal(ask_simple(&w, "q", v, NULL), QUIRE_CACHE_EXACT);
        assert_int_equal(ask_simple(&w, "p", v, NULL), QUIRE_CACHE_HIT);
    }
    w.now_ms += 1;
    assert_int_equal(ask_simple(&w, "q", v, NULL), QUIRE_CACHE_MISS);
    assert_int_equal(ask_simple(&w, "p", v, NULL), QUIRE_CACHE_MISS);
    world_reopen(&w, false);
    assert_int_equal(ask_simple(&w, "q", v, NULL), QUIRE_CACHE_MISS);
    world_check(&w);
    world_close(&w);
}

static void jitter_only_shortens(void **state)
{
    struct world w;
    float v[DIM];
    struct quire_cache_put_result result;
    struct quire_error err = {0};
    uint64_t least = UINT64_MAX, most = 0;
    world_open(&w, *state, DIM);
    world_category(&w, "k", "SIM 0.9 TTL 100000 JITTER 40");
    for (unsigned i = 0; i < 300; i++) {
        vector_make(v, DIM, i);
        struct quire_cache_entry entry = {.vector = v};
        assert_int_equal(put(&w, &entry, "a", &result, &err), 0);
        uint64_t life = result.expire_ms - w.now_ms;
        least = life < least ? life : least;
        most = life > most ? life : most;
    }
    assert_in_range(least, 60000, 64000);
    assert_in_range(most, 97000, 100000);
    world_close(&w);
}

static void sliding_ends_at_ttlmax(void **state)
{
    struct world w;
    float v[DIM];
    world_open(&w, *state, DIM);
    world_category(&w, "k", "SIM 0.9 TTL 1000 TTLMAX 3500 JITTER 0 SLIDING yes");
    vector_make(v, DIM, 1);
    put_simple(&w, "q", v, "a");
    for (int i = 0; i < 3; i++) {
        w.now_ms += 900;
        assert_int_equal(ask_simple(&w, "q", v, NULL), QUIRE_CACHE_EXACT);
    }
    w.now_ms += 799;
    assert_int_equal(ask_simple(&w, "q", v, NULL), QUIRE_CACHE_EXACT);
    w.now_ms += 1; /* 3500 */
    assert_int_equal(ask_simple(&w, "q", v, NULL), QUIRE_CACHE_MISS);
    world_close(&w);
}

static void no_time_is_too_long(void **state)
{
    struct world w;
    float v[DIM];
    uint64_t id, lsn;
    struct quire_error err = {0};
    world_open(&w, *state, DIM);
    world_category(&w, "k", "SIM 0.9 JITTER 0");
    vector_make(v, DIM, 1);
    put_with(&w, (struct quire_cache_entry){.text = text_of("q"), .vector = v, .ttl_ms = UINT64_MAX}, "a", &id);
    assert_int_equal(ask_simple(&w, "q", v, NULL), QUIRE_CACHE_EXACT);
    assert_int_equal(cache_touch(w.cache, id, UINT64_MAX, &lsn, &err), 0);
    assert_int_equal(ask_simple(&w, "q", v, NULL), QUIRE_CACHE_EXACT);
    struct quire_cache_query query = {.category = text_of("k"), .text = text_of("n")};
    assert_int_equal(cache_negative(w.cache, &query, UINT64_MAX, (struct quire_bytes){NULL, 0}, &err), 0);
    assert_int_equal(ask_simple(&w, "n", v, NULL), QUIRE_CACHE_NEGATIVE);
    world_category(&w, "k", "TTLMAX 100000000");
    put_with(&w, (struct quire_cache_entry){.text = text_of("r"), .vector = v, .ttl_ms = UINT64_MAX}, "a", NULL);
    w.now_ms += 100000000;
    assert_int_equal(ask_simple(&w, "r", NULL, NULL), QUIRE_CACHE_MISS);
    world_close(&w);
}

static uint64_t counted(struct world *w, const char *what)
{
    struct quire_cache_stats stats;
    struct quire_error err;
    assert_int_equal(cache_get_stats(w->cache, text_of("k"), &stats, &err), 0);
    uint64_t n = strcmp(what, "requests") == 0 ? stats.requests
                 : strcmp(what, "stale") == 0  ? stats.stale
                                               : stats.misses;
    return n;
}

/* The model has failed: what ended no longer ago than STALEERROR answers, to who asks so, and to nobody else. */
static void an_old_answer_where_the_model_has_failed(void **state)
{
    struct world w;
    float v[DIM], near[DIM];
    char value[256];
    world_open(&w, *state, DIM);
    world_category(&w, "k", "SIM 0.9 TTL 1000 JITTER 0 STALE 100 STALEERROR 5000 AUDIT 1");
    vector_make(v, DIM, 1);
    vector_near(near, v, DIM, 0.97, 2);
    put_simple(&w, "q", v, "old");
    struct quire_cache_query query = {.text = text_of("q"), .vector = v, .wait_ms = 1000};
    w.now_ms += 4000;
    world_work(&w); /* it is kept */
    struct quire_cache_answer answer = ask_for(&w, &query, value);
    assert_int_equal(answer.status, QUIRE_CACHE_MISS);
    assert_true(answer.lease[0]);
    struct quire_error err;
    assert_int_equal(cache_fail(w.cache, text_of(answer.lease), &err), 0);
    uint64_t requests = counted(&w, "requests"), stale = counted(&w, "stale"), misses = counted(&w, "misses");
    query.on_error = true;
    answer = ask_for(&w, &query, value);
    assert_int_equal(answer.status, QUIRE_CACHE_STALE); /* not drawn for an audit, which nobody could answer */
    assert_string_equal(value, "old");
    assert_false(answer.lease[0] || answer.audit);
    assert_true(counted(&w, "requests") == requests + 1 && counted(&w, "stale") == stale + 1);
    struct quire_cache_query other = {.text = text_of("p"), .vector = near, .on_error = true};
    assert_int_equal(ask_for(&w, &other, value).status, QUIRE_CACHE_STALE);
    other.max_age_ms = 3999; /* what the caller does not bear stays so */
    requests = counted(&w, "requests");
    answer = ask_for(&w, &other, value);
    assert_int_equal(answer.status, QUIRE_CACHE_MISS);
    assert_false(answer.lease[0]);
    assert_true(counted(&w, "requests") == requests && counted(&w, "misses") == misses);
    w.now_ms += 2000; /* 6000: 5000 after its end */
    assert_int_equal(ask_for(&w, &query, value).status, QUIRE_CACHE_MISS);
    world_work(&w);
    put_simple(&w, "q", v, "new"); /* what is fresh is given as such */
    answer = ask_for(&w, &query, value);
    assert_int_equal(answer.status, QUIRE_CACHE_EXACT);
    assert_string_equal(value, "new");
    world_close(&w);
}

static void stale_has_one_refresher(void **state)
{
    struct world w;
    float v[DIM], near[DIM];
    char value[256];
    world_open(&w, *state, DIM);
    world_category(&w, "k", "SIM 0.9 TTL 1000 JITTER 0 STALE 500");
    vector_make(v, DIM, 1);
    vector_near(near, v, DIM, 0.97, 2);
    put_simple(&w, "q", v, "old");
    w.now_ms += 1100;
    world_work(&w);
    struct quire_cache_query query = {.text = text_of("q"), .vector = v};
    query.stale_ok = true;
    struct quire_cache_answer answer = ask_for(&w, &query, value);
    assert_int_equal(answer.status, QUIRE_CACHE_STALE);
    assert_false(answer.lease[0]); /* it left the lease to others */
    query.stale_ok = false;
    answer = ask_for(&w, &query, value);
    assert_int_equal(answer.status, QUIRE_CACHE_STALE);
    assert_string_equal(value, "old");
    assert_true(answer.lease[0]);
    assert_int_equal(answer.ttl_ms, 0);
    assert_int_equal(answer.age_ms, 1100);
    for (int i = 0; i < 5; i++) {
        struct quire_cache_query other = {.text = text_of(i % 2 ? "q" : "p"), .vector = i % 2 ? v : near};
        struct quire_cache_answer next = ask_for(&w, &other, value);
        assert_int_equal(next.status, QUIRE_CACHE_STALE);
        assert_string_equal(value, "old");
        assert_false(next.lease[0]);
    }
    put_with(&w, (struct quire_cache_entry){.text = text_of("q"), .vector = v, .lease = text_of(answer.lease)}, "new",
             NULL);
    assert_int_equal(ask_simple(&w, "p", near, value), QUIRE_CACHE_HIT);
    assert_string_equal(value, "new");
    w.now_ms += 1500;
    assert_int_equal(ask_simple(&w, "q", v, NULL), QUIRE_CACHE_MISS);
    world_check(&w);
    world_close(&w);
}

/* Its document is lost: the lease that came with it must not keep others waiting for nothing. */
static void a_lost_stale_answer_gives_its_lease_back(void **state)
{
    struct world w;
    float v[DIM];
    struct cache_decision decision;
    struct quire_error err = {0};
    world_open(&w, *state, DIM);
    world_category(&w, "k", "SIM 0.9 TTL 1000 JITTER 0 STALE 5000");
    vector_make(v, DIM, 1);
    put_simple(&w, "q", v, "old");
    w.now_ms += 1100;
    struct quire_cache_query query = {.category = text_of("k"), .text = text_of("q"), .vector = v};
    assert_int_equal(cache_get(w.cache, w.scratch, &query, NULL, &decision, &err), 0);
    assert_int_equal(decision.answer.status, QUIRE_CACHE_STALE);
    assert_true(decision.answer.lease[0]);
    assert_int_equal(cache_finish(w.cache, &decision, NULL, 0, NULL), 1);
    struct quire_cache_answer answer = ask_for(&w, &query, NULL);
    assert_int_equal(answer.status, QUIRE_CACHE_MISS);
    assert_true(answer.lease[0]);
    assert_int_equal(stats_of(&w, "k").lost, 1);
    world_check(&w);
    world_close(&w);
}

static void max_age_is_of_the_caller(void **state)
{
    struct world w;
    float v[DIM];
    world_open(&w, *state, DIM);
    world_category(&w, "k", "SIM 0.9");
    vector_make(v, DIM, 1);
    put_simple(&w, "q", v, "a");
    w.now_ms += 1000;
    struct quire_cache_query query = {.text = text_of("q"), .vector = v, .max_age_ms = 1000};
    assert_int_equal(ask_for(&w, &query, NULL).status, QUIRE_CACHE_EXACT);
    w.now_ms += 1;
    assert_int_equal(ask_for(&w, &query, NULL).status, QUIRE_CACHE_MISS);
    query.max_age_ms = 0;
    assert_int_equal(ask_for(&w, &query, NULL).status, QUIRE_CACHE_EXACT);
    w.now_ms -= 5000; /* the clock was set back: it is new, not old */
    query.max_age_ms = 1000;
    assert_int_equal(ask_for(&w, &query, NULL).status, QUIRE_CACHE_EXACT);
    world_close(&w);
}

static void what_is_over_is_not_called_back(void **state)
{
    struct world w;
    float v[DIM];
    uint64_t lsn;
    struct quire_error err = {0};
    world_open(&w, *state, DIM);
    world_category(&w, "k", "SIM 0.9 TTL 1000 JITTER 0");
    vector_make(v, DIM, 1);
    uint64_t id = put_simple(&w, "q", v, "a");
    w.now_ms += 1000;
    assert_int_equal(cache_touch(w.cache, id, HOUR, &lsn, &err), QUIRE_ENOTFOUND);
    assert_int_equal(cache_pin(w.cache, id, true, &lsn, &err), QUIRE_ENOTFOUND);
    assert_int_equal(ask_simple(&w, "q", v, NULL), QUIRE_CACHE_MISS);
    world_close(&w);
}

static void touch_and_pin(void **state)
{
    struct world w;
    float v[DIM];
    uint64_t lsn;
    struct quire_error err = {0};
    world_open(&w, *state, DIM);
    world_category(&w, "k", "SIM 0.9 TTL 1000 JITTER 0 ENTRIES 3");
    vector_make(v, DIM, 1);
    uint64_t id = put_simple(&w, "q", v, "a");
    assert_int_equal(cache_touch(w.cache, id, 5000, &lsn, &err), 0);
    w.now_ms += 4999;
    assert_int_equal(ask_simple(&w, "q", v, NULL), QUIRE_CACHE_EXACT);
    assert_int_equal(cache_pin(w.cache, id, true, &lsn, &err), 0);
    assert_int_equal(stats_of(&w, "k").pinned, 1);
    w.now_ms += 100000;
    for (unsigned i = 0; i < 10; i++) {
        float other[DIM];
        vector_make(other, DIM, 10 + i);
        put_simple(&w, NULL, other, "o");
    }
    world_reopen(&w, true);
    assert_int_equal(ask_simple(&w, "q", v, NULL), QUIRE_CACHE_EXACT);
    assert_int_equal(stats_of(&w, "k").pinned, 1);
    assert_int_equal(stats_of(&w, "k").entries, 3);
    assert_int_equal(cache_pin(w.cache, id, false, &lsn, &err), 0);
    world_reopen(&w, false);
    w.now_ms += 999;
    assert_int_equal(ask_simple(&w, "q", v, NULL), QUIRE_CACHE_EXACT);
    w.now_ms += 1;
    assert_int_equal(ask_simple(&w, "q", v, NULL), QUIRE_CACHE_MISS);
    world_check(&w);
    world_close(&w);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_hit_extends_no_ttl),
        TEST(jitter_only_shortens),
        TEST(sliding_ends_at_ttlmax),
        TEST(no_time_is_too_long),
        TEST(an_old_answer_where_the_model_has_failed),
        TEST(an_old_answer_where_the_model_has_failed),
        TEST(stale_has_one_refresher),
        TEST(a_lost_stale_answer_gives_its_lease_back),
        TEST(max_age_is_of_the_caller),
        TEST(what_is_over_is_not_called_back),
        TEST(touch_and_pin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
