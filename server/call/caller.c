/* caller.c - replies of handlers, and what must hold when they are given. */
#include "server/call/caller.h"
#include "server/process/config.h"
#include <assert.h>
#include <stdio.h>

void caller_error(struct caller *c, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    resp_error(caller_reply(c), "%s", text);
}

void *caller_defer(struct caller *c, size_t bytes, bool barrier)
{
    assert(bytes >= sizeof(struct pending));
    struct pending *p = c->lane->host->defer(c, bytes, barrier);
    assert(!p || (p->caller == c && !p->ready && p->barrier == barrier));
    return p;
}

bool caller_hold(struct pending *p, size_t bytes)
{
    assert(p->deferred && !p->ready);
    if (!resp_account_take(p->out.account, bytes))
        return false;
    p->held += bytes;
    return true;
}

void caller_let_go(struct pending *p, size_t bytes)
{
    assert(p->held >= bytes);
    p->held -= bytes;
    if (p->out.account)
        resp_account_add(p->out.account, -(int64_t)bytes);
}

uint64_t caller_reply_max(const struct caller *c, const char **setting)
{
    const struct config *config = c->lane->service->config;
    uint64_t most = config->bulk_max, clients = config_share(config->clients_max_bytes, config->maxmemory);
    *setting = "proto-max-bulk-len";
    if (config->output_buffer_max && config->output_buffer_max < most) {
        most = config->output_buffer_max;
        *setting = "client-output-buffer-limit";
    }
    if (clients && clients / 4 * 3 < most) { /* buffers grow by quarters */
        most = clients / 4 * 3;
        *setting = "maxmemory-clients";
    }
    return most;
}

void caller_done(struct pending *p)
{
    assert(p->deferred && !p->ready); /* one reply, once */
    p->caller->lane->host->done(p);
}
