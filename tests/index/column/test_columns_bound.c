/*
 * test_columns_bound.c - comparisons of sums over several fields: what columns leave is what filter_matches says of
 * each row, whether a bound narrows the rows or not.
 */
#include "index/column/columns.h"
#include "io/random.h"
#include "tests/index/support_columns.h"
#include "tests/index/support_index.h"
#include <roaring/roaring.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static const uint8_t segment_id[16] = "bounds of column";

static struct filter *compile(const char *text)
{
    struct filter *filter = NULL;
    struct quire_error err = {0};
    if (filter_compile(text, strlen(text), NULL, &filter, &err) < 0)
        fail_msg("%s: %s", text, err.message);
    return filter;
}

static void check_select(const struct support_table *t, const struct columns *columns, const struct filter *filter)
{
    roaring_bitmap_t *rows = NULL;
    bool residual = true;
    uint32_t bytes;
    const char *text = filter_text(filter, &bytes);
    assert_int_equal(columns_select(columns, filter, NULL, NULL, &rows, &residual), 0);
    assert_false(residual);
    for (uint32_t row = 0; row < t->n; row++)
        if (roaring_bitmap_contains(rows, row) != filter_matches(filter, t->texts[row], t->bytes[row], "", 0))
            fail_msg("%.*s: row %u (%.*s)", (int)bytes, text, row, (int)t->bytes[row], t->texts[row]);
    roaring_bitmap_free(rows);
}

/* A sum of some of the fields, each once, and constants. */
static void put_sum(struct random *r, FILE *to, const char **names, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        fprintf(to, "%s.%s", i == 0 ? "" : random_below(r, 2) ? " + " : " - ", names[i]);
    if (n == 0 || random_below(r, 2))
        fprintf(to, "%s%.3f", n == 0 ? "" : random_below(r, 2) ? " + " : " - ", (double)random_below(r, 900) / 2);
}

static struct filter *random_sums(struct random *r)
{
    static const char *const compares[] = {"<", "<=", ">", ">="}, *const all[] = {"a", "b", "x", "flag", "zero"};
    const char *names[SUPPORT_COUNT(all)];
    char *text = NULL;
    size_t bytes;
    FILE *to = open_memstream(&text, &bytes);
    uint32_t first = (uint32_t)random_below(r, SUPPORT_COUNT(all)), n = 2 + (uint32_t)random_below(r, 3);
    for (uint32_t i = 0; i < n; i++)
        names[i] = all[(first + i) % SUPPORT_COUNT(all)];
    uint32_t left = (uint32_t)random_below(r, n + 1);
    put_sum(r, to, names, left);
    fprintf(to, " %s ", compares[random_below(r, 4)]);
    put_sum(r, to, names + left, n - left);
    if (random_below(r, 4) == 0)
        fprintf(to, " %s .a < 150", random_below(r, 2) ? "and" : "or");
    fclose(to);
    struct filter *filter = compile(text);
    free(text);
    return filter;
}

/* What bounds leave is what matches row by row: fields that are numbers in every row, narrowed or not. */
static void test_bounded_sums(void **state)
{
    static const char *const texts[] = {".a + .b > 395",
                                        ".a + .b >= 397",
                                        ".a + .b > 400",
                                        ".a - .b < -196",
                                        "395 < .a + .b",
                                        ".huge + .a > .b",
                                        ".gap + .a > 199",
                                        ".a + .a > 395",
                                        ".a * .b > 39000",
                                        "not (.a + .b <= 395)",
                                        ".a + .b > 393 and .x > 1",
                                        ".a + .b + .zero > 395",
                                        ".x + .a <= .b - 390.5"};
    struct support_columns *s = *state;
    struct support_table t;
    struct random r;
    char json[240];
    support_table_init(&t, 6000);
    random_init(&r, 31);
    for (uint32_t row = 0; row < t.n; row++) {
        uint32_t least = row % 100 == 0 ? 196 : 0; /* some have the largest of both */
        uint32_t a = least + (uint32_t)random_below(&r, 200 - least),
                 b = least + (uint32_t)random_below(&r, 200 - least);
        snprintf(json, sizeof json, "{\"a\":%u,\"b\":%u,\"x\":%.17g,\"flag\":%s,\"zero\":%s,\"huge\":%s%s}", a, b,
                 ((double)random_below(&r, 1u << 30) - (1u << 29)) / 2e6, row % 3 ? "true" : "false",
                 row % 2 ? "0" : "-0", row % 500 ? "1e307" : "-1e308", row == 77 ? "" : ",\"gap\":1");
        support_table_put(&t, row, NULL, 0, json);
    }
    bool written = false;
    struct columns *columns = NULL;
    int rc =
        columns_write(fs_real(), s->path, segment_id, t.n, NULL, UINT64_MAX, support_table_give, &t, &written, NULL);
    assert_int_equal(rc, 0);
    assert_true(written);
    assert_int_equal(columns_open(fs_real(), s->path, segment_id, t.n, &columns, NULL), 0);
    for (size_t i = 0; i < SUPPORT_COUNT(texts) + 300; i++) {
        struct filter *filter = i < SUPPORT_COUNT(texts) ? compile(texts[i]) : random_sums(&r);
        check_select(&t, columns, filter);
        filter_unref(filter);
    }
    columns_close(columns);
    support_table_fini(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_bounded_sums, support_columns_set_up, support_columns_tear_down)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
