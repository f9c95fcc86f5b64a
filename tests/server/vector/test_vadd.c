/*
 * test_vadd.c - the commands that write vector sets, one by one, in both protocols: forms, replies, errors, what is
 * read back from memory and from sealed segments.
 *
 * Sets get few elements here, so that each reply can be said in full; what searches find among many is test_vsets.c's.
 */
#include "tests/server/support_one_server.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void begin(int protocol)
{
    struct reply r = ask(&c, protocol == 3 ? "HELLO 3" : "HELLO 2");
    reply_free(&r);
    expect_text(&c, "FLUSHALL", "OK");
}

/* In RESP2 an integer, in RESP3 a boolean. */
static void expect_bool(const char *words, int protocol, bool value)
{
    struct reply r = ask(&c, words);
    if (r.type != (protocol == 3 ? '#' : ':') || r.integer != value)
        fail_msg("%s: the reply is %c %lld '%s', not %d", words, r.type, r.integer, r.text ? r.text : "", value);
    reply_free(&r);
}

static void expect_null(const char *words)
{
    struct reply r = ask(&c, words);
    if (!r.null)
        fail_msg("%s: the reply is %c '%s', not null", words, r.type, r.text ? r.text : "");
    reply_free(&r);
}

/* VADD key FP32 vector element, with the words of the options. */
static struct reply add_blob(const char *key, const void *blob, size_t bytes, const char *element, size_t element_bytes)
{
    struct resp_buffer out = {.protocol = 2};
    resp_array(&out, 5);
    resp_text(&out, "VADD");
    resp_text(&out, key);
    resp_text(&out, "FP32");
    resp_bulk(&out, blob, bytes);
    resp_bulk(&out, element, element_bytes);
    send_bytes(&c, out.data, out.bytes);
    resp_buffer_fini(&out);
    return read_reply(&c);
}

static void expect_field(const char *key, const char *field, const char *text, long long integer)
{
    char words[64];
    snprintf(words, sizeof words, "VINFO %s", key);
    struct reply r = ask(&c, words);
    const struct reply *value = reply_field(&r, field);
    if (!value || (text ? !reply_is(value, text) : value->integer != integer))
        fail_msg("%s: %s is '%s' %lld", words, field, value && value->text ? value->text : "",
                 value ? value->integer : -1);
    reply_free(&r);
}

/* The element's vector has the direction of these numbers, to the precision of 8 bits. */
static void expect_direction(const char *words, const double *right, size_t n)
{
    struct reply r = ask(&c, words);
    double length = 0, dot = 0, norm = 0;
    assert_int_equal(r.n, n);
    for (size_t i = 0; i < n; i++) {
        double x = reply_number(&r.items[i]);
        dot += x * right[i];
        length += x * x;
        norm += right[i] * right[i];
    }
    if (dot / sqrt(length * norm) < 0.999)
        fail_msg("%s: the cosine is %g", words, dot / sqrt(length * norm));
    reply_free(&r);
}

/* ---- VADD -------------------------------------------------------------------------------------------------------- */

static void test_forms(void **state)
{
    static const float blob[] = {2, 1, 2};
    (void)state;
    for (int protocol = 2; protocol <= 3; protocol++) {
        begin(protocol);
        expect_bool("VADD k VALUES 3 1 2 2 a", protocol, true);
        expect_bool("VADD k VALUES 3 1 2 2 a", protocol, false);
        expect_bool("vadd k values 3 2 -1.5e0 .25 b cas q8 ef 50 m 16 setattr {\"x\":1}", protocol, true);
        struct reply r = add_blob("k", blob, sizeof blob, "c\0d", 3);
        assert_int_equal(r.integer, 1);
        reply_free(&r);
        expect_integer(&c, "VCARD k", 3);
        expect_integer(&c, "VDIM k", 3);
        expect_text(&c, "TYPE k", "vectorset");
        expect_text(&c, "OBJECT ENCODING k", "raw");
        expect_text(&c, "VGETATTR k b", "{\"x\":1}");
        send_literal(&c, "VEMB k \"c\\x00d\"\r\n");
        r = read_reply(&c);
        assert_int_equal(r.n, 3);
        assert_true(fabs(reply_number(&r.items[0]) - 2) < 0.03);
        reply_free(&r);
        expect_direction("VEMB k b", (const double[]){2, -1.5, 0.25}, 3);
    }
}

static void test_what_the_first_add_fixes(void **state)
{
    (void)state;
    for (int protocol = 2; protocol <= 3; protocol++) {
        begin(protocol);
        expect_bool("VADD q VALUES 2 1 2 a Q8", protocol, true);
        expect_bool("VADD f VALUES 2 1 2 a NOQUANT M 8", protocol, true);
        expect_bool("VADD b VALUES 2 1 2 a BIN M 32 EF 100", protocol, true);
        expect_bool("VADD p VALUES 2 1 2 a", protocol, true);
        expect_field("q", "quant-type", "int8", 0);
        expect_field("f", "quant-type", "f32", 0);
        expect_field("b", "quant-type", "bin", 0);
        expect_field("p", "quant-type", "int8", 0);
        expect_field("f", "hnsw-m", NULL, 8);
        expect_field("b", "hnsw-m", NULL, 32);
        expect_field("p", "hnsw-m", NULL, 16);
        expect_field("p", "metric", "cosine", 0);
        expect_field("p", "size", NULL, 1);
        expect_error(&c, "VADD q VALUES 2 1 2 b NOQUANT", "ERR asked quantization mismatch with existing vector set");
        expect_error(&c, "VADD q VALUES 2 1 2 b BIN", "ERR asked quantization mismatch with existing vector set");
        expect_error(&c, "VADD f VALUES 2 1 2 b Q8", "ERR asked quantization mismatch with existing vector set");
        expect_error(&c, "VADD b VALUES 2 1 2 b Q8", "ERR asked quantization mismatch with existing vector set");
        expect_error(&c, "VADD f VALUES 2 1 2 b M 9", "ERR asked M value mismatch with existing vector set");
        expect_error(&c, "VADD q VALUES 3 1 2 3 b", "ERR Vector dimension mismatch - got 3 but set has 2");
        expect_bool("VADD f VALUES 2 1 2 b M 8 NOQUANT", protocol, true);
        expect_bool("VADD b VALUES 2 1 3 b BIN", protocol, true);
        expect_bool("VADD p VALUES 2 1 2 b Q8", protocol, true);
        expect_bool("VADD p VALUES 2 1 2 c M 16", protocol, true); /* what it has without being told */
        expect_bool("VADD p VALUES 2 1 2 d Q8 Q8", protocol, true);
        expect_error(&c, "VADD p VALUES 2 1 2 d BIN NOQUANT", "ERR syntax error: give one of NOQUANT, Q8 and BIN");
    }
}

static void expect_links(const char *key, size_t most)
{
    char words[40];
    snprintf(words, sizeof words, "VLINKS %s e7", key);
    struct reply r = ask(&c, words);
    assert_int_equal(r.n, 1);
    if (r.items[0].n == 0 || r.items[0].n > most)
        fail_msg("%s: %zu neighbours, at most %zu", words, r.items[0].n, most);
    reply_free(&r);
}

/* M bounds the neighbours that are named, in memory and on the disk. */
static void test_links(void **state)
{
    static const struct {
        const char *key, *option;
        size_t most;
    } sets[] = {{"four", "M 4", 8}, {"usual", "", 32}, {"many", "M 4096", 64}};
    (void)state;
    begin(2);
    for (size_t s = 0; s < sizeof sets / sizeof *sets; s++) {
        char words[100];
        for (unsigned i = 0; i < 100; i++) {
            snprintf(words, sizeof words, "VADD %s VALUES 3 %u %u 1 e%u %s", sets[s].key, i % 11, i % 13, i,
                     sets[s].option);
            expect_integer(&c, words, 1);
        }
        expect_links(sets[s].key, sets[s].most);
        snprintf(words, sizeof words, "VSEAL %s", sets[s].key);
        expect_text(&c, words, "OK");
        expect_links(sets[s].key, sets[s].most);
    }
}

static void test_reduce(void **state)
{
    (void)state;
    for (int protocol = 2; protocol <= 3; protocol++) {
        begin(protocol);
        expect_bool("VADD k REDUCE 3 VALUES 6 1 2 3 4 5 6 a", protocol, true);
        expect_integer(&c, "VDIM k", 3);
        expect_field("k", "projection-input-dim", NULL, 6);
        expect_bool("VADD k REDUCE 3 VALUES 6 6 -5 4 -3 2 -1 b", protocol, true);
        expect_bool("VADD k VALUES 6 1 2 3 4 5 7 c", protocol, true);
        struct reply r = ask(&c, "VSIM k VALUES 6 1 2 3 4 5 6 COUNT 3");
        assert_true(reply_is(&r.items[0], "a") && reply_is(&r.items[1], "c") && reply_is(&r.items[2], "b"));
        reply_free(&r);
        expect_error(&c, "VADD k VALUES 4 1 2 3 4 d",
                     "ERR Input dimension mismatch for projection - got 4 but projection expects 6");
        expect_error(&c, "VADD k REDUCE 2 VALUES 6 1 2 3 4 5 6 d",
                     "ERR Projection dimension mismatch - asked 2 but set has 3");
        expect_bool("VADD plain VALUES 2 1 2 a M 4096 EF 1000000", protocol, true);
        expect_field("plain", "hnsw-m", NULL, 4096);
        expect_error(&c, "VADD plain REDUCE 1 VALUES 2 1 2 a",
                     "ERR cannot add projection to existing set without projection");
        r = ask(&c, "VSIM plain ELE a COUNT 4294967295 EF 1000000");
        assert_int_equal(r.n, 1);
        reply_free(&r);
        expect_error(&c, "VADD n REDUCE 7 VALUES 6 1 2 3 4 5 6 d", "ERR REDUCE to 7: the vector has 6 numbers");
        expect_error(&c, "VADD n REDUCE 0 VALUES 1 1 d", "ERR invalid REDUCE: not a whole number");
        expect_error(&c, "VADD n REDUCE", "ERR wrong number of arguments for 'vadd' command");
        expect_integer(&c, "EXISTS n", 0);
        expect_text(&c, "VSEAL k", "OK");
        r = ask(&c, "VSIM k VALUES 6 1 2 3 4 5 6 COUNT 3");
        assert_true(r.n == 3 && reply_is(&r.items[0], "a") && reply_is(&r.items[1], "c"));
        reply_free(&r);
    }
}

static void expect_refusal(const char *words, const char *error)
{
    struct reply r = ask(&c, words);
    if (r.type != '-' || strncmp(r.text, error, strlen(error)) != 0)
        fail_msg("%s: the reply is %c %lld '%s', not '%s'", words, r.type, r.integer, r.text ? r.text : "", error);
    reply_free(&r);
}

static void test_refused_adds(void **state)
{
    static const struct {
        const char *words, *error;
    } cases[] = {
        {"VADD k", "ERR wrong number of arguments for 'vadd' command"},
        {"VADD k VALUES 2 1", "ERR invalid vector specification"},
        {"VADD k VALUES 2 1 2", "ERR wrong number of arguments for 'vadd' command"},
        {"VADD k VALUES 3 1 2 a", "ERR wrong number of arguments for 'vadd' command"},
        {"VADD k VALUES 0 a b", "ERR invalid vector specification"},
        {"VADD k VALUES -1 a b", "ERR invalid vector specification"},
        {"VADD k VALUES 65537 1 a", "ERR invalid vector specification"},
        {"VADD k VALUES 2 1 x a", "ERR invalid vector specification: value 2, 'x', is not a number"},
        {"VADD k FP32 abc a b", "ERR invalid vector specification"},
        {"VADD k ELE a b c", "ERR invalid vector specification"},
        {"VADD k VALUES 2 1 nan a", "ERR "},
        {"VADD k VALUES 2 inf 1 a", "ERR "},
        {"VADD k VALUES 2 1 -inf a", "ERR "},
        {"VADD k VALUES 2 1e39 1 a", "ERR "},
        {"VADD k VALUES 2 1 2 a NOPE", "ERR invalid option after element: syntax error at 'NOPE'"},
        {"VADD k VALUES 2 1 2 a SETATTR", "ERR invalid option after element: syntax error at 'SETATTR'"},
        {"VADD k VALUES 2 1 2 a Q8 BIN", "ERR syntax error: give one of NOQUANT, Q8 and BIN"},
        {"VADD k VALUES 2 1 2 a EF", "ERR syntax error: EF needs a value"},
        {"VADD k VALUES 2 1 2 a EF 0", "ERR invalid EF: not a whole number from 1 to 1000000"},
        {"VADD k VALUES 2 1 2 a M 3", "ERR invalid M: not a whole number from 4 to 4096"},
        {"VADD k VALUES 2 1 2 a M 4097", "ERR invalid M: not a whole number from 4 to 4096"},
        {"VADD k VALUES 2 1 2 a TENANT", "ERR syntax error: TENANT needs a value"},
    };
    (void)state;
    for (int exists = 0; exists < 2; exists++) { /* the same where the key is there */
        begin(2);
        if (exists)
            expect_bool("VADD k VALUES 2 3 4 old", 2, true);
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
            expect_refusal(cases[i].words, cases[i].error);
        expect_integer(&c, "VCARD k", exists);
        expect_integer(&c, "EXISTS k", exists);
    }
}

static void test_long_names(void **state)
{
    static const float blob[] = {2, 1, 2};
    char *name = malloc(70000);
    (void)state;
    assert_non_null(name);
    memset(name, 'n', 70000);
    begin(2);
    check_error(add_blob("k", blob, sizeof blob, name, 65536), "ERR an element's name has 1 to 65535 bytes");
    check_error(add_blob("k", blob, sizeof blob, name, 0), "ERR an element's name has 1 to 65535 bytes");
    expect_integer(&c, "EXISTS k", 0);
    for (unsigned sealed = 0; sealed < 2; sealed++) {
        struct reply r = add_blob("k", blob, sizeof blob, name, 65535);
        assert_int_equal(r.integer, sealed == 0);
        reply_free(&r);
        r = ask(&c, "VSIM k VALUES 3 2 1 2");
        assert_int_equal(r.n, 1);
        assert_int_equal(r.items[0].bytes, 65535);
        assert_memory_equal(r.items[0].text, name, 65535);
        reply_free(&r);
        expect_text(&c, "VSEAL k", "OK");
    }
    name[65536] = 0;
    char *words = malloc(70000);
    assert_non_null(words);
    static const char *const reads[] = {"VEMB k %s", "VGETATTR k %s", "VLINKS k %s"};
    for (size_t i = 0; i < 3; i++) {
        snprintf(words, 70000, reads[i], name);
        expect_null(words);
    }
    snprintf(words, 70000, "VISMEMBER k %s", name);
    expect_bool(words, 2, false);
    snprintf(words, 70000, "VREM k %s", name);
    struct reply r = ask(&c, words);
    assert_true(r.type == '-' || r.integer == 0);
    reply_free(&r);
    free(words);
    free(name);
}

static void test_other_types(void **state)
{
    static const char *const sets[] = {"VADD s VALUES 2 1 2 a",
                                       "VREM s a",
                                       "VSETATTR s a {}",
                                       "VGETATTR s a",
                                       "VEMB s a",
                                       "VISMEMBER s a",
                                       "VLINKS s a",
                                       "VRANDMEMBER s",
                                       "VCARD s",
                                       "VDIM s",
                                       "VINFO s",
                                       "VRANGE s - +",
                                       "VSIM s ELE a",
                                       "VMSIM s 1 ELE a",
                                       "VSEAL s",
                                       "VCOMPACT s"};
    static const char *const others[] = {"GET v", "APPEND v x", "HSET v f x", "HGETALL v", "INCR v"};
    (void)state;
    begin(2);
    expect_text(&c, "SET s x", "OK");
    expect_bool("VADD v VALUES 2 1 2 a", 2, true);
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        expect_error(&c, sets[i], "WRONGTYPE Operation against a key holding the wrong kind of value");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        expect_error(&c, others[i], "WRONGTYPE Operation against a key holding the wrong kind of value");
    expect_text(&c, "GET s", "x");
    expect_integer(&c, "VCARD v", 1);
    expect_error(&c, "VCREATE s DIM 2", "BUSYKEY ");
    expect_error(&c, "VCREATE v DIM 2", "BUSYKEY ");
}

/* ---- VREM -------------------------------------------------------------------------------------------------------- */

static void test_removals(void **state)
{
    (void)state;
    for (int protocol = 2; protocol <= 3; protocol++)
        for (int sealed = 0; sealed < 2; sealed++) {
            begin(protocol);
            expect_bool("VREM k a", protocol, false);
            expect_bool("VADD k VALUES 2 1 2 a", protocol, true);
            expect_bool("VADD k VALUES 2 1 2 b", protocol, true);
            if (sealed)
                expect_text(&c, "VSEAL k", "OK");
            expect_bool("VREM k x", protocol, false);
            expect_bool("VREM k a", protocol, true);
            expect_bool("VREM k a", protocol, false);
            expect_bool("VISMEMBER k a", protocol, false);
            expect_integer(&c, "VCARD k", 1);
            expect_null("VEMB k a");
            expect_bool("VADD k VALUES 2 2 1 a", protocol, true); /* and again */
            expect_integer(&c, "VCARD k", 2);
            expect_bool("VREM k b", protocol, true);
            expect_bool("VREM k a", protocol, true);
            expect_text(&c, "TYPE k", "none");
            expect_integer(&c, "EXISTS k", 0);
            expect_integer(&c, "DBSIZE", 0);
            expect_null("VINFO k");
            expect_bool("VADD k VALUES 3 1 2 3 a NOQUANT", protocol, true); /* nothing of the old set is left */
            expect_integer(&c, "VDIM k", 3);
            expect_integer(&c, "VCARD k", 1);
        }
}

/* ---- attributes -------------------------------------------------------------------------------------------------- */

static void test_attributes(void **state)
{
    (void)state;
    for (int protocol = 2; protocol <= 3; protocol++)
        for (int sealed = 0; sealed < 2; sealed++) {
            const char *seal = sealed ? "VSEAL k" : "PING", *sealed_reply = sealed ? "OK" : "PONG";
            begin(protocol);
            expect_bool("VSETATTR k a {}", protocol, false);
            expect_null("VGETATTR k a");
            expect_bool("VADD k VALUES 2 1 2 a SETATTR {\"n\":1}", protocol, true);
            expect_bool("VADD k VALUES 2 2 1 b", protocol, true);
            expect_text(&c, seal, sealed_reply);
            expect_text(&c, "VGETATTR k a", "{\"n\":1}");
            expect_null("VGETATTR k b");
            expect_null("VGETATTR k x");
            expect_bool("VSETATTR k x {}", protocol, false);
            expect_bool("VSETATTR k b {\"n\":2}", protocol, true);
            expect_text(&c, "VGETATTR k b", "{\"n\":2}");
            expect_bool("VSETATTR k a {\"n\":3}", protocol, true);
            expect_direction("VEMB k a", (const double[]){1, 2}, 2);
            expect_text(&c, seal, sealed_reply);
            expect_text(&c, "VGETATTR k a", "{\"n\":3}");
            expect_bool("VADD k VALUES 2 -1 2 a", protocol, false); /* keeps them */
            expect_text(&c, "VGETATTR k a", "{\"n\":3}");
            expect_text(&c, seal, sealed_reply);
            expect_text(&c, "VGETATTR k a", "{\"n\":3}");
            expect_direction("VEMB k a", (const double[]){-1, 2}, 2);
            expect_bool("VADD k VALUES 2 -1 2 a SETATTR {\"n\":4}", protocol, false);
            expect_text(&c, "VGETATTR k a", "{\"n\":4}");
            expect_text(&c, seal, sealed_reply);
            send_literal(&c, "VSETATTR k a \"\"\r\n");
            struct reply r = read_reply(&c);
            assert_int_equal(r.integer, 1);
            reply_free(&r);
            expect_null("VGETATTR k a");
            expect_text(&c, seal, sealed_reply);
            expect_null("VGETATTR k a");
            send_literal(&c, "VADD k VALUES 2 2 1 b SETATTR \"\"\r\n");
            r = read_reply(&c);
            assert_int_equal(r.integer, 0);
            reply_free(&r);
            expect_null("VGETATTR k b");
            expect_integer(&c, "VCARD k", 2);
            expect_bool("VREM k a", protocol, true);
            expect_bool("VADD k VALUES 2 1 2 a", protocol, true); /* a new element has none */
            expect_null("VGETATTR k a");
        }
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static void add_compass(int sealed)
{
    expect_bool("VADD k VALUES 2 1 0 east NOQUANT SETATTR {\"n\":1}", 2, true);
    expect_bool("VADD k VALUES 2 0 2 north", 2, true);
    if (sealed)
        expect_text(&c, "VSEAL k", "OK");
    expect_bool("VADD k VALUES 2 -3 0 west", 2, true);
    if (sealed > 1)
        expect_text(&c, "VSEAL k", "OK");
}

static const char *const shapes[] = {"",
                                     "WITHSCORES",
                                     "WITHATTRIBS",
                                     "WITHSCORES WITHATTRIBS",
                                     "WITHVECTORS",
                                     "WITHSCORES WITHVECTORS",
                                     "WITHATTRIBS WITHVECTORS",
                                     "WITHVECTORS WITHATTRIBS WITHSCORES"};

/* What stands behind an element: `at` is its first detail. Returns how many there are. */
static size_t check_details(const struct reply *at, unsigned place, const char *shape, int protocol)
{
    static const double scores[] = {1, 0.5, 0}, vectors[][2] = {{1, 0}, {0, 2}, {-3, 0}};
    size_t n = 0;
    if (strstr(shape, "SCORES")) {
        assert_int_equal(at[n].type, protocol == 3 ? ',' : '$');
        assert_true(fabs(reply_number(&at[n++]) - scores[place]) < 1e-6);
    }
    if (strstr(shape, "ATTRIBS")) {
        if (place == 0)
            assert_true(reply_is(&at[n++], "{\"n\":1}"));
        else
            assert_true(at[n++].null);
    }
    if (strstr(shape, "VECTORS")) {
        assert_int_equal(at[n].n, 2);
        for (unsigned d = 0; d < 2; d++)
            assert_true(fabs(reply_number(&at[n].items[d]) - vectors[place][d]) < 1e-6);
        n++;
    }
    return n;
}

static void check_shape(const struct reply *r, const char *shape, int protocol)
{
    static const char *const names[] = {"east", "north", "west"};
    size_t details = (size_t)(strstr(shape, "SCORES") != NULL) + (strstr(shape, "ATTRIBS") != NULL) +
                     (strstr(shape, "VECTORS") != NULL);
    bool map = protocol == 3 && details;
    assert_int_equal(r->type, map ? '%' : '*');
    assert_int_equal(r->n, map ? 6 : 3 * (1 + details));
    for (unsigned i = 0, at = 0; i < 3; i++) {
        assert_true(reply_is(&r->items[at++], names[i]));
        if (map && details > 1) {
            assert_int_equal(r->items[at].n, details);
            check_details(r->items[at++].items, i, shape, protocol);
        } else {
            at += (unsigned)check_details(&r->items[at], i, shape, protocol);
        }
    }
}

static void test_shapes_of_vsim(void **state)
{
    (void)state;
    char words[128];
    for (int protocol = 2; protocol <= 3; protocol++)
        for (int sealed = 0; sealed < 3; sealed++) {
            begin(2);
            add_compass(sealed);
            struct reply r = ask(&c, protocol == 3 ? "HELLO 3" : "HELLO 2");
            reply_free(&r);
            for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
                snprintf(words, sizeof words, "VSIM k VALUES 2 2 0 %s", shapes[i]);
                r = ask(&c, words);
                check_shape(&r, shapes[i], protocol);
                reply_free(&r);
                snprintf(words, sizeof words, "VSIM k ELE east TRUTH %s EXPLAIN", shapes[i]);
                r = ask(&c, words);
                assert_int_equal(r.n, 2);
                check_shape(&r.items[0], shapes[i], protocol);
                assert_int_equal(reply_field(&r.items[1], "segments")->integer, sealed);
                reply_free(&r);
                snprintf(words, sizeof words, "VMSIM k 2 VALUES 2 1 0 ELE east %s", shapes[i]);
                r = ask(&c, words);
                assert_int_equal(r.n, 2);
                check_shape(&r.items[0], shapes[i], protocol);
                check_shape(&r.items[1], shapes[i], protocol);
                reply_free(&r);
            }
            r = ask(&c, "VSIM k ELE east EPSILON 0.6 WITHSCORES");
            assert_int_equal(r.n, 4);
            reply_free(&r);
        }
}

static void test_vmsim(void **state)
{
    (void)state;
    begin(2);
    struct reply r = ask(&c, "VMSIM k 2 ELE a ELE b");
    assert_true(r.n == 2 && r.items[0].n == 0 && r.items[1].n == 0);
    reply_free(&r);
    add_compass(1);
    r = ask(&c, "VMSIM k 4 ELE west ELE nobody VALUES 3 1 2 3 VALUES 2 0 1 COUNT 1");
    assert_int_equal(r.n, 4);
    assert_true(reply_is(&r.items[0].items[0], "west"));
    assert_true(r.items[1].type == '-' && strstr(r.items[1].text, "element not found in set"));
    assert_true(r.items[2].type == '-' && strstr(r.items[2].text, "got 3 but set has 2"));
    assert_true(reply_is(&r.items[3].items[0], "north"));
    reply_free(&r);
    expect_error(&c, "VMSIM k 0 ELE a", "ERR the number of queries is not a whole number from 1 to 10000");
    expect_error(&c, "VMSIM k 10001 ELE a", "ERR the number of queries");
    expect_error(&c, "VMSIM k 2 ELE a", "ERR invalid vector specification");
    expect_error(&c, "VMSIM k 1 ELE a NOPE", "ERR syntax error in VMSIM command at 'NOPE'");
    struct resp_buffer out = {.protocol = 2};
    resp_array(&out, 3 + 2 * 5000);
    resp_text(&out, "VMSIM");
    resp_text(&out, "k");
    resp_text(&out, "5000");
    for (unsigned i = 0; i < 5000; i++) {
        resp_text(&out, "ELE");
        resp_text(&out, i % 2 ? "north" : "west");
    }
    send_bytes(&c, out.data, out.bytes);
    resp_buffer_fini(&out);
    r = read_reply(&c);
    assert_int_equal(r.n, 5000);
    for (unsigned i = 0; i < 5000; i++)
        assert_true(r.items[i].n == 3 && reply_is(&r.items[i].items[0], i % 2 ? "north" : "west"));
    reply_free(&r);
}

static void test_single_elements(void **state)
{
    (void)state;
    for (int sealed = 0; sealed < 3; sealed++) {
        begin(2);
        add_compass(sealed);
        struct reply r = ask(&c, "VEMB k west RAW");
        assert_true(r.n == 3 && reply_is(&r.items[0], "f32") && r.items[1].bytes == 8);
        float numbers[2];
        memcpy(numbers, r.items[1].text, 8);
        assert_true(fabsf(numbers[0] + 1) < 1e-6f && fabsf(numbers[1]) < 1e-6f);
        reply_free(&r);
        r = ask(&c, "VLINKS k east WITHSCORES");
        assert_int_equal(r.n, 1);
        for (size_t i = 0; i < r.items[0].n; i += 2)
            assert_false(reply_is(&r.items[0].items[i], "east"));
        reply_free(&r);
        r = ask(&c, "VRANDMEMBER k 5");
        assert_int_equal(r.n, 3);
        reply_free(&r);
        r = ask(&c, "VRANDMEMBER k -50");
        assert_int_equal(r.n, 50);
        reply_free(&r);
    }
}

static void check_range(const char *words, const char *names)
{
    char seen[128] = "";
    struct reply r = ask(&c, words);
    assert_int_equal(r.type, '*');
    for (size_t i = 0; i < r.n; i++) {
        strcat(seen, i ? " " : "");
        strcat(seen, r.items[i].text);
    }
    if (strcmp(seen, names) != 0)
        fail_msg("%s gives '%s', not '%s'", words, seen, names);
    reply_free(&r);
}

static void test_ranges(void **state)
{
    (void)state;
    for (int sealed = 0; sealed < 3; sealed++) {
        begin(2);
        add_compass(sealed);
        check_range("VRANGE k - +", "east north west");
        check_range("VRANGE k [north +", "north west");
        check_range("VRANGE k (north +", "west");
        check_range("VRANGE k - [north", "east north");
        check_range("VRANGE k - (north", "east");
        check_range("VRANGE k [f [o", "north");
        check_range("VRANGE k - + 2", "east north");
        check_range("VRANGE k - + 0", "");
        check_range("VRANGE k - + -1", "east north west");
        check_range("VRANGE k [x [a", "");
        check_range("VRANGE nokey - +", "");
        expect_error(&c, "VRANGE k north +", "ERR an end of the range");
        expect_error(&c, "VRANGE k - north", "ERR an end of the range");
        expect_error(&c, "VRANGE nokey north +", "ERR an end of the range");
        expect_error(&c, "VRANGE nokey - north 5", "ERR an end of the range");
        expect_error(&c, "VRANGE k - + x", "ERR syntax error");
        expect_integer(&c, "VREM k north", 1);
        check_range("VRANGE k - +", "east west");
    }
}

/* ---- VCREATE ----------------------------------------------------------------------------------------------------- */

static void check_created(const char *type, const char *metric, const char *index)
{
    static const double rows[][4] = {{10, 0, 3, 1}, {0, 9, 1, 4}, {7, 7, 0, 2}, {1, 2, 8, 8}};
    bool whole = type[0] == 'i' || type[0] == 'u';
    char words[128];
    begin(2);
    snprintf(words, sizeof words, "VCREATE k DIM 4 TYPE %s METRIC %s INDEX %s MEMORY 100000000", type, metric, index);
    expect_text(&c, words, "OK");
    expect_text(&c, "TYPE k", "vectorset");
    expect_integer(&c, "VCARD k", 0);
    expect_integer(&c, "VDIM k", 4);
    expect_field("k", "vector-type", type, 0);
    expect_field("k", "metric", metric, 0);
    expect_field("k", "index", index[0] == 'a' ? "pagegraph" : index, 0);
    expect_text(&c, "OBJECT ENCODING k", "raw");
    expect_field("k", "memory-budget", NULL, 100000000);
    struct reply r = ask(&c, "VSIM k VALUES 4 1 2 3 4");
    assert_true(r.type == '*' && r.n == 0);
    reply_free(&r);
    for (unsigned i = 0; i < 4; i++) {
        snprintf(words, sizeof words, "VADD k VALUES 4 %g %g %g %g %u", rows[i][0], rows[i][1], rows[i][2], rows[i][3],
                 i);
        expect_bool(words, 2, true);
        if (i == 1)
            expect_text(&c, "VSEAL k", "OK");
    }
    if (whole) {
        expect_error(&c, "VADD k VALUES 4 1 2 3 4.5 x", "ERR value 4, 4.5, is not a whole number of ");
        expect_error(&c, "VADD k VALUES 4 1 300 3 4 x", "ERR value 2, 300, is not a whole number of ");
    }
    for (unsigned sealed = 0; sealed < 2; sealed++) {
        for (unsigned i = 0; i < 4; i++) {
            snprintf(words, sizeof words, "VSIM k VALUES 4 %g %g %g %g TRUTH COUNT 4 WITHSCORES", rows[i][0],
                     rows[i][1], rows[i][2], rows[i][3]);
            r = ask(&c, words);
            assert_int_equal(r.n, 8);
            for (unsigned j = 0; j < 4; j++) {
                const double *a = rows[i], *b = rows[strtoul(r.items[2 * j].text, NULL, 10)];
                double dot = 0, aa = 0, bb = 0, dd = 0, score;
                for (unsigned d = 0; d < 4; d++) {
                    dot += a[d] * b[d];
                    aa += a[d] * a[d];
                    bb += b[d] * b[d];
                    dd += (a[d] - b[d]) * (a[d] - b[d]);
                }
                score = metric[0] == 'l' ? 1 / (1 + dd) : metric[0] == 'i' ? dot : (1 + dot / sqrt(aa * bb)) / 2;
                /* codes of 8 bits err in proportion to the lengths of both vectors, whatever their product */
                double allowed = metric[0] == 'i' ? 0.005 * (1 + sqrt(aa * bb)) : 0.02 * (1 + fabs(score));
                if (fabs(reply_number(&r.items[2 * j + 1]) - score) > allowed)
                    fail_msg("%s %s: score %g of row %s, should be %g", type, metric, reply_number(&r.items[2 * j + 1]),
                             r.items[2 * j].text, score);
            }
            reply_free(&r);
        }
        expect_text(&c, "VCOMPACT k", "OK");
    }
    r = ask(&c, "VCHECK k");
    assert_int_equal(reply_field(&r, "findings")->integer, 0);
    reply_free(&r);
}

static void test_types_and_metrics(void **state)
{
    static const char *const types[] = {"f32", "f16", "bf16", "i8", "u8"}, *const metrics[] = {"cosine", "l2", "ip"};
    static const char *const indexes[] = {"auto", "spann", "pagegraph"};
    (void)state;
    for (unsigned type = 0; type < 5; type++)
        for (unsigned metric = 0; metric < 3; metric++)
            check_created(types[type], metrics[metric], indexes[(type + metric) % 3]);
}

static void test_refused_creations(void **state)
{
    (void)state;
    begin(2);
    expect_error(&c, "VCREATE", "ERR wrong number of arguments for 'vcreate' command");
    expect_error(&c, "VCREATE k", "ERR ");
    expect_error(&c, "VCREATE k TYPE f32", "ERR VCREATE needs DIM and the number of dimensions");
    expect_error(&c, "VCREATE k DIM 0", "ERR invalid DIM: not a whole number from 1 to 65536");
    expect_error(&c, "VCREATE k DIM 65537", "ERR invalid DIM: not a whole number");
    expect_error(&c, "VCREATE k DIM 4 TYPE f64", "ERR TYPE is one of f32 f16 i8 u8 bf16");
    expect_error(&c, "VCREATE k DIM 4 METRIC hamming", "ERR METRIC is one of l2 cosine ip");
    expect_error(&c, "VCREATE k DIM 4 METRIC", "ERR METRIC is one of");
    expect_error(&c, "VCREATE k DIM 4 INDEX hnsw", "ERR INDEX is one of auto pagegraph spann");
    expect_error(&c, "VCREATE k DIM 4 INDEX spann BITS 8", "ERR 8 bits per dimension: codes in inverted lists have");
    expect_error(&c, "VCREATE k DIM 4 NOPE", "ERR syntax error at 'NOPE'");
    expect_integer(&c, "EXISTS k", 0);
    expect_text(&c, "VCREATE k DIM 4 SLOT f32 M 8 BITS 2", "OK");
    expect_error(&c, "VCREATE k DIM 4", "BUSYKEY ");
    expect_integer(&c, "DEL k", 1);
}

static void test_random_of_an_empty_set(void **state)
{
    (void)state;
    expect_text(&c, "VCREATE e DIM 4", "OK");
    struct reply r = ask(&c, "VRANDMEMBER e");
    assert_true(r.null);
    reply_free(&r);
    r = ask(&c, "VRANDMEMBER e -3");
    assert_int_equal(r.n, 0);
    reply_free(&r);
    r = ask(&c, "VRANDMEMBER e 3");
    assert_int_equal(r.n, 0);
    reply_free(&r);
    expect_integer(&c, "DEL e", 1);
}

/* One key is made and removed on several lanes while segments are exchanged: nobody waits for the other. */
static void test_sets_made_while_sealing(void **state)
{
    enum { WRITERS = 5, ROUNDS = 200 };
    static const char *const pairs[WRITERS][2] = {{"VCREATE k DIM 2", "DEL k"},
                                                  {"VADD k VALUES 2 1 2 a", "VREM k a"},
                                                  {"VCREATE k DIM 2", "DEL k"},
                                                  {"VADD k VALUES 2 1 2 a", "VREM k a"},
                                                  {"VADD s VALUES 2 1 2 b", "VSEAL s"}};
    struct test_server *s = support_server((const char *const[]){"lanes", "6", "segments-max", "1000", NULL});
    struct connection writers[WRITERS];
    (void)state;
    for (unsigned i = 0; i < WRITERS; i++) {
        struct resp_buffer out = {.protocol = 2};
        connect_to(&writers[i], s->port);
        for (unsigned round = 0; round < 2 * ROUNDS; round++)
            put_request(&out, pairs[i][round % 2]);
        send_bytes(&writers[i], out.data, out.bytes);
        resp_buffer_fini(&out);
    }
    for (unsigned i = 0; i < WRITERS; i++) {
        for (unsigned round = 0; round < 2 * ROUNDS; round++) {
            struct reply r = read_reply(&writers[i]);
            if (r.type == '-' && strncmp(r.text, "BUSYKEY", 7) != 0)
                fail_msg("%s: %s", pairs[i][round % 2], r.text);
            reply_free(&r);
        }
        disconnect(&writers[i]);
    }
    support_server_end(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_of_an_empty_set),
        cmocka_unit_test(test_sets_made_while_sealing),
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_what_the_first_add_fixes),
        cmocka_unit_test(test_links),
        cmocka_unit_test(test_reduce),
        cmocka_unit_test(test_refused_adds),
        cmocka_unit_test(test_long_names),
        cmocka_unit_test(test_other_types),
        cmocka_unit_test(test_removals),
        cmocka_unit_test(test_attributes),
        cmocka_unit_test(test_shapes_of_vsim),
        cmocka_unit_test(test_vmsim),
        cmocka_unit_test(test_single_elements),
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_types_and_metrics),
        cmocka_unit_test(test_refused_creations),
    };
    return cmocka_run_group_tests_name("vadd", tests, set_up, tear_down);
}
