/*
 * test_named.c - searches of a collection where rows of segments are named: the same answers as without, bit for bit.
 *
 * Names are those that a device would give, made here by a search of each segment: the k nearest rows of it that live
 * and a few more. Rows end before the search, and while it runs; segments are named that the collection no longer has.
 */
#include "index/collection/collection_host.h"
#include "index/segment/segment_view.h"
#include "tests/index/support_index.h"
#include "tests/index/support_store.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define KEYS   1500u
#define K      10u
#define SPARE  3u
#define PARTS  3u
#define SEALED 1400u /* the first keys */

static char *folder;
static struct store *store;
static struct collection *set;
static struct support_model model;
static struct support_lane lane;
static struct quire_error err;

static int set_up(void **state)
{
    (void)state;
    folder = support_folder_make();
    char *path = support_path(folder, "data");
    struct store_options options = support_store_options(NULL);
    support_lane_open(&lane, NULL);
    support_model_init(&model, KEYS);
    store = support_store_open(path, &options);
    set = support_create(store);
    for (uint32_t key = 0; key < KEYS; key++) {
        assert_int_equal(support_put(&lane, set, &model, key, 1, 0, NULL), 0);
        if (key % 500 == 399) /* three segments, and rows in memory */
            assert_true(store_seal(store, set, &err) >= 0);
    }
    struct view *view = collection_view(set);
    assert_int_equal(view->n_parts, PARTS);
    view_unref(view);
    free(path);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    collection_unref(set);
    support_store_close(store);
    support_model_free(&model);
    support_lane_close(&lane);
    support_folder_remove(folder);
    return 0;
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

static uint32_t rows[PARTS][K + SPARE], counts[PARTS];
static struct collection_named named[PARTS];
static struct view *view;

struct asked {
    uint32_t *rows, *n;
    bool done;
};

static void on_rows(struct search_request *request)
{
    struct asked *asked = request->owner;
    *asked->n = request->n_hits;
    for (uint32_t i = 0; i < request->n_hits; i++)
        asked->rows[i] = request->hits[i].row;
    asked->done = true;
}

static int ascending(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static void name_rows(const float *query)
{
    view = collection_view(set);
    for (uint32_t i = 0; i < PARTS; i++) {
        struct asked asked = {rows[i], &counts[i], false};
        struct search_request request = {
            .segment = view->parts[i]->segment, .query = query, .done = on_rows, .owner = &asked};
        quire_search_options_init(&request.options);
        request.options.k = K + SPARE;
        request.options.exact = true;
        assert_int_equal(search_start(lane.searcher, &request, &err), 0);
        while (!asked.done)
            assert_true(engine_poll(lane.engine, 1, UINT64_MAX) >= 0);
        qsort(rows[i], counts[i], sizeof rows[i][0], ascending);
        named[i] = (struct collection_named){view->parts[i]->segment, K + SPARE, &counts[i], rows[i]};
    }
}

static void forget(void)
{
    view_unref(view);
}

/* ---- searches ---------------------------------------------------------------------------------------------------- */

struct answer {
    uint32_t n, named, scored;
    char keys[K][24];
    float distances[K];
    bool exact, done;
};

static void on_answer(struct collection_search *search)
{
    struct answer *out = search->owner;
    assert_int_equal(search->code, 0);
    out->n = search->n_hits;
    out->named = search->n_named_segments;
    out->scored = search->stats.rows_scored - search->memtable_rows_scored;
    out->exact = search->stats.exact;
    for (uint32_t i = 0; i < search->n_hits; i++) {
        snprintf(out->keys[i], sizeof out->keys[i], "%.*s", (int)search->hits[i].key_bytes,
                 (const char *)search->hits[i].key);
        out->distances[i] = search->hits[i].distance;
    }
    out->done = true;
}

static void search(const float *query, bool exact, uint32_t n_named, void (*meanwhile)(void), struct answer *out)
{
    struct collection_search search = {
        .collection = set, .query = query, .named = named, .n_named = n_named, .done = on_answer, .owner = out};
    memset(out, 0, sizeof *out);
    quire_search_options_init(&search.options);
    search.options.k = K;
    search.options.exact = exact;
    assert_int_equal(collection_search_start(lane.searcher, &search, &err), 0);
    if (meanwhile) {
        assert_false(out->done);
        meanwhile();
    }
    while (!out->done)
        assert_true(engine_poll(lane.engine, 1, UINT64_MAX) >= 0);
}

static void expect_same(const struct answer *a, const struct answer *b)
{
    assert_int_equal(a->n, b->n);
    for (uint32_t i = 0; i < a->n; i++) {
        assert_string_equal(a->keys[i], b->keys[i]);
        assert_memory_equal(&a->distances[i], &b->distances[i], sizeof(float));
    }
}

/* The key of the nearest hit of a segment: of no row in memory. */
static uint32_t nearest_sealed(const struct answer *answer)
{
    for (uint32_t i = 0; i < answer->n; i++) {
        uint32_t key = (uint32_t)strtoul(answer->keys[i] + 4, NULL, 10); /* key-N */
        if (key < SEALED)
            return key;
    }
    fail_msg("all hits are in memory");
    return 0;
}

static uint32_t victim;

static void remove_victim(void)
{
    struct support_lane other;
    support_lane_open(&other, NULL);
    assert_int_equal(support_remove(&other, set, &model, victim, NULL), 0);
    support_lane_close(&other);
}

static void test_same_answers(void **state)
{
    struct answer all, few;
    float query[SUPPORT_DIM];
    (void)state;
    for (uint32_t i = 0; i < 20; i++) {
        support_vector(i * 70, 7, query);
        search(query, true, 0, NULL, &all);
        assert_true(all.exact && all.named == 0 && all.scored >= 1000);
        name_rows(query);
        search(query, true, PARTS, NULL, &few);
        expect_same(&few, &all);
        assert_true(few.exact && few.named == PARTS && few.scored < all.scored);
        search(query, true, 1, NULL, &few); /* one segment by names, the others whole */
        expect_same(&few, &all);
        assert_int_equal(few.named, 1);
        search(query, false, PARTS, NULL, &few); /* what is not asked to be exact is answered as well */
        assert_true(few.n == K && few.named == PARTS && few.distances[K - 1] <= all.distances[K - 1] * 1.5f);
        counts[1] = 0; /* any row can be near */
        search(query, true, PARTS, NULL, &few);
        expect_same(&few, &all);
        assert_int_equal(few.named, PARTS - 1);
        forget();
    }
}

/* A named row ends before the search, or while it waits for the disk: its segment is searched whole. */
static void test_rows_end(void **state)
{
    struct answer before, after, all;
    float query[SUPPORT_DIM];
    (void)state;
    for (uint32_t i = 0; i < 20; i++) {
        support_vector(i * 71 + 3, 8, query);
        name_rows(query);
        search(query, true, PARTS, NULL, &before);
        victim = nearest_sealed(&before);
        if (i % 2 == 0)
            remove_victim();
        search(query, true, PARTS, i % 2 ? remove_victim : NULL, &after);
        search(query, true, 0, NULL, &all);
        expect_same(&after, &all);
        assert_int_equal(after.named, PARTS - 1);
        forget();
    }
}

/* Names of a segment that was merged away are names of nothing. */
static void test_other_segments(void **state)
{
    struct answer few, all;
    float query[SUPPORT_DIM];
    (void)state;
    support_vector(5, 9, query);
    name_rows(query);
    assert_true(store_compact(store, set, &err) >= 0);
    search(query, true, PARTS, NULL, &few);
    search(query, true, 0, NULL, &all);
    expect_same(&few, &all);
    assert_int_equal(few.named, 0);
    forget();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_answers),
        cmocka_unit_test(test_rows_end),
        cmocka_unit_test(test_other_segments),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
