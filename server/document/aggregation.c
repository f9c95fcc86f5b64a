/*
 * aggregation.c - see aggregation.h.
 *
 * The pipeline asks for several fields of a document one after the other, so its key is held from the first of them
 * until another document is asked for, or until the lane turns to something else.
 */
#include "server/document/aggregation.h"
#include "io/array.h"
#include "io/error.h"
#include <assert.h>
#include <math.h>
#include <roaring/roaring.h>
#include <stdlib.h>
#include <string.h>

/* Of the values that one aggregation keeps: groups, rows to be sorted. */
enum { RUN_BYTES_MAX = 128 << 20 };

struct aggregation_field {
    const struct pipeline_wanted *wanted;
    struct document_getter getter;
};

static void let_go(struct aggregation *a)
{
    if (a->is_loaded)
        document_load_end(&a->loaded);
    a->is_loaded = false;
}

/* ---- the source of the pipeline ---------------------------------------------------------------------------------- */

static int next_row(void *context, uint64_t *id, struct quire_error *err)
{
    struct aggregation *a = context;
    (void)err;
    let_go(a);
    if (a->row == a->search.n)
        return 0;
    *id = a->row++;
    return 1;
}

static int gone(struct quire_error *err)
{
    return error_set(err, QUIRE_ENOTFOUND, "the document is gone");
}

/* Lets go of another document than that of this row. Behind a SORTBY, rows are asked for in any order. */
static void turn_to(struct aggregation *a, uint64_t row)
{
    assert(row < a->row);
    if (a->held != row)
        let_go(a);
}

/* Holds the document of a row. */
static int hold(struct aggregation *a, uint64_t row, struct quire_error *err)
{
    uint32_t bytes;
    turn_to(a, row);
    if (a->is_loaded)
        return 0;
    a->held = row;
    if (!document_index_key(a->index, a->search.ids[row], a->key, &bytes))
        return gone(err);
    a->is_loaded = document_load(&a->loaded, a->service, (struct resp_arg){a->key, bytes}, a->schema->source);
    return a->is_loaded ? 0 : gone(err);
}

static int getter_of(struct aggregation *a, const struct pipeline_wanted *wanted, struct document_getter **out,
                     struct quire_error *err)
{
    for (uint32_t i = 0; i < a->n_fields; i++)
        if (a->fields[i].wanted == wanted) {
            *out = &a->fields[i].getter;
            return 0;
        }
    if (!array_reserve(&a->fields, &a->fields_capacity, a->n_fields + (size_t)1))
        return error_set(err, QUIRE_ENOMEM, "no memory for an aggregation");
    struct schema_word name = wanted->field ? (struct schema_word){wanted->field->name, wanted->field->name_bytes}
                                            : (struct schema_word){wanted->name, wanted->name_bytes};
    int rc = document_getter_init(&a->fields[a->n_fields].getter, a->schema, name, err);
    if (rc < 0)
        return rc;
    a->fields[a->n_fields].wanted = wanted;
    *out = &a->fields[a->n_fields++].getter;
    return 0;
}

static int give_string(struct datum_pool *pool, const void *text, size_t bytes, struct datum **value,
                       struct quire_error *err)
{
    *value = datum_string(pool, text, bytes);
    return *value ? 0 : pipeline_no_value(pool, err);
}

static int give_number(struct datum_pool *pool, double number, struct datum **value, struct quire_error *err)
{
    *value = NULL;
    if (isnan(number))
        return 0;
    *value = datum_number(pool, number);
    return *value ? 0 : pipeline_no_value(pool, err);
}

static int load_key(struct aggregation *a, uint64_t row, struct datum_pool *pool, struct datum **value,
                    struct quire_error *err)
{
    uint32_t bytes;
    turn_to(a, row); /* its key is in a->key */
    if (!document_index_key(a->index, a->search.ids[row], a->key, &bytes))
        return gone(err);
    return give_string(pool, a->key, bytes, value, err);
}

/* The words of the query that the document has, each once; NULL: none. */
static int load_terms(const struct aggregation *a, uint64_t row, uint32_t most, struct datum_pool *pool,
                      struct datum **value, struct quire_error *err)
{
    const struct document_terms *terms = a->terms;
    const struct query_text *found[DOCUMENT_TERMS_MAX];
    uint32_t n = 0;
    for (uint32_t i = 0; i < terms->n && n < most; i++) {
        bool again = !roaring_bitmap_contains(terms->documents[i], a->search.ids[row]);
        for (uint32_t j = 0; j < n && !again; j++)
            again = found[j]->bytes == terms->words[i].bytes &&
                    memcmp(found[j]->data, terms->words[i].data, found[j]->bytes) == 0;
        if (!again)
            found[n++] = &terms->words[i];
    }
    if (n == 0)
        return 0;
    *value = datum_array(pool, n);
    for (uint32_t i = 0; i < n && *value; i++) {
        datum_items(*value)[i] = datum_string(pool, found[i]->data, found[i]->bytes);
        if (datum_items(*value)[i])
            continue;
        datum_release(pool, *value);
        *value = NULL;
    }
    return *value ? 0 : pipeline_no_value(pool, err);
}

static int load(void *context, uint64_t row, const struct pipeline_wanted *wanted, struct datum_pool *pool,
                struct datum **value, struct quire_error *err)
{
    struct aggregation *a = context;
    struct document_getter *getter = NULL;
    struct schema_word word;
    int rc = 0;
    *value = NULL;
    switch (wanted->origin) {
    case PIPELINE_KEY:
        return load_key(a, row, pool, value, err);
    case PIPELINE_SCORE:
        return give_number(pool, a->search.scores ? a->search.scores[row] : 0, value, err);
    case PIPELINE_YIELD:
        return give_number(pool, a->search.yields[wanted->yield].values[row], value, err);
    case PIPELINE_TERMS:
        return load_terms(a, row, wanted->most, pool, value, err);
    case PIPELINE_FIELD:
        rc = getter_of(a, wanted, &getter, err);
        if (rc == 0)
            rc = hold(a, row, err);
        if (rc == 0 && document_load_value(&a->loaded, getter, &word) &&
            (word.data || word.bytes == 0 || aggregation_values_find(&a->values, row, getter->source, &word)))
            rc = give_string(pool, word.data, word.bytes, value, err);
        return rc;
    }
    return rc;
}

struct all_fields {
    struct aggregation *aggregation;
    uint64_t row;
    struct pipeline_run *run;
    int code;
    struct quire_error *err;
};

static void put_field(void *context, struct resp_arg field, struct resp_arg text)
{
    struct all_fields *all = context;
    struct datum *value = NULL;
    struct schema_word word = {(const char *)text.data, text.bytes};
    if (all->code < 0)
        return;
    if (!text.data && text.bytes > 0 &&
        !aggregation_values_find(&all->aggregation->values, all->row,
                                 (struct schema_word){(const char *)field.data, field.bytes}, &word)) {
        all->code = gone(all->err); /* it is another one since it was found */
        return;
    }
    all->code = give_string(pipeline_run_pool(all->run), word.data, word.bytes, &value, all->err);
    if (all->code == 0)
        all->code = pipeline_run_put(all->run, (const char *)field.data, field.bytes, value);
}

static int load_all(void *context, uint64_t row, struct pipeline_run *run, struct quire_error *err)
{
    struct aggregation *a = context;
    struct all_fields all = {a, row, run, hold(a, row, err), err};
    if (all.code < 0)
        return all.code;
    struct schema_word text;
    if (a->loaded.kept.view.source == SCHEMA_HASH)
        document_load_each(&a->loaded, put_field, &all);
    else if (document_load_whole(&a->loaded, &text))
        put_field(&all, (struct resp_arg){(const uint8_t *)"$", 1},
                  (struct resp_arg){(const uint8_t *)text.data, text.bytes});
    else
        all.code = error_set(err, QUIRE_ENOMEM, "no memory for the text of a document");
    return all.code;
}

/* ---- create and destroy ------------------------------------------------------------------------------------------ */

int aggregation_create(struct query_call *call, struct pipeline *pipeline, struct aggregation **out,
                       struct quire_error *err)
{
    struct pipeline_limits limits = {.bytes_max = RUN_BYTES_MAX};
    struct aggregation *a = calloc(1, sizeof *a);
    struct pipeline_source source = {.context = a, .next = next_row, .load = load, .load_all = load_all};
    bool wants_terms = pipeline_uses_terms(pipeline);
    int rc = error_set(err, QUIRE_ENOMEM, "no memory for an aggregation");
    if (a && (!wants_terms || (a->terms = calloc(1, sizeof *a->terms))))
        rc = pipeline_run_create(pipeline, &source, &limits, &a->run, err);
    if (rc == 0 && wants_terms)
        rc = document_search_terms(call->index, call->query, a->terms, err);
    if (rc < 0) {
        if (a) {
            pipeline_run_destroy(a->run);
            free(a->terms);
        }
        free(a);
        return rc;
    }
    a->service = call->lane->service;
    a->arena = call->arena;
    a->index = call->index;
    a->schema = call->schema;
    a->query = call->query;
    a->search = call->search;
    a->pipeline = pipeline;
    /* what was moved is the call's no more */
    call->arena = (struct arena){0};
    call->words = NULL;
    call->key = NULL;
    call->index = NULL;
    call->query = NULL;
    call->search = (struct document_search){0};
    *out = a;
    return 0;
}

void aggregation_destroy(struct aggregation *a)
{
    if (!a)
        return;
    let_go(a);
    pipeline_run_destroy(a->run);
    if (a->terms)
        document_terms_fini(a->terms);
    free(a->terms);
    pipeline_free(a->pipeline);
    for (uint32_t i = 0; i < a->n_fields; i++)
        document_getter_fini(&a->fields[i].getter);
    free(a->fields);
    document_search_fini(&a->search);
    document_loaded_fini(&a->loaded);
    aggregation_values_fini(&a->values);
    query_free(a->query);
    document_index_unref(a->index);
    arena_fini(&a->arena);
    free(a);
}

uint64_t aggregation_bytes(const struct aggregation *a)
{
    uint64_t columns = a->search.n_yields + (a->search.scores != NULL);
    return a->search.n * (sizeof *a->search.ids + columns * sizeof(double)) + pipeline_run_pool(a->run)->bytes +
           a->values.capacity;
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

int aggregation_next(struct aggregation *a, uint32_t *budget, struct quire_error *err)
{
    int rc = pipeline_run_next(a->run, budget, err);
    let_go(a);
    return rc;
}

static void put_datum(struct resp_buffer *out, const struct datum *value)
{
    char text[DATUM_PRINT_MAX];
    if (!value) {
        resp_null(out);
        return;
    }
    switch (value->kind) {
    case DATUM_NULL:
        resp_null(out);
        break;
    case DATUM_NUMBER:
        resp_bulk(out, text, datum_print(value->number, text));
        break;
    case DATUM_STRING:
        resp_bulk(out, datum_text(value), value->n);
        break;
    case DATUM_ARRAY:
        resp_array(out, value->n);
        for (uint32_t i = 0; i < value->n; i++)
            put_datum(out, datum_items(value)[i]); /* arrays are not nested */
        break;
    }
}

void aggregation_put_row(const struct aggregation *a, bool maps, struct resp_buffer *out)
{
    const struct pipeline_cell *cells;
    uint32_t n = pipeline_run_cells(a->run, &cells);
    if (maps) {
        resp_map(out, 2);
        resp_text(out, "extra_attributes");
        resp_map(out, n);
    } else {
        resp_array(out, 2 * (size_t)n);
    }
    for (uint32_t i = 0; i < n; i++) {
        resp_bulk(out, cells[i].name, cells[i].name_bytes);
        put_datum(out, cells[i].value);
    }
    if (maps) {
        resp_text(out, "values");
        resp_array(out, 0);
    }
}

void aggregation_put_rows(const struct aggregation *a, bool maps, struct resp_buffer *rows, uint64_t n,
                          struct resp_buffer *out)
{
    long long total = (long long)pipeline_run_total(a->run);
    if (maps) {
        resp_map(out, 5);
        resp_text(out, "attributes");
        resp_array(out, 0);
        resp_text(out, "warning");
        resp_array(out, 0);
        resp_field(out, "total_results", total);
        resp_text(out, "format");
        resp_text(out, "STRING");
        resp_text(out, "results");
        resp_array(out, n);
    } else {
        resp_array(out, 1 + n);
        resp_integer(out, total);
    }
    resp_take(out, rows);
}
