/*
 * test_library_collection.c - quire.h's live collections as a user calls them: folders, refusals, elements in memory
 * and in segments, recall of every type and metric.
 */
#include "tests/index/support_live.h"
#include "tests/sanitized.h"
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static void opens_again_whatever_the_durability(void **in)
{
    static const enum quire_durability durabilities[] = {QUIRE_DURABLE_EVERYSEC, QUIRE_DURABLE_ALWAYS,
                                                         QUIRE_DURABLE_NO};
    struct state *s = *in;
    uint32_t expected[60];
    for (unsigned d = 0; d < SUPPORT_COUNT(durabilities); d++) {
        char name[TEXT];
        snprintf(name, sizeof name, "live-%u", d);
        char *path = support_path(s->folder, name);
        struct quire_collection_options options = live_options(DIM);
        options.durability = durabilities[d];
        s->c = open_live(path, &options);
        put_some(s->c, 0, 60, 1);
        put_some(s->c, 10, 20, 2);
        remove_some(s->c, 50, 10);
        for (uint32_t i = 0; i < 60; i++)
            expected[i] = i >= 50 ? 0 : i >= 10 && i < 30 ? 2 : 1;
        for (unsigned round = 0; round < 3; round++) {
            struct quire_collection_info info = info_of(s->c);
            assert_int_equal(info.elements, 50);
            assert_int_equal(info.raw_bytes, 50 * DIM * 4);
            assert_int_equal(info.dim, DIM);
            assert_int_equal(info.type, QUIRE_TYPE_F32);
            assert_int_equal(info.metric, QUIRE_METRIC_L2);
            assert_int_equal(info.slot, QUIRE_SLOT_F32);
            assert_int_equal(info.memory_rows, 50);
            assert_true(info.memory_bytes >= 50 * DIM * 4);
            assert_int_equal(info.segments, 0);
            assert_int_equal(info.replayed_records, round ? 91 : 0); /* with the record of its making */
            assert_versions(s->c, NULL, 60, expected);
            close_live(s);
            s->c = open_live(path, round ? NULL : &options);
        }
        close_live(s);
        free(path);
    }
}

static void what_cannot_be_opened_says_why(void **in)
{
    struct state *s = *in;
    struct quire_collection_options options = live_options(DIM);
    struct quire_error err;
    char *nested = support_path(s->path, "below"), *file = support_path(s->folder, "file");
    refused_open(s->path, NULL, QUIRE_ENOFILE, "create");
    refused_open(nested, &options, QUIRE_ENOFILE, "below");
    support_write_file(file, "text", 4);
    refused_open(s->folder, NULL, QUIRE_ENOFILE, "create");
    assert_int_equal(support_count_entries(s->folder), 1); /* nothing was made there */
    assert_true(quire_collection_open(file, &options, &s->c, NULL) < 0);
    assert_int_equal(quire_collection_open(NULL, &options, &s->c, &err), QUIRE_EINVALID);
    assert_int_equal(quire_collection_open(s->path, &options, NULL, &err), QUIRE_EINVALID);
    options.struct_bytes--;
    refused_open(s->path, &options, QUIRE_EINVALID, "quire_collection_options_init");
    options = live_options(0);
    refused_open(s->path, &options, QUIRE_EDIM, "1..65536");
    options = live_options(QUIRE_DIM_MAX + 1);
    refused_open(s->path, &options, QUIRE_EDIM, "65537");
    options = live_options(DIM);
    options.type = (enum quire_type)9;
    refused_open(s->path, &options, QUIRE_EINVALID, "type 9");
    options = live_options(DIM);
    options.durability = (enum quire_durability)3;
    refused_open(s->path, &options, QUIRE_EINVALID, "durability 3");
    options = live_options(DIM);
    options.type = QUIRE_TYPE_U8;
    refused_open(s->path, &options, QUIRE_EINVALID, "u8");
    options = live_options(DIM);
    options.block_bytes = 5000;
    refused_open(s->path, &options, QUIRE_ERANGE, "5000");
    free(nested);
    free(file);
}

static void another_kind_of_vector_is_refused(void **in)
{
    struct state *s = *in;
    struct quire_collection_options options = live_options(DIM);
    s->c = open_live(s->path, &options);
    close_live(s);
    options.dim = DIM + 1;
    refused_open(s->path, &options, QUIRE_EDIM, "dimension 8, not 9");
    options = live_options(DIM);
    options.type = QUIRE_TYPE_F16;
    refused_open(s->path, &options, QUIRE_ETYPE, "f16");
    options = live_options(DIM);
    options.metric = QUIRE_METRIC_COSINE;
    refused_open(s->path, &options, QUIRE_ETYPE, "cosine");
    options = live_options(DIM);
    options.create = false;
    s->c = open_live(s->path, &options);
}

/* One handle at a time, and the refusal names the process that has the folder. */
static void a_folder_belongs_to_one_handle(void **in)
{
    struct state *s = *in;
    struct quire_collection_options options = live_options(DIM);
    char id[TEXT];
    int status = 0;
    s->c = open_live(s->path, &options);
    snprintf(id, sizeof id, "process %d:", (int)getpid());
    refused_open(s->path, &options, QUIRE_EBUSY, id);
    pid_t child = fork();
    if (child == 0) {
        struct quire_collection *c = NULL;
        struct quire_error err = {0};
        int rc = quire_collection_open(s->path, &options, &c, &err);
        _exit(rc == QUIRE_EBUSY && strstr(err.message, id) ? 0 : 1);
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    put_some(s->c, 0, 3, 1);
    close_live(s);
    s->c = open_live(s->path, NULL);
    assert_int_equal(info_of(s->c).elements, 3);
}

/* ---- refusals ---------------------------------------------------------------------------------------------------- */

static void arguments_that_are_missing_are_refused(void **in)
{
    struct state *s = *in;
    struct quire_collection_options options = live_options(DIM);
    float vector[DIM] = {1};
    struct quire_result *result = NULL;
    struct quire_snapshot *snapshot = NULL;
    s->c = open_live(s->path, &options);
    assert_int_equal(quire_put(NULL, "a", 1, vector, NULL, 0, NULL, NULL), QUIRE_EINVALID);
    assert_int_equal(quire_put(s->c, "a", 1, NULL, NULL, 0, NULL, NULL), QUIRE_EINVALID);
    assert_int_equal(quire_put(s->c, NULL, 1, vector, NULL, 0, NULL, NULL), QUIRE_ERANGE);
    assert_int_equal(quire_remove(NULL, "a", 1, NULL), QUIRE_EINVALID);
    assert_int_equal(quire_set_attributes(NULL, "a", 1, "{}", 2, NULL), QUIRE_EINVALID);
    assert_int_equal(quire_get(NULL, "a", 1, vector, NULL, NULL, NULL), QUIRE_EINVALID);
    assert_int_equal(quire_collection_search(NULL, NULL, vector, NULL, 0, &result, NULL, NULL), QUIRE_EINVALID);
    assert_int_equal(quire_collection_search(s->c, NULL, NULL, NULL, 0, &result, NULL, NULL), QUIRE_EINVALID);
    assert_int_equal(quire_collection_search(s->c, NULL, vector, NULL, 0, NULL, NULL, NULL), QUIRE_EINVALID);
    assert_int_equal(quire_snapshot_open(NULL, &snapshot, NULL), QUIRE_EINVALID);
    assert_int_equal(quire_snapshot_open(s->c, NULL, NULL), QUIRE_EINVALID);
    assert_int_equal(quire_checkpoint(NULL, NULL), QUIRE_EINVALID);
    assert_int_equal(quire_seal(NULL, NULL), QUIRE_EINVALID);
    assert_int_equal(quire_compact(NULL, NULL), QUIRE_EINVALID);
    assert_int_equal(quire_backup(NULL, "copy", NULL), QUIRE_EINVALID);
    assert_int_equal(quire_backup(s->c, NULL, NULL), QUIRE_EINVALID);
    assert_int_equal(quire_collection_close(NULL, NULL), 0);
    quire_snapshot_close(NULL);
    quire_result_free(NULL);
    assert_int_equal(info_of(s->c).elements, 0);
}

static void keys_and_attributes_have_limits(void **in)
{
    enum { ATTRIBUTES_MAX = (1 << 24) - 1 };
    struct state *s = *in;
    struct quire_collection_options options = live_options(DIM);
    struct quire_error err = {0};
    float vector[DIM] = {1};
    char *big = malloc(ATTRIBUTES_MAX + 1), *back = malloc(ATTRIBUTES_MAX + 1);
    size_t bytes = ATTRIBUTES_MAX;
    assert_non_null(big);
    assert_non_null(back);
    memset(big, 'x', ATTRIBUTES_MAX + 1);
    s->c = open_live(s->path, &options);
    assert_int_equal(quire_put(s->c, "a", 0, vector, NULL, 0, NULL, &err), QUIRE_ERANGE);
    assert_non_null(strstr(err.message, "1..65535"));
    assert_int_equal(quire_put(s->c, big, 65536, vector, NULL, 0, NULL, &err), QUIRE_ERANGE);
    assert_int_equal(quire_remove(s->c, big, 65536, &err), QUIRE_ERANGE);
    assert_int_equal(quire_get(s->c, big, 0, vector, NULL, NULL, &err), QUIRE_ERANGE);
    assert_int_equal(quire_put(s->c, "a", 1, vector, big, ATTRIBUTES_MAX + 1, NULL, &err), QUIRE_ERANGE);
    assert_int_equal(quire_set_attributes(s->c, "a", 1, big, ATTRIBUTES_MAX + 1, &err), QUIRE_ERANGE);
    assert_int_equal(info_of(s->c).elements, 0);
    assert_int_equal(quire_put(s->c, big, 65535, vector, big, ATTRIBUTES_MAX, NULL, &err), 0);
    for (unsigned round = 0; round < 2; round++) {
        bytes = ATTRIBUTES_MAX;
        assert_int_equal(quire_get(s->c, big, 65535, NULL, back, &bytes, &err), 0);
        assert_int_equal(bytes, ATTRIBUTES_MAX);
        assert_memory_equal(back, big, bytes);
        assert_int_equal(quire_seal(s->c, &err), 0);
    }
    free(big);
    free(back);
}

static void vectors_without_sense_are_refused(void **in)
{
    struct state *s = *in;
    struct quire_collection_options options = live_options(DIM);
    struct quire_search_options search;
    struct quire_result *result = NULL;
    struct quire_error err = {0};
    float vector[DIM] = {1};
    options.metric = QUIRE_METRIC_COSINE;
    s->c = open_live(s->path, &options);
    static const float wrong[] = {NAN, INFINITY, -INFINITY};
    for (unsigned i = 0; i < SUPPORT_COUNT(wrong); i++) {
        vector[3] = wrong[i];
        assert_int_equal(quire_put(s->c, "a", 1, vector, NULL, 0, NULL, &err), QUIRE_ENOTFINITE);
        assert_int_equal(quire_collection_search(s->c, NULL, vector, NULL, 0, &result, NULL, &err), QUIRE_ENOTFINITE);
    }
    assert_int_equal(info_of(s->c).elements, 0);
    vector[3] = 1;
    quire_search_options_init(&search);
    search.k = 0;
    assert_int_equal(quire_collection_search(s->c, NULL, vector, &search, 0, &result, NULL, &err), QUIRE_ERANGE);
    search.k = QUIRE_K_MAX + 1;
    assert_int_equal(quire_collection_search(s->c, NULL, vector, &search, 0, &result, NULL, &err), QUIRE_ERANGE);
    search.k = 1;
    search.recall = NAN;
    assert_int_equal(quire_collection_search(s->c, NULL, vector, &search, 0, &result, NULL, &err), QUIRE_ERANGE);
    search.recall = 0;
    search.struct_bytes = 1;
    assert_int_equal(quire_collection_search(s->c, NULL, vector, &search, 0, &result, NULL, &err), QUIRE_EINVALID);
    assert_int_equal(quire_collection_search(s->c, NULL, vector, NULL, 4, &result, NULL, &err), QUIRE_EINVALID);
    assert_null(result);
    assert_int_equal(quire_collection_search(s->c, NULL, vector, NULL, 0, &result, NULL, &err), 0);
    assert_int_equal(quire_result_count(result), 0); /* of an empty collection */
    quire_result_free(result);
    assert_int_equal(quire_get(s->c, "a", 1, vector, NULL, NULL, &err), QUIRE_ENOTFOUND);
    assert_int_equal(quire_remove(s->c, "a", 1, &err), QUIRE_ENOTFOUND);
    assert_int_equal(quire_set_attributes(s->c, "a", 1, "{}", 2, &err), QUIRE_ENOTFOUND);
}

/* ---- elements ---------------------------------------------------------------------------------------------------- */

/* An element's version and attributes (NULL: none), by every way of asking. */
static void assert_element(struct quire_collection *c, uint32_t key, uint32_t version, const char *attributes)
{
    char text[TEXT], back[TEXT] = "unchanged";
    float vector[DIM];
    size_t bytes = sizeof back, key_bytes = key_text(key, text), expected = attributes ? strlen(attributes) : 0;
    struct quire_search_options options;
    struct quire_result *result = NULL;
    struct quire_error err = {0};
    struct quire_element e;
    assert_int_equal(version_of(c, key), version);
    assert_int_equal(quire_get(c, text, key_bytes, NULL, back, &bytes, NULL), 0);
    assert_int_equal(bytes, expected);
    assert_memory_equal(back, attributes ? attributes : "unchanged", bytes);
    if (expected) {
        bytes = 0;
        vector[0] = -1;
        assert_int_equal(quire_get(c, text, key_bytes, vector, NULL, &bytes, &err), QUIRE_ELIMIT);
        assert_int_equal(bytes, expected);
        assert_true(vector[0] < 0); /* untouched */
    }
    vector_of(key, version, vector);
    quire_search_options_init(&options);
    options.k = 1;
    assert_int_equal(quire_collection_search(c, NULL, vector, &options, QUIRE_WITH_ATTRIBUTES, &result, NULL, NULL), 0);
    assert_int_equal(quire_result_count(result), 1);
    quire_result_element(result, 0, &e);
    assert_int_equal(e.key_bytes, key_bytes);
    assert_memory_equal(e.key, text, key_bytes);
    assert_true(e.distance == 0);
    assert_null(e.vector);
    assert_int_equal(e.attribute_bytes, expected);
    if (expected)
        assert_memory_equal(e.attributes, attributes, expected);
    else
        assert_null(e.attributes);
    quire_result_free(result);
}

static void elements_change_wherever_they_lie(void **in)
{
    struct state *s = *in;
    struct quire_collection_options options = live_options(DIM);
    s->c = open_live(s->path, &options);
    for (uint32_t place = IN_MEMORY; place <= MERGED; place++) {
        uint32_t k = 100 * place;
        char text[TEXT];
        float vector[DIM];
        bool was_new = false;
        size_t bytes = key_text(k, text);
        vector_of(k, 1, vector);
        assert_int_equal(quire_put(s->c, text, bytes, vector, "{\"a\":1}", 7, &was_new, NULL), 0);
        assert_true(was_new);
        put_some(s->c, k + 1, 40, 1);
        move_to(s->c, place);
        assert_element(s->c, k, 1, "{\"a\":1}");
        assert_element(s->c, k + 1, 1, NULL);
        vector_of(k, 2, vector);
        assert_int_equal(quire_put(s->c, text, bytes, vector, NULL, 0, &was_new, NULL), 0);
        assert_false(was_new);
        assert_element(s->c, k, 2, "{\"a\":1}"); /* they stay */
        move_to(s->c, place);
        assert_int_equal(put(s->c, k, 3, "{\"b\":2}", NULL), 0);
        assert_element(s->c, k, 3, "{\"b\":2}");
        move_to(s->c, place);
        assert_int_equal(put(s->c, k, 3, "", NULL), 0); /* none from now on */
        assert_element(s->c, k, 3, NULL);
        move_to(s->c, place);
        assert_int_equal(quire_set_attributes(s->c, text, bytes, "{\"c\":3}", 7, NULL), 0);
        assert_element(s->c, k, 3, "{\"c\":3}");
        move_to(s->c, place);
        assert_int_equal(quire_set_attributes(s->c, text, bytes, NULL, 99, NULL), 0);
        assert_element(s->c, k, 3, NULL);
        move_to(s->c, place);
        remove_some(s->c, k + 5, 10);
        assert_int_equal(version_of(s->c, k + 5), 0);
        assert_int_equal(quire_remove(s->c, "k5?", 3, NULL), QUIRE_ENOTFOUND);
        assert_int_equal(put(s->c, k + 5, 9, NULL, NULL), 0);
        assert_element(s->c, k + 5, 9, NULL);
        assert_int_equal(info_of(s->c).elements, (place + 1) * (41 - 9));
    }
    close_live(s);
    s->c = open_live(s->path, NULL);
    assert_int_equal(info_of(s->c).elements, 3 * (41 - 9));
    for (uint32_t place = IN_MEMORY; place <= MERGED; place++) {
        assert_element(s->c, 100 * place, 3, NULL);
        assert_element(s->c, 100 * place + 5, 9, NULL);
        assert_int_equal(version_of(s->c, 100 * place + 6), 0);
    }
}

static void keys_may_hold_any_bytes(void **in)
{
    static const size_t lengths[] = {1, 2, 3, 63, 64, 65, 255, 256, 4096, 9000, 65534, 65535};
    struct state *s = *in;
    struct quire_collection_options options = live_options(DIM);
    uint8_t *key = malloc(65535);
    assert_non_null(key);
    for (size_t i = 0; i < 65535; i++)
        key[i] = (uint8_t)(i % 3 == 0 ? 0 : i % 3 == 1 ? 0xff : i);
    s->c = open_live(s->path, &options);
    for (unsigned round = 0; round < 3; round++) {
        float vector[DIM];
        for (uint32_t i = 0; i < SUPPORT_COUNT(lengths); i++) {
            bool was_new;
            vector_of(i, round + 1, vector);
            assert_int_equal(quire_put(s->c, key, lengths[i], vector, NULL, 0, &was_new, NULL), 0);
            assert_int_equal(was_new, round == 0);
        }
        move_to(s->c, SEALED);
        for (uint32_t i = 0; i < SUPPORT_COUNT(lengths); i++) {
            assert_int_equal(quire_get(s->c, key, lengths[i], vector, NULL, NULL, NULL), 0);
            assert_true((uint32_t)vector[0] == i && (uint32_t)vector[1] == round + 1);
        }
        assert_int_equal(info_of(s->c).elements, SUPPORT_COUNT(lengths));
    }
    free(key);
}

/* ---- recall ------------------------------------------------------------------------------------------------------ */

enum { ROWS = 600, FIRST_ROWS = 350, WIDE = 24, QUERIES = 20, K = 10 };

/* Mean recall of searches over the first n rows, whose keys are their numbers; hits are counted by their distance. */
static double recall_of(struct quire_collection *c, enum quire_metric metric, const struct support_data *data,
                        uint32_t n, const float *queries, bool exact)
{
    double sum = 0;
    struct quire_search_options options = support_search(K, exact ? 0 : 0.95f, 0);
    options.exact = exact;
    for (uint32_t q = 0; q < QUERIES; q++) {
        const float *query = queries + (size_t)q * WIDE;
        struct quire_hit hits[K];
        struct quire_result *result = NULL;
        struct quire_search_stats stats;
        struct quire_error err = {0};
        if (quire_collection_search(c, NULL, query, &options, 0, &result, &stats, &err) < 0)
            fail_msg("search: %s", err.message);
        assert_int_equal(quire_result_count(result), K);
        assert_int_equal(stats.exact, exact);
        assert_true(stats.complete && stats.rows_scored >= K);
        for (uint32_t i = 0; i < K; i++) {
            struct quire_element e;
            char text[TEXT] = "";
            quire_result_element(result, i, &e);
            memcpy(text, e.key, e.key_bytes < TEXT ? e.key_bytes : 0);
            hits[i] = (struct quire_hit){.id = strtoull(text + 1, NULL, 10), .distance = e.distance};
            assert_true(hits[i].id < n);
            double truth = support_distance(metric, query, data->floats + hits[i].id * WIDE, WIDE);
            double scale = metric == QUIRE_METRIC_COSINE ? 1 : fabs(truth) + 1;
            assert_true(fabs(truth - (double)e.distance) < 0.1 * scale);
            assert_true(i == 0 || hits[i].distance >= hits[i - 1].distance);
        }
        sum += support_recall(metric, data->floats, n, WIDE, query, K, hits, K);
        quire_result_free(result);
    }
    return sum / QUERIES;
}

static void assert_recall(struct quire_collection *c, enum quire_metric metric, const struct support_data *data,
                          uint32_t n, const float *queries)
{
    double exact = recall_of(c, metric, data, n, queries, true), usual = recall_of(c, metric, data, n, queries, false);
    if (exact < 0.93 || usual < 0.9)
        fail_msg("%s under %s, %u rows: recall %.3f exact, %.3f as usual", quire_type_name(data->type),
                 quire_metric_name(metric), n, exact, usual);
}

static void put_rows(struct quire_collection *c, const struct support_data *data, uint32_t first, uint32_t n)
{
    for (uint32_t i = first; i < first + n; i++) {
        char text[TEXT];
        struct quire_error err = {0};
        size_t bytes = key_text(i, text), row_bytes = WIDE * quire_type_bytes(data->type);
        if (quire_put(c, text, bytes, data->vectors + i * row_bytes, NULL, 0, NULL, &err) < 0)
            fail_msg("put: %s", err.message);
    }
}

static void every_type_and_metric_is_found_again(void **in)
{
    struct state *s = *in;
    for (unsigned combination = 0; combination < 30; combination++) {
        enum quire_metric metric = (enum quire_metric)(combination % 3);
        enum quire_type type = (enum quire_type)(combination / 3 % 5);
        enum quire_index_kind kind = combination < 15 ? QUIRE_INDEX_AUTO : QUIRE_INDEX_SPANN;
        struct quire_collection_options options = live_options(WIDE);
        struct support_data data;
        char name[TEXT];
        snprintf(name, sizeof name, "live-%u", combination);
        char *path = support_path(s->folder, name);
        support_clusters(ROWS, WIDE, type, 11, &data);
        float *queries = support_queries(&data, QUERIES, 12);
        options.type = type;
        options.metric = metric;
        options.slot = QUIRE_SLOT_AUTO;
        options.index = kind;
        s->c = open_live(path, &options);
        assert_int_equal(info_of(s->c).index, kind == QUIRE_INDEX_AUTO ? QUIRE_INDEX_PAGEGRAPH : kind);
        put_rows(s->c, &data, 0, FIRST_ROWS);
        assert_recall(s->c, metric, &data, FIRST_ROWS, queries);
        move_to(s->c, SEALED);
        assert_int_equal(info_of(s->c).memory_rows, 0);
        assert_recall(s->c, metric, &data, FIRST_ROWS, queries);
        put_rows(s->c, &data, FIRST_ROWS, ROWS - FIRST_ROWS);
        put_rows(s->c, &data, 100, 100); /* again, in memory from now on */
        assert_recall(s->c, metric, &data, ROWS, queries);
        move_to(s->c, MERGED);
        assert_int_equal(info_of(s->c).segments, 1);
        assert_int_equal(info_of(s->c).segment_rows, ROWS);
        assert_int_equal(info_of(s->c).dead_rows, 0);
        assert_recall(s->c, metric, &data, ROWS, queries);
        close_live(s);
        free(queries);
        support_data_free(&data);
        free(path);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(opens_again_whatever_the_durability),
        TEST(what_cannot_be_opened_says_why),
        TEST(another_kind_of_vector_is_refused),
        TEST(a_folder_belongs_to_one_handle),
        TEST(arguments_that_are_missing_are_refused),
        TEST(keys_and_attributes_have_limits),
        TEST(vectors_without_sense_are_refused),
        TEST(elements_change_wherever_they_lie),
        TEST(keys_may_hold_any_bytes),
        TEST(every_type_and_metric_is_found_again),
    };
    return cmocka_run_group_tests_name("live collections of the library", tests, NULL, NULL);
}
