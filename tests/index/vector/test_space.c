/*
 * test_space.c - every metric becomes squared L2 and comes back.
 *
 * The order of rows by squared distance in the working space must be the order by the user's metric, and space_distance
 * must give the user's number; both against brute force in double. Vectors go through rotation and centring, so the
 * tolerance is that of float arithmetic, not zero.
 */
#include "index/kernels/kernels.h"
#include "index/vector/space.h"
#include "tests/index/support_index.h"
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const enum quire_metric metrics[] = {QUIRE_METRIC_L2, QUIRE_METRIC_COSINE, QUIRE_METRIC_IP};

/* A space over the data: mean and largest length as a build finds them. */
static void make_space(struct space *space, enum quire_metric metric, const struct support_data *data)
{
    float *work = malloc(sizeof(float) * (data->dim + 64));
    assert_non_null(work);
    assert_int_equal(space_init(space, metric, data->type, data->dim, 42), 0);
    for (uint32_t pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; i < data->rows; i++) {
            const float *x = data->floats + (size_t)i * data->dim;
            double norm2 = 0;
            for (uint32_t d = 0; d < data->dim; d++)
                norm2 += (double)x[d] * x[d];
            if (pass == 0) {
                space->norm2_max = fmax(space->norm2_max, norm2);
                continue;
            }
            space_lift(space, x, work);
            for (uint32_t d = 0; d < space->work_dim; d++)
                space->mean[d] += work[d] / (float)data->rows;
        }
    free(work);
}

static double scale_of(enum quire_metric metric, const struct space *space, double norm2)
{
    return metric == QUIRE_METRIC_COSINE ? 1 : norm2 + space->norm2_max;
}

/* Size of squared distances in the working space, which rounding is relative to. */
static double work_scale_of(const struct space *space, double norm2)
{
    return space->metric == QUIRE_METRIC_IP ? 5 * space->norm2_max : scale_of(space->metric, space, norm2);
}

static void check_query(const struct space *space, const struct support_data *data, const float *query)
{
    uint32_t n = data->rows;
    float *q = malloc(sizeof(float) * space->code_dim), *x = malloc(sizeof(float) * space->code_dim), norm2;
    double *found = malloc(sizeof *found * n), *exact = malloc(sizeof *exact * n);
    assert_true(q && x && found && exact);
    space_query(space, query, q, &norm2);
    double tolerance = 3e-6 * scale_of(space->metric, space, norm2);
    for (uint32_t i = 0; i < n; i++) {
        space_row(space, data->floats + (size_t)i * data->dim, x);
        found[i] = support_distance(QUIRE_METRIC_L2, q, x, space->code_dim);
        exact[i] = support_distance(space->metric, query, data->floats + (size_t)i * data->dim, data->dim);
        float distance = space_distance(space, (float)found[i], norm2);
        assert_true(fabs(distance - exact[i]) < tolerance);
        float back = space_work_distance(space, distance, norm2);
        assert_true(fabs(back - found[i]) < 6e-6 * work_scale_of(space, norm2));
    }
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; j < n; j++)
            if (exact[i] < exact[j] - 2 * tolerance)
                assert_true(found[i] < found[j]);
    free(q);
    free(x);
    free(found);
    free(exact);
}

static bool is_zero(const float *x, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (x[i] != 0)
            return false;
    return true;
}

static void test_order_is_kept(void **state)
{
    static const uint32_t dims[] = {1, 2, 31, 32, 33, 100, 384};
    static const enum quire_type types[] = {QUIRE_TYPE_F32, QUIRE_TYPE_F16, QUIRE_TYPE_I8, QUIRE_TYPE_U8,
                                            QUIRE_TYPE_BF16};
    (void)state;
    for (size_t d = 0; d < SUPPORT_COUNT(dims); d++)
        for (size_t m = 0; m < SUPPORT_COUNT(metrics); m++) {
            struct support_data data;
            struct space space;
            support_clusters(120, dims[d], types[d % SUPPORT_COUNT(types)], dims[d], &data);
            /* no zero vectors, which the oracle cannot compare: small integers may round to one */
            for (uint32_t i = 0; i < data.rows; i++)
                if (is_zero(data.floats + (size_t)i * dims[d], dims[d]))
                    data.floats[(size_t)i * dims[d]] = 1;
            make_space(&space, metrics[m], &data);
            float *queries = support_queries(&data, 10, 5);
            for (uint32_t i = 0; i < 10; i++)
                if (!is_zero(queries + (size_t)i * dims[d], dims[d]))
                    check_query(&space, &data, queries + (size_t)i * dims[d]);
            free(queries);
            space_fini(&space);
            support_data_free(&data);
        }
}

static void test_restore(void **state)
{
    (void)state;
    for (size_t m = 0; m < SUPPORT_COUNT(metrics); m++) {
        struct support_data data;
        struct space space;
        support_clusters(50, 70, QUIRE_TYPE_F32, 8, &data);
        make_space(&space, metrics[m], &data);
        float *x = malloc(sizeof(float) * space.code_dim), back[70];
        assert_non_null(x);
        for (uint32_t i = 0; i < data.rows; i++) {
            const float *row = data.floats + (size_t)i * 70;
            double length =
                metrics[m] == QUIRE_METRIC_COSINE ? sqrt(-support_distance(QUIRE_METRIC_IP, row, row, 70)) : 1;
            space_row(&space, row, x);
            space_restore(&space, x, back);
            for (uint32_t d = 0; d < 70; d++)
                assert_true(fabs(back[d] - row[d] / length) < 1e-4);
        }
        free(x);
        space_fini(&space);
        support_data_free(&data);
    }
}

static void test_check(void **state)
{
    (void)state;
    for (size_t m = 0; m < SUPPORT_COUNT(metrics); m++) {
        struct space space = {.metric = metrics[m], .dim = 3};
        int large = metrics[m] == QUIRE_METRIC_COSINE ? 0 : QUIRE_ENOTFINITE;
        assert_int_equal(space_check(&space, (const float[]){1, 2, 3}), 0);
        assert_int_equal(space_check(&space, (const float[]){0, 0, 0}), 0);
        assert_int_equal(space_check(&space, (const float[]){0, -0.0f, 1e-30f}), 0);
        assert_int_equal(space_check(&space, (const float[]){0, 0, NAN}), QUIRE_ENOTFINITE);
        assert_int_equal(space_check(&space, (const float[]){INFINITY, 0, 0}), QUIRE_ENOTFINITE);
        assert_int_equal(space_check(&space, (const float[]){0, -INFINITY, 0}), QUIRE_ENOTFINITE);
        assert_int_equal(space_check(&space, (const float[]){0, 3e38f, 0}), large);
    }
}

/* A zero vector is at cosine distance 1 from everything, another one included. */
static void test_zero_vectors(void **state)
{
    (void)state;
    struct support_data data;
    struct space space;
    float zero[40] = {0}, a[64], b[64], norm2, unused;
    support_clusters(50, 40, QUIRE_TYPE_F32, 8, &data);
    make_space(&space, QUIRE_METRIC_COSINE, &data);
    float apart = space_query(&space, zero, a, &norm2);
    assert_true(apart == 1 && norm2 == 0 && space_row(&space, zero, b) == 1);
    float d = (float)support_distance(QUIRE_METRIC_L2, a, b, space.code_dim) + apart + apart;
    assert_true(space_distance(&space, d, norm2) == 1);
    for (uint32_t i = 0; i < data.rows; i++) {
        const float *row = data.floats + (size_t)i * 40;
        assert_true(space_row(&space, row, b) == 0);
        d = (float)support_distance(QUIRE_METRIC_L2, a, b, space.code_dim) + apart;
        assert_true(fabsf(d - 2) < 1e-5f);
        assert_true(space_query(&space, row, b, &unused) == 0 && unused == 1);
        assert_true(fabsf(space_distance(&space, d, unused) - 1) < 1e-5f);
        assert_true(space_distance(&space, d, norm2) == 1);
    }
    space_fini(&space);
    support_data_free(&data);
}

static void test_unit(void **state)
{
    static const float scales[] = {1e-45f, 1e-40f, 1e-30f, 1e-10f, 1, 1e10f, 1e30f, 1e38f};
    (void)state;
    for (size_t s = 0; s < SUPPORT_COUNT(scales); s++) {
        float x[3] = {scales[s], -2 * scales[s], 2 * scales[s]}, unit[3];
        double length = space_unit(x, 3, unit);
        assert_true(fabs(length / (3 * (double)scales[s]) - 1) < 1e-6);
        assert_true(fabsf(unit[0] - 1 / 3.0f) < 1e-6f && fabsf(unit[1] + 2 / 3.0f) < 1e-6f && unit[2] == -unit[1]);
    }
    float mixed[3] = {1e30f, 1e-30f, FLT_MAX}, zero[2] = {0, -0.0f};
    assert_true(space_unit(mixed, 3, mixed) == (double)FLT_MAX && mixed[2] == 1 && mixed[1] == 0 && mixed[0] > 0);
    assert_true(space_unit(zero, 2, zero) == 0 && zero[0] == 0 && zero[1] == 0);
}

static void test_floats(void **state)
{
    static const float values[] = {0, 1, -2, 127};
    uint16_t half[4];
    float out[4];
    (void)state;
    kernels()->f16_from_f32(values, half, 4);
    space_floats(QUIRE_TYPE_F16, half, 4, out);
    assert_memory_equal(out, values, sizeof values);
    kernels()->bf16_from_f32(values, half, 4);
    space_floats(QUIRE_TYPE_BF16, half, 4, out);
    assert_memory_equal(out, values, sizeof values);
    space_floats(QUIRE_TYPE_F32, values, 4, out);
    assert_memory_equal(out, values, sizeof values);
    space_floats(QUIRE_TYPE_I8, (const int8_t[]){0, 1, -2, 127}, 4, out);
    assert_memory_equal(out, values, sizeof values);
    space_floats(QUIRE_TYPE_U8, (const uint8_t[]){255, 254, 128, 0}, 4, out);
    assert_true(out[0] == 255 && out[1] == 254 && out[2] == 128 && out[3] == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order_is_kept), cmocka_unit_test(test_restore), cmocka_unit_test(test_check),
        cmocka_unit_test(test_zero_vectors),  cmocka_unit_test(test_unit),    cmocka_unit_test(test_floats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
