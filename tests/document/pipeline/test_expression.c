/*
 * test_expression.c - expressions: every operator and function, what is refused and where, limits.
 *
 * Each is a table of texts and what they give, worked out by hand; the recorded answers of RediSearch are in
 * test_pipeline_answers.
 */
#include "document/pipeline/expression.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
// clang-format off
#include <cmocka.h>
// clang-format on

static struct datum_pool pool;

static void print(const struct datum *datum, char *text, size_t room)
{
    char number[DATUM_PRINT_MAX];
    size_t n = strlen(text);
    if (datum->kind == DATUM_NULL) {
        snprintf(text + n, room - n, "NULL");
    } else if (datum->kind == DATUM_NUMBER) {
        datum_print(datum->number, number);
        snprintf(text + n, room - n, "%s", number);
    } else if (datum->kind == DATUM_STRING) {
        snprintf(text + n, room - n, "'%s'", datum_text(datum));
    } else {
        snprintf(text + n, room - n, "[");
        for (uint32_t i = 0; i < datum->n; i++) {
            print(datum_items(datum)[i], text, room);
            n = strlen(text);
            snprintf(text + n, room - n, "%s", i + 1 < datum->n ? "," : "");
        }
        n = strlen(text);
        snprintf(text + n, room - n, "]");
    }
}

/* The row: @n is 3, @s is "ten", @f is "2.5", @z is null, @l is an array; @none has no value. */
static const char *const names[] = {"n", "s", "f", "z", "l", "none", "a b", "x.y"};

static struct datum *value_of(uint32_t i)
{
    struct datum *list;
    switch (i) {
    case 0:
        return datum_number(&pool, 3);
    case 1:
        return datum_string(&pool, "ten", 3);
    case 2:
        return datum_string(&pool, "2.5", 3);
    case 3:
        return datum_null(&pool);
    case 4:
        list = datum_array(&pool, 2);
        datum_items(list)[0] = datum_string(&pool, "u", 1);
        datum_items(list)[1] = datum_number(&pool, 7);
        return list;
    case 5:
        return NULL;
    default:
        return datum_number(&pool, i);
    }
}

/* What the text gives, or "! " and the message. */
static const char *evaluate(const char *text, size_t bytes)
{
    static char answer[1024];
    struct expression *expression = NULL;
    struct quire_error err = {0};
    struct datum *values[sizeof names / sizeof names[0]], *result = NULL;
    uint32_t columns[sizeof names / sizeof names[0]], n_names = sizeof names / sizeof names[0];
    answer[0] = '\0';
    pool = (struct datum_pool){.bytes_max = 1 << 24};
    for (uint32_t i = 0; i < n_names; i++)
        values[i] = value_of(i);
    int rc = expression_parse(text, bytes, &expression, &err);
    for (uint32_t i = 0; rc == 0 && i < expression_n_names(expression); i++) {
        uint32_t length;
        const char *name = expression_name(expression, i, &length);
        columns[i] = 0;
        while (columns[i] < n_names && strcmp(names[columns[i]], name) != 0)
            columns[i]++;
        assert_int_equal(length, strlen(name));
    }
    if (rc == 0) {
        const struct expression_row row = {.values = values, .n_values = n_names, .columns = columns};
        rc = expression_evaluate(expression, &row, &pool, &result, &err);
    }
    if (rc == 0)
        print(result, answer, sizeof answer);
    else
        snprintf(answer, sizeof answer, "! %s", err.message);
    assert_true(rc == 0 ? result != NULL : !result && err.code == rc);
    datum_release(&pool, result);
    for (uint32_t i = 0; i < n_names; i++)
        datum_release(&pool, values[i]);
    expression_free(expression);
    assert_int_equal(pool.bytes, 0);
    return answer;
}

struct example {
    const char *text, *gives;
};

static void check(const struct example *examples, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const char *answer = evaluate(examples[i].text, strlen(examples[i].text));
        if (strcmp(answer, examples[i].gives) != 0)
            fail_msg("%s gives %s, not %s", examples[i].text, answer, examples[i].gives);
    }
}
#define CHECK(examples) check(examples, sizeof(examples) / sizeof(examples)[0])

static void test_operators(void **state)
{
    static const struct example examples[] = {
        {"1 + 2 * 3", "7"},
        {"(1 + 2) * 3", "9"},
        {"10 - 4 - 3", "3"},
        {"2 ^ 3 ^ 2", "512"},
        {"-2 ^ 2", "4"},
        {"-@n ^ 2", "9"},
        {"7 % 4", "3"},
        {"-7 % 4", "-3"},
        {"5.5 % 2", "1.5"},
        {"8 / 2 / 2", "2"},
        {"1 / 0", "nan"},
        {"inf / 0", "nan"},
        {"1 % 0", "nan"},
        {"0 / -1", "0"},
        {"inf - inf", "nan"},
        {"-inf", "-inf"},
        {"+inf + 1", "inf"},
        {"1e3 + 1.5E-1", "1000.15"},
        {".5 + 1", "1.5"},
        {"@n-1", "2"},
        {"@n -1", "2"},
        {"@n+-1", "2"},
        {"- -@n", "3"},
        {"--3", "3"},
        {"@n + @f", "5.5"},
        {"'2' * \"3\"", "6"},
        {"'' + 1", "1"},
        {"@a\\ b + @x.y", "13"},
        {"1 < 2", "1"},
        {"2 <= 2", "1"},
        {"2 > 2", "0"},
        {"2 >= 3", "0"},
        {"2 == 2.0", "1"},
        {"2 != 2", "0"},
        {"'a' < 'b'", "1"},
        {"'b' < 'a'", "0"},
        {"'a' == 'a'", "1"},
        {"'a' == 3", "0"},
        {"'a' != 3", "1"},
        {"'3' == 3", "1"},
        {"'' == 0", "1"},
        {"'10' > 9", "1"},
        {"NULL == NULL", "1"},
        {"@z == NULL", "1"},
        {"@z < 1", "1"},
        {"1 + 1 == 2", "1"},
        {"1 < 2 && 2 < 3", "1"},
        {"1 || 0 && 0", "1"},
        {"(1 || 0) && 0", "0"},
        {"!1 || 1", "1"},
        {"!(1 == 1)", "0"},
        {"!1 == 0", "1"}, /* !(1 == 0) */
        {"!!@s", "1"},
        {"1 + !0", "2"},
        {"2 == !0", "0"},
        {"!''", "1"},
        {"!@l", "0"},
        {"!@z", "1"},
        {"'a' && 2", "1"},
        {"0 || ''", "0"},
    };
    (void)state;
    CHECK(examples);
}

static void test_missing(void **state)
{
    static const struct example examples[] = {
        {"exists(@none)", "0"},
        {"exists(@n)", "1"},
        {"exists(@z)", "0"},
        {"exists((@none))", "0"},
        {"@none || 1", "1"},
        {"@none || 0", "0"},
        {"1 && @none", "0"},
        {"0 && @none + 1", "0"}, /* not evaluated */
        {"case(exists(@none), @none, 'no')", "'no'"},
        {"case(1, 'yes', @none + 1)", "'yes'"},
        {"@none + 1", "! Could not find the value for a parameter name, consider using EXISTS if applicable for none"},
        {"lower(@none)",
         "! Could not find the value for a parameter name, consider using EXISTS if applicable for none"},
        {"!@none", "! Could not find the value for a parameter name, consider using EXISTS if applicable for none"},
        {"@none", "! Could not find the value for a parameter name, consider using EXISTS if applicable for none"},
    };
    (void)state;
    CHECK(examples);
}

static void test_functions(void **state)
{
    static const struct example examples[] = {
        {"abs(-2.5)", "2.5"},
        {"ceil(-0.5)", "0"},
        {"floor(-0.5)", "-1"},
        {"exp(0)", "1"},
        {"log(1)", "0"},
        {"LOG2(8)", "3"},
        {"sqrt('16')", "4"},
        {"sqrt(-1)", "nan"},
        {"sqrt('x')", "nan"},
        {"upper('straße')", "'STRAßE'"},
        {"lower('ÄB')", "'Äb'"},
        {"upper(3)", "NULL"},
        {"strlen('ä')", "2"},
        {"substr('hello', 1, 3)", "'ell'"},
        {"substr('hello', -3, 2)", "'ll'"},
        {"substr('hello', 1, -1)", "'ell'"},
        {"substr('hello', 0, 100)", "'hello'"},
        {"substr('hello', 100, 2)", "''"},
        {"substr('hello', -100, 2)", "''"},
        {"substr('hello', 4, -100)", "''"},
        {"startswith('hello', 'he')", "1"},
        {"startswith('hello', 'hello!')", "0"},
        {"startswith('', '')", "1"},
        {"contains('aaaa', 'aa')", "3"},
        {"contains('abab', 'ab')", "2"},
        {"contains('abcabcabd', 'abcabd')", "1"},
        {"contains('abc', '')", "4"},
        {"contains('', 'a')", "0"},
        {"format('%s-%s', 'a', 2)", "'a-2'"},
        {"format('100%%')", "'100%'"},
        {"format('%s', @z)", "'(null)'"},
        {"format('')", "''"},
        {"split('a, b ,,c')", "['a','b','c']"},
        {"split('a-b_c', '-_')", "['a','b','c']"},
        {"split('(a);( b )', ';', '( )')", "['a','b']"},
        {"split('')", "[]"},
        {"to_number('1.5')", "1.5"},
        {"to_str(1.5)", "'1.5'"},
        {"to_str(@l)", "''"},
        {"strlen(to_str(100))", "3"},
        {"case(2 > 1, 'a', 'b')", "'a'"},
        {"case(0, 1 + 1, case('', 3, 4))", "4"},
        {"matched_terms()", "NULL"},
        {"matched_terms(5)", "NULL"},
        {"timefmt(0)", "'1970-01-01T00:00:00Z'"},
        {"timefmt(1700000000, '%Y-%m')", "'2023-11'"},
        {"timefmt(-1)", "'1969-12-31T23:59:59Z'"},
        {"timefmt('x')", "NULL"},
        {"timefmt(inf)", "NULL"},
        {"timefmt(0, '')", "NULL"},
        {"parsetime('2023-11-14T22:13:20Z', '%FT%TZ')", "1700000000"},
        {"parsetime('x', '%F')", "NULL"},
        {"minute(1700000000)", "1699999980"},
        {"hour(1700000000)", "1699999200"},
        {"day(1700000000)", "1699920000"},
        {"month(1700000000)", "1698796800"},
        {"monthofyear(1700000000)", "10"},
        {"year(1700000000)", "2023"},
        {"dayofmonth(1700000000)", "14"},
        {"dayofweek(1700000000)", "2"},
        {"dayofyear(1700000000)", "317"},
        {"month(4102444800)", "4102444800"},   /* 2100-01-01, no leap year */
        {"day(4107542400 + 5)", "4107542400"}, /* 2100-03-01 */
        {"year(-1)", "NULL"},
        {"day('')", "0"},
        {"geodistance('2.3522,48.8566', '2.3522,48.8566')", "0"},
        {"geodistance('0,0', '0,1')", "111226.3"},
        {"geodistance(0, 0, '0,1')", "111226.3"},
        {"geodistance('0,0', 0, 1)", "111226.3"},
        {"geodistance(0, 0, 0, 1)", "111226.3"},
        {"geodistance('0 0', '0,1')", "111226.3"},
        {"geodistance('0, 0', '0  1')", "111226.3"},
        {"geodistance('0 0x', '0,1')", "nan"},
        {"geodistance(' 0,0', '0,1')", "nan"},
        {"geodistance('here', '0,1')", "nan"},
    };
    (void)state;
    CHECK(examples);
}

static void test_wrong_values(void **state)
{
    static const struct example examples[] = {
        {"'a' + 1", "! Error converting string: 'a' is not a number"},
        {"-@s", "! Error converting string: 'ten' is not a number"},
        {"@l * 2", "! Error converting to a number: the value is an array"},
        {"1 < 'a'", "! Error converting string: 'a' is not a number"},
        {"'a' >= 1", "! Error converting string: 'a' is not a number"},
        {"strlen(1)", "! Invalid type for argument 0 in function 'strlen': it is a number, a string is needed"},
        {"contains('a', 1)",
         "! Invalid type for argument 1 in function 'contains': it is a number, a string is needed"},
        {"substr('a', '0', 1)",
         "! Invalid type for argument 1 in function 'substr': it is a string, a number is needed"},
        {"timefmt(0, 1)", "! Invalid type for argument 1 in function 'timefmt': it is a number, a string is needed"},
        {"to_number('x')", "! to_number: cannot convert a string 'x'"},
        {"to_number(NULL)", "! to_number: cannot convert null ''"},
        {"format('%d', 1)", "! Unknown format specifier passed: '%d' at byte 0; %s and %% there are"},
        {"format('ab%s')", "! Not enough arguments for format: it has 0, and %s at byte 2"},
        {"format('a%')", "! Bad format string! '%' at its end: a percent sign is %%"},
    };
    (void)state;
    CHECK(examples);
}

static void test_syntax(void **state)
{
    static const struct example examples[] = {
        {"", "! Syntax error at offset 0: the expression ends where a value should be"},
        {"1 +", "! Syntax error at offset 3: the expression ends where a value should be"},
        {"1 2", "! Syntax error at offset 2 near '2': expected an operator or the end"},
        {"(1", "! Syntax error at offset 2: the expression ends where an operator or ')' should be"},
        {"1)", "! Syntax error at offset 1 near ')': expected an operator or the end"},
        {"@", "! Syntax error at offset 0 near '@': expected the name of a field behind @"},
        {"'abc", "! Syntax error at offset 0: the text in ' has no end"},
        {"1 < 2 < 3", "! Syntax error at offset 6 near '< 3': expected &&, || or the end: comparisons do not chain, "
                      "put one of them in parentheses"},
        {"1 = 2", "! Syntax error at offset 2 near '= 2': expected an operator or the end"},
        {"1 & 2", "! Syntax error at offset 2 near '& 2': expected an operator or the end"},
        {"nothing(1)", "! Unknown function name 'nothing' at offset 0"},
        {"concat('a','b')", "! Unknown function name 'concat' at offset 0"},
        {"blue", "! Unknown symbol 'blue' at offset 0: text stands in quotes, fields begin with @"},
        {"sqrt()", "! Function 'sqrt' at offset 0 expects 1 arguments, but got 0"},
        {"2 * sqrt(1,2)", "! Function 'sqrt' at offset 4 expects 1 arguments, but got 2"},
        {"timefmt(1,'a',2)", "! Function 'timefmt' at offset 0 expects between 1 and 2 arguments, but got 3"},
        {"case(1,2)", "! Function 'case' at offset 0 expects 3 arguments, but got 2"},
        {"case()", "! Function 'case' at offset 0 expects 3 arguments, but got 0"},
        {"case(1,2,3,4)", "! Syntax error at offset 10 near ',4)': expected ')'"},
        {"sqrt(1", "! Syntax error at offset 6: the expression ends where ')' should be"},
        {"format('a' 'b')", "! Syntax error at offset 11 near ''b')': expected ',' or ')'"},
    };
    (void)state;
    CHECK(examples);
}

static void test_texts(void **state)
{
    static const struct example examples[] = {
        {"'it\\'s'", "'it's'"}, {"\"a\\\"b\"", "'a\"b'"}, {"'a\\nb'", "'a\\nb'"},
        {"'a\\\\b'", "'a\\b'"}, {"strlen('\\ ')", "1"},   {"'üñ'", "'üñ'"},
    };
    (void)state;
    CHECK(examples);
    assert_string_equal(evaluate("strlen('a\0b')", 13), "3");
    assert_string_equal(evaluate("contains('a\0b', 'b')", 20), "1");
}

/* n times a piece, between a beginning and an end. */
static char *repeat(const char *before, const char *piece, size_t n, const char *after)
{
    char *text = malloc(strlen(before) + n * strlen(piece) + strlen(after) + 1), *at = text;
    assert_non_null(text);
    at = stpcpy(at, before);
    for (size_t i = 0; i < n; i++)
        at = stpcpy(at, piece);
    stpcpy(at, after);
    return text;
}

static void check_repeated(const char *before, const char *piece, size_t n, const char *after, const char *gives)
{
    char *text = repeat(before, piece, n, after);
    const char *answer = evaluate(text, strlen(text));
    if (strncmp(answer, gives, strlen(gives)) != 0)
        fail_msg("%zu times %s: %s, not %s", n, piece, answer, gives);
    free(text);
}

static void test_limits(void **state)
{
    (void)state;
    check_repeated("1", "+1", 30000, "", "30001");
    check_repeated("1", " && 1", 13000, "", "1");
    check_repeated("0", "||0", 20000, "||1", "1");
    check_repeated("", "!", 60001, "1", "0");
    check_repeated("1", "+1", 40000, "", "! an expression has 65536 bytes at most, not 80001");
    check_repeated("", "(", 127, "1", "! Syntax error at offset 128");
    check_repeated("", "(", 129, "1", "! at offset 129 the expression is nested deeper than 128 levels");
    check_repeated("", "(", 1000, "1", "! at offset 129 the expression is nested deeper than 128 levels");
    check_repeated("", "-", 1000, "@n", "! at offset 129 the expression is nested deeper than 128 levels");
    check_repeated("", "2^", 1000, "1", "! at offset 258 the expression is nested deeper than 128 levels");
    check_repeated("", "abs(", 1000, "1", "! at offset 516 the expression is nested deeper than 128 levels");
    check_repeated("format('x'", ",1", 127, ")", "'x'");
    check_repeated("format('x'", ",1", 128, ")", "! at offset 265: a function takes 128 arguments at most");
    /* three calls with 100 arguments each, one within the other, wait for 300 values */
    char *inner = repeat("format('x'", ",1", 100, ",");
    char *text = repeat("", inner, 3, "1)))");
    assert_non_null(strstr(evaluate(text, strlen(text)), "more than 256 values of the expression wait for others"));
    free(inner);
    free(text);
    check_repeated("", "1", 400, "", "! the number at offset 0 has 400 characters, at most 399 may be");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_operators), cmocka_unit_test(test_missing),      cmocka_unit_test(test_functions),
        cmocka_unit_test(test_texts),     cmocka_unit_test(test_wrong_values), cmocka_unit_test(test_syntax),
        cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
