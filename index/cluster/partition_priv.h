/* partition_priv.h - what cutting a node in memory and in files have in common. */
#ifndef QUIRE_INDEX_PARTITION_PRIV_H
#define QUIRE_INDEX_PARTITION_PRIV_H

#include "index/cluster/partition.h"
#include "index/vector/near.h"
#include "io/random.h"

#define PARTITION_SAMPLE 512u

/* Places of the final order. */
struct node {
    uint32_t begin, end;
};

struct partition_scratch {
    float *sample;       /* PARTITION_SAMPLE x code_dim */
    float *means;        /* 2 x code_dim */
    float *direction;    /* code_dim */
    float *projection;   /* PARTITION_SAMPLE, twice */
    uint32_t *positions; /* PARTITION_SAMPLE */
    int8_t *levels;      /* code_dim */
};

struct partition_device;

/* A range of rows in memory that is being cut. */
struct partition {
    const struct rows *rows;
    const struct partition_config *config;
    uint32_t base; /* place of order[0] */
    uint32_t *order;
    float *keys;                     /* projection of order[i], at i */
    float *spare;                    /* as many */
    struct node *nodes;              /* nodes of the present level */
    struct partition_device *device; /* NULL: none, or no more */
    struct code_query query;
    uint32_t begin; /* first place of the range being projected */
};

int partition_scratch_init(struct partition_scratch *s, uint32_t code_dim);
void partition_scratch_fini(struct partition_scratch *s);

/* Draws the rows of a node that are looked at: s->positions gets places within the node. Returns how many. */
uint32_t partition_draw(struct partition_scratch *s, struct node node, uint64_t seed, struct random *random);
/* The direction in which a node is cut, from the m rows in s->sample: from one mean to the other. */
void partition_direction(struct partition_scratch *s, uint32_t m, uint32_t code_dim, struct random *random);
/* keys[i] = projection of row ids[i] on the query. */
void partition_project(const struct rows *rows, const struct code_query *query, const uint32_t *ids, uint32_t n,
                       float *keys);
/* The same of one row, from its product with the query's levels. */
static inline float partition_key(const struct rows *rows, uint32_t row, const struct code_query *query, int32_t dot)
{
    return rows->f[row] * code_query_dot(query, dot, 127.5f);
}
/* The direction in which a node is cut, as a query whose levels have room. */
void partition_aim(const struct partition *p, struct partition_scratch *s, struct node node, struct code_query *query);
/* The rows of a node that go left, by p->keys, to its front, the others behind them, both in the order in which they
 * were. */
void partition_split(const struct partition *p, struct node node);
/* Where a node is cut: at a multiple of the capacity. */
uint32_t partition_cut(struct node node, uint32_t capacity);

/* Orders the rows of one node whose rows are all in memory: order[i] is the row at place node.begin + i. order holds
 * the rows in order of the input before. */
int partition_node(const struct rows *rows, struct node node, const struct partition_config *config,
                   struct parallel_advance *advance, uint32_t *order);
/* partition_device.c: p->config->offload with p->rows in its memory; NULL: there is none, or it cannot have them. */
struct partition_device *partition_device_open(struct partition *p);
void partition_device_close(struct partition_device *device); /* NULL is fine */
/* Cuts the first *done of the level's nodes: all but where the device fails. */
int partition_device_split(struct partition_device *device, uint32_t n_nodes, uint32_t *done);

/* Rows times levels of the tree. */
uint64_t partition_work(uint32_t n, uint32_t capacity);

#endif
