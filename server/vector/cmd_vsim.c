/*
 * cmd_vsim.c - VSIM: options, the query, the search, the reply.
 *
 *   VSIM key (ELE element | FP32 vector | VALUES num value ...) [WITHSCORES] [WITHATTRIBS] [WITHVECTORS] [COUNT num]
 *            [EPSILON delta] [EF effort] [RECALL recall] [MAXREADS num] [FILTER expression] [FILTER-EF effort]
 *            [TENANT name] ... [TRUTH] [NOTHREAD] [EXPLAIN]
 *
 * VMSIM is many of these in one command: their reads are interleaved on the disk.
 *
 * ELE costs a fetch first: the element's stored vector is the query, and the element itself is among the results, as in
 * Redis. NOTHREAD is accepted and changes nothing: no command runs in a thread of its own.
 *
 * Where the setting gpu gives a device, it names the rows that can be among the nearest for TRUTH, and for VMSIM of
 * many queries; searches look at these alone (server/device). Vectors that stand in the request go there ahead of their
 * turn, many at once; elements when they have been fetched. A query whose rows were not named is searched as without.
 *
 * The reply is that of Redis's vector sets. With EXPLAIN it is an array of two: that reply, and a map of what the
 * search did.
 *
 * An expression is compiled once per command, with the columns that the set declares, and before it is known whether
 * there is such a key: a wrong one is an error in either case, as other options are.
 */
#include "index/attribute/filter.h"
#include "io/error.h"
#include "server/call/fair.h"
#include "server/call/slice.h"
#include "server/device/device.h"
#include "server/protocol/arg.h"
#include "server/protocol/resp.h"
#include "server/vector/cmd_vectors.h"
#include "server/vector/vector_args.h"
#include "server/vector/vector_call.h"
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    COUNT_DEFAULT = 10,
    EF_MAX = 1000000,    /* as Redis has it */
    EFFORT_MAX = 100000, /* blocks that one step seeds from: some milliseconds; more is not more */
    QUERIES_MAX = 10000
};

#define RECALL_BESIDE_EF 0.95f

/* Of one VMSIM: queries at once; for how long it begins some in a turn of the lane; results at once whose attributes,
 * which may be large, are fetched. */
enum { QUERIES_AT_ONCE = 16, QUERIES_US = 250, ATTRIBUTES_AT_ONCE = 128, LARGE_BYTES = 65536 };

/* Of one call with a device: queries that make a VMSIM one of many; queries that go there together; queries that may be
 * there or back before their turn. */
enum { QUERIES_MANY = 64, ASK_QUERIES = 1024, ASK_AHEAD = 4096 };

#define LIMIT_SLACK   0.01  /* by such a part of a distance its rounding may be off */
#define SELF_DISTANCE 1e-3f /* of an element from its own vector, as it was read: rounding leaves less */

struct vsim_options {
    bool with_scores, with_attributes, with_vectors, explain;
    double recall;  /* 0: not asked for */
    double epsilon; /* how far below 1 a score may be; infinity: any */
    struct quire_search_options search;
    struct resp_arg expression;  /* FILTER, in the request; data NULL: none */
    struct tenant_names tenants; /* TENANT */
};

/* Queries for which a device is asked. */
struct vsim_ask {
    struct device_ask ask;
    struct vsim_call *call;
    uint32_t first, users; /* the first of them; how many have not ended */
    uint64_t asked_us;
    const float *queries[];
};

/* One query. */
struct vsim_query {
    struct vsim_call *call;
    struct vsim_ask *ask;      /* that it is part of, until its search has ended; NULL: of none */
    bool asking, is_held;      /* the ask is out; and the query, whose turn it is, waits for it */
    uint64_t waited_ns;        /* for it */
    struct fair_ticket ticket; /* of the search */
    struct collection_search search;
    struct collection_fetch fetch;
    struct vector_arg vector; /* into call->bytes, in VMSIM */
    struct resp_buffer out;
    size_t held;    /* by what was found, noted in the account of `out` */
    float *numbers; /* dim floats; owned */
    uint8_t *element;
    size_t taken; /* bytes of these two */
};

/* VSIM is a call with one query, VMSIM with several. */
struct vsim_call {
    struct deferred base;
    struct vsim_options options;
    struct filter *filter; /* a reference; NULL: none */
    struct fair_pass pass;
    struct slice slice; /* queries to be begun in a later turn */
    bool many, starting, waiting;
    bool bound;               /* to tenants, the user */
    bool failed;              /* there is no room for the reply: no further query is begun */
    bool asks;                /* a device */
    uint32_t n_looked, n_out; /* queries that it was considered for ahead; asks that are out */
    uint64_t turn, turn_us;   /* of the lane, in which queries were begun, from that time on */
    uint32_t n, n_started, n_running, n_at_once;
    struct vsim_query queries[];
};

/* ---- options ----------------------------------------------------------------------------------------------------- */

/* How an option is read, and what its member of struct vsim_options is. */
enum option_kind {
    OPTION_IGNORED,
    OPTION_FLAG,   /* bool: true */
    OPTION_COUNT,  /* uint32_t: the value, a whole number */
    OPTION_NUMBER, /* double: the value */
};

static const struct vsim_option {
    const char *word;
    enum option_kind kind;
    size_t member;
    double low, high; /* of the value */
} vsim_options[] = {
    {"WITHSCORES", OPTION_FLAG, offsetof(struct vsim_options, with_scores), 0, 0},
    {"WITHATTRIBS", OPTION_FLAG, offsetof(struct vsim_options, with_attributes), 0, 0},
    {"WITHVECTORS", OPTION_FLAG, offsetof(struct vsim_options, with_vectors), 0, 0},
    {"EXPLAIN", OPTION_FLAG, offsetof(struct vsim_options, explain), 0, 0},
    {"TRUTH", OPTION_FLAG, offsetof(struct vsim_options, search.exact), 0, 0},
    {"NOTHREAD", OPTION_IGNORED, 0, 0, 0},
    {"COUNT", OPTION_COUNT, offsetof(struct vsim_options, search.k), 1, UINT32_MAX},
    {"EF", OPTION_COUNT, offsetof(struct vsim_options, search.effort), 1, EF_MAX},
    {"MAXREADS", OPTION_COUNT, offsetof(struct vsim_options, search.reads_max), 1, UINT32_MAX},
    {"FILTER-EF", OPTION_COUNT, offsetof(struct vsim_options, search.filter_effort), 0, UINT32_MAX},
    {"RECALL", OPTION_NUMBER, offsetof(struct vsim_options, recall), 0.01, 1},
    {"EPSILON", OPTION_NUMBER, offsetof(struct vsim_options, epsilon), 0, 1e30},
};

/* One option at args[*at], moving *at to its last word. */
static bool take_option(struct caller *c, const struct resp_arg *args, uint32_t n, uint32_t *at, struct vsim_options *o)
{
    const struct vsim_option *option = NULL;
    long long count;
    if (arg_is(args[*at], "FILTER"))
        return vector_filter_take(c, args, n, at, &o->expression);
    if (arg_is(args[*at], "TENANT"))
        return vector_names_take(c, args, n, at, &o->tenants);
    for (size_t i = 0; i < sizeof vsim_options / sizeof *vsim_options && !option; i++)
        option = arg_is(args[*at], vsim_options[i].word) ? &vsim_options[i] : NULL;
    if (!option) {
        caller_error(c, "ERR syntax error in %s command at '%.*s'", arg_is(args[0], "VMSIM") ? "VMSIM" : "VSIM",
                     ARG_SHOWN(args[*at], 64u));
        return false;
    }
    void *member = (char *)o + option->member;
    switch (option->kind) {
    case OPTION_IGNORED:
        break;
    case OPTION_FLAG:
        *(bool *)member = true;
        break;
    case OPTION_COUNT:
        if (!vector_arg_take_integer(c, args, n, at, (long long)option->low, (long long)option->high, &count))
            return false;
        *(uint32_t *)member = (uint32_t)count;
        break;
    case OPTION_NUMBER:
        return vector_arg_take_number(c, args, n, at, option->low, option->high, member);
    }
    return true;
}

/* The options from args[at] on, into *o, which is empty; its tenants are to be ended in any case. */
static bool take_options(struct caller *c, const struct resp_arg *args, uint32_t n, uint32_t at, struct vsim_options *o)
{
    o->epsilon = INFINITY;
    quire_search_options_init(&o->search);
    o->search.k = COUNT_DEFAULT;
    o->search.effort = 0;
    for (; at < n; at++)
        if (!take_option(c, args, n, &at, o))
            return false;
    o->search.recall = (float)o->recall;
    o->search.effort = o->search.effort < EFFORT_MAX ? o->search.effort : EFFORT_MAX;
    if (o->recall > 0 && o->search.effort > 0) {
        caller_error(c, "ERR syntax error: RECALL and EF both say how hard to search; give one");
        return false;
    }
    if (o->search.effort > 0) /* more than without EF, never less */
        o->search.recall = RECALL_BESIDE_EF;
    return true;
}

/* ---- reply ------------------------------------------------------------------------------------------------------- */

/* Of an element that asked by its own vector (ELE) what rounding leaves of that is no distance. */
static double score_of(const struct vsim_query *q, const struct collection_hit *hit)
{
    enum quire_metric metric = collection_config(q->search.collection)->metric;
    bool itself =
        q->element && hit->key_bytes == q->vector.element.bytes && memcmp(hit->key, q->element, hit->key_bytes) == 0;
    bool rounded = metric == QUIRE_METRIC_COSINE && hit->distance < SELF_DISTANCE;
    return vector_score(metric, itself && rounded ? 0 : hit->distance);
}

/* RESP2: one flat list. RESP3: a map where there is more than the elements, of several things a list each. */
static void put_hits(const struct vsim_query *q, struct resp_buffer *out)
{
    const struct vsim_options *o = &q->call->options;
    const struct collection_search *s = &q->search;
    const struct collection_config *config = collection_config(s->collection);
    unsigned details = (unsigned)o->with_scores + (unsigned)o->with_attributes + (unsigned)o->with_vectors;
    uint32_t n = 0;
    while (n < s->n_hits && score_of(q, &s->hits[n]) >= 1 - o->epsilon)
        n++;
    size_t bytes = 0;
    for (uint32_t i = 0; i < n && o->with_attributes; i++)
        bytes += s->hits[i].attribute_bytes;
    if (bytes > LARGE_BYTES)
        resp_reserve(out, bytes); /* not copied while it grows; that it is too much shows at once */
    if (details && out->protocol == 3)
        resp_map(out, n);
    else
        resp_array(out, (size_t)n * (1 + details));
    for (uint32_t i = 0; i < n && !out->failed; i++) {
        const struct collection_hit *hit = &s->hits[i];
        resp_bulk(out, hit->key, hit->key_bytes);
        if (details > 1 && out->protocol == 3)
            resp_array(out, details);
        if (o->with_scores)
            resp_double(out, score_of(q, hit));
        if (o->with_attributes && hit->attribute_bytes)
            resp_bulk(out, hit->attributes, hit->attribute_bytes);
        else if (o->with_attributes)
            resp_null(out);
        if (o->with_vectors)
            vector_put_numbers(out, hit->vector, config->dim);
    }
}

/* n_lists: segments of inverted lists among n_segments; n_named: of which a device has named rows. */
static const char *plan_of(const struct vsim_call *call, enum quire_plan plan, uint32_t n_segments, uint32_t n_lists,
                           uint32_t n_named)
{
    if (call->filter || call->base.scope)
        return quire_plan_name(plan);
    if (n_named > 0 && n_named == n_segments)
        return "device";
    if (call->options.search.exact)
        return "scan";
    if (n_segments == 0)
        return "memory";
    return n_lists == 0 ? "pagegraph" : n_lists == n_segments ? "spann" : "mixed";
}

/* What was read and compared depends on elements of others, too: it is not for users who are bound to tenants. */
static void put_explanation(const struct vsim_query *q, struct resp_buffer *out)
{
    const struct quire_search_stats *s = &q->search.stats;
    bool all = !q->call->bound;
    resp_map(out, all ? 16 : 4);
    if (all) {
        resp_text(out, "plan");
        resp_text(out, plan_of(q->call, s->plan, q->search.n_segments, q->search.n_list_segments,
                               q->search.n_named_segments));
    }
    resp_text(out, "result");
    resp_text(out, s->exact ? "exact" : s->complete ? "complete" : "partial");
    vector_put_count(out, "matches", s->matches);
    if (all) {
        vector_put_count(out, "reads-expected", s->reads_expected);
        resp_text(out, "switched");
        resp_bool(out, s->switched);
        vector_put_count(out, "reads", s->reads + q->fetch.reads);
        vector_put_count(out, "bytes", s->bytes + q->fetch.bytes);
        vector_put_count(out, "rounds", s->rounds + q->fetch.rounds);
        vector_put_count(out, "rows-scored", s->rows_scored);
        vector_put_count(out, "codes-scored", s->codes_scored);
        vector_put_count(out, "effort", s->effort);
        vector_put_count(out, "segments", q->search.n_segments);
        vector_put_count(out, "memory-rows-scored", q->search.memtable_rows_scored);
        vector_put_count(out, "estimated", s->estimated);
    }
    vector_put_count(out, "latency-us", s->latency_ns / 1000);
    vector_put_count(out, "step-us", s->cpu_ns / 1000);
}

/* For SLOWLOG: sums over the queries; the plan is that of the query that read the most. */
static void describe(const struct pending *p, char *text, size_t capacity)
{
    const struct vsim_call *call = (const struct vsim_call *)(const void *)p;
    const struct vsim_query *worst = &call->queries[0];
    uint64_t reads = 0, rounds = 0, matches = 0, expected = 0;
    uint32_t effort = 0, n_segments = 0, n_lists = 0, n_named = 0, switched = 0;
    for (uint32_t i = 0; i < call->n; i++) {
        const struct vsim_query *q = &call->queries[i];
        const struct quire_search_stats *s = &q->search.stats;
        reads += s->reads + q->fetch.reads;
        rounds += s->rounds + q->fetch.rounds;
        matches += s->matches;
        expected += s->reads_expected;
        switched += s->switched;
        effort = s->effort > effort ? s->effort : effort;
        worst = s->reads > worst->search.stats.reads ? q : worst;
        n_segments += q->search.n_segments;
        n_lists += q->search.n_list_segments;
        n_named += q->search.n_named_segments;
    }
    int bytes = snprintf(text, capacity, "%s reads=%llu rounds=%llu effort=%u",
                         plan_of(call, worst->search.stats.plan, n_segments, n_lists, n_named),
                         (unsigned long long)reads, (unsigned long long)rounds, effort);
    if ((call->filter || call->base.scope) && bytes > 0 && (size_t)bytes < capacity)
        snprintf(text + bytes, capacity - (size_t)bytes, " matches=%llu reads-expected=%llu switched=%u",
                 (unsigned long long)matches, (unsigned long long)expected, switched);
}

/* ---- the call ---------------------------------------------------------------------------------------------------- */

/* The query does without its ask from now on. */
static void leave_ask(struct vsim_query *q)
{
    struct vsim_ask *a = q->ask;
    q->ask = NULL;
    if (!a)
        return;
    assert(!q->asking && a->users > 0);
    if (--a->users > 0)
        return;
    device_ask_end(&a->ask);
    free(a);
}

/* Memory of a query beside the call, which is the client's; NULL: there is none, or it may take no more. */
static void *take_memory(struct vsim_query *q, size_t bytes)
{
    struct pending *p = &q->call->base.pending;
    if (!caller_hold(p, bytes))
        return NULL;
    void *memory = malloc(bytes);
    if (memory)
        q->taken += bytes;
    else
        caller_let_go(p, bytes);
    return memory;
}

static void give_memory_back(struct vsim_query *q)
{
    free(q->numbers);
    free(q->element);
    caller_let_go(&q->call->base.pending, q->taken);
    q->numbers = NULL;
    q->element = NULL;
    q->taken = 0;
}

static void end_call(struct vsim_call *call)
{
    struct resp_buffer *out = &call->base.pending.out;
    assert(call->n_started == call->n && call->n_running == 0 && call->n_out == 0 && !call->starting);
    fair_leave(&call->pass);
    if (call->many)
        resp_array(out, call->n);
    for (uint32_t i = 0; i < call->n; i++) {
        struct vsim_query *q = &call->queries[i];
        leave_ask(q);
        resp_take(out, &q->out);
        give_memory_back(q);
    }
    filter_unref(call->filter);
    deferred_end(&call->base);
}

static void start_more(struct vsim_call *call);

/* Nobody gets the reply: what there is of it goes at once, though some queries may take a while to end. */
static void give_up(struct vsim_call *call)
{
    call->failed = true;
    call->base.pending.out.failed = true;
    for (uint32_t i = 0; i < call->n; i++)
        resp_buffer_fini(&call->queries[i].out);
}

static void abandon(struct pending *p)
{
    give_up((struct vsim_call *)(void *)p);
}

/* The reply of a query stands in its buffer. What it asked goes at once: a small request may name ten thousand elements
 * whose vectors are large. */
static void query_done(struct vsim_query *q)
{
    struct vsim_call *call = q->call;
    assert(call->n_running > 0 && (q->out.bytes > 0 || q->out.failed || call->failed));
    leave_ask(q);
    call->n_running--;
    give_memory_back(q);
    if (!call->failed && (q->out.failed || call->base.pending.caller->gone))
        give_up(call);
    start_more(call);
}

static void query_failed(struct vsim_query *q, const struct quire_error *err)
{
    if (!q->out.failed)
        q->out.bytes = 0;
    resp_quire_error(&q->out, err);
    query_done(q);
}

/* What was found is the client's memory, as the reply that is made of it. */
static bool may_hold(struct collection_search *search, size_t bytes)
{
    struct vsim_query *q = search->owner;
    assert(bytes >= q->held);
    if (!resp_account_take(q->out.account, bytes - q->held))
        return false;
    q->held = bytes;
    return true;
}

static void let_go(struct vsim_query *q)
{
    if (q->held)
        resp_account_add(q->out.account, -(int64_t)q->held);
    q->held = 0;
}

static void on_search(struct collection_search *search)
{
    struct vsim_query *q = search->owner;
    struct lane_stats *stats = &q->call->base.lane->stats;
    if (search->code < 0) {
        fair_end(&q->ticket, &search->stats);
        lane_stat_add(&stats->search_errors, 1);
        let_go(q);
        query_failed(q, &search->error);
        return;
    }
    search->stats.latency_ns += q->waited_ns;
    lane_stat_add(&stats->searches, 1);
    lane_stat_add(&stats->search_reads, search->stats.reads);
    lane_stat_add(&stats->search_rounds, search->stats.rounds);
    lane_stat_add(&stats->search_cpu_ns, search->stats.cpu_ns);
    histogram_add(&stats->latency, search->stats.latency_ns / 1000);
    if (q->call->options.explain)
        resp_array(&q->out, 2);
    uint64_t began_us = clock_us();
    put_hits(q, &q->out);
    if (q->call->options.explain)
        put_explanation(q, &q->out);
    let_go(q);
    uint64_t passed_us = clock_us() - began_us;
    search->stats.cpu_ns += passed_us * 1000; /* the reply's time is its share's, too */
    fair_end(&q->ticket, &search->stats);
    if (!q->call->starting)
        caller_spent(q->call->base.pending.caller, passed_us);
    query_done(q);
}

/* Whether nothing is answered, or decided, by distances but which elements are nearest. An element that asks for what
 * is near itself expects to come first. */
static bool names_suffice(const struct vsim_query *q)
{
    const struct vsim_options *o = &q->call->options;
    return !o->with_scores && !o->with_vectors && isinf(o->epsilon) && !q->element;
}

/* What scores below 1 - EPSILON need not be found. */
static void set_limit(const struct vsim_options *o, enum quire_metric metric, struct quire_search_options *search)
{
    bool is_known = metric == QUIRE_METRIC_COSINE || (metric == QUIRE_METRIC_L2 && o->epsilon < 1);
    if (isinf(o->epsilon) || !is_known)
        return;
    double farthest = metric == QUIRE_METRIC_COSINE ? 2 * o->epsilon : o->epsilon / (1 - o->epsilon);
    search->limited = true;
    search->farthest = (float)(farthest * (1 + LIMIT_SLACK)) + SELF_DISTANCE;
}

/* When it is the query's turn. */
static void begin_search(struct fair_ticket *ticket, int code)
{
    struct vsim_query *q = ticket->owner;
    struct vsim_call *call = q->call;
    struct quire_error err = {0};
    if (code < 0) {
        error_set(&err, code, "the search was cancelled before it began");
        query_failed(q, &err);
        return;
    }
    if (call->failed || call->base.pending.caller->gone) {
        if (!call->failed)
            give_up(call);
        fair_end(ticket, NULL);
        query_done(q);
        return;
    }
    q->search = (struct collection_search){.collection = call->base.collection,
                                           .query = q->numbers,
                                           .options = call->options.search,
                                           .filter = call->filter,
                                           .scope = call->base.scope,
                                           .want_attributes = call->options.with_attributes,
                                           .want_vectors = call->options.with_vectors,
                                           .priority = ticket->priority,
                                           .done = on_search,
                                           .owner = q,
                                           .may_hold = may_hold};
    if (q->ask) {
        q->search.named = q->ask->ask.named;
        q->search.n_named = q->ask->ask.n_named;
        q->search.named_query = (uint32_t)(q - call->queries) - q->ask->first;
    }
    set_limit(&call->options, collection_config(call->base.collection)->metric, &q->search.options);
    if (names_suffice(q))
        q->search.options.distance = QUIRE_DISTANCE_ESTIMATE;
    if (collection_search_start(call->base.lane->searcher, &q->search, &err) == 0)
        return;
    fair_end(ticket, NULL);
    lane_stat_add(&call->base.lane->stats.search_errors, 1);
    let_go(q);
    query_failed(q, &err);
}

/* ---- a device ---------------------------------------------------------------------------------------------------- */

static void search(struct vsim_query *q);

/* An ask is back. */
static void on_named(struct lane *lane, struct message *message)
{
    struct vsim_ask *a = (struct vsim_ask *)(void *)((char *)message - offsetof(struct vsim_ask, ask.message));
    struct vsim_call *call = a->call;
    uint64_t waited_ns = (clock_us() - a->asked_us) * 1000;
    uint32_t first = a->first, n = a->ask.n; /* the last query to end frees it */
    (void)lane;
    assert(call->n_out > 0 && a->users == n);
    for (uint32_t i = first; i < first + n; i++) {
        struct vsim_query *q = &call->queries[i];
        q->asking = false;
        q->waited_ns = waited_ns;
    }
    for (uint32_t i = first; i < first + n; i++)
        if (call->queries[i].is_held) {
            call->queries[i].is_held = false;
            search(&call->queries[i]);
        }
    call->n_out--; /* the call does not end before */
    start_more(call);
}

/* Asks for queries[first .. first + n), whose numbers are there; false: it is not taken. */
static bool ask_for(struct vsim_call *call, uint32_t first, uint32_t n)
{
    const struct quire_search_options *o = &call->options.search;
    struct vsim_ask *a = calloc(1, sizeof *a + n * sizeof *a->queries);
    if (!a)
        return false;
    a->call = call;
    a->first = first;
    a->users = n;
    a->asked_us = clock_us();
    for (uint32_t i = 0; i < n; i++)
        a->queries[i] = call->queries[first + i].numbers;
    a->ask = (struct device_ask){.message = {.run = on_named},
                                 .lane = call->base.lane,
                                 .collection = call->base.collection,
                                 .queries = a->queries,
                                 .n = n,
                                 .k = o->k,
                                 .exact = o->exact,
                                 .recall = o->recall,
                                 .effort = o->effort};
    if (!device_ask(call->base.lane->service->device, &a->ask)) {
        free(a);
        return false;
    }
    for (uint32_t i = first; i < first + n; i++) {
        assert(!call->queries[i].ask && call->queries[i].numbers);
        call->queries[i].ask = a;
        call->queries[i].asking = true;
    }
    call->n_out++;
    return true;
}

static bool may_ask_ahead(const struct vsim_query *q)
{
    return q->numbers && !q->element && q->out.bytes == 0 && !q->out.failed;
}

/* Asks for the vectors that come next. When none is taken any more, the rest goes without. */
static void ask_ahead(struct vsim_call *call)
{
    uint64_t most = DEVICE_ASK_PLACES / device_ask_places(call->options.search.k);
    most = most < 1 ? 1 : most < ASK_QUERIES ? most : ASK_QUERIES;
    call->n_looked = call->n_looked > call->n_started ? call->n_looked : call->n_started;
    while (call->asks && !call->failed && call->n_looked < call->n && call->n_looked < call->n_started + ASK_AHEAD) {
        uint32_t first = call->n_looked, n = 0;
        while (first + n < call->n && n < most && may_ask_ahead(&call->queries[first + n]))
            n++;
        call->asks = n == 0 || ask_for(call, first, n);
        call->n_looked += n > 0 ? n : 1;
    }
}

/* Whether a device may be of help: not where others than distances decide, nor where reads are counted. */
static bool may_ask(const struct vsim_call *call)
{
    const struct vsim_options *o = &call->options;
    bool by_distance = o->with_scores || o->with_vectors || !isinf(o->epsilon);
    return device_is_ready(call->base.lane->service->device) && !call->filter && !call->base.scope &&
           o->search.reads_max == 0 && (o->search.exact || (call->n >= QUERIES_MANY && by_distance));
}

/* ---- the searches ------------------------------------------------------------------------------------------------ */

/* q->numbers is the query. */
static void search(struct vsim_query *q)
{
    assert(q->numbers && q->out.bytes == 0);
    q->is_held = q->call->asks && q->element && !q->ask && ask_for(q->call, (uint32_t)(q - q->call->queries), 1);
    if (q->is_held)
        return;
    q->ticket.run = begin_search;
    q->ticket.owner = q;
    fair_start(&q->call->pass, &q->ticket);
}

static void on_element(struct collection_fetch *fetch)
{
    struct vsim_query *q = fetch->owner;
    vector_count_fetch(q->call->base.lane, fetch->reads);
    if (fetch->code == 0) {
        /* it may have to wait for its turn */
        size_t bytes = sizeof(float) * collection_config(fetch->collection)->dim;
        q->numbers = take_memory(q, bytes);
        if (q->numbers) {
            memcpy(q->numbers, fetch->vector, bytes);
            search(q);
            return;
        }
        error_set(&fetch->error, QUIRE_ENOMEM, "no memory for a query");
    } else if (fetch->code == QUIRE_ENOTFOUND) {
        error_set(&fetch->error, QUIRE_ENOTFOUND, "element not found in set");
    }
    query_failed(q, &fetch->error);
}

static void on_slice(struct slice *slice)
{
    struct vsim_call *call = (struct vsim_call *)(void *)((char *)slice - offsetof(struct vsim_call, slice));
    call->waiting = false;
    start_more(call);
}

/* Whether another query is to be begun now; some in each turn of the lane, since others wait. */
static bool may_begin(struct vsim_call *call)
{
    struct lane *lane = call->base.lane;
    if (call->failed)
        call->n_started = call->n; /* nobody gets the reply */
    if (call->n_started == call->n || call->n_running >= call->n_at_once || call->waiting)
        return false;
    if (call->turn != lane->turn) {
        call->turn = lane->turn;
        call->turn_us = clock_us();
        return true;
    }
    if (clock_us() - call->turn_us < QUERIES_US)
        return true;
    call->waiting = true;
    call->slice.run = on_slice;
    call->slice.caller = call->base.pending.caller;
    slice_post(lane, &call->slice);
    return false;
}

/* Keeps some queries going; ends the call with the last. */
static void start_more(struct vsim_call *call)
{
    struct quire_error err = {0};
    if (call->starting)
        return;
    call->starting = true;
    ask_ahead(call);
    while ((call->n_started == call->n || !call->queries[call->n_started].asking) && may_begin(call)) {
        struct vsim_query *q = &call->queries[call->n_started++];
        if (q->out.bytes > 0 || q->out.failed)
            continue; /* refused */
        call->n_running++;
        if (!q->element) {
            search(q);
            continue;
        }
        q->fetch = (struct collection_fetch){.collection = call->base.collection,
                                             .scope = call->base.scope,
                                             .key = q->element,
                                             .key_bytes = q->vector.element.bytes,
                                             .want_vector = true,
                                             .done = on_element,
                                             .owner = q};
        if (collection_fetch_start(call->base.lane->searcher, &q->fetch, &err) < 0)
            query_failed(q, &err);
    }
    call->starting = false;
    if (call->failed)
        call->n_started = call->n;
    if (call->n_running == 0 && !call->waiting && call->n_out == 0)
        end_call(call);
}

/* Takes the query's numbers, brought to the set's dimensions, or its element. */
static int fill_query(struct vsim_query *q, const struct collection_config *config, const struct vector_arg *vector,
                      struct quire_error *err)
{
    uint32_t dim = vector_arg_dim(vector);
    enum vector_fit fit = vector->element.data ? VECTOR_FITS : vector_fits(config, dim);
    q->vector = *vector;
    if (fit == VECTOR_FITS_NOT)
        return vector_fit_error(config, dim, err);
    if (vector->element.data && (vector->element.bytes == 0 || vector->element.bytes > QUIRE_KEY_BYTES_MAX))
        return error_set(err, QUIRE_ENOTFOUND, "element not found in set");
    if (vector->element.data) {
        q->element = take_memory(q, vector->element.bytes);
        if (q->element)
            memcpy(q->element, vector->element.data, vector->element.bytes);
        return q->element ? 0 : error_set(err, QUIRE_ENOMEM, "no memory for a query");
    }
    q->numbers = take_memory(q, sizeof(float) * (dim > config->dim ? dim : config->dim));
    if (!q->numbers)
        return error_set(err, QUIRE_ENOMEM, "no memory for a query");
    if (!vector_arg_numbers(vector, q->numbers, err))
        return err->code;
    if (fit == VECTOR_FITS_REDUCED && vector_reduce(config, q->numbers, q->numbers) < 0)
        return error_set(err, QUIRE_ENOMEM, "no memory to reduce a query");
    return 0;
}

/* A call of n queries on the set under a key; VIEW_REFUSED also without memory. */
static enum vector_view_found begin_call(struct caller *c, struct resp_arg key, const struct vsim_options *o,
                                         uint32_t n, struct vsim_call **out)
{
    struct vector_view view;
    struct fair_pass pass;
    struct vsim_call *call = NULL;
    struct filter *filter = NULL;
    struct fair_request facts = {.n_queries = n,
                                 .k = o->search.k,
                                 .effort = o->search.effort,
                                 .recall = o->search.recall,
                                 .exact = o->search.exact,
                                 .filter_bytes = o->expression.bytes};
    enum vector_view_found found = vector_view_begin(c, key, &o->tenants, &view);
    if (found == VIEW_REFUSED)
        return VIEW_REFUSED;
    uint64_t elements = found == VIEW_SET ? vector_view_count(&view) : 0;
    bool few = o->search.k <= QUIRE_K_MAX || elements <= QUIRE_K_MAX;
    if (!few)
        caller_error(c, "ERR invalid COUNT: one search answers at most %u elements, and %llu are there", QUIRE_K_MAX,
                     (unsigned long long)elements);
    if (!few || !vector_enter(c, &view, &o->tenants, &facts, &pass)) {
        vector_view_end(&view);
        return VIEW_REFUSED;
    }
    bool right = !o->expression.data || vector_filter_compile(c, o->expression, view.collection, &filter);
    if (right && found == VIEW_SET)
        call = deferred_begin(c, &view, sizeof *call + n * sizeof *call->queries, false);
    else
        vector_view_end(&view);
    if (!call) {
        filter_unref(filter);
        fair_leave(&pass);
        return right && found == VIEW_NO_SET ? VIEW_NO_SET : VIEW_REFUSED;
    }
    call->pass = pass;
    call->base.pending.describe = describe;
    call->base.pending.abandon = abandon;
    call->options = *o;
    if (o->search.k > QUIRE_K_MAX)
        call->options.search.k = elements > 0 ? (uint32_t)elements : 1;
    call->options.expression = (struct resp_arg){0}; /* the request's, which ends before the call */
    call->options.tenants = (struct tenant_names){0};
    call->filter = filter;
    if (filter)
        caller_hold(&call->base.pending, filter_memory_bytes(filter)); /* where it may not, the client goes */
    call->n = n;
    call->n_at_once = QUERIES_AT_ONCE;
    if (o->with_attributes && o->search.k > ATTRIBUTES_AT_ONCE / QUERIES_AT_ONCE)
        call->n_at_once = o->search.k > ATTRIBUTES_AT_ONCE ? 1 : ATTRIBUTES_AT_ONCE / o->search.k;
    for (uint32_t i = 0; i < n; i++) {
        call->queries[i].call = call;
        call->queries[i].out = resp_buffer_beside(&call->base.pending.out);
    }
    *out = call;
    return VIEW_SET;
}

/* VSIM: one vector; with `many` VMSIM. */
static void run_queries(struct caller *c, struct resp_arg key, const struct vector_arg *vectors, uint32_t n, bool many,
                        const struct vsim_options *o)
{
    struct quire_error err = {0};
    struct vsim_call *call;
    enum vector_view_found found = begin_call(c, key, o, n, &call);
    if (found == VIEW_NO_SET) {
        struct resp_buffer *out = caller_reply(c);
        if (many)
            resp_array(out, n);
        for (uint32_t i = 0; i < n; i++)
            resp_array(out, 0);
    }
    if (found != VIEW_SET)
        return;
    for (uint32_t i = 0; i < n; i++)
        if (fill_query(&call->queries[i], collection_config(call->base.collection), &vectors[i], &err) < 0)
            resp_quire_error(&call->queries[i].out, &err);
    call->many = many;
    call->asks = may_ask(call);
    call->bound = c->n_tenants > 0;
    start_more(call);
}

void cmd_vsim(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct vsim_options o = {0};
    struct vector_arg vector;
    uint32_t at = 2;
    if (vector_arg_take(c, args, n, &at, true, &vector) && take_options(c, args, n, at, &o))
        run_queries(c, args[1], &vector, 1, false, &o);
    vector_names_fini(&o.tenants);
}

/* VMSIM key num (ELE element | FP32 vector | VALUES num value ...) ... [the options of VSIM]: one reply per query. */
void cmd_vmsim(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct vsim_options o = {0};
    long long count;
    uint32_t at = 3;
    if (!arg_integer(args[2], &count) || count < 1 || count > QUERIES_MAX) {
        caller_error(c, "ERR the number of queries is not a whole number from 1 to %d", QUERIES_MAX);
        return;
    }
    struct vector_arg *vectors = calloc((size_t)count, sizeof *vectors);
    bool right = vectors != NULL;
    if (!vectors)
        caller_error(c, "OOM no memory for %lld queries", count);
    for (long long i = 0; i < count && right; i++)
        right = vector_arg_take(c, args, n, &at, true, &vectors[i]);
    if (right && take_options(c, args, n, at, &o))
        run_queries(c, args[1], vectors, (uint32_t)count, true, &o);
    vector_names_fini(&o.tenants);
    free(vectors);
}
