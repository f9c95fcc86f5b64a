/* negative.c - a set-associative table: nothing is allocated, nothing grows, the oldest knowledge goes first. */
#include "cache/lease/negative.h"
#include "io/random.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { WAYS = 8 };

struct negative {
    uint64_t low, high, until_ms; /* until_ms 0: free */
};

int negatives_init(struct negatives *negatives, uint32_t n_buckets)
{
    assert(n_buckets && (n_buckets & (n_buckets - 1)) == 0);
    negatives->n_buckets = n_buckets;
    negatives->places = calloc((size_t)n_buckets * WAYS, sizeof *negatives->places);
    return negatives->places ? 0 : QUIRE_ENOMEM;
}

void negatives_fini(struct negatives *negatives)
{
    free(negatives->places);
    negatives->places = NULL;
}

static struct negative *bucket_of(const struct negatives *negatives, uint64_t group, struct hash128 *exact)
{
    exact->low ^= random_mix(group);
    exact->high ^= random_mix(~group);
    return negatives->places + (size_t)(exact->low & (negatives->n_buckets - 1)) * WAYS;
}

static struct negative *find(const struct negatives *negatives, uint64_t group, struct hash128 exact)
{
    struct negative *bucket = bucket_of(negatives, group, &exact);
    for (unsigned i = 0; i < WAYS; i++)
        if (bucket[i].until_ms && bucket[i].low == exact.low && bucket[i].high == exact.high)
            return &bucket[i];
    return NULL;
}

void negatives_add(struct negatives *negatives, uint64_t group, struct hash128 exact, uint64_t until_ms)
{
    struct negative *place = find(negatives, group, exact), *bucket = bucket_of(negatives, group, &exact);
    struct negative *first = bucket; /* to expire */
    for (unsigned i = 0; !place && i < WAYS; i++)
        first = bucket[i].until_ms < first->until_ms ? &bucket[i] : first;
    place = place ? place : first;
    assert(until_ms > 0 && place >= bucket && place < bucket + WAYS);
    *place = (struct negative){exact.low, exact.high, until_ms};
}

uint64_t negatives_find(const struct negatives *negatives, uint64_t group, struct hash128 exact, uint64_t now_ms)
{
    const struct negative *place = find(negatives, group, exact);
    return place && place->until_ms > now_ms ? place->until_ms : 0;
}

void negatives_remove(struct negatives *negatives, uint64_t group, struct hash128 exact)
{
    struct negative *place = find(negatives, group, exact);
    if (place)
        place->until_ms = 0;
}

void negatives_clear(struct negatives *negatives)
{
    memset(negatives->places, 0, sizeof *negatives->places * negatives->n_buckets * WAYS);
}
