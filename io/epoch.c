/*
 * epoch.c - epoch-based reclamation: slots for readers, one number that grows, a queue of what waits.
 *
 * A reader writes the present epoch into a slot of its own (a cache line each) and 0 when it leaves. What is deferred
 * gets the present epoch as its number; a collection makes the epoch grow by one, looks at all slots and runs what has
 * a number below that of every reader inside.
 *
 * Why that is safe, without a fence (a thread sanitizer follows these steps as well):
 * 1. A reader with a higher epoch than the item has read a number that was written after the item was queued, so it
 *    sees that the memory is out of reach.
 * 2. A collection looks at a slot by an atomic read-modify-write. A reader that takes the slot afterwards reads from
 *    that write, so it sees all that was queued before the collection began.
 * 3. A reader that took it before is seen, or has left; then its leaving happens before the item runs.
 * The same holds for `used`, the number of slots that were ever taken, which spares looking at the others.
 *
 * A thread comes back to the slot that it had last, so threads part after a few calls and share no line. SLOTS readers
 * can be inside at once; one more waits until another leaves, which is microseconds away. Items are queued under a
 * mutex: a writer has done far more work by then.
 */
#include "io/epoch.h"
#include "io/memory.h"
#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#define SLOTS         1024u
#define COLLECT_EVERY 32u /* items deferred between two collections */

struct slot {
    _Alignas(64) atomic_uint_fast64_t epoch; /* of the reader inside; 0: nobody */
};

struct epochs {
    struct slot *slots;
    _Alignas(64) atomic_uint_fast64_t now; /* from 1; changed under the mutex */
    atomic_uint used;
    _Alignas(64) pthread_mutex_t mutex;
    struct epoch_item *first, *last; /* by epoch; never decreasing */
    uint64_t waiting;
    unsigned since; /* items since the last collection */
};

int epochs_create(struct epochs **out)
{
    struct epochs *epochs = memory_aligned(64, sizeof *epochs);
    struct slot *slots = memory_map(SLOTS * sizeof *slots, 0);
    if (!epochs || !slots || pthread_mutex_init(&epochs->mutex, NULL) != 0) {
        memory_unmap(slots, SLOTS * sizeof *slots);
        memory_free(epochs);
        return QUIRE_ENOMEM;
    }
    epochs->slots = slots;
    atomic_init(&epochs->now, 1);
    atomic_init(&epochs->used, 0);
    epochs->first = epochs->last = NULL;
    epochs->waiting = 0;
    epochs->since = 0;
    *out = epochs;
    return 0;
}

/* Makes `used` at least n, also when it is: the caller reads from what a collection wrote there. */
static void raise_used(struct epochs *epochs, unsigned n)
{
    unsigned used = atomic_load_explicit(&epochs->used, memory_order_acquire);
    while (used < n &&
           !atomic_compare_exchange_weak_explicit(&epochs->used, &used, n, memory_order_acq_rel, memory_order_acquire))
        ;
}

unsigned epoch_enter(struct epochs *epochs)
{
    static _Thread_local unsigned mine;
    for (unsigned i = mine, tried = 0;; i = (i + 1) % SLOTS) {
        uint_fast64_t nobody = 0, now = atomic_load_explicit(&epochs->now, memory_order_acquire);
        assert(now > 0);
        raise_used(epochs, i + 1);
        if (atomic_compare_exchange_strong_explicit(&epochs->slots[i].epoch, &nobody, now, memory_order_acq_rel,
                                                    memory_order_relaxed)) {
            mine = i;
            return i;
        }
        if (++tried % SLOTS == 0)
            sched_yield();
    }
}

void epoch_exit(struct epochs *epochs, unsigned slot)
{
    assert(slot < SLOTS);
    assert(atomic_load_explicit(&epochs->slots[slot].epoch, memory_order_relaxed) != 0);
    atomic_store_explicit(&epochs->slots[slot].epoch, 0, memory_order_release);
}

/* The lowest epoch of the readers inside, `most` where all have a higher one. */
static uint64_t oldest_inside(struct epochs *epochs, uint64_t most)
{
    unsigned used = atomic_fetch_add_explicit(&epochs->used, 0, memory_order_acq_rel);
    for (unsigned i = 0; i < used; i++) {
        uint64_t epoch = atomic_fetch_add_explicit(&epochs->slots[i].epoch, 0, memory_order_acq_rel);
        if (epoch && epoch < most)
            most = epoch;
    }
    return most;
}

/* Takes the items below an epoch out of the queue. */
static struct epoch_item *take_below(struct epochs *epochs, uint64_t epoch, uint64_t *waiting)
{
    pthread_mutex_lock(&epochs->mutex);
    struct epoch_item *taken = NULL, **end = &taken;
    while (epochs->first && epochs->first->epoch < epoch) {
        *end = epochs->first;
        end = &epochs->first->next;
        epochs->first = epochs->first->next;
        assert(epochs->waiting > 0);
        epochs->waiting--;
    }
    *end = NULL;
    if (!epochs->first)
        epochs->last = NULL;
    assert(!epochs->first == (epochs->waiting == 0));
    *waiting = epochs->waiting;
    pthread_mutex_unlock(&epochs->mutex);
    return taken;
}

static void run_all(struct epoch_item *item)
{
    while (item) {
        struct epoch_item *next = item->next;
        item->run(item);
        item = next;
    }
}

uint64_t epochs_collect(struct epochs *epochs)
{
    pthread_mutex_lock(&epochs->mutex);
    uint64_t now = epochs->waiting ? atomic_fetch_add_explicit(&epochs->now, 1, memory_order_acq_rel) + 1 : 0;
    epochs->since = 0;
    pthread_mutex_unlock(&epochs->mutex);
    if (!now)
        return 0;
    uint64_t waiting;
    run_all(take_below(epochs, oldest_inside(epochs, now), &waiting));
    return waiting;
}

void epoch_defer(struct epochs *epochs, struct epoch_item *item)
{
    assert(item->run);
    item->next = NULL;
    pthread_mutex_lock(&epochs->mutex);
    item->epoch = atomic_load_explicit(&epochs->now, memory_order_relaxed);
    assert(!epochs->last || epochs->last->epoch <= item->epoch);
    if (epochs->last)
        epochs->last->next = item;
    else
        epochs->first = item;
    epochs->last = item;
    epochs->waiting++;
    bool due = ++epochs->since >= COLLECT_EVERY;
    pthread_mutex_unlock(&epochs->mutex);
    if (due)
        epochs_collect(epochs);
}

void epochs_fork_prepare(struct epochs *epochs)
{
    pthread_mutex_lock(&epochs->mutex);
}

void epochs_fork_end(struct epochs *epochs)
{
    pthread_mutex_unlock(&epochs->mutex);
}

void epochs_destroy(struct epochs *epochs)
{
    if (!epochs)
        return;
    while (epochs->first) { /* what runs may defer more */
        uint64_t waiting;
        run_all(take_below(epochs, UINT64_MAX, &waiting));
    }
    assert(oldest_inside(epochs, UINT64_MAX) == UINT64_MAX);
    pthread_mutex_destroy(&epochs->mutex);
    memory_unmap(epochs->slots, SLOTS * sizeof *epochs->slots);
    memory_free(epochs);
}
