/*
 * test_graph.c - the mutable graph against brute force, and its structure proven after everything that is done to it.
 *
 * Data: random, tight clusters (a beam that starts in the wrong one must find the right one), and thousands of copies
 * of one row (nothing is in another direction). Truth is by the same codes (graph_score), so recall is the graph's
 * alone.
 */
#include "index/graph/graph_priv.h"
#include "index/vector/codes.h"
#include "io/random.h"
#include "tests/sanitized.h"
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define DIM     32u
#define K       10u
#define QUERIES 100u
#define MANY    (SANITIZED ? 1500u : 5000u)

/* A graph and what was put into it. */
struct world {
    struct epochs *epochs;
    struct graph *graph;
    struct graph_root root;
    struct graph_scratch *scratch;
    struct random random;
    uint32_t clusters; /* 0: random data */
    uint32_t n, *rows; /* linked rows, in any order */
    atomic_bool stop;
};

static void world_open_sized(struct world *world, unsigned degree, uint32_t room, unsigned shift)
{
    struct quire_error err;
    memset(world, 0, sizeof *world);
    random_init(&world->random, 7);
    assert_int_equal(epochs_create(&world->epochs), 0);
    struct graph_config config = {.code_dim = DIM, .degree = degree, .epochs = world->epochs, .seed = 3};
    assert_int_equal(graph_create_sized(&config, shift, &world->graph, &err), 0);
    assert_int_equal(graph_scratch_create(&world->scratch, &err), 0);
    world->rows = malloc((room + 1) * sizeof *world->rows);
    assert_non_null(world->rows);
}

static void world_open(struct world *world, unsigned degree, uint32_t room)
{
    world_open_sized(world, degree, room, 20);
}

static void world_close(struct world *world)
{
    graph_destroy(world->graph);
    graph_scratch_destroy(world->scratch);
    epochs_destroy(world->epochs);
    free(world->rows);
}

static float uniform(struct random *random)
{
    return (float)random_below(random, 1u << 24) * 0x1p-23f - 1;
}

/* A vector: uniform, or near one of the centres, whose coordinates follow from their numbers. */
static void make_vector(struct random *random, uint32_t clusters, float *vector)
{
    struct random centre;
    random_init(&centre, clusters ? random_below(random, clusters) : 0);
    for (uint32_t i = 0; i < DIM; i++)
        vector[i] = clusters ? uniform(&centre) + 0.01f * uniform(random) : uniform(random);
}

static uint32_t add_vector(struct world *world, const float *vector)
{
    uint8_t code[DIM];
    uint32_t row;
    float norm2 = 0, f = code_encode(vector, DIM, 8, code, NULL, NULL);
    for (uint32_t i = 0; i < DIM; i++)
        norm2 += vector[i] * vector[i];
    assert_int_equal(graph_add(world->graph, code, f, norm2, &row), 0);
    return row;
}

static void link_row(struct world *world, uint32_t row)
{
    unsigned slot = epoch_enter(world->epochs);
    assert_int_equal(graph_link(world->graph, &world->root, world->scratch, row), 0);
    epoch_exit(world->epochs, slot);
    world->rows[world->n++] = row;
}

static void grow(struct world *world, uint32_t n)
{
    float vector[DIM];
    for (uint32_t i = 0; i < n; i++) {
        make_vector(&world->random, world->clusters, vector);
        link_row(world, add_vector(world, vector));
    }
}

static void remove_at(struct world *world, uint32_t at)
{
    unsigned slot = epoch_enter(world->epochs);
    graph_remove(world->graph, &world->root, world->scratch, world->rows[at]);
    epoch_exit(world->epochs, slot);
    world->rows[at] = world->rows[--world->n];
}

static void shrink(struct world *world, uint32_t n)
{
    while (n-- > 0)
        remove_at(world, (uint32_t)random_below(&world->random, world->n));
}

static void assert_graph_valid(struct world *world)
{
    struct quire_error reason = {0};
    struct graph_stats stats;
    const struct graph_root *root = &world->root;
    if (graph_check(world->graph, &root, 1, &reason) < 0)
        fail_msg("%s", reason.message);
    graph_get_stats(world->graph, &stats);
    assert_int_equal(stats.linked, world->n);
    assert_int_equal(stats.rows, world->n);
}

/* ---- recall ---- */

struct filter {
    uint32_t one_in;
    uint32_t asked;
};

static bool passes(void *context, uint32_t row)
{
    struct filter *filter = context;
    filter->asked++;
    return filter->one_in != 0 && random_mix(row + 1000) % filter->one_in == 0;
}

/* The distance of the k-th nearest accepted row; FLT_MAX-like if there are fewer. *n: how many there are, up to k. */
static float exact(struct world *world, struct filter *filter, uint32_t *n)
{
    float *distances = malloc((world->n + 1) * sizeof *distances), best[K];
    assert_non_null(distances);
    graph_score(world->graph, world->scratch, world->rows, world->n, distances);
    *n = 0;
    for (uint32_t i = 0; i < world->n; i++) {
        if (filter && !passes(filter, world->rows[i]))
            continue;
        uint32_t at = *n < K ? (*n)++ : K;
        if (at == K && distances[i] >= best[K - 1])
            continue;
        for (at = at < K ? at : K - 1; at > 0 && best[at - 1] > distances[i]; at--)
            best[at] = best[at - 1];
        best[at] = distances[i];
    }
    free(distances);
    return *n ? best[*n - 1] : 0;
}

/* Answers that are as near as the k-th nearest (copies count alike), over those that there are. */
static double recall(struct world *world, uint32_t beam, struct filter *filter)
{
    uint32_t found = 0, all = 0;
    struct random random;
    random_init(&random, 99);
    for (uint32_t q = 0; q < QUERIES; q++) {
        float vector[DIM];
        struct graph_hit hits[K];
        uint32_t truth;
        make_vector(&random, world->clusters, vector);
        assert_int_equal(graph_query(world->graph, world->scratch, vector), 0);
        float kth = exact(world, filter, &truth);
        uint32_t n =
            graph_search(world->graph, &world->root, world->scratch, beam, filter ? passes : NULL, filter, hits, K);
        assert_true(n <= truth);
        for (uint32_t i = 0; i < n; i++) {
            assert_true(i == 0 || hits[i].distance >= hits[i - 1].distance);
            assert_true(!filter || passes(filter, hits[i].row));
            found += hits[i].distance <= kth * 1.00001f;
        }
        all += truth;
    }
    return all ? (double)found / all : 1;
}

static void assert_recall(struct world *world, uint32_t beam, struct filter *filter, double least)
{
    double got = recall(world, beam, filter);
    if (got < least)
        fail_msg("recall is %.4f, wanted are %.4f", got, least);
}

/* ---- tests ---- */

static void test_refuses(void **state)
{
    (void)state;
    struct graph *graph;
    struct quire_error err;
    struct graph_config config = {.code_dim = 33};
    assert_int_equal(graph_create(&config, &graph, &err), QUIRE_EINVALID);
    config.code_dim = 0;
    assert_int_equal(graph_create(&config, &graph, &err), QUIRE_EINVALID);
    config.code_dim = 32;
    config.degree = DEGREE_MAX + 1;
    assert_int_equal(graph_create(&config, &graph, &err), QUIRE_EINVALID);
    config.degree = 6;
    config.fill = 13;
    assert_int_equal(graph_create(&config, &graph, &err), QUIRE_EINVALID);
    config.lowest = 3;
    config.fill = 0;
    assert_int_equal(graph_create(&config, &graph, &err), QUIRE_EINVALID);
    config.lowest = LINKS_MAX + 1;
    assert_int_equal(graph_create(&config, &graph, &err), QUIRE_EINVALID);
    config.lowest = 12;
    config.thinning = 9;
    assert_int_equal(graph_create(&config, &graph, &err), QUIRE_EINVALID);
    config.thinning = 0;
    config.fill = 12;
    config.slack = 0.1f;
    assert_int_equal(graph_create(&config, &graph, &err), QUIRE_EINVALID);
    graph_destroy(NULL);
    graph_scratch_destroy(NULL);
}

/* 0, 1, 2, 3 ... rows: everything is found, and all can go and come back. */
static void test_small(void **state)
{
    (void)state;
    for (uint32_t n = 0; n < 40; n++) {
        struct world world;
        world_open(&world, 0, 100);
        for (unsigned round = 0; round < 3; round++) {
            grow(&world, n);
            assert_graph_valid(&world);
            assert_recall(&world, 50, NULL, 1);
            while (world.n) {
                shrink(&world, 1);
                assert_graph_valid(&world);
            }
            struct graph_hit hit;
            assert_int_equal(graph_search(world.graph, &world.root, world.scratch, 10, NULL, NULL, &hit, 1), 0);
        }
        world_close(&world);
    }
}

/* What was added comes back, and distances are those of the vectors. */
static void test_scores(void **state)
{
    (void)state;
    struct world world;
    world_open_sized(&world, 0, 5000, 10); /* three regions */
    float *vectors = malloc(4000 * DIM * sizeof *vectors), query[DIM];
    uint32_t rows[4000];
    float distances[4000];
    assert_non_null(vectors);
    for (uint32_t i = 0; i < 4000; i++) {
        make_vector(&world.random, 0, vectors + i * DIM);
        rows[i] = add_vector(&world, vectors + i * DIM);
    }
    make_vector(&world.random, 0, query);
    assert_int_equal(graph_query(world.graph, world.scratch, query), 0);
    graph_score(world.graph, world.scratch, rows, 4000, distances);
    for (uint32_t i = 0; i < 4000; i++) {
        float expected = 0, f, norm2, decoded[DIM];
        const uint8_t *code;
        graph_row(world.graph, rows[i], &code, &f, &norm2);
        code_decode(code, DIM, 8, f, decoded);
        for (uint32_t j = 0; j < DIM; j++) {
            float d = query[j] - vectors[i * DIM + j];
            expected += d * d;
            assert_true(fabsf(decoded[j] - vectors[i * DIM + j]) < 0.02f);
        }
        assert_true(fabsf(distances[i] - expected) < 0.02f * expected);
    }
    free(vectors);
    for (uint32_t i = 0; i < 4000; i++)
        link_row(&world, rows[i]);
    assert_graph_valid(&world);
    assert_recall(&world, 100, NULL, 0.95);
    world_close(&world);
}

static void test_random(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 0, MANY);
    grow(&world, MANY);
    assert_graph_valid(&world);
    assert_recall(&world, 100, NULL, 0.95);
    struct filter half = {.one_in = 2}, tenth = {.one_in = 10}, hundredth = {.one_in = 100}, none = {.one_in = 0};
    assert_recall(&world, 100, &half, 0.95);
    assert_recall(&world, 100, &tenth, 0.95);
    assert_recall(&world, 100, &hundredth, 0.95);
    assert_recall(&world, 100, &none, 1);
    world_close(&world);
}

/* With few links per row, all of them used and in different directions, more is found. */
static void test_fill(void **state)
{
    (void)state;
    double found[2];
    for (unsigned full = 0; full < 2; full++) {
        struct world world;
        struct graph_config config = {.code_dim = DIM, .degree = 6, .seed = 3, .fill = 12, .slack = 1};
        world_open(&world, 6, MANY);
        if (full) {
            config.epochs = world.epochs;
            graph_destroy(world.graph);
            assert_int_equal(graph_create_sized(&config, 20, &world.graph, NULL), 0);
        }
        grow(&world, MANY);
        assert_graph_valid(&world);
        found[full] = recall(&world, 32, NULL);
        world_close(&world);
    }
    assert_true(found[1] > found[0] + 0.01);
}

/* More links on upper layers than on the lowest, of which there are few: valid through all changes, in few bytes. */
static void test_wide_above(void **state)
{
    (void)state;
    struct world world;
    struct graph_stats stats;
    struct graph_config config = {
        .code_dim = DIM, .degree = 24, .lowest = 9, .fill = 9, .thinning = 3, .descent = 32, .slack = 1, .seed = 3};
    world_open(&world, 0, 2 * MANY);
    config.epochs = world.epochs;
    graph_destroy(world.graph);
    assert_int_equal(graph_create_sized(&config, 20, &world.graph, NULL), 0);
    world.clusters = MANY / 20;
    grow(&world, MANY);
    assert_graph_valid(&world);
    graph_get_stats(world.graph, &stats);
    assert_in_range(stats.bytes / MANY, DIM + 16 + 4 * 9 + 4 * 25 / 8, DIM + 16 + 4 * 9 + 4 * 25 / 6);
    assert_recall(&world, 16, NULL, 0.95);
    shrink(&world, MANY / 2);
    assert_graph_valid(&world);
    grow(&world, MANY / 2);
    assert_recall(&world, 16, NULL, 0.95);
    shrink(&world, MANY);
    assert_graph_valid(&world);
    world_close(&world);
}

/* A filter that accepts nothing ends after a bounded number of rows. */
static void test_effort(void **state)
{
    (void)state;
    struct world world;
    struct graph_hit hit;
    float vector[DIM];
    struct filter none = {.one_in = 0};
    uint32_t n = 10000;
    world_open(&world, 4, n);
    grow(&world, n);
    make_vector(&world.random, 0, vector);
    assert_int_equal(graph_query(world.graph, world.scratch, vector), 0);
    assert_int_equal(graph_search(world.graph, &world.root, world.scratch, 4, passes, &none, &hit, 1), 0);
    assert_in_range(none.asked, 8192, 8192 + 16 * 4 * 4 + BATCH_MAX);
    world_close(&world);
}

static void test_clusters(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 0, MANY);
    world.clusters = 50;
    grow(&world, MANY);
    assert_graph_valid(&world);
    assert_recall(&world, 100, NULL, 0.95);
    shrink(&world, MANY / 2);
    assert_graph_valid(&world);
    assert_recall(&world, 100, NULL, 0.95);
    world_close(&world);
}

/* Copies of one row among others: found, as are the others, and at the price of any row. */
static void test_copies(void **state)
{
    (void)state;
    struct world world;
    struct graph_stats stats;
    uint32_t n = SANITIZED ? 1000 : 5000;
    float vector[DIM];
    world_open(&world, 0, 2 * n);
    grow(&world, n / 2);
    make_vector(&world.random, 0, vector);
    for (uint32_t i = 0; i < n; i++)
        link_row(&world, add_vector(&world, vector));
    grow(&world, n / 2);
    assert_graph_valid(&world);
    graph_get_stats(world.graph, &stats);
    assert_true(stats.distances < (uint64_t)stats.rows * 6000);
    assert_recall(&world, 100, NULL, 0.9);
    struct graph_hit hits[K];
    assert_int_equal(graph_query(world.graph, world.scratch, vector), 0);
    assert_int_equal(graph_search(world.graph, &world.root, world.scratch, 20, NULL, NULL, hits, K), K);
    for (uint32_t i = 0; i < K; i++)
        assert_true(hits[i].distance < 0.01f);
    shrink(&world, n);
    assert_graph_valid(&world);
    assert_recall(&world, 100, NULL, 0.9);
    shrink(&world, world.n);
    assert_graph_valid(&world);
    world_close(&world);
}

/* Ten times 30 % go and others come: as good as one built at once, and no number is lost. */
static void churn(uint32_t clusters)
{
    struct world world;
    struct graph_stats stats;
    uint32_t n = MANY / 2;
    world_open(&world, 0, 2 * n);
    world.clusters = clusters;
    grow(&world, n);
    double fresh = recall(&world, 64, NULL);
    for (unsigned round = 0; round < 10; round++) {
        shrink(&world, n * 3 / 10);
        epochs_collect(world.epochs);
        epochs_collect(world.epochs);
        grow(&world, n * 3 / 10);
        assert_graph_valid(&world);
    }
    graph_get_stats(world.graph, &stats);
    assert_int_equal(stats.rows + stats.removed + stats.free, n);
    assert_recall(&world, 64, NULL, fresh - 0.01);
    world_close(&world);
}

static void test_churn(void **state)
{
    (void)state;
    churn(0);
    churn(50);
}

/* A number is not used again while a reader is inside that may know it. */
static void test_numbers(void **state)
{
    (void)state;
    struct world world;
    struct graph_stats stats;
    world_open(&world, 0, 1000);
    grow(&world, 100);
    unsigned slot = epoch_enter(world.epochs);
    shrink(&world, 100);
    epochs_collect(world.epochs);
    graph_get_stats(world.graph, &stats);
    assert_int_equal(stats.removed, 100);
    grow(&world, 10);
    for (uint32_t i = 0; i < 10; i++)
        assert_int_equal(world.rows[i], 100 + i);
    epoch_exit(world.epochs, slot);
    while (epochs_collect(world.epochs) || (graph_get_stats(world.graph, &stats), stats.removed))
        ;
    assert_int_equal(stats.free, 100);
    grow(&world, 100);
    graph_get_stats(world.graph, &stats);
    assert_int_equal(stats.free, 0);
    assert_int_equal(stats.rows, 110);
    for (uint32_t i = 0; i < world.n; i++)
        assert_true(world.rows[i] < 110);
    assert_graph_valid(&world);
    world_close(&world);
}

/* Rows that were never linked can be scored and removed. */
static void test_unlinked(void **state)
{
    (void)state;
    struct world world;
    struct graph_stats stats;
    float vector[DIM];
    world_open(&world, 0, 100);
    grow(&world, 20);
    make_vector(&world.random, 0, vector);
    uint32_t row = add_vector(&world, vector), links[LINKS_MAX];
    graph_get_stats(world.graph, &stats);
    assert_int_equal(stats.rows, 21);
    assert_int_equal(stats.linked, 20);
    assert_int_equal(graph_links(world.graph, row, links, LINKS_MAX), 0);
    unsigned slot = epoch_enter(world.epochs);
    graph_remove(world.graph, &world.root, world.scratch, row);
    assert_int_equal(graph_link(world.graph, &world.root, world.scratch, row), 0); /* too late: nothing */
    graph_remove(world.graph, &world.root, world.scratch, row);
    epoch_exit(world.epochs, slot);
    assert_graph_valid(&world);
    assert_in_range(graph_links(world.graph, world.rows[3], links, 5), 1, 5);
    world_close(&world);
}

/* ---- threads ---- */

#define SEARCHERS 4u
#define ADDERS    3u
#define STRESS    (SANITIZED ? 800u : 3000u) /* rows per adder */

struct stress {
    struct world *world;
    atomic_bool stop;
    atomic_uint added, n_rows, wrong;
    _Atomic uint32_t rows[ADDERS * STRESS]; /* row + 1, once it may be removed; taken by an exchange */
};

struct worker {
    struct stress *stress;
    pthread_t thread;
    uint32_t number;
};

static void *search_all_the_time(void *context)
{
    struct worker *worker = context;
    struct world *world = worker->stress->world;
    struct graph_scratch *scratch;
    struct random random;
    random_init(&random, worker->number);
    if (graph_scratch_create(&scratch, NULL) < 0)
        abort();
    while (!atomic_load(&worker->stress->stop)) {
        float vector[DIM];
        struct graph_hit hits[K];
        make_vector(&random, world->clusters, vector);
        unsigned slot = epoch_enter(world->epochs);
        uint32_t n = graph_query(world->graph, scratch, vector) < 0
                         ? 0
                         : graph_search(world->graph, &world->root, scratch, 50, NULL, NULL, hits, K);
        for (uint32_t i = 0; i < n; i++) {
            const uint8_t *code;
            float f, norm2;
            graph_row(world->graph, hits[i].row, &code, &f, &norm2);
            bool wrong = !(norm2 > 0) || !(hits[i].distance >= 0) || (i && hits[i].distance < hits[i - 1].distance);
            atomic_fetch_add(&worker->stress->wrong, wrong);
        }
        epoch_exit(world->epochs, slot);
    }
    graph_scratch_destroy(scratch);
    return NULL;
}

static void *add_rows(void *context)
{
    struct worker *worker = context;
    struct stress *stress = worker->stress;
    struct graph_scratch *scratch;
    struct random random;
    random_init(&random, 100 + worker->number);
    if (graph_scratch_create(&scratch, NULL) < 0)
        abort();
    for (uint32_t i = 0; i < STRESS; i++) {
        float vector[DIM];
        make_vector(&random, stress->world->clusters, vector);
        unsigned slot = epoch_enter(stress->world->epochs);
        uint32_t row = add_vector(stress->world, vector);
        if (i % 4 == 0) /* may go while it is linked */
            atomic_store(&stress->rows[atomic_fetch_add(&stress->n_rows, 1)], row + 1);
        if (graph_link(stress->world->graph, &stress->world->root, scratch, row) < 0)
            abort();
        if (i % 4 != 0)
            atomic_store(&stress->rows[atomic_fetch_add(&stress->n_rows, 1)], row + 1);
        epoch_exit(stress->world->epochs, slot);
    }
    atomic_fetch_add(&stress->added, 1);
    graph_scratch_destroy(scratch);
    return NULL;
}

/* Removes rows as they come, the latest ones too, and leaves about every third. */
static void *remove_rows(void *context)
{
    struct worker *worker = context;
    struct stress *stress = worker->stress;
    struct graph_scratch *scratch;
    struct random random;
    random_init(&random, 200 + worker->number);
    if (graph_scratch_create(&scratch, NULL) < 0)
        abort();
    while (atomic_load(&stress->added) < ADDERS) {
        uint32_t n = atomic_load(&stress->n_rows);
        if (!n)
            continue;
        uint32_t back = (uint32_t)random_below(&random, random_below(&random, 2) ? n : n < 8 ? n : 8);
        unsigned slot = epoch_enter(stress->world->epochs);
        uint32_t row = atomic_exchange(&stress->rows[n - 1 - back], 0);
        if (row)
            graph_remove(stress->world->graph, &stress->world->root, scratch, row - 1);
        epoch_exit(stress->world->epochs, slot);
    }
    graph_scratch_destroy(scratch);
    return NULL;
}

static void stress_with(uint32_t clusters, unsigned removers)
{
    struct world world;
    world_open_sized(&world, 8, ADDERS * STRESS, 12);
    world.clusters = clusters;
    struct stress *stress = calloc(1, sizeof *stress);
    assert_non_null(stress);
    stress->world = &world;
    struct worker workers[SEARCHERS + ADDERS + 2];
    for (unsigned i = 0; i < SEARCHERS + ADDERS + removers; i++) {
        workers[i] = (struct worker){.stress = stress, .number = i};
        void *(*run)(void *) = i < ADDERS ? add_rows : i < ADDERS + removers ? remove_rows : search_all_the_time;
        assert_int_equal(pthread_create(&workers[i].thread, NULL, run, &workers[i]), 0);
    }
    for (unsigned i = 0; i < SEARCHERS + ADDERS + removers; i++) {
        if (i == ADDERS + removers)
            atomic_store(&stress->stop, true);
        pthread_join(workers[i].thread, NULL);
    }
    assert_int_equal(atomic_load(&stress->wrong), 0);
    for (uint32_t i = 0; i < ADDERS * STRESS; i++)
        if (stress->rows[i])
            world.rows[world.n++] = stress->rows[i] - 1;
    assert_graph_valid(&world);
    assert_recall(&world, 200, NULL, 0.9);
    free(stress);
    world_close(&world);
}

static void test_threads(void **state)
{
    (void)state;
    stress_with(0, 1);
    stress_with(20, 2);
}

/* ---- roots ------------------------------------------------------------------------------------------------------- */

#define ROOTS   40u
#define WRITERS 2u
#define CHANGES (SANITIZED ? 1000u : 6000u) /* by each writer */

/* One graph of many roots. Numbers are not used again inside an epoch: owner[row] holds while a reader is in. */
struct forest {
    struct world world;
    struct graph_root roots[ROOTS];
    _Atomic uint32_t owner[WRITERS * CHANGES]; /* of each row number */
    atomic_uint ended, wrong;
};

struct gardener {
    struct forest *forest;
    pthread_t thread;
    uint32_t number, n, rows[CHANGES];
};

/* Some roots get many rows, most get few. */
static uint32_t any_root(struct random *random)
{
    return (uint32_t)random_below(random, 1 + random_below(random, ROOTS));
}

static void forest_change(struct forest *forest, struct gardener *gardener, struct graph_scratch *scratch,
                          struct random *random)
{
    struct world *world = &forest->world;
    float vector[DIM];
    unsigned slot = epoch_enter(world->epochs);
    if (gardener->n && random_below(random, 5) < 2) {
        uint32_t at = (uint32_t)random_below(random, gardener->n), row = gardener->rows[at];
        graph_remove(world->graph, &forest->roots[forest->owner[row]], scratch, row);
        gardener->rows[at] = gardener->rows[--gardener->n];
    } else {
        uint32_t root = any_root(random);
        make_vector(random, 0, vector);
        uint32_t row = add_vector(world, vector);
        atomic_store(&forest->owner[row], root);
        if (graph_link(world->graph, &forest->roots[root], scratch, row) < 0)
            abort();
        gardener->rows[gardener->n++] = row;
    }
    epoch_exit(world->epochs, slot);
}

/* A search of any root answers rows of that root only. Returns how many. */
static uint32_t forest_search(struct forest *forest, struct graph_scratch *scratch, struct random *random,
                              uint32_t root)
{
    struct world *world = &forest->world;
    struct graph_hit hits[K];
    float vector[DIM];
    make_vector(random, 0, vector);
    unsigned slot = epoch_enter(world->epochs);
    uint32_t n = graph_query(world->graph, scratch, vector) < 0
                     ? 0
                     : graph_search(world->graph, &forest->roots[root], scratch, 60, NULL, NULL, hits, K);
    for (uint32_t i = 0; i < n; i++)
        atomic_fetch_add(&forest->wrong, atomic_load(&forest->owner[hits[i].row]) != root);
    epoch_exit(world->epochs, slot);
    return n;
}

static void assert_forest_valid(struct forest *forest, uint32_t rows)
{
    const struct graph_root *roots[ROOTS];
    struct quire_error reason = {0};
    struct graph_stats stats;
    uint32_t linked = 0;
    for (uint32_t i = 0; i < ROOTS; i++) {
        roots[i] = &forest->roots[i];
        linked += forest->roots[i].linked;
    }
    if (graph_check(forest->world.graph, roots, ROOTS, &reason) < 0)
        fail_msg("%s", reason.message);
    graph_get_stats(forest->world.graph, &stats);
    assert_int_equal(stats.linked, rows);
    assert_int_equal(linked, rows);
    assert_int_equal(forest->wrong, 0);
}

static struct forest *forest_open(void)
{
    struct forest *forest = calloc(1, sizeof *forest);
    assert_non_null(forest);
    world_open_sized(&forest->world, 6, 1, 12);
    for (uint32_t i = 0; i < ROOTS; i++)
        graph_root_init(&forest->roots[i]);
    return forest;
}

static void forest_close(struct forest *forest)
{
    world_close(&forest->world);
    free(forest);
}

/* All rows of every root are found, and only these, while rows come and go; emptied, the roots can be used again. */
static void test_roots(void **state)
{
    (void)state;
    struct forest *forest = forest_open();
    struct world *world = &forest->world;
    struct gardener *gardener = calloc(1, sizeof *gardener);
    assert_non_null(gardener);
    for (unsigned round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < CHANGES / 2; i++) {
            forest_change(forest, gardener, world->scratch, &world->random);
            if (i % 100 == 0)
                assert_forest_valid(forest, gardener->n);
            uint32_t root = any_root(&world->random), linked = forest->roots[root].linked;
            uint32_t n = forest_search(forest, world->scratch, &world->random, root);
            assert_int_equal(n, linked < K ? linked : K);
        }
        while (gardener->n) {
            uint32_t row = gardener->rows[--gardener->n];
            graph_remove(world->graph, &forest->roots[forest->owner[row]], world->scratch, row);
        }
        assert_forest_valid(forest, 0);
    }
    free(gardener);
    forest_close(forest);
}

static void *change_forest(void *context)
{
    struct gardener *gardener = context;
    struct graph_scratch *scratch;
    struct random random;
    random_init(&random, 300 + gardener->number);
    if (graph_scratch_create(&scratch, NULL) < 0)
        abort();
    for (uint32_t i = 0; i < CHANGES; i++)
        forest_change(gardener->forest, gardener, scratch, &random);
    atomic_fetch_add(&gardener->forest->ended, 1);
    graph_scratch_destroy(scratch);
    return NULL;
}

static void *search_forest(void *context)
{
    struct gardener *gardener = context;
    struct graph_scratch *scratch;
    struct random random;
    random_init(&random, 400);
    if (graph_scratch_create(&scratch, NULL) < 0)
        abort();
    while (atomic_load(&gardener->forest->ended) < WRITERS)
        forest_search(gardener->forest, scratch, &random, any_root(&random));
    graph_scratch_destroy(scratch);
    return NULL;
}

/* Writers that share roots, and a reader. */
static void test_roots_threads(void **state)
{
    (void)state;
    struct forest *forest = forest_open();
    struct gardener *gardeners = calloc(WRITERS + 1, sizeof *gardeners);
    uint32_t rows = 0;
    assert_non_null(gardeners);
    for (uint32_t i = 0; i <= WRITERS; i++) {
        gardeners[i].forest = forest;
        gardeners[i].number = i;
        assert_int_equal(
            pthread_create(&gardeners[i].thread, NULL, i < WRITERS ? change_forest : search_forest, &gardeners[i]), 0);
    }
    for (uint32_t i = 0; i <= WRITERS; i++) {
        pthread_join(gardeners[i].thread, NULL);
        rows += gardeners[i].n;
    }
    assert_forest_valid(forest, rows);
    free(gardeners);
    forest_close(forest);
}

/* A link from one root to another does not go unnoticed. */
static void test_check_finds_strangers(void **state)
{
    (void)state;
    struct forest *forest = forest_open();
    struct world *world = &forest->world;
    struct quire_error reason = {0};
    const struct graph_root *roots[2] = {&forest->roots[0], &forest->roots[1]};
    float vector[DIM];
    uint32_t rows[4];
    for (uint32_t i = 0; i < 4; i++) {
        make_vector(&world->random, 0, vector);
        rows[i] = add_vector(world, vector);
        assert_int_equal(graph_link(world->graph, &forest->roots[i / 2], world->scratch, rows[i]), 0);
    }
    assert_int_equal(graph_check(world->graph, roots, 2, &reason), 0);
    assert_int_equal(graph_check(world->graph, roots, 1, &reason), QUIRE_ECORRUPT);
    for (uint32_t i = 0; i < 2; i++) { /* rows 0 and 2, both ways */
        struct graph_link_list list = graph_link_list(world->graph, rows[2 * i], 0);
        atomic_store(&list.links[1], rows[2 - 2 * i]);
        atomic_fetch_add(list.count, 1);
    }
    assert_int_equal(graph_check(world->graph, roots, 2, &reason), QUIRE_ECORRUPT);
    assert_non_null(strstr(reason.message, "another root"));
    forest_close(forest);
}

/* ---- placing ----------------------------------------------------------------------------------------------------- */

static int place(struct world *world, uint32_t row, const float *vector)
{
    uint8_t code[DIM];
    float f = code_encode(vector, DIM, 8, code, NULL, NULL);
    return graph_place(world->graph, row, code, f, 1);
}

/* Rows at given numbers, in any order; what lies between is free, the lowest first. */
static void test_place(void **state)
{
    (void)state;
    struct world world;
    struct graph_stats stats;
    float vector[DIM];
    world_open_sized(&world, 6, 6000, 10);
    make_vector(&world.random, 0, vector);
    for (uint32_t i = 3000; i > 0; i--)
        if (i % 3)
            assert_int_equal(place(&world, i, vector), 0);
    assert_int_equal(place(&world, 3001, vector), 0);
    assert_int_equal(place(&world, 3001, vector), QUIRE_EEXISTS);
    assert_int_equal(graph_unplace(world.graph, 3001), 0);
    assert_int_equal(graph_unplace(world.graph, 3001), QUIRE_ENOTFOUND);
    assert_int_equal(graph_unplace(world.graph, 9999), QUIRE_ENOTFOUND);
    assert_int_equal(place(&world, ROW_NONE, vector), QUIRE_ELIMIT);
    assert_int_equal(place(&world, 2999, vector), QUIRE_EEXISTS);
    graph_place_end(world.graph);
    graph_get_stats(world.graph, &stats);
    assert_int_equal(stats.rows, 2000);
    assert_int_equal(stats.free, 1002);
    for (uint32_t i = 1; i <= 3000; i++)
        if (i % 3)
            link_row(&world, i);
    assert_graph_valid(&world);
    for (uint32_t i = 0; i <= 1002; i++) {
        make_vector(&world.random, 0, vector);
        uint32_t row = add_vector(&world, vector);
        assert_int_equal(row, i < 1001 ? 3 * i : 2000 + i);
        link_row(&world, row);
    }
    assert_graph_valid(&world);
    remove_at(&world, 0);
    assert_int_equal(place(&world, 5000, vector), QUIRE_EINVALID); /* its number waits for readers */
    assert_graph_valid(&world);
    world_close(&world);
}

/* ---- images ------------------------------------------------------------------------------------------------------ */

#define CHUNK 64u /* rows saved at a time */

/* A graph's rows as bytes, in chunks, and what is known of them elsewhere. */
struct picture {
    uint32_t n; /* rows */
    size_t bytes, starts[WRITERS * CHANGES / CHUNK + 2];
    uint8_t *image;
    struct forest *into;
    const uint8_t *alive; /* rows that somebody knows; NULL: all */
    uint32_t n_unlinked, unlinked[WRITERS * CHANGES];
};

static void picture_take(struct picture *picture, const struct world *world)
{
    uint32_t n = graph_row_end(world->graph);
    free(picture->image);
    picture->image = malloc(graph_image_bytes(world->graph, 0, n + CHUNK));
    if (!picture->image)
        abort();
    picture->n = n;
    picture->bytes = 0;
    for (uint32_t first = 0; first < n; first += CHUNK) {
        unsigned slot = epoch_enter(world->epochs);
        picture->starts[first / CHUNK] = picture->bytes;
        size_t most = graph_image_bytes(world->graph, first, CHUNK);
        size_t bytes = graph_image_save(world->graph, first, CHUNK, picture->image + picture->bytes);
        if (bytes > most)
            abort();
        picture->bytes += bytes;
        picture->starts[first / CHUNK + 1] = picture->bytes;
        epoch_exit(world->epochs, slot);
    }
}

static int picture_load(const struct picture *picture, struct graph *graph)
{
    int rc = 0;
    struct quire_error err;
    for (uint32_t first = 0; rc == 0 && first < picture->n; first += CHUNK) {
        const size_t *start = &picture->starts[first / CHUNK];
        rc = graph_image_load(graph, first, CHUNK, picture->image + start[0], start[1] - start[0], &err);
    }
    return rc;
}

static struct graph_root *root_of(void *context, uint32_t row)
{
    struct picture *picture = context;
    bool known = !picture->alive || picture->alive[row];
    return known ? &picture->into->roots[picture->into->owner[row]] : NULL;
}

static void note_unlinked(void *context, uint32_t row)
{
    struct picture *picture = context;
    picture->unlinked[picture->n_unlinked++] = row;
}

static struct graph_mending picture_mend(struct picture *picture)
{
    struct graph_mending mending = {.root_of = root_of, .unlinked = note_unlinked, .context = picture};
    picture->n_unlinked = 0;
    assert_int_equal(graph_mend(picture->into->world.graph, &mending), 0);
    assert_int_equal(mending.n_unlinked, picture->n_unlinked);
    graph_place_end(picture->into->world.graph);
    return mending;
}

static struct forest *forest_like(const struct forest *forest)
{
    struct forest *other = forest_open();
    for (uint32_t i = 0; i < WRITERS * CHANGES; i++)
        other->owner[i] = forest->owner[i];
    return other;
}

/* Every row of a root is found by searches of it. */
static void assert_all_found(struct forest *forest)
{
    for (uint32_t root = 0; root < ROOTS; root++) {
        uint32_t linked = forest->roots[root].linked;
        assert_int_equal(forest_search(forest, forest->world.scratch, &forest->world.random, root),
                         linked < K ? linked : K);
    }
    assert_int_equal(forest->wrong, 0);
}

/* Links what mending left, takes some rows out, and all is valid. */
static void assert_forest_works(struct picture *picture, uint32_t rows)
{
    struct forest *forest = picture->into;
    struct world *world = &forest->world;
    assert_forest_valid(forest, rows - picture->n_unlinked);
    for (uint32_t i = 0; i < picture->n_unlinked; i++) {
        uint32_t row = picture->unlinked[i];
        assert_int_equal(graph_link(world->graph, &forest->roots[forest->owner[row]], world->scratch, row), 0);
    }
    assert_forest_valid(forest, rows);
    assert_all_found(forest);
    for (uint32_t row = 0; row < graph_row_end(world->graph); row++)
        if (row % 3 == 0 && !(graph_row_state(world->graph, row) & STATE_GONE)) {
            graph_remove(world->graph, &forest->roots[forest->owner[row]], world->scratch, row);
            rows--;
        }
    assert_forest_valid(forest, rows);
}

static uint32_t grow_forest(struct forest *forest, uint32_t changes)
{
    struct gardener *gardener = calloc(1, sizeof *gardener);
    assert_non_null(gardener);
    for (uint32_t i = 0; i < changes; i++)
        forest_change(forest, gardener, forest->world.scratch, &forest->world.random);
    uint32_t rows = gardener->n;
    free(gardener);
    return rows;
}

/* Saved while nothing else runs, a graph comes back link by link, and nothing is mended. */
static void test_image_quiet(void **state)
{
    (void)state;
    struct forest *forest = forest_open();
    struct picture *picture = calloc(1, sizeof *picture);
    assert_non_null(picture);
    uint32_t rows = grow_forest(forest, CHANGES);
    picture_take(picture, &forest->world);
    picture->into = forest_like(forest);
    assert_int_equal(picture_load(picture, picture->into->world.graph), 0);
    assert_int_equal(picture_load(picture, picture->into->world.graph), QUIRE_EEXISTS);
    struct graph_mending mending = picture_mend(picture);
    assert_int_equal(mending.n_dropped + mending.n_unlinked, 0);
    assert_int_equal(mending.links_added + mending.links_dropped, 0);
    for (uint32_t row = 0; row < picture->n; row++) {
        const struct graph *old = forest->world.graph, *new = picture->into->world.graph;
        bool gone = row >= graph_row_end(new) || (graph_row_state(new, row) & STATE_GONE);
        assert_int_equal((graph_row_state(old, row) & STATE_GONE) != 0, gone);
        if (gone)
            continue;
        assert_memory_equal(graph_row_code(old, row), graph_row_code(new, row), DIM);
        assert_memory_equal(graph_row_numbers(old, row), graph_row_numbers(new, row), sizeof(struct graph_row_numbers));
        for (unsigned layer = 0; layer <= graph_row_layers(old, row); layer++) {
            uint32_t a[LINKS_MAX], b[LINKS_MAX], n = graph_links_read(old, row, layer, a);
            assert_int_equal(graph_links_read(new, row, layer, b), n);
            assert_memory_equal(a, b, n * sizeof *a);
        }
    }
    assert_forest_works(picture, rows);
    forest_close(picture->into);
    forest_close(forest);
    free(picture->image);
    free(picture);
}

/* What the writers left alive is known, the image is older: rows that came later are placed, as one reading a log
 * would, and what had their numbers before is another root's. */
static uint32_t catch_up(struct picture *picture, const struct forest *forest, uint8_t *alive)
{
    float vector[DIM];
    uint32_t n = 0;
    for (uint32_t row = 0; row < graph_row_end(forest->world.graph); row++) {
        alive[row] = !(graph_row_state(forest->world.graph, row) & STATE_GONE);
        n += alive[row];
        if (alive[row] && row % 7 == 0) /* written again since */
            graph_unplace(picture->into->world.graph, row);
        make_vector(&picture->into->world.random, 0, vector);
        if (alive[row]) {
            int rc = place(&picture->into->world, row, vector);
            assert_true(rc == 0 || (rc == QUIRE_EEXISTS && row % 7 != 0));
        }
    }
    return n;
}

/* Saved while two threads link and remove, again and again; the last image is restored. */
static void test_image_fuzzy(void **state)
{
    (void)state;
    struct forest *forest = forest_open();
    struct picture *picture = calloc(1, sizeof *picture);
    struct gardener *gardeners = calloc(WRITERS, sizeof *gardeners);
    uint8_t *alive = calloc(WRITERS * CHANGES, 1);
    assert_true(picture && gardeners && alive);
    for (uint32_t i = 0; i < WRITERS; i++) {
        gardeners[i].forest = forest;
        gardeners[i].number = i;
        assert_int_equal(pthread_create(&gardeners[i].thread, NULL, change_forest, &gardeners[i]), 0);
    }
    while (atomic_load(&forest->ended) == 0)
        picture_take(picture, &forest->world);
    for (uint32_t i = 0; i < WRITERS; i++)
        pthread_join(gardeners[i].thread, NULL);
    picture->into = forest_like(forest);
    assert_int_equal(picture_load(picture, picture->into->world.graph), 0);
    uint32_t rows = catch_up(picture, forest, alive);
    picture->alive = alive;
    picture->n = graph_row_end(picture->into->world.graph);
    picture_mend(picture);
    assert_true(picture->n_unlinked >= rows / 8);
    assert_forest_works(picture, rows);
    forest_close(picture->into);
    forest_close(forest);
    free(picture->image);
    free(picture);
    free(gardeners);
    free(alive);
}

static void damage(struct picture *picture, const uint8_t *good, struct random *random)
{
    memcpy(picture->image, good, picture->bytes);
    for (uint64_t n = random_below(random, 1 + random_below(random, 40)); n-- > 0;) {
        size_t at = random_below(random, picture->bytes - 4) & ~UINT64_C(3);
        uint32_t word = (uint32_t)random_below(random, 2 * picture->n) | (random_below(random, 2) ? LINK_TREE : 0);
        memcpy(picture->image + at, &word, sizeof word);
    }
    if (random_below(random, 20) == 0) { /* pieces that do not end where they should */
        uint32_t chunk = (uint32_t)random_below(random, picture->n / CHUNK);
        picture->starts[chunk + 1] -= 1 + random_below(random, 8);
    }
}

/* Damaged images are refused, or make a graph that is valid and works. */
static void test_image_damaged(void **state)
{
    (void)state;
    struct forest *forest = forest_open();
    struct picture *picture = calloc(1, sizeof *picture), *now = calloc(1, sizeof *now);
    struct random random;
    uint32_t refused = 0, taken = 0, mended = 0, rows = grow_forest(forest, 800);
    assert_true(picture && now);
    random_init(&random, 5);
    picture_take(picture, &forest->world);
    for (unsigned round = 0; round < (SANITIZED ? 60u : 300u); round++) {
        *now = *picture;
        now->image = malloc(picture->bytes);
        now->into = forest_like(forest);
        assert_non_null(now->image);
        damage(now, picture->image, &random);
        int rc = picture_load(now, now->into->world.graph);
        if (rc < 0) {
            assert_int_equal(rc, QUIRE_ECORRUPT);
            refused++;
        } else {
            struct graph_stats stats;
            struct graph_mending mending = picture_mend(now);
            graph_get_stats(now->into->world.graph, &stats);
            assert_in_range(stats.rows, rows - 40, rows); /* a row whose first word was 0 is free */
            mended += mending.links_dropped > 0;
            taken++;
            assert_forest_works(now, stats.rows);
        }
        forest_close(now->into);
        free(now->image);
    }
    assert_true(refused > 5 && taken > 5 && mended > 5);
    forest_close(forest);
    free(picture->image);
    free(picture);
    free(now);
}

/* ---- destroying ---------------------------------------------------------------------------------------------------
 * */

static void *collect_always(void *context)
{
    struct world *world = context;
    while (!atomic_load(&world->stop))
        epochs_collect(world->epochs);
    return NULL;
}

/* A graph may be destroyed while its removed rows are on their way through the epochs, which others collect. */
static void test_destroyed_while_rows_wait(void **state)
{
    struct world world;
    pthread_t thread;
    (void)state;
    world_open(&world, 8, 64);
    assert_int_equal(pthread_create(&thread, NULL, collect_always, &world), 0);
    for (unsigned round = 0; round < (SANITIZED ? 1000u : 4000u); round++) {
        struct graph_config config = {.code_dim = DIM, .degree = 8, .epochs = world.epochs, .seed = 3};
        graph_destroy(world.graph);
        graph_root_init(&world.root);
        assert_int_equal(graph_create_sized(&config, 10, &world.graph, NULL), 0);
        world.n = 0;
        grow(&world, 40);
        shrink(&world, 30);
    }
    atomic_store(&world.stop, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    world_close(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refuses),
        cmocka_unit_test(test_fill),
        cmocka_unit_test(test_wide_above),
        cmocka_unit_test(test_small),
        cmocka_unit_test(test_scores),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_effort),
        cmocka_unit_test(test_clusters),
        cmocka_unit_test(test_copies),
        cmocka_unit_test(test_churn),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_unlinked),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_roots),
        cmocka_unit_test(test_roots_threads),
        cmocka_unit_test(test_check_finds_strangers),
        cmocka_unit_test(test_place),
        cmocka_unit_test(test_image_quiet),
        cmocka_unit_test(test_image_fuzzy),
        cmocka_unit_test(test_image_damaged),
        cmocka_unit_test(test_destroyed_while_rows_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
