/*
 * report.c - shares with their intervals, and latencies, as the reports of measurements have them.
 */
#include "tools/cli/report.h"
#include <math.h>
#include <string.h>

#define Z95 1.959964

double report_share(uint64_t k, uint64_t n)
{
    return n ? (double)k / (double)n : 0;
}

double report_wilson_upper(uint64_t k, uint64_t n)
{
    if (n == 0)
        return 1;
    double m = (double)n, p = (double)k / m, z2 = Z95 * Z95;
    return (p + z2 / (2 * m) + Z95 * sqrt(p * (1 - p) / m + z2 / (4 * m * m))) / (1 + z2 / m);
}

double report_wilson_lower(uint64_t k, uint64_t n)
{
    return fmax(0, 1 - report_wilson_upper(n - k, n)); /* the interval of what was not counted, turned over; rounding */
}

void report_timing_init(struct timing *timing)
{
    memset(timing->counts, 0, sizeof timing->counts);
    histogram_init(&timing->h, timing->counts, TIMING_SUB, TIMING_BITS);
}

void report_put_timing(struct cli *cli, json_t *row, const struct timing *timing)
{
    cli_put_count(cli, row, "n", histogram_count(&timing->h));
    cli_put_real(cli, row, "p50_us", histogram_percentile(&timing->h, 0.5) / 1000);
    cli_put_real(cli, row, "p99_us", histogram_percentile(&timing->h, 0.99) / 1000);
    cli_put_real(cli, row, "p999_us", histogram_percentile(&timing->h, 0.999) / 1000);
}
