/*
 * test_build.c - quire_build over odd shapes, and what it refuses.
 *
 * Every index that is built is checked by quire_verify and asked for its own rows. A build that fails must leave
 * nothing: neither the folder, nor one half-written next to it, so each failing test counts the entries of the parent
 * folder. A limit on files is played by RLIMIT_FSIZE, in a child process, so that the limit ends with it; a full or
 * broken disk by the file system of tests/support/fault.h, which fails at any call and loses what is not durable.
 */
#include "index/build/build.h"
#include "tests/index/support_index.h"
#include "tests/support/fault.h"
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static const enum quire_metric metrics[] = {QUIRE_METRIC_L2, QUIRE_METRIC_COSINE, QUIRE_METRIC_IP};

static void print_finding(void *context, const char *sentence)
{
    (void)context;
    print_error("finding: %s\n", sentence);
}

static void verify(const char *path, const struct support_data *data)
{
    struct quire_verify_report report;
    struct quire_error err;
    int rc = quire_verify(path, print_finding, NULL, NULL, &report, &err);
    if (rc < 0)
        fail_msg("%u rows x %u: verify: %s", data->rows, data->dim, err.message);
    assert_int_equal(report.rows, data->rows);
    assert_int_equal(report.keys, data->rows);
    assert_int_equal(report.findings, 0);
}

/* Exact search answers every row; the nearest to a row is the row itself (or its equal) unless the metric says else. */
static void ask_for_rows(const char *path, const struct support_data *data, enum quire_metric metric)
{
    struct quire_index *index = support_open(path, NULL);
    struct quire_hit *hits = malloc(sizeof *hits * data->rows);
    uint32_t step = data->rows / 10 + 1, n_hits;
    assert_non_null(hits);
    for (uint32_t row = 0; row < data->rows; row += step) {
        const float *query = data->floats + (size_t)row * data->dim;
        struct quire_search_options options = support_search(data->rows, 0, 0);
        struct quire_error err;
        options.exact = true;
        if (quire_search(index, query, &options, hits, &n_hits, NULL, &err) < 0)
            fail_msg("%s", err.message);
        assert_int_equal(n_hits, data->rows);
        double best, first = support_distance(metric, query, data->floats + hits[0].id * data->dim, data->dim);
        support_truth(metric, data->floats, data->rows, data->dim, query, 1, NULL, &best);
        double unit =
            metric == QUIRE_METRIC_COSINE ? 1 : fabs(support_distance(QUIRE_METRIC_IP, query, query, data->dim));
        assert_true(first <= best + 1e-3 * (unit + fabs(best)));
        options.exact = false;
        options.k = data->rows < 10 ? data->rows : 10;
        if (quire_search(index, query, &options, hits, &n_hits, NULL, &err) < 0)
            fail_msg("%s", err.message);
        assert_int_equal(n_hits, options.k);
    }
    free(hits);
    quire_close(index);
}

static void check_build(const struct support_data *data, enum quire_metric metric, enum quire_slot slot)
{
    char *folder = support_folder_make(), *path = support_path(folder, "index");
    struct quire_build_options options = support_options(metric, slot);
    support_build(path, data, &options);
    assert_int_equal(support_count_entries(folder), 1);
    verify(path, data);
    ask_for_rows(path, data, metric);
    free(path);
    support_folder_remove(folder);
}

static void test_dimensions(void **state)
{
    static const uint32_t dims[] = {1, 2, 3, 31, 32, 33, 100, 960};
    (void)state;
    for (size_t d = 0; d < SUPPORT_COUNT(dims); d++)
        for (size_t m = 0; m < SUPPORT_COUNT(metrics); m++) {
            struct support_data data;
            support_clusters(300, dims[d], QUIRE_TYPE_F32, dims[d], &data);
            check_build(&data, metrics[m], (d + m) % 3 ? QUIRE_SLOT_AUTO : QUIRE_SLOT_F32);
            support_data_free(&data);
        }
}

static void test_largest_dimension(void **state)
{
    static const enum quire_slot slots[] = {QUIRE_SLOT_F32, QUIRE_SLOT_AUTO, QUIRE_SLOT_F16};
    (void)state;
    for (size_t m = 0; m < SUPPORT_COUNT(metrics); m++) {
        struct support_data data;
        support_clusters(20, QUIRE_DIM_MAX, m ? QUIRE_TYPE_U8 : QUIRE_TYPE_F32, 3, &data);
        check_build(&data, metrics[m], slots[m]);
        support_data_free(&data);
    }
}

static void test_row_counts(void **state)
{
    static const uint32_t counts[] = {1, 2, 3, 7, 8, 64, 999, 1000};
    (void)state;
    for (size_t i = 0; i < SUPPORT_COUNT(counts); i++) {
        struct support_data data;
        support_clusters(counts[i], 24, QUIRE_TYPE_F32, i, &data);
        check_build(&data, metrics[i % 3], QUIRE_SLOT_AUTO);
        support_data_free(&data);
    }
}

/* 3,000 floats do not fit in 8 KiB: the block grows, for one vector where a size was asked for, else for several. */
static void test_vector_larger_than_a_block(void **state)
{
    static const struct {
        uint32_t asked, expected;
    } cases[] = {{8192, 12288}, {0, 131072}};
    struct support_data data;
    (void)state;
    support_clusters(100, 3000, QUIRE_TYPE_F32, 1, &data);
    for (size_t i = 0; i < SUPPORT_COUNT(cases); i++) {
        struct quire_info info;
        char *folder = support_folder_make(), *path = support_path(folder, "index");
        struct quire_build_options options = support_options(QUIRE_METRIC_L2, QUIRE_SLOT_F32);
        options.block_bytes = cases[i].asked;
        support_build(path, &data, &options);
        verify(path, &data);
        ask_for_rows(path, &data, QUIRE_METRIC_L2);
        struct quire_index *index = support_open(path, NULL);
        quire_get_info(index, &info);
        assert_int_equal(info.block_bytes, cases[i].expected);
        quire_close(index);
        free(path);
        support_folder_remove(folder);
    }
    support_data_free(&data);
}

static void test_equal_rows(void **state)
{
    struct support_data data;
    (void)state;
    for (size_t m = 0; m < SUPPORT_COUNT(metrics); m++) {
        support_data_alloc(1500, 20, QUIRE_TYPE_I8, &data);
        for (uint32_t i = 0; i < data.rows * data.dim; i++)
            data.vectors[i] = (uint8_t)(i / data.dim % 100 == 99 ? 1 + i % 90 : 3);
        support_floats(&data);
        check_build(&data, metrics[m], m == 1 ? QUIRE_SLOT_Q8 : QUIRE_SLOT_AUTO);
        support_data_free(&data);
    }
    /* nothing but zeros: no direction, no length, no spread */
    support_data_alloc(1200, 20, QUIRE_TYPE_F32, &data);
    check_build(&data, QUIRE_METRIC_L2, QUIRE_SLOT_AUTO);
    check_build(&data, QUIRE_METRIC_IP, QUIRE_SLOT_AUTO);
    support_data_free(&data);
}

/* One row a million times longer than the others may not spoil the answers among the others. */
static void test_outlier(void **state)
{
    struct support_data data;
    (void)state;
    support_clusters(1200, 32, QUIRE_TYPE_F32, 6, &data);
    for (uint32_t d = 0; d < data.dim; d++)
        ((float *)(void *)data.vectors)[777 * data.dim + d] = 1e6f;
    support_floats(&data);
    char *folder = support_folder_make(), *path = support_path(folder, "index");
    struct quire_build_options options = support_options(QUIRE_METRIC_L2, QUIRE_SLOT_AUTO);
    support_build(path, &data, &options);
    verify(path, &data);
    struct quire_index *index = support_open(path, NULL);
    float *queries = support_queries(&data, 30, 5);
    double recall = 0;
    for (uint32_t i = 0; i < 30; i++) {
        struct quire_search_options search = support_search(10, 0.95f, 0);
        struct quire_hit hits[10];
        uint32_t n_hits;
        assert_int_equal(quire_search(index, queries + i * data.dim, &search, hits, &n_hits, NULL, NULL), 0);
        recall += support_recall(QUIRE_METRIC_L2, data.floats, data.rows, data.dim, queries + i * data.dim, 10, hits,
                                 n_hits) /
                  30;
    }
    if (recall < 0.9)
        fail_msg("recall %.3f next to an outlier", recall);
    free(queries);
    quire_close(index);
    free(path);
    support_folder_remove(folder);
    support_data_free(&data);
}

/* ---- refused ----------------------------------------------------------------------------------------------------- */

struct attempt {
    char *folder, *path;
    struct support_data data;
    struct quire_build_options options;
    struct quire_error err;
    bool streamed; /* build_in reads the vectors */
    bool small;    /* and has little memory */
};

static void attempt_init(struct attempt *a)
{
    a->streamed = a->small = false;
    a->folder = support_folder_make();
    a->path = support_path(a->folder, "index");
    support_clusters(50, 8, QUIRE_TYPE_F32, 1, &a->data);
    a->options = support_options(QUIRE_METRIC_L2, QUIRE_SLOT_AUTO);
}

static void attempt_fini(struct attempt *a)
{
    support_data_free(&a->data);
    free(a->path);
    support_folder_remove(a->folder);
}

static int attempt_build(struct attempt *a)
{
    memset(&a->err, 0, sizeof a->err);
    int rc = quire_build(a->path, a->data.vectors, a->data.rows, a->data.dim, a->data.type, &a->options, &a->err);
    if (rc < 0) {
        assert_int_equal(a->err.code, rc);
        assert_true(a->err.message[0] != 0);
        assert_non_null(a->err.where);
    }
    return rc;
}

/* The attempt fails with this code, names `text`, and leaves nothing. */
static void expect_refusal(struct attempt *a, int code, const char *text)
{
    int rc = attempt_build(a);
    if (rc != code)
        fail_msg("expected %s for \"%s\", found %s: %s", quire_error_name(code), text, quire_error_name(rc),
                 a->err.message);
    if (!strstr(a->err.message, text))
        fail_msg("\"%s\" is not in \"%s\"", text, a->err.message);
    assert_int_equal(support_count_entries(a->folder), 0);
}

static void test_bad_shapes(void **state)
{
    struct attempt a;
    (void)state;
    attempt_init(&a);
    a.data.dim = 0;
    expect_refusal(&a, QUIRE_EDIM, "0");
    a.data.dim = QUIRE_DIM_MAX + 1;
    expect_refusal(&a, QUIRE_EDIM, "65537");
    a.data.dim = 8;
    a.data.rows = 0;
    expect_refusal(&a, QUIRE_EINVALID, "rows");
    a.data.rows = 50;
    assert_int_equal(
        quire_build(a.path, a.data.vectors, (uint64_t)QUIRE_ROWS_MAX + 1, 8, QUIRE_TYPE_F32, &a.options, NULL),
        QUIRE_ELIMIT);
    assert_int_equal(quire_build(NULL, a.data.vectors, 50, 8, QUIRE_TYPE_F32, &a.options, NULL), QUIRE_EINVALID);
    assert_int_equal(quire_build(a.path, NULL, 50, 8, QUIRE_TYPE_F32, &a.options, NULL), QUIRE_EINVALID);
    assert_int_equal(quire_build(a.path, a.data.vectors, 50, 8, QUIRE_TYPE_F32, NULL, NULL), QUIRE_EINVALID);
    attempt_fini(&a);
}

static void test_bad_options(void **state)
{
    struct attempt a;
    (void)state;
    attempt_init(&a);
    a.options.metric = (enum quire_metric)3;
    expect_refusal(&a, QUIRE_EINVALID, "3");
    a.options = support_options(QUIRE_METRIC_L2, (enum quire_slot)7);
    expect_refusal(&a, QUIRE_EINVALID, "7");
    a.options = support_options(QUIRE_METRIC_L2, QUIRE_SLOT_U8);
    expect_refusal(&a, QUIRE_ETYPE, "u8");
    a.options = support_options(QUIRE_METRIC_L2, QUIRE_SLOT_AUTO);
    a.options.block_bytes = 5000;
    expect_refusal(&a, QUIRE_ERANGE, "5000");
    a.options.block_bytes = 2 * QUIRE_BLOCK_BYTES_MAX;
    expect_refusal(&a, QUIRE_ERANGE, "2097152");
    a.options.block_bytes = 0;
    a.options.code_bits = 3;
    expect_refusal(&a, QUIRE_ERANGE, "3");
    a.options.code_bits = 0;
    a.options.degree = 257;
    expect_refusal(&a, QUIRE_ERANGE, "257");
    a.options.degree = 64;
    a.options.build_beam = 63;
    expect_refusal(&a, QUIRE_ERANGE, "63");
    a.options.build_beam = 64;
    a.options.calibration_queries = 49;
    expect_refusal(&a, QUIRE_ERANGE, "49");
    a.options.calibration_queries = 801;
    expect_refusal(&a, QUIRE_ERANGE, "801");
    attempt_fini(&a);
}

static void test_unknown_struct_bytes(void **state)
{
    struct attempt a;
    (void)state;
    attempt_init(&a);
    a.options.struct_bytes = sizeof a.options + 8;
    expect_refusal(&a, QUIRE_EINVALID, "struct_bytes");
    a.options.struct_bytes = 0;
    expect_refusal(&a, QUIRE_EINVALID, "struct_bytes");
    attempt_fini(&a);
}

static void test_bad_vectors(void **state)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY, 3e38f};
    struct attempt a;
    (void)state;
    for (size_t i = 0; i < SUPPORT_COUNT(bad); i++) {
        attempt_init(&a);
        ((float *)(void *)a.data.vectors)[33 * 8 + 7] = bad[i];
        ((float *)(void *)a.data.vectors)[41 * 8] = bad[i];
        expect_refusal(&a, QUIRE_ENOTFINITE, "row 33");
        attempt_fini(&a);
    }
    /* infinity in half floats */
    attempt_init(&a);
    support_data_free(&a.data);
    support_clusters(50, 8, QUIRE_TYPE_F16, 1, &a.data);
    ((uint16_t *)(void *)a.data.vectors)[49 * 8 + 3] = 0x7c00;
    expect_refusal(&a, QUIRE_ENOTFINITE, "row 49");
    attempt_fini(&a);
}

/* f32 rows beyond the range of half floats cannot stand in f16 slots: refused, or stored so that searches still work.
 */
static void test_f16_overflow(void **state)
{
    struct attempt a;
    (void)state;
    attempt_init(&a);
    a.options.slot = QUIRE_SLOT_F16;
    ((float *)(void *)a.data.vectors)[20 * 8] = 1e6f;
    int rc = attempt_build(&a);
    if (rc < 0) {
        assert_true(rc == QUIRE_ERANGE || rc == QUIRE_ENOTFINITE);
        assert_non_null(strstr(a.err.message, "row 20"));
    } else {
        struct quire_index *index = support_open(a.path, NULL);
        struct quire_search_options options = support_search(50, 0, 0);
        struct quire_hit hits[50];
        uint32_t n_hits;
        options.exact = true;
        assert_int_equal(quire_search(index, a.data.floats, &options, hits, &n_hits, NULL, NULL), 0);
        for (uint32_t i = 0; i < n_hits; i++)
            assert_true(isfinite(hits[i].distance));
        quire_close(index);
    }
    attempt_fini(&a);
}

static void test_bad_paths(void **state)
{
    struct attempt a;
    (void)state;
    attempt_init(&a);
    char *folder = support_path(a.folder, "taken"), *missing = support_path(a.folder, "missing/index"), *path = a.path;
    assert_int_equal(mkdir(folder, 0755), 0);
    a.path = folder;
    assert_int_equal(attempt_build(&a), QUIRE_EEXISTS);
    assert_int_equal(rmdir(folder), 0);
    support_write_file(folder, "x", 1);
    assert_int_equal(attempt_build(&a), QUIRE_EEXISTS);
    assert_int_equal(unlink(folder), 0);
    /* a link that leads nowhere is something at that place, too */
    assert_int_equal(symlink("nowhere", folder), 0);
    assert_int_equal(attempt_build(&a), QUIRE_EEXISTS);
    assert_int_equal(unlink(folder), 0);
    a.path = missing;
    expect_refusal(&a, QUIRE_ENOFILE, "missing");
    a.path = path;
    free(folder);
    free(missing);
    attempt_fini(&a);
}

static void test_empty_path(void **state)
{
    struct attempt a;
    (void)state;
    attempt_init(&a);
    char *path = a.path, *before = getcwd(NULL, 0);
    assert_non_null(before);
    assert_int_equal(chdir(a.folder), 0);
    a.path = (char[]){""};
    int rc = attempt_build(&a);
    unsigned left = support_count_entries(a.folder);
    assert_int_equal(chdir(before), 0);
    assert_true(rc < 0);
    assert_int_equal(left, 0);
    a.path = path;
    free(before);
    attempt_fini(&a);
}

/* "index/" is the same folder as "index". */
static void test_trailing_slash(void **state)
{
    struct attempt a;
    (void)state;
    attempt_init(&a);
    char *path = a.path, *slash = support_path(a.folder, "index//");
    a.path = slash;
    int rc = attempt_build(&a), again = attempt_build(&a);
    unsigned left = support_count_entries(a.folder);
    if (rc < 0)
        fail_msg("build in \"index//\": %s", a.err.message);
    assert_int_equal(again, QUIRE_EEXISTS);
    assert_int_equal(left, 1);
    verify(path, &a.data);
    a.path = path;
    free(slash);
    attempt_fini(&a);
}

static void test_unwritable_folder(void **state)
{
    struct attempt a;
    (void)state;
    attempt_init(&a);
    assert_int_equal(chmod(a.folder, 0555), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        /* root writes everywhere: try as somebody else */
        if (geteuid() == 0 && (setgid(65534) < 0 || setuid(65534) < 0))
            _exit(2);
        int rc = quire_build(a.path, a.data.vectors, a.data.rows, a.data.dim, a.data.type, &a.options, NULL);
        _exit(rc == QUIRE_EPERM ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(chmod(a.folder, 0755), 0);
    assert_int_equal(support_count_entries(a.folder), 0);
    attempt_fini(&a);
}

static void test_bad_keys(void **state)
{
    struct attempt a;
    const void *keys[50];
    uint32_t key_bytes[50];
    char text[50][8], *large = calloc(1, QUIRE_KEY_BYTES_MAX + 1);
    (void)state;
    assert_non_null(large);
    attempt_init(&a);
    for (int i = 0; i < 50; i++) {
        key_bytes[i] = (uint32_t)snprintf(text[i], sizeof text[i], "key%d", i);
        keys[i] = text[i];
    }
    a.options.keys = keys;
    expect_refusal(&a, QUIRE_EINVALID, "lengths");
    a.options.key_bytes = key_bytes;
    keys[44] = text[17];
    expect_refusal(&a, QUIRE_EEXISTS, "rows 17 and 44");
    assert_non_null(strstr(a.err.message, "key17"));
    keys[44] = text[44];
    key_bytes[9] = 0;
    expect_refusal(&a, QUIRE_ERANGE, "row 9");
    keys[9] = large;
    key_bytes[9] = QUIRE_KEY_BYTES_MAX + 1;
    expect_refusal(&a, QUIRE_ERANGE, "65536");
    key_bytes[9]--;
    assert_int_equal(attempt_build(&a), 0);
    verify(a.path, &a.data);
    free(large);
    attempt_fini(&a);
}

/* ---- stopped on the way ------------------------------------------------------------------------------------------ */

struct stopper {
    unsigned calls, stop_at;
    char last_phase[32];
};

static int count_and_stop(void *context, const char *phase, uint64_t done, uint64_t total)
{
    struct stopper *stopper = context;
    assert_true(total == 0 || done <= total);
    snprintf(stopper->last_phase, sizeof stopper->last_phase, "%s", phase);
    return ++stopper->calls == stopper->stop_at;
}

static void test_cancel(void **state)
{
    struct attempt a;
    struct stopper stopper = {0};
    (void)state;
    attempt_init(&a);
    support_data_free(&a.data);
    support_clusters(1100, 8, QUIRE_TYPE_F32, 1, &a.data);
    a.options.progress = count_and_stop;
    a.options.context = &stopper;
    assert_int_equal(attempt_build(&a), 0);
    char *done = support_path(a.folder, "done");
    assert_int_equal(rename(a.path, done), 0);
    unsigned calls = stopper.calls, step = calls / 12 + 1, n_stopped = 0;
    assert_true(calls > 4);
    for (unsigned at = 1; at <= calls; at += step) {
        stopper = (struct stopper){.stop_at = at};
        int rc = attempt_build(&a);
        /* long loops report by the clock: a quicker run may be over before its call number `at` */
        if (stopper.calls < at) {
            assert_int_equal(rc, 0);
            assert_int_equal(fs_remove_folder(fs_real(), a.path, NULL), 0);
            continue;
        }
        n_stopped++;
        assert_int_equal(rc, QUIRE_ECANCELLED);
        assert_int_equal(stopper.calls, at);
        assert_int_equal(support_count_entries(a.folder), 1);
    }
    assert_true(n_stopped > 2);
    free(done);
    attempt_fini(&a);
}

static void test_calibration_queries(void **state)
{
    static const uint32_t given[] = {BUILD_QUERIES_LEAST, 2 * BUILD_QUERIES_LEAST, 0};
    uint64_t asked[3] = {0};
    struct support_data data;
    (void)state;
    support_clusters(4000, 16, QUIRE_TYPE_F32, 20, &data);
    for (unsigned i = 0; i < 3; i++) {
        char *folder = support_folder_make(), *path = support_path(folder, "index");
        struct quire_build_options options = support_options(QUIRE_METRIC_L2, QUIRE_SLOT_AUTO);
        options.calibration_queries = given[i];
        options.progress = support_note_asked;
        options.context = &asked[i];
        support_build(path, &data, &options);
        struct quire_index *index = support_open(path, NULL);
        assert_true(quire_calibration(index, NULL, 0) > 3);
        quire_close(index);
        support_folder_remove(folder);
        free(path);
    }
    support_data_free(&data);
    if (asked[0] == 0 || 3 * asked[0] > 2 * asked[1] || 3 * asked[1] > 2 * asked[2]) /* 50, 100, one row in 20: 200 */
        fail_msg("asked %llu, %llu, %llu", (unsigned long long)asked[0], (unsigned long long)asked[1],
                 (unsigned long long)asked[2]);
}

/* Stops at its first call within a ladder of the calibration. */
static int stop_within_ladder(void *context, const char *phase, uint64_t done, uint64_t total)
{
    uint64_t *asked = context;
    if (strcmp(phase, "calibrate") != 0)
        return 0;
    assert_int_equal(total, 0);
    assert_int_equal(*asked, UINT64_MAX); /* who has stopped it is not called again */
    *asked = done;
    return 1;
}

/* A ladder takes minutes for millions of rows: the caller is asked within it, on one thread and on several. */
static void test_cancel_within_calibration(void **state)
{
    struct attempt a;
    (void)state;
    attempt_init(&a);
    support_data_free(&a.data);
    support_clusters(4000, 8, QUIRE_TYPE_F32, 1, &a.data);
    a.options.progress = stop_within_ladder;
    for (unsigned threads = 1; threads <= 3; threads += 2) {
        uint64_t asked = UINT64_MAX;
        a.options.threads = threads;
        a.options.context = &asked;
        assert_int_equal(attempt_build(&a), QUIRE_ECANCELLED);
        assert_string_equal(a.err.message, "the build was stopped; nothing was left behind");
        assert_true(asked < 200 * threads); /* 200 rows are held out: no ladder has made its first step */
        assert_int_equal(support_count_entries(a.folder), 0);
    }
    attempt_fini(&a);
}

/* In a child: files may not grow beyond `limit` bytes; the build's answer is the exit status. */
static int build_under_limit(struct attempt *a, rlim_t limit)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct rlimit rlimit = {limit, limit};
        signal(SIGXFSZ, SIG_IGN);
        if (setrlimit(RLIMIT_FSIZE, &rlimit) < 0)
            _exit(101);
        int rc = quire_build(a->path, a->data.vectors, a->data.rows, a->data.dim, a->data.type, &a->options, &a->err);
        _exit(-rc);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return -WEXITSTATUS(status);
}

static void test_file_size_limit(void **state)
{
    struct attempt a;
    bool succeeded = false;
    (void)state;
    attempt_init(&a);
    support_data_free(&a.data);
    support_clusters(600, 64, QUIRE_TYPE_F32, 1, &a.data);
    for (rlim_t limit = 0; !succeeded; limit += 8192) {
        int rc = build_under_limit(&a, limit);
        succeeded = rc == 0;
        if (rc == 0)
            break;
        if (rc != QUIRE_ELIMIT) /* EFBIG: the file's limit, not the disk's */
            fail_msg("with files of at most %lu bytes: %s", (unsigned long)limit, quire_error_name(rc));
        assert_int_equal(support_count_entries(a.folder), 0);
        assert_true(limit < 10000000);
    }
    verify(a.path, &a.data);
    attempt_fini(&a);
}

/* ---- failing disks ----------------------------------------------------------------------------------------------- */

/* The input of an attempt: in memory, or read. */
static int read_rows(void *context, uint64_t row, uint64_t n, void *out, struct quire_error *err)
{
    const struct attempt *a = context;
    size_t bytes = a->data.dim * quire_type_bytes(a->data.type);
    (void)err;
    memcpy(out, a->data.vectors + row * bytes, n * bytes);
    return 0;
}

static struct quire_input attempt_input(struct attempt *a)
{
    struct quire_input input = {.rows = a->data.rows, .dim = a->data.dim, .type = a->data.type, .context = a};
    if (a->streamed)
        input.read = read_rows;
    else
        input.vectors = a->data.vectors;
    return input;
}

/* The least memory in which the build works with files, and some room for what the process may take until then. */
static uint64_t small_memory(struct attempt *a)
{
    struct io_fs *fs = fault_fs_create();
    struct quire_input input = attempt_input(a);
    assert_non_null(fs);
    a->options.build_memory_bytes = 1;
    assert_int_equal(build_segment(fs, "/index", &input, &a->options, &a->err), QUIRE_ELIMIT);
    const char *figure = strstr(a->err.message, "below the ");
    assert_non_null(figure);
    fault_fs_destroy(fs);
    return strtoull(figure + strlen("below the "), NULL, 10) + (3u << 20);
}

/* Calls that a build makes on its way; those that only clean up are left alone. */
#define BUILD_CALLS                                                                                                    \
    (FAULT_OPEN | FAULT_READ | FAULT_WRITE | FAULT_SYNC | FAULT_ALLOCATE | FAULT_TRUNCATE | FAULT_RENAME |             \
     FAULT_MKDIR | FAULT_SYNC_DIR)

static int build_in(struct io_fs *fs, struct attempt *a)
{
    if (a->small)
        a->options.build_memory_bytes = small_memory(a);
    memset(&a->err, 0, sizeof a->err);
    struct quire_input input = attempt_input(a);
    return build_segment(fs, "/index", &input, &a->options, &a->err);
}

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

static int copy_out(void *context, const char *path, const uint8_t *data, uint64_t bytes)
{
    const struct attempt *a = context;
    if (strncmp(path, "/index/", 7) != 0) /* a half-written folder that a power cut left */
        return 0;
    char *to = support_path(a->path, path + 7);
    support_write_file(to, data, bytes);
    free(to);
    return 0;
}

/* True when the fs has the index; then it is whole. */
static bool prove_in(struct io_fs *fs, struct attempt *a)
{
    assert_int_equal(mkdir(a->path, 0755), 0);
    fault_each_file(fs, copy_out, a);
    bool is_there = support_count_entries(a->path) > 0;
    if (is_there)
        verify(a->path, &a->data);
    assert_int_equal(fs_remove_folder(fs_real(), a->path, NULL), 0);
    return is_there;
}

static void fail_each_call(struct attempt *a, int code, unsigned step)
{
    struct io_fs *fs = fault_fs_create();
    unsigned n = 1;
    assert_non_null(fs);
    for (int rc = -1; rc < 0; n += step) {
        fault_fail_nth(fs, BUILD_CALLS, n, code, false);
        rc = build_in(fs, a);
        if (rc < 0 && (rc != code || a->err.code != rc || !a->err.message[0]))
            fail_msg("call %u fails with %s: build says %s, \"%s\"", n, quire_error_name(code), quire_error_name(rc),
                     a->err.message);
        if (rc < 0 && !a->options.resume && files_in(fs) > 0)
            fail_msg("call %u fails with %s: \"%s\", and %u files are left", n, quire_error_name(code), a->err.message,
                     files_in(fs));
    }
    assert_true(n > 20);
    assert_true(prove_in(fs, a));
    fault_fs_destroy(fs);
}

static void test_each_failing_call(void **state)
{
    struct attempt a;
    (void)state;
    attempt_init(&a);
    fail_each_call(&a, QUIRE_ENOSPACE, 1);
    fail_each_call(&a, QUIRE_EIO, 1);
    attempt_fini(&a);
}

/* The same where rows, edges and input lie in files. */
static void test_each_failing_call_in_files(void **state)
{
    struct attempt a;
    (void)state;
    attempt_init(&a);
    a.streamed = true;
    a.small = true;
    fail_each_call(&a, QUIRE_ENOSPACE, 1);
    fail_each_call(&a, QUIRE_EIO, 3);
    attempt_fini(&a);
}

/* A build that may be resumed goes on after each failure, whichever call it was, and ends in a whole index. */
static void test_each_failing_call_resumed(void **state)
{
    struct attempt a;
    (void)state;
    attempt_init(&a);
    a.options.resume = true;
    fail_each_call(&a, QUIRE_EIO, 1);
    a.streamed = true;
    a.small = true;
    fail_each_call(&a, QUIRE_EIO, 1);
    attempt_fini(&a);
}

static void test_no_space(void **state)
{
    struct attempt a;
    struct io_fs *fs = fault_fs_create();
    (void)state;
    assert_non_null(fs);
    attempt_init(&a);
    int rc = -1;
    for (uint64_t capacity = 0; rc < 0; capacity += 3000) {
        fault_capacity(fs, capacity);
        rc = build_in(fs, &a);
        if (rc < 0) {
            assert_int_equal(rc, QUIRE_ENOSPACE);
            assert_true(a.err.code == rc && a.err.message[0]);
            assert_int_equal(files_in(fs), 0);
        }
        assert_true(capacity < 1000000);
    }
    assert_true(prove_in(fs, &a));
    fault_fs_destroy(fs);
    attempt_fini(&a);
}

/* What a build has answered for stays, whatever of the rest is lost. */
static void test_finished_build_is_durable(void **state)
{
    struct attempt a;
    (void)state;
    attempt_init(&a);
    for (uint64_t seed = 0; seed < 8; seed++) {
        struct io_fs *fs = fault_fs_create();
        assert_non_null(fs);
        assert_int_equal(build_in(fs, &a), 0);
        fault_power_cut(fs, seed);
        assert_true(prove_in(fs, &a));
        fault_fs_destroy(fs);
    }
    attempt_fini(&a);
}

/* The power goes at any call: afterwards the folder is whole, or not there. */
static void cut_power_at_each_call(struct attempt *a)
{
    int rc = -1;
    unsigned n = 1;
    for (; rc < 0; n++)
        for (uint64_t seed = 0; seed < 4; seed++) {
            struct io_fs *fs = fault_fs_create();
            assert_non_null(fs);
            fault_fail_nth(fs, BUILD_CALLS & ~FAULT_READ, n, QUIRE_EIO, true);
            rc = build_in(fs, a);
            fault_power_cut(fs, seed == 3 ? UINT64_MAX : seed);
            bool is_there = prove_in(fs, a);
            assert_true(rc < 0 || is_there);
            if (a->options.resume && !is_there) {
                if (build_in(fs, a) < 0)
                    fail_msg("power cut at call %u, seed %d: %s", n, (int)seed, a->err.message);
                assert_true(prove_in(fs, a));
            }
            fault_fs_destroy(fs);
        }
    assert_true(n > 20);
}

static void test_power_cut_on_the_way(void **state)
{
    struct attempt a;
    (void)state;
    attempt_init(&a);
    cut_power_at_each_call(&a);
    attempt_fini(&a);
}

static void test_power_cut_and_resume(void **state)
{
    struct attempt a;
    (void)state;
    attempt_init(&a);
    a.options.resume = true;
    a.streamed = true;
    cut_power_at_each_call(&a);
    attempt_fini(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dimensions),
        cmocka_unit_test(test_largest_dimension),
        cmocka_unit_test(test_row_counts),
        cmocka_unit_test(test_vector_larger_than_a_block),
        cmocka_unit_test(test_equal_rows),
        cmocka_unit_test(test_outlier),
        cmocka_unit_test(test_bad_shapes),
        cmocka_unit_test(test_bad_options),
        cmocka_unit_test(test_unknown_struct_bytes),
        cmocka_unit_test(test_bad_vectors),
        cmocka_unit_test(test_f16_overflow),
        cmocka_unit_test(test_bad_paths),
        cmocka_unit_test(test_empty_path),
        cmocka_unit_test(test_trailing_slash),
        cmocka_unit_test(test_unwritable_folder),
        cmocka_unit_test(test_bad_keys),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_calibration_queries),
        cmocka_unit_test(test_cancel_within_calibration),
        cmocka_unit_test(test_file_size_limit),
        cmocka_unit_test(test_each_failing_call),
        cmocka_unit_test(test_each_failing_call_in_files),
        cmocka_unit_test(test_each_failing_call_resumed),
        cmocka_unit_test(test_no_space),
        cmocka_unit_test(test_finished_build_is_durable),
        cmocka_unit_test(test_power_cut_on_the_way),
        cmocka_unit_test(test_power_cut_and_resume),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
