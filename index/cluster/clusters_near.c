/*
 * clusters_near.c - which centroids or heads are near which: runs of consecutive ones first, then these one by one.
 *
 * Comparing all points with all would grow with the square of their number. Points come in an order in which near
 * numbers are near (the bisection's), so a run of RUN_POINTS consecutive ones has a mean that stands for them, and the
 * runs nearest to a point hold those that are compared with it. Up to some thousand points that is all of them.
 *
 * A graph (graph.h) would find them as well, but what it finds depends on the order in which threads insert; this does
 * not, and its distances are the exact ones of codes (rows.h).
 */
#include "index/cluster/clusters_priv.h"
#include "io/array.h"
#include <assert.h>
#include <stdlib.h>

#define RUN_POINTS    32u
#define RUNS_PROBED   96u /* for the points near a point */
#define RUNS_ASSIGNED 16u /* for the nearest one */

struct near_scratch {
    int8_t *levels;
    int32_t *dots;
    float *distances;
    uint32_t *ids;
    near_t *items, *spare;
};

struct near_job {
    const struct clusters_near *near;
    uint32_t probed; /* runs */
    uint32_t keep, stride;
    const struct rows *rows; /* that points near to are sought for */
    const uint32_t *ids;     /* of these rows; NULL: all, which are the points themselves */
    uint32_t *out;
};

static void scratch_fini(struct near_scratch *s)
{
    array_free_all(s->levels, s->dots, s->distances, s->ids, s->items, s->spare);
}

static int scratch_init(struct near_scratch *s, const struct clusters_near *near)
{
    size_t most = RUN_POINTS * RUNS_PROBED;
    if (near->runs.n > most)
        most = near->runs.n;
    s->levels = malloc(near->points->code_dim);
    s->dots = malloc(sizeof *s->dots * most);
    s->distances = malloc(sizeof *s->distances * most);
    s->ids = malloc(sizeof *s->ids * most);
    s->items = malloc(sizeof *s->items * most);
    s->spare = malloc(sizeof *s->spare * most);
    if (s->levels && s->dots && s->distances && s->ids && s->items && s->spare)
        return 0;
    scratch_fini(s);
    return QUIRE_ENOMEM;
}

int clusters_near_init(struct clusters_near *near, const struct rows *points)
{
    uint32_t n_runs = (points->n + RUN_POINTS - 1) / RUN_POINTS;
    assert(points->n > 0);
    *near = (struct clusters_near){.points = points};
    float *point = malloc(sizeof *point * points->code_dim), *mean = malloc(sizeof *mean * points->code_dim);
    near->iota = malloc(sizeof *near->iota * n_runs);
    int rc = point && mean && near->iota ? rows_alloc(&near->runs, n_runs, points->code_dim) : QUIRE_ENOMEM;
    for (uint32_t i = 0; rc == 0 && i < n_runs; i++)
        near->iota[i] = i;
    for (uint32_t r = 0, dim = points->code_dim; rc == 0 && r < n_runs; r++) {
        uint32_t first = r * RUN_POINTS, n = points->n - first < RUN_POINTS ? points->n - first : RUN_POINTS;
        memset(mean, 0, sizeof *mean * dim);
        for (uint32_t i = first; i < first + n; i++) {
            code_decode(points->codes + (size_t)i * dim, dim, 8, points->f[i], point);
            for (uint32_t d = 0; d < dim; d++)
                mean[d] += point[d] / (float)n;
        }
        rows_encode(&near->runs, r, mean);
    }
    array_free_all(point, mean);
    return rc;
}

void clusters_near_fini(struct clusters_near *near)
{
    rows_free(&near->runs);
    free(near->iota);
}

/* The `keep` nearest points of the `probed` nearest runs into s->items, but for `except`, nearest first; returns how
 * many. */
static uint32_t find(const struct clusters_near *near, struct near_scratch *s, const struct row_query *query,
                     uint32_t probed, uint32_t keep, uint32_t except)
{
    uint32_t n_runs = near->runs.n, n = 0;
    row_query_range(query, &near->runs, near->iota, s->dots, s->distances);
    for (uint32_t r = 0; r < n_runs; r++)
        s->items[r] = near_of(s->distances[r], r);
    near_select(s->items, n_runs, probed);
    for (uint32_t i = 0; i < n_runs && i < probed; i++) {
        uint32_t first = (uint32_t)s->items[i] * RUN_POINTS, left = near->points->n - first;
        for (uint32_t j = 0; j < left && j < RUN_POINTS; j++)
            if (first + j != except)
                s->ids[n++] = first + j;
    }
    row_query_among(query, near->points, s->ids, n, s->dots, s->distances);
    for (uint32_t i = 0; i < n; i++)
        s->items[i] = near_of(s->distances[i], s->ids[i]);
    return near_keep_sorted(s->items, n, keep, s->spare);
}

static int find_range(void *context, uint64_t begin, uint64_t end)
{
    const struct near_job *job = context;
    struct near_scratch s;
    struct row_query query;
    int rc = scratch_init(&s, job->near);
    if (rc < 0)
        return rc;
    for (uint64_t i = begin; i < end; i++) {
        uint32_t row = job->ids ? job->ids[i] : (uint32_t)i, except = job->ids ? CLUSTER_NONE : row;
        row_query_set(&query, job->rows, row, s.levels);
        uint32_t n = find(job->near, &s, &query, job->probed, job->keep, except);
        assert(n <= job->stride && (n > 0 || !job->ids));
        for (uint32_t j = 0; j < n; j++)
            job->out[i * job->stride + j] = (uint32_t)s.items[j];
    }
    scratch_fini(&s);
    return 0;
}

int clusters_near_all(const struct clusters_near *near, uint32_t keep, uint32_t stride, unsigned threads, uint32_t *out)
{
    struct near_job job = {near, RUNS_PROBED, keep, stride, near->points, NULL, out};
    return parallel_for(threads, near->points->n, 64, find_range, &job, NULL);
}

int clusters_near_assign(const struct clusters_near *near, const struct rows *rows, const uint32_t *ids, uint32_t n,
                         unsigned threads, uint32_t *out)
{
    struct near_job job = {near, RUNS_ASSIGNED, 1, 1, rows, ids, out};
    return parallel_for(threads, n, 256, find_range, &job, NULL);
}
