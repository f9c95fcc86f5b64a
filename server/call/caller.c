/* caller.c - replies of handlers, and what must hold when they are given. */
#include "server/call/caller.h"
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

void caller_done(struct pending *p)
{
    assert(p->deferred && !p->ready); /* one reply, once */
    p->caller->lane->host->done(p);
}
