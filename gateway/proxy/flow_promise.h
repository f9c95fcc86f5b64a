/*
 * flow_promise.h - ids of answers that are not kept yet.
 *
 * A client gets the header of a miss before its answer is put, so the entry has no id then. It gets one of this table,
 * in the same 16 hexadecimal digits; when the put has ended it stands for the entry's. Known to this process alone, and
 * for as long as FLOW_PROMISES_MAX later ones have not taken its place.
 */
#ifndef QUIRE_GATEWAY_FLOW_PROMISE_H
#define QUIRE_GATEWAY_FLOW_PROMISE_H

#include <stddef.h>
#include <stdint.h>

#define FLOW_PROMISES_MAX      65536u
#define FLOW_PROMISE_ID_DIGITS 16u

enum flow_promise_state {
    FLOW_PROMISE_UNKNOWN, /* not of this table: an entry's own id, or too long ago */
    FLOW_PROMISE_OPEN,    /* the answer is not kept yet */
    FLOW_PROMISE_BROKEN,  /* it was not kept */
    FLOW_PROMISE_KEPT,
};

struct flow_promises;

struct flow_promises *flow_promises_create(void); /* NULL without memory */
void flow_promises_destroy(struct flow_promises *promises);

/* A new one, never 0; 0: there are no random bytes. */
uint64_t flow_promise_make(struct flow_promises *promises);
/* Its answer is kept as the entry of this id (in hexadecimal digits; NULL: none). A promise of 0, or a forgotten one,
 * is left alone. */
void flow_promise_end(struct flow_promises *promises, uint64_t promise, const char *id, size_t bytes);
/* What an id in a request stands for; FLOW_PROMISE_KEPT: *entry is the entry's. */
enum flow_promise_state flow_promise_find(const struct flow_promises *promises, uint64_t id, uint64_t *entry);

#endif
