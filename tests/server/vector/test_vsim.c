/*
 * test_vsim.c - VSIM and the commands of single elements: answers compared with a look at every row, and every error.
 *
 * The three indexes hold the same rows under the three metrics, unchanged (slot f32), so TRUTH must give just what
 * brute force in double gives, and scores must agree to float precision. Both protocols must say the same.
 */
#include "tests/server/support_server.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const names[] = {"l2", "cosine", "ip"}; /* in the order of enum quire_metric */
static char *folder;
static struct test_server *server;
static struct connection c;

static int set_up(void **state)
{
    (void)state;
    folder = support_folder_make();
    for (int metric = 0; metric < 3; metric++)
        support_build(folder, names[metric], (enum quire_metric)metric);
    const char *const settings[] = {"import-dir", folder, NULL};
    server = support_server(settings);
    connect_to(&c, server->port);
    expect_text(&c, "VLOAD l2 l2", "OK");
    expect_text(&c, "VLOAD cosine cosine", "OK");
    expect_text(&c, "VLOAD ip ip", "OK");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    disconnect(&c);
    support_server_end(server);
    support_folder_remove(folder);
    return 0;
}

static void speak(int protocol)
{
    struct reply r = ask(&c, protocol == 3 ? "HELLO 3" : "HELLO 2");
    reply_free(&r);
}

/* A query between two rows. */
static void fill_query(unsigned i, float query[SUPPORT_DIM])
{
    const float *a = support_vectors() + (size_t)(i * 37 % SUPPORT_ROWS) * SUPPORT_DIM;
    const float *b = support_vectors() + (size_t)((i * 37 + 12) % SUPPORT_ROWS) * SUPPORT_DIM;
    for (unsigned d = 0; d < SUPPORT_DIM; d++)
        query[d] = 0.7f * a[d] + 0.3f * b[d];
}

/* "VSIM <key> FP32 <query>" and the words of the options. */
static void send_blob_search(const char *key, const float *query, const char *options)
{
    struct resp_buffer out = {.protocol = 2}, tail = {.protocol = 2};
    put_request(&tail, options);
    const char *behind_count = (const char *)memchr(tail.data, '\n', tail.bytes) + 1;
    resp_array(&out, 4 + (size_t)strtoul((const char *)tail.data + 1, NULL, 10));
    resp_text(&out, "VSIM");
    resp_text(&out, key);
    resp_text(&out, "FP32");
    resp_bulk(&out, query, SUPPORT_DIM * sizeof(float));
    resp_raw(&out, behind_count, tail.bytes - (size_t)(behind_count - (const char *)tail.data));
    send_bytes(&c, out.data, out.bytes);
    resp_buffer_fini(&out);
    resp_buffer_fini(&tail);
}

static void put_values(char *words, size_t room, const char *key, const float *query, const char *options)
{
    size_t n = (size_t)snprintf(words, room, "VSIM %s VALUES %d", key, SUPPORT_DIM);
    for (unsigned d = 0; d < SUPPORT_DIM; d++)
        n += (size_t)snprintf(words + n, room - n, " %.9g", (double)query[d]);
    snprintf(words + n, room - n, " %s", options);
}

static uint32_t row_of(const struct reply *element)
{
    char *end;
    assert_non_null(element->text);
    unsigned long row = strtoul(element->text, &end, 10);
    assert_true(*end == 0 && element->bytes > 0 && row < SUPPORT_ROWS);
    return (uint32_t)row;
}

static bool near(double a, double b)
{
    return fabs(a - b) <= 2e-5 * (1 + fabs(b));
}

enum order { EXACT, FALLING, ANY };

/* A reply WITHSCORES: n elements, scores right; exact: the best there are; falling: each at most the one before. */
static void check_scores(const struct reply *r, enum quire_metric metric, const float *query, size_t n,
                         enum order order, int protocol)
{
    double best[SUPPORT_ROWS];
    bool seen[SUPPORT_ROWS] = {false};
    support_best_scores(metric, query, best);
    assert_int_equal(r->type, protocol == 3 ? '%' : '*');
    assert_int_equal(r->n, 2 * n);
    for (size_t i = 0; i < n; i++) {
        uint32_t row = row_of(&r->items[2 * i]);
        const struct reply *item = &r->items[2 * i + 1];
        assert_int_equal(item->type, protocol == 3 ? ',' : '$');
        double score = reply_number(item), right = support_score(metric, query, row);
        assert_false(seen[row]);
        seen[row] = true;
        if (!near(score, right) || (order == EXACT && !near(score, best[i])))
            fail_msg("%s, place %zu: element %u has score %.9g, should have %.9g; the place has %.9g", names[metric], i,
                     row, score, right, best[i]);
        if (i > 0 && order != ANY)
            assert_true(score <= reply_number(&r->items[2 * i - 1]));
    }
}

static void test_truth_against_brute_force(void **state)
{
    (void)state;
    float query[SUPPORT_DIM];
    char words[1024];
    for (int protocol = 2; protocol <= 3; protocol++) {
        speak(protocol);
        for (int metric = 0; metric < 3; metric++)
            for (unsigned i = 0; i < 10; i++) {
                fill_query(i, query);
                send_blob_search(names[metric], query, "WITHSCORES COUNT 20 TRUTH");
                struct reply r = read_reply(&c);
                check_scores(&r, (enum quire_metric)metric, query, 20, EXACT, protocol);
                put_values(words, sizeof words, names[metric], query, "truth count 20 withscores nothread");
                struct reply again = ask(&c, words);
                assert_int_equal(again.n, r.n);
                for (size_t j = 0; j < r.n; j += 2)
                    assert_string_equal(again.items[j].text, r.items[j].text);
                reply_free(&r);
                reply_free(&again);
            }
    }
}

static void test_graph_search(void **state)
{
    (void)state;
    static const char *const efforts[] = {"", "EF 200", "RECALL 0.99", "EF 1 MAXREADS 1"};
    float query[SUPPORT_DIM];
    char options[64];
    speak(2);
    for (int metric = 0; metric < 3; metric++)
        for (size_t way = 0; way < sizeof efforts / sizeof *efforts; way++) {
            unsigned right = 0;
            for (unsigned i = 0; i < 20; i++) {
                double best[SUPPORT_ROWS];
                fill_query(i, query);
                support_best_scores((enum quire_metric)metric, query, best);
                snprintf(options, sizeof options, "WITHSCORES %s", efforts[way]);
                send_blob_search(names[metric], query, options);
                struct reply r = read_reply(&c);
                size_t n = r.n / 2;
                assert_true(n >= 1 && n <= 10 && (n == 10 || way == 3));
                check_scores(&r, (enum quire_metric)metric, query, n, FALLING, 2);
                for (size_t j = 0; j < n; j++)
                    right += reply_number(&r.items[2 * j + 1]) >= best[9] - 1e-5;
                reply_free(&r);
            }
            if (way < 3)
                assert_true(right >= 180);
        }
}

static void test_element_as_query(void **state)
{
    (void)state;
    char words[64];
    for (int protocol = 2; protocol <= 3; protocol++) {
        speak(protocol);
        for (int metric = 0; metric < 2; metric++)
            for (uint32_t row = 0; row < SUPPORT_ROWS; row += 97) {
                snprintf(words, sizeof words, "VSIM %s ELE %u COUNT 5 TRUTH WITHSCORES", names[metric], row);
                struct reply r = ask(&c, words);
                check_scores(&r, (enum quire_metric)metric, support_vectors() + (size_t)row * SUPPORT_DIM, 5, EXACT,
                             protocol);
                assert_int_equal(row_of(&r.items[0]), row);
                assert_true(near(reply_number(&r.items[1]), 1));
                reply_free(&r);
            }
    }
}

static void test_counts(void **state)
{
    (void)state;
    speak(2);
    struct reply r = ask(&c, "VSIM l2 ELE 1");
    assert_int_equal(r.n, 10);
    reply_free(&r);
    r = ask(&c, "VSIM l2 ELE 1 COUNT 1");
    assert_int_equal(r.n, 1);
    reply_free(&r);
    r = ask(&c, "VSIM l2 ELE 1 COUNT 100000 TRUTH WITHSCORES");
    check_scores(&r, QUIRE_METRIC_L2, support_vectors() + SUPPORT_DIM, SUPPORT_ROWS, EXACT, 2);
    reply_free(&r);
    r = ask(&c, "VSIM l2 ELE 1 COUNT 3 COUNT 4");
    assert_int_equal(r.n, 4);
    reply_free(&r);
}

static void test_epsilon(void **state)
{
    (void)state;
    double best[SUPPORT_ROWS];
    char words[96];
    for (int metric = 0; metric < 2; metric++) {
        support_best_scores((enum quire_metric)metric, support_vectors(), best);
        for (unsigned n = 1; n < 100; n += 17) {
            if (best[n - 1] - best[n] < 1e-4)
                continue;
            snprintf(words, sizeof words, "VSIM %s ELE 0 COUNT 600 TRUTH EPSILON %.9g", names[metric],
                     1 - (best[n - 1] + best[n]) / 2);
            struct reply r = ask(&c, words);
            assert_int_equal(r.n, n);
            reply_free(&r);
        }
    }
    struct reply r = ask(&c, "VSIM l2 ELE 0 COUNT 600 TRUTH EPSILON 1");
    assert_int_equal(r.n, SUPPORT_ROWS);
    reply_free(&r);
}

static void test_explain(void **state)
{
    (void)state;
    for (int protocol = 2; protocol <= 3; protocol++) {
        speak(protocol);
        struct reply r = ask(&c, "VSIM l2 ELE 3 COUNT 4 EXPLAIN WITHSCORES TRUTH");
        assert_true(r.type == '*' && r.n == 2);
        assert_int_equal(r.items[0].n, 8);
        assert_int_equal(r.items[1].type, protocol == 3 ? '%' : '*');
        assert_true(reply_is(reply_field(&r.items[1], "plan"), "scan"));
        assert_true(reply_is(reply_field(&r.items[1], "result"), "exact"));
        assert_int_equal(reply_field(&r.items[1], "rows-scored")->integer, SUPPORT_ROWS);
        assert_true(reply_field(&r.items[1], "reads")->integer > 1);
        reply_free(&r);
        r = ask(&c, "VSIM l2 ELE 3 EXPLAIN EF 33");
        assert_int_equal(r.items[0].n, 10);
        assert_true(reply_is(reply_field(&r.items[1], "plan"), "pagegraph"));
        assert_true(reply_is(reply_field(&r.items[1], "result"), "complete"));
        assert_true(reply_field(&r.items[1], "effort")->integer >= 33);
        reply_free(&r);
        r = ask(&c, "VSIM l2 ELE 3 EXPLAIN EF 100 COUNT 100 MAXREADS 1");
        assert_true(reply_is(reply_field(&r.items[1], "result"), "partial"));
        reply_free(&r);
    }
}

/* ---- errors ------------------------------------------------------------------------------------------------------ */

static void test_wrong_targets(void **state)
{
    (void)state;
    speak(2);
    expect_error(&c, "VSIM l2 ELE", "ERR wrong number of arguments for 'vsim' command");
    expect_error(&c, "VSIM l2 FOO x", "ERR invalid vector specification");
    expect_error(&c, "VSIM l2 VALUES 0", "ERR invalid vector specification");
    expect_error(&c, "VSIM l2 VALUES -1 1", "ERR invalid vector specification");
    expect_error(&c, "VSIM l2 VALUES x 1", "ERR invalid vector specification");
    expect_error(&c, "VSIM l2 VALUES 3 1 2", "ERR invalid vector specification");
    expect_error(&c, "VSIM l2 VALUES 4294967297 1", "ERR invalid vector specification");
    expect_error(&c, "VSIM l2 VALUES 65537 1", "ERR invalid vector specification");
    expect_error(&c, "VSIM l2 VALUES 2 1 2", "ERR Vector dimension mismatch - got 2 but set has 16");
    expect_error(&c, "VSIM l2 FP32 abc", "ERR invalid vector specification");
    expect_error(&c, "VSIM l2 FP32 abcd", "ERR Vector dimension mismatch - got 1 but set has 16");
    expect_error(&c, "VSIM l2 ELE nosuch", "ERR element not found in set");
    expect_error(&c, "VSIM l2 ELE 600", "ERR element not found in set");
    expect_error(&c, "VSIM l2 VALUES 16 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 y",
                 "ERR invalid vector specification: value 16, 'y', is not a number");
    send_literal(&c, "VSIM l2 ELE \"\"\r\n");
    check_error(read_reply(&c), "ERR element not found in set");
    send_literal(&c, "*4\r\n$4\r\nVSIM\r\n$2\r\nl2\r\n$4\r\nFP32\r\n$0\r\n\r\n");
    check_error(read_reply(&c), "ERR invalid vector specification");
}

static void test_queries_that_are_no_vectors(void **state)
{
    (void)state;
    static const char *const values[] = {"nan", "inf", "-inf", "1e39"};
    char words[256];
    float query[SUPPORT_DIM] = {0};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        for (int metric = 0; metric < 3; metric++) {
            snprintf(words, sizeof words, "VSIM %s VALUES 16 1 2 3 %s 5 6 7 8 9 10 11 12 13 14 15 16", names[metric],
                     values[i]);
            expect_error(&c, words, "ERR ");
        }
    for (int metric = 0; metric < 3; metric++) { /* a zero vector is one */
        send_blob_search(names[metric], query, "COUNT 1");
        struct reply r = read_reply(&c);
        assert_int_equal(r.n, 1);
        reply_free(&r);
    }
    query[5] = NAN;
    send_blob_search("l2", query, "COUNT 1 TRUTH");
    check_error(read_reply(&c), "ERR ");
}

static void test_wrong_options(void **state)
{
    (void)state;
    static const struct {
        const char *options, *error;
    } cases[] = {
        {"COUNT", "ERR syntax error: COUNT needs a value"},
        {"COUNT 0", "ERR invalid COUNT: not a whole number from 1 to 4294967295"},
        {"COUNT -1", "ERR invalid COUNT: not a whole number"},
        {"count 4294967296", "ERR invalid COUNT: not a whole number"},
        {"COUNT x", "ERR invalid COUNT: not a whole number"},
        {"COUNT 1.5", "ERR invalid COUNT: not a whole number"},
        {"EF", "ERR syntax error: EF needs a value"},
        {"EF 0", "ERR invalid EF: not a whole number"},
        {"EF 1000001", "ERR invalid EF: not a whole number from 1 to 1000000"},
        {"MAXREADS 0", "ERR invalid MAXREADS: not a whole number"},
        {"MAXREADS 4294967296", "ERR invalid MAXREADS: not a whole number from 1 to 4294967295"},
        {"RECALL", "ERR syntax error: RECALL needs a value"},
        {"RECALL 0", "ERR invalid RECALL: not a number from 0.01 to 1"},
        {"RECALL 1.01", "ERR invalid RECALL: not a number"},
        {"RECALL nan", "ERR invalid RECALL: not a number"},
        {"RECALL x", "ERR invalid RECALL: not a number"},
        {"EPSILON", "ERR syntax error: EPSILON needs a value"},
        {"EPSILON -0.1", "ERR invalid EPSILON: not a number"},
        {"EPSILON nan", "ERR invalid EPSILON: not a number"},
        {"EPSILON inf", "ERR invalid EPSILON: not a number"},
        {"RECALL 0.9 EF 10", "ERR syntax error: RECALL and EF"},
        {"FILTER x", "ERR syntax error in FILTER expression near byte 0: expected a value"},
        {"FILTER-EF x", "ERR invalid FILTER-EF: not a whole number"},
        {"TENANT", "ERR syntax error: TENANT needs a value"},
        {"BOGUS", "ERR syntax error in VSIM command at 'BOGUS'"},
        {"WITHSCORES TRUTH BOGUS", "ERR syntax error in VSIM command at 'BOGUS'"},
        {"COUNT 5 6", "ERR syntax error in VSIM command at '6'"},
    };
    char words[128];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(words, sizeof words, "VSIM l2 ELE 1 %s", cases[i].options);
        expect_error(&c, words, cases[i].error);
    }
    expect_integer(&c, "VCARD l2", SUPPORT_ROWS);
}

/* ---- single elements --------------------------------------------------------------------------------------------- */

static void test_vemb(void **state)
{
    (void)state;
    const float *rows = support_vectors();
    for (int protocol = 2; protocol <= 3; protocol++) {
        speak(protocol);
        struct reply r = ask(&c, "VEMB l2 42");
        assert_int_equal(r.n, SUPPORT_DIM);
        for (unsigned d = 0; d < SUPPORT_DIM; d++)
            assert_true((float)reply_number(&r.items[d]) == rows[42 * SUPPORT_DIM + d]);
        reply_free(&r);
        r = ask(&c, "VEMB ip 42 raw");
        assert_int_equal(r.n, 3);
        assert_true(reply_is(&r.items[0], "f32"));
        assert_int_equal(r.items[1].bytes, SUPPORT_DIM * sizeof(float));
        assert_memory_equal(r.items[1].text, rows + (size_t)42 * SUPPORT_DIM, SUPPORT_DIM * sizeof(float));
        assert_true(reply_number(&r.items[2]) == 1);
        reply_free(&r);
        r = ask(&c, "VEMB cosine 42");
        double dot = 0, aa = 0, bb = 0;
        for (unsigned d = 0; d < SUPPORT_DIM; d++) {
            double a = reply_number(&r.items[d]), b = (double)rows[42 * SUPPORT_DIM + d];
            dot += a * b;
            aa += a * a;
            bb += b * b;
        }
        assert_true(fabs(dot / sqrt(aa * bb) - 1) < 1e-6);
        reply_free(&r);
    }
    speak(2);
    expect_error(&c, "VEMB l2 42 COOKED", "ERR syntax error: VEMB key element [RAW]");
    expect_error(&c, "VEMB l2 42 RAW RAW", "ERR syntax error: VEMB key element [RAW]");
}

static void test_vlinks(void **state)
{
    (void)state;
    unsigned linked = 0;
    for (int protocol = 2; protocol <= 3; protocol++) {
        speak(protocol);
        for (int metric = 0; metric < 3; metric++)
            for (uint32_t row = 0; row < SUPPORT_ROWS; row += 151) {
                char words[64];
                snprintf(words, sizeof words, "VLINKS %s %u WITHSCORES", names[metric], row);
                struct reply r = ask(&c, words);
                assert_int_equal(r.n, 1);
                const struct reply *layer = &r.items[0];
                assert_int_equal(layer->type, protocol == 3 ? '%' : '*');
                const float *query = support_vectors() + (size_t)row * SUPPORT_DIM;
                check_scores(layer, (enum quire_metric)metric, query, layer->n / 2, ANY, protocol);
                linked += layer->n > 0;
                snprintf(words, sizeof words, "VLINKS %s %u", names[metric], row);
                struct reply plain = ask(&c, words);
                assert_int_equal(plain.items[0].n, layer->n / 2);
                reply_free(&plain);
                reply_free(&r);
            }
    }
    assert_true(linked > 0);
    speak(2);
    expect_error(&c, "VLINKS l2 1 SCORES", "ERR syntax error: VLINKS key element [WITHSCORES]");
}

static void test_vismember(void **state)
{
    (void)state;
    static const char *const absent[] = {"VISMEMBER l2 600", "VISMEMBER l2 -1",         "VISMEMBER l2 01",
                                         "VISMEMBER l2 1x",  "VISMEMBER l2 4294967296", "VISMEMBER nokey 1"};
    speak(2);
    expect_integer(&c, "VISMEMBER l2 0", 1);
    expect_integer(&c, "VISMEMBER l2 599", 1);
    for (size_t i = 0; i < sizeof absent / sizeof *absent; i++)
        expect_integer(&c, absent[i], 0);
    send_literal(&c, "VISMEMBER l2 \"\"\r\n");
    struct reply r = read_reply(&c);
    assert_true(r.type == ':' && r.integer == 0);
    reply_free(&r);
    speak(3);
    r = ask(&c, "VISMEMBER l2 1");
    assert_true(r.type == '#' && r.integer == 1);
    reply_free(&r);
    speak(2);
}

static void check_random(const char *words, size_t n, bool distinct)
{
    bool seen[SUPPORT_ROWS] = {false};
    struct reply r = ask(&c, words);
    assert_int_equal(r.type, '*');
    assert_int_equal(r.n, n);
    for (size_t i = 0; i < n; i++) {
        uint32_t row = row_of(&r.items[i]);
        assert_false(distinct && seen[row]);
        seen[row] = true;
    }
    reply_free(&r);
}

static void test_vrandmember(void **state)
{
    (void)state;
    check_random("VRANDMEMBER l2 1", 1, true);
    check_random("VRANDMEMBER l2 40", 40, true);
    check_random("VRANDMEMBER l2 599", 599, true);
    check_random("VRANDMEMBER l2 600", 600, true);
    check_random("VRANDMEMBER l2 100000", 600, true);
    check_random("VRANDMEMBER l2 -1", 1, false);
    check_random("VRANDMEMBER l2 -2000", 2000, false);
    check_random("VRANDMEMBER l2 0", 0, true);
    struct reply a = ask(&c, "VRANDMEMBER l2"), b = ask(&c, "VRANDMEMBER l2 50"), d = ask(&c, "VRANDMEMBER l2 50");
    assert_int_equal(a.type, '$');
    row_of(&a);
    unsigned same = 0;
    for (size_t i = 0; i < 50; i++)
        same += strcmp(b.items[i].text, d.items[i].text) == 0;
    assert_true(same < 25);
    reply_free(&a);
    reply_free(&b);
    reply_free(&d);
    check_random("VRANDMEMBER l2 100001", 600, true); /* more than there are: all, whatever the count */
    check_random("VRANDMEMBER l2 9223372036854775807", 600, true);
    expect_error(&c, "VRANDMEMBER l2 x", "ERR count is not an integer");
    expect_error(&c, "VRANDMEMBER l2 9223372036854775808", "ERR count is not an integer");
    expect_error(&c, "VRANDMEMBER l2 -100001", "ERR one reply has at most 100000 elements");
    expect_error(&c, "VRANDMEMBER l2 -9223372036854775808", "ERR one reply has at most 100000 elements");
    expect_error(&c, "VRANDMEMBER l2 1 2", "ERR wrong number of arguments");
}

static void test_vinfo(void **state)
{
    (void)state;
    for (int protocol = 2; protocol <= 3; protocol++) {
        speak(protocol);
        struct reply r = ask(&c, "VINFO l2");
        assert_int_equal(r.type, protocol == 3 ? '%' : '*');
        assert_int_equal(r.n, 56);
        assert_int_equal(reply_field(&r, "size")->integer, SUPPORT_ROWS);
        assert_int_equal(reply_field(&r, "vector-dim")->integer, SUPPORT_DIM);
        assert_true(reply_is(reply_field(&r, "quant-type"), "f32"));
        assert_true(reply_is(reply_field(&r, "metric"), "l2"));
        assert_int_equal(reply_field(&r, "segments")->integer, 1);
        assert_int_equal(reply_field(&r, "segment-rows")->integer, SUPPORT_ROWS);
        assert_int_equal(reply_field(&r, "memory-rows")->integer, 0);
        assert_int_equal(reply_field(&r, "raw-bytes")->integer, SUPPORT_ROWS * SUPPORT_DIM * 4);
        assert_true(reply_field(&r, "disk-bytes")->integer > SUPPORT_ROWS * SUPPORT_DIM * 4);
        reply_free(&r);
    }
    speak(2);
    expect_integer(&c, "VDIM l2", SUPPORT_DIM);
}

static void test_missing_keys(void **state)
{
    (void)state;
    static const struct {
        const char *words;
        char type;
        bool null;
    } cases[] = {
        {"VSIM nokey ELE 1", '*', false},    {"VSIM nokey VALUES 1 2", '*', false},
        {"VEMB nokey 1", '*', true},         {"VEMB nokey 1 RAW", '*', true},
        {"VEMB l2 nosuch", '*', true},       {"VLINKS nokey 1", '$', true},
        {"VLINKS l2 nosuch", '$', true},     {"VRANDMEMBER nokey", '$', true},
        {"VRANDMEMBER nokey 3", '*', false}, {"VRANDMEMBER nokey -3", '*', false},
        {"VINFO nokey", '*', true},
    };
    for (int protocol = 2; protocol <= 3; protocol++) {
        speak(protocol);
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            struct reply r = ask(&c, cases[i].words);
            if (r.type != (protocol == 3 && cases[i].null ? '_' : cases[i].type) || r.null != cases[i].null || r.n)
                fail_msg("%s: %c, null %d, %zu items", cases[i].words, r.type, r.null, r.n);
            reply_free(&r);
        }
        expect_error(&c, "VDIM nokey", "ERR key does not exist");
        expect_integer(&c, "VCARD nokey", 0);
        expect_text(&c, "TYPE nokey", "none");
        expect_text(&c, "TYPE l2", "vectorset");
        expect_integer(&c, "EXISTS l2 nokey ip l2", 3);
        expect_integer(&c, "DEL nokey", 0);
        expect_integer(&c, "DBSIZE", 3);
    }
    speak(2);
}

/* The protocol changes from the HELLO on, also between replies that wait for the disk. */
static void test_protocol_changes_in_a_pipeline(void **state)
{
    (void)state;
    speak(2);
    send_request(&c, "VSIM l2 ELE 1 WITHSCORES");
    send_request(&c, "HELLO 3");
    send_request(&c, "VSIM l2 ELE 1 WITHSCORES");
    send_request(&c, "HELLO 2");
    send_request(&c, "VEMB l2 nosuch");
    static const char expected[] = "*%%**";
    for (size_t i = 0; i < 5; i++) {
        struct reply r = read_reply(&c);
        assert_int_equal(r.type, expected[i]);
        reply_free(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_truth_against_brute_force),
        cmocka_unit_test(test_graph_search),
        cmocka_unit_test(test_element_as_query),
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_epsilon),
        cmocka_unit_test(test_explain),
        cmocka_unit_test(test_wrong_targets),
        cmocka_unit_test(test_queries_that_are_no_vectors),
        cmocka_unit_test(test_wrong_options),
        cmocka_unit_test(test_vemb),
        cmocka_unit_test(test_vlinks),
        cmocka_unit_test(test_vismember),
        cmocka_unit_test(test_vrandmember),
        cmocka_unit_test(test_vinfo),
        cmocka_unit_test(test_missing_keys),
        cmocka_unit_test(test_protocol_changes_in_a_pipeline),
    };
    return cmocka_run_group_tests_name("vsim", tests, set_up, tear_down);
}
