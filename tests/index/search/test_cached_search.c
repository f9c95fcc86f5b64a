/*
 * test_cached_search.c - searches of an index whose budget leaves room for hot blocks.
 *
 * A cache must change where blocks come from and nothing else: every answer is compared with that of a handle without
 * one, and each search must find in the cache or read exactly the blocks that it reads without. Two budgets: one with
 * room for every block, where a second lap reads nothing at all, and one with room for some, where blocks are evicted
 * while others are copied. What the disk holds is changed under a warm handle to see who still asks it.
 */
#include "index/format/format.h"
#include "io/sections.h"
#include "tests/index/support_index.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ROWS        4000u
#define DIM         96u
#define QUERIES     80u
#define K           10u
#define THREADS     4u
#define BLOCK_BYTES 4096u
#define RESERVE     (6u << 20) /* of a budget, for the process and the buffers of searches */

struct answer {
    struct quire_hit hits[K];
    uint32_t n_hits;
    struct quire_search_stats stats;
};

static struct {
    char *folder, *path;
    struct support_data data;
    float *queries;
    struct quire_info info; /* without a budget */
    struct answer plain[QUERIES];
    struct answer exact; /* of query 0 */
} shared;

static struct quire_index *open_within(const char *path, uint64_t memory_bytes, bool no_cache)
{
    struct quire_open_options options;
    quire_open_options_init(&options);
    options.memory_bytes = memory_bytes;
    options.no_cache = no_cache;
    return support_open(path, &options);
}

static uint64_t blocks_bytes(void)
{
    return (uint64_t)shared.info.blocks * shared.info.block_bytes;
}

/* Room for all blocks and the books of a cache. */
static uint64_t large_budget(void)
{
    return shared.info.resident_bytes + RESERVE + blocks_bytes() + (1u << 20);
}

/* Room for a third of them. */
static uint64_t small_budget(void)
{
    return shared.info.resident_bytes + RESERVE + blocks_bytes() / 3;
}

static const float *query_at(uint32_t i)
{
    return shared.queries + (size_t)i * DIM;
}

static void ask(struct quire_index *index, uint32_t query, bool exact, struct answer *out)
{
    struct quire_search_options options = support_search(K, exact ? 0 : 0.95f, 0);
    struct quire_error err;
    options.exact = exact;
    if (quire_search(index, query_at(query), &options, out->hits, &out->n_hits, &out->stats, &err) < 0)
        fail_msg("query %u: %s", query, err.message);
}

/* Same hits, and the same blocks looked at, wherever they came from. */
static bool is_same(const struct answer *a, const struct answer *b)
{
    if (a->n_hits != b->n_hits || a->stats.reads + a->stats.cached != b->stats.reads + b->stats.cached ||
        a->stats.rows_scored != b->stats.rows_scored || a->stats.codes_scored != b->stats.codes_scored)
        return false;
    for (uint32_t i = 0; i < a->n_hits; i++)
        if (a->hits[i].id != b->hits[i].id || memcmp(&a->hits[i].distance, &b->hits[i].distance, sizeof(float)) != 0)
            return false;
    return true;
}

static int set_up(void **state)
{
    (void)state;
    shared.folder = support_folder_make();
    shared.path = support_path(shared.folder, "index");
    support_clusters(ROWS, DIM, QUIRE_TYPE_F32, 31, &shared.data);
    shared.queries = support_queries(&shared.data, QUERIES, 6);
    struct quire_build_options options = support_options(QUIRE_METRIC_L2, QUIRE_SLOT_F32);
    options.block_bytes = BLOCK_BYTES;
    support_build(shared.path, &shared.data, &options);
    struct quire_index *index = support_open(shared.path, NULL);
    quire_get_info(index, &shared.info);
    assert_int_equal(shared.info.cache_bytes, 0); /* no budget: nothing says how much a cache may take */
    for (uint32_t i = 0; i < QUERIES; i++) {
        ask(index, i, false, &shared.plain[i]);
        assert_true(shared.plain[i].stats.reads > 0 && shared.plain[i].stats.cached == 0);
    }
    ask(index, 0, true, &shared.exact);
    quire_close(index);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    support_data_free(&shared.data);
    free(shared.queries);
    free(shared.path);
    support_folder_remove(shared.folder);
    return 0;
}

/* Asks all queries once, compares, and returns how many blocks were read and found. */
static void lap(struct quire_index *index, uint64_t *reads, uint64_t *cached)
{
    *reads = *cached = 0;
    for (uint32_t i = 0; i < QUERIES; i++) {
        struct answer answer;
        ask(index, i, false, &answer);
        if (!is_same(&answer, &shared.plain[i]))
            fail_msg("query %u: other hits or %u + %u blocks instead of %u", i, answer.stats.reads, answer.stats.cached,
                     shared.plain[i].stats.reads);
        *reads += answer.stats.reads;
        *cached += answer.stats.cached;
    }
}

static void test_second_lap_reads_nothing(void **state)
{
    struct quire_index *index = open_within(shared.path, large_budget(), false);
    struct quire_info info;
    uint64_t reads, cached, reads_again, cached_again;
    (void)state;
    quire_get_info(index, &info);
    assert_int_equal(info.code_bits, shared.info.code_bits);
    assert_true(info.cache_bytes >= blocks_bytes());
    lap(index, &reads, &cached);
    assert_true(reads > 0 && cached > 0); /* queries near each other share blocks */
    lap(index, &reads_again, &cached_again);
    assert_int_equal(reads_again, 0);
    assert_int_equal(cached_again, reads + cached);
    quire_close(index);
}

static void test_later_laps_read_less(void **state)
{
    struct quire_index *index = open_within(shared.path, small_budget(), false);
    struct quire_info info;
    uint64_t first, reads, cached, sum;
    (void)state;
    quire_get_info(index, &info);
    assert_true(info.cache_bytes > 0 && info.cache_bytes < blocks_bytes() / 2);
    lap(index, &first, &cached);
    sum = first + cached;
    for (unsigned i = 0; i < 3; i++) {
        lap(index, &reads, &cached);
        assert_true(reads < first && cached > 0);
        assert_int_equal(reads + cached, sum);
    }
    quire_close(index);
}

static void test_without_a_cache(void **state)
{
    struct quire_index *index = open_within(shared.path, large_budget(), true);
    struct quire_info info;
    uint64_t reads[2], cached;
    (void)state;
    quire_get_info(index, &info);
    assert_int_equal(info.cache_bytes, 0);
    for (unsigned i = 0; i < 2; i++) {
        lap(index, &reads[i], &cached);
        assert_int_equal(cached, 0);
    }
    assert_int_equal(reads[0], reads[1]);
    quire_close(index);
}

static void test_plan_is_within_the_budget(void **state)
{
    unsigned with = 0, without = 0;
    (void)state;
    for (uint64_t budget = shared.info.resident_bytes / 2; budget < large_budget() + (4u << 20); budget += 77777) {
        struct quire_index *index = open_within(shared.path, budget, false);
        struct quire_info info;
        quire_get_info(index, &info);
        assert_int_equal(info.memory_bytes, budget);
        assert_true(info.resident_bytes + info.cache_bytes <= budget);
        assert_true(info.cache_bytes == 0 || info.resident_bytes + info.cache_bytes + RESERVE <= budget);
        with += info.cache_bytes > 0;
        without += info.cache_bytes == 0;
        quire_close(index);
    }
    assert_true(with > 10 && without > 10);
}

struct loop_call {
    bool in_poll;
    unsigned done, outside;
    uint32_t reads;
};

static void on_answer(void *context, int code, const struct quire_hit *hits, uint32_t n_hits,
                      const struct quire_search_stats *stats, const struct quire_error *err)
{
    struct loop_call *call = context;
    (void)hits;
    (void)err;
    assert_true(code == 0 && n_hits == K);
    call->done++;
    call->outside += !call->in_poll;
    call->reads += stats->reads;
}

/* Also where no block has to be read a callback runs inside quire_loop_poll, and is counted. */
static void test_cached_answers_come_from_the_poll(void **state)
{
    struct quire_index *index = open_within(shared.path, large_budget(), false);
    struct quire_search_options options = support_search(K, 0.95f, 0);
    struct quire_loop *loop;
    struct loop_call call = {0};
    struct quire_error err;
    uint64_t reads, cached;
    (void)state;
    lap(index, &reads, &cached);
    assert_int_equal(quire_loop_create(NULL, &loop, &err), 0);
    for (uint32_t i = 0; i < QUERIES; i++)
        assert_int_equal(quire_loop_search(loop, index, query_at(i), &options, on_answer, &call, &err), 0);
    assert_int_equal(call.done, 0);
    call.in_poll = true;
    int counted = 0;
    while (call.done < QUERIES) {
        int n = quire_loop_poll(loop, 1, 10000000);
        assert_true(n >= 0);
        counted += n;
    }
    assert_int_equal(counted, QUERIES);
    assert_true(call.outside == 0 && call.reads == 0);
    quire_loop_destroy(loop);
    quire_close(index);
}

/* A limit on blocks means the same whether they are in the cache or not. */
static void test_limit_counts_cached_blocks(void **state)
{
    struct quire_index *index = open_within(shared.path, large_budget(), false);
    struct quire_search_options options = support_search(K, 0.95f, 0);
    struct quire_error err;
    (void)state;
    options.reads_max = 1;
    for (int round = 0; round < 2; round++)
        for (uint32_t i = 0; i < 10; i++) {
            struct answer a;
            assert_int_equal(quire_search(index, query_at(i), &options, a.hits, &a.n_hits, &a.stats, &err), 0);
            assert_int_equal(a.stats.reads + a.stats.cached, 1);
            assert_true(!a.stats.complete);
        }
    quire_close(index);
}

static void test_exact_search(void **state)
{
    const uint64_t budgets[] = {large_budget(), small_budget()};
    (void)state;
    uint32_t ids[K];
    support_truth(QUIRE_METRIC_L2, shared.data.floats, ROWS, DIM, query_at(0), K, ids, NULL);
    for (size_t b = 0; b < SUPPORT_COUNT(budgets); b++) {
        struct quire_index *index = open_within(shared.path, budgets[b], false);
        struct answer answer;
        for (unsigned i = 0; i < 3; i++) {
            ask(index, 0, true, &answer);
            assert_true(answer.stats.exact && is_same(&answer, &shared.exact));
            assert_int_equal(answer.stats.reads + answer.stats.cached, shared.info.blocks);
            for (uint32_t h = 0; h < K; h++)
                assert_int_equal(answer.hits[h].id, ids[h]);
            assert_true(i > 0 ? answer.stats.cached > 0 : answer.stats.cached == 0);
        }
        if (b == 0)
            assert_int_equal(answer.stats.reads, 0);
        quire_close(index);
    }
}

/* ---- many at once ------------------------------------------------------------------------------------------------ */

static void test_batches(void **state)
{
    const uint64_t budgets[] = {large_budget(), small_budget()};
    static struct quire_hit hits[QUERIES * K];
    static uint32_t n_hits[QUERIES];
    static struct quire_search_stats stats[QUERIES];
    struct quire_search_options options = support_search(K, 0.95f, 0);
    (void)state;
    for (size_t b = 0; b < SUPPORT_COUNT(budgets); b++) {
        struct quire_index *index = open_within(shared.path, budgets[b], false);
        uint64_t cached = 0;
        for (unsigned round = 0; round < 4; round++) {
            struct quire_error err;
            if (quire_search_batch(index, shared.queries, QUERIES, &options, 3, 8, hits, n_hits, stats, &err) < 0)
                fail_msg("%s", err.message);
            for (uint32_t i = 0; i < QUERIES; i++) {
                struct answer answer = {.n_hits = n_hits[i], .stats = stats[i]};
                memcpy(answer.hits, hits + (size_t)i * K, sizeof answer.hits);
                if (!is_same(&answer, &shared.plain[i]))
                    fail_msg("round %u, query %u: not the answer without a cache", round, i);
                cached += stats[i].cached;
            }
        }
        assert_true(cached > 0);
        quire_close(index);
    }
}

struct asker {
    struct quire_index *index;
    uint32_t first;
    unsigned wrong;
    uint64_t cached;
};

/* Searches, exact ones and look-ups of vectors, begun at another place by each thread. */
static void *ask_all(void *context)
{
    struct asker *a = context;
    struct quire_search_options options = support_search(K, 0.95f, 0), exact = support_search(K, 0, 0);
    exact.exact = true;
    for (uint32_t n = 0; n < 2 * QUERIES; n++) {
        uint32_t i = (a->first + n) % QUERIES;
        struct answer answer;
        float vector[DIM];
        a->wrong += quire_search(a->index, query_at(i), &options, answer.hits, &answer.n_hits, &answer.stats, NULL) < 0;
        a->wrong += !is_same(&answer, &shared.plain[i]);
        a->cached += answer.stats.cached;
        a->wrong += quire_vector(a->index, answer.hits[0].row, vector, NULL) < 0;
        a->wrong += memcmp(vector, shared.data.floats + answer.hits[0].id * DIM, sizeof vector) != 0;
        if (n % 40 != 7)
            continue;
        a->wrong += quire_search(a->index, query_at(0), &exact, answer.hits, &answer.n_hits, &answer.stats, NULL) < 0;
        a->wrong += !is_same(&answer, &shared.exact);
    }
    return NULL;
}

static void test_many_threads(void **state)
{
    struct quire_index *index = open_within(shared.path, small_budget(), false);
    struct asker askers[THREADS];
    pthread_t threads[THREADS];
    (void)state;
    for (uint32_t t = 0; t < THREADS; t++) {
        askers[t] = (struct asker){.index = index, .first = t * QUERIES / THREADS};
        assert_int_equal(pthread_create(&threads[t], NULL, ask_all, &askers[t]), 0);
    }
    for (uint32_t t = 0; t < THREADS; t++) {
        assert_int_equal(pthread_join(threads[t], NULL), 0);
        assert_int_equal(askers[t].wrong, 0);
        assert_true(askers[t].cached > 0);
    }
    quire_close(index);
}

/* ---- damage ------------------------------------------------------------------------------------------------------ */

/* Overwrites in place, as the handle has the file open. */
static void overwrite(const char *file, const uint8_t *data, size_t bytes)
{
    FILE *stream = fopen(file, "r+b");
    assert_non_null(stream);
    assert_int_equal(fwrite(data, 1, bytes, stream), bytes);
    assert_int_equal(fclose(stream), 0);
}

static void test_damaged_blocks_are_not_kept(void **state)
{
    char *copy = support_path(shared.folder, "copy"), *file = support_path(copy, BLOCKS_NAME);
    size_t bytes, bad = SECTION_ALIGN + (size_t)(shared.info.blocks / 2) * BLOCK_BYTES + 700;
    struct quire_search_options options = support_search(K, 0, 0);
    struct answer answer;
    (void)state;
    options.exact = true;
    support_copy_folder(shared.path, copy);
    uint8_t *data = support_read_file(file, &bytes);
    data[bad] ^= 16;
    overwrite(file, data, bytes);
    struct quire_index *index = open_within(copy, large_budget(), false);
    for (unsigned i = 0; i < 3; i++) {
        struct quire_error err = {0};
        int rc = quire_search(index, query_at(0), &options, answer.hits, &answer.n_hits, NULL, &err);
        assert_int_equal(rc, QUIRE_ECORRUPT);
        assert_non_null(strstr(err.message, "copy/" BLOCKS_NAME));
    }
    data[bad] ^= 16;
    overwrite(file, data, bytes);
    ask(index, 0, true, &answer);
    assert_true(is_same(&answer, &shared.exact) && answer.stats.cached > 0 && answer.stats.reads > 0);
    /* all blocks are kept now: what happens to the file is not seen, but by who opens it again */
    memset(data + SECTION_ALIGN, 0xa5, bytes - SECTION_ALIGN);
    overwrite(file, data, bytes);
    ask(index, 0, true, &answer);
    assert_true(is_same(&answer, &shared.exact) && answer.stats.reads == 0);
    quire_close(index);
    index = open_within(copy, large_budget(), false);
    assert_int_equal(quire_search(index, query_at(0), &options, answer.hits, &answer.n_hits, NULL, NULL),
                     QUIRE_ECORRUPT);
    quire_close(index);
    free(data);
    free(file);
    free(copy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_second_lap_reads_nothing),
        cmocka_unit_test(test_later_laps_read_less),
        cmocka_unit_test(test_without_a_cache),
        cmocka_unit_test(test_plan_is_within_the_budget),
        cmocka_unit_test(test_cached_answers_come_from_the_poll),
        cmocka_unit_test(test_limit_counts_cached_blocks),
        cmocka_unit_test(test_exact_search),
        cmocka_unit_test(test_batches),
        cmocka_unit_test(test_many_threads),
        cmocka_unit_test(test_damaged_blocks_are_not_kept),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
