/*
 * test_ranges.c - parts of strings, bits, numbers with fractions, expiries of reads, fields at random, and the few
 * scripts of locks, through a server, as Redis 7 documents replies and errors; and what of it a restart keeps.
 */
#include "tests/server/support_server.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define WRONGTYPE "WRONGTYPE Operation against a key holding the wrong kind of value"

struct exchange {
    const char *request;
    char type; /* '$' or '+' text, ':' integer, '-' an error that begins so, '_' null */
    const char *text;
    long long integer;
};

static void converse(struct connection *c, const struct exchange *exchanges, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct exchange *x = &exchanges[i];
        send_bytes(c, x->request, strlen(x->request)); /* as a line, which may have quotes */
        send_bytes(c, "\r\n", 2);
        struct reply r = read_reply(c);
        bool right = x->type == ':'   ? r.type == ':' && r.integer == x->integer
                     : x->type == '_' ? r.null
                     : x->type == '-' ? r.type == '-' && strncmp(r.text, x->text, strlen(x->text)) == 0
                                      : r.text && strcmp(r.text, x->text) == 0;
        if (!right)
            fail_msg("%s: the reply is %c '%s' %lld", x->request, r.type, r.text ? r.text : "", r.integer);
        reply_free(&r);
    }
}
#define CONVERSE(c, exchanges) converse(c, exchanges, sizeof(exchanges) / sizeof *(exchanges))

static const struct exchange parts[] = {
    {"SET k Hello", '+', "OK", 0},
    {"GETRANGE k 0 3", '$', "Hell", 0},
    {"GETRANGE k -3 -1", '$', "llo", 0},
    {"GETRANGE k 0 -1", '$', "Hello", 0},
    {"GETRANGE k 10 100", '$', "", 0},
    {"GETRANGE k -1 -3", '$', "", 0},
    {"GETRANGE k -100 1", '$', "He", 0},
    {"GETRANGE k 3 1", '$', "", 0},
    {"GETRANGE none 0 -1", '$', "", 0},
    {"SUBSTR k 1 2", '$', "el", 0},
    {"GETRANGE k x 1", '-', "ERR value is not an integer or out of range", 0},
    {"SETRANGE k 1 ippo", ':', NULL, 5},
    {"GET k", '$', "Hippo", 0},
    {"SETRANGE k 5 !!", ':', NULL, 7},
    {"GET k", '$', "Hippo!!", 0},
    {"SETRANGE none 5 \"\"", ':', NULL, 0},
    {"EXISTS none", ':', NULL, 0},
    {"SETRANGE k -1 x", '-', "ERR offset is out of range", 0},
    {"SETRANGE k 536870912 x", '-', "ERR string exceeds maximum allowed size (proto-max-bulk-len)", 0},
    {"SETRANGE k 99999999999999 x", '-', "ERR string exceeds maximum allowed size (proto-max-bulk-len)", 0},
    {"PEXPIRE k 1000000", ':', NULL, 1},
    {"SETRANGE k 0 h", ':', NULL, 7},
    {"PERSIST k", ':', NULL, 1},
    {"HSET h f v", ':', NULL, 1},
    {"GETRANGE h 0 1", '-', WRONGTYPE, 0},
    {"SETRANGE h 0 x", '-', WRONGTYPE, 0},
    {"MSETNX a 1 b 2", ':', NULL, 1},
    {"MSETNX b 3 c 4", ':', NULL, 0},
    {"MSETNX h 3 c 4", ':', NULL, 0},
    {"EXISTS c", ':', NULL, 0},
    {"GET b", '$', "2", 0},
    {"MSETNX b", '-', "ERR wrong number of arguments for 'msetnx' command", 0},
    {"MSETNX b 1 c", '-', "ERR wrong number of arguments for 'msetnx' command", 0},
};

static const struct exchange bits[] = {
    {"SETBIT m 7 1", ':', NULL, 0},
    {"GETBIT m 7", ':', NULL, 1},
    {"GETBIT m 6", ':', NULL, 0},
    {"GETBIT m 100", ':', NULL, 0},
    {"GETBIT none 0", ':', NULL, 0},
    {"SETBIT m 7 0", ':', NULL, 1},
    {"STRLEN m", ':', NULL, 1},
    {"SETBIT m 100 1", ':', NULL, 0},
    {"STRLEN m", ':', NULL, 13},
    {"SETBIT m 4294967296 1", '-', "ERR bit offset is not an integer or out of range", 0},
    {"SETBIT m -1 1", '-', "ERR bit offset is not an integer or out of range", 0},
    {"SETBIT m 1 2", '-', "ERR bit is not an integer or out of range", 0},
    {"GETBIT m x", '-', "ERR bit offset is not an integer or out of range", 0},
    {"SET f foobar", '+', "OK", 0},
    {"BITCOUNT f", ':', NULL, 26},
    {"BITCOUNT f 0 0", ':', NULL, 4},
    {"BITCOUNT f 1 1", ':', NULL, 6},
    {"BITCOUNT f 1 1 BYTE", ':', NULL, 6},
    {"BITCOUNT f 5 30 BIT", ':', NULL, 17},
    {"BITCOUNT f -2 -1", ':', NULL, 7},
    {"BITCOUNT f 3 1", ':', NULL, 0},
    {"BITCOUNT none", ':', NULL, 0},
    {"BITCOUNT f 1", '-', "ERR syntax error", 0},
    {"BITCOUNT f 1 2 WORD", '-', "ERR syntax error", 0},
    {"BITCOUNT f a b", '-', "ERR value is not an integer or out of range", 0},
    {"BITPOS f 1", ':', NULL, 1},
    {"BITPOS f 0", ':', NULL, 0},
    {"BITPOS f 1 2 2", ':', NULL, 17},
    {"BITPOS f 1 7 15 BIT", ':', NULL, 9},
    {"BITPOS f 2", '-', "ERR The bit argument must be 1 or 0.", 0},
    {"BITPOS none 0", ':', NULL, 0},
    {"BITPOS none 1", ':', NULL, -1},
    {"SETRANGE z 3 \"\\xff\"", ':', NULL, 4},
    {"BITPOS z 1", ':', NULL, 24},
    {"BITPOS z 0 3", ':', NULL, 32},
    {"BITPOS z 0 3 -1", ':', NULL, -1},
    {"BITPOS z 1 0 2", ':', NULL, -1},
    {"BITCOUNT z", ':', NULL, 8},
};

static const struct exchange fractions[] = {
    {"SET k 10.50", '+', "OK", 0},
    {"INCRBYFLOAT k 0.1", '$', "10.6", 0},
    {"INCRBYFLOAT k -5", '$', "5.6", 0},
    {"SET k 5.0e3", '+', "OK", 0},
    {"INCRBYFLOAT k 2.0e2", '$', "5200", 0},
    {"INCRBYFLOAT new 3.0", '$', "3", 0},
    {"INCRBYFLOAT new -3", '$', "0", 0},
    {"INCRBYFLOAT k x", '-', "ERR value is not a valid float", 0},
    {"INCRBYFLOAT k nan", '-', "ERR value is not a valid float", 0},
    {"INCRBYFLOAT k inf", '-', "ERR increment would produce NaN or Infinity", 0},
    {"SET t text", '+', "OK", 0},
    {"INCRBYFLOAT t 1", '-', "ERR value is not a valid float", 0},
    {"HSET h f 10.50", ':', NULL, 1},
    {"HINCRBYFLOAT h f 0.1", '$', "10.6", 0},
    {"HINCRBYFLOAT h g 1.5", '$', "1.5", 0},
    {"HINCRBYFLOAT h f x", '-', "ERR value is not a valid float", 0},
    {"HINCRBYFLOAT h f inf", '-', "ERR value is NaN or Infinity", 0},
    {"HSET h t text", ':', NULL, 1},
    {"HINCRBYFLOAT h t 1", '-', "ERR hash value is not a float", 0},
    {"HINCRBYFLOAT k f 1", '-', WRONGTYPE, 0},
    {"INCRBYFLOAT h 1", '-', WRONGTYPE, 0},
    {"HSTRLEN h f", ':', NULL, 4},
    {"HSTRLEN h none", ':', NULL, 0},
    {"HSTRLEN none f", ':', NULL, 0},
    {"HSTRLEN k f", '-', WRONGTYPE, 0},
};

static const struct exchange reads_that_expire[] = {
    {"SET k v", '+', "OK", 0},
    {"GETEX k", '$', "v", 0},
    {"TTL k", ':', NULL, -1},
    {"GETEX k EX 100", '$', "v", 0},
    {"TTL k", ':', NULL, 100},
    {"GETEX k PERSIST", '$', "v", 0},
    {"TTL k", ':', NULL, -1},
    {"GETEX k PXAT 99999999999999", '$', "v", 0},
    {"PEXPIRETIME k", ':', NULL, 99999999999999},
    {"GETEX k EXAT 1", '$', "v", 0},
    {"EXISTS k", ':', NULL, 0},
    {"GETEX k EX 100", '_', NULL, 0},
    {"GETEX k EX 0", '-', "ERR invalid expire time in 'getex' command", 0},
    {"GETEX k EX x", '-', "ERR value is not an integer or out of range", 0},
    {"GETEX k EX", '-', "ERR syntax error", 0},
    {"GETEX k KEEPTTL", '-', "ERR syntax error", 0},
    {"GETEX k EX 1 PERSIST", '-', "ERR syntax error", 0},
    {"HSET h f v", ':', NULL, 1},
    {"GETEX h", '-', WRONGTYPE, 0},
};

static void test_as_redis_answers(void **state)
{
    struct test_server *s = support_server(NULL);
    struct connection c;
    (void)state;
    connect_to(&c, s->port);
    CONVERSE(&c, parts);
    CONVERSE(&c, bits);
    expect_text(&c, "FLUSHALL", "OK");
    CONVERSE(&c, fractions);
    expect_text(&c, "FLUSHALL", "OK");
    CONVERSE(&c, reads_that_expire);
    disconnect(&c);
    support_server_end(s);
}

/* What is logged is the part that was written: it is there after a restart, over what a checkpoint holds, too. */
static void test_parts_survive(void **state)
{
    static const struct exchange before[] = {
        {"SETRANGE gap 5 end", ':', NULL, 8},
        {"SET k abcdef", '+', "OK", 0},
        {"SETRANGE k 2 XY", ':', NULL, 6},
        {"SETBIT bits 1000 1", ':', NULL, 0},
        {"SETRANGE gone 3 x", ':', NULL, 4},
        {"SETRANGE gone 5 x", ':', NULL, 6},
        {"DEL gone", ':', NULL, 1},
        {"SETRANGE k 8 tail", ':', NULL, 12},
        {"GETEX k EX 1000", '$', "abXYef", 0}, /* the text ends at the first 0 for who asks */
        {"INCRBYFLOAT n 1.25", '$', "1.25", 0},
    };
    static const struct exchange after[] = {
        {"STRLEN gap", ':', NULL, 8},       {"GETRANGE gap 5 -1", '$', "end", 0}, {"BITCOUNT gap 0 4", ':', NULL, 0},
        {"STRLEN k", ':', NULL, 12},        {"GETRANGE k 0 5", '$', "abXYef", 0}, {"GETRANGE k 8 11", '$', "tail", 0},
        {"GETBIT bits 1000", ':', NULL, 1}, {"BITCOUNT bits", ':', NULL, 1},      {"EXISTS gone", ':', NULL, 0},
        {"GET n", '$', "1.25", 0},
    };
    char *folder = support_folder_make();
    const char *const settings[] = {"dir", folder, NULL};
    struct connection c;
    (void)state;
    for (int round = 0; round < 2; round++) {
        struct test_server *s = support_server(settings);
        connect_to(&c, s->port);
        if (round == 0)
            CONVERSE(&c, before);
        CONVERSE(&c, after);
        struct reply r = ask(&c, "TTL k");
        assert_true(r.integer > 900 && r.integer <= 1000);
        reply_free(&r);
        disconnect(&c);
        support_server_end(s);
    }
    support_folder_remove(folder);
}

static void check_fields(struct connection *c, const char *request, size_t n, unsigned least_different, bool values)
{
    bool seen[1000] = {false};
    unsigned different = 0;
    struct reply r = ask(c, request);
    assert_int_equal(r.n, values ? 2 * n : n);
    for (size_t i = 0; i < r.n; i += values ? 2 : 1) {
        unsigned field, value;
        assert_int_equal(sscanf(r.items[i].text, "f%u", &field), 1);
        assert_true(field < 1000);
        different += !seen[field];
        seen[field] = true;
        if (values) {
            assert_int_equal(sscanf(r.items[i + 1].text, "v%u", &value), 1);
            assert_int_equal(field, value);
        }
    }
    assert_true(different >= least_different);
    reply_free(&r);
}

static void test_fields_at_random(void **state)
{
    struct test_server *s = support_server(NULL);
    struct connection c;
    (void)state;
    connect_to(&c, s->port);
    for (int large = 0; large < 2; large++) {
        unsigned n = large ? 1000 : 50;
        for (unsigned i = 0; i < n; i++) {
            char request[64];
            snprintf(request, sizeof request, "HSET h%d f%u v%u", large, i, i);
            expect_integer(&c, request, 1);
        }
        char request[5][64];
        snprintf(request[0], 64, "HRANDFIELD h%d 20", large);
        snprintf(request[1], 64, "HRANDFIELD h%d 5000 WITHVALUES", large);
        snprintf(request[2], 64, "HRANDFIELD h%d -2000", large);
        snprintf(request[3], 64, "HRANDFIELD h%d -30 WITHVALUES", large);
        snprintf(request[4], 64, "HRANDFIELD h%d 0", large);
        check_fields(&c, request[0], 20, 20, false);
        check_fields(&c, request[1], n, n, true);
        check_fields(&c, request[2], 2000, n / 4, false);
        check_fields(&c, request[3], 30, 2, true);
        check_fields(&c, request[4], 0, 0, false);
    }
    struct reply r = ask(&c, "HRANDFIELD h0");
    assert_true(r.text && r.text[0] == 'f');
    reply_free(&r);
    r = ask(&c, "HELLO 3");
    reply_free(&r);
    r = ask(&c, "HRANDFIELD h1 3 WITHVALUES");
    assert_true(r.n == 3 && r.items[0].n == 2);
    reply_free(&r);
    static const struct exchange edges[] = {
        {"HRANDFIELD none", '_', NULL, 0},
        {"SET k v", '+', "OK", 0},
        {"HRANDFIELD k", '-', WRONGTYPE, 0},
        {"HRANDFIELD h0 x", '-', "ERR count is not an integer", 0},
        {"HRANDFIELD h0 -100001", '-', "ERR count is not an integer, or below -100000", 0},
        {"HRANDFIELD h0 1 WITHSCORES", '-', "ERR syntax error", 0},
    };
    CONVERSE(&c, edges);
    check_fields(&c, "HRANDFIELD none 3", 0, 0, false);
    disconnect(&c);
    support_server_end(s);
}

/* The life of a lock of redis-py: taken by SET NX PX, released only by who holds it. */
static void test_locks_by_their_scripts(void **state)
{
#define RELEASE   "EVALSHA c3f8721cbb97f72bc19e972846bd7aaf91901658 1 lock "
#define EXTEND    "EVALSHA A4E8783852E6B949F9EF3A97212805108459A890 1 lock "
#define REACQUIRE "EVALSHA 1cac51482acf5858da00f6d685d68f886cd6b6b2 1 lock "
    static const struct exchange life[] = {
        {RELEASE "mine", ':', NULL, 0},
        {"SET lock mine NX PX 100000", '+', "OK", 0},
        {"SET lock theirs NX PX 100000", '_', NULL, 0},
        {RELEASE "theirs", ':', NULL, 0},
        {EXTEND "theirs 1000 0", ':', NULL, 0},
        {REACQUIRE "theirs 1000", ':', NULL, 0},
        {EXTEND "mine 100000 0", ':', NULL, 1},
        {"TTL lock", ':', NULL, 200},
        {EXTEND "mine 50000 1", ':', NULL, 1},
        {"TTL lock", ':', NULL, 50},
        {REACQUIRE "mine 300000", ':', NULL, 1},
        {"TTL lock", ':', NULL, 300},
        {EXTEND "mine x 0", '-', "ERR value is not an integer or out of range", 0},
        {"PERSIST lock", ':', NULL, 1},
        {EXTEND "mine 1000 0", ':', NULL, 0}, /* as its script says: it has no time to live */
        {RELEASE "mine", ':', NULL, 1},
        {"EXISTS lock", ':', NULL, 0},
        {"HSET lock f v", ':', NULL, 1},
        {RELEASE "mine", '-', WRONGTYPE, 0},
        {RELEASE "mine more", '-', "ERR this script takes 1 key and 1 arguments", 0},
        {"EVALSHA c3f8721cbb97f72bc19e972846bd7aaf91901658 2 a b", '-', "ERR this script takes 1 key", 0},
        {"EVALSHA 0000000000000000000000000000000000000000 0", '-', "ERR scripts are not here", 0},
        {"EVAL \"return 1\" 0", '-', "ERR scripts are not here", 0},
        {"SCRIPT LOAD \"return 1\"", '-', "ERR scripts are not here", 0},
        {"SCRIPT FLUSH", '+', "OK", 0},
    };
    struct test_server *s = support_server(NULL);
    struct connection c;
    (void)state;
    connect_to(&c, s->port);
    CONVERSE(&c, life);
    struct reply r = ask(&c, "SCRIPT EXISTS c3f8721cbb97f72bc19e972846bd7aaf91901658 none");
    assert_true(r.n == 2 && r.items[0].integer == 1 && r.items[1].integer == 0);
    reply_free(&r);
    disconnect(&c);
    support_server_end(s);
}

/* One node that has all slots; and what is not here says so. */
static void test_a_cluster_of_one(void **state)
{
    static const struct exchange exchanges[] = {
        {"CLUSTER KEYSLOT foo", ':', NULL, 12182},
        {"CLUSTER KEYSLOT {foo}bar", ':', NULL, 12182},
        {"CLUSTER KEYSLOT foo{}{bar}", ':', NULL, 8363},
        {"CLUSTER KEYSLOT 123456789", ':', NULL, 12739},
        {"READONLY", '+', "OK", 0},
        {"READWRITE", '+', "OK", 0},
        {"WAIT 1 1000", ':', NULL, 0},
        {"WAIT x 1", '-', "ERR value is not an integer or out of range", 0},
        {"WAIT 1 -1", '-', "ERR timeout is negative", 0},
        {"lpush l v", '-', "ERR unknown command 'lpush': lists are not here", 0},
        {"SADD s v", '-', "ERR unknown command 'SADD': sets are not here", 0},
        {"ZADD s 1 v", '-', "ERR unknown command 'ZADD': sorted sets are not here", 0},
        {"XADD s * a b", '-', "ERR unknown command 'XADD': streams are not here", 0},
        {"SUBSCRIBE s", '-', "ERR unknown command 'SUBSCRIBE': pub/sub are not here", 0},
        {"FCALL f 0", '-', "ERR unknown command 'FCALL': scripts and functions are not here", 0},
        {"HTTL h FIELDS 1 f", '-', "ERR unknown command 'HTTL': expiries of fields are not here", 0},
        {"NONSENSE a b", '-', "ERR unknown command 'NONSENSE', with args beginning with: 'a' 'b' ", 0},
        {"LPUS a b", '-', "ERR unknown command 'LPUS', with args", 0},
    };
    struct test_server *s = support_server(NULL);
    struct connection c;
    char where[64];
    (void)state;
    connect_to(&c, s->port);
    CONVERSE(&c, exchanges);
    struct reply id = ask(&c, "CLUSTER MYID"), r = ask(&c, "CLUSTER SLOTS");
    assert_int_equal(strlen(id.text), 40);
    assert_true(r.n == 1 && r.items[0].items[0].integer == 0 && r.items[0].items[1].integer == 16383);
    assert_string_equal(r.items[0].items[2].items[0].text, "127.0.0.1");
    assert_int_equal(r.items[0].items[2].items[1].integer, s->port);
    assert_string_equal(r.items[0].items[2].items[2].text, id.text);
    reply_free(&r);
    r = ask(&c, "CLUSTER NODES");
    snprintf(where, sizeof where, " 127.0.0.1:%u@0 myself,master", s->port);
    assert_true(strstr(r.text, id.text) == r.text && strstr(r.text, where) && strstr(r.text, "connected 0-16383\n"));
    reply_free(&r);
    r = ask(&c, "CLUSTER INFO");
    assert_non_null(strstr(r.text, "cluster_state:ok\r\n"));
    reply_free(&r);
    r = ask(&c, "CLUSTER SHARDS");
    assert_int_equal(reply_field(&r.items[0], "slots")->n, 2);
    assert_string_equal(reply_field(&reply_field(&r.items[0], "nodes")->items[0], "role")->text, "master");
    reply_free(&r);
    reply_free(&id);
    disconnect(&c);
    support_server_end(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_redis_answers), cmocka_unit_test(test_parts_survive),
        cmocka_unit_test(test_fields_at_random), cmocka_unit_test(test_locks_by_their_scripts),
        cmocka_unit_test(test_a_cluster_of_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
