/* test_answer_texts.c - what answers say: each route, whole and as a stream, cut anywhere. */
#include "gateway/text/answer_texts.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* All texts, as "voice:text|". */
static const char *texts_of(enum ask_kind kind, const char *answer, bool events)
{
    static char out[1000];
    struct answer_texts texts;
    size_t n = 0;
    assert_int_equal(answer_texts_read(&texts, kind, answer, strlen(answer), events), 0);
    for (size_t i = 0; i < texts.n; i++) {
        assert_true(texts.items[i].text.bytes > 0);
        n += (size_t)snprintf(out + n, sizeof out - n, "%c:%.*s|", "stc"[texts.items[i].voice],
                              (int)texts.items[i].text.bytes, texts.items[i].text.data);
    }
    out[n] = 0;
    answer_texts_fini(&texts);
    assert_null(texts.items);
    return out;
}

#define EVENT(json)      "data: " json "\n\n"
#define DELTA(at, delta) EVENT("{\"choices\":[{\"index\":" at ",\"delta\":{" delta "}}]}")

static void chat(void **state)
{
    (void)state;
    assert_string_equal(
        texts_of(ASK_CHAT,
                 "{\"choices\":[{\"message\":{\"content\":\"a \\\"b\\\" \\u00e9\",\"reasoning\":\"r\"}},"
                 "{\"index\":1,\"message\":{\"content\":[{\"type\":\"text\",\"text\":\"c\"},"
                 "{\"type\":\"text\",\"text\":\"d\"}]}}]}",
                 false),
        "s:a \"b\" \xc3\xa9|t:r|s:cd|");
    assert_string_equal(texts_of(ASK_CHAT,
                                 "{\"choices\":[{\"message\":{\"content\":null,\"tool_calls\":[{\"function\":{"
                                 "\"arguments\":\"{1}\"}},{\"function\":{\"arguments\":\"{2}\"}}]}}]}",
                                 false),
                        "c:{1}|c:{2}|");
    /* choices and voices that take turns; comments; ends of lines */
    assert_string_equal(
        texts_of(
            ASK_CHAT,
            DELTA("0", "\"role\":\"assistant\",\"content\":\"\"") DELTA("1", "\"content\":\"on\"")
                DELTA("0", "\"reasoning_content\":\"hm\"") ": quire\n\n" DELTA("0", "\"content\":\"se\"") DELTA(
                    "1",
                    "\"content\":\"e\"") "data: {\"choices\":[{\"delta\":\r\n"
                                         "data: {\"content\":\"cret\"}}]}\r\n\r\n" DELTA(
                                             "0", "\"tool_calls\":[{\"index\":1,\"function\":{\"arguments\":\"x\"}}]")
                                             DELTA("0",
                                                   "\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"y\"}}]")
                                                 DELTA("0", "\"tool_calls\":[{\"index\":1,\"function\":{\"arguments\":"
                                                            "\"z\"}}]")
                                                     EVENT("{\"choices\":[],\"usage\":{}}") "data: [DONE]\n\n",
            true),
        "s:secret|t:hm|c:y|c:xz|s:one|");
    assert_string_equal(
        texts_of(ASK_COMPLETIONS, "{\"choices\":[{\"text\":\"a\"},{\"index\":1,\"text\":\"b\"}]}", false), "s:a|s:b|");
    assert_string_equal(texts_of(ASK_COMPLETIONS,
                                 EVENT("{\"choices\":[{\"text\":\"a\"}]}") EVENT("{\"choices\":[{\"text\":\"b\"}]}"),
                                 true),
                        "s:ab|");
}

#define OUTPUT                                                                                                         \
    "\"output\":[{\"type\":\"reasoning\",\"summary\":[{\"type\":\"summary_text\",\"text\":\"t\"}]},"                   \
    "{\"type\":\"message\",\"content\":[{\"type\":\"output_text\",\"text\":\"a\"},{\"type\":\"output_text\","          \
    "\"text\":\"b\"}]},{\"type\":\"function_call\",\"arguments\":\"{}\"}]"

static void responses(void **state)
{
    (void)state;
    assert_string_equal(texts_of(ASK_RESPONSES, "{" OUTPUT "}", false), "s:ab|t:t|c:{}|");
    assert_string_equal(texts_of(ASK_RESPONSES,
                                 EVENT("{\"type\":\"response.created\",\"response\":{\"output\":[]}}")
                                     EVENT("{\"type\":\"response.output_text.delta\",\"delta\":\"ab\"}")
                                         EVENT("{\"type\":\"response.completed\",\"response\":{" OUTPUT "}}"),
                                 true),
                        "s:ab|t:t|c:{}|");
}

static void messages(void **state)
{
    (void)state;
    assert_string_equal(
        texts_of(ASK_MESSAGES,
                 "{\"content\":[{\"type\":\"thinking\",\"thinking\":\"t\"},{\"type\":\"text\",\"text\":\"a\"},"
                 "{\"type\":\"text\",\"text\":\"b\"},{\"type\":\"tool_use\",\"input\":{\"n\":1,\"x\":\"y\"}}]}",
                 false),
        "s:ab|t:t|c:y|");
    assert_string_equal(
        texts_of(
            ASK_MESSAGES,
            EVENT("{\"type\":\"message_start\",\"message\":{\"content\":[]}}") EVENT(
                "{\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}")
                EVENT("{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":"
                      "\"se\"}}") EVENT("{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_"
                                        "delta\",\"text\":\"cret\"}}")
                    EVENT("{\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"partial_json\":\"{}\"}}")
                        EVENT("{\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}"),
            true),
        "s:secret|c:{}|");
}

static void nothing(void **state)
{
    static const char *const none[] = {"",
                                       "{",
                                       "[]",
                                       "{\"choices\":5}",
                                       "{\"choices\":[5,{\"message\":5}]}",
                                       "{\"output\":[5]}",
                                       "{\"content\":[5]}",
                                       "{\"data\":[{\"embedding\":[1]}]}"};
    (void)state;
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        for (enum ask_kind kind = ASK_CHAT; kind <= ASK_MESSAGES; kind++) {
            char event[100];
            snprintf(event, sizeof event, "data: %s\n\n", none[i]);
            assert_string_equal(texts_of(kind, none[i], false), "");
            assert_string_equal(texts_of(kind, event, true), "");
        }
    assert_string_equal(texts_of(ASK_CHAT, "data: {\"choices\":[{\"delta\":{\"content\":\"cut o", true), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(chat), cmocka_unit_test(responses), cmocka_unit_test(messages),
                                       cmocka_unit_test(nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
