/*
 * caller.h - who asks: what a handler may know of the other side, and how it answers. No socket.
 *
 * A command gives exactly one reply per request: at once (caller_reply) or later (caller_defer, caller_done). Where
 * replies go, how long they wait and what a deferred one holds back is the business of the host: the network's clients
 * (server/net), or whoever else runs the same commands. A host embeds struct caller in what it keeps of the other side
 * and gives each lane its functions (struct host); README.md says what it has to provide.
 *
 * All belongs to the lane's thread.
 */
#ifndef QUIRE_SERVER_CALLER_H
#define QUIRE_SERVER_CALLER_H

#include "server/call/lane.h"
#include "server/protocol/arg.h"

struct caller_values;
struct fair_share;
struct reply_group;
struct slow_args;
struct vector_plan;

struct caller {
    struct lane *lane;
    uint64_t id;
    int protocol;     /* of its replies: 2 or 3 */
    const char *user; /* the name of its user; the host's, until its next request */
    uint32_t user_bytes;
    uint32_t n_tenants;  /* that its user is bound to; 0: to none */
    const char *command; /* the name of the command being run, in lower case */
    bool reads_arrays;   /* its library takes no maps for replies of searches (FT.*), whatever the protocol */
    bool leaving;        /* sends no more and may not wait for replies */
    uint64_t left_ms;    /* since when, by the lane's clock */
    bool gone;           /* no reply reaches it any more */
    bool whole;          /* inside EXEC: what a command does on keys is done before it returns (slice.h) */
    uint64_t slice_turn; /* of the lane, in which it has written `slice` elements */
    unsigned slice;
    struct fair_share *backlogged_by; /* a tenant of it has so many searches waiting that no further request is taken */
    struct vector_plan *plan;         /* of the transaction whose commands are looked at or run */
    bool again;                       /* the request that was run gave no reply: it is run once more (key_values.h) */
    struct caller_values *values;     /* that its request has asked for; NULL: none; key_values.c */
};

/* A reply that is not there yet. First member of what a command keeps. */
struct pending {
    struct caller *caller;
    struct resp_buffer out;
    uint64_t lsn; /* it does not leave before this is durable */
    /* For SLOWLOG: what the command did, such as "pagegraph reads=12", while it still knows. May be NULL. */
    void (*describe)(const struct pending *p, char *text, size_t capacity);
    /* Nobody gets the reply any more: what it holds may go at once. Perhaps more than once. May be NULL. */
    void (*abandon)(struct pending *p);
    /* the host's */
    struct pending *next;
    unsigned row; /* of the command table */
    uint64_t started_us;
    bool ready, barrier, deferred;
    size_t bytes;              /* of memory that this is */
    size_t held;               /* beside it: caller_hold */
    struct reply_group *group; /* it is part of; NULL: it stands in the client's line */
    bool muted;                /* CLIENT REPLY: the reply is not sent */
    struct slow_args *slow;    /* what SLOWLOG would show; owned, NULL: nothing */
};

/* What a host does for callers and lanes. All but post: on the lane's thread. */
struct host {
    struct resp_buffer *(*reply)(struct caller *c);
    void *(*defer)(struct caller *c, size_t bytes, bool barrier);
    void (*done)(struct pending *p);
    void (*wait_lsn)(struct caller *c, uint64_t lsn);
    /* Its next request waits until the lane has looked at its other callers; until about so much time has passed. */
    void (*rest)(struct caller *c);
    void (*slow)(struct caller *c, uint32_t us);
    /* Its requests took so long outside of the handler's call. */
    void (*spent)(struct caller *c, uint64_t us);
    /* The name of one of the n_tenants that its user is bound to. */
    struct resp_arg (*tenant)(const struct caller *c, uint32_t i);
    /* Whether its user may read the key: for commands that list what has no key among their arguments. */
    bool (*may_read)(const struct caller *c, struct resp_arg key);
    /* Callers with backlogged_by == share go on: it is NULL afterwards. */
    void (*release)(struct lane *lane, const struct fair_share *share);
    /* What a request that is to run again has waited for is there. */
    void (*resume)(struct caller *c);
    /* From any thread: message->run is called once on the lane. */
    void (*post)(struct lane *lane, struct message *message);
    /* Another lane, for a search of FT.* that may take long, until search_ended, on that lane; NULL, the member or what
     * it answers: the caller's own. */
    struct lane *(*search_begins)(struct caller *c);
    void (*search_ended)(struct lane *lane);
};

/* args[0] is the command's name; a sub-command's name is args[1]. Gives exactly one reply: caller_reply, caller_error
 * or caller_defer; or none, and sets caller->again. Arguments are valid during the call only. */
typedef void command_fn(struct caller *c, const struct resp_arg *args, uint32_t n);

/* The buffer for the reply to the request being run. */
static inline struct resp_buffer *caller_reply(struct caller *c)
{
    return c->lane->host->reply(c);
}
/* An error reply: "ERR ...". */
void caller_error(struct caller *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A reply to come: `bytes` zeroed bytes that begin with struct pending, freed after the reply was handed on. With
 * barrier no request behind it starts before. NULL without memory: the caller is gone then. */
void *caller_defer(struct caller *c, size_t bytes, bool barrier);
/* Before memory is taken that the command keeps beside p: it counts as the caller's, as its replies do, until p is
 * done or it is let go. False: the caller may make the server hold no more, and will be closed; nothing is noted. */
bool caller_hold(struct pending *p, size_t bytes);
void caller_let_go(struct pending *p, size_t bytes);
/* The most memory for what is made whole, perhaps on another thread, before it is a reply: beyond it no reply could
 * hold it. *setting: which one says so. */
uint64_t caller_reply_max(const struct caller *c, const char **setting);
/* p->out holds the reply, which waits for p->lsn. p may be freed at once. */
void caller_done(struct pending *p);
/* The reply that was just written does not leave before the journal calls `lsn` durable; 0: nothing to wait for. */
static inline void caller_wait_lsn(struct caller *c, uint64_t lsn)
{
    c->lane->host->wait_lsn(c, lsn);
}
/* For commands that take long: its next request waits until the lane has looked at others. */
static inline void caller_rest(struct caller *c)
{
    c->lane->host->rest(c);
}
/* For replies that are built later, and long work in slices: who takes much of the lane's time stands back. */
static inline void caller_spent(struct caller *c, uint64_t us)
{
    c->lane->host->spent(c, us);
}
/* For writers where the store is behind: its next request waits. */
static inline void caller_slow(struct caller *c, uint32_t us)
{
    c->lane->host->slow(c, us);
}

#endif
