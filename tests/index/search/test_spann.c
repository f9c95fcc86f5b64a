/*
 * test_spann.c - searches in inverted lists: every metric, type and precision, both ways to hold them in memory.
 *
 * Two things are asked of each index. At recall 0.95 it has that recall, less what a sample of queries may miss. And
 * with all lists looked at it answers what an exact search answers: there is no ceiling, and no row is lost, whatever
 * the shape of the data. Lists are small here, so that a few thousand rows have hundreds of them.
 */
#include "index/segment/segment_view.h"
#include "io/random.h"
#include "tests/index/support_spann.h"
#include "tests/sanitized.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define QUERIES 60u
#define ALL     UINT32_MAX /* effort: every list */

/* Of the rows of one in `n` is asked for. */
#define EVERY(n) ((n)*SANITIZED_SIZE(1u, 4u))

struct bench {
    char *folder, *path;
    struct support_data data;
    struct segment *segments[SPANN_MODES];
    struct spann_lane lane;
    struct spann_answer exact, answer;
};

static struct bench *bench_make(struct support_data data, const struct quire_build_options *options)
{
    struct bench *b = calloc(1, sizeof *b);
    assert_non_null(b);
    b->folder = support_folder_make();
    b->path = support_path(b->folder, "index");
    b->data = data;
    support_build(b->path, &b->data, options);
    for (unsigned mode = 0; mode < SPANN_MODES; mode++)
        b->segments[mode] = spann_open(NULL, b->path, (enum spann_mode)mode);
    spann_lane_open(&b->lane, QUIRE_ENGINE_AUTO, 0, 4);
    return b;
}

static void bench_free(struct bench *b)
{
    spann_lane_close(&b->lane);
    for (unsigned mode = 0; mode < SPANN_MODES; mode++)
        segment_unref(b->segments[mode]);
    support_data_free(&b->data);
    free(b->path);
    support_folder_remove(b->folder);
    free(b);
}

static void ask(struct bench *b, unsigned mode, const float *query, struct quire_search_options options,
                const uint8_t *dead, struct spann_answer *out)
{
    spann_ask(&b->lane, b->segments[mode], query, &options, dead, out);
    if (out->code < 0)
        fail_msg("%s", out->error.message);
}

static void ask_exact(struct bench *b, const float *query, uint32_t k, const uint8_t *dead)
{
    struct quire_search_options options = support_search(k, 0, 0);
    options.exact = true;
    ask(b, SPANN_CODES, query, options, dead, &b->exact);
}

static void check_distinct(const struct spann_answer *a, uint32_t rows)
{
    uint8_t *seen = calloc(rows, 1);
    assert_non_null(seen);
    for (uint32_t i = 0; i < a->n; i++) {
        assert_true(a->ids[i] < rows);
        assert_int_equal(seen[a->ids[i]]++, 0);
    }
    free(seen);
}

/* Rows asked for by their own vectors, one in `step`, and compared with the exact answer; returns the worst share. */
static void check_rows(struct bench *b, uint32_t step, uint32_t k, const char *what)
{
    char name[80];
    for (uint32_t row = 0; row < b->data.rows; row += step) {
        const float *query = b->data.floats + (size_t)row * b->data.dim;
        ask_exact(b, query, k, NULL);
        assert_int_equal(b->exact.n, k < b->data.rows ? k : b->data.rows);
        for (unsigned mode = 0; mode < SPANN_MODES; mode++) {
            snprintf(name, sizeof name, "%s, row %u, mode %u", what, row, mode);
            ask(b, mode, query, support_search(k, 0, ALL), NULL, &b->answer);
            spann_same(&b->answer, &b->exact, name);
            check_distinct(&b->answer, b->data.rows);
        }
    }
}

/* ---- recall ------------------------------------------------------------------------------------------------------ */

static void check_recall(enum quire_metric metric, enum quire_type type, enum quire_slot slot, uint32_t dim)
{
    struct support_data data;
    struct quire_build_options options = spann_options(metric, 12);
    support_clusters(1500, dim, type, 3 + (uint64_t)type, &data);
    options.slot = slot;
    struct bench *b = bench_make(data, &options);
    float *queries = support_queries(&b->data, QUERIES, 9);
    for (unsigned mode = 0; mode < SPANN_MODES; mode++) {
        double recall = 0, whole = 0;
        for (uint32_t i = 0; i < QUERIES; i++) {
            ask_exact(b, queries + (size_t)i * dim, 10, NULL);
            ask(b, mode, queries + (size_t)i * dim, support_search(10, 0.95f, 0), NULL, &b->answer);
            assert_int_equal(b->answer.n, 10);
            assert_true(b->answer.stats.complete && !b->answer.stats.exact);
            recall += spann_share(&b->answer, &b->exact) / QUERIES;
            ask(b, mode, queries + (size_t)i * dim, support_search(10, 0, ALL), NULL, &b->answer);
            whole += spann_share(&b->answer, &b->exact) / QUERIES;
        }
        /* 600 neighbours, of a query about ten that come or stay away together */
        if (recall < 0.95 - 0.04 || whole < 0.9999)
            fail_msg("metric %d, type %d, slot %d, mode %u: recall %.3f at 0.95, %.4f with all lists", (int)metric,
                     (int)type, (int)slot, mode, recall, whole);
    }
    free(queries);
    bench_free(b);
}

static const enum quire_metric metrics[] = {QUIRE_METRIC_L2, QUIRE_METRIC_COSINE, QUIRE_METRIC_IP};

static void test_recall_of_types(void **state)
{
    static const enum quire_type types[] = {QUIRE_TYPE_F32, QUIRE_TYPE_F16, QUIRE_TYPE_BF16, QUIRE_TYPE_U8,
                                            QUIRE_TYPE_I8};
    (void)state;
    for (unsigned m = 0; m < SUPPORT_COUNT(metrics); m++)
        for (unsigned t = m; t < m + SUPPORT_COUNT(types); t += SANITIZED_SIZE(1, 3)) /* each metric, each type */
            check_recall(metrics[m], types[t % SUPPORT_COUNT(types)], QUIRE_SLOT_AUTO, 24);
}

static void test_recall_of_slots(void **state)
{
    static const enum quire_slot slots[] = {QUIRE_SLOT_F32, QUIRE_SLOT_F16, QUIRE_SLOT_BF16, QUIRE_SLOT_Q8};
    (void)state;
    for (unsigned s = 0; s < SUPPORT_COUNT(slots); s++)
        check_recall(metrics[s % 3], QUIRE_TYPE_F32, slots[s], 40);
}

static void test_recall_of_bits(void **state)
{
    static const unsigned bits[] = {1, 2, 4};
    struct support_data data;
    (void)state;
    for (unsigned i = 0; i < SUPPORT_COUNT(bits); i++) {
        struct quire_build_options options = spann_options(QUIRE_METRIC_L2, 12);
        support_clusters(1200, 32, QUIRE_TYPE_F32, 4, &data);
        options.code_bits = bits[i];
        struct bench *b = bench_make(data, &options);
        assert_int_equal(segment_info(b->segments[SPANN_CODES])->code_bits, bits[i]);
        check_rows(b, EVERY(97), 1, "bits");
        bench_free(b);
    }
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

static void test_any_k(void **state)
{
    static const uint32_t ks[] = {1, 2, 3, 7, 31, 100, 101, 500, 1199, 1200, 1201, 5000};
    struct support_data data;
    (void)state;
    for (unsigned copies = 1; copies <= 8; copies += 7) {
        struct quire_build_options options = spann_options(QUIRE_METRIC_L2, 12);
        support_clusters(1200, 8, QUIRE_TYPE_F32, 4, &data);
        options.replicas = (float)copies;
        struct bench *b = bench_make(data, &options);
        float *queries = support_queries(&b->data, 8, 9);
        for (unsigned i = 0; i < SUPPORT_COUNT(ks); i++)
            for (unsigned mode = 0; mode < 2 * SPANN_MODES; mode++) {
                const float *query = queries + (size_t)(i % 8) * 8;
                ask_exact(b, query, ks[i], NULL);
                ask(b, mode % 2, query, support_search(ks[i], 0, mode < 2 ? ALL : 1), NULL, &b->answer);
                assert_int_equal(b->answer.n, ks[i] < 1200 ? ks[i] : 1200);
                check_distinct(&b->answer, 1200);
                if (mode < 2)
                    assert_true(spann_share(&b->answer, &b->exact) >= (ks[i] >= 1200 ? 1 : 0.99));
            }
        free(queries);
        bench_free(b);
    }
}

static void test_reads_max(void **state)
{
    struct support_data data;
    struct quire_build_options options = spann_options(QUIRE_METRIC_L2, 12);
    (void)state;
    support_clusters(2000, 48, QUIRE_TYPE_F32, 4, &data);
    struct bench *b = bench_make(data, &options);
    uint32_t found = 0;
    for (unsigned mode = 0; mode < SPANN_MODES; mode++)
        for (uint32_t limit = 1; limit < 16; limit++)
            for (uint32_t row = 0; row < 2000; row += 97) {
                const float *query = b->data.floats + (size_t)row * 48;
                struct quire_search_options search = support_search(limit % 2 ? 10 : 300, 0, 40);
                ask(b, mode, query, search, NULL, &b->answer);
                uint32_t unlimited = b->answer.stats.reads;
                search.reads_max = limit;
                ask(b, mode, query, search, NULL, &b->answer);
                if (b->answer.stats.reads > limit)
                    fail_msg("%u reads, at most %u, k %u", b->answer.stats.reads, limit, search.k);
                /* half of them are kept for the rows, so that lists are cut sooner */
                uint32_t free_below = mode == SPANN_HEADS ? limit / 2 : limit;
                assert_true(b->answer.stats.complete || unlimited > free_below);
                assert_true(unlimited > free_below || b->answer.stats.reads == unlimited);
                assert_true(b->answer.n == search.k || !b->answer.stats.complete);
                found += limit == 2 && mode == SPANN_HEADS && b->answer.n > 0 && b->answer.ids[0] == row;
            }
    /* one list and one block: of all lists the nearest is read, and it has the row nearly always */
    assert_true(found >= 16);
    bench_free(b);
}

/* More lists than blocks: what one search has looked at is nothing to the next. */
static void test_more_lists_than_blocks(void **state)
{
    struct support_data data;
    struct quire_build_options options = spann_options(QUIRE_METRIC_L2, 4);
    (void)state;
    support_clusters(3000, 4, QUIRE_TYPE_U8, 4, &data);
    struct bench *b = bench_make(data, &options);
    const struct segment_info *info = segment_info(b->segments[0]);
    assert_true(info->n_lists > 8 * info->n_blocks);
    check_rows(b, EVERY(29), 20, "small lists");
    bench_free(b);
}

/* The same data in units a thousandth as long: the same rows, the same reads. */
static void test_units_do_not_matter(void **state)
{
    struct support_data small, large;
    struct quire_build_options options = spann_options(QUIRE_METRIC_L2, 12);
    struct bench *b[2];
    uint64_t reads[2] = {0, 0};
    (void)state;
    support_clusters(1500, 32, QUIRE_TYPE_F32, 4, &small);
    support_clusters(1500, 32, QUIRE_TYPE_F32, 4, &large);
    for (size_t i = 0; i < 1500 * 32; i++) {
        ((float *)(void *)small.vectors)[i] *= 0x1p-10f;
        ((float *)(void *)large.vectors)[i] *= 0x1p10f;
    }
    support_floats(&small);
    support_floats(&large);
    b[0] = bench_make(small, &options);
    b[1] = bench_make(large, &options);
    for (uint32_t i = 0; i < 50; i++) {
        float query[32];
        for (unsigned u = 0; u < 2; u++) {
            /* a query at the middle of a list: all its rows are about as far as the spread */
            const struct segment *s = b[u]->segments[SPANN_HEADS];
            const struct list_entry *e = &s->lists->entries[i];
            for (uint32_t d = 0; d < 32; d++)
                query[d] = 0;
            for (uint32_t row = 0; row < b[u]->data.rows; row++) {
                const float *x = b[u]->data.floats + (size_t)row * 32;
                for (uint32_t d = 0; d < 32 && row % 50 == i; d++)
                    query[d] += x[d] / (float)(b[u]->data.rows / 50);
            }
            assert_true(e->own > 0);
            ask(b[u], SPANN_HEADS, query, support_search(10, 0, 30), NULL, u ? &b[0]->answer : &b[0]->exact);
            reads[u] += (u ? b[0]->answer : b[0]->exact).stats.reads;
        }
        assert_int_equal(b[0]->answer.n, b[0]->exact.n);
        for (uint32_t h = 0; h < b[0]->answer.n; h++)
            assert_int_equal(b[0]->answer.ids[h], b[0]->exact.ids[h]);
    }
    if (reads[0] != reads[1])
        fail_msg("%llu reads in small units, %llu in large ones", (unsigned long long)reads[0],
                 (unsigned long long)reads[1]);
    bench_free(b[0]);
    bench_free(b[1]);
}

/* ---- shapes of data ---------------------------------------------------------------------------------------------- */

static void test_identical_rows(void **state)
{
    struct support_data data;
    struct quire_build_options options = spann_options(QUIRE_METRIC_L2, 0);
    (void)state;
    support_data_alloc(SANITIZED_SIZE(100000, 15000), 16, QUIRE_TYPE_U8, &data);
    memset(data.vectors, 77, (size_t)data.rows * data.dim);
    support_floats(&data);
    struct bench *b = bench_make(data, &options);
    for (unsigned mode = 0; mode < SPANN_MODES; mode++)
        for (uint32_t k = 1; k <= 5000; k = 10 * k + 3) {
            ask(b, mode, b->data.floats, support_search(k, 0.95f, 0), NULL, &b->answer);
            assert_int_equal(b->answer.n, k);
            assert_true(b->answer.distances[k - 1] == 0);
            check_distinct(&b->answer, b->data.rows);
        }
    bench_free(b);
}

/* Clusters of 1, 2, 4, ... rows; or nine rows of ten in one place. */
static void test_unequal_clusters(void **state)
{
    struct support_data data;
    struct quire_build_options options = spann_options(QUIRE_METRIC_L2, 16);
    (void)state;
    for (unsigned shape = 0; shape < 2; shape++) {
        uint64_t random = 5;
        support_data_alloc(4095, 16, QUIRE_TYPE_F32, &data);
        for (uint32_t row = 0; row < data.rows; row++)
            for (uint32_t d = 0; d < 16; d++) {
                uint32_t cluster = shape == 0 ? 31u - (uint32_t)__builtin_clz(row + 1) : row % 10 ? 0 : row;
                float *at = (float *)(void *)data.vectors + (size_t)row * 16 + d;
                *at = (float)((cluster * 7919u + d * 104729u) % 10) + 0.1f * support_gauss(&random);
            }
        support_floats(&data);
        struct bench *b = bench_make(data, &options);
        check_rows(b, EVERY(211), 10, shape ? "nine of ten" : "powers of two");
        bench_free(b);
    }
}

static void test_few_rows(void **state)
{
    static const uint32_t counts[] = {1, 2, 3, 31, 32, 33, 65};
    (void)state;
    for (unsigned m = 0; m < SUPPORT_COUNT(metrics); m++)
        for (unsigned i = 0; i < SUPPORT_COUNT(counts); i++) {
            struct support_data data;
            struct quire_build_options options = spann_options(metrics[m], i % 2 ? 0 : 1);
            support_clusters(counts[i], 5, QUIRE_TYPE_F32, 8, &data);
            struct bench *b = bench_make(data, &options);
            check_rows(b, 7, counts[i], "few rows");
            bench_free(b);
        }
}

static void test_dimensions(void **state)
{
    struct support_data data;
    struct quire_build_options options = spann_options(QUIRE_METRIC_L2, 0);
    (void)state;
    for (unsigned m = 0; m < SUPPORT_COUNT(metrics); m++) {
        options.metric = metrics[m];
        support_clusters(SANITIZED_SIZE(300, 100), 4096, QUIRE_TYPE_F16, 8, &data);
        struct bench *b = bench_make(data, &options);
        check_rows(b, 67, 5, "4096 dimensions");
        bench_free(b);
    }
    options.metric = QUIRE_METRIC_L2;
    support_clusters(2000, 1, QUIRE_TYPE_F32, 8, &data);
    struct bench *b = bench_make(data, &options);
    check_rows(b, 67, 5, "one dimension");
    bench_free(b);
}

static void test_outliers(void **state)
{
    struct support_data data;
    struct quire_build_options options = spann_options(QUIRE_METRIC_L2, 12);
    (void)state;
    support_clusters(1500, 16, QUIRE_TYPE_F32, 8, &data);
    for (uint32_t row = 0; row < 1500; row += 300)
        for (uint32_t d = 0; d < 16; d++)
            ((float *)(void *)data.vectors)[row * 16 + d] += d % 2 ? 1e6f : -1e6f;
    support_floats(&data);
    struct bench *b = bench_make(data, &options);
    check_rows(b, 50, 1, "outliers"); /* the outliers themselves among them */
    bench_free(b);
}

/* ---- dead rows --------------------------------------------------------------------------------------------------- */

/* A bitmap of places: all but one in `every` are dead (0: none), and the `near` nearest to the query. */
static uint8_t *dead_rows(struct bench *b, const float *query, uint32_t near, uint32_t every)
{
    uint8_t *dead = calloc(b->data.rows / 8 + 1, 1);
    assert_non_null(dead);
    for (uint32_t row = 0; every && row < b->data.rows; row++)
        if (row % every)
            bitmap_add(dead, row);
    if (near == 0)
        return dead;
    ask_exact(b, query, near, NULL);
    for (uint32_t i = 0; i < b->exact.n; i++)
        bitmap_add(dead, b->exact.rows[i]);
    return dead;
}

static uint32_t count_living(const uint8_t *dead, uint32_t rows)
{
    uint32_t n = 0;
    for (uint32_t row = 0; row < rows; row++)
        n += !bitmap_has(dead, row);
    return n;
}

/* Dead rows are never answered, and k others are as long as there are so many. */
static void check_dead(struct bench *b, const float *query, uint32_t near, uint32_t every, uint32_t k)
{
    uint8_t *dead = dead_rows(b, query, near, every);
    uint32_t living = count_living(dead, b->data.rows);
    ask_exact(b, query, k, dead);
    assert_int_equal(b->exact.n, k < living ? k : living);
    for (unsigned i = 0; i < 2 * SPANN_MODES; i++) {
        bool all = i < SPANN_MODES;
        ask(b, i % SPANN_MODES, query, support_search(k, 0, all ? ALL : 2), dead, &b->answer);
        for (uint32_t h = 0; h < b->answer.n; h++)
            assert_false(bitmap_has(dead, b->answer.rows[h]));
        if (b->answer.n != b->exact.n)
            fail_msg("%u nearest dead, one in %u alive, k %u, mode %u, effort %s: %u hits of %u", near, every, k,
                     i % SPANN_MODES, all ? "all" : "2", b->answer.n, b->exact.n);
        if (all)
            assert_true(spann_share(&b->answer, &b->exact) >= 0.99);
    }
    free(dead);
}

static void test_dead_rows(void **state)
{
    static const uint32_t nears[] = {0, 10, 700, 2900, 3000}, everies[] = {0, 2, 50, 2000}, ks[] = {1, 10, 200};
    struct support_data data;
    (void)state;
    const uint32_t nears_step = SANITIZED_SIZE(1, 2);
    for (uint32_t list_rows = 12; list_rows <= 1500; list_rows += 1488) {
        struct quire_build_options options = spann_options(QUIRE_METRIC_L2, list_rows);
        support_clusters(3000, 24, QUIRE_TYPE_F32, 8, &data);
        struct bench *b = bench_make(data, &options);
        for (unsigned n = 0; n < SUPPORT_COUNT(nears); n += nears_step)
            for (unsigned e = 0; e < SUPPORT_COUNT(everies); e++)
                for (unsigned i = e % SANITIZED_SIZE(1, 3); i < SUPPORT_COUNT(ks); i += SANITIZED_SIZE(1, 3))
                    check_dead(b, b->data.floats + (size_t)(n * 131 + e * 7 + i) * 24, nears[n], everies[e], ks[i]);
        bench_free(b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recall_of_types),     cmocka_unit_test(test_recall_of_slots),
        cmocka_unit_test(test_recall_of_bits),      cmocka_unit_test(test_any_k),
        cmocka_unit_test(test_reads_max),           cmocka_unit_test(test_more_lists_than_blocks),
        cmocka_unit_test(test_units_do_not_matter), cmocka_unit_test(test_identical_rows),
        cmocka_unit_test(test_unequal_clusters),    cmocka_unit_test(test_few_rows),
        cmocka_unit_test(test_dimensions),          cmocka_unit_test(test_outliers),
        cmocka_unit_test(test_dead_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
