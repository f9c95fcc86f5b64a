/*
 * test_http_parse.c - what is a request and what is refused, each written by hand and sent whole, byte by byte and in
 * pieces of seven. The expected statuses follow RFC 9112; where it leaves a choice the stricter is expected.
 */
#include "tests/gateway/support_loop.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

struct message {
    const char *name, *bytes;
    size_t n;
    int status;
    const char *body; /* of the answer; NULL: not compared */
};
#define M(name, bytes, status, body)                                                                                   \
    {                                                                                                                  \
        name, bytes, sizeof(bytes) - 1, status, body                                                                   \
    }
#define HOST    "Host: a\r\n"
#define POST    "POST / HTTP/1.1\r\n" HOST
#define CHUNKED POST "Transfer-Encoding: chunked\r\n\r\n"

static const struct message messages[] = {
    /* taken */
    M("plain", "GET /v1/models?a=b HTTP/1.1\r\n" HOST "\r\n", 200, "GET /v1/models?a=b 0"),
    M("empty line before", "\r\nGET / HTTP/1.1\r\n" HOST "\r\n", 200, "GET / 0"),
    M("length", POST "Content-Length: 3\r\n\r\nabc", 200, "POST / 3"),
    M("length with blanks", POST "Content-Length:\t 3 \r\n\r\nabc", 200, "POST / 3"),
    M("body of a GET", "GET / HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\nabc", 200, "GET / 3"),
    M("chunks", CHUNKED "3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n", 200, "POST / 13"),
    M("chunk extension", CHUNKED "3;a=b\r\nabc\r\n0\r\n\r\n", 200, "POST / 3"),
    M("trailers", CHUNKED "3\r\nabc\r\n0\r\nX: y\r\nContent-Length: 7\r\n\r\n", 200, "POST / 3"),
    M("absolute", "GET http://x:80/a?b HTTP/1.1\r\n" HOST "\r\n", 200, "GET /a?b 0"),
    M("absolute without path", "GET http://x?b HTTP/1.1\r\n" HOST "\r\n", 200, "GET /?b 0"),
    M("absolute, nothing behind", "GET https://x HTTP/1.1\r\n" HOST "\r\n", 200, "GET / 0"),
    M("star", "OPTIONS * HTTP/1.1\r\n" HOST "\r\n", 200, "OPTIONS * 0"),
    M("version 1.0", "GET / HTTP/1.0\r\n\r\n", 200, "GET / 0"),
    M("upgrade is not followed", "GET / HTTP/1.1\r\n" HOST "Connection: upgrade\r\nUpgrade: websocket\r\n\r\n", 200,
      "GET / 0"),
    M("bytes that are no UTF-8 in a value", "GET / HTTP/1.1\r\n" HOST "X: \xff\xfe\r\n\r\n", 200, "GET / 0"),
    M("other methods", "PURGE /x HTTP/1.1\r\n" HOST "\r\n", 200, "PURGE /x 0"),
    M("HEAD", "HEAD / HTTP/1.1\r\n" HOST "\r\n", 200, ""),
    /* two readers might find two messages */
    M("length and chunked", POST "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, NULL),
    M("chunked and length", POST "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n", 400, NULL),
    M("two lengths", POST "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", 400, NULL),
    M("the same length twice", POST "Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc", 400, NULL),
    M("a list of lengths", POST "Content-Length: 3, 3\r\n\r\nabc", 400, NULL),
    M("length +3", POST "Content-Length: +3\r\n\r\nabc", 400, NULL),
    M("length -3", POST "Content-Length: -3\r\n\r\nabc", 400, NULL),
    M("length 0x3", POST "Content-Length: 0x3\r\n\r\nabc", 400, NULL),
    M("length 3 3", POST "Content-Length: 3 3\r\n\r\nabc", 400, NULL),
    M("length too large for 64 bits", POST "Content-Length: 99999999999999999999999\r\n\r\n", 400, NULL),
    M("no length", POST "Content-Length: \r\n\r\nabc", 400, NULL),
    M("folded field", "GET / HTTP/1.1\r\n" HOST "A: b\r\n c\r\n\r\n", 400, NULL),
    M("folded Transfer-Encoding", POST "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n", 400, NULL),
    M("tab-folded field", "GET / HTTP/1.1\r\n" HOST "A: b\r\n\tc\r\n\r\n", 400, NULL),
    M("LF ends the request line", "GET / HTTP/1.1\n" HOST "\r\n", 400, NULL),
    M("LF ends a field", "GET / HTTP/1.1\r\nHost: a\nB: c\r\n\r\n", 400, NULL),
    M("LF ends the head", "GET / HTTP/1.1\r\n" HOST "\n", 400, NULL),
    M("LF before the request", "\nGET / HTTP/1.1\r\n" HOST "\r\n", 400, NULL),
    M("CR in a value", "GET / HTTP/1.1\r\n" HOST "A: b\rc\r\n\r\n", 400, NULL),
    M("CR CR LF", "GET / HTTP/1.1\r\n" HOST "A: b\r\r\n\r\n", 400, NULL),
    M("CR before the request", "\rGET / HTTP/1.1\r\n" HOST "\r\n", 400, NULL),
    M("NUL in a value", "GET / HTTP/1.1\r\n" HOST "A: b\0c\r\n\r\n", 400, NULL),
    M("NUL in a name", "GET / HTTP/1.1\r\n" HOST "A\0: bc\r\n\r\n", 400, NULL),
    M("control character in a value", "GET / HTTP/1.1\r\n" HOST "A: b\x01\r\n\r\n", 400, NULL),
    M("blank before the colon", POST "Content-Length : 3\r\n\r\nabc", 400, NULL),
    M("blank in a name", "GET / HTTP/1.1\r\n" HOST "A B: c\r\n\r\n", 400, NULL),
    M("blank before the first field", "GET / HTTP/1.1\r\n Host: a\r\n\r\n", 400, NULL),
    M("no colon", "GET / HTTP/1.1\r\n" HOST "A\r\n\r\n", 400, NULL),
    M("no name", "GET / HTTP/1.1\r\n" HOST ": x\r\n\r\n", 400, NULL),
    M("quote in a name", "GET / HTTP/1.1\r\n" HOST "A\"b: c\r\n\r\n", 400, NULL),
    M("chunk of size 0x3", CHUNKED "0x3\r\nabc\r\n0\r\n\r\n", 400, NULL),
    M("chunk of size -1", CHUNKED "-1\r\nabc\r\n0\r\n\r\n", 400, NULL),
    M("chunk of size +3", CHUNKED "+3\r\nabc\r\n0\r\n\r\n", 400, NULL),
    M("blank behind a chunk's size", CHUNKED "3 \r\nabc\r\n0\r\n\r\n", 400, NULL),
    M("blank before a chunk's size", CHUNKED " 3\r\nabc\r\n0\r\n\r\n", 400, NULL),
    M("chunk without a size", CHUNKED "\r\nabc\r\n0\r\n\r\n", 400, NULL),
    M("LF behind a chunk's size", CHUNKED "3\nabc\r\n0\r\n\r\n", 400, NULL),
    M("LF behind a chunk extension", CHUNKED "3;a=b\nabc\r\n0\r\n\r\n", 400, NULL),
    M("no CRLF behind a chunk", CHUNKED "3\r\nabcXX0\r\n\r\n", 400, NULL),
    M("LF behind a chunk", CHUNKED "3\r\nabc\n0\r\n\r\n", 400, NULL),
    M("chunk larger than its size", CHUNKED "3\r\nabcd\r\n0\r\n\r\n", 400, NULL),
    M("chunk of 2^64 and more", CHUNKED "10000000000000003\r\nabc\r\n0\r\n\r\n", 400, NULL),
    M("gzip, chunked", POST "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501, NULL),
    M("x and chunked", POST "Transfer-Encoding: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 501, NULL),
    M("chunked twice", POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, NULL),
    M("chunked, gzip", POST "Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n", 400, NULL),
    M("gzip", POST "Transfer-Encoding: gzip\r\n\r\n", 501, NULL),
    M("xchunked", POST "Transfer-Encoding: xchunked\r\n\r\n", 501, NULL),
    M("chunked in 1.0", "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, NULL),
    M("no Host", "GET / HTTP/1.1\r\n\r\n", 400, NULL),
    M("two Hosts", "GET / HTTP/1.1\r\n" HOST HOST "\r\n", 400, NULL),
    M("two blanks", "GET  / HTTP/1.1\r\n" HOST "\r\n", 400, NULL),
    M("blank in the target", "GET /a b HTTP/1.1\r\n" HOST "\r\n", 400, NULL),
    M("tab in the target", "GET /a\tb HTTP/1.1\r\n" HOST "\r\n", 400, NULL),
    M("fragment", "GET /a#b HTTP/1.1\r\n" HOST "\r\n", 400, NULL),
    M("control character in the target", "GET /\x01 HTTP/1.1\r\n" HOST "\r\n", 400, NULL),
    M("bytes beyond ASCII in the target", "GET /\xc3\xa9 HTTP/1.1\r\n" HOST "\r\n", 400, NULL),
    /* other protocols, versions, methods */
    M("version 0.9", "GET /\r\n\r\n", 505, NULL),
    M("version 2.0", "GET / HTTP/2.0\r\n" HOST "\r\n", 505, NULL),
    M("version 1.2", "GET / HTTP/1.2\r\n" HOST "\r\n", 505, NULL),
    M("HTTP/2's preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, NULL),
    M("RTSP", "GET / RTSP/1.0\r\n" HOST "\r\n", 400, NULL),
    M("CONNECT", "CONNECT a:1 HTTP/1.1\r\n" HOST "\r\n", 501, NULL),
    M("RTSP's method", "DESCRIBE / HTTP/1.1\r\n" HOST "\r\n", 400, NULL),
    M("unknown method", "FOO / HTTP/1.1\r\n" HOST "\r\n", 501, NULL),
    M("method in small letters", "get / HTTP/1.1\r\n" HOST "\r\n", 501, NULL),
    M("unknown Expect", POST "Expect: 200-maybe\r\nContent-Length: 3\r\n\r\nabc", 417, NULL),
    M("body announced too large", POST "Content-Length: 1048577\r\n\r\n", 413, NULL),
    M("TLS to a plain port", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 501, NULL),
};

static void test_messages(void **state)
{
    static const size_t pieces[] = {0, 1, 7};
    (void)state;
    struct loop *loop = malloc(sizeof *loop);
    assert_non_null(loop);
    loop_init(loop);
    loop_open(loop);
    for (size_t i = 0; i < sizeof messages / sizeof *messages; i++) {
        for (size_t k = 0; k < sizeof pieces / sizeof *pieces; k++) {
            const struct message *m = &messages[i];
            int client = loop_connect(loop);
            bool closed = loop_ask(loop, client, m->bytes, m->n, pieces[k]);
            if (loop_status(loop) != m->status)
                fail_msg("%s, in pieces of %zu: %d in place of %d: %s", m->name, pieces[k], loop_status(loop),
                         m->status, loop->text);
            bool refused = m->status != 200;
            if (closed != (refused || strstr(m->bytes, "HTTP/1.0")))
                fail_msg("%s, in pieces of %zu: %s", m->name, pieces[k], closed ? "closed" : "still open");
            const char *body = strstr(loop->text, "\r\n\r\n");
            if (m->body && (!body || strcmp(body + 4, m->body) != 0))
                fail_msg("%s, in pieces of %zu: %s", m->name, pieces[k], loop->text);
            close(client);
            loop_turn(loop, 0);
        }
    }
    assert_int_equal(http_server_connections(loop->server), 0);
    loop_close(loop);
    free(loop);
}

/* Requests that come together are answered in order, and one that is refused ends them. */
static void test_pipelining(void **state)
{
    (void)state;
    static const char bytes[] =
        "GET /1 HTTP/1.1\r\n" HOST "\r\n" POST "Content-Length: 3\r\n\r\nabc" CHUNKED
        "3\r\nabc\r\n0\r\n\r\nGET /4 HTTP/1.1\r\n" HOST "\r\nGET /5 HTTP/1.1\r\nHost: a\nX: y\r\n"
        "\r\nGET /6 HTTP/1.1\r\n" HOST "\r\n";
    struct loop *loop = malloc(sizeof *loop);
    assert_non_null(loop);
    loop_init(loop);
    loop_open(loop);
    int client = loop_connect(loop);
    assert_true(loop_ask(loop, client, bytes, sizeof bytes - 1, 0));
    const char *at = loop->text;
    static const char *const expected[] = {"GET /1 0", "POST / 3", "POST / 3", "GET /4 0", "400 Bad Request"};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        at = strstr(at, expected[i]);
        assert_non_null(at);
        at += strlen(expected[i]);
    }
    assert_null(strstr(at, "/6"));
    assert_int_equal(loop->begun, 4);
    close(client);
    loop_close(loop);
    free(loop);
}

static void expect(struct loop *loop, const char *bytes, size_t n, int status)
{
    int client = loop_connect(loop);
    loop_ask(loop, client, bytes, n, 4096);
    if (loop_status(loop) != status)
        fail_msg("%d in place of %d: %.300s", loop_status(loop), status, loop->text);
    close(client);
    loop_turn(loop, 0);
}

/* Heads and bodies at their limits, and one beyond. */
static void test_limits(void **state)
{
    (void)state;
    struct loop *loop = malloc(sizeof *loop);
    size_t room = 3 << 20;
    char *bytes = malloc(room);
    assert_non_null(loop);
    assert_non_null(bytes);
    loop_init(loop);
    loop_open(loop);
    for (int more = 0; more <= 1; more++) {
        /* 32,768 bytes of head */
        size_t n = (size_t)snprintf(bytes, room, "GET / HTTP/1.1\r\n" HOST "X: ");
        memset(bytes + n, 'x', 40000);
        n = 32768 - 4 + (size_t)more;
        memcpy(bytes + n, "\r\n\r\n", 4);
        expect(loop, bytes, n + 4, more ? 431 : 200);
        /* 100 fields */
        n = (size_t)snprintf(bytes, room, "GET / HTTP/1.1\r\n" HOST);
        for (int i = 0; i < 99 + more; i++)
            n += (size_t)snprintf(bytes + n, room - n, "X%d: y\r\n", i);
        n += (size_t)snprintf(bytes + n, room - n, "\r\n");
        expect(loop, bytes, n, more ? 431 : 200);
        /* a target that never ends */
        n = (size_t)snprintf(bytes, room, "GET /");
        memset(bytes + n, 'x', 100000);
        expect(loop, bytes, 100000, 431);
        /* 2^20 bytes of body, in chunks */
        n = (size_t)snprintf(bytes, room, CHUNKED "%x\r\n", (1 << 20) + more);
        memset(bytes + n, 'x', (1 << 20) + 1);
        n += (size_t)((1 << 20) + more);
        n += (size_t)snprintf(bytes + n, room - n, "\r\n0\r\n\r\n");
        expect(loop, bytes, n, more ? 413 : 200);
    }
    /* chunks of one byte are fine, frames without a body are not */
    size_t n = (size_t)snprintf(bytes, room, CHUNKED);
    for (int i = 0; i < 50000; i++)
        n += (size_t)snprintf(bytes + n, room - n, "1\r\nx\r\n");
    n += (size_t)snprintf(bytes + n, room - n, "0\r\n\r\n");
    expect(loop, bytes, n, 200);
    n = (size_t)snprintf(bytes, room, CHUNKED "1;");
    memset(bytes + n, 'x', 100000);
    expect(loop, bytes, 100000, 400);
    free(bytes);
    loop_close(loop);
    free(loop);
}

static void test_expect(void **state)
{
    (void)state;
    static const char head[] = POST "Expect: 100-continue\r\nContent-Length: 3\r\n\r\n";
    struct loop *loop = malloc(sizeof *loop);
    assert_non_null(loop);
    loop_init(loop);
    loop_open(loop);
    int client = loop_connect(loop);
    assert_false(loop_ask(loop, client, head, sizeof head - 1, 0));
    assert_string_equal(loop->text, "HTTP/1.1 100 Continue\r\n\r\n");
    assert_false(loop_ask(loop, client, "abc", 3, 0));
    assert_int_equal(loop_status(loop), 200);
    assert_non_null(strstr(loop->text, "POST / 3"));
    close(client);
    loop_close(loop);
    free(loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_messages), cmocka_unit_test(test_pipelining),
                                       cmocka_unit_test(test_limits), cmocka_unit_test(test_expect)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
