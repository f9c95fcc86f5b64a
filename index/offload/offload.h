/*
 * offload.h - distances and dot products on another device than the processor, as an option.
 *
 * A device is always something that may be absent, too small or gone: each call may fail, and its caller then does the
 * same work on the processor. Whole-number results are those of kernels.h bit for bit; floats are within
 * offload_float_error, so a caller takes them as proposals and decides by the processor's own kernels. Results never
 * depend on whether a device was used.
 *
 * Calls block until the device has answered. They are for tools, builds and workers, never for a lane.
 */
#ifndef QUIRE_INDEX_OFFLOAD_H
#define QUIRE_INDEX_OFFLOAD_H

#include "index/offload/offload_backend.h"
#include <math.h>
#include <stddef.h>

struct offload;       /* an open device */
struct offload_block; /* rows in its memory */

/* Opens what `wanted` asks for: "auto" the first device that is not the processor itself, another text the first one
 * with that in its name, in any case of letters. NULL where `wanted` is NULL or "off", or where the device cannot be
 * used; `note` then says why in one line ("" for off). Thread-safe. */
struct offload *offload_open(const char *wanted, char *note, size_t note_bytes);
void offload_close(struct offload *offload); /* NULL is fine; its blocks must have been unloaded */

/* What devices there are, at most `max`. QUIRE_EUNSUPPORTED says why there are none. Thread-safe. */
int offload_list(struct offload_device *out, uint32_t max, uint32_t *n, struct quire_error *err);

/* What an open device is and has done. */
struct offload_status {
    struct offload_device device;
    bool is_lost;   /* it failed and is not asked any more; note says how */
    char note[384]; /* the last failure, "" if none */
    char way[128];  /* how the device computes: its tiles, its products of bytes */
    uint64_t calls; /* that were answered */
    uint64_t bytes_sent, bytes_received;
    uint64_t products; /* pairs of elements that were multiplied */
    double seconds;    /* in calls */
};
/* Thread-safe. */
void offload_get_status(struct offload *offload, struct offload_status *out);

/* Rows that are all here. */
struct offload_rows {
    enum offload_element element;
    uint32_t n, dim;      /* dim of codes: a multiple of 32 */
    const void *data;     /* n x dim, row-major, without gaps; read during the call only */
    const float *factors; /* n, or NULL; a dot product counts times that of its row, rounded to f32. Of codes n x struct
                             offload_estimate */
};
/* Rows into the device's memory. Errors: QUIRE_ENOMEM, after which fewer rows may fit; QUIRE_EIO and others: the device
 * is lost. Thread-safe, as all that follow: calls wait for each other. */
int offload_load(struct offload *offload, const struct offload_rows *rows, struct offload_block **out,
                 struct quire_error *err);
/* The same in pieces: room first, then the rows, each before it is asked for. */
int offload_reserve(struct offload *offload, const struct offload_shape *shape, struct offload_block **out,
                    struct quire_error *err);
int offload_put(struct offload *offload, struct offload_block *block, const struct offload_piece *piece,
                struct quire_error *err);
void offload_unload(struct offload *offload, struct offload_block *block); /* NULL is fine */

/* The largest k of offload_nearest. */
uint32_t offload_nearest_max(struct offload *offload);
/* The k nearest rows of a block for each query; of codes, which have estimates, those that may be nearest. Errors as
 * offload_load, and QUIRE_ERANGE for a k above the rows or the device's largest. */
int offload_nearest(struct offload *offload, struct offload_block *block, const struct offload_nearest *request,
                    struct quire_error *err);
/* Dot products with codes of a block, which has no estimates. */
int offload_dots(struct offload *offload, struct offload_block *block, const struct offload_dots *request,
                 struct quire_error *err);

/* Called between parts of a long call; non-zero stops it with QUIRE_ECANCELLED. */
struct offload_progress {
    int (*report)(void *context, uint64_t done, uint64_t total); /* queries times parts of the rows */
    void *context;
};
/* offload_nearest for rows that need not fit into the device's memory: they pass through it a part at a time, smaller
 * parts where memory is short. progress may be NULL. */
int offload_nearest_all(struct offload *offload, const struct offload_rows *rows, const struct offload_nearest *request,
                        const struct offload_progress *progress, struct quire_error *err);
/* The rows of `row_bytes` that one block may have on the device, at most n. */
uint32_t offload_rows_max(struct offload *offload, size_t row_bytes, uint32_t n);
#define OFFLOAD_ROWS_LEAST 4096u /* of a block: where not even those fit, the processor does the work */
/* The nearest k of two sorted lists, of which `known` has the smaller rows, into known, which has room for k; or as
 * many as there are. spare: k. */
void offload_merge(struct offload_near *known, uint32_t n_known, const struct offload_near *found, uint32_t n_found,
                   uint32_t k, struct offload_near *spare);

/* A float result is off by at most this times the sum of the magnitudes of its terms, and offload_float_tiny(dim) times
 * (1 + the sum of the lengths of both vectors): a device may count numbers below 2^-126 as zero. */
static inline double offload_float_error(uint32_t dim)
{
    return ((double)dim + 16) * 0x1p-24;
}

static inline double offload_float_tiny(uint32_t dim)
{
    return (double)dim * 0x1p-125;
}

/* What OFFLOAD_LEAST is off at most, where the squared lengths of query and code are norm2 in sum and the row's error
 * is `error`: twelve roundings of the square, of the size of that sum, and some of its root and of the difference. */
static inline double offload_least_error(double norm2, double error)
{
    return sqrt(12 * 0x1p-24 * norm2) + 16 * 0x1p-24 * (sqrt(norm2) + error) + 0x1p-60;
}

#endif
