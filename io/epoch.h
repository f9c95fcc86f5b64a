/*
 * epoch.h - when memory that readers may still look at can be given back (epoch-based reclamation, Fraser 2004).
 *
 * A reader is inside between epoch_enter and epoch_exit: microseconds, never over a wait for the disk. A writer that
 * has taken something out of reach hands it to epoch_defer; it runs once every reader that was inside then has left.
 */
#ifndef QUIRE_IO_EPOCH_H
#define QUIRE_IO_EPOCH_H

#include "quire.h"

struct epochs;

struct epoch_item {
    struct epoch_item *next;
    uint64_t epoch;
    void (*run)(struct epoch_item *item); /* on the thread that collects; frees what the item is embedded in */
};

int epochs_create(struct epochs **out);
/* Runs what was deferred. No reader is inside. NULL is fine. */
void epochs_destroy(struct epochs *epochs);

/* Any thread, any number of them, also inside each other. The number that enter gives goes to exit. Cost: two atomic
 * writes to a cache line that other threads seldom share. */
unsigned epoch_enter(struct epochs *epochs);
void epoch_exit(struct epochs *epochs, unsigned slot);

/* Any thread. Now and then it runs what was deferred long enough ago. */
void epoch_defer(struct epochs *epochs, struct epoch_item *item);
/* Runs what may run; returns how many items still wait. */
uint64_t epochs_collect(struct epochs *epochs);

/* Around a fork (index/store/store.h, store_fork_prepare): prepare before, end after it in both processes. What other
 * threads were reading stays entered in the child for ever, so nothing deferred runs there any more. */
void epochs_fork_prepare(struct epochs *epochs);
void epochs_fork_end(struct epochs *epochs);

#endif
