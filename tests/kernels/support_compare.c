/*
 * support_compare.c - what a variant of the kernels must compute, and whether it does.
 *
 * Used by test_kernels.c (cmocka) and by plain_main.c, which runs under an emulator of another machine. The expected
 * values are computed here in double and int64, apart from kernels_scalar.c, so that the scalar variant is tested like
 * the others.
 *
 * Every operand ends at a page that may not be touched, or up to three bytes before it, so that reading one element too
 * far faults with or without a sanitizer (masked loads escape AddressSanitizer), and so that pointers are misaligned.
 *
 * Integers must be equal. A float sum may be off by the rounding of its own order of summation: with |terms| the sum of
 * the magnitudes, (dim / 4 + 8) * 2^-24 * |terms| is allowed, four lanes being the fewest that any variant has.
 */
#include "tests/kernels/support_compare.h"
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define REGION_BYTES (4u << 20)
#define N_REGIONS    4

static uint8_t *region_ends[N_REGIONS];

/* `bytes` bytes that end `slack` bytes before a guard page; region r is reused by the next call with the same r. */
static void *place(unsigned r, size_t bytes, size_t slack)
{
    if (bytes + slack > REGION_BYTES) {
        fprintf(stderr, "%zu bytes asked of a region of %u\n", bytes + slack, REGION_BYTES);
        abort();
    }
    if (!region_ends[r]) {
        size_t page = (size_t)sysconf(_SC_PAGESIZE);
        uint8_t *start = mmap(NULL, REGION_BYTES + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (start == MAP_FAILED || mprotect(start + REGION_BYTES, page, PROT_NONE) != 0) {
            perror("guarded memory");
            abort();
        }
        region_ends[r] = start + REGION_BYTES;
    }
    return region_ends[r] - slack - bytes;
}

static uint64_t random_state = 1;

static uint64_t random_u64(void)
{
    random_state += 0x9e3779b97f4a7c15u;
    uint64_t z = random_state;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static float random_float(void)
{
    return (float)((double)(random_u64() >> 11) * 0x1p-52 - 1.0);
}

/* Dimension number i of those that every sum is checked with, 0 at the end. */
static size_t dim_number(size_t i)
{
    static const size_t large[] = {384, 512, 768, 1000, 1024, 1536, 4096, 16384, 65536};
    if (i < 300)
        return i + 1;
    return i < 300 + sizeof large / sizeof *large ? large[i - 300] : 0;
}

/* ---- sums over one pair ------------------------------------------------------------------------------------------ */

enum element { F32, F16, BF16, U8, I8 };

static const size_t element_bytes[] = {[F32] = 4, [F16] = 2, [BF16] = 2, [U8] = 1, [I8] = 1};

static double half_value(f16_t half)
{
    int exponent = half >> 10 & 31;
    double fraction = half & 1023;
    double magnitude = exponent == 31 ? (fraction > 0 ? (double)NAN : (double)INFINITY)
                       : exponent     ? ldexp(1024 + fraction, exponent - 25)
                                      : ldexp(fraction, -24);
    return half & 0x8000 ? -magnitude : magnitude;
}

static double upper_value(bf16_t upper)
{
    int exponent = upper >> 7 & 255;
    double fraction = upper & 127;
    double magnitude = exponent == 255 ? (fraction > 0 ? (double)NAN : (double)INFINITY)
                       : exponent      ? ldexp(128 + fraction, exponent - 134)
                                       : ldexp(fraction, -133);
    return upper & 0x8000 ? -magnitude : magnitude;
}

static double element_at(const void *vector, size_t i, enum element element)
{
    const uint8_t *at = (const uint8_t *)vector + i * element_bytes[element];
    float f;
    f16_t half;
    switch (element) {
    case F32:
        memcpy(&f, at, sizeof f);
        return (double)f;
    case F16:
        memcpy(&half, at, sizeof half);
        return half_value(half);
    case BF16:
        memcpy(&half, at, sizeof half);
        return upper_value(half);
    case U8:
        return *at;
    default:
        return (int8_t)*at;
    }
}

enum pattern { RANDOM, LARGEST, SMALLEST, OPPOSITE, ALTERNATING, N_PATTERNS };

/* Operand `side` (0 or 1) of a pattern. */
static void fill(void *vector, size_t dim, enum element element, enum pattern pattern, unsigned side)
{
    for (size_t i = 0; i < dim; i++) {
        bool high =
            pattern == LARGEST || (pattern == OPPOSITE && side == 0) || (pattern == ALTERNATING && (i + side) % 2);
        uint8_t *at = (uint8_t *)vector + i * element_bytes[element];
        float f = pattern == RANDOM ? random_float() * 8 : high ? 1000.5f : -999.25f;
        f16_t half = (f16_t)(pattern == RANDOM ? (random_u64() & 0x83ff) | (8 + random_u64() % 14) << 10
                             : high            ? 0x7bff
                                               : 0x8001);
        bf16_t upper = (bf16_t)(pattern == RANDOM ? (random_u64() & 0x807f) | (120 + random_u64() % 14) << 7
                                : high            ? 0x44fa
                                                  : 0x8001);
        uint8_t byte = (uint8_t)(pattern == RANDOM ? random_u64()
                                 : element == U8   ? (high ? 255 : 0)
                                 : high            ? 127
                                                   : 128);
        if (element == F32)
            memcpy(at, &f, sizeof f);
        else if (element == F16)
            memcpy(at, &half, sizeof half);
        else if (element == BF16)
            memcpy(at, &upper, sizeof upper);
        else
            *at = byte;
    }
}

struct pair_kernel {
    const char *name;
    enum element a, b;
    bool l2;
    size_t offset; /* of the function in struct kernels; the element types say which function type it is */
};

static const struct pair_kernel pair_kernels[] = {
    {"f32_l2", F32, F32, true, offsetof(struct kernels, f32_l2)},
    {"f32_dot", F32, F32, false, offsetof(struct kernels, f32_dot)},
    {"f16_l2", F32, F16, true, offsetof(struct kernels, f16_l2)},
    {"f16_dot", F32, F16, false, offsetof(struct kernels, f16_dot)},
    {"bf16_l2", F32, BF16, true, offsetof(struct kernels, bf16_l2)},
    {"bf16_dot", F32, BF16, false, offsetof(struct kernels, bf16_dot)},
    {"u8_l2", U8, U8, true, offsetof(struct kernels, u8_l2)},
    {"u8_dot", U8, U8, false, offsetof(struct kernels, u8_dot)},
    {"i8_l2", I8, I8, true, offsetof(struct kernels, i8_l2)},
    {"i8_dot", I8, I8, false, offsetof(struct kernels, i8_dot)},
    {"f32_u8_dot", F32, U8, false, offsetof(struct kernels, f32_u8_dot)},
    {"f32_i8_dot", F32, I8, false, offsetof(struct kernels, f32_i8_dot)},
    {"f32_u8_l2", F32, U8, true, offsetof(struct kernels, f32_u8_l2)},
    {"f32_i8_l2", F32, I8, true, offsetof(struct kernels, f32_i8_l2)},
};

static double call_pair(const struct kernels *k, const struct pair_kernel *p, const void *a, const void *b, size_t dim)
{
    const void *function = (const char *)k + p->offset;
    switch (p->b) {
    case F32:
        return (double)(*(float (*const *)(const float *, const float *, size_t))function)(a, b, dim);
    case F16:
        return (double)(*(float (*const *)(const float *, const f16_t *, size_t))function)(a, b, dim);
    case BF16:
        return (double)(*(float (*const *)(const float *, const bf16_t *, size_t))function)(a, b, dim);
    case U8:
        if (p->a == F32)
            return (double)(*(float (*const *)(const float *, const uint8_t *, size_t))function)(a, b, dim);
        return (*(uint32_t(*const *)(const uint8_t *, const uint8_t *, size_t))function)(a, b, dim);
    default:
        if (p->a == F32)
            return (double)(*(float (*const *)(const float *, const int8_t *, size_t))function)(a, b, dim);
        if (p->l2)
            return (*(uint32_t(*const *)(const int8_t *, const int8_t *, size_t))function)(a, b, dim);
        return (*(int32_t(*const *)(const int8_t *, const int8_t *, size_t))function)(a, b, dim);
    }
}

static double expected_pair(const struct pair_kernel *p, const void *a, const void *b, size_t dim, double *magnitude)
{
    double sum = 0;
    *magnitude = 0;
    for (size_t i = 0; i < dim; i++) {
        double x = element_at(a, i, p->a), y = element_at(b, i, p->b);
        double term = p->l2 ? (x - y) * (x - y) : x * y;
        sum += term;
        *magnitude += fabs(term);
    }
    return sum;
}

static bool check_pair(const struct kernels *k, const struct pair_kernel *p, size_t dim, enum pattern pattern,
                       char *message, size_t size)
{
    size_t slack = random_u64() % 4;
    void *a = place(0, dim * element_bytes[p->a], pattern == RANDOM ? slack : 0);
    void *b = place(1, dim * element_bytes[p->b], pattern == RANDOM ? 3 - slack : 0);
    fill(a, dim, p->a, pattern, 0);
    fill(b, dim, p->b, pattern, 1);
    double magnitude;
    double want = expected_pair(p, a, b, dim, &magnitude);
    double got = call_pair(k, p, a, b, dim);
    double allowed = p->a == F32 ? ((double)dim / 4 + 8) * 0x1p-24 * magnitude : 0;
    if (fabs(got - want) <= allowed)
        return true;
    snprintf(message, size, "%s of %zu dimensions, pattern %d: %.9g instead of %.9g +- %.3g", p->name, dim,
             (int)pattern, got, want, allowed);
    return false;
}

static bool check_pairs(const struct kernels *k, char *message, size_t size)
{
    for (size_t i = 0; i < sizeof pair_kernels / sizeof *pair_kernels; i++)
        for (size_t d = 0; dim_number(d); d++)
            for (unsigned pattern = 0; pattern < N_PATTERNS; pattern++)
                if (!check_pair(k, &pair_kernels[i], dim_number(d), pattern, message, size))
                    return false;
    return true;
}

static bool is_nan(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (bits & 0x7fffffffu) > 0x7f800000u;
}

/* A NaN anywhere must show in the result: callers reject vectors by it. */
static bool check_nan(const struct kernels *k, char *message, size_t size)
{
    const float nan = NAN;
    for (size_t i = 0; i < sizeof pair_kernels / sizeof *pair_kernels; i++) {
        const struct pair_kernel *p = &pair_kernels[i];
        for (size_t dim = 1; p->a == F32 && dim <= 150; dim++)
            for (size_t at = 0; at < dim; at++) {
                float *a = place(0, dim * sizeof *a, 0), many = 0;
                void *b = place(1, dim * element_bytes[p->b], 0);
                fill(a, dim, F32, RANDOM, 0);
                fill(b, dim, p->b, RANDOM, 1);
                a[at] = nan;
                if (p->b == F32)
                    k->f32_l2_many(b, a, 1, dim, &many);
                if (isnan(call_pair(k, p, a, b, dim)) && (p->b != F32 || is_nan(many)))
                    continue;
                snprintf(message, size, "%s: NaN at %zu of %zu dimensions is lost", p->name, at, dim);
                return false;
            }
    }
    return true;
}

static bool check_f32_l2_many(const struct kernels *k, char *message, size_t size)
{
    static const struct pair_kernel l2 = {"f32_l2_many", F32, F32, true, 0};
    for (size_t d = 0; dim_number(d); d += d < 300 ? 7 : 1) {
        size_t dim = dim_number(d);
        for (size_t n = 0; n <= 9; n++) {
            float *q = place(0, dim * sizeof *q, n % 4), *base = place(1, n * dim * sizeof *base, 0);
            float *out = place(2, n * sizeof *out, 0);
            fill(q, dim, F32, RANDOM, 0);
            fill(base, n * dim, F32, RANDOM, 1);
            k->f32_l2_many(q, base, n, dim, out);
            for (size_t i = 0; i < n; i++) {
                double magnitude, want = expected_pair(&l2, q, base + i * dim, dim, &magnitude);
                double got = element_at(out, i, F32);
                if (fabs(got - want) <= ((double)dim / 4 + 8) * 0x1p-24 * magnitude)
                    continue;
                snprintf(message, size, "f32_l2_many, row %zu of %zu, %zu dimensions: %.9g instead of %.9g", i, n, dim,
                         got, want);
                return false;
            }
        }
    }
    return true;
}

/* ---- codes ------------------------------------------------------------------------------------------------------- */

#define TABLE_ROWS 61

static int64_t expected_code(const int8_t *q, const uint8_t *code, size_t dim, unsigned bits)
{
    int64_t sum = 0;
    for (size_t i = 0; i < dim; i++)
        for (unsigned bit = 0; bit < bits; bit++)
            if (code[(i * bits + bit) / 8] >> (i * bits + bit) % 8 & 1)
                sum += q[i] * (INT64_C(1) << bit);
    return sum;
}

static void fill_codes(int8_t *q, size_t dim, uint8_t *codes, size_t codes_bytes, enum pattern pattern)
{
    fill(q, dim, I8, pattern, 0);
    if (pattern == RANDOM)
        fill(codes, codes_bytes, U8, RANDOM, 1);
    else
        memset(codes, pattern == ALTERNATING ? 0xa5 : 0xff, codes_bytes);
}

static bool check_batch(const struct kernels *k, unsigned bits, size_t dim, size_t n, enum pattern pattern,
                        char *message, size_t size)
{
    size_t bytes = dim / 8 * bits, pad = random_u64() % 3 * 7, stride = bytes + pad;
    size_t codes_bytes = (TABLE_ROWS - 1) * stride + bytes; /* the last row ends at the guard page */
    uint8_t *codes = place(0, codes_bytes, 0);
    int8_t *q = place(1, dim, n % 4);
    uint32_t *rows = place(2, n * sizeof *rows, 0);
    int32_t *out = place(3, n * sizeof *out, 0);
    fill_codes(q, dim, codes, codes_bytes, pattern);
    for (size_t i = 0; i < n; i++)
        rows[i] = random_u64() % 4 ? (uint32_t)(random_u64() % TABLE_ROWS) : TABLE_ROWS - 1;
    k->code_dot[kernels_code_index(bits)](q, codes, stride, rows, n, dim, out);
    for (size_t i = 0; i < n; i++) {
        int64_t want = expected_code(q, codes + rows[i] * stride, dim, bits);
        int32_t got;
        memcpy(&got, out + i, sizeof got);
        if (got == want)
            continue;
        snprintf(message, size, "%u bits, %zu dimensions, result %zu of %zu, pattern %d: %" PRId32 " not %" PRId64,
                 bits, dim, i, n, (int)pattern, got, want);
        return false;
    }
    return true;
}

/* 32,768 dimensions are twice what the variants keep on their stacks; the sums still fit. */
static bool check_codes(const struct kernels *k, char *message, size_t size)
{
    static const size_t large[] = {1056, 1536, 4096, 16384, 16416, 32768, 65536, 65568};
    for (unsigned bits = 1; bits <= 8; bits *= 2) {
        for (size_t n = 0; n <= 70; n++)
            for (size_t dim = n % 2 ? 32 : 64; dim <= 320; dim += 64)
                if (!check_batch(k, bits, dim, n, RANDOM, message, size))
                    return false;
        for (size_t dim = 32; dim <= 1024; dim += 32)
            for (unsigned pattern = 0; pattern < N_PATTERNS; pattern++)
                if (!check_batch(k, bits, dim, 5, pattern, message, size))
                    return false;
        for (size_t i = 0; i < sizeof large / sizeof *large; i++)
            for (unsigned pattern = 0; pattern < N_PATTERNS; pattern++)
                if (!check_batch(k, bits, large[i], 6, pattern, message, size))
                    return false;
    }
    return true;
}

/* The level of dimension i of a code of a group, by the layout's three cases written out. */
static unsigned expected_level(const uint8_t *group, size_t slot, size_t i, unsigned bits)
{
    size_t h = slot / 16, v = slot % 16, d = i % 4;
    switch (bits) {
    case 4: /* low nibble: vector v, high nibble: vector 16 + v */
        return h ? group[64 * (i / 4) + 4 * v + d] / 16u : group[64 * (i / 4) + 4 * v + d] % 16u;
    case 2: /* bits 0-1: v, 2-3: 16 + v, 4-5: v four dimensions further, 6-7: 16 + v there */
        return (unsigned)group[64 * (i / 8) + 4 * v + d] >> (i % 8 < 4 ? (h ? 2 : 0) : (h ? 6 : 4)) & 3u;
    default: /* bit 2 s + h */
        return (unsigned)group[64 * (i / 16) + 4 * v + d] >> (2 * (i % 16 / 4) + h) & 1u;
    }
}

static bool check_groups_of(const struct kernels *k, unsigned bits, size_t dim, size_t n, enum pattern pattern,
                            char *message, size_t size)
{
    size_t bytes = dim / 8 * bits * 32, slack = random_u64() % 4, stride = bytes + random_u64() % 3 * 20;
    size_t groups_bytes = n ? (n - 1) * stride + bytes : 0; /* the last group ends near the guard page */
    uint8_t *groups = place(0, groups_bytes, slack);
    int8_t *q = place(1, dim, n % 4);
    int32_t *out = place(3, 32 * n * sizeof *out, 0);
    fill_codes(q, dim, groups, groups_bytes, pattern);
    k->group_dot[kernels_code_index(bits)](q, groups, stride, n, dim, out);
    for (size_t result = 0; result < 32 * n; result++) {
        int64_t want = 0;
        for (size_t i = 0; i < dim; i++)
            want += q[i] * (int64_t)expected_level(groups + result / 32 * stride, result % 32, i, bits);
        if (out[result] == want)
            continue;
        snprintf(message, size, "%u bits, %zu dimensions, code %zu of %zu groups, pattern %d: %" PRId32 " not %" PRId64,
                 bits, dim, result, n, (int)pattern, out[result], want);
        return false;
    }
    return true;
}

static bool check_groups(const struct kernels *k, char *message, size_t size)
{
    static const size_t large[] = {1056, 1536, 4096, 16384, 65568};
    for (unsigned bits = 1; bits <= 4; bits *= 2) {
        for (size_t n = 0; n <= 9; n++)
            for (size_t dim = 32; dim <= 320; dim += 96)
                if (!check_groups_of(k, bits, dim, n, RANDOM, message, size))
                    return false;
        for (size_t dim = 32; dim <= 1024; dim += 32)
            for (unsigned pattern = 0; pattern < N_PATTERNS; pattern++)
                if (!check_groups_of(k, bits, dim, 2, pattern, message, size))
                    return false;
        for (size_t i = 0; i < sizeof large / sizeof *large; i++)
            for (unsigned pattern = 0; pattern < N_PATTERNS; pattern++)
                if (!check_groups_of(k, bits, large[i], 2, pattern, message, size))
                    return false;
    }
    return true;
}

/* ---- conversions ------------------------------------------------------------------------------------------------- */

static uint32_t float_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static uint32_t expected_float(f16_t half)
{
    if ((half & 0x7fff) > 0x7c00) /* quiet, payload kept */
        return (half & 0x8000u) << 16 | 0x7fc00000u | (half & 0x3ffu) << 13;
    return float_bits((float)half_value(half));
}

/* Operand number i of an array of halves that need not be aligned. */
static f16_t half_at(const void *halves, size_t i)
{
    f16_t half;
    memcpy(&half, (const uint8_t *)halves + i * sizeof half, sizeof half);
    return half;
}

/* All halves in one call, then every length up to 70 at every alignment. */
static bool check_f32_from_f16(const struct kernels *k, char *message, size_t size)
{
    for (size_t n = 0; n <= 65536; n = n < 70 ? n + 1 : n == 70 ? 65536 : 65537)
        for (size_t slack = 0; slack < 4; slack++) {
            uint8_t *in = place(0, n * sizeof(f16_t), slack), *out = place(1, n * sizeof(float), 3 - slack);
            for (size_t i = 0; i < n; i++) {
                f16_t half = (f16_t)(i + (n < 65536 ? n * 907 : 0));
                memcpy(in + i * sizeof half, &half, sizeof half);
            }
            k->f32_from_f16((const void *)in, (void *)out, n);
            for (size_t i = 0; i < n; i++) {
                uint32_t got, want = expected_float(half_at(in, i));
                memcpy(&got, out + i * sizeof got, sizeof got);
                if (got == want)
                    continue;
                snprintf(message, size, "half %04x of %zu: %08" PRIx32 " not %08" PRIx32, half_at(in, i), n, got, want);
                return false;
            }
        }
    return true;
}

static f16_t expected_half(float x)
{
    uint32_t bits = float_bits(x);
    unsigned sign = bits >> 16 & 0x8000u;
    if (is_nan(x))
        return (f16_t)(sign | 0x7e00u | (bits >> 13 & 0x3ffu));
    double magnitude = fabs((double)x);
    if (magnitude >= 65520)
        return (f16_t)(sign | 0x7c00u);
    int exponent;
    frexp(magnitude, &exponent); /* magnitude in [2^(exponent-1), 2^exponent) */
    if (magnitude < 0x1p-14)
        return (f16_t)(sign | (unsigned)nearbyint(ldexp(magnitude, 24)));
    unsigned significand = (unsigned)nearbyint(ldexp(magnitude, 11 - exponent)); /* 1024 .. 2048 */
    return (f16_t)(sign | (((unsigned)(exponent + 13) << 10) + significand));
}

/* A conversion of floats to 16 bits, and what it must give. */
struct narrowing {
    const char *what;
    void (*convert)(const float *in, uint16_t *out, size_t n);
    uint16_t (*expected)(float x);
};

static bool check_narrowed(const struct narrowing *to, const void *in, size_t n, size_t slack, char *message,
                           size_t size)
{
    void *out = place(3, n * sizeof(uint16_t), slack);
    to->convert(in, out, n);
    for (size_t i = 0; i < n; i++) {
        float x;
        memcpy(&x, (const uint8_t *)in + i * sizeof x, sizeof x);
        if (half_at(out, i) == to->expected(x))
            continue;
        snprintf(message, size, "float %08" PRIx32 " (%.9g), number %zu of %zu: %s %04x not %04x", float_bits(x),
                 (double)x, i, n, to->what, half_at(out, i), to->expected(x));
        return false;
    }
    return true;
}

/* Random bits of every length, anywhere. */
static bool check_narrowed_random(const struct narrowing *to, char *message, size_t size)
{
    for (size_t n = 0; n <= 2000; n++) {
        size_t count = n < 100 ? n : 100 + n % 7;
        uint8_t *bytes = place(0, count * sizeof(float), n / 7 % 4);
        for (size_t i = 0; i < count * sizeof(float); i++)
            bytes[i] = (uint8_t)random_u64();
        if (!check_narrowed(to, bytes, count, n % 4, message, size))
            return false;
    }
    return true;
}

/* Every half, the middle between it and the next (a tie), and the floats beside that; then random bits. */
static bool check_f16_from_f32(const struct kernels *k, char *message, size_t size)
{
    float *in = place(0, 65536 * 4 * sizeof *in, 0);
    for (size_t i = 0; i < 65536; i++) {
        float value = (float)half_value((f16_t)i);
        double next = (i & 0x7fff) == 0x7bff ? (i & 0x8000 ? -65536.0 : 65536.0) : half_value((f16_t)(i + 1));
        float middle = (float)(((double)value + next) / 2);
        in[4 * i] = value;
        in[4 * i + 1] = middle;
        in[4 * i + 2] = nextafterf(middle, INFINITY);
        in[4 * i + 3] = nextafterf(middle, -INFINITY);
    }
    const struct narrowing to = {"half", k->f16_from_f32, expected_half};
    return check_narrowed(&to, in, (size_t)65536 * 4, 0, message, size) && check_narrowed_random(&to, message, size);
}

/* All uppers in one call, then every length up to 70 at every alignment: a shift, so every bit of a NaN too. */
static bool check_f32_from_bf16(const struct kernels *k, char *message, size_t size)
{
    for (size_t n = 0; n <= 65536; n = n < 70 ? n + 1 : n == 70 ? 65536 : 65537)
        for (size_t slack = 0; slack < 4; slack++) {
            uint8_t *in = place(0, n * sizeof(bf16_t), slack), *out = place(1, n * sizeof(float), 3 - slack);
            for (size_t i = 0; i < n; i++) {
                bf16_t upper = (bf16_t)(i + (n < 65536 ? n * 907 : 0));
                memcpy(in + i * sizeof upper, &upper, sizeof upper);
            }
            k->f32_from_bf16((const void *)in, (void *)out, n);
            for (size_t i = 0; i < n; i++) {
                uint32_t got;
                bf16_t upper = half_at(in, i);
                memcpy(&got, out + i * sizeof got, sizeof got);
                double value = element_at(out, i, F32), want = upper_value(upper);
                if (got == (uint32_t)upper << 16 && (isnan(want) ? isnan(value) : value - want == 0 || value == want))
                    continue;
                snprintf(message, size, "bf16 %04x of %zu: %08" PRIx32, upper, n, got);
                return false;
            }
        }
    return true;
}

/* By value, not by bits: the nearer of the two neighbours, the even one where both are as near. */
static bf16_t expected_upper(float x)
{
    bf16_t below = (bf16_t)(float_bits(x) >> 16); /* towards zero */
    if (is_nan(x))
        return below | 0x40;
    if (isinf(x))
        return below;
    bf16_t above = (bf16_t)(below + 1);
    double largest = 0x1p128; /* what infinity counts as when rounding */
    double low = fabs(upper_value(below)), high = (above & 0x7fff) == 0x7f80 ? largest : fabs(upper_value(above));
    double down = fabs((double)x) - low, up = high - fabs((double)x);
    return down < up || (down <= up && !(below & 1)) ? below : above;
}

/* Every upper half with the lower halves around zero, the tie and the end; then random bits of every length. */
static bool check_bf16_from_f32(const struct kernels *k, char *message, size_t size)
{
    static const uint32_t lower[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
    const size_t n_lower = sizeof lower / sizeof *lower;
    uint32_t *in = place(0, 65536 * n_lower * sizeof *in, 0);
    for (size_t i = 0; i < 65536 * n_lower; i++)
        in[i] = (uint32_t)(i / n_lower) << 16 | lower[i % n_lower];
    const struct narrowing to = {"bf16", k->bf16_from_f32, expected_upper};
    return check_narrowed(&to, in, 65536 * n_lower, 0, message, size) && check_narrowed_random(&to, message, size);
}

/* ---- estimates from products and factors ------------------------------------------------------------------------- */

static bool check_code_estimates(const struct kernels *k, char *message, size_t size)
{
    for (size_t n = 0; n <= 100; n++) {
        f16_t *factors = place(0, 2 * n * sizeof *factors, n % 3 * sizeof(f16_t));
        int32_t *dots = place(1, n * sizeof *dots, 0);
        float *out = place(2, n * sizeof *out, 0);
        struct code_scales scales = {3.5f, 0.25f, 0.001f, 17.5f};
        for (size_t i = 0; i < n; i++) {
            dots[i] = (int32_t)(random_u64() % 200001) - 100000;
            for (size_t j = 0; j < 2; j++) {
                f16_t half = expected_half((float)(random_u64() % 1000) / 500 - 1);
                memcpy(&factors[2 * i + j], &half, sizeof half);
            }
        }
        k->code_estimates(factors, dots, n, &scales, out);
        for (size_t i = 0; i < n; i++) {
            double near = 3.5 + 0.25 * half_value(half_at(factors, 2 * i));
            double part = 0.001f * half_value(half_at(factors, 2 * i + 1)) * ((double)dots[i] - 17.5);
            double got = element_at(out, i, F32);
            if (fabs(got - (near - part)) <= 1e-5 * (4 + fabs(part)))
                continue;
            snprintf(message, size, "estimate %zu of %zu: %.9g not %.9g", i, n, got, near - part);
            return false;
        }
    }
    return true;
}

/* ---- Walsh-Hadamard transform ------------------------------------------------------------------------------------ */

/* By the definition: y[i] = sum over j of (-1)^(number of ones in i & j) x[j], over sqrt(n). */
static double hadamard_at(const double *x, size_t n, size_t i)
{
    double sum = 0;
    for (size_t j = 0; j < n; j++)
        sum += __builtin_parityll(i & j) ? -x[j] : x[j];
    return sum / sqrt((double)n);
}

static bool check_hadamard(const struct kernels *k, char *message, size_t size)
{
    static double original[16384];
    for (size_t n = 1; n <= 16384; n *= 2)
        for (size_t slack = 0; slack < 4; slack++) {
            float *x = place(0, n * sizeof *x, slack);
            fill(x, n, F32, RANDOM, 0);
            double length2 = 0;
            for (size_t i = 0; i < n; i++) {
                original[i] = element_at(x, i, F32);
                length2 += original[i] * original[i];
            }
            double allowed = 16 * 0x1p-24 * sqrt(length2);
            k->hadamard(x, n);
            for (size_t i = 0; i < n; i += n <= 512 ? 1 : n / 64 - 1) {
                double got = element_at(x, i, F32), want = hadamard_at(original, n, i);
                if (fabs(got - want) > allowed) {
                    snprintf(message, size, "element %zu of %zu: %.9g not %.9g", i, n, got, want);
                    return false;
                }
            }
            k->hadamard(x, n);
            for (size_t i = 0; i < n; i++)
                if (fabs(element_at(x, i, F32) - original[i]) > allowed) {
                    snprintf(message, size, "twice is not the identity at element %zu of %zu", i, n);
                    return false;
                }
        }
    return true;
}

/* ---- the table, and the choice ----------------------------------------------------------------------------------- */

/* A table without a hole: a call through NULL would be found by the first user of it only. */
static bool check_table(const struct kernels *k, char *message, size_t size)
{
    static const unsigned char nothing[sizeof(void (*)(void))];
    for (size_t at = 0; at < sizeof *k; at += sizeof nothing)
        if (memcmp((const unsigned char *)k + at, nothing, sizeof nothing) == 0) {
            snprintf(message, size, "member %zu of the table is NULL", at / sizeof nothing);
            return false;
        }
    return true;
}

static void *first_call(void *unused)
{
    (void)unused;
    return (void *)(uintptr_t)kernels();
}

int compare_report(void)
{
    pthread_t threads[4];
    for (size_t i = 0; i < 4; i++)
        if (pthread_create(&threads[i], NULL, first_call, NULL) != 0)
            return 2;
    for (size_t i = 0; i < 4; i++) {
        void *table;
        if (pthread_join(threads[i], &table) != 0 || table != (void *)(uintptr_t)kernels())
            return 3;
    }
    printf("%s\n%s\n", kernels()->name, kernels_reason());
    return 0;
}

const struct compare_check compare_checks[] = {
    {"the table", check_table},
    {"sums of pairs", check_pairs},
    {"NaN shows", check_nan},
    {"f32_l2_many", check_f32_l2_many},
    {"code_dot", check_codes},
    {"group_dot", check_groups},
    {"f32_from_f16", check_f32_from_f16},
    {"f16_from_f32", check_f16_from_f32},
    {"f32_from_bf16", check_f32_from_bf16},
    {"bf16_from_f32", check_bf16_from_f32},
    {"code_estimates", check_code_estimates},
    {"hadamard", check_hadamard},
};
const size_t n_compare_checks = sizeof compare_checks / sizeof *compare_checks;
