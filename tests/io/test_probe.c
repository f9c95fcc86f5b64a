/*
 * test_probe.c - the probe on a small file for a few milliseconds: what it reports hangs together, and nothing is left.
 *
 * No number of a device is asserted, only relations that hold on any: percentiles in order, Little's law, the file gone
 * after success, failure and a stop.
 */
#include "io/probe.h"
#include "support_contents.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants the headers above first */
#include <cmocka.h>

static const uint32_t blocks[] = {4096, 16384}, depths[] = {1, 3, 8};

static struct probe_config config_of(uint32_t lanes, enum quire_engine_kind engine)
{
    return (struct probe_config){.block_bytes = blocks,
                                 .n_blocks = 2,
                                 .depths = depths,
                                 .n_depths = 3,
                                 .lanes = lanes,
                                 .file_bytes = 1u << 20,
                                 .measure_ms = 5,
                                 .engine = engine};
}

static int setup(void **state)
{
    *state = support_folder_make();
    return *state ? 0 : -1;
}

static int teardown(void **state)
{
    support_folder_remove(*state);
    return 0;
}

static int count_progress(void *context, uint32_t done, uint32_t total)
{
    uint32_t *calls = context;
    assert_int_equal(done, ++*calls);
    assert_int_equal(total, 6);
    return 0;
}

static void check_point(const struct probe_point *point)
{
    assert_true(point->iops > 0);
    assert_true(point->mean_us > 0);
    assert_true(point->p50_us <= point->p99_us && point->p99_us <= point->p999_us);
    /* reads in flight = rate * latency, and the depth bounds it (Little's law) */
    assert_true(point->iops * point->mean_us / 1e6 <= 1.0001 * point->depth);
}

static void run_and_check(const char *folder, uint32_t lanes, enum quire_engine_kind engine)
{
    struct probe_config config = config_of(lanes, engine);
    struct probe_report report = {0};
    struct quire_error err = {0};
    uint32_t calls = 0;
    config.progress = count_progress;
    config.context = &calls;
    int rc = probe_run(folder, &config, &report, &err);
    if (rc < 0)
        fail_msg("%s", err.message);
    assert_int_equal(calls, 6);
    assert_int_equal(report.n_points, 6);
    assert_int_equal(report.file_bytes, 1u << 20);
    for (uint32_t i = 0; i < 6; i++) {
        assert_int_equal(report.points[i].block_bytes, blocks[i / 3]);
        assert_int_equal(report.points[i].depth, depths[i % 3]);
        check_point(&report.points[i]);
    }
    if (engine == QUIRE_ENGINE_THREADS)
        assert_string_equal(report.engine, "threads");
    assert_true(probe_knee(&report, 4096) > 0);
    probe_free(&report);
    assert_null(report.points);
    assert_int_equal(support_count_entries(folder), 0);
}

static void test_one_lane(void **state)
{
    run_and_check(*state, 1, QUIRE_ENGINE_THREADS);
    run_and_check(*state, 1, QUIRE_ENGINE_AUTO);
}

/* More lanes than depth, too: the spare lanes stay away. */
static void test_lanes(void **state)
{
    run_and_check(*state, 2, QUIRE_ENGINE_THREADS);
    run_and_check(*state, 4, QUIRE_ENGINE_AUTO);
}

static int stop_at_once(void *context, uint32_t done, uint32_t total)
{
    (void)context;
    (void)done;
    (void)total;
    return 1;
}

static void test_stop(void **state)
{
    struct probe_config config = config_of(1, QUIRE_ENGINE_THREADS);
    struct probe_report report = {0};
    struct quire_error err = {0};
    config.progress = stop_at_once;
    assert_int_equal(probe_run(*state, &config, &report, &err), QUIRE_ECANCELLED);
    assert_null(report.points);
    assert_non_null(strstr(err.message, "1 of 6"));
    assert_int_equal(support_count_entries(*state), 0);
}

static void test_refusals(void **state)
{
    const uint32_t odd = 1000, large = 8u << 20, none = 0;
    struct probe_report report = {0};
    struct quire_error err;
    struct probe_config config = config_of(0, QUIRE_ENGINE_AUTO);
    assert_int_equal(probe_run(*state, &config, &report, &err), QUIRE_EINVALID);
    config = config_of(1, QUIRE_ENGINE_AUTO);
    config.n_blocks = 1;
    config.block_bytes = &odd;
    assert_int_equal(probe_run(*state, &config, &report, &err), QUIRE_EINVALID);
    config.block_bytes = &large; /* larger than the file */
    assert_int_equal(probe_run(*state, &config, &report, &err), QUIRE_EINVALID);
    config = config_of(1, QUIRE_ENGINE_AUTO);
    config.n_depths = 1;
    config.depths = &none;
    assert_int_equal(probe_run(*state, &config, &report, &err), QUIRE_EINVALID);
    config.n_depths = 0;
    assert_int_equal(probe_run(*state, &config, &report, &err), QUIRE_EINVALID);
    config = config_of(1, QUIRE_ENGINE_AUTO);
    assert_int_equal(probe_run("/nonexistent/folder", &config, &report, &err), QUIRE_ENOFILE);
    config.engine = (enum quire_engine_kind)77;
    assert_int_equal(probe_run(*state, &config, &report, &err), QUIRE_EINVALID);
    assert_int_equal(support_count_entries(*state), 0);
}

static void test_knee(void **state)
{
    struct probe_point points[] = {
        {.block_bytes = 4096, .depth = 1, .iops = 10},  {.block_bytes = 4096, .depth = 8, .iops = 80},
        {.block_bytes = 4096, .depth = 16, .iops = 91}, {.block_bytes = 4096, .depth = 32, .iops = 100},
        {.block_bytes = 4096, .depth = 64, .iops = 99}, {.block_bytes = 8192, .depth = 2, .iops = 500}};
    struct probe_report report = {.points = points, .n_points = 6};
    (void)state;
    assert_int_equal(probe_knee(&report, 4096), 16);
    assert_int_equal(probe_knee(&report, 8192), 2);
    assert_int_equal(probe_knee(&report, 12288), 0);
}

/* Each size twice, of which the better counts. */
static void test_rate(void **state)
{
    struct probe_point points[] = {{.block_bytes = 4096, .depth = 32, .iops = 87e3},
                                   {.block_bytes = 8192, .depth = 32, .iops = 60e3},
                                   {.block_bytes = 4096, .depth = 32, .iops = 80e3},
                                   {.block_bytes = 8192, .depth = 32, .iops = 84e3}};
    struct probe_report report = {.points = points, .n_points = 4};
    (void)state;
    assert_true(probe_rate(&report, 4096) == 87e3);
    assert_true(probe_rate(&report, 8192) == 84e3);
    assert_true(probe_rate(&report, 12288) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(test_one_lane, setup, teardown),
                                       cmocka_unit_test_setup_teardown(test_lanes, setup, teardown),
                                       cmocka_unit_test_setup_teardown(test_stop, setup, teardown),
                                       cmocka_unit_test_setup_teardown(test_refusals, setup, teardown),
                                       cmocka_unit_test(test_knee),
                                       cmocka_unit_test(test_rate)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
