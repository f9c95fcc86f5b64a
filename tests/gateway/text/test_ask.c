/* test_ask.c - features, texts and controls of bodies written by hand. */
#include "tests/gateway/support_text.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SAID "\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"

static void features_of_chat(void **state)
{
    (void)state;
    static const struct {
        const char *more;
        uint32_t features;
    } cases[] = {
        {"", 0},
        {",\"n\":1", 0},
        {",\"n\":2.0", ASK_N},
        {",\"n\":null", 0},
        {",\"best_of\":3", ASK_BEST_OF},
        {",\"logprobs\":false", 0},
        {",\"logprobs\":true", ASK_LOGPROBS},
        {",\"logprobs\":0", ASK_LOGPROBS},
        {",\"top_logprobs\":2", ASK_LOGPROBS},
        {",\"prompt_logprobs\":0", ASK_PROMPT_LOGPROBS},
        {",\"echo\":true", ASK_ECHO},
        {",\"audio\":{}", ASK_AUDIO},
        {",\"modalities\":[\"text\"]", 0},
        {",\"modalities\":[\"text\",\"audio\"]", ASK_AUDIO},
        {",\"seed\":0", ASK_SEED},
        {",\"tools\":[{\"type\":\"function\",\"function\":{}}]", ASK_TOOLS},
        {",\"tools\":[{\"type\":\"web_search\"}]", ASK_TOOLS | ASK_BUILT_IN},
        {",\"functions\":[]", ASK_TOOLS},
        {",\"web_search_options\":{}", ASK_BUILT_IN},
        {",\"prediction\":{}", ASK_PREDICTION},
        {",\"response_format\":{\"type\":\"text\"}", 0},
        {",\"response_format\":{\"type\":\"json_object\"}", ASK_FORMAT},
        {",\"guided_json\":{}", ASK_FORMAT},
        {",\"stream\":true", ASK_STREAM},
        {",\"stream\":true,\"stream_options\":{\"include_usage\":true}", ASK_STREAM | ASK_USAGE},
        {",\"stream\":true,\"stream_options\":null", ASK_STREAM},
        {",\"temperature\":0.5", ASK_TEMPERATURE},
        {",\"store\":true,\"background\":false", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char body[512];
        snprintf(body, sizeof body, "{" SAID "%s}", cases[i].more);
        const struct ask *ask = text_asked(ASK_CHAT, body);
        if (ask->odd || ask->features != cases[i].features || !text_says(ask->question, "hi"))
            fail_msg("%s: %x, %s", body, ask->features, ask->odd ? ask->odd : "");
    }
    text_fini();
}

static void odd_ones(void **state)
{
    (void)state;
    static const char *const more[] = {"\"stream\":\"true\"",
                                       "\"stream\":1",
                                       "\"n\":0",
                                       "\"n\":\"1\"",
                                       "\"n\":1.5",
                                       "\"n\":129",
                                       "\"temperature\":\"1\"",
                                       "\"cache\":true",
                                       "\"cache\":{\"ttl\":\"5\"}",
                                       "\"cache\":{\"no-cache\":1}",
                                       "\"stream_options\":[]",
                                       "\"stream_options\":{\"include_usage\":1}",
                                       "\"echo\":1",
                                       "\"tools\":{}",
                                       "\"user\":5",
                                       "\"cache_salt\":{}",
                                       "\"background\":\"x\"",
                                       "\"cache\":{\"ttl\":-1}",
                                       "\"cache\":{\"namespace\":5}",
                                       "\"best_of\":\"x\""};
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        char body[512];
        snprintf(body, sizeof body, "{" SAID ",%s}", more[i]);
        if (!text_asked(ASK_CHAT, body)->odd)
            fail_msg("%s", body);
    }
    static const char *const bodies[] = {"{}",
                                         "{\"messages\":[]}",
                                         "{\"messages\":{}}",
                                         "{\"messages\":[1]}",
                                         "{\"messages\":[{}]}",
                                         "{\"messages\":[{\"role\":5}]}",
                                         "{\"messages\":[{\"role\":\"user\",\"content\":5}]}",
                                         "{\"messages\":[{\"role\":\"user\",\"content\":[5]}]}",
                                         "{\"model\":5,\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}"};
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++)
        if (!text_asked(ASK_CHAT, bodies[i])->odd)
            fail_msg("%s", bodies[i]);
    assert_int_equal(strict_read(&text_json, "[1]", 3, NULL), 0);
    assert_int_equal(ask_read(&text_ask, ASK_CHAT, &text_json, NULL), QUIRE_EINVALID);
    text_fini();
}

static void questions(void **state)
{
    (void)state;
    const struct ask *ask = text_asked(
        ASK_CHAT,
        "{\"messages\":[{\"role\":\"system\",\"content\":\"be\\nkind\"},{\"role\":\"user\",\"content\":\"a\"},"
        "{\"role\":\"assistant\",\"content\":\"b\"},{\"role\":\"developer\",\"content\":[{\"type\":\"text\","
        "\"text\":\"x\"}]},{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"one\"},{\"text\":"
        "\"t\\u00e9\",\"type\":\"text\"}]}],\"user\":\"u1\",\"safety_identifier\":\"s\",\"cache_salt\":\"c\"}");
    assert_null(ask->odd);
    assert_true(text_says(ask->question, "one\nt\xc3\xa9"));
    assert_true(text_says(ask->system, "be\nkind\nx"));
    assert_int_equal(ask->user_turns, 2);
    assert_true(text_says(ask->user, "u1") && text_says(ask->safety_identifier, "s") &&
                text_says(ask->cache_salt, "c"));
    assert_null(ask->model.data);
    assert_true(isnan(ask->temperature));
    static const struct {
        const char *last;
        uint32_t features;
    } none[] = {
        {"{\"role\":\"assistant\",\"content\":\"x\"}", ASK_LAST_ASSISTANT},
        {"{\"role\":\"tool\",\"content\":\"x\",\"tool_call_id\":\"1\"}", ASK_LAST_TOOL},
        {"{\"role\":\"function\",\"content\":\"x\"}", ASK_LAST_TOOL},
        {"{\"role\":\"user\",\"content\":\"\"}", 0},
        {"{\"role\":\"user\",\"content\":[]}", 0},
        {"{\"role\":\"user\",\"content\":null}", 0},
        {"{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"x\"},{\"type\":\"image_url\",\"image_url\":{}}]"
         "}",
         ASK_PARTS},
        {"{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"x\",\"cache_control\":{}}]}", 0},
        {"{\"role\":\"user\",\"content\":[{\"type\":\"file\",\"file\":{}}]}", ASK_PARTS},
    };
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        char body[512];
        snprintf(body, sizeof body, "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"},%s]}", none[i].last);
        ask = text_asked(ASK_CHAT, body);
        if (ask->odd || ask->question.data || ask->node_question || ask->features != none[i].features)
            fail_msg("%s: %x", body, ask->features);
    }
    text_fini();
}

static void completions(void **state)
{
    (void)state;
    const struct ask *ask = text_asked(ASK_COMPLETIONS, "{\"model\":\"m\",\"prompt\":\"once\",\"suffix\":\"end\"}");
    assert_true(text_says(ask->question, "once") && ask->features == ASK_SUFFIX);
    ask = text_asked(ASK_COMPLETIONS, "{\"prompt\":[\"a\",\"b\"]}");
    assert_true(!ask->odd && !ask->question.data);
    ask = text_asked(ASK_COMPLETIONS, "{\"prompt\":[1,2]}");
    assert_true(!ask->odd && !ask->question.data);
    assert_non_null(text_asked(ASK_COMPLETIONS, "{\"prompt\":5}")->odd);
    text_fini();
}

static void embeddings(void **state)
{
    (void)state;
    const struct ask *ask = text_asked(ASK_EMBEDDINGS, "{\"input\":[\"a\",\"b\"],\"encoding_format\":\"base64\"}");
    assert_true(!ask->odd && ask->items == 2 && ask->features == ASK_BASE64);
    assert_true(strict_is(ask->json, ask_item(ask, 1), "b"));
    ask = text_asked(ASK_EMBEDDINGS, "{\"input\":\"a\",\"encoding_format\":\"float\"}");
    assert_true(!ask->odd && ask->items == 1 && ask->features == 0 && strict_is(ask->json, ask_item(ask, 0), "a"));
    ask = text_asked(ASK_EMBEDDINGS, "{\"input\":[1,2,3]}");
    assert_true(!ask->odd && ask->items == 1);
    ask = text_asked(ASK_EMBEDDINGS, "{\"input\":[[1,2],[3],[4]]}");
    assert_true(!ask->odd && ask->items == 3 && ask->json->nodes[ask_item(ask, 2)].n == 1);
    static const char *const odd[] = {
        "{\"input\":[]}",        "{\"input\":[[]]}", "{\"input\":{}}",   "{}",
        "{\"input\":[1,\"a\"]}", "{\"input\":[{}]}", "{\"input\":null}", "{\"input\":[\"a\",[1],null]}"};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++)
        assert_non_null(text_asked(ASK_EMBEDDINGS, odd[i])->odd);
    char *many = malloc(5 * (ASK_ITEMS_MAX + 2));
    assert_non_null(many);
    for (int n = ASK_ITEMS_MAX; n <= ASK_ITEMS_MAX + 1; n++) {
        size_t bytes = (size_t)sprintf(many, "{\"input\":[\"\"");
        for (int i = 1; i < n; i++)
            bytes += (size_t)sprintf(many + bytes, ",\"\"");
        sprintf(many + bytes, "]}");
        assert_int_equal(text_asked(ASK_EMBEDDINGS, many)->odd == NULL, n == ASK_ITEMS_MAX);
    }
    free(many);
    text_fini();
}

static void responses(void **state)
{
    (void)state;
    const struct ask *ask =
        text_asked(ASK_RESPONSES, "{\"model\":\"m\",\"input\":\"hi\",\"instructions\":\"be kind\",\"store\":false}");
    assert_true(!ask->odd && ask->features == 0 && ask->user_turns == 1 && text_says(ask->system, "be kind"));
    assert_null(ask->question.data);
    assert_int_equal(text_asked(ASK_RESPONSES, "{\"input\":\"hi\"}")->features, ASK_STORES);
    assert_int_equal(text_asked(ASK_RESPONSES, "{\"input\":\"hi\",\"store\":null}")->features, ASK_STORES);
    static const struct {
        const char *more;
        uint32_t features;
    } cases[] = {
        {"\"previous_response_id\":\"r\"", ASK_PREVIOUS},
        {"\"conversation\":{}", ASK_PREVIOUS},
        {"\"prompt\":{\"id\":\"p\"}", ASK_PREVIOUS},
        {"\"background\":true", ASK_BACKGROUND},
        {"\"tools\":[{\"type\":\"file_search\"}]", ASK_TOOLS | ASK_BUILT_IN},
        {"\"tools\":[{\"type\":\"function\",\"name\":\"f\"}]", ASK_TOOLS},
        {"\"text\":{\"format\":{\"type\":\"text\"}}", 0},
        {"\"text\":{\"format\":{\"type\":\"json_schema\"}}", ASK_FORMAT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char body[256];
        snprintf(body, sizeof body, "{\"input\":\"x\",\"store\":false,%s}", cases[i].more);
        assert_int_equal(text_asked(ASK_RESPONSES, body)->features, cases[i].features);
    }
    ask = text_asked(ASK_RESPONSES,
                     "{\"store\":false,\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_text\","
                     "\"text\":\"x\"}]},{\"type\":\"item_reference\",\"id\":\"i\"},{\"type\":"
                     "\"function_call_output\",\"call_id\":\"c\",\"output\":\"o\"}]}");
    assert_true(!ask->odd && ask->features == (ASK_PREVIOUS | ASK_LAST_TOOL) && ask->user_turns == 1);
    text_fini();
}

static void messages(void **state)
{
    (void)state;
    const struct ask *ask = text_asked(
        ASK_MESSAGES, "{\"model\":\"c\",\"max_tokens\":5,\"system\":[{\"type\":\"text\",\"text\":\"s\"}],"
                      "\"messages\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":"
                      "[{\"type\":\"tool_use\",\"id\":\"t\"}]},{\"role\":\"user\",\"content\":[{\"type\":"
                      "\"tool_result\",\"tool_use_id\":\"t\"}]}]}");
    assert_true(!ask->odd && ask->features == ASK_LAST_TOOL && ask->user_turns == 1);
    assert_true(text_says(ask->system, "s") && !ask->question.data);
    ask = text_asked(ASK_MESSAGES, "{\"tools\":[{\"type\":\"web_search_20250305\"}],\"messages\":[{\"role\":\"user\","
                                   "\"content\":[{\"type\":\"image\"}]}]}");
    assert_int_equal(ask->features, ASK_TOOLS | ASK_BUILT_IN | ASK_PARTS);
    text_fini();
}

static void litellm(void **state)
{
    (void)state;
    const struct ask *ask = text_asked(
        ASK_CHAT, "{" SAID ",\"cache\":{\"ttl\":60,\"s-maxage\":1.5,\"no-cache\":true,\"namespace\":\"n\\u0031\"}}");
    assert_true(!ask->odd && ask->cache.given && ask->cache.no_cache && !ask->cache.no_store);
    assert_true(ask->cache.ttl_s == 60 && ask->cache.s_maxage_s == 1.5 && text_says(ask->cache.name_space, "n1"));
    ask = text_asked(ASK_CHAT, "{" SAID ",\"cache\":{\"no-store\":true}}");
    assert_true(ask->cache.no_store && ask->cache.ttl_s == -1 && ask->cache.s_maxage_s == -1);
    ask = text_asked(ASK_CHAT, "{" SAID ",\"cache\":null}");
    assert_true(!ask->odd && !ask->cache.given && ask->node_cache);
    ask = text_asked(ASK_CHAT, "{" SAID "}");
    assert_true(!ask->cache.given && !ask->node_cache && ask->cache.ttl_s == -1);
    text_fini();
}

struct seen {
    char texts[200];
    const char *wanted;
};

static bool fits(const void *context, const char *text, size_t bytes)
{
    struct seen *seen = *(struct seen *const *)context;
    size_t n = strlen(seen->texts);
    snprintf(seen->texts + n, sizeof seen->texts - n, "%.*s|", (int)bytes, text);
    return seen->wanted && bytes == strlen(seen->wanted) && memcmp(text, seen->wanted, bytes) == 0;
}

/* The texts that the user gives, each with a bar behind it. */
static void texts_of_the_user(void **state)
{
    (void)state;
    static const struct {
        enum ask_kind kind;
        const char *body, *texts;
    } cases[] = {
        {ASK_CHAT,
         "{\"messages\":[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":\"a "
         "\\u00e9\"},{\"role\":"
         "\"assistant\",\"content\":\"b\"},{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"c\"},{"
         "\"type\":"
         "\"image_url\",\"image_url\":{}},{\"type\":\"text\",\"text\":\"d\",\"cache_control\":{}}]},{\"role\":\"user\"}"
         "]}",
         "a \xc3\xa9|c\nd|"},
        {ASK_MESSAGES, "{\"system\":\"s\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}", "a|"},
        {ASK_COMPLETIONS, "{\"prompt\":\"a\"}", "a|"},
        {ASK_COMPLETIONS, "{\"prompt\":[\"a\",\"b\"]}", "a|b|"},
        {ASK_COMPLETIONS, "{\"prompt\":[[1,2],[3]]}", ""},
        {ASK_COMPLETIONS, "{\"prompt\":[1,2]}", ""},
        {ASK_RESPONSES, "{\"input\":\"a\"}", "a|"},
        {ASK_RESPONSES,
         "{\"instructions\":\"s\",\"input\":[{\"type\":\"message\",\"role\":\"user\",\"content\":[{\"type\":\"input_"
         "text\","
         "\"text\":\"a\"}]},{\"type\":\"function_call_output\",\"output\":\"o\"},{\"role\":\"user\",\"content\":\"b\"}]"
         "}",
         "a|b|"},
        {ASK_EMBEDDINGS, "{\"input\":\"a\"}", "a|"},
        {ASK_EMBEDDINGS, "{\"input\":[\"a\",[1,2],\"b\"]}", "a|b|"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct seen seen = {.wanted = NULL}, *context = &seen;
        const struct ask *ask = text_asked(cases[i].kind, cases[i].body);
        assert_false(ask_user_fits(ask, fits, &context));
        assert_string_equal(seen.texts, cases[i].texts);
    }
    struct seen seen = {.wanted = "b"}, *context = &seen;
    const struct ask *ask = text_asked(ASK_EMBEDDINGS, "{\"input\":[\"a\",\"b\",\"c\",[1]]}");
    assert_true(ask_user_fits(ask, fits, &context));
    assert_string_equal(seen.texts, "a|b|");
    assert_true(ask_item_fits(ask, 1, fits, &context));
    assert_false(ask_item_fits(ask, 2, fits, &context) || ask_item_fits(ask, 3, fits, &context));
    text_fini();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(features_of_chat), cmocka_unit_test(odd_ones),   cmocka_unit_test(questions),
        cmocka_unit_test(completions),      cmocka_unit_test(embeddings), cmocka_unit_test(responses),
        cmocka_unit_test(messages),         cmocka_unit_test(litellm),    cmocka_unit_test(texts_of_the_user),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
