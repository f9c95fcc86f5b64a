/*
 * test_dimensions.c - every element type and metric from 1 to 65,536 dimensions, also where one vector is larger than
 * the block that was asked for.
 *
 * Slots hold the elements as they are, so an exact search must answer as brute force in double does; with 8-bit codes,
 * the default for floats, nearly so. Blocks of 4096 bytes are asked for, which hold few slots of many dimensions or
 * have to grow for one. Hits are judged by their true distance, not by their id: in one dimension and under cosine,
 * most rows tie. The tolerance is that of sums of floats, relative to the lengths that a distance comes from.
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

#define K           10u
#define QUERIES     6u
#define BLOCK_BYTES 4096u
#define LARGEST     16384u

static char *folder;

static int setup(void **state)
{
    (void)state;
    folder = support_folder_make();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    support_folder_remove(folder);
    return 0;
}

static const enum quire_slot own_slot[] = {[QUIRE_TYPE_F32] = QUIRE_SLOT_F32,
                                           [QUIRE_TYPE_F16] = QUIRE_SLOT_F16,
                                           [QUIRE_TYPE_I8] = QUIRE_SLOT_I8,
                                           [QUIRE_TYPE_U8] = QUIRE_SLOT_U8,
                                           [QUIRE_TYPE_BF16] = QUIRE_SLOT_BF16};

/* Clusters without a zero vector, which has no direction; dimension 1 of small integers has many. */
static void make_data(uint32_t rows, uint32_t dim, enum quire_type type, struct support_data *data)
{
    size_t bytes = dim * quire_type_bytes(type);
    support_clusters(rows, dim, type, dim * 8 + type, data);
    for (uint32_t row = 0; row < rows; row++) {
        const float *x = data->floats + (size_t)row * dim;
        if (support_distance(QUIRE_METRIC_IP, x, x, dim) > -1e-12)
            memset(data->vectors + row * bytes, 1, bytes);
    }
    support_floats(data);
}

/* What rounding may make of a distance to this row. */
static double tolerance(enum quire_metric metric, const float *query, const float *row, uint32_t dim)
{
    double qq = -support_distance(QUIRE_METRIC_IP, query, query, dim);
    double rr = -support_distance(QUIRE_METRIC_IP, row, row, dim);
    return metric == QUIRE_METRIC_COSINE ? 1e-5 : 1e-5 * (qq + rr);
}

/* Share of k hits that are as near as the k-th true neighbour. */
static double recall_of(enum quire_metric metric, const struct support_data *data, const float *query,
                        const struct quire_hit *hits, uint32_t n_hits, uint32_t k)
{
    double *distances = malloc(sizeof *distances * k);
    uint32_t right = 0;
    assert_non_null(distances);
    support_truth(metric, data->floats, data->rows, data->dim, query, k, NULL, distances);
    for (uint32_t i = 0; i < n_hits; i++) {
        const float *row = data->floats + hits[i].id * data->dim;
        double distance = support_distance(metric, query, row, data->dim);
        right += distance <= distances[k - 1] + tolerance(metric, query, row, data->dim);
    }
    free(distances);
    return (double)right / k;
}

struct recalls {
    double exact, usual; /* of an exact search, and of one with the default effort */
};

static struct recalls search_all(struct quire_index *index, enum quire_metric metric, const struct support_data *data)
{
    struct recalls sum = {0, 0};
    float *queries = support_queries(data, QUERIES, 3);
    for (uint32_t i = 0; i < QUERIES; i++) {
        const float *query = queries + (size_t)i * data->dim;
        struct quire_hit hits[K];
        uint32_t n;
        struct quire_error err;
        if (support_distance(QUIRE_METRIC_IP, query, query, data->dim) > -1e-12)
            queries[(size_t)i * data->dim] = 1;
        for (int exact = 0; exact < 2; exact++) {
            struct quire_search_options options = support_search(K, 0, 0);
            options.exact = exact;
            if (quire_search(index, query, &options, hits, &n, NULL, &err) < 0)
                fail_msg("search in %u dimensions: %s", data->dim, err.message);
            assert_int_equal(n, K);
            *(exact ? &sum.exact : &sum.usual) += recall_of(metric, data, query, hits, n, K);
        }
    }
    free(queries);
    sum.exact /= QUERIES;
    sum.usual /= QUERIES;
    return sum;
}

static struct recalls build_and_search(const struct support_data *data, enum quire_metric metric, enum quire_slot slot)
{
    struct quire_build_options options = support_options(metric, slot);
    struct quire_verify_report report;
    struct quire_error err;
    struct quire_info info;
    char *path = support_path(folder, "index");
    options.block_bytes = BLOCK_BYTES;
    support_build(path, data, &options);
    struct quire_index *index = support_open(path, NULL);
    quire_get_info(index, &info);
    assert_int_equal(info.type, data->type);
    assert_int_equal(info.dim, data->dim);
    assert_int_equal(info.block_bytes % 4096, 0);
    struct recalls recalls = search_all(index, metric, data);
    if (info.block_bytes > BLOCK_BYTES) /* because not one slot fitted, and no further than for one */
        assert_in_range(info.slots_per_block, 1, 2);
    quire_close(index);
    if (quire_verify(path, NULL, NULL, NULL, &report, &err) < 0)
        fail_msg("verify in %u dimensions: %s", data->dim, err.message);
    assert_true(isfinite(report.code_error));
    support_folder_remove(path);
    return recalls;
}

static void check(const struct support_data *data, enum quire_metric metric, enum quire_slot slot, double least)
{
    struct recalls recalls = build_and_search(data, metric, slot);
    if (recalls.exact < least || recalls.usual < least - 0.1)
        fail_msg("%u x %s, %s, slot %s: recall %.3f exact, %.3f usual", data->dim, quire_type_name(data->type),
                 quire_metric_name(metric), quire_slot_name(slot), recalls.exact, recalls.usual);
}

static void check_dim(uint32_t dim, uint32_t rows)
{
    static const enum quire_metric metrics[] = {QUIRE_METRIC_L2, QUIRE_METRIC_COSINE, QUIRE_METRIC_IP};
    for (enum quire_type type = QUIRE_TYPE_F32; type <= QUIRE_TYPE_BF16; type++) {
        struct support_data data;
        make_data(rows, dim, type, &data);
        for (size_t m = 0; m < SUPPORT_COUNT(metrics); m++)
            if ((dim < LARGEST && !SANITIZED) || type == QUIRE_TYPE_F32 ||
                m == type % 3) /* the largest take their time */
                check(&data, metrics[m], own_slot[type], 1);
        check(&data, metrics[type % 3], QUIRE_SLOT_Q8, 0.9);
        support_data_free(&data);
    }
}

static void test_1(void **state)
{
    (void)state;
    check_dim(1, 500);
}

static void test_2(void **state)
{
    (void)state;
    check_dim(2, 500);
}

static void test_3(void **state)
{
    (void)state;
    check_dim(3, 500);
}

static void test_127(void **state)
{
    (void)state;
    check_dim(127, 300);
}

static void test_1000(void **state)
{
    (void)state;
    check_dim(1000, 100);
}

static void test_16384(void **state)
{
    (void)state;
    check_dim(16384, 24);
}

static void test_32769(void **state)
{
    (void)state;
    check_dim(32769, 24);
}

static void test_65536(void **state)
{
    (void)state;
    check_dim(QUIRE_DIM_MAX, 24);
}

/* The least multiple of 4096 that holds one vector, from each size that is too small. */
static void test_block_grows(void **state)
{
    static const struct {
        uint32_t dim, asked, expected;
    } cases[] = {{65536, 4096, 266240}, {16384, 4096, 69632}, {16384, 65536, 69632}, {16384, 69632, 69632},
                 {1500, 4096, 8192},    {1500, 8192, 8192},   {900, 4096, 4096},     {1010, 4096, 8192}};
    (void)state;
    for (size_t i = 0; i < SUPPORT_COUNT(cases); i++) {
        struct support_data data;
        struct quire_build_options options = support_options(QUIRE_METRIC_L2, QUIRE_SLOT_F32);
        struct quire_info info;
        char *path = support_path(folder, "grown");
        support_clusters(5, cases[i].dim, QUIRE_TYPE_F32, 1, &data);
        options.block_bytes = cases[i].asked;
        support_build(path, &data, &options);
        struct quire_index *index = support_open(path, NULL);
        quire_get_info(index, &info);
        assert_int_equal(info.block_bytes, cases[i].expected);
        assert_int_equal(info.slots_per_block, 1);
        quire_close(index);
        support_folder_remove(path);
        support_data_free(&data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_1),     cmocka_unit_test(test_2),     cmocka_unit_test(test_3),
        cmocka_unit_test(test_127),   cmocka_unit_test(test_1000),  cmocka_unit_test(test_16384),
        cmocka_unit_test(test_32769), cmocka_unit_test(test_65536), cmocka_unit_test(test_block_grows),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
