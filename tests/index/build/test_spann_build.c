/*
 * test_spann_build.c - builds of inverted lists that are stopped, fail, go on, or have other threads and memory.
 *
 * The same input and options give the same index, but for the id drawn for each segment and the checksums that are
 * seeded with it; those bytes are blanked before two are compared. A build that fails leaves nothing, and one that may
 * be resumed ends in the same index. Opening is put to the same test: each failing read is an error that says so.
 */
#include "index/build/build.h"
#include "index/format/format.h"
#include "index/segment/segment_view.h"
#include "tests/index/support_spann.h"
#include "tests/sanitized.h"
#include "tests/support/fault.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

struct job {
    char *folder, *path, *work;
    struct support_data data;
    struct quire_build_options options;
    struct quire_error err;
    bool streamed, small; /* small: rows lie in files */
    char phases[32][40];
    unsigned n_phases, stop_phase;
};

static int on_progress(void *context, const char *phase, uint64_t done, uint64_t total)
{
    struct job *job = context;
    assert_true(total == 0 || done <= total);
    if (job->n_phases == 0 || strcmp(job->phases[job->n_phases - 1], phase) != 0) {
        assert_true(job->n_phases < SUPPORT_COUNT(job->phases));
        snprintf(job->phases[job->n_phases++], sizeof job->phases[0], "%s", phase);
    }
    return job->n_phases == job->stop_phase;
}

static int read_rows(void *context, uint64_t row, uint64_t n, void *out, struct quire_error *err)
{
    const struct job *job = context;
    size_t bytes = job->data.dim * quire_type_bytes(job->data.type);
    (void)err;
    memcpy(out, job->data.vectors + row * bytes, n * bytes);
    return 0;
}

static void job_init(struct job *job, uint32_t rows, uint32_t dim)
{
    memset(job, 0, sizeof *job);
    job->folder = support_folder_make();
    job->path = support_path(job->folder, "index");
    job->work = support_path(job->folder, "index.building-resume");
    support_clusters(rows, dim, QUIRE_TYPE_F32, 5, &job->data);
    job->options = spann_options(QUIRE_METRIC_L2, 16);
    job->options.progress = on_progress;
    job->options.context = job;
}

static void job_fini(struct job *job)
{
    support_data_free(&job->data);
    free(job->path);
    free(job->work);
    support_folder_remove(job->folder);
}

static int job_build_in(struct job *job, struct io_fs *fs, const char *path)
{
    struct quire_input input = {.rows = job->data.rows, .dim = job->data.dim, .type = job->data.type};
    input.vectors = job->streamed ? NULL : job->data.vectors;
    input.read = read_rows;
    input.context = job;
    job->n_phases = 0;
    memset(&job->err, 0, sizeof job->err);
    int rc = build_segment(fs, path, &input, &job->options, &job->err);
    if (rc < 0)
        assert_true(job->err.code == rc && job->err.message[0]);
    return rc;
}

static int job_build(struct job *job)
{
    return job_build_in(job, fs_real(), job->path);
}

static uint64_t least_memory(struct job *job)
{
    job->options.build_memory_bytes = 1;
    assert_int_equal(job_build(job), QUIRE_ELIMIT);
    job->options.build_memory_bytes = 0;
    const char *figure = strstr(job->err.message, "below the ");
    assert_non_null(figure);
    return strtoull(figure + strlen("below the "), NULL, 10);
}

/* ---- the same index ---------------------------------------------------------------------------------------------- */

static const char *const names[] = {BLOCKS_NAME, CODES_NAME, KEYS_NAME, POSTINGS_NAME, META_NAME};

struct contents {
    uint8_t *files[SUPPORT_COUNT(names)];
    size_t bytes[SUPPORT_COUNT(names)];
};

/* A posting's checksum lies at 16, too, and each begins a page; of other pages the same eight bytes are blanked. */
static struct contents take_contents(struct job *job)
{
    struct contents c;
    assert_int_equal(support_count_entries(job->folder), 1);
    for (unsigned i = 0; i < SUPPORT_COUNT(names); i++)
        c.files[i] = support_file_without_id(job->path, names[i], &c.bytes[i]);
    assert_int_equal(fs_remove_folder(fs_real(), job->path, NULL), 0);
    return c;
}

static void contents_free(struct contents *c)
{
    for (unsigned i = 0; i < SUPPORT_COUNT(names); i++)
        free(c->files[i]);
}

static void check_same(struct job *job, const struct contents *wanted, const char *what)
{
    struct contents c = take_contents(job);
    for (unsigned i = 0; i < SUPPORT_COUNT(names); i++)
        if (c.bytes[i] != wanted->bytes[i] || memcmp(c.files[i], wanted->files[i], c.bytes[i]) != 0)
            fail_msg("%s: %s differs", what, names[i]);
    contents_free(&c);
}

static struct contents build_whole(struct job *job)
{
    if (job_build(job) < 0)
        fail_msg("%s", job->err.message);
    return take_contents(job);
}

static void test_threads_and_memory(void **state)
{
    struct job job;
    char what[64];
    (void)state;
    job_init(&job, 3000, 24);
    struct contents wanted = build_whole(&job);
    for (unsigned i = 0; i < 6; i++) {
        job.streamed = i % 2;
        job.options.build_memory_bytes = i < 3 ? 0 : least_memory(&job) + (SANITIZED ? 32u << 20 : 2u << 20);
        job.options.threads = 1u << i % 3;
        if (job_build(&job) < 0)
            fail_msg("%s", job.err.message);
        snprintf(what, sizeof what, "%u threads, memory %llu", job.options.threads,
                 (unsigned long long)job.options.build_memory_bytes);
        check_same(&job, &wanted, what);
    }
    contents_free(&wanted);
    job_fini(&job);
}

/* ---- stopped ----------------------------------------------------------------------------------------------------- */

static bool has_phase(const struct job *job, const char *phase)
{
    for (unsigned i = 0; i < job->n_phases; i++)
        if (strcmp(job->phases[i], phase) == 0)
            return true;
    return false;
}

static void stop_everywhere(uint32_t rows, uint64_t memory_above_least)
{
    struct job job;
    unsigned skipped = 0;
    job_init(&job, rows, 24);
    job.streamed = true;
    struct contents wanted = build_whole(&job);
    unsigned n = job.n_phases;
    assert_true(n >= 8);
    for (unsigned at = 1; at <= n; at += SANITIZED_SIZE(1, 3)) {
        job.stop_phase = 0;
        job.options.resume = false;
        if (memory_above_least)
            job.options.build_memory_bytes = least_memory(&job) + memory_above_least;
        job.stop_phase = at;
        assert_int_equal(job_build(&job), QUIRE_ECANCELLED);
        assert_int_equal(support_count_entries(job.folder), 0);
        job.options.resume = true;
        assert_int_equal(job_build(&job), QUIRE_ECANCELLED);
        bool kept = support_count_entries(job.folder) == 1;
        assert_true(kept == (strstr(job.err.message, "keeps its work") != NULL));
        job.stop_phase = 0;
        if (job_build(&job) < 0)
            fail_msg("stopped at phase %u: %s", at, job.err.message);
        assert_true(kept == !has_phase(&job, "cluster"));
        skipped += !has_phase(&job, "link heads");
        check_same(&job, &wanted, "resumed");
    }
    assert_true(skipped >= 1);
    contents_free(&wanted);
    job_fini(&job);
}

static void test_stopped_builds_go_on(void **state)
{
    (void)state;
    stop_everywhere(1000, 0);
    stop_everywhere(900, SANITIZED ? 32u << 20 : 2u << 20);
}

/* What a stopped build has kept is not believed if it is damaged. */
static void test_damaged_work(void **state)
{
    struct job job;
    size_t bytes;
    (void)state;
    job_init(&job, 900, 24);
    job.options.resume = true;
    job_build(&job);
    assert_int_equal(fs_remove_folder(fs_real(), job.path, NULL), 0);
    for (job.stop_phase = 1; job.stop_phase <= job.n_phases && !has_phase(&job, "replicas"); job.stop_phase++)
        ;
    unsigned at = 0;
    while (strcmp(job.phases[at], "replicas") != 0)
        at++;
    job.stop_phase = at + 1;
    assert_int_equal(job_build(&job), QUIRE_ECANCELLED);
    char *lists = support_path(job.work, "work.lists");
    uint8_t *data = support_read_file(lists, &bytes);
    job.stop_phase = 0;
    for (unsigned damage = 0; damage < 4; damage++) {
        uint8_t *copy = malloc(bytes + 4);
        assert_non_null(copy);
        memcpy(copy, data, bytes);
        if (damage == 1)
            copy[bytes / 2 + 3] ^= 0x80;
        else if (damage == 2)
            memcpy(copy + 4, copy + 8, 4);
        support_write_file(lists, copy, damage == 0 ? 3 : damage == 3 ? bytes - 4 : bytes);
        free(copy);
        assert_int_equal(job_build(&job), QUIRE_ECORRUPT);
        assert_non_null(strstr(job.err.message, "work.lists"));
    }
    support_write_file(lists, data, bytes);
    assert_int_equal(job_build(&job), 0);
    free(data);
    free(lists);
    job_fini(&job);
}

/* ---- failing disks ----------------------------------------------------------------------------------------------- */

#define CALLS                                                                                                          \
    (FAULT_OPEN | FAULT_READ | FAULT_WRITE | FAULT_SYNC | FAULT_ALLOCATE | FAULT_TRUNCATE | FAULT_RENAME |             \
     FAULT_MKDIR | FAULT_SYNC_DIR)

static int count_file(void *context, const char *path, const uint8_t *data, uint64_t bytes)
{
    (void)path;
    (void)data;
    (void)bytes;
    ++*(unsigned *)context;
    return 0;
}

static unsigned files_in(struct io_fs *fs)
{
    unsigned n = 0;
    fault_each_file(fs, count_file, &n);
    return n;
}

/* All rows are in the index: an exact search and one of all lists find each of a few. */
static void prove_in(struct job *job, struct io_fs *fs)
{
    static struct spann_answer answer;
    struct spann_lane lane;
    struct quire_search_options options = support_search(1, 0, UINT32_MAX);
    struct segment *segment = spann_open(fs, "/index", SPANN_HEADS);
    spann_lane_open(&lane, QUIRE_ENGINE_AUTO, 1, 1);
    for (uint32_t row = 0; row < job->data.rows; row += 17) {
        spann_ask(&lane, segment, job->data.floats + (size_t)row * job->data.dim, &options, NULL, &answer);
        assert_true(answer.code == 0 && answer.n == 1 && answer.ids[0] == row);
    }
    spann_lane_close(&lane);
    segment_unref(segment);
}

#define STEP SANITIZED_SIZE(1, 5) /* every call, or some */

static void fail_each_call(struct job *job, int code, unsigned step)
{
    struct io_fs *fs = fault_fs_create();
    unsigned n = 1;
    assert_non_null(fs);
    for (int rc = -1; rc < 0; n += step) {
        if (job->small) /* the budget is that of the process, which grows */
            job->options.build_memory_bytes = least_memory(job) + (SANITIZED ? 64u << 20 : 4u << 20);
        fault_fail_nth(fs, CALLS, n, code, false);
        rc = job_build_in(job, fs, "/index");
        if (rc < 0 && rc != code)
            fail_msg("call %u fails with %s: build says %s, \"%s\"", n, quire_error_name(code), quire_error_name(rc),
                     job->err.message);
        if (rc < 0 && !job->options.resume && files_in(fs) > 0)
            fail_msg("call %u fails: \"%s\", and %u files are left", n, job->err.message, files_in(fs));
    }
    fault_fail_nth(fs, CALLS, 0, 0, false);
    assert_true(n > 20);
    prove_in(job, fs);
    fault_fs_destroy(fs);
}

static void test_each_failing_call(void **state)
{
    struct job job;
    (void)state;
    job_init(&job, 400, 16);
    fail_each_call(&job, QUIRE_ENOSPACE, STEP);
    fail_each_call(&job, QUIRE_EIO, STEP);
    job.options.resume = true;
    fail_each_call(&job, QUIRE_EIO, STEP);
    job.streamed = true;
    job.options.resume = false;
    job.small = true;
    fail_each_call(&job, QUIRE_EIO, STEP);
    job_fini(&job);
}

/* With rows enough to calibrate, which opens the half-finished index and searches it. */
static void test_failing_calls_while_calibrating(void **state)
{
    struct job job;
    (void)state;
    job_init(&job, 1000, 8);
    fail_each_call(&job, QUIRE_EIO, SANITIZED ? 997 : 41);
    job_fini(&job);
}

static void test_no_space(void **state)
{
    struct job job;
    struct io_fs *fs = fault_fs_create();
    int rc = -1;
    (void)state;
    assert_non_null(fs);
    job_init(&job, 400, 16);
    for (uint64_t capacity = 0; rc < 0; capacity += SANITIZED_SIZE(4096, 5 * 4096)) {
        fault_capacity(fs, capacity);
        rc = job_build_in(&job, fs, "/index");
        assert_true(rc == 0 || (rc == QUIRE_ENOSPACE && files_in(fs) == 0));
        assert_true(capacity < 4000000);
    }
    prove_in(&job, fs);
    fault_fs_destroy(fs);
    job_fini(&job);
}

static void test_each_failing_read_of_open(void **state)
{
    struct job job;
    struct io_fs *fs = fault_fs_create();
    (void)state;
    assert_non_null(fs);
    job_init(&job, 400, 16);
    assert_int_equal(job_build_in(&job, fs, "/index"), 0);
    for (unsigned mode = 0; mode < SPANN_MODES; mode++) {
        unsigned n = 0;
        for (int rc = -1; rc < 0;) {
            struct segment_options options = {.fs = fs, .memory_bytes = UINT64_MAX, .read_lists = mode == SPANN_HEADS};
            struct segment *segment = NULL;
            struct quire_error err;
            fault_fail_nth(fs, FAULT_OPEN | FAULT_READ, ++n, QUIRE_EIO, false);
            rc = segment_open("/index", &options, &segment, &err);
            fault_fail_nth(fs, FAULT_ANY, 0, 0, false);
            if (rc < 0)
                assert_true(rc == QUIRE_EIO && err.code == rc && strstr(err.message, "/index"));
            segment_unref(segment);
        }
        assert_true(n > 10);
    }
    fault_fs_destroy(fs);
    job_fini(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads_and_memory),
        cmocka_unit_test(test_stopped_builds_go_on),
        cmocka_unit_test(test_damaged_work),
        cmocka_unit_test(test_each_failing_call),
        cmocka_unit_test(test_failing_calls_while_calibrating),
        cmocka_unit_test(test_no_space),
        cmocka_unit_test(test_each_failing_read_of_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
