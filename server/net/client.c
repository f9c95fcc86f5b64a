/*
 * client.c - what happens to the bytes of a connection.
 *
 * In: the engine hands over received bytes in its own buffer. Requests are parsed and run straight from there; only
 * what is incomplete is copied to `in`, so that an idle connection holds no buffer at all.
 *
 * Out: replies are collected in `out` while a batch of requests is worked on, and leave in one send; while that is on
 * its way (`send_buffer`) further replies collect in `out`. A reply that has to wait for the disk is a `struct pending`
 * in a list; as long as the list is not empty, replies that are ready join it, and its ready head moves to `out`.
 *
 * A reply to a write may have to wait until the journal has made it durable: `out` and `send_buffer` know the highest
 * LSN in them, and the buffer is not sent before its own is durable. What comes meanwhile collects in `out` and goes
 * with the next, so that one sync serves all that a client sent before it, and replies keep their order without further
 * thought.
 *
 * Ends: QUIT, protocol errors and shutdown drain: replies are sent, then our side is closed, and the other's bytes are
 * read and dropped until it closes too (a reset would throw away the reply in its receive buffer), at most a second. A
 * client whose end has been reached (EOF) still gets its replies: `printf ... | nc` works. Whatever goes wrong ends in
 * CLIENT_DEAD: both directions are shut down, which makes the kernel give the ops back; the struct is freed when it has
 * neither ops nor pending replies.
 *
 * Memory of a client is bounded (client_memory.c): requests beyond what may be pending, or whose replies nobody reads,
 * wait in `in`; when much waits there nothing more is received, and the rest waits in the sender's socket. So is its
 * time: requests that took TURN_US in one turn of the lane leave the rest to the next turn; and whoever had requests
 * that took long (HEAVY_US) stands in line for a while, with others like it, before each further one. Of that line a
 * turn runs TURN_US and at most one long request more, so that clients with short requests wait for one long request,
 * not for one of each client that has some.
 *
 * Nothing here recurses: commands that end within their start only mark the client; the lane works on marked clients
 * after the engine has delivered its completions.
 */
#include "server/net/client.h"
#include "io/journal.h"
#include "io/memory.h"
#include "server/call/key_values.h"
#include <assert.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    LINGER_MS = 1000,
    SILENT_MS = 500,
    HTTP_COMPLAIN_MS = 60000,
    DRAIN_MS = 30000, /* without progress, of a client that ends */
    KEEP_BUFFER_BYTES = 16384,
    TURN_US = 1000, /* that requests of those who send more than that take in a turn of the lane, together */
    HEAVY_US = 250,
    HEAVY_MS = 200,
    SEND_MAX = 1 << 18, /* bytes; the kernel copies them while nobody else is served */
    CLOCK_EVERY = 32,   /* requests between two looks at the clock */
    ARGUMENT_UNAUTHENTICATED = 16384,
    ARGS_UNAUTHENTICATED = 10,
    INLINE_MAX = 65536,
    MAPPED_BYTES = 65536
};

static void on_receive(struct io_op *op, int result, unsigned flags);
static void on_send(struct io_op *op, int result, unsigned flags);

static void rest(struct caller *caller)
{
    struct client *c = client_of(caller);
    if (c->resting)
        return;
    c->resting = true;
    c->next_resting = NULL;
    if (c->loop->resting)
        c->loop->last_resting->next_resting = c;
    else
        c->loop->resting = c;
    c->loop->last_resting = c;
    c->loop->n_resting++;
}

static void wake(struct client *c)
{
    for (struct client *next; c; c = next) {
        assert(c->resting);
        next = c->next_resting;
        c->resting = false;
        client_mark(c);
    }
}

/* In the order in which they began to rest, for TURN_US; the others go on resting. So what a turn takes is bounded
 * however many have much to do, by one long request more; who had nothing to rest from does not stand behind them. */
void client_wake_resting(struct loop *loop)
{
    unsigned n = loop->n_resting;
    uint64_t began_us = n > 0 ? clock_us() : 0;
    loop->n_rested = n;
    for (; n > 0; n--) {
        struct client *c = loop->resting;
        assert(c->resting && loop->n_resting > 0);
        loop->resting = c->next_resting;
        loop->n_resting--;
        c->resting = false;
        client_mark(c);
        loop->woken = c;
        client_work_on_all(loop);
        loop->woken = NULL;
        if (clock_us() - began_us >= TURN_US)
            return;
    }
}

static void on_slow_timer(struct io_op *op, int result, unsigned flags)
{
    struct loop *loop = op->owner;
    struct client *first = loop->slowed;
    (void)result;
    (void)flags;
    loop->slow_armed = false;
    loop->slowed = NULL;
    wake(first);
}

/* Whoever joins others waits for their timer. */
static void slow(struct caller *caller, uint32_t us)
{
    struct client *c = client_of(caller);
    struct loop *loop = c->loop;
    if (c->resting)
        return;
    c->resting = true;
    c->next_resting = loop->slowed;
    loop->slowed = c;
    if (loop->slow_armed)
        return;
    loop->slow_armed = true;
    loop->slow_timer = (struct io_op){.kind = IO_TIMER, .timeout_us = us, .done = on_slow_timer, .owner = loop};
    engine_queue(loop->lane.engine, &loop->slow_timer);
}

void client_mark(struct client *c)
{
    if (c->dirty)
        return;
    c->dirty = true;
    c->next_dirty = c->loop->dirty;
    c->loop->dirty = c;
}

/* ---- waiting for the journal ------------------------------------------------------------------------------------- */

static bool is_durable(const struct client *c, uint64_t lsn)
{
    const struct journal *journal = c->loop->server->service.journal;
    return lsn == 0 || !journal || journal_durable_lsn(journal) >= lsn;
}

static void leave_held(struct client *c)
{
    struct loop *loop = c->loop;
    if (!c->held)
        return;
    if (c->prev_held)
        c->prev_held->next_held = c->next_held;
    else
        loop->held = c->next_held;
    if (c->next_held)
        c->next_held->prev_held = c->prev_held;
    c->held = false;
    c->next_held = c->prev_held = NULL;
    if (!loop->held)
        atomic_store(&loop->holds_replies, false);
}

/* Whether the send buffer has to wait for its LSN. */
static bool send_buffer_waits(struct client *c)
{
    if (!c->held && is_durable(c, c->send_buffer_lsn))
        return false;
    struct loop *loop = c->loop;
    if (!c->held) {
        c->held = true;
        c->next_held = loop->held;
        if (c->next_held)
            c->next_held->prev_held = c;
        loop->held = c;
        atomic_store(&loop->holds_replies, true);
    }
    /* looked at again behind the note that somebody waits (holds_replies): the journal notes what is durable, then
     * looks for who waits; all four are sequentially consistent, so that one of the two sees the other */
    if (is_durable(c, c->send_buffer_lsn))
        leave_held(c);
    return c->held;
}

void client_send_durable(struct loop *loop)
{
    for (struct client *c = loop->held, *next; c; c = next) {
        next = c->next_held;
        if (is_durable(c, c->send_buffer_lsn))
            client_mark(c);
    }
}

static void wait_lsn(struct caller *caller, uint64_t lsn)
{
    struct client *c = client_of(caller);
    if (c->group)
        return; /* EXEC waits for its frame */
    uint64_t *waits = c->last ? &c->last->lsn : &c->out_lsn;
    *waits = lsn > *waits ? lsn : *waits;
}

/* ---- create and destroy ------------------------------------------------------------------------------------------ */

struct client *client_create(struct loop *loop, int fd, bool tls)
{
    struct client *c = calloc(1, sizeof *c);
    if (c) {
        c->loop = loop;
        c->caller.lane = &loop->lane;
        client_memory_begin(c);
        if (tls && !client_tls_begin(c)) {
            free(c);
            c = NULL;
        }
    }
    if (!c) {
        close(fd);
        atomic_fetch_sub(&loop->n_clients, 1);
        return NULL;
    }
    c->fd = fd;
    c->caller.protocol = 2;
    client_acl_begin(c);
    c->caller.id = atomic_fetch_add(&loop->server->next_client_id, 1);
    c->created_ms = c->last_ms = c->unauthenticated_ms = loop->lane.now_ms;
    c->row = ROW_NONE;
    c->need = 1;
    c->next = loop->clients;
    if (c->next)
        c->next->prev = c;
    loop->clients = c;
    c->recv = (struct io_op){.kind = IO_RECV, .fd = fd, .done = on_receive, .owner = c};
    c->send = (struct io_op){.kind = IO_SEND, .fd = fd, .done = on_send, .owner = c};
    c->receiving = true;
    engine_queue(loop->lane.engine, &c->recv);
    lane_stat_add(&loop->lane.stats.connections, 1);
    return c;
}

/* In no list but that of all, nothing of it is the engine's, and no reply is owed any more. */
static void destroy(struct client *c)
{
    struct loop *loop = c->loop;
    assert(c->state == CLIENT_DEAD && !c->dirty && !c->resting);
    assert(!c->receiving && !c->sending && !c->cancelling);
    assert(!c->first && !c->last && c->n_pending == 0 && !c->group);
    if (c->prev)
        c->prev->next = c->next;
    else
        loop->clients = c->next;
    if (c->next)
        c->next->prev = c->prev;
    leave_held(c);
    client_set_monitor(c, false);
    close(c->fd);
    resp_buffer_fini(&c->out);
    resp_buffer_fini(&c->send_buffer);
    resp_buffer_fini(&c->in);
    free(c->name);
    free(c->library);
    free(c->library_version);
    key_values_forget(&c->caller);
    loop->server->dispatcher->forget_client(c);
    acl_user_release(c->user);
    client_tls_end(c);
    assert(client_memory_bytes(c) == 0);
    free(c);
    atomic_fetch_sub(&loop->n_clients, 1);
}

/* States only go forward, and only a client that has drained lingers. */
static void set_state(struct client *c, enum client_state state)
{
    assert(state > c->state);
    assert(state != CLIENT_LINGERING || c->state == CLIENT_DRAINING);
    c->state = state;
}

static void leave(struct client *c)
{
    if (!c->caller.leaving)
        c->caller.left_ms = c->loop->lane.now_ms;
    c->caller.leaving = true;
}

void client_end(struct client *c)
{
    if (c->state == CLIENT_OPEN)
        set_state(c, CLIENT_DRAINING);
    leave(c);
    c->deadline_ms = c->loop->lane.now_ms + DRAIN_MS;
    client_mark(c);
}

static void on_cancel(struct io_op *op, int result, unsigned flags)
{
    struct client *c = op->owner;
    (void)result;
    (void)flags;
    assert(c->cancelling && (c->pausing || c->state == CLIENT_DEAD));
    c->cancelling = false;
    client_mark(c);
}

static void cancel_receive(struct client *c)
{
    assert(c->receiving && !c->cancelling);
    c->cancelling = true;
    c->cancel = (struct io_op){.kind = IO_CANCEL, .target = &c->recv, .done = on_cancel, .owner = c};
    engine_queue(c->loop->lane.engine, &c->cancel);
}

void client_kill(struct client *c)
{
    if (c->state != CLIENT_DEAD) {
        shutdown(c->fd, SHUT_RDWR);
        set_state(c, CLIENT_DEAD);
        /* bytes that come at this moment may hide the shutdown from the receive (engine.h) */
        if (c->receiving && !c->cancelling)
            cancel_receive(c);
    }
    leave(c);
    c->caller.gone = true;
    client_mark(c);
}

void client_abort(struct client *c)
{
    /* With a mere FIN a peer whose window we closed would go on probing it until our FIN-WAIT-2 ends, a minute
     * later. */
    struct linger reset = {.l_onoff = 1, .l_linger = 0};
    setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    client_kill(c);
}

void client_refuse_http(struct client *c)
{
    struct loop *loop = c->loop;
    char address[CLIENT_ADDRESS_BYTES];
    lane_stat_add(&loop->lane.stats.closed_http, 1);
    if (loop->lane.now_ms - loop->last_http_ms >= HTTP_COMPLAIN_MS || loop->last_http_ms == 0) {
        loop->last_http_ms = loop->lane.now_ms;
        client_address(c, false, address);
        log_line(loop->server->service.log, LOG_LEVEL_WARNING,
                 "client %llu (%s) sent POST or Host:, as a web page would that tries to command this server: closed",
                 (unsigned long long)c->caller.id, address);
    }
    client_kill(c);
}

void client_set_monitor(struct client *c, bool on)
{
    if (c->monitor == on)
        return;
    c->monitor = on;
    atomic_fetch_add(&c->loop->n_monitors, on ? 1u : -1u);
    atomic_fetch_add(&c->loop->server->n_monitors, on ? 1u : -1u);
}

void client_push(struct client *c, const void *bytes, size_t n)
{
    if (c->state != CLIENT_OPEN || c->reply_off)
        return;
    resp_raw(&c->out, bytes, n);
    client_mark(c);
}

/* ---- replies ----------------------------------------------------------------------------------------------------- */

static void add_pending(struct client *c, struct pending *p)
{
    assert(!c->first == !c->last && !c->first == (c->n_pending == 0));
    assert(p->ready != p->deferred && p->out.bytes == 0 && p->out.account == &c->replies);
    p->caller = &c->caller;
    p->out.protocol = c->caller.protocol;
    p->row = c->row;
    p->muted = c->muted && !c->group;
    p->next = NULL;
    p->group = c->group;
    if (c->group) {
        *(c->group->last ? &c->group->last->next : &c->group->first) = p;
        c->group->last = p;
        return;
    }
    if (c->last)
        c->last->next = p;
    else
        c->first = p;
    c->last = p;
    c->n_pending++;
}

/* NULL without memory, or where the client may take no more. What a reply takes before it is there counts as one: who
 * has many such replies to come is run no further. Large ones (VMSIM with many queries) are mapped, as large buffers
 * are: they go back to the system at once. */
static struct pending *make_pending(struct client *c, size_t bytes)
{
    if (!resp_account_take(&c->replies, bytes))
        return NULL;
    struct pending *p = bytes >= MAPPED_BYTES ? memory_map(bytes, 0) : calloc(1, bytes);
    if (p) {
        p->bytes = bytes;
        p->out.account = &c->replies;
    } else {
        resp_account_add(&c->replies, -(int64_t)bytes);
    }
    return p;
}

static void free_pending(struct client *c, struct pending *p)
{
    resp_account_add(&c->replies, -(int64_t)(p->bytes + p->held));
    free(p->slow);
    if (p->bytes >= MAPPED_BYTES)
        memory_unmap(p, p->bytes);
    else
        free(p);
}

struct resp_buffer *client_reply(struct client *c)
{
    client_mark(c);
    c->out.protocol = c->caller.protocol;
    if (c->muted && !c->group) {
        c->loop->discard.protocol = c->caller.protocol;
        return &c->loop->discard;
    }
    if (!c->first && !c->group)
        return &c->out;
    if (c->group && c->group->last && !c->group->last->deferred) {
        struct resp_buffer *last = &c->group->last->out;
        last->protocol = c->caller.protocol;
        return last;
    }
    struct pending *p = make_pending(c, sizeof *p);
    if (!p) {
        /* without the place in line the order would be lost */
        client_kill(c);
        return &c->out;
    }
    p->ready = true;
    add_pending(c, p);
    return &p->out;
}

static void *defer(struct caller *caller, size_t bytes, bool barrier)
{
    struct client *c = client_of(caller);
    struct pending *p = make_pending(c, bytes);
    assert(c->group || !c->blocked); /* behind a barrier nothing runs but what EXEC runs */
    if (!p) {
        client_kill(c);
        return NULL;
    }
    p->barrier = barrier;
    p->deferred = true;
    p->started_us = clock_us();
    c->loop->server->dispatcher->deferred(c, p);
    if (c->group)
        c->group->n_waiting++;
    else
        c->blocked |= barrier;
    add_pending(c, p);
    return p;
}

void client_group_done(struct reply_group *group)
{
    assert(group->n_waiting > 0 && group->done);
    if (--group->n_waiting == 0)
        group->done(group);
}

void client_group_take(struct client *c, struct reply_group *group, struct resp_buffer *out)
{
    for (struct pending *p = group->first, *next; p; p = next) {
        next = p->next;
        assert(p->ready && p->group == group && p->caller == &c->caller);
        resp_take(out, &p->out);
        free_pending(c, p);
    }
    group->first = group->last = NULL;
}

static void done(struct pending *p)
{
    struct client *c = client_of(p->caller);
    assert(p->group ? p->group->n_waiting > 0 : c->n_pending > 0);
    assert(c->blocked || !p->barrier || p->group);
    c->loop->server->dispatcher->ended(c, p);
    if (p->muted || c->state == CLIENT_DEAD)
        resp_buffer_fini(&p->out);
    p->ready = true;
    c->deadline_ms = c->loop->lane.now_ms + DRAIN_MS; /* meant for those that end; others do not look at it */
    if (p->barrier && !p->group)
        c->blocked = false;
    client_mark(c);
    if (p->group)
        client_group_done(p->group);
}

/* Moves replies that are ready and first in line to `out`. */
static void flush_pending(struct client *c)
{
    struct pending *p;
    while ((p = c->first) && p->ready) {
        assert(c->n_pending > 0 && !p->group);
        c->first = p->next;
        if (!c->first)
            c->last = NULL;
        c->n_pending--;
        c->out_lsn = p->lsn > c->out_lsn ? p->lsn : c->out_lsn;
        resp_take(&c->out, &p->out);
        free_pending(c, p);
    }
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

static bool takes_requests(const struct client *c)
{
    return c->state == CLIENT_OPEN && !c->blocked && !c->paused && !c->resting && c->n_pending < PENDING_MAX &&
           client_has_room(c) && !c->loop->backlogged && !c->caller.backlogged_by && !key_values_wait(&c->caller);
}

/* What a client that has not authenticated may send is little, as in Redis. */
static struct resp_limits limits_of(const struct client *c)
{
    return (struct resp_limits){
        .bulk_bytes_max = c->authenticated ? c->loop->server->service.config->bulk_max : ARGUMENT_UNAUTHENTICATED,
        .args_max = c->authenticated ? ARGS_MAX : ARGS_UNAUTHENTICATED,
        .inline_bytes_max = INLINE_MAX,
    };
}

/* What the requests of one client may take in a turn: those that had more to do in the last one share. */
static uint64_t turn_budget_us(const struct loop *loop)
{
    return TURN_US / (1 + loop->n_rested);
}

/* Notes how long its requests took, now or later. */
static void spent(struct caller *caller, uint64_t us)
{
    struct client *c = client_of(caller);
    const struct lane *lane = &c->loop->lane;
    c->turn_us = us + (c->turn == lane->turn ? c->turn_us : 0);
    c->turn = lane->turn;
    if (c->turn_us >= HEAVY_US)
        c->heavy_until_ms = lane->now_ms + HEAVY_MS;
}

/* One that has had its time goes on in the next turn. */
static void count_time(struct client *c, uint64_t us)
{
    spent(&c->caller, us);
    if (c->turn_us >= turn_budget_us(c->loop))
        rest(&c->caller);
}

/* Whether its requests may be run now. Where they may not for what they took lately, it is in line afterwards. */
static bool has_turn(struct client *c)
{
    if (c->heavy_until_ms > c->loop->lane.now_ms && c->loop->woken != c)
        rest(&c->caller);
    return takes_requests(c);
}

/* Parses and runs what is whole in bytes; returns how many were used. */
static size_t consume(struct client *c, const uint8_t *bytes, size_t n)
{
    struct loop *loop = c->loop;
    size_t at = 0;
    assert(!c->group && !c->muted && !loop->args); /* no request is being run */
    c->need = 1;
    c->wants_line = false;
    bool was_shut = loop->lane.shut, inside = lane_try_enter(&loop->lane);
    loop->lane.shut = was_shut || !inside;
    loop->server->dispatcher->begin(loop);
    uint64_t began_us = loop->stamp_us;
    for (unsigned n_run = 1; at < n && takes_requests(c); n_run++) {
        size_t used = 0, need = 1;
        char message[128];
        const struct resp_limits limits = limits_of(c);
        enum resp_status status = resp_parse(bytes + at, n - at, &limits, &loop->request, &used, &need, message);
        if (status == RESP_MORE) {
            c->need = need;
            c->wants_line = loop->request.wants_line;
            c->line_at = loop->request.line_at;
            break;
        }
        if (status == RESP_BROKEN) {
            resp_error(client_reply(c), "%s", message);
            lane_stat_add(&loop->lane.stats.closed_protocol, 1);
            client_end(c);
            at = n;
            break;
        }
        if (loop->request.n_args > 0 &&
            loop->server->dispatcher->must_wait(c, loop->request.args, loop->request.n_args)) {
            c->paused = loop->pausing = true;
            loop->shut_out |= loop->lane.shut;
            break;
        }
        at += used;
        assert(used > 0 && at <= n);
        if (loop->request.n_args > 0)
            loop->server->dispatcher->run(c, loop->request.args, loop->request.n_args);
        if (c->caller.again) {
            at -= used;
            c->caller.again = false;
            if (!key_values_wait(&c->caller))
                rest(&c->caller);
            break;
        }
        if (c->caller.values)
            key_values_forget(&c->caller);
        /* those that may take long are timed each; of others one that took long has looked at the clock itself */
        bool look = n_run % CLOCK_EVERY == 0 || (c->row != ROW_NONE && !(commands[c->row].flags & CMD_FAST));
        if ((look ? clock_us() : loop->stamp_us) - began_us >= turn_budget_us(loop))
            rest(&c->caller);
    }
    loop->server->dispatcher->end(loop);
    count_time(c, loop->stamp_us - began_us);
    loop->lane.shut = was_shut;
    if (inside)
        lane_leave(&loop->lane);
    return at;
}

/* Adds bytes to `in`. What was worked on is dropped only when that makes room for at least as much as must be moved. */
static bool keep(struct client *c, const uint8_t *bytes, size_t n)
{
    size_t have = client_backlog_bytes(c);
    if (c->in.bytes + n > c->in.capacity && c->in_start >= have) {
        if (have > 0)
            memmove(c->in.data, c->in.data + c->in_start, have);
        c->in_start = 0;
        c->in.bytes = have;
    }
    resp_raw(&c->in, bytes, n);
    if (c->in.failed)
        c->in_start = 0;
    return !c->in.failed;
}

/* Whether what has come may hold another request. Where only the end of a line is missing, the arguments before it are
 * not parsed again with each byte. */
static bool has_more_than_before(struct client *c)
{
    size_t have = client_backlog_bytes(c);
    if (have == 0 || have < c->need)
        return false;
    const uint8_t *bytes = c->in.data + c->in_start;
    if (!c->wants_line || have > c->line_at + INLINE_MAX || memchr(bytes + c->line_at, '\n', have - c->line_at))
        return true;
    c->need = have + 1;
    return false;
}

/* Runs requests out of `in`. */
static void consume_kept(struct client *c)
{
    assert(c->in_start <= c->in.bytes && c->in.bytes <= c->in.capacity);
    if (!takes_requests(c) || !has_more_than_before(c) || !has_turn(c))
        return;
    c->in_start += consume(c, c->in.data + c->in_start, client_backlog_bytes(c));
    if (c->in_start < c->in.bytes)
        return;
    c->in_start = c->in.bytes = 0;
    if (c->in.capacity > KEEP_BUFFER_BYTES)
        resp_buffer_fini(&c->in);
}

void client_take_bytes(struct client *c, const uint8_t *bytes, size_t n)
{
    const struct loop *loop = c->loop;
    size_t used = 0;
    assert(c->state == CLIENT_OPEN && n > 0);
    if (client_backlog_bytes(c) == 0 && has_turn(c))
        used = consume(c, bytes, n);
    if (c->state != CLIENT_OPEN || used == n)
        return;
    if (!keep(c, bytes + used, n - used)) {
        if (c->excess == EXCESS_NONE) {
            log_line(loop->server->service.log, LOG_LEVEL_WARNING, "no memory for the request of client %llu: closed",
                     (unsigned long long)c->caller.id);
            client_kill(c);
        }
        client_mark(c);
        return;
    }
    uint64_t most = client_query_max(c);
    if (client_backlog_bytes(c) > most) {
        log_line(loop->server->service.log, LOG_LEVEL_WARNING,
                 "client %llu sent more than %s (%llu bytes) ahead: closed", (unsigned long long)c->caller.id,
                 c->authenticated ? "client-query-buffer-limit" : "clients may before they authenticate",
                 (unsigned long long)most);
        lane_stat_add(&c->loop->lane.stats.closed_query_limit, 1);
        client_abort(c);
    } else if (used == 0) {
        consume_kept(c);
    }
    if (client_backlog_bytes(c) > client_backlog_max(c))
        client_mark(c); /* to be paused */
}

/* Receives no more while requests wait in memory, and again when they have been worked on: the rest waits in the
 * sender. */
static void pause_or_resume(struct client *c)
{
    size_t backlog = client_backlog_bytes(c), most = client_backlog_max(c);
    if (c->receiving && !c->pausing && !c->cancelling && c->state == CLIENT_OPEN && backlog > most &&
        backlog >= c->need) {
        c->pausing = true;
        cancel_receive(c);
    } else if (c->pausing && !c->receiving && !c->cancelling && c->state != CLIENT_DEAD &&
               (backlog <= most / 2 || backlog < c->need)) {
        c->pausing = false;
        c->receiving = true;
        engine_queue(c->loop->lane.engine, &c->recv);
    }
}

void client_set_eof(struct client *c)
{
    leave(c);
    c->eof = true;
    c->deadline_ms = c->loop->lane.now_ms + DRAIN_MS;
    client_mark(c);
}

static void on_receive(struct io_op *op, int result, unsigned flags)
{
    struct client *c = op->owner;
    assert(c->receiving);
    if (!(flags & IO_MORE))
        c->receiving = false;
    if (result == QUIRE_ECANCELLED && c->pausing && c->state != CLIENT_DEAD) {
        client_mark(c);
        return;
    }
    if (result > 0) {
        lane_stat_add(&c->loop->lane.stats.net_input_bytes, (uint64_t)result);
        c->loop->window_receives++;
        c->last_ms = c->loop->lane.now_ms;
        if (c->state == CLIENT_OPEN && c->tls)
            client_tls_received(c, op->buffer, (size_t)result);
        else if (c->state == CLIENT_OPEN)
            client_take_bytes(c, op->buffer, (size_t)result);
        return;
    }
    if (result < 0 || c->state == CLIENT_LINGERING) {
        client_kill(c);
        return;
    }
    client_set_eof(c);
}

/* ---- sending, and the end ---------------------------------------------------------------------------------------- */

static void on_send(struct io_op *op, int result, unsigned flags)
{
    struct client *c = op->owner;
    (void)flags;
    assert(c->sending && !c->held && result <= (int)op->bytes);
    c->sending = false;
    if (result < 0) {
        client_kill(c);
        return;
    }
    lane_stat_add(&c->loop->lane.stats.net_output_bytes, (uint64_t)result);
    c->last_ms = c->loop->lane.now_ms;
    c->send_buffer_sent += (size_t)result;
    c->window_sent += (size_t)result;
    c->deadline_ms = c->loop->lane.now_ms + (c->state == CLIENT_LINGERING ? LINGER_MS : DRAIN_MS);
    client_mark(c);
}

static void send_replies(struct client *c)
{
    if (c->sending || c->state == CLIENT_DEAD || c->state == CLIENT_LINGERING)
        return;
    if (c->send_buffer_sent == c->send_buffer.bytes && c->tls) {
        client_tls_next_send_buffer(c);
    } else if (c->send_buffer_sent == c->send_buffer.bytes) {
        /* what was sent is exchanged for what is to be sent */
        struct resp_buffer sent = c->send_buffer;
        if (sent.capacity > KEEP_BUFFER_BYTES)
            resp_buffer_fini(&sent);
        sent.bytes = 0;
        c->send_buffer = c->out;
        c->send_buffer_sent = 0;
        c->send_buffer_lsn = c->out_lsn;
        c->out_lsn = 0;
        c->out = sent;
    }
    size_t left = c->send_buffer.bytes - c->send_buffer_sent;
    if (left == 0 || c->state == CLIENT_DEAD || send_buffer_waits(c))
        return;
    assert(!c->held);
    c->send.buffer = c->send_buffer.data + c->send_buffer_sent;
    c->send.bytes = left > SEND_MAX ? SEND_MAX : (uint32_t)left;
    c->sending = true;
    engine_queue(c->loop->lane.engine, &c->send);
}

/* Closes a client that holds more than it may. */
static void check_memory(struct client *c)
{
    const struct server *server = c->loop->server;
    const struct config *config = server->service.config;
    size_t unsent = client_unsent_bytes(c), ready = c->out.bytes + c->send_buffer.bytes - c->send_buffer_sent;
    uint64_t most = c->authenticated ? config->output_buffer_max : config->unauthenticated_output_max;
    if (unsent > lane_stat_get(&c->loop->lane.stats.output_bytes_peak))
        lane_stat_set(&c->loop->lane.stats.output_bytes_peak, unsent);
    if (c->state == CLIENT_DEAD ||
        (ready + c->plain.bytes - c->plain_sent <= most && c->excess == EXCESS_NONE && !c->out.failed))
        return;
    if (c->excess == EXCESS_ALL_CLIENTS) {
        log_line(server->service.log, LOG_LEVEL_WARNING,
                 "client %llu closed: requests and replies of all clients take more than maxmemory-clients (%llu "
                 "bytes), and its own are the largest (%llu bytes)",
                 (unsigned long long)c->caller.id, (unsigned long long)client_memory_max(server),
                 (unsigned long long)client_memory_bytes(c));
        lane_stat_add(&c->loop->lane.stats.evicted_clients, 1);
    } else {
        log_line(server->service.log, LOG_LEVEL_WARNING,
                 "client %llu does not read its replies: more than %s (%llu bytes): closed",
                 (unsigned long long)c->caller.id,
                 c->authenticated ? "client-output-buffer-limit" : "unauthenticated-output-limit",
                 (unsigned long long)most);
        lane_stat_add(&c->loop->lane.stats.closed_output_limit, 1);
    }
    client_abort(c);
}

/* Moves a client that drains on, when all its replies are out. */
static void step_end(struct client *c)
{
    bool idle = !c->sending && !c->first && client_unsent_bytes(c) == 0;
    if (c->state == CLIENT_OPEN && c->eof && !c->blocked && client_backlog_bytes(c) == 0)
        set_state(c, CLIENT_DRAINING);
    /* an incomplete request will never be completed */
    if (c->state == CLIENT_OPEN && c->eof && idle && client_backlog_bytes(c) < c->need)
        set_state(c, CLIENT_DRAINING);
    if (c->state != CLIENT_DRAINING || !idle || !client_tls_said_goodbye(c))
        return;
    if (c->eof) {
        client_kill(c);
        return;
    }
    set_state(c, CLIENT_LINGERING);
    c->deadline_ms = c->loop->lane.now_ms + LINGER_MS;
    shutdown(c->fd, SHUT_WR);
}

bool client_is_late(const struct client *c)
{
    uint64_t now = c->loop->lane.now_ms;
    bool working =
        c->first ||
        ((c->loop->backlogged || c->caller.backlogged_by || c->paused || c->resting || key_values_wait(&c->caller)) &&
         client_backlog_bytes(c) > 0);
    return (c->eof || c->state == CLIENT_LINGERING || c->state == CLIENT_DRAINING) && !working && now >= c->deadline_ms;
}

bool client_peer_is_gone(struct client *c)
{
    struct pollfd look = {.fd = c->fd, .events = POLLRDHUP};
    uint64_t now = c->loop->lane.now_ms;
    bool deaf = c->eof || (c->pausing && !c->receiving);
    /* a reset may hide behind the last bytes (engine.h): once after each time that something came */
    bool fell_silent = c->receiving && c->looked_ms < c->last_ms && now - c->last_ms >= SILENT_MS;
    if (fell_silent)
        c->looked_ms = now;
    if (!(deaf || fell_silent) || c->state == CLIENT_DEAD || c->sending || poll(&look, 1, 0) != 1)
        return false;
    if (look.revents & POLLRDHUP)
        leave(c);
    return look.revents & (POLLERR | POLLHUP);
}

static void work_on(struct client *c)
{
    assert(c->dirty);
    c->dirty = false;
    flush_pending(c);
    consume_kept(c);
    flush_pending(c);
    check_memory(c);
    if (c->state == CLIENT_DEAD)
        client_memory_drop(c);
    send_replies(c);
    pause_or_resume(c);
    step_end(c);
    if (c->state == CLIENT_DEAD && !c->receiving && !c->sending && !c->cancelling && !c->first) {
        if (!c->dirty && !c->resting) {
            destroy(c);
            return;
        }
    }
    /* a request that became ready by flushing: PENDING_MAX or a barrier stood in its way */
    if (c->state == CLIENT_OPEN && client_backlog_bytes(c) >= c->need && client_backlog_bytes(c) > 0 &&
        takes_requests(c))
        client_mark(c);
}

void client_work_on_all(struct loop *loop)
{
    struct client *c;
    while ((c = loop->dirty)) {
        loop->dirty = c->next_dirty;
        work_on(c);
    }
}

/* ---- for handlers ------------------------------------------------------------------------------------------------ */

static struct resp_buffer *reply(struct caller *caller)
{
    return client_reply(client_of(caller));
}

static struct resp_arg tenant(const struct caller *caller, uint32_t i)
{
    const struct client *c = (const struct client *)(const void *)caller;
    assert(i < c->user->tenants.n);
    const struct acl_text *name = &c->user->tenants.items[i];
    return (struct resp_arg){(const uint8_t *)name->data, (uint32_t)name->bytes};
}

static bool may_read(const struct caller *caller, struct resp_arg key)
{
    const struct client *c = (const struct client *)(const void *)caller;
    return acl_user_may_read(c->user, key);
}

static void release(struct lane *lane, const struct fair_share *share)
{
    for (struct client *c = loop_of(lane)->clients; c; c = c->next) {
        if (c->caller.backlogged_by != share)
            continue;
        c->caller.backlogged_by = NULL;
        client_mark(c);
    }
}

static void resume(struct caller *caller)
{
    client_mark(client_of(caller));
}

const struct host client_host = {.reply = reply,
                                 .defer = defer,
                                 .done = done,
                                 .wait_lsn = wait_lsn,
                                 .rest = rest,
                                 .slow = slow,
                                 .spent = spent,
                                 .tenant = tenant,
                                 .may_read = may_read,
                                 .release = release,
                                 .resume = resume,
                                 .post = loop_post};
