/*
 * kernels_neon.c - the kernels with the 128-bit registers that every 64-bit Arm processor has.
 *
 * Only ARMv8.0 is assumed, so there is nothing to detect. A build for processors with the dot product instructions
 * (-march=armv8.2-a+dotprod) uses them in the functions under __ARM_FEATURE_DOTPROD; nothing else differs.
 *
 * Bytes. Products are widened to 16 bits and added in pairs to lanes of 32 (umull and uadalp), which is exact: two
 * products of -128 by -128 make 32,768, but they meet only in 32 bits. Differences are taken as bytes, |a - b| <= 255.
 *
 * Codes. Once per batch the query is split into planes, so that plane j of a block of 16 code bytes holds the elements
 * that bits j * bits .. of those bytes meet; the loads that take structures apart do it. A code is then masked and
 * shifted plane by plane. Levels of 1, 2 and 4 bits are at most 15, so all products of a block fit lanes of 16 bits:
 * 2 planes * 2 products * 15 * 128 = 7,680 is the most. There is no product of u8 and i8 in ARMv8.0, so 8-bit codes are
 * taken as c = (c ^ 0x80) + 128, where c ^ 0x80 is a signed byte, and 128 times the sum of the query is added once.
 *
 * Groups of 32 codes lie so that 16 bytes, shifted and masked, are 4 vectors times 4 dimensions, which meet the query's
 * 4 bytes broadcast: one dot product instruction, or products that are added in lanes of 16 bits, 8 * 15 * 128 = 15,360
 * for 32 dimensions, and then by pairs. With lanes that are vectors there is little to sum across.
 *
 * Tails. There are no masked loads; what is left of a vector is copied into a zeroed buffer, and zeros add nothing.
 *
 * Loads go through bytes, since vectors need no alignment and a pointer to float promises one to the compiler. Lanes
 * are numbered as in memory, which is so with the low byte first; Arm with the high byte first is refused.
 *
 * Rejected: FP16 arithmetic (ARMv8.2, and sums of halves lose too much); SVE (its registers have no fixed size, which
 * the planes need, and few machines have more than 128 bits).
 */
#include "index/kernels/kernels_batch.h"
#include <arm_neon.h>
#include <string.h>

#ifdef __ARM_BIG_ENDIAN
#error "kernels_neon.c is for machines that store the low byte first"
#endif

typedef float32x4_t floats;

#define LANES           4
#define CONVERTED       8 /* elements at a time */
#define BLOCK_REGISTERS 16

KERNEL_INLINE uint8x16_t load_128(const void *at)
{
    return vld1q_u8(at);
}

/* The first `bytes` <= 16 bytes at `at`, then zeros. */
KERNEL_INLINE uint8x16_t load_part(const void *at, size_t bytes)
{
    _Alignas(16) uint8_t buffer[16] = {0};
    memcpy(buffer, at, bytes);
    return load_128(buffer);
}

KERNEL_INLINE int8x16_t load_signed(const void *at)
{
    return vreinterpretq_s8_u8(load_128(at));
}

KERNEL_INLINE floats load_floats(const char *at)
{
    return vreinterpretq_f32_u8(load_128(at));
}

KERNEL_INLINE floats load_first(const char *at, size_t n)
{
    return vreinterpretq_f32_u8(load_part(at, n * sizeof(float)));
}

KERNEL_INLINE void store_floats(char *at, floats x)
{
    vst1q_u8((void *)at, vreinterpretq_u8_f32(x));
}

KERNEL_INLINE floats splat_floats(float x)
{
    return vdupq_n_f32(x);
}

/* ---- float queries against stored floats, halves and bytes ------------------------------------------------------- */

KERNEL_INLINE float32x4x4_t widen_unsigned(uint8x16_t bytes)
{
    uint16x8_t low = vmovl_u8(vget_low_u8(bytes)), high = vmovl_high_u8(bytes);
    return (float32x4x4_t){{vcvtq_f32_u32(vmovl_u16(vget_low_u16(low))), vcvtq_f32_u32(vmovl_high_u16(low)),
                            vcvtq_f32_u32(vmovl_u16(vget_low_u16(high))), vcvtq_f32_u32(vmovl_high_u16(high))}};
}

KERNEL_INLINE float32x4x4_t widen_signed(int8x16_t bytes)
{
    int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_high_s8(bytes);
    return (float32x4x4_t){{vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))), vcvtq_f32_s32(vmovl_high_s16(low)),
                            vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))), vcvtq_f32_s32(vmovl_high_s16(high))}};
}

/* The four floats whose upper halves these are. */
KERNEL_INLINE float32x4_t from_uppers(uint16x4_t uppers)
{
    return vreinterpretq_f32_u32(vshlq_n_u32(vmovl_u16(uppers), 16));
}

KERNEL_INLINE uint16x8_t load_8(const void *at)
{
    return vreinterpretq_u16_u8(load_128(at));
}

/* Sixteen elements. */
KERNEL_INLINE float32x4x4_t load_16(const char *at, enum element element)
{
    float16x8_t low, high;
    switch (element) {
    case F32:
        return (float32x4x4_t){{load_floats(at), load_floats(at + 16), load_floats(at + 32), load_floats(at + 48)}};
    case F16:
        low = vreinterpretq_f16_u8(load_128(at));
        high = vreinterpretq_f16_u8(load_128(at + 16));
        return (float32x4x4_t){{vcvt_f32_f16(vget_low_f16(low)), vcvt_high_f32_f16(low),
                                vcvt_f32_f16(vget_low_f16(high)), vcvt_high_f32_f16(high)}};
    case BF16:
        return (float32x4x4_t){{from_uppers(vget_low_u16(load_8(at))), from_uppers(vget_high_u16(load_8(at))),
                                from_uppers(vget_low_u16(load_8(at + 16))),
                                from_uppers(vget_high_u16(load_8(at + 16)))}};
    case U8:
        return widen_unsigned(load_128(at));
    default:
        return widen_signed(load_signed(at));
    }
}

/* The first n < 16 elements, then zeros. */
KERNEL_INLINE float32x4x4_t load_last(const char *at, size_t n, enum element element)
{
    _Alignas(16) char buffer[64] = {0};
    memcpy(buffer, at, n * element_bytes(element));
    return load_16(buffer, element);
}

KERNEL_INLINE float32x4_t add_term(float32x4_t sum, float32x4_t a, float32x4_t b, bool l2)
{
    if (!l2)
        return vfmaq_f32(sum, a, b);
    float32x4_t difference = vsubq_f32(a, b);
    return vfmaq_f32(sum, difference, difference);
}

KERNEL_INLINE float32x4x4_t add_terms(float32x4x4_t sum, float32x4x4_t a, float32x4x4_t b, bool l2)
{
    return (float32x4x4_t){{add_term(sum.val[0], a.val[0], b.val[0], l2), add_term(sum.val[1], a.val[1], b.val[1], l2),
                            add_term(sum.val[2], a.val[2], b.val[2], l2),
                            add_term(sum.val[3], a.val[3], b.val[3], l2)}};
}

KERNEL_INLINE float sum_floats(const float *a_row, const void *b_row, size_t dim, enum element element, bool l2)
{
    const char *a = (const char *)a_row, *b = b_row;
    const float32x4_t zero = vdupq_n_f32(0);
    float32x4x4_t sum = {{zero, zero, zero, zero}};
    size_t i = 0, size = element_bytes(element);
    for (; i + 16 <= dim; i += 16)
        sum = add_terms(sum, load_16(a + 4 * i, F32), load_16(b + size * i, element), l2);
    if (i < dim)
        sum = add_terms(sum, load_last(a + 4 * i, dim - i, F32), load_last(b + size * i, dim - i, element), l2);
    return vaddvq_f32(vaddq_f32(vaddq_f32(sum.val[0], sum.val[1]), vaddq_f32(sum.val[2], sum.val[3])));
}

/* Lane r of what is stored is the sum of s[r]. */
KERNEL_INLINE void store_four(float *out, size_t n, const floats s[4])
{
    char four[16];
    store_floats(four, vpaddq_f32(vpaddq_f32(s[0], s[1]), vpaddq_f32(s[2], s[3])));
    memcpy((char *)out, four, n * sizeof(float));
}

/* ---- bytes against bytes ----------------------------------------------------------------------------------------- */

/* Sums of products of levels <= 15 and signed bytes, over one block of a code. */
#ifdef __ARM_FEATURE_DOTPROD
typedef int32x4_t small_sum;
#else
typedef int16x8_t small_sum;
#endif

KERNEL_INLINE uint32x4_t dot_unsigned(uint32x4_t sum, uint8x16_t a, uint8x16_t b)
{
#ifdef __ARM_FEATURE_DOTPROD
    return vdotq_u32(sum, a, b);
#else
    sum = vpadalq_u16(sum, vmull_u8(vget_low_u8(a), vget_low_u8(b)));
    return vpadalq_u16(sum, vmull_high_u8(a, b));
#endif
}

KERNEL_INLINE int32x4_t dot_signed(int32x4_t sum, int8x16_t a, int8x16_t b)
{
#ifdef __ARM_FEATURE_DOTPROD
    return vdotq_s32(sum, a, b);
#else
    sum = vpadalq_s16(sum, vmull_s8(vget_low_s8(a), vget_low_s8(b)));
    return vpadalq_s16(sum, vmull_high_s8(a, b));
#endif
}

KERNEL_INLINE small_sum dot_small(small_sum sum, int8x16_t levels, int8x16_t q)
{
#ifdef __ARM_FEATURE_DOTPROD
    return vdotq_s32(sum, levels, q);
#else
    return vmlal_high_s8(vmlal_s8(sum, vget_low_s8(levels), vget_low_s8(q)), levels, q);
#endif
}

KERNEL_INLINE int32x4_t add_small(int32x4_t sum, small_sum block)
{
#ifdef __ARM_FEATURE_DOTPROD
    return vaddq_s32(sum, block);
#else
    return vpadalq_s16(sum, block);
#endif
}

/* Adds the terms of 16 elements. */
KERNEL_INLINE uint32x4_t add_bytes(uint32x4_t sum, uint8x16_t a, uint8x16_t b, enum bytes_sum what)
{
    if (what == I8_DOT)
        return vreinterpretq_u32_s32(
            dot_signed(vreinterpretq_s32_u32(sum), vreinterpretq_s8_u8(a), vreinterpretq_s8_u8(b)));
    if (what == U8_L2)
        a = b = vabdq_u8(a, b);
    else if (what == I8_L2)
        a = b = vreinterpretq_u8_s8(vabdq_s8(vreinterpretq_s8_u8(a), vreinterpretq_s8_u8(b)));
    return dot_unsigned(sum, a, b);
}

KERNEL_INLINE int32_t sum_bytes(const void *a_row, const void *b_row, size_t dim, enum bytes_sum what)
{
    const char *a = a_row, *b = b_row;
    uint32x4_t s0 = vdupq_n_u32(0), s1 = s0;
    size_t i = 0;
    for (; i + 32 <= dim; i += 32) {
        s0 = add_bytes(s0, load_128(a + i), load_128(b + i), what);
        s1 = add_bytes(s1, load_128(a + i + 16), load_128(b + i + 16), what);
    }
    if (i + 16 <= dim) {
        s0 = add_bytes(s0, load_128(a + i), load_128(b + i), what);
        i += 16;
    }
    if (i < dim)
        s1 = add_bytes(s1, load_part(a + i, dim - i), load_part(b + i, dim - i), what);
    return vaddvq_s32(vreinterpretq_s32_u32(vaddq_u32(s0, s1)));
}

/* ---- codes ------------------------------------------------------------------------------------------------------- */

/* Lane r of the result is the sum of s[r]. */
KERNEL_INLINE int32x4_t reduce_four(const int32x4_t s[4])
{
    return vpaddq_s32(vpaddq_s32(s[0], s[1]), vpaddq_s32(s[2], s[3]));
}

/* The bytes at `at` less 128. */
KERNEL_INLINE int8x16_t load_flipped(const uint8_t *at)
{
    return vreinterpretq_s8_u8(veorq_u8(load_128(at), vdupq_n_u8(0x80)));
}

KERNEL_INLINE int32x4_t sum_rows_8(const int8_t *query, const uint8_t *const row[4], size_t bytes)
{
    int32x4_t s[4] = {vdupq_n_s32(0), vdupq_n_s32(0), vdupq_n_s32(0), vdupq_n_s32(0)};
    for (size_t i = 0; i < bytes; i += 16) {
        int8x16_t q = load_signed(query + i);
        for (size_t r = 0; r < 4; r++)
            s[r] = dot_signed(s[r], load_flipped(row[r] + i), q);
    }
    return reduce_four(s);
}

/* 128 times the sum of the query, in every lane: what sum_rows_8 lacks. */
KERNEL_INLINE int32x4_t flipped_part(const int8_t *query, size_t dim)
{
    int32x4_t sum = vdupq_n_s32(0);
    for (size_t i = 0; i < dim; i += 16)
        sum = dot_signed(sum, vdupq_n_s8(1), load_signed(query + i));
    return vshlq_n_s32(vdupq_n_s32(vaddvq_s32(sum)), 7);
}

/* Adds a block of 16 bytes of four rows to s. */
KERNEL_INLINE void add_block(int32x4_t s[4], const int8_t *planes, uint8x16_t code[4], int bits)
{
    const uint8x16_t mask = vdupq_n_u8((uint8_t)((1 << bits) - 1));
    const int8x16_t down = vdupq_n_s8((int8_t)-bits);
    small_sum block[4];
    memset(block, 0, sizeof block);
    for (int plane = 0; plane < 8 / bits; plane++) {
        int8x16_t q = load_signed(planes + 16 * plane);
        for (size_t r = 0; r < 4; r++) {
            block[r] = dot_small(block[r], vreinterpretq_s8_u8(vandq_u8(code[r], mask)), q);
            code[r] = vshlq_u8(code[r], down);
        }
    }
    for (size_t r = 0; r < 4; r++)
        s[r] = add_small(s[r], block[r]);
}

/* 1, 2 and 4 bits; `query` in planes. */
KERNEL_INLINE int32x4_t sum_rows_planes(const int8_t *query, const uint8_t *const row[4], size_t bytes, int bits)
{
    int32x4_t s[4] = {vdupq_n_s32(0), vdupq_n_s32(0), vdupq_n_s32(0), vdupq_n_s32(0)};
    uint8x16_t code[4];
    size_t i = 0;
    for (; i + 16 <= bytes; i += 16, query += 128 / bits) {
        for (size_t r = 0; r < 4; r++)
            code[r] = load_128(row[r] + i);
        add_block(s, query, code, bits);
    }
    if (i < bytes) {
        for (size_t r = 0; r < 4; r++)
            code[r] = load_part(row[r] + i, bytes - i);
        add_block(s, query, code, bits);
    }
    return reduce_four(s);
}

/* out[i] = sum of row i, or += with `add`. */
KERNEL_INLINE void sum_batch(const int8_t *query, const struct batch *batch, unsigned bits, bool add, int32_t *out)
{
    const int32x4_t constant = bits == 8 ? flipped_part(query, batch->bytes) : vdupq_n_s32(0);
    batch_start(batch);
    for (size_t i = 0; i < batch->n; i += 4) {
        const uint8_t *row[4];
        size_t left = batch_rows(batch, i, row);
        int32_t four[4] = {0};
        if (add)
            memcpy(four, (char *)out + 4 * i, left * sizeof *four);
        int32x4_t sums =
            bits == 8 ? sum_rows_8(query, row, batch->bytes) : sum_rows_planes(query, row, batch->bytes, (int)bits);
        vst1q_s32(four, vaddq_s32(vaddq_s32(vld1q_s32(four), constant), sums));
        memcpy((char *)out + 4 * i, four, left * sizeof *four);
    }
}

/* Splits 16 * 8 / bits elements of the query into as many planes of 16. */
KERNEL_INLINE void split_block(const int8_t *q, int8_t *planes, unsigned bits)
{
    if (bits == 4) {
        int8x16x2_t two = vld2q_s8(q);
        vst1q_s8(planes, two.val[0]);
        vst1q_s8(planes + 16, two.val[1]);
        return;
    }
    int8x16x4_t low = vld4q_s8(q); /* element i in low.val[i % 4] */
    if (bits == 2) {
        for (size_t j = 0; j < 4; j++)
            vst1q_s8(planes + 16 * j, low.val[j]);
        return;
    }
    int8x16x4_t high = vld4q_s8(q + 64);
    for (size_t j = 0; j < 4; j++) {
        vst1q_s8(planes + 16 * j, vuzp1q_s8(low.val[j], high.val[j]));
        vst1q_s8(planes + 16 * (j + 4), vuzp2q_s8(low.val[j], high.val[j]));
    }
}

KERNEL_INLINE void split_planes(const int8_t *q, size_t dim, int8_t *planes, unsigned bits)
{
    const size_t block = 128 / bits;
    size_t i = 0;
    for (; i + block <= dim; i += block)
        split_block(q + i, planes + i, bits);
    if (i < dim) {
        _Alignas(16) int8_t last[128] = {0};
        memcpy(last, q + i, dim - i);
        split_block(last, planes + i, bits);
    }
}

KERNEL_INLINE bool in_planes(unsigned bits)
{
    return bits != 8;
}

/* ---- groups of codes --------------------------------------------------------------------------------------------- */

/* Sums of products of levels <= 15 and signed bytes for four vectors, over up to 64 dimensions. */
#ifdef __ARM_FEATURE_DOTPROD
typedef int32x4_t four_sums;
#else
typedef int16x8x2_t four_sums; /* two vectors in each, in four parts: 17 products of 15 * 128 fit a lane */
#endif

KERNEL_INLINE four_sums dot_four(four_sums sums, int8x16_t levels, int8x16_t q)
{
#ifdef __ARM_FEATURE_DOTPROD
    return vdotq_s32(sums, levels, q);
#else
    sums.val[0] = vmlal_s8(sums.val[0], vget_low_s8(levels), vget_low_s8(q));
    sums.val[1] = vmlal_high_s8(sums.val[1], levels, q);
    return sums;
#endif
}

KERNEL_INLINE int32x4_t add_four(int32x4_t sum, four_sums sums)
{
#ifdef __ARM_FEATURE_DOTPROD
    return vaddq_s32(sum, sums);
#else
    return vaddq_s32(sum, vpaddq_s32(vpaddlq_s16(sums.val[0]), vpaddlq_s16(sums.val[1])));
#endif
}

/* Four elements of the query in every lane. */
KERNEL_INLINE int8x16_t load_four(const int8_t *q)
{
    int32_t four;
    memcpy(&four, q, sizeof four);
    return vreinterpretq_s8_s32(vdupq_n_s32(four));
}

/* Adds 32 dimensions of one quarter of each line: *first are its 4 vectors of the first 16, *second of the others. */
KERNEL_INLINE void add_lines(int32x4_t *first, int32x4_t *second, const uint8_t *lines, const int8_t *q, int bits)
{
    const uint8x16_t mask = vdupq_n_u8((uint8_t)((1 << bits) - 1));
    four_sums s[2];
    memset(s, 0, sizeof s);
    for (int i = 0; i < 2 * bits; i++) {
        uint8x16_t line = load_128(lines + 64 * i);
        for (int field = 0; field < 8 / bits; field++) {
            uint8x16_t levels = vandq_u8(vshlq_u8(line, vdupq_n_s8((int8_t)(-field * bits))), mask);
            int8x16_t four = load_four(q + 16 / bits * i + field / 2 * 4);
            s[field % 2] = dot_four(s[field % 2], vreinterpretq_s8_u8(levels), four);
        }
    }
    *first = add_four(*first, s[0]);
    *second = add_four(*second, s[1]);
}

KERNEL_INLINE void dot_groups(const int8_t *q, const uint8_t *groups, size_t stride, size_t n_groups, size_t dim,
                              int bits, int32_t *out)
{
    for (size_t g = 0; g < n_groups; g++) {
        const uint8_t *group = groups + g * stride, *next = g + 1 < n_groups ? group + stride : group;
        int32x4_t sums[8];
        memset(sums, 0, sizeof sums);
        for (size_t i = 0; i < dim; i += 32) {
            const size_t at = i / 32 * 128 * (size_t)bits;
            for (int line = 0; line < 2 * bits; line++)
                __builtin_prefetch(next + at + (size_t)line * 64);
            for (size_t quarter = 0; quarter < 4; quarter++)
                add_lines(&sums[quarter], &sums[4 + quarter], group + at + 16 * quarter, q + i, bits);
        }
        memcpy((char *)out + 128 * g, sums, sizeof sums);
    }
}

/* ---- conversions ------------------------------------------------------------------------------------------------- */

KERNEL_INLINE void halves_of(const char *in, char *out)
{
    float16x4_t low = vcvt_f16_f32(load_floats(in));
    vst1q_u8((uint8_t *)out, vreinterpretq_u8_f16(vcvt_high_f16_f32(low, load_floats(in + 16))));
}

KERNEL_INLINE void floats_of_halves(const char *in, char *out)
{
    float16x8_t halves = vreinterpretq_f16_u8(load_128(in));
    store_floats(out, vcvt_f32_f16(vget_low_f16(halves)));
    store_floats(out + 16, vcvt_high_f32_f16(halves));
}

/* The upper halves of four floats, rounded to nearest even; NaN stays NaN. */
KERNEL_INLINE uint16x4_t to_uppers(float32x4_t x)
{
    uint32x4_t bits = vreinterpretq_u32_f32(x), upper = vshrq_n_u32(bits, 16);
    uint32x4_t odd = vandq_u32(upper, vdupq_n_u32(1));
    uint32x4_t rounded = vshrq_n_u32(vaddq_u32(vaddq_u32(bits, vdupq_n_u32(0x7fff)), odd), 16);
    uint32x4_t quiet = vorrq_u32(upper, vdupq_n_u32(0x40));
    return vmovn_u32(vbslq_u32(vceqq_f32(x, x), rounded, quiet));
}

KERNEL_INLINE void uppers_of(const char *from, char *to)
{
    vst1q_u8((void *)to,
             vreinterpretq_u8_u16(vcombine_u16(to_uppers(load_floats(from)), to_uppers(load_floats(from + 16)))));
}

KERNEL_INLINE void floats_of_uppers(const char *from, char *to)
{
    store_floats(to, from_uppers(vget_low_u16(load_8(from))));
    store_floats(to + 16, from_uppers(vget_high_u16(load_8(from))));
}

static void code_estimates(const f16_t *factors, const int32_t *dots, size_t n, const struct code_scales *scales,
                           float *out)
{
    const float32x4_t base = vdupq_n_f32(scales->base), middle = vdupq_n_f32(scales->middle);
    for (size_t i = 0; i < n; i += 4) {
        f16_t pairs[8] = {0};
        int32_t products[4] = {0};
        float results[4];
        size_t m = n - i < 4 ? n - i : 4;
        memcpy(pairs, factors + 2 * i, 2 * m * sizeof *pairs);
        memcpy(products, dots + i, m * sizeof *products);
        uint16x4x2_t both = vld2_u16(pairs);
        float32x4_t a = vcvt_f32_f16(vreinterpret_f16_u16(both.val[0]));
        float32x4_t f = vmulq_n_f32(vcvt_f32_f16(vreinterpret_f16_u16(both.val[1])), scales->f);
        float32x4_t dot = vsubq_f32(vcvtq_f32_s32(vld1q_s32(products)), middle);
        vst1q_f32(results, vfmsq_f32(vfmaq_n_f32(base, a, scales->a), f, dot));
        memcpy(out + i, results, m * sizeof *results);
    }
}

/* ---- Walsh-Hadamard transform ------------------------------------------------------------------------------------ */

/* The two stages inside a register: each lane becomes partner + self, or partner - self in the upper of a pair. */
KERNEL_INLINE float32x4_t mix_lanes(float32x4_t x)
{
    const float32x4_t sign1 = {1, -1, 1, -1}, sign2 = {1, 1, -1, -1};
    x = vfmaq_f32(vrev64q_f32(x), x, sign1);
    return vfmaq_f32(vextq_f32(x, x, 2), x, sign2);
}

#include "index/kernels/kernels_vector.h"

#include "index/kernels/kernels_entries.h"

KERNELS_TABLE(kernels_neon, "neon");
