/*
 * neighbours.c - near neighbours by neighbouring groups, pruned to different directions.
 *
 * Rows already lie in groups of near ones (partition.h), so a row's neighbours are sought where they must be: for each
 * group its NEIGHBOUR_GROUPS_MAX nearest groups by centre are found once, each row of the group ranks those by its own
 * distance to their centres, and all rows of its nearest `groups` groups are measured: contiguous 8-bit codes, a few
 * thousand products per row. The nearest `pool` rows then compete under the relative-neighbourhood rule (Arya and Mount
 * 1993; alpha after DiskANN, Subramanya et al. 2019): a candidate is dropped when an edge already kept leads nearer to
 * it.
 *
 * Near groups are found in two steps, because comparing all centres with all would grow with the square of the rows:
 * runs of RUN_GROUPS consecutive groups are near each other, too; the RUNS_PROBED runs nearest to a centre hold the
 * groups that are compared with it.
 *
 * Groups are done in batches of consecutive ones. Where the rows are not all in memory, a batch ends when the groups
 * near to its groups would no longer fit; these are loaded once per batch, in ascending order, so that a row's place
 * among the loaded ones and its number order ties alike: the result is that of having all rows in memory.
 *
 * Against inserting rows one after the other into a growing graph (HNSW, Vamana) this costs about a tenth on a million
 * rows, needs no locks, and its result is a function of the input alone whatever the number of threads. What it lacks
 * are long edges; the search does not need them, because it starts from the centres of all groups.
 *
 * A row may bring candidates of its own, edges that it had in another index (merge_edges.c). It then searches fewer
 * groups: what is near lies there, and what is farther is what the edges were kept for.
 *
 * A device (index/offload) may have the products of a row with the rows of its groups, which are whole numbers and most
 * of the work: groups are ranked for all rows of some groups, the device multiplies, and the rest goes on from its
 * numbers. Distances are computed from them by the same lines as without a device, so the edges are the same. When it
 * fails, the rows at hand and all after them are done here.
 *
 * Rejected: edges without reverse ones (recall .944 instead of .954 at the same reads on the text set); degree 32
 * instead of 24 (+.001).
 */
#include "index/cluster/neighbours.h"
#include "index/kernels/kernels.h"
#include "index/vector/near.h"
#include "io/array.h"
#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define RUN_GROUPS   32u
#define RUNS_PROBED  96u
#define BATCH_GROUPS 512u       /* groups of a batch at most, */
#define BATCH_EDGES  (1u << 20) /* of so many edges, but for small groups' sake */
#define BATCH_LEAST  16u
#define DEVICE_DOTS  (4u << 20) /* products that a device returns at once */

/* What a device does for the rows of some groups of the batch. */
struct device {
    struct offload *offload;     /* NULL: nothing, or no more */
    struct offload_block *block; /* all rows */
    uint32_t most;               /* groups at once */
    bool has_dots;               /* of groups first_linked .. of the batch */
    int8_t *queries;             /* per row of theirs */
    struct offload_run *runs;    /* per row config->groups; those without rows are not used */
    int32_t *dots;               /* per run config->capacity */
};

struct job {
    const struct neighbours_config *config;
    const struct neighbours_rows *source;
    const float *centres;
    float *runs; /* n_runs x code_dim: means of RUN_GROUPS centres */
    uint32_t *iota;
    uint32_t n, n_groups, n_runs, code_dim;
    /* the batch */
    uint32_t batch_groups; /* at most */
    uint32_t first_group;
    uint32_t n_listed; /* groups from first_group on whose near groups are known */
    uint32_t *near;    /* batch_groups x NEIGHBOUR_GROUPS_MAX groups, nearest first, its own before all */
    uint32_t *n_near;  /* batch_groups */
    struct rows rows;  /* all, or those loaded */
    uint32_t *place;   /* per group: which of the loaded ones it is; all rows in memory: itself */
    uint32_t *loaded;  /* groups in the order of their places */
    uint32_t n_loaded;
    uint32_t *edges;       /* of the batch's rows */
    uint32_t first_linked; /* group of the batch from which on threads link */
    struct device device;
};

struct scratch {
    float *distances; /* to centres, then to rows of a group */
    near_t *groups, *spare;
    float *row;
    int8_t *levels;
    int32_t *dots;
    near_t *pool; /* up to 2 * pool and a group, or as many known rows */
    uint32_t *alive;
    uint32_t *near_to; /* per group: to which group it was last found near, plus one; NULL where no row brings any */
};

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static uint32_t pool_capacity(const struct neighbours_config *config)
{
    return 2 * config->pool + larger(config->capacity, config->pool);
}

static void scratch_fini(struct scratch *s)
{
    array_free_all(s->distances, s->groups, s->spare, s->row, s->levels, s->dots, s->pool, s->alive, s->near_to);
}

static int scratch_init(struct scratch *s, const struct job *job)
{
    uint32_t candidates = larger(smaller(job->n_groups, RUN_GROUPS * RUNS_PROBED), job->n_runs),
             pool = pool_capacity(job->config);
    uint32_t most = larger(larger(candidates, pool), NEIGHBOUR_GROUPS_MAX);
    s->distances = malloc(sizeof(float) * most);
    s->groups = malloc(sizeof(near_t) * most);
    s->spare = malloc(sizeof(near_t) * most);
    s->row = malloc(sizeof(float) * job->code_dim);
    s->levels = malloc(job->code_dim);
    s->dots = malloc(sizeof(int32_t) * pool);
    s->pool = malloc(sizeof(near_t) * pool);
    s->alive = malloc(sizeof(uint32_t) * pool);
    s->near_to = job->source->known ? calloc(job->n_groups, sizeof *s->near_to) : NULL;
    if (s->distances && s->groups && s->spare && s->row && s->levels && s->dots && s->pool && s->alive &&
        (s->near_to || !job->source->known))
        return 0;
    scratch_fini(s);
    return QUIRE_ENOMEM;
}

/* ---- groups near a group ----------------------------------------------------------------------------------------- */

/* The nearest groups of a group, its own before all, into `near`; returns how many. */
static uint32_t near_groups(const struct job *job, struct scratch *s, uint32_t group, uint32_t *near)
{
    uint32_t runs[RUNS_PROBED], n_runs = smaller(job->n_runs, RUNS_PROBED), n = 0;
    size_t dim = job->code_dim;
    /* the runs whose groups are compared with the group, its own among them */
    memset(s->distances, 0, sizeof(float) * job->n_runs);
    if (job->n_runs > RUNS_PROBED)
        kernels()->f32_l2_many(job->centres + group * dim, job->runs, job->n_runs, dim, s->distances);
    s->distances[group / RUN_GROUPS] = 0;
    for (uint32_t r = 0; r < job->n_runs; r++)
        s->groups[r] = near_of(s->distances[r], r);
    if (job->n_runs > RUNS_PROBED)
        near_select(s->groups, job->n_runs, RUNS_PROBED);
    for (uint32_t i = 0; i < n_runs; i++)
        runs[i] = (uint32_t)s->groups[i];
    for (uint32_t i = 0; i < n_runs; i++) {
        uint32_t first = runs[i] * RUN_GROUPS, m = smaller(job->n_groups - first, RUN_GROUPS);
        kernels()->f32_l2_many(job->centres + group * dim, job->centres + first * dim, m, dim, s->distances);
        for (uint32_t g = first; g < first + m; g++)
            if (g != group)
                s->groups[n++] = near_of(s->distances[g - first], g);
    }
    n = near_keep_sorted(s->groups, n, NEIGHBOUR_GROUPS_MAX - 1, s->spare);
    near[0] = group;
    for (uint32_t i = 0; i < n; i++)
        near[i + 1] = (uint32_t)s->groups[i];
    return n + 1;
}

static int find_near_groups(void *context, uint64_t begin, uint64_t end)
{
    struct job *job = context;
    struct scratch s;
    int rc = scratch_init(&s, job);
    if (rc < 0)
        return rc;
    for (uint64_t g = job->n_listed + begin; g < job->n_listed + end; g++)
        job->n_near[g] =
            near_groups(job, &s, job->first_group + (uint32_t)g, job->near + g * (size_t)NEIGHBOUR_GROUPS_MAX);
    scratch_fini(&s);
    return 0;
}

static int run_means(void *context, uint64_t begin, uint64_t end)
{
    struct job *job = context;
    for (uint64_t r = begin; r < end; r++) {
        float *mean = job->runs + r * job->code_dim;
        uint32_t first = (uint32_t)r * RUN_GROUPS, m = smaller(job->n_groups - first, RUN_GROUPS);
        memset(mean, 0, sizeof(float) * job->code_dim);
        for (uint32_t g = first; g < first + m; g++)
            for (uint32_t d = 0; d < job->code_dim; d++)
                mean[d] += job->centres[(size_t)g * job->code_dim + d];
        for (uint32_t d = 0; d < job->code_dim; d++)
            mean[d] /= (float)m;
    }
    return 0;
}

/* ---- edges of a row ---------------------------------------------------------------------------------------------- */

/* The rows of a group, among those in memory. */
static struct rows group_rows(const struct job *job, uint32_t group)
{
    uint32_t capacity = job->config->capacity, first = group * capacity;
    assert(job->place[group] != NEIGHBOUR_NONE);
    return rows_part(&job->rows, job->place[group] * capacity, smaller(job->n - first, capacity));
}

/* The row's nearest groups of those near its own, its own before all, into s->groups; returns how many, `most` at
 * most. */
static uint32_t rank_groups(const struct job *job, struct scratch *s, uint32_t row, const uint32_t *near,
                            uint32_t n_near, uint32_t most)
{
    const struct rows *rows = &job->rows;
    size_t dim = job->code_dim;
    if (n_near <= most) {
        for (uint32_t i = 0; i < n_near; i++)
            s->groups[i] = near[i];
        return n_near;
    }
    code_decode(rows->codes + row * dim, (uint32_t)dim, 8, rows->f[row], s->row);
    for (uint32_t i = 1; i < n_near; i++)
        s->groups[i] = near_of(kernels()->f32_l2(s->row, job->centres + near[i] * dim, dim), near[i]);
    s->groups[0] = near[0];
    return 1 + near_keep_sorted(s->groups + 1, n_near - 1, most - 1, s->spare);
}

/* The nearest rows, as they are collected in s->pool: the `pool` nearest so far are among n, none beyond limit. */
struct nearest {
    uint32_t n;
    float limit;
};

/* Leaves the `pool` nearest, when there are more or more than twice as many. */
static void narrow_pool(const struct job *job, struct scratch *s, struct nearest *nearest)
{
    uint32_t keep = job->config->pool;
    if (nearest->n < keep || (nearest->limit < FLT_MAX && nearest->n < 2 * keep))
        return;
    near_select(s->pool, nearest->n, keep);
    nearest->n = keep;
    near_t last = 0;
    for (uint32_t i = 0; i < keep; i++)
        last = s->pool[i] > last ? s->pool[i] : last;
    nearest->limit = near_distance(last);
}

/* Of the rows of the groups in s->groups. Groups come nearest first, so that most rows of the later ones are beyond
 * the limit and cost one comparison. dots: products with the rows of each group, `capacity` apart; NULL: not known. */
static struct nearest search_groups(const struct job *job, struct scratch *s, const struct row_query *query,
                                    uint32_t n_groups, const int32_t *dots)
{
    struct nearest nearest = {0, FLT_MAX};
    for (uint32_t g = 0; g < n_groups; g++) {
        struct rows members = group_rows(job, (uint32_t)s->groups[g]);
        uint32_t first = (uint32_t)((members.codes - job->rows.codes) / job->code_dim), n = nearest.n;
        if (dots)
            row_query_finish(query, &members, dots + (size_t)g * job->config->capacity, s->distances);
        else
            row_query_range(query, &members, job->iota, s->dots, s->distances);
        if (query->row - first < members.n)
            s->distances[query->row - first] = INFINITY;
        for (uint32_t i = 0; i < members.n; i++) {
            s->pool[n] = near_of(s->distances[i], first + i);
            n += s->distances[i] <= nearest.limit;
        }
        nearest.n = n;
        narrow_pool(job, s, &nearest);
    }
    return nearest;
}

/* Adds candidates that the row brings, except those of the groups that were searched and those that are far off. */
static void add_known(const struct job *job, struct scratch *s, const struct row_query *query, uint32_t own_group,
                      uint32_t n_groups, struct nearest *nearest, const uint32_t *known, uint32_t n_known)
{
    uint32_t capacity = job->config->capacity, most = job->config->pool;
    for (uint32_t at = 0; at < n_known;) {
        uint32_t m = 0;
        for (; at < n_known && m < most; at++) {
            uint32_t group = known[at] / capacity, g = 0;
            if (known[at] == NEIGHBOUR_NONE || s->near_to[group] != own_group + 1)
                continue;
            while (g < n_groups && (uint32_t)s->groups[g] != group)
                g++;
            if (g < n_groups)
                continue;
            s->alive[m++] = job->place[group] * capacity + known[at] % capacity;
        }
        row_query_distances(query, s->alive, m, s->dots, s->distances);
        narrow_pool(job, s, nearest);
        for (uint32_t i = 0; i < m; i++)
            if (s->distances[i] <= nearest->limit)
                s->pool[nearest->n++] = near_of(s->distances[i], s->alive[i]);
    }
}

/* Keeps of s->pool[0..n), nearest first, those that no kept one leads to. Whenever one is kept, those it leads to are
 * dropped, so that few are measured again. */
static uint32_t prune(const struct job *job, struct scratch *s, uint32_t n, uint32_t *kept)
{
    struct row_query query;
    near_t *pool = s->pool;
    uint32_t n_kept = 0;
    while (n > 0 && n_kept < job->config->degree) {
        uint32_t nearest = (uint32_t)pool[0], left = 0;
        kept[n_kept++] = nearest;
        n--;
        pool++;
        if (n == 0 || n_kept == job->config->degree)
            break;
        for (uint32_t i = 0; i < n; i++)
            s->alive[i] = (uint32_t)pool[i];
        row_query_set(&query, &job->rows, nearest, s->levels);
        row_query_distances(&query, s->alive, n, s->dots, s->distances);
        for (uint32_t i = 0; i < n; i++) {
            pool[left] = pool[i];
            left += job->config->alpha * s->distances[i] < near_distance(pool[i]) ? 0 : 1;
        }
        n = left;
    }
    return n_kept;
}

/* What a device is asked for row i of a group of the batch: a run per group that it searches. */
static struct offload_run *row_runs(const struct job *job, uint32_t in_batch, uint32_t i)
{
    uint32_t at = (in_batch - job->first_linked) * job->config->capacity + i;
    return job->device.runs + (size_t)at * job->config->groups;
}

/* The groups that a row searches, into s->groups; returns how many. known: candidates that it brings, NEIGHBOUR_NONE of
 * them if it does not. */
static uint32_t choose_searched(const struct job *job, struct scratch *s, uint32_t in_batch, uint32_t i,
                                const uint32_t **known, uint32_t *n_known)
{
    const struct device *device = &job->device;
    uint32_t capacity = job->config->capacity, group = job->first_group + in_batch, n = 0;
    *n_known = NEIGHBOUR_NONE;
    if (job->source->known)
        *n_known = job->source->known(job->source->context, group * capacity + i, known);
    if (!device->has_dots)
        return rank_groups(job, s, job->place[group] * capacity + i,
                           job->near + in_batch * (size_t)NEIGHBOUR_GROUPS_MAX, job->n_near[in_batch],
                           *n_known == NEIGHBOUR_NONE ? job->config->groups : job->config->groups_known);
    const struct offload_run *runs = row_runs(job, in_batch, i);
    for (; n < job->config->groups && runs[n].n > 0; n++)
        s->groups[n] = runs[n].first / capacity;
    return n;
}

/* Row i of group first_group + in_batch. */
static void link_row(const struct job *job, struct scratch *s, uint32_t in_batch, uint32_t i, uint32_t *edges)
{
    uint32_t capacity = job->config->capacity, group = job->first_group + in_batch, n_known;
    const uint32_t *known = NULL;
    const int32_t *dots = job->device.has_dots ? job->device.dots + row_runs(job, in_batch, i)->out : NULL;
    struct row_query query;
    uint32_t n_groups = choose_searched(job, s, in_batch, i, &known, &n_known);
    row_query_set(&query, &job->rows, job->place[group] * capacity + i, s->levels);
    struct nearest nearest = search_groups(job, s, &query, n_groups, dots);
    if (n_known != NEIGHBOUR_NONE)
        add_known(job, s, &query, group, n_groups, &nearest, known, n_known);
    assert(nearest.n <= pool_capacity(job->config));
    uint32_t n = near_keep_sorted(s->pool, nearest.n, job->config->pool, s->spare);
    uint32_t n_kept = prune(job, s, n, edges);
    for (uint32_t k = 0; k < n_kept && job->loaded; k++)
        edges[k] = job->loaded[edges[k] / capacity] * capacity + edges[k] % capacity;
    for (uint32_t k = n_kept; k < job->config->degree; k++)
        edges[k] = NEIGHBOUR_NONE;
}

static int link_groups(void *context, uint64_t begin, uint64_t end)
{
    struct job *job = context;
    uint32_t capacity = job->config->capacity;
    struct scratch s;
    int rc = scratch_init(&s, job);
    if (rc < 0)
        return rc;
    for (uint64_t g = job->first_linked + begin; g < job->first_linked + end; g++) {
        uint32_t group = job->first_group + (uint32_t)g, n = smaller(job->n - group * capacity, capacity);
        uint32_t *edges = job->edges + g * capacity * job->config->degree;
        const uint32_t *near = job->near + g * NEIGHBOUR_GROUPS_MAX;
        for (uint32_t i = 0; s.near_to && i < job->n_near[g]; i++)
            s.near_to[near[i]] = group + 1;
        for (uint32_t i = 0; i < n; i++)
            link_row(job, &s, (uint32_t)g, i, edges + (size_t)i * job->config->degree);
    }
    scratch_fini(&s);
    return 0;
}

/* ---- with a device ----------------------------------------------------------------------------------------------- */

static void device_fini(struct device *device)
{
    if (device->offload)
        offload_unload(device->offload, device->block);
    array_free_all(device->queries, device->runs, device->dots);
    *device = (struct device){0};
}

/* All rows to the device. Without one, or where that fails, the processor does its part. */
static void device_init(struct job *job)
{
    struct device *device = &job->device;
    const struct rows *rows = job->source->all;
    size_t group_dots = (size_t)job->config->capacity * job->config->groups * job->config->capacity;
    if (!job->config->offload || !rows || job->source->known)
        return;
    struct offload_rows codes = {OFFLOAD_CODE8, rows->n, rows->code_dim, rows->codes, NULL};
    if (offload_load(job->config->offload, &codes, &device->block, NULL) < 0)
        return;
    device->offload = job->config->offload;
    device->most = (uint32_t)(DEVICE_DOTS / group_dots) + 1;
    size_t n_rows = (size_t)device->most * job->config->capacity;
    device->queries = malloc(n_rows * rows->code_dim);
    device->runs = malloc(n_rows * job->config->groups * sizeof *device->runs);
    device->dots = malloc(device->most * group_dots * sizeof *device->dots);
    if (!device->queries || !device->runs || !device->dots)
        device_fini(device);
}

static int rank_for_device(void *context, uint64_t begin, uint64_t end)
{
    struct job *job = context;
    uint32_t capacity = job->config->capacity;
    struct row_query query;
    struct scratch s;
    int rc = scratch_init(&s, job);
    if (rc < 0)
        return rc;
    for (uint32_t g = job->first_linked + (uint32_t)begin; g < job->first_linked + end; g++) {
        uint32_t first = (job->first_group + g) * capacity, n = smaller(job->n - first, capacity);
        for (uint32_t i = 0; i < n; i++) {
            const uint32_t *known;
            uint32_t n_known, n_groups = choose_searched(job, &s, g, i, &known, &n_known);
            struct offload_run *runs = row_runs(job, g, i);
            uint32_t at = (g - job->first_linked) * capacity + i;
            row_query_set(&query, &job->rows, first + i, job->device.queries + (size_t)at * job->code_dim);
            for (uint32_t k = 0; k < n_groups; k++) {
                uint32_t from = (uint32_t)s.groups[k] * capacity;
                runs[k] = (struct offload_run){at, from, smaller(job->n - from, capacity),
                                               (at * job->config->groups + k) * capacity};
            }
        }
    }
    scratch_fini(&s);
    return 0;
}

/* The products of all rows of groups first_linked .. first_linked + n of the batch. */
static int ask_device(struct job *job, uint32_t n)
{
    struct device *device = &job->device;
    uint32_t n_rows = n * job->config->capacity, n_runs = n_rows * job->config->groups;
    struct offload_dots request = {.n_queries = n_rows,
                                   .n_runs = n_runs,
                                   .n_out = n_runs * job->config->capacity,
                                   .queries = device->queries,
                                   .runs = device->runs,
                                   .out = device->dots};
    assert(n > 0 && n <= device->most && !device->has_dots);
    memset(device->runs, 0, n_runs * sizeof *device->runs);
    memset(device->queries, 0, (size_t)n_rows * job->code_dim); /* the last group may have fewer rows */
    int rc = parallel_for(job->config->threads, n, 4, rank_for_device, job, NULL);
    if (rc < 0)
        return rc;
    if (offload_dots(device->offload, device->block, &request, NULL) == 0)
        device->has_dots = true;
    else
        device_fini(device); /* its status says why */
    return 0;
}

/* Edges of the batch's first n groups. */
static int link_batch(struct job *job, uint32_t n)
{
    int rc = 0;
    for (uint32_t at = 0, now; rc == 0 && at < n; at += now) {
        job->first_linked = at;
        now = job->device.offload ? smaller(n - at, job->device.most) : n - at;
        if (job->device.offload)
            rc = ask_device(job, now);
        if (rc == 0)
            rc = parallel_for(job->config->threads, now, 4, link_groups, job, NULL);
        job->device.has_dots = false;
    }
    return rc;
}

/* ---- batches ----------------------------------------------------------------------------------------------------- */

static uint32_t batch_groups(const struct neighbours_config *config)
{
    return larger(BATCH_LEAST, smaller(BATCH_GROUPS, BATCH_EDGES / (config->capacity * config->degree)));
}

static void job_fini(struct job *job, bool owns_rows)
{
    array_free_all(job->runs, job->iota, job->near, job->n_near, job->place, job->loaded, job->edges);
    if (owns_rows)
        rows_free(&job->rows);
}

static int job_init(struct job *job, const struct neighbours_rows *rows, const float *centres,
                    const struct neighbours_config *config)
{
    uint32_t capacity = config->capacity, n_groups = (rows->n + capacity - 1) / capacity;
    assert(rows->n > 0 && config->degree > 0 && config->pool >= config->degree);
    *job = (struct job){.config = config, .source = rows, .centres = centres, .n = rows->n, .n_groups = n_groups};
    job->code_dim = rows->code_dim;
    job->n_runs = (n_groups + RUN_GROUPS - 1) / RUN_GROUPS;
    job->batch_groups = batch_groups(config);
    job->runs = malloc(sizeof(float) * job->n_runs * rows->code_dim);
    job->iota = malloc(sizeof *job->iota * capacity);
    job->near = malloc(sizeof *job->near * job->batch_groups * NEIGHBOUR_GROUPS_MAX);
    job->n_near = malloc(sizeof *job->n_near * job->batch_groups);
    job->place = malloc(sizeof *job->place * n_groups);
    job->edges = malloc(sizeof *job->edges * job->batch_groups * capacity * config->degree);
    int rc = job->runs && job->iota && job->near && job->n_near && job->place && job->edges ? 0 : QUIRE_ENOMEM;
    if (rc == 0 && !rows->all) {
        job->loaded = malloc(sizeof *job->loaded * n_groups);
        rc = job->loaded ? rows_alloc(&job->rows, smaller(rows->most, rows->n), rows->code_dim) : QUIRE_ENOMEM;
    }
    if (rc < 0) {
        job_fini(job, !rows->all);
        return rc;
    }
    for (uint32_t i = 0; i < capacity; i++)
        job->iota[i] = i;
    for (uint32_t g = 0; g < n_groups; g++)
        job->place[g] = rows->all ? g : NEIGHBOUR_NONE;
    if (rows->all)
        job->rows = *rows->all;
    return 0;
}

/* How many of the batch's groups, from the first on, have all groups near to them in memory at once; marks these. */
static uint32_t choose_groups(struct job *job, const struct neighbours_rows *rows, uint32_t n)
{
    uint32_t most = rows->most < job->n ? rows->most / job->config->capacity : job->n_groups;
    job->n_loaded = 0;
    for (uint32_t g = 0; g < n; g++) {
        const uint32_t *near = job->near + g * (size_t)NEIGHBOUR_GROUPS_MAX;
        uint32_t before = job->n_loaded;
        bool fits = true;
        for (uint32_t i = 0; i < job->n_near[g] && fits; i++) {
            if (job->place[near[i]] != NEIGHBOUR_NONE)
                continue;
            fits = job->n_loaded < most;
            if (fits) {
                job->place[near[i]] = 0;
                job->loaded[job->n_loaded++] = near[i];
            }
        }
        if (fits)
            continue;
        while (job->n_loaded > before)
            job->place[job->loaded[--job->n_loaded]] = NEIGHBOUR_NONE;
        return g;
    }
    return n;
}

/* Loads the groups that were marked, consecutive ones at once. */
static int load_groups(struct job *job, const struct neighbours_rows *rows)
{
    uint32_t capacity = job->config->capacity;
    int rc = 0;
    array_sort_u32(job->loaded, job->n_loaded);
    for (uint32_t at = 0; rc == 0 && at < job->n_loaded;) {
        uint32_t run = 1, first = job->loaded[at] * capacity;
        while (at + run < job->n_loaded && job->loaded[at + run] == job->loaded[at] + run)
            run++;
        for (uint32_t i = 0; i < run; i++)
            job->place[job->loaded[at + i]] = at + i;
        rc = rows->load(rows->context, first, smaller(rows->n - first, run * capacity), &job->rows, at * capacity);
        at += run;
    }
    return rc;
}

/* The batch of `done` groups is over: what was found out for later ones moves to the front. */
static void next_batch(struct job *job, uint32_t done)
{
    assert(done > 0 && done <= job->n_listed);
    for (uint32_t i = 0; i < job->n_loaded; i++)
        job->place[job->loaded[i]] = NEIGHBOUR_NONE;
    job->n_loaded = 0;
    job->n_listed -= done;
    memmove(job->near, job->near + done * (size_t)NEIGHBOUR_GROUPS_MAX,
            sizeof *job->near * job->n_listed * NEIGHBOUR_GROUPS_MAX);
    memmove(job->n_near, job->n_near + done, sizeof *job->n_near * job->n_listed);
    job->first_group += done;
}

/* Links the groups from job->first_group on, as many as fit. */
static int run_batch(struct job *job, const struct neighbours_rows *rows)
{
    uint32_t n = smaller(job->n_groups - job->first_group, job->batch_groups), capacity = job->config->capacity;
    uint32_t first = job->first_group * capacity;
    /* near groups of the batch's groups; those that the batch before did not come to are known */
    assert(job->n_listed <= n);
    int rc = parallel_for(job->config->threads, n - job->n_listed, 8, find_near_groups, job, NULL);
    if (rc < 0)
        return rc;
    job->n_listed = n;
    if (!rows->all) {
        n = choose_groups(job, rows, n);
        rc = n ? load_groups(job, rows) : QUIRE_EINTERNAL;
    }
    if (rc == 0)
        rc = link_batch(job, n);
    if (rc == 0)
        rc = rows->put(rows->context, first, smaller(job->n - first, n * capacity), job->edges);
    if (rc == 0)
        next_batch(job, n);
    return rc;
}

int neighbours_build(const struct neighbours_rows *rows, uint32_t first_group, const float *centres,
                     const struct neighbours_config *config, const struct progress *progress)
{
    struct job job;
    int rc = job_init(&job, rows, centres, config);
    if (rc < 0)
        return rc;
    parallel_for(config->threads, job.n_runs, 8, run_means, &job, NULL);
    job.first_group = first_group;
    device_init(&job);
    while (rc == 0 && job.first_group < job.n_groups) {
        rc = run_batch(&job, rows);
        if (rc == 0 && progress && progress->report &&
            progress->report(progress->context, progress->phase, job.first_group, job.n_groups) != 0)
            rc = QUIRE_ECANCELLED;
    }
    device_fini(&job.device);
    job_fini(&job, !rows->all);
    return rc;
}

uint64_t neighbours_bytes(uint32_t n_groups, uint32_t code_dim, const struct neighbours_config *config)
{
    uint64_t runs = (n_groups + RUN_GROUPS - 1) / RUN_GROUPS * (uint64_t)code_dim * sizeof(float);
    uint64_t lists = (uint64_t)batch_groups(config) * (NEIGHBOUR_GROUPS_MAX + 1) * sizeof(uint32_t);
    uint64_t edges = (uint64_t)batch_groups(config) * config->capacity * config->degree * sizeof(uint32_t);
    uint64_t most = larger(larger(n_groups / RUN_GROUPS + 1, RUN_GROUPS * RUNS_PROBED), pool_capacity(config));
    uint64_t scratch = most * 20 + (uint64_t)pool_capacity(config) * 16 + 5 * (uint64_t)code_dim;
    return runs + lists + edges + 8 * (uint64_t)n_groups + (scratch + 4 * (uint64_t)n_groups) * config->threads;
}
