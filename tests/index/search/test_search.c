/*
 * test_search.c - searches of a built index against brute force, and the same answer whichever way one asks.
 *
 * Truth is computed in double over the input. Recall is counted by distance, so a tie is no error. A search is a
 * function of index, query and options: reads of a round are all back before the next begins, so hits and counts must
 * not depend on engine, lanes, queries in flight or other threads, bit for bit.
 */
#include "index/format/format.h"
#include "io/bytes.h"
#include "tests/index/support_index.h"
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define QUERIES 40u
#define K_MOST  100u

static const enum quire_metric metrics[] = {QUIRE_METRIC_L2, QUIRE_METRIC_COSINE, QUIRE_METRIC_IP};

/* One index that most tests share. */
static struct {
    char *folder, *path;
    struct support_data data;
    float *queries;
    struct quire_index *index;
} shared;

static int set_up(void **state)
{
    (void)state;
    shared.folder = support_folder_make();
    shared.path = support_path(shared.folder, "shared");
    support_clusters(2000, 48, QUIRE_TYPE_F32, 1, &shared.data);
    shared.queries = support_queries(&shared.data, QUERIES, 2);
    struct quire_build_options options = support_options(QUIRE_METRIC_L2, QUIRE_SLOT_AUTO);
    options.block_bytes = 4096;
    options.code_bits = 8;
    support_build(shared.path, &shared.data, &options);
    shared.index = support_open(shared.path, NULL);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    quire_close(shared.index);
    free(shared.queries);
    support_data_free(&shared.data);
    free(shared.path);
    support_folder_remove(shared.folder);
    return 0;
}

static const float *query_at(uint32_t i)
{
    return shared.queries + (size_t)i * shared.data.dim;
}

static uint32_t search(struct quire_index *index, const float *query, struct quire_search_options options,
                       struct quire_hit *hits, struct quire_search_stats *stats)
{
    struct quire_error err;
    uint32_t n_hits = UINT32_MAX;
    int rc = quire_search(index, query, &options, hits, &n_hits, stats, &err);
    if (rc < 0)
        fail_msg("search: %s", err.message);
    assert_true(n_hits <= options.k);
    return n_hits;
}

/* Nearest first, no row twice. */
static void check_hits(const struct quire_hit *hits, uint32_t n, uint64_t rows)
{
    uint8_t *seen = calloc(rows, 1);
    assert_non_null(seen);
    for (uint32_t i = 0; i < n; i++) {
        assert_true(hits[i].id < rows && hits[i].row < rows && isfinite(hits[i].distance));
        assert_true(i == 0 || hits[i - 1].distance <= hits[i].distance);
        assert_false(seen[hits[i].id]);
        seen[hits[i].id] = 1;
    }
    free(seen);
}

static void check_same(const struct quire_hit *a, const struct quire_hit *b, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(a[i].id, b[i].id);
        assert_int_equal(a[i].row, b[i].row);
        assert_memory_equal(&a[i].distance, &b[i].distance, sizeof(float));
    }
}

/* ---- recall ------------------------------------------------------------------------------------------------------ */

/* A hit's distance is the metric's, up to the precision of the slot. */
static void check_distances(enum quire_metric metric, const struct support_data *data, const float *query,
                            const struct quire_hit *hits, uint32_t n, double precision)
{
    double qq = -support_distance(QUIRE_METRIC_IP, query, query, data->dim),
           scale = metric == QUIRE_METRIC_COSINE ? 1 : qq;
    for (uint32_t i = 0; i < n; i++) {
        const float *row = data->floats + hits[i].id * data->dim;
        double exact = support_distance(metric, query, row, data->dim);
        assert_true(fabs(hits[i].distance - exact) <= precision * (scale + fabs(exact)));
    }
}

static double check_recall(const char *path, enum quire_metric metric, const struct support_data *data, bool coarse)
{
    struct quire_index *index = support_open(path, NULL);
    float *queries = support_queries(data, 30, 3);
    struct quire_hit hits[10];
    double recall = 0, exact_recall = 0;
    for (uint32_t i = 0; i < 30; i++) {
        const float *query = queries + (size_t)i * data->dim;
        struct quire_search_options options = support_search(10, 0.95f, 0);
        uint32_t n = search(index, query, options, hits, NULL);
        check_hits(hits, n, data->rows);
        check_distances(metric, data, query, hits, n, coarse ? 2e-2 : 1e-5);
        recall += support_recall(metric, data->floats, data->rows, data->dim, query, 10, hits, n) / 30;
        options.exact = true;
        n = search(index, query, options, hits, NULL);
        assert_int_equal(n, 10);
        exact_recall += support_recall(metric, data->floats, data->rows, data->dim, query, 10, hits, n) / 30;
    }
    /* 300 answers of 30 queries, and a calibration of 60: a few points of noise; the mean over all indexes is held
     * closer */
    if (recall < 0.88 || exact_recall < (coarse ? 0.97 : 0.9999))
        fail_msg("%s, %s: recall %.3f, exact %.3f", quire_metric_name(metric), quire_type_name(data->type), recall,
                 exact_recall);
    free(queries);
    quire_close(index);
    return recall;
}

/* All metrics with the first slot, and each other slot with a metric of its own: 5 of 9 indexes stand for all. */
static void check_type(enum quire_type type, const enum quire_slot slots[3])
{
    struct support_data data;
    double recall = 0;
    support_clusters(1100, 40, type, type + 10u, &data);
    for (size_t i = 0; i < 5; i++) {
        enum quire_metric metric = metrics[i < 3 ? i : (i + type) % 3];
        enum quire_slot slot = slots[i < 3 ? 0 : i - 2];
        char *path;
        struct quire_build_options options = support_options(metric, slot);
        options.block_bytes = 4096;
        assert_true(asprintf(&path, "%s/%s-%zu", shared.folder, quire_type_name(type), i) > 0);
        support_build(path, &data, &options);
        bool coarse = slot == QUIRE_SLOT_Q8 || (slot == QUIRE_SLOT_F16 && type == QUIRE_TYPE_F32) ||
                      (slot == QUIRE_SLOT_BF16 && type != QUIRE_TYPE_BF16);
        recall += check_recall(path, metric, &data, coarse) / 5;
        free(path);
    }
    assert_true(recall > 0.93);
    support_data_free(&data);
}

static void test_recall_f32(void **state)
{
    (void)state;
    check_type(QUIRE_TYPE_F32, (const enum quire_slot[]){QUIRE_SLOT_Q8, QUIRE_SLOT_F32, QUIRE_SLOT_F16});
}

static void test_recall_f16(void **state)
{
    (void)state;
    check_type(QUIRE_TYPE_F16, (const enum quire_slot[]){QUIRE_SLOT_Q8, QUIRE_SLOT_F32, QUIRE_SLOT_F16});
}

static void test_recall_bf16(void **state)
{
    (void)state;
    check_type(QUIRE_TYPE_BF16, (const enum quire_slot[]){QUIRE_SLOT_Q8, QUIRE_SLOT_F32, QUIRE_SLOT_BF16});
}

static void test_recall_i8(void **state)
{
    (void)state;
    check_type(QUIRE_TYPE_I8, (const enum quire_slot[]){QUIRE_SLOT_I8, QUIRE_SLOT_Q8, QUIRE_SLOT_BF16});
}

static void test_recall_u8(void **state)
{
    (void)state;
    check_type(QUIRE_TYPE_U8, (const enum quire_slot[]){QUIRE_SLOT_U8, QUIRE_SLOT_Q8, QUIRE_SLOT_F32});
}

/* Exact search over what is stored: the stored vectors, read back one by one, searched by brute force. */
static void test_exact_is_brute_force_of_stored(void **state)
{
    uint32_t dim = shared.data.dim, rows = shared.data.rows;
    float *stored = malloc(sizeof(float) * rows * dim);
    struct quire_hit hits[K_MOST];
    double distances[K_MOST];
    (void)state;
    assert_non_null(stored);
    for (uint32_t row = 0; row < rows; row++)
        assert_int_equal(quire_vector(shared.index, row, stored + (size_t)row * dim, NULL), 0);
    for (uint32_t i = 0; i < QUERIES; i++) {
        struct quire_search_options options = support_search(K_MOST, 0, 0);
        struct quire_search_stats stats;
        options.exact = true;
        assert_int_equal(search(shared.index, query_at(i), options, hits, &stats), K_MOST);
        check_hits(hits, K_MOST, rows);
        assert_true(stats.exact && stats.complete);
        assert_int_equal(stats.rows_scored, rows);
        support_truth(QUIRE_METRIC_L2, stored, rows, dim, query_at(i), K_MOST, NULL, distances);
        /* the slot keeps |row - centre|^2 apart from its code, so the two differ by the code's own rounding */
        for (uint32_t j = 0; j < K_MOST; j++)
            assert_true(fabs(hits[j].distance - distances[j]) < 2e-3 * (1 + distances[j]));
    }
    free(stored);
}

/* ---- options ----------------------------------------------------------------------------------------------------- */

static void test_any_k(void **state)
{
    static const uint32_t ks[] = {1, 2, 10, 100, 1999, 2000, 2001, QUIRE_K_MAX};
    struct quire_hit *hits = malloc(sizeof *hits * QUIRE_K_MAX);
    (void)state;
    assert_non_null(hits);
    for (size_t i = 0; i < SUPPORT_COUNT(ks); i++)
        for (int exact = 0; exact < 2; exact++) {
            struct quire_search_options options = support_search(ks[i], 0.9f, 0);
            options.exact = exact;
            uint32_t n = search(shared.index, query_at(0), options, hits, NULL);
            assert_int_equal(n, ks[i] < shared.data.rows ? ks[i] : shared.data.rows);
            check_hits(hits, n, shared.data.rows);
        }
    free(hits);
}

static void test_defaults(void **state)
{
    struct quire_search_options options;
    struct quire_hit hits[10], same[10];
    uint32_t n_hits = 0;
    (void)state;
    quire_search_options_init(&options);
    assert_int_equal(options.k, 10);
    assert_int_equal(quire_search(shared.index, query_at(1), NULL, hits, &n_hits, NULL, NULL), 0);
    assert_int_equal(n_hits, 10);
    /* no recall and no effort mean recall 0.95 */
    assert_int_equal(search(shared.index, query_at(1), support_search(10, 0.95f, 0), same, NULL), 10);
    check_same(hits, same, 10);
}

static int search_code(struct quire_index *index, const float *query, struct quire_search_options options)
{
    struct quire_hit hit = {.id = 77, .row = 77, .distance = 77};
    uint32_t n_hits = 99;
    struct quire_error err = {0};
    int rc = quire_search(index, query, &options, &hit, &n_hits, NULL, &err);
    if (rc < 0) { /* outputs are untouched, the error says something */
        assert_true(n_hits == 99 && hit.id == 77);
        assert_int_equal(err.code, rc);
        assert_true(err.message[0] != 0);
    }
    return rc;
}

static void test_bad_requests(void **state)
{
    struct quire_hit hit;
    uint32_t n_hits;
    float query[48];
    (void)state;
    memcpy(query, query_at(0), sizeof query);
    assert_int_equal(search_code(shared.index, query, support_search(0, 0, 0)), QUIRE_ERANGE);
    assert_int_equal(search_code(shared.index, query, support_search(QUIRE_K_MAX + 1, 0, 0)), QUIRE_ERANGE);
    assert_int_equal(search_code(shared.index, query, support_search(1, 1.01f, 0)), QUIRE_ERANGE);
    assert_int_equal(search_code(shared.index, query, support_search(1, -0.5f, 0)), QUIRE_ERANGE);
    assert_int_equal(search_code(shared.index, query, support_search(1, NAN, 0)), QUIRE_ERANGE);
    query[47] = NAN;
    assert_int_equal(search_code(shared.index, query, support_search(1, 0, 0)), QUIRE_ENOTFINITE);
    query[47] = -INFINITY;
    assert_int_equal(search_code(shared.index, query, support_search(1, 0, 0)), QUIRE_ENOTFINITE);
    assert_int_equal(quire_search(NULL, query, NULL, &hit, &n_hits, NULL, NULL), QUIRE_EINVALID);
    assert_int_equal(quire_search(shared.index, NULL, NULL, &hit, &n_hits, NULL, NULL), QUIRE_EINVALID);
    assert_int_equal(quire_search(shared.index, query_at(0), NULL, NULL, &n_hits, NULL, NULL), QUIRE_EINVALID);
    assert_int_equal(quire_search(shared.index, query_at(0), NULL, &hit, NULL, NULL, NULL), QUIRE_EINVALID);
}

static void test_unknown_struct_bytes(void **state)
{
    struct quire_search_options options = support_search(1, 0, 0);
    (void)state;
    options.struct_bytes = sizeof options + 8;
    assert_int_equal(search_code(shared.index, query_at(0), options), QUIRE_EINVALID);
    options.struct_bytes = 4;
    assert_int_equal(search_code(shared.index, query_at(0), options), QUIRE_EINVALID);
}

static void test_zero_query(void **state)
{
    struct support_data data;
    float zero[40] = {0};
    (void)state;
    support_clusters(300, 40, QUIRE_TYPE_F32, 5, &data);
    for (size_t m = 0; m < SUPPORT_COUNT(metrics); m++) {
        char *path = support_path(shared.folder, quire_metric_name(metrics[m]));
        struct quire_build_options options = support_options(metrics[m], QUIRE_SLOT_AUTO);
        support_build(path, &data, &options);
        struct quire_index *index = support_open(path, NULL);
        assert_int_equal(search_code(index, zero, support_search(1, 0, 0)), 0);
        quire_close(index);
        free(path);
    }
    support_data_free(&data);
}

/* More effort reads more and finds more, from 1 up to the largest number. */
static void test_effort(void **state)
{
    static const uint32_t efforts[] = {1, 16, 64, 256, 1024, UINT32_MAX};
    struct quire_hit hits[10];
    double recall_before = 0;
    uint64_t reads_before = 0;
    (void)state;
    for (size_t e = 0; e < SUPPORT_COUNT(efforts); e++) {
        double recall = 0;
        uint64_t reads = 0;
        for (uint32_t i = 0; i < QUERIES; i++) {
            struct quire_search_stats stats;
            uint32_t n = search(shared.index, query_at(i), support_search(10, 0, efforts[e]), hits, &stats);
            assert_int_equal(n, 10);
            assert_true(stats.complete && !stats.exact);
            assert_true(stats.effort >= efforts[e] || efforts[e] == UINT32_MAX);
            recall += support_recall(QUIRE_METRIC_L2, shared.data.floats, shared.data.rows, shared.data.dim,
                                     query_at(i), 10, hits, n) /
                      QUERIES;
            reads += stats.reads;
        }
        assert_true(recall >= recall_before - 0.02);
        assert_true(reads >= reads_before);
        recall_before = recall;
        reads_before = reads;
    }
    assert_true(recall_before > 0.97);
}

static void test_counters(void **state)
{
    struct quire_info info;
    struct quire_hit hits[10];
    (void)state;
    quire_get_info(shared.index, &info);
    for (uint32_t i = 0; i < QUERIES; i++) {
        struct quire_search_stats stats;
        struct quire_search_options options = support_search(10, 0.95f, 0);
        memset(&stats, 0xff, sizeof stats);
        search(shared.index, query_at(i), options, hits, &stats);
        assert_true(stats.reads > 0 && stats.reads <= info.blocks);
        assert_true(stats.bytes == (uint64_t)stats.reads * info.block_bytes);
        assert_true(stats.rounds > 0 && stats.rounds <= stats.reads);
        assert_true(stats.rows_scored >= 10 && stats.rows_scored <= stats.reads * info.slots_per_block);
        assert_true(stats.codes_scored > 0 && stats.effort > 0);
        assert_true(stats.cpu_ns > 0 && stats.latency_ns > 0);
        assert_true(stats.complete && !stats.exact);
        options.exact = true;
        search(shared.index, query_at(i), options, hits, &stats);
        assert_true(stats.exact && stats.complete);
        assert_int_equal(stats.reads, info.blocks);
        assert_int_equal(stats.rows_scored, info.rows);
        assert_true(stats.bytes == (uint64_t)info.blocks * info.block_bytes);
    }
}

static void test_reads_max(void **state)
{
    struct quire_hit hits[10];
    struct quire_search_stats stats;
    (void)state;
    for (uint32_t limit = 1; limit < 12; limit++)
        for (uint32_t i = 0; i < QUERIES; i++) {
            struct quire_search_options options = support_search(10, 0, 400);
            search(shared.index, query_at(i), options, hits, &stats);
            uint32_t unlimited = stats.reads;
            options.reads_max = limit;
            uint32_t n = search(shared.index, query_at(i), options, hits, &stats);
            check_hits(hits, n, shared.data.rows);
            assert_true(n > 0);
            assert_true(stats.reads <= limit);
            /* a last round cut to the limit may end the search by its own rule as well */
            assert_true(stats.complete || unlimited > limit);
            assert_true(unlimited > limit || stats.reads == unlimited);
            options.exact = true;
            search(shared.index, query_at(i), options, hits, &stats);
            assert_int_equal(stats.reads, limit);
            assert_true(!stats.exact && !stats.complete);
        }
}

/* ---- the same answer, whichever way ------------------------------------------------------------------------------ */

struct answers {
    struct quire_hit hits[QUERIES * 10];
    uint32_t n_hits[QUERIES];
    struct quire_search_stats stats[QUERIES];
};

static void ask_one_by_one(struct quire_index *index, struct quire_search_options options, struct answers *out)
{
    for (uint32_t i = 0; i < QUERIES; i++)
        out->n_hits[i] = search(index, query_at(i), options, out->hits + i * options.k, &out->stats[i]);
}

static void check_same_answers(const struct answers *a, const struct answers *b)
{
    for (uint32_t i = 0; i < QUERIES; i++) {
        assert_int_equal(a->n_hits[i], b->n_hits[i]);
        check_same(a->hits + i * 10, b->hits + i * 10, a->n_hits[i]);
        assert_int_equal(a->stats[i].reads, b->stats[i].reads);
        assert_int_equal(a->stats[i].rounds, b->stats[i].rounds);
        assert_int_equal(a->stats[i].rows_scored, b->stats[i].rows_scored);
        assert_int_equal(a->stats[i].codes_scored, b->stats[i].codes_scored);
    }
}

static void check_batches(struct quire_index *index, const struct answers *expected,
                          struct quire_search_options options)
{
    static const struct {
        unsigned lanes, inflight;
    } ways[] = {{0, 0}, {1, 1}, {1, 7}, {3, 4}, {8, 32}};
    for (size_t w = 0; w < SUPPORT_COUNT(ways); w++) {
        struct answers found;
        struct quire_error err;
        memset(&found, 0xff, sizeof found);
        int rc = quire_search_batch(index, shared.queries, QUERIES, &options, ways[w].lanes, ways[w].inflight,
                                    found.hits, found.n_hits, found.stats, &err);
        if (rc < 0)
            fail_msg("batch: %s", err.message);
        check_same_answers(expected, &found);
    }
}

struct loop_answer {
    struct answers *answers;
    uint32_t query;
    unsigned *done;
};

static void loop_callback(void *context, int code, const struct quire_hit *hits, uint32_t n_hits,
                          const struct quire_search_stats *stats, const struct quire_error *err)
{
    struct loop_answer *answer = context;
    assert_int_equal(code, 0);
    assert_null(err);
    memcpy(answer->answers->hits + answer->query * 10, hits, sizeof *hits * n_hits);
    answer->answers->n_hits[answer->query] = n_hits;
    answer->answers->stats[answer->query] = *stats;
    ++*answer->done;
}

static void check_loop(enum quire_engine_kind engine, const struct answers *expected,
                       struct quire_search_options options)
{
    struct quire_loop_options loop_options;
    struct quire_loop *loop = NULL;
    struct loop_answer contexts[QUERIES];
    struct answers found;
    unsigned done = 0, returned = 0;
    memset(&found, 0xff, sizeof found);
    quire_loop_options_init(&loop_options);
    loop_options.engine = engine;
    loop_options.inflight = 5;
    assert_int_equal(quire_loop_create(&loop_options, &loop, NULL), 0);
    for (uint32_t i = 0; i < QUERIES; i++) {
        float copy[48]; /* the query is copied: this one is overwritten at once */
        contexts[i] = (struct loop_answer){&found, i, &done};
        memcpy(copy, query_at(i), sizeof copy);
        assert_int_equal(quire_loop_search(loop, shared.index, copy, &options, loop_callback, &contexts[i], NULL), 0);
        memset(copy, 0x7f, sizeof copy);
    }
    while (done < QUERIES) {
        int n = quire_loop_poll(loop, 1, UINT64_MAX);
        assert_true(n >= 0);
        returned += (unsigned)n;
    }
    assert_int_equal(returned, QUERIES);
    quire_loop_destroy(loop);
    check_same_answers(expected, &found);
}

static void test_ways_to_ask_agree(void **state)
{
    static const enum quire_engine_kind engines[] = {QUIRE_ENGINE_AUTO, QUIRE_ENGINE_URING, QUIRE_ENGINE_THREADS};
    (void)state;
    for (int exact = 0; exact < 2; exact++) {
        struct quire_search_options options = support_search(10, 0.95f, 0);
        struct answers expected, found;
        options.exact = exact;
        ask_one_by_one(shared.index, options, &expected);
        check_batches(shared.index, &expected, options);
        for (size_t e = 0; e < SUPPORT_COUNT(engines); e++) {
            struct quire_open_options open_options;
            quire_open_options_init(&open_options);
            open_options.engine = engines[e];
            open_options.reads_max = e == 1 ? 2 : 0;
            struct quire_index *index = support_open(shared.path, &open_options);
            ask_one_by_one(index, options, &found);
            check_same_answers(&expected, &found);
            check_batches(index, &expected, options);
            quire_close(index);
            check_loop(engines[e], &expected, options);
        }
    }
}

struct asker {
    pthread_t thread;
    const struct answers *expected;
    unsigned number;
    int code;
    bool same;
};

static void *ask_in_thread(void *argument)
{
    struct asker *asker = argument;
    struct quire_search_options options = support_search(10, 0.95f, 0);
    asker->same = true;
    for (uint32_t round = 0; round < 2 * QUERIES && asker->code == 0; round++) {
        uint32_t i = (round * 7 + asker->number) % QUERIES, n_hits = 0;
        struct quire_hit hits[10];
        asker->code = quire_search(shared.index, query_at(i), &options, hits, &n_hits, NULL, NULL);
        asker->same = asker->same && n_hits == asker->expected->n_hits[i];
        for (uint32_t h = 0; h < n_hits && asker->same; h++)
            asker->same = hits[h].id == asker->expected->hits[i * 10 + h].id;
    }
    return NULL;
}

static void test_many_threads(void **state)
{
    struct answers expected;
    struct asker askers[12];
    (void)state;
    ask_one_by_one(shared.index, support_search(10, 0.95f, 0), &expected);
    for (unsigned i = 0; i < SUPPORT_COUNT(askers); i++) {
        askers[i] = (struct asker){.expected = &expected, .number = i};
        assert_int_equal(pthread_create(&askers[i].thread, NULL, ask_in_thread, &askers[i]), 0);
    }
    for (unsigned i = 0; i < SUPPORT_COUNT(askers); i++)
        pthread_join(askers[i].thread, NULL);
    for (unsigned i = 0; i < SUPPORT_COUNT(askers); i++) {
        assert_int_equal(askers[i].code, 0);
        assert_true(askers[i].same);
    }
}

static void test_empty_batch_and_bad_lanes(void **state)
{
    struct quire_search_options options = support_search(10, 0, 0);
    struct quire_hit hits[10];
    uint32_t n_hits;
    (void)state;
    assert_int_equal(quire_search_batch(shared.index, shared.queries, 0, &options, 2, 2, hits, &n_hits, NULL, NULL), 0);
    assert_int_equal(
        quire_search_batch(shared.index, shared.queries, 1, &options, 100000, 2, hits, &n_hits, NULL, NULL),
        QUIRE_ERANGE);
}

/* ---- memory budgets ---------------------------------------------------------------------------------------------- */

static void test_budgets(void **state)
{
    struct quire_info whole, info;
    struct quire_open_options options;
    unsigned widths_seen = 0, bits_before = 8;
    struct quire_index *index;
    struct quire_error err;
    struct quire_hit hits[10];
    (void)state;
    quire_get_info(shared.index, &whole);
    assert_int_equal(whole.code_bits, 8);
    quire_open_options_init(&options);
    for (uint64_t budget = whole.resident_bytes + (8u << 20); budget > 0; budget -= 32768) {
        options.memory_bytes = budget;
        int rc = quire_open(shared.path, &options, &index, &err);
        if (rc < 0) {
            assert_int_equal(rc, QUIRE_ELIMIT);
            break;
        }
        quire_get_info(index, &info);
        assert_true(info.resident_bytes <= budget);
        assert_int_equal(info.memory_bytes, budget);
        assert_true(info.code_bits <= bits_before);
        if (info.code_bits < bits_before || widths_seen == 0) {
            widths_seen++;
            double recall = 0;
            for (uint32_t i = 0; i < QUERIES; i++) {
                uint32_t n = search(index, query_at(i), support_search(10, 0, 200), hits, NULL);
                recall += support_recall(QUIRE_METRIC_L2, shared.data.floats, shared.data.rows, shared.data.dim,
                                         query_at(i), 10, hits, n) /
                          QUERIES;
            }
            assert_true(recall > 0.85);
        }
        bits_before = info.code_bits;
        quire_close(index);
    }
    assert_true(widths_seen >= 2);
    /* the error names the least budget that would do */
    const char *below = strstr(err.message, "below the ");
    assert_non_null(below);
    options.memory_bytes = strtoull(below + strlen("below the "), NULL, 10);
    index = support_open(shared.path, &options);
    quire_close(index);
    options.memory_bytes--;
    assert_int_equal(quire_open(shared.path, &options, &index, NULL), QUIRE_ELIMIT);
}

static void test_built_in_budget(void **state)
{
    struct quire_build_options options = support_options(QUIRE_METRIC_L2, QUIRE_SLOT_AUTO);
    struct quire_open_options open_options;
    struct quire_info info;
    struct support_data data = shared.data;
    char *path = support_path(shared.folder, "budget");
    (void)state;
    data.rows = 500;
    options.memory_bytes = 64u << 20;
    support_build(path, &data, &options);
    struct quire_index *index = support_open(path, NULL);
    quire_get_info(index, &info);
    assert_int_equal(info.memory_bytes, 64u << 20);
    assert_true(info.resident_bytes <= info.memory_bytes);
    quire_close(index);
    quire_open_options_init(&open_options);
    open_options.memory_bytes = 32u << 20;
    index = support_open(path, &open_options);
    quire_get_info(index, &info);
    assert_int_equal(info.memory_bytes, 32u << 20);
    quire_close(index);
    free(path);
}

/* ---- determinism ------------------------------------------------------------------------------------------------- */

static void test_files_do_not_depend_on_threads(void **state)
{
    static const char *const names[] = {META_NAME, BLOCKS_NAME, CODES_NAME, KEYS_NAME};
    static const unsigned threads[] = {1, 1, 3};
    struct support_data data = shared.data;
    char *paths[SUPPORT_COUNT(threads)];
    (void)state;
    for (size_t i = 0; i < SUPPORT_COUNT(threads); i++) {
        struct quire_build_options options = support_options(QUIRE_METRIC_L2, QUIRE_SLOT_AUTO);
        options.block_bytes = 4096;
        options.threads = threads[i];
        assert_true(asprintf(&paths[i], "%s/threads-%zu", shared.folder, i) > 0);
        data.rows = 1100;
        support_build(paths[i], &data, &options);
    }
    for (size_t i = 1; i < SUPPORT_COUNT(threads); i++)
        for (size_t n = 0; n < SUPPORT_COUNT(names); n++) {
            size_t bytes, other_bytes;
            uint8_t *first = support_file_without_id(paths[0], names[n], &bytes);
            uint8_t *other = support_file_without_id(paths[i], names[n], &other_bytes);
            assert_int_equal(bytes, other_bytes);
            if (memcmp(first, other, bytes) != 0)
                fail_msg("file %s differs between %u and %u threads", names[n], threads[0], threads[i]);
            free(first);
            free(other);
        }
    for (size_t i = 0; i < SUPPORT_COUNT(threads); i++)
        free(paths[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recall_f32),
        cmocka_unit_test(test_recall_f16),
        cmocka_unit_test(test_recall_bf16),
        cmocka_unit_test(test_recall_i8),
        cmocka_unit_test(test_recall_u8),
        cmocka_unit_test(test_exact_is_brute_force_of_stored),
        cmocka_unit_test(test_any_k),
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_bad_requests),
        cmocka_unit_test(test_unknown_struct_bytes),
        cmocka_unit_test(test_zero_query),
        cmocka_unit_test(test_effort),
        cmocka_unit_test(test_counters),
        cmocka_unit_test(test_reads_max),
        cmocka_unit_test(test_ways_to_ask_agree),
        cmocka_unit_test(test_many_threads),
        cmocka_unit_test(test_empty_batch_and_bad_lanes),
        cmocka_unit_test(test_budgets),
        cmocka_unit_test(test_built_in_budget),
        cmocka_unit_test(test_files_do_not_depend_on_threads),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
