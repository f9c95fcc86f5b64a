/*
 * sc_client.c - pipelined commands over a few connections to a quire-server.
 *
 * Order. A connection has a list of calls in the order in which they were sent; replies come in that order, so the
 * first reply belongs to the first call. A call that was cancelled or has timed out stays in the list, without its
 * callback, until its reply has come: to take it out would give its reply to the next one. That is why nobody may send
 * a command here whose reply comes later than those behind it (SC.GET ... WAIT): a client that wants to wait asks
 * again.
 *
 * Failures. A connection that breaks ends all its calls with SC_DOWN and is made again after a pause that doubles. One
 * that answers nothing for STALLED_MS while calls wait is broken by us: a peer that has vanished says nothing else.
 * Timeouts and breaks in a row, without a reply between them, open the breaker, so that a request waits for a server
 * that does not answer a few times and not each time. After breaker_ms one call is let through.
 *
 * hiredis reads the replies (its reader alone: hiredis 0.14, which Debian 12 has, knows no TLS), but raw ones; commands
 * are written straight into the connection's buffer, so a large answer is copied once. They wait until the server has
 * taken the user: sent behind an AUTH that fails, they would be carried out for its default user. Names are resolved by
 * glibc's thread (getaddrinfo_a), never in the loop.
 */
#include "gateway/store/sc_client.h"
#include "gateway/store/sc_scan.h"
#include "io/clock.h"
#include "io/error.h"
#include <arpa/inet.h>
#include <assert.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>
#include <event2/event.h>
#include <event2/event_struct.h>
#include <hiredis/hiredis.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#define PAUSE_FIRST_MS  20u
#define PAUSE_LAST_MS   1000u
#define STALLED_MS      2000u
#define RESOLVE_POLL_MS 5u
#define WAITING_MAX     65536u /* calls of one connection */
#define HOST_BYTES_MAX  255u

enum link_state { LINK_PAUSED, LINK_RESOLVING, LINK_CONNECTING, LINK_UP };

struct link {
    struct sc_client *client;
    enum link_state state;
    struct bufferevent *bev; /* CONNECTING, UP */
    redisReader *reader;
    struct sc_scan scan;          /* in place of the reader, where replies are raw */
    struct evbuffer *held;        /* commands that wait until the server has taken the user; NULL: none */
    struct sc_call *first, *last; /* in the order in which they were sent */
    unsigned waiting;
    struct event timer; /* the pause, the poll of the resolver, the connection's deadline */
    unsigned pause_ms;
    uint64_t read_us; /* when bytes came last */
    struct gaicb *resolving;
};

struct sc_call {
    struct sc_client *client;
    struct link *link; /* NULL: was never sent */
    struct sc_call *next;
    struct event timer;
    sc_done *done; /* NULL: nobody waits any more */
    void *context;
    sc_late *late; /* NULL: a late reply is dropped */
    void *late_context;
    uint64_t sent_us;
    const char *unsent; /* why it was not sent: static storage */
    bool probes;        /* let through while the breaker was open */
};

struct sc_client {
    struct event_base *base;
    struct sc_options options;
    char host[HOST_BYTES_MAX + 1], service[8], path[sizeof((struct sockaddr_un *)0)->sun_path], *user, *password,
        *tls_name;
    bool is_unix;
    struct link links[SC_CONNECTIONS_MAX];
    unsigned failures_in_row;
    uint64_t open_until_us; /* of the breaker; 0: closed */
    bool probing;
    struct sc_client_state state;
    void (*changed)(void *context, bool up);
    void *changed_context;
    struct sc_call *unsent; /* those that only wait for their callback */
};

static void begin_pause(struct link *link);
static void connect_link(struct link *link);

static struct timeval ms_of(uint64_t ms)
{
    return (struct timeval){.tv_sec = (time_t)(ms / 1000), .tv_usec = (suseconds_t)(ms % 1000 * 1000)};
}

/* ---- breaker ----------------------------------------------------------------------------------------------------- */

static void succeeded(struct sc_client *client)
{
    client->failures_in_row = 0;
    client->open_until_us = 0;
    client->probing = false;
}

static void failed(struct sc_client *client, const char *why)
{
    client->state.failures++;
    snprintf(client->state.why, sizeof client->state.why, "%s", why);
    client->probing = false;
    if (++client->failures_in_row >= client->options.breaker_failures)
        client->open_until_us = clock_us() + client->options.breaker_ms * 1000ull;
}

/* Whether a call may go out; *probes: it is the one that finds out. */
static bool breaker_lets(struct sc_client *client, bool *probes)
{
    *probes = false;
    if (client->open_until_us == 0)
        return true;
    if (client->probing || clock_us() < client->open_until_us)
        return false;
    *probes = client->probing = true;
    return true;
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

static void free_call(struct sc_call *call)
{
    event_del(&call->timer);
    free(call);
}

/* Tells whoever waits, once; the call stays where it is. */
static void tell(struct sc_call *call, enum sc_outcome outcome, struct redisReply *reply, const char *why)
{
    sc_done *done = call->done;
    event_del(&call->timer);
    call->done = NULL;
    if (done)
        done(call->context, outcome, reply, why);
}

static void drop_unsent(struct sc_call *call)
{
    struct sc_call **at = &call->client->unsent;
    while (*at != call)
        at = &(*at)->next;
    *at = call->next;
}

static void break_link(struct link *link, const char *why);

static void on_deadline(evutil_socket_t fd, short what, void *context)
{
    struct sc_call *call = context;
    struct link *link = call->link;
    uint64_t now_us = clock_us(), quiet_since;
    (void)fd;
    (void)what;
    if (!link) {
        drop_unsent(call);
        tell(call, SC_BUSY, NULL, call->unsent);
        free_call(call);
        return;
    }
    call->client->state.timeouts++;
    failed(call->client, "the server did not answer in time (setting server-timeout)");
    quiet_since = link->read_us > link->first->sent_us ? link->read_us : link->first->sent_us;
    tell(call, SC_TIMEOUT, NULL, "the server did not answer in time (setting server-timeout)");
    if (now_us - quiet_since > STALLED_MS * 1000ull)
        break_link(link, "the server has answered nothing for two seconds");
}

/* "*n" and "$bytes" of the protocol, then the bytes; false without memory. */
static bool write_command(struct evbuffer *out, unsigned n, const char *const *arguments, const size_t *bytes)
{
    char head[32];
    int head_bytes = snprintf(head, sizeof head, "*%u\r\n", n);
    bool ok = evbuffer_add(out, head, (size_t)head_bytes) == 0;
    for (unsigned i = 0; i < n && ok; i++) {
        head_bytes = snprintf(head, sizeof head, "$%zu\r\n", bytes[i]);
        ok = evbuffer_add(out, head, (size_t)head_bytes) == 0 && evbuffer_add(out, arguments[i], bytes[i]) == 0 &&
             evbuffer_add(out, "\r\n", 2) == 0;
    }
    return ok;
}

static struct sc_call *new_call(struct sc_client *client, sc_done *done, void *context)
{
    struct sc_call *call = calloc(1, sizeof *call);
    if (!call)
        return NULL;
    call->client = client;
    call->done = done;
    call->context = context;
    evtimer_assign(&call->timer, client->base, on_deadline, call);
    return call;
}

/* Whether the server is told who we are before all else. */
static bool introduces(const struct sc_client *client)
{
    return client->options.raw || client->password;
}

/* Where a command goes: to the socket, or with those that wait until the user is taken. */
static struct evbuffer *way_out(struct link *link)
{
    if (link->state == LINK_UP || (link->state == LINK_CONNECTING && !introduces(link->client)))
        return bufferevent_get_output(link->bev);
    if (!link->held)
        link->held = evbuffer_new();
    return link->held;
}

/* Behind those that were sent. `out`: NULL is no memory. False without memory: nothing has been sent. */
static bool send_on(struct link *link, struct evbuffer *out, struct sc_call *call, unsigned n,
                    const char *const *arguments, const size_t *bytes, unsigned deadline_ms)
{
    struct evbuffer *command = evbuffer_new();
    struct timeval deadline = ms_of(deadline_ms);
    /* into a buffer of its own first: half a command would make the rest of the connection unreadable */
    bool ok = out && command && write_command(command, n, arguments, bytes) &&
              evtimer_add(&call->timer, &deadline) == 0 && evbuffer_add_buffer(out, command) == 0;
    if (command)
        evbuffer_free(command);
    if (!ok)
        return false;
    call->link = link;
    call->sent_us = clock_us();
    *(link->first ? &link->last->next : &link->first) = call;
    link->last = call;
    link->waiting++;
    return true;
}

static size_t link_bytes(const struct link *link)
{
    return (link->bev ? evbuffer_get_length(bufferevent_get_output(link->bev)) : 0) +
           (link->held ? evbuffer_get_length(link->held) : 0);
}

static size_t pending_bytes(const struct sc_client *client)
{
    size_t bytes = 0;
    for (unsigned i = 0; i < client->options.connections; i++)
        bytes += link_bytes(&client->links[i]);
    return bytes;
}

/* The one with the fewest calls; NULL: none is there or being made. */
static struct link *best_link(struct sc_client *client)
{
    struct link *best = NULL;
    for (unsigned i = 0; i < client->options.connections; i++) {
        struct link *link = &client->links[i];
        if ((link->state == LINK_UP || link->state == LINK_CONNECTING || client->options.raw) &&
            link->waiting < WAITING_MAX &&
            (!best ||
             link->waiting + (link->state != LINK_UP) * 1000u < best->waiting + (best->state != LINK_UP) * 1000u))
            best = link;
    }
    return best;
}

struct sc_call *sc_call(struct sc_client *client, unsigned n, const char *const *arguments, const size_t *bytes,
                        unsigned deadline_ms, sc_done *done, void *context)
{
    struct sc_call *call = new_call(client, done, context);
    struct link *link = best_link(client);
    struct timeval now = {0, 0};
    size_t total = 0;
    if (!call)
        return NULL;
    assert(n >= 1 && n <= SC_ARGUMENTS_MAX && done);
    client->state.calls++;
    for (unsigned i = 0; i < n; i++)
        total += bytes[i] + 32;
    if (!link)
        call->unsent = "there is no connection to the server";
    else if (pending_bytes(client) + total > client->options.pending_bytes_max)
        call->unsent = "too many bytes wait to be sent to the server";
    else if (!breaker_lets(client, &call->probes))
        call->unsent = "the server failed several times in a row and is left alone for a moment";
    else if (send_on(link, way_out(link), call, n, arguments, bytes, deadline_ms))
        return call;
    else
        call->unsent = "no memory for a command";
    if (call->probes)
        client->probing = false;
    if (evtimer_add(&call->timer, &now) != 0) {
        free(call);
        return NULL;
    }
    call->next = client->unsent;
    client->unsent = call;
    return call;
}

void sc_cancel(struct sc_call *call)
{
    call->done = NULL;
    if (!call->link) {
        drop_unsent(call);
        free_call(call);
    } else if (call->probes) {
        call->client->probing = false; /* the next one finds out */
    }
}

void sc_call_late(struct sc_call *call, sc_late *late, void *context)
{
    call->late = late;
    call->late_context = context;
}

/* ---- connections ------------------------------------------------------------------------------------------------- */

/* A name that is being looked up. */
struct resolving {
    struct gaicb request; /* first: it is known by it */
    struct addrinfo hints;
    struct resolving *next;
};

/* The resolver's thread still writes there: left to it. Only while the process ends. */
static struct resolving *left_to_resolver;

static void free_gai(struct link *link)
{
    struct resolving *resolving = (struct resolving *)link->resolving;
    link->resolving = NULL;
    if (!resolving)
        return;
    if (gai_cancel(&resolving->request) == EAI_NOTCANCELED) {
        resolving->next = left_to_resolver;
        left_to_resolver = resolving;
        return;
    }
    if (resolving->request.ar_result)
        freeaddrinfo(resolving->request.ar_result);
    free(resolving);
}

/* Everything of the connection goes; its calls are told. */
static void break_link(struct link *link, const char *why)
{
    struct sc_client *client = link->client;
    struct sc_call *calls = link->first;
    bool was_up = link->state == LINK_UP;
    if (link->bev)
        bufferevent_free(link->bev);
    if (link->reader)
        redisReaderFree(link->reader);
    if (link->held)
        evbuffer_free(link->held);
    sc_scan_fini(&link->scan);
    link->bev = NULL;
    link->reader = NULL;
    link->held = NULL;
    link->first = link->last = NULL;
    link->waiting = 0;
    begin_pause(link);
    if (was_up)
        client->state.connections_up--;
    failed(client, why);
    if (was_up && client->state.connections_up == 0 && client->changed)
        client->changed(client->changed_context, false);
    while (calls) {
        struct sc_call *call = calls;
        calls = call->next;
        tell(call, SC_DOWN, NULL, why);
        free_call(call);
    }
}

/* The first call in line has its reply. False: the connection is not to be read any more. */
static bool take_reply(struct link *link, struct redisReply *reply)
{
    struct sc_call *call = link->first;
    if (!call) {
        break_link(link, "the server sent a reply to no command");
        return false;
    }
    link->first = call->next;
    link->last = link->first ? link->last : NULL;
    link->waiting--;
    link->client->state.late_replies += call->done == NULL;
    succeeded(link->client);
    if (!call->done && call->late)
        call->late(call->late_context, reply);
    else if (reply->type == REDIS_REPLY_ERROR)
        tell(call, SC_ERROR, reply, reply->str);
    else
        tell(call, SC_REPLY, reply, NULL);
    free_call(call);
    return link->state == LINK_UP || link->state == LINK_CONNECTING; /* a callback may have found it wanting (AUTH) */
}

/* An error's line without its type and end, else the bytes as they are. */
static bool take_raw(struct link *link)
{
    struct redisReply reply = {.type = REDIS_REPLY_STRING, .str = link->scan.bytes, .len = link->scan.at};
    char error[512];
    if (*reply.str == '-') {
        reply.len = reply.len - 3 < sizeof error ? reply.len - 3 : sizeof error - 1;
        memcpy(error, reply.str + 1, reply.len);
        error[reply.len] = 0;
        reply.type = REDIS_REPLY_ERROR;
        reply.str = error;
    }
    if (!take_reply(link, &reply))
        return false;
    sc_scan_drop(&link->scan);
    return true;
}

static void read_raw(struct link *link, struct evbuffer *in)
{
    enum sc_scanned scanned;
    size_t n = evbuffer_get_length(in);
    char *room = sc_scan_room(&link->scan, n);
    if (!room || evbuffer_remove(in, room, n) != (int)n)
        return break_link(link, "no memory for a reply of the server");
    link->scan.n += n;
    while ((scanned = sc_scan_next(&link->scan)) == SC_SCAN_WHOLE) {
        if (!take_raw(link))
            return;
    }
    if (scanned == SC_SCAN_BROKEN)
        break_link(link, "a reply of the server cannot be read: is it a quire-server?");
    else if (link->scan.n > link->client->options.reply_bytes_max)
        break_link(link, "a reply of the server is larger than is read here");
}

static void on_read(struct bufferevent *bev, void *context)
{
    struct link *link = context;
    struct evbuffer *in = bufferevent_get_input(bev);
    struct redisReply *reply = NULL;
    size_t n;
    link->read_us = clock_us();
    if (link->client->options.raw)
        return read_raw(link, in);
    while ((n = evbuffer_get_contiguous_space(in)) > 0) {
        if (redisReaderFeed(link->reader, (const char *)evbuffer_pullup(in, (ev_ssize_t)n), n) != REDIS_OK)
            return break_link(link, "a reply of the server cannot be read");
        evbuffer_drain(in, n);
    }
    while (redisReaderGetReply(link->reader, (void **)&reply) == REDIS_OK) {
        if (!reply)
            return;
        bool goes_on = take_reply(link, reply);
        freeReplyObject(reply);
        reply = NULL;
        if (!goes_on)
            return;
    }
    break_link(link, "a reply of the server cannot be read: is it a quire-server?");
}

static void link_is_up(struct link *link)
{
    struct sc_client *client = link->client;
    event_del(&link->timer);
    link->state = LINK_UP;
    link->pause_ms = PAUSE_FIRST_MS;
    client->state.refused = false;
    succeeded(client);
    if (link->held && evbuffer_add_buffer(bufferevent_get_output(link->bev), link->held) != 0)
        bufferevent_trigger_event(link->bev, BEV_EVENT_ERROR, BEV_TRIG_DEFER_CALLBACKS); /* no memory: it is broken */
    if (client->state.connections_up++ == 0 && client->changed)
        client->changed(client->changed_context, true);
}

static void on_auth(void *context, enum sc_outcome outcome, struct redisReply *reply, const char *why)
{
    struct link *link = context;
    char text[200];
    (void)reply;
    if (outcome == SC_REPLY) {
        link_is_up(link);
    } else if (outcome == SC_ERROR) {
        snprintf(text, sizeof text, "the server refuses the gateway's user: %.150s", why);
        link->pause_ms = PAUSE_LAST_MS;
        link->client->state.refused = true;
        break_link(link, text);
    }
}

/* The reply to a HELLO without a password, before that with one: only where none is needed it is no error. */
static void on_open(void *context, enum sc_outcome outcome, struct redisReply *reply, const char *why)
{
    struct link *link = context;
    (void)reply;
    (void)why;
    if (outcome != SC_REPLY)
        return;
    link->pause_ms = PAUSE_LAST_MS;
    link->client->state.refused = link->client->state.open = true;
    break_link(link, "the server's default user needs no password");
}

static const char *socket_failure(struct bufferevent *bev, char *out, size_t out_bytes)
{
    unsigned long code = bufferevent_get_openssl_error(bev);
    if (code) {
        char reason[120];
        ERR_error_string_n(code, reason, sizeof reason);
        snprintf(out, out_bytes, "TLS with the server failed: %s", reason);
    } else {
        int number = EVUTIL_SOCKET_ERROR();
        snprintf(out, out_bytes, "no connection to the server: %s",
                 number ? evutil_socket_error_to_string(number) : "it was closed");
    }
    return out;
}

static void on_event(struct bufferevent *bev, short what, void *context)
{
    struct link *link = context;
    char why[200];
    if (!(what & BEV_EVENT_CONNECTED))
        return break_link(link, what & BEV_EVENT_EOF ? "the server closed the connection"
                                                     : socket_failure(bev, why, sizeof why));
    if (!link->client->is_unix) {
        int yes = 1;
        setsockopt(bufferevent_getfd(bev), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    }
    if (!introduces(link->client))
        link_is_up(link);
}

static bool send_introduction(struct link *link, sc_done *done, unsigned n, const char *const *words)
{
    struct sc_client *client = link->client;
    struct sc_call *call = new_call(client, done, link);
    size_t bytes[5];
    for (unsigned i = 0; i < n; i++)
        bytes[i] = strlen(words[i]);
    if (call && send_on(link, bufferevent_get_output(link->bev), call, n, words, bytes, client->options.connect_ms))
        return true;
    if (call)
        free_call(call);
    return false;
}

/* AUTH, or HELLO 3, goes out before all else; what is sent meanwhile waits for its reply. */
static bool introduce(struct link *link)
{
    struct sc_client *client = link->client;
    const char *user = client->user ? client->user : client->options.raw ? "default" : NULL, *words[5];
    unsigned n = 0;
    if (!introduces(client))
        return true;
    if (client->options.raw) {
        words[n++] = "HELLO";
        words[n++] = "3";
    }
    if (client->password) {
        words[n++] = "AUTH";
        if (user)
            words[n++] = user;
        words[n++] = client->password;
    }
    struct sc_call *held = link->first; /* those that wait for a connection come behind it */
    struct sc_call *last = link->last;
    link->first = link->last = NULL;
    bool sent = (!client->options.locked || send_introduction(link, on_open, 2, words)) &&
                send_introduction(link, on_auth, n, words);
    *(link->first ? &link->last->next : &link->first) = held;
    if (held)
        link->last = last;
    return sent;
}

static struct bufferevent *new_socket(struct sc_client *client)
{
    SSL *ssl;
    struct bufferevent *bev;
    const char *name = client->tls_name ? client->tls_name : client->host;
    if (!client->options.tls)
        return bufferevent_socket_new(client->base, -1, BEV_OPT_CLOSE_ON_FREE);
    ssl = SSL_new(client->options.tls);
    if (!ssl || SSL_set1_host(ssl, name) != 1 || SSL_set_tlsext_host_name(ssl, name) != 1) {
        SSL_free(ssl);
        return NULL;
    }
    bev = bufferevent_openssl_socket_new(client->base, -1, ssl, BUFFEREVENT_SSL_CONNECTING, BEV_OPT_CLOSE_ON_FREE);
    if (!bev)
        SSL_free(ssl);
    return bev;
}

static void connect_to(struct link *link, const struct sockaddr *address, socklen_t bytes)
{
    struct sc_client *client = link->client;
    struct timeval deadline = ms_of(client->options.connect_ms);
    link->reader = client->options.raw ? NULL : redisReaderCreate();
    link->bev = link->reader || client->options.raw ? new_socket(client) : NULL;
    link->state = LINK_CONNECTING;
    link->read_us = clock_us();
    if (!link->bev || !introduce(link))
        return break_link(link, "no memory for a connection to the server");
    bufferevent_setcb(link->bev, on_read, NULL, on_event, link);
    evtimer_add(&link->timer, &deadline);
    if (bufferevent_enable(link->bev, EV_READ | EV_WRITE) != 0 ||
        bufferevent_socket_connect(link->bev, address, (int)bytes) != 0)
        if (link->state == LINK_CONNECTING)
            break_link(link, "no connection to the server");
}

static void resolved(struct link *link)
{
    struct addrinfo *found;
    int rc = gai_error(link->resolving);
    struct timeval soon = ms_of(RESOLVE_POLL_MS);
    struct sockaddr_storage address;
    socklen_t bytes;
    if (rc == EAI_INPROGRESS) {
        evtimer_add(&link->timer, &soon);
        return;
    }
    found = link->resolving->ar_result;
    if (rc != 0 || !found || found->ai_addrlen > sizeof address) {
        char why[160];
        snprintf(why, sizeof why, "the server's name is not known: %s", gai_strerror(rc));
        free_gai(link);
        return break_link(link, why);
    }
    memcpy(&address, found->ai_addr, found->ai_addrlen);
    bytes = found->ai_addrlen;
    free_gai(link);
    connect_to(link, (struct sockaddr *)&address, bytes);
}

static void begin_resolving(struct link *link)
{
    struct resolving *resolving = calloc(1, sizeof *resolving);
    struct timeval soon = ms_of(RESOLVE_POLL_MS);
    struct gaicb *list[1];
    if (!resolving)
        return break_link(link, "no memory to look up the server's name");
    resolving->hints = (struct addrinfo){.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG};
    resolving->request = (struct gaicb){
        .ar_name = link->client->host, .ar_service = link->client->service, .ar_request = &resolving->hints};
    list[0] = &resolving->request;
    if (getaddrinfo_a(GAI_NOWAIT, list, 1, NULL) != 0) {
        free(resolving);
        return break_link(link, "the server's name cannot be looked up");
    }
    link->resolving = &resolving->request;
    link->state = LINK_RESOLVING;
    evtimer_add(&link->timer, &soon);
}

static void connect_link(struct link *link)
{
    struct sc_client *client = link->client;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV}, *numeric = NULL;
    struct sockaddr_un local = {.sun_family = AF_UNIX};
    if (client->is_unix) {
        memcpy(local.sun_path, client->path, sizeof local.sun_path);
        connect_to(link, (struct sockaddr *)&local, sizeof local);
    } else if (getaddrinfo(client->host, client->service, &hints, &numeric) == 0) { /* numeric: asks nobody */
        connect_to(link, numeric->ai_addr, numeric->ai_addrlen);
        freeaddrinfo(numeric);
    } else {
        begin_resolving(link);
    }
}

static void on_timer(evutil_socket_t fd, short what, void *context)
{
    struct link *link = context;
    (void)fd;
    (void)what;
    if (link->state == LINK_PAUSED)
        connect_link(link);
    else if (link->state == LINK_RESOLVING)
        resolved(link);
    else
        break_link(link, "the server did not accept the connection in time");
}

static void begin_pause(struct link *link)
{
    struct timeval pause = ms_of(link->pause_ms);
    link->state = LINK_PAUSED;
    link->pause_ms = link->pause_ms * 2 > PAUSE_LAST_MS ? PAUSE_LAST_MS : link->pause_ms * 2;
    event_del(&link->timer);
    evtimer_add(&link->timer, &pause);
}

/* ---- the client -------------------------------------------------------------------------------------------------- */

static int parse_address(struct sc_client *client, const char *address, struct quire_error *err)
{
    const char *colon = strrchr(address, ':'), *end;
    size_t bytes;
    if (strncmp(address, "unix:", 5) == 0) {
        client->is_unix = true;
        if (strlen(address + 5) == 0 || strlen(address + 5) >= sizeof client->path)
            return error_set(err, QUIRE_EINVALID, "server is '%s': the path of a unix socket has 1 to %zu bytes",
                             address, sizeof client->path - 1);
        memcpy(client->path, address + 5, strlen(address + 5) + 1);
        return 0;
    }
    long port = colon && strlen(colon + 1) <= 5 && strspn(colon + 1, "0123456789") == strlen(colon + 1)
                    ? strtol(colon + 1, NULL, 10)
                    : 0;
    if (port < 1 || port > 65535)
        return error_set(err, QUIRE_EINVALID, "server is '%s': give host:port, [v6]:port or unix:/path", address);
    end = colon;
    if (*address == '[' && colon > address && colon[-1] == ']') {
        address++;
        end--;
    }
    bytes = (size_t)(end - address);
    if (bytes == 0 || bytes > HOST_BYTES_MAX)
        return error_set(err, QUIRE_EINVALID, "server has a host of %zu bytes: 1 to %u", bytes, HOST_BYTES_MAX);
    memcpy(client->host, address, bytes);
    memcpy(client->service, colon + 1, strlen(colon + 1) + 1);
    return 0;
}

static bool copy(char **out, const char *text)
{
    *out = text ? strdup(text) : NULL;
    return !text || *out;
}

int sc_client_create(struct event_base *base, const struct sc_options *options, struct sc_client **out,
                     struct quire_error *err)
{
    struct sc_client *client = calloc(1, sizeof *client);
    struct timeval now = {0, 0};
    int rc;
    assert(options->connections >= 1 && options->connections <= SC_CONNECTIONS_MAX && options->breaker_failures >= 1);
    if (!client)
        return error_set(err, QUIRE_ENOMEM, "no memory for the connections to the server");
    client->base = base;
    client->options = *options;
    rc = parse_address(client, options->address, err);
    if (rc == 0 && !(copy(&client->user, options->user) && copy(&client->password, options->password) &&
                     copy(&client->tls_name, options->tls_name)))
        rc = error_set(err, QUIRE_ENOMEM, "no memory for the connections to the server");
    client->options.address = client->options.user = client->options.password = client->options.tls_name = NULL;
    for (unsigned i = 0; i < options->connections; i++) {
        struct link *link = &client->links[i];
        link->client = client;
        link->pause_ms = PAUSE_FIRST_MS;
        evtimer_assign(&link->timer, base, on_timer, link);
        if (rc == 0 && evtimer_add(&link->timer, &now) != 0)
            rc = error_set(err, QUIRE_ENOMEM, "no memory for the connections to the server");
    }
    if (rc) {
        sc_client_destroy(client);
        return rc;
    }
    *out = client;
    return 0;
}

void sc_client_destroy(struct sc_client *client)
{
    if (!client)
        return;
    for (unsigned i = 0; i < client->options.connections; i++) {
        struct link *link = &client->links[i];
        event_del(&link->timer);
        free_gai(link);
        if (link->bev)
            bufferevent_free(link->bev);
        if (link->reader)
            redisReaderFree(link->reader);
        if (link->held)
            evbuffer_free(link->held);
        sc_scan_fini(&link->scan);
        for (struct sc_call *call = link->first, *next; call; call = next) {
            next = call->next;
            free_call(call);
        }
    }
    for (struct sc_call *call = client->unsent, *next; call; call = next) {
        next = call->next;
        free_call(call);
    }
    free(client->user);
    if (client->password)
        explicit_bzero(client->password, strlen(client->password));
    free(client->password);
    free(client->tls_name);
    free(client);
}

void sc_client_on_change(struct sc_client *client, void (*changed)(void *context, bool up), void *context)
{
    client->changed = changed;
    client->changed_context = context;
}

void sc_client_state(const struct sc_client *client, struct sc_client_state *out)
{
    *out = client->state;
    out->breaker_open = client->open_until_us != 0;
    out->pending_bytes = pending_bytes(client);
}
