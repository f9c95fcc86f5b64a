/*
 * histogram.c - log-linear buckets.
 *
 * A value's bucket follows from its highest bit and the s = sub_bits bits behind it. A value of 2^(s + 1) or more is
 * shifted right until s + 1 bits are left, from 2^s to 2^(s + 1) - 1; the shift names the power of two. So the index
 * (shift << s) + left runs through all buckets without a gap. Smaller values are not shifted: a bucket is one value.
 *
 * There is one writer, so adding is a load and a store and needs no locked instruction. A percentile adds up the counts
 * twice, once for the total and once up to the rank; as counts never fall, the second sum reaches the rank whatever is
 * added in between.
 *
 * Rejected: a counter of the values beside the buckets. A reader would see it ahead of them or behind, and a rank that
 * the buckets do not reach needs an answer of its own.
 */
#include "io/histogram.h"
#include <assert.h>
#include <math.h>

static uint32_t bucket_of(const struct histogram *h, uint64_t value)
{
    unsigned shift = value >> h->sub_bits ? 63u - (unsigned)__builtin_clzll(value) - h->sub_bits : 0;
    uint64_t bucket = ((uint64_t)shift << h->sub_bits) + (value >> shift);
    return bucket < h->n_buckets ? (uint32_t)bucket : h->n_buckets - 1;
}

static unsigned shift_of(const struct histogram *h, uint32_t bucket)
{
    return bucket >> (h->sub_bits + 1) ? (bucket >> h->sub_bits) - 1 : 0;
}

/* The least value of a bucket. */
static uint64_t low_of(const struct histogram *h, uint32_t bucket)
{
    unsigned shift = shift_of(h, bucket);
    return (uint64_t)(bucket - (shift << h->sub_bits)) << shift;
}

/* The middle of a bucket. */
static double value_of(const struct histogram *h, uint32_t bucket)
{
    return (double)low_of(h, bucket) + (double)((UINT64_C(1) << shift_of(h, bucket)) - 1) / 2;
}

static uint64_t get(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

static void grow(_Atomic uint64_t *counter, uint64_t n)
{
    atomic_store_explicit(counter, get(counter) + n, memory_order_relaxed);
}

void histogram_init(struct histogram *h, _Atomic uint64_t *counts, unsigned sub_bits, unsigned value_bits)
{
    assert(sub_bits <= 16 && sub_bits < value_bits && value_bits <= 64);
    h->counts = counts;
    h->n_buckets = HISTOGRAM_BUCKETS(sub_bits, value_bits);
    h->sub_bits = sub_bits;
    atomic_init(&h->sum, 0);
}

void histogram_add(struct histogram *h, uint64_t value)
{
    histogram_add_many(h, value, 1);
}

void histogram_add_many(struct histogram *h, uint64_t value, uint64_t times)
{
    grow(&h->counts[bucket_of(h, value)], times);
    grow(&h->sum, value * times);
}

void histogram_merge(struct histogram *h, const struct histogram *other)
{
    assert(h->sub_bits == other->sub_bits && h->n_buckets == other->n_buckets);
    for (uint32_t i = 0; i < h->n_buckets; i++) {
        uint64_t n = get(&other->counts[i]);
        if (n > 0)
            grow(&h->counts[i], n);
    }
    grow(&h->sum, get(&other->sum));
}

uint64_t histogram_count(const struct histogram *h)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < h->n_buckets; i++)
        n += get(&h->counts[i]);
    return n;
}

uint64_t histogram_below(const struct histogram *h, uint64_t value)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < h->n_buckets && low_of(h, i) < value; i++)
        n += get(&h->counts[i]);
    return n;
}

double histogram_mean(const struct histogram *h)
{
    uint64_t n = histogram_count(h);
    return n > 0 ? (double)get(&h->sum) / (double)n : NAN;
}

double histogram_percentile(const struct histogram *h, double share)
{
    assert(share >= 0 && share <= 1);
    uint64_t n = histogram_count(h), seen = 0;
    double wanted = ceil(share * (double)n);
    for (uint32_t i = 0; i < h->n_buckets && n > 0; i++) {
        seen += get(&h->counts[i]);
        if (seen > 0 && (double)seen >= wanted)
            return value_of(h, i);
    }
    return NAN;
}
