/*
 * partition.c - balanced bisection: every block is full, and near rows share one.
 *
 * A node is a range of the order. It is cut in two at a multiple of the capacity nearest to its middle: a direction is
 * found by 2-means with exact halves on a sample (assign by the median of the projection, recompute the two means, a
 * few times), then all rows of the node are projected on it and those with the smallest projections go left. Within
 * each side the rows keep their order. Rows far out are left out of the sample, since no cut would go between any
 * others for them. Cost: one 8-bit dot product per row and level, n log2(n / capacity) in all.
 *
 * Why not k-means with capacity or greedy grouping along the graph: greedy fills blocks to 35-85 % only, and bisection
 * reaches the same locality at 100 % fill (measured; docs/performance.md). The order is also a tree order: neighbouring
 * groups are near, so sorted lists of rows have small gaps (edges compress to about a byte) and a run of groups is a
 * larger cluster.
 *
 * Levels are processed one after the other; nodes of a level are independent and each one's random numbers come from
 * the seed and its range, so the result does not depend on the number of threads. The first levels have fewer nodes
 * than threads: there the projection loop over rows is what runs in parallel. Because rows keep their order, a node can
 * as well be cut by streaming through a file (partition_files.c), and the result is the same. So it is where a device
 * multiplies (partition_device.c).
 */
#include "index/cluster/partition_priv.h"
#include "index/kernels/kernels.h"
#include "io/array.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MEANS_ROUNDS       6
#define PARALLEL_NODE_ROWS 65536u /* nodes larger than this are projected by all threads */
#define PROJECT_ROWS       256u
#define FAR2               1024.0f /* rows 32 times farther out than three quarters of all are left out */

void partition_scratch_fini(struct partition_scratch *s)
{
    array_free_all(s->sample, s->means, s->direction, s->projection, s->positions, s->levels);
}

int partition_scratch_init(struct partition_scratch *s, uint32_t code_dim)
{
    s->sample = malloc(sizeof(float) * PARTITION_SAMPLE * code_dim);
    s->means = malloc(sizeof(float) * 2 * code_dim);
    s->direction = malloc(sizeof(float) * code_dim);
    s->projection = malloc(sizeof(float) * 2 * PARTITION_SAMPLE);
    s->positions = malloc(sizeof(uint32_t) * PARTITION_SAMPLE);
    s->levels = malloc(code_dim);
    if (s->sample && s->means && s->direction && s->projection && s->positions && s->levels)
        return 0;
    partition_scratch_fini(s);
    return QUIRE_ENOMEM;
}

uint32_t partition_draw(struct partition_scratch *s, struct node node, uint64_t seed, struct random *random)
{
    uint32_t n = node.end - node.begin, m = n < PARTITION_SAMPLE ? n : PARTITION_SAMPLE;
    assert(n > 1);
    random_init(random, seed ^ ((uint64_t)node.begin << 32 | node.end));
    for (uint32_t i = 0; i < m; i++)
        s->positions[i] = m == n ? i : (uint32_t)random_below(random, n);
    return m;
}

/* Means of the sample's rows whose projections are among the `half` smallest, and of the others. */
static void sample_means(const struct partition_scratch *s, uint32_t m, uint32_t half, uint32_t dim)
{
    memcpy(s->projection + PARTITION_SAMPLE, s->projection, sizeof(float) * m);
    struct near_limit limit = near_limit_of(s->projection + PARTITION_SAMPLE, m, half);
    assert(half > 0 && half < m);
    memset(s->means, 0, sizeof(float) * 2 * dim);
    for (uint32_t i = 0; i < m; i++) {
        const float *x = s->sample + (size_t)i * dim;
        float *mean = s->means + (near_limit_takes(&limit, s->projection[i]) ? 0 : dim);
        for (uint32_t d = 0; d < dim; d++)
            mean[d] += x[d];
    }
    for (uint32_t d = 0; d < dim; d++) {
        s->means[d] /= (float)half;
        s->means[dim + d] /= (float)(m - half);
    }
}

/* Takes the rows far out from the m of the sample; returns how many stay. The origin is the mean of the ordinary rows
 * (build_rows.c), and so no row of the node can hide another. */
static uint32_t leave_out_far(struct partition_scratch *s, uint32_t m, uint32_t dim)
{
    float *norms = s->projection, *moved = s->projection + PARTITION_SAMPLE;
    for (uint32_t i = 0; i < m; i++) {
        const float *x = s->sample + (size_t)i * dim;
        norms[i] = moved[i] = kernels()->f32_dot(x, x, dim);
    }
    float limit = FAR2 * near_limit_of(moved, m, m - m / 4).value;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < m; i++) {
        if (norms[i] > limit && limit > 0)
            continue;
        if (kept < i)
            memcpy(s->sample + (size_t)kept * dim, s->sample + (size_t)i * dim, sizeof(float) * dim);
        kept++;
    }
    return kept;
}

void partition_direction(struct partition_scratch *s, uint32_t m, uint32_t code_dim, struct random *random)
{
    const struct kernels *k = kernels();
    m = leave_out_far(s, m, code_dim);
    const float *first = s->sample + random_below(random, m) * code_dim, *far = first;
    float largest = -1;
    for (uint32_t i = 0; i < m; i++) {
        float d = k->f32_l2(first, s->sample + (size_t)i * code_dim, code_dim);
        if (d > largest) {
            largest = d;
            far = s->sample + (size_t)i * code_dim;
        }
    }
    for (uint32_t d = 0; d < code_dim; d++)
        s->direction[d] = far[d] - first[d];
    uint32_t half = m / 2;
    for (int round = 0; round < MEANS_ROUNDS && half > 0; round++) {
        for (uint32_t i = 0; i < m; i++)
            s->projection[i] = k->f32_dot(s->direction, s->sample + (size_t)i * code_dim, code_dim);
        sample_means(s, m, half, code_dim);
        for (uint32_t d = 0; d < code_dim; d++)
            s->direction[d] = s->means[code_dim + d] - s->means[d];
    }
}

void partition_project(const struct rows *rows, const struct code_query *query, const uint32_t *ids, uint32_t n,
                       float *keys)
{
    int32_t dots[PROJECT_ROWS];
    for (uint32_t at = 0; at < n;) {
        uint32_t m = n - at < PROJECT_ROWS ? n - at : PROJECT_ROWS;
        kernels()->code_dot[3](query->levels, rows->codes, rows->code_dim, ids + at, m, rows->code_dim, dots);
        for (uint32_t i = 0; i < m; i++)
            keys[at + i] = partition_key(rows, ids[at + i], query, dots[i]);
        at += m;
    }
}

static int project_range(void *context, uint64_t begin, uint64_t end)
{
    struct partition *p = context;
    uint64_t at = p->begin + begin;
    partition_project(p->rows, &p->query, p->order + at, (uint32_t)(end - begin), p->keys + at);
    return 0;
}

uint32_t partition_cut(struct node node, uint32_t capacity)
{
    uint32_t n = node.end - node.begin, unit = n > capacity ? capacity : PARTITION_RUN;
    assert(unit > 0);
    uint32_t groups = (n + unit - 1) / unit;
    return node.begin + groups / 2 * unit;
}

void partition_split(const struct partition *p, struct node node)
{
    uint32_t n = node.end - node.begin, n_left = 0, n_right = 0;
    uint32_t left = partition_cut(node, p->config->capacity) - node.begin;
    uint32_t *order = p->order + (node.begin - p->base), *right = (uint32_t *)(void *)(p->spare + (order - p->order));
    const float *keys = p->keys + (order - p->order);
    memcpy(right, keys, sizeof(float) * n);
    struct near_limit limit = near_limit_of((float *)(void *)right, n, left);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t row = order[i];
        if (near_limit_takes(&limit, keys[i]))
            order[n_left++] = row;
        else
            right[n_right++] = row;
    }
    assert(n_left == left);
    memcpy(order + n_left, right, sizeof *right * n_right);
}

void partition_aim(const struct partition *p, struct partition_scratch *s, struct node node, struct code_query *query)
{
    struct random random;
    const struct rows *rows = p->rows;
    uint32_t dim = rows->code_dim, m = partition_draw(s, node, p->config->seed, &random);
    for (uint32_t i = 0; i < m; i++) {
        uint32_t row = p->order[node.begin - p->base + s->positions[i]];
        code_decode(rows->codes + (size_t)row * dim, dim, 8, rows->f[row], s->sample + (size_t)i * dim);
    }
    partition_direction(s, m, dim, &random);
    code_query_set(query, s->direction, dim);
}

static void split_node(const struct partition *p, struct partition_scratch *s, struct node node, unsigned threads)
{
    struct partition local = *p;
    uint32_t n = node.end - node.begin;
    local.begin = node.begin - p->base;
    local.query.levels = s->levels;
    partition_aim(p, s, node, &local.query);
    if (threads > 1)
        parallel_for(threads, n, 8192, project_range, &local, NULL);
    else
        project_range(&local, 0, n);
    partition_split(p, node);
}

static int split_range(void *context, uint64_t begin, uint64_t end)
{
    struct partition *p = context;
    struct partition_scratch s;
    int rc = partition_scratch_init(&s, p->rows->code_dim);
    if (rc < 0)
        return rc;
    for (uint64_t i = begin; i < end; i++)
        split_node(p, &s, p->nodes[i], 1);
    partition_scratch_fini(&s);
    return 0;
}

/* The nodes of a level from `first` on, here. */
static int split_here(struct partition *p, uint32_t first, uint32_t n_nodes)
{
    struct partition rest = *p;
    unsigned threads = p->config->threads;
    rest.nodes += first;
    n_nodes -= first;
    if (n_nodes >= 2 * threads || rest.nodes[0].end - rest.nodes[0].begin < PARALLEL_NODE_ROWS)
        return parallel_for(threads, n_nodes, n_nodes / (16 * threads) + 1, split_range, &rest, NULL);
    struct partition_scratch s;
    int rc = partition_scratch_init(&s, p->rows->code_dim);
    if (rc < 0)
        return rc;
    for (uint32_t i = 0; i < n_nodes; i++)
        split_node(&rest, &s, rest.nodes[i], threads);
    partition_scratch_fini(&s);
    return 0;
}

static int split_level(struct partition *p, uint32_t n_nodes)
{
    uint32_t done = 0;
    int rc = p->device ? partition_device_split(p->device, n_nodes, &done) : 0;
    if (rc < 0 || done == n_nodes)
        return rc;
    partition_device_close(p->device);
    p->device = NULL;
    return split_here(p, done, n_nodes);
}

/* Runs of n rows, or a few more. */
static uint32_t runs_of(uint32_t n, uint32_t capacity)
{
    return (n + capacity - 1) / capacity * ((capacity + PARTITION_RUN - 1) / PARTITION_RUN);
}

uint64_t partition_work(uint32_t n, uint32_t capacity)
{
    uint32_t runs = runs_of(n, capacity), levels = 1;
    while ((1u << levels) < runs && levels < 31)
        levels++;
    return (uint64_t)n * levels;
}

int partition_node(const struct rows *rows, struct node node, const struct partition_config *config,
                   struct parallel_advance *advance, uint32_t *order)
{
    uint32_t n = node.end - node.begin, runs = runs_of(n, config->capacity), n_nodes = 0;
    struct partition p = {.rows = rows, .config = config, .base = node.begin, .order = order};
    p.keys = malloc(sizeof(float) * n);
    p.spare = malloc(sizeof(float) * n);
    p.nodes = malloc(sizeof(struct node) * ((size_t)runs + 1));
    struct node *next = malloc(sizeof(struct node) * ((size_t)runs + 1));
    assert(n > 0 && n <= rows->n && config->capacity > 0 && config->threads > 0);
    int rc = p.keys && p.spare && p.nodes && next ? 0 : QUIRE_ENOMEM;
    if (n > PARTITION_RUN && rc == 0) {
        p.nodes[n_nodes++] = node;
        p.device = partition_device_open(&p);
    }
    while (rc == 0 && n_nodes > 0) {
        uint64_t done = 0; /* rows of the nodes that were split */
        uint32_t n_next = 0;
        rc = split_level(&p, n_nodes);
        for (uint32_t i = 0; i < n_nodes; i++) { /* leaves (one run) drop out */
            struct node whole = p.nodes[i];
            uint32_t cut = partition_cut(whole, config->capacity);
            done += whole.end - whole.begin;
            if (cut - whole.begin > PARTITION_RUN)
                next[n_next++] = (struct node){whole.begin, cut};
            if (whole.end - cut > PARTITION_RUN)
                next[n_next++] = (struct node){cut, whole.end};
        }
        n_nodes = n_next;
        assert(n_nodes <= runs);
        struct node *spare = p.nodes;
        p.nodes = next;
        next = spare;
        if (rc == 0)
            rc = parallel_report(advance, done);
    }
    partition_device_close(p.device);
    array_free_all(p.keys, p.spare, p.nodes, next);
    return rc;
}

int partition_build(const struct rows *rows, const struct partition_config *config, const struct progress *progress,
                    uint32_t *order)
{
    struct parallel_advance advance = {progress, progress ? progress->phase : NULL, 0,
                                       partition_work(rows->n, config->capacity)};
    for (uint32_t i = 0; i < rows->n; i++)
        order[i] = i;
    int rc = partition_node(rows, (struct node){0, rows->n}, config, &advance, order);
    return rc == 0 ? parallel_report(&advance, advance.total) : rc;
}
