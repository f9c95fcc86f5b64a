/*
 * cmd_vtenant.c - whose elements there are in a set, for those who see all of it: VTENANTS and VDROPTENANT.
 *
 *   VTENANTS key [tenant]      each tenant that has elements, and how many, in the order of names
 *   VDROPTENANT key tenant     from its reply on no element is the tenant's; replies how many were
 *
 * An element may be several tenants', so the numbers may add up to more than the set has. Tenants are counted on the
 * worker's thread: there may be very many.
 */
#include "io/array.h"
#include "io/error.h"
#include "server/call/key_call.h"
#include "server/keys/keyspace.h"
#include "server/protocol/resp.h"
#include "server/vector/cmd_vectors.h"
#include "server/vector/vector_call.h"
#include <stdlib.h>
#include <string.h>

/* ---- VTENANTS ---------------------------------------------------------------------------------------------------- */

struct tenant_count {
    char *name; /* owned */
    uint32_t bytes;
    uint64_t elements;
};

struct tenants_call {
    struct worker_call base;
    struct tenant_count *counts; /* owned */
    size_t n, capacity;
    uint64_t taken, most; /* bytes of memory for them, and what they may be */
    const char *setting;  /* whose limit that is */
    bool failed;          /* no memory */
    struct resp_arg only; /* data NULL: all */
    uint8_t bytes[];
};

static void keep_tenant(void *context, const char *name, uint32_t bytes, uint64_t elements)
{
    struct tenants_call *call = context;
    bool wanted = !call->only.data || (call->only.bytes == bytes && memcmp(call->only.data, name, bytes) == 0);
    if (!wanted || elements == 0 || call->failed || call->taken > call->most)
        return;
    call->taken += sizeof *call->counts + bytes;
    if (call->taken > call->most)
        return;
    call->failed = !array_reserve(&call->counts, &call->capacity, call->n + 1);
    if (call->failed)
        return;
    char *copy = malloc(bytes ? bytes : 1);
    call->failed = !copy;
    if (!copy)
        return;
    memcpy(copy, name, bytes);
    call->counts[call->n++] = (struct tenant_count){copy, bytes, elements};
}

static int by_name(const void *left, const void *right)
{
    const struct tenant_count *a = left, *b = right;
    uint32_t common = a->bytes < b->bytes ? a->bytes : b->bytes;
    int order = memcmp(a->name, b->name, common);
    return order ? order : (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

static void count_tenants(struct worker_call *base)
{
    struct tenants_call *call = (struct tenants_call *)base;
    base->code = collection_each_tenant(base->base.collection, keep_tenant, call, &base->error);
    if (base->code == 0 && call->failed)
        base->code = error_set(&base->error, QUIRE_ENOMEM, "no memory for the names of %zu tenants", call->n);
    if (base->code == 0 && call->taken > call->most)
        base->code = error_set(&base->error, QUIRE_ELIMIT,
                               "the names of more than %zu tenants take more than %llu bytes, which is what %s allows "
                               "one reply: raise it, or ask for one tenant",
                               call->n, (unsigned long long)call->most, call->setting);
    if (call->n > 0)
        qsort(call->counts, call->n, sizeof *call->counts, by_name);
}

/* Replies and ends the call. */
static void tenants_done(struct worker_call *base)
{
    struct tenants_call *call = (struct tenants_call *)base;
    struct resp_buffer *out = &base->base.pending.out;
    caller_hold(&base->base.pending, call->taken); /* where it may not, the client goes */
    if (base->code < 0)
        resp_quire_error(out, &base->error);
    else
        resp_map(out, call->n);
    for (size_t i = 0; i < call->n; i++) {
        if (base->code == 0) {
            resp_bulk(out, call->counts[i].name, call->counts[i].bytes);
            resp_integer(out, (long long)call->counts[i].elements);
        }
        free(call->counts[i].name);
    }
    free(call->counts);
    deferred_end(&base->base);
}

void cmd_vtenants(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct vector_view view;
    if (n > 3) {
        caller_error(c, "ERR syntax error: VTENANTS key [tenant]");
        return;
    }
    enum vector_view_found found = vector_view_begin(c, args[1], NULL, &view);
    if (found == VIEW_NO_SET)
        resp_map(caller_reply(c), 0);
    if (found != VIEW_SET)
        return;
    uint32_t name_bytes = n == 3 ? args[2].bytes : 0;
    struct tenants_call *call = deferred_begin(c, &view, sizeof *call + name_bytes, true);
    if (!call)
        return;
    call->most = caller_reply_max(c, &call->setting);
    if (n == 3) {
        call->only = (struct resp_arg){call->bytes, name_bytes};
        memcpy(call->bytes, args[2].data, name_bytes);
    }
    call->base.work = count_tenants;
    call->base.done = tenants_done;
    worker_call_start(&call->base);
}

/* ---- VDROPTENANT ------------------------------------------------------------------------------------------------- */

void cmd_vdroptenant(struct caller *c, const struct resp_arg *args, uint32_t n)
{
    struct key_call call;
    struct quire_error err = {0};
    uint64_t elements = 0, lsn = 0;
    (void)n;
    if (grants_check_tenant((const char *)args[2].data, args[2].bytes, &err) < 0) {
        caller_error(c, "ERR %s", err.message);
        return;
    }
    if (!key_write(&call, c, args[1], KEY_VECTOR_SET))
        return;
    int rc = call.entry ? collection_drop_tenant(call.entry->set, (const char *)args[2].data, args[2].bytes, &elements,
                                                 &lsn, &err)
                        : 0;
    if (key_failed(c, &call.lock, rc, &err))
        return;
    if (lsn)
        keyspace_touch(&call.lock, call.entry, lsn);
    resp_integer(caller_reply(c), (long long)elements);
    key_end(&call);
}
