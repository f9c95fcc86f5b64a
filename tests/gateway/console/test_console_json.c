/* test_console_json.c - replies of RESP3 as JSON: types, texts of any bytes, limits, INFO and CLIENT LIST; settings. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "gateway/console/console_priv.h"
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void assert_json(const char *reply, size_t n, unsigned how, const char *wanted)
{
    bool truncated = false;
    json_t *value = console_json(reply, n, how, &truncated);
    assert_non_null(value);
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
    assert_string_equal(text, wanted);
    assert_false(truncated);
    free(text);
    json_decref(value);
}

static void test_types(void **state)
{
    static const struct {
        const char *reply, *json;
    } cases[] = {{"+OK\r\n", "\"OK\""},
                 {":-7\r\n", "-7"},
                 {",0.25\r\n", "0.25"},
                 {",nan\r\n", "null"},
                 {",-inf\r\n", "null"},
                 {"#t\r\n", "true"},
                 {"#f\r\n", "false"},
                 {"_\r\n", "null"},
                 {"$-1\r\n", "null"},
                 {"$0\r\n\r\n", "\"\""},
                 {"(123456789012345678901234567890\r\n", "\"123456789012345678901234567890\""},
                 {"=7\r\ntxt:a<b\r\n", "\"a<b\""},
                 {"*2\r\n:1\r\n~1\r\n+x\r\n", "[1,[\"x\"]]"},
                 {"%2\r\n+a\r\n:1\r\n:5\r\n*0\r\n", "{\"a\":1,\"5\":[]}"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_json(cases[i].reply, strlen(cases[i].reply), 0, cases[i].json);
    const char pairs[] = "*2\r\n%2\r\n+e\r\n,1\r\n+e\r\n,2\r\n%1\r\n+p\r\n+m\r\n";
    assert_json(pairs, sizeof pairs - 1, CONSOLE_PAIRS, "[[[\"e\",1.0],[\"e\",2.0]],{\"p\":\"m\"}]");
}

/* Bytes go through a text and come back. */
static void test_bytes(void **state)
{
    char reply[300];
    unsigned char all[256], back[300];
    bool truncated = false;
    (void)state;
    for (unsigned i = 0; i < 256; i++)
        all[i] = (unsigned char)i;
    int head = (int)strlen("*2\r\n+int8\r\n$256\r\n");
    memcpy(reply, "*2\r\n+int8\r\n$256\r\n", (size_t)head);
    memcpy(reply + head, all, 256);
    memcpy(reply + head + 256, "\r\n", 2);
    json_t *value = console_json(reply, (size_t)head + 258, CONSOLE_BYTES, &truncated);
    assert_string_equal(json_string_value(json_array_get(value, 0)), "int8");
    assert_int_equal(console_json_bytes(json_array_get(value, 1), back, sizeof back), 256);
    assert_memory_equal(back, all, 256);
    assert_int_equal(console_json_bytes(json_array_get(value, 1), back, 10), 10);
    json_decref(value);
}

/* U+FFFD for each byte that belongs to no character. */
static void test_texts(void **state)
{
    static const struct {
        const char *bytes;
        const char *text;
    } cases[] = {{"plain", "plain"},
                 {"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"},
                 {"\xff", "\xef\xbf\xbd"},
                 {"a\xc3", "a\xef\xbf\xbd"},
                 {"\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd"},
                 {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
                 {"\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
                 {"\xe2\x82", "\xef\xbf\xbd\xef\xbf\xbd"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *text = console_json_text(cases[i].bytes, strlen(cases[i].bytes));
        assert_string_equal(json_string_value(text), cases[i].text);
        json_decref(text);
    }
    json_t *nul = console_json_text("a\0b", 3);
    assert_int_equal(json_string_length(nul), 3);
    json_decref(nul);
}

static void test_limits(void **state)
{
    size_t n = 100000;
    char *reply = malloc(n + 64);
    bool truncated = false;
    (void)state;
    int head = snprintf(reply, 64, "$%zu\r\n", n);
    memset(reply + head, 0xa9, n); /* continuations: nowhere to cut */
    memcpy(reply + head + n, "\r\n", 2);
    json_t *text = console_json(reply, (size_t)head + n + 2, 0, &truncated);
    assert_true(truncated && json_string_length(text) <= CONSOLE_TEXT_BYTES_MAX * 3);
    json_decref(text);
    truncated = false;
    head = snprintf(reply, 64, "*%u\r\n", CONSOLE_ITEMS_MAX + 1);
    for (unsigned i = 0; i <= CONSOLE_ITEMS_MAX; i++)
        memcpy(reply + head + 4 * i, ":1\r\n", 4);
    json_t *array = console_json(reply, (size_t)head + 4 * (CONSOLE_ITEMS_MAX + 1), 0, &truncated);
    assert_true(truncated);
    assert_int_equal(json_array_size(array), CONSOLE_ITEMS_MAX);
    json_decref(array);
    free(reply);
}

static void assert_text(const char *text, unsigned how, const char *wanted)
{
    char reply[600];
    int n = snprintf(reply, sizeof reply, "$%zu\r\n%s\r\n", strlen(text), text);
    assert_json(reply, (size_t)n, how, wanted);
}

static void test_info(void **state)
{
    static const char info[] = "# Cache\r\ncaches:1\r\ncache_hit_rate:0.5000\r\nnote:a b=c\r\n"
                               "cache0:name=12,entries=20,rate=1e3\r\nempty:\r\n\r\n# GPU\r\ngpu_state:off\r\n";
    (void)state;
    assert_text(
        info, CONSOLE_INFO,
        "{\"cache\":{\"caches\":1,\"cache_hit_rate\":0.5,\"note\":\"a b=c\",\"cache0\":{\"name\":\"12\",\"entries\":"
        "20,\"rate\":1000.0},\"empty\":\"\"},\"gpu\":{\"gpu_state\":\"off\"}}");
    assert_text("# Tenants\r\ntenants:3\r\n", CONSOLE_INFO | CONSOLE_SECTION, "{\"tenants\":3}");
    assert_text("", CONSOLE_INFO | CONSOLE_SECTION, "{}");
    assert_text("id=3 addr=127.0.0.1:5 name=7 age=1.5\nid=4 flags=N\n", CONSOLE_CLIENTS,
                "[{\"id\":3,\"addr\":\"127.0.0.1:5\",\"name\":\"7\",\"age\":1.5},{\"id\":4,\"flags\":\"N\"}]");
    assert_text("", CONSOLE_CLIENTS, "[]");
}

static void test_defaults(void **state)
{
    char text[200];
    bool secret;
    (void)state;
    assert_true(console_default_of("port", text, sizeof text, &secret));
    assert_string_equal(text, "6379");
    assert_false(secret);
    assert_true(console_default_of("appendfsync", text, sizeof text, &secret));
    assert_string_equal(text, "everysec");
    assert_true(console_default_of("protected-mode", text, sizeof text, &secret));
    assert_string_equal(text, "yes");
    assert_true(console_default_of("requirepass", text, sizeof text, &secret));
    assert_true(secret && !*text);
    assert_false(console_default_of("nothing", text, sizeof text, &secret));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_types), cmocka_unit_test(test_bytes),
                                       cmocka_unit_test(test_texts), cmocka_unit_test(test_limits),
                                       cmocka_unit_test(test_info),  cmocka_unit_test(test_defaults)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
