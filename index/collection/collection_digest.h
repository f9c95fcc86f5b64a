/*
 * collection_digest.h - 128 bits that are equal for equal elements, wherever they lie: by which copies are compared.
 */
#ifndef QUIRE_INDEX_COLLECTION_DIGEST_H
#define QUIRE_INDEX_COLLECTION_DIGEST_H

#include "index/collection/collection_export.h"
#include <xxhash.h>

#define COLLECTION_DIGEST_BYTES 16u

/* Of one element: name, attributes, the vector where it is the same wherever the element has been (exported_element's
 * exact), grants. state: the caller's, for any number of them. */
XXH128_hash_t collection_digest_element(XXH3_state_t *state, const struct exported_element *element);
/* The XOR of all elements' at one moment; *n (may be NULL): how many. Reads everything. Also in a child of a fork that
 * store_fork_prepare stood before. */
int collection_digest(struct collection *collection, uint8_t out[COLLECTION_DIGEST_BYTES], uint64_t *n,
                      struct quire_error *err);

#endif
