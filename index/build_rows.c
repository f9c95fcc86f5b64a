/*
 * build_rows.c - first steps of a build: look at every input vector once, then encode it.
 *
 * The first pass refuses what cannot be measured (NaN, infinity, zero under cosine) and names the row, before anything
 * is written. Sums for the mean are kept per range of MEAN_RANGE rows and added in order, so the mean does not depend
 * on the number of threads; rows far out are left out of it. The second pass makes the 8-bit working codes (rows.h).
 */
#include "index/build_priv.h"
#include "io/error.h"
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define F16_MAX         65504.0f
#define MEAN_RANGE      16384u
#define MEDIAN_SAMPLE   16384u
#define OUTLIER_FACTOR2 9.0 /* three times the median distance from the mean */

struct input_job {
    struct build *b;
    atomic_uint_fast64_t bad_row; /* smallest row that was refused */
    atomic_int bad_code;
    double *sums;     /* ranges x work_dim */
    uint64_t *counts; /* per range: rows in its sum */
    double *norms;    /* per range: largest squared length */
    double farthest2; /* rows beyond this squared distance from the mean are left out of the next mean */
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

static bool fits_f16(const float *x, uint32_t dim)
{
    for (uint32_t i = 0; i < dim; i++)
        if (fabsf(x[i]) > F16_MAX)
            return false;
    return true;
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
        if (rc == 0 && b->params.slot == QUIRE_SLOT_F16 && !fits_f16(x, b->dim))
            rc = QUIRE_ERANGE;
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

/* Row lifted into the working space, in x, and its squared distance from the present mean. */
static double lifted_distance2(const struct build *b, uint32_t row, float *x)
{
    double sum = 0;
    build_vector(b, row, x);
    space_lift(&b->space, x, x);
    for (uint32_t i = 0; i < b->space.work_dim; i++) {
        double d = (double)x[i] - (double)b->space.mean[i];
        sum += d * d;
    }
    return sum;
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
        if (lifted_distance2(b, (uint32_t)row, x) > job->farthest2)
            continue;
        job->counts[begin / MEAN_RANGE]++;
        for (uint32_t i = 0; i < b->space.work_dim; i++)
            sums[i] += x[i];
    }
    free(x);
    return 0;
}

/* The mean of the rows within farthest2 of the present mean. */
static int find_mean(struct input_job *job, uint32_t ranges)
{
    struct build *b = job->b;
    memset(job->sums, 0, (size_t)ranges * b->space.work_dim * sizeof *job->sums);
    memset(job->counts, 0, ranges * sizeof *job->counts);
    int rc = parallel_for(b->options.threads, b->n, MEAN_RANGE, sum_range, job, NULL);
    uint64_t count = 0;
    for (uint32_t r = 0; r < ranges; r++)
        count += job->counts[r];
    for (uint32_t i = 0; rc == 0 && i < b->space.work_dim; i++) {
        double sum = 0;
        for (uint32_t r = 0; r < ranges; r++)
            sum += job->sums[(size_t)r * b->space.work_dim + i];
        b->space.mean[i] = (float)(sum / (double)count);
    }
    return rc;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median squared distance from the mean, of a sample. */
static int median_distance2(const struct build *b, double *out)
{
    uint32_t n = b->n < MEDIAN_SAMPLE ? b->n : MEDIAN_SAMPLE;
    double *distances = malloc(n * sizeof *distances);
    float *x = malloc(sizeof(float) * b->space.code_dim);
    int rc = distances && x ? 0 : QUIRE_ENOMEM;
    for (uint32_t i = 0; rc == 0 && i < n; i++)
        distances[i] = lifted_distance2(b, (uint32_t)((uint64_t)i * b->n / n), x);
    if (rc == 0) {
        qsort(distances, n, sizeof *distances, by_value);
        *out = distances[n / 2];
    }
    free(distances);
    free(x);
    return rc;
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
    if (code == QUIRE_ERANGE)
        return error_set(b->err, code,
                         "row %llu holds a number beyond %g, the largest half float: use --slot f32 or q8", row,
                         (double)F16_MAX);
    return error_set(b->err, code, "row %llu holds NaN, infinity or values too large to square: repair or drop it",
                     row);
}

int build_check_input(struct build *b)
{
    uint32_t ranges = (b->n + MEAN_RANGE - 1) / MEAN_RANGE;
    struct input_job job = {.b = b, .bad_row = UINT64_MAX};
    struct progress progress;
    job.sums = calloc((size_t)ranges * b->space.work_dim, sizeof(double));
    job.counts = calloc(ranges, sizeof *job.counts);
    job.norms = calloc(ranges, sizeof(double));
    int rc = job.sums && job.counts && job.norms ? 0 : QUIRE_ENOMEM;
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
    /* a row of a million would pull the mean away from all others, and codes would hold nothing but that distance */
    job.farthest2 = INFINITY;
    rc = find_mean(&job, ranges);
    if (rc == 0)
        rc = median_distance2(b, &job.farthest2);
    job.farthest2 *= OUTLIER_FACTOR2;
    if (rc == 0)
        rc = find_mean(&job, ranges);
out:
    free(job.sums);
    free(job.counts);
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
