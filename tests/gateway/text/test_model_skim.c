/* test_model_skim.c - the model's name in bodies that come in pieces: cut at every place, and byte by byte. */
#include "gateway/text/model_skim.h"
#include "tests/gateway/support_text.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* value: as it stands in the body; NULL: none. more: the body is not at its end. */
static const struct {
    const char *body, *value;
    bool more;
} cases[] = {
    {"{\"model\":\"m\"}", "\"m\"", false},
    {" \t\r\n{ \"messages\" : [ { \"model\" : \"wrong\" } , \"model\" ] , \"model\" : \"right\" }", "\"right\"", false},
    {"{\"a\":\"\\\"model\\\":\\\"wrong\\\"\",\"b\":-1.5e3,\"c\":null,\"d\":true,\"model\":\"x\"}", "\"x\"", false},
    {"{\"a\":\"\\\\\",\"model\":\"y\"", "\"y\"", false},
    {"{\"a\":[[[[{\"b\":\"]}\"}]]]],\"model\":\"org\\/name\\u00e9 \\\"q\\\"\"}", "\"org\\/name\\u00e9 \\\"q\\\"\"",
     false},
    {"{\"model\":\"first\",\"model\":\"second\"}", "\"first\"", false},
    {"{\"model\":\"\"}", "\"\"", false},
    {"{\"Model\":\"a\",\"model \":\"b\",\"models\":\"c\",\"mode\":\"d\"}", NULL, false},
    {"{\"m\\u006fdel\":\"escaped\"}", NULL, false},
    {"{\"model\":7}", NULL, false},
    {"{\"model\":null,\"model\":\"late\"}", NULL, false},
    {"{\"model\":{\"model\":\"x\"}}", NULL, false},
    {"[{\"model\":\"x\"}]", NULL, false},
    {"model=x", NULL, false},
    {"{}", NULL, false},
    {"{'model':'x'}", NULL, false},
    {"{\"a\" 1,\"model\":\"x\"}", NULL, false},
    {"{\"a\":\"b\" \"model\":\"x\"}", NULL, false},
    {"{\"a\":1}{\"model\":\"x\"}", NULL, false},
    {"", NULL, true},
    {"{\"a\":[\"model\",", NULL, true},
    {"{\"model\":\"unfinished", NULL, true},
};

static void assert_found(const struct model_skim *skim, enum model_skim_status status, size_t i, size_t cut)
{
    enum model_skim_status wanted = cases[i].value  ? MODEL_SKIM_FOUND
                                    : cases[i].more ? MODEL_SKIM_MORE
                                                    : MODEL_SKIM_NONE;
    if (status != wanted)
        fail_msg("%s cut at %zu: %d, not %d", cases[i].body, cut, (int)status, (int)wanted);
    if (!cases[i].value)
        return;
    assert_int_equal(skim->value_bytes, strlen(cases[i].value));
    assert_memory_equal(skim->value, cases[i].value, strlen(cases[i].value));
    assert_memory_equal(cases[i].body + skim->value_at, cases[i].value, strlen(cases[i].value));
}

static void test_every_cut(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *body = cases[i].body;
        size_t n = strlen(body);
        for (size_t cut = 0; cut <= n; cut++) {
            struct model_skim skim = {0};
            model_skim_add(&skim, body, cut);
            assert_found(&skim, model_skim_add(&skim, body + cut, n - cut), i, cut);
            assert_found(&skim, model_skim_add(&skim, "x", 0), i, cut); /* it stays so */
        }
        struct model_skim skim = {0};
        enum model_skim_status status = MODEL_SKIM_MORE;
        for (size_t at = 0; at < n; at++)
            status = model_skim_add(&skim, body + at, 1);
        assert_found(&skim, status, i, 1);
    }
}

/* A name of as many bytes as fit is found, one more is none; text behind it is not looked at. */
static void test_lengths(void **state)
{
    static char body[MODEL_SKIM_BYTES_MAX + 32];
    (void)state;
    for (int over = 0; over < 2; over++) {
        int bytes = MODEL_SKIM_BYTES_MAX - 2 + over;
        struct model_skim skim = {0};
        snprintf(body, sizeof body, "{\"model\":\"%.*s\"}", bytes, "");
        memset(body + 10, 'n', (size_t)bytes);
        memcpy(body + 10 + bytes, "\"}", 3);
        assert_int_equal(model_skim_add(&skim, body, strlen(body)), over ? MODEL_SKIM_NONE : MODEL_SKIM_FOUND);
    }
}

/* What the strict reader finds in the bodies that it reads, skimming finds too. */
static void test_as_the_strict_reader(void **state)
{
    unsigned read = 0;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct model_skim skim = {0};
        if (strict_read(&text_json, cases[i].body, strlen(cases[i].body), NULL) != 0)
            continue;
        uint32_t node = strict_member(&text_json, STRICT_ROOT, "model");
        bool is_text = node && strict_kind(&text_json, node) == STRICT_STRING && !strchr(cases[i].body, '\'');
        if (strstr(cases[i].body, "m\\u006f"))
            continue; /* the one that it leaves out on purpose */
        assert_int_equal(model_skim_add(&skim, cases[i].body, strlen(cases[i].body)) == MODEL_SKIM_FOUND, is_text);
        if (is_text)
            assert_memory_equal(strict_raw(&text_json, node).data, skim.value, (size_t)skim.value_bytes);
        read++;
    }
    assert_true(read >= 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_cut), cmocka_unit_test(test_lengths),
                                       cmocka_unit_test(test_as_the_strict_reader)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
