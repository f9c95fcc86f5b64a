/*
 * test_vectors_table.c - numbers and ids against a model: random documents that come, go and get other ids, sets of all
 * sizes, and searches under way that keep numbers from being given again.
 */
#include "document/vectors/vectors_table.h"
#include "io/random.h"
#include <roaring/roaring.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { DOCUMENTS = 700, STEPS = 40000 };

struct model {
    struct vectors_table table;
    struct random random;
    uint32_t next_id;
    uint32_t ids[DOCUMENTS]; /* VECTORS_NO_ID: it is not there */
    uint32_t numbers[DOCUMENTS];
};

static void is_sound(const struct model *m)
{
    const char *reason;
    if (!vectors_table_check(&m->table, &reason))
        fail_msg("%s", reason);
    for (uint32_t i = 0; i < DOCUMENTS; i++)
        if (m->ids[i] != VECTORS_NO_ID)
            assert_int_equal(vectors_table_find(&m->table, m->ids[i]), m->numbers[i]);
}

static void name(struct model *m, uint32_t i)
{
    assert_int_equal(vectors_table_reserve(&m->table), 0);
    if (m->ids[i] == VECTORS_NO_ID)
        m->numbers[i] = vectors_table_take(&m->table);
    m->ids[i] = m->next_id;
    m->next_id += 1 + (uint32_t)random_below(&m->random, 3);
    vectors_table_name(&m->table, m->numbers[i], m->ids[i], 7);
}

static void drop(struct model *m, uint32_t i)
{
    uint32_t id = m->ids[i];
    vectors_table_give_back(&m->table, m->numbers[i]);
    m->ids[i] = VECTORS_NO_ID;
    assert_int_equal(vectors_table_find(&m->table, id), NUMBER_NONE);
}

static void check_set(struct model *m, double share)
{
    roaring_bitmap_t *ids = roaring_bitmap_create();
    struct number_set set;
    uint32_t n = 0;
    for (uint32_t id = 0; id < m->next_id; id++)
        if ((double)random_below(&m->random, 1000000) < share * 1000000)
            roaring_bitmap_add(ids, id);
    assert_int_equal(vectors_table_select(&m->table, ids, &set), 0);
    for (uint32_t i = 0; i < DOCUMENTS; i++) {
        bool in = m->ids[i] != VECTORS_NO_ID && roaring_bitmap_contains(ids, m->ids[i]);
        n += in;
        if (m->ids[i] != VECTORS_NO_ID)
            assert_int_equal(number_set_has(&set, m->numbers[i]), in);
    }
    assert_int_equal(set.n, n);
    assert_false(number_set_has(&set, set.end));
    for (uint32_t i = 0; set.list && i < set.n; i++)
        assert_true(number_set_has(&set, set.list[i]) && (i == 0 || set.list[i - 1] < set.list[i]));
    number_set_fini(&set);
    roaring_bitmap_free(ids);
}

static void numbers_and_ids_agree_with_a_model(void **state)
{
    struct model *m = calloc(1, sizeof *m);
    (void)state;
    assert_non_null(m);
    vectors_table_init(&m->table);
    random_init(&m->random, 5);
    memset(m->ids, 0xff, sizeof m->ids);
    for (uint32_t step = 0; step < STEPS; step++) {
        uint32_t i = (uint32_t)random_below(&m->random, DOCUMENTS);
        if (m->ids[i] != VECTORS_NO_ID && random_below(&m->random, 3) == 0)
            drop(m, i);
        else
            name(m, i);
        if (step % 4000 == 0 || step < 20) {
            is_sound(m);
            for (double share = 1; share > .0001; share /= 4)
                check_set(m, share);
            check_set(m, 0);
        }
    }
    assert_true(m->table.end <= DOCUMENTS); /* numbers were given again */
    vectors_table_fini(&m->table);
    free(m);
}

static void a_search_under_way_keeps_numbers(void **state)
{
    struct vectors_table t;
    struct vectors_ticket first, second;
    (void)state;
    vectors_table_init(&t);
    for (uint32_t id = 1; id <= 3; id++) {
        assert_int_equal(vectors_table_reserve(&t), 0);
        vectors_table_name(&t, vectors_table_take(&t), id, 0);
    }
    vectors_table_give_back(&t, 0);
    vectors_table_search_begins(&t, &first);
    vectors_table_give_back(&t, 1);
    vectors_table_search_begins(&t, &second);
    assert_int_equal(vectors_table_reserve(&t), 0);
    assert_int_equal(vectors_table_take(&t), 0); /* that was free before both */
    assert_int_equal(vectors_table_reserve(&t), 0);
    assert_int_equal(vectors_table_take(&t), 3); /* 1 was somebody's for the first */
    vectors_table_search_ends(&t, &first);
    assert_int_equal(vectors_table_reserve(&t), 0);
    assert_int_equal(vectors_table_take(&t), 1);
    vectors_table_give_back(&t, 2);
    assert_int_equal(vectors_table_reserve(&t), 0);
    assert_int_equal(vectors_table_take(&t), 4);
    vectors_table_search_ends(&t, &second);
    assert_int_equal(vectors_table_reserve(&t), 0);
    assert_int_equal(vectors_table_take(&t), 2);
    vectors_table_fini(&t);
}

static void numbers_that_were_there_are_restored(void **state)
{
    struct vectors_table t;
    const uint8_t taken[2] = {0x15, 0x01}; /* 0, 2, 4, 8 */
    const char *reason;
    (void)state;
    vectors_table_init(&t);
    assert_int_equal(vectors_table_restore(&t, 9, taken), 0);
    const uint32_t expected[] = {1, 3, 5, 6, 7, 9, 10};
    assert_true(vectors_table_check(&t, &reason));
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        assert_int_equal(vectors_table_reserve(&t), 0);
        assert_int_equal(vectors_table_take(&t), expected[i]);
    }
    vectors_table_fini(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_and_ids_agree_with_a_model),
        cmocka_unit_test(a_search_under_way_keeps_numbers),
        cmocka_unit_test(numbers_that_were_there_are_restored),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
