/*
 * tombstones.h - the tombstones of some parts as of one moment, copied while rows go on dying.
 *
 * A copy of a bit per row takes a millisecond for ten million: too long for a lock that every search takes. So the lock
 * is held for two moments only. In the first each part begins a log of the rows that die (part.h); then its bitmap is
 * copied, with bits in it or not of rows that die meanwhile; in the second the logs end. A row that is in a log did not
 * die before the first moment, so without those of the logs the copy is what it was then. Who goes on from there (a
 * merge) keeps the logs, and the copy as it came: what is in neither is alive.
 */
#ifndef QUIRE_INDEX_TOMBSTONES_H
#define QUIRE_INDEX_TOMBSTONES_H

#include "index/collection/part.h"

struct tombstones {
    uint32_t n;
    struct part *const *parts; /* the caller's, who holds references */
    struct part_log *logs;     /* n; owned, as what follows */
    uint8_t **dead;            /* n: a bitmap of each part's dead_capacity */
};

/* Room for the copies. QUIRE_ENOMEM. */
int tombstones_create(struct tombstones *t, struct part *const *parts, uint32_t n);
/* (lock) The moment: from now on what dies is logged. Cost: the parts. */
void tombstones_begin(struct tombstones *t);
/* Without the lock, after tombstones_begin. */
void tombstones_copy(struct tombstones *t);
/* (lock) The logs end. */
void tombstones_end(struct tombstones *t);
/* After tombstones_copy and tombstones_end: the copies become those of the moment of tombstones_begin. QUIRE_ENOMEM: a
 * log is not whole. */
int tombstones_settle(struct tombstones *t);
/* After tombstones_end, or without tombstones_begin; a zeroed one is fine. */
void tombstones_destroy(struct tombstones *t);

#endif
