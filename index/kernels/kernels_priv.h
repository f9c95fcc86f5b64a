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

/* The table of a variant, whose functions are all static and bear the names of the fields. Stands last in
 * kernels_<isa>.c. */
#define KERNELS_TABLE(variable, label)                                                                                 \
    const struct kernels variable = {                                                                                  \
        .name = label,                                                                                                 \
        .f32_l2 = f32_l2,                                                                                              \
        .f32_dot = f32_dot,                                                                                            \
        .f16_l2 = f16_l2,                                                                                              \
        .f16_dot = f16_dot,                                                                                            \
        .bf16_l2 = bf16_l2,                                                                                            \
        .bf16_dot = bf16_dot,                                                                                          \
        .u8_l2 = u8_l2,                                                                                                \
        .u8_dot = u8_dot,                                                                                              \
        .i8_l2 = i8_l2,                                                                                                \
        .i8_dot = i8_dot,                                                                                              \
        .f32_u8_dot = f32_u8_dot,                                                                                      \
        .f32_i8_dot = f32_i8_dot,                                                                                      \
        .f32_u8_l2 = f32_u8_l2,                                                                                        \
        .f32_i8_l2 = f32_i8_l2,                                                                                        \
        .code_dot = {code_dot_1, code_dot_2, code_dot_4, code_dot_8},                                                  \
        .group_dot = {group_dot_1, group_dot_2, group_dot_4},                                                          \
        .f32_l2_many = f32_l2_many,                                                                                    \
        .code_estimates = code_estimates,                                                                              \
        .f16_from_f32 = f16_from_f32,                                                                                  \
        .f32_from_f16 = f32_from_f16,                                                                                  \
        .bf16_from_f32 = bf16_from_f32,                                                                                \
        .f32_from_bf16 = f32_from_bf16,                                                                                \
        .hadamard = hadamard,                                                                                          \
    }

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
