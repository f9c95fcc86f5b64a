/*
 * collection_export.c - all elements of a snapshot, and puts of elements that come from elsewhere.
 *
 * A row of a memtable may be looked at inside an epoch only, and a visit may take long: so each is copied, and visited
 * outside. Rows of segments come from one pass over their blocks; the stored form is their unit code as it lies there,
 * if it is of the collection's own rotation, and otherwise made of their numbers, or of what their codes stand for.
 *
 * Imported keys are as good as sure to be new; but bytes from outside may name one twice, and an element that lived in
 * two places would break every promise of a collection. So the filters of the segments are asked, which may have been
 * sealed since the import began, and where one of them says "perhaps", the disk.
 */
#include "index/collection/collection_export.h"
#include "index/build/merge.h"
#include "index/collection/collection_priv.h"
#include "index/format/format.h"
#include "index/search/search_lane.h"
#include "index/segment/segment_view.h"
#include "index/vector/space.h"
#include "index/vector/unit_code.h"
#include "io/array.h"
#include "io/error.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- export ------------------------------------------------------------------------------------------------------ */

struct collection_export {
    struct collection *collection;
    struct collection_snapshot *snapshot;
    const struct part *part;
    int (*visit)(void *context, const struct exported_element *element);
    void *context;
    void *elements; /* a vector in the type of the collection; owned, as all below */
    void *exact;    /* in that of its slots */
    float *floats;
    uint8_t *stored, *key, *text;
    uint32_t text_capacity;
    struct grant *grants; /* GRANTS_MAX */
    struct quire_error *err;
};

uint32_t collection_stored_bytes(const struct collection *c)
{
    return memtable_stored_bytes(&c->table_config);
}

uint8_t *collection_export_shape(const struct collection *c, uint32_t *n_bytes)
{
    uint8_t *bytes = collection_record_create(c, n_bytes);
    if (bytes)
        memset(bytes, 0, 8); /* the number of the collection */
    return bytes;
}

/* From numbers of one type to those of another. */
static void convert(struct collection_export *x, enum quire_type from, const void *numbers, enum quire_type to,
                    void *out)
{
    uint32_t dim = x->collection->config.dim;
    if (from == to) {
        memcpy(out, numbers, dim * quire_type_bytes(to));
        return;
    }
    space_floats(from, numbers, dim, x->floats);
    space_elements(to, x->floats, dim, out);
}

/* Whether memtables, and segments with unit codes, keep codes and no vectors (unit_code.h). */
static bool keeps_codes(const struct collection *c)
{
    return c->config.metric == QUIRE_METRIC_COSINE && collection_slot(&c->config) == QUIRE_SLOT_Q8;
}

/* The stored form where that is a code; otherwise x->exact, out of x->elements. */
static void make_exact(struct collection_export *x, struct exported_element *element)
{
    const struct collection_config *config = &x->collection->config;
    enum quire_slot slot = collection_slot(config);
    if (keeps_codes(x->collection)) {
        element->exact = x->stored;
        element->exact_bytes = collection_stored_bytes(x->collection);
        return;
    }
    if (slot == QUIRE_SLOT_Q8)
        return;
    enum quire_type type = format_slot_type(slot);
    convert(x, config->type, x->elements, type, x->exact);
    element->exact = x->exact;
    element->exact_bytes = config->dim * (uint32_t)quire_type_bytes(type);
}

/* The grants of a text that hold; *is_void: it has some, and none holds. */
static int take_text(struct collection_export *x, const void *text, uint32_t bytes, struct exported_element *out,
                     bool *is_void)
{
    const char *json;
    uint32_t at = 0, n_grants = 0;
    struct grant grant;
    *is_void = false;
    if (grants_split(text, bytes, &json, &out->attribute_bytes, &n_grants) < 0)
        return error_set(x->err, QUIRE_ECORRUPT, "the grants of an element are damaged: VCHECK lists what is");
    out->attributes = out->attribute_bytes ? json : NULL;
    out->grants = x->grants;
    while (grants_next(text, bytes, &at, &grant) && out->n_grants < GRANTS_MAX)
        if (grant.generation == collection_tenant_generation(x->collection, grant.name, grant.bytes))
            x->grants[out->n_grants++] = grant;
    *is_void = n_grants > 0 && out->n_grants == 0;
    return 0;
}

static int give(struct collection_export *x, const void *key, uint32_t key_bytes, const void *text, uint32_t text_bytes)
{
    struct exported_element element = {.key = key, .key_bytes = key_bytes, .stored = x->stored};
    bool is_void;
    int rc = take_text(x, text, text_bytes, &element, &is_void);
    if (rc == 0)
        make_exact(x, &element);
    return rc < 0 || is_void ? rc : x->visit(x->context, &element);
}

static int on_sealed(void *context, const struct scanned_row *row)
{
    struct collection_export *x = context;
    const struct memtable *table = x->snapshot->view->memtables[0]->memtable;
    const struct segment_params *p = &x->part->segment->params;
    enum quire_slot slot = p->slot;
    if (p->unit_codes && p->seed == x->collection->config.seed && keeps_codes(x->collection)) {
        assert(p->code_dim + UNIT_CODE_FACTOR_BYTES == collection_stored_bytes(x->collection));
        memcpy(x->stored, row->slot, p->code_dim);
        memcpy(x->stored + p->code_dim, row->factors, UNIT_CODE_FACTOR_BYTES);
        return give(x, row->key, row->key_bytes, row->attributes, row->attribute_bytes);
    }
    if (slot == QUIRE_SLOT_Q8)
        convert(x, QUIRE_TYPE_F32, row->vector, x->collection->config.type, x->elements);
    else
        convert(x, format_slot_type(slot), row->slot, x->collection->config.type, x->elements);
    if (memtable_stored(table, x->elements, x->stored) < 0)
        return error_set(x->err, QUIRE_ENOMEM, "no memory for a vector");
    return give(x, row->key, row->key_bytes, row->attributes, row->attribute_bytes);
}

/* 1: copied; 0: the row is not of this moment. *key_bytes and *text_bytes: of x->key and x->text. */
static int copy_row(struct collection_export *x, const struct memtable *memtable, uint32_t number, uint32_t *key_bytes,
                    uint32_t *text_bytes)
{
    struct epochs *epochs = x->collection->host->epochs;
    struct memtable_row row;
    unsigned epoch = epoch_enter(epochs);
    int rc = memtable_row_at(memtable, number, x->snapshot->lsn, &row);
    if (rc && row.attribute_bytes && !array_reserve(&x->text, &x->text_capacity, row.attribute_bytes))
        rc = QUIRE_ENOMEM;
    if (rc > 0) {
        memtable_row_stored(memtable, number, x->stored);
        if (!keeps_codes(x->collection)) /* then it is the elements */
            memcpy(x->elements, x->stored, x->collection->config.dim * quire_type_bytes(x->collection->config.type));
        memcpy(x->key, row.key, row.key_bytes);
        if (row.attribute_bytes)
            memcpy(x->text, row.attributes, row.attribute_bytes);
        *key_bytes = row.key_bytes;
        *text_bytes = row.attribute_bytes;
    }
    epoch_exit(epochs, epoch);
    return rc < 0 ? error_set(x->err, rc, "no memory for an element's attributes") : rc;
}

static int export_memtable(struct collection_export *x, const struct memtable *memtable)
{
    uint32_t rows = view_memtable_rows(memtable), key_bytes = 0, text_bytes = 0;
    int rc = 0;
    for (uint32_t i = 0; i < rows && rc == 0; i++) {
        int copied = copy_row(x, memtable, i, &key_bytes, &text_bytes);
        rc = copied > 0 ? give(x, x->key, key_bytes, text_bytes ? x->text : NULL, text_bytes) : copied;
    }
    return rc;
}

void collection_export_end(struct collection_export *x)
{
    if (!x)
        return;
    collection_snapshot_close(x->snapshot);
    array_free_all(x->elements, x->exact, x->floats, x->stored, x->key, x->grants, x->text, x);
}

int collection_export_begin(struct collection *c, int (*visit)(void *context, const struct exported_element *element),
                            void *context, struct collection_export **out, struct quire_error *err)
{
    struct collection_export *x = calloc(1, sizeof *x);
    if (!x)
        return error_set(err, QUIRE_ENOMEM, "no memory to go through a collection");
    x->collection = c;
    x->visit = visit;
    x->context = context;
    x->elements = malloc(sizeof(float) * c->config.dim);
    x->exact = malloc(sizeof(float) * c->config.dim);
    x->floats = malloc(sizeof(float) * c->config.dim);
    x->stored = malloc(collection_stored_bytes(c));
    x->key = malloc(QUIRE_KEY_BYTES_MAX);
    x->grants = malloc(GRANTS_MAX * sizeof *x->grants);
    int rc = x->elements && x->exact && x->floats && x->stored && x->key && x->grants
                 ? collection_snapshot_open(c, &x->snapshot, err)
                 : error_set(err, QUIRE_ENOMEM, "no memory to go through a collection");
    if (rc < 0)
        collection_export_end(x);
    else
        *out = x;
    return rc;
}

int collection_export_memory(struct collection_export *x, struct quire_error *err)
{
    const struct view *view = x->snapshot->view;
    int rc = 0;
    x->err = err;
    for (uint32_t i = 0; i < view->n_memtables && rc == 0; i++)
        rc = export_memtable(x, view->memtables[i]->memtable);
    return rc;
}

bool collection_export_has_sealed(const struct collection_export *x)
{
    return x->snapshot->view->n_parts > 0;
}

int collection_export_sealed(struct collection_export *x, struct quire_error *err)
{
    const struct view *view = x->snapshot->view;
    int rc = 0;
    x->err = err;
    for (uint32_t i = 0; i < view->n_parts && rc == 0; i++) {
        x->part = view->parts[i];
        rc = segment_scan(x->part->segment, x->snapshot->tombstones.dead[i], on_sealed, NULL, x, err);
    }
    return rc;
}

int collection_export_all(struct collection *c, int (*visit)(void *context, const struct exported_element *element),
                          void *context, struct quire_error *err)
{
    struct collection_export *x = NULL;
    int rc = collection_export_begin(c, visit, context, &x, err);
    if (rc == 0)
        rc = collection_export_memory(x, err);
    if (rc == 0)
        rc = collection_export_sealed(x, err);
    collection_export_end(x);
    return rc;
}

/* ---- import ------------------------------------------------------------------------------------------------------ */

struct collection_import {
    struct collection *collection; /* a reference */
    struct search_lane *lane;      /* made when it is first needed */
};

int collection_import_shape(const uint8_t *bytes, uint32_t n, struct collection_config *config,
                            struct attribute_schema **schema, struct quire_error *err)
{
    uint64_t uid;
    return collection_record_config(RECORD_CREATE, bytes, n, &uid, config, schema, err);
}

int collection_import_begin(struct collection *c, struct collection_import **out, struct quire_error *err)
{
    struct collection_import *import = calloc(1, sizeof *import);
    if (!import)
        return error_set(err, QUIRE_ENOMEM, "no memory to bring elements into a collection");
    import->collection = collection_ref(c);
    *out = import;
    return 0;
}

void collection_import_end(struct collection_import *import)
{
    if (!import)
        return;
    search_lane_destroy(import->lane);
    collection_unref(import->collection);
    free(import);
}

static void on_fetch(struct collection_fetch *fetch)
{
    *(bool *)fetch->owner = true;
}

static int locate(struct collection_import *import, const struct exported_element *element, struct located *out,
                  struct quire_error *err)
{
    bool done = false;
    struct collection_fetch fetch = {.collection = import->collection,
                                     .key = element->key,
                                     .key_bytes = element->key_bytes,
                                     .done = on_fetch,
                                     .owner = &done};
    if (collection_locate_now(import->collection, element->key, element->key_bytes, out))
        return 0;
    int rc = import->lane ? 0 : search_lane_create(QUIRE_ENGINE_AUTO, 0, 1, &import->lane, err);
    if (rc == 0)
        rc = collection_fetch_start(import->lane->searcher, &fetch, err);
    if (rc < 0)
        return rc;
    search_lane_run(import->lane, &done);
    if (fetch.code < 0 && fetch.code != QUIRE_ENOTFOUND)
        return error_set(err, fetch.code, "%s", fetch.error.message);
    *out = fetch.located;
    return 0;
}

int collection_import_element(struct collection_import *import, const struct exported_element *element,
                              struct quire_error *err)
{
    struct collection_put put = {.key = element->key,
                                 .key_bytes = element->key_bytes,
                                 .vector = element->stored,
                                 .is_stored = true,
                                 .attributes = element->attributes,
                                 .attribute_bytes = element->attribute_bytes,
                                 .grants = element->grants,
                                 .n_grants = element->n_grants,
                                 .condition = PUT_ONLY_NEW};
    int rc = collection_check_key(element->key_bytes, err);
    if (rc < 0)
        return rc;
    do {
        rc = locate(import, element, &put.located, err);
        if (rc == 0)
            rc = collection_put(import->collection, &put, err);
    } while (rc == QUIRE_ESTALE);
    if (rc == 0 && put.lsn == 0)
        rc = error_set(err, QUIRE_EEXISTS, "element %.*s is there twice",
                       element->key_bytes > 100 ? 100 : (int)element->key_bytes, (const char *)element->key);
    return rc;
}
