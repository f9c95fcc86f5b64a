/* device_priv.h - what the device's thread has (device.c), and the rows that are kept on the device (device_rows.c). */
#ifndef QUIRE_SERVER_DEVICE_PRIV_H
#define QUIRE_SERVER_DEVICE_PRIV_H

#include "index/exact/exact.h"
#include "server/device/device.h"

/* The rows of a segment, which may be there or not. The thread's. */
struct device_rows {
    struct exact_rows *rows;
    uint64_t used;     /* the larger, the later */
    double debt;       /* seconds that the processor has taken more than the device would have */
    uint64_t until_us; /* not to be tried before; 0: at any time */
    char why[256];     /* not */
};

struct device {
    struct service *service;
    pthread_t thread;

    pthread_mutex_t lock; /* guards what follows up to the thread's own */
    pthread_cond_t changed;
    struct device_ask *first, *last;
    bool stopping; /* the thread ends */
    bool ending;   /* what waits goes back as it is */
    struct device_status status;
    atomic_int state; /* enum device_state */
    atomic_size_t places;

    /* the thread's own */
    struct offload *offload;
    bool is_auto;
    struct offload_rates rates; /* where is_auto */
    uint64_t memory_bytes;      /* for rows */
    struct device_rows *kept;
    uint32_t n_kept, kept_capacity;
    uint64_t clock;
};

/* device_rows.c; all on the device's thread. */

/* The entry of a segment, new or not; NULL: there is no memory, and *err says so. */
struct device_rows *device_rows_find(struct device *device, struct segment *segment, struct quire_error *err);
/* Whether n queries of a segment are the device's; otherwise `why` (bytes) says why not. Makes room for its rows. */
bool device_rows_pay(struct device *device, struct device_rows *rows, const struct device_ask *ask, uint32_t n,
                     char *why, size_t bytes);
/* Naming failed: what will not be tried again at once. True: others went, and it may go now. */
bool device_rows_failed(struct device *device, struct device_rows *rows, const struct quire_error *err);
/* Forgets segments that are gone; all. */
void device_rows_forget(struct device *device, bool all);

#endif
