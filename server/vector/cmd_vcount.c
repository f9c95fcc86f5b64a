/*
 * cmd_vcount.c - elements by what they are: VCOUNT and VDELWHERE.
 *
 *   VCOUNT key [FILTER expression] [TENANT name] ...
 *   VDELWHERE key FILTER expression [TENANT name] ... [DRYRUN]
 *
 * What a filter matches is found by a scan on the worker's thread, so lanes go on; it reads what the columns of the
 * segments cannot tell. Without a filter a count is known in memory and answered at once. Both count for the limits of
 * their tenant, before a filter is compiled; what runs on the worker's thread is not scheduled.
 *
 * VDELWHERE removes one element after the other as VREM would: under the shard of the key, in the gate, the key with
 * the last one. What has been put anew since the scan saw it stays, and so does what does not match any more; where
 * segments were exchanged meanwhile the element is looked at again. While the store is behind with seals and merges the
 * worker waits between removals, as writers do.
 */
#include "index/store/store.h"
#include "server/keys/gate.h"
#include "server/protocol/arg.h"
#include "server/protocol/resp.h"
#include "server/vector/cmd_vectors.h"
#include "server/vector/vector_call.h"
#include "server/vector/vector_scan.h"
#include "server/vector/vector_write.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct where_call {
    struct worker_call base;
    struct filter *filter; /* a reference */
    struct fair_pass pass;
    bool removes;
    uint64_t n;
    struct collection_scan scan;
    struct vector_scanner *looking; /* again, at single elements; NULL: not needed yet */
    struct resp_buffer refusal;     /* of a write; empty: none */
    struct resp_arg key;
    uint8_t bytes[]; /* the key */
};

/* ---- on the worker's thread -------------------------------------------------------------------------------------- */

/* As VREM would; more than once where segments change meanwhile. */
static int remove_located(struct where_call *call, struct vector_write *w, struct resp_buffer *reply,
                          struct quire_error *err)
{
    struct service *service = call->base.base.lane->service;
    for (;;) {
        gate_enter(&service->gate, service->n_lanes);
        enum vector_write_result result = vector_write_try(service, w, reply);
        gate_leave(&service->gate, service->n_lanes);
        if (result == VECTOR_WRITE_DONE)
            return 0;
        /* the segments have changed: what the scan has seen is looked at again */
        int rc = call->looking ? 0 : vector_scan_open(QUIRE_ENGINE_AUTO, &call->looking, err);
        if (rc == 0)
            rc = vector_scan_look_again(call->looking, &call->scan, w->element.data, w->element.bytes, &w->located,
                                        &w->seen_lsn, err);
        w->located_uid = w->only_uid;
        w->is_located = rc > 0;
        collection_unref(w->target);
        w->target = NULL;
        if (rc <= 0)
            return rc;
    }
}

/* Removes what the scan has seen; ends the scan where the set is gone or nothing can be written. */
static int remove_seen(void *context, const void *key, uint32_t key_bytes, const struct located *located)
{
    struct where_call *call = context;
    const struct timespec pause = {.tv_nsec = 10 * 1000 * 1000};
    struct quire_error err = {0};
    uint64_t uid = collection_uid(call->base.base.collection);
    struct resp_buffer reply = {.protocol = 2};
    struct vector_write w = {.kind = VECTOR_REMOVE,
                             .key = call->key,
                             .element = {key, key_bytes},
                             .scope = call->base.base.scope,
                             .is_located = true,
                             .located_uid = uid,
                             .located = *located,
                             .only_uid = uid,
                             .matching = call->filter,
                             .seen_lsn = located->seen_lsn};
    int rc = remove_located(call, &w, &reply, &err);
    if (rc == 0 && reply.bytes > 0 && reply.data[0] == '-') {
        resp_raw(&call->refusal, reply.data, reply.bytes);
        rc = QUIRE_EIO;
    }
    resp_buffer_fini(&reply);
    call->n += w.removed;
    if (w.lsn > call->base.lsn)
        call->base.lsn = w.lsn;
    if (store_is_behind(call->base.base.lane->service->store))
        nanosleep(&pause, NULL);
    if (rc < 0)
        call->base.error = err;
    return w.is_gone ? QUIRE_ENOTFOUND : rc;
}

static void work(struct worker_call *base)
{
    struct where_call *call = (struct where_call *)base;
    struct vector_scanner *lane = NULL;
    struct quire_error err = {0};
    call->scan = (struct collection_scan){.collection = base->base.collection,
                                          .filter = call->filter,
                                          .scope = base->base.scope,
                                          .want_keys = call->removes,
                                          .visit = call->removes ? remove_seen : NULL,
                                          .context = call};
    int rc = vector_scan_open(QUIRE_ENGINE_AUTO, &lane, &err);
    if (rc == 0)
        rc = vector_scan_run(lane, &call->scan, &err);
    vector_scan_close(lane);
    vector_scan_close(call->looking);
    filter_unref(call->filter);
    if (!call->removes)
        call->n = call->scan.n;
    /* the set has gone while its elements were removed: that was all of them */
    base->code = rc == QUIRE_ENOTFOUND && call->removes ? 0 : rc;
    if (base->code < 0 && base->error.code == 0)
        base->error = err;
    if (call->refusal.bytes > 0)
        base->code = 0;
}

/* Replies and ends the call. */
static void done(struct worker_call *base)
{
    struct where_call *call = (struct where_call *)base;
    struct resp_buffer *out = &base->base.pending.out;
    fair_leave(&call->pass);
    if (base->code < 0)
        resp_quire_error(out, &base->error);
    else if (call->refusal.bytes > 0)
        resp_raw(out, call->refusal.data, call->refusal.bytes);
    else
        resp_integer(out, (long long)call->n);
    resp_buffer_fini(&call->refusal);
    base->base.pending.lsn = base->lsn;
    deferred_end(&base->base);
}

/* ---- the commands ------------------------------------------------------------------------------------------------ */

static void count_or_remove(struct caller *c, const struct resp_arg *args, uint32_t n, bool removes)
{
    struct resp_arg expression = {0}, key = args[1];
    struct tenant_names tenants = {0};
    struct vector_view view = {0};
    struct fair_pass pass = {0};
    struct filter *filter = NULL;
    bool dry_run = false, right = true;
    for (uint32_t at = 2; at < n && right; at++) {
        if (arg_is(args[at], "FILTER")) {
            right = vector_filter_take(c, args, n, &at, &expression);
        } else if (arg_is(args[at], "TENANT")) {
            right = vector_names_take(c, args, n, &at, &tenants);
        } else if (removes && arg_is(args[at], "DRYRUN")) {
            dry_run = true;
        } else {
            caller_error(c, "ERR syntax error at '%.*s'", ARG_SHOWN(args[at], 64u));
            right = false;
        }
    }
    if (right && removes && !expression.data) {
        caller_error(c, "ERR syntax error: VDELWHERE key FILTER expression [TENANT tenant] [DRYRUN]");
        right = false;
    }
    struct fair_request facts = {.n_queries = 1, .filter_bytes = expression.bytes};
    right = right && vector_view_begin(c, key, &tenants, &view) != VIEW_REFUSED;
    bool entered = right && vector_enter(c, &view, &tenants, &facts, &pass);
    right = entered && (!expression.data || vector_filter_compile(c, expression, view.collection, &filter));
    vector_names_fini(&tenants);
    struct where_call *call = NULL;
    if (right && view.collection && filter)
        call = deferred_begin(c, &view, sizeof *call + key.bytes, true);
    else if (right)
        resp_integer(caller_reply(c), (long long)vector_view_count(&view));
    if (!call) {
        if (entered)
            fair_leave(&pass);
        filter_unref(filter);
        vector_view_end(&view);
        return;
    }
    call->pass = pass;
    call->filter = filter;
    caller_hold(&call->base.base.pending, filter_memory_bytes(filter)); /* where it may not, the client goes */
    call->refusal.protocol = c->protocol;
    call->key = (struct resp_arg){call->bytes, key.bytes};
    if (key.bytes > 0)
        memcpy(call->bytes, key.data, key.bytes);
    call->removes = removes && !dry_run;
    call->base.work = work;
    call->base.done = done;
    worker_call_start(&call->base);
}

void cmd_vcount(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    count_or_remove(c, args, n, false);
}

void cmd_vdelwhere(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    count_or_remove(c, args, n, true);
}
