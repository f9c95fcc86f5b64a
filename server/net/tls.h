/*
 * tls.h - TLS between bytes from the socket and bytes for it, without touching the socket.
 *
 * The lane's engine receives and sends; a `struct tls_connection` turns what was received into plain bytes and plain
 * bytes into what is to be sent. Nothing here blocks or waits, the handshake included.
 *
 * Thread-safety: `struct tls` may be used from any lane; a connection belongs to one.
 */
#ifndef QUIRE_SERVER_TLS_H
#define QUIRE_SERVER_TLS_H

#include "server/process/config.h"
#include "server/protocol/resp.h"

struct server;
struct tls;
struct tls_connection;

/* Reads certificate, key and authorities that the settings name. Errors name the setting, the file and the reason. */
int tls_create(const struct config *config, struct tls **out, struct quire_error *err);
void tls_destroy(struct tls *tls); /* NULL is fine */
/* Reads the files again, for connections that come from now on. On failure the old ones stay in force. Blocks. */
int tls_reload(struct server *server, struct quire_error *err);

/* The server's side of a new connection, whose bytes to be sent count for the account; NULL without memory. */
struct tls_connection *tls_accept(struct tls *tls, struct resp_account *account);
void tls_free(struct tls_connection *connection); /* NULL is fine */

enum { TLS_MORE = 0, TLS_ENDED = -1, TLS_FAILED = -2 };

/* Hands over received bytes, which must stay until tls_read has given something else than bytes. */
void tls_feed(struct tls_connection *connection, const void *bytes, size_t n);
/* Plain bytes: their number, TLS_MORE when all that was fed is used up, TLS_ENDED when the other side said that it will
 * send nothing more, TLS_FAILED when this is not TLS or the other side cannot be trusted (tls_reason). */
long tls_read(struct tls_connection *connection, void *plain, size_t capacity);
/* Encrypts all of it; false when the connection has failed. Only when tls_is_ready. */
bool tls_write(struct tls_connection *connection, const void *plain, size_t n);
/* Whether the handshake is done. */
bool tls_is_ready(const struct tls_connection *connection);
/* Says that nothing more will be sent. */
void tls_end(struct tls_connection *connection);
/* Whether there is something to be sent, and the bytes: *out, which is empty, is exchanged for what holds them. */
size_t tls_output_room(const struct tls_connection *connection); /* memory for bytes to be sent */
bool tls_has_output(const struct tls_connection *connection);
void tls_take_output(struct tls_connection *connection, struct resp_buffer *out);
/* Why it failed, for the log. Valid as long as the connection. */
const char *tls_reason(const struct tls_connection *connection);
#endif
