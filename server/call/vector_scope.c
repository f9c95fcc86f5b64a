/*
 * vector_scope.c - from a client's user to the scope of its requests.
 *
 * A user who is bound to tenants (`tenant:NAME` rules) sees what is granted to any of them and nothing else; TENANT may
 * only narrow that. Others see everything, or with TENANT what is granted to the tenants they name. The index keeps
 * rows of others out of every answer (collection.h); here is decided what the scope is, and only here.
 *
 * A scope is a copy in one block: the user may be changed while a request runs, and the request goes on with what it
 * began with. The generations of its names (grants.h) are the collection's business.
 */
#include "server/call/vector_scope.h"
#include "index/attribute/grants.h"
#include "io/array.h"
#include "server/call/key_call.h"
#include <stdlib.h>
#include <string.h>

/* ---- names ------------------------------------------------------------------------------------------------------- */

bool vector_names_add(struct caller *c, const struct resp_arg *args, uint32_t n, struct tenant_names *names)
{
    struct quire_error err = {0};
    for (uint32_t i = 0; i < n; i++)
        if (grants_check_tenant((const char *)args[i].data, args[i].bytes, &err) < 0) {
            caller_error(c, "ERR %s", err.message);
            return false;
        }
    if (n > GRANTS_MAX || names->n + n > GRANTS_MAX) {
        caller_error(c, "ERR a request names at most %u tenants", GRANTS_MAX);
        return false;
    }
    if (!array_reserve(&names->items, &names->capacity, (size_t)names->n + n)) {
        caller_error(c, "OOM no memory for %u tenants", names->n + n);
        return false;
    }
    if (n > 0)
        memcpy(names->items + names->n, args, n * sizeof *args);
    names->n += n;
    return true;
}

bool vector_names_take(struct caller *c, const struct resp_arg *args, uint32_t n, uint32_t *at,
                       struct tenant_names *names)
{
    if (++*at >= n) {
        caller_error(c, "ERR syntax error: TENANT needs a value");
        return false;
    }
    return vector_names_add(c, &args[*at], 1, names);
}

void vector_names_fini(struct tenant_names *names)
{
    free(names->items);
    *names = (struct tenant_names){0};
}

/* ---- scopes ------------------------------------------------------------------------------------------------------ */

/* n names as one block; NULL: no memory. */
static struct tenant_scope *make_scope(uint32_t n, struct grant (*name)(const void *from, uint32_t i), const void *from)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < n; i++)
        bytes += name(from, i).bytes;
    struct tenant_scope *scope = malloc(sizeof *scope + n * sizeof(struct grant) + bytes);
    if (!scope)
        return NULL;
    scope->n = n;
    scope->tenants = (struct grant *)(void *)(scope + 1);
    char *to = (char *)(scope->tenants + n);
    for (uint32_t i = 0; i < n; i++) {
        struct grant tenant = name(from, i);
        memcpy(to, tenant.name, tenant.bytes);
        tenant.name = to;
        scope->tenants[i] = tenant;
        to += tenant.bytes;
    }
    return scope;
}

static struct grant name_of_argument(const void *from, uint32_t i)
{
    const struct tenant_names *names = from;
    return (struct grant){.name = (const char *)names->items[i].data, .bytes = names->items[i].bytes};
}

static struct grant name_of_user(const void *from, uint32_t i)
{
    const struct caller *c = from;
    struct resp_arg name = c->lane->host->tenant(c, i);
    return (struct grant){.name = (const char *)name.data, .bytes = name.bytes};
}

bool vector_scope_of(struct caller *c, const struct tenant_names *only, struct tenant_scope **out)
{
    uint32_t n = only ? only->n : 0;
    *out = NULL;
    if (n == 0 && c->n_tenants == 0)
        return true;
    for (uint32_t i = 0; i < n && c->n_tenants > 0; i++) {
        bool bound = false;
        for (uint32_t k = 0; k < c->n_tenants && !bound; k++) {
            struct resp_arg tenant = c->lane->host->tenant(c, k), name = only->items[i];
            bound = tenant.bytes == name.bytes && memcmp(tenant.data, name.data, name.bytes) == 0;
        }
        if (!bound) {
            caller_error(c, "NOPERM this user is bound to other tenants");
            return false;
        }
    }
    *out = n > 0 ? make_scope(n, name_of_argument, only) : make_scope(c->n_tenants, name_of_user, c);
    if (!*out)
        caller_error(c, "OOM no memory for the tenants of a request");
    return *out != NULL;
}

size_t vector_scope_bytes(const struct tenant_scope *scope)
{
    size_t bytes = scope ? sizeof *scope + scope->n * sizeof(struct grant) : 0;
    for (uint32_t i = 0; scope && i < scope->n; i++)
        bytes += scope->tenants[i].bytes;
    return bytes;
}

/* ---- sets -------------------------------------------------------------------------------------------------------- */

enum vector_view_found vector_view_begin(struct caller *c, struct resp_arg key, const struct tenant_names *only,
                                         struct vector_view *out)
{
    struct key_call call;
    *out = (struct vector_view){0};
    if (!vector_scope_of(c, only, &out->scope))
        return VIEW_REFUSED;
    if (!key_read(&call, c, key, KEY_VECTOR_SET)) {
        vector_view_end(out);
        return VIEW_REFUSED;
    }
    if (call.entry)
        out->collection = collection_ref(call.entry->set);
    key_end(&call);
    if (out->collection)
        return VIEW_SET;
    vector_view_end(out);
    return VIEW_NO_SET;
}

void vector_view_end(struct vector_view *view)
{
    collection_unref(view->collection);
    free(view->scope);
    *view = (struct vector_view){0};
}

uint64_t vector_view_count(const struct vector_view *view)
{
    if (!view->collection)
        return 0;
    return view->scope ? collection_count_scope(view->collection, view->scope) : collection_count(view->collection);
}
