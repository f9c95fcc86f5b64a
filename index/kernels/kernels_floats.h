/*
 * kernels_floats.h - the kernels of a float query against each stored type, which differ by the type alone.
 *
 * Included by kernels_<isa>.c where it has defined enum element and
 *   sum_floats(a, b, dim, element, l2)   sum of (a - b)^2 with l2, of a b without; always inlined
 * so that each of these becomes code of its own, compiled with the flags of the instruction set.
 */
#ifndef QUIRE_INDEX_KERNELS_FLOATS_H
#define QUIRE_INDEX_KERNELS_FLOATS_H

static float f32_l2(const float *a, const float *b, size_t dim)
{
    return sum_floats(a, b, dim, F32, true);
}

static float f32_dot(const float *a, const float *b, size_t dim)
{
    return sum_floats(a, b, dim, F32, false);
}

static float f16_l2(const float *a, const f16_t *b, size_t dim)
{
    return sum_floats(a, b, dim, F16, true);
}

static float f16_dot(const float *a, const f16_t *b, size_t dim)
{
    return sum_floats(a, b, dim, F16, false);
}

static float bf16_l2(const float *a, const bf16_t *b, size_t dim)
{
    return sum_floats(a, b, dim, BF16, true);
}

static float bf16_dot(const float *a, const bf16_t *b, size_t dim)
{
    return sum_floats(a, b, dim, BF16, false);
}

static float f32_u8_dot(const float *a, const uint8_t *b, size_t dim)
{
    return sum_floats(a, b, dim, U8, false);
}

static float f32_i8_dot(const float *a, const int8_t *b, size_t dim)
{
    return sum_floats(a, b, dim, I8, false);
}

static float f32_u8_l2(const float *a, const uint8_t *b, size_t dim)
{
    return sum_floats(a, b, dim, U8, true);
}

static float f32_i8_l2(const float *a, const int8_t *b, size_t dim)
{
    return sum_floats(a, b, dim, I8, true);
}

#endif
