/*
 * test_memory_calls.c - what requests under way make the server hold beside their replies: it counts as their clients'
 * memory, is bounded, or is given back while they go on.
 *
 * Memory is what the server counts (mem_clients_normal) or what the kernel does (used_memory_peak), with a margin.
 */
#include "tests/sanitized.h"
#include "tests/server/support_sc.h"
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

static void expect_reply(struct connection *c, char type)
{
    struct reply r = read_reply(c);
    assert_int_equal(r.type, type);
    reply_free(&r);
}

/* VADD key of `dim` numbers, the element's name, then further words. */
static void put_add(struct resp_buffer *out, const char *key, unsigned dim, const char *name, const char *words)
{
    float *numbers = calloc(dim, sizeof *numbers);
    assert_non_null(numbers);
    numbers[0] = 1;
    numbers[1] = (float)(name[1] - '0');
    struct resp_buffer more = {.protocol = 2};
    unsigned n = 0;
    for (const char *at = words; *at; n++) {
        size_t bytes = strcspn(at, " ");
        resp_bulk(&more, at, bytes);
        at += bytes;
        at += strspn(at, " ");
    }
    resp_array(out, 5 + n);
    resp_text(out, "VADD");
    resp_text(out, key);
    resp_text(out, "FP32");
    resp_bulk(out, numbers, dim * sizeof *numbers);
    resp_text(out, name);
    resp_raw(out, more.data, more.bytes);
    resp_buffer_fini(&more);
    free(numbers);
}

static void send_out(struct connection *c, struct resp_buffer *out, unsigned n_replies, char type)
{
    send_bytes(c, out->data, out->bytes);
    resp_buffer_fini(out);
    for (unsigned i = 0; i < n_replies; i++)
        expect_reply(c, type);
}

/* A request of some kilobytes names thousands of elements, whose vectors are the queries: 16 of them at a time. */
static void test_queries_of_a_request(void **state)
{
    enum { DIMENSIONS = 16384, QUERIES = 2000 };
    (void)state;
    struct test_server *s = START();
    struct connection c;
    connect_to(&c, s->port);
    struct resp_buffer out = {.protocol = 2};
    for (unsigned i = 0; i < 4; i++) {
        char name[] = {'e', (char)('0' + i), 0};
        put_add(&out, "v", DIMENSIONS, name, "NOQUANT");
    }
    send_out(&c, &out, 4, ':');
    long long before = info_number(&c, "used_memory_peak");
    resp_array(&out, 3 + 2 * QUERIES + 2);
    resp_text(&out, "VMSIM");
    resp_text(&out, "v");
    char number[16];
    snprintf(number, sizeof number, "%d", QUERIES);
    resp_text(&out, number);
    for (unsigned i = 0; i < QUERIES; i++) {
        resp_text(&out, "ELE");
        resp_text(&out, i % 2 ? "e1" : "e2");
    }
    resp_text(&out, "COUNT");
    resp_text(&out, "1");
    send_bytes(&c, out.data, out.bytes);
    resp_buffer_fini(&out);
    struct reply r = read_reply(&c);
    assert_int_equal(r.type, '*');
    assert_int_equal(r.n, QUERIES);
    reply_free(&r);
    /* the vectors of all are 125 MiB; what a query takes in the call, and its reply, some kilobytes */
    if (!SANITIZED)
        assert_in_range(info_number(&c, "used_memory_peak"), 0, before + 32 * MIB);
    assert_in_range(info_number(&c, "mem_clients_normal"), 0, MIB);
    disconnect(&c);
    support_server_end(s);
}

/* ---- who waits for an answer ------------------------------------------------------------------------------------- */

enum { PER_CLIENT = 250, WAITING_CLIENTS = 4, TAGS = 28, TAG_BYTES = 100 };

/* Words of a lookup that waits, with so many tags. */
static void put_wait(struct resp_buffer *out, unsigned n_tags)
{
    char tag[TAG_BYTES + 1];
    resp_array(out, 10 + (n_tags ? n_tags + 1 : 0));
    static const char *const words[] = {"SC.GET", "f", "CAT", "q", "HASH", "h", "WAIT", "600000"};
    for (unsigned i = 0; i < sizeof words / sizeof *words; i++)
        resp_text(out, words[i]);
    resp_text(out, "VEC");
    resp_bulk(out, sc_at(0, 1), DIM * sizeof(float));
    if (n_tags)
        resp_text(out, "NEED");
    for (unsigned i = 0; i < n_tags; i++) {
        memset(tag, 'a' + (int)(i % 26), TAG_BYTES);
        tag[TAG_BYTES] = 0;
        resp_text(out, tag);
    }
}

static void wait_many(struct connection *admin, struct connection *c, unsigned n_tags, unsigned waiting)
{
    struct resp_buffer out = {.protocol = 2};
    for (unsigned i = 0; i < PER_CLIENT; i++)
        put_wait(&out, n_tags);
    send_bytes(c, out.data, out.bytes);
    resp_buffer_fini(&out);
    sc_await_waiting(admin, waiting);
}

/* A cache, and a lease that is not given back. */
static struct test_server *serve_leased(struct connection *admin, const char *const *settings)
{
    struct test_server *s = support_server(settings);
    connect_to(admin, s->port);
    expect_text(admin, "SC.CREATE f DIM 16 ENCODER enc@1", "OK");
    expect_text(admin, "SC.CAT.SET f q SIM 0.9 JITTER 0 LEASE 600000", "OK");
    struct reply r = sc_say(admin, sc_at(0, 1), "SC.GET f CAT q VEC @ HASH h");
    assert_true(r.type == '*' && reply_field(&r, "lease"));
    reply_free(&r);
    return s;
}

/* Who waits costs what his request does, and little more. */
static void test_waiters_cost_little(void **state)
{
    (void)state;
    struct connection admin, waiting[WAITING_CLIENTS];
    struct test_server *s = serve_leased(&admin, (const char *const[]){NULL});
    for (unsigned i = 0; i < WAITING_CLIENTS; i++) {
        connect_to(&waiting[i], s->port);
        wait_many(&admin, &waiting[i], 0, (i + 1) * PER_CLIENT);
    }
    /* 1.2 KiB each */
    assert_in_range(info_number(&admin, "mem_clients_normal"), PER_CLIENT * WAITING_CLIENTS * 512,
                    PER_CLIENT * WAITING_CLIENTS * 2048);
    /* and all get the answer */
    struct reply r = sc_say(&admin, sc_at(0, 1), "SC.PUT f CAT q VEC @ HASH h VALUE there");
    assert_int_equal(sc_number(&r, "woken"), PER_CLIENT * WAITING_CLIENTS);
    reply_free(&r);
    for (unsigned i = 0; i < WAITING_CLIENTS; i++) {
        for (unsigned k = 0; k < PER_CLIENT; k++) {
            r = read_reply(&waiting[i]);
            sc_check_status(&r, "exact");
            sc_check_field(&r, "value", "there");
            reply_free(&r);
        }
        disconnect(&waiting[i]);
    }
    disconnect(&admin);
    support_server_end(s);
}

/* What clients hold once nothing changes it any more: bytes that have come may still be on their way to be requests. */
static long long settled_memory(struct connection *admin)
{
    long long seen = info_number(admin, "mem_clients_normal");
    unsigned same = 0;
    for (uint64_t began = now_ms(); same < 5; usleep(20000)) {
        long long now = info_number(admin, "mem_clients_normal");
        same = now == seen ? same + 1 : 0;
        seen = now;
        assert_in_range(now_ms() - began, 0, WAIT_MS);
    }
    return seen;
}

/* What SLOWLOG would show of requests under way is their clients' memory. */
static void test_what_slowlog_keeps_counts(void **state)
{
    (void)state;
    struct connection admin, first, second;
    struct test_server *s = serve_leased(&admin, (const char *const[]){"slowlog-log-slower-than", "-1", NULL});
    connect_to(&first, s->port);
    wait_many(&admin, &first, TAGS, PER_CLIENT);
    long long without = settled_memory(&admin);
    expect_text(&admin, "CONFIG SET slowlog-log-slower-than 10000", "OK");
    connect_to(&second, s->port);
    wait_many(&admin, &second, TAGS, 2 * PER_CLIENT);
    long long with = settled_memory(&admin) - without;
    /* 31 of 39 words are shown */
    assert_in_range(with - without, PER_CLIENT * (TAGS - 8) * TAG_BYTES, PER_CLIENT * TAGS * (TAG_BYTES + 20));
    disconnect(&first);
    disconnect(&second);
    for (uint64_t began = now_ms(); info_number(&admin, "mem_clients_normal") > MIB; usleep(20000))
        assert_in_range(now_ms() - began, 0, WAIT_MS);
    disconnect(&admin);
    support_server_end(s);
}

/* A client that has sent its end has perhaps gone: it gets its replies, but does not wait on for minutes. So one that
 * has sent so much ahead that nothing more is received, and its end was not read. */
static void test_waits_end_after_their_client(void **state)
{
    enum { REQUESTS = 2400, ALL_WAIT = 256 };
    (void)state;
    struct connection admin, ended;
    struct resp_buffer out = {.protocol = 2};
    struct test_server *s = serve_leased(&admin, (const char *const[]){NULL});
    connect_to(&ended, s->port);
    for (unsigned i = 0; i < REQUESTS; i++)
        put_wait(&out, 0);
    send_bytes(&ended, out.data, out.bytes);
    resp_buffer_fini(&out);
    sc_await_waiting(&admin, ALL_WAIT);
    uint64_t began = now_ms();
    assert_int_equal(shutdown(ended.fd, SHUT_WR), 0);
    for (unsigned i = 0; i < REQUESTS; i++) {
        struct reply r = read_reply(&ended);
        sc_check_status(&r, "miss");
        assert_true(reply_is(reply_field(&r, "lease"), "") || !reply_field(&r, "lease")->text);
        reply_free(&r);
        if (i == 0)
            assert_in_range(now_ms() - began, 9000, 20000);
    }
    assert_in_range(now_ms() - began, 9000, 60000);
    expect_closed(&ended);
    disconnect(&ended);
    disconnect(&admin);
    support_server_end(s);
}

/* ---- names that the worker collects ------------------------------------------------------------------------------ */

/* Elements with names of 200 bytes, each granted to a tenant of its own, whose name is as long. */
static void add_long_names(struct connection *c, unsigned n)
{
    struct resp_buffer out = {.protocol = 2};
    char name[201], words[256];
    for (unsigned i = 0; i < n; i++) {
        snprintf(name, sizeof name, "e%u-%0190u", i % 10, i);
        snprintf(words, sizeof words, "NOQUANT TENANT %s", name);
        put_add(&out, "v", 2, name, words);
        if ((i + 1) % 500 == 0 || i + 1 == n)
            send_out(c, &out, i + 1 - i / 500 * 500, ':');
    }
}

static void test_names_are_limited_before_they_are_a_reply(void **state)
{
    (void)state;
    struct test_server *s = START("maxmemory-clients", "1mb", );
    struct connection c;
    connect_to(&c, s->port);
    add_long_names(&c, 6000);
    expect_error(&c, "VRANGE v - +",
                 "ERR the names of this range take more than 786432 bytes, which is what maxmemory-clients allows one "
                 "reply: ask for a smaller range or give a count");
    expect_error(&c, "VTENANTS v", "ERR the names of more than ");
    struct reply r = ask(&c, "VRANGE v - + 100");
    assert_int_equal(r.n, 100);
    reply_free(&r);
    expect_text(&c, "MULTI", "OK");
    expect_text(&c, "VRANGE v - +", "QUEUED");
    r = ask(&c, "EXEC");
    assert_int_equal(r.n, 1);
    assert_int_equal(r.items[0].type, '-');
    reply_free(&r);
    /* one that fits gets through whole: names that stand in the reply are given back */
    expect_text(&c, "CONFIG SET maxmemory-clients 2mb", "OK");
    r = ask(&c, "VRANGE v - +");
    assert_int_equal(r.n, 6000);
    reply_free(&r);
    assert_int_equal(info_number(&c, "evicted_clients"), 0);
    disconnect(&c);
    support_server_end(s);
}

/* Few elements are the client's among many: they are picked by the worker, for as many as are asked for. */
static void test_picks_count(void **state)
{
    enum { ELEMENTS = 3000 };
    (void)state;
    struct test_server *s = START("maxmemory-clients", "2mb", );
    struct connection c, bound;
    struct resp_buffer out = {.protocol = 2};
    char name[16];
    connect_to(&c, s->port);
    for (unsigned i = 0; i < ELEMENTS; i++) {
        snprintf(name, sizeof name, "e%u", i);
        put_add(&out, "v", 2, name, i == 7 ? "NOQUANT TENANT acme" : "NOQUANT TENANT bolt");
    }
    send_out(&c, &out, ELEMENTS, ':');
    expect_text(&c, "ACL SETUSER acme on nopass ~* +@all -@dangerous tenant:acme", "OK");
    connect_to(&bound, s->port);
    expect_text(&bound, "AUTH acme x", "OK");
    struct reply r = ask(&bound, "VRANDMEMBER v -10000");
    assert_int_equal(r.n, 10000);
    reply_free(&r);
    /* 3 MiB beside a reply of 800 KB */
    send_request(&bound, "VRANDMEMBER v -100000");
    expect_closed(&bound);
    assert_int_equal(info_number(&c, "evicted_clients"), 1);
    disconnect(&bound);
    disconnect(&c);
    support_server_end(s);
}

/* ---- transactions ------------------------------------------------------------------------------------------------ */

/* What a transaction reads of the elements that it replaces stays until it is made. */
static void test_what_a_transaction_reads_counts(void **state)
{
    enum { ELEMENTS = 40, ATTRIBUTE = 100000 };
    (void)state;
    struct test_server *s = START("maxmemory-clients", "16mb", );
    struct connection c, other;
    struct resp_buffer out = {.protocol = 2};
    char *words = malloc(ATTRIBUTE + 100), name[16];
    assert_non_null(words);
    connect_to(&c, s->port);
    strcpy(words, "NOQUANT SETATTR ");
    size_t at = strlen(words);
    memset(words + at, 'a', ATTRIBUTE);
    words[at + ATTRIBUTE] = 0;
    for (unsigned i = 0; i < ELEMENTS; i++) {
        snprintf(name, sizeof name, "e%u", i);
        put_add(&out, "v", 2, name, words);
    }
    send_out(&c, &out, ELEMENTS, ':');
    expect_text(&c, "VSEAL v", "OK");
    for (unsigned limited = 0; limited < 2; limited++) {
        if (limited)
            expect_text(&c, "CONFIG SET maxmemory-clients 2mb", "OK");
        connect_to(&other, s->port);
        expect_text(&other, "MULTI", "OK");
        for (unsigned i = 0; i < ELEMENTS; i++) {
            snprintf(name, sizeof name, "e%u", i);
            put_add(&out, "v", 2, name, "");
        }
        send_out(&other, &out, ELEMENTS, '+');
        if (limited) {
            send_request(&other, "EXEC");
            expect_closed(&other);
        } else {
            struct reply r = ask(&other, "EXEC");
            assert_int_equal(r.n, ELEMENTS);
            for (unsigned i = 0; i < ELEMENTS; i++)
                assert_int_equal(r.items[i].type, ':');
            reply_free(&r);
            expect_text(&c, "VSEAL v", "OK");
        }
        disconnect(&other);
    }
    assert_int_equal(info_number(&c, "evicted_clients"), 1);
    expect_integer(&c, "VCARD v", ELEMENTS);
    assert_in_range(info_number(&c, "mem_clients_normal"), 0, MIB);
    free(words);
    disconnect(&c);
    support_server_end(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_queries_of_a_request),
        cmocka_unit_test(test_waiters_cost_little),
        cmocka_unit_test(test_what_slowlog_keeps_counts),
        cmocka_unit_test(test_waits_end_after_their_client),
        cmocka_unit_test(test_names_are_limited_before_they_are_a_reply),
        cmocka_unit_test(test_picks_count),
        cmocka_unit_test(test_what_a_transaction_reads_counts),
    };
    return cmocka_run_group_tests_name("memory of requests under way", tests, NULL, NULL);
}
