/*
 * test_offload_memory.c - memory that fails in the host code of a device: of index/offload, and of the plug-in.
 *
 * Each allocation in turn fails, once, until everything went through: there is a line that says so or an error of that
 * kind, the device is not lost, nothing is left behind, and the next call answers. Without a device, and under
 * sanitizers, the tests say that they were skipped.
 */
#include "index/offload/offload_probe.h"
#include "io/random.h"
#include "tests/opencl/fail_memory.h"
#include "tests/opencl/fake_opencl.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ROWS    9000u
#define DIM     37u /* padded on the device */
#define CODES   64u
#define QUERIES 5u
#define K       7u

static struct fake_opencl *fake;
static float rows_data[ROWS * DIM];
static uint8_t codes[ROWS * CODES];
static struct offload_near expected[QUERIES * K];

static int set_up(void **state)
{
    struct random random;
    (void)state;
    fake = fake_opencl_install();
    random_init(&random, 1);
    for (size_t i = 0; i < sizeof rows_data / sizeof *rows_data; i++)
        rows_data[i] = (float)random_below(&random, 1000) / 500 - 1;
    for (size_t i = 0; i < sizeof codes; i++)
        codes[i] = (uint8_t)random_next(&random);
    return 0;
}

static void skip_where_nothing_fails(void)
{
    if (!FAIL_MEMORY || !fake || !fake->has_device) {
        print_message("skipped: there is no OpenCL device, no plug-in, or no allocator of our own\n");
        skip();
    }
    fake_opencl_reset(fake);
}

static int nearest_all(struct offload *offload, struct offload_near *found, struct quire_error *err)
{
    const struct offload_rows rows = {OFFLOAD_F32, ROWS, DIM, rows_data, NULL};
    const struct offload_nearest request = {
        .measure = OFFLOAD_L2, .n_queries = QUERIES, .k = K, .queries = rows_data, .out = found};
    return offload_nearest_all(offload, &rows, &request, NULL, err);
}

static int dots(struct offload *offload, struct quire_error *err)
{
    const struct offload_rows rows = {OFFLOAD_CODE8, ROWS, CODES, codes, NULL};
    const struct offload_run run = {0, 0, ROWS, 0};
    const int8_t query[CODES] = {1, -1, 3};
    struct offload_block *block = NULL;
    static int32_t out[ROWS];
    const struct offload_dots request = {1, 1, ROWS, 0, query, &run, NULL, out};
    int rc = offload_load(offload, &rows, &block, err);
    if (rc == 0)
        rc = offload_dots(offload, block, &request, err);
    for (uint32_t i = 0; rc == 0 && i < ROWS; i++) {
        const uint8_t *code = codes + (size_t)i * CODES;
        assert_int_equal(out[i], code[0] - code[1] + 3 * code[2]);
    }
    offload_unload(offload, block);
    return rc;
}

static int measure(struct offload *offload, struct quire_error *err)
{
    struct offload_rates rates;
    return offload_measure(offload, &rates, err);
}

static int near(struct offload *offload, struct quire_error *err)
{
    struct offload_near found[QUERIES * K];
    int rc = nearest_all(offload, found, err);
    for (uint32_t i = 0; rc == 0 && i < QUERIES * K; i++)
        assert_true(found[i].row == expected[i].row && found[i].value == expected[i].value);
    return rc;
}

static void test_each_allocation(void **state)
{
    static int (*const works[])(struct offload *, struct quire_error *) = {near, dots, measure};
    struct offload_status status;
    struct quire_error err = {0};
    char note[512];
    (void)state;
    skip_where_nothing_fails();
    struct offload *offload = offload_open("", note, sizeof note);
    assert_int_equal(nearest_all(offload, expected, &err), 0);
    for (size_t i = 0; i < sizeof works / sizeof *works; i++) {
        unsigned n = 1;
        for (bool through = false; !through; n++) {
            memset(&err, 0, sizeof err);
            fail_in = n;
            int rc = works[i](offload, &err);
            through = fail_in > 0;
            fail_in = 0;
            assert_true(rc == 0 || (rc == QUIRE_ENOMEM && !through && strstr(err.message, "memory")));
            offload_get_status(offload, &status);
            assert_false(status.is_lost);
            assert_true(n < 200);
        }
        assert_true(n > 3);
        assert_int_equal(works[i](offload, &err), 0);
    }
    offload_close(offload);
    assert_int_equal(fake->objects, 0);
}

/* Opening says why there is no device. */
static void test_opening(void **state)
{
    char note[512];
    (void)state;
    skip_where_nothing_fails();
    unsigned n = 1;
    for (bool through = false; !through; n++) {
        fail_in = n;
        struct offload *offload = offload_open("", note, sizeof note);
        through = fail_in > 0;
        fail_in = 0;
        assert_true((offload != NULL) == (note[0] == '\0') && (offload || !through));
        offload_close(offload);
        assert_int_equal(fake->objects, 0);
        assert_true(n < 50);
    }
    assert_true(n > 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_allocation),
        cmocka_unit_test(test_opening),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
