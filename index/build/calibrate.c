/*
 * calibrate.c - effort -> recall, measured on the index itself with rows it pretends not to have.
 *
 * A sample of rows is held out: the blocks are first written without any edge from or to them, and a search neither
 * follows nor answers them (segment->dead). Each is then asked as a query, exactly as a user would ask with an unseen
 * vector, at a ladder of efforts and for several k, by the same search on the same files through the same engine. Exact
 * answers come from brute force over the input. Afterwards the blocks are written again whole.
 *
 * A device (index/offload) may say which rows of a batch are nearest to each query; only where these or others could
 * belong into its list are rows compared here, by the same kernel in the same chunks as without a device. The lists are
 * the same.
 *
 * What remains of bias: a held-out row still sits in its block, which was cut around it and whose centre it moved by
 * one part in some fifty. The curve therefore keeps a margin (recall_of); against real query sets it is right within a
 * point (docs/performance.md).
 *
 * A merge (merge.h) adds some rows to an index that has a curve. It measures the part between RENEWED_FIRST and
 * RENEWED_LAST anew, which is what is asked for, in steps twice as large, and takes the ends from that curve: the
 * lower, moved by what the first measurement differs; the upper, which takes most of the time, if a sample of the
 * queries finds there what the curve says; where not, it climbs on. What narrower codes need stays as it was measured.
 *
 * A seal in the background is calibrated in brief, with BRIEF_QUERIES queries, in steps twice as large, and what lies
 * beyond RENEWED_LAST with a quarter of them; the margin, which is of standard errors, grows by itself. Where the
 * collection has a segment of about that size it goes by the curve of that: whole, if all queries find at BRIEF_TESTED
 * no less than it says, and a sample of them beyond; as a merge does otherwise. Measured like a build, the curve took
 * two thirds of a seal's time (docs/performance.md), and seals hold writers up.
 *
 * Small inputs (fewer than ROWS_MIN rows) are not calibrated; the search then uses a fixed rule, and inspect says so.
 */
#include "index/build/build_priv.h"
#include "index/offload/offload.h"
#include "index/search/search.h"
#include "index/segment/segment_view.h"
#include "io/array.h"
#include "io/bitmap.h"
#include "io/clock.h"
#include "io/error.h"
#include "io/random.h"
#include <assert.h>
#include <float.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define ROWS_MIN         1000u
#define BRIEF_QUERIES    400u
#define BRIEF_BEYOND     4u     /* one query in so many is asked beyond RENEWED_LAST */
#define ROWS_PER_QUERY   20u    /* at most one row in so many is held out */
#define LADDER_RECALL    0.999f /* the ladder ends when this is reached */
#define LISTS_RECALL     0.995f /* that of inverted lists, where what is beyond takes most of the time */
#define RESIDENT_EFFORT  2.5f   /* of lists with resident codes over that of lists that are read, where not measured */
#define ESTIMATES_RECALL 0.99f  /* that of searches for estimates */
#define ESTIMATES_STEPS  24u
#define LISTS_BELOW      8u      /* where the climb of those that are read begins, below that of resident ones */
#define LADDER_GAIN      0.0005f /* or when LADDER_FLAT steps in a row gain less */
#define LADDER_FLAT      2u
#define EFFORT_FIRST     16u
#define EFFORT_FLAT_MIN  500u
#define TRUTH_K          100u
#define MARGIN           2.0 /* standard errors */
#define MARGIN_ESTIMATES 3.0
#define RENEWED_FIRST    0.9f  /* a merge measures from the last step below this recall of the curve before */
#define RENEWED_LAST     0.96f /* up to this one */
#define BRIEF_TESTED     0.95f /* where a seal asks whether the curve before holds */
#define CHECK_SHARE      6u    /* one query in so many is asked beyond, at one point */
#define CHECK_ERRORS     1.5   /* standard errors by which that may lie below the curve, which has a margin itself */
#define NAMED            160u  /* rows of a batch that a device names per query: TRUTH_K, some held out, more */
#define COMPARE_ROWS     64u   /* rows that all queries of a thread are compared with while they are in its cache */

/* What is measured for each k: a query with k 100 counts a hundred neighbours, so a quarter of the queries will do. */
static const struct {
    uint32_t k, share;
} ladder_ks[] = {{1, 1}, {10, 1}, {100, 4}};
#define LADDER_KS        (sizeof ladder_ks / sizeof *ladder_ks)
#define LADDERS          (2 * LADDER_KS)
#define LADDER_STEPS_MAX 48u
#define WIDTH_LADDER     1 /* k 10 */
#define WIDTH_K          10u
#define WIDTH_RECALL     0.95f

/* The fitted spread counts right on average; blocks differ, so that a larger one may lead to fewer reads. */
#define SPREADS 3u
static const float spread_multiples[SPREADS] = {1, 1.5f, 2.25f};

/* The index that a merge goes by; one of another kind says nothing of this one's effort. */
static const struct segment *before_of(const struct build *b)
{
    const struct segment *before = b->merge ? b->merge->before : NULL;
    return before && before->params.index == b->params.index ? before : NULL;
}

static bool is_brief(const struct build *b)
{
    return b->merge && b->merge->brief;
}

/* The climb for one k, on a thread, an engine and a searcher of its own. */
struct ladder {
    struct calibration *c;
    struct engine *engine;
    struct searcher *searcher;
    struct search_request *requests; /* n_queries */
    struct segment *segment;
    enum quire_distance distance; /* of the answers */
    uint32_t k, n_queries, n_points, effort_first;
    uint32_t effort_next;      /* of the next step */
    uint64_t n_found, squares; /* neighbours found; sum over queries of their number squared */
    float recall_wanted;       /* the climb ends there */
    uint64_t reads;
    int code;
    struct quire_error error;
    struct calibration_point points[LADDER_STEPS_MAX];
    const struct calibration_point *before; /* the curve of this k that a merge goes by; n_before 0: none */
    uint32_t n_before;
};

struct near {
    float distance;
    uint32_t row;
};

struct calibration {
    struct build *b;
    uint32_t *held, n_held;
    uint8_t *bitmap;
    struct near *truth; /* n_held x TRUTH_K, nearest first */
    float *queries;     /* n_held x dim */
    struct segment *segment;
    unsigned width;           /* of its codes */
    bool resident;            /* those of lists */
    struct progress progress; /* of the caller, which is asked on its own thread only */
    pthread_t caller;
    uint64_t asked_ns;              /* when it was asked last */
    atomic_bool stopped;            /* it wants to stop */
    atomic_uint_fast64_t n_asked;   /* queries so far */
    struct ladder ladders[LADDERS]; /* by k, of searches that measure, then of those that answer estimates */
    struct ladder widths[NAV_WIDTHS + SPREADS]; /* of narrower codes, then of edge codes, at WIDTH_K */
};

static int choose_held_out(struct calibration *c)
{
    const struct build *b = c->b;
    uint32_t asked = b->options.calibration_queries;
    uint32_t most = is_brief(b) && asked > BRIEF_QUERIES ? BRIEF_QUERIES : asked;
    uint32_t want = b->n / ROWS_PER_QUERY < most ? b->n / ROWS_PER_QUERY : most;
    struct random random;
    assert(want > 0 && want < b->n);
    random_init(&random, b->options.seed ^ 0x63616c6962726174ull);
    c->bitmap = calloc((size_t)b->n / 8 + 1, 1);
    c->held = malloc(sizeof *c->held * want);
    if (!c->bitmap || !c->held)
        return QUIRE_ENOMEM;
    while (c->n_held < want) {
        uint32_t row = (uint32_t)random_below(&random, b->n);
        if (bitmap_has(c->bitmap, row))
            continue;
        bitmap_add(c->bitmap, row);
        c->held[c->n_held++] = row;
    }
    return 0;
}

/* ---- exact answers ----------------------------------------------------------------------------------------------- */

static bool is_nearer(struct near a, struct near b)
{
    return a.distance < b.distance || (a.distance == b.distance && a.row < b.row);
}

/* Into a list of TRUTH_K, if it belongs there. */
static void insert_near(struct near *list, struct near new)
{
    uint32_t at = TRUTH_K - 1;
    if (!is_nearer(new, list[at]))
        return;
    for (; at > 0 && is_nearer(new, list[at - 1]); at--)
        list[at] = list[at - 1];
    list[at] = new;
}

/* Rows streamed past all queries. */
struct truth_job {
    struct calibration *c;
    uint32_t first, n; /* rows of the batch */
    uint8_t *vectors;  /* as they came */
    float *rows;       /* n x code_dim, in the working space */
    float *apart;      /* n: what space_row says of each */
    float *queries;    /* n_held x code_dim */
    struct offload *offload;
    struct offload_near *named; /* n_held x n_named: rows of the batch that a device found nearest */
    uint32_t n_named;
};

static int rotate_range(void *context, uint64_t begin, uint64_t end)
{
    struct truth_job *job = context;
    const struct build *b = job->c->b;
    float *vector = malloc(sizeof(float) * b->space.code_dim);
    for (uint64_t i = begin; vector && i < end; i++) {
        build_vector(b, job->vectors + i * b->row_bytes, vector);
        job->apart[i] = space_row(&b->space, vector, job->rows + i * b->space.code_dim);
    }
    free(vector);
    return vector ? 0 : QUIRE_ENOMEM;
}

/* COMPARE_ROWS rows of the batch from `at` on, or what is left of it, into the list of a query. */
static void compare_chunk(const struct truth_job *job, uint64_t q, uint32_t at)
{
    const struct calibration *c = job->c;
    uint32_t dim = c->b->space.code_dim, m = job->n - at < COMPARE_ROWS ? job->n - at : COMPARE_ROWS;
    struct near *list = c->truth + q * TRUTH_K;
    float distances[COMPARE_ROWS];
    kernels()->f32_l2_many(job->queries + q * dim, job->rows + (size_t)at * dim, m, dim, distances);
    for (uint32_t i = 0, row = job->first + at; i < m; i++, row++) {
        float distance = distances[i] + job->apart[at + i];
        if (distance <= list[TRUTH_K - 1].distance && !bitmap_has(c->bitmap, row))
            insert_near(list, (struct near){distance, row});
    }
}

/* The batch's rows into the lists of queries begin..end. */
static int compare_range(void *context, uint64_t begin, uint64_t end)
{
    const struct truth_job *job = context;
    for (uint32_t at = 0; at < job->n; at += COMPARE_ROWS)
        for (uint64_t q = begin; q < end; q++)
            compare_chunk(job, q, at);
    return 0;
}

/* ---- with a device ----------------------------------------------------------------------------------------------- */

/* What kernels can make at least of a row that a device found at squared distance `value`; what is added for zero
 * vectors is not negative. */
static double least_distance(uint32_t dim, double value)
{
    double at_most = fmin(value, (double)FLT_MAX), error = 2 * offload_float_error(dim);
    return at_most * (1 - error) - 2 * offload_float_tiny(dim) * (1 + at_most);
}

/* The same lists as compare_range makes, for queries of which a device has named the nearest rows of the batch. The
 * chunks of rows where one of these may belong into the list are compared here; where the last of them may belong there
 * too, so may others, and all chunks are. */
static int check_range(void *context, uint64_t begin, uint64_t end)
{
    const struct truth_job *job = context;
    uint32_t dim = job->c->b->space.code_dim, n_chunks = (job->n + COMPARE_ROWS - 1) / COMPARE_ROWS;
    uint8_t *done = malloc(n_chunks);
    if (!done)
        return QUIRE_ENOMEM;
    for (uint64_t q = begin; q < end; q++) {
        const struct near *list = job->c->truth + q * TRUTH_K;
        const struct offload_near *named = job->named + q * job->n_named;
        memset(done, 0, n_chunks);
        for (uint32_t i = 0; i < job->n_named; i++) {
            uint32_t chunk = named[i].row / COMPARE_ROWS;
            if (done[chunk] || least_distance(dim, named[i].value) > (double)list[TRUTH_K - 1].distance)
                continue;
            compare_chunk(job, q, chunk * COMPARE_ROWS);
            done[chunk] = 1;
        }
        if (job->n_named == job->n ||
            least_distance(dim, named[job->n_named - 1].value) > (double)list[TRUTH_K - 1].distance)
            continue;
        for (uint32_t chunk = 0; chunk < n_chunks; chunk++)
            if (!done[chunk])
                compare_chunk(job, q, chunk * COMPARE_ROWS);
    }
    free(done);
    return 0;
}

/* Asks the device for the nearest rows of the batch. One that fails is not asked again. */
static bool name_nearest(struct truth_job *job)
{
    const struct calibration *c = job->c;
    const struct offload_rows rows = {OFFLOAD_F32, job->n, c->b->space.code_dim, job->rows, NULL};
    job->n_named = job->n < NAMED ? job->n : NAMED;
    const struct offload_nearest request = {
        .measure = OFFLOAD_L2, .n_queries = c->n_held, .k = job->n_named, .queries = job->queries, .out = job->named};
    if (job->offload && offload_nearest_all(job->offload, &rows, &request, NULL, NULL) < 0)
        job->offload = NULL;
    return job->offload != NULL;
}

/* Zero vectors, to which all rows are equally near, ask for nothing: others take their places, while there are any. */
static int load_queries(struct truth_job *job)
{
    struct calibration *c = job->c;
    struct build *b = c->b;
    float norm2;
    int rc = 0;
    for (uint32_t q = 0; rc == 0 && q < c->n_held;) {
        float *query = c->queries + (size_t)q * b->dim;
        rc = build_load_input(b, c->held[q], 1, job->vectors);
        if (rc < 0)
            break;
        build_vector(b, job->vectors, query);
        float apart = space_query(&b->space, query, job->queries + (size_t)q * b->space.code_dim, &norm2);
        if (apart > 0 && c->n_held > 1)
            c->held[q] = c->held[--c->n_held];
        else
            q++;
    }
    for (size_t i = 0; i < (size_t)c->n_held * TRUTH_K; i++)
        c->truth[i] = (struct near){INFINITY, UINT32_MAX};
    return rc;
}

static int compute_truth(struct calibration *c)
{
    struct build *b = c->b;
    struct truth_job job = {.c = c};
    struct offload *offload = build_device(b, BUILD_TRUTH);
    uint32_t dim = b->space.code_dim, most = build_batch_rows(b, sizeof(float) * dim);
    c->truth = malloc(sizeof *c->truth * c->n_held * TRUTH_K);
    c->queries = malloc(sizeof(float) * c->n_held * (b->dim + 1));
    job.vectors = malloc(most * b->row_bytes);
    job.rows = malloc(sizeof(float) * most * dim);
    job.apart = malloc(sizeof(float) * most);
    job.queries = malloc(sizeof(float) * c->n_held * dim);
    int rc = c->truth && c->queries && job.vectors && job.rows && job.apart && job.queries ? load_queries(&job)
                                                                                           : QUIRE_ENOMEM;
    job.named = offload ? malloc(sizeof *job.named * c->n_held * NAMED) : NULL;
    job.offload = job.named ? offload : NULL;
    for (; rc == 0 && job.first < b->n; job.first += job.n) {
        job.n = b->n - job.first < most ? b->n - job.first : most;
        rc = build_load_input(b, job.first, job.n, job.vectors);
        if (rc == 0)
            rc = parallel_for(b->options.threads, job.n, 256, rotate_range, &job, NULL);
        if (rc == 0)
            rc = parallel_for(b->options.threads, c->n_held, c->n_held / (2 * b->options.threads) + 1,
                              name_nearest(&job) ? check_range : compare_range, &job, NULL);
        if (rc == 0)
            rc = build_report(b, "exact answers (to calibrate)", job.first + job.n, b->n);
    }
    array_free_all(job.vectors, job.rows, job.apart, job.queries, job.named);
    return rc;
}

/* ---- the ladder -------------------------------------------------------------------------------------------------- */

static void on_answer(struct search_request *request)
{
    struct ladder *l = request->owner;
    const struct near *truth = l->c->truth + (size_t)(request - l->requests) * TRUTH_K;
    if (request->code < 0) {
        if (l->code == 0) {
            l->code = request->code;
            l->error = request->error;
        }
        return;
    }
    uint64_t found = 0;
    assert(request->n_hits <= l->k && l->k <= TRUTH_K);
    for (uint32_t i = 0; i < request->n_hits; i++)
        for (uint32_t j = 0; j < l->k; j++)
            if (truth[j].row == request->hits[i].row) {
                found++;
                break;
            }
    l->reads += request->stats.reads;
    l->n_found += found;
    l->squares += found * found;
}

/* The recall of the last point, for which so many were asked, less some standard errors of it: whoever asks for 0.95
 * is to get it rather than to get it every other time. The margin also makes up for what held-out rows find easier than
 * strangers do: their block was cut around them (0.003 on the text set, 0.008 on SIFT), which weighs more where rows
 * are not measured. */
static float recall_of(const struct ladder *l, uint32_t asked)
{
    double margin = l->distance == QUIRE_DISTANCE_ESTIMATE ? MARGIN_ESTIMATES : MARGIN;
    double n = asked, mean = (double)l->n_found / n, variance = (double)l->squares / n - mean * mean;
    double recall = (mean - margin * sqrt(variance > 0 ? variance / n : 0)) / l->k;
    return recall > 0 ? (float)recall : 0;
}

/* How often the caller is told how many queries were asked, and asked whether to go on. A ladder may take minutes, and
 * how many queries it will need is not known before its end. */
#define TELL_EVERY_NS 100000000u

/* A struct progress for the loops over ladders, whose own numbers say little. */
static int tell(void *context, const char *phase, uint64_t done, uint64_t total)
{
    struct calibration *c = context;
    (void)done;
    (void)total;
    assert(pthread_equal(pthread_self(), c->caller));
    c->asked_ns = clock_ns();
    if (c->progress.report && !atomic_load(&c->stopped) &&
        c->progress.report(c->progress.context, phase, atomic_load_explicit(&c->n_asked, memory_order_relaxed), 0) != 0)
        atomic_store(&c->stopped, true);
    return atomic_load(&c->stopped);
}

/* Between any two steps of whatever takes long, on any thread: QUIRE_ECANCELLED when the caller wants to stop. */
static int look_for_stop(struct calibration *c)
{
    if (pthread_equal(pthread_self(), c->caller) && clock_ns() - c->asked_ns >= TELL_EVERY_NS)
        tell(c, c->progress.phase, 0, 0);
    return atomic_load_explicit(&c->stopped, memory_order_relaxed) ? QUIRE_ECANCELLED : 0;
}

/* Asks every step-th query. Searches that a stop leaves under way are run_ladder's to cancel. */
static int ask(struct ladder *l, uint32_t effort, uint32_t step)
{
    struct calibration *c = l->c;
    l->n_found = l->squares = 0;
    l->reads = 0;
    for (uint32_t q = 0; q < l->n_queries; q += step) {
        struct search_request *r = &l->requests[q];
        memset(r, 0, sizeof *r);
        r->segment = l->segment;
        r->query = c->queries + (size_t)q * c->b->dim;
        r->options.k = l->k;
        r->options.effort = effort;
        r->options.distance = l->distance;
        r->done = on_answer;
        r->owner = l;
        int rc = search_start(l->searcher, r, &l->error);
        if (rc == 0)
            rc = look_for_stop(c);
        if (rc < 0)
            return rc;
        atomic_fetch_add_explicit(&c->n_asked, 1, memory_order_relaxed);
    }
    while (searcher_running(l->searcher) > 0) {
        int rc = engine_poll(l->engine, 1, TELL_EVERY_NS / 1000);
        if (rc < 0)
            return error_set(&l->error, rc, "the engine failed: %s", quire_error_text(rc));
        if ((rc = look_for_stop(c)) < 0)
            return rc;
    }
    return l->code;
}

static uint32_t asked_of(const struct ladder *l, uint32_t step)
{
    return (l->n_queries + step - 1) / step;
}

static float last_recall(const struct ladder *l)
{
    return l->n_points ? l->points[l->n_points - 1].recall : 0;
}

static uint32_t steps_max(const struct ladder *l)
{
    return l->distance == QUIRE_DISTANCE_ESTIMATE ? ESTIMATES_STEPS : LADDER_STEPS_MAX;
}

/* stride: 1, or 2 to leave out every second step. */
static int climb(struct ladder *l, float recall_wanted, unsigned stride)
{
    uint32_t flat = 0;
    bool brief = is_brief(l->c->b), beyond = false;
    stride = brief ? 2 : stride;
    while (l->n_points < steps_max(l) && last_recall(l) < recall_wanted && flat < LADDER_FLAT) {
        float before = last_recall(l);
        beyond = beyond || before >= RENEWED_LAST;
        uint32_t step = brief && beyond ? BRIEF_BEYOND : 1, asked = asked_of(l, step);
        int rc = ask(l, l->effort_next, step);
        if (rc < 0)
            return rc;
        l->points[l->n_points++] =
            (struct calibration_point){l->k, l->effort_next, recall_of(l, asked), (float)l->reads / (float)asked};
        flat = last_recall(l) - before < LADDER_GAIN && l->effort_next > EFFORT_FLAT_MIN ? flat + 1 : 0;
        for (unsigned i = 0; i < stride; i++)
            l->effort_next = l->effort_next < 3 ? l->effort_next + 1 : l->effort_next * 7 / 5;
    }
    return 0;
}

/* ---- a curve from before ----------------------------------------------------------------------------------------- */

/* Whether every step-th query finds at a point what the curve says, but for so many standard errors. */
static int point_holds(struct ladder *l, const struct calibration_point *point, uint32_t step, double errors,
                       bool *holds)
{
    int rc = ask(l, point->effort, step);
    double n = asked_of(l, step), mean = (double)l->n_found / n;
    double variance = fmax((double)l->squares / n - mean * mean, 0);
    double error = sqrt(variance / n) / l->k, beyond = mean / l->k - point->recall;
    *holds = beyond >= -errors * error; /* above it, the curve asks for more effort than is needed, no less */
    return rc;
}

/* The same of the middle of the rest, by a sample of the queries. */
static int rest_holds(struct ladder *l, uint32_t begin, bool *holds)
{
    return point_holds(l, &l->before[(begin + l->n_before) / 2], CHECK_SHARE, CHECK_ERRORS, holds);
}

/* Takes the whole curve from before if the queries find what it says where most is asked for, and a sample of them what
 * it says beyond. */
static int take_curve(struct ladder *l, bool *taken)
{
    uint32_t at = 0;
    while (at + 1 < l->n_before && l->before[at].recall < BRIEF_TESTED)
        at++;
    *taken = false;
    if (l->n_before > steps_max(l) || l->before[at].recall < BRIEF_TESTED)
        return 0;
    int rc = point_holds(l, &l->before[at], 1, 0, taken);
    if (rc == 0 && *taken && at + 1 < l->n_before)
        rc = rest_holds(l, at + 1, taken);
    if (rc < 0 || !*taken)
        return rc;
    memcpy(l->points, l->before, sizeof *l->points * l->n_before);
    l->n_points = l->n_before;
    return 0;
}

static int climb_by(struct ladder *l)
{
    bool holds = false;
    int rc = is_brief(l->c->b) ? take_curve(l, &holds) : 0;
    if (rc < 0 || holds)
        return rc;
    /* begins with the points of the curve before that are below what is measured anew */
    uint32_t below = 0, taken = 0;
    while (below < l->n_before && below < steps_max(l) / 2 && l->before[below].recall < RENEWED_FIRST)
        below++;
    if (below >= 2) {
        taken = below - 1;
        memcpy(l->points, l->before, sizeof *l->points * taken);
        l->effort_next = l->before[taken].effort;
    }
    l->n_points = taken;
    rc = climb(l, RENEWED_LAST, 2);
    /* moves them by what the next, which was measured, differs from that curve */
    float by = taken > 0 && l->n_points > taken ? l->points[taken].recall - l->before[taken].recall : 0;
    for (uint32_t i = 0; i < taken && l->n_points > taken; i++)
        l->points[i].recall = fminf(fmaxf(l->points[i].recall + by, 0), 1);
    uint32_t begin = 0; /* the first point of the curve before that lies beyond what was measured */
    while (begin < l->n_before &&
           (l->before[begin].effort < l->effort_next || l->before[begin].recall <= last_recall(l)))
        begin++;
    if (rc == 0 && begin < l->n_before && l->n_points + l->n_before - begin <= steps_max(l))
        rc = rest_holds(l, begin, &holds);
    if (rc < 0 || !holds)
        return rc < 0 ? rc : climb(l, l->recall_wanted, 1);
    memcpy(l->points + l->n_points, l->before + begin, sizeof *l->points * (l->n_before - begin));
    l->n_points += l->n_before - begin;
    return 0;
}

static int run_ladder(struct ladder *l)
{
    struct engine_config engine_config = {.kind = QUIRE_ENGINE_AUTO, .one_thread = true};
    l->requests = calloc(l->n_queries, sizeof *l->requests);
    int rc = l->requests ? engine_create(&engine_config, &l->engine, &l->error) : QUIRE_ENOMEM;
    if (rc == 0)
        rc = searcher_create(l->engine, NULL, &l->searcher, &l->error);
    l->effort_next = l->effort_first;
    if (rc == 0)
        rc = l->n_before ? climb_by(l) : climb(l, l->recall_wanted, 1);
    if (l->searcher) {
        searcher_cancel(l->searcher);
        searcher_destroy(l->searcher);
    }
    if (l->engine)
        engine_destroy(l->engine);
    free(l->requests);
    return rc;
}

/* Ladders begin..end; the largest k, which takes longest, is begun first. */
static int run_ladders(void *context, uint64_t begin, uint64_t end)
{
    struct calibration *c = context;
    for (uint64_t i = begin; i < end; i++) {
        struct ladder *l = &c->ladders[i % 2 * LADDER_KS + LADDER_KS - 1 - i / 2];
        int rc = l->n_queries ? run_ladder(l) : 0;
        if (rc < 0) {
            l->code = rc;
            return rc;
        }
    }
    return 0;
}

static void take_error(const struct calibration *c, const struct ladder *l, int rc)
{
    if (rc != QUIRE_ECANCELLED && l->code == rc && l->error.code == rc && c->b->err)
        *c->b->err = l->error;
}

/* ---- spread -------------------------------------------------------------------------------------------------------
 *
 * Where no code is resident a search guesses from a block's centre how many of its rows are near: their distances are
 * taken as normal around |q - c|^2 + rms^2 with standard deviation 2 |q - c| rms * spread. The spread is the one with
 * which the expected counts add up to the true ones over the held-out rows and their nearest blocks.
 */

#define SPREAD_BLOCKS  512u
#define SPREAD_QUERIES 8u /* compared with a centre while it is decoded */
#define SPREAD_STEPS   20

struct spread_sample {
    float distance, rms; /* of a block's centre */
    float tau;           /* of the query */
    uint32_t rows;
};

static int by_nearness(const void *a, const void *b)
{
    const struct near *x = a, *y = b;
    return is_nearer(*x, *y) ? -1 : is_nearer(*y, *x) ? 1 : 0;
}

/* The nearest blocks of one held-out row, its own left out, into samples; returns how many of its true neighbours lie
 * in them. near: all blocks, where struct near says row. */
static uint32_t sample_blocks(const struct calibration *c, uint32_t query, struct near *near,
                              struct spread_sample *samples, uint32_t n_samples)
{
    const struct segment_params *p = &c->b->params;
    const struct near *truth = c->truth + (size_t)query * TRUTH_K;
    uint32_t own = c->held[query] / p->slots_per_block, count = 0;
    qsort(near, p->n_blocks, sizeof *near, by_nearness);
    for (uint32_t i = 0, at = 0; at < n_samples; i++) {
        uint32_t block = near[i].row;
        if (block == own)
            continue;
        samples[at++] = (struct spread_sample){near[i].distance, segment_block_rms(c->segment, block),
                                               truth[WIDTH_K - 1].distance, format_block_rows(p, block)};
        for (uint32_t k = 0; k < WIDTH_K; k++)
            count += truth[k].row / p->slots_per_block == block;
    }
    return count;
}

/* The samples of all held-out rows, `each` of one; *found: how many true neighbours lie in them. */
static int sample_queries(struct calibration *c, uint32_t each, struct spread_sample *samples, uint64_t *found)
{
    const struct build *b = c->b;
    uint32_t dim = b->params.code_dim, blocks = b->params.n_blocks;
    struct near *near = malloc(sizeof *near * blocks * SPREAD_QUERIES); /* of each query all blocks */
    float *queries = malloc(sizeof *queries * dim * SPREAD_QUERIES), *centre = malloc(sizeof *centre * dim), norm2;
    int rc = near && queries && centre ? 0 : QUIRE_ENOMEM;
    *found = 0;
    for (uint32_t at = 0; rc == 0 && at < c->n_held; at += SPREAD_QUERIES) {
        uint32_t n = c->n_held - at < SPREAD_QUERIES ? c->n_held - at : SPREAD_QUERIES;
        for (uint32_t q = 0; q < n; q++)
            space_query(&b->space, c->queries + (size_t)(at + q) * b->dim, queries + (size_t)q * dim, &norm2);
        for (uint32_t block = 0; block < blocks; block++) {
            segment_centre(c->segment, block, centre); /* decoded once for all of them */
            for (uint32_t q = 0; q < n; q++)
                near[(size_t)q * blocks + block] =
                    (struct near){kernels()->f32_l2(queries + (size_t)q * dim, centre, dim), block};
        }
        for (uint32_t q = 0; q < n; q++)
            *found += sample_blocks(c, at + q, near + (size_t)q * blocks, samples + (size_t)(at + q) * each, each);
        rc = look_for_stop(c);
    }
    array_free_all(near, queries, centre);
    return rc;
}

static int fit_spread(struct calibration *c)
{
    struct segment_params *p = &c->b->params;
    uint32_t each = p->n_blocks - 1 < SPREAD_BLOCKS ? p->n_blocks - 1 : SPREAD_BLOCKS;
    uint64_t found;
    struct spread_sample *samples = malloc(sizeof *samples * ((size_t)each * c->n_held + 1));
    int rc = samples ? sample_queries(c, each, samples, &found) : QUIRE_ENOMEM;
    double low = 1e-3, high = 1;
    for (int step = 0; rc == 0 && step < SPREAD_STEPS; step++) {
        double middle = sqrt(low * high), expected = 0;
        for (size_t i = 0; i < (size_t)each * c->n_held; i++) {
            const struct spread_sample *s = &samples[i];
            double sigma = 2 * sqrt((double)s->distance) * s->rms * middle;
            double z = (s->tau - s->distance - (double)s->rms * s->rms) / (sigma + 1e-30);
            expected += s->rows * 0.5 * erfc(-z / sqrt(2));
        }
        if (expected < (double)found)
            low = middle;
        else
            high = middle;
    }
    if (rc == 0)
        p->spread = (float)high;
    free(samples);
    return rc;
}

/* Searches at a time, each with memory of its own: under a budget one. */
static unsigned searchers(const struct build *b)
{
    return b->plan.in_files ? 1 : b->options.threads;
}

static int run_widths(void *context, uint64_t begin, uint64_t end)
{
    struct calibration *c = context;
    for (uint64_t w = begin; w < end; w++) {
        struct ladder *l = &c->widths[w];
        struct segment_options options = {.fs = c->b->fs, .memory_bytes = UINT64_MAX, .no_cache = true};
        unsigned narrower = c->width;
        if (w < narrower)
            options.code_bits = nav_bits[w];
        else
            options.edge_codes = options.read_lists = true;
        int rc = segment_open(c->b->folder, &options, &l->segment, &l->error);
        if (rc == 0) {
            l->segment->dead = c->bitmap;
            if (!build_is_lists(c->b) && w >= narrower)
                l->segment->params.spread = fminf(c->b->params.spread * spread_multiples[w - narrower], 1);
            rc = run_ladder(l);
            segment_unref(l->segment);
        }
        if (rc < 0) {
            l->code = rc;
            return rc;
        }
    }
    return 0;
}

static float effort_factor(const struct ladder *l, float recall, float effort)
{
    float factor = segment_curve_effort(l->points, l->n_points, fminf(recall, last_recall(l))) / effort;
    return fminf(fmaxf(factor, EFFORT_FACTOR_MIN), EFFORT_FACTOR_MAX);
}

/* The spread with which the wanted recall takes the fewest reads. */
static void choose_spread(struct calibration *c, float recall, float effort)
{
    struct segment_params *p = &c->b->params;
    float fewest = INFINITY, fitted = p->spread;
    for (unsigned i = 0; i < SPREADS; i++) {
        const struct ladder *l = &c->widths[c->width + i];
        uint32_t at = 0;
        while (at + 1 < l->n_points && l->points[at].recall < recall)
            at++;
        /* a ladder that ended below the wanted recall counts for what is missing */
        float reads =
            l->n_points ? l->points[at].reads / fminf(fmaxf(1 - (recall - l->points[at].recall) * 20, 0.01f), 1) : 0;
        if (l->n_points == 0 || reads >= fewest)
            continue;
        fewest = reads;
        p->spread = fminf(fitted * spread_multiples[i], 1);
        p->edge_effort_factor = effort_factor(l, recall, effort);
    }
}

/* What narrower codes need in an index that this one mostly comes from, if it has the same codes. */
static bool take_widths(struct calibration *c)
{
    const struct segment *before = before_of(c->b);
    struct segment_params *p = &c->b->params;
    if (!before || before->n_calibration == 0 || before->params.edge_code_bytes != p->edge_code_bytes)
        return false;
    for (unsigned w = 0; w < NAV_WIDTHS; w++)
        if ((before->params.error[w] > 0) != (p->error[w] > 0))
            return false;
    memcpy(p->effort_factor, before->params.effort_factor, sizeof p->effort_factor);
    p->edge_effort_factor = before->params.edge_effort_factor;
    p->spread = before->params.spread;
    return true;
}

static int measure_widths(struct calibration *c)
{
    const struct ladder *widest = &c->ladders[WIDTH_LADDER];
    unsigned narrower = c->width, n_widths = narrower + (c->b->params.edge_code_bytes ? SPREADS : 0);
    float recall = fminf(WIDTH_RECALL, last_recall(widest));
    if (widest->n_points == 0 || recall <= widest->points[0].recall)
        return 0;
    float effort = segment_curve_effort(widest->points, widest->n_points, recall);
    for (unsigned w = 0; w < n_widths; w++) {
        struct ladder *l = &c->widths[w];
        l->c = c;
        l->k = widest->k;
        l->n_queries = widest->n_queries;
        l->effort_first = w < narrower ? (uint32_t)effort : EFFORT_FIRST;
        l->recall_wanted = recall;
    }
    struct progress progress = {tell, c, c->progress.phase};
    int rc = parallel_for(searchers(c->b), n_widths, 1, run_widths, c, &progress);
    for (unsigned w = 0; w < narrower && rc == 0; w++)
        c->b->params.effort_factor[w] = effort_factor(&c->widths[w], recall, effort);
    if (rc == 0 && n_widths > narrower)
        choose_spread(c, recall, effort);
    for (unsigned w = 0; w < n_widths && rc < 0; w++)
        take_error(c, &c->widths[w], rc);
    return rc;
}

/* How much less a search needs that reads the lists, and with them replicas. Where there was no memory for the codes
 * the curve is of reading, and is moved by what is usual. */
static int measure_lists(struct calibration *c)
{
    struct segment_params *p = &c->b->params;
    const struct ladder *resident = &c->ladders[WIDTH_LADDER];
    struct ladder *l = &c->widths[0];
    float recall = fminf(WIDTH_RECALL, last_recall(resident)), *factor = &p->effort_factor[c->width];
    *factor = RESIDENT_EFFORT;
    for (uint32_t i = 0; !c->resident && i < LADDER_KS; i++)
        for (uint32_t n = 0; n < c->ladders[i].n_points; n++)
            c->ladders[i].points[n].effort = (uint32_t)ceilf((float)c->ladders[i].points[n].effort * *factor);
    if (!c->resident || resident->n_points == 0 || recall <= resident->points[0].recall)
        return 0;
    float effort = segment_curve_effort(resident->points, resident->n_points, recall);
    *l = (struct ladder){.c = c, .k = resident->k, .n_queries = resident->n_queries, .recall_wanted = recall};
    l->effort_first = effort > LISTS_BELOW ? (uint32_t)(effort / LISTS_BELOW) : 1;
    c->width = 0; /* nothing resident but heads */
    int rc = run_widths(c, 0, 1);
    if (rc == 0)
        *factor = fminf(fmaxf(effort / segment_curve_effort(l->points, l->n_points, fminf(recall, last_recall(l))), 1),
                        EFFORT_FACTOR_MAX);
    else
        take_error(c, l, rc);
    return rc;
}

static int search_ladders(struct calibration *c)
{
    struct build *b = c->b;
    struct segment_options options = {.fs = b->fs, .memory_bytes = b->plan.segment_bytes, .no_cache = true};
    bool lists = build_is_lists(b);
    int rc = segment_open(b->folder, &options, &c->segment, b->err);
    if (rc < 0)
        return rc;
    c->segment->dead = c->bitmap;
    c->width = c->segment->width;
    c->resident = c->segment->lists && c->segment->lists->codes;
    for (uint32_t i = 0; i < LADDERS; i++) {
        struct ladder *l = &c->ladders[i];
        bool estimates = i >= LADDER_KS;
        uint32_t k = ladder_ks[i % LADDER_KS].k, share = ladder_ks[i % LADDER_KS].share;
        l->c = c;
        l->segment = c->segment;
        l->k = k;
        l->distance = estimates ? QUIRE_DISTANCE_ESTIMATE : QUIRE_DISTANCE_EXACT;
        l->effort_first = lists ? 1 : EFFORT_FIRST;
        l->recall_wanted = estimates ? ESTIMATES_RECALL : lists ? LISTS_RECALL : LADDER_RECALL;
        if (estimates && is_brief(b))
            l->recall_wanted = RENEWED_LAST;
        /* estimates need numbers; in brief they are measured where most is asked for */
        bool left_out = estimates && (!c->segment->numbers || (is_brief(b) && k != WIDTH_K));
        l->n_queries = k <= b->n - c->n_held && !left_out ? c->n_held / share : 0;
        /* the points of this k in the curve that a merge goes by; that of lists is of resident codes */
        const struct segment *before = lists && !c->resident ? NULL : before_of(b);
        const struct calibration_point *points = before ? estimates ? before->estimates : before->calibration : NULL;
        for (uint32_t p = 0; before && p < (estimates ? before->n_estimates : before->n_calibration); p++)
            if (points[p].k == k) {
                l->before = l->n_before ? l->before : &points[p];
                l->n_before++;
            }
        if (l->n_before && share > 1)
            l->n_queries /= 2; /* still thousands of neighbours */
    }
    build_progress(b, "calibrate", &c->progress);
    struct progress progress = {tell, c, c->progress.phase};
    rc = parallel_for(searchers(b), LADDERS, 1, run_ladders, c, &progress);
    bool known = (!lists || c->resident) && take_widths(c);
    if (rc == 0 && b->params.edge_code_bytes && !known)
        rc = fit_spread(c);
    segment_unref(c->segment);
    if (rc == 0 && !known)
        rc = lists ? measure_lists(c) : measure_widths(c);
    for (uint32_t i = 0; i < LADDERS && rc < 0; i++)
        take_error(c, &c->ladders[i], rc);
    uint64_t n_asked = atomic_load(&c->n_asked);
    return rc == 0 && n_asked > 0 ? build_report(b, "calibrate", n_asked, n_asked) : rc;
}

/* Recall must not fall as effort rises: noise of the sample is smoothed by the running maximum. Returns the bytes
 * written. */
static size_t encode_points(const struct calibration *c, uint8_t *out)
{
    uint8_t *at = out;
    for (uint32_t i = 0; i < LADDERS; i++) {
        float best = 0;
        for (uint32_t n = 0; n < c->ladders[i].n_points; n++, at += CALIBRATION_POINT_BYTES) {
            const struct calibration_point *p = &c->ladders[i].points[n];
            best = fmaxf(best, p->recall);
            bytes_store_u32(at, i < LADDER_KS ? p->k : p->k | CALIBRATION_ESTIMATES);
            bytes_store_u32(at + 4, p->effort);
            bytes_store_f32(at + 8, best);
            bytes_store_f32(at + 12, p->reads);
        }
    }
    return (size_t)(at - out);
}

/* Holds the queries, searches, and keeps the points. */
int build_calibrate(struct build *b)
{
    bool lists = build_is_lists(b); /* no row leads to another in their blocks */
    if (b->n < ROWS_MIN)
        return 0;
    struct calibration *c = calloc(1, sizeof *c);
    if (!c)
        return QUIRE_ENOMEM;
    c->b = b;
    c->caller = pthread_self();
    assert(!b->calibration && b->step == STEP_TABLES);
    int rc = choose_held_out(c);
    if (rc < 0 || (!lists && (rc = build_write_blocks(b, c->bitmap)) < 0) || (rc = build_write_meta(b, NULL, 0)) < 0 ||
        (rc = compute_truth(c)) < 0)
        goto out;
    if (b->plan.in_files) { /* the codes of the index need the memory in which the centres stand decoded */
        assert(b->centres);
        free(b->centres);
        b->centres = NULL;
    }
    if ((rc = search_ladders(c)) < 0 || (b->plan.in_files && (rc = build_decode_centres(b)) < 0) ||
        (!lists && (rc = build_remove_file(b, BLOCKS_NAME)) < 0) || (rc = build_remove_file(b, META_NAME)) < 0)
        goto out;
    b->calibration = malloc(LADDER_KS * (LADDER_STEPS_MAX + ESTIMATES_STEPS) * CALIBRATION_POINT_BYTES);
    if (b->calibration)
        b->calibration_bytes = encode_points(c, b->calibration);
    else
        rc = QUIRE_ENOMEM;
out:
    array_free_all(c->held, c->bitmap, c->truth, c->queries, c);
    return rc;
}
