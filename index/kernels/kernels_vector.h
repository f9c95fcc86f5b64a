/*
 * kernels_vector.h - the kernels that are the same with registers of any width: rows of floats four at a time, codes
 * against a query in planes, conversions, and the Walsh-Hadamard transform.
 *
 * Included by kernels_<isa>.c where it has defined
 *   floats, LANES                          a register of so many floats
 *   load_floats(at), load_first(at, n)     from any address; the first n < LANES and zeros
 *   store_floats(at, x), splat_floats(x)
 *   add_term(sum, a, b, l2)                sum + (a - b)^2 with l2, sum + a b without
 *   store_four(out, n, s)                  the sums of the lanes of each of s[4], the first n of them
 *   in_planes(bits), split_planes(q, dim, planes, bits), sum_batch(query, batch, bits, add, out)
 *   CONVERTED; halves_of, floats_of_halves, uppers_of, floats_of_uppers (from, to)   so many elements at any addresses
 *   mix_lanes(x), BLOCK_REGISTERS          the stages of a transform inside a register; so many go through them at once
 */
#ifndef QUIRE_INDEX_KERNELS_VECTOR_H
#define QUIRE_INDEX_KERNELS_VECTOR_H

#include "index/kernels/kernels_batch.h"
#include <math.h>
#include <string.h>

#define FLOATS_BYTES (LANES * sizeof(float))
#define PLANES_DIM   16384 /* dimensions whose planes stand on the stack at once */

static void f32_l2_many(const float *q_row, const float *base, size_t n, size_t dim, float *out)
{
    const char *q = (const char *)q_row;
    const size_t bytes = dim * sizeof(float);
    for (size_t row = 0; row < n; row += 4) {
        size_t left = n - row < 4 ? n - row : 4, at = 0;
        const char *r[4] = {(const char *)base + row * bytes};
        floats s[4] = {{0}};
        for (size_t i = 1; i < 4; i++)
            r[i] = left > i ? r[i - 1] + bytes : r[i - 1];
        for (; at + FLOATS_BYTES <= bytes; at += FLOATS_BYTES) {
            floats x = load_floats(q + at);
            for (size_t i = 0; i < 4; i++)
                s[i] = add_term(s[i], x, load_floats(r[i] + at), true);
        }
        if (at < bytes) {
            size_t last = (bytes - at) / sizeof(float);
            floats x = load_first(q + at, last);
            for (size_t i = 0; i < 4; i++)
                s[i] = add_term(s[i], x, load_first(r[i] + at, last), true);
        }
        store_four(out + row, left, s);
    }
}

KERNEL_INLINE void dot_codes(const int8_t *q, const uint8_t *codes, size_t stride, const uint32_t *rows, size_t n,
                             size_t dim, unsigned bits, int32_t *out)
{
    if (!in_planes(bits)) {
        struct batch batch = batch_of(codes, stride, rows, n, dim / 8 * bits);
        sum_batch(q, &batch, bits, false, out);
        return;
    }
    _Alignas(64) int8_t planes[PLANES_DIM];
    for (size_t from = 0; from < dim; from += PLANES_DIM) {
        size_t part = dim - from < PLANES_DIM ? dim - from : PLANES_DIM;
        split_planes(q + from, part, planes, bits);
        struct batch batch = batch_of(codes + from / 8 * bits, stride, rows, n, part / 8 * bits);
        sum_batch(planes, &batch, bits, from > 0, out);
    }
}

/* ---- conversions ------------------------------------------------------------------------------------------------- */

#define CONVERSION(name, from_type, to_type, convert)                                                                  \
    static void name(const from_type *in, to_type *out, size_t n)                                                      \
    {                                                                                                                  \
        const char *from = (const char *)in;                                                                           \
        char *to = (char *)out;                                                                                        \
        for (; n >= CONVERTED; n -= CONVERTED, from += CONVERTED * sizeof *in, to += CONVERTED * sizeof *out)          \
            convert(from, to);                                                                                         \
        if (n > 0) {                                                                                                   \
            _Alignas(64) char last[CONVERTED * sizeof *in] = {0}, converted[CONVERTED * sizeof *out];                  \
            memcpy(last, from, n * sizeof *in);                                                                        \
            convert(last, converted);                                                                                  \
            memcpy(to, converted, n * sizeof *out);                                                                    \
        }                                                                                                              \
    }

CONVERSION(f16_from_f32, float, f16_t, halves_of)
CONVERSION(f32_from_f16, f16_t, float, floats_of_halves)
CONVERSION(bf16_from_f32, float, bf16_t, uppers_of)
CONVERSION(f32_from_bf16, bf16_t, float, floats_of_uppers)

/* ---- Walsh-Hadamard transform ------------------------------------------------------------------------------------ */

/* Transforms count * LANES floats, scaled; count is a constant power of two <= BLOCK_REGISTERS, so that all stays in
 * registers. */
KERNEL_INLINE void transform_block(char *x, size_t count, floats scale)
{
    floats v[BLOCK_REGISTERS];
    for (size_t i = 0; i < count; i++)
        v[i] = mix_lanes(load_floats(x + FLOATS_BYTES * i) * scale);
    for (size_t half = 1; half < count; half *= 2)
        for (size_t i = 0; i < count; i++)
            if (!(i & half)) {
                floats a = v[i], b = v[i + half];
                v[i] = a + b;
                v[i + half] = a - b;
            }
    for (size_t i = 0; i < count; i++)
        store_floats(x + FLOATS_BYTES * i, v[i]);
}

/* Two stages in one pass: pairs `half` bytes apart, then pairs 2 * half apart. */
static void two_stages(char *x, size_t bytes, size_t half)
{
    for (size_t start = 0; start < bytes; start += 4 * half)
        for (char *p = x + start; p < x + start + half; p += FLOATS_BYTES) {
            floats a = load_floats(p), b = load_floats(p + half);
            floats c = load_floats(p + 2 * half), d = load_floats(p + 3 * half);
            floats ab = a + b, cd = c + d, a_b = a - b, c_d = c - d;
            store_floats(p, ab + cd);
            store_floats(p + half, a_b + c_d);
            store_floats(p + 2 * half, ab - cd);
            store_floats(p + 3 * half, a_b - c_d);
        }
}

static void one_stage(char *x, size_t bytes, size_t half)
{
    for (size_t start = 0; start < bytes; start += 2 * half)
        for (char *p = x + start; p < x + start + half; p += FLOATS_BYTES) {
            floats a = load_floats(p), b = load_floats(p + half);
            store_floats(p, a + b);
            store_floats(p + half, a - b);
        }
}

static void hadamard(float *row, size_t n)
{
    const floats scale = splat_floats((float)(1 / sqrt((double)n)));
    const size_t bytes = n * sizeof(float), block = BLOCK_REGISTERS * FLOATS_BYTES;
    char *x = (char *)row;
    if (n < LANES) { /* fewer than a register has: transform so many, of which the others are zero, and keep these */
        _Alignas(64) char all[FLOATS_BYTES] = {0};
        memcpy(all, x, bytes);
        transform_block(all, 1, scale);
        memcpy(x, all, bytes);
        return;
    }
    switch (n / LANES) {
    case 1:
        transform_block(x, 1, scale);
        return;
    case 2:
        transform_block(x, 2, scale);
        return;
    case 4:
        transform_block(x, 4, scale);
        return;
    case 8:
        transform_block(x, 8, scale);
        return;
    default:
        break;
    }
    for (size_t at = 0; at < bytes; at += block)
        transform_block(x + at, BLOCK_REGISTERS, scale);
    size_t half = block;
    for (; 4 * half <= bytes; half *= 4)
        two_stages(x, bytes, half);
    if (half < bytes)
        one_stage(x, bytes, half);
}

#endif
