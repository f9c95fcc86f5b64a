/* worker_call.c - from a lane to the worker and back, by one job and one message that the command keeps. */
#include "server/call/worker_call.h"
#include <assert.h>
#include <stddef.h>

static void reply_worker_call(struct lane *lane, struct message *message)
{
    struct worker_call *call = (struct worker_call *)(void *)((char *)message - offsetof(struct worker_call, message));
    struct resp_buffer *out = &call->base.pending.out;
    (void)lane;
    if (call->done) {
        call->done(call);
        return;
    }
    if (call->code < 0)
        resp_quire_error(out, &call->error);
    else if (call->reply)
        call->reply(call, out);
    else
        resp_simple(out, "OK");
    call->base.pending.lsn = call->lsn;
    deferred_end(&call->base);
}

static void run_worker_call(struct job *job)
{
    struct worker_call *call = (struct worker_call *)(void *)((char *)job - offsetof(struct worker_call, job));
    call->work(call);
    call->message.run = reply_worker_call;
    lane_post(call->base.lane, &call->message);
}

void worker_call_start(struct worker_call *call)
{
    assert(call->work && call->base.pending.deferred && !call->base.pending.ready);
    call->job.run = run_worker_call;
    worker_post(&call->base.lane->service->worker, &call->job);
}
