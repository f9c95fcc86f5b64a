/*
 * test_evict.c - who goes next, against models that keep everything and sort.
 *
 * lru: a counter per entry, exactly. cost: GreedyDual-Size in doubles with costs rounded as in evict.c, exactly; and
 * what that rounding takes from what hits save. lfu: by what it is for: what is used often outlives scans, and what was
 * used often long ago goes. Lists are walked and compared with what is in them after every few steps.
 */
#include "cache/policy/evict.h"
#include "io/random.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ROOM 2000u

struct table {
    struct evict_order order;
    struct evict_links links[ROOM];
    bool in[ROOM];
    double key[ROOM]; /* of the model: the lowest goes first */
    uint64_t tick[ROOM], now;
    uint32_t n;
    double clock;
};

static struct evict_links *links_of(void *context, uint32_t entry)
{
    struct table *table = context;
    assert_true(entry < ROOM);
    return &table->links[entry];
}

static struct table *make(enum category_evict policy)
{
    struct table *table = calloc(1, sizeof *table);
    assert_non_null(table);
    for (unsigned i = 0; i < ROOM; i++)
        table->links[i].level = EVICT_UNLISTED;
    evict_init(&table->order, policy, links_of, table);
    return table;
}

/* Lists are whole: each entry once, in the list it says, both ways, and bits say which lists are filled. */
static void assert_valid(struct table *t)
{
    uint32_t n = 0;
    for (unsigned list = 0; list < EVICT_LEVELS; list++) {
        uint32_t before = EVICT_NONE;
        assert_int_equal(t->order.filled >> list & 1, t->order.first[list] != EVICT_NONE);
        for (uint32_t i = t->order.first[list]; i != EVICT_NONE; before = i, i = t->links[i].next, n++) {
            assert_true(n < t->n && t->in[i]);
            assert_int_equal(t->links[i].prev, before);
            assert_int_equal(t->links[i].level, list);
        }
        assert_int_equal(t->order.last[list], before);
    }
    assert_int_equal(n, t->n);
    assert_int_equal(t->order.n, t->n);
}

static void add(struct table *t, uint32_t entry, double saved)
{
    assert_false(t->in[entry]);
    evict_add(&t->order, entry, saved);
    t->in[entry] = true;
    t->tick[entry] = ++t->now;
    t->n++;
}

static void use(struct table *t, uint32_t entry, double saved)
{
    evict_used(&t->order, entry, saved);
    t->tick[entry] = t->in[entry] ? ++t->now : 0;
}

static void drop(struct table *t, uint32_t entry)
{
    evict_remove(&t->order, entry);
    assert_int_equal(t->links[entry].level, EVICT_UNLISTED);
    t->n -= t->in[entry];
    t->in[entry] = false;
}

static uint32_t take(struct table *t)
{
    uint32_t victim = evict_victim(&t->order);
    assert_int_equal(evict_victim(&t->order), victim); /* it stays */
    if (victim != EVICT_NONE) {
        evict_taken(&t->order, victim);
        drop(t, victim);
    }
    return victim;
}

static void test_empty(void **state)
{
    (void)state;
    for (enum category_evict policy = EVICT_LRU; policy <= EVICT_COST; policy++) {
        struct table *t = make(policy);
        assert_int_equal(take(t), EVICT_NONE);
        evict_used(&t->order, 3, 1); /* in no order: nothing happens */
        evict_remove(&t->order, 3);
        evict_taken(&t->order, 3);
        assert_valid(t);
        add(t, 3, 1);
        evict_used(&t->order, 3, 2);
        assert_valid(t);
        assert_int_equal(take(t), 3);
        assert_int_equal(take(t), EVICT_NONE);
        assert_valid(t);
        free(t);
    }
}

/* ---- lru --------------------------------------------------------------------------------------------------------- */

static uint32_t oldest(const struct table *t)
{
    uint32_t best = EVICT_NONE;
    for (uint32_t i = 0; i < ROOM; i++)
        if (t->in[i] && (best == EVICT_NONE || t->tick[i] < t->tick[best]))
            best = i;
    return best;
}

static void test_lru_is_exact(void **state)
{
    (void)state;
    struct table *t = make(EVICT_LRU);
    struct random random;
    random_init(&random, 1);
    for (unsigned step = 0; step < 20000; step++) {
        uint32_t entry = (uint32_t)random_below(&random, ROOM / 4);
        uint64_t what = random_below(&random, 10);
        if (what < 5 && !t->in[entry]) {
            add(t, entry, 0);
        } else if (what < 8) {
            use(t, entry, 0);
        } else if (what == 8) {
            drop(t, entry);
        } else {
            uint32_t expected = oldest(t);
            assert_int_equal(take(t), expected);
        }
        if (step % 500 == 0)
            assert_valid(t);
    }
    free(t);
}

/* ---- cost -------------------------------------------------------------------------------------------------------- */

static double rounded(double cost)
{
    return exp2((floor(4 * log2(cost)) + 0.5) / 4);
}

/* The model's victim: the lowest H, of equals the one used longest ago. */
static uint32_t lowest(const struct table *t)
{
    uint32_t best = EVICT_NONE;
    for (uint32_t i = 0; i < ROOM; i++)
        if (t->in[i] && (best == EVICT_NONE || t->key[i] < t->key[best] ||
                         (t->key[i] <= t->key[best] && t->tick[i] < t->tick[best])))
            best = i;
    return best;
}

/* One run of a cache of `held` entries against GreedyDual-Size; costs are in 2^low .. 2^(low + spread). */
static void run_cost(uint64_t seed, uint32_t held, double low, double spread, unsigned steps)
{
    struct table *t = make(EVICT_COST);
    struct random random;
    random_init(&random, seed);
    double *cost = calloc(ROOM, sizeof *cost);
    assert_non_null(cost);
    for (unsigned i = 0; i < ROOM; i++)
        cost[i] = exp2(low + spread * (double)random_below(&random, 1u << 20) / (1u << 20));
    for (unsigned step = 0; step < steps; step++) {
        uint32_t entry = (uint32_t)(random_below(&random, ROOM) * random_below(&random, ROOM) / ROOM);
        if (!t->in[entry] && t->n == held) {
            uint32_t victim = evict_victim(&t->order), expected = lowest(t);
            /* clocks are kept to 2^-15 of a cost, which adds up: those that are equal but for the rounding of costs may
             * change places */
            double slack = 0.1 * (rounded(cost[victim]) + rounded(cost[expected]));
            assert_true(fabs(t->key[victim] - t->key[expected]) <= slack);
            t->clock = t->key[victim] > t->clock ? t->key[victim] : t->clock;
            assert_int_equal(take(t), victim);
        }
        if (t->in[entry])
            use(t, entry, cost[entry]);
        else
            add(t, entry, cost[entry]);
        t->key[entry] = t->clock + rounded(cost[entry]);
        if (step % 1000 == 0)
            assert_valid(t);
    }
    assert_true(t->clock > exp2(low)); /* the clock went round */
    free(cost);
    free(t);
}

static void test_cost_is_greedy_dual(void **state)
{
    (void)state;
    run_cost(1, 200, 0, 0, 20000);
    run_cost(2, 200, 0, 4, 20000);
    run_cost(3, 200, -200, 10, 20000); /* any unit */
    run_cost(4, 200, 200, 15, 20000);
    run_cost(5, 20, 0, 15, 40000);
    run_cost(6, 1000, -5, 8, 20000);
}

/* What hits save under a skewed stream: with rounded costs, against GreedyDual-Size with costs as they are. */
static double saved_by(bool exact, const double *cost, uint32_t held)
{
    struct table *t = make(EVICT_COST);
    struct random random;
    double saved = 0;
    random_init(&random, 77);
    for (unsigned step = 0; step < 20000; step++) {
        uint32_t entry = (uint32_t)(random_below(&random, ROOM) * random_below(&random, ROOM) / ROOM);
        saved += t->in[entry] ? cost[entry] : 0;
        if (!t->in[entry] && t->n == held) {
            uint32_t victim = exact ? lowest(t) : evict_victim(&t->order);
            t->clock = t->key[victim];
            evict_taken(&t->order, victim);
            drop(t, victim);
        }
        if (t->in[entry])
            use(t, entry, cost[entry]);
        else
            add(t, entry, cost[entry]);
        t->key[entry] = t->clock + cost[entry];
    }
    free(t);
    return saved;
}

static void test_cost_of_rounding(void **state)
{
    (void)state;
    static double cost[ROOM];
    for (uint32_t i = 0; i < ROOM; i++)
        cost[i] = exp2(8.0 * (double)(random_mix(i) >> 40) / (1u << 24));
    for (uint32_t held = 50; held <= 800; held *= 4) {
        double rounding = saved_by(false, cost, held) / saved_by(true, cost, held);
        assert_true(rounding > 0.97 && rounding < 1.03);
    }
}

/* After very many victims dear entries are still told from cheap ones: r times dearer outlives r rounds of cheap ones,
 * within the rounding. Every entry costs much at first, so that the clock is far beyond the cheap ones' cost. */
static void test_cost_after_long(void **state)
{
    (void)state;
    struct table *t = make(EVICT_COST);
    for (uint32_t i = 0; i < 100; i++)
        add(t, i, 1e4);
    for (unsigned i = 0; i < 3000000; i++) {
        uint32_t victim = evict_victim(&t->order);
        evict_taken(&t->order, victim);
        evict_remove(&t->order, victim);
        evict_add(&t->order, victim, 1e4);
    }
    assert_true(t->order.clock > 1e8);
    for (uint32_t i = 0; i < 100; i++)
        assert_true(take(t) < 100);
    add(t, 1000, 16);
    for (uint32_t i = 0; i < 10; i++)
        add(t, i, 1);
    unsigned rounds = 0;
    for (uint32_t victim; (victim = take(t)) != 1000; rounds++)
        add(t, victim, 1);
    assert_in_range(rounds / 10, 12, 20);
    free(t);
}

/* Costs further apart than the lists reach keep their order as far as there are lists; nonsense is unknown. */
static void test_cost_extremes(void **state)
{
    (void)state;
    struct table *t = make(EVICT_COST);
    static const double costs[] = {NAN, 0, -1, 1e-300, 1e-4, 1, 1e300, INFINITY};
    for (uint32_t i = 8; i > 0; i--)
        add(t, i - 1, costs[i - 1]);
    assert_valid(t);
    assert_int_equal(take(t), 2); /* unknown ones in the order they came */
    assert_int_equal(take(t), 1);
    assert_int_equal(take(t), 0);
    add(t, 0, NAN);
    assert_int_equal(take(t), 0); /* also before what has been there for long */
    for (unsigned i = 0; i < 3; i++)
        assert_in_range(take(t), 3, 5);
    assert_in_range(take(t), 6, 7);
    assert_in_range(take(t), 6, 7);
    free(t);
}

/* ---- lfu --------------------------------------------------------------------------------------------------------- */

/* A cache of 100 where 20 entries are used ten times each, then two rounds of new ones pass, and so on: of lfu the 20
 * stay; of lru none does. */
static unsigned count_kept(enum category_evict policy, unsigned rounds)
{
    struct table *t = make(policy);
    uint32_t next = 100;
    unsigned kept = 0;
    for (uint32_t i = 0; i < 100; i++)
        add(t, i, 0);
    for (unsigned round = 0; round < rounds; round++) {
        for (uint32_t i = 0; i < 200; i++)
            use(t, i % 20, 0);
        for (unsigned i = 0; i < 160; i++) {
            take(t);
            add(t, next, 0);
            next = next + 1 < ROOM ? next + 1 : 100;
        }
        assert_valid(t);
    }
    for (uint32_t i = 0; i < 20; i++)
        kept += t->in[i];
    free(t);
    return kept;
}

static void test_lfu_keeps_frequent(void **state)
{
    (void)state;
    assert_int_equal(count_kept(EVICT_LFU, 300), 20);
    assert_int_equal(count_kept(EVICT_LRU, 1), 0);
}

/* Used 2^k times and then no more: gone after about k + 1 rounds of cold ones, not before k. And its count starts anew
 * if it comes back just before. */
static void test_lfu_ages(void **state)
{
    (void)state;
    for (unsigned k = 2; k <= 15; k++) {
        struct table *t = make(EVICT_LFU);
        unsigned taken = 0;
        add(t, 0, 0);
        for (unsigned i = 1; i < 1u << k; i++)
            use(t, 0, 0);
        for (uint32_t i = 1; i < 100; i++)
            add(t, i, 0);
        for (uint32_t victim; (victim = take(t)) != 0; taken++)
            add(t, victim, 0);
        assert_in_range(taken, 99 * k, 99 * (k + 1));
        assert_valid(t);

        add(t, 0, 0);
        for (unsigned i = 1; i < 1u << k; i++)
            use(t, 0, 0);
        for (unsigned i = 0; i < 99 * (k - 1); i++) {
            uint32_t victim = take(t);
            add(t, victim, 0);
        }
        assert_true(t->in[0]);
        use(t, 0, 0);
        assert_in_range(t->links[0].uses, 2, 9); /* of 2^k */
        free(t);
    }
}

/* Among equals the longest unused goes; counts end at their largest number. */
static void test_lfu_ties_and_most(void **state)
{
    (void)state;
    struct table *t = make(EVICT_LFU);
    for (uint32_t i = 0; i < 10; i++)
        add(t, i, 0);
    for (unsigned i = 0; i < 200000; i++)
        use(t, 7, 0);
    assert_int_equal(t->links[7].uses, UINT16_MAX);
    for (uint32_t i = 0; i < 10; i++)
        if (i != 7)
            assert_int_equal(take(t), i);
    assert_int_equal(take(t), 7);
    free(t);
}

/* The steps go far beyond the number of lists, with any mixture of calls. */
static void test_lfu_runs_long(void **state)
{
    (void)state;
    struct table *t = make(EVICT_LFU);
    struct random random;
    random_init(&random, 9);
    for (unsigned step = 0; step < 300000; step++) {
        uint32_t entry = (uint32_t)(random_below(&random, 60) * random_below(&random, 60) / 40);
        if (t->in[entry])
            use(t, entry, 0);
        else
            add(t, entry, 0);
        if (t->n > 30)
            assert_true(take(t) != EVICT_NONE);
        if (random_below(&random, 20) == 0)
            drop(t, entry);
        if (step % 5000 == 0)
            assert_valid(t);
    }
    assert_true(t->order.clock > 1000);
    free(t);
}

/* ---- uses -------------------------------------------------------------------------------------------------------- */

/* Uses are counted whatever the policy, pinned or not, through removal and return; 500 counts of each number. */
static void test_hits(void **state)
{
    (void)state;
    struct table *t = make(EVICT_LRU);
    unsigned far = 0, checks = 0;
    for (uint32_t i = 0; i < 500; i++) {
        double sum = 0;
        if (i % 2)
            add(t, i, 0);
        for (uint64_t n = 0; n <= 20000; n++) {
            uint64_t hits = evict_hits(&t->links[i]);
            sum += (double)hits;
            if (n <= 16)
                assert_int_equal(hits, n);
            if (n >= 16 && (n & (n - 1)) == 0) {
                far += hits > 2 * n || 2 * hits < n;
                checks++;
            }
            evict_used(&t->order, i, 0);
        }
        assert_true(sum / 20001 > 5000 && sum / 20001 < 20000);
        if (i % 2)
            drop(t, i);
    }
    assert_true(checks == 500 * 11 && far < checks / 100);
    t->links[0].hits = 0;
    for (unsigned i = 0; i < 5; i++) {
        add(t, 0, 0);
        use(t, 0, 0);
        drop(t, 0);
    }
    assert_int_equal(evict_hits(&t->links[0]), 5);
    t->links[0].hits = 255; /* no end that wraps around */
    use(t, 0, 0);
    assert_int_equal(t->links[0].hits, 255);
    free(t);
}

/* ---- another policy ---------------------------------------------------------------------------------------------- */

static void test_change(void **state)
{
    (void)state;
    for (enum category_evict from = EVICT_LRU; from <= EVICT_COST; from++)
        for (enum category_evict to = EVICT_LRU; to <= EVICT_COST; to++) {
            struct table *t = make(from);
            for (uint32_t i = 0; i < 300; i++)
                add(t, i, 1);
            for (uint32_t i = 0; i < 300; i += 3)
                use(t, i, 8); /* every third: newer, more frequent, dearer */
            for (unsigned i = 0; i < 50; i++)
                assert_true(take(t) % 3 != 0);
            evict_change(&t->order, to);
            assert_int_equal(t->order.policy, to);
            assert_valid(t);
            for (unsigned i = 0, last = 0; i < 150; i++) { /* 200 were not used again, 50 have gone */
                uint32_t victim = take(t);
                assert_true(victim % 3 != 0 && victim >= last);
                last = victim;
            }
            for (unsigned i = 0; i < 100; i++)
                assert_int_equal(take(t), 3 * i);
            assert_int_equal(take(t), EVICT_NONE);
            free(t);
        }
}

/* What had no cost told after the change to `cost` is told by its next use. */
static void test_change_to_cost(void **state)
{
    (void)state;
    struct table *t = make(EVICT_LRU);
    for (uint32_t i = 0; i < 10; i++)
        add(t, i, 5);
    evict_change(&t->order, EVICT_COST);
    use(t, 0, 5);
    use(t, 1, 3);
    for (uint32_t i = 2; i < 10; i++)
        assert_int_equal(take(t), i);
    assert_int_equal(take(t), 1);
    assert_int_equal(take(t), 0);
    free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_lru_is_exact),
        cmocka_unit_test(test_cost_is_greedy_dual),
        cmocka_unit_test(test_cost_of_rounding),
        cmocka_unit_test(test_cost_after_long),
        cmocka_unit_test(test_cost_extremes),
        cmocka_unit_test(test_lfu_keeps_frequent),
        cmocka_unit_test(test_lfu_ages),
        cmocka_unit_test(test_lfu_ties_and_most),
        cmocka_unit_test(test_lfu_runs_long),
        cmocka_unit_test(test_hits),
        cmocka_unit_test(test_change),
        cmocka_unit_test(test_change_to_cost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
