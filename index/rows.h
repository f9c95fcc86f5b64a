/*
 * rows.h - the working form of all rows during a build: rotated, centred 8-bit codes in memory.
 *
 * Partition, graph and prune measure on these codes: a quarter of the bytes of f32 and 0.99 of its neighbours
 * (docs/performance.md). Distances are squared L2 in the working space (metric.h), in which every metric is L2.
 */
#ifndef QUIRE_INDEX_ROWS_H
#define QUIRE_INDEX_ROWS_H

#include "index/codes.h"

struct rows {
    uint32_t n, code_dim;
    uint8_t *codes;     /* n x code_dim, levels 0..255 */
    float *f;           /* n: row ~ f * (level - 127.5) */
    float *norm2;       /* n: squared length */
    int32_t *level_sum; /* n: sum of levels */
};

/* One row as a query against many: int8 levels of its code. */
struct row_query {
    const struct rows *rows;
    int8_t *levels; /* code_dim, caller's memory */
    uint32_t row;
    int32_t sum; /* of levels */
};

void row_query_set(struct row_query *query, const struct rows *rows, uint32_t row, int8_t *levels);
/* out[i] = squared distance of the query's row to row ids[i]. dots: scratch for n. */
void row_query_distances(const struct row_query *query, const uint32_t *ids, uint32_t n, int32_t *dots, float *out);

#endif
