/*
 * cmd_cache_put.c - what is said to a semantic cache about single answers: SC.PUT, SC.NEG, SC.FAIL, SC.RENEW,
 * SC.FEEDBACK, SC.AUDIT, SC.TOUCH, SC.PIN, SC.UNPIN, SC.DEL.
 *
 * All but SC.AUDIT GET and POP, which show texts that lie on the disk, are answered at once. Replies to what is logged
 * wait for the log as those of other writes do; negative answers, leases and labels live in memory.
 *
 * SC.AUDIT POP hands pairs out, so it takes no more than fit a reply of reasonable size: what it has taken must reach
 * the client.
 */
#include "io/error.h"
#include "server/cache/cache_call.h"
#include "server/cache/cmd_caches.h"
#include <stddef.h>
#include <stdlib.h>

enum { AUDITS_MAX = 100, AUDIT_REPLY_BYTES = 16 << 20 };

/* ---- SC.PUT, SC.NEG, SC.FAIL, SC.RENEW --------------------------------------------------------------------------- */

void cmd_sc_put(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct quire_error err = {0};
    struct cache_args taken = {0};
    struct quire_cache_entry entry;
    struct quire_cache_put_result result = {0};
    struct cache *cache = cache_call_find(c, args[1]);
    if (!cache)
        return;
    int rc = cache_args_take(&taken, CACHE_PUT, cache_get_config(cache), args + 2, n - 2, &err);
    cache_args_entry(&taken, &entry);
    if (rc == 0)
        rc = cache_put(cache, c->lane->cache_scratch, &entry, &result, &err);
    if (rc < 0) {
        cache_reply_error(c, &err);
    } else {
        struct resp_buffer *out = caller_reply(c);
        bool there = result.outcome == QUIRE_CACHE_STORED || result.outcome == QUIRE_CACHE_REPLACED ||
                     result.outcome == QUIRE_CACHE_EXISTS;
        resp_map(out, 5);
        cache_field_text(out, "outcome", quire_cache_put_outcome_name(result.outcome));
        resp_text(out, "id");
        if (there)
            cache_reply_id(out, result.id);
        else
            resp_null(out);
        cache_field_integer(out, "ttl_ms", there ? cache_ttl(result.expire_ms, clock_wall_ms()) : 0);
        cache_field_integer(out, "evicted", result.evicted);
        cache_field_integer(out, "woken", result.woken);
        caller_wait_lsn(c, result.lsn);
    }
    cache_args_fini(&taken);
    cache_unref(cache);
}

void cmd_sc_neg(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct quire_error err = {0};
    struct cache_args taken = {0};
    struct quire_cache_query query;
    struct cache *cache = cache_call_find(c, args[1]);
    if (!cache)
        return;
    int rc = cache_args_take(&taken, CACHE_NEG, cache_get_config(cache), args + 2, n - 2, &err);
    cache_args_query(&taken, &query);
    if (rc == 0)
        rc = cache_negative(cache, &query, taken.ttl_ms, taken.lease, &err);
    cache_reply_ok(c, rc, 0, &err);
    cache_args_fini(&taken);
    cache_unref(cache);
}

void cmd_sc_fail(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct quire_error err = {0};
    struct cache *cache = cache_call_find(c, args[1]);
    (void)n;
    if (!cache)
        return;
    cache_reply_whether(c, cache_fail(cache, cache_arg_bytes(args[2]), &err), 0, &err);
    cache_unref(cache);
}

void cmd_sc_renew(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct quire_error err = {0};
    uint64_t ms = 0, left_ms = 0;
    struct cache *cache = cache_call_find(c, args[1]);
    if (!cache)
        return;
    int rc = cache_arg_option(args, n, 3, "MS", "SC.RENEW cache lease [MS ms]", &err);
    if (rc == 0 && n == 5)
        rc = cache_arg_integer("MS", args[4], 1, CACHE_TTL_MS_MAX, &ms, &err);
    if (rc == 0)
        rc = cache_renew(cache, cache_arg_bytes(args[2]), ms, &left_ms, &err);
    cache_reply_number(c, rc, left_ms, 0, &err);
    cache_unref(cache);
}

/* ---- labels ------------------------------------------------------------------------------------------------------ */

static int take_verdict(struct resp_arg arg, bool *good, struct quire_error *err)
{
    *good = arg_is(arg, "GOOD");
    return *good || arg_is(arg, "BAD")
               ? 0
               : error_set(err, QUIRE_EINVALID, "syntax error at '%.*s': say GOOD or BAD", ARG_SHOWN(arg, 64u));
}

void cmd_sc_feedback(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct quire_error err = {0};
    uint64_t id, lsn = 0;
    double similarity = -1; /* not given */
    bool good = false;
    struct cache *cache = cache_call_find(c, args[1]);
    if (!cache)
        return;
    int rc = cache_arg_id(args[2], &id, &err);
    if (rc == 0)
        rc = take_verdict(args[3], &good, &err);
    if (rc == 0)
        rc = cache_arg_option(args, n, 4, "SIM", "SC.FEEDBACK cache id GOOD|BAD [SIM s]", &err);
    if (rc == 0 && n == 6)
        rc = cache_arg_number("SIM", args[5], 1, &similarity, &err);
    if (rc == 0)
        rc = cache_feedback(cache, id, good, similarity, &lsn, &err);
    cache_reply_ok(c, rc, lsn, &err);
    cache_unref(cache);
}

/* ---- SC.AUDIT ---------------------------------------------------------------------------------------------------- */

struct audit_call {
    struct deferred base;
    struct cache *cache; /* a reference */
    struct cache_reading reading;
    bool one; /* GET: a map, not an array of them */
    uint32_t n;
    struct quire_cache_audit audits[AUDITS_MAX];
    struct cache_text items[AUDITS_MAX];
};

static void put_audit(const struct quire_cache_audit *audit, const struct cache_text *item, struct resp_buffer *out)
{
    resp_map(out, 7);
    cache_field_integer(out, "audit", (long long)audit->number);
    cache_field_id(out, "id", audit->id);
    cache_field_bytes(out, "category", audit->category);
    cache_field_double(out, "similarity", audit->similarity);
    cache_field_bytes(out, "text", audit->text);
    cache_field_bytes(out, "entry_text", (struct quire_bytes){item->bytes, item->text});
    resp_text(out, "entry_value");
    if (item->found)
        resp_bulk(out, item->bytes + item->text, item->value);
    else
        resp_null(out);
}

static void end_audits(struct audit_call *call)
{
    cache_reading_fini(&call->reading);
    for (uint32_t i = 0; i < call->n; i++)
        quire_cache_audit_free(&call->audits[i]);
    cache_unref(call->cache);
    deferred_end(&call->base);
}

static void on_audits_read(struct cache_reading *reading)
{
    struct audit_call *call = (struct audit_call *)(void *)((char *)reading - offsetof(struct audit_call, reading));
    struct resp_buffer *out = &call->base.pending.out;
    if (!call->one)
        resp_array(out, call->n);
    for (uint32_t i = 0; i < call->n; i++)
        put_audit(&call->audits[i], &call->items[i], out);
    end_audits(call);
}

/* The call, which has the cache's reference; NULL: rc was an error, or there is no memory, and that is answered. */
static struct audit_call *begin_audits(struct caller *c, struct cache *cache, int rc, const struct quire_error *err)
{
    struct audit_call *call = rc == 0 ? deferred_begin(c, NULL, sizeof *call, false) : NULL;
    if (call) {
        call->cache = cache;
        return call;
    }
    if (rc < 0)
        cache_reply_error(c, err);
    cache_unref(cache);
    return NULL;
}

/* What the call holds is read, then shown. */
static void show_audits(struct caller *c, struct audit_call *call)
{
    for (uint32_t i = 0; i < call->n; i++) {
        struct cache_text *item = &call->items[i];
        item->id = call->audits[i].id;
        item->at.segment = item->at.bytes ? item->at.segment : 0;
    }
    call->reading = (struct cache_reading){.lane = c->lane,
                                           .pending = &call->base.pending,
                                           .log = cache_documents(call->cache),
                                           .items = call->items,
                                           .n = call->n,
                                           .with_values = true,
                                           .done = on_audits_read};
    cache_reading_start(&call->reading);
}

void cmd_sc_audit_get(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct quire_error err = {0};
    uint64_t number;
    struct cache *cache = cache_call_find(c, args[2]);
    (void)n;
    if (!cache)
        return;
    int rc = cache_arg_integer("audit", args[3], 1, INT64_MAX, &number, &err);
    struct audit_call *call = begin_audits(c, cache, rc, &err);
    if (!call)
        return;
    call->one = true;
    rc = cache_audit_get(cache, number, &call->audits[0], &call->items[0].at, &err);
    if (rc < 0) {
        if (rc == QUIRE_ENOTFOUND)
            resp_null(&call->base.pending.out);
        else
            resp_quire_error(&call->base.pending.out, &err);
        end_audits(call);
        return;
    }
    call->n = 1;
    show_audits(c, call);
}

void cmd_sc_audit_pop(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct quire_error err = {0};
    uint64_t most = 1;
    struct cache *cache = cache_call_find(c, args[2]);
    if (!cache)
        return;
    int rc = cache_arg_option(args, n, 3, "COUNT", "SC.AUDIT POP cache [COUNT n]", &err);
    if (rc == 0 && n == 5)
        rc = cache_arg_integer("COUNT", args[4], 1, AUDITS_MAX, &most, &err);
    struct audit_call *call = begin_audits(c, cache, rc, &err);
    if (!call)
        return;
    for (uint64_t bytes = 0; rc == 0 && call->n < most && bytes < AUDIT_REPLY_BYTES;) {
        struct cache_text *item = &call->items[call->n];
        struct quire_cache_audit *audit = &call->audits[call->n];
        rc = cache_audit_pop(cache, audit, &item->at, &err);
        if (rc < 0)
            break;
        bytes += item->at.bytes;
        call->n++;
    }
    /* what has been taken is shown whatever follows */
    if (rc < 0 && rc != QUIRE_ENOTFOUND && call->n == 0) {
        resp_quire_error(&call->base.pending.out, &err);
        end_audits(call);
        return;
    }
    show_audits(c, call);
}

void cmd_sc_audit_put(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct quire_error err = {0};
    uint64_t number;
    bool right = false;
    struct cache *cache = cache_call_find(c, args[2]);
    (void)n;
    if (!cache)
        return;
    int rc = cache_arg_integer("audit", args[3], 1, INT64_MAX, &number, &err);
    if (rc == 0)
        rc = take_verdict(args[4], &right, &err);
    if (rc == 0)
        rc = cache_audit_put(cache, number, right, &err);
    cache_reply_ok(c, rc, 0, &err);
    cache_unref(cache);
}

/* ---- single entries ---------------------------------------------------------------------------------------------- */

void cmd_sc_touch(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct quire_error err = {0};
    uint64_t id, ttl_ms = 0, lsn = 0;
    struct cache *cache = cache_call_find(c, args[1]);
    if (!cache)
        return;
    int rc = cache_arg_option(args, n, 3, "TTL", "SC.TOUCH cache id [TTL ms]", &err);
    if (rc == 0)
        rc = cache_arg_id(args[2], &id, &err);
    if (rc == 0 && n == 5)
        rc = cache_arg_integer("TTL", args[4], 1, CACHE_TTL_MS_MAX, &ttl_ms, &err);
    if (rc == 0)
        rc = cache_touch(cache, id, ttl_ms, &lsn, &err);
    cache_reply_whether(c, rc, lsn, &err);
    cache_unref(cache);
}

static void set_pinned(struct caller *c, const struct resp_arg *args, bool pinned)
{
    struct quire_error err = {0};
    uint64_t id, lsn = 0;
    struct cache *cache = cache_call_find(c, args[1]);
    if (!cache)
        return;
    int rc = cache_arg_id(args[2], &id, &err);
    if (rc == 0)
        rc = cache_pin(cache, id, pinned, &lsn, &err);
    cache_reply_whether(c, rc, lsn, &err);
    cache_unref(cache);
}

void cmd_sc_pin(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    (void)n;
    set_pinned(c, args, true);
}

void cmd_sc_unpin(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    (void)n;
    set_pinned(c, args, false);
}

/* All ids are looked at before the first goes. */
void cmd_sc_del(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct quire_error err = {0};
    uint64_t id, lsn = 0, latest = 0;
    long long gone = 0;
    int rc = 0;
    struct cache *cache = cache_call_find(c, args[1]);
    if (!cache)
        return;
    for (uint32_t i = 2; i < n && rc == 0; i++)
        rc = cache_arg_id(args[i], &id, &err);
    for (uint32_t i = 2; i < n && rc == 0; i++) {
        cache_arg_id(args[i], &id, NULL);
        rc = cache_remove(cache, id, &lsn, &err);
        gone += rc == 0;
        latest = rc == 0 && lsn > latest ? lsn : latest;
        rc = rc == QUIRE_ENOTFOUND ? 0 : rc;
    }
    if (rc < 0)
        cache_reply_error(c, &err);
    else
        resp_integer(caller_reply(c), gone);
    caller_wait_lsn(c, latest);
    cache_unref(cache);
}
