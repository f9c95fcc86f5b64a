/* test_sse.c - events of streams written by hand, at every way of cutting them in two and byte by byte; bounds. */
#include "gateway/text/sse.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct seen {
    char text[1024]; /* each event as [type|data|error], a comment as [#], a part as [~] */
    char raw[1024];
};

static void add(struct seen *seen, enum sse_status status, const struct sse_event *e)
{
    char line[512];
    if (status == SSE_PART)
        snprintf(line, sizeof line, "[~]");
    else if (!e->has_data && !e->error.data)
        snprintf(line, sizeof line, "[#]");
    else
        snprintf(line, sizeof line, "[%.*s|%.*s|%.*s]", (int)e->type.bytes, e->type.data ? e->type.data : "",
                 (int)e->data.bytes, e->data.data ? e->data.data : "", (int)e->error.bytes,
                 e->error.data ? e->error.data : "");
    if (!(status == SSE_PART && strlen(seen->text) >= 3 && strcmp(seen->text + strlen(seen->text) - 3, "[~]") == 0))
        strcat(seen->text, line);
    strncat(seen->raw, e->raw.data ? e->raw.data : "", e->raw.bytes);
}

static void feed(struct sse *sse, const char *bytes, size_t n, struct seen *seen)
{
    struct sse_event event;
    for (enum sse_status status; (status = sse_next(sse, &bytes, &n, &event)) != SSE_MORE;)
        add(seen, status, &event);
    assert_int_equal(n, 0);
}

static void end(struct sse *sse, struct seen *seen)
{
    struct sse_event event;
    for (enum sse_status status; (status = sse_end(sse, &event)) != SSE_MORE;)
        add(seen, status, &event);
}

/* Cut in two at every place, and into single bytes. */
static void assert_events(const char *stream, size_t limit, const char *wanted)
{
    size_t n = strlen(stream);
    for (size_t cut = 0; cut <= n + 1; cut++) {
        struct seen seen = {.text = ""};
        struct sse sse;
        sse_init(&sse, limit);
        if (cut <= n) {
            feed(&sse, stream, cut, &seen);
            feed(&sse, stream + cut, n - cut, &seen);
        } else {
            for (size_t i = 0; i < n; i++)
                feed(&sse, stream + i, 1, &seen);
        }
        end(&sse, &seen);
        assert_string_equal(seen.raw, stream);
        assert_string_equal(seen.text, wanted);
        sse_fini(&sse);
    }
}

static void ends_of_lines(void **state)
{
    (void)state;
    assert_events("data: a\n\ndata: b\n\n", 100, "[|a|][|b|]");
    assert_events("data: a\r\n\r\ndata: b\r\n\r\n", 100, "[|a|][|b|]");
    assert_events("data: a\r\rdata: b\r\r", 100, "[|a|][|b|]");
    assert_events("data: a\n\r\ndata: b\r\ndata: c\r\r\ndata: d\n\r", 100, "[|a|][|b\nc|][|d|]");
    assert_events("\n\r\r\ndata: a\n\n", 100, "[#][#][#][|a|]");
}

static void fields(void **state)
{
    (void)state;
    assert_events("event: x\ndata: 1\ndata:2\ndata\nid: 7\n\n", 100, "[x|1\n2\n|]");
    assert_events(": keep-alive\n\n:\n\nretry: 5\n\n", 100, "[#][#][#]");
    assert_events("data:\n\n", 100, "[||]");
    assert_events("data : no\n data: no\ndatum: no\n\n", 100, "[#]");
    assert_events("error: {\"code\":400}\n\n", 100, "[||{\"code\":400}]");
    assert_events("\xef\xbb\xbf"
                  "data: a\n\n\xef\xbb\xbf"
                  "data: b\n\n",
                  100, "[|a|][#]");
    assert_events("event: a\nevent: b\ndata:  two blanks\n\n", 100, "[b| two blanks|]");
}

static void what_never_ends(void **state)
{
    (void)state;
    assert_events("data: a\n\ndata: b\n", 100, "[|a|][~]");
    assert_events("data: a\n\ndata: b", 100, "[|a|][~]");
    assert_events("data: a\n\n: x", 100, "[|a|][~]");
}

static void too_long(void **state)
{
    (void)state;
    assert_events("data: 1\n\ndata: 123456789\n\ndata: 2\n\n", 12, "[|1|][~][|2|]");
    assert_events("data: 1\r\n\r\ndata: 123456789\r\n\r\ndata: 2\r\n\r\n", 14, "[|1|][~][|2|]");
    assert_events("data: 1\r\rdata: 123456789\r\rdata: 2\r\r", 12, "[|1|][~][|2|]");
    assert_events("data: 1234\n\n", 12, "[|1234|]");
    assert_events("data: 12345\n\n", 12, "[~]");
    assert_events("data: 1\r\n\r\n", 10, "[~]");
}

/* Between events nothing is held; what a large event took is given back. */
static void memory(void **state)
{
    (void)state;
    enum { N = 1 << 18 };
    struct sse sse;
    struct sse_event event;
    char *text = malloc(N + 16);
    assert_non_null(text);
    memset(text, 'x', N);
    memcpy(text, "data: ", 6);
    sse_init(&sse, N + 16);
    const char *at = text;
    size_t n = N;
    assert_int_equal(sse_next(&sse, &at, &n, &event), SSE_MORE);
    assert_true(sse.held_capacity >= N);
    at = "\n\n";
    n = 2;
    assert_int_equal(sse_next(&sse, &at, &n, &event), SSE_EVENT);
    assert_int_equal(event.data.bytes, N - 6);
    assert_int_equal(sse_next(&sse, &at, &n, &event), SSE_MORE);
    assert_true(sse.held_capacity <= 4096 && sse.n_held == 0);
    sse_fini(&sse);
    free(text);
}

static void places(void **state)
{
    (void)state;
    static const char raw[] = ": c\r\ndata: {\"a\":\r\ndata:\"bc\"}\r\n\r\n";
    struct sse sse;
    struct sse_event event;
    sse_init(&sse, 100);
    assert_true(sse_read(&sse, (struct strict_text){raw, sizeof raw - 1}, &event));
    assert_int_equal(event.data_lines, 2);
    assert_int_equal(event.data.bytes, 11);
    for (size_t i = 0; i < event.data.bytes; i++)
        if (event.data.data[i] != '\n')
            assert_int_equal(raw[sse_place(&event, i)], event.data.data[i]);
    sse_fini(&sse);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ends_of_lines), cmocka_unit_test(fields), cmocka_unit_test(what_never_ends),
        cmocka_unit_test(too_long),      cmocka_unit_test(memory), cmocka_unit_test(places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
