/*
 * cmd_vsim.c - VSIM: options, the query, the search, the reply.
 *
 *   VSIM key (ELE element | FP32 vector | VALUES num value ...) [WITHSCORES] [WITHATTRIBS] [WITHVECTORS] [COUNT num]
 *            [EPSILON delta] [EF effort] [RECALL recall] [MAXREADS num] [TRUTH] [NOTHREAD] [EXPLAIN]
 *
 * VMSIM is many of these in one command: their reads are interleaved on the disk.
 *
 * ELE costs a fetch first: the element's stored vector is the query, and the element itself is among the results, as in
 * Redis. NOTHREAD is accepted and changes nothing: no command runs in a thread of its own.
 *
 * The reply is that of Redis's vector sets. With EXPLAIN it is an array of two: that reply, and a map of what the
 * search did. Filters and tenants are refused with a sentence rather than ignored: a filter that is ignored shows a
 * stranger's rows.
 */
#include "io/error.h"
#include "server/vector_args.h"
#include "server/vector_call.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    COUNT_DEFAULT = 10,
    EFFORT_MAX = 100000, /* blocks that one step seeds from: some milliseconds */
    QUERIES_MAX = 10000
};

enum { VECTOR_ROOM = 16 }; /* queries of one VMSIM that run at once */

struct vsim_options {
    bool with_scores, with_attributes, with_vectors, explain;
    double least_score; /* of EPSILON; -infinity: none */
    struct quire_search_options search;
};

/* One query. */
struct vsim_query {
    struct vsim_call *call;
    struct collection_search search;
    struct collection_fetch fetch;
    struct vector_arg vector; /* into call->bytes, in VMSIM */
    struct resp_buffer out;
    float *numbers; /* dim floats; owned */
    uint8_t *element;
};

/* VSIM is a call with one query, VMSIM with several. */
struct vsim_call {
    struct vector_call base;
    struct vsim_options options;
    bool many, starting;
    uint32_t n, n_started, n_running;
    struct vsim_query queries[];
};

/* ---- options ----------------------------------------------------------------------------------------------------- */

static bool is_later_option(struct resp_arg arg)
{
    static const char *const words[] = {"FILTER", "FILTER-EF", "TENANT"};
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
    else if (arg_is(arg, "WITHATTRIBS"))
        o->with_attributes = true;
    else if (arg_is(arg, "WITHVECTORS"))
        o->with_vectors = true;
    else if (arg_is(arg, "EXPLAIN"))
        o->explain = true;
    else if (arg_is(arg, "TRUTH"))
        o->search.exact = true;
    else if (arg_is(arg, "NOTHREAD"))
        right = true;
    else if (arg_is(arg, "COUNT") && (right = arg_take_integer(c, args, n, at, 1, QUIRE_K_MAX, &integer)))
        o->search.k = (uint32_t)integer;
    else if (right && arg_is(arg, "EF") && (right = arg_take_integer(c, args, n, at, 1, EFFORT_MAX, &integer)))
        o->search.effort = (uint32_t)integer;
    else if (right && arg_is(arg, "MAXREADS") && (right = arg_take_integer(c, args, n, at, 1, UINT32_MAX, &integer)))
        o->search.reads_max = (uint32_t)integer;
    else if (right && arg_is(arg, "RECALL") && (right = arg_take_number(c, args, n, at, 0.01, 1, &number)))
        o->search.recall = (float)number;
    else if (right && arg_is(arg, "EPSILON") && (right = arg_take_number(c, args, n, at, 0, 1e30, &number)))
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

/* The options from args[at] on. */
static bool take_options(struct client *c, const struct resp_arg *args, uint32_t n, uint32_t at, struct vsim_options *o)
{
    memset(o, 0, sizeof *o);
    o->least_score = -INFINITY;
    quire_search_options_init(&o->search);
    o->search.k = COUNT_DEFAULT;
    o->search.recall = 0;
    o->search.effort = 0;
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

static void put_details(const struct vsim_options *o, const struct collection_config *config,
                        const struct collection_hit *hit, struct resp_buffer *out)
{
    unsigned n = (unsigned)o->with_scores + (unsigned)o->with_attributes + (unsigned)o->with_vectors;
    if (n > 1 && out->protocol == 3)
        resp_array(out, n);
    if (o->with_scores)
        resp_double(out, vector_score(config->metric, hit->distance));
    if (o->with_attributes && hit->attribute_bytes)
        resp_bulk(out, hit->attributes, hit->attribute_bytes);
    else if (o->with_attributes)
        resp_null(out);
    if (!o->with_vectors)
        return;
    resp_array(out, config->dim);
    for (uint32_t i = 0; i < config->dim; i++)
        resp_double(out, (double)hit->vector[i]);
}

/* RESP2: one flat list. RESP3: a map where there is more than the elements, of several things a list each. */
static void put_hits(const struct vsim_query *q, struct resp_buffer *out)
{
    const struct vsim_options *o = &q->call->options;
    const struct collection_search *s = &q->search;
    const struct collection_config *config = collection_config(s->collection);
    unsigned details = (unsigned)o->with_scores + (unsigned)o->with_attributes + (unsigned)o->with_vectors;
    uint32_t n = 0;
    while (n < s->n_hits && vector_score(config->metric, s->hits[n].distance) >= o->least_score)
        n++;
    if (details && out->protocol == 3)
        resp_map(out, n);
    else
        resp_array(out, (size_t)n * (1 + details));
    for (uint32_t i = 0; i < n; i++) {
        resp_bulk(out, s->hits[i].key, s->hits[i].key_bytes);
        if (details)
            put_details(o, config, &s->hits[i], out);
    }
}

static void put_count(struct resp_buffer *out, const char *name, uint64_t value)
{
    resp_text(out, name);
    resp_integer(out, (long long)value);
}

/* n_lists: segments of inverted lists among n_segments. */
static const char *plan_of(const struct vsim_options *o, uint32_t n_segments, uint32_t n_lists)
{
    if (o->search.exact)
        return "scan";
    if (n_segments == 0)
        return "memory";
    return n_lists == 0 ? "pagegraph" : n_lists == n_segments ? "spann" : "mixed";
}

static void put_explanation(const struct vsim_query *q, struct resp_buffer *out)
{
    const struct quire_search_stats *s = &q->search.stats;
    resp_map(out, 12);
    resp_text(out, "plan");
    resp_text(out, plan_of(&q->call->options, q->search.n_segments, q->search.n_list_segments));
    resp_text(out, "result");
    resp_text(out, s->exact ? "exact" : s->complete ? "complete" : "partial");
    put_count(out, "reads", s->reads + q->fetch.reads);
    put_count(out, "bytes", s->bytes + q->fetch.bytes);
    put_count(out, "rounds", s->rounds + q->fetch.rounds);
    put_count(out, "rows-scored", s->rows_scored);
    put_count(out, "codes-scored", s->codes_scored);
    put_count(out, "effort", s->effort);
    put_count(out, "segments", q->search.n_segments);
    put_count(out, "memory-rows-scored", q->search.memtable_rows_scored);
    put_count(out, "latency-us", s->latency_ns / 1000);
    put_count(out, "step-us", s->cpu_ns / 1000);
}

/* For SLOWLOG: sums over the queries. */
static void describe(const struct pending *p, char *text, size_t room)
{
    const struct vsim_call *call = (const struct vsim_call *)(const void *)p;
    uint64_t reads = 0, rounds = 0;
    uint32_t effort = 0, n_segments = 0, n_lists = 0;
    for (uint32_t i = 0; i < call->n; i++) {
        const struct vsim_query *q = &call->queries[i];
        reads += q->search.stats.reads + q->fetch.reads;
        rounds += q->search.stats.rounds + q->fetch.rounds;
        effort = q->search.stats.effort > effort ? q->search.stats.effort : effort;
        n_segments += q->search.n_segments;
        n_lists += q->search.n_list_segments;
    }
    snprintf(text, room, "%s reads=%llu rounds=%llu effort=%u", plan_of(&call->options, n_segments, n_lists),
             (unsigned long long)reads, (unsigned long long)rounds, effort);
}

static void count_search(const struct vsim_query *q)
{
    struct lane_stats *stats = &q->call->base.lane->stats;
    const struct quire_search_stats *s = &q->search.stats;
    if (q->search.code < 0) {
        stat_add(&stats->search_errors, 1);
        return;
    }
    stat_add(&stats->searches, 1);
    stat_add(&stats->search_reads, s->reads);
    stat_add(&stats->search_rounds, s->rounds);
    stat_add(&stats->search_cpu_ns, s->cpu_ns);
    histogram_add(&stats->latency, s->latency_ns / 1000);
}

/* ---- the call ---------------------------------------------------------------------------------------------------- */

static void end_call(struct vsim_call *call)
{
    struct resp_buffer *out = &call->base.pending.out;
    if (call->many)
        resp_array(out, call->n);
    for (uint32_t i = 0; i < call->n; i++) {
        struct vsim_query *q = &call->queries[i];
        resp_raw(out, q->out.data, q->out.bytes);
        out->failed = out->failed || q->out.failed;
        resp_buffer_fini(&q->out);
        free(q->numbers);
        free(q->element);
    }
    vector_call_end(&call->base);
}

static void start_more(struct vsim_call *call);

/* The reply of a query stands in its buffer. */
static void query_done(struct vsim_query *q)
{
    struct vsim_call *call = q->call;
    call->n_running--;
    start_more(call);
}

static void query_failed(struct vsim_query *q, const struct quire_error *err)
{
    q->out.bytes = 0;
    reply_quire_error(&q->out, err);
    query_done(q);
}

static void on_search(struct collection_search *search)
{
    struct vsim_query *q = search->owner;
    count_search(q);
    if (search->code < 0) {
        query_failed(q, &search->error);
        return;
    }
    if (q->call->options.explain)
        resp_array(&q->out, 2);
    put_hits(q, &q->out);
    if (q->call->options.explain)
        put_explanation(q, &q->out);
    query_done(q);
}

static void search(struct vsim_query *q, const float *numbers)
{
    struct vsim_call *call = q->call;
    struct quire_error err = {0};
    q->search = (struct collection_search){.collection = call->base.collection,
                                           .query = numbers,
                                           .options = call->options.search,
                                           .want_attributes = call->options.with_attributes,
                                           .want_vectors = call->options.with_vectors,
                                           .done = on_search,
                                           .owner = q};
    if (collection_search_start(call->base.lane->searcher, &q->search, &err) == 0)
        return;
    stat_add(&call->base.lane->stats.search_errors, 1);
    query_failed(q, &err);
}

static void on_element(struct collection_fetch *fetch)
{
    struct vsim_query *q = fetch->owner;
    struct quire_error err = {0};
    stat_add(&q->call->base.lane->stats.fetches, 1);
    stat_add(&q->call->base.lane->stats.fetch_reads, fetch->reads);
    if (fetch->code == 0) {
        search(q, fetch->vector);
        return;
    }
    if (fetch->code == QUIRE_ENOTFOUND)
        error_set(&err, QUIRE_ENOTFOUND, "element not found in set");
    query_failed(q, fetch->code == QUIRE_ENOTFOUND ? &err : &fetch->error);
}

static void start_query(struct vsim_query *q)
{
    struct vsim_call *call = q->call;
    struct quire_error err = {0};
    if (!q->element) {
        search(q, q->numbers);
        return;
    }
    q->fetch = (struct collection_fetch){.collection = call->base.collection,
                                         .key = q->element,
                                         .key_bytes = q->vector.element.bytes,
                                         .want_vector = true,
                                         .done = on_element,
                                         .owner = q};
    if (collection_fetch_start(call->base.lane->searcher, &q->fetch, &err) < 0)
        query_failed(q, &err);
}

/* Keeps some queries going; ends the call with the last. */
static void start_more(struct vsim_call *call)
{
    if (call->starting)
        return;
    call->starting = true;
    while (call->n_started < call->n && call->n_running < VECTOR_ROOM) {
        struct vsim_query *q = &call->queries[call->n_started++];
        if (q->out.bytes > 0)
            continue; /* refused */
        call->n_running++;
        start_query(q);
    }
    call->starting = false;
    if (call->n_running == 0)
        end_call(call);
}

/* Takes the query's numbers, brought to the set's dimensions, or its element. */
static int fill_query(struct vsim_query *q, const struct collection_config *config, const struct vector_arg *vector,
                      struct quire_error *err)
{
    uint32_t dim = vector_arg_dim(vector);
    int fit = vector->element.data ? 1 : vector_fits(config, dim);
    q->vector = *vector;
    if (!fit)
        return error_set(err, QUIRE_EDIM, "Vector dimension mismatch - got %u but set has %u", dim,
                         config->input_dim ? config->input_dim : config->dim);
    if (vector->element.data && (vector->element.bytes == 0 || vector->element.bytes > QUIRE_KEY_BYTES_MAX))
        return error_set(err, QUIRE_ENOTFOUND, "element not found in set");
    if (vector->element.data) {
        q->element = malloc(vector->element.bytes);
        if (q->element)
            memcpy(q->element, vector->element.data, vector->element.bytes);
        return q->element ? 0 : error_set(err, QUIRE_ENOMEM, "no memory for a query");
    }
    q->numbers = malloc(sizeof(float) * (dim > config->dim ? dim : config->dim));
    if (!q->numbers)
        return error_set(err, QUIRE_ENOMEM, "no memory for a query");
    if (!vector_arg_numbers(vector, q->numbers, err))
        return err->code;
    if (fit == 2 && vector_reduce(config, q->numbers, q->numbers) < 0)
        return error_set(err, QUIRE_ENOMEM, "no memory to reduce a query");
    return 0;
}

/* A call of n queries on a set whose reference it takes over. NULL without memory. */
static struct vsim_call *begin_call(struct client *c, struct collection *collection, const struct vsim_options *o,
                                    uint32_t n)
{
    struct vsim_call *call = vector_call_begin(c, collection, sizeof *call + n * sizeof *call->queries, false);
    if (!call)
        return NULL;
    call->base.pending.describe = describe;
    call->options = *o;
    call->n = n;
    for (uint32_t i = 0; i < n; i++) {
        call->queries[i].call = call;
        call->queries[i].out.protocol = c->protocol;
    }
    return call;
}

void cmd_vsim(struct client *c, const struct resp_arg *args, uint32_t n)
{
    struct vsim_options o;
    struct vector_arg vector;
    struct quire_error err = {0};
    struct collection *collection;
    uint32_t at = 2;
    if (!vector_arg_take(c, args, n, &at, true, &vector) || !take_options(c, args, n, at, &o))
        return;
    int found = arg_vectors(c, args[1], &collection);
    if (found == 0)
        resp_array(client_reply(c), 0);
    struct vsim_call *call = found > 0 ? begin_call(c, collection, &o, 1) : NULL;
    if (!call)
        return;
    if (fill_query(&call->queries[0], collection_config(collection), &vector, &err) < 0)
        reply_quire_error(&call->queries[0].out, &err);
    start_more(call);
}

/* VMSIM key num (ELE element | FP32 vector | VALUES num value ...) ... [the options of VSIM]: one reply per query. */
void cmd_vmsim(struct client *c, const struct resp_arg *args, uint32_t n)
{
    struct vsim_options o;
    struct quire_error err = {0};
    struct collection *collection;
    long long count;
    uint32_t at = 3;
    if (!arg_integer(args[2], &count) || count < 1 || count > QUERIES_MAX) {
        client_error(c, "ERR the number of queries is not a whole number from 1 to %d", QUERIES_MAX);
        return;
    }
    struct vector_arg *vectors = calloc((size_t)count, sizeof *vectors);
    bool right = vectors != NULL;
    if (!vectors)
        client_error(c, "OOM no memory for %lld queries", count);
    for (long long i = 0; i < count && right; i++)
        right = vector_arg_take(c, args, n, &at, true, &vectors[i]);
    right = right && take_options(c, args, n, at, &o);
    int found = right ? arg_vectors(c, args[1], &collection) : -1;
    if (found == 0) {
        struct resp_buffer *out = client_reply(c);
        resp_array(out, (size_t)count);
        for (long long i = 0; i < count; i++)
            resp_array(out, 0);
    }
    struct vsim_call *call = found > 0 ? begin_call(c, collection, &o, (uint32_t)count) : NULL;
    for (long long i = 0; call && i < count; i++) {
        struct vsim_query *q = &call->queries[i];
        if (fill_query(q, collection_config(collection), &vectors[i], &err) < 0 && q->out.bytes == 0)
            reply_quire_error(&q->out, &err);
    }
    free(vectors);
    if (!call)
        return;
    call->many = true;
    start_more(call);
}
