/*
 * test_codes.c - the rotation keeps the geometry, and codes estimate it without bias.
 *
 * Bounds are loose multiples of what theory says, so that they fail for a wrong formula and not for another seed: the
 * error of an estimate of <r, z> falls as 1/sqrt(dim) with one bit and about fourfold with each two bits more.
 */
#include "index/kernels/kernels.h"
#include "index/vector/codes.h"
#include "index/vector/rotation.h"
#include "index/vector/rows.h"
#include "tests/index/support_index.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const unsigned widths[] = {1, 2, 4, 8};

static float *gauss_vector(uint32_t n, uint64_t *state)
{
    float *x = malloc(sizeof(float) * n);
    assert_non_null(x);
    for (uint32_t i = 0; i < n; i++)
        x[i] = support_gauss(state);
    return x;
}

static double dot_of(const float *a, const float *b, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += (double)a[i] * b[i];
    return sum;
}

static void check_rotation(uint32_t dim, uint64_t seed)
{
    struct rotation rotation;
    uint64_t state = seed + dim;
    assert_int_equal(rotation_init(&rotation, dim, seed), 0);
    float *a = gauss_vector(dim, &state), *b = gauss_vector(dim, &state), *before = malloc(sizeof(float) * dim);
    assert_non_null(before);
    memcpy(before, a, sizeof(float) * dim);
    double aa = dot_of(a, a, dim), bb = dot_of(b, b, dim), ab = dot_of(a, b, dim);
    rotation_apply(&rotation, a);
    rotation_apply(&rotation, b);
    assert_true(fabs(dot_of(a, a, dim) - aa) < 1e-4 * aa);
    assert_true(fabs(dot_of(b, b, dim) - bb) < 1e-4 * bb);
    assert_true(fabs(dot_of(a, b, dim) - ab) < 1e-4 * sqrt(aa * bb));
    rotation_invert(&rotation, a);
    for (uint32_t i = 0; i < dim; i++)
        assert_true(fabsf(a[i] - before[i]) < 1e-4f * (1 + fabsf(before[i])));
    rotation_fini(&rotation);
    free(a);
    free(b);
    free(before);
}

static void test_rotation_keeps_geometry(void **state)
{
    static const uint32_t dims[] = {32, 64, 96, 128, 160, 992, 1024, 3072, 16384, 16416, 65568};
    (void)state;
    for (size_t i = 0; i < SUPPORT_COUNT(dims); i++)
        for (uint64_t seed = 0; seed < 3; seed++)
            check_rotation(dims[i], seed);
}

/* One coordinate must end up everywhere: no coordinate of the result keeps most of the length. */
static void test_rotation_mixes(void **state)
{
    static const uint32_t dims[] = {64, 96, 160, 992};
    (void)state;
    for (size_t i = 0; i < SUPPORT_COUNT(dims); i++) {
        uint32_t dim = dims[i];
        struct rotation rotation;
        float *x = malloc(sizeof(float) * dim);
        assert_non_null(x);
        assert_int_equal(rotation_init(&rotation, dim, 5), 0);
        for (uint32_t one = 0; one < dim; one++) {
            memset(x, 0, sizeof(float) * dim);
            x[one] = 1;
            rotation_apply(&rotation, x);
            for (uint32_t d = 0; d < dim; d++)
                assert_true(fabsf(x[d]) < 0.75f);
        }
        rotation_fini(&rotation);
        free(x);
    }
}

static void test_rotation_is_a_function_of_the_seed(void **state)
{
    struct rotation one, two, other;
    (void)state;
    assert_int_equal(rotation_init(&one, 96, 11), 0);
    assert_int_equal(rotation_init(&two, 96, 11), 0);
    assert_int_equal(rotation_init(&other, 96, 12), 0);
    assert_memory_equal(one.signs, two.signs, 96 * ROTATION_ROUNDS);
    assert_memory_not_equal(one.signs, other.signs, 96 * ROTATION_ROUNDS);
    rotation_fini(&one);
    rotation_fini(&two);
    rotation_fini(&other);
}

/* Root mean square error of estimates of <r, z>, in units of |r| |z|, and their mean error in the same. */
static void estimate_errors(uint32_t dim, unsigned bits, unsigned trials, double *rms, double *bias)
{
    uint64_t state = 1000 + dim;
    uint8_t *code = malloc(code_bytes_of(dim, bits));
    float *decoded = malloc(sizeof(float) * dim);
    double sum = 0, sum2 = 0;
    assert_non_null(code);
    assert_non_null(decoded);
    for (unsigned t = 0; t < trials; t++) {
        float *r = gauss_vector(dim, &state), *z = gauss_vector(dim, &state), extra;
        /* z leans towards r, so that a wrong factor shows as bias */
        for (uint32_t i = 0; i < dim; i++)
            z[i] += r[i];
        float f = code_encode(r, dim, bits, code, z, &extra);
        code_decode(code, dim, bits, f, decoded);
        double estimate = dot_of(decoded, z, dim);
        double unit = sqrt(dot_of(r, r, dim) * dot_of(z, z, dim)), error = (estimate - dot_of(r, z, dim)) / unit;
        assert_true(fabs((double)f * extra - estimate) < 1e-4 * unit);
        sum += error;
        sum2 += error * error;
        free(r);
        free(z);
    }
    free(code);
    free(decoded);
    *rms = sqrt(sum2 / trials);
    *bias = sum / trials;
}

static void test_error_falls_with_bits(void **state)
{
    static const uint32_t dims[] = {32, 128, 960};
    /* of sqrt(1/cos^2 - 1) for Gaussian coordinates: 1 bit 0.756, 2 bits about 0.37, 4 about 0.1, 8 about 0.01 */
    static const double largest[] = {0.85, 0.45, 0.13, 0.012};
    (void)state;
    for (size_t d = 0; d < SUPPORT_COUNT(dims); d++) {
        double before = INFINITY;
        for (size_t w = 0; w < SUPPORT_COUNT(widths); w++) {
            double rms, bias;
            estimate_errors(dims[d], widths[w], 400, &rms, &bias);
            assert_true(rms < largest[w] * 1.2 / sqrt(dims[d]));
            assert_true(rms < before * 0.6);
            /* 400 trials: the mean is within 4 deviations of 0 */
            assert_true(fabs(bias) < 4 * rms / sqrt(400));
            before = rms;
        }
    }
}

/* <decoded, r> = |r|^2 exactly: what makes the estimate unbiased. */
static void test_decoded_keeps_length_along_residual(void **state)
{
    uint64_t seed = 3;
    (void)state;
    for (size_t w = 0; w < SUPPORT_COUNT(widths); w++)
        for (uint32_t dim = 32; dim <= 352; dim += 64) {
            float *r = gauss_vector(dim, &seed), *decoded = malloc(sizeof(float) * dim);
            uint8_t *code = malloc(code_bytes_of(dim, widths[w]));
            assert_non_null(decoded);
            assert_non_null(code);
            float f = code_encode(r, dim, widths[w], code, NULL, NULL);
            code_decode(code, dim, widths[w], f, decoded);
            double rr = dot_of(r, r, dim);
            assert_true(f > 0);
            assert_true(fabs(dot_of(decoded, r, dim) - rr) < 1e-5 * rr);
            free(r);
            free(decoded);
            free(code);
        }
}

static void check_residual(const float *r, uint32_t dim, unsigned bits, double tolerance)
{
    uint8_t code[512];
    float decoded[512], f = code_encode(r, dim, bits, code, NULL, NULL);
    assert_true(isfinite(f) && f >= 0);
    code_decode(code, dim, bits, f, decoded);
    for (uint32_t i = 0; i < dim; i++)
        assert_true(fabs((double)decoded[i] - r[i]) <= tolerance);
}

static void test_zero_and_constant_residuals(void **state)
{
    float r[128];
    (void)state;
    for (size_t w = 0; w < SUPPORT_COUNT(widths); w++) {
        memset(r, 0, sizeof r);
        check_residual(r, 128, widths[w], 0);
        for (size_t i = 0; i < 128; i++)
            r[i] = 2.5f;
        check_residual(r, 128, widths[w], 2.5e-5);
        for (size_t i = 0; i < 128; i++)
            r[i] = i % 3 ? -1e-12f : 1e-12f;
        check_residual(r, 128, widths[w], 1e-17);
        for (size_t i = 0; i < 128; i++)
            r[i] = i % 2 ? -1e15f : 1e15f;
        check_residual(r, 128, widths[w], 1e10);
    }
}

/* Lengths and steps that are zero in float must not become NaN or infinity. */
static void test_tiny_and_spiky_residuals(void **state)
{
    uint8_t code[128];
    float r[128] = {0};
    (void)state;
    for (size_t w = 0; w < SUPPORT_COUNT(widths); w++) {
        memset(r, 0, sizeof r);
        r[77] = 1e6f;
        float f = code_encode(r, 128, widths[w], code, NULL, NULL);
        assert_true(isfinite(f) && f > 0);
        memset(r, 0, sizeof r);
        r[3] = 1e-42f;
        f = code_encode(r, 128, widths[w], code, NULL, NULL);
        assert_true(isfinite(f) && f >= 0);
    }
}

/* The kernels' integer dot product and code_query_dot against plain arithmetic on decoded codes. */
static void test_query_dot(void **state)
{
    enum { DIM = 160 };
    uint64_t seed = 9;
    int8_t levels[DIM];
    uint8_t code[DIM];
    float decoded[DIM];
    (void)state;
    for (size_t w = 0; w < SUPPORT_COUNT(widths); w++) {
        float *r = gauss_vector(DIM, &seed), *q = gauss_vector(DIM, &seed);
        struct code_query query = {.levels = levels};
        uint32_t row = 0;
        int32_t dot;
        code_query_set(&query, q, DIM);
        float f = code_encode(r, DIM, widths[w], code, NULL, NULL);
        kernels()->code_dot[w](levels, code, code_bytes_of(DIM, widths[w]), &row, 1, DIM, &dot);
        code_decode(code, DIM, widths[w], f, decoded);
        double exact = dot_of(decoded, q, DIM);
        double unit = sqrt(dot_of(decoded, decoded, DIM) * dot_of(q, q, DIM));
        double estimate = (double)f * code_query_dot(&query, dot, code_half(widths[w]));
        assert_true(fabs(estimate - exact) < 0.01 * unit);
        assert_true(fabs(query.norm2 - dot_of(q, q, DIM)) < 1e-4 * query.norm2);
        free(r);
        free(q);
    }
}

/* Codes put into a group come back, touch no others, and the group's kernel finds them in their places. */
static void check_group(uint32_t dim, unsigned bits, uint64_t *seed)
{
    size_t bytes = code_bytes_of(dim, bits), group_bytes = code_group_bytes(dim, bits);
    assert_int_equal(group_bytes, CODE_GROUP * bytes);
    uint8_t *codes = malloc(group_bytes), *group = calloc(1, group_bytes), *back = malloc(bytes);
    int8_t *levels = malloc(dim);
    int32_t got[CODE_GROUP], want[CODE_GROUP];
    uint32_t rows[CODE_GROUP];
    assert_true(codes && group && back && levels);
    float *q = gauss_vector(dim, seed);
    struct code_query query = {.levels = levels};
    code_query_set(&query, q, dim);
    for (uint32_t slot = 0; slot < CODE_GROUP; slot++) {
        float *r = gauss_vector(dim, seed);
        code_encode(r, dim, bits, codes + slot * bytes, NULL, NULL);
        rows[slot] = slot;
        free(r);
    }
    for (uint32_t i = 0; i < CODE_GROUP; i++) {
        uint32_t slot = i * 13 % CODE_GROUP; /* in any order */
        code_group_put(group, slot, codes + slot * bytes, dim, bits);
    }
    for (uint32_t slot = 0; slot < CODE_GROUP; slot++) {
        code_group_get(group, slot, dim, bits, back);
        assert_memory_equal(back, codes + slot * bytes, bytes);
    }
    kernels()->group_dot[kernels_code_index(bits)](levels, group, group_bytes, 1, dim, got);
    kernels()->code_dot[kernels_code_index(bits)](levels, codes, bytes, rows, CODE_GROUP, dim, want);
    assert_memory_equal(got, want, sizeof want);
    free(codes);
    free(group);
    free(back);
    free(levels);
    free(q);
}

static void test_groups(void **state)
{
    static const uint32_t dims[] = {32, 64, 96, 128, 160, 352, 768, 1024, 4096};
    uint64_t seed = 17;
    (void)state;
    for (size_t i = 0; i < SUPPORT_COUNT(dims); i++)
        for (unsigned bits = 1; bits <= 4; bits *= 2)
            check_group(dims[i], bits, &seed);
}

/* The signs of a code of 8 bits are the code of 1 bit of what it says. */
static void test_groups_of_signs(void **state)
{
    enum { DIM = 160 };
    uint64_t seed = 23;
    uint8_t levels[DIM], code[DIM / 8], back[DIM / 8], *group = calloc(1, code_group_bytes(DIM, 1));
    float decoded[DIM];
    (void)state;
    assert_non_null(group);
    for (uint32_t pass = 0; pass < 2; pass++) /* what others have put stays */
        for (uint32_t slot = pass; slot < CODE_GROUP; slot += 2) {
            float *r = gauss_vector(DIM, &seed);
            float f = code_encode(r, DIM, 8, levels, NULL, NULL);
            code_decode(levels, DIM, 8, f, decoded);
            code_encode(decoded, DIM, 1, code, NULL, NULL);
            code_group_put_signs(group, slot, levels, DIM);
            code_group_get(group, slot, DIM, 1, back);
            assert_memory_equal(back, code, sizeof code);
            free(r);
        }
    free(group);
}

/* The step that is climbed to is as good as the best of many in the same range, but for a little. */
static void test_climbed_step(void **state)
{
    enum { DIM = 256, VECTORS = 50 };
    uint64_t seed = 29;
    uint8_t code[DIM];
    (void)state;
    for (uint32_t v = 0; v < VECTORS; v++) {
        float *r = gauss_vector(DIM, &seed);
        for (uint32_t i = 0; v % 2 && i < 4; i++)
            r[i] *= 6; /* a few large ones */
        for (unsigned bits = 2; bits <= 4; bits += 2) {
            struct code_measures m;
            float half = code_half(bits), largest = 0;
            double best = 0;
            for (uint32_t d = 0; d < DIM; d++)
                largest = fmaxf(largest, fabsf(r[d]));
            for (float part = 1; part > 0.29f; part *= 0.97f) {
                double ry = 0, yy = 0;
                for (uint32_t d = 0; d < DIM; d++) {
                    float y = floorf(r[d] / (part * largest) * half + half + 0.5f);
                    y = fminf(fmaxf(y, 0), 2 * half) - half;
                    ry += r[d] * y;
                    yy += y * y;
                }
                best = fmax(best, ry * ry / yy);
            }
            float f = code_encode_measured(r, DIM, bits, code, NULL, &m);
            double ry = m.norm2 / (double)f;
            assert_true(ry * ry / m.yy >= 0.985 * best);
            assert_true(m.dot_extra == 0);
        }
        free(r);
    }
}

static void test_zero_query(void **state)
{
    int8_t levels[64];
    float q[64] = {0};
    struct code_query query = {.levels = levels};
    (void)state;
    memset(levels, 55, sizeof levels);
    code_query_set(&query, q, 64);
    for (size_t i = 0; i < 64; i++)
        assert_int_equal(levels[i], 0);
    assert_int_equal(query.level_sum, 0);
    assert_true(query.norm2 == 0 && code_query_dot(&query, 0, 7.5f) == 0);
}

/* Working rows of a build: distances between codes against distances between vectors. */
static void test_row_distances(void **state)
{
    enum { N = 40, DIM = 96 };
    uint64_t seed = 21;
    uint8_t codes[N * DIM];
    float f[N], norm2[N], *vectors = gauss_vector(N * DIM, &seed), out[N];
    int32_t sums[N], dots[N];
    int8_t levels[DIM];
    uint32_t ids[N];
    struct rows rows = {N, DIM, codes, f, norm2, sums};
    (void)state;
    for (uint32_t i = 0; i < N; i++) {
        f[i] = code_encode(vectors + i * DIM, DIM, 8, codes + i * DIM, NULL, NULL);
        norm2[i] = (float)dot_of(vectors + i * DIM, vectors + i * DIM, DIM);
        sums[i] = 0;
        for (uint32_t d = 0; d < DIM; d++)
            sums[i] += codes[i * DIM + d];
        ids[i] = N - 1 - i;
    }
    for (uint32_t row = 0; row < N; row++) {
        struct row_query query;
        row_query_set(&query, &rows, row, levels);
        row_query_distances(&query, ids, N, dots, out);
        for (uint32_t i = 0; i < N; i++) {
            double exact = support_distance(QUIRE_METRIC_L2, vectors + row * DIM, vectors + ids[i] * DIM, DIM);
            assert_true(fabs(out[i] - exact) < 0.01 * (norm2[row] + norm2[ids[i]]));
        }
    }
    free(vectors);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rotation_keeps_geometry),
        cmocka_unit_test(test_rotation_mixes),
        cmocka_unit_test(test_rotation_is_a_function_of_the_seed),
        cmocka_unit_test(test_error_falls_with_bits),
        cmocka_unit_test(test_decoded_keeps_length_along_residual),
        cmocka_unit_test(test_zero_and_constant_residuals),
        cmocka_unit_test(test_tiny_and_spiky_residuals),
        cmocka_unit_test(test_query_dot),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_groups_of_signs),
        cmocka_unit_test(test_climbed_step),
        cmocka_unit_test(test_zero_query),
        cmocka_unit_test(test_row_distances),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
