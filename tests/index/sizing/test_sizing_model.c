/*
 * test_sizing_model.c - what two samples mean for many rows: made-up points whose law is known, and which way is chosen
 * of made-up answers.
 */
#include "index/sizing/sizing.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void assert_near(double got, double wanted)
{
    assert_true(fabs(got - wanted) <= 1e-6 * fabs(wanted));
}

/* A power within what is usual is seen half, the rest is what is usual; beyond it is cut. */
static void test_exponent(void **state)
{
    const struct sizing_growth g = {.usual = 0.2, .least = 0.1, .most = 0.5};
    (void)state;
    assert_near(sizing_exponent(&g, 1000, 3 * pow(1000, 0.2), 4000, 3 * pow(4000, 0.2)), 0.2);
    assert_near(sizing_exponent(&g, 1000, 3 * pow(1000, 0.4), 4000, 3 * pow(4000, 0.4)), 0.3);
    assert_near(sizing_exponent(&g, 1000, 1, 4000, 64), 0.35); /* 3, of which 0.5 counts */
    assert_near(sizing_exponent(&g, 1000, 5, 4000, 4), 0.15);  /* falls: the least counts */
    assert_near(sizing_exponent(&g, 1000, 0, 4000, 0), 0.2);   /* nothing was counted */
}

static struct sizing_point point_of(double rows)
{
    return (struct sizing_point){.rows = rows,
                                 .reads = 2 * pow(rows, sizing_reads.usual),
                                 .read_bytes = 8192 * 2 * pow(rows, sizing_reads.usual),
                                 .rounds = pow(rows, sizing_rounds.usual),
                                 .codes = pow(rows, sizing_codes.usual),
                                 .cpu_us = 10 * pow(rows, sizing_cpu.usual),
                                 .resident_bytes = 1e5 + 70 * rows,
                                 .index_bytes = 2e5 + 200 * rows,
                                 .build_cpu_s = 1e-4 * pow(rows, sizing_build.usual)};
}

/* Points that follow the law themselves are met by it, at any number of rows. */
static void test_predict(void **state)
{
    struct sizing_point small = point_of(8192), large = point_of(32768), out;
    (void)state;
    for (double rows = 32768; rows < 2e8; rows *= 7.3) {
        struct sizing_point wanted = point_of(rows);
        sizing_predict(&small, &large, rows, &out);
        assert_near(out.rows, rows);
        assert_near(out.reads, wanted.reads);
        assert_near(out.read_bytes, wanted.read_bytes);
        assert_near(out.rounds, wanted.rounds);
        assert_near(out.codes, wanted.codes);
        assert_near(out.cpu_us, wanted.cpu_us);
        assert_near(out.resident_bytes, wanted.resident_bytes);
        assert_near(out.index_bytes, wanted.index_bytes);
        assert_near(out.build_cpu_s, wanted.build_cpu_s);
    }
    /* a small index that is nearly as large as the other, by what is fixed: rows still cost */
    small.index_bytes = large.index_bytes;
    sizing_predict(&small, &large, 10 * large.rows, &out);
    assert_true(out.index_bytes >= 5 * large.index_bytes);
}

static void test_latency(void **state)
{
    (void)state;
    assert_near(sizing_latency_us(3, 100, 50), 350);
    assert_near(sizing_latency_us(0, 100, 50), 50); /* everything was answered from memory */
}

static void test_choose(void **state)
{
    struct sizing_report r = {.n_answers = 3, .device_known = true};
    (void)state;
    r.answers[0] = (struct sizing_answer){.memory_bytes = 300, .qps = 1000, .whole.reads = 8};
    r.answers[1] = (struct sizing_answer){.memory_bytes = 200, .qps = 950, .whole.reads = 9};
    r.answers[2] = (struct sizing_answer){.memory_bytes = 100, .qps = 400, .whole.reads = 30};
    assert_int_equal(sizing_choose(&r, 0, 0), 1);   /* nearly the most, with less memory */
    assert_int_equal(sizing_choose(&r, 0, 960), 0); /* only one gives that */
    assert_int_equal(sizing_choose(&r, 0, 300), 2); /* enough */
    assert_int_equal(sizing_choose(&r, 250, 960), -1);
    assert_int_equal(sizing_choose(&r, 250, 0), 1);
    assert_int_equal(sizing_choose(&r, 100, 0), 2);
    assert_int_equal(sizing_choose(&r, 99, 0), -1);
    r.device_known = false; /* rates are not known: reads are */
    for (int i = 0; i < 3; i++)
        r.answers[i].qps = 0;
    assert_int_equal(sizing_choose(&r, 0, 0), 0);
    assert_int_equal(sizing_choose(&r, 250, 960), 1);
    assert_int_equal(sizing_choose(&r, 99, 0), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exponent),
        cmocka_unit_test(test_predict),
        cmocka_unit_test(test_latency),
        cmocka_unit_test(test_choose),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
