/*
 * test_hash.c - hash tables against arrays that are searched: what was added is found until it is removed, whatever the
 * order, also where many items share their hash; and a table keeps its items while it grows.
 */
#include "io/hash.h"
#include "io/random.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { KEYS = 500, STEPS = 20000 };

struct entry {
    uint64_t key; /* 0: an empty place */
    uint64_t value;
};

static inline bool entry_is_set(const struct entry *e)
{
    return e->key != 0;
}

/* Chains of neighbours, and some that wrap around. */
static inline uint64_t entry_hash(const struct entry *e)
{
    return e->key % 7 == 0 ? UINT64_MAX - e->key % 3 : e->key / 3;
}

static inline bool entry_is_same(const struct entry *a, const struct entry *b)
{
    return a->key == b->key;
}

HASH_DEFINE(entries, struct entry, entry_is_set, entry_hash, entry_is_same)

static void check(const struct entries *table, const uint64_t *values)
{
    uint64_t n = 0, walked = 0;
    for (uint64_t key = 1; key < KEYS; key++) {
        const struct entry *found = entries_find(table, &(struct entry){.key = key});
        assert_int_equal(found != NULL, values[key] != 0);
        if (found)
            assert_int_equal(found->value, values[key]);
        n += values[key] != 0;
    }
    for (uint64_t i = 0; i < table->capacity; i++)
        walked += entry_is_set(&table->places[i]);
    assert_int_equal(table->n, n);
    assert_int_equal(walked, n);
    assert_true(n <= table->capacity / 4 * 3);
}

static void test_what_was_added_is_found_until_it_is_removed(void **state)
{
    (void)state;
    struct random random;
    struct entries table = {0};
    uint64_t values[KEYS] = {0};
    random_init(&random, 1);
    check(&table, values);
    for (uint64_t step = 1; step <= STEPS; step++) {
        struct entry entry = {.key = 1 + random_below(&random, KEYS - 1), .value = step};
        struct entry *found = entries_find(&table, &entry);
        /* it fills up and empties by turns */
        if (!found && random_below(&random, 1000) < (step % 4000 < 2000 ? 900 : 100)) {
            assert_int_equal(entries_add(&table, entry)->value, step);
            values[entry.key] = step;
        } else if (found && step % 4000 >= 2000) {
            entries_remove(&table, found);
            values[entry.key] = 0;
        }
        if (step % 100 == 0)
            check(&table, values);
    }
    free(table.places);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_was_added_is_found_until_it_is_removed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
