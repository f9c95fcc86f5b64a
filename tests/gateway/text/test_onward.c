/* test_onward.c - a body as it goes to the upstream: what is edited, and that every other byte is the client's. */
#include "gateway/text/onward.h"
#include "tests/gateway/support_text.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void assert_onward(enum ask_kind kind, const char *body, const struct onward_edits *edits, const char *wanted)
{
    struct onward onward;
    char out[4096];
    struct quire_error err = {.message = ""};
    const struct ask *ask = text_asked(kind, body);
    if (onward_plan(&onward, ask, edits, &err) < 0)
        fail_msg("%s: %s", body, err.message);
    onward_copy(&onward, out);
    out[onward.bytes] = 0;
    assert_string_equal(out, wanted);
    assert_int_equal(onward.edited, strcmp(body, wanted) != 0);
    if (!onward.edited)
        assert_ptr_equal(onward.pieces[0].data, body);
    onward_fini(&onward);
    /* what goes on is strict JSON as well */
    assert_int_equal(strict_read(&text_json, out, strlen(out), &err), 0);
}

#define M "\"messages\": [ {\"role\":\"us\\u0065r\",\"content\":\"hi \\/ \xc3\xa9\"} ]"

static void nothing(void **state)
{
    (void)state;
    const struct onward_edits all = {.drop_cache = true, .include_usage = true, .model = {"m", 1}},
                              none = {.drop_cache = false};
    static const char *const bodies[] = {"{" M ",\"model\":\"m\"}", " {\r\n\"model\" : \"m\", " M ", \"n\": 1.00 } \n"};
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        assert_onward(ASK_CHAT, bodies[i], &all, bodies[i]);
        assert_onward(ASK_CHAT, bodies[i], &none, bodies[i]);
    }
    assert_onward(ASK_CHAT, "{\"cache\":{\"ttl\":5}," M "}", &none, "{\"cache\":{\"ttl\":5}," M "}");
    text_fini();
}

static void cache(void **state)
{
    (void)state;
    const struct onward_edits edits = {.drop_cache = true};
    assert_onward(ASK_CHAT, "{" M ",\"cache\":{\"ttl\":5}}", &edits, "{" M "}");
    assert_onward(ASK_CHAT, "{" M " , \"cache\" : {\"ttl\":5} }", &edits, "{" M "  }");
    assert_onward(ASK_CHAT, "{ \"cache\":{\"no-store\":true} , " M "}", &edits, "{  " M "}");
    assert_onward(ASK_CHAT, "{\"n\":1,\"c\\u0061che\":null," M "}", &edits, "{\"n\":1," M "}");
    assert_onward(ASK_EMBEDDINGS, "{\"cache\":{}}", &edits, "{}");
    /* what is no object is no control of ours */
    assert_onward(ASK_CHAT, "{" M ",\"cache\":\"x\"}", &edits, "{" M ",\"cache\":\"x\"}");
    assert_onward(ASK_CHAT, "{" M ",\"x\":{\"cache\":{}}}", &edits, "{" M ",\"x\":{\"cache\":{}}}");
    text_fini();
}

static void model(void **state)
{
    (void)state;
    const struct onward_edits edits = {.model = {"real \"one\"", 10}};
    assert_onward(ASK_CHAT, "{\"mod\\u0065l\" : \"alias\"," M "}", &edits,
                  "{\"mod\\u0065l\" : \"real \\\"one\\\"\"," M "}");
    assert_onward(ASK_CHAT, "{" M "}", &edits, "{\"model\":\"real \\\"one\\\"\"," M "}");
    assert_onward(ASK_EMBEDDINGS, "{}", &edits, "{\"model\":\"real \\\"one\\\"\"}");
    struct onward onward;
    struct quire_error err;
    char longer[ONWARD_MODEL_BYTES_MAX + 1];
    memset(longer, 'm', sizeof longer);
    const struct ask *ask = text_asked(ASK_CHAT, "{" M ",\"model\":null}");
    assert_int_equal(onward_plan(&onward, ask, &edits, &err), QUIRE_EINVALID);
    assert_int_equal(onward_plan(&onward, ask, &(struct onward_edits){.model = {longer, sizeof longer}}, &err),
                     QUIRE_ELIMIT);
    assert_int_equal(onward_plan(&onward, ask, &(struct onward_edits){.model = {"\xff", 1}}, &err), QUIRE_EINVALID);
    text_fini();
}

static void usage(void **state)
{
    (void)state;
    const struct onward_edits edits = {.include_usage = true};
    assert_onward(ASK_CHAT, "{\"stream\":true," M "}", &edits,
                  "{\"stream_options\":{\"include_usage\":true},\"stream\":true," M "}");
    assert_onward(ASK_CHAT, "{\"stream\":true,\"stream_options\":null," M "}", &edits,
                  "{\"stream\":true,\"stream_options\":{\"include_usage\":true}," M "}");
    assert_onward(ASK_CHAT, "{\"stream\":true,\"stream_options\":{ }," M "}", &edits,
                  "{\"stream\":true,\"stream_options\":{\"include_usage\":true }," M "}");
    assert_onward(ASK_CHAT, "{\"stream\":true,\"stream_options\":{\"x\":1}," M "}", &edits,
                  "{\"stream\":true,\"stream_options\":{\"include_usage\":true,\"x\":1}," M "}");
    assert_onward(ASK_CHAT, "{\"stream\":true,\"stream_options\":{\"x\":1,\"include_usage\": false}," M "}", &edits,
                  "{\"stream\":true,\"stream_options\":{\"x\":1,\"include_usage\": true}," M "}");
    static const char *const left[] = {"{\"stream\":true,\"stream_options\":{\"include_usage\":true}," M "}",
                                       "{\"stream\":false," M "}", "{" M "}"};
    for (size_t i = 0; i < sizeof left / sizeof *left; i++)
        assert_onward(ASK_CHAT, left[i], &edits, left[i]);
    assert_onward(ASK_MESSAGES, "{\"stream\":true," M "}", &edits, "{\"stream\":true," M "}");
    assert_onward(ASK_COMPLETIONS, "{\"prompt\":\"x\",\"stream\":true}", &edits,
                  "{\"stream_options\":{\"include_usage\":true},\"prompt\":\"x\",\"stream\":true}");
    text_fini();
}

static void all_at_once(void **state)
{
    (void)state;
    const struct onward_edits edits = {.drop_cache = true, .include_usage = true, .model = {"m", 1}};
    assert_onward(ASK_CHAT, "{\"cache\":{},\"stream\":true," M ",\"x\":1}", &edits,
                  "{\"model\":\"m\",\"stream_options\":{\"include_usage\":true},\"stream\":true," M ",\"x\":1}");
    assert_onward(ASK_CHAT, "{\"model\":\"a\",\"stream\":true,\"cache\":{}," M "}", &edits,
                  "{\"stream_options\":{\"include_usage\":true},\"model\":\"m\",\"stream\":true," M "}");
    text_fini();
}

static void items(void **state)
{
    (void)state;
    const uint32_t some[] = {2, 0}, beyond[] = {3};
    const struct onward_edits edits = {.items = some, .n_items = 2}, first = {.items = some + 1, .n_items = 1};
    assert_onward(ASK_EMBEDDINGS, "{\"input\": [\"a\\u0062\", \"c\" ,\"d\"],\"model\":\"e\"}", &edits,
                  "{\"input\": [\"d\",\"a\\u0062\"],\"model\":\"e\"}");
    assert_onward(ASK_EMBEDDINGS, "{\"input\":[[1, 2],[3],[4]]}", &edits, "{\"input\":[[4],[1, 2]]}");
    assert_onward(ASK_EMBEDDINGS, "{\"input\":\"a\"}", &first, "{\"input\":[\"a\"]}");
    assert_onward(ASK_EMBEDDINGS, "{\"input\":[7,8]}", &first, "{\"input\":[[7,8]]}");
    struct onward onward;
    const struct ask *ask = text_asked(ASK_EMBEDDINGS, "{\"input\":[\"a\",\"b\",\"c\"]}");
    assert_int_equal(onward_plan(&onward, ask, &(struct onward_edits){.items = beyond, .n_items = 1}, NULL),
                     QUIRE_EINVALID);
    ask = text_asked(ASK_CHAT, "{" M "}");
    assert_int_equal(onward_plan(&onward, ask, &first, NULL), QUIRE_EINVALID);
    text_fini();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(nothing),     cmocka_unit_test(cache),
                                       cmocka_unit_test(model),       cmocka_unit_test(usage),
                                       cmocka_unit_test(all_at_once), cmocka_unit_test(items)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
