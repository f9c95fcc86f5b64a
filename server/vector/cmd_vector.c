/*
 * cmd_vector.c - what is in a vector set (VCARD, VDIM, VINFO, VSEGMENTS), and single elements of it.
 *
 * What is known without the disk is answered at once. The rest (VEMB, VISMEMBER, VLINKS, VGETATTR, VGETGRANTS) is one
 * fetch: the reply is deferred and built when the fetch is done.
 */
#include "io/error.h"
#include "server/protocol/arg.h"
#include "server/protocol/resp.h"
#include "server/vector/cmd_vectors.h"
#include "server/vector/vector_call.h"
#include "server/vector/vector_quant.h"
#include <string.h>

enum { LINKS_MAX = 64 };

/* ---- answered at once -------------------------------------------------------------------------------------------- */

void cmd_vcard(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    (void)n;
    struct vector_view view;
    if (vector_view_begin(c, args[1], NULL, &view) == VIEW_REFUSED)
        return;
    resp_integer(caller_reply(c), (long long)vector_view_count(&view));
    vector_view_end(&view);
}

void cmd_vdim(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    (void)n;
    struct vector_view view;
    enum vector_view_found found = vector_view_begin(c, args[1], NULL, &view);
    if (found == VIEW_SET)
        resp_integer(caller_reply(c), collection_config(view.collection)->dim);
    else if (found == VIEW_NO_SET)
        caller_error(c, "ERR key does not exist");
    vector_view_end(&view);
}

static void put_text(struct resp_buffer *out, const char *name, const char *value)
{
    resp_text(out, name);
    resp_text(out, value);
}

void cmd_vinfo(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    enum { FOR_ALL = 15, STATISTICS = 13 };
    (void)n;
    struct vector_view view;
    enum vector_view_found found = vector_view_begin(c, args[1], NULL, &view);
    if (found == VIEW_NO_SET)
        resp_null_array(caller_reply(c));
    if (found != VIEW_SET)
        return;
    struct resp_buffer *out = caller_reply(c);
    const struct collection_config *config = collection_config(view.collection);
    const struct attribute_schema *schema = collection_schema(view.collection);
    struct collection_stats stats;
    collection_get_stats(view.collection, &stats);
    resp_map(out, FOR_ALL + (view.scope ? 0 : STATISTICS));
    uint64_t size = vector_view_count(&view);
    /* what everybody may know of a set: first what Redis tells, in its order. There are no levels above the lowest; the
     * number of the newest node is that of the last write, which tells what others do: who sees a part counts that */
    put_text(out, "quant-type", vector_quant_name(config));
    vector_put_count(out, "hnsw-m", vector_links(config));
    vector_put_count(out, "vector-dim", config->dim);
    vector_put_count(out, "projection-input-dim", config->input_dim);
    vector_put_count(out, "size", size);
    vector_put_count(out, "max-level", 0);
    vector_put_count(out, "attributes-count", collection_count_attributed(view.collection, view.scope));
    vector_put_count(out, "vset-uid", collection_uid(view.collection));
    vector_put_count(out, "hnsw-max-node-uid", view.scope ? size : stats.last_lsn);
    put_text(out, "metric", quire_metric_name(config->metric));
    put_text(out, "index", quire_index_kind_name(collection_index_kind(view.collection)));
    put_text(out, "vector-type", quire_type_name(config->type));
    put_text(out, "slot-type", quire_slot_name(config->slot));
    vector_put_count(out, "tenants", config->tenants);
    /* the declared columns: name, type, whether rows are indexed by it */
    resp_text(out, "attributes");
    resp_array(out, schema->n);
    for (uint32_t i = 0; i < schema->n; i++) {
        resp_array(out, 3);
        resp_text(out, schema->columns[i].name);
        resp_text(out, quire_column_type_name(schema->columns[i].type));
        resp_text(out, schema->columns[i].indexed ? "indexed" : "not-indexed");
    }
    /* what is everybody's together */
    if (!view.scope) {
        vector_put_count(out, "memory-budget", config->memory_bytes);
        vector_put_count(out, "memory-rows", stats.memtable_rows);
        vector_put_count(out, "memory-bytes", stats.memtable_bytes);
        vector_put_count(out, "segments", stats.segments);
        vector_put_count(out, "segment-rows", stats.segment_rows);
        vector_put_count(out, "dead-rows", stats.dead_rows);
        vector_put_count(out, "resident-bytes", stats.resident_bytes);
        vector_put_count(out, "cache-bytes", stats.cache_bytes);
        vector_put_count(out, "cache-hits", stats.cache_hits);
        vector_put_count(out, "cache-misses", stats.cache_misses);
        vector_put_count(out, "disk-bytes", stats.disk_bytes);
        vector_put_count(out, "raw-bytes", stats.raw_bytes);
        vector_put_count(out, "merges", stats.merges);
    }
    vector_view_end(&view);
}

struct segments {
    struct resp_buffer text;
    size_t n;
};

static void put_segment(void *context, const struct collection_segment *one)
{
    struct segments *segments = context;
    struct resp_buffer *out = &segments->text;
    segments->n++;
    resp_map(out, 10);
    vector_put_count(out, "number", one->uid);
    put_text(out, "index", quire_index_kind_name(one->index));
    vector_put_count(out, "rows", one->rows);
    vector_put_count(out, "dead-rows", one->dead_rows);
    vector_put_count(out, "code-bits", one->code_bits);
    vector_put_count(out, "resident-bytes", one->resident_bytes);
    vector_put_count(out, "memory-budget", one->memory_bytes);
    vector_put_count(out, "cache-bytes", one->cache_bytes);
    vector_put_count(out, "disk-bytes", one->disk_bytes);
    resp_text(out, "curve");
    resp_array(out, one->n_curve);
    for (uint32_t i = 0; i < one->n_curve; i++) {
        const struct quire_calibration_point *p = &one->curve[i];
        resp_array(out, 5);
        resp_integer(out, p->k);
        resp_integer(out, p->effort);
        resp_double(out, (double)p->recall);
        resp_double(out, (double)p->reads);
        resp_text(out, p->distance == QUIRE_DISTANCE_EXACT ? "exact" : "estimate");
    }
}

void cmd_vsegments(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct vector_view view;
    struct segments segments = {.text.protocol = c->protocol};
    (void)n;
    enum vector_view_found found = vector_view_begin(c, args[1], NULL, &view);
    if (found == VIEW_NO_SET)
        resp_null_array(caller_reply(c));
    if (found != VIEW_SET)
        return;
    struct resp_buffer *out = caller_reply(c);
    collection_each_segment(view.collection, put_segment, &segments);
    resp_array(out, segments.n);
    resp_raw(out, segments.text.data, segments.text.bytes);
    out->failed = out->failed || segments.text.failed;
    resp_buffer_fini(&segments.text);
    vector_view_end(&view);
}

/* ---- one element ------------------------------------------------------------------------------------------------- */

enum element_kind { ELEMENT_VECTOR, ELEMENT_RAW, ELEMENT_MEMBER, ELEMENT_LINKS, ELEMENT_ATTRIBUTES, ELEMENT_GRANTS };

struct element_call {
    struct deferred base;
    enum element_kind kind;
    bool with_scores;
    struct collection_fetch fetch;
    uint8_t key[];
};

/* What a missing key or element answers is the same. Of VLINKS it is no array, as Redis documents it. */
static void put_missing(struct resp_buffer *out, enum element_kind kind)
{
    if (kind == ELEMENT_MEMBER)
        resp_bool(out, false);
    else if (kind == ELEMENT_ATTRIBUTES || kind == ELEMENT_LINKS)
        resp_null(out);
    else
        resp_null_array(out);
}

/* The tenants whom it is granted to, in the order of names. A grant of before its tenant was dropped is void. */
static void put_grants(struct resp_buffer *out, struct collection_fetch *f)
{
    struct resp_buffer names = resp_buffer_beside(out);
    struct grant grant;
    const char *json;
    uint32_t json_bytes, n_grants, at = 0;
    size_t n = 0;
    if (grants_split(f->attributes, f->attribute_bytes, &json, &json_bytes, &n_grants) < 0) {
        error_set(&f->error, QUIRE_ECORRUPT, "the grants of an element are damaged: VCHECK names what else is");
        resp_quire_error(out, &f->error);
        return;
    }
    while (grants_next(f->attributes, f->attribute_bytes, &at, &grant)) {
        if (grant.generation != collection_tenant_generation(f->collection, grant.name, grant.bytes))
            continue;
        resp_bulk(&names, grant.name, grant.bytes);
        n++;
    }
    resp_array(out, n);
    resp_take(out, &names);
}

static void on_element(struct collection_fetch *f)
{
    struct element_call *call = f->owner;
    struct resp_buffer *out = &call->base.pending.out;
    const struct collection_config *config = collection_config(f->collection);
    vector_count_fetch(call->base.lane, f->reads);
    if (f->code < 0 && f->code != QUIRE_ENOTFOUND) {
        resp_quire_error(out, &f->error);
    } else if (f->code < 0) {
        put_missing(out, call->kind);
    } else if (call->kind == ELEMENT_MEMBER) {
        resp_bool(out, true);
    } else if (call->kind == ELEMENT_VECTOR) {
        vector_quant_put(out, config, f->vector);
    } else if (call->kind == ELEMENT_RAW) {
        vector_quant_put_raw(out, config, f->vector);
    } else if (call->kind == ELEMENT_LINKS) {
        resp_array(out, 1); /* one layer, as the graph has one */
        if (call->with_scores)
            resp_map(out, f->n_links);
        else
            resp_array(out, f->n_links);
        for (uint32_t i = 0; i < f->n_links; i++) {
            resp_bulk(out, f->links[i].key, f->links[i].key_bytes);
            if (call->with_scores)
                resp_double(out, vector_score(config->metric, f->links[i].distance));
        }
    } else if (call->kind == ELEMENT_GRANTS) {
        put_grants(out, f);
    } else if (f->attribute_bytes) {
        resp_bulk(out, f->attributes, f->attribute_bytes);
    } else {
        resp_null(out);
    }
    deferred_end(&call->base);
}

/* As in Redis an element has 2 x M neighbours at most, in the lowest layer, which is the only one here. */
static uint32_t links_max(const struct collection_config *config)
{
    unsigned links = 2 * vector_links(config);
    return links < LINKS_MAX ? links : LINKS_MAX;
}

/* Fetches the element of args[2]. */
static void start_element(struct caller *c, const struct resp_arg *args, enum element_kind kind, bool with_scores)
{
    struct quire_error err = {0};
    struct vector_view view;
    enum vector_view_found found = vector_view_begin(c, args[1], NULL, &view);
    if (found == VIEW_REFUSED)
        return;
    if (found == VIEW_NO_SET || args[2].bytes == 0 || args[2].bytes > QUIRE_KEY_BYTES_MAX) {
        put_missing(caller_reply(c), kind);
        vector_view_end(&view);
        return;
    }
    struct element_call *call = deferred_begin(c, &view, sizeof *call + args[2].bytes, false);
    if (!call)
        return;
    memcpy(call->key, args[2].data, args[2].bytes);
    call->kind = kind;
    call->with_scores = with_scores;
    call->fetch = (struct collection_fetch){.collection = call->base.collection,
                                            .scope = call->base.scope,
                                            .key = call->key,
                                            .key_bytes = args[2].bytes,
                                            .want_vector = kind == ELEMENT_VECTOR || kind == ELEMENT_RAW,
                                            .want_attributes = kind == ELEMENT_ATTRIBUTES || kind == ELEMENT_GRANTS,
                                            .want_grants = kind == ELEMENT_GRANTS,
                                            .want_links = kind == ELEMENT_LINKS,
                                            .links_max = links_max(collection_config(call->base.collection)),
                                            .done = on_element,
                                            .owner = call};
    if (collection_fetch_start(c->lane->searcher, &call->fetch, &err) < 0) {
        resp_quire_error(&call->base.pending.out, &err);
        deferred_end(&call->base);
    }
}

void cmd_vemb(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    if (n > 4 || (n == 4 && !arg_is(args[3], "RAW")))
        caller_error(c, "ERR syntax error: VEMB key element [RAW]");
    else
        start_element(c, args, n == 4 ? ELEMENT_RAW : ELEMENT_VECTOR, false);
}

void cmd_vismember(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    (void)n;
    start_element(c, args, ELEMENT_MEMBER, false);
}

void cmd_vlinks(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    if (n > 4 || (n == 4 && !arg_is(args[3], "WITHSCORES")))
        caller_error(c, "ERR syntax error: VLINKS key element [WITHSCORES]");
    else
        start_element(c, args, ELEMENT_LINKS, n == 4);
}

void cmd_vgetattr(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    (void)n;
    start_element(c, args, ELEMENT_ATTRIBUTES, false);
}

void cmd_vgetgrants(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    (void)n;
    start_element(c, args, ELEMENT_GRANTS, false);
}
