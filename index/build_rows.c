/*
 * build_rows.c - first steps of a build: look at every input vector once, then encode it.
 *
 * The first pass refuses what cannot be measured (NaN, infinity, zero under cosine) and names the row, before anything
 * is written. Sums for the mean are kept per range of MEAN_RANGE rows and added in order, so the mean does not depend
 * on the number of threads. The second pass makes the 8-bit working codes (rows.h).
 */
#include "index/build_priv.h"
#include "io/error.h"
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define MEAN_RANGE 16384u

struct input_job {
    struct build *b;
    atomic_uint_fast64_t bad_row; /* smallest row that was refused */
    atomic_int bad_code;
    double *sums;  /* ranges x work_dim */
    double *norms; /* per range: largest squared length */
};

void build_vector(const struct build *b, uint32_t input_row, float *out)
{
    space_floats(b->type, b->vectors + input_row * b->row_bytes, b->dim, out);
}

static void note_bad_row(struct input_job *job, uint64_t row, int code)
{
    uint64_t before = atomic_load(&job->bad_row);
    while (row < before && !atomic_compare_exchange_weak(&job->bad_row, &before, row))
        ;
    if (atomic_load(&job->bad_row) == row)
        atomic_store(&job->bad_code, code);
}

static int check_range(void *context, uint64_t begin, uint64_t end)
{
    struct input_job *job = context;
    struct build *b = job->b;
    float *x = malloc(sizeof(float) * b->space.code_dim);
    if (!x)
        return QUIRE_ENOMEM;
    double largest = 0;
    for (uint64_t row = begin; row < end; row++) {
        build_vector(b, (uint32_t)row, x);
        int rc = space_check(&b->space, x);
        if (rc < 0) {
            note_bad_row(job, row, rc);
            break;
        }
        double norm2 = 0;
        for (uint32_t i = 0; i < b->dim; i++)
            norm2 += (double)x[i] * x[i];
        largest = fmax(largest, norm2);
    }
    job->norms[begin / MEAN_RANGE] = largest;
    free(x);
    return 0;
}

static int sum_range(void *context, uint64_t begin, uint64_t end)
{
    struct input_job *job = context;
    struct build *b = job->b;
    float *x = malloc(sizeof(float) * b->space.code_dim);
    double *sums = job->sums + begin / MEAN_RANGE * b->space.work_dim;
    if (!x)
        return QUIRE_ENOMEM;
    for (uint64_t row = begin; row < end; row++) {
        build_vector(b, (uint32_t)row, x);
        space_lift(&b->space, x, x);
        for (uint32_t i = 0; i < b->space.work_dim; i++)
            sums[i] += x[i];
    }
    free(x);
    return 0;
}

static int refuse_row(struct input_job *job)
{
    struct build *b = job->b;
    unsigned long long row = (unsigned long long)atomic_load(&job->bad_row);
    int code = atomic_load(&job->bad_code);
    if (code == QUIRE_EZEROVEC)
        return error_set(b->err, code,
                         "row %llu is a zero vector, which has no direction under the cosine metric: "
                         "drop it or use --metric l2",
                         row);
    return error_set(b->err, code, "row %llu holds NaN, infinity or values too large to square: repair or drop it",
                     row);
}

int build_check_input(struct build *b)
{
    uint32_t ranges = (b->n + MEAN_RANGE - 1) / MEAN_RANGE;
    struct input_job job = {.b = b, .bad_row = UINT64_MAX};
    struct progress progress;
    job.sums = calloc((size_t)ranges * b->space.work_dim, sizeof(double));
    job.norms = calloc(ranges, sizeof(double));
    int rc = job.sums && job.norms ? 0 : QUIRE_ENOMEM;
    if (rc < 0)
        goto out;
    build_progress(b, "check input", &progress);
    rc = parallel_for(b->options.threads, b->n, MEAN_RANGE, check_range, &job, &progress);
    if (rc == 0 && atomic_load(&job.bad_row) != UINT64_MAX)
        rc = refuse_row(&job);
    if (rc < 0)
        goto out;
    for (uint32_t r = 0; r < ranges; r++)
        b->space.norm2_max = fmax(b->space.norm2_max, job.norms[r]);
    rc = parallel_for(b->options.threads, b->n, MEAN_RANGE, sum_range, &job, NULL);
    for (uint32_t i = 0; rc == 0 && i < b->space.work_dim; i++) {
        double sum = 0;
        for (uint32_t r = 0; r < ranges; r++)
            sum += job.sums[(size_t)r * b->space.work_dim + i];
        b->space.mean[i] = (float)(sum / b->n);
    }
out:
    free(job.sums);
    free(job.norms);
    return rc;
}

static int encode_range(void *context, uint64_t begin, uint64_t end)
{
    struct build *b = context;
    uint32_t dim = b->space.code_dim;
    float *x = malloc(sizeof(float) * dim), *v = malloc(sizeof(float) * dim);
    int rc = x && v ? 0 : QUIRE_ENOMEM;
    for (uint64_t row = begin; rc == 0 && row < end; row++) {
        uint8_t *code = b->rows.codes + row * dim;
        build_vector(b, (uint32_t)row, v);
        space_row(&b->space, v, x);
        b->rows.f[row] = code_encode(x, dim, 8, code, NULL, NULL);
        double norm2 = 0;
        int32_t sum = 0;
        for (uint32_t i = 0; i < dim; i++) {
            norm2 += (double)x[i] * x[i];
            sum += code[i];
        }
        b->rows.norm2[row] = (float)norm2;
        b->rows.level_sum[row] = sum;
    }
    free(x);
    free(v);
    return rc;
}

int build_encode_rows(struct build *b)
{
    struct rows *rows = &b->rows;
    struct progress progress;
    rows->n = b->n;
    rows->code_dim = b->space.code_dim;
    rows->codes = malloc((size_t)b->n * rows->code_dim);
    rows->f = malloc(sizeof(float) * b->n);
    rows->norm2 = malloc(sizeof(float) * b->n);
    rows->level_sum = malloc(sizeof(int32_t) * b->n);
    if (!rows->codes || !rows->f || !rows->norm2 || !rows->level_sum)
        return QUIRE_ENOMEM;
    build_progress(b, "encode", &progress);
    return parallel_for(b->options.threads, b->n, 4096, encode_range, b, &progress);
}
