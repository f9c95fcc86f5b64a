/*
 * aggregation_values.c - see aggregation_values.h.
 *
 * Some documents at a time: their values are brought into the hashes, and copied from there; what the lane has brought
 * may go then. A copy that is gone before it was taken, since another lane had brought it, is asked for again.
 */
#include "server/document/aggregation_values.h"
#include "document/pipeline/pipeline.h"
#include "io/array.h"
#include "io/error.h"
#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS_AT_ONCE = 64, BYTES_MAX = 128 << 20 };

struct aggregation_value {
    uint64_t row;
    size_t at; /* in bytes: of the field's name, then the value */
    uint32_t field_bytes, value_bytes;
};

static int no_memory(struct quire_error *err)
{
    return error_set(err, QUIRE_ENOMEM, "no memory for the vectors of an aggregation");
}

static void take_field(void *context, struct schema_word field)
{
    struct aggregation_values *v = context;
    const struct schema *schema = v->call->schema;
    for (uint32_t i = 0; i < schema->n_fields; i++) {
        const struct schema_field *f = &schema->fields[i];
        if (f->type != SCHEMA_VECTOR && f->identifier_bytes == field.bytes &&
            memcmp(f->identifier, field.data, field.bytes) == 0)
            return; /* what is no vector is in its hash */
    }
    if (array_reserve(&v->fields, &v->fields_capacity, v->n_fields + (size_t)1))
        v->fields[v->n_fields++] = (struct resp_arg){(const uint8_t *)field.data, field.bytes};
    else
        v->failed = true;
}

static void take_value(struct aggregation_values *v, struct resp_arg field, struct resp_arg value)
{
    if (v->failed || !array_reserve(&v->values, &v->values_capacity, v->n + 1) ||
        !array_reserve(&v->bytes, &v->capacity, v->n_bytes + field.bytes + value.bytes)) {
        v->failed = true;
        return;
    }
    v->values[v->n++] = (struct aggregation_value){v->row, v->n_bytes, field.bytes, value.bytes};
    memcpy(v->bytes + v->n_bytes, field.data, field.bytes);
    memcpy(v->bytes + v->n_bytes + field.bytes, value.data, value.bytes);
    v->n_bytes += field.bytes + (size_t)value.bytes;
}

static void take_if_wanted(void *context, struct resp_arg field, struct resp_arg value)
{
    struct aggregation_values *v = context;
    bool wanted = v->all;
    for (uint32_t i = 0; i < v->n_fields && !wanted; i++)
        wanted = v->fields[i].bytes == field.bytes && memcmp(v->fields[i].data, field.data, field.bytes) == 0;
    if (wanted && value.data)
        take_value(v, field, value);
}

/* Has the document of a row, if it is still there, and is a hash. */
static bool load(struct aggregation_values *v, uint64_t row)
{
    struct query_call *call = v->call;
    struct resp_arg key;
    return query_call_key(call, call->search.ids[row], &key) &&
           document_load(&call->loaded, call->lane->service, key, call->schema->source);
}

static bool bring(struct aggregation_values *v)
{
    return document_load_bring(&v->call->loaded, &v->wait, v->all ? NULL : v->fields, v->n_fields);
}

static void finish(struct aggregation_values *v, int code, const struct quire_error *err)
{
    key_values_release(v->call->lane);
    v->call = NULL;
    v->ready(v, code, err);
}

/* Takes what has been brought, and brings the next. */
static void go_on(struct aggregation_values *v)
{
    struct quire_error err = {0};
    uint64_t n = v->call->search.n;
    bool whole = v->call->pending.caller->whole;
    int late = 0;
    for (unsigned i = 0; v->row < n && v->wait.n == 0 && (whole || i < ROWS_AT_ONCE); i++) {
        if (i % ROWS_AT_ONCE == 0 && (late = document_search_in_time(v->call->search.deadline_us, &err)) < 0)
            break;
        for (; v->brought < n && v->brought < v->row + ROWS_AT_ONCE; v->brought++)
            if (load(v, v->brought)) {
                bring(v);
                document_load_end(&v->call->loaded);
            }
        if (v->wait.n > 0 || v->wait.code < 0)
            break;
        bool there = true;
        if (load(v, v->row)) {
            there = bring(v);
            if (there)
                hash_each_away(v->call->loaded.kept.entry->hash, take_if_wanted, v);
            document_load_end(&v->call->loaded);
        }
        v->row += there;
        if (v->failed || v->n_bytes > BYTES_MAX)
            break;
    }
    int code = v->wait.code < 0 ? v->wait.code : late;
    if (v->failed)
        code = no_memory(&err);
    else if (v->n_bytes > BYTES_MAX)
        code =
            error_set(&err, QUIRE_ELIMIT,
                      "the vectors that LOAD names of %llu documents take more than %u MiB: narrow the query, or load "
                      "other fields",
                      (unsigned long long)n, BYTES_MAX >> 20);
    else if (v->wait.code < 0)
        err = v->wait.error;
    if (v->wait.n > 0)
        return; /* on_values goes on */
    if (code < 0 || v->row == n || v->call->pending.caller->gone)
        finish(v, code, &err);
    else
        slice_post(v->call->lane, &v->call->slice);
}

static void run(struct slice *slice)
{
    struct query_call *call = (struct query_call *)(void *)((char *)slice - offsetof(struct query_call, slice));
    go_on(call->values);
}

static void on_values(struct values_wait *wait)
{
    struct aggregation_values *v =
        (struct aggregation_values *)(void *)((char *)wait - offsetof(struct aggregation_values, wait));
    slice_post(v->call->lane, &v->call->slice);
}

void aggregation_values_start(struct aggregation_values *v, struct query_call *call, const struct pipeline *pipeline)
{
    struct quire_error err = {0};
    v->call = call;
    v->wait = (struct values_wait){.lane = call->lane, .come = on_values};
    key_values_hold(call->lane);
    const struct service *service = call->lane->service;
    if (call->schema->source == SCHEMA_HASH && service->keeper->lends && documents_have_vectors(service->documents))
        pipeline_each_field(pipeline, take_field, v, &v->all);
    if (v->failed) {
        finish(v, no_memory(&err), &err);
        return;
    }
    if (!v->all && v->n_fields == 0) {
        finish(v, 0, &err);
        return;
    }
    call->values = v;
    call->slice.run = run;
    go_on(v);
}

bool aggregation_values_find(const struct aggregation_values *v, uint64_t row, struct schema_word field,
                             struct schema_word *value)
{
    uint64_t at;
    array_find_first(at, 0, v->n, v->values[at].row < row);
    for (; at < v->n && v->values[at].row == row; at++) {
        const struct aggregation_value *one = &v->values[at];
        if (one->field_bytes != field.bytes || memcmp(v->bytes + one->at, field.data, field.bytes) != 0)
            continue;
        *value = (struct schema_word){(const char *)v->bytes + one->at + one->field_bytes, one->value_bytes};
        return true;
    }
    return false;
}

void aggregation_values_fini(struct aggregation_values *v)
{
    assert(v->wait.n == 0);
    array_free_all(v->fields, v->bytes, v->values);
    memset(v, 0, sizeof *v);
}
