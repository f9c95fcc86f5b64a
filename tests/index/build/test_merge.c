/*
 * test_merge.c - what goes into a merge comes out of it: each living row once, where rows_of says, with its vector, key
 * and attributes, and found by searches as in an index that is built anew.
 *
 * Every result is checked by quire_verify, scanned row by row and searched against brute force over the vectors that
 * went in.
 */
#include "index/segment/segment_view.h"
#include "tests/index/support_parts.h"
#include "tests/sanitized.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define PARTS_MAX 4u
#define QUERIES   60u

static enum quire_index_kind kind; /* that the group of tests is run with */

/* A merge of some parts, the last `in_memory` of which are rows. */
struct scene {
    struct support_part parts[PARTS_MAX];
    uint8_t *dead[PARTS_MAX];
    struct segment *segments[PARTS_MAX];
    uint32_t n, n_segments;
    struct merge_options options;
    char *folder, *path;
};

static struct merge_options merge_options(enum quire_metric metric, enum quire_slot slot, enum quire_type type,
                                          uint32_t dim)
{
    struct merge_options options = {.build = support_options(metric, slot), .type = type, .dim = dim};
    options.build.index = kind;
    return options;
}

static void scene_make(struct scene *s, const struct merge_options *options, uint32_t n_segments, bool in_memory,
                       const uint32_t *rows, uint32_t dead_every)
{
    *s = (struct scene){.options = *options, .n_segments = n_segments, .n = n_segments + in_memory};
    s->folder = support_folder_make();
    s->path = support_path(s->folder, "merged");
    for (uint32_t p = 0; p < s->n; p++) {
        char name[16];
        snprintf(name, sizeof name, "part%u", p);
        /* one seed: the parts share their clusters' distribution, not their vectors */
        support_part_make(&s->parts[p], name, rows[p], options->dim, options->type, 100 + p, p == 1, p != 1);
        if (p >= n_segments)
            continue;
        char *path = support_path(s->folder, name);
        s->segments[p] = support_part_segment(&s->parts[p], path, &options->build, true);
        s->dead[p] = dead_every ? support_dead(rows[p], dead_every, 55 + p) : NULL;
        free(path);
    }
}

static void scene_free(struct scene *s)
{
    for (uint32_t p = 0; p < s->n; p++) {
        segment_unref(s->segments[p]);
        free(s->dead[p]);
        support_part_free(&s->parts[p]);
    }
    free(s->path);
    support_folder_remove(s->folder);
}

static int scene_merge(struct scene *s, struct merge_result *result, struct quire_error *err)
{
    struct merge_segment segments[PARTS_MAX];
    struct merge_rows rows;
    for (uint32_t p = 0; p < s->n_segments; p++)
        segments[p] = (struct merge_segment){s->segments[p], s->dead[p]};
    if (s->n > s->n_segments)
        rows = support_part_rows(&s->parts[s->n_segments]);
    return merge_build(s->path, segments, s->n_segments, s->n > s->n_segments ? &rows : NULL, &s->options, result, err);
}

/* ---- looking at the result --------------------------------------------------------------------------------------- */

/* Where each row of the result came from, by rows_of, and its original vector. */
struct origin {
    const struct scene *scene;
    uint32_t *part, *row; /* of the part's data; part UINT32_MAX: of none */
    float *floats;        /* rows x dim */
    double error_max, error;
    uint32_t n;
};

/* What a segment has in its rows: the row of its input. */
static int take_id(void *context, const struct scanned_row *row)
{
    uint32_t *ids = context;
    ids[row->row] = (uint32_t)row->id;
    return 0;
}

static void trace(const struct scene *s, const struct merge_result *result, struct origin *o)
{
    uint32_t dim = s->options.dim;
    *o = (struct origin){.scene = s};
    o->part = malloc(sizeof *o->part * (result->rows + 1));
    o->row = malloc(sizeof *o->row * (result->rows + 1));
    o->floats = malloc(sizeof(float) * (result->rows + 1) * dim);
    assert_true(o->part && o->row && o->floats);
    memset(o->part, 0xff, sizeof *o->part * (result->rows + 1));
    for (uint32_t p = 0; p < s->n; p++) {
        const struct support_data *data = &s->parts[p].data;
        uint32_t *ids = malloc(sizeof *ids * data->rows);
        struct quire_error err;
        assert_non_null(ids);
        for (uint32_t i = 0; i < data->rows; i++)
            ids[i] = i;
        if (s->segments[p])
            assert_int_equal(segment_scan(s->segments[p], NULL, take_id, NULL, ids, &err), 0);
        for (uint32_t i = 0; i < data->rows; i++) {
            uint32_t to = result->rows_of[p][i];
            bool dead = s->dead[p] && bitmap_has(s->dead[p], i);
            assert_true(dead == (to == UINT32_MAX));
            if (dead)
                continue;
            assert_true(to < result->rows && o->part[to] == UINT32_MAX);
            o->part[to] = p;
            o->row[to] = ids[i];
            memcpy(o->floats + (size_t)to * dim, data->floats + (size_t)ids[i] * dim, sizeof(float) * dim);
        }
        free(ids);
    }
}

static int on_row(void *context, const struct scanned_row *row)
{
    struct origin *o = context;
    const struct scene *s = o->scene;
    assert_true(o->part[row->row] < s->n);
    const struct support_part *part = &s->parts[o->part[row->row]];
    uint32_t at = o->row[row->row], dim = s->options.dim;
    assert_int_equal(row->key_bytes, part->key_bytes[at]);
    assert_memory_equal(row->key, part->keys[at], row->key_bytes);
    const char *attributes = part->attributes ? part->attributes[at] : NULL;
    assert_true(!attributes == !row->attributes);
    if (attributes) {
        assert_int_equal(row->attribute_bytes, part->attribute_bytes[at]);
        assert_memory_equal(row->attributes, attributes, row->attribute_bytes);
    }
    double error = support_stored_error(row->vector, o->floats + (size_t)row->row * dim, dim,
                                        s->options.build.metric == QUIRE_METRIC_COSINE);
    o->error_max = fmax(o->error_max, error);
    o->error += error;
    o->n++;
    return 0;
}

static void on_finding(void *context, const char *sentence)
{
    (void)context;
    print_message("%s\n", sentence);
}

static void assert_verified(const char *path, uint64_t rows)
{
    struct quire_verify_report report;
    struct quire_error err;
    assert_int_equal(quire_verify(path, on_finding, NULL, NULL, &report, &err), 0);
    assert_int_equal(report.rows, rows);
    assert_int_equal(report.rows_reachable, rows);
    assert_int_equal(report.findings, 0);
}

/* A curve per k, ascending in effort and never falling, to a recall that is worth asking for; of estimates as well, in
 * brief of one k. */
static void assert_calibrated(const char *path)
{
    struct quire_calibration_point points[256];
    struct quire_index *index = support_open(path, NULL);
    uint32_t n = quire_calibration(index, points, 256), curves[2] = {0};
    assert_true(n > 0 && n < 256);
    for (uint32_t i = 0; i < n; i++) {
        bool begins = i == 0 || points[i].k != points[i - 1].k || points[i].distance != points[i - 1].distance;
        bool ends = i + 1 == n || points[i + 1].k != points[i].k || points[i + 1].distance != points[i].distance;
        curves[points[i].distance] += begins;
        assert_true(begins || points[i].effort > points[i - 1].effort);
        assert_true(begins || points[i].recall >= points[i - 1].recall);
        assert_true(points[i].reads > 0 || points[i].distance == QUIRE_DISTANCE_ESTIMATE);
        assert_true(!begins || points[i].effort <= 16);
        assert_true(!ends || points[i].recall > 0.9f);
    }
    assert_int_equal(curves[QUIRE_DISTANCE_EXACT], 3);
    assert_true(curves[QUIRE_DISTANCE_ESTIMATE] == 3 || curves[QUIRE_DISTANCE_ESTIMATE] == 1);
    quire_close(index);
}

/* Mean recall of QUERIES near the living rows at recall 0.95. floats: by row of the index. */
static double recall_of(const char *path, const float *floats, uint32_t rows, uint32_t dim, enum quire_metric metric)
{
    uint32_t k = rows < 10 ? rows : 10, n_hits;
    struct quire_search_options options = support_search(k, 0.95f, 0);
    struct quire_index *index = support_open(path, NULL);
    struct quire_hit hits[10];
    struct quire_error err;
    double sum = 0;
    struct support_data data = {.rows = rows, .dim = dim, .type = QUIRE_TYPE_F32, .floats = (float *)(uintptr_t)floats};
    float *queries = support_queries(&data, QUERIES, 77);
    for (uint32_t q = 0; q < QUERIES; q++) {
        const float *query = queries + (size_t)q * dim;
        assert_int_equal(quire_search(index, query, &options, hits, &n_hits, NULL, &err), 0);
        assert_int_equal(n_hits, k);
        for (uint32_t i = 0; i < n_hits; i++)
            hits[i].id = hits[i].row;
        sum += support_recall(metric, floats, rows, dim, query, k, hits, n_hits);
    }
    free(queries);
    quire_close(index);
    return sum / QUERIES;
}

/* The living rows of the first segment, if it is of the kind that is made and they are half of it and half of all. */
static uint64_t rows_to_reuse(const struct scene *s, uint64_t rows)
{
    uint32_t living = 0, all = s->n_segments ? s->parts[0].data.rows : 0;
    if (s->n_segments && segment_info(s->segments[0])->index != s->options.build.index)
        return 0;
    for (uint32_t i = 0; i < all; i++)
        living += !(s->dead[0] && bitmap_has(s->dead[0], i));
    return 2 * (uint64_t)living >= rows && 2 * living >= all ? living : 0;
}

/* Merges, and checks everything about the result. Returns the recall. */
static double merge_and_prove(struct scene *s, double error_max)
{
    struct merge_result result;
    struct quire_error err;
    struct origin o;
    int rc = scene_merge(s, &result, &err);
    if (rc < 0)
        fail_msg("merge: %s", err.message);
    assert_int_equal(result.n_parts, s->n);
    assert_int_equal(result.reused_rows, rows_to_reuse(s, result.rows));
    trace(s, &result, &o);
    struct segment *merged = support_segment(s->path);
    assert_int_equal(segment_info(merged)->rows, result.rows);
    assert_int_equal(segment_info(merged)->type, s->options.type);
    assert_int_equal(segment_info(merged)->index, s->options.build.index);
    assert_int_equal(segment_scan(merged, NULL, on_row, NULL, &o, &err), 0);
    assert_int_equal(o.n, result.rows);
    if (o.error_max > error_max)
        fail_msg("a stored vector is %.4f from what went in, more than %.4f", o.error_max, error_max);
    segment_unref(merged);
    assert_verified(s->path, result.rows);
    if (result.rows >= 1000)
        assert_calibrated(s->path);
    double recall = recall_of(s->path, o.floats, (uint32_t)result.rows, s->options.dim, s->options.build.metric);
    free(o.part);
    free(o.row);
    free(o.floats);
    merge_result_fini(&result);
    assert_int_equal(support_count_entries(s->folder), s->n_segments + 1);
    return recall;
}

/* ---- seals ------------------------------------------------------------------------------------------------------- */

/* Rows of memory alone, calibrated like that. Returns how many queries were asked. */
static uint64_t seal_and_prove(bool brief, const struct segment *like)
{
    const uint32_t rows[] = {6000};
    uint64_t asked = 0;
    struct merge_options options = merge_options(QUIRE_METRIC_COSINE, QUIRE_SLOT_AUTO, QUIRE_TYPE_F32, 24);
    options.build.calibration_queries = 0;
    options.brief = brief;
    options.like = like;
    options.build.progress = support_note_asked;
    options.build.context = &asked;
    struct scene s;
    scene_make(&s, &options, 0, true, rows, 0);
    double recall = merge_and_prove(&s, 0.03);
    if (recall < 0.93)
        fail_msg("brief %d like %d: recall %.3f", brief, like != NULL, recall);
    scene_free(&s);
    return asked;
}

/* In brief: much fewer queries; by the curves of a segment of like rows fewer yet (that of estimates is short, and
 * measured again); the recall that is asked for comes from each. */
static void seals_are_calibrated_in_brief(void **state)
{
    (void)state;
    struct merge_options options = merge_options(QUIRE_METRIC_COSINE, QUIRE_SLOT_AUTO, QUIRE_TYPE_F32, 24);
    options.build.calibration_queries = 0;
    const uint32_t rows[] = {5000};
    struct scene other;
    scene_make(&other, &options, 1, false, rows, 0);
    uint64_t full = seal_and_prove(false, NULL), brief = seal_and_prove(true, NULL);
    uint64_t alike = seal_and_prove(true, other.segments[0]);
    if (full == 0 || brief == 0 || alike == 0 || 2 * brief > full || 6 * alike > 5 * brief)
        fail_msg("queries: %llu, in brief %llu, with a curve %llu", (unsigned long long)full, (unsigned long long)brief,
                 (unsigned long long)alike);
    scene_free(&other);
}

/* ---- kinds ------------------------------------------------------------------------------------------------------- */

static void merges_every_type_and_metric(void **state)
{
    (void)state;
    const uint32_t rows[] = {700, 150, 100};
    for (int metric = QUIRE_METRIC_L2; metric <= QUIRE_METRIC_IP; metric++)
        for (int type = QUIRE_TYPE_F32; type <= QUIRE_TYPE_BF16; type++) {
            if (SANITIZED && (metric + type) % 3 != 0) /* each metric, each type */
                continue;
            struct merge_options options =
                merge_options((enum quire_metric)metric, QUIRE_SLOT_AUTO, (enum quire_type)type, 24);
            struct scene s;
            scene_make(&s, &options, 2, true, rows, 5);
            double recall = merge_and_prove(&s, 0.03);
            if (recall < 0.9)
                fail_msg("metric %d type %d: recall %.3f", metric, type, recall);
            scene_free(&s);
        }
}

static void keeps_exact_slots_exactly(void **state)
{
    (void)state;
    static const struct {
        enum quire_type type;
        enum quire_slot slot;
    } kinds[] = {{QUIRE_TYPE_F32, QUIRE_SLOT_F32}, {QUIRE_TYPE_U8, QUIRE_SLOT_AUTO},   {QUIRE_TYPE_I8, QUIRE_SLOT_AUTO},
                 {QUIRE_TYPE_F16, QUIRE_SLOT_F16}, {QUIRE_TYPE_BF16, QUIRE_SLOT_BF16}, {QUIRE_TYPE_U8, QUIRE_SLOT_F16}};
    const uint32_t rows[] = {500, 100};
    for (size_t i = 0; i < SUPPORT_COUNT(kinds); i++)
        for (int metric = QUIRE_METRIC_L2; metric <= QUIRE_METRIC_COSINE; metric++) {
            if (SANITIZED && (metric + (int)i) % 2 != 0)
                continue;
            struct merge_options options = merge_options((enum quire_metric)metric, kinds[i].slot, kinds[i].type, 24);
            struct scene s;
            scene_make(&s, &options, 1, true, rows, 4);
            merge_and_prove(&s, 1e-6);
            scene_free(&s);
        }
}

static void merges_sizes_of_all_sorts(void **state)
{
    (void)state;
    static const struct {
        uint32_t n_segments;
        bool in_memory;
        uint32_t rows[PARTS_MAX], dead_every;
    } cases[] = {
        {0, true, {1}, 0},     {0, true, {3000}, 0},       {1, false, {1}, 0},      {1, true, {1, 1}, 0},
        {1, false, {2000}, 3}, {2, false, {2500, 100}, 3}, {1, true, {30, 900}, 2}, {3, true, {1500, 300, 300, 64}, 4},
    };
    for (size_t i = 0; i < SUPPORT_COUNT(cases); i++) {
        struct merge_options options = merge_options(QUIRE_METRIC_COSINE, QUIRE_SLOT_AUTO, QUIRE_TYPE_F32, 32);
        struct scene s;
        scene_make(&s, &options, cases[i].n_segments, cases[i].in_memory, cases[i].rows, cases[i].dead_every);
        double recall = merge_and_prove(&s, 0.03);
        if (recall < 0.9)
            fail_msg("case %zu: recall %.3f", i, recall);
        scene_free(&s);
    }
}

/* Segments of the other kind, which a collection that has taken a foreign index over merges with its own. */
static void makes_the_kind_that_is_asked_for(void **state)
{
    (void)state;
    const uint32_t rows[] = {2000, 500};
    for (int change = 0; change < 2; change++) {
        struct merge_options options = merge_options(QUIRE_METRIC_COSINE, QUIRE_SLOT_AUTO, QUIRE_TYPE_F32, 32);
        struct scene s;
        scene_make(&s, &options, change ? 2 : 1, !change, rows, 5);
        s.options.build.index = kind == QUIRE_INDEX_SPANN ? QUIRE_INDEX_PAGEGRAPH : QUIRE_INDEX_SPANN;
        assert_true(merge_and_prove(&s, 0.03) >= 0.9);
        scene_free(&s);
    }
}

static void without_living_rows_there_is_no_folder(void **state)
{
    (void)state;
    const uint32_t rows[] = {100, 50};
    struct merge_options options = merge_options(QUIRE_METRIC_L2, QUIRE_SLOT_AUTO, QUIRE_TYPE_F32, 8);
    struct merge_result result;
    struct quire_error err;
    struct scene s;
    scene_make(&s, &options, 2, false, rows, 1);
    assert_int_equal(scene_merge(&s, &result, &err), 0);
    assert_int_equal(result.rows, 0);
    assert_int_equal(result.n_parts, 2);
    for (uint32_t p = 0; p < 2; p++)
        for (uint32_t i = 0; i < rows[p]; i++)
            assert_int_equal(result.rows_of[p][i], UINT32_MAX);
    merge_result_fini(&result);
    assert_int_equal(support_count_entries(s.folder), 2);
    scene_free(&s);
}

static void merges_duplicates(void **state)
{
    (void)state;
    const uint32_t rows[] = {1200, 300};
    struct merge_options options = merge_options(QUIRE_METRIC_L2, QUIRE_SLOT_AUTO, QUIRE_TYPE_U8, 16);
    struct scene s;
    scene_make(&s, &options, 0, true, rows, 0);
    size_t bytes = s.parts[0].data.dim;
    for (uint32_t i = 1; i < 1200; i++) /* eight different vectors */
        memcpy(s.parts[0].data.vectors + i * bytes, s.parts[0].data.vectors + i % 8 * bytes, bytes);
    support_floats(&s.parts[0].data);
    s.segments[0] = support_part_segment(&s.parts[0], s.path, &options.build, true);
    free(s.path);
    s.path = support_path(s.folder, "again");
    support_part_make(&s.parts[1], "more", 300, 16, QUIRE_TYPE_U8, 8, false, false);
    for (uint32_t i = 0; i < 300; i++)
        memcpy(s.parts[1].data.vectors + i * bytes, s.parts[0].data.vectors + i % 3 * bytes, bytes);
    support_floats(&s.parts[1].data);
    s.n_segments = 1;
    s.n = 2;
    merge_and_prove(&s, 0);
    scene_free(&s);
}

/* A segment without keys of the user's brings its numbers as keys. */
static void numbers_become_keys(void **state)
{
    (void)state;
    char *folder = support_folder_make(), *path = support_path(folder, "plain"), *to = support_path(folder, "merged");
    struct support_part part;
    struct merge_options options = merge_options(QUIRE_METRIC_L2, QUIRE_SLOT_AUTO, QUIRE_TYPE_F32, 16);
    struct merge_result result;
    struct quire_error err;
    uint32_t row;
    support_part_make(&part, "p", 400, 16, QUIRE_TYPE_F32, 2, false, false);
    struct segment *segment = support_part_segment(&part, path, &options.build, false);
    uint32_t ids[400];
    assert_int_equal(segment_scan(segment, NULL, take_id, NULL, ids, &err), 0);
    struct merge_segment segments[] = {{segment, NULL}};
    assert_int_equal(merge_build(to, segments, 1, NULL, &options, &result, &err), 0);
    struct quire_index *index = support_open(to, NULL);
    for (uint32_t i = 0; i < 400; i++) {
        char key[16];
        size_t bytes = (size_t)snprintf(key, sizeof key, "%u", ids[i]);
        assert_int_equal(quire_lookup(index, key, bytes, &row, &err), 0);
        assert_int_equal(row, result.rows_of[0][i]);
    }
    quire_close(index);
    merge_result_fini(&result);
    segment_unref(segment);
    support_part_free(&part);
    free(path);
    free(to);
    support_folder_remove(folder);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static void merges_under_a_budget(void **state)
{
    (void)state;
    const uint32_t rows[] = {5200, 600};
    struct merge_options options = merge_options(QUIRE_METRIC_COSINE, QUIRE_SLOT_AUTO, QUIRE_TYPE_F32, 512);
    struct scene s;
    if (SANITIZED && kind == QUIRE_INDEX_SPANN)
        skip();                                   /* once: the memory is that of the rows, whatever the kind */
    options.build.build_memory_bytes = 32u << 20; /* a quarter of it does not hold 9 MB of vectors */
    scene_make(&s, &options, 0, true, rows + 1, 0);
    struct support_part more = s.parts[0];
    support_part_make(&s.parts[0], "first", rows[0], 512, QUIRE_TYPE_F32, 4, false, true);
    struct quire_build_options plain = options.build;
    plain.build_memory_bytes = 0;
    char *path = support_path(s.folder, "first");
    s.segments[0] = support_part_segment(&s.parts[0], path, &plain, true);
    free(path);
    s.dead[0] = support_dead(rows[0], 4, 6);
    s.parts[1] = more;
    s.n_segments = 1;
    s.n = 2;
    assert_true(merge_and_prove(&s, 0.03) > 0.9);
    scene_free(&s);
}

/* ---- stopping ---------------------------------------------------------------------------------------------------- */

struct stop {
    char phase[40];
    unsigned phases, stop_at;
};

static int on_progress(void *context, const char *phase, uint64_t done, uint64_t total)
{
    struct stop *stop = context;
    assert_true(total == 0 || done <= total);
    if (strcmp(stop->phase, phase) != 0) {
        snprintf(stop->phase, sizeof stop->phase, "%s", phase);
        stop->phases++;
    }
    return stop->phases == stop->stop_at;
}

static void cancelled_it_leaves_nothing(void **state)
{
    (void)state;
    const uint32_t rows[] = {1200, 100};
    struct merge_options options = merge_options(QUIRE_METRIC_L2, QUIRE_SLOT_AUTO, QUIRE_TYPE_F32, 16);
    struct scene s;
    struct merge_result result;
    struct quire_error err;
    struct stop stop = {.stop_at = 0};
    options.build.threads = 1;
    scene_make(&s, &options, 1, true, rows, 5);
    s.options.build.progress = on_progress;
    s.options.build.context = &stop;
    int rc = QUIRE_ECANCELLED;
    for (unsigned at = 1; rc == QUIRE_ECANCELLED; at++) {
        stop = (struct stop){.stop_at = at};
        rc = scene_merge(&s, &result, &err);
        if (rc == QUIRE_ECANCELLED) {
            assert_int_equal(support_count_entries(s.folder), 1);
            assert_int_equal(err.code, QUIRE_ECANCELLED);
        }
        assert_true(at < 30);
    }
    assert_int_equal(rc, 0);
    assert_true(stop.phases >= 12);
    merge_result_fini(&result);
    scene_free(&s);
}

/* ---- errors ------------------------------------------------------------------------------------------------------ */

static void names_what_it_cannot_merge(void **state)
{
    (void)state;
    const uint32_t rows[] = {600, 100};
    struct merge_options options = merge_options(QUIRE_METRIC_L2, QUIRE_SLOT_AUTO, QUIRE_TYPE_F32, 16);
    struct merge_result result;
    struct quire_error err;
    struct scene s;
    scene_make(&s, &options, 1, true, rows, 0);

    s.options.dim = 15;
    assert_int_equal(scene_merge(&s, &result, &err), QUIRE_EINVALID);
    assert_non_null(strstr(err.message, "16 dimensions"));
    s.options.dim = 16;
    s.options.build.metric = QUIRE_METRIC_COSINE;
    assert_int_equal(scene_merge(&s, &result, &err), QUIRE_EINVALID);
    assert_non_null(strstr(err.message, "cosine"));
    s.options.build.metric = QUIRE_METRIC_L2;

    assert_int_equal(mkdir(s.path, 0755), 0);
    assert_int_equal(scene_merge(&s, &result, &err), QUIRE_EEXISTS);
    assert_int_equal(rmdir(s.path), 0);

    char *key = s.parts[1].keys[7]; /* two living rows of one key */
    s.parts[1].keys[7] = s.parts[0].keys[8];
    s.parts[1].key_bytes[7] = s.parts[0].key_bytes[8];
    assert_int_equal(scene_merge(&s, &result, &err), QUIRE_EEXISTS);
    assert_non_null(strstr(err.message, s.parts[0].keys[8]));
    s.parts[1].keys[7] = key;
    s.parts[1].key_bytes[7] = (uint32_t)strlen(key);

    char *segment = support_path(s.folder, "part0"), *blocks = support_path(segment, BLOCKS_NAME);
    size_t bytes;
    uint8_t *data = support_read_file(blocks, &bytes);
    data[segment_block_offset(s.segments[0], 1) + 700] ^= 1;
    support_write_file(blocks, data, bytes);
    assert_int_equal(scene_merge(&s, &result, &err), QUIRE_ECORRUPT);
    assert_non_null(strstr(err.message, "block 1 of"));
    assert_non_null(strstr(err.message, blocks));
    assert_int_equal(support_count_entries(s.folder), 1);
    free(data);
    free(segment);
    free(blocks);
    scene_free(&s);
}

/* ---- drift ------------------------------------------------------------------------------------------------------- */

static int take_vector(void *context, const struct scanned_row *row)
{
    const struct scanned_row *to = context;
    memcpy((float *)(uintptr_t)to->vector + (size_t)row->row * to->key_bytes, row->vector,
           sizeof(float) * to->key_bytes);
    return 0;
}

/* Root mean square error of the stored vectors, in lengths; home[i]: row of original i. */
static double stored_error(struct segment *segment, const struct support_data *data, const uint32_t *home)
{
    struct scanned_row to = {.key_bytes = data->dim};
    struct quire_error err;
    float *vectors = malloc(sizeof(float) * segment_info(segment)->rows * data->dim);
    double sum = 0;
    assert_non_null(vectors);
    to.vector = vectors;
    assert_int_equal(segment_scan(segment, NULL, take_vector, NULL, &to, &err), 0);
    for (uint32_t i = 0; i < data->rows; i++) {
        double error = support_stored_error(vectors + (size_t)home[i] * data->dim, data->floats + (size_t)i * data->dim,
                                            data->dim, true);
        sum += error * error;
    }
    free(vectors);
    return sqrt(sum / data->rows);
}

/* Each merge rounds 8-bit codes again, relative to other centres; ten of them add up like independent errors do. */
static void ten_merges_hardly_move_a_vector(void **state)
{
    (void)state;
    char *folder = support_folder_make();
    struct merge_options options = merge_options(QUIRE_METRIC_COSINE, QUIRE_SLOT_AUTO, QUIRE_TYPE_F32, 64);
    struct support_part first;
    struct quire_error err;
    support_part_make(&first, "first", SANITIZED_SIZE(2000, 1000), 64, QUIRE_TYPE_F32, 1, false, false);
    char *path = support_path(folder, "0");
    struct segment *segment = support_part_segment(&first, path, &options.build, true);
    free(path);
    uint32_t *home = malloc(sizeof *home * first.data.rows), *ids = malloc(sizeof *ids * first.data.rows);
    assert_true(home && ids);
    assert_int_equal(segment_scan(segment, NULL, take_id, NULL, ids, &err), 0);
    for (uint32_t i = 0; i < first.data.rows; i++)
        home[ids[i]] = i;
    double before = stored_error(segment, &first.data, home), after = 0;
    for (unsigned round = 1; round <= SANITIZED_SIZE(10, 4); round++) {
        struct support_part more;
        struct merge_result result;
        char name[8], key[16];
        snprintf(name, sizeof name, "%u", round);
        snprintf(key, sizeof key, "round%u", round);
        support_part_make(&more, key, SANITIZED_SIZE(200, 100), 64, QUIRE_TYPE_F32, 1000 + round, false, false);
        struct merge_rows rows = support_part_rows(&more);
        struct merge_segment parts[] = {{segment, NULL}};
        path = support_path(folder, name);
        assert_int_equal(merge_build(path, parts, 1, &rows, &options, &result, &err), 0);
        segment_unref(segment);
        segment = support_segment(path);
        for (uint32_t i = 0; i < first.data.rows; i++)
            home[i] = result.rows_of[0][home[i]];
        merge_result_fini(&result);
        support_part_free(&more);
        free(path);
    }
    after = stored_error(segment, &first.data, home);
    print_message("stored error %.5f after the build, %.5f after ten merges\n", before, after);
    assert_true(before < 0.01);
    assert_true(after < 0.02);
    segment_unref(segment);
    support_part_free(&first);
    free(home);
    free(ids);
    support_folder_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(seals_are_calibrated_in_brief),
        cmocka_unit_test(merges_every_type_and_metric),
        cmocka_unit_test(keeps_exact_slots_exactly),
        cmocka_unit_test(merges_sizes_of_all_sorts),
        cmocka_unit_test(makes_the_kind_that_is_asked_for),
        cmocka_unit_test(without_living_rows_there_is_no_folder),
        cmocka_unit_test(merges_duplicates),
        cmocka_unit_test(numbers_become_keys),
        cmocka_unit_test(merges_under_a_budget),
        cmocka_unit_test(cancelled_it_leaves_nothing),
        cmocka_unit_test(names_what_it_cannot_merge),
        cmocka_unit_test(ten_merges_hardly_move_a_vector),
    };
    kind = QUIRE_INDEX_PAGEGRAPH;
    int failed = cmocka_run_group_tests_name("merges of page graphs", tests, NULL, NULL);
    kind = QUIRE_INDEX_SPANN;
    return failed + cmocka_run_group_tests_name("merges of inverted lists", tests, NULL, NULL);
}
