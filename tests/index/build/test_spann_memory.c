/*
 * test_spann_memory.c - what searches in inverted lists allocate, and what becomes of them when it is refused.
 *
 * The program's own malloc, calloc, realloc and posix_memalign pass on to glibc's but for those that are to fail, and
 * count. Sanitizers bring their own allocators, so there the test is left out and says so.
 */
#include "index/build/build.h"
#include "index/search/task.h"
#include "tests/index/support_spann.h"
#include "tests/sanitized.h"
#include "tests/support/fault.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SEARCHES 24u
#define K        10u
#define DIM      24u

static _Thread_local unsigned fail_in;   /* calls; 0: none fails */
static _Thread_local bool fail_for_good; /* all after it fail, too */
static _Thread_local unsigned long allocations;

#if !SANITIZED
static bool may_allocate(void)
{
    allocations++;
    if (fail_in == 1 && fail_for_good)
        return false;
    return fail_in == 0 || --fail_in > 0;
}

#include "tests/allocator.h"

extern void *__libc_memalign(size_t alignment, size_t bytes);

int posix_memalign(void **out, size_t alignment, size_t bytes)
{
    void *memory = may_allocate() ? __libc_memalign(alignment, bytes) : NULL;
    if (memory)
        *out = memory;
    return memory ? 0 : ENOMEM;
}
#endif

static struct {
    struct io_fs *fs;
    struct support_data data;
    struct segment *segments[2]; /* small postings, and larger ones */
} shared;

static int set_up(void **state)
{
    static const uint32_t list_rows[2] = {12, 300};
    static const char *const paths[2] = {"/small", "/large"};
    (void)state;
    shared.fs = fault_fs_create();
    assert_non_null(shared.fs);
    support_clusters(2000, DIM, QUIRE_TYPE_F32, 3, &shared.data);
    for (unsigned i = 0; i < 2; i++) {
        struct quire_build_options options = spann_options(QUIRE_METRIC_L2, list_rows[i]);
        struct quire_input input = {
            .vectors = shared.data.vectors, .rows = shared.data.rows, .dim = DIM, .type = QUIRE_TYPE_F32};
        struct quire_error err;
        if (build_segment(shared.fs, paths[i], &input, &options, &err) < 0)
            fail_msg("%s", err.message);
        shared.segments[i] = spann_open(shared.fs, paths[i], SPANN_HEADS);
    }
    assert_true(shared.segments[0]->params.posting_bytes_max < shared.segments[1]->params.posting_bytes_max);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2; i++)
        segment_unref(shared.segments[i]);
    support_data_free(&shared.data);
    fault_fs_destroy(shared.fs);
    return 0;
}

struct lap {
    struct spann_lane lane;
    struct search_request requests[SEARCHES];
    unsigned done, refused;
    int codes[SEARCHES];
};

static void on_done(struct search_request *request)
{
    struct lap *lap = request->owner;
    lap->codes[request - lap->requests] = request->code;
    if (request->code < 0)
        assert_true(request->error.code == request->code && request->error.message[0]);
    else
        assert_int_equal(request->n_hits, K);
    lap->done++;
}

/* Searches in both segments at once, the larger postings when the smaller are under way. */
static void run_lap(struct lap *lap)
{
    lap->done = lap->refused = 0;
    for (unsigned i = 0; i < SEARCHES; i++) {
        lap->requests[i] = (struct search_request){.segment = shared.segments[i >= SEARCHES / 2],
                                                   .query = shared.data.floats + (size_t)i * 31 * DIM,
                                                   .options = support_search(K, 0, 40),
                                                   .done = on_done,
                                                   .owner = lap};
        int rc = search_start(lap->lane.searcher, &lap->requests[i], NULL);
        assert_true(rc == 0 || rc == QUIRE_ENOMEM);
        lap->codes[i] = rc;
        lap->refused += rc < 0;
    }
    for (unsigned idle = 0; lap->done + lap->refused < SEARCHES && idle < 3; idle++)
        if (engine_poll(lap->lane.engine, 1, 2000000) > 0)
            idle = 0;
    if (lap->done + lap->refused < SEARCHES) {
        fail_in = 0;
        fail_msg("%u of %u searches never end", SEARCHES - lap->done - lap->refused, SEARCHES);
    }
}

static struct lap lap;

static void check_each_refusal(bool for_good)
{
    unsigned refusals = 0;
    unsigned n = 1;
    for (;; n++) {
        spann_lane_open(&lap.lane, QUIRE_ENGINE_AUTO, n, 10);
        fail_in = n;
        fail_for_good = for_good;
        run_lap(&lap);
        bool all = for_good ? fail_in > 1 : fail_in > 0;
        fail_in = 0;
        unsigned failed = 0;
        for (unsigned i = 0; i < SEARCHES; i++) {
            assert_true(lap.codes[i] == 0 || lap.codes[i] == QUIRE_ENOMEM);
            failed += lap.codes[i] < 0;
        }
        assert_true(failed == 0 || !all);
        refusals += failed > 0;
        run_lap(&lap); /* the lane has lost nothing */
        for (unsigned i = 0; i < SEARCHES; i++)
            assert_int_equal(lap.codes[i], 0);
        assert_int_equal(searcher_running(lap.lane.searcher), 0);
        spann_lane_close(&lap.lane);
        if (all)
            break;
    }
    if (refusals < 10 || n < 100)
        fail_msg("%u of %u refused allocations were noticed", refusals, n);
}

static void test_each_refused_allocation(void **state)
{
    (void)state;
    if (SANITIZED) {
        print_message("a sanitizer's allocator does not fail: nothing is tested here\n");
        skip();
    }
    check_each_refusal(false);
    check_each_refusal(true);
}

static void test_warm_searches_do_not_allocate(void **state)
{
    (void)state;
    if (SANITIZED)
        skip();
    struct engine_config config = {.one_thread = true};
    struct searcher_config searcher = {.tasks_max = SEARCHES};
    assert_int_equal(engine_fault_create(&config, 1, &lap.lane.engine, NULL), 0);
    assert_int_equal(searcher_create(lap.lane.engine, &searcher, &lap.lane.searcher, NULL), 0);
    for (unsigned i = 0; i < 4; i++)
        run_lap(&lap);
    uint64_t postings = lap.lane.searcher->postings.n;
    assert_true(postings * lap.lane.searcher->postings.bytes <= 2u << 20);
    unsigned long before = allocations;
    for (unsigned i = 0; i < 4; i++)
        run_lap(&lap);
    assert_int_equal(allocations - before, 0);
    spann_lane_close(&lap.lane);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_refused_allocation),
        cmocka_unit_test(test_warm_searches_do_not_allocate),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
