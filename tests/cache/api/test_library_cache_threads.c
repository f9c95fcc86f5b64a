/*
 * test_library_cache_threads.c - many threads on one quire_cache: one computes for all who wait, closing while they
 * wait, answers of sealed vectors.
 */
#include "tests/cache/support_library_cache.h"

/* ---- threads ----------------------------------------------------------------------------------------------------- */

enum { THREADS = 8 };

struct asker {
    struct quire_cache *cache;
    const float *vector;
    pthread_barrier_t *begin;
    uint64_t wait_ms, took_ms;
    const char *puts; /* what a leader does: stores this, or with NULL gives up where fails is set */
    bool fails;
    struct quire_cache_answer answer;
    int rc;
    pthread_t thread;
};

static void *ask_and_wait(void *context)
{
    struct asker *a = context;
    struct quire_cache_query q = {
        .category = text_of("k"), .text = text_of("a question"), .vector = a->vector, .wait_ms = a->wait_ms};
    pthread_barrier_wait(a->begin);
    uint64_t begun = now_ms();
    a->rc = quire_cache_get(a->cache, &q, &a->answer, NULL);
    a->took_ms = now_ms() - begun;
    if (a->rc < 0 || !a->answer.lease[0])
        return NULL;
    struct quire_bytes lease = text_of(a->answer.lease), chunk = text_of(a->puts ? a->puts : "");
    struct quire_cache_put_result result;
    struct quire_cache_entry e = {
        .category = q.category, .text = q.text, .vector = a->vector, .lease = lease, .chunks = &chunk, .n_chunks = 1};
    sleep_ms(50);
    if (a->fails)
        a->rc = quire_cache_fail(a->cache, lease, NULL);
    else if (a->puts)
        a->rc = quire_cache_put(a->cache, &e, &result, NULL);
    return NULL;
}

static void start_askers(struct asker *askers, const struct asker *like, pthread_barrier_t *begin)
{
    assert_int_equal(pthread_barrier_init(begin, NULL, THREADS), 0);
    for (unsigned i = 0; i < THREADS; i++) {
        askers[i] = *like;
        askers[i].begin = begin;
        assert_int_equal(pthread_create(&askers[i].thread, NULL, ask_and_wait, &askers[i]), 0);
    }
}

static void join_askers(struct asker *askers, pthread_barrier_t *begin)
{
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(askers[i].thread, NULL), 0);
    pthread_barrier_destroy(begin);
}

static void one_computes_for_all_who_wait(void **state)
{
    struct quire_cache *c = open_new(*state);
    struct asker askers[THREADS];
    pthread_barrier_t begin;
    float v[DIM];
    unsigned leaders = 0, followers = 0;
    vector_make(v, DIM, 1);
    category(c, "k", "SIM 0.9");
    start_askers(askers, &(struct asker){.cache = c, .vector = v, .wait_ms = 20000, .puts = "the answer"}, &begin);
    join_askers(askers, &begin);
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(askers[i].rc, 0);
        leaders += askers[i].answer.lease[0] != 0;
        if (askers[i].answer.status == QUIRE_CACHE_EXACT) {
            followers++;
            assert_bytes(askers[i].answer.value, "the answer");
            assert_in_range(askers[i].answer.waited_ms, 1, 19000);
        }
        quire_cache_answer_free(&askers[i].answer);
    }
    assert_int_equal(leaders, 1);
    assert_int_equal(followers, THREADS - 1);
    struct quire_cache_stats stats;
    assert_int_equal(quire_cache_get_stats(c, text_of("k"), &stats, NULL), 0);
    assert_int_equal(stats.requests, THREADS);
    assert_int_equal(stats.exact, THREADS - 1);
    assert_int_equal(stats.misses, 1);
    assert_int_equal(stats.waited, THREADS - 1);
    close_it(c);
}

static void leaders_that_fail_are_followed(void **state)
{
    struct quire_cache *c = open_new(*state);
    struct asker askers[THREADS];
    pthread_barrier_t begin;
    float v[DIM];
    vector_make(v, DIM, 1);
    category(c, "k", "SIM 0.9");
    start_askers(askers, &(struct asker){.cache = c, .vector = v, .wait_ms = 20000, .fails = true}, &begin);
    join_askers(askers, &begin);
    for (unsigned i = 0; i < THREADS; i++) { /* each leads once, one after the other */
        assert_int_equal(askers[i].rc, 0);
        assert_int_equal(askers[i].answer.status, QUIRE_CACHE_MISS);
        assert_true(askers[i].answer.lease[0]);
        quire_cache_answer_free(&askers[i].answer);
    }
    close_it(c);
}

static void waits_end_in_time(void **state)
{
    struct quire_cache *c = open_new(*state);
    struct asker askers[THREADS];
    pthread_barrier_t begin;
    float v[DIM];
    unsigned leaders = 0;
    vector_make(v, DIM, 1);
    category(c, "k", "SIM 0.9");
    start_askers(askers, &(struct asker){.cache = c, .vector = v, .wait_ms = 60}, &begin);
    join_askers(askers, &begin);
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(askers[i].rc, 0);
        assert_int_equal(askers[i].answer.status, QUIRE_CACHE_MISS);
        assert_non_null(askers[i].answer.reason);
        leaders += askers[i].answer.lease[0] != 0;
        if (!askers[i].answer.lease[0])
            assert_in_range(askers[i].took_ms, 40, 5000);
    }
    assert_int_equal(leaders, 1);
    close_it(c);
}

static void waits_end_with_a_miss(const char *folder, bool stop)
{
    struct quire_cache *c = open_new(folder);
    struct asker askers[THREADS];
    pthread_barrier_t begin;
    struct quire_cache_stats stats = {0};
    float v[DIM];
    vector_make(v, DIM, 1);
    category(c, "k", "SIM 0.9");
    struct quire_cache_answer leader = ask_text(c, "a question", v);
    assert_true(leader.lease[0]);
    start_askers(askers, &(struct asker){.cache = c, .vector = v, .wait_ms = UINT64_MAX}, &begin);
    while (stats.waited < THREADS)
        assert_int_equal(quire_cache_get_stats(c, NONE, &stats, NULL), 0);
    if (stop) /* ends the waits, and the handle stays until it is closed */
        assert_int_equal(quire_cache_stop(c, NULL), 0);
    else
        close_it(c);
    join_askers(askers, &begin);
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(askers[i].rc, 0);
        assert_int_equal(askers[i].answer.status, QUIRE_CACHE_MISS);
        assert_non_null(askers[i].answer.reason);
        assert_false(askers[i].answer.lease[0]);
    }
    if (!stop)
        return;
    assert_int_equal(quire_cache_get_stats(c, NONE, &stats, NULL), QUIRE_ECLOSED);
    assert_int_equal(quire_cache_stop(c, NULL), 0);
    close_it(c);
    assert_int_equal(quire_cache_stop(NULL, NULL), 0);
}

static void closing_ends_waits_with_a_miss(void **state)
{
    waits_end_with_a_miss(*state, false);
}

static void stopping_ends_waits_with_a_miss(void **state)
{
    waits_end_with_a_miss(*state, true);
}

struct churner {
    struct quire_cache *cache;
    unsigned seed, wrong;
    pthread_t thread;
};

/* Puts, asks and removes; an answer must be the one that belongs to its question. */
static void *churn(void *context)
{
    struct churner *me = context;
    for (unsigned i = 0; i < 400; i++) {
        float v[DIM];
        char text[32];
        unsigned question = (me->seed * 31 + i * 7) % 40;
        vector_make(v, DIM, question);
        snprintf(text, sizeof text, "question %u", question);
        if (i % 3 == 0) {
            store_simple(me->cache, text, v, text);
            continue;
        }
        struct quire_cache_answer answer =
            answer_of(me->cache, &(struct quire_cache_query){.text = text_of(text), .vector = v, .wait_ms = 1});
        bool served = answer.status == QUIRE_CACHE_EXACT || answer.status == QUIRE_CACHE_HIT;
        me->wrong += served && !text_equal(answer.value, text_of(text));
        if (served && i % 11 == 0)
            quire_cache_remove(me->cache, answer.id, NULL); /* another thread may have done so */
        quire_cache_answer_free(&answer);
    }
    return NULL;
}

static void many_threads_get_their_own_answers(void **state)
{
    struct quire_cache *c = open_new(*state);
    struct churner churners[THREADS];
    category(c, "k", "SIM 0.9");
    for (unsigned i = 0; i < THREADS; i++) {
        churners[i] = (struct churner){.cache = c, .seed = i};
        assert_int_equal(pthread_create(&churners[i].thread, NULL, churn, &churners[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(churners[i].thread, NULL), 0);
        assert_int_equal(churners[i].wrong, 0);
    }
    close_it(c);
}

/* Vectors on the disk answer calls that block, from several threads, and after the folder was opened again. */
struct asking {
    struct quire_cache *cache;
    unsigned first, hits;
    atomic_bool failed;
};

static float *vector_number(unsigned i)
{
    static _Thread_local float vector[DIM];
    uint64_t x = i * UINT64_C(0x9e3779b97f4a7c15) + 1;
    for (unsigned k = 0; k < DIM; k++) {
        x = x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        vector[k] = (float)(x >> 40) / (float)(1 << 23) - 1;
    }
    return vector;
}

static void *ask_some(void *context)
{
    struct asking *a = context;
    for (unsigned i = a->first; i < a->first + 100; i++) {
        struct quire_cache_answer answer = {0};
        char right[32];
        struct quire_cache_query query = {
            .category = text_of("k"), .text = text_of("in other words"), .vector = vector_number(i)};
        int n = snprintf(right, sizeof right, "answer %u", i);
        if (quire_cache_get(a->cache, &query, &answer, NULL) < 0)
            atomic_store(&a->failed, true);
        else if (answer.status == QUIRE_CACHE_HIT)
            a->hits += answer.value.n_bytes == (size_t)n && memcmp(answer.value.data, right, (size_t)n) == 0;
        quire_cache_answer_free(&answer);
    }
    return NULL;
}

static void sealed_vectors_answer(void **state)
{
    enum { ENTRIES = 4800, ASKERS = 3 };
    struct quire_cache_options o = defaults();
    struct quire_cache_stats stats = {0};
    o.memory_bytes = 1 << 20;
    o.seal_rows = 1000;
    o.durability = QUIRE_DURABLE_NO;
    struct quire_cache *c = open_with(*state, &o);
    category(c, "k", "SIM 0.95 JITTER 0 GUARD none");
    for (unsigned i = 0; i < ENTRIES; i++) {
        char text[32], value[32];
        snprintf(text, sizeof text, "q%u", i);
        snprintf(value, sizeof value, "answer %u", i);
        store_simple(c, text, vector_number(i), value);
    }
    for (unsigned i = 0; stats.sealed_entries < ENTRIES / 4; i++) {
        assert_true(i < 6000);
        sleep_ms(20);
        assert_int_equal(quire_cache_get_stats(c, NONE, &stats, NULL), 0);
    }
    for (unsigned round = 0; round < 2; round++) {
        struct asking asking[ASKERS];
        pthread_t threads[ASKERS];
        for (unsigned t = 0; t < ASKERS; t++) { /* of the older half */
            asking[t] = (struct asking){.cache = c, .first = ENTRIES / 4 + 200 * t};
            assert_int_equal(pthread_create(&threads[t], NULL, ask_some, &asking[t]), 0);
        }
        for (unsigned t = 0; t < ASKERS; t++) {
            pthread_join(threads[t], NULL);
            assert_false(atomic_load(&asking[t].failed));
            assert_true(asking[t].hits >= 98);
        }
        close_it(c);
        c = open_with(*state, &o);
    }
    close_it(c);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(one_computes_for_all_who_wait),
        TEST(leaders_that_fail_are_followed),
        TEST(waits_end_in_time),
        TEST(closing_ends_waits_with_a_miss),
        TEST(stopping_ends_waits_with_a_miss),
        TEST(many_threads_get_their_own_answers),
        TEST(sealed_vectors_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
