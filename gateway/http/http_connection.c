/*
 * http_connection.c - one client's connection: what comes, what is sent, how long it may take, how it ends.
 *
 * Events of the socket are libevent's bufferevent (plain or TLS). What owners write is gathered in `out`, and the
 * server's flush event, which runs at the end of the same turn of the loop, sends it: for plain sockets by one writev
 * at once, as a bufferevent would wait for another turn and change what epoll watches twice; what the kernel does not
 * take goes to the bufferevent. The flush event is also where requests end, so no owner's call frees what its caller
 * still uses.
 *
 *     IDLE -> OWNED -> IDLE ...       a request, its answer, the next
 *     IDLE -> CLOSING -> LINGER -> end  a refusal
 *
 * LINGER: our side is closed, but if bytes of the client's were still coming, closing at once would make the kernel
 * answer them with a reset, and the client might lose the answer that it has not read yet (RFC 9112 9.6).
 *
 * One timer for all: it is set anew only when it would come too late, and looks at the deadline when it fires, so that
 * most requests touch no timer at all.
 */
#include "gateway/http/http_priv.h"
#include "gateway/telemetry/telemetry_log.h"
#include "io/clock.h"
#include <assert.h>
#include <errno.h>
#include <event2/bufferevent_ssl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

size_t http_connection_waiting(const struct http_connection *c)
{
    return evbuffer_get_length(c->out) + evbuffer_get_length(bufferevent_get_output(c->bev));
}

void http_connection_mark(struct http_connection *c)
{
    struct http_server *server = c->server;
    if (c->dirty)
        return;
    c->dirty = true;
    c->next_dirty = NULL;
    *server->dirty_end = c;
    server->dirty_end = &c->next_dirty;
    event_active(&server->flush, EV_TIMEOUT, 1);
}

void http_connection_unmark(struct http_connection *c)
{
    struct http_connection **at = &c->server->dirty;
    if (!c->dirty)
        return;
    while (*at != c)
        at = &(*at)->next_dirty;
    *at = c->next_dirty;
    if (c->server->dirty_end == &c->next_dirty)
        c->server->dirty_end = at;
    c->dirty = false;
}

void http_connection_deadline(struct http_connection *c, uint64_t at_us)
{
    c->deadline_us = at_us;
    if (at_us == 0 || (c->timer_us != 0 && c->timer_us <= at_us))
        return;
    uint64_t now = clock_us(), left = at_us > now ? at_us - now : 0;
    struct timeval tv = {(time_t)(left / 1000000), (suseconds_t)(left % 1000000)};
    c->timer_us = at_us;
    evtimer_add(&c->timer, &tv);
}

/* ---- ends of requests ---- */

/* The owner's last word; the request is freed. */
static void request_done(struct http_connection *c)
{
    struct http_request *r = c->request;
    assert(c->stage == HTTP_OWNED && r);
    c->request = NULL;
    c->stage = HTTP_IDLE;
    c->server->n_requests--;
    r->handlers->done(r->context, r);
    http_request_free(r);
}

/* A request that cannot be answered any more. */
static void request_gone(struct http_connection *c)
{
    struct http_request *r = c->request;
    if (c->stage != HTTP_OWNED)
        return;
    assert(r);
    bool was_open = http_is_open(r);
    r->gone = true;
    if (was_open)
        r->handlers->gone(r->context, r);
    request_done(c);
}

void http_connection_close(struct http_connection *c)
{
    struct http_server *server = c->server;
    request_gone(c);
    http_connection_unmark(c);
    http_request_free(c->request);
    evtimer_del(&c->timer);
    if (c->previous)
        c->previous->next = c->next;
    else
        server->connections = c->next;
    if (c->next)
        c->next->previous = c->previous;
    server->n_connections--;
    bufferevent_free(c->bev);
    evbuffer_free(c->out);
    free(c);
}

/* Nothing more is sent; what still comes is thrown away for a while. */
static void linger(struct http_connection *c)
{
    c->stage = HTTP_LINGER;
    if (c->tls) {
        SSL *ssl = bufferevent_openssl_get_ssl(c->bev);
        SSL_set_quiet_shutdown(ssl, 0);
        SSL_shutdown(ssl);
        ERR_clear_error();
    }
    shutdown(bufferevent_getfd(c->bev), SHUT_WR);
    bufferevent_enable(c->bev, EV_READ);
    struct evbuffer *input = bufferevent_get_input(c->bev);
    evbuffer_drain(input, evbuffer_get_length(input));
    http_connection_deadline(c, clock_us() + (uint64_t)HTTP_LINGER_MS * 1000);
}

void http_connection_refuse(struct http_connection *c, int status, const char *text)
{
    struct http_request *r = c->request;
    struct http_options *options = &c->server->options;
    bool begun = r && r->status != 0;
    bool head = r && r->is_head;
    request_gone(c);
    if (c->request) {
        http_request_free(c->request); /* no owner has seen it */
        c->request = NULL;
    }
    c->stage = HTTP_CLOSING;
    struct fields fields = {0};
    struct evbuffer *body = begun ? NULL : evbuffer_new();
    if (body && options->error)
        options->error(options->error_context, status, text, &fields, body);
    if (body && (!http_answer_write_head(c, status, &fields, (int64_t)evbuffer_get_length(body), false, true, false) ||
                 (!head && evbuffer_add_buffer(c->out, body) != 0)))
        c->failed = true;
    if (!body)
        c->failed = true; /* in the middle of an answer: there is nothing to be said */
    if (body)
        evbuffer_free(body);
    fields_fini(&fields);
    telemetry_log(TELEMETRY_DEBUG, "%s: answered %d: %s", c->peer, status, text);
    http_connection_deadline(c, clock_us() + (uint64_t)options->write_timeout_ms * 1000);
    http_connection_mark(c);
}

/* ---- sending ---- */

/* False: the connection is broken. */
static bool send_out(struct http_connection *c)
{
    struct evbuffer *output = bufferevent_get_output(c->bev);
    if (evbuffer_get_length(c->out) == 0)
        return true;
    if (!c->tls && evbuffer_get_length(output) == 0) {
        int n = evbuffer_write(c->out, bufferevent_getfd(c->bev));
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return false;
    }
    return evbuffer_get_length(c->out) == 0 || evbuffer_add_buffer(output, c->out) == 0;
}

/* The answer is with the kernel: the next request, or the end. */
static void answer_sent(struct http_connection *c)
{
    bool close = c->request->close_after;
    request_done(c);
    if (close || c->server->draining) {
        linger(c);
        return;
    }
    http_connection_deadline(c, clock_us() + (uint64_t)c->server->options.idle_timeout_ms * 1000);
    http_parse(c);
}

void http_connection_flush(struct http_connection *c)
{
    struct http_request *r = c->stage == HTTP_OWNED ? c->request : NULL;
    if (c->failed || (r && r->aborted) || !send_out(c)) {
        http_connection_close(c);
        return;
    }
    bool sent = http_connection_waiting(c) == 0;
    if (c->stage == HTTP_CLOSING && sent)
        linger(c);
    else if (r && r->ended && sent)
        answer_sent(c);
    else if (r && r->full && !r->ended && http_connection_waiting(c) <= HTTP_LOW_BYTES) {
        r->full = false;
        r->handlers->writable(r->context, r);
        if (r->ask)
            http_parse(c);
    } else if (r && r->ask)
        http_parse(c);
}

/* ---- events of the socket ---- */

static void on_read(struct bufferevent *bev, void *context)
{
    struct http_connection *c = context;
    (void)bev;
    if (c->stage == HTTP_LINGER || c->stage == HTTP_CLOSING) {
        struct evbuffer *input = bufferevent_get_input(c->bev);
        c->thrown_bytes += evbuffer_get_length(input);
        evbuffer_drain(input, evbuffer_get_length(input));
        if (c->thrown_bytes > HTTP_LINGER_BYTES)
            http_connection_close(c);
    } else
        http_parse(c);
}

static void on_write(struct bufferevent *bev, void *context)
{
    (void)bev;
    http_connection_mark(context);
}

static void on_event(struct bufferevent *bev, short what, void *context)
{
    struct http_connection *c = context;
    if (what & BEV_EVENT_CONNECTED) { /* TLS is there */
        c->handshaken = true;
        http_connection_deadline(c, clock_us() + (uint64_t)c->server->options.idle_timeout_ms * 1000);
        return;
    }
    if (what & BEV_EVENT_ERROR && c->tls) {
        unsigned long code = bufferevent_get_openssl_error(bev);
        if (code != 0 && !c->handshaken)
            telemetry_log(TELEMETRY_DEBUG, "%s: no TLS: error %lu of OpenSSL", c->peer, code);
    }
    /* a turn of the loop that took long lets the time of a write run out that was never waited for */
    if ((what & BEV_EVENT_TIMEOUT) && http_connection_waiting(c) == 0) {
        bufferevent_enable(bev, EV_WRITE);
        return;
    }
    if (what & BEV_EVENT_TIMEOUT)
        telemetry_log(TELEMETRY_NOTICE, "%s: closed, as it took nothing of its answer within write-timeout", c->peer);
    http_connection_close(c);
}

static void on_timer(evutil_socket_t fd, short what, void *context)
{
    struct http_connection *c = context;
    (void)fd;
    (void)what;
    uint64_t deadline = c->deadline_us;
    c->timer_us = 0;
    if (deadline == 0)
        return;
    if (deadline > clock_us()) {
        http_connection_deadline(c, deadline);
        return;
    }
    c->deadline_us = 0;
    if (c->stage == HTTP_OWNED)
        http_connection_refuse(c, 408, "the body did not come within body-timeout");
    else if (c->stage == HTTP_IDLE && c->request && c->request->head_bytes > 0)
        http_connection_refuse(c, 408, "the head did not come within head-timeout");
    else
        http_connection_close(c);
}

/* ---- beginning ---- */

static struct bufferevent *make_bev(struct http_server *server, int fd)
{
    if (!server->tls)
        return bufferevent_socket_new(server->base, fd, BEV_OPT_CLOSE_ON_FREE);
    SSL *ssl = SSL_new(server->tls);
    if (!ssl)
        return NULL;
    struct bufferevent *bev =
        bufferevent_openssl_socket_new(server->base, fd, ssl, BUFFEREVENT_SSL_ACCEPTING, BEV_OPT_CLOSE_ON_FREE);
    if (bev)
        bufferevent_openssl_set_allow_dirty_shutdown(bev, 1);
    else
        SSL_free(ssl);
    return bev;
}

struct http_connection *http_connection_create(struct http_server *server, int fd, const char *peer)
{
    struct http_connection *c = calloc(1, sizeof *c);
    int yes = 1;
    if (!c || !(c->out = evbuffer_new()) || !(c->bev = make_bev(server, fd))) {
        if (c && c->out)
            evbuffer_free(c->out);
        free(c);
        close(fd);
        return NULL;
    }
    c->server = server;
    c->tls = server->tls != NULL;
    snprintf(c->peer, sizeof c->peer, "%s", peer);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes); /* on unix sockets it has no meaning, and fails */
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
    evtimer_assign(&c->timer, server->base, on_timer, c);
    http_parse_init(c);
    c->next = server->connections;
    if (c->next)
        c->next->previous = c;
    server->connections = c;
    server->n_connections++;
    uint32_t write_ms = server->options.write_timeout_ms;
    struct timeval write_timeout = {(time_t)(write_ms / 1000), (suseconds_t)(write_ms % 1000) * 1000};
    bufferevent_set_timeouts(c->bev, NULL, &write_timeout);
    bufferevent_setwatermark(c->bev, EV_WRITE, HTTP_LOW_BYTES, 0);
    bufferevent_setcb(c->bev, on_read, on_write, on_event, c);
    bufferevent_enable(c->bev, EV_READ); /* writing is, and watched as soon as something waits */
    uint32_t first_ms = c->tls ? server->options.head_timeout_ms : server->options.idle_timeout_ms;
    http_connection_deadline(c, clock_us() + (uint64_t)first_ms * 1000);
    return c;
}
