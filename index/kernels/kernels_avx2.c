/*
 * kernels_avx2.c - the kernels with 256-bit registers, for machines without AVX-512 VNNI.
 *
 * Bytes. vpmaddubsw adds two products of u8 and i8 into 16 bits and saturates: 255 * 127 * 2 does not fit. So bytes are
 * widened to 16 bits and go through vpmaddwd, which is exact; differences are taken as bytes first, |a - b| <= 255.
 *
 * Codes of 1, 2 and 4 bits are at most 15, and there vpmaddubsw is exact: all planes of a code byte together make at
 * most 15 * 128 * 4 = 7,680 in a lane of 16 bits. Once per batch the query is split into planes, so that plane j of a
 * block of 32 code bytes holds the elements that bits j * bits .. of those bytes meet; a code is then shifted and
 * masked plane by plane. Four rows share each load of the query, and one transposing reduction turns four sums into
 * four results. 8-bit codes are widened like bytes, the query once for four rows.
 *
 * Groups of 32 codes lie so that 32 bytes, shifted and masked, are 8 vectors times 4 dimensions, which meet the query's
 * 4 bytes broadcast. 32 dimensions are 8 products of pairs in a lane of 16 bits, 15 * 128 * 2 * 8 = 30,720 at most;
 * then vpmaddwd with ones makes each vector a lane of 32 bits. No sum across lanes is left.
 *
 * Tails. Floats and codes (whose bytes come in fours) are loaded with a mask that touches no memory beyond the end;
 * halves and bytes are copied into a zeroed buffer, once per pair of vectors.
 *
 * Hadamard. Up to 64 floats are transformed in 8 registers; longer inputs do 64 at a time and then go through memory
 * two stages per pass.
 *
 * Rejected: a scalar loop for tails (up to 31 steps, more than the vector part of most dimensions); AVX-VNNI, which
 * only machines have that lost AVX-512, and which would be one more tier to test.
 */
#include "index/kernels/kernels_batch.h"
#include <immintrin.h>
#include <string.h>

typedef __m256 floats;

#define LANES           8
#define CONVERTED       8 /* elements at a time */
#define BLOCK_REGISTERS 8

/* All ones in the first n lanes of 32 bits, n <= 8. */
KERNEL_INLINE __m256i first8(size_t n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

KERNEL_INLINE __m128i first4(size_t n)
{
    return _mm256_castsi256_si128(first8(n));
}

KERNEL_INLINE __m128i load_128(const void *at)
{
    return _mm_loadu_si128(at);
}

KERNEL_INLINE __m256i load_256(const void *at)
{
    return _mm256_loadu_si256(at);
}

/* The first `bytes` < 32 bytes at `at`, then zeros. */
KERNEL_INLINE __m256i load_part(const void *at, size_t bytes)
{
    _Alignas(32) char buffer[32] = {0};
    memcpy(buffer, at, bytes);
    return _mm256_load_si256((const void *)buffer);
}

/* ---- float queries against stored floats, halves and bytes ------------------------------------------------------- */

KERNEL_INLINE floats load_floats(const char *at)
{
    return _mm256_loadu_ps((const void *)at);
}

KERNEL_INLINE floats load_first(const char *at, size_t n)
{
    return _mm256_maskload_ps((const void *)at, first8(n));
}

KERNEL_INLINE void store_floats(char *at, floats x)
{
    _mm256_storeu_ps((void *)at, x);
}

KERNEL_INLINE floats splat_floats(float x)
{
    return _mm256_set1_ps(x);
}

/* Eight elements from the low end of 16 bytes; not for F32. */
KERNEL_INLINE __m256 widen(__m128i packed, enum element element)
{
    switch (element) {
    case F16:
        return _mm256_cvtph_ps(packed);
    case BF16:
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(packed), 16));
    case U8:
        return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(packed));
    default:
        return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(packed));
    }
}

KERNEL_INLINE __m256 load(const void *row, size_t i, enum element element)
{
    const char *at = element_at(row, i, element);
    if (element == F32)
        return load_floats(at);
    return widen(element_bytes(element) == 2 ? load_128(at) : _mm_loadl_epi64((const void *)at), element);
}

KERNEL_INLINE __m256 load_last(const void *row, size_t i, size_t n, enum element element)
{
    const char *at = element_at(row, i, element);
    if (element == F32)
        return load_first(at, n);
    return widen(_mm256_castsi256_si128(load_part(at, n * element_bytes(element))), element);
}

KERNEL_INLINE __m256 add_term(__m256 sum, __m256 a, __m256 b, bool l2)
{
    if (!l2)
        return _mm256_fmadd_ps(a, b, sum);
    __m256 difference = _mm256_sub_ps(a, b);
    return _mm256_fmadd_ps(difference, difference, sum);
}

KERNEL_INLINE float reduce_floats(__m256 sum)
{
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(sum), _mm256_extractf128_ps(sum, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

KERNEL_INLINE float sum_floats(const float *a, const void *b, size_t dim, enum element element, bool l2)
{
    __m256 s0 = _mm256_setzero_ps(), s1 = s0, s2 = s0, s3 = s0;
    size_t i = 0;
    for (; i + 32 <= dim; i += 32) {
        s0 = add_term(s0, load(a, i, F32), load(b, i, element), l2);
        s1 = add_term(s1, load(a, i + 8, F32), load(b, i + 8, element), l2);
        s2 = add_term(s2, load(a, i + 16, F32), load(b, i + 16, element), l2);
        s3 = add_term(s3, load(a, i + 24, F32), load(b, i + 24, element), l2);
    }
    for (; i + 8 <= dim; i += 8)
        s0 = add_term(s0, load(a, i, F32), load(b, i, element), l2);
    if (i < dim)
        s1 = add_term(s1, load_last(a, i, dim - i, F32), load_last(b, i, dim - i, element), l2);
    return reduce_floats(_mm256_add_ps(_mm256_add_ps(s0, s1), _mm256_add_ps(s2, s3)));
}

/* ---- bytes against bytes ----------------------------------------------------------------------------------------- */

/* The terms of 32 elements, four to a lane of 32 bits. */
KERNEL_INLINE __m256i byte_terms(__m256i a, __m256i b, enum bytes_sum what)
{
    const __m256i zero = _mm256_setzero_si256();
    __m256i low_a, low_b, high_a, high_b;
    if (what == I8_DOT) {
        low_a = _mm256_cvtepi8_epi16(_mm256_castsi256_si128(a));
        low_b = _mm256_cvtepi8_epi16(_mm256_castsi256_si128(b));
        high_a = _mm256_cvtepi8_epi16(_mm256_extracti128_si256(a, 1));
        high_b = _mm256_cvtepi8_epi16(_mm256_extracti128_si256(b, 1));
    } else {
        if (what == U8_L2)
            a = b = _mm256_sub_epi8(_mm256_max_epu8(a, b), _mm256_min_epu8(a, b));
        else if (what == I8_L2)
            a = b = _mm256_sub_epi8(_mm256_max_epi8(a, b), _mm256_min_epi8(a, b));
        low_a = _mm256_unpacklo_epi8(a, zero);
        low_b = _mm256_unpacklo_epi8(b, zero);
        high_a = _mm256_unpackhi_epi8(a, zero);
        high_b = _mm256_unpackhi_epi8(b, zero);
    }
    return _mm256_add_epi32(_mm256_madd_epi16(low_a, low_b), _mm256_madd_epi16(high_a, high_b));
}

KERNEL_INLINE int32_t reduce_integers(__m256i sum)
{
    __m128i four = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
    __m128i two = _mm_add_epi32(four, _mm_unpackhi_epi64(four, four));
    return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 1)));
}

KERNEL_INLINE int32_t sum_bytes(const void *a_row, const void *b_row, size_t dim, enum bytes_sum what)
{
    const char *a = a_row, *b = b_row;
    __m256i s0 = _mm256_setzero_si256(), s1 = s0;
    size_t i = 0;
    for (; i + 64 <= dim; i += 64) {
        s0 = _mm256_add_epi32(s0, byte_terms(load_256(a + i), load_256(b + i), what));
        s1 = _mm256_add_epi32(s1, byte_terms(load_256(a + i + 32), load_256(b + i + 32), what));
    }
    if (i + 32 <= dim) {
        s0 = _mm256_add_epi32(s0, byte_terms(load_256(a + i), load_256(b + i), what));
        i += 32;
    }
    if (i < dim)
        s1 = _mm256_add_epi32(s1, byte_terms(load_part(a + i, dim - i), load_part(b + i, dim - i), what));
    return reduce_integers(_mm256_add_epi32(s0, s1));
}

/* ---- sums of four registers at once ------------------------------------------------------------------------------ */

/* Lane r of the result is the sum of s[r]. */
KERNEL_INLINE __m128i reduce_four(const __m256i s[4])
{
    __m256i all = _mm256_hadd_epi32(_mm256_hadd_epi32(s[0], s[1]), _mm256_hadd_epi32(s[2], s[3]));
    return _mm_add_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
}

KERNEL_INLINE void store_four(float *out, size_t n, const floats s[4])
{
    __m256 all = _mm256_hadd_ps(_mm256_hadd_ps(s[0], s[1]), _mm256_hadd_ps(s[2], s[3]));
    _mm_maskstore_ps(out, first4(n), _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1)));
}

/* ---- codes ------------------------------------------------------------------------------------------------------- */

/* Adds 32 bytes of one row, query widened to q0 and q1. */
KERNEL_INLINE __m256i add_8(__m256i sum, const uint8_t *code, __m256i q0, __m256i q1)
{
    __m256i low = _mm256_cvtepu8_epi16(load_128(code)), high = _mm256_cvtepu8_epi16(load_128(code + 16));
    return _mm256_add_epi32(sum, _mm256_add_epi32(_mm256_madd_epi16(low, q0), _mm256_madd_epi16(high, q1)));
}

KERNEL_INLINE __m128i sum_rows_8(const int8_t *query, const uint8_t *const row[4], size_t bytes)
{
    __m256i s[4] = {0};
    for (size_t i = 0; i < bytes; i += 32) {
        __m256i q0 = _mm256_cvtepi8_epi16(load_128(query + i)), q1 = _mm256_cvtepi8_epi16(load_128(query + i + 16));
        for (size_t r = 0; r < 4; r++)
            s[r] = add_8(s[r], row[r] + i, q0, q1);
    }
    return reduce_four(s);
}

/* Adds what the lowest `bits` bits of each byte of *code make with plane q, and shifts the next ones down. */
KERNEL_INLINE __m256i add_plane(__m256i sum, __m256i *code, __m256i q, int bits)
{
    __m256i levels = _mm256_and_si256(*code, _mm256_set1_epi8((char)((1 << bits) - 1)));
    *code = _mm256_srli_epi16(*code, bits);
    return _mm256_add_epi16(sum, _mm256_maddubs_epi16(levels, q));
}

/* Adds a block of up to 32 bytes of four rows to sums[4]. */
KERNEL_INLINE void add_block(__m256i sums[4], const int8_t *planes, __m256i code[4], int bits)
{
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i s[4] = {0};
    for (int plane = 0; plane < 8 / bits; plane++) {
        __m256i q = _mm256_load_si256((const void *)(planes + 32 * plane));
        for (size_t r = 0; r < 4; r++)
            s[r] = add_plane(s[r], &code[r], q, bits);
    }
    for (size_t r = 0; r < 4; r++)
        sums[r] = _mm256_add_epi32(sums[r], _mm256_madd_epi16(s[r], ones));
}

/* 1, 2 and 4 bits; `query` in planes. `bytes` is a multiple of 4, since dim is one of 32. */
KERNEL_INLINE __m128i sum_rows_planes(const int8_t *query, const uint8_t *const row[4], size_t bytes, int bits)
{
    __m256i sums[4] = {0}, code[4];
    size_t i = 0;
    for (; i + 32 <= bytes; i += 32, query += 256 / bits) {
        for (size_t r = 0; r < 4; r++)
            code[r] = load_256(row[r] + i);
        add_block(sums, query, code, bits);
    }
    if (i < bytes) {
        __m256i mask = first8((bytes - i) / 4);
        for (size_t r = 0; r < 4; r++)
            code[r] = _mm256_maskload_epi32((const void *)(row[r] + i), mask);
        add_block(sums, query, code, bits);
    }
    return reduce_four(sums);
}

/* out[i] = sum of row i, or += with `add`. */
KERNEL_INLINE void sum_batch(const int8_t *query, const struct batch *batch, unsigned bits, bool add, int32_t *out)
{
    batch_start(batch);
    for (size_t i = 0; i < batch->n; i += 4) {
        const uint8_t *row[4];
        __m128i mask = first4(batch_rows(batch, i, row));
        __m128i sums =
            bits == 8 ? sum_rows_8(query, row, batch->bytes) : sum_rows_planes(query, row, batch->bytes, (int)bits);
        if (add)
            sums = _mm_add_epi32(sums, _mm_maskload_epi32((const void *)(out + i), mask));
        _mm_maskstore_epi32((void *)(out + i), mask, sums);
    }
}

/* The even and the odd ones of 64 bytes. */
KERNEL_INLINE void split_pair(__m256i a, __m256i b, __m256i *even, __m256i *odd)
{
    __m256i evens = _mm256_packs_epi16(_mm256_srai_epi16(_mm256_slli_epi16(a, 8), 8),
                                       _mm256_srai_epi16(_mm256_slli_epi16(b, 8), 8));
    __m256i odds = _mm256_packs_epi16(_mm256_srai_epi16(a, 8), _mm256_srai_epi16(b, 8));
    *even = _mm256_permute4x64_epi64(evens, 0xd8);
    *odd = _mm256_permute4x64_epi64(odds, 0xd8);
}

/* Splits blocks of 32 * n_planes query elements. Each round takes neighbours apart into evens (lower half of v) and
 * odds (upper half); after log2(n_planes) rounds v[j] holds the elements whose index is j modulo n_planes, in order. */
KERNEL_INLINE void split_planes(const int8_t *q, size_t dim, int8_t *planes, unsigned bits)
{
    const size_t n_planes = 8 / bits;
    for (size_t from = 0; from < dim; from += 32 * n_planes) {
        __m256i v[8], halves[8];
        for (size_t j = 0; j < n_planes; j++)
            v[j] = from + 32 * j < dim ? load_256(q + from + 32 * j) : _mm256_setzero_si256();
        for (size_t span = n_planes / 2; span > 0; span /= 2) {
            for (size_t j = 0; j < n_planes / 2; j++)
                split_pair(v[2 * j], v[2 * j + 1], &halves[j], &halves[j + n_planes / 2]);
            memcpy(v, halves, n_planes * sizeof *v);
        }
        for (size_t j = 0; j < n_planes; j++)
            _mm256_store_si256((void *)(planes + from + 32 * j), v[j]);
    }
}

KERNEL_INLINE bool in_planes(unsigned bits)
{
    return bits != 8;
}

/* ---- groups of codes --------------------------------------------------------------------------------------------- */

/* Four elements of the query in every lane. */
KERNEL_INLINE __m256i load_four(const int8_t *q)
{
    int32_t four;
    memcpy(&four, q, sizeof four);
    return _mm256_set1_epi32(four);
}

/* Adds 32 dimensions of one half of each line: sums[0] are its 8 vectors of the first 16, sums[1] of the others. */
KERNEL_INLINE void add_lines(__m256i sums[2], const uint8_t *lines, const int8_t *q, int bits)
{
    const __m256i mask = _mm256_set1_epi8((char)((1 << bits) - 1)), ones = _mm256_set1_epi16(1);
    __m256i s[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    for (int i = 0; i < 2 * bits; i++) {
        __m256i line = load_256(lines + 64 * i);
        for (int field = 0; field < 8 / bits; field++) {
            __m256i four = load_four(q + 16 / bits * i + field / 2 * 4);
            __m256i levels = _mm256_and_si256(_mm256_srli_epi16(line, field * bits), mask);
            s[field % 2] = _mm256_add_epi16(s[field % 2], _mm256_maddubs_epi16(levels, four));
        }
    }
    sums[0] = _mm256_add_epi32(sums[0], _mm256_madd_epi16(s[0], ones));
    sums[1] = _mm256_add_epi32(sums[1], _mm256_madd_epi16(s[1], ones));
}

KERNEL_INLINE void dot_groups(const int8_t *q, const uint8_t *groups, size_t stride, size_t n_groups, size_t dim,
                              int bits, int32_t *out)
{
    for (size_t g = 0; g < n_groups; g++) {
        const uint8_t *group = groups + g * stride, *next = g + 1 < n_groups ? group + stride : group;
        const __m256i zero = _mm256_setzero_si256();
        __m256i lower[2] = {zero, zero}, upper[2] = {zero, zero};
        for (size_t i = 0; i < dim; i += 32) {
            const size_t at = i / 32 * 128 * (size_t)bits;
            for (int line = 0; line < 2 * bits; line++)
                __builtin_prefetch(next + at + 64 * line);
            add_lines(lower, group + at, q + i, bits);
            add_lines(upper, group + at + 32, q + i, bits);
        }
        __m256i *to = (__m256i *)(void *)(out + 32 * g);
        _mm256_storeu_si256(to, lower[0]);
        _mm256_storeu_si256(to + 1, upper[0]);
        _mm256_storeu_si256(to + 2, lower[1]);
        _mm256_storeu_si256(to + 3, upper[1]);
    }
}

/* ---- conversions ------------------------------------------------------------------------------------------------- */

KERNEL_INLINE void halves_of(const char *from, char *to)
{
    __m128i halves = _mm256_cvtps_ph(load_floats(from), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm_storeu_si128((void *)to, halves);
}

KERNEL_INLINE void floats_of_halves(const char *from, char *to)
{
    store_floats(to, load(from, 0, F16));
}

/* The upper halves of eight floats, rounded to nearest even; NaN stays NaN. */
KERNEL_INLINE void uppers_of(const char *from, char *to)
{
    __m256 x = load_floats(from);
    __m256i bits = _mm256_castps_si256(x), upper = _mm256_srli_epi32(bits, 16);
    __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
    __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    __m256i quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
    __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    __m256i wide = _mm256_blendv_epi8(_mm256_srli_epi32(rounded, 16), quiet, is_nan);
    __m256i packed = _mm256_packus_epi32(wide, wide);
    _mm_storeu_si128((void *)to, _mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x08)));
}

KERNEL_INLINE void floats_of_uppers(const char *from, char *to)
{
    store_floats(to, load(from, 0, BF16));
}

KERNEL_INLINE __m256 eight_estimates(__m256i pairs, __m256i dots, const struct code_scales *scales)
{
    const __m256i low = _mm256_set1_epi32(0xffff);
    /* packing works in halves of a register: eight 16-bit values end in its first and third quarters */
    __m256i a = _mm256_packus_epi32(_mm256_and_si256(pairs, low), _mm256_srli_epi32(pairs, 16));
    a = _mm256_permute4x64_epi64(a, 0xd8);
    __m256 as = _mm256_cvtph_ps(_mm256_castsi256_si128(a)), fs = _mm256_cvtph_ps(_mm256_extracti128_si256(a, 1));
    __m256 dot = _mm256_sub_ps(_mm256_cvtepi32_ps(dots), _mm256_set1_ps(scales->middle));
    __m256 near = _mm256_fmadd_ps(_mm256_set1_ps(scales->a), as, _mm256_set1_ps(scales->base));
    return _mm256_fnmadd_ps(_mm256_mul_ps(_mm256_set1_ps(scales->f), fs), dot, near);
}

static void code_estimates(const f16_t *factors, const int32_t *dots, size_t n, const struct code_scales *scales,
                           float *out)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(out + i, eight_estimates(_mm256_loadu_si256((const void *)(factors + 2 * i)),
                                                  _mm256_loadu_si256((const void *)(dots + i)), scales));
    if (i < n) {
        __m256i mask = first8(n - i);
        _mm256_maskstore_ps(out + i, mask,
                            eight_estimates(_mm256_maskload_epi32((const void *)(factors + 2 * i), mask),
                                            _mm256_maskload_epi32(dots + i, mask), scales));
    }
}

/* ---- Walsh-Hadamard transform ------------------------------------------------------------------------------------ */

/* The three stages inside a register: each lane becomes partner + self, or partner - self in the upper of a pair. */
KERNEL_INLINE __m256 mix_lanes(__m256 x)
{
    const __m256 sign1 = _mm256_setr_ps(1, -1, 1, -1, 1, -1, 1, -1);
    const __m256 sign2 = _mm256_setr_ps(1, 1, -1, -1, 1, 1, -1, -1);
    const __m256 sign4 = _mm256_setr_ps(1, 1, 1, 1, -1, -1, -1, -1);
    x = _mm256_fmadd_ps(x, sign1, _mm256_permute_ps(x, 0xb1));
    x = _mm256_fmadd_ps(x, sign2, _mm256_permute_ps(x, 0x4e));
    return _mm256_fmadd_ps(x, sign4, _mm256_permute2f128_ps(x, x, 1));
}

#include "index/kernels/kernels_vector.h"

#include "index/kernels/kernels_entries.h"

KERNELS_TABLE(kernels_avx2, "avx2");
