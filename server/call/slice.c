/*
 * slice.c - the line of the slices that wait on a lane. In each turn the first ones are run, until SLICES_US have
 * passed: so a hundred long requests share what one would take, and delay others by less than a millisecond a turn.
 */
#include "server/call/slice.h"
#include <assert.h>
#include <stddef.h>

enum { SLICES_US = 500 };

void slice_post(struct lane *lane, struct slice *slice)
{
    assert(slice->run);
    slice->next = NULL;
    if (lane->slices)
        lane->last_slice->next = slice;
    else
        lane->slices = slice;
    lane->last_slice = slice;
}

static bool work(struct lane *lane)
{
    if (!lane->slices || !lane_try_enter(lane))
        return false;
    uint64_t began_us = clock_us(), before_us = began_us, now_us;
    struct slice *last = lane->last_slice, *slice;
    do {
        /* what is posted again meanwhile stands behind `last` */
        slice = lane->slices;
        lane->slices = slice->next;
        struct caller *caller = slice->caller;
        slice->run(slice); /* which may free it */
        now_us = clock_us();
        if (caller)
            caller_spent(caller, now_us - before_us);
        before_us = now_us;
    } while (slice != last && now_us - began_us < SLICES_US);
    lane_leave(lane);
    return lane->slices != NULL;
}

const struct lane_hook slice_hook = {.work = work};
