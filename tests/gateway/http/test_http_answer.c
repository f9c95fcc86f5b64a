/*
 * test_http_answer.c - answers of every kind, streams of bodies both ways, back-pressure, clients that leave or are
 * slow.
 */
#include "tests/gateway/support_loop.h"
#include <event2/buffer.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define GET(path) "GET " path " HTTP/1.1\r\nHost: a\r\n\r\n"

/* An owner that does what the path says. */
struct owner {
    struct loop *loop;
    struct http_request *held; /* of /hold, /fill, /take */
    uint32_t bodies, writables, gone, done;
    size_t filled, taken;
    bool taken_whole;
};

static void fill(struct owner *owner, struct http_request *r)
{
    char piece[1000];
    memset(piece, 'x', sizeof piece);
    while (!http_is_full(r)) {
        http_data(r, piece, sizeof piece);
        owner->filled += sizeof piece;
    }
}

static void on_begin(void *context, struct http_request *r)
{
    struct owner *owner = context;
    const char *path = http_target(r);
    struct fields fields = {0};
    owner->loop->begun++;
    fields_append(&fields, "Content-Type", "text/event-stream");
    if (strcmp(path, "/chunks") == 0) {
        http_head(r, 200, &fields, -1);
        http_data(r, "abc", 3);
        http_data(r, "0123456789", 10);
        http_end(r);
    } else if (strcmp(path, "/empty") == 0) {
        http_answer(r, 204, NULL, "", 0);
    } else if (strcmp(path, "/unchanged") == 0) {
        http_head(r, 304, NULL, -1);
        http_end(r);
    } else if (strcmp(path, "/short") == 0) {
        http_head(r, 200, NULL, 10);
        http_data(r, "abc", 3);
        http_end(r);
    } else if (strcmp(path, "/long") == 0) {
        http_head(r, 200, NULL, 2);
        http_data(r, "abc", 3);
        http_end(r);
    } else if (strcmp(path, "/cut") == 0) {
        http_head(r, 200, NULL, -1);
        http_data(r, "abc", 3);
        http_cut(r);
    } else if (strcmp(path, "/abort") == 0) {
        http_head(r, 200, NULL, -1);
        http_data(r, "abc", 3);
        http_abort(r);
    } else if (strcmp(path, "/fill") == 0) {
        owner->held = r;
        http_head(r, 200, NULL, -1);
        fill(owner, r);
    } else if (strcmp(path, "/hold") == 0) {
        owner->held = r;
    } else if (strcmp(path, "/take") == 0) {
        owner->held = r;
        http_read(r, 0);
    } else if (strcmp(path, "/slow") == 0) {
        http_read(r, 100000);
    } else {
        http_answer(r, 200, NULL, path, strlen(path));
    }
    fields_fini(&fields);
}

static void on_body(void *context, struct http_request *r)
{
    struct owner *owner = context;
    owner->bodies++;
    owner->taken_whole = http_body_is_whole(r);
}

static void on_writable(void *context, struct http_request *r)
{
    struct owner *owner = context;
    owner->writables++;
    fill(owner, r);
}

static void on_gone(void *context, struct http_request *r)
{
    struct owner *owner = context;
    assert_false(http_is_open(r));
    owner->gone++;
}

static void on_done(void *context, struct http_request *r)
{
    struct owner *owner = context;
    owner->done++;
    owner->loop->done++;
    if (owner->held == r)
        owner->held = NULL;
}

struct setup {
    struct loop loop;
    struct owner owner;
};

static struct setup *open_setup(void)
{
    struct setup *s = calloc(1, sizeof *s);
    assert_non_null(s);
    loop_init(&s->loop);
    s->owner.loop = &s->loop;
    s->loop.handlers = (struct http_handlers){on_begin, on_body, on_writable, on_gone, on_done};
    s->loop.context = &s->owner;
    return s;
}

static void close_setup(struct setup *s)
{
    loop_close(&s->loop);
    free(s);
}

static bool ask(struct setup *s, int client, const char *text)
{
    return loop_ask(&s->loop, client, text, strlen(text), 0);
}

/* The answer behind its status line and fields. */
static const char *body(const struct setup *s)
{
    const char *end = strstr(s->loop.text, "\r\n\r\n");
    return end ? end + 4 : "(no head)";
}

static void test_framing(void **state)
{
    (void)state;
    struct setup *s = open_setup();
    loop_open(&s->loop);
    int client = loop_connect(&s->loop);
    assert_false(ask(s, client, GET("/chunks")));
    assert_non_null(strstr(s->loop.text, "Transfer-Encoding: chunked\r\n"));
    assert_null(strstr(s->loop.text, "Content-Length"));
    assert_string_equal(body(s), "3\r\nabc\r\na\r\n0123456789\r\n0\r\n\r\n");
    assert_false(ask(s, client, "HEAD /chunks HTTP/1.1\r\nHost: a\r\n\r\n"));
    assert_string_equal(body(s), "");
    assert_false(ask(s, client, GET("/empty")));
    assert_null(strstr(s->loop.text, "Content-Length"));
    assert_string_equal(body(s), "");
    assert_false(ask(s, client, GET("/unchanged")));
    assert_null(strstr(s->loop.text, "Transfer-Encoding"));
    assert_string_equal(body(s), "");
    assert_false(ask(s, client, GET("/plain")));
    assert_string_equal(body(s), "/plain");
    assert_true(ask(s, client, "GET /plain HTTP/1.1\r\nHost: a\r\nConnection: x, Close\r\n\r\n"));
    assert_non_null(strstr(s->loop.text, "Connection: close\r\n"));
    close(client);
    client = loop_connect(&s->loop);
    assert_true(ask(s, client, "GET /chunks HTTP/1.0\r\n\r\n"));
    assert_null(strstr(s->loop.text, "Transfer-Encoding"));
    assert_string_equal(body(s), "abc0123456789");
    close(client);
    close_setup(s);
}

#define OLD(line, more) line " HTTP/1.0\r\n" more "\r\n"

/* HTTP/1.0 keeps a connection where it asks for that and can see where the answer ends. */
static void test_http10_keep_alive(void **state)
{
    (void)state;
    struct setup *s = open_setup();
    loop_open(&s->loop);
    int client = loop_connect(&s->loop);
    for (int i = 0; i < 3; i++) {
        assert_false(ask(s, client, OLD("GET /plain", "Connection: Keep-Alive\r\n")));
        assert_non_null(strstr(s->loop.text, "Content-Length: 6\r\n"));
        assert_non_null(strstr(s->loop.text, "Connection: keep-alive\r\n"));
        assert_string_equal(body(s), "/plain");
    }
    assert_false(ask(s, client, OLD("POST /plain", "Connection: keep-alive\r\n")));
    assert_false(ask(s, client, OLD("HEAD /chunks", "Connection: keep-alive\r\n")));
    assert_null(strstr(s->loop.text, "Transfer-Encoding"));
    assert_false(ask(s, client, OLD("GET /empty", "Connection: keep-alive\r\n")));
    assert_true(ask(s, client, OLD("GET /chunks", "Connection: keep-alive\r\n")));
    assert_null(strstr(s->loop.text, "Connection: keep-alive"));
    assert_non_null(strstr(s->loop.text, "Connection: close\r\n"));
    assert_string_equal(body(s), "abc0123456789");
    close(client);
    static const char *const closed[] = {OLD("GET /plain", ""), OLD("GET /plain", "Connection: keep-alive, close\r\n"),
                                         OLD("GET /plain", "Connection: x\r\n")};
    for (size_t i = 0; i < sizeof closed / sizeof *closed; i++) {
        client = loop_connect(&s->loop);
        assert_true(ask(s, client, closed[i]));
        assert_null(strstr(s->loop.text, "Connection: keep-alive"));
        assert_string_equal(body(s), "/plain");
        close(client);
    }
    client = loop_connect(&s->loop); /* and several that come together are answered in order */
    assert_true(ask(s, client, OLD("GET /1", "Connection: keep-alive\r\n") OLD("GET /2", "") OLD("GET /3", "")));
    assert_string_equal(strrchr(s->loop.text, '/'), "/2");
    assert_non_null(strstr(s->loop.text, "\r\n\r\n/1HTTP/1.1 200"));
    close(client);
    close_setup(s);
}

/* What is broken must not look whole. */
static void test_broken_answers(void **state)
{
    (void)state;
    struct setup *s = open_setup();
    loop_open(&s->loop);
    int client = loop_connect(&s->loop);
    assert_true(ask(s, client, GET("/short")));
    assert_string_equal(body(s), "abc");
    assert_non_null(strstr(s->loop.text, "Content-Length: 10\r\n"));
    close(client);
    client = loop_connect(&s->loop);
    assert_true(ask(s, client, GET("/long")));
    close(client);
    client = loop_connect(&s->loop);
    assert_true(ask(s, client, GET("/cut")));
    assert_string_equal(body(s), "3\r\nabc\r\n");
    close(client);
    client = loop_connect(&s->loop);
    assert_true(ask(s, client, GET("/abort")));
    close(client);
    assert_int_equal(s->owner.gone, 0);
    assert_int_equal(s->owner.done, 4);
    close_setup(s);
}

/* An answer that nobody reads fills the sockets, not the memory; it goes on when it is read. */
static void test_slow_reader(void **state)
{
    (void)state;
    struct setup *s = open_setup();
    loop_open(&s->loop);
    int client = loop_connect(&s->loop);
    assert_int_equal(write(client, GET("/fill"), sizeof GET("/fill") - 1), (ssize_t)(sizeof GET("/fill") - 1));
    for (int i = 0; i < 1000; i++)
        loop_turn(&s->loop, 0);
    size_t filled = s->owner.filled;
    assert_true(filled < 2 << 20); /* what a pair of sockets takes, and HTTP_HIGH_BYTES */
    assert_non_null(s->owner.held);
    for (int i = 0; i < 1000 && s->owner.filled < filled + (4 << 20); i++) {
        char bytes[65536];
        while (read(client, bytes, sizeof bytes) > 0)
            ;
        loop_turn(&s->loop, 0);
    }
    assert_true(s->owner.filled >= filled + (4 << 20));
    assert_true(s->owner.writables > 10);
    close(client);
    loop_turn(&s->loop, 0);
    assert_int_equal(s->owner.gone, 1);
    assert_int_equal(s->owner.done, 1);
    close_setup(s);
}

/* A reader that takes nothing is closed in the end. */
static void test_write_timeout(void **state)
{
    (void)state;
    struct setup *s = open_setup();
    s->loop.options.write_timeout_ms = 50;
    loop_open(&s->loop);
    int client = loop_connect(&s->loop);
    assert_int_equal(write(client, GET("/fill"), sizeof GET("/fill") - 1), (ssize_t)(sizeof GET("/fill") - 1));
    for (int i = 0; i < 200 && s->owner.done == 0; i++)
        loop_turn(&s->loop, 50);
    assert_int_equal(s->owner.done, 1);
    assert_int_equal(s->owner.gone, 1);
    close(client);
    close_setup(s);
}

/* A turn of the loop that takes longer than write-timeout closes nobody who waits for nothing. */
static void test_stalled_loop(void **state)
{
    (void)state;
    struct setup *s = open_setup();
    s->loop.options.write_timeout_ms = 20;
    loop_open(&s->loop);
    loop_turn(&s->loop, 1);
    int client = loop_connect(&s->loop);
    usleep(60000);
    assert_false(ask(s, client, GET("/plain")));
    assert_string_equal(body(s), "/plain");
    usleep(60000);
    assert_false(ask(s, client, GET("/chunks")));
    close(client);
    close_setup(s);
}

/* A body of a megabyte whose owner takes nothing is held at 64 KiB and some; then it goes on. */
static void test_streamed_body(void **state)
{
    (void)state;
    struct setup *s = open_setup();
    loop_open(&s->loop);
    int client = loop_connect(&s->loop);
    size_t n = 1 << 20, sent = 0;
    char *bytes = malloc(n);
    assert_non_null(bytes);
    memset(bytes, 'b', n);
    static const char head[] = "POST /take HTTP/1.1\r\nHost: a\r\nContent-Length: 1048576\r\n\r\n";
    assert_int_equal(write(client, head, sizeof head - 1), (ssize_t)(sizeof head - 1));
    for (int i = 0; i < 2000; i++) {
        ssize_t w = sent < n ? write(client, bytes + sent, n - sent) : 0;
        sent += w > 0 ? (size_t)w : 0;
        loop_turn(&s->loop, 0);
    }
    assert_non_null(s->owner.held);
    assert_true(evbuffer_get_length(http_body(s->owner.held)) < 65536 + 2 * 16384);
    assert_true(sent < n);
    for (int i = 0; i < 20000 && !s->owner.taken_whole; i++) {
        struct evbuffer *held = http_body(s->owner.held);
        s->owner.taken += evbuffer_get_length(held);
        evbuffer_drain(held, evbuffer_get_length(held));
        http_read(s->owner.held, 0);
        ssize_t w = sent < n ? write(client, bytes + sent, n - sent) : 0;
        sent += w > 0 ? (size_t)w : 0;
        loop_turn(&s->loop, 0);
    }
    assert_true(s->owner.taken_whole);
    assert_int_equal(s->owner.taken + evbuffer_get_length(http_body(s->owner.held)), n);
    http_answer(s->owner.held, 200, NULL, "ok", 2);
    assert_false(ask(s, client, ""));
    assert_string_equal(body(s), "ok");
    assert_false(ask(s, client, GET("/next")));
    assert_string_equal(body(s), "/next");
    free(bytes);
    close(client);
    close_setup(s);
}

/* An answer before the body has come ends the connection, and the client can still read it. */
static void test_answer_before_body(void **state)
{
    (void)state;
    struct setup *s = open_setup();
    loop_open(&s->loop);
    int client = loop_connect(&s->loop);
    assert_true(ask(s, client, "POST /plain HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc"));
    assert_non_null(strstr(s->loop.text, "Connection: close\r\n"));
    assert_string_equal(body(s), "/plain");
    close(client);
    close_setup(s);
}

static void test_client_leaves(void **state)
{
    (void)state;
    struct setup *s = open_setup();
    loop_open(&s->loop);
    int client = loop_connect(&s->loop);
    assert_false(ask(s, client, GET("/hold")));
    assert_non_null(s->owner.held);
    shutdown(client, SHUT_WR); /* it can still read, but whoever stops sending counts as gone */
    loop_turn(&s->loop, 0);
    assert_int_equal(s->owner.gone, 1);
    assert_int_equal(s->owner.done, 1);
    close(client);
    /* in the middle of a body */
    client = loop_connect(&s->loop);
    assert_false(ask(s, client, "POST /take HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc"));
    close(client);
    loop_turn(&s->loop, 0);
    assert_int_equal(s->owner.gone, 2);
    /* a body that breaks its frame: gone, and the client is told */
    client = loop_connect(&s->loop);
    assert_true(ask(s, client, "POST /take HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n"));
    assert_int_equal(loop_status(&s->loop), 400);
    assert_int_equal(s->owner.gone, 3);
    close(client);
    /* the server ends */
    client = loop_connect(&s->loop);
    assert_false(ask(s, client, GET("/hold")));
    loop_close(&s->loop);
    assert_int_equal(s->owner.gone, 4);
    assert_int_equal(s->owner.done, 4);
    close(client);
    free(s);
}

static void turn_until_closed(struct setup *s, int client)
{
    bool closed = false;
    for (int i = 0; i < 200 && !closed; i++) {
        loop_turn(&s->loop, 20);
        closed = ask(s, client, "") || closed;
    }
    assert_true(closed);
}

static void test_timeouts(void **state)
{
    (void)state;
    struct setup *s = open_setup();
    s->loop.options.head_timeout_ms = s->loop.options.body_timeout_ms = 60;
    s->loop.options.idle_timeout_ms = 200;
    loop_open(&s->loop);
    static const struct {
        const char *bytes;
        int status;
    } slow[] = {{"", 0},
                {"GET / HTTP/1.1\r\nHost: a\r\n", 408},
                {"POST /slow HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc", 408}};
    for (size_t i = 0; i < sizeof slow / sizeof *slow; i++) {
        int client = loop_connect(&s->loop);
        if (i == 2)
            s->owner.held = NULL;
        assert_int_equal(write(client, slow[i].bytes, strlen(slow[i].bytes)), (ssize_t)strlen(slow[i].bytes));
        loop_turn(&s->loop, 0);
        int status = 0;
        bool closed = false;
        for (int k = 0; k < 400 && !closed; k++) {
            loop_turn(&s->loop, 10);
            closed = ask(s, client, "");
            status = loop_status(&s->loop) ? loop_status(&s->loop) : status;
        }
        assert_true(closed);
        assert_int_equal(status, slow[i].status);
        close(client);
        loop_turn(&s->loop, 0);
    }
    /* while the owner thinks no clock runs */
    int client = loop_connect(&s->loop);
    assert_false(ask(s, client, GET("/hold")));
    loop_turn(&s->loop, 300);
    assert_non_null(s->owner.held);
    http_answer(s->owner.held, 200, NULL, "late", 4);
    assert_false(ask(s, client, ""));
    assert_string_equal(body(s), "late");
    turn_until_closed(s, client);
    close(client);
    close_setup(s);
}

static void test_drain_and_crowd(void **state)
{
    (void)state;
    struct setup *s = open_setup();
    s->loop.options.connections_max = 2;
    loop_open(&s->loop);
    int idle = loop_connect(&s->loop), busy = loop_connect(&s->loop), third = loop_connect(&s->loop);
    assert_true(ask(s, third, GET("/plain")));
    assert_int_equal(loop_status(&s->loop), 503);
    assert_false(ask(s, busy, GET("/hold")));
    http_server_drain(s->loop.server);
    assert_true(ask(s, idle, ""));
    http_answer(s->owner.held, 200, NULL, "last", 4);
    assert_true(ask(s, busy, ""));
    assert_string_equal(body(s), "last");
    close(idle);
    close(busy);
    close(third);
    close_setup(s);
}

/* Bodies that owners do not take are bounded all together. */
static void test_bodies(void **state)
{
    (void)state;
    struct setup *s = open_setup();
    s->loop.options.bodies_max = 100000;
    loop_open(&s->loop);
    static const char head[] = "POST /take HTTP/1.1\r\nHost: a\r\nContent-Length: 60000\r\n\r\n";
    char *bytes = malloc(sizeof head + 60000);
    assert_non_null(bytes);
    memcpy(bytes, head, sizeof head - 1);
    memset(bytes + sizeof head - 1, 'b', 60000);
    int first = loop_connect(&s->loop), second = loop_connect(&s->loop);
    assert_false(loop_ask(&s->loop, first, bytes, sizeof head - 1 + 60000, 0));
    struct http_request *held = s->owner.held;
    assert_int_equal(http_server_body_bytes(s->loop.server), 60000);
    assert_true(loop_ask(&s->loop, second, bytes, sizeof head - 1 + 60000, 0));
    assert_int_equal(loop_status(&s->loop), 503);
    assert_int_equal(http_server_body_bytes(s->loop.server), 60000);
    evbuffer_drain(http_body(held), 50000);
    assert_int_equal(http_server_body_bytes(s->loop.server), 10000);
    http_answer(held, 200, NULL, "", 0);
    assert_false(ask(s, first, ""));
    assert_int_equal(http_server_body_bytes(s->loop.server), 0);
    free(bytes);
    close(first);
    close(second);
    close_setup(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_framing),         cmocka_unit_test(test_http10_keep_alive),
        cmocka_unit_test(test_broken_answers),  cmocka_unit_test(test_slow_reader),
        cmocka_unit_test(test_write_timeout),   cmocka_unit_test(test_stalled_loop),
        cmocka_unit_test(test_streamed_body),   cmocka_unit_test(test_answer_before_body),
        cmocka_unit_test(test_client_leaves),   cmocka_unit_test(test_timeouts),
        cmocka_unit_test(test_drain_and_crowd), cmocka_unit_test(test_bodies)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
