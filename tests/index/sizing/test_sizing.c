/*
 * test_sizing.c - a plan for more rows than there are: what it says of bytes beside an index of all rows that is then
 * built, that nothing is left in the folder, and a caller that stops it.
 */
#include "index/build/build.h"
#include "index/sizing/sizing.h"
#include "tests/index/support_index.h"
#include "tests/sanitized.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ROWS = 12000, SAMPLE = 4096, DIM = 24 };

static float *make_rows(void)
{
    float *rows = malloc(sizeof *rows * ROWS * DIM);
    assert_non_null(rows);
    for (uint64_t i = 0; i < ROWS; i++) {
        uint64_t noise = i + 1, centre = i * 7 % 40 + 1;
        for (uint32_t d = 0; d < DIM; d++)
            rows[i * DIM + d] = 2 * support_gauss(&centre) + support_gauss(&noise);
    }
    return rows;
}

static struct sizing_question question_of(const float *rows)
{
    struct sizing_question q = {.rows = ROWS,
                                .sample_rows = SAMPLE,
                                .recall = 0.95f,
                                .processors = 2,
                                .sample = {.rows = ROWS, .dim = DIM, .type = QUIRE_TYPE_F32, .vectors = rows},
                                .build = support_options(QUIRE_METRIC_L2, QUIRE_SLOT_AUTO)};
    q.build.threads = 2;
    return q;
}

static void assert_within(double got, double wanted, double share)
{
    if (fabs(got - wanted) > share * wanted)
        fail_msg("%g, not %g within %g", got, wanted, share);
}

/* What the plan says of bytes is what an index has; of so few rows what is fixed weighs. */
static void compare_with_index(const char *path, const float *rows, const struct sizing_question *q,
                               const struct sizing_answer *a)
{
    struct quire_build_options options = q->build;
    struct quire_open_options open;
    struct quire_index *index;
    struct quire_info info;
    struct quire_error err = {0};
    options.index = a->way.index;
    options.edge_codes = a->way.edge_codes ? QUIRE_EDGE_CODES_YES : QUIRE_EDGE_CODES_NO;
    assert_int_equal(quire_build(path, rows, ROWS, DIM, QUIRE_TYPE_F32, &options, &err), 0);
    quire_open_options_init(&open);
    open.memory_bytes = a->memory_bytes;
    assert_int_equal(quire_open(path, &open, &index, &err), 0);
    quire_get_info(index, &info);
    assert_within(a->whole.index_bytes, (double)info.index_bytes, 0.1);
    assert_true(info.resident_bytes <= a->memory_bytes);
    quire_close(index);
    support_folder_remove(strdup(path));
}

static void test_sizes(void **state)
{
    float *rows = make_rows();
    char *folder = support_folder_make(), *path = support_path(folder, "index");
    struct sizing_question q = question_of(rows);
    struct sizing_report r;
    struct quire_error err = {0};
    (void)state;
    assert_int_equal(sizing_run(folder, &q, &r, &err), 0);
    assert_int_equal(support_count_entries(folder), 0);
    assert_int_equal(r.n_answers, SIZING_WAYS_MAX);
    assert_true(r.device_known || strlen(r.device_note) > 0);
    for (uint32_t i = 0; i < r.n_answers; i++) {
        const struct sizing_answer *a = &r.answers[i];
        assert_true(a->small.rows == SAMPLE / 4 && a->large.rows == SAMPLE && a->whole.rows == ROWS);
        assert_true(a->whole.reads >= a->large.reads && a->whole.cpu_us >= a->large.cpu_us);
        assert_true((double)a->memory_bytes > a->whole.resident_bytes);
        assert_true(a->build_memory_least_bytes <= a->build_memory_bytes);
        assert_true((a->qps > 0) == r.device_known && (a->latency_us > 0) == r.device_known);
    }
    /* wider codes take more memory and fewer reads */
    assert_true(r.answers[0].memory_bytes >= r.answers[2].memory_bytes);
    assert_true(r.answers[0].whole.reads <= r.answers[2].whole.reads);
    compare_with_index(path, rows, &q, &r.answers[0]);
    compare_with_index(path, rows, &q, &r.answers[3]);
    compare_with_index(path, rows, &q, &r.answers[4]);
    free(path);
    support_folder_remove(folder);
    free(rows);
}

static int stop_at(void *context, const char *phase, uint64_t done, uint64_t total)
{
    (void)phase;
    assert_true(done <= total);
    return --*(int *)context == 0;
}

/* Whenever it is stopped, nothing is left. */
static void test_stopped(void **state)
{
    float *rows = make_rows();
    char *folder = support_folder_make();
    struct sizing_question q = question_of(rows);
    struct sizing_report r;
    struct quire_error err = {0};
    int left;
    (void)state;
    q.lists_only = true;
    q.build.progress = stop_at;
    q.build.context = &left;
    for (int calls = 1; calls <= 40; calls += 13) {
        left = calls;
        assert_int_equal(sizing_run(folder, &q, &r, &err), QUIRE_ECANCELLED);
        assert_int_equal(support_count_entries(folder), 0);
    }
    support_folder_remove(folder);
    left = 0;
    assert_true(sizing_run("/nonexistent/folder", &q, &r, &err) < 0); /* nor is there a folder that was not */
    free(rows);
}

/* What a build takes is what it refuses to do with less. */
static void test_needs(void **state)
{
    float *rows = make_rows();
    char *folder = support_folder_make(), *path = support_path(folder, "index");
    struct quire_build_options options = support_options(QUIRE_METRIC_L2, QUIRE_SLOT_AUTO);
    struct quire_error err = {0};
    struct build_needs needs, more;
    (void)state;
    options.threads = 2;
    build_needs_for(ROWS, DIM, QUIRE_TYPE_F32, &options, &needs);
    build_needs_for(100 * ROWS, DIM, QUIRE_TYPE_F32, &options, &more);
    assert_true(needs.memory_least_bytes <= needs.memory_bytes && more.memory_bytes > needs.memory_bytes);
    assert_true(more.work_bytes == 100 * needs.work_bytes);
    /* 3 MiB of it are for a program that has just begun; this one has more */
    options.build_memory_bytes = needs.memory_least_bytes / 2;
    assert_int_equal(quire_build(path, rows, ROWS, DIM, QUIRE_TYPE_F32, &options, &err), QUIRE_ELIMIT);
    options.build_memory_bytes = needs.memory_least_bytes + ((SANITIZED ? 1024u : 64u) << 20);
    assert_int_equal(quire_build(path, rows, ROWS, DIM, QUIRE_TYPE_F32, &options, &err), 0);
    free(path);
    support_folder_remove(folder);
    free(rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_stopped),
        cmocka_unit_test(test_needs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
