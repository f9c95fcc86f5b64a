/*
 * merge_clusters.c - the clusters of the segment that a merge is mostly made of, kept for the new inverted lists.
 *
 * A list's own rows are consecutive and stand in the resident directory, its guests beside it, so nothing is read for
 * it. Replicas are not
 * taken over: which lists a row near a border belongs to follows from the new middles. What is done about clusters that
 * have lost most of their rows, or get too many, is said in clusters_start.c.
 */
#include "index/build/merge_priv.h"
#include "index/segment/segment_view.h"
#include <stdlib.h>
#include <string.h>

int merge_clusters_init(struct clusters_known *known, const struct segment *segment, const uint32_t *rows_of,
                        uint32_t n)
{
    const struct lists *lists = segment->lists;
    uint32_t *cluster_of = malloc(sizeof *cluster_of * ((size_t)n + 1));
    if (!cluster_of)
        return QUIRE_ENOMEM;
    memset(cluster_of, 0xff, sizeof *cluster_of * n);
    for (uint32_t list = 0; list < lists->n; list++) {
        const struct list_entry *e = &lists->entries[list];
        for (uint32_t row = e->first; row < e->first + e->own; row++)
            if (rows_of[row] != UINT32_MAX)
                cluster_of[rows_of[row]] = list;
    }
    for (uint32_t row = lists->first_guest; row < segment->params.rows; row++)
        if (rows_of[row] != UINT32_MAX)
            cluster_of[rows_of[row]] = lists->guest_lists[row - lists->first_guest];
    *known = (struct clusters_known){lists->n, cluster_of};
    return 0;
}

void merge_clusters_fini(struct clusters_known *known)
{
    free((void *)(uintptr_t)known->cluster_of);
    *known = (struct clusters_known){0};
}
