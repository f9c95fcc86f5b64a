/*
 * offload_stream.c - the nearest of more rows than a device has memory for.
 *
 * Rows pass through the device a part at a time, and the answers of all parts are merged here: k numbers per query and
 * part, nothing beside the distances. The first part is as large as the device's buffers allow. Whenever memory is
 * short it is halved and all begins again, since some queries may have seen the part and others not; below a size at
 * which the processor is faster anyway the call fails.
 */
#include "index/offload/offload.h"
#include "io/error.h"
#include "io/memory.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define BATCH_LEAST 256u /* queries between two reports of progress */

struct stream {
    struct offload *offload;
    const struct offload_rows *rows;
    const struct offload_nearest *request;
    const struct offload_progress *progress;
    struct offload_near *found, *merged; /* of a batch of queries: n x k; k */
    size_t row_bytes, query_bytes;
    uint32_t first; /* row of the part, 0 for the first: nothing to merge with yet */
    uint32_t kept;  /* rows that each query has in request->out */
};

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

void offload_merge(struct offload_near *known, uint32_t n_known, const struct offload_near *found, uint32_t n_found,
                   uint32_t k, struct offload_near *spare)
{
    uint32_t i = 0, j = 0, n = smaller(k, n_known + n_found);
    assert(n_known <= k);
    for (uint32_t at = 0; at < n; at++)
        if (i < n_known && (j == n_found || known[i].value <= found[j].value))
            spare[at] = known[i++];
        else
            spare[at] = found[j++];
    memcpy(known, spare, n * sizeof *known);
}

static int search_part(struct stream *s, struct offload_block *block, uint32_t n, struct quire_error *err)
{
    const struct offload_nearest *all = s->request;
    uint32_t k = smaller(all->k, n), step = BATCH_LEAST;
    int rc = 0;
    assert(n > 0 && n <= s->rows->n);
    for (uint32_t at = 0; rc == 0 && at < all->n_queries; at += step) {
        struct offload_nearest part = {
            .measure = all->measure, .n_queries = smaller(step, all->n_queries - at), .k = k};
        part.queries = (const uint8_t *)all->queries + at * s->query_bytes;
        part.out = s->found;
        rc = offload_nearest(s->offload, block, &part, err);
        for (uint32_t q = 0; rc == 0 && q < part.n_queries; q++) {
            struct offload_near *found = s->found + (size_t)q * k;
            for (uint32_t i = 0; i < k; i++)
                found[i].row += s->first;
            offload_merge(all->out + ((size_t)at + q) * all->k, s->kept, found, k, all->k, s->merged);
        }
        double seen = (double)s->first * all->n_queries + ((double)at + part.n_queries) * n;
        uint64_t done = (uint64_t)(seen / s->rows->n);
        if (rc == 0 && s->progress && s->progress->report(s->progress->context, done, all->n_queries) != 0)
            rc = error_set(err, QUIRE_ECANCELLED, "stopped");
    }
    return rc;
}

uint32_t offload_rows_max(struct offload *offload, size_t row_bytes, uint32_t n)
{
    struct offload_status status;
    offload_get_status(offload, &status);
    uint64_t most = status.device.buffer_bytes < status.device.memory_bytes / 2 ? status.device.buffer_bytes
                                                                                : status.device.memory_bytes / 2;
    assert(n > 0);
    most = most / (row_bytes + 64); /* rows are padded there */
    return most > n ? n : most < OFFLOAD_ROWS_LEAST ? smaller(OFFLOAD_ROWS_LEAST, n) : (uint32_t)most;
}

/* All rows in parts of at most `most`. */
static int search_parts(struct stream *s, uint32_t most, struct quire_error *err)
{
    int rc = 0;
    s->kept = 0;
    for (uint32_t n = 0, first = 0; rc == 0 && first < s->rows->n; first += n) {
        struct offload_rows part = *s->rows;
        struct offload_block *block;
        n = smaller(most, s->rows->n - first);
        part.n = n;
        part.data = (const uint8_t *)s->rows->data + first * s->row_bytes;
        part.factors = s->rows->factors ? s->rows->factors + first : NULL;
        s->first = first;
        rc = offload_load(s->offload, &part, &block, err);
        if (rc < 0)
            break;
        rc = search_part(s, block, n, err);
        offload_unload(s->offload, block);
        s->kept = smaller(s->request->k, s->kept + n);
    }
    assert(rc < 0 || s->kept == s->request->k);
    return rc;
}

static int search_all(struct stream *s, struct quire_error *err)
{
    uint32_t most = offload_rows_max(s->offload, s->row_bytes, s->rows->n);
    int rc = search_parts(s, most, err);
    while (rc == QUIRE_ENOMEM && most > OFFLOAD_ROWS_LEAST) {
        most = most / 2 > OFFLOAD_ROWS_LEAST ? most / 2 : OFFLOAD_ROWS_LEAST;
        rc = search_parts(s, most, err);
    }
    return rc;
}

int offload_nearest_all(struct offload *offload, const struct offload_rows *rows, const struct offload_nearest *request,
                        const struct offload_progress *progress, struct quire_error *err)
{
    struct stream s = {.offload = offload, .rows = rows, .request = request, .progress = progress};
    assert(!offload_is_code(rows->element) && request->n_queries > 0);
    if (request->k < 1 || request->k > rows->n || request->k > offload_nearest_max(offload))
        return error_set(err, QUIRE_ERANGE, "%u nearest of %u rows on a device; expected 1 to %u", request->k, rows->n,
                         offload_nearest_max(offload));
    s.row_bytes = offload_bytes(rows->element, rows->dim);
    s.query_bytes = rows->dim * (s.row_bytes == rows->dim ? 1 : sizeof(float));
    s.found = malloc(memory_size_mul((size_t)BATCH_LEAST * request->k, sizeof *s.found));
    s.merged = malloc(memory_size_mul(request->k, sizeof *s.merged));
    int rc = s.found && s.merged ? search_all(&s, err) : error_set(err, QUIRE_ENOMEM, "no memory for answers");
    free(s.found);
    free(s.merged);
    return rc;
}
