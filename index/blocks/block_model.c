/*
 * block_model.c - see block_model.h.
 *
 * A sample has its rows farther apart, but about as many of them are near a query and in about as many blocks; what
 * grows with the rows is how many blocks lie between, slowly for reads and faster for codes that are looked at. Both
 * are taken as powers of the rows: four times as many cost 18 % more reads and 49 % more processor time
 * (tests/bench/growth.sh). They are the same for all block sizes, and matter to the choice only by the balance of
 * device and processor.
 *
 * Lanes compute while the device reads, so a query costs the longer of the two; where both are nearly busy each waits
 * for the other now and then. A sum of fourth powers lies between maximum and sum: with 65 us of processor time of two
 * lanes and 86 us of the device a query takes 93 us (91 measured, text), with 43 and 101 us 102 us (103, SIFT).
 */
#include "index/blocks/block_model.h"
#include <assert.h>
#include <math.h>

#define READS_GROWTH 0.117
#define CPU_GROWTH   0.286
#define OVERLAP      4.0
#define NEARLY_BEST  0.97

void block_model_rates(const double *measured, uint32_t n, double *rates)
{
    double sums[BLOCK_MODEL_ROUNDS] = {0}, best = 0;
    assert(n > 0);
    for (uint32_t round = 0; round < BLOCK_MODEL_ROUNDS; round++) {
        for (uint32_t i = 0; i < n; i++) {
            assert(measured[round * n + i] > 0);
            sums[round] += measured[round * n + i];
        }
        best = fmax(best, sums[round]);
    }
    for (uint32_t i = 0; i < n; i++) {
        double shares[BLOCK_MODEL_ROUNDS]; /* ascending */
        for (uint32_t round = 0; round < BLOCK_MODEL_ROUNDS; round++) {
            double share = measured[round * n + i] / sums[round];
            uint32_t at = round;
            for (; at > 0 && shares[at - 1] > share; at--)
                shares[at] = shares[at - 1];
            shares[at] = share;
        }
        rates[i] = best * shares[BLOCK_MODEL_ROUNDS / 2];
    }
}

double block_model_qps(double reads, double reads_per_second, double cpu_us, unsigned processors)
{
    assert(reads >= 0 && reads_per_second > 0 && cpu_us > 0 && processors > 0);
    double device_s = reads / reads_per_second, processor_s = cpu_us / 1e6 / processors;
    return 1 / pow(pow(device_s, OVERLAP) + pow(processor_s, OVERLAP), 1 / OVERLAP);
}

void block_model_predict(struct block_case *c, uint64_t rows, uint64_t trial_rows, unsigned processors)
{
    double growth = (double)rows / (double)trial_rows;
    assert(rows >= trial_rows && trial_rows > 0 && processors > 0);
    assert(c->reads_per_second > 0 && c->trial_reads > 0 && c->trial_cpu_us > 0);
    c->reads = c->trial_reads * pow(growth, READS_GROWTH);
    c->cpu_us = c->trial_cpu_us * pow(growth, CPU_GROWTH);
    c->qps = block_model_qps(c->reads, c->reads_per_second, c->cpu_us, processors);
}

uint32_t block_model_best(const struct block_case *cases, uint32_t n)
{
    double best = 0;
    assert(n > 0);
    for (uint32_t i = 0; i < n; i++)
        best = fmax(best, cases[i].qps);
    for (uint32_t i = 0; i < n; i++)
        if (cases[i].qps >= NEARLY_BEST * best)
            return i;
    return n - 1;
}
