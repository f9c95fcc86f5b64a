/*
 * vector_call.h - what the commands of vector sets share: looking a set up, deferred replies that hold on to it,
 * scores.
 */
#ifndef QUIRE_SERVER_VECTOR_CALL_H
#define QUIRE_SERVER_VECTOR_CALL_H

#include "index/collection.h"
#include "server/command.h"

/* The set under a key, with a reference: 1; 0 where there is no key; -1 after an error reply (WRONGTYPE). */
int arg_vectors(struct client *c, struct resp_arg key, struct collection **out);

/* First member of each deferred vector command. */
struct vector_call {
    struct pending pending;
    struct collection *collection; /* a reference, or NULL */
    struct lane *lane;
};

/* Defers the reply to a command on a set, whose reference is taken over, also on failure: `bytes` zeroed bytes that
 * begin with struct vector_call. With barrier no request behind it starts before. NULL: no memory. */
void *vector_call_begin(struct client *c, struct collection *collection, size_t bytes, bool barrier);
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

/* Similarity as VSIM reports it: cosine (1 + cos) / 2; l2 1 / (1 + squared distance); ip the inner product. */
double vector_score(enum quire_metric metric, float distance);

/* Links of an element of the mutable graph: what VADD calls M. */
unsigned vector_links(const struct collection_config *config);

#endif
