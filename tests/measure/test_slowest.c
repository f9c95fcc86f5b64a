/* test_slowest.c - sums of the slowest answers, against sums over a sorted list; the moments of an open loop. */
#include "io/random.h"
#include "tools/measure/open_loop.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum { N = 20000 };

static int by_latency(const void *a, const void *b)
{
    const struct slowest_sums *x = a, *y = b;
    return (x->latency_ns < y->latency_ns) - (x->latency_ns > y->latency_ns);
}

static struct slowest_sums answer_of(struct random *random)
{
    uint64_t latency = random_next(random) >> (30 + random_below(random, 30));
    return (struct slowest_sums){.n = 1,
                                 .latency_ns = latency,
                                 .line_ns = latency / 3,
                                 .cpu_ns = random_below(random, 1000),
                                 .reads = random_below(random, 20),
                                 .rounds = random_below(random, 5)};
}

static void test_sums(void **state)
{
    static struct slowest parts[2], all;
    static struct slowest_sums answers[N];
    const double shares[] = {0.001, 0.01, 0.1, 0.5, 1};
    struct random random;
    (void)state;
    random_init(&random, 3);
    for (int i = 0; i < N; i++) {
        answers[i] = answer_of(&random);
        slowest_add(&parts[i % 2], &answers[i]);
    }
    slowest_merge(&all, &parts[0]);
    slowest_merge(&all, &parts[1]);
    qsort(answers, N, sizeof *answers, by_latency);
    for (size_t s = 0; s < sizeof shares / sizeof *shares; s++) {
        struct slowest_sums got = slowest_share(&all, shares[s]), wanted = {0};
        assert_true((double)got.n >= shares[s] * N && got.n <= N);
        /* buckets are an eighth of a power of two wide at most: what is beyond the share is no farther below */
        uint64_t last = answers[(size_t)(shares[s] * N) - 1].latency_ns;
        for (uint64_t i = 0; i < got.n; i++) {
            assert_true(answers[i].latency_ns >= last - last / 8);
            wanted.latency_ns += answers[i].latency_ns;
            wanted.line_ns += answers[i].line_ns;
            wanted.cpu_ns += answers[i].cpu_ns;
            wanted.reads += answers[i].reads;
            wanted.rounds += answers[i].rounds;
        }
        assert_int_equal(got.latency_ns, wanted.latency_ns);
        assert_int_equal(got.line_ns, wanted.line_ns);
        assert_true(shares[s] < 1 || got.cpu_ns == wanted.cpu_ns);
        assert_true(shares[s] < 1 || (got.reads == wanted.reads && got.rounds == wanted.rounds));
    }
}

static void test_none_and_extremes(void **state)
{
    static struct slowest none, two;
    const struct slowest_sums first = {.n = 1}, last = {.n = 1, .latency_ns = UINT64_MAX, .reads = 7};
    (void)state;
    assert_int_equal(slowest_share(&none, 0.01).n, 0);
    slowest_add(&two, &first);
    slowest_add(&two, &last);
    assert_int_equal(slowest_share(&two, 0.01).n, 1);
    assert_int_equal(slowest_share(&two, 0.01).reads, 7);
    assert_int_equal(slowest_share(&two, 1).n, 2);
}

/* As many arrive as a Poisson process has, within five deviations; a longer run begins as a shorter one does. */
static void test_arrivals(void **state)
{
    const double rates[] = {10, 1000, 250000};
    (void)state;
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        uint64_t n = open_loop_count(rates[i], 4);
        double mean = rates[i] * 4, off = (double)n - mean;
        assert_true(off * off < 25 * mean);
        assert_true(open_loop_count(rates[i], 2) < n);
        assert_int_equal(open_loop_count(rates[i] * 2, 2), n); /* the same moments, twice as fast */
    }
    assert_int_equal(open_loop_count(0.001, 0.001), 0);
}

static void test_kept(void **state)
{
    struct open_loop open = {.due_s = 10, .wall_s = 10.1};
    (void)state;
    assert_true(open_loop_kept(&open));
    open.wall_s = 10.5;
    assert_false(open_loop_kept(&open));
    open = (struct open_loop){.due_s = 0.01, .wall_s = 0.03};
    assert_true(open_loop_kept(&open));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_none_and_extremes),
        cmocka_unit_test(test_arrivals),
        cmocka_unit_test(test_kept),
    };
    return cmocka_run_group_tests_name("slowest", tests, NULL, NULL);
}
