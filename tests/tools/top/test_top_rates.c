/* test_top_rates.c - rates of two INFOs: restarts, resets, rows that come and go, and the order of rows. */
#include "tools/top/top_order.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

struct pair {
    struct top_info before, now;
    struct top_rates rates;
};

static struct pair compute(const char *before, const char *now, double seconds)
{
    struct pair p;
    struct quire_error err;
    memset(&p, 0, sizeof p);
    if (before)
        assert_int_equal(top_info_parse(before, strlen(before), &p.before, &err), 0);
    assert_int_equal(top_info_parse(now, strlen(now), &p.now, &err), 0);
    assert_int_equal(top_rates_compute(before ? &p.before : NULL, &p.now, seconds, &p.rates, &err), 0);
    return p;
}

static void end(struct pair *p)
{
    top_info_fini(&p->before);
    top_info_fini(&p->now);
    top_rates_fini(&p->rates);
}

static void expect(double value, double wanted)
{
    assert_true(fabs(value - wanted) < 1e-9 * (1 + fabs(wanted)));
}

static void test_rates(void **state)
{
    (void)state;
    struct pair p =
        compute("run_id:a\nsearches:100\nsearch_reads:900\nused_cpu_sys:1.5\nlanes:2\nsearch_queries:50\n",
                "run_id:a\nsearches:300\nsearch_reads:2500\nused_cpu_sys:2.5\nlanes:2\nsearch_queries:20\n", 2);
    assert_int_equal(p.rates.state, TOP_RATES_KNOWN);
    assert_null(top_rates_reason(p.rates.state));
    expect(p.rates.number[TOP_searches], 100);
    expect(p.rates.number[TOP_search_reads], 800);
    expect(top_rates_share(p.rates.number[TOP_search_reads], p.rates.number[TOP_searches]), 8);
    expect(p.rates.number[TOP_used_cpu_sys], 0.5);
    assert_true(isnan(p.rates.number[TOP_lanes]));          /* a level has no rate */
    assert_true(isnan(p.rates.number[TOP_search_queries])); /* an index was dropped: not the others' concern */
    assert_true(isnan(p.rates.number[TOP_merges]));         /* in neither */
    end(&p);
}

static void expect_none(struct pair p, enum top_rates_state state, const char *reason)
{
    assert_int_equal(p.rates.state, state);
    assert_string_equal(top_rates_reason(state), reason);
    assert_true(isnan(p.rates.seconds) && isnan(p.rates.number[TOP_searches]) && isnan(p.rates.lookups));
    assert_true(isnan(top_rates_row(&p.rates, TOP_TENANTS, 0, TOP_TENANT_queries)));
    end(&p);
}

static void test_no_rates(void **state)
{
    (void)state;
    expect_none(compute(NULL, "run_id:a\nsearches:5\ntenant0:name=x,queries=3\n", 1), TOP_RATES_FIRST, "first");
    expect_none(compute("searches:1\n", "searches:5\n", 0), TOP_RATES_FIRST, "first");
    expect_none(compute("searches:1\n", "searches:5\n", (double)NAN), TOP_RATES_FIRST, "first");
    /* a restart, although every counter is above what it was */
    expect_none(compute("run_id:a\nsearches:1\ntenant0:name=x,queries=1\n",
                        "run_id:b\nsearches:5\ntenant0:name=x,queries=9\n", 1),
                TOP_RATES_RESTART, "restart");
    /* without run_id the uptime tells */
    expect_none(compute("uptime_in_seconds:100\nsearches:1\n", "uptime_in_seconds:3\nsearches:5\n", 1),
                TOP_RATES_RESTART, "restart");
    /* RESETSTAT: one counter fell, the others have passed their old value again */
    expect_none(compute("run_id:a\ntotal_commands_processed:1000\nsearches:1\n",
                        "run_id:a\ntotal_commands_processed:10\nsearches:5\n", 1),
                TOP_RATES_RESET, "reset");
}

static void test_rows(void **state)
{
    (void)state;
    struct pair p = compute("tenant0:name=gone,queries=5,cost_us=5\ntenant1:name=a,queries=10,cost_us=100\n"
                            "tenant2:name=b,queries=10,cost_us=100\ntenant3:user=a,queries=7,cost_us=0\n"
                            "tenant4:name=again,queries=50,cost_us=9\n",
                            "tenant0:name=b,queries=40,cost_us=400\ntenant1:name=a,queries=20,cost_us=200\n"
                            "tenant2:name=new,queries=3,cost_us=3\ntenant3:user=a,queries=7,cost_us=0\n"
                            "tenant4:name=again,queries=2,cost_us=90\n",
                            10);
    expect(top_rates_row(&p.rates, TOP_TENANTS, 0, TOP_TENANT_queries), 3);
    expect(top_rates_row(&p.rates, TOP_TENANTS, 1, TOP_TENANT_queries), 1);
    assert_true(isnan(top_rates_row(&p.rates, TOP_TENANTS, 2, TOP_TENANT_queries))); /* was not there */
    expect(top_rates_row(&p.rates, TOP_TENANTS, 3, TOP_TENANT_queries), 0);          /* a user is no tenant */
    assert_true(isnan(top_rates_row(&p.rates, TOP_TENANTS, 4, TOP_TENANT_cost_us))); /* forgotten, come again */
    assert_true(isnan(top_rates_row(&p.rates, TOP_TENANTS, 5, TOP_TENANT_queries)));
    expect(top_rates_row_share(&p.rates, TOP_TENANTS, 0), 0.75);
    expect(top_rates_row_share(&p.rates, TOP_TENANTS, 1), 0.25);
    end(&p);
}

static void test_caches(void **state)
{
    (void)state;
    struct pair p = compute("cache_requests:130\ncache0:name=a,requests=100,hits=10,exact=5,stale=0,misses=85\n"
                            "cache1:name=dropped,requests=30,hits=30\n",
                            "cache_requests:110\ncache0:name=a,requests=110,hits=14,exact=6,stale=1,misses=89\n", 1);
    assert_int_equal(p.rates.state, TOP_RATES_KNOWN);
    assert_true(isnan(p.rates.number[TOP_cache_requests])); /* the sum fell with a cache that went */
    expect(p.rates.lookups, 10);                            /* and the others are counted still */
    expect(p.rates.lookup[TOP_LOOKUP_NEAR], 4);
    expect(p.rates.lookup[TOP_LOOKUP_EXACT], 1);
    expect(p.rates.lookup[TOP_LOOKUP_STALE], 1);
    expect(p.rates.lookup[TOP_LOOKUP_MISS], 4);
    assert_true(isnan(p.rates.lookup[TOP_LOOKUP_NEGATIVE]));
    expect(top_rates_row_share(&p.rates, TOP_CACHES, 0), 0.6);
    end(&p);
}

static void expect_order(const struct pair *p, enum top_table table, enum top_sort sort, bool reverse,
                         const char *names)
{
    uint32_t order[TOP_ROWS_MAX];
    char seen[100];
    size_t n = 0;
    top_order_rows(&p->now, &p->rates, table, sort, reverse, order);
    for (uint32_t i = 0; i < p->now.n_rows[table]; i++)
        seen[n++] = p->now.rows[table][order[i]].name[0];
    seen[n] = 0;
    assert_string_equal(seen, names);
}

static void test_order(void **state)
{
    (void)state;
    struct pair p = compute("cmdstat_a:calls=1000,usec=1000\ncmdstat_b:calls=0,usec=0\ncmdstat_c:calls=5,usec=50\n",
                            "cmdstat_a:calls=1010,usec=1100\ncmdstat_b:calls=100,usec=100\ncmdstat_c:calls=5,usec=50\n"
                            "cmdstat_d:calls=1,usec=1\n",
                            1);
    expect_order(&p, TOP_COMMANDS, TOP_SORT_RATE, false, "bacd"); /* d has no rate */
    expect_order(&p, TOP_COMMANDS, TOP_SORT_RATE, true, "cabd");
    expect_order(&p, TOP_COMMANDS, TOP_SORT_TOTAL, false, "abcd");
    expect_order(&p, TOP_COMMANDS, TOP_SORT_TIME, false, "abcd"); /* 10 us and 1 us a call */
    expect_order(&p, TOP_COMMANDS, TOP_SORT_NAME, true, "dcba");
    end(&p);
    p = compute(NULL, "cmdstat_a:calls=1\ncmdstat_b:calls=9\n", 1);
    expect_order(&p, TOP_COMMANDS, TOP_SORT_RATE, false, "ba"); /* by what there is */
    end(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rates), cmocka_unit_test(test_no_rates),
                                       cmocka_unit_test(test_rows), cmocka_unit_test(test_caches),
                                       cmocka_unit_test(test_order)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
