/* test_answer.c - which answers are kept, and why others are not: streams and bodies of every route, by hand. */
#include "gateway/text/answer.h"
#include "tests/gateway/support_text.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct answer answer;
static unsigned seen[64]; /* of each event */
static uint32_t n_seen;

static enum answer_verdict judge_stream(const struct answer_options *options, const char *stream)
{
    struct sse sse;
    struct sse_event event;
    size_t n = strlen(stream);
    sse_init(&sse, 1 << 16);
    answer_begin(&answer, options, &text_json);
    n_seen = 0;
    for (enum sse_status status; (status = sse_next(&sse, &stream, &n, &event)) != SSE_MORE;)
        if (status == SSE_EVENT)
            seen[n_seen++] = answer_event(&answer, &event);
        else
            answer_part(&answer);
    while (sse_end(&sse, &event) != SSE_MORE)
        answer_part(&answer);
    sse_fini(&sse);
    return answer_end(&answer);
}

static enum answer_verdict judge_json(const struct answer_options *options, const char *body)
{
    answer_begin(&answer, options, &text_json);
    return answer_json(&answer, body, strlen(body));
}

/* A reason is there if and only if the answer is not kept. */
static void assert_verdict(enum answer_verdict got, enum answer_verdict wanted, const char *text)
{
    if (got != wanted || (got == ANSWER_KEEP) != (answer.refused == NULL))
        fail_msg("%s: %d, %s", text, got, answer.refused ? answer.refused : "");
}

#define DELTA(delta, end)                                                                                              \
    "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":" delta ",\"finish_reason\":" end "}]}\n\n"
#define HI    DELTA("{\"role\":\"assistant\",\"content\":\"hi\"}", "null")
#define STOP  DELTA("{}", "\"stop\"")
#define DONE  "data: [DONE]\n\n"
#define USAGE "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4,\"total_tokens\":7}}\n\n"

static void chat_streams(void **state)
{
    (void)state;
    const struct answer_options options = {.kind = ASK_CHAT, .n = 1};
    static const struct {
        const char *stream;
        enum answer_verdict verdict;
    } cases[] = {
        {HI STOP DONE, ANSWER_KEEP},
        {HI STOP USAGE DONE, ANSWER_KEEP},
        {": quiet\n\n" HI ": quiet\n\n" STOP DONE, ANSWER_KEEP},
        {HI DELTA("{\"content\":\"\"}", "\"stop\"") DELTA("{\"content\":\"\"}", "null") DONE, ANSWER_KEEP},
        {DELTA("{\"reasoning_content\":\"hm\"}", "null") HI STOP DONE, ANSWER_KEEP},
        {HI STOP DONE DONE, ANSWER_KEEP}, /* some servers end twice */
        {HI STOP, ANSWER_NOT},
        {HI DONE, ANSWER_NOT},
        {HI, ANSWER_NOT},
        {"", ANSWER_NOT},
        {DONE, ANSWER_NOT},
        {STOP DONE, ANSWER_NOT},
        {DELTA("{\"reasoning_content\":\"hm\"}", "null") STOP DONE, ANSWER_NOT},
        {HI DELTA("{}", "\"length\"") DONE, ANSWER_NOT},
        {HI DELTA("{}", "\"tool_calls\"") DONE, ANSWER_NOT},
        {HI DELTA("{}", "\"abort\"") DONE, ANSWER_NOT},
        {HI DELTA("{}", "5") DONE, ANSWER_NOT},
        {HI DELTA("{}", "\"content_filter\"") DONE, ANSWER_NEGATIVE},
        {HI DELTA("{\"refusal\":\"no\"}", "\"stop\"") DONE, ANSWER_NOT},
        {HI DELTA("{\"tool_calls\":[{\"index\":0}]}", "null") STOP DONE, ANSWER_NOT},
        {HI DELTA("{\"function_call\":{}}", "null") STOP DONE, ANSWER_NOT},
        {HI STOP HI DONE, ANSWER_NOT},
        {HI STOP DONE HI, ANSWER_NOT},
        {HI "data: {\"error\":{\"message\":\"x\"}}\n\n" STOP DONE, ANSWER_NOT},
        {HI DELTA("{}", "\"content_filter\"") "data: {\"error\":{}}\n\n" DONE, ANSWER_NOT},
        {HI "data: {\"choices\":[{\"index\":0,\"error\":{\"code\":502},\"finish_reason\":\"stop\"}]}\n\n" DONE,
         ANSWER_NOT},
        {HI "event: error\ndata: x\n\n" STOP DONE, ANSWER_NOT},
        {HI "error: {\"code\":500}\n\n" STOP DONE, ANSWER_NOT},
        {HI "data: not json\n\n" STOP DONE, ANSWER_NOT},
        {HI "data: {\"id\":1,\"id\":2}\n\n" STOP DONE, ANSWER_NOT},
        {HI STOP "data: [DONE]", ANSWER_NOT},
        {HI STOP DELTA("{\"index\":1}", "null") DONE, ANSWER_KEEP},
        {HI STOP
         "data: {\"choices\":[{\"index\":1,\"delta\":{\"content\":\"x\"},\"finish_reason\":\"stop\"}]}\n\n" DONE,
         ANSWER_NOT},
        {HI STOP "data: {\"choices\":[{\"index\":128}]}\n\n" DONE, ANSWER_NOT},
        {HI STOP "data: {\"choices\":{}}\n\n" DONE, ANSWER_NOT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_verdict(judge_stream(&options, cases[i].stream), cases[i].verdict, cases[i].stream);
}

#define CHOICE(i, delta, end)                                                                                          \
    "data: {\"choices\":[{\"index\":" i ",\"delta\":" delta ",\"finish_reason\":" end "}]}\n\n"

static void choices(void **state)
{
    (void)state;
    const struct answer_options two = {.kind = ASK_CHAT, .n = 2};
    static const char a[] = CHOICE("0", "{\"content\":\"x\"}", "\"stop\""),
                      b[] = CHOICE("1", "{\"content\":\"x\"}", "\"stop\""),
                      cut[] = CHOICE("1", "{\"content\":\"x\"}", "\"length\""),
                      open[] = CHOICE("1", "{\"content\":\"x\"}", "null"), mute[] = CHOICE("1", "{}", "\"stop\"");
    const struct {
        const char *other;
        enum answer_verdict verdict;
    } cases[] = {{b, ANSWER_KEEP}, {cut, ANSWER_NOT}, {open, ANSWER_NOT}, {mute, ANSWER_NOT}, {"", ANSWER_NOT}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char stream[1024];
        snprintf(stream, sizeof stream, "%s%s" DONE, a, cases[i].other);
        assert_verdict(judge_stream(&two, stream), cases[i].verdict, stream);
    }
}

static void usage(void **state)
{
    (void)state;
    const struct answer_options options = {.kind = ASK_CHAT};
    judge_stream(&options, ": x\n\n" HI STOP USAGE DONE);
    assert_int_equal(n_seen, 5);
    assert_int_equal(seen[0], ANSWER_SEEN_COMMENT);
    assert_int_equal(seen[1] | seen[2], 0);
    assert_int_equal(seen[3], ANSWER_SEEN_USAGE);
    assert_int_equal(seen[4], ANSWER_SEEN_LAST);
    assert_true(answer.has_usage && answer.prompt_tokens == 3 && answer.completion_tokens == 4);
    /* Azure's first chunk has no choices either, and is the client's */
    judge_stream(&options, "data: {\"choices\":[],\"prompt_filter_results\":[]}\n\n" HI STOP DONE);
    assert_int_equal(seen[0], 0);
    judge_stream(&options, "data: {\"usage\":{\"prompt_tokens\":3}}\n\n" HI STOP DONE);
    assert_int_equal(seen[0], 0);
    judge_stream(&options, "data: {\"choices\":[],\"usage\":null}\n\n" HI STOP DONE);
    assert_int_equal(seen[0], 0);
    assert_false(answer.has_usage);
}

static void errors(void **state)
{
    (void)state;
    const struct answer_options options = {.kind = ASK_CHAT};
    static const struct {
        const char *stream;
        int status;
    } first[] = {
        {"data: {\"error\":{\"message\":\"x\",\"code\":429}}\n\n", 429},
        {"data: {\"error\":{\"message\":\"x\",\"code\":\"503\"}}\n\n", 503},
        {"data: {\"error\":{\"message\":\"x\",\"type\":\"rate_limit_error\"}}\n\n", 429},
        {"data: {\"error\":{\"code\":\"rate_limit_exceeded\"}}\n\n", 429},
        {"data: {\"error\":\"broken\"}\n\n", 500},
        {"data: {\"error\":{\"code\":200}}\n\n", 500},
        {"data: {\"object\":\"error\",\"message\":\"x\",\"code\":400}\n\n", 400},
        {"error: {\"code\":400,\"message\":\"too long\"}\n\n", 400},
        {"error: x\n\n", 500},
        {"event: error\ndata: x\n\n", 500},
        {"event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n", 529},
    };
    for (size_t i = 0; i < sizeof first / sizeof *first; i++) {
        judge_stream(&options, first[i].stream);
        if (seen[0] != ANSWER_SEEN_ERROR || !answer.first_is_error || answer.error_status != first[i].status)
            fail_msg("%s: %d", first[i].stream, answer.error_status);
    }
    judge_stream(&options, ": x\n\ndata: {\"error\":{\"code\":429}}\n\n");
    assert_true(answer.first_is_error);
    judge_stream(&options, HI "data: {\"error\":{\"code\":429}}\n\n");
    assert_true(!answer.first_is_error && answer.error_status == 429 && seen[1] == ANSWER_SEEN_ERROR);
}

#define BODY(message, end)                                                                                             \
    "{\"choices\":[{\"index\":0,\"message\":" message ",\"finish_reason\":" end                                        \
    "}],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2}}"

static void chat_bodies(void **state)
{
    (void)state;
    const struct answer_options options = {.kind = ASK_CHAT, .n = 1}, tools = {.kind = ASK_CHAT, .n = 1, .tools = true};
    static const char *const calls[] = {BODY("{\"content\":null,\"tool_calls\":[{}]}", "\"tool_calls\""),
                                        BODY("{\"content\":\"x\",\"tool_calls\":[{}]}", "\"stop\"")};
    assert_verdict(judge_json(&options, BODY("{\"content\":\"x\"}", "\"stop\"")), ANSWER_KEEP, "");
    assert_true(answer.has_usage && answer.prompt_tokens == 1 && answer.completion_tokens == 2);
    assert_verdict(judge_json(&options, BODY("{\"content\":[{\"type\":\"text\",\"text\":\"x\"}]}", "\"stop\"")),
                   ANSWER_KEEP, "");
    static const char *const others[] = {
        BODY("{\"content\":\"\"}", "\"stop\""),
        BODY("{\"content\":null}", "\"stop\""),
        BODY("{\"content\":\"x\"}", "\"length\""),
        BODY("{\"content\":\"x\"}", "null"),
        BODY("{\"content\":\"x\",\"refusal\":\"no\"}", "\"stop\""),
        "{}",
        "[]",
        "",
        "x",
        "{\"choices\":[]}",
        "{\"error\":{}}",
        "{\"choices\":[5]}",
        "{\"error\":{\"code\":429},\"choices\":[{\"message\":{\"content\":\"x\"},\"finish_reason\":\"stop\"}]}"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_verdict(judge_json(&options, others[i]), ANSWER_NOT, others[i]);
    assert_verdict(judge_json(&options, BODY("{\"content\":\"x\"}", "\"content_filter\"")), ANSWER_NEGATIVE, "");
    for (size_t i = 0; i < 2; i++) {
        assert_verdict(judge_json(&options, calls[i]), ANSWER_NOT, calls[i]);
        assert_verdict(judge_json(&tools, calls[i]), ANSWER_KEEP, calls[i]);
    }
    assert_verdict(
        judge_stream(&tools, DELTA("{\"tool_calls\":[{\"index\":0}]}", "null") DELTA("{}", "\"tool_calls\"") DONE),
        ANSWER_KEEP, "");
}

static void completions(void **state)
{
    (void)state;
    const struct answer_options options = {.kind = ASK_COMPLETIONS};
    assert_verdict(judge_json(&options, "{\"choices\":[{\"index\":0,\"text\":\"x\",\"finish_reason\":\"stop\"},{"
                                        "\"index\":1,\"text\":\"y\",\"finish_reason\":\"stop\"}]}"),
                   ANSWER_KEEP, "");
    assert_verdict(judge_json(&options, "{\"choices\":[{\"index\":0,\"text\":\"x\",\"finish_reason\":\"length\"}]}"),
                   ANSWER_NOT, "");
    assert_verdict(judge_stream(&options,
                                "data: {\"choices\":[{\"index\":0,\"text\":\"x\",\"finish_reason\":null}]}\n\ndata: "
                                "{\"choices\":[{\"index\":0,\"text\":\"\","
                                "\"finish_reason\":\"stop\"}]}\n\n" DONE),
                   ANSWER_KEEP, "");
}

#define RESPONSE(status, output, more)                                                                                 \
    "{\"id\":\"r\",\"status\":\"" status "\",\"output\":[" output                                                      \
    "],\"error\":null,\"incomplete_details\":null,\"usage\":{\"input_tokens\":5,\"output_tokens\":6}" more "}"
#define SAID                                                                                                           \
    "{\"type\":\"message\",\"status\":\"completed\","                                                                  \
    "\"content\":[{\"type\":\"output_text\",\"text\":\"x\"}]}"
#define EVENT(type, more) "event: " type "\ndata: {\"type\":\"" type "\"" more "}\n\n"

static void responses(void **state)
{
    (void)state;
    const struct answer_options options = {.kind = ASK_RESPONSES}, tools = {.kind = ASK_RESPONSES, .tools = true};
    static const char created[] = EVENT("response.created", ",\"response\":{\"status\":\"in_progress\"}")
        EVENT("response.output_text.delta", ",\"delta\":\"x\"");
    static const struct {
        const char *body;
        enum answer_verdict verdict;
    } cases[] = {
        {RESPONSE("completed", SAID, ""), ANSWER_KEEP},
        {RESPONSE("completed", "{\"type\":\"reasoning\"}," SAID, ""), ANSWER_KEEP},
        {RESPONSE("completed", "", ""), ANSWER_NOT},
        {RESPONSE("incomplete", SAID, ""), ANSWER_NOT},
        {RESPONSE("in_progress", SAID, ""), ANSWER_NOT},
        {RESPONSE("completed", "{\"type\":\"function_call\"}", ""), ANSWER_NOT},
        {RESPONSE("completed", "{\"type\":\"web_search_call\"}," SAID, ""), ANSWER_NOT},
        {RESPONSE("completed", "{\"type\":\"message\",\"content\":[{\"type\":\"refusal\",\"refusal\":\"no\"}]}", ""),
         ANSWER_NOT},
        {RESPONSE(
             "completed",
             "{\"type\":\"message\",\"status\":\"incomplete\",\"content\":[{\"type\":\"output_text\",\"text\":\"x\"}]}",
             ""),
         ANSWER_NOT},
        {"{\"status\":\"incomplete\",\"incomplete_details\":{\"reason\":\"content_filter\"},\"output\":[]}",
         ANSWER_NEGATIVE},
        {"{\"status\":\"failed\",\"error\":{\"code\":\"server_error\"},\"output\":[" SAID "]}", ANSWER_NOT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char stream[2048];
        bool completed = strstr(cases[i].body, "\"status\":\"completed\",\"output\"") != NULL;
        assert_verdict(judge_json(&options, cases[i].body), cases[i].verdict, cases[i].body);
        snprintf(stream, sizeof stream, "%sevent: x\ndata: {\"type\":\"response.%s\",\"response\":%s}\n\n", created,
                 completed ? "completed" : "incomplete", cases[i].body);
        assert_verdict(judge_stream(&options, stream), cases[i].verdict, stream);
    }
    assert_verdict(judge_json(&tools, RESPONSE("completed", "{\"type\":\"function_call\"}", "")), ANSWER_KEEP, "");
    assert_verdict(judge_json(&options, cases[0].body), ANSWER_KEEP, "");
    assert_true(answer.prompt_tokens == 5 && answer.completion_tokens == 6);
    assert_verdict(judge_stream(&options, created), ANSWER_NOT, created);
    assert_verdict(
        judge_stream(&options,
                     EVENT("response.failed",
                           ",\"response\":{\"status\":\"failed\",\"error\":{\"code\":\"rate_limit_exceeded\"}}")),
        ANSWER_NOT, "");
    assert_true(answer.first_is_error && answer.error_status == 429);
    assert_int_equal(seen[0], ANSWER_SEEN_LAST | ANSWER_SEEN_ERROR);
    assert_verdict(judge_stream(&options, EVENT("error", ",\"code\":\"x\",\"message\":\"y\"")), ANSWER_NOT, "");
    assert_int_equal(answer.error_status, 500);
}

#define START                                                                                                          \
    EVENT("message_start", ",\"message\":{\"id\":\"m\",\"content\":[],\"stop_reason\":null,\"usage\":{\"input_"        \
                           "tokens\":9,\"output_tokens\":1}}")
#define TEXT                                                                                                           \
    EVENT("content_block_start", ",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}")                   \
    EVENT("ping", "") EVENT("content_block_delta", ",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"x\"}")
#define ENDS(reason)                                                                                                   \
    EVENT("message_delta", ",\"delta\":{\"stop_reason\":\"" reason "\"},\"usage\":{\"output_tokens\":12}")
#define LAST EVENT("message_stop", "")

static void messages(void **state)
{
    (void)state;
    const struct answer_options options = {.kind = ASK_MESSAGES}, tools = {.kind = ASK_MESSAGES, .tools = true};
    static const struct {
        const char *stream;
        enum answer_verdict verdict;
    } cases[] = {
        {START TEXT ENDS("end_turn") LAST, ANSWER_KEEP},
        {START TEXT ENDS("stop_sequence") LAST, ANSWER_KEEP},
        {START TEXT ENDS("max_tokens") LAST, ANSWER_NOT},
        {START TEXT ENDS("pause_turn") LAST, ANSWER_NOT},
        {START TEXT ENDS("tool_use") LAST, ANSWER_NOT},
        {START TEXT ENDS("refusal") LAST, ANSWER_NEGATIVE},
        {START TEXT ENDS("end_turn"), ANSWER_NOT},
        {START TEXT LAST, ANSWER_NOT},
        {START ENDS("end_turn") LAST, ANSWER_NOT},
        {START TEXT EVENT("error", ",\"error\":{\"type\":\"overloaded_error\"}"), ANSWER_NOT},
        {START EVENT("content_block_start", ",\"content_block\":{\"type\":\"tool_use\",\"id\":\"t\"}")
             TEXT ENDS("end_turn") LAST,
         ANSWER_NOT},
        {START EVENT("content_block_start", ",\"content_block\":{\"type\":\"server_tool_use\",\"id\":\"t\"}")
             TEXT ENDS("end_turn") LAST,
         ANSWER_NOT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_verdict(judge_stream(&options, cases[i].stream), cases[i].verdict, cases[i].stream);
    judge_stream(&options, cases[0].stream);
    assert_true(answer.prompt_tokens == 9 && answer.completion_tokens == 12);
    assert_verdict(judge_stream(&tools, START EVENT("content_block_start", ",\"content_block\":{\"type\":\"tool_use\"}")
                                            ENDS("tool_use") LAST),
                   ANSWER_KEEP, "");
    assert_verdict(judge_json(&options, "{\"type\":\"message\",\"content\":[{\"type\":\"text\",\"text\":\"x\"}],\"stop_"
                                        "reason\":\"end_turn\",\"usage\":{\"input_tokens\":1,\"output_tokens\":2}}"),
                   ANSWER_KEEP, "");
    assert_verdict(
        judge_json(
            &options,
            "{\"type\":\"message\",\"content\":[{\"type\":\"text\",\"text\":\"x\"}],\"stop_reason\":\"max_tokens\"}"),
        ANSWER_NOT, "");
    assert_verdict(judge_json(&options, "{\"type\":\"message\",\"content\":[{\"type\":\"text\",\"text\":\"x\"}]}"),
                   ANSWER_NOT, "");
    assert_verdict(judge_json(&options, "{\"type\":\"error\",\"error\":{\"type\":\"rate_limit_error\"}}"), ANSWER_NOT,
                   "");
    assert_int_equal(answer.error_status, 429);
}

static void vectors(void **state)
{
    (void)state;
    const struct answer_options two = {.kind = ASK_EMBEDDINGS, .items = 2};
    static const char *const others[] = {"{\"data\":[]}",
                                         "{}",
                                         "{\"data\":[{\"index\":0,\"embedding\":[1]}]}",
                                         "{\"data\":[{\"index\":1,\"embedding\":[1]},{\"index\":0,\"embedding\":[1]}]}",
                                         "{\"data\":[{\"index\":0,\"embedding\":[1]},{\"index\":1,\"embedding\":[]}]}",
                                         "{\"data\":[{\"index\":0,\"embedding\":[1]},{\"index\":1}]}",
                                         "{\"error\":\"x\",\"data\":[]}",
                                         "{\"data\":[1,2]}"};
    assert_verdict(
        judge_json(&two,
                   "{\"data\":[{\"index\":0,\"embedding\":[1, "
                   "2.50]},{\"index\":1,\"embedding\":\"QUJD\"}],\"usage\":{\"prompt_tokens\":8,\"total_tokens\":8}}"),
        ANSWER_KEEP, "");
    struct answer_place place = {0};
    assert_true(text_says(answer_vector(&answer, &place), "[1, 2.50]"));
    assert_true(text_says(answer_vector(&answer, &place), "\"QUJD\""));
    assert_null(answer_vector(&answer, &place).data);
    assert_null(answer_vector(&answer, &place).data);
    assert_int_equal(answer.prompt_tokens, 8);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_verdict(judge_json(&two, others[i]), ANSWER_NOT, others[i]);
    assert_verdict(judge_stream(&two, HI DONE), ANSWER_NOT, "");
}

static void reasons(void **state)
{
    (void)state;
    static const struct {
        enum ask_kind kind;
        const char *body, *reason;
    } cases[] = {
        {ASK_CHAT, "{\"choices\":[{\"index\":0,\"message\":{\"content\":\"x\"},\"finish_reason\":\"length\"}]}", "cut"},
        {ASK_CHAT, "{\"choices\":[{\"index\":0,\"message\":{\"content\":\"\"},\"finish_reason\":\"stop\"}]}", "empty"},
        {ASK_CHAT, "{\"choices\":[{\"index\":0,\"message\":{\"content\":\"x\"}}]}", "unfinished"},
        {ASK_CHAT, "{\"error\":\"busy\"}", "error"},
        {ASK_CHAT, "busy", "malformed"},
        {ASK_RESPONSES,
         "{\"status\":\"incomplete\",\"incomplete_details\":{\"reason\":\"max_output_tokens\"},\"output\":[]}", "cut"},
        {ASK_RESPONSES,
         "{\"status\":\"incomplete\",\"incomplete_details\":{\"reason\":\"content_filter\"},\"output\":[]}",
         "filtered"},
        {ASK_RESPONSES, RESPONSE("in_progress", SAID, ""), "unfinished"},
        {ASK_MESSAGES, "{\"content\":[{\"type\":\"text\",\"text\":\"x\"}],\"stop_reason\":\"max_tokens\"}", "cut"},
        {ASK_MESSAGES, "{\"content\":[{\"type\":\"tool_use\"}],\"stop_reason\":\"tool_use\"}", "tool_call"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_not_equal(judge_json(&(struct answer_options){.kind = cases[i].kind}, cases[i].body), ANSWER_KEEP);
        if (strcmp(answer_reason_name(answer.reason), cases[i].reason) != 0)
            fail_msg("%s: %s", cases[i].body, answer_reason_name(answer.reason));
    }
}

static int tear_down(void **state)
{
    (void)state;
    text_fini();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chat_streams), cmocka_unit_test(choices),     cmocka_unit_test(usage),
        cmocka_unit_test(errors),       cmocka_unit_test(chat_bodies), cmocka_unit_test(completions),
        cmocka_unit_test(responses),    cmocka_unit_test(messages),    cmocka_unit_test(vectors),
        cmocka_unit_test(reasons),
    };
    return cmocka_run_group_tests(tests, NULL, tear_down);
}
