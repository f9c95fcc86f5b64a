/*
 * test_truth.c - exact ground truth against a naive search in double, and its files.
 *
 * The naive search sorts all rows by (distance in double, row). Types and metrics are crossed in full; sets of
 * duplicates and of distances that f32 cannot tell apart make sure that the order does not come from rounded numbers.
 * Where the machine has an OpenCL device (pocl), every set is computed on it as well: the bytes must be the same.
 */
#include "datasets/vecfile.h"
#include "index/kernels/kernels.h"
#include "index/offload/offload.h"
#include "index/vector/space.h"
#include "io/random.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* cmocka wants the headers above first */
#include <cmocka.h>

static char folder[256], path[300];
static struct quire_error err;
static struct offload *offload;
static uint64_t n_on_device;

static int setup(void **state)
{
    char note[512];
    (void)state;
    offload = offload_open("", note, sizeof note);
    const char *tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/quire-truth-XXXXXX", tmp ? tmp : "/tmp");
    return mkdtemp(folder) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    offload_close(offload);
    return rmdir(folder);
}

/* Random vectors of a type; those of i8 and f32 have both signs. */
static struct vectors made(uint64_t rows, uint32_t dim, enum quire_type type, uint64_t seed)
{
    struct vectors v = {calloc(rows * dim, quire_type_bytes(type)), rows, dim, type};
    struct random random;
    random_init(&random, seed);
    for (uint64_t i = 0; i < rows * dim; i++) {
        uint64_t bits = random_next(&random);
        float x = (float)((double)(bits >> 11) * 0x1p-52 - 1.0);
        if (type == QUIRE_TYPE_F32)
            ((float *)v.data)[i] = x;
        else if (type == QUIRE_TYPE_F16)
            kernels()->f16_from_f32(&x, (f16_t *)v.data + i, 1);
        else if (type == QUIRE_TYPE_BF16)
            kernels()->bf16_from_f32(&x, (bf16_t *)v.data + i, 1);
        else
            ((uint8_t *)v.data)[i] = (uint8_t)(bits >> 17);
    }
    return v;
}

/* ---- the naive search -------------------------------------------------------------------------------------------- */

struct naive {
    double distance;
    uint32_t id;
};

static int compare_naive(const void *a, const void *b)
{
    const struct naive *x = a, *y = b;
    if (x->distance != y->distance)
        return x->distance < y->distance ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

static const void *row_at(const struct vectors *v, uint64_t row)
{
    return (const uint8_t *)v->data + row * v->dim * quire_type_bytes(v->type);
}

static double naive_distance(const float *q, const float *x, uint32_t dim, enum quire_metric metric)
{
    double l2 = 0, dot = 0, qq = 0, xx = 0;
    for (uint32_t d = 0; d < dim; d++) {
        double a = (double)q[d], b = (double)x[d];
        l2 += (a - b) * (a - b);
        dot += a * b;
        qq += a * a;
        xx += b * b;
    }
    if (metric == QUIRE_METRIC_L2)
        return l2;
    return metric == QUIRE_METRIC_IP ? -dot : 1 - dot / (sqrt(qq) * sqrt(xx));
}

/* All rows of the base, nearest first; the caller frees. */
static struct naive *naive_search(const struct vectors *base, const struct vectors *queries, uint64_t query,
                                  enum quire_metric metric)
{
    struct naive *all = malloc(base->rows * sizeof *all);
    float *q = malloc(base->dim * sizeof *q), *x = malloc(base->dim * sizeof *x);
    space_floats(queries->type, row_at(queries, query), base->dim, q);
    for (uint32_t row = 0; row < base->rows; row++) {
        space_floats(base->type, row_at(base, row), base->dim, x);
        all[row] = (struct naive){naive_distance(q, x, base->dim, metric), row};
    }
    qsort(all, base->rows, sizeof *all, compare_naive);
    free(q);
    free(x);
    return all;
}

/* The same from a device. bf16 and mixed types of vectors stay on the processor. */
static void expect_same(const struct vectors *base, const struct vectors *queries, enum quire_metric metric,
                        unsigned threads, const struct truth *expected)
{
    struct truth truth;
    bool on_device = false, same = base->type == queries->type && base->type != QUIRE_TYPE_BF16;
    size_t n = (size_t)expected->n_queries * expected->k;
    if (!offload)
        return;
    assert_int_equal(
        truth_compute_on(offload, base, queries, metric, expected->k, threads, NULL, NULL, &truth, &on_device, &err),
        0);
    assert_true(on_device || !same);
    n_on_device += on_device;
    assert_memory_equal(truth.ids, expected->ids, n * sizeof *truth.ids);
    assert_memory_equal(truth.distances, expected->distances, n * sizeof *truth.distances);
    truth_free(&truth);
}

static void expect_truth(const struct vectors *base, const struct vectors *queries, enum quire_metric metric,
                         uint32_t k, unsigned threads)
{
    struct truth truth;
    int rc = truth_compute(base, queries, metric, k, threads, NULL, NULL, &truth, &err);
    if (rc != 0)
        fail_msg("%s", err.message);
    assert_int_equal(truth.n_queries, queries->rows);
    assert_int_equal(truth.k, k);
    for (uint64_t i = 0; i < queries->rows; i++) {
        struct naive *all = naive_search(base, queries, i, metric);
        for (uint32_t j = 0; j < k; j++) {
            uint32_t id = truth.ids[i * k + j];
            float distance = truth.distances[i * k + j];
            if (id != all[j].id || distance != (float)all[j].distance)
                fail_msg("%s of %s in %s, query %d, place %u: row %u at %.9g, expected row %u at %.9g",
                         quire_metric_name(metric), quire_type_name(queries->type), quire_type_name(base->type), (int)i,
                         j, id, (double)distance, all[j].id, all[j].distance);
        }
        free(all);
    }
    expect_same(base, queries, metric, threads, &truth);
    truth_free(&truth);
    assert_null(truth.ids);
}

static const enum quire_metric metrics[] = {QUIRE_METRIC_L2, QUIRE_METRIC_COSINE, QUIRE_METRIC_IP};

static void test_all_types(void **state)
{
    (void)state;
    const uint32_t dims[] = {1, 37, 130};
    for (int b = 0; b <= QUIRE_TYPE_BF16; b++)
        for (int q = 0; q <= QUIRE_TYPE_BF16; q++)
            for (int d = 0; d < 3; d++)
                for (int m = 0; m < 3; m++) {
                    struct vectors base = made(333, dims[d], (enum quire_type)b, 1 + (uint64_t)b);
                    struct vectors queries = made(5, dims[d], (enum quire_type)q, 77);
                    /* one dimension may well hold an integer 0, and it has no direction */
                    if (metrics[m] != QUIRE_METRIC_COSINE || dims[d] > 1)
                        expect_truth(&base, &queries, metrics[m], 10, 2);
                    free(base.data);
                    free(queries.data);
                }
}

static void test_shapes(void **state)
{
    (void)state;
    struct vectors base = made(70, 20, QUIRE_TYPE_F32, 3), queries = made(61, 20, QUIRE_TYPE_F32, 4);
    struct vectors wide = made(40, 16384, QUIRE_TYPE_U8, 5), wide_queries = made(3, 16384, QUIRE_TYPE_U8, 6);
    for (int m = 0; m < 3; m++) {
        expect_truth(&base, &queries, metrics[m], 1, 1);
        expect_truth(&base, &queries, metrics[m], 70, 3);
        expect_truth(&base, &queries, metrics[m], 60, 100);
        expect_truth(&wide, &wide_queries, metrics[m], 7, 2); /* sums beyond what f32 counts */
    }
    queries.rows = 1;
    expect_truth(&base, &queries, QUIRE_METRIC_L2, 5, 4);
    free(base.data);
    free(queries.data);
    free(wide.data);
    free(wide_queries.data);
}

/* Many rows of the same distance: more than the first guess keeps. */
static void test_ties(void **state)
{
    (void)state;
    for (int t = 0; t <= QUIRE_TYPE_BF16; t++) {
        struct vectors base = made(400, 24, (enum quire_type)t, 9), queries = made(4, 24, (enum quire_type)t, 10);
        size_t bytes = 24 * quire_type_bytes(base.type);
        for (size_t row = 3; row < 400; row++) /* three kinds of rows only */
            memcpy((uint8_t *)base.data + row * bytes, (uint8_t *)base.data + row % 3 * bytes, bytes);
        for (int m = 0; m < 3; m++) {
            expect_truth(&base, &queries, metrics[m], 20, 1);
            expect_truth(&base, &queries, metrics[m], 200, 2);
        }
        free(base.data);
        free(queries.data);
    }
}

/* Distances that differ by less than f32 can hold, in an order that is not that of the rows. */
static void test_near_ties(void **state)
{
    (void)state;
    struct vectors base = {calloc(500 * 64, sizeof(float)), 500, 64, QUIRE_TYPE_F32};
    struct vectors queries = {calloc(64, sizeof(float)), 1, 64, QUIRE_TYPE_F32};
    float *x = base.data;
    for (int i = 0; i < 500 * 64; i++)
        x[i] = 1.0f;
    for (int row = 0; row < 500; row++)
        x[row * 64 + row % 64] += (float)(row * 7919 % 500) * 0x1p-23f;
    expect_truth(&base, &queries, QUIRE_METRIC_L2, 30, 2);
    for (int i = 0; i < 64; i++)
        ((float *)queries.data)[i] = -1.0f;
    for (int m = 0; m < 3; m++)
        expect_truth(&base, &queries, metrics[m], 30, 1);
    free(base.data);
    free(queries.data);
}

/* ---- what is refused --------------------------------------------------------------------------------------------- */

static void expect_refused(const struct vectors *base, const struct vectors *queries, enum quire_metric metric,
                           uint32_t k, int code, const char *word)
{
    struct truth truth = {.k = 99};
    assert_int_equal(truth_compute(base, queries, metric, k, 2, NULL, NULL, &truth, &err), code);
    assert_int_equal(err.code, code);
    if (!strstr(err.message, word))
        fail_msg("no \"%s\" in: %s", word, err.message);
    assert_int_equal(truth.k, 99); /* untouched */
}

/* Query `zero` is a zero vector: everything is at distance 1. */
static void expect_zero(const struct vectors *base, const struct vectors *queries, uint32_t zero)
{
    struct truth truth;
    assert_int_equal(truth_compute(base, queries, QUIRE_METRIC_COSINE, 5, 1, NULL, NULL, &truth, &err), 0);
    for (uint32_t i = 0; i < 5; i++)
        assert_true(truth.distances[zero * 5 + i] == 1);
    truth_free(&truth);
}

static void test_refused(void **state)
{
    (void)state;
    struct vectors base = made(50, 8, QUIRE_TYPE_F32, 1), queries = made(9, 8, QUIRE_TYPE_F32, 2);
    expect_refused(&base, &queries, QUIRE_METRIC_L2, 51, QUIRE_ERANGE, "51 neighbours of 50 rows");
    expect_refused(&base, &queries, QUIRE_METRIC_L2, 0, QUIRE_ERANGE, "expected 1 to 50");
    queries.dim = 4;
    expect_refused(&base, &queries, QUIRE_METRIC_L2, 5, QUIRE_EDIM, "base has 8 dimensions, the queries have 4");
    queries.dim = 8;
    queries.rows = 0;
    expect_refused(&base, &queries, QUIRE_METRIC_L2, 5, QUIRE_ERANGE, "0 queries");
    queries.rows = 9;
    memset((float *)base.data + 31 * 8, 0, 8 * sizeof(float));
    expect_truth(&base, &queries, QUIRE_METRIC_L2, 5, 1);
    expect_truth(&base, &queries, QUIRE_METRIC_IP, 5, 1);
    memset((float *)queries.data + 4 * 8, 0, 8 * sizeof(float));
    base.rows = 31;
    expect_zero(&base, &queries, 4);
    ((float *)base.data)[17 * 8 + 3] = NAN;
    expect_refused(&base, &queries, QUIRE_METRIC_L2, 5, QUIRE_ENOTFINITE, "row 17 ");
    ((float *)base.data)[17 * 8 + 3] = 1e30f;
    expect_refused(&base, &queries, QUIRE_METRIC_L2, 5, QUIRE_ENOTFINITE, "too large");
    free(base.data);
    free(queries.data);
}

static int stop(void *context, uint64_t done, uint64_t total)
{
    uint64_t *seen = context;
    *seen = total;
    return done <= total ? 1 : 0;
}

static int go_on(void *context, uint64_t done, uint64_t total)
{
    *(uint64_t *)context = done;
    return done <= total ? 0 : 1;
}

static void test_progress(void **state)
{
    (void)state;
    struct vectors base = made(50, 8, QUIRE_TYPE_U8, 1), queries = made(40, 8, QUIRE_TYPE_U8, 2);
    struct truth truth = {0};
    uint64_t seen = 0;
    assert_int_equal(truth_compute(&base, &queries, QUIRE_METRIC_L2, 3, 0, go_on, &seen, &truth, &err), 0);
    assert_int_equal(seen, 40);
    truth_free(&truth);
    seen = 0;
    assert_int_equal(truth_compute(&base, &queries, QUIRE_METRIC_L2, 3, 1, stop, &seen, &truth, &err),
                     QUIRE_ECANCELLED);
    assert_int_equal(seen, 40);
    assert_null(truth.ids);
    free(base.data);
    free(queries.data);
}

/* Lengths at which a device may lose what a float can hold; and it was used before that. */
static void test_extremes(void **state)
{
    (void)state;
    if (!offload)
        skip();
    assert_true(n_on_device > 0);
    struct vectors base = made(70, 9, QUIRE_TYPE_F32, 31), queries = made(5, 9, QUIRE_TYPE_F32, 32);
    struct truth truth;
    bool on_device = true;
    for (int i = 0; i < 9; i++)
        ((float *)base.data)[i] *= 1e-20f;
    for (int m = 0; m < 3; m++) {
        assert_int_equal(
            truth_compute_on(offload, &base, &queries, metrics[m], 7, 1, NULL, NULL, &truth, &on_device, &err), 0);
        assert_false(on_device);
        truth_free(&truth);
    }
    free(base.data);
    free(queries.data);
}

/* A device is asked to stop as well. */
static void test_stopped_on_device(void **state)
{
    (void)state;
    if (!offload)
        skip();
    struct vectors base = made(50, 8, QUIRE_TYPE_U8, 1), queries = made(40, 8, QUIRE_TYPE_U8, 2);
    struct truth truth = {0};
    uint64_t seen = 0;
    bool on_device = false;
    assert_int_equal(
        truth_compute_on(offload, &base, &queries, QUIRE_METRIC_L2, 3, 1, stop, &seen, &truth, &on_device, &err),
        QUIRE_ECANCELLED);
    assert_int_equal(seen, 40);
    free(base.data);
    free(queries.data);
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static uint32_t ids[] = {7, 0x01020304, 9, 1, 2, 3};
static float distances[] = {0.5f, 1, 2, -3, 0, 4};
static const uint8_t file_bytes[] = {2,    0,    0, 0, 3, 0,    0, 0, 7,    0,    0, 0, 4, 3, 2, 1, 9,    0,   0,
                                     0,    1,    0, 0, 0, 2,    0, 0, 0,    3,    0, 0, 0, 0, 0, 0, 0x3f, 0,   0,
                                     0x80, 0x3f, 0, 0, 0, 0x40, 0, 0, 0x40, 0xc0, 0, 0, 0, 0, 0, 0, 0x80, 0x40};

static void write_file(const char *name, const void *bytes, size_t n)
{
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(bytes, 1, n, out), n);
    fclose(out);
}

/* Truth among some rows becomes that of the base, with ends where there are fewer than k. */
static void test_of_some_rows(void **state)
{
    (void)state;
    struct vectors base = made(60, 12, QUIRE_TYPE_F32, 21), queries = made(4, 12, QUIRE_TYPE_F32, 22);
    static const uint32_t rows[] = {3, 4, 17, 59};
    struct vectors some = {malloc(sizeof(float) * 12 * 4), 4, 12, QUIRE_TYPE_F32};
    struct truth truth = {0}, back;
    for (size_t i = 0; i < 4; i++)
        memcpy((float *)some.data + i * 12, row_at(&base, rows[i]), sizeof(float) * 12);
    assert_int_equal(truth_compute(&some, &queries, QUIRE_METRIC_L2, 4, 1, NULL, NULL, &truth, &err), 0);
    assert_int_equal(truth_widen(&truth, rows, 4, 7), 0);
    assert_true(truth.n_queries == 4 && truth.k == 7);
    snprintf(path, sizeof path, "%s/some.gt.bin", folder);
    assert_int_equal(truth_save(path, &truth, &err), 0);
    assert_int_equal(truth_load(path, &back, &err), 0);
    unlink(path);
    for (uint32_t q = 0; q < 4; q++) {
        struct naive *all = naive_search(&base, &queries, q, QUIRE_METRIC_L2);
        uint32_t n = 0;
        assert_int_equal(truth_count(&back, q), 4);
        for (uint32_t i = 0; i < 60; i++)
            if (all[i].id == 3 || all[i].id == 4 || all[i].id == 17 || all[i].id == 59) {
                assert_int_equal(back.ids[q * 7 + n], all[i].id);
                assert_true(back.distances[q * 7 + n] == (float)all[i].distance);
                n++;
            }
        for (; n < 7; n++)
            assert_true(back.ids[q * 7 + n] == TRUTH_NONE && back.distances[q * 7 + n] == INFINITY);
        free(all);
    }
    truth_free(&back);

    snprintf(path, sizeof path, "%s/some.ivecs", folder);
    assert_int_equal(truth_save(path, &truth, &err), 0);
    assert_int_equal(truth_load(path, &back, &err), 0);
    assert_memory_equal(back.ids, truth.ids, sizeof(uint32_t) * 28);
    assert_int_equal(truth_count(&back, 3), 4);
    truth_free(&back);
    unlink(path);

    truth.ids[7 * 2 + 5] = 1; /* behind the end */
    truth.distances[7 * 2 + 5] = 1;
    snprintf(path, sizeof path, "%s/some.gt.bin", folder);
    assert_int_equal(truth_save(path, &truth, &err), 0);
    assert_int_equal(truth_load(path, &back, &err), QUIRE_EFORMAT);
    truth.ids[7 * 2 + 5] = TRUTH_NONE;
    unlink(path);
    assert_int_equal(truth_save(path, &truth, &err), 0);
    assert_int_equal(truth_load(path, &back, &err), QUIRE_ENOTFINITE);
    unlink(path);
    truth_free(&truth);

    assert_int_equal(truth_widen(&truth, rows, 3, 2), 0); /* of no rows */
    assert_true(truth.n_queries == 3 && truth.k == 2 && truth_count(&truth, 0) == 0 && truth_count(&truth, 2) == 0);
    truth_free(&truth);
    free(base.data);
    free(queries.data);
    free(some.data);
}

static void test_save_and_load(void **state)
{
    (void)state;
    struct truth truth = {ids, distances, 2, 3}, back;
    uint8_t bytes[100];
    snprintf(path, sizeof path, "%s/a.gt.bin", folder);
    assert_int_equal(truth_save(path, &truth, &err), 0);
    FILE *in = fopen(path, "rb");
    assert_int_equal(fread(bytes, 1, sizeof bytes, in), sizeof file_bytes);
    fclose(in);
    assert_memory_equal(bytes, file_bytes, sizeof file_bytes);
    assert_int_equal(truth_load(path, &back, &err), 0);
    assert_int_equal(back.n_queries, 2);
    assert_int_equal(back.k, 3);
    assert_memory_equal(back.ids, ids, sizeof ids);
    assert_memory_equal(back.distances, distances, sizeof distances);
    truth_free(&back);
    unlink(path);

    snprintf(path, sizeof path, "%s/a.ivecs", folder);
    assert_int_equal(truth_save(path, &truth, &err), 0);
    assert_int_equal(truth_load(path, &back, &err), 0);
    assert_int_equal(back.n_queries, 2);
    assert_int_equal(back.k, 3);
    assert_memory_equal(back.ids, ids, sizeof ids);
    assert_null(back.distances);
    snprintf(path, sizeof path, "%s/b.bin", folder);
    assert_int_equal(truth_save(path, &back, &err), QUIRE_EINVALID); /* no distances */
    assert_int_equal(access(path, F_OK), -1);
    truth_free(&back);
    snprintf(path, sizeof path, "%s/a.ivecs", folder);
    unlink(path);
}

static void expect_damaged(const char *name, const void *bytes, size_t n, int code, const char *word)
{
    struct truth truth = {.k = 99};
    write_file(name, bytes, n);
    assert_int_equal(truth_load(path, &truth, &err), code);
    if (!strstr(err.message, word))
        fail_msg("no \"%s\" in: %s", word, err.message);
    assert_int_equal(truth.k, 99);
    unlink(path);
}

static void test_damaged(void **state)
{
    (void)state;
    uint8_t bytes[60] = {0};
    struct truth truth;
    expect_damaged("d.bin", "", 0, QUIRE_ETRUNCATED, "empty");
    expect_damaged("d.bin", file_bytes, 7, QUIRE_ETRUNCATED, "found 7 bytes");
    expect_damaged("d.bin", file_bytes, 55, QUIRE_ETRUNCATED, "expected 56 bytes, found 55 bytes");
    memcpy(bytes, file_bytes, sizeof file_bytes);
    expect_damaged("d.bin", bytes, 57, QUIRE_EOVERSIZED, "expected 56 bytes, found 57 bytes");
    bytes[54] = 0x80, bytes[55] = 0x7f;
    expect_damaged("d.bin", bytes, 56, QUIRE_ENOTFINITE, "neighbour 2 of query 1");
    memset(bytes, 0xff, 8);
    expect_damaged("d.bin", bytes, 56, QUIRE_EFORMAT, "4294967295 neighbours");
    memset(bytes, 0, 8);
    expect_damaged("d.bin", bytes, 8, QUIRE_EFORMAT, "0 queries");
    bytes[0] = 1;
    memset(bytes + 4, 0xff, 4);
    bytes[4] = 0xfe; /* -2: -1 is an end */
    expect_damaged("d.ivecs", bytes, 8, QUIRE_EFORMAT, "neighbour 0 of query 0");
    snprintf(path, sizeof path, "%s/none.bin", folder);
    assert_int_equal(truth_load(path, &truth, &err), QUIRE_ENOFILE);
}

/* Sets that may be installed beside the project, with truth that other programs made. */
static void compare_with_set(const char *name, const char *extension)
{
    char file[600];
    struct vectors base, queries;
    struct truth known, truth;
    snprintf(file, sizeof file, "%s/../shared/data/%s.%s", QUIRE_SOURCE_DIR, name, extension);
    if (access(file, R_OK) != 0)
        skip();
    assert_int_equal(vecfile_vectors_load(file, VECFILE_AUTO, &base, &err), 0);
    snprintf(file, sizeof file, "%s/../shared/data/%s.query.%s", QUIRE_SOURCE_DIR, name, extension);
    assert_int_equal(vecfile_vectors_load(file, VECFILE_AUTO, &queries, &err), 0);
    snprintf(file, sizeof file, "%s/../shared/data/%s.gt.bin", QUIRE_SOURCE_DIR, name);
    assert_int_equal(truth_load(file, &known, &err), 0);
    assert_int_equal(known.n_queries, queries.rows);
    queries.rows = 64;
    assert_int_equal(truth_compute(&base, &queries, QUIRE_METRIC_L2, known.k, 2, NULL, NULL, &truth, &err), 0);
    for (size_t i = 0; i < 64 * (size_t)known.k; i++) {
        double difference = fabs((double)truth.distances[i] - (double)known.distances[i]);
        assert_true(difference <= 1e-5 * (1 + (double)known.distances[i]));
    }
    truth_free(&known);
    truth_free(&truth);
    vecfile_vectors_free(&base);
    vecfile_vectors_free(&queries);
}

static void test_set_of_u8(void **state)
{
    (void)state;
    compare_with_set("sift-50k", "u8bin");
}

static void test_set_of_f32(void **state)
{
    (void)state;
    compare_with_set("text-20k", "fbin");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_types),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_ties),
        cmocka_unit_test(test_near_ties),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_progress),
        cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_save_and_load),
        cmocka_unit_test(test_set_of_u8),
        cmocka_unit_test(test_set_of_f32),
        cmocka_unit_test(test_of_some_rows),
        cmocka_unit_test(test_extremes),
        cmocka_unit_test(test_stopped_on_device),
    };
    return cmocka_run_group_tests_name("truth", tests, setup, teardown);
}
