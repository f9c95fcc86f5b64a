/*
 * test_spann_lanes.c - many searches in inverted lists on one lane: few buffers, broken reads, other segments.
 *
 * A lane has 8 to 64 buffers for postings and here up to 300 searches that want dozens each, so most of them wait for
 * one. Whatever the order in which reads come back (the fault engine draws it from a seed), each answers what it
 * answers alone; errors end only the search that met them; and whoever starts a search from the callback of another
 * gets its answer, although the task that has just ended is the one that serves it.
 */
#include "index/build/build.h"
#include "index/search/task.h"
#include "io/random.h"
#include "tests/index/support_spann.h"
#include "tests/sanitized.h"
#include "tests/support/fault.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define K        10u
#define REQUESTS 300u
#define SEGMENTS 3u

/* Indexes in a file system in memory: small lists, lists of large vectors, and a page graph with blocks as large. */
static struct {
    struct io_fs *fs;
    struct support_data data[SEGMENTS];
    struct segment *segments[SEGMENTS];
} shared;

static void build_shared(unsigned i, const char *path, uint32_t rows, uint32_t dim, uint32_t list_rows,
                         uint32_t block_bytes)
{
    struct quire_build_options options = spann_options(QUIRE_METRIC_L2, list_rows);
    struct quire_error err;
    if (list_rows == 0)
        options.index = QUIRE_INDEX_PAGEGRAPH;
    options.block_bytes = block_bytes;
    support_clusters(rows, dim, QUIRE_TYPE_F32, 3 + i, &shared.data[i]);
    struct quire_input input = {.vectors = shared.data[i].vectors, .rows = rows, .dim = dim, .type = QUIRE_TYPE_F32};
    if (build_segment(shared.fs, path, &input, &options, &err) < 0)
        fail_msg("%s", err.message);
    if (list_rows)
        shared.segments[i] = spann_open(shared.fs, path, SPANN_HEADS);
    else
        assert_int_equal(segment_open(path, &(struct segment_options){.fs = shared.fs}, &shared.segments[i], NULL), 0);
}

static int set_up(void **state)
{
    (void)state;
    shared.fs = fault_fs_create();
    assert_non_null(shared.fs);
    build_shared(0, "/small", 1500, 24, 12, 0);
    build_shared(1, "/large", 600, 1024, 80, 16384);
    build_shared(2, "/graph", 600, 1024, 0, 16384);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (unsigned i = 0; i < SEGMENTS; i++) {
        segment_unref(shared.segments[i]);
        support_data_free(&shared.data[i]);
    }
    fault_fs_destroy(shared.fs);
    return 0;
}

/* ---- asking ------------------------------------------------------------------------------------------------------ */

struct job {
    struct search_request request;
    struct crowd *crowd;
    unsigned segment;
    uint32_t row;
    unsigned done;
    int code;
    uint32_t n;
    uint64_t ids[K];
};

/* Searches that are started one after the other, `window` at a time. */
struct crowd {
    struct spann_lane lane;
    struct job jobs[REQUESTS];
    unsigned n, started, done, refused;
};

static void start_job(struct crowd *c);

static void on_done(struct search_request *request)
{
    struct job *job = request->owner;
    struct crowd *c = job->crowd;
    job->done++;
    job->code = request->code;
    job->n = request->n_hits;
    assert_true(job->n <= K);
    for (uint32_t i = 0; i < job->n; i++)
        job->ids[i] = request->hits[i].id;
    if (request->code < 0)
        assert_true(request->error.code == request->code && request->error.message[0]);
    assert_true(request->stats.cpu_ns <= request->stats.latency_ns);
    c->done++;
    if (c->started < c->n)
        start_job(c);
}

static void start_job(struct crowd *c)
{
    struct job *job = &c->jobs[c->started++];
    const struct support_data *data = &shared.data[job->segment];
    job->request = (struct search_request){.segment = shared.segments[job->segment],
                                           .query = data->floats + (size_t)job->row * data->dim,
                                           .options = support_search(K, 0, 60),
                                           .done = on_done,
                                           .owner = job};
    int rc = search_start(c->lane.searcher, &job->request, NULL);
    if (rc < 0) { /* the lane is stopping */
        assert_int_equal(rc, QUIRE_ECANCELLED);
        job->code = rc;
        c->refused++;
    }
}

/* n searches in segments drawn from `mask`. */
static void crowd_init(struct crowd *c, unsigned n, unsigned mask, uint64_t seed)
{
    struct random random;
    random_init(&random, seed);
    memset(c, 0, sizeof *c);
    c->n = n;
    for (unsigned i = 0; i < n; i++) {
        struct job *job = &c->jobs[i];
        do
            job->segment = (unsigned)random_below(&random, SEGMENTS);
        while (!(mask >> job->segment & 1));
        job->row = (uint32_t)random_below(&random, shared.data[job->segment].rows);
        job->crowd = c;
    }
}

static void start_window(struct crowd *c, unsigned window)
{
    while (c->started < c->n && c->started < window)
        start_job(c);
}

static void run_crowd(struct crowd *c)
{
    for (unsigned idle = 0; c->done + c->refused < c->n && idle < 2000; idle++)
        if (engine_poll(c->lane.engine, 1, 1000000) > 0)
            idle = 0;
    if (c->done + c->refused < c->n)
        fail_msg("%u of %u searches never end", c->n - c->done - c->refused, c->n);
    for (unsigned i = 0; i < c->n; i++)
        assert_true(c->jobs[i].done == 1 || c->refused > 0);
    assert_int_equal(searcher_running(c->lane.searcher), 0);
    assert_null(c->lane.searcher->postings.queue.first);
}

/* What each search answers on a lane of its own. */
static void check_alone(const struct crowd *c)
{
    static struct spann_answer answer;
    struct spann_lane lane;
    struct quire_search_options options = support_search(K, 0, 60);
    spann_lane_open(&lane, QUIRE_ENGINE_AUTO, 1, 1);
    for (unsigned i = 0; i < c->n; i++) {
        const struct job *job = &c->jobs[i];
        const struct support_data *data = &shared.data[job->segment];
        if (job->code < 0)
            continue;
        spann_ask(&lane, shared.segments[job->segment], data->floats + (size_t)job->row * data->dim, &options, NULL,
                  &answer);
        assert_int_equal(answer.code, 0);
        if (answer.n != job->n || memcmp(answer.ids, job->ids, sizeof *answer.ids * job->n) != 0)
            fail_msg("search %u in segment %u differs among others", i, job->segment);
    }
    spann_lane_close(&lane);
}

static struct crowd crowd;

/* ---- crowds ------------------------------------------------------------------------------------------------------ */

static void test_few_buffers(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        crowd_init(&crowd, REQUESTS, 1, seed);
        spann_lane_open(&crowd.lane, QUIRE_ENGINE_AUTO, seed, seed % 2 ? 200 : 20);
        start_window(&crowd, 100);
        assert_non_null(crowd.lane.searcher->postings.queue.first);
        run_crowd(&crowd);
        const struct searcher *s = crowd.lane.searcher;
        assert_true(s->postings.n >= 8 && (uint64_t)s->postings.n * s->postings.bytes <= 2u << 20);
        check_alone(&crowd);
        spann_lane_close(&crowd.lane);
    }
}

static void test_segments_of_all_kinds(void **state)
{
    (void)state;
    assert_true(shared.segments[1]->params.posting_bytes_max > 2 * shared.segments[0]->params.posting_bytes_max);
    assert_int_equal(segment_info(shared.segments[1])->block_bytes, 16384);
    assert_true(segment_info(shared.segments[0])->block_bytes < 16384);
    for (uint64_t seed = 1; seed <= 6; seed++) {
        unsigned mask = seed % 3 == 0 ? 3 : seed % 3 == 1 ? 7 : 6;
        crowd_init(&crowd, REQUESTS, mask, seed);
        spann_lane_open(&crowd.lane, QUIRE_ENGINE_AUTO, seed, 48);
        if (mask & 1) /* frames are made for the blocks of the first segment */
            crowd.jobs[0].segment = 0;
        start_window(&crowd, 60);
        run_crowd(&crowd);
        check_alone(&crowd);
        spann_lane_close(&crowd.lane);
    }
}

/* A task that has read large blocks of a page graph, four at a time, then has room for those of lists, too. */
static void test_blocks_larger_than_frames(void **state)
{
    (void)state;
    crowd_init(&crowd, 40, 7, 1);
    for (unsigned i = 0; i < crowd.n; i++) {
        crowd.jobs[i].segment = i == 0 ? 0 : i % 2 ? 2 : 1;
        crowd.jobs[i].row = i;
    }
    spann_lane_open(&crowd.lane, QUIRE_ENGINE_AUTO, 1, 1);
    start_window(&crowd, 1);
    run_crowd(&crowd);
    check_alone(&crowd);
    spann_lane_close(&crowd.lane);
}

/* Reads come back in any order, and the answer and what it cost are the same. */
static void test_order_of_reads(void **state)
{
    static struct spann_answer first, answer;
    struct quire_search_options options = support_search(K, 0, 25);
    (void)state;
    for (uint32_t row = 0; row < 1500; row += 37) {
        const float *query = shared.data[0].floats + (size_t)row * 24;
        for (uint64_t seed = 1; seed <= 6; seed++) {
            struct spann_lane lane;
            struct spann_answer *out = seed == 1 ? &first : &answer;
            spann_lane_open(&lane, QUIRE_ENGINE_AUTO, seed, 1);
            spann_ask(&lane, shared.segments[0], query, &options, NULL, out);
            spann_lane_close(&lane);
            assert_int_equal(out->code, 0);
            if (seed == 1)
                continue;
            assert_int_equal(out->n, first.n);
            assert_memory_equal(out->ids, first.ids, sizeof *out->ids * out->n);
            assert_int_equal(out->stats.reads, first.stats.reads);
            assert_int_equal(out->stats.rows_scored, first.stats.rows_scored);
            assert_int_equal(out->stats.rounds, first.stats.rounds);
        }
    }
}

/* ---- ends -------------------------------------------------------------------------------------------------------- */

static void test_cancel_in_the_middle(void **state)
{
    (void)state;
    for (unsigned polls = 0; polls < 60; polls += SANITIZED ? 11 : 3) {
        unsigned cancelled = 0;
        crowd_init(&crowd, REQUESTS, 7, polls + 1);
        spann_lane_open(&crowd.lane, QUIRE_ENGINE_AUTO, polls + 1, 40);
        start_window(&crowd, 120);
        for (unsigned i = 0; i < polls; i++)
            assert_true(engine_poll(crowd.lane.engine, 1, UINT64_MAX) >= 0);
        searcher_cancel(crowd.lane.searcher);
        assert_int_equal(searcher_running(crowd.lane.searcher), 0);
        assert_null(crowd.lane.searcher->postings.queue.first);
        assert_int_equal(crowd.done + crowd.refused, crowd.started);
        for (unsigned i = 0; i < crowd.started; i++) {
            assert_true(crowd.jobs[i].done <= 1);
            assert_true(crowd.jobs[i].code == 0 || crowd.jobs[i].code == QUIRE_ECANCELLED);
            cancelled += crowd.jobs[i].code == QUIRE_ECANCELLED;
        }
        assert_true(cancelled > 0);
        struct spann_lane lane = crowd.lane; /* which is as good as new */
        crowd_init(&crowd, 50, 7, polls + 1);
        crowd.lane = lane;
        start_window(&crowd, 50);
        run_crowd(&crowd);
        check_alone(&crowd);
        spann_lane_close(&crowd.lane);
    }
}

/* One read of a crowd fails: that search says so, all others answer. */
static void test_each_failing_read(void **state)
{
    (void)state;
    unsigned failed_searches = 0;
    for (unsigned n = 1; n < 1500; n += n < 40 ? SANITIZED ? 5 : 1 : n / (SANITIZED ? 3 : 7)) {
        unsigned failed = 0;
        crowd_init(&crowd, 80, 7, n);
        spann_lane_open(&crowd.lane, QUIRE_ENGINE_AUTO, n, 30);
        if (n % 3 == 0)
            fault_short_read_nth(shared.fs, n);
        else
            fault_fail_nth(shared.fs, FAULT_READ, n, QUIRE_EIO, false);
        start_window(&crowd, 60);
        run_crowd(&crowd);
        fault_fail_nth(shared.fs, FAULT_READ, 0, 0, false);
        fault_short_read_nth(shared.fs, 0);
        for (unsigned i = 0; i < crowd.n; i++) {
            failed += crowd.jobs[i].code < 0;
            assert_true(crowd.jobs[i].code == 0 || crowd.jobs[i].code == QUIRE_EIO ||
                        crowd.jobs[i].code == QUIRE_ESHORTREAD);
        }
        assert_true(failed <= 1);
        failed_searches += failed;
        check_alone(&crowd);
        spann_lane_close(&crowd.lane);
    }
    assert_true(failed_searches > (SANITIZED ? 10 : 40));
}

/* From some read on none comes back whole: every search ends, those that wait for a buffer as well. */
static void test_a_device_that_is_gone(void **state)
{
    (void)state;
    for (unsigned n = 1; n < 600; n += SANITIZED ? 97 : n < 40 ? 1 : 50) {
        unsigned failed = 0;
        crowd_init(&crowd, REQUESTS, 7, n);
        spann_lane_open(&crowd.lane, QUIRE_ENGINE_AUTO, n, 100);
        fault_fail_nth(shared.fs, FAULT_READ, n, QUIRE_EIO, true);
        start_window(&crowd, 150);
        run_crowd(&crowd);
        fault_fail_nth(shared.fs, FAULT_READ, 0, 0, false);
        for (unsigned i = 0; i < crowd.n; i++)
            failed += crowd.jobs[i].code == QUIRE_EIO;
        assert_true(failed > REQUESTS / 2);
        check_alone(&crowd);
        spann_lane_close(&crowd.lane);
    }
}

/* ---- engines of the device --------------------------------------------------------------------------------------- */

static void run_on(enum quire_engine_kind kind, const char *path)
{
    static struct spann_answer answer;
    struct segment *memory = shared.segments[0], *file = spann_open(NULL, path, SPANN_HEADS);
    struct quire_search_options options = support_search(K, 0, 60);
    shared.segments[0] = file;
    crowd_init(&crowd, REQUESTS, 1, 5);
    spann_lane_open(&crowd.lane, kind, 0, 80);
    start_window(&crowd, 100);
    run_crowd(&crowd);
    for (unsigned i = 0; i < crowd.n; i += 7) {
        const struct job *job = &crowd.jobs[i];
        assert_int_equal(job->code, 0);
        spann_ask(&crowd.lane, file, shared.data[0].floats + (size_t)job->row * 24, &options, NULL, &answer);
        assert_true(answer.n == job->n && memcmp(answer.ids, job->ids, sizeof *answer.ids * job->n) == 0);
    }
    spann_lane_close(&crowd.lane);
    shared.segments[0] = memory;
    segment_unref(file);
}

static void test_engines(void **state)
{
    struct quire_build_options options = spann_options(QUIRE_METRIC_L2, 12);
    char *folder = support_folder_make(), *path = support_path(folder, "index");
    (void)state;
    support_build(path, &shared.data[0], &options);
    run_on(QUIRE_ENGINE_URING, path);
    run_on(QUIRE_ENGINE_THREADS, path);
    free(path);
    support_folder_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_few_buffers),           cmocka_unit_test(test_segments_of_all_kinds),
        cmocka_unit_test(test_order_of_reads),        cmocka_unit_test(test_blocks_larger_than_frames),
        cmocka_unit_test(test_cancel_in_the_middle),  cmocka_unit_test(test_each_failing_read),
        cmocka_unit_test(test_a_device_that_is_gone), cmocka_unit_test(test_engines),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
