/*
 * test_heap.c - heaps against sorted arrays: what is on top, what a bounded one keeps, the order of a sorted one, and
 * that items which are told their place can be found and taken out by it.
 */
#include "io/heap.h"
#include "io/random.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ITEMS_MAX = 200, ROUNDS = 300 };

static inline bool is_more(const uint64_t *a, const uint64_t *b)
{
    return *a > *b;
}

HEAP_DEFINE(numbers, uint64_t, is_more, HEAP_PLACE_UNKNOWN)

struct task {
    uint64_t due;
    size_t at;
};

static inline bool is_due_before(struct task *const *a, struct task *const *b)
{
    return (*a)->due < (*b)->due;
}

static inline void set_place(struct task *const *task, size_t at)
{
    (*task)->at = at;
}

HEAP_DEFINE(tasks, struct task *, is_due_before, set_place)

static int by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Numbers with many equal ones among them. */
static size_t make_numbers(struct random *random, uint64_t *numbers)
{
    size_t n = random_below(random, ITEMS_MAX + 1);
    for (size_t i = 0; i < n; i++)
        numbers[i] = random_below(random, 100);
    return n;
}

static void test_the_top_is_the_largest_and_sorting_is_right(void **state)
{
    (void)state;
    struct random random;
    random_init(&random, 1);
    for (unsigned round = 0; round < ROUNDS; round++) {
        uint64_t numbers[ITEMS_MAX], heap[ITEMS_MAX], largest = 0;
        size_t n = make_numbers(&random, numbers);
        for (size_t i = 0; i < n; i++) {
            numbers_push(heap, i, numbers[i]);
            assert_true(numbers_check(heap, i + 1));
            largest = numbers[i] > largest ? numbers[i] : largest;
            assert_int_equal(heap[0], largest);
        }
        qsort(numbers, n, sizeof *numbers, by_number);
        numbers_sort(heap, n);
        assert_memory_equal(heap, numbers, n * sizeof *numbers);
    }
}

static void test_a_bounded_heap_keeps_the_smallest(void **state)
{
    (void)state;
    struct random random;
    random_init(&random, 2);
    for (unsigned round = 0; round < ROUNDS; round++) {
        uint64_t numbers[ITEMS_MAX], heap[ITEMS_MAX];
        size_t n = make_numbers(&random, numbers), capacity = random_below(&random, 20), kept = 0;
        for (size_t i = 0; i < n; i++) {
            kept = numbers_offer(heap, kept, capacity, numbers[i]);
            assert_true(numbers_check(heap, kept));
        }
        assert_int_equal(kept, n < capacity ? n : capacity);
        qsort(numbers, n, sizeof *numbers, by_number);
        numbers_sort(heap, kept);
        assert_memory_equal(heap, numbers, kept * sizeof *numbers);
    }
}

static void test_items_know_their_place(void **state)
{
    (void)state;
    struct random random;
    random_init(&random, 3);
    struct task all[ITEMS_MAX], *heap[ITEMS_MAX];
    size_t n = 0;
    for (size_t i = 0; i < ITEMS_MAX; i++)
        all[i] = (struct task){.at = SIZE_MAX};
    for (unsigned round = 0; round < 20000; round++) {
        struct task *task = &all[random_below(&random, ITEMS_MAX)];
        if (task->at == SIZE_MAX) {
            task->due = random_below(&random, 1000);
            tasks_push(heap, n++, task);
        } else if (random_below(&random, 2)) {
            tasks_remove(heap, n--, task->at);
            task->at = SIZE_MAX;
        } else {
            uint64_t due = random_below(&random, 1000);
            bool sooner = due < task->due;
            task->due = due;
            if (sooner)
                tasks_rise(heap, task->at);
            else
                tasks_sink(heap, n, task->at);
        }
        assert_true(tasks_check(heap, n));
        for (size_t at = 0; at < n; at++)
            assert_int_equal(heap[at]->at, at);
    }
    assert_true(n > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_top_is_the_largest_and_sorting_is_right),
        cmocka_unit_test(test_a_bounded_heap_keeps_the_smallest),
        cmocka_unit_test(test_items_know_their_place),
    };
    return cmocka_run_group_tests_name("heap", tests, NULL, NULL);
}
