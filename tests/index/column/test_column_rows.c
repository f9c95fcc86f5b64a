/*
 * test_column_rows.c - columns by rows: filters over columns with very many values, short and long form, values that
 * were left out, and what is kept of them. What a filter leaves is what filter_matches says of each row.
 */
#include "index/column/column_rows.h"
#include "index/column/columns_priv.h"
#include "tests/index/support_columns.h"
#include "tests/index/support_index.h"
#include <roaring/roaring.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

static const uint8_t segment_id[16] = "columns by rows.";

static struct columns *write_and_open(struct support_table *t, uint64_t learnt, const char *path)
{
    struct columns *columns = NULL;
    bool written = false;
    unlink(path);
    assert_int_equal(
        columns_write(fs_real(), path, segment_id, t->n, NULL, learnt, support_table_give, t, &written, NULL), 0);
    assert_true(written);
    assert_int_equal(columns_open(fs_real(), path, segment_id, t->n, &columns, NULL), 0);
    return columns;
}

/* Fails where a row is wrongly in the answer or missing; rows that may match are counted. */
static uint64_t check(const struct support_table *t, const struct columns *columns, const char *text)
{
    struct filter *filter = NULL;
    roaring_bitmap_t *rows = NULL;
    bool residual = false;
    uint64_t more = 0;
    assert_int_equal(filter_compile(text, strlen(text), NULL, &filter, NULL), 0);
    assert_int_equal(columns_select(columns, filter, NULL, NULL, &rows, &residual), 0);
    for (uint32_t row = 0; row < t->n; row++) {
        bool in = roaring_bitmap_contains(rows, row),
             wanted = filter_matches(filter, t->texts[row], t->bytes[row], "", 0);
        if (in != wanted && !(in && residual))
            fail_msg("%s: row %u (%.*s) is %s the answer", text, row, (int)t->bytes[row], t->texts[row],
                     in ? "in" : "not in");
        more += in && !wanted;
    }
    assert_true(residual || more == 0);
    roaring_bitmap_free(rows);
    filter_unref(filter);
    return more;
}

/* More different texts than have codes, more different numbers than are tested one by one: exact nevertheless. */
static void many_values_are_exact(void **state)
{
    static const char *const cases[] = {".id == \"u4999\" or .id in [\"u0\", \"u\", \"u65536\"]",
                                        ".id prefix \"u12\"",
                                        ".n % 7 == 3",
                                        "not (.n / 3 > 9000)",
                                        ".n * .few > 90000 and .id",
                                        ".id == .other",
                                        ".n > .other",
                                        ".n % 1000 == 1 and .few == 4"};
    struct support_columns *s = *state;
    struct support_table t;
    char json[128];
    support_table_init(&t, COLUMN_TESTS_MAX + 5000);
    for (uint32_t row = 0; row < t.n; row++) {
        uint32_t id = row % (COLUMN_TESTS_MAX + 1);
        snprintf(json, sizeof json, "{\"id\":\"u%u\",\"n\":%s%u.25,\"few\":%u,\"other\":%s}", id, row % 5 ? "" : "-",
                 row, row % 6,
                 row % 13 == 0   ? "null"
                 : row % 13 == 1 ? "\"u1\""
                                 : "70000");
        if (row % 17 == 3)
            snprintf(json, sizeof json, "{\"id\":7,\"n\":%s,\"few\":\"%u\"}", row % 2 ? "\"12\"" : "{}", row % 6);
        support_table_put(&t, row, NULL, 0, json);
    }
    struct columns *columns = write_and_open(&t, UINT64_MAX, s->path);
    for (size_t i = 0; i < SUPPORT_COUNT(cases); i++)
        assert_int_equal(check(&t, columns, cases[i]), 0);
    columns_close(columns);
    support_table_fini(&t);
}

static double whole_max_of(const struct columns *columns, const char *name)
{
    const struct column *column = columns_find(columns, name, (uint32_t)strlen(name));
    struct column_rows *rows = NULL;
    assert_non_null(column);
    assert_int_equal(column_rows_get(columns, column, &rows), 0);
    assert_true(column_rows_are_numbers(rows));
    double most = column_rows_whole_max(rows);
    column_rows_unref(rows);
    return most;
}

/* Whole numbers take the fast forms of powers and remainders, in the short form and in the long one; a single number
 * among them that is not, or is large, is enough that they do not. Booleans are numbers. */
static void whole_numbers_are_known(void **state)
{
    static const char *const cases[] = {
        ".few ** 2 + .many ** 2 < 90000", ".few * .many % 1000 == 7",   ".few ** 2 > .part",
        ".many ** 2 % 7 == .few % 3",     ".part % 2 + .few > 2",       ".large % 3 + .few % 3 == 2",
        ".yes ** 2 + .few == 4",          "(.few - .many) % 5 == 0 - 4"};
    struct support_columns *s = *state;
    struct support_table t;
    char json[160];
    support_table_init(&t, 70000);
    for (uint32_t row = 0; row < t.n; row++) {
        snprintf(json, sizeof json, "{\"few\":%d,\"many\":%u,\"part\":%u%s,\"large\":%s%u,\"yes\":%s}",
                 (int)(row % 50) - 20, row, row % 9, row == 60000 ? ".5" : "", row == 60000 ? "1e300" : "", row % 9,
                 row % 2 ? "true" : "false");
        support_table_put(&t, row, NULL, 0, json);
    }
    struct columns *columns = write_and_open(&t, UINT64_MAX, s->path);
    for (size_t i = 0; i < SUPPORT_COUNT(cases); i++)
        assert_int_equal(check(&t, columns, cases[i]), 0);
    assert_true(whole_max_of(columns, "few") == 29);
    assert_true(whole_max_of(columns, "many") == t.n - 1);
    assert_true(whole_max_of(columns, "part") == 0);
    assert_true(whole_max_of(columns, "large") > 1e299);
    assert_true(whole_max_of(columns, "yes") == 1);
    columns_close(columns);
    support_table_fini(&t);
}

/* Values that were left out of a column: its rows may match, the others are known. */
static void rows_of_values_left_out_may_match(void **state)
{
    struct support_columns *s = *state;
    struct support_table t;
    char json[128];
    support_table_init(&t, 20000);
    for (uint32_t row = 0; row < t.n; row++) {
        snprintf(json, sizeof json, row % 4 ? "{\"n\":%u,\"many\":%u}" : "{\"n\":%u,\"many\":\"a text of row %u\"}",
                 row % 7, row);
        support_table_put(&t, row, NULL, 0, json);
    }
    struct columns *columns = write_and_open(&t, 150000, s->path);
    const struct column *many = columns_find(columns, "many", 4);
    assert_non_null(many);
    const struct column_table *texts = &many->tables[TABLE_TEXTS], *numbers = &many->tables[TABLE_NUMBERS];
    assert_true(numbers->n == 0 && numbers->rows.n == t.n - t.n / 4 && texts->n == t.n / 4);
    assert_true(check(&t, columns, ".n > .many") > 0);
    assert_true(check(&t, columns, "not (.n * 2 + 1 < .many)") > 0);
    check(&t, columns, ".n == 3 and .n + .many > 15000");
    columns_close(columns);
    support_table_fini(&t);
}

/* What is kept by rows stays within its bounds, and answers are the same whether it was kept or not. */
static void what_is_kept_is_bounded(void **state)
{
    struct support_columns *s = *state;
    struct support_table t;
    enum { BYTES = 500000 };
    char text[64], json[512];
    support_table_init(&t, 70000);
    for (uint32_t row = 0; row < t.n; row++) {
        int at = snprintf(json, sizeof json, "{");
        for (uint32_t f = 0; f < 20; f++)
            at +=
                snprintf(json + at, sizeof json - (size_t)at, "%s\"f%u\":%u", f ? "," : "", f, (row * (f + 7)) % 1000);
        snprintf(json + at, sizeof json - (size_t)at, ",\"own\":%u}", row);
        support_table_put(&t, row, NULL, 0, json);
    }
    struct columns *columns = write_and_open(&t, UINT64_MAX, s->path);
    uint64_t most = 0;
    column_rows_keep_destroy(columns->kept);
    columns->kept = column_rows_keep_create(BYTES);
    assert_non_null(columns->kept);
    assert_int_equal(columns_kept_bytes(columns), 0);
    for (uint32_t round = 0; round < 2; round++)
        for (uint32_t f = 0; f < 20; f++) {
            snprintf(text, sizeof text, ".f%u + .own > %u", f, round * 30000);
            assert_int_equal(check(&t, columns, text), 0);
            most = columns_kept_bytes(columns) > most ? columns_kept_bytes(columns) : most;
        }
    assert_in_range(most, BYTES - 2 * t.n - 20000, BYTES); /* three short columns; the long one is too large */
    columns_close(columns);
    support_table_fini(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(many_values_are_exact, support_columns_set_up, support_columns_tear_down),
        cmocka_unit_test_setup_teardown(whole_numbers_are_known, support_columns_set_up, support_columns_tear_down),
        cmocka_unit_test_setup_teardown(rows_of_values_left_out_may_match, support_columns_set_up,
                                        support_columns_tear_down),
        cmocka_unit_test_setup_teardown(what_is_kept_is_bounded, support_columns_set_up, support_columns_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
