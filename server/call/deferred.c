/* deferred.c - deferred commands: what they hold, and when it is released. */
#include "server/call/deferred.h"
#include <assert.h>
#include <stdlib.h>

void *deferred_begin(struct caller *c, struct vector_view *view, size_t bytes, bool barrier)
{
    assert(bytes >= sizeof(struct deferred) && (!view || view->collection));
    struct deferred *call = caller_defer(c, bytes, barrier);
    if (!call) {
        if (view)
            vector_view_end(view);
        return NULL;
    }
    if (view) {
        call->collection = view->collection;
        call->scope = view->scope;
        caller_hold(&call->pending, vector_scope_bytes(view->scope)); /* where it may not, the client goes */
    }
    call->lane = c->lane;
    return call;
}

void deferred_end(struct deferred *call)
{
    collection_unref(call->collection);
    free(call->scope);
    caller_done(&call->pending);
}
