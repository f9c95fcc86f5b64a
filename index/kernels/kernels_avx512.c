/*
 * kernels_avx512.c - the kernels with 512-bit registers and VNNI.
 *
 * Tails are masked loads: lanes beyond the end read as zero, touch no memory and add nothing, so no kernel has a scalar
 * remainder and none reads past its input.
 *
 * Bytes. vpdpbusd multiplies unsigned by signed bytes and adds four products to a 32-bit lane without saturating, so it
 * is exact. What is not u8 x i8 is brought into that form, and the correction is a sum of one operand:
 *     d^2     = d (d - 128) + 128 d      d = |a - b|, a byte; d ^ 0x80 is d - 128 as signed byte
 *     u8 x u8 = a (b - 128) + 128 a
 *     i8 x i8 = (a + 128) b - 128 b
 * Two vpdpbusd for 64 elements beat widening to 16 bits, which takes two unpacks and two vpdpwssd per operand pair.
 * Lanes may wrap on the way; the total is right modulo 2^32, and the true one fits.
 *
 * Codes. A byte of codes holds 8 / bits neighbours of the vector. Once per batch the query is split into planes, so
 * that plane j of a block of 64 code bytes holds the elements that bits j * bits .. meet. Then `code & mask` meets a
 * plane directly: the levels of plane j come out times 2^(j * bits), which one shift of the sum takes away at the end.
 * At 1 bit the code is a mask register and picks the query's lanes; no planes, and 16-byte codes do not waste three
 * quarters of a register. Four rows at a time share each load of the query, and one transposing reduction turns four
 * sums into four results. The last group repeats its last row rather than having a path of its own.
 *
 * Groups of 32 codes lie so that a line of 64 bytes, masked, is 16 vectors times 4 dimensions: the query's 4 bytes meet
 * it broadcast, and each lane sums a vector of its own. A field is masked where it stands and has a sum of its own,
 * shifted once at the end: no shift per line, and 8 sums, enough to hide the latency of vpdpbusd. At 4 bits both fields
 * of a byte meet the same dimensions, so the lower one is not masked: the sum of the upper is taken off that of the
 * whole bytes. The next group is asked for ahead: lists of 8 groups in memory take a tenth to a third less time.
 *
 * bf16 is the upper half of a float, so it is read by a shift and written by a rounding addition. Not by VDPBF16PS and
 * VCVTNEPS2BF16: they want the query in bf16 too, and take denormals for zero.
 *
 * Hadamard. Up to 256 floats are transformed in 16 registers; longer inputs do 256 at a time and then go through memory
 * two stages per pass.
 *
 * Rejected: bit planes of the query with vpopcntdq for 1 bit (8 ands and counts per 512 dimensions and a sum of each,
 * no better than 8 masked vpdpbusd, and the planes must be built), horizontal sums per row (more than the products at
 * 128 dimensions).
 */
#include "index/kernels/kernels_batch.h"
#include <immintrin.h>
#include <string.h>

typedef __m512 floats;

#define LANES           16
#define CONVERTED       16 /* elements at a time */
#define BLOCK_REGISTERS 16

/* n < 16 and n < 64 */
KERNEL_INLINE __mmask16 first16(size_t n)
{
    return (__mmask16)((1u << n) - 1);
}

KERNEL_INLINE __mmask64 first64(size_t n)
{
    return (1ull << n) - 1;
}

/* ---- float queries against stored floats, halves and bytes ------------------------------------------------------- */

KERNEL_INLINE floats load_floats(const char *at)
{
    return _mm512_loadu_ps(at);
}

KERNEL_INLINE floats load_first(const char *at, size_t n)
{
    return _mm512_maskz_loadu_ps(first16(n), at);
}

KERNEL_INLINE void store_floats(char *at, floats x)
{
    _mm512_storeu_ps(at, x);
}

KERNEL_INLINE floats splat_floats(float x)
{
    return _mm512_set1_ps(x);
}

/* Sixteen floats whose upper halves these are. */
KERNEL_INLINE __m512 from_uppers(__m256i uppers)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(uppers), 16));
}

KERNEL_INLINE __m512 load(const void *row, size_t i, enum element element)
{
    const char *at = element_at(row, i, element);
    switch (element) {
    case F32:
        return _mm512_loadu_ps(at);
    case F16:
        return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)at));
    case BF16:
        return from_uppers(_mm256_loadu_si256((const void *)at));
    case U8:
        return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)at)));
    default:
        return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)at)));
    }
}

KERNEL_INLINE __m512 load_masked(const void *row, size_t i, __mmask16 mask, enum element element)
{
    const char *at = element_at(row, i, element);
    switch (element) {
    case F32:
        return _mm512_maskz_loadu_ps(mask, at);
    case F16:
        return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, at));
    case BF16:
        return from_uppers(_mm256_maskz_loadu_epi16(mask, at));
    case U8:
        return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(mask, at)));
    default:
        return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(mask, at)));
    }
}

KERNEL_INLINE __m512 add_term(__m512 sum, __m512 a, __m512 b, bool l2)
{
    if (!l2)
        return _mm512_fmadd_ps(a, b, sum);
    __m512 difference = _mm512_sub_ps(a, b);
    return _mm512_fmadd_ps(difference, difference, sum);
}

KERNEL_INLINE float sum_floats(const float *a, const void *b, size_t dim, enum element element, bool l2)
{
    __m512 s0 = _mm512_setzero_ps(), s1 = s0, s2 = s0, s3 = s0;
    size_t i = 0;
    for (; i + 64 <= dim; i += 64) {
        s0 = add_term(s0, _mm512_loadu_ps(a + i), load(b, i, element), l2);
        s1 = add_term(s1, _mm512_loadu_ps(a + i + 16), load(b, i + 16, element), l2);
        s2 = add_term(s2, _mm512_loadu_ps(a + i + 32), load(b, i + 32, element), l2);
        s3 = add_term(s3, _mm512_loadu_ps(a + i + 48), load(b, i + 48, element), l2);
    }
    for (; i + 16 <= dim; i += 16)
        s0 = add_term(s0, _mm512_loadu_ps(a + i), load(b, i, element), l2);
    if (i < dim) {
        __mmask16 mask = first16(dim - i);
        s1 = add_term(s1, _mm512_maskz_loadu_ps(mask, a + i), load_masked(b, i, mask, element), l2);
    }
    return _mm512_reduce_add_ps(_mm512_add_ps(_mm512_add_ps(s0, s1), _mm512_add_ps(s2, s3)));
}

/* ---- bytes against bytes ----------------------------------------------------------------------------------------- */

/* Adds the terms of 64 elements: the result is product +- 128 * linear, see the top. */
KERNEL_INLINE void add_bytes(__m512i *product, __m512i *linear, __m512i a, __m512i b, enum bytes_sum what)
{
    const __m512i flip = _mm512_set1_epi8(-128), ones = _mm512_set1_epi8(1);
    __m512i x, y;
    if (what == I8_DOT) {
        x = _mm512_xor_si512(a, flip);
        y = b;
        *linear = _mm512_dpbusd_epi32(*linear, ones, b);
    } else {
        if (what == U8_DOT)
            x = a;
        else if (what == U8_L2)
            x = _mm512_sub_epi8(_mm512_max_epu8(a, b), _mm512_min_epu8(a, b));
        else
            x = _mm512_sub_epi8(_mm512_max_epi8(a, b), _mm512_min_epi8(a, b));
        y = _mm512_xor_si512(what == U8_DOT ? b : x, flip);
        *linear = _mm512_dpbusd_epi32(*linear, x, ones);
    }
    *product = _mm512_dpbusd_epi32(*product, x, y);
}

/* Modulo 2^32: the sum of 65,536 squares of bytes takes all 32 bits. (_mm512_reduce_add_epi32 adds as int does.) */
KERNEL_INLINE int32_t sum_lanes(__m512i x)
{
    __m256i eight = _mm256_add_epi32(_mm512_castsi512_si256(x), _mm512_extracti64x4_epi64(x, 1));
    __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1)));
}

KERNEL_INLINE int32_t sum_bytes(const void *a_row, const void *b_row, size_t dim, enum bytes_sum what)
{
    const char *a = a_row, *b = b_row;
    __m512i p0 = _mm512_setzero_si512(), p1 = p0, l0 = p0, l1 = p0;
    size_t i = 0;
    for (; i + 128 <= dim; i += 128) {
        add_bytes(&p0, &l0, _mm512_loadu_si512(a + i), _mm512_loadu_si512(b + i), what);
        add_bytes(&p1, &l1, _mm512_loadu_si512(a + i + 64), _mm512_loadu_si512(b + i + 64), what);
    }
    if (i + 64 <= dim) {
        add_bytes(&p0, &l0, _mm512_loadu_si512(a + i), _mm512_loadu_si512(b + i), what);
        i += 64;
    }
    if (i < dim) {
        __mmask64 mask = first64(dim - i);
        add_bytes(&p1, &l1, _mm512_maskz_loadu_epi8(mask, a + i), _mm512_maskz_loadu_epi8(mask, b + i), what);
    }
    __m512i product = _mm512_add_epi32(p0, p1);
    __m512i linear = _mm512_slli_epi32(_mm512_add_epi32(l0, l1), 7);
    return sum_lanes(what == I8_DOT ? _mm512_sub_epi32(product, linear) : _mm512_add_epi32(product, linear));
}

/* ---- sums of four registers at once ------------------------------------------------------------------------------ */

/* Lane r of the result is the sum of s[r]. */
KERNEL_INLINE __m128i reduce_four(const __m512i s[4])
{
    __m512i s01 = _mm512_add_epi32(_mm512_unpacklo_epi32(s[0], s[1]), _mm512_unpackhi_epi32(s[0], s[1]));
    __m512i s23 = _mm512_add_epi32(_mm512_unpacklo_epi32(s[2], s[3]), _mm512_unpackhi_epi32(s[2], s[3]));
    __m512i all = _mm512_add_epi32(_mm512_unpacklo_epi64(s01, s23), _mm512_unpackhi_epi64(s01, s23));
    __m256i half = _mm256_add_epi32(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64(all, 1));
    return _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}

KERNEL_INLINE void store_four(float *out, size_t n, const floats s[4])
{
    __m512 s01 = _mm512_add_ps(_mm512_unpacklo_ps(s[0], s[1]), _mm512_unpackhi_ps(s[0], s[1]));
    __m512 s23 = _mm512_add_ps(_mm512_unpacklo_ps(s[2], s[3]), _mm512_unpackhi_ps(s[2], s[3]));
    __m512 all = _mm512_add_ps(_mm512_shuffle_ps(s01, s23, 0x44), _mm512_shuffle_ps(s01, s23, 0xee));
    __m256 half = _mm256_add_ps(_mm512_castps512_ps256(all), _mm512_extractf32x8_ps(all, 1));
    _mm_mask_storeu_ps(out, (__mmask8)first16(n),
                       _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1)));
}

/* ---- codes ------------------------------------------------------------------------------------------------------- */

KERNEL_INLINE __m128i sum_rows_8(const int8_t *query, const uint8_t *const row[4], size_t bytes)
{
    __m512i s[4] = {0}, t[4] = {0};
    size_t i = 0;
    for (; i + 128 <= bytes; i += 128) {
        __m512i q = _mm512_loadu_si512(query + i), p = _mm512_loadu_si512(query + i + 64);
        for (size_t r = 0; r < 4; r++) {
            s[r] = _mm512_dpbusd_epi32(s[r], _mm512_loadu_si512(row[r] + i), q);
            t[r] = _mm512_dpbusd_epi32(t[r], _mm512_loadu_si512(row[r] + i + 64), p);
        }
    }
    for (; i < bytes; i += 64) {
        __mmask64 mask = bytes - i < 64 ? first64(bytes - i) : ~0ull;
        __m512i q = _mm512_maskz_loadu_epi8(mask, query + i);
        for (size_t r = 0; r < 4; r++)
            s[r] = _mm512_dpbusd_epi32(s[r], _mm512_maskz_loadu_epi8(mask, row[r] + i), q);
    }
    for (size_t r = 0; r < 4; r++)
        s[r] = _mm512_add_epi32(s[r], t[r]);
    return reduce_four(s);
}

/* The sums of four rows from those of their planes in the low nibbles and of those in the high ones, which count 16
 * times. */
KERNEL_INLINE __m128i reduce_nibbles(__m512i low[4], const __m512i high[4])
{
    for (size_t r = 0; r < 4; r++)
        low[r] = _mm512_add_epi32(low[r], _mm512_srai_epi32(high[r], 4));
    return reduce_four(low);
}

/* Adds 64 bytes of 4-bit codes of one row. */
KERNEL_INLINE void add_4(__m512i *low, __m512i *high, __m512i code, __m512i q0, __m512i q1)
{
    const __m512i m0 = _mm512_set1_epi8(0x0f), m1 = _mm512_set1_epi8((char)0xf0);
    *low = _mm512_dpbusd_epi32(*low, _mm512_and_si512(code, m0), q0);
    *high = _mm512_dpbusd_epi32(*high, _mm512_and_si512(code, m1), q1);
}

KERNEL_INLINE __m128i sum_rows_4(const int8_t *query, const uint8_t *const row[4], size_t bytes)
{
    __m512i low[4] = {0}, high[4] = {0};
    size_t i = 0;
    for (; i + 64 <= bytes; i += 64) {
        __m512i q0 = _mm512_load_si512(query + 2 * i), q1 = _mm512_load_si512(query + 2 * i + 64);
        for (size_t r = 0; r < 4; r++)
            add_4(&low[r], &high[r], _mm512_loadu_si512(row[r] + i), q0, q1);
    }
    if (i < bytes) {
        __mmask64 mask = first64(bytes - i);
        __m512i q0 = _mm512_load_si512(query + 2 * i), q1 = _mm512_load_si512(query + 2 * i + 64);
        for (size_t r = 0; r < 4; r++)
            add_4(&low[r], &high[r], _mm512_maskz_loadu_epi8(mask, row[r] + i), q0, q1);
    }
    return reduce_nibbles(low, high);
}

/* 64 bytes of 2-bit codes of a row: even planes as they are, odd ones after a shift of 2, so that two sums do. */
KERNEL_INLINE __m128i sum_rows_2(const int8_t *query, const uint8_t *const row[4], size_t bytes)
{
    const __m512i m0 = _mm512_set1_epi8(0x03), m2 = _mm512_set1_epi8(0x30);
    __m512i low[4] = {0}, high[4] = {0};
    for (size_t i = 0; i < bytes; i += 64, query += 256) {
        __mmask64 mask = bytes - i < 64 ? first64(bytes - i) : ~0ull;
        const __m512i q[4] = {_mm512_load_si512(query), _mm512_load_si512(query + 64), _mm512_load_si512(query + 128),
                              _mm512_load_si512(query + 192)};
        for (size_t r = 0; r < 4; r++) {
            __m512i code = _mm512_maskz_loadu_epi8(mask, row[r] + i), shifted = _mm512_srli_epi16(code, 2);
            low[r] = _mm512_dpbusd_epi32(low[r], _mm512_and_si512(code, m0), q[0]);
            high[r] = _mm512_dpbusd_epi32(high[r], _mm512_and_si512(code, m2), q[2]);
            low[r] = _mm512_dpbusd_epi32(low[r], _mm512_and_si512(shifted, m0), q[1]);
            high[r] = _mm512_dpbusd_epi32(high[r], _mm512_and_si512(shifted, m2), q[3]);
        }
    }
    return reduce_nibbles(low, high);
}

/* Adds `bytes` <= 8 bytes of 1-bit codes of one row. */
KERNEL_INLINE __m512i add_1(__m512i sum, const uint8_t *code, size_t bytes, __m512i q)
{
    uint64_t bits = 0;
    memcpy(&bits, code, bytes);
    return _mm512_dpbusd_epi32(sum, _mm512_set1_epi8(1), _mm512_maskz_mov_epi8(bits, q));
}

KERNEL_INLINE __m128i sum_rows_1(const int8_t *query, const uint8_t *const row[4], size_t bytes)
{
    __m512i s[4] = {0};
    size_t i = 0;
    for (; i + 8 <= bytes; i += 8) {
        __m512i q = _mm512_loadu_si512(query + 8 * i);
        for (size_t r = 0; r < 4; r++)
            s[r] = add_1(s[r], row[r] + i, 8, q);
    }
    if (i < bytes) { /* 4 bytes: dim is a multiple of 32 */
        __m512i q = _mm512_zextsi256_si512(_mm256_loadu_si256((const void *)(query + 8 * i)));
        for (size_t r = 0; r < 4; r++)
            s[r] = add_1(s[r], row[r] + i, 4, q);
    }
    return reduce_four(s);
}

/* The sums of four rows; `bytes` of each, `query` in planes (at 1 and 8 bits as given). */
KERNEL_INLINE __m128i sum_rows(const int8_t *query, const uint8_t *const row[4], size_t bytes, unsigned bits)
{
    return bits == 1   ? sum_rows_1(query, row, bytes)
           : bits == 2 ? sum_rows_2(query, row, bytes)
           : bits == 4 ? sum_rows_4(query, row, bytes)
                       : sum_rows_8(query, row, bytes);
}

/* out[i] = sum of row i, or += with `add`. */
KERNEL_INLINE void sum_batch(const int8_t *query, const struct batch *batch, unsigned bits, bool add, int32_t *out)
{
    batch_start(batch);
    for (size_t i = 0; i < batch->n; i += 4) {
        const uint8_t *row[4];
        __mmask8 mask = (__mmask8)first16(batch_rows(batch, i, row));
        __m128i sums = sum_rows(query, row, batch->bytes, bits);
        if (add)
            sums = _mm_add_epi32(sums, _mm_maskz_loadu_epi32(mask, out + i));
        _mm_mask_storeu_epi32(out + i, mask, sums);
    }
}

/* The even and the odd ones of 128 bytes. */
KERNEL_INLINE void split_pair(__m512i a, __m512i b, __m512i *even, __m512i *odd)
{
    static const uint8_t evens[64] = {0,  2,  4,   6,   8,   10,  12,  14,  16,  18,  20,  22,  24,  26,  28,  30,
                                      32, 34, 36,  38,  40,  42,  44,  46,  48,  50,  52,  54,  56,  58,  60,  62,
                                      64, 66, 68,  70,  72,  74,  76,  78,  80,  82,  84,  86,  88,  90,  92,  94,
                                      96, 98, 100, 102, 104, 106, 108, 110, 112, 114, 116, 118, 120, 122, 124, 126};
    __m512i at = _mm512_loadu_si512(evens);
    *even = _mm512_permutex2var_epi8(a, at, b);
    *odd = _mm512_permutex2var_epi8(a, _mm512_or_si512(at, _mm512_set1_epi8(1)), b);
}

/* 64 bytes of q from i on, zero from dim on. */
KERNEL_INLINE __m512i load_query(const int8_t *q, size_t i, size_t dim)
{
    if (i + 64 <= dim)
        return _mm512_loadu_si512(q + i);
    return i < dim ? _mm512_maskz_loadu_epi8(first64(dim - i), q + i) : _mm512_setzero_si512();
}

static void split_2_planes(const int8_t *q, size_t dim, int8_t *planes)
{
    for (size_t i = 0; i < dim; i += 128) {
        __m512i even, odd;
        split_pair(load_query(q, i, dim), load_query(q, i + 64, dim), &even, &odd);
        _mm512_store_si512(planes + i, even);
        _mm512_store_si512(planes + i + 64, odd);
    }
}

static void split_4_planes(const int8_t *q, size_t dim, int8_t *planes)
{
    for (size_t i = 0; i < dim; i += 256) {
        __m512i even0, odd0, even1, odd1, plane[4];
        split_pair(load_query(q, i, dim), load_query(q, i + 64, dim), &even0, &odd0);
        split_pair(load_query(q, i + 128, dim), load_query(q, i + 192, dim), &even1, &odd1);
        split_pair(even0, even1, &plane[0], &plane[2]);
        split_pair(odd0, odd1, &plane[1], &plane[3]);
        for (size_t j = 0; j < 4; j++)
            _mm512_store_si512(planes + i + j * 64, plane[j]);
    }
}

KERNEL_INLINE bool in_planes(unsigned bits)
{
    return bits == 2 || bits == 4;
}

KERNEL_INLINE void split_planes(const int8_t *q, size_t dim, int8_t *planes, unsigned bits)
{
    if (bits == 4)
        split_2_planes(q, dim, planes);
    else
        split_4_planes(q, dim, planes);
}

/* ---- groups of codes --------------------------------------------------------------------------------------------- */

/* Four elements of the query in every lane. */
KERNEL_INLINE __m512i load_four(const int8_t *q)
{
    int32_t four;
    memcpy(&four, q, sizeof four);
    return _mm512_set1_epi32(four);
}

/* Field number `field` of the bytes of a line, where it stands; the lower one of 4 bits with the upper, see the top. */
KERNEL_INLINE __m512i field_of(__m512i line, size_t field, unsigned bits)
{
    if (bits == 4 && field == 0)
        return line;
    return _mm512_and_si512(line, _mm512_set1_epi8((char)(((1u << bits) - 1) << field * bits)));
}

/* Adds 16 dimensions: `bits` lines of 8 / bits fields each. */
KERNEL_INLINE void add_lines(__m512i sums[8], const uint8_t *lines, const int8_t *q, unsigned bits)
{
    const size_t fields = 8 / bits;
    for (size_t i = 0; i < bits; i++) {
        __m512i line = _mm512_loadu_si512(lines + 64 * i);
        for (size_t field = 0; field < fields; field++) {
            __m512i four = load_four(q + 2 * fields * i + field / 2 * 4);
            __m512i *sum = &sums[fields * i + field];
            *sum = _mm512_dpbusd_epi32(*sum, field_of(line, field, bits), four);
        }
    }
}

/* Writes the 32 results of a group. */
KERNEL_INLINE void store_group(int32_t *out, const __m512i sums[8], unsigned bits)
{
    const size_t fields = 8 / bits;
    __m512i halves[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
    for (size_t field = 0; field < fields; field++) {
        __m512i sum = sums[field];
        for (size_t i = fields; i < 8; i += fields)
            sum = _mm512_add_epi32(sum, sums[i + field]);
        if (bits == 4 && field == 1)
            halves[0] = _mm512_sub_epi32(halves[0], sum);
        sum = _mm512_srav_epi32(sum, _mm512_set1_epi32((int)(field * bits)));
        halves[field % 2] = _mm512_add_epi32(halves[field % 2], sum);
    }
    _mm512_storeu_si512(out, halves[0]);
    _mm512_storeu_si512(out + 16, halves[1]);
}

KERNEL_INLINE void dot_groups(const int8_t *q, const uint8_t *groups, size_t stride, size_t n_groups, size_t dim,
                              unsigned bits, int32_t *out)
{
    for (size_t g = 0; g < n_groups; g++) {
        const uint8_t *group = groups + g * stride, *next = g + 1 < n_groups ? group + stride : group;
        __m512i sums[8];
        for (size_t i = 0; i < 8; i++)
            sums[i] = _mm512_setzero_si512();
        for (size_t i = 0; i < dim; i += 16) {
            const size_t at = i / 16 * 64 * bits;
            for (size_t line = 0; line < bits; line++)
                __builtin_prefetch(next + at + 64 * line);
            add_lines(sums, group + at, q + i, bits);
        }
        store_group(out + 32 * g, sums, bits);
    }
}

/* ---- conversions ------------------------------------------------------------------------------------------------- */

/* the unmasked intrinsic is a macro without optimisation, and one that warns */
#define TO_HALVES(x) _mm512_maskz_cvtps_ph((__mmask16)0xffff, x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)

KERNEL_INLINE void halves_of(const char *from, char *to)
{
    _mm256_storeu_si256((void *)to, TO_HALVES(load_floats(from)));
}

KERNEL_INLINE void floats_of_halves(const char *from, char *to)
{
    store_floats(to, load(from, 0, F16));
}

/* The upper halves of sixteen floats, rounded to nearest even; NaN stays NaN. */
KERNEL_INLINE void uppers_of(const char *from, char *to)
{
    __m512 x = load_floats(from);
    __m512i bits = _mm512_castps_si512(x), upper = _mm512_srli_epi32(bits, 16);
    __m512i odd = _mm512_and_si512(upper, _mm512_set1_epi32(1));
    __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    __m512i wide = _mm512_mask_or_epi32(_mm512_srli_epi32(rounded, 16), is_nan, upper, _mm512_set1_epi32(0x40));
    _mm256_storeu_si256((void *)to, _mm512_cvtepi32_epi16(wide));
}

KERNEL_INLINE void floats_of_uppers(const char *from, char *to)
{
    store_floats(to, load(from, 0, BF16));
}

static void code_estimates(const f16_t *factors, const int32_t *dots, size_t n, const struct code_scales *scales,
                           float *out)
{
    __m512 base = _mm512_set1_ps(scales->base), scale_a = _mm512_set1_ps(scales->a);
    __m512 scale_f = _mm512_set1_ps(scales->f), middle = _mm512_set1_ps(scales->middle);
    for (size_t i = 0; i < n; i += 16) {
        __mmask16 mask = n - i < 16 ? first16(n - i) : (__mmask16)0xffff;
        __m512i pairs = _mm512_maskz_loadu_epi32(mask, factors + 2 * i);
        __m512 a = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(pairs));
        __m512 f = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(pairs, 16)));
        __m512 dot = _mm512_sub_ps(_mm512_cvtepi32_ps(_mm512_maskz_loadu_epi32(mask, dots + i)), middle);
        __m512 near = _mm512_fmadd_ps(scale_a, a, base);
        _mm512_mask_storeu_ps(out + i, mask, _mm512_fnmadd_ps(_mm512_mul_ps(scale_f, f), dot, near));
    }
}

/* ---- Walsh-Hadamard transform ------------------------------------------------------------------------------------ */

/* The four stages inside a register: each lane becomes partner + self, or partner - self in the upper of a pair. */
KERNEL_INLINE __m512 mix_lanes(__m512 x)
{
    const __m512 sign1 = _mm512_setr_ps(1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1);
    const __m512 sign2 = _mm512_setr_ps(1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1);
    const __m512 sign4 = _mm512_setr_ps(1, 1, 1, 1, -1, -1, -1, -1, 1, 1, 1, 1, -1, -1, -1, -1);
    const __m512 sign8 = _mm512_setr_ps(1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1, -1);
    x = _mm512_fmadd_ps(x, sign1, _mm512_permute_ps(x, 0xb1));
    x = _mm512_fmadd_ps(x, sign2, _mm512_permute_ps(x, 0x4e));
    x = _mm512_fmadd_ps(x, sign4, _mm512_shuffle_f32x4(x, x, 0xb1));
    return _mm512_fmadd_ps(x, sign8, _mm512_shuffle_f32x4(x, x, 0x4e));
}

#include "index/kernels/kernels_vector.h"

#include "index/kernels/kernels_entries.h"

KERNELS_TABLE(kernels_avx512, "avx512");
