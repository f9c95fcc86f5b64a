/*
 * test_tree.c - documents as text: what is printed, to the letter; what is refused, and where; numbers against printf.
 */
#include "document/json/tree.h"
#include "io/random.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char *printed(const char *text, size_t bytes, const struct tree_style *style)
{
    struct quire_error err = {0};
    struct tree_text out = {.data = NULL};
    json_t *root;
    if (tree_parse(text, bytes, &root, &err) < 0)
        fail_msg("%.*s: %s", (int)bytes, text, err.message);
    tree_print(root, style, 0, &out);
    json_decref(root);
    tree_text_add(&out, "", 1);
    assert_false(out.failed);
    return out.data;
}

static void expect_printed(const char *text, const char *expected)
{
    char *out = printed(text, strlen(text), NULL), *again = printed(out, strlen(out), NULL);
    assert_string_equal(out, expected);
    assert_string_equal(again, expected);
    free(out);
    free(again);
}

static void test_text(void **state)
{
    (void)state;
    expect_printed(" { \"b\" : [ 1 , true,false , null ] , \"a\" : { } , \"c\":[ ] } ",
                   "{\"b\":[1,true,false,null],\"a\":{},\"c\":[]}");
    expect_printed("{\"a\":1,\"b\":2,\"a\":3}", "{\"a\":3,\"b\":2}"); /* the last value, the first place */
    expect_printed("\"\\u00e9\\u20ac\\ud83d\\ude00 \\/ \\\" \\\\\"",
                   "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80 / \\\" \\\\\"");
    expect_printed("\"\\b\\f\\n\\r\\t\\u0001\\u001f\\u0000\\u007f\"", "\"\\b\\f\\n\\r\\t\\u0001\\u001f\\u0000\x7f\"");
    expect_printed("true", "true");
    expect_printed("\"\"", "\"\"");
}

static void test_numbers_keep_what_they_are(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        {"1", "1"},
        {"0", "0"},
        {"-1", "-1"},
        {"1.0", "1.0"},
        {"-0", "-0.0"},
        {"0.0", "0.0"},
        {"1e2", "100.0"},
        {"1E+2", "100.0"},
        {"0.1", "0.1"},
        {"1.10", "1.1"},
        {"123456789.125", "123456789.125"},
        {"9223372036854775807", "9223372036854775807"},
        {"-9223372036854775808", "-9223372036854775808"},
        {"9223372036854775808", "9.223372036854776e18"},
        {"-9223372036854775809", "-9.223372036854776e18"},
        {"18446744073709551615", "1.8446744073709552e19"},
        {"123456789012345678901234567890", "1.2345678901234568e29"},
        {"1e15", "1000000000000000.0"},
        {"1e16", "1e16"},
        {"1234567890123456.7", "1234567890123456.8"},
        {"1e300", "1e300"},
        {"1e+300", "1e300"},
        {"1.5e-7", "1.5e-7"},
        {"0.00001", "0.00001"},
        {"0.000012", "0.000012"},
        {"0.000001", "1e-6"},
        {"5e-324", "5e-324"},
        {"2.2250738585072014e-308", "2.2250738585072014e-308"},
        {"1.7976931348623157e308", "1.7976931348623157e308"},
        {"9007199254740993.0", "9007199254740992.0"},
        {"0.3333333432674408", "0.3333333432674408"}, /* 1/3 as f32 */
        {"-0.10000000149011612", "-0.10000000149011612"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        char list[128], expected[128];
        expect_printed(pairs[i][0], pairs[i][1]);
        snprintf(list, sizeof list, "[%s , {\"a\":%s}]", pairs[i][0], pairs[i][0]);
        snprintf(expected, sizeof expected, "[%s,{\"a\":%s}]", pairs[i][1], pairs[i][1]);
        expect_printed(list, expected);
    }
}

/* The fewest digits that printf needs, and the digits. */
static int fewest_digits(double x, char digits[32])
{
    char text[64];
    for (int n = 1;; n++) {
        snprintf(text, sizeof text, "%.*e", n - 1, x);
        if (strtod(text, NULL) != x)
            continue;
        int at = 0;
        for (const char *c = text; *c != 'e'; c++)
            if (*c >= '0' && *c <= '9')
                digits[at++] = *c;
        digits[at] = 0;
        return n;
    }
}

static void check_real(double x)
{
    char text[TREE_NUMBER_BYTES], digits[32], found[64];
    unsigned bytes = tree_print_real(x, text);
    assert_int_equal(strlen(text), bytes);
    double back = strtod(text, NULL);
    if (memcmp(&back, &x, sizeof x) != 0)
        fail_msg("%s is not %.17g", text, x);
    int n = fewest_digits(fabs(x), digits), at = 0;
    for (const char *c = text; *c && *c != 'e'; c++)
        if (*c >= '0' && *c <= '9' && (at > 0 || *c != '0'))
            found[at++] = *c;
    while (at > 1 && found[at - 1] == '0')
        at--;
    found[at] = 0;
    while (n > 1 && digits[n - 1] == '0')
        digits[--n] = 0;
    if (x != 0 && strcmp(found, digits) != 0)
        fail_msg("%.17g: %s has other digits than %s", x, text, digits);
    json_t *value;
    assert_int_equal(tree_parse(text, bytes, &value, NULL), 0);
    assert_true(json_is_real(value));
    json_decref(value);
}

static void test_reals_have_the_fewest_digits(void **state)
{
    (void)state;
    struct random random;
    random_init(&random, 5);
    for (unsigned i = 0; i < 60000; i++) {
        uint64_t bits = random_next(&random);
        double x;
        memcpy(&x, &bits, sizeof x);
        if (isfinite(x))
            check_real(x);
        check_real((double)((float)(int32_t)bits / 1e9f)); /* coordinates of a vector */
        check_real((double)(int64_t)bits / 1e4);
        check_real(ldexp(1, (int)(bits % 120) - 60)); /* powers of two have a smaller gap below */
        check_real(nextafter(ldexp(1, (int)(bits % 120) - 60), bits & 1 ? 0 : INFINITY));
        char decimal[32];
        snprintf(decimal, sizeof decimal, "%u.%u", (unsigned)(bits % 1000), (unsigned)(bits >> 40) % 100000);
        check_real(strtod(decimal, NULL));
    }
    for (int power = -30; power <= 30; power++) {
        check_real(pow(10, power));
        check_real(nextafter(pow(10, power), 0));
        check_real(-pow(10, power));
    }
}

static void expect_refused(const char *text, size_t bytes, int code, const char *part)
{
    struct quire_error err = {0};
    json_t *root = NULL;
    assert_int_equal(tree_parse(text, bytes, &root, &err), code);
    assert_null(root);
    if (!strstr(err.message, part))
        fail_msg("'%s' does not say '%s'", err.message, part);
}

static void test_what_is_no_json(void **state)
{
    (void)state;
    static const char *const wrong[] = {"",      "{",         "{\"a\":}", "[1,]",  "1 2",     "'a'",
                                        "nul",   "01",        "1.",       "+1",    "\"\\x\"", "\"\\ud800\"",
                                        "{1:2}", "[1}",       "\"",       "1e999", "\"\n\"",  "\"\xff\"",
                                        "tru",   "{\"a\" 1}", "[\"a\"",   "-",     "--1",     ".5"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        expect_refused(wrong[i], strlen(wrong[i]), QUIRE_EPARSE, "invalid JSON at byte");
    expect_refused("[1, 2, x]", 9, QUIRE_EPARSE, "at byte 7 (line 1, column 8)");
}

/* jansson's parser, an independent one: the same texts are accepted, and give the same. Pieces of JSON at random. */
static void test_random_texts(void **state)
{
    (void)state;
    static const char *const pieces[] = {"[",
                                         "]",
                                         "{",
                                         "}",
                                         ",",
                                         ":",
                                         "1",
                                         "-1.5",
                                         "0",
                                         "1e5",
                                         "\"",
                                         "\"a\"",
                                         "true",
                                         "null",
                                         "\"b\":",
                                         " ",
                                         "\n",
                                         "\"\\u0041\"",
                                         "[]",
                                         "{}",
                                         "01",
                                         "\xc3",
                                         "\"\xc3\xa9\"",
                                         "\"\\ud83d\\ude00\"",
                                         "\"\\ud83d\"",
                                         "12.",
                                         "\t"};
    struct random random;
    unsigned accepted = 0;
    random_init(&random, 3);
    for (unsigned round = 0; round < 300000; round++) {
        char text[256] = "";
        unsigned n = 1 + (unsigned)random_below(&random, 7);
        for (unsigned i = 0; i < n; i++)
            strcat(text, pieces[random_below(&random, sizeof pieces / sizeof *pieces)]);
        json_t *root = NULL, *other = json_loadb(text, strlen(text), JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
        int rc = tree_parse(text, strlen(text), &root, NULL);
        if ((rc == 0) != (other != NULL) || (rc == 0 && !json_equal(root, other)))
            fail_msg("%s: %d", text, rc);
        accepted += rc == 0;
        json_decref(root);
        json_decref(other);
    }
    assert_true(accepted > 10000);
}

static void test_limits(void **state)
{
    (void)state;
    char text[2 * TREE_DEPTH_MAX + 3];
    memset(text, '[', TREE_DEPTH_MAX + 1);
    memset(text + TREE_DEPTH_MAX + 1, ']', TREE_DEPTH_MAX + 1);
    free(printed(text + 1, 2 * (size_t)TREE_DEPTH_MAX, NULL));
    expect_refused(text, 2 * ((size_t)TREE_DEPTH_MAX + 1), QUIRE_ELIMIT, "byte 128");
    /* brackets in strings are no levels */
    expect_printed(
        "\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["
        "[[[[[[[[[[[[[[[[[[[[[[[\"",
        "\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["
        "[[[[[[[[[[[[[[[[[[[[[[[\"");
    size_t n = 2 * (size_t)TREE_VALUES_MAX + 1;
    char *many = malloc(n);
    assert_non_null(many);
    memset(many, '1', n);
    for (size_t i = 0; i < n; i += 2)
        many[i] = ',';
    many[0] = '[';
    many[n - 1] = ']';
    expect_refused(many, n, QUIRE_ELIMIT, "4194304 values");
    free(many);
}

static void test_style(void **state)
{
    (void)state;
    const struct tree_style style = {"\t", "\n", " ", 1, 1, 1};
    static const char text[] = "{\"a\":[1,{}],\"b\":[],\"c\":{\"d\":null}}";
    char *out = printed(text, sizeof text - 1, &style);
    assert_string_equal(out, "{\n\t\"a\": [\n\t\t1,\n\t\t{}\n\t],\n\t\"b\": [],\n\t\"c\": {\n\t\t\"d\": null\n\t}\n}");
    free(out);
    const struct tree_style odd = {"", "", ":", 0, 0, 1};
    out = printed(text, sizeof text - 1, &odd);
    assert_string_equal(out, "{\"a\"::[1,{}],\"b\"::[],\"c\"::{\"d\"::null}}");
    free(out);
}

static void test_text_that_may_not_grow(void **state)
{
    (void)state;
    struct tree_text text = {.most = 5};
    tree_text_add(&text, "abcde", 5);
    assert_false(text.failed);
    tree_text_add(&text, "f", 1);
    assert_true(text.failed && text.too_long && text.most == 5 && !text.data);
    tree_text_add(&text, "f", 1);
    assert_null(text.data);
    tree_text_fini(&text);
}

static void test_checks(void **state)
{
    (void)state;
    struct quire_error err;
    json_t *inner = json_array(), *outer = inner;
    for (unsigned i = 1; i < TREE_DEPTH_MAX; i++)
        outer = json_pack("[o]", outer);
    assert_int_equal(tree_check(outer, &err), 0);
    assert_int_equal(tree_count(outer, 1000), TREE_DEPTH_MAX);
    json_array_append_new(inner, json_object());
    assert_int_equal(tree_check(outer, &err), QUIRE_ELIMIT);
    json_decref(outer);
    /* an array that stands 4096 times in another, and has 2048 values */
    json_t *row = json_array(), *table = json_array();
    for (unsigned i = 0; i < 2048; i++)
        json_array_append_new(row, json_null());
    for (unsigned i = 0; i < 4096; i++)
        json_array_append(table, row);
    assert_int_equal(tree_check(table, &err), QUIRE_ELIMIT);
    assert_int_equal(tree_count(table, 5000), 5000);
    json_decref(row);
    json_decref(table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_numbers_keep_what_they_are),
        cmocka_unit_test(test_reals_have_the_fewest_digits),
        cmocka_unit_test(test_what_is_no_json),
        cmocka_unit_test(test_random_texts),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_style),
        cmocka_unit_test(test_text_that_may_not_grow),
        cmocka_unit_test(test_checks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
