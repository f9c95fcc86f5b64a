/*
 * kernels_scalar.c - the kernels in plain C: the oracle of all others, and the variant that runs everywhere.
 *
 * Written to be obviously right, not to be fast: floats are summed in double, in order, and rounded once at the end;
 * products of bytes are summed in 64 bits. So any other variant may be compared with it: integers must be equal, floats
 * within the rounding of the variant's own order of summation.
 *
 * Conversions are bit for bit what F16C and NEON do in their default mode: round to nearest even, overflow to infinity,
 * denormal halves kept, NaN made quiet with the upper bits of its payload. To bf16 they round in the same way, which is
 * not what VCVTNEPS2BF16 does: that takes denormals for zero.
 *
 * Vectors need no alignment (they may lie anywhere in a block), so elements wider than a byte are read with memcpy; a
 * compiler makes plain loads of that.
 */
#include "index/kernels/kernels_inline.h"
#include <math.h>
#include <string.h>

static float load_f32(const float *p)
{
    float v;
    memcpy(&v, p, sizeof v);
    return v;
}

static float half_to_float(f16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t exponent = half >> 10 & 0x1fu;
    uint32_t fraction = half & 0x3ffu;
    uint32_t bits;
    if (exponent == 0x1f) {
        bits = sign | 0x7f800000u | fraction << 13 | (fraction ? 0x00400000u : 0);
    } else if (exponent) {
        bits = sign | (exponent + 112) << 23 | fraction << 13;
    } else {
        float value = (float)fraction * 0x1p-24f; /* zero or denormal: exact in float */
        return sign ? -value : value;
    }
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static f16_t float_to_half(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t sign = bits >> 16 & 0x8000u;
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return (f16_t)(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
    if (magnitude >= 0x47800000u) /* 65536 and more, infinity too */
        return (f16_t)(sign | 0x7c00u);
    if (magnitude < 0x33000000u) /* below 2^-25: less than half of the smallest denormal */
        return (f16_t)sign;

    uint32_t kept, dropped, half_unit;
    if (magnitude >= 0x38800000u) { /* 2^-14: normal halves */
        kept = (magnitude - 0x38000000u) >> 13;
        dropped = magnitude & 0x1fffu;
        half_unit = 0x1000u;
    } else {
        uint32_t shift = 126 - (magnitude >> 23); /* 14 .. 24 */
        uint32_t significand = (magnitude & 0x7fffffu) | 0x800000u;
        kept = significand >> shift;
        dropped = significand & ((1u << shift) - 1);
        half_unit = 1u << (shift - 1);
    }
    /* A carry out of the fraction runs into the exponent, and from 65504 into infinity, as it should. */
    if (dropped > half_unit || (dropped == half_unit && (kept & 1)))
        kept++;
    return (f16_t)(sign | kept);
}

static bf16_t float_to_upper(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (bf16_t)(bits >> 16 | 0x40u);
    /* A carry out of the fraction runs into the exponent, and from the largest number into infinity, as it should. */
    return (bf16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

static float load_f16(const f16_t *p)
{
    f16_t v;
    memcpy(&v, p, sizeof v);
    return half_to_float(v);
}

static float upper_to_float(bf16_t upper)
{
    uint32_t bits = (uint32_t)upper << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* One element, as it is stored. */
KERNEL_INLINE double load(const void *row, size_t i, enum element element)
{
    const char *at = element_at(row, i, element);
    uint16_t half;
    switch (element) {
    case F32:
        return load_f32((const void *)at);
    case F16:
        return load_f16((const void *)at);
    case BF16:
        memcpy(&half, at, sizeof half);
        return upper_to_float(half);
    case U8:
        return *(const uint8_t *)at;
    default:
        return *(const int8_t *)at;
    }
}

KERNEL_INLINE float sum_floats(const float *a, const void *b, size_t dim, enum element element, bool l2)
{
    double sum = 0;
    for (size_t i = 0; i < dim; i++) {
        double x = load(a, i, F32), y = load(b, i, element);
        sum += l2 ? (x - y) * (x - y) : x * y;
    }
    return (float)sum;
}

KERNEL_INLINE int32_t sum_bytes(const void *a, const void *b, size_t dim, enum bytes_sum what)
{
    const bool is_signed = what == I8_L2 || what == I8_DOT, l2 = what == U8_L2 || what == I8_L2;
    int64_t sum = 0;
    for (size_t i = 0; i < dim; i++) {
        int64_t x = is_signed ? ((const int8_t *)a)[i] : ((const uint8_t *)a)[i];
        int64_t y = is_signed ? ((const int8_t *)b)[i] : ((const uint8_t *)b)[i];
        sum += l2 ? (x - y) * (x - y) : x * y;
    }
    return (int32_t)sum;
}

KERNEL_INLINE void dot_codes(const int8_t *q, const uint8_t *codes, size_t stride, const uint32_t *rows, size_t n,
                             size_t dim, unsigned bits, int32_t *out)
{
    for (size_t r = 0; r < n; r++) {
        const uint8_t *code = codes + rows[r] * stride;
        int64_t sum = 0;
        for (size_t i = 0; i < dim; i++)
            sum += (int64_t)((unsigned)code[i * bits / 8] >> (i * bits % 8) & ((1u << bits) - 1)) * q[i];
        out[r] = (int32_t)sum;
    }
}

/* The level of dimension i of a code of a group. Fields of `bits` bits of a byte: the first is of codes 0 .. 15, the
 * second of 16 .. 31, and so on in turn; two such fields are four dimensions further on. */
static unsigned group_level(const uint8_t *group, size_t slot, size_t i, unsigned bits)
{
    size_t per_line = 16 / bits, in_line = i % per_line, byte = 64 * (i / per_line) + 4 * (slot % 16) + in_line % 4;
    return (unsigned)group[byte] >> (2 * (in_line / 4) + slot / 16) * bits & ((1u << bits) - 1);
}

KERNEL_INLINE void dot_groups(const int8_t *q, const uint8_t *groups, size_t stride, size_t n_groups, size_t dim,
                              unsigned bits, int32_t *out)
{
    for (size_t g = 0; g < n_groups; g++)
        for (size_t slot = 0; slot < 32; slot++) {
            int64_t sum = 0;
            for (size_t i = 0; i < dim; i++)
                sum += (int64_t)group_level(groups + g * stride, slot, i, bits) * q[i];
            out[32 * g + slot] = (int32_t)sum;
        }
}

static void f32_l2_many(const float *q, const float *base, size_t n, size_t dim, float *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = sum_floats(q, base + i * dim, dim, F32, true);
}

static void f16_from_f32(const float *in, f16_t *out, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        f16_t half = float_to_half(load_f32(in + i));
        memcpy(out + i, &half, sizeof half);
    }
}

static void f32_from_f16(const f16_t *in, float *out, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float value = load_f16(in + i);
        memcpy(out + i, &value, sizeof value);
    }
}

static void bf16_from_f32(const float *in, bf16_t *out, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bf16_t upper = float_to_upper(load_f32(in + i));
        memcpy(out + i, &upper, sizeof upper);
    }
}

static void f32_from_bf16(const bf16_t *in, float *out, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float value = (float)load(in, i, BF16);
        memcpy(out + i, &value, sizeof value);
    }
}

static void code_estimates(const f16_t *factors, const int32_t *dots, size_t n, const struct code_scales *scales,
                           float *out)
{
    for (size_t i = 0; i < n; i++) {
        double product = ((double)dots[i] - scales->middle) * scales->f * load_f16(factors + 2 * i + 1);
        out[i] = (float)(scales->base + (double)scales->a * load_f16(factors + 2 * i) - product);
    }
}

static void hadamard(float *x, size_t n)
{
    float scale = (float)(1 / sqrt((double)n));
    for (size_t half = 1; half < n; half *= 2)
        for (size_t start = 0; start < n; start += 2 * half)
            for (size_t i = start; i < start + half; i++) {
                float a = load_f32(x + i), b = load_f32(x + i + half);
                float sum = a + b, difference = a - b;
                memcpy(x + i, &sum, sizeof sum);
                memcpy(x + i + half, &difference, sizeof difference);
            }
    for (size_t i = 0; i < n; i++) {
        float scaled = load_f32(x + i) * scale;
        memcpy(x + i, &scaled, sizeof scaled);
    }
}

#include "index/kernels/kernels_entries.h"

KERNELS_TABLE(kernels_scalar, "scalar");
