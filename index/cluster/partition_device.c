/*
 * partition_device.c - the projections of a level's rows by a device (index/offload), which are whole numbers.
 *
 * Directions are found here, those of many nodes at a time; the device multiplies the rows of these nodes with them, a
 * piece of the order after the other; and what goes left is decided here from its numbers, by the same lines as without
 * a device. So the order is the same. When the device fails, the nodes at hand and all that follow are cut here.
 */
#include "index/cluster/partition_priv.h"
#include "index/offload/offload.h"
#include "io/array.h"
#include <assert.h>
#include <stdlib.h>

#define DEVICE_ROWS 262144u            /* whose products a device returns at once */
#define RUN_ROWS    1024u              /* of a node that a group of its work-items has */
#define QUERY_BYTES ((size_t)32 << 20) /* of directions */
#define NODES_MOST  (DEVICE_ROWS / PARTITION_RUN)
#define RUNS_MOST   (NODES_MOST + DEVICE_ROWS / RUN_ROWS + 1)

struct partition_device {
    struct offload *offload;
    struct offload_block *block;
    uint32_t nodes_most;
    int8_t *levels;             /* nodes_most x code_dim */
    struct code_query *queries; /* of the chunk's nodes */
    struct offload_run *runs;
    int32_t *dots; /* DEVICE_ROWS */
    /* the chunk and the piece at hand */
    struct partition *partition;
    const struct node *nodes;
    uint32_t n_runs, first; /* first: place in the order of the piece's first row */
};

void partition_device_close(struct partition_device *d)
{
    if (!d)
        return;
    offload_unload(d->offload, d->block);
    array_free_all(d->levels, d->queries, d->runs, d->dots, d);
}

struct partition_device *partition_device_open(struct partition *p)
{
    const struct rows *rows = p->rows;
    struct offload_rows codes = {OFFLOAD_CODE8, rows->n, rows->code_dim, rows->codes, NULL};
    struct partition_device *d = p->config->offload ? calloc(1, sizeof *d) : NULL;
    if (!d)
        return NULL;
    d->offload = p->config->offload;
    d->partition = p;
    d->nodes_most = (uint32_t)(QUERY_BYTES / rows->code_dim);
    d->nodes_most = d->nodes_most < 1 ? 1 : d->nodes_most > NODES_MOST ? NODES_MOST : d->nodes_most;
    uint32_t nodes = rows->n / PARTITION_RUN + 1;
    d->nodes_most = d->nodes_most < nodes ? d->nodes_most : nodes;
    d->levels = malloc((size_t)d->nodes_most * rows->code_dim);
    d->queries = malloc(sizeof *d->queries * d->nodes_most);
    d->runs = malloc(sizeof *d->runs * RUNS_MOST);
    d->dots = malloc(sizeof *d->dots * (rows->n < DEVICE_ROWS ? rows->n : DEVICE_ROWS));
    if (d->levels && d->queries && d->runs && d->dots && offload_load(d->offload, &codes, &d->block, NULL) == 0)
        return d;
    partition_device_close(d); /* the device's status says why */
    return NULL;
}

static int find_directions(void *context, uint64_t begin, uint64_t end)
{
    struct partition_device *d = context;
    uint32_t dim = d->partition->rows->code_dim;
    struct partition_scratch s;
    int rc = partition_scratch_init(&s, dim);
    if (rc < 0)
        return rc;
    for (uint64_t i = begin; i < end; i++) {
        d->queries[i].levels = d->levels + i * dim;
        partition_aim(d->partition, &s, d->nodes[i], &d->queries[i]);
    }
    partition_scratch_fini(&s);
    return 0;
}

/* The runs of the nodes that have rows among those of the piece. */
static void set_runs(struct partition_device *d, uint32_t n_nodes, uint32_t end)
{
    d->n_runs = 0;
    for (uint32_t i = 0; i < n_nodes; i++) {
        uint32_t at = d->nodes[i].begin - d->partition->base, to = d->nodes[i].end - d->partition->base;
        at = at > d->first ? at : d->first;
        to = to < end ? to : end;
        for (uint32_t n; at < to; at += n) {
            n = to - at < RUN_ROWS ? to - at : RUN_ROWS;
            assert(d->n_runs < RUNS_MOST);
            d->runs[d->n_runs++] = (struct offload_run){i, at - d->first, n, at - d->first};
        }
    }
}

static int make_keys(void *context, uint64_t begin, uint64_t end)
{
    const struct partition_device *d = context;
    struct partition *p = d->partition;
    for (uint64_t i = begin; i < end; i++) {
        const struct offload_run *run = &d->runs[i];
        for (uint32_t j = run->out; j < run->out + run->n; j++)
            p->keys[d->first + j] = partition_key(p->rows, p->order[d->first + j], &d->queries[run->query], d->dots[j]);
    }
    return 0;
}

static int split_nodes(void *context, uint64_t begin, uint64_t end)
{
    const struct partition_device *d = context;
    for (uint64_t i = begin; i < end; i++)
        partition_split(d->partition, d->nodes[i]);
    return 0;
}

/* The keys of all rows of n nodes; *answered: the device had them. */
static int project(struct partition_device *d, uint32_t n_nodes, bool *answered)
{
    struct partition *p = d->partition;
    uint32_t begin = d->nodes[0].begin - p->base, end = d->nodes[n_nodes - 1].end - p->base, n;
    int rc =
        parallel_for(p->config->threads, n_nodes, n_nodes / (16 * p->config->threads) + 1, find_directions, d, NULL);
    *answered = true;
    for (d->first = begin; rc == 0 && *answered && d->first < end; d->first += n) {
        n = end - d->first < DEVICE_ROWS ? end - d->first : DEVICE_ROWS;
        set_runs(d, n_nodes, d->first + n);
        if (d->n_runs == 0)
            continue;
        const struct offload_dots request = {.n_queries = n_nodes,
                                             .n_runs = d->n_runs,
                                             .n_out = n,
                                             .n_ids = n,
                                             .queries = d->levels,
                                             .runs = d->runs,
                                             .ids = p->order + d->first,
                                             .out = d->dots};
        *answered = offload_dots(d->offload, d->block, &request, NULL) == 0;
        if (*answered)
            rc = parallel_for(p->config->threads, d->n_runs, 64, make_keys, d, NULL);
    }
    return rc;
}

int partition_device_split(struct partition_device *d, uint32_t n_nodes, uint32_t *done)
{
    struct partition *p = d->partition;
    bool answered = true;
    int rc = 0;
    for (*done = 0; rc == 0 && *done < n_nodes;) {
        uint32_t n = n_nodes - *done < d->nodes_most ? n_nodes - *done : d->nodes_most;
        d->nodes = p->nodes + *done;
        rc = project(d, n, &answered);
        if (rc < 0 || !answered)
            break;
        rc = parallel_for(p->config->threads, n, n / (16 * p->config->threads) + 1, split_nodes, d, NULL);
        *done += n;
    }
    return rc;
}
