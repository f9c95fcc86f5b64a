/*
 * slice.h - work of a request that would keep a lane for long: done in slices, between which the lane serves others.
 *
 * A handler defers its reply (caller.h), embeds a struct slice in what it keeps, does some of its work, and calls
 * slice_post; `run` is called once, in a later turn of the lane, does more, and posts again or ends the call. Between
 * two slices anything may change: keys, sets, the client. A slice should take some tenths of a millisecond.
 *
 * In EXEC (caller->whole) commands on keys do all at once: nobody may see the state between two of them.
 */
#ifndef QUIRE_SERVER_SLICE_H
#define QUIRE_SERVER_SLICE_H

#include "server/call/caller.h"

struct slice {
    struct slice *next;
    void (*run)(struct slice *slice);
    struct caller *caller; /* whose work it is, and whose time; NULL: nobody's */
};

/* Not posted yet, or running: has it run in a later turn, behind those that wait. */
void slice_post(struct lane *lane, struct slice *slice);

/* Runs those that wait, in order, for as long as a turn may take. */
extern const struct lane_hook slice_hook;

#endif
