/*
 * test_row_set.c - stored sets of rows against CRoaring's, from numbers and from bits.
 */
#include "index/column/columns_priv.h"
#include "io/random.h"
#include <roaring/roaring.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define SET_ROWS 300000u

/* Rows of some pattern: runs, every so many, at random, few. */
static void draw_set(struct random *r, roaring_bitmap_t *rows)
{
    uint64_t pieces = random_below(r, 5);
    for (uint64_t i = 0; i < pieces; i++) {
        uint32_t from = (uint32_t)random_below(r, SET_ROWS), to = from + (uint32_t)random_below(r, SET_ROWS - from + 1);
        uint32_t step = 1u << random_below(r, 14);
        if (random_below(r, 3) == 0)
            roaring_bitmap_add_range(rows, from, to);
        for (uint32_t row = from; row < to; row += step)
            roaring_bitmap_add(rows, row);
        for (uint64_t n = random_below(r, 20000); n > 0 && random_below(r, 3) == 0; n--)
            roaring_bitmap_add(rows, (uint32_t)random_below(r, SET_ROWS));
    }
    for (uint64_t n = random_below(r, 3); n > 0; n--)
        roaring_bitmap_add(rows, (uint32_t)random_below(r, SET_ROWS));
}

/* What is coded is read back as CRoaring has it, from numbers and from bits, in whole and for a few rows; the portable
 * bytes are what CRoaring writes, to the byte where it has chosen the same containers. */
static void test_sets(void **state)
{
    (void)state;
    struct random r;
    uint32_t *numbers = malloc(sizeof *numbers * SET_ROWS), *back = malloc(sizeof *back * SET_ROWS), forms[3] = {0};
    random_init(&r, 77);
    for (unsigned trial = 0; trial < 150; trial++) {
        roaring_bitmap_t *rows = roaring_bitmap_create(), *again = NULL;
        draw_set(&r, rows);
        uint64_t n = roaring_bitmap_get_cardinality(rows);
        roaring_bitmap_to_uint32_array(rows, numbers);
        uint64_t *bits = calloc(SET_ROWS / 64 + 1, sizeof *bits), *added = calloc(SET_ROWS / 64 + 1, sizeof *added);
        for (uint64_t i = 0; i < n; i++)
            bits[numbers[i] / 64] |= 1ull << numbers[i] % 64;
        struct column_buffer one = {0}, two = {0};
        struct row_view of_numbers = {.rows = numbers, .n = n}, of_bits = {.bits = bits, .n = SET_ROWS / 64 + 1};
        struct row_set set;
        row_set_put(&one, &of_numbers);
        row_set_put(&two, &of_bits);
        assert_int_equal(one.n, two.n);
        assert_memory_equal(one.at, two.at, one.n);
        assert_ptr_equal(row_set_parse(one.at, one.at + one.n, &set), one.at + one.n);
        assert_true(row_set_is_valid(&set, SET_ROWS));
        assert_true(n == 0 || !row_set_is_valid(&set, numbers[n - 1]));
        assert_int_equal(set.n, n);
        forms[set.form]++;
        row_set_rows(&set, back);
        assert_memory_equal(back, numbers, n * sizeof *back);
        struct universe all = {NULL, SET_ROWS};
        row_set_add(&set, &all, added);
        assert_memory_equal(added, bits, (SET_ROWS / 64 + 1) * sizeof *bits);
        for (uint32_t i = 0; i < 200; i++) {
            uint32_t row = (uint32_t)random_below(&r, SET_ROWS);
            assert_true(row_set_has(&set, row) == roaring_bitmap_contains(rows, row));
        }
        assert_int_equal(row_view_roaring(&of_bits, &again), 0);
        assert_true(roaring_bitmap_equals(rows, again));
        if (set.form == SET_ROARING) {
            roaring_bitmap_run_optimize(rows);
            assert_true((size_t)(set.end - set.at) <= roaring_bitmap_portable_size_in_bytes(rows));
        }
        roaring_bitmap_free(rows);
        roaring_bitmap_free(again);
        free(bits);
        free(added);
        free(one.at);
        free(two.at);
    }
    assert_true(forms[SET_RUN] > 0 && forms[SET_GAPS] > 0 && forms[SET_ROARING] > 10);
    free(numbers);
    free(back);
}

/* Sorted, each once; of none and of one row, too. */
static void test_order(void **state)
{
    uint32_t rows[] = {7, 3, 7, 0, 3, 4294967295u, 7};
    const uint32_t wanted[] = {0, 3, 7, 4294967295u};
    (void)state;
    assert_int_equal(row_set_order(rows, 7), 4);
    assert_memory_equal(rows, wanted, sizeof wanted);
    assert_int_equal(row_set_order(rows, 1), 1);
    assert_int_equal(row_set_order(rows, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sets),
        cmocka_unit_test(test_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
