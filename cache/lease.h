/*
 * lease.h - one caller computes what many ask for: leases on missing answers, and those who wait for them.
 *
 * A lease belongs to a group (scope, compat and category: group numbers are the caller's), an exact hash (may be none)
 * and a vector (may be none), and has a deadline. Others with the same hash in the same group, or with a vector at
 * least as similar as they require (cosine), find it and may wait. When the leader puts the answer, all of them are
 * woken; when it fails, or its deadline passes, the one that waits longest becomes the leader and the rest go on
 * waiting. A waiter whose own time is over gets a miss without a lease.
 *
 * A token is text: the epoch at which it was granted, a random part, and a keyed hash, so that it is recognised also
 * after a restart, and a made-up one is not. Tokens are compared in constant time.
 *
 * Waking happens outside of all locks, on the thread that put, failed, or called lease_tick.
 *
 * Threads: all calls are safe from any; one lock per table.
 */
#ifndef QUIRE_CACHE_LEASE_H
#define QUIRE_CACHE_LEASE_H

#include "cache/document.h"

#define LEASE_TOKEN_BYTES 64u /* with the 0 at its end */

enum lease_wake {
    LEASE_READY,   /* the answer is there: look it up */
    LEASE_LEAD,    /* the leader is gone: the waiter has the lease now; waiter->token is set */
    LEASE_TIMEOUT, /* its time is over: a miss without lease */
    LEASE_CLOSED   /* the cache goes */
};

/* Whoever waits; the caller's memory until wake has run or lease_cancel has returned true. */
struct lease_waiter {
    void (*wake)(struct lease_waiter *waiter, enum lease_wake how);
    void *owner;
    char token[LEASE_TOKEN_BYTES];
    uint64_t token_deadline_ms;
    /* the table's */
    struct lease_waiter *next, *prev;
    struct lease *lease;
    uint64_t deadline_ms;
    struct hash128 exact;
};

struct lease_table;

struct lease_options {
    uint32_t dim;
    uint32_t leases_max;  /* in flight at once; beyond it misses are granted no lease; 0: 4096 */
    uint32_t waiters_max; /* of all leases; 0: 65536 */
    uint64_t secret[2];   /* of tokens: random, kept by the cache across restarts */
    uint64_t seed;
};
int lease_table_create(const struct lease_options *options, struct lease_table **out, struct quire_error *err);
/* Wakes all waiters with LEASE_CLOSED. */
void lease_table_destroy(struct lease_table *table);

struct lease_question {
    uint64_t group;
    struct hash128 exact; /* none: only nearness counts */
    const float *vector;  /* unit length, dim floats; NULL: none */
    float nearness;       /* cosine from which another question in flight is the same; > 1: never */
    uint64_t now_ms, lease_ms;
    uint64_t epoch;     /* of the cache, goes into the token */
    uint64_t refreshes; /* id of a stale entry that this would replace; 0: none */
};
enum lease_answer {
    LEASE_GRANTED, /* token and deadline are set */
    LEASE_WAITING, /* waiter was queued */
    LEASE_TAKEN,   /* another one has it and the caller does not wait */
    LEASE_FULL     /* a limit: neither lease nor wait */
};
/* Finds a lease in flight for the question or grants one. waiter: NULL: does not wait; otherwise waits at most wait_ms.
 * want_lease false: none is granted (LEASE_TAKEN where there is none). */
enum lease_answer lease_ask(struct lease_table *table, const struct lease_question *question, bool want_lease,
                            struct lease_waiter *waiter, uint64_t wait_ms, char token[LEASE_TOKEN_BYTES],
                            uint64_t *deadline_ms);
/* A waiter leaves (its client is gone). True: it will not be woken. False: it was, or is being. */
bool lease_cancel(struct lease_table *table, struct lease_waiter *waiter);

enum lease_state {
    LEASE_VALID,  /* in flight, before its deadline */
    LEASE_DEAD,   /* it was one of this cache's: over, failed, or granted before a restart */
    LEASE_UNKNOWN /* not a token of this cache */
};
/* What a token is. *epoch and *granted_ms (NULL: not asked for) for VALID and DEAD. */
enum lease_state lease_look(struct lease_table *table, struct quire_bytes token, uint64_t now_ms, uint64_t *epoch,
                            uint64_t *granted_ms);
/* The answer was stored (or refused for good: then who waits gets a miss): ends the lease and wakes its waiters with
 * LEASE_READY. No effect on others than a valid one. Returns how many were woken. */
uint32_t lease_done(struct lease_table *table, struct quire_bytes token);
/* The same by question, for an answer that came without a token. */
uint32_t lease_done_exact(struct lease_table *table, uint64_t group, struct hash128 exact);
/* The leader gave up: the next waiter leads. *led: whether there was one. The state before. */
enum lease_state lease_fail(struct lease_table *table, struct quire_bytes token, uint64_t now_ms, bool *led);
/* Deadlines of leases and waiters. Returns ms until the next one, UINT64_MAX where there is none. Cheap when nothing is
 * due. */
uint64_t lease_tick(struct lease_table *table, uint64_t now_ms);

struct lease_stats {
    uint64_t in_flight, waiting, granted, done, failed, expired, handed_over, woken, timeouts, refused;
};
void lease_get_stats(const struct lease_table *table, struct lease_stats *out);

#endif
