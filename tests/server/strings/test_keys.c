/*
 * test_keys.c - the commands of keys of any type through a server: names, expiry, scans, FLUSHALL, OBJECT, figures.
 * With vector sets among the keys.
 */
#include "tests/server/support_server.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char *folder;

static int set_up(void **state)
{
    (void)state;
    folder = support_folder_make();
    support_build(folder, "one", QUIRE_METRIC_L2);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    support_folder_remove(folder);
    return 0;
}

static struct test_server *start(struct connection *c)
{
    const char *const settings[] = {"import-dir", folder, NULL};
    struct test_server *s = support_server(settings);
    connect_to(c, s->port);
    return s;
}

static void end(struct test_server *s, struct connection *c)
{
    disconnect(c);
    support_server_end(s);
}

static void expect_null(struct connection *c, const char *words)
{
    struct reply r = ask(c, words);
    if (!r.null)
        fail_msg("%s: the reply is %c '%s', not null", words, r.type, r.text ? r.text : "");
    reply_free(&r);
}

static void expect_between(struct connection *c, const char *words, long long least, long long most)
{
    struct reply r = ask(c, words);
    if (r.type != ':' || r.integer < least || r.integer > most)
        fail_msg("%s: the reply is %c %lld, not from %lld to %lld", words, r.type, r.integer, least, most);
    reply_free(&r);
}

static void test_names(void **state)
{
    struct connection c;
    struct test_server *s = start(&c);
    (void)state;
    expect_text(&c, "MSET a 1 b 2 c 3", "OK");
    expect_text(&c, "VLOAD v one", "OK");
    expect_integer(&c, "HSET h f x", 1);
    expect_integer(&c, "DBSIZE", 5);
    expect_text(&c, "TYPE a", "string");
    expect_text(&c, "TYPE h", "hash");
    expect_text(&c, "TYPE v", "vectorset");
    expect_text(&c, "TYPE x", "none");
    expect_integer(&c, "EXISTS a a x v", 3);
    expect_integer(&c, "TOUCH a x", 1);
    expect_text(&c, "RENAME a d", "OK");
    expect_error(&c, "RENAME a d", "ERR no such key");
    expect_error(&c, "RENAMENX a d", "ERR no such key");
    expect_text(&c, "RENAME d d", "OK");
    expect_integer(&c, "RENAMENX d d", 0);
    expect_integer(&c, "RENAMENX d b", 0);
    expect_integer(&c, "RENAMENX d e", 1);
    expect_text(&c, "RENAME e b", "OK"); /* replaces */
    expect_text(&c, "GET b", "1");
    expect_text(&c, "RENAME v w", "OK");
    expect_integer(&c, "VCARD w", SUPPORT_ROWS);
    expect_integer(&c, "VCARD v", 0);
    expect_integer(&c, "COPY b copy", 1);
    expect_integer(&c, "COPY b c", 0);
    expect_integer(&c, "COPY b c REPLACE", 1);
    expect_text(&c, "GET c", "1");
    expect_integer(&c, "COPY x y", 0);
    expect_error(&c, "COPY b b", "ERR source and destination objects are the same");
    expect_error(&c, "COPY b y DB 1", "ERR DB index is out of range");
    expect_error(&c, "COPY b y NOPE", "ERR syntax error");
    expect_text(&c, "RENAME w b", "OK"); /* a set in a string's place */
    expect_error(&c, "GET b", "WRONGTYPE ");
    expect_error(&c, "VCARD h", "WRONGTYPE ");
    expect_error(&c, "VSIM c ELE x", "WRONGTYPE ");
    expect_error(&c, "VLOAD c one", "BUSYKEY ");
    expect_text(&c, "SET b string", "OK"); /* and the other way round */
    expect_integer(&c, "DEL b b c h copy x", 4);
    expect_integer(&c, "DBSIZE", 0);
    end(s, &c);
}

static void test_expiry(void **state)
{
    struct connection c;
    struct test_server *s = start(&c);
    (void)state;
    expect_text(&c, "SET k v", "OK");
    expect_integer(&c, "TTL k", -1);
    expect_integer(&c, "TTL x", -2);
    expect_integer(&c, "PEXPIRETIME x", -2);
    expect_integer(&c, "EXPIRE x 10", 0);
    expect_integer(&c, "EXPIRE k 10 XX", 0);
    expect_integer(&c, "EXPIRE k 10 GT", 0); /* without an expiry it never ends */
    expect_integer(&c, "EXPIRE k 10 NX", 1);
    expect_between(&c, "PTTL k", 9000, 10000);
    expect_integer(&c, "EXPIRE k 20 NX", 0);
    expect_integer(&c, "EXPIRE k 5 GT", 0);
    expect_integer(&c, "EXPIRE k 20 GT", 1);
    expect_integer(&c, "EXPIRE k 30 LT", 0);
    expect_integer(&c, "EXPIRE k 15 LT", 1);
    expect_integer(&c, "TTL k", 15);
    expect_integer(&c, "PEXPIRE k 100000 XX", 1);
    expect_integer(&c, "PERSIST k", 1);
    expect_integer(&c, "PERSIST k", 0);
    expect_integer(&c, "EXPIRE k 10 LT", 1);
    expect_integer(&c, "EXPIREAT k 33177117420", 1);
    expect_integer(&c, "EXPIRETIME k", 33177117420);
    expect_integer(&c, "PEXPIREAT k 33177117420001", 1);
    expect_integer(&c, "PEXPIRETIME k", 33177117420001);
    expect_text(&c, "RENAME k l", "OK");
    expect_integer(&c, "PEXPIRETIME l", 33177117420001);
    expect_integer(&c, "COPY l m", 1);
    expect_integer(&c, "PEXPIRETIME m", 33177117420001);
    expect_error(&c, "EXPIRE l 10 NX XX", "ERR NX and XX, GT or LT options at the same time are not compatible");
    expect_error(&c, "EXPIRE l 10 GT LT", "ERR GT and LT options at the same time are not compatible");
    expect_error(&c, "EXPIRE l 10 NOPE", "ERR Unsupported option NOPE");
    expect_error(&c, "EXPIRE l 9223372036854775807", "ERR invalid expire time in 'expire' command");
    expect_error(&c, "PEXPIRE l 9223372036854775807", "ERR invalid expire time in 'pexpire' command");
    expect_error(&c, "EXPIRE l x", "ERR value is not an integer or out of range");
    expect_integer(&c, "EXPIRE l -1", 1); /* over: removed */
    expect_integer(&c, "EXISTS l", 0);
    expect_integer(&c, "PEXPIREAT m 1", 1);
    expect_integer(&c, "EXISTS m", 0);
    end(s, &c);
}

/* Keys of each type end by themselves, whether somebody looks or not. */
static void test_keys_end_by_themselves(void **state)
{
    struct connection c;
    struct test_server *s = start(&c);
    char words[64];
    (void)state;
    expect_text(&c, "VLOAD v one", "OK");
    expect_text(&c, "SET k v", "OK");
    expect_integer(&c, "HSET h f v", 1);
    for (unsigned i = 0; i < 500; i++) {
        snprintf(words, sizeof words, "SET k%u v PX 1500", i);
        expect_text(&c, words, "OK");
    }
    expect_integer(&c, "PEXPIRE v 1500", 1);
    expect_integer(&c, "PEXPIRE h 1500", 1);
    struct reply r = ask(&c, "INFO keyspace");
    assert_non_null(strstr(r.text, "db0:keys=503,expires=502,avg_ttl="));
    reply_free(&r);
    for (unsigned i = 0; i < 300 && info_number(&c, "expired_keys") < 502; i++)
        usleep(20000);
    assert_int_equal(info_number(&c, "expired_keys"), 502);
    expect_integer(&c, "DBSIZE", 1);
    expect_integer(&c, "VCARD v", 0);
    long long hits = info_number(&c, "keyspace_hits"), misses = info_number(&c, "keyspace_misses");
    expect_text(&c, "GET k", "v");
    expect_null(&c, "GET x");
    expect_integer(&c, "EXISTS k x", 1);
    assert_int_equal(info_number(&c, "keyspace_hits"), hits + 2);
    assert_int_equal(info_number(&c, "keyspace_misses"), misses + 2);
    end(s, &c);
}

/* Goes through all keys by SCAN; counts how often each key "k<i>" came, and all others as one. */
static unsigned scan_keys(struct connection *c, const char *options, unsigned *seen, unsigned n)
{
    char cursor[32] = "0", words[128];
    unsigned others = 0;
    do {
        snprintf(words, sizeof words, "SCAN %s %s", cursor, options);
        struct reply r = ask(c, words);
        assert_int_equal(r.n, 2);
        snprintf(cursor, sizeof cursor, "%s", r.items[0].text);
        for (size_t j = 0; j < r.items[1].n; j++) {
            unsigned i;
            if (sscanf(r.items[1].items[j].text, "k%u", &i) == 1 && i < n)
                seen[i]++;
            else
                others++;
        }
        reply_free(&r);
    } while (strcmp(cursor, "0") != 0);
    return others;
}

static void test_scans(void **state)
{
    enum { KEYS = 1200 };
    static unsigned seen[KEYS];
    struct connection c;
    struct test_server *s = start(&c);
    char words[64];
    (void)state;
    expect_null(&c, "RANDOMKEY");
    for (unsigned i = 0; i < KEYS; i++) {
        snprintf(words, sizeof words, i % 3 ? "SET k%u v" : "HSET k%u f v", i);
        send_request(&c, words);
    }
    for (unsigned i = 0; i < KEYS; i++) {
        struct reply r = read_reply(&c);
        assert_true(r.type != '-');
        reply_free(&r);
    }
    expect_text(&c, "VLOAD v one", "OK");
    assert_true(scan_keys(&c, "", seen, KEYS) >= 1);
    for (unsigned i = 0; i < KEYS; i++)
        assert_true(seen[i] >= 1);
    memset(seen, 0, sizeof seen);
    assert_int_equal(scan_keys(&c, "COUNT 100 TYPE hash", seen, KEYS), 0);
    for (unsigned i = 0; i < KEYS; i++)
        assert_int_equal(seen[i] > 0, i % 3 == 0);
    memset(seen, 0, sizeof seen);
    assert_true(scan_keys(&c, "TYPE vectorset", seen, KEYS) >= 1);
    assert_int_equal(scan_keys(&c, "MATCH k1[0-4]? COUNT 1000", seen, KEYS), 0);
    for (unsigned i = 0; i < KEYS; i++)
        assert_int_equal(seen[i] > 0, i >= 100 && i < 150);
    struct reply r = ask(&c, "KEYS k11?");
    assert_int_equal(r.n, 10);
    reply_free(&r);
    r = ask(&c, "KEYS K*"); /* case counts */
    assert_int_equal(r.n, 0);
    reply_free(&r);
    r = ask(&c, "KEYS *");
    assert_int_equal(r.n, KEYS + 1);
    reply_free(&r);
    for (unsigned i = 0; i < 20; i++) {
        r = ask(&c, "RANDOMKEY");
        assert_true(r.type == '$' && (r.text[0] == 'k' || r.text[0] == 'v'));
        reply_free(&r);
    }
    expect_error(&c, "SCAN x", "ERR invalid cursor");
    expect_error(&c, "SCAN 0 COUNT 0", "ERR syntax error");
    expect_error(&c, "SCAN 0 COUNT x", "ERR value is not an integer or out of range");
    expect_error(&c, "SCAN 0 MATCH", "ERR syntax error");
    expect_error(&c, "FLUSHALL NOW", "ERR syntax error");
    expect_text(&c, "FLUSHALL ASYNC", "OK");
    expect_integer(&c, "DBSIZE", 0);
    expect_integer(&c, "VCARD v", 0);
    expect_text(&c, "SET k v EX 100", "OK");
    expect_text(&c, "FLUSHDB SYNC", "OK");
    expect_integer(&c, "DBSIZE", 0);
    end(s, &c);
}

static void test_object(void **state)
{
    struct connection c;
    struct test_server *s = start(&c);
    (void)state;
    expect_text(&c, "MSET int -12 short text long aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "OK");
    expect_integer(&c, "HSET h f v", 1);
    expect_text(&c, "VLOAD v one", "OK");
    expect_text(&c, "OBJECT ENCODING int", "int");
    expect_text(&c, "OBJECT ENCODING short", "embstr");
    expect_text(&c, "OBJECT ENCODING long", "raw");
    expect_text(&c, "OBJECT ENCODING h", "listpack");
    expect_text(&c, "OBJECT ENCODING v", "raw");
    expect_integer(&c, "OBJECT REFCOUNT h", 1);
    expect_between(&c, "OBJECT IDLETIME h", 0, 5);
    expect_error(&c, "OBJECT FREQ h", "ERR An LFU maxmemory policy is not selected");
    expect_null(&c, "OBJECT ENCODING x");
    expect_null(&c, "OBJECT IDLETIME x");
    expect_error(&c, "OBJECT NOPE x", "ERR unknown subcommand 'NOPE'. Try OBJECT HELP.");
    struct reply r = ask(&c, "OBJECT HELP");
    assert_true(r.type == '*' && r.n > 5);
    reply_free(&r);
    end(s, &c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names), cmocka_unit_test(test_expiry), cmocka_unit_test(test_keys_end_by_themselves),
        cmocka_unit_test(test_scans), cmocka_unit_test(test_object),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
