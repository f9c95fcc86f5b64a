/* clusters_priv.h - what finding clusters and closing them have in common. clusters.c runs the steps of the first. */
#ifndef QUIRE_INDEX_CLUSTERS_PRIV_H
#define QUIRE_INDEX_CLUSTERS_PRIV_H

#include "index/cluster/clusters.h"
#include "index/vector/near.h"

#define CLUSTER_NONE UINT32_MAX
#define CLUSTER_NEAR 64u /* clusters that a row may move to */

/* The nearest of some points. Points with near numbers are near each other. */
struct clusters_near {
    const struct rows *points;
    struct rows runs; /* means of consecutive points */
    uint32_t *iota;
};

/* What a device does for rows that choose a cluster. */
struct choice_device {
    struct offload *offload;     /* NULL: nothing, or no more */
    struct offload_block *block; /* the centroids */
    uint32_t *ids;               /* per cluster: itself and n_near others */
    int8_t *queries;             /* of some rows */
    struct offload_run *runs;    /* per row */
    int32_t *dots;               /* per row 1 + n_near */
};

struct clustering {
    struct row_store *store, *spare;
    const struct clusters_config *config;
    struct parallel_advance advance; /* rows times passes */
    uint32_t *order;                 /* row of the store -> row before */
    uint32_t n;                      /* clusters */
    uint32_t *cluster_of;            /* per row */
    uint32_t *targets;   /* per row: the cluster that it would move to, or CLUSTER_NONE; other uses between rounds */
    float *ratios;       /* per row: distance to the target by distance to its own cluster */
    float *distances;    /* per row: to its own cluster's centroid */
    uint32_t *sizes;     /* per cluster */
    uint8_t *active;     /* per cluster: its rows may move */
    float *limits;       /* per cluster: rows beyond are far out */
    float *sums;         /* per cluster: sum of the rows that are not, code_dim */
    uint32_t *counts;    /* per cluster: these rows */
    struct rows centres; /* centroids, as codes */
    uint32_t *near;      /* per cluster: CLUSTER_NEAR others, nearest first */
    uint32_t n_near;     /* of them there are */
    struct rows window;  /* rows of a file that are looked at */
    struct choice_device choice;
    struct clusters_near assigned; /* the centres, while rows are assigned to them */
};

/* Calls body for all rows of the store, window by window. */
int clusters_pass(struct clustering *s, int (*body)(struct clustering *s, const struct rows *rows, uint32_t first));
/* Arrays of clusters for n of them, all empty. */
int clusters_allocate(struct clustering *s, uint32_t n);
/* s->centres: the mean of each cluster's rows; of one without rows it stays. */
int clusters_centres(struct clustering *s);
/* The rows of cluster c, ascending: members[at[c]] .. members[at[c + 1]]. at: n + 1; members: one per row. */
void clusters_members(const struct clustering *s, uint32_t *at, uint32_t *members);

/* clusters_start.c: the clusters that refinement begins with, near ones with near numbers */
int clusters_start(struct clustering *s, const struct clusters_known *known);
/* clusters_order.c: puts the rows in order of their clusters */
int clusters_order(struct clustering *s, struct clusters *clusters);

/* clusters_near.c */
int clusters_near_init(struct clusters_near *near, const struct rows *points);
void clusters_near_fini(struct clusters_near *near); /* zeroed is fine */
/* The `keep` points nearest to every point but itself, nearest first, into out: points->n x stride. */
int clusters_near_all(const struct clusters_near *near, uint32_t keep, uint32_t stride, unsigned threads,
                      uint32_t *out);
/* The point nearest to each of rows[ids[0..n)], into out. */
int clusters_near_assign(const struct clusters_near *near, const struct rows *rows, const uint32_t *ids, uint32_t n,
                         unsigned threads, uint32_t *out);

#endif
