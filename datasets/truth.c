/*
 * truth.c - files of ground truth: for each query the rows that are nearest, and how far they are.
 *
 * The own format is that of big-ann-benchmarks (u32 queries, u32 k, all ids, all distances), so truth made elsewhere
 * can be used here and the other way round. .ivecs, which the older collections use, holds ids only; recall by distance
 * needs distances, so they are NULL and the caller can tell. Distances are written as include/quire.h defines them.
 *
 * A query that has fewer than k neighbours, as under a filter, ends with ids that no row has, at infinite distance.
 */
#include "datasets/vecfile_priv.h"
#include "io/bytes.h"
#include "io/error.h"
#include "io/memory.h"
#include <math.h>
#include <stdlib.h>

#define HEADER_BYTES 8u

static int check_head(const char *name, uint32_t n_queries, uint32_t k, struct quire_error *err)
{
    if (n_queries >= 1 && k >= 1 && k <= QUIRE_K_MAX)
        return 0;
    return error_set(err, QUIRE_EFORMAT,
                     "%s says that it has %u queries with %u neighbours each; expected at least 1 and 1 to %u", name,
                     n_queries, k, QUIRE_K_MAX);
}

/* Behind an id that no row has there is no other. */
static int check_ends(const struct truth *truth, const char *name, struct quire_error *err)
{
    for (uint32_t q = 0; q < truth->n_queries; q++)
        for (uint32_t i = truth_count(truth, q); i < truth->k; i++)
            if (truth->ids[(size_t)q * truth->k + i] != TRUTH_NONE)
                return error_set(err, QUIRE_EFORMAT, "neighbour %u of query %u of %s stands behind an end", i, q, name);
    return 0;
}

static int read_bin(struct instream *in, struct truth *truth, struct quire_error *err)
{
    uint8_t head[HEADER_BYTES];
    int rc = vecstream_in_exact(in, head, sizeof head, "the header of the ground truth", err);
    if (rc < 0)
        return rc;
    truth->n_queries = bytes_load_u32(head);
    truth->k = bytes_load_u32(head + 4);
    rc = check_head(in->name, truth->n_queries, truth->k, err);
    size_t n = (size_t)truth->n_queries * truth->k;
    if (rc == 0)
        rc = vecstream_in_expect(in, HEADER_BYTES + 8 * (uint64_t)n, err);
    if (rc < 0)
        return rc;
    truth->ids = malloc(memory_size_mul(n, sizeof *truth->ids));
    truth->distances = malloc(memory_size_mul(n, sizeof *truth->distances));
    if (!truth->ids || !truth->distances)
        return error_set(err, QUIRE_ENOMEM, "no memory for %zu neighbours of %s", n, in->name);
    rc = vecstream_in_exact(in, truth->ids, n * sizeof *truth->ids, "the ids", err);
    if (rc == 0)
        rc = vecstream_in_exact(in, truth->distances, n * sizeof *truth->distances, "the distances", err);
    if (rc == 0)
        rc = vecstream_in_finish(in, err);
    if (rc < 0)
        return rc;
    vecstream_order(truth->ids, n, sizeof *truth->ids);
    vecstream_order(truth->distances, n, sizeof *truth->distances);
    for (size_t i = 0; i < n; i++)
        if (truth->ids[i] == TRUTH_NONE ? truth->distances[i] != INFINITY : !isfinite(truth->distances[i]))
            return error_set(err, QUIRE_ENOTFINITE, "neighbour %zu of query %zu of %s has no finite distance",
                             i % truth->k, i / truth->k, in->name);
    return check_ends(truth, in->name, err);
}

static int load_bin(const char *path, struct truth *truth, struct quire_error *err)
{
    struct instream in;
    int rc = vecstream_in_open(&in, path, err);
    if (rc < 0)
        return rc;
    rc = read_bin(&in, truth, err);
    vecstream_in_close(&in);
    return rc;
}

static int read_ivecs(struct vecfile *file, const char *path, struct truth *truth, struct quire_error *err)
{
    uint64_t rows = vecfile_rows(file);
    truth->k = vecfile_dim(file);
    if (rows > UINT32_MAX)
        return error_set(err, QUIRE_EFORMAT, "%s must be a plain file of at most %u queries", path, UINT32_MAX);
    truth->n_queries = (uint32_t)rows;
    size_t n = (size_t)rows * truth->k;
    truth->ids = malloc(memory_size_mul(n, sizeof *truth->ids));
    if (!truth->ids)
        return error_set(err, QUIRE_ENOMEM, "no memory for %zu neighbours of %s", n, path);
    int64_t got = vecfile_read(file, truth->ids, rows, err);
    if (got < 0)
        return (int)got;
    for (size_t i = 0; i < n; i++)
        if (truth->ids[i] > INT32_MAX && truth->ids[i] != TRUTH_NONE)
            return error_set(err, QUIRE_EFORMAT, "neighbour %zu of query %zu of %s is %d; expected 0 or more, or -1",
                             i % truth->k, i / truth->k, path, (int)truth->ids[i]);
    return check_ends(truth, path, err);
}

static int load_ivecs(const char *path, struct truth *truth, struct quire_error *err)
{
    struct vecfile *file = NULL;
    int rc = vecfile_open(path, VECFILE_IVECS, &file, err);
    if (rc < 0)
        return rc;
    rc = read_ivecs(file, path, truth, err);
    vecfile_close(file);
    return rc;
}

int truth_load(const char *path, struct truth *out, struct quire_error *err)
{
    struct truth truth = {0};
    bool ivecs = vecfile_format_from_path(path) == VECFILE_IVECS;
    int rc = ivecs ? load_ivecs(path, &truth, err) : load_bin(path, &truth, err);
    if (rc < 0)
        truth_free(&truth);
    else
        *out = truth;
    return rc;
}

static int save_bin(const char *path, const struct truth *truth, struct quire_error *err)
{
    struct outstream out;
    uint32_t head[2] = {truth->n_queries, truth->k};
    uint64_t n = (uint64_t)truth->n_queries * truth->k;
    if (!truth->distances)
        return error_set(err, QUIRE_EINVALID, "truth without distances cannot be saved as %s: give a name in .ivecs",
                         path);
    int rc = vecstream_out_open(&out, path, err);
    if (rc < 0)
        return rc;
    rc = vecstream_out_put(&out, head, 2, sizeof head[0], err);
    if (rc == 0)
        rc = vecstream_out_put(&out, truth->ids, n, sizeof *truth->ids, err);
    if (rc == 0)
        rc = vecstream_out_put(&out, truth->distances, n, sizeof *truth->distances, err);
    if (rc == 0)
        return vecstream_out_finish(&out, err);
    vecstream_out_abort(&out);
    return rc;
}

int truth_save(const char *path, const struct truth *truth, struct quire_error *err)
{
    struct vecwriter *writer = NULL;
    int rc = check_head(path, truth->n_queries, truth->k, err);
    if (rc < 0)
        return rc;
    if (vecfile_format_from_path(path) != VECFILE_IVECS)
        return save_bin(path, truth, err);
    rc = vecwriter_open(path, VECFILE_IVECS, truth->n_queries, truth->k, QUIRE_TYPE_F32, &writer, err);
    if (rc < 0)
        return rc;
    rc = vecwriter_write(writer, truth->ids, truth->n_queries, err);
    if (rc == 0)
        return vecwriter_finish(writer, err);
    vecwriter_abort(writer);
    return rc;
}

uint32_t truth_count(const struct truth *truth, uint32_t query)
{
    const uint32_t *ids = truth->ids + (size_t)query * truth->k;
    uint32_t n = 0;
    while (n < truth->k && ids[n] != TRUTH_NONE)
        n++;
    return n;
}

int truth_widen(struct truth *truth, const uint32_t *rows, uint32_t n_queries, uint32_t k)
{
    size_t n = memory_size_mul(n_queries, k);
    struct truth wide = {malloc(memory_size_mul(n, sizeof *wide.ids)),
                         malloc(memory_size_mul(n, sizeof *wide.distances)), n_queries, k};
    if (!wide.ids || !wide.distances) {
        truth_free(&wide);
        return QUIRE_ENOMEM;
    }
    for (uint32_t q = 0; q < n_queries; q++)
        for (uint32_t i = 0; i < k; i++) {
            size_t from = (size_t)q * truth->k + i, to = (size_t)q * k + i;
            bool there = i < truth->k;
            wide.ids[to] = there ? rows[truth->ids[from]] : TRUTH_NONE;
            wide.distances[to] = there ? truth->distances[from] : INFINITY;
        }
    truth_free(truth);
    *truth = wide;
    return 0;
}

void truth_free(struct truth *truth)
{
    free(truth->ids);
    free(truth->distances);
    *truth = (struct truth){0};
}
