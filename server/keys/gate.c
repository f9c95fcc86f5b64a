/*
 * gate.c - a lock per lane, and a turnstile for who wants them all.
 *
 * One reader-writer lock would have all lanes write to one cache line twice per batch. Here a lane touches its own
 * line, and reads `closing`, which changes only when somebody closes.
 *
 * A lane under full load leaves and enters again within nanoseconds, so that a thread that waits for its lock might
 * wait for ever. Therefore those who enter look at `closing` first, and wait at the turnstile, which the closing lane
 * holds.
 *
 * Order of locks: turnstile, then lanes from 0 up. Whoever closes lets its own go first, so nobody waits with a lane's
 * lock in hand.
 *
 * gate_try_enter waits for no lock: a lane's lock that is taken belongs to whoever closes; how long that takes shows
 * in `closing` and `shut`.
 */
#include "server/keys/gate.h"
#include "io/error.h"
#include "io/memory.h"
#include <assert.h>
#include <stdlib.h>

struct gate_lane {
    _Alignas(64) pthread_mutex_t lock;
};

int gate_init(struct gate *gate, unsigned n_lanes, struct quire_error *err)
{
    gate->lanes = memory_aligned(64, memory_size_mul(n_lanes, sizeof *gate->lanes));
    if (!gate->lanes)
        return error_set(err, QUIRE_ENOMEM, "no memory for the gate of %u lanes", n_lanes);
    gate->n = n_lanes;
    for (unsigned i = 0; i < n_lanes; i++)
        pthread_mutex_init(&gate->lanes[i].lock, NULL);
    pthread_mutex_init(&gate->turnstile, NULL);
    pthread_mutex_init(&gate->lock, NULL);
    pthread_cond_init(&gate->changed, NULL);
    atomic_init(&gate->closing, false);
    atomic_init(&gate->shut, false);
    return 0;
}

void gate_fini(struct gate *gate)
{
    if (!gate->lanes)
        return;
    for (unsigned i = 0; i < gate->n; i++)
        pthread_mutex_destroy(&gate->lanes[i].lock);
    pthread_mutex_destroy(&gate->turnstile);
    pthread_mutex_destroy(&gate->lock);
    pthread_cond_destroy(&gate->changed);
    memory_free(gate->lanes);
    gate->lanes = NULL;
}

void gate_enter(struct gate *gate, unsigned lane)
{
    if (atomic_load_explicit(&gate->closing, memory_order_relaxed)) {
        pthread_mutex_lock(&gate->turnstile);
        pthread_mutex_unlock(&gate->turnstile);
    }
    pthread_mutex_lock(&gate->lanes[lane].lock);
}

bool gate_try_enter(struct gate *gate, unsigned lane)
{
    for (;;) {
        if (!atomic_load_explicit(&gate->closing, memory_order_relaxed) &&
            pthread_mutex_trylock(&gate->lanes[lane].lock) == 0)
            return true;
        pthread_mutex_lock(&gate->lock);
        while (atomic_load(&gate->closing) && !atomic_load(&gate->shut))
            pthread_cond_wait(&gate->changed, &gate->lock);
        bool is_shut = atomic_load(&gate->shut);
        pthread_mutex_unlock(&gate->lock);
        if (is_shut)
            return false;
    }
}

void gate_leave(struct gate *gate, unsigned lane)
{
    pthread_mutex_unlock(&gate->lanes[lane].lock);
}

static void set_state(struct gate *gate, bool closing, bool shut)
{
    pthread_mutex_lock(&gate->lock);
    atomic_store(&gate->closing, closing);
    atomic_store(&gate->shut, shut);
    pthread_cond_broadcast(&gate->changed);
    pthread_mutex_unlock(&gate->lock);
}

void gate_close(struct gate *gate, unsigned lane)
{
    pthread_mutex_unlock(&gate->lanes[lane].lock);
    pthread_mutex_lock(&gate->turnstile);
    assert(!gate_is_shut(gate));
    set_state(gate, true, false);
    for (unsigned i = 0; i < gate->n; i++)
        pthread_mutex_lock(&gate->lanes[i].lock);
}

void gate_shut(struct gate *gate)
{
    assert(atomic_load(&gate->closing));
    if (!gate_is_shut(gate))
        set_state(gate, true, true);
}

bool gate_open(struct gate *gate, unsigned lane)
{
    bool was_shut = gate_is_shut(gate);
    assert(atomic_load(&gate->closing));
    for (unsigned i = 0; i < gate->n; i++)
        if (i != lane)
            pthread_mutex_unlock(&gate->lanes[i].lock);
    set_state(gate, false, false);
    pthread_mutex_unlock(&gate->turnstile);
    return was_shut;
}
