/*
 * test_quota.c - who gives up an entry: rules one by one, and as a property over random caches.
 *
 * The model keeps entries with sizes and lets each victim give up its oldest; after every step the books must agree,
 * limits hold, and nobody at or under the guaranteed share may have been asked.
 */
#include "cache/policy/quota.h"
#include "io/random.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint32_t ask(const struct quota *quota, const struct quota_category *categories, uint32_t n, uint32_t asks,
                    uint64_t bytes, enum quota_cause cause)
{
    enum quota_cause said = cause == QUOTA_OWN ? QUOTA_CACHE : QUOTA_OWN;
    bool fits = true;
    uint32_t victim = quota_victim(quota, categories, n, asks, bytes, &said, &fits);
    assert_false(fits);
    if (victim != QUOTA_NONE)
        assert_int_equal(said, cause);
    return victim;
}

static void assert_fits(const struct quota *quota, const struct quota_category *categories, uint32_t n, uint32_t asks,
                        uint64_t bytes)
{
    enum quota_cause cause;
    bool fits = false;
    assert_int_equal(quota_victim(quota, categories, n, asks, bytes, &cause, &fits), QUOTA_NONE);
    assert_true(fits);
}

static void test_no_limits(void **state)
{
    (void)state;
    struct quota quota = {.used = {UINT64_MAX - 5, UINT64_MAX - 5}};
    struct quota_category one = {.used = {UINT64_MAX - 5, UINT64_MAX - 5}};
    assert_fits(&quota, &one, 1, 0, UINT64_MAX);
}

/* A category over its own limit gives up its own, though others are over their share and lower. */
static void test_own_limit(void **state)
{
    (void)state;
    struct quota quota = {.used = {1000, 100}, .max = {2000, 0}};
    struct quota_category c[2] = {{.used = {100, 10}, .max = {100, 0}, .priority = 90},
                                  {.used = {900, 90}, .priority = 0}};
    assert_int_equal(ask(&quota, c, 2, 0, 1, QUOTA_OWN), 0);
    assert_fits(&quota, c, 2, 0, 0);
    c[0].max = (struct quota_use){0, 10};
    assert_int_equal(ask(&quota, c, 2, 0, 1, QUOTA_OWN), 0);
    c[0].empty_handed = true;
    assert_int_equal(ask(&quota, c, 2, 0, 1, QUOTA_OWN), QUOTA_NONE);
    c[0] = (struct quota_category){.used = {100, 10}, .max = {100, 0}};
    assert_int_equal(ask(&quota, c, 2, 0, 101, QUOTA_OWN), QUOTA_NONE); /* never fits: nobody loses for it */
    assert_int_equal(ask(&quota, c, 2, 1, 2001, QUOTA_CACHE), QUOTA_NONE);
    assert_int_equal(ask(&quota, c, 2, 1, UINT64_MAX, QUOTA_CACHE), QUOTA_NONE);
}

static void test_priority_then_excess(void **state)
{
    (void)state;
    struct quota quota = {.used = {1000, 1000}, .max = {1000, 0}};
    struct quota_category c[4] = {{.used = {100, 100}, .min_share = 0.1, .priority = 0}, /* at its share: not asked */
                                  {.used = {200, 200}, .min_share = 0.1, .priority = 10},
                                  {.used = {300, 300}, .min_share = 0.1, .priority = 10}, /* over it the most */
                                  {.used = {400, 400}, .min_share = 0, .priority = 20}};
    assert_int_equal(ask(&quota, c, 4, 3, 1, QUOTA_CACHE), 2);
    c[1].priority = 9;
    assert_int_equal(ask(&quota, c, 4, 3, 1, QUOTA_CACHE), 1);
    c[1].empty_handed = true;
    assert_int_equal(ask(&quota, c, 4, 3, 1, QUOTA_CACHE), 2);
    c[2].empty_handed = true;
    assert_int_equal(ask(&quota, c, 4, 3, 1, QUOTA_CACHE), 3);
    c[3].empty_handed = true;
    assert_int_equal(ask(&quota, c, 4, 3, 1, QUOTA_CACHE), QUOTA_NONE);
    /* the one that asks counts with its new entry, and loses only to itself */
    assert_int_equal(ask(&quota, c, 4, 0, 1, QUOTA_CACHE), 0);
}

/* Only what is short counts: who has few, large entries gives up when bytes are short, not when entries are. */
static void test_short_resource(void **state)
{
    (void)state;
    struct quota quota = {.used = {1000, 10}, .max = {1000, 20}};
    struct quota_category c[2] = {{.used = {900, 1}, .min_share = 0.2}, {.used = {100, 9}, .min_share = 0.2}};
    assert_int_equal(ask(&quota, c, 2, 1, 10, QUOTA_CACHE), 0);
    quota.max = (struct quota_use){2000, 10};
    assert_int_equal(ask(&quota, c, 2, 0, 10, QUOTA_CACHE), 1);
}

/* What is free may be borrowed up to the last byte, and goes back to its owner when it asks. */
static void test_borrowing(void **state)
{
    (void)state;
    struct quota quota = {.max = {100, 0}};
    struct quota_category c[2] = {{.min_share = 0.6, .priority = 10}, {.min_share = 0.4, .priority = 90}};
    for (; c[1].used.bytes < 100; c[1].used.bytes++, c[1].used.entries++, quota.used.bytes++)
        assert_fits(&quota, c, 2, 1, 1);
    for (; c[0].used.bytes < 60; c[0].used.bytes++, c[0].used.entries++) {
        assert_int_equal(ask(&quota, c, 2, 0, 1, QUOTA_CACHE), 1);
        c[1].used.bytes--, c[1].used.entries--;
    }
    assert_int_equal(ask(&quota, c, 2, 0, 1, QUOTA_CACHE), 0); /* both at their share: each its own */
    assert_int_equal(ask(&quota, c, 2, 1, 1, QUOTA_CACHE), 1);
}

/* ---- random caches ----------------------------------------------------------------------------------------------- */

#define CATEGORIES 6
#define HELD       4096

struct model {
    struct quota quota;
    struct quota_category categories[CATEGORIES];
    uint32_t bytes[CATEGORIES][HELD]; /* rings of entries, oldest first */
    uint32_t first[CATEGORIES], pinned[CATEGORIES];
    struct random random;
};

static void make_model(struct model *m, uint64_t seed)
{
    double left = 1;
    memset(m, 0, sizeof *m);
    random_init(&m->random, seed);
    m->quota.max.bytes = random_below(&m->random, 4) ? 1000 + random_below(&m->random, 20000) : 0;
    m->quota.max.entries = random_below(&m->random, 3) && m->quota.max.bytes ? 0 : 10 + random_below(&m->random, 300);
    for (unsigned i = 0; i < CATEGORIES; i++) {
        struct quota_category *c = &m->categories[i];
        c->min_share = random_below(&m->random, 2) ? left * (double)random_below(&m->random, 101) / 100 : 0;
        left -= c->min_share;
        c->priority = (unsigned)random_below(&m->random, 3);
        c->max.bytes = random_below(&m->random, 4) ? 0 : 200 + random_below(&m->random, 5000);
        c->max.entries = random_below(&m->random, 4) ? 0 : 1 + random_below(&m->random, 100);
    }
}

static void give_up(struct model *m, uint32_t victim)
{
    struct quota_category *c = &m->categories[victim];
    assert_true(c->used.entries > m->pinned[victim]);
    uint32_t bytes = m->bytes[victim][m->first[victim]++ % HELD];
    c->used.bytes -= bytes;
    c->used.entries--;
    m->quota.used.bytes -= bytes;
    m->quota.used.entries--;
}

static bool is_over_share(const struct model *m, uint32_t i, uint32_t asks, uint64_t bytes)
{
    const struct quota_category *c = &m->categories[i];
    double used_bytes = (double)(c->used.bytes + (i == asks ? bytes : 0));
    double used_entries = (double)(c->used.entries + (i == asks));
    return (m->quota.max.bytes && used_bytes > c->min_share * (double)m->quota.max.bytes) ||
           (m->quota.max.entries && used_entries > c->min_share * (double)m->quota.max.entries);
}

/* Over the share of everything that is limited, and able to give: whatever is short, this one may be asked. */
static bool can_give(const struct model *m, uint32_t i)
{
    const struct quota_category *c = &m->categories[i];
    const struct quota_use *max = &m->quota.max;
    return !c->empty_handed && c->used.entries > 0 &&
           (!max->bytes || (double)c->used.bytes > c->min_share * (double)max->bytes) &&
           (!max->entries || (double)c->used.entries > c->min_share * (double)max->entries);
}

/* Of the cache's victims: it is over its share, and nobody with lower priority could have given. */
static void check_victim(const struct model *m, uint32_t victim, uint32_t asks, uint64_t bytes)
{
    assert_true(victim == asks || is_over_share(m, victim, asks, bytes));
    for (uint32_t i = 0; i < CATEGORIES; i++)
        if (can_give(m, i) && victim != i)
            assert_true(m->categories[victim].priority <= m->categories[i].priority);
}

/* Refused though it is not too large: all that there is is guaranteed to others, or pinned. */
static void check_refusal(const struct model *m, uint32_t asks)
{
    const struct quota_category *c = &m->categories[asks];
    assert_true(c->used.entries == 0 || c->empty_handed);
    for (uint32_t i = 0; i < CATEGORIES && !c->max.bytes && !c->max.entries; i++)
        assert_false(can_give(m, i));
}

/* Puts an entry as the cache would. Whether it was taken. */
static bool put(struct model *m, uint32_t asks, uint32_t bytes)
{
    enum quota_cause cause;
    bool fits;
    uint64_t rounds = m->quota.used.entries;
    for (;; rounds--) {
        for (uint32_t i = 0; i < CATEGORIES; i++)
            m->categories[i].empty_handed = m->categories[i].used.entries == m->pinned[i];
        uint32_t victim = quota_victim(&m->quota, m->categories, CATEGORIES, asks, bytes, &cause, &fits);
        if (victim == QUOTA_NONE)
            break;
        assert_true(rounds > 0 && !fits);
        if (cause == QUOTA_OWN)
            assert_int_equal(victim, asks);
        else
            check_victim(m, victim, asks, bytes);
        give_up(m, victim);
    }
    struct quota_category *c = &m->categories[asks];
    bool too_large = (c->max.bytes && bytes > c->max.bytes) || (m->quota.max.bytes && bytes > m->quota.max.bytes);
    assert_true(!fits || !too_large);
    if (!fits && !too_large)
        check_refusal(m, asks);
    if (!fits)
        return false;
    m->bytes[asks][(m->first[asks] + c->used.entries) % HELD] = bytes;
    c->used.bytes += bytes, m->quota.used.bytes += bytes;
    c->used.entries++, m->quota.used.entries++;
    assert_true(c->used.entries < HELD);
    assert_true(!c->max.bytes || c->used.bytes <= c->max.bytes);
    assert_true(!c->max.entries || c->used.entries <= c->max.entries);
    assert_true(!m->quota.max.bytes || m->quota.used.bytes <= m->quota.max.bytes);
    assert_true(!m->quota.max.entries || m->quota.used.entries <= m->quota.max.entries);
    return true;
}

static void test_random(void **state)
{
    (void)state;
    struct model *m = malloc(sizeof *m);
    uint32_t taken = 0, refused = 0;
    assert_non_null(m);
    for (uint64_t seed = 0; seed < 300; seed++) {
        make_model(m, seed);
        for (unsigned i = 0; i < 2000; i++) {
            uint32_t asks = (uint32_t)random_below(&m->random, CATEGORIES);
            bool was_taken = put(m, asks, (uint32_t)random_below(&m->random, 300));
            taken += was_taken, refused += !was_taken;
        }
    }
    assert_true(taken > 500000 && refused > 100);
    free(m);
}

/* With pins: puts end, and pinned entries stay. */
static void test_random_pinned(void **state)
{
    (void)state;
    struct model *m = malloc(sizeof *m);
    uint32_t refused = 0;
    assert_non_null(m);
    for (uint64_t seed = 1000; seed < 1200; seed++) {
        make_model(m, seed);
        for (unsigned i = 0; i < 1000; i++) {
            uint32_t asks = (uint32_t)random_below(&m->random, CATEGORIES);
            refused += !put(m, asks, (uint32_t)random_below(&m->random, 300));
            if (random_below(&m->random, 50) == 0)
                m->pinned[asks] = (uint32_t)m->categories[asks].used.entries; /* all that it has now */
        }
        for (unsigned i = 0; i < CATEGORIES; i++)
            assert_true(m->categories[i].used.entries >= m->pinned[i]);
    }
    assert_true(refused > 0);
    free(m);
}

static void test_check_shares(void **state)
{
    (void)state;
    struct quota_category c[10] = {{.min_share = 0}};
    struct quire_error err = {0};
    assert_int_equal(quota_check_shares(c, 0, &err), 0);
    for (unsigned i = 0; i < 10; i++)
        c[i].min_share = 0.1; /* the sum in binary is not 1 */
    assert_int_equal(quota_check_shares(c, 10, &err), 0);
    c[3].min_share = 0.125;
    assert_int_equal(quota_check_shares(c, 10, &err), QUIRE_ERANGE);
    assert_non_null(strstr(err.message, "102.5 %"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_limits),
        cmocka_unit_test(test_own_limit),
        cmocka_unit_test(test_priority_then_excess),
        cmocka_unit_test(test_short_resource),
        cmocka_unit_test(test_borrowing),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_random_pinned),
        cmocka_unit_test(test_check_shares),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
