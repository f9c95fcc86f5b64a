/*
 * slowest.h - where the time of the slowest answers goes, beside that of all: sums by latency in fixed memory.
 *
 * Answers are kept in buckets of latency that widen with it (eight for each power of two), and each bucket sums what
 * its answers cost. The slowest share of all is then the upper buckets, as many as hold it: it may be more than asked
 * for by part of a bucket, and slowest_share says how many answers it is.
 *
 * Of one thread; what several have counted is merged afterwards.
 */
#ifndef QUIRE_TOOLS_MEASURE_SLOWEST_H
#define QUIRE_TOOLS_MEASURE_SLOWEST_H

#include <stdint.h>

#define SLOWEST_BUCKETS 512u

/* What answers took, in sums. */
struct slowest_sums {
    uint64_t n;
    uint64_t latency_ns;
    uint64_t line_ns; /* from the moment meant for it to its begin */
    uint64_t cpu_ns;  /* in steps of its own */
    uint64_t reads, rounds;
};

struct slowest {
    struct slowest_sums buckets[SLOWEST_BUCKETS];
};

/* One answer (n is 1) joins. */
void slowest_add(struct slowest *s, const struct slowest_sums *answer);
void slowest_merge(struct slowest *s, const struct slowest *other);
/* The slowest of all, at least `share` (0..1) of them; share 1: all. n is 0 where nothing was added. */
struct slowest_sums slowest_share(const struct slowest *s, double share);

#endif
