/*
 * query_call.c - see query_call.h.
 *
 * Arguments are valid during the handler's call only, and a search with vectors ends later, so the words are copied
 * once, and all else points into the copy.
 *
 * Keys whose time is over by then are removed before a search begins, so that none is found, counted, or among the
 * nearest.
 *
 * A query with vectors enters the fair queue of its lane; one that is decided in memory runs at once. Both count for
 * the limits of their user.
 */
#include "server/document/query_call.h"
#include "io/error.h"
#include <assert.h>
#include <roaring/roaring.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* A query without vectors over no more documents than these takes less than the way to another lane. */
enum { NEAR_DOCUMENTS = 10000 };

static bool copy_words(struct query_call *call, const struct resp_arg *args, uint32_t n)
{
    call->words = arena_take(&call->arena, (n + (size_t)1) * sizeof *call->words);
    for (uint32_t i = 0; call->words && i < n; i++) {
        char *copy = arena_take(&call->arena, args[i].bytes + (size_t)1);
        if (!copy)
            return false;
        if (args[i].bytes > 0)
            memcpy(copy, args[i].data, args[i].bytes);
        copy[args[i].bytes] = 0;
        call->words[i] = (struct schema_word){copy, args[i].bytes};
    }
    call->n_words = n;
    return call->words != NULL;
}

void *query_call_begin(struct caller *c, const struct resp_arg *args, uint32_t n, size_t bytes)
{
    struct document_index *index = document_index_of(c, args[1]);
    if (!index)
        return NULL;
    struct query_call *call = caller_defer(c, bytes, false);
    if (!call) {
        document_index_unref(index);
        return NULL;
    }
    call->lane = c->lane;
    call->index = index;
    call->schema = document_index_schema(index);
    call->maps = document_wants_maps(c);
    call->slice.caller = c;
    call->key = arena_take(&call->arena, QUIRE_KEY_BYTES_MAX);
    if (call->key && copy_words(call, args + 2, n - 2))
        return call;
    struct quire_error err;
    error_set(&err, QUIRE_ENOMEM, "no memory for a request of %u words", n);
    query_call_fail(call, &err);
    return NULL;
}

void query_call_end(struct query_call *call)
{
    if (call->fini)
        call->fini(call);
    if (call->entered)
        fair_leave(&call->pass);
    if (call->held)
        resp_account_add(call->pending.out.account, -(int64_t)call->held);
    document_search_fini(&call->search);
    document_loaded_fini(&call->loaded);
    query_free(call->query);
    document_index_unref(call->index);
    arena_fini(&call->arena);
    caller_done(&call->pending);
}

void query_call_fail(struct query_call *call, const struct quire_error *err)
{
    if (!call->pending.out.failed)
        call->pending.out.bytes = 0;
    document_error(&call->pending.out, err);
    query_call_end(call);
}

/* On the caller's lane. */
static void take_found(struct query_call *call)
{
    struct document_search *search = &call->search;
    struct lane_stats *stats = &call->lane->stats;
    if (call->ticket.run)
        fair_end(&call->ticket, &search->stats);
    if (search->code < 0) {
        lane_stat_add(&stats->search_errors, 1);
        query_call_fail(call, &search->error);
        return;
    }
    lane_stat_add(&stats->searches, 1);
    lane_stat_add(&stats->search_reads, search->stats.reads);
    lane_stat_add(&stats->search_rounds, search->stats.rounds);
    lane_stat_add(&stats->search_cpu_ns, search->stats.cpu_ns);
    size_t bytes = search->n * (sizeof *search->ids + (search->n_yields + (search->scores != NULL)) * sizeof(double));
    if (!resp_account_take(call->pending.out.account, bytes)) {
        struct quire_error err;
        error_set(&err, QUIRE_ELIMIT, "what the query has found, %llu documents, is more than the client may hold",
                  (unsigned long long)search->n);
        query_call_fail(call, &err);
        return;
    }
    call->held = bytes;
    call->found(call);
}

static struct query_call *of_message(struct message *message)
{
    return (struct query_call *)(void *)((char *)message - offsetof(struct query_call, message));
}

static void come_back(struct lane *lane, struct message *message)
{
    (void)lane;
    take_found(of_message(message));
}

/* On the lane of the search. */
static void on_searched(struct document_search *search)
{
    struct query_call *call = search->owner;
    if (call->search_lane == call->lane) {
        take_found(call);
        return;
    }
    struct lane *lane = call->search_lane;
    call->message.run = come_back;
    lane_post(call->lane, &call->message);
    lane->host->search_ended(lane);
}

static void start_there(struct lane *lane, struct message *message)
{
    (void)lane;
    document_search_start(&of_message(message)->search);
}

/* Perhaps behind the end of another search, outside of the gate; not within another's transaction. */
static void expire(struct lane *lane, bool whole)
{
    const struct keeper *keeper = lane->service->keeper;
    if (!keeper->expire || (lane_is_shut(lane) && !whole) || !lane_try_enter(lane))
        return;
    keeper->expire(lane->service);
    lane_leave(lane);
}

static void start(struct query_call *call)
{
    struct caller *c = call->pending.caller;
    const struct host *host = call->lane->host;
    struct lane *other = NULL;
    expire(call->lane, c->whole);
    if (host->search_begins && !c->whole &&
        (document_search_has_vectors(call->query) || document_index_count(call->index) > NEAR_DOCUMENTS))
        other = host->search_begins(c);
    call->search_lane = other ? other : call->lane;
    call->search.searcher = call->search_lane->searcher;
    if (!other) {
        document_search_start(&call->search);
        return;
    }
    call->message.run = start_there;
    lane_post(other, &call->message);
}

static void begin_search(struct fair_ticket *ticket, int code)
{
    struct query_call *call = ticket->owner;
    if (code < 0 || call->pending.caller->gone) {
        struct quire_error err;
        if (code == 0)
            fair_end(ticket, NULL);
        error_set(&err, QUIRE_ECANCELLED, "the search was cancelled before it began");
        query_call_fail(call, &err);
        return;
    }
    call->search.priority = ticket->priority;
    start(call);
}

void query_call_search(struct query_call *call, uint32_t k, uint32_t ef)
{
    struct quire_error err = {0};
    struct fair_request facts = {.n_queries = 1, .k = k, .effort = ef, .filter_bytes = call->words[0].bytes};
    int rc = fair_enter(call->pending.caller, &facts, &call->pass, &err);
    if (rc < 0) {
        query_call_fail(call, &err);
        return;
    }
    call->entered = true;
    call->search.index = call->index;
    call->search.query = call->query;
    call->search.done = on_searched;
    call->search.owner = call;
    if (!document_search_has_vectors(call->query)) {
        start(call);
        return;
    }
    call->ticket.run = begin_search;
    call->ticket.owner = call;
    fair_start(&call->pass, &call->ticket);
}

bool query_call_key(struct query_call *call, uint32_t id, struct resp_arg *key)
{
    uint32_t bytes;
    if (!document_index_key(call->index, id, call->key, &bytes))
        return false;
    *key = (struct resp_arg){call->key, bytes};
    return true;
}

uint32_t query_call_position(const struct query_call *call, const char *bytes)
{
    return document_position(call->words, call->n_words, bytes);
}

roaring_bitmap_t *query_call_keys(const struct query_call *call, const struct schema_word *names, uint32_t n)
{
    roaring_bitmap_t *ids = roaring_bitmap_create();
    if (ids)
        document_index_find_keys(call->index, names, n, ids);
    return ids;
}
