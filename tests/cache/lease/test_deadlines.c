/*
 * test_deadlines.c - the heap of deadlines beside a plain array: after every step the earliest is the earliest, and
 * every owner stands where its place says.
 */
#include "cache/lease/deadlines.h"
#include "io/random.h"
#include "quire.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define THINGS 300u

struct thing {
    uint64_t at_ms;
    uint32_t place;
    int in;
};

static uint64_t earliest(const struct thing *things)
{
    uint64_t best = UINT64_MAX;
    for (uint32_t i = 0; i < THINGS; i++)
        if (things[i].in && things[i].at_ms < best)
            best = things[i].at_ms;
    return best;
}

static void check(const struct deadlines *heap, const struct thing *things)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < THINGS; i++) {
        if (!things[i].in)
            continue;
        n++;
        assert_true(things[i].place < heap->n);
        assert_ptr_equal(heap->items[things[i].place].owner, things + i);
    }
    assert_int_equal(heap->n, n);
    assert_int_equal(deadlines_next(heap), earliest(things));
}

static void test_beside_an_array(void **state)
{
    (void)state;
    struct deadlines heap;
    struct thing things[THINGS] = {0};
    struct random random = {1};
    assert_int_equal(deadlines_init(&heap, THINGS), 0);
    for (unsigned step = 0; step < 20000; step++) {
        struct thing *thing = things + random_below(&random, THINGS);
        if (thing->in) {
            deadlines_remove(&heap, thing->place);
        } else {
            thing->at_ms = random_below(&random, 200);
            deadlines_add(&heap, thing->at_ms, thing, &thing->place);
        }
        thing->in = !thing->in;
        check(&heap, things);
    }
    deadlines_fini(&heap);
}

static void test_due(void **state)
{
    (void)state;
    struct deadlines heap;
    struct thing things[3] = {{.at_ms = 30}, {.at_ms = 10}, {.at_ms = 20}};
    assert_int_equal(deadlines_init(&heap, 3), 0);
    assert_null(deadlines_due(&heap, UINT64_MAX));
    assert_true(deadlines_next(&heap) == UINT64_MAX);
    for (unsigned i = 0; i < 3; i++)
        deadlines_add(&heap, things[i].at_ms, things + i, &things[i].place);
    assert_null(deadlines_due(&heap, 9));
    assert_ptr_equal(deadlines_due(&heap, 10), things + 1);
    deadlines_remove(&heap, things[1].place);
    assert_null(deadlines_due(&heap, 19));
    assert_ptr_equal(deadlines_due(&heap, 100), things + 2);
    deadlines_remove(&heap, things[2].place);
    assert_ptr_equal(deadlines_due(&heap, 100), things);
    deadlines_remove(&heap, things[0].place);
    assert_null(deadlines_due(&heap, 100));
    deadlines_fini(&heap);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_beside_an_array),
        cmocka_unit_test(test_due),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
