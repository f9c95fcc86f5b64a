/*
 * digest.h - 160 bits that are equal for equal values, whatever became of them before: DEBUG DIGEST-VALUE.
 *
 * Of a string its bytes, of a document its text; of a hash its fields and values, in any order; of a vector set what it
 * is (dimensions, type, metric, how vectors are kept) and its elements in any order: name, grants, attributes, and what
 * is kept of the vector, numbers or codes, where that is the same wherever the element lies (exported_element's exact):
 * not in sets of l2 or ip with slot q8.
 */
#ifndef QUIRE_SERVER_DIGEST_H
#define QUIRE_SERVER_DIGEST_H

#include "server/call/service.h"

enum { DIGEST_BYTES = 20, DIGEST_TEXT_BYTES = 2 * DIGEST_BYTES + 1 };

/* Of the value of a key, or zeros where there is none. Blocks: for the worker. */
int digest_of_key(struct service *service, struct resp_arg key, uint8_t out[DIGEST_BYTES], struct quire_error *err);
/* Of all keys and their values; zeros where there is none. The same. */
int digest_of_all(struct service *service, uint8_t out[DIGEST_BYTES], struct quire_error *err);
void digest_text(const uint8_t digest[DIGEST_BYTES], char out[DIGEST_TEXT_BYTES]);

#endif
