/*
 * test_allocations.c - the search path does not allocate once it is warm.
 *
 * The program's own malloc, calloc, realloc, aligned_alloc and posix_memalign count and pass on to glibc's; liburing
 * and the engine use the same ones. Sanitizers bring their own allocators, so there the counting is left out and the
 * test says so.
 */
#include "index/search/search.h"
#include "index/segment/selection.h"
#include "io/engine.h"
#include "tests/index/support_index.h"
#include "tests/sanitized.h"
#include <roaring/roaring.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static atomic_ulong allocations;

#if !SANITIZED
#define COUNTING 1
extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t n, size_t bytes);
extern void *__libc_realloc(void *old, size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);

void *malloc(size_t bytes)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_malloc(bytes);
}

void *calloc(size_t n, size_t bytes)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_calloc(n, bytes);
}

void *realloc(void *old, size_t bytes)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_realloc(old, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_memalign(alignment, bytes);
}
#else
#define COUNTING 0
#endif

enum { ROWS = 3000, ROWS_MANY = 5000, DIM = 48, QUERIES = 64 };

struct lap {
    struct selection **selections; /* QUERIES, or NULL */
    uint32_t k;
    struct search_request requests[QUERIES];
    unsigned done;
};

static void on_done(struct search_request *request)
{
    struct lap *lap = request->owner;
    assert_int_equal(request->code, 0);
    assert_true(request->n_hits > 0 && request->hits[0].key);
    lap->done++;
}

/* All queries at once, as many as the searcher has tasks. */
static void run_lap(struct lap *lap, struct segment *segment, struct searcher *searcher, struct engine *engine,
                    const float *queries)
{
    lap->done = 0;
    for (unsigned i = 0; i < QUERIES; i++) {
        struct search_request *r = &lap->requests[i];
        memset(r, 0, sizeof *r);
        r->segment = segment;
        r->query = queries + (size_t)i * DIM;
        quire_search_options_init(&r->options);
        r->options.recall = 0.95f;
        r->options.k = lap->k;
        r->want_keys = true;
        r->selection = lap->selections ? lap->selections[i] : NULL;
        r->done = on_done;
        r->owner = lap;
        assert_int_equal(search_start(searcher, r, NULL), 0);
    }
    while (lap->done < QUERIES)
        assert_true(engine_poll(engine, 1, UINT64_MAX) >= 0);
}

/* Of every size: for each plan there are some. Those of whole runs of blocks are read into memory of their own above
 * 64 KiB, so there are none of many rows that lie apart. */
static void make_selections(struct segment *segment, struct selection **out)
{
    for (uint32_t i = 0; i < QUERIES; i++) {
        roaring_bitmap_t *rows = roaring_bitmap_create();
        if (i % 4 == 0)
            roaring_bitmap_add_range(rows, i, i + 20);
        else
            roaring_bitmap_add_range(rows, 0, i % 4 == 1 ? ROWS / 2 : ROWS - i);
        assert_int_equal(selection_create(segment, rows, false, &out[i]), 0);
        roaring_bitmap_free(rows);
    }
}

/* The first `n_warm` numbers of neighbours warm the tasks; then searches for all of them must not allocate. */
static void check_no_allocation(enum quire_index_kind kind, bool selected, uint32_t rows, const uint32_t *ks,
                                unsigned n_warm, unsigned n)
{
    struct support_data data;
    static struct lap lap;
    static struct selection *selections[QUERIES];
    struct segment *segment = NULL;
    struct engine *engine = NULL;
    struct searcher *searcher = NULL;
    struct engine_config engine_config = {.one_thread = true};
    struct searcher_config searcher_config = {.tasks_max = QUERIES};
    support_clusters(rows, DIM, QUIRE_TYPE_F32, 8, &data);
    char *folder = support_folder_make(), *path = support_path(folder, "index");
    struct quire_build_options options = support_options(QUIRE_METRIC_COSINE, QUIRE_SLOT_AUTO);
    options.index = kind;
    options.block_bytes = 4096;
    support_build(path, &data, &options);
    float *queries = support_queries(&data, QUERIES, 3);
    assert_int_equal(segment_open(path, NULL, &segment, NULL), 0);
    assert_int_equal(engine_create(&engine_config, &engine, NULL), 0);
    assert_int_equal(searcher_create(engine, &searcher_config, &searcher, NULL), 0);
    if (selected)
        make_selections(segment, selections);
    lap.selections = selected ? selections : NULL;
    for (unsigned i = 0; i < n_warm; i++) {
        lap.k = ks[i];
        run_lap(&lap, segment, searcher, engine, queries);
    }
    unsigned long before = atomic_load(&allocations);
    for (unsigned i = 0; i < n; i++) {
        lap.k = ks[i];
        run_lap(&lap, segment, searcher, engine, queries);
    }
    unsigned long made = atomic_load(&allocations) - before;
    if (COUNTING)
        assert_true(before > 0);
    else
        print_message("a sanitizer's allocator: not counted\n");
    assert_int_equal(made, 0);
    for (unsigned i = 0; selected && i < QUERIES; i++)
        selection_unref(selections[i]);
    searcher_destroy(searcher);
    engine_destroy(engine);
    segment_unref(segment);
    free(queries);
    free(path);
    support_folder_remove(folder);
    support_data_free(&data);
}

/* Which task gets which query varies with the disk's order: three laps warm all of them. */
static const uint32_t few[] = {10, 10, 10, 10, 10};

static void test_warm_searches_do_not_allocate(void **state)
{
    (void)state;
    check_no_allocation(QUIRE_INDEX_PAGEGRAPH, false, ROWS, few, 3, 5);
}

static void test_warm_searches_of_selections_do_not_allocate(void **state)
{
    (void)state;
    check_no_allocation(QUIRE_INDEX_PAGEGRAPH, true, ROWS, few, 3, 5);
    check_no_allocation(QUIRE_INDEX_SPANN, true, ROWS, few, 3, 5);
}

/* What is kept for 3,000 neighbours grows to that for 4,000 and 4,096, and nothing of it is given back in between. */
static void test_warm_searches_for_many_do_not_allocate(void **state)
{
    static const uint32_t many[] = {3000, 4000, 4096, 3000};
    (void)state;
    check_no_allocation(QUIRE_INDEX_PAGEGRAPH, false, ROWS_MANY, many, 2, 4);
    check_no_allocation(QUIRE_INDEX_SPANN, false, ROWS_MANY, many, 3, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_warm_searches_do_not_allocate),
                                       cmocka_unit_test(test_warm_searches_of_selections_do_not_allocate),
                                       cmocka_unit_test(test_warm_searches_for_many_do_not_allocate)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
