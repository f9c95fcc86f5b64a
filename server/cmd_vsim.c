/*
 * cmd_vsim.c - VSIM: options, the query, the search, the reply.
 *
 *   VSIM key (ELE element | FP32 vector | VALUES num value ...) [WITHSCORES] [COUNT num] [EPSILON delta] [EF effort]
 *            [RECALL recall] [MAXREADS num] [TRUTH] [NOTHREAD] [EXPLAIN]
 *
 * ELE costs a fetch first: the element's stored vector is the query, and the element itself is among the results, as in
 * Redis. NOTHREAD is accepted and changes nothing: no command runs in a thread of its own.
 *
 * The reply is that of Redis's vector sets. With EXPLAIN it is an array of two: that reply, and a map of what the
 * search did. Filters and tenants are refused with a sentence rather than ignored: a filter that is ignored shows a
 * stranger's rows.
 */
#include "server/vector_call.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT_DEFAULT = 10, EFFORT_MAX = 100000 /* blocks that one step seeds from: some milliseconds */ };

struct vsim_options {
    struct resp_arg element, blob; /* data NULL: not given */
    const struct resp_arg *values;
    uint32_t n_values;
    bool with_scores, explain;
    double least_score; /* of EPSILON; -infinity: none */
    struct quire_search_options search;
};

struct vsim_call {
    struct vector_call base;
    bool with_scores, explain;
    double least_score;
    struct quire_search_options options;
    struct search_request search;
    struct fetch_request fetch;
    float query[]; /* dim floats, or the element's key */
};

/* ---- options ----------------------------------------------------------------------------------------------------- */

/* The value behind args[*at] as a whole number of low..high; false after an error reply. */
static bool take_integer(struct client *c, const struct resp_arg *args, uint32_t n, uint32_t *at, long long low,
                         long long high, long long *out)
{
    const char *name = (const char *)args[*at].data;
    int bytes = (int)args[*at].bytes;
    if (++*at >= n)
        client_error(c, "ERR syntax error: %.*s needs a value", bytes, name);
    else if (!arg_integer(args[*at], out) || *out < low || *out > high)
        client_error(c, "ERR %.*s is not a whole number from %lld to %lld", bytes, name, low, high);
    else
        return true;
    return false;
}

/* The value behind args[*at] as a number, above `low` and at most `high`. */
static bool take_number(struct client *c, const struct resp_arg *args, uint32_t n, uint32_t *at, double low,
                        double high, double *out)
{
    const char *name = (const char *)args[*at].data;
    int bytes = (int)args[*at].bytes;
    if (++*at >= n)
        client_error(c, "ERR syntax error: %.*s needs a value", bytes, name);
    else if (!arg_number(args[*at], out) || !(*out >= low && *out <= high))
        client_error(c, "ERR %.*s is not a number from %g to %g", bytes, name, low, high);
    else
        return true;
    return false;
}

static bool is_later_option(struct resp_arg arg)
{
    static const char *const words[] = {"FILTER", "FILTER-EF", "TENANT", "WITHATTRIBS", "WITHVECTORS"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (arg_is(arg, words[i]))
            return true;
    return false;
}

/* One option at args[*at], moving *at to its last word. */
static bool take_option(struct client *c, const struct resp_arg *args, uint32_t n, uint32_t *at, struct vsim_options *o)
{
    long long integer = 0;
    double number = 0;
    struct resp_arg arg = args[*at];
    bool right = true;
    if (arg_is(arg, "WITHSCORES"))
        o->with_scores = true;
    else if (arg_is(arg, "EXPLAIN"))
        o->explain = true;
    else if (arg_is(arg, "TRUTH"))
        o->search.exact = true;
    else if (arg_is(arg, "NOTHREAD"))
        right = true;
    else if (arg_is(arg, "COUNT") && (right = take_integer(c, args, n, at, 1, QUIRE_K_MAX, &integer)))
        o->search.k = (uint32_t)integer;
    else if (right && arg_is(arg, "EF") && (right = take_integer(c, args, n, at, 1, EFFORT_MAX, &integer)))
        o->search.effort = (uint32_t)integer;
    else if (right && arg_is(arg, "MAXREADS") && (right = take_integer(c, args, n, at, 1, UINT32_MAX, &integer)))
        o->search.reads_max = (uint32_t)integer;
    else if (right && arg_is(arg, "RECALL") && (right = take_number(c, args, n, at, 0.01, 1, &number)))
        o->search.recall = (float)number;
    else if (right && arg_is(arg, "EPSILON") && (right = take_number(c, args, n, at, 0, 1e30, &number)))
        o->least_score = 1 - number;
    else if (right) {
        if (is_later_option(arg))
            client_error(c, "ERR %.*s is not supported by this version", (int)arg.bytes, (const char *)arg.data);
        else
            client_error(c, "ERR syntax error at '%.*s'", ARG_SHOWN(arg, 64u));
        right = false;
    }
    return right;
}

/* args[2].. : the vector or element. *at stands behind it afterwards. */
static bool take_target(struct client *c, const struct resp_arg *args, uint32_t n, uint32_t *at, struct vsim_options *o)
{
    long long count;
    if (arg_is(args[2], "ELE")) {
        o->element = args[3];
    } else if (arg_is(args[2], "FP32")) {
        o->blob = args[3];
        if (o->blob.bytes == 0 || o->blob.bytes % sizeof(float)) {
            client_error(c,
                         "ERR invalid vector specification: a FP32 vector of %u bytes is not a row of 4-byte numbers",
                         o->blob.bytes);
            return false;
        }
    } else if (arg_is(args[2], "VALUES")) {
        if (!arg_integer(args[3], &count) || count < 1 || count > QUIRE_DIM_MAX || n - 4 < (uint32_t)count) {
            client_error(c, "ERR invalid vector specification: VALUES needs a count from 1 to %u and as many numbers",
                         QUIRE_DIM_MAX);
            return false;
        }
        o->values = args + 4;
        o->n_values = (uint32_t)count;
    } else {
        client_error(c, "ERR invalid vector specification: ELE element, FP32 vector or VALUES num value ...");
        return false;
    }
    *at = 4 + o->n_values;
    return true;
}

static bool take_options(struct client *c, const struct resp_arg *args, uint32_t n, struct vsim_options *o)
{
    uint32_t at = 0;
    memset(o, 0, sizeof *o);
    o->least_score = -INFINITY;
    quire_search_options_init(&o->search);
    o->search.k = COUNT_DEFAULT;
    o->search.recall = 0;
    o->search.effort = 0;
    if (!take_target(c, args, n, &at, o))
        return false;
    for (; at < n; at++)
        if (!take_option(c, args, n, &at, o))
            return false;
    if (o->search.recall > 0 && o->search.effort > 0) {
        client_error(c, "ERR syntax error: RECALL and EF both say how hard to search; give one");
        return false;
    }
    return true;
}

/* ---- reply ------------------------------------------------------------------------------------------------------- */

static void put_hits(const struct vsim_call *call, struct resp_buffer *out)
{
    const struct search_request *r = &call->search;
    enum quire_metric metric = segment_info(r->segment)->metric;
    uint32_t n = 0;
    while (n < r->n_hits && vector_score(metric, r->hits[n].distance) >= call->least_score)
        n++;
    if (call->with_scores)
        resp_map(out, n);
    else
        resp_array(out, n);
    for (uint32_t i = 0; i < n; i++) {
        resp_bulk(out, r->hits[i].key, r->hits[i].key_bytes);
        if (call->with_scores)
            resp_double(out, vector_score(metric, r->hits[i].distance));
    }
}

static void put_count(struct resp_buffer *out, const char *name, uint64_t value)
{
    resp_text(out, name);
    resp_integer(out, (long long)value);
}

static void put_explanation(const struct vsim_call *call, struct resp_buffer *out)
{
    const struct quire_search_stats *s = &call->search.stats;
    resp_map(out, 10);
    resp_text(out, "plan");
    resp_text(out, call->options.exact ? "scan" : "pagegraph");
    resp_text(out, "result");
    resp_text(out, s->exact ? "exact" : s->complete ? "complete" : "partial");
    put_count(out, "reads", s->reads + call->fetch.reads);
    put_count(out, "bytes", s->bytes + call->fetch.bytes);
    put_count(out, "rounds", s->rounds + call->fetch.rounds);
    put_count(out, "rows-scored", s->rows_scored);
    put_count(out, "codes-scored", s->codes_scored);
    put_count(out, "effort", s->effort);
    put_count(out, "latency-us", s->latency_ns / 1000);
    put_count(out, "step-us", s->cpu_ns / 1000);
}

static void count_search(const struct vsim_call *call)
{
    struct lane_stats *stats = &call->base.lane->stats;
    const struct quire_search_stats *s = &call->search.stats;
    if (call->search.code < 0) {
        stat_add(&stats->search_errors, 1);
        return;
    }
    stat_add(&stats->searches, 1);
    stat_add(&stats->search_reads, s->reads);
    stat_add(&stats->search_rounds, s->rounds);
    stat_add(&stats->search_cpu_ns, s->cpu_ns);
    histogram_add(&stats->latency, s->latency_ns / 1000);
}

static void on_search(struct search_request *request)
{
    struct vsim_call *call = request->owner;
    struct resp_buffer *out = &call->base.pending.out;
    count_search(call);
    if (request->code < 0) {
        reply_quire_error(out, &request->error);
    } else {
        if (call->explain)
            resp_array(out, 2);
        put_hits(call, out);
        if (call->explain)
            put_explanation(call, out);
    }
    vector_call_end(&call->base);
}

/* ---- the call ---------------------------------------------------------------------------------------------------- */

static void start(struct vsim_call *call, const float *query)
{
    struct quire_error err = {0};
    call->search = (struct search_request){.segment = collection_segment(call->base.collection),
                                           .query = query,
                                           .options = call->options,
                                           .want_keys = true,
                                           .done = on_search,
                                           .owner = call};
    if (search_start(call->base.lane->searcher, &call->search, &err) == 0)
        return;
    stat_add(&call->base.lane->stats.search_errors, 1);
    reply_quire_error(&call->base.pending.out, &err);
    vector_call_end(&call->base);
}

static void on_element(struct fetch_request *fetch)
{
    struct vsim_call *call = fetch->owner;
    stat_add(&call->base.lane->stats.fetches, 1);
    stat_add(&call->base.lane->stats.fetch_reads, fetch->reads);
    if (fetch->code == 0) {
        start(call, fetch->vector);
        return;
    }
    if (fetch->code == QUIRE_ENOTFOUND)
        resp_error(&call->base.pending.out, "ERR element not found in set");
    else
        reply_quire_error(&call->base.pending.out, &fetch->error);
    vector_call_end(&call->base);
}

static void start_with_element(struct vsim_call *call, struct resp_arg element)
{
    struct quire_error err = {0};
    memcpy(call->query, element.data, element.bytes);
    call->fetch = (struct fetch_request){.segment = collection_segment(call->base.collection),
                                         .key = call->query,
                                         .key_bytes = element.bytes,
                                         .want_vector = true,
                                         .done = on_element,
                                         .owner = call};
    if (fetch_start(call->base.lane->searcher, &call->fetch, &err) == 0)
        return;
    reply_quire_error(&call->base.pending.out, &err);
    vector_call_end(&call->base);
}

/* The query's numbers into call->query; false with a reply where one is no number. */
static bool fill_query(struct vsim_call *call, const struct vsim_options *o)
{
    if (o->blob.data)
        memcpy(call->query, o->blob.data, o->blob.bytes);
    for (uint32_t i = 0; i < o->n_values; i++) {
        double value;
        if (!arg_number(o->values[i], &value)) {
            resp_error(&call->base.pending.out, "ERR invalid vector specification: value %u, '%.*s', is not a number",
                       i + 1, ARG_SHOWN(o->values[i], 64u));
            return false;
        }
        call->query[i] = (float)value;
    }
    return true;
}

void cmd_vsim(struct client *c, const struct resp_arg *args, uint32_t n)
{
    struct vsim_options o;
    if (!take_options(c, args, n, &o))
        return;
    struct collection *collection = arg_collection(c, args[1]);
    if (!collection) {
        resp_array(client_reply(c), 0);
        return;
    }
    const struct segment_info *info = segment_info(collection_segment(collection));
    uint32_t dim = o.blob.data ? o.blob.bytes / (uint32_t)sizeof(float) : o.n_values;
    if (!o.element.data && dim != info->dim) {
        client_error(c, "ERR Vector dimension mismatch - got %u but set has %u", dim, info->dim);
        return;
    }
    if (o.element.data && (o.element.bytes == 0 || o.element.bytes > QUIRE_KEY_BYTES_MAX)) {
        client_error(c, "ERR element not found in set");
        return;
    }
    struct vsim_call *call = vector_call_begin(c, collection, sizeof *call + dim * sizeof(float) + o.element.bytes);
    if (!call)
        return;
    call->with_scores = o.with_scores;
    call->explain = o.explain;
    call->least_score = o.least_score;
    call->options = o.search;
    if (o.element.data)
        start_with_element(call, o.element);
    else if (fill_query(call, &o))
        start(call, call->query);
    else
        vector_call_end(&call->base);
}
