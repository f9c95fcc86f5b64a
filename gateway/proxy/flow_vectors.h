/* flow_vectors.h - /v1/embeddings: each text of a request is looked up by itself, and only the missing ones are
 * asked. */
#ifndef QUIRE_GATEWAY_FLOW_VECTORS_H
#define QUIRE_GATEWAY_FLOW_VECTORS_H

#include <stdbool.h>

struct ask;
struct canonical_keys;
struct turn;

/* Of a request that is to be looked up; its category is in the turn. Answers it. */
void flow_vectors_begin(struct turn *turn, const struct ask *ask, const struct canonical_keys *keys, bool keep);

#endif
