/*
 * kernels.h - distances and dot products, one file per instruction set, chosen once.
 *
 * Every variant computes the same function; kernels_scalar.c is the oracle (double sums). The table is picked at the
 * first kernels() call from CPUID and XGETBV (the operating system must save the registers too), lowered by
 * QUIRE_CPU=scalar|avx2|avx512|neon. Vectors need no alignment; the row numbers
 * and results of batches have that of their type. Dimensions are counted in elements, any value >= 1 unless said
 * otherwise. Sums of products of bytes and codes are exact up to 65,568 dimensions, the most that a vector has, padded:
 * 65,568 x 128 x 255 is below 2^31, and 65,568 x 255 x 255 below 2^32.
 *
 * Codes: b-bit codes pack element i into bits [i*b % 8, i*b % 8 + b) of byte i*b/8 (little end first), b in 1, 2, 4, 8;
 * unsigned. `dim` of the code kernels is a multiple of 32 (codes are padded).
 */
#ifndef QUIRE_INDEX_KERNELS_H
#define QUIRE_INDEX_KERNELS_H

#include <stddef.h>
#include <stdint.h>

typedef uint16_t f16_t;  /* IEEE 754 binary16 as bits */
typedef uint16_t bf16_t; /* bfloat16 as bits: the upper half of a float */

/* What the estimates of one run of codes have in common; codes.h has the formula. */
struct code_scales {
    float base, a, f, middle;
};

struct kernels {
    const char *name; /* "scalar", "avx2", "avx512", "neon" */

    /* one pair */
    float (*f32_l2)(const float *a, const float *b, size_t dim); /* sum (a-b)^2 */
    float (*f32_dot)(const float *a, const float *b, size_t dim);
    float (*f16_l2)(const float *a, const f16_t *b, size_t dim); /* query f32, stored f16 */
    float (*f16_dot)(const float *a, const f16_t *b, size_t dim);
    float (*bf16_l2)(const float *a, const bf16_t *b, size_t dim); /* query f32, stored bf16 */
    float (*bf16_dot)(const float *a, const bf16_t *b, size_t dim);
    uint32_t (*u8_l2)(const uint8_t *a, const uint8_t *b, size_t dim);
    uint32_t (*u8_dot)(const uint8_t *a, const uint8_t *b, size_t dim);
    uint32_t (*i8_l2)(const int8_t *a, const int8_t *b, size_t dim);
    int32_t (*i8_dot)(const int8_t *a, const int8_t *b, size_t dim);
    float (*f32_u8_dot)(const float *a, const uint8_t *b, size_t dim); /* query f32, stored u8 */
    float (*f32_i8_dot)(const float *a, const int8_t *b, size_t dim);
    float (*f32_u8_l2)(const float *a, const uint8_t *b, size_t dim);
    float (*f32_i8_l2)(const float *a, const int8_t *b, size_t dim);

    /* Batches over scattered codes: out[i] = sum_j code[rows[i]][j] * q[j], code row r at codes + r * stride, with
     * prefetch inside. q is int8; codes unsigned. stride in bytes. dim multiple of 32. */
    void (*code_dot[4])(const int8_t *q, const uint8_t *codes, size_t stride, const uint32_t *rows, size_t n,
                        size_t dim, int32_t *out); /* [0] 1 bit, [1] 2 bit, [2] 4 bit, [3] 8 bit */
    /* Scans of groups of 32 codes that lie interleaved (codes.h has the layout): out[32 g + i] = the dot product of q
     * and code i of group g, for n_groups x 32 results. Group g is at groups + g * stride; stride, in bytes, is a
     * multiple of 4. Codes need no alignment; multiples of 64 are fastest. Nothing behind the last group is read. Exact
     * up to 65,568 dimensions; dim multiple of 32. No row numbers, no sum across lanes: what a posting list read
     * from end to end wants, where code_dot is for codes at random places. */
    void (*group_dot[3])(const int8_t *q, const uint8_t *groups, size_t stride, size_t n_groups, size_t dim,
                         int32_t *out); /* [0] 1 bit, [1] 2 bit, [2] 4 bit */
    /* Batches over f32 rows, row-major: out[i] = squared L2 of q and base + i * dim. */
    void (*f32_l2_many)(const float *q, const float *base, size_t n, size_t dim, float *out);

    /* Distances from the products above:
     * out[i] = base + a * factors[2 i] - f * factors[2 i + 1] * (dots[i] - middle). */
    void (*code_estimates)(const f16_t *factors, const int32_t *dots, size_t n, const struct code_scales *scales,
                           float *out);

    /* conversions */
    void (*f16_from_f32)(const float *in, f16_t *out, size_t n); /* round to nearest even, overflow to inf */
    void (*f32_from_f16)(const f16_t *in, float *out, size_t n);
    void (*bf16_from_f32)(const float *in, bf16_t *out, size_t n); /* the same; NaN quiet, the rest of it cut off */
    void (*f32_from_bf16)(const bf16_t *in, float *out, size_t n); /* exact */
    /* y[i] = H x, orthonormal Walsh-Hadamard transform in place; n a power of two */
    void (*hadamard)(float *x, size_t n);
};

/* The table in force. Thread-safe, never NULL. */
const struct kernels *kernels(void);
/* The variants that this build carries and this machine can run, best first; n <= 4. For tests and bench. */
size_t kernels_available(const struct kernels *const **out);
/* Why the table in force is what it is: "avx512 (cpuid, xgetbv)" or "avx2 (QUIRE_CPU)". Static storage. */
const char *kernels_reason(void);

/* index of code_dot for a number of bits, or -1; of group_dot too, but that ends at 4 bits */
static inline int kernels_code_index(unsigned bits)
{
    return bits == 1 ? 0 : bits == 2 ? 1 : bits == 4 ? 2 : bits == 8 ? 3 : -1;
}

#endif
