/*
 * deferred.h - a command whose reply comes later, as most handlers keep it: with its lane and the set it is about.
 */
#ifndef QUIRE_SERVER_DEFERRED_H
#define QUIRE_SERVER_DEFERRED_H

#include "server/call/vector_scope.h"

/* First member of what the command keeps. */
struct deferred {
    struct pending pending;
    struct collection *collection; /* a reference, or NULL */
    struct tenant_scope *scope;    /* of the request; NULL: all; owned */
    struct lane *lane;
};

/* Defers the reply to a command on a set, which is taken over with its scope, also on failure (NULL: no set): `bytes`
 * zeroed bytes that begin with struct deferred. With barrier no request behind it starts before. NULL: no memory. */
void *deferred_begin(struct caller *c, struct vector_view *view, size_t bytes, bool barrier);
/* Releases the set and hands the reply on; the call is gone afterwards. */
void deferred_end(struct deferred *call);

#endif
