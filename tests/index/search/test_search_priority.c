/*
 * test_search_priority.c - searches with priorities: whose steps go first, that answers are the same, and what
 * cancelling does to steps that wait. And without: whose reads go first.
 *
 * So that it does not depend on the device who is first, all reads under way are awaited before each step. A step is
 * counted as one call of searcher_work without time: it hands one read on.
 */
#include "index/search/search.h"
#include "tests/index/support_index.h"
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ROWS = 3000, DIM = 32, K = 10, N = 12 };

static char *folder;
static float *queries;

static const struct {
    const char *name;
    enum quire_index_kind kind;
} kinds[] = {{"graph", QUIRE_INDEX_PAGEGRAPH}, {"lists", QUIRE_INDEX_SPANN}};

struct bench {
    struct segment *segment;
    struct engine *engine;
    struct searcher *searcher;
};

struct asked {
    struct search_request request;
    uint32_t rows[K];
    unsigned *n_done, place; /* when it ended among all */
};

static int set_up(void **state)
{
    struct support_data data;
    (void)state;
    folder = support_folder_make();
    support_clusters(ROWS, DIM, QUIRE_TYPE_F32, 1, &data);
    queries = support_queries(&data, N, 2);
    for (size_t i = 0; i < SUPPORT_COUNT(kinds); i++) {
        struct quire_build_options options = support_options(QUIRE_METRIC_L2, QUIRE_SLOT_AUTO);
        char *path = support_path(folder, kinds[i].name);
        options.index = kinds[i].kind;
        options.block_bytes = 4096;
        support_build(path, &data, &options);
        free(path);
    }
    support_data_free(&data);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    free(queries);
    support_folder_remove(folder);
    return 0;
}

static void open_bench_with(struct bench *b, size_t kind, unsigned reads_max)
{
    struct engine_config config = {.one_thread = true, .reads_max = reads_max};
    struct segment_options options = {0};
    char *path = support_path(folder, kinds[kind].name);
    assert_int_equal(segment_open(path, &options, &b->segment, NULL), 0);
    assert_int_equal(engine_create(&config, &b->engine, NULL), 0);
    assert_int_equal(searcher_create(b->engine, NULL, &b->searcher, NULL), 0);
    free(path);
}

static void open_bench(struct bench *b, size_t kind)
{
    open_bench_with(b, kind, 0);
}

static void close_bench(struct bench *b)
{
    searcher_destroy(b->searcher);
    engine_destroy(b->engine);
    segment_unref(b->segment);
}

static void on_done(struct search_request *request)
{
    struct asked *a = request->owner;
    a->place = ++*a->n_done;
    for (uint32_t i = 0; i < request->n_hits; i++)
        a->rows[i] = request->hits[i].row;
}

static void start(struct bench *b, struct asked *a, uint32_t query, uint32_t priority, unsigned *n_done)
{
    *a = (struct asked){.n_done = n_done};
    a->request = (struct search_request){.segment = b->segment,
                                         .query = queries + (size_t)query * DIM,
                                         .options = support_search(K, 0.95f, 0),
                                         .priority = priority,
                                         .done = on_done,
                                         .owner = a};
    assert_int_equal(search_start(b->searcher, &a->request, NULL), 0);
}

static void await_reads(struct bench *b)
{
    do
        assert_true(engine_poll(b->engine, 0, 0) >= 0);
    while (engine_stats(b->engine)->reads_in_flight > 0);
}

/* Steps until so many have ended. */
static unsigned work_until(struct bench *b, const unsigned *n_done, unsigned wanted)
{
    unsigned steps = 0;
    while (*n_done < wanted) {
        await_reads(b);
        assert_true(searcher_has_steps(b->searcher));
        searcher_work(b->searcher, 0);
        steps++;
    }
    return steps;
}

/* The one that began last has the lowest number: it ends first, and meanwhile no other gets a step. */
static void test_order(void **state)
{
    (void)state;
    for (size_t kind = 0; kind < SUPPORT_COUNT(kinds); kind++) {
        struct bench b;
        struct asked crowd[N];
        unsigned n_done = 0;
        open_bench(&b, kind);
        for (uint32_t i = 0; i + 1 < N; i++)
            start(&b, &crowd[i], i, 7 + i % 3, &n_done);
        await_reads(&b);
        assert_int_equal(n_done, 0);
        start(&b, &crowd[N - 1], N - 1, 3, &n_done);
        unsigned steps = work_until(&b, &n_done, 1);
        assert_int_equal(crowd[N - 1].place, 1);
        assert_int_equal(steps, crowd[N - 1].request.stats.reads);
        work_until(&b, &n_done, N);
        for (uint32_t i = 0; i + 1 < N; i++)
            for (uint32_t j = 0; j + 1 < N; j++)
                assert_true(i % 3 >= j % 3 || crowd[i].place < crowd[j].place);
        assert_false(searcher_has_steps(b.searcher));
        close_bench(&b);
    }
}

/* Priorities change when steps are run, not what they find; without one nothing waits for searcher_work. */
static void test_same_answers(void **state)
{
    (void)state;
    for (size_t kind = 0; kind < SUPPORT_COUNT(kinds); kind++) {
        struct bench b;
        struct asked plain[N], ordered[N];
        unsigned n_plain = 0, n_ordered = 0;
        open_bench(&b, kind);
        for (uint32_t i = 0; i < N; i++) {
            start(&b, &plain[i], i, 0, &n_plain);
            start(&b, &ordered[i], i, 1 + i % 4, &n_ordered);
        }
        while (n_plain < N)
            assert_true(engine_poll(b.engine, 1, UINT64_MAX) >= 0);
        assert_int_equal(n_ordered, 0);
        work_until(&b, &n_ordered, N);
        for (uint32_t i = 0; i < N; i++) {
            assert_int_equal(plain[i].request.code, 0);
            assert_int_equal(plain[i].request.n_hits, K);
            assert_int_equal(ordered[i].request.stats.reads, plain[i].request.stats.reads);
            assert_memory_equal(ordered[i].rows, plain[i].rows, sizeof plain[i].rows);
        }
        close_bench(&b);
    }
}

/* Where the device takes one read at a time, the oldest search has it until it ends, however many rounds it needs and
 * however many began after it; frames for blocks, of which there are fewer than wanted, go by the same order. */
static void test_oldest_first(void **state)
{
    enum { CROWD = 32 };
    (void)state;
    for (size_t kind = 0; kind < SUPPORT_COUNT(kinds); kind++) {
        struct bench b;
        static struct asked crowd[CROWD];
        unsigned n_done = 0, rounds_least = UINT_MAX, rounds_most = 0;
        open_bench_with(&b, kind, 1);
        for (uint32_t i = 0; i < CROWD; i++)
            start(&b, &crowd[i], i % N, 0, &n_done);
        while (n_done < CROWD)
            assert_true(engine_poll(b.engine, 1, UINT64_MAX) >= 0);
        for (uint32_t i = 0; i < CROWD; i++) {
            uint32_t rounds = crowd[i].request.stats.rounds;
            assert_int_equal(crowd[i].request.code, 0);
            assert_int_equal(crowd[i].place, i + 1);
            rounds_least = rounds < rounds_least ? rounds : rounds_least;
            rounds_most = rounds > rounds_most ? rounds : rounds_most;
        }
        assert_true(kinds[kind].kind == QUIRE_INDEX_SPANN || rounds_most > rounds_least);
        close_bench(&b);
    }
}

static void test_cancel(void **state)
{
    (void)state;
    for (size_t kind = 0; kind < SUPPORT_COUNT(kinds); kind++) {
        struct bench b;
        struct asked asked[N];
        unsigned n_done = 0;
        open_bench(&b, kind);
        for (uint32_t i = 0; i < N; i++)
            start(&b, &asked[i], i, 1 + i, &n_done);
        await_reads(&b);
        searcher_work(b.searcher, 0);
        assert_true(searcher_has_steps(b.searcher));
        searcher_cancel(b.searcher);
        assert_int_equal(n_done, N);
        for (uint32_t i = 0; i < N; i++)
            assert_int_equal(asked[i].request.code, QUIRE_ECANCELLED);
        assert_false(searcher_has_steps(b.searcher));
        close_bench(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_order), cmocka_unit_test(test_same_answers),
                                       cmocka_unit_test(test_oldest_first), cmocka_unit_test(test_cancel)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
