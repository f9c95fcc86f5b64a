/*
 * unit_code.c - codes of whole vectors, and distances from them.
 *
 * Of vectors that are the same to the last bit the estimate leaves a rounding error of some 1e-7. Where it is that
 * small the query's own code decides: two vectors of one code cannot be told apart, and are at distance 0.
 */
#include "index/vector/unit_code.h"
#include "index/kernels/kernels.h"
#include "index/vector/codes.h"
#include "index/vector/space.h"
#include "io/bytes.h"
#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>

#define BITS 8u

/* Returns the vector's length. */
static double rotate_unit(const struct rotation *rotation, const float *vector, uint32_t dim, float *rotated)
{
    assert(dim <= rotation->dim);
    double length = space_unit(vector, dim, rotated);
    memset(rotated + dim, 0, sizeof(float) * (rotation->dim - dim));
    rotation_apply(rotation, rotated);
    return length;
}

void unit_code_encode(const struct rotation *rotation, const float *vector, uint32_t dim, float *rotated, uint8_t *code,
                      uint8_t factors[UNIT_CODE_FACTOR_BYTES])
{
    double length = rotate_unit(rotation, vector, dim, rotated);
    bytes_store_f32(factors, code_encode(rotated, rotation->dim, BITS, code, NULL, NULL));
    bytes_store_f32(factors + sizeof(float), length < (double)FLT_MAX ? (float)length : FLT_MAX);
}

void unit_code_decode(const struct rotation *rotation, const uint8_t *code,
                      const uint8_t factors[UNIT_CODE_FACTOR_BYTES], uint32_t dim, float *rotated, float *vector)
{
    float length = bytes_load_f32(factors + sizeof(float));
    if (length == 0) {
        memset(vector, 0, sizeof(float) * dim);
        return;
    }
    code_decode(code, rotation->dim, BITS, bytes_load_f32(factors), rotated);
    rotation_invert(rotation, rotated);
    space_unit(rotated, dim, vector);
    for (uint32_t i = 0; i < dim; i++)
        vector[i] = fminf(fmaxf(vector[i] * length, -FLT_MAX), FLT_MAX);
}

void unit_query_set(struct unit_query *query, const struct rotation *rotation, const float *vector, uint32_t dim)
{
    rotate_unit(rotation, vector, dim, query->rotated);
    code_encode(query->rotated, rotation->dim, BITS, query->code, NULL, NULL);
    query->sum = 0;
    for (uint32_t i = 0; i < rotation->dim; i++)
        query->sum += query->rotated[i];
}

float unit_query_distance(const struct unit_query *query, const uint8_t *code, float f, uint32_t code_dim)
{
    float y = kernels()->f32_u8_dot(query->rotated, code, code_dim);
    float d = 2 - 2 * f * (y - code_half(BITS) * query->sum);
    if (d < UNIT_QUERY_NEAR && memcmp(query->code, code, code_dim) == 0)
        return 0;
    return d > 0 ? d : 0;
}
