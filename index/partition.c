/*
 * partition.c - balanced bisection: every block is full, and near rows share one.
 *
 * A node is a range of the order. It is cut in two at a multiple of the capacity nearest to its middle: a direction is
 * found by 2-means with exact halves on a sample (assign by the median of the projection, recompute the two means, a
 * few times), then all rows of the node are projected on it and selected around the cut. Cost: one 8-bit dot product
 * per row and level, n log2(n / capacity) in all.
 *
 * Why not k-means with capacity or greedy grouping along the graph: greedy fills blocks to 35-85 % only, and bisection
 * reaches the same locality at 100 % fill (measured; docs/performance.md). The order is also a tree order: neighbouring
 * groups are near, so sorted lists of rows have small gaps (edges compress to about a byte) and a run of groups is a
 * larger cluster.
 *
 * Levels are processed one after the other; nodes of a level are independent and each one's random numbers come from
 * the seed and its range, so the result does not depend on the number of threads. The first levels have fewer nodes
 * than threads: there the projection loop over rows is what runs in parallel.
 */
#include "index/partition.h"
#include "index/kernels/kernels.h"
#include "io/random.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SAMPLE_MAX         512u
#define MEANS_ROUNDS       6
#define PARALLEL_NODE_ROWS 65536u /* nodes larger than this are projected by all threads */

struct node {
    uint32_t begin, end;
};

struct scratch {
    float *sample;     /* SAMPLE_MAX x code_dim */
    float *means;      /* 2 x code_dim */
    float *direction;  /* code_dim */
    float *projection; /* SAMPLE_MAX */
    uint32_t *ranks;   /* SAMPLE_MAX */
    int8_t *levels;    /* code_dim */
};

struct partition {
    const struct rows *rows;
    uint32_t capacity;
    uint64_t seed;
    uint32_t *order;
    float *keys;        /* n: projection of order[i], at i */
    struct node *nodes; /* nodes of the present level */
    struct code_query query;
    uint32_t base; /* first row of the range being projected */
};

static void scratch_fini(struct scratch *s)
{
    free(s->sample);
    free(s->means);
    free(s->direction);
    free(s->projection);
    free(s->ranks);
    free(s->levels);
}

static int scratch_init(struct scratch *s, uint32_t dim)
{
    s->sample = malloc(sizeof(float) * SAMPLE_MAX * dim);
    s->means = malloc(sizeof(float) * 2 * dim);
    s->direction = malloc(sizeof(float) * dim);
    s->projection = malloc(sizeof(float) * SAMPLE_MAX);
    s->ranks = malloc(sizeof(uint32_t) * SAMPLE_MAX);
    s->levels = malloc(dim);
    if (s->sample && s->means && s->direction && s->projection && s->ranks && s->levels)
        return 0;
    scratch_fini(s);
    return QUIRE_ENOMEM;
}

static void swap_rows(uint32_t *order, float *keys, uint32_t a, uint32_t b)
{
    uint32_t row = order[a];
    order[a] = order[b];
    order[b] = row;
    float key = keys[a];
    keys[a] = keys[b];
    keys[b] = key;
}

/* Hoare's selection: afterwards keys[begin..cut) <= keys[cut..end). Ties in order of place, so equal keys (duplicates)
 * cost no more than others. */
static void select_around(uint32_t *order, float *keys, uint32_t begin, uint32_t end, uint32_t cut)
{
    while (end - begin > 1) {
        uint32_t middle = begin + (end - begin) / 2;
        float a = keys[begin], b = keys[middle], c = keys[end - 1];
        float pivot = fmaxf(fminf(a, b), fminf(fmaxf(a, b), c));
        uint32_t i = begin, j = end - 1;
        for (;;) {
            while (keys[i] < pivot)
                i++;
            while (keys[j] > pivot)
                j--;
            if (i >= j)
                break;
            swap_rows(order, keys, i, j);
            i++;
            j--;
        }
        /* [begin, j] <= pivot <= [j + 1, end) once i >= j; both sides are shorter than the whole */
        uint32_t split = i == j ? i : j + 1;
        if (split == begin)
            split++;
        if (split == end)
            split--;
        if (cut < split)
            end = split;
        else if (cut > split)
            begin = split;
        else
            return;
    }
}

static void sample_mean(const struct scratch *s, const uint32_t *ranks, uint32_t n, uint32_t dim, float *mean)
{
    memset(mean, 0, sizeof(float) * dim);
    for (uint32_t i = 0; i < n; i++) {
        const float *x = s->sample + (size_t)ranks[i] * dim;
        for (uint32_t d = 0; d < dim; d++)
            mean[d] += x[d];
    }
    for (uint32_t d = 0; d < dim; d++)
        mean[d] /= (float)n;
}

static void sample_rows(const struct partition *p, struct scratch *s, struct node node, struct random *random,
                        uint32_t m)
{
    uint32_t n = node.end - node.begin, dim = p->rows->code_dim;
    for (uint32_t i = 0; i < m; i++) {
        uint32_t at = node.begin + (m == n ? i : (uint32_t)random_below(random, n));
        uint32_t row = p->order[at];
        code_decode(p->rows->codes + (size_t)row * dim, dim, 8, p->rows->f[row], s->sample + (size_t)i * dim);
    }
}

/* The direction in which the node is cut: from one mean to the other. */
static void find_direction(const struct partition *p, struct scratch *s, struct node node)
{
    const struct kernels *k = kernels();
    uint32_t dim = p->rows->code_dim, n = node.end - node.begin, m = n < SAMPLE_MAX ? n : SAMPLE_MAX;
    struct random random;
    random_init(&random, p->seed ^ ((uint64_t)node.begin << 32 | node.end));
    sample_rows(p, s, node, &random, m);
    const float *first = s->sample + random_below(&random, m) * dim, *far = first;
    float largest = -1;
    for (uint32_t i = 0; i < m; i++) {
        float d = k->f32_l2(first, s->sample + (size_t)i * dim, dim);
        if (d > largest) {
            largest = d;
            far = s->sample + (size_t)i * dim;
        }
    }
    for (uint32_t d = 0; d < dim; d++)
        s->direction[d] = far[d] - first[d];
    uint32_t half = m / 2;
    for (int round = 0; round < MEANS_ROUNDS && half > 0; round++) {
        for (uint32_t i = 0; i < m; i++) {
            s->ranks[i] = i;
            s->projection[i] = k->f32_dot(s->direction, s->sample + (size_t)i * dim, dim);
        }
        select_around(s->ranks, s->projection, 0, m, half);
        sample_mean(s, s->ranks, half, dim, s->means);
        sample_mean(s, s->ranks + half, m - half, dim, s->means + dim);
        for (uint32_t d = 0; d < dim; d++)
            s->direction[d] = s->means[dim + d] - s->means[d];
    }
}

static int project(void *context, uint64_t begin, uint64_t end)
{
    struct partition *p = context;
    const struct rows *rows = p->rows;
    int32_t dots[256];
    for (uint64_t at = p->base + begin; at < p->base + end;) {
        uint32_t n = (uint32_t)(p->base + end - at < 256 ? p->base + end - at : 256);
        const uint32_t *ids = p->order + at;
        kernels()->code_dot[3](p->query.levels, rows->codes, rows->code_dim, ids, n, rows->code_dim, dots);
        for (uint32_t i = 0; i < n; i++)
            p->keys[at + i] = rows->f[ids[i]] * code_query_dot(&p->query, dots[i], 127.5f);
        at += n;
    }
    return 0;
}

static uint32_t cut_of(const struct partition *p, struct node node)
{
    uint32_t n = node.end - node.begin, unit = n > p->capacity ? p->capacity : PARTITION_RUN;
    uint32_t groups = (n + unit - 1) / unit;
    return node.begin + groups / 2 * unit;
}

static void split_node(const struct partition *p, struct scratch *s, struct node node, unsigned threads)
{
    struct partition local = *p;
    find_direction(p, s, node);
    local.query.levels = s->levels;
    code_query_set(&local.query, s->direction, p->rows->code_dim);
    local.base = node.begin;
    if (threads > 1)
        parallel_for(threads, node.end - node.begin, 8192, project, &local, NULL);
    else
        project(&local, 0, node.end - node.begin);
    select_around(p->order, p->keys, node.begin, node.end, cut_of(p, node));
}

static int split_range(void *context, uint64_t begin, uint64_t end)
{
    struct partition *p = context;
    struct scratch s;
    int rc = scratch_init(&s, p->rows->code_dim);
    if (rc < 0)
        return rc;
    for (uint64_t i = begin; i < end; i++)
        split_node(p, &s, p->nodes[i], 1);
    scratch_fini(&s);
    return 0;
}

static int split_level(struct partition *p, uint32_t n_nodes, unsigned threads)
{
    if (n_nodes >= 2 * threads || p->nodes[0].end - p->nodes[0].begin < PARALLEL_NODE_ROWS)
        return parallel_for(threads, n_nodes, n_nodes / (16 * threads) + 1, split_range, p, NULL);
    struct scratch s;
    int rc = scratch_init(&s, p->rows->code_dim);
    if (rc < 0)
        return rc;
    for (uint32_t i = 0; i < n_nodes; i++)
        split_node(p, &s, p->nodes[i], threads);
    scratch_fini(&s);
    return 0;
}

/* The nodes of the next level; leaves (one run) drop out. */
static uint32_t next_level(const struct partition *p, const struct node *nodes, uint32_t n, struct node *next)
{
    uint32_t n_next = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t cut = cut_of(p, nodes[i]);
        if (cut - nodes[i].begin > PARTITION_RUN)
            next[n_next++] = (struct node){nodes[i].begin, cut};
        if (nodes[i].end - cut > PARTITION_RUN)
            next[n_next++] = (struct node){cut, nodes[i].end};
    }
    return n_next;
}

int partition_build(const struct rows *rows, uint32_t capacity, unsigned threads, uint64_t seed,
                    const struct progress *progress, uint32_t *order)
{
    uint32_t runs = (rows->n + capacity - 1) / capacity * ((capacity + PARTITION_RUN - 1) / PARTITION_RUN);
    uint32_t n_nodes = 0, level = 0, levels = 1;
    struct partition p = {.rows = rows, .capacity = capacity, .seed = seed, .order = order};
    p.keys = malloc(sizeof(float) * rows->n);
    p.nodes = malloc(sizeof(struct node) * ((size_t)runs + 1));
    struct node *next = malloc(sizeof(struct node) * ((size_t)runs + 1));
    int rc = p.keys && p.nodes && next ? 0 : QUIRE_ENOMEM;
    if (rc < 0)
        goto out;
    for (uint32_t i = 0; i < rows->n; i++)
        order[i] = i;
    if (rows->n > PARTITION_RUN)
        p.nodes[n_nodes++] = (struct node){0, rows->n};
    while ((1u << levels) < runs && levels < 31)
        levels++;
    while (n_nodes > 0) {
        rc = split_level(&p, n_nodes, threads);
        if (rc < 0)
            goto out;
        n_nodes = next_level(&p, p.nodes, n_nodes, next);
        struct node *spare = p.nodes;
        p.nodes = next;
        next = spare;
        level++;
        if (progress && progress->report &&
            progress->report(progress->context, progress->phase, level < levels ? level : levels, levels) != 0) {
            rc = QUIRE_ECANCELLED;
            goto out;
        }
    }
out:
    free(p.keys);
    free(p.nodes);
    free(next);
    return rc;
}
