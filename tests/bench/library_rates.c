/*
 * library_rates.c - the C side of tests/bench/python.py, built as a shared library beside libquire: rounds of searches
 * as a program in C makes them, and two functions that take the place of quire_search below the bindings.
 *
 * C and Python search through one open index of one process: two processes differ by up to a third in what a search
 * takes, by where their memory happens to lie.
 */
#include <quire.h>
#include <time.h>

unsigned long long timed_ns; /* in timed_search, so far; for one thread */

static unsigned long long now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (unsigned long long)t.tv_sec * 1000000000 + (unsigned long long)t.tv_nsec;
}

static void options_of(struct quire_search_options *o, size_t dim, size_t k)
{
    quire_search_options_init(o);
    o->k = (uint32_t)k;
    o->dim = (uint32_t)dim;
}

/* n queries of dim one by one; k hits and a count for each. The error that ended it, or 0. */
int rates_single(struct quire_index *index, const float *queries, size_t n, size_t dim, size_t k,
                 struct quire_hit *hits, uint32_t *n_hits, struct quire_error *err)
{
    struct quire_search_options options;
    int rc = 0;
    options_of(&options, dim, k);
    for (size_t i = 0; i < n && rc >= 0; i++)
        rc = quire_search(index, queries + i * dim, &options, hits + i * k, n_hits + i, NULL, err);
    return rc < 0 ? rc : 0;
}

/* The same with one call. */
int rates_batch(struct quire_index *index, const float *queries, size_t n, size_t dim, size_t k, unsigned lanes,
                struct quire_hit *hits, uint32_t *n_hits, struct quire_error *err)
{
    struct quire_search_options options;
    options_of(&options, dim, k);
    return quire_search_batch(index, queries, n, &options, lanes, 0, hits, n_hits, NULL, err);
}

/* quire_search in a clock: what a search in Python takes less this is the binding's own. */
int timed_search(struct quire_index *index, const float *query, const struct quire_search_options *options,
                 struct quire_hit *hits, uint32_t *n_hits, struct quire_search_stats *stats, struct quire_error *err)
{
    unsigned long long begun = now_ns();
    int rc = quire_search(index, query, options, hits, n_hits, stats, err);
    timed_ns += now_ns() - begun;
    return rc;
}

/* Finds options->k rows at once. */
int search_at_once(struct quire_index *index, const float *query, const struct quire_search_options *options,
                   struct quire_hit *hits, uint32_t *n_hits, struct quire_search_stats *stats, struct quire_error *err)
{
    (void)index, (void)query, (void)hits, (void)stats, (void)err;
    *n_hits = options->k;
    return 0;
}
