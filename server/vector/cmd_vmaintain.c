/*
 * cmd_vmaintain.c - work on whole vector sets, on the worker's thread: VLOAD, VSEAL, VCOMPACT, VCHECK, VRANGE.
 *
 *   VLOAD key path [MEMORY bytes]   adds an index made offline to a set, or makes the set of it: by hard links where
 *                                   the data folder lies on the same file system, otherwise by a copy. Elements that
 *                                   the set has already are replaced
 *   VRANGE key start end [count]    elements in the order of their names. They lie on the disk in the order of their
 *                                   vectors: this reads all of a set's blocks
 *
 * The path of VLOAD is taken below `import-dir`, and after symbolic links are resolved it must still lie there: a
 * client must not be able to have the server open other files. Requests that a client sent behind one of these wait,
 * those of other clients do not.
 */
#include "index/collection/collection_range.h"
#include "index/store/store.h"
#include "io/error.h"
#include "server/call/data.h"
#include "server/call/slice.h"
#include "server/protocol/arg.h"
#include "server/protocol/resp.h"
#include "server/vector/cmd_vectors.h"
#include "server/vector/vector_call.h"
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FINDINGS_MAX = 100, NAMES_AT_ONCE = 2000 };

/* ---- VSEAL, VCOMPACT, VCHECK ------------------------------------------------------------------------------------- */

/* Begins a call on a set that is there; NULL after a reply. */
static void *begin_on_set(struct caller *c, struct resp_arg key, size_t bytes, void (*work)(struct worker_call *call))
{
    struct vector_view view;
    enum vector_view_found found = vector_view_begin(c, key, NULL, &view);
    if (found == VIEW_NO_SET)
        caller_error(c, "ERR key does not exist");
    if (found != VIEW_SET)
        return NULL;
    struct worker_call *call = deferred_begin(c, &view, bytes, true);
    if (call)
        call->work = work;
    return call;
}

static struct store *store_of(const struct worker_call *call)
{
    return call->base.lane->service->store;
}

static void seal(struct worker_call *call)
{
    call->code = store_seal(store_of(call), call->base.collection, &call->error);
}

void cmd_vseal(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    (void)n;
    struct worker_call *call = begin_on_set(c, args[1], sizeof *call, seal);
    if (call)
        worker_call_start(call);
}

static void compact(struct worker_call *call)
{
    call->code = store_compact(store_of(call), call->base.collection, &call->error);
}

void cmd_vcompact(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    (void)n;
    struct worker_call *call = begin_on_set(c, args[1], sizeof *call, compact);
    if (call)
        worker_call_start(call);
}

struct check_call {
    struct worker_call base;
    uint64_t n;
    char *findings[FINDINGS_MAX]; /* owned */
};

static void keep_finding(void *context, const char *sentence)
{
    struct check_call *call = context;
    if (call->n < FINDINGS_MAX)
        call->findings[call->n] = strdup(sentence);
    call->n++;
}

static void check(struct worker_call *base)
{
    struct check_call *call = (struct check_call *)base;
    int rc = store_check(store_of(base), base->base.collection, keep_finding, call, &base->error);
    base->code = rc == QUIRE_ECORRUPT && call->n > 0 ? 0 : rc;
}

static void reply_check(struct worker_call *base, struct resp_buffer *out)
{
    struct check_call *call = (struct check_call *)base;
    uint64_t shown = call->n < FINDINGS_MAX ? call->n : FINDINGS_MAX;
    resp_map(out, 2);
    resp_text(out, "findings");
    resp_integer(out, (long long)call->n);
    resp_text(out, "first");
    resp_array(out, shown);
    for (uint64_t i = 0; i < shown; i++) {
        resp_text(out, call->findings[i] ? call->findings[i] : "");
        free(call->findings[i]);
    }
}

void cmd_vcheck(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    (void)n;
    struct check_call *call = begin_on_set(c, args[1], sizeof *call, check);
    if (!call)
        return;
    call->base.reply = reply_check;
    worker_call_start(&call->base);
}

/* ---- VRANGE ------------------------------------------------------------------------------------------------------ */

struct range_call {
    struct worker_call base;
    struct slice slice;
    struct collection_range range;
    uint64_t put;        /* names that stand in the reply */
    size_t held;         /* by names that do not */
    const char *setting; /* that bounds range.bytes_max */
    uint8_t bytes[];
};

static int too_large(struct range_call *call)
{
    return error_set(&call->base.error, QUIRE_ELIMIT,
                     "the names of this range take more than %llu bytes, which is what %s allows one reply: ask for a "
                     "smaller range or give a count",
                     (unsigned long long)call->range.bytes_max, call->setting);
}

static void range(struct worker_call *base)
{
    struct range_call *call = (struct range_call *)base;
    base->code = collection_range_read(base->base.collection, &call->range, &base->error);
    if (base->code == QUIRE_ELIMIT)
        too_large(call);
}

/* Names that stand in the reply count there. */
static void let_go(struct range_call *call, size_t bytes)
{
    bytes = bytes < call->held ? bytes : call->held;
    call->held -= bytes;
    caller_let_go(&call->base.base.pending, bytes);
}

/* Some names in each turn of the lane. */
static void put_names(struct slice *slice)
{
    struct range_call *call = (struct range_call *)(void *)((char *)slice - offsetof(struct range_call, slice));
    struct deferred *base = &call->base.base;
    struct resp_buffer *out = &base->pending.out;
    for (uint64_t end = call->put + NAMES_AT_ONCE; call->put < end && call->put < call->range.n; call->put++) {
        struct range_key *key = &call->range.keys[call->put];
        resp_bulk(out, key->bytes, key->n_bytes);
        let_go(call, key->n_bytes);
        free(key->bytes);
        key->bytes = NULL;
    }
    if (call->put < call->range.n && !out->failed && !base->pending.caller->gone) {
        slice_post(base->lane, slice);
        return;
    }
    collection_range_fini(&call->range);
    deferred_end(base);
}

static void range_done(struct worker_call *base)
{
    struct range_call *call = (struct range_call *)base;
    struct resp_buffer *out = &base->base.pending.out;
    if (base->code < 0) {
        resp_quire_error(out, &base->error);
        deferred_end(&base->base);
        return;
    }
    if (caller_hold(&base->base.pending, call->range.bytes)) /* where it may not, the client goes */
        call->held = call->range.bytes;
    resp_array(out, call->range.n);
    call->slice.run = put_names;
    call->slice.caller = base->base.pending.caller;
    put_names(&call->slice);
}

/* "[name", "(name", "-" or "+": one end of the range; its name stays in the request. */
static bool take_end(struct resp_arg arg, struct range_bound *out)
{
    memset(out, 0, sizeof *out);
    out->least = arg.bytes == 1 && arg.data[0] == '-';
    out->greatest = arg.bytes == 1 && arg.data[0] == '+';
    if (out->least || out->greatest)
        return true;
    if (arg.bytes < 1 || (arg.data[0] != '[' && arg.data[0] != '('))
        return false;
    out->open = arg.data[0] == '(';
    out->bytes = arg.data + 1;
    out->n_bytes = arg.bytes - 1;
    return true;
}

/* The same with its name copied to *to, which moves behind it. */
static struct range_bound keep_end(struct range_bound end, uint8_t **to)
{
    if (end.n_bytes > 0)
        end.bytes = memcpy(*to, end.bytes, end.n_bytes);
    *to += end.n_bytes;
    return end;
}

void cmd_vrange(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    long long count = -1;
    struct range_bound first, last;
    struct vector_view view;
    if (n > 5 || (n == 5 && !arg_integer(args[4], &count))) {
        caller_error(c, "ERR syntax error: VRANGE key start end [count]");
        return;
    }
    if (!take_end(args[2], &first) || !take_end(args[3], &last)) {
        caller_error(c, "ERR an end of the range is [name, (name, - or +");
        return;
    }
    enum vector_view_found found = vector_view_begin(c, args[1], NULL, &view);
    if (found == VIEW_NO_SET)
        resp_array(caller_reply(c), 0);
    if (found != VIEW_SET)
        return;
    struct range_call *call = deferred_begin(c, &view, sizeof *call + first.n_bytes + last.n_bytes, true);
    if (!call)
        return;
    call->range.scope = call->base.base.scope;
    call->range.bytes_max = caller_reply_max(c, &call->setting);
    uint8_t *to = call->bytes;
    call->base.work = range;
    call->base.done = range_done;
    call->range.count = count < 0 ? UINT64_MAX : (uint64_t)count;
    call->range.first = keep_end(first, &to);
    call->range.last = keep_end(last, &to);
    struct deferred *base = &call->base.base;
    struct quire_error err = {0};
    int rc = c->whole ? collection_range_begin(base->collection, &call->range, &err) : 0;
    if (rc < 0) { /* of EXEC the moment is now, whatever its later commands write */
        resp_quire_error(&base->pending.out, rc == QUIRE_ELIMIT && too_large(call) < 0 ? &call->base.error : &err);
        deferred_end(base);
    } else {
        worker_call_start(&call->base);
    }
}

/* ---- VLOAD ------------------------------------------------------------------------------------------------------- */

struct vload_call {
    struct worker_call base;
    uint64_t memory_bytes;
    struct resp_arg key;
    char *path;      /* into bytes */
    uint8_t bytes[]; /* key and path */
};

/* The real path of `path` below the import folder, allocated; NULL with *err set. */
static char *resolve(const char *folder, const char *path, struct quire_error *err)
{
    char *base = realpath(folder, NULL), *joined = NULL, *real = NULL;
    size_t bytes = base ? strlen(base) : 0;
    if (!base) {
        error_set_errno(err, errno, "open import-dir", folder);
        return NULL;
    }
    if (*path == '/') {
        error_set(err, QUIRE_EPERM, "%.200s is absolute, so it lies outside of import-dir: paths are relative to it",
                  path);
        free(base);
        return NULL;
    }
    if (asprintf(&joined, "%s/%s", base, path) > 0)
        real = realpath(joined, NULL);
    else
        joined = NULL;
    if (!real) {
        error_set_errno(err, joined ? errno : ENOMEM, "find below import-dir", path);
    } else if (strncmp(real, base, bytes) != 0 || (real[bytes] != '/' && bytes > 1)) {
        error_set(err, QUIRE_EPERM, "%.200s lies outside of import-dir; copy or move the index there", path);
        free(real);
        real = NULL;
    }
    free(joined);
    free(base);
    return real;
}

static void load(struct worker_call *base)
{
    struct vload_call *call = (struct vload_call *)base;
    struct service *service = base->base.lane->service;
    char *real = resolve(service->config->import_dir, call->path, &base->error);
    base->code = real ? data_adopt(service, call->key, real, true, call->memory_bytes, &base->lsn, &base->error)
                      : base->error.code;
    free(real);
}

void cmd_vload(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    const struct config *config = c->lane->service->config;
    long long memory_bytes = 0;
    if (n > 3 && !(n == 5 && arg_is(args[3], "MEMORY") && arg_integer(args[4], &memory_bytes) && memory_bytes > 0)) {
        caller_error(c, "ERR syntax error at '%.*s': VLOAD key path [MEMORY bytes]", ARG_SHOWN(args[3], 64u));
        return;
    }
    if (args[1].bytes == 0 || args[1].bytes > QUIRE_KEY_BYTES_MAX) {
        caller_error(c, "ERR a key has 1 to %u bytes", QUIRE_KEY_BYTES_MAX);
        return;
    }
    if (!c->lane->service->store) {
        caller_error(c, "ERR vector sets need a data folder: start the server with --dir FOLDER");
        return;
    }
    if (config->import_dir[0] == 0) {
        caller_error(c,
                     "ERR VLOAD is off: start the server with --import-dir FOLDER, below which indexes may be opened");
        return;
    }
    if (args[2].bytes == 0 || memchr(args[2].data, 0, args[2].bytes)) {
        caller_error(c, "ERR not a path");
        return;
    }
    struct vload_call *call = deferred_begin(c, NULL, sizeof *call + args[1].bytes + args[2].bytes + 1, true);
    if (!call)
        return;
    memcpy(call->bytes, args[1].data, args[1].bytes);
    memcpy(call->bytes + args[1].bytes, args[2].data, args[2].bytes);
    call->key = (struct resp_arg){call->bytes, args[1].bytes};
    call->path = (char *)call->bytes + args[1].bytes;
    call->memory_bytes = n == 5 ? (uint64_t)memory_bytes : config->memory;
    call->base.work = load;
    worker_call_start(&call->base);
}
