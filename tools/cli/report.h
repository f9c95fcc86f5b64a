/* report.h - what reports of measurements say: shares with their uncertainty, and latencies. */
#ifndef QUIRE_TOOLS_REPORT_H
#define QUIRE_TOOLS_REPORT_H

#include "io/histogram.h"
#include "tools/cli/cli.h"

double report_share(uint64_t k, uint64_t n); /* 0 of nothing */
/* The 95 % Wilson interval (1927) of k in n: with few events a share itself says little. */
double report_wilson_lower(uint64_t k, uint64_t n);
double report_wilson_upper(uint64_t k, uint64_t n);

#define TIMING_SUB  5u
#define TIMING_BITS 40u
struct timing {
    struct histogram h; /* ns */
    _Atomic uint64_t counts[HISTOGRAM_BUCKETS(TIMING_SUB, TIMING_BITS)];
};
void report_timing_init(struct timing *timing);

/* How many, p50, p99 and p99.9 in microseconds, into a row. */
void report_put_timing(struct cli *cli, json_t *row, const struct timing *timing);

#endif
