/*
 * test_pipeline.c - FT.AGGREGATE over a few documents: each step, their order, fields that are loaded by themselves,
 * pauses, limits. Rows were worked out by hand.
 */
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

static const char *const people[] = {"p:1;name;Ann;age;30;town;Bonn;tall;1.7", "p:2;name;bob;age;25;town;Ulm",
                                     "p:3;name;Cid;age;30;town;Bonn;x y;1", "p:4;name;dan;age;4;tall;1.9", NULL};
static const char people_schema[] =
    "PREFIX;1;p:;SCHEMA;name;TEXT;SORTABLE;age;NUMERIC;town;TAG;tall;AS;height;NUMERIC;SORTABLE;code;TAG;SORTABLE;UNF";

static struct support_table people_table(void)
{
    return (struct support_table){.schema = people_schema, .documents = people};
}

struct example {
    const char *words, *gives;
};

static void check(const struct example *examples, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct support_table whole = people_table(), slices = people_table();
        const char *answer = support_aggregate(&whole, examples[i].words);
        if (strcmp(answer, examples[i].gives) != 0)
            fail_msg("%s gives\n%s, not\n%s", examples[i].words, answer, examples[i].gives);
        slices.budget = 1;
        answer = support_aggregate(&slices, examples[i].words);
        if (strcmp(answer, examples[i].gives) != 0)
            fail_msg("in slices %s gives\n%s, not\n%s", examples[i].words, answer, examples[i].gives);
    }
}
#define CHECK(examples) check(examples, sizeof(examples) / sizeof(examples)[0])

static void test_load(void **state)
{
    static const struct example examples[] = {
        {"LOAD;1;@name", "name=Ann; name=bob; name=Cid; name=dan"},
        {"load;2;age;__key", "age=30 __key=p:1; age=25 __key=p:2; age=30 __key=p:3; age=4 __key=p:4"},
        {"LOAD;4;@age;AS;years;name;LIMIT;0;2", "years=30 name=Ann; years=25 name=bob"},
        {"LOAD;1;@height;LIMIT;0;1", "height=1.7"}, /* by its alias */
        {"LOAD;1;tall;LIMIT;0;1", "tall=1.7"},      /* by its identifier */
        {"LOAD;1;@x y", "; ; x y=1; "},             /* in no schema; not in all documents */
        {"LOAD;1;nothing;LIMIT;0;1", ""},
        {"LOAD;0;LIMIT;0;1", ""},
        {"LOAD;*;LIMIT;0;2", "name=Ann age=30 town=Bonn tall=1.7; name=bob age=25 town=Ulm"},
        {"LOAD;*;FILTER;@age < 10;LOAD;1;__key", "age=4 __key=p:4 name=dan tall=1.9"},
        {"LOAD;*;APPLY;@age + 1;AS;n;LIMIT;0;1", "age=30 n=31 name=Ann town=Bonn tall=1.7"},
        {"LOAD;*;APPLY;@height;AS;h;FILTER;@h > 1.8", "! Could not find the value for a parameter name, consider using "
                                                      "EXISTS if applicable for height (APPLY at position 5)"},
        {"LOAD;*;FILTER;exists(@height);APPLY;@height;AS;h;FILTER;@h > 1.8",
         "height=1.9 h=1.9 name=dan age=4 tall=1.9"},
    };
    (void)state;
    CHECK(examples);
}

static void test_apply_and_filter(void **state)
{
    static const struct example examples[] = {
        {"LOAD;1;age;APPLY;@age * 2;AS;twice;LIMIT;0;1", "age=30 twice=60"},
        {"LOAD;1;age;APPLY;@age * 2;LIMIT;0;1", "age=30 @age * 2=60"},
        {"LOAD;1;age;APPLY;@age * 2;AS;age;LIMIT;0;1", "age=60"},
        {"LOAD;1;age;APPLY;@age + 1;AS;a;APPLY;@a + 1;AS;b;LIMIT;0;1", "age=30 a=31 b=32"},
        {"LOAD;1;age;FILTER;@age == 30", "age=30; age=30"},
        {"LOAD;2;age;town;FILTER;exists(@town) && @town == 'Ulm'", "age=25 town=Ulm"},
        {"LOAD;1;name;FILTER;0", ""},
        {"FILTER;1;LIMIT;0;2", "; "},
        {"APPLY;upper(@name);AS;n;LIMIT;0;1", "name=ann n=ANN"}, /* SORTABLE: in lower case unless loaded */
        {"LOAD;1;name;APPLY;lower(@name);AS;n;LIMIT;0;1", "name=Ann n=ann"},
        {"APPLY;@age;AS;n", "! Property `age` not loaded nor in pipeline (APPLY at position 3): LOAD it before"},
        {"FILTER;@age > 1;LOAD;1;age",
         "! Property `age` not loaded nor in pipeline (FILTER at position 3): LOAD it before"},
        {"LOAD;1;town;APPLY;strlen(@town);AS;n",
         "! Could not find the value for a parameter name, consider using EXISTS if "
         "applicable for town (APPLY at position 6)"},
        {"LOAD;1;age;APPLY;@age +;AS;n",
         "! Syntax error at offset 6: the expression ends where a value should be (APPLY at position 6)"},
    };
    (void)state;
    CHECK(examples);
}

static void test_group(void **state)
{
    static const struct example examples[] = {
        {"GROUPBY;1;@age;REDUCE;COUNT;0;AS;n", "age=30 n=2; age=25 n=1; age=4 n=1"},
        {"GROUPBY;1;@town;REDUCE;SUM;1;age;AS;s;REDUCE;AVG;1;@age;AS;a",
         "town=Bonn s=60 a=30; town=Ulm s=25 a=25; town=NULL s=4 a=4"},
        {"GROUPBY;0;REDUCE;MIN;1;age;REDUCE;MAX;1;@age", "__generated_aliasminage=4 __generated_aliasmaxage=30"},
        {"GROUPBY;2;@town;@age", "town=Bonn age=30; town=Ulm age=25; town=NULL age=4"},
        {"GROUPBY;1;@town;REDUCE;TOLIST;1;@age;AS;l", "town=Bonn l=[30]; town=Ulm l=[25]; town=NULL l=[4]"},
        {"LOAD;1;name;GROUPBY;1;@town;REDUCE;TOLIST;1;name;AS;l",
         "town=Bonn l=[Ann,Cid]; town=Ulm l=[bob]; town=NULL l=[dan]"},
        {"GROUPBY;1;@name;LIMIT;0;1", "name=ann"},
        {"GROUPBY;0;REDUCE;COUNT_DISTINCT;1;age;AS;d;REDUCE;COUNT_DISTINCTISH;1;age;AS;i", "d=3 i=3"},
        {"GROUPBY;0;REDUCE;STDDEV;1;height;AS;d", "d=0.141421356237"},
        {"GROUPBY;0;REDUCE;QUANTILE;2;age;0.5;AS;q;REDUCE;QUANTILE;2;age;0;AS;l;REDUCE;QUANTILE;2;age;1;AS;h",
         "q=25 l=4 h=30"},
        {"LOAD;1;name;GROUPBY;0;REDUCE;FIRST_VALUE;1;name;AS;a;REDUCE;FIRST_VALUE;3;name;BY;@age;AS;b;REDUCE;"
         "FIRST_VALUE;4;@name;BY;age;DESC;AS;c",
         "a=Ann b=dan c=Ann"},
        {"LOAD;1;name;GROUPBY;0;REDUCE;FIRST_VALUE;4;name;BY;height;ASC;AS;a;REDUCE;FIRST_VALUE;4;name;by;height;desc;"
         "AS;"
         "b",
         "a=Ann b=dan"},
        {"GROUPBY;1;@town;REDUCE;FIRST_VALUE;1;height;AS;h", "town=Bonn h=1.7; town=Ulm h=NULL; town=NULL h=1.9"},
        {"GROUPBY;0;REDUCE;RANDOM_SAMPLE;2;age;10;AS;r", "r=[30,25,30,4]"},
        {"GROUPBY;0;REDUCE;RANDOM_SAMPLE;2;age;0;AS;r", "r=[]"},
        {"GROUPBY;0;REDUCE;SUM;1;town;AS;s;REDUCE;MIN;1;town;AS;l;REDUCE;MAX;1;town;AS;h;REDUCE;AVG;1;town;AS;a",
         "s=nan l=inf h=-inf a=nan"},
        {"LOAD;1;name;APPLY;split('b,a,b');AS;l;GROUPBY;1;@l;REDUCE;COUNT;0;AS;n", "l=b n=8; l=a n=4"},
        {"APPLY;split('');AS;l;GROUPBY;1;@l;REDUCE;COUNT;0;AS;n", "l=NULL n=4"},
        {"APPLY;split('a,b');AS;l;APPLY;split('c,d');AS;m;GROUPBY;2;@l;@m;REDUCE;COUNT;0;AS;n",
         "l=a m=c n=4; l=a m=d n=4; l=b m=c n=4; l=b m=d n=4"},
        {"APPLY;split('a,b');AS;l;GROUPBY;0;REDUCE;TOLIST;1;l;AS;m", "m=[a,b]"},
        {"GROUPBY;1;@age;REDUCE;COUNT;0;AS;n;FILTER;@n == 1;APPLY;@age + @n;AS;m", "age=25 n=1 m=26; age=4 n=1 m=5"},
        {"GROUPBY;1;@age;REDUCE;COUNT;0;AS;n;GROUPBY;1;@n;REDUCE;TOLIST;1;age;AS;a", "n=2 a=[30]; n=1 a=[25,4]"},
        {"FILTER;0;GROUPBY;0;REDUCE;COUNT;0;AS;n", ""},
        {"GROUPBY;1;@nothing", "! No such property `nothing` (GROUPBY at position 3): LOAD it before"},
        {"GROUPBY;1;@age;GROUPBY;1;@town", "! No such property `town` (GROUPBY at position 6): LOAD it before"},
        {"GROUPBY;1;@age;REDUCE;SUM;1;nothing",
         "! Property `nothing` not loaded nor in pipeline (REDUCE of GROUPBY at position 3): LOAD it before"},
        {"GROUPBY;1;@age;APPLY;@town;AS;t",
         "! Property `town` not loaded nor in pipeline (APPLY at position 6): LOAD it before"},
        {"GROUPBY;1;@age;LOAD;1;town",
         "! LOAD cannot be applied after projectors or reducers: behind GROUPBY there are no "
         "documents (position 6)"},
        {"GROUPBY;2;@age;@age", "! Property `age` specified more than once (GROUPBY at position 3)"},
        {"GROUPBY;1;@age;REDUCE;COUNT;0;AS;age", "! Property `age` specified more than once (GROUPBY at position 3)"},
    };
    (void)state;
    CHECK(examples);
}

static void test_sort(void **state)
{
    static const struct example examples[] = {
        {"SORTBY;1;@age", "age=4; age=25; age=30; age=30"},
        {"LOAD;1;name;SORTBY;2;@age;DESC", "name=Cid age=30; name=Ann age=30; name=bob age=25; name=dan age=4"},
        {"LOAD;1;name;SORTBY;3;@age;DESC;@name", "name=Ann age=30; name=Cid age=30; name=bob age=25; name=dan age=4"},
        {"LOAD;1;__key;SORTBY;1;@name",
         "__key=p:1 name=ann; __key=p:2 name=bob; __key=p:3 name=cid; __key=p:4 name=dan"},
        {"LOAD;1;name;SORTBY;1;@name", "name=Ann; name=Cid; name=bob; name=dan"}, /* as loaded: by bytes */
        {"SORTBY;1;@height", "height=1.7; height=1.9; ; "},
        {"SORTBY;2;@height;DESC", "height=1.9; height=1.7; ; "},
        {"SORTBY;1;@age;LIMIT;1;2", "age=25; age=30"},
        {"LIMIT;1;2;SORTBY;1;@age", "age=25; age=30"},
        {"SORTBY;1;@age;MAX;2", "age=4; age=25"},
        {"SORTBY;1;@age;MAX;2;LIMIT;0;3", "age=4; age=25; age=30"},
        {"SORTBY;1;@age;LIMIT;9;2", ""},
        {"SORTBY;1;@age;LIMIT;0;0", ""},
        {"SORTBY;1;@age;FILTER;1;LIMIT;1;1", "age=25"},
        {"SORTBY;1;@age;FILTER;1;SORTBY;2;@age;DESC;LIMIT;0;1", "age=30"},
        {"LIMIT;1;2;FILTER;1;SORTBY;1;@age", "age=25; age=30"},
        {"LIMIT;0;0", ""},
        {"GROUPBY;1;@town;REDUCE;COUNT;0;AS;n;SORTBY;2;@n;DESC;MAX;1", "town=Bonn n=2"},
        {"SORTBY;2;@age;DESC;MAX;2;LOAD;1;name;FILTER;@name != 'x'", "age=30 name=Cid; age=30 name=Ann"},
        {"SORTBY;1;@nothing", "! Property `nothing` not loaded nor in schema (SORTBY at position 3): LOAD it before"},
        {"SORTBY;1;@__key", "! Property `__key` not loaded nor in schema (SORTBY at position 3): LOAD it before"},
    };
    (void)state;
    CHECK(examples);
}

static void test_ten_by_default(void **state)
{
    static const char *const documents[] = {"1;n;1", "2;n;2", "3;n;3",   "4;n;4",   "5;n;5",   "6;n;6", "7;n;7",
                                            "8;n;8", "9;n;9", "10;n;10", "11;n;11", "12;n;12", NULL};
    struct support_table table = {.schema = "SCHEMA;n;NUMERIC", .documents = documents};
    (void)state;
    assert_string_equal(support_aggregate(&table, "SORTBY;2;@n;DESC"),
                        "n=12; n=11; n=10; n=9; n=8; n=7; n=6; n=5; n=4; n=3");
    assert_int_equal(table.total, 12);
    assert_string_equal(support_aggregate(&table, "LOAD;1;n;FILTER;@n > 1"),
                        "n=2; n=3; n=4; n=5; n=6; n=7; n=8; n=9; n=10; n=11; n=12");
    assert_string_equal(support_aggregate(&table, "LOAD;1;n;LIMIT;0;0"), "");
    assert_int_equal(table.total, 12);
    assert_string_equal(support_aggregate(&table, "GROUPBY;0;REDUCE;COUNT;0;AS;n"), "n=12");
    assert_int_equal(table.total, 1);
}

/* What the query gives: distances and scores. */
static void test_given(void **state)
{
    struct support_table table = people_table();
    (void)state;
    table.yields = "near;far";
    assert_string_equal(support_aggregate(&table, "LIMIT;0;2"), "near=0 far=0.1; near=1 far=1.1");
    assert_string_equal(support_aggregate(&table, "ADDSCORES;LIMIT;0;1"), "near=0 far=0.1 __score=1");
    assert_string_equal(support_aggregate(&table, "ADDSCORES;APPLY;@__score * 2 - @near;AS;s;SORTBY;2;@s;DESC;MAX;1"),
                        "near=3 far=3.1 __score=4 s=5");
    assert_string_equal(support_aggregate(&table, "LOAD;2;@near;__key;LIMIT;0;1"), "near=0 far=0.1 __key=p:1");
    assert_string_equal(support_aggregate(&table, "APPLY;@__score;AS;s"),
                        "! Property `__score` not loaded nor in pipeline (APPLY at position 3): LOAD it before");
    assert_string_equal(support_aggregate(&table, "APPLY;matched_terms();AS;t;LIMIT;0;1"), "near=0 far=0.1 t=[term]");
    assert_string_equal(support_aggregate(&table, "GROUPBY;0;APPLY;matched_terms();AS;t"), "t=NULL");
}

/* Documents that are gone when they are loaded leave no row, in any step. */
static void test_gone(void **state)
{
    struct support_table table = people_table();
    (void)state;
    table.gone = 1 << 1 | 1 << 3;
    assert_string_equal(support_aggregate(&table, "LOAD;1;name"), "name=Ann; name=Cid");
    assert_int_equal(table.total, 2);
    assert_string_equal(support_aggregate(&table, "LOAD;*;LIMIT;1;1"), "name=Cid age=30 town=Bonn x y=1");
    assert_string_equal(support_aggregate(&table, "SORTBY;2;@age;DESC"), "age=30; age=30");
    assert_string_equal(support_aggregate(&table, "GROUPBY;1;@age;REDUCE;COUNT;0;AS;n"), "age=30 n=2");
    table.yields = "near";
    assert_string_equal(support_aggregate(&table, "SORTBY;1;@near"), "near=0; near=2");
    table.gone = 15;
    assert_string_equal(support_aggregate(&table, "GROUPBY;0;REDUCE;COUNT;0;AS;n"), "");
}

static void test_json(void **state)
{
    static const char *const documents[] = {"1;$;{\"a\":1};$.a;1;$.b.c;x", "2;$;{\"a\":2};$.a;2", NULL};
    struct support_table table = {.schema = "ON;JSON;SCHEMA;$.a;AS;a;NUMERIC", .documents = documents};
    (void)state;
    assert_string_equal(support_aggregate(&table, "LOAD;4;a;$.b.c;AS;c"), "a=1 c=x; a=2");
    assert_string_equal(support_aggregate(&table, "LOAD;1;$.a"), "$.a=1; $.a=2");
    assert_string_equal(support_aggregate(&table, "GROUPBY;0;REDUCE;SUM;1;@a;AS;s"), "s=3");
    assert_string_equal(support_aggregate(&table, "LOAD;*;APPLY;@a;AS;b"),
                        "! Property `a` not loaded nor in pipeline (APPLY at position 5): LOAD it before");
}

static void test_pauses(void **state)
{
    struct support_table table = people_table();
    (void)state;
    table.budget = 1;
    assert_string_equal(support_aggregate(&table, "SORTBY;1;@age;LIMIT;3;1"), "age=30");
    assert_true(table.paused >= 8); /* four documents in, three rows left out */
    assert_string_equal(support_aggregate(&table, "LOAD;1;age;FILTER;@age < 5"), "age=4");
    assert_true(table.paused >= 3);
    assert_string_equal(support_aggregate(&table, "GROUPBY;1;@age;FILTER;@age < 5"), "age=4");
    assert_true(table.paused >= 6);
}

static void test_limits(void **state)
{
    struct support_table table = people_table();
    char documents[2][16000], words[400];
    const char *wide[3] = {documents[0], documents[1], NULL};
    (void)state;
    table.limits.rows_max = 3;
    assert_string_equal(
        support_aggregate(&table, "SORTBY;1;@age"),
        "! SORTBY at position 3 keeps 3 rows at most: narrow the query, or ask for fewer by LIMIT or MAX");
    assert_string_equal(support_aggregate(&table, "SORTBY;1;@age;MAX;3"), "age=4; age=25; age=30");
    assert_string_equal(support_aggregate(&table, "GROUPBY;1;@name"),
                        "! GROUPBY at position 3 makes 3 groups at most: narrow the query, or group by fewer fields");
    assert_string_equal(support_aggregate(&table, "GROUPBY;1;@age"), "age=30; age=25; age=4");
    assert_string_equal(support_aggregate(&table, "APPLY;split('a,b');AS;l;GROUPBY;2;@l;@l"),
                        "! Property `l` specified more than once (GROUPBY at position 7)");
    assert_string_equal(
        support_aggregate(&table, "APPLY;split('a,b');AS;l;APPLY;@l;AS;m;GROUPBY;2;@l;@m"),
        "! GROUPBY at position 11: a row's arrays have more than 3 combinations; group by fewer of them");
    for (int d = 0; d < 2; d++) {
        int n = snprintf(documents[d], sizeof documents[d], "%d", d);
        for (int i = 0; i < 250; i++)
            n += snprintf(documents[d] + n, sizeof documents[d] - (size_t)n, ";field%d.%d;%d", d, i, i);
    }
    table = (struct support_table){.schema = "SCHEMA;a;TAG", .documents = wide};
    assert_null(strchr(support_aggregate(&table, "LOAD;*"), '!'));
    snprintf(words, sizeof words, "APPLY;1;AS;%s;", "x");
    char many[4096] = "";
    for (int i = 0; i < 65; i++)
        strcat(many, words);
    assert_string_equal(support_aggregate(&table, many),
                        "! FT.AGGREGATE has 64 steps at most: 'APPLY' at position 259 is one more");
}

/* A run that is given too little memory says so, and holds nothing afterwards (asserted when it ends). */
static void test_too_little_memory(void **state)
{
    static const char *const commands[] = {
        "LOAD;*;APPLY;format('%s!', @name);AS;n;SORTBY;2;@n;DESC;MAX;3",
        ("LOAD;1;name;GROUPBY;1;@town;REDUCE;TOLIST;1;@name;AS;l;REDUCE;COUNT_DISTINCT;1;name;AS;d;REDUCE;QUANTILE;2;"
         "age;0.5;AS;q;REDUCE;FIRST_VALUE;3;name;BY;@age;AS;f;REDUCE;RANDOM_SAMPLE;2;name;3;AS;r;SORTBY;1;@q"),
        "APPLY;split('a,b,c');AS;l;APPLY;upper(@name);AS;u;GROUPBY;2;@l;@u;REDUCE;COUNT;0;AS;n;SORTBY;2;@n;@u"};
    (void)state;
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        struct support_table table = people_table();
        uint32_t failed = 0;
        char expected[2048];
        snprintf(expected, sizeof expected, "%s", support_aggregate(&table, commands[i]));
        for (table.limits.bytes_max = 8;; table.limits.bytes_max += 24) {
            const char *answer = support_aggregate(&table, commands[i]);
            if (strcmp(answer, expected) == 0)
                break;
            if (!strstr(answer, "more than") || !strstr(answer, "bytes"))
                fail_msg("%llu bytes: %s", (unsigned long long)table.limits.bytes_max, answer);
            failed++;
        }
        assert_true(failed > 20);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_load),
        cmocka_unit_test(test_apply_and_filter),
        cmocka_unit_test(test_group),
        cmocka_unit_test(test_sort),
        cmocka_unit_test(test_ten_by_default),
        cmocka_unit_test(test_given),
        cmocka_unit_test(test_gone),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_pauses),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_too_little_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
