/*
 * collection_scan.c - all elements that a filter and a scope leave, for counting and for removals by filter.
 *
 * As of the moment it begins (collection_snapshot.c), so that each is visited once whatever is written meanwhile. Of a
 * sealed segment the selection of its columns is taken; where that is the answer, a count reads nothing. Otherwise the
 * rows are read: one by one on the lane, some at a time, or, where they are more than the segment has blocks, by going
 * through all of it once (segment_scan). Attributes are read only where the filter must be asked about them.
 *
 * Whoever visits may write to the collection: keys are copied, and no lock and no epoch is held.
 */
#include "index/attribute/filter.h"
#include "index/build/merge.h"
#include "index/collection/collection_priv.h"
#include "index/collection/part_numbers.h"
#include "index/search/search_lane.h"
#include "index/segment/segment_view.h"
#include "index/segment/selection.h"
#include "io/bitmap.h"
#include "io/error.h"
#include "io/memory.h"
#include <stdlib.h>
#include <string.h>

#define FETCHES 16u

struct scan_work {
    struct collection_scan *scan;
    struct tenant_scope *scope; /* owned */
    struct collection_snapshot *snapshot;
    const struct part *part;
    uint8_t *rows; /* that are to be looked at: a bitmap; owned */
    bool residual;
    struct located located;
    struct search_lane *lane;
    struct row_fetch {
        struct fetch_request request;
        struct scan_work *work;
        bool busy;
    } fetches[FETCHES];
    unsigned n_busy;
    bool has_ended; /* of the fetches one */
    int code;
    struct quire_error *err;
};

static int take(struct scan_work *s, const void *key, uint32_t key_bytes)
{
    s->scan->n++;
    return s->scan->want_keys && s->scan->visit ? s->scan->visit(s->scan->context, key, key_bytes, &s->located) : 0;
}

/* ---- rows of a segment, one by one ------------------------------------------------------------------------------- */

static void on_row(struct fetch_request *fetch)
{
    struct row_fetch *f = fetch->owner;
    struct scan_work *s = f->work;
    assert(f->busy && s->n_busy > 0);
    f->busy = false;
    s->n_busy--;
    s->has_ended = true;
    s->scan->reads += fetch->reads;
    if (s->code != 0)
        return;
    if (fetch->code < 0) {
        s->code = error_set(s->err, fetch->code, "%s", fetch->error.message);
        return;
    }
    s->located.row = fetch->row;
    if (!s->residual || collection_text_matches(s->scan->filter, fetch->attributes, fetch->attributes_bytes,
                                                fetch->found_key, fetch->found_key_bytes))
        s->code = take(s, fetch->found_key, fetch->found_key_bytes);
}

static void start_row(struct scan_work *s, struct row_fetch *f, uint32_t row)
{
    assert(!f->busy && s->n_busy < FETCHES);
    f->work = s;
    f->busy = true;
    s->n_busy++;
    f->request = (struct fetch_request){.segment = s->part->segment,
                                        .row = row,
                                        .want_key = true,
                                        .want_attributes = s->residual,
                                        .done = on_row,
                                        .owner = f};
    int rc = fetch_start(s->lane->searcher, &f->request, s->err);
    if (rc == 0)
        return;
    f->busy = false;
    s->n_busy--;
    s->code = rc;
}

static int fetch_rows(struct scan_work *s)
{
    uint64_t next = 0, n = segment_info(s->part->segment)->rows;
    while ((s->code == 0 && next < n) || s->n_busy > 0) {
        s->has_ended = false;
        for (unsigned i = 0; i < FETCHES; i++)
            while (s->code == 0 && next < n && !s->fetches[i].busy) {
                if (bitmap_has(s->rows, (uint32_t)next))
                    start_row(s, &s->fetches[i], (uint32_t)next);
                next++;
            }
        if (s->n_busy > 0)
            search_lane_run(s->lane, &s->has_ended);
    }
    return s->code;
}

/* ---- a segment --------------------------------------------------------------------------------------------------- */

static int on_scanned(void *context, const struct scanned_row *row)
{
    struct scan_work *s = context;
    s->located.row = row->row;
    if (s->residual &&
        !collection_text_matches(s->scan->filter, row->attributes, row->attribute_bytes, row->key, row->key_bytes))
        return 0;
    return take(s, row->key, row->key_bytes);
}

static int visit_part(struct scan_work *s, const struct selection *selection, const uint8_t *dead)
{
    const struct segment_info *info = segment_info(s->part->segment);
    s->residual = selection && selection->residual;
    if (!s->residual && !s->scan->want_keys) {
        uint64_t living = 0;
        for (uint64_t row = 0; !selection && row < info->rows; row++)
            living += !bitmap_has(dead, (uint32_t)row);
        s->scan->n += selection ? selection_living(selection, dead) : living;
        return 0;
    }
    size_t bytes = (size_t)(info->rows + 7) / 8 + 1;
    uint64_t n = 0; /* rows that live and, with a selection, are in it */
    s->rows = calloc(1, bytes);
    if (!s->rows)
        return error_set(s->err, QUIRE_ENOMEM, "no memory to go through a segment");
    for (uint64_t row = 0; row < info->rows; row++)
        if (!bitmap_has(dead, (uint32_t)row) && (!selection || selection_has(selection, (uint32_t)row))) {
            bitmap_add(s->rows, (uint32_t)row);
            n++;
        }
    int rc = n > 0 && n <= info->n_blocks ? fetch_rows(s) : 0;
    if (n > info->n_blocks) { /* all of it forward; what is not to be looked at is passed for dead */
        for (size_t i = 0; i < bytes; i++)
            s->rows[i] = (uint8_t)~s->rows[i];
        rc = segment_scan(s->part->segment, s->rows, on_scanned, NULL, s, s->err);
    }
    assert(s->n_busy == 0);
    free(s->rows);
    s->rows = NULL;
    return rc;
}

/* ---- memtables --------------------------------------------------------------------------------------------------- */

/* key: space for one. */
static int scan_table(struct scan_work *s, const struct memtable *memtable, uint8_t *key)
{
    struct epochs *epochs = s->scan->collection->host->epochs;
    uint32_t rows = view_memtable_rows(memtable);
    int rc = 0;
    s->located.segment_uid = 0;
    for (uint32_t i = 0; i < rows && rc == 0; i++) {
        struct memtable_row row;
        unsigned epoch = epoch_enter(epochs);
        bool found =
            memtable_row_at(memtable, i, s->snapshot->lsn, &row) &&
            grants_allow(row.attributes, row.attribute_bytes, s->scope) &&
            collection_text_matches(s->scan->filter, row.attributes, row.attribute_bytes, row.key, row.key_bytes);
        if (found)
            memcpy(key, row.key, row.key_bytes);
        epoch_exit(epochs, epoch);
        if (found)
            rc = take(s, key, row.key_bytes);
    }
    return rc;
}

static int scan_all(struct scan_work *s)
{
    const struct view *view = s->snapshot->view;
    uint8_t *key = malloc(QUIRE_KEY_BYTES_MAX);
    int rc = key ? 0 : error_set(s->err, QUIRE_ENOMEM, "no memory for a key");
    s->located = (struct located){.generation = view->generation, .seen_lsn = s->snapshot->lsn};
    for (uint32_t i = 0; rc == 0 && i < view->n_parts; i++) {
        struct selection *selection = NULL;
        s->part = view->parts[i];
        s->located.segment_uid = s->part->uid;
        if (s->scan->filter || s->scope)
            rc = selection_of(s->part->segment, s->scan->filter, s->scope, NULL, &selection, s->err);
        if (rc == 0)
            rc = visit_part(s, selection, s->snapshot->tombstones.dead[i]);
        selection_unref(selection);
    }
    for (uint32_t i = 0; rc == 0 && i < view->n_memtables; i++)
        rc = scan_table(s, view->memtables[i]->memtable, key);
    free(key);
    return rc;
}

int collection_scan(struct search_lane *lane, struct collection_scan *scan, struct quire_error *err)
{
    struct scan_work *s = calloc(1, sizeof *s);
    scan->n = scan->reads = 0;
    if (!s || collection_scope_resolve(scan->collection, scan->scope, &s->scope, err) < 0) {
        free(s);
        return error_set(err, QUIRE_ENOMEM, "no memory to go through a collection");
    }
    s->scan = scan;
    s->lane = lane;
    s->err = err;
    int rc = collection_snapshot_open(scan->collection, &s->snapshot, err);
    if (rc == 0)
        rc = scan_all(s);
    collection_snapshot_close(s->snapshot);
    free(s->scope);
    free(s);
    return rc;
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

struct name_visit {
    int (*visit)(void *context, const void *name, uint32_t bytes);
    void *context;
};

static int on_table_row(void *context, const struct memtable *memtable, uint32_t number, const struct memtable_row *row)
{
    const struct name_visit *v = context;
    (void)memtable, (void)number;
    return v->visit(v->context, row->key, row->key_bytes);
}

static int on_part_row(void *context, uint32_t row, const void *name, uint32_t bytes)
{
    const struct name_visit *v = context;
    (void)row;
    return v->visit(v->context, name, bytes);
}

int collection_each_name(struct collection *c, int (*visit)(void *context, const void *name, uint32_t bytes),
                         void *context, struct quire_error *err)
{
    struct name_visit v = {visit, context};
    struct view *view = collection_view(c);
    assert(c->config.numbered);
    int rc = view_each_row(view, c->host->epochs, MEMTABLE_LSN_MAX - 1, on_table_row, &v);
    for (uint32_t i = 0; rc == 0 && i < view->n_parts; i++)
        rc = part_each_name(view->parts[i], on_part_row, &v, err);
    view_unref(view);
    return rc;
}
