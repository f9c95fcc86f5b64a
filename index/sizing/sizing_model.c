/*
 * sizing_model.c - see sizing_model.h.
 *
 * Bytes grow in proportion: what stands on the disk and in memory is a constant and so much per row, and two points say
 * both. What a search does grows slower than the rows: more of them lie between the query and its neighbours, and where
 * to enter is found in a larger tree. Over the range that was measured (docs/sizing.md) each quantity is a power of the
 * rows whose exponent depends on the data a little; two indexes of a sample a factor of four apart show it, with an
 * error: a tenth more reads of the larger is .07 in the exponent, which over a further factor of a thousand is 1.6. So
 * an exponent is the middle between what was seen and what is usual, and never beyond what was ever seen.
 */
#include "index/sizing/sizing_model.h"
#include <assert.h>
#include <math.h>

const struct sizing_growth sizing_reads = {.usual = 0.117, .least = 0, .most = 0.25};
const struct sizing_growth sizing_rounds = {.usual = 0.1, .least = 0, .most = 0.25};
const struct sizing_growth sizing_codes = {.usual = 0.5, .least = 0.1, .most = 0.8};
const struct sizing_growth sizing_cpu = {.usual = 0.286, .least = 0.05, .most = 0.5};
const struct sizing_growth sizing_build = {.usual = 1.05, .least = 1, .most = 1.15};

/* A build calibrates with about so many searches more than a trial's (tests/bench/plan_error.sh: 40,000 to 90,000). */
#define CALIBRATION_SEARCHES 60e3

static double between(double x, double least, double most)
{
    return fmin(fmax(x, least), most);
}

double sizing_exponent(const struct sizing_growth *growth, double rows_small, double y_small, double rows_large,
                       double y_large)
{
    assert(rows_small > 0 && rows_large > rows_small);
    if (!(y_small > 0 && y_large > 0))
        return growth->usual;
    double seen = log(y_large / y_small) / log(rows_large / rows_small);
    return between((between(seen, growth->least, growth->most) + growth->usual) / 2, growth->least, growth->most);
}

static double power(const struct sizing_growth *growth, double rows, const struct sizing_point *small, double y_small,
                    const struct sizing_point *large, double y_large)
{
    return y_large * pow(rows / large->rows, sizing_exponent(growth, small->rows, y_small, large->rows, y_large));
}

/* A constant and so much per row; never less than in proportion to half of the large one. */
static double line(double rows, const struct sizing_point *small, double y_small, const struct sizing_point *large,
                   double y_large)
{
    double slope = (y_large - y_small) / (large->rows - small->rows);
    return y_large + fmax(slope, y_large / large->rows / 2) * (rows - large->rows);
}

void sizing_predict(const struct sizing_point *small, const struct sizing_point *large, double rows,
                    struct sizing_point *out)
{
    assert(small->rows > 0 && large->rows > small->rows && rows >= large->rows);
    *out = (struct sizing_point){.rows = rows};
    out->reads = power(&sizing_reads, rows, small, small->reads, large, large->reads);
    out->read_bytes = power(&sizing_reads, rows, small, small->read_bytes, large, large->read_bytes);
    out->rounds = power(&sizing_rounds, rows, small, small->rounds, large, large->rounds);
    out->codes = power(&sizing_codes, rows, small, small->codes, large, large->codes);
    out->cpu_us = power(&sizing_cpu, rows, small, small->cpu_us, large, large->cpu_us);
    out->resident_bytes = line(rows, small, small->resident_bytes, large, large->resident_bytes);
    out->index_bytes = line(rows, small, small->index_bytes, large, large->index_bytes);
    out->build_cpu_s = power(&sizing_build, rows, small, small->build_cpu_s, large, large->build_cpu_s);
}

double sizing_calibration_s(double cpu_us)
{
    return CALIBRATION_SEARCHES * cpu_us / 1e6;
}

double sizing_latency_us(double rounds, double read_us, double cpu_us)
{
    assert(rounds >= 0 && read_us > 0 && cpu_us >= 0);
    return rounds * read_us + cpu_us;
}
