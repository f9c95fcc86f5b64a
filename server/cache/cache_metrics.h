/* cache_metrics.h - the statistics of semantic caches: for SC.STATS, INFO and /metrics. */
#ifndef QUIRE_SERVER_CACHE_METRICS_H
#define QUIRE_SERVER_CACHE_METRICS_H

#include "cache/core/cache.h"
#include "server/protocol/label.h"

/* Fields of struct quire_cache_stats, in the order in which they are shown. */
#define CACHE_COUNTS(X)                                                                                                \
    X(entries)                                                                                                         \
    X(memory_bytes)                                                                                                    \
    X(disk_bytes)                                                                                                      \
    X(document_bytes)                                                                                                  \
    X(pinned)                                                                                                          \
    X(sealed_entries)                                                                                                  \
    X(sealed_segments)                                                                                                 \
    X(sealed_disk_bytes)                                                                                               \
    X(sealed_memory_bytes)                                                                                             \
    CACHE_COUNTERS(X)
#define CACHE_NUMBERS(X)                                                                                               \
    X(cost_saved)                                                                                                      \
    X(cost_audits)                                                                                                     \
    X(threshold)                                                                                                       \
    X(lam)                                                                                                             \
    X(get_p50_us)                                                                                                      \
    X(get_p99_us)                                                                                                      \
    X(get_p999_us)                                                                                                     \
    X(put_p50_us)                                                                                                      \
    X(put_p99_us)                                                                                                      \
    X(put_p999_us)

enum {
    CACHE_METRICS_CACHES_MAX = 256,
    CACHE_METRICS_CATEGORIES_MAX = 1024 /* of all caches together */
};

/* A cache or one of its categories. */
struct cache_metric {
    char cache[LABEL_BYTES], category[LABEL_BYTES]; /* category "": the cache as a whole */
    struct quire_cache_stats stats;
};

struct cache_metrics {
    struct cache_metric *caches, *categories; /* owned */
    uint32_t n_caches, n_categories;
    uint64_t left_out; /* caches and categories beyond the limits above */
};

/* Of all caches and, where wanted, their categories, in the order of their names. caches NULL: there are none. False
 * without memory: what could be taken is there. Ended by cache_metrics_fini. */
bool cache_metrics_take(struct caches *caches, bool with_categories, struct cache_metrics *out);
void cache_metrics_fini(struct cache_metrics *metrics);

/* Share of requests that were answered from an entry; 0 before the first request. */
double cache_hit_rate(const struct quire_cache_stats *stats);

#endif
