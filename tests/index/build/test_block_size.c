/*
 * test_block_size.c - the block size that is chosen for a device, and when it is not chosen by the device at all.
 *
 * What a device answers differs from machine to machine, so a measured choice is only checked against the rates that it
 * says it was made from; probe_best_block has its own test with made-up rates.
 */
#include "index/build/block_size.h"
#include "index/build/build.h"
#include "io/clock.h"
#include "tests/index/support_index.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void test_not_probed(void **state)
{
    struct quire_build_options options = support_options(QUIRE_METRIC_L2, QUIRE_SLOT_AUTO);
    struct block_choice choice;
    (void)state;
    /* the folder is not there: nobody looks */
    block_choose("/nonexistent/folder/index", 99999, 128, QUIRE_TYPE_F32, &options, &choice);
    assert_int_equal(choice.block_bytes, 0);
    assert_int_equal(choice.n_rates, 0);
    assert_non_null(strstr(choice.why, "100000 rows"));
    block_choose("/nonexistent/folder/index", 1000000, 16384, QUIRE_TYPE_F32, &options, &choice);
    assert_int_equal(choice.block_bytes, 0);
    assert_non_null(strstr(choice.why, "16384 dimensions"));
}

/* A device that cannot be measured is no reason to refuse a build. */
static void test_cannot_be_probed(void **state)
{
    struct quire_build_options options = support_options(QUIRE_METRIC_L2, QUIRE_SLOT_AUTO);
    struct block_choice choice;
    (void)state;
    block_choose("/nonexistent/folder/index", 100000, 128, QUIRE_TYPE_F32, &options, &choice);
    assert_int_equal(choice.block_bytes, 0);
    assert_int_equal(choice.n_rates, 0);
    assert_non_null(strstr(choice.why, "could not be probed"));
}

static void test_probed(void **state)
{
    struct quire_build_options options = support_options(QUIRE_METRIC_L2, QUIRE_SLOT_AUTO);
    char *folder = support_folder_make(), *path = support_path(folder, "index");
    struct block_choice choice;
    double best = 0, chosen = 0;
    (void)state;
    block_choose(path, 100000, 600, QUIRE_TYPE_F32, &options, &choice); /* 600 dimensions: seven slots in 4 KiB */
    assert_int_equal(support_count_entries(folder), 0);
    if (choice.n_rates == 0) { /* a file system in memory has no direct I/O */
        assert_non_null(strstr(choice.why, "direct I/O"));
        assert_int_equal(choice.block_bytes, 0);
    } else {
        assert_int_equal(choice.n_rates, 2);
        assert_int_equal(choice.rates[0].block_bytes, 8192);
        assert_int_equal(choice.rates[1].block_bytes, 16384);
        for (uint32_t i = 0; i < choice.n_rates; i++) {
            assert_true(choice.rates[i].reads_per_second > 0);
            best = fmax(best, choice.rates[i].worth);
            if (choice.rates[i].block_bytes == choice.block_bytes)
                chosen = choice.rates[i].worth;
        }
        assert_true(best == 1);
        assert_true(chosen >= 0.95);
    }
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
        cmocka_unit_test(test_probed),
        cmocka_unit_test(test_least),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
