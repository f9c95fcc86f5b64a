/*
 * notify.c - the protocol of sd_notify(3), by hand: one datagram to the socket that $NOTIFY_SOCKET names.
 *
 * A path, or a name in the abstract space where it begins with '@'. libsystemd would bring a dependency for these
 * lines. The variables stay set: a program that is asked twice gives the same answer.
 */
#include "io/notify.h"
#include "io/error.h"
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int notify_send(const char *lines, struct quire_error *err)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    size_t bytes = path ? strlen(path) : 0;
    if (bytes == 0)
        return 0;
    if ((path[0] != '/' && path[0] != '@') || bytes >= sizeof to.sun_path)
        return error_set(err, QUIRE_EINVALID, "NOTIFY_SOCKET is no path of at most %zu bytes: %.120s",
                         sizeof to.sun_path - 1, path);
    memcpy(to.sun_path, path, bytes);
    if (path[0] == '@')
        to.sun_path[0] = 0;
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return error_set_errno(err, errno, "make a socket for", path);
    int rc = 0;
    if (sendto(fd, lines, strlen(lines), MSG_NOSIGNAL, (struct sockaddr *)&to,
               (socklen_t)(offsetof(struct sockaddr_un, sun_path) + bytes)) < 0)
        rc = error_set_errno(err, errno, "notify", path);
    close(fd);
    return rc;
}

uint64_t notify_watchdog_us(void)
{
    const char *usec = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
    if (!usec || (pid && strtoll(pid, NULL, 10) != (long long)getpid()))
        return 0;
    return strtoull(usec, NULL, 10) / 4;
}
