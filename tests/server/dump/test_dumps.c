/*
 * test_dumps.c - DUMP, RESTORE and COPY: every type there and back, between two servers, over a restart; what is
 * refused; digests; the number of elements with attributes through all that can happen to them; VRANGE in EXEC.
 */
#include "io/bytes.h"
#include "tests/server/support_one_server.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include <cmocka.h>

#define WRONG "ERR DUMP payload version or checksum are wrong"
#define BUSY  "BUSYKEY Target key name already exists."

enum { ROWS = 1500, DIM = 4, CODED = 150, WIDE = 40 };

static struct test_server *other; /* without a folder that outlives it */
static struct connection d;

static int set_up_both(void **state)
{
    set_up(state);
    other = support_server(NULL);
    connect_to(&d, other->port);
    return 0;
}

static int tear_down_both(void **state)
{
    disconnect(&d);
    support_server_end(other);
    return tear_down(state);
}

/* ---- requests with bytes ----------------------------------------------------------------------------------------- */

/* RESTORE key ttl payload, and the words of the options. */
static struct reply restore(struct connection *to, const char *key, const char *ttl, const struct reply *payload,
                            const char *options)
{
    struct resp_buffer out = {.protocol = 2};
    char words[100], *at = words;
    unsigned n = 0;
    snprintf(words, sizeof words, "%s", options);
    for (const char *p = options; *p; p++)
        n += p == options || p[-1] == ' ';
    resp_array(&out, 4 + n);
    resp_text(&out, "RESTORE");
    resp_text(&out, key);
    resp_text(&out, ttl);
    resp_bulk(&out, payload->text, payload->bytes);
    for (char *word = strtok_r(words, " ", &at); word; word = strtok_r(NULL, " ", &at))
        resp_text(&out, word);
    send_bytes(to, out.data, out.bytes);
    resp_buffer_fini(&out);
    return read_reply(to);
}

static struct reply dump(struct connection *from, const char *key)
{
    char words[100];
    snprintf(words, sizeof words, "DUMP %s", key);
    struct reply r = ask(from, words);
    if (r.type != '$' || r.null)
        fail_msg("%s: %c %s", words, r.type, r.text ? r.text : "");
    return r;
}

static void move(const char *key)
{
    struct reply payload = dump(&c, key);
    check_text(restore(&d, key, "0", &payload, "REPLACE"), "OK");
    reply_free(&payload);
}

static void digest_of(struct connection *from, const char *key, char out[41])
{
    char words[100];
    snprintf(words, sizeof words, "DEBUG DIGEST-VALUE %s", key);
    struct reply r = ask(from, words);
    if (r.n != 1 || r.items[0].bytes != 40)
        fail_msg("%s: %s", words, r.text ? r.text : "not one digest");
    memcpy(out, r.items[0].text, 41);
    reply_free(&r);
}

static void expect_same(struct connection *one, const char *key, struct connection *two, const char *copy, bool same)
{
    char left[41], right[41];
    digest_of(one, key, left);
    digest_of(two, copy, right);
    if ((strcmp(left, right) == 0) != same)
        fail_msg("the digests of %s and %s are %s", key, copy, same ? "different" : "the same");
}

static void expect_field(struct connection *from, const char *key, const char *field, long long value)
{
    char words[100];
    snprintf(words, sizeof words, "VINFO %s", key);
    struct reply r = ask(from, words);
    const struct reply *found = reply_field(&r, field);
    if (!found || found->integer != value)
        fail_msg("%s of %s is %lld, not %lld", field, key, found ? found->integer : -1, value);
    reply_free(&r);
}

/* ROWS elements e0.., of which each third has attributes. */
static void fill(const char *key, const char *options)
{
    struct resp_buffer out = {.protocol = 2};
    char words[200];
    for (unsigned i = 0; i < ROWS; i++) {
        snprintf(words, sizeof words, "VADD %s VALUES %d %u %u %u 1 e%u %s%s", key, DIM, i % 37 + 1, i % 91, i % 53, i,
                 options, i % 3 == 0 ? " SETATTR {\"n\":1}" : "");
        put_request(&out, words);
    }
    send_bytes(&c, out.data, out.bytes);
    resp_buffer_fini(&out);
    for (unsigned i = 0; i < ROWS; i++) {
        struct reply r = read_reply(&c);
        if (r.integer != 1)
            fail_msg("VADD %s: %s", key, r.text ? r.text : "not new");
        reply_free(&r);
    }
}

/* ---- strings and hashes ------------------------------------------------------------------------------------------ */

static void test_strings_and_hashes(void **state)
{
    (void)state;
    char words[100];
    char *value = malloc(3 << 20);
    assert_non_null(value);
    memset(value, 'v', 3 << 20);
    expect_text(&c, "SET s text", "OK");
    expect_integer(&c, "HSET h a 1 b 2 c 3", 3);
    for (unsigned i = 0; i < 20000; i++) { /* more than one piece */
        snprintf(words, sizeof words, "HSET large field:%u value:%u", i, i);
        send_request(&c, words);
    }
    for (unsigned i = 0; i < 20000; i++) {
        struct reply r = read_reply(&c);
        reply_free(&r);
    }
    struct resp_buffer out = {.protocol = 2};
    resp_array(&out, 3);
    resp_text(&out, "SET");
    resp_text(&out, "long");
    resp_bulk(&out, value, 3 << 20);
    send_bytes(&c, out.data, out.bytes);
    resp_buffer_fini(&out);
    check_text(read_reply(&c), "OK");
    static const char *const keys[] = {"s", "h", "large", "long"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        move(keys[i]);
        expect_same(&c, keys[i], &d, keys[i], true);
    }
    expect_text(&d, "GET s", "text");
    expect_text(&d, "HGET large field:19999", "value:19999");
    expect_integer(&d, "STRLEN long", 3 << 20);
    expect_same(&c, "s", &c, "h", false);
    expect_integer(&d, "HSET h c 4", 0);
    expect_same(&c, "h", &d, "h", false);
    expect_integer(&c, "HSET turned c 3 b 2 a 1", 3); /* the order is no part of it */
    expect_same(&c, "h", &c, "turned", true);
    struct reply r = ask(&c, "DUMP nothing");
    assert_true(r.null);
    reply_free(&r);
    expect_text(&c, "MULTI", "OK");
    expect_text(&c, "DUMP s", "QUEUED");
    expect_text(&c, "DUMP large", "QUEUED");
    r = ask(&c, "EXEC");
    assert_true(r.n == 2 && r.items[0].type == '$' && r.items[1].bytes > 200000);
    reply_free(&r);
    free(value);
}

static void test_options_and_errors(void **state)
{
    (void)state;
    expect_text(&c, "SET s text", "OK");
    struct reply p = dump(&c, "s"), bad = dump(&c, "s");
    check_error(restore(&c, "s", "0", &p, ""), BUSY);
    check_text(restore(&c, "s", "0", &p, "replace"), "OK");
    check_error(restore(&c, "t", "-1", &p, ""), "ERR Invalid TTL value, must be >= 0");
    check_error(restore(&c, "t", "x", &p, ""), "ERR value is not an integer or out of range");
    check_error(restore(&c, "t", "0", &p, "IDLETIME -1"), "ERR Invalid IDLETIME value, must be >= 0");
    check_error(restore(&c, "t", "0", &p, "FREQ 256"), "ERR Invalid FREQ value, must be >= 0 and <= 255");
    check_error(restore(&c, "t", "0", &p, "FREQ 1 IDLETIME 1"), "ERR syntax error");
    check_error(restore(&c, "t", "0", &p, "NOPE"), "ERR syntax error");
    expect_integer(&c, "EXISTS t", 0);
    check_text(restore(&c, "t", "100000", &p, "IDLETIME 1000"), "OK");
    struct reply r = ask(&c, "OBJECT IDLETIME t");
    assert_true(r.integer >= 1000 && r.integer < 1100);
    reply_free(&r);
    /* longer than the machine has run */
    check_text(restore(&c, "t", "100000", &p, "REPLACE IDLETIME 2000000000"), "OK");
    r = ask(&c, "OBJECT IDLETIME t");
    assert_true(r.integer >= 2000000000 && r.integer < 2000000100);
    reply_free(&r);
    check_text(restore(&c, "t", "100000", &p, "REPLACE IDLETIME 9000000000000000000"), "OK");
    r = ask(&c, "OBJECT IDLETIME t");
    assert_true(r.integer >= INT32_MAX && r.integer < INT32_MAX + 100LL);
    reply_free(&r);
    r = ask(&c, "PTTL t");
    assert_true(r.integer > 90000 && r.integer <= 100000);
    reply_free(&r);
    check_text(restore(&c, "t", "4102444800000", &p, "ABSTTL REPLACE FREQ 5"), "OK");
    expect_integer(&c, "PEXPIRETIME t", 4102444800000);
    check_text(restore(&c, "t", "1000", &p, "ABSTTL REPLACE"), "OK"); /* over: nothing is left of the old one */
    expect_integer(&c, "EXISTS t", 0);
    restart();
    expect_integer(&c, "EXISTS t", 0);
    expect_text(&c, "GET s", "text");
    /* each byte counts, and the end */
    for (size_t i = 0; i < bad.bytes; i++) {
        bad.text[i] = (char)(bad.text[i] ^ 1);
        check_error(restore(&c, "t", "0", &bad, ""), WRONG);
        bad.text[i] = (char)(bad.text[i] ^ 1);
    }
    for (bad.bytes = 0; bad.bytes < p.bytes; bad.bytes++)
        check_error(restore(&c, "t", "0", &bad, ""), WRONG);
    /* what Redis 7 made of the same string */
    struct reply redis = {.text = (char *)(uintptr_t) "\0\4text\v\0\246\27\1\2\3\4\5\6", .bytes = 16};
    check_error(restore(&c, "t", "0", &redis, ""), WRONG);
    expect_integer(&c, "EXISTS t", 0);
    reply_free(&bad);
    reply_free(&p);
}

/* ---- vector sets ------------------------------------------------------------------------------------------------- */

static void expect_scores(struct connection *one, struct connection *two, const char *words, double most)
{
    struct reply left = ask(one, words), right = ask(two, words);
    assert_true(left.n > 0 && left.n == right.n);
    for (size_t i = 1; i < left.n; i += 2)
        assert_float_equal(reply_number(&left.items[i]), reply_number(&right.items[i]), most);
    reply_free(&left);
    reply_free(&right);
}

static void test_sets(void **state)
{
    static const char *const options[] = {"", "NOQUANT", "BIN", "REDUCE 2"};
    (void)state;
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        char words[200];
        snprintf(words, sizeof words, "k%zu", i);
        char key[8];
        memcpy(key, words, sizeof key);
        if (strncmp(options[i], "REDUCE", 6) == 0) {
            expect_integer(&c, "VADD k3 REDUCE 2 VALUES 4 1 2 3 4 e1 SETATTR {\"n\":1} M 8", 1);
            expect_integer(&c, "VADD k3 REDUCE 2 VALUES 4 4 3 2 1 e2", 1);
        } else {
            fill(key, options[i]);
        }
        for (unsigned round = 0; round < 3; round++) { /* in memory, sealed, both with tombstones */
            move(key);
            expect_same(&c, key, &d, key, true);
            snprintf(words, sizeof words, "VSIM %s ELE e1 WITHSCORES COUNT 10 TRUTH", key);
            expect_scores(&c, &d, words, 0.005);
            snprintf(words, sizeof words, "VGETATTR %s e0", key);
            if (i < 3)
                expect_text(&d, words, "{\"n\":1}");
            if (round == 0) {
                snprintf(words, sizeof words, "VSEAL %s", key);
                expect_text(&c, words, "OK");
            } else if (round == 1) {
                snprintf(words, sizeof words, "VADD %s VALUES 4 9 1 9 1 more", key);
                expect_integer(&c, words, 1);
                snprintf(words, sizeof words, "VREM %s e2", key);
                expect_integer(&c, words, 1);
            }
        }
    }
    /* and back, over a restart, in the place of another type */
    expect_text(&c, "SET k1 text", "OK");
    struct reply p = dump(&d, "k1");
    check_error(restore(&c, "k1", "0", &p, ""), BUSY);
    check_text(restore(&c, "k1", "50000", &p, "REPLACE"), "OK");
    reply_free(&p);
    restart();
    expect_text(&c, "TYPE k1", "vectorset");
    expect_integer(&c, "VCARD k1", ROWS);
    expect_field(&c, "k1", "attributes-count", ROWS / 3);
    struct reply r = ask(&c, "TTL k1");
    assert_true(r.integer > 30);
    reply_free(&r);
    expect_same(&c, "k1", &d, "k1", true);
    expect_text(&c, "DEBUG RELOAD", "OK");
}

/* VEMB of an element, as one text. */
static void embedding_of(struct connection *from, const char *key, unsigned element, char *out, size_t capacity)
{
    char words[60];
    size_t at = 0;
    snprintf(words, sizeof words, "VEMB %s e%u", key, element);
    struct reply r = ask(from, words);
    assert_int_equal(r.n, WIDE);
    for (size_t i = 0; i < r.n; i++)
        at += (size_t)snprintf(out + at, capacity - at, "%s ", r.items[i].text);
    assert_true(at + 1 < capacity);
    reply_free(&r);
}

static void expect_same_vectors(struct connection *one, const char *key, struct connection *two, const char *copy)
{
    char left[WIDE * 30], right[WIDE * 30];
    for (unsigned i = 0; i < CODED; i += 7) {
        embedding_of(one, key, i, left, sizeof left);
        embedding_of(two, copy, i, right, sizeof right);
        if (strcmp(left, right) != 0)
            fail_msg("e%u of %s and %s:\n%s\n%s", i, key, copy, left, right);
    }
}

static void add_wide(const char *key, unsigned element, const char *option)
{
    char words[600];
    size_t at = (size_t)snprintf(words, sizeof words, "VADD %s VALUES %d", key, WIDE);
    for (unsigned n = 0; n < WIDE; n++)
        at += (size_t)snprintf(words + at, sizeof words - at, " %u", (element * 7919 + n * 104729 + element * n) % 211);
    snprintf(words + at, sizeof words - at, " e%u %s", element, option);
    expect_integer(&c, words, 1);
}

static void expect_digest(const char *key, const char *wanted, const char *when)
{
    char digest[41];
    digest_of(&c, key, digest);
    if (strcmp(digest, wanted) != 0)
        fail_msg("the digest of %s is another one after %s", key, when);
}

/* Wherever its rows lie and have been, the digest of k is the same. */
static void check_digest_stays(const char *digest, const char *option)
{
    expect_text(&c, "DEBUG RELOAD", "OK");
    expect_digest("k", digest, "DEBUG RELOAD");
    for (unsigned i = 0; i < CODED; i += 3) {
        char words[40];
        snprintf(words, sizeof words, "VREM k e%u", i);
        expect_integer(&c, words, 1);
        add_wide("k", i, option);
    }
    expect_digest("k", digest, "the same elements came again");
    expect_text(&c, "VSEAL k", "OK");
    expect_digest("k", digest, "a second seal");
    expect_text(&c, "VCOMPACT k", "OK");
    expect_digest("k", digest, "a merge");
    restart();
    expect_digest("k", digest, "a restart");
}

/* Sets of codes: a copy has the same ones wherever the rows lie, and digests know of the vectors. */
static void test_codes(void **state)
{
    static const char *const options[] = {"Q8", "BIN"};
    (void)state;
    for (size_t o = 0; o < sizeof options / sizeof *options; o++) {
        char words[600], sealed[41], before[41];
        expect_integer(&c, "DEL k l", o > 0 ? 2 : 0);
        for (unsigned i = 0; i < CODED; i++)
            add_wide("k", i, options[o]);
        digest_of(&c, "k", before);
        expect_integer(&c, "COPY k l REPLACE", 1);
        expect_same_vectors(&c, "k", &c, "l");
        expect_text(&c, "VSEAL k", "OK");
        digest_of(&c, "k", sealed);
        assert_string_equal(before, sealed);
        move("k");
        expect_same(&c, "k", &d, "k", true);
        expect_same_vectors(&c, "k", &d, "k");
        expect_integer(&c, "COPY k l REPLACE", 1);
        expect_same_vectors(&c, "k", &c, "l");
        expect_text(&c, "VSEAL l", "OK");
        expect_same_vectors(&c, "k", &c, "l");
        expect_same(&c, "k", &c, "l", true);
        check_digest_stays(before, options[o]);
        /* another vector under the same name */
        snprintf(words, sizeof words, "VADD l VALUES %d", WIDE);
        for (unsigned n = 0; n < WIDE; n++)
            strcat(words, n % 2 ? " 1" : " 2");
        strcat(words, " e1");
        expect_integer(&c, words, 0);
        expect_same(&c, "k", &c, "l", false);
    }
}

/* The right checksum for bytes that are not. */
static void sign(struct reply *payload)
{
    uint8_t *bytes = (uint8_t *)payload->text;
    bytes_store_u64(bytes + payload->bytes - 8, XXH3_64bits(bytes, payload->bytes - 8));
}

/* What is there is looked at, not believed: wrong lengths, vectors, names, settings. */
static void bend(const char *key)
{
    struct reply p = dump(&c, key);
    for (size_t at = 5; at < p.bytes - 10; at++) {
        char before = p.text[at];
        for (unsigned bits = 1; bits <= 0xff; bits = bits * 16 + 15) {
            p.text[at] = (char)(before ^ (char)bits);
            sign(&p);
            struct reply r = restore(&d, "bent", "0", &p, "REPLACE");
            if (r.type == '+')
                expect_text(&d, "DEBUG RELOAD", "OK");
            else if (strncmp(r.text, "ERR Bad data format", 19) != 0 && strcmp(r.text, WRONG) != 0)
                fail_msg("byte %zu of %s: %s", at, key, r.text);
            reply_free(&r);
        }
        p.text[at] = before;
    }
    reply_free(&p);
}

static void test_kinds_of_sets(void **state)
{
    (void)state;
    expect_text(&c, "VCREATE b DIM 3 TYPE u8 METRIC l2 ATTR year integer INDEXED", "OK");
    expect_integer(&c, "VADD b VALUES 3 1 2 255 a SETATTR {\"year\":1995}", 1);
    expect_text(&c, "VSEAL b", "OK");
    expect_text(&c, "VCREATE p DIM 2 METRIC ip SLOT f16", "OK");
    expect_integer(&c, "VADD p VALUES 2 0.1 0.2 a", 1);
    expect_integer(&c, "VADD p VALUES 2 1000 2000 b", 1);
    expect_text(&c, "VCREATE i DIM 2 TYPE i8", "OK");
    expect_integer(&c, "VADD i VALUES 2 -3 100 a", 1);
    expect_integer(&c, "VADD q VALUES 2 -3 100 a SETATTR {}", 1);
    expect_integer(&c, "VADD q VALUES 2 1 1 b", 1);
    expect_text(&c, "VCREATE e DIM 2 TENANTS", "OK"); /* empty */
    expect_text(&c, "VCREATE t DIM 2 TENANTS", "OK");
    expect_integer(&c, "VADD t VALUES 2 1 2 a TENANT acme TENANT bolt SETATTR {}", 1);
    expect_integer(&c, "VADD t VALUES 2 2 1 b TENANT bolt", 1);
    expect_integer(&c, "VADD t VALUES 2 3 1 gone TENANT dropped", 1);
    expect_integer(&c, "VDROPTENANT t dropped", 1);
    static const char *const keys[] = {"b", "p", "i", "q", "e", "t"};
    for (unsigned round = 0; round < 2; round++)
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
            char words[60];
            move(keys[i]);
            expect_same(&c, keys[i], &d, keys[i], true);
            snprintf(words, sizeof words, "VSEAL %s", keys[i]);
            expect_text(&c, words, "OK");
        }
    struct reply r = ask(&d, "VEMB b a");
    assert_true(r.n == 3 && reply_number(&r.items[2]) == 255);
    reply_free(&r);
    r = ask(&d, "VSIM b VALUES 3 1 2 3 FILTER .year==1995");
    assert_int_equal(r.n, 1);
    reply_free(&r);
    expect_integer(&d, "VCOUNT t TENANT bolt", 2);
    expect_integer(&d, "VCOUNT t TENANT acme", 1);
    expect_integer(&d, "VCARD t", 2);
    check_error(ask(&d, "VADD t VALUES 2 1 2 c"), "ERR every element of this set is some tenant's");
    bend("i");
    bend("q");
    /* a name that stands twice */
    expect_integer(&c, "VADD w VALUES 2 1 2 name:one", 1);
    expect_integer(&c, "VADD w VALUES 2 2 1 name:two", 1);
    struct reply p = dump(&c, "w");
    char *two = memmem(p.text, p.bytes, "two", 3);
    assert_non_null(two);
    memcpy(two, "one", 3);
    sign(&p);
    check_error(restore(&d, "bent", "0", &p, "REPLACE"), "ERR Bad data format: element name:one is there twice");
    reply_free(&p);
}

static void test_copies(void **state)
{
    (void)state;
    fill("k", "");
    expect_text(&c, "VSEAL k", "OK");
    expect_integer(&c, "VREM k e1", 1);
    expect_integer(&c, "EXPIRE k 1000", 1);
    expect_integer(&c, "COPY k l", 1);
    expect_integer(&c, "COPY k l", 0);
    expect_integer(&c, "COPY k l DB 0 REPLACE", 1);
    expect_error(&c, "COPY k l DB 1", "ERR DB index is out of range");
    expect_error(&c, "COPY k k", "ERR source and destination objects are the same");
    expect_same(&c, "k", &c, "l", true);
    struct reply r = ask(&c, "TTL l");
    assert_true(r.integer > 900);
    reply_free(&r);
    /* independent of each other */
    expect_integer(&c, "VADD l VALUES 4 1 2 3 4 only", 1);
    expect_integer(&c, "VREM k e2", 1);
    expect_integer(&c, "VISMEMBER k only", 0);
    expect_integer(&c, "VISMEMBER l e2", 1);
    expect_integer(&c, "DEL k", 1);
    restart();
    expect_integer(&c, "EXISTS k", 0);
    expect_integer(&c, "VCARD l", ROWS);
    expect_field(&c, "l", "attributes-count", ROWS / 3);
}

/* ---- EXEC -------------------------------------------------------------------------------------------------------- */

static void queue(const char *words)
{
    expect_text(&c, words, "QUEUED");
}

/* What a dump within a transaction holds: what was written before it, and nothing of what comes behind. */
static void test_dump_in_exec(void **state)
{
    (void)state;
    fill("k", "");
    for (unsigned round = 0; round < 3; round++) { /* in memory; on the disk; then in both, and removed behind it */
        expect_integer(&c, "COPY k want REPLACE", 1);
        expect_integer(&c, "VADD want VALUES 4 9 9 9 1 before", round == 0);
        expect_integer(&c, "VREM want e1", 1);
        expect_text(&c, "MULTI", "OK");
        queue("VADD k VALUES 4 9 9 9 1 before");
        queue("VREM k e1");
        queue("DUMP k");
        queue("VSETATTR k e0 {\"n\":2}");
        queue("VADD k VALUES 4 9 9 9 2 after");
        queue("VREM k e2");
        queue(round == 2 ? "DEL k" : "VADD k VALUES 4 1 0 0 1 e1");
        struct reply r = ask(&c, "EXEC");
        if (r.n != 7 || r.items[2].type != '$')
            fail_msg("round %u: %s", round, r.n == 7 ? r.items[2].text : "EXEC failed");
        check_text(restore(&d, "k", "0", &r.items[2], "REPLACE"), "OK");
        reply_free(&r);
        expect_same(&c, "want", &d, "k", true);
        expect_integer(&d, "VISMEMBER k after", 0);
        if (round == 2)
            break;
        expect_integer(&c, "VADD k VALUES 4 3 1 2 1 e2 SETATTR {}", 1);
        expect_integer(&c, "VSETATTR k e0 {\"n\":1}", 1);
        expect_integer(&c, "VREM k after", 1);
        expect_text(&c, round == 0 ? "VSEAL k" : "PING", round == 0 ? "OK" : "PONG");
    }
    expect_integer(&c, "EXISTS k", 0);
}

/* RESTORE and COPY within a transaction: later commands of it see the set, and all of it is one frame. */
static void test_restore_and_copy_in_exec(void **state)
{
    (void)state;
    fill("k", "Q8");
    struct reply p = dump(&c, "k");
    expect_text(&c, "MULTI", "OK");
    queue("VADD k VALUES 4 9 9 9 1 more");
    queue("COPY k l");
    queue("COPY k l");
    check_text(restore(&c, "m", "0", &p, ""), "QUEUED");
    check_text(restore(&c, "l", "0", &p, ""), "QUEUED");
    queue("VADD m VALUES 4 1 1 1 1 only");
    queue("VREM m e7");
    queue("VCARD l");
    queue("VCARD m");
    struct reply r = ask(&c, "EXEC");
    assert_int_equal(r.n, 9);
    assert_int_equal(r.items[1].integer, 1);
    assert_int_equal(r.items[2].integer, 0);
    assert_true(reply_is(&r.items[3], "OK") && reply_is(&r.items[4], BUSY));
    assert_true(r.items[5].integer == 1 && r.items[6].integer == 1);
    assert_true(r.items[7].integer == ROWS + 1 && r.items[8].integer == ROWS);
    reply_free(&r);
    expect_same(&c, "k", &c, "l", true);
    expect_integer(&c, "VISMEMBER m more", 0);
    expect_integer(&c, "VISMEMBER m only", 1);
    restart();
    expect_same(&c, "k", &c, "l", true);
    expect_integer(&c, "VCARD m", ROWS);
    expect_integer(&c, "VISMEMBER m e7", 0);
    expect_text(&c, "DEBUG RELOAD", "OK");
    /* what fails leaves nothing, and the others are done; a set on the disk is for the worker */
    expect_text(&c, "VSEAL k", "OK");
    expect_text(&c, "MULTI", "OK");
    queue("COPY k n");
    queue("COPY l n");
    memset(p.text + p.bytes - 40, 0xff, 20); /* of the last element */
    sign(&p);
    check_text(restore(&c, "o", "0", &p, ""), "QUEUED");
    r = ask(&c, "EXEC");
    assert_int_equal(r.n, 3);
    assert_true(strncmp(r.items[0].text, "ERR a vector set that lies on the disk", 38) == 0);
    assert_int_equal(r.items[1].integer, 1);
    assert_int_equal(r.items[2].type, '-');
    reply_free(&r);
    reply_free(&p);
    expect_same(&c, "l", &c, "n", true);
    expect_integer(&c, "EXISTS o", 0);
    restart();
    expect_same(&c, "l", &c, "n", true);
    expect_text(&c, "DEBUG RELOAD", "OK");
}

static void test_limits(void **state)
{
    (void)state;
    fill("k", "NOQUANT");
    expect_text(&c, "SET s text", "OK");
    expect_text(&c, "CONFIG SET maxmemory-clients 1mb", "OK");
    fill("l", "NOQUANT");
    char words[140];
    for (unsigned i = 0; i < 100; i++) { /* 1 MB of attributes */
        char *attributes = calloc(1, 11000);
        assert_non_null(attributes);
        memset(attributes, 'x', 10500);
        struct resp_buffer out = {.protocol = 2};
        snprintf(words, sizeof words, "e%u", i);
        resp_array(&out, 4);
        resp_text(&out, "VSETATTR");
        resp_text(&out, "k");
        resp_text(&out, words);
        resp_text(&out, attributes);
        send_bytes(&c, out.data, out.bytes);
        resp_buffer_fini(&out);
        struct reply r = read_reply(&c);
        assert_int_equal(r.integer, 1);
        reply_free(&r);
        free(attributes);
    }
    expect_error(&c, "DUMP k",
                 "ERR the dump of this key takes more than 786432 bytes, which is what maxmemory-clients allows");
    expect_text(&c, "CONFIG SET maxmemory-clients 100mb", "OK");
    struct reply p = dump(&c, "k");
    assert_true(p.bytes > 1 << 20);
    reply_free(&p);
}

/* ---- attributes-count -------------------------------------------------------------------------------------------- */

static void expect_count(const char *key, long long n)
{
    expect_field(&c, key, "attributes-count", n);
}

static void test_attributes_count(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 2; round++) {
        long long n = ROWS / 3;
        expect_text(&c, "FLUSHALL", "OK");
        fill("k", "");
        expect_count("k", n);
        if (round == 1) {
            expect_text(&c, "VSEAL k", "OK");
            expect_count("k", n);
        }
        expect_integer(&c, "VSETATTR k e1 {\"x\":1}", 1);
        expect_count("k", n + 1);
        expect_integer(&c, "VSETATTR k e1 {\"x\":2}", 1);
        expect_count("k", n + 1);
        check_text(ask(&c, "MULTI"), "OK");
        check_text(ask_line(&c, "VSETATTR k e0 \"\""), "QUEUED");
        check_text(ask(&c, "VREM k e3"), "QUEUED");
        check_text(ask(&c, "VREM k e4"), "QUEUED");
        struct reply r = ask(&c, "EXEC");
        reply_free(&r);
        expect_count("k", n - 1);
        expect_integer(&c, "VADD k VALUES 4 1 2 3 4 e6", 0); /* keeps them */
        expect_count("k", n - 1);
        expect_integer(&c, "VGRANT k e9 acme", 1);
        expect_integer(&c, "VGRANT k e10 acme", 1); /* grants alone are none */
        expect_count("k", n - 1);
        restart();
        expect_count("k", n - 1);
        expect_text(&c, "VSEAL k", "OK");
        expect_count("k", n - 1);
        expect_text(&c, "VCOMPACT k", "OK");
        expect_count("k", n - 1);
        restart();
        expect_count("k", n - 1);
        expect_integer(&c, "VDROPTENANT k acme", 2);
        for (unsigned i = 0; i < 100; i++) { /* removed by and by */
            r = ask(&c, "VCARD k");
            long long size = r.integer;
            reply_free(&r);
            if (size == ROWS - 4)
                break;
            usleep(50000);
        }
        expect_integer(&c, "VCARD k", ROWS - 4);
        expect_count("k", n - 2);
        expect_text(&c, "DEBUG RELOAD NOSAVE", "OK");
    }
    /* who is bound sees the count of his part */
    struct connection acme;
    expect_text(&c, "ACL SETUSER acme on >a ~* +@all tenant:acme", "OK");
    expect_integer(&c, "VADD t VALUES 2 1 2 a TENANT acme SETATTR {}", 1);
    expect_integer(&c, "VADD t VALUES 2 1 3 b TENANT acme", 1);
    expect_integer(&c, "VADD t VALUES 2 1 4 c SETATTR {}", 1);
    for (unsigned round = 0; round < 2; round++) {
        connect_to(&acme, server->port);
        expect_text(&acme, "AUTH acme a", "OK");
        expect_field(&acme, "t", "attributes-count", 1);
        expect_field(&acme, "t", "size", 2);
        expect_field(&acme, "t", "hnsw-max-node-uid", 2);
        expect_field(&c, "t", "attributes-count", 2);
        disconnect(&acme);
        expect_text(&c, "VSEAL t", "OK");
    }
}

static void test_vinfo_fields(void **state)
{
    static const char *const fields[] = {"quant-type", "hnsw-m",           "vector-dim", "projection-input-dim", "size",
                                         "max-level",  "attributes-count", "vset-uid",   "hnsw-max-node-uid"};
    (void)state;
    expect_integer(&c, "VADD k VALUES 2 1 2 a", 1);
    struct reply r = ask(&c, "VINFO k");
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        assert_true(r.n > 2 * i + 1 && reply_is(&r.items[2 * i], fields[i]));
    long long newest = reply_field(&r, "hnsw-max-node-uid")->integer;
    reply_free(&r);
    expect_integer(&c, "VADD k VALUES 2 2 1 b", 1);
    r = ask(&c, "VINFO k");
    assert_true(reply_field(&r, "hnsw-max-node-uid")->integer > newest);
    reply_free(&r);
}

/* ---- VRANGE in EXEC, DEBUG --------------------------------------------------------------------------------------- */

static void expect_range(const struct reply *r, const char *names)
{
    char text[200] = "";
    for (size_t i = 0; i < r->n; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", i ? " " : "", r->items[i].text);
    assert_string_equal(text, names);
}

static void test_range_in_exec(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 2; round++) {
        expect_integer(&c, "VADD k VALUES 2 1 2 b", 1);
        expect_integer(&c, "VADD k VALUES 2 1 3 c", 1);
        if (round)
            expect_text(&c, "VSEAL k", "OK");
        static const char *const queued[] = {
            "VADD k VALUES 2 1 1 a", "VREM k b",         "VRANGE k - +", "VREM k c",    "VRANGE k - +",
            "VADD k VALUES 2 1 1 d", "VRANGE k (a [d 5", "VRANGE n - +", "VRANGE k x +"};
        expect_text(&c, "MULTI", "OK");
        for (size_t i = 0; i < sizeof queued / sizeof *queued; i++)
            expect_text(&c, queued[i], "QUEUED");
        struct reply r = ask(&c, "EXEC");
        assert_int_equal(r.n, 9);
        expect_range(&r.items[2], "a c");
        expect_range(&r.items[4], "a");
        expect_range(&r.items[6], "d");
        expect_range(&r.items[7], "");
        assert_true(r.items[8].type == '-');
        reply_free(&r);
        expect_integer(&c, "DEL k", 1);
    }
}

static void test_debug(void **state)
{
    (void)state;
    char none[41], digest[41];
    struct reply r = ask(&c, "DEBUG DIGEST");
    memcpy(none, r.text, 41);
    reply_free(&r);
    assert_string_equal(none, "0000000000000000000000000000000000000000");
    digest_of(&c, "nothing", digest);
    assert_string_equal(digest, none);
    expect_integer(&c, "VADD k VALUES 2 1 2 a", 1);
    expect_integer(&c, "VADD k VALUES 2 2 1 b SETATTR {\"price\":10}", 1);
    digest_of(&c, "k", digest);
    expect_integer(&c, "VSETATTR k b {\"price\":20}", 1);
    digest_of(&c, "k", none);
    assert_string_not_equal(digest, none);
    expect_integer(&c, "VSETATTR k b {\"price\":10}", 1);
    digest_of(&c, "k", none);
    assert_string_equal(digest, none);
    r = ask(&c, "DEBUG DIGEST-VALUE k nothing k");
    assert_true(r.n == 3 && reply_is(&r.items[2], digest));
    reply_free(&r);
    expect_text(&c, "SET s x PX 30", "OK");
    expect_text(&c, "DEBUG SET-ACTIVE-EXPIRE 0", "OK");
    usleep(300000);
    expect_integer(&c, "DBSIZE", 2);
    expect_integer(&c, "EXISTS s", 0);
    expect_text(&c, "DEBUG SET-ACTIVE-EXPIRE 1", "OK");
    expect_error(&c, "DEBUG SET-ACTIVE-EXPIRE x", "ERR value is not an integer");
    expect_text(&c, "DEBUG RELOAD", "OK");
    expect_error(&c, "DEBUG RELOAD SOON", "ERR DEBUG RELOAD only supports the MERGE, NOFLUSH and NOSAVE options.");
    expect_error(&c, "DEBUG NOSUCH", "ERR unknown subcommand 'NOSUCH'. Try DEBUG HELP.");
    r = ask(&c, "DEBUG DIGEST");
    assert_true(r.bytes == 40 && strcmp(r.text, digest) != 0);
    reply_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_strings_and_hashes, set_up_both, tear_down_both),
        cmocka_unit_test_setup_teardown(test_options_and_errors, set_up_both, tear_down_both),
        cmocka_unit_test_setup_teardown(test_sets, set_up_both, tear_down_both),
        cmocka_unit_test_setup_teardown(test_codes, set_up_both, tear_down_both),
        cmocka_unit_test_setup_teardown(test_kinds_of_sets, set_up_both, tear_down_both),
        cmocka_unit_test_setup_teardown(test_copies, set_up_both, tear_down_both),
        cmocka_unit_test_setup_teardown(test_dump_in_exec, set_up_both, tear_down_both),
        cmocka_unit_test_setup_teardown(test_restore_and_copy_in_exec, set_up_both, tear_down_both),
        cmocka_unit_test_setup_teardown(test_limits, set_up_both, tear_down_both),
        cmocka_unit_test_setup_teardown(test_attributes_count, set_up_both, tear_down_both),
        cmocka_unit_test_setup_teardown(test_vinfo_fields, set_up_both, tear_down_both),
        cmocka_unit_test_setup_teardown(test_range_in_exec, set_up_both, tear_down_both),
        cmocka_unit_test_setup_teardown(test_debug, set_up_both, tear_down_both),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
