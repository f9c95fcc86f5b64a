/*
 * test_server.c - connections: order, splits, ends, limits, passwords, and the server's own start and stop.
 *
 * Everything runs twice, once with each engine: sockets are driven quite differently, and clients must not notice.
 * Each test has a server of its own, so that a server started after another in one process is tested all the time.
 */
#include "tests/server/support_server.h"
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static const char *engine;
static char *folder;

#define SETTINGS(...) ((const char *const[]){"engine", engine, "import-dir", folder, __VA_ARGS__ NULL})
#define START(...)    support_server(SETTINGS(__VA_ARGS__))

static int make_folder(void **state)
{
    (void)state;
    folder = support_folder_make();
    support_build(folder, "l2", QUIRE_METRIC_L2);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    support_folder_remove(folder);
    return 0;
}

static uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* ---- requests and replies ---------------------------------------------------------------------------------------- */

enum { ROUNDS = 150, PER_ROUND = 5 };

static void put_mixed(struct resp_buffer *out)
{
    char words[64];
    for (unsigned i = 0; i < ROUNDS; i++) {
        snprintf(words, sizeof words, "ECHO %u", i);
        put_request(out, words);
        snprintf(words, sizeof words, "VSIM k ELE %u COUNT 1 TRUTH", i);
        put_request(out, words);
        snprintf(words, sizeof words, "VISMEMBER k %u", SUPPORT_ROWS - 2 + i % 4);
        put_request(out, words);
        put_request(out, i % 2 ? "NOSUCH a b" : "VCARD");
        snprintf(words, sizeof words, "VRANDMEMBER k %u", i % 7);
        put_request(out, words);
    }
}

static void check_mixed(struct connection *c)
{
    char text[32];
    for (unsigned i = 0; i < ROUNDS; i++) {
        snprintf(text, sizeof text, "%u", i);
        check_text(read_reply(c), text);
        struct reply r = read_reply(c);
        assert_int_equal(r.type, '*');
        assert_int_equal(r.n, 1);
        assert_true(reply_is(&r.items[0], text));
        reply_free(&r);
        r = read_reply(c);
        assert_int_equal(r.type, ':');
        assert_int_equal(r.integer, i % 4 < 2);
        reply_free(&r);
        check_error(read_reply(c), i % 2 ? "ERR unknown command 'NOSUCH', with args beginning with: 'a' 'b'"
                                         : "ERR wrong number of "
                                           "arguments for 'vcard'");
        r = read_reply(c);
        assert_int_equal(r.type, '*');
        assert_int_equal(r.n, i % 7);
        reply_free(&r);
    }
}

/* More than fit into PENDING_MAX, some answered at once, some after a read: all in order. */
static void test_pipeline_keeps_order(void **state)
{
    (void)state;
    struct test_server *s = START();
    struct connection c[3];
    struct resp_buffer out = {.protocol = 2};
    put_mixed(&out);
    for (unsigned i = 0; i < 3; i++)
        connect_to(&c[i], s->port);
    expect_text(&c[0], "VLOAD k l2", "OK");
    for (unsigned i = 0; i < 3; i++)
        send_bytes(&c[i], out.data, out.bytes);
    for (unsigned i = 0; i < 3; i++) {
        check_mixed(&c[i]);
        expect_text(&c[i], "PING", "PONG");
        disconnect(&c[i]);
    }
    resp_buffer_fini(&out);
    support_server_end(s);
}

static void test_single_bytes(void **state)
{
    (void)state;
    struct test_server *s = START();
    struct connection c;
    struct resp_buffer out = {.protocol = 2};
    connect_to(&c, s->port);
    put_request(&out, "VLOAD k l2");
    put_request(&out, "VSIM k ELE 7 COUNT 1 TRUTH");
    put_literal(&out, "ECHO \"a b\"\r\n");
    put_request(&out, "VCARD k");
    put_request(&out, "VEMB k 3");
    put_literal(&out, "\r\nPING\n");
    for (size_t i = 0; i < out.bytes; i++)
        send_bytes(&c, out.data + i, 1);
    check_text(read_reply(&c), "OK");
    struct reply r = read_reply(&c);
    assert_true(r.n == 1 && reply_is(&r.items[0], "7"));
    reply_free(&r);
    check_text(read_reply(&c), "a b");
    r = read_reply(&c);
    assert_int_equal(r.integer, SUPPORT_ROWS);
    reply_free(&r);
    r = read_reply(&c);
    assert_int_equal(r.n, SUPPORT_DIM);
    reply_free(&r);
    check_text(read_reply(&c), "PONG");
    disconnect(&c);
    resp_buffer_fini(&out);
    support_server_end(s);
}

/* A pipeline cut at every place of its first part, the rest sent a moment later. */
static void test_two_pieces(void **state)
{
    (void)state;
    struct test_server *s = START();
    struct connection c;
    struct resp_buffer out = {.protocol = 2};
    connect_to(&c, s->port);
    expect_text(&c, "VLOAD k l2", "OK");
    put_request(&out, "VISMEMBER k 5");
    put_request(&out, "ECHO abc");
    for (size_t cut = 1; cut < out.bytes; cut++) {
        send_bytes(&c, out.data, cut);
        usleep(300);
        send_bytes(&c, out.data + cut, out.bytes - cut);
        struct reply r = read_reply(&c);
        assert_int_equal(r.integer, 1);
        reply_free(&r);
        check_text(read_reply(&c), "abc");
    }
    disconnect(&c);
    resp_buffer_fini(&out);
    support_server_end(s);
}

static void test_half_close_gets_all_replies(void **state)
{
    (void)state;
    struct test_server *s = START();
    struct connection c, other;
    struct resp_buffer out = {.protocol = 2};
    connect_to(&other, s->port);
    expect_text(&other, "VLOAD k l2", "OK");
    put_mixed(&out);
    for (unsigned round = 0; round < 3; round++) {
        connect_to(&c, s->port);
        send_bytes(&c, out.data, out.bytes);
        if (round == 1)
            send_literal(&c, "*2\r\n$4\r\nECHO\r\n$100\r\nnever"); /* will never be whole */
        assert_int_equal(shutdown(c.fd, SHUT_WR), 0);
        check_mixed(&c);
        expect_closed(&c);
        disconnect(&c);
    }
    connect_to(&c, s->port);
    send_request(&c, "VLOAD late l2");
    send_request(&c, "VCARD late");
    assert_int_equal(shutdown(c.fd, SHUT_WR), 0);
    check_text(read_reply(&c), "OK");
    struct reply r = read_reply(&c);
    assert_int_equal(r.integer, SUPPORT_ROWS);
    reply_free(&r);
    expect_closed(&c);
    disconnect(&c);
    expect_text(&other, "PING", "PONG");
    disconnect(&other);
    resp_buffer_fini(&out);
    support_server_end(s);
}

static void test_large_arguments(void **state)
{
    (void)state;
    enum { BYTES = 3 << 20 };
    struct test_server *s = START();
    struct connection c;
    struct resp_buffer out = {.protocol = 2};
    char *bulk = malloc(BYTES);
    assert_non_null(bulk);
    for (size_t i = 0; i < BYTES; i++)
        bulk[i] = (char)(i * 7 + i / 1000);
    connect_to(&c, s->port);
    resp_array(&out, 2);
    resp_text(&out, "ECHO");
    resp_bulk(&out, bulk, BYTES);
    send_bytes(&c, out.data, out.bytes);
    send_request(&c, "PING");
    struct reply r = read_reply(&c);
    assert_int_equal(r.bytes, BYTES);
    assert_memory_equal(r.text, bulk, BYTES);
    reply_free(&r);
    check_text(read_reply(&c), "PONG");
    free(bulk);
    disconnect(&c);
    resp_buffer_fini(&out);
    support_server_end(s);
}

/* A client that goes without reading what it asked for. */
static void test_sudden_ends(void **state)
{
    (void)state;
    struct test_server *s = START();
    struct connection c, other;
    struct resp_buffer out = {.protocol = 2};
    connect_to(&other, s->port);
    expect_text(&other, "VLOAD k l2", "OK");
    put_mixed(&out);
    for (unsigned i = 0; i < 20; i++) {
        struct linger reset = {.l_onoff = 1, .l_linger = 0};
        connect_to(&c, s->port);
        send_bytes(&c, out.data, out.bytes - i * 40);
        if (i % 2)
            setsockopt(c.fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
        disconnect(&c);
    }
    expect_text(&other, "PING", "PONG");
    for (unsigned tries = 0; info_number(&other, "connected_clients") != 1; tries++) {
        assert_true(tries < 500);
        usleep(10000);
    }
    disconnect(&other);
    resp_buffer_fini(&out);
    support_server_end(s);
}

/* ---- ends by the server ------------------------------------------------------------------------------------------ */

static void test_protocol_errors(void **state)
{
    (void)state;
    static const struct {
        const char *bytes, *error;
    } cases[] = {
        {"*1\r\nPING\r\n", "ERR Protocol error: expected '$', got 'P'"},
        {"*1\r\n$-5\r\n", "ERR Protocol error: invalid bulk length"},
        {"*99999999\r\n", "ERR Protocol error: invalid multibulk length"},
        {"*x\r\n", "ERR Protocol error: invalid multibulk length"},
        {"*1\r\n$99999999999\r\n", "ERR Protocol error: invalid bulk length"},
        {"PING \"a\r\n", "ERR Protocol error: unbalanced quotes in request"},
    };
    struct test_server *s = START();
    struct connection c, other;
    connect_to(&other, s->port);
    expect_text(&other, "VLOAD k l2", "OK");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        connect_to(&c, s->port);
        send_request(&c, "VCARD k");
        send_request(&c, "VISMEMBER k 1");
        send_bytes(&c, cases[i].bytes, strlen(cases[i].bytes));
        send_request(&c, "PING");
        struct reply r = read_reply(&c);
        assert_int_equal(r.integer, SUPPORT_ROWS);
        reply_free(&r);
        r = read_reply(&c);
        assert_int_equal(r.integer, 1);
        reply_free(&r);
        check_error(read_reply(&c), cases[i].error);
        expect_closed(&c);
        disconnect(&c);
        expect_text(&other, "PING", "PONG");
    }
    assert_int_equal(info_number(&other, "protocol_error_disconnections"), (int)(sizeof cases / sizeof *cases));
    disconnect(&other);
    support_server_end(s);
}

static void test_endless_inline_line(void **state)
{
    (void)state;
    struct test_server *s = START();
    struct connection c;
    char line[70000];
    memset(line, 'x', sizeof line);
    connect_to(&c, s->port);
    send_bytes(&c, line, sizeof line);
    check_error(read_reply(&c), "ERR Protocol error: too big inline request");
    expect_closed(&c);
    disconnect(&c);
    support_server_end(s);
}

static void test_wrong_requests_keep_the_connection(void **state)
{
    (void)state;
    struct test_server *s = START();
    struct connection c;
    connect_to(&c, s->port);
    expect_error(&c, "GETX x", "ERR unknown command 'GETX', with args beginning with: 'x' ");
    expect_error(&c, "ECHO", "ERR wrong number of arguments for 'echo' command");
    expect_error(&c, "ECHO a b", "ERR wrong number of arguments for 'echo' command");
    expect_error(&c, "PING a b", "ERR wrong number of arguments for 'ping' command");
    expect_error(&c, "CONFIG NOPE x", "ERR unknown subcommand 'NOPE'. Try CONFIG HELP.");
    expect_error(&c, "CONFIG", "ERR wrong number of arguments for 'config' command");
    expect_error(&c, "CONFIG GET", "ERR wrong number of arguments for 'config|get' command");
    expect_error(&c, "SELECT 1", "ERR DB index is out of range");
    expect_error(&c, "SELECT x", "ERR value is not an integer");
    expect_error(&c, "SHUTDOWN LATER", "ERR syntax error");
    send_literal(&c, "*1\r\n$6\r\nA\r\nB\0C\r\n");
    check_error(read_reply(&c), "ERR unknown command 'A  B'");
    send_literal(&c, "*1\r\n$0\r\n\r\n*0\r\n*-1\r\n\r\n");
    check_error(read_reply(&c), "ERR unknown command ''");
    expect_text(&c, "PING", "PONG");
    expect_text(&c, "ping x", "x");
    expect_text(&c, "SELECT 0", "OK");
    disconnect(&c);
    support_server_end(s);
}

static void test_quit(void **state)
{
    (void)state;
    struct test_server *s = START();
    struct connection c;
    connect_to(&c, s->port);
    expect_text(&c, "VLOAD k l2", "OK");
    send_request(&c, "VISMEMBER k 1");
    send_request(&c, "QUIT");
    send_request(&c, "PING");
    struct reply r = read_reply(&c);
    assert_int_equal(r.integer, 1);
    reply_free(&r);
    check_text(read_reply(&c), "OK");
    expect_closed(&c);
    disconnect(&c);
    support_server_end(s);
}

static void test_maxclients(void **state)
{
    (void)state;
    struct test_server *s = START("maxclients", "2", );
    struct connection a, b, c;
    connect_to(&a, s->port);
    expect_text(&a, "PING", "PONG");
    connect_to(&b, s->port);
    expect_text(&b, "PING", "PONG");
    connect_to(&c, s->port);
    check_error(read_reply(&c), "ERR max number of clients reached");
    expect_closed(&c);
    disconnect(&c);
    assert_int_equal(info_number(&a, "rejected_connections"), 1);
    disconnect(&b);
    while (info_number(&a, "connected_clients") > 1)
        usleep(1000);
    connect_to(&c, s->port);
    expect_text(&c, "PING", "PONG");
    disconnect(&c);
    disconnect(&a);
    support_server_end(s);
}

static void test_idle_clients_are_closed(void **state)
{
    (void)state;
    struct test_server *s = START("timeout", "1", );
    struct connection idle, busy;
    connect_to(&idle, s->port);
    connect_to(&busy, s->port);
    expect_text(&idle, "PING", "PONG");
    uint64_t began = now_ms();
    struct pollfd closed = {.fd = idle.fd, .events = POLLIN};
    while (poll(&closed, 1, 200) == 0) {
        expect_text(&busy, "PING", "PONG");
        assert_true(now_ms() - began < 10000);
    }
    assert_true(now_ms() - began >= 900);
    expect_closed(&idle);
    expect_text(&busy, "PING", "PONG");
    assert_int_equal(info_number(&busy, "idle_disconnections"), 1);
    disconnect(&idle);
    disconnect(&busy);
    support_server_end(s);
}

/* Sends until the other side has had enough of it. False: it took everything. */
static bool send_until_closed(struct connection *c, const struct resp_buffer *what, unsigned times)
{
    for (unsigned i = 0; i < times; i++)
        for (size_t at = 0; at < what->bytes;) {
            /* the end may come as a reset or, when the other side's window is closed, as an end of its stream only */
            struct pollfd ready = {.fd = c->fd, .events = POLLOUT | POLLRDHUP};
            assert_int_equal(poll(&ready, 1, 20000), 1);
            ssize_t sent = send(c->fd, what->data + at, what->bytes - at, MSG_NOSIGNAL | MSG_DONTWAIT);
            if (sent < 0 && errno != EAGAIN)
                assert_true(errno == EPIPE || errno == ECONNRESET);
            if (ready.revents & POLLRDHUP || (sent < 0 && errno != EAGAIN))
                return true;
            at += sent > 0 ? (size_t)sent : 0;
        }
    return false;
}

static void put_echo(struct resp_buffer *out, size_t bytes)
{
    char *bulk = calloc(1, bytes);
    assert_non_null(bulk);
    resp_array(out, 2);
    resp_text(out, "ECHO");
    resp_bulk(out, bulk, bytes);
    free(bulk);
}

static void test_unread_replies_are_limited(void **state)
{
    (void)state;
    struct test_server *s = START("client-output-buffer-limit", "128kb", );
    struct connection deaf, other;
    struct resp_buffer echo = {.protocol = 2};
    put_echo(&echo, 60000);
    connect_to(&other, s->port);
    connect_to(&deaf, s->port);
    assert_true(send_until_closed(&deaf, &echo, 2000));
    expect_text(&other, "PING", "PONG");
    assert_int_equal(info_number(&other, "client_output_buffer_limit_disconnections"), 1);
    /* one that reads may have as much as it likes */
    for (unsigned i = 0; i < 50; i++) {
        send_bytes(&other, echo.data, echo.bytes);
        struct reply r = read_reply(&other);
        assert_int_equal(r.bytes, 60000);
        reply_free(&r);
    }
    disconnect(&deaf);
    disconnect(&other);
    resp_buffer_fini(&echo);
    support_server_end(s);
}

static void test_query_buffer_is_limited(void **state)
{
    (void)state;
    struct test_server *s = START("client-query-buffer-limit", "1mb", );
    struct connection c, other;
    struct resp_buffer echo = {.protocol = 2};
    connect_to(&other, s->port);
    connect_to(&c, s->port);
    put_echo(&echo, 30 << 20);
    assert_true(send_until_closed(&c, &echo, 1));
    disconnect(&c);
    expect_text(&other, "PING", "PONG");
    assert_int_equal(info_number(&other, "client_query_buffer_limit_disconnections"), 1);
    disconnect(&other);
    resp_buffer_fini(&echo);
    support_server_end(s);
}

/* ---- passwords, addresses ---------------------------------------------------------------------------------------- */

static void test_password(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "AUTH secre",         "AUTH secrets",         "AUTH secretsecret",         "AUTH Secret",
        "AUTH default wrong", "AUTH somebody secret", "HELLO 3 AUTH default wrong"};
    struct test_server *s = START("requirepass", "secret", );
    struct connection c;
    connect_to(&c, s->port);
    expect_error(&c, "PING", "NOAUTH ");
    expect_error(&c, "VSIM k ELE a", "NOAUTH ");
    expect_error(&c, "SHUTDOWN", "NOAUTH ");
    expect_error(&c, "HELLO 3", "NOAUTH ");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        expect_error(&c, wrong[i], "WRONGPASS ");
        expect_error(&c, "PING", "NOAUTH ");
    }
    send_literal(&c, "*2\r\n$4\r\nAUTH\r\n$0\r\n\r\n");
    check_error(read_reply(&c), "WRONGPASS ");
    expect_error(&c, "AUTH a b c", "ERR syntax error");
    expect_text(&c, "AUTH secret", "OK");
    expect_text(&c, "PING", "PONG");
    assert_int_equal(info_number(&c, "acl_access_denied_auth"), 8);
    expect_text(&c, "RESET", "RESET");
    expect_error(&c, "PING", "NOAUTH ");
    struct reply r = ask(&c, "HELLO 3 AUTH default secret SETNAME me");
    assert_int_equal(r.type, '%');
    reply_free(&r);
    expect_text(&c, "CLIENT GETNAME", "me");
    expect_text(&c, "QUIT", "OK");
    disconnect(&c);
    support_server_end(s);
}

/* Before the password a client gets little room. */
static void test_strangers_get_little_room(void **state)
{
    (void)state;
    struct test_server *s = START("requirepass", "secret", );
    struct connection c;
    connect_to(&c, s->port);
    send_literal(&c, "*11\r\n");
    check_error(read_reply(&c), "ERR Protocol error: invalid multibulk length");
    expect_closed(&c);
    disconnect(&c);
    connect_to(&c, s->port);
    send_literal(&c, "*1\r\n$16385\r\n");
    check_error(read_reply(&c), "ERR Protocol error: invalid bulk length");
    expect_closed(&c);
    disconnect(&c);
    support_server_end(s);
}

static void expect_no_server(int code, const char *words, const char *const *settings)
{
    struct test_server *s;
    struct quire_error err = {0};
    int rc = support_try_server(&s, &err, settings);
    if (rc != code || err.code != code || !strstr(err.message, words))
        fail_msg("code %d, expected %d and '%s' in: %s", rc, code, words, err.message);
    support_server_end(s);
}

static void test_protected_mode(void **state)
{
    (void)state;
    expect_no_server(QUIRE_EPERM, "requirepass", SETTINGS("bind", "0.0.0.0", ));
    expect_no_server(QUIRE_EPERM, "0.0.0.0", SETTINGS("bind", "127.0.0.1 0.0.0.0", ));
    expect_no_server(QUIRE_EPERM, "requirepass", SETTINGS("bind", "::", ));
    struct test_server *s = START("bind", "0.0.0.0", "requirepass", "x", );
    support_server_end(s);
    s = START("bind", "127.0.0.2 127.0.0.1", );
    struct connection c;
    connect_to(&c, s->port);
    expect_text(&c, "PING", "PONG");
    disconnect(&c);
    support_server_end(s);
}

static void test_what_cannot_start(void **state)
{
    (void)state;
    struct test_server *s = START();
    struct connection c;
    char port[16];
    snprintf(port, sizeof port, "%u", s->port);
    expect_no_server(QUIRE_EADDRINUSE, port, SETTINGS("port", port, ));
    expect_no_server(QUIRE_EINVALID, "localhost", SETTINGS("bind", "localhost", ));
    expect_no_server(QUIRE_EINVALID, "no address", SETTINGS("bind", "", ));
    expect_no_server(QUIRE_EINVALID, "is a file, not a folder", SETTINGS("dir", "/dev/null", ));
    expect_no_server(QUIRE_ENOFILE, "/nowhere", SETTINGS("load", "k /nowhere/at-all", ));
    char line[512];
    snprintf(line, sizeof line, "k %s/l2", folder);
    connect_to(&c, s->port);
    expect_text(&c, "PING", "PONG");
    disconnect(&c);
    struct test_server *loaded = START("load", line, "load", line, ); /* what is there already stays */
    connect_to(&c, loaded->port);
    expect_integer(&c, "VCARD k", SUPPORT_ROWS);
    disconnect(&c);
    support_server_end(loaded);
    support_server_end(s);
}

/* ---- commands of connection and server --------------------------------------------------------------------------- */

static void test_hello(void **state)
{
    (void)state;
    struct test_server *s = START();
    struct connection c;
    connect_to(&c, s->port);
    for (int protocol = 3; protocol >= 2; protocol--) {
        struct reply r = ask(&c, protocol == 3 ? "HELLO 3" : "HELLO 2");
        assert_int_equal(r.type, protocol == 3 ? '%' : '*');
        assert_int_equal(reply_field(&r, "proto")->integer, protocol);
        assert_true(reply_is(reply_field(&r, "server"), "quire"));
        assert_true(reply_is(reply_field(&r, "version"), "8.0.0"));
        assert_int_equal(reply_field(&r, "modules")->n, 3);
        assert_true(reply_is(reply_field(&reply_field(&r, "modules")->items[0], "name"), "vectorset"));
        reply_free(&r);
        r = ask(&c, "HELLO");
        assert_int_equal(reply_field(&r, "proto")->integer, protocol);
        reply_free(&r);
    }
    expect_error(&c, "HELLO 4", "NOPROTO ");
    expect_error(&c, "HELLO x", "ERR Protocol version is not an integer");
    expect_error(&c, "HELLO 3 NOPE", "ERR Syntax error in HELLO option 'NOPE'");
    expect_error(&c, "HELLO 3 AUTH default", "ERR Syntax error in HELLO option 'AUTH'");
    expect_error(&c, "AUTH x", "ERR AUTH <password> called without any password configured");
    struct reply r = ask(&c, "CLIENT GETNAME");
    assert_true(r.null && r.type == '$');
    reply_free(&r);
    expect_text(&c, "CLIENT SETNAME name", "OK");
    expect_text(&c, "CLIENT GETNAME", "name");
    send_literal(&c, "CLIENT SETNAME \"a b\"\r\n");
    check_error(read_reply(&c), "ERR Client names cannot contain");
    expect_text(&c, "CLIENT SETINFO LIB-NAME x", "OK");
    expect_error(&c, "CLIENT SETINFO NOPE x", "ERR Unrecognized option 'NOPE'");
    disconnect(&c);
    support_server_end(s);
}

static void test_config_get_and_info(void **state)
{
    (void)state;
    struct test_server *s = START();
    struct connection c;
    connect_to(&c, s->port);
    struct reply r = ask(&c, "CONFIG GET port save *-BUFFER-* nosuch");
    assert_int_equal(r.n, 8);
    assert_int_equal((unsigned)atoi(reply_field(&r, "port")->text), s->port);
    assert_true(reply_is(reply_field(&r, "save"), ""));
    assert_non_null(reply_field(&r, "client-output-buffer-limit"));
    reply_free(&r);
    r = ask(&c, "HELLO 3");
    reply_free(&r);
    r = ask(&c, "INFO server keyspace");
    assert_int_equal(r.type, '=');
    assert_non_null(strstr(r.text, "quire_version:" QUIRE_VERSION_STRING "\r\n"));
    assert_null(strstr(r.text, "# Clients"));
    reply_free(&r);
    assert_int_equal(info_number(&c, "lanes"), 2);
    assert_true(info_number(&c, "total_commands_processed") >= 3);
    r = ask(&c, "INFO nosuchsection");
    assert_int_equal(r.type, '=');
    reply_free(&r);
    disconnect(&c);
    support_server_end(s);
}

static void test_command_replies(void **state)
{
    (void)state;
    static const char *const asks[] = {"COMMAND",      "COMMAND INFO",      "COMMAND DOCS",
                                       "COMMAND LIST", "COMMAND DOCS nope", "COMMAND HELP",
                                       "CONFIG HELP",  "CLIENT HELP",       "COMMAND DOCS vsim config|get PING"};
    struct test_server *s = START();
    struct connection c;
    connect_to(&c, s->port);
    for (int protocol = 2; protocol <= 3; protocol++) {
        struct reply r = ask(&c, protocol == 3 ? "HELLO 3" : "HELLO 2");
        reply_free(&r);
        r = ask(&c, "COMMAND COUNT");
        size_t count = (size_t)r.integer;
        reply_free(&r);
        for (size_t i = 0; i < sizeof asks / sizeof *asks; i++) {
            r = ask(&c, asks[i]);
            assert_true(r.type != '-');
            if (i < 4)
                assert_int_equal(r.n, count * (i == 2 ? 2 : 1));
            reply_free(&r);
            assert_int_equal(c.have, 0);
        }
        r = ask(&c, "COMMAND INFO vsim nope client|id");
        assert_int_equal(r.n, 3);
        assert_int_equal(r.items[0].n, 10);
        assert_int_equal(r.items[0].items[1].integer, -4);
        assert_true(r.items[1].null);
        assert_true(reply_is(&r.items[2].items[0], "client|id"));
        reply_free(&r);
    }
    disconnect(&c);
    support_server_end(s);
}

static void test_shutdown_command(void **state)
{
    (void)state;
    struct test_server *s = START();
    struct pollfd asked = {.fd = server_stop_fd(s->server), .events = POLLIN};
    struct connection c;
    connect_to(&c, s->port);
    assert_int_equal(poll(&asked, 1, 0), 0);
    send_request(&c, "SHUTDOWN NOSAVE");
    expect_closed(&c);
    assert_int_equal(poll(&asked, 1, 5000), 1);
    disconnect(&c);
    support_server_end(s);
}

/* A client that stays connected and says nothing does not hold the stop up for long. */
static void test_stop_with_silent_clients(void **state)
{
    (void)state;
    struct test_server *s = START("shutdown-timeout", "1", );
    struct connection c[4];
    for (unsigned i = 0; i < 4; i++) {
        connect_to(&c[i], s->port);
        expect_text(&c[i], "PING", "PONG");
    }
    send_literal(&c[0], "*2\r\n$4\r\nECHO\r\n$10\r\nab");
    uint64_t began = now_ms();
    support_server_end(s);
    assert_true(now_ms() - began < 6000);
    for (unsigned i = 0; i < 4; i++) {
        expect_closed(&c[i]);
        disconnect(&c[i]);
    }
}

static void test_many_servers(void **state)
{
    (void)state;
    struct test_server *s[3];
    struct connection c;
    for (unsigned round = 0; round < 4; round++) {
        for (unsigned i = 0; i < 3; i++)
            s[i] = START();
        for (unsigned i = 0; i < 3; i++) {
            connect_to(&c, s[i]->port);
            expect_text(&c, i ? "VLOAD k l2" : "PING", i ? "OK" : "PONG");
            expect_integer(&c, "DBSIZE", i > 0);
            disconnect(&c);
        }
        for (unsigned i = 0; i < 3; i++)
            support_server_end(s[(i + round) % 3]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pipeline_keeps_order),
        cmocka_unit_test(test_single_bytes),
        cmocka_unit_test(test_two_pieces),
        cmocka_unit_test(test_half_close_gets_all_replies),
        cmocka_unit_test(test_large_arguments),
        cmocka_unit_test(test_sudden_ends),
        cmocka_unit_test(test_protocol_errors),
        cmocka_unit_test(test_endless_inline_line),
        cmocka_unit_test(test_wrong_requests_keep_the_connection),
        cmocka_unit_test(test_quit),
        cmocka_unit_test(test_maxclients),
        cmocka_unit_test(test_idle_clients_are_closed),
        cmocka_unit_test(test_unread_replies_are_limited),
        cmocka_unit_test(test_query_buffer_is_limited),
        cmocka_unit_test(test_password),
        cmocka_unit_test(test_strangers_get_little_room),
        cmocka_unit_test(test_protected_mode),
        cmocka_unit_test(test_what_cannot_start),
        cmocka_unit_test(test_hello),
        cmocka_unit_test(test_config_get_and_info),
        cmocka_unit_test(test_command_replies),
        cmocka_unit_test(test_shutdown_command),
        cmocka_unit_test(test_stop_with_silent_clients),
        cmocka_unit_test(test_many_servers),
    };
    engine = "auto";
    int failed = cmocka_run_group_tests_name("server, engine auto", tests, make_folder, remove_folder);
    engine = "threads";
    return failed + cmocka_run_group_tests_name("server, engine threads", tests, make_folder, remove_folder);
}
