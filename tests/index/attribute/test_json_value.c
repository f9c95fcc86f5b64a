/*
 * test_json_value.c - fields and members read out of JSON that nobody has checked; declared columns; times.
 *
 * What passes is what passes in Redis's vector sets, oddities included (index/attribute/json_value.c lists them).
 * Numbers are compared with strtod over random texts, times with the C library's own calendar. No input may be read
 * beyond its end: texts stand in blocks of just their size, so that a sanitizer sees it.
 */
#include "index/attribute/attribute_schema.h"
#include "io/random.h"
#include "tests/json_one.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

/* A copy in a block of just its size. */
static char *exact(const char *text, size_t bytes)
{
    char *copy = malloc(bytes ? bytes : 1);
    assert_non_null(copy);
    memcpy(copy, text, bytes);
    return copy;
}

/* "number 3", "string abc" ...: a value as text, strings without escapes. */
static void describe(const struct json_value *value, char out[200])
{
    static const char *const kinds[] = {"none", "null", "bool", "number", "string", "list", "object"};
    char plain[160];
    if (value->kind == VALUE_NUMBER || value->kind == VALUE_BOOL)
        snprintf(out, 200, "%s %.17g", kinds[value->kind], value->number);
    else if (value->kind == VALUE_STRING)
        snprintf(out, 200, "string %.*s", (int)json_unescape(value, plain), plain);
    else if (value->kind == VALUE_LIST)
        snprintf(out, 200, "list %.*s", (int)value->bytes, value->text);
    else
        snprintf(out, 200, "%s", kinds[value->kind]);
}

static void assert_field(const char *json, const char *name, const char *expected)
{
    char found[200], *copy = exact(json, strlen(json));
    struct json_value value = json_one(copy, strlen(json), name, strlen(name));
    describe(&value, found);
    if (strcmp(found, expected) != 0)
        fail_msg("%s of %s: %s, not %s", name, json, found, expected);
    free(copy);
}

static void test_fields_of_every_kind(void **state)
{
    (void)state;
    const char *json = " { \"n\" : -1.5e2 ,\t\"s\":\"x y\",\"t\":true,\"f\":false,\"z\":null,\r\n\"l\":[1, \"]\"],"
                       "\"o\":{\"n\":5,\"s\":\"}\"},\"m\":[1,{\"a\":2}],\"e\":[],\"last\":7}";
    assert_field(json, "n", "number -150");
    assert_field(json, "s", "string x y");
    assert_field(json, "t", "bool 1");
    assert_field(json, "f", "bool 0");
    assert_field(json, "z", "null");
    assert_field(json, "l", "list 1, \"]\"");
    assert_field(json, "o", "object");
    assert_field(json, "m", "object");
    assert_field(json, "e", "list ");
    assert_field(json, "last", "number 7");
    assert_field(json, "a", "none");
    assert_field(json, "", "none");
    assert_field("{\"\":1}", "", "number 1");
}

static void test_first_of_two_fields_counts(void **state)
{
    (void)state;
    assert_field("{\"a\":1,\"a\":2}", "a", "number 1");
    assert_field("{\"a\":1-2,\"a\":2}", "a", "none");
    assert_field("{\"\\u0061\":1,\"a\":2}", "a", "number 1");
}

static void test_what_passes_as_json(void **state)
{
    static const char *const cases[][2] = {
        {"{\"a\":1,}", "number 1"},
        {"{\"a\":01}", "number 1"},
        {"{\"a\":+5}", "number 5"},
        {"{\"a\":1.}", "number 1"},
        {"{\"a\":-.5}", "number -0.5"},
        {"{\"a\":.5}", "none"},
        {"{\"a\":e5}", "none"},
        {"{\"a\":1e}", "none"},
        {"{\"a\":--1}", "none"},
        {"{\"a\":-}", "none"},
        {"{\"a\":true}", "bool 1"},
        {"{\"a\":trueish}", "none"},
        {"{\"a\":tru", "none"},
        {"{\"a\":nul}", "none"},
        {"{\"a\":1 ! garbage", "number 1"},
        {"{\"a\":\"open", "none"},
        {"{\"a\":\"open\\", "none"},
        {"{\"a\":[1,2", "none"},
        {"{\"a\":[1 2]}", "none"},
        {"{\"a\":[1,]}", "none"},
        {"{\"a\":[,1]}", "none"},
        {"{\"a\":[[],[[1]]]}", "list [],[[1]]"},
        {"{\"a\":[nullx]}", "none"},
        {"{\"a\":[[1,{}]]}", "object"},
        {"{\"a\":{\"b\":1", "none"},
        {"{\"b\":{[}},\"a\":2}", "none"},
        {"{\"b\":{]},\"a\":2}", "number 2"},
        {"{\"b\":1-2-3,\"a\":2}", "number 2"},
        {"{\"b\":x,\"a\":2}", "none"},
        {"{\"b\" 1,\"a\":2}", "none"},
        {"{\"b\":1 \"a\":2}", "none"},
        {"{b:1,\"a\":2}", "none"},
        {"[{\"a\":1}]", "none"},
        {"\"a\"", "none"},
        {"", "none"},
        {"{", "none"},
        {"{\"a\"", "none"},
        {"{\"a\":", "none"},
        {"{\"a\": ", "none"},
        {"{\"a\v:\f1}", "none"},
        {"{\"a\"\v:\f1}", "number 1"},
        {"{\"a\":1e400}", "number inf"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_field(cases[i][0], "a", cases[i][1]);
}

static void test_escapes_are_taken_out(void **state)
{
    (void)state;
    assert_field("{\"a\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\x\"}", "a", "string \"\\/\b\f\n\r\tx");
    assert_field("{\"a\":\"caf\\u00e9 \\u20AC \\ud83d\\ude00\"}", "a",
                 "string caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80");
    assert_field("{\"a\":\"\\ud83d \\ude00 \\ud83d\\u0041\"}", "a",
                 "string \xef\xbf\xbd \xef\xbf\xbd \xef\xbf\xbd"
                 "A");
    assert_field("{\"a\":\"\\u12 \\u12g4 \\u\"}", "a", "string u12 u12g4 u");
    assert_field("{\"a\\nb\":1}", "a\nb", "number 1");
    assert_field("{\"a\\nb\":1}", "a\\nb", "none");
}

static void test_deep_nesting_is_no_danger(void **state)
{
    enum { DEPTH = 500000 };
    char *json = malloc(2 * DEPTH + 20);
    size_t n = 5;
    (void)state;
    assert_non_null(json);
    memcpy(json, "{\"a\":", 5);
    memset(json + n, '[', DEPTH);
    memset(json + n + DEPTH, ']', DEPTH);
    n += 2 * DEPTH;
    json[n++] = '}';
    assert_int_equal(json_one(json, n, "a", 1).kind, VALUE_LIST);
    assert_int_equal(json_one(json, n - 2, "a", 1).kind, VALUE_NONE);
    free(json);
}

static void test_walks(void **state)
{
    const char *json = "{\"a\":1,\"b\":1-2,\"c\":[\"x\",2,[3],null],\"d\":{}}", *kinds = "";
    struct json_walk walk;
    struct json_value name, value, list = {.kind = VALUE_NONE};
    char text[200], all[400] = "";
    (void)state;
    json_walk_object(&walk, json, strlen(json));
    while (json_next(&walk, &name, &value)) {
        describe(&value, text);
        snprintf(all + strlen(all), sizeof all - strlen(all), "%.*s=%s;", (int)name.bytes, name.text, text);
        list = value.kind == VALUE_LIST ? value : list;
    }
    kinds = "a=number 1;b=none;c=list \"x\",2,[3],null;d=object;";
    assert_string_equal(all, kinds);
    all[0] = 0;
    json_walk_list(&walk, &list);
    while (json_next(&walk, NULL, &value)) {
        describe(&value, text);
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s;", text);
    }
    assert_string_equal(all, "string x;number 2;list 3;null;");
    json_walk_object(&walk, NULL, 0);
    assert_false(json_next(&walk, &name, &value));
}

/* In one pass as one by one, for random subsets of names. */
static void test_several_fields_at_once(void **state)
{
    const char *json = "{\"a\":1,\"b\":\"x\",\"a\":3,\"c\":[1],\"d\":null,\"e\":1-,\"f\":2}";
    static const char *const all[] = {"a", "b", "c", "d", "e", "f", "g"};
    (void)state;
    for (uint32_t set = 0; set < 1u << 7; set++) {
        struct json_name names[7];
        struct json_value values[7];
        uint32_t n = 0;
        for (uint32_t i = 0; i < 7; i++)
            if (set >> i & 1)
                names[n++] = (struct json_name){.text = all[i], .bytes = 1};
        json_fields(json, strlen(json), names, n, values);
        for (uint32_t i = 0; i < n; i++) {
            struct json_value one = json_one(json, strlen(json), names[i].text, 1);
            assert_int_equal(one.kind, values[i].kind);
            assert_ptr_equal(one.text, values[i].text);
            assert_true(one.number == values[i].number);
        }
    }
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

static void test_numbers_as_strtod_reads_them(void **state)
{
    static const char characters[] = "0123456789012345678901234567890.eE+-";
    struct random random;
    uint32_t taken = 0;
    (void)state;
    random_init(&random, 7);
    for (uint32_t i = 0; i < 400000; i++) {
        char text[40], *end;
        uint32_t n = (uint32_t)random_below(&random, sizeof text - 1);
        for (uint32_t j = 0; j < n; j++)
            text[j] = characters[random_below(&random, j == 0 || j > n - 4 ? sizeof characters - 1 : 32)];
        text[n] = 0;
        double expected = strtod(text, &end), found = 0;
        bool whole = end == text + n && n > 0;
        assert_int_equal(json_number(text, n, &found), whole);
        taken += whole;
        if (whole)
            assert_memory_equal(&found, &expected, sizeof found);
    }
    assert_true(taken > 50000);
}

static void test_random_doubles_survive(void **state)
{
    struct random random;
    (void)state;
    random_init(&random, 8);
    for (uint32_t i = 0; i < 200000; i++) {
        uint64_t bits = random_next(&random);
        double x, found;
        char text[64];
        memcpy(&x, &bits, sizeof x);
        if (!isfinite(x))
            continue;
        assert_true(json_number(text, (size_t)snprintf(text, sizeof text, "%.17g", x), &found));
        assert_memory_equal(&found, &x, sizeof x);
    }
}

/* ---- times ------------------------------------------------------------------------------------------------------- */

static void test_times(void **state)
{
    static const struct {
        const char *text;
        double seconds;
    } times[] = {
        {"1970-01-01", 0},
        {"1970-01-01T00:00:00Z", 0},
        {"1970-01-01t00:00:01z", 1},
        {"1970-01-01 00:00:00.25Z", 0.25},
        {"1970-01-01T01:00:00+01:00", 0},
        {"1970-01-01T00:00:00-00:30", 1800},
        {"1969-12-31T23:59:59Z", -1},
        {"2016-12-31T23:59:60Z", 1483228800},
        {"2026-11-22T10:00:00Z", 1795341600},
        {"0000-01-01", -62167219200.0},
        {"9999-12-31", 253402214400.0},
        {"2000-02-29", 951782400},
    };
    static const char *const wrong[] = {
        "",
        "2026",
        "2026-11",
        "2026-1-02",
        "2026-13-01",
        "2026-00-01",
        "2026-11-31",
        "2025-02-29",
        "1900-02-29",
        "2026-11-22T",
        "2026-11-22T10",
        "2026-11-22T10:00Z",
        "20261122",
        "2026-11-22 ",
        "2026-11-22T10:00:00",
        "2026-11-22T24:00:00Z",
        "2026-11-22T10:60:00Z",
        "2026-11-22T10:00:61Z",
        "2026-11-22T10:00:00.Z",
        "2026-11-22T10:00:00+1:00",
        "2026-11-22T10:00:00+24:00",
        "2026-11-22T10:00:00ZZ",
        "now",
        " 2026-11-22",
        "-026-11-22",
    };
    double seconds;
    (void)state;
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        char *copy = exact(times[i].text, strlen(times[i].text));
        assert_true(attribute_time(copy, strlen(times[i].text), &seconds));
        assert_true(seconds == times[i].seconds);
        free(copy);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char *copy = exact(wrong[i], strlen(wrong[i]));
        seconds = 77;
        if (attribute_time(copy, strlen(wrong[i]), &seconds) || seconds != 77)
            fail_msg("taken as a time: %s", wrong[i]);
        free(copy);
    }
}

static void test_times_as_the_calendar_of_the_library(void **state)
{
    struct random random;
    (void)state;
    random_init(&random, 9);
    for (uint32_t i = 0; i < 100000; i++) {
        time_t t = (time_t)random_below(&random, 315569520000ull) - 62167219200;
        struct tm parts;
        char text[64];
        double seconds;
        assert_non_null(gmtime_r(&t, &parts));
        int n = snprintf(text, sizeof text, "%04d-%02d-%02dT%02d:%02d:%02dZ", parts.tm_year + 1900, parts.tm_mon + 1,
                         parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec);
        assert_true(attribute_time(text, (size_t)n, &seconds));
        assert_true(seconds == (double)t);
    }
}

/* ---- declared columns -------------------------------------------------------------------------------------------- */

static void test_schema_is_sorted_and_found(void **state)
{
    const struct quire_column columns[] = {
        {"year", QUIRE_COLUMN_INTEGER, true}, {"ab", QUIRE_COLUMN_STRING, false}, {"a", QUIRE_COLUMN_LEARNT, true}};
    struct attribute_schema *schema = NULL;
    (void)state;
    assert_int_equal(attribute_schema_create(columns, 3, &schema, NULL), 0);
    assert_int_equal(schema->n, 3);
    assert_string_equal(schema->columns[0].name, "a");
    assert_string_equal(schema->columns[2].name, "year");
    for (uint32_t i = 0; i < 3; i++) {
        const struct quire_column *found = attribute_schema_find(schema, columns[i].name, strlen(columns[i].name));
        assert_non_null(found);
        assert_string_equal(found->name, columns[i].name);
        assert_ptr_not_equal(found->name, columns[i].name);
        assert_int_equal(found->type, columns[i].type);
        assert_int_equal(found->indexed, columns[i].indexed);
    }
    assert_null(attribute_schema_find(schema, "yea", 3));
    assert_null(attribute_schema_find(schema, "years", 5));
    assert_null(attribute_schema_find(schema, "", 0));
    assert_null(attribute_schema_find(NULL, "a", 1));
    attribute_schema_destroy(schema);
    attribute_schema_destroy(NULL);
}

static void test_schema_refuses(void **state)
{
    char long_name[ATTRIBUTE_NAME_BYTES_MAX + 2], names[ATTRIBUTE_COLUMNS_MAX + 1][8];
    struct quire_column columns[ATTRIBUTE_COLUMNS_MAX + 1] = {{.name = ""}};
    struct attribute_schema *schema = NULL;
    struct quire_error err = {0};
    (void)state;
    assert_int_equal(attribute_schema_create(columns, 1, &schema, &err), QUIRE_ERANGE);
    memset(long_name, 'x', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = 0;
    columns[0].name = long_name;
    assert_int_equal(attribute_schema_create(columns, 1, &schema, &err), QUIRE_ERANGE);
    assert_non_null(strstr(err.message, "256"));
    columns[0].name = long_name + 1;
    assert_int_equal(attribute_schema_create(columns, 1, &schema, &err), 0);
    attribute_schema_destroy(schema);
    columns[0].type = (enum quire_column_type)7;
    assert_int_equal(attribute_schema_create(columns, 1, &schema, &err), QUIRE_EINVALID);
    for (uint32_t i = 0; i <= ATTRIBUTE_COLUMNS_MAX; i++) {
        snprintf(names[i], sizeof names[i], "f%u", i);
        columns[i] = (struct quire_column){.name = names[i]};
    }
    schema = NULL;
    assert_int_equal(attribute_schema_create(columns, ATTRIBUTE_COLUMNS_MAX + 1, &schema, &err), QUIRE_ELIMIT);
    columns[5].name = "f9";
    assert_int_equal(attribute_schema_create(columns, 20, &schema, &err), QUIRE_EEXISTS);
    assert_non_null(strstr(err.message, "f9"));
    assert_null(schema);
}

static void test_schema_bytes(void **state)
{
    const struct quire_column columns[] = {
        {"time", QUIRE_COLUMN_TIMESTAMP, true}, {"a", QUIRE_COLUMN_BOOL, false}, {"l", QUIRE_COLUMN_LIST, true}};
    static const uint8_t expected[] = {3, 0, 4, 0, 1, 'a', 5, 1, 1, 'l', 6, 1, 4, 't', 'i', 'm', 'e'};
    struct attribute_schema *schema = NULL, *again = NULL;
    uint32_t n = 0;
    (void)state;
    assert_int_equal(attribute_schema_create(columns, 3, &schema, NULL), 0);
    uint8_t *bytes = attribute_schema_encode(schema, &n);
    assert_non_null(bytes);
    assert_int_equal(n, sizeof expected);
    assert_memory_equal(bytes, expected, n);
    assert_int_equal(attribute_schema_decode(bytes, n, &again, NULL), 0);
    assert_int_equal(again->n, 3);
    assert_string_equal(again->columns[2].name, "time");
    assert_int_equal(again->columns[2].type, QUIRE_COLUMN_TIMESTAMP);
    assert_false(again->columns[0].indexed);
    attribute_schema_destroy(again);
    free(bytes);
    attribute_schema_destroy(schema);
    assert_int_equal(attribute_schema_create(NULL, 0, &schema, NULL), 0);
    bytes = attribute_schema_encode(schema, &n);
    assert_int_equal(n, 2);
    assert_int_equal(attribute_schema_decode(bytes, n, &again, NULL), 0);
    assert_int_equal(again->n, 0);
    attribute_schema_destroy(again);
    free(bytes);
    attribute_schema_destroy(schema);
}

/* Each cut and each wrong byte is refused, or makes another well-formed list. */
static void test_damaged_schema_bytes(void **state)
{
    static const uint8_t right[] = {2, 0, 4, 0, 1, 'a', 6, 1, 2, 'b', 'c'};
    struct quire_error err = {0};
    (void)state;
    for (uint32_t cut = 0; cut < sizeof right; cut++) {
        struct attribute_schema *schema = NULL;
        uint8_t *bytes = (uint8_t *)exact((const char *)right, cut);
        assert_int_equal(attribute_schema_decode(bytes, cut, &schema, &err), QUIRE_ECORRUPT);
        assert_null(schema);
        free(bytes);
    }
    for (uint32_t at = 0; at < sizeof right; at++)
        for (uint32_t x = 0; x < 256; x++) {
            struct attribute_schema *schema = NULL;
            uint32_t n = 0;
            uint8_t *bytes = (uint8_t *)exact((const char *)right, sizeof right), *encoded = NULL;
            bytes[at] = (uint8_t)x;
            int rc = attribute_schema_decode(bytes, sizeof right, &schema, &err);
            assert_true(rc == 0 || rc == QUIRE_ECORRUPT);
            if (rc == 0) {
                encoded = attribute_schema_encode(schema, &n);
                assert_int_equal(n, sizeof right);
                assert_memory_equal(encoded, bytes, n);
            }
            free(encoded);
            attribute_schema_destroy(schema);
            free(bytes);
        }
}

static void assert_typed(enum quire_column_type type, const char *json, const char *expected)
{
    struct quire_column column = {.name = "a", .type = type};
    char found[200];
    struct json_value value = attribute_typed(&column, json_one(json, strlen(json), "a", 1));
    describe(&value, found);
    if (strcmp(found, expected) != 0)
        fail_msg("%s as %s: %s, not %s", json, quire_column_type_name(type), found, expected);
}

static void test_types(void **state)
{
    /* as learnt, integer, float, string, bool, list, timestamp */
    static const char *const cases[][8] = {
        {"{\"a\":2}", "number 2", "number 2", "number 2", "none", "none", "none", "number 2"},
        {"{\"a\":2.5}", "number 2.5", "none", "number 2.5", "none", "none", "none", "number 2.5"},
        {"{\"a\":1e400}", "number inf", "none", "number inf", "none", "none", "none", "number inf"},
        {"{\"a\":\"x\"}", "string x", "none", "none", "string x", "none", "none", "none"},
        {"{\"a\":\"1970-01-02\"}", "string 1970-01-02", "none", "none", "string 1970-01-02", "none", "none",
         "number 86400"},
        {"{\"a\":\"1970-01-02T00\\u003a00:00Z\"}", "string 1970-01-02T00:00:00Z", "none", "none",
         "string 1970-01-02T00:00:00Z", "none", "none", "number 86400"},
        {"{\"a\":true}", "bool 1", "none", "none", "none", "bool 1", "none", "none"},
        {"{\"a\":[1]}", "list 1", "none", "none", "none", "none", "list 1", "none"},
        {"{\"a\":{}}", "object", "none", "none", "none", "none", "none", "none"},
        {"{\"a\":null}", "null", "null", "null", "null", "null", "null", "null"},
        {"{}", "none", "none", "none", "none", "none", "none", "none"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int type = QUIRE_COLUMN_LEARNT; type <= QUIRE_COLUMN_TIMESTAMP; type++)
            assert_typed((enum quire_column_type)type, cases[i][0], cases[i][type + 1]);
    struct json_value number = {.kind = VALUE_NUMBER, .number = 3};
    assert_true(attribute_typed(NULL, number).number == 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fields_of_every_kind),
        cmocka_unit_test(test_first_of_two_fields_counts),
        cmocka_unit_test(test_what_passes_as_json),
        cmocka_unit_test(test_escapes_are_taken_out),
        cmocka_unit_test(test_deep_nesting_is_no_danger),
        cmocka_unit_test(test_walks),
        cmocka_unit_test(test_several_fields_at_once),
        cmocka_unit_test(test_numbers_as_strtod_reads_them),
        cmocka_unit_test(test_random_doubles_survive),
        cmocka_unit_test(test_times),
        cmocka_unit_test(test_times_as_the_calendar_of_the_library),
        cmocka_unit_test(test_schema_is_sorted_and_found),
        cmocka_unit_test(test_schema_refuses),
        cmocka_unit_test(test_schema_bytes),
        cmocka_unit_test(test_damaged_schema_bytes),
        cmocka_unit_test(test_types),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
