/*
 * test_hashes.c - hashes through a server, small ones and large ones: the same commands against a plain array.
 */
#include "tests/server/support_server.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define WRONGTYPE "WRONGTYPE Operation against a key holding the wrong kind of value"

static void test_fields(void **state)
{
    struct test_server *s = support_server(NULL);
    struct connection c;
    (void)state;
    connect_to(&c, s->port);
    for (unsigned protocol = 2; protocol <= 3; protocol++) {
        struct reply r = ask(&c, protocol == 2 ? "HELLO 2" : "HELLO 3");
        reply_free(&r);
        expect_text(&c, "FLUSHALL", "OK");
        expect_integer(&c, "HSET h a 1 b 2", 2);
        expect_integer(&c, "HSET h b 3 c 4 c 5", 1);
        expect_text(&c, "HGET h b", "3");
        expect_text(&c, "HGET h c", "5");
        r = ask(&c, "HGET h nope");
        assert_true(r.null);
        reply_free(&r);
        r = ask(&c, "HGET none a");
        assert_true(r.null);
        reply_free(&r);
        expect_integer(&c, "HLEN h", 3);
        expect_integer(&c, "HEXISTS h a", 1);
        expect_integer(&c, "HEXISTS h x", 0);
        expect_integer(&c, "HSETNX h a 9", 0);
        expect_integer(&c, "HSETNX h d 9", 1);
        expect_integer(&c, "HDEL h d x d", 1);
        r = ask(&c, "HGETALL h");
        assert_int_equal(r.type, protocol == 3 ? '%' : '*');
        assert_true(reply_is(reply_field(&r, "a"), "1") && reply_is(reply_field(&r, "b"), "3"));
        assert_int_equal(r.n, 6);
        reply_free(&r);
        r = ask(&c, "HKEYS h"); /* in the order they came */
        assert_true(r.type == '*' && r.n == 3 && reply_is(&r.items[0], "a") && reply_is(&r.items[2], "c"));
        reply_free(&r);
        r = ask(&c, "HVALS h");
        assert_true(r.type == '*' && r.n == 3 && reply_is(&r.items[0], "1") && reply_is(&r.items[2], "5"));
        reply_free(&r);
        r = ask(&c, "HMGET h c x a");
        assert_true(r.n == 3 && reply_is(&r.items[0], "5") && r.items[1].null && reply_is(&r.items[2], "1"));
        reply_free(&r);
        expect_integer(&c, "HINCRBY h a 41", 42);
        expect_integer(&c, "HINCRBY h new -3", -3);
        expect_text(&c, "TYPE h", "hash");
        expect_integer(&c, "HDEL h a b c new", 4);
        expect_integer(&c, "EXISTS h", 0);
        r = ask(&c, "HGETALL h");
        assert_int_equal(r.n, 0);
        reply_free(&r);
    }
    disconnect(&c);
    support_server_end(s);
}

static void test_errors(void **state)
{
    struct test_server *s = support_server(NULL);
    struct connection c;
    (void)state;
    connect_to(&c, s->port);
    expect_text(&c, "SET s v", "OK");
    static const char *const wrong[] = {"HSET s f v",  "HGET s f",  "HGETALL s",     "HDEL s f",
                                        "HLEN s",      "HKEYS s",   "HVALS s",       "HMGET s f",
                                        "HEXISTS s f", "HSCAN s 0", "HINCRBY s f 1", "HSETNX s f v"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        expect_error(&c, wrong[i], WRONGTYPE);
    expect_error(&c, "HSET h f", "ERR wrong number of arguments for 'hset' command");
    expect_error(&c, "HSET h f v g", "ERR wrong number of arguments for 'hset' command");
    expect_integer(&c, "HSET h f text n 9223372036854775807", 2);
    expect_error(&c, "HINCRBY h f 1", "ERR hash value is not an integer");
    expect_error(&c, "HINCRBY h n 1", "ERR increment or decrement would overflow");
    expect_error(&c, "HINCRBY h n x", "ERR value is not an integer or out of range");
    expect_error(&c, "HSCAN h x", "ERR invalid cursor");
    expect_error(&c, "HSCAN h 0 TYPE string", "ERR syntax error");
    disconnect(&c);
    support_server_end(s);
}

/* Goes through a hash by HSCAN; counts how often each field "f<i>" came. */
static void scan_fields(struct connection *c, const char *options, unsigned *seen, unsigned n)
{
    char cursor[32] = "0", words[128];
    do {
        unsigned i;
        snprintf(words, sizeof words, "HSCAN h %s %s", cursor, options);
        struct reply r = ask(c, words);
        assert_int_equal(r.n, 2);
        snprintf(cursor, sizeof cursor, "%s", r.items[0].text);
        assert_int_equal(r.items[1].n % 2, 0);
        for (size_t j = 0; j < r.items[1].n; j += 2) {
            assert_int_equal(sscanf(r.items[1].items[j].text, "f%u", &i), 1);
            assert_true(i < n);
            assert_int_equal(strtoul(r.items[1].items[j + 1].text, NULL, 10), i * 3);
            seen[i]++;
        }
        reply_free(&r);
    } while (strcmp(cursor, "0") != 0);
}

static void test_small_and_large(void **state)
{
    static const unsigned sizes[] = {128, 129, 1500};
    struct test_server *s = support_server(NULL);
    struct connection c;
    char words[200];
    (void)state;
    connect_to(&c, s->port);
    for (size_t t = 0; t < 3; t++) {
        unsigned n = sizes[t], *seen = calloc(n, sizeof *seen);
        assert_non_null(seen);
        for (unsigned i = 0; i < n; i++) {
            snprintf(words, sizeof words, "HSET h f%u %u", i, i * 3);
            expect_integer(&c, words, 1);
        }
        expect_text(&c, "OBJECT ENCODING h", n > 128 ? "hashtable" : "listpack");
        expect_integer(&c, "HLEN h", n);
        scan_fields(&c, "COUNT 7", seen, n);
        for (unsigned i = 0; i < n; i++)
            assert_true(seen[i] >= 1);
        memset(seen, 0, n * sizeof *seen);
        scan_fields(&c, "MATCH f?2", seen, n);
        for (unsigned i = 0; i < n; i++)
            assert_int_equal(seen[i] > 0, i > 9 && i < 100 && i % 10 == 2);
        expect_integer(&c, "COPY h copy", 1);
        snprintf(words, sizeof words, "HGET copy f%u", n - 1);
        char value[16];
        snprintf(value, sizeof value, "%u", (n - 1) * 3);
        expect_text(&c, words, value);
        expect_text(&c, "RENAME copy moved", "OK");
        expect_integer(&c, "HLEN moved", n);
        expect_integer(&c, "UNLINK h moved", 2);
        free(seen);
    }
    /* a long value alone makes it large */
    memset(words, 'x', sizeof words);
    memcpy(words, "HSET h f ", 9);
    words[9 + 65] = 0;
    expect_integer(&c, words, 1);
    expect_text(&c, "OBJECT ENCODING h", "hashtable");
    expect_text(&c, "HGET h f", words + 9);
    disconnect(&c);
    support_server_end(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fields),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_small_and_large),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
