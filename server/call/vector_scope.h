/*
 * vector_scope.h - whose elements a request may see and write: the set under a key as its client may see it.
 *
 * The one way from a key to a set for commands that read is vector_view_begin, which hands out the set and the scope
 * together; what writes carries the scope of vector_scope_of to the commit (vector_write.h).
 */
#ifndef QUIRE_SERVER_VECTOR_SCOPE_H
#define QUIRE_SERVER_VECTOR_SCOPE_H

#include "index/collection/collection.h"
#include "server/call/caller.h"

/* The names behind TENANT as they stand in a request; ended by vector_names_fini. */
struct tenant_names {
    struct resp_arg *items; /* owned */
    uint32_t n, capacity;
};
/* The name behind args[*at], which is moved to it; false after an error reply. */
bool vector_names_take(struct caller *c, const struct resp_arg *args, uint32_t n, uint32_t *at,
                       struct tenant_names *names);
/* All of args, which are names; false after an error reply. */
bool vector_names_add(struct caller *c, const struct resp_arg *args, uint32_t n, struct tenant_names *names);
void vector_names_fini(struct tenant_names *names);

/* What the client may see of vector sets: *out is NULL for all of it, otherwise the tenants that its user is bound to,
 * or those of `only` (NULL or without names: not narrowed), in one block for free(). With names it is also a list of
 * tenants that the client may grant elements to. False after an error reply: NOPERM where the user is bound to others
 * than it asks for. */
bool vector_scope_of(struct caller *c, const struct tenant_names *only, struct tenant_scope **out);

/* Memory that it takes; 0 for NULL. */
size_t vector_scope_bytes(const struct tenant_scope *scope);

/* A set, and what of it a request may see. */
struct vector_view {
    struct collection *collection; /* a reference */
    struct tenant_scope *scope;    /* NULL: all; owned */
};
enum vector_view_found {
    VIEW_REFUSED, /* after an error reply: WRONGTYPE, NOPERM */
    VIEW_NO_SET,  /* there is no key; no reply yet */
    VIEW_SET
};
/* The set under a key; where there is one *out is ended by vector_view_end. only: as of vector_scope_of. */
enum vector_view_found vector_view_begin(struct caller *c, struct resp_arg key, const struct tenant_names *only,
                                         struct vector_view *out);
void vector_view_end(struct vector_view *view);
/* Living elements that may be seen; 0 where there is no set. In memory: about a bit per sealed row with a scope. */
uint64_t vector_view_count(const struct vector_view *view);

#endif
