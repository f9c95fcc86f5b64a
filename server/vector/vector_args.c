/*
 * vector_args.c - the forms of a vector and of a filter in a request, and the reduction of dimensions.
 *
 * Numbers are taken out of the request only when they are used, so that a command that is refused for another reason
 * has converted nothing.
 *
 * REDUCE keeps the first `dim` coordinates of a random rotation of the padded vector, scaled so that lengths stay on
 * average. Inner products and distances stay within about 1 / sqrt(dim) of the vectors' lengths. The rotation is a
 * function of the set's seed: no matrix is kept.
 */
#include "server/vector/vector_args.h"
#include "index/vector/rotation.h"
#include "io/error.h"
#include "server/protocol/arg.h"
#include "server/protocol/resp.h"
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The name of an option as the documentation has it, whatever case it was given in. */
static const char *name_of(struct resp_arg arg, char capacity[32])
{
    unsigned n = arg.bytes < 31 ? arg.bytes : 31;
    for (unsigned i = 0; i < n; i++)
        capacity[i] = (char)toupper(arg.data[i]);
    capacity[n] = 0;
    return capacity;
}

bool vector_arg_take_integer(struct caller *c, const struct resp_arg *args, uint32_t n, uint32_t *at, long long low,
                             long long high, long long *out)
{
    char capacity[32];
    const char *name = name_of(args[*at], capacity);
    if (++*at >= n)
        caller_error(c, "ERR syntax error: %s needs a value", name);
    else if (!arg_integer(args[*at], out) || *out < low || *out > high)
        caller_error(c, "ERR invalid %s: not a whole number from %lld to %lld", name, low, high);
    else
        return true;
    return false;
}

bool vector_arg_take_number(struct caller *c, const struct resp_arg *args, uint32_t n, uint32_t *at, double low,
                            double high, double *out)
{
    char capacity[32];
    const char *name = name_of(args[*at], capacity);
    if (++*at >= n)
        caller_error(c, "ERR syntax error: %s needs a value", name);
    else if (!arg_number(args[*at], out) || !(*out >= low && *out <= high))
        caller_error(c, "ERR invalid %s: not a number from %g to %g", name, low, high);
    else
        return true;
    return false;
}

bool vector_arg_take(struct caller *c, const struct resp_arg *args, uint32_t n, uint32_t *at, bool elements,
                     struct vector_arg *out)
{
    uint32_t first = *at;
    long long count;
    memset(out, 0, sizeof *out);
    if (first + 1 < n && elements && arg_is(args[first], "ELE")) {
        out->element = args[first + 1];
    } else if (first + 1 < n && arg_is(args[first], "FP32")) {
        struct resp_arg blob = args[first + 1];
        if (blob.bytes == 0 || blob.bytes % sizeof(float) || blob.bytes / sizeof(float) > QUIRE_DIM_MAX) {
            caller_error(c,
                         "ERR invalid vector specification: a FP32 vector of %u bytes is not a row of 1 to %u 4-byte "
                         "numbers",
                         blob.bytes, QUIRE_DIM_MAX);
            return false;
        }
        out->blob = blob;
    } else if (first + 1 < n && arg_is(args[first], "VALUES")) {
        if (!arg_integer(args[first + 1], &count) || count < 1 || count > QUIRE_DIM_MAX ||
            n - first - 2 < (uint32_t)count) {
            caller_error(c, "ERR invalid vector specification: VALUES needs a count from 1 to %u and as many numbers",
                         QUIRE_DIM_MAX);
            return false;
        }
        out->values = args + first + 2;
        out->n_values = (uint32_t)count;
    } else {
        caller_error(c, "ERR invalid vector specification: %sFP32 vector or VALUES num value ...",
                     elements ? "ELE element, " : "");
        return false;
    }
    *at = first + 2 + out->n_values;
    return true;
}

uint32_t vector_arg_dim(const struct vector_arg *vector)
{
    return vector->blob.data ? vector->blob.bytes / (uint32_t)sizeof(float) : vector->n_values;
}

bool vector_arg_numbers(const struct vector_arg *vector, float *out, struct quire_error *err)
{
    if (vector->blob.data)
        memcpy(out, vector->blob.data, vector->blob.bytes);
    for (uint32_t i = 0; i < vector->n_values; i++) {
        double value;
        if (!arg_number(vector->values[i], &value)) {
            error_set(err, QUIRE_EINVALID, "invalid vector specification: value %u, '%.*s', is not a number", i + 1,
                      ARG_SHOWN(vector->values[i], 64u));
            return false;
        }
        out[i] = (float)value;
    }
    return true;
}

bool vector_filter_take(struct caller *c, const struct resp_arg *args, uint32_t n, uint32_t *at, struct resp_arg *out)
{
    if (++*at >= n) {
        caller_error(c, "ERR syntax error: FILTER needs a value");
        return false;
    }
    *out = args[*at];
    return true;
}

bool vector_filter_compile(struct caller *c, struct resp_arg expression, const struct collection *collection,
                           struct filter **out)
{
    struct quire_error err = {0};
    const struct attribute_schema *schema = collection ? collection_schema(collection) : NULL;
    int rc = filter_compile((const char *)expression.data, expression.bytes, schema, out, &err);
    if (rc == QUIRE_EPARSE) /* "FILTER, byte 7: ..."; clients of Redis look for these words */
        caller_error(c, "ERR syntax error in FILTER expression near %s",
                     strncmp(err.message, "FILTER, ", 8) == 0 ? err.message + 8 : err.message);
    else if (rc < 0)
        resp_quire_error(caller_reply(c), &err);
    return rc == 0;
}

enum vector_fit vector_fits(const struct collection_config *config, uint32_t dim)
{
    if (dim == config->dim)
        return VECTOR_FITS;
    return config->input_dim && dim == config->input_dim ? VECTOR_FITS_REDUCED : VECTOR_FITS_NOT;
}

int vector_fit_error(const struct collection_config *config, uint32_t dim, struct quire_error *err)
{
    if (config->input_dim)
        return error_set(err, QUIRE_EDIM, "Input dimension mismatch for projection - got %u but projection expects %u",
                         dim, config->input_dim);
    return error_set(err, QUIRE_EDIM, "Vector dimension mismatch - got %u but set has %u", dim, config->dim);
}

int vector_reduce(const struct collection_config *config, const float *vector, float *out)
{
    struct rotation rotation;
    uint32_t padded = rotation_code_dim(config->input_dim);
    float *x = calloc(padded, sizeof *x);
    if (!x || rotation_init(&rotation, padded, config->seed ^ config->input_dim) < 0) {
        free(x);
        return QUIRE_ENOMEM;
    }
    memcpy(x, vector, sizeof(float) * config->input_dim);
    rotation_apply(&rotation, x);
    float scale = sqrtf((float)padded / (float)config->dim);
    for (uint32_t i = 0; i < config->dim; i++)
        out[i] = x[i] * scale;
    rotation_fini(&rotation);
    free(x);
    return 0;
}
