/* rotation.h - a fast random rotation of padded vectors, a function of (dim, seed) alone. */
#ifndef QUIRE_INDEX_ROTATION_H
#define QUIRE_INDEX_ROTATION_H

#include "quire.h"

/* Codes are padded to a multiple of this many dimensions. */
#define CODE_DIM_ALIGN 32u

static inline uint32_t rotation_code_dim(uint32_t dim)
{
    return (dim + CODE_DIM_ALIGN - 1) / CODE_DIM_ALIGN * CODE_DIM_ALIGN;
}

struct rotation {
    uint32_t dim;    /* code_dim: a multiple of CODE_DIM_ALIGN */
    uint32_t window; /* the largest power of two <= dim */
    uint8_t *signs;  /* ROTATION_ROUNDS bits per dimension, one byte each; owned */
};

#define ROTATION_ROUNDS 4

/* QUIRE_ENOMEM or 0. */
int rotation_init(struct rotation *rotation, uint32_t code_dim, uint64_t seed);
void rotation_fini(struct rotation *rotation);
/* In place; x has code_dim floats. Keeps lengths and inner products. Thread-safe. */
void rotation_apply(const struct rotation *rotation, float *x);
/* The inverse, in place. */
void rotation_invert(const struct rotation *rotation, float *x);

#endif
