/*
 * test_device_faults.c - whatever goes wrong with a device, the answer is the same and one line says what it was.
 *
 * The loader of OpenCL is tests/opencl/fake_opencl.c, which fails on demand. Where a failing call may stand anywhere,
 * it is moved forward until the whole goes through, as the sweeps of the failing disk are. Without a device the tests
 * say that they were skipped.
 */
#include "datasets/vecfile.h"
#include "index/offload/offload_probe.h"
#include "io/random.h"
#include "tests/opencl/skip_without_device.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define DIM     40u
#define ROWS    9000u
#define QUERIES 30u
#define K       20u

/* errors of OpenCL */
#define CL_MEM_FULL (-4)
#define CL_GONE     (-2)
#define CL_STRANGE  (-30)

static struct fake_opencl *fake;
static char note[512], own_path[600];
static struct vectors base, queries;
static struct truth expected;
static struct quire_error err;

static int setup(void **state)
{
    (void)state;
    fake = fake_opencl_install();
    struct random random;
    random_init(&random, 1);
    base = (struct vectors){malloc(ROWS * DIM * sizeof(float)), ROWS, DIM, QUIRE_TYPE_F32};
    queries = (struct vectors){malloc(QUERIES * DIM * sizeof(float)), QUERIES, DIM, QUIRE_TYPE_F32};
    for (size_t i = 0; i < (size_t)ROWS * DIM; i++)
        ((float *)base.data)[i] = (float)random_below(&random, 1000) / 500 - 1;
    for (size_t i = 0; i < (size_t)QUERIES * DIM; i++)
        ((float *)queries.data)[i] = (float)random_below(&random, 1000) / 500 - 1;
    return truth_compute(&base, &queries, QUIRE_METRIC_COSINE, K, 1, NULL, NULL, &expected, &err);
}

static int teardown(void **state)
{
    (void)state;
    free(base.data);
    free(queries.data);
    truth_free(&expected);
    return 0;
}

/* Opens, computes, closes. The answer is always the right one; says whether the device gave it. */
static bool compute(struct offload_status *status)
{
    struct truth truth;
    bool on_device = false;
    int64_t objects = fake->objects;
    struct offload *offload = offload_open("", note, sizeof note);
    *status = (struct offload_status){0};
    assert_true((offload != NULL) == (note[0] == '\0'));
    assert_int_equal(
        truth_compute_on(offload, &base, &queries, QUIRE_METRIC_COSINE, K, 1, NULL, NULL, &truth, &on_device, &err), 0);
    assert_memory_equal(truth.ids, expected.ids, sizeof(uint32_t) * QUERIES * K);
    assert_memory_equal(truth.distances, expected.distances, sizeof(float) * QUERIES * K);
    truth_free(&truth);
    if (offload)
        offload_get_status(offload, status);
    assert_true(on_device || note[0] || status->note[0]); /* somebody says why */
    offload_close(offload);
    assert_int_equal(fake->objects, objects); /* nothing is left behind */
    return on_device;
}

static void test_works(void **state)
{
    struct offload_status status;
    (void)state;
    skip_without_device(fake);
    assert_true(compute(&status));
    assert_true(status.calls > 0 && !status.is_lost && !status.note[0]);
    assert_true(status.bytes_sent >= ROWS * DIM * 4 && status.bytes_received >= QUERIES * K * 8);
    assert_true(status.products >= (uint64_t)ROWS * DIM * QUERIES);
}

/* Every call in turn fails, once or from then on, with each of these errors. */
static void test_every_call(void **state)
{
    static const int statuses[] = {CL_MEM_FULL, CL_GONE, CL_STRANGE};
    struct offload_status status;
    (void)state;
    skip_without_device(fake);
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
        for (int stays = 0; stays < 2; stays++) {
            bool through = false;
            uint32_t at = 0;
            while (!through) {
                fake_opencl_reset(fake);
                fake->fail_at = ++at;
                fake->stays = stays;
                fake->status = statuses[i];
                bool on_device = compute(&status);
                through = fake->fail_at > 1;
                assert_true(on_device || fake->fail_at <= 1);
                assert_true(at < 1000);
            }
            assert_true(at > 30); /* it was a sweep */
        }
}

static void test_no_driver_no_device(void **state)
{
    struct offload_status status;
    (void)state;
    skip_without_device(fake);
    fake->only = "clGetPlatformIDs";
    fake->fail_at = 1;
    fake->stays = true;
    fake->status = -1001;
    assert_false(compute(&status));
    assert_non_null(strstr(note, "no driver"));
    fake_opencl_reset(fake);
    fake->only = "clGetDeviceIDs";
    fake->fail_at = 1;
    fake->stays = true;
    fake->status = -1;
    assert_false(compute(&status));
    assert_non_null(strstr(note, "no device"));
}

static void test_does_not_compile(void **state)
{
    struct offload_status status;
    (void)state;
    skip_without_device(fake);
    fake->only = "clBuildProgram";
    fake->fail_at = 1;
    fake->status = -11;
    assert_false(compute(&status));
    assert_non_null(strstr(status.note, "cannot compile the kernels"));
    assert_false(status.is_lost); /* other kernels may still be fine */
}

/* Smaller parts where memory is short, and the processor where it is too short for any. */
static void test_little_memory(void **state)
{
    struct offload_status status;
    (void)state;
    skip_without_device(fake);
    bool in_parts = false;
    for (uint64_t kib = 4096; kib > 512; kib -= 128) {
        fake_opencl_reset(fake);
        fake->memory_bytes = kib << 10;
        if (compute(&status))
            in_parts = in_parts || status.calls >= 4; /* two parts are loaded and searched */
    }
    assert_true(in_parts);
    fake_opencl_reset(fake);
    fake->memory_bytes = 100000;
    assert_false(compute(&status));
    assert_non_null(strstr(status.note, "memory"));
    assert_false(status.is_lost);
}

/* Vanishes in the middle: it is not asked again. */
static void test_vanishes(void **state)
{
    struct quire_error error = {0};
    struct offload_status status;
    struct offload_near found[QUERIES];
    struct offload_rows rows = {OFFLOAD_F32, ROWS, DIM, base.data, NULL};
    struct offload_nearest request = {
        .measure = OFFLOAD_L2, .n_queries = QUERIES, .k = 1, .queries = queries.data, .out = found};
    struct offload_block *block;
    (void)state;
    skip_without_device(fake);
    struct offload *offload = offload_open("", note, sizeof note);
    assert_non_null(offload);
    assert_int_equal(offload_load(offload, &rows, &block, &error), 0);
    assert_int_equal(offload_nearest(offload, block, &request, &error), 0);
    fake->fail_at = 1;
    fake->stays = true;
    fake->status = CL_GONE;
    assert_int_equal(offload_nearest(offload, block, &request, &error), QUIRE_EIO);
    assert_non_null(strstr(error.message, "gone"));
    uint64_t calls = fake->calls;
    assert_int_equal(offload_nearest(offload, block, &request, &error), QUIRE_EIO);
    assert_int_equal(offload_nearest_all(offload, &rows, &request, NULL, &error), QUIRE_EIO);
    assert_int_equal(fake->calls, calls);
    offload_get_status(offload, &status);
    assert_true(status.is_lost && strstr(status.note, "gone"));
    offload_unload(offload, block);
    offload_close(offload);
    assert_int_equal(fake->objects, 0);
}

static void test_choice(void **state)
{
    (void)state;
    skip_without_device(fake);
    assert_null(offload_open("off", note, sizeof note));
    assert_string_equal(note, "");
    assert_null(offload_open(NULL, note, sizeof note));
    assert_string_equal(note, "");
    assert_null(offload_open("no such device", note, sizeof note));
    assert_non_null(strstr(note, "no such device"));
    assert_true(strncmp(note, "the processor does the work: ", 29) == 0);
    assert_int_equal(fake->objects, 0);
}

/* auto takes what is not the processor itself. */
static void test_auto(void **state)
{
    struct offload_device device;
    uint32_t n = 0;
    (void)state;
    skip_without_device(fake);
    assert_int_equal(offload_list(&device, 1, &n, &err), 0);
    assert_int_equal(n, 1);
    if (device.is_processor) {
        assert_null(offload_open("auto", note, sizeof note));
        assert_non_null(strstr(note, "the processor itself"));
    }
    fake->as_card = true;
    struct offload *offload = offload_open("auto", note, sizeof note);
    assert_non_null(offload);
    offload_close(offload);
}

/* Rates are positive; expected times are what they say. */
static void test_probe(void **state)
{
    struct offload_rates rates;
    const struct offload_rates known = {1e9, 0.5, {2e9, 4e9, 8e9}, {1e9, 2e9, 3e9}};
    const struct offload_work work = {OFFLOAD_BYTES, 8000000000, 3000000000, 2, 1000000000};
    (void)state;
    assert_true(fabs(offload_device_seconds(&known, &work) - (2 * 0.5 + 3 + 2 + 0.5)) < 1e-9);
    assert_true(fabs(offload_processor_seconds(&known, &work, 2) - 2) < 1e-9);
    skip_without_device(fake);
    struct offload *offload = offload_open("", note, sizeof note);
    assert_non_null(offload);
    assert_int_equal(offload_measure(offload, &rates, &err), 0);
    assert_true(rates.send_bytes_per_second > 0 && rates.call_seconds > 0);
    for (unsigned i = 0; i < OFFLOAD_KINDS; i++)
        assert_true(rates.products_per_second[i] > 0 && rates.processor_per_second[i] > 0);
    fake->fail_at = 40; /* somewhere in it */
    fake->stays = true;
    fake->status = CL_GONE;
    assert_int_equal(offload_measure(offload, &rates, &err), QUIRE_EIO);
    offload_close(offload);
    assert_int_equal(fake->objects, 0);
}

/* ---- what a process can find out only once: it is played in a process of its own --------------------------------- */

/* Prints the note of an open with these variables. */
static void note_with(const char *name, const char *value, char *out, size_t bytes)
{
    char command[2000];
    snprintf(command, sizeof command, "%s='%s' '%s' --note", name, value, own_path);
    FILE *pipe = popen(command, "r"); /* NOLINT(cert-env33-c): a test's own program */
    assert_non_null(pipe);
    size_t n = fread(out, 1, bytes - 1, pipe);
    out[n] = '\0';
    assert_int_equal(pclose(pipe), 0);
}

static void test_no_loader_no_plugin(void **state)
{
    char said[600];
    (void)state;
    if (!fake)
        skip();
    note_with("QUIRE_OPENCL_LIBRARY", "/nowhere/libOpenCL.so.1", said, sizeof said);
    assert_non_null(strstr(said, "there is no OpenCL here"));
    note_with("QUIRE_OPENCL_LIBRARY", "libm.so.6", said, sizeof said);
    assert_non_null(strstr(said, "has no function"));
    note_with("QUIRE_PLUGIN_DIR", "/nowhere", said, sizeof said);
    assert_non_null(strstr(said, "plug-in"));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_works),
        cmocka_unit_test(test_every_call),
        cmocka_unit_test(test_no_driver_no_device),
        cmocka_unit_test(test_does_not_compile),
        cmocka_unit_test(test_little_memory),
        cmocka_unit_test(test_vanishes),
        cmocka_unit_test(test_choice),
        cmocka_unit_test(test_auto),
        cmocka_unit_test(test_probe),
        cmocka_unit_test(test_no_loader_no_plugin),
    };
    if (argc > 1 && strcmp(argv[1], "--note") == 0) {
        struct offload *offload = offload_open("", note, sizeof note);
        offload_close(offload);
        puts(note);
        return 0;
    }
    ssize_t n = readlink("/proc/self/exe", own_path, sizeof own_path - 1);
    own_path[n > 0 ? n : 0] = '\0';
    return cmocka_run_group_tests_name("device faults", tests, setup, teardown);
}
