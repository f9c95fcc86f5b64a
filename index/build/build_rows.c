/*
 * build_rows.c - the rows as 8-bit working codes (rows.h): encoded, kept for a build that is resumed, read again.
 */
#include "index/build/build_priv.h"
#include <assert.h>
#include <stdlib.h>

struct encode_job {
    struct build *b;
    const struct row_batch *batch;
    struct rows rows; /* of the batch: where they stay, or on their way to the file */
    uint32_t *inputs;
};

static int encode_range(void *context, uint64_t begin, uint64_t end)
{
    struct encode_job *job = context;
    const struct build *b = job->b;
    uint32_t dim = b->space.code_dim;
    float *x = malloc(sizeof(float) * dim), *v = malloc(sizeof(float) * dim);
    int rc = x && v ? 0 : QUIRE_ENOMEM;
    for (uint64_t row = begin; rc == 0 && row < end; row++) {
        build_vector(b, job->batch->rows + row * b->row_bytes, v);
        float apart = space_row(&b->space, v, x);
        rows_encode(&job->rows, (uint32_t)row, x);
        job->rows.norm2[row] += apart;
    }
    free(x);
    free(v);
    return rc;
}

static int encode_batch(void *context, const struct row_batch *batch)
{
    struct encode_job *job = context;
    struct build *b = job->b;
    bool in_files = b->plan.in_files;
    struct rows passing = job->rows;
    job->batch = batch;
    job->rows = in_files ? rows_part(&passing, 0, batch->n) : rows_part(&b->rows.rows, batch->first, batch->n);
    int rc = parallel_for(b->options.threads, batch->n, 512, encode_range, job, NULL);
    for (uint32_t i = 0; i < batch->n && in_files; i++)
        job->inputs[i] = batch->first + i;
    if (rc == 0 && in_files)
        rc = row_store_write(&b->rows, batch->first, &job->rows, job->inputs);
    job->rows = passing;
    return rc;
}

int build_open_store(struct build *b, struct row_store *store, uint32_t n, const char *name, bool there)
{
    char *path = build_file_path(b, name);
    int rc = path ? row_store_open(store, n, b->space.code_dim, b->fs, path, there, b->err) : QUIRE_ENOMEM;
    free(path);
    return rc;
}

int build_encode_rows(struct build *b)
{
    struct encode_job job = {.b = b};
    uint32_t most = build_batch_rows(b, row_record_bytes(b->space.code_dim));
    assert(b->step == STEP_FOLDER && !b->order);
    int rc = b->plan.in_files ? build_open_store(b, &b->rows, b->n, WORK_ROWS, false)
                              : row_store_open(&b->rows, b->n, b->space.code_dim, b->fs, NULL, false, b->err);
    if (rc == 0 && b->plan.in_files) {
        job.inputs = malloc(sizeof *job.inputs * most);
        rc = job.inputs ? rows_alloc(&job.rows, most, b->space.code_dim) : QUIRE_ENOMEM;
    }
    if (rc == 0)
        rc = build_each_input(b, "encode", encode_batch, &job);
    rows_free(&job.rows);
    free(job.inputs);
    return rc;
}

int build_keep_rows(struct build *b)
{
    struct row_store kept;
    if (b->plan.in_files)
        return row_store_sync(&b->rows);
    int rc = build_open_store(b, &kept, b->n, WORK_ROWS, false);
    if (rc < 0)
        return rc;
    rc = row_store_write(&kept, 0, &b->rows.rows, b->order);
    if (rc == 0)
        rc = row_store_sync(&kept);
    row_store_close(&kept);
    return rc;
}

/* All rows of the file pass by; those that are to be in memory stay there. */
int build_read_order(struct build *b)
{
    uint32_t most = build_batch_rows(b, row_record_bytes(b->space.code_dim));
    struct rows window = {0};
    assert(b->rows.file && b->order);
    int rc = b->plan.in_files ? rows_alloc(&window, most, b->space.code_dim) : 0;
    for (uint32_t at = 0; rc == 0 && at < b->n;) {
        uint32_t n = b->n - at < most ? b->n - at : most;
        rc = b->plan.in_files ? row_store_read(&b->rows, at, n, &window, 0, b->order + at)
                              : row_store_read(&b->rows, at, n, &b->rows.rows, at, b->order + at);
        at += n;
        if (rc == 0)
            rc = build_report(b, "read rows", at, b->n);
    }
    rows_free(&window);
    return rc;
}

int build_open_rows(struct build *b)
{
    assert(b->state.stage >= STAGE_ROWS && !b->order);
    b->order = malloc(sizeof(uint32_t) * b->n);
    int rc = b->order ? build_open_store(b, &b->rows, b->n, WORK_ROWS, true) : QUIRE_ENOMEM;
    if (rc == 0 && !b->plan.in_files)
        rc = rows_alloc(&b->rows.rows, b->n, b->space.code_dim);
    return rc == 0 ? build_read_order(b) : rc;
}
