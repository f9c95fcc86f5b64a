/*
 * build_check.c - the first step of a build: a look at every input vector, and the mean.
 *
 * The first pass refuses what cannot be measured (NaN, infinity) and names the row, before anything is written; where
 * the build can be resumed it also takes the input's checksum. Sums for the mean are kept per range of rows, whose size
 * depends on the bytes of a row only, and added in order, so the mean depends neither on the number of threads nor on
 * the memory; rows far out are left out of it.
 */
#include "index/build/build_priv.h"
#include "io/array.h"
#include "io/error.h"
#include <assert.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define RANGES          64u /* of a batch, each with sums of its own */
#define MEDIAN_SAMPLE   16384u
#define OUTLIER_FACTOR2 9.0 /* three times the median distance from the mean */

struct input_job {
    struct build *b;
    const struct row_batch *batch;
    atomic_uint_fast64_t bad_row; /* smallest row of the batch that was refused */
    atomic_int bad_code;
    uint32_t range_rows;
    double *sums;     /* (RANGES + 1) x work_dim; the last: of all batches */
    uint64_t *counts; /* rows in each sum */
    double *norms;    /* per range: largest squared length */
    double farthest2; /* rows beyond this squared distance from the mean are left out of the next mean */
    double *sampled;  /* squared distances from the mean of MEDIAN_SAMPLE rows */
    uint32_t n_sampled, n_sample;
    XXH3_state_t *hash;
};

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
        build_vector(b, job->batch->rows + row * b->row_bytes, x);
        int rc = space_check(&b->space, x);
        if (rc == 0 && b->params.slot == QUIRE_SLOT_F16 && b->space.metric != QUIRE_METRIC_COSINE &&
            !fits_f16(x, b->dim))
            rc = QUIRE_ERANGE;
        if (rc < 0) {
            uint64_t bad = job->batch->first + row, before = atomic_load(&job->bad_row);
            while (bad < before && !atomic_compare_exchange_weak(&job->bad_row, &before, bad))
                ;
            if (atomic_load(&job->bad_row) == bad)
                atomic_store(&job->bad_code, rc);
            break;
        }
        double norm2 = 0;
        for (uint32_t i = 0; i < b->dim; i++)
            norm2 += (double)x[i] * x[i];
        largest = fmax(largest, norm2);
    }
    job->norms[begin / job->range_rows] = largest;
    free(x);
    return 0;
}

static int refuse_row(struct input_job *job)
{
    struct build *b = job->b;
    unsigned long long row = (unsigned long long)atomic_load(&job->bad_row);
    int code = atomic_load(&job->bad_code);
    if (code == QUIRE_ERANGE)
        return error_set(b->err, code,
                         "row %llu holds a number beyond %g, the largest half float: use --slot f32 or q8", row,
                         (double)F16_MAX);
    return error_set(b->err, code, "row %llu holds NaN, infinity or values too large to square: repair or drop it",
                     row);
}

static int check_batch(void *context, const struct row_batch *batch)
{
    struct input_job *job = context;
    struct build *b = job->b;
    job->batch = batch;
    if (job->hash)
        XXH3_64bits_update(job->hash, batch->rows, batch->n * b->row_bytes);
    memset(job->norms, 0, RANGES * sizeof *job->norms);
    int rc = parallel_for(b->options.threads, batch->n, job->range_rows, check_range, job, NULL);
    if (rc == 0 && atomic_load(&job->bad_row) != UINT64_MAX)
        rc = refuse_row(job);
    for (uint32_t r = 0; r < RANGES; r++)
        b->space.norm2_max = fmax(b->space.norm2_max, job->norms[r]);
    return rc;
}

/* ---- the mean ---------------------------------------------------------------------------------------------------- */

/* A vector lifted into the working space, in x, and its squared distance from the present mean. */
static double lifted_distance2(const struct build *b, const uint8_t *raw, float *x)
{
    double sum = 0;
    build_vector(b, raw, x);
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
    uint64_t range = begin / job->range_rows;
    double *sums = job->sums + range * b->space.work_dim;
    if (!x)
        return QUIRE_ENOMEM;
    for (uint64_t row = begin; row < end; row++) {
        if (lifted_distance2(b, job->batch->rows + row * b->row_bytes, x) > job->farthest2)
            continue;
        job->counts[range]++;
        for (uint32_t i = 0; i < b->space.work_dim; i++)
            sums[i] += x[i];
    }
    free(x);
    return 0;
}

static int sum_batch(void *context, const struct row_batch *batch)
{
    struct input_job *job = context;
    size_t dim = job->b->space.work_dim;
    double *all = job->sums + RANGES * dim;
    memset(job->sums, 0, RANGES * dim * sizeof *job->sums);
    memset(job->counts, 0, RANGES * sizeof *job->counts);
    job->batch = batch;
    int rc = parallel_for(job->b->options.threads, batch->n, job->range_rows, sum_range, job, NULL);
    for (uint32_t r = 0; r < RANGES; r++) {
        job->counts[RANGES] += job->counts[r];
        for (size_t i = 0; i < dim; i++)
            all[i] += job->sums[r * dim + i];
    }
    return rc;
}

/* The mean of the rows within farthest2 of the present mean. */
static int find_mean(struct input_job *job)
{
    struct build *b = job->b;
    double *all = job->sums + (size_t)RANGES * b->space.work_dim;
    memset(all, 0, sizeof *all * b->space.work_dim);
    job->counts[RANGES] = 0;
    int rc = build_each_input(b, "find mean", sum_batch, job);
    assert(rc < 0 || job->counts[RANGES] > 0); /* at least half of the rows are within three times the median */
    for (uint32_t i = 0; rc == 0 && i < b->space.work_dim; i++)
        b->space.mean[i] = (float)(all[i] / (double)job->counts[RANGES]);
    return rc;
}

static int sample_batch(void *context, const struct row_batch *batch)
{
    struct input_job *job = context;
    const struct build *b = job->b;
    float *x = malloc(sizeof(float) * b->space.code_dim);
    if (!x)
        return QUIRE_ENOMEM;
    for (; job->n_sampled < job->n_sample; job->n_sampled++) {
        uint32_t row = (uint32_t)((uint64_t)job->n_sampled * b->n / job->n_sample) - batch->first;
        if (row >= batch->n)
            break;
        job->sampled[job->n_sampled] = lifted_distance2(b, batch->rows + row * b->row_bytes, x);
    }
    free(x);
    return 0;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median squared distance from the mean, of a sample. */
static int median_distance2(struct input_job *job, double *out)
{
    job->n_sample = job->b->n < MEDIAN_SAMPLE ? job->b->n : MEDIAN_SAMPLE;
    job->sampled = malloc(job->n_sample * sizeof *job->sampled);
    int rc = job->sampled ? build_each_input(job->b, NULL, sample_batch, job) : QUIRE_ENOMEM;
    if (rc == 0) {
        assert(job->n_sampled == job->n_sample);
        qsort(job->sampled, job->n_sample, sizeof *job->sampled, by_value);
        *out = job->sampled[job->n_sample / 2];
    }
    free(job->sampled);
    return rc;
}

int build_check_input(struct build *b)
{
    struct input_job job = {.b = b, .bad_row = UINT64_MAX};
    assert(b->step == STEP_LAYOUT);
    job.range_rows = build_batch_rows(b, row_record_bytes(b->space.code_dim)) / RANGES;
    job.sums = calloc((size_t)(RANGES + 1) * b->space.work_dim, sizeof(double));
    job.counts = calloc(RANGES + 1, sizeof *job.counts);
    job.norms = calloc(RANGES, sizeof(double));
    job.hash = b->options.resume ? XXH3_createState() : NULL;
    int rc = job.sums && job.counts && job.norms && (job.hash || !b->options.resume) ? 0 : QUIRE_ENOMEM;
    if (job.hash)
        XXH3_64bits_reset(job.hash);
    if (rc == 0)
        rc = build_each_input(b, "check input", check_batch, &job);
    if (rc == 0 && job.hash)
        b->state.input_hash = XXH3_64bits_digest(job.hash);
    /* a row of a million would pull the mean away from all others, and codes would hold nothing but that distance */
    job.farthest2 = INFINITY;
    if (rc == 0)
        rc = find_mean(&job);
    if (rc == 0)
        rc = median_distance2(&job, &job.farthest2);
    job.farthest2 *= OUTLIER_FACTOR2;
    if (rc == 0)
        rc = find_mean(&job);
    array_free_all(job.sums, job.counts, job.norms);
    XXH3_freeState(job.hash);
    return rc;
}
