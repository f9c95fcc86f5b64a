/*
 * test_partition.c - the order of rows: a permutation, cut into full groups of near rows, whatever the input looks
 * like.
 *
 * Capacity needs no check of its own: groups are runs of `capacity` places of a permutation, so all are full but the
 * last. What can go wrong is a row lost or twice, an order that depends on threads, or time that explodes on equal
 * rows.
 */
#include "index/cluster/partition.h"
#include "tests/index/support_index.h"
#include "tests/index/support_rows.h"
#include "tests/support/fault.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint32_t *order_of(const struct rows *rows, uint32_t capacity, unsigned threads, uint64_t seed)
{
    uint32_t *order = malloc(sizeof *order * rows->n);
    assert_non_null(order);
    memset(order, 0xff, sizeof *order * rows->n);
    struct partition_config config = {capacity, threads, seed, NULL};
    assert_int_equal(partition_build(rows, &config, NULL, order), 0);
    return order;
}

static void check_permutation(const uint32_t *order, uint32_t n)
{
    uint8_t *seen = calloc(n, 1);
    assert_non_null(seen);
    for (uint32_t i = 0; i < n; i++) {
        assert_true(order[i] < n);
        assert_false(seen[order[i]]);
        seen[order[i]] = 1;
    }
    free(seen);
}

static void test_every_row_once(void **state)
{
    static const uint32_t counts[] = {1, 2, 3, 7, 8, 9, 16, 17, 63, 100, 1000, 4097};
    static const uint32_t capacities[] = {1, 2, 7, 8, 33, 5000};
    struct support_data data;
    (void)state;
    support_clusters(4097, 32, QUIRE_TYPE_F32, 1, &data);
    for (size_t i = 0; i < SUPPORT_COUNT(counts); i++) {
        struct rows rows = support_rows(data.floats, counts[i], 32);
        for (size_t c = 0; c < SUPPORT_COUNT(capacities); c++) {
            uint32_t *order = order_of(&rows, capacities[c], 2, 3);
            check_permutation(order, counts[i]);
            free(order);
        }
        support_rows_free(&rows);
    }
    support_data_free(&data);
}

static void test_same_for_any_threads(void **state)
{
    struct support_data data;
    (void)state;
    /* above PARALLEL_NODE_ROWS, so that the first levels run in parallel over rows */
    support_clusters(70000, 32, QUIRE_TYPE_F32, 2, &data);
    struct rows rows = support_rows(data.floats, data.rows, 32);
    uint32_t *one = order_of(&rows, 30, 1, 5), *three = order_of(&rows, 30, 3, 5), *eight = order_of(&rows, 30, 8, 5);
    uint32_t *seeded = order_of(&rows, 30, 2, 6);
    check_permutation(one, data.rows);
    assert_memory_equal(one, three, sizeof *one * data.rows);
    assert_memory_equal(one, eight, sizeof *one * data.rows);
    check_permutation(seeded, data.rows);
    free(one);
    free(three);
    free(eight);
    free(seeded);
    support_rows_free(&rows);
    support_data_free(&data);
}

static void test_duplicates(void **state)
{
    enum { N = 20000, DIM = 32 };
    float *vectors = calloc((size_t)N * DIM, sizeof(float));
    uint64_t seed = 8;
    (void)state;
    assert_non_null(vectors);
    struct rows zeros = support_rows(vectors, N, DIM);
    uint32_t *order = order_of(&zeros, 16, 2, 1);
    check_permutation(order, N);
    free(order);
    support_rows_free(&zeros);
    /* two values, each ten thousand times, and a few hundred rows of their own */
    for (uint32_t i = 0; i < N; i++)
        for (uint32_t d = 0; d < DIM; d++)
            vectors[i * DIM + d] = i % 50 == 0 ? support_gauss(&seed) : i % 2 ? 1.0f : -1.0f;
    struct rows rows = support_rows(vectors, N, DIM);
    order = order_of(&rows, 16, 2, 1);
    check_permutation(order, N);
    free(order);
    support_rows_free(&rows);
    free(vectors);
}

static double group_spread(const struct support_data *data, const uint32_t *order, uint32_t capacity)
{
    double sum = 0;
    for (uint32_t at = 0; at < data->rows; at += capacity) {
        uint32_t n = data->rows - at < capacity ? data->rows - at : capacity;
        for (uint32_t i = 0; i < n; i++)
            sum += support_distance(QUIRE_METRIC_L2, data->floats + (size_t)order[at + i] * data->dim,
                                    data->floats + (size_t)order[at + (i + 1) % n] * data->dim, data->dim);
    }
    return sum / data->rows;
}

/* Rows of a group are much nearer to each other than rows at random. */
static void test_groups_hold_near_rows(void **state)
{
    struct support_data data;
    (void)state;
    support_clusters(5000, 64, QUIRE_TYPE_F32, 4, &data);
    struct rows rows = support_rows(data.floats, data.rows, data.dim);
    uint32_t *order = order_of(&rows, 25, 2, 1), *given = malloc(sizeof *given * data.rows);
    assert_non_null(given);
    for (uint32_t i = 0; i < data.rows; i++)
        given[i] = i;
    assert_true(group_spread(&data, order, 25) < 0.5 * group_spread(&data, given, 25));
    free(order);
    free(given);
    support_rows_free(&rows);
    support_data_free(&data);
}

/* ---- in files ---------------------------------------------------------------------------------------------------- */

/* Rows that lie in a file, in order of the input. */
static void open_store(struct row_store *store, struct io_fs *fs, const char *path, const struct rows *rows)
{
    uint32_t *inputs = malloc(sizeof *inputs * rows->n);
    assert_non_null(inputs);
    for (uint32_t i = 0; i < rows->n; i++)
        inputs[i] = i;
    assert_int_equal(row_store_open(store, rows->n, rows->code_dim, fs, path, false, NULL), 0);
    assert_int_equal(row_store_write(store, 0, rows, inputs), 0);
    free(inputs);
}

static int order_in_files(const struct rows *rows, uint32_t room, const struct partition_config *config,
                          struct io_fs *fs, const struct progress *progress, uint32_t *order, struct rows *sorted)
{
    struct row_store from, spare;
    open_store(&from, fs, "/from", rows);
    assert_int_equal(row_store_open(&spare, rows->n, rows->code_dim, fs, "/spare", false, NULL), 0);
    int rc = partition_files(&from, &spare, room, config, progress, order);
    if (rc == 0 && sorted)
        assert_int_equal(row_store_read(&from, 0, rows->n, sorted, 0, NULL), 0);
    row_store_close(&from);
    row_store_close(&spare);
    fs->ops->unlink(fs, "/from");
    fs->ops->unlink(fs, "/spare");
    return rc;
}

/* Whatever fits in memory at once, the order is that of all rows in memory, and the rows lie in it afterwards. */
static void test_files_give_the_same_order(void **state)
{
    enum { N = 9000, DIM = 32 };
    static const uint32_t rooms[] = {30, 100, 800, 5000, N};
    struct support_data data;
    struct io_fs *fs = fault_fs_create();
    (void)state;
    assert_non_null(fs);
    support_clusters(N, DIM, QUIRE_TYPE_F32, 6, &data);
    for (uint32_t i = 0; i < N; i += 3) /* ties */
        memset(data.floats + (size_t)i * DIM, 0, sizeof(float) * DIM);
    struct rows rows = support_rows(data.floats, N, DIM), sorted;
    assert_int_equal(rows_alloc(&sorted, N, DIM), 0);
    uint32_t *wanted = order_of(&rows, 30, 2, 5), *order = malloc(sizeof *order * N);
    assert_non_null(order);
    for (size_t r = 0; r < SUPPORT_COUNT(rooms); r++)
        for (unsigned threads = 1; threads <= 3; threads += 2) {
            struct partition_config config = {30, threads, 5, NULL};
            memset(order, 0xff, sizeof *order * N);
            assert_int_equal(order_in_files(&rows, rooms[r], &config, fs, NULL, order, &sorted), 0);
            assert_memory_equal(order, wanted, sizeof *order * N);
            for (uint32_t i = 0; i < N; i++)
                assert_memory_equal(sorted.codes + (size_t)i * DIM, rows.codes + (size_t)order[i] * DIM, DIM);
        }
    free(order);
    free(wanted);
    rows_free(&sorted);
    support_rows_free(&rows);
    support_data_free(&data);
    fault_fs_destroy(fs);
}

static void test_failing_files(void **state)
{
    enum { N = 500, DIM = 32 };
    struct support_data data;
    struct io_fs *fs = fault_fs_create();
    struct partition_config config = {20, 2, 5, NULL};
    uint32_t order[N];
    (void)state;
    assert_non_null(fs);
    support_clusters(N, DIM, QUIRE_TYPE_F32, 6, &data);
    struct rows rows = support_rows(data.floats, N, DIM);
    int rc = -1;
    for (unsigned n = 1; rc < 0; n += 7) {
        struct row_store from, spare;
        open_store(&from, fs, "/from", &rows);
        assert_int_equal(row_store_open(&spare, N, DIM, fs, "/spare", false, NULL), 0);
        fault_fail_nth(fs, FAULT_READ | FAULT_WRITE, n, QUIRE_EIO, false);
        rc = partition_files(&from, &spare, 60, &config, NULL, order);
        assert_true(rc == 0 || rc == QUIRE_EIO);
        fault_fail_nth(fs, FAULT_ANY, 0, 0, false);
        row_store_close(&from);
        row_store_close(&spare);
        fs->ops->unlink(fs, "/from");
        fs->ops->unlink(fs, "/spare");
    }
    check_permutation(order, N);
    support_rows_free(&rows);
    support_data_free(&data);
    fault_fs_destroy(fs);
}

/* ---- stopped ----------------------------------------------------------------------------------------------------- */

static int stop_at_once(void *context, const char *phase, uint64_t done, uint64_t total)
{
    (void)done;
    (void)total;
    assert_string_equal(phase, "partition");
    ++*(unsigned *)context;
    return 1;
}

static void test_cancel(void **state)
{
    struct support_data data;
    unsigned calls = 0;
    struct progress progress = {stop_at_once, &calls, "partition"};
    (void)state;
    support_clusters(3000, 32, QUIRE_TYPE_F32, 4, &data);
    struct rows rows = support_rows(data.floats, data.rows, data.dim);
    uint32_t *order = malloc(sizeof *order * data.rows);
    assert_non_null(order);
    struct partition_config config = {10, 2, 1, NULL};
    assert_int_equal(partition_build(&rows, &config, &progress, order), QUIRE_ECANCELLED);
    assert_int_equal(calls, 1);
    free(order);
    support_rows_free(&rows);
    support_data_free(&data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_row_once),
        cmocka_unit_test(test_same_for_any_threads),
        cmocka_unit_test(test_duplicates),
        cmocka_unit_test(test_groups_hold_near_rows),
        cmocka_unit_test(test_files_give_the_same_order),
        cmocka_unit_test(test_failing_files),
        cmocka_unit_test(test_cancel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
