/*
 * support_world.h - for the tests of the mutable graph: a graph and what was put into it.
 */
#ifndef QUIRE_TESTS_INDEX_SUPPORT_WORLD_H
#define QUIRE_TESTS_INDEX_SUPPORT_WORLD_H

#include "index/graph/graph.h"
#include "io/random.h"
#include <stdatomic.h>

#define DIM 32u
#define K   10u

struct world {
    struct epochs *epochs;
    struct graph *graph;
    struct graph_root root;
    struct graph_scratch *scratch;
    struct random random;
    uint32_t clusters; /* 0: random data */
    uint32_t n, *rows; /* linked rows, in any order */
    atomic_bool stop;
};

/* A graph of this degree; rows[] has `capacity`. shift: of the first segment of its rows. */
void world_open_sized(struct world *world, unsigned degree, uint32_t capacity, unsigned shift);
void world_open(struct world *world, unsigned degree, uint32_t capacity);
void world_close(struct world *world);

/* DIM floats: uniform, or near one of the centres, whose coordinates follow from their numbers. */
void world_make_vector(struct random *random, uint32_t clusters, float *vector);
/* Adds a row without linking it. */
uint32_t world_add_vector(struct world *world, const float *vector);
/* graph_place of a row with this vector. */
int world_place(struct world *world, uint32_t row, const float *vector);
/* Links a row; adds and links n; removes the at-th linked one, or any n. */
void world_link_row(struct world *world, uint32_t row);
void world_grow(struct world *world, uint32_t n);
void world_remove_at(struct world *world, uint32_t at);
void world_shrink(struct world *world, uint32_t n);
/* graph_check, and the counts. */
void assert_world_valid(struct world *world);

#endif
