/*
 * top_link.c - connect, AUTH, INFO, and again: one request under way at a time, every wait with a deadline.
 *
 * Each address of a name is tried in turn. AUTH and CLIENT SETNAME go out with the connection and their replies are
 * read before INFO's: a wrong password is an error, a server that refuses the name is not. There is no TLS here: a
 * server that listens with TLS only has a unix socket, or a port on loopback, for its own machine.
 */
#include "tools/top/top_link.h"
#include "io/array.h"
#include "io/clock.h"
#include "io/error.h"
#include "tools/top/top_reply.h"
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define READ_BYTES 65536u
#define TLS_ALERT  0x15 /* the first byte of what TLS answers to anything else */

static const char *const sections[] = {"INFO",   "server", "clients", "memory",      "persistence",
                                       "damage", "stats",  "cpu",     "search",      "keyspace",
                                       "quire",  "cache",  "tenants", "commandstats"};

void top_link_init(struct top_link *link, const struct top_address *address)
{
    *link = (struct top_link){.address = *address, .fd = -1};
    if (address->unix_path)
        snprintf(link->name, sizeof link->name, "%s", address->unix_path);
    else
        snprintf(link->name, sizeof link->name, strchr(address->host, ':') ? "[%s]:%u" : "%s:%u", address->host,
                 address->port);
}

static void forget_found(struct top_link *link)
{
    if (link->found)
        freeaddrinfo(link->found);
    link->found = link->next = NULL;
}

void top_link_close(struct top_link *link)
{
    if (link->fd >= 0)
        close(link->fd);
    forget_found(link);
    link->fd = -1;
    link->state = TOP_LINK_DOWN;
    link->out_bytes = link->out_sent = link->in_bytes = 0;
    link->auth_pending = link->name_pending = link->ended = false;
}

void top_link_fini(struct top_link *link)
{
    top_link_close(link);
    array_free_all(link->out, link->in);
    link->out = link->in = NULL;
}

static int gone(struct top_link *link, struct quire_error *err, int errnum, const char *what)
{
    top_link_close(link);
    return error_set(err, QUIRE_ENET, "%s: %s: %s", link->name, what, strerror(errnum));
}

static bool put_bytes(struct top_link *link, const char *bytes, size_t n)
{
    if (!array_reserve(&link->out, &link->out_capacity, link->out_bytes + n))
        return false;
    memcpy(link->out + link->out_bytes, bytes, n);
    link->out_bytes += n;
    return true;
}

static int put_request(struct top_link *link, const char *const *words, size_t n, struct quire_error *err)
{
    char head[32];
    bool ok = put_bytes(link, head, (size_t)snprintf(head, sizeof head, "*%zu\r\n", n));
    for (size_t i = 0; i < n && ok; i++)
        ok = put_bytes(link, head, (size_t)snprintf(head, sizeof head, "$%zu\r\n", strlen(words[i]))) &&
             put_bytes(link, words[i], strlen(words[i])) && put_bytes(link, "\r\n", 2);
    if (ok)
        return 0;
    top_link_close(link);
    return error_set(err, QUIRE_ENOMEM, "no memory for a request");
}

static void wait_anew(struct top_link *link)
{
    link->deadline_ns = clock_ns() + TOP_LINK_WAIT_MS * 1000000ull;
}

/* AUTH and a name for CLIENT LIST, to be sent when the connection stands. */
static int greet(struct top_link *link, struct quire_error *err)
{
    const char *const by_user[] = {"AUTH", link->address.user, link->address.password};
    const char *const by_password[] = {"AUTH", link->address.password};
    const char *const named[] = {"CLIENT", "SETNAME", "quire-top"};
    int rc = 0;
    link->said[0] = 0;
    link->auth_pending = link->address.password != NULL;
    link->name_pending = true;
    if (link->auth_pending)
        rc = link->address.user ? put_request(link, by_user, 3, err) : put_request(link, by_password, 2, err);
    return rc == 0 ? put_request(link, named, 3, err) : rc;
}

/* A socket that begins to connect. 0, or a positive errno. */
static int begin(struct top_link *link, int family, const struct sockaddr *address, socklen_t bytes)
{
    int one = 1;
    if (link->fd >= 0)
        close(link->fd);
    link->fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (link->fd < 0)
        return errno;
    if (family != AF_UNIX)
        setsockopt(link->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (connect(link->fd, address, bytes) < 0 && errno != EINPROGRESS)
        return errno;
    link->state = TOP_LINK_CONNECTING;
    wait_anew(link);
    return 0;
}

/* The next address that a connection can at least begin to. */
static int begin_next(struct top_link *link, int errnum, struct quire_error *err)
{
    while (link->next) {
        const struct addrinfo *at = link->next;
        link->next = at->ai_next;
        errnum = begin(link, at->ai_family, at->ai_addr, at->ai_addrlen);
        if (errnum == 0)
            return 0;
    }
    return gone(link, err, errnum, "cannot connect");
}

static int open_unix(struct top_link *link, struct quire_error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t bytes = strlen(link->address.unix_path);
    if (bytes >= sizeof address.sun_path)
        return error_set(err, QUIRE_EINVALID, "the path of a socket has at most %zu bytes, not %zu: %s",
                         sizeof address.sun_path - 1, bytes, link->address.unix_path);
    memcpy(address.sun_path, link->address.unix_path, bytes + 1);
    int errnum = begin(link, AF_UNIX, (const struct sockaddr *)&address, sizeof address);
    return errnum == 0 ? 0 : gone(link, err, errnum, "cannot connect");
}

int top_link_open(struct top_link *link, struct quire_error *err)
{
    assert(link->state == TOP_LINK_DOWN && link->fd < 0);
    if (link->address.unix_path) {
        int rc = open_unix(link, err);
        return rc == 0 ? greet(link, err) : rc;
    }
    char port[8];
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    snprintf(port, sizeof port, "%u", link->address.port);
    int found = getaddrinfo(link->address.host, port, &hints, &link->found);
    if (found != 0) {
        link->found = NULL;
        return error_set(err, QUIRE_ENET, "there is no host %s: %s", link->address.host, gai_strerror(found));
    }
    link->next = link->found;
    int rc = begin_next(link, 0, err);
    return rc == 0 ? greet(link, err) : rc;
}

int top_link_ask(struct top_link *link, struct quire_error *err)
{
    assert(link->state == TOP_LINK_READY);
    int rc = put_request(link, sections, sizeof sections / sizeof *sections, err);
    if (rc < 0)
        return rc;
    link->state = TOP_LINK_ASKED;
    wait_anew(link);
    return 0;
}

short top_link_events(const struct top_link *link)
{
    if (link->state == TOP_LINK_CONNECTING)
        return POLLOUT;
    return (short)(POLLIN | (link->out_sent < link->out_bytes ? POLLOUT : 0));
}

/* ---- going on ---------------------------------------------------------------------------------------------------- */

/* Whether the connection stands now. 1 yes, 0 not yet, or an error. */
static int check_connected(struct top_link *link, struct quire_error *err)
{
    struct pollfd ready = {.fd = link->fd, .events = POLLOUT};
    int errnum = 0;
    socklen_t bytes = sizeof errnum;
    if (poll(&ready, 1, 0) <= 0 || ready.revents == 0)
        return 0;
    if (getsockopt(link->fd, SOL_SOCKET, SO_ERROR, &errnum, &bytes) < 0)
        errnum = errno;
    if (errnum != 0)
        return begin_next(link, errnum, err);
    forget_found(link);
    link->state = TOP_LINK_READY;
    return 1;
}

static int send_rest(struct top_link *link, struct quire_error *err)
{
    while (link->out_sent < link->out_bytes) {
        ssize_t n = send(link->fd, link->out + link->out_sent, link->out_bytes - link->out_sent, MSG_NOSIGNAL);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return 0;
        if (n < 0)
            return gone(link, err, errno, "the connection is gone");
        link->out_sent += (size_t)n;
    }
    link->out_bytes = link->out_sent = 0;
    return 0;
}

/* What has come, up to the end of it. */
static int receive(struct top_link *link, struct quire_error *err)
{
    while (!link->ended) {
        if (link->in_bytes > TOP_REPLY_BYTES_MAX + TOP_REPLY_LINE_MAX) {
            top_link_close(link);
            return error_set(err, QUIRE_ELIMIT,
                             "%s: a reply of more than %u bytes, which no INFO of a quire-server has", link->name,
                             TOP_REPLY_BYTES_MAX);
        }
        if (!array_reserve(&link->in, &link->in_capacity, link->in_bytes + READ_BYTES)) {
            top_link_close(link);
            return error_set(err, QUIRE_ENOMEM, "no memory for a reply of more than %zu bytes", link->in_bytes);
        }
        ssize_t n = recv(link->fd, link->in + link->in_bytes, READ_BYTES, 0);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return 0;
        link->ended = n <= 0;
        link->ended_by = n < 0 ? errno : 0;
        link->in_bytes += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

static void drop_bytes(struct top_link *link, size_t n)
{
    assert(n <= link->in_bytes);
    memmove(link->in, link->in + n, link->in_bytes - n);
    link->in_bytes -= n;
}

static void remember_error(struct top_link *link, const struct top_reply *reply)
{
    size_t n = reply->bytes < sizeof link->said - 1 ? reply->bytes : sizeof link->said - 1;
    for (size_t i = 0; i < n; i++)
        link->said[i] = reply->text[i] >= ' ' && reply->text[i] < 0x7f ? reply->text[i] : '?';
    link->said[n] = 0;
}

/* An error of the server, with the remedy where it is known. */
static int refused(struct top_link *link, struct quire_error *err)
{
    const char *remedy = strncmp(link->said, "NOAUTH", 6) == 0   ? " (--password-file FILE, or QUIRE_PASSWORD)"
                         : strncmp(link->said, "NOPERM", 6) == 0 ? " (the user needs the right to INFO: +info)"
                                                                 : "";
    top_link_close(link);
    return error_set(err, QUIRE_EPERM, "%s: %s%s", link->name, link->said, remedy);
}

/* After the last reply. */
static int ended(struct top_link *link, struct quire_error *err)
{
    if (link->ended_by)
        return gone(link, err, link->ended_by, "the connection is gone");
    top_link_close(link);
    return error_set(err, QUIRE_ENET, "%s: the server has closed the connection%s%s", link->name,
                     *link->said ? ": " : "", link->said);
}

/* The replies that are whole. */
static int take_replies(struct top_link *link, const char **text, size_t *bytes, struct quire_error *err)
{
    struct top_reply reply;
    size_t consumed;
    enum top_reply_status status;
    while ((status = top_reply_parse(link->in, link->in_bytes, &reply, &consumed)) == TOP_REPLY_DONE) {
        bool auth = link->auth_pending, name = !auth && link->name_pending;
        if (reply.type == '-')
            remember_error(link, &reply);
        if (reply.type == '-' && (!name || strncmp(link->said, "NOAUTH", 6) == 0))
            return refused(link, err);
        if (auth || name) {
            link->auth_pending = false;
            link->name_pending = auth;
            drop_bytes(link, consumed);
            continue;
        }
        if (link->state != TOP_LINK_ASKED || reply.type != '$' || !reply.text) {
            status = TOP_REPLY_BROKEN;
            break;
        }
        /* nothing else is under way, so the text may stay where it is until the next turn */
        *text = reply.text;
        *bytes = reply.bytes;
        link->in_bytes = 0;
        link->state = TOP_LINK_READY;
        return TOP_LINK_REPLY;
    }
    if (status == TOP_REPLY_BROKEN) {
        bool tls = link->in[0] == TLS_ALERT;
        top_link_close(link);
        return error_set(
            err, QUIRE_EFORMAT,
            tls ? "%s: the port speaks TLS, which quire top does not: ask on loopback or by the Unix socket"
                : "%s: what answers there is no quire-server: it does not speak RESP",
            link->name);
    }
    return link->ended ? ended(link, err) : TOP_LINK_NOTHING;
}

int top_link_turn(struct top_link *link, const char **text, size_t *bytes, struct quire_error *err)
{
    int rc = 0;
    if (link->state == TOP_LINK_CONNECTING)
        rc = check_connected(link, err);
    if (rc >= 0 && (link->state == TOP_LINK_READY || link->state == TOP_LINK_ASKED)) {
        rc = send_rest(link, err);
        if (rc == 0)
            rc = receive(link, err);
        if (rc == 0)
            rc = take_replies(link, text, bytes, err);
        if (rc != TOP_LINK_NOTHING)
            return rc;
    }
    bool waits = link->state == TOP_LINK_CONNECTING || link->state == TOP_LINK_ASKED;
    if (rc >= 0 && waits && clock_ns() >= link->deadline_ns) {
        const char *what = link->state == TOP_LINK_ASKED ? "answer" : "connection";
        top_link_close(link);
        return error_set(err, QUIRE_ETIMEOUT, "%s: no %s within %u seconds", link->name, what, TOP_LINK_WAIT_MS / 1000);
    }
    return rc < 0 ? rc : TOP_LINK_NOTHING;
}
