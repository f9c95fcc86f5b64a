/*
 * partition.h - an order of all rows in which every run of `capacity` rows is a group of near ones: the blocks.
 */
#ifndef QUIRE_INDEX_PARTITION_H
#define QUIRE_INDEX_PARTITION_H

#include "index/vector/parallel.h"
#include "index/vector/row_store.h"

struct offload;

struct partition_config {
    uint32_t capacity;
    unsigned threads;
    uint64_t seed;
    struct offload *offload; /* may have the projections of rows in memory; NULL: none */
};

#define PARTITION_RUN 8u

/* order: n entries, filled with a permutation of 0..n-1; group g is order[g * capacity ..], all full but the last.
 * Inside a group, runs of PARTITION_RUN rows from its first on are groups of near ones again. The same for any number
 * of threads. Errors: QUIRE_ENOMEM, QUIRE_ECANCELLED. */
int partition_build(const struct rows *rows, const struct partition_config *config, const struct progress *progress,
                    uint32_t *order);

/* The same of rows in a file, of which `most` (at least the capacity) are in memory at once. The rows of `from`
 * come in order of the input; in the end they lie there in their new order. `spare`: a store of the same size, in a
 * file, too. Besides these rows this holds 8 bytes per row. Errors also those of the files. */
int partition_files(struct row_store *from, struct row_store *spare, uint32_t most,
                    const struct partition_config *config, const struct progress *progress, uint32_t *order);
/* Bytes that rows in memory take while they are partitioned, each. */
static inline size_t partition_row_bytes(uint32_t code_dim)
{
    return rows_bytes(code_dim) + 4 * sizeof(uint32_t);
}

#endif
