/*
 * test_graph_roots.c - one mutable graph of many roots, changed and searched at once, and its images: saved in chunks
 * while it changes, loaded, mended, damaged.
 */
#include "index/graph/graph_priv.h"
#include "tests/index/support_world.h"
#include "tests/sanitized.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

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
        world_make_vector(random, 0, vector);
        uint32_t row = world_add_vector(world, vector);
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
    world_make_vector(random, 0, vector);
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
        world_make_vector(&world->random, 0, vector);
        rows[i] = world_add_vector(world, vector);
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
        world_make_vector(&picture->into->world.random, 0, vector);
        if (alive[row]) {
            int rc = world_place(&picture->into->world, row, vector);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_roots),
        cmocka_unit_test(test_roots_threads),
        cmocka_unit_test(test_check_finds_strangers),
        cmocka_unit_test(test_image_quiet),
        cmocka_unit_test(test_image_fuzzy),
        cmocka_unit_test(test_image_damaged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
