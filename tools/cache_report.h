/*
 * cache_report.h - what cache-load and cache-eval say alike: shares with their uncertainty, latencies, figures.
 *
 * A figure is an SVG of panels below each other with one horizontal axis; it is drawn here because SVG is text.
 */
#ifndef QUIRE_TOOLS_CACHE_REPORT_H
#define QUIRE_TOOLS_CACHE_REPORT_H

#include "cli.h"
#include "io/histogram.h"
#include <stdio.h>

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

double share_of(uint64_t k, uint64_t n); /* 0 of nothing */
/* The 95 % Wilson interval (1927) of k in n: with few events a share itself says little. */
double wilson_lower(uint64_t k, uint64_t n);
double wilson_upper(uint64_t k, uint64_t n);

#define TIMING_SUB  5u
#define TIMING_BITS 40u
struct timing {
    struct histogram h; /* ns */
    _Atomic uint64_t counts[HISTOGRAM_BUCKETS(TIMING_SUB, TIMING_BITS)];
};
void timing_init(struct timing *timing);

/* A new row at the end of an array, made when it is not there, of an object; NULL: of the report. */
json_t *report_row(struct cli *cli, json_t *into, const char *array);
/* How many, p50, p99 and p99.9 in microseconds, into a row. */
void report_timing(struct cli *cli, json_t *row, const struct timing *timing);

/* ---- figures ----------------------------------------------------------------------------------------------------- */

#define FIGURE_WIDTH        900
#define FIGURE_LEFT         80 /* of the panels */
#define FIGURE_RIGHT        730
#define FIGURE_PANEL_HEIGHT 120
#define FIGURE_PANEL_GAP    36

/* A new file with the picture's frame; *out is ended by figure_close. QUIRE_EIO and the like where it is there. */
int figure_open(const char *path, const char *title, int height, FILE **out, struct quire_error *err);
int figure_close(const char *path, FILE *f, struct quire_error *err); /* removes what could not be written */
void figure_heading(FILE *f, double y, const char *text);
/* A frame with its scale from 0 to top at the left, y its upper border. */
void figure_panel(FILE *f, double y, double top, const char *title);
/* A line of n points: xs from 0 (left) to 1, values from 0 to top (what is above ends at the border, NAN is left out);
 * with its name at the right in the colour of its number. */
void figure_line(FILE *f, double y, double top, uint32_t line, const char *name, const double *xs, const double *values,
                 uint32_t n);
/* Numbers from 0 to `end` below the last panel. */
void figure_axis(FILE *f, double y, double end, const char *unit);
double figure_round_up(double value); /* the next of 1, 2, 5, 10, ... times a power of ten */

#endif
