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
 */
#include "server/keys/gate.h"
#include "io/error.h"
#include "io/memory.h"
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
    atomic_init(&gate->closing, false);
    return 0;
}

void gate_fini(struct gate *gate)
{
    if (!gate->lanes)
        return;
    for (unsigned i = 0; i < gate->n; i++)
        pthread_mutex_destroy(&gate->lanes[i].lock);
    pthread_mutex_destroy(&gate->turnstile);
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

void gate_leave(struct gate *gate, unsigned lane)
{
    pthread_mutex_unlock(&gate->lanes[lane].lock);
}

void gate_close(struct gate *gate, unsigned lane)
{
    pthread_mutex_unlock(&gate->lanes[lane].lock);
    pthread_mutex_lock(&gate->turnstile);
    atomic_store_explicit(&gate->closing, true, memory_order_relaxed);
    for (unsigned i = 0; i < gate->n; i++)
        pthread_mutex_lock(&gate->lanes[i].lock);
}

void gate_open(struct gate *gate, unsigned lane)
{
    atomic_store_explicit(&gate->closing, false, memory_order_relaxed);
    for (unsigned i = 0; i < gate->n; i++)
        if (i != lane)
            pthread_mutex_unlock(&gate->lanes[i].lock);
    pthread_mutex_unlock(&gate->turnstile);
}
