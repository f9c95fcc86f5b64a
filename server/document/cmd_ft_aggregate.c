/*
 * cmd_ft_aggregate.c - FT.AGGREGATE and FT.CURSOR: rows out of what a query has found, some in each turn of the lane.
 */
#include "io/error.h"
#include "server/document/cmd_documents.h"
#include "server/document/cursors.h"
#include <assert.h>
#include <roaring/roaring.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS_AT_ONCE = 200, READ_ROWS = 1000 };

/* Rows for one reply: of FT.AGGREGATE, or of FT.CURSOR READ. */
struct reading {
    struct aggregation *aggregation;
    struct resp_buffer rows;
    uint64_t n, most; /* most: 0: all */
    uint64_t deadline_us;
    bool maps, ended;
};

struct aggregate_call {
    struct query_call base;           /* first */
    struct pipeline *pipeline;        /* until the aggregation has it */
    roaring_bitmap_t *only;           /* owned */
    struct aggregation_values values; /* until the aggregation has them */
    struct reading reading;
};

struct read_call {
    struct pending pending;
    struct slice slice;
    struct lane *lane;
    struct reading reading;
};

/* One turn: 1: there is more to do in the next one; 0: the reply's rows are there; or an error. */
static int read_some(struct reading *r, bool whole, struct quire_error *err)
{
    for (uint32_t budget = ROWS_AT_ONCE; !r->rows.failed;) {
        int rc = aggregation_next(r->aggregation, &budget, err), late = document_search_in_time(r->deadline_us, err);
        if (rc < 0 || late < 0)
            return rc < 0 ? rc : late;
        if (rc == PIPELINE_END) {
            r->ended = true;
            return 0;
        }
        if (rc == PIPELINE_ROW) {
            aggregation_put_row(r->aggregation, r->maps, &r->rows);
            if (++r->n == r->most)
                return 0;
        }
        if (rc == PIPELINE_PAUSED && !whole)
            return 1;
        if (rc == PIPELINE_PAUSED)
            budget = ROWS_AT_ONCE;
    }
    return 0; /* the buffer has failed: the client is closed */
}

/* ---- FT.AGGREGATE ------------------------------------------------------------------------------------------------ */

static void fini(struct query_call *base)
{
    struct aggregate_call *call = (struct aggregate_call *)(void *)base;
    pipeline_free(call->pipeline);
    aggregation_destroy(call->reading.aggregation);
    if (call->only)
        roaring_bitmap_free(call->only);
    resp_buffer_fini(&call->reading.rows);
    aggregation_values_fini(&call->values);
}

static void finish(struct aggregate_call *call)
{
    struct reading *r = &call->reading;
    struct aggregation *a = r->aggregation;
    struct resp_buffer *out = &call->base.pending.out;
    const struct pipeline_options *o = pipeline_options(a->pipeline);
    struct quire_error err = {0};
    uint64_t id = 0;
    if (o->with_cursor && !r->ended && !r->rows.failed && !call->base.pending.caller->gone) {
        a->idle_ms = o->cursor_idle_ms;
        a->rows_at_once = o->cursor_rows;
        if (cursors_add(call->base.lane->service->cursors, a, call->base.lane->now_ms, &err) < 0) {
            query_call_fail(&call->base, &err);
            return;
        }
        id = a->id;
    }
    if (o->with_cursor)
        resp_array(out, 2);
    aggregation_put_rows(a, r->maps, &r->rows, r->n, out);
    if (o->with_cursor)
        resp_integer(out, (long long)id);
    if (id)
        r->aggregation = NULL; /* the cursors' */
    query_call_end(&call->base);
}

static void aggregate_some(struct slice *slice)
{
    struct aggregate_call *call =
        (struct aggregate_call *)(void *)((char *)slice - offsetof(struct aggregate_call, base.slice));
    struct quire_error err = {0};
    int rc = read_some(&call->reading, call->base.pending.caller->whole, &err);
    if (rc < 0)
        query_call_fail(&call->base, &err);
    else if (rc > 0 && !call->base.pending.caller->gone)
        slice_post(call->base.lane, slice);
    else
        finish(call);
}

/* What its pipeline may load is there. */
static void on_values(struct aggregation_values *values, int code, const struct quire_error *why)
{
    struct aggregate_call *call =
        (struct aggregate_call *)(void *)((char *)values - offsetof(struct aggregate_call, values));
    struct query_call *base = &call->base;
    struct reading *r = &call->reading;
    const struct pipeline_options *o = pipeline_options(call->pipeline);
    struct quire_error err = {0};
    uint64_t deadline_us = base->search.deadline_us;
    if (code < 0) {
        query_call_fail(base, why);
        return;
    }
    if (aggregation_create(base, call->pipeline, &r->aggregation, &err) < 0) {
        query_call_fail(base, &err);
        return;
    }
    call->pipeline = NULL;
    r->aggregation->values = call->values;
    call->values = (struct aggregation_values){.n = 0};
    r->rows = resp_buffer_beside(&base->pending.out);
    r->maps = base->maps;
    r->most = o->with_cursor ? o->cursor_rows : 0;
    r->deadline_us = deadline_us;
    base->slice.run = aggregate_some;
    aggregate_some(&base->slice);
}

static void on_found(struct query_call *base)
{
    struct aggregate_call *call = (struct aggregate_call *)(void *)base;
    call->values.ready = on_values;
    aggregation_values_start(&call->values, base, call->pipeline);
}

static int plan(struct aggregate_call *call, struct quire_error *err)
{
    struct query_call *base = &call->base;
    struct query_text names[DOCUMENT_RANGES_MAX + 1];
    struct schema_word yields[DOCUMENT_RANGES_MAX + 1];
    uint32_t n_names = 0;
    int rc = pipeline_parse(base->words + 1, base->n_words - 1, 3, &call->pipeline, err);
    if (rc < 0)
        return rc;
    const struct pipeline_options *o = pipeline_options(call->pipeline);
    uint64_t text_fields = 0;
    rc =
        document_text_fields(base->schema, base->words, base->n_words, o->in_fields, o->n_in_fields, &text_fields, err);
    if (rc < 0)
        return rc;
    uint32_t language_position = o->language.bytes > 0 ? query_call_position(base, o->language.data) : 0;
    struct query_context context = {.schema = base->schema,
                                    .params = o->params,
                                    .n_params = o->n_params,
                                    .text_fields = text_fields,
                                    .verbatim = o->verbatim,
                                    .no_stopwords = o->no_stopwords,
                                    .language = o->language.bytes > 0 ? o->language.data : NULL, /* terminated */
                                    .language_position = language_position,
                                    .slop = o->slop,
                                    .in_order = o->in_order,
                                    .dialect = o->dialect ? o->dialect : 2};
    base->search.scorer = FIELDS_BM25STD;
    if (o->scorer.bytes > 0 && !fields_scorer_find(o->scorer.data, o->scorer.bytes, &base->search.scorer))
        return error_set(err, QUIRE_EINVALID, "No such scorer %.*s (position %u)",
                         o->scorer.bytes < 64 ? (int)o->scorer.bytes : 64, o->scorer.data,
                         query_call_position(base, o->scorer.data));
    base->search.scored = o->add_scores;
    if (o->timeout_ms > 0)
        base->search.deadline_us = clock_us() + 1000 * o->timeout_ms;
    rc = query_parse(&context, base->words[0].data, base->words[0].bytes, &base->query, err);
    if (rc == 0)
        rc = document_search_yields(base->query, base->schema, names, &n_names, err);
    for (uint32_t i = 0; i < n_names && rc == 0; i++)
        yields[i] = (struct schema_word){names[i].data, names[i].bytes};
    struct pipeline_binding binding = {.schema = base->schema, .yields = yields, .n_yields = n_names};
    if (rc == 0)
        rc = pipeline_bind(call->pipeline, &binding, err);
    if (rc == 0 && o->in_keys_given && !(call->only = query_call_keys(base, o->in_keys, o->n_in_keys)))
        rc = error_set(err, QUIRE_ENOMEM, "no memory for an aggregation");
    base->search.only = call->only;
    return rc;
}

void cmd_ft_aggregate(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct quire_error err = {0};
    struct aggregate_call *call = query_call_begin(c, args, n, sizeof *call);
    if (!call)
        return;
    call->base.fini = fini;
    call->base.found = on_found;
    cursors_expire(c->lane->service->cursors, c->lane->now_ms);
    if (plan(call, &err) < 0) {
        query_call_fail(&call->base, &err);
        return;
    }
    const struct query_node *root = query_root(call->base.query);
    query_call_search(&call->base, root->kind == QUERY_KNN ? root->k : 0, root->kind == QUERY_KNN ? root->ef : 0);
}

/* ---- FT.CURSOR --------------------------------------------------------------------------------------------------- */

/* failed: *err says why. Otherwise it may hold what became of a document that was left out. */
static void end_read(struct read_call *call, bool failed, const struct quire_error *err)
{
    struct reading *r = &call->reading;
    struct resp_buffer *out = &call->pending.out;
    bool ended = r->ended || failed || r->rows.failed;
    if (failed) {
        document_error(out, err);
    } else {
        resp_array(out, 2);
        aggregation_put_rows(r->aggregation, r->maps, &r->rows, r->n, out);
        resp_integer(out, ended ? 0 : (long long)r->aggregation->id);
    }
    cursors_put(call->lane->service->cursors, r->aggregation, call->lane->now_ms, ended);
    resp_buffer_fini(&r->rows);
    caller_done(&call->pending);
}

static void read_on(struct slice *slice)
{
    struct read_call *call = (struct read_call *)(void *)((char *)slice - offsetof(struct read_call, slice));
    struct quire_error err = {0};
    int rc = read_some(&call->reading, call->pending.caller->whole, &err);
    if (rc > 0 && !call->pending.caller->gone)
        slice_post(call->lane, slice);
    else
        end_read(call, rc < 0, &err);
}

static void read_cursor(struct caller *c, struct aggregation *a, uint64_t most)
{
    struct read_call *call = caller_defer(c, sizeof *call, false);
    if (!call) {
        cursors_put(c->lane->service->cursors, a, c->lane->now_ms, false);
        return;
    }
    call->lane = c->lane;
    call->slice.run = read_on;
    call->slice.caller = c;
    call->reading = (struct reading){.aggregation = a,
                                     .rows = resp_buffer_beside(&call->pending.out),
                                     .most = most ? most : a->rows_at_once,
                                     .maps = document_wants_maps(c)};
    read_on(&call->slice);
}

/* FT.CURSOR READ index id [COUNT n]; FT.CURSOR DEL index id; FT.CURSOR GC index id */
void cmd_ft_cursor(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct cursors *cursors = c->lane->service->cursors;
    long long id, count = 0;
    bool read = arg_is(args[1], "READ"), del = arg_is(args[1], "DEL"), gc = arg_is(args[1], "GC");
    uint32_t wrong = !read && !del && !gc                                                        ? 1
                     : n > 4 && !(read && n == 6 && arg_is(args[4], "COUNT"))                    ? 4
                     : n > 4 && !(arg_integer(args[5], &count) && count > 0 && count <= 1000000) ? 5
                                                                                                 : 0;
    if (wrong > 0) {
        caller_error(c,
                     "ERR FT.CURSOR takes READ index id [COUNT 1 to 1000000], DEL index id, or GC index id ('%.*s' at "
                     "position %u)",
                     ARG_SHOWN(args[wrong], 64u), wrong);
        return;
    }
    if (!arg_integer(args[3], &id)) {
        caller_error(c, "ERR Bad cursor ID ('%.*s' at position 3)", ARG_SHOWN(args[3], 64u));
        return;
    }
    struct document_index *index = document_index_of(c, args[2]);
    if (!index)
        return;
    cursors_expire(cursors, c->lane->now_ms);
    struct aggregation *a = gc ? NULL : cursors_take(cursors, (uint64_t)id, index);
    document_index_unref(index);
    if (gc) {
        resp_integer(caller_reply(c), 0);
    } else if (!a) {
        caller_error(c, "ERR Cursor not found, id: %lld", id);
    } else if (del) {
        cursors_put(cursors, a, c->lane->now_ms, true);
        resp_simple(caller_reply(c), "OK");
    } else {
        read_cursor(c, a, (uint64_t)count);
    }
}
