/*
 * cmd_ft_search.c - FT.SEARCH: documents found, put in order, and shown.
 *
 *   1. options and query are read; errors are the reply
 *   2. query_call_search: which documents
 *   3. order: by SORTBY's value, which is read of every document; otherwise by distance, score or age. Some in each
 *      turn of the lane
 *   4. reply: the page that LIMIT says, some documents in each turn. One that is gone by now is left out
 */
#include "document/text/fold.h"
#include "io/error.h"
#include "server/document/cmd_documents.h"
#include "server/document/query_call.h"
#include "server/document/search_options.h"
#include "server/document/search_order.h"
#include <assert.h>
#include <math.h>
#include <roaring/roaring.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SORT_AT_ONCE = 500, SHOW_AT_ONCE = 50, SHOW_BYTES = 256 << 10, NUMBER_BYTES = 40 };

/* Where the values of SORTBY come from. */
enum sort_source { SORT_NOTHING, SORT_YIELD, SORT_SCORE, SORT_KEY, SORT_NUMBERS, SORT_FIELD };

/* A column of the reply. */
struct shown {
    struct schema_word as;
    struct document_getter getter;
    int yield; /* distance number so many; -1: a field */
    bool is_key;
};

struct search_call {
    struct query_call base; /* first */
    struct search_options options;
    struct query_node *filters; /* of FILTER and GEOFILTER */
    const struct query_node **also;
    roaring_bitmap_t *only; /* owned */
    enum sort_source sort;
    uint32_t sort_yield;
    struct document_getter sort_getter;
    struct search_order order;
    uint64_t row;        /* the next one to look at */
    struct shown *shown; /* of RETURN */
    uint32_t n_shown;
    struct resp_arg *needed; /* fields of hashes that RETURN shows */
    uint32_t n_needed;
    struct values_wait wait;
    uint64_t brought;                 /* values of rows below were brought */
    bool holds;                       /* the lane's copies */
    struct resp_buffer items, fields; /* of the reply: its documents; the fields of one */
    uint64_t n_items;
    struct tree_text folded;
};

static struct search_call *of_slice(struct slice *slice)
{
    return (struct search_call *)(void *)((char *)slice - offsetof(struct search_call, base.slice));
}

static void fini(struct query_call *base)
{
    struct search_call *call = (struct search_call *)(void *)base;
    if (call->holds)
        key_values_release(base->lane);
    search_options_fini(&call->options);
    search_order_fini(&call->order);
    document_getter_fini(&call->sort_getter);
    for (uint32_t i = 0; i < call->n_shown; i++)
        document_getter_fini(&call->shown[i].getter);
    if (call->only)
        roaring_bitmap_free(call->only);
    resp_buffer_fini(&call->items);
    resp_buffer_fini(&call->fields);
    tree_text_fini(&call->folded);
}

static int fail_memory(struct quire_error *err)
{
    return error_set(err, QUIRE_ENOMEM, "no memory for a search of documents");
}

static int in_time(const struct search_call *call, struct quire_error *err)
{
    return document_search_in_time(call->base.search.deadline_us, err);
}

/* ---- 4. the reply ------------------------------------------------------------------------------------------------ */

static void put_number(struct resp_buffer *out, double number)
{
    char text[NUMBER_BYTES];
    int n = snprintf(text, sizeof text, "%.12g", number);
    resp_bulk(out, text, (size_t)n);
}

static uint64_t row_at(const struct search_call *call, uint64_t place)
{
    return call->sort == SORT_NOTHING ? place : call->order.rows[place].row;
}

/* One pair of the fields of a document. */
struct pairs {
    struct search_call *call;
    size_t n;
};

static void put_hash_field(void *context, struct resp_arg field, struct resp_arg value)
{
    struct pairs *pairs = context;
    resp_bulk(&pairs->call->fields, field.data, field.bytes);
    resp_bulk(&pairs->call->fields, value.data, value.bytes);
    pairs->n++;
}

static void put_yields(struct pairs *pairs, uint64_t row)
{
    struct search_call *call = pairs->call;
    const struct document_search *s = &call->base.search;
    for (uint32_t i = 0; i < s->n_yields; i++) {
        if (isnan(s->yields[i].values[row]))
            continue;
        resp_bulk(&call->fields, s->yields[i].name.data, s->yields[i].name.bytes);
        put_number(&call->fields, s->yields[i].values[row]);
        pairs->n++;
    }
}

/* All fields, with distances before them; of JSON the text, and the field that the rows are sorted by. */
static void put_all(struct pairs *pairs, uint64_t row)
{
    struct search_call *call = pairs->call;
    struct document_loaded *loaded = &call->base.loaded;
    struct schema_word value;
    put_yields(pairs, row);
    if (loaded->kept.view.source == SCHEMA_HASH) {
        document_load_each(loaded, put_hash_field, pairs);
        return;
    }
    if (call->sort_getter.field && document_load_value(loaded, &call->sort_getter, &value)) {
        resp_text(&call->fields, call->sort_getter.field->name);
        resp_bulk(&call->fields, value.data, value.bytes);
        pairs->n++;
    }
    if (!document_load_whole(loaded, &value)) {
        call->fields.failed = true;
        return;
    }
    resp_text(&call->fields, "$");
    resp_bulk(&call->fields, value.data, value.bytes);
    pairs->n++;
}

static void put_returned(struct pairs *pairs, uint64_t row, struct resp_arg key)
{
    struct search_call *call = pairs->call;
    struct schema_word value;
    for (uint32_t i = 0; i < call->n_shown; i++) {
        const struct shown *shown = &call->shown[i];
        double distance = shown->yield >= 0 ? call->base.search.yields[shown->yield].values[row] : NAN;
        bool is_yield = shown->yield >= 0 && !isnan(distance);
        if (!is_yield && !shown->is_key &&
            (shown->yield >= 0 || !document_load_value(&call->base.loaded, &shown->getter, &value)))
            continue;
        resp_bulk(&call->fields, shown->as.data, shown->as.bytes);
        if (is_yield)
            put_number(&call->fields, distance);
        else if (shown->is_key)
            resp_bulk(&call->fields, key.data, key.bytes);
        else
            resp_bulk(&call->fields, value.data, value.bytes);
        pairs->n++;
    }
}

static void put_sort_key(struct search_call *call, struct resp_buffer *out, uint64_t place)
{
    char text[NUMBER_BYTES + 1];
    if (call->sort == SORT_NOTHING || call->order.rows[place].kind == ORDER_MISSING) {
        resp_null(out);
        return;
    }
    const struct search_row *row = &call->order.rows[place];
    if (row->kind == ORDER_NUMBER) {
        /* RediSearch has a number of a hash that is not SORTABLE from the hash it has loaded as a whole: as a text,
         * which it sorts as a number all the same */
        const struct search_options *o = &call->options;
        bool is_text = call->sort == SORT_NUMBERS && call->base.schema->source == SCHEMA_HASH &&
                       !call->sort_getter.field->sortable && !o->returns && !o->no_content;
        int n = snprintf(text, sizeof text, "%c%.17g", is_text ? '$' : '#', row->number);
        resp_bulk(out, text, (size_t)n);
        return;
    }
    resp_bulk_begin(out, row->bytes + (size_t)1);
    resp_raw(out, "$", 1);
    resp_raw(out, row->text, row->bytes);
    resp_raw(out, "\r\n", 2);
}

/* The entries of a document beside its fields; in RESP3 with their names. */
static void put_head(struct search_call *call, uint64_t place, struct resp_arg key)
{
    const struct search_options *o = &call->options;
    struct resp_buffer *out = &call->items;
    uint64_t row = row_at(call, place);
    double score = call->base.search.scores ? call->base.search.scores[row] : 0;
    if (call->base.maps) {
        resp_map(out, 2 + (size_t)o->with_scores + o->with_payloads + o->with_sort_keys + !o->no_content);
        resp_text(out, "id");
    }
    resp_bulk(out, key.data, key.bytes);
    if (o->with_scores) {
        if (call->base.maps)
            resp_text(out, "score");
        resp_double(out, score);
    }
    if (o->with_payloads) {
        if (call->base.maps)
            resp_text(out, "payload");
        resp_null(out);
    }
    if (o->with_sort_keys) {
        if (call->base.maps)
            resp_text(out, "sortkey");
        put_sort_key(call, out, place);
    }
}

static void put_fields(struct search_call *call, const struct pairs *pairs)
{
    struct resp_buffer *out = &call->items;
    if (call->base.maps) {
        resp_text(out, "extra_attributes");
        resp_map(out, pairs->n);
    } else {
        resp_array(out, 2 * pairs->n);
    }
    resp_raw(out, call->fields.data, call->fields.bytes);
}

/* Whether the values that are shown of a document are in memory; if not, they are being brought, or cannot be
 * (wait.code). It is loaded. */
static bool bring(struct search_call *call)
{
    struct document_loaded *loaded = &call->base.loaded;
    const struct resp_arg *needed = call->options.returns ? call->needed : NULL;
    return loaded->kept.view.source != SCHEMA_HASH || (needed && call->n_needed == 0) ||
           document_load_bring(loaded, &call->wait, needed, call->n_needed);
}

/* Those of some documents from here on. */
static void bring_some(struct search_call *call, uint64_t end)
{
    struct query_call *base = &call->base;
    struct resp_arg key;
    for (unsigned i = 0; i < SHOW_AT_ONCE && call->brought < end && call->wait.code == 0; i++, call->brought++) {
        if (!query_call_key(base, base->search.ids[row_at(call, call->brought)], &key) ||
            !document_load(&base->loaded, base->lane->service, key, base->schema->source))
            continue;
        bring(call);
        document_load_end(&base->loaded);
    }
}

static void on_values(struct values_wait *wait)
{
    struct search_call *call = (struct search_call *)(void *)((char *)wait - offsetof(struct search_call, wait));
    slice_post(call->base.lane, &call->base.slice);
}

/* False: values are missing that were there before; nothing was shown. */
static bool show(struct search_call *call, uint64_t place)
{
    struct query_call *base = &call->base;
    uint64_t row = row_at(call, place);
    struct pairs pairs = {call, 0};
    struct resp_arg key;
    if (!query_call_key(base, base->search.ids[row], &key))
        return true;
    if (!call->options.no_content) {
        call->fields.bytes = 0;
        if (!document_load(&base->loaded, base->lane->service, key, base->schema->source))
            return true; /* gone, or over */
        if (!bring(call)) {
            document_load_end(&base->loaded);
            return false;
        }
        if (call->options.returns)
            put_returned(&pairs, row, key);
        else
            put_all(&pairs, row);
        document_load_end(&base->loaded);
    }
    put_head(call, place, key);
    if (!call->options.no_content)
        put_fields(call, &pairs);
    if (base->maps) {
        resp_text(&call->items, "values");
        resp_array(&call->items, 0);
    }
    call->n_items++;
    return true;
}

static void finish(struct search_call *call)
{
    struct resp_buffer *out = &call->base.pending.out;
    const struct search_options *o = &call->options;
    uint64_t total = call->base.search.n;
    if (call->base.maps) {
        resp_map(out, 5);
        resp_text(out, "attributes");
        resp_array(out, 0);
        resp_text(out, "warning");
        resp_array(out, 0);
        resp_field(out, "total_results", (long long)total);
        resp_text(out, "format");
        resp_text(out, "STRING");
        resp_text(out, "results");
        resp_array(out, call->n_items);
    } else {
        size_t each = 1 + (size_t)o->with_scores + o->with_payloads + o->with_sort_keys + !o->no_content;
        resp_array(out, 1 + call->n_items * each);
        resp_integer(out, (long long)total);
    }
    resp_take(out, &call->items);
    query_call_end(&call->base);
}

static void show_some(struct slice *slice)
{
    struct search_call *call = of_slice(slice);
    const struct search_options *o = &call->options;
    uint64_t n = call->sort == SORT_NOTHING ? call->base.search.n : call->order.n;
    uint64_t end = o->offset + o->limit < n ? o->offset + o->limit : n;
    bool whole = call->base.pending.caller->whole;
    size_t began = call->items.bytes;
    struct quire_error err = {0};
    for (unsigned i = 0; call->row < end && (whole || i < SHOW_AT_ONCE); i++) {
        if (i % SHOW_AT_ONCE == 0 && in_time(call, &err) < 0) {
            query_call_fail(&call->base, &err);
            return;
        }
        if (call->items.failed || call->fields.failed || (!whole && call->items.bytes - began > SHOW_BYTES))
            break;
        if (!o->no_content && call->row >= call->brought) {
            call->brought = call->row;
            bring_some(call, end);
        }
        if (call->wait.n > 0)
            return; /* on_values goes on */
        if (call->wait.code < 0) {
            query_call_fail(&call->base, &call->wait.error);
            return;
        }
        if (show(call, call->row))
            call->row++;
        else
            i--; /* what it needs is being brought */
    }
    bool wanted = !call->items.failed && !call->fields.failed && !call->base.pending.caller->gone;
    if (call->row < end && wanted) {
        slice_post(call->base.lane, slice);
        return;
    }
    if (call->fields.failed && !call->items.failed) {
        fail_memory(&err);
        query_call_fail(&call->base, &err);
        return;
    }
    finish(call);
}

static void begin_reply(struct search_call *call)
{
    call->items = resp_buffer_beside(&call->base.pending.out);
    call->fields = resp_buffer_beside(&call->base.pending.out);
    call->row = call->brought = call->options.offset;
    call->wait = (struct values_wait){.lane = call->base.lane, .come = on_values};
    key_values_hold(call->base.lane);
    call->holds = true;
    call->base.slice.run = show_some;
    show_some(&call->base.slice);
}

/* ---- 3. order ---------------------------------------------------------------------------------------------------- */

/* A text as it is compared: in lower case, unless the field is UNF. */
static bool offer_text(struct search_call *call, uint64_t row, struct schema_word value)
{
    const struct schema_field *field = call->sort_getter.field;
    if (field && field->unf)
        return search_order_offer(&call->order, row, ORDER_TEXT, 0, value.data, value.bytes);
    size_t room = FOLD_ROOM(value.bytes) + 1;
    char *folded = call->folded.capacity >= room ? call->folded.data : realloc(call->folded.data, 2 * room);
    if (!folded)
        return false;
    if (call->folded.capacity < room)
        call->folded.capacity = 2 * room;
    call->folded.data = folded;
    uint32_t bytes = fold_text(value.data, value.bytes, folded);
    return search_order_offer(&call->order, row, ORDER_TEXT, 0, folded, bytes);
}

static bool offer_field(struct search_call *call, uint64_t row, struct resp_arg key)
{
    struct query_call *base = &call->base;
    struct document_getter *getter = &call->sort_getter;
    struct schema_word value;
    double number;
    bool fine = true;
    if (!document_load(&base->loaded, base->lane->service, key, base->schema->source))
        return true; /* gone: not in the answer */
    if (getter->field && getter->field->type == SCHEMA_NUMERIC && document_load_number(&base->loaded, getter, &number))
        fine = search_order_offer(&call->order, row, ORDER_NUMBER, number, NULL, 0);
    else if (document_load_value(&base->loaded, getter, &value))
        fine = offer_text(call, row, value);
    else
        fine = search_order_offer(&call->order, row, ORDER_MISSING, 0, NULL, 0);
    document_load_end(&base->loaded);
    return fine;
}

static bool offer(struct search_call *call, uint64_t row)
{
    struct query_call *base = &call->base;
    const struct document_search *s = &base->search;
    struct resp_arg key;
    double number = 0;
    switch (call->sort) {
    case SORT_YIELD:
        number = s->yields[call->sort_yield].values[row];
        return search_order_offer(&call->order, row, isnan(number) ? ORDER_MISSING : ORDER_NUMBER, number, NULL, 0);
    case SORT_SCORE:
        return search_order_offer(&call->order, row, ORDER_NUMBER, s->scores[row], NULL, 0);
    case SORT_NUMBERS:
        if (document_index_number(base->index, s->ids[row], call->sort_getter.field, &number))
            return search_order_offer(&call->order, row, ORDER_NUMBER, number, NULL, 0);
        return search_order_offer(&call->order, row, ORDER_MISSING, 0, NULL, 0);
    case SORT_KEY:
        if (!query_call_key(base, s->ids[row], &key))
            return true;
        return search_order_offer(&call->order, row, ORDER_TEXT, 0, (const char *)key.data, key.bytes);
    case SORT_FIELD:
        return !query_call_key(base, s->ids[row], &key) || offer_field(call, row, key);
    case SORT_NOTHING:
        break;
    }
    assert(call->sort != SORT_NOTHING);
    return true;
}

static void order_some(struct slice *slice)
{
    struct search_call *call = of_slice(slice);
    bool whole = call->base.pending.caller->whole;
    struct quire_error err = {0};
    int rc = 0;
    for (unsigned i = 0; rc == 0 && call->row < call->base.search.n && (whole || i < SORT_AT_ONCE); i++) {
        if (i % SORT_AT_ONCE == 0)
            rc = in_time(call, &err);
        if (rc == 0 && !offer(call, call->row++))
            rc = fail_memory(&err);
    }
    if (rc < 0) {
        query_call_fail(&call->base, &err);
        return;
    }
    if (call->row < call->base.search.n && !call->base.pending.caller->gone) {
        slice_post(call->base.lane, slice);
        return;
    }
    search_order_finish(&call->order);
    begin_reply(call);
}

/* The documents are there. */
static void on_found(struct query_call *base)
{
    struct search_call *call = (struct search_call *)(void *)base;
    const struct search_options *o = &call->options;
    if (call->sort == SORT_NOTHING && base->search.scores && !base->search.by_distance)
        call->sort = SORT_SCORE;
    if (call->sort == SORT_NOTHING || o->limit == 0) {
        begin_reply(call);
        return;
    }
    call->order.descending = call->sort == SORT_SCORE ? !o->descending : o->descending;
    if (o->sort_by.bytes > 0)
        call->order.descending = o->descending;
    call->order.most = o->offset + o->limit;
    call->base.slice.run = order_some;
    order_some(&call->base.slice);
}

/* ---- 1. options -------------------------------------------------------------------------------------------------- */

static bool word_is(struct schema_word word, const char *text)
{
    return word.bytes == strlen(text) && memcmp(word.data, text, word.bytes) == 0;
}

/* The distance of this name; -1: there is none. */
static int find_yield(const struct query_text *names, uint32_t n, struct schema_word name)
{
    for (uint32_t i = 0; i < n; i++)
        if (names[i].bytes == name.bytes && memcmp(names[i].data, name.data, name.bytes) == 0)
            return (int)i;
    return -1;
}

static int plan_sort(struct search_call *call, const struct query_text *names, uint32_t n_names,
                     struct quire_error *err)
{
    struct schema_word name = call->options.sort_by;
    int yield = find_yield(names, n_names, name);
    if (name.bytes == 0)
        return 0;
    if (yield >= 0) {
        call->sort = SORT_YIELD;
        call->sort_yield = (uint32_t)yield;
        return 0;
    }
    if (word_is(name, "__key") || word_is(name, "__score")) {
        call->sort = word_is(name, "__key") ? SORT_KEY : SORT_SCORE;
        return 0;
    }
    int rc = document_getter_init(&call->sort_getter, call->base.schema, name, err);
    if (rc == 0 && !call->sort_getter.field)
        return error_set(err, QUIRE_EINVALID, "Property `%.*s` not loaded nor in schema (position %u)",
                         name.bytes < 64 ? (int)name.bytes : 64, name.data,
                         query_call_position(&call->base, name.data));
    const struct schema_field *field = call->sort_getter.field;
    if (rc == 0 && field->type == SCHEMA_VECTOR && call->base.schema->source == SCHEMA_HASH)
        return error_set(err, QUIRE_EUNSUPPORTED, "SORTBY `%.64s`: a VECTOR field has no order (position %u)",
                         field->name, query_call_position(&call->base, name.data));
    call->sort = rc == 0 && field->type == SCHEMA_NUMERIC && !field->no_index ? SORT_NUMBERS : SORT_FIELD;
    return rc;
}

static int plan_shown(struct search_call *call, const struct query_text *names, uint32_t n_names,
                      struct quire_error *err)
{
    const struct search_options *o = &call->options;
    call->shown = arena_take(&call->base.arena, (o->n_returned + (size_t)1) * sizeof *call->shown);
    call->needed = arena_take(&call->base.arena, (o->n_returned + (size_t)1) * sizeof *call->needed);
    if (!call->shown || !call->needed)
        return fail_memory(err);
    for (uint32_t i = 0; i < o->n_returned; i++) {
        struct shown *shown = &call->shown[call->n_shown++];
        *shown = (struct shown){.as = o->returned[i].as,
                                .yield = find_yield(names, n_names, o->returned[i].name),
                                .is_key = word_is(o->returned[i].name, "__key")};
        if (shown->yield >= 0 || shown->is_key)
            continue;
        int rc = document_getter_init(&shown->getter, call->base.schema, o->returned[i].name, err);
        if (rc < 0)
            return rc;
        const struct schema_word source = shown->getter.source;
        call->needed[call->n_needed++] = (struct resp_arg){(const uint8_t *)source.data, source.bytes};
    }
    return 0;
}

/* "(5", "-inf", "7.5" */
static bool read_bound(struct schema_word word, double *number, bool *open)
{
    *open = word.bytes > 0 && word.data[0] == '(';
    return record_number(word.data + *open, word.bytes - *open, number);
}

static const struct schema_field *filter_field(const struct search_call *call, struct schema_word name,
                                               enum schema_type type)
{
    const struct schema_field *field = schema_find(call->base.schema, name.data, name.bytes);
    return field && field->type == type && !field->no_index ? field : NULL;
}

static int plan_filter(const struct search_call *call, uint32_t i, struct query_node *node, struct quire_error *err)
{
    const struct search_options *o = &call->options;
    struct schema_word name = o->filters[i].field;
    *node = (struct query_node){
        .kind = QUERY_NUMERIC, .field = filter_field(call, name, SCHEMA_NUMERIC), .weight = 1, .slop = -1};
    if (!node->field)
        return error_set(err, QUIRE_EINVALID, "FILTER: `%.*s` is no indexed NUMERIC field (position %u)",
                         name.bytes < 64 ? (int)name.bytes : 64, name.data,
                         query_call_position(&call->base, name.data));
    struct schema_word wrong = o->filters[i].low;
    if (read_bound(wrong, &node->low, &node->low_open)) {
        wrong = o->filters[i].high;
        if (read_bound(wrong, &node->high, &node->high_open))
            return 0;
    }
    return error_set(err, QUIRE_EINVALID,
                     "Bad numeric range: FILTER takes two numbers, not '%.*s' (position %u, field `%.64s`)",
                     wrong.bytes < 64 ? (int)wrong.bytes : 64, wrong.data, query_call_position(&call->base, wrong.data),
                     node->field->name);
}

static int plan_geo_filter(const struct search_call *call, uint32_t i, struct query_node *node, struct quire_error *err)
{
    static const struct {
        const char *name;
        double metres;
    } units[] = {{"m", 1}, {"km", 1000}, {"mi", 1609.34}, {"ft", 0.3048}};
    const struct search_options *o = &call->options;
    struct schema_word name = o->geo_filters[i].field;
    double radius = 0, metres = 0;
    *node =
        (struct query_node){.kind = QUERY_GEO, .field = filter_field(call, name, SCHEMA_GEO), .weight = 1, .slop = -1};
    if (!node->field)
        return error_set(err, QUIRE_EINVALID, "GEOFILTER: `%.*s` is no indexed GEO field (position %u)",
                         name.bytes < 64 ? (int)name.bytes : 64, name.data,
                         query_call_position(&call->base, name.data));
    for (unsigned u = 0; u < sizeof units / sizeof *units; u++)
        if (word_is(o->geo_filters[i].unit, units[u].name))
            metres = units[u].metres;
    bool fine = metres > 0 &&
                record_number(o->geo_filters[i].longitude.data, o->geo_filters[i].longitude.bytes, &node->longitude) &&
                record_number(o->geo_filters[i].latitude.data, o->geo_filters[i].latitude.bytes, &node->latitude) &&
                record_number(o->geo_filters[i].radius.data, o->geo_filters[i].radius.bytes, &radius);
    if (!fine)
        return error_set(
            err, QUIRE_EINVALID,
            "GEOFILTER takes longitude, latitude, radius, and m, km, mi or ft (position %u, field `%.64s`)",
            query_call_position(&call->base, name.data), node->field->name);
    node->radius_m = radius * metres;
    return 0;
}

static int plan_filters(struct search_call *call, struct quire_error *err)
{
    const struct search_options *o = &call->options;
    uint32_t n = o->n_filters + o->n_geo_filters;
    int rc = 0;
    call->filters = arena_take(&call->base.arena, (n + (size_t)1) * sizeof *call->filters);
    call->also = arena_take(&call->base.arena, (n + (size_t)1) * sizeof(void *));
    if (!call->filters || !call->also)
        return fail_memory(err);
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        call->also[i] = &call->filters[i];
        rc = i < o->n_filters ? plan_filter(call, i, &call->filters[i], err)
                              : plan_geo_filter(call, i - o->n_filters, &call->filters[i], err);
    }
    call->base.search.also = call->also;
    call->base.search.n_also = n;
    return rc;
}

/* From words to a query and a plan of the reply. */
static int plan(struct search_call *call, struct quire_error *err)
{
    struct query_call *base = &call->base;
    struct search_options *o = &call->options;
    struct query_text names[DOCUMENT_RANGES_MAX + 1];
    uint32_t n_names = 0;
    uint64_t text_fields = 0;
    int rc = search_options_parse(base->words, base->n_words, o, err);
    if (rc == 0)
        rc = document_text_fields(base->schema, base->words, base->n_words, o->in_fields, o->n_in_fields, &text_fields,
                                  err);
    if (rc < 0)
        return rc;
    struct query_context context = {.schema = base->schema,
                                    .params = o->params,
                                    .n_params = o->n_params,
                                    .text_fields = text_fields,
                                    .verbatim = o->verbatim,
                                    .no_stopwords = o->no_stopwords,
                                    .language = o->language,
                                    .language_position = o->language_position,
                                    .slop = o->slop,
                                    .in_order = o->in_order,
                                    .dialect = o->dialect};
    rc = query_parse(&context, o->text.data, o->text.bytes, &base->query, err);
    if (rc == 0)
        rc = document_search_yields(base->query, base->schema, names, &n_names, err);
    if (rc == 0)
        rc = plan_sort(call, names, n_names, err);
    if (rc == 0)
        rc = plan_shown(call, names, n_names, err);
    if (rc == 0)
        rc = plan_filters(call, err);
    if (rc == 0 && o->in_keys && !(call->only = query_call_keys(base, o->in_keys, o->n_in_keys)))
        rc = fail_memory(err);
    if (rc < 0)
        return rc;
    base->search.only = call->only;
    base->search.scorer = o->scorer;
    base->search.scored = o->with_scores || call->sort == SORT_SCORE ||
                          (call->sort == SORT_NOTHING && !o->no_content && document_search_has_words(base->query));
    if (o->timeout_ms > 0)
        base->search.deadline_us = clock_us() + 1000 * o->timeout_ms;
    return 0;
}

void cmd_ft_search(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct quire_error err = {0};
    struct search_call *call = query_call_begin(c, args, n, sizeof *call);
    if (!call)
        return;
    call->base.fini = fini;
    call->base.found = on_found;
    if (plan(call, &err) < 0) {
        query_call_fail(&call->base, &err);
        return;
    }
    const struct query_node *root = query_root(call->base.query);
    query_call_search(&call->base, root->kind == QUERY_KNN ? root->k : 0, root->kind == QUERY_KNN ? root->ef : 0);
}
