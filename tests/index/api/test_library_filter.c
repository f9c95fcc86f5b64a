/*
 * test_library_filter.c - searches of an index under filters and for tenants, through quire.h, judged row by row.
 *
 * Each row has attributes, a key and tenants; which rows match is asked of filter_matches on the very text that the
 * index was built from, and which are nearest of them is computed here. Blocks hold floats, so an exact search must
 * give just those rows; any other min(k, matches) of rows that match, and most of the nearest. Filters that columns
 * decide, filters that only attributes can, and names of elements take the same checks, on both kinds of index.
 */
#include "index/attribute/filter.h"
#include "index/search/filtered_search.h"
#include "index/segment/segment.h"
#include "io/random.h"
#include "tests/index/support_index.h"
#include "tests/index/support_spann.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ROWS = 1200, DIM = 16, QUERIES = 4, K = 10, TEXT = 200, TENANTS = 40 };

static struct {
    char *folder, *path[2];
    struct support_data data;
    float *queries;
    char *json[ROWS], *key[ROWS], *tenants[ROWS];
    uint32_t json_bytes[ROWS], key_bytes[ROWS];
    struct quire_index *index[2];
} shared;

static const struct quire_column columns[] = {{"when", QUIRE_COLUMN_TIMESTAMP, true},
                                              {"year", QUIRE_COLUMN_INTEGER, true}};

/* ---- rows -------------------------------------------------------------------------------------------------------- */

/* Every eleventh row has no attributes; rows below 200 are nobody's. Tenant t has about 1 row in 2^t. */
static void make_row(uint32_t row)
{
    static const char *const colours[] = {"red", "green", "blue", "dark blue"};
    struct random random;
    char text[TEXT];
    random_init(&random, row * 977u + 5);
    uint32_t year = 1980 + (uint32_t)random_below(&random, 40), n = (uint32_t)random_below(&random, 1000);
    uint32_t month = 1 + (uint32_t)random_below(&random, 12), colour = (uint32_t)random_below(&random, 4);
    snprintf(text, sizeof text,
             "{\"row\":%u,\"year\":%u,\"n\":%u,\"m\":%u,\"colour\":\"%s\",\"when\":\"2025-%02u-15T12:00:00Z\",\"tags\":"
             "[\"a%u\",%u]%s}",
             row, year, n, n % 7, colours[colour], month, n % 5, n % 3, row % 3 ? "" : ",\"rare\":null");
    if (row % 11) {
        shared.json[row] = strdup(text);
        shared.json_bytes[row] = (uint32_t)strlen(text);
        assert_non_null(shared.json[row]);
    }
    snprintf(text, sizeof text, "element %u", row * 3);
    shared.key[row] = strdup(text);
    shared.key_bytes[row] = (uint32_t)strlen(text);
    if (row < 200)
        return;
    uint32_t tenant = 0;
    while (tenant + 1 < TENANTS && random_below(&random, 2))
        tenant++;
    snprintf(text, sizeof text, row % 5 ? "t%u" : "t%u everybody", tenant);
    shared.tenants[row] = strdup(text);
    assert_true(shared.key[row] && shared.tenants[row]);
}

static int set_up(void **state)
{
    (void)state;
    shared.folder = support_folder_make();
    support_clusters(ROWS, DIM, QUIRE_TYPE_F32, 31, &shared.data);
    shared.queries = support_queries(&shared.data, QUERIES, 32);
    for (uint32_t row = 0; row < ROWS; row++)
        make_row(row);
    for (int kind = 0; kind < 2; kind++) {
        struct quire_build_options options = support_options(QUIRE_METRIC_L2, QUIRE_SLOT_F32);
        options.index = kind ? QUIRE_INDEX_SPANN : QUIRE_INDEX_PAGEGRAPH;
        options.block_bytes = 4096;
        options.keys = (const void *const *)(void *)shared.key;
        options.key_bytes = shared.key_bytes;
        options.attributes = (const char *const *)shared.json;
        options.attribute_bytes = shared.json_bytes;
        options.columns = columns;
        options.n_columns = SUPPORT_COUNT(columns);
        options.tenants = (const char *const *)shared.tenants;
        shared.path[kind] = support_path(shared.folder, kind ? "lists" : "graph");
        support_build(shared.path[kind], &shared.data, &options);
        shared.index[kind] = support_open(shared.path[kind], NULL);
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (uint32_t row = 0; row < ROWS; row++) {
        free(shared.json[row]);
        free(shared.key[row]);
        free(shared.tenants[row]);
    }
    for (int kind = 0; kind < 2; kind++) {
        quire_close(shared.index[kind]);
        free(shared.path[kind]);
    }
    free(shared.queries);
    support_data_free(&shared.data);
    support_folder_remove(shared.folder);
    return 0;
}

/* ---- what is right ----------------------------------------------------------------------------------------------- */

struct ask {
    const char *filter;  /* NULL: none */
    const char *tenants; /* with spaces between; NULL: all */
};

static bool has_name(const char *names, const char *name, size_t bytes)
{
    for (const char *at = names; at; at = strchr(at, ' ') ? strchr(at, ' ') + 1 : NULL) {
        size_t length = strcspn(at, " ");
        if (length == bytes && memcmp(at, name, bytes) == 0)
            return true;
    }
    return false;
}

/* A bit per row; returns how many. */
static uint32_t find_matches(const struct ask *ask, bool matches[ROWS])
{
    struct attribute_schema *schema = NULL;
    struct filter *filter = NULL;
    struct quire_error err = {0};
    uint32_t n = 0;
    assert_int_equal(attribute_schema_create(columns, SUPPORT_COUNT(columns), &schema, &err), 0);
    if (ask->filter && filter_compile(ask->filter, strlen(ask->filter), schema, &filter, &err) < 0)
        fail_msg("%s: %s", ask->filter, err.message);
    for (uint32_t row = 0; row < ROWS; row++) {
        bool granted = !ask->tenants;
        for (const char *at = ask->tenants; at && !granted; at = strchr(at, ' ') ? strchr(at, ' ') + 1 : NULL)
            granted = shared.tenants[row] && has_name(shared.tenants[row], at, strcspn(at, " "));
        matches[row] = granted && (!filter || filter_matches(filter, shared.json[row], shared.json_bytes[row],
                                                             shared.key[row], shared.key_bytes[row]));
        n += matches[row];
    }
    filter_unref(filter);
    attribute_schema_destroy(schema);
    return n;
}

/* The distance of the k-th nearest row that matches. */
static double worst_of(const bool matches[ROWS], const float *query, uint32_t k)
{
    double nearest[K];
    uint32_t n = 0;
    for (uint32_t row = 0; row < ROWS; row++) {
        if (!matches[row])
            continue;
        double d = support_distance(QUIRE_METRIC_L2, query, shared.data.floats + (size_t)row * DIM, DIM);
        uint32_t at = n < k ? n++ : k;
        for (; at > 0 && nearest[at - 1] > d; at--)
            if (at < k)
                nearest[at] = nearest[at - 1];
        if (at < k)
            nearest[at] = d;
    }
    return n > 0 ? nearest[n - 1] : 0;
}

static struct quire_search_options options_of(const struct ask *ask, struct quire_bytes names[8])
{
    struct quire_search_options options = support_search(K, 0, 0);
    options.filter = ask->filter;
    options.filter_bytes = ask->filter ? strlen(ask->filter) : 0;
    for (const char *at = ask->tenants; at; at = strchr(at, ' ') ? strchr(at, ' ') + 1 : NULL) {
        assert_true(options.n_tenants < 8);
        names[options.n_tenants++] = (struct quire_bytes){at, strcspn(at, " ")};
        options.tenants = names;
    }
    return options;
}

static uint32_t min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Returns how many of the hits are among the nearest; fails where one does not match, or there are not as many. */
static uint32_t judge(const struct ask *ask, const bool matches[ROWS], uint32_t wanted, const float *query,
                      const struct quire_hit *hits, uint32_t n_hits)
{
    double worst = worst_of(matches, query, wanted);
    uint32_t right = 0;
    if (n_hits != wanted)
        fail_msg("filter %s, tenants %s: %u hits, expected %u", ask->filter ? ask->filter : "-",
                 ask->tenants ? ask->tenants : "-", n_hits, wanted);
    for (uint32_t i = 0; i < n_hits; i++) {
        assert_true(hits[i].id < ROWS);
        if (!matches[hits[i].id])
            fail_msg("filter %s, tenants %s: row %u is a stranger", ask->filter ? ask->filter : "-",
                     ask->tenants ? ask->tenants : "-", (unsigned)hits[i].id);
        for (uint32_t j = 0; j < i; j++)
            assert_true(hits[j].id != hits[i].id && hits[j].distance <= hits[i].distance);
        right += (double)hits[i].distance <= worst * (1 + 1e-4) + 1e-6;
    }
    return right;
}

/* ---- the checks -------------------------------------------------------------------------------------------------- */

static void expect_exact(int kind, const struct ask *ask, const bool *matches, uint32_t wanted)
{
    struct quire_bytes names[8];
    struct quire_search_options options = options_of(ask, names);
    struct quire_hit hits[K];
    struct quire_search_stats stats;
    struct quire_error err = {0};
    uint32_t n_hits;
    options.exact = true;
    for (uint32_t q = 0; q < QUERIES; q++) {
        const float *query = shared.queries + (size_t)q * DIM;
        if (quire_search(shared.index[kind], query, &options, hits, &n_hits, &stats, &err) < 0)
            fail_msg("%s: %s", ask->filter ? ask->filter : "-", err.message);
        assert_int_equal(judge(ask, matches, wanted, query, hits, n_hits), wanted);
        assert_true(stats.exact && stats.complete);
    }
}

static void expect_batch(int kind, const struct ask *ask, const bool *matches, uint32_t n_matches, uint32_t wanted)
{
    struct quire_bytes names[8];
    struct quire_search_options options = options_of(ask, names);
    struct quire_hit hits[QUERIES * K];
    struct quire_search_stats stats[QUERIES];
    struct quire_error err = {0};
    uint32_t n_hits[QUERIES], right = 0;
    if (quire_search_batch(shared.index[kind], shared.queries, QUERIES, &options, 2, 3, hits, n_hits, stats, &err) < 0)
        fail_msg("%s: %s", ask->filter ? ask->filter : "-", err.message);
    for (uint32_t q = 0; q < QUERIES; q++) {
        right += judge(ask, matches, wanted, shared.queries + (size_t)q * DIM, hits + (size_t)q * K, n_hits[q]);
        assert_true(stats[q].complete && stats[q].matches >= n_matches);
    }
    if (right < 0.9 * wanted * QUERIES)
        fail_msg("kind %d, filter %s, tenants %s: %u of %u", kind, ask->filter ? ask->filter : "-",
                 ask->tenants ? ask->tenants : "-", right, wanted * QUERIES);
}

static void expect_right(struct ask ask)
{
    bool matches[ROWS];
    uint32_t n = find_matches(&ask, matches), wanted = min_u32(n, K);
    for (int kind = 0; kind < 2; kind++) {
        expect_exact(kind, &ask, matches, wanted);
        expect_batch(kind, &ask, matches, n, wanted);
    }
}

static void test_columns(void **state)
{
    static const char *const filters[] = {".year > 1990",
                                          ".year == 1999",
                                          ".n < 5",
                                          ".n == 123456",
                                          ".colour == \"red\"",
                                          ".colour in [\"red\", \"dark blue\"] and .year >= 2000",
                                          "not (.n % 7 == 0)",
                                          ".n > 990 or .year == 1980",
                                          ".colour prefix \"dark\"",
                                          ".when > \"2025-11-01\"",
                                          ".when < \"2025-02-01T00:00:00Z\" and .n < 300",
                                          "\"a3\" in .tags",
                                          "2 in .tags && .m == 4",
                                          "exists .rare",
                                          ".rare == null",
                                          "true",
                                          "false"};
    (void)state;
    for (size_t i = 0; i < SUPPORT_COUNT(filters); i++)
        expect_right((struct ask){.filter = filters[i]});
}

/* Several fields at once: with .row in it only the attributes can tell. */
static void test_residual(void **state)
{
    static const char *const filters[] = {".year > .n + 1500 + .row * 0",
                                          ".n * 2 == .year + .row * 0",
                                          ".year > .n + 1500",
                                          ".n == .m",
                                          ".n * 2 == .year",
                                          ".year - .n == 1500 or .year - .n == 1700",
                                          ".n > .year",
                                          ".n < 100 and .m + .n > 95",
                                          "key == \"element 30\" or .n == .m"};
    (void)state;
    for (size_t i = 0; i < SUPPORT_COUNT(filters); i++)
        expect_right((struct ask){.filter = filters[i]});
}

static void test_keys(void **state)
{
    (void)state;
    expect_right((struct ask){.filter = "key in [\"element 3\", \"element 600\", \"element 4\", \"nothing\"]"});
    expect_right((struct ask){.filter = "key == \"element 3597\""});
    expect_right((struct ask){.filter = "key in [\"element 3\", \"element 6\", \"element 9\"] and .year > 1990"});
    expect_right((struct ask){.filter = "key == \"element 12\" or .year == 1985"});
    expect_right((struct ask){.filter = "not (key == \"element 12\") and .year == 1985"});
    expect_right((struct ask){.filter = "(key == \"element 12\") + 0 == 1"});
}

/* Where no row has attributes names still differ, however the expression asks for them. */
static void test_keys_alone(void **state)
{
    static const char *const filters[] = {"key == \"element 12\"", "(key == \"element 12\") + 0 == 1",
                                          "not exists .year and key in [\"element 12\", \"nothing\"]"};
    struct quire_build_options build = support_options(QUIRE_METRIC_L2, QUIRE_SLOT_F32);
    struct quire_search_options options = support_search(K, 0, 0);
    struct quire_search_stats stats;
    struct quire_hit hits[K];
    char *path = support_path(shared.folder, "bare");
    uint32_t n_hits;
    (void)state;
    build.keys = (const void *const *)(void *)shared.key;
    build.key_bytes = shared.key_bytes;
    support_build(path, &shared.data, &build);
    struct quire_index *index = support_open(path, NULL);
    for (size_t i = 0; i < SUPPORT_COUNT(filters); i++) {
        options.filter = filters[i];
        options.filter_bytes = strlen(filters[i]);
        assert_int_equal(quire_search(index, shared.queries, &options, hits, &n_hits, &stats, NULL), 0);
        assert_int_equal(n_hits, 1);
        assert_int_equal(hits[0].id, 4);
    }
    options.filter = ".year > 0 or key == \"element 12\""; /* the field is required */
    options.filter_bytes = strlen(options.filter);
    assert_int_equal(quire_search(index, shared.queries, &options, hits, &n_hits, &stats, NULL), 0);
    assert_int_equal(n_hits, 0);
    quire_close(index);
    free(path);
}

static void test_tenants(void **state)
{
    static const char *const tenants[] = {"t0", "t1", "t5", "t9", "everybody", "t3 t7", "t8 everybody", "nobody", "t"};
    (void)state;
    for (size_t i = 0; i < SUPPORT_COUNT(tenants); i++) {
        expect_right((struct ask){.tenants = tenants[i]});
        expect_right((struct ask){.tenants = tenants[i], .filter = ".year > 2005"});
        expect_right((struct ask){.tenants = tenants[i], .filter = ".year > .n + 1700"});
        expect_right((struct ask){.tenants = tenants[i], .filter = "true"});
    }
}

static void test_no_tenants_is_nothing(void **state)
{
    struct quire_search_options options = support_search(K, 0, 0);
    struct quire_bytes none = {0};
    struct quire_hit hits[K];
    struct quire_search_stats stats;
    (void)state;
    options.tenants = &none;
    for (int kind = 0; kind < 2; kind++)
        for (int exact = 0; exact < 2; exact++) {
            uint32_t n_hits = 7;
            options.exact = exact;
            assert_int_equal(quire_search(shared.index[kind], shared.queries, &options, hits, &n_hits, &stats, NULL),
                             0);
            assert_true(n_hits == 0 && stats.plan == QUIRE_PLAN_EMPTY && stats.reads == 0);
        }
}

static void expect_refused(const struct quire_search_options *options, int code, const char *part)
{
    struct quire_hit hits[K];
    struct quire_error err = {0};
    uint32_t n_hits = 7;
    int rc = quire_search(shared.index[0], shared.queries, options, hits, &n_hits, NULL, &err);
    if (rc != code || err.code != code || !strstr(err.message, part) || n_hits != 7)
        fail_msg("%s was expected with \"%s\", not %s: %s", quire_error_name(code), part, quire_error_name(rc),
                 err.message);
}

static void test_refusals(void **state)
{
    static char deep[600], long_name[256];
    struct quire_search_options options = support_search(K, 0, 0);
    struct quire_bytes name = {long_name, sizeof long_name};
    (void)state;
    options.filter = ".year >";
    options.filter_bytes = 7;
    expect_refused(&options, QUIRE_EPARSE, "");
    options.filter_bytes = 0;
    expect_refused(&options, QUIRE_EPARSE, "");
    memset(deep, '(', sizeof deep);
    options.filter = deep;
    options.filter_bytes = sizeof deep;
    expect_refused(&options, QUIRE_ELIMIT, "");
    options = support_search(K, 0, 0);
    options.n_tenants = 1;
    expect_refused(&options, QUIRE_EINVALID, "n_tenants is 1");
    memset(long_name, 'x', sizeof long_name);
    options.tenants = &name;
    expect_refused(&options, QUIRE_ERANGE, "");
    name.n_bytes = 0;
    expect_refused(&options, QUIRE_ERANGE, "");
}

/* ---- loops ------------------------------------------------------------------------------------------------------- */

struct looped {
    const struct ask *ask;
    const bool *matches;
    const float *query;
    uint32_t wanted, right;
    bool done;
};

static void on_loop(void *context, int code, const struct quire_hit *hits, uint32_t n_hits,
                    const struct quire_search_stats *stats, const struct quire_error *err)
{
    struct looped *l = context;
    if (code < 0)
        fail_msg("%s", err->message);
    l->right = judge(l->ask, l->matches, l->wanted, l->query, hits, n_hits);
    assert_true(stats->latency_ns > 0);
    l->done = true;
}

static void test_loop(void **state)
{
    static const struct ask asks[] = {{".year == 1999", NULL}, {".n == .m", NULL}, {".n == .m", "t0"}, {NULL, "t2"}};
    static bool matches[SUPPORT_COUNT(asks)][ROWS];
    struct looped looped[SUPPORT_COUNT(asks)];
    struct quire_loop *loop = NULL;
    struct quire_error err = {0};
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        assert_int_equal(quire_loop_create(NULL, &loop, &err), 0);
        for (size_t i = 0; i < SUPPORT_COUNT(asks); i++) {
            struct quire_bytes names[8];
            struct quire_search_options options = options_of(&asks[i], names);
            float *query = malloc(sizeof(float) * DIM);
            assert_non_null(query);
            memcpy(query, shared.queries + i * DIM, sizeof(float) * DIM);
            uint32_t n = find_matches(&asks[i], matches[i]);
            looped[i] = (struct looped){
                .ask = &asks[i], .matches = matches[i], .query = shared.queries + i * DIM, .wanted = min_u32(n, K)};
            assert_int_equal(quire_loop_search(loop, shared.index[kind], query, &options, on_loop, &looped[i], &err),
                             0);
            memset(query, 0x7f, sizeof(float) * DIM); /* the query was copied */
            memset(names, 0, sizeof names);
            free(query);
        }
        bool all = false;
        for (int polls = 0; !all && polls < 100000; polls++) {
            assert_true(quire_loop_poll(loop, 1, 1000000) >= 0);
            all = true;
            for (size_t i = 0; i < SUPPORT_COUNT(asks); i++)
                all = all && looped[i].done;
        }
        assert_true(all);
        for (size_t i = 0; i < SUPPORT_COUNT(asks); i++)
            assert_true(looped[i].right >= 0.7 * looped[i].wanted);
        quire_loop_destroy(loop);
    }
}

/* A loop that goes while searches recheck their hits: each callback comes, nothing is left behind (under ASan). */
static void on_cancelled(void *context, int code, const struct quire_hit *hits, uint32_t n_hits,
                         const struct quire_search_stats *stats, const struct quire_error *err)
{
    (void)hits, (void)stats, (void)err;
    assert_true(code == 0 || (code == QUIRE_ECANCELLED && n_hits == 0));
    ++*(uint32_t *)context;
}

static void test_loop_ends_early(void **state)
{
    struct quire_search_options options = support_search(K, 0, 0);
    (void)state;
    options.filter = ".n == .m";
    options.filter_bytes = strlen(options.filter);
    for (uint32_t polls = 0; polls < 12; polls++) {
        struct quire_loop_options loop_options;
        struct quire_loop *loop = NULL;
        uint32_t called = 0;
        quire_loop_options_init(&loop_options);
        loop_options.inflight = 2;
        assert_int_equal(quire_loop_create(&loop_options, &loop, NULL), 0);
        for (uint32_t q = 0; q < 5; q++)
            assert_int_equal(quire_loop_search(loop, shared.index[q % 2], shared.queries + (size_t)(q % QUERIES) * DIM,
                                               &options, on_cancelled, &called, NULL),
                             0);
        for (uint32_t i = 0; i < polls; i++)
            assert_true(quire_loop_poll(loop, 0, 0) >= 0);
        quire_loop_destroy(loop);
        assert_int_equal(called, 5);
    }
}

/* ---- attributes, limits ------------------------------------------------------------------------------------------ */

static void test_grants_are_not_shown(void **state)
{
    char text[TEXT];
    (void)state;
    for (int kind = 0; kind < 2; kind++)
        for (uint32_t input = 0; input < ROWS; input++) {
            uint32_t row;
            size_t bytes = sizeof text;
            assert_int_equal(quire_lookup(shared.index[kind], shared.key[input], shared.key_bytes[input], &row, NULL),
                             0);
            int rc = quire_attributes(shared.index[kind], row, text, &bytes, NULL);
            if (!shared.json[input]) {
                assert_int_equal(rc, QUIRE_ENOTFOUND);
                continue;
            }
            assert_int_equal(rc, 0);
            assert_int_equal(bytes, shared.json_bytes[input]);
            assert_memory_equal(text, shared.json[input], bytes);
            bytes--;
            assert_int_equal(quire_attributes(shared.index[kind], row, text, &bytes, NULL), QUIRE_ELIMIT);
            assert_int_equal(bytes, shared.json_bytes[input]);
        }
}

static void test_filter_effort(void **state)
{
    struct quire_search_options options = support_search(K, 0, 0);
    struct quire_hit hits[K];
    struct quire_search_stats stats;
    uint32_t n_hits;
    (void)state;
    /* about one row in a thousand, and columns cannot tell: they know no names */
    options.filter = ".n * 2 == .year + (key == '')";
    options.filter_bytes = strlen(options.filter);
    options.filter_effort = 20;
    for (int kind = 0; kind < 2; kind++) {
        assert_int_equal(quire_search(shared.index[kind], shared.queries, &options, hits, &n_hits, &stats, NULL), 0);
        assert_true(n_hits < K && !stats.complete && !stats.exact && stats.reads < 200);
    }
}

/* ---- more rows than one search may give -------------------------------------------------------------------------- */

static void on_filtered(struct filtered_search *search)
{
    *(bool *)search->owner = true;
    assert_int_equal(search->code, 0);
    for (uint32_t i = 0; i < search->n_hits; i++) {
        assert_true(i == 0 || search->hits[i - 1].distance <= search->hits[i].distance);
        assert_true(search->hits[i].id < ROWS);
    }
}

static void test_all_rows_are_looked_at(void **state)
{
    static bool matches[ROWS];
    static const char text[] = ".n == .m + (key == '')"; /* columns know no names */
    const struct ask ask = {.filter = text};
    struct filter *filter = NULL;
    struct spann_lane lane;
    uint32_t wanted = min_u32(find_matches(&ask, matches), K);
    (void)state;
    assert_true(wanted > 0);
    assert_int_equal(filter_compile(text, strlen(text), NULL, &filter, NULL), 0);
    for (int kind = 0; kind < 2; kind++) {
        struct segment *segment = NULL;
        struct selection *selection = NULL;
        struct quire_error err = {0};
        bool done = false;
        assert_int_equal(segment_open(shared.path[kind], NULL, &segment, &err), 0);
        assert_int_equal(selection_of(segment, filter, NULL, NULL, &selection, &err), 0);
        assert_true(selection->residual && selection->n > 40);
        spann_lane_open(&lane, QUIRE_ENGINE_AUTO, 0, 4);
        struct filtered_search search = {.segment = segment,
                                         .query = shared.queries,
                                         .options = support_search(K, 0, 0),
                                         .selection = selection,
                                         .filter = filter,
                                         .asked_max = 40,
                                         .done = on_filtered,
                                         .owner = &done};
        assert_int_equal(filtered_search_start(lane.searcher, &search, &err), 0);
        while (!done)
            assert_true(engine_poll(lane.engine, 1, UINT64_MAX) >= 0);
        assert_int_equal(search.n_hits, wanted);
        assert_true(search.stats.complete);
        spann_lane_close(&lane);
        selection_unref(selection);
        segment_unref(segment);
    }
    filter_unref(filter);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_columns),
        cmocka_unit_test(test_residual),
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_keys_alone),
        cmocka_unit_test(test_tenants),
        cmocka_unit_test(test_no_tenants_is_nothing),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_loop),
        cmocka_unit_test(test_loop_ends_early),
        cmocka_unit_test(test_grants_are_not_shown),
        cmocka_unit_test(test_filter_effort),
        cmocka_unit_test(test_all_rows_are_looked_at),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
