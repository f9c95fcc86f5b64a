/*
 * test_partition_device.c - bisection with a device: the same order, whatever fails.
 *
 * Few rows and many, more than a device is asked for at once; then every call of OpenCL and every allocation fails in
 * turn. The loader of OpenCL is tests/opencl/fake_opencl.c. Without a device the tests say that they were skipped.
 */
#include "index/cluster/partition.h"
#include "index/offload/offload.h"
#include "tests/index/support_index.h"
#include "tests/index/support_rows.h"
#include "tests/opencl/fail_memory.h"
#include "tests/opencl/skip_without_device.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CL_MEM_FULL (-4)
#define CL_GONE     (-2)

static struct fake_opencl *fake;

static int set_up(void **state)
{
    (void)state;
    fake = fake_opencl_install();
    return 0;
}

/* The order by the processor, or where there is a device with it. */
static int order_of(const struct rows *rows, uint32_t capacity, unsigned threads, struct offload *offload,
                    uint32_t *order)
{
    const struct partition_config config = {capacity, threads, 3, offload};
    memset(order, 0xff, sizeof *order * rows->n);
    return partition_build(rows, &config, NULL, order);
}

static uint64_t products_of(struct offload *offload)
{
    struct offload_status status;
    offload_get_status(offload, &status);
    assert_false(status.is_lost || status.note[0]);
    return status.products;
}

static void expect_same_order(struct offload *offload, const struct rows *rows, uint32_t capacity, unsigned threads)
{
    uint32_t *expected = malloc(sizeof *expected * rows->n), *found = malloc(sizeof *found * rows->n);
    uint64_t before = products_of(offload);
    assert_true(expected && found);
    assert_int_equal(order_of(rows, capacity, 2, NULL, expected), 0);
    assert_int_equal(order_of(rows, capacity, threads, offload, found), 0);
    assert_memory_equal(found, expected, sizeof *found * rows->n);
    assert_true((products_of(offload) > before) == (rows->n > PARTITION_RUN));
    free(expected);
    free(found);
}

static void test_same_order(void **state)
{
    static const uint32_t counts[] = {1, 8, 9, 17, 100, 1000, 4097};
    static const uint32_t capacities[] = {1, 8, 33, 5000};
    struct support_data data;
    char note[512];
    (void)state;
    skip_without_device(fake);
    struct offload *offload = offload_open("", note, sizeof note);
    support_clusters(4097, 96, QUIRE_TYPE_F32, 1, &data);
    for (size_t i = 0; i < SUPPORT_COUNT(counts); i++) {
        struct rows rows = support_rows(data.floats, counts[i], 96);
        for (size_t c = 0; c < SUPPORT_COUNT(capacities); c++)
            expect_same_order(offload, &rows, capacities[c], c % 2 + 1);
        support_rows_free(&rows);
    }
    support_data_free(&data);
    support_clusters(300000, 32, QUIRE_TYPE_F32, 2, &data);
    struct rows rows = support_rows(data.floats, 300000, 32);
    expect_same_order(offload, &rows, 30, 2);
    support_rows_free(&rows);
    support_data_free(&data);
    offload_close(offload);
    assert_int_equal(fake->objects, 0);
}

/* With a device that may fail to open; the order is there unless memory failed here. */
static int try_order(const struct rows *rows, const uint32_t *expected, uint32_t *found)
{
    char note[512];
    struct offload *offload = offload_open("", note, sizeof note);
    int rc = order_of(rows, 30, 1, offload, found);
    if (rc == 0)
        assert_memory_equal(found, expected, sizeof *found * rows->n);
    offload_close(offload);
    assert_int_equal(fake->objects, 0);
    return rc;
}

static void test_failures(void **state)
{
    struct support_data data;
    (void)state;
    skip_without_device(fake);
    support_clusters(60, 64, QUIRE_TYPE_F32, 4, &data);
    struct rows rows = support_rows(data.floats, 60, 64);
    uint32_t *expected = malloc(sizeof *expected * 60), *found = malloc(sizeof *found * 60);
    assert_true(expected && found);
    assert_int_equal(order_of(&rows, 30, 2, NULL, expected), 0);
    for (int stays = 0; stays < 2; stays++) { /* every call: once without memory, or gone for good */
        uint32_t at = 0;
        for (bool through = false; !through; at++) {
            fake_opencl_reset(fake);
            fake->fail_at = at + 1;
            fake->stays = stays;
            fake->status = stays ? CL_GONE : CL_MEM_FULL;
            assert_int_equal(try_order(&rows, expected, found), 0);
            through = fake->fail_at > 1;
            assert_true(at < 1000);
        }
        assert_true(at > 20);
    }
    fake_opencl_reset(fake);
    unsigned n = 1;
    for (bool through = !FAIL_MEMORY; !through; n++) {
        fail_in = n;
        int rc = try_order(&rows, expected, found);
        through = fail_in > 0;
        fail_in = 0;
        assert_true(rc == 0 || (rc == QUIRE_ENOMEM && !through));
        assert_true(n < 1000);
    }
    assert_true(!FAIL_MEMORY || n > 20);
    free(expected);
    free(found);
    support_rows_free(&rows);
    support_data_free(&data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_order),
        cmocka_unit_test(test_failures),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
