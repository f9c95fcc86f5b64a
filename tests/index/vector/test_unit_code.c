/*
 * test_unit_code.c - codes of whole vectors: what is decoded, that it is coded as before, and distances.
 */
#include "index/vector/codes.h"
#include "index/vector/unit_code.h"
#include "io/bytes.h"
#include "io/random.h"
#include "tests/index/support_index.h"
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { DIM_MAX = 1000, CODE_MAX = 1024, ROWS = 50 };

struct scene {
    struct rotation rotation;
    uint32_t dim;
    struct unit_query query;
    float rotated[CODE_MAX], scratch[CODE_MAX];
    uint8_t own[CODE_MAX], code[CODE_MAX], factors[UNIT_CODE_FACTOR_BYTES];
};

static void begin(struct scene *s, uint32_t dim)
{
    s->dim = dim;
    s->query = (struct unit_query){.rotated = s->rotated, .code = s->own};
    assert_int_equal(rotation_init(&s->rotation, rotation_code_dim(dim), 0), 0);
}

static void encode(struct scene *s, const float *x)
{
    unit_code_encode(&s->rotation, x, s->dim, s->scratch, s->code, s->factors);
}

static void decode(struct scene *s, float *out)
{
    unit_code_decode(&s->rotation, s->code, s->factors, s->dim, s->scratch, out);
}

static float distance(const struct scene *s)
{
    return unit_query_distance(&s->query, s->code, bytes_load_f32(s->factors), s->rotation.dim);
}

static double length_of(const float *x, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += (double)x[i] * x[i];
    return sqrt(sum);
}

/* A row is at 0 from itself, and where nothing is added to it from what is decoded, which has the same code. */
static void finds_itself(void **state)
{
    static const uint32_t dims[] = {1, 2, 3, 32, 100, 768, DIM_MAX};
    struct scene s;
    float x[DIM_MAX], y[DIM_MAX];
    uint8_t before[CODE_MAX];
    struct random random;
    (void)state;
    random_init(&random, 1);
    for (size_t d = 0; d < SUPPORT_COUNT(dims); d++) {
        begin(&s, dims[d]);
        for (int row = 0; row < ROWS; row++) {
            float scale = powf(10, (float)(row - 25) * 1.3f);
            for (uint32_t i = 0; i < s.dim; i++)
                x[i] = ((float)random_below(&random, 2001) - 999.5f) * scale;
            encode(&s, x);
            memcpy(before, s.code, s.rotation.dim);
            unit_query_set(&s.query, &s.rotation, x, s.dim);
            assert_true(distance(&s) == 0);
            decode(&s, y);
            double length = length_of(x, s.dim), error = 0;
            for (uint32_t i = 0; i < s.dim; i++)
                error += pow((double)y[i] - (double)x[i], 2);
            assert_true(sqrt(error) < 0.02 * length);
            assert_true(fabs(length_of(y, s.dim) / length - 1) < 1e-6);
            encode(&s, y);
            if (s.dim == s.rotation.dim) { /* otherwise what was added to the vector is cut off */
                assert_memory_equal(s.code, before, s.rotation.dim);
                assert_true(distance(&s) == 0);
            }
            assert_true(distance(&s) < 2e-4f);
            for (uint32_t i = 0; i < s.dim; i++)
                y[i] = -2 * x[i];
            unit_query_set(&s.query, &s.rotation, y, s.dim);
            assert_true(fabsf(distance(&s) - 4) < 1e-3f);
        }
        rotation_fini(&s.rotation);
    }
}

static void zero_is_at_two_from_all(void **state)
{
    struct scene s;
    float zero[3] = {0, -0.0f, 0}, x[3] = {1, 2, 3}, back[3] = {7, 7, 7};
    (void)state;
    begin(&s, 3);
    encode(&s, zero);
    unit_query_set(&s.query, &s.rotation, x, 3);
    assert_true(distance(&s) == 2);
    unit_query_set(&s.query, &s.rotation, zero, 3);
    assert_true(distance(&s) == 2);
    decode(&s, back);
    assert_true(back[0] == 0 && back[1] == 0 && back[2] == 0 && !signbit(back[0]));
    encode(&s, x);
    assert_true(distance(&s) == 2);
    rotation_fini(&s.rotation);
}

static void holds_what_a_float_holds(void **state)
{
    struct scene s;
    float large[3] = {FLT_MAX, FLT_MAX, -FLT_MAX}, tiny[3] = {1e-44f, 0, 0}, back[3];
    (void)state;
    begin(&s, 3);
    encode(&s, large);
    decode(&s, back);
    assert_true(isfinite(back[0]) && back[0] > FLT_MAX / 2 && back[2] < -FLT_MAX / 2);
    encode(&s, tiny);
    decode(&s, back);
    assert_true(back[0] > 0 && back[0] <= 1.2e-44f);
    rotation_fini(&s.rotation);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_itself),
        cmocka_unit_test(zero_is_at_two_from_all),
        cmocka_unit_test(holds_what_a_float_holds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
