/*
 * test_clusters.c - clusters of near rows and the lists that are made of them, whatever the input looks like.
 *
 * What must hold always: the order is a permutation, clusters are runs of it of 1 to `most` rows, heads are rows of
 * their clusters, replicas are rows of others, none twice in a list, none beyond list_most. Then: the same for any
 * number of threads and from files, near the wanted number of replicas, and better than bisection alone by what it is
 * for, the spread around the points. Hard inputs: equal rows, clusters of very different size, one with nearly all
 * rows, rows far out, clusters that were known before.
 */
#include "index/cluster/clusters.h"
#include "tests/index/support_index.h"
#include "tests/index/support_rows.h"
#include "tests/sanitized.h"
#include "tests/support/fault.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static _Thread_local unsigned fail_in; /* allocations; 0: none fails */

#if !SANITIZED
static bool may_allocate(void)
{
    return fail_in == 0 || --fail_in > 0;
}

#include "tests/allocator.h"
#endif

#define DIM 32u

/* Rows in memory with what is made of them. */
struct subject {
    struct row_store store;
    uint32_t *order;
    struct clusters clusters;
};

static struct clusters_config config_of(uint32_t rows)
{
    return (struct clusters_config){.rows = rows,
                                    .most = 2 * rows,
                                    .rounds = 3,
                                    .replicas = 2,
                                    .list_most = 6 * rows,
                                    .threads = 2,
                                    .seed = 5,
                                    .window_rows = 4 * rows};
}

static void subject_open(struct subject *s, const struct rows *rows)
{
    assert_int_equal(row_store_open(&s->store, rows->n, rows->code_dim, NULL, NULL, false, NULL), 0);
    for (uint32_t i = 0; i < rows->n; i++)
        rows_copy(rows, i, &s->store.rows, i);
    s->order = malloc(sizeof *s->order * rows->n);
    assert_non_null(s->order);
    s->clusters = (struct clusters){0};
}

static void subject_close(struct subject *s)
{
    clusters_fini(&s->clusters);
    row_store_close(&s->store);
    free(s->order);
}

static void check_find(const struct rows *rows, const struct rows *sorted, const uint32_t *order,
                       const struct clusters *clusters, uint32_t most)
{
    uint8_t *seen = calloc(rows->n, 1);
    assert_non_null(seen);
    for (uint32_t i = 0; i < rows->n; i++) {
        assert_true(order[i] < rows->n);
        assert_false(seen[order[i]]);
        seen[order[i]] = 1;
        assert_memory_equal(sorted->codes + (size_t)i * rows->code_dim, rows->codes + (size_t)order[i] * rows->code_dim,
                            rows->code_dim);
        assert_true(sorted->f[i] == rows->f[order[i]] && sorted->norm2[i] == rows->norm2[order[i]] &&
                    sorted->level_sum[i] == rows->level_sum[order[i]]);
    }
    free(seen);
    assert_true(clusters->n >= 1);
    assert_int_equal(clusters->first[0], 0);
    assert_int_equal(clusters->first[clusters->n], rows->n);
    for (uint32_t c = 0; c < clusters->n; c++)
        assert_in_range(clusters->first[c + 1] - clusters->first[c], 1, most);
}

static void check_close(const struct clusters *clusters, uint32_t list_most)
{
    assert_int_equal(clusters->replica_at[0], 0);
    assert_int_equal(clusters->points.n, clusters->n);
    for (uint32_t c = 0; c < clusters->n; c++) {
        uint32_t first = clusters->first[c], end = clusters->first[c + 1];
        uint64_t from = clusters->replica_at[c], to = clusters->replica_at[c + 1];
        assert_true(clusters->heads[c] >= first && clusters->heads[c] < end);
        assert_true(from <= to);
        assert_true(to == from || end - first + to - from <= list_most);
        for (uint64_t i = from; i < to; i++) {
            uint32_t row = clusters->replicas[i];
            assert_true(row < clusters->first[clusters->n]);
            assert_true(row < first || row >= end);
            assert_true(i == from || row > clusters->replicas[i - 1]);
        }
    }
}

/* Both steps in memory, with every promise checked. */
static void make(struct subject *s, const struct rows *rows, const struct clusters_known *known,
                 const struct clusters_config *config)
{
    subject_open(s, rows);
    assert_int_equal(clusters_find(&s->store, NULL, known, config, NULL, s->order, &s->clusters), 0);
    check_find(rows, &s->store.rows, s->order, &s->clusters, config->most);
    assert_int_equal(clusters_close(&s->store, config, NULL, &s->clusters), 0);
    check_close(&s->clusters, config->list_most);
}

static void check_equal(const struct clusters *a, const struct clusters *b)
{
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->first, b->first, sizeof *a->first * (a->n + 1));
    assert_memory_equal(a->heads, b->heads, sizeof *a->heads * a->n);
    assert_memory_equal(a->points.codes, b->points.codes, (size_t)a->n * a->points.code_dim);
    assert_memory_equal(a->replica_at, b->replica_at, sizeof *a->replica_at * (a->n + 1));
    assert_memory_equal(a->replicas, b->replicas, sizeof *a->replicas * a->replica_at[a->n]);
}

static double replicas_of(const struct clusters *clusters)
{
    return (double)clusters->replica_at[clusters->n] / clusters->first[clusters->n];
}

/* Mean squared distance of the rows from their clusters' middles. */
static double spread_of(const struct subject *s)
{
    const struct rows *rows = &s->store.rows;
    float x[DIM], point[DIM];
    double sum = 0;
    for (uint32_t c = 0; c < s->clusters.n; c++) {
        const struct rows *points = &s->clusters.points;
        code_decode(points->codes + (size_t)c * DIM, DIM, 8, points->f[c], point);
        for (uint32_t row = s->clusters.first[c]; row < s->clusters.first[c + 1]; row++) {
            code_decode(rows->codes + (size_t)row * DIM, DIM, 8, rows->f[row], x);
            sum += support_distance(QUIRE_METRIC_L2, x, point, DIM);
        }
    }
    return sum / rows->n;
}

static struct rows near_rows(uint32_t n, uint64_t seed, struct support_data *data)
{
    support_clusters(n, DIM, QUIRE_TYPE_F32, seed, data);
    return support_rows(data->floats, n, DIM);
}

/* ---- what must hold ---------------------------------------------------------------------------------------------- */

static void every_row_once(void **state)
{
    static const uint32_t counts[] = {1, 2, 3, 9, 33, 64, 100, 1000, 5003}, sizes[] = {1, 2, 16, 100};
    struct support_data data;
    (void)state;
    support_clusters(5003, DIM, QUIRE_TYPE_F32, 1, &data);
    for (size_t i = 0; i < SUPPORT_COUNT(counts); i++) {
        struct rows rows = support_rows(data.floats, counts[i], DIM);
        for (size_t j = 0; j < SUPPORT_COUNT(sizes); j++) {
            struct clusters_config config = config_of(sizes[j]);
            struct subject s;
            make(&s, &rows, NULL, &config);
            assert_in_range(s.clusters.n, (counts[i] + config.most - 1) / config.most, counts[i] / sizes[j] + 1);
            subject_close(&s);
        }
        support_rows_free(&rows);
    }
    support_data_free(&data);
}

static void the_same_for_any_threads(void **state)
{
    struct support_data data;
    struct rows rows = near_rows(20000, 2, &data);
    struct clusters_config config = config_of(40);
    struct subject one, two, four;
    (void)state;
    config.threads = 1;
    make(&one, &rows, NULL, &config);
    config.threads = 2;
    make(&two, &rows, NULL, &config);
    config.threads = 4;
    make(&four, &rows, NULL, &config);
    assert_memory_equal(one.order, two.order, sizeof *one.order * rows.n);
    assert_memory_equal(one.order, four.order, sizeof *one.order * rows.n);
    check_equal(&one.clusters, &two.clusters);
    check_equal(&one.clusters, &four.clusters);
    subject_close(&one);
    subject_close(&two);
    subject_close(&four);
    support_rows_free(&rows);
    support_data_free(&data);
}

/* Refinement draws clusters together: what it is for. */
static void rounds_lessen_the_spread(void **state)
{
    struct support_data data;
    struct rows rows = near_rows(8000, 3, &data);
    struct clusters_config config = config_of(32);
    struct subject none, some;
    (void)state;
    config.rounds = 0;
    make(&none, &rows, NULL, &config);
    config.rounds = 4;
    make(&some, &rows, NULL, &config);
    assert_true(spread_of(&some) < 0.8 * spread_of(&none));
    subject_close(&none);
    subject_close(&some);
    support_rows_free(&rows);
    support_data_free(&data);
}

static void heads_are_nearest_to_the_middle(void **state)
{
    struct support_data data;
    struct rows rows = near_rows(3000, 4, &data);
    struct clusters_config config = config_of(32);
    struct subject middles, heads;
    float x[DIM], mean[DIM];
    (void)state;
    make(&middles, &rows, NULL, &config);
    config.points_are_heads = true;
    make(&heads, &rows, NULL, &config);
    assert_memory_equal(middles.clusters.heads, heads.clusters.heads,
                        sizeof *middles.clusters.heads * middles.clusters.n);
    for (uint32_t c = 0; c < heads.clusters.n; c++) {
        const struct rows *points = &middles.clusters.points, *all = &middles.store.rows;
        uint32_t head = heads.clusters.heads[c];
        assert_memory_equal(heads.clusters.points.codes + (size_t)c * DIM, all->codes + (size_t)head * DIM, DIM);
        code_decode(points->codes + (size_t)c * DIM, DIM, 8, points->f[c], mean);
        code_decode(all->codes + (size_t)head * DIM, DIM, 8, all->f[head], x);
        /* the middle is known by its code here, which errs by about a hundredth of its length */
        double least = sqrt(support_distance(QUIRE_METRIC_L2, x, mean, DIM)), error = 0.02 * sqrt(points->norm2[c]);
        for (uint32_t row = heads.clusters.first[c]; row < heads.clusters.first[c + 1]; row++) {
            code_decode(all->codes + (size_t)row * DIM, DIM, 8, all->f[row], x);
            assert_true(sqrt(support_distance(QUIRE_METRIC_L2, x, mean, DIM)) >= least - error);
        }
    }
    subject_close(&middles);
    subject_close(&heads);
    support_rows_free(&rows);
    support_data_free(&data);
}

/* ---- replicas ---------------------------------------------------------------------------------------------------- */

static void as_many_replicas_as_wanted(void **state)
{
    static const float wanted[] = {1, 1.25f, 1.5f, 2};
    struct rows rows;
    struct clusters_config config = config_of(40);
    float *vectors = malloc(sizeof *vectors * 10000 * DIM);
    uint64_t seed = 7;
    (void)state;
    assert_non_null(vectors);
    for (uint32_t i = 0; i < 10000 * DIM; i++) /* no gaps between clusters: any number of replicas is to be had */
        vectors[i] = i % DIM < 6 ? support_gauss(&seed) : 0;
    rows = support_rows(vectors, 10000, DIM);
    config.list_most = UINT32_MAX;
    for (size_t i = 0; i < SUPPORT_COUNT(wanted); i++) {
        struct subject s;
        config.replicas = wanted[i];
        make(&s, &rows, NULL, &config);
        assert_true(replicas_of(&s.clusters) <= (double)wanted[i] - 1);
        assert_true(replicas_of(&s.clusters) >= 0.95 * ((double)wanted[i] - 1));
        subject_close(&s);
    }
    support_rows_free(&rows);
    free(vectors);
}

/* What a bounded list keeps is among what it had unbounded. */
static void full_lists_keep_some(void **state)
{
    struct support_data data;
    struct rows rows = near_rows(6000, 8, &data);
    struct clusters_config config = config_of(32);
    struct subject all, some;
    uint64_t fewer = 0;
    (void)state;
    config.list_most = UINT32_MAX;
    make(&all, &rows, NULL, &config);
    config.list_most = 60;
    make(&some, &rows, NULL, &config);
    for (uint32_t c = 0; c < all.clusters.n; c++) {
        uint64_t at = all.clusters.replica_at[c], n_all = all.clusters.replica_at[c + 1] - at;
        uint64_t from = some.clusters.replica_at[c], n_some = some.clusters.replica_at[c + 1] - from;
        uint32_t own = all.clusters.first[c + 1] - all.clusters.first[c], room = own < 60 ? 60 - own : 0;
        assert_int_equal(n_some, n_all < room ? n_all : room);
        fewer += n_some < n_all;
        for (uint64_t i = from; i < from + n_some; i++) {
            while (all.clusters.replicas[at] < some.clusters.replicas[i])
                at++;
            assert_int_equal(all.clusters.replicas[at], some.clusters.replicas[i]);
        }
    }
    assert_true(fewer > 0);
    subject_close(&all);
    subject_close(&some);
    support_rows_free(&rows);
    support_data_free(&data);
}

/* ---- hard inputs ------------------------------------------------------------------------------------------------- */

static void identical_rows_stay_balanced(void **state)
{
    enum { N = 100000 };
    float *vectors = malloc(sizeof *vectors * N * DIM);
    struct clusters_config config = config_of(100);
    struct subject s;
    (void)state;
    assert_non_null(vectors);
    for (uint32_t i = 0; i < N * DIM; i++)
        vectors[i] = (float)(i % DIM) * 0.37f - 3;
    struct rows rows = support_rows(vectors, N, DIM);
    free(vectors);
    make(&s, &rows, NULL, &config);
    assert_int_equal(s.clusters.n, N / 100);
    for (uint32_t c = 0; c < s.clusters.n; c++)
        assert_int_equal(s.clusters.first[c + 1] - s.clusters.first[c], 100);
    assert_int_equal(s.clusters.replica_at[s.clusters.n], 0);
    subject_close(&s);
    support_rows_free(&rows);
}

/* Rows around 10 places, of which the i-th has share[i] of the rows; every row_far-th row lies far out (0: none). */
static struct rows uneven_rows(uint32_t n, const float share[10], uint32_t row_far, float far)
{
    float *vectors = malloc(sizeof *vectors * n * DIM), places[10][DIM];
    uint64_t seed = 11;
    assert_non_null(vectors);
    for (uint32_t i = 0; i < 10 * DIM; i++)
        places[i / DIM][i % DIM] = 10 * support_gauss(&seed);
    for (uint32_t row = 0; row < n; row++) {
        float at = (float)((uint64_t)row * 7919 % n) / (float)n;
        uint32_t place = 0;
        for (; place < 9 && at >= share[place]; place++)
            at -= share[place];
        float scale = row_far && row % row_far == 0 ? far : 1;
        for (uint32_t d = 0; d < DIM; d++)
            vectors[row * DIM + d] = places[place][d] + scale * support_gauss(&seed);
    }
    struct rows rows = support_rows(vectors, n, DIM);
    free(vectors);
    return rows;
}

static void check_uneven(const float share[10], uint32_t row_far, float far)
{
    struct rows rows = uneven_rows(20000, share, row_far, far);
    struct clusters_config config = config_of(50);
    struct subject s;
    make(&s, &rows, NULL, &config);
    assert_in_range(s.clusters.n, 20000 / config.most, 20000 / config.rows);
    subject_close(&s);
    support_rows_free(&rows);
}

static void uneven_clusters(void **state)
{
    static const float falling[10] = {0.5f, 0.25f, 0.12f, 0.06f, 0.03f, 0.02f, 0.01f, 0.005f, 0.004f, 0.001f};
    static const float one[10] = {0.9f, 0.02f, 0.01f, 0.01f, 0.01f, 0.01f, 0.01f, 0.01f, 0.01f, 0.01f};
    (void)state;
    check_uneven(falling, 0, 0);
    check_uneven(one, 0, 0);
    check_uneven(one, 500, 1000);
}

/* A row a thousand times as far out as the others must not spoil their clusters. */
static void rows_far_out(void **state)
{
    static const float even[10] = {0.1f, 0.1f, 0.1f, 0.1f, 0.1f, 0.1f, 0.1f, 0.1f, 0.1f, 0.1f};
    struct rows with = uneven_rows(10000, even, 1000, 1000);
    struct clusters_config config = config_of(50);
    struct subject s;
    uint32_t spoilt = 0;
    float x[DIM], point[DIM];
    (void)state;
    config.rounds = 4;
    make(&s, &with, NULL, &config);
    for (uint32_t c = 0; c < s.clusters.n; c++) {
        const struct rows *points = &s.clusters.points;
        code_decode(points->codes + (size_t)c * DIM, DIM, 8, points->f[c], point);
        for (uint32_t row = s.clusters.first[c]; row < s.clusters.first[c + 1]; row++) {
            code_decode(s.store.rows.codes + (size_t)row * DIM, DIM, 8, s.store.rows.f[row], x);
            spoilt += s.order[row] % 1000 != 0 && support_distance(QUIRE_METRIC_L2, x, point, DIM) > 20 * 20;
        }
    }
    assert_true(spoilt < 10); /* rows of clusters with more rows far out than others */
    subject_close(&s);
    support_rows_free(&with);
}

/* ---- known clusters ---------------------------------------------------------------------------------------------- */

/* Clusters of the first `old` rows, as numbers of all n rows in their own order. */
static uint32_t *known_of(const struct rows *rows, uint32_t old, const struct clusters_config *config,
                          struct clusters_known *known)
{
    struct rows part = rows_part(rows, 0, old);
    struct subject s;
    uint32_t *cluster_of = malloc(sizeof *cluster_of * rows->n);
    assert_non_null(cluster_of);
    memset(cluster_of, 0xff, sizeof *cluster_of * rows->n);
    make(&s, &part, NULL, config);
    for (uint32_t c = 0; c < s.clusters.n; c++)
        for (uint32_t row = s.clusters.first[c]; row < s.clusters.first[c + 1]; row++)
            cluster_of[s.order[row]] = c;
    *known = (struct clusters_known){s.clusters.n, cluster_of};
    subject_close(&s);
    return cluster_of;
}

static void known_clusters_take_new_rows(void **state)
{
    struct support_data data;
    struct rows rows = near_rows(11000, 9, &data);
    struct clusters_config config = config_of(40);
    struct clusters_known known;
    struct subject s, anew;
    (void)state;
    uint32_t *cluster_of = known_of(&rows, 10000, &config, &known), together = 0, pairs = 0;
    make(&s, &rows, &known, &config);
    make(&anew, &rows, NULL, &config);
    assert_true(spread_of(&s) < 1.1 * spread_of(&anew));
    for (uint32_t c = 0; c < s.clusters.n; c++)
        for (uint32_t row = s.clusters.first[c] + 1; row < s.clusters.first[c + 1]; row++)
            if (s.order[row] < 10000 && s.order[row - 1] < 10000) {
                pairs++;
                together += cluster_of[s.order[row]] == cluster_of[s.order[row - 1]];
            }
    assert_true(together > pairs * 0.6); /* most rows are where they were */
    subject_close(&s);
    subject_close(&anew);
    free(cluster_of);
    support_rows_free(&rows);
    support_data_free(&data);
}

/* Known clusters of any kind: too large, too small, empty, few rows, none. */
static void known_clusters_are_mended(void **state)
{
    struct support_data data;
    struct rows rows = near_rows(6000, 10, &data);
    struct clusters_config config = config_of(40);
    uint32_t *cluster_of = malloc(sizeof *cluster_of * rows.n);
    (void)state;
    assert_non_null(cluster_of);
    static const uint32_t divisors[] = {1, 3, 40, 1000, 6000};
    for (size_t i = 0; i < SUPPORT_COUNT(divisors); i++)
        for (uint32_t without = 0; without < 4; without++) {
            struct clusters_known known = {2 * rows.n / divisors[i] + 3, cluster_of};
            struct subject s;
            for (uint32_t row = 0; row < rows.n; row++)
                cluster_of[row] = row % 4 < without ? UINT32_MAX : 2 * (row / divisors[i]) + 1;
            make(&s, &rows, &known, &config);
            assert_in_range(s.clusters.n, rows.n / config.most, rows.n / 10);
            subject_close(&s);
        }
    free(cluster_of);
    support_rows_free(&rows);
    support_data_free(&data);
}

/* ---- in files ---------------------------------------------------------------------------------------------------- */

struct files {
    struct io_fs *fs;
    struct row_store store, spare;
};

static void files_open(struct files *f, struct io_fs *fs, const struct rows *rows)
{
    uint32_t *inputs = malloc(sizeof *inputs * rows->n);
    assert_non_null(inputs);
    for (uint32_t i = 0; i < rows->n; i++)
        inputs[i] = i;
    f->fs = fs;
    assert_int_equal(row_store_open(&f->store, rows->n, rows->code_dim, fs, "/rows", false, NULL), 0);
    assert_int_equal(row_store_open(&f->spare, rows->n, rows->code_dim, fs, "/spare", false, NULL), 0);
    assert_int_equal(row_store_write(&f->store, 0, rows, inputs), 0);
    free(inputs);
}

static void files_close(struct files *f)
{
    row_store_close(&f->store);
    row_store_close(&f->spare);
    f->fs->ops->unlink(f->fs, "/rows");
    f->fs->ops->unlink(f->fs, "/spare");
}

static void check_files(struct io_fs *fs, const struct rows *rows, const struct clusters_known *known,
                        const struct clusters_config *config, const struct subject *wanted)
{
    struct files f;
    struct clusters clusters;
    struct rows sorted;
    uint32_t *order = malloc(sizeof *order * rows->n), *inputs = malloc(sizeof *inputs * rows->n);
    assert_true(order && inputs);
    assert_int_equal(rows_alloc(&sorted, rows->n, rows->code_dim), 0);
    files_open(&f, fs, rows);
    assert_int_equal(clusters_find(&f.store, &f.spare, known, config, NULL, order, &clusters), 0);
    assert_int_equal(clusters_close(&f.store, config, NULL, &clusters), 0);
    assert_int_equal(row_store_read(&f.store, 0, rows->n, &sorted, 0, inputs), 0);
    check_find(rows, &sorted, order, &clusters, config->most);
    assert_memory_equal(order, wanted->order, sizeof *order * rows->n);
    assert_memory_equal(inputs, order, sizeof *order * rows->n);
    check_equal(&clusters, &wanted->clusters);
    clusters_fini(&clusters);
    files_close(&f);
    rows_free(&sorted);
    free(order);
    free(inputs);
}

static void files_give_the_same(void **state)
{
    static const uint32_t windows[] = {30, 200, 1501, 5999, 6000, 9000};
    struct support_data data;
    struct rows rows = near_rows(6000, 12, &data);
    struct clusters_config config = config_of(30);
    struct io_fs *fs = fault_fs_create();
    struct clusters_known known;
    struct subject s, again;
    (void)state;
    assert_non_null(fs);
    make(&s, &rows, NULL, &config);
    uint32_t *cluster_of = known_of(&rows, 5000, &config, &known);
    make(&again, &rows, &known, &config);
    for (size_t i = 0; i < SUPPORT_COUNT(windows); i++) {
        config.window_rows = windows[i];
        check_files(fs, &rows, NULL, &config, &s);
        if (windows[i] >= 200) /* no known cluster is larger */
            check_files(fs, &rows, &known, &config, &again);
    }
    subject_close(&s);
    subject_close(&again);
    free(cluster_of);
    support_rows_free(&rows);
    support_data_free(&data);
    fault_fs_destroy(fs);
}

static void failing_files(void **state)
{
    struct support_data data;
    struct rows rows = near_rows(600, 13, &data);
    struct clusters_config config = config_of(20);
    struct io_fs *fs = fault_fs_create();
    uint32_t order[600];
    int rc = -1;
    (void)state;
    assert_non_null(fs);
    config.window_rows = 70;
    for (unsigned n = 1; rc < 0; n += 5) {
        struct files f;
        struct clusters clusters;
        files_open(&f, fs, &rows);
        fault_fail_nth(fs, FAULT_READ | FAULT_WRITE, n, QUIRE_EIO, false);
        rc = clusters_find(&f.store, &f.spare, NULL, &config, NULL, order, &clusters);
        if (rc == 0)
            rc = clusters_close(&f.store, &config, NULL, &clusters);
        assert_true(rc == 0 || rc == QUIRE_EIO);
        fault_fail_nth(fs, FAULT_ANY, 0, 0, false);
        clusters_fini(&clusters);
        files_close(&f);
    }
    support_rows_free(&rows);
    support_data_free(&data);
    fault_fs_destroy(fs);
}

/* ---- stopped ----------------------------------------------------------------------------------------------------- */

struct stop {
    unsigned calls, stop_at; /* 0: never */
    uint64_t done, total;
    const char *phase;
};

static int note(void *context, const char *phase, uint64_t done, uint64_t total)
{
    struct stop *stop = context;
    assert_string_equal(phase, stop->phase);
    assert_true(stop->calls == 0 || (done >= stop->done && total == stop->total));
    assert_true(done <= total);
    stop->done = done;
    stop->total = total;
    return ++stop->calls == stop->stop_at;
}

static void progress_and_cancel(void **state)
{
    struct support_data data;
    struct rows rows = near_rows(3000, 14, &data);
    struct clusters_config config = config_of(20);
    bool finished = false;
    (void)state;
    for (unsigned stop_at = 1; !finished; stop_at++) {
        struct stop find = {.stop_at = stop_at, .phase = "cluster"}, close = {.phase = "replicas"};
        struct progress finding = {note, &find, "any"}, closing = {note, &close, "any"};
        struct subject s;
        subject_open(&s, &rows);
        int rc = clusters_find(&s.store, NULL, NULL, &config, &finding, s.order, &s.clusters);
        assert_int_equal(rc, find.calls == stop_at ? QUIRE_ECANCELLED : 0);
        if (rc == 0) {
            close.stop_at = stop_at - find.calls;
            assert_int_equal(find.done, find.total);
            rc = clusters_close(&s.store, &config, &closing, &s.clusters);
            finished = close.calls < close.stop_at;
            assert_int_equal(rc, finished ? 0 : QUIRE_ECANCELLED);
            assert_true(!finished || close.done == close.total);
        }
        subject_close(&s);
    }
    support_rows_free(&rows);
    support_data_free(&data);
}

/* Each allocation of the calling thread fails in turn. */
static void no_memory(void **state)
{
    struct support_data data;
    struct rows rows = near_rows(500, 15, &data);
    struct clusters_config config = config_of(20);
    uint32_t *cluster_of = malloc(sizeof *cluster_of * rows.n);
    (void)state;
    assert_non_null(cluster_of);
    if (SANITIZED)
        print_message("a sanitizer's allocator does not fail: only the whole is tested here\n");
    for (uint32_t row = 0; row < rows.n; row++) /* large ones, and rows without */
        cluster_of[row] = row % 10 ? row / 100 : UINT32_MAX;
    config.threads = 1;
    for (int with = 0; with < 2; with++) {
        struct clusters_known known = {5, cluster_of};
        bool all = false;
        for (unsigned n = 1; !all; n++) {
            struct subject s;
            subject_open(&s, &rows);
            fail_in = SANITIZED ? 0 : n;
            int rc = clusters_find(&s.store, NULL, with ? &known : NULL, &config, NULL, s.order, &s.clusters);
            if (rc == 0)
                rc = clusters_close(&s.store, &config, NULL, &s.clusters);
            all = fail_in > 0 || SANITIZED;
            fail_in = 0;
            assert_int_equal(rc, all ? 0 : QUIRE_ENOMEM);
            subject_close(&s);
        }
    }
    free(cluster_of);
    support_rows_free(&rows);
    support_data_free(&data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_once),
        cmocka_unit_test(the_same_for_any_threads),
        cmocka_unit_test(rounds_lessen_the_spread),
        cmocka_unit_test(heads_are_nearest_to_the_middle),
        cmocka_unit_test(as_many_replicas_as_wanted),
        cmocka_unit_test(full_lists_keep_some),
        cmocka_unit_test(identical_rows_stay_balanced),
        cmocka_unit_test(uneven_clusters),
        cmocka_unit_test(rows_far_out),
        cmocka_unit_test(known_clusters_take_new_rows),
        cmocka_unit_test(known_clusters_are_mended),
        cmocka_unit_test(files_give_the_same),
        cmocka_unit_test(failing_files),
        cmocka_unit_test(progress_and_cancel),
        cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
