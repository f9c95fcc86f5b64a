/*
 * test_array.c - arrays that grow: what was in them stays, capacities double, impossible sizes change nothing.
 */
#include "io/array.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

struct item {
    uint64_t number;
    uint8_t more[5];
};

static void test_keeps_and_doubles(void **state)
{
    (void)state;
    struct item *items = NULL;
    uint32_t capacity = 0;
    unsigned grown = 0;
    for (uint32_t i = 0; i < 5000; i++) {
        uint32_t before = capacity;
        assert_true(array_reserve(&items, &capacity, i + 1));
        assert_true(capacity > i);
        grown += capacity != before;
        items[i] = (struct item){.number = i * 7ull};
    }
    for (uint32_t i = 0; i < 5000; i++)
        assert_int_equal(items[i].number, i * 7ull);
    assert_in_range(grown, 5, 11);
    free(items);
}

static void test_takes_what_is_needed_at_once(void **state)
{
    (void)state;
    uint16_t *items = NULL;
    size_t capacity = 0;
    assert_true(array_reserve(&items, &capacity, 0));
    assert_null(items);
    assert_true(array_reserve(&items, &capacity, 1001));
    assert_int_equal(capacity, 1001);
    assert_true(array_reserve(&items, &capacity, 1002));
    assert_int_equal(capacity, 2002);
    free(items);
}

static void test_doubles_up_to_what_is_kept(void **state)
{
    (void)state;
    uint64_t *items = NULL;
    uint32_t capacity = 0;
    assert_true(array_reserve_kept(&items, &capacity, 3, 4));
    assert_int_equal(capacity, 4);
    assert_true(array_reserve_kept(&items, &capacity, 3000, 4096));
    assert_true(array_reserve_kept(&items, &capacity, 4000, 4096));
    assert_int_equal(capacity, 4096);
    assert_true(array_reserve_kept(&items, &capacity, 5000, 4096));
    assert_int_equal(capacity, 5000);
    free(items);
}

static void test_refuses_what_cannot_be(void **state)
{
    (void)state;
    struct item *items = NULL;
    uint32_t narrow = 0;
    size_t wide = 0;
    assert_true(array_reserve(&items, &narrow, 3));
    struct item *before = items;
    uint32_t had = narrow;
    assert_false(array_reserve(&items, &narrow, (size_t)UINT32_MAX + 1));
    assert_ptr_equal(items, before);
    assert_int_equal(narrow, had);
    struct item *none = NULL;
    assert_false(array_reserve(&none, &wide, SIZE_MAX / 2));
    assert_null(none);
    assert_int_equal(wide, 0);
    free(items);
}

/* What it leaves is found by the address sanitizer. */
static void test_frees_all(void **state)
{
    (void)state;
    uint16_t *items = NULL, *none = NULL;
    uint32_t capacity = 0;
    struct item *others = malloc(sizeof *others);
    assert_non_null(others);
    assert_true(array_reserve(&items, &capacity, 10));
    array_free_all(items, none, others);
    array_free_all(none);
}

static void test_sorts_and_finds(void **state)
{
    (void)state;
    uint32_t narrow[] = {7, UINT32_MAX, 0, 7, 3};
    uint64_t wide[] = {UINT64_MAX, 1, (uint64_t)1 << 32};
    const uint32_t narrow_sorted[] = {0, 3, 7, 7, UINT32_MAX};
    const uint64_t wide_sorted[] = {1, (uint64_t)1 << 32, UINT64_MAX};
    array_sort_u32(narrow, 5);
    array_sort_u64(wide, 3);
    assert_memory_equal(narrow, narrow_sorted, sizeof narrow);
    assert_memory_equal(wide, wide_sorted, sizeof wide);
    assert_true(array_has_u32(narrow, 5, 7) && array_has_u32(narrow, 5, UINT32_MAX) && array_has_u32(narrow, 5, 0));
    assert_false(array_has_u32(narrow, 5, 4));
    assert_true(array_has_u64(wide, 3, 1) && array_has_u64(wide, 3, UINT64_MAX));
    assert_false(array_has_u64(wide, 3, 2));
    array_sort_u32(NULL, 0);
    array_sort_u64(NULL, 0);
    assert_false(array_has_u32(NULL, 0, 0) || array_has_u64(NULL, 0, 0));
}

/* Every place there is, for all counts, and from a place on. */
static void test_finds_the_first(void **state)
{
    (void)state;
    const struct item *none = NULL;
    uint32_t at = 7;
    array_find_first(at, 0, 0, none[at].number < 1);
    assert_int_equal(at, 0);
    for (uint32_t n = 0; n < 20; n++)
        for (uint32_t first = 0; first <= n; first++)
            for (uint32_t begin = 0; begin <= n; begin++) {
                uint64_t wide = 0;
                array_find_first(at, begin, n, at < first);
                assert_int_equal(at, begin > first ? begin : first);
                array_find_first(wide, begin, n, wide < first);
                assert_int_equal(wide, at);
            }
    size_t widest;
    array_find_first(widest, 0, SIZE_MAX, widest < SIZE_MAX - 3);
    assert_true(widest == SIZE_MAX - 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keeps_and_doubles),
        cmocka_unit_test(test_takes_what_is_needed_at_once),
        cmocka_unit_test(test_doubles_up_to_what_is_kept),
        cmocka_unit_test(test_refuses_what_cannot_be),
        cmocka_unit_test(test_frees_all),
        cmocka_unit_test(test_sorts_and_finds),
        cmocka_unit_test(test_finds_the_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
