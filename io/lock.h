/*
 * lock.h - what a function that is called with a lock held asserts: assert(lock_is_held(&c->lock)).
 *
 * Says that some thread holds it, not which: enough to find a caller who forgot. A try at a lock that is held costs one
 * atomic instruction; it is meant for asserts alone.
 */
#ifndef QUIRE_IO_LOCK_H
#define QUIRE_IO_LOCK_H

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>

static inline bool lock_is_held(const pthread_mutex_t *lock)
{
    return pthread_mutex_trylock((pthread_mutex_t *)lock) == EBUSY;
}

#endif
