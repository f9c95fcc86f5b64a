/*
 * neighbours.h - the graph of a build: for each row a few near rows in different directions.
 */
#ifndef QUIRE_INDEX_NEIGHBOURS_H
#define QUIRE_INDEX_NEIGHBOURS_H

#include "index/offload/offload.h"
#include "index/vector/parallel.h"
#include "index/vector/rows.h"

#define NEIGHBOUR_NONE       UINT32_MAX
#define NEIGHBOUR_GROUPS_MAX 128u /* groups near a group: so many must fit in memory at once */

struct neighbours_config {
    uint32_t capacity; /* rows per group: group g is rows g * capacity .. */
    uint32_t degree;   /* out-edges per row at most */
    uint32_t pool;     /* nearest rows that compete for the edges */
    uint32_t groups;   /* groups searched per row */
    float alpha;       /* pruning on squared distances: c is dropped if alpha * d(kept, c) < d(row, c) */
    unsigned threads;
    uint32_t groups_known; /* groups searched for rows that bring candidates */
    /* NULL, or a device for the products between rows, where all are in memory and none brings candidates; the edges
     * are the same */
    struct offload *offload;
};

/* Where the rows come from, in group order, and where their edges go. */
struct neighbours_rows {
    uint32_t n, code_dim;
    const struct rows *all; /* all rows, or NULL: they are loaded */
    uint32_t most;          /* rows loaded at a time at most; at least NEIGHBOUR_GROUPS_MAX groups or all rows */
    /* Puts rows first .. first + n into `to` from place `at` on. Called from the caller's thread. */
    int (*load)(void *context, uint32_t first, uint32_t n, struct rows *to, uint32_t at);
    /* Takes the edges of rows first .. first + n: n x degree targets, nearest first; unused places hold
     * NEIGHBOUR_NONE. In order of rows, from the caller's thread. */
    int (*put)(void *context, uint32_t first, uint32_t n, const uint32_t *edges);
    void *context;
    /* NULL, or gives candidates that a row brings beside those of its near groups (NEIGHBOUR_NONE: skipped), or answers
     * NEIGHBOUR_NONE for a row that brings none. Those beyond the groups near to the row's own are left out. Called
     * from all threads. */
    uint32_t (*known)(void *context, uint32_t row, const uint32_t **candidates);
};

/* Edges of the rows of groups first_group.. . centres: n_groups x code_dim floats. What a row's edges are depends
 * neither on the number of threads nor on the memory. Errors: QUIRE_ENOMEM, QUIRE_ECANCELLED, those of load and put. */
int neighbours_build(const struct neighbours_rows *rows, uint32_t first_group, const float *centres,
                     const struct neighbours_config *config, const struct progress *progress);
/* Bytes that neighbours_build holds besides centres and loaded rows. */
uint64_t neighbours_bytes(uint32_t n_groups, uint32_t code_dim, const struct neighbours_config *config);

#endif
