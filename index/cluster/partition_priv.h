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

int partition_scratch_init(struct partition_scratch *s, uint32_t code_dim);
void partition_scratch_fini(struct partition_scratch *s);

/* Draws the rows of a node that are looked at: s->positions gets places within the node. Returns how many. */
uint32_t partition_draw(struct partition_scratch *s, struct node node, uint64_t seed, struct random *random);
/* The direction in which a node is cut, from the m rows in s->sample: from one mean to the other. */
void partition_direction(struct partition_scratch *s, uint32_t m, uint32_t code_dim, struct random *random);
/* keys[i] = projection of row ids[i] on the query. */
void partition_project(const struct rows *rows, const struct code_query *query, const uint32_t *ids, uint32_t n,
                       float *keys);
/* Where a node is cut: at a multiple of the capacity. */
uint32_t partition_cut(struct node node, uint32_t capacity);

/* Orders the rows of one node whose rows are all in memory: order[i] is the row at place node.begin + i. order holds
 * the rows in order of the input before. */
int partition_node(const struct rows *rows, struct node node, const struct partition_config *config,
                   struct parallel_advance *advance, uint32_t *order);
/* Rows times levels of the tree. */
uint64_t partition_work(uint32_t n, uint32_t capacity);

#endif
