/*
 * test_estimates.c - searches that answer with estimates: nearly the same rows with fewer reads, no row twice,
 * distances that are as wrong as they say; and exact distances where there is nothing to estimate by.
 */
#include "tests/index/support_index.h"
#include "tests/sanitized.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ROWS    6000u
#define DIM     64u
#define QUERIES SANITIZED_SIZE(200u, 40u)
#define K       10u

struct asked {
    double recall, reads, estimated, deviations; /* per query; the last: errors over what was said, mean square */
};

static struct quire_search_options estimates(uint32_t k, float recall, uint32_t effort)
{
    struct quire_search_options options = support_search(k, recall, effort);
    options.distance = QUIRE_DISTANCE_ESTIMATE;
    return options;
}

static uint32_t search(struct quire_index *index, const float *query, const struct quire_search_options *options,
                       struct quire_hit *hits, struct quire_search_stats *stats)
{
    struct quire_error err;
    uint32_t n = UINT32_MAX;
    if (quire_search(index, query, options, hits, &n, stats, &err) < 0)
        fail_msg("search: %s", err.message);
    return n;
}

/* Ascending distances, ids that are there and none twice; what is said to be an estimate is counted in stats. */
static void check_hits(const struct quire_hit *hits, uint32_t n, const struct quire_search_stats *stats)
{
    static uint8_t seen[ROWS];
    uint32_t estimated = 0;
    for (uint32_t i = 0; i < n; i++) {
        assert_true(hits[i].id < ROWS && hits[i].row < ROWS && isfinite(hits[i].distance));
        assert_true(isfinite(hits[i].deviation) && hits[i].deviation >= 0);
        assert_true(i == 0 || hits[i - 1].distance <= hits[i].distance);
        assert_false(seen[hits[i].id]);
        seen[hits[i].id] = 1;
        estimated += hits[i].deviation > 0;
    }
    assert_int_equal(estimated, stats->estimated);
    for (uint32_t i = 0; i < n; i++)
        seen[hits[i].id] = 0;
}

static struct asked ask(struct quire_index *index, const struct support_data *data, enum quire_metric metric,
                        struct quire_search_options options)
{
    float *queries = support_queries(data, QUERIES, 5);
    struct asked sum = {0};
    for (uint32_t q = 0; q < QUERIES; q++) {
        const float *query = queries + (size_t)q * data->dim;
        struct quire_hit hits[K];
        struct quire_search_stats stats;
        uint32_t n = search(index, query, &options, hits, &stats);
        assert_int_equal(n, K);
        assert_true(stats.complete);
        check_hits(hits, n, &stats);
        for (uint32_t i = 0; i < n; i++) {
            double exact = support_distance(metric, query, data->floats + hits[i].id * data->dim, data->dim);
            if (hits[i].deviation > 0)
                sum.deviations += pow((hits[i].distance - exact) / (double)hits[i].deviation, 2);
            else
                assert_true(fabs(hits[i].distance - exact) <= 2e-2 * fabs(exact) + 1e-4);
        }
        sum.recall += support_recall(metric, data->floats, data->rows, data->dim, query, K, hits, n) / QUERIES;
        sum.reads += (double)(stats.reads + stats.cached) / QUERIES;
        sum.estimated += (double)stats.estimated / QUERIES;
    }
    sum.deviations = sum.estimated > 0 ? sqrt(sum.deviations / (sum.estimated * QUERIES)) : 0;
    free(queries);
    return sum;
}

static struct quire_index *make(const char *folder, const struct support_data *data, enum quire_metric metric,
                                enum quire_index_kind kind, const char *const *keys, const uint32_t *key_bytes)
{
    char *path = support_path(folder, "index");
    struct quire_build_options options = support_options(metric, QUIRE_SLOT_AUTO);
    options.block_bytes = 4096;
    options.index = kind;
    options.keys = (const void *const *)keys;
    options.key_bytes = key_bytes;
    support_build(path, data, &options);
    struct quire_index *index = support_open(path, NULL);
    free(path);
    return index;
}

/* Checks an index of every metric and kind; every `step`th kind, another one with each metric. */
static void check_each(size_t step, void (*check)(struct quire_index *index, const struct support_data *data,
                                                  enum quire_metric metric, enum quire_index_kind kind))
{
    static const enum quire_metric metrics[] = {QUIRE_METRIC_L2, QUIRE_METRIC_COSINE, QUIRE_METRIC_IP};
    static const enum quire_index_kind kinds[] = {QUIRE_INDEX_PAGEGRAPH, QUIRE_INDEX_SPANN};
    struct support_data data;
    support_clusters(ROWS, DIM, QUIRE_TYPE_F32, 3, &data);
    for (size_t m = 0; m < SUPPORT_COUNT(metrics); m++)
        for (size_t i = m % step; i < SUPPORT_COUNT(kinds); i += step) {
            char *folder = support_folder_make();
            struct quire_index *index = make(folder, &data, metrics[m], kinds[i], NULL, NULL);
            check(index, &data, metrics[m], kinds[i]);
            quire_close(index);
            support_folder_remove(folder);
        }
    support_data_free(&data);
}

static void check_reads(struct quire_index *index, const struct support_data *data, enum quire_metric metric,
                        enum quire_index_kind kind)
{
    struct asked exact = ask(index, data, metric, support_search(K, 0.95f, 0));
    struct asked few = ask(index, data, metric, estimates(K, 0.95f, 0));
    print_message("metric %d kind %d: recall %.3f at %.2f reads, estimates %.3f at %.2f, %.1f of them, errors %.2f\n",
                  metric, kind, exact.recall, exact.reads, few.recall, few.reads, few.estimated, few.deviations);
    assert_true(exact.estimated == 0 && few.estimated > 0.5);
    assert_true(few.recall >= 0.94 && few.reads <= 0.8 * exact.reads);
    assert_true(few.deviations > 0.3 && few.deviations < 3);
}

/* Both kinds of index, every metric: the recall that is asked for, with a good part of the reads saved, and errors of
 * the size that is said. */
static void test_fewer_reads(void **state)
{
    (void)state;
    check_each(SANITIZED_SIZE(1, 2), check_reads);
}

struct limited {
    uint32_t there, found;                 /* rows within the limits */
    uint32_t reads, reads_all, reads_none; /* with them, without, and where nothing is within them */
};

/* With a limit between the fourth and the fifth neighbour, and with one nearer than all. */
static struct limited ask_limited(struct quire_index *index, const struct support_data *data)
{
    float *queries = support_queries(data, QUERIES, 5);
    struct limited sum = {0};
    for (uint32_t q = 0; q < QUERIES; q++) {
        const float *query = queries + (size_t)q * data->dim;
        struct quire_hit truth[K], hits[K];
        struct quire_search_stats stats;
        struct quire_search_options options = support_search(K, 0.95f, 0), exact = support_search(K, 0, 0);
        exact.exact = true;
        assert_int_equal(search(index, query, &exact, truth, &stats), K);
        search(index, query, &options, hits, &stats);
        sum.reads_all += stats.reads + stats.cached;
        options.limited = true;
        options.farthest = (truth[3].distance + truth[4].distance) / 2;
        uint32_t n = search(index, query, &options, hits, &stats);
        check_hits(hits, n, &stats);
        assert_true(n <= K && stats.complete);
        sum.reads += stats.reads + stats.cached;
        sum.there += 4;
        for (uint32_t i = 0; i < n; i++)
            sum.found += hits[i].distance <= options.farthest;
        options.farthest = truth[0].distance - (truth[K - 1].distance - truth[0].distance) * 4;
        search(index, query, &options, hits, &stats);
        sum.reads_none += stats.reads + stats.cached;
        options.farthest = NAN;
        struct quire_error err;
        assert_int_equal(quire_search(index, query, &options, hits, &n, NULL, &err), QUIRE_EINVALID);
    }
    free(queries);
    return sum;
}

static void check_limits(struct quire_index *index, const struct support_data *data, enum quire_metric metric,
                         enum quire_index_kind kind)
{
    struct limited asked = ask_limited(index, data);
    print_message("metric %d kind %d: %u of %u found, %u reads instead of %u, %u where nothing is near\n", metric, kind,
                  asked.found, asked.there, asked.reads, asked.reads_all, asked.reads_none);
    assert_true(asked.found >= asked.there * 0.95);
    assert_true(asked.reads <= asked.reads_all * 1.05 && asked.reads_none < asked.reads_all * 0.1);
}

/* What is within a limit is found as without it, with fewer reads; where nothing is near, next to nothing is read. */
static void test_limits(void **state)
{
    (void)state;
    check_each(1, check_limits);
}

/* All rows, more than there are, and one; a limit on reads. */
static void test_every_k(void **state)
{
    static const uint32_t ks[] = {1, 2, 100, ROWS - 1, ROWS, ROWS + 5};
    struct support_data data;
    struct quire_search_stats stats;
    struct quire_hit *hits = malloc(sizeof *hits * (ROWS + 5));
    char *folder = support_folder_make();
    (void)state;
    assert_non_null(hits);
    support_clusters(ROWS, DIM, QUIRE_TYPE_U8, 4, &data);
    struct quire_index *index = make(folder, &data, QUIRE_METRIC_L2, QUIRE_INDEX_PAGEGRAPH, NULL, NULL);
    for (size_t i = 0; i < SUPPORT_COUNT(ks); i++) {
        struct quire_search_options options = estimates(ks[i], 0.95f, 0);
        uint32_t n = search(index, data.floats, &options, hits, &stats);
        assert_int_equal(n, ks[i] < ROWS ? ks[i] : ROWS);
        assert_true(stats.complete);
        check_hits(hits, n, &stats);
    }
    struct quire_search_options options = estimates(K, 0.99f, 0);
    options.reads_max = 1;
    uint32_t n = search(index, data.floats, &options, hits, &stats);
    assert_int_equal(n, K); /* what was not read is known by its code */
    assert_true(stats.reads <= 1);
    check_hits(hits, n, &stats);
    options.distance = (enum quire_distance)2;
    assert_int_equal(quire_search(index, data.floats, &options, hits, &n, NULL, NULL), QUIRE_EINVALID);
    quire_close(index);
    free(hits);
    support_data_free(&data);
    support_folder_remove(folder);
}

/* Brute force reads every block anyway. Rows with keys of the user's have numbers all the same. */
static void test_brute_force_and_keys(void **state)
{
    struct support_data data;
    struct quire_search_stats stats;
    struct quire_hit hits[K];
    char *folder = support_folder_make(), *names = malloc(16 * ROWS);
    const char **keys = malloc(sizeof *keys * ROWS);
    uint32_t *key_bytes = malloc(sizeof *key_bytes * ROWS);
    (void)state;
    assert_true(names && keys && key_bytes);
    support_clusters(ROWS, DIM, QUIRE_TYPE_F32, 6, &data);
    for (uint32_t i = 0; i < ROWS; i++) {
        keys[i] = names + 16 * i;
        key_bytes[i] = (uint32_t)snprintf(names + 16 * i, 16, "name %u", i);
    }
    struct quire_index *index = make(folder, &data, QUIRE_METRIC_L2, QUIRE_INDEX_PAGEGRAPH, keys, key_bytes);
    struct asked few = ask(index, &data, QUIRE_METRIC_L2, estimates(K, 0.95f, 0));
    assert_true(few.recall >= 0.94 && few.estimated > 0.5);
    struct quire_search_options options = estimates(K, 0, 0);
    options.exact = true;
    assert_int_equal(search(index, data.floats, &options, hits, &stats), K);
    assert_true(stats.estimated == 0 && stats.exact);
    quire_close(index);
    free(names);
    free(keys);
    free(key_bytes);
    support_data_free(&data);
    support_folder_remove(folder);
}

/* ---- collections ------------------------------------------------------------------------------------------------- */

/* Every tenth key is longer than what is kept in memory: its row is read. */
static size_t key_of(uint32_t i, char out[128])
{
    return (size_t)snprintf(out, 128, i % 10 ? "key %u" : "a key that is longer than the sixty-four bytes %050u", i);
}

static uint32_t ask_live(struct quire_collection *c, const float *query, enum quire_distance distance, uint32_t ids[K],
                         struct quire_search_stats *stats)
{
    struct quire_search_options options = support_search(K, 0.95f, 0);
    struct quire_result *result = NULL;
    struct quire_error err;
    uint32_t estimated = 0;
    options.distance = distance;
    if (quire_collection_search(c, NULL, query, &options, 0, &result, stats, &err) < 0)
        fail_msg("search: %s", err.message);
    uint32_t n = quire_result_count(result);
    assert_true(n <= K);
    for (uint32_t i = 0; i < n; i++) {
        struct quire_element e;
        char text[128] = {0}, expected[128];
        quire_result_element(result, i, &e);
        assert_true(e.key_bytes < sizeof text);
        memcpy(text, e.key, e.key_bytes);
        ids[i] = (uint32_t)strtoul(strrchr(text, ' ') + 1, NULL, 10);
        assert_true(ids[i] < ROWS && key_of(ids[i], expected) == e.key_bytes && strcmp(expected, text) == 0);
        assert_true(e.deviation == 0 || ids[i] % 10 != 0);
        estimated += e.deviation > 0;
    }
    assert_int_equal(estimated, stats->estimated);
    quire_result_free(result);
    return n;
}

/* Sealed elements are named without a read, long keys apart; what is in memory is measured as ever. */
static void test_collections(void **state)
{
    struct support_data data;
    struct quire_collection_options options;
    struct quire_collection *c;
    struct quire_error err;
    struct quire_search_stats exact_stats, stats;
    char *folder = support_folder_make(), *path = support_path(folder, "live"), key[128];
    uint64_t exact_reads = 0, reads = 0, estimated = 0, right = 0;
    (void)state;
    support_clusters(ROWS, DIM, QUIRE_TYPE_F32, 8, &data);
    float *queries = support_queries(&data, QUERIES, 9);
    quire_collection_options_init(&options);
    options.create = true;
    options.dim = DIM;
    options.metric = QUIRE_METRIC_COSINE;
    assert_int_equal(quire_collection_open(path, &options, &c, &err), 0);
    for (uint32_t i = 0; i < ROWS; i++)
        assert_true(quire_put(c, key, key_of(i, key), data.floats + (size_t)i * DIM, NULL, 0, NULL, &err) >= 0);
    assert_int_equal(quire_seal(c, &err), 0);
    for (uint32_t round = 0; round < 2; round++) {
        for (uint32_t q = 0; q < QUERIES; q++) {
            uint32_t truth[K], exact[K], ids[K];
            const float *query = queries + (size_t)q * DIM;
            support_truth(QUIRE_METRIC_COSINE, data.floats, ROWS, DIM, query, K, truth, NULL);
            assert_int_equal(ask_live(c, query, QUIRE_DISTANCE_EXACT, exact, &exact_stats), K);
            assert_int_equal(ask_live(c, query, QUIRE_DISTANCE_ESTIMATE, ids, &stats), K);
            exact_reads += exact_stats.reads + exact_stats.cached;
            reads += stats.reads + stats.cached;
            estimated += stats.estimated;
            for (uint32_t i = 0; i < K; i++)
                for (uint32_t j = 0; j < K; j++)
                    right += ids[i] == truth[j];
        }
        /* after a restart, and a merge of two seals */
        for (uint32_t i = 0; i < 1500; i++)
            assert_true(quire_put(c, key, key_of(i, key), data.floats + (size_t)i * DIM, NULL, 0, NULL, &err) >= 0);
        assert_int_equal(quire_compact(c, &err), 0);
        assert_int_equal(quire_collection_close(c, &err), 0);
        assert_int_equal(quire_collection_open(path, NULL, &c, &err), 0);
    }
    print_message("recall %.3f, %.2f reads instead of %.2f, %.2f estimates\n", (double)right / (2 * QUERIES * K),
                  (double)reads / (2 * QUERIES), (double)exact_reads / (2 * QUERIES),
                  (double)estimated / (2 * QUERIES));
    assert_true((double)right >= 0.93 * 2 * QUERIES * K && (double)reads <= 0.8 * (double)exact_reads && estimated > 0);
    assert_int_equal(quire_collection_close(c, &err), 0);
    free(queries);
    free(path);
    support_data_free(&data);
    support_folder_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_fewer_reads), cmocka_unit_test(test_limits),
                                       cmocka_unit_test(test_every_k), cmocka_unit_test(test_brute_force_and_keys),
                                       cmocka_unit_test(test_collections)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
