/*
 * test_filter.c - what FILTER expressions mean, what they refuse, and the parts that columns decide by.
 *
 * Tables hold every operator, each pair of precedences, missing fields and odd types, as Redis 8 answers them. The same
 * rows are decided by the parts (tests/filter_by_parts.h) and must agree wherever those can tell.
 */
#include "io/random.h"
#include "tests/filter_by_parts.h"
#include "tests/sanitized.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct filter *compile_with(const char *text, const struct attribute_schema *schema)
{
    struct filter *filter = NULL;
    struct quire_error err = {0};
    int rc = filter_compile(text, strlen(text), schema, &filter, &err);
    if (rc)
        fail_msg("%s: %s", text, err.message);
    return filter;
}

static struct filter *compile(const char *text)
{
    return compile_with(text, NULL);
}

/* Directly and by parts. */
static bool matches_both(const struct filter *filter, const struct attribute_schema *schema, const char *json,
                         uint32_t json_bytes, const char *key, const char *text)
{
    struct parts_row row = {filter, schema, json, json_bytes, key, (uint32_t)strlen(key)};
    bool found = filter_matches(filter, json, json_bytes, key, (uint32_t)strlen(key));
    enum verdict verdict = parts_decide(&row);
    if (verdict != PARTS_UNKNOWN && verdict != (found ? PARTS_YES : PARTS_NO))
        fail_msg("%s of %.*s: matches %d, by parts %d", text, (int)json_bytes, json, found, verdict);
    return found;
}

static bool matches(const char *text, const char *json, const char *key)
{
    struct filter *filter = compile(text);
    bool found = matches_both(filter, NULL, json, (uint32_t)strlen(json), key, text);
    filter_unref(filter);
    return found;
}

struct example {
    const char *text, *json;
    bool expected;
};

static void assert_examples(const struct example *examples, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (matches(examples[i].text, examples[i].json, "name") != examples[i].expected)
            fail_msg("%s of %s: not %d", examples[i].text, examples[i].json, examples[i].expected);
}
#define ASSERT_EXAMPLES(table) assert_examples(table, sizeof(table) / sizeof *(table))

/* ---- tables ------------------------------------------------------------------------------------------------------ */

static void test_operators(void **state)
{
    static const char json[] =
        "{\"n\":7,\"z\":0,\"m\":-2.5,\"s\":\"text\",\"e\":\"\",\"d\":\"12\",\"t\":true,\"f\":false,"
        "\"u\":null,\"l\":[1,\"a\",\"5\",null,[2]],\"el\":[]}";
    static const struct example table[] = {
        {".n == 7", json, true},
        {".n == 8", json, false},
        {".n != 8", json, true},
        {".n != 7", json, false},
        {".n > 6", json, true},
        {".n > 7", json, false},
        {".n >= 7", json, true},
        {".n < 8", json, true},
        {".n < 7", json, false},
        {".n <= 7", json, true},
        {"6 < .n", json, true},
        {"7 > .n", json, false},
        {".n + 1 == 8", json, true},
        {".n - 1 == 6", json, true},
        {".n * 2 == 14", json, true},
        {".n / 2 == 3.5", json, true},
        {".n % 4 == 3", json, true},
        {".m % 2 == -0.5", json, true},
        {".n ** 2 == 49", json, true},
        {".n / 0 > 1e300", json, true},
        {".z / 0", json, true}, /* NaN is true */
        {".z / 0 == .z / 0", json, false},
        {".n % 0 == .n % 0", json, false},
        {"-1 ** 0.5 == -1 ** 0.5", json, false},
        {".n and .t", json, true},
        {".n && .f", json, false},
        {".f or .n", json, true},
        {".f || .z", json, false},
        {"!.f", json, true},
        {"not .n", json, false},
        {"!!.n == 1", json, true},
        {"not not .e", json, false},
        {".n", json, true},
        {".z", json, false},
        {".s", json, true},
        {".e", json, false},
        {".u", json, false},
        {".l", json, true},
        {".el", json, true},
        {".t", json, true},
        {".f", json, false},
        {".s == \"text\"", json, true},
        {".s == 'text'", json, true},
        {".s == 'Text'", json, false},
        {".s != 'Text'", json, true},
        {".d == 12", json, true}, /* by number */
        {".d == '12.0'", json, false},
        {".d > 11", json, true},
        {".d + 1 == 13", json, true},
        {".s == 0", json, true}, /* a text that is no number is 0 */
        {".s < 1", json, true},
        {".s > 'abc'", json, false},
        {".e == 0", json, true},
        {".t == 1", json, true},
        {".t == true", json, true},
        {".f == false", json, true},
        {".t + .t == 2", json, true},
        {".u == null", json, true},
        {".n == null", json, false},
        {".n != null", json, true},
        {"null == .u", json, true},
        {".u == 0", json, false},
        {".u < 1", json, true},
        {".u + 1 == 1", json, true},
        {".l == 0", json, true},
        {".l == .el", json, true},
        {".l == null", json, false},
        {".l == 'a'", json, true}, /* 0 == 0 */
        {".n in [1, 7]", json, true},
        {".n in [1, 2]", json, false},
        {".n in []", json, false},
        {".n in ['7']", json, true},
        {".d in [12]", json, true},
        {".d in ['12.0']", json, false},
        {".s in ['x', \"text\",]", json, true},
        {".s in [0]", json, true},
        {"1 in .l", json, true},
        {"'a' in .l", json, true},
        {"5 in .l", json, true},
        {"'1' in .l", json, true},
        {"null in .l", json, true},
        {"7 in .l", json, false},
        {"0 in .l", json, true},   /* "a" is 0, and so is [2] */
        {"'b' in .l", json, true}, /* [2] and "b" are both 0 */
        {"3 in .el", json, false},
        {"'ex' in .s", json, true},
        {"'' in .s", json, true},
        {"'text ' in .s", json, false},
        {".s in 'a text of many'", json, true},
        {".e in ''", json, true},
        {"5 in .s", json, false},
        {"'7' in .n", json, false},
        {".n in .l", json, false},
        {".n in 7", json, false},
        {"'a' in 'cat' and 'b' in ['b']", json, true},
        {".s prefix 'te'", json, true},
        {".s prefix 'ex'", json, false},
        {".s prefix ''", json, true},
        {".s prefix 'texts'", json, false},
        {".n prefix '7'", json, false},
        {".d prefix 1", json, false},
        {"'texts' prefix .s", json, true},
    };
    (void)state;
    ASSERT_EXAMPLES(table);
}

/* Each operator beside each of another precedence: with the other order the answer would be the other. */
static void test_precedence(void **state)
{
    static const struct example table[] = {
        {"2 * 3 ** 2 == 18", "{}", true},
        {"3 ** 2 * 2 == 18", "{}", true},
        {"2 ** 3 ** 2 == 512", "{}", true},
        {"-2 ** 2 == 4", "{}", true}, /* the sign is the number's */
        {"!2 ** 2 == 0", "{}", true},
        {"2 ** !0 == 2", "{}", true},
        {"1 + 2 * 3 == 7", "{}", true},
        {"2 * 3 + 1 == 7", "{}", true},
        {"12 / 2 * 3 == 18", "{}", true},
        {"7 % 4 * 2 == 6", "{}", true},
        {"10 - 2 - 3 == 5", "{}", true},
        {"10 - -2 == 12", "{}", true},
        {"10 -2 == 8", "{}", true},
        {"(10) -2 == 8", "{}", true},
        {"1 + 1 > 1", "{}", true},
        {"1 < 1 + 1", "{}", true},
        {"3 > 2 > 1", "{}", false}, /* (3 > 2) > 1 */
        {"3 == 3 == 1", "{}", true},
        {"1 == 2 != 1", "{}", true},
        {"2 in [1, 2] == 1", "{}", true},
        {"1 == 2 in [0]", "{}", true}, /* (1 == 2) in [0] */
        {"not 1 == 0", "{}", true},    /* (not 1) == 0 */
        {"not 5 > 3", "{}", false},
        {"not (5 > 9)", "{}", true},
        {"!1 + 1", "{}", true},
        {"not 'a' in [1]", "{}", false}, /* (not 'a') in [1] */
        {"1 or 1 and 0", "{}", true},
        {"0 and 1 or 1", "{}", true},
        {"0 and (1 or 1)", "{}", false},
        {"1 and 2 == 2", "{}", true},
        {"2 == 2 and 1", "{}", true},
        {"2 == 2 or 0 == 1 and 0", "{}", true},
        {"(1 or 1) + 1 == 2", "{}", true},
        {"(2 and 3) == 1", "{}", true},
        {"1and 2", "{}", true},
        {"1 or0", "{}", true},
        {"not1", "{}", false},
        {"1 in[1]", "{}", true},
        {"1==1&&2==2||0", "{}", true},
        {"\t1\n==\v1\f\r", "{}", true},
        {"'a' prefix 'a' == 1", "{}", true},
        {"1 2 +", "{}", true},           /* as Redis's two stacks take it */
        {"1 2 3 * + 7 ==", "{}", false}, /* 1 == 2 * 3 + 7 */
        {"== 1 1", "{}", true},
        {"() 1", "{}", true},
        {"0 !", "{}", true},
    };
    (void)state;
    ASSERT_EXAMPLES(table);
}

static void test_missing_fields_fail_the_whole(void **state)
{
    static const struct example table[] = {
        {".x == 1", "{}", false},
        {".x != 1", "{}", false},
        {"!(.x == 1)", "{}", false},
        {"not .x", "{}", false},
        {"1 or .x", "{}", false},
        {".a == 1 or .x == 1", "{\"a\":1}", false},
        {".a == 1 or .x == 1", "{\"a\":1,\"x\":2}", true},
        {"0 and .x or 1", "{\"a\":1}", false},
        {".x == null", "{}", false},
        {".x != null", "{}", false},
        {"null in [1] or .x == .x", "{}", false},
        {".x != 1", "{\"x\":{\"y\":1}}", false},
        {".x != 1", "{\"x\":[{\"y\":1}]}", false},
        {".x != 1", "{\"x\":1-2}", false},
        {".x != 1", "invalid json", false},
        {".x != 1", "", false},
        {".x or 1", "{\"x\":null}", true},
        {".a-b == 1 and ._c == 2 and .5 == 3", "{\"a-b\":1,\"_c\":2,\"5\":3}", true},
        {".a.b == 1", "{\"a\":{\"b\":1}}", false},
    };
    (void)state;
    for (size_t i = 0; i + 1 < sizeof table / sizeof *table; i++)
        assert_examples(&table[i], 1);
    struct filter *none = NULL; /* two values without an operator */
    assert_int_equal(filter_compile(".a.b == 1", 9, NULL, &none, NULL), QUIRE_EPARSE);
    none = compile("!(.x == 1)");
    assert_false(filter_matches(none, NULL, 0, "k", 1));
    filter_unref(none);
}

static void test_exists(void **state)
{
    static const struct example table[] = {
        {"exists .x", "{}", false},
        {"exists .x", "{\"x\":null}", false},
        {"exists .x", "{\"x\":0}", true},
        {"exists .x", "{\"x\":{}}", true},
        {"exists .x", "{\"x\":[{}]}", true},
        {"exists .x", "{\"x\":1-2}", false},
        {"not exists .x", "{}", true},
        {"!exists .x and !exists\n.y", "{\"z\":1}", true},
        {"exists .x or .y == 1", "{\"y\":1}", true},
        {"exists .x or .y == 1", "{\"x\":1}", false},
        {"exists .x and .x > 1", "{\"x\":2}", true},
        {"exists .x and .x > 1", "{}", false},
        {"exists .x + exists .y == 1", "{\"y\":5}", true},
        {"exists .x + 1 == 1", "{}", true},
        {"notexists .x", "{}", true},
    };
    (void)state;
    ASSERT_EXAMPLES(table);
}

static void test_names_of_elements(void **state)
{
    (void)state;
    assert_true(matches("key == 'name'", "", "name"));
    assert_false(matches("key == 'nam'", "", "name"));
    assert_true(matches("'name' == key", "{}", "name"));
    assert_true(matches("key in ['a', 'name']", "", "name"));
    assert_false(matches("key in []", "", "name"));
    assert_true(matches("not key in ['a', 'name']", "", "name")); /* (not key) in ...: 0 == 'a' */
    assert_false(matches("not (key in ['a', 'name'])", "", "name"));
    assert_true(matches("key prefix 'user:'", "", "user:5"));
    assert_true(matches("key != 'b' and .a == 1", "{\"a\":1}", "a"));
    assert_true(matches("key in [5, 'x']", "", "5.0"));
    assert_true(matches("key > 4", "", "5"));
    assert_true(matches("'am' in key", "", "name"));
    assert_false(matches("key", "", ""));
}

static void test_strings_and_numbers_as_written(void **state)
{
    static const struct example table[] = {
        {".s == 'a\"b'", "{\"s\":\"a\\\"b\"}", true},
        {".s == \"a\\\"b\"", "{\"s\":\"a\\\"b\"}", true},
        {".s == 'O\\'Brien'", "{\"s\":\"O'Brien\"}", true},
        {".s == \"x\\\\y\"", "{\"s\":\"x\\\\y\"}", true},
        {".s == \"l1\\nl2\"", "{\"s\":\"l1\\nl2\"}", true},
        {".s == 'caf\\u00e9'", "{\"s\":\"caf\xc3\xa9\"}", true},
        {".s == 'caf\xc3\xa9'", "{\"s\":\"caf\\u00E9\"}", true},
        {"'\\\"b' in .s", "{\"s\":\"a\\\"bc\"}", true},
        {"'\\\"c' in .s", "{\"s\":\"a\\\"bc\"}", false},
        {".s in ['z', 'a\\tb']", "{\"s\":\"a\\u0009b\"}", true},
        {".s prefix 'a\\tb'", "{\"s\":\"a\\tbc\"}", true},
        {"'a\\tb' in .l", "{\"l\":[\"a\\tb\"]}", true},
        {"'ab\\n' in .s and !('ab\\nab\\n\\n' in .s)", "{\"s\":\"ab\\nab\\nab\\n\"}", true},
        {".s == '\\\\'", "{\"s\":\"\\\\\"}", true},
        {".n == 1e3", "{\"n\":1000}", true},
        {".n == 1E-3", "{\"n\":0.001}", true},
        {".n == 1.5e+2", "{\"n\":150}", true},
        {".n == 1.", "{\"n\":1}", true},
        {".n == 007", "{\"n\":7}", true},
        {".n in [-1, -.5,1e-2]", "{\"n\":-0.5}", true},
        {".n < 1e999", "{\"n\":1e308}", true},
        {".n == 9007199254740993", "{\"n\":9007199254740992}", true}, /* doubles */
        {".s == 16 and .s + 0 == 16", "{\"s\":\"0x10\"}", true},
        {".s == 7", "{\"s\":\" 7\"}", true},
        {".s == 0", "{\"s\":\"7 \"}", true},
        {".s > 1e308", "{\"s\":\"inf\"}", true},
        {".s > 1e308", "{\"s\":\"-Infinity\"}", false},
        {".s + 0 == .s + 0", "{\"s\":\"nan\"}", false},
        {".s == 0.5", "{\"s\":\"\\u0030.5\"}", true},
        {".s == 0", "{\"s\":\"0x\"}", true},
    };
    char text[700], digits[257];
    (void)state;
    ASSERT_EXAMPLES(table);
    memset(digits, '0', 256); /* of a text of 256 bytes and more the number is 0 */
    for (uint32_t n = 254; n <= 256; n++) {
        snprintf(text, sizeof text, "{\"s\":\"%.*s7\"}", (int)n - 1, digits);
        assert_int_equal(matches(".s == 7", text, ""), n < 256);
    }
}

/* Names with a hyphen hold it: .a-1 is a field. */
static void test_hyphens(void **state)
{
    (void)state;
    assert_true(matches(".a-1 == 5", "{\"a-1\":5,\"a\":9}", ""));
    assert_true(matches(".a -1 == 5", "{\"a\":6}", ""));
}

/* ---- declared columns -------------------------------------------------------------------------------------------- */

static void test_declared_types(void **state)
{
    static const struct quire_column columns[] = {{"t", QUIRE_COLUMN_TIMESTAMP, true},
                                                  {"n", QUIRE_COLUMN_INTEGER, true},
                                                  {"s", QUIRE_COLUMN_STRING, true},
                                                  {"l", QUIRE_COLUMN_LIST, true}};
    static const struct example table[] = {
        {".t >= '2026-11-22T10:00:00Z'", "{\"t\":\"2026-11-22T11:00:00+01:00\"}", true},
        {".t > '2026-11-22T10:00:00Z'", "{\"t\":\"2026-11-22T11:00:00+01:00\"}", false},
        {"'2026-11-22' < .t", "{\"t\":\"2026-11-22T00:00:00.001Z\"}", true},
        {".t == '1970-01-02'", "{\"t\":86400}", true},
        {".t != '1970-01-02'", "{\"t\":86401}", true},
        {".t in ['1970-01-01', 5, '1970-01-02']", "{\"t\":\"1970-01-02\"}", true},
        {".t in ['1970-01-01', 5]", "{\"t\":5}", true},
        {".t - 86400 == 0", "{\"t\":\"1970-01-02\"}", true},
        {".t != 5", "{\"t\":\"yesterday\"}", false},
        {".t == null", "{\"t\":null}", true},
        {".n != 5", "{\"n\":\"7\"}", false},
        {".n != 5", "{\"n\":7.5}", false},
        {".n != 5", "{\"n\":7.0}", true},
        {"exists .n", "{\"n\":\"7\"}", false},
        {".s == 'a'", "{\"s\":\"a\"}", true},
        {".s == 'a'", "{\"s\":0}", false},
        {"'a' in .l", "{\"l\":[\"a\"]}", true},
        {"'a' in .l", "{\"l\":\"cat\"}", false},
        {".u == '1970-01-02'", "{\"u\":\"1970-01-02\"}", true},
    };
    struct attribute_schema *schema = NULL;
    struct quire_error err = {0};
    struct filter *filter = NULL;
    (void)state;
    assert_int_equal(attribute_schema_create(columns, 4, &schema, NULL), 0);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        filter = compile_with(table[i].text, schema);
        if (matches_both(filter, schema, table[i].json, (uint32_t)strlen(table[i].json), "", table[i].text) !=
            table[i].expected)
            fail_msg("%s of %s: not %d", table[i].text, table[i].json, table[i].expected);
        filter_unref(filter);
    }
    filter = NULL;
    assert_int_equal(filter_compile(".n and .t > 'soon'", 18, schema, &filter, &err), QUIRE_EPARSE);
    assert_non_null(strstr(err.message, "byte 12"));
    assert_non_null(strstr(err.message, "soon"));
    assert_int_equal(filter_compile(".t in ['1970-01-01', 'x']", 25, schema, &filter, &err), QUIRE_EPARSE);
    assert_int_equal(filter_compile("'x' == .t", 9, schema, &filter, &err), QUIRE_EPARSE);
    assert_null(filter);
    attribute_schema_destroy(schema);
}

/* ---- what is refused --------------------------------------------------------------------------------------------- */

static void test_errors_say_where_and_what(void **state)
{
    static const struct {
        const char *text, *where, *what;
    } table[] = {
        {"", "byte 0:", "found the end"},
        {"  ", "byte 2:", "found the end"},
        {".a ==", "byte 5:", "found the end"},
        {".a == and", "byte 6:", "found 'and'"},
        {".a > 1 .b < 2", "byte 7:", "expected an operator"},
        {".a > 1 and and .b", "byte 11:", "found 'and'"},
        {".a = 1", "byte 3:", "equality is =="},
        {".a & .b", "byte 3:", "write it twice"},
        {"year > 5", "byte 0:", "with a dot before it"},
        {"orders > 5", "byte 0:", "found 'orders'"},
        {".a == abc", "byte 6:", "found 'abc'"},
        {"(.a == 1", "byte 8:", "for the '(' at byte 0"},
        {".a == 1)", "byte 7:", "it has no '('"},
        {".a in [1, 2", "byte 11:", "a comma or ]"},
        {".a in [1 2]", "byte 9:", "a comma or ]"},
        {".a in [.b]", "byte 7:", "in a list"},
        {".a in [1,,2]", "byte 9:", "in a list"},
        {".a in [[1]]", "byte 7:", "in a list"},
        {".a == \"abc", "byte 10:", "end of the text from byte 6"},
        {".a == 'abc\\'", "byte 12:", "end of the text"},
        {".a == 1.2.3", "byte 6:", "a number"},
        {".a == 1e", "byte 6:", "a number"},
        {". == 1", "byte 0:", "found '.'"},
        {"-.a == 1", "byte 0:", "expected a value"},
        {"- 5", "byte 0:", "expected a value"},
        {"1 +- .a", "byte 3:", "expected a value"},
        {".a == \x01", "byte 6:", "found '?'"},
        {".a == 1,", "byte 7:", "found ','"},
        {"exists", "byte 6:", "behind exists"},
        {"exists 5", "byte 7:", "behind exists"},
        {"exist .a", "byte 0:", "found 'exist'"},
        {".a prefixes 'b'", "byte 3:", "found 'prefixes'"},
        {"keys == 'a'", "byte 0:", "found 'keys'"},
        {"!", "byte 1:", "found the end"},
        {"()", "byte 1:", "found ')'"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct filter *filter = NULL;
        struct quire_error err = {0};
        size_t bytes = strlen(table[i].text);
        char *copy = malloc(bytes ? bytes : 1);
        assert_non_null(copy);
        memcpy(copy, table[i].text, bytes);
        assert_int_equal(filter_compile(copy, bytes, NULL, &filter, &err), QUIRE_EPARSE);
        if (!strstr(err.message, table[i].where) || !strstr(err.message, table[i].what))
            fail_msg("%s: %s", table[i].text, err.message);
        assert_null(filter);
        free(copy);
    }
    struct filter *filter = NULL;
    assert_int_equal(filter_compile(".a == 'a\0b'", 11, NULL, &filter, NULL), QUIRE_EPARSE);
    assert_int_equal(filter_compile(".a == 1\0", 8, NULL, &filter, NULL), QUIRE_EPARSE);
    assert_int_equal(filter_compile(NULL, 0, NULL, &filter, NULL), QUIRE_EPARSE);
}

/* n times `piece` between begin and end. */
static char *repeat(const char *begin, const char *piece, uint32_t n, const char *end)
{
    size_t bytes = strlen(piece), at = strlen(begin);
    char *text = malloc(at + bytes * n + strlen(end) + 1);
    assert_non_null(text);
    memcpy(text, begin, at);
    for (uint32_t i = 0; i < n; i++, at += bytes)
        memcpy(text + at, piece, bytes);
    strcpy(text + at, end);
    return text;
}

static void assert_limit(char *text, const char *value, const char *limit)
{
    struct filter *filter = NULL;
    struct quire_error err = {0};
    assert_int_equal(filter_compile(text, strlen(text), NULL, &filter, &err), QUIRE_ELIMIT);
    if (!strstr(err.message, value) || !strstr(err.message, limit))
        fail_msg("%.60s: %s", text, err.message);
    assert_null(filter);
    free(text);
}

static void test_limits(void **state)
{
    struct filter *filter = NULL;
    (void)state;
    assert_limit(repeat(".a == 1", " ", 65529, ""), "65536", "16384");
    assert_limit(repeat("", "(", 1000, ".a"), "byte 200", "200");
    assert_limit(repeat("", "!", 1000, ".a"), "byte 200", "200");
    assert_limit(repeat("", "2 ** ", 1000, ".a"), "byte 1", "200");
    assert_limit(repeat("", "1 ", 1000, "+"), "byte 400", "200");
    assert_limit(repeat("", "1 or (", 101, "1"), "byte ", "200");
    char *text = repeat("", " ", FILTER_BYTES_MAX - 2, ".a");
    assert_int_equal(filter_compile(text, FILTER_BYTES_MAX, NULL, &filter, NULL), 0);
    filter_unref(filter);
    free(text);
    text = repeat("", "(", FILTER_DEPTH_MAX, ".a");
    char *whole = repeat(text, ")", FILTER_DEPTH_MAX, "");
    assert_true(matches(whole, "{\"a\":1}", ""));
    free(whole);
    free(text);
}

static void test_number_of_fields(void **state)
{
    char text[4000] = "", json[4000] = "{";
    struct filter *filter = NULL;
    struct quire_error err = {0};
    (void)state;
    for (uint32_t i = 0; i < FILTER_FIELDS_MAX; i++) {
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s.f%u == %u", i ? " and " : "", i, i);
        snprintf(json + strlen(json), sizeof json - strlen(json), "%s\"f%u\":%u", i ? "," : "", i, i);
    }
    strcat(json, "}");
    assert_true(matches(text, json, ""));
    filter = compile(text);
    assert_int_equal(filter_n_fields(filter), FILTER_FIELDS_MAX);
    filter_unref(filter);
    filter = NULL;
    strcat(text, " and .more");
    assert_int_equal(filter_compile(text, strlen(text), NULL, &filter, &err), QUIRE_ELIMIT);
    assert_non_null(strstr(err.message, "64"));
    assert_null(filter);
}

/* ---- parts ------------------------------------------------------------------------------------------------------- */

static uint32_t depth_of(const struct filter_part *part)
{
    uint32_t left = part->left ? depth_of(part->left) : 0, right = part->right ? depth_of(part->right) : 0;
    return 1 + (left > right ? left : right);
}

/* The tree as text: & | ! T F, t<field> with its knowledge, e n k m. */
static void print_part(const struct filter *filter, const struct filter_part *part, char *out, size_t room)
{
    uint32_t bytes;
    bool required;
    size_t n = strlen(out);
    switch (part->kind) {
    case FILTER_AND:
    case FILTER_OR:
        strcat(out, "(");
        print_part(filter, part->left, out, room);
        strcat(out, part->kind == FILTER_AND ? "&" : "|");
        print_part(filter, part->right, out, room);
        strcat(out, ")");
        return;
    case FILTER_NOT:
        strcat(out, "!");
        print_part(filter, part->left, out, room);
        return;
    case FILTER_TEST:
        snprintf(out + n, room - n, "%s", filter_field(filter, part->field, &bytes, &required));
        n += bytes;
        out[n] = 0;
        assert_true(required);
        if (part->numbers_known)
            strcat(out, "#");
        for (uint32_t i = 0; i < part->n_intervals; i++) {
            const struct filter_interval *in = filter_interval_of(filter, part->first_interval + i);
            n = strlen(out);
            snprintf(out + n, room - n, "%c%g,%g%c", in->low_open ? ']' : '[', in->low, in->high,
                     in->high_open ? '[' : ']');
        }
        for (uint32_t i = 0; part->strings_listed && i < part->n_texts; i++) {
            const char *text = filter_text_of(filter, part->first_text + i, &bytes);
            n = strlen(out);
            snprintf(out + n, room - n, "%s%.*s", i ? "," : "$", (int)bytes, text);
        }
        strcat(out, part->is_member ? "@" : part->lists_alike ? "" : "?");
        return;
    case FILTER_KEYS:
        for (uint32_t i = 0; i < part->n_keys; i++) {
            const char *text = filter_key(filter, part->first_key + i, &bytes);
            n = strlen(out);
            snprintf(out + n, room - n, "%s%.*s", i ? "," : "k", (int)bytes, text);
        }
        return;
    default:
        out[n] = "&|!TFteNkm"[part->kind];
        out[n + 1] = 0;
    }
}

static void test_parts_are_what_can_be_known(void **state)
{
    static const char *const table[][2] = {
        {".x > 1 and .x < 5", "x#]1,5["},
        {".x > 1 and .x < 5 and .x != 3", "(x#]1,inf]&(x#[-inf,5[&!x#[3,3]))"},
        {".x >= 1 and 5 >= .x", "x#[1,5]"},
        {".x == 3", "x#[3,3]"},
        {".x in [3, 1, 3]", "x#[1,1][3,3]"},
        {".x < 1 or .x > 5 or .x == 3", "x#[-inf,1[[3,3]]5,inf]"},
        {".x < 1 or .x >= 1", "x#[-inf,inf]"},
        {".x < 1 or .x > 1", "x#[-inf,1[]1,inf]"},
        {".x > 5 and .x < 1", "x#"},
        {".x > 0 and (.x in [1, 2, 3] or .x == 9) and .x < 3", "x#[1,1][2,2]"},
        {".x > 'nan'", "x#"},
        {".x == 'a'", "x#[0,0]$a"},
        {".x == 'b' or .x in ['a', 'b'] or 'c' == .x", "x#[0,0]$a,b,c"},
        {".x in ['a', 'b', 'c'] and .x != 'b'", "(x#[0,0]$a,b,c&!x#[0,0]$b)"},
        {".x in ['a', '5'] and .x == '5'", "x#[5,5]$5"},
        {".x == 5 and .x in ['a', '5']", "x#[5,5]$5"},
        {".x in ['a', 5]", "x#[0,0][5,5]"},
        {".x == 1 or .x == 'a'", "(x#[1,1]|x#[0,0]$a)"},
        {"'a' in .x", "x#@"},
        {"5 in .x", "x#@"},
        {"5 in .x or .x == 1", "(x#@|x#[1,1])"},
        {"('a' in .x) + 1 == 2", "x?"},
        {".x in .x", "x?"},
        {".x in 'abc'", "x#"},
        {".x prefix 'a'", "x#"},
        {".x", "x#[-inf,0[]0,inf]"},
        {"!.x", "!x#[-inf,0[]0,inf]"},
        {"!!.x", "x#[-inf,0[]0,inf]"},
        {".x % 2 == 0 and .x > 5", "(x&x#]5,inf])"},
        {".x % 2 == 0 and .x + 1 > 5", "x"},
        {".x == .x", "x"},
        {".x == null", "N"},
        {".x != null", "e"},
        {"not exists .x", "!e"},
        {"(exists .x) + 1", "m"},
        {".x > .y", "m"},
        {".x > .y and .x > 1", "(m&x#]1,inf])"},
        {"(.x > 1) == (.y > 1)", "m"},
        {"1 == 1", "T"},
        {"'' or 0", "F"},
        {".x > 1 and 0", "F"},
        {".x > 1 or 1", "T"},
        {".x > 1 and 1", "x#]1,inf]"},
        {"key == 'b'", "kb"},
        {"key in ['b', 'a', 'b']", "ka,b"},
        {"key in []", "F"},
        {"key in ['a', 5]", "m"},
        {"key prefix 'a' or .x == 1", "(m|x#[1,1])"},
        {"key == 'a' and .x == 1", "(ka&x#[1,1])"},
        {"key == 'a' or key == 'b'", "(ka|kb)"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        char found[400] = "";
        struct filter *filter = compile(table[i][0]);
        print_part(filter, filter_root(filter), found, sizeof found);
        if (strcmp(found, table[i][1]) != 0)
            fail_msg("%s: %s, not %s", table[i][0], found, table[i][1]);
        filter_unref(filter);
    }
}

static void test_trees_are_shallow(void **state)
{
    char *text = repeat("0", "or.a", 1, ""), *chain = repeat(".b in [7]", " or.a%2", 2300, "");
    struct filter *filter = compile(chain);
    (void)state;
    assert_true(depth_of(filter_root(filter)) < 20);
    assert_true(filter_matches(filter, "{\"a\":1,\"b\":1}", 13, "", 0));
    assert_false(filter_matches(filter, "{\"a\":2,\"b\":1}", 13, "", 0));
    filter_unref(filter);
    free(chain);
    free(text);
    text = repeat("", "!(.a==1 and.b or.c or.d and ", 49, "1");
    chain = repeat(text, ")", 49, "");
    filter = compile(chain);
    assert_true(depth_of(filter_root(filter)) < 1000);
    filter_unref(filter);
    free(chain);
    free(text);
}

static void test_fields_and_text(void **state)
{
    struct filter *filter = compile(".a == 1 and exists .b and .c == null and exists .a");
    static const char *const names[] = {"a", "b", "c"};
    uint32_t bytes;
    bool required;
    (void)state;
    assert_int_equal(filter_n_fields(filter), 3);
    for (uint32_t i = 0; i < 3; i++) {
        const char *name = filter_field(filter, i, &bytes, &required);
        assert_int_equal(bytes, 1);
        assert_memory_equal(name, names[i], 1);
        assert_int_equal(required, i != 1);
    }
    assert_memory_equal(filter_text(filter, &bytes), ".a == 1 and exists .b and .c == null and exists .a", 50);
    assert_int_equal(bytes, 50);
    assert_ptr_equal(filter_ref(filter), filter);
    filter_unref(filter);
    assert_true(filter_matches(filter, "{\"a\":1,\"b\":2,\"c\":null}", 22, "", 0));
    filter_unref(filter);
    filter_unref(NULL);
}

/* ---- cost -------------------------------------------------------------------------------------------------------- */

#if !SANITIZED
static atomic_ulong allocations;
extern void *__libc_malloc(size_t bytes);

void *malloc(size_t bytes)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_malloc(bytes);
}
#endif

static void test_matching_allocates_nothing(void **state)
{
#if SANITIZED
    (void)state;
    skip();
#else
    struct filter *filter =
        compile("'a\\nb' in .s and .s prefix 'x' and 3 in .l and .n ** 2 + 1 > '0x10' and .s == .t");
    static const char json[] = "{\"s\":\"x\\u0061\\nb\",\"l\":[1,\"3\"],\"n\":5e0,\"t\":\"xa\\nb\"}";
    unsigned long before = atomic_load(&allocations);
    (void)state;
    assert_true(filter_matches(filter, json, sizeof json - 1, "k", 1));
    assert_int_equal(atomic_load(&allocations), before);
    filter_unref(filter);
    assert_true(before > 0);
#endif
}

/* A part that almost matches everywhere, in a string with escapes: quadratic work would take minutes. */
static void test_parts_of_strings_in_linear_time(void **state)
{
    enum { N = 1 << 20 };
    char *json = malloc(N + 100), *text = repeat("'", "a", 8000, "b' in .s");
    (void)state;
    assert_non_null(json);
    memcpy(json, "{\"s\":\"\\n", 8);
    memset(json + 8, 'a', N);
    memcpy(json + 8 + N, "\"}", 2);
    struct filter *filter = compile(text);
    assert_false(filter_matches(filter, json, N + 10, "", 0));
    memcpy(json + 8 + N, "b\"}", 3);
    assert_true(filter_matches(filter, json, N + 11, "", 0));
    filter_unref(filter);
    free(text);
    free(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_operators),
        cmocka_unit_test(test_precedence),
        cmocka_unit_test(test_missing_fields_fail_the_whole),
        cmocka_unit_test(test_exists),
        cmocka_unit_test(test_names_of_elements),
        cmocka_unit_test(test_strings_and_numbers_as_written),
        cmocka_unit_test(test_hyphens),
        cmocka_unit_test(test_declared_types),
        cmocka_unit_test(test_errors_say_where_and_what),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_number_of_fields),
        cmocka_unit_test(test_parts_are_what_can_be_known),
        cmocka_unit_test(test_trees_are_shallow),
        cmocka_unit_test(test_fields_and_text),
        cmocka_unit_test(test_matching_allocates_nothing),
        cmocka_unit_test(test_parts_of_strings_in_linear_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
