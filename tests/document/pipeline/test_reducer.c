/*
 * test_reducer.c - reducers over many values, beside sums, sorts and sets made another way.
 */
#include "document/pipeline/reducer.h"
#include "io/random.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
// clang-format off
#include <cmocka.h>
// clang-format on

#define VALUES_MAX 100000u

static double values[VALUES_MAX];

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* n numbers below `most`, as numbers and as texts by turns; what the reducer makes of them, as an array or a number. */
static struct datum *reduce(const struct reducer *reducer, struct datum_pool *pool, uint32_t n, uint64_t most,
                            uint64_t seed)
{
    struct random random;
    char text[32];
    struct reducer_tally *tally = reducer_begin(reducer, seed, pool);
    assert_non_null(tally);
    random_init(&random, seed);
    for (uint32_t i = 0; i < n; i++) {
        values[i] = (double)random_below(&random, most);
        snprintf(text, sizeof text, "%.0f", values[i]);
        bool as_text = i % 2 && reducer->kind != REDUCER_TOLIST && reducer->kind != REDUCER_COUNT_DISTINCT &&
                       reducer->kind != REDUCER_COUNT_DISTINCTISH;
        struct datum *value = as_text ? datum_string(pool, text, strlen(text)) : datum_number(pool, values[i]);
        assert_true(value && reducer_add(reducer, tally, value, NULL, pool));
        datum_release(pool, value);
    }
    assert_true(reducer_add(reducer, tally, NULL, NULL, pool)); /* a row without a value changes nothing */
    struct datum *result = reducer_result(reducer, tally, pool);
    assert_non_null(result);
    reducer_end(reducer, tally, pool);
    return result;
}

static double number_of(enum reducer_kind kind, double quantile, uint32_t n, uint64_t most, uint64_t seed)
{
    const struct reducer reducer = {.kind = kind, .quantile = quantile};
    struct datum_pool pool = {.bytes_max = 1 << 26};
    struct datum *result = reduce(&reducer, &pool, n, most, seed);
    double number = result->number;
    assert_int_equal(result->kind, DATUM_NUMBER);
    datum_release(&pool, result);
    assert_int_equal(pool.bytes, 0);
    return number;
}

static uint32_t distinct(uint32_t n)
{
    uint32_t found = n > 0;
    qsort(values, n, sizeof values[0], ascending);
    for (uint32_t i = 1; i < n; i++)
        found += values[i] != values[i - 1];
    return found;
}

static void test_numbers(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        uint32_t n = (uint32_t)(seed * seed * 10);
        double sum = number_of(REDUCER_SUM, 0, n, 1000, seed), total = 0, squares = 0;
        for (uint32_t i = 0; i < n; i++)
            total += values[i];
        assert_true(sum == total);
        assert_true(fabs(number_of(REDUCER_AVG, 0, n, 1000, seed) - total / n) < 1e-9);
        for (uint32_t i = 0; i < n; i++)
            squares += (values[i] - total / n) * (values[i] - total / n);
        assert_true(fabs(number_of(REDUCER_STDDEV, 0, n, 1000, seed) - sqrt(squares / (n - 1))) < 1e-6);
        double least = number_of(REDUCER_MIN, 0, n, 1000, seed), greatest = number_of(REDUCER_MAX, 0, n, 1000, seed);
        qsort(values, n, sizeof values[0], ascending);
        assert_true(least == values[0] && greatest == values[n - 1]);
        for (double quantile = 0; quantile <= 1; quantile += 0.125) {
            double found = number_of(REDUCER_QUANTILE, quantile, n, seed % 2 ? 1000 : 3, seed);
            qsort(values, n, sizeof values[0], ascending);
            size_t rank = (size_t)ceil(quantile * n);
            assert_true(found == values[rank ? rank - 1 : 0]);
        }
    }
}

static void test_distinct(void **state)
{
    (void)state;
    for (uint64_t most = 1; most <= 1000000; most *= 10) {
        assert_true(number_of(REDUCER_COUNT_DISTINCT, 0, VALUES_MAX, most, most) == distinct(VALUES_MAX));
        double about = number_of(REDUCER_COUNT_DISTINCTISH, 0, VALUES_MAX, most, most), exact = distinct(VALUES_MAX);
        assert_true(exact < 1024 ? about == exact : fabs(about / exact - 1) < 0.06); /* four standard errors */
    }
}

static void test_lists(void **state)
{
    const struct reducer list = {.kind = REDUCER_TOLIST}, sample = {.kind = REDUCER_RANDOM_SAMPLE, .samples = 100};
    struct datum_pool pool = {.bytes_max = 1 << 26};
    uint32_t from[10] = {0};
    (void)state;
    struct datum *result = reduce(&list, &pool, 5000, 700, 3);
    assert_int_equal(result->n, distinct(5000));
    datum_release(&pool, result);
    for (uint64_t seed = 1; seed <= 100; seed++) { /* 10,000 samples of 0 .. 9: each digit about 1,000 times */
        result = reduce(&sample, &pool, 5000, 10, seed);
        assert_int_equal(result->n, 100);
        for (uint32_t i = 0; i < 100; i++) {
            double number;
            assert_true(datum_to_number(datum_items(result)[i], &number));
            from[(int)number]++;
        }
        datum_release(&pool, result);
    }
    for (int i = 0; i < 10; i++)
        assert_in_range(from[i], 850, 1150);
    assert_int_equal(pool.bytes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_numbers), cmocka_unit_test(test_distinct),
                                       cmocka_unit_test(test_lists)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
