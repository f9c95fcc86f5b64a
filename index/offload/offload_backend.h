/*
 * offload_backend.h - what a plug-in for a kind of devices gives the engine, and what both pass to each other.
 *
 * A plug-in is a shared object that exports quire_offload_backend alone. It knows nothing of indexes: it lists its
 * devices, keeps rows in their memory, and answers which rows are nearest to queries or what dot products codes have.
 * docs/gpu.md says how to write another one.
 */
#ifndef QUIRE_INDEX_OFFLOAD_BACKEND_H
#define QUIRE_INDEX_OFFLOAD_BACKEND_H

#include "quire.h"
#include <stddef.h>

#define OFFLOAD_BACKEND_ABI 3u /* goes up when something in this file changes its meaning or its place */

struct offload_device {
    char backend[16];                    /* "opencl" */
    char name[128];                      /* as the driver gives it */
    char driver[64];                     /* its version */
    uint64_t memory_bytes, buffer_bytes; /* in all, and of one piece at most */
    uint32_t units;                      /* that compute */
    bool is_processor; /* the device is the processor that the program runs on: no memory and no time of its own */
};

/* What a row is made of. Codes are those of kernels.h, unsigned levels of 1, 2, 4 or 8 bits, packed. */
enum offload_element {
    OFFLOAD_F32,
    OFFLOAD_F16,
    OFFLOAD_U8,
    OFFLOAD_I8,
    OFFLOAD_CODE8,
    OFFLOAD_CODE4,
    OFFLOAD_CODE2,
    OFFLOAD_CODE1,
};

static inline bool offload_is_code(enum offload_element element)
{
    return element >= OFFLOAD_CODE8;
}

/* Bits of a level of a code, and bytes of n elements; of codes n is a multiple of 32. */
static inline unsigned offload_code_bits(enum offload_element element)
{
    return 8u >> (element - OFFLOAD_CODE8);
}

static inline size_t offload_bytes(enum offload_element element, size_t n)
{
    return offload_is_code(element) ? n / 8 * offload_code_bits(element)
                                    : n * (element == OFFLOAD_F32   ? 4
                                           : element == OFFLOAD_F16 ? 2
                                                                    : 1);
}

enum offload_measure {
    OFFLOAD_L2,    /* squared */
    OFFLOAD_DOT,   /* the largest product is the nearest, and its value is its negative */
    OFFLOAD_LEAST, /* of codes, the only one: what the distance is at least, by struct offload_estimate */
};

/* What a code says of its row x: x is within `error` of `step` (level - (2^bits - 1) / 2), element by element, and the
 * squared length of that is norm2. */
struct offload_estimate {
    float step, norm2, error;
};

/* A query of codes: the vector of its levels, one byte each, times step. Its value with a row is |query - step
 * (level - ..)| - error, by sums in f32 within offload_least_error. */
struct offload_coded {
    float norm2, step; /* squared length; not of the padding */
    int32_t level_sum;
    uint32_t unused;
};

/* A block of rows. */
struct offload_shape {
    enum offload_element element;
    uint32_t n, dim;  /* dim of codes: a multiple of 32 */
    bool has_factors; /* a dot product counts times the factor of its row, rounded to f32; codes: of estimates */
};

/* Floats that a row has beside its elements. */
static inline unsigned offload_factors(const struct offload_shape *shape)
{
    return !shape->has_factors ? 0 : offload_is_code(shape->element) ? 3 : 1;
}

/* Some of its rows, on their way to the device; read during the call only. */
struct offload_piece {
    uint32_t first, n;
    const void *data;     /* n x dim, row-major, without gaps */
    const float *factors; /* n, where the block has them; of codes n x struct offload_estimate */
};

struct offload_near {
    double value; /* whole for u8 and i8 without factors, otherwise an f32 */
    uint32_t row;
};

/* The k nearest rows of each query. */
struct offload_nearest {
    enum offload_measure measure;
    uint32_t n_queries, k;             /* 1 <= k <= rows, and at most what the backend's nearest_max is */
    const void *queries;               /* n_queries x dim: u8 and i8 as the rows, of codes int8, otherwise f32 */
    struct offload_near *out;          /* n_queries x k, nearest first; equal values by row */
    const struct offload_coded *coded; /* n_queries; of codes alone */
};

/* A query and codes of 8 bits, without estimates: result i is the dot product with code ids[first + i], or first + i
 * without ids, and stands at out[out + i]. n may be 0. */
struct offload_run {
    uint32_t query, first, n, out;
};

struct offload_dots {
    uint32_t n_queries, n_runs, n_out, n_ids;
    const int8_t *queries;          /* n_queries x dim */
    const struct offload_run *runs; /* n_runs; each place of the results is in one of them at most, */
    const uint32_t *ids;            /* n_ids, or NULL */
    int32_t *out;                   /* n_out; what is in no run is undefined */
};

/* Functions answer 0 or a negative QUIRE_E with *err filled; what stands in outputs then means nothing.
 * QUIRE_ENOMEM: the device or this machine has not the memory, with less it may go. QUIRE_EUNSUPPORTED: the device
 * cannot do that. All else: the device is not to be used any more. A context and its blocks are used by one thread
 * at a time. */
struct offload_backend {
    uint32_t abi; /* OFFLOAD_BACKEND_ABI */
    const char *name;
    /* The first `max` devices; *n: how many those are. */
    int (*list)(struct offload_device *out, uint32_t max, uint32_t *n, struct quire_error *err);
    int (*open)(uint32_t device, void **context, struct quire_error *err); /* by its place in the list */
    void (*close)(void *context);
    uint32_t (*nearest_max)(void *context); /* the largest k */
    /* Room for rows, and rows put there, each before it is asked for. */
    int (*reserve)(void *context, const struct offload_shape *shape, void **block, struct quire_error *err);
    int (*put)(void *context, void *block, const struct offload_piece *piece, struct quire_error *err);
    void (*unload)(void *context, void *block);
    int (*nearest)(void *context, void *block, const struct offload_nearest *request, struct quire_error *err);
    int (*dots)(void *context, void *block, const struct offload_dots *request, struct quire_error *err);
    /* In some words, how it computes. */
    void (*describe)(void *context, char *out, size_t bytes);
};

/* What a plug-in exports. */
typedef const struct offload_backend *offload_backend_get(void);

#endif
