/*
 * calibrate.c - effort -> recall, measured on the index itself with rows it pretends not to have.
 *
 * A sample of rows is held out: the blocks are first written without any edge from or to them, and a search neither
 * follows nor answers them (segment->dead). Each is then asked as a query, exactly as a user would ask with an unseen
 * vector, at a ladder of efforts and for several k, by the same search on the same files through the same engine. Exact
 * answers come from brute force over the input. Afterwards the blocks are written again whole.
 *
 * What remains of bias: a held-out row still sits in its block and moved that block's centre by one part in some
 * thirty. Measured against real query sets the curve is right within a point (docs/performance.md).
 *
 * Small inputs (fewer than ROWS_MIN rows) are not calibrated; the search then uses a fixed rule, and inspect says so.
 */
#include "index/build_priv.h"
#include "index/search.h"
#include "index/segment_priv.h"
#include "io/error.h"
#include "io/random.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ROWS_MIN        1000u
#define QUERIES_MAX     400u
#define ROWS_PER_QUERY  20u     /* at most one row in so many is held out */
#define LADDER_RECALL   0.999f  /* the ladder ends when this is reached */
#define LADDER_GAIN     0.0005f /* or when LADDER_FLAT steps in a row gain less */
#define LADDER_FLAT     2u
#define EFFORT_FIRST    16u
#define EFFORT_FINE     200u /* steps of a quarter below, of a half above */
#define EFFORT_FLAT_MIN 500u
#define TRUTH_K         100u

static const uint32_t ladder_ks[] = {1, 10, 100};
#define LADDER_KS        (sizeof ladder_ks / sizeof *ladder_ks)
#define LADDER_STEPS_MAX 48u

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
    struct calibration_point points[LADDER_KS * LADDER_STEPS_MAX];
    uint32_t n_points;
    struct search_request *requests;
    uint32_t k, n_found;
    uint64_t reads;
    int code;
};

static bool is_set(const uint8_t *bitmap, uint32_t row)
{
    return bitmap[row / 8] >> (row % 8) & 1;
}

static int choose_held_out(struct calibration *c)
{
    const struct build *b = c->b;
    uint32_t want = b->n / ROWS_PER_QUERY < QUERIES_MAX ? b->n / ROWS_PER_QUERY : QUERIES_MAX;
    struct random random;
    random_init(&random, b->options.seed ^ 0x63616c6962726174ull);
    c->bitmap = calloc((size_t)b->n / 8 + 1, 1);
    c->held = malloc(sizeof *c->held * want);
    if (!c->bitmap || !c->held)
        return QUIRE_ENOMEM;
    while (c->n_held < want) {
        uint32_t row = (uint32_t)random_below(&random, b->n);
        if (is_set(c->bitmap, row))
            continue;
        c->bitmap[row / 8] = (uint8_t)(c->bitmap[row / 8] | 1u << (row % 8));
        c->held[c->n_held++] = row;
    }
    return 0;
}

/* ---- exact answers ------------------------------------------------------------------------------------------------
 */

static bool is_nearer(struct near a, struct near b)
{
    return a.distance < b.distance || (a.distance == b.distance && a.row < b.row);
}

static void insert_near(struct near *list, uint32_t k, struct near new)
{
    uint32_t at = k - 1;
    if (!is_nearer(new, list[at]))
        return;
    for (; at > 0 && is_nearer(new, list[at - 1]); at--)
        list[at] = list[at - 1];
    list[at] = new;
}

/* Distances of the working space from rows begin..end to all queries; each range keeps lists of its own. */
struct truth_range {
    struct calibration *c;
    struct near *lists; /* ranges x n_held x TRUTH_K */
    float *rotated;     /* n_held x code_dim */
    uint32_t rows_per_range;
};

static int truth_range(void *context, uint64_t begin, uint64_t end)
{
    struct truth_range *job = context;
    const struct calibration *c = job->c;
    const struct build *b = c->b;
    uint32_t dim = b->space.code_dim;
    struct near *lists = job->lists + begin / job->rows_per_range * c->n_held * TRUTH_K;
    float *vector = malloc(sizeof(float) * dim), *row = malloc(sizeof(float) * dim);
    float *distances = malloc(sizeof(float) * c->n_held);
    int rc = vector && row && distances ? 0 : QUIRE_ENOMEM;
    for (size_t i = 0; rc == 0 && i < (size_t)c->n_held * TRUTH_K; i++)
        lists[i] = (struct near){INFINITY, UINT32_MAX};
    for (uint64_t r = begin; rc == 0 && r < end; r++) {
        if (is_set(c->bitmap, (uint32_t)r))
            continue;
        build_vector(b, b->order[r], vector);
        space_row(&b->space, vector, row);
        kernels()->f32_l2_many(row, job->rotated, c->n_held, dim, distances);
        for (uint32_t q = 0; q < c->n_held; q++)
            insert_near(lists + (size_t)q * TRUTH_K, TRUTH_K, (struct near){distances[q], (uint32_t)r});
    }
    free(vector);
    free(row);
    free(distances);
    return rc;
}

static int compute_truth(struct calibration *c)
{
    struct build *b = c->b;
    unsigned ranges = b->options.threads * 4;
    struct truth_range job = {.c = c, .rows_per_range = (b->n + ranges - 1) / ranges};
    struct progress progress;
    uint32_t dim = b->space.code_dim;
    size_t lists = (size_t)c->n_held * TRUTH_K;
    ranges = (b->n + job.rows_per_range - 1) / job.rows_per_range;
    c->truth = malloc(sizeof *c->truth * lists);
    c->queries = malloc(sizeof(float) * c->n_held * (b->dim + 1));
    job.lists = malloc(sizeof *job.lists * lists * ranges);
    job.rotated = malloc(sizeof(float) * c->n_held * dim);
    int rc = c->truth && c->queries && job.lists && job.rotated ? 0 : QUIRE_ENOMEM;
    float norm2;
    for (uint32_t q = 0; rc == 0 && q < c->n_held; q++) {
        float *query = c->queries + (size_t)q * b->dim;
        build_vector(b, b->order[c->held[q]], query);
        space_query(&b->space, query, job.rotated + (size_t)q * dim, &norm2);
    }
    build_progress(b, "exact answers (to calibrate)", &progress);
    if (rc == 0)
        rc = parallel_for(b->options.threads, b->n, job.rows_per_range, truth_range, &job, &progress);
    for (size_t i = 0; rc == 0 && i < lists; i++)
        c->truth[i] = job.lists[i];
    for (unsigned r = 1; rc == 0 && r < ranges; r++)
        for (size_t i = 0; i < lists; i++)
            insert_near(c->truth + i / TRUTH_K * TRUTH_K, TRUTH_K, job.lists[r * lists + i]);
    free(job.lists);
    free(job.rotated);
    return rc;
}

/* ---- the ladder ----------------------------------------------------------------------------------------------------
 */

static void on_answer(struct search_request *request)
{
    struct calibration *c = request->owner;
    const struct near *truth = c->truth + (size_t)(request - c->requests) * TRUTH_K;
    if (request->code < 0) {
        if (c->code == 0) {
            c->code = request->code;
            if (c->b->err)
                *c->b->err = request->error;
        }
        return;
    }
    c->reads += request->stats.reads;
    for (uint32_t i = 0; i < request->n_hits; i++)
        for (uint32_t j = 0; j < c->k; j++)
            if (truth[j].row == request->hits[i].row) {
                c->n_found++;
                break;
            }
}

static int run_point(struct calibration *c, struct searcher *searcher, struct engine *engine, struct segment *segment,
                     uint32_t k, uint32_t effort)
{
    c->k = k;
    c->n_found = 0;
    c->reads = 0;
    for (uint32_t q = 0; q < c->n_held; q++) {
        struct search_request *r = &c->requests[q];
        memset(r, 0, sizeof *r);
        r->segment = segment;
        r->query = c->queries + (size_t)q * c->b->dim;
        r->options.k = k;
        r->options.effort = effort;
        r->done = on_answer;
        r->owner = c;
        int rc = search_start(searcher, r, c->b->err);
        if (rc < 0)
            return rc;
    }
    while (searcher_running(searcher) > 0) {
        int rc = engine_poll(engine, 1, UINT64_MAX);
        if (rc < 0)
            return rc;
    }
    if (c->code < 0)
        return c->code;
    c->points[c->n_points++] = (struct calibration_point){k, effort, (float)c->n_found / ((float)c->n_held * (float)k),
                                                          (float)c->reads / (float)c->n_held};
    return 0;
}

static int climb(struct calibration *c, struct searcher *searcher, struct engine *engine, struct segment *segment)
{
    struct progress progress;
    uint32_t others = c->b->n - c->n_held;
    build_progress(c->b, "calibrate", &progress);
    for (uint32_t i = 0; i < LADDER_KS; i++) {
        uint32_t effort = EFFORT_FIRST, flat = 0;
        float recall = 0, before;
        if (ladder_ks[i] > others)
            break;
        for (uint32_t step = 0; step < LADDER_STEPS_MAX && recall < LADDER_RECALL && flat < LADDER_FLAT; step++) {
            int rc = run_point(c, searcher, engine, segment, ladder_ks[i], effort);
            if (rc < 0)
                return rc;
            before = recall;
            recall = c->points[c->n_points - 1].recall;
            flat = recall - before < LADDER_GAIN && effort > EFFORT_FLAT_MIN ? flat + 1 : 0;
            effort = effort < EFFORT_FINE ? effort * 5 / 4 : effort * 3 / 2;
            if (progress.report && progress.report(progress.context, progress.phase, i, LADDER_KS) != 0)
                return QUIRE_ECANCELLED;
        }
    }
    return 0;
}

static int search_ladder(struct calibration *c)
{
    struct build *b = c->b;
    struct engine_config engine_config = {.kind = QUIRE_ENGINE_AUTO};
    struct engine *engine = NULL;
    struct searcher *searcher = NULL;
    struct segment *segment = NULL;
    struct segment_options options = {.fs = b->fs, .memory_bytes = 0};
    c->requests = calloc(c->n_held, sizeof *c->requests);
    int rc = c->requests ? segment_open(b->folder, &options, &segment, b->err) : QUIRE_ENOMEM;
    if (rc == 0)
        rc = engine_create(&engine_config, &engine, b->err);
    if (rc == 0)
        rc = searcher_create(engine, NULL, &searcher, b->err);
    if (rc == 0) {
        segment->dead = c->bitmap;
        rc = climb(c, searcher, engine, segment);
        searcher_cancel(searcher);
    }
    searcher_destroy(searcher);
    if (engine)
        engine_destroy(engine);
    segment_unref(segment);
    return rc;
}

static int remove_file(const struct build *b, const char *name)
{
    char *path = build_file_path(b, name);
    int rc = path ? b->fs->ops->unlink(b->fs, path) : QUIRE_ENOMEM;
    free(path);
    return rc;
}

/* Recall must not fall as effort rises: noise of the sample is smoothed by the running maximum. */
static void encode_points(const struct calibration *c, uint8_t *out)
{
    float best = 0;
    for (uint32_t i = 0; i < c->n_points; i++) {
        const struct calibration_point *p = &c->points[i];
        best = i > 0 && p->k == c->points[i - 1].k ? fmaxf(best, p->recall) : p->recall;
        store_u32(out + i * CALIBRATION_POINT_BYTES, p->k);
        store_u32(out + i * CALIBRATION_POINT_BYTES + 4, p->effort);
        store_f32(out + i * CALIBRATION_POINT_BYTES + 8, best);
        store_f32(out + i * CALIBRATION_POINT_BYTES + 12, p->reads);
    }
}

int build_calibrate(struct build *b, uint8_t **out, size_t *bytes)
{
    struct calibration *c = calloc(1, sizeof *c);
    int rc = c ? 0 : QUIRE_ENOMEM;
    *out = NULL;
    *bytes = 0;
    if (rc < 0 || b->n < ROWS_MIN) {
        free(c);
        return rc;
    }
    c->b = b;
    if ((rc = choose_held_out(c)) < 0 || (rc = build_write_blocks(b, c->bitmap)) < 0 ||
        (rc = build_write_meta(b, NULL, 0)) < 0 || (rc = compute_truth(c)) < 0 || (rc = search_ladder(c)) < 0 ||
        (rc = remove_file(b, BLOCKS_NAME)) < 0 || (rc = remove_file(b, META_NAME)) < 0)
        goto out;
    *bytes = c->n_points * CALIBRATION_POINT_BYTES;
    *out = malloc(*bytes + 1);
    if (*out)
        encode_points(c, *out);
    else
        rc = QUIRE_ENOMEM;
out:
    free(c->held);
    free(c->bitmap);
    free(c->truth);
    free(c->queries);
    free(c->requests);
    free(c);
    return rc;
}
