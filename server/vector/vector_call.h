/*
 * vector_call.h - what the commands of vector sets share: deferred replies that hold on to a set and to the scope of
 * the request, scores.
 */
#ifndef QUIRE_SERVER_VECTOR_CALL_H
#define QUIRE_SERVER_VECTOR_CALL_H

#include "server/call/fair.h"
#include "server/vector/vector_scope.h"

/* First member of each deferred vector command. */
struct vector_call {
    struct pending pending;
    struct collection *collection; /* a reference, or NULL */
    struct tenant_scope *scope;    /* of the request; NULL: all; owned */
    struct lane *lane;
};

/* Defers the reply to a command on a set, which is taken over with its scope, also on failure (NULL: no set): `bytes`
 * zeroed bytes that begin with struct vector_call. With barrier no request behind it starts before. NULL: no memory. */
void *vector_call_begin(struct client *c, struct vector_view *view, size_t bytes, bool barrier);
/* Lets the set go and hands the reply on; the call is gone afterwards. */
void vector_call_end(struct vector_call *call);

/* A command that blocks, on the worker's thread; then `reply` on the lane. */
struct worker_call {
    struct vector_call base; /* first */
    struct message message;
    struct job job;
    void (*work)(struct worker_call *call);                           /* sets code and error */
    void (*reply)(struct worker_call *call, struct resp_buffer *out); /* where code is 0; NULL: OK */
    void (*done)(struct worker_call *call); /* in its place, whatever the code: replies and ends the call; or NULL */
    int code;
    struct quire_error error;
    uint64_t lsn; /* what the reply waits for; 0: nothing */
};
void worker_call_start(struct worker_call *call);

/* fair_enter for the tenant whose elements the request sees, or would see if there were a set, if it is one: named by
 * it, or its user's. only: as for arg_vectors, which has filled the view. False after an error reply. */
bool vector_enter(struct client *c, const struct vector_view *view, const struct tenant_names *only,
                  struct fair_request *facts, struct fair_pass *pass);

/* Counts a look-up of an element in the figures of INFO. */
void vector_count_fetch(struct lane *lane, uint32_t reads);

/* Similarity as VSIM reports it: cosine (1 + cos) / 2; l2 1 / (1 + squared distance); ip the inner product. */
double vector_score(enum quire_metric metric, float distance);

/* Links of an element of the mutable graph: what VADD calls M. */
unsigned vector_links(const struct collection_config *config);

#endif
