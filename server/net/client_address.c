/*
 * client_address.c - where a client comes from, as logs and CLIENT LIST show it.
 */
#include "server/net/client.h"
#include <arpa/inet.h>
#include <stdio.h>
#include <sys/socket.h>

void client_address(const struct client *c, bool ours, char text[CLIENT_ADDRESS_BYTES])
{
    struct sockaddr_storage address = {0};
    socklen_t bytes = sizeof address;
    char number[INET6_ADDRSTRLEN] = "?";
    int rc = ours ? getsockname(c->fd, (struct sockaddr *)&address, &bytes)
                  : getpeername(c->fd, (struct sockaddr *)&address, &bytes);
    const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)&address;
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)(const void *)&address;
    if (rc == 0 && address.ss_family == AF_INET6) {
        inet_ntop(AF_INET6, &in6->sin6_addr, number, sizeof number);
        snprintf(text, CLIENT_ADDRESS_BYTES, "[%s]:%u", number, ntohs(in6->sin6_port));
    } else if (rc == 0 && address.ss_family == AF_INET) {
        inet_ntop(AF_INET, &in->sin_addr, number, sizeof number);
        snprintf(text, CLIENT_ADDRESS_BYTES, "%s:%u", number, ntohs(in->sin_port));
    } else if (rc == 0 && address.ss_family == AF_UNIX && c->loop->server->unix_path) {
        snprintf(text, CLIENT_ADDRESS_BYTES, "%s:0", c->loop->server->unix_path); /* both, as Redis says it */
    } else {
        snprintf(text, CLIENT_ADDRESS_BYTES, "?:0");
    }
}

bool client_is_unix(const struct client *c)
{
    int domain = AF_UNSPEC;
    socklen_t bytes = sizeof domain;
    return getsockopt(c->fd, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) == 0 && domain == AF_UNIX;
}
