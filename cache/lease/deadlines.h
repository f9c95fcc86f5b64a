/*
 * deadlines.h - which of many things is due next: a binary heap that knows where each of them stands.
 *
 * An owner keeps the number of its place, which the heap updates, so that it can leave early. Room for `max` is taken
 * at once; adding cannot fail.
 *
 * No locks: the caller's.
 */
#ifndef QUIRE_CACHE_DEADLINES_H
#define QUIRE_CACHE_DEADLINES_H

#include <stdint.h>

struct deadline {
    uint64_t at_ms;
    void *owner;
    uint32_t *place;
};
struct deadlines {
    struct deadline *items; /* items[0] is due first, where n > 0 */
    uint32_t n, max;
};

/* 0 or QUIRE_ENOMEM. */
int deadlines_init(struct deadlines *deadlines, uint32_t max);
void deadlines_fini(struct deadlines *deadlines);
/* n < max. *place is the heap's until it is removed. */
void deadlines_add(struct deadlines *deadlines, uint64_t at_ms, void *owner, uint32_t *place);
void deadlines_remove(struct deadlines *deadlines, uint32_t place);
/* Whose deadline has come (at_ms <= now_ms), the earliest; NULL: nobody's. It stays where it is. */
void *deadlines_due(const struct deadlines *deadlines, uint64_t now_ms);
/* The earliest; UINT64_MAX where there is none. */
uint64_t deadlines_next(const struct deadlines *deadlines);

#endif
