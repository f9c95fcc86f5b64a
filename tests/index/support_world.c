/*
 * support_world.c - a mutable graph and what was put into it, with its structure checked on demand.
 */
#include "tests/index/support_world.h"
#include "index/graph/graph_priv.h"
#include "index/vector/codes.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

void world_open_sized(struct world *world, unsigned degree, uint32_t capacity, unsigned shift)
{
    struct quire_error err;
    memset(world, 0, sizeof *world);
    random_init(&world->random, 7);
    assert_int_equal(epochs_create(&world->epochs), 0);
    struct graph_config config = {.code_dim = DIM, .degree = degree, .epochs = world->epochs, .seed = 3};
    assert_int_equal(graph_create_sized(&config, shift, &world->graph, &err), 0);
    assert_int_equal(graph_scratch_create(&world->scratch, &err), 0);
    world->rows = malloc((capacity + 1) * sizeof *world->rows);
    assert_non_null(world->rows);
}

void world_open(struct world *world, unsigned degree, uint32_t capacity)
{
    world_open_sized(world, degree, capacity, 20);
}

void world_close(struct world *world)
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
void world_make_vector(struct random *random, uint32_t clusters, float *vector)
{
    struct random centre;
    random_init(&centre, clusters ? random_below(random, clusters) : 0);
    for (uint32_t i = 0; i < DIM; i++)
        vector[i] = clusters ? uniform(&centre) + 0.01f * uniform(random) : uniform(random);
}

uint32_t world_add_vector(struct world *world, const float *vector)
{
    uint8_t code[DIM];
    uint32_t row;
    float norm2 = 0, f = code_encode(vector, DIM, 8, code, NULL, NULL);
    for (uint32_t i = 0; i < DIM; i++)
        norm2 += vector[i] * vector[i];
    assert_int_equal(graph_add(world->graph, code, f, norm2, &row), 0);
    return row;
}

void world_link_row(struct world *world, uint32_t row)
{
    unsigned slot = epoch_enter(world->epochs);
    assert_int_equal(graph_link(world->graph, &world->root, world->scratch, row), 0);
    epoch_exit(world->epochs, slot);
    world->rows[world->n++] = row;
}

void world_grow(struct world *world, uint32_t n)
{
    float vector[DIM];
    for (uint32_t i = 0; i < n; i++) {
        world_make_vector(&world->random, world->clusters, vector);
        world_link_row(world, world_add_vector(world, vector));
    }
}

void world_remove_at(struct world *world, uint32_t at)
{
    unsigned slot = epoch_enter(world->epochs);
    graph_remove(world->graph, &world->root, world->scratch, world->rows[at]);
    epoch_exit(world->epochs, slot);
    world->rows[at] = world->rows[--world->n];
}

void world_shrink(struct world *world, uint32_t n)
{
    while (n-- > 0)
        world_remove_at(world, (uint32_t)random_below(&world->random, world->n));
}

void assert_world_valid(struct world *world)
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

int world_place(struct world *world, uint32_t row, const float *vector)
{
    uint8_t code[DIM];
    float f = code_encode(vector, DIM, 8, code, NULL, NULL);
    return graph_place(world->graph, row, code, f, 1);
}
