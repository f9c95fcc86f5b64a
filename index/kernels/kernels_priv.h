/* kernels_priv.h - the tables of the variants, one per kernels_<isa>.c. Only what kernels.c needs to choose. */
#ifndef QUIRE_INDEX_KERNELS_PRIV_H
#define QUIRE_INDEX_KERNELS_PRIV_H

#include "index/kernels/kernels.h"

extern const struct kernels kernels_scalar;
extern const struct kernels kernels_avx2;
extern const struct kernels kernels_avx512;
extern const struct kernels kernels_neon;

#endif
