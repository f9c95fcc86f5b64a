/*
 * space.c - from the user's vectors to the working space and back.
 *
 * One transformation for all metrics keeps every later part (partition, graph, codes, search) free of cases. Under
 * inner product the extra coordinate makes the longest row's coordinate 0 and the others' positive; it carries the
 * whole difference between inner product and distance, so the search is a true maximum inner product search, not a
 * cosine search in disguise. Centring keeps that coordinate from eating the precision of the codes.
 *
 * The length of a query changes no inner product's rank, so it is free to choose. Codes err in proportion to
 * |w_q - w_x|, which a short query leaves at about M while its products are small: at a thousandth of M nothing was
 * found at all. A query of 2 M loses little of what an endless one would gain (sqrt(5) / 2 is near 1), and all numbers
 * stay of the size of M^2.
 *
 * Under cosine the query is normalised as well. A zero vector has no direction: its cosine with everything is 0, as in
 * Redis, so that its distance is 1. In the working space it lies at the origin, but for a dimension of its own in which
 * it has length 1 and every other vector 0; who sums up squares adds that (space_row returns it), and all formulas of
 * distances give 2.
 */
#include "index/vector/space.h"
#include "index/kernels/kernels.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define QUERY_LENGTH 2.0 /* of a query under inner product, in lengths of the longest row */

int space_init(struct space *space, enum quire_metric metric, enum quire_type type, uint32_t dim, uint64_t seed)
{
    assert(dim > 0);
    memset(space, 0, sizeof *space);
    space->metric = metric;
    space->type = type;
    space->dim = dim;
    space->work_dim = metric == QUIRE_METRIC_IP ? dim + 1 : dim;
    space->code_dim = rotation_code_dim(space->work_dim);
    space->seed = seed;
    space->mean = calloc(space->code_dim, sizeof(float));
    if (!space->mean)
        return QUIRE_ENOMEM;
    int rc = rotation_init(&space->rotation, space->code_dim, seed);
    if (rc < 0)
        space_fini(space);
    return rc;
}

void space_fini(struct space *space)
{
    free(space->mean);
    space->mean = NULL;
    rotation_fini(&space->rotation);
}

void space_floats(enum quire_type type, const void *elements, size_t n, float *out)
{
    const int8_t *i8 = elements;
    const uint8_t *u8 = elements;
    switch (type) {
    case QUIRE_TYPE_F32:
        memcpy(out, elements, sizeof(float) * n);
        break;
    case QUIRE_TYPE_F16:
        kernels()->f32_from_f16(elements, out, n);
        break;
    case QUIRE_TYPE_BF16:
        kernels()->f32_from_bf16(elements, out, n);
        break;
    case QUIRE_TYPE_I8:
        for (size_t i = 0; i < n; i++)
            out[i] = i8[i];
        break;
    case QUIRE_TYPE_U8:
        for (size_t i = 0; i < n; i++)
            out[i] = u8[i];
        break;
    }
}

/* The nearest whole number of low..high. */
static int nearest_of(float x, float low, float high)
{
    return (int)lrintf(fminf(fmaxf(x, low), high));
}

void space_elements(enum quire_type type, const float *floats, size_t n, void *out)
{
    int8_t *i8 = out;
    uint8_t *u8 = out;
    switch (type) {
    case QUIRE_TYPE_F32:
        memcpy(out, floats, sizeof(float) * n);
        break;
    case QUIRE_TYPE_F16:
        kernels()->f16_from_f32(floats, out, n);
        break;
    case QUIRE_TYPE_BF16:
        kernels()->bf16_from_f32(floats, out, n);
        break;
    case QUIRE_TYPE_I8:
        for (size_t i = 0; i < n; i++)
            i8[i] = (int8_t)nearest_of(floats[i], -128, 127);
        break;
    case QUIRE_TYPE_U8:
        for (size_t i = 0; i < n; i++)
            u8[i] = (uint8_t)nearest_of(floats[i], 0, 255);
        break;
    }
}

static double norm2_of(const float *x, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += (double)x[i] * x[i];
    return sum;
}

int space_check(const struct space *space, const float *vector)
{
    double norm2 = norm2_of(vector, space->dim); /* of floats it is finite if they are */
    /* A finite element's square may pass the range of float: such a vector cannot be measured but by its direction. */
    if (!isfinite(norm2) || (space->metric != QUIRE_METRIC_COSINE && norm2 > 1e37))
        return QUIRE_ENOTFINITE;
    return 0;
}

double space_unit(const float *vector, uint32_t n, float *unit)
{
    double norm2 = norm2_of(vector, n), length = sqrt(norm2), inverse = norm2 > 0 ? 1 / length : 0;
    if (space_is_ordinary(length)) {
        float scale = (float)inverse;
        for (uint32_t i = 0; i < n; i++)
            unit[i] = vector[i] * scale;
    } else { /* the inverse would leave the range of float */
        for (uint32_t i = 0; i < n; i++)
            unit[i] = (float)((double)vector[i] * inverse);
    }
    return length;
}

void space_lift(const struct space *space, const float *vector, float *work)
{
    if (space->metric == QUIRE_METRIC_COSINE) {
        space_unit(vector, space->dim, work);
        return;
    }
    memmove(work, vector, sizeof(float) * space->dim);
    if (space->metric == QUIRE_METRIC_L2)
        return;
    assert(space->metric == QUIRE_METRIC_IP);
    double rest = space->norm2_max - norm2_of(vector, space->dim);
    work[space->dim] = rest > 0 ? (float)sqrt(rest) : 0;
}

static void centre_and_rotate(const struct space *space, float *x)
{
    for (uint32_t i = 0; i < space->work_dim; i++)
        x[i] -= space->mean[i];
    for (uint32_t i = space->work_dim; i < space->code_dim; i++)
        x[i] = 0;
    rotation_apply(&space->rotation, x);
}

static bool is_zero(const float *x, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (x[i] != 0)
            return false;
    return true;
}

/* The squared length of a zero vector where no other vector has any. */
static float apart_of(const struct space *space, const float *vector)
{
    return space->metric == QUIRE_METRIC_COSINE && is_zero(vector, space->dim) ? 1 : 0;
}

float space_row(const struct space *space, const float *vector, float *out)
{
    float apart = apart_of(space, vector);
    space_lift(space, vector, out);
    centre_and_rotate(space, out);
    return apart;
}

/* Under inner product: what a query of this squared length is multiplied with. */
static double query_scale(const struct space *space, double query_norm2)
{
    return query_norm2 > 0 && space->norm2_max > 0 ? QUERY_LENGTH * sqrt(space->norm2_max / query_norm2) : 1;
}

float space_query(const struct space *space, const float *query, float *out, float *norm2)
{
    float apart = apart_of(space, query);
    *norm2 = space->metric == QUIRE_METRIC_COSINE ? 1 - apart : (float)norm2_of(query, space->dim);
    if (space->metric == QUIRE_METRIC_IP) {
        float scale = (float)query_scale(space, *norm2);
        for (uint32_t i = 0; i < space->dim; i++)
            out[i] = query[i] * scale;
        out[space->dim] = 0;
    } else {
        space_lift(space, query, out);
    }
    centre_and_rotate(space, out);
    return apart;
}

float space_distance(const struct space *space, float work_distance, float query_norm2)
{
    switch (space->metric) {
    case QUIRE_METRIC_L2:
        return work_distance > 0 ? work_distance : 0;
    case QUIRE_METRIC_COSINE: /* of a zero vector exactly, whatever rounding left */
        return query_norm2 == 0 ? 1 : fminf(fmaxf(work_distance * 0.5f, 0), 2);
    case QUIRE_METRIC_IP:
        break;
    }
    double scale = query_scale(space, query_norm2), norm2 = scale * scale * query_norm2 + space->norm2_max;
    return (float)((work_distance - norm2) / (2 * scale));
}

float space_deviation(const struct space *space, float work_deviation, float query_norm2)
{
    switch (space->metric) {
    case QUIRE_METRIC_L2:
        return work_deviation;
    case QUIRE_METRIC_COSINE:
        return query_norm2 == 0 ? 0 : work_deviation * 0.5f;
    case QUIRE_METRIC_IP:
        break;
    }
    return (float)(work_deviation / (2 * query_scale(space, query_norm2)));
}

float space_work_distance(const struct space *space, float distance, float query_norm2)
{
    switch (space->metric) {
    case QUIRE_METRIC_L2:
        return distance;
    case QUIRE_METRIC_COSINE:
        return distance * 2;
    case QUIRE_METRIC_IP:
        break;
    }
    double scale = query_scale(space, query_norm2), norm2 = scale * scale * query_norm2 + space->norm2_max;
    return (float)(2 * scale * distance + norm2);
}

void space_restore(const struct space *space, float *rotated, float *vector)
{
    rotation_invert(&space->rotation, rotated);
    for (uint32_t i = 0; i < space->dim; i++)
        vector[i] = rotated[i] + space->mean[i];
    if (space->metric == QUIRE_METRIC_COSINE)
        space_unit(vector, space->dim, vector);
}
