/*
 * test_cache_waits.c - answers that several connections wait for while one computes them: it stores them, fails, or
 * takes too long; the cache goes, clients go, the server stops.
 */
#include "server/net/loop.h"
#include "tests/server/support_sc.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- waiting ----------------------------------------------------------------------------------------------------- */

enum { WAITERS = 6 };

static void begin_waiting(struct test_server *s, struct connection *c, struct connection waiters[WAITERS],
                          char lease[LEASE_TOKEN_BYTES])
{
    struct reply r = sc_say(c, sc_at(0, 1), "SC.GET f CAT q VEC @ HASH h WAIT 15000");
    sc_check_status(&r, "miss");
    sc_copy_field(&r, "lease", lease, LEASE_TOKEN_BYTES);
    reply_free(&r);
    for (unsigned i = 0; i < WAITERS; i++) {
        connect_to(&waiters[i], s->port);
        sc_send_words(&waiters[i], sc_at(0, i % 2 ? 0.99 : 1),
                      i % 2 ? "SC.GET f CAT q VEC @ WAIT 15000" : "SC.GET f CAT q VEC @ HASH h WAIT 15000");
        sc_await_waiting(c, i + 1);
    }
}

static void test_leader_puts(void **state)
{
    struct connection c, waiters[WAITERS];
    char lease[LEASE_TOKEN_BYTES];
    struct test_server *s = sc_serve(&c);
    (void)state;
    begin_waiting(s, &c, waiters, lease);
    sc_check_get(&c, sc_at(0, 1), "f CAT q VEC @ HASH h", "miss"); /* does not wait, and gets no second lease */
    send_request(&waiters[0], "PING"); /* goes on behind the wait, and is answered behind it */
    struct reply r = sc_say(&c, sc_at(0, 1), "SC.PUT f CAT q LEASE %s VEC @ HASH h VALUE answer", lease);
    sc_check_field(&r, "outcome", "stored");
    assert_true(sc_number(&r, "woken") == WAITERS);
    reply_free(&r);
    for (unsigned i = 0; i < WAITERS; i++) {
        r = read_reply(&waiters[i]);
        sc_check_status(&r, i % 2 ? "hit" : "exact");
        sc_check_field(&r, "value", "answer");
        assert_true(sc_number(&r, "waited_ms") < 15000);
        reply_free(&r);
    }
    check_text(read_reply(&waiters[0]), "PONG");
    for (unsigned i = 0; i < WAITERS; i++)
        disconnect(&waiters[i]);
    sc_end(s, &c);
}

static void test_leader_fails(void **state)
{
    struct connection c, waiters[WAITERS];
    char lease[LEASE_TOKEN_BYTES], words[200];
    struct test_server *s = sc_serve(&c);
    (void)state;
    begin_waiting(s, &c, waiters, lease);
    snprintf(words, sizeof words, "SC.FAIL f %s", lease);
    expect_integer(&c, words, 1);
    expect_integer(&c, words, 0);
    expect_integer(&c, "SC.FAIL f made-up", 0);
    struct reply r = read_reply(&waiters[0]); /* the one that has waited longest leads */
    sc_check_status(&r, "miss");
    sc_copy_field(&r, "lease", lease, sizeof lease);
    assert_true(sc_number(&r, "lease_ms") > 0 && sc_number(&r, "waited_ms") >= 0);
    reply_free(&r);
    r = sc_say(&waiters[0], sc_at(0, 1), "SC.PUT f CAT q LEASE %s VEC @ HASH h VALUE second", lease);
    assert_true(sc_number(&r, "woken") == WAITERS - 1);
    reply_free(&r);
    for (unsigned i = 1; i < WAITERS; i++) {
        r = read_reply(&waiters[i]);
        sc_check_field(&r, "value", "second");
        reply_free(&r);
    }
    for (unsigned i = 0; i < WAITERS; i++)
        disconnect(&waiters[i]);
    sc_end(s, &c);
}

static void test_waits_that_end(void **state)
{
    struct connection c, other;
    char lease[LEASE_TOKEN_BYTES];
    struct test_server *s = sc_serve(&c);
    (void)state;
    struct reply r = sc_say(&c, NULL, "SC.GET f CAT q HASH h");
    sc_copy_field(&r, "lease", lease, sizeof lease);
    reply_free(&r);
    connect_to(&other, s->port);
    sc_send_words(&other, NULL, "SC.GET f CAT q HASH h WAIT 200"); /* its time is over */
    sc_send_words(&other, NULL, "SC.GET f CAT q HASH other WAIT 5000 NOLEASE");
    sc_send_words(&other, NULL, "SC.GET f CAT q HASH more WAIT 5000");
    r = read_reply(&other);
    sc_check_status(&r, "miss");
    assert_true(reply_field(&r, "lease")->null && sc_number(&r, "waited_ms") >= 150);
    reply_free(&r);
    r = read_reply(&other);
    assert_true(reply_field(&r, "lease")->null); /* nothing is in flight that could be waited for */
    reply_free(&r);
    r = read_reply(&other);
    assert_true(reply_field(&r, "lease")->bytes > 0);
    reply_free(&r);
    /* said to have no answer: who waits hears so */
    sc_send_words(&other, NULL, "SC.GET f CAT q HASH h WAIT 15000");
    sc_await_waiting(&c, 2);
    expect_text(&c, "SC.NEG f CAT q HASH h", "OK");
    r = read_reply(&other);
    sc_check_status(&r, "negative");
    reply_free(&r);
    /* the cache goes */
    r = sc_say(&c, NULL, "SC.GET f CAT q HASH i");
    sc_check_status(&r, "miss");
    reply_free(&r);
    sc_send_words(&other, NULL, "SC.GET f CAT q HASH i WAIT 15000");
    sc_await_waiting(&c, 3);
    expect_integer(&c, "SC.DROP f", 1);
    r = read_reply(&other);
    assert_int_equal(r.type, '-');
    reply_free(&r);
    expect_error(&other, "SC.GET f CAT q HASH i", "ERR no such cache");
    disconnect(&other);
    sc_end(s, &c);
}

/* The first of those that wait goes away: it must not be made leader in its absence. */
static void test_waiting_client_goes(void **state)
{
    struct connection c, waiters[WAITERS];
    char lease[LEASE_TOKEN_BYTES], words[200];
    struct test_server *s = sc_serve(&c);
    (void)state;
    begin_waiting(s, &c, waiters, lease);
    disconnect(&waiters[0]);
    disconnect(&waiters[1]);
    for (unsigned i = 0; info_number(&c, "connected_clients") > WAITERS - 1 && i < 20; i++)
        usleep(20000);
    snprintf(words, sizeof words, "SC.FAIL f %s", lease);
    expect_integer(&c, words, 1);
    struct reply r = read_reply(&waiters[2]);
    sc_check_status(&r, "miss");
    sc_copy_field(&r, "lease", lease, sizeof lease);
    reply_free(&r);
    r = sc_say(&waiters[2], sc_at(0, 1), "SC.PUT f CAT q LEASE %s VEC @ HASH h VALUE third", lease);
    assert_true(sc_number(&r, "woken") == WAITERS - 3);
    reply_free(&r);
    for (unsigned i = 3; i < WAITERS; i++) {
        r = read_reply(&waiters[i]);
        sc_check_field(&r, "value", "third");
        reply_free(&r);
    }
    for (unsigned i = 2; i < WAITERS; i++)
        disconnect(&waiters[i]);
    sc_end(s, &c);
}

static void test_killed_while_waiting(void **state)
{
    struct connection c, other;
    struct test_server *s = sc_serve(&c);
    char words[100];
    (void)state;
    struct reply r = sc_say(&c, NULL, "SC.GET f CAT q HASH h");
    reply_free(&r);
    connect_to(&other, s->port);
    r = ask(&other, "CLIENT ID");
    snprintf(words, sizeof words, "CLIENT KILL ID %lld", r.integer);
    reply_free(&r);
    sc_send_words(&other, NULL, "SC.GET f CAT q HASH h WAIT 600000");
    sc_await_waiting(&c, 1);
    expect_integer(&c, words, 1);
    expect_closed(&other);
    for (unsigned i = 0; info_number(&c, "connected_clients") > 1; i++) {
        assert_true(i < 500);
        usleep(10000);
    }
    disconnect(&other);
    sc_end(s, &c);
}

/* A stop does not wait for answers, and loses no reply. */
static void test_stop_while_waiting(void **state)
{
    struct connection c, waiters[WAITERS];
    char lease[LEASE_TOKEN_BYTES];
    struct test_server *s = sc_serve(&c);
    (void)state;
    begin_waiting(s, &c, waiters, lease);
    uint64_t begun_us = clock_us();
    server_destroy(s->server);
    s->server = NULL;
    assert_true(clock_us() - begun_us < 8000000);
    for (unsigned i = 0; i < WAITERS; i++) {
        struct reply r = read_reply(&waiters[i]);
        sc_check_status(&r, "miss");
        assert_true(reply_field(&r, "lease")->null);
        reply_free(&r);
        disconnect(&waiters[i]);
    }
    sc_end(s, &c);
}

/* What a gateway asks before it has a vector, while an answer takes long, and when the model has failed. */
static void ask_as_a_gateway(struct connection *c)
{
    char lease[LEASE_TOKEN_BYTES], words[200];
    expect_text(c, "SC.CAT.SET f g SIM 0.9 TTL 20 JITTER 0 STALEERROR 600000 LEASE 60000", "OK");
    struct reply r = sc_say(c, NULL, "SC.GET f CAT g HASH h1 COMPAT k PROBE");
    sc_check_status(&r, "miss");
    sc_copy_field(&r, "lease", lease, sizeof lease);
    reply_free(&r);
    snprintf(words, sizeof words, "SC.RENEW f %s", lease);
    r = ask(c, words);
    assert_true(r.type == ':' && r.integer > 50000 && r.integer <= 60000);
    reply_free(&r);
    snprintf(words, sizeof words, "SC.RENEW f %s MS 1", lease);
    r = ask(c, words);
    assert_true(r.type == ':' && r.integer > 50000);
    reply_free(&r);
    r = sc_say(c, sc_at(0, 1), "SC.PUT f CAT g HASH h1 COMPAT k VEC @ VALUE old LEASE %s", lease);
    sc_check_field(&r, "outcome", "stored");
    reply_free(&r);
    snprintf(words, sizeof words, "SC.RENEW f %s", lease);
    expect_error(c, words, "ERR the lease is over");
    expect_error(c, "SC.RENEW f made-up", "ERR no such lease");
    expect_error(c, "SC.RENEW f made-up MS 0", "ERR MS is '0': give a whole number from 1");
    expect_error(c, "SC.RENEW f made-up TTL 5", "ERR syntax error at 'TTL'");
    expect_error(c, "SC.RENEW nobody x", "ERR no such cache");
    r = sc_say(c, NULL, "SC.GET f CAT g HASH h2 COMPAT k PROBE");
    sc_check_status(&r, "vector");
    assert_true(reply_field(&r, "lease")->null && !reply_field(&r, "id"));
    reply_free(&r);
    usleep(40000);
    sc_check_get(c, NULL, "f CAT g HASH h1 COMPAT k NOLEASE", "miss");
    r = sc_say(c, NULL, "SC.GET f CAT g HASH h1 COMPAT k ONERROR");
    sc_check_status(&r, "stale");
    sc_check_field(&r, "value", "old");
    assert_true(reply_field(&r, "lease")->null);
    reply_free(&r);
    r = sc_say(c, sc_at(0, 0.95), "SC.GET f CAT g HASH h2 COMPAT k VEC @ ONERROR WAIT 100");
    sc_check_status(&r, "stale");
    reply_free(&r);
    r = sc_say(c, sc_at(0, 1), "SC.GET f CAT g HASH h2 VEC @ PROBE");
    assert_int_equal(r.type, '-');
    assert_non_null(strstr(r.text, "probe"));
    reply_free(&r);
    expect_integer(c, "SC.INVALIDATE f ALL", 1);
}

static void test_what_a_gateway_asks(void **state)
{
    struct connection c;
    struct test_server *s = sc_serve(&c);
    (void)state;
    ask_as_a_gateway(&c);
    struct reply r = ask(&c, "HELLO 3");
    reply_free(&r);
    ask_as_a_gateway(&c);
    sc_end(s, &c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_leader_puts),          cmocka_unit_test(test_leader_fails),
        cmocka_unit_test(test_waits_that_end),       cmocka_unit_test(test_waiting_client_goes),
        cmocka_unit_test(test_killed_while_waiting), cmocka_unit_test(test_stop_while_waiting),
        cmocka_unit_test(test_what_a_gateway_asks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
