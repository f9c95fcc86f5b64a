/*
 * test_spann_library.c - inverted lists through the library: ways to ask, keys, attributes, vectors and links.
 *
 * Blocking, batch and loop searches answer the same. What is fetched of a row is what went in, by key and by number,
 * although blocks of lists have no edges: a row's links are then the rows of its own block.
 */
#include "index/segment/segment_view.h"
#include "tests/index/support_parts.h"
#include "tests/index/support_spann.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ROWS    1200u
#define DIM     20u
#define QUERIES 40u
#define K       10u

static struct {
    char *folder, *path;
    struct support_part part;
    struct quire_index *indexes[SPANN_MODES];
    float *queries;
} shared;

static struct quire_index *open_with(uint64_t memory_bytes)
{
    struct quire_open_options options;
    struct quire_info info;
    quire_open_options_init(&options);
    options.memory_bytes = memory_bytes;
    struct quire_index *index = support_open(shared.path, &options);
    quire_get_info(index, &info);
    assert_true(info.lists > 30 && info.list_entries >= ROWS && info.index == QUIRE_INDEX_SPANN && info.user_keys);
    if (memory_bytes)
        assert_true(info.resident_bytes <= memory_bytes);
    assert_true((info.code_bits == 0) == (memory_bytes > 0));
    return index;
}

/* What the refusal of a single byte names: room for the heads and nothing else. */
static uint64_t least_memory(void)
{
    struct quire_open_options options;
    struct quire_index *index = NULL;
    struct quire_error err;
    quire_open_options_init(&options);
    options.memory_bytes = 1;
    assert_int_equal(quire_open(shared.path, &options, &index, &err), QUIRE_ELIMIT);
    const char *figure = strstr(err.message, "below the ");
    assert_non_null(figure);
    return strtoull(figure + strlen("below the "), NULL, 10);
}

static int set_up(void **state)
{
    struct quire_build_options options = spann_options(QUIRE_METRIC_COSINE, 16);
    (void)state;
    shared.folder = support_folder_make();
    shared.path = support_path(shared.folder, "index");
    support_part_make(&shared.part, "row", ROWS, DIM, QUIRE_TYPE_F32, 3, true, true);
    options.keys = (const void *const *)shared.part.keys;
    options.key_bytes = shared.part.key_bytes;
    options.attributes = (const char *const *)shared.part.attributes;
    options.attribute_bytes = shared.part.attribute_bytes;
    support_build(shared.path, &shared.part.data, &options);
    shared.indexes[SPANN_HEADS] = open_with(least_memory());
    shared.indexes[SPANN_CODES] = open_with(0);
    shared.queries = support_queries(&shared.part.data, QUERIES, 4);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (unsigned i = 0; i < SPANN_MODES; i++)
        quire_close(shared.indexes[i]);
    free(shared.queries);
    support_part_free(&shared.part);
    free(shared.path);
    support_folder_remove(shared.folder);
    return 0;
}

/* ---- ways to ask ------------------------------------------------------------------------------------------------- */

struct answers {
    struct quire_hit hits[QUERIES * K];
    uint32_t n_hits[QUERIES];
    struct quire_search_stats stats[QUERIES];
    unsigned done;
};

static void check_same(const struct answers *a, const struct answers *b)
{
    for (uint32_t i = 0; i < QUERIES; i++) {
        assert_int_equal(a->n_hits[i], K);
        assert_int_equal(b->n_hits[i], K);
        for (uint32_t h = 0; h < K; h++)
            assert_int_equal(a->hits[i * K + h].id, b->hits[i * K + h].id);
        assert_int_equal(a->stats[i].rounds, b->stats[i].rounds);
        assert_int_equal(a->stats[i].reads + a->stats[i].cached, b->stats[i].reads + b->stats[i].cached);
    }
}

struct loop_query {
    struct answers *answers;
    uint32_t query;
};

static void on_loop_answer(void *context, int code, const struct quire_hit *hits, uint32_t n_hits,
                           const struct quire_search_stats *stats, const struct quire_error *err)
{
    const struct loop_query *q = context;
    assert_int_equal(code, 0);
    assert_null(err);
    memcpy(q->answers->hits + (size_t)q->query * K, hits, sizeof *hits * n_hits);
    q->answers->n_hits[q->query] = n_hits;
    q->answers->stats[q->query] = *stats;
    q->answers->done++;
}

static void ask_by_loop(struct quire_index *index, enum quire_engine_kind engine, struct answers *out)
{
    struct quire_search_options options = support_search(K, 0.95f, 0);
    struct quire_loop_options loop_options;
    struct quire_loop *loop = NULL;
    struct loop_query queries[QUERIES];
    quire_loop_options_init(&loop_options);
    loop_options.engine = engine;
    loop_options.inflight = 7;
    assert_int_equal(quire_loop_create(&loop_options, &loop, NULL), 0);
    for (uint32_t i = 0; i < QUERIES; i++) {
        queries[i] = (struct loop_query){out, i};
        assert_int_equal(quire_loop_search(loop, index, shared.queries + (size_t)i * DIM, &options, on_loop_answer,
                                           &queries[i], NULL),
                         0);
    }
    while (out->done < QUERIES)
        assert_true(quire_loop_poll(loop, 1, UINT64_MAX) >= 0);
    quire_loop_destroy(loop);
}

static void test_ways_to_ask_agree(void **state)
{
    static struct answers one, other;
    struct quire_search_options options = support_search(K, 0.95f, 0);
    (void)state;
    for (unsigned mode = 0; mode < SPANN_MODES; mode++) {
        double recall = 0;
        for (uint32_t i = 0; i < QUERIES; i++) {
            const float *query = shared.queries + (size_t)i * DIM;
            assert_int_equal(quire_search(shared.indexes[mode], query, &options, one.hits + (size_t)i * K,
                                          &one.n_hits[i], &one.stats[i], NULL),
                             0);
            recall += support_recall(QUIRE_METRIC_COSINE, shared.part.data.floats, ROWS, DIM, query, K,
                                     one.hits + (size_t)i * K, one.n_hits[i]);
        }
        assert_true(recall / QUERIES > 0.88);
        for (unsigned lanes = 1; lanes <= 3; lanes += 2) {
            memset(&other, 0, sizeof other);
            assert_int_equal(quire_search_batch(shared.indexes[mode], shared.queries, QUERIES, &options, lanes, 9,
                                                other.hits, other.n_hits, other.stats, NULL),
                             0);
            check_same(&one, &other);
        }
        for (unsigned e = 0; e < 2; e++) {
            memset(&other, 0, sizeof other);
            ask_by_loop(shared.indexes[mode], e ? QUIRE_ENGINE_THREADS : QUIRE_ENGINE_AUTO, &other);
            check_same(&one, &other);
        }
    }
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static void check_attributes(struct quire_index *index, uint32_t id, uint32_t row)
{
    static char text[4096];
    size_t bytes = sizeof text;
    int rc = quire_attributes(index, row, text, &bytes, NULL);
    if (!shared.part.attributes[id]) {
        assert_int_equal(rc, QUIRE_ENOTFOUND);
        return;
    }
    assert_int_equal(rc, 0);
    assert_int_equal(bytes, shared.part.attribute_bytes[id]);
    assert_memory_equal(text, shared.part.attributes[id], bytes);
}

static void test_rows_are_what_went_in(void **state)
{
    static char key[QUIRE_KEY_BYTES_MAX];
    float vector[DIM];
    (void)state;
    for (unsigned mode = 0; mode < SPANN_MODES; mode++)
        for (uint32_t id = 0; id < ROWS; id += 3) {
            struct quire_index *index = shared.indexes[mode];
            uint32_t row, n_hits;
            size_t bytes;
            assert_int_equal(quire_lookup(index, shared.part.keys[id], shared.part.key_bytes[id], &row, NULL), 0);
            assert_int_equal(quire_key(index, row, key, &bytes, NULL), 0);
            assert_int_equal(bytes, shared.part.key_bytes[id]);
            assert_memory_equal(key, shared.part.keys[id], bytes);
            assert_int_equal(quire_vector(index, row, vector, NULL), 0);
            const float *original = shared.part.data.floats + (size_t)id * DIM;
            assert_true(support_stored_error(vector, original, DIM, true) < 0.02);
            check_attributes(index, id, row);
            struct quire_search_options options = support_search(1, 0, UINT32_MAX);
            struct quire_hit hit;
            assert_int_equal(quire_search(index, original, &options, &hit, &n_hits, NULL, NULL), 0);
            assert_true(n_hits == 1 && hit.id == id && hit.row == row);
        }
}

/* ---- links ------------------------------------------------------------------------------------------------------- */

static unsigned links_seen;

static void on_links(struct fetch_request *request)
{
    uint32_t per_block = request->segment->params.slots_per_block;
    assert_int_equal(request->code, 0);
    uint32_t others = format_block_rows(&request->segment->params, request->row / per_block) - 1;
    assert_int_equal(request->n_links, others < request->links_max ? others : request->links_max);
    for (uint32_t i = 0; i < request->n_links; i++) {
        const struct search_hit *link = &request->links[i];
        assert_int_equal(link->row / per_block, request->row / per_block);
        assert_int_not_equal(link->row, request->row);
        assert_true(i == 0 || link[-1].distance <= link->distance);
        assert_int_equal(link->key_bytes, shared.part.key_bytes[link->id]);
        assert_memory_equal(link->key, shared.part.keys[link->id], link->key_bytes);
    }
    links_seen++;
}

static void test_links_are_the_rows_of_the_block(void **state)
{
    struct spann_lane lane;
    (void)state;
    for (unsigned mode = 0; mode < SPANN_MODES; mode++) {
        struct segment *segment = spann_open(NULL, shared.path, (enum spann_mode)mode);
        spann_lane_open(&lane, QUIRE_ENGINE_AUTO, 0, 4);
        for (uint32_t row = 0; row < ROWS; row += 41) {
            struct fetch_request request = {.segment = segment,
                                            .row = row,
                                            .want_vector = true,
                                            .want_links = true,
                                            .links_max = row % 2 ? 5 : 1000,
                                            .done = on_links};
            unsigned before = links_seen;
            assert_int_equal(fetch_start(lane.searcher, &request, NULL), 0);
            while (links_seen == before)
                assert_true(engine_poll(lane.engine, 1, UINT64_MAX) >= 0);
        }
        spann_lane_close(&lane);
        segment_unref(segment);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ways_to_ask_agree),
        cmocka_unit_test(test_rows_are_what_went_in),
        cmocka_unit_test(test_links_are_the_rows_of_the_block),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
