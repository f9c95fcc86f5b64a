/*
 * http_server.c - listeners, and all connections together.
 *
 * A process that has run out of descriptors stops listening for a second instead of turning its loop in vain: the
 * kernel keeps those who wait. Clients beyond connections_max are accepted, told so and closed, as a client that only
 * waits would not know why.
 */
#include "gateway/http/http_priv.h"
#include "gateway/telemetry/telemetry_log.h"
#include "io/error.h"
#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <event2/listener.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define RETRY_S 1

static void on_flush(evutil_socket_t fd, short what, void *context)
{
    struct http_server *server = context;
    (void)fd;
    (void)what;
    /* those that are marked meanwhile have their turn after other events */
    for (uint32_t n = server->n_connections; n > 0 && server->dirty; n--) {
        struct http_connection *c = server->dirty;
        http_connection_unmark(c);
        http_connection_flush(c);
    }
    if (server->dirty)
        event_active(&server->flush, EV_TIMEOUT, 1);
}

static void on_retry(evutil_socket_t fd, short what, void *context)
{
    struct http_server *server = context;
    (void)fd;
    (void)what;
    for (uint32_t i = 0; i < server->n_listeners && !server->draining; i++)
        evconnlistener_enable(server->listeners[i]);
}

static void options_fini(struct http_options *options)
{
    free((void *)options->tls_cert);
    free((void *)options->tls_key);
    free((void *)options->allow_origin);
}

static int options_copy(struct http_options *to, const struct http_options *from, struct quire_error *err)
{
    *to = *from;
    to->tls_cert = from->tls_cert ? strdup(from->tls_cert) : NULL;
    to->tls_key = from->tls_key ? strdup(from->tls_key) : NULL;
    to->allow_origin = from->allow_origin ? strdup(from->allow_origin) : NULL;
    if ((from->tls_cert && !to->tls_cert) || (from->tls_key && !to->tls_key) ||
        (from->allow_origin && !to->allow_origin)) {
        options_fini(to);
        return error_set(err, QUIRE_ENOMEM, "no memory for the server's options");
    }
    return 0;
}

int http_server_create(struct event_base *base, const struct http_options *options,
                       const struct http_handlers *handlers, void *context, struct http_server **out,
                       struct quire_error *err)
{
    assert(options->head_max > 0 && options->fields_max > 0);
    struct http_server *server = calloc(1, sizeof *server);
    if (!server)
        return error_set(err, QUIRE_ENOMEM, "no memory for the server");
    int rc = options_copy(&server->options, options, err);
    if (rc == 0 && (rc = http_tls_create(options, &server->tls, err)) < 0)
        options_fini(&server->options);
    if (rc < 0) {
        free(server);
        return rc;
    }
    server->base = base;
    server->handlers = *handlers;
    server->context = context;
    server->dirty_end = &server->dirty;
    evtimer_assign(&server->flush, base, on_flush, server);
    evtimer_assign(&server->retry, base, on_retry, server);
    *out = server;
    return 0;
}

int http_server_set(struct http_server *server, const struct http_options *options, struct quire_error *err)
{
    struct http_options copy;
    SSL_CTX *tls;
    if ((server->tls != NULL) != (options->tls_cert != NULL))
        return error_set(err, QUIRE_EINVALID, "TLS is switched on and off at a start only");
    int rc = options_copy(&copy, options, err);
    if (rc == 0 && (rc = http_tls_create(options, &tls, err)) < 0)
        options_fini(&copy);
    if (rc < 0)
        return rc;
    SSL_CTX_free(server->tls);
    options_fini(&server->options);
    server->tls = tls;
    server->options = copy;
    return 0;
}

static void close_listeners(struct http_server *server)
{
    for (uint32_t i = 0; i < server->n_listeners; i++) {
        evconnlistener_free(server->listeners[i]);
        if (server->sockets[i])
            unlink(server->sockets[i]);
        free(server->sockets[i]);
    }
    server->n_listeners = 0;
}

void http_server_destroy(struct http_server *server)
{
    if (!server)
        return;
    server->draining = true;
    close_listeners(server);
    while (server->connections)
        http_connection_close(server->connections);
    assert(server->n_connections == 0 && server->n_requests == 0 && server->body_bytes == 0 && !server->dirty);
    event_del(&server->flush);
    event_del(&server->retry);
    SSL_CTX_free(server->tls);
    options_fini(&server->options);
    free(server);
}

/* ---- accepting ---- */

static void name_peer(const struct sockaddr *address, char *out, size_t out_bytes)
{
    char host[INET6_ADDRSTRLEN] = "";
    if (address->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const void *)address;
        inet_ntop(AF_INET, &in->sin_addr, host, sizeof host);
        snprintf(out, out_bytes, "%s:%u", host, ntohs(in->sin_port));
    } else if (address->sa_family == AF_INET6) {
        const struct sockaddr_in6 *in = (const void *)address;
        inet_ntop(AF_INET6, &in->sin6_addr, host, sizeof host);
        snprintf(out, out_bytes, "[%s]:%u", host, ntohs(in->sin6_port));
    } else
        snprintf(out, out_bytes, "unix");
}

static void adopt(struct http_server *server, int fd, const char *peer)
{
    bool crowded = server->n_connections >= server->options.connections_max;
    struct http_connection *c = http_connection_create(server, fd, peer);
    if (!c)
        telemetry_log(TELEMETRY_WARNING, "%s: no memory for the connection", peer);
    else if (crowded && c->tls)
        http_connection_close(c);
    else if (crowded)
        http_connection_refuse(c, 503, "connections-max clients are connected");
}

static void on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *address, int bytes,
                      void *context)
{
    char peer[64];
    (void)listener;
    (void)bytes;
    name_peer(address, peer, sizeof peer);
    adopt(context, fd, peer);
}

static void on_accept_error(struct evconnlistener *listener, void *context)
{
    struct http_server *server = context;
    struct timeval tv = {RETRY_S, 0};
    telemetry_log(TELEMETRY_WARNING, "accepting failed: %s; tried again in %d s", strerror(errno), RETRY_S);
    (void)listener;
    for (uint32_t i = 0; i < server->n_listeners; i++)
        evconnlistener_disable(server->listeners[i]);
    evtimer_add(&server->retry, &tv);
}

int http_server_adopt(struct http_server *server, int fd, struct quire_error *err)
{
    evutil_make_socket_nonblocking(fd);
    uint32_t before = server->n_connections;
    adopt(server, fd, "unix");
    return server->n_connections > before ? 0 : error_set(err, QUIRE_ENOMEM, "no memory for the connection");
}

/* ---- listening ---- */

/* A stale socket file, which nobody answers, is removed. */
static int bind_unix(int fd, const char *path, struct quire_error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct stat stat;
    if (strlen(path) >= sizeof address.sun_path)
        return error_set(err, QUIRE_EINVALID, "listen unix:%s: a path has at most %zu bytes", path,
                         sizeof address.sun_path - 1);
    memcpy(address.sun_path, path, strlen(path) + 1);
    if (lstat(path, &stat) == 0 && S_ISSOCK(stat.st_mode)) {
        int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        bool stale =
            probe >= 0 && connect(probe, (struct sockaddr *)&address, sizeof address) < 0 && errno == ECONNREFUSED;
        if (probe >= 0)
            close(probe);
        if (stale)
            unlink(path);
    }
    if (bind(fd, (struct sockaddr *)&address, sizeof address) < 0)
        return error_set_errno(err, errno, "listen on", path);
    return 0;
}

/* "127.0.0.1:8080" or "[::1]:8080": numbers only, so that nothing is resolved. */
static int resolve(const char *text, struct addrinfo **out, struct quire_error *err)
{
    char host[128];
    const char *colon = strrchr(text, ':');
    size_t n = colon ? (size_t)(colon - text) : 0;
    if (!colon || n == 0 || n >= sizeof host || !colon[1])
        return error_set(err, QUIRE_EINVALID, "listen %s: not address:port, [address]:port or unix:/path", text);
    memcpy(host, text, n);
    host[n] = 0;
    char *address = host;
    if (host[0] == '[' && host[n - 1] == ']') {
        host[n - 1] = 0;
        address = host + 1;
    }
    char *end;
    unsigned long port = strtoul(colon + 1, &end, 10);
    if (*end || port > 65535)
        return error_set(err, QUIRE_EINVALID, "listen %s: a port is 0 to 65535", text);
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE, .ai_socktype = SOCK_STREAM};
    int rc = getaddrinfo(strcmp(address, "localhost") == 0 ? "127.0.0.1" : address, colon + 1, &hints, out);
    if (rc != 0)
        return error_set(err, QUIRE_EINVALID, "listen %s: not a numeric address (127.0.0.1, [::1], 0.0.0.0)", text);
    return 0;
}

static int bind_tcp(struct http_server *server, const char *text, int *out, struct quire_error *err)
{
    struct addrinfo *address = NULL;
    int yes = 1, rc = resolve(text, &address, err);
    if (rc < 0)
        return rc;
    int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        rc = error_set_errno(err, errno, "listen on", text);
    if (rc == 0) {
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
        if (address->ai_family == AF_INET6)
            setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof yes);
        if (server->options.reuse_port && setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &yes, sizeof yes) < 0)
            rc = error_set_errno(err, errno, "share (reuse-port)", text);
    }
    if (rc == 0 && bind(fd, address->ai_addr, address->ai_addrlen) < 0)
        rc = error_set_errno(err, errno, "listen on", text);
    freeaddrinfo(address);
    if (rc < 0 && fd >= 0)
        close(fd);
    else
        *out = fd;
    return rc;
}

static void note_port(struct http_server *server, int fd)
{
    struct sockaddr_storage address = {0};
    socklen_t bytes = sizeof address;
    if (server->port != 0 || getsockname(fd, (struct sockaddr *)&address, &bytes) < 0)
        return;
    if (address.ss_family == AF_INET)
        server->port = ntohs(((struct sockaddr_in *)&address)->sin_port);
    else if (address.ss_family == AF_INET6)
        server->port = ntohs(((struct sockaddr_in6 *)&address)->sin6_port);
}

int http_server_listen(struct http_server *server, const char *address, struct quire_error *err)
{
    int fd = -1, rc = 0;
    char *path = NULL;
    if (server->n_listeners == HTTP_LISTENERS)
        return error_set(err, QUIRE_ELIMIT, "listen %s: at most %u addresses", address, HTTP_LISTENERS);
    if (strncmp(address, "unix:", 5) == 0) {
        fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        rc = fd < 0                          ? error_set_errno(err, errno, "listen on", address)
             : !(path = strdup(address + 5)) ? error_set(err, QUIRE_ENOMEM, "no memory to listen on %s", address)
                                             : bind_unix(fd, address + 5, err);
    } else
        rc = bind_tcp(server, address, &fd, err);
    struct evconnlistener *listener = NULL;
    if (rc == 0) {
        listener = evconnlistener_new(server->base, on_accept, server, LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC,
                                      server->options.backlog, fd);
        if (!listener)
            rc = error_set_errno(err, errno, "listen on", address);
    }
    if (rc < 0) {
        if (fd >= 0)
            close(fd);
        free(path);
        return rc;
    }
    evconnlistener_set_error_cb(listener, on_accept_error);
    server->sockets[server->n_listeners] = path;
    server->listeners[server->n_listeners++] = listener;
    note_port(server, fd);
    return 0;
}

uint16_t http_server_port(const struct http_server *server)
{
    return server->port;
}

/* ---- all of them ---- */

void http_server_drain(struct http_server *server)
{
    server->draining = true;
    close_listeners(server);
    event_del(&server->retry);
    for (struct http_connection *c = server->connections, *next; c; c = next) {
        next = c->next;
        if (c->stage == HTTP_IDLE)
            http_connection_close(c);
    }
}

uint32_t http_server_connections(const struct http_server *server)
{
    return server->n_connections;
}

uint64_t http_server_body_bytes(const struct http_server *server)
{
    return server->body_bytes;
}

uint32_t http_server_requests(const struct http_server *server)
{
    return server->n_requests;
}

void http_server_each(struct http_server *server, void (*each)(void *context, struct http_request *r), void *context)
{
    for (struct http_connection *c = server->connections; c; c = c->next) {
        if (c->stage == HTTP_OWNED)
            each(context, c->request);
    }
}
