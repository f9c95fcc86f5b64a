/* redis_tls.h - TLS on a connection of hiredis: its requests out, its replies in, the server's certificate checked. */
#ifndef QUIRE_TOOLS_RECORDS_REDIS_TLS_H
#define QUIRE_TOOLS_RECORDS_REDIS_TLS_H

#include "quire.h"
#include <hiredis/hiredis.h>

struct redis_tls;

/* Files in PEM; NULL: the system's authorities, no certificate of one's own. */
struct redis_tls_files {
    const char *authorities, *certificate, *key;
};

/* Shakes hands on a connected, blocking socket, which stays the caller's. host: what the certificate must name.
 * QUIRE_EPERM: one of the sides does not trust the other; QUIRE_EINVALID: a file; QUIRE_EIO: the connection. */
int redis_tls_start(const struct redis_tls_files *files, const char *host, int fd, struct redis_tls **out,
                    struct quire_error *err);
void redis_tls_close(struct redis_tls *tls); /* NULL is fine */

/* Gathers a request, and sends what was gathered before it waits for the next reply (freeReplyObject). */
int redis_tls_append(struct redis_tls *tls, int n, const char **words, const size_t *bytes, struct quire_error *err);
int redis_tls_next(struct redis_tls *tls, redisReader *reader, redisReply **out, struct quire_error *err);

#endif
