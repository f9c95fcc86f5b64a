/*
 * sketch.c - keys seen lately, in two Bloom filters that take turns.
 *
 * Eight bits per key and four probes within one filter: a key that was never seen passes for seen once in 40 at worst,
 * when a filter is full; ADMIT second then admits one question in 40 a sight too early, which costs a place and no
 * truth. Both probes' addresses come from the halves of one 64-bit hash (Kirsch and Mitzenmacher, 2006).
 */
#include "cache/policy/sketch.h"
#include "io/random.h"
#include <stdlib.h>
#include <string.h>

#define BITS_PER_KEY 8u
#define PROBES       4u

int sketch_init(struct sketch *sketch, uint32_t capacity)
{
    uint64_t bits = 1024;
    while (bits < (uint64_t)capacity * BITS_PER_KEY)
        bits *= 2;
    *sketch = (struct sketch){.mask = bits - 1, .capacity = capacity};
    for (unsigned i = 0; i < 2; i++) {
        sketch->bits[i] = calloc(bits / 64, sizeof(uint64_t));
        if (!sketch->bits[i]) {
            sketch_fini(sketch);
            return QUIRE_ENOMEM;
        }
    }
    return 0;
}

void sketch_fini(struct sketch *sketch)
{
    free(sketch->bits[0]);
    free(sketch->bits[1]);
    memset(sketch, 0, sizeof *sketch);
}

static bool holds(const struct sketch *sketch, unsigned filter, uint64_t hash)
{
    uint64_t step = random_mix(hash) | 1;
    for (unsigned i = 0; i < PROBES; i++) {
        uint64_t bit = (hash + i * step) & sketch->mask;
        if (!(sketch->bits[filter][bit / 64] >> bit % 64 & 1))
            return false;
    }
    return true;
}

bool sketch_seen(const struct sketch *sketch, uint64_t hash)
{
    return holds(sketch, 0, hash) || holds(sketch, 1, hash);
}

void sketch_add(struct sketch *sketch, uint64_t hash)
{
    if (holds(sketch, sketch->newer, hash))
        return;
    if (sketch->n == sketch->capacity) {
        sketch->newer ^= 1;
        sketch->n = 0;
        memset(sketch->bits[sketch->newer], 0, (sketch->mask + 1) / 8);
    }
    uint64_t step = random_mix(hash) | 1;
    for (unsigned i = 0; i < PROBES; i++) {
        uint64_t bit = (hash + i * step) & sketch->mask;
        sketch->bits[sketch->newer][bit / 64] |= 1ull << bit % 64;
    }
    sketch->n++;
}
