/*
 * test_entry.c - the tree over the centres of blocks: it leads to every block, and each node is the mean below it.
 *
 * Centres are random vectors in clusters of ENTRY_FANOUT, as neighbouring blocks are near. The levels above are not
 * on disk, so a damaged tree is made here by hand: a node's code, its factor, a level that ends too early.
 */
#include "index/format/format.h"
#include "index/segment/entry.h"
#include "index/vector/codes.h"
#include "io/bitmap.h"
#include "tests/index/support_index.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define DIM 64u

struct fixture {
    struct entry_level blocks;
    struct entry_tree tree;
    uint8_t *reached;
};

static void make(uint32_t n, struct fixture *f)
{
    uint64_t state = 5;
    float cluster[DIM] = {0}, x[DIM];
    size_t bytes = code_bytes_of(DIM, CENTRE_BITS);
    f->blocks = (struct entry_level){calloc(n, bytes), calloc(n, ENTRY_FACTORS * sizeof(float)), n};
    f->reached = calloc(n / 8 + 1, 1);
    assert_true(f->blocks.codes && f->blocks.factors && f->reached);
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t d = 0; d < DIM; d++) {
            cluster[d] = i % ENTRY_FANOUT ? cluster[d] : support_gauss(&state);
            x[d] = cluster[d] + 0.3f * support_gauss(&state);
        }
        f->blocks.factors[ENTRY_FACTORS * i] =
            code_encode(x, DIM, CENTRE_BITS, f->blocks.codes + i * bytes, NULL, NULL);
    }
    assert_int_equal(entry_init(&f->tree, &f->blocks, DIM), 0);
}

static void end(struct fixture *f)
{
    entry_fini(&f->tree);
    free(f->blocks.codes);
    free(f->blocks.factors);
    free(f->reached);
}

static uint32_t count_reached(const struct fixture *f)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->blocks.n; i++)
        n += bitmap_has(f->reached, i);
    return n;
}

static void test_every_block_is_reached(void **state)
{
    static const struct {
        uint32_t blocks, levels;
    } cases[] = {{1, 1},    {7, 1},    {8, 1},    {ENTRY_TOP_MAX, 1}, {ENTRY_TOP_MAX + 1, 2},
                 {2047, 2}, {2048, 2}, {2049, 3}, {5000, 3},          {33000, 4}};
    (void)state;
    for (size_t i = 0; i < SUPPORT_COUNT(cases); i++) {
        struct fixture f;
        struct entry_error error = {.worst = -1};
        make(cases[i].blocks, &f);
        assert_int_equal(f.tree.n_levels, cases[i].levels);
        uint64_t of_blocks = (uint64_t)cases[i].blocks * (f.tree.code_bytes + ENTRY_FACTORS * sizeof(float));
        assert_int_equal(entry_bytes_of(cases[i].blocks, DIM), of_blocks + f.tree.bytes);
        assert_int_equal(entry_walk(&f.tree, f.reached, &error), 0);
        assert_int_equal(count_reached(&f), cases[i].blocks);
        assert_true(error.worst >= 0 && error.worst < 0.25);
        assert_true((error.worst > 0) == (cases[i].levels > 1));
        end(&f);
    }
}

static void test_a_wrong_node_is_named(void **state)
{
    struct fixture f;
    struct entry_error sound, error;
    (void)state;
    make(5000, &f);
    assert_int_equal(entry_walk(&f.tree, f.reached, &sound), 0);
    for (uint32_t level = 1; level < f.tree.n_levels; level++) {
        struct entry_level *l = &f.tree.levels[level];
        uint32_t node = l->n / 2, bytes = f.tree.code_bytes;
        uint8_t *code = l->codes + (size_t)node * bytes, kept[DIM];
        float factor = l->factors[ENTRY_FACTORS * (size_t)node];
        memcpy(kept, code, bytes);
        memcpy(code, l->codes, bytes); /* another cluster's */
        assert_int_equal(entry_walk(&f.tree, f.reached, &error), 0);
        assert_true(error.level == level && error.node == node && error.worst > 0.5);
        memcpy(code, kept, bytes);
        l->factors[ENTRY_FACTORS * (size_t)node] = NAN;
        assert_int_equal(entry_walk(&f.tree, f.reached, &error), 0);
        assert_true(isinf(error.worst) && error.level >= level);
        l->factors[ENTRY_FACTORS * (size_t)node] = factor;
    }
    assert_int_equal(entry_walk(&f.tree, f.reached, &error), 0);
    assert_memory_equal(&error, &sound, sizeof error);
    end(&f);
}

static void test_a_short_level_misses_blocks(void **state)
{
    struct fixture f;
    (void)state;
    make(5000, &f);
    f.tree.levels[1].n -= 2;
    assert_int_equal(entry_walk(&f.tree, f.reached, NULL), 0);
    /* the last of the 313 nodes stands for 5000 - 312 * 16 = 8 blocks */
    assert_int_equal(count_reached(&f), 5000 - ENTRY_FANOUT - 5000 % ENTRY_FANOUT);
    f.tree.levels[1].n += 2;
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_block_is_reached),
        cmocka_unit_test(test_a_wrong_node_is_named),
        cmocka_unit_test(test_a_short_level_misses_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
