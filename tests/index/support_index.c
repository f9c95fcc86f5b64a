/*
 * support_index.c - what the tests of index/ share.
 *
 * Vectors are Gaussian clusters, because neighbours of uniform noise say nothing about a graph: in high dimensions all
 * rows are equally far. Integer types get the same clusters scaled to their range. True neighbours are found by looking
 * at every row in double, so that a difference is the library's.
 *
 * Every function fails the running test instead of returning an error; a test that cannot make its folder leaves
 * nothing to test.
 */
#include "tests/index/support_index.h"
#include "index/format/format.h"
#include "index/kernels/kernels.h"
#include "io/bytes.h"
#include "io/random.h"
#include "tests/sanitized.h"
#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define ROWS_PER_CLUSTER 50u
#define INTEGER_SCALE    30.0f

NO_THREADS float support_gauss(uint64_t *state)
{
    struct random random = {*state};
    double u = ((double)(random_next(&random) >> 11) + 0.5) * 0x1p-53;
    double v = (double)(random_next(&random) >> 11) * 0x1p-53;
    *state = random.state;
    return (float)(sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
}

void support_data_alloc(uint32_t rows, uint32_t dim, enum quire_type type, struct support_data *out)
{
    *out = (struct support_data){.rows = rows, .dim = dim, .type = type};
    out->vectors = calloc((size_t)rows * dim, quire_type_bytes(type));
    out->floats = calloc((size_t)rows * dim, sizeof(float));
    assert_non_null(out->vectors);
    assert_non_null(out->floats);
}

void support_data_free(struct support_data *data)
{
    free(data->vectors);
    free(data->floats);
    memset(data, 0, sizeof *data);
}

static int clamp_round(float x, int low, int high)
{
    long rounded = lrintf(x);
    return rounded < low ? low : rounded > high ? high : (int)rounded;
}

NO_THREADS static void set_element(struct support_data *data, size_t at, float x)
{
    switch (data->type) {
    case QUIRE_TYPE_F32:
        memcpy(data->vectors + at * sizeof x, &x, sizeof x);
        break;
    case QUIRE_TYPE_F16:
        kernels()->f16_from_f32(&x, (f16_t *)(void *)data->vectors + at, 1);
        break;
    case QUIRE_TYPE_BF16:
        kernels()->bf16_from_f32(&x, (bf16_t *)(void *)data->vectors + at, 1);
        break;
    case QUIRE_TYPE_I8:
        data->vectors[at] = (uint8_t)(int8_t)clamp_round(x * INTEGER_SCALE, -128, 127);
        break;
    case QUIRE_TYPE_U8:
        data->vectors[at] = (uint8_t)clamp_round(x * INTEGER_SCALE + 128, 0, 255);
        break;
    }
}

NO_THREADS void support_floats(struct support_data *data)
{
    for (size_t i = 0; i < (size_t)data->rows * data->dim; i++) {
        switch (data->type) {
        case QUIRE_TYPE_F32:
            memcpy(&data->floats[i], data->vectors + i * sizeof(float), sizeof(float));
            break;
        case QUIRE_TYPE_F16:
            kernels()->f32_from_f16((const f16_t *)(const void *)data->vectors + i, &data->floats[i], 1);
            break;
        case QUIRE_TYPE_BF16:
            kernels()->f32_from_bf16((const bf16_t *)(const void *)data->vectors + i, &data->floats[i], 1);
            break;
        case QUIRE_TYPE_I8:
            data->floats[i] = (int8_t)data->vectors[i];
            break;
        case QUIRE_TYPE_U8:
            data->floats[i] = data->vectors[i];
            break;
        }
    }
}

NO_THREADS void support_clusters(uint32_t rows, uint32_t dim, enum quire_type type, uint64_t seed,
                                 struct support_data *out)
{
    struct random random;
    random_init(&random, seed);
    uint32_t clusters = rows / ROWS_PER_CLUSTER + 1;
    float *centres = malloc(sizeof(float) * clusters * dim);
    assert_non_null(centres);
    support_data_alloc(rows, dim, type, out);
    for (size_t i = 0; i < (size_t)clusters * dim; i++)
        centres[i] = support_gauss(&random.state);
    for (uint32_t row = 0; row < rows; row++) {
        const float *centre = centres + random_below(&random, clusters) * dim;
        for (uint32_t i = 0; i < dim; i++)
            set_element(out, (size_t)row * dim + i, centre[i] + 0.5f * support_gauss(&random.state));
    }
    free(centres);
    support_floats(out);
}

NO_THREADS float *support_queries(const struct support_data *data, uint32_t n, uint64_t seed)
{
    struct random random;
    random_init(&random, seed);
    bool integral = data->type == QUIRE_TYPE_I8 || data->type == QUIRE_TYPE_U8;
    float *queries = malloc(sizeof(float) * n * data->dim), scale = integral ? INTEGER_SCALE : 1;
    assert_non_null(queries);
    for (uint32_t i = 0; i < n; i++) {
        const float *row = data->floats + random_below(&random, data->rows) * data->dim;
        for (uint32_t d = 0; d < data->dim; d++) {
            float x = row[d] + scale * 0.4f * support_gauss(&random.state);
            queries[(size_t)i * data->dim + d] = integral ? rintf(x) : x;
        }
    }
    return queries;
}

NO_THREADS double support_distance(enum quire_metric metric, const float *query, const float *row, uint32_t dim)
{
    double l2 = 0, dot = 0, qq = 0, rr = 0;
    for (uint32_t i = 0; i < dim; i++) {
        double q = query[i], r = row[i];
        l2 += (q - r) * (q - r);
        dot += q * r;
        qq += q * q;
        rr += r * r;
    }
    return metric == QUIRE_METRIC_L2 ? l2 : metric == QUIRE_METRIC_COSINE ? 1 - dot / sqrt(qq * rr) : -dot;
}

struct ranked {
    double distance;
    uint32_t id;
};

NO_THREADS static int compare_ranked(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->distance < y->distance || x->distance > y->distance)
        return x->distance < y->distance ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

NO_THREADS void support_truth(enum quire_metric metric, const float *rows, uint32_t n, uint32_t dim, const float *query,
                              uint32_t k, uint32_t *ids, double *distances)
{
    struct ranked *ranked = malloc(sizeof *ranked * n);
    assert_non_null(ranked);
    assert_true(k <= n);
    for (uint32_t i = 0; i < n; i++)
        ranked[i] = (struct ranked){support_distance(metric, query, rows + (size_t)i * dim, dim), i};
    qsort(ranked, n, sizeof *ranked, compare_ranked);
    for (uint32_t i = 0; i < k; i++) {
        if (ids)
            ids[i] = ranked[i].id;
        if (distances)
            distances[i] = ranked[i].distance;
    }
    free(ranked);
}

double support_recall(enum quire_metric metric, const float *rows, uint32_t n, uint32_t dim, const float *query,
                      uint32_t k, const struct quire_hit *hits, uint32_t n_hits)
{
    double *distances = malloc(sizeof *distances * k);
    uint32_t right = 0;
    assert_non_null(distances);
    support_truth(metric, rows, n, dim, query, k, NULL, distances);
    double limit = distances[k - 1] + 1e-5 * fabs(distances[k - 1]);
    for (uint32_t i = 0; i < n_hits && i < k; i++) {
        assert_true(hits[i].id < n);
        right += support_distance(metric, query, rows + hits[i].id * dim, dim) <= limit;
    }
    free(distances);
    return (double)right / k;
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

uint8_t *support_read_file(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    struct stat status;
    assert_non_null(file);
    assert_int_equal(fstat(fileno(file), &status), 0);
    *bytes = (size_t)status.st_size;
    uint8_t *data = malloc(*bytes + 1);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, *bytes, file), *bytes);
    fclose(file);
    return data;
}

void support_write_file(const char *path, const void *data, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

void support_copy_folder(const char *from, const char *to)
{
    assert_int_equal(mkdir(to, 0755), 0);
    DIR *entries = opendir(from);
    assert_non_null(entries);
    for (struct dirent *entry; (entry = readdir(entries)) != NULL;) {
        if (entry->d_name[0] == '.')
            continue;
        size_t bytes;
        char *source = support_path(from, entry->d_name), *target = support_path(to, entry->d_name);
        uint8_t *data = support_read_file(source, &bytes);
        support_write_file(target, data, bytes);
        free(data);
        free(source);
        free(target);
    }
    closedir(entries);
}

uint8_t *support_file_without_id(const char *path, const char *name, size_t *bytes)
{
    char *file = support_path(path, name);
    uint8_t *data = support_read_file(file, bytes);
    size_t step = strcmp(name, KEYS_NAME) == 0 ? PAGE_BYTES : 4096,
           at = strcmp(name, KEYS_NAME) == 0 ? PAGE_PAYLOAD : 16;
    if (strcmp(name, META_NAME) == 0) {
        /* params, mean and calibration; the fourth section lists checksums of superblocks */
        *bytes = (size_t)bytes_load_u64(data + 72 + 3 * 40 + 8);
    } else if (strcmp(name, CODES_NAME) != 0) {
        for (size_t block = 4096; block < *bytes; block += step)
            memset(data + block + at, 0, 8);
    }
    free(file);
    *bytes -= 4096;
    memmove(data, data + 4096, *bytes);
    return data;
}

/* ---- indexes ----------------------------------------------------------------------------------------------------- */

struct quire_build_options support_options(enum quire_metric metric, enum quire_slot slot)
{
    struct quire_build_options options;
    quire_build_options_init(&options);
    options.metric = metric;
    options.slot = slot;
    options.threads = 2;
    options.seed = 7;
    options.calibration_queries = 50; /* builds spend most of their time there; the tests of recall ask for more */
    return options;
}

void support_build(const char *path, const struct support_data *data, const struct quire_build_options *options)
{
    struct quire_error err;
    int rc = quire_build(path, data->vectors, data->rows, data->dim, data->type, options, &err);
    if (rc < 0)
        fail_msg("build of %u rows x %u: %s (%s)", data->rows, data->dim, err.message, quire_error_name(rc));
}

struct quire_index *support_open(const char *path, const struct quire_open_options *options)
{
    struct quire_error err;
    struct quire_index *index = NULL;
    int rc = quire_open(path, options, &index, &err);
    if (rc < 0)
        fail_msg("open of %s: %s (%s)", path, err.message, quire_error_name(rc));
    assert_non_null(index);
    return index;
}

struct quire_search_options support_search(uint32_t k, float recall, uint32_t effort)
{
    struct quire_search_options options;
    quire_search_options_init(&options);
    options.k = k;
    options.recall = recall;
    options.effort = effort;
    return options;
}

int support_note_asked(void *context, const char *phase, uint64_t done, uint64_t total)
{
    uint64_t *asked = context;
    if (strncmp(phase, "calibrate", 9) == 0 && total > 0)
        *asked = done;
    return 0;
}
