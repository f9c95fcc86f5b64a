/*
 * home.h - whether a handle is used in the process that made it.
 *
 * fork() copies handles into the child, but not the threads behind them, and the rings, locks and files that they stand
 * for stay the parent's: a read through the child's copy takes the parent's completions away. Whoever gives handles to
 * users asks here first. To look costs a load.
 */
#ifndef QUIRE_IO_HOME_H
#define QUIRE_IO_HOME_H

#include "quire.h"
#include <sys/types.h>

struct home {
    const volatile uint8_t *page; /* 1; a child finds 0. NULL: the kernel has no such pages */
    pid_t pid;
};

int home_init(struct home *home, struct quire_error *err);
void home_fini(struct home *home);
/* 0, or QUIRE_ECLOSED in a child of the process. Thread-safe. */
int home_check(const struct home *home, struct quire_error *err);

#endif
