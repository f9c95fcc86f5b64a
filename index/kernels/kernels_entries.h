/*
 * kernels_entries.h - the kernels that differ by a type or a number of bits alone, and the table of all of them.
 *
 * Included at the end of each kernels_<isa>.c, which has defined, always inlined,
 *   sum_floats(a, b, dim, element, l2)   of a float query and stored elements: sum of (a - b)^2 with l2, of a b without
 *   sum_bytes(a, b, dim, what)           the same of bytes, modulo 2^32
 *   dot_codes(q, codes, stride, rows, n, dim, bits, out)
 *   dot_groups(q, groups, stride, n_groups, dim, bits, out)
 * so that each of these becomes code of its own, compiled with the flags of the instruction set.
 */
#ifndef QUIRE_INDEX_KERNELS_ENTRIES_H
#define QUIRE_INDEX_KERNELS_ENTRIES_H

#include "index/kernels/kernels_inline.h"

#define FLOAT_KERNELS(name, type, element)                                                                             \
    static float name##_l2(const float *a, const type *b, size_t dim)                                                  \
    {                                                                                                                  \
        return sum_floats(a, b, dim, element, true);                                                                   \
    }                                                                                                                  \
    static float name##_dot(const float *a, const type *b, size_t dim)                                                 \
    {                                                                                                                  \
        return sum_floats(a, b, dim, element, false);                                                                  \
    }

#define BYTE_KERNEL(name, type, what, result)                                                                          \
    static result name(const type *a, const type *b, size_t dim)                                                       \
    {                                                                                                                  \
        return (result)sum_bytes(a, b, dim, what);                                                                     \
    }

#define CODE_KERNEL(bits)                                                                                              \
    static void code_dot_##bits(const int8_t *q, const uint8_t *codes, size_t stride, const uint32_t *rows, size_t n,  \
                                size_t dim, int32_t *out)                                                              \
    {                                                                                                                  \
        dot_codes(q, codes, stride, rows, n, dim, bits, out);                                                          \
    }

#define GROUP_KERNEL(bits)                                                                                             \
    static void group_dot_##bits(const int8_t *q, const uint8_t *groups, size_t stride, size_t n_groups, size_t dim,   \
                                 int32_t *out)                                                                         \
    {                                                                                                                  \
        dot_groups(q, groups, stride, n_groups, dim, bits, out);                                                       \
    }

FLOAT_KERNELS(f32, float, F32)
FLOAT_KERNELS(f16, f16_t, F16)
FLOAT_KERNELS(bf16, bf16_t, BF16)
FLOAT_KERNELS(f32_u8, uint8_t, U8)
FLOAT_KERNELS(f32_i8, int8_t, I8)
BYTE_KERNEL(u8_l2, uint8_t, U8_L2, uint32_t)
BYTE_KERNEL(u8_dot, uint8_t, U8_DOT, uint32_t)
BYTE_KERNEL(i8_l2, int8_t, I8_L2, uint32_t)
BYTE_KERNEL(i8_dot, int8_t, I8_DOT, int32_t)
CODE_KERNEL(1)
CODE_KERNEL(2)
CODE_KERNEL(4)
CODE_KERNEL(8)
GROUP_KERNEL(1)
GROUP_KERNEL(2)
GROUP_KERNEL(4)

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

#endif
