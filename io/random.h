/* random.h - a small seeded generator (splitmix64, Steele, Lea and Flood 2014): the same seed, the same run. */
#ifndef QUIRE_IO_RANDOM_H
#define QUIRE_IO_RANDOM_H

#include <stdint.h>

struct random {
    uint64_t state;
};

static inline void random_init(struct random *random, uint64_t seed)
{
    random->state = seed;
}

/* A bijection whose output bits depend on all input bits. */
static inline uint64_t random_mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

static inline uint64_t random_next(struct random *random)
{
    return random_mix(random->state += 0x9e3779b97f4a7c15ull);
}

/* 0 .. n-1, n >= 1; the bias of n / 2^64 does not matter here. */
static inline uint64_t random_below(struct random *random, uint64_t n)
{
    return (uint64_t)(((unsigned __int128)random_next(random) * n) >> 64);
}

#endif
