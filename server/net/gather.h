/*
 * gather.h - a command that needs every lane: each adds its part on its own thread, then the asking lane replies.
 *
 * CLIENT LIST, CLIENT KILL, SLOWLOG and CONFIG RESETSTAT are this: what a lane owns is touched by its thread only, so
 * the question travels to the lanes and the parts travel back. The client's further requests wait for the reply, which
 * makes "CONFIG RESETSTAT, INFO" in one pipeline mean what it says.
 */
#ifndef QUIRE_SERVER_GATHER_H
#define QUIRE_SERVER_GATHER_H

#include "server/net/client.h"

struct gather;
struct gather_part;
/* On each lane that still runs. It may read the gather's own fields and write to its part. */
typedef void gather_work(struct gather *gather, struct gather_part *part, struct loop *loop);
/* On the asking lane, when all parts are there. */
typedef void gather_finish(struct gather *gather);

struct gather_part {
    struct message message;
    struct gather *gather;
    struct resp_buffer out; /* bytes that finish reads; any bytes, a reply or not */
    uint64_t count;         /* a number that finish reads */
};

struct gather {
    struct pending pending; /* finish writes the reply to pending.out */
    struct loop *asker;
    struct message back;
    atomic_uint left;
    gather_work *work;
    gather_finish *finish;
    unsigned n_parts;
    struct gather_part *parts; /* in the lanes' order; of a lane that has ended: empty */
};

/* Takes the client's place in line: `bytes` zeroed bytes that begin with struct gather, freed after the reply was
 * handed on. NULL without memory: the client is closed then. */
void *gather_begin(struct client *c, size_t bytes, gather_work *work, gather_finish *finish);
/* Sends it to all lanes. The fields that work and finish read are set by now. */
void gather_start(struct gather *gather);
/* Both, for a question without fields of its own. */
void gather_ask(struct client *c, gather_work *work, gather_finish *finish);
/* A finish that replies OK. */
void gather_reply_ok(struct gather *gather);
/* The sum of the parts' counts. */
uint64_t gather_count(const struct gather *gather);

#endif
