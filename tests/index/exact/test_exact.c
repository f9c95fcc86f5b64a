/*
 * test_exact.c - a search of the rows that are named answers, bit for bit, what a search of all rows does.
 *
 * Every slot and metric, page graphs and lists, unit codes, rows that are dead, rows that are equal, queries that are
 * rows; parts where the device has little memory; a device that fails, memory that fails, a block that is damaged. The
 * loader of OpenCL is tests/opencl/fake_opencl.c. Without a device the tests say that they were skipped.
 */
#include "index/exact/exact.h"
#include "index/segment/segment_view.h"
#include "index/segment/selection.h"
#include "tests/index/support_parts.h"
#include "tests/index/support_spann.h"
#include "tests/opencl/fail_memory.h"
#include "tests/opencl/skip_without_device.h"
#include "tests/sanitized.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ROWS        2100u /* more than a device with tiles in local memory names at once */
#define QUERIES     SANITIZED_SIZE(16u, 12u)
#define K_MOST      100u
#define CL_MEM_FULL (-4)
#define CL_GONE     (-2)

static struct fake_opencl *fake;
static char *folder;
static struct spann_lane lane;
static struct quire_error err;

static const struct subject {
    const char *name;
    enum quire_metric metric;
    enum quire_slot slot;
    enum quire_type type;
    uint32_t dim;
    enum quire_index_kind kind;
    bool unit_codes;
} subjects[] = {
    {"f32 l2", QUIRE_METRIC_L2, QUIRE_SLOT_F32, QUIRE_TYPE_F32, 24, QUIRE_INDEX_PAGEGRAPH, false},
    {"f32 cosine", QUIRE_METRIC_COSINE, QUIRE_SLOT_F32, QUIRE_TYPE_F32, 65, QUIRE_INDEX_PAGEGRAPH, false},
    {"f32 ip", QUIRE_METRIC_IP, QUIRE_SLOT_F32, QUIRE_TYPE_F32, 40, QUIRE_INDEX_SPANN, false},
    {"f16 l2", QUIRE_METRIC_L2, QUIRE_SLOT_F16, QUIRE_TYPE_F32, 33, QUIRE_INDEX_PAGEGRAPH, false},
    {"f16 cosine", QUIRE_METRIC_COSINE, QUIRE_SLOT_F16, QUIRE_TYPE_F16, 48, QUIRE_INDEX_SPANN, false},
    {"f16 ip", QUIRE_METRIC_IP, QUIRE_SLOT_F16, QUIRE_TYPE_F32, 17, QUIRE_INDEX_PAGEGRAPH, false},
    {"bf16 l2", QUIRE_METRIC_L2, QUIRE_SLOT_BF16, QUIRE_TYPE_BF16, 31, QUIRE_INDEX_PAGEGRAPH, false},
    {"u8 l2", QUIRE_METRIC_L2, QUIRE_SLOT_U8, QUIRE_TYPE_U8, 64, QUIRE_INDEX_PAGEGRAPH, false},
    {"i8 ip", QUIRE_METRIC_IP, QUIRE_SLOT_I8, QUIRE_TYPE_I8, 50, QUIRE_INDEX_PAGEGRAPH, false},
    {"u8 cosine", QUIRE_METRIC_COSINE, QUIRE_SLOT_U8, QUIRE_TYPE_U8, 20, QUIRE_INDEX_SPANN, false},
    {"q8 l2", QUIRE_METRIC_L2, QUIRE_SLOT_Q8, QUIRE_TYPE_F32, 64, QUIRE_INDEX_PAGEGRAPH, false},
    {"q8 cosine", QUIRE_METRIC_COSINE, QUIRE_SLOT_Q8, QUIRE_TYPE_F32, 100, QUIRE_INDEX_SPANN, false},
    {"q8 ip", QUIRE_METRIC_IP, QUIRE_SLOT_Q8, QUIRE_TYPE_F32, 30, QUIRE_INDEX_PAGEGRAPH, false},
    {"unit codes", QUIRE_METRIC_COSINE, QUIRE_SLOT_Q8, QUIRE_TYPE_F32, 72, QUIRE_INDEX_PAGEGRAPH, true},
    {"unit codes in lists", QUIRE_METRIC_COSINE, QUIRE_SLOT_Q8, QUIRE_TYPE_F32, 256, QUIRE_INDEX_SPANN, true},
};

static int set_up(void **state)
{
    (void)state;
    fake = fake_opencl_install();
    folder = support_folder_make();
    spann_lane_open(&lane, QUIRE_ENGINE_AUTO, 0, 4);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    spann_lane_close(&lane);
    support_folder_remove(folder);
    return 0;
}

/* ---- subjects ---------------------------------------------------------------------------------------------------- */

struct world {
    const struct subject *subject;
    struct support_data data;
    float *queries;
    struct segment *segment;
};

/* Rows in memory with their unit codes behind them, as a collection gives them to a seal. */
struct coded {
    const struct support_data *data;
    struct rotation rotation;
    float *rotated;
    char (*keys)[16];
};

static void give_row(void *context, uint32_t i, void *vector, const void **key, uint32_t *key_bytes,
                     const char **attributes, uint32_t *attribute_bytes)
{
    struct coded *c = context;
    const float *x = c->data->floats + (size_t)i * c->data->dim;
    uint8_t *code = (uint8_t *)vector + sizeof(float) * c->data->dim;
    memcpy(vector, x, sizeof(float) * c->data->dim);
    unit_code_encode(&c->rotation, x, c->data->dim, c->rotated, code, code + c->rotation.dim);
    *key = c->keys[i];
    *key_bytes = (uint32_t)strlen(c->keys[i]);
    *attributes = NULL;
    *attribute_bytes = 0;
}

static void build_coded(const char *path, const struct support_data *data, const struct quire_build_options *options)
{
    struct coded c = {.data = data, .keys = calloc(data->rows, sizeof *c.keys)};
    uint32_t code_dim = rotation_code_dim(data->dim);
    struct merge_rows rows = {.n = data->rows,
                              .type = QUIRE_TYPE_F32,
                              .unit_codes = true,
                              .seed = options->seed,
                              .row = give_row,
                              .context = &c};
    struct merge_options merge = {.build = *options, .unit_codes = true, .type = QUIRE_TYPE_F32, .dim = data->dim};
    struct merge_result result;
    c.rotated = malloc(sizeof(float) * code_dim);
    assert_true(c.keys && c.rotated && rotation_init(&c.rotation, code_dim, options->seed) == 0);
    for (uint32_t i = 0; i < data->rows; i++)
        snprintf(c.keys[i], sizeof c.keys[i], "%u", i);
    if (merge_build(path, NULL, 0, &rows, &merge, &result, &err) < 0)
        fail_msg("merge: %s", err.message);
    merge_result_fini(&result);
    rotation_fini(&c.rotation);
    free(c.rotated);
    free(c.keys);
}

/* Clustered rows, of which some are equal; queries near rows, on rows, and far from all. */
static void make_world(struct world *w, const struct subject *subject)
{
    struct quire_build_options options = support_options(subject->metric, subject->slot);
    char *path = support_path(folder, subject->name);
    *w = (struct world){.subject = subject};
    options.index = subject->kind;
    options.block_bytes = 4096;
    support_clusters(ROWS, subject->dim, subject->type, 5, &w->data);
    size_t row_bytes = subject->dim * quire_type_bytes(subject->type);
    for (uint32_t i = 100; i < 110; i++)
        memcpy(w->data.vectors + i * row_bytes, w->data.vectors + 99 * row_bytes, row_bytes);
    support_floats(&w->data);
    w->queries = support_queries(&w->data, QUERIES, 6);
    float *last = w->queries + (size_t)(QUERIES - 1) * subject->dim;
    memcpy(w->queries, w->data.floats + (size_t)99 * subject->dim, sizeof(float) * subject->dim);
    memcpy(w->queries + subject->dim, w->data.floats + (size_t)7 * subject->dim, sizeof(float) * subject->dim);
    float *far = last - subject->dim;
    for (uint32_t i = 0; i < subject->dim; i++) {
        far[i] = i % 2 ? 1000.25f : -3;
        last[i] = 0;
    }
    if (access(path, F_OK) != 0 && subject->unit_codes)
        build_coded(path, &w->data, &options);
    else if (access(path, F_OK) != 0)
        support_build(path, &w->data, &options);
    if (segment_open(path, NULL, &w->segment, &err) < 0)
        fail_msg("%s", err.message);
    assert_true(!w->segment->params.unit_codes == !subject->unit_codes);
    free(path);
}

static void end_world(struct world *w)
{
    segment_unref(w->segment);
    free(w->queries);
    support_data_free(&w->data);
}

/* ---- searches ---------------------------------------------------------------------------------------------------- */

static struct spann_answer all, named;

static void on_done(struct search_request *request)
{
    struct spann_answer *out = request->owner;
    out->code = request->code;
    out->n = request->n_hits;
    out->stats = request->stats;
    for (uint32_t i = 0; i < request->n_hits; i++) {
        out->ids[i] = request->hits[i].id;
        out->rows[i] = request->hits[i].row;
        out->distances[i] = request->hits[i].distance;
    }
    out->error.code = 1; /* it is there */
}

static void search(struct segment *segment, const float *query, uint32_t k, const uint8_t *dead,
                   const struct selection *selection, struct spann_answer *out)
{
    struct search_request request = {.segment = segment,
                                     .query = query,
                                     .options = support_search(k, 0, 0),
                                     .dead = dead,
                                     .selection = selection,
                                     .done = on_done,
                                     .owner = out};
    request.options.exact = true;
    out->error.code = 0;
    assert_int_equal(search_start(lane.searcher, &request, &err), 0);
    while (out->error.code == 0)
        assert_true(engine_poll(lane.engine, 1, UINT64_MAX) >= 0);
    assert_int_equal(out->code, 0);
}

/* The same rows at the same distances, bit for bit. Says how many rows were named; 0: all. */
static uint32_t check_query(struct world *w, uint32_t query, uint32_t k, const uint8_t *dead, uint32_t count,
                            const uint32_t *rows)
{
    const float *q = w->queries + (size_t)query * w->data.dim;
    struct selection *selection = NULL;
    if (count == 0)
        return 0;
    assert_int_equal(selection_create_rows(w->segment, rows, count, false, &selection), 0);
    search(w->segment, q, k, dead, NULL, &all);
    search(w->segment, q, k, dead, selection, &named);
    if (named.n != all.n || memcmp(named.rows, all.rows, sizeof(uint32_t) * all.n) != 0 ||
        memcmp(named.ids, all.ids, sizeof(uint64_t) * all.n) != 0 ||
        memcmp(named.distances, all.distances, sizeof(float) * all.n) != 0)
        fail_msg("%s: query %u, k %u: %u of %u named rows are not the answer", w->subject->name, query, k, named.n,
                 count);
    assert_true(named.stats.exact && count >= k);
    selection_unref(selection);
    return count;
}

/* Names rows for all queries and holds them against searches of all rows; says how many queries had rows named. */
static unsigned check_world(struct world *w, struct exact_rows *rows, uint32_t k, const uint8_t *dead, uint64_t n_dead,
                            uint64_t *n_named)
{
    const float *queries[QUERIES];
    uint32_t most = exact_most(rows, k, n_dead), counts[QUERIES];
    uint32_t *found = malloc(sizeof *found * QUERIES * most);
    unsigned n = 0;
    struct exact_request request = {QUERIES, k, queries, dead, n_dead, most, counts, found};
    for (uint32_t q = 0; q < QUERIES; q++)
        queries[q] = w->queries + (size_t)q * w->data.dim;
    if (exact_name(rows, &request, &err) < 0)
        fail_msg("%s: %s", w->subject->name, err.message);
    for (uint32_t q = 0; q < QUERIES; q++) {
        uint32_t count = check_query(w, q, k, dead, counts[q], found + (size_t)q * most);
        n += count > 0;
        *n_named += count;
    }
    free(found);
    return n;
}

static struct offload *open_device(void)
{
    char note[512];
    struct offload *offload = offload_open("", note, sizeof note);
    assert_non_null(offload);
    return offload;
}

static uint8_t *some_dead(uint64_t seed, uint64_t *n_dead)
{
    uint8_t *dead = support_dead(ROWS, 5, seed);
    *n_dead = 0;
    for (uint32_t row = 0; row < ROWS; row++)
        *n_dead += bitmap_has(dead, row);
    return dead;
}

static void test_same_answers(void **state)
{
    static const uint32_t ks[] = {1, 10, K_MOST};
    (void)state;
    skip_without_device(fake);
    struct offload *offload = open_device();
    for (size_t i = 0; i < SUPPORT_COUNT(subjects); i++) {
        struct world w;
        struct exact_rows *rows;
        uint64_t n_dead;
        uint8_t *dead = some_dead(i, &n_dead);
        make_world(&w, &subjects[i]);
        assert_int_equal(exact_open(offload, w.segment, 0, &rows, &err), 0);
        for (size_t j = 0; j < SUPPORT_COUNT(ks); j++) {
            uint64_t n_named = 0;
            unsigned n = check_world(&w, rows, ks[j], NULL, 0, &n_named);
            n += check_world(&w, rows, ks[j], dead, n_dead, &n_named);
            if (n < QUERIES || n_named > (uint64_t)n * (ks[j] + 12))
                fail_msg("%s, k %u: rows are named for %u of %u queries only, %.1f each", w.subject->name, ks[j], n,
                         2 * QUERIES, (double)n_named / n);
        }
        assert_true(exact_bytes_held(rows) == exact_bytes(w.segment, 0));
        exact_close(rows);
        end_world(&w);
        free(dead);
    }
    offload_close(offload);
    assert_int_equal(fake->objects, 0);
}

/* Codes in the place of rows name more of them, or none, and the answers are the same. */
static void test_codes(void **state)
{
    static const uint32_t ks[] = {1, 10, K_MOST};
    (void)state;
    skip_without_device(fake);
    struct offload *offload = open_device();
    for (size_t i = 0; i < SUPPORT_COUNT(subjects); i++) {
        struct world w;
        uint64_t n_dead;
        unsigned before = 6 * QUERIES + 1;
        if (subjects[i].metric == QUIRE_METRIC_IP && subjects[i].slot != QUIRE_SLOT_Q8)
            continue; /* no distances */
        uint8_t *dead = some_dead(i, &n_dead);
        make_world(&w, &subjects[i]);
        assert_int_equal(exact_bits_for(w.segment, UINT64_MAX), 0);
        for (unsigned bits = 8; bits >= 1; bits /= 2) {
            struct exact_rows *rows;
            uint64_t n_named = 0;
            unsigned n = 0;
            bool is_less = exact_bytes(w.segment, bits) < exact_bytes(w.segment, 0); /* padding may make it more */
            assert_int_equal(exact_bits_for(w.segment, exact_bytes(w.segment, bits)), is_less ? bits : 0);
            assert_int_equal(exact_open(offload, w.segment, bits, &rows, &err), 0);
            for (size_t j = 0; j < SUPPORT_COUNT(ks); j++) {
                n += check_world(&w, rows, ks[j], NULL, 0, &n_named);
                n += check_world(&w, rows, ks[j], dead, n_dead, &n_named);
            }
            print_message("%s, %u bits: rows are named for %u of %u queries, %.1f each\n", subjects[i].name, bits, n,
                          6 * QUERIES, n ? (double)n_named / n : 0);
            assert_true(exact_bits(rows) == bits && exact_bytes_held(rows) == exact_bytes(w.segment, bits));
            if (bits == 8 && n < 4 * QUERIES)
                fail_msg("%s: 8 bits name rows of %u queries only", subjects[i].name, n);
            assert_true(n <= before + QUERIES);
            before = n;
            exact_close(rows);
        }
        end_world(&w);
        free(dead);
    }
    offload_close(offload);
    assert_int_equal(fake->objects, 0);
}

/* As many neighbours as rows, or more than live: nothing can be left out, so nothing need be named. */
static void test_all_rows(void **state)
{
    struct world w;
    struct exact_rows *rows;
    uint64_t n_named = 0;
    (void)state;
    skip_without_device(fake);
    struct offload *offload = open_device();
    make_world(&w, &subjects[0]);
    uint8_t *dead = support_dead(ROWS, 2, 3);
    assert_int_equal(exact_open(offload, w.segment, 0, &rows, &err), 0);
    assert_int_equal(check_world(&w, rows, ROWS, NULL, 0, &n_named), QUERIES);
    assert_int_equal(check_world(&w, rows, ROWS - 100, dead, ROWS / 2, &n_named), 0);
    exact_close(rows);
    offload_close(offload);
    end_world(&w);
    free(dead);
}

/* Parts that take turns, and a device that has not the memory for the smallest. */
static void test_little_memory(void **state)
{
    struct world w;
    struct exact_rows *rows;
    const struct subject subject = {"large", QUIRE_METRIC_L2,       QUIRE_SLOT_F32, QUIRE_TYPE_F32,
                                    16,      QUIRE_INDEX_PAGEGRAPH, false};
    uint64_t n_named = 0;
    bool in_parts = false, refused = false;
    (void)state;
    skip_without_device(fake);
    char *path = support_path(folder, subject.name);
    struct quire_build_options options = support_options(subject.metric, subject.slot);
    w = (struct world){.subject = &subject};
    support_clusters(7000, subject.dim, subject.type, 9, &w.data);
    w.queries = support_queries(&w.data, QUERIES, 6);
    support_build(path, &w.data, &options);
    assert_int_equal(segment_open(path, NULL, &w.segment, &err), 0);
    for (uint64_t kib = 4096; kib > 64; kib = kib * 2 / 3) {
        fake_opencl_reset(fake);
        fake->memory_bytes = kib << 10;
        struct offload *offload = open_device();
        assert_int_equal(exact_open(offload, w.segment, 0, &rows, &err), 0);
        const float *queries[QUERIES];
        uint32_t counts[QUERIES], found[QUERIES * 64];
        for (uint32_t q = 0; q < QUERIES; q++)
            queries[q] = w.queries + (size_t)q * w.data.dim;
        struct exact_request request = {QUERIES, 10, queries, NULL, 0, exact_most(rows, 10, 0), counts, found};
        int rc = exact_name(rows, &request, &err);
        if (rc == 0) {
            assert_true(check_world(&w, rows, 10, NULL, 0, &n_named) > QUERIES / 2);
            in_parts = in_parts || exact_bytes_held(rows) < exact_bytes(w.segment, 0);
        } else {
            assert_int_equal(rc, QUIRE_ENOMEM);
            refused = true;
        }
        exact_close(rows);
        offload_close(offload);
        assert_int_equal(fake->objects, 0);
    }
    assert_true(in_parts && refused);
    end_world(&w);
    free(path);
}

/* ---- failures ---------------------------------------------------------------------------------------------------- */

/* Opens all, names rows of all queries, closes all. */
static int try_all(struct world *w, unsigned bits)
{
    char note[512];
    struct exact_rows *rows = NULL;
    const float *queries[QUERIES];
    static uint32_t counts[QUERIES], found[QUERIES * ROWS];
    for (uint32_t q = 0; q < QUERIES; q++)
        queries[q] = w->queries + (size_t)q * w->data.dim;
    struct offload *offload = offload_open("", note, sizeof note);
    if (!offload) {
        assert_true(note[0]);
        return QUIRE_EUNSUPPORTED;
    }
    int rc = exact_open(offload, w->segment, bits, &rows, &err);
    if (rc == 0) {
        struct exact_request request = {QUERIES, 10, queries, NULL, 0, exact_most(rows, 10, 0), counts, found};
        rc = exact_name(rows, &request, &err);
        unsigned left = fail_in; /* for the searches nothing fails */
        fail_in = 0;
        for (uint32_t q = 0; rc == 0 && q < QUERIES; q += 5)
            check_query(w, q, 10, NULL, counts[q], found + (size_t)q * request.most);
        fail_in = left;
    }
    exact_close(rows);
    offload_close(offload);
    assert_int_equal(fake->objects, 0);
    return rc;
}

/* Every call of the device's in turn fails, for good or once: with rows, and with codes in their place. */
static void test_device_fails(void **state)
{
    (void)state;
    skip_without_device(fake);
    for (unsigned bits = 0; bits <= 4; bits += 4) {
        struct world w;
        make_world(&w, &subjects[13]);
        for (int stays = 0; stays < 2; stays++)
            for (int gone = bits ? stays : 0; gone <= (bits ? stays : 1); gone++) {
                uint32_t at = 0;
                bool through = false;
                for (; !through; at += 1 + at / 20) {
                    fake_opencl_reset(fake);
                    fake->fail_at = at + 1;
                    fake->stays = stays;
                    fake->status = gone ? CL_GONE : CL_MEM_FULL;
                    int rc = try_all(&w, bits);
                    through = fake->fail_at > 1;
                    assert_true(rc == 0 || !through);
                    assert_true(at < 1000);
                }
                assert_true(at > 20);
            }
        end_world(&w);
    }
}

static void test_memory_fails(void **state)
{
    struct world w;
    (void)state;
    if (!FAIL_MEMORY)
        skip();
    skip_without_device(fake);
    static const unsigned widths[] = {0, 0, 2};
    for (size_t i = 0; i < 3; i++) {
        make_world(&w, &subjects[i == 1 ? 13 : 0]);
        unsigned n = 1;
        for (bool through = false; !through; n++) {
            fail_in = n;
            int rc = try_all(&w, widths[i]);
            through = fail_in > 0;
            fail_in = 0;
            assert_true(rc == 0 || (!through && (rc == QUIRE_ENOMEM || rc == QUIRE_EUNSUPPORTED)));
            assert_true(n < 1000);
        }
        assert_true(n > 15);
        end_world(&w);
    }
}

/* A damaged block, and rows that a device cannot be given: the segment is the processor's, with a sentence. */
static void test_not_for_a_device(void **state)
{
    struct world w;
    struct exact_rows *rows;
    const float *query;
    uint32_t count, found[64];
    (void)state;
    skip_without_device(fake);
    struct offload *offload = open_device();
    make_world(&w, &subjects[0]);
    query = w.queries;
    uint64_t at = segment_block_offset(w.segment, 3) + 1000;
    end_world(&w);

    size_t bytes;
    char *from = support_path(folder, subjects[0].name), *to = support_path(folder, "damaged");
    char *file = support_path(to, "blocks");
    support_copy_folder(from, to);
    uint8_t *contents = support_read_file(file, &bytes);
    contents[at] ^= 1;
    support_write_file(file, contents, bytes);
    free(contents);
    assert_int_equal(segment_open(to, NULL, &w.segment, &err), 0);
    assert_int_equal(exact_open(offload, w.segment, 0, &rows, &err), 0);
    float zeros[24] = {0};
    query = zeros;
    struct exact_request request = {1, 3, &query, NULL, 0, exact_most(rows, 3, 0), &count, found};
    assert_int_equal(exact_name(rows, &request, &err), QUIRE_ECORRUPT);
    assert_non_null(strstr(err.message, "block 3"));
    assert_int_equal(exact_bytes_held(rows), 0);
    exact_close(rows);
    segment_unref(w.segment);
    free(file);
    free(from);
    free(to);

    static const float lengths[] = {1e-9f, 3e6f, 0};
    for (size_t i = 0; i < SUPPORT_COUNT(lengths); i++) {
        struct support_data data;
        bool zero = lengths[i] == 0; /* a zero vector among 8-bit codes under cosine */
        struct quire_build_options options =
            support_options(zero ? QUIRE_METRIC_COSINE : QUIRE_METRIC_L2, zero ? QUIRE_SLOT_Q8 : QUIRE_SLOT_F32);
        char name[16];
        snprintf(name, sizeof name, "odd-%zu", i);
        char *path = support_path(folder, name);
        support_clusters(300, 24, QUIRE_TYPE_F32, 5, &data);
        memset(data.vectors, 0, sizeof(float) * 24);
        memcpy(data.vectors, &lengths[i], sizeof(float));
        support_build(path, &data, &options);
        assert_int_equal(segment_open(path, NULL, &w.segment, &err), 0);
        assert_int_equal(exact_open(offload, w.segment, 0, &rows, &err), 0);
        assert_int_equal(exact_name(rows, &request, &err), QUIRE_EUNSUPPORTED);
        assert_non_null(strstr(err.message, "the processor's"));
        exact_close(rows);
        segment_unref(w.segment);
        support_data_free(&data);
        free(path);
    }
    offload_close(offload);
    assert_int_equal(fake->objects, 0);
}

/* More neighbours than a device names; and what the model counts. */
static void test_limits_and_work(void **state)
{
    struct world w;
    struct exact_rows *rows;
    struct offload_work search_work, load_work;
    const float *query;
    (void)state;
    skip_without_device(fake);
    make_world(&w, &subjects[0]);
    exact_work(w.segment, 0, 300, &search_work, &load_work);
    assert_true(search_work.products == 300ull * ROWS * 24 && search_work.kind == OFFLOAD_FLOATS);
    assert_true(search_work.bytes == 300ull * 24 * 4 && load_work.bytes == ROWS * 24ull * 4 &&
                exact_bytes(w.segment, 0) == load_work.bytes && load_work.products == 0 && load_work.prepared > 0);
    setenv("QUIRE_OPENCL_TILES", "local", 1); /* 2,048 at most */
    struct offload *offload = open_device();
    unsetenv("QUIRE_OPENCL_TILES");
    if (offload_nearest_max(offload) < ROWS) {
        uint32_t count, k = offload_nearest_max(offload) + 1, *found = malloc(sizeof *found * ROWS);
        query = w.queries;
        assert_int_equal(exact_open(offload, w.segment, 0, &rows, &err), 0);
        struct exact_request request = {1, k, &query, NULL, 0, exact_most(rows, k, 0), &count, found};
        assert_int_equal(exact_name(rows, &request, &err), QUIRE_EUNSUPPORTED);
        uint64_t n_named = 0;
        check_world(&w, rows, 10, NULL, 0, &n_named);
        assert_true(n_named > 0);
        exact_close(rows);
        free(found);
    }
    offload_close(offload);
    end_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_answers),     cmocka_unit_test(test_codes),
        cmocka_unit_test(test_all_rows),         cmocka_unit_test(test_little_memory),
        cmocka_unit_test(test_device_fails),     cmocka_unit_test(test_memory_fails),
        cmocka_unit_test(test_not_for_a_device), cmocka_unit_test(test_limits_and_work),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
