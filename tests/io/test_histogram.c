/*
 * test_histogram.c - buckets, percentiles and merging against a sorted list of the same values.
 *
 * The bound of the header is what is asserted: exact below 2^(sub_bits + 1), elsewhere at most 2^-(sub_bits + 1) off.
 * The last test reads while another thread writes; thread sanitizers see a race there if counters were plain.
 */
#include "io/histogram.h"
#include "io/random.h"
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants the headers above first */
#include <cmocka.h>

#define BUCKETS_MAX HISTOGRAM_BUCKETS(7u, 64u)
#define N_VALUES    20000u

static _Atomic uint64_t counts[BUCKETS_MAX], more_counts[BUCKETS_MAX];

static void start(struct histogram *h, _Atomic uint64_t *memory, unsigned sub_bits, unsigned value_bits)
{
    memset((void *)memory, 0, sizeof counts);
    histogram_init(h, memory, sub_bits, value_bits);
    assert_true(h->n_buckets <= BUCKETS_MAX);
}

static void assert_close(double got, uint64_t value, unsigned sub_bits)
{
    double off = fabs(got - (double)value);
    if (value < UINT64_C(2) << sub_bits)
        assert_true(off == 0);
    else
        assert_true(off <= ldexp((double)value, -(int)sub_bits - 1));
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void test_each_value_comes_back(void **state)
{
    (void)state;
    for (unsigned sub_bits = 0; sub_bits <= 7; sub_bits++)
        for (unsigned power = 0; power < 64; power++)
            for (int64_t near = -2; near <= 2; near++) {
                struct histogram h;
                uint64_t value = (UINT64_C(1) << power) + (uint64_t)near;
                start(&h, counts, sub_bits, 64);
                histogram_add(&h, value);
                assert_int_equal(histogram_count(&h), 1);
                assert_close(histogram_percentile(&h, 0.5), value, sub_bits);
                assert_true(histogram_mean(&h) == (double)value);
            }
}

static void test_counts_below_powers_of_two_are_exact(void **state)
{
    (void)state;
    for (unsigned sub_bits = 0; sub_bits <= 7; sub_bits++) {
        struct histogram h;
        start(&h, counts, sub_bits, 20);
        for (uint64_t value = 0; value < 5000; value++)
            histogram_add(&h, value);
        for (unsigned power = 0; power <= 12; power++)
            assert_int_equal(histogram_below(&h, UINT64_C(1) << power), UINT64_C(1) << power);
        assert_int_equal(histogram_below(&h, 0), 0);
        assert_int_equal(histogram_below(&h, UINT64_MAX), 5000);
    }
}

static void test_percentiles_of_a_list(void **state)
{
    static const double shares[] = {0, 0.001, 0.25, 0.5, 0.9, 0.99, 0.999, 0.9999, 1};
    uint64_t *values = malloc(N_VALUES * sizeof *values);
    (void)state;
    assert_non_null(values);
    for (unsigned sub_bits = 2; sub_bits <= 7; sub_bits++) {
        struct histogram h;
        struct random random;
        double sum = 0;
        random_init(&random, sub_bits);
        start(&h, counts, sub_bits, 40);
        for (unsigned i = 0; i < N_VALUES; i++) {
            values[i] = random_next(&random) >> (24 + random_below(&random, 40));
            histogram_add(&h, values[i]);
            sum += (double)values[i];
        }
        qsort(values, N_VALUES, sizeof *values, by_value);
        for (size_t s = 0; s < sizeof shares / sizeof *shares; s++) {
            double rank = ceil(shares[s] * N_VALUES);
            assert_close(histogram_percentile(&h, shares[s]), values[rank > 0 ? (size_t)rank - 1 : 0], sub_bits);
        }
        assert_int_equal(histogram_count(&h), N_VALUES);
        assert_true(fabs(histogram_mean(&h) / (sum / N_VALUES) - 1) < 1e-9);
    }
    free(values);
}

static void test_nothing_and_too_much(void **state)
{
    struct histogram h;
    (void)state;
    start(&h, counts, 4, 32);
    assert_int_equal(histogram_count(&h), 0);
    assert_true(isnan(histogram_percentile(&h, 0.5)) && isnan(histogram_mean(&h)));
    histogram_add(&h, (UINT64_C(1) << 32) - 1);
    double last = histogram_percentile(&h, 1);
    assert_close(last, (UINT64_C(1) << 32) - 1, 4);
    histogram_add(&h, UINT64_MAX);
    histogram_add(&h, UINT64_C(1) << 32);
    assert_true(histogram_percentile(&h, 1) == last); /* beyond the last bucket is in it */
    assert_int_equal(counts[h.n_buckets - 1], 3);
    assert_int_equal(counts[h.n_buckets], 0);
}

static void test_merge_is_adding(void **state)
{
    struct histogram h, other;
    struct random random;
    (void)state;
    random_init(&random, 9);
    start(&h, counts, 5, 40);
    start(&other, more_counts, 5, 40);
    static _Atomic uint64_t all_counts[BUCKETS_MAX];
    struct histogram all;
    start(&all, all_counts, 5, 40);
    for (unsigned i = 0; i < N_VALUES; i++) {
        uint64_t value = random_next(&random) >> (24 + random_below(&random, 40));
        histogram_add(i % 3 ? &h : &other, value);
        histogram_add(&all, value);
    }
    histogram_merge(&h, &other);
    for (uint32_t i = 0; i < all.n_buckets; i++)
        assert_int_equal(counts[i], all_counts[i]);
    assert_true(histogram_mean(&h) == histogram_mean(&all));
    assert_int_equal(histogram_count(&other), (N_VALUES + 2) / 3); /* the source stays */
}

static void *write_values(void *context)
{
    for (uint64_t i = 0; i < 20 * N_VALUES; i++)
        histogram_add(context, i % 1000);
    return NULL;
}

static void test_reading_while_another_writes(void **state)
{
    struct histogram h;
    pthread_t writer;
    uint64_t before = 0;
    (void)state;
    start(&h, counts, 4, 32);
    histogram_add(&h, 0);
    assert_int_equal(pthread_create(&writer, NULL, write_values, &h), 0);
    while (before < 10 * N_VALUES) {
        uint64_t n = histogram_count(&h);
        double middle = histogram_percentile(&h, 0.5), most = histogram_percentile(&h, 1);
        assert_true(n >= before);
        assert_true(middle >= 0 && middle <= 1024 && most >= 0 && most <= 1024);
        before = n;
    }
    assert_int_equal(pthread_join(writer, NULL), 0);
    assert_int_equal(histogram_count(&h), 20 * N_VALUES + 1);
    assert_close(histogram_percentile(&h, 0.5), 499, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_value_comes_back), cmocka_unit_test(test_counts_below_powers_of_two_are_exact),
        cmocka_unit_test(test_percentiles_of_a_list), cmocka_unit_test(test_nothing_and_too_much),
        cmocka_unit_test(test_merge_is_adding),       cmocka_unit_test(test_reading_while_another_writes),
    };
    return cmocka_run_group_tests_name("histogram", tests, NULL, NULL);
}
