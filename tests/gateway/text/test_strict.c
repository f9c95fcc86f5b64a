/*
 * test_strict.c - what the strict reader takes and refuses, with values written by hand; tests/gateway/oracle compares
 * it with Node.
 */
#include "gateway/text/strict.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct strict json;

static int read_text(const char *text)
{
    struct quire_error err = {0};
    int rc = strict_read(&json, text, strlen(text), &err);
    assert_int_equal(err.code, rc);
    assert_true(rc == 0 || err.message[0]);
    return rc;
}

#define assert_reads(text)         assert_int_equal(read_text(text), 0)
#define assert_refuses(text, code) assert_int_equal(read_text(text), (code))

static void what_is_json(void **state)
{
    (void)state;
    static const char *const good[] = {"1",
                                       "-0",
                                       "0.5e-7",
                                       "[]",
                                       " { } ",
                                       "\"\"",
                                       "true",
                                       "null",
                                       "[1,[2,{\"a\":[]}],{}]",
                                       "\"\\u0000\\ud83d\\ude00\xc3\xa9\xf0\x9f\x98\x80\x7f\"",
                                       "{\"a\":1,\"A\":1,\"\":1,\"aa\":1}",
                                       "[1e999999999999999]",
                                       "1e+00000000000000000000001"};
    static const char *const bad[] = {"",
                                      " ",
                                      "{",
                                      "[",
                                      "[1",
                                      "[1,]",
                                      "{\"a\"}",
                                      "{\"a\":}",
                                      "{\"a\":1,}",
                                      "{,}",
                                      "{a:1}",
                                      "'a'",
                                      "\"",
                                      "\"\\",
                                      "\"\\x\"",
                                      "\"\\u12\"",
                                      "\"\\u12g4\"",
                                      "tru",
                                      "nul",
                                      "TRUE",
                                      "01",
                                      "-",
                                      "+1",
                                      "1.",
                                      ".5",
                                      "1e",
                                      "1e+",
                                      "0x1",
                                      "1 2",
                                      "[1]]",
                                      "NaN",
                                      "Infinity",
                                      "[1}",
                                      "{\"a\":1]",
                                      "//x\n1",
                                      "\"\t\"",
                                      "\"\n\"",
                                      "\xef\xbb\xbf[]",
                                      "\x0b[]",
                                      "[1\x0c]",
                                      "{\"a\" 1}",
                                      "-01",
                                      "\"\xff\"",
                                      "\"\xc0\x80\"",
                                      "\"\xed\xa0\x80\"",
                                      "\"\xf4\x90\x80\x80\"",
                                      "\"\xe2\x82\"",
                                      "\"\xc3\"",
                                      "\"\xe0\x9f\xbf\"",
                                      "\"\xf0\x8f\xbf\xbf\"",
                                      "\"\x80\"",
                                      "\"\\ud83d\"",
                                      "\"\\ude00\"",
                                      "\"\\ud83d\\u0041\"",
                                      "\"\\ud83dx\"",
                                      "\"\\ud83d\\ud83d\\ude00\""};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_reads(good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (read_text(bad[i]) != QUIRE_EPARSE)
            fail_msg("%s", bad[i]);
    assert_int_equal(strict_read(&json, "\"a\0b\"", 5, NULL), QUIRE_EPARSE);
    assert_int_equal(strict_read(&json, "1\0", 2, NULL), QUIRE_EPARSE);
    strict_fini(&json);
}

static void names_twice(void **state)
{
    (void)state;
    assert_refuses("{\"a\":1,\"a\":1}", QUIRE_EPARSE);
    assert_refuses("{\"a\":1,\"b\":2,\"\\u0061\":3}", QUIRE_EPARSE);
    assert_refuses("[{\"x\":{\"\xc3\xa9\":1,\"\\u00e9\":1}}]", QUIRE_EPARSE);
    assert_refuses("{\"\":1,\"\":2}", QUIRE_EPARSE);
    assert_refuses("{\"/\":1,\"\\/\":2}", QUIRE_EPARSE);
    assert_refuses("{\"\\ud83d\\ude00\":1,\"\xf0\x9f\x98\x80\":2}", QUIRE_EPARSE);
    assert_reads("{\"a\":{\"a\":{\"a\":1}},\"b\":{\"a\":1}}");
    strict_fini(&json);
}

/* Many names, so that they are merge-sorted; one of them twice, wherever it is. */
static void many_names(void **state)
{
    (void)state;
    enum { N = 1000 };
    char *text = malloc(N * 16);
    assert_non_null(text);
    for (int twice = -1; twice < N; twice += 37) {
        size_t n = 0;
        text[n++] = '{';
        for (int i = 0; i < N; i++)
            n += (size_t)sprintf(text + n, "%s\"n%d\":%d", i ? "," : "", i == twice ? N - 1 - i : (i * 617) % N, i);
        text[n++] = '}';
        int rc = strict_read(&json, text, n, NULL);
        bool same = twice >= 0 && N - 1 - twice != (twice * 617) % N;
        assert_int_equal(rc, same ? QUIRE_EPARSE : 0);
        if (rc == 0) {
            uint64_t x = 0;
            assert_true(strict_whole(&json, strict_member(&json, STRICT_ROOT, "n617"), N, &x));
            assert_int_equal(x, 1);
            for (uint32_t i = 1; i < json.nodes[0].n; i++)
                assert_true(json.order[i - 1] != json.order[i]);
            assert_int_equal(strict_member(&json, STRICT_ROOT, "n1000"), 0);
        }
    }
    free(text);
    strict_fini(&json);
}

static void depth(void **state)
{
    (void)state;
    char text[2 * STRICT_DEPTH_MAX + 8];
    for (int n = STRICT_DEPTH_MAX - 1; n <= STRICT_DEPTH_MAX + 1; n++) {
        memset(text, '[', (size_t)n);
        memset(text + n, ']', (size_t)n);
        text[2 * n] = 0;
        assert_int_equal(read_text(text), n <= STRICT_DEPTH_MAX ? 0 : QUIRE_ELIMIT);
    }
    assert_refuses("1e1000000000000000", QUIRE_ELIMIT);
    assert_refuses("[1e-1000000000000000]", QUIRE_ELIMIT);
    assert_refuses("[1.1e-999999999999999]", QUIRE_ELIMIT);
    assert_refuses("[10e999999999999999]", QUIRE_ELIMIT);
    assert_reads("[1.1e999999999999999,10e-999999999999999]");
    strict_fini(&json);
}

static void messages(void **state)
{
    (void)state;
    struct quire_error err;
    assert_int_equal(strict_read(&json, "{\"a\":tru}", 9, &err), QUIRE_EPARSE);
    assert_string_equal(err.message, "the text is no strict JSON: a value is missing at byte 5");
    assert_int_equal(strict_read(&json, "{\"a\":1,\"a\":2}", 13, &err), QUIRE_EPARSE);
    assert_string_equal(err.message, "the text is no strict JSON: a name for the second time in one object at byte 8");
    strict_fini(&json);
}

static void members(void **state)
{
    (void)state;
    char out[16];
    assert_reads("{\"b\":[1,{\"x\":\"y\"},[]],\"a\":null,\"\\u0063\":\"d\\u00e9\\n\\/\"}");
    uint32_t list = strict_member(&json, STRICT_ROOT, "b");
    assert_int_equal(strict_kind(&json, list), STRICT_LIST);
    assert_int_equal(json.nodes[list].n, 3);
    uint32_t first = strict_begin(list), second = strict_next(&json, first), third = strict_next(&json, second);
    assert_true(strict_is(&json, strict_member(&json, second, "x"), "y"));
    assert_int_equal(strict_kind(&json, third), STRICT_LIST);
    assert_int_equal(strict_next(&json, third), strict_end(&json, list));
    assert_int_equal(strict_kind(&json, strict_member(&json, STRICT_ROOT, "a")), STRICT_NULL);
    assert_int_equal(strict_given(&json, STRICT_ROOT, "a"), 0);
    assert_int_equal(strict_member(&json, STRICT_ROOT, "ab"), 0);
    assert_int_equal(strict_member(&json, list, "b"), 0);
    uint32_t c = strict_member(&json, STRICT_ROOT, "c");
    size_t n = strict_decode(&json, c, out);
    assert_int_equal(n, 5);
    assert_memory_equal(out, "d\xc3\xa9\n/", 5);
    struct strict_text spelling = strict_spelling(&json, c), raw = strict_raw(&json, c);
    assert_int_equal(spelling.bytes, 6);
    assert_memory_equal(spelling.data, "d\xc3\xa9\\n/", 6);
    assert_int_equal(raw.bytes, 13);
    assert_memory_equal(raw.data, "\"d\\u00e9\\n\\/\"", 13);
    raw = strict_raw(&json, list);
    assert_memory_equal(raw.data, "[1,{\"x\":\"y\"},[]]", raw.bytes);
    strict_fini(&json);
}

static void numbers(void **state)
{
    (void)state;
    static const struct {
        const char *text, *canonical;
    } cases[] = {{"1", "1"},
                 {"1.0", "1"},
                 {"10e-1", "1"},
                 {"-0", "0"},
                 {"0.000e99", "0"},
                 {"100", "1e2"},
                 {"0.50", "5e-1"},
                 {"-12.50", "-125e-1"},
                 {"1E+2", "1e2"},
                 {"0.0010", "1e-3"},
                 {"120.0340", "120034e-3"},
                 {"1e-999999999999999", "1e-999999999999999"},
                 {"9007199254740993", "9007199254740993"},
                 {"100.00", "1e2"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct strict_number n;
        char out[64];
        assert_reads(cases[i].text);
        strict_number(cases[i].text, strlen(cases[i].text), &n);
        snprintf(out, sizeof out, "%s%.*s%.*s%s", n.negative ? "-" : "", (int)n.first_bytes, n.first,
                 (int)n.second_bytes, n.second, n.tail);
        assert_string_equal(out, cases[i].canonical);
    }
    strict_fini(&json);
}

static void values_of_numbers(void **state)
{
    (void)state;
    uint64_t x = 7;
    assert_reads("{\"a\":1.0,\"b\":10e-1,\"c\":2,\"d\":0.7,\"e\":1e400,\"f\":-1,\"g\":18446744073709551615,"
                 "\"h\":18446744073709551616,\"i\":1e19,\"j\":1e20,\"k\":\"1\",\"l\":-0.0,"
                 "\"m\":0.69999999999999996}");
    assert_true(strict_whole(&json, 2, 1, &x) && x == 1);
    assert_true(strict_whole(&json, 4, 1, &x) && x == 1);
    assert_false(strict_whole(&json, 6, 1, &x));
    assert_true(strict_double(&json, 8) == 0.7);
    assert_true(isinf(strict_double(&json, 10)));
    assert_false(strict_whole(&json, 12, UINT64_MAX, &x));
    assert_true(strict_double(&json, 12) == -1);
    assert_true(strict_whole(&json, 14, UINT64_MAX, &x) && x == UINT64_MAX);
    assert_false(strict_whole(&json, 16, UINT64_MAX, &x));
    assert_true(strict_whole(&json, 18, UINT64_MAX, &x) && x == 10000000000000000000u);
    assert_false(strict_whole(&json, 20, UINT64_MAX, &x));
    assert_false(strict_whole(&json, 22, 9, &x));
    assert_true(isnan(strict_double(&json, 22)));
    assert_true(strict_whole(&json, 24, 0, &x) && x == 0);
    assert_true(strict_double(&json, 26) == 0.7);
    assert_reads("[1]");
    assert_true(isnan(strict_double(&json, 1)) && !strict_whole(&json, 1, 9, &x)); /* STRICT_NUMBERS */
    strict_fini(&json);
}

static void quoting(void **state)
{
    (void)state;
    char out[64];
    size_t n = strict_quote("a\"\\\n\x01/\xc3\xa9", 8, out);
    assert_memory_equal(out, "\"a\\\"\\\\\\n\\u0001/\xc3\xa9\"", n);
    assert_int_equal(n, 18);
    assert_int_equal(strict_quote("\xff", 1, out), 0);
    assert_int_equal(strict_quote("", 0, out), 2);
}

static char *list_of(const char *element, size_t bytes, size_t *n)
{
    char *text = malloc(bytes + 64);
    assert_non_null(text);
    *n = (size_t)sprintf(text, "[%s", element);
    while (*n < bytes)
        *n += (size_t)sprintf(text + *n, ",%s", element);
    text[(*n)++] = ']';
    return text;
}

/* A large text's memory is not kept, and numbers take none. */
static void memory(void **state)
{
    (void)state;
    size_t n;
    char *text = list_of("1", 1 << 20, &n);
    assert_int_equal(strict_read(&json, text, n, NULL), 0);
    assert_int_equal(json.nodes[0].n, n / 2);
    assert_int_equal(json.n_nodes, 2);
    free(text);
    text = list_of("\"\"", 1 << 20, &n);
    assert_int_equal(strict_read(&json, text, n, NULL), 0);
    assert_int_equal(json.nodes[0].n, n / 3);
    assert_true(json.nodes_capacity * sizeof *json.nodes <= 24 * n);
    assert_reads("[]");
    assert_true(json.nodes_capacity * sizeof *json.nodes <= 65536);
    free(text);
    strict_fini(&json);
}

/* An owner may bound the values of a text; a list of numbers is one. */
static void values_are_bounded(void **state)
{
    (void)state;
    struct strict few = {.nodes_max = 100};
    struct quire_error err;
    size_t n;
    for (size_t values = 97; values < 102; values++) {
        char text[1000] = "[1", *end = text + 2;
        for (size_t i = 2; i < values; i++)
            end += sprintf(end, ",%s", i % 2 ? "null" : "{}");
        *end++ = ']';
        assert_int_equal(strict_read(&few, text, (size_t)(end - text), &err), values <= 100 ? 0 : QUIRE_ELIMIT);
    }
    assert_non_null(strstr(err.message, "more than 100 values at byte"));
    for (size_t numbers = 299; numbers < 303; numbers++) { /* two lists count together */
        char *list = list_of("7", 2 * (numbers - 1), &n), text[1000];
        int bytes = snprintf(text, sizeof text, "[%.*s,[8]]", (int)n, list);
        assert_int_equal(strict_read(&few, text, (size_t)bytes, &err), numbers <= 300 ? 0 : QUIRE_ELIMIT);
        if (numbers <= 300)
            assert_int_equal(few.nodes[strict_begin(STRICT_ROOT)].n, numbers - 1);
        free(list);
    }
    assert_non_null(strstr(err.message, "more than 300 numbers in lists"));
    strict_fini(&few);
}

static void lists_of_numbers(void **state)
{
    (void)state;
    static const char *const wanted[] = {"1", "-2.5", "0", "10", "1E+2"};
    assert_reads("[1,-2.5 , 0,\n10\t,1E+2]");
    uint32_t at = 0, node = strict_begin(STRICT_ROOT);
    assert_true(strict_kind(&json, node) == STRICT_NUMBERS && json.nodes[node].n == 5 && json.nodes[0].n == 5);
    for (size_t i = 0; i < 5; i++) {
        struct strict_text number = strict_numbers(&json, node, &at);
        assert_true(number.bytes == strlen(wanted[i]) && memcmp(number.data, wanted[i], number.bytes) == 0);
        assert_true(strict_number_double(number.data, number.bytes) == strtod(wanted[i], NULL));
    }
    assert_null(strict_numbers(&json, node, &at).data);
    assert_int_equal(strict_next(&json, node), strict_end(&json, STRICT_ROOT));
    assert_reads("[ 1 , 2 ,\"x\", 3 , [4,5],{\"a\":6},7,8 ]");
    assert_int_equal(json.nodes[0].n, 8);
    assert_int_equal(json.n_nodes, 1 + 1 + 1 + 1 + 2 + 3 + 1);
    assert_int_equal(strict_kind(&json, strict_member(&json, strict_begin(STRICT_ROOT) + 5, "a")), STRICT_NUMBER);
    static const char *const wrong[] = {"[1,]",  "[1,,2]", "[1 2]", "[1,2",  "[1,-]", "[1,02]", "[1,2.]", "[1}",
                                        "[1,2}", "[1,2]]", "[,1]",  "[1;2]", "[-,1]", "[1,+2]", "[1,2,"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_refuses(wrong[i], QUIRE_EPARSE);
    strict_fini(&json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_json), cmocka_unit_test(names_twice),        cmocka_unit_test(many_names),
        cmocka_unit_test(depth),        cmocka_unit_test(messages),           cmocka_unit_test(members),
        cmocka_unit_test(numbers),      cmocka_unit_test(values_of_numbers),  cmocka_unit_test(quoting),
        cmocka_unit_test(memory),       cmocka_unit_test(values_are_bounded), cmocka_unit_test(lists_of_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
