/* vector_quant.h - the vector of an element as Redis shows it: VEMB and VEMB RAW by the set's quantisation. */
#ifndef QUIRE_SERVER_VECTOR_QUANT_H
#define QUIRE_SERVER_VECTOR_QUANT_H

#include "index/collection/collection.h"
#include "server/protocol/resp.h"

/* What Redis calls the way in which vectors are kept: int8, bin, or the type of floats. */
const char *vector_quant_name(const struct collection_config *config);
/* The numbers of a vector (dim floats, as the collection gives it). */
void vector_quant_put(struct resp_buffer *out, const struct collection_config *config, const float *vector);
/* The kind, the bytes, the length before it was normalised, and of int8 the largest number. */
void vector_quant_put_raw(struct resp_buffer *out, const struct collection_config *config, const float *vector);

#endif
