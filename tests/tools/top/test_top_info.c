/* test_top_info.c - the text of INFO: what it has, what it lacks, and what nobody should send. */
#include "tools/top/top_info.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct top_info parse(const char *text)
{
    struct top_info info = {0};
    struct quire_error err;
    assert_int_equal(top_info_parse(text, strlen(text), &info, &err), 0);
    return info;
}

static void expect(const struct top_info *info, enum top_number number, uint64_t value)
{
    assert_true(top_info_has(info, number));
    assert_int_equal(info->values[number], value);
}

static void test_figures(void **state)
{
    (void)state;
    struct top_info info = parse("# Server\r\nredis_version:8.0.0\r\nquire_version:0.1.0\r\nrun_id:abc\r\n"
                                 "uptime_in_seconds:17\r\n\r\n# CPU\r\nused_cpu_sys:12.000345\r\nused_cpu_user:3.5\r\n"
                                 "# Keyspace\r\ndb0:keys=12,expires=3,avg_ttl=0\r\n# Quire\r\nsearches:400\r\n"
                                 "reads_per_search:7.12\r\nsearch_latency_us:p50=410,p99=2300,p99.9=8100\r\n"
                                 "sealing:1\r\nmerging:0\r\n");
    assert_string_equal(info.quire_version, "0.1.0");
    assert_string_equal(info.run_id, "abc");
    expect(&info, TOP_uptime_in_seconds, 17);
    expect(&info, TOP_used_cpu_sys, 12000345);
    expect(&info, TOP_used_cpu_user, 3500000);
    expect(&info, TOP_keys, 12);
    expect(&info, TOP_searches, 400);
    expect(&info, TOP_sealing, 1);
    expect(&info, TOP_merging, 0);
    assert_true(info.latency_us[0] == 410 && info.latency_us[1] == 2300 && info.latency_us[2] == 8100);
    assert_false(top_info_has(&info, TOP_maxmemory));
    assert_int_equal(top_info_get(&info, TOP_maxmemory), 0);
    top_info_fini(&info);
}

static void test_rows(void **state)
{
    (void)state;
    struct top_info info =
        parse("cmdstat_client|info:calls=2,usec=31,usec_per_call=15.50,rejected_calls=1,failed_calls=0\r\n"
              "caches:1\r\ncache_requests:10\r\n"
              "cache0:name=faq,entries=3,requests=10,hits=4,exact=1,hit_rate=0.5000,cost_saved=1.5e-05\r\n"
              "tenants:2\r\ntenant0:name=acme,weight=4,queries=9,wait_p99_us=12\r\ntenant1:user=bob,weight=1\r\n");
    assert_int_equal(info.n_rows[TOP_COMMANDS], 1);
    const struct top_row *row = &info.rows[TOP_COMMANDS][0];
    assert_string_equal(row->name, "client|info");
    assert_int_equal(row->values[TOP_COMMAND_usec], 31);
    assert_int_equal(row->values[TOP_COMMAND_rejected_calls], 1);
    assert_int_equal(info.n_rows[TOP_CACHES], 1);
    row = &info.rows[TOP_CACHES][0];
    assert_string_equal(row->name, "faq");
    assert_int_equal(row->values[TOP_CACHE_exact], 1);
    assert_false(top_info_row_has(row, TOP_CACHE_misses));
    assert_int_equal(info.n_rows[TOP_TENANTS], 2);
    assert_int_equal(info.rows[TOP_TENANTS][0].values[TOP_TENANT_weight], 4);
    assert_false(info.rows[TOP_TENANTS][0].is_user);
    assert_string_equal(info.rows[TOP_TENANTS][1].name, "bob");
    assert_true(info.rows[TOP_TENANTS][1].is_user);
    expect(&info, TOP_tenants, 2);
    top_info_fini(&info);
}

/* Values that are no numbers are absent, never 0 or cut. */
static void test_hostile_values(void **state)
{
    (void)state;
    struct top_info info =
        parse("searches:-1\nsearch_reads: 5\nsegments:18446744073709551615\nmerges:18446744073709551616\n"
              "seals:1e5\ncheckpoints:\ncollections:0x10\nused_cpu_sys:1.2345678\n"
              "used_cpu_user:99999999999999999999.0\nfetches\n:7\n:\n\n\r\nlanes:2:3\n"
              "search_latency_us:p50=nan,p99=,p99.9=12\nmaxmemory:12\nmaxmemory:x");
    assert_false(top_info_has(&info, TOP_searches));
    assert_false(top_info_has(&info, TOP_search_reads));
    expect(&info, TOP_segments, UINT64_MAX);
    assert_false(top_info_has(&info, TOP_merges));
    assert_false(top_info_has(&info, TOP_seals));
    assert_false(top_info_has(&info, TOP_checkpoints));
    assert_false(top_info_has(&info, TOP_collections));
    assert_false(top_info_has(&info, TOP_used_cpu_sys));
    assert_false(top_info_has(&info, TOP_used_cpu_user));
    assert_false(top_info_has(&info, TOP_fetches));
    assert_false(top_info_has(&info, TOP_lanes));
    assert_false(top_info_has(&info, TOP_maxmemory)); /* the last one counts */
    assert_true(isnan(info.latency_us[0]) && isnan(info.latency_us[1]) && info.latency_us[2] == 12);
    top_info_fini(&info);
}

/* What could move a cursor or end a line stays in no name. */
static void test_hostile_names(void **state)
{
    (void)state;
    struct top_info info =
        parse("tenant0:name=\033[2J\007\x9b"
              "31m\x7f,weight=1\r\n"
              "tenant1:weight=2,name=a=b\r\ntenant2:\r\ntenant3:,,=,=x,name,queries=1\r\n"
              "tenantx:name=no,weight=1\r\ntenant:name=no\r\ntenant-1:name=no\r\ncmdstat_:calls=1\r\n"
              "quire_version:\033]0;title\007\r\n");
    assert_int_equal(info.n_rows[TOP_TENANTS], 4);
    assert_string_equal(info.rows[TOP_TENANTS][0].name, "?[2J??31m?");
    assert_string_equal(info.rows[TOP_TENANTS][1].name, "a=b");
    assert_string_equal(info.rows[TOP_TENANTS][2].name, "");
    assert_true(top_info_row_has(&info.rows[TOP_TENANTS][3], TOP_TENANT_queries));
    assert_int_equal(info.n_rows[TOP_COMMANDS], 0);
    assert_string_equal(info.quire_version, "?]0;title?");
    top_info_fini(&info);
}

static void test_bounds(void **state)
{
    (void)state;
    enum { ROWS = TOP_ROWS_MAX + 7, LONG = 100000 };
    char *text = malloc(ROWS * 32 + 2 * LONG);
    assert_non_null(text);
    size_t n = 0;
    for (unsigned i = 0; i < ROWS; i++)
        n += (size_t)sprintf(text + n, "tenant%u:name=t%u,weight=%u\r\n", i, i, i);
    n += (size_t)sprintf(text + n, "cache0:name=");
    memset(text + n, 'n', LONG);
    n += LONG;
    n += (size_t)sprintf(text + n, ",entries=5\r\n");
    memset(text + n, 'k', LONG - 100);
    n += LONG - 100;
    strcpy(text + n, ":1\r\nsearches:3");
    struct top_info info = parse(text);
    assert_int_equal(info.n_rows[TOP_TENANTS], TOP_ROWS_MAX);
    assert_int_equal(info.left_out[TOP_TENANTS], 7);
    assert_int_equal(strlen(info.rows[TOP_CACHES][0].name), TOP_NAME_BYTES - 1);
    assert_int_equal(info.rows[TOP_CACHES][0].values[TOP_CACHE_entries], 5);
    expect(&info, TOP_searches, 3);
    free(text);
    /* the next INFO begins anew */
    struct quire_error err;
    assert_int_equal(top_info_parse("lanes:2\r\n", 9, &info, &err), 0);
    assert_int_equal(info.n_rows[TOP_TENANTS] + info.left_out[TOP_TENANTS], 0);
    assert_false(top_info_has(&info, TOP_searches));
    expect(&info, TOP_lanes, 2);
    top_info_fini(&info);
}

/* Any bytes: nothing but a result (a sanitizer sees the rest). The seed is fixed. */
static void test_any_bytes(void **state)
{
    (void)state;
    static const char alphabet[] = "tenant0cache1cmdstat_name=,weight:\r\n\0\033\x80"
                                   "129.searches:used_cpu_sys:db0:keys=";
    uint64_t random = 88172645463325252u;
    struct top_info info = {0};
    struct quire_error err;
    for (unsigned round = 0; round < 3000; round++) {
        char text[200];
        size_t n = round % sizeof text;
        for (size_t i = 0; i < n; i++) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            text[i] = alphabet[random % (sizeof alphabet - 1)];
        }
        char *copy = malloc(n ? n : 1);
        assert_non_null(copy);
        memcpy(copy, text, n);
        assert_int_equal(top_info_parse(copy, n, &info, &err), 0);
        free(copy);
        for (unsigned table = 0; table < TOP_N_TABLES; table++)
            for (uint32_t i = 0; i < info.n_rows[table]; i++)
                for (const char *c = info.rows[table][i].name; *c; c++)
                    assert_true(*c >= ' ' && *c < 0x7f);
    }
    top_info_fini(&info);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_figures),        cmocka_unit_test(test_rows),
                                       cmocka_unit_test(test_hostile_values), cmocka_unit_test(test_hostile_names),
                                       cmocka_unit_test(test_bounds),         cmocka_unit_test(test_any_bytes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
