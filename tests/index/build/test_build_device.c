/*
 * test_build_device.c - an index built with a device is byte for byte the index built without.
 *
 * Both kinds, whole and scattered data; and the same when the device fails at some point, or has little memory. The
 * number that is drawn for each segment is made the same for all by a getrandom of this program. The loader of OpenCL
 * is tests/opencl/fake_opencl.c. Without a device the tests say that they were skipped.
 */
#include "index/build/build.h"
#include "index/offload/offload.h"
#include "tests/index/support_index.h"
#include "tests/opencl/skip_without_device.h"
#include "tests/sanitized.h"
#include <setjmp.h>
#include <stdarg.h>
#include <sys/random.h>

#include <cmocka.h>

#define DEVICE_GONE (-2)

static struct fake_opencl *fake;
static char note[512];

/* In place of the C library's: every segment gets the same number. */
ssize_t getrandom(void *buffer, size_t bytes, unsigned int flags)
{
    (void)flags;
    memset(buffer, 7, bytes);
    return (ssize_t)bytes;
}

static int setup(void **state)
{
    (void)state;
    fake = fake_opencl_install();
    return 0;
}

static const char *const names[] = {"blocks", "codes", "keys", "postings", "meta"};

struct contents {
    uint8_t *bytes[SUPPORT_COUNT(names)];
    size_t n[SUPPORT_COUNT(names)];
};

static void read_contents(const char *index, struct contents *out)
{
    for (size_t i = 0; i < SUPPORT_COUNT(names); i++) {
        char path[1024];
        snprintf(path, sizeof path, "%s/%s", index, names[i]);
        out->bytes[i] = NULL;
        out->n[i] = 0;
        FILE *file = fopen(path, "rb");
        if (!file)
            continue;
        assert_int_equal(fseek(file, 0, SEEK_END), 0);
        out->n[i] = (size_t)ftell(file);
        rewind(file);
        out->bytes[i] = malloc(out->n[i] + 1);
        assert_non_null(out->bytes[i]);
        assert_int_equal(fread(out->bytes[i], 1, out->n[i], file), out->n[i]);
        fclose(file);
    }
}

static void free_contents(struct contents *contents)
{
    for (size_t i = 0; i < SUPPORT_COUNT(names); i++)
        free(contents->bytes[i]);
}

static void build(const struct support_data *data, enum quire_index_kind kind, struct offload *offload, unsigned steps,
                  struct contents *out)
{
    char *folder = support_folder_make(), *path = support_path(folder, "index");
    struct quire_build_options options;
    struct quire_error err = {0};
    struct quire_input input = {.rows = data->rows, .dim = data->dim, .type = data->type, .vectors = data->vectors};
    quire_build_options_init(&options);
    options.index = kind;
    options.threads = 2;
    options.seed = 3;
    if (build_offloaded(fs_real(), path, &input, &options, offload, steps, 0, &err) < 0)
        fail_msg("%s", err.message);
    read_contents(path, out);
    free(path);
    support_folder_remove(folder);
}

static void expect_same_steps(const struct support_data *data, enum quire_index_kind kind, struct offload *offload,
                              unsigned steps, const struct contents *expected)
{
    struct contents found;
    build(data, kind, offload, steps, &found);
    for (size_t i = 0; i < SUPPORT_COUNT(names); i++) {
        assert_int_equal(found.n[i], expected->n[i]);
        if (found.n[i] > 0)
            assert_memory_equal(found.bytes[i], expected->bytes[i], found.n[i]);
    }
    free_contents(&found);
}

static void expect_same(const struct support_data *data, enum quire_index_kind kind, struct offload *offload,
                        const struct contents *expected)
{
    expect_same_steps(data, kind, offload, BUILD_STEPS, expected);
}

/* Each step alone has products of its own, and no step none. */
static void check_steps(const struct support_data *data, enum quire_index_kind kind, const struct contents *expected)
{
    uint64_t before = 0;
    struct offload *offload = offload_open("", note, sizeof note);
    assert_non_null(offload);
    for (unsigned step = 0; step <= BUILD_TRUTH; step = step ? 2 * step : 1) {
        struct offload_status status;
        expect_same_steps(data, kind, offload, step, expected);
        offload_get_status(offload, &status);
        assert_true((status.products > before) == (step > 0) && !status.note[0]);
        before = status.products;
    }
    offload_close(offload);
}

static void check_kind(enum quire_index_kind kind, enum quire_type type, uint32_t rows, uint32_t dim)
{
    struct support_data data;
    struct contents expected;
    struct offload_status status;
    support_clusters(rows, dim, type, 5, &data);
    build(&data, kind, NULL, BUILD_STEPS, &expected);
    assert_true(expected.n[0] > 0);
    check_steps(&data, kind, &expected);

    struct offload *offload = offload_open("", note, sizeof note);
    assert_non_null(offload);
    uint64_t begin = fake->calls;
    expect_same(&data, kind, offload, &expected);
    uint64_t calls = fake->calls - begin;
    offload_get_status(offload, &status);
    assert_true(status.products > (uint64_t)rows * dim * 32 && !status.is_lost && !status.note[0]);
    offload_close(offload);

    /* it goes at the first call, in the middle, at the last */
    const uint64_t places[] = {1, 2, calls / 3, calls / 2, calls - 3};
    for (size_t i = 0; i < SUPPORT_COUNT(places); i += SANITIZED_SIZE(1, 3)) {
        fake_opencl_reset(fake);
        offload = offload_open("", note, sizeof note);
        assert_non_null(offload);
        fake->fail_at = places[i];
        fake->stays = true;
        fake->status = DEVICE_GONE;
        expect_same(&data, kind, offload, &expected);
        offload_get_status(offload, &status);
        assert_true(status.note[0]); /* lost, or its kernels did not compile */
        offload_close(offload);
        assert_int_equal(fake->objects, 0);
    }

    fake_opencl_reset(fake);
    offload = offload_open("", note, sizeof note);
    fake->memory_bytes = 70000; /* less than what is asked for, more than some of it */
    expect_same(&data, kind, offload, &expected);
    offload_get_status(offload, &status);
    assert_true(!status.is_lost && strstr(status.note, "memory"));
    offload_close(offload);
    assert_int_equal(fake->objects, 0);
    free_contents(&expected);
    support_data_free(&data);
}

static void test_page_graph(void **state)
{
    (void)state;
    skip_without_device(fake);
    check_kind(QUIRE_INDEX_PAGEGRAPH, QUIRE_TYPE_F32, 2250,
               SANITIZED_SIZE(500, 125)); /* two batches of the calibration's truth */
}

static void test_lists(void **state)
{
    (void)state;
    skip_without_device(fake);
    check_kind(QUIRE_INDEX_SPANN, QUIRE_TYPE_U8, 3000, 24);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_page_graph),
        cmocka_unit_test(test_lists),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
