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
            /* no zero vectors: small integers may round to one */
            for (uint32_t i = 0; i < data.rows; i++)
                if (space_check(&(struct space){.metric = QUIRE_METRIC_COSINE, .dim = dims[d]},
                                data.floats + (size_t)i * dims[d]) < 0)
                    data.floats[(size_t)i * dims[d]] = 1;
            make_space(&space, metrics[m], &data);
            float *queries = support_queries(&data, 10, 5);
            for (uint32_t i = 0; i < 10; i++)
                if (space_check(&space, queries + (size_t)i * dims[d]) == 0)
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
        int zero = metrics[m] == QUIRE_METRIC_COSINE ? QUIRE_EZEROVEC : 0;
        assert_int_equal(space_check(&space, (const float[]){1, 2, 3}), 0);
        assert_int_equal(space_check(&space, (const float[]){0, 0, 0}), zero);
        assert_int_equal(space_check(&space, (const float[]){0, -0.0f, 1e-30f}), zero);
        assert_int_equal(space_check(&space, (const float[]){0, 0, NAN}), QUIRE_ENOTFINITE);
        assert_int_equal(space_check(&space, (const float[]){INFINITY, 0, 0}), QUIRE_ENOTFINITE);
        assert_int_equal(space_check(&space, (const float[]){0, -INFINITY, 0}), QUIRE_ENOTFINITE);
        assert_int_equal(space_check(&space, (const float[]){0, 3e38f, 0}), QUIRE_ENOTFINITE);
    }
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
        cmocka_unit_test(test_order_is_kept),
        cmocka_unit_test(test_restore),
        cmocka_unit_test(test_check),
        cmocka_unit_test(test_floats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
