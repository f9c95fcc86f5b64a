/* fair_priv.h - what fair.c and fair_metrics.c share: tenants of all lanes, and what each lane counts of them. */
#ifndef QUIRE_SERVER_FAIR_PRIV_H
#define QUIRE_SERVER_FAIR_PRIV_H

#include "server/call/fair.h"
#include "server/call/fair_limits.h"

/* Times are kept in us, within 12.5 %, up to four minutes: 1.7 KB a tenant and lane. */
enum { FAIR_SUB_BITS = 2, FAIR_BITS = 28, FAIR_BUCKETS = HISTOGRAM_BUCKETS(FAIR_SUB_BITS, FAIR_BITS) };
enum { FAIR_TABLE_BUCKETS = 4096 };

/* What was refused, by its limit. */
enum fair_refusal { REFUSED_RATE, REFUSED_K, REFUSED_EFFORT, REFUSED_FILTER, REFUSED_CONCURRENT, N_REFUSALS };

#define FAIR_COUNTS(X)                                                                                                 \
    X(queries)                                                                                                         \
    X(failed)                                                                                                          \
    X(cancelled)                                                                                                       \
    X(reads)                                                                                                           \
    X(cpu_us)                                                                                                          \
    X(cost_us)

/* Of a tenant on a lane, which alone writes it. */
struct fair_stats {
#define X(name) _Atomic uint64_t name;
    FAIR_COUNTS(X)
#undef X
    _Atomic uint64_t running, waiting; /* now */
    _Atomic uint64_t refused[N_REFUSALS];
    struct histogram wait, latency; /* latency: with the wait */
    _Atomic uint64_t wait_counts[FAIR_BUCKETS], latency_counts[FAIR_BUCKETS];
};

/* A tenant, or a user without one, on all lanes: there while a lane remembers it. */
struct fair_tenant {
    struct fair_tenant *next;
    enum fair_kind kind;
    uint32_t references; /* lanes, under the lock */
    _Atomic uint64_t concurrent;
    _Atomic uint64_t arrival_ns; /* rate: when the next query would be due if all came evenly */
    uint32_t bytes;
    char name[FAIR_NAME_BYTES_MAX + 1];
    struct fair_stats *lanes[]; /* n_lanes; NULL: that lane has not met it. Owned, set under the lock */
};

struct fair_sums {
#define X(name) uint64_t name;
    FAIR_COUNTS(X)
#undef X
    uint64_t running, waiting, refused[N_REFUSALS];
};

struct fair {
    pthread_mutex_t lock; /* of everything here: taken when a lane meets or forgets a tenant, and by statistics */
    struct fair_limit_table *limits;
    _Atomic uint64_t generation; /* of the limits */
    struct fair_tenant *buckets[FAIR_TABLE_BUCKETS];
    uint32_t n_tenants;
    struct fair_sums forgotten;
};

/* Adds what one lane, or all, have counted. */
void fair_sums_add(struct fair_sums *sums, const struct fair_stats *stats);

#endif
