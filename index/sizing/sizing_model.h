/*
 * sizing_model.h - what an index of many rows costs, from what indexes of two samples of other sizes do.
 *
 * Pure arithmetic; sizing.c measures.
 */
#ifndef QUIRE_INDEX_SIZING_MODEL_H
#define QUIRE_INDEX_SIZING_MODEL_H

#include <stdint.h>

/* What one index costs. All numbers above 0, but for codes and rounds, which may be 0. */
struct sizing_point {
    double rows;
    double reads, read_bytes, rounds, codes, cpu_us; /* of a query */
    double resident_bytes, index_bytes;
    double build_cpu_s; /* of all threads together */
};

/* The exponents that a quantity's growth with the rows is taken for: between least and most, near `usual` where the
 * two points are too near each other to tell. */
struct sizing_growth {
    double usual, least, most;
};
extern const struct sizing_growth sizing_reads, sizing_rounds, sizing_codes, sizing_cpu, sizing_build;

/* The exponent e of y = c x^e that two measured points and what is usual say together. */
double sizing_exponent(const struct sizing_growth *growth, double rows_small, double y_small, double rows_large,
                       double y_large);
/* For so many rows, at least those of `large`, which has more than `small`. */
void sizing_predict(const struct sizing_point *small, const struct sizing_point *large, double rows,
                    struct sizing_point *out);
/* Processor seconds that calibration takes beyond that of the samples' builds, which are calibrated in brief; cpu_us:
 * of a query in the whole index. */
double sizing_calibration_s(double cpu_us);

/* The time that one query takes when nothing else is asked: its rounds wait one after the other. */
double sizing_latency_us(double rounds, double read_us, double cpu_us);

#endif
