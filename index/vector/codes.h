/*
 * codes.h - scalar codes of 1, 2, 4 or 8 bits per dimension with an unbiased estimate of distances.
 *
 * A residual r (rotated, code_dim floats) becomes unsigned levels u, meaning y = u - (2^bits - 1) / 2, with the grid's
 * step chosen so that y points as nearly as possible along r. With f = |r|^2 / <r, y>, <r, z> is estimated by f <y, z>.
 * Source: RaBitQ (Gao and Long, SIGMOD 2024; Gao et al., SIGMOD 2025). docs/architecture.md has the derivation.
 */
#ifndef QUIRE_INDEX_CODES_H
#define QUIRE_INDEX_CODES_H

#include "quire.h"

static inline uint32_t code_bytes_of(uint32_t code_dim, unsigned bits)
{
    return code_dim / 8 * bits;
}

/* The value that is subtracted from a level to get y. */
static inline float code_half(unsigned bits)
{
    return (float)((1u << bits) - 1) * 0.5f;
}

/* Writes the code of r (code_dim floats) and returns f; 0 (and the code of all middle levels) for r = 0.
 * <y, extra> is put in *dot_extra if extra is not NULL. */
float code_encode(const float *r, uint32_t code_dim, unsigned bits, uint8_t *code, const float *extra,
                  float *dot_extra);
/* The same, and what is known of it afterwards: |r|^2, |y|^2, and <y, extra>, 0 without extra. */
struct code_measures {
    double norm2, yy, dot_extra;
};
float code_encode_measured(const float *r, uint32_t code_dim, unsigned bits, uint8_t *code, const float *extra,
                           struct code_measures *out);
/* r ~ f * y. */
void code_decode(const uint8_t *code, uint32_t code_dim, unsigned bits, float f, float *r);

/* Posting lists keep codes of 1, 2 and 4 bits interleaved in groups of CODE_GROUP, so that a scan sums many vectors at
 * once (group_dot in kernels.h). A group is code_dim * bits / 16 lines of 64 bytes, a line 16 / bits dimensions. Byte
 * 4 v + d of a line (v < 16, d < 4) has the levels of codes v and 16 + v, in fields of `bits` bits from the lowest on:
 * code v at dimension d of the line, code 16 + v at d, code v at d + 4, code 16 + v at d + 4, and so on. docs/format.md
 * has the three cases written out. */
#define CODE_GROUP 32u

/* Bytes of a group; code_dim a multiple of 32, bits 1, 2 or 4. */
static inline size_t code_group_bytes(uint32_t code_dim, unsigned bits)
{
    return (size_t)code_bytes_of(code_dim, bits) * CODE_GROUP;
}

/* Puts a code as code_encode writes it into place `slot` < CODE_GROUP of a group, whose bits there are zero. */
void code_group_put(uint8_t *group, uint32_t slot, const uint8_t *code, uint32_t code_dim, unsigned bits);
/* The same of 1 bit: the highest bits of the levels of a code of 8 bits, which are its signs. */
void code_group_put_signs(uint8_t *group, uint32_t slot, const uint8_t *levels, uint32_t code_dim);
/* The code at place `slot`, as it was put. */
void code_group_get(const uint8_t *group, uint32_t slot, uint32_t code_dim, unsigned bits, uint8_t *code);

/* A query as the code kernels want it: int8 levels, q ~ step * level. */
struct code_query {
    int8_t *levels; /* code_dim; owned by the caller */
    float step;
    int32_t level_sum;
    float norm2; /* |q|^2 */
};
void code_query_set(struct code_query *query, const float *q, uint32_t code_dim);

/* <y, q> from a kernel's dot product of levels. */
static inline float code_query_dot(const struct code_query *query, int32_t dot, float half)
{
    return query->step * ((float)dot - half * (float)query->level_sum);
}

#endif
