/* library.h - what all that implements quire.h shares, the caches of the layer above among it; and what tools may do
 * with an opened index that quire.h does not offer. */
#ifndef QUIRE_INDEX_LIBRARY_H
#define QUIRE_INDEX_LIBRARY_H

#include "quire.h"

/* Options carry their size, so that a caller that was compiled with another header is refused and not misread. */
int library_struct_validate(size_t given, size_t known, const char *name, struct quire_error *err);

struct segment;
/* As long as the handle is open. */
struct segment *library_segment(struct quire_index *index);

/* The rows that can be among the nearest of a query, ascending; n 0: any can. */
struct library_named {
    const uint32_t *rows;
    uint32_t n;
};
/* quire_search_batch for exact searches without filter and tenants, of which query i looks at named[i] alone. */
int library_search_named(struct quire_index *index, const float *queries, uint64_t n,
                         const struct quire_search_options *options, unsigned lanes, unsigned inflight,
                         const struct library_named *named, struct quire_hit *hits, uint32_t *n_hits,
                         struct quire_search_stats *stats, struct quire_error *err);

#endif
