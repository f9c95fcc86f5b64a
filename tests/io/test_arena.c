/*
 * test_arena.c - memory that is given back as a whole: what was taken stays, is aligned, and serves again.
 */
#include "io/arena.h"
#include <setjmp.h>
#include <stdalign.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { TAKEN = 2000 };

static size_t size_of(unsigned i)
{
    return i % 97 == 0 ? 100000 + i : i % 250;
}

/* Takes pieces of many sizes and writes to each; then all must hold what was written. */
static void fill_and_look(struct arena *arena)
{
    static unsigned char *taken[TAKEN];
    for (unsigned i = 0; i < TAKEN; i++) {
        taken[i] = arena_take(arena, size_of(i));
        assert_non_null(taken[i]);
        assert_int_equal((uintptr_t)taken[i] % alignof(max_align_t), 0);
        memset(taken[i], (int)(i & 0xff), size_of(i));
    }
    for (unsigned i = 0; i < TAKEN; i++)
        for (size_t at = 0; at < size_of(i); at++)
            assert_int_equal(taken[i][at], i & 0xff);
}

static void test_what_was_taken_stays(void **state)
{
    (void)state;
    struct arena arena = {0};
    fill_and_look(&arena);
    arena_fini(&arena);
    assert_int_equal(arena.held, 0);
}

static void test_the_same_needs_no_more_memory(void **state)
{
    (void)state;
    struct arena arena = {0};
    fill_and_look(&arena);
    size_t held = arena.held;
    for (unsigned i = 0; i < 5; i++) {
        arena_reset(&arena);
        fill_and_look(&arena);
        assert_int_equal(arena.held, held);
    }
    arena_fini(&arena);
}

/* What comes first after a reset is larger than what the first chunk holds: nothing is lost (a leak checker sees it),
 * and the second time nothing more is needed. */
static void test_a_large_piece_after_a_reset(void **state)
{
    (void)state;
    struct arena arena = {0};
    size_t held = 0;
    assert_non_null(arena_take(&arena, 10));
    for (unsigned i = 0; i < 5; i++) {
        arena_reset(&arena);
        size_t before = arena.held;
        assert_non_null(arena_take(&arena, 50000));
        assert_non_null(arena_take(&arena, 70000));
        if (i == 0)
            assert_in_range(arena.held, before + 120000, before + 130000);
        else
            assert_int_equal(arena.held, held);
        held = arena.held;
    }
    arena_fini(&arena);
}

static void test_little_costs_little(void **state)
{
    (void)state;
    struct arena arena = {0};
    assert_non_null(arena_take(&arena, 0));
    assert_non_null(arena_take(&arena, 100));
    assert_in_range(arena.held, 100, 4096);
    arena_fini(&arena);
}

static void test_impossible_sizes_are_refused(void **state)
{
    (void)state;
    struct arena arena = {0};
    size_t held;
    assert_non_null(arena_take(&arena, 10));
    held = arena.held;
    assert_null(arena_take(&arena, SIZE_MAX));
    assert_null(arena_take(&arena, SIZE_MAX - 8));
    assert_int_equal(arena.held, held);
    assert_non_null(arena_take(&arena, 10));
    arena_fini(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_was_taken_stays),         cmocka_unit_test(test_the_same_needs_no_more_memory),
        cmocka_unit_test(test_a_large_piece_after_a_reset),  cmocka_unit_test(test_little_costs_little),
        cmocka_unit_test(test_impossible_sizes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
