/*
 * vector_call.h - what the commands of vector sets share: a deferred reply that holds on to its collection, and scores.
 */
#ifndef QUIRE_SERVER_VECTOR_CALL_H
#define QUIRE_SERVER_VECTOR_CALL_H

#include "server/command.h"

/* First member of each deferred vector command. */
struct vector_call {
    struct pending pending;
    struct collection *collection;
    struct lane *lane;
};

/* Defers the reply to a command on `collection`: `bytes` zeroed bytes that begin with struct vector_call. NULL: no
 * memory. */
void *vector_call_begin(struct client *c, struct collection *collection, size_t bytes);
/* Lets the collection go and hands the reply on; the call is gone afterwards. */
void vector_call_end(struct vector_call *call);

/* Similarity as VSIM reports it: cosine (1 + cos) / 2; l2 1 / (1 + squared distance); ip the inner product. */
double vector_score(enum quire_metric metric, float distance);

#endif
