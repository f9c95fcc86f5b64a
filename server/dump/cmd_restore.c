/*
 * cmd_restore.c - RESTORE, and COPY of a vector set: a value that is made apart, then bound to its key.
 *
 *   RESTORE key ttl payload [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency]
 *
 * Options, their order of checks and the errors are those of Redis. A short string or hash is made at once, and in EXEC
 * everything, whose writes are then part of the transaction's frame; the rest by the worker, to which the payload is
 * copied. The key is looked at twice: before the work, so that it is not in vain,
 * and when the value is bound.
 */
#include "io/error.h"
#include "server/call/key_call.h"
#include "server/call/worker_call.h"
#include "server/dump/cmd_dumps.h"
#include "server/protocol/arg.h"
#include <string.h>

enum { AT_ONCE_BYTES = 1 << 20, FREQ_MAX = 255 };

static void reply_error(struct resp_buffer *out, const struct quire_error *err)
{
    switch (err->code) {
    case QUIRE_EEXISTS:
        resp_error(out, "BUSYKEY Target key name already exists.");
        break;
    case QUIRE_EVERSION:
        resp_error(out, "ERR DUMP payload version or checksum are wrong");
        break;
    case QUIRE_ECORRUPT:
        resp_error(out, "ERR Bad data format: %s", err->message);
        break;
    case QUIRE_ENOSPACE:
    case QUIRE_EIO:
    case QUIRE_EBUSY:
        resp_error(out, "MISCONF Errors writing to the log: %s", err->message);
        break;
    default:
        resp_quire_error(out, err);
    }
}

/* ---- options ----------------------------------------------------------------------------------------------------- */

struct options {
    bool absolute;
    long long idle_s, freq; /* -1: not given */
};

static bool take_number(struct caller *c, struct resp_arg arg, long long *out)
{
    if (arg_integer(arg, out))
        return true;
    caller_error(c, "ERR value is not an integer or out of range");
    return false;
}

static bool take_options(struct caller *c, const struct resp_arg *args, uint32_t n, struct options *o,
                         struct transfer_target *target)
{
    for (uint32_t i = 4; i < n; i++) {
        if (arg_is(args[i], "REPLACE")) {
            target->replace = true;
        } else if (arg_is(args[i], "ABSTTL")) {
            o->absolute = true;
        } else if (arg_is(args[i], "IDLETIME") && i + 1 < n && o->freq < 0) {
            if (!take_number(c, args[++i], &o->idle_s))
                return false;
            if (o->idle_s < 0) {
                caller_error(c, "ERR Invalid IDLETIME value, must be >= 0");
                return false;
            }
        } else if (arg_is(args[i], "FREQ") && i + 1 < n && o->idle_s < 0) {
            if (!take_number(c, args[++i], &o->freq))
                return false;
            if (o->freq < 0 || o->freq > FREQ_MAX) {
                caller_error(c, "ERR Invalid FREQ value, must be >= 0 and <= %d", FREQ_MAX);
                return false;
            }
        } else {
            caller_error(c, "ERR syntax error");
            return false;
        }
    }
    target->idle_s = o->idle_s < 0 ? 0 : o->idle_s < INT32_MAX ? (uint32_t)o->idle_s : INT32_MAX;
    return true;
}

static bool is_free(struct caller *c, const struct transfer_target *target)
{
    struct key_call call;
    if (!key_write(&call, c, target->key, KEY_ANY))
        return false;
    bool busy = call.entry && !target->replace;
    key_end(&call);
    if (busy)
        resp_error(caller_reply(c), "BUSYKEY Target key name already exists.");
    return !busy;
}

static bool take_ttl(struct caller *c, struct resp_arg arg, bool absolute, uint64_t *expire_ms)
{
    long long ttl;
    uint64_t now_ms = clock_wall_ms();
    if (!take_number(c, arg, &ttl))
        return false;
    if (ttl < 0) {
        caller_error(c, "ERR Invalid TTL value, must be >= 0");
        return false;
    }
    *expire_ms = (uint64_t)ttl + (ttl > 0 && !absolute ? now_ms : 0);
    return true;
}

/* ---- RESTORE ----------------------------------------------------------------------------------------------------- */

static int make_value(struct service *service, struct payload *p, bool at_once, struct key_value *out,
                      struct quire_error *err)
{
    out->type = p->type;
    switch (p->type) {
    case KEY_STRING:
        return payload_string(p, &out->string, err);
    case KEY_JSON:
        return payload_json(p, &out->string, err);
    case KEY_HASH:
        return payload_hash(p, service->keyspace.seed, &out->hash, err);
    case KEY_VECTOR_SET:
        break;
    }
    return transfer_read_set(service, p, at_once, &out->set, err);
}

struct restore_call {
    struct worker_call base;
    struct transfer_target target;
    struct resp_arg payload;
    uint8_t bytes[]; /* key, payload */
};

static void restore(struct worker_call *base)
{
    struct restore_call *call = (struct restore_call *)base;
    struct service *service = base->base.lane->service;
    struct payload payload;
    struct key_value value;
    int rc = payload_open(call->payload, &payload, &base->error);
    if (rc == 0)
        rc = make_value(service, &payload, false, &value, &base->error);
    if (rc == 0)
        rc = transfer_bind_later(service, &call->target, &value, &base->lsn, &base->error);
    base->code = rc;
}

static void restore_done(struct worker_call *base)
{
    struct resp_buffer *out = &base->base.pending.out;
    if (base->code < 0)
        reply_error(out, &base->error);
    else
        resp_simple(out, "OK");
    base->base.pending.lsn = base->lsn;
    deferred_end(&base->base);
}

static void restore_later(struct caller *c, const struct transfer_target *target, struct resp_arg payload)
{
    struct restore_call *call = deferred_begin(c, NULL, sizeof *call + target->key.bytes + payload.bytes, true);
    if (!call)
        return;
    if (target->key.bytes > 0)
        memcpy(call->bytes, target->key.data, target->key.bytes);
    memcpy(call->bytes + target->key.bytes, payload.data, payload.bytes);
    call->target = *target;
    call->target.key.data = call->bytes;
    call->payload = (struct resp_arg){call->bytes + target->key.bytes, payload.bytes};
    call->base.work = restore;
    call->base.done = restore_done;
    worker_call_start(&call->base);
}

static void restore_now(struct caller *c, const struct transfer_target *target, struct payload *payload)
{
    struct quire_error err = {0};
    struct key_value value;
    uint64_t lsn = 0;
    int rc = make_value(c->lane->service, payload, true, &value, &err);
    if (rc == 0)
        rc = transfer_bind(c->lane->service, target, &value, &lsn, &err);
    if (rc < 0)
        reply_error(caller_reply(c), &err);
    else
        resp_simple(caller_reply(c), "OK");
    caller_wait_lsn(c, lsn);
}

void cmd_restore(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct options options = {.idle_s = -1, .freq = -1};
    struct transfer_target target = {.key = args[1]};
    struct quire_error err = {0};
    struct payload payload;
    if (!take_options(c, args, n, &options, &target) || !is_free(c, &target) ||
        !take_ttl(c, args[2], options.absolute, &target.expire_ms))
        return;
    bool is_long = args[3].bytes > AT_ONCE_BYTES && !c->whole;
    if (!is_long && payload_open(args[3], &payload, &err) < 0)
        reply_error(caller_reply(c), &err);
    else if (!is_long && (c->whole || payload.type != KEY_VECTOR_SET))
        restore_now(c, &target, &payload);
    else
        restore_later(c, &target, args[3]);
}

/* ---- COPY -------------------------------------------------------------------------------------------------------- */

struct copy_call {
    struct worker_call base;
    struct transfer_target target;
    uint8_t key[];
};

static void copy(struct worker_call *base)
{
    struct copy_call *call = (struct copy_call *)base;
    struct service *service = base->base.lane->service;
    struct key_value value = {.type = KEY_VECTOR_SET};
    int rc = transfer_copy_set(service, base->base.collection, false, &value.set, &base->error);
    if (rc == 0)
        rc = transfer_bind_later(service, &call->target, &value, &base->lsn, &base->error);
    base->code = rc;
}

static void reply_copied(struct resp_buffer *out, int code, const struct quire_error *err)
{
    if (code < 0 && code != QUIRE_EEXISTS) /* made meanwhile */
        reply_error(out, err);
    else
        resp_integer(out, code == 0);
}

static void copy_done(struct worker_call *base)
{
    reply_copied(&base->base.pending.out, base->code, &base->error);
    base->base.pending.lsn = base->lsn;
    deferred_end(&base->base);
}

/* In EXEC. */
static void copy_now(struct caller *c, struct collection *from, const struct transfer_target *to)
{
    struct quire_error err = {0};
    struct key_value value = {.type = KEY_VECTOR_SET};
    uint64_t lsn = 0;
    int rc = transfer_copy_set(c->lane->service, from, true, &value.set, &err);
    if (rc == 0)
        rc = transfer_bind(c->lane->service, to, &value, &lsn, &err);
    collection_unref(from);
    reply_copied(caller_reply(c), rc, &err);
    caller_wait_lsn(c, lsn);
}

void cmd_copy_set(struct caller *c, struct collection *from, const struct transfer_target *to)
{
    if (c->whole) {
        copy_now(c, from, to);
        return;
    }
    struct vector_view view = {.collection = from};
    struct copy_call *call = deferred_begin(c, &view, sizeof *call + to->key.bytes, true);
    if (!call)
        return;
    if (to->key.bytes > 0)
        memcpy(call->key, to->key.data, to->key.bytes);
    call->target = *to;
    call->target.key.data = call->key;
    call->base.work = copy;
    call->base.done = copy_done;
    worker_call_start(&call->base);
}
