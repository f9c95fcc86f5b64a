/*
 * lane_stats.h - what a lane counts of what it did. Only its own thread writes; any thread may read (relaxed atomics).
 */
#ifndef QUIRE_SERVER_LANE_STATS_H
#define QUIRE_SERVER_LANE_STATS_H

#include "io/histogram.h"
#include <stdatomic.h>
#include <stdint.h>

/* Latencies of searches are kept in us, within 3.2 %, up to 71 minutes: 3.7 KB a lane. */
enum { LATENCY_SUB_BITS = 4, LATENCY_BITS = 32, LATENCY_BUCKETS = HISTOGRAM_BUCKETS(LATENCY_SUB_BITS, LATENCY_BITS) };
/* Those of commands within 12.5 %: 1 KB for each that was called. */
enum { ROW_SUB_BITS = 2, ROW_BITS = 32, ROW_BUCKETS = HISTOGRAM_BUCKETS(ROW_SUB_BITS, ROW_BITS) };
enum {
    COMMANDS_MAX = 512,
    ROW_NONE = COMMANDS_MAX - 1,
    ERRORS_MAX = 64 /* kinds of errors that are counted by their code */
};

#define LANE_STATS(X)                                                                                                  \
    X(commands)                                                                                                        \
    X(connections)                                                                                                     \
    X(net_input_bytes)                                                                                                 \
    X(net_output_bytes)                                                                                                \
    X(searches)                                                                                                        \
    X(search_reads)                                                                                                    \
    X(search_rounds)                                                                                                   \
    X(search_cpu_ns)                                                                                                   \
    X(search_errors)                                                                                                   \
    X(fetches)                                                                                                         \
    X(fetch_reads)                                                                                                     \
    X(closed_output_limit)                                                                                             \
    X(closed_query_limit)                                                                                              \
    X(closed_protocol)                                                                                                 \
    X(closed_unauthenticated)                                                                                          \
    X(closed_http)                                                                                                     \
    X(evicted_clients)                                                                                                 \
    X(closed_idle)                                                                                                     \
    X(engine_reads)                                                                                                    \
    X(engine_read_bytes)                                                                                               \
    X(engine_read_errors)                                                                                              \
    X(engine_submissions)                                                                                              \
    X(reads_in_flight)                                                                                                 \
    X(reads_in_flight_peak)                                                                                            \
    X(reads_waiting)                                                                                                   \
    X(searches_at_once)                                                                                                \
    X(output_bytes_peak)                                                                                               \
    X(error_replies)                                                                                                   \
    X(auth_failures)                                                                                                   \
    X(keyspace_hits)                                                                                                   \
    X(keyspace_misses)                                                                                                 \
    X(acl_denied_commands)                                                                                             \
    X(acl_denied_keys)                                                                                                 \
    X(tls_connections)                                                                                                 \
    X(tls_clients)                                                                                                     \
    X(tls_failures)

struct command_stats {
    _Atomic uint64_t calls, us, failed, rejected;
    struct histogram latency; /* us */
};

/* Errors by their first word. An entry is whole before n_errors counts it, and stays. */
struct error_stats {
    char code[32];
    _Atomic uint64_t count;
};

struct lane_stats {
#define X(name) _Atomic uint64_t name;
    LANE_STATS(X)
#undef X
    struct histogram latency; /* of searches, us */
    _Atomic uint64_t latency_counts[LATENCY_BUCKETS];
    struct command_stats commands_by_row[COMMANDS_MAX];
    _Atomic uint64_t *row_counts; /* of their histograms; owned, COMMANDS_MAX * ROW_BUCKETS, untouched until used */
    struct error_stats errors[ERRORS_MAX];
    atomic_uint n_errors;
};

/* Only the owning lane writes, so no locked instruction is needed. */
static inline void lane_stat_add(_Atomic uint64_t *stat, uint64_t n)
{
    atomic_store_explicit(stat, atomic_load_explicit(stat, memory_order_relaxed) + n, memory_order_relaxed);
}

static inline void lane_stat_set(_Atomic uint64_t *stat, uint64_t n)
{
    atomic_store_explicit(stat, n, memory_order_relaxed);
}

static inline uint64_t lane_stat_get(const _Atomic uint64_t *stat)
{
    return atomic_load_explicit(stat, memory_order_relaxed);
}

#endif
