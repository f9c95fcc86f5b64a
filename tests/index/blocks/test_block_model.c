/*
 * test_block_model.c - which block size is expected to give most queries: made-up devices, processors and trials, and
 * what was measured on real ones; codes that a budget has room for, which a block size may cost.
 */
#include "index/blocks/block_model.h"
#include "index/build/build.h"
#include "index/format/format.h"
#include "index/segment/segment_view.h"
#include "tests/index/support_index.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { N = 3 };

static uint32_t best_of(struct block_case cases[N], uint64_t rows, unsigned processors)
{
    for (int i = 0; i < N; i++) {
        cases[i].block_bytes = 4096u << i;
        block_model_predict(&cases[i], rows, 8192, processors);
        assert_true(cases[i].qps > 0 && cases[i].reads >= cases[i].trial_reads);
        assert_true(cases[i].cpu_us >= cases[i].trial_cpu_us);
        /* no faster than the device or the processors alone, and no slower than one after the other */
        double device = cases[i].reads_per_second / cases[i].reads, processor = 1e6 * processors / cases[i].cpu_us;
        assert_true(cases[i].qps <= fmin(device, processor) && cases[i].qps >= 1 / (1 / device + 1 / processor));
    }
    return cases[block_model_best(cases, N)].block_bytes;
}

/* Reads decide where the processor has nothing to do: by bytes, or by their number. */
static void test_device(void **state)
{
    struct block_case by_bytes[N] = {{0, 80e3, 8, 1, 0, 0, 0}, {0, 40e3, 7, 1, 0, 0, 0}, {0, 20e3, 6, 1, 0, 0, 0}};
    struct block_case by_number[N] = {{0, 80e3, 8, 1, 0, 0, 0}, {0, 80e3, 7, 1, 0, 0, 0}, {0, 80e3, 6, 1, 0, 0, 0}};
    struct block_case between[N] = {{0, 80e3, 12, 1, 0, 0, 0}, {0, 70e3, 8, 1, 0, 0, 0}, {0, 40e3, 6, 1, 0, 0, 0}};
    (void)state;
    assert_int_equal(best_of(by_bytes, 1000000, 4), 4096);
    assert_int_equal(best_of(by_number, 1000000, 4), 16384);
    assert_int_equal(best_of(between, 1000000, 4), 8192);
}

/* A device that reads any size at once, and rows of larger blocks that cost time: few processors want small blocks. */
static void test_processor(void **state)
{
    struct block_case few[N] = {{0, 2e6, 8, 100, 0, 0, 0}, {0, 2e6, 7, 140, 0, 0, 0}, {0, 2e6, 6, 200, 0, 0, 0}};
    struct block_case many[N] = {{0, 50e3, 8, 100, 0, 0, 0}, {0, 50e3, 7, 140, 0, 0, 0}, {0, 50e3, 6, 200, 0, 0, 0}};
    (void)state;
    assert_int_equal(best_of(few, 100000, 2), 4096);
    assert_int_equal(best_of(many, 100000, 64), 16384);
    /* the same device and trial: with one processor it is the processor's rate that differs */
    assert_int_equal(best_of(many, 100000, 1), 4096);
}

/* A device that is slow for some rounds, and one measurement that is off: the rates are those of the quiet rounds. */
static void test_rates(void **state)
{
    const double quiet[N] = {80e3, 60e3, 40e3};
    double measured[BLOCK_MODEL_ROUNDS * N], rates[N];
    (void)state;
    for (uint32_t round = 0; round < BLOCK_MODEL_ROUNDS; round++)
        for (uint32_t i = 0; i < N; i++)
            measured[round * N + i] = quiet[i] * (round % 2 ? 0.3 : 1);
    measured[2 * N] = 20e3;
    block_model_rates(measured, N, rates);
    for (uint32_t i = 0; i < N; i++)
        assert_true(fabs(rates[i] / quiet[i] - 1) < 1e-9);
    block_model_rates(measured, 1, rates);
    assert_true(rates[0] > 0);
}

/* Sizes that are nearly as good: the smallest, and not one that is clearly worse. */
static void test_nearly(void **state)
{
    struct block_case cases[N] = {{.qps = 98}, {.qps = 99}, {.qps = 100}};
    (void)state;
    assert_int_equal(block_model_best(cases, N), 0);
    cases[0].qps = 96;
    assert_int_equal(block_model_best(cases, N), 1);
    cases[1].qps = 90;
    assert_int_equal(block_model_best(cases, N), 2);
    assert_int_equal(block_model_best(cases, 1), 0);
}

/* Device, processor and both together as they were measured (docs/performance.md), two lanes. */
static void test_measured(void **state)
{
    static const struct {
        double reads_per_second, reads, cpu_us, qps;
    } measured[] = {{82e3, 7.10, 130, 10900}, {66e3, 6.71, 84, 9700}, {80e3, 5.45, 70, 14300}};
    (void)state;
    for (size_t i = 0; i < sizeof measured / sizeof *measured; i++) {
        struct block_case c = {.reads_per_second = measured[i].reads_per_second,
                               .trial_reads = measured[i].reads,
                               .trial_cpu_us = measured[i].cpu_us};
        block_model_predict(&c, 8192, 8192, 2);
        assert_true(fabs(c.qps / measured[i].qps - 1) < 0.03);
    }
}

/* A million rows of SIFT within 35 % of raw: centres of small blocks cost the codes a width. */
static void test_codes_within_budget(void **state)
{
    static const struct {
        unsigned percent;
        uint32_t block_bytes;
        unsigned bits;
    } cases[] = {{0, 4096, 4},  {100, 4096, 4}, {60, 4096, 2},  {60, 8192, 4}, {60, 16384, 4}, {35, 4096, 1},
                 {35, 8192, 2}, {35, 16384, 2}, {20, 16384, 1}, {3, 8192, 0},  {3, 16384, 0}};
    (void)state;
    for (size_t i = 0; i < SUPPORT_COUNT(cases); i++) {
        struct quire_build_options options = support_options(QUIRE_METRIC_L2, QUIRE_SLOT_AUTO);
        struct segment_params params;
        uint64_t columns_bytes;
        options.block_bytes = cases[i].block_bytes;
        options.memory_bytes = UINT64_C(1280000) * cases[i].percent;
        build_layout_for(1000000, 128, QUIRE_TYPE_U8, &options, &params, &columns_bytes);
        assert_int_equal(params.block_bytes, cases[i].block_bytes);
        assert_int_equal(columns_bytes, 0);
        assert_int_equal(params.edge_code_bytes > 0, cases[i].bits == 0);
        assert_int_equal(segment_code_bits(&params, 0, options.memory_bytes, 4), cases[i].bits);
        assert_true(segment_code_bits(&params, 0, options.memory_bytes, 2) <= 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_device), cmocka_unit_test(test_processor), cmocka_unit_test(test_nearly),
        cmocka_unit_test(test_rates),  cmocka_unit_test(test_measured),  cmocka_unit_test(test_codes_within_budget),
    };
    return cmocka_run_group_tests_name("block_model", tests, NULL, NULL);
}
