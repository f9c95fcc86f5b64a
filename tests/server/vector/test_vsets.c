/*
 * test_vsets.c - vector sets in every state they can be in, compared with a model: in memory, sealed, both with
 * tombstones between, merged; after restarts; thousands of tiny ones; under writers, seals and searches at once.
 *
 * An element's vector is a function of its number and version. Sets hold their numbers unchanged (NOQUANT, l2), so an
 * exact search must give just what a look at the model gives. Concurrency needs no threads here: requests are sent on
 * several connections before any reply is read, so that the server's lanes, worker and maintenance run against each
 * other while this side stays a plain sequence that can assert.
 */
#include "io/random.h"
#include "tests/sanitized.h"
#include "tests/server/support_one_server.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { DIM = 6, MODEL = 500 };

struct element {
    unsigned version; /* 0: none */
    unsigned attributes;
};

static const char *kind; /* of the sets that make() makes */

static void read_ok(struct connection *from, unsigned n)
{
    while (n-- > 0) {
        struct reply r = read_reply(from);
        if (r.type == '-')
            fail_msg("%s", r.text);
        reply_free(&r);
    }
}

/* ---- the model --------------------------------------------------------------------------------------------------- */

static void vector_of(unsigned i, unsigned version, float out[DIM])
{
    struct random random;
    random_init(&random, (uint64_t)i << 32 | version);
    for (unsigned d = 0; d < DIM; d++)
        out[d] = (float)((int)random_below(&random, 2001) - 1000) / 1000;
}

static double score_of(const float *query, unsigned i, unsigned version)
{
    float v[DIM];
    double dd = 0;
    vector_of(i, version, v);
    for (unsigned d = 0; d < DIM; d++)
        dd += ((double)query[d] - (double)v[d]) * ((double)query[d] - (double)v[d]);
    return 1 / (1 + dd);
}

static size_t put_numbers(char *words, size_t room, unsigned i, unsigned version)
{
    float v[DIM];
    size_t n = (size_t)snprintf(words, room, " VALUES %d", DIM);
    vector_of(i, version, v);
    for (unsigned d = 0; d < DIM; d++)
        n += (size_t)snprintf(words + n, room - n, " %.9g", (double)v[d]);
    return n;
}

static void make(const char *key)
{
    char words[96];
    snprintf(words, sizeof words, "VCREATE %s DIM %d METRIC l2 SLOT f32 INDEX %s", key, DIM, kind);
    expect_text(&c, words, "OK");
}

/* Each `step`-th of them gets a version; each third of those attributes, too. */
static void put(const char *key, struct element *model, unsigned first, unsigned end, unsigned step, unsigned version)
{
    char words[256];
    unsigned sent = 0;
    for (unsigned i = first; i < end; i += step, sent++) {
        size_t n = (size_t)snprintf(words, sizeof words, "VADD %s", key);
        n += put_numbers(words + n, sizeof words - n, i, version);
        n += (size_t)snprintf(words + n, sizeof words - n, " e%u", i);
        if (i % 3 == 0) {
            snprintf(words + n, sizeof words - n, " SETATTR {\"v\":%u}", version);
            model[i].attributes = version;
        }
        model[i].version = version;
        send_request(&c, words);
    }
    read_ok(&c, sent);
}

static void drop(const char *key, struct element *model, unsigned first, unsigned end, unsigned step)
{
    char words[64];
    for (unsigned i = first; i < end; i += step) {
        snprintf(words, sizeof words, "VREM %s e%u", key, i);
        send_request(&c, words);
    }
    for (unsigned i = first; i < end; i += step) {
        struct reply r = read_reply(&c);
        assert_int_equal(r.integer, model[i].version > 0);
        reply_free(&r);
        model[i] = (struct element){0, 0};
    }
}

static unsigned count(const struct element *model)
{
    unsigned n = 0;
    for (unsigned i = 0; i < MODEL; i++)
        n += model[i].version > 0;
    return n;
}

static unsigned number_of(const struct reply *name)
{
    unsigned i = MODEL;
    assert_non_null(name->text);
    assert_int_equal(sscanf(name->text, "e%u", &i), 1);
    assert_true(i < MODEL);
    return i;
}

static int greater_first(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

static void best_scores(const struct element *model, const float *query, double best[MODEL])
{
    for (unsigned i = 0; i < MODEL; i++)
        best[i] = model[i].version ? score_of(query, i, model[i].version) : -1;
    qsort(best, MODEL, sizeof *best, greater_first);
}

static void check_attributes(const struct reply *at, struct element e)
{
    char text[32];
    snprintf(text, sizeof text, "{\"v\":%u}", e.attributes);
    if (e.attributes ? !reply_is(at, text) : !at->null)
        fail_msg("attributes are %s, not of version %u", at->text ? at->text : "null", e.attributes);
}

/* A reply WITHSCORES in RESP2, of 2 things for each hit, or with WITHATTRIBS of 3. Returns how many of its places have
 * the score that the place should. */
static unsigned check_hits(const struct reply *r, unsigned things, const struct element *model, const float *query,
                           const double *best)
{
    bool seen[MODEL] = {false};
    unsigned right = 0;
    for (size_t at = 0; at < r->n; at += things) {
        unsigned i = number_of(&r->items[at]);
        double score = reply_number(&r->items[at + 1]);
        if (seen[i] || !model[i].version || fabs(score - score_of(query, i, model[i].version)) > 1e-4)
            fail_msg("element %u, version %u: seen %d, score %g", i, model[i].version, seen[i], score);
        seen[i] = true;
        if (things == 3)
            check_attributes(&r->items[at + 2], model[i]);
        right += fabs(score - best[at / things]) < 1e-4;
    }
    return right;
}

static void check_searches(const char *key, const struct element *model)
{
    unsigned found = 0, n = count(model), wanted = 0;
    for (unsigned q = 0; q < 20; q++) {
        float query[DIM];
        double best[MODEL];
        char words[256];
        vector_of(q, 1000000, query);
        best_scores(model, query, best);
        size_t length = (size_t)snprintf(words, sizeof words, "VSIM %s", key);
        length += put_numbers(words + length, sizeof words - length, q, 1000000);
        snprintf(words + length, sizeof words - length, " WITHSCORES TRUTH COUNT 1000");
        struct reply r = ask(&c, words);
        assert_int_equal(r.n, 2 * n);
        assert_int_equal(check_hits(&r, 2, model, query, best), n);
        reply_free(&r);
        snprintf(words + length, sizeof words - length, " WITHSCORES WITHATTRIBS");
        r = ask(&c, words);
        assert_int_equal(r.n, 3 * (n < 10 ? n : 10));
        found += check_hits(&r, 3, model, query, best);
        wanted += n < 10 ? n : 10;
        reply_free(&r);
    }
    assert_true(found >= wanted * 9 / 10);
}

static void check_element(const char *key, unsigned i, struct element e)
{
    char words[64];
    snprintf(words, sizeof words, "VISMEMBER %s e%u", key, i);
    expect_integer(&c, words, e.version > 0);
    snprintf(words, sizeof words, "VEMB %s e%u", key, i);
    struct reply r = ask(&c, words);
    if (e.version) {
        float v[DIM];
        vector_of(i, e.version, v);
        assert_int_equal(r.n, DIM);
        for (unsigned d = 0; d < DIM; d++)
            assert_true(fabs(reply_number(&r.items[d]) - (double)v[d]) < 1e-6);
    } else {
        assert_true(r.null);
    }
    reply_free(&r);
    snprintf(words, sizeof words, "VGETATTR %s e%u", key, i);
    r = ask(&c, words);
    check_attributes(&r, e);
    reply_free(&r);
}

/* Names of a reply: each living element once. */
static void check_names(const char *words, const struct element *model, bool sorted)
{
    bool seen[MODEL] = {false};
    struct reply r = ask(&c, words);
    assert_int_equal(r.n, count(model));
    for (size_t at = 0; at < r.n; at++) {
        unsigned i = number_of(&r.items[at]);
        assert_true(model[i].version && !seen[i]);
        seen[i] = true;
        assert_true(!sorted || at == 0 || strcmp(r.items[at - 1].text, r.items[at].text) < 0);
    }
    reply_free(&r);
}

static void check_all(const char *key, const struct element *model)
{
    char words[64];
    snprintf(words, sizeof words, "VCARD %s", key);
    expect_integer(&c, words, count(model));
    check_searches(key, model);
    for (unsigned i = 0; i < MODEL; i += 1 + i % 3)
        check_element(key, i, model[i]);
    snprintf(words, sizeof words, "VRANGE %s - +", key);
    check_names(words, model, true);
    snprintf(words, sizeof words, "VRANDMEMBER %s 1000", key);
    check_names(words, model, false);
    snprintf(words, sizeof words, "VRANDMEMBER %s -300", key);
    struct reply r = ask(&c, words);
    assert_int_equal(r.n, count(model) ? 300 : 0);
    for (size_t at = 0; at < r.n; at++)
        assert_true(model[number_of(&r.items[at])].version > 0);
    reply_free(&r);
    snprintf(words, sizeof words, "VCHECK %s", key);
    r = ask(&c, words);
    assert_int_equal(reply_field(&r, "findings")->integer, 0);
    reply_free(&r);
}

static void check_segments(const char *key, long long segments, long long memory_rows)
{
    char words[64];
    snprintf(words, sizeof words, "VINFO %s", key);
    struct reply r = ask(&c, words);
    assert_int_equal(reply_field(&r, "segments")->integer, segments);
    assert_int_equal(reply_field(&r, "memory-rows")->integer, memory_rows);
    reply_free(&r);
}

/* ---- states ------------------------------------------------------------------------------------------------------ */

static void test_states_of_a_set(void **state)
{
    struct element model[MODEL] = {{0, 0}};
    (void)state;
    make("k");
    put("k", model, 0, 200, 1, 1); /* in memory */
    check_all("k", model);
    drop("k", model, 0, 200, 7);
    check_all("k", model);
    restart();
    check_all("k", model);
    expect_text(&c, "VSEAL k", "OK"); /* sealed */
    check_segments("k", 1, 0);
    check_all("k", model);
    put("k", model, 150, 350, 1, 2); /* half of it replaces what is sealed */
    check_all("k", model);
    expect_text(&c, "VSEAL k", "OK");
    check_segments("k", 2, 0);
    check_all("k", model);
    put("k", model, 100, 450, 2, 3); /* memory over two segments, with dead rows in both */
    drop("k", model, 1, 400, 5);
    check_all("k", model);
    restart();
    check_all("k", model);
    expect_text(&c, "VCOMPACT k", "OK");
    check_segments("k", 1, 0);
    check_all("k", model);
    restart();
    check_all("k", model);
    for (unsigned i = 1; i < 11; i++)
        drop("k", model, i, MODEL, 11);
    check_all("k", model); /* most places of the segment are dead */
    drop("k", model, 0, MODEL, 1);
    expect_text(&c, "TYPE k", "none");
    restart();
    expect_text(&c, "TYPE k", "none");
}

/* Attributes of elements in segments: changed without their vectors, kept by VADD, also over restarts. */
static void test_attributes_of_sealed_elements(void **state)
{
    struct element model[MODEL] = {{0, 0}};
    char words[96];
    (void)state;
    make("k");
    put("k", model, 0, 120, 1, 1);
    expect_text(&c, "VSEAL k", "OK");
    for (unsigned i = 0; i < 120; i += 5) {
        snprintf(words, sizeof words, "VSETATTR k e%u {\"v\":%u}", i, i + 50);
        expect_integer(&c, words, 1);
        model[i].attributes = i + 50;
    }
    check_all("k", model);
    restart();
    check_all("k", model);
    put("k", model, 0, 120, 4, 2);
    check_all("k", model);
    expect_text(&c, "VSEAL k", "OK");
    restart();
    check_all("k", model);
}

/* ---- keys -------------------------------------------------------------------------------------------------------- */

static void expect_between(const char *words, long long least, long long most)
{
    struct reply r = ask(&c, words);
    if (r.type != ':' || r.integer < least || r.integer > most)
        fail_msg("%s: the reply is %c %lld, not from %lld to %lld", words, r.type, r.integer, least, most);
    reply_free(&r);
}

static void test_sets_as_keys(void **state)
{
    struct element a[MODEL] = {{0, 0}}, b[MODEL] = {{0, 0}};
    (void)state;
    make("a");
    make("b");
    put("a", a, 0, 50, 1, 1);
    put("b", b, 0, 60, 1, 2);
    expect_text(&c, "VSEAL b", "OK");
    expect_text(&c, "RENAME a c", "OK");
    restart();
    expect_integer(&c, "EXISTS a", 0);
    check_all("c", a);
    put("c", a, 20, 70, 1, 3);
    expect_text(&c, "RENAME c b", "OK"); /* over another set */
    check_all("b", a);
    restart();
    check_all("b", a);
    expect_integer(&c, "DBSIZE", 1);
    expect_integer(&c, "COPY b d", 1);
    check_all("d", a);
    expect_integer(&c, "DEL d", 1);
    expect_integer(&c, "EXPIRE b 1000", 1);
    put("b", a, 0, 10, 1, 4); /* a write keeps the end */
    expect_between("TTL b", 990, 1000);
    restart();
    expect_between("TTL b", 980, 1000);
    check_all("b", a);
    expect_integer(&c, "PERSIST b", 1);
    restart();
    expect_integer(&c, "TTL b", -1);
    expect_integer(&c, "PEXPIRE b 60", 1);
    usleep(150000);
    expect_integer(&c, "VCARD b", 0);
    restart();
    expect_integer(&c, "EXISTS b", 0);
    make("b");
    memset(b, 0, sizeof b);
    put("b", b, 0, 30, 1, 5);
    expect_text(&c, "VSEAL b", "OK");
    expect_integer(&c, "DEL b", 1);
    expect_integer(&c, "VCARD b", 0);
    restart();
    expect_integer(&c, "EXISTS b", 0);
    make("b");
    put("b", b, 0, 30, 1, 5);
    expect_text(&c, "VSEAL b", "OK");
    expect_text(&c, "FLUSHALL", "OK");
    expect_integer(&c, "DBSIZE", 0);
    restart();
    expect_integer(&c, "DBSIZE", 0);
    expect_integer(&c, "VADD b VALUES 2 1 2 x", 1);
    expect_text(&c, "SET b text", "OK"); /* a string takes its place */
    restart();
    expect_text(&c, "GET b", "text");
    char *segments = support_path(folder, "segments");
    unsigned left = 1;
    for (unsigned i = 0; i < 100 && left; i++, usleep(20000))
        left = support_count_entries(segments);
    assert_int_equal(left, 0); /* of the sets that are gone no file is */
    free(segments);
}

/* ---- thousands of tiny sets -------------------------------------------------------------------------------------- */

static uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void test_thousands_of_tiny_sets(void **state)
{
    enum { SETS = SANITIZED ? 500 : 5000, EACH = 10 };
    struct element model[MODEL] = {{0, 0}};
    char words[256];
    (void)state;
    long long before = info_number(&c, "used_memory");
    for (unsigned s = 0; s < SETS; s++) {
        for (unsigned i = 0; i < EACH; i++) {
            size_t n = (size_t)snprintf(words, sizeof words, "VADD tiny:%u", s);
            n += put_numbers(words + n, sizeof words - n, i, s + 1);
            snprintf(words + n, sizeof words - n, " e%u NOQUANT", i);
            send_request(&c, words);
        }
        if (s % 20 == 19)
            read_ok(&c, 20 * EACH);
    }
    expect_integer(&c, "DBSIZE", SETS);
    long long each = (info_number(&c, "used_memory") - before) / SETS;
    print_message("%lld bytes of memory for each set\n", each);
    if (!SANITIZED)
        assert_in_range(each, 1, 16 << 10);
    uint64_t began = now_ms();
    restart();
    print_message("%d sets are there again after %llu ms\n", SETS, (unsigned long long)(now_ms() - began));
    assert_in_range(now_ms() - began, 0, SANITIZED ? 60000 : 10000);
    expect_integer(&c, "DBSIZE", SETS);
    for (unsigned s = 0; s < SETS; s += SETS / 50) {
        snprintf(words, sizeof words, "VCARD tiny:%u", s);
        expect_integer(&c, words, EACH);
        snprintf(words, sizeof words, "VSIM tiny:%u ELE e3 COUNT 20", s);
        struct reply r = ask(&c, words);
        assert_int_equal(r.n, EACH);
        assert_true(reply_is(&r.items[0], "e3"));
        reply_free(&r);
    }
    make("other");
    put("other", model, 0, 100, 1, 1);
    check_all("other", model);
    expect_text(&c, "FLUSHALL", "OK");
    expect_integer(&c, "DBSIZE", 0);
}

/* ---- all at once ------------------------------------------------------------------------------------------------- */

enum { HOT = 40, WRITERS = 2, READERS = 2, VERSIONS = 3 };

/* VADD with the vector (10 x element, version, 0 ...), so that a result tells which version it is. */
static void send_version(struct connection *to, unsigned i, unsigned version)
{
    char words[128];
    snprintf(words, sizeof words, "VADD k VALUES %d %u %u 1 0 0 0 e%u", DIM, 10 * i, version, i);
    send_request(to, words);
}

/* Each element once, of a version between the two. */
static void check_versions(const struct reply *r, size_t n, unsigned least, unsigned most)
{
    bool seen[MODEL] = {false};
    if (r->type == '-')
        fail_msg("%s", r->text);
    assert_int_equal(r->n, 2 * n);
    for (size_t at = 0; at < r->n; at += 2) {
        const struct reply *v = &r->items[at + 1];
        unsigned i = number_of(&r->items[at]);
        assert_int_equal(v->n, DIM);
        unsigned version = (unsigned)reply_number(&v->items[1]);
        if (seen[i] || reply_number(&v->items[0]) != 10 * i || version < least || version > most)
            fail_msg("element %u: seen %d, version %u, not from %u to %u", i, seen[i], version, least, most);
        seen[i] = true;
    }
}

/* What a round's connections do: writers each their half of the elements, VERSIONS times; readers search all the time;
 * one seals, merges or looks. */
static void one_round(struct connection *writers, struct connection *readers, struct connection *keeper, unsigned round)
{
    static const char *const work[] = {"VSEAL k", "VSEAL k", "VCOMPACT k", "VCHECK k"};
    unsigned least = (round - 1) * VERSIONS, most = round * VERSIONS;
    send_request(keeper, work[round % 4]);
    for (unsigned v = 1; v <= VERSIONS; v++) {
        for (unsigned i = 0; i < HOT; i++)
            send_version(&writers[i % WRITERS], i, least + v);
        for (unsigned i = 0; i < READERS; i++) {
            send_request(&readers[i], "VSIM k VALUES 6 0 0 0 0 0 0 COUNT 1000 TRUTH WITHVECTORS");
            send_request(&readers[i], "VSIM k VALUES 6 200 1 0 0 0 0 COUNT 10 WITHVECTORS");
        }
        send_request(keeper, work[(round + v) % 4]);
    }
    for (unsigned i = 0; i < READERS; i++)
        for (unsigned v = 0; v < VERSIONS; v++) {
            struct reply r = read_reply(&readers[i]);
            check_versions(&r, HOT, least, most);
            reply_free(&r);
            r = read_reply(&readers[i]);
            check_versions(&r, 10, least, most);
            reply_free(&r);
        }
    for (unsigned i = 0; i < WRITERS; i++)
        for (unsigned n = 0; n < HOT / WRITERS * VERSIONS; n++) {
            struct reply r = read_reply(&writers[i]);
            if (r.type != ':' || r.integer != 0)
                fail_msg("round %u: a VADD answers %c %lld %s", round, r.type, r.integer, r.text ? r.text : "");
            reply_free(&r);
        }
    read_ok(keeper, 1 + VERSIONS);
}

static void write_and_search(const char *sync, unsigned rounds)
{
    struct connection writers[WRITERS], readers[READERS], keeper;
    stop();
    start_with(sync);
    expect_text(&c, "FLUSHALL", "OK");
    make("k");
    for (unsigned i = 0; i < HOT; i++)
        send_version(&c, i, 0);
    read_ok(&c, HOT);
    for (unsigned i = 0; i < WRITERS; i++)
        connect_to(&writers[i], server->port);
    for (unsigned i = 0; i < READERS; i++)
        connect_to(&readers[i], server->port);
    connect_to(&keeper, server->port);
    for (unsigned round = 1; round <= rounds; round++) {
        one_round(writers, readers, &keeper, round);
        expect_integer(&c, "VCARD k", HOT);
    }
    for (unsigned i = 0; i < WRITERS; i++)
        disconnect(&writers[i]);
    for (unsigned i = 0; i < READERS; i++)
        disconnect(&readers[i]);
    disconnect(&keeper);
    stop();
    start_with(sync);
    struct reply r = ask(&c, "VSIM k VALUES 6 0 0 0 0 0 0 COUNT 1000 TRUTH WITHVECTORS");
    check_versions(&r, HOT, rounds * VERSIONS, rounds * VERSIONS);
    reply_free(&r);
}

static void test_all_at_once_synced_every_second(void **state)
{
    (void)state;
    write_and_search("everysec", SANITIZED ? 10 : 60);
}

static void test_all_at_once_synced_always(void **state)
{
    (void)state;
    write_and_search("always", SANITIZED ? 3 : 15);
}

static void test_all_at_once_never_synced(void **state)
{
    (void)state;
    write_and_search("no", SANITIZED ? 3 : 15);
}

/* One element, removed and added by two clients against each other; in the end it is there or not, and counted so. */
static void test_one_element_comes_and_goes(void **state)
{
    struct connection a, b;
    long long added = 0, removed = 0;
    (void)state;
    expect_integer(&c, "VADD k VALUES 2 1 2 stays NOQUANT", 1);
    connect_to(&a, server->port);
    connect_to(&b, server->port);
    for (unsigned round = 0; round < 20; round++) {
        for (unsigned i = 0; i < 50; i++) {
            send_request(&a, "VADD k VALUES 2 2 1 x");
            send_request(&b, "VREM k x");
        }
        send_request(&c, round % 3 ? "VSEAL k" : "VCOMPACT k");
        for (unsigned i = 0; i < 50; i++) {
            struct reply r = read_reply(&a), s = read_reply(&b);
            assert_true(r.type == ':' && s.type == ':');
            added += r.integer;
            removed += s.integer;
            reply_free(&r);
            reply_free(&s);
        }
        read_ok(&c, 1);
        assert_true(added - removed == 0 || added - removed == 1);
        expect_integer(&c, "VCARD k", 1 + added - removed);
        expect_integer(&c, "VISMEMBER k x", added - removed);
    }
    disconnect(&a);
    disconnect(&b);
    restart();
    expect_integer(&c, "VCARD k", 1 + added - removed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_states_of_a_set, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_attributes_of_sealed_elements, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_sets_as_keys, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_thousands_of_tiny_sets, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_all_at_once_synced_every_second, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_all_at_once_synced_always, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_all_at_once_never_synced, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_one_element_comes_and_goes, set_up, tear_down),
    };
    kind = "pagegraph";
    int failed = cmocka_run_group_tests_name("vsets", tests, NULL, NULL);
    kind = "spann";
    return failed + cmocka_run_group_tests_name("vsets of inverted lists", tests, NULL, NULL);
}
