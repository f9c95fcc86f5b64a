/*
 * histogram.h - how values are distributed, in fixed memory: counts in buckets that widen with the value.
 *
 * Each power of two is cut into 2^sub_bits buckets of equal width (log-linear, as in HdrHistogram). A percentile is the
 * middle of the bucket that holds the value of that rank. Values below 2^(sub_bits + 1) have buckets of their own and
 * come back exactly; a larger one is off by at most 2^-(sub_bits + 1) of itself: 12.5 % with 2 bits, 3.2 % with 4,
 * 0.8 % with 6, 0.4 % with 7. Values of 2^value_bits and more count in the last bucket. The unit is the caller's.
 *
 * Memory is the caller's too: 8 bytes a bucket, HISTOGRAM_BUCKETS of them, so that an owner of many takes few bits.
 *
 * Threads: one writes (add, merge into), any others may read at the same time; relaxed atomics, no locked instruction.
 * What they read may be a moment apart, each count is whole, and counts never fall.
 */
#ifndef QUIRE_IO_HISTOGRAM_H
#define QUIRE_IO_HISTOGRAM_H

#include <stdatomic.h>
#include <stdint.h>

#define HISTOGRAM_BUCKETS(sub_bits, value_bits) (((value_bits) - (sub_bits) + 1u) << (sub_bits))

struct histogram {
    _Atomic uint64_t *counts; /* n_buckets */
    _Atomic uint64_t sum;     /* of the values themselves */
    uint32_t n_buckets, sub_bits;
};

/* Empties nothing: `counts` are HISTOGRAM_BUCKETS(sub_bits, value_bits) zeros, borrowed for as long as the histogram is
 * used. They are not touched, so pages of them that no value falls into cost no memory. sub_bits < value_bits <= 64,
 * sub_bits at most 16. */
void histogram_init(struct histogram *h, _Atomic uint64_t *counts, unsigned sub_bits, unsigned value_bits);
void histogram_add(struct histogram *h, uint64_t value);
void histogram_add_many(struct histogram *h, uint64_t value, uint64_t times);
/* Adds what `other` has counted. Both were made with the same bits. */
void histogram_merge(struct histogram *h, const struct histogram *other);

/* How many values were added. */
uint64_t histogram_count(const struct histogram *h);
/* How many values were less than `value`: exact where that is a power of two, otherwise the whole bucket it lies in
 * counts. Values beyond the last bucket count as its. */
uint64_t histogram_below(const struct histogram *h, uint64_t value);
/* Exact, but for sums of 2^64 and more; NAN where nothing was added. */
double histogram_mean(const struct histogram *h);
/* The smallest value that at least `share` (0..1) of all do not exceed, within the bound above; NAN where nothing was
 * added. */
double histogram_percentile(const struct histogram *h, double share);

#endif
