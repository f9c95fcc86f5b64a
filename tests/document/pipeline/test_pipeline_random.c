/*
 * test_pipeline_random.c - SORTBY and GROUPBY of random rows beside a plain sort and plain loops.
 *
 * Values are numbers, texts and nothing; the sort is by two fields in random directions, cut at random places, in
 * slices of random size. What comes out must be the same rows in the same order.
 */
#include "io/random.h"
#include "tests/document/support_pipeline.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
// clang-format off
#include <cmocka.h>
// clang-format on

enum { N = 60, NOTHING = -1 };

struct row {
    int number, text, id; /* text: a letter; NOTHING: the document has none */
};

static bool number_descends, text_descends;

static int order_of(int a, int b, bool descends)
{
    if (a == NOTHING || b == NOTHING)
        return (a == NOTHING) - (b == NOTHING);
    return descends ? b - a : a - b;
}

static int in_order(const void *x, const void *y)
{
    const struct row *a = x, *b = y;
    int order = order_of(a->number, b->number, number_descends);
    if (order == 0)
        order = order_of(a->text, b->text, text_descends);
    return order ? order : text_descends ? b->id - a->id : a->id - b->id;
}

static char texts[N][64];
static const char *documents[N + 1];
static struct row rows[N];

static void make_rows(struct random *random)
{
    for (int i = 0; i < N; i++) {
        rows[i] = (struct row){(int)random_below(random, 7) - 1, (int)random_below(random, 5) - 1, i};
        int n = snprintf(texts[i], sizeof texts[i], "%d", i);
        if (rows[i].number != NOTHING)
            n += snprintf(texts[i] + n, sizeof texts[i] - (size_t)n, ";n;%d", rows[i].number);
        if (rows[i].text != NOTHING)
            snprintf(texts[i] + n, sizeof texts[i] - (size_t)n, ";t;%c", 'a' + rows[i].text);
        documents[i] = texts[i];
    }
}

static void test_sort(void **state)
{
    struct random random;
    (void)state;
    random_init(&random, 5);
    for (int round = 0; round < 300; round++) {
        char words[128], expected[4096] = "";
        size_t at = 0, offset = random_below(&random, 10), limit = 1 + random_below(&random, N);
        struct support_table table = {.schema = "SCHEMA;n;NUMERIC;t;TAG", .documents = documents};
        table.budget = (uint32_t)(1 + random_below(&random, 20));
        make_rows(&random);
        number_descends = random_below(&random, 2);
        text_descends = random_below(&random, 2);
        snprintf(words, sizeof words, "LOAD;1;__key;SORTBY;4;@n;%s;@t;%s;LIMIT;%zu;%zu;GROUPBY;1;@__key",
                 number_descends ? "DESC" : "ASC", text_descends ? "DESC" : "ASC", offset, limit);
        qsort(rows, N, sizeof rows[0], in_order);
        for (size_t i = offset; i < offset + limit && i < N; i++)
            at +=
                (size_t)snprintf(expected + at, sizeof expected - at, "%s__key=%d", i > offset ? "; " : "", rows[i].id);
        assert_string_equal(support_aggregate(&table, words), expected);
    }
}

static void test_group(void **state)
{
    struct random random;
    (void)state;
    random_init(&random, 6);
    for (int round = 0; round < 100; round++) {
        char expected[4096] = "";
        size_t at = 0;
        struct support_table table = {.schema = "SCHEMA;n;NUMERIC;t;TAG", .documents = documents};
        table.budget = (uint32_t)(1 + random_below(&random, 20));
        make_rows(&random);
        for (int i = 0; i < N; i++) { /* groups in the order of their first rows */
            int count = 0, sum = 0, seen = 0;
            for (int j = 0; j < N; j++)
                if (rows[j].text == rows[i].text) {
                    seen += j < i;
                    count++;
                    sum += rows[j].number > 0 ? rows[j].number : 0;
                }
            if (seen > 0)
                continue;
            char name[5] = {(char)('a' + rows[i].text)};
            at += (size_t)snprintf(expected + at, sizeof expected - at, "%st=%s c=%d s=%d", at ? "; " : "",
                                   rows[i].text == NOTHING ? "NULL" : name, count, sum);
        }
        assert_string_equal(support_aggregate(&table, "GROUPBY;1;@t;REDUCE;COUNT;0;AS;c;REDUCE;SUM;1;@n;AS;s"),
                            expected);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sort), cmocka_unit_test(test_group)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
