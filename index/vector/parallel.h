/* parallel.h - a loop over 0..n-1 on several threads, for builds. Never used on a lane. */
#ifndef QUIRE_INDEX_PARALLEL_H
#define QUIRE_INDEX_PARALLEL_H

#include "quire.h"

/* How a long loop reports: called from the thread that called parallel_for. Non-zero stops with QUIRE_ECANCELLED. */
struct progress {
    int (*report)(void *context, const char *phase, uint64_t done, uint64_t total);
    void *context;
    const char *phase;
};

/* How far something of several loops has come. */
struct parallel_advance {
    const struct progress *progress; /* or NULL */
    const char *phase;
    uint64_t done, total;
};
/* `done` more, total at most. QUIRE_ECANCELLED where the caller wants to stop. */
int parallel_report(struct parallel_advance *advance, uint64_t done);

/* Calls body(context, begin, end) on disjoint ranges of at most `chunk` that cover 0..n-1, on `threads` threads (>= 1,
 * the caller's among them). A negative answer of body stops the loop and is returned. progress may be NULL. */
int parallel_for(unsigned threads, uint64_t n, uint64_t chunk, int (*body)(void *context, uint64_t begin, uint64_t end),
                 void *context, const struct progress *progress);

/* The number of processors this process may use, at least 1. */
unsigned parallel_processors(void);

#endif
