/*
 * test_epoch.c - what is deferred runs after every reader that was inside, and not before; once, and all of it.
 *
 * One thread shows the rule step by step. Many threads then follow a pointer that writers replace: what is taken out
 * is overwritten when it runs, so a reader that still held it would see a wrong mark (and AddressSanitizer a freed
 * block).
 */
#include "io/epoch.h"
#include "io/random.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#define MARK    0x5eed5eedu
#define READERS 6
#define WRITERS 2
#define SWAPS   4000

struct counted {
    struct epoch_item item;
    unsigned *ran;
};

static void count_run(struct epoch_item *item)
{
    struct counted *counted = (struct counted *)(void *)item;
    ++*counted->ran;
    free(counted);
}

static void defer_one(struct epochs *epochs, unsigned *ran)
{
    struct counted *counted = malloc(sizeof *counted);
    assert_non_null(counted);
    *counted = (struct counted){.item = {.run = count_run}, .ran = ran};
    epoch_defer(epochs, &counted->item);
}

static void test_nothing_inside(void **state)
{
    (void)state;
    struct epochs *epochs;
    unsigned ran = 0;
    assert_int_equal(epochs_create(&epochs), 0);
    assert_int_equal(epochs_collect(epochs), 0);
    defer_one(epochs, &ran);
    assert_int_equal(ran, 0);
    assert_int_equal(epochs_collect(epochs), 0);
    assert_int_equal(ran, 1);
    epochs_destroy(epochs);
    epochs_destroy(NULL);
    assert_int_equal(ran, 1);
}

static void test_reader_keeps_it(void **state)
{
    (void)state;
    struct epochs *epochs;
    unsigned ran = 0;
    assert_int_equal(epochs_create(&epochs), 0);
    unsigned slot = epoch_enter(epochs);
    for (unsigned i = 0; i < 1000; i++)
        defer_one(epochs, &ran);
    assert_int_equal(epochs_collect(epochs), 1000);
    assert_int_equal(ran, 0);
    epoch_exit(epochs, slot);
    assert_int_equal(epochs_collect(epochs), 0);
    assert_int_equal(ran, 1000);
    epochs_destroy(epochs);
}

/* A reader that came later does not keep it; one that came before does, whatever came in between. */
static void test_order_of_readers(void **state)
{
    (void)state;
    struct epochs *epochs;
    unsigned first = 0, second = 0;
    assert_int_equal(epochs_create(&epochs), 0);
    unsigned early = epoch_enter(epochs);
    defer_one(epochs, &first);
    epochs_collect(epochs);
    unsigned late = epoch_enter(epochs);
    assert_int_not_equal(early, late);
    defer_one(epochs, &second);
    assert_int_equal(epochs_collect(epochs), 2);
    epoch_exit(epochs, early);
    assert_int_equal(epochs_collect(epochs), 1);
    assert_int_equal(first, 1);
    assert_int_equal(second, 0);
    epoch_exit(epochs, late);
    assert_int_equal(epochs_collect(epochs), 0);
    assert_int_equal(second, 1);
    epochs_destroy(epochs);
}

/* Deferring collects by itself: without readers few items wait. */
static void test_runs_now_and_then(void **state)
{
    (void)state;
    struct epochs *epochs;
    unsigned ran = 0;
    assert_int_equal(epochs_create(&epochs), 0);
    for (unsigned i = 0; i < 10000; i++)
        defer_one(epochs, &ran);
    assert_true(ran > 9800);
    epochs_destroy(epochs);
    assert_int_equal(ran, 10000);
}

struct chained {
    struct epoch_item item;
    struct epochs *epochs;
    unsigned left, *ran;
};

static void run_chained(struct epoch_item *item)
{
    struct chained *chained = (struct chained *)(void *)item;
    ++*chained->ran;
    if (--chained->left)
        epoch_defer(chained->epochs, item);
    else
        free(chained);
}

/* What runs may defer again, also while everything ends. */
static void test_defers_when_run(void **state)
{
    (void)state;
    struct epochs *epochs;
    unsigned ran = 0;
    assert_int_equal(epochs_create(&epochs), 0);
    struct chained *chained = malloc(sizeof *chained);
    assert_non_null(chained);
    *chained = (struct chained){{.run = run_chained}, epochs, 5, &ran};
    epoch_defer(epochs, &chained->item);
    assert_int_equal(epochs_collect(epochs), 0); /* counted before it ran */
    assert_int_equal(ran, 1);
    epochs_destroy(epochs);
    assert_int_equal(ran, 5);
}

struct box {
    struct epoch_item item;
    uint32_t mark;
    atomic_uint *freed;
};

struct shared {
    struct epochs *epochs;
    _Atomic(struct box *) box;
    atomic_uint freed, wrong;
    atomic_bool stop;
};

static struct box *box_new(struct shared *shared)
{
    struct box *box = malloc(sizeof *box);
    if (box)
        *box = (struct box){.mark = MARK, .freed = &shared->freed};
    return box;
}

static void box_run(struct epoch_item *item)
{
    struct box *box = (struct box *)(void *)item;
    box->mark = 0;
    atomic_fetch_add(box->freed, 1);
    free(box);
}

static void *read_boxes(void *context)
{
    struct shared *shared = context;
    while (!atomic_load(&shared->stop)) {
        unsigned slot = epoch_enter(shared->epochs);
        struct box *box = atomic_load_explicit(&shared->box, memory_order_acquire);
        for (unsigned i = 0; i < 20; i++)
            if (*(volatile uint32_t *)&box->mark != MARK)
                atomic_fetch_add(&shared->wrong, 1);
        epoch_exit(shared->epochs, slot);
    }
    return NULL;
}

static void *swap_boxes(void *context)
{
    struct shared *shared = context;
    for (unsigned i = 0; i < SWAPS; i++) {
        struct box *box = box_new(shared);
        if (!box)
            abort();
        struct box *old = atomic_exchange(&shared->box, box);
        old->item.run = box_run;
        epoch_defer(shared->epochs, &old->item);
    }
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    struct shared shared = {0};
    pthread_t threads[READERS + WRITERS];
    assert_int_equal(epochs_create(&shared.epochs), 0);
    struct box *first = box_new(&shared);
    assert_non_null(first);
    atomic_store(&shared.box, first);
    for (unsigned i = 0; i < READERS + WRITERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, i < WRITERS ? swap_boxes : read_boxes, &shared), 0);
    for (unsigned i = 0; i < WRITERS; i++)
        pthread_join(threads[i], NULL);
    atomic_store(&shared.stop, true);
    for (unsigned i = WRITERS; i < WRITERS + READERS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&shared.wrong), 0);
    assert_int_equal(epochs_collect(shared.epochs), 0);
    assert_int_equal(atomic_load(&shared.freed), WRITERS * SWAPS);
    epochs_destroy(shared.epochs);
    free(atomic_load(&shared.box));
}

/* More readers at once than a machine has threads: each gets a slot of its own. */
static void test_many_inside(void **state)
{
    (void)state;
    struct epochs *epochs;
    unsigned slots[1000], ran = 0;
    bool seen[1024] = {false};
    assert_int_equal(epochs_create(&epochs), 0);
    for (unsigned i = 0; i < 1000; i++) {
        slots[i] = epoch_enter(epochs);
        assert_true(slots[i] < 1024 && !seen[slots[i]]);
        seen[slots[i]] = true;
    }
    defer_one(epochs, &ran);
    struct random random;
    random_init(&random, 1);
    for (unsigned left = 1000; left > 0; left--) {
        assert_int_equal(epochs_collect(epochs), 1);
        unsigned i = (unsigned)random_below(&random, left);
        epoch_exit(epochs, slots[i]);
        slots[i] = slots[left - 1];
    }
    assert_int_equal(epochs_collect(epochs), 0);
    assert_int_equal(ran, 1);
    epochs_destroy(epochs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_inside),   cmocka_unit_test(test_reader_keeps_it),
        cmocka_unit_test(test_order_of_readers), cmocka_unit_test(test_runs_now_and_then),
        cmocka_unit_test(test_defers_when_run),  cmocka_unit_test(test_many_inside),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
