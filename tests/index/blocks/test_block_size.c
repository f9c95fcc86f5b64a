/*
 * test_block_size.c - the block size that is chosen for a device, and when it is not chosen by the device at all.
 *
 * What a device answers differs from machine to machine, so a choice is only checked against the figures that it
 * says it was made from; the model has its own test with made-up ones (test_block_model).
 */
#include "index/blocks/block_size.h"
#include "index/build/build.h"
#include "io/error.h"
#include "tests/index/support_index.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct quire_input input_of(uint64_t rows, uint32_t dim)
{
    return (struct quire_input){.rows = rows, .dim = dim, .type = QUIRE_TYPE_F32};
}

static void test_not_probed(void **state)
{
    struct quire_build_options options = support_options(QUIRE_METRIC_L2, QUIRE_SLOT_AUTO);
    struct quire_input few = input_of(99999, 128), broad = input_of(1000000, 16384), plain = input_of(1000000, 128);
    struct block_choice choice;
    (void)state;
    /* neither the folder nor the rows are there: nobody looks */
    block_choose("/nonexistent/folder/index", &few, &options, &choice);
    assert_int_equal(choice.block_bytes, 0);
    assert_int_equal(choice.n_rates, 0);
    assert_non_null(strstr(choice.why, "100000 rows"));
    block_choose("/nonexistent/folder/index", &broad, &options, &choice);
    assert_int_equal(choice.block_bytes, 0);
    assert_non_null(strstr(choice.why, "16384 dimensions"));
    options.build_memory_bytes = 32 << 20;
    block_choose("/nonexistent/folder/index", &plain, &options, &choice);
    assert_int_equal(choice.block_bytes, 0);
    assert_non_null(strstr(choice.why, "--build-memory"));
}

/* A device that cannot be measured is no reason to refuse a build. */
static void test_cannot_be_probed(void **state)
{
    struct quire_build_options options = support_options(QUIRE_METRIC_L2, QUIRE_SLOT_AUTO);
    struct quire_input input = input_of(100000, 128);
    struct block_choice choice;
    (void)state;
    block_choose("/nonexistent/folder/index", &input, &options, &choice);
    assert_int_equal(choice.block_bytes, 0);
    assert_int_equal(choice.n_rates, 0);
    assert_non_null(strstr(choice.why, "could not be probed"));
}

/* Rows of an input of 100,000 that is made as it is read, in clusters. */
struct made {
    uint32_t dim;
    uint64_t last, n_read;
    bool fails;
};

static int make_rows(void *context, uint64_t row, uint64_t n, void *out, struct quire_error *err)
{
    struct made *made = context;
    float *rows = out;
    assert_true(made->n_read == 0 || row > made->last); /* forward */
    if (made->fails && row > 50000)
        return error_set(err, QUIRE_EIO, "the input broke");
    for (uint64_t i = 0; i < n; i++) {
        uint64_t noise = row + i + 1, centre = (row + i) % 50 + 1;
        for (uint32_t d = 0; d < made->dim; d++)
            rows[i * made->dim + d] = 3 * support_gauss(&centre) + support_gauss(&noise);
    }
    made->last = row + n - 1;
    made->n_read += n;
    return 0;
}

#define STOP_AT 10000000u

static int count_calls(void *context, const char *phase, uint64_t done, uint64_t total)
{
    unsigned *calls = context;
    assert_string_equal(phase, "try block sizes");
    assert_true(done < total);
    return ++*calls == STOP_AT;
}

/* What the choice was made from stands beside it; nothing is left in the folder. */
static void test_tried(void **state)
{
    struct quire_build_options options = support_options(QUIRE_METRIC_L2, QUIRE_SLOT_AUTO);
    char *folder = support_folder_make(), *path = support_path(folder, "index");
    struct made made = {.dim = 16};
    struct quire_input input = input_of(100000, made.dim);
    struct block_choice choice;
    unsigned calls = 0;
    double best = 0, chosen = 0;
    (void)state;
    input.read = make_rows;
    input.context = &made;
    options.progress = count_calls;
    options.context = &calls;
    block_choose(path, &input, &options, &choice);
    assert_int_equal(support_count_entries(folder), 0);
    if (choice.n_rates == 0) { /* a file system in memory has no direct I/O */
        assert_non_null(strstr(choice.why, "direct I/O"));
        assert_int_equal(choice.block_bytes, 0);
    } else {
        assert_int_equal(choice.n_rates, 3);
        assert_true(calls > 3 && calls < STOP_AT - 2);
        assert_int_equal(made.n_read, 8192 + 256);
        for (uint32_t i = 0; i < choice.n_rates; i++) {
            const struct block_rate *rate = &choice.rates[i];
            assert_int_equal(rate->block_bytes, 4096u << i);
            assert_int_equal(rate->code_bits, 4);
            assert_true(rate->reads_per_second > 0 && rate->reads > 0 && rate->cpu_us > 0 && rate->qps > 0);
            best = fmax(best, rate->qps);
            if (rate->block_bytes == choice.block_bytes)
                chosen = rate->qps;
        }
        assert_true(chosen >= 0.95 * best);
    }
    /* an input that breaks, and a caller that wants no more: the default, and nothing is left either */
    made = (struct made){.dim = 16, .fails = true};
    block_choose(path, &input, &options, &choice);
    assert_int_equal(choice.block_bytes, 0);
    assert_true(strstr(choice.why, "the input broke") || strstr(choice.why, "direct I/O"));
    made = (struct made){.dim = 16};
    calls = STOP_AT - 2;
    block_choose(path, &input, &options, &choice);
    assert_int_equal(choice.block_bytes, 0);
    assert_true(calls == STOP_AT || strstr(choice.why, "direct I/O"));
    assert_int_equal(support_count_entries(folder), 0);
    free(path);
    support_folder_remove(folder);
}

static void test_least(void **state)
{
    static const struct {
        uint32_t dim;
        enum quire_type type;
        enum quire_slot slot;
        uint32_t least;
    } cases[] = {
        {1, QUIRE_TYPE_F32, QUIRE_SLOT_AUTO, 4096},       {128, QUIRE_TYPE_U8, QUIRE_SLOT_AUTO, 4096},
        {480, QUIRE_TYPE_U8, QUIRE_SLOT_AUTO, 4096},      {496, QUIRE_TYPE_U8, QUIRE_SLOT_AUTO, 8192},
        {768, QUIRE_TYPE_BF16, QUIRE_SLOT_AUTO, 8192},    {768, QUIRE_TYPE_BF16, QUIRE_SLOT_BF16, 16384},
        {16384, QUIRE_TYPE_F32, QUIRE_SLOT_F32, 1048576},
    };
    (void)state;
    for (size_t i = 0; i < SUPPORT_COUNT(cases); i++) {
        struct quire_build_options options = support_options(QUIRE_METRIC_L2, cases[i].slot);
        assert_int_equal(build_block_least(10, cases[i].dim, cases[i].type, &options), cases[i].least);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_not_probed),
        cmocka_unit_test(test_cannot_be_probed),
        cmocka_unit_test(test_tried),
        cmocka_unit_test(test_least),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
