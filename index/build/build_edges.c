/*
 * build_edges.c - the graph as a build keeps it: edges of each row, and for each row those that lead to it.
 *
 * Edges come from neighbours.c in the order of rows and are read in that order, so that a file serves as well as
 * memory. Reverse edges are the same numbers sorted by target. They are counted first; then each run of targets whose
 * reverse edges fit in memory takes one pass over all edges (one run without a budget). A pass reads 4 x degree bytes
 * per row, sequentially, which is little against finding them; an external sort would write and read twice as much.
 *
 * A row that many lead to (a hub) keeps the first `degree` of them; blocks would not use more.
 *
 * A build that may be resumed notes every few seconds how many groups have their edges in the file.
 */
#include "index/build/build_priv.h"
#include "io/array.h"
#include "io/error.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define ALPHA          1.5f
#define MEMBERS_WANTED 1700u /* rows measured per row when looking for neighbours */
#define MEMBERS_BRIEF  1000u /* the same in a seal (docs/performance.md: recall .002 to .004 lower at equal effort) */
#define MEMBERS_KNOWN  500u  /* of a row whose edges in another index are known */
#define GROUPS_MIN     4u
#define GROUPS_MAX     48u

void build_edges_fini(struct edges *edges)
{
    array_free_all(edges->ids, edges->reverse_at, edges->reverse);
    fs_close(edges->ids_file);
    fs_close(edges->reverse_file);
    memset(edges, 0, sizeof *edges);
}

struct neighbours_config build_neighbours_config(const struct build *b)
{
    bool brief = b->merge && b->merge->brief && !b->merge->whole_edges;
    uint32_t capacity = b->params.slots_per_block, groups = (brief ? MEMBERS_BRIEF : MEMBERS_WANTED) / capacity;
    uint32_t known = MEMBERS_KNOWN / capacity;
    groups = groups < GROUPS_MIN ? GROUPS_MIN : groups > GROUPS_MAX ? GROUPS_MAX : groups;
    known = known < GROUPS_MIN ? GROUPS_MIN : known > groups ? groups : known;
    return (struct neighbours_config){.capacity = capacity,
                                      .degree = b->options.degree,
                                      .pool = b->options.build_beam,
                                      .groups = groups,
                                      .groups_known = known,
                                      .alpha = ALPHA,
                                      .threads = b->options.threads,
                                      .offload = build_device(b, BUILD_NEIGHBOURS)};
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

static int load_rows(void *context, uint32_t first, uint32_t n, struct rows *to, uint32_t at)
{
    struct build *b = context;
    return row_store_read(&b->rows, first, n, to, at, NULL);
}

static int put_edges(void *context, uint32_t first, uint32_t n, const uint32_t *ids)
{
    struct build *b = context;
    struct edges *e = &b->edges;
    size_t bytes = sizeof *ids * n * e->degree, at = sizeof *ids * first * (size_t)e->degree;
    int rc = 0;
    if (e->ids)
        memcpy((uint8_t *)e->ids + at, ids, bytes);
    if (e->ids_file)
        rc = fs_write_exact(e->ids_file, ids, bytes, at, b->err);
    if (rc == 0 && b->options.resume && build_state_is_old(b)) {
        b->state.linked_groups = (first + n) / b->params.slots_per_block;
        rc = fs_sync(b->edges.ids_file, b->err);
        if (rc == 0)
            rc = build_save_state(b, STAGE_ROWS);
    }
    return rc;
}

/* Memory or a file for the edges, and those that an earlier run has found. */
static int open_edges(struct build *b)
{
    struct edges *e = &b->edges;
    bool resumed = b->state.linked_groups > 0;
    size_t row = sizeof(uint32_t) * b->options.degree;
    assert(!e->ids && !e->ids_file && b->state.linked_groups <= b->params.n_blocks);
    int rc = 0;
    e->degree = b->options.degree;
    if (!b->plan.in_files) {
        e->ids = malloc(row * b->n);
        rc = e->ids ? 0 : QUIRE_ENOMEM;
    }
    if (rc == 0 && !resumed)
        rc = build_remove_file(b, WORK_EDGES);
    if (rc == 0 && (b->plan.in_files || b->options.resume))
        rc = build_open_work(b, WORK_EDGES, resumed ? FS_WRITE : FS_WRITE | FS_CREATE | FS_EXCLUSIVE, &e->ids_file);
    if (rc < 0 || !resumed || !e->ids)
        return rc;
    uint64_t rows = (uint64_t)b->state.linked_groups * b->params.slots_per_block;
    return fs_read_exact(e->ids_file, e->ids, row * (rows < b->n ? rows : b->n), 0, b->err);
}

/* ---- edges known before ------------------------------------------------------------------------------------------ */

static uint32_t known_edges(void *context, uint32_t row, const uint32_t **candidates)
{
    const struct build *b = context;
    const struct build_known *known = b->merge->known;
    uint32_t input = b->order[row];
    if (input >= known->n_rows)
        return NEIGHBOUR_NONE;
    uint32_t list = known->list_of[input];
    *candidates = known->targets + known->at[list];
    return (uint32_t)(known->at[list + 1] - known->at[list]);
}

int build_edges(struct build *b)
{
    struct neighbours_config config = build_neighbours_config(b);
    struct neighbours_rows rows = {.n = b->n,
                                   .code_dim = b->space.code_dim,
                                   .all = b->plan.in_files ? NULL : &b->rows.rows,
                                   .most = b->plan.graph_rows,
                                   .load = load_rows,
                                   .put = put_edges,
                                   .context = b};
    struct progress progress;
    assert(b->step == STEP_CENTRES && !build_is_lists(b));
    int rc = open_edges(b);
    if (rc == 0 && b->merge && b->merge->known) {
        struct build_known *known = b->merge->known;
        uint32_t *places = malloc(sizeof *places * b->n); /* rows of the input become rows of the index */
        for (uint32_t row = 0; places && row < b->n; row++)
            places[b->order[row]] = row;
        for (uint64_t i = 0; places && i < known->n_targets; i++)
            if (known->targets[i] != NEIGHBOUR_NONE)
                known->targets[i] = places[known->targets[i]];
        rows.known = known_edges;
        rc = places ? 0 : QUIRE_ENOMEM;
        free(places);
    }
    if (rc < 0 || b->state.linked_groups >= b->params.n_blocks)
        return rc;
    build_progress(b, "graph", &progress);
    rc = neighbours_build(&rows, b->state.linked_groups, b->centres, &config, &progress);
    b->state.linked_groups = b->params.n_blocks;
    return rc == 0 && b->options.resume ? fs_sync(b->edges.ids_file, b->err) : rc;
}

/* ---- reverse ----------------------------------------------------------------------------------------------------- */

/* Calls body for all edges, a batch of rows at a time. */
static int each_edges(struct build *b, uint32_t *buffer, uint32_t most,
                      void (*body)(void *context, uint32_t first, uint32_t n, const uint32_t *ids), void *context)
{
    const struct edges *e = &b->edges;
    for (uint32_t at = 0; at < b->n;) {
        uint32_t n = b->n - at < most ? b->n - at : most;
        const uint32_t *ids = e->ids ? e->ids + (size_t)at * e->degree : buffer;
        size_t row = sizeof *ids * e->degree;
        int rc = e->ids ? 0 : fs_read_exact(e->ids_file, buffer, n * row, at * row, b->err);
        if (rc < 0)
            return rc;
        body(context, at, n, ids);
        at += n;
    }
    return 0;
}

struct reverse_job {
    const struct edges *edges;
    uint32_t *counts; /* shifted by one; all rows */
    uint32_t first, end;
    uint32_t *next; /* of each target of the run: place of its next edge, within the run */
    uint32_t *to;
};

static void count_edges(void *context, uint32_t first, uint32_t n, const uint32_t *ids)
{
    struct reverse_job *job = context;
    uint32_t degree = job->edges->degree;
    (void)first;
    for (size_t i = 0; i < (size_t)n * degree; i++)
        if (ids[i] != NEIGHBOUR_NONE && job->counts[ids[i] + 1] < degree)
            job->counts[ids[i] + 1]++;
}

static void turn_edges(void *context, uint32_t first, uint32_t n, const uint32_t *ids)
{
    struct reverse_job *job = context;
    const uint32_t *at = job->edges->reverse_at;
    uint32_t degree = job->edges->degree, width = job->end - job->first, base = at[job->first];
    for (size_t i = 0; i < (size_t)n * degree; i++) {
        uint32_t target = ids[i] - job->first;
        if (target < width && job->next[target] < at[ids[i] + 1] - base)
            job->to[job->next[target]++] = first + (uint32_t)(i / degree);
    }
}

static int turn_run(struct build *b, struct reverse_job *job, uint32_t *buffer, uint32_t most)
{
    struct edges *e = &b->edges;
    uint32_t begin = e->reverse_at[job->first], n = e->reverse_at[job->end] - begin;
    job->to = e->reverse ? e->reverse + begin : malloc(sizeof(uint32_t) * ((size_t)n + 1));
    job->next = malloc(sizeof(uint32_t) * (job->end - job->first));
    int rc = job->to && job->next ? 0 : QUIRE_ENOMEM;
    for (uint32_t t = job->first; rc == 0 && t < job->end; t++)
        job->next[t - job->first] = e->reverse_at[t] - begin;
    if (rc == 0)
        rc = each_edges(b, buffer, most, turn_edges, job);
    if (rc == 0 && e->reverse_file)
        rc = fs_write_exact(e->reverse_file, job->to, sizeof(uint32_t) * n, sizeof(uint32_t) * (uint64_t)begin, b->err);
    if (!e->reverse)
        free(job->to);
    free(job->next);
    return rc;
}

int build_reverse(struct build *b)
{
    struct edges *e = &b->edges;
    uint32_t most = build_batch_rows(b, sizeof(uint32_t) * e->degree);
    assert(!e->reverse_at && (e->ids || e->ids_file));
    uint32_t *buffer = e->ids ? NULL : malloc(sizeof(uint32_t) * most * e->degree);
    e->reverse_at = calloc((size_t)b->n + 1, sizeof(uint32_t));
    int rc = e->reverse_at && (e->ids || buffer) ? build_remove_file(b, WORK_REVERSE) : QUIRE_ENOMEM;
    if (rc == 0 && !e->ids)
        rc = build_open_work(b, WORK_REVERSE, FS_WRITE | FS_CREATE | FS_EXCLUSIVE, &e->reverse_file);
    struct reverse_job job = {.edges = e, .counts = e->reverse_at};
    if (rc == 0)
        rc = each_edges(b, buffer, most, count_edges, &job);
    for (uint32_t row = 0; rc == 0 && row < b->n; row++)
        e->reverse_at[row + 1] += e->reverse_at[row];
    if (rc == 0 && e->ids) {
        e->reverse = malloc(sizeof(uint32_t) * ((size_t)e->reverse_at[b->n] + 1));
        rc = e->reverse ? 0 : QUIRE_ENOMEM;
    }
    for (const uint32_t *at = e->reverse_at; rc == 0 && job.first < b->n; job.first = job.end) {
        /* the run of targets whose reverse edges fit in memory, one at least */
        uint32_t fit = b->plan.reverse_edges;
        job.end = job.first + 1;
        while (job.end < b->n && at[job.end + 1] - at[job.first] <= fit && job.end - job.first < fit)
            job.end++;
        rc = turn_run(b, &job, buffer, most);
        if (rc == 0)
            rc = build_report(b, "turn edges", job.end, b->n);
    }
    free(buffer);
    return rc;
}

/* ---- parts ------------------------------------------------------------------------------------------------------- */

int build_edges_part_init(const struct build *b, uint32_t n, struct edges_part *part)
{
    *part = (struct edges_part){.degree = b->edges.degree};
    for (int i = 0; i < 2 && !b->edges.ids; i++) {
        part->buffers[i] = malloc(sizeof(uint32_t) * n * part->degree);
        if (!part->buffers[i]) {
            build_edges_part_fini(part);
            return QUIRE_ENOMEM;
        }
    }
    return 0;
}

void build_edges_part_fini(struct edges_part *part)
{
    array_free_all(part->buffers[0], part->buffers[1]);
    part->buffers[0] = part->buffers[1] = NULL;
}

int build_edges_part_load(const struct build *b, uint32_t first, uint32_t n, struct edges_part *part)
{
    const struct edges *e = &b->edges;
    size_t row = sizeof(uint32_t) * e->degree;
    assert(e->reverse_at && first + (uint64_t)n <= b->n && (e->ids || part->buffers[1]));
    part->first = first;
    part->reverse_at = e->reverse_at + first;
    if (e->ids) {
        part->ids = e->ids + (size_t)first * e->degree;
        part->reverse = e->reverse + part->reverse_at[0];
        return 0;
    }
    part->ids = part->buffers[0];
    part->reverse = part->buffers[1];
    int rc = fs_read_exact(e->ids_file, part->buffers[0], n * row, first * row, b->err);
    return rc < 0 ? rc
                  : fs_read_exact(e->reverse_file, part->buffers[1],
                                  sizeof(uint32_t) * (part->reverse_at[n] - part->reverse_at[0]),
                                  sizeof(uint32_t) * (uint64_t)part->reverse_at[0], b->err);
}
