/*
 * test_neighbours.c - the graph of a build against brute force.
 *
 * With every group searched and pruning switched off (alpha * d(kept, c) < d(row, c) never holds for a huge alpha) the
 * edges are the nearest rows; with the values of a build they must still lead to the nearest row of nearly all rows.
 * The graph must not depend on threads.
 */
#include "index/cluster/neighbours.h"
#include "index/cluster/partition.h"
#include "tests/index/support_index.h"
#include "tests/index/support_rows.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CAPACITY 20u
#define DIM      32u

static struct offload *offload; /* or NULL */

struct graph {
    struct support_data data; /* in group order */
    struct rows rows;
    float *centres;
    uint32_t n_groups;
};

/* Puts vectors in group order, as build_order_rows does, with exact means as centres. */
static void make_graph(uint32_t n, struct graph *g)
{
    struct support_data given;
    support_clusters(n, DIM, QUIRE_TYPE_F32, 77, &given);
    struct rows rows = support_rows(given.floats, n, DIM);
    uint32_t *order = malloc(sizeof *order * n);
    assert_non_null(order);
    struct partition_config config = {CAPACITY, 2, 1, NULL};
    assert_int_equal(partition_build(&rows, &config, NULL, order), 0);
    support_rows_free(&rows);
    support_data_alloc(n, DIM, QUIRE_TYPE_F32, &g->data);
    g->n_groups = (n + CAPACITY - 1) / CAPACITY;
    g->centres = calloc((size_t)g->n_groups * DIM, sizeof(float));
    assert_non_null(g->centres);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t group = i / CAPACITY, members = n - group * CAPACITY < CAPACITY ? n - group * CAPACITY : CAPACITY;
        const float *x = given.floats + (size_t)order[i] * DIM;
        memcpy(g->data.floats + (size_t)i * DIM, x, sizeof(float) * DIM);
        for (uint32_t d = 0; d < DIM; d++)
            g->centres[group * DIM + d] += x[d] / (float)members;
    }
    g->rows = support_rows(g->data.floats, n, DIM);
    free(order);
    support_data_free(&given);
}

static void free_graph(struct graph *g)
{
    support_rows_free(&g->rows);
    support_data_free(&g->data);
    free(g->centres);
}

/* The edges of all rows, and how they were asked for. */
struct edges_kept {
    const struct graph *graph;
    uint32_t *ids, degree, next, largest_load, n_loads, fail_at;
};

static int load_rows(void *context, uint32_t first, uint32_t n, struct rows *to, uint32_t at)
{
    struct edges_kept *kept = context;
    if (++kept->n_loads == kept->fail_at)
        return QUIRE_EIO;
    assert_true(at + n <= to->n);
    kept->largest_load = at + n > kept->largest_load ? at + n : kept->largest_load;
    for (uint32_t i = 0; i < n; i++)
        rows_copy(&kept->graph->rows, first + i, to, at + i);
    return 0;
}

static int put_edges(void *context, uint32_t first, uint32_t n, const uint32_t *edges)
{
    struct edges_kept *kept = context;
    assert_int_equal(first, kept->next);
    memcpy(kept->ids + (size_t)first * kept->degree, edges, sizeof *edges * n * kept->degree);
    kept->next = first + n;
    return 0;
}

/* room 0: all rows in memory. */
static struct edges_kept build_in(const struct graph *g, struct neighbours_config config, uint32_t room)
{
    struct edges_kept kept = {.graph = g, .degree = config.degree};
    struct neighbours_rows rows = {g->rows.n, DIM, room ? NULL : &g->rows, room, load_rows, put_edges, &kept, NULL};
    kept.ids = malloc(sizeof *kept.ids * g->rows.n * config.degree);
    assert_non_null(kept.ids);
    assert_int_equal(neighbours_build(&rows, 0, g->centres, &config, NULL), 0);
    assert_int_equal(kept.next, g->rows.n);
    return kept;
}

/* Where the machine has an OpenCL device, its graph must be the same. */
static struct edges_kept build(const struct graph *g, struct neighbours_config config)
{
    struct edges_kept kept = build_in(g, config, 0);
    if (offload) {
        struct offload_status before, after;
        offload_get_status(offload, &before);
        config.offload = offload;
        struct edges_kept same = build_in(g, config, 0);
        offload_get_status(offload, &after);
        assert_true(after.calls >= before.calls + 2); /* rows went there, and products came back */
        assert_memory_equal(kept.ids, same.ids, sizeof *kept.ids * g->rows.n * config.degree);
        free(same.ids);
    }
    return kept;
}

/* Edges lead to other rows, each once, and unused places come last. */
static void check_edges(const struct graph *g, const struct edges_kept *graph)
{
    for (uint32_t row = 0; row < g->rows.n; row++) {
        const uint32_t *ids = graph->ids + (size_t)row * graph->degree;
        bool ended = false;
        for (uint32_t i = 0; i < graph->degree; i++) {
            ended = ended || ids[i] == NEIGHBOUR_NONE;
            assert_true(ended ? ids[i] == NEIGHBOUR_NONE : ids[i] < g->rows.n && ids[i] != row);
            for (uint32_t j = 0; j < i && !ended; j++)
                assert_int_not_equal(ids[i], ids[j]);
        }
    }
}

/* Share of the k true neighbours of every seventh row that are among its edges. */
static double overlap(const struct graph *g, const struct edges_kept *graph, uint32_t k)
{
    uint32_t right = 0, asked = 0, *truth = malloc(sizeof *truth * (k + 1));
    assert_non_null(truth);
    for (uint32_t row = 0; row < g->rows.n; row += 7) {
        support_truth(QUIRE_METRIC_L2, g->data.floats, g->rows.n, DIM, g->data.floats + (size_t)row * DIM, k + 1, truth,
                      NULL);
        for (uint32_t i = 0; i <= k; i++) {
            if (truth[i] == row)
                continue;
            asked++;
            for (uint32_t e = 0; e < graph->degree; e++)
                right += graph->ids[(size_t)row * graph->degree + e] == truth[i];
        }
    }
    free(truth);
    return (double)right / asked;
}

static void test_unpruned_graph_is_nearest_rows(void **state)
{
    struct graph g;
    (void)state;
    make_graph(1500, &g);
    struct neighbours_config config = {CAPACITY, 16, 16, g.n_groups, 1e9f, 2, 0, NULL};
    struct edges_kept graph = build(&g, config);
    check_edges(&g, &graph);
    assert_true(overlap(&g, &graph, 16) > 0.97); /* 8-bit codes swap a few near ties */
    free(graph.ids);
    free_graph(&g);
}

static void test_pruned_graph_keeps_nearest(void **state)
{
    struct graph g;
    (void)state;
    make_graph(4000, &g);
    struct neighbours_config config = {CAPACITY, 24, 100, 48, 1.5f, 2, 0, NULL};
    struct edges_kept graph = build(&g, config);
    check_edges(&g, &graph);
    assert_true(overlap(&g, &graph, 1) > 0.95);
    free(graph.ids);
    free_graph(&g);
}

static void test_same_for_any_threads(void **state)
{
    struct graph g;
    (void)state;
    make_graph(3000, &g);
    struct neighbours_config config = {CAPACITY, 24, 100, 20, 1.5f, 1, 0, NULL};
    struct edges_kept one = build(&g, config);
    for (unsigned threads = 2; threads <= 7; threads += 5) {
        config.threads = threads;
        struct edges_kept many = build(&g, config);
        assert_memory_equal(one.ids, many.ids, sizeof *one.ids * g.rows.n * one.degree);
        free(many.ids);
    }
    free(one.ids);
    free_graph(&g);
}

/* Rows that are loaded group by group have the edges that they have when all are in memory. */
static void test_same_for_any_room(void **state)
{
    static const uint32_t rooms[] = {NEIGHBOUR_GROUPS_MAX * CAPACITY, 3000, 5000, 9990};
    struct graph g;
    (void)state;
    make_graph(9990, &g);
    struct neighbours_config config = {CAPACITY, 24, 100, 20, 1.5f, 2, 0, NULL};
    struct edges_kept whole = build(&g, config);
    for (size_t r = 0; r < SUPPORT_COUNT(rooms); r++) {
        struct edges_kept parts = build_in(&g, config, rooms[r]);
        assert_memory_equal(whole.ids, parts.ids, sizeof *whole.ids * g.rows.n * whole.degree);
        assert_true(parts.largest_load <= rooms[r]);
        free(parts.ids);
    }
    free(whole.ids);
    free_graph(&g);
}

/* Beginning with a later group gives that group's edges; a load that fails ends it. */
static void test_begin_later_and_fail(void **state)
{
    enum { FROM = 17 };
    struct graph g;
    (void)state;
    make_graph(3000, &g);
    struct neighbours_config config = {CAPACITY, 24, 100, 20, 1.5f, 2, 0, NULL};
    struct edges_kept whole = build(&g, config), rest = {.graph = &g, .degree = 24, .next = FROM * CAPACITY};
    struct neighbours_rows rows = {g.rows.n, DIM, NULL, 2560, load_rows, put_edges, &rest, NULL};
    rest.ids = calloc((size_t)g.rows.n * 24, sizeof *rest.ids);
    assert_non_null(rest.ids);
    assert_int_equal(neighbours_build(&rows, FROM, g.centres, &config, NULL), 0);
    assert_memory_equal(whole.ids + FROM * CAPACITY * 24, rest.ids + FROM * CAPACITY * 24,
                        sizeof *whole.ids * 24 * (g.rows.n - FROM * CAPACITY));
    rest.fail_at = rest.n_loads + 1;
    assert_int_equal(neighbours_build(&rows, FROM, g.centres, &config, NULL), QUIRE_EIO);
    free(rest.ids);
    free(whole.ids);
    free_graph(&g);
}

static void test_few_rows(void **state)
{
    static const uint32_t counts[] = {1, 2, 5, CAPACITY, CAPACITY + 1};
    (void)state;
    for (size_t i = 0; i < SUPPORT_COUNT(counts); i++) {
        struct graph g;
        make_graph(counts[i], &g);
        struct neighbours_config config = {CAPACITY, 24, 100, 48, 1.5f, 2, 0, NULL};
        struct edges_kept graph = build(&g, config);
        check_edges(&g, &graph);
        assert_true(counts[i] == 1 ? graph.ids[0] == NEIGHBOUR_NONE : graph.ids[0] != NEIGHBOUR_NONE);
        free(graph.ids);
        free_graph(&g);
    }
}

static void test_equal_rows(void **state)
{
    enum { N = 3000 };
    struct graph g = {.n_groups = (N + CAPACITY - 1) / CAPACITY};
    (void)state;
    support_data_alloc(N, DIM, QUIRE_TYPE_F32, &g.data);
    g.centres = calloc((size_t)g.n_groups * DIM, sizeof(float));
    assert_non_null(g.centres);
    g.rows = support_rows(g.data.floats, N, DIM);
    struct neighbours_config config = {CAPACITY, 24, 100, 48, 1.5f, 2, 0, NULL};
    struct edges_kept graph = build(&g, config);
    check_edges(&g, &graph);
    free(graph.ids);
    free_graph(&g);
}

static int open_device(void **state)
{
    char note[512];
    (void)state;
    offload = offload_open("", note, sizeof note);
    if (!offload)
        print_message("without a device: %s\n", note);
    return 0;
}

static int close_device(void **state)
{
    (void)state;
    offload_close(offload);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unpruned_graph_is_nearest_rows),
        cmocka_unit_test(test_pruned_graph_keeps_nearest),
        cmocka_unit_test(test_same_for_any_threads),
        cmocka_unit_test(test_same_for_any_room),
        cmocka_unit_test(test_begin_later_and_fail),
        cmocka_unit_test(test_few_rows),
        cmocka_unit_test(test_equal_rows),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
