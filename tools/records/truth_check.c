/*
 * truth_check.c - whether ground truth is of the rows, queries and metric that it is stored with.
 *
 * Files of ground truth do not say of which metric their distances are, and for vectors of length 1 the neighbours are
 * the same under all of them: only the distances are not. A harness that counts what is no farther than the k-th
 * neighbour then counts too much, or nothing, and no error says so. Hence each query's distance from its nearest
 * neighbour is computed when that row comes by, and compared.
 */
#include "tools/records/truth_check.h"
#include "index/vector/space.h"
#include "io/error.h"
#include "io/memory.h"
#include <math.h>
#include <stdlib.h>

/* Truth is of floats: products of 65,536 of them, lengths subtracted from each other. */
#define TOLERANCE 1e-3

static int by_nearest(const void *a, const void *b, void *context)
{
    const struct truth *truth = context;
    uint64_t one = *(const uint32_t *)a, other = *(const uint32_t *)b;
    uint32_t x = truth->ids[one * truth->k], y = truth->ids[other * truth->k];
    return (x > y) - (x < y);
}

int truth_check_init(struct truth_check *check, const char *queries, const char *truth, enum quire_metric metric,
                     struct quire_error *err)
{
    *check = (struct truth_check){.metric = metric};
    int rc = vecfile_vectors_load(queries, VECFILE_AUTO, &check->queries, err);
    if (rc == 0)
        rc = truth_load(truth, &check->truth, err);
    if (rc == 0 && !check->truth.distances)
        rc = error_set(err, QUIRE_EINVALID, "%s has no distances, which the file must have: quire truth writes both",
                       truth);
    if (rc == 0 && check->truth.n_queries != check->queries.rows)
        rc = error_set(err, QUIRE_EINVALID, "%s is of %u queries, and %s has %llu", truth, check->truth.n_queries,
                       queries, (unsigned long long)check->queries.rows);
    if (rc == 0)
        check->order = malloc(memory_size_mul(check->truth.n_queries, sizeof *check->order));
    if (rc == 0 && !check->order)
        rc = error_set(err, QUIRE_ENOMEM, "no memory for %u queries", check->truth.n_queries);
    for (uint32_t q = 0; rc == 0 && q < check->truth.n_queries; q++)
        if (truth_count(&check->truth, q))
            check->order[check->n++] = q;
    if (rc < 0) {
        truth_check_fini(check);
        return rc;
    }
    qsort_r(check->order, check->n, sizeof *check->order, by_nearest, &check->truth);
    return 0;
}

void truth_check_fini(struct truth_check *check)
{
    vecfile_vectors_free(&check->queries);
    truth_free(&check->truth);
    free(check->order);
    *check = (struct truth_check){0};
}

/* The distance as quire.h defines it, and how large its terms are. */
static double distance(enum quire_metric metric, const float *a, const float *b, uint32_t dim, double *size)
{
    double aa = 0, bb = 0, ab = 0, between = 0;
    for (uint32_t i = 0; i < dim; i++) {
        aa += (double)a[i] * (double)a[i];
        bb += (double)b[i] * (double)b[i];
        ab += (double)a[i] * (double)b[i];
        between += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
    }
    *size = metric == QUIRE_METRIC_COSINE ? 1 : metric == QUIRE_METRIC_IP ? sqrt(aa * bb) : aa + bb;
    if (metric == QUIRE_METRIC_L2)
        return between;
    if (metric == QUIRE_METRIC_IP)
        return -ab;
    return aa > 0 && bb > 0 ? 1 - ab / sqrt(aa * bb) : 1;
}

int truth_check_rows(struct truth_check *check, const char *truth, enum quire_type type, const void *rows,
                     uint64_t first, uint64_t n, struct quire_error *err)
{
    uint32_t dim = check->queries.dim;
    size_t row_bytes = dim * quire_type_bytes(type), query_bytes = dim * quire_type_bytes(check->queries.type);
    float *row = malloc(dim * sizeof *row), *query = malloc(dim * sizeof *query);
    int rc = row && query ? 0 : error_set(err, QUIRE_ENOMEM, "no memory for a vector");
    for (; rc == 0 && check->done < check->n; check->done++) {
        uint32_t q = check->order[check->done], nearest = check->truth.ids[(uint64_t)q * check->truth.k];
        if (nearest < first || nearest >= first + n)
            break;
        double said = (double)check->truth.distances[(uint64_t)q * check->truth.k], size;
        space_floats(type, (const char *)rows + (nearest - first) * row_bytes, dim, row);
        space_floats(check->queries.type, (const char *)check->queries.data + q * query_bytes, dim, query);
        double is = distance(check->metric, query, row, dim, &size);
        if (!(fabs(is - said) <= TOLERANCE * size))
            rc = error_set(err, QUIRE_EINVALID,
                           "%s says that query %u is %g from row %u, and it is %g under the metric %s: the truth is of "
                           "another metric, or of other vectors; quire truth computes it",
                           truth, q, said, nearest, is, quire_metric_name(check->metric));
    }
    free(row);
    free(query);
    return rc;
}
