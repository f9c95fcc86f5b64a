/*
 * test_flow_promise.c - ids of answers that are not kept yet: what they stand for, and when they are forgotten.
 */
#include "gateway/proxy/flow_promise.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static void test_a_promise_is_open_then_kept_or_broken(void **state)
{
    struct flow_promises *promises = flow_promises_create();
    uint64_t entry = 0, kept, broken;
    (void)state;
    assert_non_null(promises);
    kept = flow_promise_make(promises);
    broken = flow_promise_make(promises);
    assert_true(kept != 0 && broken != 0 && kept != broken);
    assert_int_equal(flow_promise_find(promises, kept, &entry), FLOW_PROMISE_OPEN);
    flow_promise_end(promises, kept, "00fedcba98765432", 16);
    flow_promise_end(promises, broken, NULL, 0);
    assert_int_equal(flow_promise_find(promises, kept, &entry), FLOW_PROMISE_KEPT);
    assert_true(entry == UINT64_C(0x00fedcba98765432));
    assert_int_equal(flow_promise_find(promises, broken, &entry), FLOW_PROMISE_BROKEN);
    flow_promise_end(promises, kept, NULL, 0); /* its errand ends: nothing changes */
    assert_int_equal(flow_promise_find(promises, kept, &entry), FLOW_PROMISE_KEPT);
    flow_promises_destroy(promises);
}

static void test_what_was_never_promised_is_unknown(void **state)
{
    struct flow_promises *promises = flow_promises_create();
    uint64_t entry = 7, promise;
    (void)state;
    assert_non_null(promises);
    promise = flow_promise_make(promises);
    assert_int_equal(flow_promise_find(promises, 0, &entry), FLOW_PROMISE_UNKNOWN);
    assert_int_equal(flow_promise_find(promises, promise + FLOW_PROMISES_MAX, &entry), FLOW_PROMISE_UNKNOWN);
    assert_int_equal(flow_promise_find(promises, promise + 1, &entry), FLOW_PROMISE_UNKNOWN);
    assert_true(entry == 7);
    flow_promise_end(promises, promise, "short", 5); /* no id: it was not kept */
    assert_int_equal(flow_promise_find(promises, promise, &entry), FLOW_PROMISE_BROKEN);
    flow_promises_destroy(promises);
}

static void test_the_oldest_are_forgotten(void **state)
{
    struct flow_promises *promises = flow_promises_create();
    uint64_t entry, first, second;
    (void)state;
    assert_non_null(promises);
    first = flow_promise_make(promises);
    second = flow_promise_make(promises);
    for (unsigned i = 0; i < FLOW_PROMISES_MAX - 1; i++)
        assert_true(flow_promise_make(promises) != 0);
    assert_int_equal(flow_promise_find(promises, first, &entry), FLOW_PROMISE_UNKNOWN);
    assert_int_equal(flow_promise_find(promises, second, &entry), FLOW_PROMISE_OPEN);
    flow_promise_end(promises, first, "0000000000000001", 16); /* its place is another's */
    assert_int_equal(flow_promise_find(promises, first, &entry), FLOW_PROMISE_UNKNOWN);
    flow_promises_destroy(promises);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_promise_is_open_then_kept_or_broken),
                                       cmocka_unit_test(test_what_was_never_promised_is_unknown),
                                       cmocka_unit_test(test_the_oldest_are_forgotten)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
