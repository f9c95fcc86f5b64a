/*
 * vector_quant.c - int8, bin and f32 of an element, made of what the set keeps.
 *
 * Redis keeps of a vector its length and its unit vector: as floats, as int8 in steps of a 127th of its largest
 * number, or as the signs. Here a set keeps floats, or 8-bit codes of the rotated vector (unit_code.h). VEMB RAW is
 * made of these in the form that the set was asked for. VEMB gives back
 *
 *   NOQUANT       the numbers as they were added
 *   Q8            what the codes say; where few dimensions are kept as floats, int8 of them, as in Redis to the digit
 *   BIN           1 and -1, as in Redis. What a code leaves open of a number is not taken for its sign: such a number
 *                 counts as 0, which has -1
 *   other metrics than cosine: what is stored; nothing is normalised there, and RAW has the length 1
 */
#include "server/vector/vector_quant.h"
#include "index/vector/space.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WORD_BITS 64u

const char *vector_quant_name(const struct collection_config *config)
{
    switch (config->slot) {
    case QUIRE_SLOT_Q8:
    case QUIRE_SLOT_I8:
        return config->code_bits == 1 ? "bin" : "int8";
    default:
        return quire_slot_name(config->slot);
    }
}

enum quant { QUANT_NONE, QUANT_INT8, QUANT_BIN };

static enum quant quant_of(const struct collection_config *config)
{
    if (config->metric != QUIRE_METRIC_COSINE || config->slot != QUIRE_SLOT_Q8)
        return QUANT_NONE;
    return config->code_bits == 1 ? QUANT_BIN : QUANT_INT8;
}

static float largest_of(const float *x, uint32_t n)
{
    float largest = 0;
    for (uint32_t i = 0; i < n; i++)
        largest = fmaxf(largest, fabsf(x[i]));
    return largest;
}

/* The level of a number of a vector whose largest one is `range`. */
static int8_t int8_of(float x, float range)
{
    return range > 0 ? (int8_t)roundf(x * (127 / range)) : 0;
}

/* Numbers of a unit vector up to this one may be rounded from 0: about the step of a code, whose largest level is three
 * to four times the mean. */
static float zero_of(const struct collection_config *config)
{
    return config->as_floats ? 0 : 0.03f / sqrtf((float)config->dim);
}

void vector_quant_put(struct resp_buffer *out, const struct collection_config *config, const float *vector)
{
    enum quant quant = quant_of(config);
    uint32_t dim = config->dim;
    float *unit = quant == QUANT_NONE ? NULL : malloc(sizeof(float) * dim);
    if (quant != QUANT_NONE && !unit) {
        resp_error(out, "OOM no memory for a vector");
        return;
    }
    float length = unit ? (float)space_unit(vector, dim, unit) : 1, range = unit ? largest_of(unit, dim) : 0;
    resp_array(out, dim);
    for (uint32_t i = 0; i < dim; i++) {
        float x = vector[i];
        if (quant == QUANT_BIN)
            x = unit[i] > zero_of(config) ? 1 : -1;
        else if (quant == QUANT_INT8 && config->as_floats)
            x = (float)int8_of(unit[i], range) * range / 127 * length;
        resp_double(out, (double)x);
    }
    free(unit);
}

/* Blobs. */
static size_t make_int8(const float *unit, uint32_t dim, float range, int8_t *to)
{
    for (uint32_t i = 0; i < dim; i++)
        to[i] = int8_of(unit[i], range);
    return dim;
}

static size_t make_bits(const float *unit, uint32_t dim, float zero, uint8_t *to)
{
    size_t bytes = (dim + WORD_BITS - 1) / WORD_BITS * (WORD_BITS / 8);
    memset(to, 0, bytes);
    for (uint32_t i = 0; i < dim; i++)
        to[i / 8] |= (uint8_t)((unit[i] > zero) << i % 8);
    return bytes;
}

void vector_quant_put_raw(struct resp_buffer *out, const struct collection_config *config, const float *vector)
{
    enum quant quant = quant_of(config);
    uint32_t dim = config->dim;
    if (config->metric != QUIRE_METRIC_COSINE) {
        resp_array(out, 3);
        resp_simple(out, "f32");
        resp_bulk(out, vector, dim * sizeof(float));
        resp_double(out, 1);
        return;
    }
    float *unit = malloc(sizeof(float) * dim + dim + WORD_BITS);
    if (!unit) {
        resp_error(out, "OOM no memory for a vector");
        return;
    }
    void *blob = unit + dim;
    float length = (float)space_unit(vector, dim, unit), range = largest_of(unit, dim);
    resp_array(out, quant == QUANT_INT8 ? 4 : 3);
    resp_simple(out, quant == QUANT_INT8 ? "int8" : quant == QUANT_BIN ? "bin" : "f32");
    if (quant == QUANT_INT8)
        resp_bulk(out, blob, make_int8(unit, dim, range, blob));
    else if (quant == QUANT_BIN)
        resp_bulk(out, blob, make_bits(unit, dim, zero_of(config), blob));
    else
        resp_bulk(out, unit, dim * sizeof(float));
    resp_double(out, (double)length);
    if (quant == QUANT_INT8)
        resp_double(out, (double)range);
    free(unit);
}
