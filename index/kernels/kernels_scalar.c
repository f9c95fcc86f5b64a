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
#include "index/kernels/kernels_priv.h"
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

static float load_bf16(const bf16_t *p)
{
    bf16_t upper;
    memcpy(&upper, p, sizeof upper);
    uint32_t bits = (uint32_t)upper << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The sum over i < dim of the square of (x - y), or of x * y, where x and y are expressions of i. */
#define SUM_L2(accumulator, x, y)                                                                                      \
    accumulator sum = 0;                                                                                               \
    for (size_t i = 0; i < dim; i++) {                                                                                 \
        accumulator difference = (accumulator)(x) - (accumulator)(y);                                                  \
        sum += difference * difference;                                                                                \
    }

#define SUM_DOT(accumulator, x, y)                                                                                     \
    accumulator sum = 0;                                                                                               \
    for (size_t i = 0; i < dim; i++)                                                                                   \
        sum += (accumulator)(x) * (accumulator)(y);

static float f32_l2(const float *a, const float *b, size_t dim)
{
    SUM_L2(double, load_f32(a + i), load_f32(b + i))
    return (float)sum;
}

static float f32_dot(const float *a, const float *b, size_t dim)
{
    SUM_DOT(double, load_f32(a + i), load_f32(b + i))
    return (float)sum;
}

static float f16_l2(const float *a, const f16_t *b, size_t dim)
{
    SUM_L2(double, load_f32(a + i), load_f16(b + i))
    return (float)sum;
}

static float f16_dot(const float *a, const f16_t *b, size_t dim)
{
    SUM_DOT(double, load_f32(a + i), load_f16(b + i))
    return (float)sum;
}

static float bf16_l2(const float *a, const bf16_t *b, size_t dim)
{
    SUM_L2(double, load_f32(a + i), load_bf16(b + i))
    return (float)sum;
}

static float bf16_dot(const float *a, const bf16_t *b, size_t dim)
{
    SUM_DOT(double, load_f32(a + i), load_bf16(b + i))
    return (float)sum;
}

static int32_t u8_l2(const uint8_t *a, const uint8_t *b, size_t dim)
{
    SUM_L2(int64_t, a[i], b[i])
    return (int32_t)sum;
}

static int32_t u8_dot(const uint8_t *a, const uint8_t *b, size_t dim)
{
    SUM_DOT(int64_t, a[i], b[i])
    return (int32_t)sum;
}

static int32_t i8_l2(const int8_t *a, const int8_t *b, size_t dim)
{
    SUM_L2(int64_t, a[i], b[i])
    return (int32_t)sum;
}

static int32_t i8_dot(const int8_t *a, const int8_t *b, size_t dim)
{
    SUM_DOT(int64_t, a[i], b[i])
    return (int32_t)sum;
}

static float f32_u8_dot(const float *a, const uint8_t *b, size_t dim)
{
    SUM_DOT(double, load_f32(a + i), b[i])
    return (float)sum;
}

static float f32_i8_dot(const float *a, const int8_t *b, size_t dim)
{
    SUM_DOT(double, load_f32(a + i), b[i])
    return (float)sum;
}

static float f32_u8_l2(const float *a, const uint8_t *b, size_t dim)
{
    SUM_L2(double, load_f32(a + i), b[i])
    return (float)sum;
}

static float f32_i8_l2(const float *a, const int8_t *b, size_t dim)
{
    SUM_L2(double, load_f32(a + i), b[i])
    return (float)sum;
}

static int32_t code_sum(const int8_t *q, const uint8_t *code, size_t dim, unsigned bits)
{
    unsigned mask = (1u << bits) - 1;
    SUM_DOT(int64_t, (unsigned)code[i * bits / 8] >> (i * bits % 8) & mask, q[i])
    return (int32_t)sum;
}

#define CODE_DOT(bits)                                                                                                 \
    static void code_dot_##bits(const int8_t *q, const uint8_t *codes, size_t stride, const uint32_t *rows, size_t n,  \
                                size_t dim, int32_t *out)                                                              \
    {                                                                                                                  \
        for (size_t i = 0; i < n; i++)                                                                                 \
            out[i] = code_sum(q, codes + rows[i] * stride, dim, bits);                                                 \
    }

CODE_DOT(1)
CODE_DOT(2)
CODE_DOT(4)
CODE_DOT(8)

/* The level of dimension i of a code of a group. Fields of `bits` bits of a byte: the first is of codes 0 .. 15, the
 * second of 16 .. 31, and so on in turn; two such fields are four dimensions further on. */
static unsigned group_level(const uint8_t *group, size_t slot, size_t i, unsigned bits)
{
    size_t per_line = 16 / bits, in_line = i % per_line, byte = 64 * (i / per_line) + 4 * (slot % 16) + in_line % 4;
    return (unsigned)group[byte] >> (2 * (in_line / 4) + slot / 16) * bits & ((1u << bits) - 1);
}

static void dot_groups(const int8_t *q, const uint8_t *groups, size_t stride, size_t n_groups, size_t dim,
                       unsigned bits, int32_t *out)
{
    for (size_t g = 0; g < n_groups; g++)
        for (size_t slot = 0; slot < 32; slot++) {
            SUM_DOT(int64_t, group_level(groups + g * stride, slot, i, bits), q[i])
            out[32 * g + slot] = (int32_t)sum;
        }
}

#define GROUP_DOT(bits)                                                                                                \
    static void group_dot_##bits(const int8_t *q, const uint8_t *groups, size_t stride, size_t n_groups, size_t dim,   \
                                 int32_t *out)                                                                         \
    {                                                                                                                  \
        dot_groups(q, groups, stride, n_groups, dim, bits, out);                                                       \
    }

GROUP_DOT(1)
GROUP_DOT(2)
GROUP_DOT(4)

static void f32_l2_many(const float *q, const float *base, size_t n, size_t dim, float *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = f32_l2(q, base + i * dim, dim);
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
        float value = load_bf16(in + i);
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

KERNELS_TABLE(kernels_scalar, "scalar");
