/*
 * generate.h - made-up vectors in clusters, with as many true dimensions as asked for, and queries that fit them.
 *
 * Each cluster is a centre and `intrinsic` orthonormal directions of its own, along which its rows spread less and
 * less. Rows of real encoders are like that: hundreds of dimensions, of which a neighbourhood uses a few dozen. How
 * hard a set is to search follows `intrinsic`, not `dim`.
 *
 * Row i is a function of (dim, clusters, intrinsic, seed, i) and the type of processor, and of nothing else: any part
 * of a set can be made at any time, in any order, on any number of threads. Only the directions are held in memory.
 *
 * Thread-safety: a generator is constant once made and may be used by many threads.
 */
#ifndef QUIRE_DATASETS_GENERATE_H
#define QUIRE_DATASETS_GENERATE_H

#include "quire.h"

#define GENERATE_BYTES_MAX (1024ull * 1024 * 1024) /* of centres and directions */

struct generate_options {
    uint64_t rows;      /* 1..QUIRE_ROWS_MAX; default 10,000 */
    uint32_t dim;       /* 1..QUIRE_DIM_MAX; default 128 */
    uint32_t clusters;  /* 1..rows; default 100 */
    uint32_t intrinsic; /* 1..dim; default 16 */
    uint64_t seed;      /* default 1 */
    unsigned threads;   /* that work on one call; 0: as many as there are processors; default 0 */
};
void generate_options_init(struct generate_options *options);

struct generator;

/* *out is ended by generate_destroy. QUIRE_ERANGE, QUIRE_ELIMIT (directions above GENERATE_BYTES_MAX), QUIRE_ENOMEM. */
int generate_create(const struct generate_options *options, struct generator **out, struct quire_error *err);
void generate_destroy(struct generator *generator); /* NULL is fine */

/* Rows first_row .. first_row + n - 1 (dim floats each) into out. QUIRE_ERANGE beyond the last row. */
int generate_rows(const struct generator *generator, uint64_t first_row, uint64_t n, float *out,
                  struct quire_error *err);
/* Held-out queries of the same distribution, first_query .. ; there is no last one, and none of them is a row. */
int generate_queries(const struct generator *generator, uint64_t first_query, uint64_t n, float *out,
                     struct quire_error *err);
/* The cluster that a row belongs to, 0 .. clusters - 1. */
uint32_t generate_cluster(const struct generator *generator, uint64_t row);

#endif
