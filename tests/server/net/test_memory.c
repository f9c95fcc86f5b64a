/*
 * test_memory.c - what clients can make the server hold: replies behind one that waits, one reply of any size, before
 * they authenticate, all together; and how it ends.
 *
 * Memory is what the server counts (mem_clients_normal) or what the kernel does (used_memory_rss), with a margin; times
 * are only bounded from above, and generously.
 */
#include "tests/sanitized.h"
#include "tests/server/support_sc.h"
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
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

#define START(...) support_server((const char *const[]){__VA_ARGS__ NULL})

enum { MIB = 1 << 20, WAIT_MS = 20000 };

static uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void wait_for(struct connection *c, const char *field, long long least)
{
    for (uint64_t began = now_ms(); info_number(c, field) < least; usleep(20000))
        if (now_ms() - began > WAIT_MS)
            fail_msg("%s is %lld, not %lld", field, info_number(c, field), least);
}

static void wait_until_alone(struct connection *c)
{
    for (uint64_t began = now_ms(); info_number(c, "connected_clients") > 1; usleep(20000))
        assert_in_range(now_ms() - began, 0, WAIT_MS);
}

static void set_value(struct connection *c, const char *key, size_t bytes)
{
    struct resp_buffer out = {.protocol = 2};
    char *value = malloc(bytes);
    assert_non_null(value);
    memset(value, 'v', bytes);
    resp_array(&out, 3);
    resp_text(&out, "SET");
    resp_text(&out, key);
    resp_bulk(&out, value, bytes);
    send_bytes(c, out.data, out.bytes);
    check_text(read_reply(c), "OK");
    resp_buffer_fini(&out);
    free(value);
}

/* The same request n times, until nothing more can be sent for a while. */
static void send_many(struct connection *c, const char *words, unsigned n)
{
    struct resp_buffer out = {.protocol = 2};
    for (unsigned i = 0; i < n; i++)
        put_request(&out, words);
    for (size_t at = 0; at < out.bytes;) {
        struct pollfd fd = {.fd = c->fd, .events = POLLOUT};
        ssize_t sent =
            poll(&fd, 1, 300) == 1 ? send(c->fd, out.data + at, out.bytes - at, MSG_NOSIGNAL | MSG_DONTWAIT) : -1;
        if (sent <= 0)
            break;
        at += (size_t)sent;
    }
    resp_buffer_fini(&out);
}

/* A cache, and a client of it whose request waits for an answer of another. */
static void wait_in_line(struct connection *admin, struct connection *waiting)
{
    static const char waits[] = "SC.GET f CAT q VEC @ HASH h WAIT 600000";
    expect_text(admin, "SC.CREATE f DIM 16 ENCODER enc@1", "OK");
    expect_text(admin, "SC.CAT.SET f q SIM 0.9 JITTER 0 LEASE 600000", "OK");
    struct reply r = sc_say(admin, sc_at(0, 1), "%s", waits);
    assert_true(r.type == '*' && reply_field(&r, "lease"));
    reply_free(&r);
    sc_send_words(waiting, sc_at(0, 1), waits);
}

static void test_replies_behind_one_that_waits(void **state)
{
    (void)state;
    struct test_server *s = START("client-output-buffer-limit", "1mb", "maxmemory-clients", "0", );
    struct connection admin, waiting;
    connect_to(&admin, s->port);
    connect_to(&waiting, s->port);
    set_value(&admin, "big", 128 << 10);
    wait_in_line(&admin, &waiting);
    send_many(&waiting, "GET big", 255);
    usleep(300000);
    expect_text(&admin, "PING", "PONG");
    /* a quarter of the limit, and the reply that reached it */
    assert_in_range(info_number(&admin, "mem_clients_normal"), 0, MIB);
    assert_int_equal(info_number(&admin, "connected_clients"), 2);
    /* one reply beyond the limit itself is not kept, whatever stands before it */
    set_value(&admin, "big", 4 * MIB);
    struct connection other;
    connect_to(&other, s->port);
    sc_send_words(&other, sc_at(0, 1), "SC.GET f CAT q VEC @ HASH h WAIT 600000");
    send_many(&other, "GET big", 1);
    wait_for(&admin, "client_output_buffer_limit_disconnections", 1);
    disconnect(&other);
    disconnect(&waiting);
    disconnect(&admin);
    support_server_end(s);
}

static void reset(struct connection *c)
{
    struct linger hard = {.l_onoff = 1, .l_linger = 0};
    setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    disconnect(c);
}

static void test_what_a_gone_client_left_is_freed(void **state)
{
    (void)state;
    struct test_server *s = START("client-output-buffer-limit", "64mb", );
    struct connection admin, waiting;
    connect_to(&admin, s->port);
    connect_to(&waiting, s->port);
    set_value(&admin, "big", 2 * MIB);
    wait_in_line(&admin, &waiting);
    /* enough behind it that the server receives no more, and would not be told of the end */
    send_many(&waiting, "GET big", 200000);
    wait_for(&admin, "mem_clients_normal", 8 * MIB);
    reset(&waiting);
    wait_until_alone(&admin);
    assert_in_range(info_number(&admin, "mem_clients_normal"), 0, MIB);
    disconnect(&admin);
    support_server_end(s);
}

static void expect_output_limit(struct test_server *s, const char *words, long long resident_more)
{
    struct connection admin, greedy;
    connect_to(&admin, s->port);
    connect_to(&greedy, s->port);
    long long before = info_number(&admin, "used_memory_peak");
    send_request(&greedy, words);
    expect_closed(&greedy);
    assert_int_equal(info_number(&admin, "client_output_buffer_limit_disconnections"), 1);
    if (!SANITIZED)
        assert_in_range(info_number(&admin, "used_memory_peak"), 0, before + resident_more);
    disconnect(&greedy);
    disconnect(&admin);
}

static void test_one_reply_is_limited_while_it_is_built(void **state)
{
    (void)state;
    struct test_server *s = START("client-output-buffer-limit", "1mb", "maxmemory-clients", "0", );
    struct connection admin;
    char words[4096] = "MGET";
    connect_to(&admin, s->port);
    set_value(&admin, "big", 8 * MIB);
    set_value(&admin, "big", 8 * MIB); /* what a request of this size takes has been taken once */
    for (unsigned i = 0; i < 100; i++)
        strcat(words, " big");
    expect_output_limit(s, words, 8 * MIB);
    disconnect(&admin);
    support_server_end(s);
}

static void test_vmsim_is_limited_as_a_whole(void **state)
{
    enum { ELEMENTS = 40, QUERIES = 150, ATTRIBUTE = 100000 };
    (void)state;
    struct test_server *s = START("client-output-buffer-limit", "1mb", "maxmemory-clients", "0", );
    struct connection admin;
    char *words = malloc(ATTRIBUTE + 100), *queries = malloc(QUERIES * 32 + 100);
    assert_true(words && queries);
    connect_to(&admin, s->port);
    for (unsigned i = 0; i < ELEMENTS; i++) {
        int n = sprintf(words, "VADD v VALUES 2 1 %u e%u SETATTR \"", i, i);
        memset(words + n, 'a', ATTRIBUTE);
        words[n + ATTRIBUTE] = '"';
        words[n + ATTRIBUTE + 1] = 0;
        struct resp_buffer out = {.protocol = 2};
        resp_array(&out, 9);
        char number[16];
        snprintf(number, sizeof number, "%u", i);
        const char *const parts[] = {"VADD", "v", "VALUES", "2", "1", number, number, "SETATTR"};
        for (unsigned p = 0; p < 8; p++)
            resp_text(&out, parts[p]);
        resp_bulk(&out, words + n, ATTRIBUTE);
        send_bytes(&admin, out.data, out.bytes);
        struct reply r = read_reply(&admin);
        assert_int_equal(r.type, ':');
        reply_free(&r);
        resp_buffer_fini(&out);
    }
    int n = sprintf(queries, "VMSIM v %d", QUERIES);
    for (unsigned i = 0; i < QUERIES; i++)
        n += sprintf(queries + n, " VALUES 2 1 0");
    sprintf(queries + n, " COUNT 40 WITHATTRIBS");
    /* the results of the searches under way are beside it */
    expect_output_limit(s, queries, 100 * MIB);
    free(words);
    free(queries);
    disconnect(&admin);
    support_server_end(s);
}

/* ---- before authentication --------------------------------------------------------------------------------------- */

enum { STRANGERS = 24 };

static void test_strangers_hold_little(void **state)
{
    (void)state;
    struct test_server *s = START("requirepass", "secret", "maxmemory-clients", "0", );
    struct connection admin, strangers[STRANGERS];
    struct resp_buffer lines = {.protocol = 2};
    connect_to(&admin, s->port);
    expect_text(&admin, "AUTH secret", "OK");
    for (unsigned i = 0; i < 100000; i++)
        resp_raw(&lines, "x\r\n", 3);
    for (unsigned i = 0; i < STRANGERS; i++) {
        int few = 4096;
        make_socket(&strangers[i]);
        setsockopt(strangers[i].fd, SOL_SOCKET, SO_RCVBUF, &few, sizeof few);
        connect_socket(&strangers[i], s->port);
    }
    for (unsigned round = 0; round < 20; round++)
        for (unsigned i = 0; i < STRANGERS; i++) {
            ssize_t sent = send(strangers[i].fd, lines.data, lines.bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
            (void)sent;
            if (i % 2) {
                char few[64];
                ssize_t got = recv(strangers[i].fd, few, sizeof few, MSG_DONTWAIT);
                (void)got;
            }
        }
    /* an output limit of 16 KiB, and an input of as much, with the buffers' slack */
    assert_in_range(info_number(&admin, "mem_clients_normal"), 0, STRANGERS * (128 << 10));
    /* who sends far ahead is closed */
    send_many(&strangers[0], "x", 2000000);
    wait_for(&admin, "client_query_buffer_limit_disconnections", 1);
    for (unsigned i = 0; i < STRANGERS; i++)
        disconnect(&strangers[i]);
    resp_buffer_fini(&lines);
    disconnect(&admin);
    support_server_end(s);
}

static void test_strangers_have_a_deadline(void **state)
{
    (void)state;
    struct test_server *s = START("requirepass", "secret", "authentication-timeout", "1", );
    struct connection admin, stranger;
    connect_to(&admin, s->port);
    expect_text(&admin, "AUTH secret", "OK");
    connect_to(&stranger, s->port);
    for (unsigned i = 0; i < 3; i++) {
        /* requests do not prolong it */
        expect_error(&stranger, "PING", "NOAUTH");
        usleep(100000);
    }
    expect_closed(&stranger);
    assert_int_equal(info_number(&admin, "unauthenticated_disconnections"), 1);
    disconnect(&stranger);
    disconnect(&admin);
    support_server_end(s);
    /* nobody who needs no password is asked for one */
    s = START("authentication-timeout", "1", );
    connect_to(&admin, s->port);
    usleep(2200000);
    expect_text(&admin, "PING", "PONG");
    disconnect(&admin);
    support_server_end(s);
}

static void expect_http_closed(struct test_server *s, const char *request)
{
    struct connection web;
    connect_to(&web, s->port);
    send_bytes(&web, request, strlen(request));
    expect_closed(&web);
    disconnect(&web);
}

static void test_a_web_page_commands_nothing(void **state)
{
    (void)state;
    struct test_server *s = START();
    struct connection admin;
    connect_to(&admin, s->port);
    expect_http_closed(s, "POST / HTTP/1.1\r\nHost: localhost\r\n\r\nSET pwned 1\r\n");
    expect_http_closed(s, "host: localhost\r\nSET pwned 1\r\n");
    expect_http_closed(s, "MULTI\r\nPOST / HTTP/1.1\r\nSET pwned 1\r\nEXEC\r\n");
    expect_integer(&admin, "EXISTS pwned", 0);
    assert_int_equal(info_number(&admin, "http_disconnections"), 3);
    disconnect(&admin);
    support_server_end(s);
}

/* An address of this machine that is not loopback; false where there is none. */
static bool own_address(char text[INET_ADDRSTRLEN])
{
    struct ifaddrs *all = NULL;
    bool found = false;
    assert_int_equal(getifaddrs(&all), 0);
    for (const struct ifaddrs *a = all; a && !found; a = a->ifa_next) {
        if (!a->ifa_addr || a->ifa_addr->sa_family != AF_INET)
            continue;
        const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)a->ifa_addr;
        found =
            ntohl(in->sin_addr.s_addr) >> 24 != 127 && inet_ntop(AF_INET, &in->sin_addr, text, INET_ADDRSTRLEN) != NULL;
    }
    freeifaddrs(all);
    return found;
}

static void test_protected_mode_stays(void **state)
{
    char address[INET_ADDRSTRLEN], bind[INET_ADDRSTRLEN + 16];
    (void)state;
    if (!own_address(address))
        skip();
    snprintf(bind, sizeof bind, "127.0.0.1 %s", address);
    struct test_server *s = START("bind", bind, "requirepass", "secret", );
    struct connection admin, far;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)s->port)};
    assert_int_equal(inet_pton(AF_INET, address, &to.sin_addr), 1);
    connect_to(&admin, s->port);
    expect_text(&admin, "AUTH secret", "OK");
    send_literal(&admin, "*4\r\n$6\r\nCONFIG\r\n$3\r\nSET\r\n$11\r\nrequirepass\r\n$0\r\n\r\n");
    check_error(read_reply(&admin), "ERR CONFIG SET failed");
    make_socket(&far);
    assert_int_equal(connect(far.fd, (struct sockaddr *)&to, sizeof to), 0);
    expect_error(&far, "PING", "NOAUTH");
    disconnect(&far);
    /* the other way to have no password */
    expect_text(&admin, "ACL SETUSER default nopass", "OK");
    make_socket(&far);
    assert_int_equal(connect(far.fd, (struct sockaddr *)&to, sizeof to), 0);
    check_error(read_reply(&far), "DENIED this server listens beyond loopback");
    disconnect(&far);
    connect_to(&far, s->port);
    expect_text(&far, "PING", "PONG");
    disconnect(&far);
    disconnect(&admin);
    support_server_end(s);
}

/* ---- readers ----------------------------------------------------------------------------------------------------- */

/* Some bytes now and then are no pace for a client that keeps more than its share. */
static void test_a_slow_reader_is_closed(void **state)
{
    (void)state;
    struct test_server *s = START("client-output-buffer-limit", "32mb", "maxmemory-clients", "0", );
    struct connection admin, slow;
    connect_to(&admin, s->port);
    set_value(&admin, "big", 2 * MIB);
    connect_to(&slow, s->port);
    send_many(&slow, "GET big", 15);
    wait_for(&admin, "mem_clients_normal", 8 * MIB);
    for (uint64_t began = now_ms(); info_number(&admin, "connected_clients") > 1; usleep(200000)) {
        char few[64];
        ssize_t got = recv(slow.fd, few, sizeof few, MSG_DONTWAIT);
        (void)got;
        assert_in_range(now_ms() - began, 0, WAIT_MS);
    }
    assert_int_equal(info_number(&admin, "client_output_buffer_limit_disconnections"), 1);
    disconnect(&slow);
    disconnect(&admin);
    support_server_end(s);
}

/* ---- all clients ------------------------------------------------------------------------------------------------- */

/* Each within its own limits, too much together: the largest go, the others stay. */
static void test_all_clients_together_are_limited(void **state)
{
    enum { GREEDY = 16, KEPT = 3 * MIB };
    (void)state;
    struct test_server *s = START("maxmemory-clients", "16mb", );
    struct connection admin, kept, greedy[GREEDY];
    char header[64];
    uint8_t *piece = calloc(1, KEPT);
    assert_non_null(piece);
    connect_to(&admin, s->port);
    connect_to(&kept, s->port);
    expect_text(&kept, "CLIENT NO-EVICT on", "OK");
    snprintf(header, sizeof header, "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\n", 2 * KEPT);
    send_bytes(&kept, header, strlen(header));
    send_bytes(&kept, piece, KEPT);
    for (unsigned i = 0; i < GREEDY; i++) {
        connect_to(&greedy[i], s->port);
        send_bytes(&greedy[i], header, strlen(header));
        for (size_t at = 0; at < (size_t)KEPT / 2;) {
            ssize_t sent = send(greedy[i].fd, piece, KEPT / 2 - at, MSG_NOSIGNAL);
            if (sent <= 0)
                break; /* closed already */
            at += (size_t)sent;
        }
        assert_in_range(info_number(&admin, "mem_clients_normal"), 0, 20 * MIB);
    }
    wait_for(&admin, "evicted_clients", 1);
    for (uint64_t began = now_ms(); info_number(&admin, "mem_clients_normal") > 16 * MIB; usleep(20000))
        assert_in_range(now_ms() - began, 0, WAIT_MS);
    assert_int_equal(info_number(&admin, "maxmemory_clients"), 16 * MIB);
    /* who is not to be evicted was not */
    for (size_t at = 0; at < KEPT; at += MIB)
        send_bytes(&kept, piece, MIB);
    send_literal(&kept, "\r\n");
    check_text(read_reply(&kept), "OK");
    for (unsigned i = 0; i < GREEDY; i++)
        disconnect(&greedy[i]);
    disconnect(&kept);
    disconnect(&admin);
    free(piece);
    support_server_end(s);
}

static void test_a_part_of_maxmemory(void **state)
{
    (void)state;
    struct test_server *s = START("maxmemory", "200mb", "maxmemory-clients", "5%", );
    struct connection admin;
    connect_to(&admin, s->port);
    assert_int_equal(info_number(&admin, "maxmemory_clients"), 10 * MIB);
    expect_text(&admin, "CONFIG SET maxmemory-clients 10%", "OK");
    assert_int_equal(info_number(&admin, "maxmemory_clients"), 20 * MIB);
    expect_text(&admin, "CONFIG SET maxmemory 0", "OK");
    assert_int_equal(info_number(&admin, "maxmemory_clients"), 0);
    expect_error(&admin, "CONFIG SET maxmemory-clients 101%", "ERR CONFIG SET failed");
    expect_error(&admin, "CONFIG SET maxmemory-clients x%", "ERR CONFIG SET failed");
    expect_error(&admin, "CONFIG SET maxmemory-clients 1kb", "ERR CONFIG SET failed");
    expect_text(&admin, "CONFIG SET maxmemory-clients 0", "OK");
    disconnect(&admin);
    support_server_end(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_replies_behind_one_that_waits),
        cmocka_unit_test(test_what_a_gone_client_left_is_freed),
        cmocka_unit_test(test_one_reply_is_limited_while_it_is_built),
        cmocka_unit_test(test_vmsim_is_limited_as_a_whole),
        cmocka_unit_test(test_strangers_hold_little),
        cmocka_unit_test(test_strangers_have_a_deadline),
        cmocka_unit_test(test_a_web_page_commands_nothing),
        cmocka_unit_test(test_protected_mode_stays),
        cmocka_unit_test(test_a_slow_reader_is_closed),
        cmocka_unit_test(test_all_clients_together_are_limited),
        cmocka_unit_test(test_a_part_of_maxmemory),
    };
    return cmocka_run_group_tests_name("memory of clients", tests, NULL, NULL);
}
