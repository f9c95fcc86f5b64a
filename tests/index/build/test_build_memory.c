/*
 * test_build_memory.c - builds with less memory than data, and builds that are stopped and go on.
 *
 * Two builds of the same input never have the same bytes, because each draws a segment id, which also seeds checksums.
 * So indexes are compared by what they hold: blocks without their checksums, codes and parameters. A build is stopped
 * by its progress callback, or killed there with SIGKILL in a child process, at every phase.
 */
#include "index/format/format.h"
#include "io/fs.h"
#include "io/memory.h"
#include "tests/index/support_index.h"
#include "tests/sanitized.h"
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

struct job {
    char *folder, *path, *work;
    struct support_data data;
    struct quire_build_options options;
    struct quire_error err;
    bool streamed;
    unsigned reads;
    /* what the progress callback does and sees */
    char phases[32][40];
    unsigned n_phases, stop_phase;
    bool kill, work_rows;
};

static int on_progress(void *context, const char *phase, uint64_t done, uint64_t total)
{
    struct job *job = context;
    assert_true(total == 0 || done <= total);
    assert_true(quire_build_done(phase, done, total) <= 1);
    if (job->n_phases == 0 || strcmp(job->phases[job->n_phases - 1], phase) != 0)
        snprintf(job->phases[job->n_phases++], sizeof job->phases[0], "%s", phase);
    assert_true(job->n_phases < SUPPORT_COUNT(job->phases));
    if (strcmp(phase, "graph") == 0) {
        char name[4200];
        snprintf(name, sizeof name, "ls '%s'*/work.rows >/dev/null 2>&1", job->path);
        job->work_rows = system(name) == 0;
    }
    if (job->n_phases != job->stop_phase)
        return 0;
    if (job->kill)
        raise(SIGKILL);
    return 1;
}

static int read_rows(void *context, uint64_t row, uint64_t n, void *out, struct quire_error *err)
{
    struct job *job = context;
    size_t bytes = job->data.dim * quire_type_bytes(job->data.type);
    (void)err;
    assert_true(row + n <= job->data.rows);
    memcpy(out, job->data.vectors + row * bytes, n * bytes);
    job->reads++;
    return 0;
}

static void job_init(struct job *job, uint32_t rows, uint32_t dim, enum quire_type type, enum quire_metric metric)
{
    memset(job, 0, sizeof *job);
    job->folder = support_folder_make();
    job->path = support_path(job->folder, "index");
    job->work = support_path(job->folder, "index.building-resume");
    support_clusters(rows, dim, type, 5, &job->data);
    job->options = support_options(metric, QUIRE_SLOT_AUTO);
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

static int job_build(struct job *job)
{
    struct quire_input input = {.rows = job->data.rows, .dim = job->data.dim, .type = job->data.type};
    input.vectors = job->streamed ? NULL : job->data.vectors;
    input.read = read_rows;
    input.context = job;
    job->n_phases = 0;
    memset(&job->err, 0, sizeof job->err);
    int rc = quire_build_from(job->path, &input, &job->options, &job->err);
    if (rc < 0)
        assert_true(job->err.code == rc && job->err.message[0]);
    return rc;
}

/* The least memory that the refusal of one byte names. */
static uint64_t least_memory(struct job *job)
{
    job->options.build_memory_bytes = 1;
    assert_int_equal(job_build(job), QUIRE_ELIMIT);
    job->options.build_memory_bytes = 0;
    assert_int_equal(support_count_entries(job->folder), 0);
    const char *figure = strstr(job->err.message, "below the ");
    assert_non_null(figure);
    return strtoull(figure + strlen("below the "), NULL, 10);
}

/* ---- what an index holds ----------------------------------------------------------------------------------------- */

struct contents {
    uint8_t *blocks, *codes;
    size_t blocks_bytes, codes_bytes;
    struct quire_info info;
};

static void verify(const char *path, uint32_t rows)
{
    struct quire_verify_report report;
    struct quire_error err;
    if (quire_verify(path, NULL, NULL, NULL, &report, &err) < 0)
        fail_msg("verify: %s", err.message);
    assert_int_equal(report.rows, rows);
    assert_int_equal(report.findings, 0);
}

/* Takes the contents of the index at the job's path, which is verified and removed. */
static struct contents take_contents(struct job *job)
{
    struct contents c;
    char *blocks = support_path(job->path, BLOCKS_NAME), *codes = support_path(job->path, CODES_NAME);
    verify(job->path, job->data.rows);
    assert_int_equal(support_count_entries(job->folder), 1);
    struct quire_index *index = support_open(job->path, NULL);
    quire_get_info(index, &c.info);
    quire_close(index);
    c.blocks = support_read_file(blocks, &c.blocks_bytes);
    c.codes = support_read_file(codes, &c.codes_bytes);
    for (uint32_t b = 0; b < c.info.blocks; b++)
        memset(c.blocks + PAGE_BYTES + (size_t)b * c.info.block_bytes + 16, 0, 8);
    memset(c.blocks, 0, PAGE_BYTES);
    memset(c.codes + 16, 0, 16);            /* segment id */
    memset(c.codes + PAGE_BYTES - 8, 0, 8); /* checksum */
    assert_int_equal(fs_remove_folder(fs_real(), job->path, NULL), 0);
    free(blocks);
    free(codes);
    return c;
}

static void contents_free(struct contents *c)
{
    free(c->blocks);
    free(c->codes);
}

static void check_same(struct job *job, const struct contents *wanted)
{
    struct contents c = take_contents(job);
    assert_int_equal(c.blocks_bytes, wanted->blocks_bytes);
    assert_memory_equal(c.blocks, wanted->blocks, c.blocks_bytes);
    assert_int_equal(c.codes_bytes, wanted->codes_bytes);
    assert_memory_equal(c.codes, wanted->codes, c.codes_bytes);
    assert_int_equal(c.info.code_bits, wanted->info.code_bits);
    contents_free(&c);
}

static struct contents build_whole(struct job *job)
{
    if (job_build(job) < 0)
        fail_msg("%s", job->err.message);
    return take_contents(job);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static void check_memories(uint32_t rows, uint32_t dim, enum quire_type type, enum quire_metric metric)
{
    struct job job;
    job_init(&job, rows, dim, type, metric);
    struct contents wanted = build_whole(&job);
    assert_false(job.work_rows);
    for (int streamed = 0; streamed < 2; streamed++) {
        job.streamed = streamed;
        job.options.threads = streamed ? 1 : 3;
        job.options.build_memory_bytes = least_memory(&job) + (2u << 20);
        if (job_build(&job) < 0)
            fail_msg("%s", job.err.message);
        assert_true(job.work_rows);
        check_same(&job, &wanted);
        job.options.build_memory_bytes = 0;
        assert_int_equal(job_build(&job), 0);
        check_same(&job, &wanted);
    }
    assert_true(job.reads > 0);
    contents_free(&wanted);
    job_fini(&job);
}

static void test_same_index_for_any_memory(void **state)
{
    (void)state;
    check_memories(1500, 48, QUIRE_TYPE_U8, QUIRE_METRIC_L2);
    check_memories(999, 33, QUIRE_TYPE_F32, QUIRE_METRIC_IP);
    check_memories(900, 20, QUIRE_TYPE_F16, QUIRE_METRIC_COSINE);
}

/* So much data that the budget holds a part of it, and the input is put in order in several windows. */
static void test_data_larger_than_memory(void **state)
{
    struct job job;
    (void)state;
    job_init(&job, 900, 8192, QUIRE_TYPE_F32, QUIRE_METRIC_L2);
    struct contents wanted = build_whole(&job);
    job.streamed = true;
    job.options.build_memory_bytes = least_memory(&job) + (1u << 20);
    uint64_t share = job.options.build_memory_bytes;
    if (job_build(&job) < 0)
        fail_msg("with %llu bytes: %s", (unsigned long long)share, job.err.message);
    assert_true(job.work_rows);
    check_same(&job, &wanted);
    contents_free(&wanted);
    job_fini(&job);
}

static void test_small_budgets_are_refused(void **state)
{
    struct job job;
    (void)state;
    job_init(&job, 2000, 32, QUIRE_TYPE_F32, QUIRE_METRIC_L2);
    job.streamed = true;
    uint64_t least = least_memory(&job);
    assert_true(least > (4u << 20));
    job.options.build_memory_bytes = least / 2;
    assert_int_equal(job_build(&job), QUIRE_ELIMIT);
    assert_int_equal(job.reads, 0);
    assert_int_equal(support_count_entries(job.folder), 0);
    job_fini(&job);
}

static int fail_to_read(void *context, uint64_t row, uint64_t n, void *out, struct quire_error *err)
{
    struct job *job = context;
    if (++job->reads == job->stop_phase) {
        *err = (struct quire_error){.code = QUIRE_EIO, .message = "the tape broke"};
        return QUIRE_EIO;
    }
    job->reads--; /* counted here */
    return read_rows(context, row, n, out, err);
}

static void test_input_that_fails(void **state)
{
    struct job job;
    int rc = -1;
    unsigned n = 0;
    (void)state;
    job_init(&job, 300, 16, QUIRE_TYPE_F32, QUIRE_METRIC_L2);
    struct quire_input input = {.rows = 300, .dim = 16, .type = QUIRE_TYPE_F32, .read = fail_to_read, .context = &job};
    job.options.progress = NULL;
    while (rc < 0) {
        job.reads = 0;
        job.stop_phase = ++n;
        rc = quire_build_from(job.path, &input, &job.options, &job.err);
        if (rc == 0)
            break;
        assert_int_equal(rc, QUIRE_EIO);
        assert_string_equal(job.err.message, "the tape broke");
        assert_int_equal(support_count_entries(job.folder), 0);
    }
    assert_int_equal(n, 7); /* six passes over one batch */
    verify(job.path, 300);
    job_fini(&job);
}

/* ---- resuming ---------------------------------------------------------------------------------------------------- */

static bool has_phase(const struct job *job, const char *phase)
{
    for (unsigned i = 0; i < job->n_phases; i++)
        if (strcmp(job->phases[i], phase) == 0)
            return true;
    return false;
}

/* Stops at each phase in turn; without resume nothing is left, with it the next run goes on. */
static void stop_everywhere(uint32_t rows, uint64_t memory_above_least)
{
    struct job job;
    job_init(&job, rows, 24, QUIRE_TYPE_F32, QUIRE_METRIC_L2);
    job.streamed = true;
    struct contents wanted = build_whole(&job);
    unsigned n = job.n_phases, skipped = 0;
    assert_true(n >= 8);
    for (unsigned at = 1; at <= n; at++) {
        /* the budget is that of the process, which a sanitizer makes grow from build to build */
        job.stop_phase = 0;
        job.options.resume = false;
        if (memory_above_least)
            job.options.build_memory_bytes = least_memory(&job) + memory_above_least;
        job.stop_phase = at;
        job.options.resume = false;
        assert_int_equal(job_build(&job), QUIRE_ECANCELLED);
        assert_int_equal(support_count_entries(job.folder), 0);
        job.options.resume = true;
        assert_int_equal(job_build(&job), QUIRE_ECANCELLED);
        bool kept = support_count_entries(job.folder) == 1;
        assert_true(kept == (strstr(job.err.message, "keeps its work") != NULL));
        job.stop_phase = 0;
        if (job_build(&job) < 0)
            fail_msg("stopped at phase %u: %s", at, job.err.message);
        assert_true(kept == !has_phase(&job, "partition"));
        skipped += !has_phase(&job, "graph");
        check_same(&job, &wanted);
    }
    assert_true(skipped >= 3);
    contents_free(&wanted);
    job_fini(&job);
}

static void test_stopped_builds_go_on(void **state)
{
    (void)state;
    stop_everywhere(1000, 0); /* so many are calibrated */
    stop_everywhere(900, SANITIZED ? 32u << 20 : 2u << 20);
}

static void test_killed_builds_go_on(void **state)
{
    struct job job;
    (void)state;
    job_init(&job, 999, 24, QUIRE_TYPE_F32, QUIRE_METRIC_COSINE);
    struct contents wanted = build_whole(&job);
    unsigned n = job.n_phases;
    job.options.resume = true;
    for (unsigned at = 1; at <= n; at++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            job.stop_phase = at;
            job.kill = true;
            job_build(&job);
            _exit(0);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        if (job_build(&job) < 0)
            fail_msg("killed at phase %u: %s", at, job.err.message);
        check_same(&job, &wanted);
    }
    contents_free(&wanted);
    job_fini(&job);
}

/* What was kept is for the same vectors and options only; threads and memory may be others. */
static void test_resume_wants_the_same(void **state)
{
    struct job job;
    (void)state;
    job_init(&job, 1500, 24, QUIRE_TYPE_F32, QUIRE_METRIC_L2);
    struct contents wanted = build_whole(&job);
    unsigned last = job.n_phases;
    job.options.resume = true;
    job.stop_phase = last;
    assert_int_equal(job_build(&job), QUIRE_ECANCELLED);
    job.stop_phase = 0;
    float *number = (float *)(void *)job.data.vectors + 700 * 24, kept = *number;
    *number += 1;
    assert_int_equal(job_build(&job), QUIRE_EINVALID);
    assert_non_null(strstr(job.err.message, "the input has changed"));
    *number = kept;
    job.options.degree = 20;
    assert_int_equal(job_build(&job), QUIRE_EINVALID);
    assert_non_null(strstr(job.err.message, "other options"));
    job.options.degree = 0;
    job.options.edge_codes = QUIRE_EDGE_CODES_YES;
    assert_int_equal(job_build(&job), QUIRE_EINVALID);
    assert_non_null(strstr(job.err.message, "other options"));
    job.options.edge_codes = QUIRE_EDGE_CODES_AUTO;
    const char *attributes[1500] = {"{}"};
    uint32_t attribute_bytes[1500] = {2};
    job.options.attributes = attributes;
    job.options.attribute_bytes = attribute_bytes;
    assert_int_equal(job_build(&job), QUIRE_EINVALID);
    job.options.attributes = NULL;
    assert_int_equal(support_count_entries(job.folder), 1);
    job.options.threads = 1;
    job.options.build_memory_bytes = 4ull << 30;
    assert_int_equal(job_build(&job), 0);
    assert_false(has_phase(&job, "graph"));
    check_same(&job, &wanted);
    contents_free(&wanted);
    job_fini(&job);
}

/* A state that is damaged is refused, a folder without one is cleared, and one that is in use is left alone. */
static void test_odd_work_folders(void **state)
{
    struct job job;
    size_t bytes;
    (void)state;
    job_init(&job, 1500, 24, QUIRE_TYPE_F32, QUIRE_METRIC_L2);
    job.options.resume = true;
    job.stop_phase = 7;
    assert_int_equal(job_build(&job), QUIRE_ECANCELLED);
    char *state_path = support_path(job.work, "work.state"), *lock_path = support_path(job.work, "work.lock");
    uint8_t *page = support_read_file(state_path, &bytes);
    assert_int_equal(bytes, PAGE_BYTES);
    page[20] ^= 1;
    support_write_file(state_path, page, bytes);
    assert_int_equal(job_build(&job), QUIRE_ECORRUPT);
    assert_non_null(strstr(job.err.message, "damaged"));
    support_write_file(state_path, page, bytes / 2);
    assert_int_equal(job_build(&job), QUIRE_ECORRUPT);
    struct io_file *lock = NULL;
    assert_int_equal(fs_open(fs_real(), lock_path, FS_WRITE | FS_CREATE, &lock, &job.err), 0);
    assert_int_equal(flock(lock->fd, LOCK_EX), 0);
    assert_int_equal(job_build(&job), QUIRE_EBUSY);
    fs_close(lock);
    assert_int_equal(unlink(state_path), 0);
    job.stop_phase = 0;
    assert_int_equal(job_build(&job), 0);
    assert_true(has_phase(&job, "partition"));
    verify(job.path, 1500);
    assert_int_equal(support_count_entries(job.folder), 1);
    free(page);
    free(state_path);
    free(lock_path);
    job_fini(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_index_for_any_memory), cmocka_unit_test(test_data_larger_than_memory),
        cmocka_unit_test(test_small_budgets_are_refused), cmocka_unit_test(test_input_that_fails),
        cmocka_unit_test(test_stopped_builds_go_on),      cmocka_unit_test(test_killed_builds_go_on),
        cmocka_unit_test(test_resume_wants_the_same),     cmocka_unit_test(test_odd_work_folders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
