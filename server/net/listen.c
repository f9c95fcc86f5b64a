/*
 * listen.c - the listening sockets, and who may be listened to.
 *
 * Protected mode is decided here, before anything listens: an address beyond loopback needs a password, or the
 * operator's word that the network is safe. A server that is reachable by mistake is worse than one that does not
 * start. Addresses are numbers, not names: what a name resolves to may change, and would be asked for while starting.
 *
 * A Unix socket is a file, whose permission says who may connect: it is made with none and gets its own when all is
 * there, so that there is no moment at which others may. What a server that was killed has left is replaced; what
 * answers, or is no socket, is not. At the end the file goes if it is still this server's.
 */
#include "io/error.h"
#include "server/net/loop.h"
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

bool listen_is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)address;
        return ntohl(in->sin_addr.s_addr) >> 24 == 127;
    }
    if (address->sa_family == AF_UNIX)
        return true;
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)(const void *)address;
    return IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr);
}

static unsigned port_of(int fd)
{
    struct sockaddr_storage address;
    memset(&address, 0, sizeof address);
    socklen_t bytes = sizeof address;
    if (getsockname(fd, (struct sockaddr *)&address, &bytes) < 0)
        return 0;
    if (address.ss_family == AF_INET)
        return ntohs(((struct sockaddr_in *)&address)->sin_port);
    return ntohs(((struct sockaddr_in6 *)&address)->sin6_port);
}

/* Where sockets of one kind go. */
struct sockets {
    const char *setting; /* that names the addresses, for errors */
    const char *port_setting;
    int *fds;
    unsigned *n, *port; /* port 0 becomes what the first address got */
    bool guarded;       /* commands are run there: beyond loopback a password is needed */
};

/* 1: the machine has no such address, and `optional` says that this is fine. */
static int bind_and_listen(const struct server *server, const struct sockets *s, const struct addrinfo *info,
                           const char *name, bool optional, struct quire_error *err)
{
    int one = 1, fd = socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char where[160];
    snprintf(where, sizeof where, "%.100s port %u", name, *s->port);
    if (fd < 0 && optional && errno == EAFNOSUPPORT)
        return 1;
    if (fd < 0)
        return error_set_errno(err, errno, "make a socket for", where);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (info->ai_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
    if (bind(fd, info->ai_addr, info->ai_addrlen) == 0 && listen(fd, (int)server->service.config->tcp_backlog) == 0) {
        s->fds[(*s->n)++] = fd;
        return 0;
    }
    int errnum = errno;
    close(fd);
    if (optional && errnum == EADDRNOTAVAIL)
        return 1;
    if (errnum == EADDRINUSE)
        return error_set(err, QUIRE_EADDRINUSE, "%s is in use: stop what listens there, or choose another with --%s%s",
                         where, s->port_setting, s->guarded ? " (0: any free one)" : "");
    return error_set_errno(err, errnum, "listen on", where);
}

static int open_one(struct server *server, const struct sockets *s, const char *name, struct quire_error *err)
{
    const struct config *config = server->service.config;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_PASSIVE}, *info = NULL;
    char port[16];
    if (*s->n == LISTENERS_MAX)
        return error_set(err, QUIRE_ELIMIT, "%s: more than %d addresses and ports", s->setting, LISTENERS_MAX);
    snprintf(port, sizeof port, "%u", *s->port);
    bool optional = name[0] == '-'; /* as in redis.conf: left out where the machine has no such address */
    name += optional;
    if (getaddrinfo(name, port, &hints, &info) != 0 || !info)
        return error_set(err, QUIRE_EINVALID, "%s: '%.100s' is not an IPv4 or IPv6 address", s->setting, name);
    int rc;
    bool beyond = s->guarded && !listen_is_loopback(info->ai_addr);
    if (s->guarded && config->protected_mode && acl_default_is_open(&server->acl) && !listen_is_loopback(info->ai_addr))
        rc = error_set(err, QUIRE_EPERM,
                       "bind: %.100s is beyond loopback and the default user has no password: set requirepass, or "
                       "protected-mode no where the network itself keeps strangers out",
                       name);
    else
        rc = bind_and_listen(server, s, info, name, optional, err);
    freeaddrinfo(info);
    server->listens_beyond |= rc == 0 && beyond;
    if (rc == 1)
        return 0;
    if (rc == 0)
        *s->port = port_of(s->fds[*s->n - 1]); /* with port 0 the first address chooses for all */
    return rc;
}

/* Opens one socket per address of a list that is parted by blanks. */
static int open_list(struct server *server, const struct sockets *s, const char *rest, struct quire_error *err)
{
    int rc = 0;
    while (rc == 0) {
        char name[128];
        rest += strspn(rest, " ");
        size_t bytes = strcspn(rest, " ");
        if (bytes == 0)
            break;
        if (bytes >= sizeof name)
            return error_set(err, QUIRE_EINVALID, "%s: an address of %zu bytes", s->setting, bytes);
        memcpy(name, rest, bytes);
        name[bytes] = 0;
        rest += bytes;
        rc = open_one(server, s, name, err);
    }
    if (rc == 0 && *s->n == 0)
        rc = error_set(err, QUIRE_EINVALID, "%s: no address to listen on", s->setting);
    return rc;
}

/* ---- a Unix socket ----------------------------------------------------------------------------------------------- */

/* Octal, as chmod takes it. */
static int permission_of(const char *text, mode_t *out, struct quire_error *err)
{
    char *end;
    unsigned long mode = strtoul(text, &end, 8);
    if (text[0] < '0' || text[0] > '7' || *end || mode > 0777)
        return error_set(err, QUIRE_EINVALID, "unixsocketperm is '%.40s': give octal digits from 0 to 777, such as 700",
                         text);
    *out = (mode_t)mode;
    return 0;
}

/* Removes the socket that a server which is gone has left at `path`. */
static int clear_path(const char *path, const struct sockaddr_un *address, struct quire_error *err)
{
    struct stat status;
    if (lstat(path, &status) < 0)
        return errno == ENOENT ? 0 : error_set_errno(err, errno, "look at unixsocket", path);
    if (!S_ISSOCK(status.st_mode))
        return error_set(err, QUIRE_EEXISTS,
                         "unixsocket: %s is there and is no socket: remove it, or choose another path", path);
    int errnum = 0;
    /* of a server that was killed just now the kernel may hold the socket a moment longer */
    for (unsigned tries = 0; errnum != ECONNREFUSED && tries < 10; tries++) {
        if (tries > 0)
            usleep(50000);
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0)
            return error_set_errno(err, errno, "make a socket for", path);
        errnum = connect(fd, (const struct sockaddr *)address, sizeof *address) < 0 ? errno : 0;
        close(fd);
    }
    if (errnum != ECONNREFUSED) /* EAGAIN: its queue is full; EACCES: whoever it is */
        return error_set(err, QUIRE_EADDRINUSE,
                         "unixsocket %s is in use: stop what listens there, or choose another path", path);
    return unlink(path) == 0 ? 0 : error_set_errno(err, errno, "remove the socket that nobody listens on,", path);
}

/* The file is there and listens; it gets its permission. mode 0: it has what the umask left it. */
static int adopt_socket(struct server *server, const char *path, mode_t mode, struct quire_error *err)
{
    struct stat status;
    if ((mode && chmod(path, mode) < 0) || lstat(path, &status) < 0) {
        int rc = error_set_errno(err, errno, "set unixsocketperm of", path);
        unlink(path);
        return rc;
    }
    server->unix_path = strdup(path);
    if (!server->unix_path) {
        unlink(path);
        return error_set(err, QUIRE_ENOMEM, "no memory for the path of a socket");
    }
    server->unix_device = status.st_dev;
    server->unix_inode = status.st_ino;
    return 0;
}

static int open_unix(struct server *server, struct quire_error *err)
{
    const struct config *config = server->service.config;
    const char *path = config->unixsocket;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    mode_t mode = 0;
    size_t bytes = strlen(path);
    int rc = permission_of(config->unixsocketperm, &mode, err);
    if (rc < 0)
        return rc;
    if (bytes >= sizeof address.sun_path)
        return error_set(err, QUIRE_ELIMIT, "unixsocket: a path of %zu bytes; at most %zu are possible: %.40s...",
                         bytes, sizeof address.sun_path - 1, path);
    if (server->n_listeners == LISTENERS_MAX)
        return error_set(err, QUIRE_ELIMIT, "unixsocket: more than %d addresses and ports", LISTENERS_MAX);
    memcpy(address.sun_path, path, bytes);
    rc = clear_path(path, &address, err);
    if (rc < 0)
        return rc;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return error_set_errno(err, errno, "make a socket for", path);
    /* of a socket that is not bound yet fchmod sets what its file will have: nothing, so far */
    if ((mode && fchmod(fd, 0) < 0) || bind(fd, (struct sockaddr *)&address, sizeof address) < 0)
        rc = error_set_errno(err, errno, "listen on unixsocket", path);
    else if (listen(fd, (int)config->tcp_backlog) < 0) {
        rc = error_set_errno(err, errno, "listen on unixsocket", path);
        unlink(path);
    } else
        rc = adopt_socket(server, path, mode, err);
    if (rc < 0) {
        close(fd);
        return rc;
    }
    server->listeners[server->n_listeners++] = fd;
    return 0;
}

static void close_unix(struct server *server)
{
    struct stat status;
    if (!server->unix_path)
        return;
    if (lstat(server->unix_path, &status) == 0 && status.st_dev == server->unix_device &&
        status.st_ino == server->unix_inode)
        unlink(server->unix_path);
    free(server->unix_path);
    server->unix_path = NULL;
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

int listen_open(struct server *server, struct quire_error *err)
{
    struct config *config = server->service.config;
    unsigned port = (unsigned)config->port, tls_port = (unsigned)config->tls_port, n_plain;
    const struct sockets plain = {"bind", "port", server->listeners, &server->n_listeners, &port, true};
    const struct sockets tls = {"bind", "tls-port", server->listeners, &server->n_listeners, &tls_port, true};
    const struct sockets scrapers = {
        "metrics-bind",        "metrics-port", server->metrics_listeners, &server->n_metrics_listeners,
        &server->metrics_port, false};
    int rc = 0;
    server->metrics_port = (unsigned)config->metrics_port;
    config->port_found = port == 0;
    /* with TLS or a Unix socket, port 0 is what it is to Redis: no plain connections */
    if (port != 0 || (tls_port == 0 && !config->unixsocket[0]))
        rc = open_list(server, &plain, config->bind, err);
    n_plain = server->n_listeners;
    if (rc == 0 && tls_port != 0)
        rc = open_list(server, &tls, config->bind, err);
    for (unsigned i = n_plain; i < server->n_listeners; i++)
        server->listeners_tls[i] = true;
    if (rc == 0 && config->unixsocket[0])
        rc = open_unix(server, err);
    if (rc == 0 && server->metrics_port != 0)
        rc = open_list(server, &scrapers, config->metrics_bind, err);
    config->port = port;
    server->port = port ? port : tls_port;
    return rc;
}

void listen_close(struct server *server)
{
    while (server->n_listeners > 0)
        close(server->listeners[--server->n_listeners]);
    close_unix(server);
    while (server->n_metrics_listeners > 0)
        close(server->metrics_listeners[--server->n_metrics_listeners]);
}
