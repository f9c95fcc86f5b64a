/*
 * clusters.h - an order of all rows in clusters of near ones, and which rows stand in which inverted list.
 *
 * A list has the rows of its cluster and replicas: rows of other clusters that lie near the border (the closure of
 * SPANN, Chen et al., NeurIPS 2021). Its head is one of its rows. Clusters have between 1 and config->most rows, about
 * config->rows on average; there are no empty ones. Everything is measured on the 8-bit codes of rows.h, as squared L2
 * in the working space. The same for any number of threads and whether rows are in memory or in a file.
 *
 * Which lists are read is decided by the distances from the query to their points. The point of a list is the middle of
 * its cluster, or with config->points_are_heads the head itself, as SPANN has it. With middles about half as many lists
 * hold the same neighbours (clusters_close.c), and a code takes the same bytes whatever it stands for.
 */
#ifndef QUIRE_INDEX_CLUSTERS_H
#define QUIRE_INDEX_CLUSTERS_H

#include "index/offload/offload.h"
#include "index/vector/parallel.h"
#include "index/vector/row_store.h"

struct clusters_config {
    uint32_t rows;   /* of a cluster, on average */
    uint32_t most;   /* of a cluster; at least rows, 2 to 3 times as many are good */
    unsigned rounds; /* of refinement; 8 is a good number */
    float replicas;  /* lists that a row stands in, on average; 1: only its own */
    /* Rows of a list, replicas included; that of a cluster as large has none. Below 4 * rows replicas are missed: there
     * are lists in the middle of the data that many rows are near to. */
    uint32_t list_most;
    bool points_are_heads;
    unsigned threads;
    uint64_t seed;
    uint32_t window_rows; /* of a file: in memory at once */
    /* NULL, or a device for the products between rows and centroids, and for those of the bisection before. The
     * clusters are the same. */
    struct offload *offload, *bisection;
};

struct clusters {
    uint32_t n;
    uint32_t *first;      /* n + 1: cluster c has the rows first[c] .. first[c + 1] of the new order; owned */
    uint32_t *heads;      /* per cluster the row of it that is nearest to the middle; owned */
    struct rows points;   /* per cluster: its middle or its head, as code; owned by rows_free */
    uint64_t *replica_at; /* n + 1: places in replicas; owned */
    uint32_t *replicas;   /* rows of other clusters that stand in the list as well, ascending; owned */
};

/* Clusters that rows had before (a merge): per row of the store its old cluster, below n, or UINT32_MAX: none yet. */
struct clusters_known {
    uint32_t n;
    const uint32_t *cluster_of;
};

/* Puts the rows of the store in order of their clusters and fills `order` (order[new row] = row before) and first.
 * spare: a store of the same size where `store` is in a file, else NULL; rows in the file then come in order of the
 * input. known may be NULL. QUIRE_ENOMEM, QUIRE_ECANCELLED, those of the files; what is in order and store then is
 * undefined, clusters is empty. */
int clusters_find(struct row_store *store, struct row_store *spare, const struct clusters_known *known,
                  const struct clusters_config *config, const struct progress *progress, uint32_t *order,
                  struct clusters *clusters);
/* Heads, points and replicas of rows that are in order. Errors as above; clusters is to be ended then. */
int clusters_close(struct row_store *store, const struct clusters_config *config, const struct progress *progress,
                   struct clusters *clusters);
void clusters_fini(struct clusters *clusters); /* zeroed is fine */

#endif
