/*
 * test_pipeline_memory.c - FT.AGGREGATE without memory: each allocation fails once, and the command says so, holding
 * nothing.
 *
 * The program's own malloc, calloc and realloc fail when they are told to, and pass on to glibc's. Sanitizers bring
 * their own allocators: there nothing fails, and what is left is that the commands succeed.
 */
#include "tests/document/support_pipeline.h"
#include "tests/sanitized.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
// clang-format off
#include <cmocka.h>
// clang-format on

static long fail_after = -1; /* allocations that still succeed; negative: all */

#if !SANITIZED
static bool may_allocate(void)
{
    return fail_after < 0 || fail_after-- > 0;
}

#include "tests/allocator.h"
#endif

static const char *const documents[] = {"1;name;Ann;age;30;town;Bonn;other;x", "2;name;bob;age;25;town;Ulm",
                                        "3;name;Cid;age;30;town;Bonn", NULL};

static const char *const commands[] = {
    "LOAD;*;APPLY;format('%s!', @name);AS;n;SORTBY;2;@n;DESC;MAX;3",
    ("LOAD;5;name;town;AS;t;__key;GROUPBY;1;@t;REDUCE;TOLIST;1;@name;AS;l;REDUCE;COUNT_DISTINCT;1;name;AS;d;REDUCE;"
     "QUANTILE;2;age;0.5;AS;q;REDUCE;FIRST_VALUE;3;name;BY;@age;AS;f;REDUCE;RANDOM_SAMPLE;2;name;3;REDUCE;STDDEV;1;age;"
     "SORTBY;1;@q;PARAMS;2;a;b"),
    ("APPLY;split('a,b,c');AS;l;APPLY;upper(@name);AS;u;GROUPBY;2;@l;@u;REDUCE;COUNT;0;AS;n;FILTER;@n > 0 && "
     "exists(@u);SORTBY;2;@n;@u"),
};

static void test_each_allocation(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        struct support_table table = {.schema = "SCHEMA;name;TEXT;SORTABLE;age;NUMERIC;town;TAG",
                                      .documents = documents};
        char expected[4096];
        long n = 0;
        snprintf(expected, sizeof expected, "%s", support_aggregate(&table, commands[i]));
        assert_true(expected[0] != '!');
        for (;; n++) {
            fail_after = n;
            const char *answer = support_aggregate(&table, commands[i]);
            fail_after = -1;
            if (strcmp(answer, expected) == 0)
                break;
            if (!strstr(answer, "memory"))
                fail_msg("allocation %ld: %s", n, answer);
        }
        assert_true(SANITIZED || n > 40);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_each_allocation)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
