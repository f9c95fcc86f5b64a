/*
 * bench_memtable.c - elements in memory: what a put costs, what a search finds and costs, for a file of vectors.
 *
 *   bench_memtable BASE QUERIES l2|cosine|ip [--rows N] [--queries 200] [--slot q8|f32|u8]
 *
 * Puts the rows of BASE one by one, as one writer would, and then searches for the queries: by default, with other
 * recalls, k and efforts, and exactly. Recall is against the exact nearest by the file's own numbers. A line of JSON
 * for the puts and one for each kind of search.
 */
#include "datasets/vecfile.h"
#include "index/kernels/kernels.h"
#include "index/memtable/memtable.h"
#include "index/vector/near.h"
#include "io/clock.h"
#include "tests/bench/support_bench.h"
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { K_MOST = 100 };

struct bench {
    struct vectors base, queries;
    enum quire_metric metric;
    enum quire_slot slot;
    uint32_t rows, n_queries;
    float *floats;      /* base: rows x dim; unit length under cosine */
    float *asked;       /* queries: n_queries x dim */
    float product_most; /* no product is larger */
    uint32_t *truth;
    struct epochs *epochs;
    struct memtable *table;
};

/* The length of a vector, which becomes one under cosine. */
static float measure(const struct bench *b, float *x)
{
    uint32_t dim = b->base.dim;
    float length = sqrtf(kernels()->f32_dot(x, x, dim));
    if (b->metric != QUIRE_METRIC_COSINE || length == 0)
        return length;
    for (uint32_t i = 0; i < dim; i++)
        x[i] /= length;
    return 1;
}

static void load(struct bench *b, const char *base, const char *queries)
{
    struct quire_error err;
    check(vecfile_vectors_load(base, VECFILE_AUTO, &b->base, &err), &err);
    check(vecfile_vectors_load(queries, VECFILE_AUTO, &b->queries, &err), &err);
    if (b->base.dim != b->queries.dim)
        fail("base and queries have different dimensions");
    b->rows = b->rows && b->rows < b->base.rows ? b->rows : (uint32_t)b->base.rows;
    b->n_queries = b->n_queries < b->queries.rows ? b->n_queries : (uint32_t)b->queries.rows;
    uint32_t dim = b->base.dim;
    b->floats = room(sizeof(float) * b->rows * dim);
    b->asked = room(sizeof(float) * b->n_queries * dim);
    space_floats(b->base.type, b->base.data, (size_t)b->rows * dim, b->floats);
    space_floats(b->queries.type, b->queries.data, (size_t)b->n_queries * dim, b->asked);
    float longest = 0, longest_query = 0;
    for (uint32_t i = 0; i < b->rows; i++)
        longest = fmaxf(longest, measure(b, b->floats + (size_t)i * dim));
    for (uint32_t i = 0; i < b->n_queries; i++)
        longest_query = fmaxf(longest_query, measure(b, b->asked + (size_t)i * dim));
    b->product_most = longest * longest_query;
}

static void find_truth(struct bench *b)
{
    uint32_t dim = b->base.dim;
    near_t *all = room(sizeof *all * b->rows), *spare = room(sizeof *spare * K_MOST);
    b->truth = room(sizeof *b->truth * b->n_queries * K_MOST);
    for (uint32_t q = 0; q < b->n_queries; q++) {
        const float *query = b->asked + (size_t)q * dim;
        for (uint32_t i = 0; i < b->rows; i++) {
            const float *x = b->floats + (size_t)i * dim;
            float d = b->metric == QUIRE_METRIC_L2 ? kernels()->f32_l2(query, x, dim)
                                                   : b->product_most - kernels()->f32_dot(query, x, dim);
            all[i] = near_of(d, i);
        }
        uint32_t n = near_keep_sorted(all, b->rows, K_MOST, spare);
        for (uint32_t i = 0; i < n; i++)
            b->truth[q * K_MOST + i] = near_row(all[i]);
    }
    free(all);
    free(spare);
}

static void put_all(struct bench *b)
{
    struct memtable_config config = {
        .dim = b->base.dim, .type = b->base.type, .metric = b->metric, .slot = b->slot, .seed = 1, .epochs = b->epochs};
    struct quire_error err;
    struct memtable_stats stats;
    size_t bytes = b->base.dim * quire_type_bytes(b->base.type);
    uint64_t longest = 0, begin = clock_ns(), quarter = 0;
    check(memtable_create(&config, &b->table, &err), &err);
    for (uint32_t i = 0; i < b->rows; i++) {
        char key[16];
        uint32_t row;
        uint64_t before = clock_ns();
        quarter = i == b->rows / 4 * 3 ? before : quarter;
        uint32_t key_bytes = (uint32_t)snprintf(key, sizeof key, "doc:%u", i);
        check(memtable_put(b->table, key, key_bytes, (const uint8_t *)b->base.data + i * bytes, false, NULL, 0, i + 1,
                           &row),
              NULL);
        uint64_t took = clock_ns() - before;
        longest = took > longest ? took : longest;
    }
    uint64_t end = clock_ns();
    memtable_get_stats(b->table, &stats);
    printf("{\"rows\": %u, \"put_us\": %.2f, \"put_us_last_quarter\": %.2f, \"longest_put_us\": %.0f, "
           "\"bytes_per_row\": %.0f}\n",
           b->rows, (double)(end - begin) / 1e3 / b->rows, (double)(end - quarter) / 1e3 / (b->rows - b->rows / 4 * 3),
           (double)longest / 1e3, (double)stats.bytes / b->rows);
}

static int ascending(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static void search_all(struct bench *b, uint32_t k, float recall, uint32_t effort, bool exact)
{
    struct memtable_hit hits[K_MOST];
    double *us = room(sizeof *us * b->n_queries), found = 0, scored = 0;
    for (uint32_t q = 0; q < b->n_queries; q++) {
        struct memtable_query query = {.query = b->asked + (size_t)q * b->base.dim,
                                       .k = k,
                                       .recall = recall,
                                       .effort = effort,
                                       .exact = exact,
                                       .snapshot = b->rows};
        struct memtable_work work;
        unsigned slot = epoch_enter(b->epochs);
        uint64_t begin = clock_ns();
        int n = memtable_search(b->table, &query, hits, &work);
        us[q] = (double)(clock_ns() - begin) / 1e3;
        epoch_exit(b->epochs, slot);
        check(n, NULL);
        scored += work.scored;
        for (int i = 0; i < n; i++)
            for (uint32_t j = 0; j < k; j++)
                found += b->truth[q * K_MOST + j] == hits[i].row;
    }
    qsort(us, b->n_queries, sizeof *us, ascending);
    printf("{\"k\": %u, \"recall_asked\": %.3f, \"effort\": %u, \"exact\": %s, \"recall\": %.4f, \"p50_us\": %.0f, "
           "\"p99_us\": %.0f, \"rows_scored\": %.0f}\n",
           k, (double)recall, effort, exact ? "true" : "false", found / k / b->n_queries, us[b->n_queries / 2],
           us[b->n_queries * 99 / 100], scored / b->n_queries);
    free(us);
}

static const struct option options[] = {
    {"rows", required_argument, NULL, 'r'},
    {"queries", required_argument, NULL, 'q'},
    {"slot", required_argument, NULL, 's'},
    {NULL, 0, NULL, 0},
};

static void take_options(int argc, char **argv, struct bench *b)
{
    *b = (struct bench){.n_queries = 200, .slot = QUIRE_SLOT_Q8};
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) >= 0;) {
        if (c == 'r')
            b->rows = (uint32_t)strtoul(optarg, NULL, 10);
        else if (c == 'q')
            b->n_queries = (uint32_t)strtoul(optarg, NULL, 10);
        else if (c == 's')
            b->slot = strcmp(optarg, "f32") == 0  ? QUIRE_SLOT_F32
                      : strcmp(optarg, "u8") == 0 ? QUIRE_SLOT_U8
                                                  : QUIRE_SLOT_Q8;
        else
            exit(2);
    }
    if (argc - optind != 3)
        fail("usage: bench_memtable BASE QUERIES l2|cosine|ip [--rows N] [--queries 200] [--slot q8|f32|u8]");
    const char *metric = argv[optind + 2];
    b->metric = strcmp(metric, "l2") == 0   ? QUIRE_METRIC_L2
                : strcmp(metric, "ip") == 0 ? QUIRE_METRIC_IP
                                            : QUIRE_METRIC_COSINE;
}

int main(int argc, char **argv)
{
    static const uint32_t efforts[] = {10, 50, 100, 200, 500, 1000};
    static const float recalls[] = {0.8f, 0.9f, 0.95f, 0.98f, 0.99f, 0.999f};
    struct bench b;
    take_options(argc, argv, &b);
    load(&b, argv[optind], argv[optind + 1]);
    find_truth(&b);
    check(epochs_create(&b.epochs), NULL);
    put_all(&b);
    for (unsigned i = 0; i < sizeof recalls / sizeof *recalls; i++)
        search_all(&b, 10, recalls[i], 0, false);
    search_all(&b, 1, 0, 0, false);
    search_all(&b, 100, 0, 0, false);
    for (unsigned i = 0; i < sizeof efforts / sizeof *efforts; i++)
        search_all(&b, 10, 0, efforts[i], false);
    search_all(&b, 10, 0, 0, true);
    memtable_destroy(b.table);
    epochs_destroy(b.epochs);
    vecfile_vectors_free(&b.base);
    vecfile_vectors_free(&b.queries);
    free(b.floats);
    free(b.asked);
    free(b.truth);
    return 0;
}
