/*
 * test_offload_shape.c - what is made of a device's limits and of what it reports: tiles, and products of bytes.
 *
 * A loader of OpenCL (tests/opencl/fake_opencl.c) says that the device has little local memory, small work-groups or an
 * extension that its compiler does not know. Whatever it says, the answers are those of plain sums. Without a device
 * the tests say that they were skipped.
 */
#include "index/offload/offload.h"
#include "io/random.h"
#include "tests/opencl/skip_without_device.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ROWS    300u
#define DIM     65u
#define QUERIES 70u
#define K       9u
#define CODES   96u

static struct fake_opencl *fake;
static uint8_t rows_data[ROWS * DIM], codes[ROWS * CODES];

static int set_up(void **state)
{
    struct random random;
    (void)state;
    fake = fake_opencl_install();
    random_init(&random, 1);
    for (size_t i = 0; i < sizeof rows_data; i++)
        rows_data[i] = (uint8_t)random_next(&random);
    for (size_t i = 0; i < sizeof codes; i++)
        codes[i] = (uint8_t)random_next(&random);
    return 0;
}

static void begin(const char *tiles)
{
    skip_without_device(fake);
    unsetenv("QUIRE_OPENCL_DOT4");
    setenv("QUIRE_OPENCL_TILES", tiles, 1);
}

static double apart(uint32_t query, uint32_t row)
{
    double sum = 0;
    for (uint32_t i = 0; i < DIM; i++) {
        double d = (double)rows_data[query * DIM + i] - rows_data[row * DIM + i];
        sum += d * d;
    }
    return sum;
}

/* The first queries rows of all, each nearest to itself, and the k-th where it must be. */
static void expect_nearest(struct offload *offload, uint32_t n_queries)
{
    static struct offload_near found[QUERIES * K];
    const struct offload_rows rows = {OFFLOAD_U8, ROWS, DIM, rows_data, NULL};
    const struct offload_nearest request = {
        .measure = OFFLOAD_L2, .n_queries = n_queries, .k = K, .queries = rows_data, .out = found};
    struct offload_block *block;
    struct quire_error err = {0};
    if (offload_load(offload, &rows, &block, &err) < 0 || offload_nearest(offload, block, &request, &err) < 0)
        fail_msg("%s", err.message);
    for (uint32_t q = 0; q < n_queries; q++) {
        const struct offload_near *list = found + q * K;
        uint32_t nearer = 0;
        assert_true(list[0].row == q && list[0].value == 0);
        for (uint32_t row = 0; row < ROWS; row++)
            nearer += apart(q, row) < list[K - 1].value;
        assert_true(nearer < K);
        for (uint32_t i = 0; i < K; i++)
            assert_true(list[i].value == apart(q, list[i].row));
    }
    offload_unload(offload, block);
}

static void expect_dots(struct offload *offload)
{
    const struct offload_rows rows = {OFFLOAD_CODE8, ROWS, CODES, codes, NULL};
    const struct offload_run run = {0, 0, ROWS, 0};
    const int8_t query[CODES] = {1, -128, 127};
    static int32_t out[ROWS];
    const struct offload_dots request = {1, 1, ROWS, 0, query, &run, NULL, out};
    struct offload_block *block;
    struct quire_error err = {0};
    if (offload_load(offload, &rows, &block, &err) < 0 || offload_dots(offload, block, &request, &err) < 0)
        fail_msg("%s", err.message);
    for (uint32_t i = 0; i < ROWS; i++) {
        const uint8_t *code = codes + i * CODES;
        assert_int_equal(out[i], code[0] - 128 * code[1] + 127 * code[2]);
    }
    offload_unload(offload, block);
}

static void expect_way(struct offload *offload, const char *words)
{
    struct offload_status status;
    offload_get_status(offload, &status);
    assert_false(status.is_lost);
    if (!strstr(status.way, words))
        fail_msg("expected %s: %s", words, status.way);
}

static struct offload *open_one(void)
{
    char note[512];
    struct offload *offload = offload_open("", note, sizeof note);
    if (!offload)
        fail_msg("%s", note);
    return offload;
}

/* The tile is the largest that leaves room for a second one, and tiles in registers where none does. */
static void test_limits(void **state)
{
    static const struct {
        uint64_t local_bytes, group;
        const char *words;
    } cases[] = {
        {1 << 20, 4096, "tiles of 128 x 16"}, {49152, 1024, "tiles of 128 x 16"},
        {32768, 256, "tiles of 128 x 8"},     {16384, 256, "tiles of 128 x 4"},
        {32768, 255, "tiles of 32 x 16"},     {8192, 1024, "tiles in registers"}, /* too little to sort in */
        {65536, 63, "tiles in registers"},
    };
    begin("local");
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fake->local_bytes = cases[i].local_bytes;
        fake->group = cases[i].group;
        struct offload *offload = open_one();
        expect_way(offload, cases[i].words);
        expect_nearest(offload, QUERIES);
        expect_nearest(offload, 3); /* few */
        offload_close(offload);
        assert_int_equal(fake->objects, 0);
    }
}

/* A kernel that was built needs more registers than a work-group has: a smaller tile, or no device. */
static void test_kernel_limits(void **state)
{
    struct quire_error err = {0};
    static struct offload_near found[K];
    const struct offload_rows rows = {OFFLOAD_U8, ROWS, DIM, rows_data, NULL};
    const struct offload_nearest request = {
        .measure = OFFLOAD_L2, .n_queries = 1, .k = K, .queries = rows_data, .out = found};
    struct offload_block *block;
    begin("local");
    (void)state;
    fake->kernel_group = 100; /* side 32: 64 work-items */
    struct offload *offload = open_one();
    expect_nearest(offload, QUERIES);
    expect_dots(offload);
    offload_close(offload);
    fake->kernel_group = 20;
    offload = open_one();
    assert_int_equal(offload_load(offload, &rows, &block, &err), 0);
    assert_int_equal(offload_nearest(offload, block, &request, &err), QUIRE_EUNSUPPORTED);
    assert_non_null(strstr(err.message, "work-items"));
    offload_unload(offload, block);
    offload_close(offload);
    assert_int_equal(fake->objects, 0);
}

/* What a device reports is used; where its compiler does not know it, sums are written out. */
static void test_extensions(void **state)
{
    static const struct {
        const char *extensions, *words;
    } cases[] = {
        {"cl_khr_fp64 cl_khr_integer_dot_product", "by cl_khr_integer_dot_product"},
        {"cl_arm_integer_dot_product_int8 cl_arm_integer_dot_product_accumulate_int8 cl_khr_icd",
         "by cl_arm_integer_dot_product_accumulate_int8"},
        {"cl_khr_integer_dot_product_of_another_kind", "written out"},
        {"cl_nv_device_attribute_query", "written out"}, /* no compute capability */
        {"", "written out"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        begin(i % 2 ? "local" : "registers");
        fake->extensions = cases[i].extensions;
        struct offload *offload = open_one();
        expect_way(offload, cases[i].words);
        expect_dots(offload); /* the compiler of pocl knows none of them */
        expect_way(offload, "written out");
        expect_nearest(offload, QUERIES);
        offload_close(offload);
        assert_int_equal(fake->objects, 0);
    }
}

/* Rows, queries and products of codes; 0, or what failed. */
static int try_all(struct quire_error *err)
{
    static struct offload_near found[QUERIES * K];
    static int32_t out[ROWS];
    char note[512];
    const struct offload_rows rows = {OFFLOAD_U8, ROWS, DIM, rows_data, NULL};
    const struct offload_rows coded = {OFFLOAD_CODE8, ROWS, CODES, codes, NULL};
    const struct offload_nearest nearest = {
        .measure = OFFLOAD_L2, .n_queries = QUERIES, .k = K, .queries = rows_data, .out = found};
    const struct offload_run run = {0, 0, ROWS, 0};
    const int8_t query[CODES] = {1, -128, 127};
    const struct offload_dots dots = {1, 1, ROWS, 0, query, &run, NULL, out};
    struct offload_block *block = NULL, *code_block = NULL;
    struct offload *offload = offload_open("", note, sizeof note);
    if (!offload)
        return QUIRE_EUNSUPPORTED;
    int rc = offload_load(offload, &rows, &block, err);
    if (rc == 0)
        rc = offload_nearest(offload, block, &nearest, err);
    for (uint32_t q = 0; rc == 0 && q < QUERIES; q++)
        assert_true(found[q * K].row == q && found[q * K].value == 0);
    if (rc == 0)
        rc = offload_load(offload, &coded, &code_block, err);
    if (rc == 0)
        rc = offload_dots(offload, code_block, &dots, err);
    for (uint32_t i = 0; rc == 0 && i < ROWS; i++)
        assert_int_equal(out[i], codes[i * CODES] - 128 * codes[i * CODES + 1] + 127 * codes[i * CODES + 2]);
    offload_unload(offload, block);
    offload_unload(offload, code_block);
    offload_close(offload);
    assert_int_equal(fake->objects, 0);
    return rc;
}

/* Every call with tiles in local memory, for good or once: an error, or the answer. An extension that the compiler does
 * not know makes more calls. */
static void test_every_call(void **state)
{
    struct quire_error err = {0};
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        uint32_t at = 0;
        for (bool through = false; !through; at++) {
            begin("local");
            fake->extensions = kind & 1 ? "cl_khr_integer_dot_product" : "";
            fake->fail_at = at + 1;
            fake->stays = kind & 2;
            fake->status = -5; /* CL_OUT_OF_RESOURCES */
            int rc = try_all(&err);
            through = fake->fail_at > 1;
            assert_true(rc == 0 || !through);
            assert_true(at < 1000);
        }
        assert_true(at > 30);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_kernel_limits),
        cmocka_unit_test(test_extensions),
        cmocka_unit_test(test_every_call),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
