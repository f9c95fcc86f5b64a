/*
 * test_slices.c - requests that take long leave their lane between slices: they are answered as if at once, others go
 * on meanwhile, and replies keep their order.
 */
#include "io/clock.h"
#include "tests/sanitized.h"
#include "tests/server/support_server.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { FIELDS = 40000, KEYS = 4000, BIG = 3 << 20 };

static struct test_server *s;
static struct connection c;

/* Requests made by printf and sent together; every reply is an integer or OK. */
static void send_all(struct resp_buffer *out, unsigned n)
{
    send_bytes(&c, out->data, out->bytes);
    for (unsigned i = 0; i < n; i++) {
        struct reply r = read_reply(&c);
        if (r.type != ':' && r.type != '+')
            fail_msg("%s", r.text);
        reply_free(&r);
    }
    resp_buffer_fini(out);
}

static void set_big(const char *key, char with)
{
    struct resp_buffer out = {.protocol = 2};
    char *value = malloc(BIG);
    assert_non_null(value);
    memset(value, with, BIG);
    resp_array(&out, 3);
    resp_text(&out, "SET");
    resp_text(&out, key);
    resp_bulk(&out, value, BIG);
    send_all(&out, 1);
    free(value);
}

static int set_up(void **state)
{
    struct resp_buffer out = {.protocol = 2};
    char words[100];
    (void)state;
    s = support_server((const char *const[]){"lanes", "1", NULL});
    connect_to(&c, s->port);
    for (unsigned i = 0; i < FIELDS; i++) {
        snprintf(words, sizeof words, "HSET h f%u %u", i, i);
        put_request(&out, words);
    }
    send_all(&out, FIELDS);
    for (unsigned i = 0; i < KEYS; i++) {
        snprintf(words, sizeof words, "SET key%u %u", i, i);
        put_request(&out, words);
    }
    send_all(&out, KEYS);
    set_big("big", 'x');
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    disconnect(&c);
    support_server_end(s);
    return 0;
}

/* Each field once, with its value plus `more`. */
static void check_all(const struct reply *r, unsigned more)
{
    bool *seen = calloc(FIELDS, 1);
    assert_non_null(seen);
    assert_int_equal(r->n, 2 * FIELDS);
    for (size_t i = 0; i < r->n; i += 2) {
        unsigned field = (unsigned)strtoul(r->items[i].text + 1, NULL, 10);
        assert_true(field < FIELDS && !seen[field]);
        seen[field] = true;
        assert_int_equal(strtoul(r->items[i + 1].text, NULL, 10), field + more);
    }
    free(seen);
}

static void test_large_hash(void **state)
{
    (void)state;
    struct reply r = ask(&c, "HGETALL h");
    check_all(&r, 0);
    reply_free(&r);
    r = ask(&c, "HKEYS h");
    assert_int_equal(r.n, FIELDS);
    reply_free(&r);
    r = ask(&c, "HVALS h");
    assert_int_equal(r.n, FIELDS);
    reply_free(&r);
}

/* A client changes the hash all the time: what another reads is of one moment, and comes to its end. */
static void test_hash_that_changes(void **state)
{
    enum { ROUNDS = 20, CHANGES = 200 };
    struct connection reader;
    (void)state;
    connect_to(&reader, s->port);
    for (unsigned round = 0; round < ROUNDS; round++) {
        char words[100];
        struct resp_buffer out = {.protocol = 2};
        send_request(&reader, "HGETALL h");
        /* both fields change together */
        for (unsigned i = 0; i < CHANGES; i++) {
            snprintf(words, sizeof words, "HSET h f0 %u f%u %u", i, FIELDS - 1, i);
            put_request(&out, words);
        }
        send_all(&out, CHANGES);
        struct reply r = read_reply(&reader);
        const struct reply *first = NULL, *last = NULL;
        char name[32];
        snprintf(name, sizeof name, "f%u", FIELDS - 1);
        assert_int_equal(r.n, 2 * FIELDS);
        first = reply_field(&r, "f0");
        last = reply_field(&r, name);
        assert_non_null(first);
        assert_non_null(last);
        if (round > 0)
            assert_string_equal(first->text, last->text);
        reply_free(&r);
    }
    disconnect(&reader);
    expect_integer(&c, "HSET h f0 0 f39999 39999", 0);
}

static uint64_t time_of(const char *request, unsigned times)
{
    uint64_t began_us = clock_us();
    for (unsigned i = 0; i < times; i++) {
        struct reply r = ask(&c, request);
        assert_int_equal(r.type, '$');
        reply_free(&r);
    }
    return clock_us() - began_us;
}

/* Where nothing else goes on, the reply leaves with the last slice and not with the lane's next tick, a tenth of a
 * second later. Beside it the same without slices, for how fast the machine is. */
static void test_replies_leave_at_once(void **state)
{
    enum { TIMES = 30, TICK_US = 100000 };
    (void)state;
    expect_integer(&c, "SETRANGE plain 1000000 x", 1000001);
    uint64_t plain_us = time_of("GET plain", TIMES), sliced_us = time_of("GET big", TIMES);
    if (sliced_us > TIMES * TICK_US / 2 + 10 * plain_us)
        fail_msg("%u replies in slices took %llu us, %u without %llu us", TIMES, (unsigned long long)sliced_us, TIMES,
                 (unsigned long long)plain_us);
}

static void test_hash_that_goes(void **state)
{
    struct connection reader;
    (void)state;
    connect_to(&reader, s->port);
    expect_integer(&c, "COPY h other", 1);
    send_request(&reader, "HGETALL other");
    expect_integer(&c, "DEL other", 1);
    struct reply r = read_reply(&reader);
    assert_true(r.type == '*' && (r.n == 0 || r.n == 2 * FIELDS));
    reply_free(&r);
    disconnect(&reader);
}

static void test_keys(void **state)
{
    (void)state;
    struct reply r = ask(&c, "KEYS key*");
    bool *seen = calloc(KEYS, 1);
    assert_non_null(seen);
    assert_int_equal(r.n, KEYS);
    for (size_t i = 0; i < r.n; i++) {
        unsigned key = (unsigned)strtoul(r.items[i].text + 3, NULL, 10);
        assert_true(key < KEYS && !seen[key]);
        seen[key] = true;
    }
    reply_free(&r);
    free(seen);
}

/* Goes on with the cursor although one call gives up before COUNT. */
static void test_scans_end(void **state)
{
    char words[100];
    size_t n = 0, calls = 0;
    (void)state;
    for (char cursor[32] = "0"; calls == 0 || strcmp(cursor, "0") != 0; calls++) {
        snprintf(words, sizeof words, "HSCAN h %s COUNT 1000000 MATCH f*", cursor);
        struct reply r = ask(&c, words);
        n += r.items[1].n / 2;
        snprintf(cursor, sizeof cursor, "%s", r.items[0].text);
        reply_free(&r);
    }
    assert_true(calls > 1 && n >= FIELDS);
    n = calls = 0;
    for (char cursor[32] = "0"; calls == 0 || strcmp(cursor, "0") != 0; calls++) {
        snprintf(words, sizeof words, "SCAN %s COUNT 1000000 MATCH key*", cursor);
        struct reply r = ask(&c, words);
        n += r.items[1].n;
        snprintf(cursor, sizeof cursor, "%s", r.items[0].text);
        reply_free(&r);
    }
    assert_true(n >= KEYS);
}

static void test_patterns_are_bounded(void **state)
{
    char words[1200];
    (void)state;
    int n = sprintf(words, "KEYS ");
    memset(words + n, 'k', 1025);
    words[n + 1025] = 0;
    expect_error(&c, words, "ERR a pattern has at most 1024 bytes, this one has 1025");
    words[n + 1024] = 0;
    struct reply r = ask(&c, words);
    assert_true(r.type == '*' && r.n == 0);
    reply_free(&r);
    n = sprintf(words, "SCAN 0 MATCH ");
    memset(words + n, 'k', 1025);
    words[n + 1025] = 0;
    expect_error(&c, words, "ERR a pattern has at most 1024 bytes");
}

/* Many stars and a long field: matched when the hash is not locked any more; what is short beside it at once. */
static void test_long_fields(void **state)
{
    enum { LONG = 192 << 10 };
    static char field[LONG], pattern[1024];
    struct resp_buffer out = {.protocol = 2};
    (void)state;
    memset(field, 'a', LONG);
    resp_array(&out, 6);
    resp_text(&out, "HSET");
    resp_text(&out, "long");
    resp_bulk(&out, field, LONG);
    resp_text(&out, "first");
    resp_text(&out, "aab");
    resp_text(&out, "second");
    send_all(&out, 1);
    for (unsigned i = 0; i < 3; i++) {
        /* "*aaa...": the long one; with a b at the end: neither; "*a*a...*": both */
        size_t n = 0;
        pattern[n++] = '*';
        while (n < 900 - (i == 2 ? 896 : 0)) {
            pattern[n++] = 'a';
            if (i == 2)
                pattern[n++] = '*';
        }
        if (i == 1)
            pattern[n++] = 'b';
        resp_array(&out, 5);
        resp_text(&out, "HSCAN");
        resp_text(&out, "long");
        resp_text(&out, "0");
        resp_text(&out, "MATCH");
        resp_bulk(&out, pattern, n);
        send_bytes(&c, out.data, out.bytes);
        resp_buffer_fini(&out);
        struct reply r = read_reply(&c);
        assert_string_equal(r.items[0].text, "0");
        assert_int_equal(r.items[1].n, i == 0 ? 2 : i == 1 ? 0 : 4);
        bool seen = false;
        for (size_t at = 0; at < r.items[1].n; at += 2) {
            const struct reply *f = &r.items[1].items[at], *value = &r.items[1].items[at + 1];
            bool is_long = f->bytes == LONG;
            seen = seen || is_long;
            assert_string_equal(value->text, is_long ? "first" : "second");
            if (is_long)
                assert_memory_equal(f->text, field, LONG);
        }
        assert_int_equal(seen, i != 1);
        reply_free(&r);
    }
    expect_integer(&c, "DEL long", 1);
}

static void check_big(const struct reply *r, char with)
{
    assert_int_equal(r->bytes, BIG);
    for (size_t i = 0; i < BIG; i += 997)
        assert_int_equal(r->text[i], with);
}

/* Values are those of one moment, and later requests of the connection are answered behind them. */
static void test_large_values(void **state)
{
    struct connection reader;
    (void)state;
    connect_to(&reader, s->port);
    send_request(&reader, "GET big");
    send_request(&reader, "MGET big none key1 big h");
    send_request(&reader, "PING");
    struct reply r = read_reply(&reader);
    check_big(&r, 'x');
    reply_free(&r);
    r = read_reply(&reader);
    assert_int_equal(r.n, 5);
    check_big(&r.items[0], 'x');
    check_big(&r.items[3], 'x');
    assert_true(r.items[1].null && r.items[4].null && reply_is(&r.items[2], "1"));
    reply_free(&r);
    check_text(read_reply(&reader), "PONG");
    /* replaced while it is written: the old one is answered whole */
    for (unsigned round = 0; round < 5; round++) {
        send_request(&reader, "MGET big big");
        set_big("big", (char)('a' + round));
        r = read_reply(&reader);
        check_big(&r.items[0], r.items[0].text[0]);
        check_big(&r.items[1], r.items[0].text[0]);
        reply_free(&r);
    }
    disconnect(&reader);
}

/* Nobody sees the state between two commands of a transaction. */
static void test_in_a_transaction(void **state)
{
    (void)state;
    expect_text(&c, "MULTI", "OK");
    expect_text(&c, "GET big", "QUEUED");
    expect_text(&c, "HSET h f0 77", "QUEUED");
    expect_text(&c, "HGETALL h", "QUEUED");
    expect_text(&c, "HSET h f0 0", "QUEUED");
    expect_text(&c, "KEYS key*", "QUEUED");
    struct reply r = ask(&c, "EXEC");
    assert_int_equal(r.n, 5);
    assert_int_equal(r.items[0].bytes, BIG);
    assert_true(reply_is(reply_field(&r.items[2], "f0"), "77"));
    assert_int_equal(r.items[4].n, KEYS);
    reply_free(&r);
}

/* Others are served between two slices. */
static void test_others_go_on(void **state)
{
    enum { READERS = 4, EACH = 50 };
    struct connection readers[READERS];
    struct resp_buffer out = {.protocol = 2};
    (void)state;
    for (unsigned i = 0; i < EACH; i++)
        put_request(&out, "HGETALL h");
    for (unsigned i = 0; i < READERS; i++) {
        connect_to(&readers[i], s->port);
        send_bytes(&readers[i], out.data, out.bytes);
    }
    struct reply r = read_reply(&readers[0]);
    reply_free(&r);
    for (unsigned i = 0; i < 20; i++)
        expect_text(&c, "PING", "PONG");
    for (unsigned i = 0; i < READERS; i++)
        disconnect(&readers[i]);
    resp_buffer_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_replies_leave_at_once),
        cmocka_unit_test(test_large_hash),
        cmocka_unit_test(test_hash_that_changes),
        cmocka_unit_test(test_hash_that_goes),
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_scans_end),
        cmocka_unit_test(test_patterns_are_bounded),
        cmocka_unit_test(test_large_values),
        cmocka_unit_test(test_in_a_transaction),
        cmocka_unit_test(test_others_go_on),
        cmocka_unit_test(test_long_fields),
    };
    return cmocka_run_group_tests_name("slices", tests, set_up, tear_down);
}
