/* test_replay.c - kept answers given again: what is replaced, what stays, and that no border moves. */
#include "gateway/text/replay.h"
#include "tests/gateway/support_text.h"
#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct replay replay;
static struct replay_options options;

/* Compares where `wanted` has a letter, digit or sign; `#` is a hexadecimal digit, `?` a letter or digit, each other
 * than in `from`, at least in one place. */
static void assert_like(const char *from, const char *got, const char *wanted)
{
    bool other = false, free_places = false;
    assert_int_equal(strlen(got), strlen(wanted));
    for (size_t i = 0; wanted[i]; i++) {
        bool fits = wanted[i] == '#'   ? isxdigit((unsigned char)got[i]) && !isupper((unsigned char)got[i])
                    : wanted[i] == '?' ? isalnum((unsigned char)got[i]) != 0
                                       : wanted[i] == got[i];
        if (!fits)
            fail_msg("%s\n%s at %zu", got, wanted, i);
        free_places |= wanted[i] == '#' || wanted[i] == '?';
        other |= from[i] != got[i];
    }
    assert_true(other || !free_places);
}

static void assert_json(const char *from, const char *wanted)
{
    char *copy = strdup(from);
    assert_non_null(copy);
    replay_json(&replay, &options, copy, strlen(copy));
    assert_like(from, copy, wanted);
    free(copy);
}

static void assert_event(const char *from, const char *wanted)
{
    char *copy = strdup(from);
    assert_non_null(copy);
    bool kept = replay_event(&replay, &options, copy, strlen(copy));
    assert_int_equal(kept, wanted != NULL);
    if (wanted)
        assert_like(from, copy, wanted);
    free(copy);
}

static void bodies(void **state)
{
    (void)state;
    assert_json("{\"id\":\"chatcmpl-AbC123xyz\", \"created\": 1700000000,\"choices\":[{\"id\":\"x-1\"}]}",
                "{\"id\":\"chatcmpl-?????????\", \"created\": 1900000000,\"choices\":[{\"id\":\"x-1\"}]}");
    assert_json("{\"id\":\"cmpl-0123456789abcdef-0\",\"created\":5}",
                "{\"id\":\"cmpl-################-#\",\"created\":5}");
    assert_json("{\"id\":\"123e4567-e89b-12d3-a456-426614174000\"}",
                "{\"id\":\"########-####-####-####-############\"}");
    assert_json("{\"id\":\"\",\"created\":1700000000.5}", "{\"id\":\"\",\"created\":1700000000.5}");
    assert_json("{\"id\":5,\"created\":\"1700000000\"}", "{\"id\":5,\"created\":\"1700000000\"}");
    assert_json("{\"id\":\"a\\u0062c\",\"created\":-170000000}", "{\"id\":\"a\\u0062c\",\"created\":-170000000}");
    assert_json("not json", "not json");
    assert_json("[1]", "[1]");
    options.same = true;
    assert_json("{\"id\":\"chatcmpl-1\",\"created\":1700000000}", "{\"id\":\"chatcmpl-1\",\"created\":1700000000}");
}

static void events(void **state)
{
    (void)state;
    assert_event("data: {\"id\":\"chatcmpl-ff0\",\"created\":1700000000,\"choices\":[]}\r\n\r\n",
                 "data: {\"id\":\"chatcmpl-###\",\"created\":1900000000,\"choices\":[]}\r\n\r\n");
    assert_event("event: x\ndata: {\"created\":\ndata: 1700000000,\"id\"\ndata: :\"ff0\"}\n\n",
                 "event: x\ndata: {\"created\":\ndata: 1900000000,\"id\"\ndata: :\"###\"}\n\n");
    assert_event("data: [DONE]\n\n", "data: [DONE]\n\n");
    assert_event("data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7}}\n\n",
                 "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7}}\n\n");
    options.drop_usage = true;
    assert_event("data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7}}\n\n", NULL);
    assert_event("data: {\"choices\":[],\"usage\":null}\n\n", "data: {\"choices\":[],\"usage\":null}\n\n");
    assert_event("data: {\"choices\":[{\"index\":0}],\"usage\":{}}\n\n",
                 "data: {\"choices\":[{\"index\":0}],\"usage\":{}}\n\n");
}

/* Ids that were equal stay equal; other seeds, other ids; others stay different. */
static void ids(void **state)
{
    (void)state;
    char a[] = "{\"id\":\"chatcmpl-A1b2C3d4\"}", b[] = "data: {\"x\":1,\"id\":\"chatcmpl-A1b2C3d4\"}\n\n",
         c[] = "{\"id\":\"chatcmpl-A1b2C3d5\"}", d[] = "{\"id\":\"chatcmpl-A1b2C3d4\"}";
    replay_json(&replay, &options, a, strlen(a));
    replay_json(&replay, &options, c, strlen(c));
    assert_true(replay_event(&replay, &options, b, strlen(b)));
    assert_memory_equal(a + 7, b + 19, 17);
    assert_string_not_equal(a, c);
    options.seed[3] ^= 1;
    replay_json(&replay, &options, d, strlen(d));
    assert_string_not_equal(a, d);
}

static void tokens(void **state)
{
    (void)state;
    options.zero_usage = true;
    options.same = true;
    assert_json("{\"usage\":{\"prompt_tokens\":123,\"completion_tokens\":4,\"total_tokens\":127,\"prompt_tokens_"
                "details\":{\"cached_tokens\":64},\"cost\":0.25,\"x\":null}}",
                "{\"usage\":{\"prompt_tokens\":0  ,\"completion_tokens\":0,\"total_tokens\":0  "
                ",\"prompt_tokens_details\":{\"cached_tokens\":64},\"cost\":0   ,\"x\":null}}");
    options.kind = ASK_RESPONSES;
    assert_event("data: {\"type\":\"response.completed\",\"response\":{\"usage\":{\"input_tokens\":12}}}\n\n",
                 "data: {\"type\":\"response.completed\",\"response\":{\"usage\":{\"input_tokens\":0 }}}\n\n");
}

static void other_routes(void **state)
{
    (void)state;
    options.kind = ASK_RESPONSES;
    assert_json("{\"id\":\"resp_1\",\"created\":1700000000,\"created_at\":1700000000}",
                "{\"id\":\"resp_1\",\"created\":1700000000,\"created_at\":1700000000}");
    options.kind = ASK_MESSAGES;
    assert_json("{\"id\":\"msg_01AbC\"}", "{\"id\":\"msg_?????\"}");
    assert_event("event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_01AbC\"}}\n\n",
                 "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_?????\"}}\n\n");
}

static void vectors(void **state)
{
    (void)state;
    const struct strict_text list[] = {{"[1,2]", 5}, {"\"QUJD\"", 6}};
    char *body;
    size_t bytes;
    static const char wanted[] = "{\"object\":\"list\",\"data\":[{\"object\":\"embedding\",\"index\":0,\"embedding\":["
                                 "1,2]},{\"object\":\"embedding\",\"index\":1,\"embedding\":\"QUJD\"}],\"model\":"
                                 "\"e\\\"\",\"usage\":{\"prompt_tokens\":8,\"total_tokens\":8}}";
    assert_int_equal(replay_vectors(list, 2, (struct strict_text){"e\"", 2}, 8, &body, &bytes, NULL), 0);
    assert_int_equal(bytes, sizeof wanted - 1);
    assert_memory_equal(body, wanted, bytes);
    free(body);
}

static int set_up(void **state)
{
    (void)state;
    options = (struct replay_options){.kind = ASK_CHAT, .now_s = 1900000000, .seed = {1, 2, 3, 4, 5, 6, 7, 8, 9}};
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    replay_fini(&replay);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(bodies, set_up),       cmocka_unit_test_setup(events, set_up),
        cmocka_unit_test_setup(ids, set_up),          cmocka_unit_test_setup(tokens, set_up),
        cmocka_unit_test_setup(other_routes, set_up), cmocka_unit_test_setup(vectors, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, tear_down);
}
