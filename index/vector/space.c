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
 * Under cosine the query is normalised as well; a zero vector has no direction and is refused before it gets here.
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
    double norm2 = norm2_of(vector, space->dim);
    /* A finite element's square may pass the range of float: such a vector cannot be measured either. */
    if (!isfinite(norm2) || norm2 > 1e37)
        return QUIRE_ENOTFINITE;
    if (space->metric == QUIRE_METRIC_COSINE && norm2 < 1e-30)
        return QUIRE_EZEROVEC;
    return 0;
}

void space_lift(const struct space *space, const float *vector, float *work)
{
    memmove(work, vector, sizeof(float) * space->dim);
    if (space->metric == QUIRE_METRIC_L2)
        return;
    double norm2 = norm2_of(vector, space->dim);
    if (space->metric == QUIRE_METRIC_COSINE) {
        float inverse = (float)(1 / sqrt(norm2));
        for (uint32_t i = 0; i < space->dim; i++)
            work[i] *= inverse;
    } else {
        assert(space->metric == QUIRE_METRIC_IP);
        double rest = space->norm2_max - norm2;
        work[space->dim] = rest > 0 ? (float)sqrt(rest) : 0;
    }
}

static void centre_and_rotate(const struct space *space, float *x)
{
    for (uint32_t i = 0; i < space->work_dim; i++)
        x[i] -= space->mean[i];
    for (uint32_t i = space->work_dim; i < space->code_dim; i++)
        x[i] = 0;
    rotation_apply(&space->rotation, x);
}

void space_row(const struct space *space, const float *vector, float *out)
{
    space_lift(space, vector, out);
    centre_and_rotate(space, out);
}

/* Under inner product: what a query of this squared length is multiplied with. */
static double query_scale(const struct space *space, double query_norm2)
{
    return query_norm2 > 0 && space->norm2_max > 0 ? QUERY_LENGTH * sqrt(space->norm2_max / query_norm2) : 1;
}

void space_query(const struct space *space, const float *query, float *out, float *norm2)
{
    *norm2 = (float)norm2_of(query, space->dim);
    if (space->metric == QUIRE_METRIC_IP) {
        float scale = (float)query_scale(space, *norm2);
        for (uint32_t i = 0; i < space->dim; i++)
            out[i] = query[i] * scale;
        out[space->dim] = 0;
    } else {
        space_lift(space, query, out);
    }
    centre_and_rotate(space, out);
}

float space_distance(const struct space *space, float work_distance, float query_norm2)
{
    switch (space->metric) {
    case QUIRE_METRIC_L2:
        return work_distance > 0 ? work_distance : 0;
    case QUIRE_METRIC_COSINE:
        return work_distance > 0 ? work_distance * 0.5f : 0;
    case QUIRE_METRIC_IP:
        break;
    }
    double scale = query_scale(space, query_norm2), norm2 = scale * scale * query_norm2 + space->norm2_max;
    return (float)((work_distance - norm2) / (2 * scale));
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
    if (space->metric != QUIRE_METRIC_COSINE)
        return;
    double norm2 = norm2_of(vector, space->dim);
    float inverse = norm2 > 0 ? (float)(1 / sqrt(norm2)) : 0;
    for (uint32_t i = 0; i < space->dim; i++)
        vector[i] *= inverse;
}
