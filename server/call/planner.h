/*
 * planner.h - what a transaction's writes need of the disk, found out before the gate is closed (transaction.c). Made
 * by those who write (vector/vector_plan.h).
 */
#ifndef QUIRE_SERVER_PLANNER_H
#define QUIRE_SERVER_PLANNER_H

#include "server/call/caller.h"

struct planner {
    /* While caller->plan names the plan, commands with CMD_ASKS_DISK note their writes instead of making them, until it
     * is first asked. go_on(context) is called when the disk has answered all that `ask` has asked. What the plan takes
     * is the account's (NULL: nobody's), which stays until it is destroyed. NULL: no memory. */
    struct vector_plan *(*create)(struct lane *lane, struct resp_account *account, void (*go_on)(void *context),
                                  void *context);
    /* Nothing is being asked. NULL is fine. */
    void (*destroy)(struct vector_plan *plan);
    /* The set of this key may have another by the time of a write. The name stays until the plan is destroyed. */
    void (*note_rename)(struct vector_plan *plan, struct resp_arg from);
    /* Asks the disk for what is not known, or no longer true. True: nothing need be waited for. False: go_on comes. */
    bool (*ask)(struct vector_plan *plan);
    /* Whether something went wrong; then *err says what. */
    bool (*failed)(const struct vector_plan *plan, struct quire_error *err);
    /* Whether every write can be made without the disk. True as long as no collection's segments change. */
    bool (*is_ready)(struct vector_plan *plan);
};

#endif
