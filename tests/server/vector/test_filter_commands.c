/*
 * test_filter_commands.c - FILTER over the wire: VSIM, VMSIM, VCOUNT and VDELWHERE against a model that knows what
 * every expression means, while elements are in memory, sealed, in both, replaced and merged, in both kinds of index.
 *
 * What expressions mean in full is the index's (tests/index/attribute/test_filter.c). Here it is that commands pass
 * them on whole, that errors are said as clients of Redis know them, and that a removal takes what matches and
 * nothing else.
 */
#include "tests/server/support_one_server.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { DIM = 4, MODEL = 240 };

static const char *const colours[] = {"red", "green", "blue"};

struct element {
    bool there, plain, tagged; /* plain: without attributes */
    unsigned n, colour;
    bool big;
};

static void speak(int protocol)
{
    struct reply r = ask(&c, protocol == 3 ? "HELLO 3" : "HELLO 2");
    reply_free(&r);
}

static void check_integer(struct reply r, long long value, const char *of)
{
    if (r.type != ':' || r.integer != value)
        fail_msg("%s: the reply is %c %lld '%s', not %lld", of, r.type, r.integer, r.text ? r.text : "", value);
    reply_free(&r);
}

/* ---- the model --------------------------------------------------------------------------------------------------- */

static void put(const char *key, struct element *model, unsigned first, unsigned end, unsigned step, unsigned shift)
{
    unsigned sent = 0;
    for (unsigned i = first; i < end; i += step, sent++) {
        struct element e = {.there = true,
                            .plain = i % 11 == 10,
                            .tagged = true,
                            .n = i + shift,
                            .colour = (i + shift) % 3,
                            .big = (i + shift) % 7 > 4};
        char attributes[160] = "";
        if (!e.plain)
            snprintf(attributes, sizeof attributes,
                     "{\\\"n\\\":%u,\\\"colour\\\":\\\"%s\\\",\\\"tags\\\":[\\\"t%u\\\",%u],\\\"big\\\":%s}", e.n,
                     colours[e.colour], e.n % 5, e.n % 4, e.big ? "true" : "false");
        send_line(&c, "VADD %s VALUES 4 %u %u %u 1 e%u NOQUANT SETATTR \"%s\"", key, i % 17, i % 5, i, i, attributes);
        model[i] = e;
    }
    while (sent-- > 0) {
        struct reply r = read_reply(&c);
        if (r.type != ':')
            fail_msg("VADD: %s", r.text);
        reply_free(&r);
    }
}

static bool is_red(struct element e)
{
    return e.colour == 0;
}

static bool is_small(struct element e)
{
    return e.n < 20;
}

static bool is_blue_and_big(struct element e)
{
    return e.colour == 2 && e.big;
}

static bool is_odd_or_big(struct element e)
{
    return e.n % 2 == 1 || e.big;
}

static bool is_listed(struct element e)
{
    return e.colour != 1;
}

/* As in Redis a text that is no number counts as 0 where it is compared with a number. */
static bool has_tag(struct element e)
{
    return e.tagged && (e.n % 5 == 3 || e.n % 4 == 0);
}

static bool is_far(struct element e)
{
    return (e.n + 1) * 2 >= 400;
}

static bool is_one(struct element e)
{
    return e.n == 77;
}

static bool never(struct element e)
{
    (void)e;
    return false;
}

static bool always(struct element e)
{
    (void)e;
    return true;
}

static const struct {
    const char *expression;
    bool (*matches)(struct element e);
} filters[] = {{".colour == 'red'", is_red},
               {".n < 20", is_small},
               {".colour == 'blue' and .big", is_blue_and_big},
               {".n % 2 == 1 || .big == true", is_odd_or_big},
               {".colour in ['red', 'blue']", is_listed},
               {"'t3' in .tags", has_tag},
               {"(.n + 1) * 2 >= 400", is_far},
               {".n == 77", is_one},
               {".absent == 1", never},
               {".n >= 0 and not (.n > 1000)", always}};
enum { FILTERS = sizeof filters / sizeof *filters };

static bool should(unsigned f, struct element e)
{
    return e.there && !e.plain && filters[f].matches(e);
}

static unsigned count(const struct element *model, unsigned f)
{
    unsigned n = 0;
    for (unsigned i = 0; i < MODEL; i++)
        n += should(f, model[i]);
    return n;
}

/* Names of elements that all match, without repetition, `wanted` of them. */
static void check_hits(const struct reply *r, const struct element *model, unsigned f, size_t wanted)
{
    bool seen[MODEL] = {false};
    if (r->type == '-')
        fail_msg("%s: %s", filters[f].expression, r->text);
    if (r->n != wanted)
        fail_msg("%s: %zu hits, not %zu", filters[f].expression, r->n, wanted);
    for (size_t i = 0; i < r->n; i++) {
        unsigned number = MODEL;
        assert_int_equal(sscanf(r->items[i].text, "e%u", &number), 1);
        if (number >= MODEL || seen[number] || !should(f, model[number]))
            fail_msg("%s: %s is among the hits", filters[f].expression, r->items[i].text);
        seen[number] = true;
    }
}

static void check_filter(const char *key, const struct element *model, unsigned f)
{
    const char *e = filters[f].expression;
    unsigned n = count(model, f);
    struct reply r = ask_line(&c, "VSIM %s VALUES 4 3 1 100 1 TRUTH COUNT %u FILTER \"%s\"", key, MODEL, e);
    check_hits(&r, model, f, n);
    struct reply same = ask_line(&c, "VSIM %s VALUES 4 3 1 100 1 COUNT %u FILTER \"%s\" FILTER-EF 0", key, MODEL, e);
    check_hits(&same, model, f, n); /* min(COUNT, matches), always */
    reply_free(&r);
    reply_free(&same);
    r = ask_line(&c, "VSIM %s VALUES 4 3 1 100 1 COUNT 5 FILTER \"%s\" EXPLAIN", key, e);
    assert_int_equal(r.n, 2);
    check_hits(&r.items[0], model, f, n < 5 ? n : 5);
    assert_true(reply_field(&r.items[1], "matches")->integer >= (long long)n || n == 0);
    assert_non_null(reply_field(&r.items[1], "reads-expected"));
    assert_non_null(reply_field(&r.items[1], "switched"));
    assert_true(!reply_is(reply_field(&r.items[1], "result"), "partial"));
    reply_free(&r);
    r = ask_line(&c, "VMSIM %s 2 VALUES 4 1 1 1 1 VALUES 4 9 1 50 1 COUNT 7 FILTER \"%s\"", key, e);
    assert_int_equal(r.n, 2);
    check_hits(&r.items[0], model, f, n < 7 ? n : 7);
    check_hits(&r.items[1], model, f, n < 7 ? n : 7);
    reply_free(&r);
    check_integer(ask_line(&c, "VCOUNT %s FILTER \"%s\"", key, e), n, e);
    check_integer(ask_line(&c, "VDELWHERE %s FILTER \"%s\" DRYRUN", key, e), n, e);
}

static void check_all(const char *key, const struct element *model)
{
    unsigned there = 0;
    for (unsigned i = 0; i < MODEL; i++)
        there += model[i].there;
    check_integer(ask_line(&c, "VCOUNT %s", key), there, key);
    check_integer(ask_line(&c, "VCARD %s", key), there, key);
    for (unsigned f = 0; f < FILTERS; f++)
        check_filter(key, model, f);
}

static void remove_matching(const char *key, struct element *model, unsigned f)
{
    unsigned n = count(model, f);
    check_integer(ask_line(&c, "VDELWHERE %s FILTER \"%s\"", key, filters[f].expression), n, filters[f].expression);
    for (unsigned i = 0; i < MODEL; i++)
        if (should(f, model[i]))
            model[i].there = false;
    check_integer(ask_line(&c, "VDELWHERE %s FILTER \"%s\"", key, filters[f].expression), 0, "again");
}

/* ---- states of a set --------------------------------------------------------------------------------------------- */

static void walk_states(const char *key)
{
    struct element model[MODEL] = {{0}};
    put(key, model, 0, 150, 1, 0);
    check_all(key, model);
    expect_text(&c, "VSEAL k", "OK");
    check_all(key, model);
    put(key, model, 100, MODEL, 1, 1); /* half of it replaces what is sealed */
    check_all(key, model);
    expect_text(&c, "VSEAL k", "OK");
    check_all(key, model);
    put(key, model, 0, MODEL, 6, 2);
    expect_integer(&c, "VSETATTR k e77 {\"n\":5,\"colour\":\"red\",\"tags\":[],\"big\":false}", 1);
    model[77] = (struct element){.there = true, .n = 5, .colour = 0};
    check_all(key, model);
    remove_matching(key, model, 2);
    check_all(key, model);
    remove_matching(key, model, 1);
    expect_text(&c, "VCOMPACT k", "OK");
    check_all(key, model);
    remove_matching(key, model, 9); /* all but those without attributes */
    check_all(key, model);
}

static void test_states_of_a_set(void **state)
{
    (void)state;
    speak(2);
    expect_text(&c, "FLUSHALL", "OK");
    expect_text(&c, "VCREATE k DIM 4 METRIC l2 SLOT f32", "OK");
    walk_states("k");
}

static void test_states_of_inverted_lists(void **state)
{
    (void)state;
    speak(2);
    expect_text(&c, "FLUSHALL", "OK");
    expect_text(&c, "VCREATE k DIM 4 METRIC l2 SLOT f32 INDEX spann", "OK");
    walk_states("k");
}

static void test_the_last_removal_takes_the_key(void **state)
{
    (void)state;
    speak(2);
    expect_text(&c, "FLUSHALL", "OK");
    for (int sealed = 0; sealed < 2; sealed++) {
        check_integer(ask_line(&c, "VADD k VALUES 2 1 0 a SETATTR \"{\\\"x\\\":1}\""), 1, "VADD");
        check_integer(ask_line(&c, "VADD k VALUES 2 0 1 b SETATTR \"{\\\"x\\\":2}\""), 1, "VADD");
        if (sealed)
            expect_text(&c, "VSEAL k", "OK");
        check_integer(ask_line(&c, "VDELWHERE k FILTER \".x == 1\""), 1, "one");
        expect_integer(&c, "EXISTS k", 1);
        check_integer(ask_line(&c, "VDELWHERE k FILTER \".x > 1\""), 1, "the last");
        expect_integer(&c, "EXISTS k", 0);
    }
    check_integer(ask_line(&c, "VDELWHERE k FILTER .x"), 0, "no key");
    check_integer(ask_line(&c, "VCOUNT k FILTER .x"), 0, "no key");
    check_integer(ask_line(&c, "VCOUNT k"), 0, "no key");
}

/* While one connection removes what is red, another puts elements anew as blue ones: those must stay. */
static void test_removal_beside_writers(void **state)
{
    enum { N = 1500 };
    struct connection other, third;
    (void)state;
    speak(2);
    expect_text(&c, "FLUSHALL", "OK");
    connect_to(&other, server->port);
    connect_to(&third, server->port);
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < N; i++)
            send_line(&c, "VADD k VALUES 2 %d 1 e%d SETATTR \"{\\\"c\\\":\\\"red\\\"}\"", i + 1, i);
        for (int i = 0; i < N; i++) {
            struct reply r = read_reply(&c);
            assert_int_equal(r.type, ':');
            reply_free(&r);
        }
        if (round % 2)
            expect_text(&c, "VSEAL k", "OK");
        send_line(&c, "VDELWHERE k FILTER \".c == 'red'\"");
        if (round == 3) /* segments change meanwhile */
            expect_text(&third, "VSEAL k", "OK");
        /* some are gone by then: VSETATTR finds them or not */
        for (int i = N - 2; i >= 0; i -= 3)
            send_line(&other, "VSETATTR k e%d \"{\\\"c\\\":\\\"green\\\"}\"", i);
        unsigned green = 0;
        for (int i = N - 1; i >= 0; i -= 3)
            send_line(&other, "VADD k VALUES 2 %d 2 e%d SETATTR \"{\\\"c\\\":\\\"blue\\\"}\"", i + 1, i);
        struct reply removed = read_reply(&c);
        assert_int_equal(removed.type, ':');
        reply_free(&removed);
        for (int i = N - 2; i >= 0; i -= 3) {
            struct reply r = read_reply(&other);
            assert_int_equal(r.type, ':');
            green += r.integer == 1;
            reply_free(&r);
        }
        unsigned blue = 0;
        for (int i = N - 1; i >= 0; i -= 3, blue++) {
            struct reply r = read_reply(&other);
            assert_int_equal(r.type, ':');
            reply_free(&r);
        }
        check_integer(ask_line(&c, "VCOUNT k FILTER \".c == 'blue'\""), blue, "blue");
        check_integer(ask_line(&c, "VCOUNT k FILTER \".c == 'green'\""), green, "green");
        check_integer(ask_line(&c, "VDELWHERE k FILTER \".c == 'red'\""), 0, "red");
        check_integer(ask_line(&c, "VCARD k"), blue + green, "all");
        expect_integer(&c, "DEL k", 1);
    }
    disconnect(&other);
    disconnect(&third);
}

/* ---- declared attributes ----------------------------------------------------------------------------------------- */

static void test_declared_attributes(void **state)
{
    (void)state;
    for (int protocol = 2; protocol <= 3; protocol++) {
        speak(protocol);
        expect_text(&c, "FLUSHALL", "OK");
        expect_text(&c, "VCREATE k DIM 2 ATTR at timestamp INDEXED ATTR price float TENANTS ATTR name string INDEXED",
                    "OK");
        struct reply r = ask(&c, "VINFO k");
        const struct reply *columns = reply_field(&r, "attributes");
        assert_int_equal(columns->n, 3);
        assert_int_equal(reply_field(&r, "tenants")->integer, 1);
        for (size_t i = 0; i < columns->n; i++) {
            const struct reply *column = &columns->items[i];
            bool is_price = reply_is(&column->items[0], "price"), is_at = reply_is(&column->items[0], "at");
            assert_int_equal(column->n, 3);
            assert_true(reply_is(&column->items[1], is_price ? "float" : is_at ? "timestamp" : "string"));
            assert_true(reply_is(&column->items[2], is_price ? "not-indexed" : "indexed"));
        }
        reply_free(&r);
    }
    speak(2);
    expect_text(&c, "FLUSHALL", "OK");
    expect_text(&c, "VCREATE k DIM 2 ATTR at timestamp INDEXED ATTR price float", "OK");
    expect_integer(&c, "VADD k VALUES 2 1 0 a SETATTR {\"at\":\"2026-11-22T10:00:00Z\",\"price\":2.5}", 1);
    expect_integer(&c, "VADD k VALUES 2 0 1 b SETATTR {\"at\":1700000000,\"price\":\"2.5\"}", 1);
    for (int sealed = 0; sealed < 2; sealed++) {
        if (sealed)
            expect_text(&c, "VSEAL k", "OK");
        check_integer(ask_line(&c, "VCOUNT k FILTER \".at >= '2026-01-01'\""), 1, "after");
        check_integer(ask_line(&c, "VCOUNT k FILTER \".at < '2026-01-01'\""), 1, "before");
        check_integer(ask_line(&c, "VCOUNT k FILTER \".price > 1\""), 1, "of another type counts as missing");
    }
    static const struct {
        const char *words, *message;
    } wrong[] = {{"VCREATE j DIM 2 ATTR", "ERR syntax error: ATTR needs a name and a type"},
                 {"VCREATE j DIM 2 ATTR x", "ERR the type of attribute x is one of integer float string bool list"},
                 {"VCREATE j DIM 2 ATTR x colour", "ERR the type of attribute x is one of integer float string bool"},
                 {"VCREATE j DIM 2 ATTR x float ATTR x float", "ERR column x is declared twice"},
                 {"VCREATE j DIM 2 ATTR x float INDEXED INDEXED", "ERR syntax error at 'INDEXED'"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        expect_error(&c, wrong[i].words, wrong[i].message);
    expect_integer(&c, "EXISTS j", 0);
}

/* ---- errors ------------------------------------------------------------------------------------------------------ */

static void test_errors(void **state)
{
    static const struct {
        const char *options, *message;
    } cases[] = {{"FILTER", "ERR syntax error: FILTER needs a value"},
                 {"FILTER (.a", "ERR syntax error in FILTER expression near "},
                 {"FILTER .a==", "ERR syntax error in FILTER expression near "},
                 {"FILTER \"\"", "ERR syntax error in FILTER expression near "},
                 {"FILTER .a COUNT 0", "ERR invalid COUNT: not a whole number"},
                 {"FILTER .a FILTER-EF", "ERR syntax error: FILTER-EF needs a value"},
                 {"FILTER .a FILTER-EF -1", "ERR invalid FILTER-EF: not a whole number from 0 to 4294967295"},
                 {"FILTER .a FILTER-EF x", "ERR invalid FILTER-EF: not a whole number from 0 to 4294967295"},
                 {"TENANT", "ERR syntax error: TENANT needs a value"},
                 {"TENANT \"\"", "ERR "}};
    (void)state;
    speak(2);
    expect_text(&c, "FLUSHALL", "OK");
    expect_integer(&c, "VADD k VALUES 2 1 0 a", 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        /* where there is no such key, too */
        check_error(ask_line(&c, "VSIM k ELE a %s", cases[i].options), cases[i].message);
        check_error(ask_line(&c, "VSIM none ELE a %s", cases[i].options), cases[i].message);
        check_error(ask_line(&c, "VMSIM k 1 ELE a %s", cases[i].options), cases[i].message);
    }
    static const char *const counts[] = {
        "VCOUNT k FILTER",      "VCOUNT k FOO",         "VCOUNT k FILTER (.a",     "VCOUNT none FILTER (",
        "VDELWHERE k TENANT a", "VDELWHERE k FILTER (", "VDELWHERE none FILTER (", "VDELWHERE k FILTER .a FOO",
        "VDELWHERE k DRYRUN x"};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        check_error(ask_line(&c, "%s", counts[i]), "ERR syntax error");
    check_error(ask_line(&c, "VDELWHERE k FILTER"), "ERR wrong number of arguments for 'vdelwhere' command");
    check_error(ask_line(&c, "VCOUNT"), "ERR wrong number of arguments for 'vcount' command");
    expect_text(&c, "SET s v", "OK");
    check_error(ask_line(&c, "VCOUNT s FILTER .a"), "WRONGTYPE");
    check_error(ask_line(&c, "VDELWHERE s FILTER .a"), "WRONGTYPE");
    check_error(ask_line(&c, "VSIM s ELE a FILTER .a"), "WRONGTYPE");
    expect_integer(&c, "VCARD k", 1);
    /* the last of several counts */
    struct reply r = ask_line(&c, "VSIM k ELE a FILTER .a FILTER \"not exists .a\"");
    assert_int_equal(r.n, 1);
    reply_free(&r);
}

static void test_transactions(void **state)
{
    (void)state;
    speak(2);
    expect_text(&c, "FLUSHALL", "OK");
    static const char *const refused[] = {"VCOUNT k", "VDELWHERE k FILTER .a", "VTENANTS k"};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        expect_text(&c, "MULTI", "OK");
        expect_error(&c, refused[i], "ERR Command not allowed inside a transaction");
        expect_error(&c, "EXEC", "EXECABORT");
    }
    expect_text(&c, "MULTI", "OK");
    expect_text(&c, "VADD k VALUES 2 1 0 a SETATTR {\"x\":1}", "QUEUED");
    expect_text(&c, "VSIM k VALUES 2 1 0 FILTER .x", "QUEUED");
    expect_text(&c, "VSIM k VALUES 2 1 0 FILTER (", "QUEUED");
    struct reply r = ask(&c, "EXEC");
    assert_int_equal(r.n, 3);
    assert_true(r.items[1].n == 1 && reply_is(&r.items[1].items[0], "a"));
    assert_int_equal(r.items[2].type, '-');
    reply_free(&r);
}

/* ---- what operators see ------------------------------------------------------------------------------------------ */

static void test_explain_and_slowlog(void **state)
{
    (void)state;
    for (int protocol = 2; protocol <= 3; protocol++) {
        struct element model[MODEL] = {{0}};
        speak(2);
        expect_text(&c, "FLUSHALL", "OK");
        put("k", model, 0, MODEL, 1, 0);
        speak(protocol);
        struct reply r = ask_line(&c, "VSIM k ELE e1 FILTER \".n < 20\" EXPLAIN");
        assert_true(reply_is(reply_field(&r.items[1], "plan"), quire_plan_name(QUIRE_PLAN_MEMORY)));
        assert_int_equal(reply_field(&r.items[1], "switched")->type, protocol == 3 ? '#' : ':');
        reply_free(&r);
        expect_text(&c, "VSEAL k", "OK");
        r = ask_line(&c, "VSIM k VALUES 4 1 1 1 1 FILTER \".absent == 3\" EXPLAIN");
        assert_int_equal(r.items[0].n, 0);
        assert_true(reply_is(reply_field(&r.items[1], "plan"), quire_plan_name(QUIRE_PLAN_EMPTY)));
        assert_int_equal(reply_field(&r.items[1], "matches")->integer, 0);
        assert_int_equal(reply_field(&r.items[1], "reads")->integer, 0);
        reply_free(&r);
        r = ask_line(&c, "VSIM k ELE e1 EXPLAIN");
        assert_true(reply_is(reply_field(&r.items[1], "plan"), "pagegraph")); /* as ever without a filter */
        reply_free(&r);
    }
    speak(2);
    expect_text(&c, "CONFIG SET slowlog-log-slower-than 0", "OK");
    struct reply r = ask_line(&c, "VSIM k VALUES 4 1 1 1 1 FILTER \".n < 20\"");
    assert_int_equal(r.n, 10);
    reply_free(&r);
    bool found = false;
    r = ask(&c, "SLOWLOG GET 10");
    for (size_t i = 0; i < r.n && !found; i++)
        for (size_t j = 0; j < r.items[i].n; j++)
            found |= r.items[i].items[j].text && strstr(r.items[i].items[j].text, " matches=") &&
                     strstr(r.items[i].items[j].text, "reads-expected=");
    reply_free(&r);
    assert_true(found);
    expect_text(&c, "CONFIG SET slowlog-log-slower-than 10000", "OK");
}

static void test_command_docs(void **state)
{
    static const char *const names[] = {"vcount", "vdelwhere", "vdroptenant", "vgetgrants",
                                        "vgrant", "vrevoke",   "vtenants"};
    (void)state;
    speak(2);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct reply r = ask_line(&c, "COMMAND DOCS %s", names[i]);
        assert_int_equal(r.n, 2);
        assert_non_null(reply_field(&r.items[1], "arguments"));
        assert_true(reply_is(reply_field(&r.items[1], "group"), "vector_set"));
        reply_free(&r);
    }
    struct reply r = ask(&c, "ACL CAT vectorset");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        bool found = false;
        for (size_t j = 0; j < r.n; j++)
            found |= reply_is(&r.items[j], names[i]);
        assert_true(found);
    }
    reply_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_states_of_a_set),
        cmocka_unit_test(test_states_of_inverted_lists),
        cmocka_unit_test(test_the_last_removal_takes_the_key),
        cmocka_unit_test(test_removal_beside_writers),
        cmocka_unit_test(test_declared_attributes),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_transactions),
        cmocka_unit_test(test_explain_and_slowlog),
        cmocka_unit_test(test_command_docs),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
