/*
 * cmd_cache_get.c - SC.GET: a decision in memory, perhaps a wait, perhaps a read.
 *
 * Most lookups are decided, and their documents found, in memory: those are answered at once from the request as it
 * lies there, and nothing is allocated. One that needs the disk, or may wait, copies the request into a deferred call
 * first (struct get_call), from where it goes on by events:
 *
 *      cache_get --waits--> wake (any thread) --message--> cache_woken --+
 *      |   |  ^                                                          |
 *      |   |  +--cache_get_found-- search of the disk (searcher) <--+    |
 *      |   +--nothing near in memory--------------------------------+    |
 *      +--decided--+<----------------------------------------------------+
 *                  |
 *              wants a document? --read (engine)--> cache_finish --gone meanwhile--> cache_get, without waiting
 *                      |                                 |
 *                    reply                             reply
 *
 * Nothing of it is a barrier: requests behind it in the pipeline go on, and replies keep their order.
 *
 * Many may wait, for long: who waits holds his request and nothing else, and reads its words again when he is woken.
 *
 * A wait belongs to its client: when that is gone, or the lane stops, it is cancelled, and where it has just been made
 * leader, the lease goes to the next. A client whose end has been read (EOF) may still wait for its reply, but not for
 * long, since most such clients are gone, and cannot lead: it can send no answer any more.
 *
 * A lookup counts for the limits of its user (fair.h), also while it waits; it is not scheduled.
 *
 * The call belongs to the lane. The thread that wakes it writes `how` and posts its message; it does not touch it
 * afterwards. Between cache_get and the message the lane does not touch what the wake writes.
 */
#include "cache/document/document_log.h"
#include "cache/guard/text.h"
#include "cache/lease/lease.h"
#include "io/error.h"
#include "server/cache/cache_call.h"
#include "server/cache/cmd_caches.h"
#include "server/call/fair.h"
#include "server/process/log.h"
#include <assert.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TRIES_MAX = 4, COMPLAIN_MS = 1000, WAIT_AFTER_EOF_MS = 10000, ARG_ALIGN = 8 };

/* Who asks: of a request as it is run, or of its call. */
struct asker {
    struct lane *lane;
    struct cache *cache;   /* a reference */
    struct fair_pass pass; /* of its user */
};

/* One lookup; on the stack as long as the disk is not needed. */
struct lookup {
    struct lane *lane;
    struct cache *cache;
    struct cache_args args;
    struct quire_cache_query query; /* points into args */
    struct cache_decision decision;
    struct document_read read;
    bool reading, waited;       /* reading: `read` is to be ended */
    bool may_wait;              /* the call's waiter is the lookup's */
    unsigned tries;             /* documents that were gone */
    struct quire_bytes *chunks; /* of the answer; owned */
};

struct get_call {
    struct pending pending;
    struct asker asker;
    struct lookup *lookup; /* owned; NULL while it waits */
    struct lease_waiter waiter;
    struct message message;
    enum lease_wake how;
    struct get_call *next, *prev; /* among those of the lane that wait */
    uint64_t begun_us;            /* of the lookup that waits */
    uint32_t n;
    struct resp_arg args[]; /* the request's, behind the cache's name; their bytes follow, aligned for numbers */
};

static void lookup_fini(struct lookup *l)
{
    if (l->reading)
        document_read_end(&l->read);
    free(l->chunks);
    cache_args_fini(&l->args);
}

static void asker_fini(struct asker *a)
{
    fair_leave(&a->pass);
    cache_unref(a->cache);
}

/* The answer; rc below 0: what went wrong. */
static void put_answer(const struct lookup *l, int rc, const struct quire_error *err, struct resp_buffer *out)
{
    enum { ALWAYS = 7, OF_ENTRY = 10 };
    const struct quire_cache_answer *a = &l->decision.answer;
    bool entry = a->status == QUIRE_CACHE_HIT || a->status == QUIRE_CACHE_EXACT || a->status == QUIRE_CACHE_STALE ||
                 a->status == QUIRE_CACHE_AUDIT;
    bool lease = a->lease[0] != 0, waited = l->waited || a->waited_ms > 0;
    if (rc < 0) {
        resp_quire_error(out, err);
        return;
    }
    resp_map(out, ALWAYS + (entry ? OF_ENTRY : 0u) + (size_t)lease + (a->audit != 0) + (size_t)waited +
                      (size_t)l->query.explain);
    cache_field_text(out, "status", quire_cache_status_name(a->status));
    cache_field_text(out, "reason", a->reason ? a->reason : "");
    cache_field_double(out, "similarity", a->similarity < 0 ? -1 : a->similarity);
    cache_field_double(out, "threshold", a->threshold);
    resp_text(out, "guard");
    if (a->guard)
        resp_text(out, a->guard_why);
    else
        resp_null(out);
    cache_field_integer(out, "guards_skipped", a->guards_skipped);
    if (entry) {
        cache_field_id(out, "id", a->id);
        cache_field_integer(out, "age_ms", (long long)a->age_ms);
        cache_field_integer(out, "ttl_ms", (long long)a->ttl_ms);
        cache_field_integer(out, "tokens_in", a->tokens_in);
        cache_field_integer(out, "tokens_out", a->tokens_out);
        cache_field_integer(out, "llm_ms", a->llm_ms);
        cache_field_double(out, "cost", a->cost);
        cache_field_bytes(out, "model", a->model);
        cache_field_bytes(out, "text", a->text);
        resp_text(out, a->n_chunks <= 1 ? "value" : "chunks");
        if (a->n_chunks <= 1)
            resp_bulk(out, a->value.data, a->value.n_bytes);
        else
            resp_array(out, a->n_chunks);
        for (uint32_t i = 0; a->n_chunks > 1 && i < a->n_chunks; i++)
            resp_bulk(out, a->chunks[i].data, a->chunks[i].n_bytes);
    }
    cache_field_bytes(out, "lease", text_of(a->lease));
    if (lease)
        cache_field_integer(out, "lease_ms", (long long)a->lease_ms);
    if (a->audit)
        cache_field_integer(out, "audit", (long long)a->audit);
    if (waited)
        cache_field_integer(out, "waited_ms", (long long)a->waited_ms);
    if (!l->query.explain)
        return;
    resp_text(out, "candidates");
    resp_array(out, a->n_candidates);
    for (uint32_t i = 0; i < a->n_candidates; i++) {
        resp_map(out, 4);
        cache_field_id(out, "id", a->candidates[i].id);
        cache_field_double(out, "similarity", (double)a->candidates[i].similarity);
        cache_field_text(out, "verdict", a->candidates[i].verdict);
        cache_field_text(out, "why", a->candidates[i].why);
    }
}

/* ---- documents --------------------------------------------------------------------------------------------------- */

/* What a request needs next; a negative number is an error. */
enum get_next {
    GET_ANSWERED, /* nothing: the answer is whole */
    GET_READS,    /* lookup->read is to be run */
    GET_SEARCHES, /* the decision's search is to be run */
    GET_DECIDED   /* inside settle: there is another decision, of which the document may be in memory */
};

/* The document was read, or cannot be (bytes NULL). An enum get_next, not GET_READS. */
static int take_document(struct lookup *l, const uint8_t *bytes, struct quire_error *err)
{
    uint32_t n = bytes ? l->decision.at.bytes : 0, n_chunks = bytes ? cache_chunks(bytes, n) : 0;
    assert(l->decision.wants_document && (!bytes || l->reading));
    free(l->chunks);
    l->chunks = malloc((n_chunks + 1) * sizeof *l->chunks);
    if (!l->chunks)
        return error_set(err, QUIRE_ENOMEM, "no memory for an answer of %u chunks", n_chunks);
    if (cache_finish(l->cache, &l->decision, bytes, n, l->chunks) == CACHE_ANSWERED)
        return GET_ANSWERED;
    if (l->reading)
        document_read_end(&l->read);
    l->reading = false;
    if (++l->tries == TRIES_MAX) {
        /* entries that are found go while they are read, one after the other: enough of it */
        const struct quire_cache_answer old = l->decision.answer;
        memset(&l->decision, 0, sizeof l->decision);
        l->decision.answer.status = QUIRE_CACHE_MISS;
        l->decision.answer.reason = "the answers that were found went away while they were read";
        l->decision.answer.similarity = -1;
        l->decision.answer.threshold = old.threshold;
        l->decision.answer.guards_skipped = old.guards_skipped;
        return GET_DECIDED;
    }
    l->may_wait = false;
    int rc = cache_get(l->cache, l->lane->cache_scratch, &l->query, NULL, &l->decision, err);
    return rc == CACHE_DECIDED ? GET_DECIDED : rc == CACHE_WANTS_SEARCH ? GET_SEARCHES : rc;
}

/* Goes on with a decision (rc as cache_get's, but not CACHE_WAITS) as far as memory holds what it needs. An enum
 * get_next, not GET_DECIDED. */
static int settle(struct lookup *l, int rc, struct quire_error *err)
{
    if (rc != CACHE_DECIDED)
        return rc == CACHE_WANTS_SEARCH ? GET_SEARCHES : rc;
    rc = GET_DECIDED;
    while (rc == GET_DECIDED && l->decision.wants_document) {
        assert(!l->reading);
        rc = document_read_begin(cache_documents(l->cache), &l->decision.at, &l->read, err);
        l->reading = rc >= 0;
        if (rc == DOCUMENT_ON_DISK)
            return GET_READS;
        if (rc == DOCUMENT_IN_MEMORY || rc == QUIRE_ENOTFOUND)
            rc = take_document(l, rc == DOCUMENT_IN_MEMORY ? l->read.bytes : NULL, err);
    }
    return rc == GET_DECIDED ? GET_ANSWERED : rc;
}

/* ---- what is waited for ------------------------------------------------------------------------------------------ */

static void go_on(struct get_call *call, int rc, struct quire_error *err);

static void join_waits(struct get_call *call)
{
    struct lane *lane = call->asker.lane;
    assert(!call->next && !call->prev && lane->cache_waits != call);
    call->next = lane->cache_waits;
    if (call->next)
        call->next->prev = call;
    lane->cache_waits = call;
}

static void leave_waits(struct get_call *call)
{
    assert(call->prev ? call->prev->next == call : call->asker.lane->cache_waits == call);
    if (call->prev)
        call->prev->next = call->next;
    else
        call->asker.lane->cache_waits = call->next;
    if (call->next)
        call->next->prev = call->prev;
    call->next = call->prev = NULL;
}

static void on_read(struct io_op *op, int result, unsigned flags)
{
    struct get_call *call = op->owner;
    struct lookup *l = call->lookup;
    struct quire_error err = {0};
    (void)flags;
    int rc = document_read_bytes(&l->read, result, &err);
    if (rc < 0 && l->lane->now_ms - l->lane->last_cache_complaint_ms >= COMPLAIN_MS) {
        /* a disk that fails would fill the log: a line a second tells as much */
        l->lane->last_cache_complaint_ms = l->lane->now_ms;
        log_line(l->lane->service->log, LOG_LEVEL_WARNING, "an answer of a cache cannot be read and is removed: %s",
                 err.message);
    }
    rc = take_document(l, rc < 0 ? NULL : l->read.bytes, &err);
    go_on(call, rc == GET_DECIDED ? settle(l, CACHE_DECIDED, &err) : rc, &err);
}

/* A lookup for a call without one; NULL: no memory. */
static struct lookup *add_lookup(struct get_call *call, struct quire_error *err)
{
    assert(!call->lookup);
    if (caller_hold(&call->pending, sizeof *call->lookup)) {
        call->lookup = calloc(1, sizeof *call->lookup);
        if (!call->lookup)
            caller_let_go(&call->pending, sizeof *call->lookup);
    }
    if (!call->lookup)
        error_set(err, QUIRE_ENOMEM, "no memory for a lookup");
    return call->lookup;
}

static void drop_lookup(struct get_call *call)
{
    if (!call->lookup)
        return;
    lookup_fini(call->lookup);
    free(call->lookup);
    call->lookup = NULL;
    caller_let_go(&call->pending, sizeof *call->lookup);
}

/* The request's words, which lie in the call and were found right before. */
static void take_args(struct get_call *call)
{
    struct lookup *l = call->lookup;
    const struct cache_config *config = cache_get_config(call->asker.cache);
    int rc = cache_args_take(&l->args, CACHE_GET, config, call->args, call->n, NULL);
    assert(rc == 0 && !l->args.vector_copy);
    (void)rc;
    cache_args_query(&l->args, &l->query);
}

/* It waits from now on. */
static void park(struct get_call *call)
{
    call->begun_us = call->lookup->decision.begun_us;
    drop_lookup(call);
}

/* The disk was searched: the lookup is made again with what was found, and may wait then. A client that is gone takes
 * no lease with it. */
static void on_found(void *owner)
{
    struct get_call *call = owner;
    struct lookup *l = call->lookup;
    struct quire_error err = {0};
    bool gone = call->pending.caller->leaving, may_wait = l->may_wait && !gone;
    l->query.no_lease |= gone;
    if (may_wait)
        join_waits(call);
    int rc = cache_get_found(l->cache, l->lane->cache_scratch, &l->query, may_wait ? &call->waiter : NULL, &l->decision,
                             &err);
    if (rc == CACHE_WAITS) {
        park(call);
        return;
    }
    if (may_wait)
        leave_waits(call);
    go_on(call, settle(l, rc, &err), &err);
}

static void end_call(struct get_call *call)
{
    drop_lookup(call);
    asker_fini(&call->asker);
    caller_done(&call->pending);
}

/* rc: an enum get_next, as settle's. */
static void go_on(struct get_call *call, int rc, struct quire_error *err)
{
    struct lookup *l = call->lookup;
    if (rc == GET_SEARCHES) {
        cache_search_start(l->decision.search, l->lane->searcher, on_found, call);
        return;
    }
    if (rc == GET_READS && !caller_hold(&call->pending, l->read.op.bytes)) {
        rc = error_set(err, QUIRE_ENOMEM, "no memory for an answer of %u bytes", l->decision.at.bytes);
    } else if (rc == GET_READS) {
        l->read.op.done = on_read;
        l->read.op.owner = call;
        engine_queue(l->lane->engine, &l->read.op);
        return;
    }
    put_answer(l, rc, err, &call->pending.out);
    end_call(call);
}

/* Takes a request over, args of it behind the cache's name; the asker also on failure. */
static struct get_call *defer(struct caller *c, struct asker *asker, const struct resp_arg *args, uint32_t n)
{
    struct get_call *call = NULL;
    size_t bytes = sizeof *call + n * sizeof *args;
    for (uint32_t i = 0; i < n; i++)
        bytes += (args[i].bytes + ARG_ALIGN - 1) / ARG_ALIGN * ARG_ALIGN;
    call = caller_defer(c, bytes, false);
    if (!call) {
        asker_fini(asker);
        return NULL;
    }
    uint8_t *to = (uint8_t *)(call->args + n);
    for (uint32_t i = 0; i < n; i++) {
        call->args[i] = (struct resp_arg){to, args[i].bytes};
        if (args[i].bytes > 0)
            memcpy(to, args[i].data, args[i].bytes);
        to += (args[i].bytes + ARG_ALIGN - 1) / ARG_ALIGN * ARG_ALIGN;
    }
    call->n = n;
    call->asker = *asker;
    return call;
}

/* The wait is over. */
static void woken(struct get_call *call, enum lease_wake how)
{
    struct quire_error err = {0};
    struct cache *cache = call->asker.cache;
    bool leaving = call->pending.caller->leaving;
    leave_waits(call);
    if (how == LEASE_LEAD && leaving) {
        cache_fail(cache, text_of(call->waiter.token), &err);
        how = LEASE_CLOSED;
    }
    struct lookup *l = add_lookup(call, &err);
    int rc = QUIRE_ENOMEM;
    if (l) {
        *l = (struct lookup){.lane = call->asker.lane, .cache = cache, .waited = true};
        l->decision.begun_us = call->begun_us;
        take_args(call);
        l->query.no_lease |= leaving;
        rc = cache_woken(cache, l->lane->cache_scratch, &l->query, &call->waiter, how, &l->decision, &err);
    }
    if (rc < 0 && how == LEASE_LEAD)
        cache_fail(cache, text_of(call->waiter.token), NULL);
    if (l) {
        go_on(call, settle(l, rc, &err), &err);
        return;
    }
    resp_quire_error(&call->pending.out, &err);
    end_call(call);
}

static void on_wake_message(struct lane *lane, struct message *message)
{
    struct get_call *call = (struct get_call *)(void *)((char *)message - offsetof(struct get_call, message));
    (void)lane;
    woken(call, call->how);
}

/* On any thread; perhaps before cache_get has returned. */
static void on_wake(struct lease_waiter *waiter, enum lease_wake how)
{
    struct get_call *call = waiter->owner;
    call->how = how;
    lane_post(call->asker.lane, &call->message);
}

/* Whether its client is gone, or has long sent all it will. */
static bool waits_in_vain(const struct get_call *call)
{
    const struct caller *c = call->pending.caller;
    return c->gone || (c->leaving && call->asker.lane->now_ms - c->left_ms >= WAIT_AFTER_EOF_MS);
}

static void scan(struct lane *lane, bool all)
{
    for (struct get_call *call = lane->cache_waits, *next; call; call = next) {
        next = call->next;
        if ((all || waits_in_vain(call)) && cache_cancel(call->asker.cache, &call->waiter))
            woken(call, LEASE_CLOSED);
    }
}

/* What they wait for may never come: they get a miss. */
static void stop(struct lane *lane)
{
    scan(lane, true);
}

const struct lane_hook cache_waits_hook = {.scan = scan, .stop = stop};

static void get_waiting(struct caller *c, struct asker *asker, const struct resp_arg *args, uint32_t n)
{
    struct quire_error err = {0};
    struct get_call *call = defer(c, asker, args, n);
    if (!call)
        return;
    call->waiter.wake = on_wake;
    call->waiter.owner = call;
    call->message.run = on_wake_message;
    struct lookup *l = add_lookup(call, &err);
    if (!l) {
        resp_quire_error(&call->pending.out, &err);
        end_call(call);
        return;
    }
    *l = (struct lookup){.lane = c->lane, .cache = call->asker.cache, .may_wait = true};
    take_args(call);
    join_waits(call);
    int rc = cache_get(l->cache, c->lane->cache_scratch, &l->query, &call->waiter, &l->decision, &err);
    if (rc == CACHE_WAITS) {
        park(call);
        return;
    }
    leave_waits(call);
    go_on(call, settle(l, rc, &err), &err);
}

/* What was begun on the stack goes on when the disk has answered. rc: GET_READS or GET_SEARCHES. */
static void get_later(struct caller *c, struct asker *asker, struct lookup *l, int rc, const struct resp_arg *args,
                      uint32_t n)
{
    struct quire_error err = {0};
    struct get_call *call = defer(c, asker, args, n);
    struct lookup *kept = call ? add_lookup(call, &err) : NULL;
    if (kept) {
        *kept = *l;
        kept->args = (struct cache_args){.n_tags = 0};
        cache_args_fini(&l->args);
        take_args(call);
        go_on(call, rc, &err);
        return;
    }
    if (rc == GET_SEARCHES)
        cache_search_free(l->decision.search);
    lookup_fini(l);
    if (!call)
        return;
    resp_quire_error(&call->pending.out, &err);
    end_call(call);
}

/* ---- SC.GET ------------------------------------------------------------------------------------------------------ */

void cmd_sc_get(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    const struct fair_request facts = {.n_queries = 1};
    struct quire_error err = {0};
    struct asker asker = {.lane = c->lane, .cache = cache_call_find(c, args[1])};
    if (!asker.cache)
        return;
    if (fair_enter(c, &facts, &asker.pass, &err) < 0) {
        cache_reply_error(c, &err);
        cache_unref(asker.cache);
        return;
    }
    struct lookup l = {.lane = c->lane, .cache = asker.cache};
    int rc = cache_args_take(&l.args, CACHE_GET, cache_get_config(l.cache), args + 2, n - 2, &err);
    cache_args_query(&l.args, &l.query);
    if (rc == 0 && l.query.wait_ms) {
        lookup_fini(&l);
        get_waiting(c, &asker, args + 2, n - 2);
        return;
    }
    if (rc == 0)
        rc = cache_get(l.cache, c->lane->cache_scratch, &l.query, NULL, &l.decision, &err);
    rc = settle(&l, rc, &err);
    if (rc == GET_READS || rc == GET_SEARCHES) {
        get_later(c, &asker, &l, rc, args + 2, n - 2);
        return;
    }
    put_answer(&l, rc, &err, caller_reply(c));
    lookup_fini(&l);
    asker_fini(&asker);
}
