/*
 * gate.h - lanes run requests side by side, until one has to run some alone (EXEC).
 *
 * Each lane holds its own lock while it runs a batch of requests; nobody else wants it, so that costs what an
 * uncontended lock costs. gate_close takes all of them: afterwards no other lane is inside, and none comes in before
 * gate_open. Another thread that changes what lanes change has a number of its own behind those of the lanes.
 *
 * Whoever keeps it closed for long says so (gate_shut): lanes then do not wait for it, but do meanwhile what needs
 * neither keys nor sets (gate_try_enter).
 */
#ifndef QUIRE_SERVER_GATE_H
#define QUIRE_SERVER_GATE_H

#include "quire.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct gate {
    unsigned n;
    struct gate_lane *lanes; /* owned; each on its own cache line */
    atomic_bool closing;
    pthread_mutex_t turnstile; /* held from gate_close to gate_open */
    atomic_bool shut;          /* closed for long; it and `closing` change under: */
    pthread_mutex_t lock;
    pthread_cond_t changed;
};

int gate_init(struct gate *gate, unsigned n_lanes, struct quire_error *err);
void gate_fini(struct gate *gate);

void gate_enter(struct gate *gate, unsigned lane);
/* The same, but false, with nothing entered, where it is shut. */
bool gate_try_enter(struct gate *gate, unsigned lane);
void gate_leave(struct gate *gate, unsigned lane);
/* From inside: the caller is out for a moment, in which other lanes may run, and then inside alone. */
void gate_close(struct gate *gate, unsigned lane);
/* It is closed, and will be for a while: lanes that wait for it go on without. */
void gate_shut(struct gate *gate);
static inline bool gate_is_shut(const struct gate *gate)
{
    return atomic_load_explicit(&gate->shut, memory_order_relaxed);
}
/* Whether it was shut: then the other lanes have to be told that it is open. */
bool gate_open(struct gate *gate, unsigned lane);

#endif
