/*
 * test_hard_data.c - data that graphs and quantisers stumble over, searched with the default effort.
 *
 * Duplicates leave a graph without directions to prune by and a query without an end: a thousand rows are as near as
 * the k-th. Rows far out, or of lengths over several decades, take the precision of codes. Each set is built as a user
 * would, asked with rows of its own and with points near them, and judged against brute force in double. A hit counts
 * when it is as near as the k-th true neighbour, whatever its id, since ties are many here. Beside recall, reads are
 * bounded: a search that reads most of an index for one query is as good as broken. An alarm ends what hangs.
 */
#include "io/random.h"
#include "tests/index/support_index.h"
#include "tests/sanitized.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define DUPLICATES  10000u
#define QUERIES     20u
#define HANG_S      300u
#define K_MOST      200u
#define READS_SHARE 0.4 /* of the blocks, that queries may read in the mean */
#define READS_FREE  12u /* blocks that they may read of a small index */

static const enum quire_metric metrics[] = {QUIRE_METRIC_L2, QUIRE_METRIC_COSINE, QUIRE_METRIC_IP};

struct hard {
    const char *name;
    uint32_t k;
    double recall_least; /* mean over the queries */
    bool exact;          /* every block is read: what the slots' own precision leaves */
};

struct asked {
    double recall, reads;
};

/* Distances in order, ids all different, and as many as there are to find. */
static void check_shape(const struct support_data *data, const struct quire_hit *hits, uint32_t n, uint32_t k)
{
    assert_int_equal(n, k < data->rows ? k : data->rows);
    for (uint32_t i = 0; i < n; i++) {
        assert_true(hits[i].id < data->rows);
        assert_true(i == 0 || hits[i].distance >= hits[i - 1].distance);
        for (uint32_t j = 0; j < i; j++)
            assert_true(hits[i].id != hits[j].id);
    }
}

static double recall_of(const struct support_data *data, enum quire_metric metric, const float *query,
                        const struct quire_hit *hits, uint32_t n)
{
    double distances[K_MOST];
    uint32_t right = 0;
    support_truth(metric, data->floats, data->rows, data->dim, query, n, NULL, distances);
    double limit = distances[n - 1] + 1e-6 * fabs(distances[n - 1]) + 1e-12;
    for (uint32_t i = 0; i < n; i++)
        right += support_distance(metric, query, data->floats + hits[i].id * data->dim, data->dim) <= limit;
    return (double)right / n;
}

/* An index of some data, with the options that users get. */
struct built {
    const struct support_data *data;
    enum quire_metric metric;
    char *folder;
    struct quire_index *index;
};

static struct asked ask(const struct built *built, const struct hard *hard, const float *queries, uint32_t n_queries)
{
    const struct support_data *data = built->data;
    struct asked sum = {0, 0};
    struct quire_search_options options = support_search(hard->k, 0, 0);
    struct quire_hit hits[K_MOST];
    options.exact = hard->exact;
    for (uint32_t i = 0; i < n_queries; i++) {
        const float *query = queries + (size_t)i * data->dim;
        struct quire_search_stats stats;
        struct quire_error err;
        uint32_t n;
        if (quire_search(built->index, query, &options, hits, &n, &stats, &err) < 0)
            fail_msg("%s, query %u: %s", hard->name, i, err.message);
        check_shape(data, hits, n, hard->k);
        assert_true(stats.complete);
        sum.recall += recall_of(data, built->metric, query, hits, n);
        sum.reads += stats.reads;
    }
    return (struct asked){sum.recall / n_queries, sum.reads / n_queries};
}

static struct built build(const struct support_data *data, enum quire_metric metric)
{
    struct built built = {.data = data, .metric = metric, .folder = support_folder_make()};
    struct quire_build_options options = support_options(metric, QUIRE_SLOT_AUTO);
    char *path = support_path(built.folder, "index");
    alarm(HANG_S);
    support_build(path, data, &options);
    built.index = support_open(path, NULL);
    free(path);
    return built;
}

static void end(struct built *built)
{
    quire_close(built->index);
    support_folder_remove(built->folder);
    alarm(0);
}

static void check(const struct built *built, const struct hard *hard, const float *queries, uint32_t n_queries)
{
    struct quire_info info;
    quire_get_info(built->index, &info);
    struct asked asked = ask(built, hard, queries, n_queries);
    double reads_most = hard->exact ? info.blocks : fmax(READS_FREE, READS_SHARE * info.blocks);
    if (asked.recall < hard->recall_least || asked.reads > reads_most)
        fail_msg("%s, %s: recall %.3f (at least %.3f), %.1f reads of %u blocks (at most %.1f)", hard->name,
                 quire_metric_name(built->metric), asked.recall, hard->recall_least, asked.reads, info.blocks,
                 reads_most);
}

/* Builds, and asks with queries near rows. */
static void check_near(const struct support_data *data, enum quire_metric metric, const struct hard *hard)
{
    float *queries = support_queries(data, QUERIES, 11);
    struct built built = build(data, metric);
    check(&built, hard, queries, QUERIES);
    end(&built);
    free(queries);
}

static void set_row(struct support_data *data, uint32_t row, const float *x)
{
    assert_int_equal(data->type, QUIRE_TYPE_F32);
    memcpy(data->vectors + (size_t)row * data->dim * sizeof *x, x, data->dim * sizeof *x);
}

/* Where number i of the rows stands: 7919 is a prime that divides no number of rows here, so each place is taken once,
 * and equal rows do not stand together. */
static uint32_t scattered(uint32_t i, uint32_t rows)
{
    return (uint32_t)((uint64_t)i * 7919 % rows);
}

/* ---- duplicates -------------------------------------------------------------------------------------------------- */

/* Half of the rows are one vector, the others `values` vectors, each as often. */
static void make_duplicates(uint32_t rows, uint32_t dim, uint32_t values, struct support_data *data)
{
    struct support_data distinct;
    support_clusters(values + 1, dim, QUIRE_TYPE_F32, 5, &distinct);
    support_data_alloc(rows, dim, QUIRE_TYPE_F32, data);
    for (uint32_t i = 0; i < rows; i++)
        set_row(data, scattered(i, rows), distinct.floats + (size_t)(i < rows / 2 ? 0 : 1 + i % values) * dim);
    support_data_free(&distinct);
    support_floats(data);
}

static void test_duplicates(void **state)
{
    struct support_data data;
    (void)state;
    make_duplicates(DUPLICATES, 32, 200, &data);
    float *queries = support_queries(&data, QUERIES, 11);
    for (size_t m = 0; m < SANITIZED_SIZE(3, 1); m += 2) { /* cosine is L2 of shorter vectors */
        struct built built = build(&data, metrics[m]);
        check(&built, &(struct hard){"near 10,000 rows, half of them one", 10, 0.95, false}, queries, QUERIES);
        check(&built, &(struct hard){"the rows that are one", 10, 1, false},
              data.floats + (size_t)scattered(3, DUPLICATES) * 32, 1);
        check(&built, &(struct hard){"one of 25 equal rows", 20, 1, false},
              data.floats + (size_t)scattered(6000, DUPLICATES) * 32, 1);
        end(&built);
    }
    free(queries);
    support_data_free(&data);
}

static void test_all_identical(void **state)
{
    struct support_data data;
    float one[24];
    (void)state;
    for (uint32_t i = 0; i < 24; i++)
        one[i] = (float)i - 7.25f;
    support_data_alloc(3000, 24, QUIRE_TYPE_F32, &data);
    for (uint32_t row = 0; row < data.rows; row++)
        set_row(&data, row, one);
    support_floats(&data);
    for (size_t m = 0; m < SUPPORT_COUNT(metrics); m++)
        check_near(&data, metrics[m], &(struct hard){"3,000 rows all the same", 10, 1, false});
    support_data_free(&data);
}

/* ---- outliers ---------------------------------------------------------------------------------------------------- */

/* The five rows far out are asked for, each by itself. */
static void check_far(const struct built *built, bool exact)
{
    for (uint32_t i = 0; i < 5; i++)
        check(built, &(struct hard){"one of them asked for", 1, 1, exact},
              built->data->floats + (size_t)(i * 599 + 3) * 32, 1);
}

/* Rows that share a block with one of these lose no precision. They are found by their codes as long as their distance
 * from others shows in a float beside their length; beyond, by an exact search. */
static void test_outliers(void **state)
{
    static const float scales[] = {1e2f, 1e4f, 1e6f, 1e17f}; /* beyond, elements' squares are refused */
    (void)state;
    for (size_t s = 0; s < SUPPORT_COUNT(scales); s += SANITIZED_SIZE(1, 3)) {
        struct support_data data;
        support_clusters(3000, 32, QUIRE_TYPE_F32, 17, &data);
        float *queries = support_queries(&data, QUERIES, 11);
        for (uint32_t i = 0; i < 5; i++) {
            float *row = data.floats + (size_t)(i * 599 + 3) * 32;
            for (uint32_t d = 0; d < 32; d++)
                row[d] *= scales[s];
            set_row(&data, i * 599 + 3, row);
        }
        struct built built = build(&data, QUIRE_METRIC_L2);
        check(&built, &(struct hard){"five rows far out", 10, 0.92, false}, queries, QUERIES);
        check(&built, &(struct hard){"five rows far out, all read", 10, 0.98, true}, queries, QUERIES);
        check_far(&built, true);
        if (scales[s] <= 1e6f)
            check_far(&built, false);
        end(&built);
        built = build(&data, QUIRE_METRIC_COSINE);
        check(&built, &(struct hard){"five rows far out", 10, 0.92, false}, queries, QUERIES);
        end(&built);
        free(queries);
        support_data_free(&data);
    }
}

/* ---- few dimensions, many zeros ---------------------------------------------------------------------------------- */

static void test_one_dimension(void **state)
{
    static const enum quire_type types[] = {QUIRE_TYPE_F32, QUIRE_TYPE_U8, QUIRE_TYPE_BF16};
    (void)state;
    for (size_t t = 0; t < SUPPORT_COUNT(types); t++) {
        struct support_data data;
        support_clusters(4000, 1, types[t], 23, &data);
        check_near(&data, QUIRE_METRIC_L2, &(struct hard){quire_type_name(types[t]), 10, 0.95, false});
        support_data_free(&data);
    }
}

static void test_many_zeros(void **state)
{
    struct support_data data;
    struct random random;
    (void)state;
    random_init(&random, 29);
    support_data_alloc(3000, 64, QUIRE_TYPE_F32, &data);
    for (uint32_t row = 0; row < data.rows; row++) {
        float x[64] = {0};
        for (uint32_t i = 0; i < 4; i++)
            x[random_below(&random, 64)] = support_gauss(&random.state);
        set_row(&data, row, x);
    }
    support_floats(&data);
    for (size_t m = 0; m < SUPPORT_COUNT(metrics); m++) {
        struct built built = build(&data, metrics[m]);
        check(&built, &(struct hard){"four of 64 not zero", 10, 0.9, false}, data.floats, QUERIES);
        end(&built);
    }
    /* and half of the rows nothing but zeros, which only cosine refuses */
    memset(data.vectors, 0, (size_t)1500 * 64 * sizeof(float));
    support_floats(&data);
    struct built built = build(&data, QUIRE_METRIC_L2);
    check(&built, &(struct hard){"half of the rows zero", 10, 0.9, false}, data.floats + (size_t)1490 * 64, QUERIES);
    end(&built);
    support_data_free(&data);
}

/* ---- more asked for than there is -------------------------------------------------------------------------------- */

static void test_k_above_rows(void **state)
{
    static const uint32_t rows[] = {1, 2, 9, 150};
    (void)state;
    for (size_t r = 0; r < SUPPORT_COUNT(rows); r++)
        for (size_t m = 0; m < SUPPORT_COUNT(metrics); m++) {
            struct support_data data;
            support_clusters(rows[r], 16, QUIRE_TYPE_F32, 31, &data);
            check_near(&data, metrics[m], &(struct hard){"k 200 of fewer rows", K_MOST, 1, false});
            support_data_free(&data);
        }
}

/* ---- inner product over three decades of lengths ----------------------------------------------------------------- */

/* The largest products are those of long rows in about the right direction: neither the longest nor the nearest. The
 * queries are a thousand times shorter than the longest row, or as much longer, which changes no rank. */
static void test_lengths(void **state)
{
    struct support_data data;
    struct random random;
    (void)state;
    random_init(&random, 37);
    support_clusters(4000, 48, QUIRE_TYPE_F32, 37, &data);
    float *queries = support_queries(&data, QUERIES, 41);
    for (uint32_t row = 0; row < data.rows; row++) {
        float *x = data.floats + (size_t)row * 48;
        float scale = powf(10, 3 * (float)random_below(&random, 10000) / 10000);
        for (uint32_t d = 0; d < 48; d++)
            x[d] *= scale;
        set_row(&data, row, x);
    }
    struct built built = build(&data, QUIRE_METRIC_IP);
    check(&built, &(struct hard){"lengths over three decades, short queries", 10, 0.9, false}, queries, QUERIES);
    for (uint32_t i = 0; i < QUERIES * 48; i++)
        queries[i] *= 1e6f;
    check(&built, &(struct hard){"lengths over three decades, long queries", 10, 0.9, false}, queries, QUERIES);
    end(&built);
    built = build(&data, QUIRE_METRIC_COSINE);
    check(&built, &(struct hard){"lengths over three decades", 10, 0.9, false}, queries, QUERIES);
    end(&built);
    free(queries);
    support_data_free(&data);
}

/* ---- zero vectors under cosine ----------------------------------------------------------------------------------- */

enum { ZERO_ROWS = 1200, ZERO_DIM = 48 };

static uint32_t count_at_one(const struct quire_hit *hits, uint32_t n)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; i++)
        count += fabsf(hits[i].distance - 1) < 1e-6f;
    return count;
}

/* Valid until the next call. */
static const char *key_of(uint32_t row)
{
    static char key[16];
    snprintf(key, sizeof key, "%u", row);
    return key;
}

static bool is_zero_row(uint64_t row, uint32_t every)
{
    return row % every == 0;
}

/* One row in `every` is zero: at distance 1 from all, so that those that are nearer, and only those, come before it;
 * decoded it is zero again. Others are of all lengths that a float has. */
static void check_zeros(enum quire_slot slot, enum quire_index_kind kind, uint32_t every)
{
    struct support_data data;
    struct quire_build_options options = support_options(QUIRE_METRIC_COSINE, slot);
    struct quire_hit hits[K_MOST];
    struct quire_error err = {0};
    float zero[ZERO_DIM] = {0}, x[ZERO_DIM];
    uint32_t n, at, found = 0, asked = 0, looked_up = 0;
    char *path;
    support_clusters(ZERO_ROWS, ZERO_DIM, QUIRE_TYPE_F32, 6, &data);
    for (uint32_t row = 0; row < ZERO_ROWS; row++) {
        float scale = is_zero_row(row, every) ? 0 : powf(10, (float)(row % 67) - 33);
        for (uint32_t d = 0; d < ZERO_DIM; d++)
            x[d] = data.floats[(size_t)row * ZERO_DIM + d] * scale;
        set_row(&data, row, x);
    }
    char *folder = support_folder_make();
    path = support_path(folder, "zeros");
    options.index = kind;
    support_build(path, &data, &options);
    assert_int_equal(quire_verify(path, NULL, NULL, NULL, NULL, &err), 0);
    struct quire_index *index = support_open(path, NULL);
    struct quire_search_options usual = support_search(10, 0, 0), all = support_search(K_MOST, 0, 0);
    all.exact = true;
    assert_int_equal(quire_search(index, zero, &usual, hits, &n, NULL, &err), 0);
    assert_int_equal(n, 10);
    assert_int_equal(count_at_one(hits, n), n);
    for (uint32_t row = 1; row < ZERO_ROWS; row += 97) {
        const float *query = data.floats + (size_t)row * ZERO_DIM;
        if (is_zero_row(row, every))
            continue;
        struct quire_hit nearest[10];
        assert_int_equal(quire_search(index, query, &usual, nearest, &n, NULL, &err), 0);
        assert_int_equal(quire_search(index, query, &all, hits, &n, NULL, &err), 0);
        for (uint32_t i = 0; i < n; i++)
            if (is_zero_row(hits[i].id, every))
                assert_true(hits[i].distance == 1);
        for (uint32_t i = 0; i < 10; i++, asked++)
            found += nearest[i].distance <= hits[9].distance + 1e-6f;
    }
    assert_true(found > 0.9 * asked);
    found = 0;
    usual.k = 1;
    for (uint32_t row = 0; row < ZERO_ROWS;
         row += SANITIZED_SIZE(1, 3), looked_up++) { /* rows have keys of their number, and numbers of the index */
        struct quire_hit hit;
        assert_int_equal(quire_lookup(index, key_of(row), (size_t)strlen(key_of(row)), &at, &err), 0);
        assert_int_equal(quire_vector(index, at, x, &err), 0);
        double length = sqrt(-support_distance(QUIRE_METRIC_IP, x, x, ZERO_DIM));
        assert_int_equal(quire_search(index, x, &usual, &hit, &n, NULL, &err), 0);
        if (is_zero_row(row, every))
            assert_true(length == 0 && hit.distance == 1);
        found += hit.distance < 1e-3f;
    }
    assert_true(found > 0.95 * (looked_up - looked_up / every));
    quire_close(index);
    support_folder_remove(path);
    support_folder_remove(folder);
    support_data_free(&data);
}

static void test_zero_vectors(void **state)
{
    static const enum quire_slot slots[] = {QUIRE_SLOT_Q8, QUIRE_SLOT_F32, QUIRE_SLOT_F16, QUIRE_SLOT_BF16};
    (void)state;
    for (size_t s = 0; s < SUPPORT_COUNT(slots); s++) {
        check_zeros(slots[s], s % 2 ? QUIRE_INDEX_SPANN : QUIRE_INDEX_PAGEGRAPH, 100);
        if (!SANITIZED || s < 2) /* each kind of index */
            check_zeros(slots[s], s % 2 ? QUIRE_INDEX_PAGEGRAPH : QUIRE_INDEX_SPANN, 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_duplicates),    cmocka_unit_test(test_all_identical), cmocka_unit_test(test_outliers),
        cmocka_unit_test(test_one_dimension), cmocka_unit_test(test_many_zeros),    cmocka_unit_test(test_k_above_rows),
        cmocka_unit_test(test_lengths),       cmocka_unit_test(test_zero_vectors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
