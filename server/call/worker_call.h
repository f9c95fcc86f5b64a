/* worker_call.h - a command that blocks: its work runs on the worker's thread, then its reply is built on the lane. */
#ifndef QUIRE_SERVER_WORKER_CALL_H
#define QUIRE_SERVER_WORKER_CALL_H

#include "server/call/deferred.h"

struct worker_call {
    struct deferred base; /* first */
    struct message message;
    struct job job;
    void (*work)(struct worker_call *call);                           /* sets code and error */
    void (*reply)(struct worker_call *call, struct resp_buffer *out); /* where code is 0; NULL: OK */
    void (*done)(struct worker_call *call); /* in its place, whatever the code: replies and ends the call; or NULL */
    int code;
    struct quire_error error;
    uint64_t lsn; /* what the reply waits for; 0: nothing */
};
void worker_call_start(struct worker_call *call);

#endif
