/*
 * build_centres.c - the centre of each block: its rows are coded relative to it, and a search enters by it.
 *
 * The mean without rows far out (centre.h), kept as a 4-bit code; whatever is relative to a centre is so to the decoded
 * one, so that no rounding of it enters an estimate.
 */
#include "index/build/build_priv.h"
#include "index/cluster/centre.h"
#include "index/segment/entry.h"
#include "io/array.h"
#include <assert.h>
#include <stdlib.h>

struct centres_job {
    struct build *b;
    uint32_t first_block; /* of the batch */
    struct rows rows;     /* of the batch */
};

static int centre_range(void *context, uint64_t begin, uint64_t end)
{
    const struct centres_job *job = context;
    struct build *b = job->b;
    uint32_t dim = b->space.code_dim, capacity = b->params.slots_per_block;
    struct centre_scratch s;
    int rc = centre_scratch_init(&s, capacity, dim);
    if (rc < 0)
        return rc;
    for (uint64_t i = begin; i < end; i++) {
        uint32_t first = (uint32_t)i * capacity;
        uint32_t n = job->rows.n - first < capacity ? job->rows.n - first : capacity;
        size_t block = job->first_block + i;
        float *centre = b->centres + block * dim, *factors = b->centre_factors + 3 * block;
        uint8_t *code = b->centre_codes + block * code_bytes_of(dim, CENTRE_BITS);
        centre_take(&s, &job->rows, first, n);
        centre_find(&s, n, dim, centre);
        factors[0] = code_encode(centre, dim, CENTRE_BITS, code, NULL, NULL);
        code_decode(code, dim, CENTRE_BITS, factors[0], centre);
        factors[1] = 0;
        for (uint32_t d = 0; d < dim; d++)
            factors[1] += centre[d] * centre[d];
        factors[2] = centre_rms(&s, n, dim, centre);
    }
    centre_scratch_fini(&s);
    return 0;
}

int build_centres(struct build *b, const char *phase)
{
    struct centres_job job = {.b = b};
    struct rows window = {0};
    uint32_t dim = b->space.code_dim, capacity = b->params.slots_per_block;
    uint32_t blocks = build_batch_rows(b, row_record_bytes(dim)) / capacity + 1;
    assert(b->order && b->rows.n == b->n);
    array_free_all(b->centres, b->centre_codes, b->centre_factors);
    b->centres = malloc(sizeof(float) * b->params.n_blocks * dim);
    b->centre_codes = malloc((size_t)b->params.n_blocks * code_bytes_of(dim, CENTRE_BITS));
    b->centre_factors = calloc((size_t)b->params.n_blocks * 3, sizeof(float));
    int rc = b->centres && b->centre_codes && b->centre_factors ? 0 : QUIRE_ENOMEM;
    if (rc == 0 && b->plan.in_files)
        rc = rows_alloc(&window, blocks * capacity, dim);
    for (uint32_t at = 0; rc == 0 && at < b->params.n_blocks; at += blocks) {
        uint32_t first = at * capacity, n = b->n - first < blocks * capacity ? b->n - first : blocks * capacity;
        job.first_block = at;
        rc = row_store_view(&b->rows, first, n, &window, &job.rows);
        if (rc == 0)
            rc = parallel_for(b->options.threads, (n + capacity - 1) / capacity, 64, centre_range, &job, NULL);
        if (rc == 0)
            rc = build_report(b, phase, first + n, b->n);
    }
    rows_free(&window);
    return rc;
}

int build_decode_centres(struct build *b)
{
    uint32_t dim = b->space.code_dim, bytes = code_bytes_of(dim, CENTRE_BITS);
    assert(b->centre_codes && !b->centres);
    b->centres = malloc(sizeof(float) * b->params.n_blocks * dim);
    if (!b->centres)
        return QUIRE_ENOMEM;
    for (size_t block = 0; block < b->params.n_blocks; block++)
        code_decode(b->centre_codes + block * bytes, dim, CENTRE_BITS, b->centre_factors[3 * block],
                    b->centres + block * dim);
    return 0;
}
