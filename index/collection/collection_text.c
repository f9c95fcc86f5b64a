/*
 * collection_text.c - what an element's text (grants.h) becomes by a put, a grant, a revocation.
 *
 * Whoever writes says names; the generations that make grants hold are those of the moment of the write, under the
 * collection's lock. A text that is written anew leaves void grants out. Most elements have no grants and are written
 * by who may see all: then the text is the JSON itself, and nothing is copied.
 *
 * A scope is a wall on this side, too: its user neither makes an element that it cannot see, nor grants or revokes for
 * tenants that it is not bound to.
 */
#include "index/attribute/filter.h"
#include "index/collection/collection_priv.h"
#include "io/error.h"
#include "io/memory.h"
#include <stdlib.h>
#include <string.h>

/* Grants that an element will have; names are others'. */
struct granted {
    struct grant *items; /* owned */
    uint32_t n, capacity;
};

static bool is_live(const struct collection *c, const struct grant *grant)
{
    return grant->generation == collection_generation(c, grant->name, grant->bytes);
}

bool collection_text_is_void(const struct collection *c, const void *text, uint32_t bytes)
{
    struct grant grant;
    uint32_t at = 0, n = 0;
    while (grants_next(text, bytes, &at, &grant)) {
        if (is_live(c, &grant))
            return false;
        n++;
    }
    return n > 0;
}

bool collection_text_has_attributes(const void *text, uint32_t bytes)
{
    const char *json = NULL;
    uint32_t json_bytes = 0, n_grants;
    return grants_split(text, bytes, &json, &json_bytes, &n_grants) == 0 && json_bytes > 0;
}

bool collection_text_matches(const struct filter *filter, const void *text, uint32_t bytes, const void *key,
                             uint32_t key_bytes)
{
    const char *json = NULL;
    uint32_t json_bytes = 0, n_grants;
    if (!filter)
        return true;
    return grants_split(text, bytes, &json, &json_bytes, &n_grants) == 0 &&
           filter_matches(filter, json, json_bytes, key, key_bytes);
}

/* Its place among n grants; n: it is not there. */
static uint32_t find_name(const struct grant *grants, uint32_t n, const char *name, uint32_t bytes)
{
    uint32_t i = 0;
    while (i < n && (grants[i].bytes != bytes || memcmp(grants[i].name, name, bytes) != 0))
        i++;
    return i;
}

/* Whether it was not there before. */
static bool granted_add(struct granted *granted, const struct grant *grant, uint32_t generation)
{
    if (find_name(granted->items, granted->n, grant->name, grant->bytes) < granted->n)
        return false;
    assert(granted->n < granted->capacity);
    granted->items[granted->n++] = (struct grant){grant->name, grant->bytes, generation};
    return true;
}

/* The grants of a text that hold, with space for more. *n_void: those that do not. */
static int granted_init(struct granted *granted, const struct collection *c, const void *text, uint32_t bytes,
                        uint32_t n_more, uint32_t *n_void)
{
    struct grant grant;
    uint32_t at = 0, n = 0;
    while (grants_next(text, bytes, &at, &grant))
        n++;
    *granted = (struct granted){.items = malloc(memory_size_mul((size_t)n + n_more + 1, sizeof *granted->items)),
                                .capacity = n + n_more + 1};
    if (!granted->items)
        return QUIRE_ENOMEM;
    *n_void = 0;
    for (at = 0; grants_next(text, bytes, &at, &grant);)
        if (is_live(c, &grant))
            granted_add(granted, &grant, grant.generation);
        else
            *n_void += 1;
    return 0;
}

static int check_names(const struct tenant_scope *scope, const struct grant *grants, uint32_t n,
                       struct quire_error *err)
{
    for (uint32_t i = 0; i < n; i++) {
        int rc = grants_check_tenant(grants[i].name, grants[i].bytes, err);
        if (rc < 0)
            return rc;
        if (scope && find_name(scope->tenants, scope->n, grants[i].name, grants[i].bytes) == scope->n)
            return error_set(err, QUIRE_EPERM, "this user is not bound to tenant %.*s", (int)grants[i].bytes,
                             grants[i].name);
    }
    return 0;
}

/* ---- puts -------------------------------------------------------------------------------------------------------- */

/* An element that nobody is named for goes to the tenant of the scope. */
static int grant_by_default(const struct collection *c, const struct tenant_scope *scope, struct granted *granted,
                            struct quire_error *err)
{
    if (granted->n == 0 && scope && scope->n == 0)
        return error_set(err, QUIRE_EPERM, "this user is bound to no tenant and can write nothing");
    if (granted->n == 0 && scope && scope->n > 1)
        return error_set(err, QUIRE_EINVALID, "say which tenant the element is for: this user is bound to %u",
                         scope->n);
    if (granted->n == 0 && scope)
        granted_add(granted, &scope->tenants[0], scope->tenants[0].generation);
    if (granted->n == 0 && c->config.tenants)
        return error_set(err, QUIRE_EINVALID, "every element of this set is some tenant's: say which one");
    return 0;
}

static int join_put(struct collection *c, const struct collection_put *put, const struct tenant_scope *scope,
                    const struct element_text *old, const char *json, uint32_t json_bytes, struct element_text *out,
                    struct quire_error *err)
{
    struct granted granted;
    uint32_t n_void = 0;
    int rc = check_names(scope, put->grants, put->n_grants, err);
    if (rc < 0)
        return rc;
    rc = granted_init(&granted, c, put->keep_grants ? old->text : NULL, put->keep_grants ? old->bytes : 0,
                      put->n_grants + 1, &n_void);
    if (rc < 0)
        return error_set(err, rc, "no memory for the grants of an element");
    for (uint32_t i = 0; i < put->n_grants; i++)
        granted_add(&granted, &put->grants[i], collection_generation(c, put->grants[i].name, put->grants[i].bytes));
    rc = grant_by_default(c, scope, &granted, err);
    if (rc == 0)
        rc = grants_join(granted.items, granted.n, json, json_bytes, &out->owned, &out->bytes, err);
    out->text = out->owned;
    free(granted.items);
    return rc;
}

int collection_text_of_put(struct collection *c, const struct collection_put *put, const struct tenant_scope *scope,
                           const struct element_text *old, struct element_text *out, struct quire_error *err)
{
    assert(lock_is_held(&c->lock) && (old->bytes == 0 || old->text));
    const char *json = put->attributes;
    uint32_t json_bytes = put->attributes ? put->attribute_bytes : 0, n_old = 0;
    *out = (struct element_text){.text = NULL};
    if (old->bytes > 0 && (put->keep_attributes || put->keep_grants)) {
        const char *old_json;
        uint32_t old_json_bytes;
        int rc = grants_split(old->text, old->bytes, &old_json, &old_json_bytes, &n_old);
        if (rc < 0)
            return error_set(err, rc, "the grants of an element are damaged");
        if (put->keep_attributes) {
            json = old_json;
            json_bytes = old_json_bytes;
        }
    } else if (put->keep_attributes) {
        json = NULL;
        json_bytes = 0;
    }
    bool has_grants = put->n_grants > 0 || (put->keep_grants && n_old > 0);
    bool is_plain =
        json_bytes == 0 || *json != 1; /* what begins with a 1 is told from grants by an empty list of them */
    if (has_grants || scope || c->config.tenants || !is_plain)
        return join_put(c, put, scope, old, json, json_bytes, out, err);
    out->text = json_bytes ? json : NULL;
    out->bytes = json_bytes;
    return 0;
}

/* ---- changes ----------------------------------------------------------------------------------------------------- */

int collection_text_of_change(const struct collection *c, const struct collection_change *change, const void *text,
                              uint32_t bytes, char **out, uint32_t *out_bytes, uint32_t *n_changed,
                              struct quire_error *err)
{
    assert(lock_is_held(&c->lock));
    struct granted granted;
    const char *json = NULL;
    uint32_t json_bytes = 0, n_old = 0, n_void = 0;
    int rc = grants_split(text, bytes, &json, &json_bytes, &n_old);
    if (rc < 0)
        return error_set(err, rc, "the grants of an element are damaged");
    rc = check_names(change->scope, change->grant, change->n_grant, err);
    if (rc == 0)
        rc = check_names(change->scope, change->revoke, change->n_revoke, err);
    if (rc < 0)
        return rc;
    if (granted_init(&granted, c, text, bytes, change->n_grant, &n_void) < 0)
        return error_set(err, QUIRE_ENOMEM, "no memory for the grants of an element");
    *n_changed = 0;
    for (uint32_t i = 0; i < change->n_grant; i++) {
        const struct grant *grant = &change->grant[i];
        *n_changed += granted_add(&granted, grant, collection_generation(c, grant->name, grant->bytes));
    }
    for (uint32_t i = 0; i < change->n_revoke; i++) {
        uint32_t at = find_name(granted.items, granted.n, change->revoke[i].name, change->revoke[i].bytes);
        if (at == granted.n)
            continue;
        granted.items[at] = granted.items[--granted.n];
        *n_changed += 1;
    }
    if (change->set_attributes) {
        json = change->attributes;
        json_bytes = change->attributes ? change->attribute_bytes : 0;
    }
    if (granted.n == 0 && *n_changed > 0 && c->config.tenants)
        rc = error_set(err, QUIRE_EINVALID,
                       "every element of this set is some tenant's: grant it to another one first, or remove it");
    if (rc == 0)
        rc = grants_join(granted.items, granted.n, json, json_bytes, out, out_bytes, err);
    free(granted.items);
    return rc;
}

int collection_changed_text(struct collection *c, const struct collection_change *change, const void *text,
                            uint32_t text_bytes, char **out, uint32_t *out_bytes, uint32_t *n_changed,
                            struct quire_error *err)
{
    struct tenant_scope *scope = NULL;
    pthread_mutex_lock(&c->lock);
    int rc = collection_scope_resolve_locked(c, change->scope, &scope, err);
    if (rc == 0 && (!grants_allow(text, text_bytes, scope) || collection_text_is_void(c, text, text_bytes)))
        rc = error_set(err, QUIRE_ENOTFOUND, "there is no such element");
    if (rc == 0)
        rc = collection_text_of_change(c, change, text, text_bytes, out, out_bytes, n_changed, err);
    pthread_mutex_unlock(&c->lock);
    free(scope);
    return rc;
}
