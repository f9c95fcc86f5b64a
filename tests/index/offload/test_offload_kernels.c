/*
 * test_offload_kernels.c - what a device answers against plain sums in int64 and double.
 *
 * Runs on the first OpenCL device of the machine, which in tests is pocl: the processor as a complete device. Both
 * kinds of tiles are tested on it. Without a device the tests say that they were skipped.
 */
#include "index/kernels/kernels.h"
#include "index/offload/offload.h"
#include "io/random.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct offload *offload;

static int open_with(const char *tiles)
{
    char note[512];
    setenv("QUIRE_OPENCL_TILES", tiles, 1);
    offload = offload_open("", note, sizeof note);
    if (!offload)
        print_message("skipped: %s\n", note);
    return 0;
}

static int open_registers(void **state)
{
    (void)state;
    return open_with("registers");
}

static int open_local(void **state)
{
    (void)state;
    return open_with("local");
}

static int close_device(void **state)
{
    (void)state;
    offload_close(offload);
    offload = NULL;
    return 0;
}

/* ---- rows and queries of any element ----------------------------------------------------------------------------- */

struct data {
    enum offload_element element;
    uint32_t n, n_queries, dim;
    void *rows, *queries; /* queries: floats where rows are */
    double *plain_rows, *plain_queries;
    float *factors; /* or NULL */
};

static void *checked(void *memory)
{
    assert_non_null(memory);
    return memory;
}

/* Values repeat, so that there are ties; with `wide` whole numbers have their largest magnitude. */
static double draw(struct random *random, enum offload_element element, bool wide)
{
    uint64_t r = random_next(random);
    if (element == OFFLOAD_U8)
        return wide ? (r & 1 ? 255 : 0) : (double)(r % 5);
    if (element == OFFLOAD_I8)
        return wide ? (r & 1 ? 127 : -128) : (double)(r % 5) - 2;
    return wide ? (double)(r % 2001) / 16 - 62.5 : (double)(r % 5) / 4;
}

static void store(enum offload_element element, bool is_query, void *to, size_t at, double value)
{
    float single = (float)value;
    if (element == OFFLOAD_U8)
        ((uint8_t *)to)[at] = (uint8_t)value;
    else if (element == OFFLOAD_I8)
        ((int8_t *)to)[at] = (int8_t)value;
    else if (element == OFFLOAD_F16 && !is_query)
        kernels()->f16_from_f32(&single, (f16_t *)to + at, 1);
    else
        ((float *)to)[at] = single;
}

static void make(struct data *d, enum offload_element element, uint32_t n, uint32_t n_queries, uint32_t dim, bool wide,
                 bool factors, uint64_t seed)
{
    struct random random;
    size_t all = (size_t)n * dim, asked = (size_t)n_queries * dim;
    random_init(&random, seed);
    *d = (struct data){.element = element, .n = n, .n_queries = n_queries, .dim = dim};
    d->rows = checked(malloc(all * 4));
    d->queries = checked(malloc(asked * 4));
    d->plain_rows = checked(malloc(all * sizeof(double)));
    d->plain_queries = checked(malloc(asked * sizeof(double)));
    d->factors = factors ? checked(malloc(n * sizeof(float))) : NULL;
    for (size_t i = 0; i < all; i++)
        store(element, false, d->rows, i, d->plain_rows[i] = draw(&random, element, wide));
    for (size_t i = 0; i < asked; i++)
        store(element, true, d->queries, i, d->plain_queries[i] = draw(&random, element, wide));
    for (uint32_t i = 0; factors && i < n; i++)
        d->factors[i] = (float)(1 + random_next(&random) % 8) / 4;
}

static void drop(struct data *d)
{
    free(d->rows);
    free(d->queries);
    free(d->plain_rows);
    free(d->plain_queries);
    free(d->factors);
}

/* The value of a pair, and the sum of the magnitudes of its terms. */
static double value_of(const struct data *d, enum offload_measure measure, uint32_t query, uint32_t row,
                       double *magnitude)
{
    double sum = 0, large = 0;
    for (uint32_t i = 0; i < d->dim; i++) {
        double q = d->plain_queries[(size_t)query * d->dim + i], x = d->plain_rows[(size_t)row * d->dim + i];
        double term = measure == OFFLOAD_L2 ? (q - x) * (q - x) : -q * x;
        sum += term;
        large += fabs(term);
    }
    double factor = d->factors && measure == OFFLOAD_DOT ? (double)d->factors[row] : 1;
    *magnitude = large * factor;
    return sum * factor;
}

static int compare(const void *a, const void *b)
{
    const struct offload_near *x = a, *y = b;
    return x->value != y->value ? (x->value < y->value ? -1 : 1) : (x->row > y->row) - (x->row < y->row);
}

/* Whole numbers: value and row of every place. Floats: the value of each row within the bound, in order, and no row
 * left out that is nearer than the last by more than both may be off. */
static void check(const struct data *d, enum offload_measure measure, uint32_t k, const struct offload_near *found)
{
    bool exact = (d->element == OFFLOAD_U8 || d->element == OFFLOAD_I8) && !(d->factors && measure == OFFLOAD_DOT);
    struct offload_near *all = checked(malloc(d->n * sizeof *all));
    bool *is_found = checked(malloc(d->n));
    for (uint32_t q = 0; q < d->n_queries; q++) {
        const struct offload_near *list = found + (size_t)q * k;
        double magnitude, bound = 0;
        memset(is_found, 0, d->n);
        for (uint32_t row = 0; row < d->n; row++)
            all[row] = (struct offload_near){value_of(d, measure, q, row, &magnitude), row};
        for (uint32_t i = 0; i < k; i++) {
            assert_true(list[i].row < d->n && !is_found[list[i].row]);
            is_found[list[i].row] = true;
            double value = value_of(d, measure, q, list[i].row, &magnitude);
            bound = fmax(bound, offload_float_error(d->dim) * magnitude + 1e-30);
            assert_true(i == 0 || compare(&list[i - 1], &list[i]) < 0);
            assert_true(fabs(list[i].value - value) <= (exact ? 0 : offload_float_error(d->dim) * magnitude + 1e-30));
        }
        for (uint32_t row = 0; row < d->n; row++)
            if (!exact && !is_found[row]) {
                value_of(d, measure, q, row, &magnitude);
                assert_true(all[row].value >=
                            list[k - 1].value - bound - offload_float_error(d->dim) * magnitude - 1e-30);
            }
        qsort(all, d->n, sizeof *all, compare);
        for (uint32_t i = 0; exact && i < k; i++)
            assert_true(all[i].row == list[i].row && all[i].value == list[i].value);
    }
    free(all);
    free(is_found);
}

static void try_nearest(const struct data *d, enum offload_measure measure, uint32_t k)
{
    struct quire_error err = {0};
    struct offload_rows rows = {
        .element = d->element, .n = d->n, .dim = d->dim, .data = d->rows, .factors = d->factors};
    struct offload_near *found = checked(malloc(sizeof *found * d->n_queries * k));
    struct offload_nearest request = {measure, d->n_queries, k, d->queries, found};
    struct offload_block *block;
    if (offload_load(offload, &rows, &block, &err) < 0 || offload_nearest(offload, block, &request, &err) < 0)
        fail_msg("%s", err.message);
    check(d, measure, k, found);
    offload_unload(offload, block);
    free(found);
}

static void test_nearest(void **state)
{
    static const uint32_t dims[] = {1, 2, 3, 15, 16, 17, 31, 33, 64, 65, 100, 127, 257, 768, 1025, 4096};
    struct random random;
    (void)state;
    if (!offload)
        skip();
    random_init(&random, 7);
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++)
        for (unsigned element = OFFLOAD_F32; element <= OFFLOAD_I8; element++) {
            uint32_t n = 1 + (uint32_t)random_below(&random, dims[i] > 500 ? 70 : 200);
            uint32_t n_queries = 1 + (uint32_t)random_below(&random, dims[i] > 500 ? 5 : 80);
            uint32_t k = 1 + (uint32_t)random_below(&random, n);
            enum offload_measure measure = (i + element) % 2 ? OFFLOAD_L2 : OFFLOAD_DOT;
            struct data d;
            make(&d, element, n, n_queries, dims[i], i & 2, measure == OFFLOAD_DOT && i & 4, 100 * i + element);
            try_nearest(&d, measure, k);
            drop(&d);
        }
}

/* Several runs of rows; rows that come nearer and nearer, so that every run has more candidates than there is room. */
static void test_runs(void **state)
{
    (void)state;
    if (!offload)
        skip();
    for (int sorted = 0; sorted < 2; sorted++) {
        struct data d;
        make(&d, OFFLOAD_U8, 30011, 3, 2, true, false, 11);
        for (uint32_t i = 0; sorted && i < d.n; i++) {
            uint32_t level = 255 - i / 118; /* far first, queries near 0 */
            store(OFFLOAD_U8, false, d.rows, 2 * (size_t)i, d.plain_rows[2 * (size_t)i] = level);
            store(OFFLOAD_U8, false, d.rows, 2 * (size_t)i + 1, d.plain_rows[2 * (size_t)i + 1] = level);
        }
        for (uint32_t i = 0; sorted && i < 2 * d.n_queries; i++)
            store(OFFLOAD_U8, true, d.queries, i, d.plain_queries[i] = 0);
        for (uint32_t k = 1; k <= 512; k *= 8)
            try_nearest(&d, OFFLOAD_L2, k);
        drop(&d);
    }
}

/* More queries than a batch has, and all rows equal. */
static void test_ties(void **state)
{
    struct data d;
    (void)state;
    if (!offload)
        skip();
    make(&d, OFFLOAD_F32, 100, 1100, 3, false, false, 5);
    for (size_t i = 0; i < 300; i++)
        store(OFFLOAD_F32, false, d.rows, i, d.plain_rows[i] = 0.5);
    try_nearest(&d, OFFLOAD_L2, 30);
    try_nearest(&d, OFFLOAD_DOT, 1);
    drop(&d);
}

static void test_largest_sums(void **state)
{
    (void)state;
    if (!offload)
        skip();
    for (unsigned element = OFFLOAD_U8; element <= OFFLOAD_I8; element++)
        for (unsigned measure = OFFLOAD_L2; measure <= OFFLOAD_DOT; measure++) {
            struct data d;
            make(&d, element, 3, 2, 65536, true, false, 3);
            for (size_t i = 0; i < 65536; i++) { /* the largest sum there is */
                store(element, false, d.rows, i, d.plain_rows[i] = element == OFFLOAD_U8 ? 255 : -128);
                store(element, true, d.queries, i,
                      d.plain_queries[i] = measure == OFFLOAD_L2 ? (element == OFFLOAD_U8 ? 0 : 127) : d.plain_rows[i]);
            }
            try_nearest(&d, measure, 3);
            drop(&d);
        }
}

/* Parts of the rows, merged, are the whole. */
static void test_parts(void **state)
{
    struct quire_error err = {0};
    struct data d;
    (void)state;
    if (!offload)
        skip();
    make(&d, OFFLOAD_I8, 9000, 300, 5, false, false, 21);
    struct offload_rows rows = {.element = d.element, .n = d.n, .dim = d.dim, .data = d.rows};
    struct offload_near *found = checked(malloc(sizeof *found * d.n_queries * 50));
    struct offload_nearest request = {OFFLOAD_L2, d.n_queries, 50, d.queries, found};
    assert_int_equal(offload_nearest_all(offload, &rows, &request, NULL, &err), 0);
    check(&d, OFFLOAD_L2, 50, found);
    request.k = d.n + 1;
    assert_int_equal(offload_nearest_all(offload, &rows, &request, NULL, &err), QUIRE_ERANGE);
    free(found);
    drop(&d);
}

/* A block that is filled in pieces, the last first, is the block that was loaded at once. */
static void test_pieces(void **state)
{
    static const struct {
        enum offload_element element;
        uint32_t dim;
        bool has_factors;
    } kinds[] = {{OFFLOAD_F32, 64, false}, {OFFLOAD_F16, 37, true}, {OFFLOAD_F32, 129, true}, {OFFLOAD_U8, 65, false}};
    struct quire_error err = {0};
    (void)state;
    if (!offload)
        skip();
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        enum offload_measure measure = kinds[i].has_factors ? OFFLOAD_DOT : OFFLOAD_L2;
        struct data d;
        make(&d, kinds[i].element, 1001, 9, kinds[i].dim, true, kinds[i].has_factors, 31 + i);
        const struct offload_shape shape = {d.element, d.n, d.dim, kinds[i].has_factors};
        size_t row_bytes = d.dim * (d.element == OFFLOAD_F32 ? 4 : d.element == OFFLOAD_F16 ? 2 : 1);
        struct offload_near *found = checked(malloc(sizeof *found * d.n_queries * 20));
        struct offload_nearest request = {measure, d.n_queries, 20, d.queries, found};
        struct offload_block *block;
        assert_int_equal(offload_reserve(offload, &shape, &block, &err), 0);
        for (uint32_t end = d.n; end > 0;) {
            uint32_t n = end < 130 ? end : 130, first = end - n;
            const struct offload_piece piece = {first, n, (uint8_t *)d.rows + first * row_bytes,
                                                d.factors ? d.factors + first : NULL};
            assert_int_equal(offload_put(offload, block, &piece, &err), 0);
            end = first;
        }
        assert_int_equal(offload_nearest(offload, block, &request, &err), 0);
        check(&d, measure, 20, found);
        offload_unload(offload, block);
        free(found);
        drop(&d);
    }
}

/* ---- codes ------------------------------------------------------------------------------------------------------- */

static void test_code_dots(void **state)
{
    static const uint32_t dims[] = {32, 64, 96, 256, 4096, 65568};
    struct random random;
    struct quire_error err = {0};
    (void)state;
    if (!offload)
        skip();
    random_init(&random, 13);
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++)
        for (unsigned by_ids = 0; by_ids < 2; by_ids++) {
            uint32_t dim = dims[i], n = dim > 1000 ? 9 : 150, n_queries = 4, n_out = 0;
            uint8_t *codes = checked(malloc((size_t)n * dim));
            int8_t *queries = checked(malloc((size_t)n_queries * dim));
            struct offload_run runs[16];
            uint32_t ids[160]; /* codes backwards */
            for (uint32_t j = 0; j < n; j++)
                ids[j] = by_ids ? n - 1 - j : j;
            uint32_t n_runs = 0;
            for (size_t j = 0; j < (size_t)n * dim; j++)
                codes[j] = dim == 65568 ? 255 : (uint8_t)random_next(&random);
            for (size_t j = 0; j < (size_t)n_queries * dim; j++)
                queries[j] = dim == 65568 ? -128 : (int8_t)random_next(&random);
            for (; n_runs < 16; n_runs++) {
                uint32_t first = (uint32_t)random_below(&random, n), many = (uint32_t)random_below(&random, n - first);
                runs[n_runs] = (struct offload_run){n_runs % n_queries, first, many + 1, n_out};
                n_out += many + 1;
            }
            int32_t *out = checked(malloc(n_out * sizeof *out));
            struct offload_rows rows = {.element = OFFLOAD_CODE8, .n = n, .dim = dim, .data = codes};
            struct offload_dots request = {n_queries, n_runs, n_out, n, queries, runs, by_ids ? ids : NULL, out};
            struct offload_block *block;
            if (offload_load(offload, &rows, &block, &err) < 0 || offload_dots(offload, block, &request, &err) < 0)
                fail_msg("%s", err.message);
            for (uint32_t r = 0; r < n_runs; r++)
                for (uint32_t j = 0; j < runs[r].n; j++) {
                    const uint8_t *code = codes + (size_t)ids[runs[r].first + j] * dim;
                    const int8_t *query = queries + (size_t)runs[r].query * dim;
                    int64_t sum = 0;
                    for (size_t e = 0; e < dim; e++)
                        sum += code[e] * query[e];
                    assert_true(sum == out[runs[r].out + j]);
                }
            offload_unload(offload, block);
            free(codes);
            free(queries);
            free(out);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nearest),      cmocka_unit_test(test_runs),  cmocka_unit_test(test_ties),
        cmocka_unit_test(test_largest_sums), cmocka_unit_test(test_parts), cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_code_dots),
    };
    int failed = cmocka_run_group_tests_name("tiles in registers", tests, open_registers, close_device);
    return failed + cmocka_run_group_tests_name("tiles in local memory", tests, open_local, close_device);
}
