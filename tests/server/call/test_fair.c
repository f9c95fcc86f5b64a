/*
 * test_fair.c - tenants and their shares: limits at both sides, floods, figures, and the setting tenant-limits.
 *
 * Requests that name no tenant count for their user, so users are the tenants here. Fairness is counted, not timed: how
 * many searches of the flood ended while another's were answered. One lane, so that both are in the same queue; TRUTH,
 * so that a search is long enough to have others behind it.
 */
#include "server/admin/metrics.h"
#include "server/call/fair_limits.h"
#include "tests/sanitized.h"
#include "tests/server/support_server.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { DEEP = 200, WAIT_MS = 20000 };

static char *folder;

#define START(...)                                                                                                     \
    support_server((const char *const[]){"lanes", "1", "import-dir", folder, "load", load_line, __VA_ARGS__ NULL})
static char load_line[512];

static int make_folder(void **state)
{
    (void)state;
    folder = support_folder_make();
    support_build(folder, "l2", QUIRE_METRIC_L2);
    char *path = support_path(folder, "l2");
    snprintf(load_line, sizeof load_line, "t %s", path);
    free(path);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    support_folder_remove(folder);
    return 0;
}

/* ---- users and figures ------------------------------------------------------------------------------------------- */

static void connect_as(struct connection *c, const struct test_server *s, const char *user)
{
    char words[128];
    connect_to(c, s->port);
    snprintf(words, sizeof words, "ACL SETUSER %s reset on nopass ~* +@all", user);
    expect_text(c, words, "OK");
    snprintf(words, sizeof words, "AUTH %s any", user);
    expect_text(c, words, "OK");
}

/* The line of a user or tenant ("user=acme") in INFO tenants, its field; -1: there is no such line. */
static long long figure(struct connection *c, const char *who, const char *field)
{
    struct reply reply = ask(c, "INFO tenants");
    char name[64];
    long long value = -1;
    assert_non_null(reply.text);
    snprintf(name, sizeof name, ":%s,", who);
    const char *line = strstr(reply.text, name);
    if (line) {
        snprintf(name, sizeof name, ",%s=", field);
        const char *found = strstr(line, name), *end = strchr(line, '\r');
        if (!found || found > end)
            fail_msg("%s has no %s in INFO tenants", who, field);
        value = strtoll(found + strlen(name), NULL, 10);
    }
    reply_free(&reply);
    return value;
}

static void put_search(struct resp_buffer *out, const char *key, const char *options)
{
    char words[256];
    snprintf(words, sizeof words, "VSIM %s ELE 7 %s", key, options);
    put_request(out, words);
}

static void send_searches(struct connection *c, unsigned n)
{
    struct resp_buffer out = {.protocol = 2};
    for (unsigned i = 0; i < n; i++)
        put_search(&out, "t", "COUNT 1 TRUTH");
    send_bytes(c, out.data, out.bytes);
    resp_buffer_fini(&out);
}

static void expect_hit(struct connection *c)
{
    struct reply reply = read_reply(c);
    if (reply.type != '*' || reply.n != 1)
        fail_msg("a search is answered by %c '%s'", reply.type, reply.text ? reply.text : "");
    reply_free(&reply);
}

static void expect_search(struct connection *c, const char *options, unsigned n)
{
    char words[256];
    snprintf(words, sizeof words, "VSIM t ELE 7 %s", options);
    struct reply reply = ask(c, words);
    if (reply.type != '*' || reply.n != n)
        fail_msg("%s: the reply is %c with %zu '%s'", words, reply.type, (size_t)reply.n, reply.text ? reply.text : "");
    reply_free(&reply);
}

/* An error that holds all of the words, up to a NULL. */
static void expect_refusal(struct reply reply, const char *const *words)
{
    if (reply.type != '-')
        fail_msg("not refused: %c '%s'", reply.type, reply.text ? reply.text : "");
    for (; *words; words++)
        if (!strstr(reply.text, *words))
            fail_msg("'%s' is not in \"%s\"", *words, reply.text);
    reply_free(&reply);
}
#define REFUSED(reply, ...) expect_refusal((reply), (const char *const[]){__VA_ARGS__, NULL})

static void set_limits(struct connection *c, const char *limits)
{
    struct resp_buffer out = {.protocol = 2};
    resp_array(&out, 4);
    resp_text(&out, "CONFIG");
    resp_text(&out, "SET");
    resp_text(&out, "tenant-limits");
    resp_text(&out, limits);
    send_bytes(c, out.data, out.bytes);
    resp_buffer_fini(&out);
}

static void expect_limits(struct connection *c, const char *limits)
{
    set_limits(c, limits);
    check_text(read_reply(c), "OK");
}

/* ---- the setting ------------------------------------------------------------------------------------------------- */

static void test_parse(void **state)
{
    (void)state;
    struct fair_limit_table *t;
    struct quire_error err;
    assert_int_equal(fair_limits_parse("", &t, &err), 0);
    const struct fair_limits *l = fair_limits_find(t, FAIR_TENANT, "acme", 4);
    assert_int_equal(l->weight, 1);
    assert_int_equal(l->rate + l->k + l->effort + l->filter_bytes + l->concurrent, 0);
    fair_limits_free(t);
    assert_int_equal(fair_limits_parse(" acme weight=4 rate=200  k=100 effort=500 filter-bytes=2048 concurrent=8;"
                                       "user:acme k=7;; \tx%20%3By%25 k=0 ; * rate=1000 k=50 ;",
                                       &t, &err),
                     0);
    l = fair_limits_find(t, FAIR_TENANT, "acme", 4);
    assert_int_equal(l->weight, 4);
    assert_int_equal(l->rate, 200);
    assert_int_equal(l->k, 100);
    assert_int_equal(l->effort, 500);
    assert_int_equal(l->filter_bytes, 2048);
    assert_int_equal(l->concurrent, 8);
    l = fair_limits_find(t, FAIR_USER, "acme", 4);
    assert_int_equal(l->k, 7);
    assert_int_equal(l->rate, 1000); /* of `*` */
    assert_int_equal(l->weight, 1);
    l = fair_limits_find(t, FAIR_TENANT, "x ;y%", 5);
    assert_int_equal(l->k, 0); /* none, whatever `*` says */
    assert_int_equal(l->rate, 1000);
    l = fair_limits_find(t, FAIR_TENANT, "acm", 3);
    assert_int_equal(l->k, 50);
    fair_limits_free(t);
}

static void test_parse_errors(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int code;
        const char *words[3];
    } cases[] = {{"acme", QUIRE_EINVALID, {"acme", "no limits"}},
                 {"acme rate", QUIRE_EINVALID, {"'rate'", "weight="}},
                 {"acme speed=4", QUIRE_EINVALID, {"speed=4", "concurrent="}},
                 {"acme rate=", QUIRE_EINVALID, {"'rate='", "whole number"}},
                 {"acme rate=1.5", QUIRE_EINVALID, {"rate=1.5", "whole number"}},
                 {"acme rate=-1", QUIRE_EINVALID, {"rate=-1", "whole number"}},
                 {"acme weight=0", QUIRE_ERANGE, {"weight=0", "1 to 1000"}},
                 {"acme weight=1001", QUIRE_ERANGE, {"weight=1001", "1 to 1000"}},
                 {"acme rate=1000001", QUIRE_ERANGE, {"1000001", "0 to 1000000", "0: no limit"}},
                 {"acme k=1000001", QUIRE_ERANGE, {"1000001", "0 to 1000000"}},
                 {"acme k=99999999999999999999999999", QUIRE_ERANGE, {"k is 0 to"}},
                 {"acme k=1 k=2", QUIRE_EEXISTS, {"k=", "twice", "acme"}},
                 {"acme k=1; acme rate=2", QUIRE_EEXISTS, {"acme", "twice"}},
                 {"* k=1; * k=2", QUIRE_EEXISTS, {"'*'", "twice"}},
                 {"a*b k=1", QUIRE_EINVALID, {"a*b", "%2A"}},
                 {"a%2 k=1", QUIRE_EINVALID, {"a%2", "%25"}},
                 {"a%zz k=1", QUIRE_EINVALID, {"a%zz"}},
                 {"group:a k=1", QUIRE_EINVALID, {"group:a", "user:NAME"}},
                 {"user: k=1", QUIRE_EINVALID, {"user:", "nobody"}},
                 {"k=1 acme", QUIRE_EINVALID, {"k=1"}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fair_limit_table *t = NULL;
        struct quire_error err = {0};
        if (fair_limits_parse(cases[i].text, &t, &err) != cases[i].code)
            fail_msg("%s: code %d, expected %d: %s", cases[i].text, err.code, cases[i].code, err.message);
        for (size_t w = 0; w < 3 && cases[i].words[w]; w++)
            if (!strstr(err.message, cases[i].words[w]))
                fail_msg("%s: '%s' is not in \"%s\"", cases[i].text, cases[i].words[w], err.message);
        assert_null(t);
    }
    char name[FAIR_NAME_BYTES_MAX + 16];
    struct fair_limit_table *t;
    struct quire_error err;
    memset(name, 'n', sizeof name);
    snprintf(name + FAIR_NAME_BYTES_MAX, 8, " k=1");
    assert_int_equal(fair_limits_parse(name, &t, &err), 0);
    fair_limits_free(t);
    snprintf(name + FAIR_NAME_BYTES_MAX, 8, "n k=1");
    assert_int_equal(fair_limits_parse(name, &t, &err), QUIRE_ERANGE);
}

static void test_config(void **state)
{
    (void)state;
    struct test_server *s = START();
    struct connection c;
    connect_to(&c, s->port);
    expect_limits(&c, "user:default k=5; * rate=100000");
    struct reply reply = ask(&c, "CONFIG GET tenant-limits");
    assert_int_equal(reply.n, 2);
    assert_string_equal(reply.items[1].text, "user:default k=5; * rate=100000");
    reply_free(&reply);
    expect_search(&c, "COUNT 5", 5);
    REFUSED(ask(&c, "VSIM t ELE 7 COUNT 6"), "user default", "5", "6", "COUNT", "k= in tenant-limits");
    /* what is wrong changes nothing */
    set_limits(&c, "user:default k=many");
    REFUSED(read_reply(&c), "CONFIG SET failed", "tenant-limits", "k=many", "whole number");
    REFUSED(ask(&c, "VSIM t ELE 7 COUNT 6"), "k=");
    expect_limits(&c, "");
    expect_search(&c, "COUNT 6", 6);
    disconnect(&c);
    support_server_end(s);
    struct quire_error err = {0};
    assert_int_equal(support_try_server(&s, &err, (const char *const[]){"tenant-limits", "acme k=x", NULL}),
                     QUIRE_EINVALID);
    assert_non_null(strstr(err.message, "k=x"));
    support_server_end(s);
}

static void test_rewrite(void **state)
{
    (void)state;
    static const char limits[] = "acme weight=4 rate=200; * k=10";
    char *path = support_path(folder, "quire.conf");
    struct config config;
    struct quire_error err = {0};
    struct config_refusal refusal;
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("port 0\n# shares\ntenant-limits \"* k=3\"\n", file);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(config_init(&config, &err), 0);
    assert_int_equal(config_parse(&config, 1, &path, &err), 0);
    assert_string_equal(config.tenant_limits, "* k=3");
    assert_int_equal(config_change(&config, &(struct config_change){"tenant-limits", limits}, 1, NULL, &refusal), 0);
    assert_int_equal(config_rewrite(&config, &err), 0);
    config_fini(&config);
    assert_int_equal(config_init(&config, &err), 0);
    assert_int_equal(config_parse(&config, 1, &path, &err), 0);
    assert_string_equal(config.tenant_limits, limits);
    config_fini(&config);
    free(path);
}

/* ---- limits ------------------------------------------------------------------------------------------------------ */

static void test_limits(void **state)
{
    (void)state;
    struct test_server *s = START("tenant-limits", "user:acme effort=50 k=20; user:other k=30", );
    struct connection acme, other;
    connect_as(&acme, s, "acme");
    connect_as(&other, s, "other");
    expect_search(&acme, "COUNT 20", 20);
    REFUSED(ask(&acme, "VSIM t ELE 7 COUNT 21"), "user acme", "20 results", "not 21");
    expect_search(&other, "COUNT 30", 30);
    expect_search(&acme, "COUNT 3 EF 50", 3);
    REFUSED(ask(&acme, "VSIM t ELE 7 COUNT 3 EF 51"), "user acme", "effort of 50", "not 51", "effort=");
    REFUSED(ask(&acme, "VSIM t ELE 7 COUNT 3 TRUTH"), "effort of 50", "TRUTH");
    expect_search(&acme, "COUNT 3 RECALL 0.95", 3);
    REFUSED(ask(&acme, "VSIM t ELE 7 COUNT 3 RECALL 0.96"), "effort of 50", "RECALL 0.96");
    expect_search(&other, "COUNT 3 TRUTH EF 5000", 3);
    /* many queries are refused as one command */
    REFUSED(ask(&acme, "VMSIM t 2 ELE 7 ELE 8 COUNT 21"), "20 results");
    struct reply reply = ask(&acme, "VMSIM t 2 ELE 7 ELE 8 COUNT 20");
    assert_int_equal(reply.n, 2);
    reply_free(&reply);
    assert_int_equal(figure(&other, "user=acme", "refused"), 5);
    assert_int_equal(figure(&other, "user=acme", "refused_k"), 2);
    assert_int_equal(figure(&other, "user=acme", "refused_effort"), 3);
    assert_int_equal(figure(&other, "user=acme", "queries"), 5);
    assert_int_equal(figure(&other, "user=other", "refused"), 0);
    disconnect(&acme);
    disconnect(&other);
    support_server_end(s);
}

#define ANY_VECTOR "VALUES 16 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0"

/* Of one tenant, by name or by the user's binding; of several it is the user's. */
static void test_tenants(void **state)
{
    (void)state;
    struct test_server *s = START("tenant-limits", "acme k=3 filter-bytes=5; user:bound k=7", );
    struct connection any, bound;
    struct reply reply;
    connect_as(&any, s, "any");
    connect_as(&bound, s, "bound");
    expect_text(&any, "ACL SETUSER bound tenant:acme tenant:other", "OK");
    reply = ask(&any, "VSIM t " ANY_VECTOR " COUNT 3 TENANT acme FILTER .a==1");
    assert_int_equal(reply.type, '*');
    assert_int_equal(reply.n, 0); /* nothing is granted to it */
    reply_free(&reply);
    REFUSED(ask(&any, "VSIM t " ANY_VECTOR " COUNT 4 TENANT acme"), "tenant acme", "3 results", "not 4");
    REFUSED(ask(&any, "VSIM t " ANY_VECTOR " COUNT 3 TENANT acme FILTER .a==12"), "tenant acme", "5 bytes", "not 6",
            "filter-bytes=");
    reply = ask(&any, "VSIM t " ANY_VECTOR " COUNT 10 TENANT acme TENANT other");
    assert_int_equal(reply.type, '*');
    reply_free(&reply);
    /* bound to two: its own limits; to one of them: that tenant's */
    REFUSED(ask(&bound, "VSIM t " ANY_VECTOR " COUNT 8"), "user bound", "7 results");
    REFUSED(ask(&bound, "VSIM t " ANY_VECTOR " COUNT 4 TENANT acme"), "tenant acme", "3 results");
    expect_text(&any, "ACL SETUSER bound resettenants tenant:acme", "OK");
    REFUSED(ask(&bound, "VSIM t " ANY_VECTOR " COUNT 4"), "tenant acme", "3 results");
    assert_int_equal(figure(&any, "name=acme", "queries"), 1);
    assert_int_equal(figure(&any, "name=acme", "refused_k"), 3);
    assert_int_equal(figure(&any, "name=acme", "refused_filter_bytes"), 1);
    assert_int_equal(figure(&any, "user=bound", "refused_k"), 1);
    assert_int_equal(figure(&any, "user=any", "queries"), 1);
    disconnect(&any);
    disconnect(&bound);
    support_server_end(s);
}

static void test_rate(void **state)
{
    (void)state;
    struct test_server *s = START("tenant-limits", "user:acme rate=4", );
    struct connection acme, other;
    connect_as(&acme, s, "acme");
    connect_as(&other, s, "other");
    /* a second's worth at once, then a quarter of a second each */
    for (unsigned i = 0; i < 4; i++)
        expect_search(&acme, "COUNT 1", 1);
    REFUSED(ask(&acme, "VSIM t ELE 7"), "user acme", "4 queries a second", "wait ", " ms", "rate=");
    for (unsigned i = 0; i < 50; i++)
        expect_search(&other, "COUNT 1", 1);
    REFUSED(ask(&acme, "VMSIM t 5 ELE 1 ELE 2 ELE 3 ELE 4 ELE 5"), "4 queries a second", "has 5", "split");
    usleep(300000);
    expect_search(&acme, "COUNT 1", 1);
    assert_int_equal(figure(&other, "user=acme", "refused_rate"), 2);
    disconnect(&acme);
    disconnect(&other);
    support_server_end(s);
}

/* A filter that is too long is refused for that, whatever stands in it, and whether there is a set or not; VCOUNT and
 * VDELWHERE have the same limits. */
static void test_filters(void **state)
{
    static const char *const commands[] = {"VSIM t ELE 7 FILTER ",    "VMSIM t 1 ELE 7 FILTER ",
                                           "VCOUNT t FILTER ",        "VDELWHERE t DRYRUN FILTER ",
                                           "VSIM none ELE 7 FILTER ", "VCOUNT none FILTER "};
    (void)state;
    struct test_server *s = START("tenant-limits", "user:acme filter-bytes=5; user:slow rate=2; acme filter-bytes=4", );
    struct connection acme, slow;
    connect_as(&acme, s, "acme");
    connect_as(&slow, s, "slow");
    for (unsigned i = 0; i < sizeof commands / sizeof *commands; i++) {
        char words[128];
        snprintf(words, sizeof words, "%s.a==((", commands[i]);
        REFUSED(ask(&acme, words), "user acme", "5 bytes", "not 6", "filter-bytes=");
        snprintf(words, sizeof words, "%s.a==(", commands[i]);
        REFUSED(ask(&acme, words), "syntax error in FILTER");
        snprintf(words, sizeof words, "%s.a==1 TENANT acme", commands[i]);
        REFUSED(ask(&acme, words), "tenant acme", "4 bytes", "not 5");
    }
    expect_integer(&acme, "VCOUNT t FILTER .a==1", 0);
    expect_integer(&acme, "VDELWHERE t FILTER .a==1", 0);
    assert_int_equal(figure(&acme, "user=acme", "refused_filter_bytes"), sizeof commands / sizeof *commands);
    expect_integer(&slow, "VCOUNT none", 0);
    expect_integer(&slow, "VDELWHERE t FILTER .a==1 DRYRUN", 0);
    REFUSED(ask(&slow, "VCOUNT t"), "user slow", "2 queries a second", "rate=");
    assert_int_equal(figure(&acme, "user=slow", "refused_rate"), 1);
    disconnect(&acme);
    disconnect(&slow);
    support_server_end(s);
}

/* Lookups of semantic caches count for their user, on the way that waits and on the one that does not. */
static void test_caches(void **state)
{
    static const char get[] = "SC.GET f CAT q HASH h";
    (void)state;
    struct test_server *s = START("tenant-limits", "user:acme rate=3 concurrent=1", );
    struct connection acme;
    char words[128];
    connect_as(&acme, s, "acme");
    expect_text(&acme, "SC.CREATE f DIM 4 ENCODER enc@1", "OK");
    expect_text(&acme, "SC.CAT.SET f q SIM 0.9 JITTER 0", "OK");
    for (unsigned i = 0; i < 3; i++) {
        snprintf(words, sizeof words, "%s%s", get, i == 1 ? " WAIT 1" : "");
        struct reply reply = ask(&acme, words);
        if (reply.type == '-')
            fail_msg("%s: %s", words, reply.text);
        reply_free(&reply);
    }
    REFUSED(ask(&acme, get), "user acme", "3 queries a second");
    assert_int_equal(figure(&acme, "user=acme", "refused_rate"), 1);
    assert_int_equal(figure(&acme, "user=acme", "refused_concurrent"), 0);
    disconnect(&acme);
    support_server_end(s);
}

static void test_concurrent(void **state)
{
    (void)state;
    struct test_server *s = START("lanes", "2", "tenant-limits", "user:acme concurrent=2", );
    struct connection acme, other;
    struct resp_buffer out = {.protocol = 2};
    connect_as(&acme, s, "acme");
    connect_as(&other, s, "other");
    /* those of one send are all begun before the first can end */
    for (unsigned i = 0; i < 3; i++)
        put_search(&out, "t", "COUNT 1 TRUTH");
    send_bytes(&acme, out.data, out.bytes);
    send_bytes(&other, out.data, out.bytes);
    expect_hit(&acme);
    expect_hit(&acme);
    REFUSED(read_reply(&acme), "user acme", "limit of 2 requests at once", "concurrent=");
    for (unsigned i = 0; i < 3; i++)
        expect_hit(&other);
    /* places come back, also those of requests that were refused or failed */
    for (unsigned i = 0; i < 5; i++) {
        expect_search(&acme, "COUNT 1", 1);
        expect_error(&acme, "VSIM t ELE nobody", "ERR element not found");
    }
    /* many queries of one command are one request */
    struct reply reply = ask(&acme, "VMSIM t 4 ELE 1 ELE 2 ELE 3 ELE 4 COUNT 2");
    assert_int_equal(reply.n, 4);
    reply_free(&reply);
    assert_int_equal(figure(&other, "user=acme", "refused_concurrent"), 1);
    resp_buffer_fini(&out);
    disconnect(&acme);
    disconnect(&other);
    support_server_end(s);
}

/* ---- floods ------------------------------------------------------------------------------------------------------ */

enum { FLOODERS = 5 };

static void start_flood(struct connection flood[FLOODERS], const struct test_server *s, const char *user)
{
    for (unsigned i = 0; i < FLOODERS; i++) {
        connect_as(&flood[i], s, user);
        send_searches(&flood[i], DEEP);
    }
}

/* While a thousand searches of one wait, another's are answered; and all get their replies. */
static void test_flood(void **state)
{
    (void)state;
    enum { CALM = 20 };
    struct test_server *s = START();
    struct connection flood[FLOODERS], calm, watch;
    connect_as(&calm, s, "calm");
    connect_to(&watch, s->port);
    start_flood(flood, s, "flood");
    while (figure(&watch, "user=flood", "queries") < 20)
        continue;
    for (unsigned i = 0; i < CALM; i++)
        expect_search(&calm, "COUNT 1 TRUTH", 1);
    assert_true(figure(&watch, "user=flood", "waiting") > 0);
    /* one in a pipeline of its own does not wait for the flood either */
    long long before = figure(&watch, "user=flood", "queries");
    send_searches(&calm, CALM);
    for (unsigned i = 0; i < CALM; i++)
        expect_hit(&calm);
    long long meanwhile = figure(&watch, "user=flood", "queries") - before;
    if (meanwhile >= CALM * 20)
        fail_msg("%lld searches of the flood ended during %d of another's, all sent at once", meanwhile, CALM);
    for (unsigned i = 0; i < FLOODERS; i++) {
        for (unsigned n = 0; n < DEEP; n++)
            expect_hit(&flood[i]);
        disconnect(&flood[i]);
    }
    assert_int_equal(figure(&watch, "user=flood", "queries"), FLOODERS * DEEP);
    assert_int_equal(figure(&watch, "user=flood", "waiting"), 0);
    assert_int_equal(figure(&watch, "user=calm", "queries"), 2 * CALM);
    long long calm_us = figure(&watch, "user=calm", "wait_p50_us"), us = figure(&watch, "user=flood", "wait_p50_us");
    if (calm_us * 5 > us)
        fail_msg("one waits %lld us for its turn, the flood %lld us", calm_us, us);
    disconnect(&calm);
    disconnect(&watch);
    support_server_end(s);
}

/* Two that both want everything share it by their weights. */
static void test_weights(void **state)
{
    (void)state;
    struct test_server *s = START("tenant-limits", "user:heavy weight=3", );
    struct connection heavy[FLOODERS], light[FLOODERS], watch;
    connect_to(&watch, s->port);
    for (unsigned i = 0; i < FLOODERS; i++) {
        connect_as(&light[i], s, "light");
        connect_as(&heavy[i], s, "heavy");
    }
    for (unsigned i = 0; i < FLOODERS; i++) {
        send_searches(&light[i], DEEP);
        send_searches(&heavy[i], DEEP);
    }
    long long begun_light = figure(&watch, "user=light", "queries"), begun = figure(&watch, "user=heavy", "queries");
    long long n_heavy, n_light;
    do {
        n_heavy = figure(&watch, "user=heavy", "queries") - begun;
        n_light = figure(&watch, "user=light", "queries") - begun_light;
    } while (n_heavy < 450);
    assert_int_equal(figure(&watch, "user=heavy", "weight"), 3);
    if (n_light * 3 < n_heavy / 2 || n_light * 3 > n_heavy * 2)
        fail_msg("%lld of the tenant with weight 3, %lld of that with 1", n_heavy, n_light);
    for (unsigned i = 0; i < FLOODERS; i++) {
        for (unsigned n = 0; n < DEEP; n++) {
            expect_hit(&heavy[i]);
            expect_hit(&light[i]);
        }
        disconnect(&heavy[i]);
        disconnect(&light[i]);
    }
    disconnect(&watch);
    support_server_end(s);
}

/* What clients wait for that are gone is not worked on. */
static void test_gone(void **state)
{
    (void)state;
    struct test_server *s = START();
    struct connection flood[FLOODERS], watch;
    connect_to(&watch, s->port);
    start_flood(flood, s, "flood");
    while (figure(&watch, "user=flood", "queries") < 5)
        continue;
    for (unsigned i = 0; i < FLOODERS; i++) {
        struct reply reply = ask(&watch, "CLIENT KILL USER flood");
        reply_free(&reply);
        disconnect(&flood[i]);
    }
    long long waiting, running;
    unsigned tries = 0;
    do {
        waiting = figure(&watch, "user=flood", "waiting");
        running = figure(&watch, "user=flood", "running");
        usleep(5000);
    } while (waiting + running > 0 && ++tries < WAIT_MS / 5);
    assert_int_equal(waiting + running, 0);
    assert_true(figure(&watch, "user=flood", "cancelled") > 0);
    expect_search(&watch, "COUNT 2", 2);
    disconnect(&watch);
    support_server_end(s);
}

/* A stop does not wait for what waits. */
static void test_stop(void **state)
{
    (void)state;
    struct test_server *s = START("shutdown-timeout", "0", );
    struct connection flood[FLOODERS];
    start_flood(flood, s, "flood");
    expect_hit(&flood[0]);
    support_server_end(s);
    for (unsigned i = 0; i < FLOODERS; i++)
        disconnect(&flood[i]);
}

/* Sets that are in memory only: a search computes from its begin to its end, and many of one make nobody wait. */
static void test_memory_only(void **state)
{
    (void)state;
    enum { ROWS = 3000, CALM = 10 };
    struct test_server *s = START();
    struct connection flood[FLOODERS], calm, watch;
    struct resp_buffer out = {.protocol = 2};
    char words[128];
    connect_as(&calm, s, "calm");
    connect_to(&watch, s->port);
    for (unsigned i = 0; i < ROWS; i++) {
        snprintf(words, sizeof words, "VADD m VALUES 4 %u %u %u 1 %u", i % 17, i % 31, i % 53, i);
        put_request(&out, words);
    }
    send_bytes(&calm, out.data, out.bytes);
    for (unsigned i = 0; i < ROWS; i++) {
        struct reply reply = read_reply(&calm);
        assert_int_equal(reply.type, ':');
        reply_free(&reply);
    }
    out.bytes = 0;
    for (unsigned i = 0; i < DEEP; i++)
        put_search(&out, "m", "COUNT 1 TRUTH");
    for (unsigned i = 0; i < FLOODERS; i++) {
        connect_as(&flood[i], s, "flood");
        send_bytes(&flood[i], out.data, out.bytes);
    }
    while (figure(&watch, "user=flood", "queries") < 5)
        continue;
    long long before = figure(&watch, "user=flood", "queries");
    for (unsigned i = 0; i < CALM; i++) {
        struct reply reply = ask(&calm, "VSIM m ELE 7 COUNT 1 TRUTH");
        assert_int_equal(reply.n, 1);
        reply_free(&reply);
    }
    long long meanwhile = figure(&watch, "user=flood", "queries") - before;
    if (meanwhile >= FLOODERS * DEEP / 2)
        fail_msg("%lld searches of the flood ended during %d of another's", meanwhile, CALM);
    for (unsigned i = 0; i < FLOODERS; i++) {
        for (unsigned n = 0; n < DEEP; n++)
            expect_hit(&flood[i]);
        disconnect(&flood[i]);
    }
    resp_buffer_fini(&out);
    disconnect(&calm);
    disconnect(&watch);
    support_server_end(s);
}

/* ---- figures ----------------------------------------------------------------------------------------------------- */

static void test_info(void **state)
{
    (void)state;
    struct test_server *s = START("lanes", "2", );
    struct connection a[4], b;
    for (unsigned i = 0; i < 4; i++) {
        connect_as(&a[i], s, "a,b=c"); /* on both lanes */
        for (unsigned n = 0; n < 5; n++)
            expect_search(&a[i], "COUNT 3", 3);
    }
    connect_as(&b, s, "b");
    expect_search(&b, "COUNT 3", 3);
    expect_error(&b, "VSIM t FP32 x", "ERR");
    struct reply reply = ask(&b, "INFO");
    assert_null(strstr(reply.text, "# Tenants"));
    reply_free(&reply);
    reply = ask(&b, "INFO tenants");
    assert_non_null(strstr(reply.text, "# Tenants"));
    assert_non_null(strstr(reply.text, "tenant0:user=a%2Cb%3Dc,weight=1,queries=20,running=0,waiting=0,"));
    assert_non_null(strstr(reply.text, "tenant1:user=b,weight=1,queries=1,"));
    reply_free(&reply);
    assert_int_equal(info_number(&b, "tenants"), 2);
    assert_int_equal(info_number(&b, "tenant_queries"), 21);
    assert_true(info_number(&b, "tenant_cost_us") >= info_number(&b, "tenant_cpu_us"));
    assert_in_range(info_number(&b, "searches_at_once"), 2 * 2, 2 * 32);
    assert_true(figure(&b, "user=b", "latency_p99_us") > 0);
    expect_text(&b, "CONFIG RESETSTAT", "OK");
    assert_int_equal(info_number(&b, "tenant_queries"), 0);
    assert_int_equal(figure(&b, "user=b", "latency_p99_us"), 0);
    for (unsigned i = 0; i < 4; i++)
        disconnect(&a[i]);
    disconnect(&b);
    support_server_end(s);
}

static void test_metrics(void **state)
{
    (void)state;
    struct test_server *s = START("tenant-limits", "user:a k=2", );
    struct connection a;
    struct resp_buffer text = {.protocol = 2};
    connect_as(&a, s, "a");
    expect_search(&a, "COUNT 2", 2);
    REFUSED(ask(&a, "VSIM t ELE 7 COUNT 3"), "k=");
    metrics_write(s->server, &text);
    resp_raw(&text, "", 1);
    const char *const lines[] = {"\nquire_tenants 1\n",
                                 "\nquire_tenant_series_left_out 0\n",
                                 "\nquire_tenant_queries_total{user=\"a\"} 1\n",
                                 "\nquire_tenant_refused_total{user=\"a\"} 1\n",
                                 "\nquire_tenant_waiting{user=\"a\"} 0\n",
                                 "\nquire_refused_total{limit=\"k\"} 1\n",
                                 "\nquire_refused_total{limit=\"rate\"} 0\n"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        if (!strstr((const char *)text.data, lines[i]))
            fail_msg("/metrics has no %s", lines[i]);
    resp_buffer_fini(&text);
    disconnect(&a);
    support_server_end(s);
}

/* More than a lane remembers: those that were there first are forgotten, the sums are not. */
static void test_many(void **state)
{
    (void)state;
    enum { USERS = 4200, SHOWN = 4096 };
    struct test_server *s = START();
    struct connection c;
    char words[64];
    connect_to(&c, s->port);
    for (unsigned i = 0; i < USERS; i++) {
        snprintf(words, sizeof words, "ACL SETUSER u%u on nopass ~* +@all", i);
        expect_text(&c, words, "OK");
        snprintf(words, sizeof words, "AUTH u%u any", i);
        expect_text(&c, words, "OK");
        expect_search(&c, "COUNT 1", 1);
    }
    assert_int_equal(info_number(&c, "tenants"), SHOWN);
    assert_int_equal(info_number(&c, "tenant_queries"), USERS);
    struct reply reply = ask(&c, "INFO tenants");
    assert_non_null(strstr(reply.text, "\ntenant99:"));
    assert_null(strstr(reply.text, "\ntenant100:"));
    reply_free(&reply);
    disconnect(&c);
    support_server_end(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse),       cmocka_unit_test(test_parse_errors), cmocka_unit_test(test_config),
        cmocka_unit_test(test_rewrite),     cmocka_unit_test(test_limits),       cmocka_unit_test(test_tenants),
        cmocka_unit_test(test_rate),        cmocka_unit_test(test_concurrent),   cmocka_unit_test(test_flood),
        cmocka_unit_test(test_weights),     cmocka_unit_test(test_gone),         cmocka_unit_test(test_stop),
        cmocka_unit_test(test_memory_only), cmocka_unit_test(test_info),         cmocka_unit_test(test_metrics),
        cmocka_unit_test(test_many),        cmocka_unit_test(test_filters),      cmocka_unit_test(test_caches)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
