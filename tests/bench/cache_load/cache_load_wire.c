/*
 * cache_load_wire.c - many connections to one server from one thread, through hiredis.
 *
 * Each connection is a hiredis context that never blocks, with a ring of calls whose replies are awaited: RESP answers
 * in order. Calls go round the connections that have room; where none has, they queue here, which belongs to their
 * latency, since an open loop measures from the moment at which a request came. epoll tells of replies; the time to
 * wait is given to ppoll in nanoseconds, because epoll_wait knows milliseconds only.
 *
 * RESP2, as clients of every age speak it: a map is an array of names and values, a double is text.
 *
 * What breaks a connection ends the run; an error that the server replies is the caller's to judge.
 */
#include "io/error.h"
#include "tests/bench/cache_load/cache_load.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define EVENTS          128
#define CONTROL_SECONDS 120
#define NOT_LISTED      UINT32_MAX

struct wire_call_state {
    wire_done *done;
    void *owner;
    uint64_t tag;
};
struct wire_link {
    redisContext *redis;
    struct wire_call_state *calls; /* ring of `room` */
    uint32_t head, n, room;
    bool has_room_listed, dirty, waits_to_write;
};
/* A call that no connection had room for. */
struct wire_waiting {
    struct wire_waiting *next;
    struct wire_call_state call;
    sds bytes;
};
struct wire {
    int epoll;
    uint32_t n, depth;
    struct wire_link *links;
    uint32_t *free, free_head, n_free; /* ring of connections with room */
    uint32_t *dirty, n_dirty;          /* with bytes to send */
    struct wire_waiting *first, **last;
    uint64_t under_way;
    redisContext *control;
};

/* ---- words of a call --------------------------------------------------------------------------------------------- */

void words_blob(struct wire_words *words, const void *blob, size_t bytes)
{
    if (words->n == (int)WIRE_WORDS_MAX)
        abort(); /* a call of ours has more words than there is room for: a mistake in this program */
    words->at[words->n] = blob;
    words->bytes[words->n++] = bytes;
}

void words_text(struct wire_words *words, const char *text)
{
    words_blob(words, text, strlen(text));
}

void words_begin(struct wire_words *words, const char *command, const char *cache)
{
    words->n = 0;
    words->used = 0;
    words_text(words, command);
    if (cache)
        words_text(words, cache);
}

static char *number_room(struct wire_words *words)
{
    char *at = words->numbers + words->used;
    if (words->used + 32 > sizeof words->numbers)
        abort(); /* as above */
    return at;
}

void words_count(struct wire_words *words, uint64_t value)
{
    char *at = number_room(words);
    int n = snprintf(at, 32, "%llu", (unsigned long long)value);
    words->used += (size_t)n + 1;
    words_blob(words, at, (size_t)n);
}

void words_real(struct wire_words *words, double value)
{
    char *at = number_room(words);
    int n = snprintf(at, 32, "%.9g", value);
    words->used += (size_t)n + 1;
    words_blob(words, at, (size_t)n);
}

/* ---- replies ----------------------------------------------------------------------------------------------------- */

const redisReply *reply_field(const redisReply *map, const char *name)
{
    if (!map || map->type != REDIS_REPLY_ARRAY)
        return NULL;
    for (size_t i = 0; i + 1 < map->elements; i += 2) {
        const char *key = reply_text(map->element[i]);
        if (key && strcmp(key, name) == 0)
            return map->element[i + 1];
    }
    return NULL;
}

const char *reply_text(const redisReply *reply)
{
    return reply && (reply->type == REDIS_REPLY_STRING || reply->type == REDIS_REPLY_STATUS) ? reply->str : NULL;
}

double reply_real(const redisReply *reply)
{
    const char *text = reply_text(reply);
    char *end;
    if (reply && reply->type == REDIS_REPLY_INTEGER)
        return (double)reply->integer;
    if (!text)
        return NAN;
    double value = strtod(text, &end);
    return end > text && *end == 0 ? value : NAN;
}

/* ---- one call at a time ------------------------------------------------------------------------------------------ */

int wire_ask(struct wire *wire, const struct wire_words *words, redisReply **out, struct quire_error *err)
{
    redisReply *reply = redisCommandArgv(wire->control, words->n, (const char **)words->at, words->bytes);
    if (!reply)
        return error_set(err, QUIRE_EIO, "the server: %s", wire->control->errstr);
    if (reply->type == REDIS_REPLY_ERROR) {
        int rc = error_set(err, QUIRE_EINVALID, "%s answers: %s", words->at[0], reply->str);
        freeReplyObject(reply);
        return rc;
    }
    *out = reply;
    return 0;
}

int wire_do(struct wire *wire, const struct wire_words *words, struct quire_error *err)
{
    redisReply *reply = NULL;
    int rc = wire_ask(wire, words, &reply, err);
    if (rc == 0)
        freeReplyObject(reply);
    return rc;
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

/* A blocking connection, so that the first error is one of connecting, and a password is checked at once. */
static int connect_one(const struct load_options *options, redisContext **out, struct quire_error *err)
{
    const struct timeval limit = {.tv_sec = CONTROL_SECONDS};
    const char *password = getenv("REDISCLI_AUTH");
    redisContext *redis = redisConnectWithTimeout(options->host, (int)options->port, limit);
    int rc = 0;
    if (!redis)
        return error_set(err, QUIRE_ENOMEM, "no memory for a connection");
    if (redis->err || redisSetTimeout(redis, limit) != REDIS_OK) {
        rc = error_set(err, QUIRE_EIO, "%s:%llu: %s (--host, --port)", options->host, (unsigned long long)options->port,
                       redis->errstr);
    } else if (password && *password) {
        redisReply *reply = redisCommand(redis, "AUTH %s", password);
        if (!reply || reply->type == REDIS_REPLY_ERROR)
            rc = error_set(err, QUIRE_EINVALID, "REDISCLI_AUTH: %s", reply ? reply->str : redis->errstr);
        freeReplyObject(reply);
    }
    if (rc < 0)
        redisFree(redis);
    else
        *out = redis;
    return rc;
}

static int open_link(struct wire *wire, uint32_t number, const struct load_options *options, struct quire_error *err)
{
    struct wire_link *link = &wire->links[number];
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = number};
    int rc = connect_one(options, &link->redis, err);
    if (rc < 0)
        return rc;
    link->redis->flags &= ~REDIS_BLOCK;
    link->room = wire->depth;
    link->calls = calloc(link->room, sizeof *link->calls);
    if (!link->calls)
        return error_set(err, QUIRE_ENOMEM, "no memory for %u calls", link->room);
    if (epoll_ctl(wire->epoll, EPOLL_CTL_ADD, link->redis->fd, &event) != 0)
        return error_set_errno(err, errno, "epoll_ctl", "connection");
    link->has_room_listed = true;
    wire->free[number] = number;
    wire->n_free++;
    return 0;
}

/* hiredis reads in blocking mode through the socket's own blocking: it has to be told as well. */
static int make_nonblocking(struct wire *wire, struct quire_error *err)
{
    for (uint32_t i = 0; i < wire->n; i++) {
        const int fd = wire->links[i].redis->fd;
        const struct timeval none = {0};
        /* the timeouts that hiredis set would end reads; MSG_DONTWAIT is not ours to give */
        if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none) != 0 ||
            fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) != 0)
            return error_set_errno(err, errno, "fcntl", "connection");
    }
    return 0;
}

/* As many files as the system allows, where that is needed. */
static int allow_links(uint32_t n_links, struct quire_error *err)
{
    struct rlimit limit;
    rlim_t needed = (rlim_t)n_links + 64;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return error_set_errno(err, errno, "getrlimit", "RLIMIT_NOFILE");
    if (limit.rlim_cur >= needed)
        return 0;
    if (limit.rlim_max < needed)
        return error_set(err, QUIRE_ELIMIT, "%u connections: this process may open %llu files (ulimit -Hn)", n_links,
                         (unsigned long long)limit.rlim_max);
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
        return error_set_errno(err, errno, "setrlimit", "RLIMIT_NOFILE");
    return 0;
}

int wire_open(const struct load_options *options, uint32_t n_links, uint32_t depth, struct wire **out,
              struct quire_error *err)
{
    struct wire *wire = calloc(1, sizeof *wire);
    if (!wire)
        return error_set(err, QUIRE_ENOMEM, "no memory for connections");
    wire->last = &wire->first;
    wire->depth = depth;
    wire->epoll = epoll_create1(EPOLL_CLOEXEC);
    wire->links = calloc(n_links, sizeof *wire->links);
    wire->free = calloc(n_links, sizeof *wire->free);
    wire->dirty = calloc(n_links, sizeof *wire->dirty);
    int rc = allow_links(n_links, err);
    if (rc == 0 && wire->epoll < 0)
        rc = error_set_errno(err, errno, "epoll_create1", "");
    else if (rc == 0 && (!wire->links || !wire->free || !wire->dirty))
        rc = error_set(err, QUIRE_ENOMEM, "no memory for %u connections", n_links);
    if (rc == 0)
        rc = connect_one(options, &wire->control, err);
    for (; rc == 0 && wire->n < n_links; wire->n++)
        rc = open_link(wire, wire->n, options, err);
    if (rc == 0)
        rc = make_nonblocking(wire, err);
    if (rc < 0)
        wire_close(wire);
    else
        *out = wire;
    return rc;
}

void wire_close(struct wire *wire)
{
    if (!wire)
        return;
    for (uint32_t i = 0; i < wire->n; i++) {
        if (wire->links[i].redis)
            redisFree(wire->links[i].redis);
        free(wire->links[i].calls);
    }
    for (struct wire_waiting *w = wire->first, *next; w; w = next) {
        next = w->next;
        redisFreeSdsCommand(w->bytes);
        free(w);
    }
    if (wire->control)
        redisFree(wire->control);
    if (wire->epoll >= 0)
        close(wire->epoll);
    free(wire->links);
    free(wire->free);
    free(wire->dirty);
    free(wire);
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

static void list_free(struct wire *wire, uint32_t number)
{
    struct wire_link *link = &wire->links[number];
    if (link->has_room_listed || link->n >= wire->depth || !link->redis)
        return;
    link->has_room_listed = true;
    wire->free[(wire->free_head + wire->n_free++) % wire->n] = number;
}

/* NOT_LISTED: none. The connection goes to the end, so that calls go round. */
static uint32_t take_free(struct wire *wire)
{
    while (wire->n_free > 0) {
        uint32_t number = wire->free[wire->free_head];
        wire->free_head = (wire->free_head + 1) % wire->n;
        wire->n_free--;
        wire->links[number].has_room_listed = false;
        if (wire->links[number].redis && wire->links[number].n < wire->depth)
            return number;
    }
    return NOT_LISTED;
}

static int grow_ring(struct wire_link *link)
{
    struct wire_call_state *more = calloc(2 * (size_t)link->room, sizeof *more);
    if (!more)
        return QUIRE_ENOMEM;
    for (uint32_t i = 0; i < link->n; i++)
        more[i] = link->calls[(link->head + i) % link->room];
    free(link->calls);
    link->calls = more;
    link->head = 0;
    link->room *= 2;
    return 0;
}

static int put_call(struct wire *wire, uint32_t number, const char *bytes, size_t n, struct wire_call_state call)
{
    struct wire_link *link = &wire->links[number];
    if (link->n == link->room && grow_ring(link) < 0)
        return QUIRE_ENOMEM;
    if (redisAppendFormattedCommand(link->redis, bytes, n) != REDIS_OK)
        return QUIRE_ENOMEM;
    link->calls[(link->head + link->n++) % link->room] = call;
    if (!link->dirty) {
        link->dirty = true;
        wire->dirty[wire->n_dirty++] = number;
    }
    wire->under_way++;
    return 0;
}

static int wait_for_room(struct wire *wire, sds bytes, struct wire_call_state call)
{
    struct wire_waiting *w = malloc(sizeof *w);
    if (!w)
        return QUIRE_ENOMEM;
    *w = (struct wire_waiting){NULL, call, bytes};
    *wire->last = w;
    wire->last = &w->next;
    return 0;
}

int wire_call_on(struct wire *wire, uint32_t link, const struct wire_words *words, wire_done *done, void *owner,
                 uint64_t tag)
{
    sds bytes;
    if (redisFormatSdsCommandArgv(&bytes, words->n, (const char **)words->at, words->bytes) < 0)
        return QUIRE_ENOMEM;
    int rc = put_call(wire, link, bytes, sdslen(bytes), (struct wire_call_state){done, owner, tag});
    redisFreeSdsCommand(bytes);
    return rc;
}

int wire_call(struct wire *wire, const struct wire_words *words, wire_done *done, void *owner, uint64_t tag)
{
    uint32_t number = take_free(wire);
    sds bytes;
    if (number != NOT_LISTED) {
        int rc = wire_call_on(wire, number, words, done, owner, tag);
        list_free(wire, number);
        return rc;
    }
    if (redisFormatSdsCommandArgv(&bytes, words->n, (const char **)words->at, words->bytes) < 0)
        return QUIRE_ENOMEM;
    int rc = wait_for_room(wire, bytes, (struct wire_call_state){done, owner, tag});
    if (rc < 0)
        redisFreeSdsCommand(bytes);
    return rc;
}

void wire_drop(struct wire *wire, uint32_t link)
{
    redisFree(wire->links[link].redis);
    wire->links[link].redis = NULL;
    wire->under_way -= wire->links[link].n;
    wire->links[link].n = 0;
}

uint64_t wire_under_way(const struct wire *wire)
{
    return wire->under_way + (wire->first != NULL);
}

/* ---- the loop ---------------------------------------------------------------------------------------------------- */

/* Calls that waited for room, in their order. */
static int send_waiting(struct wire *wire)
{
    int rc = 0;
    while (rc == 0 && wire->first) {
        uint32_t number = take_free(wire);
        if (number == NOT_LISTED)
            break;
        struct wire_waiting *w = wire->first;
        rc = put_call(wire, number, w->bytes, sdslen(w->bytes), w->call);
        list_free(wire, number);
        wire->first = w->next;
        if (!wire->first)
            wire->last = &wire->first;
        redisFreeSdsCommand(w->bytes);
        free(w);
    }
    return rc;
}

static int write_link(struct wire *wire, uint32_t number, struct quire_error *err)
{
    struct wire_link *link = &wire->links[number];
    int done = 1;
    if (!link->redis)
        return 0;
    if (redisBufferWrite(link->redis, &done) != REDIS_OK)
        return error_set(err, QUIRE_EIO, "the server: %s", link->redis->errstr);
    if (link->waits_to_write != !done) {
        struct epoll_event event = {.events = done ? EPOLLIN : EPOLLIN | EPOLLOUT, .data.u32 = number};
        link->waits_to_write = !done;
        if (epoll_ctl(wire->epoll, EPOLL_CTL_MOD, link->redis->fd, &event) != 0)
            return error_set_errno(err, errno, "epoll_ctl", "connection");
    }
    return 0;
}

static int write_dirty(struct wire *wire, struct quire_error *err)
{
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < wire->n_dirty; i++) {
        wire->links[wire->dirty[i]].dirty = false;
        rc = write_link(wire, wire->dirty[i], err);
    }
    wire->n_dirty = 0;
    return rc;
}

static int read_link(struct wire *wire, uint32_t number, struct quire_error *err)
{
    struct wire_link *link = &wire->links[number];
    void *reply = NULL;
    if (redisBufferRead(link->redis) != REDIS_OK)
        return error_set(err, QUIRE_EIO, "the server: %s", link->redis->errstr);
    while (link->redis) {
        if (redisGetReplyFromReader(link->redis, &reply) != REDIS_OK)
            return error_set(err, QUIRE_EIO, "the server: %s", link->redis->errstr);
        if (!reply)
            break;
        if (link->n == 0) {
            freeReplyObject(reply);
            return error_set(err, QUIRE_EIO, "the server sent a reply that nothing was asked for");
        }
        struct wire_call_state call = link->calls[link->head];
        link->head = (link->head + 1) % link->room;
        link->n--;
        wire->under_way--;
        list_free(wire, number);
        call.done(call.owner, call.tag, reply);
        freeReplyObject(reply);
    }
    return 0;
}

int wire_poll(struct wire *wire, uint64_t timeout_ns, struct quire_error *err)
{
    struct epoll_event events[EVENTS];
    struct pollfd ready = {.fd = wire->epoll, .events = POLLIN};
    const struct timespec limit = {(time_t)(timeout_ns / 1000000000u), (long)(timeout_ns % 1000000000u)};
    if (send_waiting(wire) < 0)
        return error_set(err, QUIRE_ENOMEM, "no memory for calls");
    int rc = write_dirty(wire, err);
    if (rc < 0)
        return rc;
    if (ppoll(&ready, 1, &limit, NULL) < 0 && errno != EINTR)
        return error_set_errno(err, errno, "ppoll", "connections");
    int n = epoll_wait(wire->epoll, events, EVENTS, 0);
    if (n < 0 && errno != EINTR)
        return error_set_errno(err, errno, "epoll_wait", "connections");
    for (int i = 0; rc == 0 && i < n; i++) {
        if (wire->links[events[i].data.u32].redis && (events[i].events & EPOLLOUT))
            rc = write_link(wire, events[i].data.u32, err);
        if (rc == 0 && wire->links[events[i].data.u32].redis && (events[i].events & ~(uint32_t)EPOLLOUT))
            rc = read_link(wire, events[i].data.u32, err);
    }
    return rc;
}
