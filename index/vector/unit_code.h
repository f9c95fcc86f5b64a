/*
 * unit_code.h - 8-bit codes of unit vectors, which a cosine set of slot Q8 keeps of its elements in their place.
 *
 * A code is that of the rotated unit vector itself, from no centre and no mean, so that it stays the same bytes from
 * the put on through seals and merges, and so do the distances that are taken from it. Beside it stand f (codes.h) and
 * the length that the vector had. A zero vector has f 0 and length 0; what is estimated of it, cosine 0, is exact.
 */
#ifndef QUIRE_INDEX_UNIT_CODE_H
#define QUIRE_INDEX_UNIT_CODE_H

#include "index/vector/rotation.h"

#define UNIT_CODE_FACTOR_BYTES 8u /* f32 f, f32 length, behind the code or in a block's factors */

/* The code of a vector of dim floats: rotation->dim levels, f and length into `factors`. rotated: scratch of
 * rotation->dim floats, which may be where the vector is. */
void unit_code_encode(const struct rotation *rotation, const float *vector, uint32_t dim, float *rotated, uint8_t *code,
                      uint8_t factors[UNIT_CODE_FACTOR_BYTES]);
/* The vector again, with its length, but for what the code leaves out. If dim is rotation->dim it has the same code. */
void unit_code_decode(const struct rotation *rotation, const uint8_t *code,
                      const uint8_t factors[UNIT_CODE_FACTOR_BYTES], uint32_t dim, float *rotated, float *vector);

struct unit_query {
    float *rotated; /* rotation->dim floats: the unit vector; the caller's memory, as code */
    uint8_t *code;  /* rotation->dim: its own code */
    float sum;      /* of rotated */
};
/* The query as rows are: vector and query->rotated may be one. */
void unit_query_set(struct unit_query *query, const struct rotation *rotation, const float *vector, uint32_t dim);
#define UNIT_QUERY_NEAR 1e-3f /* squared: two vectors of one code are nearer to each other */
/* Squared distance of the unit vectors, 2 (1 - cosine), at least 0; 0 where both have the same code. */
float unit_query_distance(const struct unit_query *query, const uint8_t *code, float f, uint32_t code_dim);

#endif
