/*
 * offload_probe.h - how fast a device is here, beside the processor, and whether a piece of work pays on it.
 */
#ifndef QUIRE_INDEX_OFFLOAD_PROBE_H
#define QUIRE_INDEX_OFFLOAD_PROBE_H

#include "index/offload/offload.h"

/* Kinds of work, which have rates of their own. */
enum offload_work_kind {
    OFFLOAD_FLOATS, /* nearest rows, f32 */
    OFFLOAD_BYTES,  /* nearest rows, u8 */
    OFFLOAD_CODES,  /* dot products with 8-bit codes, results included */
};
#define OFFLOAD_KINDS 3u

struct offload_rates {
    double send_bytes_per_second;
    double call_seconds;                        /* of the smallest call: launches, and the way there and back */
    double products_per_second[OFFLOAD_KINDS];  /* of elements: rows x queries x dim */
    double processor_per_second[OFFLOAD_KINDS]; /* the same by one thread of the processor */
};

/* Measures all of it with made-up rows: 32 MiB on the device, half a second where a device is as fast as a
 * processor, and the time that its driver takes to compile the kernels. Errors as offload_load. */
int offload_measure(struct offload *offload, struct offload_rates *out, struct quire_error *err);

struct offload_work {
    enum offload_work_kind kind;
    uint64_t products, bytes, calls; /* bytes: sent */
    uint64_t prepared;               /* products that a thread could have done while it prepared those bytes */
};
double offload_device_seconds(const struct offload_rates *rates, const struct offload_work *work);
double offload_processor_seconds(const struct offload_rates *rates, const struct offload_work *work, unsigned threads);

/* Work below so many products is not worth measuring a device for: the processor takes a part of a second. */
#define OFFLOAD_PRODUCTS_LEAST 20000000000ull

#endif
