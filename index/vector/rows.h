/*
 * rows.h - the working form of all rows during a build: rotated, centred 8-bit codes in memory.
 *
 * Partition, graph and prune measure on these codes: a quarter of the bytes of f32 and 0.99 of its neighbours
 * (docs/performance.md). Distances are squared L2 in the working space (space.h), in which every metric is L2.
 */
#ifndef QUIRE_INDEX_ROWS_H
#define QUIRE_INDEX_ROWS_H

#include "index/vector/codes.h"

struct rows {
    uint32_t n, code_dim;
    uint8_t *codes;     /* n x code_dim, levels 0..255 */
    float *f;           /* n: row ~ f * (level - 127.5) */
    float *norm2;       /* n: squared length */
    int32_t *level_sum; /* n: sum of levels */
};

/* Memory for n rows. The arrays lie in one piece, which begins with codes. QUIRE_ENOMEM. */
int rows_alloc(struct rows *rows, uint32_t n, uint32_t code_dim);
/* What rows_alloc made (all zero: nothing). */
void rows_free(struct rows *rows);

/* Rows first .. first + n of these; they stay where they are. */
static inline struct rows rows_part(const struct rows *rows, uint32_t first, uint32_t n)
{
    return (struct rows){.n = n,
                         .code_dim = rows->code_dim,
                         .codes = rows->codes + (size_t)first * rows->code_dim,
                         .f = rows->f + first,
                         .norm2 = rows->norm2 + first,
                         .level_sum = rows->level_sum + first};
}

/* One row to another place. */
void rows_copy(const struct rows *from, uint32_t row, struct rows *to, uint32_t at);

/* The code of a vector (code_dim floats). */
void rows_encode(struct rows *rows, uint32_t at, const float *row);
/* Puts rows in a new order, in place, cycle by cycle of the permutation: row order[i] goes to place i. QUIRE_ENOMEM. */
int rows_permute(struct rows *rows, const uint32_t *order);

static inline size_t rows_bytes(uint32_t code_dim)
{
    return code_dim + 3 * sizeof(float);
}

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
/* The same for rows ids[i] of `to`. */
void row_query_among(const struct row_query *query, const struct rows *to, const uint32_t *ids, uint32_t n,
                     int32_t *dots, float *out);
/* The same from dot products that are known: dots[i] = <levels, code ids[i] of `to`>. */
void row_query_finish_among(const struct row_query *query, const struct rows *to, const uint32_t *ids, uint32_t n,
                            const int32_t *dots, float *out);
/* The same from dot products with the rows of `to` that are known: dots[i] = <levels, code i of `to`>. */
void row_query_finish(const struct row_query *query, const struct rows *to, const int32_t *dots, float *out);
/* The same for the rows of `to`, which are consecutive. iota: 0, 1, ... for at least to->n. */
void row_query_range(const struct row_query *query, const struct rows *to, const uint32_t *iota, int32_t *dots,
                     float *out);

#endif
