/* encode_priv.h - what the files of encode/ share: vectors that are remembered, requests and answers as JSON. */
#ifndef QUIRE_GATEWAY_ENCODE_PRIV_H
#define QUIRE_GATEWAY_ENCODE_PRIV_H

#include "gateway/encode/encode.h"

struct evbuffer;

#define ENCODE_HASH_BYTES 32u

/* ---- vectors that are remembered (encode_memory.c): the least recently used goes first ---- */

struct encode_memory;

/* n_max 0: remembers nothing. NULL without memory. */
struct encode_memory *encode_memory_create(unsigned n_max, uint32_t dim);
void encode_memory_destroy(struct encode_memory *memory); /* NULL is fine */
/* Valid until the next call; NULL: not there. */
const float *encode_memory_find(struct encode_memory *memory, const uint8_t hash[ENCODE_HASH_BYTES]);
/* Without memory nothing happens. */
void encode_memory_add(struct encode_memory *memory, const uint8_t hash[ENCODE_HASH_BYTES], const float *vector);

/* ---- /v1/embeddings (encode_json.c) ---- */

/* {"model": ..., "input": [texts...], "encoding_format": "float"}; false without memory. */
bool encode_json_request(struct evbuffer *out, const char *model, const char *prefix, const char *const *texts,
                         const size_t *bytes, unsigned n);
/* Reads the vectors of n texts, in their order whatever that of the answer is, into *vectors (n x *dim, to be freed).
 * All have one dimension, 1..ENCODE_DIM_MAX, and none is all zeros. QUIRE_EPARSE, QUIRE_EDIM, QUIRE_ENOMEM. */
int encode_json_answer(const char *body, size_t bytes, unsigned n, float **vectors, uint32_t *dim,
                       struct quire_error *err);

#endif
