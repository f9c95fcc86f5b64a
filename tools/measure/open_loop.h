/*
 * open_loop.h - searches that arrive at random moments, as users' do, whether or not earlier ones are answered.
 *
 * A closed loop asks the next query when one is answered, so that it never sees a queue. Here arrivals are a Poisson
 * process of a given rate, and the latency of a query counts from the moment it was to arrive at: what waits behind a
 * slow one counts in full.
 */
#ifndef QUIRE_TOOLS_MEASURE_OPEN_LOOP_H
#define QUIRE_TOOLS_MEASURE_OPEN_LOOP_H

#include "io/histogram.h"
#include "quire.h"

struct open_loop {
    struct quire_index *index;
    const struct quire_search_options *options;
    struct quire_loop_options loop; /* of each lane */
    const float *queries;           /* n x dim */
    uint32_t dim;
    uint64_t n, arrivals; /* arrival i asks query i % n; arrivals is a multiple of n */
    unsigned lanes;
    double rate; /* arrivals per second, of all lanes together */
    /* filled: answers of the last n arrivals, as of quire_search_batch; latencies of all, ns */
    struct quire_hit *hits;
    uint32_t *n_hits;
    struct quire_search_stats *stats;
    struct histogram *latencies;
    double wall_s;
    /* told now and then; not 0: stop, which is QUIRE_ECANCELLED */
    int (*progress)(void *context, uint64_t done, uint64_t total);
    void *context;
};

/* Blocks until all are answered, or at the first error. */
int open_loop_run(struct open_loop *open, struct quire_error *err);

#endif
