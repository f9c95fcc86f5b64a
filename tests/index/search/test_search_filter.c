/*
 * test_search_filter.c - searches with a selection, in every form a segment has, against brute force.
 *
 * Vectors are bytes, which slots keep as they are, so that brute force and the index know the same distances. Each
 * subject is asked with selections from none to all rows, scattered and side by side, with and without dead rows, for
 * few and for all neighbours: whatever the plan, an answer holds living rows of the selection only, as many as there
 * are or were asked for, with their keys and vectors; one that calls itself exact is.
 */
#include "index/segment/segment_priv.h"
#include "index/segment/selection.h"
#include "io/bitmap.h"
#include "io/random.h"
#include "tests/index/support_parts.h"
#include "tests/index/support_spann.h"
#include "tests/sanitized.h"
#include <math.h>
#include <pthread.h>
#include <roaring/roaring.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define ROWS     2503u /* the last block is short */
#define DIM      96u
#define QUERIES  2u
#define TENANTS  150u
#define RECALL   0.9
#define TASKS    32u
#define LAPS     2u
#define SELECTS  1500u
#define KEPT_MAX 256u /* as selection.c */
#define PLANS    (QUIRE_PLAN_MEMORY + 1)

static char *folder;
static struct support_part part;
static float *queries;
static float *distances;      /* of each vector to each query */
static char **tenants;        /* per row */
static unsigned plans[PLANS]; /* how often each was taken */
static unsigned switches;

/* ---- subjects ---------------------------------------------------------------------------------------------------- */

static const struct subject {
    const char *name;
    enum quire_index_kind kind;
    uint32_t block_bytes;
    bool tenants, edge_codes, read_lists, cache;
} subjects[] = {
    {.name = "graph", .kind = QUIRE_INDEX_PAGEGRAPH, .block_bytes = 4096},
    {.name = "graph of runs", .kind = QUIRE_INDEX_PAGEGRAPH, .block_bytes = 4096, .tenants = true},
    {.name = "graph on disk", .kind = QUIRE_INDEX_PAGEGRAPH, .block_bytes = 8192, .edge_codes = true},
    {.name = "runs on disk", .kind = QUIRE_INDEX_PAGEGRAPH, .block_bytes = 8192, .edge_codes = true, .tenants = true},
    {.name = "graph of large blocks", .kind = QUIRE_INDEX_PAGEGRAPH, .block_bytes = 128u << 10},
    {.name = "graph of one block", .kind = QUIRE_INDEX_PAGEGRAPH, .block_bytes = 1u << 20, .tenants = true},
    {.name = "graph with cache", .kind = QUIRE_INDEX_PAGEGRAPH, .block_bytes = 4096, .cache = true},
    {.name = "lists", .kind = QUIRE_INDEX_SPANN, .block_bytes = 4096},
    {.name = "lists on disk", .kind = QUIRE_INDEX_SPANN, .block_bytes = 4096, .read_lists = true},
    {.name = "lists with guests", .kind = QUIRE_INDEX_SPANN, .block_bytes = 4096, .tenants = true},
    {.name = "guests on disk", .kind = QUIRE_INDEX_SPANN, .block_bytes = 4096, .tenants = true, .read_lists = true},
    {.name = "lists of large blocks", .kind = QUIRE_INDEX_SPANN, .block_bytes = 1u << 20},
};

/* A subject, opened. */
struct opened {
    const struct subject *subject;
    struct segment *segment;
    struct spann_lane lane;
    uint32_t *ids; /* per row of the segment: number of the vector; owned */
};

static void take_ids(struct search_request *request)
{
    struct opened *o = request->owner;
    assert_int_equal(request->code, 0);
    assert_int_equal(request->n_hits, ROWS);
    o->ids = malloc(sizeof *o->ids * ROWS);
    assert_non_null(o->ids);
    for (uint32_t i = 0; i < ROWS; i++)
        o->ids[request->hits[i].row] = (uint32_t)request->hits[i].id;
}

static char *path_of(const struct subject *s)
{
    char name[64];
    snprintf(name, sizeof name, "%d-%u-%d-%d", (int)s->kind, s->block_bytes, s->tenants, s->edge_codes);
    return support_path(folder, name);
}

static void build(const struct subject *s, const char *path)
{
    struct quire_build_options options = s->kind == QUIRE_INDEX_SPANN
                                             ? spann_options(QUIRE_METRIC_L2, 60)
                                             : support_options(QUIRE_METRIC_L2, QUIRE_SLOT_AUTO);
    options.index = s->kind;
    options.block_bytes = s->block_bytes;
    options.edge_codes = s->edge_codes ? QUIRE_EDGE_CODES_YES : QUIRE_EDGE_CODES_AUTO;
    options.keys = (const void *const *)part.keys;
    options.key_bytes = part.key_bytes;
    if (s->tenants)
        options.tenants = (const char *const *)tenants;
    support_build(path, &part.data, &options);
}

static void open_subject(struct opened *o, const struct subject *s, uint64_t seed)
{
    char *path = path_of(s);
    struct quire_error err;
    struct segment_options options = {
        .memory_bytes = s->cache ? 12u << 20 : UINT64_MAX, .edge_codes = s->edge_codes, .read_lists = s->read_lists};
    *o = (struct opened){.subject = s};
    if (access(path, F_OK) != 0)
        build(s, path);
    if (segment_open(path, &options, &o->segment, &err) < 0)
        fail_msg("%s: %s", s->name, err.message);
    assert_true(!s->tenants || o->segment->params.run_rows > 0);
    assert_true(!s->cache || o->segment->cache);
    assert_true(s->read_lists || s->edge_codes || segment_info(o->segment)->code_bits > 0);
    free(path);
    spann_lane_open(&o->lane, QUIRE_ENGINE_AUTO, seed, TASKS);
    struct search_request request = {.segment = o->segment, .query = queries, .done = take_ids, .owner = o};
    quire_search_options_init(&request.options);
    request.options.k = ROWS;
    request.options.exact = true;
    assert_int_equal(search_start(o->lane.searcher, &request, &err), 0);
    while (!o->ids)
        assert_true(engine_poll(o->lane.engine, 1, UINT64_MAX) >= 0);
}

static void close_subject(struct opened *o)
{
    spann_lane_close(&o->lane);
    segment_unref(o->segment);
    free(o->ids);
}

/* ---- selections -------------------------------------------------------------------------------------------------- */

enum shape { SCATTERED, SIDE_BY_SIDE, AT_THE_END, SHAPES };

static struct selection *select_rows(const struct opened *o, uint32_t n, enum shape shape, uint64_t seed)
{
    struct random random;
    struct selection *selection = NULL;
    roaring_bitmap_t *rows = roaring_bitmap_create();
    random_init(&random, seed);
    uint32_t first = shape == AT_THE_END ? ROWS - n : (uint32_t)random_below(&random, ROWS - n + 1);
    if (shape == SCATTERED) {
        bool most = n > ROWS / 2;
        for (uint32_t left = most ? ROWS - n : n; left > 0;)
            left -= roaring_bitmap_add_checked(rows, (uint32_t)random_below(&random, ROWS));
        if (most)
            roaring_bitmap_flip_inplace(rows, 0, ROWS);
    } else if (n > 0)
        roaring_bitmap_add_range(rows, first, first + n);
    assert_int_equal(roaring_bitmap_get_cardinality(rows), n);
    assert_int_equal(selection_create(o->segment, rows, false, &selection), 0);
    roaring_bitmap_free(rows);
    assert_int_equal(selection->n, n);
    return selection;
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

struct answer {
    const struct opened *opened;
    const float *query;
    struct search_request request;
    bool done;
    struct quire_search_stats stats;
    int code;
    uint32_t n;
    float distances[ROWS];
    uint32_t rows[ROWS];
};

static void check_hit(const struct answer *a, const struct search_request *r, uint32_t i)
{
    const struct search_hit *hit = &r->hits[i];
    uint32_t id = (uint32_t)hit->id;
    const float *vector = part.data.floats + (size_t)id * DIM;
    float expected = distances[(size_t)(a->query - queries) / DIM * ROWS + id];
    assert_true(hit->row < ROWS && a->opened->ids[hit->row] == id);
    assert_true(!r->selection || selection_has(r->selection, hit->row));
    assert_false(r->dead && bitmap_has(r->dead, hit->row));
    assert_true(fabsf(hit->distance - expected) <= 1e-4f * (1 + expected));
    assert_true(i == 0 || r->hits[i - 1].distance <= hit->distance);
    if (r->want_keys) {
        assert_int_equal(hit->key_bytes, part.key_bytes[id]);
        assert_memory_equal(hit->key, part.keys[id], hit->key_bytes);
    }
    if (r->want_vectors)
        assert_memory_equal(hit->vector, vector, DIM * sizeof *vector);
}

static void take_answer(struct search_request *request)
{
    struct answer *a = request->owner;
    uint8_t seen[(ROWS + 7) / 8] = {0};
    a->code = request->code;
    a->stats = request->stats;
    a->n = request->n_hits;
    for (uint32_t i = 0; i < a->n; i++) {
        check_hit(a, request, i);
        assert_false(bitmap_has(seen, request->hits[i].row));
        bitmap_add(seen, request->hits[i].row);
        a->rows[i] = request->hits[i].row;
        a->distances[i] = request->hits[i].distance;
    }
    a->done = true;
}

static void start(const struct opened *o, struct spann_lane *lane, const struct selection *selection,
                  const uint8_t *dead, const float *query, const struct quire_search_options *options, bool whole,
                  struct answer *a)
{
    struct quire_error err;
    a->opened = o;
    a->query = query;
    a->done = false;
    a->request = (struct search_request){.segment = o->segment,
                                         .query = query,
                                         .options = *options,
                                         .want_keys = whole,
                                         .want_vectors = whole,
                                         .dead = dead,
                                         .selection = selection,
                                         .done = take_answer,
                                         .owner = a};
    if (search_start(lane->searcher, &a->request, &err) < 0)
        fail_msg("%s: %s", o->subject->name, err.message);
}

static void ask(struct opened *o, const struct selection *selection, const uint8_t *dead, const float *query,
                const struct quire_search_options *options, bool whole, struct answer *a)
{
    start(o, &o->lane, selection, dead, query, options, whole, a);
    while (!a->done)
        assert_true(engine_poll(o->lane.engine, 1, UINT64_MAX) >= 0);
    assert_int_equal(a->code, 0);
    plans[a->stats.plan]++;
    switches += a->stats.switched;
}

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Distances of the living rows of the selection, nearest first; returns how many. */
static uint32_t brute_force(const struct opened *o, const struct selection *selection, const uint8_t *dead,
                            const float *query, float *out)
{
    const float *known = distances + (size_t)(query - queries) / DIM * ROWS;
    uint32_t n = 0;
    for (uint32_t row = 0; row < ROWS; row++)
        if (selection_has(selection, row) && !(dead && bitmap_has(dead, row)))
            out[n++] = known[o->ids[row]];
    qsort(out, n, sizeof *out, by_value);
    return n;
}

/* Share of the k nearest that the answer has. */
static double recall_of(const struct answer *a, const float *truth, uint32_t k)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < a->n && i < k; i++)
        found += a->distances[i] <= truth[k - 1] * 1.0001f;
    return k ? (double)found / k : 1;
}

/* ---- every size, shape and k ------------------------------------------------------------------------------------- */

static struct answer answer;
static float truth[ROWS];

/* What holds of each answer. Returns its recall. */
static double check_answer(const struct opened *o, const struct selection *s, const uint8_t *dead,
                           const struct quire_search_options *options)
{
    uint32_t living = brute_force(o, s, dead, answer.query, truth), k = options->k < living ? options->k : living;
    const struct quire_search_stats *stats = &answer.stats;
    double recall = recall_of(&answer, truth, k);
    bool bounded = options->reads_max || options->filter_effort;
    assert_int_equal(living, selection_living(s, dead));
    assert_int_equal(stats->matches, s->n);
    assert_true(answer.n <= k);
    if (!stats->complete || bounded ? answer.n < k && stats->complete : answer.n < k)
        fail_msg("%s: %u rows selected, %u live, k %u: %u hits, complete %d, plan %s, reads %u of %u", o->subject->name,
                 (unsigned)s->n, living, options->k, answer.n, stats->complete, quire_plan_name(stats->plan),
                 stats->reads, options->reads_max);
    if (!bounded)
        assert_true(stats->complete);
    if (options->reads_max)
        assert_true(stats->reads + stats->cached <= options->reads_max);
    if (options->exact && !options->reads_max)
        assert_true(stats->exact);
    if (stats->exact && recall < 1)
        fail_msg("%s: exact, but recall %g: %u rows selected, k %u, plan %s", o->subject->name, recall, (unsigned)s->n,
                 options->k, quire_plan_name(stats->plan));
    return recall;
}

static void ask_selection(struct opened *o, const struct selection *s, const uint8_t *dead, double *sum, unsigned *n)
{
    static const uint32_t ks[] = {1, 20, 100000};
    double here = 0;
    unsigned asked = 0;
    for (size_t i = 0; i < SUPPORT_COUNT(ks); i++)
        for (uint32_t q = 0; q < (ks[i] > 100 ? 1u : QUERIES); q++) {
            struct quire_search_options options = support_search(ks[i], 0.95f, 0);
            ask(o, s, dead, queries + (size_t)q * DIM, &options, q == 0, &answer);
            double recall = check_answer(o, s, dead, &options);
            here += recall;
            asked++;
        }
    *sum += here;
    *n += asked;
    if (here / asked < 0.8)
        fail_msg("%s: recall %g of %u rows, plan %s", o->subject->name, here / asked, (unsigned)s->n,
                 quire_plan_name(answer.stats.plan));
}

static const uint32_t sizes[] = {0, 1, 5, 100, ROWS / 100, ROWS / 10, ROWS / 2, ROWS - 1, ROWS};

static void test_every_selection(void **state)
{
    (void)state;
    uint8_t *dead = support_dead(ROWS, 5, 3);
    uint8_t *all = malloc((ROWS + 7) / 8);
    assert_non_null(all);
    memset(all, 0xff, (ROWS + 7) / 8);
    for (size_t i = 0; i < SUPPORT_COUNT(subjects); i++) {
        struct opened o;
        double sum = 0;
        unsigned n = 0;
        open_subject(&o, &subjects[i], 0);
        for (size_t size = 0; size < SUPPORT_COUNT(sizes); size++)
            for (enum shape shape = SCATTERED; shape < SHAPES; shape++) {
                if (SANITIZED && (i + size + shape) % SHAPES != 0) /* each size in each shape, not of each subject */
                    continue;
                struct selection *s = select_rows(&o, sizes[size], shape, 100 * size + shape);
                ask_selection(&o, s, NULL, &sum, &n);
                if (size % SHAPES == shape)
                    ask_selection(&o, s, dead, &sum, &n);
                if (size % SHAPES == SIDE_BY_SIDE && shape == SCATTERED)
                    ask_selection(&o, s, all, &sum, &n);
                selection_unref(s);
            }
        print_message("%-22s recall %.4f\n", o.subject->name, sum / n);
        assert_true(sum / n >= RECALL);
        close_subject(&o);
    }
    free(dead);
    free(all);
}

/* ---- options ----------------------------------------------------------------------------------------------------- */

static void ask_bounded(struct opened *o, const struct selection *s, const uint8_t *dead)
{
    static const uint32_t ks[] = {10, 300};
    for (size_t i = 0; i < SUPPORT_COUNT(ks); i++) {
        struct quire_search_options options = support_search(ks[i], 0, i % 2 ? 40 : 0);
        for (options.reads_max = 1; options.reads_max <= 5; options.reads_max += 2) {
            for (unsigned exact = 0; exact < 2; exact++) {
                options.exact = exact;
                ask(o, s, dead, queries, &options, false, &answer);
                check_answer(o, s, dead, &options);
            }
        }
        options.reads_max = 0;
        options.exact = true;
        ask(o, s, dead, queries, &options, i == 1, &answer);
        check_answer(o, s, dead, &options);
        options.exact = false;
        for (options.filter_effort = 1; options.filter_effort < 100000; options.filter_effort *= 30) {
            ask(o, s, dead, queries, &options, false, &answer);
            check_answer(o, s, dead, &options);
        }
        options.filter_effort = 0;
        for (unsigned recall = 0; recall < 3; recall++) {
            options.recall = (float[]){0.01f, 0.99f, 1}[recall];
            ask(o, s, dead, queries, &options, false, &answer);
            check_answer(o, s, dead, &options);
        }
    }
}

static void test_bounds_and_exact(void **state)
{
    (void)state;
    uint8_t *dead = support_dead(ROWS, 3, 4);
    for (size_t i = 0; i < SUPPORT_COUNT(subjects); i++) {
        struct opened o;
        open_subject(&o, &subjects[i], 0);
        for (size_t size = i % SANITIZED_SIZE(1, 2); size < SUPPORT_COUNT(sizes); size += SANITIZED_SIZE(1, 2)) {
            struct selection *s = select_rows(&o, sizes[size], size % SHAPES, 7 * size + 1);
            ask_bounded(&o, s, size % 2 ? dead : NULL);
            selection_unref(s);
        }
        close_subject(&o);
    }
    free(dead);
}

static void test_every_plan(void **state)
{
    (void)state;
    for (enum quire_plan plan = QUIRE_PLAN_WALK; plan < QUIRE_PLAN_MEMORY; plan++) {
        print_message("%s: %u times\n", quire_plan_name(plan), plans[plan]);
        assert_true(plans[plan] > 0);
    }
    assert_true(switches > 0);
    assert_int_equal(plans[QUIRE_PLAN_MEMORY], 0);
}

/* Only what selections ask of a segment: the largest one that can be, whose last block would end behind 2^32. */
static void test_last_rows_of_the_largest_segment(void **state)
{
    (void)state;
    struct segment *largest = calloc(1, sizeof *largest);
    struct selection *s = NULL;
    assert_non_null(largest);
    largest->params.rows = QUIRE_ROWS_MAX;
    largest->params.slots_per_block = SLOTS_MAX;
    largest->params.block_bytes = 1u << 20;
    largest->params.n_blocks = (uint32_t)((QUIRE_ROWS_MAX + (uint64_t)SLOTS_MAX - 1) / SLOTS_MAX);
    roaring_bitmap_t *rows = roaring_bitmap_of(3, 0u, QUIRE_ROWS_MAX - 2, QUIRE_ROWS_MAX - 1);
    assert_int_equal(selection_create(largest, rows, false, &s), 0);
    assert_true(s->n == 3 && s->n_blocks == 2 && s->n_runs == 2 && s->run_blocks == 2);
    assert_true(bitmap_has(s->blocks, largest->params.n_blocks - 1));
    selection_unref(s);
    roaring_bitmap_free(rows);
    free(largest);
}

/* ---- many at once ------------------------------------------------------------------------------------------------ */

struct crowd {
    struct opened *opened;
    struct selection **selections; /* TASKS */
    uint64_t seed;
    struct answer *answers; /* TASKS, of this thread */
    const struct answer *alone;
};

static struct quire_search_options options_of(unsigned i)
{
    static const uint32_t ks[] = {1, 10, 50, 500};
    return support_search(ks[i / 9 % SUPPORT_COUNT(ks)], 0.95f, 0);
}

static void run_lap(struct crowd *crowd, struct spann_lane *lane, bool cancel)
{
    unsigned done = 0;
    for (unsigned i = 0; i < TASKS; i++) {
        struct quire_search_options options = options_of(i);
        start(crowd->opened, lane, crowd->selections[i], NULL, queries + (size_t)(i % QUERIES) * DIM, &options, i % 2,
              &crowd->answers[i]);
    }
    if (cancel) {
        assert_true(engine_poll(lane->engine, 1, UINT64_MAX) >= 0);
        searcher_cancel(lane->searcher);
    }
    while (done < TASKS) {
        done = 0;
        for (unsigned i = 0; i < TASKS; i++)
            done += crowd->answers[i].done;
        if (done < TASKS)
            assert_true(!cancel && engine_poll(lane->engine, 1, UINT64_MAX) >= 0);
    }
    assert_int_equal(searcher_running(lane->searcher), 0);
}

static void *run_crowd(void *context)
{
    struct crowd *crowd = context;
    struct spann_lane lane;
    spann_lane_open(&lane, QUIRE_ENGINE_AUTO, crowd->seed, TASKS);
    for (unsigned lap = 0; lap < LAPS; lap++) {
        bool cancel = lap % 2;
        run_lap(crowd, &lane, cancel);
        for (unsigned i = 0; i < TASKS; i++) {
            const struct answer *a = &crowd->answers[i], *alone = &crowd->alone[i];
            if (cancel && a->code == QUIRE_ECANCELLED)
                continue;
            assert_int_equal(a->code, 0);
            assert_int_equal(a->stats.plan, alone->stats.plan);
            assert_int_equal(a->n, alone->n);
            /* which lists' rows come first decides among those equally far */
            bool same = crowd->opened->subject->kind == QUIRE_INDEX_PAGEGRAPH;
            for (uint32_t hit = 0; same && hit < a->n; hit++)
                assert_true(a->distances[hit] == alone->distances[hit]);
        }
    }
    spann_lane_close(&lane);
    return NULL;
}

static void run_together(struct opened *o, struct selection **selections, const struct answer *alone)
{
    struct crowd crowds[2];
    pthread_t thread;
    for (unsigned i = 0; i < 2; i++) {
        crowds[i] = (struct crowd){o, selections, 5 + i, calloc(TASKS, sizeof(struct answer)), alone};
        assert_non_null(crowds[i].answers);
    }
    assert_int_equal(pthread_create(&thread, NULL, run_crowd, &crowds[1]), 0);
    run_crowd(&crowds[0]);
    pthread_join(thread, NULL);
    for (unsigned i = 0; i < 2; i++)
        free(crowds[i].answers);
}

static void test_many_at_once(void **state)
{
    struct answer *alone = calloc(TASKS, sizeof *alone);
    struct selection *selections[TASKS];
    (void)state;
    assert_non_null(alone);
    for (size_t i = 0; i < SUPPORT_COUNT(subjects); i++) {
        struct opened o;
        open_subject(&o, &subjects[i], 0);
        for (unsigned task = 0; task < TASKS; task++) {
            struct quire_search_options options = options_of(task);
            selections[task] = select_rows(&o, sizes[task % SUPPORT_COUNT(sizes)], task % SHAPES, task);
            ask(&o, selections[task], NULL, queries + (size_t)(task % QUERIES) * DIM, &options, false, &alone[task]);
        }
        run_together(&o, selections, alone);
        for (unsigned task = 0; task < TASKS; task++)
            selection_unref(selections[task]);
        close_subject(&o);
    }
    free(alone);
}

/* ---- kept selections --------------------------------------------------------------------------------------------- */

struct selecting {
    struct segment *segment;
    const uint32_t *counts; /* rows per tenant */
    uint64_t seed;
};

/* More names than the cache keeps, so that selections are made, found and put out at once. */
static void *select_tenants(void *context)
{
    const struct selecting *what = context;
    struct filter *filter = NULL;
    struct random random;
    random_init(&random, what->seed);
    assert_int_equal(filter_compile("not exists .a", 13, NULL, &filter, NULL), 0);
    for (unsigned i = 0; i < SELECTS; i++) {
        char name[16];
        uint32_t tenant = (uint32_t)random_below(&random, TENANTS), found = 0, row;
        struct grant grant = {name, (uint32_t)snprintf(name, sizeof name, "t%u", tenant), 0};
        struct tenant_scope scope = {&grant, 1};
        struct selection *s = NULL;
        assert_int_equal(selection_of(what->segment, i % 3 ? filter : NULL, &scope, NULL, &s, NULL), 0);
        assert_int_equal(s->n, what->counts[tenant]);
        struct selection_walk walk = selection_walk(s, 0);
        while (selection_next(&walk, &row))
            found += selection_has(s, row);
        assert_int_equal(found, s->n);
        selection_unref(s);
    }
    filter_unref(filter);
    return NULL;
}

static void test_kept_selections(void **state)
{
    struct selecting what[3];
    pthread_t threads[3];
    uint32_t counts[TENANTS] = {0};
    struct opened o;
    (void)state;
    for (uint32_t row = 0; row < ROWS; row++)
        if (tenants[row])
            counts[atoi(tenants[row] + 1)]++;
    open_subject(&o, &subjects[1], 0);
    for (unsigned i = 0; i < 3; i++) {
        what[i] = (struct selecting){o.segment, counts, i + 1};
        assert_int_equal(pthread_create(&threads[i], NULL, select_tenants, &what[i]), 0);
    }
    for (unsigned i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(segment_whole(o.segment)->selections.n, KEPT_MAX);
    close_subject(&o);
}

/* ---- set-up ------------------------------------------------------------------------------------------------------ */

static int set_up(void **state)
{
    struct random random;
    (void)state;
    random_init(&random, 5);
    folder = support_folder_make();
    support_part_make(&part, "row", ROWS, DIM, QUIRE_TYPE_U8, 11, true, false);
    queries = support_queries(&part.data, QUERIES, 9);
    distances = malloc(sizeof *distances * QUERIES * ROWS);
    assert_non_null(distances);
    for (uint32_t q = 0; q < QUERIES; q++)
        for (uint32_t row = 0; row < ROWS; row++)
            distances[q * ROWS + row] = (float)support_distance(QUIRE_METRIC_L2, queries + (size_t)q * DIM,
                                                                part.data.floats + (size_t)row * DIM, DIM);
    tenants = calloc(ROWS, sizeof *tenants);
    for (uint32_t row = 0; row < ROWS; row++)
        if (random_below(&random, 3) > 0)
            assert_true(asprintf(&tenants[row], "t%u", (unsigned)random_below(&random, TENANTS)) > 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (uint32_t row = 0; row < ROWS; row++)
        free(tenants[row]);
    free(tenants);
    free(queries);
    free(distances);
    support_part_free(&part);
    support_folder_remove(folder);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_selection),
        cmocka_unit_test(test_bounds_and_exact),
        cmocka_unit_test(test_last_rows_of_the_largest_segment),
        cmocka_unit_test(test_many_at_once),
        cmocka_unit_test(test_kept_selections),
        cmocka_unit_test(test_every_plan),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
