/*
 * lease.h - one caller computes what many ask for: leases on missing answers, and those who wait for them.
 *
 * A lease belongs to a group (scope, compat and category: group numbers are the caller's), an exact hash (may be none)
 * and a vector (may be none), and has a deadline. Others with the same hash in the same group, or with a vector at
 * least as similar as they require (cosine), find it and may wait; the same hash goes before the nearest vector. When
 * the leader puts the answer, all of them are woken; when it fails, or its deadline passes, the one that waits longest
 * becomes the leader and the rest go on waiting. A waiter whose own time is over gets a miss without a lease.
 *
 * Hand-over. The new leader computes its own question, so the lease takes its exact hash (and keeps its vector, which
 * the waiter found near enough). If that hash is in flight already under another lease of the group, all waiters join
 * that one, in the order in which they asked: in a group no hash is ever led twice. Who asked with want_lease false,
 * or whose time is over, is passed over; if nobody else waits, the lease ends and they get their miss at once.
 *
 * A token is text: the epoch at which its leader asked, when it was granted, a random part, and a keyed hash, so that
 * it is recognised also after a restart, and a made-up one is not. The epoch is that of asking, also where a waiter was
 * granted it much later: what the client computes from, it may have fetched before it asked. Tokens are compared in
 * constant time.
 *
 * Waking happens outside of all locks, in the order of waiting, on the thread that put, failed, called lease_tick or
 * destroys the table; lease_ask wakes nobody. `wake` may call everything here but lease_table_destroy, also with its
 * own waiter: the table does not touch a waiter once its wake has begun.
 *
 * Time is a monotonic clock of the caller's, in ms: deadlines do not move when somebody sets the time of day. Only the
 * moment of granting that a token carries is wall-clock time, since tokens outlive a restart. What has passed takes
 * effect at lease_tick; only a lease that nobody waits for ends when the next one asks.
 *
 * Threads: all calls are safe from any; one lock per table.
 */
#ifndef QUIRE_CACHE_LEASE_H
#define QUIRE_CACHE_LEASE_H

#include "cache/document/document.h"

#define LEASE_TOKEN_BYTES 64u /* with the 0 at its end */
#define LEASES_MAX        65536u

enum lease_wake {
    LEASE_READY,   /* the answer is there: look it up */
    LEASE_LEAD,    /* the leader is gone: the waiter has the lease now; waiter->token is set */
    LEASE_TIMEOUT, /* its time is over, or nobody is left who would lead: a miss without lease */
    LEASE_CLOSED   /* the cache goes */
};

/* Whoever waits; the caller's memory until wake has begun or lease_cancel has returned true. The caller sets wake and
 * owner, the rest is zero at first. */
struct lease_waiter {
    void (*wake)(struct lease_waiter *waiter, enum lease_wake how);
    void *owner;
    char token[LEASE_TOKEN_BYTES];
    uint64_t token_deadline_ms;
    /* the table's */
    struct lease_waiter *next, *prev;
    struct lease *lease; /* NULL: does not wait */
    struct hash128 exact;
    uint64_t asked, deadline_ms, lease_ms, epoch;
    uint32_t place; /* among the deadlines */
    bool want_lease;
    enum lease_wake how;
};

struct lease_table;

struct lease_options {
    uint32_t dim;         /* of vectors; 0: there are none */
    uint32_t leases_max;  /* in flight at once; beyond it misses are granted no lease; 0: 4096; at most LEASES_MAX */
    uint32_t waiters_max; /* of all leases; 0: 65536 */
    uint64_t secret[2];   /* of tokens: random, kept by the cache across restarts; not 0 */
    uint64_t seed;        /* of the random part */
};
/* Takes leases_max * dim floats of address space, memory only for as many as were in flight at once. QUIRE_EINVALID,
 * QUIRE_ERANGE, QUIRE_ENOMEM. No other call allocates. */
int lease_table_create(const struct lease_options *options, struct lease_table **out, struct quire_error *err);
/* Wakes all waiters with LEASE_CLOSED; from then on the table has and grants no lease (LEASE_FULL). */
void lease_table_close(struct lease_table *table);
/* The same, and frees it. No other call may run, but those of `wake`. NULL is fine. */
void lease_table_destroy(struct lease_table *table);

struct lease_question {
    uint64_t group;
    struct hash128 exact;      /* none: only nearness counts */
    const float *vector;       /* unit length, dim floats; NULL: none */
    float nearness;            /* cosine from which another question in flight is the same; > 1: never */
    uint64_t now_ms, lease_ms; /* lease_ms: at least 1 is taken; also of a lease that its waiter takes over */
    uint64_t wall_ms;          /* the same moment by the wall clock, for tokens; 0: now_ms */
    uint64_t epoch;            /* of the cache; goes into the token, also into that of a waiter that leads later */
    uint64_t refreshes;        /* id of a stale entry that this would replace; 0: none */
};
enum lease_answer {
    LEASE_GRANTED, /* token and deadline are set */
    LEASE_WAITING, /* waiter was queued */
    LEASE_TAKEN,   /* another one has it and the caller does not wait */
    LEASE_FULL     /* a limit: neither lease nor wait */
};
/* Finds a lease in flight for the question or grants one. waiter: NULL: does not wait; otherwise waits at most wait_ms
 * (0: not at all); another thread may wake it before this call returns LEASE_WAITING. want_lease false: none is
 * granted, neither now (LEASE_TAKEN where there is none) nor to the waiter. token and deadline_ms are written where a
 * lease is granted; NULL is fine where want_lease is false. Costs one dot product per lease of the group where no hash
 * agrees. */
enum lease_answer lease_ask(struct lease_table *table, const struct lease_question *question, bool want_lease,
                            struct lease_waiter *waiter, uint64_t wait_ms, char token[LEASE_TOKEN_BYTES],
                            uint64_t *deadline_ms);
/* A waiter leaves (its client is gone). True: it will not be woken. False: it was, or is being; if with LEASE_LEAD, its
 * token is in force and wants lease_fail. */
bool lease_cancel(struct lease_table *table, struct lease_waiter *waiter);

enum lease_state {
    LEASE_VALID,  /* in flight, before its deadline */
    LEASE_DEAD,   /* it was one of this cache's: over, failed, past its deadline, or granted before a restart */
    LEASE_UNKNOWN /* not a token of this cache */
};
/* What a token is; any bytes will do. *epoch and *granted_ms (NULL: not asked for) for VALID and DEAD. */
enum lease_state lease_look(struct lease_table *table, struct quire_bytes token, uint64_t now_ms, uint64_t *epoch,
                            uint64_t *granted_ms);
/* The stale entry that the answer of a lease in flight replaces (lease_question.refreshes); 0: none. */
uint64_t lease_refreshes(struct lease_table *table, struct quire_bytes token);
/* The answer was stored (or refused for good: then who waits gets a miss): ends the lease and wakes its waiters with
 * LEASE_READY. No effect on a token whose lease is not in flight; past its deadline but not yet handed over is. Returns
 * how many were woken. */
uint32_t lease_done(struct lease_table *table, struct quire_bytes token);
/* The same by question, for an answer that came without a token. No hash, no effect. */
uint32_t lease_done_exact(struct lease_table *table, uint64_t group, struct hash128 exact);
/* The leader gave up: the next waiter leads. *led: whether there was one. The state before; no effect unless
 * LEASE_VALID. */
enum lease_state lease_fail(struct lease_table *table, struct quire_bytes token, uint64_t now_ms, bool *led);
/* A lease in flight, before its deadline, gets a later one: ms from now (0: as long as it was granted for, which is
 * also the most), never an earlier one. *left_ms: until it ends. The state before; no effect unless LEASE_VALID. */
enum lease_state lease_renew(struct lease_table *table, struct quire_bytes token, uint64_t now_ms, uint64_t ms,
                             uint64_t *left_ms);
/* Deadlines of leases and waiters. Returns ms until the next one, UINT64_MAX where there is none. Cheap when nothing is
 * due. */
uint64_t lease_tick(struct lease_table *table, uint64_t now_ms);

/* Every term of a lease ends once: granted + handed_over = in_flight + done + failed + expired. */
struct lease_stats {
    uint64_t in_flight, waiting;       /* now */
    uint64_t granted, handed_over;     /* terms begun: by lease_ask, by a waiter */
    uint64_t done, failed, expired;    /* terms ended */
    uint64_t woken, timeouts, refused; /* waiters woken with LEASE_READY, with LEASE_TIMEOUT; LEASE_FULL */
};
void lease_get_stats(const struct lease_table *table, struct lease_stats *out);

#endif
