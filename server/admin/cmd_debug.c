/*
 * cmd_debug.c - DEBUG: means of looking inside, for developers and tests, as far as `enable-debug-command` lets them.
 *
 * RELOAD is what Redis's tests do to see that nothing is lost on the way to the disk and back. Here nothing is thrown
 * away: a checkpoint is written, the log synced, and then every vector set is verified, each byte of its files against
 * its checksums and what is in memory (store_check). What a start reads back is proven by the tests of recovery.
 */
#include "index/store/store.h"
#include "io/error.h"
#include "io/journal.h"
#include "server/admin/cmd_admin.h"
#include "server/admin/info.h"
#include "server/call/key_call.h"
#include "server/call/worker_call.h"
#include "server/dump/digest.h"
#include "server/protocol/arg.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { DEBUG_NO, DEBUG_LOCAL, DEBUG_YES, SLEEP_MAX = 3600 };

/* false after an error reply */
static bool may_debug(struct client *c)
{
    char address[CLIENT_ADDRESS_BYTES];
    uint64_t who = c->loop->server->service.config->debug_command;
    client_address(c, false, address);
    bool local = strncmp(address, "127.", 4) == 0 || strncmp(address, "[::1]:", 6) == 0 || client_is_unix(c);
    if (who == DEBUG_YES || (who == DEBUG_LOCAL && local))
        return true;
    caller_error(
        &c->caller,
        "ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", you can run it "
        "from a local connection, otherwise you need to set this option in the configuration file, and then "
        "restart the server.");
    return false;
}

/* Sleeps on the lane's thread: its other clients wait too, which is what the command is for. */
void cmd_debug_sleep(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    struct client *c = client_of(caller);
    double seconds;
    (void)n;
    if (!may_debug(c))
        return;
    if (!arg_number(args[2], &seconds) || !(seconds >= 0 && seconds <= SLEEP_MAX)) {
        caller_error(&c->caller, "ERR value is not a number of seconds from 0 to %d", SLEEP_MAX);
        return;
    }
    double whole = floor(seconds);
    struct timespec left = {.tv_sec = (time_t)whole, .tv_nsec = (long)((seconds - whole) * 1e9)};
    nanosleep(&left, NULL);
    resp_simple(client_reply(c), "OK");
}

void cmd_debug_object(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    struct client *c = client_of(caller);
    struct key_call call;
    char text[200];
    (void)n;
    if (!may_debug(c))
        return;
    if (!key_peek(&call, &c->caller, args[2])) {
        caller_error(&c->caller, "ERR no such key");
        return;
    }
    unsigned idle_s = atomic_load_explicit(&call.lock.keyspace->second, memory_order_relaxed) - call.entry->used_s;
    snprintf(
        text, sizeof text, "Value at:%p refcount:1 encoding:%s serializedlength:%" PRIu64 " lru:%u lru_seconds_idle:%u",
        (const void *)call.entry, key_encoding(call.entry), cmd_memory_of_key(call.entry), call.entry->used_s, idle_s);
    resp_simple(client_reply(c), text);
    key_end(&call);
}

/* ---- RELOAD ------------------------------------------------------------------------------------------------------ */

struct verifying {
    struct worker_call *call;
    uint64_t n;
};

static void keep_first(void *context, const char *sentence)
{
    struct verifying *v = context;
    if (v->n++ == 0)
        error_set(&v->call->error, QUIRE_ECORRUPT, "%s", sentence);
}

static void verify(void *context, struct collection *set)
{
    struct verifying *v = context;
    struct quire_error err = {0};
    if (v->call->code < 0 || collection_available(set, NULL) < 0)
        return;
    int rc = store_check(v->call->base.lane->service->store, set, keep_first, v, &err);
    if (rc < 0 && v->n == 0)
        v->call->error = err;
    v->call->code = v->n > 0 ? QUIRE_ECORRUPT : rc == QUIRE_ECLOSED ? 0 : rc; /* it was dropped meanwhile */
}

static void reload(struct worker_call *call)
{
    struct service *service = call->base.lane->service;
    struct verifying v = {.call = call};
    if (!service->store)
        return;
    call->code = store_checkpoint(service->store, &call->error);
    if (call->code == 0)
        store_each(service->store, verify, &v);
}

void cmd_debug_reload(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    if (!may_debug(client_of(caller)))
        return;
    for (uint32_t i = 2; i < n; i++)
        if (!arg_is(args[i], "MERGE") && !arg_is(args[i], "NOFLUSH") && !arg_is(args[i], "NOSAVE")) {
            caller_error(caller, "ERR DEBUG RELOAD only supports the MERGE, NOFLUSH and NOSAVE options.");
            return;
        }
    struct worker_call *call = deferred_begin(caller, NULL, sizeof *call, true);
    if (!call)
        return;
    call->work = reload;
    worker_call_start(call);
}

/* ---- DIGEST, DIGEST-VALUE ---------------------------------------------------------------------------------------- */

struct digest_call {
    struct worker_call base;
    uint32_t n;                            /* keys; 0: all of them together */
    struct resp_arg *keys;                 /* behind the digests */
    uint8_t (*digests)[DIGEST_BYTES];      /* n, at least 1 */
    _Alignas(max_align_t) uint8_t bytes[]; /* keys, digests, then what keys point to */
};

static void digest(struct worker_call *base)
{
    struct digest_call *call = (struct digest_call *)base;
    struct service *service = base->base.lane->service;
    if (call->n == 0)
        base->code = digest_of_all(service, call->digests[0], &base->error);
    for (uint32_t i = 0; i < call->n && base->code == 0; i++)
        base->code = digest_of_key(service, call->keys[i], call->digests[i], &base->error);
}

static void reply_digests(struct worker_call *base, struct resp_buffer *out)
{
    struct digest_call *call = (struct digest_call *)base;
    char text[DIGEST_TEXT_BYTES];
    if (call->n > 0)
        resp_array(out, call->n);
    for (uint32_t i = 0; i < (call->n ? call->n : 1); i++) {
        digest_text(call->digests[i], text);
        resp_simple(out, text);
    }
}

/* Of the keys, or of all. */
static void start_digest(struct caller *caller, const struct resp_arg *keys, uint32_t n)
{
    size_t bytes = n * sizeof *keys + (n + 1) * (size_t)DIGEST_BYTES;
    for (uint32_t i = 0; i < n; i++)
        bytes += keys[i].bytes;
    struct digest_call *call = deferred_begin(caller, NULL, sizeof *call + bytes, true);
    if (!call)
        return;
    call->n = n;
    call->keys = (struct resp_arg *)(void *)call->bytes;
    call->digests = (uint8_t(*)[DIGEST_BYTES])(void *)(call->keys + n);
    uint8_t *to = (uint8_t *)(call->digests + n + 1);
    for (uint32_t i = 0; i < n; i++) {
        call->keys[i] = (struct resp_arg){to, keys[i].bytes};
        if (keys[i].bytes > 0)
            memcpy(to, keys[i].data, keys[i].bytes);
        to += keys[i].bytes;
    }
    call->base.work = digest;
    call->base.reply = reply_digests;
    worker_call_start(&call->base);
}

void cmd_debug_digest(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    (void)args;
    (void)n;
    if (may_debug(client_of(caller)))
        start_digest(caller, NULL, 0);
}

void cmd_debug_digest_value(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    if (may_debug(client_of(caller)))
        start_digest(caller, args + 2, n - 2);
}

/* ---- what Redis's tests turn ------------------------------------------------------------------------------------- */

void cmd_debug_active_expire(struct caller *caller, const struct resp_arg *args, uint32_t n)
{
    long long on;
    (void)n;
    if (!may_debug(client_of(caller)))
        return;
    if (!arg_integer(args[2], &on)) {
        caller_error(caller, "ERR value is not an integer or out of range");
        return;
    }
    atomic_store(&caller->lane->service->keyspace.keeps_expired, on == 0);
    resp_simple(caller_reply(caller), "OK");
}
