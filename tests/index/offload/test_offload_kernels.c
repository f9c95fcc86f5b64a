/*
 * test_offload_kernels.c - what a device answers against plain sums in int64 and double.
 *
 * Runs on the first OpenCL device of the machine, which in tests is pocl: the processor as a complete device. Tiles in
 * registers and in local memory, of all sizes, are tested on it, and every way of making products of bytes, with
 * functions of ours where a device would have an instruction. Without a device the tests say that they were skipped.
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

/* What a group of tests is run with. */
static const struct way {
    const char *tiles, *dot4, *words; /* words: what the device says of itself then */
    bool all;                         /* every dimension, not some */
    unsigned codes;                   /* bit i: coded[i] are tried */
} * way;

static int open_device(void **state)
{
    (void)state;
    struct offload_status status;
    char note[512];
    setenv("QUIRE_OPENCL_TILES", way->tiles, 1);
    setenv("QUIRE_OPENCL_DOT4", way->dot4, 1);
    offload = offload_open("", note, sizeof note);
    if (!offload) {
        print_message("skipped: %s\n", note);
        return 0;
    }
    offload_get_status(offload, &status);
    if (!strstr(status.way, way->words))
        fail_msg("%s, %s: %s", way->tiles, way->dot4, status.way);
    return 0;
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
    double *magnitudes = checked(malloc(d->n * sizeof *magnitudes));
    bool *is_found = checked(malloc(d->n));
    for (uint32_t q = 0; q < d->n_queries; q++) {
        const struct offload_near *list = found + (size_t)q * k;
        double bound = 0;
        memset(is_found, 0, d->n);
        for (uint32_t row = 0; row < d->n; row++)
            all[row] = (struct offload_near){value_of(d, measure, q, row, &magnitudes[row]), row};
        for (uint32_t i = 0; i < k; i++) {
            assert_true(list[i].row < d->n && !is_found[list[i].row]);
            is_found[list[i].row] = true;
            double value = all[list[i].row].value;
            double error = offload_float_error(d->dim) * magnitudes[list[i].row] + 1e-30;
            bound = fmax(bound, error);
            assert_true(i == 0 || compare(&list[i - 1], &list[i]) < 0);
            assert_true(fabs(list[i].value - value) <= (exact ? 0 : error));
        }
        for (uint32_t row = 0; row < d->n; row++)
            if (!exact && !is_found[row])
                assert_true(all[row].value >=
                            list[k - 1].value - bound - offload_float_error(d->dim) * magnitudes[row] - 1e-30);
        if (exact)
            qsort(all, d->n, sizeof *all, compare);
        for (uint32_t i = 0; exact && i < k; i++)
            assert_true(all[i].row == list[i].row && all[i].value == list[i].value);
    }
    free(all);
    free(magnitudes);
    free(is_found);
}

static void try_nearest(const struct data *d, enum offload_measure measure, uint32_t k)
{
    struct quire_error err = {0};
    struct offload_rows rows = {
        .element = d->element, .n = d->n, .dim = d->dim, .data = d->rows, .factors = d->factors};
    struct offload_near *found = checked(malloc(sizeof *found * d->n_queries * k));
    struct offload_nearest request = {
        .measure = measure, .n_queries = d->n_queries, .k = k, .queries = d->queries, .out = found};
    struct offload_block *block;
    if (offload_load(offload, &rows, &block, &err) < 0 || offload_nearest(offload, block, &request, &err) < 0)
        fail_msg("%s", err.message);
    check(d, measure, k, found);
    offload_unload(offload, block);
    free(found);
}

/* Whether a kernel is tried in this way. All are where all dimensions are. Other ways differ in tiles, for which one
 * kind of floats stands, and in products of bytes: a driver takes a while for each program. */
static bool is_tried(enum offload_element element, enum offload_measure measure)
{
    return way->all || element == OFFLOAD_U8 || element == OFFLOAD_I8 ||
           (element == OFFLOAD_F32 && measure == OFFLOAD_L2);
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
            uint32_t n = 1 + (uint32_t)random_below(&random, dims[i] > 500 ? 150 : 300);
            uint32_t n_queries = 1 + (uint32_t)random_below(&random, dims[i] > 500 ? 5 : 150);
            uint32_t k = 1 + (uint32_t)random_below(&random, n);
            enum offload_measure measure = (i + element) % 2 ? OFFLOAD_L2 : OFFLOAD_DOT;
            if (!is_tried(element, measure))
                continue;
            struct data d;
            make(&d, element, n, n_queries, dims[i], i & 2, way->all && measure == OFFLOAD_DOT && i & 4,
                 100 * i + element);
            try_nearest(&d, measure, k);
            drop(&d);
        }
}

/* Every dimension up to 260, and then one in 53 up to 4,096, odd and even: each element and measure. Fewer of them
 * where the tiles alone are others. */
static void test_dimensions(void **state)
{
    struct random random;
    (void)state;
    if (!offload)
        skip();
    random_init(&random, 17);
    for (uint32_t dim = 1; dim <= 4096; dim += way->all ? (dim < 260 ? 1 : 53) : dim < 80 ? 7 : 507)
        for (unsigned kind = 0; kind < 8; kind++) {
            enum offload_element element = (enum offload_element)(kind % 4);
            enum offload_measure measure = kind < 4 ? OFFLOAD_L2 : OFFLOAD_DOT;
            uint32_t n = 1 + (uint32_t)random_below(&random, 17), n_queries = 1 + (uint32_t)random_below(&random, 3);
            if (!is_tried(element, measure))
                continue;
            struct data d;
            make(&d, element, n, n_queries, dim, dim & 1, way->all && measure == OFFLOAD_DOT && dim & 2,
                 8 * dim + kind);
            try_nearest(&d, measure, 1 + (uint32_t)random_below(&random, n));
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
        make(&d, OFFLOAD_U8, way->all ? 30011 : 13011, 3, 2, true, false, 11);
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
    if (way->all)
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
    make(&d, OFFLOAD_I8, 9000, way->all ? 300 : 70, 5, false, false, 21);
    struct offload_rows rows = {.element = d.element, .n = d.n, .dim = d.dim, .data = d.rows};
    struct offload_near *found = checked(malloc(sizeof *found * d.n_queries * 50));
    struct offload_nearest request = {
        .measure = OFFLOAD_L2, .n_queries = d.n_queries, .k = 50, .queries = d.queries, .out = found};
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
    for (size_t i = 0; way->all && i < sizeof kinds / sizeof *kinds; i++) {
        enum offload_measure measure = kinds[i].has_factors ? OFFLOAD_DOT : OFFLOAD_L2;
        struct data d;
        make(&d, kinds[i].element, 1001, 9, kinds[i].dim, true, kinds[i].has_factors, 31 + i);
        const struct offload_shape shape = {d.element, d.n, d.dim, kinds[i].has_factors};
        size_t row_bytes = d.dim * (d.element == OFFLOAD_F32 ? 4 : d.element == OFFLOAD_F16 ? 2 : 1);
        struct offload_near *found = checked(malloc(sizeof *found * d.n_queries * 20));
        struct offload_nearest request = {
            .measure = measure, .n_queries = d.n_queries, .k = 20, .queries = d.queries, .out = found};
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

/* ---- estimates --------------------------------------------------------------------------------------------------- */

static const enum offload_element coded[] = {OFFLOAD_CODE8, OFFLOAD_CODE4, OFFLOAD_CODE2, OFFLOAD_CODE1};

/* Level i of a code. */
static uint32_t level_of(const uint8_t *code, uint32_t i, unsigned bits)
{
    return (unsigned)code[i * bits / 8] >> i * bits % 8 & ((1u << bits) - 1);
}

/* The value that a device is to give, in double, and the squared lengths of which the bound on its error is made. */
static double least_of(const uint8_t *code, const struct offload_estimate *e, const int8_t *query,
                       const struct offload_coded *q, uint32_t dim, unsigned bits, double *norm2)
{
    double half = ((1u << bits) - 1) / 2.0, apart = 0, length = 0;
    for (uint32_t i = 0; i < dim; i++) {
        double x = (double)e->step * (level_of(code, i, bits) - half), y = (double)q->step * query[i];
        apart += (x - y) * (x - y);
        length += y * y;
    }
    *norm2 = length + (double)e->norm2;
    return sqrt(apart) - (double)e->error;
}

static void check_least(const struct offload_near *found, uint32_t k, const double *least, const double *bound,
                        uint32_t n)
{
    bool *is_found = checked(calloc(n, sizeof *is_found));
    double most = 0;
    for (uint32_t i = 0; i < n; i++)
        most = fmax(most, bound[i]);
    for (uint32_t i = 0; i < k; i++) {
        assert_true(found[i].row < n && !is_found[found[i].row]);
        is_found[found[i].row] = true;
        assert_true(fabs(found[i].value - least[found[i].row]) <= bound[found[i].row]);
        assert_true(i == 0 || compare(&found[i - 1], &found[i]) < 0);
    }
    for (uint32_t i = 0; i < n; i++)
        assert_true(is_found[i] || least[i] + bound[i] >= found[k - 1].value - most);
    free(is_found);
}

static void try_least(struct random *random, enum offload_element element, uint32_t dim, uint32_t n, uint32_t n_queries)
{
    struct quire_error err = {0};
    unsigned bits = offload_code_bits(element);
    size_t bytes = offload_bytes(element, dim);
    uint32_t k = 1 + (uint32_t)random_below(random, n < 1000 ? n : 1000);
    double half = ((1u << bits) - 1) / 2.0;
    uint8_t *codes = checked(malloc(n * bytes));
    int8_t *queries = checked(malloc((size_t)n_queries * dim));
    struct offload_estimate *estimates = checked(malloc(n * sizeof *estimates));
    struct offload_coded *q = checked(calloc(n_queries, sizeof *q));
    struct offload_near *found = checked(malloc((size_t)n_queries * k * sizeof *found));
    double *least = checked(malloc(n * sizeof *least)), *bound = checked(malloc(n * sizeof *bound));
    struct offload_block *block;
    for (size_t i = 0; i < n * bytes; i++)
        codes[i] = dim > 4096 ? 255 : (uint8_t)random_next(random);
    for (uint32_t r = 0; r < n; r++) {
        double norm2 = 0;
        estimates[r].step = (float)(1 + random_below(random, 8)) / 64;
        estimates[r].error = (float)random_below(random, 5) / 2;
        for (uint32_t i = 0; i < dim; i++) {
            double x = (double)estimates[r].step * (level_of(codes + r * bytes, i, bits) - half);
            norm2 += x * x;
        }
        estimates[r].norm2 = (float)norm2;
    }
    for (uint32_t i = 0; i < n_queries; i++) {
        double norm2 = 0;
        q[i].step = (float)(1 + random_below(random, 8)) / 128;
        for (uint32_t j = 0; j < dim; j++) {
            int8_t level = dim > 4096 ? -127 : (int8_t)((int)random_below(random, 255) - 127);
            queries[(size_t)i * dim + j] = level;
            q[i].level_sum += level;
            norm2 += (double)q[i].step * level * q[i].step * level;
        }
        q[i].norm2 = (float)norm2;
    }
    const struct offload_rows rows = {element, n, dim, codes, &estimates->step};
    const struct offload_nearest request = {
        .measure = OFFLOAD_LEAST, .n_queries = n_queries, .k = k, .queries = queries, .out = found, .coded = q};
    if (offload_load(offload, &rows, &block, &err) < 0 || offload_nearest(offload, block, &request, &err) < 0)
        fail_msg("%s", err.message);
    for (uint32_t i = 0; i < n_queries; i++) {
        for (uint32_t r = 0; r < n; r++) {
            double norm2;
            least[r] = least_of(codes + r * bytes, &estimates[r], queries + (size_t)i * dim, &q[i], dim, bits, &norm2);
            bound[r] = offload_least_error(norm2, (double)estimates[r].error);
        }
        check_least(found + (size_t)i * k, k, least, bound, n);
    }
    offload_unload(offload, block);
    free(codes);
    free(queries);
    free(estimates);
    free(q);
    free(found);
    free(least);
    free(bound);
}

static void test_least(void **state)
{
    struct random random;
    (void)state;
    if (!offload)
        skip();
    random_init(&random, 29);
    for (size_t i = 0; i < sizeof coded / sizeof *coded; i++) {
        if (!(way->codes >> i & 1u))
            continue;
        for (uint32_t dim = 32; dim <= 4096; dim += !way->all ? 736 : dim < 512 ? 32 : 544) {
            bool is_large = way->all && (dim % 128 == 32 || dim > 3900); /* several tiles, also of the largest */
            try_least(&random, coded[i], dim, 1 + (uint32_t)random_below(&random, is_large ? 250 : 90),
                      1 + (uint32_t)random_below(&random, is_large ? 140 : 70));
        }
        try_least(&random, coded[i], 65568, 3, 2);
        try_least(&random, coded[i], 64, way->all ? 20011 : 9011, 3); /* several runs of rows */
    }
}

int main(void)
{
    /* Codes are unpacked in the same way whatever makes the products of their levels: each of these has some widths. */
    static const struct way ways[] = {
        {"registers", "plain", "tiles in registers, products of bytes written out", true, 0xf},
        {"local", "plain", "tiles of 128 x 16 in local memory, products of bytes written out", true, 0xf},
        {"local:64:16", "khr", "tiles of 64 x 16 in local memory", false, 0x5},
        {"local:32:4", "arm", "tiles of 32 x 4 in local memory", false, 0xa},
        {"local:64:8", "nv", "dp4a (ours)", false, 0x9},
        {"registers", "khr", "tiles in registers, products of bytes by cl_khr_integer_dot_product (ours)", false, 0x1},
    };
    int failed = 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nearest), cmocka_unit_test(test_dimensions),   cmocka_unit_test(test_runs),
        cmocka_unit_test(test_ties),    cmocka_unit_test(test_largest_sums), cmocka_unit_test(test_parts),
        cmocka_unit_test(test_pieces),  cmocka_unit_test(test_code_dots),    cmocka_unit_test(test_least),
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        print_message("tiles %s, products of bytes %s\n", ways[i].tiles, ways[i].dot4);
        way = &ways[i];
        failed += cmocka_run_group_tests_name(ways[i].tiles, tests, open_device, close_device);
    }
    return failed;
}
