/*
 * test_generate.c - made-up vectors: the same from the same seed, as many true dimensions as asked for, queries that
 * fit.
 */
#include "datasets/generate.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants the headers above first */
#include <cmocka.h>

enum { ROWS = 2000, DIM = 48, CLUSTERS = 8, INTRINSIC = 6 };

static struct quire_error err;

static struct generator *made(uint64_t seed, unsigned threads)
{
    struct generate_options options;
    struct generator *generator = NULL;
    generate_options_init(&options);
    options.rows = ROWS;
    options.dim = DIM;
    options.clusters = CLUSTERS;
    options.intrinsic = INTRINSIC;
    options.seed = seed;
    options.threads = threads;
    assert_int_equal(generate_create(&options, &generator, &err), 0);
    return generator;
}

static float *all_rows(const struct generator *generator)
{
    float *rows = malloc(sizeof(float) * ROWS * DIM);
    assert_non_null(rows);
    assert_int_equal(generate_rows(generator, 0, ROWS, rows, &err), 0);
    return rows;
}

/* The same bytes from any number of threads, in any parts and any order; others from another seed. */
static void test_deterministic(void **state)
{
    (void)state;
    struct generator *one = made(5, 1), *three = made(5, 3), *other = made(6, 0);
    float *a = all_rows(one), *b = all_rows(three), *c = all_rows(other), row[3 * DIM];
    assert_memory_equal(a, b, sizeof(float) * ROWS * DIM);
    assert_memory_not_equal(a, c, sizeof(float) * DIM);
    for (uint64_t first = ROWS - 3; first > 500; first -= 499) {
        assert_int_equal(generate_rows(three, first, 3, row, &err), 0);
        assert_memory_equal(row, a + first * DIM, sizeof row);
    }
    assert_int_equal(generate_queries(one, 0, 3, row, &err), 0);
    assert_int_equal(generate_queries(three, 1, 2, b, &err), 0);
    assert_memory_equal(row + DIM, b, 2 * sizeof(float) * DIM);
    assert_memory_not_equal(row, a, sizeof(float) * DIM);
    free(a);
    free(b);
    free(c);
    generate_destroy(one);
    generate_destroy(three);
    generate_destroy(other);
}

static double dot(const double *a, const double *b)
{
    double sum = 0;
    for (int d = 0; d < DIM; d++)
        sum += a[d] * b[d];
    return sum;
}

/* The rank of n rows of DIM doubles, by Gram-Schmidt with the longest row first; the rows are changed. */
static int rank_of(double (*x)[DIM], int n, double longest_allowed)
{
    for (int rank = 0;; rank++) {
        int pivot = rank;
        for (int i = rank; i < n; i++)
            if (dot(x[i], x[i]) > dot(x[pivot], x[pivot]))
                pivot = i;
        if (rank == n || sqrt(dot(x[pivot], x[pivot])) < longest_allowed)
            return rank;
        for (int d = 0; d < DIM; d++) {
            double moved = x[pivot][d];
            x[pivot][d] = x[rank][d];
            x[rank][d] = moved;
        }
        double square = dot(x[rank], x[rank]);
        for (int i = rank + 1; i < n; i++) {
            double part = dot(x[i], x[rank]) / square;
            for (int d = 0; d < DIM; d++)
                x[i][d] -= part * x[rank][d];
        }
    }
}

/* Rows of one cluster, less the first of them, span INTRINSIC dimensions and no more. */
static void test_intrinsic(void **state)
{
    (void)state;
    struct generator *generator = made(5, 2);
    float *rows = all_rows(generator);
    for (uint32_t cluster = 0; cluster < CLUSTERS; cluster++) {
        double x[100][DIM];
        int n = -1;
        const float *first = NULL;
        for (uint64_t row = 0; row < ROWS && n < 100; row++) {
            if (generate_cluster(generator, row) != cluster)
                continue;
            first = first ? first : rows + row * DIM;
            for (int d = 0; n >= 0 && d < DIM; d++)
                x[n][d] = (double)rows[row * DIM + (uint64_t)d] - (double)first[d];
            n++;
        }
        assert_int_equal(n, 100);
        assert_int_equal(rank_of(x, n, 1e-3), INTRINSIC);
    }
    free(rows);
    generate_destroy(generator);
}

static double squared(const float *a, const float *b)
{
    double sum = 0;
    for (int d = 0; d < DIM; d++)
        sum += ((double)a[d] - (double)b[d]) * ((double)a[d] - (double)b[d]);
    return sum;
}

/* Squared distance of v to its nearest row, leaving out row `self`. */
static double nearest(const float *rows, const float *v, uint64_t self)
{
    double best = INFINITY;
    for (uint64_t row = 0; row < ROWS; row++)
        if (row != self)
            best = fmin(best, squared(rows + row * DIM, v));
    return best;
}

/* Queries are as near to the rows as the rows are to each other, but are none of them. */
static void test_queries_fit(void **state)
{
    (void)state;
    enum { N = 200 };
    struct generator *generator = made(5, 0);
    float *rows = all_rows(generator), *queries = malloc(sizeof(float) * N * DIM);
    double of_queries = 0, of_rows = 0;
    assert_int_equal(generate_queries(generator, 1000, N, queries, &err), 0);
    for (uint64_t i = 0; i < N; i++) {
        double distance = nearest(rows, queries + i * DIM, UINT64_MAX);
        assert_true(distance > 0);
        of_queries += distance / N;
        of_rows += nearest(rows, rows + i * DIM, i) / N;
    }
    assert_true(of_queries > of_rows * 0.8 && of_queries < of_rows * 1.25);
    free(rows);
    free(queries);
    generate_destroy(generator);
}

/* Spread as the header of generate.c says: centres of variance 1, clusters of half that, every cluster in use. */
static void test_spread(void **state)
{
    (void)state;
    struct generator *generator = made(5, 0);
    float *rows = all_rows(generator), centre[CLUSTERS][DIM] = {{0}};
    unsigned count[CLUSTERS] = {0};
    double within = 0, between = 0;
    for (uint64_t row = 0; row < ROWS; row++) {
        uint32_t c = generate_cluster(generator, row);
        assert_true(c < CLUSTERS);
        count[c]++;
        for (int d = 0; d < DIM; d++)
            centre[c][d] += rows[row * DIM + (uint64_t)d];
    }
    for (int c = 0; c < CLUSTERS; c++) {
        assert_in_range(count[c], ROWS / CLUSTERS / 2, ROWS / CLUSTERS * 2);
        for (int d = 0; d < DIM; d++)
            centre[c][d] /= (float)count[c];
    }
    for (uint64_t row = 0; row < ROWS; row++)
        within += squared(rows + row * DIM, centre[generate_cluster(generator, row)]) / ROWS;
    for (int c = 1; c < CLUSTERS; c++)
        between += squared(centre[0], centre[c]) / (CLUSTERS - 1);
    assert_true(within > 0.4 * DIM && within < 0.6 * DIM);
    assert_true(between > 1.4 * DIM && between < 2.6 * DIM);
    free(rows);
    generate_destroy(generator);
}

static void expect_refused(uint64_t rows, uint32_t dim, uint32_t clusters, uint32_t intrinsic, int code)
{
    struct generate_options options = {.rows = rows, .dim = dim, .clusters = clusters, .intrinsic = intrinsic};
    struct generator *generator = NULL;
    assert_int_equal(generate_create(&options, &generator, &err), code);
    assert_int_equal(err.code, code);
    assert_null(generator);
}

static void test_refused(void **state)
{
    (void)state;
    expect_refused(0, 8, 1, 1, QUIRE_ERANGE);
    expect_refused(0xffffffffu, 8, 1, 1, QUIRE_ERANGE);
    expect_refused(10, 0, 1, 1, QUIRE_ERANGE);
    expect_refused(10, 65537, 1, 1, QUIRE_ERANGE);
    expect_refused(10, 8, 0, 1, QUIRE_ERANGE);
    expect_refused(10, 8, 11, 1, QUIRE_ERANGE);
    expect_refused(10, 8, 1, 0, QUIRE_ERANGE);
    expect_refused(10, 8, 1, 9, QUIRE_ERANGE);
    expect_refused(1000000, 1024, 10000, 32, QUIRE_ELIMIT);
    struct generator *generator = made(1, 1);
    float row[2 * DIM];
    assert_int_equal(generate_rows(generator, ROWS - 1, 2, row, &err), QUIRE_ERANGE);
    assert_int_equal(generate_rows(generator, ROWS + 1, 0, row, &err), QUIRE_ERANGE);
    assert_int_equal(generate_rows(generator, ROWS - 1, 1, row, &err), 0);
    assert_int_equal(generate_queries(generator, UINT64_MAX, 2, row, &err), QUIRE_ERANGE);
    generate_destroy(generator);
    generate_destroy(NULL);
}

/* As many directions as dimensions, and the smallest set of all. */
static void test_extremes(void **state)
{
    (void)state;
    struct generate_options options = {.rows = 2, .dim = 33, .clusters = 2, .intrinsic = 33, .seed = 3};
    struct generator *generator;
    float rows[2 * 33];
    assert_int_equal(generate_create(&options, &generator, &err), 0);
    assert_int_equal(generate_rows(generator, 0, 2, rows, &err), 0);
    for (int i = 0; i < 2 * 33; i++)
        assert_true(isfinite(rows[i]));
    generate_destroy(generator);
    options = (struct generate_options){.rows = 1, .dim = 1, .clusters = 1, .intrinsic = 1};
    assert_int_equal(generate_create(&options, &generator, &err), 0);
    assert_int_equal(generate_rows(generator, 0, 1, rows, &err), 0);
    assert_true(isfinite(rows[0]));
    generate_destroy(generator);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_deterministic), cmocka_unit_test(test_intrinsic), cmocka_unit_test(test_queries_fit),
        cmocka_unit_test(test_spread),        cmocka_unit_test(test_refused),   cmocka_unit_test(test_extremes),
    };
    return cmocka_run_group_tests_name("generate", tests, NULL, NULL);
}
