/*
 * neighbours.h - the graph of a build: for each row a few near rows in different directions.
 */
#ifndef QUIRE_INDEX_NEIGHBOURS_H
#define QUIRE_INDEX_NEIGHBOURS_H

#include "index/parallel.h"
#include "index/rows.h"

struct neighbours_config {
    uint32_t capacity; /* rows per group: group g is rows g * capacity .. */
    uint32_t degree;   /* out-edges per row at most */
    uint32_t pool;     /* nearest rows that compete for the edges */
    uint32_t groups;   /* groups searched per row */
    float alpha;       /* pruning on squared distances: c is dropped if alpha * d(kept, c) < d(row, c) */
    unsigned threads;
};

struct neighbours {
    uint32_t degree;
    uint32_t *ids;        /* n x degree; unused places hold NEIGHBOUR_NONE; owned */
    uint32_t *reverse_at; /* n + 1: places in reverse; owned */
    uint32_t *reverse;    /* rows that have an edge to the row; owned */
};

#define NEIGHBOUR_NONE UINT32_MAX

/* rows are in group order. centres: n_groups x code_dim floats. The result does not depend on the number of threads. */
int neighbours_build(const struct rows *rows, const float *centres, const struct neighbours_config *config,
                     const struct progress *progress, struct neighbours *out);
void neighbours_fini(struct neighbours *neighbours);

#endif
