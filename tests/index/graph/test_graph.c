/*
 * test_graph.c - the mutable graph against brute force, and its structure checked after everything that is done to it.
 *
 * Data: random, tight clusters (a beam that starts in the wrong one must find the right one), and thousands of copies
 * of one row (nothing is in another direction). Truth is by the same codes (graph_score), so recall is the graph's
 * alone.
 */
#include "index/graph/graph_priv.h"
#include "index/vector/codes.h"
#include "tests/index/support_world.h"
#include "tests/sanitized.h"
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define QUERIES 100u
#define MANY    (SANITIZED ? 1500u : 5000u)

/* ---- recall ------------------------------------------------------------------------------------------------------ */

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
        world_make_vector(&random, world->clusters, vector);
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
            world_grow(&world, n);
            assert_world_valid(&world);
            assert_recall(&world, 50, NULL, 1);
            while (world.n) {
                world_shrink(&world, 1);
                assert_world_valid(&world);
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
        world_make_vector(&world.random, 0, vectors + i * DIM);
        rows[i] = world_add_vector(&world, vectors + i * DIM);
    }
    world_make_vector(&world.random, 0, query);
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
        world_link_row(&world, rows[i]);
    assert_world_valid(&world);
    assert_recall(&world, 100, NULL, 0.95);
    world_close(&world);
}

static void test_random(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 0, MANY);
    world_grow(&world, MANY);
    assert_world_valid(&world);
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
        world_grow(&world, MANY);
        assert_world_valid(&world);
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
    world_grow(&world, MANY);
    assert_world_valid(&world);
    graph_get_stats(world.graph, &stats);
    assert_in_range(stats.bytes / MANY, DIM + 16 + 4 * 9 + 4 * 25 / 8, DIM + 16 + 4 * 9 + 4 * 25 / 6);
    assert_recall(&world, 16, NULL, 0.95);
    world_shrink(&world, MANY / 2);
    assert_world_valid(&world);
    world_grow(&world, MANY / 2);
    assert_recall(&world, 16, NULL, 0.95);
    world_shrink(&world, MANY);
    assert_world_valid(&world);
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
    world_grow(&world, n);
    world_make_vector(&world.random, 0, vector);
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
    world_grow(&world, MANY);
    assert_world_valid(&world);
    assert_recall(&world, 100, NULL, 0.95);
    world_shrink(&world, MANY / 2);
    assert_world_valid(&world);
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
    world_grow(&world, n / 2);
    world_make_vector(&world.random, 0, vector);
    for (uint32_t i = 0; i < n; i++)
        world_link_row(&world, world_add_vector(&world, vector));
    world_grow(&world, n / 2);
    assert_world_valid(&world);
    graph_get_stats(world.graph, &stats);
    assert_true(stats.distances < (uint64_t)stats.rows * 6000);
    assert_recall(&world, 100, NULL, 0.9);
    struct graph_hit hits[K];
    assert_int_equal(graph_query(world.graph, world.scratch, vector), 0);
    assert_int_equal(graph_search(world.graph, &world.root, world.scratch, 20, NULL, NULL, hits, K), K);
    for (uint32_t i = 0; i < K; i++)
        assert_true(hits[i].distance < 0.01f);
    world_shrink(&world, n);
    assert_world_valid(&world);
    assert_recall(&world, 100, NULL, 0.9);
    world_shrink(&world, world.n);
    assert_world_valid(&world);
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
    world_grow(&world, n);
    double fresh = recall(&world, 64, NULL);
    for (unsigned round = 0; round < 10; round++) {
        world_shrink(&world, n * 3 / 10);
        epochs_collect(world.epochs);
        epochs_collect(world.epochs);
        world_grow(&world, n * 3 / 10);
        assert_world_valid(&world);
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
    world_grow(&world, 100);
    unsigned slot = epoch_enter(world.epochs);
    world_shrink(&world, 100);
    epochs_collect(world.epochs);
    graph_get_stats(world.graph, &stats);
    assert_int_equal(stats.removed, 100);
    world_grow(&world, 10);
    for (uint32_t i = 0; i < 10; i++)
        assert_int_equal(world.rows[i], 100 + i);
    epoch_exit(world.epochs, slot);
    while (epochs_collect(world.epochs) || (graph_get_stats(world.graph, &stats), stats.removed))
        ;
    assert_int_equal(stats.free, 100);
    world_grow(&world, 100);
    graph_get_stats(world.graph, &stats);
    assert_int_equal(stats.free, 0);
    assert_int_equal(stats.rows, 110);
    for (uint32_t i = 0; i < world.n; i++)
        assert_true(world.rows[i] < 110);
    assert_world_valid(&world);
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
    world_grow(&world, 20);
    world_make_vector(&world.random, 0, vector);
    uint32_t row = world_add_vector(&world, vector), links[LINKS_MAX];
    graph_get_stats(world.graph, &stats);
    assert_int_equal(stats.rows, 21);
    assert_int_equal(stats.linked, 20);
    assert_int_equal(graph_links(world.graph, row, links, LINKS_MAX), 0);
    unsigned slot = epoch_enter(world.epochs);
    graph_remove(world.graph, &world.root, world.scratch, row);
    assert_int_equal(graph_link(world.graph, &world.root, world.scratch, row), 0); /* too late: nothing */
    graph_remove(world.graph, &world.root, world.scratch, row);
    epoch_exit(world.epochs, slot);
    assert_world_valid(&world);
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
        world_make_vector(&random, world->clusters, vector);
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
        world_make_vector(&random, stress->world->clusters, vector);
        unsigned slot = epoch_enter(stress->world->epochs);
        uint32_t row = world_add_vector(stress->world, vector);
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
    assert_world_valid(&world);
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

/* ---- placing ----------------------------------------------------------------------------------------------------- */

/* Rows at given numbers, in any order; what lies between is free, the lowest first. */
static void test_place(void **state)
{
    (void)state;
    struct world world;
    struct graph_stats stats;
    float vector[DIM];
    world_open_sized(&world, 6, 6000, 10);
    world_make_vector(&world.random, 0, vector);
    for (uint32_t i = 3000; i > 0; i--)
        if (i % 3)
            assert_int_equal(world_place(&world, i, vector), 0);
    assert_int_equal(world_place(&world, 3001, vector), 0);
    assert_int_equal(world_place(&world, 3001, vector), QUIRE_EEXISTS);
    assert_int_equal(graph_unplace(world.graph, 3001), 0);
    assert_int_equal(graph_unplace(world.graph, 3001), QUIRE_ENOTFOUND);
    assert_int_equal(graph_unplace(world.graph, 9999), QUIRE_ENOTFOUND);
    assert_int_equal(world_place(&world, ROW_NONE, vector), QUIRE_ELIMIT);
    assert_int_equal(world_place(&world, 2999, vector), QUIRE_EEXISTS);
    graph_place_end(world.graph);
    graph_get_stats(world.graph, &stats);
    assert_int_equal(stats.rows, 2000);
    assert_int_equal(stats.free, 1002);
    for (uint32_t i = 1; i <= 3000; i++)
        if (i % 3)
            world_link_row(&world, i);
    assert_world_valid(&world);
    for (uint32_t i = 0; i <= 1002; i++) {
        world_make_vector(&world.random, 0, vector);
        uint32_t row = world_add_vector(&world, vector);
        assert_int_equal(row, i < 1001 ? 3 * i : 2000 + i);
        world_link_row(&world, row);
    }
    assert_world_valid(&world);
    world_remove_at(&world, 0);
    assert_int_equal(world_place(&world, 5000, vector), QUIRE_EINVALID); /* its number waits for readers */
    assert_world_valid(&world);
    world_close(&world);
}

/* ---- destroying -------------------------------------------------------------------------------------------------- */

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
        world_grow(&world, 40);
        world_shrink(&world, 30);
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
        cmocka_unit_test(test_place),
        cmocka_unit_test(test_destroyed_while_rows_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
