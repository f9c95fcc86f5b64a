/*
 * open_loop.h - searches that arrive at random moments, as users' do, whether or not earlier ones are answered.
 *
 * A closed loop asks the next query when one is answered, so that it never sees a queue. Here arrivals are a Poisson
 * process of a given rate, and the latency of a query counts from the moment it was to arrive at: what waits behind a
 * slow one counts in full, and a stall of the program is no pause in the arrivals (no coordinated omission).
 *
 * All arrivals stand in one line, and a lane takes the first of them as soon as it has fewer than `inflight` under way.
 */
#ifndef QUIRE_TOOLS_MEASURE_OPEN_LOOP_H
#define QUIRE_TOOLS_MEASURE_OPEN_LOOP_H

#include "io/histogram.h"
#include "quire.h"
#include "tools/measure/slowest.h"

#define OPEN_LOOP_ARRIVALS_MAX ((uint64_t)1 << 32)

struct open_loop {
    struct quire_index *index;
    const struct quire_search_options *options;
    struct quire_loop_options loop; /* of each lane; inflight is above 0 */
    const float *queries;           /* n x dim */
    uint32_t dim;
    uint64_t n, arrivals; /* arrival i asks query i % n */
    unsigned lanes;
    double rate; /* arrivals per second, of all lanes together */
    /* filled: answers of the last min(n, arrivals), as of quire_search_batch; of all arrivals: their latencies and how
     * long they stood in line, ns */
    struct quire_hit *hits;
    uint32_t *n_hits;
    struct quire_search_stats *stats;
    struct histogram *latencies, *line;
    struct slowest *slowest;
    double wall_s, due_s; /* from the begin to the last answer, and to the last arrival */
    uint64_t line_at_end; /* arrivals in line when the last of them joined it */
    /* told now and then; not 0: stop, which is QUIRE_ECANCELLED */
    int (*progress)(void *context, uint64_t done, uint64_t total);
    void *context;
};

/* How many arrive in so many seconds at that rate: the moments are random, but the same in each run. More than
 * OPEN_LOOP_ARRIVALS_MAX: that and one. */
uint64_t open_loop_count(double rate, double seconds);
/* Blocks until all are answered, or at the first error. */
int open_loop_run(struct open_loop *open, struct quire_error *err);
/* Whether the answers kept up with the arrivals: the last came soon after the last arrival. */
bool open_loop_kept(const struct open_loop *open);

#endif
