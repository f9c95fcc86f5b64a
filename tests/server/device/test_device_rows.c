/*
 * test_device_rows.c - which rows are kept on a device, and when auto has a batch done there, by rates that are made
 * up.
 *
 * Segments are real and on a real device (pocl); rates, clocks of use and memory are the test's. Without a device the
 * tests say that they were skipped.
 */
#include "index/segment/segment.h"
#include "io/clock.h"
#include "io/error.h"
#include "server/device/device_priv.h"
#include "tests/server/support_server.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ROWS_BYTES (SUPPORT_ROWS * SUPPORT_DIM * sizeof(float))

static char *folder;
static struct segment *segments[3];
static struct service service;
static struct device device;
static struct quire_error err;
static char why[512];

static int set_up(void **state)
{
    static const char *const names[] = {"a", "b", "c"};
    char note[512];
    (void)state;
    folder = support_folder_make();
    for (size_t i = 0; i < 3; i++) {
        char *path = support_path(folder, names[i]);
        support_build_kind(folder, names[i], QUIRE_METRIC_L2, i == 2 ? QUIRE_INDEX_SPANN : QUIRE_INDEX_PAGEGRAPH);
        assert_int_equal(segment_open(path, NULL, &segments[i], &err), 0);
        free(path);
    }
    service.n_lanes = 2;
    device = (struct device){.service = &service, .offload = offload_open("", note, sizeof note)};
    if (!device.offload)
        print_message("skipped: %s\n", note);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    if (device.offload)
        device_rows_forget(&device, true);
    assert_int_equal(device.n_kept, 0);
    free(device.kept);
    offload_close(device.offload);
    for (size_t i = 0; i < 3; i++)
        segment_unref(segments[i]);
    support_folder_remove(folder);
    return 0;
}

/* Nothing kept; rates of a device that is far faster, and whose calls cost nothing. */
static void begin(bool is_auto)
{
    if (!device.offload)
        skip();
    device_rows_forget(&device, true);
    device.is_auto = is_auto;
    device.memory_bytes = 1 << 20;
    device.rates = (struct offload_rates){.send_bytes_per_second = 1e9,
                                          .products_per_second = {1e12, 1e12, 1e12},
                                          .processor_per_second = {1e9, 1e9, 1e9}};
}

static struct device_rows *find(size_t i)
{
    struct device_rows *rows = device_rows_find(&device, segments[i], &err);
    assert_non_null(rows);
    assert_ptr_equal(exact_segment(rows->rows), segments[i]);
    return rows;
}

static bool pays(struct device_rows *rows, uint32_t n, bool exact)
{
    const struct device_ask ask = {.n = n, .k = 10, .exact = exact};
    why[0] = 0;
    bool does = device_rows_pay(&device, rows, &ask, n, why, sizeof why);
    assert_true(does == (why[0] == 0));
    return does;
}

/* Brings the rows, or codes of them. */
static void bring_bytes(struct device_rows *rows, uint64_t bytes)
{
    const float *query = support_vectors();
    uint32_t count, found[SUPPORT_ROWS];
    const struct exact_request request = {1, 3, &query, NULL, 0, exact_most(rows->rows, 3, 0), &count, found};
    assert_int_equal(exact_name(rows->rows, &request, &err), 0);
    assert_int_equal(exact_bytes_held(rows->rows), bytes);
}

static void bring(struct device_rows *rows)
{
    bring_bytes(rows, ROWS_BYTES);
}

/* One query saves 600 x 16 / 2e9 s, about 5 us; to bring the rows costs 38 us of transfer and 192 us of reading. */
static void test_rows_are_brought_when_it_pays(void **state)
{
    (void)state;
    begin(true);
    struct device_rows *rows = find(0);
    unsigned n = 1;
    while (!pays(rows, 1, true)) {
        assert_non_null(strstr(why, "would have saved"));
        assert_true(++n < 60);
    }
    assert_true(n >= 46 && n <= 50);
    assert_true(pays(find(1), 1000, true)); /* a batch that is worth it by itself */
    bring(rows);
    rows->debt = 0;
    assert_true(pays(rows, 1, true));
}

static void test_calls_cost(void **state)
{
    (void)state;
    begin(true);
    device.rates.call_seconds = 1e-4;
    struct device_rows *rows = find(0);
    for (unsigned i = 0; i < 50; i++)
        assert_false(pays(rows, 1, true));
    assert_non_null(strstr(why, "on 2 lanes"));
    assert_true(rows->debt == 0);
    device.is_auto = false; /* a device that was named does it all the same */
    assert_true(pays(rows, 1, true));
}

/* Searches that are not exact read a part of the codes: what a device does beyond that must be cheap. */
static void test_usual_searches(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i += 2) { /* a page graph, lists */
        begin(true);
        struct device_rows *rows = find(i);
        bring(rows);
        assert_true(pays(rows, 1000, false));
        device.rates.products_per_second[OFFLOAD_FLOATS] = 2.1e9; /* all rows as floats against the lanes' codes */
        device.rates.processor_per_second[OFFLOAD_CODES] = 1e12;
        assert_false(pays(rows, 1000, false));
        assert_true(pays(rows, 1000, true));
    }
}

static void test_memory(void **state)
{
    (void)state;
    begin(false);
    device.memory_bytes = exact_bytes(segments[0], 1) - 1; /* not even codes of one bit have room */
    assert_false(pays(find(0), 1, true));
    assert_non_null(strstr(why, "38400 bytes, the device has 9599"));
    device_rows_forget(&device, true);
    device.memory_bytes = ROWS_BYTES - 1;
    assert_true(pays(find(0), 1, true));
    assert_int_equal(exact_bits(find(0)->rows), 8);
    bring_bytes(find(0), exact_bytes(segments[0], 8));
    device_rows_forget(&device, true);
    device.memory_bytes = 2 * ROWS_BYTES;
    for (size_t i = 0; i < 2; i++) {
        assert_true(pays(find(i), 1, true));
        bring(find(i));
    }
    find(0); /* the second was used longer ago, and goes */
    assert_true(pays(find(2), 1, true));
    assert_int_equal(exact_bytes_held(find(0)->rows), ROWS_BYTES);
    assert_int_equal(exact_bytes_held(find(1)->rows), 0);
    assert_int_equal(device.n_kept, 3);
}

static void test_failures(void **state)
{
    struct quire_error memory = {0}, unsupported = {0}, disk = {0};
    (void)state;
    begin(false);
    error_set(&memory, QUIRE_ENOMEM, "no room");
    error_set(&unsupported, QUIRE_EUNSUPPORTED, "such rows are the processor's");
    error_set(&disk, QUIRE_EIO, "the disk");
    bring(find(1));
    struct device_rows *rows = find(0);
    assert_true(device_rows_failed(&device, rows, &memory)); /* the other went */
    assert_false(device_rows_failed(&device, rows, &memory));
    assert_false(pays(rows, 1, true));
    assert_string_equal(why, "no room");
    assert_true(rows->until_us > clock_us() && rows->until_us != UINT64_MAX);
    rows->until_us = 1; /* the time is over */
    assert_true(pays(rows, 1, true));
    assert_false(device_rows_failed(&device, rows, &disk));
    assert_true(rows->until_us != UINT64_MAX && !pays(rows, 1, true));
    assert_false(device_rows_failed(&device, rows, &unsupported));
    assert_true(rows->until_us == UINT64_MAX && !pays(rows, 1, true));
}

static void test_what_is_gone(void **state)
{
    (void)state;
    begin(false);
    bring(find(0));
    bring(find(1));
    device_rows_forget(&device, false);
    assert_int_equal(device.n_kept, 2);
    segment_retire(segments[0]);
    device_rows_forget(&device, false);
    assert_int_equal(device.n_kept, 1);
    assert_ptr_equal(exact_segment(device.kept[0].rows), segments[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_are_brought_when_it_pays),
        cmocka_unit_test(test_calls_cost),
        cmocka_unit_test(test_usual_searches),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_what_is_gone),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
