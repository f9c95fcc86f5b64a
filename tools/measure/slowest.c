/* slowest.c - sums by latency; the buckets are those of io/histogram.h with three bits. */
#include "tools/measure/slowest.h"
#include <assert.h>

#define SUB_BITS 3u

static uint32_t bucket_of(uint64_t latency_ns)
{
    if (latency_ns < 1u << SUB_BITS)
        return (uint32_t)latency_ns;
    uint32_t shift = 63u - (uint32_t)__builtin_clzll(latency_ns) - SUB_BITS;
    uint32_t bucket = ((shift + 1) << SUB_BITS) + (uint32_t)(latency_ns >> shift & ((1u << SUB_BITS) - 1));
    assert(bucket < SLOWEST_BUCKETS);
    return bucket;
}

static void join(struct slowest_sums *to, const struct slowest_sums *from)
{
    to->n += from->n;
    to->latency_ns += from->latency_ns;
    to->line_ns += from->line_ns;
    to->cpu_ns += from->cpu_ns;
    to->reads += from->reads;
    to->rounds += from->rounds;
}

void slowest_add(struct slowest *s, const struct slowest_sums *answer)
{
    assert(answer->n == 1);
    join(&s->buckets[bucket_of(answer->latency_ns)], answer);
}

void slowest_merge(struct slowest *s, const struct slowest *other)
{
    for (uint32_t i = 0; i < SLOWEST_BUCKETS; i++)
        join(&s->buckets[i], &other->buckets[i]);
}

struct slowest_sums slowest_share(const struct slowest *s, double share)
{
    struct slowest_sums out = {0};
    uint64_t all = 0;
    assert(share > 0 && share <= 1);
    for (uint32_t i = 0; i < SLOWEST_BUCKETS; i++)
        all += s->buckets[i].n;
    for (uint32_t i = SLOWEST_BUCKETS; i-- > 0 && (double)out.n < share * (double)all;)
        join(&out, &s->buckets[i]);
    return out;
}
