/*
 * test_sketch.c - what was seen lately is known, what was seen long ago is not, and few strangers pass for known.
 */
#include "cache/policy/sketch.h"
#include "io/random.h"
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static struct sketch make(uint32_t room)
{
    struct sketch sketch;
    assert_int_equal(sketch_init(&sketch, room), 0);
    return sketch;
}

/* Of any stream, the last `room` different keys are known. */
static void test_remembers_room(void **state)
{
    (void)state;
    static const uint32_t rooms[] = {1, 2, 100, 1000, 20000};
    for (unsigned r = 0; r < sizeof rooms / sizeof *rooms; r++) {
        struct sketch sketch = make(rooms[r]);
        for (uint32_t i = 0; i < 5 * rooms[r] + 10; i++) {
            sketch_add(&sketch, random_mix(i));
            uint32_t first = i >= rooms[r] ? i - rooms[r] + 1 : 0;
            for (uint32_t j = first; j <= i; j += 1 + rooms[r] / 7)
                assert_true(sketch_seen(&sketch, random_mix(j)));
        }
        sketch_fini(&sketch);
    }
}

static double share_seen(const struct sketch *sketch, uint64_t first, uint32_t n)
{
    uint32_t seen = 0;
    for (uint32_t i = 0; i < n; i++)
        seen += sketch_seen(sketch, random_mix(first + i));
    return (double)seen / n;
}

/* Keys more than two times `room` back are forgotten, but for what chance lets pass; the same of keys never added. The
 * worst is both filters full: 1 in 20, half of it from each. */
static void test_forgets_and_strangers(void **state)
{
    (void)state;
    struct sketch sketch = make(10000);
    assert_true(share_seen(&sketch, 0, 10000) == 0);
    for (uint32_t i = 0; i < 100000; i++) {
        sketch_add(&sketch, random_mix(i));
        if (i % 9973 == 0)
            assert_true(share_seen(&sketch, 1u << 30, 10000) < 0.05);
    }
    assert_true(share_seen(&sketch, 0, 70000) < 0.05);
    assert_true(share_seen(&sketch, 90000, 10000) == 1);
    sketch_fini(&sketch);
}

/* One key added for ever does not push the others out. */
static void test_same_key_takes_one_place(void **state)
{
    (void)state;
    struct sketch sketch = make(100);
    for (uint32_t i = 0; i < 100; i++)
        sketch_add(&sketch, random_mix(i));
    for (uint32_t i = 0; i < 100000; i++)
        sketch_add(&sketch, random_mix(7));
    assert_true(share_seen(&sketch, 0, 100) == 1);
    sketch_fini(&sketch);
}

/* Hashes that differ in their high half only share the first probe: three are left, which is 1 in 17. */
static void test_poor_hashes(void **state)
{
    (void)state;
    struct sketch sketch = make(1000);
    uint32_t seen = 0;
    for (uint64_t i = 0; i < 500; i++) {
        sketch_add(&sketch, i);
        sketch_add(&sketch, i << 32);
    }
    for (uint64_t i = 0; i < 500; i++)
        assert_true(sketch_seen(&sketch, i) && sketch_seen(&sketch, i << 32));
    for (uint64_t i = 500; i < 10500; i++)
        seen += (uint32_t)sketch_seen(&sketch, i) + (uint32_t)sketch_seen(&sketch, i << 32);
    assert_true(seen < 20000 / 10);
    sketch_fini(&sketch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_remembers_room),
        cmocka_unit_test(test_forgets_and_strangers),
        cmocka_unit_test(test_same_key_takes_one_place),
        cmocka_unit_test(test_poor_hashes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
