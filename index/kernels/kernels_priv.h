/*
 * kernels_priv.h - the tables of the variants, one per kernels_<isa>.c, and the choice among them as a function of what
 * was found and what was asked for, so that tests can play a lesser machine.
 */
#ifndef QUIRE_INDEX_KERNELS_PRIV_H
#define QUIRE_INDEX_KERNELS_PRIV_H

#include "index/kernels/kernels.h"

#define KERNELS_VARIANTS_MAX 4

extern const struct kernels kernels_scalar;
extern const struct kernels kernels_avx2;
extern const struct kernels kernels_avx512;
extern const struct kernels kernels_neon;

struct kernels_choice {
    const struct kernels *available[KERNELS_VARIANTS_MAX]; /* best first, scalar last */
    size_t n_available;
    const struct kernels *table;
    char reason[160];
};

/* What a machine whose highest tier is number `best` (0 scalar, 1 avx2 or neon, 2 avx512) gets when QUIRE_CPU is
 * `asked`, which may be NULL. */
void kernels_choose(size_t best, const char *asked, struct kernels_choice *choice);

#endif
