/*
 * test_canonical.c - which requests are the same, and which share a group: pairs of bodies, each with what must be
 * equal. One digest is compared with one that coreutils' sha256sum computed of a form written by hand.
 */
#include "gateway/text/canonical.h"
#include "gateway/text/mask.h"
#include "tests/gateway/support_text.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct canonical *canonical;
static struct canonical_options options;

static struct canonical_keys keys_of(enum ask_kind kind, const char *body)
{
    struct canonical_keys keys;
    struct quire_error err = {.message = ""};
    const struct ask *ask = text_asked(kind, body);
    if (ask->odd)
        fail_msg("%s: %s", body, ask->odd);
    assert_int_equal(canonical_keys(canonical, ask, &options, &keys, &err), 0);
    return keys;
}

enum { SAME_HASH = 1, SAME_GROUP = 2, SAME = 3, OTHER = 0 };

static void assert_pair(enum ask_kind kind, const char *a, const char *b, int wanted)
{
    struct canonical_keys x = keys_of(kind, a), y = keys_of(kind, b);
    int same = (memcmp(x.hash, y.hash, sizeof x.hash) == 0 ? SAME_HASH : 0) |
               (memcmp(x.compat, y.compat, sizeof x.compat) == 0 ? SAME_GROUP : 0);
    if (same != wanted)
        fail_msg("%s\n%s\n%d in place of %d", a, b, same, wanted);
}

#define CHAT(more)    "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]" more "}"
#define SAY(messages) "{\"model\":\"m\",\"messages\":[" messages "]}"
#define USER          "{\"role\":\"user\",\"content\":\"q\"}"

static void forms_of_one_request(void **state)
{
    (void)state;
    assert_pair(
        ASK_CHAT, CHAT(""),
        "\n{ \"messages\" : [ {\"content\":\"h\\u0069\",\"role\":\"\\u0075ser\"} ],\t\"mod\\u0065l\":\"m\"}\r\n", SAME);
    assert_pair(ASK_CHAT, CHAT(",\"top_k\":10"), CHAT(",\"top_k\":1e1"), SAME);
    assert_pair(ASK_CHAT, CHAT(",\"top_k\":1.0"), CHAT(",\"top_k\":10e-1"), SAME);
    assert_pair(ASK_CHAT, CHAT(",\"top_p\":-0"), CHAT(",\"top_p\":0.00"), SAME);
    assert_pair(ASK_CHAT, CHAT(""), CHAT(",\"n\":1,\"stream\":false,\"seed\":null,\"top_k\":null"), SAME);
    assert_pair(ASK_CHAT, CHAT(",\"max_tokens\":5"), CHAT(",\"max_completion_tokens\":5.0"), SAME);
    assert_pair(ASK_CHAT, CHAT(",\"max_tokens\":5,\"max_new\":1"), CHAT(",\"max_new\":1,\"max_completion_tokens\":5"),
                SAME);
    assert_pair(ASK_CHAT, CHAT(""),
                CHAT(",\"user\":\"x\",\"metadata\":{},\"store\":true,\"stream_options\":{},\"service_tier\":\"a\""),
                SAME);
    assert_pair(ASK_CHAT, CHAT(""),
                CHAT(",\"safety_identifier\":\"x\",\"prompt_cache_key\":\"k\",\"prompt_cache_retention\":\"24h\""),
                SAME);
    assert_pair(ASK_CHAT, CHAT(""),
                CHAT(",\"request_id\":\"x\",\"session_id\":\"k\",\"priority\":1,\"cache_salt\":\"s\",\"cache\":{}"),
                SAME);
    assert_pair(ASK_CHAT, CHAT(""),
                CHAT(",\"kv_transfer_params\":{},\"cache_prompt\":true,\"id_slot\":1,\"timings_per_token\":true"),
                SAME);
    assert_pair(ASK_CHAT, SAY(USER), SAY("{\"id\":\"x\",\"role\":\"user\",\"content\":\"q\",\"name\":null}"), SAME);
}

static void other_requests(void **state)
{
    (void)state;
    static const char *const more[] = {
        ",\"n\":2",
        ",\"stream\":true",
        ",\"top_k\":1",
        ",\"top_k\":2",
        ",\"top_k\":\"1\"",
        ",\"top_k\":true",
        ",\"top_k\":[1]",
        ",\"top_k\":[[1]]",
        ",\"top_k\":[]",
        ",\"top_k\":{}",
        ",\"top_k\":{\"a\":null}",
        ",\"top_k\":[null]",
        ",\"top_k\":[1,2]",
        ",\"top_k\":[2,1]",
        ",\"seed\":9007199254740992",
        ",\"seed\":9007199254740993",
        ",\"seed\":0.1",
        ",\"seed\":0.1000000000000000055511151231257827",
        ",\"chat_template_kwargs\":{\"thinking\":true}",
        ",\"chat_template_kwargs\":{\"thinking\":false}",
        ",\"reasoning_effort\":\"low\"",
        ",\"max_tokens\":5",
        ",\"max_tokens\":6",
        ",\"max_tokens\":5,\"max_completion_tokens\":5",
        ",\"max_tokens\":5,\"max_completion_tokens\":6",
        ",\"limit\":5",
        ",\"documents\":[]",
        ",\"grammar\":\"g\"",
        ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"default\":null}}}]",
        ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{}}}]",
        ",\"User\":\"x\"",
        ",\"x\":{\"user\":\"x\"}",
        ",\"x\":{}",
        ",\"temperature\":0.7",
        ""};
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        for (size_t j = 0; j < i; j++) {
            char a[512], b[512];
            snprintf(a, sizeof a, CHAT("%s"), more[i]);
            snprintf(b, sizeof b, CHAT("%s"), more[j]);
            assert_pair(ASK_CHAT, a, b, OTHER);
        }
    assert_pair(ASK_COMPLETIONS, "{\"prompt\":\"a\",\"max_tokens\":5}",
                "{\"prompt\":\"a\",\"max_completion_tokens\":5}", OTHER);
}

/* Lists of numbers, of which runs are written in one piece. */
static void lists_of_numbers(void **state)
{
    (void)state;
    static const char *const same[] = {"[0,10,7,20,3]",      "[0,10, 7,20,3]",     " [ 0 , 10 , 7 , 20 , 3 ] ",
                                       "[0,1e1,7.0,2E1,3]",  "[-0,10,7,20,30e-1]", "[0.0,100e-1,7,20.00,3]",
                                       "[0\n,\t10,\r7,20,3]"};
    struct strict json = {0};
    static const char *const others[] = {"[0,10,7,20]",       "[0,10,7,20,3,3]", "[0,10,7,203]",
                                         "[0,1,0,7,20,3]",    "[0,10,7,2,3]",    "[0,10,[7,20],3]",
                                         "[0,10,\"7\",20,3]", "[0,10,7,20,-3]",  "[0,10,7,20,null,3]"};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        char *text;
        size_t bytes;
        assert_int_equal(strict_read(&json, same[i], strlen(same[i]), NULL), 0);
        assert_int_equal(canonical_json(&json, &text, &bytes, NULL), 0);
        assert_true(bytes == 15 && memcmp(text, "[0,1e1,7,2e1,3]", 15) == 0);
        free(text);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        char one[200], two[200];
        snprintf(one, sizeof one, "{\"prompt\":\"a\",\"x\":%s}", same[i % 3]);
        snprintf(two, sizeof two, "{\"prompt\":\"a\",\"x\":%s}", others[i]);
        assert_pair(ASK_COMPLETIONS, one, two, OTHER);
    }
    strict_fini(&json);
}

static void questions(void **state)
{
    (void)state;
    assert_pair(ASK_CHAT, SAY(USER), SAY("{\"role\":\"user\",\"content\":\"p\"}"), SAME_GROUP);
    assert_pair(ASK_CHAT, SAY(USER), SAY("{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"q\"}]}"),
                SAME_GROUP);
    assert_pair(
        ASK_CHAT, SAY("{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"ab\"}]}"),
        SAY("{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"text\":\"b\",\"type\":\"text\"}]}"),
        SAME_GROUP);
    assert_pair(ASK_CHAT, SAY("{\"role\":\"user\",\"content\":\"?\"}"), SAY("{\"role\":\"user\",\"content\":\"\"}"),
                OTHER);
    assert_pair(ASK_CHAT, SAY(USER), SAY("{\"role\":\"user\",\"content\":\"q\",\"name\":\"bob\"}"), OTHER);
    assert_pair(ASK_CHAT, SAY(USER "," USER), SAY("{\"role\":\"user\",\"content\":\"p\"}," USER), OTHER);
    assert_pair(ASK_CHAT, SAY(USER), SAY("{\"role\":\"assistant\",\"content\":\"q\"}"), OTHER);
    assert_pair(ASK_CHAT, SAY("{\"role\":\"assistant\",\"content\":\"q\"}"),
                SAY("{\"role\":\"assistant\",\"content\":\"p\"}"), OTHER);
    assert_pair(ASK_CHAT, SAY("{\"role\":\"system\",\"content\":\"a\"}," USER),
                SAY("{\"role\":\"system\",\"content\":\"b\"}," USER), OTHER);
    assert_pair(ASK_CHAT, SAY("{\"role\":\"system\",\"content\":\"a\"}," USER),
                SAY("{\"role\":\"developer\",\"content\":\"a\"}," USER), OTHER);
    assert_pair(ASK_CHAT,
                SAY("{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"image_url\","
                    "\"image_url\":{\"url\":\"u\"}}]}"),
                SAY("{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"b\"},{\"type\":\"image_url\","
                    "\"image_url\":{\"url\":\"u\"}}]}"),
                OTHER);
    assert_pair(ASK_COMPLETIONS, "{\"prompt\":\"a\"}", "{\"prompt\":\"b\"}", SAME_GROUP);
    assert_pair(ASK_COMPLETIONS, "{\"prompt\":\"a\"}", "{\"prompt\":[\"a\"]}", OTHER);
    assert_pair(ASK_RESPONSES, "{\"input\":\"a\",\"store\":false}", "{\"input\":\"b\",\"store\":false}", OTHER);
    assert_pair(ASK_RESPONSES, "{\"input\":\"a\",\"store\":false}", "{\"store\":true,\"input\":\"a\"}", SAME);
}

#define CALLED(id, id2)                                                                                                \
    SAY("{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"" id                                       \
        "\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}},"                                \
        "{\"id\":\"" id2 "\",\"type\":\"function\",\"function\":{\"name\":\"g\",\"arguments\":\"{}\"}}]}")
#define RESULT(id, id2, first, second)                                                                                 \
    SAY("{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"" id "\"},{\"id\":\"" id2                                   \
        "\"}]},{\"role\":\"tool\",\"tool_call_id\":\"" first                                                           \
        "\",\"content\":\"1\"},{\"role\":\"tool\",\"tool_call_id\":\"" second "\",\"content\":\"2\"}")

static void ids_of_calls(void **state)
{
    (void)state;
    assert_pair(ASK_CHAT, CALLED("call_1", "call_2"), CALLED("x", "y"), SAME);
    assert_pair(ASK_CHAT, CALLED("call_1", "call_2"), CALLED("x", "x"), OTHER);
    assert_pair(ASK_CHAT, RESULT("a", "b", "a", "b"), RESULT("x", "y", "x", "y"), SAME);
    assert_pair(ASK_CHAT, RESULT("a", "b", "a", "b"), RESULT("x", "y", "y", "x"), OTHER);
    assert_pair(ASK_CHAT, RESULT("a", "b", "a", "b"), RESULT("b", "a", "b", "a"), SAME);
    assert_pair(ASK_CHAT, SAY("{\"role\":\"tool\",\"tool_call_id\":1,\"content\":\"x\"}"),
                SAY("{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":\"x\"}"), OTHER);
    assert_pair(ASK_CHAT, SAY("{\"role\":\"tool\",\"tool_call_id\":\"@1\",\"content\":\"x\"}"),
                SAY("{\"role\":\"tool\",\"tool_call_id\":\"z\",\"content\":\"x\"}"), SAME);
    assert_pair(ASK_MESSAGES,
                SAY("{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\",\"id\":\"a\"}]},{\"role\":\"user\","
                    "\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"a\"}]}"),
                SAY("{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\",\"id\":\"b\"}]},{\"role\":\"user\","
                    "\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"b\"}]}"),
                SAME);
    assert_pair(ASK_RESPONSES,
                "{\"input\":[{\"type\":\"function_call\",\"call_id\":\"a\"},{\"type\":\"function_call_output\",\"call_"
                "id\":\"a\"}]}",
                "{\"input\":[{\"type\":\"function_call\",\"call_id\":\"b\"},{\"type\":\"function_call_output\",\"call_"
                "id\":\"b\"}]}",
                SAME);
    assert_pair(ASK_RESPONSES, "{\"input\":[{\"type\":\"message\",\"role\":\"user\",\"id\":\"a\"}]}",
                "{\"input\":[{\"type\":\"message\",\"role\":\"user\",\"id\":\"b\"}]}", OTHER);
}

/* Ten thousand ids, so that the table grows and is given back. */
static void many_ids(void **state)
{
    (void)state;
    enum { N = 10000 };
    struct canonical_keys keys[2];
    char *body = malloc(N * 64);
    assert_non_null(body);
    for (int k = 0; k < 2; k++) {
        size_t n = (size_t)sprintf(body, "{\"messages\":[");
        for (int i = 0; i < N; i++)
            n += (size_t)sprintf(body + n, "%s{\"role\":\"tool\",\"tool_call_id\":\"%d\"}", i ? "," : "",
                                 k ? N - i : i * 3);
        sprintf(body + n, "]}");
        keys[k] = keys_of(ASK_CHAT, body);
    }
    assert_memory_equal(keys[0].hash, keys[1].hash, sizeof keys[0].hash);
    free(body);
}

static void what_the_gateway_adds(void **state)
{
    (void)state;
    const struct canonical_options plain = options;
    static const char *const more[] = {"x_trace", "y"};
    struct canonical_keys a = keys_of(ASK_CHAT, CHAT("")), b;
    options.path = "/v1/completions";
    b = keys_of(ASK_CHAT, CHAT(""));
    assert_memory_not_equal(a.compat, b.compat, sizeof a.compat);
    options = plain;
    options.upstream = "other";
    b = keys_of(ASK_CHAT, CHAT(""));
    assert_memory_not_equal(a.compat, b.compat, sizeof a.compat);
    options = plain;
    options.model = (struct strict_text){"real", 4};
    b = keys_of(ASK_CHAT, CHAT(""));
    assert_memory_not_equal(a.compat, b.compat, sizeof a.compat);
    options.model = (struct strict_text){"m", 1};
    b = keys_of(ASK_CHAT, "{\"model\":\"alias\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}");
    assert_memory_equal(a.hash, b.hash, sizeof a.hash);
    options = plain;
    options.ignore = more;
    options.n_ignore = 2;
    b = keys_of(ASK_CHAT, CHAT(",\"x_trace\":5,\"y\":{}"));
    assert_memory_equal(a.hash, b.hash, sizeof a.hash);
    b = keys_of(ASK_CHAT, CHAT(",\"x_tracer\":5"));
    assert_memory_not_equal(a.hash, b.hash, sizeof a.hash);
    options = plain;
    assert_true(canonical_ignores("user") && !canonical_ignores("top_k") && !canonical_ignores("use"));
}

#define SYSTEM(text) SAY("{\"role\":\"system\",\"content\":\"" text "\"}," USER)

static void masked_texts(void **state)
{
    (void)state;
    assert_pair(ASK_CHAT, SYSTEM("It is 2026-11-23T18:05:10Z."), SYSTEM("It is 2026-11-24T09:00:00Z."), OTHER);
    options.masks = MASK_ISO_TIME | MASK_UUID | MASK_DATE;
    assert_pair(ASK_CHAT, SYSTEM("It is 2026-11-23T18:05:10Z."), SYSTEM("It is 2026-11-24T09:00:00Z."), SAME);
    assert_pair(ASK_CHAT, SYSTEM("\\n2026-11-23 a"), SYSTEM("\\n2025-01-01 a"), SAME);
    assert_pair(ASK_CHAT, SYSTEM("\\n2026-11-23 a"), SYSTEM("\\n2025-01-01 b"), OTHER);
    assert_pair(ASK_CHAT, SYSTEM("a\\u0001"), SYSTEM("a2026-11-23"), OTHER);
    assert_pair(ASK_CHAT, SYSTEM("\\u0001"), SYSTEM("2026-11-23"), OTHER);
    assert_pair(ASK_CHAT, SAY("{\"role\":\"system\",\"content\":[{\"type\":\"text\",\"text\":\"2026-11-23\"}]}," USER),
                SAY("{\"role\":\"system\",\"content\":[{\"type\":\"text\",\"text\":\"2026-11-24\"}]}," USER), SAME);
    assert_pair(ASK_CHAT, SAY("{\"role\":\"user\",\"content\":\"2026-11-23\"}," USER),
                SAY("{\"role\":\"user\",\"content\":\"2026-11-24\"}," USER), OTHER);
    assert_pair(ASK_CHAT, SAY("{\"role\":\"system\",\"content\":\"x\",\"name\":\"2026-11-23\"}," USER),
                SAY("{\"role\":\"system\",\"content\":\"x\",\"name\":\"2026-11-24\"}," USER), OTHER);
    assert_pair(ASK_RESPONSES, "{\"input\":\"q\",\"instructions\":\"on 2026-11-23\"}",
                "{\"input\":\"q\",\"instructions\":\"on 2026-11-24\"}", SAME);
    assert_pair(ASK_MESSAGES, "{\"system\":\"on 2026-11-23\",\"messages\":[" USER "]}",
                "{\"system\":\"on 2026-11-24\",\"messages\":[" USER "]}", SAME);
    options.masks = 0;
}

static void items(void **state)
{
    (void)state;
    uint8_t one[CANONICAL_HASH_BYTES], other[CANONICAL_HASH_BYTES];
    struct canonical_keys keys = keys_of(ASK_EMBEDDINGS, "{\"model\":\"e\",\"input\":\"b\"}");
    assert_int_equal(canonical_item(canonical, &text_ask, &keys, 0, one, NULL), 0);
    assert_int_equal(canonical_item(canonical, &text_ask, &keys, 1, other, NULL), QUIRE_EINVALID);
    keys = keys_of(ASK_EMBEDDINGS, "{\"input\":[\"a\",\"\\u0062\"],\"model\":\"e\",\"user\":\"x\"}");
    assert_int_equal(canonical_item(canonical, &text_ask, &keys, 1, other, NULL), 0);
    assert_memory_equal(one, other, sizeof one);
    assert_int_equal(canonical_item(canonical, &text_ask, &keys, 0, other, NULL), 0);
    assert_memory_not_equal(one, other, sizeof one);
    keys = keys_of(ASK_EMBEDDINGS, "{\"model\":\"e\",\"input\":\"b\",\"encoding_format\":\"base64\"}");
    assert_int_equal(canonical_item(canonical, &text_ask, &keys, 0, other, NULL), 0);
    assert_memory_not_equal(one, other, sizeof one);
    keys = keys_of(ASK_EMBEDDINGS, "{\"model\":\"e\",\"input\":[1,2.0]}");
    assert_int_equal(canonical_item(canonical, &text_ask, &keys, 0, one, NULL), 0);
    keys = keys_of(ASK_EMBEDDINGS, "{\"model\":\"e\",\"input\":[[5],[1,2]]}");
    assert_int_equal(canonical_item(canonical, &text_ask, &keys, 1, other, NULL), 0);
    assert_memory_equal(one, other, sizeof one);
}

static void forms(void **state)
{
    (void)state;
    char *text;
    size_t bytes;
    const char *wanted =
        "{\"v\":1,\"path\":\"/v1/chat/"
        "completions\",\"upstream\":\"up\",\"model\":\"m\",\"limit\":7,\"body\":{\"messages\":"
        "[{\"content\":\"s\",\"role\":\"system\"},{\"role\":\"assistant\",\"tool_calls\":[{\"id\":@1}]},{\"content\":?,"
        "\"role\":\"user\"}],\"temperature\":7e-1}}";
    const struct ask *ask = text_asked(
        ASK_CHAT,
        "{\"model\":\"m\",\"temperature\":0.70,\"messages\":[{\"role\":\"system\",\"content\":\"s\"},{\"role\":"
        "\"assistant\",\"tool_calls\":[{\"id\":\"c1\"}]},{\"role\":\"user\",\"content\":\"q\"}],\"max_tokens\":7}");
    assert_int_equal(canonical_form(canonical, ask, &options, &text, &bytes, NULL), 0);
    assert_int_equal(bytes, strlen(wanted));
    assert_memory_equal(text, wanted, bytes);
    free(text);
    /* a changed rule must change CANONICAL_VERSION, and this with it */
    struct canonical_keys keys;
    char hex[65];
    assert_int_equal(canonical_keys(canonical, ask, &options, &keys, NULL), 0);
    for (int i = 0; i < 32; i++)
        sprintf(hex + 2 * i, "%02x", keys.compat[i]);
    assert_string_equal(hex, "d944ef771090857caa9015deaa5e7c09e903abdc8e0c63c1ae89996025d73456");
    for (int i = 0; i < 32; i++)
        sprintf(hex + 2 * i, "%02x", keys.hash[i]);
    assert_string_equal(hex, "bced9686f7cd731a87bca15b3c45ffd550d851011c7db8cfe2caccd2815338f9");
}

static void canonical_text(void **state)
{
    (void)state;
    char *text;
    size_t bytes;
    static const char from[] = " {\"b\":[1.0,\"\\u00e9\\/\"],\"a\":{\"\\n\":null}} ",
                      wanted[] = "{\"a\":{\"\\n\":null},\"b\":[1,\"\xc3\xa9/\"]}";
    assert_int_equal(strict_read(&text_json, from, sizeof from - 1, NULL), 0);
    assert_int_equal(canonical_json(&text_json, &text, &bytes, NULL), 0);
    assert_int_equal(bytes, sizeof wanted - 1);
    assert_memory_equal(text, wanted, bytes);
    free(text);
}

static void odd_has_no_key(void **state)
{
    (void)state;
    struct canonical_keys keys;
    struct quire_error err;
    const struct ask *ask = text_asked(ASK_CHAT, CHAT(",\"stream\":\"yes\""));
    assert_int_equal(canonical_keys(canonical, ask, &options, &keys, &err), QUIRE_EINVALID);
    assert_string_equal(err.message, "the request has no key: stream is neither true nor false");
}

static int set_up(void **state)
{
    (void)state;
    options = (struct canonical_options){.path = "/v1/chat/completions", .upstream = "up"};
    return canonical_create(&canonical, NULL);
}

static int tear_down(void **state)
{
    (void)state;
    canonical_destroy(canonical);
    text_fini();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forms_of_one_request),
        cmocka_unit_test(other_requests),
        cmocka_unit_test(lists_of_numbers),
        cmocka_unit_test(questions),
        cmocka_unit_test(ids_of_calls),
        cmocka_unit_test(many_ids),
        cmocka_unit_test(what_the_gateway_adds),
        cmocka_unit_test(masked_texts),
        cmocka_unit_test(items),
        cmocka_unit_test(forms),
        cmocka_unit_test(canonical_text),
        cmocka_unit_test(odd_has_no_key),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
