/*
 * test_load.c - load: smoothing against its formula, hysteresis, ends, limits that nothing passes; and the breaker:
 * what opens it, what must not, and how it closes again.
 */
#include "cache/policy/load.h"
#include "io/random.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define NOTHING                                                                                                        \
    (struct quire_bytes)                                                                                               \
    {                                                                                                                  \
        NULL, 0                                                                                                        \
    }

static void tell(struct load *load, const char *model, double x, uint64_t ex_ms, uint64_t now_ms)
{
    struct quire_error err = {0};
    assert_int_equal(load_told(load, text_of(model), x, ex_ms, now_ms, &err), 0);
}

static double lam(struct load *load, const char *model, uint64_t now_ms)
{
    double value = load_lam(load, text_of(model), now_ms);
    assert_true(value >= 0 && value <= 1);
    return value;
}

static void assert_near(double a, double b, double slack)
{
    if (!(fabs(a - b) <= slack))
        fail_msg("%.6f is not %.6f", a, b);
}

/* ---- load -------------------------------------------------------------------------------------------------------- */

static void test_smoothing(void **state)
{
    (void)state;
    struct load load = {.n = 0};
    tell(&load, "m", 0.75, 10000000, 1000); /* lam 0.5 in the long run */
    assert_near(lam(&load, "m", 1000), 0, 0);
    for (uint64_t ms = 1000; ms < 20000; ms += 137) /* however often it is asked */
        assert_near(lam(&load, "m", 1000 + ms), 0.5 * (1 - exp(-(double)ms / 5000)), 2e-4);
    assert_near(lam(&load, "m", 200000), 0.5, 0);
    tell(&load, "m", 0, 10000000, 200000);
    for (uint64_t ms = 0; ms < 100000; ms += 997)
        assert_near(lam(&load, "m", 200000 + ms), 0.5 * exp(-(double)ms / 30000), 2e-4);
    assert_near(lam(&load, "m", 1000000), 0, 0);
    assert_near(lam(&load, "m", 5), 0, 0); /* a clock that goes back */
    tell(&load, "m", 1, 10000000, 1000000);
    assert_near(lam(&load, "m", 2000000), 1, 0);
}

static void test_hysteresis(void **state)
{
    (void)state;
    struct load load = {.n = 0};
    uint64_t now = 0;
    for (unsigned i = 0; i < 100; i++, now += 1000) { /* around the border from below: nothing */
        tell(&load, "m", i % 2 ? 0.56 : 0.64, 0, now);
        assert_near(lam(&load, "m", now), 0, 0);
    }
    tell(&load, "m", 0.65, 0, now);
    now += 50000;
    assert_near(lam(&load, "m", now), 1.0 / 6, 1e-3);
    tell(&load, "m", 0.61, 0, now); /* on, it stays on down to .6 */
    assert_near(lam(&load, "m", now + 59000), 1.0 / 30, 0.03);
    assert_true(lam(&load, "m", now + 59000) > 1.0 / 30);
    tell(&load, "m", 0.59, 0, now + 59000);
    tell(&load, "m", 0.64, 3600000, now + 59001); /* off, it stays off */
    assert_near(lam(&load, "m", now + 2000000), 0, 0);
}

static void test_end_of_what_was_told(void **state)
{
    (void)state;
    struct load load = {.n = 0};
    tell(&load, "m", 0.9, 20000, 0);
    double at_end = 1 - exp(-4.0);
    assert_near(lam(&load, "m", 50000), at_end * exp(-1.0), 1e-3); /* asked only after its end */
    tell(&load, "n", 0.9, 20000, 0);
    assert_near(lam(&load, "n", 20000), at_end, 1e-3);
    assert_near(lam(&load, "n", 50000), at_end * exp(-1.0), 1e-3); /* asked before as well */
    assert_near(lam(&load, "n", 5000000), 0, 0);
    tell(&load, "o", 0.9, 0, 0); /* a minute */
    assert_true(lam(&load, "o", 60000) > 0.99);
    assert_near(lam(&load, "o", 90000), exp(-1.0), 1e-3);
    tell(&load, "p", 0.9, UINT64_MAX, 5); /* no end that overflows */
    assert_true(lam(&load, "p", UINT64_MAX / 2) >= 1);
}

static void test_models(void **state)
{
    (void)state;
    struct load load = {.n = 0};
    char name[32];
    assert_near(lam(&load, "nobody", 0), 0, 0);
    assert_near(load_lam(&load, NOTHING, 0), 0, 0);
    for (unsigned i = 0; i < LOAD_MODELS_MAX; i++) {
        snprintf(name, sizeof name, "model-%u", i);
        tell(&load, name, i == 5 ? 0.9 : 0.7, i == 9 ? 1000 : 100000000, 0);
    }
    assert_near(lam(&load, "model-4", 100000), 1.0 / 3, 1e-3);
    assert_near(lam(&load, "model", 100000), 0, 0);
    assert_near(load_lam(&load, NOTHING, 100000), 1, 1e-3); /* the highest of all */
    tell(&load, "new", 0.9, 100000000, 100000);             /* model-9 was over */
    assert_near(lam(&load, "model-9", 100000), 0, 0);
    assert_true(lam(&load, "new", 200000) >= 0.999);
    struct quire_error err = {0};
    assert_int_equal(load_told(&load, text_of("one more"), 0.5, 0, 200000, &err), QUIRE_ELIMIT);
    assert_non_null(strstr(err.message, "64"));
    assert_int_equal(load_told(&load, text_of("model-5"), 0.5, 0, 200000, &err), 0);
}

static void test_load_errors(void **state)
{
    (void)state;
    struct load load = {.n = 0};
    struct quire_error err = {0};
    static const double wrong[] = {-0.001, 1.001, 90, NAN, INFINITY, -INFINITY};
    for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(load_told(&load, text_of("m"), wrong[i], 0, 0, &err), QUIRE_ERANGE);
    char longest[LOAD_NAME_BYTES];
    memset(longest, 'x', sizeof longest);
    assert_int_equal(load_told(&load, NOTHING, 0.5, 0, 0, &err), QUIRE_ERANGE);
    assert_int_equal(load_told(&load, (struct quire_bytes){longest, LOAD_NAME_BYTES}, 0.5, 0, 0, &err), QUIRE_ERANGE);
    assert_int_equal(load_told(&load, (struct quire_bytes){"a\0b", 3}, 0.5, 0, 0, &err), QUIRE_ERANGE);
    assert_int_equal(load.n, 0);
    assert_int_equal(load_told(&load, (struct quire_bytes){longest, LOAD_NAME_BYTES - 1}, 0.5, 0, 0, &err), 0);
    assert_int_equal(load.n, 1);
}

/* Whatever the settings and lam: never beyond what the user allowed, and at 0 what holds without load. */
static void test_limits(void **state)
{
    (void)state;
    struct random random;
    random_init(&random, 3);
    static const double lams[] = {0, 0.1, 0.5, 0.999, 1, 2, -1, NAN};
    for (unsigned i = 0; i < 20000; i++) {
        struct category_settings s;
        category_defaults(&s);
        s.risk = (double)(1 + random_below(&random, 1000)) / 1001;
        s.load_risk_max = random_below(&random, 3) ? (double)random_below(&random, 1000) / 1000 : 0;
        s.load_ttl_factor = (double)random_below(&random, 50) / 10;
        s.ttl_max_ms = random_below(&random, 2) ? random_below(&random, 1000000) : 0;
        s.floor = (double)random_below(&random, 1000) / 1000;
        uint64_t ttl = random_below(&random, 1000000);
        double value = lams[random_below(&random, 8)], most = s.load_risk_max > s.risk ? s.load_risk_max : s.risk;
        assert_true(load_risk(&s, value) >= s.risk && load_risk(&s, value) <= most);
        assert_true(load_risk(&s, 0) <= s.risk && load_risk(&s, 1) >= most - 1e-12);
        uint64_t grown = load_ttl(&s, ttl, value);
        assert_true(s.ttl_max_ms == 0 || grown <= s.ttl_max_ms);
        assert_true(grown >= ttl || grown == s.ttl_max_ms);
        s.sim = s.floor + (1 - s.floor) * 0.7;
        double sim = load_sim(&s, value);
        assert_true(sim >= s.floor && sim <= s.sim && (s.load_risk_max > 0 || sim >= s.sim));
        assert_true(sim >= s.load_risk_max || s.load_risk_max >= s.sim);
    }
}

static void test_amounts(void **state)
{
    (void)state;
    struct category_settings s;
    category_defaults(&s);
    assert_near(load_risk(&s, 1), 0.02, 0); /* no LOADMAX */
    assert_int_equal(load_ttl(&s, 1000, 1), 1000);
    s.load_risk_max = 0.1;
    s.load_ttl_factor = 2;
    assert_near(load_risk(&s, 0.5), 0.06, 1e-12);
    assert_near(load_risk(&s, 1), 0.1, 0);
    assert_int_equal(load_ttl(&s, 1000, 0.5), 2000);
    s.ttl_max_ms = 1500;
    assert_int_equal(load_ttl(&s, 1000, 0.5), 1500);
    assert_int_equal(load_ttl(&s, 1600, 0), 1500);
    s.ttl_max_ms = 0;
    assert_true(load_ttl(&s, UINT64_MAX, 1) == UINT64_MAX && load_ttl(&s, UINT64_MAX / 2, 1) == UINT64_MAX);
    s.sim = 0.9;
    s.load_risk_max = 0.8;
    assert_near(load_sim(&s, 0.5), 0.85, 1e-12);
    assert_near(load_sim(&s, 1), 0.8, 1e-12);
    s.floor = 0.82;
    assert_near(load_sim(&s, 1), 0.82, 1e-12);
    s.sim = 0.5;
    assert_near(load_sim(&s, 0), 0.82, 0); /* never below floor */
}

/* ---- breaker ----------------------------------------------------------------------------------------------------- */

struct traffic {
    struct breaker breaker;
    struct random random;
    uint64_t now;
};

static struct traffic traffic(uint64_t seed)
{
    struct traffic t = {.now = 1000000};
    load_breaker_init(&t.breaker);
    random_init(&t.random, seed);
    return t;
}

/* n requests at `rate`, of `questions` different ones with `answers` different entries; those the breaker lets pass are
 * counted. How often it opened. */
static unsigned ask(struct traffic *t, unsigned n, double rate, uint64_t questions, uint64_t answers)
{
    unsigned opened = 0;
    for (unsigned i = 0; i < n; i++, t->now++) {
        if (!load_breaker_allows(&t->breaker, t->now))
            continue;
        bool served = (double)random_below(&t->random, 1u << 30) < rate * (1u << 30);
        opened += load_breaker_count(&t->breaker, served, random_below(&t->random, questions),
                                     random_below(&t->random, answers), t->now);
    }
    return opened;
}

static void assert_closed(const struct traffic *t)
{
    if (t->breaker.state != BREAKER_CLOSED || t->breaker.trips)
        fail_msg("it opened %u times, last for %s", t->breaker.trips,
                 t->breaker.cause == BREAKER_NO_HITS ? "no hits" : "few answers");
}

/* What a healthy cache may look like. */
static void test_healthy(void **state)
{
    (void)state;
    struct traffic t = traffic(1);
    ask(&t, 100000, 0, 1u << 30, 1); /* merely new, or of no use */
    assert_closed(&t);
    ask(&t, 100000, 1, 100000, 100000); /* filled, then asked the same again */
    assert_closed(&t);
    t = traffic(2);
    ask(&t, 100000, 1, 1, 1); /* one question asked again and again */
    ask(&t, 100000, 1, 40, 40);
    assert_closed(&t);
    t = traffic(3);
    ask(&t, 100000, 1, 300, 20); /* wordings of a few questions */
    assert_closed(&t);
    t = traffic(4);
    ask(&t, 100000, 0.9, 1u << 30, 1); /* one answer to much, but not to everything */
    assert_closed(&t);
    for (unsigned rate = 0; rate <= 100; rate += 5) {
        t = traffic(100 + rate);
        ask(&t, 100000, rate / 100.0, 5000, 3000);
        assert_closed(&t);
    }
}

/* A rate that falls slowly, and one that was low, are no reason. */
static void test_falling(void **state)
{
    (void)state;
    struct traffic t = traffic(5);
    for (unsigned i = 0; i <= 80; i++)
        ask(&t, 2000, 0.8 - i * 0.01, 5000, 3000);
    ask(&t, 100000, 0, 5000, 3000);
    assert_int_equal(t.breaker.trips > 1, 0);
    t = traffic(6);
    ask(&t, 50000, 0.03, 5000, 3000);
    ask(&t, 50000, 0, 5000, 3000);
    assert_closed(&t);
}

/* From the first request on everything gets the same answer: found within a few hundred requests. */
static void test_one_answer(void **state)
{
    (void)state;
    struct traffic t = traffic(7);
    ask(&t, 1, 0, 1u << 30, 1); /* whatever was asked first made the entry */
    assert_int_equal(ask(&t, 199, 1, 1u << 30, 1), 0);
    assert_int_equal(ask(&t, 801, 1, 1u << 30, 1), 1);
    assert_int_equal(t.breaker.state, BREAKER_OPEN);
    assert_int_equal(t.breaker.cause, BREAKER_FEW_ANSWERS);
}

static void test_no_hits(void **state)
{
    (void)state;
    static const double usual[] = {0.08, 0.3, 0.9};
    for (unsigned i = 0; i < 3; i++) {
        struct traffic t = traffic(8 + i);
        ask(&t, 20000, usual[i], 5000, 3000);
        assert_closed(&t);
        assert_int_equal(ask(&t, 1200, 0, 5000, 3000), 1);
        assert_int_equal(t.breaker.cause, BREAKER_NO_HITS);
        assert_near(t.breaker.usual, usual[i], 0.15);
    }
}

/* Chance: a category at its usual rate opens at most once in a million windows; here none in 20,000. */
static void test_chance(void **state)
{
    (void)state;
    struct traffic t = traffic(12);
    ask(&t, 10000000, 0.06, 5000, 3000);
    assert_closed(&t);
}

/* Opens for 10 s, 20 s, ... 300 s while it is as it was; one in ten passes in between; closes when it is over. */
static void test_times(void **state)
{
    (void)state;
    struct traffic t = traffic(13);
    uint64_t expected = 10000;
    assert_int_equal(ask(&t, 500, 1, 1u << 30, 1), 1);
    t.now = t.breaker.open_until_ms - 10000;
    for (unsigned round = 0; round < 8; round++) {
        assert_false(load_breaker_allows(&t.breaker, t.now));
        assert_int_equal(t.breaker.open_until_ms - t.now, expected);
        assert_false(load_breaker_allows(&t.breaker, t.breaker.open_until_ms - 1));
        assert_false(load_breaker_count(&t.breaker, true, 1, 1, t.now)); /* late ones do not count */
        t.now = t.breaker.open_until_ms;
        unsigned before = t.breaker.trips, allowed = 0;
        for (unsigned i = 0; t.breaker.trips == before; i++) {
            assert_true(i < 500);
            bool passes = load_breaker_allows(&t.breaker, t.now);
            assert_int_equal(passes, i % 10 == 0);
            if (passes)
                load_breaker_count(&t.breaker, true, ++allowed, 1, t.now);
        }
        assert_int_equal(allowed, 50);
        expected = expected * 2 < 300000 ? expected * 2 : 300000;
    }
    t.now = t.breaker.open_until_ms;
    ask(&t, 600, 0.4, 1u << 30, 1000);
    assert_int_equal(t.breaker.state, BREAKER_CLOSED);
    assert_int_equal(t.breaker.trips, 9);
    assert_int_equal(ask(&t, 1000, 1, 1u << 30, 1), 1); /* and begins with 10 s again */
    assert_true(t.breaker.open_until_ms - t.now <= 10000);
}

/* When what was usual does not come back, it is accepted after hours, not minutes. */
static void test_new_usual(void **state)
{
    (void)state;
    struct traffic t = traffic(14);
    ask(&t, 50000, 0.4, 5000, 3000);
    assert_int_equal(ask(&t, 1000, 0, 5000, 3000), 1);
    uint64_t begin = t.now;
    while (t.now - begin < 24u * 3600000 && (t.breaker.state != BREAKER_CLOSED || t.now == begin))
        ask(&t, 1000, 0, 5000, 3000);
    assert_int_equal(t.breaker.state, BREAKER_CLOSED);
    assert_in_range(t.now - begin, 1800000, 6 * 3600000);
    unsigned trips = t.breaker.trips;
    ask(&t, 100000, 0, 5000, 3000);
    assert_int_equal(t.breaker.trips, trips);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_smoothing),
        cmocka_unit_test(test_hysteresis),
        cmocka_unit_test(test_end_of_what_was_told),
        cmocka_unit_test(test_models),
        cmocka_unit_test(test_load_errors),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_amounts),
        cmocka_unit_test(test_healthy),
        cmocka_unit_test(test_falling),
        cmocka_unit_test(test_one_answer),
        cmocka_unit_test(test_no_hits),
        cmocka_unit_test(test_chance),
        cmocka_unit_test(test_times),
        cmocka_unit_test(test_new_usual),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
