/*
 * near.h - candidates with their distances: ordered as plain numbers, and the nearest of many.
 */
#ifndef QUIRE_INDEX_NEAR_H
#define QUIRE_INDEX_NEAR_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Distance and row or group as one number that orders by distance, then by number: a float that is not negative orders
 * as its bits do. */
typedef uint64_t near_t;

static inline near_t near_of(float distance, uint32_t id)
{
    uint32_t bits;
    memcpy(&bits, &distance, sizeof bits);
    return (near_t)bits << 32 | id;
}

static inline float near_distance(near_t near)
{
    uint32_t bits = (uint32_t)(near >> 32);
    float distance;
    memcpy(&distance, &bits, sizeof distance);
    return distance;
}

static inline uint32_t near_row(near_t near)
{
    return (uint32_t)near;
}

/* Moves the `keep` smallest of items[0..n) to the front, in no order. All are different. */
void near_select(near_t *items, uint32_t n, uint32_t keep);
/* The `keep` smallest to the front, ascending; returns how many there are. spare: holds as many. All are
 * different. */
uint32_t near_keep_sorted(near_t *items, uint32_t n, uint32_t keep, near_t *spare);

/* The `left` smallest keys go left: those below the value, and of the equal ones the first `ties`. keys are moved. */
struct near_limit {
    float value;
    uint32_t ties;
};
struct near_limit near_limit_of(float *keys, uint32_t n, uint32_t left);

static inline bool near_limit_takes(struct near_limit *limit, float key)
{
    if (key != limit->value)
        return key < limit->value;
    if (limit->ties == 0)
        return false;
    limit->ties--;
    return true;
}

#endif
