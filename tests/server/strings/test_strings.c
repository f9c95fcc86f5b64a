/*
 * test_strings.c - GET, SET and their kin through a server, as Redis 7 documents replies and errors; and what a client
 * gets to see of the journal: replies that wait for it, in order, and refusals while it fails.
 */
#include "server/call/data.h"
#include "server/keys/keyspace_log.h"
#include "server/net/loop.h"
#include "tests/server/support_server.h"
#include "tests/support/fault.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define WRONGTYPE "WRONGTYPE Operation against a key holding the wrong kind of value"

static void expect_null(struct connection *c, const char *words)
{
    struct reply r = ask(c, words);
    if (!r.null)
        fail_msg("%s: the reply is %c '%s', not null", words, r.type, r.text ? r.text : "");
    reply_free(&r);
}

static long long number_of(struct connection *c, const char *words)
{
    struct reply r = ask(c, words);
    assert_int_equal(r.type, ':');
    long long value = r.integer;
    reply_free(&r);
    return value;
}

static void test_set_and_get(void **state)
{
    struct test_server *s = support_server(NULL);
    struct connection c;
    (void)state;
    connect_to(&c, s->port);
    for (unsigned protocol = 2; protocol <= 3; protocol++) {
        struct reply r = ask(&c, protocol == 2 ? "HELLO 2" : "HELLO 3");
        reply_free(&r);
        expect_text(&c, "FLUSHALL", "OK");
        expect_null(&c, "GET k");
        expect_text(&c, "SET k v", "OK");
        expect_text(&c, "GET k", "v");
        expect_null(&c, "SET k w NX");
        expect_text(&c, "SET k w XX", "OK");
        expect_null(&c, "SET none w XX");
        expect_text(&c, "SET k x GET", "w");
        expect_null(&c, "SET new x GET");
        expect_text(&c, "SET k y NX GET", "x");
        expect_text(&c, "GET k", "x");
        expect_text(&c, "GETSET k z", "x");
        expect_text(&c, "GETDEL k", "z");
        expect_null(&c, "GETDEL k");
        expect_integer(&c, "SETNX k a", 1);
        expect_integer(&c, "SETNX k b", 0);
        expect_integer(&c, "STRLEN k", 1);
        expect_integer(&c, "STRLEN none", 0);
        expect_integer(&c, "APPEND k bcd", 4);
        expect_integer(&c, "APPEND fresh ab", 2);
        expect_text(&c, "GET k", "abcd");
        expect_text(&c, "MSET a 1 b 2 a 3", "OK");
        r = ask(&c, "MGET a none b");
        assert_int_equal(r.n, 3);
        assert_true(reply_is(&r.items[0], "3") && r.items[1].null && reply_is(&r.items[2], "2"));
        reply_free(&r);
    }
    /* any bytes, none too */
    send_literal(&c, "*3\r\n$3\r\nSET\r\n$0\r\n\r\n$5\r\n\0\r\n\xff-\r\n*2\r\n$3\r\nGET\r\n$0\r\n\r\n");
    check_text(read_reply(&c), "OK");
    struct reply r = read_reply(&c);
    assert_int_equal(r.bytes, 5);
    assert_memory_equal(r.text, "\0\r\n\xff-", 5);
    reply_free(&r);
    disconnect(&c);
    support_server_end(s);
}

static void test_set_with_expiry(void **state)
{
    struct test_server *s = support_server(NULL);
    struct connection c;
    (void)state;
    connect_to(&c, s->port);
    expect_text(&c, "SET k v EX 100", "OK");
    long long ttl = number_of(&c, "PTTL k");
    assert_true(ttl > 95000 && ttl <= 100000);
    expect_text(&c, "SET k w KEEPTTL", "OK");
    assert_true(number_of(&c, "PTTL k") > 90000);
    expect_text(&c, "SET k w", "OK");
    expect_integer(&c, "TTL k", -1);
    expect_text(&c, "SET k w PXAT 33177117420123", "OK");
    expect_integer(&c, "PEXPIRETIME k", 33177117420123);
    expect_integer(&c, "EXPIRETIME k", 33177117420);
    expect_text(&c, "SET k w EXAT 33177117421", "OK");
    expect_integer(&c, "PEXPIRETIME k", 33177117421000);
    expect_integer(&c, "INCRBY n 5", 5);
    expect_integer(&c, "EXPIRE n 100", 1);
    expect_integer(&c, "INCR n", 6); /* keeps the expiry */
    assert_true(number_of(&c, "TTL n") > 90);
    expect_text(&c, "SETEX k 100 v", "OK");
    expect_text(&c, "PSETEX k 30 v", "OK");
    expect_text(&c, "GET k", "v");
    usleep(60000);
    expect_null(&c, "GET k");
    expect_text(&c, "SET k v EXAT 1", "OK");
    expect_null(&c, "GET k");
    static const char *const invalid[] = {"SET k v EX 0", "SET k v PX -1", "SET k v EX 9223372036854775807",
                                          "SET k v PX 9223372036854775807", "SET k v EXAT 0"};
    for (size_t i = 0; i < sizeof invalid / sizeof *invalid; i++)
        expect_error(&c, invalid[i], "ERR invalid expire time in 'set' command");
    expect_error(&c, "SETEX k 0 v", "ERR invalid expire time in 'setex' command");
    expect_error(&c, "PSETEX k 0 v", "ERR invalid expire time in 'psetex' command");
    expect_error(&c, "SET k v EX x", "ERR value is not an integer or out of range");
    static const char *const wrong[] = {"SET k v EX",           "SET k v EX 1 PX 1",    "SET k v NX XX",
                                        "SET k v KEEPTTL EX 1", "SET k v EX 1 KEEPTTL", "SET k v NOPE"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        expect_error(&c, wrong[i], "ERR syntax error");
    disconnect(&c);
    support_server_end(s);
}

static void test_numbers(void **state)
{
    struct test_server *s = support_server(NULL);
    struct connection c;
    (void)state;
    connect_to(&c, s->port);
    expect_integer(&c, "INCR n", 1);
    expect_integer(&c, "DECRBY n 11", -10);
    expect_integer(&c, "DECR n", -11);
    expect_text(&c, "SET n 9223372036854775806", "OK");
    expect_integer(&c, "INCR n", 9223372036854775807);
    expect_error(&c, "INCR n", "ERR increment or decrement would overflow");
    expect_text(&c, "GET n", "9223372036854775807");
    expect_integer(&c, "DECRBY m 9223372036854775807", -9223372036854775807);
    expect_integer(&c, "DECR m", -9223372036854775807 - 1);
    expect_error(&c, "DECR m", "ERR increment or decrement would overflow");
    expect_error(&c, "DECRBY n -9223372036854775808", "ERR decrement would overflow");
    static const char *const no_numbers[] = {"x", "+1", "01", "1.0", "-", "9223372036854775808", "--1", "-0"};
    for (size_t i = 0; i < sizeof no_numbers / sizeof *no_numbers; i++) {
        char words[64];
        snprintf(words, sizeof words, "INCRBY n %s", no_numbers[i]);
        expect_error(&c, words, "ERR value is not an integer or out of range");
        snprintf(words, sizeof words, "SET t %s", no_numbers[i]);
        expect_text(&c, words, "OK");
        expect_error(&c, "INCR t", "ERR value is not an integer or out of range");
    }
    disconnect(&c);
    support_server_end(s);
}

static void test_errors(void **state)
{
    static const char *const settings[] = {"proto-max-bulk-len", "1mb", NULL};
    struct test_server *s = support_server(settings);
    struct connection c;
    (void)state;
    connect_to(&c, s->port);
    expect_integer(&c, "HSET h f v", 1);
    static const char *const wrong[] = {"GET h",  "STRLEN h",    "APPEND h x", "GETDEL h", "GETSET h x",
                                        "INCR h", "SET h x GET", "INCRBY h 3", "DECR h"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        expect_error(&c, wrong[i], WRONGTYPE);
    struct reply r = ask(&c, "MGET h");
    assert_true(r.n == 1 && r.items[0].null);
    reply_free(&r);
    expect_text(&c, "SET h x", "OK"); /* SET takes no heed of the type */
    expect_error(&c, "MSET a", "ERR wrong number of arguments for 'mset' command");
    expect_error(&c, "MSET a 1 b", "ERR wrong number of arguments for 'mset' command");
    struct resp_buffer out = {.protocol = 2};
    char *large = calloc(1, 1 << 20);
    assert_non_null(large);
    resp_array(&out, 3);
    resp_text(&out, "SET");
    resp_bulk(&out, large, QUIRE_KEY_BYTES_MAX + 1);
    resp_text(&out, "v");
    resp_array(&out, 3);
    resp_text(&out, "SET");
    resp_text(&out, "large");
    resp_bulk(&out, large, 1 << 20);
    put_request(&out, "APPEND large x");
    put_request(&out, "GET large");
    send_bytes(&c, out.data, out.bytes);
    check_error(read_reply(&c), "ERR a key has at most 65535 bytes, this one has 65536");
    check_text(read_reply(&c), "OK");
    check_error(read_reply(&c), "ERR string exceeds maximum allowed size");
    r = read_reply(&c);
    assert_int_equal(r.bytes, 1 << 20);
    reply_free(&r);
    resp_buffer_fini(&out);
    free(large);
    disconnect(&c);
    support_server_end(s);
}

static void test_maxmemory(void **state)
{
    static const char *const settings[] = {"maxmemory", "200kb", NULL};
    struct test_server *s = support_server(settings);
    struct connection c;
    unsigned n = 0;
    char words[600], text[500];
    (void)state;
    connect_to(&c, s->port);
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    for (bool full = false; !full; n++) {
        snprintf(words, sizeof words, "SET k%u %s", n, text);
        struct reply r = ask(&c, words);
        full = r.type == '-';
        if (full)
            assert_string_equal(r.text, "OOM command not allowed when used memory > 'maxmemory'.");
        reply_free(&r);
        assert_true(n < 1000);
    }
    assert_true(n > 200);
    assert_true(info_number(&c, "used_memory_dataset") > 200 * 1024);
    assert_int_equal(info_number(&c, "maxmemory"), 200 * 1024);
    expect_error(&c, "HSET h f v", "OOM ");
    expect_error(&c, "APPEND k0 v", "OOM ");
    expect_text(&c, "GET k0", text);
    expect_integer(&c, "DEL k0 k1 k2 k3", 4);
    expect_text(&c, "SET k0 v", "OK");
    disconnect(&c);
    support_server_end(s);
}

/* ---- the journal ------------------------------------------------------------------------------------------------- */

struct durable {
    struct io_fs *fs;
    struct journal *journal;
    struct test_server *server;
};

/* Its disk may be gone. */
static void close_journal(void *context)
{
    struct quire_error err;
    journal_close(context, &err);
}

/* A server whose writes go to a journal on a disk in memory, under `always`. The lanes see it when they enter the gate
 * the next time. */
static void begin_durable(struct durable *d)
{
    struct journal_options options = {.sync = JOURNAL_ALWAYS};
    struct journal_reader reader = {keyspace_restore, keyspace_replay, NULL};
    struct journal_report report;
    struct quire_error err;
    d->fs = fault_fs_create();
    assert_non_null(d->fs);
    assert_int_equal(d->fs->ops->mkdir(d->fs, "/data"), 0);
    assert_int_equal(d->fs->ops->sync_dir(d->fs, "/"), 0);
    d->server = support_server((const char *const[]){"dir", "", NULL});
    reader.context = &d->server->server->service.keyspace;
    if (journal_open(d->fs, "/data", &options, &reader, &d->journal, &report, &err) < 0)
        fail_msg("journal: %s", err.message);
    for (unsigned i = 0; i < d->server->server->service.n_lanes; i++)
        gate_enter(&d->server->server->service.gate, i);
    data_journal_set(&d->server->server->service, d->journal, close_journal, d->journal);
    for (unsigned i = 0; i < d->server->server->service.n_lanes; i++)
        gate_leave(&d->server->server->service.gate, i);
}

static void end_durable(struct durable *d)
{
    support_server_end(d->server);
    fault_fs_destroy(d->fs);
}

/* Pipelines of writes and reads: every reply, in order; after a power cut everything acknowledged is there again. */
static void test_replies_wait_for_the_journal(void **state)
{
    enum { CLIENTS = 4, ROUNDS = 30, DEPTH = 20 };
    struct durable d;
    struct connection c[CLIENTS];
    struct quire_error err;
    char words[64];
    (void)state;
    begin_durable(&d);
    for (unsigned i = 0; i < CLIENTS; i++)
        connect_to(&c[i], d.server->port);
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned i = 0; i < CLIENTS; i++) {
            struct resp_buffer out = {.protocol = 2};
            for (unsigned j = 0; j < DEPTH; j++) {
                snprintf(words, sizeof words, "SET key:%u:%u %u", i, j, round);
                put_request(&out, words);
                snprintf(words, sizeof words, "GET key:%u:%u", i, j);
                put_request(&out, words);
            }
            send_bytes(&c[i], out.data, out.bytes);
            resp_buffer_fini(&out);
        }
        for (unsigned i = 0; i < CLIENTS; i++)
            for (unsigned j = 0; j < DEPTH; j++) {
                snprintf(words, sizeof words, "%u", round);
                check_text(read_reply(&c[i]), "OK");
                check_text(read_reply(&c[i]), words);
            }
        assert_true(journal_durable_lsn(d.journal) >= (uint64_t)CLIENTS * DEPTH * (round + 1));
    }
    expect_integer(&c[0], "DEL key:0:0", 1);
    fault_power_cut(d.fs, 0);
    for (unsigned i = 0; i < CLIENTS; i++)
        disconnect(&c[i]);
    support_server_end(d.server);
    struct keyspace again;
    struct journal_options options = {.sync = JOURNAL_ALWAYS};
    struct journal_reader reader = {keyspace_restore, keyspace_replay, &again};
    struct journal_report report;
    assert_int_equal(keyspace_init(&again, &err), 0);
    if (journal_open(d.fs, "/data", &options, &reader, &d.journal, &report, &err) < 0)
        fail_msg("journal: %s", err.message);
    assert_int_equal(keyspace_count(&again), CLIENTS * DEPTH - 1);
    assert_int_equal(journal_close(d.journal, &err), 0);
    keyspace_fini(&again);
    fault_fs_destroy(d.fs);
}

/* What /health says, once lane 0 has looked. */
static void expect_health(const struct durable *d, const char *words)
{
    const char *said = NULL;
    for (unsigned i = 0; i < 500; i++) {
        said = atomic_load(&d->server->server->unhealthy);
        if (words ? said && strstr(said, words) : !said)
            return;
        usleep(10000);
    }
    fail_msg("/health says '%s'", said ? said : "ok");
}

static void test_writes_are_refused_while_the_log_fails(void **state)
{
    struct durable d;
    struct connection c;
    (void)state;
    begin_durable(&d);
    connect_to(&c, d.server->port);
    expect_text(&c, "SET k v", "OK");
    fault_fail_nth(d.fs, FAULT_WRITE | FAULT_SYNC, 1, QUIRE_ENOSPACE, true); /* the disk is full */
    send_request(&c, "SET k w");
    for (unsigned i = 0; i < 200 && journal_health(d.journal, NULL) == 0; i++)
        usleep(10000);
    assert_true(journal_health(d.journal, NULL) < 0);
    struct connection other;
    connect_to(&other, d.server->port);
    expect_error(&other, "SET k x", "MISCONF Errors writing to the log: ");
    expect_error(&other, "DEL k", "MISCONF Errors writing to the log: ");
    expect_error(&other, "HSET h f v", "MISCONF Errors writing to the log: ");
    expect_text(&other, "GET k", "w");
    expect_health(&d, "the disk is full");
    fault_fail_nth(d.fs, FAULT_ANY, 0, 0, false);
    check_text(read_reply(&c), "OK"); /* what was appended is not forgotten */
    for (unsigned i = 0; i < 200 && journal_health(d.journal, NULL) < 0; i++)
        usleep(10000);
    expect_text(&other, "SET k x", "OK");
    expect_health(&d, NULL);
    disconnect(&other);
    disconnect(&c);
    end_durable(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_set_and_get),
        cmocka_unit_test(test_set_with_expiry),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_maxmemory),
        cmocka_unit_test(test_replies_wait_for_the_journal),
        cmocka_unit_test(test_writes_are_refused_while_the_log_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
