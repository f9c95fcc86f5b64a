/*
 * test_document_search.c - a query with several vector ranges while its documents change: each document is found by one
 * of the states that it had, never by parts of two, and one that fits in every state is always found. And
 * what becomes of a query behind its deadline.
 */
#include "document/index/document_search.h"
#include "document/index/documents_priv.h"
#include "index/search/search_lane.h"
#include "io/clock.h"
#include "tests/sanitized.h"
#include "tests/temp_folder.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { DOCUMENTS = 64, STILL = 400, WRITERS = 2, WRITES_LEAST = SANITIZED_SIZE(3000, 500), SEARCHES_LEAST = 300 };

static struct documents *documents;
static struct search_lane *lane;
static atomic_bool stop;
static atomic_uint n_writes;

/* A hash of a number and two vectors. */
struct hash {
    char n[16];
    float v[2], w[2];
};

static bool field(const void *context, const char *name, uint32_t bytes, struct schema_word *value)
{
    const struct hash *h = context;
    if (bytes != 1)
        return false;
    if (*name == 'n')
        *value = (struct schema_word){h->n, (uint32_t)strlen(h->n)};
    else if (*name == 'v' || *name == 'w')
        *value = (struct schema_word){(const char *)(*name == 'v' ? h->v : h->w), sizeof h->v};
    return *name == 'n' || *name == 'v' || *name == 'w';
}

/* An even one is near in both vectors, whatever its version; an odd one in one of them, by turns. */
static void put(uint32_t document, uint32_t version)
{
    char key[16];
    float shift = (float)(version / 2 % 3) / 10, far = document % 2 ? 9 : 0; /* twice the same vectors */
    bool turn = version / 2 % 2;
    struct hash h = {.v = {shift + (turn ? far : 0), 0}, .w = {1, 1 - shift - (turn ? 0 : far)}};
    struct document_view view = {.source = SCHEMA_HASH, .field = field, .context = &h};
    snprintf(h.n, sizeof h.n, "%u", version);
    int bytes = snprintf(key, sizeof key, "d:%u", document);
    documents_changed(documents, key, (uint32_t)bytes, &view);
}

static void *writer(void *context)
{
    uint32_t first = (uint32_t)(uintptr_t)context;
    for (uint32_t version = 1; !atomic_load(&stop); version++)
        for (uint32_t document = first; document < DOCUMENTS; document += WRITERS) {
            put(document, version);
            atomic_fetch_add(&n_writes, 1);
        }
    return NULL;
}

static void on_done(struct document_search *search)
{
    *(bool *)search->owner = true;
}

/* What a query ends with; *n: how many it finds. Those with distances have all of them. */
static int ask(struct document_index *index, const char *text, uint64_t deadline_us, uint64_t *n)
{
    static const float v[2] = {0, 0}, w[2] = {1, 1};
    const struct query_param params[] = {{{"v", 1}, {(const char *)v, sizeof v}},
                                         {{"w", 1}, {(const char *)w, sizeof w}}};
    struct query_context context = {
        .schema = document_index_schema(index), .params = params, .n_params = 2, .slop = -1, .dialect = 2};
    struct quire_error err = {0};
    struct query *query;
    bool done = false;
    if (query_parse(&context, text, strlen(text), &query, &err) < 0)
        fail_msg("%s: %s", text, err.message);
    struct document_search search = {
        .index = index, .query = query, .searcher = lane->searcher, .done = on_done, .owner = &done};
    search.deadline_us = deadline_us;
    document_search_start(&search);
    search_lane_run(lane, &done);
    int code = search.code;
    if (code < 0)
        assert_int_equal(search.error.code, code);
    for (uint32_t yield = 0; yield < search.n_yields; yield++)
        for (uint64_t i = 0; i < search.n; i++)
            assert_true(search.yields[yield].values[i] <= 0.5);
    *n = search.n;
    document_search_fini(&search);
    query_free(query);
    return code;
}

static uint64_t count(struct document_index *index, const char *text)
{
    uint64_t n = 0;
    if (ask(index, text, 0, &n) < 0)
        fail_msg("%s: an error", text);
    return n;
}

/* Behind its deadline each kind of query ends with the same error. */
static void late_ones_end(struct document_index *index)
{
    static const char *const texts[] = {"*", "@n:[0 +inf]", "*=>[KNN 3 @v $v]", "@n:[0 +inf]=>[KNN 3 @v $v]",
                                        "@v:[VECTOR_RANGE 0.5 $v]"};
    uint64_t n;
    for (unsigned i = 0; i < sizeof texts / sizeof *texts; i++) {
        assert_int_equal(ask(index, texts[i], 1, &n), QUIRE_ETIMEOUT);
        assert_int_equal(ask(index, texts[i], clock_us() + 1000000000u, &n), 0);
    }
}

static void ranges_see_one_state(void **state)
{
    static const struct schema_word words[] = {{"i", 1},       {"PREFIX", 6},
                                               {"1", 1},       {"d:", 2},
                                               {"SCHEMA", 6},  {"n", 1},
                                               {"NUMERIC", 7}, {"v", 1},
                                               {"VECTOR", 6},  {"HNSW", 4},
                                               {"6", 1},       {"TYPE", 4},
                                               {"FLOAT32", 7}, {"DIM", 3},
                                               {"2", 1},       {"DISTANCE_METRIC", 15},
                                               {"L2", 2},      {"w", 1},
                                               {"VECTOR", 6},  {"HNSW", 4},
                                               {"6", 1},       {"TYPE", 4},
                                               {"FLOAT32", 7}, {"DIM", 3},
                                               {"2", 1},       {"DISTANCE_METRIC", 15},
                                               {"L2", 2}};
    static const struct {
        const char *text;
        uint32_t right;
    } queries[] = {
        {"@v:[VECTOR_RANGE 0.5 $v] @w:[VECTOR_RANGE 0.5 $w]", DOCUMENTS / 2 + STILL / 2},
        {"@v:[VECTOR_RANGE 0.5 $v]=>{$yield_distance_as: a} @w:[VECTOR_RANGE 0.5 $w]=>{$yield_distance_as: b} @n:[0 "
         "+inf]",
         DOCUMENTS / 2 + STILL / 2},
        {"@v:[VECTOR_RANGE 0.5 $v] @n:[0 +inf] | @w:[VECTOR_RANGE 0.5 $w]", DOCUMENTS + STILL},
        {"-@v:[VECTOR_RANGE 0.5 $v] @w:[VECTOR_RANGE 0.5 $w] | @v:[VECTOR_RANGE 0.5 $v] -@w:[VECTOR_RANGE 0.5 $w]",
         DOCUMENTS / 2 + STILL / 2},
    };
    char *folder = support_folder_make();
    struct quire_error err = {0};
    struct document_index *index = NULL;
    struct store *store;
    struct store_report report;
    pthread_t writers[WRITERS];
    uint64_t lsn;
    (void)state;
    assert_int_equal(documents_create(&documents, &err), 0);
    struct store_host host = {
        .restore = documents_restore, .replay = documents_replay, .save = documents_save, .context = documents};
    struct store_options options = {.no_maintenance = true, .memtable_bytes = 64 << 20, .threads = 1};
    assert_int_equal(store_open(folder, &options, &host, &store, &report, &err), 0);
    assert_int_equal(documents_begin(documents, store, &err), 0);
    assert_int_equal(documents_begun(documents, &err), 0);
    if (documents_add(documents, words, sizeof words / sizeof *words, &index, &lsn, &err) < 0)
        fail_msg("%s", err.message);
    assert_int_equal(search_lane_create(QUIRE_ENGINE_AUTO, 0, 1, &lane, &err), 0);
    for (uint32_t i = 0; i < DOCUMENTS + STILL; i++)
        put(i, 0);
    for (uintptr_t i = 0; i < WRITERS; i++)
        assert_int_equal(pthread_create(&writers[i], NULL, writer, (void *)i), 0);
    unsigned n = 0, wrong = 0;
    for (; n < SEARCHES_LEAST || atomic_load(&n_writes) < WRITES_LEAST; n++) {
        unsigned which = n % (sizeof queries / sizeof *queries);
        uint64_t found = count(index, queries[which].text);
        if (found != queries[which].right && wrong++ == 0)
            print_error("%s finds %llu, not %u\n", queries[which].text, (unsigned long long)found,
                        queries[which].right);
    }
    atomic_store(&stop, true);
    for (unsigned i = 0; i < WRITERS; i++)
        pthread_join(writers[i], NULL);
    if (wrong > 0)
        fail_msg("%u of %u searches are wrong", wrong, n);
    late_ones_end(index);
    search_lane_destroy(lane);
    document_index_unref(index);
    documents_destroy(documents);
    assert_int_equal(store_close(store, &err), 0);
    support_folder_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(ranges_see_one_state)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
