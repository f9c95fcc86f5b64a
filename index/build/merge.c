/*
 * merge.c - merge_build: count, gather, build, and tell where each row has gone.
 *
 * The living rows of the segments and then those from memory are gathered in one pass (merge_rows.c) and built like any
 * input, with the rotation of the first segment. What the result holds of a vector comes from its slot: the elements
 * themselves, or a decoded 8-bit code, which is rounded again relative to another centre.
 *
 * The rows of the first segment bring the edges that they had (merge_edges.c), so that fewer groups are searched for
 * them, or their clusters (merge_clusters.c), so that only what changes is clustered again; and its calibration, of
 * which only the part that is asked for is measured again (calibrate.c). That is done where it is of the kind that is
 * built, and its living rows are half of it and half of all; otherwise everything is found anew.
 *
 * Memory: a budget is shared out. A quarter may hold vectors, the build gets the rest; what the process holds already
 * is no part of it, because in a server that is other people's.
 */
#include "index/build/merge.h"
#include "index/build/build.h"
#include "index/build/merge_priv.h"
#include "index/segment/segment_view.h"
#include "index/vector/unit_code.h"
#include "io/error.h"
#include "io/memory.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define VECTORS_SHARE  4u /* of a budget: one such part holds vectors, if they fit */
#define PROGRESS_EVERY 4096u

struct merge {
    const struct merge_segment *segments;
    uint32_t n_segments;
    const struct merge_rows *rows; /* NULL: none */
    const struct merge_options *options;
    struct io_fs *fs;
    struct merge_input input;
    enum quire_index_kind kind; /* of the result */
    bool reuses;                /* what is known of the rows of the first segment: */
    struct build_known known;   /* edges */
    struct clusters_known clusters;
    struct rotation rotation; /* of the result, where it has unit codes */
    uint64_t seed;
    float *rotated;             /* code_dim, with the rotation */
    struct merge_result result; /* rows_of: rows of the input first, then those of the index */
    uint32_t n;                 /* living rows */
    uint32_t part;              /* that is being gathered */
    struct quire_error *err;
};

/* ---- counting ---------------------------------------------------------------------------------------------------- */

static int count(struct merge *m)
{
    uint64_t n = m->rows ? m->rows->n : 0, first = 0;
    const struct merge_options *o = m->options;
    for (uint32_t p = 0; p < m->n_segments; p++) {
        const struct segment *s = m->segments[p].segment;
        if (s->params.dim != o->dim || s->params.metric != (uint32_t)o->build.metric)
            return error_set(m->err, QUIRE_EINVALID, "%s has %u dimensions and metric %s, the merge %u and %s",
                             s->info.path, s->params.dim, quire_metric_name((enum quire_metric)s->params.metric),
                             o->dim, quire_metric_name(o->build.metric));
        uint64_t living = s->params.rows;
        for (uint32_t row = 0, end = (uint32_t)living; m->segments[p].dead && row < end; row++)
            living -= bitmap_has(m->segments[p].dead, row);
        first = p == 0 ? living : first;
        n += living;
    }
    /* of fewer rows too little is known about the others' neighbours */
    m->reuses = m->n_segments > 0 && 2 * first >= n && 2 * first >= m->segments[0].segment->params.rows &&
                m->segments[0].segment->params.index == m->kind;
    m->result.reused_rows = m->reuses ? (uint32_t)first : 0;
    if (n > QUIRE_ROWS_MAX)
        return error_set(m->err, QUIRE_ELIMIT, "%llu rows: one segment holds at most %u", (unsigned long long)n,
                         QUIRE_ROWS_MAX);
    m->n = (uint32_t)n;
    return 0;
}

static uint32_t rows_of_part(const struct merge *m, uint32_t p)
{
    return p < m->n_segments ? (uint32_t)m->segments[p].segment->params.rows : m->rows->n;
}

static int alloc_result(struct merge *m)
{
    struct merge_result *r = &m->result;
    r->rows = m->n;
    r->n_parts = m->n_segments + (m->rows ? 1 : 0);
    r->rows_of = calloc((size_t)r->n_parts + 1, sizeof *r->rows_of);
    bool complete = r->rows_of != NULL;
    for (uint32_t p = 0; complete && p < r->n_parts; p++) {
        size_t bytes = sizeof(uint32_t) * rows_of_part(m, p);
        r->rows_of[p] = malloc(bytes + 1);
        complete = r->rows_of[p] != NULL;
        if (complete)
            memset(r->rows_of[p], 0xff, bytes);
    }
    return complete ? 0 : error_set(m->err, QUIRE_ENOMEM, "no memory for the places of %u rows", m->n);
}

void merge_result_fini(struct merge_result *result)
{
    for (uint32_t p = 0; result->rows_of && p < result->n_parts; p++)
        free(result->rows_of[p]);
    free(result->rows_of);
    memset(result, 0, sizeof *result);
}

/* ---- gathering --------------------------------------------------------------------------------------------------- */

static int report(const struct merge *m)
{
    const struct quire_build_options *o = &m->options->build;
    uint32_t done = m->input.n;
    if (!o->progress || (done % PROGRESS_EVERY && done != m->n))
        return 0;
    return o->progress(o->context, "gather", done, m->n) != 0
               ? error_set(m->err, QUIRE_ECANCELLED, "the merge was stopped; nothing was left behind")
               : 0;
}

/* The unit code of the row that was added last: a copy of that it had by the same rotation, or of its vector (code
 * NULL). What the build measures is what the code says. */
static void put_code(struct merge *m, const void *code, const void *factors)
{
    float *vector;
    uint32_t dim = m->options->dim, code_dim = m->rotation.dim;
    uint8_t *to = merge_input_code(&m->input, &vector);
    if (code) {
        memcpy(to, code, code_dim);
        memcpy(to + code_dim, factors, UNIT_CODE_FACTOR_BYTES);
        return;
    }
    unit_code_encode(&m->rotation, vector, dim, m->rotated, to, to + code_dim);
    unit_code_decode(&m->rotation, to, to + code_dim, dim, m->rotated, vector);
}

static int take_scanned(void *context, const struct scanned_row *row)
{
    struct merge *m = context;
    const struct segment_params *p = &m->segments[m->part].segment->params;
    uint32_t slot = p->slot;
    bool is_code = slot == QUIRE_SLOT_Q8;
    assert(m->result.rows_of[m->part][row->row] == UINT32_MAX); /* each row once */
    m->result.rows_of[m->part][row->row] = m->input.n;
    int rc =
        merge_input_add(&m->input, is_code ? row->vector : row->slot, is_code ? QUIRE_TYPE_F32 : format_slot_type(slot),
                        row->key, row->key_bytes, row->attributes, row->attribute_bytes, true, m->err);
    if (rc == 0 && m->options->unit_codes)
        put_code(m, p->unit_codes && p->seed == m->seed ? row->slot : NULL, row->factors);
    return rc == 0 ? report(m) : rc;
}

static bool reuses_edges(const struct merge *m)
{
    return m->reuses && m->kind == QUIRE_INDEX_PAGEGRAPH;
}

static int take_edges(void *context, const struct block_view *view)
{
    struct merge *m = context;
    return merge_edges_add(&m->known, m->segments[m->part].segment, view, m->err);
}

static int take_rows(struct merge *m)
{
    const struct merge_rows *rows = m->rows;
    size_t vector_bytes = m->options->dim * quire_type_bytes(rows->type);
    uint8_t *vector = malloc(build_row_bytes(m->options->dim, rows->type, rows->unit_codes));
    int rc = vector ? 0 : error_set(m->err, QUIRE_ENOMEM, "no memory for a vector");
    for (uint32_t i = 0; rc == 0 && i < rows->n; i++) {
        const void *key = NULL;
        const char *attributes = NULL;
        uint32_t key_bytes = 0, attribute_bytes = 0;
        rows->row(rows->context, i, vector, &key, &key_bytes, &attributes, &attribute_bytes);
        m->result.rows_of[m->part][i] = m->input.n;
        rc = merge_input_add(&m->input, vector, rows->type, key, key_bytes, attributes, attribute_bytes, false, m->err);
        if (rc == 0 && m->options->unit_codes) {
            const uint8_t *code = rows->unit_codes && rows->seed == m->seed ? vector + vector_bytes : NULL;
            put_code(m, code, code ? code + m->rotation.dim : NULL);
        }
        if (rc == 0)
            rc = report(m);
    }
    free(vector);
    return rc;
}

static int gather(struct merge *m)
{
    int rc = 0;
    for (m->part = 0; rc == 0 && m->part < m->n_segments; m->part++) {
        const struct merge_segment *part = &m->segments[m->part];
        struct quire_error err = {0};
        bool with_edges = reuses_edges(m) && m->part == 0;
        rc =
            segment_scan_blocks(part->segment, part->dead, take_scanned, with_edges ? take_edges : NULL, NULL, m, &err);
        if (rc < 0 && err.code < 0 && m->err)
            *m->err = err;
    }
    if (rc == 0 && reuses_edges(m))
        merge_edges_finish(&m->known, m->result.rows_of[0], rows_of_part(m, 0));
    if (rc == 0 && m->reuses && m->kind == QUIRE_INDEX_SPANN)
        rc = merge_clusters_init(&m->clusters, m->segments[0].segment, m->result.rows_of[0], m->n);
    return rc == 0 && m->rows ? take_rows(m) : rc;
}

/* ---- building ---------------------------------------------------------------------------------------------------- */

/* The elements themselves where slots hold those, floats otherwise. */
static enum quire_type kept_type(const struct merge_options *o)
{
    enum quire_slot slot = build_slot(o->build.slot, o->type);
    bool integers = slot == QUIRE_SLOT_U8 || slot == QUIRE_SLOT_I8;
    return integers && format_slot_type(slot) == o->type ? o->type : QUIRE_TYPE_F32;
}

/* What is left of the budget for the build, which counts the whole process. */
static uint64_t build_budget(const struct merge *m)
{
    struct memory_resident resident;
    uint64_t budget = m->options->build.build_memory_bytes;
    if (budget == 0)
        return 0;
    memory_resident(&resident);
    uint64_t held = m->known.n_targets * sizeof *m->known.targets + (uint64_t)m->known.n_rows * sizeof(uint32_t);
    held += m->clusters.cluster_of ? m->n * sizeof *m->clusters.cluster_of : 0;
    if (!m->input.file)
        held += m->n * m->input.row_bytes;
    return resident.total + (budget > held ? budget - held : 0);
}

static int build(struct merge *m, const char *path)
{
    struct quire_build_options options = m->options->build;
    struct quire_input input;
    struct build_merge merge = {.type = m->options->type,
                                .before = m->options->like,
                                .brief = m->options->brief,
                                .tenant_runs = m->options->tenant_runs,
                                .unit_codes = m->options->unit_codes};
    if (m->reuses) {
        merge.known = m->kind == QUIRE_INDEX_PAGEGRAPH ? &m->known : NULL;
        merge.clusters = m->kind == QUIRE_INDEX_SPANN ? &m->clusters : NULL;
        merge.before = m->segments[0].segment;
    }
    int rc = merge_input_finish(&m->input, &input, m->err);
    if (rc < 0)
        return rc;
    options.struct_bytes = sizeof options;
    options.index = m->kind;
    options.slot = build_slot(options.slot, m->options->type);
    options.seed = m->seed;
    options.keys = m->input.keys;
    options.key_bytes = m->input.key_bytes;
    options.attributes = m->input.any_attributes ? m->input.attributes : NULL;
    options.attribute_bytes = m->input.any_attributes ? m->input.attribute_bytes : NULL;
    options.build_memory_bytes = build_budget(m);
    options.resume = false;
    merge.places = malloc(sizeof *merge.places * m->n);
    assert(m->input.n == m->n);
    rc = merge.places ? build_merged(m->fs, path, &input, &options, &merge, m->err)
                      : error_set(m->err, QUIRE_ENOMEM, "no memory for the places of %u rows", m->n);
    for (uint32_t p = 0; rc == 0 && p < m->result.n_parts; p++)
        for (uint32_t row = 0, n = rows_of_part(m, p); row < n; row++) {
            uint32_t *at = &m->result.rows_of[p][row];
            assert(*at == UINT32_MAX || *at < m->n);
            if (*at != UINT32_MAX)
                *at = merge.places[*at];
        }
    free(merge.places);
    return rc;
}

static int init_codes(struct merge *m)
{
    assert(m->options->build.metric == QUIRE_METRIC_COSINE &&
           build_slot(m->options->build.slot, m->options->type) == QUIRE_SLOT_Q8);
    m->rotated = malloc(sizeof(float) * rotation_code_dim(m->options->dim));
    return m->rotated ? rotation_init(&m->rotation, rotation_code_dim(m->options->dim), m->seed) : QUIRE_ENOMEM;
}

int merge_build(const char *path, const struct merge_segment *segments, uint32_t n, const struct merge_rows *rows,
                const struct merge_options *options, struct merge_result *result, struct quire_error *err)
{
    struct merge m = {.segments = segments, .n_segments = n, .rows = rows, .options = options, .err = err};
    uint64_t budget = options->build.build_memory_bytes;
    m.kind = build_kind(options->build.index);
    m.seed = n > 0 ? segments[0].segment->params.seed : options->build.seed;
    m.fs = options->fs ? options->fs : fs_real();
    if (err)
        memset(err, 0, sizeof *err);
    int rc = count(&m);
    if (rc == 0)
        rc = alloc_result(&m);
    if (rc < 0 || m.n == 0)
        goto out;
    rc = merge_input_init(&m.input, m.fs, path, m.n, options->dim, kept_type(options), options->unit_codes,
                          budget ? budget / VECTORS_SHARE : UINT64_MAX, err);
    if (rc == 0 && options->unit_codes && init_codes(&m) < 0)
        rc = error_set(err, QUIRE_ENOMEM, "no memory for the rotation of %u dimensions", options->dim);
    if (rc == 0 && reuses_edges(&m) && merge_edges_init(&m.known, segments[0].segment) < 0)
        rc = error_set(err, QUIRE_ENOMEM, "no memory for the edges of %s", segments[0].segment->info.path);
    if (rc == 0)
        rc = gather(&m);
    if (rc == 0)
        rc = build(&m, path);
    merge_edges_fini(&m.known);
    merge_clusters_fini(&m.clusters);
    merge_input_fini(&m.input);
    rotation_fini(&m.rotation);
    free(m.rotated);
out:
    if (rc < 0)
        merge_result_fini(&m.result);
    else
        *result = m.result;
    if (rc < 0 && err && err->code == 0)
        error_set(err, rc, "%s: %s", path, quire_error_text(rc));
    return rc;
}
