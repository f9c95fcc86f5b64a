/*
 * partition.h - an order of all rows in which every run of `capacity` rows is a group of near ones: the blocks.
 */
#ifndef QUIRE_INDEX_PARTITION_H
#define QUIRE_INDEX_PARTITION_H

#include "index/parallel.h"
#include "index/rows.h"

#define PARTITION_RUN 8u

/* order: n entries, filled with a permutation of 0..n-1; group g is order[g * capacity ..], all full but the last.
 * Inside a group, runs of PARTITION_RUN rows from its first on are groups of near ones again. The same for any number
 * of threads. Errors: QUIRE_ENOMEM, QUIRE_ECANCELLED. */
int partition_build(const struct rows *rows, uint32_t capacity, unsigned threads, uint64_t seed,
                    const struct progress *progress, uint32_t *order);

#endif
