/*
 * block_model.h - queries per second by block size: what a device, a processor and a trial on a sample say together.
 *
 * Pure arithmetic, so that it can be tested with made-up numbers; block_size.c measures.
 */
#ifndef QUIRE_INDEX_BLOCK_MODEL_H
#define QUIRE_INDEX_BLOCK_MODEL_H

#include <stdint.h>

/* What one block size gives. */
struct block_case {
    uint32_t block_bytes;
    double reads_per_second;   /* that the device does of this size; above 0 */
    double trial_reads;        /* of a query, in an index of trial_rows; above 0 */
    double trial_cpu_us;       /* the kernel's share included; above 0 */
    double reads, cpu_us, qps; /* filled: of a query among all rows, and what all lanes do */
};

#define BLOCK_MODEL_ROUNDS 7u
/* The device's rates of n sizes from BLOCK_MODEL_ROUNDS rounds of n measurements each, all above 0: of each size its
 * median share of a round, times the best round. So a device that is slower for a while, because others read, is not
 * held against the size that was measured then. */
void block_model_rates(const double *measured, uint32_t n, double *rates);
/* Queries per second where each costs so many reads of a device and so much time of one of the processors. */
double block_model_qps(double reads, double reads_per_second, double cpu_us, unsigned processors);
/* rows: of the index, at least trial_rows; processors: that lanes have. */
void block_model_predict(struct block_case *c, uint64_t rows, uint64_t trial_rows, unsigned processors);
/* The number of the case with most queries per second; of those that are nearly as good the smallest blocks, whose
 * reads take least memory. n is above 0, cases by ascending size. */
uint32_t block_model_best(const struct block_case *cases, uint32_t n);

#endif
