/* cache_figures.h - the figures of semantic caches: for SC.STATS, INFO and /metrics. */
#ifndef QUIRE_SERVER_CACHE_FIGURES_H
#define QUIRE_SERVER_CACHE_FIGURES_H

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
    CACHE_FIGURES_CACHES_MAX = 256,
    CACHE_FIGURES_CATEGORIES_MAX = 1024 /* of all caches together */
};

/* A cache or one of its categories. */
struct cache_figure {
    char cache[LABEL_BYTES], category[LABEL_BYTES]; /* category "": the cache as a whole */
    struct quire_cache_stats stats;
};

struct cache_figures {
    struct cache_figure *caches, *categories; /* owned */
    uint32_t n_caches, n_categories;
    uint64_t left_out; /* caches and categories beyond the limits above */
};

/* Of all caches and, where wanted, their categories, in the order of their names. caches NULL: there are none. False
 * without memory: what could be taken is there. Ended by cache_figures_fini. */
bool cache_figures_take(struct caches *caches, bool with_categories, struct cache_figures *out);
void cache_figures_fini(struct cache_figures *figures);

/* Share of requests that were answered from an entry; 0 before the first request. */
double cache_hit_rate(const struct quire_cache_stats *stats);

#endif
